"""The drawings of shared-memory accesses: lanes that share a bank, the cost of patterns, and layouts without conflicts.

bank          0   1   2   3  …        a row is a line of 128 bytes that some lane wants, a column a bank
line 0x000    0!  1   2   3           (or the two or four banks that one lane takes at once); a cell
line 0x080    4!                      names its lanes. Cells of one column wait for each other: !
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tilescope.layout import Layout
from tilescope.sentence import by, counted
from tilescope.smem.layout_search import FoundLayout, LayoutSearch
from tilescope.smem.op import BANK_BYTES
from tilescope.smem.report import COUNTER_CAVEAT, AccessCost, BankReport, TileReport
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import Cell, Grid, Header, Tier
from tilescope.view.memory_grid import bank_of, bank_words
from tilescope.view.number_span import extent, number_span, runs

_MAX_FOUND = 4  # layouts of each family that are listed; the rest are counted
_MAX_COLLISIONS = 2  # of a report that are spelled out
_MAX_LANES = 8  # of a collision
_FAMILY_WORDS = {
    "plain": "plain rows",
    "hardware": "the hardware modes",
    "xor": "the XOR swizzles",
    "padding": "the paddings",
}
_WAITING = Legend((Entry("waits: its group wants several words of this bank, one a wavefront", 5, "collision", "5"),))


def draw_bank_report(report: BankReport) -> Drawing:
    """The lanes that share each bank, and their cost.

    >>> from tilescope.smem.report import bank_report
    >>> print(draw_bank_report(bank_report("ld.b128", range(0, 512, 16))).text().splitlines()[0])
    ld.b128: 4 wavefronts, 4 without conflicts
    """
    title = f"{report.op.name}: {counted(report.wavefronts, 'wavefront')}, {report.ideal} without conflicts"
    counters = [
        {"Nsight Compute counter": f"`{name}`", "for each execution": count} for name, count in report.counters.items()
    ]
    return Drawing(
        title,
        {
            "verdict": _verdict(report),
            "lanes": bank_grid(report),
            "legend": _WAITING if report.excess else None,
            "counters": Table.of(counters, align="lr"),
            "notes": report.notes,
        },
    )


class _Worst(NamedTuple):
    """The most expensive instruction of a pattern, and the pattern's place in the report."""

    number: int
    cost: AccessCost
    instruction: BankReport


def draw_tile_report(
    report: TileReport,
    search: LayoutSearch | None = None,
    cured: TileReport | None = None,
    *,
    all_banks: bool = False,
) -> Drawing:
    """A table of patterns with their cost, and a picture of the worst instruction of each that has conflicts.

    With `search`, the layouts without conflicts are listed. With `cured`, the report on the best of them, every picture
    is beside that of the same instruction there. With `all_banks`, pictures have all 32 banks, so that they can be
    compared.
    """
    parts: dict[str, Part | tuple[Part, ...] | None] = {
        "costs": _costs(report),
        "addresses": _addresses(report, cured),
    }
    worst = [_Worst(number, cost, cost.worst) for number, cost in enumerate(report.costs) if cost.worst is not None]
    drawn = [entry for entry in worst if entry.instruction.excess] or worst[:1]
    for entry in drawn:
        grids = {"worst": bank_grid(entry.instruction, _worst_title(entry), all_banks=all_banks)}
        cure = None if cured is None else cured.costs[entry.number].worst
        if cure is not None and search is not None:
            wavefronts = counted(cure.wavefronts, "wavefront")
            grids["cured"] = bank_grid(cure, f"With {search.best.label}: {wavefronts}", all_banks=all_banks)
        parts[f"lanes {entry.number}"] = Beside(grids)
        parts[f"verdict {entry.number}"] = _verdict(entry.instruction)
    parts["legend"] = _WAITING if report.excess else None
    parts["notes"] = _notes(drawn[:1], worst)
    if search is not None:
        parts |= _search_parts(search)
        parts["hardware"] = _hardware_words(report, search) if report.excess else ""
    title = "Shared-memory accesses"
    return Drawing(title if report.layout is None else f"{title} to {_describe_layout(report.layout)}", parts)


def _notes(first_drawn: list[_Worst], worst: list[_Worst]) -> tuple[str, ...]:
    """Notes on the first drawn instruction, and on copies; each note once."""
    copies = [entry for entry in worst if entry.cost.op.is_copy]
    notes: list[str] = []
    for entry in (*first_drawn, *copies):
        notes += [note for note in entry.instruction.notes if note != COUNTER_CAVEAT and note not in notes]
    return tuple(notes)


def _costs(report: TileReport) -> Table:
    """A line for each pattern."""
    records = [
        {
            "pattern": cost.name,
            "instructions": cost.instructions,
            "wavefronts": cost.wavefronts,
            "ideal": cost.ideal,
            "excess": cost.excess,
            "verdict": cost.verdict,
        }
        for cost in report.costs
    ]
    counters = sorted({cost.op.wavefront_counter for cost in report.costs})
    counted_by = " and by ".join(f"`{counter}`" for counter in counters)
    return Table.of(records, align="lrrrrl", notes=[f"Counted by {counted_by}"])


def _addresses(report: TileReport, cured: TileReport | None) -> Table:
    """The C expressions of an element's address, on the current layout and on the one without conflicts."""
    addresses = {}
    if report.layout is not None:
        addresses["(r, c) at"] = f"`{report.layout.c_expression}`"
    if cured is not None and cured.layout is not None:
        addresses["cured at"] = f"`{cured.layout.c_expression}`"
    return Table(addresses)


def _worst_title(one: _Worst) -> str:
    title = f"{one.cost.name}: {counted(one.instruction.wavefronts, 'wavefront')}"
    if one.cost.instructions <= 1:
        return title
    return f"Worst instruction of {title}" if one.instruction.excess else f"First instruction of {title}"


def draw_layout_search(search: LayoutSearch) -> Drawing:
    """What the search showed, and the layouts it found with their proof."""
    title = f"Layouts for {by(search.tile)} elements of {search.element_bits} bits"
    return Drawing(title, _search_parts(search))


def _search_parts(search: LayoutSearch) -> dict[str, Part]:
    listed: list[FoundLayout] = []
    more = []
    for family, description in _FAMILY_WORDS.items():
        of_family = [layout for layout in search if layout.family == family]
        listed += of_family[:_MAX_FOUND]
        if len(of_family) > _MAX_FOUND:
            more.append(f"{len(of_family) - _MAX_FOUND} of {description}")
    if search.hardware is not None and search.hardware not in search.found:
        listed.append(search.hardware)
    patterns = [f"{name} (ideal {ideal})" for name, ideal in zip(search.patterns, search.ideal, strict=True)]
    table = Table(
        ((layout.label, *layout.wavefronts, layout.excess, _how(layout)) for layout in listed),
        ("layout", *patterns, "excess", "made by"),
        "Wavefronts of each pattern",
        align="l" + "r" * (len(patterns) + 1),
        notes=[f"As good, but not listed: {', '.join(more)}."] if more else [],
    )
    return {"conclusion": search.conclusion, "layouts": table}


def _hardware_words(report: TileReport, search: LayoutSearch) -> str:
    """What the best mode of the hardware costs where none leaves every pattern without a conflict, in a sentence."""
    if search.hardware is None:
        return "No swizzle mode of the hardware fits this tile."
    if search.hardware.excess == 0:
        return ""
    made_by = _how(search.hardware)
    named = search.hardware.label if made_by == "TMA" else f"{search.hardware.label} ({made_by})"
    clauses = []
    for cost, wavefronts in zip(report.costs, search.hardware.wavefronts, strict=True):
        accesses = max(1, cost.instructions)
        there = f"{wavefronts / accesses:.4g}"
        here = f"{cost.wavefronts / accesses:.4g}"
        noun = "wavefront" if there == "1" else "wavefronts"
        compared = "as it is" if there == here else f"instead of {here}"
        clauses.append(f"{cost.name} {there} {noun} per access {compared}")
    return f"Best hardware mode: {named}, {', '.join(clauses)}."


def bank_grid(report: BankReport, title: str = "Lanes by bank", *, all_banks: bool = False) -> Grid:
    """A row for each line that a group accesses, a column for each bank (or the banks one lane takes at once).

    Half of the banks are left out if no lane accesses them, unless `all_banks` is set.
    """
    cell_bytes = report.op.cell_bytes
    lanes_by_cell = _lanes_by_cell(report)

    def cell(row: _GroupLine, byte: int) -> Cell:
        lanes = lanes_by_cell.get(_GroupByte(row.group, row.line + byte))
        if lanes is None:
            return Cell(colour="unused")
        return _lanes_cell(report, row.group, row.line + byte, lanes)

    rows: dict[_GroupLine, tuple[str, ...]] = {}
    first_lines: dict[int, _GroupLine] = {}  # of every group
    for group, address in lanes_by_cell:
        row = _GroupLine(group, address // SMEM_LINE_BYTES * SMEM_LINE_BYTES)
        rows[row] = (f"{row.line:#06x}",)
        first_lines.setdefault(group, row)
    names: tuple[str, ...] = ("line", "bank")
    if len(report.groups) > 1:  # one group needs no label
        rows = {row: (_lane_words(report.groups[row.group].lanes), *labels) for row, labels in rows.items()}
        names = ("lanes", *names)
    shown = range(0, SMEM_LINE_BYTES, cell_bytes) if all_banks else _shown_bytes(cell_bytes, lanes_by_cell)
    outer = []
    if cell_bytes == BANK_BYTES:
        chunks = range(shown.start // CHUNK_BYTES, shown.stop // CHUNK_BYTES)
        outer.append(Tier.of("chunk", chunks, span=CHUNK_BYTES // BANK_BYTES))
    return Grid.of(
        title,
        names,
        rows,
        {byte: Header.of_numbers(byte // BANK_BYTES, cell_bytes // BANK_BYTES) for byte in shown},
        cell,
        ruled=[*first_lines.values()],
        outer=outer,
        notes=_bank_notes(report, lanes_by_cell, shown),
    )


class _GroupByte(NamedTuple):
    """The first byte of a cell that lanes of a group access."""

    group: int
    address: int


class _GroupLine(NamedTuple):
    """A line of shared memory with cells that lanes of a group access."""

    group: int
    line: int


def _lanes_by_cell(report: BankReport) -> dict[_GroupByte, list[int]]:
    """The lanes that access each cell, by group and then by address."""
    cell_bytes = report.op.cell_bytes
    lanes_by_cell: dict[_GroupByte, list[int]] = {}
    for number, group in enumerate(report.groups):
        starts = {lane: (report.lane_address[lane] or 0) // cell_bytes * cell_bytes for lane in group.lanes}
        for lane in sorted(starts, key=lambda lane: (starts[lane], lane)):
            lanes_by_cell.setdefault(_GroupByte(number, starts[lane]), []).append(lane)
    return lanes_by_cell


def _lanes_cell(report: BankReport, group_number: int, address: int, lanes: list[int]) -> Cell:
    """The cell of the lanes of a group that access the bytes at an address."""
    group = report.groups[group_number]
    cell_bytes = report.op.cell_bytes
    bank = bank_of(address)
    waits = any(bank in collision.banks for collision in group.collisions)
    lane_text = _lane_words(lanes)
    noun = "lane" if len(lanes) == 1 else "lanes"
    title = f"bytes {address:#x} to {address + cell_bytes - 1:#x}, {bank_words(bank, cell_bytes)}: {noun} {lane_text}"
    if waits:
        title += ", waits for others"
    text = f"{lanes[0]}+" if _are_apart(lanes) else lane_text  # 7, 0-3, or 0+ for the first of several
    link = f"lanes{group.lanes[0]}-bank{bank}"  # those that wait for each other
    return Cell(text, lanes[0], "collision" if waits else "", title, link=link)


def _shown_bytes(cell_bytes: int, wanted: Iterable[_GroupByte]) -> range:
    """The bytes of a line at which drawn cells start.

    A grid of 32 columns is wide, so a half of the line without accesses is left out.
    """
    half = SMEM_LINE_BYTES // 2
    used = {cell.address % SMEM_LINE_BYTES // half for cell in wanted}
    if cell_bytes > BANK_BYTES or len(used) == 2:
        return range(0, SMEM_LINE_BYTES, cell_bytes)
    first = half * min(used, default=0)
    return range(first, first + half, cell_bytes)


def _bank_notes(report: BankReport, wanted: Mapping[_GroupByte, list[int]], shown: range) -> list[str]:
    notes = []
    if any(map(_are_apart, wanted.values())):
        if report.op.words_merge:
            notes.append("0+ is lane 0 with others that want the same word: read together.")
        else:
            notes.append("0+ is lane 0 with others that write the same word: one after the other.")
    half = SMEM_LINE_BYTES // 2
    if shown.stop - shown.start == half:
        unused = (half - shown.start) // BANK_BYTES
        notes.append(f"No lane wants banks {extent(unused, half // BANK_BYTES)}.")
    return notes


def _verdict(report: BankReport) -> str:
    """What happens, in sentences: the worst group, and its worst collisions."""
    groups = [group for group in report.groups if group.lanes]
    if not groups:
        return "No lane is active."
    if report.conflict_free and len(groups) == 1:
        return "No conflict: 1 group of lanes, one wavefront."
    if report.conflict_free:
        return f"No conflict: {len(groups)} groups of lanes, one wavefront each."
    worst = max(groups, key=lambda group: group.wavefronts)
    needed = f"{worst.wavefronts} wavefronts; bank {worst.busiest_bank} is busiest"
    sentences = [f"Lanes {_lane_words(worst.lanes)} need {needed}."]
    top = [collision for collision in worst.collisions if collision.degree == worst.wavefronts]
    for collision in top[:_MAX_COLLISIONS]:
        pairs = zip(collision.lanes, collision.addresses, strict=True)
        waiting = [f"{_lane_words(lanes)} ({address:#x})" for lanes, address in pairs]
        if len(waiting) > _MAX_LANES:
            waiting = [*waiting[:3], "…", waiting[-1]]
        banks = bank_words(collision.banks[0], len(collision.banks) * BANK_BYTES)
        sentences.append(f"In {banks} wait lanes {', '.join(waiting)}.")
    more = len(top) - _MAX_COLLISIONS
    if more > 0:
        sentences.append(f"So do those of {counted(more, 'more place')}.")
    return " ".join(sentences)


def _how(found: FoundLayout) -> str:
    """How to get the layout, in a few words."""
    swizzle = found.layout.swizzle
    if found.family == "plain":
        return "as it is"
    if found.family == "hardware":
        return "TMA" if swizzle.feature == "tma" else f"TMA of {', '.join(swizzle.architectures)}"
    if found.family == "xor":
        return f"`{swizzle.c_expression}`"
    return f"pitch {found.layout.as_rows().tiling.pitch_bytes} B, +{found.extra_bytes} B"


def _describe_layout(layout: Layout) -> str:
    words = [f"{by(layout.shape)} elements of {layout.element_bits} bits"]
    if layout.atom is None:
        words.append(f"strides {layout.modes or layout.bit_modes}")
    elif layout.major == "MN":
        words.append("MN-major")
    if layout.swizzle.bits:
        words.append(f"swizzle {layout.swizzle.name}")
    if layout.atom is not None and layout.atom != layout.shape:
        words.append(f"atoms of {by(layout.atom)}")
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
    return " ".join(number_span(first, last) for first, last in runs(lanes))


def _are_apart(lanes: list[int]) -> bool:
    """Whether lanes are no single run of neighbours."""
    return len(runs(lanes)) > 1


DRAWINGS = {
    BankReport: draw_bank_report,
    LayoutSearch: draw_layout_search,
    TileReport: draw_tile_report,
}
