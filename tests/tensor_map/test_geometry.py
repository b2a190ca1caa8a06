"""Sizes that follow from a map's arguments, held against counting."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.tensor_map.samples import IMAGES, MATRIX, PADDED, SIX_BITS, SLICES, WIDE


def visited(extent, stride):
    return len(range(0, extent, stride))


@given(
    box=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    strides=st.lists(st.integers(1, 8), min_size=5, max_size=5),
    swizzle=st.sampled_from(["none", "32B", "64B", "128B"]),
)
def test_a_tiled_copy_counts_the_elements_it_visits(box, strides, swizzle):
    rank = len(box)
    box = (box[0] % 2 * 8 + 8, *box[1:])  # 16 or 32 bytes of bf16
    strides = tuple(strides[:rank])
    tensor_map = ts.TensorMap("bf16", (64,) * rank, (128,) * (rank - 1), box, element_strides=strides, swizzle=swizzle)
    rows = list(itertools.product(*(range(0, extent, step) for extent, step in zip(box[1:], strides[1:], strict=True))))
    pitch = max(box[0] * 2, {"none": 0, "32B": 32, "64B": 64, "128B": 128}[swizzle])
    assert tensor_map.visited_elements == (box[0], *map(visited, box[1:], strides[1:]))
    assert tensor_map.rows == len(rows)
    assert tensor_map.transaction_bytes == len(rows) * box[0] * 2
    assert tensor_map.smem_bytes == len(rows) * pitch


@pytest.mark.parametrize(("interleave", "pixel_bytes"), [("16B", 16), ("32B", 32)])
def test_an_interleaved_copy_moves_one_slice_in_packed_pixels(interleave, pixel_bytes):
    tensor_map = ts.TensorMap(
        **SLICES | {"interleave": interleave, "swizzle": "32B", "box": (8, 5, 3), "element_strides": (3, 2, 2)}
    )
    assert tensor_map.visited_elements == (3, 1, 2)  # W, one slice whatever the box says, N
    assert tensor_map.rows == 6
    assert tensor_map.smem_bytes == tensor_map.transaction_bytes == 6 * pixel_bytes
    images = IMAGES | {"dims": (32, 32, 8, 8), "interleave": interleave, "swizzle": "32B"}
    column = ts.Im2colMap(**images)
    assert column.smem_bytes == column.transaction_bytes == 64 * pixel_bytes


def test_the_driver_counts_with_the_floor_and_dim_0_too():
    tensor_map = ts.TensorMap(**MATRIX | {"element_strides": (3, 5)})
    assert tensor_map.box_bytes == 64 // 3 * (64 // 5) * 2
    assert tensor_map.transaction_bytes == 64 * 13 * 2


def test_padded_types_take_a_byte_a_value_in_shared_memory():
    for arguments, global_bytes in ((PADDED, 64), (SIX_BITS, 96)):
        tensor_map = ts.TensorMap(**arguments)
        assert (tensor_map.inner_bytes, tensor_map.pitch_bytes, tensor_map.rows) == (128, 128, 8)
        assert tensor_map.transaction_bytes == 8 * global_bytes


@pytest.mark.parametrize(("swizzle", "alignment"), [("none", 128), ("32B", 256), ("64B", 512), ("128B", 1024)])
def test_the_pattern_starts_at_its_own_alignment(swizzle, alignment):
    assert ts.TensorMap(**MATRIX | {"box": (16, 8), "swizzle": swizzle}).smem_alignment_bytes == alignment


def test_pixels_of_im2col_maps():
    assert ts.Im2colMap(**IMAGES).smem_bytes == 64 * 128
    assert ts.Im2colWideMap(**WIDE | {"pixels_per_column": 40}).transaction_bytes == 40 * 128
    assert ts.Im2colWideMap(**WIDE | {"pixels_per_column": 40, "mode": "W128"}).transaction_bytes == 128 * 128


@pytest.mark.parametrize(
    ("change", "basis"),
    [
        ({}, "measured"),
        ({"arch": "sm_100"}, "documented"),
        ({"arch": "sm_100", "swizzle": "128B_ATOM_32B"}, "documented"),
        ({"swizzle": "64B", "box": (32, 8)}, "measured"),
    ],
)
def test_basis(change, basis):
    assert ts.TensorMap(**MATRIX | change).basis == basis
