"""Rows of tiles copied by a compiled loop (the extra `fast`), line by line past the cache.

A few rows of the tensor are copied through all tiles of a strip, before the next rows begin. Their parts of
neighbouring tiles are adjacent, so the processor prefetches in every one of them.

    tensor rows 0-7   │ tile 0 │ tile 1 │ tile 2 │ tile 3 │ …      128 bytes each, in the swizzle's order
                          ▼        ▼        ▼        ▼
    target lines 0-7  of tile 0, of tile 1, of tile 2, of tile 3, …;  then rows and lines 8-15, …

Importing this module loads numba and compiles `stream_tiles`, which numba then keeps on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import intp, types, void

from tilescope.swizzle.line_streaming import PIECE_BYTES, compile_loop, fence, store_line

Longs = npt.NDArray[np.int64]
Strips = npt.NDArray[np.int64]  # (strips, 2): addresses of the first tile of each, in the source and in the target


def _stream_tiles(strips: Strips, tiles: int, tile_step_bytes: int, order: Longs, pieces_at_once: int) -> None:
    """Copy strips of `tiles` tiles; `order` has the offset in the source of each piece of a tile.

    Targets are aligned to 64 bytes; a tile, and what is copied of it at once, is a whole number of 64-byte lines.
    """
    tile_bytes = len(order) * PIECE_BYTES
    for strip in range(len(strips)):
        for first in range(0, len(order), pieces_at_once):
            for tile in range(tiles):
                source = strips[strip, 0] + tile * tile_step_bytes
                target = strips[strip, 1] + tile * tile_bytes
                for piece in range(first, min(first + pieces_at_once, len(order)), 4):
                    store_line(
                        target + piece * PIECE_BYTES,
                        source + order[piece],
                        source + order[piece + 1],
                        source + order[piece + 2],
                        source + order[piece + 3],
                    )
    fence()


_LONGS = types.Array(intp, 1, "C")
_STRIPS = types.Array(intp, 2, "C")
stream_tiles = compile_loop(_stream_tiles, void(_STRIPS, intp, intp, _LONGS, intp))
