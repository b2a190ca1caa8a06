"""What Triton's host does to launch a kernel: arguments into parameters, descriptors, clusters, scratch memory.

    def matmul(a, of_b, K, BLOCK)     a: "*fp16"    an array, or an address      →  .u64
                                      of_b: "tensordesc<fp16[64,64]>"            →  .b8[128], its shape (.u32), its strides (.u64)
                                      K: "i32"      a number                     →  .u32
                                      BLOCK         a constexpr                  →  nothing: it is compiled in
                                                    scratch memory               →  .u64 .u64

Without TMA (sm_80) a descriptor is an address, its shape and strides, two flags, and its shape and strides once more.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.bound import Bound
from tilescope.machine.launch.host_array import host_array, is_array
from tilescope.machine.launch.kernel_arguments import Argument
from tilescope.machine.launch.launch_shape import Extents
from tilescope.machine.launch.triton_signature import TritonParameter, TritonType
from tilescope.machine.memory import Memory
from tilescope.reading import entries, plain_int
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import printed
from tilescope.tensor_map import AnyMap, Im2colMap, TensorMap

_MOST_ARGUMENTS = 4096
_EXAMPLE = "ts.machine.launch.triton_host.bound_number"
_PARAMETER = "ts.machine.launch.triton_signature.parameter_of"

TRITON_ARGUMENT = rule(
    "triton-argument",
    "An argument of a Triton kernel has the type of its signature, and the properties that Triton compiled in.",
    argument="args[{index}]",
    found="{name} = {shown}",
    limit="the signature says {type}",
    fix="Pass {wanted}.",
    source="Triton, the launcher of its NVIDIA backend",
    passing=f'{_EXAMPLE}({_PARAMETER}("n", "i32:16"), 32)',
    failing=f'{_EXAMPLE}({_PARAMETER}("n", "i32:16"), 33)',
)
ARGUMENT_COUNT = TRITON_ARGUMENT.worded(
    argument="args",
    found="{given:argument}",
    limit="the signature has {names:, }",
    fix="Pass an argument for each of them; constexprs are compiled in.",
)
NOT_A_MULTIPLE = TRITON_ARGUMENT.worded(
    found="{name} {shown}",
    limit="the kernel was compiled for a multiple of {multiple}",
    fix='Pass a multiple of {multiple}, or compile with "{type}" in the signature.',
)
NOT_ONE = TRITON_ARGUMENT.worded(
    found="{name} = {shown}",
    limit="the kernel was compiled for the constant 1",
    fix='Pass 1, or compile with "{type}" in the signature.',
)
OTHER_ELEMENTS = TRITON_ARGUMENT.worded(
    found="{name} has elements of {shown}",
    fix="Pass an array of {wanted}, or compile with another signature.",
)
OTHER_RANK = TRITON_ARGUMENT.worded(
    found="{name} has the shape {shape: x }",
    limit="its block has {rank:dimension}",
    fix="Pass an array of {rank:dimension}.",
)
OTHER_PARAMETERS = rule(
    "triton-parameters",
    "A kernel of Triton has the parameters that its launcher fills: those of the signature, and scratch memory.",
    argument="function",
    found="{entry} has {found_count:parameter}",
    limit="the signature and scratch memory make {least} to {most}",
    fix="Run its PTX with ts.Kernel(ptx) and an argument for each parameter: tilescope does not know how Triton {version} launches it.",
    source="Triton, the launcher of its NVIDIA backend",
)


class Scratch(NamedTuple):
    """Global memory that a kernel asks of its launcher, for each block."""

    block_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True)
class TritonDescriptor:
    """How the compiler wants a descriptor's map; `block` is innermost first."""

    data_type: str
    block: tuple[int, ...]
    swizzle: str
    element_bytes: int
    is_im2col: bool
    is_padded: bool  # 4-bit elements of which two bytes of shared memory hold one of global memory


@dataclass(frozen=True, slots=True)
class TritonHost:
    """What a compiled kernel says about its launch."""

    version: str
    arch: str
    parameters: tuple[TritonParameter, ...]
    threads: int  # of a block, those of extra warps included
    smem_bytes: int
    cluster_blocks: int
    descriptors: tuple[TritonDescriptor, ...]  # one for each parameter that is one; none without TMA
    scratch: tuple[Scratch, ...]
    knows_rounding: bool = (
        True  # whether descriptors without TMA say if they round to tf32; before Triton 3.7 they did not
    )

    def __str__(self) -> str:
        parts = [f"{self.threads} threads", f"{self.smem_bytes} bytes of shared memory"]
        if self.cluster_blocks > 1:
            parts.append(f"clusters of {self.cluster_blocks} blocks")
        return f"by Triton {self.version} for {self.arch}, {', '.join(parts)}"

    @property
    def declared(self) -> str:
        """The parameters with their types, the layouts of descriptors left out."""
        return ", ".join(f"{one.short_type} {one.name}" for one in self.parameters)

    def grid(self, programs: Extents) -> Extents:
        """The blocks of a grid of programs: a program of several blocks has them side by side along x."""
        x, y, z = programs
        return x * self.cluster_blocks, y, z

    @property
    def cluster(self) -> Extents | None:
        """The blocks of a cluster; None for single blocks."""
        return (self.cluster_blocks, 1, 1) if self.cluster_blocks > 1 else None

    def bound(
        self, args: Sequence[Argument], memory: Memory, programs: Extents, ptx_parameters: int, entry: str
    ) -> Bound:
        """The arguments as the parameters of the PTX take them; a RuleError names all that do not fit."""
        given = entries(args, _MOST_ARGUMENTS)
        if given is None:
            raise ARGUMENT_TYPE.error(
                argument="args", found=printed(args), limit="a sequence of arguments", fix="Use args=[…]."
            )
        if len(given) != len(self.parameters):
            names = [one.name for one in self.parameters] or ["no parameter"]
            raise ARGUMENT_COUNT.error(given=len(given), names=names)
        problems: list[Violation] = []
        values: list[Argument] = []
        sources: list[Argument] = []
        descriptors = iter(self.descriptors)
        for index, (parameter, argument) in enumerate(zip(self.parameters, given, strict=True)):
            described = next(descriptors, None) if parameter.is_descriptor else None
            try:
                if parameter.is_descriptor:
                    made = self._descriptor(parameter, described, argument, memory, index)
                    values += made.values
                    sources += made.sources
                elif not parameter.is_one:
                    values.append(bound_value(parameter, argument, memory, index))
                    sources.append(argument)
                else:
                    bound_number(parameter, argument, index)
                    sources.append(argument)
            except RuleError as error:
                problems += error.violations
        raise_all(problems)
        return Bound(values + self._scratch(len(values), memory, programs, ptx_parameters, entry), sources)

    def _scratch(
        self, filled: int, memory: Memory, programs: Extents, ptx_parameters: int, entry: str
    ) -> list[Argument]:
        """Memory for the blocks, zeros here; address 0 where the kernel asks for none."""
        wanted = ptx_parameters - filled
        if not 0 <= wanted <= len(self.scratch):
            raise OTHER_PARAMETERS.error(
                entry=entry,
                found_count=ptx_parameters,
                least=filled,
                most=filled + len(self.scratch),
                version=self.version,
            )
        addresses: list[Argument] = []
        for one in self.scratch[:wanted]:
            size_bytes = one.block_bytes * self.cluster_blocks * prod(programs)
            addresses.append(memory.place(np.zeros(size_bytes, np.uint8)) if size_bytes else 0)
        return addresses

    def _descriptor(
        self,
        parameter: TritonParameter,
        described: TritonDescriptor | None,
        argument: Any,
        memory: Memory,
        index: int,
    ) -> Bound:
        tensor = _tensor_of(parameter, argument, memory, index)
        sizes: list[Argument] = [int(extent) for extent in tensor.shape]
        steps: list[Argument] = [int(stride) for stride in tensor.strides]
        if described is None:
            flags: list[Argument] = [bytes([tensor.has_nan_fill])]
            if self.knows_rounding:
                flags.append(bytes([tensor.is_rounded]))
            return Bound([tensor.address, *sizes, *steps, *flags, *sizes, *steps], [argument_array(argument)])
        tensor_map = argument if isinstance(argument, AnyMap) else _map_of(described, tensor, self.arch)
        return Bound([tensor_map, *sizes, *steps], [argument_array(argument)])


class _Tensor(NamedTuple):
    """A tensor of the host's, numpy order, strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    has_nan_fill: bool = False
    is_rounded: bool = False
    element_strides: tuple[int, ...] | None = None
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()


def argument_array(argument: Any) -> Argument:
    """The array that a descriptor describes, or the argument itself."""
    return argument.base if hasattr(argument, "base") and hasattr(argument, "block_shape") else argument


def _tensor_of(parameter: TritonParameter, argument: Any, memory: Memory, index: int) -> _Tensor:
    if isinstance(argument, AnyMap):
        element_bytes = argument.data_type.bits // 8
        strides = [stride // element_bytes for stride in argument.strides_bytes]
        return _Tensor(argument.address, argument.dims[::-1], (*strides[::-1], 1))
    base = argument_array(argument)
    if not is_array(base):
        wanted = "an array, a TensorDescriptor of Triton's, or a tensor map"
        raise TRITON_ARGUMENT.error(
            index=index, name=parameter.name, shown=printed(argument), type=parameter.type, wanted=wanted
        )
    array = host_array(base)
    _require_elements(parameter, array.dtype, index)
    address = memory.place(base)
    if base is argument:
        strides = [stride // array.itemsize for stride in array.strides]
        tensor = _Tensor(address, array.shape, tuple(strides))
    else:
        element_strides = getattr(argument, "element_strides", None)
        tensor = _Tensor(
            address,
            tuple(map(int, argument.shape)),
            tuple(map(int, argument.strides)),
            has_nan_fill=getattr(argument, "padding", "zero") == "nan",
            is_rounded=bool(getattr(argument, "round_f32_to_tf32", False)),
            element_strides=None if element_strides is None else tuple(element_strides),
            lower_corner=tuple(getattr(argument, "pixel_box_lower_corner", None) or ()),
            upper_corner=tuple(getattr(argument, "pixel_box_upper_corner", None) or ()),
        )
    if len(tensor.shape) != parameter.rank:
        raise OTHER_RANK.error(index=index, name=parameter.name, shape=tensor.shape, rank=parameter.rank)
    return tensor


def _map_of(described: TritonDescriptor, tensor: _Tensor, arch: str) -> AnyMap:
    """The map that Triton's host encodes: L2 promotion 128B, strides in bytes, the type and block of the compiler."""
    dims = [*tensor.shape[::-1]]
    if described.is_padded:
        dims[0] *= 2
    options: dict[str, Any] = {
        "data_type": "tfloat32" if tensor.is_rounded else described.data_type,
        "dims": tuple(dims),
        "strides_bytes": tuple(stride * described.element_bytes for stride in tensor.strides[-2::-1]),
        "swizzle": described.swizzle,
        "l2_promotion": "128B",
        "oob_fill": "nan" if tensor.has_nan_fill else "zero",
        "address": tensor.address,
        "arch": Arch.named(arch).name,
    }
    if tensor.element_strides is not None:
        options["element_strides"] = tensor.element_strides[::-1]
    if not described.is_im2col:
        return TensorMap(**options, box=described.block)
    channels, pixels = described.block
    return Im2colMap(
        **options,
        lower_corner=tensor.lower_corner[::-1],
        upper_corner=tensor.upper_corner[::-1],
        channels_per_pixel=channels,
        pixels_per_column=pixels,
    )


def bound_value(parameter: TritonParameter, argument: Any, memory: Memory, index: int = 0) -> Argument:
    """An address for a pointer, the bytes of a number for anything else."""
    if not parameter.is_pointer:
        return bound_number(parameter, argument, index)
    if argument is None:
        return 0
    if is_array(argument):
        _require_elements(parameter, host_array(argument).dtype, index)
        address: int | None = memory.place(argument)
    else:
        address = plain_int(argument)
    if address is None:
        raise _misfit(parameter, argument, index, "an array, an address or None")
    if address % parameter.multiple_of:
        raise NOT_A_MULTIPLE.error(
            index=index,
            name=parameter.name,
            shown=f"lies at {address:#x}",
            multiple=parameter.multiple_of,
            type=f"{parameter.type}:1",
        )
    return address


def bound_number(parameter: TritonParameter, argument: Any, index: int = 0) -> bytes:
    """The bytes of a number, as the parameter holds them.

    >>> from tilescope.machine.launch.triton_signature import parameter_of
    >>> bound_number(parameter_of("n", "i32"), -1).hex(), bound_number(parameter_of("x", "bf16"), 1.0).hex()
    ('ffffffff', '803f')
    """
    element = parameter.element
    plain = argument.item() if isinstance(argument, np.generic) else argument
    number = int(plain) if isinstance(plain, bool) else plain_int(plain)
    if element.kind == "float":
        if number is None and not isinstance(plain, float):
            raise _misfit(parameter, argument, index, "a number")
        return _float_bytes(parameter.type, float(plain))
    if number is None or not _fits(element, number):
        raise _misfit(parameter, argument, index, f"an integer of {8 * element.size_bytes} bits")
    if parameter.is_one and number != 1:
        raise NOT_ONE.error(index=index, name=parameter.name, shown=printed(argument), type=parameter.type)
    if number % parameter.multiple_of:
        raise NOT_A_MULTIPLE.error(
            index=index,
            name=parameter.name,
            shown=f"= {number}",
            multiple=parameter.multiple_of,
            type=parameter.type,
        )
    bits = 8 * element.size_bytes
    return (number & ((1 << bits) - 1)).to_bytes(element.size_bytes, "little")


def _fits(element: TritonType, number: int) -> bool:
    bits = 8 * element.size_bytes
    return -(1 << (bits - 1)) <= number < 1 << bits


def _float_bytes(type_name: str, number: float) -> bytes:
    if type_name == "bf16":
        return np.array(number, DataType.named("bf16").numpy).tobytes()
    if type_name == "fp64":
        return struct.pack("<d", number)
    dtype = {"fp16": np.float16, "fp32": np.float32}[type_name]
    with np.errstate(over="ignore"):  # too large a number is infinite, as the launcher makes it
        return np.array(number).astype(dtype).tobytes()


def _require_elements(parameter: TritonParameter, dtype: np.dtype[Any], index: int) -> None:
    element = parameter.element
    if dtype.name not in element.numpy_names:
        raise OTHER_ELEMENTS.error(
            index=index,
            name=parameter.name,
            shown=dtype.name,
            type=parameter.type,
            wanted=" or ".join(element.numpy_names),
        )


def _misfit(parameter: TritonParameter, argument: object, index: int, wanted: str) -> RuleError:
    return TRITON_ARGUMENT.error(
        index=index, name=parameter.name, shown=printed(argument), type=parameter.type, wanted=wanted
    )
