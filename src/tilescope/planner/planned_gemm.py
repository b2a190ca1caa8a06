"""The plan of a GEMM as data: the tile of C that a block computes, its plans and stages, and the other tiles.

`gemm_smem.py` lays out the block's shared memory, `ranked_tile.py` has the costs of all tiles, and `gemm_plan.GemmPlan` adds
the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilescope.arch import Arch
from tilescope.arithmetic import ceil_div
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.tmem_address import ALLOC_COLUMNS
from tilescope.planner.fused_epilogue import PLAIN_EPILOGUE, RESIDUAL_TYPES, Fused
from tilescope.planner.gemm_batch import ONE, Batch
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.gemm_smem import SmemRegion, find_end, place_regions
from tilescope.planner.mma_warps import share_among_warps
from tilescope.planner.planned_scales import ScalePlan, scale_plans
from tilescope.planner.plans import Plan
from tilescope.planner.product import ACCUMULATOR_BYTES, Product, Tile, accumulator_buffers, accumulator_columns
from tilescope.planner.ranked_tile import RankedTile, RefusedTile
from tilescope.planner.wgmma_sums import PRODUCER_WARPS, count_step_sums, needs_more_registers
from tilescope.value import Value, row_field


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGemm(Value):
    """C = A x B for the tile of one block or of a pair: the plans of what one block loads, their stages, and the other tiles."""

    shape: tuple[int, int, int]
    data_type: DataType = row_field(DataType.named)
    output_type: DataType = row_field(DataType.named)
    tile: Tile
    stages: int
    a: Plan
    b: Plan
    epilogue: Plan | None  # None: without TMA the accumulators are stored straight from registers
    sms: int | None  # None: neither requested nor known for a card
    ranked: tuple[RankedTile, ...]  # this tile first
    refused: tuple[RefusedTile, ...]
    scales: ScaleFormat | None = row_field(ScaleFormat.named, default=None)  # of blocks of k
    batch: Batch = ONE  # products of this shape in one kernel
    fused: Fused = PLAIN_EPILOGUE  # the operations on a sum before it is stored
    block_scales: bool = False  # float32 for 1 x 128 of A and 128 x 128 of B, applied in registers

    @property
    def product(self) -> Product:
        """The request."""
        a = self.a.problem
        return Product(
            shape=self.shape,
            data_type=self.data_type,
            output_type=self.output_type,
            arch=a.arch,
            card=a.card,
            consumer=a.consumer_name,
            a_major=a.major,
            b_major=self.b.problem.major,
            sms=self.sms,
            scales=self.scales,
            batch=self.batch,
            fused=self.fused,
            block_scales=self.block_scales,
        )

    @property
    def arch(self) -> Arch:
        """The architecture it is planned for."""
        return self.a.problem.arch

    @property
    def card(self) -> Card | None:
        """The card whose rates it is weighed by; None where no card of the architecture is known."""
        return self.a.problem.card

    @property
    def others(self) -> tuple[RankedTile, ...]:
        """Tile shapes that come after this one, best first, with the reason."""
        return self.ranked[1:]

    @property
    def floor_us(self) -> float | None:
        """Microseconds that no kernel with these tiles undercuts by the card's rates; None where they are not known."""
        return self.ranked[0].floor_us

    @property
    def predicted_us(self) -> float | None:
        """Microseconds that the kernel should take; None where they cannot be predicted."""
        prediction = self.ranked[0].prediction
        return None if prediction is None else prediction.us

    @property
    def producers(self) -> int:
        """Warps that issue copies: two for warpgroups, since the copies of a small tile are too many for one thread.

        Warpgroups that take tiles in turn may release stages out of order. A parity then tells phases apart for the producer
        that waits for all of them, not for one of two.
        """
        if self.redistributes_registers:
            return PRODUCER_WARPS
        is_wgmma = self.a.problem.consumer_name == "wgmma"
        return 2 if is_wgmma and self.stages > 1 and not self.schedule.ping_pong else 1

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of A and B that a block can have under way: all its stages."""
        scale_bytes = sum(scale.transaction_bytes for scale in self.scale_plans)
        return self.stages * (self.a.transaction_bytes + self.b.transaction_bytes + scale_bytes)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a block: where its last region ends."""
        return find_end(self.smem_regions())

    @property
    def budget_bytes(self) -> int:
        """What a block can have."""
        return self.arch.smem_per_block_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """What the address of the block's shared memory must be a multiple of, for all regions to be aligned."""
        return max(region.alignment_bytes for region in self.smem_regions())

    @property
    def tiles(self) -> int:
        """Tiles of C."""
        return self.ranked[0].tiles

    @property
    def rounds(self) -> int | None:
        """How often every SM takes a tile, the last round perhaps not full; None where their number is not known."""
        return self.ranked[0].rounds

    @property
    def schedule(self) -> Schedule:
        """How the blocks share the work."""
        return self.ranked[0].schedule

    @property
    def k_tiles(self) -> int:
        """K steps of a tile that one block takes."""
        return self.schedule.k_tiles(self.shape[2], self.tile[2])

    @property
    def operands(self) -> tuple[Plan, Plan]:
        """The matrix that gives the tensor core its rows, then the one that gives it its columns."""
        return (self.b, self.a) if self.schedule.swapped else (self.a, self.b)

    @property
    def sums(self) -> tuple[int, int]:
        """Rows and columns of one block's accumulators: of a swapped tile n x m, of a pair half of the rows."""
        rows, columns, _ = self.schedule.sums(self.tile)
        return rows, columns

    @property
    def step_sums(self) -> int:
        """Accumulators that take turns in holding the sums of a K step; 0: products add to the sums of the tile.

        A warpgroup that copies has a stage for each of its warps: with fewer, a parity would not tell their phases apart.
        """
        ping_pong = self.schedule.ping_pong
        has_few_stages = self.stages < PRODUCER_WARPS and self._needs_more_registers
        if self.stages_residual or has_few_stages:
            return int(self.product.is_promoted)
        return count_step_sums(self.product, *self.sums, ping_pong=ping_pong)

    @property
    def redistributes_registers(self) -> bool:
        """Whether the consumers take over registers of the producer, by setmaxnreg."""
        return self._needs_more_registers and (self.step_sums == 2 or not self.product.is_promoted)

    @property
    def _needs_more_registers(self) -> bool:
        return needs_more_registers(self.product, *self.sums, ping_pong=self.schedule.ping_pong)

    @property
    def accumulators(self) -> int:
        """Accumulators that alternate in tensor memory; 0: accumulators are in registers."""
        if not self.product.in_tensor_memory:
            return 0
        return accumulator_buffers(self.schedule.sums(self.tile), self.scale_columns)

    @property
    def scale_plans(self) -> tuple[ScalePlan, ...]:
        """The scale factors of A, then of B, that one block loads for a K step; empty: the types have no scales."""
        return scale_plans(self.product, self.tile, self.schedule)

    @property
    def scale_columns(self) -> int:
        """Columns of tensor memory that scale factors take, behind the accumulators."""
        return sum(scale.columns for scale in self.scale_plans) if self.product.in_tensor_memory else 0

    @property
    def tmem_columns(self) -> int:
        """Columns of tensor memory for tcgen05.alloc: a power of two; 0: none."""
        taken = self.accumulators * accumulator_columns(self.schedule.sums(self.tile)) + self.scale_columns
        return next(columns for columns in ALLOC_COLUMNS if columns >= taken) if taken else 0

    @property
    def share(self) -> int:
        """Columns of the accumulators that a block stores: all of them, unless a cluster shares k."""
        return self.schedule.share(self.sums[1])

    @property
    def part_bytes(self) -> int:
        """The sums that one block of a cluster sends to another; received sums are stored in the memory of the stages."""
        return 0 if self.schedule.split == 1 else self.sums[0] * self.share * ACCUMULATOR_BYTES

    @property
    def workspace_bytes(self) -> int:
        """Global memory through which clusters add their parts of k, without the counters."""
        m, n, _ = self.tile
        shared = self._cluster_tiles * self.schedule.parts if self.schedule.parts > 1 else 0
        if self.schedule.tail > 1:  # with another number of rows, up to one part for every block
            shared = self.sms or 1
        return shared * m * n * ACCUMULATOR_BYTES

    @property
    def counters(self) -> int:
        """Counters in global memory by which blocks learn which of them comes last; all are 0 before and after."""
        if self.schedule.tail > 1:
            return self.sms or 1
        return self._cluster_tiles * self.schedule.split if self.schedule.parts > 1 else 0

    @property
    def _cluster_tiles(self) -> int:
        """Tiles of C, with those beyond its edge that a cluster has."""
        blocks = prod(self.schedule.cluster)
        return self.tiles if blocks == 1 else self.clusters * blocks

    @property
    def tail_tiles(self) -> int:
        """Tiles of the last round, or those of a cluster, if that round does not fill the card."""
        taken = self.tiles if self.schedule.cluster == (1, 1) else self.clusters
        return taken % max(1, (self.sms or 1) // prod(self.schedule.cluster))

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid; None: as many as the card has SMs, at most one for every tile."""
        if not self.schedule.persistent:
            return self._cluster_tiles * self.schedule.blocks_of_a_tile
        if (
            self.schedule.dynamic
        ):  # a block, pair or cluster for every tile; tiles of clusters that have not started are taken over
            return self.clusters * prod(self.schedule.cluster)
        in_a_cluster = prod(self.schedule.cluster)
        return (self.sms or 1) // in_a_cluster * in_a_cluster if self.schedule.tail > 1 else None

    def blocks_on(self, sms: int) -> int:
        """Blocks of the grid on a card of that many SMs, one an SM; a pair takes a tile together, a cluster several."""
        if self.blocks is not None:
            return self.blocks
        in_a_cluster = prod(self.schedule.cluster)
        return min(self.clusters, max(1, sms // in_a_cluster)) * in_a_cluster

    @property
    def clusters(self) -> int:
        """Groups of tiles that a cluster takes at a time, of all products; without multicast as many as tiles."""
        tiles = (ceil_div(self.shape[0], self.tile[0]), ceil_div(self.shape[1], self.tile[1]))
        return prod(self.schedule.cluster_grid(tiles)) * self.batch.count

    @property
    def c_buffers(self) -> int:
        """Buffers through which slices of C leave: one for every slice of a tile, or two, where shared memory has the room.

        With one for every slice, all of a tile is stored while the next one is multiplied.
        """
        alone = self.schedule.persistent is False and self.slices == 1
        if self.epilogue is None or alone or not self.a.problem.reads_by_descriptor:
            return 1
        if self.epilogue.stage_bytes % self.epilogue.smem_alignment_bytes:
            return 1
        counts = {2} if self.product.in_tensor_memory else {2, self.slices}
        fitting = (count for count in counts if find_end(self._regions(c_buffers=count)) <= self.budget_bytes)
        return max(fitting, default=1)

    @property
    def holds_all_slices(self) -> bool:
        """Whether every slice of a tile of C has its own buffer."""
        return self.c_buffers == self.slices > 1

    @property
    def stages_residual(self) -> bool:
        """Whether TMA loads the residual into C's buffers during the products: in C's type, a buffer for every slice.

        A dependent launch reads it behind the sums: the kernel before may have written it.
        """
        alike = self.fused.residual and self.output_type.ptx in RESIDUAL_TYPES and not self.schedule.dependent
        return alike and self.epilogue is not None and self.c_buffers >= self.slices

    @property
    def slices(self) -> int:
        """Slices of the tile of C that go through the epilogue's shared memory, one after another."""
        if self.epilogue is None:
            return 0
        if self.schedule.swapped:
            return self.share // self.epilogue.problem.tile[1]
        return self.fused.columns(self.share) // self.epilogue.problem.columns

    @property
    def warps(self) -> tuple[int, int]:
        """Warps down and across a tile of C that is multiplied by mma: the most that share it evenly; (0, 0): none do."""
        return share_among_warps(self.tile)

    def smem_regions(self) -> tuple[SmemRegion, ...]:
        """The regions of a block's shared memory, in order."""
        return self._regions(self.c_buffers)

    def _regions(self, c_buffers: int) -> tuple[SmemRegion, ...]:
        return place_regions(
            self.a,
            self.b,
            self.epilogue,
            self.stages,
            c_buffers=c_buffers * self.schedule.storing_groups,
            accumulators=self.accumulators,
            answers=self.schedule.answers,
            scales=self.scale_plans,
            has_residual=self.fused.residual,
            turns=self.schedule.storing_groups,
        )

    def smem_offsets(self) -> dict[str, tuple[int, ...]]:
        """Where the stages of A and of B, the epilogue, and the barriers (full of all stages, then empty) start.

        The block's shared memory itself starts at a multiple of `smem_alignment_bytes`.

        >>> from tilescope.planner import plan_gemm
        >>> offsets = plan_gemm(4096, 4096, 4096, "bf16").smem_offsets()
        >>> offsets["b"], offsets["barriers"][:2]
        ((65536, 98304, 131072, 163840), (229376, 229384))
        """
        return {region.name: region.starts for region in self.smem_regions()}
