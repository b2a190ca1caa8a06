"""The parameter memory of a launch: every argument as the bytes of its parameter.

.param .u64 a                  an array (placed for this run), or an address
.param .u32 n                  an integer;  .param .f32: a float
.param .align 64 .b8 m[128]    a tensor map, or 128 bytes
.param .align 8 .b8 s[24]      bytes: a struct by value, which `pack` makes of its fields
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation, raise_all
from tilescope.machine.launch.host_array import as_host_array, is_array
from tilescope.machine.launch.packing import PackedStruct
from tilescope.machine.memory import Memory, contents_of
from tilescope.machine.program import Program
from tilescope.machine.report.run import ArgumentArray
from tilescope.ptx.source_name import parameter_name, source_name
from tilescope.ptx.syntax import BITS_OF_TYPE, Variable
from tilescope.reading import entries, plain_int
from tilescope.rule import ARGUMENT_TYPE, ptx_example, rule
from tilescope.sentence import format_value
from tilescope.tensor_map import AnyMap
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES, is_encodable

ARGUMENT_COUNT = rule(
    "kernel-arguments",
    "A launch has one argument for each parameter of the kernel.",
    argument="args",
    found="{given:argument}",
    limit="{entry} has {wanted:parameter}: {names:, }",
    fix="Pass {wanted:argument}, in the order of the parameters.",
    source="PTX ISA, .entry: kernel parameters",
    passing=f"ts.Kernel({ptx_example('one-number.ptx')}).run(1, 32, [7])",
    failing=f"ts.Kernel({ptx_example('one-number.ptx')}).run(1, 32, [7, 8])",
)
ARGUMENT_KIND = rule(
    "kernel-argument",
    "An argument fits its parameter: a number, an array, a tensor map, or bytes of the parameter's size.",
    argument="args[{index}]",
    found="{shown}",
    limit="{name} is {declared}",
    fix="Pass {wanted}.",
    source="PTX ISA, .entry: kernel parameters",
    passing=f"ts.Kernel({ptx_example('one-number.ptx')}).run(1, 32, [7])",
    failing=f"ts.Kernel({ptx_example('one-number.ptx')}).run(1, 32, ['seven'])",
)
OTHER_SIZE = ARGUMENT_KIND.worded(
    found="{given_bytes:byte}[[, by ts.pack: {layout}]]",
    limit="{name} has {wanted_bytes:byte}",
    fix="Pass {wanted_bytes:byte}: look for a field of another type or alignment, or one that is missing.",
)

_MOST_ARGUMENTS = 4096  # the parameters of a kernel take at most 32764 bytes
Argument = object  # an int, a float, a tensor map, bytes or an array


class BoundArguments(NamedTuple):
    """Arguments bound to the parameters of the PTX, each with the number of the caller's argument.

    The two differ for a Triton kernel: a descriptor is one argument and several parameters.
    """

    values: Sequence[Argument]  # one for each parameter
    sources: Sequence[Argument]  # the caller's arrays, maps and numbers


class Parameters:
    """The parameter memory of a launch, and the tensor maps in it that only this run can read."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self._program = program
        self._memory = memory
        self.content: npt.NDArray[np.uint8] = np.zeros(rounded_up(program.param_bytes, 16), np.uint8)
        self.given_maps: dict[bytes, AnyMap] = {}

    def fill(self, values: Sequence[Argument]) -> None:
        """Store every argument in its parameter; a RuleError names all that do not fit."""
        entry = self._program.entry
        parameters = entry.parameters
        arguments = entries(values, _MOST_ARGUMENTS)
        if arguments is None:
            raise ARGUMENT_TYPE.error(
                argument="args", found=format_value(values), limit="a sequence of arguments", fix="Use args=[…]."
            )
        if len(arguments) != len(parameters):
            raise ARGUMENT_COUNT.error(
                given=len(arguments),
                wanted=len(parameters),
                entry=source_name(entry.name),
                names=[parameter_name(entry.name, parameter.name) for parameter in parameters],
            )
        problems: list[Violation] = []
        for index, (parameter, value) in enumerate(zip(parameters, arguments, strict=True)):
            argument = value
            if isinstance(value, PackedStruct):
                argument = value.aligned_for(self._program.module.version, parameter.size_bytes)
            content = self._encode(parameter, argument)
            if content is None:
                name = parameter_name(entry.name, parameter.name)
                problems.append(_describe_misfit(index, parameter, name, argument))
                continue
            start = self._program.param_offsets[parameter.number]
            self.content[start : start + len(content)] = np.frombuffer(content, np.uint8)
        raise_all(problems)

    def arrays(self, sources: Sequence[Argument]) -> tuple[ArgumentArray | None, ...]:
        """The array of each argument that is an array, its address or a map over it; None for any other argument."""
        return tuple(self._find_array(argument) for argument in sources)

    def _find_array(self, argument: Argument) -> ArgumentArray | None:
        if is_array(argument):
            return ArgumentArray(as_host_array(argument), self._memory.place(argument))
        address = argument.address if isinstance(argument, AnyMap) else plain_int(argument)
        region = None if address is None else contents_of(self._memory).region_at(address)
        if region is None or region.address != address:
            return None
        return ArgumentArray(region.array, region.address)

    def _encode(self, parameter: Variable, argument: Argument) -> bytes | None:
        size_bytes = parameter.size_bytes or 0
        bits = BITS_OF_TYPE[parameter.type]
        is_scalar = size_bytes * 8 == bits
        if isinstance(argument, AnyMap):
            return self._encode_map(argument, size_bytes, is_address=is_scalar and bits == 64)
        if isinstance(argument, bytes | bytearray | memoryview):
            return bytes(argument) if len(bytes(argument)) == size_bytes else None
        if not is_scalar:
            return None
        if is_array(argument):
            return self._memory.place(argument).to_bytes(8, "little") if bits == 64 else None
        return _encode_number(parameter.type, bits, argument)

    def _encode_map(self, tensor_map: AnyMap, size_bytes: int, *, is_address: bool) -> bytes | None:
        """A tensor map by value, or for a CUtensorMap* the address of a copy in global memory."""
        if is_address:
            content = np.frombuffer(self._encode_descriptor(tensor_map), np.uint8).copy()
            return self._memory.place(content).to_bytes(8, "little")
        return self._encode_descriptor(tensor_map) if size_bytes == DESCRIPTOR_BYTES else None

    def _encode_descriptor(self, tensor_map: AnyMap) -> bytes:
        """The 128 bytes of a tensor map; a map whose encoding is unknown gets placeholder bytes that name it."""
        if is_encodable(tensor_map):
            return tensor_map.encode()
        name = b"tilescope map %d" % len(self.given_maps)
        placeholder = name.ljust(DESCRIPTOR_BYTES, b"\xff")
        self.given_maps[placeholder] = tensor_map
        return placeholder


def _encode_number(type_name: str, bits: int, argument: Argument) -> bytes | None:
    """A number as the parameter stores it; None if it does not fit."""
    if isinstance(argument, np.generic | np.ndarray):
        argument = argument.item()
    if type_name.startswith("f") and isinstance(argument, int | float):
        return _encode_float(argument, bits)
    number = plain_int(argument)
    if number is None:
        is_untyped = type_name.startswith("b") and bits >= 16  # an f32 that the text declares as b32
        if isinstance(argument, float) and is_untyped:
            return _encode_float(argument, bits)
        return None
    if not -(1 << (bits - 1)) <= number < 1 << bits:
        return None
    return (number & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _encode_float(number: float, bits: int) -> bytes | None:
    """A float of `bits` bits; None if it is too large."""
    try:
        return struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], number)
    except (OverflowError, struct.error):  # struct.error: integers beyond every float
        return None


def _describe_misfit(index: int, parameter: Variable, name: str, argument: Argument) -> Violation:
    size_bytes = parameter.size_bytes or 0
    if isinstance(argument, bytes | bytearray | memoryview):
        layout = argument.layout if isinstance(argument, PackedStruct) else None
        given_bytes = len(bytes(argument))
        return OTHER_SIZE.violation(
            index=index, name=name, given_bytes=given_bytes, wanted_bytes=size_bytes, layout=layout
        )
    bits = BITS_OF_TYPE[parameter.type]
    if size_bytes * 8 != bits:
        declared = f"{size_bytes} bytes"
        expected = f"bytes of length {size_bytes}"
        if size_bytes == DESCRIPTOR_BYTES:
            expected = f"a tensor map, or {expected}"
    else:
        declared = f"a .{parameter.type}"
        expected = "an array or an address" if bits == 64 else f"a number of {bits} bits"
    shown = format_value(argument)
    return ARGUMENT_KIND.violation(index=index, shown=shown, name=name, declared=declared, wanted=expected)
