"""The epilogue of tcgen05: D is loaded from tensor memory, converted and written to the planned tile, and costs what the plan says."""

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.mma.tmem_address import TmemAddress
from tilescope.planner.consumers import tmem_epilogues


def accumulator(m, n):
    """D with its own index, as an instruction of M 128 leaves it in tensor memory."""
    d = (np.arange(m * n).reshape(m, n) % 2039).astype(np.float32)
    cells = np.zeros((128, 512), np.uint32)
    cells[:m, :n] = d.view(np.uint32)
    return d, ts.TensorMemory(cells, allocations=((0, 512),))


def drained_rows(memory, layout, n, dtype):
    """Each thread loads its row with .32x32b and writes 16 bytes at a time: (instruction, lane) addresses."""
    smem = np.full(layout.size_bytes, 0xEE, np.uint8)
    per_store = 16 // np.dtype(dtype).itemsize
    addresses = []
    for column in range(0, n, per_store):
        for warp in range(4):
            registers = memory.load(f"32x32b.x{per_store}", TmemAddress(32 * warp, column), warp=warp)
            results = np.ascontiguousarray(registers.view(np.float32).astype(dtype)).view(np.uint8)
            lanes = [int(layout.address(32 * warp + lane, column)) for lane in range(32)]
            for lane, address in enumerate(lanes):
                smem[address : address + 16] = results[lane]
            addresses.append(lanes)
    return smem, "st.b128", addresses


def drained_matrices(memory, layout, n, dtype, transpose=False):
    """Each warp loads 16 x 16 with .16x256b.x2, packs neighbours into registers, and writes them with stmatrix.x4."""
    smem = np.full(layout.size_bytes, 0xEE, np.uint8)
    addresses = []
    for column in range(0, n, 16):
        for warp in range(4):
            for half in (0, 16):
                first = 32 * warp + half
                loaded = memory.load("16x256b.x2", TmemAddress(first, column), warp=warp).view(np.float32).astype(dtype)
                registers = np.ascontiguousarray(loaded).view(np.uint32)  # two neighbours of n in each
                lane = np.arange(32)
                matrix, line = lane // 8, lane % 8
                if transpose:  # a stored row runs along m: the matrix of 8 m x 8 n, its line an n
                    places = [
                        (first + 8 * (j % 2), column + 8 * (j // 2) + r) for j, r in zip(matrix, line, strict=True)
                    ]
                else:
                    places = [
                        (first + 8 * (j % 2) + r, column + 8 * (j // 2)) for j, r in zip(matrix, line, strict=True)
                    ]
                lanes = [int(layout.address(int(m), int(k))) for m, k in places]
                ts.stmatrix(registers, smem, lanes, transpose=transpose)
                addresses.append(lanes)
    return smem, "stmatrix.x4" + (".trans" if transpose else ""), addresses


@pytest.mark.parametrize(
    ("tile", "data_type", "major", "access"),
    [
        ((128, 64), "bf16", "K", "stmatrix.x4 tcgen05.ld.16x256b"),
        ((128, 128), "f16", "K", "stmatrix.x4 tcgen05.ld.16x256b"),
        ((128, 64), "bf16", "MN", "stmatrix.x4.trans tcgen05.ld.16x256b"),
        ((128, 32), "f32", "K", "st.b128 tcgen05.ld.32x32b.x4"),
        ((128, 128), "e4m3", "K", "st.b128 tcgen05.ld.32x32b.x16"),
    ],
)
def test_what_the_plan_says_is_written_without_conflict(tile, data_type, major, access):
    plan = ts.plan(tile, data_type, direction="store", arch="sm_100", major=major).best
    assert plan.costs.access == access
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}[
        data_type
    ]
    d, memory = accumulator(*tile)
    if access.startswith("stmatrix"):
        smem, op, lanes = drained_matrices(memory, plan.layout, tile[1], dtype, transpose=major == "MN")
    else:
        smem, op, lanes = drained_rows(memory, plan.layout, tile[1], dtype)
    place = plan.layout.address(np.arange(tile[0])[:, None], np.arange(tile[1])[None, :])
    size = np.dtype(dtype).itemsize
    stored = smem[place[..., None] + np.arange(size)].reshape(tile[0], -1)
    assert (stored == d.astype(dtype).view(np.uint8)).all()
    assert ts.wavefronts(op, np.array(lanes)).sum() == plan.costs.write_wavefronts == plan.costs.write_ideal


def test_the_shape_follows_the_layout():
    """On 128B with 32-byte atoms, lanes below each other collide, and pairs of neighbours do not."""
    plan = ts.plan((128, 32), "f32", direction="store", arch="sm_100", swizzle="128B_ATOM_32B").best
    assert plan.costs.access == "st.b64 tcgen05.ld.16x256b.x1"
    assert plan.costs.write_wavefronts == plan.costs.write_ideal


def test_every_way_covers_the_tile_once():
    for bits in (8, 16, 32):
        for transpose in (False, True):
            for access in tmem_epilogues((128, 64), bits, transpose=transpose):
                if access.op.is_matrix:
                    assert access.lane_address.size * 16 == 128 * 64 * bits // 8
                    continue
                width = access.op.access_bytes
                pieces = (access.lane_address[..., None] + np.arange(width)).ravel()
                assert sorted(pieces.tolist()) == list(range(128 * 64 * bits // 8)), access.name
