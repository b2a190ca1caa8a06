"""What TMA loads cost on a card: a grid of boxes, bytes in flight and busy SMs, and random tiles, as raw JSON.

The rates of `tilescope.card` are fitted to such a file. Needs a card; takes about 90 seconds.

python benchmarks/tma_grid.py OUT.json [SECONDS]
"""

import json
import random
import struct
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.gpu.compiling import compiled
from tilescope.gpu.isolation import COMMAND, Child, Workers, greeted
from tilescope.gpu.streaming import MOST_BOXES, MOST_STAGES, MOST_STREAMS, matrix_dims, moved_bytes, stream
from tilescope.planner import plan
from tilescope.tensor_map import TensorMap

KIB = 1024
SWIZZLE = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
TYPE = {1: "u8", 2: "bf16", 4: "f32"}
BATCH = 100


def grid(row_bytes, box_rows, boxes, flight, *, size=2, sms=None, direction="load", promotion="128B", **given):
    """Tiles of `boxes` boxes side by side, `flight` bytes of them under way on every SM."""
    tile = (row_bytes // size * boxes, box_rows)
    busy = min(sms or 64, 64)
    x, y = matrix_dims(tile, size, max(1 << 28, (1 << 32) * busy // 64))
    tensor_map = TensorMap(
        TYPE[size], (x, y), (size * x,), (row_bytes // size, box_rows), swizzle=SWIZZLE[row_bytes],
        l2_promotion=promotion, address=1 << 30,
    )  # fmt: skip
    places = [(row_bytes // size * i, 0, i * row_bytes * box_rows) for i in range(boxes)]
    room = -(-row_bytes * box_rows * boxes // KIB) * KIB
    count = flight // room
    if count < 1:
        return None
    streams, stages = spread(count)
    case = stream(tensor_map, places, tile, direction=direction, stage_bytes=room, stages=stages, streams=streams,
                  sms=sms, **given)  # fmt: skip
    told = {"row_bytes": row_bytes, "box_rows": box_rows, "boxes": boxes, "size": size, "sms": sms, "direction": direction,
            "promotion": promotion, "streams": streams, "stages": stages, "issuers": case["issuers"], "blocks": 1,
            "flight": streams * stages * row_bytes * box_rows * boxes}  # fmt: skip
    return told, case


def spread(count):
    """Streams of a block, and stages of each, for `count` tiles under way."""
    streams = max(1, min(MOST_STREAMS, count // 2))
    return streams, min(MOST_STAGES, count // streams)


def settings():
    rows = []

    def add(name, *place, **given):
        made = grid(*place, **given)
        if made is not None:
            rows.append((name, *made))

    widths = (128, 64, 32, 16)
    for width, height, flight in product(widths, (8, 16, 32, 64, 128, 256), (8, 16, 24, 32, 48, 64, 96)):
        add("flight", width, height, 1, flight * KIB)
    for width, height, boxes, flight in product(widths, (8, 16, 64, 128), (2, 4, 8, 16, 32), (32, 64, 96)):
        if width * boxes <= 1024:
            add("boxes", width, height, boxes, flight * KIB)
    for (width, boxes), issuers in product(((64, 32), (32, 32), (16, 32)), (1, 2, 4, 8, 16)):
        if issuers * spread(96 * KIB // (width * 8 * boxes))[0] <= 32:
            add("issuers", width, 8, boxes, 96 * KIB, issuers=issuers)
    for width, height in product(widths, (96, 160, 192, 224)):
        add("tall", width, height, 1, 96 * KIB)
    for width, promotion in product(widths, ("none", "64B", "128B", "256B")):
        add("promotion", width, 64, 1, 64 * KIB, promotion=promotion)
    for width, sms, flight in product(widths, (1, 4, 16, 32, 64), (16, 64, 128)):
        add("sms", width, 64, 1, flight * KIB, sms=sms)
    for width, height in product(widths, (8, 64, 128, 256)):
        add("stores", width, height, 1, 96 * KIB, direction="store")
    return rows


def drawn(number):
    """The candidates of a random tile, streamed by one block on every SM."""
    rng = random.Random(f"fit {number}")
    while True:
        name = rng.choice(("bf16", "f16", "f32", "e4m3"))
        size = DataType.named(name).bits // 8
        tile = (8 * rng.randint(1, 32), 32 // size * rng.randint(1, 16))
        major = rng.choice(("K", "MN")) if size == 2 else "K"
        options = rng.choice(({}, {"consumer": "ldmatrix"})) if size == 2 else {}
        tile_bytes = tile[0] * tile[1] * size
        flight = rng.choice((24, 32, 48, 64, 96)) * KIB
        if not 2 * KIB <= tile_bytes <= 48 * KIB:
            continue
        streams, stages = spread(max(1, flight // (-(-tile_bytes // KIB) * KIB)))
        try:
            report = plan(tile, name, major=major, arch="sm_90", stages=streams * stages, **options)
        except RuleError:
            continue
        usable = [each for each in report.candidates if each.copies and each.tma_instructions <= MOST_BOXES]
        if len(usable) > 1:
            break
    rows = []
    for candidate in usable:
        across = tile if major == "MN" else tile[::-1]
        x, y = matrix_dims(across, size)
        tensor_map = candidate.tensor_map(1 << 30, (x, y) if major == "MN" else (y, x))
        boxes = [(*candidate.copy_coords(copy, 0, 0)[:2], copy.smem_offset_bytes) for copy in candidate.copies]
        stage_bytes = -(-candidate.stage_bytes // KIB) * KIB
        case = stream(tensor_map, boxes, across, stage_bytes=stage_bytes, stages=stages, streams=streams)
        told = {"tile": number, "mn": tile[0], "k": tile[1], "type": name, "major": major, "size": size,
                "consumer": options.get("consumer", "wgmma"), "row_bytes": candidate.box[0] * size,
                "box_rows": candidate.box[1], "boxes": len(boxes), "stages": stages, "streams": streams, "blocks": 1,
                "issuers": case["issuers"], "flight": streams * stages * tile_bytes, "order": candidate.atom_order,
                "swizzle": candidate.swizzle.name, "predicted": candidate.costs.gb_per_s}  # fmt: skip
        rows.append(("drawn", told, case))
    return rows


def main():
    out, budget = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 90.0
    start = time.monotonic()
    fixed = settings()
    tiles = [row for number in range(220) for row in drawn(number)]
    again = fixed[::12]
    rows = [*fixed, *((f"again {name}", told, case) for name, told, case in again), *tiles]
    print(f"{len(fixed)} settings, {len(tiles)} of tiles, {time.monotonic() - start:.1f} s", flush=True)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        with Child((*COMMAND, folder)) as child:
            facts = greeted(child)
        for name in ("streams", "accesses"):
            Path(folder, f"{name}.cubin").write_bytes(compiled(name, f"{facts['arch']}a"))
        print(f"{facts} {time.monotonic() - start:.1f} s", flush=True)
        batches = [[case for _, _, case in rows[first : first + BATCH]] for first in range(0, len(rows), BATCH)]
        for outcomes in Workers("streams", Path(folder), COMMAND).outcomes(batches, 120.0):
            for outcome in outcomes:
                name, told, case = rows[len(results)]
                seconds = None if outcome.ended else struct.unpack("<d", outcome.data)[0]
                rate = None if seconds is None else moved_bytes(case) / seconds / 1e9
                results.append({"set": name, **told, "gb_per_s": rate, "ended": outcome.ended})
            out.write_text(json.dumps({"facts": facts, "rows": results}))
            if time.monotonic() - start > budget:
                print("out of time", flush=True)
                break
    print(
        f"{len(results)} measured, {sum(r['gb_per_s'] is None for r in results)} failed, {time.monotonic() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
