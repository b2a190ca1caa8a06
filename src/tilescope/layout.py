"""The byte address of element (row, column) of a tile in shared memory.

A tile is drawn with its contiguous dimension left to right. It is cut into *atoms*, each stored whole;
atoms follow each other down a column or along a row; then the swizzle moves chunks within lines:

    tile of 2 x 2 atoms        order "column"          order "row"
    ┌────┬────┐
    │ 00 │ 01 │                00 10 01 11             00 01 10 11        ← in shared memory
    ├────┼────┤
    │ 10 │ 11 │                one TMA box spans       atoms of one row
    └────┴────┘                a column of atoms       lie side by side

    address = swizzle( start + atom number * atom bytes + row in atom * pitch + column in atom * bits / 8 )

A plain row-major tile is one atom as large as the tile; padding widens the pitch of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, broken, printed, printed_hex
from tilescope.reading import entries, plain_int
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.value import Value, hex_field, row_field

AtomOrder = Literal["column", "row"]
ATOM_ORDERS: tuple[AtomOrder, ...] = ("column", "row")
_WINDOW_BYTES = 1 << 32  # a shared address has 32 bits


@dataclass(frozen=True, slots=True, init=False)
class Layout(Value):
    """A tile of `shape` (rows, columns) elements in shared memory; columns are contiguous.

    >>> tile = Layout((64, 64), 16, swizzle="128B", start=0x400)
    >>> hex(tile.address(1, 0)), hex(tile.address(0, 8))
    ('0x490', '0x410')
    >>> tile.locate(0x490)
    (1, 0)
    """

    shape: tuple[int, int]  # rows, columns in elements
    element_bits: int
    atom: tuple[int, int]  # rows, columns of what is stored whole
    atom_order: AtomOrder
    padding_bytes: int  # after each row of an atom
    swizzle: Swizzle = row_field(Swizzle.named)
    start: int = hex_field()  # absolute shared address of the first logical byte

    def __init__(
        self,
        shape: tuple[int, int],
        element_bits: int,
        *,
        atom: tuple[int, int] | None = None,
        atom_order: AtomOrder = "column",
        padding_bytes: int = 0,
        swizzle: SwizzleName | str | Swizzle = "none",
        start: int = 0,
    ) -> None:
        row = Swizzle.named(swizzle)
        tile = _pair("shape", shape)
        whole = tile if atom is None else _pair("atom", atom)
        problems = _problems(tile, element_bits, whole, atom_order, padding_bytes, start)
        if problems:
            raise RuleError(problems)
        for name, value in (
            ("shape", tile), ("element_bits", plain_int(element_bits)), ("atom", whole), ("atom_order", atom_order),
            ("padding_bytes", plain_int(padding_bytes)), ("swizzle", row), ("start", plain_int(start)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def pitch_bytes(self) -> int:
        """From one row of an atom to the next."""
        return self.atom[1] * self.element_bits // 8 + self.padding_bytes

    @property
    def atom_bytes(self) -> int:
        """From one atom to the next in shared memory."""
        return self.atom[0] * self.pitch_bytes

    @property
    def atom_grid(self) -> tuple[int, int]:
        """How many atoms the tile is high and wide."""
        return self.shape[0] // self.atom[0], self.shape[1] // self.atom[1]

    @property
    def atom_strides_bytes(self) -> tuple[int, int]:
        """Bytes to the atom below, and to the atom on the right.

        >>> Layout((64, 32), 16, atom=(8, 16), swizzle="32B").atom_strides_bytes
        (256, 2048)
        >>> Layout((64, 32), 16, atom=(8, 16), atom_order="row", swizzle="32B").atom_strides_bytes
        (512, 256)
        """
        high, wide = self.atom_grid
        if self.atom_order == "column":
            return self.atom_bytes, high * self.atom_bytes
        return wide * self.atom_bytes, self.atom_bytes

    @property
    def size_bytes(self) -> int:
        """Shared memory from the first logical byte to the end of the last atom, padding included."""
        high, wide = self.atom_grid
        return high * wide * self.atom_bytes

    @property
    def alignment_bytes(self) -> int:
        """Alignment of `start` at which the swizzle pattern starts at its first line."""
        return max(self.swizzle.repeat_bytes, SMEM_LINE_BYTES)

    def with_start(self, start: int) -> Layout:
        """The same tile at another shared address."""
        return Layout(
            self.shape, self.element_bits, atom=self.atom, atom_order=self.atom_order,
            padding_bytes=self.padding_bytes, swizzle=self.swizzle, start=start,
        )  # fmt: skip

    @overload
    def logical(self, row: int, column: int) -> int: ...
    @overload
    def logical(self, row: npt.ArrayLike, column: npt.ArrayLike) -> npt.NDArray[np.int64]: ...
    def logical(self, row: Any, column: Any) -> Any:
        """Address before the swizzle; for elements below a byte, of the byte that holds the first bit."""
        if isinstance(row, int) and isinstance(column, int):
            if not (0 <= row < self.shape[0] and 0 <= column < self.shape[1]):
                raise self._outside(f"({printed(row)}, {printed(column)}) outside the tile")
        else:
            row, column = self._indices(row, column)
        below, beside = self.atom_strides_bytes
        atom_rows, atom_columns = self.atom
        down, across = row // atom_rows, column // atom_columns
        from_rows = self.start + down * below + (row - down * atom_rows) * self.pitch_bytes  # % takes numpy far longer
        from_columns = across * beside + (column - across * atom_columns) * self.element_bits // 8
        return from_rows + from_columns

    @overload
    def address(self, row: int, column: int) -> int: ...
    @overload
    def address(self, row: npt.ArrayLike, column: npt.ArrayLike) -> npt.NDArray[np.int64]: ...
    def address(self, row: Any, column: Any) -> Any:
        """Physical byte address of element (row, column); arrays broadcast."""
        return self.swizzle.apply(self.logical(row, column))

    def addresses(self) -> npt.NDArray[np.int64]:
        """Physical byte address of every element, as an array of the tile's shape."""
        rows, columns = self.shape
        return self.address(np.arange(rows)[:, None], np.arange(columns)[None, :])

    def locate(self, address: int) -> tuple[int, int] | None:
        """The element at a physical shared address; None for padding and bytes outside the tile.

        Where elements are narrower than a byte or not a whole number of them, the one with the byte's first bit.

        >>> Layout((2, 64), 16, padding_bytes=16).locate(0x80) is None
        True
        """
        place = plain_int(address)
        if place is None or place < 0:
            found = printed(address)
            raise broken("address", "address", found, "an integer of at least 0", "Give a byte address.")
        offset = self.swizzle.apply(place) - self.start
        if not 0 <= offset < self.size_bytes:
            return None
        high, wide = self.atom_grid
        number, within = divmod(offset, self.atom_bytes)
        down, across = (number % high, number // high) if self.atom_order == "column" else divmod(number, wide)
        row, byte = divmod(within, self.pitch_bytes)
        column = byte * 8 // self.element_bits
        if column >= self.atom[1]:
            return None
        return down * self.atom[0] + row, across * self.atom[1] + column

    @property
    def c_expression(self) -> str:
        """The physical address of element (r, c) as a C expression of `base`, with `unsigned a` declared.

        >>> Layout((64, 64), 16, swizzle="128B").c_expression
        '(a = base + r * 128 + c * 2, a ^ ((a >> 3) & 0x70))'
        >>> Layout((8, 33), 32, padding_bytes=4).c_expression
        'base + r * 136 + c * 4'
        """
        below, beside = self.atom_strides_bytes
        rows, columns = self.atom
        if below == rows * self.pitch_bytes or self.atom_grid[0] == 1:
            terms = [f"r * {self.pitch_bytes}"]
        else:
            terms = [f"r / {rows} * {below}", f"r % {rows} * {self.pitch_bytes}"]
        bits = self.element_bits
        element = "" if bits == 8 else f" * {bits // 8}" if bits % 8 == 0 else f" * {bits} / 8"
        if self.atom_grid[1] == 1:
            terms.append(f"c{element}")
        else:
            terms += [f"c / {columns} * {beside}", f"c % {columns}{element}"]
        logical = "base + " + " + ".join(terms)
        return logical if self.swizzle.bits == 0 else f"(a = {logical}, {self.swizzle.c_expression})"

    def _indices(self, row: Any, column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rows and columns as integer arrays that broadcast with each other, all inside the tile."""
        try:
            rows, columns = np.asarray(row), np.asarray(column)
            np.broadcast_shapes(rows.shape, columns.shape)
        except Exception:  # noqa: BLE001  ragged lists, shapes that do not meet, objects that raise what they like
            raise self._outside("indices that make no array") from None
        if rows.size == 0 or columns.size == 0:
            return rows.astype(np.int64), columns.astype(np.int64)
        for index, extent in ((rows, self.shape[0]), (columns, self.shape[1])):
            if index.dtype.kind not in "iu":
                raise self._outside(f"indices of {index.dtype}")
            if index.min() < 0 or index.max() >= extent:
                raise self._outside(f"indices from {index.min()} to {index.max()}")
        return rows.astype(np.int64), columns.astype(np.int64)

    def _outside(self, found: str) -> RuleError:
        rows, columns = self.shape
        limit = f"integer rows 0..{rows - 1}, columns 0..{columns - 1}"
        return broken("tile-index", "row, column", found, limit, "Index inside the tile.")


def _pair(argument: str, given: Any) -> tuple[int, int]:
    found = [plain_int(each) for each in entries(given, 3) or ()]
    rows, columns = found if len(found) == 2 else (None, None)
    if rows is None or columns is None or min(rows, columns) < 1:
        raise broken(
            "layout", argument, f"{argument} = {printed(given)}", "two integers of at least 1: rows, columns",
            "Give (rows, columns) in elements.",
        )  # fmt: skip
    return rows, columns


def _problems(
    shape: tuple[int, int], element_bits: Any, atom: tuple[int, int], atom_order: Any, padding_bytes: Any, start: Any
) -> list[Violation]:
    problems = []

    def refuse(argument: str, found: str, limit: str, fix: str) -> None:
        problems.append(Violation("layout", "error", argument, found, limit, fix))

    bits, padding, address = plain_int(element_bits), plain_int(padding_bytes), plain_int(start)
    if bits not in (1, 2, 4, 6, 8, 16, 32, 64, 128):
        found = f"{printed(element_bits)} bits"
        refuse("element_bits", found, "1, 2, 4, 6, 8, 16, 32, 64 or 128", "Give the element's bits.")
    elif atom[1] * bits % 8:
        refuse("atom", f"a row of {atom[1]} elements of {bits} bits", "rows are whole bytes", "Widen the atom.")
    if shape[0] % atom[0] or shape[1] % atom[1]:
        refuse(
            "shape", f"{shape[0]} x {shape[1]} elements in atoms of {atom[0]} x {atom[1]}",
            "a tile is a whole number of atoms", f"Use {-(-shape[0] // atom[0]) * atom[0]} x "
            f"{-(-shape[1] // atom[1]) * atom[1]}.",
        )  # fmt: skip
    if not isinstance(atom_order, str) or atom_order not in ATOM_ORDERS:
        refuse("atom_order", printed(atom_order), '"column" or "row"', 'Use "column" unless you know better.')
    if padding is None or padding < 0:
        refuse("padding_bytes", printed(padding_bytes), "an integer of at least 0", "Use padding_bytes=0.")
    if address is None or address < 0:
        refuse("start", printed(start), "an integer of at least 0", "Give a shared address.")
    if not problems and bits and padding is not None and address is not None:
        size_bytes = shape[0] * shape[1] // atom[1] * (atom[1] * bits // 8 + padding)
        if address + size_bytes > _WINDOW_BYTES:
            found = f"{printed(size_bytes)} bytes from {printed_hex(address)}"
            refuse("shape", found, "shared addresses have 32 bits", "Make the tile smaller.")
    return problems
