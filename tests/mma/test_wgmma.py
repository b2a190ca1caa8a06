"""wgmma descriptors against recordings of an H200, a naive reading of the rules, and themselves turned round."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import WgmmaDescriptor, inspect_descriptor
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.mma_instruction import wgmma_for

GOLDEN = Path(__file__).parents[1] / "golden"
MODES = ("none", "32B", "64B", "128B")


def recorded(name):
    with np.load(GOLDEN / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


OPERANDS = recorded("wgmma_operands")
OTHER_TYPES = recorded("wgmma_operands_other_types")


def descriptor_of(record, case):
    span = int(record["swizzle_bytes"][case])
    return WgmmaDescriptor(
        int(record["start_address"][case]),
        leading_bytes=int(record["leading_bytes"][case]),
        stride_bytes=int(record["stride_bytes"][case]),
        swizzle=f"{span}B" if span else "none",
        base_offset=int(record["base_offset"][case]),
    )


def naive_address(descriptor, major, m, k, element_bytes):
    """Section by section what was measured, for one element."""
    span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[descriptor.swizzle.name]
    start, lbo, sbo = descriptor.start_address, descriptor.leading_bytes, descriptor.stride_bytes
    if major == "K" and descriptor.swizzle.name == "none":
        byte = k * element_bytes
        address = start + m // 8 * sbo + m % 8 * 16 + byte // 16 * lbo + byte % 16
    elif major == "K":
        address = start + m // 8 * sbo + m % 8 * span + k * element_bytes
    elif descriptor.swizzle.name == "none":
        address = start + 2 * m // 16 * sbo + 2 * m % 16 + k // 8 * lbo + k % 8 * 16
    else:
        address = start + 2 * m // span * lbo + 2 * m % span + k // 8 * sbo + k % 8 * span
    line = address // 128 - descriptor.base_offset
    return address ^ (line % (span // 16) << 4)


def first_difference(got, expected):
    wrong = np.argwhere(got != expected)
    where = tuple(int(index) for index in wrong[0])
    return f"{len(wrong)} of {got.size} differ, first at {where}: {got[where]:#x} instead of {expected[where]:#x}"


def test_bf16_operands_are_read_where_the_card_read_them():
    for case, word in enumerate(OPERANDS["descriptor"].tolist()):
        descriptor = descriptor_of(OPERANDS, case)
        expected, rows = OPERANDS["address"][case].astype(np.int64), 64
        if OPERANDS["operand"][case] == 1:
            expected, rows = expected[:16].T, 16
        got = descriptor.addresses("MN" if OPERANDS["mn_major"][case] else "K", rows, 16, 16) % 65536
        assert (got == expected).all(), (case, descriptor, first_difference(got, expected))
        assert descriptor.encode() == word, case
        assert WgmmaDescriptor.decode(word) == descriptor, case


@pytest.mark.parametrize(("name", "bits", "k"), [("tf32", 32, 8), ("s8", 8, 32)])
def test_tf32_and_s8_operands_are_read_where_the_card_read_them(name, bits, k):
    recording = OTHER_TYPES[f"address_{name}"]
    for case, word in enumerate(OTHER_TYPES["descriptor"].tolist()):
        descriptor = descriptor_of(OTHER_TYPES, case)
        expected, rows = recording[case].astype(np.int64), 64
        if OTHER_TYPES["operand"][case] == 1:
            expected, rows = expected[:k].T, recording.shape[2]
        got = descriptor.addresses(major="K", rows=rows, k=k, element_bits=bits) % 65536
        assert (got == expected).all(), (case, descriptor, first_difference(got, expected))
        assert descriptor.encode() == word, case


FIELDS = {
    "start_address": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "leading_bytes": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "stride_bytes": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "swizzle": st.sampled_from(MODES),
    "base_offset": st.integers(0, 7),
}


def build(fields):
    return WgmmaDescriptor(
        fields["start_address"], **{name: fields[name] for name in fields if name != "start_address"}
    )


@given(st.fixed_dictionaries(FIELDS))
def test_encode_and_decode_are_inverse(fields):
    descriptor = build(fields)
    word = descriptor.encode()
    assert 0 <= word < 1 << 64
    assert WgmmaDescriptor.decode(word) == descriptor
    assert ts.Value.from_dict(descriptor.to_dict()) == descriptor
    code = {"none": 0, "128B": 1, "64B": 2, "32B": 3}[fields["swizzle"]]
    assert word == (
        fields["start_address"] >> 4
        | fields["leading_bytes"] >> 4 << 16
        | fields["stride_bytes"] >> 4 << 32
        | fields["base_offset"] << 49
        | code << 62
    )


@given(st.fixed_dictionaries(FIELDS), st.sampled_from([("K", 1), ("K", 2), ("K", 4), ("MN", 2)]))
def test_addresses_follow_the_measured_rules(fields, kind):
    major, element_bytes = kind
    descriptor = build(fields)
    k = 32 // element_bytes
    got = descriptor.addresses(major, rows=72, k=k, element_bits=8 * element_bytes)
    for m in (0, 1, 7, 8, 9, 15, 16, 31, 32, 63, 64, 71):
        for column in (0, 1, 3, 4, 7, k - 1):
            assert got[m, column] == naive_address(descriptor, major, m, column, element_bytes), (m, column)


@given(st.integers(0, (1 << 64) - 1))
@example(0)
@example((1 << 64) - 1)
def test_every_word_is_explained_or_refused_by_name(word):
    found = inspect_descriptor(word)
    reserved = word & sum(1 << bit for bit in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)))
    assert (found.descriptor is None) == bool(reserved)
    if reserved:
        assert found.violations[0].rule == "descriptor-reserved"
        with pytest.raises(ts.RuleError, match="reserved"):
            WgmmaDescriptor.decode(word)
    else:
        assert found.descriptor.encode() == word
    assert sum(field.raw << field.bit for field in found.fields) == word & ~reserved
    assert ts.Value.from_dict(found.to_dict()) == found


# Computed by hand from the field table, at shared address 0x400.
WORKED = {
    0x4000004000010040: ("128B", 16, 1024),
    0x8000002000010040: ("64B", 16, 512),
    0xC000001000010040: ("32B", 16, 256),
    0x0000001000080040: ("none", 128, 256),
    0x4000008000400040: ("128B", 1024, 2048),
}


@pytest.mark.parametrize(("word", "fields"), WORKED.items(), ids=map(hex, WORKED))
def test_worked_examples(word, fields):
    swizzle, leading, stride = fields
    descriptor = WgmmaDescriptor(0x400, leading_bytes=leading, stride_bytes=stride, swizzle=swizzle)
    assert descriptor.encode() == word
    assert WgmmaDescriptor.decode(word) == descriptor


@pytest.mark.parametrize("mode", MODES[1:])
def test_leading_is_ignored_in_swizzled_k_major_mode(mode):
    def read(leading):
        return WgmmaDescriptor(0, leading_bytes=leading, stride_bytes=1024, swizzle=mode).addresses()

    assert (read(16) == read(4096)).all()
    assert WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle=mode).ignored_fields() == ("leading_bytes",)
    assert not WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle=mode).ignored_fields("MN")


def test_leading_and_stride_change_roles_between_mn_major_none_and_swizzled():
    none = WgmmaDescriptor(0, leading_bytes=4096, stride_bytes=512, swizzle="none").addresses("MN")
    wide = WgmmaDescriptor(0, leading_bytes=4096, stride_bytes=512, swizzle="32B").addresses("MN")
    assert (none[8, 0], none[0, 8]) == (512, 4096)  # stride to the next 8 m, leading to the next 8 k
    assert (wide[16, 0], wide[0, 8]) == (4096, 512)


def test_starting_inside_an_atom_needs_no_base_offset():
    whole = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B").addresses(k=32)
    second = WgmmaDescriptor(0x420, leading_bytes=16, stride_bytes=1024, swizzle="128B").addresses()
    assert (second == whole[:, 16:32]).all()


def test_explains_every_field(wording):
    found = inspect_descriptor(0x4000004000010040)
    start, leading, stride, base, mode = (field.meaning.split(" from ")[0].split(" (")[0] for field in found.fields)
    assert re.findall(r"0x400|line 8|byte 0", start) == ["0x400", "line 8", "byte 0"]
    assert (leading, stride, mode) == ("16 bytes", "1024 bytes", "128B: atoms of 8 x 64")
    assert base.startswith("0: ")
    wording("fields of a wgmma descriptor", "\n".join(field.meaning for field in found.fields))
    assert found.ignored == ("leading_bytes",)
    assert found.violations == ()
    as_mn = inspect_descriptor(0x4000004000010040, major="MN")
    assert as_mn.ignored == ()
    assert "next 128 bytes of mn" in as_mn.fields[1].meaning
    assert "(mn 64, k 0)" in as_mn.fields[1].meaning
    assert [finding.rule for finding in as_mn.violations] == ["descriptor-overlap"]


def test_names_the_neighbours_that_leading_and_stride_connect():
    def words(major, mode, bits=16):
        layout = CanonicalLayout(major, mode, bits)
        return [layout.neighbours(name).split(", at ")[-1] for name in ("leading_bytes", "stride_bytes")]

    assert words("K", "none") == ["(mn 0, k 8)", "(mn 8, k 0)"]
    assert words("K", "none", 32) == ["(mn 0, k 4)", "(mn 8, k 0)"]
    assert words("K", "64B")[0].startswith("(ignored")
    assert words("MN", "none") == ["(mn 0, k 8)", "(mn 8, k 0)"]
    assert words("MN", "64B") == ["(mn 32, k 0)", "(mn 0, k 8)"]
    assert words("MN", "128B_ATOM_32B", 32) == ["(mn 32, k 0)", "(mn 0, k 4)"]


def test_recognises_a_tcgen05_descriptor():
    with pytest.raises(ts.RuleError, match="tcgen05"):
        WgmmaDescriptor.decode(0x4000404000010040)


def test_warns_of_base_offsets_that_tma_does_not_write():
    word = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B", base_offset=3).encode()
    assert [finding.rule for finding in inspect_descriptor(word).violations] == ["descriptor-base-offset"]
    plain = WgmmaDescriptor(0, leading_bytes=128, stride_bytes=256, swizzle="none", base_offset=3)
    assert inspect_descriptor(plain.encode()).violations == ()
    assert plain.ignored_fields() == ("base_offset",)


@pytest.mark.parametrize(("lines", "later"), [(1, "128 bytes"), (3, "384 bytes"), (7, "896 bytes")])
def test_a_base_offset_counts_lines_of_128_bytes(lines, later):
    word = WgmmaDescriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B", base_offset=lines).encode()
    (field,) = [field for field in inspect_descriptor(word).fields if field.name == "base_offset"]
    assert f"({later})" in field.meaning


SOUND = {"start_address": 0, "leading_bytes": 16, "stride_bytes": 1024, "swizzle": "128B", "base_offset": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start_address": 0x408}, "multiples of 16.*Use 0x400 or 0x410"),
        ({"start_address": 0x40000}, "0 to 0x3fff0"),
        ({"start_address": -16}, "0 to 0x3fff0"),
        ({"start_address": "0x400"}, "Use 0x0, for example"),
        ({"start_address": True}, "Use 0x0, for example"),
        ({"leading_bytes": 8}, "Use 0x0 or 0x10"),
        ({"stride_bytes": 1 << 18}, "0 to 0x3fff0"),
        ({"base_offset": 8}, "0 to 0x7"),
        ({"swizzle": "128B_ATOM_32B"}, "none, 32B, 64B, 128B"),
        ({"swizzle": "129B"}, "known: none"),
    ],
)
def test_refuses_what_the_fields_cannot_hold(change, message):
    with pytest.raises(ts.RuleError, match=message):
        build(SOUND | change)


def test_numpy_integers_are_integers():
    given = {name: np.int64(value) if isinstance(value, int) else value for name, value in SOUND.items()}
    assert build(given) == build(SOUND)
    assert WgmmaDescriptor.decode(np.uint64(build(SOUND).encode())) == build(SOUND)
    assert build(given).addresses(rows=np.int32(8), k=np.int8(4)).shape == (8, 4)


def test_names_all_broken_fields_at_once():
    with pytest.raises(ts.RuleError) as caught:
        WgmmaDescriptor(8, leading_bytes=-16, stride_bytes=1.5, swizzle="96B", base_offset=9)
    assert [violation.argument for violation in caught.value.violations] == [
        "start_address",
        "leading_bytes",
        "stride_bytes",
        "base_offset",
        "swizzle",
    ]


@pytest.mark.parametrize("word", [-1, 1 << 64, "0x40", 1.0, None, True])
def test_refuses_what_is_no_word(word):
    for read in (WgmmaDescriptor.decode, inspect_descriptor):
        with pytest.raises(ts.RuleError, match=r"64 bits|word is an integer"):
            read(word)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"major": "MN", "element_bits": 8}, "MN-major 128B with elements of 16 bits"),
        ({"element_bits": 64}, "elements of 1, 8, 16, 32 bits"),
        ({"major": "row"}, "known: K, MN"),
        ({"rows": 0}, "1 to 256"),
        ({"rows": 257}, "1 to 256"),
        ({"k": 33}, "16 elements of 16 bits"),
        ({"k": 2.0}, "k is an integer"),
    ],
)
def test_refuses_reads_that_no_instruction_makes(options, message):
    with pytest.raises(ts.RuleError, match=message):
        build(SOUND).addresses(**options)


@pytest.mark.parametrize(("missing", "offered"), [("int16", "float16"), ("uint32", "tfloat32"), ("e3m2", "tfloat32")])
def test_a_type_that_wgmma_lacks_is_answered_with_one_of_as_many_bits_if_there_is_one(missing, offered):
    with pytest.raises(ts.RuleError) as refused:
        wgmma_for(missing)
    broken = refused.value.violations[0]
    assert broken.change == {"data_type": offered}
    assert ("bits too" in broken.fix) == (ts.DataType.named(missing).bits == ts.DataType.named(offered).bits)
