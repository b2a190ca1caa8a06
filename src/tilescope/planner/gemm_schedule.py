"""How the blocks of a GEMM share its work: which matrix gives the tensor core its rows, who shares k, and the order of the tiles.

swapped       wgmma takes 64 rows of B and as many columns as the tile has rows of A: a product of few rows of A wastes none
split         the blocks of a cluster, this many, each take a part of k of one tile, and add their sums through distributed shared memory
parts         this many clusters each take a part of k of one tile, and add their sums through global memory
tail          the tiles of the last round, which would leave SMs idle, are each shared by this many blocks, as `parts` are
group         this many tiles along m are taken before the next tile along n: what they share stays in the L2
dependent     the kernel starts while the one before it still runs: it fetches B, and waits for that one before it reads A
cta_group     2: two blocks multiply one tile by one instruction of tcgen05. The tile is the pair's; each block brings half of
              A's rows and half of B's columns, and holds half of the rows of the sums
dynamic       blocks ask for their next tile (cluster launch control) in place of taking every n-th: a block that is late takes fewer
multicast     the blocks of this many tiles along m, and along n, are one cluster: tiles along m share B, and those along n share A.
              Each block fetches a part of what is shared, for all of them
ping_pong     two warpgroups take tiles in turn: one stores its tile while the other multiplies the next

                    k ─────────────────────────────▶
split 2, parts 2    │ block 0 │ block 1 │ block 0 │ block 1 │
                    └─ cluster of part 0┴─ cluster of part 1┘
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import prod

from tilescope.arch import architectures_with
from tilescope.arithmetic import ceil_div
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.product import ACCUMULATOR_BYTES, Product, Tile
from tilescope.rule import rule
from tilescope.sentence import by
from tilescope.value import Value

COLUMN_GROUP = 8  # accumulator columns that are in four registers of a thread
LARGEST_SPLIT = 8  # blocks of a portable cluster
LARGEST_PARTS = 128
MOST_SUMS = 128 * 128  # of a tile that one warpgroup multiplies: 128 registers of every thread
LARGEST_SHARING = 4  # blocks of wgmma that fetch for each other
_MEASURED_SMS = 132  # of an H200 …
_MEASURED_SMS_OF_CLUSTERS = 120  # … and those of them on which clusters of 4 and 8 run
GROUPED_TILES = 16  # of m that are taken together where the matrices exceed the L2
_PLANNED_FOR: dict[str, tuple[str, ...]] = {  # the tensor cores of an option
    "swapped": ("wgmma", "tcgen05"),
    "split": ("wgmma",),
    "parts": ("wgmma",),
    "group": ("wgmma", "tcgen05"),
    "tail": ("wgmma",),
    "dependent": ("wgmma",),
    "cta_group": ("tcgen05",),
    "dynamic": ("tcgen05",),
    "multicast": ("wgmma", "tcgen05"),
    "ping_pong": ("wgmma",),
}
GEMM_SCHEDULE = rule(
    "gemm-schedule",
    "Blocks share a product only as its tensor core and its tiles allow: shared k is planned for wgmma, pairs of "
    "blocks for tcgen05.",
    argument="{argument}",
    found="{options:, } with {consumer}",
    limit="{planned} for {consumers: and }",
    fix='Leave {them} out[[, or use {consumer:="{other}"}]][[, or use {arch:="{home}"}]].',
    source="tilescope's kernels",
    passing='ts.plan_gemm(16, 4096, 4096, "bf16", swapped=True, split=2)',
    failing='ts.plan_gemm(16, 4096, 4096, "bf16", arch="sm_80", split=2)',
)
TAIL_BESIDE_SPLIT = GEMM_SCHEDULE.worded(
    argument="tail",
    found="tail = {tail} with split = {split}, parts = {parts}",
    limit="blocks that share every tile have no separate last round",
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
    limit="they reuse the memory of the stages, {stages_bytes} bytes",
    fix="Use more stages, or a smaller split.",
)
MULTICAST_BESIDE_SHARED_K = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="multicast = {multicast} with {others:, }",
    limit="a cluster of wgmma is two blocks that share one operand of whole tiles, of products with plain columns",
    fix="Use {multicast:=(1, 1)}, or leave {others:, } out.",
)
PING_PONG_BESIDE_SHARED_K = GEMM_SCHEDULE.worded(
    argument="ping_pong",
    found="ping_pong with {others:, }",
    limit="warpgroups that take tiles in turn have whole tiles, of which no block shares k",
    fix="Use {ping_pong:=False}, or leave {others:, } out.",
)
PING_PONG_TILE = GEMM_SCHEDULE.worded(
    argument="tile",
    found="a tile of {tile: x } with {sums} sums for one warpgroup",
    limit="its registers hold {most}",
    fix="Use {tile:=(128, 128, 64)}, or {ping_pong:=False}.",
)
MULTICAST_IN_A_ROW = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="multicast = {multicast} with wgmma",
    limit="clusters of up to {most} blocks share one operand: tiles along m, or along n",
    fix="Use {multicast:=(2, 1)} or {multicast:=(1, 2)}.",
)
CLUSTERS_IN_TURN = GEMM_SCHEDULE.worded(
    argument="multicast",
    found="multicast = {multicast}: {clusters:cluster} of {blocks} blocks",
    limit="clusters of more than two blocks leave SMs idle and are planned where all run at once, at most {at_once}",
    fix="Use {multicast:={smaller}}, or larger tiles.",
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
    cta_group: int = 1  # blocks that multiply one tile together: 2 is a pair, whose tile it then is
    dynamic: bool = False  # a block requests its next tile: it takes over that of a cluster that has not started
    multicast: tuple[int, int] = (1, 1)  # tiles along m, which share B, and along n, which share A, of one cluster
    ping_pong: bool = False  # each warpgroup has a separate tile

    @property
    def blocks_of_a_tile(self) -> int:
        """Blocks that each take a part of k of the same tile."""
        return self.split * self.parts

    @property
    def persistent(self) -> bool:
        """Whether a block takes one tile after another; blocks that share k take one."""
        return self.blocks_of_a_tile == 1

    @property
    def storing_groups(self) -> int:
        """Groups of warps that each store a whole tile: two warpgroups that take tiles in turn."""
        return 2 if self.ping_pong else 1

    @property
    def cluster(self) -> tuple[int, int]:
        """Blocks along m, and along n, of a cluster that multiplies its tiles; blocks that share k are another one.

        >>> Schedule(cta_group=2, multicast=(2, 1)).cluster
        (4, 1)
        """
        along_m, along_n = self.multicast
        return along_m * self.cta_group, along_n

    def cluster_grid(self, tile_grid: tuple[int, int]) -> tuple[int, int]:
        """Clusters along m and along n, by the tiles along them.

        >>> Schedule(multicast=(2, 1)).cluster_grid((5, 3))
        (3, 3)
        """
        return ceil_div(tile_grid[0], self.multicast[0]), ceil_div(tile_grid[1], self.multicast[1])

    @property
    def answers(self) -> int:
        """Responses of cluster launch control that a block buffers: one is read while the next arrives; 0: no requests."""
        return 2 if self.dynamic else 0

    def k_tiles(self, k: int, tile_k: int) -> int:
        """K steps of one block; those behind the end of k are filled with zeros.

        >>> Schedule(split=2, parts=3).k_tiles(4096, 64)
        11
        """
        return ceil_div(ceil_div(k, tile_k), self.blocks_of_a_tile)

    def sums(self, tile: Tile) -> Tile:
        """The accumulators that one block has of a tile, and their k: of swapped operands n comes first.

        >>> Schedule(cta_group=2).sums((256, 192, 64)), Schedule(swapped=True).sums((16, 128, 64))
        ((128, 192, 64), (128, 16, 64))
        """
        m, n, k = tile
        rows, columns = (n, m) if self.swapped else (m, n)
        return rows // self.cta_group, columns, k

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


def clusters(sms: int, blocks: int) -> int:
    """How many clusters of that many blocks, one block an SM, run at once; those of 4 and 8 leave SMs of a GPC idle.

    >>> clusters(132, 2), clusters(132, 4), clusters(132, 8)
    (66, 30, 15)
    """
    usable = sms if blocks <= 2 else sms * _MEASURED_SMS_OF_CLUSTERS // _MEASURED_SMS
    return usable // blocks


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
    if schedule.cta_group == 2:
        words.append("pairs of blocks")
    if schedule.multicast != PLAIN.multicast:
        words.append(f"multicast to {by(schedule.multicast)} tiles")
    if schedule.ping_pong:
        words.append("ping-pong")
    if schedule.dynamic:
        words.append("cluster launch control")
    return ", ".join(words)


def schedule_problems(product: Product, tile: Tile, schedule: Schedule, stages_bytes: int) -> list[Broken]:
    """Why blocks cannot share a tile in this way."""
    if unplanned := list(unplanned_options(product, schedule)):
        return unplanned
    if product.consumer != "wgmma":
        return []
    if schedule.multicast != PLAIN.multicast and (unshared := list(_unshared_options(product, tile, schedule))):
        return unshared
    if schedule.ping_pong and (unpaired := list(_unpaired_warpgroups(product, tile, schedule))):
        return unpaired
    if schedule.tail > 1:
        return list(_tail_problems(product, tile, schedule))
    rows, columns = (tile[1], tile[0]) if schedule.swapped else tile[:2]
    part_bytes = rows * schedule.share(columns) * ACCUMULATOR_BYTES
    if (schedule.split - 1) * part_bytes <= stages_bytes:
        return []
    others = schedule.split - 1
    return [broken(PARTS_EXCEED_STAGES, others=others, part_bytes=part_bytes, stages_bytes=stages_bytes)]


def unplanned_options(product: Product, schedule: Schedule) -> Iterator[Broken]:
    """Options of a schedule that are not planned for this tensor core, those of the same tensor cores together."""
    consumer = product.consumer
    here = consumers_of(product.arch)
    changed = [field.name for field in fields(schedule) if getattr(schedule, field.name) != getattr(PLAIN, field.name)]
    refused: dict[tuple[str, ...], list[str]] = {}
    for option in changed:
        if consumer not in _PLANNED_FOR[option]:
            refused.setdefault(_PLANNED_FOR[option], []).append(option)
    for consumers, options in refused.items():
        is_single = len(options) == 1
        yield broken(
            GEMM_SCHEDULE,
            argument=options[0],
            options=tuple(options),
            consumer=consumer,
            consumers=consumers,
            other=next((name for name in consumers if name in here), None),
            home=None if set(consumers) & set(here) else architectures_with(CONSUMER[consumers[0]].feature)[0],
            planned="it is planned" if is_single else "they are planned",
            them="it" if is_single else "them",
        )


def _unshared_options(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """What blocks of wgmma do not do while they share an operand."""
    blocks = prod(schedule.multicast)
    if blocks > LARGEST_SHARING or 1 not in schedule.multicast:
        yield broken(MULTICAST_IN_A_ROW, multicast=schedule.multicast, most=LARGEST_SHARING)
    elif blocks > 2 and product.sms is not None:
        taken = prod(schedule.cluster_grid(_tile_grid(product, tile))) * schedule.parts * product.batch.count
        if taken > (at_once := max(1, clusters(product.sms, blocks))):
            smaller = (2, 1) if schedule.multicast[1] == 1 else (1, 2)
            yield broken(
                CLUSTERS_IN_TURN,
                multicast=schedule.multicast,
                clusters=taken,
                blocks=blocks,
                at_once=at_once,
                smaller=smaller,
            )
    beside = {
        f"split = {schedule.split}": schedule.split > 1,
        "a dependent launch": schedule.dependent,
        "experts": product.batch.is_of_experts,
        "gates side by side": product.fused.gate == "side by side",
    }
    if others := tuple(words for words, is_asked in beside.items() if is_asked):
        yield broken(MULTICAST_BESIDE_SHARED_K, multicast=schedule.multicast, others=others)


def _tile_grid(product: Product, tile: Tile) -> tuple[int, int]:
    """Tiles down m and across n."""
    return ceil_div(product.shape[0], tile[0]), ceil_div(product.shape[1], tile[1])


def _unpaired_warpgroups(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why warpgroups cannot take tiles in turn: blocks share k, or one warpgroup has no registers for a tile."""
    beside = {"split": schedule.split, "parts": schedule.parts, "tail": schedule.tail}
    if others := tuple(f"{name} = {count}" for name, count in beside.items() if count > 1):
        yield broken(PING_PONG_BESIDE_SHARED_K, others=others)
    rows, columns, _ = schedule.sums(tile)
    most = MOST_SUMS // 2 if product.is_promoted else MOST_SUMS
    if rows * columns > most:
        yield broken(PING_PONG_TILE, tile=tile, sums=rows * columns, most=most)


def _tail_problems(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    if not schedule.persistent:
        yield broken(TAIL_BESIDE_SPLIT, tail=schedule.tail, split=schedule.split, parts=schedule.parts)
        return
    blocks = prod(schedule.cluster)
    grid = _tile_grid(product, tile)
    taken = prod(schedule.cluster_grid(grid)) * product.batch.count  # at a time by a block, or by a cluster
    at_once = max(1, clusters(product.sms or 1, blocks))
    remainder = taken % at_once
    most = at_once // remainder if remainder and taken > at_once else 1
    if schedule.tail > most and not product.batch.is_of_experts:  # of whose rows the kernel learns at the launch
        tiles, sms = taken * blocks, at_once * blocks
        yield broken(NO_TAIL, tail=schedule.tail, tiles=tiles, sms=sms, tail_tiles=remainder * blocks, most=most)
