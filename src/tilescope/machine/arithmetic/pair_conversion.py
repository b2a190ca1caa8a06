"""Conversions to and from packed floats, scale factors and packed integers.

    cvt.rn.f16x2.f32 d, a, b               a in the upper half, b in the lower
    cvt.rn.satfinite.e4m3x2.f32 d, a, b    bytes; e2m1x2: 4 bits each; e2m3x2 and e3m2x2: 6 bits in bytes
    cvt.pack.sat.u8.s32.b32 d, a, b, c     clamped integers, and c's low half above them

Pairs of 4 and 6 bits, scale factors (ue8m0) and .rs are instructions of sm_100: documented, not measured.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilescope.machine.arithmetic.compute import (
    Array,
    Compute,
    Modifiers,
    Operation,
    UnknownForm,
    constant,
    split_parts,
)
from tilescope.machine.arithmetic.float_conversion import F32_EXPONENT, ConversionStyle, bf16_to_f32, float_to_float
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat, round_to_format
from tilescope.machine.arithmetic.float_words import HALF_BITS, clamp_negatives
from tilescope.machine.arithmetic.integer_conversion import IntegerType

PAIRS_OF_SMALL = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m3x2": "e2m3", "e3m2x2": "e3m2", "e2m1x2": "e2m1"}
PAIRS_OF_16 = {"f16x2": "f16", "bf16x2": "bf16"}
_F32 = FORMATS["f32"]
_1 = constant(1, 32)


def _join_parts(parts: Iterable[Array], part_bits: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Join parts to words; the first part is the uppermost."""
    result: Array | None = None
    shift = np.array(part_bits, word)
    for part in parts:
        result = part.astype(word) if result is None else result << shift | part.astype(word)
    assert result is not None
    return result


def _two_halves(convert: Compute) -> Compute:
    """Convert two operands to 16 bits each; the first becomes the upper half."""

    def compute(a: Array, b: Array) -> Array:
        both = np.empty(2 * len(a), np.uint32)
        both[0::2] = b
        both[1::2] = a
        halves: Array = convert(both)
        return halves.view(np.uint32)

    return compute


def _count_part_bits(type_name: str) -> int:
    """Bits from one part of a pair to the next: 4 for e2m1, 8 for other small floats."""
    return 4 if type_name.startswith("e2m1") else 8


def to_pair(result_type: str, source_type: str, style: ConversionStyle, source_count: int) -> Operation:
    """Conversions to f16x2, bf16x2 or a pair of small floats: from two f32, or from the halves of one f16x2 or bf16x2."""
    part_type = PAIRS_OF_16.get(result_type) or PAIRS_OF_SMALL[result_type]
    form = FORMATS[part_type]
    is_wide = result_type in PAIRS_OF_16
    word = np.dtype("u4" if is_wide else "u2")
    place_bits = 16 if is_wide else _count_part_bits(result_type)
    register = result_type if is_wide else "b16"
    if style.mode == "rs":
        return _to_pair_stochastic(result_type, source_type, style)
    if source_type == "f32" and source_count in (0, 2):
        convert = float_to_float(_F32, form, style)
        if is_wide:
            return Operation(_two_halves(convert), ("f32", "f32"), register)
        return Operation(lambda a, b: _join_parts((convert(a), convert(b)), place_bits, word), ("f32", "f32"), register)
    if source_type in PAIRS_OF_16 and not is_wide:
        convert_half = float_to_float(FORMATS[PAIRS_OF_16[source_type]], form, style)

        def compute(a: Array) -> Array:
            parts = convert_half(split_parts(a, 16))
            return _join_parts((parts[1::2], parts[0::2]), place_bits, word)

        return Operation(compute, (source_type,), register)
    raise UnknownForm(f"cvt has no form .{result_type}.{source_type} of {source_count} operands")


def _list_numbers(form: FloatFormat) -> Array:
    """The numbers that the patterns of a small format encode, including NaN and infinities.

    >>> _list_numbers(FORMATS["e2m1"])[:8].tolist()
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


def from_pair(result_type: str, source_type: str, style: ConversionStyle) -> Operation:
    """Conversions such as cvt.rn.f16x2.e4m3x2, by a table with the f16 of every pattern."""
    form = FORMATS[PAIRS_OF_SMALL[source_type]]
    half = FORMATS[PAIRS_OF_16[result_type]]
    table = round_to_format(_list_numbers(form), half).astype(np.uint32)
    if style.relu:
        table = clamp_negatives(table, half)
    place = np.uint16(_count_part_bits(source_type))
    mask = np.uint16((1 << form.bits) - 1)

    def compute(a: Array) -> Array:
        return _join_parts((table[a >> place & mask], table[a & mask]), 16, np.dtype("u4"))

    return Operation(compute, ("b16",), result_type)


_RANDOM_BITS = {"f16": 13, "bf16": 16}


def _to_pair_stochastic(result_type: str, source_type: str, style: ConversionStyle) -> Operation:
    """cvt.rs: stochastic rounding. Random bits are added to the dropped bits; a carry rounds up (documented, not measured)."""
    part = PAIRS_OF_16.get(result_type)
    if part is None or source_type != "f32":
        raise UnknownForm(f"cvt.rs has no form .{result_type}.{source_type} here")
    form = FORMATS[part]
    random_bits = np.uint32(_RANDOM_BITS[part])
    cut = float_to_float(_F32, form, style._replace(mode="rz"))
    mask = (_1 << random_bits) - _1

    def convert(words: Array, random: Array) -> Array:
        is_finite = words & F32_EXPONENT != F32_EXPONENT
        result: Array = cut(np.where(is_finite, words + (random & mask), words))
        return result

    def compute(a: Array, b: Array, random: Array) -> Array:
        return _join_parts((convert(a, random >> HALF_BITS), convert(b, random)), 16, np.dtype("u4"))

    return Operation(compute, ("f32", "f32", "b32"), result_type)


_BYTE = constant(0xFF, 32)
_F32_FRACTION = constant(0x7FFFFF, 32)
_HALF_FRACTION = constant(0x400000, 32)
_23 = constant(23, 32)


def _to_ue8m0(words: Array, style: ConversionStyle) -> Array:
    """The exponent of an f32, of 8 bits: a power of 2, rounded towards zero or up; 0xFF is NaN.

    2^-127, the least, is a subnormal f32: half of the fraction.
    """
    magnitude = words & np.uint32(0x7FFFFFFF)
    exponent = magnitude >> _23
    fraction = magnitude & _F32_FRACTION
    if style.mode == "rp":
        least = np.where(exponent == 0, _HALF_FRACTION, constant(0, 32))
        exponent = exponent + (fraction > least)
    is_infinite = magnitude >= F32_EXPONENT
    largest = np.uint32(0xFE)
    if style.satfinite:
        exponent = np.where(is_infinite, largest, np.minimum(exponent, largest))
    return np.where(magnitude > F32_EXPONENT, _BYTE, exponent)


def to_scale_pair(source_type: str, style: ConversionStyle) -> Operation:
    """Conversions to pairs of scale factors: cvt.rz.ue8m0x2, .rp (documented, not measured)."""
    if style.mode not in ("rz", "rp"):
        raise UnknownForm("cvt to .ue8m0x2 has .rz or .rp")
    word = np.dtype("u2")

    def of_singles(a: Array, b: Array) -> Array:
        return _join_parts((_to_ue8m0(a, style), _to_ue8m0(b, style)), 8, word)

    def of_halves(a: Array) -> Array:
        parts = _to_ue8m0(bf16_to_f32(split_parts(a, 16)), style)
        return _join_parts((parts[1::2], parts[0::2]), 8, word)

    if source_type == "f32":
        return Operation(of_singles, ("f32", "f32"), "b16")
    if source_type == "bf16x2":
        return Operation(of_halves, ("bf16x2",), "b16")
    raise UnknownForm(f"cvt has no form .ue8m0x2.{source_type}")


def from_scale_pair(a: Array) -> Array:
    """cvt.rn.bf16x2.ue8m0x2: the byte is the exponent; 0 is 2^-127, a subnormal."""
    table = np.arange(256, dtype=np.uint32) << np.uint32(7)
    table[0] = 0x0040
    table[255] = FORMATS["bf16"].nan
    return _join_parts((table[a >> np.uint16(8)], table[a & np.uint16(0xFF)]), 16, np.dtype("u4"))


_PACKED_BITS = {"u16": 16, "s16": 16, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "u2": 2, "s2": 2}


def pack(modifiers: Modifiers) -> Operation:
    """cvt.pack.sat: two integers clamped to few bits, a above b; below 16 bits the rest of the word is c's low bits."""
    takes_rest = modifiers.last() == "b32"
    if takes_rest:
        modifiers.type(("b32",))
    modifiers.type(("s32",))
    type_name = modifiers.type(_PACKED_BITS)
    modifiers.has("sat")
    modifiers.end()
    kind = IntegerType(_PACKED_BITS[type_name], type_name.startswith("s"), np.dtype(np.int32))
    bits = np.uint32(kind.bits)
    mask = np.uint32((1 << kind.bits) - 1)

    def clamp(words: Array) -> Array:
        values = words.view(np.int32).clip(kind.least, kind.most)
        result: Array = values.view(np.uint32) & mask
        return result

    def compute(a: Array, b: Array, *rest: Array) -> Array:
        pair: Array = clamp(a) << bits | clamp(b)
        if rest:
            pair = pair | rest[0] << np.uint32(2 * kind.bits)
        return pair

    return Operation(compute, ("s32", "s32", "b32") if takes_rest else ("s32", "s32"), "b32")
