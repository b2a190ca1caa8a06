"""What every instruction does: one table from names to the functions that decode them.

Each module has a table `FAMILIES` of its own; what none of them knows is arithmetic of one thread, or refused.
"""

from __future__ import annotations

from tilescope.machine.instructions import (
    atomics,
    barriers,
    cluster_launch,
    control,
    cp_async,
    load_store,
    matrix,
    mbarrier_instructions,
    refused,
    remote,
    tensormap,
    warp,
)
from tilescope.machine.instructions.scalar import decode_scalar
from tilescope.machine.instructions.tensor_core import mma, tcgen05, wgmma, wmma
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import Step, Turn
from tilescope.ptx.syntax import Instruction

FAMILIES: dict[str, Decoder] = {
    **atomics.FAMILIES,
    **barriers.FAMILIES,
    **cluster_launch.FAMILIES,
    **control.FAMILIES,
    **cp_async.FAMILIES,
    **matrix.FAMILIES,
    **mbarrier_instructions.FAMILIES,
    **mma.FAMILIES,
    **load_store.FAMILIES,
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
