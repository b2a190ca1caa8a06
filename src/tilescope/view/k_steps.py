"""Which bytes each K step reads: the lines of shared memory, every chunk with the step whose descriptor reaches it.

bank       0-3  4-7  8-11 …
0x0000      0    0    1       a cell says the K step, in its colour; the swizzle spreads a step over all banks
0x0080      0    0    1
0x0100      1    1    0
"""

from __future__ import annotations

import numpy as np

from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.swizzle import CHUNK_BYTES
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import chunk_bytes, memory_grid

_MOST_LINES = 256
_PATTERN_LINES = 8


def step_link(block: int, step: int) -> str:
    """The word that links all chunks of one instruction's read.

    >>> step_link(0, 3)
    'mn0-k3'
    """
    return f"mn{block}-k{step}"


def k_step_grid(loop: DescriptorLoop) -> Grid:
    """Shared memory from the operand's first line on; a cell is a 16-byte chunk.

    >>> from tilescope.mma.instruction_loops import wgmma_descriptors
    >>> grid = k_step_grid(wgmma_descriptors((64, 64), "bf16", swizzle="128B"))
    >>> [cell.text for cell in grid.rows[2].cells]
    ['1', '1', '0', '0', '3', '3', '2', '2']
    """
    addresses = loop.addresses()
    places, elements = np.unique(addresses.ravel() // CHUNK_BYTES, return_index=True)
    first = dict(zip(places.tolist(), elements.tolist(), strict=True))  # element of each chunk

    def cell(address: int) -> Cell:
        where = chunk_bytes(address)
        if address // CHUNK_BYTES not in first:
            return Cell("", "unused", title=f"{where}: no K step reads them")
        mn, k = divmod(first[address // CHUNK_BYTES], addresses.shape[1])
        block, step = mn // loop.block_mn, k // loop.k_per_step
        title = f"{where}: from mn {mn}, k {k}; read by K step {step} of block {block}"
        return Cell(str(step), step, title=title, link=step_link(block, step))

    note = "A cell is a 16-byte chunk and says which K step reads it."
    low, end = int(addresses.min()), int(addresses.max()) + 1
    return memory_grid(
        "Which K step reads each chunk", low, end, cell, most=_MOST_LINES, period=_PATTERN_LINES, notes=(note,)
    )
