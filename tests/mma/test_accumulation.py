"""Sums of tensor cores: recordings of an H200, the table of arithmetics, and what ts.emulate_mma makes of it."""

import json
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.mma.accumulation import k_loop_sum, tensor_core_sum
from tilescope.mma.mma_instruction import INSTRUCTIONS
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tensor_core_arithmetic import arithmetic_of

GOLDEN = Path(__file__).parent.parent / "golden"
ACCUMULATORS = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}
CODES = {8: np.uint8, 16: np.uint16, 32: np.uint32}

with np.load(GOLDEN / "tensor_core_sums.npz") as RECORDED:
    FORMS = json.loads(str(RECORDED["forms"]))
    MATRICES = {name: RECORDED[name] for name in RECORDED.files if name != "forms"}


def described(form):
    parts = [form["instruction"], form["d"], form["a"], form["b"], form["c"], *form["modifiers"]]
    if form["operands"] != "random":
        parts.append(form["operands"])
    return " ".join(parts)


@pytest.mark.parametrize("number", range(len(FORMS)), ids=[described(form) for form in FORMS])
def test_every_form_of_hopper_adds_as_recorded(number):
    form = FORMS[number]
    a, b, c, d = (MATRICES[f"{operand}{number}"] for operand in "abcd")
    arithmetic = arithmetic_of("sm_90", form["instruction"], form["a"])
    assert arithmetic.basis == "measured"
    found = tensor_core_sum(
        a,
        b,
        c.view(ACCUMULATORS[form["c"]]),
        arithmetic=arithmetic,
        a_type=DataType.named(form["a"]),
        b_type=DataType.named(form["b"]),
        output_type=DataType.named(form["d"]),
        saturate="satfinite" in form["modifiers"],
        bit_operation="xor" if "xor" in form["modifiers"] else "and",
    )
    assert_same_codes(found, d)


def assert_same_codes(found, recorded):
    """Equal bit for bit; the first difference is named."""
    codes = found.view(recorded.dtype)
    wrong = np.argwhere(codes != recorded)
    if len(wrong):
        place = tuple(wrong[0])
        pytest.fail(f"{len(wrong)} of {codes.size} differ; {place}: {codes[place]:#x}, recorded {recorded[place]:#x}")


def recorded_matrix(registers, instruction, operand, data_type):
    """A recorded operand (warps, rows, columns), put together as the fragment says."""
    held = ts.fragment(instruction, operand, data_type)
    _, row, column = held.indices()
    codes = registers.view(CODES[held.element_bits]).reshape(-1, held.threads, held.values)
    matrix = np.empty((len(codes), *held.shape), codes.dtype)
    matrix[:, row, column] = codes
    return matrix


def recorded_b(smem, n, element_bytes):
    """B (warpgroups, n, k) from shared memory: core matrices of 8 rows of 16 bytes, two of them along k."""
    rows = smem.reshape(-1, n // 8, 2, 8, 16).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(rows).reshape(-1, n, 32).view(CODES[8 * element_bytes])


@pytest.mark.parametrize(
    ("name", "instruction", "data_type"),
    [
        ("arith_mma_m16n8k16_f16_f32", "mma.m16n8k16", "f16"),
        ("arith_mma_m16n8k32_e4m3_f32", "mma.m16n8k32", "e4m3"),
        ("arith_wgmma_m64n16k16_bf16_f32", "wgmma.m64n16k16", "bf16"),
        ("arith_wgmma_m64n16k32_e4m3_f32", "wgmma.m64n16k32", "e4m3"),
    ],
)
def test_recorded_registers_add_as_recorded(name, instruction, data_type):
    row = DataType.named(data_type)
    with np.load(GOLDEN / "kernels" / f"{name}.npz") as recorded:
        a = recorded_matrix(recorded["before0"], instruction, "A", data_type)
        c = recorded_matrix(recorded["before2"], instruction, "C", "f32").view(np.float32)
        d = recorded_matrix(recorded["after3"], instruction, "D", "f32")
        if instruction.startswith("mma"):
            b = recorded_matrix(recorded["before1"], instruction, "B", data_type).swapaxes(-1, -2)
        else:
            b = recorded_b(recorded["before1"], 16, row.bits // 8)
    found = tensor_core_sum(a, b, c, arithmetic=arithmetic_of("sm_90", instruction, data_type), a_type=row)
    assert_same_codes(found, d)


@pytest.mark.parametrize(("name", "k"), [("mm_tma_f16", 192), ("emitted_gemm_f16", 512)])
def test_recorded_products_are_those_of_a_k_loop(name, k):
    """Whole matrices by wgmma m64nNk16 in float32 registers, rounded to float16 at the end."""
    f16 = DataType.named("f16")
    with np.load(GOLDEN / "kernels" / f"{name}.npz") as recorded:
        a = recorded["before0"].view(np.float16).reshape(256, k)
        b = recorded["before1"].view(np.float16).reshape(256, k)
        wanted = recorded["after2"].view(np.uint16).reshape(256, 256)
    zeros = np.zeros((256, 256), np.float32)
    d = k_loop_sum(a, b, zeros, 16, arithmetic=arithmetic_of("sm_90", "wgmma", f16), data_type=f16)
    assert_same_codes(d.astype(np.float16), wanted)
    emulated = ts.emulate_mma(a[:64], b[:64].T, data_type="f16")
    assert_same_codes(emulated.astype(np.float16), wanted[:64, :64])


@pytest.mark.parametrize("arch", ARCH)
def test_every_instruction_of_an_architecture_has_its_arithmetic(arch):
    for row in INSTRUCTIONS:
        if not ARCH[arch].has(row.feature):
            continue
        for data_type in row.types:
            arithmetic = arithmetic_of(arch, row.name, data_type)
            assert (arithmetic.method == "exact") == (row.accumulators == ("int32",)), (row.name, data_type)
            assert arithmetic.basis == ("measured" if arch == "sm_90" else "documented")


@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_110"])
def test_every_kind_of_tcgen05_has_its_arithmetic(arch):
    for kind in KINDS.values():
        if not ARCH[arch].has(kind.feature):
            continue
        for data_type in kind.codes:
            arithmetic = arithmetic_of(arch, f"tcgen05.{kind.name}", data_type)
            expected_bits = {"i8": 0, "mxf4": 35, "mxf4nvf4": 35}.get(kind.name, 25)
            assert arithmetic.fractional_bits == expected_bits


def test_an_instruction_that_an_architecture_lacks_is_refused():
    with pytest.raises(RuleError, match="wgmma multiplies it on sm_90"):
        arithmetic_of("sm_100", "wgmma", "bf16")
    with pytest.raises(RuleError, match="wgmma does not multiply"):
        arithmetic_of("sm_90", "wgmma", "e2m1")


F16 = DataType.named("f16")


def halves(*values):
    return np.array([values], np.float16)


def one_sum(a, b, c, arch="sm_90", dtype=np.float32):
    """D of one row and one column of f16."""
    arithmetic = arithmetic_of(arch, "mma", F16)
    d = tensor_core_sum(halves(*a), halves(*b), np.array([[c]], dtype), arithmetic=arithmetic, a_type=F16)
    return d[0, 0]


def test_what_lies_below_the_cut_is_lost_whatever_its_sign():
    # Aligned to 2**0, 25 bits are kept: 2**-25 stays, 2**-26 does not.
    assert one_sum([1, 2.0**-13, 2.0**-13], [1, 2.0**-12, -(2.0**-13)], -1) == 2.0**-25


def test_hopper_keeps_one_bit_more_than_ampere():
    a, b = [1, 2.0**-13], [1, 2.0**-12]
    assert one_sum(a, b, -1, "sm_90") == 2.0**-25
    assert one_sum(a, b, -1, "sm_80") == 0


def test_ampere_adds_k_in_two_halves():
    small = [2.0**-13] * 8  # 8 products of 2**-26: kept where they are added alone, cut off beside 1
    large = [1] + [0] * 7
    assert one_sum(small + large, small + large, 0, "sm_80") == np.float32(1 + 2.0**-23)
    assert one_sum(large + small, large + small, 0, "sm_80") == 1
    assert one_sum(small + large, small + large, 0, "sm_90") == 1


@pytest.mark.parametrize(
    ("arch", "instruction", "data_type", "fractional_bits", "step_k", "result_bits"),
    [
        ("sm_80", "mma", "f16", 24, 8, 23),
        ("sm_86", "mma", "bf16", 24, 8, 23),
        ("sm_89", "mma", "tf32", 24, 4, 23),
        ("sm_89", "mma", "e4m3", 13, 16, 13),
        ("sm_90", "wgmma", "e5m2", 13, None, 13),
        ("sm_100", "mma", "bf16", 25, None, 23),
        ("sm_120", "mma", "e4m3", 25, None, 23),
        ("sm_100", "tcgen05.f8f6f4", "e4m3", 25, None, 23),
        ("sm_103", "tcgen05.mxf4", "e2m1", 35, None, 23),
    ],
)
def test_rows_are_those_of_the_papers(arch, instruction, data_type, fractional_bits, step_k, result_bits):
    row = arithmetic_of(arch, instruction, data_type)
    assert (row.fractional_bits, row.step_k, row.result_bits) == (fractional_bits, step_k, result_bits)


def test_nothing_is_aligned_to_a_product_of_zero():
    assert one_sum([0], [65504], 2.0**-140) == np.float32(2.0**-140)


def test_float32_sums_are_cut_and_float16_sums_are_rounded():
    assert one_sum([1, 1], [1, 2.0**-24], 0) == 1
    assert one_sum([1, 1], [1, 3 * 2.0**-12], 0, dtype=np.float16) == np.float16(1 + 2.0**-10)
    assert one_sum([1, 1], [1, -3 * 2.0**-14], 0) == np.float32(1 - 3 * 2.0**-14)


def test_sums_overflow_to_infinity():
    assert one_sum([65504, 16], [1, 1], 0, dtype=np.float16) == np.inf
    assert one_sum([65504, 15], [1, 1], 0, dtype=np.float16) == 65504
    assert one_sum([1], [1], np.float32(3.4028235e38)) == np.float32(3.4028235e38)


@pytest.mark.parametrize(("dtype", "code"), [(np.float32, 0x7FFFFFFF), (np.float16, 0x7FFF)])
def test_there_is_one_nan(dtype, code):
    for a, b, c in ([np.inf, 0, 0], [np.inf, 1, -np.inf], [np.nan, 1, 1], [1, 1, -np.nan]):
        found = one_sum([a, 1], [b, 1], c, dtype=dtype)
        assert int(found.view(f"u{found.itemsize}")) == code


def test_no_sum_is_minus_zero():
    for dtype in (np.float32, np.float16):
        assert not np.signbit(one_sum([-0.0], [1], -0.0, dtype=dtype))
        assert not np.signbit(one_sum([-(2.0**-24)], [2.0**-24], 0, dtype=np.float16))


def test_a_batch_is_summed_as_each_of_it():
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((2, 3, extent, 16)).astype(np.float16) for extent in (16, 8))
    c = random.standard_normal((2, 3, 16, 8)).astype(np.float32)
    arithmetic = arithmetic_of("sm_90", "mma", F16)
    whole = tensor_core_sum(a, b, c, arithmetic=arithmetic, a_type=F16)
    for place in np.ndindex(2, 3):
        one = tensor_core_sum(a[place], b[place], c[place], arithmetic=arithmetic, a_type=F16)
        assert (whole[place] == one).all()


# --- ts.emulate_mma


def test_emulated_products_are_the_sums_of_their_architecture():
    random = np.random.default_rng(1)
    a, b = random.standard_normal((64, 64)).astype(np.float16), random.standard_normal((64, 64)).astype(np.float16)
    zeros = np.zeros((64, 64), np.float32)
    found = {}
    for arch, consumer, instruction in (
        ("sm_80", "ldmatrix", "mma"),
        ("sm_90", "ldmatrix", "mma"),
        ("sm_90", "wgmma", "wgmma"),
        ("sm_100", "tcgen05", "tcgen05"),
    ):
        arithmetic = arithmetic_of(arch, instruction, F16)
        wanted = k_loop_sum(a, b.T, zeros, 16, arithmetic=arithmetic, data_type=F16)
        found[arch] = ts.emulate_mma(a, b, consumer=consumer, arch=arch)
        assert (found[arch] == wanted).all()
    assert (found["sm_80"] != found["sm_90"]).any()


def test_the_exact_sum_is_rounded_once():
    random = np.random.default_rng(2)
    a, b = random.standard_normal((64, 64)).astype(np.float16), random.standard_normal((64, 64)).astype(np.float16)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    assert (ts.emulate_mma(a, b, exact_sum=True) == exact).all()
    assert (ts.emulate_mma(a, b) != exact).any()
    assert np.allclose(ts.emulate_mma(a, b), exact, rtol=0, atol=2e-5)


def test_without_an_architecture_the_consumer_has_its_own():
    random = np.random.default_rng(3)
    a, b = random.standard_normal((128, 64)).astype(np.float16), random.standard_normal((64, 64)).astype(np.float16)
    for consumer, arch in (("wgmma", "sm_90"), ("ldmatrix", "sm_90"), ("tcgen05", "sm_100")):
        assert (ts.emulate_mma(a, b, consumer=consumer) == ts.emulate_mma(a, b, consumer=consumer, arch=arch)).all()
    narrow = np.eye(128)  # only sm_120 has an mma of e2m3
    assert (ts.emulate_mma(narrow, narrow, data_type="e2m3", consumer="ldmatrix") == narrow).all()


def test_a_consumer_that_the_architecture_lacks_is_refused():
    with pytest.raises(RuleError, match=r"wgmma\.m64nNk16 of bfloat16 on sm_80") as caught:
        ts.emulate_mma(np.eye(64), np.eye(64), data_type="bf16", arch="sm_80")
    assert caught.value.violations[0].rule == "mma-arithmetic"


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_block_scaled_products_are_close_to_the_exact_sum(kind):
    random = np.random.default_rng(4)
    data_type = "e4m3" if kind == "mxfp8" else "e2m1"
    k = 256
    a, b = random.choice([0.5, 1, 1.5, -2, 3], (128, k)), random.choice([0.5, 1, -1.5, 2, -3], (k, 32))
    blocks = k // (32 if kind == "mxfp8" else 16)
    low, high = (120, 135) if kind == "mxfp8" else (0x01, 0x7E)
    a_scales = random.integers(low, high, (128, blocks)).astype(np.uint8)
    b_scales = random.integers(low, high, (32, blocks)).astype(np.uint8)
    options = {"data_type": data_type, "consumer": "tcgen05", "scales": (kind, a_scales, b_scales)}
    exact = ts.emulate_mma(a, b, exact_sum=True, **options)
    found = ts.emulate_mma(a, b, **options)
    assert (found != exact).any()
    assert np.allclose(found, exact, rtol=1e-6, atol=np.abs(exact).max() * 2.0**-22)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90", "sm_100", "sm_103", "sm_120"])
def test_a_wmma_of_tf32_is_two_mma_of_k_4(arch):
    assert arithmetic_of(arch, "wmma", "tf32").step_k == 4
