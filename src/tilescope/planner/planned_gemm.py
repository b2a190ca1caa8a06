"""The plan of a GEMM as data: the tile of C that a block computes, its plans, and how a block's shared memory is shared out.

shared memory   │ A 0 │ A 1 │ … │ B 0 │ B 1 │ … │ slice of C │ full 0, full 1, …, empty 0, empty 1, … │
                a region starts at a multiple of its alignment; the budget is where the last one ends

Reasons speak of it; `gemm_plan.GemmPlan` adds them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tilescope.arch import Arch, Basis
from tilescope.arithmetic import rounded_up
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import Violation
from tilescope.planner.planned_tile import MBARRIER_BYTES
from tilescope.planner.plans import Plan
from tilescope.planner.product import Product, Tile
from tilescope.planner.reason import Reason
from tilescope.sentence import in_us
from tilescope.value import Value, row_field

MAX_ACCUMULATORS = 128  # registers of a thread
_MAX_WARPS = 8  # that share a tile between them by mma
_WARP_ROWS = 16  # of mma, which a warp takes at least
_WARP_COLUMNS = 8
_BEHIND_IN = {  # the term that a reason is about
    "first": "",
    "behind-floor": "floor",
    "behind-bytes": "bytes",
    "behind-few-bytes": "bytes",
    "behind-all-bytes": "bytes",
    "behind-instructions": "instructions",
    "behind-order": "order",
}


@dataclass(frozen=True, slots=True)
class FloorTerm(Value):
    """One of the times that no kernel undercuts, and the rate it comes from."""

    name: str
    us: float
    rate: float
    unit: str  # TFLOP/s or GB/s
    basis: Basis

    def __str__(self) -> str:
        return f"{self.name} {in_us(self.us)} at {self.rate:.4g} {self.unit} ({self.basis})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedTile(Value):
    """A tile shape that can be computed, what it costs, and why it does not come first."""

    _derived: ClassVar[tuple[str, ...]] = ("floor_us", "behind_in", "why")

    tile: Tile
    stages: int
    tiles: int  # of C
    rounds: int | None  # None: how many SMs there are is not known
    terms: tuple[FloorTerm, ...]  # the longest first
    busiest_bytes: int  # of operands that the SM with the most tiles fetches; all of them where rounds is None
    instructions: int  # of the tensor core, for one K step
    behind: Reason

    @property
    def floor_us(self) -> float | None:
        """Microseconds that no kernel with this tile undercuts; None where the card's rates are not known."""
        return self.terms[0].us if self.terms else None

    @property
    def behind_in(self) -> str:
        """The first term in which it is behind: floor, bytes, instructions, order; "" for the first."""
        return _BEHIND_IN[self.behind.name]

    @property
    def why(self) -> str:
        """Why it does not come first, as a sentence."""
        return self.behind.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedTile(Value):
    """A tile shape that cannot be, why, and whether it would have come first."""

    tile: Tile
    violations: tuple[Violation, ...]
    would_lead: bool  # ranks before the tile that was chosen


class SmemRegion(NamedTuple):
    """A part of a block's shared memory: where its pieces start, and how large a piece is."""

    name: str  # a, b, epilogue or barriers
    starts: tuple[int, ...]
    piece_bytes: int
    alignment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGemm(Value):
    """C = A x B for one block's tile: its plans, their stages, the shared memory they share, and the other tiles."""

    shape: tuple[int, int, int]
    data_type: DataType = row_field(DataType.named)
    output_type: DataType = row_field(DataType.named)
    tile: Tile
    stages: int
    a: Plan
    b: Plan
    epilogue: Plan | None  # None: without TMA the accumulators are stored straight from registers
    sms: int | None  # None: neither asked for nor known of a card
    ranked: tuple[RankedTile, ...]  # this tile first
    refused: tuple[RefusedTile, ...]

    @property
    def product(self) -> Product:
        """What was asked for."""
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
    def in_flight_bytes(self) -> int:
        """Bytes of A and B that a block can have under way: all its stages."""
        return self.stages * (self.a.transaction_bytes + self.b.transaction_bytes)

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a block: where its last region ends."""
        return end_of(self.smem_regions())

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
    def slices(self) -> int:
        """Slices of the tile of C that go through the epilogue's shared memory, one after another."""
        return 0 if self.epilogue is None else self.tile[1] // self.epilogue.problem.columns

    @property
    def warps(self) -> tuple[int, int]:
        """Warps down and across a tile of C that is multiplied by mma: the most that share it evenly; (0, 0): none do."""
        shares = [share for share in itertools.product((1, 2, 4), (1, 2, 4, 8)) if self._is_shared_evenly(*share)]
        return max(shares, key=self._warps_and_squareness, default=(0, 0))

    def _is_shared_evenly(self, down: int, across: int) -> bool:
        """Whether so many warps have equal parts of the tile, and registers for them."""
        m, n, _ = self.tile
        if down * across > _MAX_WARPS or m % (_WARP_ROWS * down) or n % (_WARP_COLUMNS * across):
            return False
        return m // down * n // across // 32 <= MAX_ACCUMULATORS

    def _warps_and_squareness(self, share: tuple[int, int]) -> tuple[int, int]:
        """Sort key: the most warps, then parts that are nearest to squares."""
        m, n, _ = self.tile
        down, across = share
        return down * across, -abs(m // down - n // across)

    def smem_regions(self) -> tuple[SmemRegion, ...]:
        """The regions of a block's shared memory, in order."""
        return regions_of(self.a, self.b, self.epilogue, self.stages)

    def smem_offsets(self) -> dict[str, tuple[int, ...]]:
        """Where the stages of A and of B, the epilogue, and the barriers (full of all stages, then empty) start.

        The block's shared memory itself starts at a multiple of `smem_alignment_bytes`.

        >>> from tilescope.planner import plan_gemm
        >>> offsets = plan_gemm(4096, 4096, 4096, "bf16").smem_offsets()
        >>> offsets["b"], offsets["barriers"][:2]
        ((65536, 98304, 131072, 163840), (212992, 213000))
        """
        return {region.name: region.starts for region in self.smem_regions()}


class _Wanted(NamedTuple):
    """A region before it has its place."""

    name: str
    pieces: int
    piece_bytes: int
    alignment_bytes: int


def regions_of(a: Plan, b: Plan, epilogue: Plan | None, stages: int) -> tuple[SmemRegion, ...]:
    """A, B, the epilogue and the barriers of all stages, every region at the next multiple of its alignment."""
    wanted = [
        _Wanted("a", stages, a.stage_bytes, a.smem_alignment_bytes),
        _Wanted("b", stages, b.stage_bytes, b.smem_alignment_bytes),
    ]
    if epilogue is not None:
        wanted.append(_Wanted("epilogue", 1, epilogue.stage_bytes, epilogue.smem_alignment_bytes))
    if a.boxes is not None:  # cp.async waits without
        wanted.append(_Wanted("barriers", 2 * stages, MBARRIER_BYTES, MBARRIER_BYTES))
    regions = []
    end = 0
    for name, pieces, piece_bytes, alignment_bytes in wanted:
        start = rounded_up(end, alignment_bytes)
        end = start + pieces * piece_bytes
        regions.append(SmemRegion(name, tuple(range(start, end, piece_bytes)), piece_bytes, alignment_bytes))
    return tuple(regions)


def end_of(regions: tuple[SmemRegion, ...]) -> int:
    """Bytes from the first region's start to the last one's end."""
    return regions[-1].starts[-1] + regions[-1].piece_bytes
