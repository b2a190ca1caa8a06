"""Layouts of any nested modes: what CUTLASS prints, scale factors, ranks up to 5, against pycute and a naive account."""

import itertools
import pickle

import numpy as np
import pycute
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.layout import Layout, Modes, oriented

SW128 = "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"


@st.composite
def any_layouts(draw):
    rank = draw(st.integers(1, 5))
    indices = [
        draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=2)) for _ in range(rank)
    ]
    shape = tuple(tuple(extent for extent, _ in index) for index in indices)
    stride = tuple(tuple(stride for _, stride in index) for index in indices)
    bits = draw(st.sampled_from([4, 8, 16, 32]))
    swizzle = draw(st.sampled_from(["none", "32B", "128B", "xor:2,3,3"]))
    return Layout.from_modes((shape, stride), bits, swizzle=swizzle, start=draw(st.integers(0, 4000)))


def naive(layout):
    """First bit of every element before the swizzle, by pycute."""
    modes = layout.bit_modes
    other = pycute.Layout(modes.shape, modes.stride)
    return {
        coord: layout.start * 8 + sum(part(index) for part, index in zip(other, coord, strict=True))
        for coord in itertools.product(*map(range, layout.shape))
    }


@given(any_layouts())
def test_every_address_is_pycutes(layout):
    addresses = layout.addresses()
    assert addresses.shape == layout.shape
    for coord, bit in naive(layout).items():
        assert layout.logical(*coord) == bit // 8
        assert layout.address(*coord) == addresses[coord] == layout.swizzle.apply(bit // 8)
    last = max(naive(layout).values()) + layout.element_bits
    if layout.atom is None:
        assert layout.size_bytes == -(-(last - layout.start * 8) // 8)


@pytest.mark.slow
@given(any_layouts())
def test_locate_finds_an_element_that_covers_the_byte_wherever_there_is_one(layout):
    bits = naive(layout)
    for logical in range(layout.start, layout.start + layout.size_bytes):
        holders = {coord for coord, bit in bits.items() if bit <= logical * 8 < bit + layout.element_bits}
        found = layout.locate(layout.swizzle.apply(logical))
        assert (found in holders) if holders else found is None


@given(any_layouts())
def test_plain_data_pickle_and_repr_lead_back(layout):
    for back in (ts.Value.from_dict(layout.to_dict()), pickle.loads(pickle.dumps(layout))):
        assert back == layout
        assert hash(back) == hash(layout)
        assert back.to_dict() == layout.to_dict()
        assert str(back.bit_modes) == str(layout.bit_modes)  # the nesting is kept
    assert ts.parse_layout(repr(layout)) == layout
    assert eval(repr(layout), {"Layout": Layout}) == layout


@given(any_layouts(), any_layouts())
def test_equal_layouts_are_those_whose_addresses_are_equal(one, other):
    same = (
        one.shape == other.shape
        and one.element_bits == other.element_bits
        and naive(one) == naive(other)
        and one.swizzle == other.swizzle
    )
    assert (one == other) or not same
    if one == other:
        assert one.first_difference(other) is None
        assert hash(one) == hash(other)


@given(any_layouts(), st.integers(0, 10_000))
def test_terms_evaluate_to_the_address(layout, base):
    terms = layout.with_start(base).terms()
    assert ts.Value.from_dict(terms.to_dict()) == terms
    moved = layout.with_start(base)
    for coord in list(itertools.product(*map(range, layout.shape)))[:40]:
        names = dict(zip(layout.names, coord, strict=True))
        assert eval(terms.python, {"base": base} | names) == moved.address(*coord)
        assert run_ptx(terms.ptx, base, names) == moved.address(*coord)
        c = terms.c.replace("/", "//")
        if layout.swizzle.bits:
            sum_of_terms, _, swizzled = c.removeprefix("(a = ").removesuffix(")").rpartition(", ")
            assert eval(swizzled, {"a": eval(sum_of_terms, {"base": base} | names)}) == moved.address(*coord)
        else:
            assert eval(c, {"base": base} | names) == moved.address(*coord)


PTX = {
    "mov": lambda a: a,
    "mad": lambda a, b, c: a * b + c,
    "shr": lambda a, b: a >> b,
    "shl": lambda a, b: a << b & 0xFFFFFFFF,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "add": lambda a, b: a + b,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
}


def run_ptx(text, base, names):
    """The few instructions that terms print, executed one by one."""
    registers = {"%base": base} | {f"%{name}": value for name, value in names.items()}
    for line in text.splitlines():
        op, rest = line.removesuffix(";").split(" ", 1)
        target, *operands = (each.strip() for each in rest.split(","))
        values = [registers[each] if each.startswith("%") else int(each, 0) for each in operands]
        registers[target] = PTX[op.split(".")[0]](*values)
    return registers["%a"]


def test_a_parsed_layout_takes_patterns():
    """CuTe's text in place of a Layout of our own: the same counts."""
    access = ts.Access.ldmatrix((64, 64), 16)
    report = ts.tile_report(access, ts.parse_layout(SW128))
    assert report.conflict_free
    assert report == ts.tile_report(access, Layout((64, 64), 16, swizzle="128B"))
    plain = ts.tile_report(access, ts.parse_layout("smem_ptr[16b](unset) o (_64,_64):(_64,_1)"))
    assert (plain.wavefronts, plain.ideal) == (512, 64)


def test_a_parsed_call_equals_what_it_makes():
    assert ts.parse_layout('Layout((64, 64), 16, swizzle="128B")') == Layout((64, 64), 16, swizzle="128B")
    assert ts.parse_layout(SW128) == Layout((64, 64), 16, swizzle="128B")
    mn = Layout((128, 16), 16, atom=(64, 8), atom_order="row", major="MN", swizzle="128B", start=0x400)
    assert ts.parse_layout(repr(mn)) == mn
    assert ts.parse_layout("Layout((64, 16), 16)", major="MN") == Layout((64, 16), 16, major="MN")


def test_nesting_is_kept_for_printing_and_does_not_count():
    nested = ts.parse_layout("((8,8),(64,1)):((64,512),(1,0))", element_bits=16)
    assert nested == Layout((64, 64), 16) == ts.parse_layout("(64,64):(64,1)", element_bits=16)
    assert str(nested.modes) == "((8,8),(64,1)):((64,512),(1,0))"
    assert (repr(nested), nested.atom, nested.major) == ("Layout((64, 64), 16)", (64, 64), "K")
    assert nested != Layout((64, 64), 16, start=128)
    assert nested != Layout((64, 64), 16, swizzle="128B")
    assert Layout((64, 64), 16, swizzle="128B") == Layout((64, 64), 16, swizzle="xor:3,4,3")


def test_scale_factors_are_a_layout():
    """The 128 x 4 scale factors of a block-scaled operand: 32 rows of 16 bytes, four groups of rows side by side."""
    scales = ts.parse_layout("((32,4),4):((16,4),1)", element_bits=8)
    assert (scales.shape, scales.major, scales.atom, scales.atom_order, scales.padding_bytes) == (
        (128, 4),
        "K",
        None,
        None,
        None,
    )
    for row, column in itertools.product(range(128), range(4)):
        assert scales.address(row, column) == row % 32 * 16 + row // 32 * 4 + column
        assert scales.locate(scales.address(row, column)) == (row, column)
    assert scales.size_bytes == 512
    assert "128 x 4 elements of 8 bits" in scales.text()
    assert scales.svg().startswith("<svg")
    with pytest.raises(ts.RuleError, match="grid of equal atoms"):
        ts.spell_layout(scales, "tilescope")


def test_staged_tiles_of_cutlass_are_layouts():
    """What CUTLASS prints for three stages of a 128 x 64 operand."""
    text = "Sw<3,4,3> o smem_ptr[16b](unset) o ((_8,_16),(_64,_1),(_1,_3)):((_64,_512),(_1,_0),(_0,_8192))"
    staged = ts.parse_layout(text)
    one = Layout((128, 64), 16, swizzle="128B")
    assert (staged.shape, staged.major, staged.size_bytes) == ((128, 64, 3), None, 3 * one.size_bytes)
    for stage in range(3):
        assert (staged.addresses()[:, :, stage] == one.with_start(stage * 16384).addresses()).all()
    assert staged.stage() == one
    assert staged.as_rows().shape == (384, 64)
    assert ts.spell_layout(staged, "cute") == text
    assert ts.tile_report(ts.Access.ldmatrix((384, 64), 16), staged).conflict_free


@pytest.mark.parametrize("major", ["K", "MN"])
def test_a_planned_layout_speaks_mn_and_k(major):
    best = ts.plan((128, 32), "bf16", major=major).best
    assert best.layout.shape == (128, 32)
    assert best.layout.major == major
    assert best.layout == best.canonical.tile((128, 32), atom_order=best.atom_order)
    assert best.layout.address(5, 7) == best.address(5, 7)
    assert best.layout == ts.parse_layout(ts.spell_layout(best.layout, "cute"))
    assert best.layout.as_rows().shape == oriented(major, 128, 32)


@pytest.mark.parametrize(("major", "swizzle"), [("K", "128B"), ("MN", "64B"), ("MN", "none")])
def test_descriptors_take_a_layout_from_any_text(major, swizzle):
    wanted = ts.wgmma_descriptors((128, 64), "bf16", major=major, swizzle=swizzle, atom_order="row", smem_address=0x400)
    text = ts.spell_layout(wanted.layout, "cute")
    assert ts.wgmma_descriptors(ts.parse_layout(text), "bf16") == wanted
    with pytest.raises(ts.RuleError, match="descriptor-layout"):
        ts.wgmma_descriptors(Layout((128, 64), 16, padding_bytes=16), "bf16")


def test_indices_count_and_ranges_are_checked():
    staged = Layout.from_modes(((8, 8, 2), (8, 1, 64)), 16)
    with pytest.raises(ts.RuleError, match=r"integer i0 0\.\.7, i1 0\.\.7, i2 0\.\.1"):
        staged.address(0, 0)
    with pytest.raises(ts.RuleError, match=r"outside the tile"):
        staged.address(0, 0, 2)
    assert staged.address(np.arange(8)[:, None], 1, [[0, 1]]).shape == (8, 2)


@pytest.mark.parametrize(
    ("modes", "options", "says"),
    [
        (((8,) * 6, (1,) * 6), {}, "at most 5"),
        ("(8,64):(64,1)", {}, "a pair: shape, stride"),
        (((8, 64), (64, 1)), {"unit_bits": 0}, "unit_bits"),
        (((8, 64), (64, 1)), {"start": -1}, r"0 to 2\^48"),
        (((8, 64), (64, 2**60)), {}, "addresses are below"),
    ],
)
def test_modes_that_cannot_be_are_refused(modes, options, says):
    with pytest.raises(ts.RuleError, match=says):
        Layout.from_modes(modes, 16, **options)


def test_thread_values_are_composed_as_cute_does():
    """(thread, value) → index of the tile, first index fastest → address, by pycute."""
    tile = Layout((32, 32), 32, padding_bytes=4)
    tv = Modes(((4, 8), (2, 2)), ((2, 32), (1, 512)))
    access = ts.Access.thread_values(tv, tile)
    twin, layout = pycute.Layout(tv.shape, tv.stride), pycute.Layout((32, 32), (33, 1))
    wanted = [[layout(twin(thread, value)) * 4 for thread in range(32)] for value in range(4)]
    assert access.op.name == "ld.b32"
    assert access.lane_address.tolist() == wanted
    report = ts.tile_report(access, tile)
    assert report.wavefronts == int(ts.wavefronts("ld.b32", np.array(wanted)).sum())
    assert report.layout == tile


def test_threads_read_as_wide_as_their_values_lie_together():
    tile = Layout((32, 32), 16, swizzle="64B")
    rows = ((32, 32), (1, 32))  # thread t holds row t
    assert ts.Access.thread_values(rows, tile).op.name == "ld.b128"
    assert ts.Access.thread_values(rows, tile, "st.b64").instructions == 8
    few = ts.Access.thread_values(((8, 8), (1, 32)), tile)
    assert few.active.tolist() == [[lane < 8 for lane in range(32)]]
    with pytest.raises(ts.RuleError, match="neighbouring values allow 2 bytes"):
        ts.Access.thread_values(((32, 32), (32, 1)), tile, "ld.b128")
    with pytest.raises(ts.RuleError, match="within the 1024 elements"):
        ts.Access.thread_values(((32, 64), (1, 32)), tile)
