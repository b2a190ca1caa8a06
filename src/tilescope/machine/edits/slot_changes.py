"""Where an address comes from: how far it moves when the loop goes on to its next slot.

    add.s32 %r3, %r1, 1;            %r1 is changed in the loop: it counts slots
    selp.b32 %r1, 0, %r3, %p1;
    shl.b32 %r4, %r1, 14;           %r4 moves by 16384 where %r1 moves by 1
    add.s32 %r5, %r2, %r4;          so does %r5: a slot has 16384 bytes

A register that depends on the thread counts no slots: it selects a part of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from tilescope.ptx.syntax import (
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    SpecialRegister,
    nested_operands,
)

_WITHOUT_RESULT = frozenset(
    {"st", "red", "bra", "brx", "bar", "barrier", "cp", "fence", "membar", "ret", "exit", "trap"}
)
_THREAD = ("%tid", "%laneid", "%warpid")
_OF_THE_THREAD = frozenset({"shfl", "elect", "vote", "match", "activemask"})
_SUMS = frozenset({"mov", "add", "sub", "or", "xor", "and", "cvt", "cvta", "selp", "min", "max"})
_SHIFTS = frozenset({"shl", "shr", "bfe"})
_PRODUCTS: dict[str, Callable[[int], float]] = {  # what an operand is multiplied with
    "shl": lambda bits: 2.0**bits,
    "shr": lambda bits: 2.0**-bits,
    "bfe": lambda position: 2.0**-position,
    "mul": float,
    "mad": float,
}
_MOST_STEPS = 64  # from an operand back to its loop variable

Strides = dict[int, float]  # of loop variables, by their numbers: how far a value moves when one moves by 1


class Definitions:
    """The registers of a function, and the instructions that write them."""

    def __init__(self, function: Function) -> None:
        self._written_by: defaultdict[int, list[Instruction]] = defaultdict(list)
        self._known_strides: dict[int, Strides] = {}
        for instruction in function.instructions or ():
            for number in _results(instruction):
                self._written_by[number].append(instruction)

    def constant(self, operand: Operand) -> int | None:
        """The number that an operand is: written, or moved into a register that has no other value."""
        for _ in range(_MOST_STEPS):
            if isinstance(operand, Immediate):
                return operand.value
            written = self._written_by[operand.number] if isinstance(operand, Register) else []
            if len(written) != 1 or written[0].name != "mov" or written[0].guard is not None:
                break
            operand = written[0].operands[1]
        return None

    def slot_sizes(self, operand: Operand) -> list[int]:
        """How far an address moves from slot to slot, in its own unit; none where no loop moves it."""
        sizes = set()
        for number, stride in self._strides(operand, _MOST_STEPS).items():
            size = abs(stride * self._step(number))
            if size >= 1 and size == int(size) and number not in self._of_threads:
                sizes.add(int(size))
        return sorted(sizes)

    def _strides(self, operand: Operand, steps_left: int) -> Strides:
        if not isinstance(operand, Register) or not steps_left:
            return {}
        number = operand.number
        if number not in self._known_strides:
            self._known_strides[number] = {}  # a register that is made of itself alone
            written = self._written_by[number]
            if len(written) > 1:
                self._known_strides[number] = {number: 1}
            elif written:
                self._known_strides[number] = self._strides_of_result(written[0], steps_left - 1)
        return self._known_strides[number]

    def _strides_of_result(self, instruction: Instruction, steps_left: int) -> Strides:
        """Strides of what an instruction computes; those of its operands, multiplied where it multiplies."""
        operands = instruction.operands[1:]
        if instruction.name in _SUMS:
            return _joined(self._strides(one, steps_left) for one in operands)
        if instruction.name not in _PRODUCTS:
            return {}
        factor = self.constant(operands[1])
        if factor is None or (instruction.name in _SHIFTS and not 0 <= factor < 64):
            return {}
        scale = _PRODUCTS[instruction.name](factor)
        product = {number: stride * scale for number, stride in self._strides(operands[0], steps_left).items()}
        return _joined([product, self._strides(operands[2], steps_left)]) if instruction.name == "mad" else product

    def _step(self, number: int) -> int:
        """How far a loop variable moves in each turn: by the constant that it adds to itself, or by 1."""
        for instruction in self._written_by[number]:
            if instruction.name == "add" and any(_is(one, number) for one in instruction.operands[1:]):
                constants = [self.constant(one) for one in instruction.operands[1:] if not _is(one, number)]
                if constants and constants[0] is not None:
                    return constants[0]
        return 1

    @cached_property
    def _of_threads(self) -> set[int]:
        """Registers in which threads of a block may hold different values."""
        found: set[int] = set()
        count = -1
        while len(found) > count:  # a loop variable may depend on what follows it
            count = len(found)
            for number, instructions in self._written_by.items():
                if number not in found and any(_is_of_threads(one, found) for one in instructions):
                    found.add(number)
        return found


def _results(instruction: Instruction) -> Iterator[int]:
    """The numbers of the registers that an instruction writes."""
    if instruction.operands and instruction.name not in _WITHOUT_RESULT:
        for one in nested_operands(instruction.operands[0]):
            if isinstance(one, Register):
                yield one.number


def _is_of_threads(instruction: Instruction, of_threads: set[int]) -> bool:
    """Whether an instruction computes something else in every thread."""
    if instruction.name in _OF_THE_THREAD:
        return True
    for operand in instruction.operands[1:]:
        for one in nested_operands(operand):
            if isinstance(one, SpecialRegister) and one.name.startswith(_THREAD):
                return True
            if isinstance(one, Register) and one.number in of_threads:
                return True
    return False


def _is(operand: Operand, number: int) -> bool:
    return isinstance(operand, Register) and operand.number == number


def _joined(parts: Iterable[Strides]) -> Strides:
    joined: Strides = {}
    for part in parts:
        for number, stride in part.items():
            joined[number] = joined.get(number, 0) + stride
    return joined
