"""Which layout a dump of shared memory has, when one knows the tile that it should hold.

Every swizzle, every line of its pattern at which the buffer may start, and every order of rows, atoms and boxes is a
`Layout`; the one under which most of the tile's bytes are found where they should be is the answer:

    tile                     dump                     128B, base offset 0, rows     8192 of 8192 bytes
    row 0  a b c d e f g h   a b c d e f g h          128B, base offset 1, rows        0
    row 1  i j k l …         j i l k …                64B,  base offset 0, rows     4096
    row 2  …                 …                        …

A few elements of the tile tell most layouts apart. Those that miss fewest of them are looked at whole, until the
rest miss more of the few than the best one of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, argument_range, counted
from tilescope.layout import ATOM_ORDERS, Layout
from tilescope.reading import integer, readable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, SWIZZLE, Swizzle
from tilescope.value import Value, hex_field

Order = Literal["rows", "boxes side by side", "atoms down", "atoms across"]
ATOM_ROWS = 8  # of the tensor core's atoms, whose rows are one swizzle span (without swizzle: 16 bytes) wide
_FEW = 256  # elements that are looked at first
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

    row: int  # of the tile, as it was given
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

    # Of the tile as it was given; starts where the pattern does. Larger where boxes are aligned or reach beyond the
    # tile, which then is its first rows and columns.
    layout: Layout
    transposed: bool
    wrong_bytes: int
    first_wrong: WrongByte | None
    equally_good: int  # further layouts that explain as much; the first in order of simplicity is this one
    compared_bytes: int  # of the tile

    @property
    def explained(self) -> bool:
        """Whether every byte of the tile is where the layout has it."""
        return self.wrong_bytes == 0

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

    def __str__(self) -> str:
        tile = self.layout.as_rows().tiling
        parts = f"{tile.atom[0]} x {tile.atom[1]} elements"
        order = {
            "rows": f"rows {tile.pitch_bytes} bytes apart", "boxes side by side": f"boxes of {parts} side by side",
            "atoms down": f"atoms of {parts}, column after column", "atoms across": f"atoms of {parts}, row after row",
        }[self.order]  # fmt: skip
        what = f"swizzle {self.swizzle.name}, base offset {self.base_offset}, {order}"
        what += " of the transposed tile" if self.transposed else ""
        if self.first_wrong is None:
            return what + (f" (and {self.equally_good} more explain it)" if self.equally_good else "")
        wrong = self.first_wrong
        count = f"{self.wrong_bytes} of {self.compared_bytes} bytes wrong"
        if self.wrong_bytes > self.compared_bytes // 2:
            return (
                f"no layout explains the dump: even the best leaves {count}. Check that the dump starts at the tile's first byte "
                "and is of the same stage, and that the tile has the right type and values"
            )
        return (
            f"no layout explains the dump; closest: {what}, with {count}. The first is at {wrong.address:#x}: "
            f"element ({wrong.row}, {wrong.column}) byte {wrong.byte} should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        )  # fmt: skip


def identify(dump: Any, tile: Any, *, smem_address: int | None = None) -> Identification:
    """The swizzle, base offset and order that explain a dump of shared memory, or come closest.

    `dump` holds the bytes from the tile's first one on; `tile` is the 2-D array that they should be. Where the dump's
    shared address is known, `smem_address` settles the base offset; otherwise all are tried.

    >>> import tilescope as ts
    >>> tile = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> print(ts.identify(ts.Swizzle.named("64B").swizzle(tile, address=0x80), tile))
    swizzle 64B, base offset 1, rows 128 bytes apart
    """
    content = readable("dump", dump)
    matrix = _matrix(tile)
    start = None if smem_address is None else integer("smem_address", smem_address, least=0)
    if start is not None and start % CHUNK_BYTES:
        below = start // CHUNK_BYTES * CHUNK_BYTES
        raise RuleError(
            [
                argument_range(
                    "smem_address", start, "a multiple of 16", f"Use {below}, or leave it out.", {"smem_address": below}
                )
            ]
        )
    best: tuple[int, _Tried] | None = None
    equally_good = 0
    for tried in sorted(_looked_at(content, matrix, start)):
        if best is not None and tried.missed > best[0]:
            break
        wanted = np.ascontiguousarray(matrix.T) if tried.transposed else matrix
        wrong = _wrong_elements(content, tried.layout.with_start(tried.start), wanted)
        if wrong is None:
            continue
        equally_good = 0 if best is None or wrong < best[0] else equally_good + (wrong == best[0])
        if best is None or (wrong, tried.number) < (best[0], best[1].number):
            best = wrong, tried
    if best is None:
        raise DUMP_EXTENT.error(
            "dump", counted(len(content), "byte"), f"the tile alone takes {matrix.nbytes} bytes",
            f"Dump {matrix.nbytes} bytes, from the tile's first to its last.",
            values={"dump_bytes": len(content), "tile_bytes": matrix.nbytes},
        )  # fmt: skip
    _, nearest = best
    return _identified(content, matrix, nearest.layout.with_start(nearest.start), nearest.transposed, equally_good)


def _matrix(tile: Any) -> npt.NDArray[Any]:
    """The tile as unsigned integers of its elements' size."""
    array = tile if isinstance(tile, np.ndarray) else None
    if (
        array is None
        or array.ndim != 2
        or not array.size
        or array.itemsize not in (1, 2, 4, 8)
        or array.dtype.hasobject
    ):
        raise ARGUMENT_TYPE.error(
            "tile", f"a {type(tile).__name__}" if array is None else f"an array of {array.dtype} of shape {array.shape}",
            "a 2-D array of elements of 1, 2, 4 or 8 bytes",
            "Give rows and columns as the kernel sees them, tile.reshape(rows, columns); view wider elements as pairs.",
        )  # fmt: skip
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


class _Tried(NamedTuple):
    """A layout, and how many of a few elements it does not find; sorted, the best and then the simplest are first."""

    missed: int
    number: int  # in order of simplicity
    transposed: bool
    layout: Layout
    start: int  # at which the dump begins, as far as the pattern goes


def _looked_at(dump: npt.NDArray[np.uint8], matrix: npt.NDArray[Any], start: int | None) -> Iterator[_Tried]:
    """Every layout that a tile may have in the dump, by a few of its elements."""
    number = 0
    for transposed in (False, True) if min(matrix.shape) > 1 else (False,):
        wanted = matrix.T if transposed else matrix
        rows, columns = _few_elements(wanted.shape)
        values = wanted[rows, columns]
        for swizzle in SWIZZLE.values():
            layouts = list(_layouts(wanted.shape, matrix.itemsize, swizzle))
            logical = [layout.logical(rows, columns) for layout in layouts]
            for line in range(swizzle.period_lines) if start is None else (swizzle.base_offset(start),):
                begin = line * SMEM_LINE_BYTES
                for layout, addresses in zip(layouts, logical, strict=True):
                    number += 1
                    places = swizzle.apply(addresses + begin) - begin
                    if places.min() >= 0 and places.max() + matrix.itemsize <= len(dump):
                        missed = int((_words(dump, places, matrix.dtype) != values).sum())
                        yield _Tried(missed, number, transposed, layout, begin)


def _few_elements(shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and columns of some elements, strewn over the tile; of all where it is small."""
    count = shape[0] * shape[1]
    chosen = np.arange(count) if count <= _FEW else np.unique(np.random.default_rng(0).integers(0, count, _FEW))
    return np.divmod(chosen, shape[1])


def _layouts(shape: tuple[int, ...], element_bytes: int, swizzle: Swizzle) -> Iterator[Layout]:
    """Layouts of a tile under a swizzle, simple ones first."""
    rows, columns = shape
    row_bytes = columns * element_bytes
    span = swizzle.span_bytes or CHUNK_BYTES
    options: dict[str, Any] = {
        "element_bits": element_bytes * 8,
        "swizzle": swizzle,
    }  # rows of the tile or its transpose
    paddings = {0} if swizzle.span_bytes is None or row_bytes >= span else {0, span - row_bytes}
    for padding in sorted(paddings, reverse=True):  # TMA's own pitch first
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
            whole = high, -(-columns // box_columns) * box_columns
            yield Layout(whole, atom=(high, box_columns), **options)


def _box_rows(rows: int, width: int, swizzle: Swizzle) -> list[int]:
    """How far the next box may lie, in rows: right behind, at the next line (as TMA wants it), where the pattern begins."""
    found = [rows]
    for alignment in (SMEM_LINE_BYTES, swizzle.repeat_bytes):
        step = alignment // gcd(alignment, width)
        found.append(-(-rows // step) * step)
    return sorted(set(found))


def _wrong_elements(dump: npt.NDArray[np.uint8], layout: Layout, wanted: npt.NDArray[Any]) -> int | None:
    """How many elements are not where the layout has them; None where it ends behind the dump."""
    rows, columns = wanted.shape
    size, tile = wanted.itemsize, layout.as_rows().tiling
    aligned = all(each % _WORD_BYTES == 0 for each in (columns * size, tile.pitch_bytes, tile.atom[1] * size))
    word_bytes = _WORD_BYTES if aligned else size
    places = _places(layout, rows, np.arange(0, columns, word_bytes // size))
    if places.min() < 0 or places.max() + word_bytes > len(dump):
        return None
    found = _words(dump, places, np.dtype(f"u{word_bytes}")).view(wanted.dtype)
    return int((found != wanted).sum())


def _places(layout: Layout, rows: int, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes from the dump's first to the elements of these columns."""
    return layout.address(np.arange(rows)[:, None], columns[None, :]) - layout.start


def _words(dump: npt.NDArray[np.uint8], places: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What the dump holds at byte offsets."""
    words = dump[: len(dump) // dtype.itemsize * dtype.itemsize].view(dtype)
    found: npt.NDArray[Any] = words[places // dtype.itemsize]
    return found


def _identified(
    dump: npt.NDArray[np.uint8], matrix: npt.NDArray[Any], layout: Layout, transposed: bool, equally_good: int
) -> Identification:
    wanted = np.ascontiguousarray(matrix.T) if transposed else matrix
    places = _places(layout, wanted.shape[0], np.arange(wanted.shape[1]))
    found = _words(dump, places, matrix.dtype)
    size = matrix.itemsize
    differ = (np.ascontiguousarray(found).view(np.uint8) != wanted.view(np.uint8)).reshape(*wanted.shape, size)
    wrong = int(differ.sum())
    if transposed:
        layout = _of_the_tile(layout)
    if not wrong:
        return Identification(layout, transposed, 0, None, equally_good, matrix.nbytes)
    where = np.argwhere(differ)
    addresses = places[where[:, 0], where[:, 1]] + where[:, 2]
    first = int(addresses.argmin())
    row, column, byte = where[first].tolist()
    first_wrong = WrongByte(
        *((column, row) if transposed else (row, column)), byte, int(wanted[row, column]) >> 8 * byte & 0xFF,
        int(dump[addresses[first]]), int(addresses[first]),
    )  # fmt: skip
    return Identification(layout, transposed, wrong, first_wrong, equally_good, matrix.nbytes)


def _of_the_tile(layout: Layout) -> Layout:
    """The layout of a tile whose transpose has this one."""
    tile = layout.as_rows().tiling
    return Layout(
        tile.shape[::-1], tile.element_bits, atom=tile.atom[::-1], atom_order=tile.atom_order, major="MN",
        padding_bytes=tile.padding_bytes, swizzle=layout.swizzle, start=layout.start,
    )  # fmt: skip
