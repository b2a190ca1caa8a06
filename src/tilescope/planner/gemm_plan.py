"""The plan of a GEMM tile, how a block's shared memory is shared out, and why the plan is as it is.

shared memory   │ A 0 │ A 1 │ … │ B 0 │ B 1 │ … │ slice of C │ full 0, full 1, …, empty 0, empty 1, … │
                a region starts at a multiple of its alignment; the budget is where the last one ends
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

from tilescope.arch import Arch
from tilescope.card import Card
from tilescope.data_type import DataType
from tilescope.errors import ceil_div
from tilescope.planner.gemm_tiles import RankedTile, RefusedTile
from tilescope.planner.plans import MBARRIER_BYTES, Plan
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    REGISTER_FILE_BYTES,
    TENSOR_MEMORY_COLUMNS,
    Product,
    Tile,
    accumulator_columns,
    is_exchanged,
)
from tilescope.planner.reason import Reason
from tilescope.swizzle import CHUNK_BYTES
from tilescope.value import Value, row_field

MAX_ACCUMULATORS = 128  # registers of a thread
_MAX_WARPS = 8  # that share a tile between them by mma


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
        return tuple(_reasons(self, self.product))

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
            for down, across in product((1, 2, 4), (1, 2, 4, 8))
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
    barriers = 0 if a.boxes is None else 2 * stages  # cp.async completes by cp.async.wait_group
    slices = [] if epilogue is None else [("epilogue", 1, epilogue.stage_bytes, epilogue.smem_alignment_bytes)]
    wanted = [
        ("a", stages, a.stage_bytes, a.smem_alignment_bytes),
        ("b", stages, b.stage_bytes, b.smem_alignment_bytes),
        *slices,
        ("barriers", barriers, MBARRIER_BYTES, MBARRIER_BYTES),
    ]
    regions: list[SmemRegion] = []
    end = 0
    for name, count, piece, alignment in wanted:
        start = ceil_div(end, alignment) * alignment
        end = start + count * piece
        regions += [SmemRegion(name, tuple(range(start, end, piece)), piece, alignment)] if count else []
    return tuple(regions)


def end_of(regions: tuple[SmemRegion, ...]) -> int:
    """Bytes from the first region's start to the last one's end."""
    return regions[-1].starts[-1] + regions[-1].piece_bytes


def _reasons(best: GemmPlan, product: Product) -> Iterator[Reason]:
    (m, n, _), epilogue, exchanged = best.tile, best.epilogue, is_exchanged(product, best.tile)
    full = idle = None
    if best.rounds is not None and best.sms is not None:
        full, idle = best.tiles / (best.rounds * best.sms), max(0, best.sms - best.tiles)
    yield Reason.of("tiles", tile=best.tile, tiles=best.tiles, sms=best.sms, rounds=best.rounds, full=full)
    yield from _floor(product, best)
    yield from _choice(best)
    yield Reason.of("not-planned", options=("split K",) if exchanged else ("split K", "swapped operands"), idle=idle)
    if product.in_tensor_memory:
        columns = accumulator_columns(best.tile)
        yield Reason.of("tensor-memory", m=m, n=n, taken=columns, available=TENSOR_MEMORY_COLUMNS)
    else:
        yield Reason.of("registers", m=m, n=n, taken=m * n * ACCUMULATOR_BYTES, available=REGISTER_FILE_BYTES)
    yield Reason.of(
        "stages",
        stages=best.stages,
        a_bytes=best.a.stage_bytes,
        b_bytes=best.b.stage_bytes,
        epilogue_bytes=None if epilogue is None else epilogue.stage_bytes,
        barriers=None if best.a.boxes is None else 2 * best.stages,
        smem_bytes=best.smem_bytes,
        budget_bytes=best.budget_bytes,
    )
    rows = {matrix: _row(plan) for matrix, plan in (("A", best.a), ("B", best.b))}
    if rows["A"] == rows["B"]:
        yield Reason.of("rows", matrices=("A", "B"), **rows["A"])
    else:
        yield from (Reason.of("rows", matrices=(matrix,), **values) for matrix, values in rows.items())
    if epilogue is None:
        yield Reason.of("no-epilogue")
    else:
        told = {"slices": best.slices if best.slices > 1 else None, "access": epilogue.costs.access}
        yield Reason.of("epilogue", columns=epilogue.problem.columns, swizzle=epilogue.swizzle.name, **told)
    if exchanged:
        yield Reason.of("exchanged")
    if product.tensor_core.is_scaled(product.data_type):
        yield Reason.of("scale-factors", data_type=product.data_type.name)
    edges = {edge.values["extent"]: edge for plan in (best.a, best.b) for edge in plan.edge()}
    yield from (edges[name] for name in "mnk" if name in edges)


def _row(plan: Plan) -> dict[str, Any]:
    """How wide a row of A or B is in shared memory, and how the swizzle takes it."""
    problem, span = plan.problem, plan.swizzle.span_bytes
    return {
        "columns": problem.columns,
        "extent": problem.row_names[1],
        "row_bytes": problem.row_bytes,
        "spans": None if span is None else problem.row_bytes // span,
        "swizzle": plan.swizzle.name,
        "chunk_bytes": CHUNK_BYTES if span is None else None,
    }


def _floor(product: Product, best: GemmPlan) -> Iterator[Reason]:
    """The floor, whose rates it comes from, and what they do not know."""
    card, terms = product.card, best.ranked[0].terms
    if card is None:
        yield Reason.of("no-card", arch=product.arch.name)
        if product.sms is None:
            yield Reason.of("no-sms")
        return
    said = tuple(map(str, terms))
    yield Reason.of("floor", floor_us=terms[0].us, card=card.name, bound=terms[0].name, terms=said)
    known = {
        "TFLOP/s of this type": card.tflops(product.data_type),
        "the clock": card.clock_mhz,
        "one SM's rate": card.tma or not product.by_tma,
        "bytes in flight": card.tma or not product.by_tma,
    }
    if cells := tuple(name for name, cell in known.items() if not cell):
        yield Reason.of("not-weighed", cells=cells, card=card.name, verb="are" if len(cells) > 1 else "is")


def _choice(best: GemmPlan) -> Iterator[Reason]:
    for refused in [tile for tile in best.refused if tile.would_lead][:2]:
        first = refused.violations[0]
        yield Reason.of("would-lead", tile=refused.tile, found=first.found, limit=first.limit)
    chosen, *near = (tile for tile in best.ranked if tile.behind_in != "floor")
    if near and chosen.terms:
        told: dict[str, Any] = {"near": len(near) + 1, "busiest_bytes": chosen.busiest_bytes}
        if tied := next((tile for tile in near if tile.behind_in in ("instructions", "order")), None):
            told["tied" if tied.behind_in == "instructions" else "alike"] = tied.tile
            told |= {"more": tied.instructions, "fewest": chosen.instructions}
        yield Reason.of("near-floors", **told)
    elif best.others and chosen.terms:
        yield Reason.of("next-floor", next=best.others[0].tile)
