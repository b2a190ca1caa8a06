"""What every instruction does: one table from names to the functions that decode them.

Each module has a table `FAMILIES` of its own; what none of them knows is arithmetic of one thread, or refused.
"""

from __future__ import annotations

from tilescope.machine.instructions import (
    atomics,
    barriers,
    cluster_launch,
    control,
    copies,
    matrix,
    mbarrier,
    mma,
    moving,
    refused,
    remote,
    tcgen05,
    tensormap,
    warp,
    wgmma,
    wmma,
)
from tilescope.machine.instructions.scalar import decode_scalar
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import Step, Turn
from tilescope.ptx.syntax import Instruction

FAMILIES: dict[str, Decoder] = {
    **atomics.FAMILIES,
    **barriers.FAMILIES,
    **cluster_launch.FAMILIES,
    **control.FAMILIES,
    **copies.FAMILIES,
    **matrix.FAMILIES,
    **mbarrier.FAMILIES,
    **mma.FAMILIES,
    **moving.FAMILIES,
    **refused.FAMILIES,
    **remote.FAMILIES,
    **tcgen05.FAMILIES,
    **tensormap.FAMILIES,
    **warp.FAMILIES,
    **wgmma.FAMILIES,
    **wmma.FAMILIES,
}


def decode(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    """The step or turn of an instruction; raises RefusedError where there is none."""
    name = instruction.name
    if name in ("st", "red") and "async" in instruction.modifiers:
        name = f"{name}.async"  # stores and reductions that another block's mbarrier counts
    decoder = FAMILIES.get(name, decode_scalar)
    return decoder(assembler, instruction)
