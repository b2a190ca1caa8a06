"""Fences that order nothing in any launch: removing one is no mistake, so no mutant does it.

    wgmma.fence;
    wgmma.mma_async {%f1, …}, …;
    wgmma.commit_group;
    wgmma.fence;                       redundant: since the fence before it nothing but wgmma has touched %f1, …
    wgmma.mma_async {%f1, …}, …;

`fence.mbarrier_init` makes mbarriers visible to the other blocks of a cluster: it is redundant in a kernel that never uses
other blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.machine.mutation.change import KernelText
from tilescope.ptx.syntax import (
    Function,
    Instruction,
    Label,
    Operand,
    Register,
    SpecialRegister,
    Vector,
    nested_operands,
)

_LEAVES = frozenset({"bra", "brx", "call", "ret", "exit", "trap"})
_OF_CLUSTERS = ("mapa", "getctarank", "barrier.cluster", "clusterlaunchcontrol")
_WORDS_OF_CLUSTERS = frozenset({"multicast::cluster", "cta_group::2"})


def redundant_fences(text: KernelText) -> set[int]:
    """The fences of a kernel that order nothing, by where they begin in the text."""
    redundant = {fence.start for function in text.functions for fence in _doubled_wgmma_fences(function)}
    if not _is_of_a_cluster(text):
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


def _is_of_a_cluster(text: KernelText) -> bool:
    """Whether anything in a kernel refers to other blocks of its cluster."""
    if any(function.required_cluster is not None for function in text.functions):
        return True
    return any(_speaks_of_clusters(one) for one in text.instructions)


def _speaks_of_clusters(instruction: Instruction) -> bool:
    if instruction.opcode.startswith(_OF_CLUSTERS) or _WORDS_OF_CLUSTERS & {*instruction.modifiers}:
        return True
    nested = [one for operand in instruction.operands for one in nested_operands(operand)]
    return any(isinstance(one, SpecialRegister) and one.name.startswith("%cluster") for one in nested)
