"""Logic and shifts of words: and or xor not cnot lop3 shl shr shf.

    lop3.b32 d, a, b, c, 0xEA      d = (a & b) | c; the look-up table is the result for a = 0xF0, b = 0xCC, c = 0xAA
    shf.l.wrap.b32 d, a, b, 8      d = the upper word of {b, a} << 8

Shifts by the width or more give 0, or the sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Compute, Modifiers, Operation, UnknownForm, constant
from tilescope.machine.arithmetic.integer import view_signed

_BITS = {"b16": 16, "b32": 32, "b64": 64}
_SHIFTED = {**_BITS, "u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}


def logic(modifiers: Modifiers) -> Operation:
    """and, or, xor, on bits or predicates."""
    type_name = modifiers.type((*_BITS, "pred"))
    modifiers.end()
    plain = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    return Operation(plain[modifiers.name], (type_name,) * 2, type_name)


def complement(modifiers: Modifiers) -> Operation:
    """Not inverts every bit; cnot is 1 where the source is 0."""
    if modifiers.name == "not":
        type_name = modifiers.type((*_BITS, "pred"))
        compute: Compute = np.invert
    else:
        type_name = modifiers.type(_BITS)
        compute = _is_zero
    modifiers.end()
    return Operation(compute, (type_name,), type_name)


def _is_zero(a: Array) -> Array:
    result: Array = a == 0
    return result.astype(a.dtype)


_Words2 = Callable[[Array, Array], Array]
_OF_TWO: tuple[_Words2, ...] = (
    lambda b, _: np.zeros_like(b),
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, _: ~b,
    lambda b, c: b & ~c,
    lambda _, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda _, c: c,
    lambda b, c: ~b | c,
    lambda b, _: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, _: ~np.zeros_like(b),
)
"""Every function of two words by its table of four bits: bit 2 b + c is the result."""


@lru_cache(maxsize=256)
def _compute_by_table(table: int) -> Callable[[Array, Array, Array], Array]:
    """The function of three words with this look-up table.

    Its lower half is the function of b and c where a is 0; the halves differ where a matters:

        f(a, b, c) = f0(b, c) ^ (a & (f0 ^ f1)(b, c))
    """
    where_zero = table & 0xF
    difference = table >> 4 ^ where_zero
    base, change = _OF_TWO[where_zero], _OF_TWO[difference]

    def compute(a: Array, b: Array, c: Array) -> Array:
        changed = a & change(b, c)
        changed ^= base(b, c)
        return changed

    return compute


def _lop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    return _compute_by_table(int(table[0]) & 0xFF)(a, b, c)


def lop3(modifiers: Modifiers) -> Operation:
    """lop3: any function of three words, by its look-up table. With .or or .and it also produces a predicate."""
    modifiers.type(("b32",))
    boolean = modifiers.one_of(("or", "and"), "")
    modifiers.end()
    if not boolean:
        return Operation(_lop3, ("b32",) * 4, "b32")
    combined = np.logical_or if boolean == "or" else np.logical_and

    def compute(a: Array, b: Array, c: Array, table: Array, predicate: Array) -> tuple[Array, Array]:
        word = _lop3(a, b, c, table)
        return word, combined(word != 0, predicate)

    return Operation(compute, (*("b32",) * 4, "pred"), "b32", result_count=2)


def shift(modifiers: Modifiers) -> Operation:
    """Shl and shr: the amount has 32 bits for every type; numpy clamps it as PTX does."""
    type_name = modifiers.type(_BITS if modifiers.name == "shl" else _SHIFTED)
    modifiers.end()
    bits = _SHIFTED[type_name]
    is_arithmetic = type_name.startswith("s")
    plain = np.left_shift if modifiers.name == "shl" else np.right_shift
    limit = constant(bits, 32)

    def compute(a: Array, amount: Array) -> Array:
        if bits == 16:
            amount = np.minimum(amount, limit)
        amount = amount.astype(a.dtype)
        if is_arithmetic:
            shifted: Array = plain(view_signed(a), view_signed(amount))
            return shifted.view(a.dtype)
        result: Array = plain(a, amount)
        return result

    def compute_signed_32(a: Array, amount: Array) -> Array:
        shifted: Array = plain(a.view(np.int32), amount.view(np.int32))
        return shifted.view(np.uint32)

    if bits == 32:
        return Operation(compute_signed_32 if is_arithmetic else plain, (type_name, "u32"), type_name)
    return Operation(compute, (type_name, "u32"), type_name)


_FUNNEL_BITS = constant(32, 64)


def funnel_shift(modifiers: Modifiers) -> Operation:
    """shf: 32 bits of {b, a} shifted left (.l: the upper word) or right (.r: the lower word)."""
    modifiers.type(("b32",))
    side = modifiers.one_of(("l", "r"), "")
    mode = modifiers.one_of(("clamp", "wrap"), "")
    modifiers.end()
    if not side or not mode:
        raise UnknownForm("shf needs .l or .r, and .clamp or .wrap")
    wrap = constant(31, 32)
    limit = constant(32, 32)

    def compute(a: Array, b: Array, amount: Array) -> Array:
        amount = amount & wrap if mode == "wrap" else np.minimum(amount, limit)
        both = b.astype(np.uint64) << _FUNNEL_BITS | a
        if side == "l":
            return (both << amount >> _FUNNEL_BITS).astype(np.uint32)
        return (both >> amount).astype(np.uint32)

    return Operation(compute, ("b32", "b32", "u32"), "b32")


FAMILIES: dict[str, Callable[[Modifiers], Operation]] = {
    "and": logic,
    "or": logic,
    "xor": logic,
    "not": complement,
    "cnot": complement,
    "lop3": lop3,
    "shl": shift,
    "shr": shift,
    "shf": funnel_shift,
}
