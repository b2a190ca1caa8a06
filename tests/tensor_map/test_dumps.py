"""Dumps of the frameworks that print their maps, alone and in logs of any length."""

import io
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cuda_error import CUDA_ERROR
from tilescope.tensor_map import dumped_arguments
from tilescope.tensor_map.text import pasted_source as source
from tilescope.tensor_map.text.argument_dump import maps_in
from tilescope.tensor_map.text.driver_answer import answer_code
from tilescope.tensor_map.text.pasted_source import WHOLE_BYTES, MapSource

# flashinfer-ai/flashinfer#2232, as it was pasted there: what stands beyond rank 4 was never set.
FLASHINFER = """
Error: Failed to initialize the TMA descriptor due to invalid argument
tmaFormat: 9 dim: 4 gmem: 0xf64d740000
Shape: 64 16 1 7721128 7149852580857340533
Stride: 128 2 4096 337
tileShapes: 64 16 1 1 1024
tileStrides: 1 1 1 1 1969767282
swizzleType: 3
"""
# format_tma_error of ThunderKittens
THUNDERKITTENS = """
terminate called after throwing an instance of 'std::runtime_error'
  what():  Error in tile TMA descriptor creation: invalid argument
Parameters:
  batch: 16
  depth: 1
  rows: 8192
  cols: 128
  ST::rows: 64
  ST::cols: 64
cuTensorMapEncodeTiled arguments:
  tma_map: 140736473088
  tma_format: 9
  tma_dim: 5
  global_addr: 139638012346368
  global_addr memory type: valid device memory
  gmem_shape: 140736473232 [64, 8192, 2, 1, 16]
  gmem_stride: 140736473184 [256, 128, 2097152, 2097152]
  smem_shape: 140736473160 [64, 64, 1, 1, 1]
  smem_stride: 140736473136 [1, 1, 1, 1, 1]
  tma_interleave: 0
  tma_swizzle: 3
  tma_l2Promotion: 0
  tma_oobFill: 0
"""
DEEP_GEMM = "Making TMA desc: global memory: 7168 4096, shared memory: 128 64, outer stride: 7168, swizzle: 128 (base: 0), elem size: 1"
DEEP_GEMM_3D = "Making 3D TMA desc: global memory: 64 128 8, shared memory: 64 16 1, outer stride: 64 8192, swizzle: 0, elem size: 2"
# Dao-AILab/flash-attention#1296: the head of the dump was left out
FLASH_ATTENTION = """
globalDim      (32,49152,16,1,1)
globalStrides  (4,128,6291456,100663296,0)
boxDim         (32,384,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
Error: Failed to initialize the TMA descriptor 1
"""
TRIMMED_IM2COL = """
TMA Desc Addr:   0x7ffe1200
format         6
dim            4
gmem_address   0x7f5a20000000
globalDim      [64, 32, 32, 8]
globalStrides  [2, 128, 4096, 131072]
smem_box_pixel 64
smem_box_channel 32
elementStrides [1, 1, 1, 1]
swizzle        2
"""


@pytest.mark.parametrize(
    ("dump", "given", "refused"),
    [
        (
            FLASHINFER,
            {
                "data_type": "bfloat16",
                "dims": (64, 16, 1, 7721128),
                "strides_bytes": (128, 2, 4096),
                "box": (64, 16, 1, 1),
                "element_strides": (1, 1, 1, 1),
                "swizzle": "128B",
                "l2_promotion": "128B",
                "address": 0xF64D740000,
            },
            {"stride-alignment", "driver-result"},
        ),
        (
            THUNDERKITTENS,
            {
                "data_type": "bfloat16",
                "dims": (64, 8192, 2, 1, 16),
                "strides_bytes": (256, 128, 2097152, 2097152),
                "box": (64, 64, 1, 1, 1),
                "element_strides": (1,) * 5,
                "interleave": "none",
                "swizzle": "128B",
                "l2_promotion": "none",
                "oob_fill": "zero",
                "address": 139638012346368,
            },
            {"driver-result"},
        ),
        (
            DEEP_GEMM,
            {
                "data_type": "uint8",
                "dims": (7168, 4096),
                "strides_bytes": (7168,),
                "box": (128, 64),
                "swizzle": "128B",
                "l2_promotion": "256B",
            },
            set(),
        ),
        (
            DEEP_GEMM.replace("128 (base: 0), elem", "64 (base: 32), elem").replace("swizzle: 64", "swizzle: 128"),
            {
                "data_type": "uint8",
                "dims": (7168, 4096),
                "strides_bytes": (7168,),
                "box": (128, 64),
                "swizzle": "128B_ATOM_32B",
                "l2_promotion": "256B",
            },
            {"arch-swizzle"},
        ),
        (
            DEEP_GEMM.replace(" (base: 0),", "").replace("elem size: 1", "elem size: 2"),  # a fork: strides in bytes
            {
                "data_type": "bfloat16",
                "dims": (7168, 4096),
                "strides_bytes": (7168,),
                "box": (128, 64),
                "swizzle": "128B",
                "l2_promotion": "256B",
            },
            {"swizzle-span"},
        ),
        (
            DEEP_GEMM_3D,
            {
                "data_type": "bfloat16",
                "dims": (64, 128, 8),
                "strides_bytes": (128, 16384),
                "box": (64, 16, 1),
                "swizzle": "none",
                "l2_promotion": "256B",
            },
            set(),
        ),
        (
            FLASH_ATTENTION,
            {
                "data_type": "float32",
                "dims": (32, 49152, 16, 1),
                "strides_bytes": (128, 6291456, 100663296),
                "box": (32, 384, 1, 1),
                "element_strides": (1, 1, 1, 1),
                "interleave": "none",
                "swizzle": "128B",
                "l2_promotion": "128B",
                "oob_fill": "zero",
            },
            {"box-range", "driver-result"},
        ),
    ],
    ids=[
        "flashinfer",
        "thunderkittens",
        "deepgemm",
        "deepgemm-base",
        "deepgemm-fork",
        "deepgemm-3d",
        "flash-attention",
    ],
)
def test_dumps_of_further_frameworks_are_understood(dump, given, refused):
    (asked,) = dumped_arguments(dump)
    assert dict(asked.given) == given
    assert {each.rule for each in asked.check() if each.severity == "error"} == refused


@pytest.mark.parametrize(("dump", "size"), [(FLASH_ATTENTION, "4 bytes"), (DEEP_GEMM, "1 byte")])
def test_a_type_that_the_dump_does_not_say_is_told_to_be_assumed(dump, size):
    (asked,) = dumped_arguments(dump)
    (note,) = [each for each in asked.check() if each.rule == "dump-type"]
    assert note.severity == "note"
    assert size in note.limit


def test_corners_that_a_trimmed_im2col_dump_lacks_are_named():
    (asked,) = dumped_arguments(TRIMMED_IM2COL)
    assert asked.map_class is ts.Im2colMap
    lower, upper = (each.found for each in asked.check())
    assert lower.startswith("no lower_corner (pixelBoxLowerCorner")
    assert upper.startswith("no upper_corner (pixelBoxUpperCorner")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (" due to an illegal memory access was encountered", "answered 700, illegal address"),
        (" due to invalid argument", "answered 1, invalid value"),
        (". operation not supported", "answered 801, not supported"),
        (" CUDA_ERROR_INVALID_VALUE (1)", "answered 1, invalid value"),
        (" 715", "answered 715, illegal instruction"),
    ],
)
def test_the_drivers_answer_is_read_in_words(words, says):
    (asked,) = dumped_arguments(FLASHINFER.replace(" due to invalid argument", words))
    assert any(says in each.found for each in asked.check())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "no error"),
        (1, "invalid argument"),
        (201, "invalid device context"),
        (700, "an illegal memory access was encountered"),
        (715, "an illegal instruction was encountered"),
        (716, "misaligned address"),
        (719, "unspecified launch failure"),
        (801, "operation not supported"),
    ],
)
def test_the_words_of_the_driver_and_the_name_in_cuda_h_are_one_code(code, words):
    assert answer_code(words) == answer_code(CUDA_ERROR[code].name) == code


@pytest.mark.parametrize(("between", "maps"), [(59, 1), (60, 0)])
def test_a_dump_is_61_lines_long_at_most(between, maps):
    """Other threads print between its lines. What follows later belongs to another map."""
    dims = "globalDim (64,64,1) globalStrides (2,128,0)"
    lines = [dims, *["step 1 loss 0.123"] * between, "boxDim (64,8,1) swizzle 3"]
    assert len(list(maps_in(enumerate(lines, 1)))) == maps


def test_answers_before_and_behind_their_dumps_stay_with_them():
    """CUTLASS prints the error behind the arguments today, and printed it before them once."""
    body = FLASH_ATTENTION.strip().splitlines()[:-1]
    blocks = [
        "\n".join(["TMA Desc Addr:   0x7ffd7d2800c0", "format 7", *body]).replace("384", str(rows))
        for rows in (64, 128)
    ]
    errors = [f"Error: Failed to initialize the TMA descriptor {code}" for code in (700, 719)]
    behind = "\n".join([blocks[0], errors[0], blocks[1], errors[1]])
    before = "\n".join([errors[0], blocks[0], errors[1], blocks[1]])
    for text in (behind, before):
        assert [(asked.given["box"][1], asked.answer.result) for asked in dumped_arguments(text)] == [
            (64, 700),
            (128, 719),
        ]


def test_prefixes_of_a_logger_do_not_matter():
    prefixed = "\n".join(
        f"(EngineCore_DP0 pid=4242) ERROR 05-22 10:11:12 [core.py:1] {line}" for line in FLASHINFER.strip().splitlines()
    )
    assert dumped_arguments(prefixed)[0].given == dumped_arguments(FLASHINFER)[0].given
    coloured = MapSource.read("\n".join(f"\x1b[31m{line}\x1b[0m" for line in FLASHINFER.splitlines()).encode())
    assert coloured.asked == dumped_arguments(FLASHINFER)


class Endless(io.RawIOBase):
    """Lines of a log with a dump now and then, made while they are read."""

    def __init__(self, total_bytes):
        self.left, self.dumps = total_bytes, 0

    def read(self, size=-1):
        if self.left <= 0:
            return b""
        self.dumps += 1
        dump = FLASHINFER.replace("tileShapes: 64 16", f"tileShapes: 64 {8 * (self.dumps % 4 + 1)}").encode()
        noise = b"INFO step loss 0.123 shape: (64, 64) throughput 12 tokens\n" * ((size - len(dump)) // 58)
        self.left -= len(noise) + len(dump)
        return noise[: len(noise) // 2] + dump + noise[len(noise) // 2 :]


def test_a_log_of_any_length_is_read_in_bounded_memory(monkeypatch):
    at_once_bytes = WHOLE_BYTES // 8
    monkeypatch.setattr(source, "WHOLE_BYTES", at_once_bytes)
    stream = Endless(16 * at_once_bytes)
    tracemalloc.start()
    found = MapSource.read_log(stream.read(at_once_bytes), stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(asked.given["box"][1] for asked in found.asked) == [8, 16, 24, 32]
    assert peak < 10 * at_once_bytes


def test_maps_in_json_lines_of_a_long_log_are_read_too():
    line = '{"tensor_map": {"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [16]}, "result": 0}'
    text = "\n".join([line % 64, "noise", '{"tensor_map": null}', line % 128, FLASHINFER]).encode()
    found = MapSource.read_log(text, io.BytesIO(b""))
    assert [(asked.given["dims"][0], asked.lines) for asked in found.asked] == [(64, (1,)), (128, (4,)), (64, (6,))]
    assert found.lines_without_map == (3,)


def test_a_long_log_without_a_map_says_so():
    with pytest.raises(ts.RuleError, match="no arguments of a tensor"):
        MapSource.read_log(b"nothing\n" * 1000, io.BytesIO(b"here\n" * 1000))


PIECES = [
    *FLASHINFER.split(),
    *THUNDERKITTENS.split()[20:60],
    *FLASH_ATTENTION.split()[:12],
    "Making TMA desc: global memory:",
    "9" * 60,
    "(" * 50,
    "[",
    "]",
    ",",
    "\n",
    "tmaFormat:",
    "٣",
    "0x",
    "\x00",
    "TMA Desc Addr:",
    "globalDim (",
    "CU_TENSOR_MAP_SWIZZLE_",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join))
@example("tmaFormat: 9 Shape: " + "9" * 30)
@example("globalDim (1,2) boxDim (" + "1," * 5000)
def test_pieces_of_dumps_give_maps_or_a_reason(text):
    try:
        found = MapSource.read(text.encode())
    except ts.RuleError:
        return
    assert found.reports()


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "text",
    [
        "globalDim (" * 90_000,
        "tmaFormat: " * 90_000,
        "TMA Desc Addr " * 70_000,
        "Shape: " + "1 " * 400_000,
        "(" * 900_000,
        "Making TMA desc: global memory: " + "1 " * 400_000,
        "globalDim      (" + "1," * 400_000 + ")",
        "\n" * 900_000,
        "\n" * 60_000,
        "a" * 60_000,
    ],
    ids=range(10),
)
def test_a_megabyte_of_one_thing_gives_a_reason(text):
    with pytest.raises(ts.RuleError):
        MapSource.read(text.encode()).tensor_map()
