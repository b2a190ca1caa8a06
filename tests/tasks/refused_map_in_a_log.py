"""Training stops with "CUDA driver error: invalid argument"; CUTLASS printed the map. Which argument is wrong?"""

LOG = """\
W1117 06:12:44.113000 48213 torch/_inductor/utils.py:1703] [0/0] Not enough SMs to use max_autotune_gemm mode
Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    out = gemm(a, b)
RuntimeError: CUDA driver error: invalid argument
TMA Desc Addr:   0x7ffd2c1f3a80
format         9
dim            2
gmem_address   0x7f4e9a000000
globalDim      (4100,8192,1,1,1)
globalStrides  (2,8200,0,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
Error: Failed to initialize the TMA descriptor 1
"""


def solve(desk):
    desk.write("train.log", LOG)
    said = desk.type("tilescope check train.log -q")
    assert said.status == 1
    assert "strides_bytes[0] = 8200 bytes" in said.first
    assert "strides are multiples of 16 bytes" in said.first
    assert "8208" in said.out  # the stride that works
    mended = desk.type("tilescope check --type bf16 --dims 4100,8192 --strides 8208 --box 64,128 --swizzle 128B -q")
    assert mended.status == 0
    assert mended.first.startswith("Accepted")
