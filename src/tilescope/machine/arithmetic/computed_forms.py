"""An instruction's name and modifiers → its operation.

add, mul, min … are names of two families: the type, which stands last, says which.
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
    "add": floating.arithmetic,
    "sub": floating.arithmetic,
    "mul": floating.arithmetic,
    "fma": floating.arithmetic,
    "mad": floating.arithmetic,
    "div": floating.quotient,
    "rcp": floating.quotient,
    "sqrt": floating.quotient,
    "neg": sign_and_order.sign_change,
    "abs": sign_and_order.sign_change,
    "copysign": sign_and_order.copy_sign,
    "testp": sign_and_order.test_property,
}
_APPROXIMATE = ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh")
NAMES = frozenset({*_OF_INTEGERS, *_OF_FLOATS, *_APPROXIMATE, "setp", "cvt"})
"""Every instruction that `operation` knows."""


@lru_cache(maxsize=4096)
def operation(name: str, modifiers: tuple[str, ...], source_count: int = 0, result_count: int = 1) -> Operation:
    """The arithmetic of an instruction. Raises UnknownForm, with the reason, for what PTX or this machine does not have.

    `source_count` tells forms apart that differ by their operands alone (min of two or three floats), and is checked
    where it is given; `result_count` 2 asks for setp p|q.

    >>> import numpy as np
    >>> mad = operation("mad", ("lo", "s32"))
    >>> mad.source_types, mad.compute(*np.array([[7], [6], [2**32 - 2]], np.uint32))
    (('s32', 's32', 's32'), array([40], dtype=uint32))
    >>> operation("add", ("rn", "sat", "f64"))
    Traceback (most recent call last):
    tilescope.machine.arithmetic.compute.UnknownForm: add.f64 has no .sat
    """
    words = Modifiers(name, modifiers)
    found = _built(words, modifiers, source_count, result_count)
    if source_count and len(found.source_types) - found.takes_carry != source_count:
        taken = len(found.source_types) - found.takes_carry
        raise UnknownForm(
            f"{'.'.join((name, *modifiers))} takes {counted(taken, 'source operand')}, not {source_count}"
        )
    return found


def _built(words: Modifiers, modifiers: tuple[str, ...], source_count: int, result_count: int) -> Operation:
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
        return sign_and_order.extreme(words, source_count or 2)
    if is_float and name in _OF_FLOATS:
        return _OF_FLOATS[name](words)
    if name in _OF_INTEGERS:
        return _OF_INTEGERS[name](words)
    if name in NAMES:
        raise UnknownForm(f"{'.'.join((name, *modifiers))} has no such type")
    raise UnknownForm(f"the machine has no instruction {name}")
