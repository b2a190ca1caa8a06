"""Shared memory by its lines of 128 bytes: eight chunks of 16 bytes, each under the four banks that hold it.

bank     0-3  4-7  8-11 …
0x0000
0x0080
"""

from __future__ import annotations

from collections.abc import Callable

from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.grid import BANK_BYTES, Cell, Grid, Row, Tier, drawn_of


def memory_grid(
    title: str,
    first: int,
    end: int,
    cell: Callable[[int], Cell],
    *,
    most: int | None = None,
    period: int = 0,
    numbered: bool = False,
    notes: tuple[str, ...] = (),
) -> Grid:
    """The lines with bytes `first` to below `end`, at most `most` of them; `cell` draws the chunk at an address.

    A rule stands above every line that starts a pattern of `period` lines; `numbered` adds the numbers of the chunks.

    >>> grid = memory_grid("Two lines", 0x80, 0x110, lambda address: Cell(hex(address)))
    >>> grid.rows[1].labels, grid.rows[1].cells[2].text
    (('0x0100',), '0x120')
    """
    lines = range(first // SMEM_LINE_BYTES, -(-end // SMEM_LINE_BYTES))
    rows = tuple(
        Row(
            (f"{line * SMEM_LINE_BYTES:#06x}",),
            tuple(cell(line * SMEM_LINE_BYTES + place * CHUNK_BYTES) for place in range(CHUNKS_PER_LINE)),
            ruled=bool(period) and line > lines[0] and line % period == 0,
        )
        for line in lines[:most]
    )
    chunks = (Tier.of("chunk", range(CHUNKS_PER_LINE)),) if numbered else ()
    banks = Tier.of_ranges("bank", CHUNKS_PER_LINE, CHUNK_BYTES // BANK_BYTES)
    cut = drawn_of((len(rows),), (len(lines),), ("lines",))
    return Grid(title, (banks, *chunks), rows, ("byte",), (*notes, *cut))


def chunk_bytes(address: int) -> str:
    """The bytes and the banks of a chunk, for its tooltip.

    >>> chunk_bytes(0x90)
    'bytes 0x90 to 0x9f, banks 4-7'
    """
    bank = address // BANK_BYTES % 32
    return f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}, banks {bank}-{bank + 3}"
