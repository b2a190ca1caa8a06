"""Where tiles lie: offsets in shared memory, columns and lanes in tensor memory, and which tile lies over which.

shared   Q 0 │ V 32768 │ K 122880 │ barriers 212992      O over V
tensor   S 0 │ O 128 │ …                                 P over S, in the step that turns S into P
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilescope.arch import Arch
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.kernel_plan.handovers import MBARRIER_BYTES, Ring
from tilescope.kernel_plan.interval_packing import QUICK_TRIALS, Item, Packing, Spot, pack
from tilescope.kernel_plan.kernel_description import KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.lifetimes import Lifetime
from tilescope.kernel_plan.tile_plans import plan_tile, stage_stride_bytes, tile_alignment
from tilescope.mma.tmem_address import ALLOC_COLUMNS, CELL_BITS, TMEM_COLUMNS, UPPER_HALF_LANE
from tilescope.planner.plans import Plan

BARRIERS = "barriers"
_WHOLE = 3
_HALVES = (1, 2)
_HALF_ROWS = 64  # accumulators of so many rows use half of each quarter's lanes
_POINTER_BYTES = 4  # where tcgen05.alloc leaves its address


@dataclass(frozen=True, slots=True)
class Block:
    """What is placed as one: a tile with its stages, or the slots of a ring whose tiles take turns."""

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

    def blocks_of(self, tile: str) -> list[Block]:
        """The blocks of a tile: one, or one for each stage in tensor memory."""
        return [block for block in self.blocks if tile in block.tiles]

    def overlays(self) -> tuple[tuple[Block, Block], ...]:
        """Pairs of blocks that lie over each other, the one that is alive first before the other."""
        found = []
        for number, one in enumerate(self.blocks):
            for other in self.blocks[number + 1 :]:
                if self._overlap(one, other):
                    first, second = sorted((one, other), key=lambda block: min(block.lifetime, default=0))
                    found.append((first, second))
        return tuple(found)

    def _overlap(self, one: Block, other: Block) -> bool:
        left = self.packing.spots[one.name]
        right = self.packing.spots[other.name]
        apart = left.offset + one.size <= right.offset or right.offset + other.size <= left.offset
        return not apart and bool(left.half & right.half)


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
        own = tile_alignment(kernel, tile, plans[name])
        alignment = max(alignment, own)
        strides.append(stage_stride_bytes(tile, plans[name], own))
    count = stages[ring.tiles[0]]
    strides.sort(reverse=True)
    if len(strides) == 2:
        size = ceil_div(count, 2) * strides[0] + count // 2 * strides[1]
    else:
        size = count * strides[0]
    alive = frozenset(place for name in ring.tiles for place in lifetimes[name])
    return Block(ring.name, ring.tiles, size, alignment, strides[0], count, alive)


def place_shared(
    kernel: KernelDescription, blocks: Sequence[Block], barriers: int, *, overlays: bool, trials: int = QUICK_TRIALS
) -> Placement:
    """Shared memory with its barriers; the needed bytes are those of a struct with these members."""
    pointer = _POINTER_BYTES if kernel.in_memory("tensor") else 0
    size = barriers * MBARRIER_BYTES + pointer
    all_blocks = list(blocks)
    if size:
        always = frozenset(range(max(1, len(kernel.steps))))
        all_blocks.append(Block(BARRIERS, (BARRIERS,), size, MBARRIER_BYTES, MBARRIER_BYTES, barriers, always))
    placement = _place(kernel, all_blocks, overlays=overlays, trials=trials)
    alignment = max((block.alignment for block in all_blocks), default=1)
    return Placement(placement.blocks, placement.packing, rounded_up(placement.needed, alignment), placement.least)


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


def place_tensor(
    kernel: KernelDescription, blocks: Sequence[Block], *, overlays: bool, trials: int = QUICK_TRIALS
) -> Placement:
    """Tensor memory; the needed columns are those from the first to the last used one."""
    return _place(kernel, blocks, overlays=overlays, trials=trials)


def lane_of(spot: Spot) -> int:
    """The first lane of a spot in tensor memory."""
    return UPPER_HALF_LANE if spot.half == _HALVES[1] else 0


def alloc_columns(needed: int) -> int:
    """Columns to ask tcgen05.alloc for: a power of two of at least 32."""
    if not needed:
        return 0
    return next((columns for columns in ALLOC_COLUMNS if columns >= needed), TMEM_COLUMNS)


def _place(kernel: KernelDescription, blocks: Sequence[Block], *, overlays: bool, trials: int) -> Placement:
    conflicts = {
        (one.name, other.name)
        for one in blocks
        for other in blocks
        if one is not other and not _may_share(kernel, one, other, if_needed=overlays)
    }
    items = [Item(block.name, block.size, block.alignment, block.halves) for block in blocks]
    bound = _least_height(blocks, conflicts)
    packing = pack(items, frozenset(conflicts), bound, trials)
    return Placement(tuple(blocks), packing, packing.height, bound)


def _least_height(blocks: Sequence[Block], conflicts: set[tuple[str, str]]) -> int:
    """What all blocks that are alive at one place, and those that share with none, take together."""
    highest = 0
    rigid = {
        block.name
        for block in blocks
        if all((block.name, other.name) in conflicts for other in blocks if other is not block)
    }
    places = {place for block in blocks for place in block.lifetime}
    for place in places:
        alive = [block for block in blocks if place in block.lifetime or block.name in rigid]
        whole = sum(block.size for block in alive if block.halves == (_WHOLE,))
        halves = sum(block.size for block in alive if block.halves != (_WHOLE,))
        highest = max(highest, whole + ceil_div(halves, 2))
    return highest


def _may_share(kernel: KernelDescription, one: Block, other: Block, *, if_needed: bool) -> bool:
    """Whether two blocks may lie over each other: their tiles allow it, and are never alive together."""
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
