"""Integers: add, sub, mul, mad, div, rem, sad, dp4a, min, max, abs, neg, and the carry.

Results wrap; .sat (of 32 bits signed) clamps. Measured on an H200: a division by 0 gives all ones, and so does its
remainder; the smallest number divided by -1 is itself, with remainder 0.

The carry flag is the adder's: sub.cc computes a + ~b + 1, so that the flag is set where nothing is borrowed, and subc adds
a + ~b + flag. (Measured: addc after sub.cc sees exactly that.)

    add.cc.u32  0xFFFFFFFF + 1 = 0, flag 1          sub.cc.u32  0 - 1 = 0xFFFFFFFF, flag 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

INTEGER_BITS = {"u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}
PAIRS = ("u16x2", "s16x2")
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_SIGNED: dict[int, np.dtype[Any]] = {16: np.dtype("i2"), 32: np.dtype("i4"), 64: np.dtype("i8")}
_UNSIGNED: dict[int, np.dtype[Any]] = {16: np.dtype("u2"), 32: np.dtype("u4"), 64: np.dtype("u8")}


def view_signed(words: Array) -> Array:
    """The same bits as signed integers."""
    return words.view(_SIGNED[words.itemsize * 8])


def _is_signed(type_name: str) -> bool:
    return type_name.startswith("s")


def _as_signed(compute: Compute, bits: int) -> Compute:
    """Apply an operation to signed integers; its result is returned as bits."""
    kind, word = _SIGNED[bits], _UNSIGNED[bits]

    def compute_signed(*sources: Array) -> Array:
        result: Array = compute(*[source.view(kind) for source in sources])
        return result.view(word)

    return compute_signed


def _wide_product(type_name: str) -> Compute:
    bits = INTEGER_BITS[type_name]
    signed_wide, wide = _SIGNED[2 * bits], _UNSIGNED[2 * bits]
    narrow = _SIGNED[bits]

    def product(a: Array, b: Array) -> Array:
        result = a.astype(wide)
        result *= b.astype(wide)
        return result

    def signed_product(a: Array, b: Array) -> Array:
        result = a.view(narrow).astype(signed_wide)
        result *= b.view(narrow).astype(signed_wide)
        return result.view(wide)

    return signed_product if _is_signed(type_name) else product


_LOW_HALF = constant(0xFFFFFFFF, 64)
_HALF_BITS = constant(32, 64)


def _high_of_64(a: Array, b: Array) -> Array:
    """The upper 64 bits of products of unsigned 64-bit integers, from 32-bit halves."""
    a_low, a_high = a & _LOW_HALF, a >> _HALF_BITS
    b_low, b_high = b & _LOW_HALF, b >> _HALF_BITS
    low = a_low * b_low
    middle = a_high * b_low + (low >> _HALF_BITS)
    other = a_low * b_high + (middle & _LOW_HALF)
    high: Array = a_high * b_high + (middle >> _HALF_BITS) + (other >> _HALF_BITS)
    return high


def _signed_high_of_64(a: Array, b: Array) -> Array:
    """A negative factor is 2^64 too large as an unsigned one, so the other factor is subtracted from the upper half."""
    a_sign = (view_signed(a) >> 63).view(np.uint64)
    b_sign = (view_signed(b) >> 63).view(np.uint64)
    high: Array = _high_of_64(a, b) - (a_sign & b) - (b_sign & a)
    return high


def _high_product(type_name: str) -> Compute:
    bits = INTEGER_BITS[type_name]
    if bits == 64:
        return _signed_high_of_64 if _is_signed(type_name) else _high_of_64
    wide, shift, word = _wide_product(type_name), constant(bits, 2 * bits), _UNSIGNED[bits]

    def high(a: Array, b: Array) -> Array:
        product: Array = wide(a, b) >> shift
        return product.astype(word)

    return high


def _product(half: str, type_name: str) -> Compute:
    """The function of mul.lo, .hi or .wide."""
    if half == "lo":
        return np.multiply
    if half == "hi":
        return _high_product(type_name)
    return _wide_product(type_name)


def _result_of_product(half: str, type_name: str) -> str:
    if half == "wide":
        if type_name not in _WIDER:
            raise UnknownForm(f".wide has no type .{type_name}")
        return _WIDER[type_name]
    return type_name


def multiply(modifiers: Modifiers) -> Operation:
    """mul.lo, .hi, .wide."""
    type_name = modifiers.type(INTEGER_BITS)
    half = modifiers.one_of(("lo", "hi", "wide"), "lo")
    modifiers.end()
    result_type = _result_of_product(half, type_name)
    return Operation(_product(half, type_name), (type_name,) * 2, result_type)


def multiply_add(modifiers: Modifiers) -> Operation:
    """mad.lo, .hi, .wide; mad.hi.sat.s32; mad.cc and madc with the carry."""
    type_name = modifiers.type(INTEGER_BITS)
    half = modifiers.one_of(("lo", "hi", "wide"), "lo")
    takes_carry = modifiers.name == "madc"
    gives_carry = modifiers.has("cc")
    saturates = modifiers.has("sat")
    modifiers.end()
    result_type = _result_of_product(half, type_name)
    product = _product(half, type_name)
    types = (type_name, type_name, result_type)
    if takes_carry or gives_carry:
        return _with_carry(_Adder(product, np.add), types, takes_carry=takes_carry, gives_carry=gives_carry)
    if saturates:
        return Operation(_after_product(product, _saturate_result(np.add)), types, result_type)
    if half == "lo":
        return Operation(_low_multiply_add, types, result_type)
    return Operation(_after_product(product, np.add), types, result_type)


def _low_multiply_add(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    product += c
    return product


def _after_product(product: Compute, addition: Compute) -> Compute:
    def compute(a: Array, b: Array, c: Array) -> Array:
        total: Array = addition(product(a, b), c)
        return total

    return compute


_LOW_24 = constant(0xFFFFFF, 32)
_SHIFT_8 = np.array(8, np.int32)
_SHIFT_16 = constant(16, 64)


def _product_of_24(half: str, type_name: str) -> Compute:
    """mul24: the factors are the low 24 bits; .hi gives bits 16 to 47 of the product."""

    def truncate(words: Array) -> Array:
        if _is_signed(type_name):
            return (view_signed(words) << _SHIFT_8 >> _SHIFT_8).view(np.uint32)
        return words & _LOW_24

    wide = _wide_product(type_name)

    def product(a: Array, b: Array) -> Array:
        full_product: Array = wide(truncate(a), truncate(b))
        if half == "hi":
            full_product = full_product >> _SHIFT_16
        return full_product.astype(np.uint32)

    return product


def multiply_24(modifiers: Modifiers) -> Operation:
    """mul24.lo, .hi; mad24.lo, .hi, .hi.sat.s32."""
    type_name = modifiers.type(("u32", "s32"))
    half = modifiers.one_of(("lo", "hi"), "lo")
    saturates = modifiers.has("sat")
    modifiers.end()
    product = _product_of_24(half, type_name)
    if modifiers.name == "mul24":
        return Operation(product, (type_name,) * 2, type_name)
    addition = _saturate_result(np.add) if saturates else np.add
    return Operation(_after_product(product, addition), (type_name,) * 3, type_name)


def _saturate_result(compute: Compute) -> Compute:
    """add.sat.s32, sub.sat.s32: the result is clamped to the range of the type."""
    limits = np.iinfo(np.int32)

    def compute_saturated(a: Array, b: Array) -> Array:
        exact: Array = compute(view_signed(a).astype(np.int64), view_signed(b).astype(np.int64))
        return exact.clip(limits.min, limits.max).astype(np.int32).view(np.uint32)

    return compute_saturated


def add_or_subtract(modifiers: Modifiers) -> Operation:
    """add, sub, addc, subc with .sat, .cc, and pairs of 16 bits."""
    type_name = modifiers.type((*INTEGER_BITS, *PAIRS))
    plain = np.subtract if modifiers.name.startswith("sub") else np.add
    takes_carry = modifiers.name in ("addc", "subc")
    gives_carry = modifiers.has("cc")
    saturates = modifiers.has("sat")
    modifiers.end()
    if type_name in PAIRS:
        return Operation(apply_to_parts(plain, 16, 32), ("b32", "b32"), "b32")
    types = (type_name, type_name)
    if takes_carry or gives_carry:
        return _with_carry(_Adder(None, plain), types, takes_carry=takes_carry, gives_carry=gives_carry)
    return Operation(_saturate_result(plain) if saturates else plain, types, type_name)


class _Adder:
    """[a * b] + c or a - b, with a carry in and a carry out."""

    def __init__(self, product: Compute | None, addition: Compute) -> None:
        self.product = product
        self.subtracts = addition is np.subtract

    def sum(self, sources: tuple[Array, ...], carry: Array | None) -> tuple[Array, Array]:
        """The sum and its carry out. A subtraction without carry in is a + ~b + 1."""
        if self.product is None:
            first, second = sources
        else:
            first, second = self.product(sources[0], sources[1]), sources[2]
        if self.subtracts:
            second = ~second
            carry = np.ones(1, np.bool_) if carry is None else carry
        total = first + second
        overflow = total < first
        if carry is None:
            return total, overflow
        with_carry = total + carry.astype(total.dtype)
        return with_carry, overflow | (with_carry < total)


def _with_carry(adder: _Adder, types: tuple[str, ...], *, takes_carry: bool, gives_carry: bool) -> Operation:
    def compute(*sources: Array) -> Array | tuple[Array, Array]:
        carry = sources[-1] if takes_carry else None
        total, overflow = adder.sum(sources[: len(types)], carry)
        return (total, overflow) if gives_carry else total

    return Operation(
        compute,
        (*types, "pred") if takes_carry else types,
        types[-1],
        result_count=2 if gives_carry else 1,
        takes_carry=takes_carry,
        gives_carry=gives_carry,
    )


def sum_differences(modifiers: Modifiers) -> Operation:
    """sad: c + |a - b|."""
    type_name = modifiers.type(INTEGER_BITS)
    modifiers.end()

    def difference(a: Array, b: Array) -> Array:
        gap: Array = np.maximum(a, b) - np.minimum(a, b)
        return gap

    if _is_signed(type_name):
        difference_of_type = _as_signed(difference, INTEGER_BITS[type_name])
    else:
        difference_of_type = difference
    return Operation(_after_product(difference_of_type, np.add), (type_name,) * 3, type_name)


def _quotient_by_doubles(type_name: str) -> Compute:
    """Quotients of 16 or 32 bits, rounded towards zero.

    A quotient that is no integer is at least 1 / b away from one, which a double of 53 bits keeps: it is cut correctly.
    """
    bits = INTEGER_BITS[type_name]
    kind = (_SIGNED if _is_signed(type_name) else _UNSIGNED)[bits]
    word = _UNSIGNED[bits]

    def quotient(a: Array, b: Array) -> Array:
        exact = a.view(kind).astype(np.float64)
        exact /= b.view(kind).astype(np.float64)
        return exact.astype(np.int64).astype(word)

    return quotient


def _signed_quotient_of_64(a: Array, b: Array) -> Array:
    """Quotients of magnitudes with the sign applied: rounded towards zero."""
    quotient = np.abs(view_signed(a)).view(np.uint64) // np.abs(view_signed(b)).view(np.uint64)
    sign = (view_signed(a ^ b) >> 63).view(np.uint64)
    result: Array = (quotient ^ sign) - sign
    return result


def _quotient(type_name: str) -> Compute:
    if INTEGER_BITS[type_name] < 64:
        return _quotient_by_doubles(type_name)
    return _signed_quotient_of_64 if _is_signed(type_name) else np.floor_divide


def divide(modifiers: Modifiers) -> Operation:
    """Div and rem: quotients and remainders."""
    type_name = modifiers.type(INTEGER_BITS)
    modifiers.end()
    quotient = _quotient(type_name)
    is_remainder = modifiers.name == "rem"
    all_ones = constant(-1, INTEGER_BITS[type_name])

    def compute(a: Array, b: Array) -> Array:
        result: Array = quotient(a, b)
        if is_remainder:
            result = a - result * b  # wraps modulo 2^n, so that signs are right
        if np.count_nonzero(b) != b.size:
            result = np.where(b == 0, all_ones, result)
        return result

    return Operation(compute, (type_name,) * 2, type_name)


def _clamp_result(compute: Compute) -> Compute:
    """.relu: negative results become 0."""

    def compute_clamped(a: Array, b: Array) -> Array:
        result: Array = compute(a, b)
        positive: Array = np.maximum(result, result.dtype.type(0))
        return positive

    return compute_clamped


def select_extreme(modifiers: Modifiers) -> Operation:
    """Min and max of integers, with .relu for s32 and s16x2."""
    type_name = modifiers.type((*INTEGER_BITS, *PAIRS))
    compute: Compute = np.minimum if modifiers.name == "min" else np.maximum
    if modifiers.has("relu"):
        if type_name not in ("s32", "s16x2"):
            raise UnknownForm(f"{modifiers.name}.relu has no type .{type_name}")
        compute = _clamp_result(compute)
    modifiers.end()
    is_pair = type_name in PAIRS
    part_bits = 16 if is_pair else INTEGER_BITS[type_name]
    if _is_signed(type_name):
        compute = _as_signed(compute, part_bits)
    if is_pair:
        return Operation(apply_to_parts(compute, 16, 32), ("b32", "b32"), "b32")
    return Operation(compute, (type_name,) * 2, type_name)


def change_sign(modifiers: Modifiers) -> Operation:
    """Abs and neg of signed integers; the smallest integer maps to itself."""
    type_name = modifiers.type(("s16", "s32", "s64"))
    modifiers.end()
    plain: Compute = np.abs if modifiers.name == "abs" else np.negative
    return Operation(_as_signed(plain, INTEGER_BITS[type_name]), (type_name,), type_name)


def _parts(words: Array, bits: int, type_name: str) -> Array:
    """(threads, parts) integers of 64 bits: the bytes or halves of every word."""
    kind = f"{'i' if _is_signed(type_name) else 'u'}{bits // 8}"
    return np.ascontiguousarray(words).view(kind).reshape(len(words), -1).astype(np.int64)


def dot_product(modifiers: Modifiers) -> Operation:
    """dp4a: c + four products of bytes; dp2a: c + two products of a's halves with two bytes of b (.lo or .hi)."""
    b_type = modifiers.type(("u32", "s32"))
    a_type = modifiers.type(("u32", "s32"))
    is_dp2a = modifiers.name == "dp2a"
    half = modifiers.one_of(("lo", "hi"), "lo") if is_dp2a else "lo"
    modifiers.end()
    a_bits = 16 if is_dp2a else 8
    first = 2 if half == "hi" else 0
    count = 2 if is_dp2a else 4

    def compute(a: Array, b: Array, c: Array) -> Array:
        a_parts = _parts(a, a_bits, a_type)
        b_parts = _parts(b, 8, b_type)[:, first : first + count]
        total: Array = (a_parts * b_parts).sum(axis=1) + c.astype(np.int64)
        return total.astype(np.uint32)

    result_type = "s32" if "s32" in (a_type, b_type) else "u32"
    return Operation(compute, (a_type, b_type, result_type), result_type)


FAMILIES: dict[str, Callable[[Modifiers], Operation]] = {
    "add": add_or_subtract,
    "sub": add_or_subtract,
    "addc": add_or_subtract,
    "subc": add_or_subtract,
    "mul": multiply,
    "mad": multiply_add,
    "madc": multiply_add,
    "mul24": multiply_24,
    "mad24": multiply_24,
    "sad": sum_differences,
    "div": divide,
    "rem": divide,
    "min": select_extreme,
    "max": select_extreme,
    "abs": change_sign,
    "neg": change_sign,
    "dp4a": dot_product,
    "dp2a": dot_product,
}
"""Instructions on integers; add, mul, min … of floats are in floating.py."""
