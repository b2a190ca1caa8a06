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

from dataclasses import dataclass, replace
from itertools import groupby
from string import ascii_letters, digits
from typing import NamedTuple

from tilescope.view.grid import Cell, Grid
from tilescope.view.number_span import extent, number_span
from tilescope.view.palette import MARK_SIGN, Mark, Tint
from tilescope.view.table import Table

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


NARROW_BITS = 32  # of a line, where a row of 64 has no room


class Piece(NamedTuple):
    """The part of a field in one row, bits counted within the row; or bits that no field covers."""

    low: int
    high: int
    key: str = ""
    field: BitField | None = None


class RulerRow(NamedTuple):
    """A word of the ruler, or several words without a field; its label is empty if it is the only one."""

    label: str
    pieces: list[Piece]  # of all bits, the highest first
    first_bit: int = 0  # the lowest bit that is drawn

    @property
    def fields(self) -> list[tuple[Piece, BitField]]:
        """The pieces of fields, from the lowest bit up."""
        return [(piece, piece.field) for piece in reversed(self.pieces) if piece.field is not None]


@dataclass(frozen=True, slots=True)
class BitRuler:
    """Fields of a word of `bits` bits, `row_bits` (32 or 64) to a row; fields without a colour take the eight in turn.

    >>> ruler = BitRuler("a word", (BitField(0, 13, "start"), BitField(62, 63, "swizzle")))
    >>> [(piece.low, piece.high, piece.key) for piece in ruler.rows()[0].pieces]
    [(62, 63, 'b'), (14, 61, ''), (0, 13, 'a')]
    """

    title: str
    fields: tuple[BitField, ...]  # from the lowest bit up
    bits: int = 64
    row_bits: int = 64
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.fields, key=lambda field: field.low)
        coloured = [
            replace(field, colour=number) if field.colour is None else field for number, field in enumerate(ordered)
        ]
        object.__setattr__(self, "fields", tuple(coloured))
        bits = [bit for field in coloured for bit in range(field.low, field.high + 1)]
        assert len({*bits}) == len(bits), (self.title, "fields overlap")
        assert {*bits} <= {*range(self.bits)}, (self.title, "fields leave the word")

    def rows(self) -> list[RulerRow]:
        """What to draw, row by row; keys start again at "a" in every row, and words without a field are one row.

        >>> BitRuler("", (), bits=128).rows()[0].label
        'words 0-1'
        """
        starts = range(0, self.bits, self.row_bits)
        rows: list[RulerRow] = []
        for has_fields, run in groupby(starts, lambda start: bool(self._fields_from(start))):
            if has_fields:
                rows += [RulerRow(self._label(start, 1), self._pieces(start)) for start in run]
            else:
                start, *others = run
                rows.append(RulerRow(self._label(start, 1 + len(others)), self._pieces(start)))
        return rows

    def narrow_rows(self) -> list[RulerRow]:
        """The rows in lines of 32 bits, the higher ones first; bits keep their numbers, and lines without a field are left out.

        >>> ruler = BitRuler("a word", (BitField(0, 13, "start"), BitField(62, 63, "swizzle")))
        >>> [[(piece.low, piece.high) for piece in row.pieces] for row in ruler.narrow_rows()]
        [[(62, 63), (32, 61)], [(14, 31), (0, 13)]]
        """
        lines: list[RulerRow] = []
        for row in self.rows():
            if not row.fields:
                lines.append(row)
                continue
            label = row.label
            for first in reversed(range(0, self.row_bits, NARROW_BITS)):
                pieces = [
                    piece._replace(low=max(piece.low, first), high=min(piece.high, first + NARROW_BITS - 1))
                    for piece in row.pieces
                    if piece.low < first + NARROW_BITS and piece.high >= first
                ]
                if any(piece.field is not None for piece in pieces):
                    lines.append(RulerRow(label, pieces, first))
                    label = ""  # the next line goes on with the same word
        return lines

    def _fields_from(self, start: int) -> list[BitField]:
        """The fields with bits in the row that starts with bit `start`."""
        return [field for field in self.fields if field.low < start + self.row_bits and field.high >= start]

    def _label(self, start: int, count: int) -> str:
        """The label of `count` rows from bit `start` on; empty if there is only one."""
        if self.bits <= self.row_bits:
            return ""
        noun = "word" if count == 1 else "words"
        return f"{noun} {extent(start // self.row_bits, count)}"

    def _pieces(self, start: int) -> list[Piece]:
        """The bits of a row, the highest first: parts of fields, and the bits between them."""
        names = {field.name.casefold() for field in self.fields}
        keys = [key for key in _KEYS if key.casefold() not in names]  # an "m" near a field M would be mistaken for it
        pieces: list[Piece] = []
        reached = 0
        for key, field in zip(keys, self._fields_from(start), strict=False):
            low = max(field.low - start, 0)
            high = min(field.high - start, self.row_bits - 1)
            if reached < low:
                pieces.append(Piece(reached, low - 1))
            pieces.append(Piece(low, high, key, field))
            reached = high + 1
        if reached < self.row_bits:
            pieces.append(Piece(reached, self.row_bits - 1))
        return pieces[::-1]

    def table(self) -> Table:
        """A line for every piece of a field: key, bits, name, value, meaning; first the word, if there are several."""
        records = []
        for row in self.rows():
            for piece, field in row.fields:
                record = {"word": row.label} if row.label else {}
                record |= {
                    "key": piece.key,
                    "bits": number_span(piece.low, piece.high),
                    "field": field.name + MARK_SIGN[field.mark],
                    "value": field.value,
                    "meaning": field.meaning,
                }
                records.append(record)
        return Table.of(records, notes=self.notes)


def byte_grid(ruler: BitRuler, title: str, content: bytes) -> Grid:
    """The bytes of a descriptor with its fields in colour: a debugger's view, beside the ruler that names the bits.

        byte   0  1  2  3  4  5  6  7 …      a cell is a byte, in the colour of the field of its lowest bits;
        0x00  00 00 20 5a 7f 00 00 00        bytes and pieces of the ruler that share a field share a link
        0x10  10 65 01 00 00 02 00 00

    >>> grid = byte_grid(BitRuler("", (BitField(0, 11, "start"), BitField(12, 15, "mode"))), "", bytes([0x40, 0x20]))
    >>> [(cell.text, cell.link) for cell in grid.rows[0].cells[:2]]
    [('40', 'start'), ('20', 'start mode')]
    """

    def cell(start: int, column: int) -> Cell:
        number = start + column
        inside = [field for field in ruler.fields if field.low <= number * 8 + 7 and field.high >= number * 8]
        text = f"{content[number]:02x}"
        where = f"byte {number} = {content[number]:#04x}, bits {extent(number * 8, 8)}"
        if not inside:
            return Cell(text, "unused", title=f"{where}: no field")
        values = "; ".join(f"{field.name} = {field.value}" for field in inside)
        mark: Mark = next((field.mark for field in inside if field.mark), "")
        return Cell(text, inside[0].colour, mark, f"{where}: {values}", link=" ".join(field.link for field in inside))

    starts = {start: f"{start:#04x}" for start in range(0, len(content), _BYTES_PER_ROW)}
    return Grid.of(title, ("", "byte"), starts, range(min(_BYTES_PER_ROW, len(content))), cell)
