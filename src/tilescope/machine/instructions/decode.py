"""The table of all instructions: from names to the functions that decode them.

Each module has a table `FAMILIES`. An instruction in none of them is arithmetic of one thread, or refused.
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
    remote,
    scalar,
    stack,
    tensormap,
    warp,
)
from tilescope.machine.instructions.tensor_core import mma, tcgen05, wgmma, wmma
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Instruction

# Instructions of PTX that the machine does not have, each with the reason. A name that no table has is a spelling mistake,
# or newer than the machine.
_TEXTURES = (
    "textures, surfaces and samplers are objects of the driver, and no argument of a run describes one; use ld.global"
)
_REASONS: dict[str, tuple[str, ...]] = {
    _TEXTURES: ("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"),
}
REASON_OF = {name: reason for reason, names in _REASONS.items() for name in names}


def _refuse(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    raise RefusedError(REASON_OF[instruction.name])


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
    **dict.fromkeys(REASON_OF, _refuse),
    **remote.FAMILIES,
    **stack.FAMILIES,
    **tcgen05.FAMILIES,
    **tensormap.FAMILIES,
    **scalar.FAMILIES,
    **warp.FAMILIES,
    **wgmma.FAMILIES,
    **wmma.FAMILIES,
}


def decode(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    """The step or turn of an instruction; raises RefusedError where there is none."""
    name = instruction.name
    if name in ("st", "red") and "async" in instruction.modifiers:
        name = f"{name}.async"  # stores and reductions that another block's mbarrier counts
    elif name == "st" and "bulk" in instruction.modifiers:
        name = "st.bulk"
    decoder = FAMILIES.get(name, scalar.decode_scalar)
    return decoder(assembler, instruction)
