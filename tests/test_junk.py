"""Junk for any argument of any public function is a RuleError that names it, short enough to read."""

import inspect
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.errors import DeviceError, RuleError, TilescopeError

JUNK = [
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**31,
    2**32,
    2**63,
    2**64,
    -(2**64),
    10**5000,
    0.5,
    math.nan,
    math.inf,
    1j,
    "",
    "\0",
    "none",
    "K",
    "x" * 10_000,
    b"",
    b"ab",
    (),
    [],
    [None],
    [[1, 2], [3]],
    (1, 2),
    (-1, 0),
    (0, 0, 0),
    (2**64, 2**64),
    (1, "a"),
    ("a" * 10_000, 1),
    {},
    {"a": 1},
    {1, 2},
    object(),
    Decimal(3),
    Fraction(1, 3),
    range(3),
    bytearray(b"ab"),
    memoryview(b"ab"),
    memoryview(np.arange(4)),
    memoryview(np.zeros((2, 2))),
    lambda: 3,
    iter([1]),
    np.arange(2),
    np.arange(0),
    np.arange(32),
    np.zeros((2, 2)),
    np.array(3),
    np.array(None),
    np.int64(-5),
    np.uint64(2**64 - 1),
    np.float32(2),
    np.bool_(True),
    np.str_("128B"),
    np.array(["a"]),
    np.array([1, 2])[::-1],
    np.array([2**64, 1], object),
    np.zeros(3, "i4,f4"),
    np.zeros((8, 64), ">f4"),
    np.dtype(">f4"),
    np.datetime64("2020"),
    np.dtype("f4"),
    int,
    slice(3),
    ...,
]

MAP = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
ROWS4 = ts.TensorMap("bf16", (64, 64), (128,), (64, 1), arch="sm_100")
MEMORY = np.arange(4096, dtype=np.uint16)
LANES = np.arange(32) % 8 * 16
ACCESS = ts.Access("ld.b32", LANES)
DESCRIPTOR = ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
SMEM = ts.load(MAP, MEMORY, (0, 0))
WORD = DESCRIPTOR.encode()
MATRIX = np.ones((64, 64), np.float32)
KERNEL = ".version 8.0 .target sm_90 .address_size 64 .entry k(.param .u32 n) { ret; }"
NONE: dict[str, object] = {}
TMEM = ts.TensorMemory().alloc(64)
TMEM_D = ts.tmem_layout((128, 64))
SCALES = ts.scale_layout(128, 256, "nvfp4")
SCALE_BYTES = np.zeros((128, 16), np.uint8)
ATOM = SCALES.copies()[0]


def address_of(mn, k):
    return ts.Layout((64, 64), 16).address(mn, k)


# function: arguments that it takes; each is replaced by junk in turn, as are those that are left out
CALLS = {
    ts.Access: {"op": "ld.b32", "lane_address": LANES},
    ts.Access.named: {"text": "ldmatrix.x4", "tile": (64, 64), "element_bits": 16},
    ts.Arch.named: {"name": "sm_90"},
    ts.DataType.named: {"name": "bf16"},
    ts.Im2colMap: {
        "data_type": "f16",
        "dims": (64, 14, 14, 8),
        "strides_bytes": (128, 1792, 25088),
        "lower_corner": (-1, -1),
        "upper_corner": (-1, -1),
        "channels_per_pixel": 64,
        "pixels_per_column": 64,
    },
    ts.Im2colWideMap: {
        "data_type": "f16",
        "dims": (64, 14, 14, 8),
        "strides_bytes": (128, 1792, 25088),
        "lower_width": -1,
        "upper_width": -1,
        "channels_per_pixel": 64,
        "pixels_per_column": 64,
        "arch": "sm_100",
    },
    ts.Layout: {"shape": (64, 64), "element_bits": 16},
    address_of: {"mn": 3, "k": 5},
    ts.Layout.from_modes: {"modes": ((64, 64), (64, 1)), "element_bits": 16},
    ts.Access.thread_values: {"tv": ((32, 2), (2, 1)), "layout": ts.Layout((64, 64), 16)},
    ts.Rule.named: {"name": "box-range"},
    ts.SmemOp.named: {"name": "ld.b32"},
    ts.Swizzle.named: {"name": "128B"},
    ts.Swizzle.xor: {"bits": 3, "base": 4, "shift": 3},
    ts.SWIZZLE["128B"].apply: {"address": 128},
    ts.SWIZZLE["128B"].base_offset: {"address": 128},
    ts.SWIZZLE["128B"].swizzle: {"data": bytes(1024)},
    ts.SWIZZLE["128B"].unswizzle: {"data": bytes(1024)},
    ts.Tcgen05Descriptor: {"start_address": 0x400, "leading_bytes": 16, "stride_bytes": 1024, "swizzle": "128B"},
    ts.TensorMap: {"data_type": "bf16", "dims": (64, 64), "strides_bytes": (128,), "box": (64, 8)},
    ts.TensorMap.check: {"data_type": "bf16", "dims": (64, 64), "strides_bytes": (128,), "box": (64, 8)},
    ts.TensorMap.from_array: {"array": MEMORY.reshape(64, 64), "box_shape": (8, 64)},
    MAP.with_fields: {"swizzle": "none"},
    MAP.replace: {"address": 0x1000},
    ts.Value.from_dict: {"data": MAP.to_dict()},
    ts.Violation.from_dict: {"data": ts.TensorMap.check("bf16", (64, 64), (128,), (64, 512))[0].to_dict()},
    ts.WgmmaDescriptor: {"start_address": 0x400, "leading_bytes": 16, "stride_bytes": 1024, "swizzle": "128B"},
    ts.WgmmaDescriptor.decode: {"word": WORD},
    DESCRIPTOR.addresses: NONE,
    ts.bank_report: {"op": "ld.b32", "lane_address": LANES},
    ts.canonical_layout: {"major": "K", "swizzle": "128B", "data_type": "bf16"},
    ts.compatible: {"tensor_map_or_plan": MAP, "descriptor": DESCRIPTOR, "smem_address": 0x400, "rows": 8},
    ts.convert_layout: {"text": "GMMA::Layout_K_SW128_Atom<half_t>", "notation": "triton"},
    ts.decode_tensor_map: {"blob": MAP.encode()},
    ts.descriptor_readings: {"word": WORD},
    ts.emit: {"plan": ts.plan((64, 64), "bf16").best, "target": "ptx"},
    ts.snippet: {"source": MAP, "name": "encode"},
    ts.emulate_mma: {"a": MATRIX, "b": MATRIX.T, "data_type": "bf16"},
    ts.find_layouts: {
        "accesses": [ts.Access.rows((8, 32), 32, "ld.b32")],
        "tile": (8, 32),
        "element_bits": 32,
        "max_padding_bytes": 16,
    },
    ts.fragment: {"instruction": "mma.m16n8k16", "operand": "A", "data_type": "bf16"},
    ts.gather4: {"tensor_map": ROWS4, "memory": MEMORY, "column": 0, "rows": (0, 1, 2, 3)},
    ts.identify: {"dump": SMEM, "tile": MEMORY[: 8 * 64].reshape(8, 64)},
    ts.inspect_descriptor: {"word": WORD},
    ts.inspect_tensor_map: {"blob": MAP.encode()},
    ts.approx: {"name": "ex2.approx.f32", "array": np.ones(4, np.float32)},
    ts.ldmatrix: {"smem": bytes(512), "lane_address": LANES},
    ts.load: {"tensor_map": MAP, "memory": MEMORY, "coords": (0, 0)},
    ts.load_multicast: {
        "tensor_map": MAP,
        "memory": MEMORY,
        "coords": (0, 0),
        "smems": [np.zeros(1024, np.uint8)],
        "cta_mask": 1,
    },
    ts.compress: {"a": np.eye(16, 32), "data_type": "bf16", "instruction": "mma.sp.m16n8k32", "selector": 1},
    ts.decompress: {"values": np.ones((16, 16)), "metadata": np.full((16, 8), 4), "data_type": "bf16"},
    ts.pack_scales: {"scales": SCALE_BYTES},
    ts.unpack_scales: {"packed": ts.pack_scales(SCALE_BYTES), "shape": (128, 16)},
    ts.scale_layout: {"rows": 128, "k": 256, "kind": "nvfp4"},
    SCALES.offset: {"row": 3, "block": 5},
    SCALES.locate: {"offset": 5},
    SCALES.steps: NONE,
    SCALES.tensor_memory: {"operand": "B"},
    SCALES.copies: NONE,
    ts.tmem_layout: {"shape": (128, 64)},
    TMEM_D.place: {"row": 3, "column": 5},
    TMEM_D.element_at: {"lane": 3, "column": 5},
    ts.TensorMemory: NONE,
    ts.TensorMemory.budget: {"parts": {"D": TMEM_D}},
    TMEM.alloc: {"columns": 32},
    TMEM.dealloc: {"address": 0, "columns": 64},
    TMEM.load: {"instruction": "32x32b.x8", "address": 0, "warp": 0},
    TMEM.store: {"instruction": "32x32b.x8", "registers": np.zeros((32, 8), np.uint32), "address": 0, "warp": 0},
    TMEM.copy: {"shape": ATOM.shape, "smem": np.zeros(512, np.uint8), "descriptor": ATOM.descriptor, "address": 0},
    TMEM.shift: {"address": 0},
    ts.load_tiles: {"tensor_map": MAP, "memory": MEMORY},
    ts.bulk_load: {"memory": MEMORY, "address": 0, "size_bytes": 16},
    ts.bulk_store: {"smem": SMEM, "memory": MEMORY.copy(), "address": 0, "size_bytes": 16},
    ts.Kernel: {"ptx": KERNEL},
    ts.Kernel(KERNEL).run: {"grid": 1, "block": 32, "args": [7]},
    ts.Memory: NONE,
    ts.pack: {"field": 7},
    ts.Memory().place: {"array": np.zeros(4, np.float32)},
    ts.Memory().map: {"array": np.zeros((64, 64), np.float16), "box": (64, 8)},
    ts.Mbarrier: {"count": 2},
    ts.Mbarrier(2).arrive: {"count": 1},
    ts.Mbarrier(2).arrive_drop: {"count": 1},
    ts.Mbarrier(2).expect_tx: {"bytes": 16},
    ts.Mbarrier(2).passes: {"parity": 0},
    ts.Mbarrier.decode: {"word": 0},
    ts.Mbarrier.decode_token: {"token": 0},
    ts.plan_pipeline: {"plan": ts.plan((64, 64), "bf16").best, "stages": 1, "steps": 1},
    ts.simulate: {"pipeline": {"roles": [{"name": "one", "steps": []}]}},
    ts.parse_layout: {"text": "128B", "element_bits": 16},
    ts.plan: {"tile": (64, 64), "data_type": "bf16"},
    ts.Problem: {"tile": (64, 64), "data_type": "bf16"},
    ts.plan_kernel: {"kernel": "gemm", "arch": "sm_90", "blocks_per_sm": 1, "cluster": 1, "sizes": {"M": 128}},
    ts.plan_gemm: {"m": 256, "n": 256, "k": 256, "data_type": "bf16", "tile": (64, 64, 64)},
    ts.sweep: {"problems": [ts.Problem((64, 64), "bf16")]},
    ts.scatter4: {"tensor_map": ROWS4, "smem": bytes(512), "memory": MEMORY.copy(), "column": 0, "rows": (0, 1, 2, 3)},
    ts.spell_layout: {"layout": ts.Layout((64, 64), 16, swizzle="128B"), "notation": "triton"},
    ts.stmatrix: {
        "registers": np.zeros((32, 1), np.uint32),
        "smem": np.zeros(512, np.uint8),
        "lane_address": LANES,
    },
    ts.store: {"tensor_map": MAP, "smem": SMEM, "memory": MEMORY.copy(), "coords": (0, 0)},
    ts.tcgen05_descriptors: {"tile": (128, 64), "data_type": "bf16", "swizzle": "128B"},
    ts.tile_report: {"accesses": [ACCESS], "layout": ts.Layout((64, 64), 16)},
    ts.trace: {"tensor_map": MAP, "coords": (0, 0)},
    ts.trace(MAP, (0, 0)).element_at: {"address": 0},
    ts.trace(MAP, (0, 0)).address_of_source: {"offset": 0},
    ts.SWIZZLE["128B"].chunk_in_row: {"row": 1, "chunk": 2},
    ts.SWIZZLE["128B"].chunk_in_line: {"line": 1, "chunk": 2},
    ts.Swizzle.from_ptx: {"mode": "128B"},
    ts.wavefronts: {"op": "ld.b32", "lane_address": LANES},
    ts.wgmma_descriptors: {"tile": (64, 64), "data_type": "bf16", "swizzle": "128B"},
}
NOT_CALLED = {  # rows of tables, which `named` finds, and what is raised
    ts.Card,
    ts.Rule,
    ts.SmemOp,
    ts.Swizzle,
    ts.DataType,
    ts.Arch,
    ts.Value,
    ts.Violation,
    ts.InstructionDescriptor,
}
ARGUMENTS = [
    (call, name)
    for call in CALLS
    for name in [*inspect.signature(call).parameters, *CALLS[call]]
    if name not in ("fields", "options", "former")
]


def outcome(call, arguments):
    """None where it answers; what the refusal says where it is a RuleError."""
    try:
        call(**arguments)
    except (RuleError, DeviceError) as error:
        return str(error)
    return None


def test_every_public_function_is_called():
    public = {getattr(ts, name) for name in ts.__all__ if callable(getattr(ts, name))}
    errors = {each for each in public if inspect.isclass(each) and issubclass(each, TilescopeError)}
    assert public - errors - NOT_CALLED <= set(CALLS)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_the_arguments_before_they_are_replaced_are_taken(call):
    assert outcome(call, CALLS[call]) is None


@pytest.mark.filterwarnings("ignore:.* will be removed:DeprecationWarning")  # True is a former value of advice
@pytest.mark.parametrize(
    ("call", "name"), dict.fromkeys(ARGUMENTS), ids=lambda given: getattr(given, "__qualname__", given)
)
def test_junk_is_taken_or_refused_in_a_few_words(call, name):
    for junk in JUNK:
        said = outcome(call, CALLS[call] | {name: junk})
        assert said is None or 0 < len(max(said.splitlines(), key=len)) < 1500, (name, type(junk), said[:3000])


@given(st.data())
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_junk_for_several_arguments_at_once(data):
    with_arguments = [call for call in CALLS if any(each is call for each, _ in ARGUMENTS)]
    call = data.draw(st.sampled_from(with_arguments))
    names = [name for each, name in ARGUMENTS if each is call]
    junk = (
        st.sampled_from(range(len(JUNK))).map(JUNK.__getitem__)
        | st.integers()
        | st.text(max_size=20)
        | st.tuples(st.integers(), st.integers())
    )
    outcome(call, CALLS[call] | data.draw(st.dictionaries(st.sampled_from(names), junk, max_size=4)))
