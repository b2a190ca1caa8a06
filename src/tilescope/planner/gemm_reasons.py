"""The reasons of a GEMM's plan: its tile, its floor, what it was chosen over, and how its memory is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.planner.block_scales import a_scale_shape, b_scale_shape
from tilescope.planner.gemm_maps import launch_rows
from tilescope.planner.gemm_schedule import PLAIN, schedule_words
from tilescope.planner.plan_reasons import edge_reasons
from tilescope.planner.planned_gemm import PlannedGemm
from tilescope.planner.plans import Plan
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    REGISTER_FILE_BYTES,
    Product,
    accumulator_columns,
    is_exchanged,
)
from tilescope.planner.ranked_tile import Prediction, RankedTile
from tilescope.planner.reason import Reason
from tilescope.swizzle import CHUNK_BYTES

_MOVES = {  # by what binds: what would make the product faster
    "steps": "larger tiles, or more SMs with a tile",
    "memory": "operands of fewer bits",
    "L2": "larger tiles, or rows that start at lines of 128 bytes",
    "power": "fewer operand bytes for every product: larger tiles",
}


def gemm_reasons(best: PlannedGemm) -> Iterator[Reason]:
    """The numbers and choices of a GEMM's plan."""
    product = best.product
    exchanged = is_exchanged(product, best.tile)
    yield _tiles(best)
    yield from _floor(product, best)
    yield from _time(best)
    yield from _choice(best)
    if product.consumer != "wgmma":
        has_swapped = exchanged or product.in_tensor_memory
        yield Reason.of(
            "not-planned",
            options=("split K",) if has_swapped else ("split K", "swapped operands"),
            idle=max(0, best.sms - best.tiles) if best.sms else None,
        )
    yield from _schedule(best)
    yield from _forms(best)
    yield _accumulators(product, best)
    yield _stages(best)
    yield from _rows(best)
    yield _epilogue(best)
    if exchanged:
        yield Reason.of("exchanged")
    yield from _scales(product, best)
    yield from _edges(best)


def _scales(product: Product, best: PlannedGemm) -> Iterator[Reason]:
    """Where scale factors are stored, or how the elements are stored without them."""
    if product.scales is not None and best.scale_plans:
        a, b = best.scale_plans
        yield Reason.of(
            "scales",
            format=product.scales.name,
            block=product.scales.block,
            a_bytes=a.stage_bytes,
            b_bytes=b.stage_bytes,
            copies=len(a.copies) + len(b.copies) if product.in_tensor_memory else None,
            columns=best.scale_columns if product.in_tensor_memory else None,
        )
    elif product.block_scales:
        a_shape = a_scale_shape(launch_rows(best), best.shape[2])
        yield Reason.of("block-scales", a_shape=a_shape, b_shape=b_scale_shape(best.shape[1], best.shape[2]))
    elif product.operand_type != product.data_type:
        yield Reason.of("unpacked", data_type=product.data_type.name, operand_type=product.operand_type.name)


def _tiles(best: PlannedGemm) -> Reason:
    """How many tiles C has, and how well they fill the card."""
    full = None
    if best.rounds and best.sms:
        full = min(1.0, best.tiles * best.schedule.cta_group / (best.rounds * best.sms))
    of_pair = {"whose": "a pair"} if best.schedule.cta_group == 2 else {}
    return Reason.of("tiles", tile=best.tile, tiles=best.tiles, sms=best.sms, rounds=best.rounds, full=full, **of_pair)


def _time(best: PlannedGemm) -> Iterator[Reason]:
    """The predicted time, its parts, and what would move it."""
    prediction = best.ranked[0].prediction
    if prediction is None:
        return
    if not prediction.fitted:
        yield Reason.of(
            "documented-time",
            us=prediction.us,
            main_us=prediction.main_us,
            bound=prediction.bound,
            epilogue_us=prediction.epilogue_us,
        )
        return
    yield Reason.of(
        "time",
        us=prediction.us,
        launch_us=prediction.launch_us,
        main_us=prediction.main_us,
        bound=prediction.bound,
        epilogue_us=prediction.epilogue_us,
        adding_us=prediction.adding_us or None,
        moves=_MOVES[prediction.bound],
    )
    yield from _correction(best, prediction)


def _correction(best: PlannedGemm, prediction: Prediction) -> Iterator[Reason]:
    """What corrected the time: kernels that were timed on this card."""
    card = best.card
    if card is None or not prediction.timed_kernels:
        return
    if prediction.timed_kernels == 1:
        yield Reason.of("timed", card=card.name, date=prediction.timed_on)
        return
    yield Reason.of("corrected", card=card.name, date=prediction.timed_on, kernels=prediction.timed_kernels)


def _schedule(best: PlannedGemm) -> Iterator[Reason]:
    """How the blocks share the work, where that is not the plain way."""
    schedule = best.schedule
    if schedule.cta_group == 2:
        a, b = best.operands
        sums_rows, sums_columns = best.sums
        yield Reason.of(
            "pair",
            rows=a.problem.tile[0],
            columns=b.problem.tile[0],
            sums_rows=sums_rows,
            sums_columns=sums_columns,
        )
    if schedule.multicast != PLAIN.multicast:
        yield _multicast(best)
    if schedule.dynamic:
        in_a_cluster = prod(schedule.cluster)
        yield Reason.of("dynamic", blocks=best.blocks, clusters=best.clusters, in_a_cluster=in_a_cluster)
    if schedule.swapped:
        yield Reason.of("swapped", core=best.product.consumer, rows=best.sums[0], columns=best.sums[1])
    if schedule.split > 1:
        yield Reason.of("split", blocks=schedule.split, steps=best.k_tiles, part_bytes=best.part_bytes)
    if schedule.parts > 1:
        yield Reason.of("parts", parts=schedule.parts, workspace_bytes=best.workspace_bytes)
    if schedule.tail > 1:
        yield Reason.of("tail", tiles=best.tail_tiles, parts=schedule.tail, workspace_bytes=best.workspace_bytes)
    if schedule.group:
        yield Reason.of("group", group=schedule.group)
    if schedule.dependent:
        yield Reason.of("dependent", stages=min(best.stages, best.k_tiles))


def _multicast(best: PlannedGemm) -> Reason:
    """What the blocks of a cluster fetch for each other, and what that saves."""
    along_m, along_n = best.schedule.multicast
    shared = tuple(name for name, sharers in (("B", along_m), ("A", along_n)) if sharers > 1)
    fetched = best.a.transaction_bytes // along_n + best.b.transaction_bytes // along_m
    return Reason.of(
        "multicast",
        blocks=prod(best.schedule.cluster),
        clustered=best.schedule.multicast,
        shared=shared,
        fetched_bytes=fetched,
        stage_bytes=best.a.transaction_bytes + best.b.transaction_bytes,
    )


def _forms(best: PlannedGemm) -> Iterator[Reason]:
    """The batch and the epilogue, where there is one."""
    batch, fused = best.batch, best.fused
    if batch.is_of_experts:
        how = "an array says how many of its rows each has, and tiles without rows are left out"
        if batch.rows == "contiguous":
            how = f"a group starts at a multiple of {best.tile[0]}, the tile's m, and an array says whose every row is"
        yield Reason.of(
            "experts", count=batch.count, rows=batch.rows, how=how, m=best.shape[0], tiles=best.tiles // batch.count
        )
    elif batch.count > 1:
        yield Reason.of("batch", count=batch.count, tiles=best.tiles // batch.count)
    if not fused.is_plain:
        gate = "interleaved in groups of 8" if fused.gate == "interleaved" else fused.gate
        yield Reason.of(
            "fused",
            fused=str(fused),
            gate=gate if fused.is_gated else None,
            groups="groups of 8" if fused.is_gated else None,
        )


def _floor(product: Product, best: PlannedGemm) -> Iterator[Reason]:
    """The floor, whose rates it comes from, and what they do not know."""
    card = product.card
    if card is None:
        yield Reason.of("no-card", arch=product.arch.name)
        if product.sms is None:
            yield Reason.of("no-sms")
        return
    terms = best.ranked[0].terms
    bound = terms[0]
    yield Reason.of("floor", floor_us=bound.us, card=card.name, bound=bound.name, terms=tuple(map(str, terms)))
    sustained_tflops = product.tflops
    if bound.name == "arithmetic" and sustained_tflops is not None and sustained_tflops < bound.rate:
        m, n, k = product.shape
        yield Reason.of("sustained", card=card.name, tflops=sustained_tflops, us=2 * m * n * k / sustained_tflops / 1e6)
    measured = {
        "TFLOP/s of this type": sustained_tflops,
        "the clock": card.smem_gb_per_s,
        "one SM's rate": card.tma or not product.by_tma,
        "bytes in flight": card.tma or not product.by_tma,
    }
    cells = tuple(name for name, cell in measured.items() if not cell)
    if cells:
        yield Reason.of("not-weighed", cells=cells, card=card.name, verb="are" if len(cells) > 1 else "is")


def _choice(best: PlannedGemm) -> Iterator[Reason]:
    """What would have come first but cannot be, and what comes next."""
    leading = [tile for tile in best.refused if tile.would_lead]
    for refused in leading[:2]:
        first = refused.violations[0]
        yield Reason.of("would-lead", tile=refused.tile, found=first.found, limit=first.limit)
    prediction = best.ranked[0].prediction
    if prediction is not None and prediction.fitted:
        if best.others:
            following = best.others[0]
            facts: dict[str, object] = {"next": following.tile, "us": _predicted_us(following)}
            if following.schedule != best.schedule:
                facts["schedule"] = schedule_words(following.schedule) or "plain"
            yield Reason.of("next-time", **facts)
        return
    chosen, *near = [tile for tile in best.ranked if tile.behind_in != "floor"]
    if near and chosen.terms:
        facts = {"near": len(near) + 1, "busiest_bytes": chosen.busiest_bytes}
        tied = next((tile for tile in near if tile.behind_in in ("instructions", "order")), None)
        if tied is not None:
            facts["tied" if tied.behind_in == "instructions" else "alike"] = tied.tile
            facts |= {"more": tied.instructions, "fewest": chosen.instructions, **_whose(tied, best)}
        yield Reason.of("near-floors", **facts)
    elif best.others and chosen.terms:
        yield Reason.of("next-floor", next=best.others[0].tile, **_whose(best.others[0], best))


def _whose(tile: RankedTile, best: PlannedGemm) -> dict[str, str]:
    """The owner of a tile, if it is not as many blocks as the plan's."""
    if tile.schedule.cta_group == best.schedule.cta_group:
        return {}
    return {"whose": "a pair" if tile.schedule.cta_group == 2 else "one block"}


def _predicted_us(tile: RankedTile) -> float:
    assert tile.prediction is not None
    return tile.prediction.us


def _accumulators(product: Product, best: PlannedGemm) -> Reason:
    m, n = best.sums
    if product.in_tensor_memory:
        taken = best.accumulators * accumulator_columns((m, n, 1))
        return Reason.of(
            "tensor-memory",
            m=m,
            n=n,
            accumulators=best.accumulators,
            taken=taken,
            available=TMEM_COLUMNS,
            allocated=best.tmem_columns,
        )
    return Reason.of("registers", m=m, n=n, taken=m * n * ACCUMULATOR_BYTES, available=REGISTER_FILE_BYTES)


def _stages(best: PlannedGemm) -> Reason:
    return Reason.of(
        "stages",
        stages=best.stages,
        a_bytes=best.a.stage_bytes,
        b_bytes=best.b.stage_bytes,
        epilogue_bytes=None if best.epilogue is None else best.epilogue.stage_bytes,
        barriers=None if best.a.boxes is None else 2 * (best.stages + best.accumulators),
        smem_bytes=best.smem_bytes,
        budget_bytes=best.budget_bytes,
    )


def _rows(best: PlannedGemm) -> Iterator[Reason]:
    """The rows of A and of B, in one sentence if they are the same."""
    both = ("A", "B")
    if _row(best.a, both) == _row(best.b, both):
        yield _row(best.a, both)
    else:
        yield _row(best.a, ("A",))
        yield _row(best.b, ("B",))


def _edges(best: PlannedGemm) -> Iterator[Reason]:
    """The last tiles along m, n and k; a pair's tile is that of both blocks."""
    m, n, k = best.tile
    tile_shapes = {"m": (m, k), "n": (n, k)}
    edges = {
        edge.values["extent"]: edge
        for plan in (best.a, best.b)
        for edge in edge_reasons(
            replace(plan.problem, tile=tile_shapes[plan.problem.extent_names[0]]),
            plan.problem.global_shape or plan.problem.tile,
        )
    }
    yield from (edges[name] for name in "mnk" if name in edges)


def _row(plan: Plan, matrices: tuple[str, ...]) -> Reason:
    """How wide a row of A or B is in shared memory, and how the swizzle takes it."""
    problem = plan.problem
    span_bytes = plan.swizzle.span_bytes
    return Reason.of(
        "rows",
        matrices=matrices,
        columns=problem.columns,
        extent=problem.row_names[1],
        row_bytes=problem.row_bytes,
        spans=None if span_bytes is None else problem.row_bytes // span_bytes,
        swizzle=plan.swizzle.name,
        chunk_bytes=CHUNK_BYTES if span_bytes is None else None,
    )


def _epilogue(best: PlannedGemm) -> Reason:
    """How C leaves the block."""
    epilogue = best.epilogue
    if epilogue is None:
        return Reason.of("no-epilogue")
    return Reason.of(
        "epilogue",
        columns=epilogue.problem.columns,
        slices=best.slices if best.slices > 1 else None,
        access=epilogue.costs.access,
        swizzle=epilogue.swizzle.name,
    )
