"""Scale factors moved into their atoms and back by a compiled loop (the extra `fast`).

    rows l, 32 + l, 64 + l, 96 + l, words c and c + 1         of the four rows, two 64-bit loads' worth at a time
        ▼ four lanes l at once: a whole line of 64 bytes
    atom c, rows l to l + 3;  atom c + 1, rows l to l + 3

Importing this module loads numba and compiles the loops, which numba then keeps on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types, uint64, void

from tilescope.swizzle.streaming import compiled

_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


def _pack(rows: Any, atoms: Any) -> None:
    """From [128 rows as 4 x 32][word pair] to [word pair][which of the two][row l][pair of j], all of 64 bits."""
    for block in range(rows.shape[0]):
        for first in range(0, 32, 4):
            for pair in range(rows.shape[3]):
                for lane in range(first, first + 4):
                    w0, w1 = rows[block, 0, lane, pair], rows[block, 1, lane, pair]
                    w2, w3 = rows[block, 2, lane, pair], rows[block, 3, lane, pair]
                    atoms[block, pair, 0, lane, 0] = (w0 & _LOW) | (w1 << _HALF)
                    atoms[block, pair, 0, lane, 1] = (w2 & _LOW) | (w3 << _HALF)
                    atoms[block, pair, 1, lane, 0] = (w0 >> _HALF) | (w1 & ~_LOW)
                    atoms[block, pair, 1, lane, 1] = (w2 >> _HALF) | (w3 & ~_LOW)


def _unpack(rows: Any, atoms: Any) -> None:
    """The way back."""
    for block in range(rows.shape[0]):
        for first in range(0, 32, 4):
            for pair in range(rows.shape[3]):
                for lane in range(first, first + 4):
                    w01, w23 = atoms[block, pair, 0, lane, 0], atoms[block, pair, 0, lane, 1]
                    n01, n23 = atoms[block, pair, 1, lane, 0], atoms[block, pair, 1, lane, 1]
                    rows[block, 0, lane, pair] = (w01 & _LOW) | (n01 << _HALF)
                    rows[block, 1, lane, pair] = (w01 >> _HALF) | (n01 & ~_LOW)
                    rows[block, 2, lane, pair] = (w23 & _LOW) | (n23 << _HALF)
                    rows[block, 3, lane, pair] = (w23 >> _HALF) | (n23 & ~_LOW)


_SIGNATURE = void(types.Array(uint64, 4, "C"), types.Array(uint64, 5, "C"))
pack, unpack = compiled(_pack, _SIGNATURE), compiled(_unpack, _SIGNATURE)
