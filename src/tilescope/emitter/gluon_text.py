"""A plan in Triton's Gluon: the shared layout, the tensor descriptor and a kernel that uses both."""

from __future__ import annotations

from typing import Any

from tilescope.emitter.tile_program import refused
from tilescope.errors import RuleError
from tilescope.notation import spell_layout
from tilescope.planner.plans import Plan

TRITON_VERSIONS = "3.6 and 3.9"


def gluon_facts(plan: Plan, _: dict[str, Any]) -> dict[str, Any]:
    """What the Gluon text says beside the facts of the program."""
    problem, layout = plan.problem, plan.layout
    if plan.boxes is None or problem.direction == "store":
        fix = 'Emit "cuda" for a store.' if problem.direction == "store" else 'Plan with copy="tma".'
        raise refused("copy", f"a {problem.direction} by {problem.copy}", "Gluon text shows loads by TMA", fix)
    rows = layout.as_rows()
    block = rows.shape
    if any(extent & (extent - 1) for extent in block):
        found = f"a tile of {block[0]} x {block[1]}"
        raise refused("tile", found, "Triton's blocks are powers of two", "Use extents such as 64 and 128.")
    if problem.data_type.bits not in (8, 16, 32):
        limit = "Gluon's tensor descriptors have elements of 8, 16 or 32 bits"
        raise refused("data_type", problem.data_type.name, limit, "Plan the same bytes as uint8.")
    try:
        spelled = spell_layout(layout, "gluon")
    except RuleError as error:
        found, limit = str(error.violations[0].found), "Gluon's shared layouts hold spans column by column"
        raise refused("layout", found, limit, "Use swizzle 128B, 64B or 32B in column order.") from error
    if "NVMMASharedLayout" not in spelled:
        found, limit = f"swizzle {plan.swizzle.name}, {problem.major}-major", "TMA takes Gluon's NVMMASharedLayout"
        raise refused("swizzle", found, limit, "Use swizzle 128B, 64B or 32B.")
    vector = 128 // problem.data_type.bits
    return {
        "triton_versions": TRITON_VERSIONS,
        "block": block,
        "gluon_layout": spelled.replace("ttgl.", "gl.").replace("transposed=True", "transposed=False"),
        "vector": vector,
        "lanes_across": min(32, max(1, block[1] // vector)),
    }
