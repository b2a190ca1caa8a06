"""Slot strides: how far an address moves when a loop advances to its next slot.

    add.s32 %r3, %r1, 1;            the loop changes %r1, which counts slots
    selp.b32 %r1, 0, %r3, %p1;
    shl.b32 %r4, %r1, 14;           %r4 moves by 16384 when %r1 moves by 1
    add.s32 %r5, %r2, %r4;          %r5 does too: a slot has 16384 bytes

A register that depends on the thread does not count slots: it selects a part of one.
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

_NO_RESULT = frozenset({"st", "red", "bra", "brx", "bar", "barrier", "cp", "fence", "membar", "ret", "exit", "trap"})
_THREAD_REGISTERS = ("%tid", "%laneid", "%warpid")
_THREAD_INSTRUCTIONS = frozenset({"shfl", "elect", "vote", "match", "activemask"})
_SUMS = frozenset({"mov", "add", "sub", "or", "xor", "and", "cvt", "cvta", "selp", "min", "max"})
_SHIFTS = frozenset({"shl", "shr", "bfe"})
_PRODUCTS: dict[str, Callable[[int], float]] = {  # the factor of an operand
    "shl": lambda bits: 2.0**bits,
    "shr": lambda bits: 2.0**-bits,
    "bfe": lambda position: 2.0**-position,
    "mul": float,
    "mad": float,
}
_MAX_DEPTH = 64  # instructions from an operand back to its loop variable

Strides = dict[int, float]  # by loop variable: how far a value moves when the variable moves by 1


class RegisterDefinitions:
    """The registers of a function, each with the instructions that write it."""

    def __init__(self, function: Function) -> None:
        self._written_by: defaultdict[int, list[Instruction]] = defaultdict(list)
        self._known_strides: dict[int, Strides] = {}
        for instruction in function.instructions or ():
            for number in _written_registers(instruction):
                self._written_by[number].append(instruction)

    def constant(self, operand: Operand) -> int | None:
        """The value of an operand that is constant: an immediate, or a register that is only set to one."""
        for _ in range(_MAX_DEPTH):
            if isinstance(operand, Immediate):
                return operand.value
            writers = self._written_by[operand.number] if isinstance(operand, Register) else []
            if len(writers) != 1 or writers[0].name != "mov" or writers[0].guard is not None:
                break
            operand = writers[0].operands[1]
        return None

    def slot_sizes(self, operand: Operand) -> list[int]:
        """How far an address moves from slot to slot, in its own unit; empty if no loop moves it."""
        sizes = set()
        for number, stride in self._strides(operand, _MAX_DEPTH).items():
            size = abs(stride * self._step(number))
            if size >= 1 and size == int(size) and number not in self._thread_dependent:
                sizes.add(int(size))
        return sorted(sizes)

    def _strides(self, operand: Operand, depth_left: int) -> Strides:
        if not isinstance(operand, Register) or not depth_left:
            return {}
        number = operand.number
        if number not in self._known_strides:
            self._known_strides[number] = {}  # ends the recursion if the register depends on itself
            writers = self._written_by[number]
            if len(writers) > 1:
                self._known_strides[number] = {number: 1}
            elif writers:
                self._known_strides[number] = self._strides_of_result(writers[0], depth_left - 1)
        return self._known_strides[number]

    def _strides_of_result(self, instruction: Instruction, depth_left: int) -> Strides:
        """Strides of the result of an instruction: those of its operands, scaled by its factor."""
        operands = instruction.operands[1:]
        if instruction.name in _SUMS:
            return _add_strides(self._strides(operand, depth_left) for operand in operands)
        if instruction.name not in _PRODUCTS:
            return {}
        factor = self.constant(operands[1])
        if factor is None or (instruction.name in _SHIFTS and not 0 <= factor < 64):
            return {}
        scale = _PRODUCTS[instruction.name](factor)
        product = {number: stride * scale for number, stride in self._strides(operands[0], depth_left).items()}
        return _add_strides([product, self._strides(operands[2], depth_left)]) if instruction.name == "mad" else product

    def _step(self, number: int) -> int:
        """How far a loop variable moves in each iteration: by the constant that is added to it, or by 1."""
        for instruction in self._written_by[number]:
            if instruction.name == "add" and any(_is_register(operand, number) for operand in instruction.operands[1:]):
                addends = [operand for operand in instruction.operands[1:] if not _is_register(operand, number)]
                constants = [self.constant(operand) for operand in addends]
                if constants and constants[0] is not None:
                    return constants[0]
        return 1

    @cached_property
    def _thread_dependent(self) -> set[int]:
        """Registers whose values may differ between the threads of a block."""
        dependent: set[int] = set()
        count = -1
        while len(dependent) > count:  # a loop variable may depend on registers that are written after it
            count = len(dependent)
            for number, writers in self._written_by.items():
                if number not in dependent and any(_is_thread_dependent(writer, dependent) for writer in writers):
                    dependent.add(number)
        return dependent


def _written_registers(instruction: Instruction) -> Iterator[int]:
    """The numbers of the registers that an instruction writes."""
    if instruction.operands and instruction.name not in _NO_RESULT:
        for part in nested_operands(instruction.operands[0]):
            if isinstance(part, Register):
                yield part.number


def _is_thread_dependent(instruction: Instruction, dependent: set[int]) -> bool:
    """Whether the result of an instruction may differ between threads."""
    if instruction.name in _THREAD_INSTRUCTIONS:
        return True
    for operand in instruction.operands[1:]:
        for part in nested_operands(operand):
            if isinstance(part, SpecialRegister) and part.name.startswith(_THREAD_REGISTERS):
                return True
            if isinstance(part, Register) and part.number in dependent:
                return True
    return False


def _is_register(operand: Operand, number: int) -> bool:
    return isinstance(operand, Register) and operand.number == number


def _add_strides(parts: Iterable[Strides]) -> Strides:
    total: Strides = {}
    for part in parts:
        for number, stride in part.items():
            total[number] = total.get(number, 0) + stride
    return total
