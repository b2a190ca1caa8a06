"""Sums, products and quotients without a second rounding.

A number of more than 53 bits is kept as a double "rounded to odd": cut, with the last bit set if anything was cut off.
Rounding that once more, to fewer bits and in any direction, gives what rounding the exact number would have given.

    f32   a + b, a * b + c     the double sum and its error (two_sum), made odd; then `rounded` to f32
          a / b, sqrt(a)       the double quotient is never half way between two f32 unless it is exact: 53 > 2 * 24 + 2
    f64   a + b, a * b …       the double result and the sign of its error decide the direction (`round_directed`)

Doubles at the ends of their range lose the error. Those lanes are computed with Python's integers instead: `of_integers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]  # of float64, if not specified
Rounding = Literal["rn", "rz", "rm", "rp", "rna"]  # to nearest even, towards zero, down, up, to nearest away from zero
_ONE = np.array(1, np.uint64)
_MINUS_ONE = np.array((1 << 64) - 1, np.uint64)
_SPLITTER = np.array(134217729.0)  # 2^27 + 1


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum, and what its rounding left out: a + b = sum + error exactly.

    >>> two_sum(np.array([1.0]), np.array([2.0**-60]))
    (array([1.]), array([8.67361738e-19]))
    """
    total = a + b
    b_part = total - a
    error: Array = (a - (total - b_part)) + (b - b_part)
    return total, error


def _split(a: Array) -> tuple[Array, Array]:
    """A double as the sum of two of 26 bits."""
    scaled = a * _SPLITTER
    high = scaled - (scaled - a)
    return high, a - high


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The product, and what its rounding left out."""
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error: Array = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def made_odd(total: Array, error: Array) -> Array:
    """The double next to total + error whose last bit is set; `total` itself where there is no error.

    >>> made_odd(np.array([1.0]), np.array([-1e-30])) < 1.0
    array([ True])
    """
    is_cut = np.abs(error) > 0  # False for the NaN that an infinity leaves
    if not np.count_nonzero(is_cut):
        return total
    bits = total.view(np.uint64)
    is_even = bits & _ONE == 0
    grows = (error > 0) == (total > 0)
    step = np.where(grows, _ONE, _MINUS_ONE)
    return np.where(is_cut & is_even, bits + step, bits).view(np.float64)


def odd_sum(a: Array, b: Array, mode: Rounding) -> Array:
    """The sum a + b, rounded to odd. A sum of 0 out of numbers that are not both +0 is -0 when rounding down."""
    total, error = two_sum(a, b)
    odd = made_odd(total, error)
    if mode == "rm":
        either_negative = np.signbit(a) | np.signbit(b)
        odd = np.where((odd == 0) & either_negative, -0.0, odd)
    return odd


def round_directed(result: Array, error: Array, mode: Rounding) -> Array:
    """The double that rounding in `mode` gives, from the nearest one and the sign of what it left out."""
    if mode == "rn":
        return result
    if mode == "rm":
        steps = error < 0
        target = -np.inf
    elif mode == "rp":
        steps = error > 0
        target = np.inf
    else:
        steps = np.where(result > 0, error < 0, error > 0)
        return np.where(steps, np.nextafter(result, 0.0), result)
    return np.where(steps, np.nextafter(result, target), result)


def _exponent(values: Array) -> Array:
    """Stored exponents of doubles: 0 for zeros and subnormals, 2047 for infinities and NaN."""
    return (values.view(np.uint64) >> np.uint64(52)).view(np.int64) & 0x7FF


def _is_finite(*sources: Array) -> Array:
    finite = np.isfinite(sources[0])
    for source in sources[1:]:
        finite = finite & np.isfinite(source)
    return finite


_Exact = Callable[..., Fraction]


def of_integers(result: Array, hard: Array, exact: _Exact, sources: tuple[Array, ...], mode: Rounding) -> Array:
    """`result` with the lanes in `hard` computed by `exact` on fractions, then rounded."""
    if not np.count_nonzero(hard):
        return result
    result = result.copy()
    for lane in np.flatnonzero(hard):
        number = exact(*[Fraction(float(source[lane])) for source in sources])
        result[lane] = rounded_fraction(number, mode)
    return result


def rounded_fraction(number: Fraction, mode: Rounding) -> float:
    """A fraction as a double. A sum that is 0 is -0 when rounding down.

    >>> rounded_fraction(Fraction(1, 3), "rn") == 1 / 3, rounded_fraction(Fraction(1, 3), "rp") > 1 / 3
    (True, True)
    """
    if number == 0:
        return -0.0 if mode == "rm" else 0.0
    magnitude = abs(number)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum_exponent = max(exponent - 52, -1074)
    quanta = magnitude / Fraction(2) ** quantum_exponent
    count = math.floor(quanta)
    remainder = quanta - count
    towards_infinity = {"rp": number > 0, "rm": number < 0}
    if mode == "rn":
        count += remainder > Fraction(1, 2) or (remainder == Fraction(1, 2) and count % 2 == 1)
    elif towards_infinity.get(mode, False):
        count += remainder > 0
    if count.bit_length() + quantum_exponent > 1024:
        stays_finite = mode == "rz" or (mode != "rn" and not towards_infinity[mode])
        value = math.ldexp((1 << 53) - 1, 971) if stays_finite else math.inf
    else:
        value = math.ldexp(count, quantum_exponent)
    return value if number > 0 else -value


_LOW_EXPONENT = 1023 - 900  # products below lose bits of their error
_HIGH_EXPONENT = 1023 + 900


def _is_out_of_reach(*values: Array) -> Array:
    """Whether a double is so large or small (but not 0) that errors computed from it may not be doubles."""
    hard = np.zeros(values[0].shape, np.bool_)
    for value in values:
        exponent = _exponent(value)
        hard = hard | (exponent > _HIGH_EXPONENT) | ((exponent < _LOW_EXPONENT) & (value != 0))
    return hard


def _zero_when_rounding_down(result: Array, *sources: Array) -> Array:
    """-0 where a sum of `sources` is 0 and one of them is negative."""
    either_negative = np.zeros(result.shape, np.bool_)
    for source in sources:
        either_negative = either_negative | np.signbit(source)
    return np.where((result == 0) & either_negative, -0.0, result)


def double_sum(a: Array, b: Array, mode: Rounding) -> Array:
    """The sum of doubles, rounded once in any mode."""
    if mode == "rn":
        return a + b
    total, error = two_sum(a, b)
    result = round_directed(total, error, mode)
    if mode == "rm":
        result = _zero_when_rounding_down(result, a, b)
    hard = _is_finite(a, b) & (_exponent(total) > _HIGH_EXPONENT)
    return of_integers(result, hard, lambda x, y: x + y, (a, b), mode)


def double_product(a: Array, b: Array, mode: Rounding) -> Array:
    """The product of doubles."""
    if mode == "rn":
        return a * b
    product, error = two_product(a, b)
    hard = _is_finite(a, b) & (a != 0) & (b != 0) & _is_out_of_reach(a, b, product)
    hard = hard | (_is_finite(a, b) & (a != 0) & (b != 0) & (product == 0))
    return of_integers(round_directed(product, error, mode), hard, lambda x, y: x * y, (a, b), mode)


def double_fma(a: Array, b: Array, c: Array, mode: Rounding) -> Array:
    """The fma of doubles, a * b + c (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums").

    The product and its error, and c, are three doubles; the smallest two are added to odd, then the largest to that.
    """
    product, low = two_product(a, b)
    upper, upper_error = two_sum(c, low)
    total, total_error = two_sum(product, upper)
    tail, tail_error = two_sum(upper_error, total_error)
    result, error = two_sum(total, made_odd(tail, tail_error))
    result = round_directed(result, error, mode)
    is_exceptional = ~_is_finite(a, b, c)
    is_zero = (a == 0) | (b == 0)
    plain = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, product + c)
    if mode == "rm":
        plain = _zero_when_rounding_down(plain, product, c)
        result = _zero_when_rounding_down(result, product, c)
    result = np.where(is_exceptional | is_zero, plain, result)
    hard = ~is_exceptional & ~is_zero & (_is_out_of_reach(a, b, c, product) | (product == 0) | (_exponent(result) == 0))
    return of_integers(result, hard, lambda x, y, z: x * y + z, (a, b, c), mode)


def double_quotient(a: Array, b: Array, mode: Rounding) -> Array:
    """The quotient of doubles."""
    quotient = a / b
    if mode == "rn":
        return quotient
    product, product_error = two_product(quotient, b)
    remainder = (a - product) - product_error
    error = np.where(b > 0, remainder, -remainder)
    is_plain = _is_finite(a, b) & (a != 0) & (b != 0)
    result = np.where(is_plain, round_directed(quotient, error, mode), quotient)
    hard = is_plain & (_is_out_of_reach(a, b, quotient) | (quotient == 0))
    return of_integers(result, hard, lambda x, y: x / y, (a, b), mode)


def double_root(a: Array, mode: Rounding) -> Array:
    """The square root of doubles. Numbers at the ends of the range are scaled by a power of 4 first."""
    root = np.sqrt(a)
    if mode == "rn":
        return root
    scale = np.where(a < 1e-200, 2.0**200, np.where(a > 1e200, 2.0**-200, 1.0))
    scaled = a * scale * scale
    scaled_root = np.sqrt(scaled)
    square, square_error = two_product(scaled_root, scaled_root)
    error = (scaled - square) - square_error
    result: Array = round_directed(scaled_root, error, mode) / scale
    return np.where(np.isfinite(root) & (a != 0), result, root)


def fma32(
    a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], c: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """The sum a * b + c of float32, rounded once to nearest even.

    >>> one, tiny = np.float32([1 + 2.0**-12]), np.float32([2.0**-60])
    >>> (fma32(one, one, tiny) - np.float32(1 + 2.0**-11)).item() == 2.0**-23  # 2**-24 would be a tie without the tiny c
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        return odd_sum(product, c.astype(np.float64), "rn").astype(np.float32)


def fma64(a: Array, b: Array, c: Array, mode: Rounding = "rn") -> npt.NDArray[np.float64]:
    """The sum a * b + c of float64, rounded once; arrays of any shapes that numpy can broadcast.

    >>> third = np.array([1 / 3])
    >>> fma64(third, np.array([3.0]), np.array([-1.0])).item() == -(2.0**-54)
    True
    """
    factors = np.broadcast_arrays(a, b, c)
    flat = [factor.reshape(-1) for factor in factors]
    with np.errstate(over="ignore", invalid="ignore"):
        return double_fma(flat[0], flat[1], flat[2], mode).reshape(factors[0].shape)
