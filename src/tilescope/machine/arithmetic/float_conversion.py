"""Conversions between single floats, and to tf32.

    cvt.rn.f16.f32     rounded once            cvt.f32.bf16     16 zeros behind it; a NaN keeps its bits
    cvt.rni.f32.f32    to an integer           cvt.f32.f32      a move

From and to f64 a NaN keeps its sign and upper bits (measured); elsewhere it becomes the NaN of results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from tilescope.machine.arithmetic.compute import Array, Compute, UnknownForm, constant
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat, round_to_format
from tilescope.machine.arithmetic.float_words import (
    WORD_OF_BITS,
    as_numbers,
    clamp_negatives,
    clamp_to_unit,
    flush_subnormals,
    is_nan,
    nearest_upper_half,
    set_canonical_nan,
    upper_half_as_f32,
    widen_to_double,
)
from tilescope.one_rounding import Rounding
from tilescope.tma.elements import rounded_to_tf32

_F32 = FORMATS["f32"]
TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


class ConversionStyle(NamedTuple):
    """The modifiers of a conversion."""

    mode: str  # a rounding of floats, a rounding to integers, "rna", "rs" or ""
    ftz: bool
    sat: bool
    relu: bool
    satfinite: bool

    @property
    def float_mode(self) -> Rounding:
        """The rounding mode; to nearest if there is none."""
        return cast("Rounding", self.mode or "rn")


def _carry_nan(words: Array, source: FloatFormat, form: FloatFormat) -> Array:
    """The NaN of conversions from and to f64: sign and upper bits are kept, and the NaN becomes quiet."""
    wide = words.astype(np.uint64)
    fraction = wide & np.uint64((1 << source.fraction_bits) - 1)
    if source.fraction_bits > form.fraction_bits:
        fraction = fraction >> np.uint64(source.fraction_bits - form.fraction_bits)
    else:
        fraction = fraction << np.uint64(form.fraction_bits - source.fraction_bits)
    sign = wide >> np.uint64(source.bits - 1) << np.uint64(form.bits - 1)
    quiet = np.uint64(form.infinity | 1 << form.fraction_bits - 1)
    result: Array = sign | quiet | fraction
    return result


def _between_floats(source: FloatFormat, form: FloatFormat, style: ConversionStyle) -> Compute:
    """Convert between formats by way of doubles; the result has 64 bits.

    Measured: .ftz does nothing before f16, and makes the NaN of results before f64.
    """
    flushes = style.ftz and source.name == "f32" and form.name != "f16"
    carries_nan = "f64" in (form.name, source.name)

    def compute(words: Array) -> Array:
        if flushes:
            words = set_canonical_nan(flush_subnormals(words, source).copy(), is_nan(words, source), source)
        values = widen_to_double(words, source)
        if style.mode in TO_INTEGER:
            values = TO_INTEGER[style.mode](values)
        if form.name == "f64":
            result = values.view(np.uint64)
        else:
            mode: Rounding = "rn" if style.mode in TO_INTEGER else style.float_mode
            result = round_to_format(values, form, mode, saturates=style.satfinite)
        if carries_nan:
            result = np.where(is_nan(words, source), _carry_nan(words, source, form), result)
        if style.ftz and form.name == "f32":
            result = flush_subnormals(result, form)
        return result

    return compute


def _f32_to_f16(words: Array) -> Array:
    result = words.view(np.float32).astype(np.float16)
    return set_canonical_nan(result.view(np.uint16), np.isnan(result), FORMATS["f16"])


def _f16_to_f32(words: Array) -> Array:
    result = words.view(np.float16).astype(np.float32)
    return set_canonical_nan(result.view(np.uint32), np.isnan(result), _F32)


def _f32_to_bf16(words: Array) -> Array:
    return nearest_upper_half(words.view(np.float32))


def bf16_to_f32(words: Array) -> Array:
    """A NaN keeps its bits."""
    return upper_half_as_f32(words).view(np.uint32)


_QUICK: dict[tuple[str, str, str], Compute] = {
    ("f16", "f32", "rn"): _f32_to_f16,
    ("bf16", "f32", "rn"): _f32_to_bf16,
    ("f32", "f16", ""): _f16_to_f32,
    ("f32", "bf16", ""): bf16_to_f32,
    ("f32", "bf16", "rn"): bf16_to_f32,
    ("f32", "bf16", "rz"): bf16_to_f32,
    ("f32", "bf16", "rm"): bf16_to_f32,
    ("f32", "bf16", "rp"): bf16_to_f32,
    ("f32", "f32", ""): np.copy,
    ("f64", "f64", ""): np.copy,
}
"""Conversions of floats without other modifiers that need no doubles: result, source, rounding. The last two are moves."""
_SMALL: dict[str, np.dtype[Any]] = {
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}


def _to_small_float(source: FloatFormat, form: FloatFormat, style: ConversionStyle) -> Compute:
    """cvt.rn.satfinite to 4, 6 or 8 bits: clamped to the largest number first, so that nothing rounds to infinity."""
    if style.mode != "rn" or not style.satfinite:
        raise UnknownForm(f"cvt to .{form.name} has .rn.satfinite")
    kind = _SMALL[form.name]
    largest = np.array([form.largest], np.uint8).view(kind).astype(np.float32)
    nan = constant(form.nan if form.has_nan else form.largest, 8)

    def compute(words: Array) -> Array:
        singles = as_numbers(words, source).astype(np.float32)
        nans = np.isnan(singles)
        np.minimum(singles, largest, out=singles)
        np.maximum(singles, -largest, out=singles)
        result: Array = singles.astype(kind).view(np.uint8)
        if np.count_nonzero(nans):
            result = np.where(nans, nan, result)
        return clamp_negatives(result, form) if style.relu else result

    return compute


def float_to_float(source: FloatFormat, form: FloatFormat, style: ConversionStyle) -> Compute:
    """The conversion between two float formats; the result has the format's width, or 8 bits."""
    if form.name in _SMALL:
        return _to_small_float(source, form, style)
    quick = _QUICK.get((form.name, source.name, style.mode))
    if quick is not None and not (style.ftz or style.sat or style.relu or style.satfinite):
        return quick
    convert = _between_floats(source, form, style)
    word = WORD_OF_BITS[form.bits]

    def compute(words: Array) -> Array:
        result: Array = convert(words)
        if style.sat:
            result = clamp_to_unit(result, form)
        if style.relu:
            result = clamp_negatives(result, form)
        return result.astype(word)

    return compute


_TF32_CUT = constant(0xFFFFE000, 32)
_TF32_STEP = constant(0x2000, 32)
_TF32_HALF = constant(0x1000, 32)
_TF32_LARGEST = constant(0x7F7FE000, 32)
_TF32_NAN = constant(0x7FFFE000, 32)
_SIGN = constant(1 << 31, 32)
F32_EXPONENT = constant(0x7F800000, 32)


def _to_tf32_away(words: Array, *, saturates: bool) -> Array:
    """cvt.rna.tf32: half a step is added to the magnitude. A NaN is truncated, and with .satfinite it is one step smaller (measured)."""
    is_finite = words & F32_EXPONENT != F32_EXPONENT
    result: Array = np.where(is_finite, words + _TF32_HALF, words) & _TF32_CUT
    if saturates:
        result = np.where(result & F32_EXPONENT == F32_EXPONENT, result - _TF32_STEP, result)
    return result


def _cut_to_tf32(words: Array) -> Array:
    return np.where(is_nan(words, _F32), _TF32_NAN, words & _TF32_CUT)


def to_tf32(style: ConversionStyle) -> Compute:
    """cvt.rn.tf32, as a tensor copy rounds; cvt.rz.tf32. NaN has all 19 bits set but the sign."""
    if style.mode == "rna":
        return lambda words: _to_tf32_away(words, saturates=style.satfinite)
    if style.mode not in ("rn", "rz"):
        raise UnknownForm("cvt.tf32.f32 has .rn, .rz or .rna")
    convert = rounded_to_tf32 if style.mode == "rn" else _cut_to_tf32

    def compute(words: Array) -> Array:
        result: Array = convert(words)
        if style.satfinite:
            is_infinite = result & ~_SIGN == F32_EXPONENT
            result = np.where(is_infinite, result & _SIGN | _TF32_LARGEST, result)
        return clamp_negatives(result, _F32) if style.relu else result

    return compute
