"""Which layout a dump of shared memory has, when one knows the tile that it should hold.

Every swizzle, every line of its pattern at which the buffer may start, and every order of rows and atoms is a
`Layout`; the one under which most of the tile's bytes are found where they should be is the answer:

    tile                     dump                     128B, base offset 0, rows     8192 of 8192 bytes
    row 0  a b c d e f g h   a b c d e f g h          128B, base offset 1, rows        0
    row 1  i j k l …         j i l k …                64B,  base offset 0, rows     4096
    row 2  …                 …                        …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tilescope.errors import broken
from tilescope.layout import ATOM_ORDERS, Layout
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, SWIZZLE, Swizzle
from tilescope.tensor_map.reading import integer
from tilescope.tma.buffers import readable
from tilescope.value import Value, hex_field

Order = Literal["rows", "atoms down", "atoms across"]
ATOM_ROWS = 8  # of the tensor core's atoms, whose rows are one swizzle span (without swizzle: 16 bytes) wide


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
    """The layout that explains a dump, or comes closest."""

    layout: Layout  # of the tile, or of its transpose; starts where the pattern does
    transposed: bool
    wrong_bytes: int
    first_wrong: WrongByte | None
    equally_good: int  # further layouts that explain as much; the first in order of simplicity is this one

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
        """Rows one after another, or atoms: down a column of them first, or across a row first."""
        if self.layout.atom == self.layout.shape:
            return "rows"
        return "atoms down" if self.layout.atom_order == "column" else "atoms across"

    def __str__(self) -> str:
        layout = self.layout
        atoms = "" if self.order == "rows" else f" of {layout.atom[0]} x {layout.atom[1]} elements"
        pitch = f" {layout.pitch_bytes} bytes apart" if self.order == "rows" else ""
        what = f"swizzle {self.swizzle.name}, base offset {self.base_offset}, {self.order}{atoms}{pitch}"
        what += " of the transposed tile" if self.transposed else ""
        if self.first_wrong is None:
            return what + (f" (and {self.equally_good} more explain it)" if self.equally_good else "")
        wrong = self.first_wrong
        return (
            f"nothing explains the dump; closest: {what}, with {self.wrong_bytes} wrong bytes. The first is at {wrong.address:#x}: "
            f"element ({wrong.row}, {wrong.column}) byte {wrong.byte} should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        )  # fmt: skip


def identify(smem_bytes: Any, tile: Any, *, smem_address: int | None = None) -> Identification:
    """The swizzle, base offset and order that explain a dump of shared memory, or come closest.

    `smem_bytes` is the dump, from the tile's first byte on; `tile` the 2-D array that it should hold. Where the dump's
    shared address is known, `smem_address` settles the base offset; otherwise all are tried.

    >>> import tilescope as ts
    >>> tile = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> print(ts.identify(ts.Swizzle.named("64B").swizzle(tile, address=0x80), tile))
    swizzle 64B, base offset 1, rows 128 bytes apart
    """
    dump = readable("smem_bytes", smem_bytes)
    matrix = _matrix(tile)
    start = None if smem_address is None else integer("smem_address", smem_address)
    if start is not None and (start < 0 or start % CHUNK_BYTES):
        raise broken("address", "smem_address", f"{start}", "a multiple of 16, at least 0", "Leave it out if unknown.")
    best: tuple[int, Layout, bool] | None = None
    equally_good = 0
    for transposed in (False, True) if min(matrix.shape) > 1 else (False,):
        wanted = np.ascontiguousarray(matrix.T) if transposed else matrix
        for layout in _candidates(wanted.shape, matrix.itemsize, start):
            places = layout.addresses() - layout.start
            if places.min() < 0 or places.max() + matrix.itemsize > len(dump):
                continue
            wrong = int((_elements(dump, places, matrix) != wanted).sum())
            if best is None or wrong < best[0]:
                best, equally_good = (wrong, layout, transposed), 0
            elif wrong == best[0]:
                equally_good += 1
    if best is None:
        raise broken(
            "dump-extent", "smem_bytes", f"{len(dump)} bytes", f"the tile alone takes {matrix.nbytes} bytes",
            "Give the dump from the tile's first byte to its last.",
        )  # fmt: skip
    return _identified(dump, matrix, best[1], best[2], equally_good)


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
        found = f"a {type(tile).__name__}" if array is None else f"an array of {array.dtype} of shape {array.shape}"
        raise broken(
            "tile", "tile", found, "a 2-D array of elements of 1, 2, 4 or 8 bytes",
            "Give rows and columns as the kernel sees them; view wider elements as pairs.",
        )  # fmt: skip
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def _candidates(shape: tuple[int, ...], element_bytes: int, start: int | None) -> Iterator[Layout]:
    """Layouts of a tile, simple ones first."""
    rows, columns = shape
    row_bytes = columns * element_bytes
    for swizzle in SWIZZLE.values():
        offsets = range(swizzle.period_lines) if start is None else (swizzle.base_offset(start),)
        span = swizzle.span_bytes or CHUNK_BYTES
        paddings = {0} if swizzle.span_bytes is None or row_bytes >= span else {0, span - row_bytes}
        atom = (ATOM_ROWS, span // element_bytes)
        has_atoms = rows % atom[0] == 0 and columns % atom[1] == 0 and columns > atom[1] and rows > 1
        for offset in offsets:
            options: dict[str, Any] = {"swizzle": swizzle, "start": offset * SMEM_LINE_BYTES}
            for padding in sorted(paddings, reverse=True):  # TMA's own pitch first
                yield Layout((rows, columns), element_bytes * 8, padding_bytes=padding, **options)
            if has_atoms:
                for order in ATOM_ORDERS:
                    yield Layout((rows, columns), element_bytes * 8, atom=atom, atom_order=order, **options)


def _elements(dump: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What the dump holds at byte offsets, as elements."""
    size = like.itemsize
    words = dump[: len(dump) // size * size].view(like.dtype)
    return words[places // size]


def _identified(
    dump: npt.NDArray[np.uint8], matrix: npt.NDArray[Any], layout: Layout, transposed: bool, equally_good: int
) -> Identification:
    wanted = np.ascontiguousarray(matrix.T) if transposed else matrix
    places = layout.addresses() - layout.start
    found = _elements(dump, places, matrix)
    size = matrix.itemsize
    differ = (np.ascontiguousarray(found).view(np.uint8) != wanted.view(np.uint8)).reshape(*wanted.shape, size)
    wrong = int(differ.sum())
    if not wrong:
        return Identification(layout, transposed, 0, None, equally_good)
    where = np.argwhere(differ)
    addresses = places[where[:, 0], where[:, 1]] + where[:, 2]
    first = int(addresses.argmin())
    row, column, byte = where[first].tolist()
    first_wrong = WrongByte(
        *((column, row) if transposed else (row, column)), byte, int(wanted[row, column]) >> 8 * byte & 0xFF,
        int(dump[addresses[first]]), int(addresses[first]),
    )  # fmt: skip
    return Identification(layout, transposed, wrong, first_wrong, equally_good)
