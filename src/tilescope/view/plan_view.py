"""Plans drawn: the tile cut into boxes, the boxes in shared memory, the facts, the reasons, the ranking."""

from __future__ import annotations

from tilescope.errors import counted
from tilescope.planner.plans import Plan, Unplanned
from tilescope.planner.reasons import decisive
from tilescope.planner.search import PlanReport
from tilescope.swizzle import CHUNK_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.memory_grid import memory_grid
from tilescope.view.parts import Beside, Paragraph, Part, Table

_SHOWN_LINES = 8
_MOST_COPIES = 8  # listed one by one
_MOST_BANDS = 16  # bands of rows drawn
_MOST_STEPS = 8  # of a K loop written out


def draw_plan_report(report: PlanReport, *, why: bool = False) -> Drawing:
    """The best plan on one screen, the ranked table, and (with `why`) every refusal's reasons."""
    if not report.candidates:
        mn, k = report.problem.tile
        return Drawing(f"No plan for {mn} x {k} {report.problem.data_type.name}", (_refusals(report),))
    best = report.best
    plain = [candidate for candidate in report.candidates if not candidate.folded]
    folded = [each for each in report.candidates if each.folded]
    tallest = [each for each in plain if _has_the_tallest_boxes(each, plain)]
    parts: list[Part] = [*_plan_parts(best), _ranking(report, tallest, "Plans, best first")]
    if len(tallest) < len(plain):
        shorter = len(plain) - len(tallest)
        parts.append(Paragraph(f"{shorter} more with boxes half as tall: the same bytes, twice the copies."))
    if folded:
        parts.append(_ranking(report, folded, "Folded plans: the same bytes through a map of rank 3 or 4"))
    if report.refused:
        parts.append(
            _refusals(report)
            if why
            else Paragraph(f"{counted(len(report.refused), 'candidate')} refused; `--why` names the reasons.")
        )
    return Drawing(_title(best), tuple(parts))


def draw_unplanned(refused: Unplanned) -> Drawing:
    """What was asked, and why there is no plan for it."""
    return Drawing(f"No plan for {refused.asked}", (Table.numbered(refused.violations, ""),))


def draw_plan(plan: Plan) -> Drawing:
    """One plan: tile, boxes, shared memory, facts and reasons."""
    return Drawing(_title(plan), tuple(_plan_parts(plan)))


def _title(plan: Plan) -> str:
    mn, k = plan.problem.tile
    consumer = plan.problem.consumer if isinstance(plan.problem.consumer, str) else plan.problem.consumer.name
    verb = "stored by TMA" if plan.problem.direction == "store" else f"for {consumer}"
    return f"{mn} x {k} {plan.problem.data_type.name}, {plan.problem.major}-major, {verb} on {plan.problem.arch.name}"


def _plan_parts(plan: Plan) -> list[Part]:
    return [_facts(plan), Beside((_tile_grid(plan), _smem_grid(plan))), Table.numbered(plan.reasons, "Why")]


def _facts(plan: Plan) -> Table:
    rows = [("swizzle", f"{plan.swizzle.name}, atoms in {plan.atom_order} order ({plan.basis})")]
    if plan.boxes is None:
        rows.append(("copy", f"{plan.problem.copy}, 16 bytes a thread, {plan.gmem_request_bytes}-byte requests"))
    else:
        box = " x ".join(map(str, plan.boxes.box))
        rows.append(("TMA", f"{plan.tma_instructions} x box {box} (innermost first), L2 promotion {plan.l2_promotion}"))
        rows.append(("copies", _copies(plan)))
    rows.append(_completion(plan))
    rows.append(("shared memory", f"{plan.smem_bytes} bytes a stage, aligned to {plan.smem_alignment_bytes}"))
    names = plan.problem.extent_names
    rows.append((f"({', '.join(names)}) at", f"`{plan.layout.terms(*names).c}`"))
    if plan.problem.reads_by_descriptor:
        rows += _descriptor_facts(plan)
    rows += [(name, f"`{text}`" if text else "has no such layout") for name, text in plan.spellings.items()]
    return Table(tuple(rows), title="The plan")


def _completion(plan: Plan) -> tuple[str, str]:
    completion = plan.completion
    if completion.expected_bytes is not None:
        return "mbarrier expects", f"{completion.expected_bytes} bytes a tile"
    return "completes by", f"{completion.commit} and {completion.wait}" if completion.commit else "a barrier"


def _copies(plan: Plan) -> str:
    listed = [f"{copy.coords} to +{copy.smem_offset_bytes:#x}" for copy in plan.copies[:_MOST_COPIES]]
    rest = f", … ({len(plan.copies)} in all)" if len(plan.copies) > _MOST_COPIES else ""
    return ", ".join(listed) + rest


def _descriptor_facts(plan: Plan) -> list[tuple[str, str]]:
    loop = plan.descriptors()
    first = loop[0][0]
    advances = [f"+{step}" for step in loop.advance_bytes]
    shown = " ".join(advances[:_MOST_STEPS]) + (" …" if advances[_MOST_STEPS:] else "")
    steps = f"{counted(len(loop[0]), 'step')} of {loop.k_per_step}" + (f": start address {shown}" if shown else "")
    blocks = f"{counted(len(loop), 'block')} of {loop.block_mn}"
    if len(loop) > 1:
        blocks += f", each {loop[1][0].start_address - first.start_address} bytes after the one before"
    return [
        ("descriptor", f"`{first.encode():#018x}` at address 0: leading {first.leading_bytes}, stride {first.stride_bytes} bytes"),
        ("K loop", steps),
        (f"along {plan.problem.extent_names[0]}", blocks),
    ]  # fmt: skip


def _tile_grid(plan: Plan) -> Grid:
    """Which copy brings which atoms: one cell for each column of atoms and band of rows."""
    layout = plan.layout.as_rows().tiling
    width = layout.atom[1]
    across = layout.shape[1] // width
    band = layout.atom[0] if layout.atom[0] < layout.shape[0] else min(layout.shape[0], 8)
    if plan.boxes is not None and not plan.folded:
        band = max(band, plan.boxes.box[1])
    bands = -(-layout.shape[0] // band)
    shown = min(bands, _MOST_BANDS)
    rows = []
    for place in range(shown):
        cells = tuple(_tile_cell(plan, place * band, column * width) for column in range(across))
        rows.append(Row((f"{place * band}-{min((place + 1) * band, layout.shape[0]) - 1}",), cells))
    notes = (f"… {bands - shown} more bands of rows",) if bands > shown else ()
    name = plan.problem.row_names[1]
    verb = "takes" if plan.problem.direction == "store" else "brings"
    tier = Tier.of(name, [column * width for column in range(across)])
    title = "Tile: where each atom starts" if plan.boxes is None else f"Tile: which copy {verb} what"
    return Grid(title, (tier,), tuple(rows), ("rows",), notes)


def _tile_cell(plan: Plan, row: int, column: int) -> Cell:
    tile = plan.layout.as_rows()
    offset = tile.logical(row, column) - tile.start
    if plan.boxes is None:
        return Cell(f"{offset:#x}", offset // tile.tiling.atom_bytes, title=f"starts at +{offset:#x}")
    if plan.folded:
        return Cell("0", 0, title=f"copy 0, atom at +{offset:#x}")
    numbers = [number for number, copy in enumerate(plan.copies) if copy.smem_offset_bytes <= offset]
    number = max(numbers, key=lambda each: plan.copies[each].smem_offset_bytes)
    return Cell(str(number), number, title=f"copy {number} to +{plan.copies[number].smem_offset_bytes:#x}")


def _smem_grid(plan: Plan) -> Grid:
    """The first lines of shared memory: the row and chunk of the tile that each place holds."""
    order = plan.chunk_order.ravel().tolist()

    def cell(address: int) -> Cell:
        number = order[address // CHUNK_BYTES]
        if number < 0:
            return Cell("", "gap")
        row, chunk = divmod(number, plan.problem.row_bytes // CHUNK_BYTES)
        return Cell(f"{row}.{chunk}", row, title=f"row {row}, chunk {chunk}", link=f"{row}.{chunk}")

    end = len(order) * CHUNK_BYTES
    return memory_grid("Shared memory: row.chunk of the tile", 0, end, cell, most=_SHOWN_LINES)


def _ranking(report: PlanReport, plans: list[Plan], title: str) -> Table:
    headings = ("swizzle", "order", "box", "copies", "request", "bandwidth", "wavefronts", "behind in")
    rows = []
    for plan in plans:
        costs = plan.costs
        taken = costs.read_wavefronts if costs.read_wavefronts is not None else costs.write_wavefronts
        rows.append((
            plan.swizzle.name, plan.atom_order,
            "-" if plan.box is None else "x".join(map(str, plan.box)), "-" if plan.box is None else str(plan.tma_instructions),
            f"{plan.gmem_request_bytes} B", "-" if costs.bandwidth_share is None else f"{costs.bandwidth_share:.0%}",
            "-" if taken is None else str(taken), decisive(plan, report.best) or "",
        ))  # fmt: skip
    return Table(tuple(rows), headings, title=title, align="lllrrrrl")


def _has_the_tallest_boxes(plan: Plan, others: list[Plan]) -> bool:
    """Whether no other plan with its swizzle and order takes fewer copies."""
    return all(
        other.tma_instructions >= plan.tma_instructions
        for other in others
        if (other.swizzle, other.atom_order) == (plan.swizzle, plan.atom_order)
    )


def _refusals(report: PlanReport) -> Table:
    """Each reason with the candidates that it refuses: a swizzle alone where both orders are refused."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for each in report.refused:
        reason = "; ".join(str(found) for found in each.violations)
        name = each.swizzle.name + (" folded" if each.folded else "")
        orders = by_reason.setdefault(reason, {}).setdefault(name, [])
        orders += [each.atom_order] if each.atom_order not in orders else []
    sentences = []
    for reason, orders_of in by_reason.items():
        names = [name if len(orders) > 1 else f"{name} {orders[0]}" for name, orders in orders_of.items()]
        sentences.append(f"{reason} Swizzles: {', '.join(names)}.")
    return Table.numbered(sentences, "Refused")
