"""How the blocks of a GEMM share its work: which matrix gives wgmma its 64 rows, who shares k, and the order of the tiles.

swapped       wgmma takes 64 rows of B and as many columns as the tile has rows of A: a product of few rows of A wastes none
split         the blocks of a cluster, this many, each take a part of k of one tile, and add their sums through distributed shared memory
parts         this many clusters each take a part of k of one tile, and add their sums through global memory
tail          the tiles of the last round, which would leave SMs idle, are each shared by this many blocks, as `parts` are
group         this many tiles along m are taken before the next tile along n: what they share stays in the L2
dependent     the kernel starts while the one before it still runs: it fetches B, and waits for that one before it reads A

                    k ─────────────────────────────▶
split 2, parts 2    │ block 0 │ block 1 │ block 0 │ block 1 │
                    └─ cluster of part 0┴─ cluster of part 1┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilescope.arithmetic import ceil_div
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.product import ACCUMULATOR_BYTES, Product, Tile
from tilescope.rule import rule
from tilescope.value import Value

COLUMN_GROUP = 8  # columns of wgmma's sums that lie in four registers of a thread
LARGEST_SPLIT = 8  # blocks of a portable cluster
LARGEST_PARTS = 128
GROUPED_TILES = 16  # of m that are taken together where the matrices exceed the L2
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


@dataclass(frozen=True, slots=True)
class Schedule(Value):
    """How blocks share a product.

    >>> Schedule(swapped=True, split=4).blocks_of_a_tile
    4
    """

    swapped: bool = False  # B gives the tensor core its rows
    split: int = 1  # blocks of a cluster that share the k of a tile
    parts: int = 1  # clusters that share it
    group: int = 0  # tiles along m taken together; 0: all
    tail: int = 1  # blocks that share a tile of the last round
    dependent: bool = False  # it starts before the kernel before it has ended, and waits for that before it reads A

    @property
    def blocks_of_a_tile(self) -> int:
        """Blocks that each take a part of k of the same tile."""
        return self.split * self.parts

    @property
    def persistent(self) -> bool:
        """Whether a block takes one tile after another; blocks that share k take one."""
        return self.blocks_of_a_tile == 1

    def k_tiles(self, k: int, tile_k: int) -> int:
        """K steps of one block; those behind the end of k are filled with zeros.

        >>> Schedule(split=2, parts=3).k_tiles(4096, 64)
        11
        """
        return ceil_div(ceil_div(k, tile_k), self.blocks_of_a_tile)

    def owners(self, columns: int) -> int:
        """Blocks of a cluster that add and store: each the same whole groups of 8 columns of the sums.

        >>> Schedule(split=4).owners(64), Schedule(split=4).owners(16), Schedule(split=2).owners(24)
        (4, 2, 1)
        """
        groups = columns // COLUMN_GROUP
        return max(count for count in range(1, self.split + 1) if groups % count == 0)

    def share(self, columns: int) -> int:
        """Columns of the sums that one block adds and stores."""
        return columns // self.owners(columns)


PLAIN = Schedule()  # one tile after another, down m


def schedule_words(schedule: Schedule) -> str:
    """How blocks share the work, in a few words; "": one tile after another, down m.

    >>> schedule_words(Schedule(swapped=True, split=2))
    'swapped, split 2'
    """
    words = ["swapped"] if schedule.swapped else []
    named = (("split", schedule.split), ("parts", schedule.parts), ("tail", schedule.tail))
    words += [f"{name} {count}" for name, count in named if count > 1]
    if schedule.group:
        words.append(f"groups of {schedule.group}")
    if schedule.dependent:
        words.append("dependent launch")
    return ", ".join(words)


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
