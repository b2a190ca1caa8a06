"""The emulator's speed: a whole tensor as 64 x 64 fp16 tiles against np.copyto, and one tile by load().

python benchmarks/load_tiles.py
"""

import numpy as np
from ratio import Work, print_ratios

import tilescope as ts
from tilescope.tma import tiles as tiles_module

SIDE = 8192


def aligned(byte_count):
    """Bytes from a 128-byte boundary on, touched once."""
    buffer = np.zeros(byte_count + 128, np.uint8)
    return buffer[-buffer.ctypes.data % 128 :][:byte_count]


def tiles(a, memory, out, threads, compiled):
    """load_tiles with the compiled loop, or as it is where numba is not installed."""
    original = tiles_module.tile_streaming
    if not compiled:
        tiles_module.tile_streaming = lambda: None
    try:
        ts.load_tiles(a, memory, out=out, threads=threads)
    finally:
        tiles_module.tile_streaming = original


def main():
    memory = aligned(SIDE * SIDE * 2)
    memory[:] = np.random.default_rng(0).integers(0, 256, len(memory), dtype=np.uint8)
    out = aligned(len(memory))
    a = ts.TensorMap("f16", (SIDE, SIDE), (2 * SIDE,), (64, 64), swizzle="128B")
    print_ratios(
        f"{len(memory) >> 20} MiB as 64 x 64 fp16 tiles",
        Work("np.copyto", lambda: np.copyto(out, memory)),
        Work("load_tiles, numpy alone", lambda: tiles(a, memory, out, 1, False), goal=3.2),
        Work("load_tiles, numpy alone, two threads", lambda: tiles(a, memory, out, 2, False)),
        Work("load_tiles, compiled", lambda: tiles(a, memory, out, 1, True)),
        Work("load_tiles, compiled, two threads", lambda: tiles(a, memory, out, 2, True), goal=1.3),
    )
    tile = np.zeros(8192, np.uint8)

    def many(call):
        for _ in range(1000):
            call()

    print_ratios(
        "one 64 x 64 fp16 tile",
        Work("load", lambda: many(lambda: ts.load(a, memory, (64, 64), smem=tile)), units=1000, goal_seconds=40e-6),
        Work("load, cut by the edge", lambda: many(lambda: ts.load(a, memory, (SIDE - 32, 64), smem=tile)), units=1000),
        Work("store", lambda: many(lambda: ts.store(a, tile, memory, (64, 64))), units=1000),
        Work("trace", lambda: many(lambda: ts.trace(a, (64, 64))), units=1000),
    )


if __name__ == "__main__":
    main()
