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
from tilescope.gpu.streaming import MOST_BOXES, MOST_STAGES, SM_SMEM_BYTES, matrix_dims, moved_bytes, stream
from tilescope.planner import plan
from tilescope.tensor_map import TensorMap

KIB = 1024
SWIZZLE = {128: "128B", 64: "64B", 32: "32B", 16: "none"}
TYPE = {1: "u8", 2: "bf16", 4: "f32"}
BATCH = 25


def grid(row_bytes, box_rows, boxes, stages, warps, blocks, *, size=2, sms=None, direction="load", promotion="128B"):
    """Tiles of `boxes` boxes side by side."""
    tile = (row_bytes // size * boxes, box_rows)
    busy = min(sms or 64, 64)
    x, y = matrix_dims(tile, size, max(1 << 28, (1 << 32) * busy // 64))
    tensor_map = TensorMap(
        TYPE[size], (x, y), (size * x,), (row_bytes // size, box_rows), swizzle=SWIZZLE[row_bytes],
        l2_promotion=promotion, address=1 << 30,
    )  # fmt: skip
    places = [(row_bytes // size * i, 0, i * row_bytes * box_rows) for i in range(boxes)]
    stage_bytes = -(-row_bytes * box_rows * boxes // KIB) * KIB
    told = {"row_bytes": row_bytes, "box_rows": box_rows, "boxes": boxes, "stages": stages, "warps": warps,
            "blocks": blocks, "size": size, "sms": sms, "direction": direction, "promotion": promotion}  # fmt: skip
    case = stream(tensor_map, places, tile, direction=direction, stage_bytes=stage_bytes, stages=stages, warps=warps,
                  blocks_per_sm=blocks, sms=sms)  # fmt: skip
    return told, case


def fits(told):
    stage = -(-told["row_bytes"] * told["box_rows"] * told["boxes"] // KIB) * KIB
    return (told["blocks"] * told["warps"] * told["stages"] * stage <= SM_SMEM_BYTES
            and told["stages"] <= MOST_STAGES and told["warps"] <= 8)  # fmt: skip


def spread(count):
    """Warps, and stages of each, for `count` tiles under way."""
    warps = max(w for w in (1, 2, 4, 8) if w <= max(1, count // 2))
    return warps, count // warps


def settings():
    def add(name, **given):
        told, case = grid(**given)
        if fits(told):
            rows.append((name, told, case))

    rows = []
    # Bytes in flight by box, one box a tile
    for width, height, flight, blocks in product(
        (128, 64, 32, 16), (8, 16, 32, 64, 128, 256), (8, 16, 32, 64, 96, 192), (1, 2)
    ):
        count = flight * KIB // blocks // max(width * height, KIB)
        if count >= 1:
            warps, stages = spread(min(count, 8 * MOST_STAGES))
            add("flight", row_bytes=width, box_rows=height, boxes=1, stages=stages, warps=warps, blocks=blocks)
    # Several boxes a tile
    for width, height, boxes, flight in product((128, 64, 32, 16), (8, 16, 64, 192, 256), (2, 4, 8, 16), (32, 96, 192)):
        count = flight * KIB // (width * height * boxes)
        if count >= 1 and width * boxes <= 1024:
            warps, stages = spread(count)
            add("boxes", row_bytes=width, box_rows=height, boxes=boxes, stages=stages, warps=warps, blocks=1)
    # Tall boxes
    for width, height in product((128, 64, 32, 16), (96, 160, 192, 224)):
        warps, stages = spread(max(1, 96 * KIB // (width * height)))
        add("tall", row_bytes=width, box_rows=height, boxes=1, stages=stages, warps=warps, blocks=2)
    # Few SMs
    for width, sms, flight in product((128, 64, 32, 16), (1, 4, 16, 32, 64), (16, 64, 192)):
        warps, stages = spread(flight * KIB // (width * 64))
        add("sms", row_bytes=width, box_rows=64, boxes=1, stages=min(stages, 32), warps=warps, blocks=1, sms=sms)
    # Issuing
    for width, height, warps in product((128, 64, 32), (8, 16, 32, 64), (1, 2, 4, 8)):
        stages = min(MOST_STAGES, 128 * KIB // warps // max(KIB, width * height))
        for sms in (1, None):
            add("issue", row_bytes=width, box_rows=height, boxes=1, stages=stages, warps=warps, blocks=1, sms=sms)
    # Element sizes
    for width, height, size in product((128, 64, 32, 16), (64, 128), (1, 4)):
        warps, stages = spread(96 * KIB // (width * height))
        add("size", row_bytes=width, box_rows=height, boxes=1, stages=min(stages, 32), warps=warps, blocks=2, size=size)
    # Stores
    for width, height, stages in product((128, 64, 32, 16), (8, 64, 128, 256), (2, 4)):
        warps = max((w for w in (1, 2, 4, 8) if w * stages * width * height <= 96 * KIB), default=1)
        add(
            "stores", row_bytes=width, box_rows=height, boxes=1, stages=stages, warps=warps, blocks=2, direction="store"
        )
    return rows


def drawn(number, steady):
    """The candidates of a random tile, streamed: with 96 KiB of a block under way, or any number of stages."""
    rng = random.Random(f"fit {number} {steady}")
    while True:
        name = rng.choice(("bf16", "f16", "f32", "e4m3"))
        size = DataType.named(name).bits // 8
        tile = (8 * rng.randint(1, 32), 32 // size * rng.randint(1, 16))
        major = rng.choice(("K", "MN")) if size == 2 else "K"
        options = rng.choice(({}, {"consumer": "ldmatrix"})) if size == 2 else {}
        tile_bytes = tile[0] * tile[1] * size
        room = -(-tile_bytes // KIB) * KIB
        if not 2 * KIB <= tile_bytes <= 48 * KIB:
            continue
        most = 96 * KIB // room
        count = most if steady else rng.randint(1, min(16, 200 * KIB // room))
        warps = max(1, min(8, count // 2))
        stages = min(MOST_STAGES, count // warps)
        try:
            report = plan(tile, name, major=major, arch="sm_90", stages=warps * stages, **options)
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
        blocks = max(1, min(candidate.blocks_per_sm, SM_SMEM_BYTES // (warps * stages * stage_bytes)))
        told = {"tile": number, "steady": steady, "mn": tile[0], "k": tile[1], "type": name, "major": major, "size": size,
                "consumer": options.get("consumer", "wgmma"), "row_bytes": candidate.box[0] * size,
                "box_rows": candidate.box[1], "boxes": len(boxes), "stages": stages, "warps": warps, "blocks": blocks,
                "planned_blocks": candidate.blocks_per_sm, "order": candidate.atom_order,
                "swizzle": candidate.swizzle.name, "predicted": candidate.costs.gb_per_s}  # fmt: skip
        case = stream(
            tensor_map, boxes, across, stage_bytes=stage_bytes, stages=stages, warps=warps, blocks_per_sm=blocks
        )
        rows.append(("drawn", told, case))
    return rows


def main():
    out, budget = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 90.0
    start = time.monotonic()
    fixed = settings()
    tiles = [row for number in range(120) for steady in (True, False) for row in drawn(number, steady)]
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
