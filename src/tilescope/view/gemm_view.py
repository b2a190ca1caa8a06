"""A GEMM's plan drawn: facts, maps, descriptors, tiles cut into boxes, shared memory, reasons, and the other tiles."""

from __future__ import annotations

from tilescope.errors import by, counted
from tilescope.planner.gemm_plan import GemmPlan, SmemRegion
from tilescope.planner.gemm_tiles import RankedTile, tile_grid
from tilescope.planner.plans import Plan
from tilescope.planner.reason import in_mb, in_us, with_article
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Row, Tier
from tilescope.view.parts import Beside, Paragraph, Part, Table

_SHOWN_TILES = 8  # of the ranking, without `why`
_MOST_BANDS = 16  # of rows, drawn
_REGION_NAMES = {"a": "A", "b": "B", "epilogue": "slice of C"}
_COLOURS = {"A": 0, "B": 2, "slice of C": 4, "full": 6, "empty": 7}  # of a matrix's copies and of its region


def draw_gemm_plan(gemm: GemmPlan, *, why: bool = False) -> Drawing:
    """The plan on one screen, the ranked tiles, and (with `why`) all of them and every refusal's reasons."""
    m, n, k = gemm.shape
    consumer = gemm.a.problem.consumer
    parts: list[Part] = [
        _facts(gemm),
        *_maps(gemm),
        _reading(gemm),
        Beside((_operand_grid("A", gemm.a), _operand_grid("B", gemm.b), *_result_grids(gemm))),
        _smem_grid(gemm),
        Table.numbered(gemm.reasons, "Why"),
    ]
    if gemm.others:
        parts.append(_ranking(gemm.ranked if why else gemm.ranked[:_SHOWN_TILES], len(gemm.ranked)))
    if gemm.refused:
        parts.append(_refusals(gemm, why=why))
    return Drawing(f"GEMM {m} x {n} x {k} {gemm.data_type.name}, by {consumer} on {gemm.arch.name}", tuple(parts))


def _facts(gemm: GemmPlan) -> Table:
    down, across = tile_grid(gemm.shape, gemm.tile)
    steps = -(-gemm.shape[2] // gemm.tile[2])
    moved = gemm.a.transaction_bytes + gemm.b.transaction_bytes
    tiles = f"{down} x {across} = {gemm.tiles}"
    if gemm.rounds is not None and gemm.sms is not None:
        tiles += f", in {counted(gemm.rounds, 'round')} of {counted(gemm.sms, 'SM')}"
    rows = [
        ("tile", f"{by(gemm.tile)} (m x n x k)"),
        ("tiles of C", f"{tiles}; {counted(steps, 'k tile')} each"),
        ("floor", _floor(gemm)),
        ("stages", f"{gemm.stages} of {gemm.a.stage_bytes} + {gemm.b.stage_bytes} bytes, {gemm.in_flight_bytes} bytes in flight"),
        ("mbarrier expects", f"{moved} bytes a stage")
        if gemm.a.boxes is not None
        else ("a stage", f"{moved} bytes by {gemm.a.problem.copy}, 16 bytes a thread, then wait_group"),
        ("shared memory", f"{gemm.smem_bytes} of {gemm.budget_bytes} bytes, aligned to {gemm.smem_alignment_bytes}"),
    ]  # fmt: skip
    return Table(tuple(rows), title="The plan")


def _floor(gemm: GemmPlan) -> str:
    if gemm.card is None or gemm.floor_us is None:
        return f"not known: no card of {gemm.arch.name} is"
    term = gemm.ranked[0].terms[0]
    return f"{in_us(gemm.floor_us)}, bound by {term.name}: rates of {with_article(gemm.card.name)}, {term.basis}"


def _maps(gemm: GemmPlan) -> list[Table]:
    """The tensor maps of A, B and C; threads need none."""
    rows = []
    for name, plan in (("A", gemm.a), ("B", gemm.b), ("C", gemm.epilogue)):
        if plan is not None and plan.boxes is not None:
            made = plan.tensor_map(0)
            copies = (
                f"{plan.tma_instructions * (gemm.slices if name == 'C' else 1)} a {'tile' if name == 'C' else 'stage'}"
            )
            rows.append((
                name, made.data_type.name, by(made.dims), ", ".join(map(str, made.strides_bytes)), by(made.box),
                made.swizzle.name, copies,
            ))  # fmt: skip
    headings = ("", "type", "dims", "stride bytes", "box", "swizzle", "copies")
    note = f"Innermost first, as the driver takes them; L2 promotion {gemm.a.l2_promotion}. A and B are loaded, C is stored."
    return [Table(tuple(rows), headings, title="Tensor maps", align="lllrl", notes=(note,))] if rows else []


def _reading(gemm: GemmPlan) -> Table:
    """How the tensor core reads A and B: by descriptor, or by the addresses that lanes give to ldmatrix."""
    starts = gemm.smem_offsets()
    if not gemm.a.problem.reads_by_descriptor:
        rows = tuple(
            (name, f"({', '.join(plan.problem.extent_names)})", _address(plan))
            for name, plan in (("A", gemm.a), ("B", gemm.b))
        )
        return Table(rows, ("", "element", "a, and the shared address"), title="Read by ldmatrix")
    found = []
    for name, plan in (("A", gemm.a), ("B", gemm.b)):
        loop = plan.descriptors(starts[name.lower()][0])
        first = loop[0][0]
        advance = ", ".join(f"+{step}" for step in dict.fromkeys(loop.advance_bytes)) or "-"
        found.append((
            name, f"`{first.encode():#018x}`", str(first.leading_bytes), str(first.stride_bytes), str(len(loop[0])), advance,
            f"{len(loop)} of {plan.problem.extent_names[0]}{loop.block_mn}",
        ))  # fmt: skip
    headings = ("", "first of stage 0", "leading", "stride", "K steps", "each adds", "blocks")
    return Table(tuple(found), headings, title="Descriptors (bytes)", align="llrrrrl")


def _address(plan: Plan) -> str:
    """C for the address of an element before the swizzle, and after it; a line may end between them."""
    return f"`{plan.layout.terms(*plan.problem.extent_names).logical_c}`, `{plan.swizzle.c_expression}`"


def _operand_grid(name: str, plan: Plan) -> Grid:
    """Which copy brings what of an operand; without TMA, where its columns of atoms start in shared memory."""
    rows, columns = plan.problem.row_names
    title = f"{name}, {plan.problem.rows} {rows} x {plan.problem.columns} {columns}"
    if plan.boxes is None:
        tile = plan.layout.as_rows()
        width = tile.tiling.atom[1]
        offsets = [tile.logical(0, column) for column in range(0, plan.problem.columns, width)]
        cells = [[Cell(f"+{offset:#x}", _COLOURS[name]) for offset in offsets]]
        return _cut(f"{title}: where it lies", cells, width, plan.problem.rows, (rows, columns))
    width, height = plan.boxes.box
    number = {copy.coords: place for place, copy in enumerate(plan.copies)}
    cells = [
        [_copy_cell(number[column, row], name) for column in range(0, plan.problem.columns, width)]
        for row in range(0, plan.problem.rows, height)
    ]
    return _cut(f"{title}: copies", cells, width, height, (rows, columns))


def _result_grids(gemm: GemmPlan) -> list[Grid]:
    """The tile of C: slices that take turns in shared memory, each cut into boxes."""
    plan = gemm.epilogue
    if plan is None or plan.boxes is None:
        return []
    width, height = plan.boxes.box
    in_slice = plan.problem.columns
    number = {copy.coords: place for place, copy in enumerate(plan.copies)}
    cells = [
        [
            _copy_cell(column // in_slice * len(plan.copies) + number[column % in_slice, row], "slice of C")
            for column in range(0, gemm.tile[1], width)
        ]
        for row in range(0, gemm.tile[0], height)
    ]
    return [_cut(f"C, {gemm.tile[0]} m x {gemm.tile[1]} n: stores", cells, width, height, ("m", "n"))]


def _copy_cell(number: int, region: str) -> Cell:
    return Cell(str(number), _COLOURS[region], title=f"copy {number}")


def _cut(title: str, cells: list[list[Cell]], width: int, height: int, names: tuple[str, str]) -> Grid:
    """A tile cut into parts of `height` rows and `width` columns; `names` are those of a row and of a column."""
    shown = cells[:_MOST_BANDS]
    rows = tuple(Row((f"{band * height}-{(band + 1) * height - 1}",), tuple(parts)) for band, parts in enumerate(shown))
    notes = (f"… {len(cells) - len(shown)} more bands of rows",) if len(cells) > len(shown) else ()
    tier = Tier.of(names[1], [place * width for place in range(len(cells[0]))])
    return Grid(title, (tier,), rows, (names[0],), notes)


def _smem_grid(gemm: GemmPlan) -> Grid:
    """Where each stage of each region starts, a column for each region in the order of addresses."""
    columns: list[tuple[str, SmemRegion, tuple[int, ...]]] = []
    for region in gemm.smem_regions():
        if region.name == "barriers":
            columns += [("full", region, region.starts[: gemm.stages]), ("empty", region, region.starts[gemm.stages :])]
        else:
            columns.append((_REGION_NAMES[region.name], region, region.starts))
    rows = []
    for stage in range(gemm.stages):
        cells = [
            Cell(f"{starts[stage]:#x}", _COLOURS[name], title=f"{name}: {region.piece_bytes} bytes at {starts[stage]}")
            if stage < len(starts)
            else Cell("", "unused", title=f"one {name} for all stages")
            for name, region, starts in columns
        ]
        rows.append(Row((str(stage),), tuple(cells)))
    tiers = (
        Tier.of("region", [name for name, _, _ in columns]),
        Tier.of("bytes", [region.piece_bytes for _, region, _ in columns]),
    )
    free = gemm.budget_bytes - gemm.smem_bytes
    note = f"Ends at {gemm.smem_bytes:#x}: {free} bytes stay free."
    return Grid("Shared memory: starts of the stages", tiers, tuple(rows), ("stage",), (note,))


def _ranking(shown: tuple[RankedTile, ...], count: int) -> Table:
    headings = ("", "tile", "tiles", "rounds", "stages", "floor", "busiest SM", "behind in")
    rows = tuple(
        (
            str(place), by(each.tile), str(each.tiles), str(each.rounds or "-"), str(each.stages),
            "-" if each.floor_us is None else in_us(each.floor_us),
            in_mb(each.busiest_bytes), each.behind_in,
        )
        for place, each in enumerate(shown, 1)
    )  # fmt: skip
    notes = (f"… {count - len(shown)} more; `--why` lists them.",) if count > len(shown) else ()
    return Table(rows, headings, title="Tiles, best first", align="rlrrrrrl", notes=notes)


def _refusals(gemm: GemmPlan, *, why: bool) -> Part:
    if not why:
        leading = sum(each.would_lead for each in gemm.refused)
        better = f", {leading} of which would rank before this one" if leading else ""
        return Paragraph(f"{counted(len(gemm.refused), 'tile')} refused{better}; `--why` names the reasons.")
    rows = tuple((by(each.tile), "; ".join(map(str, each.violations))) for each in gemm.refused)
    return Table(rows, title="Refused")
