"""How fast boxes of a given width and height move, from measurements on an H200.

64 x 64 fp16 tiles, 8 stages, 3 blocks an SM, in GB/s; the best cell is 1.0:

    bytes of a box row    128     64     32     16          box rows     64    32    16     8
    promotion none       4552   4042   3480   2461          128 B      4411  4460  4422  4434
              128B       4559   4519   3970   2554           16 B      2498  2440  2384  1946
              256B       4231   4036   3467   2385

Width decides: a narrow row wastes the request. Height matters only for tiny boxes of narrow rows.

The same tiles stored, 512 MiB of them (driver 580.159.04); promotion and height made no difference:

    bytes of a box row    128     64     32     16
                         4190   4319   3060    886
"""

from __future__ import annotations

from tilescope.planner.problem import Direction
from tilescope.tensor_map.option import L2PromotionName

WIDTHS_BYTES = (128, 64, 32, 16)
# fmt: off
MEASURED_GB_PER_S = {
    #  promotion  width 128   64    32    16
    "none": dict(zip(WIDTHS_BYTES, (4552, 4042, 3480, 2461), strict=True)),
    "128B": dict(zip(WIDTHS_BYTES, (4559, 4519, 3970, 2554), strict=True)),
    "256B": dict(zip(WIDTHS_BYTES, (4231, 4036, 3467, 2385), strict=True)),
}
MEASURED_BY_ROWS = {
    # rows     width 128   64    32    16       promotion 128B, another run
    64: dict(zip(WIDTHS_BYTES, (4411, 4373, 3863, 2498), strict=True)),
    32: dict(zip(WIDTHS_BYTES, (4460, 4391, 3894, 2440), strict=True)),
    16: dict(zip(WIDTHS_BYTES, (4422, 4376, 3801, 2384), strict=True)),
    8:  dict(zip(WIDTHS_BYTES, (4434, 4370, 3443, 1946), strict=True)),
}
# fmt: on
STORED_GB_PER_S = dict(zip(WIDTHS_BYTES, (4190, 4319, 3060, 886), strict=True))
BEST_GB_PER_S = {
    "load": max(speed for row in MEASURED_GB_PER_S.values() for speed in row.values()),
    "store": max(STORED_GB_PER_S.values()),
}
SMS, SM_HZ = 132, 1.98e9  # of an H200
SECTOR_BYTES = 32  # the least that global memory delivers


def request_bytes(row_bytes: int) -> int:
    """Contiguous global bytes that one request takes of a box row: at most a cache line."""
    return min(row_bytes, 128)


def bandwidth_share(direction: Direction, row_bytes: int, box_rows: int, l2_promotion: L2PromotionName) -> float:
    """Predicted speed of such boxes, as a share of the best that was measured in this direction.

    >>> bandwidth_share("load", 128, 64, "128B"), round(bandwidth_share("load", 16, 8, "128B"), 2)
    (1.0, 0.44)
    >>> round(bandwidth_share("store", 16, 8, "128B"), 2)
    0.21
    """
    width = max(each for each in WIDTHS_BYTES if each <= max(16, request_bytes(row_bytes)))
    if direction == "store":
        return STORED_GB_PER_S[width] / BEST_GB_PER_S["store"]
    rows = max(each for each in MEASURED_BY_ROWS if each <= max(8, box_rows))
    by_width = MEASURED_GB_PER_S[l2_promotion][width] / BEST_GB_PER_S["load"]
    by_height = min(1.0, MEASURED_BY_ROWS[rows][width] / MEASURED_BY_ROWS[64][width])
    return by_width * by_height


def sector_share(request_bytes: int) -> float:
    """How much of what global memory delivers a request of so many contiguous bytes uses (threads, unmeasured).

    >>> sector_share(16), sector_share(64), sector_share(48)
    (0.5, 1.0, 0.75)
    """
    return request_bytes / (-(-request_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def gmem_cycles(direction: Direction, moved_bytes: int, share: float) -> int:
    """Cycles for which so many bytes keep one SM's part of global memory busy.

    >>> gmem_cycles("load", 8192, 1.0)  # 17 bytes a cycle; shared memory moves 128
    470
    """
    return round(moved_bytes / (BEST_GB_PER_S[direction] * 1e9 / SMS / SM_HZ * share))


def best_promotion(traffic: str) -> L2PromotionName:
    """The L2 promotion that was fastest: 128B for dense traffic; sparse traffic should not fetch neighbours."""
    return "128B" if traffic == "dense" else "none"
