"""Rows of tiles copied by a compiled loop (the extra `fast`), line by line past the cache.

Four neighbouring tiles are filled side by side: their rows lie next to each other in the tensor, so the
processor reads on through 512 bytes and more before it changes rows.

    tensor row 0   │ tile 0 │ tile 1 │ tile 2 │ tile 3 │ …      128 bytes each, in the swizzle's order
                       ▼        ▼        ▼        ▼
    target line 0  of tile 0, of tile 1, of tile 2, of tile 3;  then line 1 of each, …

Importing this module loads numba and compiles `stream_tiles`, which numba then keeps on disk.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import intp, types, void

from tilescope.swizzle.streaming import PIECE_BYTES, compiled, fence, store_line

Longs = npt.NDArray[np.int64]


def _stream_tiles(sources: Longs, targets: Longs, tiles: int, tile_step_bytes: int, order: Longs) -> None:
    """Copy strips between addresses; `order` has the offset in the source of each piece of a tile.

    Targets are aligned to 64 bytes, and a tile is a whole number of 128-byte lines.
    """
    tile_bytes = len(order) * PIECE_BYTES
    for strip in range(len(sources)):
        for first in range(0, tiles, 4):
            for piece in range(0, len(order), 8):
                for tile in range(first, min(first + 4, tiles)):
                    source = sources[strip] + tile * tile_step_bytes
                    target = targets[strip] + tile * tile_bytes + piece * PIECE_BYTES
                    for half in range(0, 8, 4):
                        store_line(
                            target + half * PIECE_BYTES,
                            source + order[piece + half],
                            source + order[piece + half + 1],
                            source + order[piece + half + 2],
                            source + order[piece + half + 3],
                        )
    fence()


_LONGS = types.Array(intp, 1, "C")
stream_tiles = compiled(_stream_tiles, void(_LONGS, _LONGS, intp, intp, _LONGS))
