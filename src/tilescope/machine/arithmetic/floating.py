"""Floats: add, sub, mul, fma, div, rcp, sqrt with one rounding each; min, max, neg, abs, copysign, testp.

What goes in passes through the same stations for every form:

    sources → .ftz flushes them → the operation, rounded once → .ftz flushes the result → .sat, .relu → NaN made canonical

Measured on an H200. A NaN result has all bits set but the sign (0x7FFFFFFF, 0x7FFF); f64 keeps the NaN of an operand, made
quiet, and makes 0xFFF8000000000000 of its own. neg and abs are additions, and do the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from tilescope.machine.arithmetic import exact
from tilescope.machine.arithmetic.compute import (
    Array,
    Compute,
    Modifiers,
    Operation,
    UnknownForm,
    constant,
    packed,
)
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

SCALARS = ("f32", "f64", "f16", "bf16")
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
FLOAT_TYPES = (*SCALARS, *PACKED)
_FLOAT: dict[int, np.dtype[Any]] = {16: np.dtype("f2"), 32: np.dtype("f4"), 64: np.dtype("f8")}
_WORD: dict[int, np.dtype[Any]] = {16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}
_QUIET = constant(1 << 51, 64)
_OWN_NAN = constant(0xFFF8 << 48, 64)
_F64 = FORMATS["f64"]


class _Style(NamedTuple):
    """The modifiers that every operation on floats may have."""

    mode: Rounding
    ftz: bool
    sat: bool
    relu: bool = False
    oob: bool = False

    @property
    def is_plain(self) -> bool:
        """Rounds to nearest, and changes nothing else."""
        return self.mode == "rn" and not (self.ftz or self.sat or self.relu or self.oob)


def rounding(modifiers: Modifiers) -> Rounding:
    """.rn, .rz, .rm or .rp; to nearest if none is there."""
    return cast("Rounding", modifiers.one_of(ROUNDINGS, "rn"))


# ------------------------------------------------------------------------------------------------- operations

Wide = Callable[..., Array]  # doubles and a rounding mode → doubles that round to the result


class _Arithmetic(NamedTuple):
    """One operation: by numpy where that rounds once, on wide doubles for narrow formats, and on f64."""

    plain: Compute
    wide: Wide
    double: Wide
    arity: int


def _wide_difference(a: Array, b: Array, mode: Rounding) -> Array:
    return exact.odd_sum(a, -b, mode)


def _wide_product(a: Array, b: Array, _mode: Rounding) -> Array:
    return a * b


def _wide_fma(a: Array, b: Array, c: Array, mode: Rounding) -> Array:
    return exact.odd_sum(a * b, c, mode)


def _wide_quotient(a: Array, b: Array, _mode: Rounding) -> Array:
    return a / b


def _wide_reciprocal(a: Array, _mode: Rounding) -> Array:
    return 1.0 / a


def _wide_root(a: Array, _mode: Rounding) -> Array:
    return np.sqrt(a)


def _double_difference(a: Array, b: Array, mode: Rounding) -> Array:
    return exact.double_sum(a, -b, mode)


def _double_reciprocal(a: Array, mode: Rounding) -> Array:
    return exact.double_quotient(np.ones_like(a), a, mode)


_ADD = _Arithmetic(np.add, exact.odd_sum, exact.double_sum, 2)
_SUBTRACT = _Arithmetic(np.subtract, _wide_difference, _double_difference, 2)
_MULTIPLY = _Arithmetic(np.multiply, _wide_product, exact.double_product, 2)
_FMA = _Arithmetic(np.add, _wide_fma, exact.double_fma, 3)
_DIVIDE = _Arithmetic(np.divide, _wide_quotient, exact.double_quotient, 2)
_RECIPROCAL = _Arithmetic(np.reciprocal, _wide_reciprocal, _double_reciprocal, 1)
_ROOT = _Arithmetic(np.sqrt, _wide_root, exact.double_root, 1)


# ------------------------------------------------------------------------------------------------- stations


def as_numbers(words: Array, form: FloatFormat) -> Array:
    """Floats that numpy compares as the format does."""
    return upper_half_as_f32(words) if form.name == "bf16" else words.view(_FLOAT[form.bits])


def canonical(words: Array, nans: Array, form: FloatFormat) -> Array:
    """`words`, which nobody else holds, with the NaN of results in the lanes of `nans`."""
    if np.count_nonzero(nans):
        np.putmask(words, nans, words.dtype.type(form.nan))
    return words


def quiet_operand(result: Array, *sources: Array) -> Array:
    """The NaN of an f64 result: that of the last source which has one, made quiet; else the one of its own."""
    nans = np.isnan(result.view(np.float64))
    if not np.count_nonzero(nans):
        return result
    chosen = np.broadcast_to(_OWN_NAN, result.shape)
    for source in sources:
        chosen = np.where(is_nan(source, _F64), source | _QUIET, chosen)
    return np.where(nans, chosen, result)


def _finished(compute: Compute, form: FloatFormat, style: _Style) -> Compute:
    """The operation between its stations."""
    if style.is_plain:
        return compute

    def compute_styled(*sources: Array) -> Array:
        if style.ftz:
            sources = tuple(flushed(source, form) for source in sources)
        result: Array = compute(*sources)
        if style.ftz:
            result = flushed(result, form)
        if style.sat:
            result = saturated(result, form)
        if style.relu:
            result = without_negatives(result, form)
        if style.oob:
            result = _without_outside(result, sources)
        return result

    return compute_styled


_OUTSIDE = constant(0x7FF7, 16)  # the NaN that tensor copies fill with


def _without_outside(words: Array, sources: tuple[Array, ...]) -> Array:
    """.oob: 0 where a factor is the NaN that copies write for elements outside a tensor."""
    is_outside = (sources[0] == _OUTSIDE) | (sources[1] == _OUTSIDE)
    return np.where(is_outside, words.dtype.type(0), words)


# ------------------------------------------------------------------------------------------------- arithmetic


def _by_numpy(plain: Compute, form: FloatFormat) -> Compute:
    """f32 and f16 to nearest: numpy's own operation rounds once (f16 through f32, which has more than twice the bits)."""
    kind, word = _FLOAT[form.bits], _WORD[form.bits]

    def compute_two(a: Array, b: Array) -> Array:
        result: Array = plain(a.view(kind), b.view(kind))
        return canonical(result.view(word), np.isnan(result), form)

    def compute_one(a: Array) -> Array:
        result: Array = plain(a.view(kind))
        return canonical(result.view(word), np.isnan(result), form)

    return compute_one if plain in (np.reciprocal, np.sqrt) else compute_two


def _by_doubles(wide: Wide, form: FloatFormat, mode: Rounding) -> Compute:
    """f32, f16 and bf16 in any mode."""
    word = _WORD[form.bits]

    def compute(*sources: Array) -> Array:
        return rounded(wide(*[widened(source, form) for source in sources], mode), form, mode).astype(word)

    return compute


def _of_doubles(double: Wide, mode: Rounding) -> Compute:
    """f64."""

    def compute(*sources: Array) -> Array:
        result = double(*[source.view(np.float64) for source in sources], mode)
        return quiet_operand(result.view(np.uint64), *sources)

    return compute


_F32 = FORMATS["f32"]
_BF16 = FORMATS["bf16"]
_DOUBLE = _FLOAT[64]
_DOUBLE_WORD = _WORD[64]


def _quick_fma(form: FloatFormat) -> Compute:
    """fma.rn.f32, .f16. The product of doubles is exact; their sum is rounded once to a double and once more to f32.

    The second rounding can only go wrong where the double lies half way between two f32, or is one: its low 28 bits are
    0 (of f16: 41). Only if there is such a lane is the error of the sum looked at.
    """
    kind, word = _FLOAT[form.bits], _WORD[form.bits]
    low_bits = constant((1 << 52 - form.fraction_bits - 1) - 1, 64)

    def compute(a: Array, b: Array, c: Array) -> Array:
        product = a.view(kind).astype(_DOUBLE)
        product *= b.view(kind).astype(_DOUBLE)
        addend = c.view(kind).astype(_DOUBLE)
        total = product + addend
        if np.count_nonzero(total.view(_DOUBLE_WORD) & low_bits) != total.size:
            _, error = exact.two_sum(product, addend)
            total = exact.made_odd(total, error)
        result = total.astype(kind)
        return canonical(result.view(word), np.isnan(result), form)

    return compute


def _bf16_by_doubles(quick: Compute, wide: Wide) -> Compute:
    """bf16 to nearest: the result as a double goes to f32 and, rounded again, to its upper half.

    The first rounding may leave the f32 half way between two bf16 though the number is not: then it is moved a step
    back to where the number lies. `quick` gives doubles, `wide` those that tell on which side of them the number is.
    """

    def compute(*sources: Array) -> Array:
        doubles = [upper_half_as_f32(source).astype(_DOUBLE) for source in sources]
        single: Array = quick(*doubles).astype(np.float32)
        is_tie = single.view(np.uint32) & _LOW_HALF == _TIE
        if np.count_nonzero(is_tie):
            steps = np.sign(np.abs(wide(*doubles, "rn")) - np.abs(single)).astype(np.int32)
            steps *= is_tie
            single = (single.view(np.int32) + steps).view(np.float32)
        return nearest_upper_half(single)

    return compute


_LOW_HALF = constant(0xFFFF, 32)
_TIE = constant(0x8000, 32)
_HALF_BITS = constant(16, 32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def upper_half_as_f32(words: Array) -> Array:
    """Numbers of bf16 as f32: the same bits, and 16 zeros."""
    wide = words.astype(np.uint32)
    wide <<= _HALF_BITS
    return wide.view(np.float32)


def nearest_upper_half(singles: Array) -> Array:
    """Bits of f32 numbers rounded to bf16, to nearest even."""
    return canonical(singles.astype(_BFLOAT16).view(np.uint16), np.isnan(singles), _BF16)


def _bf16_sum(plain: Compute) -> Compute:
    """Sums of bf16 to nearest: f32 has more than twice the bits, so rounding its sum again is harmless."""

    def compute(a: Array, b: Array) -> Array:
        return nearest_upper_half(plain(upper_half_as_f32(a), upper_half_as_f32(b)))

    return compute


def _multiply_and_add(a: Array, b: Array, c: Array) -> Array:
    total = a * b
    total += c
    return total


def _bf16(arithmetic: _Arithmetic) -> Compute:
    """The operation on bf16, to nearest."""
    if arithmetic is _FMA:
        return _bf16_by_doubles(_multiply_and_add, arithmetic.wide)
    if arithmetic is _MULTIPLY:
        return _bf16_by_doubles(np.multiply, arithmetic.wide)
    return _bf16_sum(arithmetic.plain)


def _computed(arithmetic: _Arithmetic, form: FloatFormat, mode: Rounding) -> Compute:
    """The operation on bits of a format."""
    if form.name == "f64":
        return _of_doubles(arithmetic.double, mode)
    if mode != "rn":
        return _by_doubles(arithmetic.wide, form, mode)
    if form.name == "bf16":
        return _bf16(arithmetic)
    return _quick_fma(form) if arithmetic is _FMA else _by_numpy(arithmetic.plain, form)


def _operation(arithmetic: _Arithmetic, type_name: str, style: _Style) -> Operation:
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = _finished(_computed(arithmetic, form, style.mode), form, style)
    if type_name in PACKED:
        compute = packed(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,) * arithmetic.arity, type_name)


_OF_NAME = {"add": _ADD, "sub": _SUBTRACT, "mul": _MULTIPLY, "fma": _FMA, "mad": _FMA}


def arithmetic(modifiers: Modifiers) -> Operation:
    """add, sub, mul, fma, mad; add.f32.f16 and its siblings, whose first operands are f16 or bf16."""
    type_name = modifiers.type(FLOAT_TYPES)
    is_mixed = modifiers.last() == "f32" and type_name in ("f16", "bf16")
    if is_mixed:
        modifiers.type(("f32",))
    style = _Style(
        rounding(modifiers),
        ftz=modifiers.has("ftz"),
        sat=modifiers.has("sat"),
        relu=modifiers.has("relu"),
        oob=modifiers.has("oob"),
    )
    modifiers.end()
    _refuse_style(modifiers.name, type_name, style)
    if is_mixed:
        return _mixed(_OF_NAME[modifiers.name], type_name, style)
    return _operation(_OF_NAME[modifiers.name], type_name, style)


def _refuse_style(name: str, type_name: str, style: _Style) -> None:
    """Modifiers that PTX does not have for a type."""
    is_half = PACKED.get(type_name, type_name) in ("f16", "bf16")
    if style.ftz and type_name in ("f64", "bf16", "bf16x2"):
        raise UnknownForm(f"{name}.{type_name} has no .ftz")
    if (style.relu or style.oob) and not (name == "fma" and is_half):
        raise UnknownForm(f"{name}.{type_name} has no .relu and no .oob")
    if style.sat and type_name in ("f64", "f32x2"):
        raise UnknownForm(f"{name}.{type_name} has no .sat")


def _mixed(of_name: _Arithmetic, narrow: str, style: _Style) -> Operation:
    """add.f32.f16: every operand but the last is of the narrow type, and becomes f32 first."""
    if of_name is _MULTIPLY:
        raise UnknownForm(f"mul has no type .f32.{narrow}")
    compute_f32 = _finished(_computed(of_name, _F32, style.mode), _F32, style)
    form = FORMATS[narrow]

    def compute(*sources: Array) -> Array:
        wide = [widened(source, form).astype(np.float32).view(np.uint32) for source in sources[:-1]]
        result: Array = compute_f32(*wide, sources[-1])
        return result

    return Operation(compute, (*(narrow,) * (of_name.arity - 1), "f32"), "f32")


def quotient(modifiers: Modifiers) -> Operation:
    """div, rcp and sqrt with a rounding mode; their .approx and .full forms are in approximate.py."""
    type_name = modifiers.type(("f32", "f64"))
    mode = modifiers.one_of(ROUNDINGS, "")
    if not mode:
        raise UnknownForm(f"{modifiers.name}.{type_name} needs a rounding mode, or .approx")
    style = _Style(cast("Rounding", mode), ftz=modifiers.has("ftz"), sat=False)
    modifiers.end()
    _refuse_style(modifiers.name, type_name, style)
    of_name = {"div": _DIVIDE, "rcp": _RECIPROCAL, "sqrt": _ROOT}
    return _operation(of_name[modifiers.name], type_name, style)


# ------------------------------------------------------------------------------------------------- signs


def _sign_change(name: str, form: FloatFormat) -> Compute:
    sign = constant(form.sign, form.bits)
    rest = constant(form.nan, form.bits)
    change = (np.bitwise_xor, sign) if name == "neg" else (np.bitwise_and, rest)

    def compute(a: Array) -> Array:
        return canonical(change[0](a, change[1]), np.isnan(as_numbers(a, form)), form)

    def compute_f64(a: Array) -> Array:
        return quiet_operand(change[0](a, change[1]), a)

    return compute_f64 if form.name == "f64" else compute


def sign_change(modifiers: Modifiers) -> Operation:
    """Floats with another sign: neg and abs."""
    type_name = modifiers.type(FLOAT_TYPES)
    style = _Style("rn", ftz=modifiers.has("ftz"), sat=False)
    modifiers.end()
    _refuse_style(modifiers.name, type_name, style)
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = _finished(_sign_change(modifiers.name, form), form, style)
    if type_name in PACKED:
        compute = packed(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,), type_name)


def copy_sign(modifiers: Modifiers) -> Operation:
    """copysign: the magnitude of b with the sign of a."""
    type_name = modifiers.type(("f32", "f64"))
    modifiers.end()
    form = FORMATS[type_name]
    sign = constant(form.sign, form.bits)
    rest = constant(form.nan, form.bits)

    def compute(a: Array, b: Array) -> Array:
        result: Array = a & sign | b & rest
        return result

    return Operation(compute, (type_name,) * 2, type_name)


def test_property(modifiers: Modifiers) -> Operation:
    """testp: whether a float is finite, infinite, a number, not a number, normal or subnormal."""
    type_name = modifiers.type(("f32", "f64"))
    question = modifiers.one_of(("finite", "infinite", "number", "notanumber", "normal", "subnormal"), "")
    modifiers.end()
    form = FORMATS[type_name]
    rest = constant(form.nan, form.bits)
    infinity = constant(form.infinity, form.bits)
    least_normal = constant(1 << form.fraction_bits, form.bits)
    answers: dict[str, Callable[[Array], Array]] = {
        "finite": lambda magnitude: magnitude < infinity,
        "infinite": lambda magnitude: magnitude == infinity,
        "number": lambda magnitude: magnitude <= infinity,
        "notanumber": lambda magnitude: magnitude > infinity,
        "normal": lambda magnitude: ((magnitude >= least_normal) & (magnitude < infinity)) | (magnitude == 0),
        "subnormal": lambda magnitude: (magnitude < least_normal) & (magnitude != 0),
    }
    if not question:
        raise UnknownForm("testp does not say what it asks")
    answer = answers[question]
    return Operation(lambda a: answer(a & rest), (type_name,), "pred")


# ------------------------------------------------------------------------------------------------- min, max


def _extreme(name: str, form: FloatFormat, *, keeps_nan: bool) -> Compute:
    """The smaller or larger of two: -0 is below +0, and a NaN loses unless `keeps_nan`."""
    choose = np.fmin if name == "min" else np.fmax
    of_equals = np.bitwise_or if name == "min" else np.bitwise_and
    word = _WORD[form.bits]

    def compute(a: Array, b: Array) -> Array:
        first, second = as_numbers(a, form), as_numbers(b, form)
        chosen = choose(first, second)
        if form.name == "bf16":
            result = (chosen.view(np.uint32) >> _HALF_BITS).astype(np.uint16)
        else:
            result = chosen.view(word)
        is_equal = first == second
        if np.count_nonzero(is_equal):
            result = np.where(is_equal, of_equals(a, b), result)
        nans = np.isnan(chosen)
        if np.count_nonzero(nans):  # numpy takes a signalling NaN for an answer
            result = np.where(nans, np.where(~np.isnan(first), a, b), result)
            nans = np.isnan(first) & np.isnan(second)
        if keeps_nan:
            nans = np.isnan(first) | np.isnan(second)
        if form.name == "f64":
            return quiet_operand(result, a, b)
        return canonical(result, nans, form)

    return compute


def _by_magnitude(compute: Compute, form: FloatFormat) -> Compute:
    """.xorsign.abs: the extreme of the magnitudes, with the product of the signs."""
    sign = constant(form.sign, form.bits)
    rest = constant(form.nan, form.bits)

    def compute_magnitude(a: Array, b: Array) -> Array:
        result: Array = compute(a & rest, b & rest)
        signed: Array = result | (a ^ b) & sign
        return np.where(is_nan(result, form), result, signed)

    return compute_magnitude


def _of_three(compute: Compute, form: FloatFormat, *, by_magnitude: bool) -> Compute:
    """The extreme of three operands."""
    rest = constant(form.nan, form.bits)

    def compute_three(a: Array, b: Array, c: Array) -> Array:
        if by_magnitude:
            a, b, c = a & rest, b & rest, c & rest
        result: Array = compute(compute(a, b), c)
        return result

    return compute_three


def extreme(modifiers: Modifiers, source_count: int) -> Operation:
    """Extremes of floats, min and max, with .NaN, .xorsign.abs, .ftz; of three f32 too (.abs)."""
    type_name = modifiers.type(FLOAT_TYPES)
    style = _Style("rn", ftz=modifiers.has("ftz"), sat=False)
    keeps_nan = modifiers.has("NaN")
    takes_sign = modifiers.has("xorsign")
    by_magnitude = modifiers.has("abs")
    modifiers.end()
    _refuse_style(modifiers.name, type_name, style)
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = _extreme(modifiers.name, form, keeps_nan=keeps_nan)
    if source_count == 3:
        compute = _of_three(compute, form, by_magnitude=by_magnitude)
    elif takes_sign and by_magnitude:
        compute = _by_magnitude(compute, form)
    elif takes_sign or by_magnitude:
        raise UnknownForm(f"{modifiers.name} of two operands has .xorsign and .abs together")
    compute = _finished(compute, form, style)
    if type_name in PACKED:
        compute = packed(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,) * source_count, type_name)
