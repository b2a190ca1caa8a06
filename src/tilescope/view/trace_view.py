"""The drawing of a copy: the box in the tensor, and shared memory line by line; and of a tile found in a dump.

The box in the tensor          Shared memory
        element  0    8   …            bank   0    4    8   12  …
dim 1                        byte     chunk   0    1    2    3  …
  32        0.0  0.1 …       0x400          0.0  0.1  0.2  0.3 …      a cell says row.chunk of the copy, and has
  33        1.0  1.1 …       0x480          1.1  1.0  1.3  1.2 …      its row's colour, on both sides

`tensor_plane` draws the left side, also of tensors that are too large for a cell for every 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from tilescope.sentence import counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tma import Identification, Origin, Trace
from tilescope.tma.place import Place
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.layout_view import draw_layout
from tilescope.view.memory_grid import bank_of, chunk_bytes, lines_of_bytes, memory_grid
from tilescope.view.palette import CHUNK_COLOURS, Mark
from tilescope.view.tensor_plane import EXACT_COLUMNS, EXACT_ROWS, chunk_links, chunks_of_row, plane, takes_pixels
from tilescope.view.walk_step import Step

MAX_LINES = 32
_PLACE_ROWS = 8  # of a plane, around the requested place
_MAX_STEPS = 512  # of a walk
_CUT_SIGN = "~"  # behind the name of a chunk: the tensor ends within it
_SWAPPED_SIGN = "x"  # its halves are exchanged
_VERB = {"load": "Load", "store": "Store", "gather4": "Gather", "scatter4": "Scatter"}


def draw_trace(
    trace: Trace,
    *,
    lines: int | None = MAX_LINES,
    exact: tuple[int, int] = (EXACT_COLUMNS, EXACT_ROWS),
    places: tuple[Place, ...] = (),
) -> Drawing:
    """The box in the tensor beside the lines of shared memory that it covers, at most `lines` of them.

    A tensor of more than `exact` columns (16 bytes) or rows is drawn to scale; `places` are described first, and
    marked: the drawn lines are then those around them.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 8), (128,), (64, 2), swizzle="128B")
    >>> print(draw_trace(Trace(a, (0, 4))).text(120).splitlines()[0])
    Load of a box at (0, 4) to shared address 0x0
    """
    links = {_chunk(trace, place.address // CHUNK_BYTES * CHUNK_BYTES).link for place in places} - {""}
    tensor = plane(trace, exact).marked(links)
    focus_lines = {place.address // SMEM_LINE_BYTES * SMEM_LINE_BYTES for place in places}
    shared = _memory(trace, lines, focus_lines).marked(links)
    if places:
        tensor = tensor.around_marks(_PLACE_ROWS)  # without rows where the tensor is drawn to scale
    return Drawing(
        _title(trace),
        {
            "places": tuple(_place(trace, place) for place in places),
            "grids": Beside({"plane": tensor if tensor.rows else None, "memory": shared}),
            "legend": _legend(trace, tensor, shared),
            "facts": _facts(trace),
        },
    )


def _title(trace: Trace) -> str:
    if trace.operation in ("gather4", "scatter4"):
        what = "four rows"
    elif trace.tensor_map.kind == "tensor_map":
        what = "a box"
    else:
        what = "a column of pixels"
    direction = "to" if trace.is_load else "from"
    where = f"{direction} shared address {trace.smem_address:#x}"
    return f"{_VERB[trace.operation]} of {what} at {trace.coords} {where}"


def _memory(trace: Trace, most: int | None, asked: Collection[int]) -> Grid:
    """The lines of shared memory that the copy covers, including the requested ones."""
    swizzle = trace.tensor_map.swizzle
    start = trace.smem_address
    return memory_grid(
        f"Shared memory, swizzle {swizzle.name}",
        lines_of_bytes(start, start + trace.footprint_bytes),
        lambda address: _chunk(trace, address),
        most=most,
        asked=asked,
        period=swizzle.period_lines if swizzle.bits else 0,
        numbered=True,
    )


def walk_trace(trace: Trace, **_: object) -> Iterator[Step]:
    """The rows of the copy, in the order of shared memory."""
    for row, coords in enumerate(trace.row_coords[:_MAX_STEPS].tolist()):
        yield Step(chunk_links(trace, row), f"row {row} of the copy: coordinates {tuple(coords)}")


def _place(trace: Trace, place: Place) -> Table:
    """One address: its contents, and those that an XOR of the offset would have given."""
    address = place.address
    line = address // SMEM_LINE_BYTES
    chunk = address % SMEM_LINE_BYTES // CHUNK_BYTES
    where = f"{address:#x}: line {line}, chunk {chunk}, bank {bank_of(address)}"
    if place.element is None or place.offset_xor_address is None:
        facts = {"shared address": where, "holds": "nothing of this copy: it leaves the byte alone"}
        return Table(facts, title=f"At {address:#x}")
    row, column = place.element
    part = f"from bit {place.first_bit} of its byte on" if place.first_bit else f"byte {place.byte} of it"
    facts = {
        "element": f"row {row}, column {column} of the box, {part}",
        "in the tensor": f"coordinates {place.coords} (innermost first), {_source(trace, place)}",
        "shared address": where,
    }
    if trace.tensor_map.swizzle.bits:
        facts["XOR of the offset"] = _offset_xor(trace, place, place.offset_xor_address)
    return Table(facts, title=f"Row {row}, column {column}")


def _source(trace: Trace, place: Place) -> str:
    """Where in the tensor a place comes from."""
    if place.holds == "element":
        return f"byte {place.source_offset or 0:#x} of the tensor"
    if place.holds == "fill":
        return f"outside the tensor: {_filled_or_dropped(trace)}"
    if place.holds == "overrun":
        return "behind the end of a row of the tensor, which the store overwrites"
    return ""


def _offset_xor(trace: Trace, place: Place, address: int) -> str:
    """Where a program would look that swizzles the offset into the buffer in place of the address."""
    if address == place.address and trace.base_offset:
        return "the same address"
    if address == place.address:
        return "the same address: the buffer starts where the pattern does"
    there = "a gap"
    if place.element_instead is not None:
        row, column = place.element_instead
        there = f"row {row}, column {column}"
    aligned = f"align the buffer to {trace.tensor_map.swizzle.repeat_bytes} bytes"
    return f"{address:#x} instead, where {there} lies. The hardware XORs the address: do the same, or {aligned}"


def _filled_or_dropped(trace: Trace) -> str:
    """What becomes of elements outside the tensor."""
    return "filled" if trace.is_load else "dropped"


def _chunk(trace: Trace, address: int) -> Cell:
    """The cell of 16 bytes of shared memory."""
    a = trace.tensor_map
    origins = [trace.element_at(address + byte) for byte in (0, 7, 8, 15)]  # the ends of both halves
    if len({origin.holds for origin in origins}) > 1:
        origins = [trace.element_at(address + byte) for byte in range(CHUNK_BYTES)]
    kinds = {origin.holds for origin in origins}
    row = next((origin.row for origin in origins if origin.row is not None), None)
    where = chunk_bytes(address)
    if row is None:
        return Cell("-", "gap", title=f"{where}: the copy leaves them alone")
    physical = a.swizzle.apply(address)
    link = f"{row}.{(physical - trace.smem_address) % a.pitch_bytes // CHUNK_BYTES}"
    label = link if chunks_of_row(trace) > 1 else str(row)
    if "element" not in kinds:
        fate = _filled_or_dropped(trace)
        title = f"{where}: {label} {fate}, coordinates {_span(origins)} are outside the tensor"
        return Cell("fill" if trace.is_load else "drop", "fill", title=title, link=link)
    text = label
    if "fill" in kinds:
        text += _CUT_SIGN
    if (physical ^ address) & a.swizzle.flip_bytes:
        text += _SWAPPED_SIGN
    elements = [origin for origin in origins if origin.holds == "element"]
    sources = [element.source_offset for element in elements if element.source_offset is not None]
    title = f"{where}: elements {_span(elements)}, tensor bytes {min(sources):#x} to {max(sources):#x}"
    if "overrun" in kinds:
        title += " and, behind the row's end, overwrite what follows"
        return Cell(text, row, "collision", title, link=link)
    return Cell(text, row, title=title, link=link)


def _span(held: list[Origin]) -> str:
    """The first and last coordinates of some bytes: (0, 33) to (7, 33)."""
    coords = [origin.coords for origin in held if origin.coords is not None]
    first = min(coords)
    last = max(coords)
    return str(first) if first == last else f"{first} to {last}"


def _legend(trace: Trace, tensor: Grid, shared: Grid) -> Legend:
    """What the cells mean, of those that are drawn."""
    meanings = [*_row_meanings(trace, tensor, shared), *_outside_meanings(trace, tensor, shared)]
    return Legend(tuple(entry for entry in meanings if entry is not None))


def _row_meanings(trace: Trace, tensor: Grid, shared: Grid) -> Iterator[Entry | None]:
    """What a cell in the colour of its row is."""
    several = chunks_of_row(trace) > 1
    repeats = "the eight colours repeat" if trace.rows > len(CHUNK_COLOURS) else "every row has its colour"
    says = "row.chunk" if several else "its row"
    of_row = _first(shared, lambda cell: isinstance(cell.colour, int))
    if of_row is not None:
        yield _entry(f"row {of_row.colour}; {repeats}, and a cell says {says}", of_row)
    if takes_pixels(trace):
        pixel = _first(tensor, lambda cell: isinstance(cell.colour, int) and (several or not cell.link))
        if pixel is not None:
            yield _entry(f"pixel that becomes row {pixel.colour}; a cell of several names the first", pixel)
    box = _first(tensor, lambda cell: isinstance(cell.colour, int) and cell.text == "box")
    yield _entry("the part of the tensor that is copied", box)


def _outside_meanings(trace: Trace, tensor: Grid, shared: Grid) -> Iterator[Entry | None]:
    """What the other cells are, and the signs and marks of cells."""
    outside = "dropped"
    if trace.is_load:
        is_zero = trace.tensor_map.oob_fill.name == "zero"
        outside = "filled with zero" if is_zero else "filled with 0x7FF7 in every 16 bits"
    filled = _first(shared, lambda cell: cell.colour == "fill")
    yield _entry(f"outside the tensor: {outside}", filled)
    beyond = _first(tensor, lambda cell: cell.colour == "fill")
    yield _entry("the part of the copy outside the tensor", beyond)
    cut = _first(shared, lambda cell: isinstance(cell.colour, int) and _CUT_SIGN in cell.text)
    yield _entry("the tensor ends within the chunk; the rest is outside", cut, sign=_CUT_SIGN)
    gap = _first(shared, lambda cell: cell.colour == "gap")
    yield _entry("not part of the copy: keeps its bytes", gap)
    overrun = _first(shared, lambda cell: cell.mark == "collision")
    yield _entry("the store also overwrites the bytes after the row", overrun, mark="collision")
    swapped = _first(shared, lambda cell: isinstance(cell.colour, int) and _SWAPPED_SIGN in cell.text)
    yield _entry("its 8-byte halves are exchanged", swapped, sign=_SWAPPED_SIGN)
    marked = _first(shared, lambda cell: cell.mark == "focus")
    yield _entry("what was asked for", marked, mark="focus")


def _first(grid: Grid, is_meant: Callable[[Cell], bool]) -> Cell | None:
    """The first cell of a kind that is drawn."""
    return next((cell for row in grid.rows for cell in row.cells if is_meant(cell)), None)


def _entry(text: str, cell: Cell | None, *, sign: str = "", mark: Mark = "") -> Entry | None:
    """The entry of a legend with a drawn cell as its sample; None if there is no such cell."""
    if cell is None:
        return None
    name = cell.text if cell.text == "box" else cell.text.rstrip(_CUT_SIGN + _SWAPPED_SIGN)
    return Entry(text, cell.colour, mark, sample=name + sign)


def _facts(trace: Trace) -> Table:
    a = trace.tensor_map
    tensor = f"{a.data_type.name}, dims {a.dims}"
    if a.rank > 1:
        tensor += f", strides {a.strides_bytes} bytes"
    row_bytes = a.interleave.slice_bytes or a.inner_bytes
    facts = {
        "tensor": tensor,
        "copy": f"{counted(trace.rows, 'row')} of {row_bytes} bytes, {a.pitch_bytes} bytes apart",
    }
    if trace.transaction_bytes is not None:
        facts["mbarrier"] = f"expect_tx {trace.transaction_bytes} bytes"
    memory = "shared" if trace.is_load else "global"
    facts["written"] = f"{trace.written_bytes} bytes of {memory} memory"
    facts["outside"] = _outside(trace)
    if trace.overrun_bytes:
        explanation = "bytes behind the rows' ends are overwritten: a store writes whole 16 bytes"
        facts["overrun"] = f"{trace.overrun_bytes} {explanation}"
    if trace.base_offset:
        explanation = f"the buffer starts on line {trace.base_offset} of the swizzle's pattern"
        facts["base offset"] = f"{trace.base_offset}: {explanation}"
    facts["basis"] = trace.basis
    return Table(facts)


def _outside(trace: Trace) -> str:
    """The part of the copy outside the tensor: whole rows, and parts of the others."""
    whole_rows = trace.filled_rows
    others = trace.rows - whole_rows
    overrun_bytes = trace.overrun_bytes // others if others else 0
    cut_bytes = trace.outside_bytes - overrun_bytes  # of a row; what overruns is not dropped
    parts = []
    if whole_rows:
        parts.append(f"{whole_rows} of {trace.rows} rows")
    if cut_bytes and whole_rows:
        parts.append(f"{cut_bytes} bytes of the other {others}")
    elif cut_bytes:
        parts.append(f"{cut_bytes} bytes of {'every' if others > 1 else 'the'} row")
    return f"{' and '.join(parts)}: {_filled_or_dropped(trace)}" if parts else ""


def draw_identification(tile: Identification) -> Drawing:
    """A tile found in a dump: its place, its layout, how much of it matches; or that it was not found."""
    if not tile.found:
        return Drawing("The tile is not in the dump", {"advice": tile.advice})
    fits = tile.compared_bytes - tile.wrong_bytes - tile.missing_bytes
    facts = {
        "offset": f"byte {tile.offset:#x} of the dump",
        "swizzle": f"{tile.swizzle.name}, base offset {tile.base_offset}",
        "order": f"{tile.order_words} of the transposed tile" if tile.transposed else tile.order_words,
        "pitch": f"{tile.layout.as_rows().tiling.pitch_bytes} bytes from row to row",
        "fits": f"{fits} of {tile.compared_bytes} bytes",
    }
    if tile.missing_bytes:
        facts["outside"] = f"{tile.missing_bytes} bytes of the tile would be outside the dump"
    wrong = tile.first_wrong
    if wrong is not None:
        element = f"element ({wrong.row}, {wrong.column}) byte {wrong.byte}"
        values = f"should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        facts["first wrong"] = f"at {wrong.address:#x} of the dump: {element} {values}"
    if tile.equally_good:
        as_good = counted(tile.equally_good, "more layout")
        facts["as good"] = f"{as_good} explain as much; this is the simplest"
    title = "The tile is in the dump" if tile.explained else "A part of the tile is in the dump"
    return Drawing(title, {"dump": Table(facts), **dict(draw_layout(tile.layout).named)})


DRAWINGS = {Identification: draw_identification, Trace: draw_trace}
WALKS = {Trace: walk_trace}
