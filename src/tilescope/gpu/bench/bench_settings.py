"""What `tilescope bench` measures: one thing varied at a time, each setting a case for the card.

    topic    table                                  settings
    loads    loads, L2 promotion 128B               rows of 128, 64, 32 and 16 bytes
             loads, bytes in flight on every SM     8 to 128 KiB
             loads, busy SMs, rows of 128 bytes     1, 2, 4 … all
    stores   stores                                 rows of 128, 64, 32 and 16 bytes

A saved card is built from some of these rates, so the names of tables and settings are defined only here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.card import ROW_BYTES
from tilescope.gpu.bench.stream_timing import LEAST_BYTES, MATRIX_BYTES, Box, Spread, matrix_dims, spread, stream
from tilescope.gpu.verify.suites import Case
from tilescope.smem.op import SmemOp
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle, SwizzleName
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.option import L2PromotionName

_SWIZZLE_OF_ROW: dict[int, SwizzleName] = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
PROMOTIONS: tuple[L2PromotionName, ...] = ("none", "64B", "128B", "256B")
_MANY_SMS = 64  # from here on the whole matrix is moved
ISSUING = "loads, 32 boxes of 8 rows by 64 bytes a tile, issuing warps"


class Setting(NamedTuple):
    """One measurement: the table of its rate, its row there, and the case."""

    table: str
    name: str
    case: Case


def boxes_of(
    row_bytes: int,
    box_rows: int,
    tile_rows: int = 64,
    *,
    in_flight: Spread,
    tile_row_bytes: int = 128,
    l2_promotion: L2PromotionName = "128B",
    direction: str = "load",
    issuers: int | None = None,
    blocks_per_sm: int = 1,
    sms: int | None = None,
) -> Case:
    """Tiles of `tile_rows` rows of `tile_row_bytes` in boxes of `row_bytes` by `box_rows`, 16-bit elements.

    `in_flight` is the number of tiles outstanding in every block; for the rest see `stream`.
    """
    columns = tile_row_bytes // 2
    box_columns = row_bytes // 2
    busy = min(sms or _MANY_SMS, _MANY_SMS)
    x, y = matrix_dims((columns, tile_rows), 2, max(LEAST_BYTES, MATRIX_BYTES * busy // _MANY_SMS))
    tensor_map = TensorMap(
        "bf16",
        (x, y),
        (2 * x,),
        (box_columns, box_rows),
        swizzle=_SWIZZLE_OF_ROW[row_bytes],
        l2_promotion=l2_promotion,
        address=1 << 30,
    )
    boxes = [
        Box(column, row, (column // box_columns * tile_rows + row) * row_bytes)
        for column in range(0, columns, box_columns)
        for row in range(0, tile_rows, box_rows)
    ]
    return stream(
        tensor_map,
        boxes,
        (columns, tile_rows),
        in_flight,
        stage_bytes=tile_row_bytes * tile_rows,
        direction=direction,
        issuers=issuers,
        blocks_per_sm=blocks_per_sm,
        sms=sms,
    )


def rows_of(width: int) -> str:
    """The setting of boxes with rows of that width."""
    return f"rows of {width} bytes"


def _loads(sms: int) -> list[Setting]:
    """96 KiB outstanding on every SM, unless that is varied. The last two tables show that issuing limits none above."""
    settings = []
    for promotion in PROMOTIONS:
        for width in ROW_BYTES:
            case = boxes_of(width, 64, in_flight=spread(12), l2_promotion=promotion)
            settings.append(Setting(f"loads, L2 promotion {promotion}", rows_of(width), case))
    for rows in (256, 128, 64, 32, 16, 8):
        tile_rows = max(rows, 64)
        for width in ROW_BYTES:
            case = boxes_of(width, rows, tile_rows, in_flight=spread(768 // tile_rows))
            settings.append(Setting(f"loads, boxes of {rows} rows", rows_of(width), case))
    for tiles in (1, 2, 4, 6, 8, 12, 16):
        case = boxes_of(128, 64, in_flight=spread(tiles))
        settings.append(Setting("loads, bytes in flight on every SM", f"{8 * tiles} KiB", case))
    busy_sms = [count for count in (1, 2, 4, 8, 16, 32, 64) if count < sms]
    for width in ROW_BYTES:
        for busy in (*busy_sms, sms):
            case = boxes_of(width, 64, in_flight=spread(24), sms=busy)
            settings.append(Setting(f"loads, busy SMs, {rows_of(width)}", f"{busy}", case))
    for warps in (1, 2, 4, 8, 16):
        case = boxes_of(64, 8, tile_row_bytes=256, in_flight=Spread(1, stages=6), issuers=warps)
        settings.append(Setting(ISSUING, f"{warps}", case))
    for in_flight in (Spread(1, 32), Spread(2, 24), Spread(4, 12), Spread(8, 6)):  # every stream has a warp
        case = boxes_of(128, 16, 16, in_flight=in_flight)
        settings.append(Setting("loads, tiles of 2 KiB, issuing warps", f"{in_flight.streams}", case))
    return settings


def _stores(_sms: int) -> list[Setting]:
    settings = []
    for width in ROW_BYTES:
        case = boxes_of(width, 64, in_flight=spread(8), direction="store", blocks_per_sm=2)
        settings.append(Setting("stores", rows_of(width), case))
    for stages in (1, 2, 4, 8):
        case = boxes_of(128, 64, in_flight=Spread(1, stages), direction="store")
        settings.append(Setting("stores, stages of one warp", f"{stages}", case))
    return settings


def _plain(_sms: int) -> list[Setting]:
    copied: Case = {"plain": "plain_copy", "bytes": MATRIX_BYTES}
    read: Case = {"plain": "plain_read", "bytes": MATRIX_BYTES}
    return [
        Setting("plain kernels", "copy, read and written", copied),
        Setting("plain kernels", "read", read),
    ]


def _smem(_sms: int) -> list[Setting]:
    """Reads down the rows of a tile of 128-byte rows, plain and swizzled."""
    rows = np.arange(WARP_LANES) * SMEM_LINE_BYTES
    settings = []
    for op_name in ("ld.b32", "ld.b128", "ldmatrix.x4"):
        op = SmemOp.named(op_name)
        for swizzle in ("none", "128B"):
            case: Case = {
                "op": op.name,
                "lanes": Swizzle.named(swizzle).apply(rows).tolist(),
                "bytes": op.lanes * op.access_bytes,
                "active": (1 << WARP_LANES) - 1,
            }
            table = "shared memory of one SM, reads down the rows of a tile"
            settings.append(Setting(table, f"{op.name}, swizzle {swizzle}", case))
    return settings


SETTINGS: dict[str, Callable[[int], list[Setting]]] = {
    "plain": _plain,
    "loads": _loads,
    "stores": _stores,
    "smem": _smem,
}
