"""The drawing of a copy: the box in the tensor, and shared memory line by line; and of a tile found in a dump.

The box in the tensor          Shared memory
        element  0    8   …            bank   0    4    8   12  …
dim 1                        byte     chunk   0    1    2    3  …
  32        0.0  0.1 …       0x400          0.0  0.1  0.2  0.3 …      a cell says row.chunk of the copy, and has
  33        1.0  1.1 …       0x480          1.1  1.0  1.3  1.2 …      its row's colour, on both sides
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilescope.errors import counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tma.identification import Identification
from tilescope.tma.place import Place
from tilescope.tma.tracing import Origin, Trace
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, chunk_bytes, memory_grid
from tilescope.view.layout_view import draw_layout
from tilescope.view.palette import CHUNK_COLOURS, Mark
from tilescope.view.parts import Beside, Entry, Legend, Table
from tilescope.view.tensor_plane import EXACT_COLUMNS, EXACT_ROWS, chunks_of_row, plane

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

    A tensor of more than `exact` columns (16 bytes) or rows is drawn to scale. `places` are described first, and marked.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 8), (128,), (64, 2), swizzle="128B")
    >>> print(draw_trace(Trace(a, (0, 4))).text(120).splitlines()[0])
    Load of a box at (0, 4) to shared address 0x0
    """
    direction = "to" if trace.is_load else "from"
    what = "a box" if trace.tensor_map.kind == "tensor_map" else "a column of pixels"
    what = "four rows" if trace.operation in ("gather4", "scatter4") else what
    title = f"{_VERB[trace.operation]} of {what} at {trace.coords} {direction} shared address {trace.smem_address:#x}"
    links = {_chunk(trace, place.address // CHUNK_BYTES * CHUNK_BYTES).link for place in places} - {""}
    tensor, shared = _focused(plane(trace, exact), links), _focused(_shared_memory(trace, lines), links)
    asked, legend = [_place(trace, place) for place in places], _legend(trace, shared, tensor)
    return Drawing(title, [*asked, Beside((tensor, shared)), legend, Table(_facts(trace))])


def _focused(grid: Grid, links: set[str]) -> Grid:
    """The grid with the cells marked that bear one of the links."""
    rows = [
        replace(
            row,
            cells=tuple(replace(cell, mark="focus") if links & {*cell.link.split()} else cell for cell in row.cells),
        )
        for row in grid.rows
    ]
    return replace(grid, rows=tuple(rows))


def _place(trace: Trace, place: Place) -> Table:
    """One address: what lies there, and what an XOR of the offset would have given."""
    address = place.address
    line, chunk, bank = address // SMEM_LINE_BYTES, address % SMEM_LINE_BYTES // CHUNK_BYTES, address // 4 % 32
    where = {"shared address": f"{address:#x}: line {line}, chunk {chunk}, bank {bank}"}
    if place.element is None or place.offset_xor_address is None:
        return Table(where | {"holds": "nothing of this copy: it leaves the byte alone"}, title=f"At {address:#x}")
    row, column = place.element
    source = {
        "element": f"byte {place.source_offset or 0:#x} of the tensor",
        "fill": f"outside the tensor: {'filled' if trace.is_load else 'dropped'}",
        "overrun": "behind the end of a row of the tensor, which the store overwrites",
        "gap": "",
    }[place.holds]
    facts = {
        "element": f"row {row}, column {column} of the box, byte {place.byte} of it",
        "in the tensor": f"coordinates {place.coords} (innermost first), {source}",
        **where,
        "XOR of the offset": _offset_xor(trace, place) if trace.tensor_map.swizzle.bits else "",
    }
    return Table(facts, title=f"Row {row}, column {column}")


def _offset_xor(trace: Trace, place: Place) -> str:
    """Where code that XORs the offset from the buffer's start would look for the element."""
    if place.offset_xor_address == place.address:
        return "the same address" + ("" if trace.base_offset else ": the buffer starts where the pattern does")
    there = "a gap" if place.element_instead is None else "row {}, column {}".format(*place.element_instead)
    aligned = f"align the buffer to {trace.tensor_map.swizzle.repeat_bytes} bytes"
    return f"{place.offset_xor_address:#x} instead, where {there} lies. The hardware XORs the address: do the same, or {aligned}"


def _shared_memory(trace: Trace, lines: int | None) -> Grid:
    swizzle, end = trace.tensor_map.swizzle, trace.smem_address + trace.footprint_bytes
    return memory_grid(
        f"Shared memory, swizzle {swizzle.name}", trace.smem_address, end, lambda address: _chunk(trace, address),
        most=lines, period=swizzle.period_lines if swizzle.bits else 0, numbered=True,
    )  # fmt: skip


def _chunk(trace: Trace, address: int) -> Cell:
    """The cell of 16 bytes of shared memory."""
    a = trace.tensor_map
    held = [trace.element_at(address + byte) for byte in (0, 7, 8, 15)]  # the ends of both halves
    if len({origin.holds for origin in held}) > 1:
        held = [trace.element_at(address + byte) for byte in range(CHUNK_BYTES)]
    kinds = {origin.holds for origin in held}
    row = next((origin.row for origin in held if origin.row is not None), None)
    where = chunk_bytes(address)
    if row is None:
        return Cell("-", "gap", title=f"{where}: the copy leaves them alone")
    physical = a.swizzle.apply(address)
    link = f"{row}.{(physical - trace.smem_address) % a.pitch_bytes // CHUNK_BYTES}"
    label = link if chunks_of_row(trace) > 1 else str(row)
    if "element" not in kinds:
        text, said = ("fill", "filled") if trace.is_load else ("drop", "dropped")
        title = f"{where}: {label} {said}, coordinates {_span(held)} lie outside the tensor"
        return Cell(text, "fill", title=title, link=link)
    signs = _SIGNS[0] * ("fill" in kinds) + _SIGNS[1] * bool((physical ^ address) & a.swizzle.flip_bytes)
    overrun = " and, behind the row's end, overwrite what follows" if "overrun" in kinds else ""
    elements = [origin for origin in held if origin.holds == "element"]
    sources = [element.source_offset for element in elements if element.source_offset is not None]
    title = f"{where}: elements {_span(elements)}, tensor bytes {min(sources):#x} to {max(sources):#x}{overrun}"
    return Cell(label + signs, row, "collision" if overrun else "", title, link=link)


def _span(held: list[Origin]) -> str:
    """The first and last coordinates of some bytes: (0, 33) to (7, 33)."""
    coords = [origin.coords for origin in held if origin.coords is not None]
    first, last = min(coords), max(coords)
    return str(first) if first == last else f"{first} to {last}"


def _legend(trace: Trace, shared: Grid, tensor: Grid) -> Legend:
    """What the cells mean, of those that are drawn."""
    cells, copied = ([cell for row in grid.rows for cell in row.cells] for grid in (shared, tensor))
    of_rows, of_tensor = ([cell for cell in drawn if isinstance(cell.colour, int)] for drawn in (cells, copied))
    value = "zero" if trace.tensor_map.oob_fill.name == "zero" else "0x7FF7 in every 16 bits"
    outside = f"filled with {value}" if trace.is_load else "dropped"
    several = chunks_of_row(trace) > 1
    says = "row.chunk" if several else "its row"
    repeats = "the eight colours repeat" if trace.rows > len(CHUNK_COLOURS) else "every row has its colour"
    filled, outside_tensor = ([cell for cell in drawn if cell.colour == "fill"] for drawn in (cells, copied))
    pixels = [cell for cell in of_tensor if cell.text.isdecimal() and several]
    meanings: list[tuple[str, Iterable[Cell], str, Mark]] = [
        (f"row {{row}}; {repeats}, and a cell says {says}", of_rows, "", ""),
        ("pixel that becomes row {row}; a cell of several names the first", pixels, "", ""),
        ("the part of the tensor that is copied", (cell for cell in of_tensor if cell.text == "box"), "", ""),
        (f"outside the tensor: {outside}", filled, "", ""),
        ("the part of the copy that lies outside the tensor", outside_tensor, "", ""),
        (
            "the tensor ends within the chunk; the rest is outside",
            (cell for cell in of_rows if "~" in cell.text),
            "~",
            "",
        ),
        ("not part of the copy: keeps its bytes", (cell for cell in cells if cell.colour == "gap"), "", ""),
        (
            "the store also overwrites what lies behind the row",
            (cell for cell in of_rows if cell.mark == "collision"),
            "",
            "collision",
        ),
        ("its 8-byte halves are exchanged", (cell for cell in of_rows if "x" in cell.text), "x", ""),
        ("what was asked for", (cell for cell in cells if cell.mark == "focus"), "", "focus"),
    ]
    entries = []
    for text, drawn, sign, mark in meanings:
        if (first := next(iter(drawn), None)) is not None:
            sample = first.text if first.text == "box" else first.text.rstrip(_SIGNS) + sign
            entries.append(Entry(text.format(row=first.colour), first.colour, mark, sample))
    return Legend(tuple(entries))


def _facts(trace: Trace) -> dict[str, str]:
    a, overrun, offset = trace.tensor_map, trace.overrun_bytes, trace.base_offset
    expected = trace.transaction_bytes
    return {
        "tensor": f"{a.data_type.name}, dims {a.dims}, strides {a.strides_bytes} bytes",
        "copy": f"{trace.rows} rows of {a.interleave.slice_bytes or a.inner_bytes} bytes, {a.pitch_bytes} bytes apart",
        "mbarrier": "" if expected is None else f"expect_tx {expected} bytes",
        "written": f"{trace.written_bytes} bytes of {'shared' if trace.is_load else 'global'} memory",
        "outside": _outside(trace),
        "overrun": f"{overrun} bytes behind the rows' ends are overwritten: a store writes whole 16 bytes"
        if overrun
        else "",
        "base offset": f"{offset}: the buffer starts on line {offset} of the swizzle's pattern" if offset else "",
        "basis": trace.basis,
    }


def _outside(trace: Trace) -> str:
    """How much of the copy is outside the tensor and so filled or dropped: whole rows, and bytes of the others."""
    whole, others = trace.filled_rows, trace.rows - trace.filled_rows
    which = [f"{whole} of {trace.rows} rows"] if whole else []
    overrun_bytes = trace.overrun_bytes // others if others else 0  # of a row; what overruns is not dropped
    if cut_bytes := trace.outside_bytes - overrun_bytes:
        rows = f"the other {others}" if whole else "every row" if others > 1 else "the row"
        which.append(f"{cut_bytes} bytes of {rows}")
    return f"{' and '.join(which)}: {'filled' if trace.is_load else 'dropped'}" if which else ""


def draw_identification(tile: Identification) -> Drawing:
    """A tile found in a dump: where it lies, in which layout, and how much of it fits; if it was not found, that alone."""
    if not tile.found:
        return Drawing("The tile is not in the dump", [tile.advice])
    fits = tile.compared_bytes - tile.wrong_bytes - tile.missing_bytes
    facts = {
        "offset": f"byte {tile.offset:#x} of the dump",
        "swizzle": f"{tile.swizzle.name}, base offset {tile.base_offset}",
        "order": tile.order_words + (" of the transposed tile" if tile.transposed else ""),
        "pitch": f"{tile.layout.as_rows().tiling.pitch_bytes} bytes from row to row",
        "fits": f"{fits} of {tile.compared_bytes} bytes, {tile.fitting_share:.1%}",
    }
    if tile.missing_bytes:
        facts["outside"] = f"{tile.missing_bytes} bytes of the tile would lie outside the dump"
    if (wrong := tile.first_wrong) is not None:
        element = f"element ({wrong.row}, {wrong.column}) byte {wrong.byte}"
        said = f"{element} should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        facts["first wrong"] = f"at {wrong.address:#x} of the dump: {said}"
    if tile.equally_good:
        facts["as good"] = f"{counted(tile.equally_good, 'more layout')} explain as much; this is the simplest"
    title = "The tile is in the dump" if tile.explained else "A part of the tile is in the dump"
    return Drawing(title, [Table(facts), *draw_layout(tile.layout).parts])
