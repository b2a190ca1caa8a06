"""Finds the layout of a dump of shared memory that should contain a known tile.

Every swizzle, every line of its pattern at which the buffer may start, and every order of rows, atoms and boxes is a
`Layout`. The answer is the layout under which most bytes of the tile are in the right place:

    tile                     dump                     128B, base offset 0, rows     8192 of 8192 bytes
    row 0  a b c d e f g h   a b c d e f g h          128B, base offset 1, rows        0
    row 1  i j k l …         j i l k …                64B,  base offset 0, rows     4096
    row 2  …                 …                        …

A sample of the tile's elements tells most layouts apart. So layouts are sorted by how many of the sample they miss, and
compared whole in that order; a layout that misses more of the sample than the best one misses in all cannot win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, argument_range
from tilescope.layout import ATOM_ORDERS, Layout
from tilescope.reading import Bytes, integer, readable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, SWIZZLE, Swizzle
from tilescope.tma.dump_search import Tile, places_in_pattern, sightings
from tilescope.value import Value, hex_field

Order = Literal["rows", "boxes side by side", "atoms down", "atoms across"]
ATOM_ROWS = 8  # of the tensor core's atoms, whose rows are one swizzle span (without swizzle: 16 bytes) wide
_SAMPLE_ELEMENTS = 256
_MAX_MISSED_SHARE = 0.8  # of the sample; layouts that miss more are not compared whole
_CERTAIN_SHARE = 0.9  # of the tile; if this share matches at the dump's first byte, no other place is searched
_LEAST_SHARE_AT_START = 0.5  # of the elements that must fit for the tile to count as found …
_LEAST_SHARE_ELSEWHERE = 0.125  # … and elsewhere, where its pieces were recognised one by one, hardly by chance
_WORD_BYTES = 8  # no swizzle cuts a word, so it is compared whole
_ELEMENT_BYTES = (1, 2, 4, 8)

DUMP_EXTENT = rule(
    "dump-extent",
    "A dump is at least as long as the tile to search for.",
    argument="dump",
    found="{dump_bytes:byte}",
    limit="the tile alone takes {tile_bytes} bytes",
    fix="Dump {tile_bytes} bytes, from the tile's first to its last.",
    source="the size of the tile",
    passing="ts.identify(np.zeros(1024, np.uint8), np.zeros((8, 64), np.float16))",
    failing="ts.identify(np.zeros(1023, np.uint8), np.zeros((8, 64), np.float16))",
)


@dataclass(frozen=True, slots=True)
class WrongByte(Value):
    """The first byte of a dump that a layout does not explain."""

    row: int  # of the tile, as it was passed
    column: int  # in elements
    byte: int  # of the element
    expected: int
    found: int
    address: int = hex_field()  # from the dump's first byte on


@dataclass(frozen=True, slots=True)
class Identification(Value):
    """The layout that explains a dump, or comes closest; made by `ts.identify`.

    >>> import tilescope as ts
    >>> tile = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> found = ts.identify(ts.Swizzle.named("128B").swizzle(tile), tile)
    >>> found.explained, found.swizzle.name, found.base_offset, found.order
    (True, '128B', 0, 'rows')
    """

    # Of the tile as it was passed; its start is the line of the pattern on which the dump starts. Larger than the tile where
    # boxes are aligned or reach beyond it: the tile is then its first rows and columns.
    layout: Layout
    transposed: bool
    wrong_bytes: int
    first_wrong: WrongByte | None
    equally_good: int  # further layouts that explain as much; the first in order of simplicity is this one
    compared_bytes: int  # of the tile
    missing_bytes: int = 0  # of the tile that would be before or after the dump
    found: bool = True  # False: so little fits that chance may explain it
    offset: int = hex_field(default=0)  # of the tile's first byte in the dump

    @property
    def explained(self) -> bool:
        """Whether every byte of the tile is at its place in the layout."""
        return self.wrong_bytes == self.missing_bytes == 0

    @property
    def fitting_share(self) -> float:
        """The share of the tile's bytes at their places in the layout, 0 to 1."""
        return 1 - (self.wrong_bytes + self.missing_bytes) / self.compared_bytes

    @property
    def swizzle(self) -> Swizzle:
        """The swizzle."""
        return self.layout.swizzle

    @property
    def base_offset(self) -> int:
        """The line of the swizzle's pattern on which the dump starts."""
        return self.swizzle.base_offset(self.layout.start)

    @property
    def order(self) -> Order:
        """Rows one after another, boxes as high as the tile, or atoms: down a column of them first, or across a row."""
        tile = self.layout.as_rows().tiling
        if tile.atom == tile.shape:
            return "rows"
        if tile.atom[0] == tile.shape[0]:
            return "boxes side by side"
        return "atoms down" if self.layout.atom_order == "column" else "atoms across"

    @property
    def order_words(self) -> str:
        """The order in words, with its extents."""
        tile = self.layout.as_rows().tiling
        parts = f"{tile.atom[0]} x {tile.atom[1]} elements"
        match self.order:
            case "rows":
                return f"rows {tile.pitch_bytes} bytes apart"
            case "boxes side by side":
                return f"boxes of {parts} side by side"
            case "atoms down":
                return f"atoms of {parts}, column after column"
            case "atoms across":
                return f"atoms of {parts}, row after row"

    @property
    def advice(self) -> str:
        """What to look at where nothing was found."""
        return (
            f"No layout explains the dump: even the best leaves {self.wrong_bytes} of {self.compared_bytes} bytes wrong. Check "
            "that the dump is of the same stage, and that the tile has the right type and values."
        )

    def __str__(self) -> str:
        if not self.found:
            return self.advice
        if self.explained:
            more = f" (and {self.equally_good} more explain it)" if self.equally_good else ""
            return self._layout_words + more
        summary = f"no layout explains the dump; closest: {self._layout_words}, with {self._wrong_words}"
        wrong = self.first_wrong
        if wrong is None:
            return summary
        return (
            f"{summary}. The first is at {wrong.address:#x}: element ({wrong.row}, {wrong.column}) byte {wrong.byte} "
            f"should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        )

    @property
    def _layout_words(self) -> str:
        words = f"swizzle {self.swizzle.name}, base offset {self.base_offset}, {self.order_words}"
        if self.transposed:
            words += " of the transposed tile"
        if self.offset:
            words += f", from byte {self.offset:#x} of the dump"
        return words

    @property
    def _wrong_words(self) -> str:
        words = f"{self.wrong_bytes} of {self.compared_bytes} bytes wrong"
        if self.missing_bytes:
            words += f" and {self.missing_bytes} outside the dump"
        return words


def identify(dump: Any, tile: Any, *, smem_address: int | None = None) -> Identification:
    """The swizzle, base offset and order that explain a dump of shared memory, or come closest.

    `tile` is the 2-D array to find in the bytes of `dump`. At the dump's first byte every mode and order of
    atoms and boxes is tried; elsewhere rows of any pitch and any other XOR swizzle too. If you know the dump's shared
    address, `smem_address` fixes the base offset; otherwise all are tried.

    >>> import tilescope as ts
    >>> tile = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> print(ts.identify(ts.Swizzle.named("64B").swizzle(tile, address=0x80), tile))
    swizzle 64B, base offset 1, rows 128 bytes apart
    >>> matrix = np.arange(128 * 128, dtype=np.uint16).reshape(128, 128)
    >>> print(ts.identify(matrix, matrix[8:24, 32:64]))
    swizzle none, base offset 0, rows 256 bytes apart, from byte 0x840 of the dump
    """
    content = readable("dump", dump)
    matrix = _matrix(tile)
    turned = [matrix]
    if min(matrix.shape) > 1:
        turned.append(np.ascontiguousarray(matrix.T))
    start = _start_address(smem_address)
    compared = _compare_candidates(content, turned, start)
    if not compared:
        raise DUMP_EXTENT.error(dump_bytes=len(content), tile_bytes=matrix.nbytes)
    best = min(compared)
    here = _explain_layout(
        content,
        turned[best.sampled.transposed],
        best.sampled.layout.with_start(best.sampled.start),
        transposed=best.sampled.transposed,
        equally_good=sum(other.wrong == best.wrong for other in compared) - 1,
    )
    if here.fitting_share >= _CERTAIN_SHARE:
        return here
    return max([here, *_elsewhere(content, turned, start)], key=lambda answer: (answer.found, answer.fitting_share))


def _start_address(smem_address: int | None) -> int | None:
    """The shared address of the dump, where it is known: a multiple of 16 bytes."""
    if smem_address is None:
        return None
    start = integer("smem_address", smem_address, least=0)
    if start % CHUNK_BYTES:
        below = start // CHUNK_BYTES * CHUNK_BYTES
        fix = f"Use {below}, or leave it out."
        raise RuleError([argument_range("smem_address", start, "a multiple of 16", fix, {"smem_address": below})])
    return start


def _elsewhere(dump: Bytes, turned: list[Tile], start: int | None) -> list[Identification]:
    """The likeliest layouts of the tile at other places of the dump; of its transpose if the tile does not occur."""
    for transposed, tile in zip((False, True), turned, strict=False):
        seen = sightings(dump, tile, start, _layouts)
        if seen:
            return [
                _explain_layout(dump, tile, there.layout, transposed=transposed, offset=there.offset) for there in seen
            ]
    return []


def _matrix(tile: object) -> Tile:
    """The tile as unsigned integers of its elements' size."""
    if isinstance(tile, np.ndarray):
        is_matrix = tile.ndim == 2 and tile.size > 0
        if is_matrix and tile.itemsize in _ELEMENT_BYTES and not tile.dtype.hasobject:
            return np.ascontiguousarray(tile).view(f"u{tile.itemsize}")
        description = f"an array of {tile.dtype} of shape {tile.shape}"
    else:
        description = f"a {type(tile).__name__}"
    raise ARGUMENT_TYPE.error(
        argument="tile",
        found=description,
        limit="a 2-D array of elements of 1, 2, 4 or 8 bytes",
        fix="Use tile.reshape(rows, columns), as the kernel sees it; view wider elements as pairs.",
        shape=tile.shape if isinstance(tile, np.ndarray) else (),
    )


class _Sampled(NamedTuple):
    """A layout, and how many elements of the sample it misses; sorted, the best and then the simplest come first."""

    missed: int
    number: int  # in order of simplicity
    transposed: bool
    layout: Layout
    start: int  # of the dump within the swizzle pattern, in bytes


class _Compared(NamedTuple):
    """A layout that was compared whole; the smallest one has the fewest wrong elements, and then is the simplest."""

    wrong: int  # elements
    number: int
    sampled: _Sampled


def _compare_candidates(dump: Bytes, turned: list[Tile], start: int | None) -> list[_Compared]:
    """The layouts that may be the best one, compared whole with the dump."""
    compared: list[_Compared] = []
    most_missed = _MAX_MISSED_SHARE * min(_SAMPLE_ELEMENTS, turned[0].size)
    for sampled in sorted(_sampled_layouts(dump, turned, start)):
        if compared and sampled.missed > min(min(compared).wrong, most_missed):
            break
        wrong = _wrong_elements(dump, sampled.layout.with_start(sampled.start), turned[sampled.transposed])
        if wrong is not None:
            compared.append(_Compared(wrong, sampled.number, sampled))
    return compared


def _sampled_layouts(dump: Bytes, turned: list[Tile], start: int | None) -> Iterator[_Sampled]:
    """Every layout that the tile may have in the dump, compared with the dump in a sample of its elements."""
    number = 0
    for transposed, tile in zip((False, True), turned, strict=False):
        rows, columns = _sample(tile.shape)
        values = tile[rows, columns]
        for swizzle in SWIZZLE.values():
            layouts = list(_layouts(tile.shape, tile.itemsize, swizzle))
            logical = [layout.logical(rows, columns) for layout in layouts]
            for begin in places_in_pattern(swizzle, start):
                for layout, addresses in zip(layouts, logical, strict=True):
                    number += 1
                    places = swizzle.apply(addresses + begin) - begin
                    if places.min() >= 0 and places.max() + tile.itemsize <= len(dump):
                        missed = int((_words(dump, places, tile.dtype) != values).sum())
                        yield _Sampled(missed, number, transposed, layout, begin)


def _sample(shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and columns of elements spread at random over the tile; of all elements if it is small."""
    count = shape[0] * shape[1]
    chosen = np.arange(count)
    if count > _SAMPLE_ELEMENTS:
        chosen = np.unique(np.random.default_rng(0).integers(0, count, _SAMPLE_ELEMENTS))
    return np.divmod(chosen, shape[1])


def _layouts(shape: tuple[int, ...], element_bytes: int, swizzle: Swizzle) -> Iterator[Layout]:
    """Layouts of a tile under a swizzle, simple ones first: rows, atoms, boxes side by side."""
    rows, columns = shape
    bits = element_bytes * 8
    row_bytes = columns * element_bytes
    span = swizzle.span_bytes or CHUNK_BYTES
    gap = max(0, span - row_bytes) if swizzle.span_bytes else 0
    for padding in (gap, 0) if gap else (0,):  # TMA's own pitch first
        yield Layout((rows, columns), bits, padding_bytes=padding, swizzle=swizzle)
    atom = (ATOM_ROWS, span // element_bytes)
    has_atoms = rows % atom[0] == 0 and columns % atom[1] == 0 and columns > atom[1]
    if has_atoms:
        for order in ATOM_ORDERS:
            yield Layout((rows, columns), bits, atom=atom, atom_order=order, swizzle=swizzle)
    for width in _box_widths(row_bytes, swizzle):
        if has_atoms and width == span:  # atoms down a column of them
            continue
        box_columns = width // element_bytes
        for high in _box_rows(rows, width, swizzle):
            padded = (high, rounded_up(columns, box_columns))
            yield Layout(padded, bits, atom=(high, box_columns), swizzle=swizzle)


def _box_widths(row_bytes: int, swizzle: Swizzle) -> list[int]:
    """The possible widths, in bytes, of boxes that are placed side by side."""
    if swizzle.span_bytes:
        return [swizzle.span_bytes] if swizzle.span_bytes < row_bytes else []
    return [width for width in range(CHUNK_BYTES, row_bytes, CHUNK_BYTES) if row_bytes % width == 0]


def _box_rows(rows: int, width: int, swizzle: Swizzle) -> list[int]:
    """The possible distances in rows from a box to the next: none, the next line (as TMA requires), or the pattern's repeat."""
    steps = (alignment // gcd(alignment, width) for alignment in (1, SMEM_LINE_BYTES, swizzle.repeat_bytes))
    return sorted({rounded_up(rows, step) for step in steps})


def _wrong_elements(dump: Bytes, layout: Layout, wanted: Tile) -> int | None:
    """How many elements are not where the layout has them; None if the layout reaches beyond the dump."""
    rows, columns = wanted.shape
    size = wanted.itemsize
    tile = layout.as_rows().tiling
    aligned = all(extent % _WORD_BYTES == 0 for extent in (columns * size, tile.pitch_bytes, tile.atom[1] * size))
    word_bytes = _WORD_BYTES if aligned else size
    places = _places(layout, rows, np.arange(0, columns, word_bytes // size))
    if places.min() < 0 or places.max() + word_bytes > len(dump):
        return None
    return int((_words(dump, places, np.dtype(f"u{word_bytes}")).view(wanted.dtype) != wanted).sum())


def _places(layout: Layout, rows: int, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes from the dump's first to the elements of these columns."""
    return layout.address(np.arange(rows)[:, None], columns[None, :]) - layout.start


def _words(dump: Bytes, places: npt.NDArray[np.integer], dtype: np.dtype[np.integer]) -> npt.NDArray[np.integer]:
    """What the dump holds at byte offsets."""
    words = dump[: len(dump) // dtype.itemsize * dtype.itemsize].view(dtype)
    stored: npt.NDArray[np.integer] = words[places // dtype.itemsize]
    return stored


def _explain_layout(
    dump: Bytes, wanted: Tile, layout: Layout, *, transposed: bool, equally_good: int = 0, offset: int = 0
) -> Identification:
    """What a layout explains of a dump; `wanted` is the tile, or its transpose if that is what has the layout."""
    begin = _places(layout, wanted.shape[0], np.arange(wanted.shape[1])) + offset
    places = begin[:, :, None] + np.arange(wanted.itemsize)
    is_held = (places >= 0) & (places < len(dump))
    expected = wanted.view(np.uint8).reshape(places.shape)
    differs = is_held & (dump[np.where(is_held, places, 0)] != expected)
    first_wrong = None
    if differs.any():
        row, column, byte = np.argwhere(differs)[places[differs].argmin()].tolist()
        address = int(places[row, column, byte])
        first_wrong = WrongByte(
            row=column if transposed else row,
            column=row if transposed else column,
            byte=byte,
            expected=int(expected[row, column, byte]),
            found=int(dump[address]),
            address=address,
        )
    is_right = (is_held & ~differs).all(axis=2)  # single bytes, zeros above all, are right by chance
    least_share = _LEAST_SHARE_ELSEWHERE if offset else _LEAST_SHARE_AT_START
    return Identification(
        layout=_turned_back(layout) if transposed else layout,
        transposed=transposed,
        wrong_bytes=int(differs.sum()),
        first_wrong=first_wrong,
        equally_good=equally_good,
        compared_bytes=wanted.nbytes,
        missing_bytes=int((~is_held).sum()),
        found=bool(is_right.mean() >= least_share),
        offset=offset,
    )


def _turned_back(layout: Layout) -> Layout:
    """The layout of the tile whose transpose is stored in this one."""
    tile = layout.as_rows().tiling
    return Layout(
        tile.shape[::-1],
        tile.element_bits,
        atom=tile.atom[::-1],
        atom_order=tile.atom_order,
        major="MN",
        padding_bytes=tile.padding_bytes,
        swizzle=layout.swizzle,
        start=layout.start,
    )
