"""The drawing of a swizzle: where each piece of a line lies, before and after, and the facts about the mode.

Logical               Physical
chunk  0 1 2 3 …      chunk  0 1 2 3 …      a cell says which source chunk is found there, and has
line 0 0 1 2 3 …      line 0 0 1 2 3 …      that chunk's colour: columns of one colour on the left
line 1 0 1 2 3 …      line 1 1 0 3 2 …      fan out over all banks on the right
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from tilescope.sentence import counted
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES, Swizzle
from tilescope.view.drawing import Beside, Drawing, Table
from tilescope.view.grid import BANK_BYTES, Cell, Grid, Header, Tier, extent, holding
from tilescope.view.walk import Step

_MOST = 32  # columns or rows of a drawing; wider patterns are cut and say so
_REMARKS = {
    "none": "Rows follow each other at a pitch of their own length. The tensor core's layout without swizzle is "
    "another one (core matrices): the two agree only for rows of 16 bytes.",
    "96B": "Reached only through `tensormap.replace`. Whether rows lie 96 or 128 bytes apart is not documented.",
    "128B_ATOM_32B": "On sm_120 not for loads to shared::cluster.",
    "128B_ATOM_32B_FLIP_8B": "The manual says that alternate lines are flipped, not which: odd lines are a reading "
    "of it. On sm_120 not for loads to shared::cluster. CuTe has no name for it.",
    "128B_ATOM_64B": "CuTe maps `Swizzle<2,6,S>` to this mode; the PTX table, followed here, has one bit. On sm_120 not "
    "for loads to shared::cluster.",
}
_PIECE = {16: ("Chunk", "c"), 32: ("Pair of chunks", "p = c / 2"), 64: ("Half", "h = c / 4")}


class _Frame(NamedTuple):
    """How a swizzle is cut into rows and pieces for the drawing."""

    row_bytes: int
    piece_bytes: int
    row_step: int = 1  # rows from one drawn row to the next: those between look the same
    row_count: int = 1
    between_rows: bool = False  # pieces change rows instead of columns (negative shift)
    cut: bool = False  # the pattern is larger than the drawing

    @classmethod
    def of(cls, swizzle: Swizzle) -> Self:
        if swizzle.bits == 0:
            return cls(SMEM_LINE_BYTES, CHUNK_BYTES)
        row, piece = SMEM_LINE_BYTES, swizzle.piece_bytes
        if swizzle.shift < 0 or swizzle.block_bytes > SMEM_LINE_BYTES or piece < BANK_BYTES:
            piece = swizzle.atom_bytes  # pieces leave their line or are smaller than a bank: rows of their own size
            row = min(_MOST, 1 << swizzle.bits) * piece
        upper_bit = swizzle.base + abs(swizzle.shift)  # of the two fields of the address, the one that numbers rows
        step = max(1, (1 << upper_bit) // row)
        rows = max(1, (1 << upper_bit + swizzle.bits) // (row * step))
        return cls(row, piece, step, min(rows, _MOST), swizzle.shift < 0, max(rows, 1 << swizzle.bits) > _MOST)

    @property
    def is_line(self) -> bool:
        return self.row_bytes == SMEM_LINE_BYTES


def draw_swizzle(swizzle: Swizzle, address: int = 0) -> Drawing:
    """A mode's pattern from shared address `address` on, with its rule, limits, codes and sources.

    >>> print(draw_swizzle(Swizzle.named("32B")).text(80).splitlines()[2])
    Chunk c of line l (128 bytes) lies at place c XOR (l mod 2).
    """
    swizzle.apply(address)  # refuses what is no address
    grids = {"logical": pattern_grid(swizzle, address), "physical": pattern_grid(swizzle, address, physical=True)}
    if swizzle.span_bytes and SMEM_LINE_BYTES % swizzle.span_bytes == 0 and swizzle.span_bytes < SMEM_LINE_BYTES:
        start = address // SMEM_LINE_BYTES * SMEM_LINE_BYTES
        grids["box rows"] = _box_rows(swizzle, swizzle.span_bytes, start)
    titles = {
        f"Swizzle {swizzle.name}": True,
        f" (the {swizzle.hardware_mode} mode)": swizzle.hardware_mode not in (None, swizzle),
        f" at shared address {address:#x}, base offset {swizzle.base_offset(address)}": address,
    }
    return Drawing(
        "".join(holding(titles)),
        {
            "rule": rule_sentence(swizzle),
            "grids": Beside(grids),
            "facts": Table(facts(swizzle, address)),
        },
    )


def walk_swizzle(swizzle: Swizzle, *, address: int = 0) -> Iterator[Step]:
    """Every piece of the pattern, in the order in which a program counts.

    >>> next(walk_swizzle(Swizzle.named("32B"))).sentence
    'logical bytes 0x0 to 0xf: lie at 0x0 to 0xf'
    """
    for row in pattern_grid(swizzle, address).rows:
        for cell in row.cells:
            yield Step(cell.link, cell.title)


DRAWINGS = {Swizzle: draw_swizzle}
WALKS = {Swizzle: walk_swizzle}


def pattern_grid(swizzle: Swizzle, address: int = 0, *, physical: bool = False) -> Grid:
    """The pattern as a program counts it, or as it lies in shared memory, whose cells say what they hold.

    >>> pattern_grid(Swizzle.named("32B")).rows[1].cells[2].title
    'logical bytes 0xa0 to 0xaf: lie at 0xb0 to 0xbf'
    """
    frame = _Frame.of(swizzle)
    unit, row, piece = "line" if frame.is_line else "row", frame.row_bytes, frame.piece_bytes

    def cell(start: int, byte: int) -> Cell:
        place = start + byte
        other = swizzle.apply(place)
        source = other if physical else place
        number, column = source // row, source % row // piece
        text, colour = str(column), column
        if frame.between_rows:
            text, colour = str(number), number // frame.row_step
        elif swizzle.flip_bytes:
            text, colour = f"{column // 2}{'LH'[column % 2]}", column // 2
        here, there = (f"{at:#x} to {at + piece - 1:#x}" for at in (place, other))
        banks = extent(place // BANK_BYTES % 32, piece // BANK_BYTES)
        where = f", bank{'s' if '-' in banks else ''} {banks}" if frame.is_line else ""
        title = (
            f"bytes {here}{where}: hold logical bytes {there}" if physical else f"logical bytes {here}: lie at {there}"
        )
        return Cell(text, colour, title=title, link=f"{source:x}")

    notes = {
        "L and H are the lower and upper 8 bytes of a chunk; odd lines exchange them.": swizzle.flip_bytes,
        f"A cell names the {unit} that its bytes come from; the column stays.": frame.between_rows,
        f"One row in {frame.row_step} is drawn: those between look the same.": frame.row_step > 1 and not frame.cut,
        f"The pattern is larger than this drawing, which shows {_MOST} columns and rows of it at most.": frame.cut,
    }
    places, outer = range(0, row, piece), []
    columns: dict[int, object] = {byte: byte // piece for byte in places}
    banks: dict[int, object] = {byte: Header.of_numbers(byte // BANK_BYTES, piece // BANK_BYTES) for byte in places}
    name = "chunk" if piece == CHUNK_BYTES else f"{piece} B" if piece < 1024 else f"{piece // 1024} KiB"
    if frame.is_line and piece < CHUNK_BYTES:
        name, columns, outer = "bank", banks, [Tier.of("chunk", range(CHUNKS_PER_LINE), span=CHUNK_BYTES // piece)]
    elif frame.is_line:
        outer = [Tier.of("bank", banks.values())]
    first, step = address // row * row, frame.row_step * row
    starts = range(first, first + frame.row_count * step, step)
    rows = {start: (str(start // row), f"{start:#06x}")[: 1 + physical] for start in starts}
    return Grid.of(
        "Physical: as it lies in shared memory" if physical else "Logical: as a program counts",
        (unit, "byte", name) if physical else (unit, name),
        rows,
        columns,
        cell,
        rule_every=0 if frame.between_rows else max(row, swizzle.repeat_bytes),
        outer=outer,
        notes=holding(notes) if physical else (),
    ).marked({f"{address // piece * piece:x}"} if address % row else ())


def _box_rows(swizzle: Swizzle, span_bytes: int, start: int) -> Grid:
    """The same pattern by rows of the box, several of which share a line."""
    rows_per_line, places = SMEM_LINE_BYTES // span_bytes, range(span_bytes // CHUNK_BYTES)
    rows = range(swizzle.period_lines * rows_per_line)
    sources = [[swizzle.chunk_in_row(row, place, start) for place in places] for row in rows]

    def cell(row: int, place: int) -> Cell:
        source, first = sources[row][place], start + row * span_bytes
        byte = first + place * CHUNK_BYTES
        title = f"bytes {byte:#x} to {byte + CHUNK_BYTES - 1:#x}: hold chunk {source} of box row {row}"
        return Cell(str(source), source, title=title, link=f"{first + source * CHUNK_BYTES:x}")

    period, phase = swizzle.period_lines, swizzle.base_offset(start)
    right = f"`c ^ ((r / {rows_per_line}{f' + {phase}' if phase else ''}) % {period})`"
    mistakes = [[place ^ row % period for place in places] for row in rows]  # taking rows for lines
    wrong = next(row for row in rows if sources[row] != mistakes[row])
    held, mistaken = (" ".join(map(str, chunks[wrong])) for chunks in (sources, mistakes))
    rule = f"{rows_per_line} rows share a line: chunk c of row r lies at {right}, not at `c ^ (r % {period})`."
    labels = {row: (str(row), str((start + row * span_bytes) // SMEM_LINE_BYTES)) for row in rows}
    title, outer = f"The same by box rows of {span_bytes} bytes", (Tier.of("byte", range(0, span_bytes, CHUNK_BYTES)),)
    names, notes = ("row", "line", "chunk"), [f"{rule} Row {wrong} holds `{held}`, not `{mistaken}`."]
    return Grid.of(title, names, labels, places, cell, rule_every=rows_per_line, outer=outer, notes=notes)


def rule_sentence(swizzle: Swizzle) -> str:
    """Where things go, in one or two sentences.

    >>> rule_sentence(Swizzle.named("128B_ATOM_64B"))
    'Half h = c / 4 of line l (128 bytes) lies at place h XOR (l mod 2). Chunks keep their place inside it.'
    """
    if swizzle.bits == 0:
        return "Nothing moves: every byte lies at its own address."
    if swizzle.feature is None or swizzle.atom_bytes not in _PIECE:
        bit, verb = ("bit", "is") if swizzle.bits == 1 else ("bits", "are")
        return f"Address {bit} {{}} {verb} XORed with {bit} {{}}.".format(*_changed_and_causing(swizzle))
    piece, name = _PIECE[swizzle.atom_bytes]
    return (
        f"{piece} {name} of line l (128 bytes) lies at place {name[0]} XOR (l mod {1 << swizzle.bits})."
        + " Chunks keep their place inside it." * (swizzle.atom_bytes > 16)
        + " Odd lines also exchange the 8-byte halves of every chunk." * bool(swizzle.flip_bytes)
    )


def facts(swizzle: Swizzle, address: int = 0) -> dict[str, str]:
    """Everything known about the mode, and about a buffer at shared address `address`, by name.

    >>> facts(Swizzle.named("64B"))["alignment"]
    'shared address a multiple of 128; of 512 for base offset 0'
    """
    target, source = _changed_and_causing(swizzle)
    cute = f"CuTe `Swizzle<{swizzle.bits},{swizzle.base},{swizzle.shift}>` on byte addresses"
    known = {"C": f"`{swizzle.c_expression}`", "repeats": "no pattern: every line looks the same"}
    if swizzle.bits:
        known = {
            "C": f"`{swizzle.c_expression}` for the logical byte address a",
            "address bits": f"{target} XORed with {source}" + "; bit 3 is XORed with bit 7" * bool(swizzle.flip_bytes),
            "repeats": f"every {swizzle.repeat_bytes} bytes ({counted(swizzle.period_lines, 'line')}), counted from shared address 0",
        }
    known["base offset"] = _base_offset(swizzle, address)
    if swizzle.feature is not None:
        known |= _mode_facts(swizzle, cute)
    else:
        known |= {
            "moves whole": counted(swizzle.atom_bytes, "byte"),
            "names": cute,
            "used by" if swizzle.hardware_mode is None else "equals": used_by(swizzle),
            "sources": "CuTe, swizzle.hpp",
        }
    return {name: said for name, said in known.items() if said}


def _mode_facts(swizzle: Swizzle, cute: str) -> dict[str, str]:
    """What is known of a mode of the hardware alone."""
    measured, span, driver = swizzle.basis == "measured", swizzle.span_bytes, swizzle.driver_code is not None
    aligned = {
        "shared address a multiple of 128": True,
        f"; of {swizzle.repeat_bytes} for base offset 0": swizzle.bits,
        " (the manual says 1024 for every 128B mode)": "_ATOM_" in swizzle.name,
    }
    width = "any multiple of 16 bytes, at most 256 elements"
    if span is not None:
        width = f"a multiple of 16, at most {span} bytes ({span} x 8, {span // 2} x 16 or {span // 4} x 32 bit)"
        width += "; narrower rows leave gaps" * (swizzle.name != "96B")
    names = {
        f"driver `CU_TENSOR_MAP_SWIZZLE_{swizzle.name.upper()}`": driver,
        cute: not swizzle.flip_bytes and swizzle.name != "96B",
        "PTX `.swizzle_mode` 96B": swizzle.name == "96B",
    }
    codes = {
        "driver": swizzle.driver_code, "PTX mode": swizzle.ptx_mode, "PTX atomicity": swizzle.ptx_atomicity,
        "wgmma": swizzle.wgmma_code, "tcgen05": swizzle.tcgen05_code,
    }  # fmt: skip
    sources = {
        'PTX ISA, "Swizzling Modes"': True,
        'PTX ISA, "tensormap.replace"': not driver,
        "cuda.h, CUtensorMapSwizzle": driver,
        'CUDA C++ Programming Guide, "The Swizzle Modes"': measured,
        'PTX ISA, wgmma "Matrix Descriptor Format"': swizzle.wgmma_code is not None,
        'PTX ISA, tcgen05 "Shared memory descriptor"': swizzle.tcgen05_code is not None,
    }
    return {
        "alignment": "".join(holding(aligned)),
        "inner width": width,
        "architectures": ", ".join(swizzle.architectures),
        "names": ", ".join(holding(names)),
        "codes": ", ".join(f"{name} {'-' if code is None else code}" for name, code in codes.items()),
        "basis": "measured on an H200 (sm_90)" if measured else "documented; not measured on a card",
        "note": _REMARKS.get(swizzle.name, ""),
        "sources": "; ".join(holding(sources)),
    }


def used_by(swizzle: Swizzle) -> str:
    """Who takes an XOR swizzle: the hardware too, if it equals one of its modes and rows are one span wide.

    >>> used_by(Swizzle.xor(5, 2, 5))
    'software alone: neither TMA nor the tensor core has this mode'
    """
    mode = swizzle.hardware_mode
    if mode is None:
        return "software alone: neither TMA nor the tensor core has this mode"
    readers = holding({"TMA": 1, "`wgmma`": mode.wgmma_code, "`tcgen05`": mode.tcgen05_code})
    listed = " and ".join(holding({", ".join(readers[:-1]): readers[1:], readers[-1]: 1}))
    taken = f"{listed} {'take' if readers[1:] else 'takes'} it"
    if mode.span_bytes:
        taken += f" where rows are {mode.span_bytes} bytes wide; threads may store rows of any width"
    return f"the same map as the {mode.name} mode: {taken}"


def _changed_and_causing(swizzle: Swizzle) -> list[str]:
    """The address bits that change, and those that change them, as the documents write them: 6:4."""
    lows = (swizzle.base + max(0, -swizzle.shift), swizzle.base + max(0, swizzle.shift))
    return [str(low) if swizzle.bits == 1 else f"{low + swizzle.bits - 1}:{low}" for low in lows]


def _base_offset(swizzle: Swizzle, address: int) -> str:
    """Where in the pattern a buffer starts; empty where it starts at address 0."""
    offset, is_within = swizzle.base_offset(address), address % SMEM_LINE_BYTES > 0  # a line
    is_tma = swizzle.feature is not None
    aligned = address // swizzle.repeat_bytes * swizzle.repeat_bytes
    said = {
        f"{offset} = ({address:#x} / 128) mod {swizzle.period_lines}": address,
        f": the pattern starts on line {offset}; {aligned:#x} and {aligned + swizzle.repeat_bytes:#x} have 0": offset,
        ". The marked cell holds the address": is_within and not is_tma,
        f". TMA refuses {address:#x}: it is no multiple of 128; the marked cell holds it": is_within and is_tma,
    }
    return "".join(holding(said))
