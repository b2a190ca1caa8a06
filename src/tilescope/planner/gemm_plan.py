"""The plan of a GEMM: which tile of C a block should compute, and how a block's shared memory is shared out.

The floor of a tile is the longest of four times, none of which a kernel with these tiles undercuts:

    arithmetic            whole rounds of the card, a tile for every SM a round, at the card's FLOP/s for the type
    shared-memory reads   the operands of those rounds, 128 bytes a cycle. By descriptor every instruction reads its own: with
                          64 rows of A and 8 of B, 32 bytes a row, m64n8k16 takes 18 cycles, not the 4 of its sums. Lanes
                          (ldmatrix) read every row of the tile at least once
    loads of one SM       the operand bytes of the SM with the most tiles, at one SM's rate for rows of that width, or once
                          the bytes in flight (stages x bytes of a stage) in the time that a copy takes
    memory                A, B and C moved once, at the rate that so many bytes in flight on every SM reach

A time whose rate the card's row does not have is left out. Shapes whose floor is within a tenth of the lowest are compared
by the operand bytes that the busiest SM fetches, then by the tensor-core instructions of one K step; then the one with
fewer rows comes first. So large matrices get large tiles, and where there is little work all SMs get some.

4096 x 4096 x 4096 bf16 on an H200:
    tile           tiles   rounds   floor      busiest SM
    128 x 256        512        4   179.4 us   4 x (128 + 256) x 4096 x 2 bytes = 12.6 MB    2 wgmma a K step
    256 x 128        512        4   179.4 us   the same                                      4 wgmma
    128 x 128       1024        8   179.4 us   16.8 MB

shared memory   │ A 0 │ A 1 │ … │ B 0 │ B 1 │ … │ slice of C │ full 0, full 1, …, empty 0, empty 1, … │
                a region starts at a multiple of its alignment; the budget is where the last one ends
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

from tilescope.arch import Arch, Basis
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.card import REQUEST_BYTES, Card
from tilescope.data_type import DataType
from tilescope.errors import Violation
from tilescope.planner.plans import MBARRIER_BYTES, Plan
from tilescope.planner.problem import Operand
from tilescope.planner.product import Product, Tile
from tilescope.planner.reason import Reason, in_mb, in_us
from tilescope.planner.reasons import gemm_reasons
from tilescope.value import Value, row_field

TILE_M = (64, 128, 256)
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
# elements: half the registers of an SM, so that two warpgroups keep as many for everything else; or half of
# tensor memory, so that the next tile starts while this one is stored
LARGEST_ACCUMULATOR = 128 * 256
K_TILE_BYTES = 128  # bytes of k per tile: one 128B span
_NEAR = 1.1  # floors this close count as equal
MAX_ACCUMULATORS = 128  # registers of a thread
_MAX_WARPS = 8  # that share a tile between them by mma


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
        return "" if self.behind.name == "first" else self.behind.name.rpartition("-")[2]

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
class GemmPlan(Value):
    """C = A x B for one block's tile: its plans, their stages, the shared memory they share, and the other tiles.

    >>> from tilescope.planner import plan_gemm
    >>> best = plan_gemm(4096, 4096, 4096, "bf16")
    >>> best.tile, best.stages, best.a.swizzle.name
    ((128, 256, 64), 4, '128B')
    >>> best.ranked[1].tile, best.ranked[1].why
    ((256, 128, 64), '4 instructions a K step, not 2')
    """

    _derived: ClassVar[tuple[str, ...]] = ("reasons", "smem_bytes", "budget_bytes", "tiles", "rounds", "floor_us")

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
        a, asked = self.a.problem, (self.shape, self.data_type, self.output_type)
        return Product(*asked, a.arch, a.card, str(a.consumer), a.major, self.b.problem.major, self.sms)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Its numbers and choices."""
        return tuple(gemm_reasons(self))

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
        m, n, _ = self.tile
        shares = [
            (down, across)
            for down, across in itertools.product((1, 2, 4), (1, 2, 4, 8))
            if down * across <= _MAX_WARPS and m % (16 * down) == 0 and n % (8 * across) == 0
            if m // down * n // across // 32 <= MAX_ACCUMULATORS
        ]
        return max(shares, key=lambda share: (share[0] * share[1], -abs(m // share[0] - n // share[1])), default=(0, 0))

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

    def kernel_facts(self) -> dict[str, Any]:
        """What the plan leads to, as plain data: where everything lies, the maps, the descriptors of the first stage."""
        starts, plans = self.smem_offsets(), {"a": self.a, "b": self.b, "c": self.epilogue}
        copied = {name: plan for name, plan in plans.items() if plan is not None and plan.boxes is not None}
        readers = {name: plan for name, plan in (("a", self.a), ("b", self.b)) if plan.problem.reads_by_descriptor}
        return {
            "smem_offsets": starts,
            "tensor_maps": {name: plan.tensor_map(0).to_dict() for name, plan in copied.items()},
            "descriptors": {name: plan.descriptor_words(starts[name][0]) for name, plan in readers.items()},
        }


def regions_of(a: Plan, b: Plan, epilogue: Plan | None, stages: int) -> tuple[SmemRegion, ...]:
    """A, B, the epilogue and the barriers of all stages, every region at the next multiple of its alignment."""
    slices = [] if epilogue is None else [("epilogue", 1, epilogue.stage_bytes, epilogue.smem_alignment_bytes)]
    wanted = [
        ("a", stages, a.stage_bytes, a.smem_alignment_bytes),
        ("b", stages, b.stage_bytes, b.smem_alignment_bytes),
        *slices,
        ("barriers", 0 if a.boxes is None else 2 * stages, MBARRIER_BYTES, MBARRIER_BYTES),  # cp.async waits without
    ]
    regions: list[SmemRegion] = []
    end = 0
    for name, count, piece, alignment in wanted:
        start = rounded_up(end, alignment)
        end = start + count * piece
        regions += [SmemRegion(name, tuple(range(start, end, piece)), piece, alignment)] if count else []
    return tuple(regions)


def end_of(regions: tuple[SmemRegion, ...]) -> int:
    """Bytes from the first region's start to the last one's end."""
    return regions[-1].starts[-1] + regions[-1].piece_bytes


def tile_shapes(product: Product, is_readable: Callable[[Operand, tuple[int, int]], bool]) -> list[Tile]:
    """The shapes worth trying: no accumulators beyond half the room, and no extent twice as large as its matrix.

    The smallest extent that the consumer reads is never too large: mxf4 has 128 rows at least, however few A has.
    """
    tile_k = K_TILE_BYTES * 8 // product.data_type.smem_bits

    def worth_trying(matrix: Operand, known: tuple[int, ...], extent: int) -> list[int]:
        smallest = next((size for size in known if is_readable(matrix, (size, tile_k))), known[0])
        return [size for size in known if size <= smallest or size < 2 * extent]

    m, n = worth_trying("A", TILE_M, product.shape[0]), worth_trying("B", TILE_N, product.shape[1])
    return [(rows, columns, tile_k) for rows in m for columns in n if rows * columns <= LARGEST_ACCUMULATOR]


def tile_grid(shape: tuple[int, int, int], tile: Tile) -> tuple[int, int]:
    """Tiles of C along m and along n."""
    return ceil_div(shape[0], tile[0]), ceil_div(shape[1], tile[1])


def weighed(product: Product, tile: Tile, operands: tuple[Plan, Plan] | None, stages: int) -> RankedTile:
    """What a shape costs, before it is compared with others.

    `operands` are the plans of A and B; None: rows of 128 bytes, and as much in flight as helps.
    """
    (m, n, k), tiles = product.shape, prod(tile_grid(product.shape, tile))
    rounds = ceil_div(tiles, product.sms or 1)  # for which every SM takes a tile, the last time perhaps not all of them
    row_bytes = rounds * k * product.data_type.bits // 8
    fetched = min(m, tile[0]) * row_bytes, min(n, tile[1]) * row_bytes  # rows beyond the matrix are filled, not fetched
    return RankedTile(
        tile=tile,
        stages=stages,
        tiles=tiles,
        rounds=None if product.sms is None else rounds,
        terms=_floor_terms(product, tile, rounds, fetched, operands, stages),
        busiest_bytes=sum(fetched),
        instructions=prod(_instructions(product, tile)[:2]),
        behind=Reason.of("first"),
    )


def _floor_terms(
    product: Product,
    tile: Tile,
    rounds: int,
    fetched: tuple[int, int],
    operands: tuple[Plan, Plan] | None,
    stages: int,
) -> tuple[FloorTerm, ...]:
    """The times that no kernel with this tile undercuts by the card's rates, the longest first."""
    card, (m, n, k), element = product.card, product.shape, product.data_type
    if card is None:
        return ()
    blocks_m, blocks_n, block_rows = _instructions(product, tile)
    rows = blocks_m * blocks_n * block_rows if product.tensor_core.reads_by_descriptor else tile[0] + tile[1]
    moved = (m + n) * k * element.bits / 8 + m * n * product.output_type.bits / 8
    memory, one_sm = float(card.memory_gb_per_s), None
    if product.by_tma and card.tma is not None:
        in_flight = None if operands is None else stages * sum(plan.transaction_bytes for plan in operands)
        enough = card.tma.enough_in_flight_bytes if in_flight is None else in_flight
        widths = [REQUEST_BYTES] * 2 if operands is None else [plan.gmem_request_bytes for plan in operands]
        took = sum(part / card.tma.one_sm(width, enough) for part, width in zip(fetched, widths, strict=True))
        memory, one_sm = card.tma.load(REQUEST_BYTES, in_flight_bytes=in_flight), sum(fetched) / took
    rates = (
        ("arithmetic", rounds * 2 * tile[0] * tile[1] * k * card.sms, card.tflops(element), "TFLOP/s", element.name),
        (
            "shared-memory reads",
            rounds * rows * (k * element.smem_bits // 8),
            card.smem_gb_per_s,
            "GB/s",
            "smem_gb_per_s",
        ),
        ("loads of one SM", sum(fetched), one_sm, "GB/s", "tma"),
        ("memory", moved, memory, "GB/s", "memory_gb_per_s"),
    )
    terms = [
        FloorTerm(
            name, amount / rate / (1e6 if unit == "TFLOP/s" else 1e3), rate, unit, card.basis(cell) or "documented"
        )
        for name, amount, rate, unit, cell in rates
        if rate is not None
    ]
    return tuple(sorted(terms, key=lambda term: -term.us))


def _instructions(product: Product, tile: Tile) -> tuple[int, int, int]:
    """Instructions of one K step along m and along n, and the rows of A and B that one of them takes."""
    forms = [(row.m, row.n[0]) for row in product.mma_forms]
    if (loop := product.tensor_core.loop) is not None:
        known = loop.extents(product.data_type)
        forms = [(_block(tile[0], known.m), _block(tile[1], known.n))]
    m, n = min(forms, key=lambda form: ceil_div(tile[0], form[0]) * ceil_div(tile[1], form[1]))
    return ceil_div(tile[0], m), ceil_div(tile[1], n), m + n


def _block(extent: int, known: tuple[int, ...]) -> int:
    """What one instruction takes of an extent: the most that divides it."""
    return max((size for size in known if extent % size == 0), default=known[0])


def rank(tile: RankedTile, lowest_us: float) -> tuple[float, int, int]:
    """What shapes are sorted by, where `lowest_us` is the lowest floor of all: near floors count as equal."""
    return max(tile.floor_us or 0.0, _NEAR * lowest_us), tile.busiest_bytes, tile.instructions


def behind(tile: RankedTile, best: RankedTile, lowest_us: float) -> Reason:
    """The first term in which a shape is behind the best."""
    floor_us, here, there = rank(tile, lowest_us)[0], tile.busiest_bytes, best.busiest_bytes
    if floor_us > rank(best, lowest_us)[0]:
        return Reason.of("behind-floor", here=floor_us, there=lowest_us)
    if here > there:
        name = "behind-bytes" if in_mb(here) != in_mb(there) else "behind-few-bytes"
        return Reason.of("behind-all-bytes" if tile.rounds is None else name, here=here, there=there)
    if tile.instructions > best.instructions:
        return Reason.of("behind-instructions", here=tile.instructions, there=best.instructions)
    return Reason.of("behind-order")
