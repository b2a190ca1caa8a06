"""The bytes of a descriptor with its fields in colour: what a debugger shows, beside the ruler that names the bits.

byte   0  1  2  3  4  5  6  7 …      a cell is a byte, in the colour of the field that its lowest bits belong to;
0x00  00 00 20 5a 7f 00 00 00        bytes and pieces of the ruler that share a field share a link
0x10  10 65 01 00 00 02 00 00
"""

from __future__ import annotations

from tilescope.view.grid import Cell, Grid, Row, Tier, number_span
from tilescope.view.palette import Mark
from tilescope.view.ruler import BitField, BitRuler

_BYTES_PER_ROW = 16
_BITS = 8


def byte_grid(ruler: BitRuler, title: str, content: bytes) -> Grid:
    """The bytes that the ruler's fields are read from, lowest address first.

    >>> grid = byte_grid(BitRuler("", (BitField(0, 11, "start"), BitField(12, 15, "mode"))), "", bytes([0x40, 0x20]))
    >>> [(cell.text, cell.link) for cell in grid.rows[0].cells[:2]]
    [('40', 'start'), ('20', 'start mode')]
    """
    fields = ruler.coloured_fields()
    rows = []
    for first in range(0, len(content), _BYTES_PER_ROW):
        line = content[first : first + _BYTES_PER_ROW]
        cells = tuple(_cell(number, byte, fields) for number, byte in enumerate(line, first))
        rows.append(Row((f"{first:#04x}",), cells))
    width = min(_BYTES_PER_ROW, len(content))
    return Grid(title, (Tier.of("byte", range(width)),), tuple(rows))


def _cell(number: int, byte: int, fields: list[BitField]) -> Cell:
    low, high = number * _BITS, number * _BITS + _BITS - 1
    inside = [field for field in fields if field.low <= high and field.high >= low]
    where = f"byte {number} = {byte:#04x}, bits {number_span(low, high)}"
    if not inside:
        return Cell(f"{byte:02x}", "unused", title=f"{where}: no field")
    said = "; ".join(f"{field.name} = {field.value}" for field in inside)
    link = " ".join(field.link for field in inside)
    mark: Mark = next((field.mark for field in inside if field.mark), "")
    return Cell(f"{byte:02x}", inside[0].colour, mark, f"{where}: {said}", link=link)
