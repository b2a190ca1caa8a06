"""Which bytes each K step reads: the lines of shared memory, every chunk with the step whose descriptor reaches it.

bank       0-3  4-7  8-11 …
0x0000      0    0    1       a cell says the K step, in its colour; the swizzle spreads a step over all banks
0x0080      0    0    1
0x0100      1    1    0
"""

from __future__ import annotations

import numpy as np

from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.view.grid import Cell, Grid, Row, Tier

_MOST_LINES = 256


def step_link(block: int, step: int) -> str:
    """The word that links all chunks of one instruction's read.

    >>> step_link(0, 3)
    'mn0-k3'
    """
    return f"mn{block}-k{step}"


def k_step_grid(loop: DescriptorLoop) -> Grid:
    """Shared memory from the operand's first line on; a cell is a 16-byte chunk.

    >>> from tilescope.mma.wgmma_loop import wgmma_descriptors
    >>> grid = k_step_grid(wgmma_descriptors((64, 64), "bf16", swizzle="128B"))
    >>> [cell.text for cell in grid.rows[2].cells]
    ['1', '1', '0', '0', '3', '3', '2', '2']
    """
    addresses = loop.addresses()
    rows_mn, columns_k = addresses.shape
    block = np.arange(rows_mn) // loop.block_mn
    step = np.arange(columns_k) // loop.k_per_step
    first_line = int(addresses.min()) // SMEM_LINE_BYTES
    chunks: dict[int, tuple[int, int, int, int]] = {}
    places, first = np.unique(addresses.ravel() // CHUNK_BYTES, return_index=True)
    for place, element in zip(places.tolist(), first.tolist(), strict=True):
        mn, k = divmod(element, columns_k)
        chunks[place] = mn, k, int(block[mn]), int(step[k])
    lines = -(-(int(addresses.max()) + 1) // SMEM_LINE_BYTES) - first_line
    drawn = min(lines, _MOST_LINES)
    grid_rows = []
    for line in range(first_line, first_line + drawn):
        cells = tuple(_cell(line * CHUNKS_PER_LINE + place, chunks) for place in range(CHUNKS_PER_LINE))
        grid_rows.append(Row((f"{line * SMEM_LINE_BYTES:#06x}",), cells, ruled=line > first_line and line % 8 == 0))
    notes = ["A cell is a 16-byte chunk and says which K step reads it."]
    notes += [f"Drawn: {drawn} of {lines} lines."] if drawn < lines else []
    return Grid(
        "Which K step reads each chunk",
        (Tier.of_ranges("bank", CHUNKS_PER_LINE, 4),),
        tuple(grid_rows),
        ("byte",),
        tuple(notes),
    )


def _cell(place: int, chunks: dict[int, tuple[int, int, int, int]]) -> Cell:
    address = place * CHUNK_BYTES
    where = f"bytes {address:#x} to {address + CHUNK_BYTES - 1:#x}"
    if place not in chunks:
        return Cell("", "unused", title=f"{where}: no K step reads them")
    mn, k, block, step = chunks[place]
    title = f"{where}: from mn {mn}, k {k}; read by K step {step} of block {block}"
    return Cell(str(step), step, title=title, link=step_link(block, step))
