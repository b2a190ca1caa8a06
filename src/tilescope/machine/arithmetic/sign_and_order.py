"""Signs and order of floats: neg, abs, copysign, testp, min, max.

neg and abs are additions on an H200 (measured): a NaN becomes the canonical NaN. min and max: -0 is below +0, and of a
NaN and a number the number is returned, unless the instruction has .NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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
from tilescope.machine.arithmetic.float_style import FLOAT_TYPES, PACKED, Style, apply_style, refuse_style
from tilescope.machine.arithmetic.float_words import (
    HALF_BITS,
    WORD_OF_BITS,
    as_numbers,
    is_nan,
    propagate_nan,
    set_canonical_nan,
)


def _compute_sign_change(name: str, form: FloatFormat) -> Compute:
    sign = constant(form.sign, form.bits)
    magnitude_mask = constant(form.nan, form.bits)
    change = (np.bitwise_xor, sign) if name == "neg" else (np.bitwise_and, magnitude_mask)

    def compute(a: Array) -> Array:
        return set_canonical_nan(change[0](a, change[1]), np.isnan(as_numbers(a, form)), form)

    def compute_f64(a: Array) -> Array:
        return propagate_nan(change[0](a, change[1]), a)

    return compute_f64 if form.name == "f64" else compute


def change_sign(modifiers: Modifiers) -> Operation:
    """Neg and abs of floats."""
    type_name = modifiers.type(FLOAT_TYPES)
    style = Style("rn", ftz=modifiers.has("ftz"), sat=False)
    modifiers.end()
    refuse_style(modifiers.name, type_name, style)
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = apply_style(_compute_sign_change(modifiers.name, form), form, style)
    if type_name in PACKED:
        compute = apply_to_parts(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,), type_name)


def copy_sign(modifiers: Modifiers) -> Operation:
    """copysign: the magnitude of b with the sign of a."""
    type_name = modifiers.type(("f32", "f64"))
    modifiers.end()
    form = FORMATS[type_name]
    sign = constant(form.sign, form.bits)
    magnitude_mask = constant(form.nan, form.bits)

    def compute(a: Array, b: Array) -> Array:
        result: Array = a & sign | b & magnitude_mask
        return result

    return Operation(compute, (type_name,) * 2, type_name)


def test_property(modifiers: Modifiers) -> Operation:
    """testp: whether a float is finite, infinite, a number, not a number, normal or subnormal."""
    type_name = modifiers.type(("f32", "f64"))
    question = modifiers.one_of(("finite", "infinite", "number", "notanumber", "normal", "subnormal"), "")
    modifiers.end()
    form = FORMATS[type_name]
    magnitude_mask = constant(form.nan, form.bits)
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
    return Operation(lambda a: answer(a & magnitude_mask), (type_name,), "pred")


def _compute_extreme(name: str, form: FloatFormat, *, keeps_nan: bool) -> Compute:
    """The smaller or larger of two: -0 is less than +0, and a NaN is ignored unless `keeps_nan`."""
    choose = np.fmin if name == "min" else np.fmax
    of_equals = np.bitwise_or if name == "min" else np.bitwise_and
    word = WORD_OF_BITS[form.bits]

    def compute(a: Array, b: Array) -> Array:
        first, second = as_numbers(a, form), as_numbers(b, form)
        chosen = choose(first, second)
        if form.name == "bf16":
            result = (chosen.view(np.uint32) >> HALF_BITS).astype(np.uint16)
        else:
            result = chosen.view(word)
        is_equal = first == second
        if np.count_nonzero(is_equal):
            result = np.where(is_equal, of_equals(a, b), result)
        nans = np.isnan(chosen)
        if np.count_nonzero(nans):  # numpy returns a signalling NaN
            result = np.where(nans, np.where(~np.isnan(first), a, b), result)
            nans = np.isnan(first) & np.isnan(second)
        if keeps_nan:
            nans = np.isnan(first) | np.isnan(second)
        if form.name == "f64":
            return propagate_nan(result, a, b)
        return set_canonical_nan(result, nans, form)

    return compute


def _compute_by_magnitude(compute: Compute, form: FloatFormat) -> Compute:
    """.xorsign.abs: the extreme of the magnitudes, with the product of the signs."""
    sign = constant(form.sign, form.bits)
    magnitude_mask = constant(form.nan, form.bits)

    def compute_magnitude(a: Array, b: Array) -> Array:
        result: Array = compute(a & magnitude_mask, b & magnitude_mask)
        signed: Array = result | (a ^ b) & sign
        return np.where(is_nan(result, form), result, signed)

    return compute_magnitude


def _compute_three(compute: Compute, form: FloatFormat, *, by_magnitude: bool) -> Compute:
    """The extreme of three operands."""
    magnitude_mask = constant(form.nan, form.bits)

    def compute_three(a: Array, b: Array, c: Array) -> Array:
        if by_magnitude:
            a, b, c = a & magnitude_mask, b & magnitude_mask, c & magnitude_mask
        result: Array = compute(compute(a, b), c)
        return result

    return compute_three


_OPERANDS_OF_AN_EXTREME = (2, 3)


def select_extreme(modifiers: Modifiers, source_count: int) -> Operation:
    """Min and max of floats, with .NaN, .xorsign.abs and .ftz; also of three f32 (.abs)."""
    type_name = modifiers.type(FLOAT_TYPES)
    style = Style("rn", ftz=modifiers.has("ftz"), sat=False)
    keeps_nan = modifiers.has("NaN")
    takes_sign = modifiers.has("xorsign")
    by_magnitude = modifiers.has("abs")
    modifiers.end()
    refuse_style(modifiers.name, type_name, style)
    form = FORMATS[PACKED.get(type_name, type_name)]
    compute = _compute_extreme(modifiers.name, form, keeps_nan=keeps_nan)
    if source_count not in _OPERANDS_OF_AN_EXTREME:
        raise UnknownForm(f"{modifiers.name} takes 2 or 3 source operands, not {source_count}")
    if source_count == 3:
        compute = _compute_three(compute, form, by_magnitude=by_magnitude)
    elif takes_sign and by_magnitude:
        compute = _compute_by_magnitude(compute, form)
    elif takes_sign or by_magnitude:
        raise UnknownForm(f"{modifiers.name} of two operands has .xorsign and .abs together")
    compute = apply_style(compute, form, style)
    if type_name in PACKED:
        compute = apply_to_parts(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,) * source_count, type_name)
