"""Conversions: cvt between integers and floats of all widths, packed pairs, and cvt.pack.

cvt.rzi.s32.f32      towards zero; too large: the largest number; NaN: 0, but 1 << (bits - 1) where a type has 64 bits
cvt.rn.f16x2.f32     two operands: the first into the upper half
cvt.s8.s32           the low 8 bits, extended by sign to the register
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from tilescope.machine.arithmetic.compute import Array, Compute, Modifiers, Operation, UnknownForm, constant, lanes
from tilescope.machine.arithmetic.float_format import (
    FORMATS,
    ROUNDINGS,
    FloatFormat,
    Rounding,
    flushed,
    is_nan,
    rounded,
    saturated,
    widened,
    without_negatives,
)
from tilescope.machine.arithmetic.floating import as_numbers, canonical, nearest_upper_half, upper_half_as_f32
from tilescope.tma.elements import rounded_to_tf32


class _Integer(NamedTuple):
    """An integer type of cvt."""

    bits: int
    is_signed: bool
    dtype: np.dtype[Any]

    @property
    def least(self) -> int:
        return -(1 << self.bits - 1) if self.is_signed else 0

    @property
    def most(self) -> int:
        return (1 << self.bits - self.is_signed) - 1


def _integer(kind: str, bits: int) -> _Integer:
    return _Integer(bits, kind == "s", np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}"))


_INTEGERS = {f"{kind}{bits}": _integer(kind, bits) for kind in "us" for bits in (8, 16, 32, 64)}
_FLOATS = ("f16", "bf16", "f32", "f64")
_F32 = FORMATS["f32"]
_F64 = FORMATS["f64"]
_PAIRS_OF_8 = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m3x2": "e2m3", "e3m2x2": "e3m2", "e2m1x2": "e2m1"}
_PAIRS_OF_16 = {"f16x2": "f16", "bf16x2": "bf16"}
_WORDS = (*_INTEGERS, *_FLOATS, *_PAIRS_OF_8, *_PAIRS_OF_16, "tf32", "ue8m0x2")
_TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _source_register(type_name: str) -> str:
    return f"{type_name[0]}16" if type_name in ("u8", "s8") else type_name


def _result_register(type_name: str) -> str:
    return f"{type_name[0]}32" if type_name in ("u8", "s8") else type_name


_WORD: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("u2"), 4: np.dtype("u4"), 8: np.dtype("u8")}


def _extended(values: Array, kind: _Integer) -> Array:
    """Integers of a type as bits of its register: 8 bits become 32."""
    if kind.bits == 8:
        values = values.astype(np.int32 if kind.is_signed else np.uint32)
    return values.view(_WORD[values.itemsize])


def _integers(words: Array, kind: _Integer) -> Array:
    """Words as integers of the type; of 8 bits, their low ones."""
    if kind.bits == 8:
        words = words.astype(np.uint8)
    return words.view(kind.dtype)


class _Style(NamedTuple):
    """The modifiers of a conversion."""

    mode: str  # a rounding of floats, a rounding to integers, "rna", "rs" or ""
    ftz: bool
    sat: bool
    relu: bool
    satfinite: bool

    @property
    def float_mode(self) -> Rounding:
        """The rounding mode; to nearest where none is given."""
        return cast("Rounding", self.mode or "rn")


# ------------------------------------------------------------------------------------------------- integers


def _integer_to_integer(source: _Integer, result: _Integer, *, sat: bool) -> Compute:
    least = max(source.least, result.least)
    most = min(source.most, result.most)

    def compute(a: Array) -> Array:
        values = _integers(a, source)
        if sat:
            values = values.clip(least, most)
        return _extended(values.astype(result.dtype), result)

    return compute


def _float_to_integer(form: FloatFormat, result: _Integer, style: _Style) -> Compute:
    to_integer = _TO_INTEGER[style.mode]
    of_nan = 1 << result.bits - 1 if form.name == "f64" or result.bits == 64 else 0
    nan_value = np.array(of_nan, f"u{result.bits // 8}").view(result.dtype)
    # The largest integer is no double if it has 64 bits: from `limit` on it is written in afterwards.
    limit = np.array(float(result.most + 1))
    least = np.array(float(result.least))

    def compute(a: Array) -> Array:
        if style.ftz:
            a = flushed(a, form)
        values = to_integer(widened(a, form))
        is_inside = values >= least
        is_inside &= values < limit
        if np.count_nonzero(is_inside) == a.size:
            return _extended(values.astype(result.dtype), result)
        nans = np.isnan(values)
        above = values >= limit
        inside = np.where(nans | above, 0.0, np.maximum(values, least))
        integers = inside.astype(result.dtype)
        if np.count_nonzero(above):
            integers = np.where(above, result.dtype.type(result.most), integers)
        if of_nan and np.count_nonzero(nans):
            integers = np.where(nans, nan_value, integers)
        return _extended(integers, result)

    return compute


def _odd_doubles(values: Array) -> Array:
    """Integers as doubles; those of more than 53 bits lose their low 11, of which the last one tells whether they were 0."""
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
    """Integers of 64 bits as the doubles that a mode gives."""
    if values.itemsize < 8 or mode == "rn":
        return values.astype(np.float64)
    magnitude = values.view(np.uint64)
    is_negative = values < 0
    magnitude = np.where(is_negative, constant(0, 64) - magnitude, magnitude)
    length = np.frexp((magnitude >> np.uint64(32)).astype(np.float64))[1] + 32
    dropped = np.maximum(length - 53, 0).astype(np.uint64)
    kept = magnitude >> dropped
    is_cut = kept << dropped != magnitude
    if mode == "rp":
        kept = kept + (is_cut & ~is_negative)
    elif mode == "rm":
        kept = kept + (is_cut & is_negative)
    doubles: Array = np.ldexp(kept.astype(np.float64), dropped.astype(np.int32))
    return np.where(is_negative, -doubles, doubles)


def _integer_to_float(source: _Integer, form: FloatFormat, style: _Style) -> Compute:
    mode = style.float_mode
    word = _WORD[form.bits // 8]
    if form.name == "f32" and mode == "rn" and not style.sat:
        return lambda a: _integers(a, source).astype(np.float32).view(np.uint32)

    def compute(a: Array) -> Array:
        values = _integers(a, source)
        if form.name == "f64":
            result = _integer_to_double(values, mode).view(np.uint64)
        else:
            result = rounded(_odd_doubles(values), form, mode).astype(word)
        return saturated(result, form) if style.sat else result

    return compute


# ------------------------------------------------------------------------------------------------- floats


def _carried_nan(words: Array, source: FloatFormat, form: FloatFormat) -> Array:
    """NaN as conversions from and to f64 leave them: sign and upper bits kept, made quiet."""
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


def _between_floats(source: FloatFormat, form: FloatFormat, style: _Style) -> Compute:
    """Bits of one format as bits of another, in 64 bits, through doubles.

    Measured: .ftz does nothing before f16, and makes the NaN of results before f64.
    """
    flushes = style.ftz and source.name == "f32" and form.name != "f16"
    carries_nan = "f64" in (form.name, source.name)

    def compute(words: Array) -> Array:
        if flushes:
            words = canonical(flushed(words, source).copy(), is_nan(words, source), source)
        values = widened(words, source)
        if style.mode in _TO_INTEGER:
            values = _TO_INTEGER[style.mode](values)
        if form.name == "f64":
            result = values.view(np.uint64)
        else:
            mode: Rounding = "rn" if style.mode in _TO_INTEGER else style.float_mode
            result = rounded(values, form, mode, saturates=style.satfinite)
        if carries_nan:
            result = np.where(is_nan(words, source), _carried_nan(words, source, form), result)
        if style.ftz and form.name == "f32":
            result = flushed(result, form)
        return result

    return compute


def _f32_to_f16(words: Array) -> Array:
    result = words.view(np.float32).astype(np.float16)
    return canonical(result.view(np.uint16), np.isnan(result), FORMATS["f16"])


def _f16_to_f32(words: Array) -> Array:
    result = words.view(np.float16).astype(np.float32)
    return canonical(result.view(np.uint32), np.isnan(result), _F32)


_16 = constant(16, 32)
_1 = constant(1, 32)


def _f32_to_bf16(words: Array) -> Array:
    return nearest_upper_half(words.view(np.float32))


def _bf16_to_f32(words: Array) -> Array:
    """A NaN keeps its bits."""
    return upper_half_as_f32(words).view(np.uint32)


_QUICK: dict[tuple[str, str, str], Compute] = {
    ("f16", "f32", "rn"): _f32_to_f16,
    ("bf16", "f32", "rn"): _f32_to_bf16,
    ("f32", "f16", ""): _f16_to_f32,
    ("f32", "bf16", ""): _bf16_to_f32,
    ("f32", "bf16", "rn"): _bf16_to_f32,
    ("f32", "bf16", "rz"): _bf16_to_f32,
    ("f32", "bf16", "rm"): _bf16_to_f32,
    ("f32", "bf16", "rp"): _bf16_to_f32,
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


def _to_small_float(source: FloatFormat, form: FloatFormat, style: _Style) -> Compute:
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
        return without_negatives(result, form) if style.relu else result

    return compute


def _float_to_float(source: FloatFormat, form: FloatFormat, style: _Style) -> Compute:
    """A conversion of floats; the result has the format's width, or 8 bits."""
    if form.name in _SMALL:
        return _to_small_float(source, form, style)
    quick = _QUICK.get((form.name, source.name, style.mode))
    if quick is not None and not (style.ftz or style.sat or style.relu or style.satfinite):
        return quick
    convert = _between_floats(source, form, style)
    word = _WORD[form.bits // 8]

    def compute(words: Array) -> Array:
        result: Array = convert(words)
        if style.sat:
            result = saturated(result, form)
        if style.relu:
            result = without_negatives(result, form)
        return result.astype(word)

    return compute


# ------------------------------------------------------------------------------------------------- tf32

_TF32_CUT = constant(0xFFFFE000, 32)
_TF32_STEP = constant(0x2000, 32)
_TF32_HALF = constant(0x1000, 32)
_TF32_LARGEST = constant(0x7F7FE000, 32)
_TF32_NAN = constant(0x7FFFE000, 32)
_SIGN = constant(1 << 31, 32)
_EXPONENT = constant(0x7F800000, 32)


def _to_tf32_away(words: Array, *, saturates: bool) -> Array:
    """cvt.rna.tf32: half a step is added to the magnitude. NaN is cut, and with .satfinite it loses a step (measured)."""
    is_finite = words & _EXPONENT != _EXPONENT
    result: Array = np.where(is_finite, words + _TF32_HALF, words) & _TF32_CUT
    if saturates:
        result = np.where(result & _EXPONENT == _EXPONENT, result - _TF32_STEP, result)
    return result


def _cut_to_tf32(words: Array) -> Array:
    return np.where(is_nan(words, _F32), _TF32_NAN, words & _TF32_CUT)


def _to_tf32(style: _Style) -> Compute:
    """cvt.rn.tf32, as a tensor copy rounds; cvt.rz.tf32. NaN has all 19 bits set but the sign."""
    if style.mode == "rna":
        return lambda words: _to_tf32_away(words, saturates=style.satfinite)
    if style.mode not in ("rn", "rz"):
        raise UnknownForm("cvt.tf32.f32 has .rn, .rz or .rna")
    convert = rounded_to_tf32 if style.mode == "rn" else _cut_to_tf32

    def compute(words: Array) -> Array:
        result: Array = convert(words)
        if style.satfinite:
            is_infinite = result & ~_SIGN == _EXPONENT
            result = np.where(is_infinite, result & _SIGN | _TF32_LARGEST, result)
        return without_negatives(result, _F32) if style.relu else result

    return compute


# ------------------------------------------------------------------------------------------------- pairs


def _joined(parts: Iterable[Array], part_bits: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Words of parts, the uppermost first."""
    result: Array | None = None
    shift = np.array(part_bits, word)
    for part in parts:
        result = part.astype(word) if result is None else result << shift | part.astype(word)
    assert result is not None
    return result


def _two_halves(convert: Compute) -> Compute:
    """A conversion to 16 bits of two operands, the first into the upper halves."""

    def compute(a: Array, b: Array) -> Array:
        both = np.empty(2 * len(a), np.uint32)
        both[0::2] = b
        both[1::2] = a
        halves: Array = convert(both)
        return halves.view(np.uint32)

    return compute


def _place_bits(type_name: str) -> int:
    """How far the parts of a pair lie apart: 4 bits for e2m1, 8 for other small floats."""
    return 4 if type_name.startswith("e2m1") else 8


def _to_pair(result_type: str, source_type: str, style: _Style, source_count: int) -> Operation:
    """Conversions to f16x2, bf16x2 or a pair of small floats: from two f32, or from the halves of one f16x2 or bf16x2."""
    part_type = _PAIRS_OF_16.get(result_type) or _PAIRS_OF_8[result_type]
    form = FORMATS[part_type]
    is_wide = result_type in _PAIRS_OF_16
    word = np.dtype("u4" if is_wide else "u2")
    place_bits = 16 if is_wide else _place_bits(result_type)
    register = result_type if is_wide else "b16"
    if style.mode == "rs":
        return _to_pair_stochastic(result_type, source_type, style)
    if source_type == "f32" and source_count in (0, 2):
        convert = _float_to_float(_F32, form, style)
        if is_wide:
            return Operation(_two_halves(convert), ("f32", "f32"), register)
        return Operation(lambda a, b: _joined((convert(a), convert(b)), place_bits, word), ("f32", "f32"), register)
    if source_type in _PAIRS_OF_16 and not is_wide:
        convert_half = _float_to_float(FORMATS[_PAIRS_OF_16[source_type]], form, style)

        def compute(a: Array) -> Array:
            parts = convert_half(lanes(a, 16))
            return _joined((parts[1::2], parts[0::2]), place_bits, word)

        return Operation(compute, (source_type,), register)
    raise UnknownForm(f"cvt has no form .{result_type}.{source_type} of {source_count} operands")


def _numbers_of(form: FloatFormat) -> Array:
    """The numbers that all patterns of a small format stand for; NaN and infinities among them.

    >>> _numbers_of(FORMATS["e2m1"])[:8].tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    patterns = np.arange(form.sign)
    fraction = patterns & (1 << form.fraction_bits) - 1
    exponent = patterns >> form.fraction_bits
    significand = np.where(exponent > 0, fraction + (1 << form.fraction_bits), fraction)
    numbers = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - form.bias - form.fraction_bits)
    if form.has_infinity:
        numbers[form.infinity] = np.inf
        numbers[form.infinity + 1 :] = np.nan
    elif form.has_nan:
        numbers[form.nan] = np.nan
    return np.concatenate([numbers, -numbers])


def _from_pair(result_type: str, source_type: str, style: _Style) -> Operation:
    """cvt.rn.f16x2.e4m3x2 and its siblings: every pattern's f16 is looked up."""
    form = FORMATS[_PAIRS_OF_8[source_type]]
    half = FORMATS[_PAIRS_OF_16[result_type]]
    table = rounded(_numbers_of(form), half).astype(np.uint32)
    if style.relu:
        table = without_negatives(table, half)
    place = np.uint16(_place_bits(source_type))
    mask = np.uint16((1 << form.bits) - 1)

    def compute(a: Array) -> Array:
        return _joined((table[a >> place & mask], table[a & mask]), 16, np.dtype("u4"))

    return Operation(compute, ("b16",), result_type)


_RANDOM_BITS = {"f16": 13, "bf16": 16}


def _to_pair_stochastic(result_type: str, source_type: str, style: _Style) -> Operation:
    """cvt.rs: random bits are added to what the rounding cuts off; a carry rounds up (documented, not measured)."""
    part = _PAIRS_OF_16.get(result_type)
    if part is None or source_type != "f32":
        raise UnknownForm(f"cvt.rs has no form .{result_type}.{source_type} here")
    form = FORMATS[part]
    random_bits = np.uint32(_RANDOM_BITS[part])
    cut = _float_to_float(_F32, form, style._replace(mode="rz"))
    mask = (_1 << random_bits) - _1

    def convert(words: Array, random: Array) -> Array:
        is_finite = words & _EXPONENT != _EXPONENT
        result: Array = cut(np.where(is_finite, words + (random & mask), words))
        return result

    def compute(a: Array, b: Array, random: Array) -> Array:
        return _joined((convert(a, random >> _16), convert(b, random)), 16, np.dtype("u4"))

    return Operation(compute, ("f32", "f32", "b32"), result_type)


# ------------------------------------------------------------------------------------------------- ue8m0

_BYTE = constant(0xFF, 32)
_F32_FRACTION = constant(0x7FFFFF, 32)
_HALF_FRACTION = constant(0x400000, 32)
_23 = constant(23, 32)


def _to_ue8m0(words: Array, style: _Style) -> Array:
    """The exponent of an f32, of 8 bits: a power of 2, rounded towards zero or up; 0xFF is NaN.

    2^-127, the least, is a subnormal f32: half of the fraction.
    """
    magnitude = words & np.uint32(0x7FFFFFFF)
    exponent = magnitude >> _23
    fraction = magnitude & _F32_FRACTION
    if style.mode == "rp":
        least = np.where(exponent == 0, _HALF_FRACTION, constant(0, 32))
        exponent = exponent + (fraction > least)
    is_infinite = magnitude >= _EXPONENT
    largest = np.uint32(0xFE)
    if style.satfinite:
        exponent = np.where(is_infinite, largest, np.minimum(exponent, largest))
    return np.where(magnitude > _EXPONENT, _BYTE, exponent)


def _to_scale_pair(source_type: str, style: _Style) -> Operation:
    """Conversions to pairs of scale factors: cvt.rz.ue8m0x2, .rp (documented, not measured)."""
    if style.mode not in ("rz", "rp"):
        raise UnknownForm("cvt to .ue8m0x2 has .rz or .rp")
    word = np.dtype("u2")

    def of_singles(a: Array, b: Array) -> Array:
        return _joined((_to_ue8m0(a, style), _to_ue8m0(b, style)), 8, word)

    def of_halves(a: Array) -> Array:
        parts = _to_ue8m0(_bf16_to_f32(lanes(a, 16)), style)
        return _joined((parts[1::2], parts[0::2]), 8, word)

    if source_type == "f32":
        return Operation(of_singles, ("f32", "f32"), "b16")
    if source_type == "bf16x2":
        return Operation(of_halves, ("bf16x2",), "b16")
    raise UnknownForm(f"cvt has no form .ue8m0x2.{source_type}")


def _from_scale_pair(a: Array) -> Array:
    """cvt.rn.bf16x2.ue8m0x2: the byte is the exponent; 0 is 2^-127, a subnormal."""
    table = np.arange(256, dtype=np.uint32) << np.uint32(7)
    table[0] = 0x0040
    table[255] = FORMATS["bf16"].nan
    return _joined((table[a >> np.uint16(8)], table[a & np.uint16(0xFF)]), 16, np.dtype("u4"))


# ------------------------------------------------------------------------------------------------- cvt.pack

_PACKED_BITS = {"u16": 16, "s16": 16, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "u2": 2, "s2": 2}


def _pack(modifiers: Modifiers) -> Operation:
    """cvt.pack.sat: two integers clamped to few bits, a above b; below 16 bits the rest of the word is c's low bits."""
    takes_rest = modifiers.last() == "b32"
    if takes_rest:
        modifiers.type(("b32",))
    modifiers.type(("s32",))
    type_name = modifiers.type(_PACKED_BITS)
    modifiers.has("sat")
    modifiers.end()
    kind = _Integer(_PACKED_BITS[type_name], type_name.startswith("s"), np.dtype(np.int32))
    bits = np.uint32(kind.bits)
    mask = np.uint32((1 << kind.bits) - 1)

    def clamped(words: Array) -> Array:
        values = words.view(np.int32).clip(kind.least, kind.most)
        result: Array = values.view(np.uint32) & mask
        return result

    def compute(a: Array, b: Array, *rest: Array) -> Array:
        pair: Array = clamped(a) << bits | clamped(b)
        if rest:
            pair = pair | rest[0] << np.uint32(2 * kind.bits)
        return pair

    return Operation(compute, ("s32", "s32", "b32") if takes_rest else ("s32", "s32"), "b32")


# ------------------------------------------------------------------------------------------------- cvt


def convert(modifiers: Modifiers, source_count: int) -> Operation:
    """Any form of cvt. `source_count` 0: not known."""
    if modifiers.has("pack"):
        return _pack(modifiers)
    source_type = modifiers.type(_WORDS)
    result_type = modifiers.type(_WORDS)
    style = _Style(
        modifiers.one_of((*ROUNDINGS, *_TO_INTEGER, "rna", "rs"), ""),
        ftz=modifiers.has("ftz"),
        sat=modifiers.has("sat"),
        relu=modifiers.has("relu"),
        satfinite=modifiers.has("satfinite"),
    )
    modifiers.end()
    if result_type in _INTEGERS or source_type in _INTEGERS:
        return _with_integers(result_type, source_type, style)
    if result_type == "ue8m0x2":
        return _to_scale_pair(source_type, style)
    if (result_type, source_type) == ("bf16x2", "ue8m0x2"):
        return Operation(_from_scale_pair, ("b16",), "bf16x2")
    if result_type in _PAIRS_OF_16 and source_type in _PAIRS_OF_8:
        return _from_pair(result_type, source_type, style)
    if result_type in _PAIRS_OF_16 or result_type in _PAIRS_OF_8:
        return _to_pair(result_type, source_type, style, source_count)
    return _with_floats(result_type, source_type, style)


def _with_integers(result_type: str, source_type: str, style: _Style) -> Operation:
    """Conversions from or to integers."""
    if result_type in _INTEGERS and source_type in _INTEGERS:
        compute = _integer_to_integer(_INTEGERS[source_type], _INTEGERS[result_type], sat=style.sat)
    elif result_type in _INTEGERS and source_type in _FLOATS:
        if style.mode not in _TO_INTEGER:
            raise UnknownForm(f"cvt.{result_type}.{source_type} needs .rni, .rzi, .rmi or .rpi")
        compute = _float_to_integer(FORMATS[source_type], _INTEGERS[result_type], style)
    elif result_type in _FLOATS and source_type in _INTEGERS:
        if style.mode not in ROUNDINGS:
            raise UnknownForm(f"cvt.{result_type}.{source_type} needs .rn, .rz, .rm or .rp")
        compute = _integer_to_float(_INTEGERS[source_type], FORMATS[result_type], style)
    else:
        raise UnknownForm(f"cvt has no form .{result_type}.{source_type}")
    return Operation(compute, (_source_register(source_type),), _result_register(result_type))


def _with_floats(result_type: str, source_type: str, style: _Style) -> Operation:
    """Conversions between single floats."""
    if result_type == "tf32" and source_type == "f32":
        return Operation(_to_tf32(style), ("f32",), "b32")
    if result_type not in _FLOATS or source_type not in _FLOATS:
        raise UnknownForm(f"cvt has no form .{result_type}.{source_type}")
    compute = _float_to_float(FORMATS[source_type], FORMATS[result_type], style)
    return Operation(compute, (source_type,), result_type)
