"""The ways to share a product among blocks that cannot be planned: see gemm_schedule.py for what the words mean.

split=2 on sm_80                      no: shared k is planned for wgmma
tail=4, 140 tiles of C, 132 SMs       yes: the last round leaves 8 tiles, each shared by 16 blocks at most
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.product import ACCUMULATOR_BYTES, Product, Tile
from tilescope.rule import rule

GEMM_SCHEDULE = rule(
    "gemm-schedule",
    "Blocks share a product as its tensor core and its tiles allow: swapped operands and shared k are planned for wgmma.",
    argument="split",
    found="swapped, split, parts, tail or dependent with {consumer}",
    limit="they are planned for wgmma",
    fix='Leave them out, or use {consumer:="wgmma"} on sm_90.',
    source="tilescope's kernels",
    passing='ts.plan_gemm(16, 4096, 4096, "bf16", swapped=True, split=2)',
    failing='ts.plan_gemm(16, 4096, 4096, "bf16", arch="sm_80", split=2)',
)
TAIL_BESIDE_SPLIT = GEMM_SCHEDULE.worded(
    argument="tail",
    found="tail = {tail} with split = {split}, parts = {parts}",
    limit="blocks that share every tile have no last round of their own",
    fix="Use {tail:=1}, or {split:=1} and {parts:=1}.",
)
NO_TAIL = GEMM_SCHEDULE.worded(
    argument="tail",
    found="tail = {tail}, with {tiles:tile} of C for {sms:SM}",
    limit="the last round leaves {tail_tiles:tile}, of which each can be shared by at most {most:block}",
    fix="Use {tail:={most}}.",
)
PARTS_EXCEED_STAGES = GEMM_SCHEDULE.worded(
    argument="split",
    found="{others} parts of {part_bytes} bytes of sums from the other blocks of a cluster",
    limit="they lie where the stages were, {stages_bytes} bytes",
    fix="Use more stages, or a smaller split.",
)


def schedule_problems(product: Product, tile: Tile, schedule: Schedule, stages_bytes: int) -> list[Broken]:
    """Why blocks cannot share a tile in this way."""
    if product.consumer != "wgmma":
        return [] if schedule == Schedule() else [broken(GEMM_SCHEDULE, consumer=product.consumer)]
    if schedule.tail > 1:
        return list(_tail_problems(product, tile, schedule))
    rows, columns = (tile[1], tile[0]) if schedule.swapped else tile[:2]
    part_bytes = rows * schedule.share(columns) * ACCUMULATOR_BYTES
    if (schedule.split - 1) * part_bytes <= stages_bytes:
        return []
    others = schedule.split - 1
    return [broken(PARTS_EXCEED_STAGES, others=others, part_bytes=part_bytes, stages_bytes=stages_bytes)]


def _tail_problems(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    if not schedule.persistent:
        yield broken(TAIL_BESIDE_SPLIT, tail=schedule.tail, split=schedule.split, parts=schedule.parts)
        return
    rows, columns = product.shape[:2]
    tile_rows, tile_columns = tile[:2]
    tiles = ceil_div(rows, tile_rows) * ceil_div(columns, tile_columns)
    sms = product.sms or 1
    tail_tiles = tiles % sms
    most = sms // tail_tiles if tail_tiles and tiles > sms else 1
    if schedule.tail > most:
        yield broken(NO_TAIL, tail=schedule.tail, tiles=tiles, sms=sms, tail_tiles=tail_tiles, most=most)
