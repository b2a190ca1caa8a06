"""The drawings of shared-memory accesses: which lanes meet in which bank, what patterns cost, what cures them.

bank          0   1   2   3  …        a row is a line of 128 bytes that some lane wants, a column a bank
line 0x000    0!  1   2   3           (or the two or four banks that one lane takes at once); a cell
line 0x080    4!                      names its lanes. Cells of one column wait for each other: !
"""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.layout import Layout
from tilescope.sentence import by, counted
from tilescope.smem.report import COUNTER_CAVEAT, BankReport, TileReport
from tilescope.smem.search import FoundLayout, LayoutSearch
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import BANK_BYTES, Cell, Grid, Header, Tier, extent, holding, number_span, runs

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
    """Which lanes meet in which bank, and what it costs.

    >>> from tilescope.smem.report import bank_report
    >>> print(draw_bank_report(bank_report("ld.b128", range(0, 512, 16))).text().splitlines()[0])
    ld.b128: 4 wavefronts, 4 without conflicts
    """
    title = f"{report.op.name}: {counted(report.wavefronts, 'wavefront')}, {report.ideal} without conflicts"
    counters = ({"Nsight Compute counter": f"`{name}`", "for each execution": n} for name, n in report.counters.items())
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


def draw_tile_report(
    report: TileReport, search: LayoutSearch | None = None, cured: TileReport | None = None
) -> Drawing:
    """A table of patterns with their cost, and a picture of the worst instruction of each that has conflicts.

    With `search`, the layouts that cure them; with `cured`, the same instructions on the best of these beside the sick.
    """
    used = sorted({cost.op.wavefront_counter for cost in report.costs})
    counters = " and by ".join(f"`{counter}`" for counter in used)
    columns = ("instructions", "wavefronts", "ideal", "excess", "verdict")
    costs = ({"pattern": cost.name} | {name: getattr(cost, name) for name in columns} for cost in report.costs)
    table = Table.of(costs, align="lrrrrl", notes=[f"Counted by {counters}"])
    layouts = {"(r, c) at": report.layout, "cured at": None if cured is None else cured.layout}
    addresses = {name: f"`{layout.c_expression}`" for name, layout in layouts.items() if layout is not None}
    parts: dict[str, Part | tuple[Part, ...] | None] = {"costs": table, "addresses": Table(addresses)}
    worst = [(number, cost, cost.worst) for number, cost in enumerate(report.costs) if cost.worst is not None]
    drawn = [entry for entry in worst if entry[2].excess] or worst[:1]
    for number, cost, instruction in drawn:
        which = "Worst instruction of " if instruction.excess else "First instruction of "
        title = f"{which if cost.instructions > 1 else ''}{cost.name}: {counted(instruction.wavefronts, 'wavefront')}"
        grids = {"worst": bank_grid(instruction, title)}
        cure = None if cured is None else cured.costs[number].worst
        if cure is not None and search is not None:
            wavefronts = counted(cure.wavefronts, "wavefront")
            grids["cured"] = bank_grid(cure, f"With {search.best.label}: {wavefronts}")
        parts[f"lanes {number}"] = Beside(grids)
        parts[f"verdict {number}"] = _verdict(instruction)
    parts["legend"] = _WAITING if report.excess else None
    noted = [*drawn[:1], *(entry for entry in worst if entry[1].op.is_copy)]
    notes = dict.fromkeys(note for *_, instruction in noted for note in instruction.notes if note != COUNTER_CAVEAT)
    parts["notes"] = tuple(notes)
    if search is not None:
        parts |= _search_parts(search)
        parts["hardware"] = _hardware_words(report, search) if report.excess else ""
    title = "Shared-memory accesses"
    return Drawing(title if report.layout is None else f"{title} to {_described(report.layout)}", parts)


def draw_layout_search(search: LayoutSearch) -> Drawing:
    """What the search showed, and the layouts it found with their proof."""
    title = f"Layouts for {by(search.tile)} elements of {search.element_bits} bits"
    return Drawing(title, _search_parts(search))


def _search_parts(search: LayoutSearch) -> dict[str, Part]:
    rows, more = [], []
    for family, said in _FAMILY_WORDS.items():
        found = [layout for layout in search if layout.family == family]
        rows += [(one.label, *one.wavefronts, one.excess, _how(one)) for one in found[:_MAX_FOUND]]
        more += [f"{len(found) - _MAX_FOUND} of {said}"] if found[_MAX_FOUND:] else []
    if search.hardware is not None and search.hardware not in search.found:
        rows.append((search.hardware.label, *search.hardware.wavefronts, search.hardware.excess, _how(search.hardware)))
    notes = [f"As good, but not listed: {', '.join(more)}."] if more else []
    patterns = [f"{name} (ideal {ideal})" for name, ideal in zip(search.patterns, search.ideal, strict=True)]
    headings, align = ("layout", *patterns, "excess", "made by"), "l" + "r" * (len(patterns) + 1)
    table = Table(rows, headings, "Wavefronts of each pattern", align, notes)
    return {"conclusion": search.conclusion, "layouts": table}


def _hardware_words(report: TileReport, search: LayoutSearch) -> str:
    """What the best mode of the hardware costs where none leaves every pattern without a conflict, in a sentence."""
    if search.hardware is None:
        return "No swizzle mode of the hardware fits this tile."
    if search.hardware.excess == 0:
        return ""
    made_by = _how(search.hardware)
    named = search.hardware.label if made_by == "TMA" else f"{search.hardware.label} ({made_by})"
    said = []
    for cost, wavefronts in zip(report.costs, search.hardware.wavefronts, strict=True):
        accesses = max(1, cost.instructions)
        there, here = f"{wavefronts / accesses:.4g}", f"{cost.wavefronts / accesses:.4g}"
        noun = "wavefront" if there == "1" else "wavefronts"
        compared = "as it is" if there == here else f"instead of {here}"
        said.append(f"{cost.name} {there} {noun} per access {compared}")
    return f"Best hardware mode: {named}, {', '.join(said)}."


def bank_grid(report: BankReport, title: str = "Lanes by bank") -> Grid:
    """A row for each line that a group wants, a column for each bank (or the banks one lane takes at once)."""
    cell_bytes = report.op.cell_bytes
    wanted: dict[tuple[int, int], list[int]] = {}  # lanes, by number of the group and first byte of the cell
    for number, group in enumerate(report.groups):
        places = [(report.lane_address[lane] or 0) // cell_bytes * cell_bytes for lane in group.lanes]
        for place, lane in sorted(zip(places, group.lanes, strict=True)):
            wanted.setdefault((number, place), []).append(lane)

    def cell(row: tuple[int, int], byte: int) -> Cell:
        group, place, bank = report.groups[row[0]], row[1] + byte, byte // BANK_BYTES
        lanes = wanted.get((row[0], place))
        if lanes is None:
            return Cell(colour="unused")
        waits, said = any(bank in collision.banks for collision in group.collisions), _lane_words(lanes)
        title = f"bytes {place:#x} to {place + cell_bytes - 1:#x}, {_bank_words(bank, cell_bytes)}: "
        title += f"{'lane' if len(lanes) == 1 else 'lanes'} {said}{', waits for others' if waits else ''}"
        text = f"{lanes[0]}+" if " " in said else said  # 7, 0-3, or 0+ for the first of several
        link = f"lanes{group.lanes[0]}-bank{bank}"  # those that wait for each other
        return Cell(text, lanes[0], "collision" if waits else "", title, link=link)

    several = len(report.groups) > 1  # one group needs no label
    lines = [(number, place // SMEM_LINE_BYTES * SMEM_LINE_BYTES) for number, place in wanted]
    rows = {
        (number, line): (_lane_words(report.groups[number].lanes), f"{line:#06x}")[not several :]
        for number, line in lines
    }
    bytes_shown, half = range(0, SMEM_LINE_BYTES, cell_bytes), SMEM_LINE_BYTES // 2
    unused = ""
    if cell_bytes == BANK_BYTES and len(used := {place % SMEM_LINE_BYTES // half for _, place in wanted}) < 2:
        first = half * min(used, default=0)  # a grid of 32 columns is wide: an unused half is left out
        bytes_shown, unused = bytes_shown[first // 4 : first // 4 + 16], extent((half - first) // BANK_BYTES, 16)
    chunks = range(bytes_shown.start // CHUNK_BYTES, bytes_shown.stop // CHUNK_BYTES)
    shared = any(" " in _lane_words(lanes) for lanes in wanted.values())
    notes = {
        "0+ is lane 0 with others that want the same word: read together.": shared and report.op.words_merge,
        "0+ is lane 0 with others that write the same word: one after the other.": shared and not report.op.words_merge,
        f"No lane wants banks {unused}.": unused,
    }
    banks = {byte: Header.of_numbers(byte // BANK_BYTES, cell_bytes // BANK_BYTES) for byte in bytes_shown}
    outer = (Tier.of("chunk", chunks, span=4),) if cell_bytes == BANK_BYTES else ()
    ruled = dict(reversed(lines)).items()  # the first line of every group
    names = ("lanes", "line", "bank")[not several :]
    return Grid.of(title, names, rows, banks, cell, ruled=ruled, outer=outer, notes=holding(notes))


def _verdict(report: BankReport) -> str:
    """What happens, in sentences: the worst group, and its worst collisions."""
    groups = [group for group in report.groups if group.lanes]
    if not groups:
        return "No lane is active."
    if report.conflict_free:
        return f"No conflict: {counted(len(groups), 'group')} of lanes, one wavefront{' each' if groups[1:] else ''}."
    worst = max(groups, key=lambda group: group.wavefronts)
    needed = f"{worst.wavefronts} wavefronts; bank {worst.busiest_bank} is busiest"
    sentences = [f"Lanes {_lane_words(worst.lanes)} need {needed}."]
    top = [collision for collision in worst.collisions if collision.degree == worst.wavefronts]
    for collision in top[:_MAX_COLLISIONS]:
        pairs = zip(collision.lanes, collision.addresses, strict=True)
        wanted = [f"{_lane_words(lanes)} ({at:#x})" for lanes, at in pairs]
        wanted[3:-1] = ["…"] if len(wanted) > _MAX_LANES else wanted[3:-1]
        banks = _bank_words(collision.banks[0], len(collision.banks) * BANK_BYTES)
        sentences.append(f"In {banks} wait lanes {', '.join(wanted)}.")
    more = len(top) - _MAX_COLLISIONS
    return " ".join([*sentences, f"So do those of {counted(more, 'more place')}."] if more > 0 else sentences)


def _how(found: FoundLayout) -> str:
    """How to get the layout, in a few words."""
    swizzle, pitch_bytes = found.layout.swizzle, found.layout.as_rows().tiling.pitch_bytes
    return {
        "plain": "as it is",
        "hardware": "TMA" if swizzle.feature == "tma" else f"TMA of {', '.join(swizzle.architectures)}",
        "xor": f"`{swizzle.c_expression}`",
        "padding": f"pitch {pitch_bytes} B, +{found.extra_bytes} B",
    }[found.family]


def _described(layout: Layout) -> str:
    words = {
        f"{by(layout.shape)} elements of {layout.element_bits} bits": True,
        f"strides {layout.modes or layout.bit_modes}": layout.atom is None,
        "MN-major": layout.atom is not None and layout.major == "MN",
        f"swizzle {layout.swizzle.name}": layout.swizzle.bits,
        f"atoms of {by(layout.atom or ())}": layout.atom not in (None, layout.shape),
        f"rows padded by {layout.padding_bytes} bytes": layout.padding_bytes,
        f"from {layout.start:#x}": layout.start,
    }
    return ", ".join(holding(words))


def _lane_words(lanes: Iterable[int]) -> str:
    """Runs of lanes: 0-7, or 0, 2, 4 and so on.

    >>> _lane_words((0, 1, 2, 5)), _lane_words((3,))
    ('0-2 5', '3')
    """
    return " ".join(number_span(first, last) for first, last in runs(lanes))


def _bank_words(bank: int, length_bytes: int) -> str:
    banks = length_bytes // BANK_BYTES
    return f"bank{'s' if banks > 1 else ''} {extent(bank, banks)}"


DRAWINGS = {
    BankReport: draw_bank_report,
    LayoutSearch: draw_layout_search,
    TileReport: draw_tile_report,
}
