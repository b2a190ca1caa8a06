"""Streams of tiles on a card: how long a kernel takes that does nothing but move them, box after box.

A case is plain data, with the bytes that it moves; `run` gives its time as eight bytes, a float. Accesses to shared
memory are timed beside them, in clocks of one SM at its highest rate. See kernels/streams.cu for the loop, which is not
what bounds it: streams run side by side, warps share the boxes of a tile, and no tile costs a division.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Case
from tilescope.gpu.verify.suites.wavefront_suite import cycles_of
from tilescope.tensor_map import TensorMap

NAME = "streams"  # for the children
KERNELS = ("streams", "accesses")
MATRIX_BYTES = 1 << 32  # a pass over it takes so long that launching does not count
LEAST_BYTES = 1 << 28  # far more than any L2 holds
PITCH_BYTES = 16384
MAX_BOXES = 64
MAX_STAGES = 32  # of one stream
MAX_STREAMS = 8  # of one block
_MAX_WARPS = 32
_WARMING_PASSES = 5  # six launches each, so that clocks are up: the first measurement after a pause was 12 % low


class Spread(NamedTuple):
    """Streams of a block, which have their own stages, and the stages of each."""

    streams: int
    stages: int


class Box(NamedTuple):
    """A box of a tile: where it begins there, in elements, and in a stage of shared memory."""

    x: int
    y: int
    smem_offset_bytes: int


def stream(
    tensor_map: TensorMap,
    boxes: Sequence[Box],
    tile: tuple[int, int],
    spread: Spread,
    *,
    stage_bytes: int,
    direction: str = "load",
    issuers: int | None = None,
    blocks_per_sm: int = 1,
    sms: int | None = None,
) -> Case:
    """A case: `boxes` of every tile of (x, y) elements; all tiles of the map's matrix are moved once.

    `issuers` are warps of a stream (None: enough that issuing does not limit it); `sms` None: all.
    """
    if issuers is None:
        issuers = 1 if direction == "store" else issuing_warps(len(boxes), spread.streams)
    tiles = [extent // step for extent, step in zip(tensor_map.dims, tile, strict=True)]
    return {
        "direction": direction,
        "streams": spread.streams,
        "issuers": issuers,
        "blocks_per_sm": blocks_per_sm,
        "sms": sms,
        "stage_bytes": rounded_up(stage_bytes, 1024),
        "stages": spread.stages,
        "map": tensor_map.to_dict(),
        "boxes": [[*box, 0] for box in boxes],
        "tile": list(tile),
        "tiles": tiles,
        "bytes": tiles[0] * tiles[1] * len(boxes) * tensor_map.transaction_bytes,
    }


def spread(tiles: int) -> Spread:
    """How `tiles` in flight are spread over streams: two stages hide the time from arrival to next issue.

    >>> spread(12), spread(3)
    (Spread(streams=6, stages=2), Spread(streams=1, stages=3))
    """
    streams = max(1, min(MAX_STREAMS, tiles // 2))
    return Spread(streams, min(MAX_STAGES, tiles // streams))


def issuing_warps(boxes: int, streams: int) -> int:
    """Warps that share the boxes of a tile: two boxes each, as far as a block of `streams` has warps."""
    return max(1, min(ceil_div(boxes, 2), _MAX_WARPS // streams))


def matrix_dims(tile: tuple[int, int], element_bytes: int, size_bytes: int = MATRIX_BYTES) -> tuple[int, int]:
    """Extents of a matrix of about `size_bytes` that holds whole tiles: contiguous elements, rows."""
    x = PITCH_BYTES // element_bytes // tile[0] * tile[0]
    return x, size_bytes // PITCH_BYTES // tile[1] * tile[1]


def run(device: Device, cases: Sequence[Case]) -> list[bytes]:
    """The seconds of every case."""
    matrix = device.allocate(MATRIX_BYTES)
    if any("op" not in case for case in cases):
        for _ in range(_WARMING_PASSES):
            _plain(device, matrix, "plain_read")
    return [struct.pack("<d", _seconds(device, matrix, case)) for case in cases]


def _seconds(device: Device, matrix: int, case: Case) -> float:
    if "plain" in case:
        return _plain(device, matrix, case["plain"])
    if "op" in case:
        return float(cycles_of(device, [case])[0] / (device.facts["clock_mhz"] * 1e6))
    tensor_map = TensorMap.from_dict(case["map"])
    tiles_x, tiles_y = case["tiles"]
    blocks = (case["sms"] or device.facts["sms"]) * case["blocks_per_sm"]
    streams = blocks * case["streams"]
    table = [  # as kernels/streams.cu reads it
        *case["tile"],
        tiles_x,
        tiles_x * tiles_y,
        streams % tiles_x,
        streams // tiles_x,
        case["stages"],
        case["stage_bytes"],
        len(case["boxes"]),
        tensor_map.transaction_bytes,
        case["issuers"],
    ]
    return device.seconds(
        f"streams:stream_{case['direction']}s",
        np.frombuffer(device.encode_map(tensor_map, matrix), np.uint8),
        np.array(table, np.int32),
        np.array(case["boxes"], np.int32),
        blocks=blocks,
        threads=32 * case["streams"] * case["issuers"],
        smem_bytes=case["streams"] * case["stages"] * case["stage_bytes"],
    )


def _plain(device: Device, matrix: int, kernel: str) -> float:
    if kernel == "plain_copy":  # reads one half and writes the other
        values = (matrix, matrix + MATRIX_BYTES // 2, MATRIX_BYTES // 32)
    else:
        values = (matrix, MATRIX_BYTES // 16, device.allocate(4))
    return device.seconds(f"streams:{kernel}", *values, blocks=4 * device.facts["sms"], threads=512)
