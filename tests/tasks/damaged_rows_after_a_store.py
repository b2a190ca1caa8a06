"""After a TMA store of a matrix with 1001 columns, the first elements of the padding, which hold my statistics, are zero."""

import numpy as np

import tilescope as ts

MAP = "--type bf16 --dims 1001,512 --strides 2016 --box 64,64 --swizzle 128B"


def solve(desk):
    said = desk.type('tilescope explain "TMA store overwrites the columns behind the matrix" -q')
    assert "store-rounds-to-16" in said.first
    said = desk.type(f"tilescope load {MAP} --coords 960,0 --operation store -q")
    assert "896 bytes behind the tensor's rows" in said.first  # 64 rows x 14 bytes
    noted = desk.type(f"tilescope check {MAP}")
    assert "Use dims[0] = 1008 if those bytes" in noted.text

    memory = np.full((512, 1008), 7, np.uint16)
    tensor_map = ts.TensorMap("bf16", (1001, 512), (2016,), (64, 64))
    ts.store(tensor_map, np.zeros(tensor_map.smem_bytes, np.uint8), memory, (960, 0))
    assert (memory[:64, 1001:] == 0).all()
    assert (memory[64:, 1001:] == 7).all()
