"""Which layout a dump of shared memory has, when one knows the tile that it should hold.

Every swizzle, every line of its pattern at which the buffer may start, and every order of rows, atoms and boxes is a
`Layout`. The answer is the one under which most bytes of the tile lie where they should:

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
from tilescope.reading import integer, readable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, SWIZZLE, Swizzle
from tilescope.tma.searching import sightings
from tilescope.value import Value, hex_field

Order = Literal["rows", "boxes side by side", "atoms down", "atoms across"]
ATOM_ROWS = 8  # of the tensor core's atoms, whose rows are one swizzle span (without swizzle: 16 bytes) wide
_SAMPLE_ELEMENTS = 256
_MAX_MISSED_SHARE = 0.8  # of the sample; layouts that miss more are not compared whole
_CERTAIN_SHARE = 0.9  # of the tile; if so much fits at the dump's first byte, the tile is sought nowhere else
_LEAST_SHARE_AT_START = 0.5  # of the elements that must fit for the tile to count as found …
_LEAST_SHARE_ELSEWHERE = 0.125  # … and where its pieces were recognised one by one, which chance does not do
_WORD_BYTES = 8  # no swizzle cuts such a piece, so that it is compared whole


DUMP_EXTENT = rule(
    "dump-extent",
    "A dump is at least as long as the tile that is looked for in it.",
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
    missing_bytes: int = 0  # of the tile that would lie before or behind the dump
    found: bool = True  # False: so little fits that chance may explain it
    offset: int = hex_field(default=0)  # of the tile's first byte in the dump

    @property
    def explained(self) -> bool:
        """Whether every byte of the tile is where the layout has it."""
        return self.wrong_bytes == self.missing_bytes == 0

    @property
    def fitting_share(self) -> float:
        """The part of the tile's bytes that lies where the layout has it, 0 to 1."""
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
        return {
            "rows": f"rows {tile.pitch_bytes} bytes apart", "boxes side by side": f"boxes of {parts} side by side",
            "atoms down": f"atoms of {parts}, column after column", "atoms across": f"atoms of {parts}, row after row",
        }[self.order]  # fmt: skip

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
        what = f"swizzle {self.swizzle.name}, base offset {self.base_offset}, {self.order_words}"
        what += " of the transposed tile" if self.transposed else ""
        what += f", from byte {self.offset:#x} of the dump" if self.offset else ""
        if self.explained:
            return what + (f" (and {self.equally_good} more explain it)" if self.equally_good else "")
        count = f"{self.wrong_bytes} of {self.compared_bytes} bytes wrong"
        missing = f" and {self.missing_bytes} outside the dump" if self.missing_bytes else ""
        said = f"no layout explains the dump; closest: {what}, with {count}{missing}"
        if (wrong := self.first_wrong) is None:
            return said
        return (
            f"{said}. The first is at {wrong.address:#x}: element ({wrong.row}, {wrong.column}) byte {wrong.byte} "
            f"should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        )


def identify(dump: Any, tile: Any, *, smem_address: int | None = None) -> Identification:
    """The swizzle, base offset and order that explain a dump of shared memory, or come closest.

    `tile` is the 2-D array that lies somewhere in the bytes of `dump`. At the dump's first byte every mode and order of
    atoms and boxes is tried; elsewhere rows of any pitch and any other XOR swizzle too. Where the dump's shared address is
    known, `smem_address` settles the base offset; otherwise all are tried.

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
    # the tile, and its transpose where that is another
    turned = [matrix, np.ascontiguousarray(matrix.T)] if min(matrix.shape) > 1 else [matrix]
    start = None if smem_address is None else integer("smem_address", smem_address, least=0)
    if start is not None and start % CHUNK_BYTES:
        below = start // CHUNK_BYTES * CHUNK_BYTES
        fix = f"Use {below}, or leave it out."
        raise RuleError([argument_range("smem_address", start, "a multiple of 16", fix, {"smem_address": below})])
    compared: list[tuple[int, int, _Sampled]] = []  # wrong elements, the layout's number, the layout
    most_missed = _MAX_MISSED_SHARE * min(_SAMPLE_ELEMENTS, matrix.size)
    for sampled in sorted(_sampled_layouts(content, turned, start)):
        if compared and sampled.missed > min(min(compared)[0], most_missed):
            break
        wrong = _wrong_elements(content, sampled.layout.with_start(sampled.start), turned[sampled.transposed])
        compared += [] if wrong is None else [(wrong, sampled.number, sampled)]
    if not compared:
        raise DUMP_EXTENT.error(
            "dump", counted(len(content), "byte"), f"the tile alone takes {matrix.nbytes} bytes",
            f"Dump {matrix.nbytes} bytes, from the tile's first to its last.",
            dump_bytes=len(content), tile_bytes=matrix.nbytes,
        )  # fmt: skip
    fewest, _, nearest = min(compared)
    equally_good = sum(wrong == fewest for wrong, *_ in compared) - 1
    layout = nearest.layout.with_start(nearest.start)
    here = _identified(content, turned, layout, nearest.transposed, equally_good)
    elsewhere = [] if here.fitting_share >= _CERTAIN_SHARE else _elsewhere(content, turned, start)
    return max([here, *elsewhere], key=lambda answer: (answer.found, answer.fitting_share))


def _elsewhere(dump: npt.NDArray[np.uint8], turned: list[npt.NDArray[Any]], start: int | None) -> list[Identification]:
    """The likeliest layouts of the tile at other places of the dump; of its transpose where the tile itself is nowhere."""
    for transposed, wanted in enumerate(turned):
        if seen := sightings(dump, wanted, start, _layouts):
            return [_identified(dump, turned, there.layout, bool(transposed), 0, there.offset) for there in seen]
    return []


def _matrix(tile: Any) -> npt.NDArray[Any]:
    """The tile as unsigned integers of its elements' size."""
    array = tile if isinstance(tile, np.ndarray) else None
    fits = array is not None and array.ndim == 2 and array.size and array.itemsize in (1, 2, 4, 8)
    if array is None or not fits or array.dtype.hasobject:
        raise ARGUMENT_TYPE.error(
            "tile", f"a {type(tile).__name__}" if array is None else f"an array of {array.dtype} of shape {array.shape}",
            "a 2-D array of elements of 1, 2, 4 or 8 bytes",
            "Use tile.reshape(rows, columns), as the kernel sees it; view wider elements as pairs.",
            shape=() if array is None else array.shape,
        )  # fmt: skip
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


class _Sampled(NamedTuple):
    """A layout, and how many elements of the sample it misses; sorted, the best and then the simplest come first."""

    missed: int
    number: int  # in order of simplicity
    transposed: bool
    layout: Layout
    start: int  # of the dump within the swizzle pattern, in bytes


def _sampled_layouts(
    dump: npt.NDArray[np.uint8], turned: list[npt.NDArray[Any]], start: int | None
) -> Iterator[_Sampled]:
    """Every layout that the tile may have in the dump, compared with the dump in a sample of its elements."""
    number = 0
    for transposed, wanted in enumerate(turned):
        rows, columns = _sample(wanted.shape)
        values = wanted[rows, columns]
        for swizzle in SWIZZLE.values():
            layouts = list(_layouts(wanted.shape, wanted.itemsize, swizzle))
            logical = [layout.logical(rows, columns) for layout in layouts]
            for line in range(swizzle.period_lines) if start is None else (swizzle.base_offset(start),):
                begin = line * SMEM_LINE_BYTES
                for layout, addresses in zip(layouts, logical, strict=True):
                    number += 1
                    places = swizzle.apply(addresses + begin) - begin
                    if places.min() >= 0 and places.max() + wanted.itemsize <= len(dump):
                        missed = int((_words(dump, places, wanted.dtype) != values).sum())
                        yield _Sampled(missed, number, bool(transposed), layout, begin)


def _sample(shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and columns of elements spread at random over the tile; of all elements if it is small."""
    count = shape[0] * shape[1]
    chosen = np.arange(count)
    if count > _SAMPLE_ELEMENTS:
        chosen = np.unique(np.random.default_rng(0).integers(0, count, _SAMPLE_ELEMENTS))
    return np.divmod(chosen, shape[1])


def _layouts(shape: tuple[int, ...], element_bytes: int, swizzle: Swizzle) -> Iterator[Layout]:
    """Layouts of a tile under a swizzle, simple ones first."""
    rows, columns = shape
    row_bytes = columns * element_bytes
    span = swizzle.span_bytes or CHUNK_BYTES
    options: dict[str, Any] = {"element_bits": element_bytes * 8, "swizzle": swizzle}
    gap = max(0, span - row_bytes) if swizzle.span_bytes else 0
    for padding in (gap, 0) if gap else (0,):  # TMA's own pitch first
        yield Layout((rows, columns), padding_bytes=padding, **options)
    atom = (ATOM_ROWS, span // element_bytes)
    has_atoms = rows % atom[0] == 0 and columns % atom[1] == 0 and columns > atom[1]
    for order in ATOM_ORDERS if has_atoms else ():
        yield Layout((rows, columns), atom=atom, atom_order=order, **options)
    widths = (
        [span] if swizzle.span_bytes else [width for width in range(span, row_bytes, span) if row_bytes % width == 0]
    )
    for width in widths:
        if width >= row_bytes or (has_atoms and width == span):  # one box, or atoms down a column of them
            continue
        box_columns = width // element_bytes
        for high in _box_rows(rows, width, swizzle):
            yield Layout((high, rounded_up(columns, box_columns)), atom=(high, box_columns), **options)


def _box_rows(rows: int, width: int, swizzle: Swizzle) -> list[int]:
    """How many rows after a box the next one may start: at once, at the next line (as TMA wants it), where the pattern repeats."""
    steps = (alignment // gcd(alignment, width) for alignment in (1, SMEM_LINE_BYTES, swizzle.repeat_bytes))
    return sorted({rounded_up(rows, step) for step in steps})


def _wrong_elements(dump: npt.NDArray[np.uint8], layout: Layout, wanted: npt.NDArray[Any]) -> int | None:
    """How many elements are not where the layout has them; None if the layout reaches beyond the dump."""
    rows, columns = wanted.shape
    size, tile = wanted.itemsize, layout.as_rows().tiling
    aligned = all(extent % _WORD_BYTES == 0 for extent in (columns * size, tile.pitch_bytes, tile.atom[1] * size))
    word_bytes = _WORD_BYTES if aligned else size
    places = _places(layout, rows, np.arange(0, columns, word_bytes // size))
    if places.min() < 0 or places.max() + word_bytes > len(dump):
        return None
    return int((_words(dump, places, np.dtype(f"u{word_bytes}")).view(wanted.dtype) != wanted).sum())


def _places(layout: Layout, rows: int, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes from the dump's first to the elements of these columns."""
    return layout.address(np.arange(rows)[:, None], columns[None, :]) - layout.start


def _words(dump: npt.NDArray[np.uint8], places: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What the dump holds at byte offsets."""
    words = dump[: len(dump) // dtype.itemsize * dtype.itemsize].view(dtype)
    held: npt.NDArray[Any] = words[places // dtype.itemsize]
    return held


def _identified(
    dump: npt.NDArray[np.uint8], turned: list[npt.NDArray[Any]], layout: Layout, transposed: bool, equally_good: int, offset: int = 0
) -> Identification:  # fmt: skip
    wanted = turned[transposed]
    begin = _places(layout, wanted.shape[0], np.arange(wanted.shape[1])) + offset
    places = begin[:, :, None] + np.arange(wanted.itemsize)
    held = (places >= 0) & (places < len(dump))
    bytes_wanted = wanted.view(np.uint8).reshape(places.shape)
    differ = held & (dump[np.where(held, places, 0)] != bytes_wanted)
    wrong, missing = int(differ.sum()), int((~held).sum())
    first_wrong = None
    if wrong:
        row, column, byte = first = tuple(np.argwhere(differ)[places[differ].argmin()].tolist())
        address, element = int(places[first]), (column, row) if transposed else (row, column)
        first_wrong = WrongByte(*element, byte, int(bytes_wanted[first]), int(dump[address]), address)
    whole = (held & ~differ).all(axis=2)  # single bytes, zeros above all, are right by chance
    found = whole.mean() >= (_LEAST_SHARE_ELSEWHERE if offset else _LEAST_SHARE_AT_START)
    if transposed:  # the layout of the tile whose transpose lies in this one
        tile = layout.as_rows().tiling
        layout = Layout(
            tile.shape[::-1], tile.element_bits, atom=tile.atom[::-1], atom_order=tile.atom_order, major="MN",
            padding_bytes=tile.padding_bytes, swizzle=layout.swizzle, start=layout.start,
        )  # fmt: skip
    counts = equally_good, wanted.nbytes, missing
    return Identification(layout, transposed, wrong, first_wrong, *counts, bool(found), offset)
