"""The sum in 32 bits, which numba compiles, against numpy's in 64: the same bits, or refused."""

import numpy as np
import pytest

from tilescope.data_type import DataType
from tilescope.mma.accumulation import tensor_core_sum
from tilescope.mma.element_value import narrow_factors
from tilescope.mma.tensor_core_arithmetic import arithmetic_of

M, N = 4, 24
K = {"f16": 16, "bf16": 16, "e4m3": 32, "e5m2": 32}


@pytest.fixture(autouse=True)
def _with_numba(require):
    require("numba")


def narrow_sum(a, b, c, name):
    """D by the compiled loops; None if they refuse."""
    from tilescope.mma import narrow_sum_loop as loop

    table = narrow_factors(DataType.named(name))
    operands = []
    for codes in (a, np.ascontiguousarray(b.T)):
        values, exponents = np.empty(codes.shape, np.float32), np.empty(codes.shape, np.int16)
        places = np.arange(codes.size, dtype=np.uint32)
        if not loop.take_factors(codes.ravel(), places, 0, *table, values.ravel(), exponents.ravel()):
            return None
        operands += [values, exponents]
    d = c.copy()
    arithmetic = arithmetic_of("sm_90", "wgmma", name)
    is_taken = loop.add_tile(*operands, d, d.view(np.int32), arithmetic.fractional_bits, arithmetic.result_bits)
    return d if is_taken else None


def plain_sum(a, b, c, name):
    arithmetic = arithmetic_of("sm_90", "wgmma", name)
    return tensor_core_sum(a, b, c, arithmetic=arithmetic, a_type=DataType.named(name))


def random_codes(random, name, shape, spread):
    """Codes of finite numbers with exponents within `spread` of 0, a tenth of them zero."""
    data_type = DataType.named(name)
    values = random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread, shape, endpoint=True)
    values = np.where(random.random(shape) < 0.1, 0.0, values).astype(np.float32)
    limit = {"f16": 65504, "e4m3": 448, "e5m2": 57344}.get(name, 2.0**55)
    return np.clip(values, -limit, limit).astype(data_type.numpy).view(f"u{data_type.bits // 8}")


@pytest.mark.parametrize("name", K)
@pytest.mark.parametrize("spread", [0, 3, 12, 25])
def test_sums_of_moderate_numbers_have_the_bits_of_the_sum_in_64_bits(name, spread):
    random = np.random.default_rng(spread)
    for _ in range(20):
        a = random_codes(random, name, (M, K[name]), min(spread, 14))
        b = random_codes(random, name, (N, K[name]), min(spread, 14))
        c = (random.standard_normal((M, N)) * 2.0 ** random.integers(-spread, spread, (M, N), endpoint=True)).astype(
            np.float32
        )
        c[random.random((M, N)) < 0.2] = 0
        d = narrow_sum(a, b, c, name)
        assert d is not None
        assert d.tobytes() == plain_sum(a, b, c, name).tobytes()


@pytest.mark.parametrize("addend", [0.0, -0.0, 1.0, -(2.0**40), 2.0**-94, 3e38, -3e38, 2.0**26 - 4])
@pytest.mark.parametrize("code", [0x3FFF, 0xBFFF, 0x7BFF, 0x0001, 0x83FF, 0x0000, 0x8000])
def test_sums_at_the_ends_of_their_range(code, addend):
    """0x3FFF is the largest significand: 16 products of it fill 31 bits."""
    a = np.full((M, 16), code, np.uint16)
    for other in (code, 0x3FFF, 0xBFFF, 0x0000):
        b = np.full((N, 16), other, np.uint16)
        b[1::2, ::2] ^= 0x8000
        c = np.full((M, N), addend, np.float32)
        assert narrow_sum(a, b, c, "f16").tobytes() == plain_sum(a, b, c, "f16").tobytes()


@pytest.mark.parametrize(
    ("name", "code"),
    [("f16", 0x7C00), ("f16", 0xFE00), ("bf16", 0x7F80), ("bf16", 0x2880), ("bf16", 0x5E80), ("e4m3", 0x7F)],
)
def test_infinities_nan_and_far_exponents_are_refused(name, code):
    a = np.zeros((M, K[name]), f"u{DataType.named(name).bits // 8}")
    b = np.zeros((N, K[name]), a.dtype)
    c = np.zeros((M, N), np.float32)
    assert narrow_sum(a, b, c, name) is not None
    b[3, 5] = code
    assert narrow_sum(a, b, c, name) is None


@pytest.mark.parametrize("addend", [np.inf, -np.inf, np.nan, 2.0**-96, -1e-40])
def test_addends_that_are_not_finite_or_tiny_are_refused(addend):
    zeros = np.zeros((N, 16), np.uint16)
    c = np.zeros((M, N), np.float32)
    c[2, 7] = addend
    assert narrow_sum(zeros[:M], zeros, c, "f16") is None
