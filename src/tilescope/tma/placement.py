"""Where the pieces of a copy's rows lie in shared memory.

Row r starts at r x pitch, and a swizzled row takes its whole span even when it is narrower. Then the swizzle
moves pieces of 16 bytes (8 in the mode that flips halves), by the absolute address:

    rows of 64 bytes, swizzle 128B, at 0x480       line of the pattern, and piece found at each place

    row 0  a b c d                                 0x480   1   b a d c ─ ─ ─ ─      ─ : gap, keeps its bytes
    row 1  e f g h                                 0x500   2   g h e f ─ ─ ─ ─
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilescope.swizzle import Swizzle
from tilescope.tensor_map import AnyMap


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of each piece, in pieces from the buffer's start."""

    places: npt.NDArray[np.intp]  # (rows x pieces of a row,)
    piece_bytes: int
    footprint_bytes: (
        int  # from the buffer's start to behind the last byte that belongs to the copy, or lies in its gaps
    )


def placement(tensor_map: AnyMap, rows: int, smem_address: int) -> Placement:
    """Where `rows` rows of the map lie from shared address `smem_address` on.

    >>> from tilescope.tensor_map import TensorMap
    >>> narrow = TensorMap("f16", (64, 64), (128,), (32, 2), swizzle="128B")
    >>> placement(narrow, 2, 0x480).places.tolist()
    [1, 0, 3, 2, 10, 11, 8, 9]
    """
    swizzle = tensor_map.swizzle
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    return _placed(swizzle, smem_address % swizzle.repeat_bytes, rows, row_bytes, tensor_map.pitch_bytes)


@lru_cache(maxsize=64)
def _placed(swizzle: Swizzle, phase: int, rows: int, row_bytes: int, pitch_bytes: int) -> Placement:
    piece_bytes = swizzle.piece_bytes
    logical = np.arange(rows)[:, None] * pitch_bytes + np.arange(0, row_bytes, piece_bytes)
    places = ((swizzle.apply(phase + logical) - phase) // piece_bytes).astype(np.intp).ravel()
    places.flags.writeable = False
    # Rows as wide as the span stay in it; the last, cut line of an interleaved copy may send pieces beyond its end.
    footprint = max(rows * pitch_bytes, (int(places.max()) + 1) * piece_bytes)
    return Placement(places, piece_bytes, footprint)
