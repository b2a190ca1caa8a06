"""The drawing of a block's shared memory: lines of 128 bytes, each chunk in the colour of the line that wrote it.

byte            bank   0        4        8      …
0x0400                 A 0,0    A 8,0    A 16,0        a tile: the element that begins the chunk, x first
0x0800-0x0bff          ·        ·        ·             nobody wrote these eight lines
0x0c00                 mbar*    B        B
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.machine.observers.smem_picture import SmemPicture, SmemWriter
from tilescope.machine.report.element import box_trace
from tilescope.sentence import counted, shorten
from tilescope.smem.op import BANK_BYTES
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.sync.address import SHARED_RESERVED_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.tma import Trace
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Entry, Legend, Part
from tilescope.view.grid import Cell, Grid, Header
from tilescope.view.memory_grid import chunk_bytes, lines_of_bytes
from tilescope.view.number_span import ordinal
from tilescope.view.palette import Tint

_NOBODY = -1
_TILE_LINES = 8  # of a tile are drawn: the pattern of every swizzle; those that follow are one row
_MOST_ROWS = 120
_BARRIER_BYTES = 8
_UNDER_WAY_SIGN = "~"
_UNWRITTEN = "·"
_TEXT_CHARACTERS = 60  # of an instruction
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw_smem_picture(picture: SmemPicture) -> Drawing:
    """Who wrote what, with the elements of tiles, and a legend of the lines.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel('''.version 8.0 .target sm_90 .address_size 64
    ...     .entry set() { .shared .b8 s[256]; .reg .b32 %r1; mov.u32 %r1, s; st.shared.u32 [%r1], 7; ret; }''')
    >>> print(draw_smem_picture(kernel.run(1, 1, smem=(0, 0, 0)).smem)["smem"].rows[0].cells[0].text)
    A
    """
    parts = smem_parts(picture)
    x, y, z = picture.block
    return Drawing(f"Shared memory of block ({x}, {y}, {z})", parts)


def smem_parts(picture: SmemPicture) -> dict[str, Part]:
    """The moment in a sentence, the grid and the legend."""
    memory = _Memory(picture)
    grid = _grid(picture, memory)
    return {"moment": _moment(picture), "smem": grid, "legend": Legend(tuple(_entries(picture, grid)))}


def _moment(picture: SmemPicture) -> str:
    size = counted(picture.bytes - SHARED_RESERVED_BYTES, "byte")
    block = f"block {picture.block}"
    if picture.at is None:
        return f"The {size} of {block} at its end, and who wrote them last."
    if picture.is_at_end:
        came = "no thread" if not picture.came else f"a thread at most {counted(picture.came, 'time')}"
        return f"To {picture.at} came {came}. So this is the end of {block}: its {size}, and who wrote them last."
    time = "" if picture.times == 1 else f" for the {ordinal(picture.times)} time"
    return f"The {size} of {block} right before {picture.at} runs{time}, and who wrote them last."


def letter(writer: int) -> str:
    """How cells name a writer: A to Z, then AA to AZ, BA and so on.

    >>> letter(0), letter(27)
    ('A', 'AB')
    """
    higher, last = divmod(writer, len(_LETTERS))
    return (letter(higher - 1) if higher else "") + _LETTERS[last]


class _Look(NamedTuple):
    """What a chunk looks like: who wrote it, whether a copy is still under way, how many mbarriers and which tile it has."""

    writers: tuple[int, ...]  # most bytes first
    is_under_way: bool
    barriers: int
    tile: int | None


@dataclass(slots=True)
class _Memory:
    """The bytes of a picture, one by one."""

    picture: SmemPicture
    writers: npt.NDArray[np.int64] = field(init=False)
    is_under_way: npt.NDArray[np.bool_] = field(init=False)
    tiles: npt.NDArray[np.int64] = field(init=False)  # by byte: the number of its tile
    content: npt.NDArray[np.uint8] = field(init=False)
    traces: list[Trace | None] = field(init=False)
    looks: dict[int, _Look] = field(default_factory=dict)  # by address of the chunk: the requested ones

    def __post_init__(self) -> None:
        end = rounded_up(self.picture.bytes, SMEM_LINE_BYTES)
        self.writers = np.full(end, _NOBODY, np.int64)
        self.is_under_way = np.zeros(end, np.bool_)
        self.tiles = np.full(end, _NOBODY, np.int64)
        self.content = np.zeros(end, np.uint8)
        for stretch in self.picture.stretches:
            place = slice(stretch.address, stretch.address + stretch.bytes)
            if stretch.writer is not None:
                self.writers[place] = stretch.writer
                self.content[place] = np.frombuffer(bytes.fromhex(stretch.content), np.uint8)
            self.is_under_way[place] = stretch.is_under_way
        self.traces = [box_trace(tile.tensor_map, tile.coords, tile.address) for tile in self.picture.tiles]
        for number, (tile, traced) in enumerate(zip(self.picture.tiles, self.traces, strict=True)):
            if traced is not None:
                place = slice(tile.address, tile.address + traced.footprint_bytes)
                is_own = self.writers[place] == tile.writer
                self.tiles[place] = np.where(is_own, number, self.tiles[place])

    def look(self, address: int) -> _Look:
        """What the chunk at an address looks like."""
        cached = self.looks.get(address)
        if cached is not None:
            return cached
        chunk = slice(address, address + CHUNK_BYTES)
        counts = Counter(self.writers[chunk].tolist())
        tile = int(self.tiles[address])
        look = self.looks[address] = _Look(
            tuple(number for number, _ in counts.most_common() if number != _NOBODY),
            bool(self.is_under_way[chunk].any()),
            len(self.barriers_at(address)),
            None if tile == _NOBODY else tile,
        )
        return look

    def barriers_at(self, address: int) -> list[int]:
        """The mbarriers that a chunk holds."""
        return [
            barrier for barrier in self.picture.mbarriers if address - _BARRIER_BYTES < barrier < address + CHUNK_BYTES
        ]


class _Band(NamedTuple):
    """Lines that are drawn as one row: the first byte, how many lines, and whether a tile begins or has ended."""

    first: int
    lines: int
    is_new: bool

    @property
    def label(self) -> str:
        if self.lines == 1:
            return f"{self.first:#06x}"
        return f"{self.first:#06x}-{self.first + self.lines * SMEM_LINE_BYTES - 1:#06x}"


def _bands(picture: SmemPicture, memory: _Memory) -> Iterator[_Band]:
    """Equal lines become one row; of a tile the first eight lines stay."""
    lines = lines_of_bytes(SHARED_RESERVED_BYTES, picture.bytes)
    places = range(0, SMEM_LINE_BYTES, CHUNK_BYTES)

    def looks(line: int) -> tuple[_Look, ...]:
        return tuple(memory.look(line + byte) for byte in places)

    was_tile = False
    for look, alike in groupby(lines, looks):
        alike_lines = [*alike]
        is_tile = any(chunk.tile is not None for chunk in look)
        shown = alike_lines[:_TILE_LINES] if is_tile else []
        yield from (_Band(line, 1, is_new=line == alike_lines[0]) for line in shown)
        folded = alike_lines[len(shown) :]
        if folded:
            yield _Band(folded[0], len(folded), is_new=was_tile and not is_tile)
        was_tile = is_tile


def _grid(picture: SmemPicture, memory: _Memory) -> Grid:
    bands = {band: band.label for band in _bands(picture, memory)}
    banks = CHUNK_BYTES // BANK_BYTES
    headers = {byte: Header.of_numbers(byte // BANK_BYTES, banks) for byte in range(0, SMEM_LINE_BYTES, CHUNK_BYTES)}
    notes = []
    if picture.tiles:
        notes.append("Behind a letter: the first element of the chunk in its tensor, innermost coordinate first.")
    return Grid.of(
        "Lines of 128 bytes; those that look alike are one row",
        ("byte", "bank"),
        bands,
        headers,
        lambda band, byte: _cell(picture, memory, band, byte),
        ruled={band for band in bands if band.is_new},
        notes=notes,
        most=(_MOST_ROWS, None),
        nouns=("rows", "columns"),
    )


def _cell(picture: SmemPicture, memory: _Memory, band: _Band, byte: int) -> Cell:
    address = band.first + byte
    if address >= picture.bytes:
        return Cell("", "gap", title="behind the end of shared memory")
    look = memory.look(address)
    words = [letter(writer) for writer in look.writers]
    if look.is_under_way:
        words[0] = _UNDER_WAY_SIGN + words[0]
    if look.tile is not None and band.lines == 1:
        words.append(_element(memory.traces[look.tile], address))
    if look.barriers:
        words.append("mbar")
    colour: Tint = look.writers[0] if look.writers else "unused"
    return Cell(
        " ".join(words) or _UNWRITTEN,
        colour,
        "focus" if look.barriers else "",
        _tooltip(picture, memory, band, address),
        link=" ".join(f"writer{writer}" for writer in look.writers),
    )


def _element(traced: Trace | None, address: int) -> str:
    """The coordinates that tell the elements of a tile apart."""
    if traced is None:
        return ""
    origin = traced.element_at(address)
    if origin.coords is None or origin.holds == "gap":
        return ""
    if origin.holds == "fill":
        return "fill"
    tensor_map = traced.tensor_map
    assert isinstance(tensor_map, TensorMap)  # boxes of others are no tiles of a picture
    box = tensor_map.box
    varied = [coord for coord, extent in zip(origin.coords, box, strict=True) if extent > 1]
    return ",".join(map(str, varied or origin.coords[:1]))


def _tooltip(picture: SmemPicture, memory: _Memory, band: _Band, address: int) -> str:
    look = memory.look(address)
    parts = [chunk_bytes(address)]
    if band.lines > 1:
        parts = [f"{counted(band.lines, 'line')} from {band.first:#x} on, {chunk_bytes(address)} and below"]
    parts += [f"written by {letter(writer)}: {name_writer(picture.writers[writer])}" for writer in look.writers]
    if not look.writers and not look.barriers:
        parts.append("not written")
    if look.is_under_way:
        parts.append("the copy is pending: its bytes may not be there")
    if look.tile is not None and band.lines == 1:
        traced = memory.traces[look.tile]
        origin = None if traced is None else traced.element_at(address)
        if traced is not None and origin is not None and origin.coords is not None:
            tensor = f"{traced.tensor_map.data_type.name} with dims {traced.tensor_map.dims}"
            parts.append(f"{origin.holds} {origin.coords} of the tensor of {tensor} at {traced.tensor_map.address:#x}")
    parts += [f"mbarrier at {barrier:#x}" for barrier in memory.barriers_at(address)]
    if look.writers and band.lines == 1:
        words = memory.content[address : address + CHUNK_BYTES].view(np.uint32)
        parts.append("holds " + " ".join(f"{word:08x}" for word in words.tolist()))
    return "; ".join(parts)


def name_writer(writer: SmemWriter) -> str:
    """A writer by its source line, with the instruction."""
    first, *others = writer.ptx_lines
    ptx = f"PTX line {first} ({shorten(writer.ptx_text, _TEXT_CHARACTERS)})"
    if others:
        ptx += f" and {counted(len(others), 'other')}"
    return ptx if writer.source_line is None else f"{writer.source_line}, {ptx}"


def _entries(picture: SmemPicture, grid: Grid) -> Iterator[Entry]:
    """Every writer, and the signs that the grid has."""
    for number, writer in enumerate(picture.writers):
        yield Entry(f"{name_writer(writer)}: {counted(writer.bytes, 'byte')}", number, sample=letter(number))
    cells = [cell for row in grid.rows for cell in row.cells]
    if any(cell.text.startswith(_UNDER_WAY_SIGN) for cell in cells):
        yield Entry("a pending copy: its bytes may not be there", None, sample=_UNDER_WAY_SIGN)
    if any(cell.mark == "focus" for cell in cells):
        yield Entry("an mbarrier", None, "focus", sample="mbar")
    if any(cell.text == _UNWRITTEN for cell in cells):
        yield Entry("not written", "unused", sample=_UNWRITTEN)


DRAWINGS = {SmemPicture: draw_smem_picture}
