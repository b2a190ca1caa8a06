"""Round trips: a layout spelled in any notation that has a name for it reads back as the same addresses."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope import SWIZZLE, Layout, RuleError, Value
from tilescope.notation import NOTATION, convert_layout, parse_layout, spell_layout

# The notations that have a name for a whole number of TMA boxes, one column of atoms after another.
ATOM_NAMES = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128", "128B_ATOM_32B": "SW128_32B"}


def beside(layout, notation):
    return {name: getattr(layout, name) for name in NOTATION[notation].unsaid}


def turned(layout, major):
    """The same bytes with the two indices exchanged for MN-major."""
    if major == "K":
        return layout
    options = {"atom_order": layout.atom_order, "padding_bytes": layout.padding_bytes, "swizzle": layout.swizzle}
    return Layout(
        layout.shape[::-1], layout.element_bits, atom=layout.atom[::-1], major="MN", start=layout.start, **options
    )


def tiles(bits):
    """Layouts of every mode, several tile sizes, both orders, with and without padding."""
    for swizzle in SWIZZLE.values():
        span = (swizzle.span_bytes or 16) * 8 // bits
        for rows, columns, order in ((8, 1, "column"), (32, 2, "column"), (32, 2, "row"), (64, 4, "column")):
            yield Layout((rows, columns * span), bits, atom=(8, span), atom_order=order, swizzle=swizzle)
    yield Layout((16, 128), bits, padding_bytes=16)
    yield Layout((64, 128), bits)
    yield Layout((8, 1024 // bits), bits, swizzle="128B", start=0x480)
    yield Layout((32, 256 // bits), bits, swizzle="xor:2,3,3", start=0x4000)


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize("notation", NOTATION)
def test_every_text_reads_back_as_the_layout_it_was_made_from(notation, bits, major):
    named, refusals = 0, set()
    for tile in tiles(bits):
        layout = turned(tile, major)
        try:
            text = spell_layout(layout, notation)
        except RuleError as refused:
            refusals |= {violation.rule for violation in refused.violations}
            continue
        named += 1
        again = parse_layout(text, **beside(layout, notation))
        assert again.shape == layout.shape
        assert (again.addresses() == layout.addresses()).all(), text
        assert spell_layout(again, notation) == text
        assert again == layout, text
    assert named >= {4: 2}.get(bits, 4)
    assert refusals <= {"no-equivalent"}


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
@pytest.mark.parametrize("source", NOTATION)
def test_an_atom_goes_from_every_notation_to_every_other(source, mode, bits):
    atom = Layout((8, SWIZZLE[mode].span_bytes * 8 // bits), bits, swizzle=mode)
    text = spell_layout(atom, source)
    for target in NOTATION:
        conversion = convert_layout(text, target, **beside(atom, source))
        assert conversion.layout == atom
        assert conversion.compared == 8 * SWIZZLE[mode].span_bytes * 8 // bits
        assert parse_layout(conversion.result, **beside(atom, target)) == atom


@pytest.mark.parametrize("notation", [name for name in NOTATION if name.startswith("cute")] + ["tilescope"])
def test_layouts_of_tensor_cores_have_all_their_names(notation):
    for mode, major in ((mode, major) for mode in ATOM_NAMES for major in ("K", "MN")):
        rows = 4 if mode == "128B_ATOM_32B" else 8
        tile = turned(Layout((rows, (SWIZZLE[mode].span_bytes or 16) // 2), 16, swizzle=mode), major)
        if notation == "cute-atom" and (mode, major) == ("128B_ATOM_32B", "K"):
            with pytest.raises(RuleError, match="it exists MN-major"):
                spell_layout(tile, notation)
        else:
            assert parse_layout(spell_layout(tile, notation), **beside(tile, notation)) == tile


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        ("Layout((16, 128), 16, padding_bytes=16)", "mosaic", "padding"),
        ("Layout((16, 128), 16, padding_bytes=24)", "triton", "unpadded"),
        (
            "Layout((16, 128), 16, padding_bytes=16)",
            "driver",
            "(1, 0) would be elsewhere in CU_TENSOR_MAP_SWIZZLE_NONE",
        ),
        ("Layout((16, 128), 16, padding_bytes=16)", "cute-atom", "tiles of the tensor core's"),
        ("Layout((16, 128), 16, atom=(8, 64), atom_order='row', swizzle='128B')", "ptx", "column by column"),
        ("Layout((16, 128), 16, atom=(8, 64), atom_order='row', swizzle='128B')", "triton", "column by column"),
        ("Layout((8, 32), 32, swizzle='128B_ATOM_32B_FLIP_8B')", "cute", "no exchange of 8-byte halves"),
        ("Layout((8, 32), 32, swizzle='128B_ATOM_32B_FLIP_8B')", "triton", "XOR of row bits"),
        ("Layout((8, 64), 16, swizzle='128B_ATOM_64B')", "mosaic", "32, 64 or 128 bytes"),
        ("Layout((8, 48), 16, swizzle='96B')", "driver", "no enumerator"),
        ("Layout((8, 64), 16, swizzle='xor:3,3,3')", "driver", "TMA knows"),
        ("Layout((8, 64), 16, swizzle='xor:3,3,3')", "ptx", "TMA knows"),
        ("Layout((8, 64), 16, swizzle='128B', start=0x80)", "triton", "every 1024 bytes"),
        ("Layout((8, 64), 16, swizzle='128B', start=0x80)", "mosaic", "every 1024 bytes"),
        ("Layout((8, 64), 16, swizzle='128B', start=0x80)", "cute-atom", "no address"),
        ("Layout((8, 16), 64, swizzle='xor:1,2,3')", "cute-elements", "moves whole elements"),
        ("Layout((8, 2), 64, swizzle='128B', start=0x84)", "cute-python", "offsets count elements"),
        ("Layout((8, 128), 6, swizzle='96B', start=0x2000)", "cute-python", "Use start 0x1ffe"),
        ("Layout((8, 128), 6, swizzle='96B', start=0x2000)", "cute-elements", "Use start 0x1ffe"),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_8,_8):(_64,_8,_1)", "triton", "tile has two"),
        ("smem_ptr[16b](unset) o (8,8):(2,16)", "tilescope", "no index of stride 1"),
        ("smem_ptr[16b](unset) o ((2,2,2),8):((8,100,300),1)", "tilescope", "grid of equal atoms"),
        ("smem_ptr[16b](unset) o (8,64):(0,1)", "tilescope", "grid of equal atoms"),
    ],
)
def test_says_why_there_is_no_equivalent(text, target, reason):
    with pytest.raises(RuleError) as refused:
        convert_layout(text, target)
    assert [violation.rule for violation in refused.value.violations] == ["no-equivalent"]
    assert reason in str(refused.value)


def test_a_conversion_is_a_value():
    found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "triton")
    assert (found.compared, found.basis, found.unsaid) == (512, "measured", ("shape", "start"))
    assert Value.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert convert_layout("128B_ATOM_64B", "cute", element_bits=16).basis == "documented"


def test_unknown_notations_are_refused_with_the_nearest():
    with pytest.raises(RuleError, match="Did you mean triton"):
        spell_layout(Layout((8, 64), 16), "trition")
    with pytest.raises(RuleError, match="unknown-name"):
        spell_layout(Layout((8, 64), 16), None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (".swizzle_mode = 3, .swizzle_atomicity = 1", "128B_ATOM_32B"),
        (".swizzle_mode = 128B, .swizzle_atomicity = 32B+8B-flip", "128B_ATOM_32B_FLIP_8B"),
        ("swizzle_mode: 2", "64B"),
        (".swizzle_atomicity 64B .swizzle_mode 128B", "128B_ATOM_64B"),
        ("CU_TENSOR_MAP_SWIZZLE_32B", "32B"),
        ("cu_tensor_map_swizzle_128b_atom_32b", "128B_ATOM_32B"),
        ("96B", "96B"),
    ],
)
def test_modes_by_their_driver_and_ptx_names(text, name):
    layout = parse_layout(text, element_bits=16)
    span = SWIZZLE[name].span_bytes // 2
    assert layout == Layout((8, span), 16, swizzle=name)
    assert parse_layout(text, element_bits=16, major="MN").shape == (span, 8)
    assert parse_layout(text, element_bits=16, shape=(64, 2 * span)) == Layout(
        (64, 2 * span), 16, atom=(64, span), swizzle=name
    )


@pytest.mark.parametrize("name", SWIZZLE)
def test_a_mode_stores_boxes_one_span_wide(name):
    """A second, naive account: boxes one after the other, rows in each, the swizzle on the address."""
    swizzle, rows, bits = SWIZZLE[name], 16, 16
    boxes = [(0, 96)] if swizzle.span_bytes is None else [(box, swizzle.span_bytes) for box in range(2)]
    wanted = [[] for _ in range(rows)]
    for box, width in boxes:
        for row in range(rows):
            first = (box * rows + row) * width
            wanted[row] += [swizzle.apply(first + byte) for byte in range(0, width, 2)]
    layout = parse_layout(name, element_bits=bits, shape=(rows, len(wanted[0])))
    assert layout.addresses().tolist() == wanted


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("CU_TENSOR_MAP_SWIZZLE_NONE", {"element_bits": 16}, "shape"),
        ("CU_TENSOR_MAP_SWIZZLE_128B", {}, "element_bits"),
        ("CU_TENSOR_MAP_SWIZZLE_128B", {"element_bits": 16, "shape": (8, 96)}, "a multiple of 64 elements"),
        ("CU_TENSOR_MAP_SWIZZLE_NONE", {"element_bits": 16, "shape": (8, 4)}, "a multiple of 8 elements"),
        ("CU_TENSOR_MAP_SWIZZLE_256B", {"element_bits": 16}, "unknown-name"),
        (".swizzle_mode = 2, .swizzle_atomicity = 1", {"element_bits": 16}, "only the 128B mode"),
        (
            ".swizzle_mode = 2, .swizzle_mode = 2",
            {"element_bits": 16},
            "most one .swizzle_atomicity",
        ),
        (".swizzle_atomicity = 1", {"element_bits": 16}, "a .swizzle_mode, and at most"),
        ("128B", {"element_bits": 6}, "whole ones in 128 bytes"),
        ("128B", {"element_bits": 7}, "one of 1, 2, 4"),
        ("128B", {"element_bits": 16, "shape": (8, 64.0)}, "an integer"),
        ("128B", {"element_bits": 16, "shape": 64}, "a sequence of integers"),
        ("128B", {"element_bits": 16, "major": "N", "unit": "bits", "start": -1}, "unit"),
        ("Layout((8, 64), 16, swizzle=128B)", {}, "a name in quotes"),
        ("Layout((8, 64), 16, swizzle='129B')", {}, "unknown-name"),
        ("Layout((8, 64), 16, swizle='128B')", {}, "Use swizzle."),
        ("Layout((8, 64), 7)", {}, "element_bits = 7"),
        ("Layout((8, 64, 2), 16)", {}, "2 integers"),
        ("Layout((8, 64), 16, swizzle='128B", {}, "expected"),
        ("(8,8):(8,1", {}, 'expected "," or ")"'),
    ],
)
def test_says_why_a_mode_or_layout_is_not_understood(text, arguments, reason):
    with pytest.raises(RuleError) as refused:
        parse_layout(text, **arguments)
    assert reason in str(refused.value)


@given(
    rows=st.tuples(st.integers(1, 6), st.integers(1, 4)),
    columns=st.tuples(st.integers(2, 6), st.integers(1, 4)),
    order=st.sampled_from(["column", "row"]),
    padding=st.integers(0, 3),
    bits=st.sampled_from([8, 16, 32, 64]),
    mode=st.sampled_from(["none", "32B", "128B", "xor:2,3,4"]),
    major=st.sampled_from(["K", "MN"]),
    start=st.sampled_from([0, 128, 4096]),
)
def test_any_layout_survives_as_strides_and_as_cute(rows, columns, order, padding, bits, mode, major, start):
    tile = Layout(
        (rows[0] * rows[1], columns[0] * columns[1]),
        bits,
        atom=(rows[0], columns[0]),
        atom_order=order,
        padding_bytes=padding * bits // 8,
        swizzle=mode,
        start=start,
    )
    layout = turned(tile, major)
    wanted = tile.addresses() if major == "K" else tile.addresses().T
    assert (layout.addresses() == wanted).all()
    again = parse_layout(spell_layout(layout, "cute"))
    assert again == layout
    assert hash(again) == hash(layout)
    assert again.atom is not None
    assert (parse_layout(repr(again)).addresses() == wanted).all()


def test_elements_below_a_byte_are_compared_to_the_bit():
    high = Layout.from_modes(((2, 2), (2, 1)), 4)
    low = Layout.from_modes(((2, 2), (1, 2)), 4)
    assert high.first_difference(low) == (0, 1)
    same_bytes = Layout.from_modes(((1, 2), (0, 1)), 4), Layout.from_modes(((1, 2), (0, 0)), 4)
    assert np.array_equal(*(layout.addresses() for layout in same_bytes))
    assert same_bytes[0].first_difference(same_bytes[1]) == (0, 1)


def test_a_layout_of_any_modes_checks_its_arguments():
    with pytest.raises(RuleError) as refused:
        Layout.from_modes(((8, 8), (-8, 1)), 7, start=-1)
    assert {violation.argument for violation in refused.value.violations} == {"modes", "element_bits", "start"}
    with pytest.raises(RuleError, match="layout-size"):
        Layout.from_modes(((2**12, 2**12), (1, 2**12)), 16).addresses()
