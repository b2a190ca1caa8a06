"""I have a Triton softmax and no GPU at hand: is it right, and does it read memory in whole sectors?"""

import json

IS_SLOW = True
SOFTMAX = """\
import triton
import triton.language as tl


@triton.jit
def softmax(out_ptr, in_ptr, n_cols, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(in_ptr + row * n_cols * STRIDE + cols * STRIDE, mask=mask, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n_cols + cols, x / tl.sum(x, axis=0), mask=mask)
"""
RUN = "tilescope run softmax.py --grid 4 --constexpr BLOCK=1024 --arg f32:4x1000:zeros"


def solve(desk):
    desk.require("triton")
    desk.write("softmax.py", SOFTMAX)
    said = desk.type(f"{RUN} --constexpr STRIDE=1 --arg f32:4x1000:ones --arg 1000 --json")
    assert said.status == 0
    told = json.loads(said.out)
    (output,) = told["extra"]["outputs"]
    assert output["name"] == "out_ptr"
    assert output["changed"] == 4000
    assert abs(output["first"][0] - 0.001) < 1e-6  # 1000 equal elements
    assert "Types, by its arguments: *fp32" in told["extra"]["compiled"]
    assert "*fp32, i32." in told["extra"]["compiled"]
    assert not [finding for finding in told["findings"] if finding["rule"] == "run-sectors"]
    strided = desk.type(f"{RUN} --constexpr STRIDE=8 --arg f32:4x8000:ones --arg 1000")
    assert "softmax.py:10" in strided.text  # the load
    assert "4000 sectors, 500 would hold the bytes" in strided.text
