"""The facts of a tile for the template of the Gluon text, and the tiles that Gluon cannot express.

    plan((64, 64), "bf16")     NVMMASharedLayout(swizzle_byte_width=128, …), block (64, 64)

Gluon loads by TMA, in blocks whose extents are powers of two, elements of 8, 16 or 32 bits.
"""

from __future__ import annotations

from tilescope.emitter.source_template import EMIT, Facts
from tilescope.errors import RuleError
from tilescope.notation import spell_layout
from tilescope.planner.plans import Plan

COPY_NOT_IN_GLUON = EMIT.worded(
    argument="copy",
    found="a {direction} by {copy}",
    limit="Gluon text shows loads by TMA",
    fix='Plan with {copy:="tma"}.',
)
STORE_NOT_IN_GLUON = COPY_NOT_IN_GLUON.worded(fix='Emit "cuda" for a store.')
TILE_NOT_IN_GLUON = EMIT.worded(
    argument="tile",
    found="a tile of {rows} x {columns}",
    limit="Triton's blocks are powers of two",
    fix="Plan with {tile:={powers}}.",
)
ELEMENT_NOT_IN_GLUON = EMIT.worded(
    argument="data_type",
    found="{data_type}",
    limit="Gluon's tensor descriptors have elements of 8, 16 or 32 bits",
    fix="Plan the same bytes as uint8.",
)
LAYOUT_NOT_IN_GLUON = EMIT.worded(
    argument="layout",
    found="{reason}",
    limit="Gluon's shared layouts hold spans column by column",
    fix='Plan with {swizzle:="{span_bytes}B"}, {atom_order:="column"}.',
)
SWIZZLE_NOT_IN_GLUON = EMIT.worded(
    argument="swizzle",
    found="swizzle {swizzle}, {major}-major",
    limit="TMA takes Gluon's NVMMASharedLayout",
    fix='Plan with {swizzle:="{span_bytes}B"}.',
)


def gluon_facts(plan: Plan) -> Facts:
    """The facts of the Gluon text: the shared layout, the tensor descriptor and a kernel that uses both."""
    problem = plan.problem
    layout = plan.layout
    rows, columns = layout.as_rows().shape
    _require_gluon(plan, rows, columns)
    span_bytes = next((span for span in (128, 64, 32) if problem.row_bytes % span == 0), 128)
    try:
        spelled = spell_layout(layout, "gluon")
    except RuleError as error:
        reason = error.violations[0].found
        raise LAYOUT_NOT_IN_GLUON.error(reason=reason, span_bytes=span_bytes) from error
    if "NVMMASharedLayout" not in spelled:
        raise SWIZZLE_NOT_IN_GLUON.error(swizzle=plan.swizzle.name, major=problem.major, span_bytes=span_bytes)
    return {
        "block": (rows, columns),
        "gluon_layout": spelled.replace("ttgl.", "gl.").replace("transposed=True", "transposed=False"),
    }


def _require_gluon(plan: Plan, rows: int, columns: int) -> None:
    """Refuse copies, tiles and elements that Gluon does not have."""
    problem = plan.problem
    bits = problem.data_type.bits
    if plan.boxes is None or problem.direction == "store":
        refused = STORE_NOT_IN_GLUON if problem.direction == "store" else COPY_NOT_IN_GLUON
        raise refused.error(direction=problem.direction, copy=problem.copy)
    if rows & (rows - 1) or columns & (columns - 1):
        powers = tuple(1 << (extent - 1).bit_length() for extent in problem.tile)
        raise TILE_NOT_IN_GLUON.error(rows=rows, columns=columns, powers=powers)
    if bits not in (8, 16, 32):
        raise ELEMENT_NOT_IN_GLUON.error(data_type=problem.data_type.name, bits=bits)
