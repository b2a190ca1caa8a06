"""A bf16 GEMM of 4096 cubed on an H200: which tile, how many stages, and what time may I expect?"""

import json


def solve(desk):
    said = desk.type("tilescope gemm 4096x4096x4096 bf16 -q")
    assert said.status == 0
    assert "tile 128 x 256 x 64, 4 stages of 49152 bytes" in said.first
    assert "512 tiles of C in 4 rounds of 132" in said.first
    assert "SMs" in said.first
    told = json.loads(desk.type("tilescope gemm 4096x4096x4096 bf16 --json").out)
    predicted_us = told["ranked"][0]["prediction"]["us"]
    tflops = 2 * 4096**3 / predicted_us / 1e6
    assert 600 < tflops < 990  # between what CUTLASS reaches and the data sheet
    assert f"{predicted_us:.1f} us predicted" in said.first
