"""Floats as bits: one table of formats, and the one function that rounds to any of them.

    bf16   s eeeeeeee fffffff          e4m3   s eeee fff     the largest pattern is NaN, no infinity: up to 448
    f16    s eeeee ffffffffff          e5m2   s eeeee ff
                                       e2m3, e3m2, e2m1: neither NaN nor infinity

Everything narrower than f64 is rounded from a double. A double that stands for a number of more bits has its last bit
set ("rounded to odd", exact.py), so that one rounding comes out whatever the mode.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from tilescope.machine.arithmetic.compute import Array, constant

Rounding = Literal["rn", "rz", "rm", "rp", "rna"]
ROUNDINGS: tuple[Rounding, ...] = ("rn", "rz", "rm", "rp")


class FloatFormat(NamedTuple):
    """How the bits of a float are divided, and what the highest exponent means.

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
        """Bits of a value, the sign among them."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """What is taken off the stored exponent."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << self.bits - 1

    @property
    def nan(self) -> int:
        """The NaN that results have: all bits but the sign."""
        return self.sign - 1

    @property
    def infinity(self) -> int:
        """Positive infinity, or the pattern that would be it."""
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

_SIGN = constant(1 << 63, 64)
_MAGNITUDE = constant((1 << 63) - 1, 64)
_FRACTION = constant((1 << 52) - 1, 64)
_HIDDEN = constant(1 << 52, 64)
_INFINITY = constant(0x7FF << 52, 64)
_52 = constant(52, 64)
_63 = constant(63, 64)
_ONE = constant(1, 64)
_ALL = constant(-1, 64)


class _Marks(NamedTuple):
    """Bit patterns of a format, as arrays without dimensions."""

    rest: Array  # all bits but the sign
    sign: Array
    one: Array  # the integer
    largest_subnormal: Array


def _marks(form: FloatFormat) -> _Marks:
    width = max(8, form.bits)
    largest_subnormal = (1 << form.fraction_bits) - 1
    return _Marks(*(constant(word, width) for word in (form.nan, form.sign, 1, largest_subnormal)))


_MARKS = {name: _marks(FORMATS[name]) for name in ("f16", "bf16", "f32", "f64")}


def is_nan(words: Array, form: FloatFormat) -> Array:
    """Whether bits of a format with infinities are a NaN."""
    result: Array = words & words.dtype.type(form.nan) > words.dtype.type(form.infinity)
    return result


def flushed(words: Array, form: FloatFormat) -> Array:
    """Subnormal numbers as zeros of their sign (.ftz).

    >>> [hex(word) for word in flushed(np.array([0x80000001, 0x00800000], np.uint32), FORMATS["f32"])]
    ['0x80000000', '0x800000']
    """
    marks = _MARKS[form.name]
    below_magnitude: Array = words & marks.rest
    below_magnitude -= marks.one  # zeros, which stay, become the largest words
    is_subnormal = below_magnitude < marks.largest_subnormal
    if not np.count_nonzero(is_subnormal):
        return words
    return np.where(is_subnormal, words & marks.sign, words)


def saturated(words: Array, form: FloatFormat) -> Array:
    """Results clamped to [0, 1] (.sat): negative numbers and NaN become 0.

    >>> [hex(word) for word in saturated(np.array([0x4000, 0x3800, 0xBC00, 0x7FFF], np.uint16), FORMATS["f16"])]
    ['0x3c00', '0x3800', '0x0', '0x0']
    """
    kind = words.dtype.type
    numbers = np.where(words > kind(form.infinity), kind(0), words)
    result: Array = np.minimum(numbers, kind(form.one))
    return result


def without_negatives(words: Array, form: FloatFormat) -> Array:
    """Results with 0 instead of negative numbers (.relu). A NaN of results is positive, and stays."""
    kind = words.dtype.type
    return np.where(words & kind(form.sign) != 0, kind(0), words)


def widened(words: Array, form: FloatFormat) -> Array:
    """The numbers that bits stand for, as doubles: exact.

    >>> widened(np.array([0x3F80, 0x0001], np.uint16), FORMATS["bf16"]).tolist()
    [1.0, 9.183549615799121e-41]
    """
    if form.name == "bf16":
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if form.name == "f64":
        return words.view(np.float64)
    return words.view(np.float32 if words.itemsize == 4 else np.float16).astype(np.float64)


def rounded(values: Array, form: FloatFormat, mode: Rounding = "rn", *, saturates: bool = False) -> Array:
    """Bits of doubles rounded to a format, as integers of 64 bits.

    With `saturates` (.satfinite) what is too large, infinity too, becomes the largest number.
    A NaN gives the format's NaN, or the largest number if it has none.

    >>> [hex(word) for word in rounded(np.array([1.0, 1e-8, 1e6, -0.0]), FORMATS["f16"])]
    ['0x3c00', '0x0', '0x7c00', '0x8000']
    >>> [hex(word) for word in rounded(np.array([449.0, 464.0, 465.0]), FORMATS["e4m3"], saturates=True)]
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
    kept = significand >> dropped
    rest = significand & ~(_ALL << dropped)
    kept = kept + _rounds_up(kept, rest, dropped, is_negative, mode)
    # A significand has its hidden bit, which counts as one exponent: a carry out of it moves the exponent by itself.
    scale = (np.maximum(stored_exponent, 1) - 1).view(np.uint64) << np.uint64(form.fraction_bits)
    result = _limited(kept + scale, magnitude, is_negative, form, mode, saturates=saturates)
    result = result | is_negative << np.uint64(form.bits - 1)
    nan = np.uint64(form.nan if form.has_nan else form.largest)
    return np.where(magnitude > _INFINITY, nan, result)


def _rounds_up(kept: Array, rest: Array, dropped: Array, is_negative: Array, mode: Rounding) -> Array:
    """1 where the bits that are dropped make the rest larger in magnitude, else 0."""
    if mode == "rz":
        return np.zeros_like(kept)
    if mode in ("rp", "rm"):
        towards = np.uint64(0 if mode == "rp" else 1)
        is_up: Array = (rest != 0) & (is_negative == towards)
        return is_up.astype(np.uint64)
    half = _ONE << (dropped - _ONE)  # `dropped` is 0 for f64 alone, which is never rounded here
    if mode == "rna":
        is_up = rest >= half
    else:
        is_up = (rest > half) | ((rest == half) & (kept & _ONE == 1))
    return is_up.astype(np.uint64)


def _limited(
    result: Array, magnitude: Array, is_negative: Array, form: FloatFormat, mode: Rounding, *, saturates: bool
) -> Array:
    """Magnitudes beyond the largest number: that number, or infinity, as the rounding leads."""
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
