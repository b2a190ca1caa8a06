"""Measure TMA load rates on a card: a grid of boxes, outstanding bytes and busy SMs, and random tiles, as raw JSON.

The rates of `tilescope.card.tma_rates` are fitted to such a file. Needs a card; takes about 90 seconds.

python benchmarks/tma_grid.py [OUT.json [SECONDS]]
"""

import json
import random
import time
from contextlib import closing
from itertools import product
from pathlib import Path

from ratio import run, sized

from tilescope.gpu.bench.bench_settings import boxes_of
from tilescope.gpu.bench.benchmark import rates
from tilescope.gpu.bench.plan_order import Where, draw_tile
from tilescope.gpu.bench.stream_timing import spread
from tilescope.gpu.driver.isolation import card_in_children

KIB = 1024
WIDTHS = (128, 64, 32, 16)
SHARED = ("stages", "streams", "issuers")  # with the case that was measured


def grid(name, row_bytes, box_rows, boxes, flight, **options):
    """Tiles of `boxes` adjacent boxes with `flight` KiB outstanding on every SM; empty if no tile fits."""
    tile_bytes = row_bytes * box_rows * boxes
    tiles = flight * KIB // (-(-tile_bytes // KIB) * KIB)
    if tiles < 1:
        return []
    width = row_bytes * boxes
    case = boxes_of(row_bytes, box_rows, box_rows, in_flight=spread(tiles), tile_row_bytes=width, **options)
    about = {
        "row_bytes": row_bytes,
        "box_rows": box_rows,
        "boxes": boxes,
        "size": 2,
        "sms": options.get("sms"),
        "direction": case["direction"],
        "promotion": options.get("l2_promotion", "128B"),
        "blocks": 1,
        "flight": case["streams"] * case["stages"] * tile_bytes,
    }
    return [(name, about, case)]


def settings():
    rows = []
    for width, height, flight in product(WIDTHS, (8, 16, 32, 64, 128, 256), (8, 16, 24, 32, 48, 64, 96)):
        rows += grid("flight", width, height, 1, flight)
    for width, height, boxes, flight in product(WIDTHS, (8, 16, 64, 128), (2, 4, 8, 16, 32), (32, 64, 96)):
        if width * boxes <= 1024:
            rows += grid("boxes", width, height, boxes, flight)
    for (width, boxes), issuers in product(((64, 32), (32, 32), (16, 32)), (1, 2, 4, 8, 16)):
        if issuers * spread(96 * KIB // (width * 8 * boxes)).streams <= 32:
            rows += grid("issuers", width, 8, boxes, 96, issuers=issuers)
    for width, height in product(WIDTHS, (96, 160, 192, 224)):
        rows += grid("tall", width, height, 1, 96)
    for width, promotion in product(WIDTHS, ("none", "64B", "128B", "256B")):
        rows += grid("promotion", width, 64, 1, 64, l2_promotion=promotion)
    for width, sms, flight in product(WIDTHS, (1, 4, 16, 32, 64), (16, 64, 128)):
        rows += grid("sms", width, 64, 1, flight, sms=sms)
    for width, height in product(WIDTHS, (8, 64, 128, 256)):
        rows += grid("stores", width, height, 1, 96, direction="store")
    return rows


def drawn(number):
    """The candidates of a random tile, drawn and streamed as by `tilescope bench plans`."""
    tile = draw_tile(random.Random(f"fit {number}"), Where(arch="sm_90"))
    for candidate, case in zip(tile.candidates, tile.cases, strict=True):
        problem = candidate.problem
        size = problem.data_type.bits // 8
        about = {
            "tile": number,
            "mn": problem.tile[0],
            "k": problem.tile[1],
            "type": problem.data_type.name,
            "major": problem.major,
            "size": size,
            "consumer": problem.consumer,
            "row_bytes": candidate.box[0] * size,
            "box_rows": candidate.box[1],
            "boxes": len(case["boxes"]),
            "blocks": 1,
            "flight": case["streams"] * case["stages"] * problem.tile[0] * problem.tile[1] * size,
            "order": candidate.atom_order,
            "swizzle": candidate.swizzle.name,
            "predicted": candidate.costs.gb_per_s,
        }
        yield "drawn", about, case


def main(out="tma_grid.json", seconds="90"):
    start = time.monotonic()
    fixed = settings()[: sized(None, tiny=2)]
    tiles = [row for number in range(sized(220, tiny=1)) for row in drawn(number)]
    again = [(f"again {name}", about, case) for name, about, case in fixed[::12]]
    rows = [*fixed, *again, *tiles]
    print(f"{len(fixed)} settings, {len(tiles)} of tiles, {time.monotonic() - start:.1f} s", flush=True)
    results = []
    with card_in_children() as card, closing(rates(card, "grid", [case for _, _, case in rows])) as measured:
        for (name, about, case), rate in zip(rows, measured, strict=True):
            shared = {field: case[field] for field in SHARED}
            results.append({"set": name, **about, **shared, "gb_per_s": rate})
            if time.monotonic() - start > float(seconds):
                print("out of time", flush=True)
                break
    Path(out).write_text(json.dumps({"facts": card.facts, "rows": results}))
    print(f"{len(results)} measured, {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    run(main)
