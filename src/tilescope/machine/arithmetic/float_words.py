"""Bits as numbers and back: views that numpy computes with, and the effect of .ftz, .sat, .relu and NaN on results.

    f32, f16, f64    the same bits as numpy's own floats            bf16    the upper half of an f32

Measured on an H200. A NaN result has all bits set but the sign (0x7FFFFFFF, 0x7FFF). f64 propagates the NaN of an operand,
made quiet, and generates 0xFFF8000000000000.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tilescope.machine.arithmetic.compute import Array, constant
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat

FLOAT_OF_BITS: dict[int, np.dtype[Any]] = {16: np.dtype("f2"), 32: np.dtype("f4"), 64: np.dtype("f8")}
WORD_OF_BITS: dict[int, np.dtype[Any]] = {16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}
HALF_BITS = constant(16, 32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_QUIET = constant(1 << 51, 64)
_GENERATED_NAN = constant(0xFFF8 << 48, 64)
_F64 = FORMATS["f64"]
_BF16 = FORMATS["bf16"]


def upper_half_as_f32(words: Array) -> Array:
    """bf16 numbers as f32: the same bits followed by 16 zeros."""
    wide = words.astype(np.uint32)
    wide <<= HALF_BITS
    return wide.view(np.float32)


def nearest_upper_half(singles: Array) -> Array:
    """f32 numbers rounded to bf16, to nearest even, as bits."""
    return set_canonical_nan(singles.astype(_BFLOAT16).view(np.uint16), np.isnan(singles), _BF16)


def as_numbers(words: Array, form: FloatFormat) -> Array:
    """Floats of a numpy type with the same order as the format."""
    return upper_half_as_f32(words) if form.name == "bf16" else words.view(FLOAT_OF_BITS[form.bits])


def widen_to_double(words: Array, form: FloatFormat) -> Array:
    """The numbers that bits encode, as doubles; the conversion is exact.

    >>> widen_to_double(np.array([0x3F80, 0x0001], np.uint16), FORMATS["bf16"]).tolist()
    [1.0, 9.183549615799121e-41]
    """
    if form.name == "bf16":
        return upper_half_as_f32(words).astype(np.float64)
    if form.name == "f64":
        return words.view(np.float64)
    return words.view(np.float32 if words.itemsize == 4 else np.float16).astype(np.float64)


def is_nan(words: Array, form: FloatFormat) -> Array:
    """Whether words of a format with infinities are NaN."""
    result: Array = words & words.dtype.type(form.nan) > words.dtype.type(form.infinity)
    return result


def set_canonical_nan(words: Array, nans: Array, form: FloatFormat) -> Array:
    """Write the format's canonical NaN into `words`, in place, where `nans` is set."""
    if np.count_nonzero(nans):
        np.putmask(words, nans, words.dtype.type(form.nan))
    return words


def propagate_nan(result: Array, *sources: Array) -> Array:
    """Give f64 NaN results the NaN of the last source that is NaN, made quiet, or else the generated NaN."""
    nans = np.isnan(result.view(np.float64))
    if not np.count_nonzero(nans):
        return result
    chosen = np.broadcast_to(_GENERATED_NAN, result.shape)
    for source in sources:
        chosen = np.where(is_nan(source, _F64), source | _QUIET, chosen)
    return np.where(nans, chosen, result)


class _Marks(NamedTuple):
    """Bit patterns of a format, as arrays without dimensions."""

    rest: Array  # all bits but the sign
    sign: Array
    one: Array  # the integer
    largest_subnormal: Array


def _make_marks(form: FloatFormat) -> _Marks:
    width = max(8, form.bits)
    largest_subnormal = (1 << form.fraction_bits) - 1
    return _Marks(*(constant(word, width) for word in (form.nan, form.sign, 1, largest_subnormal)))


_MARKS = {name: _make_marks(FORMATS[name]) for name in ("f16", "bf16", "f32", "f64")}


def flush_subnormals(words: Array, form: FloatFormat) -> Array:
    """Flush subnormal numbers to zeros of the same sign (.ftz).

    >>> [hex(word) for word in flush_subnormals(np.array([0x80000001, 0x00800000], np.uint32), FORMATS["f32"])]
    ['0x80000000', '0x800000']
    """
    marks = _MARKS[form.name]
    below_magnitude: Array = words & marks.rest
    below_magnitude -= marks.one  # zeros, which are unchanged, become the largest words
    is_subnormal = below_magnitude < marks.largest_subnormal
    if not np.count_nonzero(is_subnormal):
        return words
    return np.where(is_subnormal, words & marks.sign, words)


def clamp_to_unit(words: Array, form: FloatFormat) -> Array:
    """Clamp results to [0, 1] (.sat): negative numbers and NaN become 0.

    >>> [hex(word) for word in clamp_to_unit(np.array([0x4000, 0x3800, 0xBC00, 0x7FFF], np.uint16), FORMATS["f16"])]
    ['0x3c00', '0x3800', '0x0', '0x0']
    """
    kind = words.dtype.type
    numbers = np.where(words > kind(form.infinity), kind(0), words)
    result: Array = np.minimum(numbers, kind(form.one))
    return result


def clamp_negatives(words: Array, form: FloatFormat) -> Array:
    """Replace negative numbers by 0 (.relu). The canonical NaN is positive and is unchanged."""
    kind = words.dtype.type
    return np.where(words & kind(form.sign) != 0, kind(0), words)
