"""Tiles of tcgen05's instructions, and what each block of a pair brings of them.

m and n of an instruction with cta_group::2 are those of both blocks together, and so are the tiles of a pair:

    tile of the pair              block 0 brings      block 1 brings
    A 256 x 64 (m x k)            rows 0 to 127       rows 128 to 255
    B 256 x 64 (n x k)            columns 0 to 127    columns 128 to 255
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilescope.arithmetic import rounded_up
from tilescope.errors import PlanError, Violation
from tilescope.mma.tcgen05_kind import TCGEN05_SHAPE, in_steps, tcgen05_for
from tilescope.planner.boxes import proven
from tilescope.planner.plans import Plan
from tilescope.planner.reason import violations
from tilescope.planner.search import candidates


def half_of(tile: Plan) -> Plan:
    """The plan of what one block of a pair brings: half of a tile's mn, swizzled as the tile's own plan where the half can be.

    >>> from tilescope.planner import plan
    >>> half_of(plan((256, 64), "bf16", arch="sm_100").best).problem.tile
    (128, 64)
    """
    mn, k = tile.problem.tile
    halves, refused = candidates(replace(tile.problem, tile=(mn // 2, k)))
    if not halves:
        raise PlanError(violations(obstacle for candidate in refused for obstacle in candidate.obstacles))
    alike = [half for half in halves if (half.swizzle, half.atom_order) == (tile.swizzle, tile.atom_order)]
    return proven((alike or halves)[0])


def partial_instructions(tiles: Sequence[Plan], cta_group: int) -> Iterator[Violation]:
    """Why tiles of A, then B, are no whole number of tcgen05's instructions.

    A tile alone may be either: n has the smaller steps.

    >>> from tilescope.planner import plan
    >>> a = plan((64, 64), "bf16", arch="sm_100").best
    >>> [violation.found for violation in partial_instructions([a, a], 2)]
    ['m = 64 in a tile of A of a pair']
    """
    operands = ("A", "B") if len(tiles) > 1 else (tiles[0].problem.operand or "B",)
    for operand, plan in zip(operands, tiles, strict=False):
        problem = plan.problem
        kind, mn = tcgen05_for(problem.data_type), problem.tile[0]
        transposed = operand == "B" and problem.major == "MN" and problem.data_type.bits == 8
        shapes = kind.shapes(transposed_bytes=transposed)
        own = next(shape for shape in shapes if shape.form == f"cta_group::{cta_group}")
        letter, known = ("m", own.m) if operand == "A" else ("n", own.n)
        if mn % known[0] == 0:
            continue
        found = f"{letter} = {mn} in a tile of {operand}"
        limit = f"kind {kind.name} in {own.form} has {letter} {in_steps(known)}, and a tile is a whole number of instructions"
        if cta_group == 2:
            found += " of a pair"
            limit = f"tiles of a pair are those of both blocks; {limit}"
        fix = f"Use {letter} = {rounded_up(mn, known[0])}."
        yield TCGEN05_SHAPE.violation("plan", found, limit, fix, **{letter: mn})
