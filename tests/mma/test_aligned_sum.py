"""Aligned sums and fused multiply-adds against fractions, and the compiled loop against numpy."""

import os
from fractions import Fraction
from math import inf

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.data_type import DataType
from tilescope.mma import aligned_sum
from tilescope.mma.accumulation import ScaleFactors, tensor_core_sum
from tilescope.mma.element_value import NO_EXPONENT, addends, factors
from tilescope.mma.tensor_core_arithmetic import arithmetic_of
from tilescope.one_rounding import fma32, fma64

LEAST_EXPONENT = {
    "f32": -126,
    "tf32": -126,
    "bf16": -126,
    "f16": -14,
    "e5m2": -14,
    "e4m3": -6,
    "e3m2": -2,
    "e2m3": 0,
}
LARGEST_EXPONENT = {"f16": 15, "e5m2": 15, "e4m3": 7, "e3m2": 4, "e2m3": 2}


def exponent_of(value, data_type):
    """The exponent of a number that is not zero; a subnormal has the least of its type."""
    numerator, denominator = Fraction(value).as_integer_ratio()  # of which the latter is a power of two
    return max(abs(numerator).bit_length() - denominator.bit_length(), LEAST_EXPONENT[data_type])


def cut(value, exponent):
    """A fraction cut towards zero to a multiple of 2**exponent."""
    unit = Fraction(2) ** exponent
    return int(value / unit) * unit


def plain_sum(terms, c, fractional_bits):
    """Terms (value, exponent) and C, aligned to the largest exponent, cut and added."""
    exponents = [exponent for value, exponent in terms if value]
    exponents.append(exponent_of(c, "f32") if c else -133)
    unit = max(exponents) - fractional_bits
    return sum((cut(value, unit) for value, _ in terms), cut(c, unit))


def as_float32(value, fractional_bits):
    """A sum as float32, cut to so many fractional bits."""
    if value == 0:
        return 0.0
    kept = cut(value, exponent_of(value, "f32") - fractional_bits)
    if abs(kept) < 2**128:
        return float(kept)
    return inf if kept > 0 else -inf


def plain_result(row, column, c, data_type, arithmetic):
    """D of a row of A and a column of B, step after step."""
    total = Fraction(float(c))
    step = arithmetic.step_k or len(row)
    for first in range(0, len(row), step):
        terms = []
        for x, y in zip(row[first : first + step], column[first : first + step], strict=True):
            exponent = exponent_of(x, data_type) + exponent_of(y, data_type) if x * y else 0
            terms.append((Fraction(float(x)) * Fraction(float(y)), exponent))
        summed = plain_sum(terms, total, arithmetic.fractional_bits)
        total = Fraction(as_float32(summed, arithmetic.result_bits))
    return float(total)


def random_elements(random, data_type, shape, spread):
    """Elements whose exponents lie within `spread` of 0, subnormals among them, and a fifth of them zero."""
    lowest = max(LEAST_EXPONENT[data_type] - 3, -spread)
    highest = min(LARGEST_EXPONENT.get(data_type, spread), spread)
    exponents = random.integers(lowest, highest, shape, endpoint=True)
    significands = 1 + random.integers(0, 4, shape) / 4 + random.integers(0, 2, shape) / 16
    values = np.ldexp(significands, exponents) * random.choice([-1, 1], shape)
    values = np.where(random.random(shape) < 0.2, 0 * values, values)
    elements = values.astype(DataType.named(data_type).numpy)
    elements[~np.isfinite(elements.astype(np.float64))] = 1
    return elements


@pytest.mark.parametrize("spread", [2, 12, 60])
@pytest.mark.parametrize(
    ("arch", "instruction", "data_type", "k"),
    [
        ("sm_80", "mma", "f16", 16),
        ("sm_80", "mma", "tf32", 8),
        ("sm_89", "mma", "bf16", 16),
        ("sm_89", "mma", "e4m3", 32),
        ("sm_90", "mma", "f16", 8),
        ("sm_90", "mma", "tf32", 4),
        ("sm_90", "wgmma", "bf16", 16),
        ("sm_90", "wgmma", "e5m2", 32),
        ("sm_100", "tcgen05", "f16", 16),
        ("sm_100", "tcgen05", "e4m3", 32),
        ("sm_120", "mma", "e2m3", 32),
        ("sm_120", "mma", "e3m2", 32),
    ],
)
def test_aligned_sums_are_those_of_fractions(arch, instruction, data_type, k, spread):
    random = np.random.default_rng(spread)
    arithmetic = arithmetic_of(arch, instruction, data_type)
    a = random_elements(random, data_type, (6, k), spread)
    b = random_elements(random, data_type, (5, k), spread)
    c = np.ldexp(random.standard_normal((6, 5)), random.integers(-spread, spread, (6, 5))).astype(np.float32)
    c[0] = [0, -0.0, 2.0**-140, -(2.0**-149), -(2.0**126)]
    found = tensor_core_sum(a, b, c, arithmetic=arithmetic, a_type=DataType.named(data_type))
    for row, column in np.ndindex(c.shape):
        wanted = plain_result(
            a[row].astype(np.float64), b[column].astype(np.float64), c[row, column], data_type, arithmetic
        )
        assert found[row, column] == wanted, (row, column)


def test_scaled_groups_of_sixteen_are_added_before_they_are_cut():
    """nvfp4: four groups of 16 e2m1, each with a ue4m3 scale for A and for B; 35 fractional bits."""
    random = np.random.default_rng(0)
    e2m1, e4m3 = DataType.named("e2m1"), DataType.named("e4m3")
    a, b = (random.integers(0, 16, (extent, 64)).astype(np.uint8) for extent in (6, 5))
    scales = ScaleFactors(
        random.integers(1, 0x7E, (6, 4)).astype(np.uint8), random.integers(1, 0x7E, (5, 4)).astype(np.uint8), e4m3
    )
    c = np.ldexp(random.standard_normal((6, 5)), random.integers(-30, 30, (6, 5))).astype(np.float32)
    arithmetic = arithmetic_of("sm_100", "tcgen05.mxf4nvf4", "e2m1")
    found = tensor_core_sum(a, b, c, arithmetic=arithmetic, a_type=e2m1, scales=scales)
    a_values, b_values = (codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) for codes in (a, b))
    a_scale, b_scale = (codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for codes in scales[:2])
    for row, column in np.ndindex(c.shape):
        terms = []
        for group in range(4):
            part = slice(16 * group, 16 * group + 16)
            exact = Fraction(float(a_values[row, part] @ b_values[column, part]))
            one, other = a_scale[row, group], b_scale[column, group]
            exponent = exponent_of(one, "e4m3") + exponent_of(other, "e4m3")
            terms.append((exact * Fraction(one) * Fraction(other), exponent))
        wanted = as_float32(plain_sum(terms, Fraction(float(c[row, column])), 35), 23)
        assert found[row, column] == wanted, (row, column)


def test_a_scale_of_mxfp8_moves_the_exponents_of_its_products():
    e4m3, ue8m0 = DataType.named("e4m3"), DataType.named("ue8m0")
    ones = np.ones((1, 32)).astype(e4m3.numpy)
    scales = ScaleFactors(np.array([[130]], np.uint8), np.array([[126]], np.uint8), ue8m0)  # 2**3 and 2**-1
    arithmetic = arithmetic_of("sm_100", "tcgen05.mxf8f6f4", e4m3)
    c = np.full((1, 1), 2.0**-23 - 128, np.float32)  # 128 * (1 - 2**-30) is no float32
    d = tensor_core_sum(ones, ones, c, arithmetic=arithmetic, a_type=e4m3, scales=scales)
    assert d.item() == 32 * 4 - 128


def test_a_scale_that_is_nan_makes_nan():
    e4m3, ue8m0 = DataType.named("e4m3"), DataType.named("ue8m0")
    ones = np.ones((2, 32)).astype(e4m3.numpy)
    scales = ScaleFactors(np.array([[0xFF], [127]], np.uint8), np.full((2, 1), 127, np.uint8), ue8m0)
    arithmetic = arithmetic_of("sm_100", "tcgen05.mxf8f6f4", e4m3)
    d = tensor_core_sum(ones, ones, np.zeros((2, 2), np.float32), arithmetic=arithmetic, a_type=e4m3, scales=scales)
    assert np.isnan(d[0]).all()
    assert (d[1] == 32).all()


def test_the_compiled_loop_has_the_bits_of_numpy(require):
    require("numba")
    loop = aligned_sum.compiled_loop()
    random = np.random.default_rng(1)
    for shape in ((1, 64, 128, 16), (3, 16, 8, 8), (2, 5, 7, 3)):
        batch, m, n, k = shape
        operands = []
        for extent in (m, n):
            elements = factors(random_elements(random, "bf16", (batch, extent, k), 30), DataType.named("bf16"))
            operands.append(aligned_sum.Terms(elements.values[..., None], elements.exponents))
        c = addends(random_elements(random, "f32", (batch, m, n), 40))
        for fractional_bits in (13, 25):
            by_loop = aligned_sum.by_loop(loop, *operands, c, fractional_bits)
            by_numpy = aligned_sum.by_numpy(*operands, c, fractional_bits)
            assert (by_loop == by_numpy).all()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_a_process_that_may_use_one_core_sums_on_one():
    allowed = os.sched_getaffinity(0)
    aligned_sum._core_count.cache_clear()
    parts = []
    try:
        os.sched_setaffinity(0, {min(allowed)})
        aligned_sum.on_all_cores(parts.append, 64, products=1 << 30)
    finally:
        os.sched_setaffinity(0, allowed)
        aligned_sum._core_count.cache_clear()
    assert parts == [slice(0, 64)]


def test_parts_of_a_batch_are_disjoint_and_cover_it(monkeypatch):
    monkeypatch.setattr(aligned_sum, "_core_count", lambda: 3)
    parts = []
    aligned_sum.on_all_cores(parts.append, 64, products=1 << 30)
    assert sorted((part.start, part.stop) for part in parts) == [(0, 21), (21, 42), (42, 64)]


def test_without_numba_numpy_sums(monkeypatch):
    monkeypatch.setattr(aligned_sum, "compiler", lambda: None)
    aligned_sum.compiled_loop.cache_clear()
    try:
        assert aligned_sum.compiled_loop() is None
    finally:
        aligned_sum.compiled_loop.cache_clear()


def test_every_half_has_its_value_and_exponent():
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        expected = codes.view(np.float16).astype(np.float64)
    is_finite = np.isfinite(expected)
    finite = factors(codes[is_finite], DataType.named("f16"))
    values = expected[is_finite]
    exponents = np.where(values == 0, NO_EXPONENT, np.maximum(np.frexp(values)[1] - 1, -14))
    assert finite.specials is None
    assert (finite.values.view(np.uint64) == values.view(np.uint64)).all()
    assert (finite.exponents == exponents).all()
    every = factors(codes, DataType.named("f16"))
    assert (every.values == np.where(is_finite, expected, 0)).all()
    assert (every.exponents[is_finite] == exponents).all()
    assert np.array_equal(every.with_specials, expected, equal_nan=True)


def test_pieces_are_summed_as_the_whole(monkeypatch):
    random = np.random.default_rng(2)
    row = DataType.named("f16")
    operands = []
    for extent in (40, 24):
        elements = factors(random_elements(random, "f16", (3, extent, 16), 12), row)
        operands.append(aligned_sum.Terms(elements.values[..., None], elements.exponents))
    c = addends(random_elements(random, "f32", (3, 40, 24), 30))
    whole = aligned_sum.by_numpy(*operands, c, 25)
    for piece_results, terms_apart_from in ((100, 1), (100, 10**9), (10**9, 1), (2000, 10**9)):
        monkeypatch.setattr(aligned_sum, "_PIECE_RESULTS", piece_results)
        monkeypatch.setattr(aligned_sum, "_TERMS_APART_FROM_RESULTS", terms_apart_from)
        assert (aligned_sum.by_numpy(*operands, c, 25) == whole).all()


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)


def rounded(exact, dtype):
    """A fraction rounded to nearest even: Python rounds integers' quotients and fractions so."""
    if dtype == np.float64:
        try:
            return float(exact)
        except OverflowError:
            return inf if exact > 0 else -inf
    unit = Fraction(2) ** (exponent_of(exact, "f32") - 23)
    nearest = round(exact / unit) * unit
    if abs(nearest) >= 2**128:
        return inf if nearest > 0 else -inf
    return float(nearest)


@given(SINGLE, SINGLE, SINGLE)
def test_fma_of_float32_rounds_once(a, b, c):
    found = fma32(*(np.array([x], np.float32) for x in (a, b, c))).item()
    assert found == rounded(Fraction(a) * Fraction(b) + Fraction(c), np.float32)


@given(DOUBLE, DOUBLE, DOUBLE)
def test_fma_of_float64_rounds_once(a, b, c):
    found = fma64(*(np.array([x]) for x in (a, b, c))).item()
    assert found == rounded(Fraction(a) * Fraction(b) + Fraction(c), np.float64)


@given(st.floats(1, 2), st.floats(1, 2), st.integers(-110, 60))
def test_fma_of_float64_sees_what_lies_behind_the_product(a, b, exponent):
    c = -(2.0**exponent) * a
    found = fma64(np.array([a]), np.array([b]), np.array([c])).item()
    assert found == rounded(Fraction(a) * Fraction(b) + Fraction(c), np.float64)
