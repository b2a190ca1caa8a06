"""Plans drawn, of a tile and of a GEMM: the tile cut into boxes, shared memory, facts, reasons, the ranking; a sweep of them."""

from __future__ import annotations

from tilescope.arithmetic import ceil_div
from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.plans import Plan
from tilescope.planner.reason import in_mb, in_us, with_article
from tilescope.planner.reasons import decisive
from tilescope.planner.search import PlanReport, Unplanned
from tilescope.planner.sweeping import Sweep, SweepRow
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid, Tier, extents, lines_of_bytes, memory_grid

_SHOWN_LINES = 8
_MAX_COPIES = 8  # listed one by one
_MAX_BANDS = 16  # bands of rows drawn
_MAX_STEPS = 8  # of a K loop written out
_MAX_PROBLEMS = 500
_MAX_REASONS = 20
_SHOWN_TILES = 8  # of the ranking, without `why`
_REGION_NAMES = {"a": ["A"], "b": ["B"], "epilogue": ["slice of C"], "barriers": ["full", "empty"]}
_COLOURS = {"A": 0, "B": 2, "slice of C": 4, "full": 6, "empty": 7}  # of a matrix's copies and of its region


def draw_plan_report(report: PlanReport, *, why: bool = False) -> Drawing:
    """The best plan on one screen, the ranked table, and (with `why`) every refusal's reasons."""
    if not report.candidates:
        title = f"No plan for {by(report.problem.tile)} {report.problem.data_type.name}"
        return Drawing(title, {"refused": _refusals(report)})
    plain, folded = ([plan for plan in report.candidates if plan.folded == fold] for fold in (False, True))
    in_order = sorted(plain, key=lambda plan: -plan.tma_instructions)  # the last of a swizzle and order has the fewest
    fewest = {(plan.swizzle, plan.atom_order): plan.tma_instructions for plan in in_order}
    tallest = [plan for plan in plain if plan.tma_instructions == fewest[plan.swizzle, plan.atom_order]]
    shorter = len(plain) - len(tallest)
    refused = (
        f"{counted(len(report.refused), 'candidate')} refused; `--why` names the reasons." if report.refused else ""
    )
    parts: dict[str, Part] = {
        **_plan_parts(report.best),
        "ranking": _ranking(report, tallest, "Plans, best first"),
        "shorter": f"{shorter} more with boxes half as tall: the same bytes, twice the copies." if shorter else "",
        "folded": _ranking(report, folded, "Folded plans: the same bytes through a map of rank 3 or 4"),
        "refused": _refusals(report) if why else refused,
    }
    return Drawing(_plan_title(report.best), parts)


def draw_unplanned(refused: Unplanned) -> Drawing:
    """What was asked, and why there is no plan for it."""
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
        "grids": Beside({"tile": tile, "memory": _smem_grid(plan)}),
        "why": Table.numbered(plan.reasons, "Why"),
    }


def _facts(plan: Plan) -> Table:
    completion, names = plan.completion, plan.problem.extent_names
    ended = f"{completion.commit} and {completion.wait}" if completion.commit else "a barrier"
    by_threads = f"{plan.problem.copy}, 16 bytes a thread, {plan.gmem_request_bytes}-byte requests"
    box, copies = "", []
    if plan.boxes is not None:
        box = f"{plan.tma_instructions} x box {by(plan.boxes.box)} (innermost first), L2 promotion {plan.l2_promotion}"
        copies = [f"{copy.coords} to +{copy.smem_offset_bytes:#x}" for copy in plan.copies]
        copies[_MAX_COPIES:] = [f"… ({len(copies)} in all)"] if len(copies) > _MAX_COPIES else []
    facts = {
        "swizzle": f"{plan.swizzle.name}, atoms in {plan.atom_order} order ({plan.basis})",
        "copy": "" if box else by_threads,
        "TMA": box,
        "copies": ", ".join(copies),
        "mbarrier expects": "" if completion.expected_bytes is None else f"{completion.expected_bytes} bytes a tile",
        "completes by": ended if completion.expected_bytes is None else "",
        "shared memory": f"{plan.smem_bytes} bytes a stage, aligned to {plan.smem_alignment_bytes}",
        f"({', '.join(names)}) at": f"`{plan.layout.terms(*names).c}`",
        **(_descriptor_facts(plan) if plan.problem.reads_by_descriptor else {}),
        **{name: f"`{text}`" if text else _unspelled(plan) for name, text in plan.spellings.items()},
    }
    return Table(facts, title="The plan")


def _unspelled(plan: Plan) -> str:
    """Why a notation has no text for the plan's layout."""
    if plan.layout == plan.containers:
        return "has no such layout"
    return "has no such layout: the values of a chunk of 16 bytes lie dense at its start"


def _descriptor_facts(plan: Plan) -> dict[str, str]:
    loop = plan.descriptors()
    first, advances = loop[0][0], [f"+{step}" for step in loop.advance_bytes]
    shown = " ".join(advances[:_MAX_STEPS]) + (" …" if advances[_MAX_STEPS:] else "")
    offsets = f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes"
    apart = [f", each {block[0].start_address - first.start_address} bytes after the one before" for block in loop[1:2]]
    steps = f"{counted(len(loop[0]), 'step')} of {loop.k_per_step}"
    return {
        "descriptor": f"`{first.encode():#018x}` at address 0: {offsets}",
        "K loop": f"{steps}: start address {shown}" if shown else steps,
        f"along {plan.problem.extent_names[0]}": f"{counted(len(loop), 'block')} of {loop.block_mn}{''.join(apart)}",
    }


def copies_grid(plan: Plan, title: str, names: tuple[str, str], columns: int = 0, colour: int | None = None) -> Grid:
    """Which copy brings what of a tile, or of several side by side in `columns` columns; without TMA, where atoms start.

    A cell is a column of atoms and a band of rows, in the colour of its copy or in `colour`.
    """
    tile = plan.containers.as_rows()
    tiling = tile.tiling
    (rows, wide), (height, width) = tiling.shape, tiling.atom
    height = height if height < rows else min(rows, 8)
    height = height if plan.boxes is None or plan.folded else max(height, plan.boxes.box[1])
    copies = [] if plan.boxes is None else [copy.smem_offset_bytes for copy in plan.copies]

    def cell(row: int, column: int) -> Cell:
        offset = tile.logical(row, column % wide) - tile.layout.start
        number, text, said = offset // tiling.atom_bytes, f"{offset:#x}", f"starts at +{offset:#x}"
        if plan.boxes is not None:
            start = max(copy for copy in copies if copy <= offset)
            number = column // wide * len(copies) + copies.index(start)
            text, said = str(number), f"copy {number}, at +{offset if plan.folded else start:#x}"
        return Cell(text, number if colour is None else colour, title=said)

    bands, across = extents(range(0, rows, height)), range(0, columns or wide, width)
    most, nouns = (_MAX_BANDS, None), ("bands of rows", "columns")
    return Grid.of(title, names, bands, across, cell, most=most, nouns=nouns)


def _smem_grid(plan: Plan) -> Grid:
    """The first lines of shared memory: the row and chunk of the tile that each place holds."""
    order = plan.chunk_order.ravel().tolist()

    def cell(address: int) -> Cell:
        number = order[address // CHUNK_BYTES]
        if number < 0:
            return Cell("", "gap")
        row, chunk = divmod(number, plan.problem.row_bytes // CHUNK_BYTES)
        return Cell(f"{row}.{chunk}", row, title=f"row {row}, chunk {chunk}", link=f"{row}.{chunk}")

    lines = lines_of_bytes(0, len(order) * CHUNK_BYTES)
    return memory_grid("Shared memory: row.chunk of the tile", lines, cell, most=_SHOWN_LINES)


def _box(box: tuple[int, ...] | None) -> str | None:
    return None if box is None else by(box).replace(" ", "")


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def _ranking(report: PlanReport, plans: list[Plan], title: str) -> Table:
    records = [
        {
            "swizzle": plan.swizzle.name,
            "order": plan.atom_order,
            "box": _box(plan.box),
            "copies": None if plan.box is None else plan.tma_instructions,
            "request": f"{plan.gmem_request_bytes} B",
            "bandwidth": _share(costs.bandwidth_share),
            "wavefronts": costs.write_wavefronts if costs.read_wavefronts is None else costs.read_wavefronts,
            "behind in": decisive(plan, report.best) or "",
        }
        for plan in plans
        for costs in [plan.costs]
    ]
    return Table.of(records, title, "lllrrrrl")


def _refusals(report: PlanReport) -> Table:
    """Each reason with the candidates that it refuses: a swizzle alone if both orders are refused.

    A reason that is about the swizzle names it already, and one that refuses all candidates needs no list.
    """
    by_reason: dict[tuple[str, bool], dict[str, set[str]]] = {}
    for candidate in report.refused:
        is_told = all(violation.argument == "swizzle" for violation in candidate.violations)
        reason = "; ".join(map(str, candidate.violations)), is_told
        name = candidate.swizzle.name + (" folded" if candidate.folded else "")
        by_reason.setdefault(reason, {}).setdefault(name, set()).add(candidate.atom_order)
    refuses_all = not report.candidates and len(by_reason) == 1
    sentences = []
    for (sentence, is_told), orders_of in by_reason.items():
        names = [name if len(orders) > 1 else f"{name} {next(iter(orders))}" for name, orders in orders_of.items()]
        told = "" if is_told or refuses_all else f" This refuses swizzle {', '.join(names)}."
        sentences.append(sentence + told)
    return Table.numbered(sentences, "Refused")


def draw_sweep(sweep: Sweep) -> Drawing:
    """A line for each problem with its best plan in numbers, and why others have none.

    What all problems have in common stands in the title.
    """
    asked = [_asked(row) for row in sweep.rows if row.problem is not None]
    common = [words[0] for words in list(zip(*asked, strict=True))[1:] if len(set(words)) == 1 and words[0]]
    rows: list[dict[str, object]] = []
    reasons: dict[str, list[str]] = {}
    for row in sweep.rows:
        tile, *others = _asked(row)
        problem = {"problem": " ".join([tile, *(word for word in others if word and word not in common)])}
        plan: dict[str, object] = {
            "swizzle": row.swizzle,
            "box": _box(row.box),
            "copies": row.tma_instructions,
            "request": f"{row.gmem_request_bytes} B",
            "smem": row.smem_bytes,
            "bandwidth": _share(row.bandwidth_share),
        }
        rows.append({**problem, **(plan if row.has_plan else dict.fromkeys(plan, "") | {"swizzle": "no plan"})})
        for violation in row.violations[:1]:
            reasons.setdefault(str(violation), []).append(row.asked)
    unplanned = [
        {"problem": names[0] + (f" and {len(names) - 1} more" if names[1:] else ""), "why it has no plan": why}
        for why, names in reasons.items()
    ]
    title = f"{counted(len(sweep.rows), 'problem')}, {sweep.planned} with a plan"
    parts = {
        "problems": Table.of(rows, align="lllrrrr", most=_MAX_PROBLEMS, noun="problems; --json has all"),
        "unplanned": Table.of(unplanned[:_MAX_REASONS], "Without a plan"),
    }
    return Drawing(f"{title}: {', '.join(common)}" if common else title, parts)


def _asked(row: SweepRow) -> tuple[str, ...]:
    if (problem := row.problem) is None:
        return (row.asked,)
    swizzle = "" if problem.swizzle is None else problem.swizzle.name
    return by(problem.tile), problem.data_type.ptx, problem.major, problem.consumer_name, swizzle, problem.arch.name


def draw_gemm_plan(gemm: GemmPlan, *, why: bool = False) -> Drawing:
    """The plan on one screen, the ranked tiles, and (with `why`) all of them and every refusal's reasons."""
    grids = {}
    for name, plan in {"A": gemm.a, "B": gemm.b}.items():
        problem, names = plan.problem, plan.problem.row_names
        drawn = "where it lies" if plan.boxes is None else "copies"
        title = f"{name}, {problem.rows} {names[0]} x {problem.columns} {names[1]}: {drawn}"
        grids[name] = copies_grid(plan, title, names, colour=_COLOURS[name])
    if gemm.epilogue is not None and gemm.epilogue.boxes is not None:  # slices that take turns in shared memory
        m, n, _ = gemm.tile
        colour = _COLOURS["slice of C"]
        grids["C"] = copies_grid(gemm.epilogue, f"C, {m} m x {n} n: stores", ("m", "n"), columns=n, colour=colour)
    leading = sum(tile.would_lead for tile in gemm.refused)
    better = f", {leading} of which would rank before this one" if leading else ""
    refused: Part = f"{counted(len(gemm.refused), 'tile')} refused{better}; `--why` names the reasons."
    if why or not gemm.refused:
        reasons = ((by(tile.tile), "; ".join(map(str, tile.violations))) for tile in gemm.refused)
        refused = Table(reasons, title="Refused")
    return Drawing(
        f"GEMM {by(gemm.shape)} {gemm.data_type.name}, by {gemm.a.problem.consumer} on {gemm.arch.name}",
        {
            "plan": _gemm_facts(gemm),
            "maps": _gemm_maps(gemm),
            "reading": _gemm_reading(gemm),
            "grids": Beside(grids),
            "memory": _gemm_smem_grid(gemm),
            "why": Table.numbered(gemm.reasons, "Why"),
            "ranking": _gemm_ranking(gemm, why=why) if gemm.others else None,
            "refused": refused,
        },
    )


def _gemm_facts(gemm: GemmPlan) -> Table:
    down, across = tile_grid(gemm.shape, gemm.tile)
    steps = ceil_div(gemm.shape[2], gemm.tile[2])
    moved = gemm.a.transaction_bytes + gemm.b.transaction_bytes
    tiles = f"{down} x {across} = {gemm.tiles}"
    if gemm.rounds is not None and gemm.sms is not None:
        tiles += f", in {counted(gemm.rounds, 'round')} of {counted(gemm.sms, 'SM')}"
    floor = f"not known: tilescope has no card of {gemm.arch.name}"
    if gemm.card is not None and gemm.floor_us is not None:
        term = gemm.ranked[0].terms[0]
        floor = f"{in_us(gemm.floor_us)}, bound by {term.name}: rates of {with_article(gemm.card.name)}, {term.basis}"
    by_threads = gemm.a.boxes is None
    facts = {
        "tile": f"{by(gemm.tile)} (m x n x k)",
        "tiles of C": f"{tiles}; {counted(steps, 'k tile')} each",
        "floor": floor,
        "stages": f"{gemm.stages} of {gemm.a.stage_bytes} + {gemm.b.stage_bytes} bytes, {gemm.in_flight_bytes} bytes in flight",
        "mbarrier expects": "" if by_threads else f"{moved} bytes a stage",
        "a stage": f"{moved} bytes by {gemm.a.problem.copy}, 16 bytes a thread, then wait_group" if by_threads else "",
        "shared memory": f"{gemm.smem_bytes} of {gemm.budget_bytes} bytes, aligned to {gemm.smem_alignment_bytes}",
    }
    return Table(facts, title="The plan")


def _gemm_maps(gemm: GemmPlan) -> Table:
    """The tensor maps of A, B and C; threads need none."""
    plans = (("A", gemm.a, 1, "stage"), ("B", gemm.b, 1, "stage"), ("C", gemm.epilogue, gemm.slices, "tile"))
    records = [
        {
            "": name,
            "type": a.data_type.name,
            "dims": by(a.dims),
            "stride bytes": ", ".join(map(str, a.strides_bytes)),
            "box": by(a.box),
            "swizzle": a.swizzle.name,
            "copies": f"{plan.tma_instructions * times} a {copied}",
        }
        for name, plan, times, copied in plans
        if plan is not None and plan.boxes is not None
        for a in [plan.tensor_map(0)]
    ]
    note = f"Innermost first, as the driver takes them; L2 promotion {gemm.a.l2_promotion}. A and B are loaded, C is stored."
    return Table.of(records, "Tensor maps", "lllrl", notes=[note])


def _gemm_reading(gemm: GemmPlan) -> Table:
    """How the tensor core reads A and B: by descriptor, or by the addresses that lanes give to ldmatrix."""
    operands = {"A": gemm.a, "B": gemm.b}
    if not gemm.a.problem.reads_by_descriptor:
        named = [(name, plan, plan.problem.extent_names) for name, plan in operands.items()]
        addresses = [
            (name, f"({', '.join(names)})", f"`{plan.layout.terms(*names).logical_c}`, `{plan.swizzle.c_expression}`")
            for name, plan, names in named
        ]
        return Table(addresses, ("", "element", "a, and the shared address"), "Read by ldmatrix")
    starts = gemm.smem_offsets()
    loops = [(name, plan, plan.descriptors(starts[name.lower()][0])) for name, plan in operands.items()]
    records = [
        {
            "": name,
            "first of stage 0": f"`{loop[0][0].encode():#018x}`",
            "leading": loop[0][0].leading_bytes,
            "stride": loop[0][0].stride_bytes,
            "K steps": len(loop[0]),
            "each adds": ", ".join(f"+{step}" for step in dict.fromkeys(loop.advance_bytes)) or None,
            "blocks": f"{len(loop)} of {plan.problem.extent_names[0]}{loop.block_mn}",
        }
        for name, plan, loop in loops
    ]
    return Table.of(records, "Descriptors (bytes)", "llrrrrl")


def _gemm_smem_grid(gemm: GemmPlan) -> Grid:
    """Where each stage of each region starts, a column for each region in the order of addresses."""
    regions = {  # starts, and bytes of a stage
        name: (region.starts[number * gemm.stages :][: gemm.stages], region.piece_bytes)
        for region in gemm.smem_regions()
        for number, name in enumerate(_REGION_NAMES[region.name])
    }

    def cell(stage: int, name: str) -> Cell:
        starts, size = regions[name]
        if stage >= len(starts):
            return Cell("", "unused", title=f"one {name} for all stages")
        return Cell(f"{starts[stage]:#x}", _COLOURS[name], title=f"{name}: {size} bytes at {starts[stage]}")

    return Grid.of(
        "Shared memory: starts of the stages",
        ("stage", "bytes"),
        range(gemm.stages),
        {name: size for name, (_, size) in regions.items()},
        cell,
        outer=(Tier.of("region", regions),),
        notes=[f"Ends at {gemm.smem_bytes:#x}: {gemm.budget_bytes - gemm.smem_bytes} bytes stay free."],
    )


def _gemm_ranking(gemm: GemmPlan, *, why: bool) -> Table:
    shown = gemm.ranked if why else gemm.ranked[:_SHOWN_TILES]
    records = [
        {
            "": place,
            "tile": by(tile.tile),
            "tiles": tile.tiles,
            "rounds": tile.rounds or None,
            "stages": tile.stages,
            "floor": None if tile.floor_us is None else in_us(tile.floor_us),
            "busiest SM": in_mb(tile.busiest_bytes),
            "behind in": tile.behind_in,
        }
        for place, tile in enumerate(shown, 1)
    ]
    more = len(gemm.ranked) - len(shown)
    return Table.of(
        records, "Tiles, best first", "rlrrrrrl", notes=[f"… {more} more; `--why` lists them."] if more else []
    )


DRAWINGS = {
    GemmPlan: draw_gemm_plan,
    Plan: draw_plan,
    PlanReport: draw_plan_report,
    Sweep: draw_sweep,
    Unplanned: draw_unplanned,
}
