"""Correctly rounded arithmetic of floats: add, sub, mul, fma, div, rcp, sqrt.

f32, f16 to nearest    numpy's own operation; a fma by doubles, whose error is looked at where it can matter
bf16 to nearest        by f32 or doubles, then the upper half
other rounding modes   by doubles that are rounded to odd (one_rounding.py), then rounded to the format
f64                    numpy's own operation, moved to its neighbour as the mode and the error ask
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np

from tilescope import one_rounding
from tilescope.machine.arithmetic.compute import (
    Array,
    Compute,
    Modifiers,
    Operation,
    UnknownForm,
    apply_to_parts,
    constant,
)
from tilescope.machine.arithmetic.float_format import FORMATS, ROUNDINGS, FloatFormat, round_to_format
from tilescope.machine.arithmetic.float_style import (
    FLOAT_TYPES,
    PACKED,
    Style,
    apply_style,
    read_rounding,
    refuse_style,
)
from tilescope.machine.arithmetic.float_words import (
    FLOAT_OF_BITS,
    WORD_OF_BITS,
    nearest_upper_half,
    propagate_nan,
    set_canonical_nan,
    upper_half_as_f32,
    widen_to_double,
)
from tilescope.one_rounding import Rounding
from tilescope.swizzle.permutation import compiler

_F32 = FORMATS["f32"]
_LOOP_FROM_THREADS = 1024  # for fewer, a process that has not compiled the loop would wait for it in vain
_DOUBLE = FLOAT_OF_BITS[64]
_DOUBLE_WORD = WORD_OF_BITS[64]


Wide = Callable[..., Array]  # doubles and a rounding mode → doubles that round to the result


class _Arithmetic(NamedTuple):
    """An operation in three versions: numpy's, where that rounds once; on doubles, for narrow formats; on f64."""

    plain: Compute
    wide: Wide
    double: Wide
    arity: int


def _wide_difference(a: Array, b: Array, mode: Rounding) -> Array:
    return one_rounding.odd_sum(a, -b, mode)


def _wide_product(a: Array, b: Array, _mode: Rounding) -> Array:
    return a * b


def _wide_fma(a: Array, b: Array, c: Array, mode: Rounding) -> Array:
    return one_rounding.odd_sum(a * b, c, mode)


def _wide_quotient(a: Array, b: Array, _mode: Rounding) -> Array:
    return a / b


def _wide_reciprocal(a: Array, _mode: Rounding) -> Array:
    return 1.0 / a


def _wide_root(a: Array, _mode: Rounding) -> Array:
    return np.sqrt(a)


def _double_difference(a: Array, b: Array, mode: Rounding) -> Array:
    return one_rounding.double_sum(a, -b, mode)


def _double_reciprocal(a: Array, mode: Rounding) -> Array:
    return one_rounding.double_quotient(np.ones_like(a), a, mode)


_ADD = _Arithmetic(np.add, one_rounding.odd_sum, one_rounding.double_sum, 2)
_SUBTRACT = _Arithmetic(np.subtract, _wide_difference, _double_difference, 2)
_MULTIPLY = _Arithmetic(np.multiply, _wide_product, one_rounding.double_product, 2)
_FMA = _Arithmetic(np.add, _wide_fma, one_rounding.double_fma, 3)
_DIVIDE = _Arithmetic(np.divide, _wide_quotient, one_rounding.double_quotient, 2)
_RECIPROCAL = _Arithmetic(np.reciprocal, _wide_reciprocal, _double_reciprocal, 1)
_ROOT = _Arithmetic(np.sqrt, _wide_root, one_rounding.double_root, 1)


def _compute_by_numpy(plain: Compute, form: FloatFormat) -> Compute:
    """f32 and f16 to nearest: numpy's operation rounds once (f16 by way of f32, which has more than twice the bits)."""
    kind, word = FLOAT_OF_BITS[form.bits], WORD_OF_BITS[form.bits]

    def compute_two(a: Array, b: Array) -> Array:
        result: Array = plain(a.view(kind), b.view(kind))
        return set_canonical_nan(result.view(word), np.isnan(result), form)

    def compute_one(a: Array) -> Array:
        result: Array = plain(a.view(kind))
        return set_canonical_nan(result.view(word), np.isnan(result), form)

    return compute_one if plain in (np.reciprocal, np.sqrt) else compute_two


def _compute_by_doubles(wide: Wide, form: FloatFormat, mode: Rounding) -> Compute:
    """f32, f16 and bf16 in any mode."""
    word = WORD_OF_BITS[form.bits]

    def compute(*sources: Array) -> Array:
        return round_to_format(wide(*[widen_to_double(source, form) for source in sources], mode), form, mode).astype(
            word
        )

    return compute


def _compute_doubles(double: Wide, mode: Rounding) -> Compute:
    """f64."""

    def compute(*sources: Array) -> Array:
        result = double(*[source.view(np.float64) for source in sources], mode)
        return propagate_nan(result.view(np.uint64), *sources)

    return compute


def _fma_by_loop(a: Array, b: Array, c: Array) -> Array:
    """fma.rn.f32 by the loop that numba compiles."""
    from tilescope.machine.arithmetic.fma_loop import multiply_and_add

    result = np.empty(a.shape, np.float32)
    multiply_and_add(*[np.ascontiguousarray(source).view(np.float32) for source in (a, b, c)], result)
    return set_canonical_nan(result.view(np.uint32), np.isnan(result), _F32)


def _quick_fma(form: FloatFormat) -> Compute:
    """fma.rn.f32, .f16. The product of doubles is exact; their sum is rounded once to a double and once more to f32.

    The second rounding can only go wrong where the double is halfway between two f32, or is one: its low 28 bits are
    0 (of f16: 41). Only if there is such a lane is the error of the sum looked at. Many threads take a compiled loop (fma_loop.py),
    where numba is loaded.
    """
    kind, word = FLOAT_OF_BITS[form.bits], WORD_OF_BITS[form.bits]
    low_bits = constant((1 << 52 - form.fraction_bits - 1) - 1, 64)

    def compute(a: Array, b: Array, c: Array) -> Array:
        if form is _F32 and a.size >= _LOOP_FROM_THREADS and "numba" in sys.modules and compiler() is not None:
            return _fma_by_loop(a, b, c)
        product = a.view(kind).astype(_DOUBLE)
        product *= b.view(kind).astype(_DOUBLE)
        addend = c.view(kind).astype(_DOUBLE)
        total = product + addend
        if np.count_nonzero(total.view(_DOUBLE_WORD) & low_bits) != total.size:
            _, error = one_rounding.two_sum(product, addend)
            total = one_rounding.made_odd(total, error)
        result = total.astype(kind)
        return set_canonical_nan(result.view(word), np.isnan(result), form)

    return compute


_LOW_HALF = constant(0xFFFF, 32)
_TIE = constant(0x8000, 32)


def _compute_bf16_by_doubles(quick: Compute, wide: Wide) -> Compute:
    """bf16 to nearest: the result as a double goes to f32 and, rounded again, to its upper half.

    The first rounding may leave the f32 half way between two bf16 though the number is not: then it is moved a step
    back to the exact number. `quick` gives doubles, `wide` those that tell on which side of them the number is.
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


def _bf16_sum(plain: Compute) -> Compute:
    """Sums of bf16 to nearest: f32 has more than twice the bits, so the second rounding is harmless."""

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
        return _compute_bf16_by_doubles(_multiply_and_add, arithmetic.wide)
    if arithmetic is _MULTIPLY:
        return _compute_bf16_by_doubles(np.multiply, arithmetic.wide)
    return _bf16_sum(arithmetic.plain)


def _choose_compute(arithmetic: _Arithmetic, form: FloatFormat, mode: Rounding) -> Compute:
    """Choose how an operation is computed for a format and rounding mode."""
    if form.name == "f64":
        return _compute_doubles(arithmetic.double, mode)
    if mode != "rn":
        return _compute_by_doubles(arithmetic.wide, form, mode)
    if form.name == "bf16":
        return _bf16(arithmetic)
    return _quick_fma(form) if arithmetic is _FMA else _compute_by_numpy(arithmetic.plain, form)


_RAISED = 8  # exponent offset that moves a number well above the smallest normal one
_MAY_END_TINY = (_MULTIPLY, _FMA, _DIVIDE, _RECIPROCAL)  # tiny sums are exact, and roots are never tiny


def _tiny_for_ftz(arithmetic: _Arithmetic, form: FloatFormat, mode: Rounding) -> Compute:
    """The operation as .ftz sees it: a number is tiny if it is below the smallest normal one after it is rounded to all bits.

        0x1.ffep-15    f16 has ten bits behind the point: this is one of its numbers but for its exponent, and is flushed
                       although it would round to 0x1p-14 among the subnormal numbers

    Such a number becomes the largest subnormal, which .ftz flushes. Measured on an H200 for mul and fma of f16 and f32, and for
    div of f32.
    """
    compute = _choose_compute(arithmetic, form, mode)
    magnitude_mask = constant((1 << form.bits - 1) - 1, form.bits)
    smallest = constant(1 << form.fraction_bits, form.bits)
    raised_mask = np.uint64((1 << form.bits - 1) - 1)
    raised_smallest = np.uint64((1 + _RAISED) << form.fraction_bits)

    def compute_tiny(*sources: Array) -> Array:
        result: Array = compute(*sources)
        is_smallest = result & magnitude_mask == smallest
        if not np.count_nonzero(is_smallest):
            return result
        exact = arithmetic.wide(*[widen_to_double(source, form) for source in sources], mode)
        raised = round_to_format(exact * 2.0**_RAISED, form, mode) & raised_mask
        is_tiny = is_smallest & (raised < raised_smallest)
        flushable: Array = result - is_tiny.astype(result.dtype)
        return flushable

    return compute_tiny


def _operation(arithmetic: _Arithmetic, type_name: str, style: Style) -> Operation:
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = _choose_compute(arithmetic, form, style.mode)
    if style.ftz and arithmetic in _MAY_END_TINY:
        compute = _tiny_for_ftz(arithmetic, form, style.mode)
    compute = apply_style(compute, form, style)
    if type_name in PACKED:
        compute = apply_to_parts(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,) * arithmetic.arity, type_name)


_OF_NAME = {"add": _ADD, "sub": _SUBTRACT, "mul": _MULTIPLY, "fma": _FMA, "mad": _FMA}


def build_arithmetic(modifiers: Modifiers) -> Operation:
    """add, sub, mul, fma, mad; and mixed forms such as add.f32.f16, whose first operands are f16 or bf16."""
    type_name = modifiers.type(FLOAT_TYPES)
    is_mixed = modifiers.last() == "f32" and type_name in ("f16", "bf16")
    if is_mixed:
        modifiers.type(("f32",))
    style = Style(
        read_rounding(modifiers),
        ftz=modifiers.has("ftz"),
        sat=modifiers.has("sat"),
        relu=modifiers.has("relu"),
        oob=modifiers.has("oob"),
    )
    modifiers.end()
    refuse_style(modifiers.name, type_name, style)
    if is_mixed:
        return _build_mixed(_OF_NAME[modifiers.name], type_name, style)
    return _operation(_OF_NAME[modifiers.name], type_name, style)


def _build_mixed(of_name: _Arithmetic, narrow: str, style: Style) -> Operation:
    """add.f32.f16: all operands but the last have the narrow type and are converted to f32 first."""
    if of_name is _MULTIPLY:
        raise UnknownForm(f"mul has no type .f32.{narrow}")
    compute_f32 = apply_style(_choose_compute(of_name, _F32, style.mode), _F32, style)
    form = FORMATS[narrow]

    def compute(*sources: Array) -> Array:
        wide = [widen_to_double(source, form).astype(np.float32).view(np.uint32) for source in sources[:-1]]
        result: Array = compute_f32(*wide, sources[-1])
        return result

    return Operation(compute, (*(narrow,) * (of_name.arity - 1), "f32"), "f32")


def build_quotient(modifiers: Modifiers) -> Operation:
    """div, rcp and sqrt with a rounding mode; their .approx and .full forms are in approximate.py."""
    type_name = modifiers.type(("f32", "f64"))
    mode = modifiers.one_of(ROUNDINGS, "")
    if not mode:
        raise UnknownForm(f"{modifiers.name}.{type_name} needs a rounding mode, or .approx")
    style = Style(cast("Rounding", mode), ftz=modifiers.has("ftz"), sat=False)
    modifiers.end()
    refuse_style(modifiers.name, type_name, style)
    of_name = {"div": _DIVIDE, "rcp": _RECIPROCAL, "sqrt": _ROOT}
    return _operation(of_name[modifiers.name], type_name, style)
