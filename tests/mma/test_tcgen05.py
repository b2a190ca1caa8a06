"""tcgen05 descriptors: the documents' field table and worked words, CuTe's atoms, a naive reading, themselves turned round."""

import numpy as np
import pycute
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import Tcgen05Descriptor, WgmmaDescriptor, inspect_descriptor, tcgen05_descriptors
from tilescope.mma.canonical import readable_bits

CODES = {"none": 0, "128B_ATOM_32B": 1, "128B": 2, "64B": 4, "32B": 6}
MODES = ("none", "32B", "64B", "128B")
READABLE = [
    *[("K", mode, bits) for mode in MODES for bits in (4, 8, 16, 32)],
    *[("MN", mode, bits) for mode in MODES for bits in (8, 16)],
    ("MN", "128B_ATOM_32B", 32),
]

# Computed by hand from the field table, at shared address 0x400.
WORKED = {
    0x4000404000010040: ("128B", 16, 1024),
    0x2000404000200040: ("128B_ATOM_32B", 512, 1024),
    0x8000402000010040: ("64B", 16, 512),
    0xC000401000010040: ("32B", 16, 256),
    0x0000401000080040: ("none", 128, 256),
}

FIELDS = {
    "start_address": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "leading_bytes": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "stride_bytes": st.integers(0, 0x3FFF).map(lambda value: 16 * value),
    "swizzle": st.sampled_from(sorted(CODES)),
    "base_offset": st.integers(0, 7),
}


def build(fields):
    return Tcgen05Descriptor(**fields)


@pytest.mark.parametrize(("word", "fields"), WORKED.items(), ids=map(hex, WORKED))
def test_worked_examples(word, fields):
    swizzle, leading, stride = fields
    descriptor = Tcgen05Descriptor(0x400, leading_bytes=leading, stride_bytes=stride, swizzle=swizzle)
    assert descriptor.encode() == word
    assert Tcgen05Descriptor.decode(word) == descriptor


@given(st.fixed_dictionaries(FIELDS), st.booleans())
def test_encode_and_decode_are_inverse(fields, absolute):
    if absolute:
        fields |= {"swizzle": "128B", "base_offset": 0, "leading_is_address": True}
    descriptor = build(fields)
    word = descriptor.encode()
    assert Tcgen05Descriptor.decode(word) == descriptor
    assert ts.Value.from_dict(descriptor.to_dict()) == descriptor
    assert word == (
        fields["start_address"] >> 4
        | fields["leading_bytes"] >> 4 << 16
        | fields["stride_bytes"] >> 4 << 32
        | 1 << 46
        | fields["base_offset"] << 49
        | absolute << 52
        | CODES[fields["swizzle"]] << 61
    )


RESERVED = sum(1 << bit for bit in (14, 15, 30, 31, *range(53, 61)))


@given(st.integers(0, (1 << 64) - 1))
@example(0)
@example((1 << 64) - 1)
@example(1 << 46 | 3 << 61)
@example(1 << 46 | 1 << 52)
@example(1 << 46 | 1 << 52 | 2 << 61)
def test_every_word_is_explained_or_refused_by_name(word):
    found = inspect_descriptor(word, instruction="tcgen05")
    code, absolute, base = word >> 61, word >> 52 & 1, word >> 49 & 7
    sound = (
        not word & RESERVED
        and word >> 46 & 7 == 1
        and code in CODES.values()
        and not (absolute and (code != 2 or base))
    )
    assert found.sound == sound
    if sound:
        assert found.descriptor.encode() == word
    else:
        assert found.violations
        with pytest.raises(ts.RuleError):
            Tcgen05Descriptor.decode(word)
    assert sum(field.raw << field.bit for field in found.fields) == word & ~RESERVED
    assert all(field.meaning for field in found.fields)
    assert ts.Value.from_dict(found.to_dict()) == found


def naive_address(descriptor, major, mn, k, bits):
    """The documents' canonical layouts, one element at a time."""
    name = descriptor.swizzle.name
    span = {"none": 16, "32B": 32, "64B": 64}.get(name, 128)
    start, lbo, sbo = descriptor.start_address, descriptor.leading_bytes, descriptor.stride_bytes
    if major == "K":
        byte = k * bits // 8
        address = start + mn // 8 * sbo + mn % 8 * span
        address += byte // 16 * lbo + byte % 16 if name == "none" else byte
    else:
        byte, rows = mn * bits // 8, 4 if name == "128B_ATOM_32B" else 8
        across, down = (sbo, lbo) if name == "none" else (lbo, sbo)
        address = start + byte // span * across + byte % span + k // rows * down + k % rows * span
    line = address // 128 - descriptor.base_offset
    if name == "128B_ATOM_32B":
        return address ^ (line % 4 << 5)
    return address ^ (line % (span // 16) << 4)


@given(st.fixed_dictionaries(FIELDS), st.sampled_from(READABLE))
def test_addresses_follow_the_canonical_layouts(fields, kind):
    major, mode, bits = kind
    descriptor = build(fields | {"swizzle": mode})
    k = 256 // bits
    got = descriptor.addresses(major, rows=136, k=k, element_bits=bits)
    for mn in (0, 1, 7, 8, 9, 31, 32, 63, 64, 127, 128, 135):
        for column in (0, 1, 3, 4, 7, k // 2, k - 1):
            assert got[mn, column] == naive_address(descriptor, major, mn, column, bits), (mn, column)


@given(st.fixed_dictionaries(FIELDS), st.sampled_from([("K", bits) for bits in (8, 16, 32)] + [("MN", 16)]))
def test_reads_as_wgmma_does_where_both_read(fields, kind):
    major, bits = kind
    if fields["swizzle"] == "128B_ATOM_32B":
        fields["swizzle"] = "128B"
    one = build(fields).addresses(major, rows=64, k=256 // bits, element_bits=bits)
    assert (one == WgmmaDescriptor(**fields).addresses(major, rows=64, k=256 // bits, element_bits=bits)).all()


def test_the_mn_major_atom_of_32_byte_pieces_is_cutes():
    # CuTe: Sw<2,5,2> over (1024, 4):(1, 1024) bits, here in 32-bit elements; k steps of 4 by SBO, mn steps of 32 by LBO.
    leading, stride = 512, 2048
    atom = pycute.Layout(((32, 4), (4, 2)), ((1, leading // 4), (32, stride // 4)))
    swizzle = pycute.Swizzle(2, 5, 2)
    descriptor = Tcgen05Descriptor(0, leading_bytes=leading, stride_bytes=stride, swizzle="128B_ATOM_32B")
    got = descriptor.addresses("MN", rows=128, k=8, element_bits=32)
    expected = [[swizzle(4 * atom(mn, k)) for k in range(8)] for mn in range(128)]
    assert (got == np.array(expected)).all()


@pytest.mark.parametrize("major", ["K", "MN"])
def test_which_layouts_exist(major):
    found = {mode: readable_bits("tcgen05", major, ts.Swizzle.named(mode)) for mode in CODES}
    if major == "K":
        assert found == dict.fromkeys(MODES, (4, 8, 16, 32)) | {"128B_ATOM_32B": ()}
    else:
        assert found == dict.fromkeys(MODES, (8, 16)) | {"128B_ATOM_32B": (32,)}


def test_a_leading_address_continues_at_the_end_of_the_row():
    start, second = 0x400 + 96, 0x4000
    descriptor = Tcgen05Descriptor(
        start, leading_bytes=second, stride_bytes=1024, swizzle="128B", leading_is_address=True
    )
    got = descriptor.addresses(rows=24, k=96, element_bits=4)
    first_part = Tcgen05Descriptor(start, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    other_part = Tcgen05Descriptor(second, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    assert (got[:, :64] == first_part.addresses(rows=24, k=64, element_bits=4)).all()
    assert (got[:, 64:] == other_part.addresses(rows=24, k=32, element_bits=4)).all()
    assert descriptor.ignored_fields() == ()
    assert "second chunk at 0x4000" in str(descriptor)


@pytest.mark.parametrize("change", [{"swizzle": "64B"}, {"swizzle": "128B_ATOM_32B"}, {"base_offset": 1}])
def test_a_leading_address_needs_128b_and_no_base_offset(change):
    fields = {"start_address": 0, "leading_bytes": 0, "stride_bytes": 1024, "swizzle": "128B"} | change
    with pytest.raises(ts.RuleError, match="needs swizzle 128B and base offset 0"):
        build(fields | {"leading_is_address": True})


def test_a_leading_address_is_k_major():
    descriptor = Tcgen05Descriptor(0, leading_bytes=0, stride_bytes=1024, swizzle="128B", leading_is_address=True)
    with pytest.raises(ts.RuleError, match=r"K-major.*leading address"):
        descriptor.addresses("MN")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"major": "MN", "element_bits": 32}, "MN-major 128B with elements of 8, 16 bits"),
        ({"element_bits": 64}, "elements of 4, 8, 16, 32 bits"),
        ({"rows": 257}, "1 to 256"),
        ({"k": 33}, "16 elements of 16 bits"),
    ],
)
def test_refuses_reads_that_no_instruction_makes(options, message):
    with pytest.raises(ts.RuleError, match=message):
        Tcgen05Descriptor(0, leading_bytes=16, stride_bytes=1024, swizzle="128B").addresses(**options)


def test_no_k_major_operand_has_pieces_of_32_bytes():
    descriptor = Tcgen05Descriptor(0, leading_bytes=512, stride_bytes=1024, swizzle="128B_ATOM_32B")
    with pytest.raises(ts.RuleError, match="no K-major operand"):
        descriptor.addresses("K", element_bits=32, k=8)
    found = inspect_descriptor(descriptor.encode(), instruction="tcgen05")
    assert (found.major, found.element_bits, found.sound) == ("MN", 32, True)
    assert [finding.rule for finding in found.violations] == ["descriptor-major"]


@pytest.mark.parametrize(("name", "field"), [("swizzle", "96B"), ("swizzle", "128B_ATOM_64B"), ("base_offset", 8)])
def test_refuses_what_the_fields_cannot_hold(name, field):
    fields = {"start_address": 0, "leading_bytes": 16, "stride_bytes": 1024, "swizzle": "128B"} | {name: field}
    with pytest.raises(ts.RuleError):
        build(fields)


def test_explains_every_field(wording):
    found = inspect_descriptor(0x2000404000200040, instruction="tcgen05", major="MN", element_bits=32)
    words = {field.name: field.meaning for field in found.fields}
    wording("explains every field", words["leading_bytes"])
    wording("explains every field, 2", words["stride_bytes"])
    assert words["swizzle"] == "128B_ATOM_32B: atoms of 32 x 4 (mn x k), 512 bytes"
    assert words["version"] == "1 in every tcgen05 descriptor"
    assert found.descriptor.basis == "documented"


def loop_cases():
    for operand in "AB":
        for order in ("column", "row"):
            for mode in MODES:
                for name in ("bf16", "tf32", "e4m3", "s8", "e2m1", "e2m3"):
                    yield operand, "K", mode, order, name, 256, 2 * 128 * 8 // ts.DataType.named(name).smem_bits
                for name in ("f16", "e5m2", "u8"):
                    yield operand, "MN", mode, order, name, 256, 64
            yield operand, "MN", "128B_ATOM_32B", order, "tf32", 256, 16


@pytest.mark.parametrize(("operand", "major", "mode", "order", "name", "mn", "k"), list(loop_cases()))
def test_the_descriptors_of_a_loop_read_the_whole_tile_and_nothing_else(*, operand, major, mode, order, name, mn, k):
    loop = tcgen05_descriptors(
        (mn, k), name, major=major, swizzle=mode, atom_order=order, operand=operand, smem_address=0x480
    )
    bits = ts.DataType.named(name).smem_bits
    blocks = []
    for steps in loop:
        read = [descriptor.addresses(major, loop.block_mn, loop.k_per_step, bits) for descriptor in steps]
        blocks.append(np.concatenate(read, axis=1))
    assert (np.concatenate(blocks) == loop.layout.addresses()).all()
    assert loop.k_per_step * bits == 256
    assert loop.block_mn == (128 if operand == "A" else 256)
    assert ts.Value.from_dict(loop.to_dict()) == loop


@pytest.mark.parametrize("order", ["column", "row"])
def test_steps_of_48_bytes_read_the_whole_tile(order):
    loop = tcgen05_descriptors(
        (128, 768), "e2m1", swizzle="128B", atom_order=order, k_step_bytes=48, smem_address=0x800
    )
    read = np.concatenate([each.addresses(rows=128, k=96, element_bits=4) for each in loop[0]], axis=1)
    assert (read == loop.layout.addresses()).all()
    assert len(loop[0]) == 8
    assert all(each.leading_is_address for each in loop[0])
    assert ts.Value.from_dict(loop.to_dict()) == loop


@pytest.mark.parametrize(
    ("tile", "data_type", "options", "rules"),
    [
        ((60, 64), "bf16", {}, ["tcgen05-tile"]),
        ((64, 256), "e2m1", {}, ["tcgen05-tile"]),  # block-scaled: 128 rows of A
        ((64, 24), "bf16", {"swizzle": "none"}, ["tcgen05-tile"]),
        ((64, 64), "tf32", {"major": "MN"}, ["tcgen05-layout"]),
        ((128, 128), "e2m3", {"major": "MN"}, ["tcgen05-layout"]),
        ((64, 64), "bf16", {"major": "MN", "swizzle": "128B_ATOM_32B"}, ["tcgen05-layout"]),
        ((64, 64), "f32", {}, ["tcgen05-type"]),
        ((64, 64), "bf16", {"operand": "D"}, ["unknown-name"]),
        ((64, 64), "bf16", {"k_step_bytes": 48}, ["tcgen05-step"]),
        ((128, 512), "e2m1", {"k_step_bytes": 48}, ["tcgen05-step"]),
        ((64, 64), "bf16", {"k_step_bytes": None}, ["tcgen05-step"]),
    ],
)
def test_refuses_what_no_sequence_of_tcgen05_reads(tile, data_type, options, rules):
    with pytest.raises(ts.RuleError) as caught:
        tcgen05_descriptors(tile, data_type, **({"swizzle": "128B"} | options))
    assert [violation.rule for violation in caught.value.violations] == rules
