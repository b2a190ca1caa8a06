"""Fences that order nothing in any launch: removing one is no mistake, so no mutant does it.

    wgmma.fence;
    wgmma.mma_async {%f1, …}, …;
    wgmma.commit_group;
    wgmma.fence;                       redundant: since the fence before it nothing but wgmma has touched %f1, …
    wgmma.mma_async {%f1, …}, …;

`fence.mbarrier_init` lets a relaxed arrival at the cluster's barrier make new mbarriers visible to the other blocks: it is
redundant in a kernel without such an arrival. An arrival that releases makes them visible by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.machine.edits.change import KernelText
from tilescope.ptx.syntax import (
    Function,
    Instruction,
    Label,
    Operand,
    Register,
    Vector,
    nested_operands,
)

_LEAVES = frozenset({"bra", "brx", "call", "ret", "exit", "trap"})


def redundant_fences(text: KernelText) -> set[int]:
    """The fences of a kernel that order nothing, by where they begin in the text."""
    redundant = {fence.start for function in text.functions for fence in _doubled_wgmma_fences(function)}
    if not any(_is_relaxed_arrival(one) for one in text.instructions):
        redundant |= {one.start for one in text.instructions if one.opcode.startswith("fence.mbarrier_init")}
    return redundant


def _doubled_wgmma_fences(function: Function) -> Iterator[Instruction]:
    """Every wgmma.fence after another one, if no register of later products was touched in between."""
    instructions = function.instructions or ()
    targets = {
        one.operands[0].target for one in instructions if one.name == "bra" and isinstance(one.operands[0], Label)
    }
    touched: set[int] | None = (
        None  # since the last fence, by others than wgmma; None: no fence, or not in a straight line
    )
    for number, instruction in enumerate(instructions):
        if instruction.name in _LEAVES or number in targets:
            touched = None
        if instruction.opcode.startswith("wgmma.fence"):
            if touched is not None and touched.isdisjoint(_registers_of_products(instructions[number:])):
                yield instruction
            touched = set()
        elif touched is not None and instruction.name != "wgmma":
            touched |= _registers(instruction.operands)


def _registers_of_products(instructions: Sequence[Instruction]) -> set[int]:
    """The accumulators, and A in registers, of every wgmma from here on to the end of the function."""
    registers: set[int] = set()
    for instruction in instructions:
        if instruction.opcode.startswith("wgmma.mma_async"):
            registers |= _registers([one for one in instruction.operands if isinstance(one, Vector)])
    return registers


def _registers(operands: Sequence[Operand]) -> set[int]:
    return {one.number for operand in operands for one in nested_operands(operand) if isinstance(one, Register)}


def _is_relaxed_arrival(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("barrier.cluster.arrive") and "relaxed" in instruction.modifiers
