"""Redundant fences: they order nothing in any launch. Removing one is not a mistake, so no mutant does it.

    wgmma.fence;
    wgmma.mma_async {%f1, …}, …;
    wgmma.commit_group;
    wgmma.fence;                       redundant: since the previous fence only wgmma has accessed %f1, …
    wgmma.mma_async {%f1, …}, …;

`fence.mbarrier_init` makes new mbarriers visible to the other blocks through a relaxed arrival at the barrier of the
cluster. It is redundant in a kernel without such an arrival, because an arrival with release semantics makes them
visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.machine.edits.kernel_text import KernelText
from tilescope.ptx.syntax import (
    Function,
    Instruction,
    Label,
    Operand,
    Register,
    Vector,
    nested_operands,
)

_JUMPS = frozenset({"bra", "brx", "call", "ret", "exit", "trap"})


def find_redundant_fences(text: KernelText) -> set[int]:
    """The redundant fences of a kernel, by their offsets in the text."""
    fences = [fence for function in text.functions for fence in _find_repeated_wgmma_fences(function)]
    if not any(_is_relaxed_arrival(instruction) for instruction in text.instructions):
        fences += [fence for fence in text.instructions if fence.opcode.startswith("fence.mbarrier_init")]
    return {fence.start for fence in fences}


def _find_repeated_wgmma_fences(function: Function) -> Iterator[Instruction]:
    """Each wgmma.fence that follows another one, if no register of later products was accessed in between."""
    instructions = function.instructions or ()
    branch_targets = set()
    for instruction in instructions:
        if instruction.name == "bra" and isinstance(instruction.operands[0], Label):
            branch_targets.add(instruction.operands[0].target)
    # Registers that instructions other than wgmma access after the last fence; None if control flow may skip that fence.
    accessed: set[int] | None = None
    for number, instruction in enumerate(instructions):
        if instruction.name in _JUMPS or number in branch_targets:
            accessed = None
        if instruction.opcode.startswith("wgmma.fence"):
            if accessed is not None and accessed.isdisjoint(_product_registers(instructions[number:])):
                yield instruction
            accessed = set()
        elif accessed is not None and instruction.name != "wgmma":
            accessed |= _registers(instruction.operands)


def _product_registers(instructions: Sequence[Instruction]) -> set[int]:
    """The accumulators, and A operands in registers, of each wgmma in the rest of the function."""
    registers: set[int] = set()
    for instruction in instructions:
        if instruction.opcode.startswith("wgmma.mma_async"):
            registers |= _registers([operand for operand in instruction.operands if isinstance(operand, Vector)])
    return registers


def _registers(operands: Sequence[Operand]) -> set[int]:
    parts = [part for operand in operands for part in nested_operands(operand)]
    return {part.number for part in parts if isinstance(part, Register)}


def _is_relaxed_arrival(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("barrier.cluster.arrive") and "relaxed" in instruction.modifiers
