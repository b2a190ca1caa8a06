"""The tensors that the PTX manual works through in "Swizzling Modes", reproduced chunk by chunk and drawn.

python tests/tma/test_ptx_examples.py --write draws the pictures in docs/images anew.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts

IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
SIDE = 10  # pixels, in both directions

# The manual's tables: the source chunk found at each place of a line.
TABLES = {
    "32B": ["01234567", "10325476"],
    "64B": ["01234567", "10325476", "23016745", "32107654"],
    "128B": ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"],
}


def nhwc(channels, swizzle):
    """A 1 x 10 x 10 x 64 tensor of 2-byte channels, copied by pixels of so many channels."""
    return ts.TensorMap("u16", (64, SIDE, SIDE, 1), (128, 1280, 12800), (channels, SIDE, SIDE, 1), swizzle=swizzle)


def sliced():
    """A 1 x 2 x 10 x 10 x C16 tensor in NC/(32B)HWC(32B): slices of 16 channels, all pixels of one after another."""
    slice_bytes = SIDE * SIDE * 32
    return ts.Im2colMap(
        "u16",
        (SIDE, SIDE, 2, 1),
        (SIDE * 32, slice_bytes, 2 * slice_bytes),
        lower_corner=(0, 0),
        upper_corner=(0, 0),
        channels_per_pixel=16,
        pixels_per_column=SIDE * SIDE,
        interleave="32B",
        swizzle="32B",
    )


# name: (map, coordinates, chunks of a pixel in shared memory, where chunk k of pixel (h, w) lies in the tensor)
EXAMPLES = {
    "ptx-swizzle-32B-slice-0": (sliced(), (0, 0, 0, 0), 2, lambda h, w, k: (h * SIDE + w) * 32 + k * 16),
    "ptx-swizzle-32B-slice-1": (sliced(), (0, 0, 1, 0), 2, lambda h, w, k: 3200 + (h * SIDE + w) * 32 + k * 16),
    "ptx-swizzle-64B": (nhwc(32, "64B"), (0, 0, 0, 0), 4, lambda h, w, k: (h * SIDE + w) * 128 + k * 16),
    "ptx-swizzle-128B": (nhwc(64, "128B"), (0, 0, 0, 0), 8, lambda h, w, k: (h * SIDE + w) * 128 + k * 16),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_shared_memory_holds_the_chunks_that_the_manual_shows(name):
    a, coords, chunks, place = EXAMPLES[name]
    memory = np.arange(SIDE * SIDE * 64, dtype=np.uint16)  # its own index: a wrong chunk says where it came from
    found = ts.load(a, memory, coords).view(np.uint16)
    table = TABLES[a.swizzle.name]
    for number in range(SIDE * SIDE * chunks):
        line, position = divmod(number, 8)
        pixel, chunk = divmod(line * 8 + int(table[line % len(table)][position]), chunks)
        if pixel < SIDE * SIDE:
            source = place(pixel // SIDE, pixel % SIDE, chunk) // 2
            assert found[number * 8 : number * 8 + 8].tolist() == list(range(source, source + 8)), (line, position)


def drawn(name):
    a, coords, _, _ = EXAMPLES[name]
    return ts.trace(a, coords).svg()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_picture_in_the_documentation_is_the_drawing(name):
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == drawn(name)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for each in EXAMPLES:
        (IMAGES / f"{each}.svg").write_text(drawn(each), "utf-8")
