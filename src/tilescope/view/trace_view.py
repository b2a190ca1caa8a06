"""The drawing of a copy: the box in the tensor, and shared memory line by line.

The box in the tensor          Shared memory
        element  0    8   …            bank   0    4    8   12  …
dim 1                        byte     chunk   0    1    2    3  …
  32        0.0  0.1 …       0x400          0.0  0.1  0.2  0.3 …      a cell says row.chunk of the copy, and has
  33        1.0  1.1 …       0x480          1.1  1.0  1.3  1.2 …      its row's colour, on both sides
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tma.place import Place
from tilescope.tma.tracing import Origin, Trace
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import chunk_bytes, memory_grid
from tilescope.view.palette import CHUNK_COLOURS, Mark
from tilescope.view.parts import Beside, Entry, Legend, Table
from tilescope.view.tensor_plane import EXACT_COLUMNS, EXACT_ROWS, plane

MOST_LINES = 32
_SIGNS = "~x"  # behind the name of a chunk: the tensor ends within it; its halves are exchanged
_VERB = {"load": "Load", "store": "Store", "gather4": "Gather", "scatter4": "Scatter"}


def draw_trace(
    trace: Trace,
    lines: int | None = MOST_LINES,
    exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS),
    places: tuple[Place, ...] = (),
) -> Drawing:
    """The box in the tensor beside the lines of shared memory that it covers, at most `lines` of them.

    A tensor of more than `exact` columns (16 bytes) or rows is drawn to scale. `places` are described first.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 8), (128,), (64, 2), swizzle="128B")
    >>> print(draw_trace(Trace(a, (0, 4))).text(120).splitlines()[0])
    Load of a box at (0, 4) to shared address 0x0
    """
    direction = "to" if trace.is_load else "from"
    what = "a box" if trace.tensor_map.kind == "tensor_map" else "a column of pixels"
    what = "four rows" if trace.operation in ("gather4", "scatter4") else what
    title = f"{_VERB[trace.operation]} of {what} at {trace.coords} {direction} shared address {trace.smem_address:#x}"
    shared, tensor = _shared_memory(trace, lines), plane(trace, exact)
    asked = tuple(_place(trace, place) for place in places)
    return Drawing(
        title, (*asked, Beside((tensor, shared)), _legend(trace, shared, tensor), Table(tuple(_facts(trace))))
    )


def _place(trace: Trace, place: Place) -> Table:
    """One address: what lies there, and what an XOR of the offset would have given."""
    address = place.address
    line, chunk, bank = address // SMEM_LINE_BYTES, address % SMEM_LINE_BYTES // CHUNK_BYTES, address // 4 % 32
    where = ("shared address", f"{address:#x}: line {line}, chunk {chunk}, bank {bank}")
    if place.element is None or place.offset_xor_address is None:
        return Table((where, ("holds", "nothing of this copy: it leaves the byte alone")), title=f"At {address:#x}")
    row, column = place.element
    source = {
        "element": f"byte {place.source_offset or 0:#x} of the tensor",
        "fill": f"outside the tensor: {'filled' if trace.is_load else 'dropped'}",
        "overrun": "behind the end of a row of the tensor, which the store overwrites",
        "gap": "",
    }[place.holds]
    facts = [
        ("element", f"row {row}, column {column} of the box, byte {place.byte} of it"),
        ("in the tensor", f"coordinates {place.coords} (innermost first), {source}"),
        where,
    ]
    if trace.tensor_map.swizzle.bits:
        facts.append(("XOR of the offset", _offset_xor(trace, place)))
    return Table(tuple(facts), title=f"Row {row}, column {column}")


def _offset_xor(trace: Trace, place: Place) -> str:
    """Where code that XORs the offset from the buffer's start would look for the element."""
    if place.offset_xor_address == place.address:
        return "the same address" + ("" if trace.base_offset else ": the buffer starts where the pattern does")
    there = "a gap" if place.element_instead is None else "row {}, column {}".format(*place.element_instead)
    return (
        f"{place.offset_xor_address:#x} instead, where {there} lies. The hardware XORs the address: do the same, or align the "
        f"buffer to {trace.tensor_map.swizzle.repeat_bytes} bytes"
    )


def _shared_memory(trace: Trace, lines: int | None) -> Grid:
    swizzle = trace.tensor_map.swizzle
    return memory_grid(
        f"Shared memory, swizzle {swizzle.name}", trace.smem_address, trace.smem_address + trace.footprint_bytes,
        partial(_chunk, trace), most=lines, period=swizzle.period_lines if swizzle.bits else 0, numbered=True,
    )  # fmt: skip


def _chunk(trace: Trace, address: int) -> Cell:
    """The cell of 16 bytes of shared memory."""
    a = trace.tensor_map
    held = [trace.element_at(address + byte) for byte in (0, 7, 8, 15)]  # the ends of both halves
    if len({each.holds for each in held}) > 1:
        held = [trace.element_at(address + byte) for byte in range(CHUNK_BYTES)]
    kinds = {each.holds for each in held}
    row = next((each.row for each in held if each.row is not None), None)
    where = chunk_bytes(address)
    if row is None:
        return Cell("-", "gap", title=f"{where}: the copy leaves them alone")
    physical = a.swizzle.apply(address)
    link = f"{row}.{(physical - trace.smem_address) % a.pitch_bytes // CHUNK_BYTES}"
    label = link if _chunks_of_row(trace) > 1 else str(row)
    if "element" not in kinds:
        text, said = ("fill", "filled") if trace.is_load else ("drop", "dropped")
        title = f"{where}: {label} {said}, coordinates {_span(held)} lie outside the tensor"
        return Cell(text, "fill", title=title, link=link)
    signs = _SIGNS[0] * ("fill" in kinds) + _SIGNS[1] * bool((physical ^ address) & a.swizzle.flip_bytes)
    overrun = " and, behind the row's end, overwrite what follows" if "overrun" in kinds else ""
    elements = [each for each in held if each.holds == "element"]
    sources = [element.source_offset for element in elements if element.source_offset is not None]
    title = f"{where}: elements {_span(elements)}, tensor bytes {min(sources):#x} to {max(sources):#x}{overrun}"
    return Cell(label + signs, row, "collision" if overrun else "", title, link=link)


def _chunks_of_row(trace: Trace) -> int:
    a = trace.tensor_map
    return (a.interleave.slice_bytes or a.inner_bytes) // CHUNK_BYTES


def _span(held: list[Origin]) -> str:
    """The first and last coordinates of some bytes: (0, 33) to (7, 33)."""
    coords = [each.coords for each in held if each.coords is not None]
    first, last = min(coords), max(coords)
    return str(first) if first == last else f"{first} to {last}"


def _legend(trace: Trace, shared: Grid, tensor: Grid) -> Legend:
    """What the cells mean, of those that are drawn."""
    cells, copied = ([cell for row in grid.rows for cell in row.cells] for grid in (shared, tensor))
    of_rows = [cell for cell in cells if isinstance(cell.colour, int)]
    of_tensor = [cell for cell in copied if isinstance(cell.colour, int)]
    value = "zero" if trace.tensor_map.oob_fill.name == "zero" else "0x7FF7 in every 16 bits"
    several = _chunks_of_row(trace) > 1
    says = "row.chunk" if several else "its row"
    repeats = "the eight colours repeat" if trace.rows > len(CHUNK_COLOURS) else "every row has its colour"
    meanings: tuple[tuple[list[Cell], str, str, Mark], ...] = (
        (of_rows, f"row {{row}}; {repeats}, and a cell says {says}", "", ""),
        (
            [cell for cell in of_tensor if cell.text.isdecimal() and several],
            "pixel that becomes row {row}; a cell of several names the first", "", "",
        ),
        ([cell for cell in of_tensor if cell.text == "box"], "the part of the tensor that is copied", "", ""),
        (
            [cell for cell in cells if cell.colour == "fill"],
            f"outside the tensor: {f'filled with {value}' if trace.is_load else 'dropped'}", "", "",
        ),
        ([cell for cell in copied if cell.colour == "fill"], "the part of the copy that lies outside the tensor", "", ""),
        ([cell for cell in of_rows if "~" in cell.text], "the tensor ends within the chunk; the rest is outside", "~", ""),
        ([cell for cell in cells if cell.colour == "gap"], "not part of the copy: keeps its bytes", "", ""),
        ([cell for cell in of_rows if cell.mark], "the store also overwrites what lies behind the row", "", "collision"),
        ([cell for cell in of_rows if "x" in cell.text], "its 8-byte halves are exchanged", "x", ""),
    )  # fmt: skip
    return Legend(tuple(
        Entry(text.format(row=drawn[0].colour), drawn[0].colour, mark, _without_signs(drawn[0].text) + sign)
        for drawn, text, sign, mark in meanings if drawn
    ))  # fmt: skip


def _without_signs(text: str) -> str:
    return text if text == "box" else text.rstrip(_SIGNS)


def _facts(trace: Trace) -> Iterator[tuple[str, str]]:
    a = trace.tensor_map
    yield "tensor", f"{a.data_type.name}, dims {a.dims}, strides {a.strides_bytes} bytes"
    yield "copy", f"{trace.rows} rows of {a.interleave.slice_bytes or a.inner_bytes} bytes, {a.pitch_bytes} bytes apart"
    if trace.transaction_bytes is not None:
        yield "mbarrier", f"expect_tx {trace.transaction_bytes} bytes"
    yield "written", f"{trace.written_bytes} bytes of {'shared' if trace.is_load else 'global'} memory"
    if outside := _outside(trace):
        yield "outside", outside
    if overrun := trace.overrun_bytes:
        yield "overrun", f"{overrun} bytes behind the rows' ends are overwritten: a store writes whole 16 bytes"
    if offset := trace.base_offset:
        yield "base offset", f"{offset}: the buffer starts on line {offset} of the swizzle's pattern"
    yield "basis", trace.basis


def _outside(trace: Trace) -> str:
    """How much of the copy is outside the tensor and so filled or dropped: whole rows, and bytes of the others."""
    whole, others = trace.filled_rows, trace.rows - trace.filled_rows
    which = [f"{whole} of {trace.rows} rows"] if whole else []
    if cut_bytes := trace.outside_bytes - (
        trace.overrun_bytes // others if others else 0
    ):  # what overruns is not dropped
        rows = f"the other {others}" if whole else "every row" if others > 1 else "the row"
        which.append(f"{cut_bytes} bytes of {rows}")
    return f"{' and '.join(which)}: {'filled' if trace.is_load else 'dropped'}" if which else ""
