"""A trace answers where each byte comes from and goes to, both ways, and counts what the copy moves."""

import json

import numpy as np
import pytest

import tilescope as ts
from tilescope.tma import Trace, tracing
from tilescope.tma.walk import row_coords

MATRIX = ts.TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B")


def test_which_element_is_at_this_address_and_where_is_that_element():
    found = ts.trace(MATRIX, (0, 0), smem_address=0x400)
    assert found.element_at(0x1A40).coords == (8 * (4 ^ 4), (0x1A40 - 0x400) // 128)  # line 0x34: chunk 4 holds chunk 0
    assert found.address_of(*MATRIX.coords(37, 12)) == 0x400 + 37 * 128 + ((12 // 8) ^ (37 + 8) % 8) * 16 + 12 % 8 * 2
    assert found.address_of(64, 0) is None
    assert found.address_of(0, 64) is None
    assert found.element_at(0x3FF).holds == found.element_at(0x400 + 8192).holds == "gap"


COPIES = {
    "tiled": (
        ts.TensorMap("f32", (9, 7, 3), (48, 352), (8, 3, 2), element_strides=(1, 2, 1), swizzle="32B"),
        (4, 5, 1),
        {},
    ),
    "narrow": (ts.TensorMap("u8", (40, 5), (48,), (48, 3), swizzle="128B"), (16, -1), {"smem_address": 0x180}),
    "flip": (ts.TensorMap("u16", (64, 8), (128,), (64, 4), swizzle="128B_ATOM_32B_FLIP_8B", arch="sm_100"), (0, 6), {}),
    "interleaved": (
        ts.TensorMap("u16", (5, 4, 2, 2), (160, 640, 1280), (8, 3, 1, 2), interleave="32B", swizzle="32B"),
        (2, 2, 1, 0),
        {},
    ),
    "im2col": (
        ts.Im2colMap.for_convolution(
            2, 4, 4, 16, 3, 3, pad=1, data_type="f16", channels_per_pixel=16, pixels_per_column=20, swizzle="32B"
        ).tensor_map,
        (0, 1, -1, 0),
        {"offsets": (1, 2)},
    ),
    "wide": (
        ts.Im2colWideMap(
            "f16",
            (32, 8, 8, 2),
            (64, 512, 4096),
            lower_width=-1,
            upper_width=-1,
            channels_per_pixel=32,
            pixels_per_column=10,
            swizzle="64B",
        ),
        (0, -1, 3, 0),
        {"offsets": (2, 1)},
    ),
    "four bits": (
        ts.TensorMap("16u4_align16b", (256, 4), (128,), (128, 3), swizzle="128B", arch="sm_100"),
        (128, 2),
        {},
    ),
    "six bits": (ts.TensorMap("16u6_align16b", (256, 4), (192,), (128, 3), swizzle="128B", arch="sm_100"), (0, 2), {}),
    "six bits stored": (
        ts.TensorMap("16u6_align16b", (256, 4), (192,), (128, 3), swizzle="128B", arch="sm_100"),
        (0, 2),
        {"operation": "store"},
    ),
    "pixels stored": (
        ts.Im2colMap(
            "f16",
            (16, 4, 4, 2),
            (32, 128, 512),
            lower_corner=(0, 1),
            upper_corner=(-1, 0),
            channels_per_pixel=16,
            pixels_per_column=20,
            swizzle="32B",
        ),
        (0, 1, 1, 0),
        {"operation": "store"},
    ),
    "overrun": (ts.TensorMap("u8", (20, 4), (32,), (32, 3), swizzle="32B"), (0, 2), {"operation": "store"}),
    "gather": (
        ts.TensorMap("f16", (64, 9), (128,), (32, 1), swizzle="64B", arch="sm_100"),
        (32, 8, 1, 9, 1),
        {"operation": "gather4"},
    ),
    "scatter": (
        ts.TensorMap("f16", (64, 9), (128,), (32, 1), swizzle="64B", arch="sm_100"),
        (32, 8, 1, 9, 2),
        {"operation": "scatter4"},
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_every_byte_and_its_element_lead_to_each_other(name):
    a, coords, options = COPIES[name]
    found = ts.trace(a, coords, **options)
    first = {}
    for place, source in enumerate(found.source_offset.tolist()):
        address = found.smem_address + place
        origin = found.element_at(address)
        assert (origin.source_offset is None) == (source < 0)
        assert origin.holds in {found.GAP: ("gap",), found.FILL: ("fill",)}.get(source, ("element", "overrun"))
        if source >= 0:
            assert origin.source_offset == source
            first.setdefault(source, address)
        if origin.holds in ("element", "fill") and origin.byte == 0 and name != "gather":
            assert abs(found.address_of(*origin.coords) - address) < (1 if a.data_type.bits >= 8 else 2)
    sources = np.array(sorted(first))
    assert found.address_of_source(sources).tolist() == [first[source] for source in sources.tolist()]
    assert found.address_of_source(int(sources[0])) == first[sources[0]]
    assert found.address_of_source(1 << 40) is None
    assert found.address_of_source(np.array([1 << 40, int(sources[0])])).tolist() == [-1, first[sources[0]]]


@pytest.mark.parametrize("name", COPIES)
def test_runs_are_the_same_in_fewer_words(name):
    a, coords, options = COPIES[name]
    found = ts.trace(a, coords, **options)
    address = found.smem_address
    for run in found.runs:
        assert run.address == address
        assert run.length_bytes > 0
        for byte in range(run.length_bytes):
            origin = found.element_at(address + byte)
            assert origin.holds == run.holds
            step = byte if name != "six bits stored" else None
            if run.source_offset is not None and step is not None:
                assert origin.source_offset == run.source_offset + step
        address += run.length_bytes
    assert address == found.smem_address + found.footprint_bytes


@pytest.mark.parametrize("name", COPIES)
def test_is_plain_data_and_back(name):
    a, coords, options = COPIES[name]
    found = ts.trace(a, coords, **options)
    data = json.loads(json.dumps(found.to_dict()))
    assert ts.Value.from_dict(data) == Trace.from_dict(data) == found
    assert hash(Trace.from_dict(data)) == hash(found)
    assert data["written_bytes"] == found.written_bytes
    assert data["runs"][0]["address"] == hex(found.smem_address)


COUNTS = {
    #                transaction  written  filled  overrun  footprint   basis
    "tiled": (4 * 32, 4 * 32, 2, 0, 4 * 32, "measured"),
    "narrow": (3 * 48, 3 * 48, 1, 0, 3 * 128, "measured"),
    "interleaved": (48 * 32, 48 * 32, 36, 0, 48 * 32, "measured"),
    "im2col": (20 * 32, 20 * 32, 4, 0, 20 * 32, "measured"),
    "wide": (12 * 64, 12 * 64, 0, 0, 12 * 64, "documented"),
    "four bits": (3 * 64, 3 * 64, 1, 0, 3 * 128, "documented"),
    "six bits stored": (None, 2 * 96, 1, 0, 3 * 128, "documented"),
    "overrun": (None, 2 * 32, 1, 24, 3 * 32, "measured"),
    "gather": (4 * 64, 4 * 64, 1, 0, 4 * 64, "documented"),
    "scatter": (None, 3 * 64, 1, 0, 4 * 64, "documented"),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_by_hand(name):
    a, coords, options = COPIES[name]
    found = ts.trace(a, coords, **options)
    assert COUNTS[name] == (
        found.transaction_bytes,
        found.written_bytes,
        found.filled_rows,
        found.overrun_bytes,
        found.footprint_bytes,
        found.basis,
    )


def test_a_store_has_no_offsets():
    a, coords, options = COPIES["pixels stored"]
    assert ts.trace(a, coords, **options).offsets == ()
    assert ts.trace(a, coords).offsets == (0, 0)
    assert [run.source_offset for run in ts.trace(a, coords, **options).runs] == [
        run.source_offset for run in ts.trace(a, coords).runs
    ]


def test_what_was_not_measured_is_documented():
    column = ts.Im2colMap(
        "f16",
        (64, 8, 8, 2),
        (128, 1024, 8192),
        lower_corner=(0, 0),
        upper_corner=(0, 0),
        channels_per_pixel=64,
        pixels_per_column=32,
    )
    assert ts.trace(column, (0, 0, 0, 0)).basis == "measured"
    assert ts.trace(column, (0, 0, 0, 0), operation="store").basis == "measured"
    assert ts.trace(MATRIX, (0, 0), operation="store").basis == "measured"
    assert ts.trace(MATRIX.with_fields(arch="sm_100"), (0, 0)).basis == "documented"


def test_a_trace_of_a_huge_tensor_costs_what_its_box_costs():
    huge = ts.TensorMap("u8", (1 << 32, 1 << 32), ((1 << 40) - 16,), (64, 2))
    found = ts.trace(huge, (0, 1 << 20))
    assert found.source_offset[64] == ((1 << 20) + 1) * ((1 << 40) - 16)


def test_an_offset_that_64_bits_cannot_hold_is_refused_and_not_cut():
    stride = (1 << 40) - 16
    beyond = ts.TensorMap("u64", (1 << 32, 1 << 32, 1 << 32), (stride, stride), (2, 2, 1))
    for last in (0, 1 << 21, (1 << 22) - 2):  # byte 2^62 is in row (1 << 22) of the two strides together
        found = ts.trace(beyond, (0, 1, last))
        assert [int(found.source_offset[row * 16]) for row in range(2)] == [stride * (last + 1), stride * (last + 2)]
        assert found.address_of_source(stride * (last + 2)) == 16
    for coords in ((0, 0, 1 << 22), (0, 0, 1 << 23), (0, (1 << 31) - 1, (1 << 31) - 1)):
        for operation in ("load", "store"):
            with pytest.raises(ts.RuleError, match="trace-extent") as refused:
                ts.trace(beyond, coords, operation=operation)
            row = int(coords == (0, 0, 1 << 22))
            assert f"row {row} at byte {stride * (coords[1] + row + coords[2]):#x}" in str(refused.value)
    assert ts.trace(beyond, (0, -3, 1 << 23)).filled_rows == 2  # what is outside needs no offset


FOUND = ts.trace(MATRIX, (64, 32), smem_address=0x400)
FIRST = 64 * 2 + 32 * 8192  # byte of the tensor that the copy begins with


@pytest.mark.parametrize(
    "wanted", [FIRST, np.int64(FIRST), np.uint64(FIRST), np.uint8(0), 2**63, -(2**63), 2**200, -1, 0, -2]
)
def test_a_byte_of_the_tensor_is_any_integer(wanted):
    assert FOUND.address_of_source(wanted) == (0x400 if wanted == FIRST else None)


def test_bytes_of_the_tensor_are_an_integer_array_of_any_shape_and_width():
    for dtype in (np.int32, np.uint32, np.int64, np.uint64):
        wanted = np.array([[FIRST, FIRST + 1, 0]], dtype)
        assert FOUND.address_of_source(wanted).tolist() == [[0x400, 0x401, -1]]
    assert FOUND.address_of_source([FIRST, 1]).tolist() == [0x400, -1]
    assert FOUND.address_of_source(np.array([2**64 - 1, 2**63 + FIRST], np.uint64)).tolist() == [-1, -1]
    assert FOUND.address_of_source([]).tolist() == []
    assert FOUND.address_of_source(np.zeros((2, 0), np.int32)).shape == (2, 0)


@pytest.mark.parametrize(
    "junk",
    [
        None,
        "a",
        "1",
        1.5,
        True,
        np.float64(3),
        np.bool_(True),
        [1.5],
        ["a"],
        [[1], [2, 3]],
        [None],
        [True],
        {1},
        {1: 2},
        b"ab",
        memoryview(b"ab"),
        object(),
        1j,
        np.datetime64("2020"),
        [2**64, 1],
    ],
    ids=lambda junk: type(junk).__name__,
)
def test_what_is_no_integer_is_no_byte_of_the_tensor(junk):
    with pytest.raises(ts.RuleError) as refused:
        FOUND.address_of_source(junk)
    assert (refused.value.violations[0].rule, refused.value.violations[0].argument) == ("argument-type", "offset")


@pytest.mark.parametrize("junk", [None, "a", 1.5, True, [0]], ids=lambda junk: type(junk).__name__)
def test_what_is_no_integer_is_no_address_and_no_coordinate(junk):
    with pytest.raises(ts.RuleError, match="argument-type"):
        FOUND.element_at(junk)
    with pytest.raises(ts.RuleError, match="argument-type"):
        FOUND.address_of(64, junk)
    with pytest.raises(ts.RuleError, match="argument-range: coords"):
        FOUND.address_of(64)


def test_far_addresses_and_coordinates_are_no_part_of_the_copy():
    for far in (2**31, 2**63, -(2**63), 2**64, 2**200, -(2**200)):
        assert FOUND.element_at(far).holds == "gap"
        assert FOUND.address_of(far, 32) is None
        assert FOUND.address_of(64, far) is None


def pixels(a, coords, offsets):
    """(W, N) of each row of a column of pixels."""
    found = ts.trace(a, coords, offsets=offsets)
    places = [found.element_at(a.swizzle.apply(row * a.pitch_bytes)).coords for row in range(found.rows)]
    return [(place[1], place[3]) for place in places]


def test_a_wide_column_walks_w_then_n_and_its_halo_goes_on_along_w():
    a = ts.Im2colWideMap(
        "f16",
        (32, 5, 8, 3),
        (64, 320, 2560),
        lower_width=-1,
        upper_width=-1,
        channels_per_pixel=32,
        pixels_per_column=6,
        swizzle="64B",
    )
    walked = [(1, 0), (2, 0), (3, 0), (-1, 1), (0, 1), (1, 1)]  # bases -1 to 3 of each image
    assert pixels(a, (0, 1, 2, 0), (0, 0)) == walked
    assert pixels(a, (0, 1, 2, 0), (2, 0)) == [*walked, (2, 1), (3, 1)]
    assert pixels(a, (0, 1, 2, 0), (0, 2)) == [(w + 2, n) for w, n in walked]


def test_the_halo_of_w128_follows_every_32_pixels():
    a = ts.Im2colWideMap(
        "f16",
        (32, 200, 8, 1),
        (64, 12800, 102400),
        lower_width=0,
        upper_width=0,
        channels_per_pixel=32,
        pixels_per_column=1,
        mode="W128",
        swizzle="64B",
    )
    found = [w for w, _ in pixels(a, (0, 0, 0, 0), (2, 0))]
    assert found == [w for block in range(0, 128, 32) for w in range(block, block + 34)]
    assert ts.trace(a, (0, 0, 0, 0), offsets=(2, 0)).transaction_bytes == (128 + 4 * 2) * 64


@pytest.mark.parametrize("name", COPIES)
def test_however_many_bytes_are_asked_for_the_rows_are_walked_once(name, monkeypatch):
    a, coords, options = COPIES[name]
    found = ts.trace(a, coords, **options)
    walked = []
    monkeypatch.setattr(tracing, "row_coords", lambda copy: walked.append(copy) or row_coords(copy))
    for address in range(found.smem_address, found.smem_address + found.footprint_bytes):
        found.element_at(address)
    assert walked == [found.copy]


@pytest.mark.parametrize("coords", [None, (0, 0)])
def test_what_is_no_map_is_refused_with_and_without_coordinates(coords):
    with pytest.raises(ts.RuleError, match=r"tensor_map = None \(NoneType\)"):
        ts.trace(None, coords)
