"""Loads that differ in their coordinates alone, carried out together, leave what they leave one by one."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.tensor_map import Copy
from tilescope.tma.transfer import deliver, deliver_together
from tilescope.tma.walk import walk

ROWS, COLUMNS = 48, 64
SMEM_BYTES = 4096 + 24  # no multiple of a piece
INSIDE = [(0, 0), (0, 16), (32, 32), (32, 8)]
MAPS = {
    "dense": ts.TensorMap("f16", (COLUMNS, ROWS), (2 * COLUMNS,), (32, 16)),
    "swizzled": ts.TensorMap("f16", (COLUMNS, ROWS), (2 * COLUMNS,), (32, 16), swizzle="64B"),
    "rounded": ts.TensorMap("tf32", (COLUMNS // 2, ROWS), (2 * COLUMNS,), (16, 16)),
    "padded": ts.TensorMap("16u4_align16b", (256, ROWS), (2 * COLUMNS,), (128, 16), swizzle="128B", arch="sm_100"),
}


def both(tensor_map, coords, memory):
    """Shared memories after loads together, and after one by one."""
    copies = [Copy(tensor_map, "load", own, 1024) for own in coords]
    walks = [walk(copy) for copy in copies]
    together = np.full((len(copies), SMEM_BYTES), 0xAA, np.uint8)
    alone = together.copy()
    deliver_together(copies, walks, memory, together, "smem")
    for copy, smem in zip(copies, alone, strict=True):
        deliver(copy, memory, {"smem": smem})
    return together, alone


@pytest.fixture
def memory():
    return np.random.default_rng(2).integers(0, 256, 2 * ROWS * COLUMNS, np.uint8)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("coords", [INSIDE, [(0, 0)], [(0, 0), (0, 40)], [(-8, 0), (0, 0), (0, 100)]])
def test_together_as_one_by_one(name, coords, memory):
    if name == "padded":
        coords = [(0, row) for _, row in coords]
    together, alone = both(MAPS[name], coords, memory)
    assert (together == alone).all()
    assert (together != 0xAA).any()


def test_memory_that_ends_too_early_is_refused_before_anything_is_written(memory):
    copies = [Copy(MAPS["dense"], "load", own) for own in INSIDE]
    smems = np.zeros((len(copies), SMEM_BYTES), np.uint8)
    with pytest.raises(RuleError, match="memory-extent"):
        deliver_together(copies, [walk(copy) for copy in copies], memory[:4000], smems, "smem")
    assert not smems.any()
