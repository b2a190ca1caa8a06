"""The address map of every mode: against the published tables, two other implementations, and its own laws."""

import itertools
import re
from contextlib import suppress

import numpy as np
import pytest
import tensor_layouts
from hypothesis import example, given
from hypothesis import strategies as st
from pycute import swizzle as pycute

from tilescope.errors import RuleError
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES, SWIZZLE, Swizzle

ALL = pytest.mark.parametrize("mode", SWIZZLE.values(), ids=str)
OTHERS = [Swizzle.xor(*triple) for triple in [(5, 2, 5), (3, 0, 4), (3, 4, 9), (1, 4, -8), (3, 0, -4), (0, 9, 5)]]
ALL_AND_OTHERS = pytest.mark.parametrize("mode", [*SWIZZLE.values(), *OTHERS], ids=str)
CUTE = [row for row in SWIZZLE.values() if not row.flip_bytes]  # CuTe has no name for the flip


@st.composite
def triples(draw):
    """bits, base, shift of XOR swizzles that exist: positive and negative shifts, up to 2^16 bytes."""
    bits = draw(st.integers(0, 5))
    distance = draw(st.integers(max(bits, 1), 9))  # pycute does not end for a shift of 0
    base = draw(st.integers(0, max(0, 16 - bits - distance)))
    return bits, base, distance * draw(st.sampled_from([1, -1]))


def naive(mode, address):
    """The map written with divisions and powers, for one address."""
    causing = mode.base + max(0, mode.shift)
    changed = mode.base + max(0, -mode.shift)
    cause = address // 2**causing % 2**mode.bits
    before = address // 2**changed % 2**mode.bits
    after = sum((cause // 2**bit % 2 != before // 2**bit % 2) * 2**bit for bit in range(mode.bits))
    moved = address + (after - before) * 2**changed
    if mode.flip_bytes and address // 128 % 2 == 1:
        moved += 8 if moved % 16 < 8 else -8
    return moved


@ALL_AND_OTHERS
def test_map_is_the_naive_one(mode):
    addresses = range(2 * mode.repeat_bytes)
    assert [mode.apply(address) for address in addresses] == [naive(mode, address) for address in addresses]


@ALL_AND_OTHERS
def test_map_is_a_permutation_and_its_own_inverse(mode):
    address = np.arange(2 * mode.repeat_bytes)
    physical = mode.apply(address)
    assert np.array_equal(np.sort(physical), address)
    assert np.array_equal(mode.apply(physical), address)


@ALL_AND_OTHERS
def test_map_keeps_every_byte_in_its_block(mode):
    address = np.arange(2 * mode.repeat_bytes)
    assert np.array_equal(mode.apply(address) // mode.block_bytes, address // mode.block_bytes)


@ALL
def test_map_keeps_every_byte_in_its_line(mode):
    address = np.arange(2 * mode.repeat_bytes)
    assert np.array_equal(mode.apply(address) // SMEM_LINE_BYTES, address // SMEM_LINE_BYTES)


@ALL_AND_OTHERS
def test_map_repeats_and_not_sooner(mode):
    address = np.arange(2 * mode.repeat_bytes)
    moved = mode.apply(address) - address
    assert np.array_equal(moved[: mode.repeat_bytes], moved[mode.repeat_bytes :])
    half = mode.repeat_bytes // 2
    if mode.bits:
        assert not np.array_equal(moved[:half], moved[half : 2 * half])


@ALL_AND_OTHERS
def test_pieces_and_atoms_move_whole(mode):
    address = np.arange(2 * max(mode.repeat_bytes, mode.atom_bytes))
    moved = mode.apply(address) - address
    for size in (mode.piece_bytes, mode.piece_bytes if mode.flip_bytes else mode.atom_bytes):
        assert (moved.reshape(-1, size) == moved[::size, None]).all()


@ALL_AND_OTHERS
def test_c_expression_computes_the_map(mode):
    addresses = np.arange(2 * mode.repeat_bytes)
    computed = eval(mode.c_expression, {"a": addresses})  # C's and numpy's operators agree here
    assert np.array_equal(computed, mode.apply(addresses))


# From the published examples: shared buffer at a multiple of 1024, offset and where it goes.
@pytest.mark.parametrize(
    ("name", "logical", "physical"),
    [
        ("128B", 128, 144),
        ("128B", 256, 288),
        ("128B", 0x3F0, 0x380),
        ("64B", 128, 144),
        ("64B", 384, 432),
        ("32B", 128, 144),
        ("32B", 256, 256),
        ("32B", 384, 400),
        ("128B_ATOM_32B", 128, 160),
        ("128B_ATOM_32B", 256, 320),
        ("128B_ATOM_64B", 128, 192),
        ("128B_ATOM_64B", 256, 256),
    ],
)
def test_map_gives_the_published_pairs(name, logical, physical):
    assert SWIZZLE[name].apply(logical) == physical
    assert SWIZZLE[name].apply(0x4000 + logical) == 0x4000 + physical


@pytest.mark.parametrize("mode", CUTE, ids=str)
def test_map_is_that_of_nvidias_pycute(mode):
    theirs = pycute.Swizzle(mode.bits, mode.base, mode.shift)
    assert mode.bits == 0 or mode.repeat_bytes == theirs.size()
    for address in range(2 * mode.repeat_bytes):
        assert mode.apply(address) == theirs(address)


@pytest.mark.parametrize("mode", CUTE, ids=str)
def test_map_is_that_of_tensor_layouts(mode):
    theirs = tensor_layouts.Swizzle(mode.bits, mode.base, mode.shift)
    for address in range(2 * mode.repeat_bytes):
        assert mode.apply(address) == theirs(address)


@given(triples(), st.integers(0, 2**20), st.data())
@example((2, 0, -3), 0, None)  # causing bits at the very bottom
@example((1, 4, -8), 16, None)
@example((0, 4, 3), 0, None)
def test_generic_map_is_that_of_pycute_and_tensor_layouts(triple, address, data):
    mode = Swizzle.xor(*triple)
    assert mode.apply(address) == pycute.Swizzle(*triple)(address) == tensor_layouts.Swizzle(*triple)(address)
    assert mode.apply(address) == naive(mode, address)
    assert eval(mode.c_expression, {"a": address}) == mode.apply(address)
    if data is not None:
        far = address + data.draw(st.integers(0, 100)) * mode.repeat_bytes
        assert mode.apply(far) - far == mode.apply(address) - address
        assert mode.apply(far) // mode.block_bytes == far // mode.block_bytes


def test_transpose_swizzle_spreads_columns_over_all_banks():
    """A 32 x 32 tile of floats: every column, and every row, touches 32 banks."""
    mode = Swizzle.xor(5, 2, 5)
    row, column = np.mgrid[:32, :32]
    bank = mode.apply(row * 128 + column * 4) // 4 % 32
    for banks in (*bank, *bank.T):
        assert sorted(banks) == list(range(32))


@ALL
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "uint64"])
def test_arrays_of_any_integer_type_are_mapped_like_ints(mode, dtype):
    address = np.arange(128, dtype=dtype).reshape(2, 8, 8)
    physical = mode.apply(address)
    assert physical.shape == address.shape
    assert physical.ravel().tolist() == [mode.apply(int(each)) for each in address.ravel()]


def test_narrow_addresses_do_not_wrap():
    assert Swizzle.xor(3, 4, -4).apply(np.array([255], np.uint8)).tolist() == [Swizzle.xor(3, 4, -4).apply(255)]


def test_addresses_above_63_bits_are_mapped():
    assert SWIZZLE["128B"].apply(2**70 + 128) == 2**70 + 144
    assert SWIZZLE["128B"].apply(np.array([2**63 + 128], np.uint64)).tolist() == [2**63 + 144]


def test_numpy_scalar_and_list_are_mapped():
    assert SWIZZLE["128B"].apply(np.int32(128)) == 144
    assert isinstance(SWIZZLE["128B"].apply(np.int32(128)), int)
    assert SWIZZLE["128B"].apply([128, 256]).tolist() == [144, 288]
    assert SWIZZLE["128B"].apply(np.zeros((0, 3), int)).shape == (0, 3)


STRANGE_ADDRESSES = [-1, 1.0, "0", None, object(), [[1], [2, 3]], [2**80], [-1], np.array([1.5]), np.array(["a"]), {}]


@pytest.mark.parametrize("strange", STRANGE_ADDRESSES, ids=lambda each: type(each).__name__)
def test_strange_address_is_a_rule_error(strange):
    with pytest.raises(RuleError, match="address"):
        SWIZZLE["128B"].apply(strange)


@ALL
def test_lines_and_chunks_say_the_same_as_addresses(mode):
    for line, chunk in itertools.product(range(2 * mode.period_lines), range(CHUNKS_PER_LINE)):
        physical = mode.apply(line * SMEM_LINE_BYTES + chunk * CHUNK_BYTES)
        assert mode.chunk_in_line(line, chunk) == physical % SMEM_LINE_BYTES // CHUNK_BYTES
        assert mode.pattern()[line % mode.period_lines][chunk] == mode.chunk_in_line(line, chunk)


# Rows of the swizzle's width, from a multiple of the repeat: the guide's formula, with lines where it says rows.
BOX_ROW_RULES = {
    "32B": lambda row, chunk: chunk ^ (row // 4) % 2,
    "64B": lambda row, chunk: chunk ^ (row // 2) % 4,
    "128B": lambda row, chunk: chunk ^ row % 8,
}


@pytest.mark.parametrize("name", BOX_ROW_RULES)
def test_box_rows_say_the_same_as_addresses(name):
    mode = SWIZZLE[name]
    for row, chunk in itertools.product(range(64), range(mode.span_bytes // CHUNK_BYTES)):
        at = row * mode.span_bytes
        assert mode.chunk_in_row(row, chunk) == BOX_ROW_RULES[name](row, chunk)
        assert mode.apply(at + chunk * CHUNK_BYTES) == at + mode.chunk_in_row(row, chunk) * CHUNK_BYTES


@pytest.mark.parametrize(("name", "wrong_rows"), [("32B", 2), ("64B", 4), ("128B", 8)])
def test_rows_taken_for_lines_are_the_trap(name, wrong_rows):
    """XOR with the row's own number is right for 128-byte rows alone."""
    mode = SWIZZLE[name]
    mistaken = [row % wrong_rows for row in range(16)]
    right = [mode.chunk_in_row(row, 0) for row in range(16)]
    assert (mistaken == right) == (name == "128B")


@pytest.mark.parametrize("mode", [row for row in SWIZZLE.values() if row.span_bytes], ids=str)
def test_box_rows_start_in_the_middle_of_the_pattern_where_the_buffer_does(mode):
    for address in range(0, 2 * mode.repeat_bytes, SMEM_LINE_BYTES):
        for row, chunk in itertools.product(range(16), range(mode.span_bytes // CHUNK_BYTES)):
            at = address + row * mode.span_bytes
            physical = mode.apply(at + chunk * CHUNK_BYTES) // CHUNK_BYTES * CHUNK_BYTES
            assert at + mode.chunk_in_row(row, chunk, address) * CHUNK_BYTES == physical
            assert 0 <= mode.chunk_in_row(row, chunk, address) < mode.span_bytes // CHUNK_BYTES


@ALL
def test_base_offset_is_the_line_of_the_pattern(mode):
    for address in range(0, 4096, 16):
        offset = mode.base_offset(address)
        assert offset == address // 128 % (mode.repeat_bytes // 128)
        if address % 128 == 0:
            first_line = tuple(mode.chunk_in_line(address // 128, chunk) for chunk in range(8))
            assert first_line == mode.pattern()[offset]


@pytest.mark.parametrize(
    "ask",
    [
        lambda mode: mode.chunk_in_line(0, 8),
        lambda mode: mode.chunk_in_line(0, -1),
        lambda mode: mode.chunk_in_line(-1, 0),
        lambda mode: mode.chunk_in_line("0", 0),
        lambda mode: mode.chunk_in_line(0, None),
        lambda mode: mode.chunk_in_row(0, 4),
        lambda mode: mode.chunk_in_row(0.0, 0),
        lambda mode: mode.chunk_in_row(0, 0, 64),
        lambda mode: mode.chunk_in_row(0, 0, -128),
        lambda mode: mode.chunk_in_row(0, 0, None),
        lambda mode: mode.base_offset(-1),
        lambda mode: mode.base_offset("0x80"),
        lambda mode: mode.base_offset(None),
    ],
)
def test_strange_line_row_chunk_or_start_is_a_rule_error(ask):
    with pytest.raises(RuleError):
        ask(SWIZZLE["64B"])


@pytest.mark.parametrize("triple", [(5, 2, 5), (3, 0, 4), (1, 7, 3), (2, 4, -3)])
def test_chunk_tables_refuse_swizzles_that_cut_chunks_or_leave_the_line(triple):
    mode = Swizzle.xor(*triple)
    for ask in (mode.pattern, lambda: mode.chunk_in_line(0, 0), lambda: mode.chunk_in_row(0, 0)):
        with pytest.raises(RuleError, match="swizzle-chunks"):
            ask()


@ALL
def test_is_found_by_its_names(mode):
    driver_name = f"CU_TENSOR_MAP_SWIZZLE_{mode.name.upper()}"
    for name in (mode, mode.name, mode.name.lower(), f" {mode.name} ", driver_name, driver_name.lower()):
        assert Swizzle.named(name) is mode
    assert str(mode) == mode.name


@pytest.mark.parametrize(
    "spelling", ["xor:2,5,-3", "XOR: 2, 5, -3", "Swizzle<2,5,-3>", "swizzle(2, 5, -3)", "Sw<2,5,-3>", " S<2,5,-3> "]
)
def test_generic_swizzle_is_found_by_its_spellings(spelling):
    assert Swizzle.named(spelling) == Swizzle.xor(2, 5, -3)


@given(triples())
def test_generic_name_leads_back(triple):
    mode = Swizzle.xor(*triple)
    assert Swizzle.named(mode.name) == mode
    assert (mode.driver_code, mode.feature, mode.architectures) == (None, None, ())


def test_numpy_integers_describe_a_swizzle():
    assert Swizzle.xor(np.int64(3), np.uint8(4), np.int32(3)) == Swizzle.xor(3, 4, 3)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("128b_atom", "128B_ATOM_32B"),
        ("128", "128B"),
        ("swizzle_64B", "64B"),
        ("non", "none"),
        ("128B_ATOM_32B_FLIP", "128B_ATOM_32B_FLIP_8B"),
    ],
)
def test_unknown_name_suggests_the_nearest(name, nearest):
    with pytest.raises(RuleError, match=f"Did you mean {re.escape(nearest)}") as caught:
        Swizzle.named(name)
    assert caught.value.violations[0].change == {"swizzle": nearest}


@pytest.mark.parametrize("strange", [None, 3, 128.0, b"128B", ["128B"], {}, "", "\x00", "xor", "xor 1,2", "q" * 9999])
def test_strange_name_is_a_rule_error(strange):
    with pytest.raises(RuleError, match="unknown-name"):
        Swizzle.named(strange)


@pytest.mark.parametrize(
    "written",
    ["xor:1,2", "xor:1", "xor:", "xor:1,2,3,4", "Swizzle<1,2>", "Sw<a,b,c>", "xor:-1,2,3", "xor:" + "9" * 9999],
)
def test_an_xor_swizzle_is_told_that_it_takes_three_numbers(written):
    with pytest.raises(RuleError, match=r"xor-swizzle: .*xor:3,4,3") as refused:
        Swizzle.named(written)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "junk",
    [True, False, np.bool_(True), [True], memoryview(b"ab"), memoryview(np.arange(4)), b"ab", bytearray(b"ab")],
    ids=lambda junk: type(junk).__name__,
)
def test_booleans_and_buffers_are_no_addresses(junk):
    with pytest.raises(RuleError, match="argument-type: address = "):
        SWIZZLE["128B"].apply(junk)


def test_addresses_are_integers_of_any_kind():
    mode = SWIZZLE["128B"]
    for address in (1 << 40, np.int64(128), np.uint8(128), np.uint64(1 << 63)):
        assert type(mode.apply(address)) is int
        assert mode.apply(address) == mode.apply(int(address))
    assert mode.apply([[0, 128], [256, 384]]).tolist() == [[0, 144], [288, 432]]
    assert mode.apply(np.array(128)).tolist() == 144
    assert mode.apply([]).tolist() == []


@given(st.text())
def test_any_text_is_found_or_refused(text):
    with suppress(RuleError):
        assert Swizzle.named(text).name in SWIZZLE or Swizzle.named(text).name.startswith("xor:")


@pytest.mark.parametrize(
    ("triple", "says"),
    [
        ((2, 4, 1), "Use shift = 2."),
        ((2, 4, 0), "Use shift = 2."),
        ((3, 4, -2), "Use shift = -3."),
        ((-1, 4, 3), "Use xor:3,4,3, for example: bits >= 0"),
        ((1, -1, 3), "Use xor:3,4,3, for example: bits >= 0"),
        ((1, 29, 3), "uses address bits 29 to 32"),
        ((1, 29, -3), "uses address bits 29 to 32"),
        ((10**30, 4, 3), "bits 0 to 31"),
        ((1.0, 4, 3), "is an integer"),
        (("1", 4, 3), "is an integer"),
        ((1, None, 3), "is an integer"),
        ((1, 4, True), "is an integer"),
        ((np.array([1, 2]), 4, 3), "is an integer"),
    ],
)
def test_swizzle_that_cannot_be_is_refused(triple, says):
    with pytest.raises(RuleError, match=re.escape(says)):
        Swizzle.xor(*triple)


@pytest.mark.parametrize("triple", [(1, 28, 3), (1, 28, -3), (2, 0, -3), (16, 0, 16), (0, 0, 0), (0, 32, 0)])
def test_swizzle_at_the_limits_is_made(triple):
    assert Swizzle.xor(*triple).apply(0) == 0


MODES = ["none", "32B", "64B", "128B", "96B"]  # in the order of their codes
ATOMICITIES = ["16B", "32B", "32B+8B-flip", "64B"]
# PTX ISA, "Valid combination of swizzle-atomicity with swizzling-mode"
VALID = {
    ("32B", "16B"): "32B",
    ("64B", "16B"): "64B",
    ("96B", "16B"): "96B",
    ("128B", "16B"): "128B",
    ("128B", "32B"): "128B_ATOM_32B",
    ("128B", "32B+8B-flip"): "128B_ATOM_32B_FLIP_8B",
    ("128B", "64B"): "128B_ATOM_64B",
    ("none", "16B"): "none",  # the manual has a dash here; 0 is the field at rest
}


@pytest.mark.parametrize(("mode", "atomicity"), list(itertools.product(MODES, ATOMICITIES)))
def test_pair_of_mode_and_atomicity_is_the_manuals_or_refused(mode, atomicity):
    mode_code, atomicity_code = MODES.index(mode), ATOMICITIES.index(atomicity)
    for pair in (
        (mode, atomicity),
        (mode_code, atomicity_code),
        (mode, atomicity_code),
        (np.int8(mode_code), atomicity),
    ):
        if (mode, atomicity) in VALID:
            assert Swizzle.from_ptx(*pair).name == VALID[mode, atomicity]
        else:
            with pytest.raises(RuleError, match="ptx-swizzle-pair") as caught:
                Swizzle.from_ptx(*pair)
            for valid_mode, valid_atomicity in VALID:
                spelled = "none alone" if valid_mode == "none" else f"{valid_mode} with {valid_atomicity}"
                assert spelled in caught.value.violations[0].limit


@pytest.mark.parametrize("mode", MODES)
def test_mode_without_atomicity_has_chunks_for_atoms(mode):
    assert Swizzle.from_ptx(mode).name == Swizzle.from_ptx(MODES.index(mode), None).name == mode


@ALL
def test_codes_of_a_row_lead_back_to_it(mode):
    assert Swizzle.from_ptx(mode.ptx_mode, mode.ptx_atomicity) is mode


@pytest.mark.parametrize(
    "pair",
    [
        (5, 0),
        (-1, 0),
        (3, 4),
        (3, -1),
        (None, None),
        ("128b", "16B"),
        ("128B", "8B"),
        ([3], 0),
        (3, [0]),
        (3, "0"),
        (np.array([3, 3]), 0),
        (3.5, 0),
        (True, 0),
        ({}, {}),
    ],
    ids=repr,
)
def test_strange_pair_is_a_rule_error(pair):
    with pytest.raises(RuleError, match="ptx-swizzle-pair"):
        Swizzle.from_ptx(*pair)


# CuTe's atoms with their modes: mma_traits_sm90_gmma.hpp (Layout_K_SW128_Atom_Bits and the others, on bytes) and
# mma_traits_sm100.hpp (Layout_MN_SW128_32B_Atom_Bits).
CUTE_MODES = {(3, 4, 3): "128B", (2, 4, 3): "64B", (1, 4, 3): "32B", (0, 4, 3): "none", (2, 5, 2): "128B_ATOM_32B"}


@pytest.mark.parametrize(("triple", "name"), CUTE_MODES.items())
def test_an_xor_swizzle_knows_the_mode_that_it_equals(triple, name):
    assert Swizzle.xor(*triple).hardware_mode is SWIZZLE[name]
    assert SWIZZLE[name].hardware_mode is SWIZZLE[name]


def test_a_hardware_mode_is_the_same_map_and_no_other_xor_swizzle_has_one():
    address = np.arange(1 << 14)
    for bits, base, shift in itertools.product(range(5), range(8), range(-5, 6)):
        if abs(shift) < bits:
            continue
        swizzle = Swizzle.xor(bits, base, shift)
        alike = [row for row in SWIZZLE.values() if (row.apply(address) == swizzle.apply(address)).all()]
        assert swizzle.hardware_mode is (alike[0] if alike else None), swizzle


def test_a_refused_triple_is_quoted_up_to_forty_characters():
    for text in ("xor:" + "1," * 18, "xor:" + "1," * 60):
        with pytest.raises(RuleError) as refused:
            Swizzle.named(text)
        quoted = refused.value.violations[0].found.removeprefix("swizzle ")
        assert quoted == (text if len(text) <= 40 else text[:39] + "…")
