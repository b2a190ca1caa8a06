"""A dump of shared memory should hold my tile, and looks scrambled. Which swizzle has it?"""

import numpy as np


def solve(desk):
    tile = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    np.save(desk.folder / "tile.npy", tile)
    plain = np.frombuffer(tile.tobytes(), np.uint8)
    place = np.arange(plain.size)
    dump = np.zeros(plain.size + 1024, np.uint8)
    dump[1024 + (place ^ (place >> 3 & 0x70))] = plain
    dump.tofile(desk.folder / "smem.bin")
    said = desk.type("tilescope identify smem.bin tile.npy -q")
    assert said.status == 0
    assert said.first.startswith("The tile is at byte 0x400")
    assert "dump: swizzle 128B" in said.first
    assert "rows 128 bytes apart" in said.first
    np.zeros(9216, np.uint8).tofile(desk.folder / "smem.bin")
    assert desk.type("tilescope identify smem.bin tile.npy -q").status == 1
