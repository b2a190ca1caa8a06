"""How Triton's host launches a kernel: it binds arguments to parameters, encodes descriptors, and allocates scratch memory.

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
from tilescope.machine.launch.host_array import as_host_array, is_array
from tilescope.machine.launch.kernel_arguments import Argument, BoundArguments
from tilescope.machine.launch.launch_shape import Extents
from tilescope.machine.launch.triton_parameter import TritonParameter, TritonType
from tilescope.machine.memory import Memory
from tilescope.reading import entries, plain_int
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import format_value
from tilescope.tensor_map import AnyMap, Im2colMap, TensorMap

_MOST_ARGUMENTS = 4096
_EXAMPLE = "ts.machine.launch.triton_host.encode_number"
_PARAMETER = "ts.machine.launch.triton_parameter.parse_parameter"

TRITON_ARGUMENT = rule(
    "triton-argument",
    "An argument of a Triton kernel has the type in its signature, and the properties that Triton assumed when it "
    "compiled.",
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
    "A kernel of Triton has the parameters that its launcher passes: those of the signature, and scratch memory.",
    argument="function",
    found="{entry} has {found_count:parameter}",
    limit="the signature and scratch memory make {least} to {most}",
    fix="Run its PTX with ts.Kernel(ptx) and an argument for each parameter: tilescope does not know how Triton {version} launches it.",
    source="Triton, the launcher of its NVIDIA backend",
)


class Scratch(NamedTuple):
    """Global memory that the launcher allocates for each block of a kernel."""

    block_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True)
class TritonDescriptor:
    """The tensor map that the compiler expects for a descriptor; `block` is innermost first."""

    data_type: str
    block: tuple[int, ...]
    swizzle: str
    element_bytes: int
    is_im2col: bool
    is_padded: bool  # 4-bit elements: one byte of global memory takes two of shared memory


@dataclass(frozen=True, slots=True)
class TritonHost:
    """The launch of a compiled kernel: its parameters, block, cluster, descriptors and scratch memory."""

    version: str
    arch: str
    parameters: tuple[TritonParameter, ...]
    threads: int  # of a block, including extra warps
    smem_bytes: int
    cluster_blocks: int
    descriptors: tuple[TritonDescriptor, ...]  # one for each descriptor parameter; none without TMA
    scratch: tuple[Scratch, ...]
    knows_rounding: bool = True  # descriptors without TMA have a flag for rounding to tf32, since Triton 3.7

    def __str__(self) -> str:
        parts = [f"{self.threads} threads", f"{self.smem_bytes} bytes of shared memory"]
        if self.cluster_blocks > 1:
            parts.append(f"clusters of {self.cluster_blocks} blocks")
        return f"by Triton {self.version} for {self.arch}, {', '.join(parts)}"

    @property
    def declared(self) -> str:
        """The parameters with their types, without the layouts of descriptors."""
        return ", ".join(f"{parameter.short_type} {parameter.name}" for parameter in self.parameters)

    def grid(self, programs: Extents) -> Extents:
        """The grid in blocks for a grid in programs: the blocks of a program are neighbours along x."""
        x, y, z = programs
        return x * self.cluster_blocks, y, z

    @property
    def cluster(self) -> Extents | None:
        """The blocks of a cluster; None for single blocks."""
        return (self.cluster_blocks, 1, 1) if self.cluster_blocks > 1 else None

    def bind(
        self, args: Sequence[Argument], memory: Memory, programs: Extents, ptx_parameters: int, entry: str
    ) -> BoundArguments:
        """Bind arguments to the parameters of the PTX; a RuleError names every argument that does not fit."""
        arguments = entries(args, _MOST_ARGUMENTS)
        if arguments is None:
            raise ARGUMENT_TYPE.error(
                argument="args", found=format_value(args), limit="a sequence of arguments", fix="Use args=[…]."
            )
        if len(arguments) != len(self.parameters):
            names = [parameter.name for parameter in self.parameters] or ["no parameter"]
            raise ARGUMENT_COUNT.error(given=len(arguments), names=names)
        problems: list[Violation] = []
        values: list[Argument] = []
        sources: list[Argument] = []
        descriptors = iter(self.descriptors)
        for index, (parameter, argument) in enumerate(zip(self.parameters, arguments, strict=True)):
            try:
                if parameter.is_descriptor:
                    bound = self._bind_descriptor(parameter, next(descriptors, None), argument, memory, index)
                    values += bound.values
                    sources += bound.sources
                elif not parameter.is_one:
                    values.append(bind_value(parameter, argument, memory, index))
                    sources.append(argument)
                else:
                    encode_number(parameter, argument, index)
                    sources.append(argument)
            except RuleError as error:
                problems += error.violations
        raise_all(problems)
        scratch = self._allocate_scratch(len(values), memory, programs, ptx_parameters, entry)
        return BoundArguments(values + scratch, sources)

    def _allocate_scratch(
        self, filled: int, memory: Memory, programs: Extents, ptx_parameters: int, entry: str
    ) -> list[Argument]:
        """Addresses of zeroed scratch memory for all blocks; 0 for a parameter whose kernel needs none."""
        unfilled = ptx_parameters - filled
        if not 0 <= unfilled <= len(self.scratch):
            raise OTHER_PARAMETERS.error(
                entry=entry,
                found_count=ptx_parameters,
                least=filled,
                most=filled + len(self.scratch),
                version=self.version,
            )
        addresses: list[Argument] = []
        for scratch in self.scratch[:unfilled]:
            size_bytes = scratch.block_bytes * self.cluster_blocks * prod(programs)
            addresses.append(memory.place(np.zeros(size_bytes, np.uint8)) if size_bytes else 0)
        return addresses

    def _bind_descriptor(
        self,
        parameter: TritonParameter,
        descriptor: TritonDescriptor | None,
        argument: Any,
        memory: Memory,
        index: int,
    ) -> BoundArguments:
        tensor = _read_tensor(parameter, argument, memory, index)
        tensor_map = argument if isinstance(argument, AnyMap) else None
        values = self.encode_descriptor(descriptor, tensor, tensor_map)
        return BoundArguments(values, [unwrap_descriptor(argument)])

    def encode_descriptor(
        self, descriptor: TritonDescriptor | None, tensor: DescribedTensor, tensor_map: AnyMap | None = None
    ) -> list[Argument]:
        """The values of a descriptor's PTX parameters; without TMA, `descriptor` is None."""
        sizes: list[Argument] = [int(extent) for extent in tensor.shape]
        strides: list[Argument] = [int(stride) for stride in tensor.strides]
        if descriptor is None:
            flags: list[Argument] = [bytes([tensor.has_nan_fill])]
            if self.knows_rounding:
                flags.append(bytes([tensor.is_rounded]))
            return [tensor.address, *sizes, *strides, *flags, *sizes, *strides]
        descriptor_map = _build_map(descriptor, tensor, self.arch) if tensor_map is None else tensor_map
        return [descriptor_map, *sizes, *strides]


class DescribedTensor(NamedTuple):
    """A tensor on the host: shape and strides in numpy order, strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    has_nan_fill: bool = False
    is_rounded: bool = False
    element_strides: tuple[int, ...] | None = None
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()


def unwrap_descriptor(argument: Any) -> Argument:
    """The array of a host descriptor; any other argument is returned as it is."""
    return argument.base if hasattr(argument, "base") and hasattr(argument, "block_shape") else argument


def _read_tensor(parameter: TritonParameter, argument: Any, memory: Memory, index: int) -> DescribedTensor:
    if isinstance(argument, AnyMap):
        element_bytes = argument.data_type.bits // 8
        strides = [stride // element_bytes for stride in argument.strides_bytes]
        return DescribedTensor(argument.address, argument.dims[::-1], (*strides[::-1], 1))
    base = unwrap_descriptor(argument)
    if not is_array(base):
        expected = "an array, a TensorDescriptor of Triton's, or a tensor map"
        raise TRITON_ARGUMENT.error(
            index=index, name=parameter.name, shown=format_value(argument), type=parameter.type, wanted=expected
        )
    array = as_host_array(base)
    _require_elements(parameter, array.dtype, index)
    address = memory.place(base)
    if base is argument:
        strides = [stride // array.itemsize for stride in array.strides]
        tensor = DescribedTensor(address, array.shape, tuple(strides))
    else:
        tensor = read_descriptor(argument, address)
    if len(tensor.shape) != parameter.rank:
        raise OTHER_RANK.error(index=index, name=parameter.name, shape=tensor.shape, rank=parameter.rank)
    return tensor


def read_descriptor(descriptor: Any, address: int) -> DescribedTensor:
    """The tensor of a TensorDescriptor that Triton's or Gluon's host made, at its address."""
    element_strides = getattr(descriptor, "element_strides", None)
    return DescribedTensor(
        address,
        tuple(map(int, descriptor.shape)),
        tuple(map(int, descriptor.strides)),
        has_nan_fill=getattr(descriptor, "padding", "zero") == "nan",
        is_rounded=bool(getattr(descriptor, "round_f32_to_tf32", False)),
        element_strides=None if element_strides is None else tuple(element_strides),
        lower_corner=tuple(getattr(descriptor, "pixel_box_lower_corner", None) or ()),
        upper_corner=tuple(getattr(descriptor, "pixel_box_upper_corner", None) or ()),
    )


def _build_map(descriptor: TritonDescriptor, tensor: DescribedTensor, arch: str) -> AnyMap:
    """The tensor map that Triton's host encodes: L2 promotion 128B, with the type and block that the compiler chose."""
    dims = [*tensor.shape[::-1]]
    if descriptor.is_padded:
        dims[0] *= 2
    options: dict[str, Any] = {
        "data_type": "tfloat32" if tensor.is_rounded else descriptor.data_type,
        "dims": tuple(dims),
        "strides_bytes": tuple(stride * descriptor.element_bytes for stride in tensor.strides[-2::-1]),
        "swizzle": descriptor.swizzle,
        "l2_promotion": "128B",
        "oob_fill": "nan" if tensor.has_nan_fill else "zero",
        "address": tensor.address,
        "arch": Arch.named(arch).name,
    }
    if tensor.element_strides is not None:
        options["element_strides"] = tensor.element_strides[::-1]
    if not descriptor.is_im2col:
        return TensorMap(**options, box=descriptor.block)
    channels, pixels = descriptor.block
    return Im2colMap(
        **options,
        lower_corner=tensor.lower_corner[::-1],
        upper_corner=tensor.upper_corner[::-1],
        channels_per_pixel=channels,
        pixels_per_column=pixels,
    )


def bind_value(parameter: TritonParameter, argument: Any, memory: Memory, index: int = 0) -> Argument:
    """The address of a pointer argument; for any other parameter the bytes of a number."""
    if not parameter.is_pointer:
        return encode_number(parameter, argument, index)
    if argument is None:
        return 0
    if is_array(argument):
        _require_elements(parameter, as_host_array(argument).dtype, index)
        address: int | None = memory.place(argument)
    else:
        address = plain_int(argument)
    if address is None:
        raise _describe_misfit(parameter, argument, index, "an array, an address or None")
    if address % parameter.multiple_of:
        raise NOT_A_MULTIPLE.error(
            index=index,
            name=parameter.name,
            shown=f"is at {address:#x}",
            multiple=parameter.multiple_of,
            type=f"{parameter.type}:1",
        )
    return address


def encode_number(parameter: TritonParameter, argument: Any, index: int = 0) -> bytes:
    """The bytes of a number, as the parameter stores them.

    >>> from tilescope.machine.launch.triton_parameter import parse_parameter
    >>> encode_number(parse_parameter("n", "i32"), -1).hex(), encode_number(parse_parameter("x", "bf16"), 1.0).hex()
    ('ffffffff', '803f')
    """
    element = parameter.element
    plain = argument.item() if isinstance(argument, np.generic) else argument
    number = int(plain) if isinstance(plain, bool) else plain_int(plain)
    if element.kind == "float":
        if number is None and not isinstance(plain, float):
            raise _describe_misfit(parameter, argument, index, "a number")
        return _encode_float(parameter.type, float(plain))
    if number is None or not _is_in_range(element, number):
        raise _describe_misfit(parameter, argument, index, f"an integer of {8 * element.size_bytes} bits")
    if parameter.is_one and number != 1:
        raise NOT_ONE.error(index=index, name=parameter.name, shown=format_value(argument), type=parameter.type)
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


def _is_in_range(element: TritonType, number: int) -> bool:
    bits = 8 * element.size_bytes
    return -(1 << (bits - 1)) <= number < 1 << bits


def _encode_float(type_name: str, number: float) -> bytes:
    if type_name == "bf16":
        return np.array(number, DataType.named("bf16").numpy).tobytes()
    if type_name == "fp64":
        return struct.pack("<d", number)
    dtype = {"fp16": np.float16, "fp32": np.float32}[type_name]
    with np.errstate(over="ignore"):  # a number that is too large becomes infinite, as in the launcher
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


def _describe_misfit(parameter: TritonParameter, argument: object, index: int, wanted: str) -> RuleError:
    return TRITON_ARGUMENT.error(
        index=index, name=parameter.name, shown=format_value(argument), type=parameter.type, wanted=wanted
    )
