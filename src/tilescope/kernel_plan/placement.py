"""Places tiles: offsets in shared memory, columns and lanes in tensor memory, and overlays.

shared   Q 0 │ V 32768 │ K 122880 │ barriers 212992      O over V
tensor   S 0 │ O 128 │ …                                 P over S, in the step that turns S into P
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tilescope.arch import Arch
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.kernel_plan.handovers import MBARRIER_BYTES, Ring
from tilescope.kernel_plan.interval_packing import ALL_TRIALS, QUICK_TRIALS, Item, Packing, Spot, pack
from tilescope.kernel_plan.kernel_description import KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.lifetimes import Lifetime
from tilescope.kernel_plan.tile_plans import plan_tile, stage_stride_bytes, tile_alignment
from tilescope.mma.tmem_address import ALLOC_COLUMNS, CELL_BITS, TMEM_COLUMNS, UPPER_HALF_LANE
from tilescope.planner.plans import Plan

BARRIERS = "barriers"
_WHOLE = 3
_HALVES = (1, 2)
_HALF_ROWS = 64  # accumulators with this many rows use half of each quarter's lanes
_POINTER_BYTES = 4  # where tcgen05.alloc leaves its address


@dataclass(frozen=True, slots=True)
class Block:
    """An item to place: a tile with its stages, or the slots of a ring whose tiles alternate."""

    name: str
    tiles: tuple[str, ...]
    size: int  # bytes, or columns
    alignment: int
    stride: int  # of a stage
    stages: int
    lifetime: Lifetime
    halves: tuple[int, ...] = (_WHOLE,)


@dataclass(frozen=True, slots=True)
class Placement:
    """One memory with its blocks placed: sizes in bytes, or in columns."""

    blocks: tuple[Block, ...]
    packing: Packing
    needed: int
    least: int  # no layout is lower
    overlays: tuple[tuple[Block, Block], ...]  # overlaid tiles, the one that is alive first before the other

    def blocks_of(self, tile: str) -> list[Block]:
        """The blocks of a tile: one, or one for each stage in tensor memory."""
        return [block for block in self.blocks if tile in block.tiles]


def plan_tiles(kernel: KernelDescription, arch: Arch) -> dict[str, Plan | None]:
    """The plan of each tile in shared memory."""
    return {tile.name: plan_tile(kernel, tile, arch) for tile in kernel.in_memory("shared")}


def shared_blocks(
    kernel: KernelDescription,
    rings: Sequence[Ring],
    stages: Mapping[str, int],
    lifetimes: Mapping[str, Lifetime],
    plans: Mapping[str, Plan | None],
) -> list[Block]:
    """The blocks of shared memory, without the barriers."""
    blocks = []
    done: set[str] = set()
    for ring in rings:
        if len(ring.fills) > 1 and kernel.tile(ring.tiles[0]).memory == "shared":
            blocks.append(_turning_block(kernel, ring, stages, lifetimes, plans))
            done |= set(ring.tiles)
    for tile in kernel.in_memory("shared"):
        if tile.name not in done:
            alignment = tile_alignment(kernel, tile, plans[tile.name])
            stride = stage_stride_bytes(tile, plans[tile.name], alignment)
            count = stages[tile.name]
            size = stride * count * kernel.copies_of(tile)
            blocks.append(Block(tile.name, (tile.name,), size, alignment, stride, count, lifetimes[tile.name]))
    return blocks


def _turning_block(
    kernel: KernelDescription,
    ring: Ring,
    stages: Mapping[str, int],
    lifetimes: Mapping[str, Lifetime],
    plans: Mapping[str, Plan | None],
) -> Block:
    """The slots of a ring whose tiles take turns.

    Two tiles alternate, so that a large slot always has small neighbours: 3 slots of 48 and 32 KiB take 128 KiB.
    """
    strides = []
    alignment = 1
    for name in ring.tiles:
        tile = kernel.tile(name)
        own_alignment = tile_alignment(kernel, tile, plans[name])
        alignment = max(alignment, own_alignment)
        strides.append(stage_stride_bytes(tile, plans[name], own_alignment))
    count = stages[ring.tiles[0]]
    strides.sort(reverse=True)
    if len(strides) == 2:
        size = ceil_div(count, 2) * strides[0] + count // 2 * strides[1]
    else:
        size = count * strides[0]
    alive = frozenset(place for name in ring.tiles for place in lifetimes[name])
    return Block(ring.name, ring.tiles, size, alignment, strides[0], count, alive)


def tensor_blocks(
    kernel: KernelDescription, stages: Mapping[str, int], lifetimes: Mapping[str, Lifetime]
) -> list[Block]:
    """The blocks of tensor memory, one for each stage, so that the stages of a tile can share columns."""
    blocks = []
    for tile in kernel.in_memory("tensor"):
        columns = tile_columns(kernel, tile)
        halves = _HALVES if is_half_height(kernel, tile) and tile.share_lanes else (_WHOLE,)
        count = stages[tile.name] * kernel.copies_of(tile)
        for stage in range(count):
            name = tile.name if count == 1 else f"{tile.name}[{stage}]"
            blocks.append(Block(name, (tile.name,), columns, 1, columns, 1, lifetimes[tile.name], halves))
    return blocks


def tile_columns(kernel: KernelDescription, tile: KernelTile) -> int:
    """Columns of a tile in tensor memory: one for each column of an accumulator, else 32 bits of a row each."""
    if is_accumulator(kernel, tile):
        return tile.shape[1]
    return ceil_div(tile.shape[1] * tile.data_type.bits, CELL_BITS)


def is_accumulator(kernel: KernelDescription, tile: KernelTile) -> bool:
    """Whether a product writes the tile."""
    return any(step.operation == "tcgen05.mma" for _, step in kernel.writes_of(tile.name))


def is_half_height(kernel: KernelDescription, tile: KernelTile) -> bool:
    """Whether it uses half of the lanes, as an accumulator of 64 rows does."""
    return tile.shape[0] <= _HALF_ROWS and is_accumulator(kernel, tile)


def lane_of(spot: Spot) -> int:
    """The first lane of a spot in tensor memory."""
    return UPPER_HALF_LANE if spot.half == _HALVES[1] else 0


def alloc_columns(needed: int) -> int:
    """Columns for tcgen05.alloc: a power of two of at least 32."""
    if not needed:
        return 0
    return next((columns for columns in ALLOC_COLUMNS if columns >= needed), TMEM_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Sharing:
    """The blocks of a memory that may overlap; it depends on when they are alive, not on their sizes."""

    conflicts: frozenset[tuple[str, str]]  # pairs of names, in both orders
    free: tuple[tuple[int, int], ...]  # places of blocks that do not conflict: which of them is alive first
    crowds: frozenset[tuple[int, ...]]  # blocks that all conflict: alive together, with those that share with none


class Placer:
    """Places blocks of a kernel in its memories; which of them may share memory is found out once."""

    def __init__(self, kernel: KernelDescription) -> None:
        self.kernel = kernel
        self.trials_left = ALL_TRIALS
        self._known: dict[tuple[object, ...], _Sharing] = {}
        self._pairs: dict[tuple[str, Lifetime, str, Lifetime, bool], bool] = {}

    def place_shared(
        self, blocks: Sequence[Block], barriers: int, *, overlays: bool, trials: int = QUICK_TRIALS, enough: int = 0
    ) -> Placement:
        """Shared memory with its barriers; the needed bytes are those of a struct with these members."""
        pointer = _POINTER_BYTES if self.kernel.in_memory("tensor") else 0
        size = barriers * MBARRIER_BYTES + pointer
        all_blocks = list(blocks)
        if size:
            always = frozenset(range(max(1, len(self.kernel.steps))))
            all_blocks.append(Block(BARRIERS, (BARRIERS,), size, MBARRIER_BYTES, MBARRIER_BYTES, barriers, always))
        alignment = max((block.alignment for block in all_blocks), default=1)
        return self._place(all_blocks, overlays, trials, enough // alignment * alignment, alignment)

    def place_tensor(
        self, blocks: Sequence[Block], *, overlays: bool, trials: int = QUICK_TRIALS, enough: int = 0
    ) -> Placement:
        """Tensor memory; the needed columns are those from the first to the last used one."""
        return self._place(blocks, overlays, trials, enough, 1)

    def least_height(self, blocks: Sequence[Block], *, overlays: bool) -> int:
        """The largest sum of blocks that are alive together: no layout is smaller."""
        return max((_height_of(blocks, crowd) for crowd in self._sharing(blocks, overlays).crowds), default=0)

    def _place(self, blocks: Sequence[Block], overlays: bool, trials: int, enough: int, multiple: int) -> Placement:
        sharing = self._sharing(blocks, overlays)
        items = [Item(block.name, block.size, block.alignment, block.halves) for block in blocks]
        bound = self.least_height(blocks, overlays=overlays)
        allowed = trials if trials > QUICK_TRIALS else min(trials, self.trials_left)
        packing = pack(items, sharing.conflicts, bound, allowed, enough=enough)
        self.trials_left = max(0, self.trials_left - packing.tried)
        overlaid = tuple(
            (blocks[first], blocks[second])
            for first, second in sharing.free
            if _overlap(blocks[first], blocks[second], packing)
        )
        return Placement(tuple(blocks), packing, rounded_up(packing.height, multiple), bound, overlaid)

    def _sharing(self, blocks: Sequence[Block], overlays: bool) -> _Sharing:
        key = (overlays, *((block.name, block.lifetime) for block in blocks))
        if key not in self._known:
            self._known[key] = self._find_sharing(blocks, overlays)
        return self._known[key]

    def _may_share(self, one: Block, other: Block, overlays: bool) -> bool:
        key = (one.name, one.lifetime, other.name, other.lifetime, overlays)
        if key not in self._pairs:
            self._pairs[key] = may_share(self.kernel, one, other, if_needed=overlays)
        return self._pairs[key]

    def _find_sharing(self, blocks: Sequence[Block], overlays: bool) -> _Sharing:
        births = [min(block.lifetime, default=0) for block in blocks]
        free = tuple(
            (first, second) if births[first] <= births[second] else (second, first)
            for first, second in combinations(range(len(blocks)), 2)
            if self._may_share(blocks[first], blocks[second], overlays)
        )
        sharers = {number for pair in free for number in pair}
        rigid = [number for number in range(len(blocks)) if number not in sharers]
        conflicts = {(block.name, other.name) for block in blocks for other in blocks if block is not other}
        for first, second in free:
            conflicts -= {(blocks[first].name, blocks[second].name), (blocks[second].name, blocks[first].name)}
        turning = [(first, second) for first, second in free if blocks[first].lifetime & blocks[second].lifetime]
        crowds = set()
        for place in {place for block in blocks for place in block.lifetime}:
            alive = {number for number, block in enumerate(blocks) if number in rigid or place in block.lifetime}
            for side in (0, 1):
                crowds.add(tuple(sorted(alive - {pair[1 - side] for pair in turning if alive.issuperset(pair)})))
        return _Sharing(frozenset(conflicts), free, frozenset(crowds))


def _height_of(blocks: Sequence[Block], crowd: Sequence[int]) -> int:
    """What blocks that are alive together take at least."""
    whole = sum(blocks[number].size for number in crowd if blocks[number].halves == (_WHOLE,))
    halves = sum(blocks[number].size for number in crowd if blocks[number].halves != (_WHOLE,))
    return whole + ceil_div(halves, 2)


def _overlap(one: Block, other: Block, packing: Packing) -> bool:
    left = packing.spots[one.name]
    right = packing.spots[other.name]
    apart = left.offset + one.size <= right.offset or right.offset + other.size <= left.offset
    return not apart and bool(left.half & right.half)


def may_share(kernel: KernelDescription, one: Block, other: Block, *, if_needed: bool) -> bool:
    """Whether two blocks may overlap: their tiles allow it, and are never alive together."""
    if BARRIERS in (one.name, other.name):
        return False
    left = [kernel.tile(name) for name in one.tiles]
    right = [kernel.tile(name) for name in other.tiles]
    if not all(a.overlays(b, if_needed=if_needed) for a in left for b in right):
        return False
    both = one.lifetime & other.lifetime
    if not both:
        return True
    return len(left) == len(right) == 1 and _turns_into(kernel, left[0], right[0], both)


def _turns_into(kernel: KernelDescription, one: KernelTile, other: KernelTile, both: Lifetime) -> bool:
    """Whether threads read one tile for the last time in the step that writes the other, lane by lane in tensor memory."""
    if len(both) != 1 or one.memory != "tensor" or other.memory != "tensor":
        return False
    (place,) = both
    step = kernel.steps[place]
    reads = one.name in step.inputs and other.name in step.writes
    writes = other.name in step.inputs and one.name in step.writes
    return step.operation == "threads" and (reads or writes)
