"""Plans drawn: the tile cut into boxes, shared memory, facts, reasons and the ranking."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.planner.plan_reasons import decisive
from tilescope.planner.plan_search import PlanReport, Unplanned
from tilescope.planner.plans import Plan
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES, Swizzle
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import lines_of_bytes, memory_grid
from tilescope.view.number_span import extents

_SHOWN_LINES = 8
_MAX_COPIES = 8  # listed one by one
_MAX_BANDS = 16  # bands of rows drawn
_MAX_STEPS = 8  # of a K loop written out


def draw_plan_report(report: PlanReport, *, why: bool = False) -> Drawing:
    """The best plan on one screen, the ranked table, and (with `why`) every refusal's reasons."""
    if not report.candidates:
        title = f"No plan for {by(report.problem.tile)} {report.problem.data_type.name}"
        return Drawing(title, {"refused": _refusals(report)})
    plain = [plan for plan in report.candidates if not plan.folded]
    folded = [plan for plan in report.candidates if plan.folded]
    tallest = _of_fewest_copies(plain)
    shorter = len(plain) - len(tallest)
    refused: Part = ""
    if why:
        refused = _refusals(report)
    elif report.refused:
        refused = f"{counted(len(report.refused), 'candidate')} refused; `--why` names the reasons."
    return Drawing(
        _plan_title(report.best),
        {
            **_plan_parts(report.best),
            "ranking": _rank_table(report, tallest, "Plans, best first"),
            "shorter": f"{shorter} more with boxes half as tall: the same bytes, twice the copies." if shorter else "",
            "folded": _rank_table(report, folded, "Folded plans: the same bytes through a map of rank 3 or 4"),
            "refused": refused,
        },
    )


def _of_fewest_copies(plans: list[Plan]) -> list[Plan]:
    """Those of each swizzle and atom order that have the tallest boxes, so the fewest copies."""
    fewest: dict[tuple[Swizzle, str], int] = {}
    for plan in plans:
        kind = (plan.swizzle, plan.atom_order)
        fewest[kind] = min(fewest.get(kind, plan.tma_instructions), plan.tma_instructions)
    return [plan for plan in plans if plan.tma_instructions == fewest[plan.swizzle, plan.atom_order]]


def draw_unplanned(refused: Unplanned) -> Drawing:
    """The request, and why there is no plan for it."""
    return Drawing(f"No plan for {refused.asked}", {"reasons": Table.numbered(refused.violations, "")})


def draw_plan(plan: Plan) -> Drawing:
    """One plan: tile, boxes, shared memory, facts and reasons."""
    return Drawing(_plan_title(plan), _plan_parts(plan))


def _plan_title(plan: Plan) -> str:
    problem = plan.problem
    used = f"for {problem.consumer_name}" if problem.direction == "load" else "stored by TMA"
    return f"{by(problem.tile)} {problem.data_type.name}, {problem.major}-major, {used} on {problem.arch.name}"


def _plan_parts(plan: Plan) -> dict[str, Part]:
    title = "Tile: where each atom starts"
    if plan.boxes is not None:
        verb = "brings" if plan.problem.direction == "load" else "takes"
        title = f"Tile: which copy {verb} what"
    tile = copies_grid(plan, title, ("rows", plan.problem.row_names[1]))
    return {
        "plan": _facts(plan),
        "grids": Beside({"tile": tile, "memory": smem_grid(plan, "Shared memory: row.chunk of the tile")}),
        "why": Table.numbered(plan.reasons, "Why"),
    }


def _facts(plan: Plan) -> Table:
    facts = {"swizzle": f"{plan.swizzle.name}, atoms in {plan.atom_order} order ({plan.basis})"}
    if plan.boxes is None:
        facts["copy"] = f"{plan.problem.copy}, 16 bytes a thread, {plan.gmem_request_bytes}-byte requests"
    else:
        box = f"box {by(plan.boxes.box)} (innermost first)"
        facts["TMA"] = f"{plan.tma_instructions} x {box}, L2 promotion {plan.l2_promotion}"
        facts["copies"] = _copies(plan)
    facts |= _completion_facts(plan)
    facts["shared memory"] = f"{plan.smem_bytes} bytes a stage, aligned to {plan.smem_alignment_bytes}"
    names = plan.problem.extent_names
    facts[f"({', '.join(names)}) at"] = f"`{plan.layout.terms(*names).c}`"
    if plan.problem.reads_by_descriptor:
        facts |= _descriptor_facts(plan)
    for notation, text in plan.spellings.items():
        facts[notation] = f"`{text}`" if text else _reasons_without_text(plan)
    return Table(facts, title="The plan")


def _copies(plan: Plan) -> str:
    """Where each copy comes from and goes to, of the first ones."""
    copies = [f"{copy.coords} to +{copy.smem_offset_bytes:#x}" for copy in plan.copies]
    if len(copies) > _MAX_COPIES:
        copies = [*copies[:_MAX_COPIES], f"… ({len(copies)} in all)"]
    return ", ".join(copies)


def _completion_facts(plan: Plan) -> dict[str, str]:
    """How the arrival of a tile is signalled."""
    completion = plan.completion
    if completion.expected_bytes is not None:
        return {"mbarrier expects": f"{completion.expected_bytes} bytes a tile"}
    if completion.commit:
        return {"completes by": f"{completion.commit} and {completion.wait}"}
    return {"completes by": "a barrier"}


def _reasons_without_text(plan: Plan) -> str:
    """Why a notation has no text for the plan's layout."""
    if plan.layout == plan.containers:
        return "has no such layout"
    return "has no such layout: the values of a chunk of 16 bytes are packed at its start"


def _descriptor_facts(plan: Plan) -> dict[str, str]:
    loop = plan.descriptors()
    first = loop[0][0]
    offsets = f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes"
    k_loop = f"{counted(len(loop[0]), 'step')} of {loop.k_per_step}"
    advances = [f"+{step}" for step in loop.advance_bytes]
    if len(advances) > _MAX_STEPS:
        advances = [*advances[:_MAX_STEPS], "…"]
    if advances:
        k_loop += f": start address {' '.join(advances)}"
    blocks = f"{counted(len(loop), 'block')} of {loop.block_mn}"
    if len(loop) > 1:
        apart_bytes = loop[1][0].start_address - first.start_address
        blocks += f", each {apart_bytes} bytes after the one before"
    return {
        "descriptor": f"`{first.encode():#018x}` at address 0: {offsets}",
        "K loop": k_loop,
        f"along {plan.problem.extent_names[0]}": blocks,
    }


def copies_grid(plan: Plan, title: str, names: tuple[str, str], *, columns: int = 0, colour: int | None = None) -> Grid:
    """The copies of a tile, or of several side by side in `columns`; without TMA, the starts of atoms.

    A cell is a column of atoms and a band of rows, in the colour of its copy or in `colour`.
    """
    tile = plan.containers.as_rows()
    rows, wide = tile.tiling.shape
    height, width = tile.tiling.atom
    if height >= rows:
        height = min(rows, 8)
    if plan.boxes is not None and not plan.folded:
        height = max(height, plan.boxes.box[1])
    copies = [] if plan.boxes is None else [copy.smem_offset_bytes for copy in plan.copies]

    def cell(row: int, column: int) -> Cell:
        offset = tile.logical(row, column % wide) - tile.layout.start
        if plan.boxes is None:
            atom = offset // tile.tiling.atom_bytes
            return Cell(f"{offset:#x}", atom if colour is None else colour, title=f"starts at +{offset:#x}")
        start = max(copy for copy in copies if copy <= offset)
        copy = column // wide * len(copies) + copies.index(start)
        title = f"copy {copy}, at +{offset if plan.folded else start:#x}"
        return Cell(str(copy), copy if colour is None else colour, title=title)

    return Grid.of(
        title,
        names,
        extents(range(0, rows, height)),
        range(0, columns or wide, width),
        cell,
        most=(_MAX_BANDS, None),
        nouns=("bands of rows", "columns"),
    )


def smem_grid(plan: Plan, title: str, *, tile_name: str = "") -> Grid:
    """The first lines of shared memory: the row and chunk of the tile that each place holds.

    `tile_name` tells the tile apart from another in the same drawing.
    """
    order = plan.chunk_order.ravel().tolist()

    def cell(address: int) -> Cell:
        number = order[address // CHUNK_BYTES]
        if number < 0:
            return Cell("", "gap")
        row, chunk = divmod(number, plan.problem.row_bytes // CHUNK_BYTES)
        return Cell(f"{row}.{chunk}", row, title=f"row {row}, chunk {chunk}", link=f"{tile_name}{row}.{chunk}")

    lines = lines_of_bytes(0, len(order) * CHUNK_BYTES)
    return memory_grid(title, lines, cell, most=_SHOWN_LINES)


def box_in_short(box: tuple[int, ...] | None) -> str | None:
    """A box without blanks, for a column of a table: 64x128; None for a plan without boxes."""
    return None if box is None else by(box).replace(" ", "")


def in_percent_or_none(share: float | None) -> str | None:
    """A share in percent; None where it is not known."""
    return None if share is None else f"{share:.0%}"


def _rank_table(report: PlanReport, plans: list[Plan], title: str) -> Table:
    records = []
    for plan in plans:
        costs = plan.costs
        wavefronts = costs.write_wavefronts if costs.read_wavefronts is None else costs.read_wavefronts
        records.append(
            {
                "swizzle": plan.swizzle.name,
                "order": plan.atom_order,
                "box": box_in_short(plan.box),
                "copies": None if plan.box is None else plan.tma_instructions,
                "request": f"{plan.gmem_request_bytes} B",
                "bandwidth": in_percent_or_none(costs.bandwidth_share),
                "wavefronts": wavefronts,
                "behind in": decisive(plan, report.best) or "",
            }
        )
    return Table.of(records, title, "lllrrrrl")


def _refusals(report: PlanReport) -> Table:
    """Each reason with the candidates that it refuses: only the swizzle if both orders are refused.

    A reason that is about the swizzle names it already, and one that refuses all candidates needs no list.
    """
    by_reason: dict[_Reason, dict[str, set[str]]] = {}  # the atom orders that each refuses, by swizzle
    for candidate in report.refused:
        reason = _Reason(
            sentence="; ".join(map(str, candidate.violations)),
            names_swizzle=all(violation.argument == "swizzle" for violation in candidate.violations),
        )
        name = f"{candidate.swizzle.name} folded" if candidate.folded else candidate.swizzle.name
        by_reason.setdefault(reason, {}).setdefault(name, set()).add(candidate.atom_order)
    refuses_all = not report.candidates and len(by_reason) == 1
    sentences = []
    for reason, orders_of in by_reason.items():
        sentence = reason.sentence
        if not reason.names_swizzle and not refuses_all:
            names = [_refused_name(swizzle, orders) for swizzle, orders in orders_of.items()]
            sentence += f" This refuses swizzle {', '.join(names)}."
        sentences.append(sentence)
    return Table.numbered(sentences, "Refused")


def _refused_name(swizzle: str, orders: set[str]) -> str:
    """A swizzle, with the atom order where only one is refused."""
    if len(orders) > 1:
        return swizzle
    (order,) = orders
    return f"{swizzle} {order}"


class _Reason(NamedTuple):
    """Why candidates are refused."""

    sentence: str
    names_swizzle: bool  # it is about the swizzle, so the sentence names it


DRAWINGS = {
    Plan: draw_plan,
    PlanReport: draw_plan_report,
    Unplanned: draw_unplanned,
}
