"""Floats as bits: the table of formats, and the function that rounds to any of them.

    bf16   s eeeeeeee fffffff          e4m3   s eeee fff     the largest pattern is NaN; no infinity; up to 448
    f16    s eeeee ffffffffff          e5m2   s eeeee ff
                                       e2m3, e3m2, e2m1: neither NaN nor infinity

Formats narrower than f64 are rounded from a double. A double that approximates a number of more bits is rounded to odd
(one_rounding.py), so that the two roundings together equal one, in every mode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.machine.arithmetic.compute import Array, constant
from tilescope.one_rounding import Rounding

ROUNDINGS: tuple[Rounding, ...] = ("rn", "rz", "rm", "rp")


class FloatFormat(NamedTuple):
    """A float format: the widths of its fields, and whether the highest exponent encodes infinity and NaN.

    >>> FORMATS["f16"].bias, hex(FORMATS["f16"].infinity), hex(FORMATS["f16"].largest), hex(FORMATS["e4m3"].largest)
    (15, '0x7c00', '0x7bff', '0x7e')
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    has_infinity: bool = True
    has_nan: bool = True

    @property
    def bits(self) -> int:
        """Bits of a value, including the sign."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << self.bits - 1

    @property
    def nan(self) -> int:
        """The canonical NaN of results: all bits but the sign."""
        return self.sign - 1

    @property
    def infinity(self) -> int:
        """Positive infinity, or the pattern in its place."""
        return (1 << self.exponent_bits) - 1 << self.fraction_bits

    @property
    def largest(self) -> int:
        """The largest finite number."""
        if self.has_infinity:
            return self.infinity - 1
        return self.nan - 1 if self.has_nan else self.nan

    @property
    def one(self) -> int:
        """The number 1."""
        return self.bias << self.fraction_bits


FORMATS = {
    row.name: row
    for row in (
        FloatFormat("f64", 11, 52),
        FloatFormat("f32", 8, 23),
        FloatFormat("bf16", 8, 7),
        FloatFormat("f16", 5, 10),
        FloatFormat("e5m2", 5, 2),
        FloatFormat("e4m3", 4, 3, has_infinity=False),
        FloatFormat("e3m2", 3, 2, has_infinity=False, has_nan=False),
        FloatFormat("e2m3", 2, 3, has_infinity=False, has_nan=False),
        FloatFormat("e2m1", 2, 1, has_infinity=False, has_nan=False),
    )
}
_MAGNITUDE = constant((1 << 63) - 1, 64)
_FRACTION = constant((1 << 52) - 1, 64)
_HIDDEN = constant(1 << 52, 64)
_INFINITY = constant(0x7FF << 52, 64)
_52 = constant(52, 64)
_63 = constant(63, 64)
_ONE = constant(1, 64)
_ALL = constant(-1, 64)


def round_to_format(values: Array, form: FloatFormat, mode: Rounding = "rn", *, saturates: bool = False) -> Array:
    """Round doubles to a format; the bits are returned as 64-bit integers.

    With `saturates` (.satfinite) numbers that are too large, including infinity, become the largest number.
    A NaN becomes the format's NaN, or the largest number if the format has none.

    >>> [hex(word) for word in round_to_format(np.array([1.0, 1e-8, 1e6, -0.0]), FORMATS["f16"])]
    ['0x3c00', '0x0', '0x7c00', '0x8000']
    >>> [hex(word) for word in round_to_format(np.array([449.0, 464.0, 465.0]), FORMATS["e4m3"], saturates=True)]
    ['0x7e', '0x7e', '0x7e']
    """
    bits = values.view(np.uint64)
    is_negative = bits >> _63
    magnitude = bits & _MAGNITUDE
    exponent = magnitude >> _52
    significand = np.where(exponent > 0, magnitude & _FRACTION | _HIDDEN, magnitude & _FRACTION)
    stored_exponent = exponent.view(np.int64) - (1023 - form.bias)
    below_normal = np.maximum(1 - stored_exponent, 0)
    dropped = np.minimum(52 - form.fraction_bits + below_normal, 63).view(np.uint64)
    rounded = significand >> dropped
    remainder = significand & ~(_ALL << dropped)
    rounded = rounded + _rounds_up(rounded, remainder, dropped, is_negative, mode)
    # The hidden bit of the significand adds 1 to the exponent field, and a carry out of it adds 1 more.
    scale = (np.maximum(stored_exponent, 1) - 1).view(np.uint64) << np.uint64(form.fraction_bits)
    result = _limit(rounded + scale, magnitude, is_negative, form, mode, saturates=saturates)
    result = result | is_negative << np.uint64(form.bits - 1)
    nan = np.uint64(form.nan if form.has_nan else form.largest)
    return np.where(magnitude > _INFINITY, nan, result)


def _rounds_up(kept: Array, rest: Array, dropped: Array, is_negative: Array, mode: Rounding) -> Array:
    """1 where the dropped bits round the magnitude up, else 0."""
    if mode == "rz":
        return np.zeros_like(kept)
    if mode in ("rp", "rm"):
        towards = np.uint64(0 if mode == "rp" else 1)
        is_up: Array = (rest != 0) & (is_negative == towards)
        return is_up.astype(np.uint64)
    half = _ONE << (dropped - _ONE)  # `dropped` is 0 only for f64, which is never rounded here
    if mode == "rna":
        is_up = rest >= half
    else:
        is_up = (rest > half) | ((rest == half) & (kept & _ONE == 1))
    return is_up.astype(np.uint64)


def _limit(
    result: Array, magnitude: Array, is_negative: Array, form: FloatFormat, mode: Rounding, *, saturates: bool
) -> Array:
    """Replace magnitudes beyond the largest number by that number or by infinity, as the rounding mode demands."""
    is_infinite = magnitude == _INFINITY
    largest = np.uint64(form.largest)
    is_large = (result > largest) | is_infinite
    if saturates or not form.has_infinity:
        return np.where(is_large, largest, result)
    outside = np.full_like(result, form.infinity)
    if mode == "rz":
        outside = np.where(is_infinite, outside, largest)
    elif mode in ("rp", "rm"):
        away = np.uint64(0 if mode == "rp" else 1)
        outside = np.where(is_infinite | (is_negative == away), outside, largest)
    return np.where(is_large, outside, result)
