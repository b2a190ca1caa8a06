"""The drawings of shared-memory accesses: which lanes meet in which bank, what patterns cost, what cures them.

bank          0   1   2   3  …        a row is a line of 128 bytes that some lane wants, a column a bank
line 0x000    0!  1   2   3           (or the two or four banks that one lane takes at once); a cell
line 0x080    4!                      names its lanes. Cells of one column wait for each other: !
"""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.errors import counted
from tilescope.layout import Layout
from tilescope.smem.op import BANK_BYTES, BANKS
from tilescope.smem.report import COUNTER_CAVEAT, BankGroup, BankReport
from tilescope.smem.search import FAMILIES, FoundLayout, LayoutSearch
from tilescope.smem.tile import TileReport
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.parts import Beside, Entry, Legend, Paragraph, Part, Table

_MOST_FOUND = 4  # layouts of each family that are listed; the rest are counted
_MOST_COLLISIONS = 2  # of a report that are spelled out
_FAMILY_WORDS = {
    "plain": "plain rows",
    "hardware": "the hardware modes",
    "xor": "the XOR swizzles",
    "padding": "the paddings",
}
_MOST_LANES = 8  # of a collision
_WAITING = Legend((Entry("waits: its group wants several words of this bank, one a wavefront", 5, "collision", "5"),))


def draw_bank_report(report: BankReport) -> Drawing:
    """Which lanes meet in which bank, and what it costs.

    >>> from tilescope.smem.report import bank_report
    >>> print(draw_bank_report(bank_report("ld.b128", range(0, 512, 16))).text().splitlines()[0])
    ld.b128: 4 wavefronts, 4 without conflicts
    """
    title = f"{report.op.name}: {counted(report.wavefronts, 'wavefront')}, {report.ideal} without conflicts"
    legend = [_WAITING] if report.excess else []
    rows = tuple((f"`{name}`", str(value)) for name, value in report.counters.items())
    counters = Table(rows, ("Nsight Compute counter", "for each execution"), align="lr")
    parts = (Paragraph(_verdict(report)), bank_grid(report), *legend, counters, *_notes(report))
    return Drawing(title, parts)


def draw_tile_report(
    report: TileReport, search: LayoutSearch | None = None, cured: TileReport | None = None
) -> Drawing:
    """A table of patterns with their cost, and a picture of the worst instruction of each that has conflicts.

    With `search`, the layouts that cure them; with `cured`, the same instructions on the best of these beside the sick.
    """
    table = Table(
        tuple(
            (cost.name, str(cost.instructions), str(cost.wavefronts), str(cost.ideal), str(cost.excess), cost.verdict)
            for cost in report.costs
        ),
        ("pattern", "instructions", "wavefronts", "ideal", "excess", "verdict"),
        align="lrrrrl",
        notes=(f"Counted by {_counter_words(report)}",),
    )
    explained = [(number, cost) for number, cost in enumerate(report.costs) if cost.worst is not None]
    drawn = [(number, cost) for number, cost in explained if cost.worst and cost.worst.excess] or explained[:1]
    parts: list[Part] = [table, *_address_table(report, cured)]
    for number, cost in drawn:
        assert cost.worst is not None
        which = (
            "" if cost.instructions == 1 else "Worst instruction of " if cost.worst.excess else "First instruction of "
        )
        sick = bank_grid(cost.worst, f"{which}{cost.name}: {counted(cost.worst.wavefronts, 'wavefront')}")
        cure = cured.costs[number].worst if cured is not None else None
        if cure is not None and search is not None:
            well = bank_grid(cure, f"With {search.best.label}: {counted(cure.wavefronts, 'wavefront')}")
            parts.append(Beside((sick, well)))
        else:
            parts.append(sick)
        parts.append(Paragraph(_verdict(cost.worst)))
    parts += [_WAITING] if report.excess else []
    notes = [note for _, cost in drawn[:1] if cost.worst for note in _notes(cost.worst)]
    parts += [part for part in notes if part != Paragraph(COUNTER_CAVEAT)]
    parts += draw_layout_search(search).parts if search is not None else ()
    title = (
        "Shared-memory accesses" if report.layout is None else f"Shared-memory accesses to {_described(report.layout)}"
    )
    return Drawing(title, tuple(parts))


def _address_table(report: TileReport, cured: TileReport | None) -> list[Table]:
    """The address of an element in C, on the layout and on the one that cures it."""
    layouts = [("(r, c) at", report.layout), ("cured at", None if cured is None else cured.layout)]
    rows = [(name, f"`{layout.c_expression}`") for name, layout in layouts if layout is not None]
    return [Table(tuple(rows))] if rows else []


def draw_layout_search(search: LayoutSearch) -> Drawing:
    """What the search showed, and the layouts it found with their proof."""
    rows, columns = search.tile
    title = f"Layouts for {rows} x {columns} elements of {search.element_bits} bits"
    families = [[each for each in search if each.family == family] for family in FAMILIES]
    shown = [each for family in families for each in family[:_MOST_FOUND]]
    more = [
        f"{len(family) - _MOST_FOUND} of {_FAMILY_WORDS[family[0].family]}"
        for family in families
        if len(family) > _MOST_FOUND
    ]
    headings = [f"{name} (ideal {ideal})" for name, ideal in zip(search.patterns, search.ideal, strict=True)]
    table = Table(
        tuple((each.label, *map(str, each.wavefronts), str(each.excess), _how(each)) for each in shown),
        ("layout", *headings, "excess", "made by"),
        align="l" + "r" * (len(headings) + 1) + "l",
        title="Wavefronts of each pattern",
        notes=(f"As good, but not listed: {', '.join(more)}.",) if more else (),
    )
    return Drawing(title, (Paragraph(search.conclusion), table))


def bank_grid(report: BankReport, title: str = "Lanes by bank") -> Grid:
    """A row for each line that a group wants, a column for each bank (or the banks one lane takes at once)."""
    width = report.op.cell_bytes // BANK_BYTES
    headers = [
        Header(f"{bank}-{bank + width - 1}" if width > 1 else str(bank), short=str(bank))
        for bank in range(0, BANKS, width)
    ]
    tiers: tuple[Tier, ...] = (Tier("bank", tuple(headers)),)
    if width == 1:
        tiers = (Tier.of("chunk", range(8), span=BANKS // 8), *tiers)
    rows = []
    several = len(report.groups) > 1  # one group needs no label
    for number, group in enumerate(each for each in report.groups if each.lanes):
        lines = _lines(report, group)
        for line, cells in lines.items():
            labels = (_lane_words(group.lanes), f"{line:#06x}")[not several :]
            rows.append(Row(labels, tuple(cells), ruled=number > 0 and line == next(iter(lines))))
    notes = _cell_notes(rows)
    if width == 1 and (unused := _unused_half(rows)) is not None:  # a grid of 32 columns is wide
        kept = slice(16, 32) if unused == 0 else slice(0, 16)
        rows = [Row(row.labels, row.cells[kept], row.ruled) for row in rows]
        chunks = range(4, 8) if unused == 0 else range(4)
        tiers = (Tier.of("chunk", chunks, span=4), Tier("bank", tuple(headers[kept])))
        notes = (*notes, f"No lane wants banks {unused}-{unused + 15}.")
    return Grid(title, tiers, tuple(rows), ("lanes", "line")[not several :], notes)


def _unused_half(rows: list[Row]) -> int | None:
    """The first bank of the 16 that no row uses, if there are such."""
    used = [any(row.cells[bank].text for row in rows) for bank in range(BANKS)]
    return 16 if not any(used[16:]) else 0 if not any(used[:16]) else None


def _lines(report: BankReport, group: BankGroup) -> dict[int, list[Cell]]:
    """The cells of each line that the group wants, in order of address."""
    cell_bytes = report.op.cell_bytes
    waiting = {bank for collision in group.collisions for bank in collision.banks}
    wanted: dict[int, list[int]] = {}
    for lane in group.lanes:
        address = report.lane_address[lane]
        assert address is not None
        wanted.setdefault(address // cell_bytes * cell_bytes, []).append(lane)
    lines: dict[int, list[Cell]] = {}
    for place in sorted(wanted):
        line, byte = place // SMEM_LINE_BYTES * SMEM_LINE_BYTES, place % SMEM_LINE_BYTES
        cells = lines.setdefault(line, [Cell(colour="unused")] * (SMEM_LINE_BYTES // cell_bytes))
        bank, lanes = byte // BANK_BYTES, wanted[place]
        waits = bank in waiting
        who = f"{'lane' if len(lanes) == 1 else 'lanes'} {_lane_words(lanes)}"
        said = f"bytes {place:#x} to {place + cell_bytes - 1:#x}, {_bank_words(bank, cell_bytes)}: {who}"
        cells[byte // cell_bytes] = Cell(
            _cell_words(lanes),
            lanes[0],
            "collision" if waits else "",
            said + (", waits for others" if waits else ""),
            link=f"lanes{group.lanes[0]}-bank{bank}",  # those that wait for each other
        )
    return lines


def _cell_words(lanes: list[int]) -> str:
    """The lanes of one cell in few characters: 7, 0-3, or 0+ for the first of several."""
    words = _lane_words(lanes)
    return f"{lanes[0]}+" if " " in words else words


def _cell_notes(rows: list[Row]) -> tuple[str, ...]:
    shared = any("+" in cell.text for row in rows for cell in row.cells)
    return ("0+ is lane 0 with others that want the same word: read together.",) if shared else ()


def _verdict(report: BankReport) -> str:
    """What happens, in sentences: the worst group, and its worst collisions."""
    groups = [group for group in report.groups if group.lanes]
    if not groups:
        return "No lane is active."
    if report.conflict_free:
        return f"No conflict: {counted(len(groups), 'group')} of lanes, {'one wavefront each' if len(groups) > 1 else 'one wavefront'}."
    worst = max(groups, key=lambda group: group.wavefronts)
    sentences = [
        f"Lanes {_lane_words(worst.lanes)} need {worst.wavefronts} wavefronts; bank {worst.busiest_bank} is busiest."
    ]
    top = [collision for collision in worst.collisions if collision.degree == worst.wavefronts]
    for collision in top[:_MOST_COLLISIONS]:
        wanted = [
            f"{_lane_words(lanes)} ({at:#x})" for lanes, at in zip(collision.lanes, collision.addresses, strict=True)
        ]
        if len(wanted) > _MOST_LANES:
            wanted[3:-1] = ["…"]
        banks = _bank_words(collision.banks[0], len(collision.banks) * BANK_BYTES)
        sentences.append(f"In {banks} wait lanes {', '.join(wanted)}.")
    if len(top) > _MOST_COLLISIONS:
        sentences.append(f"So do those of {counted(len(top) - _MOST_COLLISIONS, 'more place')}.")
    return " ".join(sentences)


def _counter_words(report: TileReport) -> str:
    used = sorted({cost.op.counter for cost in report.costs})
    return " and by ".join(f"`l1tex__data_pipe_lsu_wavefronts_mem_shared_{each}.sum`" for each in used)


def _notes(report: BankReport) -> list[Part]:
    return [Paragraph(note) for note in report.notes]


def _how(found: FoundLayout) -> str:
    """How to get the layout, in a few words."""
    swizzle = found.layout.swizzle
    match found.family:
        case "plain":
            return "as it is"
        case "hardware":
            return "TMA" if swizzle.feature == "tma" else f"TMA of {', '.join(swizzle.architectures)}"
        case "xor":
            return f"`{swizzle.c_expression}`"
        case "padding":
            return f"pitch {found.layout.as_rows().tiling.pitch_bytes} B, +{found.extra_bytes} B"


def _described(layout: Layout) -> str:
    words = [f"{' x '.join(map(str, layout.shape))} elements of {layout.element_bits} bits"]
    if layout.atom is None:
        words.append(f"strides {layout.modes or layout.bit_modes}")
    elif layout.major == "MN":
        words.append("MN-major")
    if layout.swizzle.bits:
        words.append(f"swizzle {layout.swizzle.name}")
    if layout.atom is not None and layout.atom != layout.shape:
        words.append(f"atoms of {layout.atom[0]} x {layout.atom[1]}")
    if layout.padding_bytes:
        words.append(f"rows padded by {layout.padding_bytes} bytes")
    if layout.start:
        words.append(f"from {layout.start:#x}")
    return ", ".join(words)


def _lane_words(lanes: Iterable[int]) -> str:
    """Runs of lanes: 0-7, or 0, 2, 4 and so on.

    >>> _lane_words((0, 1, 2, 5)), _lane_words((3,))
    ('0-2 5', '3')
    """
    runs: list[list[int]] = []
    for lane in lanes:
        if runs and lane == runs[-1][1] + 1:
            runs[-1][1] = lane
        else:
            runs.append([lane, lane])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _bank_words(bank: int, length_bytes: int) -> str:
    last = bank + length_bytes // BANK_BYTES - 1
    return f"bank {bank}" if last == bank else f"banks {bank}-{last}"
