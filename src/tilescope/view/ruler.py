"""A bit ruler: the named fields of a register or a descriptor, drawn to scale, the highest bit at the left.

    31    24      16       8       0
    [----stride----]·ccb[-address--]

    key  bits   field    value  meaning
    a    0-10   address  0x40   0x400
    b    11     enabled  1
    c    12-13  mode     2      64-byte rows
    d    15-31  stride   0x8    128 bytes

A field too narrow for its name shows a key letter, and the table below tells what it is. Wide
descriptors take several rows; rows in which no field is named are gathered into one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import ascii_letters, digits

from tilescope.view.grid import Cell, Grid, extent, number_span
from tilescope.view.palette import MARK_SIGN, Mark, Tint

_KEYS = ascii_letters + digits + "@#"  # 64: one for every bit of a row
_BYTES_PER_ROW = 16


@dataclass(frozen=True, slots=True)
class BitField:
    """Bits `low` to `high` (both included), counted from the least significant bit of the whole."""

    low: int
    high: int
    name: str
    value: str = ""
    meaning: str = ""
    colour: Tint = None  # None: the next of the eight
    mark: Mark = ""

    @property
    def link(self) -> str:
        """The word that links all pieces of this field with the bytes that hold it."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a field that lies in one row, with bit numbers counted within the row."""

    low: int
    high: int
    key: str
    field: BitField


@dataclass(frozen=True, slots=True)
class RulerRow:
    """Rows `first` to `last` of the ruler; more than one only where none of them has a field."""

    first: int
    last: int
    pieces: tuple[Piece, ...]  # highest bits first, as they are drawn

    def segments(self, bits: int) -> Iterator[tuple[int, int, Piece | None]]:
        """All bits of a row, the highest first: those of the pieces, and between them those that no field claims."""
        above = bits
        for piece in self.pieces:
            yield piece.high + 1, above - 1, None
            yield piece.low, piece.high, piece
            above = piece.low
        yield 0, above - 1, None


@dataclass(frozen=True, slots=True)
class BitRuler:
    """Fields of a word of `bits` bits, `row_bits` (32 or 64) to a row.

    >>> ruler = BitRuler("a word", (BitField(0, 13, "start"), BitField(62, 63, "swizzle")))
    >>> [(piece.low, piece.high, piece.key) for piece in ruler.rows()[0].pieces]
    [(62, 63, 'b'), (0, 13, 'a')]
    """

    title: str
    fields: tuple[BitField, ...]
    bits: int = 64
    row_bits: int = 64
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.row_bits in (32, 64), self.row_bits
        assert self.bits % self.row_bits == 0, self.bits
        bits = [bit for field in self.coloured_fields() for bit in range(field.low, field.high + 1)]
        assert bits == sorted({*bits} & {*range(self.bits)}), (self.title, "fields overlap or leave the word")

    def coloured_fields(self) -> list[BitField]:
        """The fields from the lowest bit up; those without a colour take the eight in turn."""
        ordered = enumerate(sorted(self.fields, key=lambda field: field.low))
        return [field if field.colour is not None else replace(field, colour=number) for number, field in ordered]

    def rows(self) -> tuple[RulerRow, ...]:
        """What to draw, row by row; keys start again at "a" in every row."""
        fields = self.coloured_fields()
        names = {field.name.casefold() for field in fields}
        keys = [key for key in _KEYS if key.casefold() not in names]  # an "m" beside a field M would be read as it
        rows: list[RulerRow] = []
        for number in range(self.bits // self.row_bits):
            start, last = number * self.row_bits, (number + 1) * self.row_bits - 1
            here = [field for field in fields if field.low <= last and field.high >= start]
            pieces = tuple(
                Piece(max(field.low, start) - start, min(field.high, last) - start, key, field)
                for key, field in zip(keys, here, strict=False)
            )
            if not pieces and rows and not rows[-1].pieces:
                rows[-1] = replace(rows[-1], last=number)
            else:
                rows.append(RulerRow(number, number, pieces[::-1]))
        return tuple(rows)

    def row_label(self, row: RulerRow) -> str:
        """Such as "word 3" or "words 10-15"; empty for a register of a single row.

        >>> BitRuler("", (), bits=128).row_label(RulerRow(0, 1, ()))
        'words 0-1'
        """
        several = "s" if row.last > row.first else ""
        return "" if self.bits == self.row_bits else f"word{several} {number_span(row.first, row.last)}"

    def table_rows(self) -> list[list[str]]:
        """A line for every piece of a field: key, bits, name, value, meaning; first the row, if there are several."""
        lines = []
        for row in self.rows():
            for piece in reversed(row.pieces):
                field, label = piece.field, [self.row_label(row)] if self.bits > self.row_bits else []
                name = field.name + MARK_SIGN[field.mark]
                lines.append([*label, piece.key, number_span(piece.low, piece.high), name, field.value, field.meaning])
        return lines

    def table_headings(self) -> tuple[str, ...]:
        """The headings over `table_rows`."""
        row = ("word",) if self.bits > self.row_bits else ()
        return (*row, "key", "bits", "field", "value", "meaning")


def byte_grid(ruler: BitRuler, title: str, content: bytes) -> Grid:
    """The bytes of a descriptor with its fields in colour: what a debugger shows, beside the ruler that names the bits.

        byte   0  1  2  3  4  5  6  7 …      a cell is a byte, in the colour of the field that its lowest bits belong to;
        0x00  00 00 20 5a 7f 00 00 00        bytes and pieces of the ruler that share a field share a link
        0x10  10 65 01 00 00 02 00 00

    >>> grid = byte_grid(BitRuler("", (BitField(0, 11, "start"), BitField(12, 15, "mode"))), "", bytes([0x40, 0x20]))
    >>> [(cell.text, cell.link) for cell in grid.rows[0].cells[:2]]
    [('40', 'start'), ('20', 'start mode')]
    """
    fields = ruler.coloured_fields()

    def cell(start: int, column: int) -> Cell:
        number = start + column
        inside = [field for field in fields if field.low <= number * 8 + 7 and field.high >= number * 8]
        text, where = f"{content[number]:02x}", f"byte {number} = {content[number]:#04x}, bits {extent(number * 8, 8)}"
        if not inside:
            return Cell(text, "unused", title=f"{where}: no field")
        said = "; ".join(f"{field.name} = {field.value}" for field in inside)
        mark: Mark = next((field.mark for field in inside if field.mark), "")
        return Cell(text, inside[0].colour, mark, f"{where}: {said}", link=" ".join(field.link for field in inside))

    starts = {start: f"{start:#04x}" for start in range(0, len(content), _BYTES_PER_ROW)}
    return Grid.of(title, ("", "byte"), starts, range(min(_BYTES_PER_ROW, len(content))), cell)
