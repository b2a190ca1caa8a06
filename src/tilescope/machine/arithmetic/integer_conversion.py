"""Conversions from and to integers.

cvt.s8.s32         the low 8 bits, extended by their sign to the register
cvt.rzi.s32.f32    towards zero; too large: the largest number; NaN: 0, but 1 << (bits - 1) where a type has 64 bits
cvt.rn.f32.s64     rounded once
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Compute, constant
from tilescope.machine.arithmetic.float_conversion import TO_INTEGER, ConversionStyle
from tilescope.machine.arithmetic.float_format import FloatFormat, round_to_format
from tilescope.machine.arithmetic.float_words import clamp_to_unit, flush_subnormals, widen_to_double
from tilescope.one_rounding import Rounding


class IntegerType(NamedTuple):
    """An integer type of cvt."""

    bits: int
    is_signed: bool
    dtype: np.dtype[Any]

    @property
    def least(self) -> int:
        """The smallest integer."""
        return -(1 << self.bits - 1) if self.is_signed else 0

    @property
    def most(self) -> int:
        """The largest integer."""
        return (1 << self.bits - self.is_signed) - 1


def _integer(kind: str, bits: int) -> IntegerType:
    return IntegerType(bits, kind == "s", np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}"))


INTEGERS = {f"{kind}{bits}": _integer(kind, bits) for kind in "us" for bits in (8, 16, 32, 64)}
_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}


def _extend(values: Array, kind: IntegerType) -> Array:
    """Integers as the bits of their register: 8-bit integers are extended to 32 bits."""
    if kind.bits == 8:
        values = values.astype(np.int32 if kind.is_signed else np.uint32)
    return values.view(_WORD[values.itemsize])


def _integers(words: Array, kind: IntegerType) -> Array:
    """Words as integers of the type; 8-bit types use the low 8 bits."""
    if kind.bits == 8:
        words = words.astype(np.uint8)
    return words.view(kind.dtype)


def integer_to_integer(source: IntegerType, result: IntegerType, *, sat: bool) -> Compute:
    """The conversion between integer types: truncates, extends, or with `sat` clamps."""
    least = max(source.least, result.least)
    most = min(source.most, result.most)

    def compute(a: Array) -> Array:
        values = _integers(a, source)
        if sat:
            values = values.clip(least, most)
        return _extend(values.astype(result.dtype), result)

    return compute


def float_to_integer(form: FloatFormat, result: IntegerType, style: ConversionStyle) -> Compute:
    """The conversion from a float: rounds to an integer and clamps to its range."""
    to_integer = TO_INTEGER[style.mode]
    of_nan = 1 << result.bits - 1 if form.name == "f64" or result.bits == 64 else 0
    nan_value = np.array(of_nan, f"u{result.bits // 8}").view(result.dtype)
    # The largest 64-bit integer is not a double: results from `limit` on are replaced afterwards.
    limit = np.array(float(result.most + 1))
    least = np.array(float(result.least))

    def compute(a: Array) -> Array:
        if style.ftz:
            a = flush_subnormals(a, form)
        values = to_integer(widen_to_double(a, form))
        is_inside = values >= least
        is_inside &= values < limit
        if np.count_nonzero(is_inside) == a.size:
            return _extend(values.astype(result.dtype), result)
        nans = np.isnan(values)
        above = values >= limit
        inside = np.where(nans | above, 0.0, np.maximum(values, least))
        integers = inside.astype(result.dtype)
        if np.count_nonzero(above):
            integers = np.where(above, result.dtype.type(result.most), integers)
        if of_nan and np.count_nonzero(nans):
            integers = np.where(nans, nan_value, integers)
        return _extend(integers, result)

    return compute


def _odd_doubles(values: Array) -> Array:
    """Integers as doubles, rounded to odd: of integers beyond 53 bits the low 11 bits become one sticky bit."""
    if values.itemsize < 8:
        return values.astype(np.float64)
    magnitude = values.view(np.uint64)
    is_negative = np.zeros(values.shape, np.bool_)
    if values.dtype == np.int64:
        is_negative = values < 0
        magnitude = np.where(is_negative, constant(0, 64) - magnitude, magnitude)
    is_long = magnitude >> np.uint64(53) != 0
    cut = magnitude & ~np.uint64(0x7FF)
    odd = cut | np.uint64(0x800) * (magnitude != cut).astype(np.uint64)
    doubles = np.where(is_long, odd, magnitude).astype(np.float64)
    return np.where(is_negative, -doubles, doubles)


def _integer_to_double(values: Array, mode: Rounding) -> Array:
    """64-bit integers rounded to doubles in a rounding mode."""
    if values.itemsize < 8 or mode == "rn":
        return values.astype(np.float64)
    magnitude = values.view(np.uint64)
    is_negative = values < 0
    magnitude = np.where(is_negative, constant(0, 64) - magnitude, magnitude)
    length = np.frexp((magnitude >> np.uint64(32)).astype(np.float64))[1] + 32
    dropped = np.maximum(length - 53, 0).astype(np.uint64)
    rounded = magnitude >> dropped
    is_cut = rounded << dropped != magnitude
    if mode == "rp":
        rounded = rounded + (is_cut & ~is_negative)
    elif mode == "rm":
        rounded = rounded + (is_cut & is_negative)
    doubles: Array = np.ldexp(rounded.astype(np.float64), dropped.astype(np.int32))
    return np.where(is_negative, -doubles, doubles)


def integer_to_float(source: IntegerType, form: FloatFormat, style: ConversionStyle) -> Compute:
    """The conversion to a float, rounded once."""
    mode = style.float_mode
    word = _WORD[form.bits // 8]
    if form.name == "f32" and mode == "rn" and not style.sat:
        return lambda a: _integers(a, source).astype(np.float32).view(np.uint32)

    def compute(a: Array) -> Array:
        values = _integers(a, source)
        if form.name == "f64":
            result = _integer_to_double(values, mode).view(np.uint64)
        else:
            result = round_to_format(_odd_doubles(values), form, mode).astype(word)
        return clamp_to_unit(result, form) if style.sat else result

    return compute
