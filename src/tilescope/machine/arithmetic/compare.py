"""Comparison and selection: setp, set, selp, slct.

    setp.lt.and.s32 p|q, a, b, c      p = (a < b) and c, q = not (a < b) and c
    set.gt.u32.f32 d, a, b            d = 0xFFFFFFFF where a > b, else 0 (1.0 for a float d)
    slct.b32.s32 d, a, b, c           d = a where c >= 0, else b

eq ne lt le gt ge are False where an operand is NaN; equ neu ltu leu gtu geu are True there. num: both are numbers.
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
    constant,
    split_parts,
)
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat
from tilescope.machine.arithmetic.float_style import PACKED
from tilescope.machine.arithmetic.float_words import as_numbers, flush_subnormals
from tilescope.machine.arithmetic.integer import INTEGER_BITS, view_signed

_BITS = {"b16": 16, "b32": 32, "b64": 64}
_FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
_COMPARED = (*_BITS, *INTEGER_BITS, *_FLOATS)
_BOOLEAN: dict[str, Compute] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}

_ORDERED: dict[str, Compute] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_OF_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _is_either(a: Array, b: Array) -> Array:
    """Ordered ne of floats: less or greater; false for a NaN."""
    result: Array = (a < b) | (a > b)
    return result


def _are_numbers(a: Array, b: Array) -> Array:
    result: Array = ~np.isnan(a) & ~np.isnan(b)
    return result


def _negate_comparison(compute: Compute) -> Compute:
    return lambda a, b: ~compute(a, b)


_OF_FLOATS: dict[str, Compute] = {
    **_ORDERED,
    "ne": _is_either,
    "equ": _negate_comparison(_is_either),
    "neu": np.not_equal,
    "ltu": _negate_comparison(np.greater_equal),
    "leu": _negate_comparison(np.greater),
    "gtu": _negate_comparison(np.less_equal),
    "geu": _negate_comparison(np.less),
    "num": _are_numbers,
    "nan": _negate_comparison(_are_numbers),
}
COMPARISONS = (*_OF_FLOATS, *_OF_UNSIGNED)


def _float_comparison(compare: str, form: FloatFormat, *, ftz: bool) -> Compute:
    plain = _OF_FLOATS[compare]

    def compare_flushed(a: Array, b: Array) -> Array:
        result: Array = plain(as_numbers(flush_subnormals(a, form), form), as_numbers(flush_subnormals(b, form), form))
        return result

    return compare_flushed if ftz else lambda a, b: plain(as_numbers(a, form), as_numbers(b, form))


def _comparison(compare: str, type_name: str, *, ftz: bool) -> Compute:
    """The comparison as a function of two operands that returns booleans."""
    if type_name in FORMATS:
        if compare not in _OF_FLOATS:
            raise UnknownForm(f".{compare} does not compare .{type_name}")
        return _float_comparison(compare, FORMATS[type_name], ftz=ftz)
    if compare in _OF_UNSIGNED and type_name.startswith("u"):
        compare = _OF_UNSIGNED[compare]
    comparisons = ("eq", "ne") if type_name in _BITS else _ORDERED
    if compare not in comparisons:
        raise UnknownForm(f".{compare} does not compare .{type_name}")
    plain = _ORDERED[compare]
    if type_name.startswith("s"):
        return lambda a, b: plain(view_signed(a), view_signed(b))
    return plain


class _Compared:
    """The parts common to setp and set: the types, the comparison, and the predicate combined with it."""

    def __init__(self, modifiers: Modifiers) -> None:
        self.type_name = modifiers.type(_COMPARED)
        self.boolean = modifiers.one_of(_BOOLEAN, "")
        self.compare = modifiers.one_of(COMPARISONS, "")
        if not self.compare:
            raise UnknownForm(f"{modifiers.name} does not say how it compares")
        ftz = modifiers.has("ftz")
        if ftz and PACKED.get(self.type_name, self.type_name) not in ("f16", "f32"):
            raise UnknownForm(f"{modifiers.name} has no .ftz for .{self.type_name}")
        part = PACKED.get(self.type_name, self.type_name)
        self.part_bits = 16 if self.type_name in PACKED else 0
        self.holds = _comparison(self.compare, part, ftz=ftz)

    @property
    def source_types(self) -> tuple[str, ...]:
        """The types of the two operands, and of the predicate."""
        if self.boolean:
            return (self.type_name, self.type_name, "pred")
        return (self.type_name, self.type_name)

    def combine_with(self, result: Array, predicates: tuple[Array, ...]) -> Array:
        """Combine the result with the predicate, if there is one."""
        if not predicates:
            return result
        both: Array = _BOOLEAN[self.boolean](result, predicates[0])
        return both

    def of_parts(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Compare the low and the high halves."""
        result: Array = self.holds(split_parts(a, self.part_bits), split_parts(b, self.part_bits))
        return result[0::2], result[1::2]


def set_predicate(modifiers: Modifiers, result_count: int) -> Operation:
    """setp: one predicate, or p|q. For pairs p is the low half's, q the high half's."""
    compared = _Compared(modifiers)
    modifiers.end()

    def compute(a: Array, b: Array, *predicates: Array) -> Array:
        return compared.combine_with(compared.holds(a, b), predicates)

    def compute_both(a: Array, b: Array, *predicates: Array) -> tuple[Array, Array]:
        holds = compared.holds(a, b)
        return compared.combine_with(holds, predicates), compared.combine_with(~holds, predicates)

    def compute_parts(a: Array, b: Array, *predicates: Array) -> tuple[Array, Array]:
        low, high = compared.of_parts(a, b)
        return compared.combine_with(low, predicates), compared.combine_with(high, predicates)

    if compared.part_bits:
        return Operation(compute_parts, compared.source_types, "pred", result_count=2)
    if result_count == 2:
        return Operation(compute_both, compared.source_types, "pred", result_count=2)
    if not compared.boolean:
        return Operation(compared.holds, compared.source_types, "pred")
    return Operation(compute, compared.source_types, "pred")


_TRUE = {
    "u16": 0xFFFF,
    "s16": 0xFFFF,
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "f16": FORMATS["f16"].one,
    "bf16": FORMATS["bf16"].one,
    "f32": FORMATS["f32"].one,
}
"""The value that set writes where the comparison is true."""


def set_word(modifiers: Modifiers) -> Operation:
    """set: all ones or 1.0 where a comparison is true; halves of 16 bits for pairs."""
    compared = _Compared(modifiers)
    result_type = modifiers.type((*_TRUE, "f16x2", "bf16x2"))
    modifiers.end()
    part_type = PACKED.get(result_type, result_type)
    if compared.part_bits:
        true = constant(_TRUE[part_type], 16)
    else:
        true = constant(_TRUE[part_type], 16 if part_type.endswith("16") else 32)
    false = np.zeros_like(true)

    def compute(a: Array, b: Array, *predicates: Array) -> Array:
        return np.where(compared.combine_with(compared.holds(a, b), predicates), true, false)

    def compute_parts(a: Array, b: Array, *predicates: Array) -> Array:
        low, high = compared.of_parts(a, b)
        low_word = np.where(compared.combine_with(low, predicates), true, false).astype(np.uint32)
        high_word = np.where(compared.combine_with(high, predicates), true, false).astype(np.uint32)
        word: Array = low_word | high_word << np.uint32(16)
        return word

    return Operation(compute_parts if compared.part_bits else compute, compared.source_types, result_type)


_CHOSEN = (*_BITS, *INTEGER_BITS, "f32", "f64")


def select(modifiers: Modifiers) -> Operation:
    """selp: a where the predicate is true, else b."""
    type_name = modifiers.type((*_CHOSEN, "f16", "bf16"))
    modifiers.end()
    return Operation(lambda a, b, predicate: np.where(predicate, a, b), (type_name, type_name, "pred"), type_name)


def select_by_sign(modifiers: Modifiers) -> Operation:
    """slct: a where c >= 0, else b; b for a NaN."""
    test_type = modifiers.type(("s32", "f32"))
    type_name = modifiers.type(_CHOSEN)
    ftz = modifiers.has("ftz")
    modifiers.end()
    not_negative = _comparison("ge", test_type, ftz=ftz)
    zero = constant(0, 32)[None]
    return Operation(
        lambda a, b, c: np.where(not_negative(c, zero), a, b), (type_name, type_name, test_type), type_name
    )


FAMILIES: dict[str, Callable[[Modifiers], Operation]] = {"set": set_word, "selp": select, "slct": select_by_sign}
