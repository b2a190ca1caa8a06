"""The emulator's speed: a whole tensor as 64 x 64 fp16 tiles against np.copyto, and one tile by load().

python benchmarks/load_tiles.py
"""

import numpy as np
from ratio import FAST_EXTRA, Work, optional, print_ratios, run, sized

import tilescope as ts
from tilescope.tma import tiles as tiles_module

ROWS, COLUMNS = sized((8192, 16384), tiny=(128, 256))  # 256 MiB, rows 32 KiB apart
CALLS = sized(1000, tiny=2)


def aligned(byte_count):
    """A zeroed buffer aligned to 128 bytes."""
    buffer = np.zeros(byte_count + 128, np.uint8)
    return buffer[-buffer.ctypes.data % 128 :][:byte_count]


def tiles(a, memory, out, threads, compiled):
    """load_tiles with the compiled loop, or with numpy if numba is not installed."""
    threshold, tiles_module.STREAMED_BYTES = tiles_module.STREAMED_BYTES, 0 if compiled else len(out) + 1
    try:
        ts.load_tiles(a, memory, out=out, threads=threads)
    finally:
        tiles_module.STREAMED_BYTES = threshold


def main():
    memory = aligned(ROWS * COLUMNS * 2)
    memory[:] = np.random.default_rng(0).integers(0, 256, len(memory), dtype=np.uint8)
    out = aligned(len(memory))
    a = ts.TensorMap("f16", (COLUMNS, ROWS), (2 * COLUMNS,), (64, 64), swizzle="128B")
    works = [
        Work("np.copyto", lambda: np.copyto(out, memory)),
        Work("load_tiles, numpy alone", lambda: tiles(a, memory, out, 1, False), goal=3.4),
        Work("load_tiles, numpy alone, two threads", lambda: tiles(a, memory, out, 2, False), goal=1.7),
    ]
    if optional("numba", FAST_EXTRA):
        works += [
            Work("load_tiles, compiled", lambda: tiles(a, memory, out, 1, True), goal=2.4),
            Work("load_tiles, compiled, two threads", lambda: tiles(a, memory, out, 2, True), goal=1.2),
        ]
    print_ratios(f"{len(memory) / (1 << 20):.3g} MiB as 64 x 64 fp16 tiles", *works)
    one_tile(a, memory)


def one_tile(a, memory):
    tile = np.zeros(8192, np.uint8)

    def many(call):
        for _ in range(CALLS):
            call()

    print_ratios(
        "one 64 x 64 fp16 tile",
        Work("load", lambda: many(lambda: ts.load(a, memory, (64, 64), smem=tile)), units=CALLS, goal_seconds=40e-6),
        Work(
            "load, cut by the edge",
            lambda: many(lambda: ts.load(a, memory, (COLUMNS - 32, 64), smem=tile)),
            units=CALLS,
        ),
        Work("store", lambda: many(lambda: ts.store(a, tile, memory, (64, 64))), units=CALLS),
        Work("trace", lambda: many(lambda: ts.trace(a, (64, 64))), units=CALLS),
    )


if __name__ == "__main__":
    run(main)
