"""Which thread gets an element by tcgen05.ld: held against the emulated load of cells that name themselves."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_layout import tmem_layout
from tilescope.mma.tmem_load import loaded_element

NUMBERED = (np.arange(128)[:, None] << 16 | np.arange(512)[None, :]).astype(np.uint32)
MEMORY = TensorMemory(NUMBERED, allocations=((0, 512),))
FORMS = ["32x32b.x32", "32x32b.x1", "16x64b.x8", "16x128b.x4", "16x256b.x2", "16x32bx2.x8"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((128, 64), {}),
        ((128, 64), {"address": 64}),
        ((64, 64), {}),
        ((64, 64), {"address": 16 << 16}),
        ((64, 128), {"ws": True}),
        ((128, 128), {"cta_group": 2}),
    ],
)
def test_the_register_of_the_lane_holds_the_cell_of_the_element(form, shape, options):
    matrix = tmem_layout(shape, **options)
    for row, column in [(0, 0), (5, 9), (37, 40), (shape[0] - 1, shape[1] - 1)]:
        found = loaded_element(matrix, row, column, form)
        place = matrix.place(row, column)
        registers = MEMORY.load(form, found.address, warp=found.warp)
        assert registers[found.lane, found.register] == place.lanes[0] << 16 | place.column
        assert (found.cta, found.bit) == (place.cta, place.bit)


def test_a_packed_load_has_two_columns_in_a_register():
    matrix = tmem_layout((128, 64), data_type="f16")
    found = loaded_element(matrix, 37, 41, "32x32b.x16.pack::16b")
    registers = MEMORY.load("32x32b.x16.pack::16b", found.address, warp=found.warp)
    assert (found.address, found.register, found.bit) == (32 << 16 | 32, 4, 16)
    assert registers[found.lane, found.register] >> found.bit == 41


def test_an_element_of_a_lies_in_a_part_of_the_register():
    found = loaded_element(tmem_layout((128, 64), operand="A", data_type="bf16"), 3, 5, "32x32b.x32")
    assert (found.warp, found.lane, found.register, found.bit) == (0, 3, 2, 16)


def test_a_whole_opcode_is_taken_too_and_a_wrong_form_is_refused():
    matrix = tmem_layout((128, 64))
    short = loaded_element(matrix, 1, 2, "16x256b.x4")
    assert loaded_element(matrix, 1, 2, "tcgen05.ld.sync.aligned.16x256b.x4.b32") == short
    with pytest.raises(RuleError, match="tmem-count"):
        loaded_element(matrix, 1, 2, "32x32b.x3")


@pytest.mark.parametrize(
    ("shape", "options"),
    [((128, 64), {}), ((128, 64), {"operand": "A"})],
    ids=["32-bit D", "two elements of A in a cell"],
)
def test_a_packed_load_of_cells_that_hold_more_than_a_low_half_is_refused(shape, options):
    with pytest.raises(RuleError, match="low halves"):
        loaded_element(tmem_layout(shape, **options), 37, 41, "32x32b.x8.pack::16b")


def test_a_store_loads_nothing():
    with pytest.raises(RuleError, match=r"this is tcgen05.ld. Use tcgen05.ld.32x32b.x8.pack::16b"):
        loaded_element(tmem_layout((128, 64)), 37, 40, "tcgen05.st.32x32b.x8.unpack::16b")
    with pytest.raises(RuleError, match=r"this is tcgen05\.ld"):
        ts.compatible(tmem_layout((128, 64)), "tcgen05.st.32x32b.x8", warp=0, address=0)


def test_capitals_make_no_other_load():
    matrix = tmem_layout((128, 64))
    assert loaded_element(matrix, 1, 2, " .32X32B.x8 ") == loaded_element(matrix, 1, 2, "32x32b.x8")
