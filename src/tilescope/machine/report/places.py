"""How findings name threads, instructions and addresses.

threads 0-31 and 64-95 of block (1, 0, 0)
softmax.py:12, PTX line 240 (ld.global.b32 %r1, [%rd4+16])
4 bytes past the end of the array of 1024 bytes at 0x7f0000000000, args[2]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import Bytes, Region
from tilescope.machine.program import Program
from tilescope.ptx.source_name import source_name
from tilescope.ptx.syntax import Instruction, place_in_words
from tilescope.sentence import counted, listed
from tilescope.sync.address import SHARED_OFFSET_MASK
from tilescope.sync.cluster_shape import BlockIndex, LaneNumbers, block_index

_LOCAL_NAME = re.compile(r"_ZZ.*E(?P<length>\d+)(?P<name>[A-Za-z_]\w*)")
_RANGES_NAMED = 4
_POINTER_BYTES = 8
NULL = "a null pointer"
_NULL_BYTES = 1 << 16  # addresses below this are a null pointer and an offset
_NEAR_BYTES = 1 << 30  # an address farther away is not related to any array


def name_threads(numbers: Sequence[int]) -> str:
    """Name threads of a block, whose numbers are in ascending order.

    >>> name_threads([5]), name_threads([0, 1, 2, 3, 8, 9])
    ('thread 5', 'threads 0-3 and 8-9')
    >>> name_threads(list(range(0, 64, 2)))
    'threads 0, 2, 4, 6 and 28 others'
    """
    if len(numbers) == 1:
        return f"thread {numbers[0]}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges[:_RANGES_NAMED]]
    others = sum(last - first + 1 for first, last in ranges[_RANGES_NAMED:])
    if others:
        parts.append(counted(others, "other"))
    return f"threads {listed(parts)}"


def block_index_of(cluster: Cluster, rank: int) -> BlockIndex:
    """The block index in the grid of a block of a cluster."""
    return block_index(cluster.first_block, cluster.launch.cluster, rank)


def thread_numbers(cluster: Cluster, lanes: LaneNumbers) -> tuple[int, ...]:
    """The numbers of lanes in their block, x fastest."""
    return tuple((lanes % cluster.block_lanes).tolist())


def thread_index(launch: Launch, thread: int) -> tuple[int, int, int]:
    """%tid of a thread, by its number in the block."""
    width, height, _ = launch.block
    return thread % width, thread // width % height, thread // width // height


def name_line(program: Program, pc: int) -> str:
    """The source line of an instruction, or its PTX line if it has none."""
    instruction = program.instructions[pc]
    if instruction is None:
        return "the end of a function"
    return instruction.line_name


def name_instruction(program: Program, pc: int) -> str:
    """An instruction with its source line, its PTX line and its text."""
    instruction = program.instructions[pc]
    if instruction is None:
        return "the end of a function"
    return place_in_words(instruction.source_line, instruction.line, instruction.text)


class LineFacts(TypedDict):
    """The lines of the instructions of a finding: of the PTX text, and of the source that it was compiled from."""

    ptx_lines: tuple[int, ...]
    source_lines: tuple[str, ...]
    file: str  # of the first instruction: its source, or "" where only its line of the PTX text is known
    line: int
    column: int


def line_facts(program: Program, *pcs: int) -> LineFacts:
    """The lines of some instructions, each once, in their order; each finding of a run has them among its values."""
    instructions = [instruction for pc in pcs if (instruction := program.instructions[pc]) is not None]
    sources = [str(instruction.source) for instruction in instructions if instruction.source is not None]
    return {
        "ptx_lines": tuple(dict.fromkeys(instruction.line for instruction in instructions)),
        "source_lines": tuple(dict.fromkeys(sources)),
        **_locate_first(instructions),
    }


class _Location(TypedDict):
    """File, line and column."""

    file: str
    line: int
    column: int


def _locate_first(instructions: Sequence[Instruction]) -> _Location:
    """The line of the first instruction in the source, or in the PTX if the source is not known."""
    if not instructions:
        return {"file": "", "line": 0, "column": 0}
    source = instructions[0].source
    if source is None:
        return {"file": "", "line": instructions[0].line, "column": 1}
    outermost = source.outermost
    return {"file": outermost.file, "line": outermost.line, "column": outermost.column}


def find_function(program: Program, pc: int) -> str:
    """The name of the function that contains an instruction."""
    starts = {start: name for name, start in program.functions.items() if start <= pc}
    return starts[max(starts)]


def name_shared_address(cluster: Cluster, address: int) -> str | None:
    """The variable that contains a shared address, such as "full+8"; None in dynamic shared memory, which has no name."""
    return shared_variable(cluster.program, address & SHARED_OFFSET_MASK)


def name_in_program(variable: str) -> str:
    """A variable as its program calls it: nvcc prefixes the variables of a function with its name.

    >>> name_in_program("_ZZ4ringE4full"), name_in_program("_ZN4ring4smemE"), name_in_program("global_smem")
    ('full', 'ring::smem', 'global_smem')
    """
    match = _LOCAL_NAME.fullmatch(variable)
    if match is not None and int(match["length"]) == len(match["name"]):
        return match["name"]
    return source_name(variable)


def shared_variable(program: Program, offset: int) -> str | None:
    """The variable that contains an offset of shared memory, as its program calls it."""
    variables = [*program.module.variables.values()]
    for function in program.module.functions.values():
        variables.extend(function.variables)
    for variable in variables:
        start = program.shared_offsets.get(variable.number)
        if variable.space != "shared" or start is None or offset < start:
            continue
        if variable.size_bytes is None or offset < start + variable.size_bytes:
            name = name_in_program(variable.name)
            return name if offset == start else f"{name}+{offset - start}"
    return None


def name_array(launch: Launch, region: Region) -> str:
    """An array of global memory: its size, its address, and the argument or variable that owns it."""
    array = f"the array of {counted(len(region.content), 'byte')} at {region.address:#x}"
    owner = name_owner(launch, region)
    return array if owner is None else f"{array}, {owner}"


def name_owner(launch: Launch, region: Region) -> str | None:
    """The variable that an array belongs to, or the argument that points to it or maps it."""
    for name, variable_address in launch.variable_addresses.items():
        if region.address == variable_address:
            return f"variable {name}"
    program = launch.program
    for number, parameter in enumerate(program.entry.parameters):
        offset = program.param_offsets[parameter.number]
        content = launch.parameters[offset : offset + (parameter.size_bytes or 0)]
        address = _read_address(launch, content)
        if address is not None and region.address <= address < max(region.end, region.address + 1):
            return f"args[{number}]"
    return None


def _read_address(launch: Launch, parameter: Bytes) -> int | None:
    """The address in a parameter: a pointer, or the address of the tensor of a map."""
    if len(parameter) == _POINTER_BYTES:
        return int(parameter.view(np.uint64)[0])
    tensor_map = launch.known_map(parameter.tobytes())
    return None if tensor_map is None else tensor_map.address


def describe_address(launch: Launch, address: int) -> str | None:
    """A global address that an access faulted at, relative to the nearest array; None if there is not an array."""
    if 0 <= address < _NULL_BYTES:
        return NULL
    region = launch.memory.region_at(address)
    if region is not None:
        return f"{counted(region.end - address, 'byte')} before the end of {name_array(launch, region)}"
    starts = [start for start, _ in launch.memory.allocations]
    regions = [region for start in starts if (region := launch.memory.region_at(start)) is not None]
    if not regions:
        return None
    nearest = min(regions, key=lambda region: _distance(region, address))
    distance = _distance(nearest, address)
    if distance > _NEAR_BYTES:
        return "far from every array"
    if address < nearest.address:
        return f"{counted(distance, 'byte')} before {name_array(launch, nearest)}"
    place = "directly past the end of" if not distance else f"{counted(distance, 'byte')} past the end of"
    return f"{place} {name_array(launch, nearest)}"


def _distance(region: Region, address: int) -> int:
    return region.address - address if address < region.address else address - region.end
