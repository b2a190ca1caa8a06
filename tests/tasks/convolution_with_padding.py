"""A 3 x 3 convolution with padding 1 over 2 x 14 x 14 x 64 images: which im2col map, and where does the first copy start?"""

import json


def solve(desk):
    said = desk.type("tilescope conv 2x14x14x64 128x3x3 bf16 --pad 1")
    assert "lower corner (-1, -1) and upper corner (-1, -1)" in said.first
    assert "36 copies of 128 pixels x 64 channels" in said.first
    assert "16384 bytes each" in said.first  # 4 columns of 392 pixels x 9 taps
    assert "coords (0, -1, -1, 0), offsets (0, 0)" in said.text
    assert "cuTensorMapEncodeIm2col" in said.out
    told = json.loads(desk.type("tilescope conv 2x14x14x64 128x3x3 bf16 --pad 1 --json").out)
    assert told["tensor_map"]["dims"] == [64, 14, 14, 2]
    assert told["tensor_map"]["strides_bytes"] == [128, 1792, 25088]
    swapped = desk.type("tilescope conv 64x14x14x2 128x3x3 bf16 --pad 1 -q")  # channels first, by mistake
    assert swapped.status == 1
