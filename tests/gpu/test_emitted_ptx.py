"""The PTX that a plan prints, run on a card as it stands: shared memory, or the matrix, holds what the emulator says."""

import numpy as np
import pytest
from ptx_step import run_step

import tilescope as ts
from tilescope.layout import oriented

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("card")]
SMEM = 0x400  # where a block's dynamic shared memory starts; descriptors of the other operand point there too

LOADS = {
    "wgmma": ts.plan((64, 64), "bf16").best,
    "wgmma, two boxes": ts.plan((64, 128), "bf16", swizzle="64B").best,
    "wgmma, MN-major": ts.plan((128, 64), "bf16", major="MN", operand="A").best,
    "wgmma, core matrices": ts.plan((64, 64), "bf16", swizzle="none").best,
    "wgmma, tf32": ts.plan((64, 32), "tf32").best,
    "wgmma, by cp.async": ts.plan((64, 64), "bf16", copy="cp.async").best,
    "wgmma, folded": next(plan for plan in ts.plan((128, 256), "bf16", fold=True).candidates if plan.folded),
    "ldmatrix": ts.plan((64, 64), "bf16", consumer="ldmatrix").best,
    "ldmatrix, MN-major by ld.global": ts.plan((64, 64), "f16", consumer="ldmatrix", major="MN", copy="ld.global").best,
    "ldmatrix, odd tile by cp.async": ts.plan((24, 40), "bf16", consumer="ldmatrix", copy="cp.async").best,
    "ldmatrix for sm_80": ts.plan((64, 64), "s8", consumer="ldmatrix", arch="sm_80").best,
    "threads": ts.plan((64, 32), "f32", consumer="ld.b128 columns").best,
}
STORES = {
    "stmatrix": ts.plan((64, 64), "bf16", direction="store").best,
    "stmatrix, MN-major": ts.plan((64, 64), "bf16", direction="store", major="MN").best,
    "two boxes": ts.plan((64, 128), "bf16", direction="store").best,
    "single elements": ts.plan((64, 64), "f32", direction="store").best,
    "bytes": ts.plan((64, 64), "s8", direction="store", major="MN").best,
}


def matrix_of(plan, sticking_out):
    """Shape (mn, k), pitch and bytes of a matrix of two tiles each way, less what the last ones stick out."""
    major, bits = plan.problem.major, plan.problem.data_type.bits
    rows, columns = oriented(major, *(2 * extent for extent in plan.problem.tile))
    rows, columns = rows - sticking_out[0], columns - sticking_out[1]
    pitch = -(-columns * bits // 128) * 16
    memory = np.random.default_rng(3).integers(0, 256, rows * pitch, np.uint8)
    return oriented(major, rows, columns), pitch, memory


def number(value, kind=np.uint32):
    return kind(value).tobytes()


def copied_by_threads(plan, shape, pitch, memory, first):
    """The stage with every element at its address, zeros outside the matrix."""
    size, major = plan.problem.data_type.bits // 8, plan.problem.major
    mn, k = np.indices(plan.problem.tile)
    row, column = oriented(major, mn + first[0], k + first[1])
    rows, columns = oriented(major, *shape)
    inside = (row < rows) & (column < columns)
    source = np.where(inside, row * pitch + column * size, 0)[..., None] + np.arange(size)
    stage = np.full(plan.stage_bytes, 0xEE, np.uint8)
    stage[plan.address(mn, k)[..., None] + np.arange(size)] = np.where(inside[..., None], memory[source], 0)
    return stage


def load_on(card, plan, first, sticking_out):
    """The stage that the card has after the text ran, and the one that it should have."""
    shape, pitch, memory = matrix_of(plan, sticking_out)
    address = card.upload(memory)
    rows, columns = oriented(plan.problem.major, *shape)
    stage = np.full(plan.stage_bytes, 0xEE, np.uint8)
    if plan.boxes is None:
        row_bytes = columns * plan.problem.data_type.bits // 8
        arguments = [number(address, np.uint64), number(pitch, np.uint64), number(rows), number(row_bytes)]
        stage = copied_by_threads(plan, shape, pitch, memory, first)
    else:
        tensor_map = plan.tensor_map(0, shape, (pitch,))
        arguments = [card.encode_map(tensor_map, address)]
        for copy in plan.copies:
            start = copy.smem_offset_bytes
            coords = plan.copy_coords(copy, *first)
            ts.load(tensor_map, memory, coords, smem=stage[start:], smem_address=SMEM + start)
    if plan.problem.reads_by_descriptor:
        arguments.append(number(plan.descriptors(SMEM)[0][0].encode(), np.uint64))
    found = run_step(card, plan, ts.emit(plan, "ptx"), [*arguments, number(first[0]), number(first[1])])
    return found, stage


@pytest.mark.parametrize("name", LOADS)
def test_a_load_brings_the_tile_to_shared_memory_as_the_emulator_does(card, name):
    plan = LOADS[name]
    for first in ((0, 0), plan.problem.tile):
        found, expected = load_on(card, plan, first, (0, 0))
        assert np.array_equal(found, expected), first


@pytest.mark.parametrize("name", [name for name, plan in LOADS.items() if not plan.folded])
def test_a_tile_that_sticks_out_is_filled_with_zeros(card, name):
    plan = LOADS[name]
    found, expected = load_on(card, plan, plan.problem.tile, (3, 5))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", STORES)
def test_a_store_brings_the_tile_to_the_matrix_as_the_emulator_does(card, name):
    plan = STORES[name]
    shape, pitch, memory = matrix_of(plan, (3, 0))
    size, first = plan.problem.data_type.bits // 8, plan.problem.tile
    values = np.random.default_rng(4).integers(0, 256, (*plan.problem.tile, size), np.uint8)
    tensor_map, address = plan.tensor_map(0, shape, (pitch,)), card.upload(memory)
    arguments = [card.encode_map(tensor_map, address), number(card.upload(values), np.uint64)]
    run_step(card, plan, ts.emit(plan, "ptx"), [*arguments, number(first[0]), number(first[1])])
    stage = np.zeros(plan.stage_bytes, np.uint8)
    stage[plan.address(*np.indices(plan.problem.tile))[..., None] + np.arange(size)] = values
    expected = memory.copy()
    for copy in plan.copies:
        start = copy.smem_offset_bytes
        ts.store(tensor_map, stage[start:], expected, plan.copy_coords(copy, *first), smem_address=SMEM + start)
    assert np.array_equal(card.download(address, memory.copy()), expected)
