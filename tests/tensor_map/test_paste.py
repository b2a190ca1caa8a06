"""Descriptors and arguments out of what debuggers, printf, C and the frameworks show."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.tensor_map import MapArguments, descriptor_bytes, dumped_arguments
from tilescope.tensor_map.text.pasted_source import MapSource

GOLDEN = Path(__file__).parent.parent / "golden"


def recorded(step):
    for kind in ("tiled", "im2col"):
        with np.load(GOLDEN / f"descriptors_{kind}.npz") as file:
            for words in np.pad(file["descriptor"][::step], ((0, 0), (0, 6))):
                yield words.astype("<u8").tobytes()


def rules_broken(action):
    """Names of the rules that a RuleError carries; empty when nothing was raised."""
    try:
        action()
    except ts.RuleError as error:
        return {each.rule for each in error.violations}
    return set()


def words_of(blob, bits):
    return struct.unpack(f"<{1024 // bits}{ {8: 'B', 16: 'H', 32: 'I', 64: 'Q'}[bits] }", blob)


def in_lines(words, per_line, form):
    return "\n".join(form(first, words[first : first + per_line]) for first in range(0, len(words), per_line))


def examined(bits, per_line):
    """cuda-gdb: x/16gx, x/32wx, x/64hx, x/128bx."""
    size, letter = bits // 8, {8: "b", 16: "h", 32: "w", 64: "g"}[bits]

    def form(first, words):
        place = first * size
        symbol = f" <map{f'+{place}' if place else ''}>"
        return f"{0x7FFE1200 + place:#x}{symbol}:\t" + "\t".join(f"0x{word:0{size * 2}x}" for word in words)

    return lambda blob: f"(cuda-gdb) x/{1024 // bits}{letter}x &map\n" + in_lines(words_of(blob, bits), per_line, form)


def printed(form):
    """gdb: p map, p/x map, with equal neighbours gathered from the sixth on (repeats threshold lowered to 3)."""

    def text(blob):
        pieces, words = [], list(words_of(blob, 64))
        while words:
            run = next((n for n, word in enumerate(words) if word != words[0]), len(words))
            shown = format(words[0], form)
            pieces += [f"{shown} <repeats {run} times>"] if run > 3 else [shown] * run
            words = words[run:]
        return f"$1 = {{opaque = {{{', '.join(pieces)}}}}}\n"

    return text


def hexdump(blob):
    def form(first, row):
        left, right = (" ".join(f"{byte:02x}" for byte in half) for half in (row[:8], row[8:]))
        return f"{first:08x}  {left}  {right}  |{'.' * 16}|"

    return in_lines(tuple(blob), 16, form) + "\n00000080\n"


def xxd(blob):
    def form(first, row):
        groups = " ".join(bytes(row[place : place + 2]).hex() for place in range(0, 16, 2))
        return f"{first:08x}: {groups}  {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)}"

    return in_lines(tuple(blob), 16, form)


def grouped(digits, separator=" ", upper=False):
    def text(blob):
        whole = blob.hex().upper() if upper else blob.hex()
        return separator.join(whole[place : place + digits] for place in range(0, 256, digits))

    return text


def listed(bits, form, separator=", ", around="{}"):
    return lambda blob: around[0] + separator.join(format(word, form) for word in words_of(blob, bits)) + around[1]


# Forms that can be read in one way only, whatever the bytes are.
UNAMBIGUOUS = {
    "x/16gx": examined(64, 2),
    "x/32wx": examined(32, 4),
    "x/64hx": examined(16, 8),
    "x/128bx": examined(8, 8),
    "p/x map": printed("#x"),
    "one hexadecimal string": lambda blob: blob.hex(),
    "one with 0x": lambda blob: "0x" + blob.hex(),
    "hexdump -C": hexdump,
    "python bytes": repr,
    "python bytearray": lambda blob: repr(bytearray(blob)),
    "C string": lambda blob: '"' + "".join(f"\\x{byte:02x}" for byte in blob) + '"',
    "C words": lambda blob: (
        "static const uint64_t words[16] = {\n" + listed(64, "#018x", "ull,\n", "  ")(blob) + "ull};"
    ),
    "C bytes": lambda blob: "unsigned char map_bin[] = " + listed(8, "#04x")(blob) + "; /* 128 bytes */",
    "printf 0x%llx": listed(64, "#x", "\n", "  "),
    "printf labelled": lambda blob: "\n".join(f"word {i}: {word:#x}" for i, word in enumerate(words_of(blob, 64))),
    "printf indexed": lambda blob: "; ".join(f"desc[{i}] = {word:#x}" for i, word in enumerate(words_of(blob, 64))),
    "32-bit words": listed(32, "#010x", " ", "  "),
    "grouped bytes": grouped(2, ":"),
}
# Forms that need the bytes to be a map to be told from others.
BY_MEANING = {
    "xxd": xxd,
    "p map": printed("d"),
    "decimal words": listed(64, "d"),
    "decimal 32-bit words": listed(32, "d"),
    "decimal bytes": listed(8, "d", ", ", "[]"),
    "JSON": listed(64, "d", ", ", "[]"),
    "words without 0x": listed(64, "016x", "\n", "  "),
    "words without 0x or zeros": listed(64, "x", "\n", "  "),
    "32-bit words without 0x": listed(32, "08x", " ", "  "),
    "groups of four bytes": grouped(8),
    "groups of eight bytes": grouped(16, "\n"),
    "upper case": grouped(32, "_", upper=True),
    "printf %#llx": lambda blob: " ".join(f"{word:#x}" if word else "0" for word in words_of(blob, 64)),
}


@pytest.mark.parametrize("form", {**UNAMBIGUOUS, **BY_MEANING})
def test_recorded_maps_are_read_from_every_form(form):
    show = {**UNAMBIGUOUS, **BY_MEANING}[form]
    for blob in recorded(step=100):
        assert descriptor_bytes(show(blob)) == blob, show(blob)


@pytest.mark.parametrize("form", UNAMBIGUOUS)
@settings(max_examples=25)
@given(blob=st.binary(min_size=128, max_size=128))
def test_any_bytes_are_read_from_unambiguous_forms(form, blob):
    assert descriptor_bytes(UNAMBIGUOUS[form](blob)) == blob


@given(
    st.text(max_size=400)
    | st.from_regex(r"([0-9a-fx{}<>=:,\s\[\]$]|repeats \d+ times|0x|opaque){0,60}", fullmatch=True)
)
def test_any_text_gives_128_bytes_or_a_reason(text):
    found = []
    assert rules_broken(lambda: found.append(descriptor_bytes(text))) <= {"pasted-descriptor"}
    assert all(len(blob) == 128 for blob in found)


def test_beside_marked_numbers_an_unmarked_one_is_decimal():
    assert descriptor_bytes("{" + "0x10, 10, " * 64 + "}") == bytes([16, 10] * 64)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "a text without a number"),
        ("0x1 0x2 0x3", "3 numbers with 3 digits in all"),
        ("ab" * 127, "1 number with 254 digits in all"),
        ("0x1 " * 15 + f"{1 << 64:#x}", "16 numbers with 32 digits in all"),
        ("0x0 <repeats 999 times>", "129 numbers with 129 digits in all"),
        ("x" * 70000, "70000 characters of text"),
    ],
)
def test_a_refusal_says_what_was_found(text, found):
    with pytest.raises(ts.RuleError) as raised:
        descriptor_bytes(text)
    assert raised.value.violations[0].found == found


CUTLASS = """
TMA Desc Addr:   0x7ffd7d2800c0
format         6
dim            3
gmem_address   0x7f5a20000000
globalDim      (1024,1024,1,1,1)
globalStrides  (2,2048,2097152,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
Error: Failed to initialize the TMA descriptor 1
"""
TILELANG = """
[12:00:01] runtime.cc:420: Invalid TMA descriptor arguments for tvm_tensormap_create_tiled:
  [1] boxDim[0] bytes must be a multiple of 16, elementStrides[0] must be in [1, 8]
TMA Desc Addr:   0x7ffe1200 (mod64=0)
format         9 (CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
dim            2
gmem_address   0x7f5a20000000 (mod16=0, mod32=0)
globalDim      [4096, 64]
globalStridesRaw [2, 8192]
cudaGlobalStrides [8192]
boxDim         [65, 64]
elementStrides [1, 1]
interleave     0 (CU_TENSOR_MAP_INTERLEAVE_NONE)
swizzle        0 (CU_TENSOR_MAP_SWIZZLE_NONE)
l2Promotion    2 (CU_TENSOR_MAP_L2_PROMOTION_L2_128B)
oobFill        1 (CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)
"""
TILELANG_IM2COL = """
TMA Desc Addr:   0x7ffe1200
format         6
dim            4
gmem_address   0x7f5a20000000
globalDim      [64, 32, 32, 8]
globalStrides  [2, 128, 4096, 131072]
smem_box_pixel 64
smem_box_channel 32
pixelBoxLowerCorner  [-1, -1]
pixelBoxUpperCorner  [-1, -1]
elementStrides [1, 1, 1, 1]
interleave     0
swizzle        2
l2Promotion    2
oobFill        0
"""
TRITON = """
RuntimeError: Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument
elemType=9 rank=2 global_address=0x7f5a20000008 elemSize=2 swizzle=3 padding=1
shape=[4096, 64]
strides=[8192]
blockSize=[64, 128] elementStrides=[1, 1] fill=1
"""
TRITON_IM2COL = """
Triton Error [CUDA]: Failed to create im2col tensor map descriptor: invalid argument
elemType=6 rank=4 global_address=0x7f5a20000000 elemSize=2 swizzle=3 padding=0 channelsPerPixel=64 pixelsPerColumn=128
shape=[64, 32, 32, 8]
strides=[128, 4096, 131072, 1048576]
blockSize=[64, 128]
pixelBoxLower=[-1, -1] pixelBoxUpper=[-1, -1]
elementStrides=[1, 1, 1, 1]
"""
POINTER = 0x7F5A20000000


@pytest.mark.parametrize(
    ("dump", "given", "refused"),
    [
        (
            CUTLASS,
            {
                "data_type": "float16",
                "dims": (1024, 1024, 1),
                "strides_bytes": (2048, 2097152),
                "box": (64, 128, 1),
                "element_strides": (1, 1, 1),
                "interleave": "none",
                "swizzle": "128B",
                "l2_promotion": "128B",
                "oob_fill": "zero",
                "address": POINTER,
            },
            {"driver-result"},
        ),
        (
            TILELANG,
            {
                "data_type": "bfloat16",
                "dims": (4096, 64),
                "strides_bytes": (8192,),
                "box": (65, 64),
                "element_strides": (1, 1),
                "interleave": "none",
                "swizzle": "none",
                "l2_promotion": "128B",
                "oob_fill": "nan",
                "address": POINTER,
            },
            {"inner-multiple"},
        ),
        (
            TILELANG_IM2COL,
            {
                "data_type": "float16",
                "dims": (64, 32, 32, 8),
                "strides_bytes": (128, 4096, 131072),
                "lower_corner": (-1, -1),
                "upper_corner": (-1, -1),
                "channels_per_pixel": 32,
                "pixels_per_column": 64,
                "element_strides": (1, 1, 1, 1),
                "interleave": "none",
                "swizzle": "64B",
                "l2_promotion": "128B",
                "oob_fill": "zero",
                "address": POINTER,
            },
            set(),
        ),
        (
            TRITON,
            {
                "data_type": "bfloat16",
                "dims": (4096, 64),
                "strides_bytes": (8192,),
                "box": (64, 128),
                "element_strides": (1, 1),
                "swizzle": "128B",
                "l2_promotion": "128B",
                "oob_fill": "nan",
                "address": POINTER + 8,
            },
            {"address-alignment", "driver-result"},
        ),
        (
            TRITON_IM2COL,
            {
                "data_type": "float16",
                "dims": (64, 32, 32, 8),
                "strides_bytes": (128, 4096, 131072),
                "lower_corner": (-1, -1),
                "upper_corner": (-1, -1),
                "channels_per_pixel": 64,
                "pixels_per_column": 128,
                "element_strides": (1, 1, 1, 1),
                "swizzle": "128B",
                "l2_promotion": "128B",
                "address": POINTER,
            },
            {"driver-result"},
        ),
    ],
    ids=["cutlass", "tilelang", "tilelang-im2col", "triton", "triton-im2col"],
)
def test_dumps_of_the_frameworks_are_understood(dump, given, refused):
    (asked,) = dumped_arguments(dump)
    assert dict(asked.given) == given
    assert {each.rule for each in asked.check() if each.severity == "error"} == refused


# The dumps of two public questions, as they were pasted there.
CUTLASS_947 = """
TMA Desc Addr:   0x7ffd7d2800c0
format         6
dim            3
gmem_address   0
globalDim      (1024,1024,1,1,1)
globalStrides  (2,2048,2097152,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    0
oobFill        0
Error: Failed to initialize the TMA descriptor 1
"""
VLLM_13961 = """
TMA Desc Addr:   0xfffffce54f80
format         6
dim            4
gmem_address   0x400540000000
globalDim      (64,16,32,23434,1)
globalStrides  (2,4096,128,65536,0)
boxDim         (64,192,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
Error: Failed to initialize the TMA descriptor 715
"""


@pytest.mark.parametrize(
    ("dump", "found", "says"),
    [
        (CUTLASS_947, "the driver answered 1, invalid value", "older drivers refuse"),
        (
            CUTLASS_947.replace("gmem_address   0\n", "gmem_address   0x7f00\n"),
            "the driver answered 1",
            "Update the driver",
        ),
        (CUTLASS_947.replace("(64,128", "(128,128"), "the driver answered 1", "broken rules"),
        (VLLM_13961, "the driver answered 715, illegal instruction", "earlier kernel"),
        (VLLM_13961.replace("715", "700"), "the driver answered 700, illegal address", "these arguments break no rule"),
        (
            VLLM_13961.replace("715", "716").replace("(64,192", "(128,192"),
            "answered 716, misaligned",
            "fix the rules above",
        ),
        (VLLM_13961.replace("715", "801"), "the driver answered 801, not supported", "no TMA"),
        (VLLM_13961.replace("715", "201"), "the driver answered 201", "a current context"),
        (
            VLLM_13961.replace("715", "999"),
            "driver answered 999, unknown error",
            "tilescope explain 999",
        ),
        (TRITON_IM2COL, "the driver answered 1, invalid value", "Update the driver"),
    ],
)
def test_the_drivers_answer_and_the_rules_are_told_together(dump, found, says):
    """NVIDIA/cutlass#947: a null address and an old driver; vllm-project/vllm#13961: a fault that came before."""
    (asked,) = dumped_arguments(dump)
    report = asked.report()
    assert not report.accepted
    (answered,) = [each for each in report.violations if each.rule == "driver-result"]
    assert found in str(answered)
    assert says in str(answered)
    assert (report.tensor_map is None) == any(
        each.severity == "error" and each.rule != "driver-result" for each in report.violations
    )


def test_a_dump_with_the_answer_0_and_other_arguments_are_not_blamed():
    (asked,) = dumped_arguments(VLLM_13961.replace("715", "0"))
    assert asked.report().accepted
    (asked,) = dumped_arguments(VLLM_13961)
    assert not MapArguments.of({"arch": "sm_100"}).completed(asked).report().accepted
    assert MapArguments.of({"box": (64, 16, 1, 1)}).completed(asked).report().accepted  # the driver was not asked this


@pytest.mark.parametrize("offset", [0, 8, 16, 32, 64, 100])
def test_a_tensor_map_off_64_bytes_is_named(offset):
    """cuda.h demands 64 bytes; an H200 under driver 580 encodes it anywhere and answers a copy through it with 716."""
    (asked,) = dumped_arguments(VLLM_13961.replace("715", "0").replace("0xfffffce54f80", hex(0xFFFFFCE54F80 + offset)))
    found = [each for each in asked.check() if each.rule == "map-address"]
    assert len(found) == (offset % 64 != 0)
    for each in found:
        assert each.severity == "warning"
        assert "error 716" in each.limit
    assert ts.RULES["map-address"].code == 716


def test_log_prefixes_repetitions_and_several_dumps():
    logged = "\n".join(f"2026-05-01 18:52:10.969 | {line}" for line in (CUTLASS + CUTLASS + TILELANG).splitlines())
    found = dumped_arguments(logged)
    assert [asked.given["dims"] for asked in found] == [(1024, 1024, 1), (4096, 64)]


def test_an_enumerator_that_does_not_exist_is_named_by_its_number():
    (asked,) = dumped_arguments(CUTLASS.replace("swizzle        3", "swizzle        9"))
    assert "swizzle number 9" in {each.found for each in asked.check()}


def test_four_bit_values_of_cutlass_need_a_newer_architecture():
    packed = CUTLASS.replace("format         6", "format         13").replace("(2,2048,2097152", "(0,512,524288")
    (asked,) = dumped_arguments(packed)
    assert {each.rule for each in asked.check() if each.severity == "error"} == {"arch-data-type", "driver-result"}
    assert MapArguments.of({"arch": "sm_120", "box": (128, 128, 1)}).completed(asked).tensor_map().inner_bytes == 64


words = [
    "format",
    "dim",
    "gmem_address",
    "globalDim",
    "globalStrides",
    "boxDim",
    "swizzle",
    "rank",
    "shape",
    "strides",
    "blockSize",
    "pixelBoxLower",
]


@given(
    st.text(max_size=300)
    | st.lists(st.sampled_from([*words, "(1,2,3)", "[-1, 2]", "=", " ", "0x12", "7", "\n"])).map("".join)
)
def test_any_text_gives_arguments_or_a_reason(text):
    assert rules_broken(lambda: [asked.check() for asked in dumped_arguments(text)]) <= {"argument-dump"}


@given(
    st.text(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["kind", "dims", "box", "tensor_map", "address"]), inner)
        ),
        max_leaves=10,
    ).map(json.dumps)
)
def test_any_json_gives_arguments_or_a_reason(text):
    read = MapSource.from_json
    assert rules_broken(lambda: [found for each in read(text).asked for found in each.check()]) <= {
        "argument-json",
        "unknown-name",
    }
