"""Shared memory as a grid: lines of 128 bytes, cut into pieces, under the banks that hold them.

byte    bank   0-3    4-7    8-11   …  28-31
0x0000         0x00   0x10   0x20      0x70
0x0080         0x80   0x90   0xa0      0xf0     address 0x90 is in bank 0x90 / 4 % 32 = 4
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from tilescope.smem.op import BANK_BYTES, BANKS
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.grid import Cell, Grid, Header, Tier
from tilescope.view.number_span import extent


def memory_grid(
    title: str,
    lines: Iterable[int],
    cell: Callable[[int], Cell],
    *,
    piece_bytes: int = CHUNK_BYTES,
    most: int | None = None,
    asked: Collection[int] = (),
    period: int = 0,
    numbered: bool = False,
    notes: Iterable[str] = (),
) -> Grid:
    """Shared memory by lines of 128 bytes, cut into pieces under the banks that hold them.

    `cell` draws the piece at an address. `lines` are the addresses of the lines, of which at most `most` are drawn, those
    that were `asked` for among them. A rule stands above every line that starts a pattern of `period` lines; `numbered`
    adds the numbers of the pieces. Rows of pieces smaller than a bank are 32 wide.

    >>> grid = memory_grid("Two lines", lines_of_bytes(0x80, 0x110), lambda address: Cell(hex(address)))
    >>> grid.rows[1].labels, grid.rows[1].cells[2].text
    (('0x0100',), '0x120')
    """
    row_bytes = memory_row_bytes(piece_bytes)
    places = range(0, row_bytes, piece_bytes)
    name = "bank" if row_bytes == SMEM_LINE_BYTES else "word"
    headers: dict[int, object] = {
        byte: Header.of_numbers(byte // BANK_BYTES, max(1, piece_bytes // BANK_BYTES)) for byte in places
    }
    outer: tuple[Tier, ...] = ()
    if numbered:
        outer = (Tier.of(name, headers.values()),)
        name = "chunk"
        headers = {byte: byte // piece_bytes for byte in places}
    return Grid.of(
        title,
        ("byte", name),
        {line: f"{line:#06x}" for line in lines},
        headers,
        lambda line, byte: cell(line + byte),
        outer=outer,
        rule_every=period * row_bytes,
        notes=notes,
        most=(most, None),
        asked=(asked, ()),
        nouns=("lines", "columns"),
    )


def memory_row_bytes(piece_bytes: int) -> int:
    """Bytes in a row of a drawing of shared memory: a line, or 32 pieces smaller than a bank.

    >>> memory_row_bytes(16), memory_row_bytes(1)
    (128, 32)
    """
    return min(SMEM_LINE_BYTES, BANKS * piece_bytes)


def lines_of_bytes(first: int, end: int) -> range:
    """The addresses of the lines of shared memory with bytes `first` to below `end`.

    >>> [*lines_of_bytes(0x90, 0x110)]
    [128, 256]
    """
    return range(first // SMEM_LINE_BYTES * SMEM_LINE_BYTES, end, SMEM_LINE_BYTES)


def chunk_bytes(address: int) -> str:
    """The bytes and the banks of a chunk, for its tooltip.

    >>> chunk_bytes(0x90)
    'bytes 0x90 to 0x9f, banks 4-7'
    """
    return f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}, {bank_words(bank_of(address), CHUNK_BYTES)}"


def bank_of(address: int) -> int:
    """The bank of a byte.

    >>> bank_of(0x90)
    4
    """
    return address // BANK_BYTES % BANKS


def bank_words(bank: int, length_bytes: int) -> str:
    """The banks that hold `length_bytes` from a bank on.

    >>> bank_words(4, 16), bank_words(7, 4)
    ('banks 4-7', 'bank 7')
    """
    count = length_bytes // BANK_BYTES
    return f"banks {extent(bank, count)}" if count > 1 else f"bank {bank}"
