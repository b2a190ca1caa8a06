"""The way of an element, stop by stop, against those who know each stop: the emulator, the descriptor, ldmatrix."""

import numpy as np
import pytest

import tilescope as ts

PLANS = [
    ((128, 64), "bf16", {}),
    ((128, 128), "bf16", {"swizzle": "64B"}),
    ((128, 128), "f16", {"major": "MN"}),
    ((64, 64), "tf32", {}),
    ((64, 256), "e4m3", {}),
    ((96, 64), "bf16", {"operand": "B"}),
    ((64, 64), "f16", {"major": "MN", "swizzle": "none"}),
    ((128, 64), "bf16", {"arch": "sm_100"}),
    ((64, 64), "f16", {"consumer": "ldmatrix"}),
    ((64, 128), "s8", {"consumer": "ldmatrix"}),
    ((64, 64), "bf16", {"consumer": "ldmatrix", "operand": "B"}),
]


def elements(tile, count):
    """The same elements every time, corners among them."""
    drawn = np.random.default_rng(7).integers(0, tile, (count, 2))
    return [(0, 0), (tile[0] - 1, tile[1] - 1), *map(tuple, drawn.tolist())]


@pytest.mark.parametrize(("tile", "data_type", "options"), PLANS)
def test_the_emulated_copies_bring_the_element_to_its_address(tile, data_type, options):
    plan = ts.plan(tile, data_type, **options).best
    tensor_map = plan.tensor_map(0)
    traces = [ts.trace(tensor_map, copy.coords) for copy in plan.copies]
    for mn, k in elements(tile, 20):
        path = plan.path(mn, k)
        copy = path.copy
        trace = traces[copy.number]
        assert trace.source_offset[path.address - copy.smem_offset_bytes] == path.gmem_offset_bytes
        assert copy.coords == plan.copies[copy.number].coords
        assert path.address == 128 * path.line + 16 * path.smem_chunk + path.address % 16
        assert path.bank == path.address // 4 % 32


@pytest.mark.parametrize(("tile", "data_type", "options"), [row for row in PLANS if "consumer" not in row[2]])
def test_the_descriptor_reads_the_element_from_that_address(tile, data_type, options):
    plan = ts.plan(tile, data_type, **options).best
    loop = plan.descriptors()
    for mn, k in elements(tile, 20):
        path = plan.path(mn, k)
        read = path.descriptor
        descriptor = loop[read.mn_block][read.k_step]
        addresses = descriptor.addresses(
            major=plan.problem.major, rows=loop.block_mn, k=loop.k_per_step, element_bits=plan.layout.element_bits
        )
        assert addresses[read.mn, read.k] == path.address
        assert read.word == descriptor.encode()


def test_ldmatrix_brings_the_element_to_its_register():
    plan = ts.plan((64, 64), "f16", consumer="ldmatrix").best
    smem = np.zeros(plan.smem_bytes, np.uint8)
    words = smem.view(np.uint16)
    mn, k = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")
    words[plan.address(mn, k) // 2] = mn * 64 + k
    for row, column in elements((64, 64), 40):
        held = plan.path(row, column).register
        lane = np.arange(32)
        corner_mn, corner_k = 16 * held.block[0], 16 * held.block[1]
        addresses = plan.address(corner_mn + lane % 16, corner_k + lane // 16 * 8)
        registers = ts.ldmatrix(smem, addresses, count=4)
        assert registers[held.lane, held.register] >> held.first_bit & 0xFFFF == row * 64 + column
        assert addresses[held.address_lane] // 128 * 128 == plan.address(row, column) // 128 * 128


@pytest.mark.parametrize(("operand", "axis"), [("A", 0), ("B", 1)])
def test_the_result_lies_where_the_fragment_of_d_says(operand, axis):
    plan = ts.plan((64, 64), "bf16", operand=operand).best
    instruction = "wgmma.m64n64k16"
    fragment = ts.fragment(instruction, operand="D", data_type="f32")
    for index in range(0, 64, 7):
        holders = {fragment.holder(*((index, other) if axis == 0 else (other, index)))[0] for other in range(64)}
        assert set(plan.path(index, 0).result.threads) == holders


def test_the_rows_of_an_instruction_of_128_rows_are_lanes_of_tensor_memory():
    plan = ts.plan((256, 64), "bf16", arch="sm_100", operand="A").best
    assert plan.descriptors().block_mn == 128
    assert [plan.path(mn, 0).result.lane_or_column for mn in (0, 127, 128, 255)] == [0, 127, 0, 127]


def test_an_element_outside_the_tile_is_refused():
    with pytest.raises(ts.TilescopeError, match="path-element"):
        ts.plan((64, 64), "bf16").best.path(0, 64)
