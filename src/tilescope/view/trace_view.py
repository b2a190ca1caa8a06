"""The drawing of a copy: the box in the tensor, and shared memory line by line.

The box in the tensor          Shared memory
        element  0    8   …            bank   0    4    8   12  …
dim 1                        byte     chunk   0    1    2    3  …
  32        0.0  0.1 …       0x400          0.0  0.1  0.2  0.3 …      a cell says row.chunk of the copy, and has
  33        1.0  1.1 …       0x480          1.1  1.0  1.3  1.2 …      its row's colour, on both sides
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.tma.tracing import Origin, Trace
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.palette import Mark
from tilescope.view.parts import Beside, Entry, Legend, Table
from tilescope.view.tensor_plane import EXACT_COLUMNS, EXACT_ROWS, plane

MOST_LINES = 32
_BANKS_PER_CHUNK = 4
_SIGNS = "~x"  # behind the name of a chunk: the tensor ends within it; its halves are exchanged
_VERB = {"load": "Load", "store": "Store", "gather4": "Gather", "scatter4": "Scatter"}


def draw_trace(
    trace: Trace, lines: int | None = MOST_LINES, exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS)
) -> Drawing:
    """The box in the tensor beside the lines of shared memory that it covers, at most `lines` of them.

    A tensor of more than `exact` columns (16 bytes) and rows is drawn to scale.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 8), (128,), (64, 2), swizzle="128B")
    >>> print(draw_trace(Trace(a, (0, 4))).text(120).splitlines()[0])
    Load of a box at (0, 4) to shared address 0x0
    """
    direction = "to" if trace.is_load else "from"
    title = f"{_VERB[trace.operation]} of {_what(trace)} at {trace.coords} {direction} shared address {trace.smem_address:#x}"
    shared = _shared_memory(trace, lines)
    tensor = plane(trace, exact)
    legend = _legend(trace, shared, tensor)
    return Drawing(title, (Beside((tensor, shared)), legend, Table(tuple(_facts(trace)))))


def _what(trace: Trace) -> str:
    if trace.operation in ("gather4", "scatter4"):
        return "four rows"
    return "a box" if trace.tensor_map.kind == "tensor_map" else "a column of pixels"


def _shared_memory(trace: Trace, lines: int | None) -> Grid:
    first = trace.smem_address // SMEM_LINE_BYTES
    count = -(-(trace.smem_address % SMEM_LINE_BYTES + trace.footprint_bytes) // SMEM_LINE_BYTES)
    shown = count if lines is None else min(count, lines)
    swizzle = trace.tensor_map.swizzle
    rows = []
    for line in range(first, first + shown):
        start = line * SMEM_LINE_BYTES
        cells = tuple(_chunk(trace, start + place * CHUNK_BYTES) for place in range(CHUNKS_PER_LINE))
        ruled = line > first and line % swizzle.period_lines == 0 and swizzle.bits > 0
        rows.append(Row((f"{start:#06x}",), cells, ruled))
    banks = tuple(
        Header(f"{chunk * _BANKS_PER_CHUNK}-{chunk * _BANKS_PER_CHUNK + 3}", short=str(chunk * _BANKS_PER_CHUNK))
        for chunk in range(CHUNKS_PER_LINE)
    )
    notes = [f"{count - shown} more lines are not drawn."] if shown < count else []
    title = f"Shared memory, swizzle {swizzle.name}"
    return Grid(
        title, (Tier("bank", banks), Tier.of("chunk", range(CHUNKS_PER_LINE))), tuple(rows), ("byte",), tuple(notes)
    )


def _chunk(trace: Trace, address: int) -> Cell:
    """The cell of 16 bytes of shared memory."""
    held = [trace.element_at(address + byte) for byte in (0, 7, 8, 15)]  # the ends of both halves
    kinds = [each.holds for each in held]
    if len(set(kinds)) > 1:
        held = [trace.element_at(address + byte) for byte in range(CHUNK_BYTES)]
    named = next((each for each in held if each.row is not None), None)
    where = f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}, banks {_banks(address)}"
    if named is None:
        return Cell("-", "gap", title=f"{where}: the copy leaves them alone")
    chunk = _chunk_of_row(trace, address)
    link = f"{named.row}.{chunk}"
    label = link if _chunks_of_row(trace) > 1 else str(named.row)
    if "element" not in kinds:
        said = "filled" if trace.is_load else "dropped"
        text = "fill" if trace.is_load else "drop"
        title = f"{where}: {label} {said}, coordinates {_span(held)} lie outside the tensor"
        return Cell(text, "fill", title=title, link=link)
    cut = _SIGNS[0] if "fill" in kinds else ""
    swizzle = trace.tensor_map.swizzle
    flipped = (swizzle.apply(address) ^ address) & swizzle.flip_bytes
    overrun = " and, behind the row's end, overwrite what follows" if "overrun" in kinds else ""
    elements = [each for each in held if each.holds == "element"]
    sources = [each.source_offset for each in elements if each.source_offset is not None]
    title = f"{where}: elements {_span(elements)}, tensor bytes {min(sources):#x} to {max(sources):#x}{overrun}"
    return Cell(
        label + cut + (_SIGNS[1] if flipped else ""), named.row, "collision" if overrun else "", title, link=link
    )


def _chunk_of_row(trace: Trace, address: int) -> int:
    a = trace.tensor_map
    return (a.swizzle.apply(address) - trace.smem_address) % a.pitch_bytes // CHUNK_BYTES


def _chunks_of_row(trace: Trace) -> int:
    a = trace.tensor_map
    return (a.interleave.slice_bytes or a.inner_bytes) // CHUNK_BYTES


def _banks(address: int) -> str:
    first = address // 4 % 32
    return f"{first}-{first + 3}"


def _span(held: list[Origin]) -> str:
    """The first and last coordinates of some bytes: (0, 33) to (7, 33)."""
    coords = [each.coords for each in held if each.coords is not None]
    first, last = min(coords), max(coords)
    return str(first) if first == last else f"{first} to {last}"


def _legend(trace: Trace, shared: Grid, tensor: Grid) -> Legend:
    """What the cells mean, of those that are drawn."""
    cells = [cell for row in shared.rows for cell in row.cells]
    beyond = [cell for row in tensor.rows for cell in row.cells if cell.text.startswith("(")]
    of_rows = [cell for cell in cells if isinstance(cell.colour, int)]
    value = "zero" if trace.tensor_map.oob_fill.name == "zero" else "0x7FF7 in every 16 bits"
    outside = f"filled with {value}" if trace.is_load else "dropped"
    says = "row.chunk" if _chunks_of_row(trace) > 1 else "its row"
    entries = []

    def explain(drawn: list[Cell], text: str, sign: str = "", mark: Mark = "") -> None:
        if drawn:
            first = drawn[0]
            entries.append(Entry(text.format(row=first.colour), first.colour, mark, first.text.rstrip(_SIGNS) + sign))

    explain(of_rows, "row {row}; every row has its colour, and a cell says " + says)
    explain([cell for cell in cells if cell.colour == "fill"], f"outside the tensor: {outside}")
    explain(beyond, "the part of the copy that lies outside the tensor")
    cut, flipped = ([cell for cell in of_rows if sign in cell.text] for sign in _SIGNS)
    explain(cut, "the tensor ends within the chunk; the rest is outside", "~")
    explain([cell for cell in cells if cell.colour == "gap"], "not part of the copy: keeps its bytes")
    explain(
        [cell for cell in of_rows if cell.mark], "the store also overwrites what lies behind the row", "", "collision"
    )
    explain(flipped, "its 8-byte halves are exchanged", "x")
    return Legend(tuple(entries))


def _facts(trace: Trace) -> Iterator[tuple[str, str]]:
    a = trace.tensor_map
    yield "tensor", f"{a.data_type.name}, dims {a.dims}, strides {a.strides_bytes} bytes"
    yield "copy", f"{trace.rows} rows of {a.interleave.slice_bytes or a.inner_bytes} bytes, {a.pitch_bytes} bytes apart"
    if trace.transaction_bytes is not None:
        yield "mbarrier", f"expect_tx {trace.transaction_bytes} bytes"
    written = "shared" if trace.is_load else "global"
    yield "written", f"{trace.written_bytes} bytes of {written} memory"
    if outside := _outside(trace):
        yield "outside", outside
    if trace.overrun_bytes:
        yield (
            "overrun",
            f"{trace.overrun_bytes} bytes behind the rows' ends are overwritten: a store writes whole 16 bytes",
        )
    offset = a.swizzle.base_offset(trace.smem_address)
    if offset:
        yield "base offset", f"{offset}: the buffer starts on line {offset} of the swizzle's pattern"
    yield "basis", trace.basis


def _outside(trace: Trace) -> str:
    """How much of the copy is outside the tensor and so filled or dropped: whole rows, and bytes of the others."""
    whole, others = trace.filled_rows, trace.rows - trace.filled_rows
    which = [f"{whole} of {trace.rows} rows"] if whole else []
    cut_bytes = trace.outside_bytes - (trace.overrun_bytes // others if others else 0)  # what overruns is not dropped
    if cut_bytes:
        rows = f"the other {others}" if whole else "every row" if others > 1 else "the row"
        which.append(f"{cut_bytes} bytes of {rows}")
    return f"{' and '.join(which)}: {'filled' if trace.is_load else 'dropped'}" if which else ""
