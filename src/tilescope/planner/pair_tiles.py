"""Tiles of tcgen05's instructions, and the part that each block of a pair loads.

m and n of an instruction with cta_group::2 are those of both blocks together, and so are the tiles of a pair:

    tile of the pair              block 0 brings      block 1 brings
    A 256 x 64 (m x k)            rows 0 to 127       rows 128 to 255
    B 256 x 64 (n x k)            columns 0 to 127    columns 128 to 255
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilescope.arithmetic import rounded_up
from tilescope.errors import PlanError, Violation
from tilescope.mma.tcgen05_kind import TCGEN05_SHAPE, in_steps, tcgen05_for
from tilescope.planner.obstacle import violations
from tilescope.planner.plan_search import candidates
from tilescope.planner.plans import Plan
from tilescope.planner.proof import proven

PARTIAL_TILE = TCGEN05_SHAPE.worded(
    argument="plan",
    found="{letter} = {elements} in a tile of {operand}",
    limit="kind {kind} in {form} has {letter} {known}, and a tile is a whole number of instructions",
    fix="Use {letter} = {up}.",
)
PARTIAL_TILE_OF_PAIR = PARTIAL_TILE.worded(
    found="{letter} = {elements} in a tile of {operand} of a pair",
    limit="tiles of a pair are those of both blocks; kind {kind} in {form} has {letter} {known}, "
    "and a tile is a whole number of instructions",
)


def half_of(tile: Plan) -> Plan:
    """The plan of the half that one block of a pair loads: half of a tile's mn, with the tile's own swizzle if possible.

    >>> from tilescope.planner import plan
    >>> half_of(plan((256, 64), "bf16", arch="sm_100").best).problem.tile
    (128, 64)
    """
    mn, k = tile.problem.tile
    tried = candidates(replace(tile.problem, tile=(mn // 2, k)))
    if not tried.plans:
        raise PlanError(violations(tried.obstacles()))
    alike = [half for half in tried.plans if (half.swizzle, half.atom_order) == (tile.swizzle, tile.atom_order)]
    return proven(alike[0] if alike else tried.plans[0])


def partial_instructions(tiles: Sequence[Plan], cta_group: int) -> Iterator[Violation]:
    """Why tiles of A, then B, are no whole number of tcgen05's instructions.

    A single tile may be either operand: n has the smaller steps.

    >>> from tilescope.planner import plan
    >>> a = plan((64, 64), "bf16", arch="sm_100").best
    >>> [violation.found for violation in partial_instructions([a, a], 2)]
    ['m = 64 in a tile of A of a pair']
    """
    operands = ("A", "B") if len(tiles) > 1 else (tiles[0].problem.operand or "B",)
    for operand, plan in zip(operands, tiles, strict=False):
        problem = plan.problem
        kind = tcgen05_for(problem.data_type)
        mn = problem.tile[0]
        transposed_bytes = operand == "B" and problem.major == "MN" and problem.data_type.bits == 8
        shapes = kind.shapes(transposed_bytes=transposed_bytes)
        shape = next(shape for shape in shapes if shape.form == f"cta_group::{cta_group}")
        letter = "m" if operand == "A" else "n"
        extents = shape.m if operand == "A" else shape.n
        if mn % extents[0] == 0:
            continue
        rule = PARTIAL_TILE_OF_PAIR if cta_group == 2 else PARTIAL_TILE
        value: dict[str, Any] = {letter: mn}
        yield rule.violation(
            **value,
            letter=letter,
            elements=mn,
            operand=operand,
            kind=kind.name,
            form=shape.form,
            known=in_steps(extents),
            up=rounded_up(mn, extents[0]),
        )
