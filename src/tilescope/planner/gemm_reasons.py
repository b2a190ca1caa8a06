"""Why a GEMM is planned as it is: its numbers and choices."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    EXTENTS,
    REGISTER_FILE_BYTES,
    TENSOR_MEMORY_COLUMNS,
    Product,
    accumulator_columns,
    is_exchanged,
)
from tilescope.planner.reason import Reason
from tilescope.swizzle import CHUNK_BYTES


def gemm_reasons(product: Product, best: GemmPlan, *, is_given: bool) -> Iterator[Reason]:
    """The plan's numbers and choices."""
    full = None if best.rounds is None or best.sms is None else best.tiles / (best.rounds * best.sms)
    yield Reason.of("tiles", tile=best.tile, tiles=best.tiles, sms=best.sms, rounds=best.rounds, full=full)
    yield from _floor(product, best)
    if not is_given:
        yield from _choice(best)
    exchanged = is_exchanged(product, best.tile)
    idle = None if best.sms is None else max(0, best.sms - best.tiles)
    options = ("split K",) if exchanged else ("split K", "swapped operands")
    yield Reason.of("not-planned", options=options, idle=idle)
    m, n, _ = best.tile
    if product.tensor_core.accumulators == "tensor memory":
        columns = accumulator_columns(best.tile)
        yield Reason.of("tensor-memory", m=m, n=n, taken=columns, available=TENSOR_MEMORY_COLUMNS)
    else:
        yield Reason.of("registers", m=m, n=n, taken=m * n * ACCUMULATOR_BYTES, available=REGISTER_FILE_BYTES)
    epilogue = best.epilogue
    yield Reason.of(
        "stages", stages=best.stages, a_bytes=best.a.stage_bytes, b_bytes=best.b.stage_bytes,
        epilogue_bytes=None if epilogue is None else epilogue.stage_bytes,
        barriers=None if best.a.boxes is None else 2 * best.stages, smem_bytes=best.smem_bytes, budget_bytes=best.budget_bytes,
    )  # fmt: skip
    yield from _rows(best)
    if epilogue is None:
        yield Reason.of("no-epilogue")
    else:
        yield Reason.of(
            "epilogue", columns=epilogue.problem.columns, slices=best.slices if best.slices > 1 else None,
            access=epilogue.costs.access, swizzle=epilogue.swizzle.name,
        )  # fmt: skip
    if exchanged:
        yield Reason.of("exchanged")
    if product.tensor_core.is_scaled(product.data_type):
        yield Reason.of("scale-factors", data_type=product.data_type.name)
    edges = {edge.values["extent"]: edge for plan in (best.a, best.b) for edge in plan.edge()}
    yield from (edges[name] for name in "mnk" if name in edges)


def _floor(product: Product, best: GemmPlan) -> Iterator[Reason]:
    """The floor, whose rates it comes from, and what they do not know."""
    card, terms = product.card, best.ranked[0].terms
    if card is None:
        yield Reason.of("no-card", arch=product.arch.name)
        if product.sms is None:
            yield Reason.of("no-sms")
        return
    yield Reason.of(
        "floor", floor_us=terms[0].us, card=card.name, bound=terms[0].name, terms=tuple(str(term) for term in terms)
    )
    missing = {
        "TFLOP/s of this type": card.tflops(product.data_type),
        "the clock": card.clock_mhz,
        "one SM's rate": card.tma or not product.by_tma,
        "bytes in flight": card.tma or not product.by_tma,
    }
    cells = tuple(name for name, cell in missing.items() if not cell)
    if cells:
        yield Reason.of("not-weighed", cells=cells, card=card.name, verb="are" if len(cells) > 1 else "is")


def _choice(best: GemmPlan) -> Iterator[Reason]:
    for each in [each for each in best.refused if each.would_lead][:2]:
        first = each.violations[0]
        yield Reason.of("would-lead", tile=each.tile, found=first.found, limit=first.limit)
    near = [each for each in best.ranked if each.behind_in != "floor"]
    chosen = best.ranked[0]
    if len(near) > 1 and chosen.terms:
        tied = next((each for each in near[1:] if each.behind_in in ("instructions", "order")), None)
        more = tied is not None and tied.behind_in == "instructions"
        yield Reason.of(
            "near-floors", near=len(near), busiest_bytes=chosen.busiest_bytes, tied=tied.tile if tied and more else None,
            more=tied.instructions if tied else None, fewest=chosen.instructions, alike=tied.tile if tied and not more else None,
        )  # fmt: skip
    elif best.others and chosen.terms:
        yield Reason.of("next-floor", next=best.others[0].tile)


def _rows(best: GemmPlan) -> Iterator[Reason]:
    """How wide the rows of A and B are in shared memory, and how the swizzle takes them."""
    said: dict[tuple[tuple[str, object], ...], list[str]] = {}
    for matrix, each in (("A", best.a), ("B", best.b)):
        span, row_bytes = each.swizzle.span_bytes, each.problem.row_bytes
        values = {
            "columns": each.problem.columns, "extent": EXTENTS[matrix][each.problem.major == "K"], "row_bytes": row_bytes,
            "spans": None if span is None else row_bytes // span, "swizzle": each.swizzle.name,
            "chunk_bytes": CHUNK_BYTES if span is None else None,
        }  # fmt: skip
        said.setdefault(tuple(values.items()), []).append(matrix)
    for pairs, matrices in said.items():
        yield Reason.of("rows", matrices=tuple(matrices), **dict(pairs))
