"""The change of a tile's addresses that leaves no bank conflict: for one instruction, and for all that use the tile."""

import numpy as np

from tilescope.machine.decoding.access_kind import AccessKind
from tilescope.machine.observers.access_cost import Instance
from tilescope.machine.report.conflict_fix import TileFix, TileUse, find_fix, overlaps
from tilescope.smem.op import SMEM_OP


def instance(op, addresses):
    row = SMEM_OP[op]
    lanes = tuple(0x400 + np.asarray(addresses)[: row.lanes])
    return Instance(AccessKind(row.access_bytes, row), 0, 0, (0, 0, 0), 0, tuple(map(int, lanes)))


LANES = np.arange(32)
ROWS_OF_A_MATRIX = instance("ldmatrix.x1", LANES * 128)
SWIZZLED_ROWS = instance("ldmatrix.x1", LANES * 128 ^ LANES % 8 * 16)
COLUMN = instance("ld.b32", LANES * 128)


def test_a_mode_of_the_hardware_comes_first():
    assert find_fix(TileUse([ROWS_OF_A_MATRIX], None)) == TileFix(swizzle="128B")


def test_a_padding_comes_where_no_mode_serves():
    assert find_fix(TileUse([COLUMN], None)) == TileFix(row_bytes=128, padding_bytes=4)
    assert find_fix(TileUse([instance("ld.b32", LANES * 256)], None)) == TileFix(row_bytes=256, padding_bytes=4)


def test_a_padding_keeps_the_widest_access_aligned():
    """Eight rows of 512 bytes, 16 bytes of each: modes of the hardware take 1024 bytes for their pattern, and see two lines of it."""
    wide = instance("ld.b128", LANES % 8 * 512 + LANES // 8 * 16)
    assert find_fix(TileUse([wide], None)) == TileFix(row_bytes=512, padding_bytes=16)


def test_a_layout_that_helps_one_access_and_hurts_another_is_not_a_fix():
    assert find_fix(TileUse([ROWS_OF_A_MATRIX, SWIZZLED_ROWS], None)) is None


def test_copies_by_tma_can_swizzle_but_not_pad():
    assert find_fix(TileUse([ROWS_OF_A_MATRIX], "none")) == TileFix(swizzle="128B")
    assert find_fix(TileUse([COLUMN], "none")) is None


def test_the_swizzle_of_the_map_is_taken_back_first():
    """Lanes go to the rows of a matrix as a map of 32B left them; with 128B in its place they would meet no other."""
    as_written = instance("ldmatrix.x1", (LANES * 128 + 0x400 ^ (LANES * 128 + 0x400 >> 7 & 1) * 16) - 0x400)
    assert find_fix(TileUse([as_written], "32B")) == TileFix(swizzle="128B")


def test_instructions_meet_where_their_bytes_do():
    assert overlaps(COLUMN, instance("st.b128", 0x100 + LANES * 16))
    assert not overlaps(COLUMN, instance("st.b128", 0x1000 + LANES * 16))
