"""The launcher of a compiled kernel: it hands PTX and arguments to the machine.

    kernel[grid](x, y, n, BLOCK=1024)
      → Triton compiles it, and calls   launcher(grid_x, grid_y, grid_z, stream, function, …hooks…, x, y, n, 1024)
      → bind_arguments                  addresses, numbers, tensor maps: one value for each parameter of the PTX
      → Kernel.run

Arguments arrive as the program passed them, including constants; the signature determines which are compiled in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple, Protocol, cast

from tilescope.errors import DeviceError
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.kernel_arguments import Argument
from tilescope.machine.launch.triton_compiler import describe_host
from tilescope.machine.launch.triton_host import TRITON_ARGUMENT, encode_number, read_descriptor
from tilescope.machine.launch.triton_parameter import TritonParameter, parse_parameter
from tilescope.sentence import format_value
from tilescope.triton.host_memory import HostMemory
from tilescope.triton.host_tensor import Tensor

CONSTEXPR = "constexpr"
_PACKAGE_FOLDER = str(Path(__file__).parent)
Signature = str | tuple["Signature", ...]
Hook = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """What Triton holds as the handle of a function: the assembled kernel, and its text."""

    kernel: Kernel
    ptx: str


class Source(Protocol):
    """What Triton compiled."""

    signature: dict[object, Signature]


class BoundParameter(NamedTuple):
    """A parameter of the signature that is no constant, with its argument."""

    parameter: TritonParameter
    argument: object


class LaunchRequest(NamedTuple):
    """A launch as the machine takes it."""

    kernel: Kernel
    grid: tuple[int, int, int]
    threads: int
    cluster: tuple[int, int, int] | None
    smem_bytes: int
    values: list[Argument]
    memory: HostMemory
    call_site: str | None


class Launcher:
    """Triton makes one for each compiled kernel, and calls it for each launch."""

    def __init__(
        self, triton: ModuleType, source: Source, metadata: object, run: Callable[[LaunchRequest], None]
    ) -> None:
        self._triton = triton
        self._signature = tuple(source.signature.values())
        self._names = [str(name) for name in source.signature]
        parameters = tuple(_list_parameters(self._names, self._signature))
        self._host = describe_host(triton, metadata, parameters)
        self._parameters = parameters
        self._run = run

    def __call__(  # noqa: PLR0917  the order is Triton's
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: object,
        function: LoadedKernel,
        _kernel_metadata: object,
        launch_metadata: object,
        enter_hook: Hook | None,
        exit_hook: Hook | None,
        *arguments: object,
    ) -> None:
        """Launch the kernel; a grid without blocks launches nothing, as on a card."""
        __tracebackhide__ = True
        programs = (int(grid_x), int(grid_y), int(grid_z))
        if enter_hook is not None:
            enter_hook(launch_metadata)
        if min(programs) > 0:
            self._run(self._bind(programs, stream, function, arguments))
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _bind(
        self, programs: tuple[int, int, int], stream: object, function: LoadedKernel, arguments: Sequence[object]
    ) -> LaunchRequest:
        flat = [*_flatten(self._signature, arguments)]
        bound_parameters = [BoundParameter(*pair) for pair in zip(self._parameters, flat, strict=True)]
        scratch = self._allocate_scratch(programs, stream)
        tensors = [tensor for bound in bound_parameters if (tensor := _find_tensor(bound)) is not None]
        possible_addresses = [
            bound.argument
            for bound in bound_parameters
            if bound.parameter.type in ("i64", "u64") or bound.parameter.is_pointer
        ]
        addresses = [argument for argument in possible_addresses if isinstance(argument, int)]
        memory = HostMemory([*tensors, *(buffer for buffer in scratch if buffer is not None)], addresses)
        descriptors = iter(self._host.descriptors)
        values: list[Argument] = []
        for index, bound in enumerate(bound_parameters):
            if bound.parameter.is_descriptor:
                tensor = _find_tensor(bound)
                if tensor is None:
                    raise _describe_misfit(bound, index, "a TensorDescriptor")
                described = read_descriptor(bound.argument, tensor.data_ptr())
                values += self._host.encode_descriptor(next(descriptors, None), described)
            elif bound.parameter.is_pointer:
                values.append(_find_address(bound, index))
            else:
                values.append(encode_number(bound.parameter, bound.argument, index))
        scratch_count = len(function.kernel.parameters) - len(values)
        if not 0 <= scratch_count <= len(scratch):
            raise DeviceError(
                f"{function.kernel.entry} has {len(function.kernel.parameters)} parameters, and its signature fills "
                f"{len(values)}: tilescope does not know how Triton {self._triton.__version__} launches it."
            )
        values += [0 if buffer is None else buffer.data_ptr() for buffer in scratch[:scratch_count]]
        host = self._host
        return LaunchRequest(
            function.kernel,
            host.grid(programs),
            host.threads,
            host.cluster,
            host.smem_bytes,
            values,
            memory,
            find_call_site(self._triton),
        )

    def _allocate_scratch(self, programs: tuple[int, int, int], stream: object) -> list[Tensor | None]:
        """Scratch memory by the allocators of the program, as on a card: triton.set_allocator sets the first."""
        allocation = self._triton.runtime._allocation
        allocators = (allocation._allocator, allocation._profile_allocator)
        buffers: list[Tensor | None] = []
        for scratch, allocator in zip(self._host.scratch, allocators, strict=True):
            size_bytes = scratch.block_bytes * self._host.cluster_blocks * programs[0] * programs[1] * programs[2]
            buffers.append(allocator.get()(size_bytes, scratch.alignment_bytes, stream) if size_bytes else None)
        return buffers


def _list_parameters(names: Sequence[str], signature: Sequence[Signature]) -> Iterator[TritonParameter]:
    """The parameters that are not compiled in; those of a tuple follow each other."""
    for name, written in zip(names, signature, strict=True):
        if isinstance(written, tuple):
            yield from _list_parameters([f"{name}[{number}]" for number in range(len(written))], written)
        elif written != CONSTEXPR:
            yield parse_parameter(name, written)


def _flatten(signature: Sequence[Signature], arguments: Sequence[object]) -> Iterator[object]:
    """The arguments of the parameters that are not compiled in."""
    for written, argument in zip(signature, arguments, strict=True):
        if isinstance(written, tuple):
            yield from _flatten(written, tuple(argument))  # type: ignore[arg-type]
        elif written != CONSTEXPR:
            yield argument


def _find_tensor(bound: BoundParameter) -> Tensor | None:
    """The tensor of a pointer or a descriptor; None for an address, a number or None."""
    inner = bound.argument
    if bound.parameter.is_descriptor:
        inner = getattr(inner, "base", None)
    if hasattr(inner, "data_ptr") and hasattr(inner, "dtype"):
        return cast(Tensor, inner)
    return None


def _find_address(bound: BoundParameter, index: int) -> int:
    tensor = _find_tensor(bound)
    if tensor is not None:
        return int(tensor.data_ptr())
    if bound.argument is None:
        return 0
    if isinstance(bound.argument, int):
        return bound.argument
    raise _describe_misfit(bound, index, "a tensor on the CPU, tilescope.triton.tensor(array), or an address")


def _describe_misfit(bound: BoundParameter, index: int, wanted: str) -> Exception:
    return TRITON_ARGUMENT.error(
        index=index,
        name=bound.parameter.name,
        shown=format_value(bound.argument),
        type=bound.parameter.short_type,
        wanted=wanted,
    )


def find_call_site(triton: ModuleType) -> str | None:
    """File and line of the program that launched, below the frames of Triton and of this package."""
    folders = (_PACKAGE_FOLDER, str(Path(str(triton.__file__)).parent))
    frame: FrameType | None = sys._getframe(1)  # the only way to it without the cost of a whole stack
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(folders):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return None
