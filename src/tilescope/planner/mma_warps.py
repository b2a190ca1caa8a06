"""How the warps of a block share a tile that mma multiplies.

64 x 128 by 8 warps: 2 down and 4 across, 32 x 32 sums each
"""

from __future__ import annotations

import itertools

from tilescope.planner.product import Tile

MAX_ACCUMULATORS = 128  # registers of a thread
_MAX_WARPS = 8  # that share a tile between them by mma
_WARP_ROWS = 16  # of mma, which a warp takes at least
_WARP_COLUMNS = 8


def share_among_warps(tile: Tile) -> tuple[int, int]:
    """Warps down and across a tile of C that is multiplied by mma: the most that share it evenly; (0, 0): none do.

    >>> share_among_warps((64, 128, 64)), share_among_warps((64, 32, 64))
    ((2, 4), (4, 2))
    """
    m, n, _ = tile

    def is_even(down: int, across: int) -> bool:
        if down * across > _MAX_WARPS or m % (_WARP_ROWS * down) or n % (_WARP_COLUMNS * across):
            return False
        return m // down * n // across // 32 <= MAX_ACCUMULATORS

    def warps_and_squareness(share: tuple[int, int]) -> tuple[int, int]:
        down, across = share
        return down * across, -abs(m // down - n // across)

    shares = [share for share in itertools.product((1, 2, 4), (1, 2, 4, 8)) if is_even(*share)]
    return max(shares, key=warps_and_squareness, default=(0, 0))
