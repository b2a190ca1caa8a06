"""The .approx and .full instructions: ex2 lg2 rcp rsqrt sqrt sin cos tanh, and div.

f32 is the special function unit (special_unit.py). The other types are made of it:

    f16, bf16                   the f32 result cut off, not rounded: 65,536 results, computed once
    rcp, rsqrt.approx.ftz.f64   the unit's rows on the upper word: 20 bits of fraction in, 20 bits out, the lower word 0
    rsqrt.approx.f64            a longer sequence that was not measured: computed in double precision, and not exact
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from tilescope.machine.arithmetic import special_unit
from tilescope.machine.arithmetic.compute import (
    Array,
    Compute,
    Modifiers,
    Operation,
    UnknownForm,
    apply_to_parts,
    constant,
)
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat
from tilescope.machine.arithmetic.float_style import PACKED
from tilescope.machine.arithmetic.float_words import propagate_nan, set_canonical_nan, upper_half_as_f32
from tilescope.machine.arithmetic.special_unit import (
    ARGUMENT_BITS,
    FACTORS,
    FLUSHED,
    FRACTION_BITS,
    QUOTIENTS,
    SCALED,
    Words,
    rows_of,
)
from tilescope.swizzle.permutation import compiler

TYPES = {
    "rcp": ("f32", "f64"),
    "sqrt": ("f32",),
    "rsqrt": ("f32", "f64"),
    "sin": ("f32",),
    "cos": ("f32",),
    "lg2": ("f32",),
    "ex2": ("f32", "f16", "f16x2", "bf16", "bf16x2"),
    "tanh": ("f32", "f16", "f16x2", "bf16", "bf16x2"),
}

_LOOP_FROM_WORDS = 1 << 24  # loading numba takes as long as numpy needs for these
_WORDS_OF_A_CALL = 1500  # that take as long as a call of numpy's functions with no words

_SIGN_SHIFT = constant(31, 32)
_SIGN = constant(1 << 31, 32)
_MAGNITUDE = constant((1 << 31) - 1, 32)
_EXPONENT = constant(0xFF << FRACTION_BITS, 32)
_FRACTION = constant((1 << FRACTION_BITS) - 1, 32)
_RECIPROCAL_EXPONENT = constant(252 << FRACTION_BITS, 32)


@dataclass(slots=True)
class _Work:
    """The work done so far in this process, in words."""

    words: int = 0


_work = _Work()


def approximation(modifiers: Modifiers) -> Operation:
    """The functions of one operand."""
    name = modifiers.name
    type_name = modifiers.type(TYPES[name])
    if not modifiers.has("approx"):
        raise UnknownForm(f"{name}.{type_name} has .approx alone")
    ftz = modifiers.has("ftz")
    modifiers.end()
    element = PACKED.get(type_name, type_name)
    if type_name == "f64":
        if not ftz:
            return Operation(_rsqrt_f64, (type_name,), type_name, exactness="unknown")
        compute: Compute = _UPPER_WORDS[name]
    elif element == "f32":
        compute = _on_f32((FLUSHED if ftz else SCALED)[name], name)
    else:
        compute = _by_table(name, FORMATS[element])
    if type_name in PACKED:
        compute = apply_to_parts(compute, FORMATS[element].bits, 2 * FORMATS[element].bits)
    return Operation(compute, (type_name,), type_name, exactness="special unit")


def division(modifiers: Modifiers) -> Operation:
    """div.approx.f32 and div.full.f32."""
    modifiers.type(("f32",))
    kind = modifiers.one_of(("approx", "full"), "")
    ftz = modifiers.has("ftz")
    modifiers.end()
    return Operation(_on_f32(QUOTIENTS[kind, ftz], "rcp"), ("f32", "f32"), "f32", exactness="special unit")


def quotient_factors(modifiers: tuple[str, ...]) -> Compute:
    """A function of dividend and divisor that gives the two factors whose product div.approx or div.full is."""
    factors = FACTORS["full" if "full" in modifiers else "approx", "ftz" in modifiers]

    def compute(dividends: Array, divisors: Array) -> tuple[Array, Array]:
        first, second = factors(dividends.astype(np.int64), divisors.astype(np.int64), rows_of("rcp"))
        return np.asarray(first).astype(np.uint32), np.asarray(second).astype(np.uint32)

    return compute


def _on_f32(function: Callable[..., Words], table: str) -> Compute:
    """A function of the unit as one of f32 bits: compiled where numba is loaded, or worth loading."""
    ordinary = _ORDINARY.get(function)

    def compute(*sources: Array) -> Array:
        _work.words += sources[0].size + _WORDS_OF_A_CALL
        if (_work.words >= _LOOP_FROM_WORDS or "numba" in sys.modules) and (
            loop := compiled_loop(function)
        ) is not None:
            results = np.empty(sources[0].shape, np.uint32)
            loop(*[np.ascontiguousarray(source) for source in sources], rows_of(table), results)
            return results
        if ordinary is not None and ordinary.takes(sources[-1]):
            return np.asarray(ordinary.compute(*sources))
        wide = [source.astype(np.int64) for source in sources]
        return np.asarray(function(*wide, rows_of(table)).astype(np.uint32))

    return compute


class _Ordinary(NamedTuple):
    """A function of arrays whose last one holds ordinary words: none that the unit treats apart, flushes or scales.

    They are what kernels have nearly always, and take less than half of numpy's time.
    """

    compute: Compute
    least: int  # of the words without their signs
    end: int

    def takes(self, words: Array) -> bool:
        """Whether all words are ordinary."""
        magnitudes = words & _MAGNITUDE
        return bool(magnitudes.max(initial=0) < self.end) and bool(magnitudes.min(initial=self.end) >= self.least)


@cache
def _quadratics(name: str) -> tuple[Array, Array, Array]:
    """The coefficients of a function's segments as doubles, which hold its sums without rounding."""
    rows = rows_of(name)
    return rows.base.astype(np.float64), rows.c1.astype(np.float64), rows.c2.astype(np.float64)


def _evaluate(name: str, segments: Array, arguments: Array, shift: int) -> Array:
    """special_unit.evaluate without the last bits."""
    base, c1, c2 = _quadratics(name)
    total = c1.take(segments)
    total *= arguments
    total += base.take(segments)
    square = c2.take(segments)
    square *= rows_of(name).squares.take(arguments)
    total += square
    total *= 2.0**-shift
    return total.astype(np.uint32)


def _ordinary_ex2(words: Array) -> Array:
    """2^x for |x| < 126: a negative argument is replaced by its one's complement, unless it is whole."""
    fixed = (words.view(np.float32) * np.float32(1 << FRACTION_BITS)).astype(np.int32)
    fixed -= (words >> _SIGN_SHIFT).view(np.int32) & (fixed << 32 - FRACTION_BITS != 0)
    part = (fixed & (1 << FRACTION_BITS) - 1).astype(np.intp)
    fractions = _evaluate("ex2", part >> ARGUMENT_BITS, part & (1 << ARGUMENT_BITS) - 1, 15)
    return ((fixed >> FRACTION_BITS) + 126 << FRACTION_BITS).view(np.uint32) + fractions


def _ordinary_rcp(words: Array) -> Array:
    """1 / x for 2^-126 <= |x| < 2^125."""
    fraction = (words & _FRACTION).astype(np.intp)
    fractions = _evaluate("rcp", fraction >> 16, (fraction & 0xFFFF) << 1, 16)
    exponents = _RECIPROCAL_EXPONENT - (words & _EXPONENT)
    return exponents + fractions | words & _SIGN


def _ordinary_quotient(dividends: Array, divisors: Array) -> Array:
    """A quotient by such an x; the dividend may be anything."""
    product = dividends.view(np.float32) * _ordinary_rcp(divisors).view(np.float32)
    return set_canonical_nan(product.view(np.uint32), np.isnan(product), FORMATS["f32"])


def _f32_word(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


_ORDINARY: dict[Callable[..., Words], _Ordinary] = {
    **dict.fromkeys((FLUSHED["ex2"], SCALED["ex2"]), _Ordinary(_ordinary_ex2, 0, _f32_word(126.0))),
    **dict.fromkeys(
        (FLUSHED["rcp"], SCALED["rcp"]), _Ordinary(_ordinary_rcp, _f32_word(2.0**-126), _f32_word(2.0**125))
    ),
    **dict.fromkeys(
        (QUOTIENTS["full", False], QUOTIENTS["approx", False]),
        _Ordinary(_ordinary_quotient, _f32_word(2.0**-126), _f32_word(2.0**125)),
    ),
}


@cache
def compiled_loop(function: Callable[..., Words]) -> Callable[..., None] | None:
    """The loop that numba compiles of a function of the unit; None where numba is not installed."""
    if compiler() is None:
        return None
    from tilescope.machine.arithmetic.special_unit_loop import loop_of

    return loop_of(function)


def _by_table(name: str, form: FloatFormat) -> Compute:
    def compute(words: Array) -> Array:
        return half_results(name, form.name)[words]

    return compute


@cache
def half_results(name: str, type_name: str) -> Array:
    """The results of ex2 or tanh for all 65,536 words of f16 or bf16.

    >>> hex(half_results("ex2", "f16")[0x3C00]), hex(half_results("tanh", "bf16")[0x3F80])
    ('0x4000', '0x3f42')
    """
    halves = np.arange(1 << 16, dtype=np.uint16)
    is_bf16 = type_name == "bf16"
    with np.errstate(all="ignore"):
        singles = upper_half_as_f32(halves) if is_bf16 else halves.view(np.float16).astype(np.float32)
        words = np.asarray(FLUSHED[name](singles.view(np.uint32).astype(np.int64), rows_of(name)))
    return np.asarray(words >> 16 if is_bf16 else _cut_to_f16(words)).astype(np.uint16)


def _cut_to_f16(words: Array) -> Array:
    """f32 words cut to f16: 2^16 and above is infinity, subnormal results lose bits at their end."""
    exponent = special_unit.exponent_of(words) - 127 + 15
    fraction = words & (1 << FRACTION_BITS) - 1
    shift = FRACTION_BITS - 10
    subnormal = (fraction | 1 << FRACTION_BITS) >> np.minimum(shift + 1 - np.minimum(exponent, 1), 31)
    magnitude = np.where(exponent > 0, exponent << 10 | fraction >> shift, subnormal)
    magnitude = np.where(exponent >= 31, 0x7C00, magnitude)
    return np.where(special_unit.is_nan(words), 0x7FFF, words >> 16 & 0x8000 | magnitude)


_UPPER = constant(32, 64)
_F64_FRACTION_BITS = 20  # in the upper word
_F64_FRACTION = (1 << _F64_FRACTION_BITS) - 1
_F64_INFINITY = 0x7FF << _F64_FRACTION_BITS
_F64_SIGN = 1 << 31


def _upper_rcp(source: Array) -> Array:
    """rcp.approx.ftz.f64."""
    word = (source >> _UPPER).astype(np.int64)
    exponent = word >> _F64_FRACTION_BITS & 0x7FF
    sign = word & _F64_SIGN
    fraction = (word & _F64_FRACTION) << 3
    p = special_unit.evaluate(rows_of("rcp"), fraction >> 16, (fraction & 0xFFFF) << 1)
    result = (2044 - exponent << _F64_FRACTION_BITS) + (p >> 19)
    result = np.where(result < 1 << _F64_FRACTION_BITS, 0, result) | sign
    result = np.where(exponent == 0, _F64_INFINITY | sign, result)
    result = np.where(exponent == 0x7FF, sign, result)
    return _upper_words(word, result)


def _upper_rsqrt(source: Array) -> Array:
    """rsqrt.approx.ftz.f64."""
    word = (source >> _UPPER).astype(np.int64)
    exponent = word >> _F64_FRACTION_BITS & 0x7FF
    sign = word & _F64_SIGN
    fraction = (word & _F64_FRACTION) << 3
    is_odd = exponent + 1 & 1
    p = special_unit.evaluate(rows_of("rsqrt"), is_odd << 6 | fraction >> 17, fraction & 0x1FFFF) >> 16
    p = np.where(fraction | is_odd, p, 1 << 24)
    result = (1021 - (exponent - 1023 >> 1) << _F64_FRACTION_BITS) + (p >> 3)
    result = np.where(word == _F64_INFINITY, 0, result)
    result = np.where(exponent == 0, _F64_INFINITY | sign, np.where(sign, special_unit.NAN, result))
    return _upper_words(word, result)


def _upper_words(sources: Array, results: Array) -> Array:
    """Results as doubles whose lower word is 0; NaN where the upper word of the source is."""
    words = np.where((sources & ~_F64_SIGN) > _F64_INFINITY, special_unit.NAN, results)
    return np.asarray(words.astype(np.uint64) << _UPPER)


_UPPER_WORDS: dict[str, Compute] = {"rcp": _upper_rcp, "rsqrt": _upper_rsqrt}


def _rsqrt_f64(source: Array) -> Array:
    """rsqrt.approx.f64."""
    return propagate_nan((1.0 / np.sqrt(source.view(np.float64))).view(np.uint64), source)
