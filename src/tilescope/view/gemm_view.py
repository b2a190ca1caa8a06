"""A GEMM's plan drawn: facts, maps, descriptors, tiles cut into boxes, shared memory, reasons, and the other tiles."""

from __future__ import annotations

from tilescope.errors import by, ceil_div, counted
from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.reason import in_mb, in_us, with_article
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Tier
from tilescope.view.parts import Beside, Part, Table
from tilescope.view.plan_view import copies_grid

_SHOWN_TILES = 8  # of the ranking, without `why`
_REGION_NAMES = {"a": "A", "b": "B", "epilogue": "slice of C"}
_COLOURS = {"A": 0, "B": 2, "slice of C": 4, "full": 6, "empty": 7}  # of a matrix's copies and of its region


def draw_gemm_plan(gemm: GemmPlan, *, why: bool = False) -> Drawing:
    """The plan on one screen, the ranked tiles, and (with `why`) all of them and every refusal's reasons."""
    grids = []
    for name, plan in {"A": gemm.a, "B": gemm.b}.items():
        problem, names = plan.problem, plan.problem.row_names
        size = f"{name}, {problem.rows} {names[0]} x {problem.columns} {names[1]}"
        title = f"{size}: {'where it lies' if plan.boxes is None else 'copies'}"
        grids.append(copies_grid(plan, title, names, colour=_COLOURS[name]))
    if gemm.epilogue is not None and gemm.epilogue.boxes is not None:  # slices that take turns in shared memory
        m, n, _ = gemm.tile
        colour = _COLOURS["slice of C"]
        grids.append(copies_grid(gemm.epilogue, f"C, {m} m x {n} n: stores", ("m", "n"), n, colour))
    leading = sum(tile.would_lead for tile in gemm.refused)
    better = f", {leading} of which would rank before this one" if leading else ""
    refused: Part = (
        f"{counted(len(gemm.refused), 'tile')} refused{better}; `--why` names the reasons." if gemm.refused else ""
    )
    if why:
        rows = ((by(tile.tile), "; ".join(map(str, tile.violations))) for tile in gemm.refused)
        refused = Table(rows, title="Refused")
    return Drawing(
        f"GEMM {by(gemm.shape)} {gemm.data_type.name}, by {gemm.a.problem.consumer} on {gemm.arch.name}",
        [
            _facts(gemm), _maps(gemm), _reading(gemm), Beside(tuple(grids)), _smem_grid(gemm),
            Table.numbered(gemm.reasons, "Why"), _ranking(gemm, why=why) if gemm.others else None, refused,
        ],
    )  # fmt: skip


def _facts(gemm: GemmPlan) -> Table:
    down, across = tile_grid(gemm.shape, gemm.tile)
    steps = ceil_div(gemm.shape[2], gemm.tile[2])
    moved = gemm.a.transaction_bytes + gemm.b.transaction_bytes
    tiles = f"{down} x {across} = {gemm.tiles}"
    if gemm.rounds is not None and gemm.sms is not None:
        tiles += f", in {counted(gemm.rounds, 'round')} of {counted(gemm.sms, 'SM')}"
    floor = f"not known: no card of {gemm.arch.name} is"
    if gemm.card is not None and gemm.floor_us is not None:
        term = gemm.ranked[0].terms[0]
        floor = f"{in_us(gemm.floor_us)}, bound by {term.name}: rates of {with_article(gemm.card.name)}, {term.basis}"
    stage = f"{gemm.stages} of {gemm.a.stage_bytes} + {gemm.b.stage_bytes} bytes"
    by_threads = gemm.a.boxes is None
    facts = {
        "tile": f"{by(gemm.tile)} (m x n x k)",
        "tiles of C": f"{tiles}; {counted(steps, 'k tile')} each",
        "floor": floor,
        "stages": f"{stage}, {gemm.in_flight_bytes} bytes in flight",
        "mbarrier expects": "" if by_threads else f"{moved} bytes a stage",
        "a stage": f"{moved} bytes by {gemm.a.problem.copy}, 16 bytes a thread, then wait_group" if by_threads else "",
        "shared memory": f"{gemm.smem_bytes} of {gemm.budget_bytes} bytes, aligned to {gemm.smem_alignment_bytes}",
    }
    return Table(facts, title="The plan")


def _maps(gemm: GemmPlan) -> Table:
    """The tensor maps of A, B and C; threads need none."""
    rows = []
    for name, plan, copied in (("A", gemm.a, "stage"), ("B", gemm.b, "stage"), ("C", gemm.epilogue, "tile")):
        if plan is not None and plan.boxes is not None:
            made = plan.tensor_map(0)
            copies = f"{plan.tma_instructions * (gemm.slices if name == 'C' else 1)} a {copied}"
            strides = ", ".join(map(str, made.strides_bytes))
            rows.append((name, made.data_type.name, by(made.dims), strides, by(made.box), made.swizzle.name, copies))
    headings = ("", "type", "dims", "stride bytes", "box", "swizzle", "copies")
    note = f"Innermost first, as the driver takes them; L2 promotion {gemm.a.l2_promotion}. A and B are loaded, C is stored."
    return Table(rows, headings, "Tensor maps", "lllrl", [note])


def _reading(gemm: GemmPlan) -> Table:
    """How the tensor core reads A and B: by descriptor, or by the addresses that lanes give to ldmatrix."""
    starts = gemm.smem_offsets()
    operands = {"A": gemm.a, "B": gemm.b}
    rows: list[tuple[object, ...]] = []
    if not gemm.a.problem.reads_by_descriptor:
        for name, plan in operands.items():
            names = plan.problem.extent_names
            address = (
                f"`{plan.layout.terms(*names).logical_c}`, `{plan.swizzle.c_expression}`"  # before, after the swizzle
            )
            rows.append((name, f"({', '.join(names)})", address))
        return Table(rows, ("", "element", "a, and the shared address"), "Read by ldmatrix")
    for name, plan in operands.items():
        loop = plan.descriptors(starts[name.lower()][0])
        first = loop[0][0]
        advance = ", ".join(f"+{step}" for step in dict.fromkeys(loop.advance_bytes)) or None
        blocks = f"{len(loop)} of {plan.problem.extent_names[0]}{loop.block_mn}"
        word, offsets = f"`{first.encode():#018x}`", (first.leading_bytes, first.stride_bytes)
        rows.append((name, word, *offsets, len(loop[0]), advance, blocks))
    headings = ("", "first of stage 0", "leading", "stride", "K steps", "each adds", "blocks")
    return Table(rows, headings, "Descriptors (bytes)", "llrrrrl")


def _smem_grid(gemm: GemmPlan) -> Grid:
    """Where each stage of each region starts, a column for each region in the order of addresses."""
    starts: dict[str, tuple[int, ...]] = {}
    sizes: dict[str, int] = {}
    for region in gemm.smem_regions():
        cut = {_REGION_NAMES.get(region.name, ""): region.starts}
        if region.name == "barriers":
            cut = {"full": region.starts[: gemm.stages], "empty": region.starts[gemm.stages :]}
        starts |= cut
        sizes |= dict.fromkeys(cut, region.piece_bytes)

    def cell(stage: int, name: str) -> Cell:
        if stage >= len(starts[name]):
            return Cell("", "unused", title=f"one {name} for all stages")
        at = starts[name][stage]
        return Cell(f"{at:#x}", _COLOURS[name], title=f"{name}: {sizes[name]} bytes at {at}")

    note = f"Ends at {gemm.smem_bytes:#x}: {gemm.budget_bytes - gemm.smem_bytes} bytes stay free."
    title, outer = "Shared memory: starts of the stages", (Tier.of("region", starts),)
    return Grid.of(title, ("stage", "bytes"), range(gemm.stages), sizes, cell, outer=outer, notes=[note])


def _ranking(gemm: GemmPlan, *, why: bool) -> Table:
    headings = ("", "tile", "tiles", "rounds", "stages", "floor", "busiest SM", "behind in")
    shown = gemm.ranked if why else gemm.ranked[:_SHOWN_TILES]
    rows = []
    for place, tile in enumerate(shown, 1):
        floor = None if tile.floor_us is None else in_us(tile.floor_us)
        busiest = in_mb(tile.busiest_bytes)
        rows.append(
            (place, by(tile.tile), tile.tiles, tile.rounds or None, tile.stages, floor, busiest, tile.behind_in)
        )
    more = len(gemm.ranked) - len(shown)
    notes = [f"… {more} more; `--why` lists them."] if more else []
    return Table(rows, headings, "Tiles, best first", "rlrrrrrl", notes)
