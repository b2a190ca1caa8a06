"""load_tiles leaves what load leaves for each tile of the grid, by whichever of its ways."""

import itertools
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import tma
from tilescope.swizzle import permutation
from tilescope.tma import tiles as tiles_module


def tiles_one_by_one(a, memory):
    steps = list(a.box)
    if a.interleave.slice_bytes:
        steps[-2] = 1
    grid = [-(-extent // step) for extent, step in zip(a.dims, steps, strict=True)]
    found = [
        ts.load(a, memory, tuple(place * step for place, step in zip(index[::-1], steps, strict=True)))
        for index in itertools.product(*map(range, grid[::-1]))
    ]
    return np.array(found).reshape(*grid[::-1], -1)


@st.composite
def maps(draw):
    data_type = draw(
        st.sampled_from(["uint8", "float16", "float32", "tfloat32", "float64", "16u4_align8b", "16u6_align16b"])
    )
    packed = data_type.startswith("16u")
    interleave = "none" if packed else draw(st.sampled_from(["none", "none", "16B", "32B"]))
    rank = draw(st.integers(1 if interleave == "none" else 3, 4))
    bits = ts.DataType.named(data_type).bits
    unit = 128 // bits if bits != 6 else 128
    dims = [draw(st.integers(1, 9)) for _ in range(rank)]
    box = [draw(st.integers(1, 4)) for _ in range(rank)]
    swizzle = draw(st.sampled_from(["none", "32B", "64B", "128B", "128B_ATOM_32B_FLIP_8B"]))
    widest = {"32B": 2, "64B": 4}.get(swizzle, 8)
    if bits == 6:
        swizzle = "128B"
        dims[0], box[0] = 128 * draw(st.integers(1, 3)), 128
    else:
        box[0] = unit * draw(st.integers(1, 2 if interleave != "none" else widest))
        if interleave == "none":
            dims[0] = draw(st.integers(1, 3 * box[0])) * (2 if packed else 1)
    slice_bytes = {"none": None, "16B": 16, "32B": 32}[interleave]
    row = -(-dims[0] * (slice_bytes * 8 if slice_bytes else bits) // 256) * 32
    strides = []
    for extent in dims[1:]:
        strides.append(row + 32 * draw(st.integers(0, 2)))
        row = strides[-1] * extent
    return ts.TensorMap(
        data_type,
        dims,
        strides,
        box,
        element_strides=[draw(st.sampled_from([1, 1, 2])) for _ in range(rank)],
        interleave=interleave,
        swizzle=swizzle,
        arch="sm_100",
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("along_rows", [False, True])
@given(a=maps())
def test_tiles_are_those_of_single_loads(along_rows, threads, a):
    with mock.patch.object(tiles_module, "_ALONG_ROWS", along_rows):
        assert_tiles_are_those_of_single_loads(a, threads)


def assert_tiles_are_those_of_single_loads(a, threads):
    steps = a.strides_bytes or (0,)
    size = a.dims[-1] * steps[-1] + (a.dims[0] * 32 if a.rank == 1 else 0)
    memory = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    wanted = tiles_one_by_one(a, memory)
    found = ts.load_tiles(a, memory, threads=threads)
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("dims", "box"),
    [
        ((64, 11, 5), (16, 4, 2)),
        ((64, 8, 5), (32, 3, 1)),
        ((40, 9, 3, 3), (16, 4, 2, 2)),
        ((64, 7, 5, 3, 2), (32, 3, 2, 2, 1)),
    ],
)
def test_tiles_cut_in_the_middle_of_the_grid_keep_their_places(dims, box):
    strides = np.cumprod([dims[0] * 2 + 16, *dims[1:-1]]).tolist()
    a = ts.TensorMap("u16", dims, strides, box, swizzle="64B")
    memory = np.random.default_rng(2).integers(0, 256, strides[-1] * dims[-1], dtype=np.uint8)
    assert np.array_equal(ts.load_tiles(a, memory), tiles_one_by_one(a, memory))


def test_a_tile_that_ends_within_a_swizzled_line_is_as_long_as_load_makes_it():
    a = ts.TensorMap(
        "u16", (256, 2, 2), (4096, 8192), (32, 1, 1), element_strides=(3, 1, 1), interleave="16B", swizzle="32B"
    )
    memory = np.arange(8192, dtype=np.uint16)
    tiles = ts.load_tiles(a, memory)
    assert a.smem_bytes == 11 * 16
    assert tiles.shape[-1] == len(ts.load(a, memory, (0, 0, 0))) == 12 * 16  # the last pixel changes places with a gap


MATRIX = np.random.default_rng(1).integers(0, 1 << 16, (200, 520), dtype=np.uint16)


@pytest.mark.parametrize(
    ("box_shape", "options"),
    [
        ((64, 64), {"swizzle": "128B"}),
        ((16, 16), {"swizzle": "32B"}),
        ((8, 32), {"swizzle": "64B"}),
        ((64, 64), {}),
        ((7, 64), {"swizzle": "128B"}),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_compiled_loop_leaves_the_same_tiles(box_shape, options, threads, monkeypatch):
    a = ts.TensorMap.from_array(MATRIX, box_shape, address=0, **options)
    monkeypatch.setattr(tiles_module, "STREAMED_BYTES", 1)
    monkeypatch.setattr(permutation, "_SHARE_BYTES", 1)
    used = []
    monkeypatch.setattr(tiles_module.Strips, "stream", watched(tiles_module.Strips.stream, used))
    shape = ts.load_tiles(a, MATRIX).shape
    buffer = np.full(np.prod(shape) + 64, 0xEE, np.uint8)
    out = buffer[-buffer.ctypes.data % 64 :][: np.prod(shape)].reshape(shape)
    assert ts.load_tiles(a, MATRIX, out=out, threads=threads) is out
    assert used
    assert np.array_equal(out, tiles_one_by_one(a, MATRIX))


def watched(method, used):
    def call(self, begin, end):
        used.append((begin, end))
        return method(self, begin, end)

    return call


def tiles_byte_by_byte(matrix, box_rows, mode):
    """The tiles of a matrix of bytes, one span wide: where the mode's address map sends every byte."""
    rows, columns = matrix.shape
    width = mode.span_bytes or 128
    wanted = np.zeros((rows // box_rows, columns // width, box_rows * width), np.uint8)
    for row, column in itertools.product(range(rows), range(columns)):
        address = row % box_rows * width + column % width
        wanted[row // box_rows, column // width, mode.apply(address)] = matrix[row, column]
    return wanted


@pytest.fixture(params=["tile by tile", "along the rows"])
def reading(request, monkeypatch):
    """How numpy reads rows: some processors are faster the one way, some the other."""
    monkeypatch.setattr(tiles_module, "_ALONG_ROWS", request.param == "along the rows")


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
@pytest.mark.parametrize("mode", ts.SWIZZLE.values(), ids=lambda mode: mode.name)
def test_every_byte_lies_where_the_mode_sends_it(mode, compiled, monkeypatch):
    """Strips of seven tiles, of which numpy puts three together at a time."""
    width = mode.span_bytes or 128
    memory = np.random.default_rng(3).integers(0, 256, (32, 7 * width + 16), dtype=np.uint8)
    matrix = memory[:, : 7 * width]
    a = ts.TensorMap("u8", matrix.shape[::-1], (memory.strides[0],), (width, 16), swizzle=mode.name, arch="sm_103")
    monkeypatch.setattr(tiles_module, "STREAMED_BYTES", 1 if compiled else 1 << 40)
    monkeypatch.setattr(tiles_module, "_BATCH_BYTES", 3 * 16 * width)
    buffer = np.zeros(matrix.size + 64, np.uint8)
    out = buffer[-buffer.ctypes.data % 64 :][: matrix.size]
    ts.load_tiles(a, memory, out=out)
    wanted = tiles_byte_by_byte(matrix, 16, mode)
    assert np.array_equal(out.reshape(wanted.shape), wanted)


@pytest.mark.usefixtures("reading")
@pytest.mark.parametrize("box", [(16, 3, 2), (16, 1, 4), (16, 2, 1)])
@pytest.mark.parametrize("element_strides", [(1, 1, 1), (1, 2, 1)])
def test_rows_of_a_box_of_three_dimensions_keep_their_order(box, element_strides, monkeypatch):
    a = ts.TensorMap("u16", (80, 12, 8), (176, 2560), box, element_strides=element_strides)
    memory = np.random.default_rng(4).integers(0, 256, 8 * 2560, dtype=np.uint8)
    monkeypatch.setattr(tiles_module, "_BATCH_BYTES", 2 * a.smem_bytes)
    assert np.array_equal(ts.load_tiles(a, memory), tiles_one_by_one(a, memory))


def test_without_numba_numpy_does_the_same(monkeypatch):
    a = ts.TensorMap.from_array(MATRIX, (64, 64), swizzle="128B", address=0)
    monkeypatch.setattr(tiles_module, "STREAMED_BYTES", 1)
    monkeypatch.setitem(sys.modules, "numba", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "tilescope.tma.tile_streaming", raising=False)
    monkeypatch.delattr(tma, "tile_streaming", raising=False)
    tiles_module.tile_streaming.cache_clear()
    try:
        assert tiles_module.tile_streaming() is None
        assert np.array_equal(ts.load_tiles(a, MATRIX), tiles_one_by_one(a, MATRIX))
    finally:
        monkeypatch.undo()
        tiles_module.tile_streaming.cache_clear()


def test_gaps_of_out_keep_their_bytes():
    a = ts.TensorMap.from_array(MATRIX, (8, 32), swizzle="128B", address=0)
    out = np.full(ts.load_tiles(a, MATRIX).shape, 0xEE, np.uint8)
    ts.load_tiles(a, MATRIX, out=out)
    one = ts.load(a, MATRIX, (0, 0), smem=np.full(1024, 0xEE, np.uint8))
    assert np.array_equal(out[0, 0], one)
    assert (one == 0xEE).sum() > 400


def test_what_does_not_fit_is_refused_with_a_reason():
    a = ts.TensorMap.from_array(MATRIX, (64, 64), swizzle="128B", address=0)
    with pytest.raises(ts.RuleError, match=r"memory-extent.*array of 1000 bytes"):
        ts.load_tiles(a, np.zeros(1000, np.uint8))
    with pytest.raises(ts.RuleError, match=r"out-array.*np\.empty"):
        ts.load_tiles(a, MATRIX, out=np.zeros(10, np.uint8))
    with pytest.raises(ts.RuleError, match="threads"):
        ts.load_tiles(a, MATRIX, threads=0)
    column = ts.Im2colMap(
        "f16",
        (64, 8, 8, 1),
        (128, 1024, 8192),
        lower_corner=(0, 0),
        upper_corner=(0, 0),
        channels_per_pixel=64,
        pixels_per_column=8,
    )
    with pytest.raises(ts.RuleError, match="tiles-map"):
        ts.load_tiles(column, MATRIX)
    everywhere = ts.TensorMap("u8", (16, 1 << 31, 1 << 31), (0, 0), (16, 1, 1))  # one row, seen 2^62 times
    with pytest.raises(ts.RuleError, match="tiles-extent"):
        ts.load_tiles(everywhere, MATRIX)
