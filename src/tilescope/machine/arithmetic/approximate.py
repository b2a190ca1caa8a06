"""Functions that PTX gives within an error bound: ex2 lg2 rcp rsqrt sqrt sin cos tanh (.approx), div.approx, div.full.

The hardware's last bits are its own. Here the function is computed in double precision and rounded to nearest, so that it lies
within the ISA's bound wherever the hardware does; zeros, infinities and NaN are the ISA's tables, which those functions
of numpy have already.

    ex2.approx.f32     2 ulp                  rcp, div.full    1 ulp, 2 ulp       tanh.approx.f32   2^-11 relative
    lg2.approx.f32     2^-22                  rsqrt            2^-22.9            sin, cos          2^-20.5 in [-2 pi, 2 pi]
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
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat, round_to_format
from tilescope.machine.arithmetic.float_style import PACKED
from tilescope.machine.arithmetic.float_words import flush_subnormals, propagate_nan, set_canonical_nan, widen_to_double

_F32 = FORMATS["f32"]
_F64 = FORMATS["f64"]

_TURNS_OF_RADIAN = np.array(np.float32(0.15915494), np.float64)  # 1 / (2 pi)
_BITS_OF_F32 = constant(-1 << 29, 64)  # of a double's fraction


def _turned(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A sine or cosine as the hardware takes it: the angle is multiplied to turns and cut to f32, whole turns drop."""

    def compute(a: Array) -> Array:
        turns = ((a * _TURNS_OF_RADIAN).view(np.uint64) & _BITS_OF_F32).view(np.float64)
        return function(2 * np.pi * np.fmod(turns, 1.0))

    return compute


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda a: 1.0 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "sin": _turned(np.sin),
    "cos": _turned(np.cos),
    "lg2": lambda a: np.log2(np.where(a == 0, 0.0, a)),
    "ex2": np.exp2,
    "tanh": np.tanh,
}
_TYPES = {
    "rcp": ("f32", "f64"),
    "sqrt": ("f32",),
    "rsqrt": ("f32", "f64"),
    "sin": ("f32",),
    "cos": ("f32",),
    "lg2": ("f32",),
    "ex2": ("f32", "f16", "f16x2", "bf16", "bf16x2"),
    "tanh": ("f32", "f16", "f16x2", "bf16", "bf16x2"),
}


def _on_doubles(compute: Callable[..., Array], form: FloatFormat, *, ftz: bool) -> Compute:
    """A function of doubles as one of bits."""
    word = np.dtype(f"u{form.bits // 8}")

    def compute_bits(*sources: Array) -> Array:
        if ftz:
            sources = tuple(flush_subnormals(source, form) for source in sources)
        values = compute(*[widen_to_double(source, form) for source in sources])
        if form is _F32:
            single = values.astype(np.float32)
            result = set_canonical_nan(single.view(np.uint32), np.isnan(single), form)
        else:
            result = round_to_format(values, form).astype(word)
        return flush_subnormals(result, form) if ftz else result

    return compute_bits


_UPPER_WORD = constant(0xFFFFFFFF << 32, 64)
_COARSE_NAN = constant(0x7FFFFFFF << 32, 64)


def _coarse(function: Callable[[Array], Array]) -> Compute:
    """rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: of the upper 32 bits, to the upper 32 bits."""

    def compute(a: Array) -> Array:
        values = function(flush_subnormals(a & _UPPER_WORD, _F64).view(np.float64))
        result = flush_subnormals(values.view(np.uint64) & _UPPER_WORD, _F64)
        return np.where(np.isnan(values), _COARSE_NAN, result)

    return compute


def _of_f64(function: Callable[[Array], Array]) -> Compute:
    """rsqrt.approx.f64."""

    def compute(a: Array) -> Array:
        return propagate_nan(function(a.view(np.float64)).view(np.uint64), a)

    return compute


def approximation(modifiers: Modifiers) -> Operation:
    """The functions of one operand."""
    name = modifiers.name
    type_name = modifiers.type(_TYPES[name])
    if not modifiers.has("approx"):
        raise UnknownForm(f"{name}.{type_name} has .approx alone")
    ftz = modifiers.has("ftz")
    modifiers.end()
    function = _FUNCTIONS[name]
    form = FORMATS[PACKED.get(type_name, type_name)]
    if type_name == "f64":
        compute = _coarse(function) if ftz else _of_f64(function)
    else:
        compute = _on_doubles(function, form, ftz=ftz)
    if type_name in PACKED:
        compute = apply_to_parts(compute, form.bits, 2 * form.bits)
    return Operation(compute, (type_name,), type_name, is_exact=False)


_FAR = 2.0**126


def _by_reciprocal(a: Array, b: Array) -> Array:
    """div.approx: a * (1 / b), where the reciprocal of a number above 2^126 is 0."""
    return np.where(np.abs(b) > _FAR, a * np.copysign(0.0, b), a / b)


def division(modifiers: Modifiers) -> Operation:
    """div.approx.f32 and div.full.f32."""
    modifiers.type(("f32",))
    kind = modifiers.one_of(("approx", "full"), "")
    ftz = modifiers.has("ftz")
    modifiers.end()
    function = _by_reciprocal if kind == "approx" else np.divide
    return Operation(_on_doubles(function, _F32, ftz=ftz), ("f32", "f32"), "f32", is_exact=False)
