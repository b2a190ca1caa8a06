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

from tilescope.view.grid import Cell, Grid, extent, number_span
from tilescope.view.palette import MARK_SIGN, Mark, Tint
from tilescope.view.parts import Table

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


class Piece(NamedTuple):
    """The part of a field that lies in one row, with bit numbers counted within the row; or bits that no field claims."""

    low: int
    high: int
    key: str = ""
    field: BitField | None = None


class RulerRow(NamedTuple):
    """A word of the ruler, or several words without a field; its label is empty if it is the only one."""

    label: str
    pieces: list[Piece]  # of all bits, the highest first

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
        ordered = enumerate(sorted(self.fields, key=lambda field: field.low))
        coloured = [field if field.colour is not None else replace(field, colour=number) for number, field in ordered]
        object.__setattr__(self, "fields", tuple(coloured))
        bits = [bit for field in coloured for bit in range(field.low, field.high + 1)]
        assert bits == sorted({*bits} & {*range(self.bits)}), (self.title, "fields overlap or leave the word")

    def rows(self) -> list[RulerRow]:
        """What to draw, row by row; keys start again at "a" in every row, and words without a field are one row.

        >>> BitRuler("", (), bits=128).rows()[0].label
        'words 0-1'
        """
        names = {field.name.casefold() for field in self.fields}
        keys = [key for key in _KEYS if key.casefold() not in names]  # an "m" beside a field M would be read as it
        starts, top = range(0, self.bits, self.row_bits), self.row_bits - 1
        held = {
            start: [field for field in self.fields if field.low <= start + top and field.high >= start]
            for start in starts
        }
        rows = []
        for _, run in groupby(starts, lambda start: start if held[start] else -1):
            start, *others = run
            label = f"word{'s' if others else ''} {extent(start // self.row_bits, 1 + len(others))}"
            pieces: list[Piece] = []
            for key, field in zip(keys, held[start], strict=False):
                low, above = max(field.low - start, 0), pieces[-1].high + 1 if pieces else 0
                pieces += [Piece(above, low - 1)] if above < low else []
                pieces.append(Piece(low, min(field.high - start, top), key, field))
            above = pieces[-1].high + 1 if pieces else 0
            pieces += [Piece(above, top)] if above <= top else []
            rows.append(RulerRow(label if len(starts) > 1 else "", pieces[::-1]))
        return rows

    def table(self) -> Table:
        """A line for every piece of a field: key, bits, name, value, meaning; first the word, if there are several."""
        records = (
            ({"word": row.label} if row.label else {})
            | {
                "key": piece.key,
                "bits": number_span(piece.low, piece.high),
                "field": field.name + MARK_SIGN[field.mark],
                "value": field.value,
                "meaning": field.meaning,
            }
            for row in self.rows()
            for piece, field in row.fields
        )
        return Table.of(records, notes=self.notes)


def byte_grid(ruler: BitRuler, title: str, content: bytes) -> Grid:
    """The bytes of a descriptor with its fields in colour: what a debugger shows, beside the ruler that names the bits.

        byte   0  1  2  3  4  5  6  7 …      a cell is a byte, in the colour of the field that its lowest bits belong to;
        0x00  00 00 20 5a 7f 00 00 00        bytes and pieces of the ruler that share a field share a link
        0x10  10 65 01 00 00 02 00 00

    >>> grid = byte_grid(BitRuler("", (BitField(0, 11, "start"), BitField(12, 15, "mode"))), "", bytes([0x40, 0x20]))
    >>> [(cell.text, cell.link) for cell in grid.rows[0].cells[:2]]
    [('40', 'start'), ('20', 'start mode')]
    """

    def cell(start: int, column: int) -> Cell:
        number = start + column
        inside = [field for field in ruler.fields if field.low <= number * 8 + 7 and field.high >= number * 8]
        text, where = f"{content[number]:02x}", f"byte {number} = {content[number]:#04x}, bits {extent(number * 8, 8)}"
        if not inside:
            return Cell(text, "unused", title=f"{where}: no field")
        said = "; ".join(f"{field.name} = {field.value}" for field in inside)
        mark: Mark = next((field.mark for field in inside if field.mark), "")
        return Cell(text, inside[0].colour, mark, f"{where}: {said}", link=" ".join(field.link for field in inside))

    starts = {start: f"{start:#04x}" for start in range(0, len(content), _BYTES_PER_ROW)}
    return Grid.of(title, ("", "byte"), starts, range(min(_BYTES_PER_ROW, len(content))), cell)
