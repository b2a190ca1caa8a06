"""Tiles that the blocks of a cluster share: every block fetches a part of the rows of every box, for all that share it.

two pairs along m, 256 x 256 each: B is the same for both            a box of B, 64 x 128, in two parts
┌──────┬──────┬──────┬──────┐                                        ┌────────────┐
│block0│block1│block2│block3│  blocks 0 and 2 share columns 0-127    │ rows  0-63 │ block 0 fetches it for 0 and 2
└──────┴──────┴──────┴──────┘  blocks 1 and 3 share columns 128-255  │ rows 64-127│ block 2 fetches it for 0 and 2
                                                                     └────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilescope.planner.boxes import cut_into_boxes
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_schedule import GEMM_SCHEDULE, PLAIN, Schedule
from tilescope.planner.obstacle import Broken, Obstacle, broken
from tilescope.planner.plans import Plan
from tilescope.planner.product import Product, Tile

LARGEST_CLUSTER = 8  # blocks, on every card with clusters
CLUSTER_TOO_LARGE = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="multicast = {multicast} with {cta_group:block} for a tile: clusters of {blocks}",
    limit="clusters of at most {most} blocks run on every card",
    fix="Use {multicast:=(2, 1)}.",
)
NOTHING_SHARED = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="multicast = {multicast}, with {tiles:tile} of {extent_of_tile} along {letter}",
    limit="tiles along {letter} share {operand}, so there must be {wanted} of them",
    fix="Use {multicast:={fitting}}.",
)
PARTS_OFF_PATTERN = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="{operand} in {parts} parts of {part_rows:.15g} rows for each box of {rows}",
    limit="a part starts where the pattern of swizzle {swizzle} does, every {period:row}",
    fix="Use {multicast:=(1, 1)}, or a larger tile.",
)


def multicast_problems(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why tiles cannot be shared: the cluster is too large, or there is no other block to share with."""
    if schedule.multicast == PLAIN.multicast:
        return
    blocks = prod(schedule.cluster)
    if blocks > LARGEST_CLUSTER:
        yield broken(
            CLUSTER_TOO_LARGE,
            multicast=schedule.multicast,
            cta_group=schedule.cta_group,
            blocks=blocks,
            most=LARGEST_CLUSTER,
        )
    grid = tile_grid(product.shape, tile)
    fitting = (min(schedule.multicast[0], grid[0]), min(schedule.multicast[1], grid[1]))
    for place, letter, operand in ((0, "m", "B"), (1, "n", "A")):
        if grid[place] < schedule.multicast[place]:
            yield broken(
                NOTHING_SHARED,
                multicast=schedule.multicast,
                tiles=grid[place],
                extent_of_tile=tile[place],
                letter=letter,
                operand=operand,
                wanted=schedule.multicast[place],
                fitting=fitting,
            )


def in_parts(plan: Plan, operand: str, parts: int) -> Plan | list[Obstacle]:
    """The plan of a tile in boxes of which every block loads its share; or why its boxes have no such parts.

    >>> from tilescope.planner import plan
    >>> shared = in_parts(plan((128, 64), "bf16", arch="sm_100").best, "B", 2)
    >>> shared.box, [copy.coords for copy in shared.copies]
    ((64, 64), [(0, 0), (0, 64)])
    """
    if parts == 1 or plan.boxes is None:
        return plan
    rows = plan.boxes.rows
    pitch_bytes = plan.containers.as_rows().tiling.pitch_bytes
    if rows % parts or rows // parts * pitch_bytes % plan.swizzle.repeat_bytes:
        period = max(1, plan.swizzle.repeat_bytes // pitch_bytes)
        return [
            broken(
                PARTS_OFF_PATTERN,
                operand=operand,
                parts=parts,
                part_rows=rows / parts,
                rows=rows,
                swizzle=plan.swizzle.name,
                period=period,
            )
        ]
    boxes = cut_into_boxes(plan.containers, rows // parts)
    return replace(plan, boxes=boxes, costs=replace(plan.costs, tma_instructions=len(boxes.copies)))
