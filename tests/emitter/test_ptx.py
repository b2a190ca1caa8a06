"""The PTX of a plan, run thread by thread: the tile comes where the plan has it, and one thread issues what one thread must."""

import re

import numpy as np
import pytest
from emitter_sample import OPTIONS, PLANS, consumer, is_copied_by_tma, is_load
from ptx_threads import SMEM, Block

import tilescope as ts
from tilescope.layout import oriented

QUICK = {"00", "29", "43", "44", "56", "70", "83", "88"}
LOADS = [name for name in PLANS if is_load(name)]
STORES = [name for name in PLANS if not is_load(name)]
THREADS = 128
MATRIX, VALUES = 0x10000, 0x4000000


def some(names):
    """All of them; but for the sample, under ./test --all only."""
    return [pytest.param(name, marks=[] if name[:2] in QUICK else [pytest.mark.slow]) for name in names]


def matrix_of(plan, *, partial):
    """Shape (mn, k), pitch and bytes of a matrix of three tiles each way; `partial`: the last ones stick out."""
    mn, k = plan.problem.tile
    chunk = 128 // plan.problem.data_type.bits
    shape = (3 * mn, 3 * k)
    if partial:
        shape = oriented(
            plan.problem.major,
            *(a - b for a, b in zip(oriented(plan.problem.major, *shape), (3, chunk + 1), strict=True)),
        )
    rows, columns = oriented(plan.problem.major, *shape)
    pitch = -(-columns * plan.problem.data_type.bits // 128) * 16
    return shape, pitch, np.random.default_rng(1).integers(0, 256, rows * pitch, np.uint8)


def expected_stage(plan, shape, pitch, memory, first):
    """The bytes of a stage with the tile at `first`: every element at its address, zeros outside the matrix."""
    size = plan.problem.data_type.bits // 8
    mn, k = np.indices(plan.problem.tile)
    row, column = oriented(plan.problem.major, mn + first[0], k + first[1])
    rows, columns = oriented(plan.problem.major, *shape)
    inside = (row < rows) & (column < columns)
    source = np.where(inside, row * pitch + column * size, 0)[..., None] + np.arange(size)
    stage = np.full(plan.stage_bytes, 0xEE, np.uint8)
    stage[(plan.address(mn, k, SMEM) - SMEM)[..., None] + np.arange(size)] = np.where(
        inside[..., None], memory[source], 0
    )
    return stage


def run_load(plan, first, *, partial=False):
    shape, pitch, memory = matrix_of(plan, partial=partial)
    rows, columns = oriented(plan.problem.major, *shape)
    row_bytes = columns * plan.problem.data_type.bits // 8
    parameters = {
        "first_mn": first[0],
        "first_k": first[1],
        "matrix": MATRIX,
        "pitch_bytes": pitch,
        "rows": rows,
        "row_bytes": row_bytes,
        "other": 0,
    }
    tensor_map = None
    if plan.boxes is not None:
        is_rounded = plan.problem.data_type.name.startswith("tfloat32")  # indices would not survive: bits as they are
        tensor_map = plan.tensor_map(MATRIX, shape, (pitch,))
        tensor_map = tensor_map.replace(data_type="uint32") if is_rounded else tensor_map
    block = Block(ts.emit(plan, "ptx"), THREADS, parameters, {MATRIX: memory}, tensor_map)
    block.run()
    return block, expected_stage(plan, shape, pitch, memory, first)


@pytest.mark.parametrize("name", some(LOADS))
def test_a_load_brings_the_tile_that_starts_at_the_given_element(name):
    plan = PLANS[name]
    block, expected = run_load(plan, plan.problem.tile)
    assert np.array_equal(block.smem[: len(expected)], expected)


@pytest.mark.parametrize("name", some(name for name in LOADS if "fold" not in OPTIONS[name]))
def test_the_last_tile_of_a_matrix_is_filled_with_zeros(name):
    plan = PLANS[name]
    block, expected = run_load(plan, tuple(2 * extent for extent in plan.problem.tile), partial=True)
    assert np.array_equal(block.smem[: len(expected)], expected)


@pytest.mark.parametrize("name", some(filter(is_copied_by_tma, LOADS)))
def test_one_thread_initialises_expects_and_copies_and_all_wait(name):
    plan = PLANS[name]
    block, _ = run_load(plan, (0, 0))
    for instruction in ("mbarrier.init", "fence.mbarrier_init", "mbarrier.arrive.expect_tx", "cp.async.bulk.tensor"):
        assert block.executed_by(instruction) == {0}, instruction
    assert (
        len([1 for name, calls in block.done.items() for _ in calls if "bulk.tensor" in name]) == plan.tma_instructions
    )
    text = ts.emit(plan, "ptx")
    assert re.search(r"mbarrier\.init[^;]*;.*\n  bar\.sync 0;.*mbarrier\.try_wait", text, re.DOTALL)


@pytest.mark.parametrize("name", some(name for name in LOADS if not is_copied_by_tma(name)))
def test_threads_copy_different_chunks(name):
    plan = PLANS[name]
    block, _ = run_load(plan, (0, 0))
    stores = "cp.async.cg" if plan.problem.copy == "cp.async" else "st.shared"
    targets = [values[0][0] for done, calls in block.done.items() if done.startswith(stores) for _, values in calls]
    assert len(targets) == len(set(targets)) == plan.problem.rows * plan.problem.row_bytes // 16
    assert block.executed_by(stores) == set(range(min(THREADS, len(targets))))


@pytest.mark.parametrize("name", some(name for name in LOADS if consumer(name) == "ldmatrix"))
def test_lanes_of_ldmatrix_give_rows_of_the_tile(name):
    """Lane 8 i + r: row r of matrix i, 16 bytes within the tile; four matrices where the tile has them."""
    plan = PLANS[name]
    block, _ = run_load(plan, plan.problem.tile)
    (calls,) = (calls for done, calls in block.done.items() if done.startswith("ldmatrix"))
    address = np.array([values[0][0] for _, values in calls[:32]]).reshape(4, 8)
    mn, k = plan.problem.tile
    chunk = 128 // plan.problem.data_type.bits
    below, beside = (8 if mn > 8 else 0), (chunk if k > chunk else 0)
    step = np.arange(8)
    for matrix, (first_mn, first_k) in enumerate(((0, 0), (below, 0), (0, beside), (below, beside))):
        at = (first_mn, first_k + step) if plan.problem.major == "MN" else (first_mn + step, first_k)
        assert np.array_equal(address[matrix], np.broadcast_to(plan.address(*at, SMEM), 8)), matrix


@pytest.mark.parametrize("name", some(name for name in LOADS if consumer(name).startswith("ld.")))
def test_threads_read_different_vectors_of_the_tile(name):
    plan = PLANS[name]
    block, expected = run_load(plan, plan.problem.tile)
    (calls,) = (calls for done, calls in block.done.items() if done.startswith("ld.shared"))
    addresses = [address for _, (address, _) in calls]
    assert len(set(addresses)) == len(addresses) > 1
    for address, held in (read for _, read in calls):
        assert held == expected[address - SMEM : address - SMEM + len(held)].tobytes()


@pytest.mark.thinned(16)
@pytest.mark.parametrize("name", some(STORES))
def test_a_store_brings_every_value_to_its_place_in_the_matrix(name):
    plan = PLANS[name]
    shape, pitch, memory = matrix_of(plan, partial=False)
    size, tile = plan.problem.data_type.bits // 8, plan.problem.tile
    values = np.random.default_rng(2).integers(0, 256, (*tile, size), np.uint8)
    expected, held = memory.copy(), memory.copy()
    mn, k = np.indices(tile)
    row, column = oriented(plan.problem.major, mn + tile[0], k + tile[1])
    expected[(row * pitch + column * size)[..., None] + np.arange(size)] = values
    parameters = {"first_mn": tile[0], "first_k": tile[1], "values": VALUES}
    memories = {MATRIX: held, VALUES: values.reshape(-1)}
    block = Block(ts.emit(plan, "ptx"), THREADS, parameters, memories, plan.tensor_map(MATRIX, shape, (pitch,)))
    block.run()
    assert np.array_equal(held, expected)
    for instruction in ("cp.async.bulk.tensor", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group"):
        assert block.executed_by(instruction) == {0}, instruction
    assert block.executed_by("fence.proxy.async") == set(range(THREADS))
