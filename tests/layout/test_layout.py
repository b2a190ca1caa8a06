"""The byte address of every element of a tile, against a layout built by laying out atoms one after another."""

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import RuleError
from tilescope.layout import Layout
from tilescope.swizzle import SWIZZLE, Swizzle


def laid_out(layout):
    """First bit of each element before the swizzle: atoms in their order, rows in them, elements, padding."""
    major = layout.major
    turned = (lambda mn, k: (mn, k)) if major == "K" else (lambda mn, k: (k, mn))
    (rows, columns), (atom_rows, atom_columns) = turned(*layout.shape), turned(*layout.atom)
    high, wide = rows // atom_rows, columns // atom_columns
    down_first = [(down, across) for across in range(wide) for down in range(high)]
    across_first = [(down, across) for down in range(high) for across in range(wide)]
    bit, place = layout.start * 8, {}
    for down, across in down_first if layout.atom_order == "column" else across_first:
        for row in range(atom_rows):
            for column in range(atom_columns):
                place[turned(down * atom_rows + row, across * atom_columns + column)] = bit
                bit += layout.element_bits
            bit += layout.padding_bytes * 8
    return place, bit // 8


@st.composite
def layouts(draw):
    bits = draw(st.sampled_from([1, 2, 4, 6, 8, 16, 32, 64, 128]))
    step = {1: 8, 2: 4, 4: 2, 6: 4}.get(bits, 1)  # elements in whole bytes
    atom = draw(st.integers(1, 9)), step * draw(st.integers(1, 9))
    grid = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    major = draw(st.sampled_from(["K", "MN"]))
    shape = atom[0] * grid[0], atom[1] * grid[1]
    if major == "MN":
        shape, atom = shape[::-1], atom[::-1]
    return Layout(
        shape,
        bits,
        atom=atom,
        major=major,
        atom_order=draw(st.sampled_from(["column", "row"])),
        padding_bytes=draw(st.integers(0, 20)),
        swizzle=draw(st.sampled_from([*SWIZZLE, "xor:5,2,5", "xor:1,4,-6"])),
        start=draw(st.integers(0, 5000)),
    )


@given(layouts())
def test_elements_lie_one_after_another_in_their_atoms(layout):
    place, end = laid_out(layout)
    addresses = layout.addresses()
    assert addresses.shape == layout.shape
    for (row, column), bit in place.items():
        assert layout.logical(row, column) == bit // 8
        assert layout.address(row, column) == layout.swizzle.apply(bit // 8) == addresses[row, column]
    assert layout.start + layout.size_bytes == end


@given(layouts())
def test_locate_finds_the_element_of_every_byte(layout):
    place, end = laid_out(layout)
    holder = {}
    for (row, column), bit in place.items():
        for byte in range(bit // 8, (bit + layout.element_bits - 1) // 8 + 1):
            holder.setdefault(byte, (row, column))  # the element with the byte's first bit comes first
    for logical in range(max(0, layout.start - 3), end + 3):
        assert layout.locate(layout.swizzle.apply(logical)) == holder.get(logical)


@given(layouts(), st.data())
def test_arrays_of_indices_broadcast(layout, data):
    rows = data.draw(st.lists(st.integers(0, layout.shape[0] - 1), max_size=4))
    columns = data.draw(st.lists(st.integers(0, layout.shape[1] - 1), max_size=4))
    expected = [[layout.address(row, column) for column in columns] for row in rows]
    found = layout.address(np.array(rows, int)[:, None], np.array(columns, int)[None, :])
    assert found.tolist() == expected
    assert found.shape == (len(rows), len(columns))


@given(layouts())
def test_plain_data_and_pickle_lead_back(layout):
    assert Layout.from_dict(layout.to_dict()) == layout
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert hash(Layout.from_dict(layout.to_dict())) == hash(layout)


@given(layouts(), st.integers(0, 10_000))
def test_other_start_moves_the_tile_and_nothing_else(layout, start):
    moved = layout.with_start(start)
    assert np.array_equal(
        moved.swizzle.apply(moved.addresses()) - start, layout.swizzle.apply(layout.addresses()) - layout.start
    )
    assert moved.with_start(layout.start) == layout


@pytest.mark.parametrize("name", ["32B", "64B", "128B"])
def test_tma_box_as_wide_as_the_span_is_one_atom_column(name):
    """Rows of one span each: the chunk relation by box rows."""
    mode = SWIZZLE[name]
    columns = mode.span_bytes // 2
    tile = Layout((64, columns), 16, swizzle=name, start=0x400)
    for row, chunk in itertools.product(range(64), range(mode.span_bytes // 16)):
        address = 0x400 + row * mode.span_bytes + mode.chunk_in_row(row, chunk, 0x400) * 16
        assert tile.address(row, chunk * 8) == address
        assert tile.locate(address) == (row, chunk * 8)


def test_core_matrices_are_atoms_of_8_by_16_bytes():
    """The tensor core's layout without a swizzle: 128 contiguous bytes for 8 rows of 8 halves."""
    column = Layout((16, 16), 16, atom=(8, 8))
    assert [column.address(*place) for place in ((0, 0), (1, 0), (8, 0), (0, 8))] == [0, 16, 128, 256]
    row = Layout((16, 16), 16, atom=(8, 8), atom_order="row")
    assert [row.address(*place) for place in ((0, 0), (1, 0), (8, 0), (0, 8))] == [0, 16, 256, 128]


def test_padding_shifts_each_row_by_a_bank():
    tile = Layout((32, 32), 32, padding_bytes=4)
    assert tile.as_rows().tiling.pitch_bytes == 132
    assert sorted(tile.addresses()[:, 0] // 4 % 32) == list(range(32))
    assert tile.locate(128) is None
    assert tile.locate(132) == (1, 0)


def test_pattern_starts_anew_at_the_alignment():
    assert [Layout((8, 64), 16, swizzle=name).alignment_bytes for name in ("none", "32B", "64B", "128B")] == [
        128,
        256,
        512,
        1024,
    ]


def test_numpy_integers_are_plain_ones():
    tile = Layout((np.int64(8), np.uint8(64)), np.int32(16), padding_bytes=np.int8(16), start=np.uint64(1024))
    assert tile == Layout((8, 64), 16, padding_bytes=16, start=1024)
    assert all(
        type(each) is int for each in (*tile.shape, *tile.atom, tile.element_bits, tile.padding_bytes, tile.start)
    )
    assert tile.locate(np.int64(1024)) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"shape": (0, 64)}, "shape[0] = 0; at least 1"),
        ({"shape": {8, 64}}, "a sequence of integers"),
        ({"shape": (8, 64, 1)}, "2 integers"),
        ({"shape": (8, 64, 2)}, "Use (64, 64), for example"),
        ({"shape": 8}, "a sequence of integers"),
        ({"shape": None}, "a sequence of integers"),
        ({"shape": (8.0, 64)}, "shape[0] = 8.0 (float)"),
        ({"shape": "88"}, "a sequence of integers"),
        ({"atom": (8, 0)}, "atom[1] = 0"),
        ({"atom": (3, 64)}, "Use 9 x 64."),
        ({"atom": (8, 48)}, "Use 8 x 96."),
        ({"element_bits": 12}, "element_bits = 12; one of 1, 2, 4"),
        ({"element_bits": 16.0}, "element_bits = 16.0 (float)"),
        ({"element_bits": np.array([8, 16])}, "bits"),
        ({"element_bits": 4, "atom": (8, 1)}, "rows are whole bytes"),
        ({"atom_order": "columns"}, "known: column, row"),
        ({"atom_order": ["row"]}, "known: column, row"),
        ({"padding_bytes": -1}, "padding_bytes = -1; at least 0"),
        ({"padding_bytes": None}, "padding_bytes is an integer"),
        ({"start": -16}, "start = -16; 0 to 2^48 - 1"),
        ({"start": "0x400"}, "start is an integer"),
        ({"start": 2**32 - 1023}, "shared addresses have 32 bits"),
        ({"shape": (2**40, 64)}, "shared addresses have 32 bits"),
        ({"swizzle": "128C"}, "Did you mean 128B"),
    ],
)
def test_layout_that_cannot_be_is_refused(arguments, says):
    arguments = {"shape": (8, 64), "element_bits": 16} | arguments
    with pytest.raises(RuleError) as caught:
        Layout(arguments.pop("shape"), arguments.pop("element_bits"), **arguments)
    assert says in str(caught.value)


def test_all_mistakes_are_named_at_once():
    with pytest.raises(RuleError) as caught:
        Layout((8, 64), 12, atom=(3, 64), atom_order="down", padding_bytes=-1, start=-1)
    assert sorted(each.argument for each in caught.value.violations) == [
        "atom_order",
        "element_bits",
        "padding_bytes",
        "shape",
        "start",
    ]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (8, 0),
        (0, 64),
        (-1, 0),
        (0, -1),
        ([0, 8], 0),
        (0, [-1]),
        (0.0, 0),
        ([0.5], 0),
        ("0", 0),
        (None, 0),
        ([0, 1], [0, 1, 2]),
        ([[0], [1, 2]], 0),
    ],
)
def test_index_outside_the_tile_is_refused(row, column):
    tile = Layout((8, 64), 16)
    for ask in (tile.logical, tile.address):
        with pytest.raises(RuleError, match=r"integer mn 0\.\.7, k 0\.\.63"):
            ask(row, column)


@pytest.mark.parametrize("strange", [-1, 1.0, "0", None, [0]])
def test_strange_address_is_refused(strange):
    with pytest.raises(RuleError, match=r"address (= -1|is an integer)"):
        Layout((8, 64), 16).locate(strange)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.tuples(st.integers(), st.integers())
)


@given(JUNK, JUNK, JUNK, JUNK, JUNK, JUNK, JUNK)
def test_anything_is_a_layout_or_a_rule_error(shape, bits, atom, order, padding, swizzle, start):
    for arguments in (
        {},
        {"atom": atom, "atom_order": order},
        {"padding_bytes": padding, "swizzle": swizzle, "start": start},
    ):
        for tile in (shape, (8, 64)):
            try:
                layout = Layout(tile, bits, **arguments)
            except RuleError as error:
                if not error.violations:
                    pytest.fail("a RuleError without violations")
            else:
                assert isinstance(layout.swizzle, Swizzle)
