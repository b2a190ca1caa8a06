"""What the addresses of lanes say of the swizzle of a tile."""

import numpy as np
import pytest

from tilescope.machine.observers.lane_pattern import MODES, lane_groups, lane_pattern, modes_in
from tilescope.swizzle import SWIZZLE

LANE = np.arange(128)
NAMES = [mode.name for mode in MODES]


def straight(offsets):
    """The modes under which one group of lanes goes straight."""
    return modes_in(lane_pattern(np.asarray(offsets)[None]).straight)


def rows_of(span_bytes):
    """128 lanes that write 16 bytes each, row by row, into rows of a span."""
    return LANE * 16 // span_bytes * span_bytes + LANE * 16 % span_bytes


@pytest.mark.parametrize("name", NAMES)
def test_rows_written_under_a_swizzle_are_straight_under_it_alone(name):
    swizzle = SWIZZLE[name]
    assert straight(swizzle.apply(rows_of(swizzle.span_bytes or 128))) == (name,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", range(8))
def test_a_column_is_straight_under_its_swizzle(name, chunk):
    lane = np.arange(8)
    assert name in straight(SWIZZLE[name].apply(lane * 128 + chunk * 16))


def test_one_column_of_a_swizzled_tile_may_be_a_padded_one_but_not_all_of_them():
    lane = np.arange(8)
    columns = [straight(SWIZZLE["128B"].apply(lane * 128 + chunk * 16)) for chunk in range(8)]
    assert [chunk for chunk, found in enumerate(columns) if "none" in found] == [0, 7]  # rows of 144 and of 112 bytes
    assert all("128B" in found for found in columns)


@pytest.mark.parametrize("pitch", [80, 136, 144, 272])
def test_padded_rows_are_plain(pitch):
    lane = np.arange(32)
    assert "none" in straight(lane % 16 * pitch + lane // 16 * 16)


def test_lanes_in_any_order_go_no_straight_way():
    offsets = np.random.default_rng(1).permutation(32) * 16
    assert straight(offsets) == ()


def test_groups_must_agree():
    plain = rows_of(128)[:32]
    both = np.stack([plain, SWIZZLE["128B"].apply(plain)])
    assert modes_in(lane_pattern(both).straight) == ()


def test_a_tile_beyond_the_first_pattern_is_seen_alike():
    offsets = SWIZZLE["128B"].apply(rows_of(128) + 5 * 1024)
    assert straight(offsets) == ("128B",)


@pytest.mark.parametrize(
    ("lanes", "block_lanes", "groups"),
    [
        (np.arange(256), 128, (128, 32)),  # two blocks of a cluster
        (np.arange(96), 96, (32,)),
        (np.arange(128, 256), 384, (128, 32)),  # a warpgroup
        (np.arange(16), 128, (16,)),
        (np.arange(12), 128, ()),
        (np.arange(1, 33), 128, ()),
        (np.r_[0:32, 64:96], 128, (32,)),
        (np.r_[0:16, 32:48], 128, (16,)),
        (np.r_[0:16, 33:49], 128, ()),
    ],
)
def test_lanes_are_looked_at_by_blocks_warps_or_the_first_lanes_of_warps(lanes, block_lanes, groups):
    assert lane_groups(lanes, block_lanes) == groups
