"""identify names the layout that made a dump, whatever it was, and says how far off the closest is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts

TILE = np.random.default_rng(3).integers(0, 1 << 16, (64, 64), dtype=np.uint16)
SWIZZLES = [name for name in ts.SWIZZLE if name not in ("none", "96B")]


def laid_out(tile, layout):
    dump = np.full(layout.size_bytes, 0xEE, np.uint8)
    words = dump.view(f"u{tile.itemsize}")
    words[(layout.addresses() - layout.start) // tile.itemsize] = tile
    return dump


@pytest.mark.parametrize("name", SWIZZLES)
def test_names_the_swizzle_and_base_offset_of_a_loaded_tile(name):
    swizzle = ts.Swizzle.named(name)
    columns = swizzle.span_bytes // 2
    a = ts.TensorMap.from_array(TILE, (64, columns), swizzle=name, address=0, arch="sm_100")
    for line in range(swizzle.period_lines):
        dump = ts.load(a, TILE, (0, 0), smem_address=line * 128)
        found = ts.identify(dump, TILE[:, :columns])
        assert found.explained
        assert (found.swizzle.name, found.base_offset, found.order, found.transposed) == (name, line, "rows", False)
        assert found.equally_good == (name == "32B")  # 96B has the same pattern, and dense rows of 32 bytes fit it too
        assert ts.identify(dump, TILE[:, :columns], smem_address=line * 128).explained


def test_a_known_address_between_lines_is_told_within_the_pattern():
    layout = ts.Layout((16, 64), 16, swizzle="128B", start=0x410)
    dump = np.zeros(layout.size_bytes + 128, np.uint8)  # the last line is swizzled beyond the tile's end
    dump.view("u2")[(layout.addresses() - layout.start) // 2] = TILE[:16]
    found = ts.identify(dump, TILE[:16], smem_address=0x410)
    assert found.explained
    assert found.layout.start == 0x10


@pytest.mark.parametrize("order", ["column", "row"])
@pytest.mark.parametrize("name", ["none", "32B", "64B"])
def test_names_the_order_of_atoms(name, order):
    span = ts.Swizzle.named(name).span_bytes or 16
    found = ts.identify(
        laid_out(TILE, ts.Layout((64, 64), 16, atom=(8, span // 2), atom_order=order, swizzle=name)), TILE
    )
    assert found.explained
    assert f"atoms of 8 x {span // 2} elements, {order} after {order}" in str(found)
    assert (found.swizzle.name, found.order) == (name, {"column": "atoms down", "row": "atoms across"}[order])


SPANS = {
    **{name: ts.SWIZZLE[name].span_bytes for name in (*SWIZZLES, "96B")},
    **{f"none {width}": width for width in (16, 32, 48, 64, 128)},
}


def boxes_side_by_side(tile, name, width, alignment, start):
    """What TMA leaves in shared memory when it copies a tile as boxes of `width` bytes, one behind the other."""
    swizzle = name.split()[0]
    arch = "sm_103" if swizzle == "96B" else "sm_100"
    rows, columns = tile.shape
    memory = np.zeros((rows, -(-columns // 8) * 8), tile.dtype)
    memory[:, :columns] = tile
    a = ts.TensorMap.from_array(memory, (rows, width // tile.itemsize), swizzle=swizzle, address=0, arch=arch)
    step = -(-rows * width // alignment) * alignment
    boxes = -(-columns * tile.itemsize // width)
    dump = np.full((boxes - 1) * step + rows * width, 0xEE, np.uint8)
    for box in range(boxes):
        place = (box * width // tile.itemsize, 0)
        ts.load(a, memory, place, smem=dump[box * step :], smem_address=start + box * step)
    return dump, step


@pytest.mark.parametrize(
    "rows", [1, 2, 3, 5, 8, 9, 17, 100, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (4, 6, 7, 12, 15))]
)
@pytest.mark.parametrize("name", SPANS)
def test_names_boxes_side_by_side_of_every_span_and_any_number_of_rows(name, rows):
    width, swizzle = SPANS[name], ts.SWIZZLE[name.split()[0]]
    noise = np.random.default_rng(rows)  # whose elements differ: a layout that explains all of them is the right one
    tried = 0
    for boxes, alignment in ((2, 128), (3, 128), (2, swizzle.repeat_bytes), (2.5, 128)):
        tile = noise.integers(0, 1 << 32, (rows, int(boxes * width) // 4), dtype=np.uint32)
        start = 128 * int(noise.integers(swizzle.period_lines))
        dump, step = boxes_side_by_side(tile, name, width, alignment, start)
        if step % width or (boxes == 2.5 and swizzle.name == "none"):
            continue  # boxes that begin where no row would, and those whose width nothing tells
        tried += 1
        for known in (None, start):
            found = ts.identify(dump, tile, smem_address=known)
            assert found.explained, (boxes, alignment, known)
            assert found.order == "rows" or found.layout.atom[1] * 4 == width
    assert tried or width in (48, 96)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("columns", [1, 3, 20, 31])
def test_rows_of_any_number_of_bytes_are_named(columns, dtype):
    tile = np.random.default_rng(columns).integers(0, 1 << 8 * np.dtype(dtype).itemsize, (23, columns), dtype)
    found = ts.identify(np.append(tile.view("u1").ravel(), [1, 2, 3]).astype("u1"), tile)
    assert (found.explained, found.swizzle.name, found.order) == (True, "none", "rows")


def test_a_tile_of_100_rows_in_two_boxes():
    tile = np.random.default_rng(4).integers(0, 1 << 16, (100, 128), dtype=np.uint16)
    for alignment, high in ((128, 100), (1024, 104)):
        dump, _ = boxes_side_by_side(tile, "128B", 128, alignment, 0)
        found = ts.identify(dump, tile)
        assert str(found).startswith("swizzle 128B, base offset 0, ")
        assert f"boxes of {high} x 64 elements" in str(found)
        assert ts.Value.from_dict(found.to_dict()) == found
        dump[5] ^= 1
        found = ts.identify(dump, tile)
        assert (found.wrong_bytes, found.first_wrong.row, found.first_wrong.column) == (1, 0, 2)


def test_a_narrow_box_has_gaps_and_a_pitch_of_its_span():
    a = ts.TensorMap.from_array(TILE, (64, 32), swizzle="128B", address=0)
    found = ts.identify(ts.load(a, TILE, (0, 0)), TILE[:, :32])
    assert (found.swizzle.name, found.layout.as_rows().tiling.pitch_bytes, found.wrong_bytes) == ("128B", 128, 0)


def test_sees_a_transposed_tile():
    found = ts.identify(ts.Swizzle.named("128B").swizzle(np.ascontiguousarray(TILE.T)), TILE)
    assert found.explained
    assert found.transposed
    assert "transposed" in str(found)


@given(st.integers(0, 8191), st.integers(1, 255))
def test_names_the_first_wrong_byte_of_the_closest(place, change):
    dump = ts.Swizzle.named("128B").swizzle(TILE).view(np.uint8).reshape(-1).copy()
    dump[place] ^= change
    found = ts.identify(dump, TILE)
    wrong = found.first_wrong
    assert (found.swizzle.name, found.wrong_bytes, wrong.address) == ("128B", 1, place)
    element = TILE[wrong.row, wrong.column]
    assert wrong.expected == int(element) >> 8 * wrong.byte & 0xFF
    assert wrong.found == wrong.expected ^ change == dump[place]
    assert f"{place:#x}" in str(found)


def test_a_layout_that_leaves_most_bytes_wrong_is_not_offered():
    """A dump of something else was answered "closest, 3953 of 4096 wrong"."""
    random = np.random.default_rng(7).integers(0, 256, TILE.nbytes, np.uint8)
    found = ts.identify(random, TILE)
    assert found.compared_bytes == TILE.nbytes
    assert found.wrong_bytes > TILE.nbytes // 2
    said = str(found)
    assert said.startswith("No layout explains the dump:")
    assert f"even the best leaves {found.wrong_bytes}" in said
    assert f"{TILE.nbytes} bytes wrong" in said
    assert "swizzle" not in said
    assert "closest" not in said
    dump = ts.Swizzle.named("128B").swizzle(TILE).view(np.uint8).reshape(-1).copy()
    dump[:1000] = random[:1000]
    near = ts.identify(dump, TILE)
    assert "closest: swizzle 128B, base offset 0" in str(near)
    assert "rows 128 bytes apart" in str(near)
    assert f"{near.wrong_bytes} of 8192 bytes wrong" in str(near)


def test_plain_rows_come_first_where_nothing_can_tell_layouts_apart():
    found = ts.identify(np.zeros(1024, np.uint8), np.zeros((8, 64), np.float16))
    assert (found.swizzle.name, found.order) == ("none", "rows")
    assert found.equally_good > 20


def test_is_plain_data_and_back():
    found = ts.identify(TILE, TILE)
    assert ts.Value.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("dump", "tile", "rule"),
    [
        (np.zeros(100, np.uint8), TILE, "dump-extent"),
        (np.zeros(8192, np.uint8), TILE.reshape(-1), "argument-type"),
        (np.zeros(8192, np.uint8), [[1]], "argument-type"),
        (TILE[:, ::2], TILE, "argument-type"),
        (TILE, TILE.astype(complex), "argument-type"),
    ],
)
def test_refuses_what_it_cannot_compare(dump, tile, rule):
    with pytest.raises(ts.RuleError) as refused:
        ts.identify(dump, tile)
    assert refused.value.violations[0].rule == rule
