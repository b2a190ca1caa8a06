"""a * b + c with one rounding, in numpy, which has no such function.

The product of two float32 is exact in float64; its sum with a float32 is not. Rounded *to odd* (an inexact result gets a last
bit of 1), the sum still tells on which side of a tie it lies, so that a second rounding, to float32, gives the right answer:

    exact               1.0 0000000000 1        rounded to even first: a tie, and then down: wrong
    rounded to odd      1.0 0000000001          above the tie: up

float64 needs the product's error too (Dekker), and two exact sums before the odd one (Boldo and Melquiond, "Emulation of FMA
and correctly rounded sums"). Where exponents come near the ends of the range, Python's fractions do the work.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
_SPLIT = 2.0**27 + 1  # Veltkamp's: halves of 26 bits
_SAFE_EXPONENT = 400  # no product or error of such numbers leaves the range of float64


class _ExactSum(NamedTuple):
    rounded: Doubles
    error: Doubles  # what rounding took away


def fma32(a: Floats, b: Floats, c: Floats) -> Floats:
    """The sum a * b + c of float32, rounded once to nearest even.

    >>> one, tiny = np.float32([1 + 2.0**-12]), np.float32([2.0**-60])
    >>> (fma32(one, one, tiny) - np.float32(1 + 2.0**-11)).item() == 2.0**-23  # 2**-24 would be a tie without the tiny c
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = a.astype(np.float64) * b.astype(np.float64)
        return _sum_to_odd(product, c.astype(np.float64)).astype(np.float32)


def fma64(a: Doubles, b: Doubles, c: Doubles) -> Doubles:
    """The sum a * b + c of float64, rounded once to nearest even.

    >>> third = np.array([1 / 3])
    >>> fma64(third, np.array([3.0]), np.array([-1.0])).item() == -(2.0**-54)
    True
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(over="ignore", invalid="ignore"):
        plain = a * b + c
        product = a * b
        low = _product_error(a, b, product)
        partial = _exact_sum(c, low)
        whole = _exact_sum(product, partial.rounded)
        result = whole.rounded + _sum_to_odd(partial.error, whole.error)
    is_product_finite = np.isfinite(a) & np.isfinite(b)
    plain = np.where(is_product_finite & np.isinf(c), c, plain)  # however large the product is
    is_finite = is_product_finite & np.isfinite(c)
    is_far = is_finite & ~(_is_safe(a) & _is_safe(b) & _is_safe(c))
    is_zero = is_finite & (product == 0) & (c == 0)  # IEEE's sign of a zero
    result = np.where(is_finite & ~is_zero, result, plain)
    for place in zip(*np.nonzero(is_far), strict=True):
        result[place] = _by_fractions(float(a[place]), float(b[place]), float(c[place]))
    return result


def _is_safe(x: Doubles) -> npt.NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return np.abs(np.frexp(x)[1]) < _SAFE_EXPONENT


def _by_fractions(a: float, b: float, c: float) -> float:
    """The same of one element, however small or large."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        rounded = float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
    if rounded == 0:
        return 0.0 if exact > 0 else -0.0
    return rounded


def _product_error(a: Doubles, b: Doubles, product: Doubles) -> Doubles:
    """What rounding took away from the product a * b."""
    a_high = a * _SPLIT - (a * _SPLIT - a)
    b_high = b * _SPLIT - (b * _SPLIT - b)
    a_low = a - a_high
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _exact_sum(x: Doubles, y: Doubles) -> _ExactSum:
    """The sum x + y, and what its rounding took away (Knuth)."""
    rounded = x + y
    of_y = rounded - x
    return _ExactSum(rounded, (x - (rounded - of_y)) + (y - of_y))


def _sum_to_odd(x: Doubles, y: Doubles) -> Doubles:
    """The sum x + y rounded to odd: an inexact sum ends in a bit of 1."""
    rounded, error = _exact_sum(x, y)
    bits = rounded.view(np.int64)
    is_outward = (error > 0) == (rounded > 0)
    is_even_and_inexact = (bits & 1 == 0) & (error != 0) & np.isfinite(rounded)
    step = np.where(is_outward, 1, -1)
    return np.where(is_even_and_inexact, bits + step, bits).view(np.float64)
