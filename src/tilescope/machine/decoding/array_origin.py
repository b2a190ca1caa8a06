"""In which declared array of shared memory the address of a read begins, as far as the program text says.

    mov.u32       %r1, tile_a;                .shared .b8 tile_a[8192]
    add.u32       %r2, %r1, %r9;              still tile_a: an index was added
    shr.u32       %r3, %r2, 4;                … and a descriptor is made of it
    wgmma … %d1                               tile_a

An address that is made of two arrays, loaded from memory or mapped to another block (mapa) has no known array. A register that is
written again has, within a straight piece of text, the array of its last write; elsewhere the arrays of all its writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tilescope.machine.program import Program
from tilescope.ptx.syntax import BranchTable, Instruction, Label, Operand, Register, Variable, nested_operands
from tilescope.sync.address import SHARED_OFFSET_MASK

# instructions that make addresses and descriptors of others
_ARITHMETIC = ("add", "sub", "mad", "mul", "shl", "shr", "shf", "and", "or", "xor", "lop3", "bfe", "bfi", "min", "max")
_MOVES = ("mov", "cvt", "cvta", "prmt", "selp", "slct", "shfl")
_CARRIED_ON = frozenset(_ARITHMETIC + _MOVES)
_UNKNOWN = -1  # the array of a value that comes from elsewhere
_MOST_DEFINITIONS = 64


class ArrayExtent(NamedTuple):
    """An array of shared memory: its first byte, and the first byte after it, in a block's window."""

    name: str
    first: int
    end: int


class ArrayReads(NamedTuple):
    """The arrays that reads begin in; by instruction, and for descriptors by operand too."""

    loads: Mapping[int, ArrayExtent]
    operands: Mapping[tuple[int, str], ArrayExtent]
    arrays: tuple[ArrayExtent, ...]  # all of them


def find_array_reads(program: Program) -> ArrayReads:
    """The declared arrays that the reads of a program begin in; empty where it declares fewer than two."""
    arrays = {variable.number: _extent(program, variable) for variable in _find_arrays(program)}
    if len(arrays) < 2:
        return ArrayReads({}, {}, ())
    origins = _Origins(program)
    loads: dict[int, ArrayExtent] = {}
    operands: dict[tuple[int, str], ArrayExtent] = {}
    for pc, instruction in enumerate(program.instructions):
        if instruction is None:
            continue
        for name, operand in _address_operands(instruction):
            extent = arrays.get(origins.array_of(pc, operand))
            if extent is not None and name is None:
                loads[pc] = extent
            elif extent is not None and name is not None:
                operands[pc, name] = extent
    return ArrayReads(loads, operands, tuple(arrays.values()))


def _find_arrays(program: Program) -> list[Variable]:
    variables = [*program.module.variables.values()]
    for function in program.module.functions.values():
        variables.extend(function.variables)
    return [
        variable for variable in variables if variable.space == "shared" and variable.number in program.shared_offsets
    ]


def _extent(program: Program, variable: Variable) -> ArrayExtent:
    """Where a variable is; `extern .shared` takes all that is left."""
    first = program.shared_offsets[variable.number]
    size_bytes = SHARED_OFFSET_MASK if variable.size_bytes is None else variable.size_bytes
    return ArrayExtent(variable.name, first, first + size_bytes)


def _address_operands(instruction: Instruction) -> Iterator[tuple[str | None, Operand]]:
    """The operands with the addresses of an instruction's shared-memory reads; descriptors with the name of the matrix."""
    words = instruction.modifiers
    if instruction.name in ("ld", "ldu", "ldmatrix"):
        yield None, instruction.operands[-1]
    elif (instruction.name == "wgmma" and "mma_async" in words) or (instruction.name == "tcgen05" and "mma" in words):
        for name, operand in zip("AB", instruction.operands[1:3], strict=True):
            if isinstance(operand, Register):
                yield name, operand


class _Origins:
    """Follows registers back to the arrays whose addresses they hold."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._writes: dict[int, list[int]] = {}
        for pc, targets in enumerate(program.targets):
            for number in targets:
                self._writes.setdefault(number, []).append(pc)
        self._function = self._functions_by_pc()
        self._entered = self._find_entered()  # instructions to which others jump

    def _functions_by_pc(self) -> list[str]:
        starts = {start: name for name, start in self._program.functions.items()}
        names: list[str] = []
        name = ""
        for pc in range(len(self._program.instructions)):
            name = starts.get(pc, name)
            names.append(name)
        return names

    def _find_entered(self) -> set[int]:
        entered = set(self._program.functions.values())
        for pc, instruction in enumerate(self._program.instructions):
            if instruction is None:
                continue
            start = self._program.functions[self._function[pc]]
            for operand in instruction.operands:
                if isinstance(operand, BranchTable):
                    entered.update(start + target for target in operand.targets)
                elif isinstance(operand, Label):
                    entered.add(start + operand.target)
            if instruction.name == "call":
                entered.add(pc + 1)
        return entered

    def array_of(self, pc: int, operand: Operand) -> int:
        """The number of the array in which an operand's address begins; -1 if that is not certain."""
        arrays: set[int] = set()
        waiting = [(pc, operand)]
        seen: set[tuple[int, int]] = set()
        while waiting and _UNKNOWN not in arrays and len(seen) < _MOST_DEFINITIONS:
            at, value = waiting.pop()
            for inner in nested_operands(value):
                if isinstance(inner, Variable):
                    arrays.add(inner.number if inner.space == "shared" else _UNKNOWN)
                elif isinstance(inner, Register):
                    for definition in self._definitions(at, inner):
                        if (definition, inner.number) in seen:
                            continue
                        seen.add((definition, inner.number))
                        waiting.extend(self._sources(definition))
        if len(arrays) == 1 and not waiting:
            return arrays.pop()
        return _UNKNOWN

    def _definitions(self, pc: int, register: Register) -> list[int]:
        """The instructions that may have written a register before an instruction."""
        number = self._program.register_numbers.get((self._function[pc], register.number))
        writes = self._writes.get(-1 if number is None else number, [])
        nearest: list[int] = []
        at = pc
        while at > 0 and at not in self._entered:
            at -= 1
            if at in writes:
                nearest.append(at)
                instruction = self._program.instructions[at]
                if instruction is not None and instruction.guard is None:
                    return nearest
        return writes

    def _sources(self, pc: int) -> list[tuple[int, Operand]]:
        """The values that an instruction makes its result of; none where the result is taken for a number."""
        instruction = self._program.instructions[pc]
        if instruction is None or instruction.name not in _CARRIED_ON:
            return []
        return [(pc, operand) for operand in instruction.operands[1:]]
