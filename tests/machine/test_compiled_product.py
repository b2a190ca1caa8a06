"""wgmma by the compiled loop leaves what wgmma by arrays leaves: registers, findings, costs."""

import numpy as np
import pytest
from kernel_recording import PATHS, recording

import tilescope as ts
from tilescope.machine.instructions.tensor_core import wgmma

EXTENT = 256
BOXES = {"mm_tma_f16": (128, 128, 128), "attention": (128, 64, 64, 128)}


def arrays_of(name):
    """Operands with an infinity, a NaN, subnormals and zeros in some blocks, and room for the result."""
    random = np.random.default_rng(3)
    shapes = {"mm_tma_f16": [(EXTENT, EXTENT)] * 2, "attention": [(2 * EXTENT, 64), (EXTENT, 64), (EXTENT, 64)]}[name]
    arrays = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    arrays[0][3, 5] = np.inf
    arrays[0][200, 60] = np.nan
    arrays[0][130:140, :7] = 6e-8
    arrays[1][::9] = 0
    return [*arrays, np.zeros_like(arrays[0])]


def run(name):
    launch = recording(name).launch
    memory = ts.Memory()
    arrays = arrays_of(name)
    args = []
    for array, box_rows in zip(arrays, BOXES[name], strict=True):
        rows, columns = array.shape
        args += [memory.map(array, (64, box_rows), swizzle="128B"), rows, columns, columns, 1]
    numbers = [EXTENT] if name == "mm_tma_f16" else [0.18, EXTENT]
    grid = (EXTENT // 128, EXTENT // 128) if name == "mm_tma_f16" else 2 * EXTENT // 128
    kernel = ts.Kernel(PATHS[name].with_suffix(".ptx").read_text("utf-8"), launch["entry"])
    found = kernel.run(
        grid, launch["block"], [*args, *numbers, 0, 0], memory=memory, smem_bytes=launch["smem_bytes"], advice="none"
    )
    return found.to_dict(), [array.tobytes() for array in arrays]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", BOXES)
def test_the_compiled_loop_leaves_the_same_as_arrays(require, monkeypatch, name):
    require("numba")
    refused = []
    multiply = wgmma.multiply_groups
    monkeypatch.setattr(wgmma, "is_compiled", lambda *_: True)
    monkeypatch.setattr(wgmma, "multiply_groups", lambda *operands: refused.append(multiply(*operands)) or refused[-1])
    compiled = run(name)
    monkeypatch.setattr(wgmma, "is_compiled", lambda *_: False)
    assert run(name) == compiled
    counts = np.concatenate(refused)
    assert counts.any()  # an infinity of A concerns a quarter of the warpgroups at most
    assert not counts.all()
