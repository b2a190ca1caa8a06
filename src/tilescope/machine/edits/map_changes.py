"""A kernel whose launch gets a tensor map with another swizzle: the text is right, the host is not."""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.kernel_arguments import Argument, BoundArguments
from tilescope.machine.memory import Memory
from tilescope.ptx.syntax import Variable
from tilescope.tensor_map import AnyMap, decode_tensor_map
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES

_MAP_ALIGNMENT_BYTES = 64
_OTHER_SWIZZLES = ("none", "128B", "64B", "32B")


class OtherSwizzleKernel(Kernel):
    """A kernel that runs with another swizzle in the map that is one of its arguments."""

    def __init__(self, kernel: Kernel, argument: int) -> None:
        self.ptx = kernel.ptx
        self.module = kernel.module
        self.program = kernel.program
        self.host = kernel.host
        self._function = kernel.module.functions[kernel.entry]
        self.argument = argument  # its number

    def _bound(self, args: Sequence[Argument], memory: Memory, grid: int | Sequence[int]) -> BoundArguments:
        """The arguments of the kernel, with that map changed."""
        bound = super()._bound(args, memory, grid)
        values = [*bound.values]
        if self.argument < len(values):
            values[self.argument] = other_swizzle(values[self.argument])
        return bound._replace(values=values)


def is_map(parameter: Variable) -> bool:
    """Whether a parameter is as large, and as aligned, as a tensor map by value."""
    return parameter.size_bytes == DESCRIPTOR_BYTES and parameter.alignment_bytes >= _MAP_ALIGNMENT_BYTES


def other_swizzle(argument: Argument) -> Argument:
    """A map with a swizzle that it does not have, the first that its box allows; what is no map stays as it is.

    >>> from tilescope.tensor_map import TensorMap
    >>> other_swizzle(TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")).swizzle.name
    'none'
    """
    if isinstance(argument, bytes) and len(argument) == DESCRIPTOR_BYTES:
        try:
            argument = decode_tensor_map(argument)
        except RuleError:
            return argument
    if isinstance(argument, AnyMap):
        for swizzle in _OTHER_SWIZZLES:
            try:
                if swizzle != argument.swizzle:
                    return argument.with_fields(swizzle=swizzle)
            except RuleError:
                continue  # the box is wider than its span
    return argument
