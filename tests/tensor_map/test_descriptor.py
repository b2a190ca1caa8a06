"""The fields of the 128 bytes: their places, and what inspection says of bytes that are no map."""

import struct

import pytest

import tilescope as ts
from tilescope.tensor_map.map_descriptor import FORMATS
from tilescope.tensor_map.samples import IMAGES, MATRIX

ADDRESS = 0x7F5A_2000_0000

# What an H200 writes, word by word (bits of each field from the low end).
PLACES = {
    "address": (0, 0, 57),
    "im2col": (1, 0, 1),
    "rank": (1, 4, 3),
    "data_type": (1, 7, 4),
    "interleave": (1, 11, 2),
    "swizzle": (1, 13, 2),
    "oob_fill": (1, 15, 1),
    "tf32": (1, 16, 1),
    "l2_promotion": (1, 17, 2),
    "strides_bytes[0]": (1, 32, 32),
    "strides_bytes[1]": (2, 0, 32),
    "strides_bytes[2]": (2, 32, 32),
    "strides_bytes[3]": (3, 0, 32),
    **{f"strides_bytes[{i}] high": (3, 32 + 4 * i, 4) for i in range(4)},
    **{f"dims[{i}]": (4 + i // 2, 32 * (i % 2), 32) for i in range(5)},
    **{f"element_strides[{i}]": (6, 32 + 3 * i, 3) for i in range(5)},
    "box[0]": (6, 56, 8),
    **{f"box[{i}]": (7, 8 * (i - 1), 8) for i in range(1, 5)},
    "channels_per_pixel": (6, 56, 8),
    "pixels_per_column": (7, 32, 10),
    "box_bytes": (8, 0, 64),
    "repeat_bytes": (9, 0, 64),
}
CORNERS = {  # by rank: bits of one corner
    3: 16,
    4: 8,
    5: 5,
}


def test_every_field_stands_where_the_card_puts_it():
    found = {
        (field.name, rank if "corner" in field.name else 0): (*divmod(field.low, 64), field.width_bits)
        for (_, rank), form in FORMATS.items()
        if rank <= 5
        for field in form.fields
    }
    wanted = {(name, 0): place for name, place in PLACES.items()}
    for rank, bits in CORNERS.items():
        for axis in range(rank - 2):
            wanted[f"lower_corner[{axis}]", rank] = (7, bits * axis, bits)
            wanted[f"upper_corner[{axis}]", rank] = (7, 16 + bits * axis, bits)
    assert found == wanted


def test_a_descriptor_word_by_word():
    tensor_map = ts.TensorMap(**MATRIX, swizzle="128B", l2_promotion="128B", oob_fill="nan", address=ADDRESS)
    assert struct.unpack("<16Q", tensor_map.encode()) == (
        ADDRESS,
        1 << 4 | 10 << 7 | 3 << 13 | 1 << 15 | 2 << 17 | 512 << 32,
        0,
        0,
        4095 | 4095 << 32,
        0,
        63 << 56,
        63,
        8192,
        1024,
        *[0] * 6,
    )


@pytest.mark.parametrize(
    ("data_type", "code", "tf32"), [("tf32", 7, 1), ("tf32.ftz", 8, 1), ("f32", 7, 0), ("f32.ftz", 8, 0)]
)
def test_tf32_is_a_bit_beside_the_type(data_type, code, tf32):
    found = ts.inspect_tensor_map(ts.TensorMap(data_type, (64, 64), (256,), (32, 8)).encode())
    assert (found.field("data_type").raw, found.field("tf32").raw) == (code, tf32)
    assert found.tensor_map.data_type is ts.DataType.named(data_type)


def edited(tensor_map, word, flipped):
    """The descriptor of a map with some bits of one word flipped."""
    words = list(struct.unpack("<16Q", tensor_map.encode()))
    words[word] ^= flipped
    return struct.pack("<16Q", *words)


def rules(found):
    return [each.rule for each in found.violations]


def test_bytes_that_are_no_map_say_why():
    matrix = ts.TensorMap(**MATRIX)
    cases = {
        "descriptor-bits": edited(matrix, 12, 1 << 40),
        "descriptor-codes": edited(matrix, 1, 3 << 11),  # interleave 3
        "address-alignment": edited(matrix, 0, 8),
        "inner-multiple": edited(matrix, 6, 1 << 56),
    }
    for rule, blob in cases.items():
        found = ts.inspect_tensor_map(blob)
        assert found.tensor_map is None
        assert rule in rules(found)


def test_words_that_no_copy_looks_at_are_a_warning():
    found = ts.inspect_tensor_map(edited(ts.TensorMap(**MATRIX), 8, 1))
    assert [(each.rule, each.severity) for each in found.violations] == [("descriptor-derived", "warning")]
    assert found.tensor_map == ts.TensorMap(**MATRIX)


def test_a_rank_beyond_five_is_no_map():
    found = ts.inspect_tensor_map(edited(ts.TensorMap(**MATRIX), 1, 6 << 4))  # rank 2 becomes 8
    assert found.field("rank").meaning == "8 dimensions"
    (rank,) = [each for each in found.violations if each.rule == "descriptor-codes"]
    assert (rank.argument, rank.found, rank.limit, dict(rank.values)) == ("rank", "8 dimensions", "1 to 5", {"rank": 8})


def test_a_code_of_no_row_is_held_against_its_table_alone():
    found = ts.inspect_tensor_map(edited(ts.TensorMap(**MATRIX), 1, 3 << 11))
    (code,) = [each for each in found.violations if each.rule == "descriptor-codes"]
    assert (code.argument, code.limit, code.values["code"]) == ("interleave", "a code of its table", 3)


def test_the_bit_that_some_drivers_set_is_a_warning_with_its_condition(wording):
    """NVIDIA's release notes of drivers 595.71.05 (quoted in triton-lang/triton#10442) and 595.91.07: small tensors with gaps."""
    blob = edited(ts.TensorMap(**MATRIX), 1, 1 << 21)
    (found,) = ts.inspect_tensor_map(blob).violations
    assert (found.rule, found.severity) == ("descriptor-size-flag", "warning")
    assert "not dense" in found.limit
    assert "128 KiB" in found.limit
    wording("the bit that some drivers set is a warning with its condition", found.fix)
    assert ts.decode_tensor_map(blob) == ts.TensorMap(**MATRIX)


@pytest.mark.parametrize(
    ("dims", "strides_bytes", "fix"),
    [
        ((64, 64), (256,), "Clear it"),
        ((64, 64, 2), (256, 0), "Clear it"),  # a broadcast overlaps
        ((64, 511), (256,), "Clear it"),  # 130,688 bytes
        ((64, 512), (256,), "Clear it"),  # 130,944 bytes
        ((64, 513), (256,), "Leave it: this tensor is 131200"),
        ((64, 64), (128,), "Leave it"),
        ((64, 1, 64), (512, 128), "Leave it"),  # a single index takes no step
        ((64, 8, 8), (1024, 128), "Leave it"),  # in another order
    ],
)
def test_the_size_flag_is_wrong_for_small_tensors_with_gaps(dims, strides_bytes, fix):
    """The release notes name a backing allocation below 128 KiB and no dense non-overlapping tensor."""
    tensor_map = ts.TensorMap("bf16", dims, strides_bytes, (64, *(1,) * (len(dims) - 1)))
    found = [
        each for each in ts.inspect_tensor_map(edited(tensor_map, 1, 1 << 21)).violations if "size-flag" in each.rule
    ]
    assert [each.fix.startswith(fix) for each in found] == [True]
    assert dict(found[0].values) == {"limit_bytes": 128 * 1024, "reach_bytes": tensor_map.reach_bytes}
    on_blackwell = ts.TensorMap.check("bf16", dims, strides_bytes, tensor_map.box, arch="sm_100")
    assert ("descriptor-size-flag" in {each.rule for each in on_blackwell}) == fix.startswith("Clear")


@pytest.mark.parametrize("blob", [b"", bytes(127), bytes(129), bytearray(3)], ids=len)
def test_what_is_not_128_bytes_is_refused_with_its_length(blob):
    with pytest.raises(ts.TensorMapError, match="descriptor-length") as raised:
        ts.decode_tensor_map(blob)
    (found,) = raised.value.violations
    assert (found.found, dict(found.values)) == (f"{len(blob)} bytes", {"bytes": len(blob)})


@pytest.mark.parametrize("blob", ["00" * 128, None, 5, [0] * 128], ids=lambda blob: type(blob).__name__)
def test_what_is_no_bytes_is_refused_by_its_type(blob):
    with pytest.raises(ts.TensorMapError, match="descriptor-length") as raised:
        ts.decode_tensor_map(blob)
    (found,) = raised.value.violations
    assert found.found == f"a {type(blob).__name__}"


@pytest.mark.parametrize("container", [bytes, bytearray, memoryview])
def test_any_container_of_bytes_will_do(container):
    tensor_map = ts.Im2colMap(**IMAGES)
    assert ts.decode_tensor_map(container(tensor_map.encode())) == tensor_map


def test_a_field_that_does_not_exist_is_an_unknown_name():
    with pytest.raises(ts.RuleError, match=r"Did you mean box\[0\]"):
        ts.inspect_tensor_map(bytes(128)).field("box0")


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_110", "sm_120"])
def test_what_was_never_measured_is_not_encoded(arch):
    with pytest.raises(ts.TensorMapError, match="encode-measured"):
        ts.TensorMap(**MATRIX, arch=arch).encode()


@pytest.mark.parametrize("count", [3, 4, 5])
def test_at_most_four_unknown_bits_are_named(count):
    found = ts.inspect_tensor_map(edited(ts.TensorMap(**MATRIX), 12, (1 << count) - 1 << 40))
    (violation,) = [violation for violation in found.violations if violation.rule == "descriptor-bits"]
    named = violation.values["first"]
    assert len(violation.values["bits"]) == count
    assert [name for name in named if name != "…"] == [f"word 12 bit {40 + bit}" for bit in range(min(count, 4))]
    assert ("…" in named) == (count > 4)
