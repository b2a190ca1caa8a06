import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.layout import Layout
from tilescope.smem.access import Access
from tilescope.smem.banks import count_ideal, count_least, count_wavefronts
from tilescope.smem.layout_search import find_layouts
from tilescope.smem.op import SmemOp
from tilescope.smem.report import tile_report
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.value import Value


def everything(tile, element_bits, max_padding_bytes):
    """All layouts that the search promises to look at, enumerated without its shortcuts."""
    plain = Layout(tile, element_bits)
    yield plain
    row_bytes = tile[1] * element_bits // 8
    for mode in SWIZZLE.values():
        if mode.span_bytes and row_bytes % mode.span_bytes == 0 and mode.span_bytes * 8 % element_bits == 0:
            yield Layout(tile, element_bits, atom=(tile[0], mode.span_bytes * 8 // element_bits), swizzle=mode)
    for base, bits, shift in itertools.product(range(2, 7), range(1, 6), range(1, 16)):
        if shift >= bits and base + bits <= 7 and 1 << (base + shift + bits - 1) < plain.size_bytes:
            yield Layout(tile, element_bits, swizzle=Swizzle.xor(bits, base, shift))
    for padding in range(1, max_padding_bytes + 1):
        if padding * 8 % element_bits == 0:
            yield Layout(tile, element_bits, padding_bytes=padding)


def costs(accesses, layout):
    try:
        report = tile_report(accesses, layout)
    except RuleError:  # the layout tears an access apart, or lanes are not aligned on it
        return None
    return tuple(cost.wavefronts for cost in report.costs)


CASES = [
    ((32, 32), 32, ["st.b32 rows", "transpose"]),
    ((32, 32), 32, ["st.b128 rows", "transpose"]),
    ((32, 32), 32, ["ld.b64 columns"]),
    ((64, 64), 16, ["st.b128 rows", "ldmatrix.x4"]),
    ((16, 128), 8, ["ldmatrix.x4", "st.b64 columns"]),
    ((32, 32), 16, ["st.b16 rows", "transpose"]),
    ((32, 40), 8, ["st.b8 rows", "transpose"]),
    ((24, 24), 32, ["st.b32 rows", "transpose"]),
    ((16, 48), 16, ["ldmatrix.x2", "ld.b128 rows"]),
    ((5, 7), 32, ["st.b32 rows", "transpose"]),
    ((64, 16), 16, ["mma.m16n8k16 A bf16", "st.b128 rows"]),
    ((64, 64), 16, ["cp.async", "ldmatrix.x4"]),
    ((32, 64), 8, ["cp.async.4 columns"]),
]


@pytest.mark.parametrize(("tile", "bits", "patterns"), CASES, ids=str)
def test_the_best_hardware_mode_is_named_cure_or_not(tile, bits, patterns):
    accesses = [Access.named(pattern, tile, bits) for pattern in patterns]
    search = find_layouts(accesses, tile=tile, element_bits=bits)
    by_hardware = [
        sum(found)
        for layout in everything(tile, bits, 0)
        if layout.swizzle.span_bytes and (found := costs(accesses, layout)) is not None
    ]
    if not by_hardware:
        assert search.hardware is None
        return
    assert sum(search.hardware.wavefronts) == min(by_hardware)
    assert search.hardware.wavefronts == costs(accesses, search.hardware.layout)
    assert search.hardware.excess == min(by_hardware) - sum(search.ideal)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("tile", "bits", "patterns"), CASES, ids=str)
def test_nothing_is_better_and_nothing_as_good_is_left_out(tile, bits, patterns):
    accesses = [Access.named(text, tile, bits) for text in patterns]
    search = find_layouts(accesses, tile=tile, element_bits=bits, max_padding_bytes=32)
    known = {layout: costs(accesses, layout) for layout in everything(tile, bits, 32)}
    least = min(sum(each) for each in known.values() if each)
    assert {found.layout: found.wavefronts for found in search} == {
        layout: each
        for layout, each in known.items()
        if each
        and sum(each) == least
        and not (layout.swizzle.name.startswith("xor") and same_as_a_mode(layout))
        and layout.size_bytes % layout.swizzle.block_bytes == 0
    }
    assert all(found.excess == least - sum(search.ideal) for found in search)
    assert search.ideal == tuple(tile_report(access).ideal for access in accesses)


def same_as_a_mode(layout):
    """An XOR swizzle of whole rows that is one of the hardware's modes for rows of this width."""
    swizzle = layout.swizzle
    return any(
        (mode.bits, mode.base, mode.shift, mode.flip_bytes) == (swizzle.bits, swizzle.base, swizzle.shift, 0)
        and mode.span_bytes == layout.as_rows().tiling.pitch_bytes
        for mode in SWIZZLE.values()
    )


@settings(max_examples=25)
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    bits=st.sampled_from([8, 16, 32]),
    numbers=st.lists(st.lists(st.integers(0, 1 << 20), min_size=32, max_size=32), min_size=1, max_size=4),
    width=st.sampled_from([1, 2, 4, 8]),
    mask=st.sampled_from([None, 0x55555555, 0x0F0F0F0F, 1, 0]),
)
def test_the_proof_of_any_pattern_holds_on_the_layout_itself(*, rows, columns, bits, numbers, width, mask):
    tile, row_bytes = (rows, columns * 64 // bits), columns * 8
    address = np.array(numbers) * width % (rows * row_bytes)
    access = Access(f"ld.b{8 * width}", address // width * width, mask)
    search = find_layouts(access, tile=tile, element_bits=bits, max_padding_bytes=16)
    for found in search:
        assert costs([access], found.layout) == found.wavefronts


def test_row_stores_and_column_reads_are_served_by_the_128b_mode_first():
    tile = (128, 64)
    search = find_layouts([Access.rows(tile, 16, "st.b128"), Access.ldmatrix(tile, 16)], tile=tile, element_bits=16)
    assert search.conflict_free
    assert search.best.layout == Layout(tile, 16, swizzle="128B")
    assert [found.family for found in search] == sorted(
        (found.family for found in search), key=("plain", "hardware", "xor", "padding").index
    )
    assert {found.layout.padding_bytes for found in search if found.family == "padding"} == {16, 48, 80, 112}


def test_a_float_transposition_needs_a_swizzle_of_words_or_a_padding():
    tile = (32, 32)
    search = find_layouts([Access.rows(tile, 32, "st.b32"), Access.transpose(tile, 32)], tile=tile, element_bits=32)
    assert search.conflict_free
    assert [found.layout.swizzle.name for found in search if found.family == "xor"] == ["xor:5,2,5"]
    assert not [found for found in search if found.family in ("plain", "hardware")]
    paddings = [found.layout.padding_bytes for found in search if found.family == "padding"]
    assert paddings == list(range(4, 128, 8))  # every odd number of words
    assert search.found[1].extra_bytes == 32 * 4


def test_where_none_is_without_conflict_the_least_is_shown():
    tile = (32, 32)
    search = find_layouts([Access.rows(tile, 32, "st.b128"), Access.transpose(tile, 32)], tile=tile, element_bits=32)
    assert not search.conflict_free
    assert search.best.excess == 96  # four rows of 16 bytes share their banks: 4-way at best
    assert search.conclusion.startswith("None of 41 layouts tried serves")
    assert "least excess is 96 wavefronts." in search.conclusion
    assert "16-byte stores leave a column 8" in search.conclusion
    assert "banks, so ld.b32 columns takes" in search.conclusion
    assert "least 128 wavefronts, 32 without conflicts." in search.conclusion


def test_no_padding_is_tried_beyond_the_limit():
    search = find_layouts(Access.transpose((32, 32), 32), tile=(32, 32), element_bits=32, max_padding_bytes=0)
    assert search.tried["padding"] == 0
    assert all(found.layout.padding_bytes == 0 for found in search)


def test_a_tile_that_is_fine_as_it_is_stays_so():
    search = find_layouts(Access.rows((8, 64), 16), tile=(8, 64), element_bits=16)
    assert (search.best.family, search.best.label, len(search) > 1) == ("plain", "plain rows", True)
    assert "serve every pattern without" in search.conclusion


@pytest.mark.parametrize(
    ("text", "modes"),
    [
        ("ldmatrix.x1", ["128B", "64B", "32B"]),
        ("st.b64 rows", ["128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]),
    ],
)
def test_modes_that_every_tma_has_come_first_and_the_widest_of_them(text, modes):
    search = find_layouts(Access.named(text, (8, 64), 16), tile=(8, 64), element_bits=16)
    assert [found.layout.swizzle.name for found in search if found.family == "hardware"] == modes


def test_wide_tiles_are_cut_into_columns_of_the_span():
    tile = (64, 128)
    search = find_layouts(Access.ldmatrix(tile, 16), tile=tile, element_bits=16)
    assert search.best.label == "swizzle 128B in 2 columns of atoms"
    assert search.best.layout.atom == (64, 64)


def test_survives_json():
    search = find_layouts(Access.ldmatrix((16, 64), 16), tile=(16, 64), element_bits=16)
    assert Value.from_dict(json.loads(json.dumps(search.to_dict()))) == search


@pytest.mark.parametrize("major", ["K", "MN"])
def test_the_tile_of_a_layout_is_searched_in_its_own_order(major):
    shape = (64, 128) if major == "K" else (128, 64)  # rows of 128 contiguous elements
    accesses = [Access.rows((64, 128), 16, "st.b128"), Access.ldmatrix((64, 128), 16)]
    search = find_layouts(accesses, tile=Layout(shape, 16, major=major, padding_bytes=8, start=0x400))
    plain = find_layouts(accesses, tile=(64, 128), element_bits=16)
    assert [found.wavefronts for found in search] == [found.wavefronts for found in plain]
    for found in search:
        assert (found.layout.shape, found.layout.major) == (shape, major)
        assert [cost.wavefronts for cost in tile_report(accesses, found.layout).costs] == list(found.wavefronts)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"max_padding_bytes": -1}, "max_padding_bytes = -1; 0 to 1024"),
        ({"max_padding_bytes": 1.5}, "argument-type: max_padding_bytes = 1.5"),
        ({"max_padding_bytes": 10**30}, "max_padding_bytes = 1000000.*; 0 to 1024"),
        ({"tile": (1 << 11, 1 << 11)}, "tile-size"),
        ({"tile": (8, 64)}, "tile-bounds: ldmatrix.x4 reaches byte 2047"),
        ({"tile": 64}, "argument-type: shape = 64"),
        ({"element_bits": 5}, "argument-range: element_bits = 5"),
        ({"element_bits": None}, "argument-type: element_bits = None.* 16 for bf16"),
        ({"tile": Layout((16, 64), 8)}, "argument-range: element_bits = 16.*8 bits"),
        ({"tile": Layout.from_modes((((2, 4), 8), ((1, 32), 2)), 16)}, "layout-atoms"),
        ({"accesses": []}, "argument-type: none; one Access"),
        ({"accesses": [Access.ldmatrix((16, 64), 16).on(Layout((16, 64), 16))]}, "placed-twice"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_a_reason(arguments, reason):
    given = {"accesses": Access.ldmatrix((16, 64), 16), "tile": (16, 64), "element_bits": 16} | arguments
    with pytest.raises(RuleError, match=reason):
        find_layouts(given.pop("accesses"), **given)


@given(st.sampled_from(["ld.b32", "ld.b64", "ld.b8", "st.b16", "ldmatrix.x4"]), st.integers(0, 2**32 - 1))
def test_no_layout_that_keeps_pieces_whole_undercuts_the_bound(operation, seed):
    """Pieces of 16 bytes are strewn over shared memory at random; the bound holds wherever they land."""
    op = SmemOp.named(operation)
    noise = np.random.default_rng(seed)
    address = noise.integers(0, 64, (4, op.lanes)) * noise.choice([16, 128])
    address += noise.integers(0, 16 // op.access_bytes) * op.access_bytes
    mask = noise.random(address.shape) < 0.8
    least = count_least(op, address, mask, 16)
    assert (least >= count_ideal(op, address, mask)).all()
    for _ in range(4):
        places = noise.permutation(1024)
        moved = places[address // 16] * 16 + address % 16
        assert (count_wavefronts(op, moved, mask) >= least).all()


def test_the_bound_is_reached_where_the_search_says_so():
    tile = (32, 32)
    search = find_layouts([Access.rows(tile, 32, "st.b128"), Access.transpose(tile, 32)], tile=tile, element_bits=32)
    assert search.best.wavefronts == search.bound == (32, 128)
    assert find_layouts(Access.transpose(tile, 32), tile=tile, element_bits=32).bound == (
        32,
    )  # nothing wide is kept whole


def test_lanes_dealt_otherwise_leave_no_conflict():
    tile = (32, 32)
    patterns = [Access.rows(tile, 32, "st.b128"), Access.transpose(tile, 32)]
    other = find_layouts(patterns, tile=tile, element_bits=32).other_lanes
    assert other.patterns == ("st.b128 rows", "ld.b32 lanes 8x4")
    dealt = Access.named(other.patterns[1], tile, 32)
    elements = sorted((dealt.lane_address // 4).reshape(-1).tolist())
    assert elements == list(range(32 * 32))  # every element once, as before
    assert tile_report([patterns[0], dealt], other.best.layout).conflict_free
    assert Value.from_dict(other.to_dict()) == other
