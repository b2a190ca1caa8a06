"""Look up the operation of an instruction by its name and modifiers.

    add.s32 → integer.py        add.rn.f32 → floating.py

The type, which is the last modifier, decides between the families.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tilescope.machine.arithmetic import (
    approximate,
    bit_fields,
    compare,
    cvt,
    floating,
    integer,
    logic,
    sign_and_order,
)
from tilescope.machine.arithmetic.compute import Modifiers, Operation, UnknownForm
from tilescope.machine.arithmetic.float_style import FLOAT_TYPES
from tilescope.sentence import counted

_Builder = Callable[[Modifiers], Operation]
_OF_INTEGERS: dict[str, _Builder] = {**integer.FAMILIES, **logic.FAMILIES, **bit_fields.FAMILIES, **compare.FAMILIES}
_OF_FLOATS: dict[str, _Builder] = {
    "add": floating.build_arithmetic,
    "sub": floating.build_arithmetic,
    "mul": floating.build_arithmetic,
    "fma": floating.build_arithmetic,
    "mad": floating.build_arithmetic,
    "div": floating.build_quotient,
    "rcp": floating.build_quotient,
    "sqrt": floating.build_quotient,
    "neg": sign_and_order.change_sign,
    "abs": sign_and_order.change_sign,
    "copysign": sign_and_order.copy_sign,
    "testp": sign_and_order.test_property,
}
_APPROXIMATE = ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
NAMES = frozenset({*_OF_INTEGERS, *_OF_FLOATS, *_APPROXIMATE, "setp", "cvt"})
"""Every instruction that `operation` supports."""


@lru_cache(maxsize=4096)
def operation(name: str, modifiers: tuple[str, ...], source_count: int = 0, result_count: int = 1) -> Operation:
    """The arithmetic of an instruction; an UnknownForm if PTX or this machine does not have it.

    `source_count` distinguishes forms that differ only in their operands (min of two or three floats) and is checked
    unless it is 0. `result_count` 2 requests setp p|q.

    >>> import numpy as np
    >>> mad = operation("mad", ("lo", "s32"))
    >>> mad.source_types, mad.compute(*np.array([[7], [6], [2**32 - 2]], np.uint32))
    (('s32', 's32', 's32'), array([40], dtype=uint32))
    >>> operation("add", ("rn", "sat", "f64"))
    Traceback (most recent call last):
    tilescope.machine.arithmetic.compute.UnknownForm: add.f64 has no .sat
    """
    words = Modifiers(name, modifiers)
    built = _build_operation(words, modifiers, source_count, result_count)
    expected_count = len(built.source_types) - built.takes_carry
    if source_count and expected_count != source_count:
        raise UnknownForm(
            f"{'.'.join((name, *modifiers))} takes {counted(expected_count, 'source operand')}, not {source_count}"
        )
    return built


def _build_operation(words: Modifiers, modifiers: tuple[str, ...], source_count: int, result_count: int) -> Operation:
    name = words.name
    if name == "cvt":
        return cvt.convert(words, source_count)
    if name == "setp":
        return compare.set_predicate(words, result_count)
    is_float = bool(modifiers) and modifiers[-1] in FLOAT_TYPES
    if name in _APPROXIMATE and "approx" in modifiers:
        return approximate.approximation(words)
    if name == "div" and ("approx" in modifiers or "full" in modifiers):
        return approximate.division(words)
    if is_float and name in ("min", "max"):
        return sign_and_order.select_extreme(words, source_count or 2)
    if is_float and name in _OF_FLOATS:
        return _OF_FLOATS[name](words)
    if name in _OF_INTEGERS:
        return _OF_INTEGERS[name](words)
    if name in NAMES:
        raise UnknownForm(f"{'.'.join((name, *modifiers))} has no such type")
    raise UnknownForm(f"the machine has no instruction {name}")
