"""The modifiers that operations on floats share, and the steps they add before and after an operation.

sources → .ftz flushes them → the operation, rounded once → .ftz flushes the result → .sat, .relu, .oob
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Compute, Modifiers, UnknownForm, constant
from tilescope.machine.arithmetic.float_format import ROUNDINGS, FloatFormat
from tilescope.machine.arithmetic.float_words import clamp_negatives, clamp_to_unit, flush_subnormals
from tilescope.one_rounding import Rounding

SCALARS = ("f32", "f64", "f16", "bf16")
PACKED = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
FLOAT_TYPES = (*SCALARS, *PACKED)


class Style(NamedTuple):
    """The modifiers that every operation on floats may have."""

    mode: Rounding
    ftz: bool
    sat: bool
    relu: bool = False
    oob: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the operation rounds to nearest and has no other modifier."""
        return self.mode == "rn" and not (self.ftz or self.sat or self.relu or self.oob)


def read_rounding(modifiers: Modifiers) -> Rounding:
    """Read the rounding modifier: .rn, .rz, .rm or .rp; .rn if there is none."""
    return cast("Rounding", modifiers.one_of(ROUNDINGS, "rn"))


def refuse_style(name: str, type_name: str, style: Style) -> None:
    """Refuse modifiers that PTX does not have for a type."""
    is_half = PACKED.get(type_name, type_name) in ("f16", "bf16")
    if style.ftz and type_name in ("f64", "bf16", "bf16x2"):
        raise UnknownForm(f"{name}.{type_name} has no .ftz")
    if (style.relu or style.oob) and not (name == "fma" and is_half):
        raise UnknownForm(f"{name}.{type_name} has no .relu and no .oob")
    if style.sat and type_name in ("f64", "f32x2"):
        raise UnknownForm(f"{name}.{type_name} has no .sat")


def apply_style(compute: Compute, form: FloatFormat, style: Style) -> Compute:
    """Add the steps of the modifiers to an operation."""
    if style.is_plain:
        return compute

    def compute_styled(*sources: Array) -> Array:
        if style.ftz:
            sources = tuple(flush_subnormals(source, form) for source in sources)
        result: Array = compute(*sources)
        if style.ftz:
            result = flush_subnormals(result, form)
        if style.sat:
            result = clamp_to_unit(result, form)
        if style.relu:
            result = clamp_negatives(result, form)
        if style.oob:
            result = _zero_outside(result, sources)
        return result

    return compute_styled


_OUTSIDE = constant(0x7FF7, 16)  # the NaN that tensor copies fill out-of-bounds elements with
_MAGNITUDE = constant(0x7FFF, 16)


def _zero_outside(words: Array, sources: tuple[Array, ...]) -> Array:
    """.oob: 0 where a factor is the out-of-bounds NaN of tensor copies, of either sign."""
    is_outside = (sources[0] & _MAGNITUDE == _OUTSIDE) | (sources[1] & _MAGNITUDE == _OUTSIDE)
    return np.where(is_outside, words.dtype.type(0), words)
