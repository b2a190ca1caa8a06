"""The plan of a GEMM drawn: the copies of A, B and C, the stages in shared memory, facts, reasons, the ranked tiles."""

from __future__ import annotations

from collections.abc import Mapping

from tilescope.emitter.emission import Target, unemitted_targets
from tilescope.errors import Violation
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.gemm_batch import ONE
from tilescope.planner.gemm_maps import gemm_map
from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.gemm_schedule import schedule_words
from tilescope.planner.plans import Plan
from tilescope.planner.ranked_tile import RankedTile
from tilescope.planner.reason import with_article
from tilescope.sentence import by, counted, in_mb, in_us, listed
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid, Tier
from tilescope.view.plan_view import copies_grid, smem_grid

_SHOWN_TILES = 8  # of the ranking, without `why`
_REGION_NAMES = {  # what a region of shared memory holds, each of it once a stage
    "a": ("A",),
    "b": ("B",),
    "sfa": ("scale factors of A",),
    "sfb": ("scale factors of B",),
    "epilogue": ("slice of C",),
    "barriers": ("full", "empty"),
    "accumulators": ("acc_full", "acc_empty"),  # a barrier an accumulator
    "address": ("address",),  # of tensor memory
    "answers": ("answer",),  # of cluster launch control
    "answer_barriers": ("next_full", "next_empty"),
    "residual_barrier": ("residual_full",),
    "order_barriers": ("order",),  # of warpgroups that take turns
}
_COLOURS = {
    "A": 0,
    "B": 2,
    "scale factors of A": 1,
    "scale factors of B": 3,
    "slice of C": 4,
    "full": 6,
    "empty": 7,
    "acc_full": 6,
    "acc_empty": 7,
    "address": 5,
    "answer": 3,
    "next_full": 6,
    "next_empty": 7,
    "residual_full": 6,
    "order": 7,
}  # of a matrix's copies and of its region


def draw_gemm_plan(gemm: GemmPlan, *, why: bool = False, operands: bool = False) -> Drawing:
    """The plan on one screen, the ranked tiles, and (with `why`) all of them and every refusal's reasons.

    With `operands`, the first lines of A and B in shared memory are drawn too.
    """
    return Drawing(
        f"GEMM {by(gemm.shape)} {_elements(gemm)}{_form(gemm)}, by {gemm.a.problem.consumer} on {gemm.arch.name}",
        {
            "plan": _gemm_facts(gemm),
            "maps": _gemm_maps(gemm),
            "reading": _gemm_reading(gemm),
            "grids": Beside(_gemm_grids(gemm)),
            "operands": Beside(_operand_grids(gemm)) if operands else None,
            "memory": _gemm_smem_grid(gemm),
            "why": Table.numbered(gemm.reasons, "Why"),
            "ranking": _gemm_ranking(gemm, why=why) if gemm.others else None,
            "refused": _gemm_refusals(gemm, why=why),
        },
    )


def _gemm_grids(gemm: GemmPlan) -> dict[str, Grid]:
    """The copies of A, B and C, by name."""
    grids = {}
    for name, plan in {"A": gemm.a, "B": gemm.b}.items():
        problem = plan.problem
        row_name, column_name = problem.row_names
        drawn = "where it lies" if plan.boxes is None else "copies"
        title = f"{name}, {problem.rows} {row_name} x {problem.columns} {column_name}: {drawn}"
        grids[name] = copies_grid(plan, title, (row_name, column_name), colour=_COLOURS[name])
    if gemm.epilogue is not None and gemm.epilogue.boxes is not None:  # slices that take turns in shared memory
        m, n, _ = gemm.tile
        colour = _COLOURS["slice of C"]
        if gemm.schedule.swapped or gemm.schedule.split > 1 or gemm.schedule.cta_group > 1:
            rows, columns = gemm.epilogue.problem.rows, gemm.epilogue.problem.columns
            title = f"C, a slice of {rows} m x {columns} n: stores"
            grids["C"] = copies_grid(gemm.epilogue, title, ("m", "n"), colour=colour)
        else:
            grids["C"] = copies_grid(gemm.epilogue, f"C, {m} m x {n} n: stores", ("m", "n"), columns=n, colour=colour)
    return grids


def _operand_grids(gemm: GemmPlan) -> dict[str, Grid]:
    """A and B as the first stage holds them, chunk by chunk."""
    grids = {}
    for name, plan in {"A": gemm.a, "B": gemm.b}.items():
        title = f"{name} in shared memory, swizzle {plan.swizzle.name}: row.chunk"
        grids[f"{name} in shared memory"] = smem_grid(plan, title, tile_name=name)
    return grids


def _gemm_refusals(gemm: GemmPlan, *, why: bool) -> Part:
    """How many tiles are refused, or with `why` each with its reasons."""
    if why or not gemm.refused:
        reasons = ((by(tile.tile), "; ".join(map(str, tile.violations))) for tile in gemm.refused)
        return Table(reasons, title="Refused")
    sentence = f"{counted(len(gemm.refused), 'tile')} refused"
    leading = sum(tile.would_lead for tile in gemm.refused)
    if leading:
        sentence += f", {leading} of which would rank before this one"
    return f"{sentence}; `--why` names the reasons."


def _elements(gemm: GemmPlan) -> str:
    """The type of the elements, with the format of their scale factors."""
    name = gemm.data_type.name
    return name if gemm.scales is None else f"{gemm.scales.name} ({name})"


def _form(gemm: GemmPlan) -> str:
    """The batch and the epilogue, where there is one."""
    words = [] if gemm.batch == ONE else [str(gemm.batch)]
    words += [f"scales {BLOCK_SCALES}"] if gemm.block_scales else []
    words += [] if gemm.fused.is_plain else [f"epilogue {gemm.fused}"]
    return "".join(f", {word}" for word in words)


def _gemm_facts(gemm: GemmPlan) -> Table:
    down, across = tile_grid(gemm.shape, gemm.tile)
    steps = gemm.k_tiles
    moved = gemm.in_flight_bytes // gemm.stages * gemm.schedule.cta_group
    each = "" if gemm.batch.count == 1 else f", {gemm.batch.count} times"
    tiles = f"{down} x {across}{each} = {gemm.tiles}"
    if gemm.rounds is not None and gemm.sms is not None:
        tiles += f", in {counted(gemm.rounds, 'round')} of {counted(gemm.sms, 'SM')}"
    floor = f"not known: tilescope has no card of {gemm.arch.name}"
    if gemm.card is not None and gemm.floor_us is not None:
        term = gemm.ranked[0].terms[0]
        floor = f"{in_us(gemm.floor_us)}, bound by {term.name}: rates of {with_article(gemm.card.name)}, {term.basis}"
    stage = f"{gemm.a.stage_bytes} + {gemm.b.stage_bytes} bytes"
    if gemm.scale_plans:
        stage += f" and {sum(plan.stage_bytes for plan in gemm.scale_plans)} of scale factors"
    whose = " of each block" if gemm.schedule.cta_group == 2 else ""
    facts = {
        "tile": f"{by(gemm.tile)} (m x n x k){_of_a_pair(gemm)}",
        "tiles of C": f"{tiles}; {counted(steps, 'k tile')} each",
        "floor": floor,
        "predicted": _predicted_time(gemm),
        "schedule": schedule_words(gemm.schedule) or None,
        "stages": f"{gemm.stages} of {stage}, {gemm.in_flight_bytes} bytes in flight{whose}",
    }
    facts = {name: fact for name, fact in facts.items() if fact is not None}
    if gemm.a.boxes is None:
        facts["a stage"] = f"{moved} bytes by {gemm.a.problem.copy}, 16 bytes a thread, then wait_group"
    else:
        facts["mbarrier expects"] = f"{moved} bytes a stage" + (
            " of both blocks" if gemm.schedule.cta_group == 2 else ""
        )
    room = f"{gemm.smem_bytes} of {gemm.budget_bytes} bytes"
    facts["shared memory"] = f"{room}, aligned to {gemm.smem_alignment_bytes}"
    if unemitted := unemitted_targets(gemm):
        facts["not emitted"] = _not_emitted(unemitted)
    return Table(facts, title="The plan")


def _not_emitted(unemitted: Mapping[Target, Violation]) -> str:
    """The targets that the plan cannot be written as, those with the same reason together."""
    targets_of: dict[str, list[str]] = {}
    for target, violation in unemitted.items():
        targets_of.setdefault(violation.limit, []).append(target)
    return "; ".join(f"as {listed(targets)}: {limit}" for limit, targets in targets_of.items())


def _predicted_time(gemm: GemmPlan) -> str | None:
    """The predicted time; one from only documented rates is labelled."""
    prediction = gemm.ranked[0].prediction
    if prediction is None:
        return None
    return in_us(prediction.us) if prediction.fitted else f"{in_us(prediction.us)}, by documented rates"


def _of_a_pair(gemm: GemmPlan) -> str:
    """The part of a pair's tile in each block; "" for the tile of one block."""
    if gemm.schedule.cta_group == 1:
        return ""
    return f" of a pair: A {by(gemm.a.problem.tile)} and B {by(gemm.b.problem.tile)} of each block"


def _gemm_maps(gemm: GemmPlan) -> Table:
    """The tensor maps of A, B and C; threads need none."""
    records = []
    if gemm.a.boxes is not None:
        records.append(_map_record(gemm, "A", f"{gemm.a.tma_instructions} a stage"))
    if gemm.b.boxes is not None:
        records.append(_map_record(gemm, "B", f"{gemm.b.tma_instructions} a stage"))
    c = gemm.epilogue
    if c is not None and c.boxes is not None:
        records.append(_map_record(gemm, "C", f"{c.tma_instructions * gemm.slices} a tile"))
    order = f"Innermost first, as the driver takes them; L2 promotion {gemm.a.l2_promotion}."
    return Table.of(records, "Tensor maps", "lllrl", notes=[f"{order} A and B are loaded, C is stored."])


def _map_record(gemm: GemmPlan, name: str, copies: str) -> dict[str, object]:
    a = gemm_map(gemm, name.lower())
    return {
        "": name,
        "type": a.data_type.name,
        "dims": by(a.dims),
        "stride bytes": ", ".join(map(str, a.strides_bytes)),
        "box": by(a.box),
        "swizzle": a.swizzle.name,
        "copies": copies,
    }


def _gemm_reading(gemm: GemmPlan) -> Table:
    """How the tensor core reads A and B: by descriptor, or by the addresses that lanes give to ldmatrix."""
    operands = {"A": gemm.a, "B": gemm.b}
    if not gemm.a.problem.reads_by_descriptor:
        return Table.of((_address_record(name, plan) for name, plan in operands.items()), "Read by ldmatrix")
    starts = gemm.smem_offsets()
    records = []
    for name, plan in operands.items():
        loop = plan.descriptors(starts[name.lower()][0])
        first = loop[0][0]
        advances = dict.fromkeys(loop.advance_bytes)  # each once
        records.append(
            {
                "": name,
                "first of stage 0": f"`{first.encode():#018x}`",
                "leading": first.leading_bytes,
                "stride": first.stride_bytes,
                "K steps": len(loop[0]),
                "each adds": ", ".join(f"+{step}" for step in advances) or None,
                "blocks": f"{len(loop)} of {plan.problem.extent_names[0]}{loop.block_mn}",
            }
        )
    return Table.of(records, "Descriptors (bytes)", "llrrrrl")


def _address_record(name: str, plan: Plan) -> dict[str, object]:
    names = plan.problem.extent_names
    logical = plan.layout.terms(*names).logical_c
    return {
        "": name,
        "element": f"({', '.join(names)})",
        "a, and the shared address": f"`{logical}`, `{plan.swizzle.c_expression}`",
    }


def _gemm_smem_grid(gemm: GemmPlan) -> Grid:
    """Where each stage of each region starts, a column for each region in the order of addresses."""
    starts: dict[str, tuple[int, ...]] = {}
    stage_bytes: dict[str, int] = {}
    for region in gemm.smem_regions():
        names = _REGION_NAMES[region.name]
        pieces = len(region.starts) // len(names)  # slices of C have two buffers, however many stages there are
        for number, name in enumerate(names):
            starts[name] = region.starts[number * pieces : (number + 1) * pieces]
            stage_bytes[name] = region.piece_bytes

    def cell(stage: int, name: str) -> Cell:
        if stage >= len(starts[name]):
            return Cell("", "unused", title=f"{name}: {len(starts[name])} for all stages")
        start = starts[name][stage]
        return Cell(f"{start:#x}", _COLOURS[name], title=f"{name}: {stage_bytes[name]} bytes at {start}")

    return Grid.of(
        "Shared memory: starts of the stages",
        ("stage", "bytes"),
        range(max(map(len, starts.values()))),
        stage_bytes,
        cell,
        outer=(Tier.of("region", stage_bytes),),
        notes=[f"Ends at {gemm.smem_bytes:#x}: {gemm.budget_bytes - gemm.smem_bytes} bytes stay free."],
    )


def _gemm_ranking(gemm: GemmPlan, *, why: bool) -> Table:
    shown = gemm.ranked if why else gemm.ranked[:_SHOWN_TILES]
    more = len(gemm.ranked) - len(shown)
    notes = [f"… {more} more; `--why` lists them."] if more else []
    prediction = gemm.ranked[0].prediction
    if prediction is not None and prediction.fitted:
        records = (_predicted_record(place, tile) for place, tile in enumerate(shown, 1))
        return Table.of(records, "Tiles, best first", "rllrrrr", notes=notes)
    records = (_floor_record(place, tile) for place, tile in enumerate(shown, 1))
    return Table.of(records, "Tiles, best first", "rllrrrrrl", notes=notes)


def _predicted_record(place: int, tile: RankedTile) -> dict[str, object]:
    return {
        "": place,
        "tile": by(tile.tile),
        "schedule": schedule_words(tile.schedule) or None,
        "predicted": None if tile.prediction is None else in_us(tile.prediction.us),
        "tiles": tile.tiles,
        "stages": tile.stages,
        "floor": None if tile.floor_us is None else in_us(tile.floor_us),
    }


def _floor_record(place: int, tile: RankedTile) -> dict[str, object]:
    return {
        "": place,
        "tile": by(tile.tile),
        "schedule": schedule_words(tile.schedule) or None,
        "tiles": tile.tiles,
        "rounds": tile.rounds or None,
        "stages": tile.stages,
        "floor": None if tile.floor_us is None else in_us(tile.floor_us),
        "busiest SM": in_mb(tile.busiest_bytes),
        "behind in": tile.behind_in,
    }


DRAWINGS = {GemmPlan: draw_gemm_plan}
