"""Plain loads whose value atom.cas checks: they do not race with the atomics of other threads.

    old = *p;                                           a guess: another thread may change *p meanwhile
    do {
        expected = old;
        old = atomicCAS(p, expected, f(expected));      stores f(expected) only if *p is still what was guessed
    } while (old != expected);

An old value costs one more round of the loop, and nothing else. This is how CUDA C++ programs make atomics that the card does
not have, such as a maximum of floats. With a plain store of another thread such a load still races.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.machine.element_flow import made_of
from tilescope.machine.program import Program
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction, Operand, Register


class _Swap(NamedTuple):
    """An atom.cas: where it swaps, how many bits, and the register with the value that it expects there."""

    address: Operand
    bits: int
    expected: int


def compared_loads(program: Program) -> frozenset[int]:
    """The loads of which an atom.cas at the same address gets the value, or something made of it, as the expected one."""
    swaps = list(_swaps(program))
    found = set()
    for pc, instruction in enumerate(program.instructions):
        if not swaps or instruction is None or instruction.name != "ld":
            continue
        place = (instruction.operands[1], _bits(instruction))
        expected = {swap.expected for swap in swaps if (swap.address, swap.bits) == place}
        if expected and not made_of(program, program.targets[pc]).isdisjoint(expected):
            found.add(pc)
    return frozenset(found)


def _swaps(program: Program) -> Iterator[_Swap]:
    for pc, instruction in enumerate(program.instructions):
        if instruction is None or instruction.name != "atom" or "cas" not in instruction.modifiers:
            continue
        _, address, expected = instruction.operands[:3]
        if isinstance(expected, Register):
            number = program.register_numbers[_function_at(program, pc), expected.number]
            yield _Swap(address, _bits(instruction), number)


def _function_at(program: Program, pc: int) -> str:
    """The function that an instruction belongs to."""
    starts = {start: name for name, start in program.functions.items()}
    return starts[max(start for start in starts if start <= pc)]


def _bits(instruction: Instruction) -> int:
    """How many bits one element of an access has; 0 where the instruction names no type."""
    return next((BITS_OF_TYPE[word] for word in instruction.modifiers if word in BITS_OF_TYPE), 0)
