"""A wrong swizzle in a dump of shared memory: which swizzle wrote these bytes, and what does my code read instead?

The map says 64B, the kernel addresses the tile as 128B. A dump (from cuda-gdb, or printed by the kernel) and the tile that
it should hold are enough to see it. A tile of counted numbers is best: each value says where it belongs.

    $ python examples/wrong_swizzle.py
    the dump: swizzle 64B, base offset 0, rows 64 bytes apart
    read as 128B: 256 of 512 elements are wrong
      first at (8, 0), address 0x240: element (9, 0) lies there
    read as 64B: 0 of 512 elements are wrong
"""

import numpy as np

import tilescope as ts

tile = np.arange(16 * 32, dtype=np.uint16).reshape(16, 32)
tensor_map = ts.TensorMap.from_array(tile, (16, 32), swizzle="64B", address=0)
dump = ts.load(tensor_map, tile, (0, 0))  # stands for the bytes that cuda-gdb shows

found = ts.identify(dump, tile)
print("the dump:", found)

rows, columns = np.indices(tile.shape)
for name in ("128B", found.swizzle.name):
    layout = ts.Layout(tile.shape, 16, swizzle=name)
    read = dump.view(np.uint16)[layout.address(rows, columns) // 2]
    wrong = np.argwhere(read != tile)
    print(f"read as {name}: {len(wrong)} of {tile.size} elements are wrong")
    if len(wrong):
        row, column = wrong[0].tolist()
        held = divmod(int(read[row, column]), 32)
        print(f"  first at ({row}, {column}), address {layout.address(row, column):#x}: element {held} lies there")
