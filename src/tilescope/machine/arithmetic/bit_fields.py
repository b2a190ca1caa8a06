"""Parts of words: fields, bytes, and counts of bits.

bfe.u32 d, a, 8, 4          d = bits 8 to 11 of a
bfi.b32 d, a, b, 8, 4       d = b with a's low 4 bits at bit 8
prmt.b32 d, a, b, 0x5410    d = {b's low half, a's low half}
bfind.u32 d, a              d = the highest bit of a that is set
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Modifiers, Operation, constant, shared_value
from tilescope.machine.arithmetic.integer import view_signed

_OF_32_OR_64 = {"b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64, "s64": 64}
_WORD_BITS = constant(32, 64)


def _mask(count: Array) -> Array:
    """64-bit words whose low `count` bits are set; all bits if `count` is 64 or more.

    >>> [hex(word) for word in _mask(np.array([0, 4, 64, 200], np.uint64))]
    ['0x0', '0xf', '0xffffffffffffffff', '0xffffffffffffffff']
    """
    return ~(constant(-1, 64) << count)


_BYTE = constant(0xFF, 32)


def _field_number(words: Array, bits: int) -> Array:
    """The start or length of a field. A 32-bit form uses its low 8 bits, a 64-bit form all of them (measured)."""
    return (words & _BYTE if bits == 32 else words).astype(np.uint64)


def _shared_field(a: Array, start: int, length: int, *, is_signed: bool) -> Array:
    """Extract a field with the same start and length in all threads: shift it to the top, then to the bottom."""
    bits = a.itemsize * 8
    if is_signed:
        shifted: Array = view_signed(a) << (bits - start - length) >> (bits - length)
        return shifted.view(a.dtype)
    field: Array = a >> start & (1 << length) - 1
    return field


def extract_field(modifiers: Modifiers) -> Operation:
    """bfe: `length` bits from bit `start` on; bits above them are 0, or for signed types copies of the field's highest bit.

    A field that leaves the word takes its sign from the word's highest bit.
    """
    type_name = modifiers.type(("u32", "s32", "u64", "s64"))
    modifiers.end()
    bits = _OF_32_OR_64[type_name]
    is_signed = type_name.startswith("s")

    def compute(a: Array, start: Array, length: Array) -> Array:
        first_of_all, count_of_all = shared_value(start), shared_value(length)
        if first_of_all is not None and count_of_all is not None and 0 < count_of_all <= bits - first_of_all:
            return _shared_field(a, first_of_all, count_of_all, is_signed=is_signed)
        word = a.astype(np.uint64)
        first = _field_number(start, bits).view(np.int64)
        count = _field_number(length, bits).view(np.int64)
        field = word >> first.view(np.uint64) & _mask(count.view(np.uint64))
        if is_signed:
            highest = np.minimum(first + count - 1, bits - 1)
            is_negative = (word >> np.maximum(highest, 0).view(np.uint64) & 1 == 1) & (count > 0)
            inside = np.clip(bits - first, 0, count)
            field = np.where(is_negative, field | ~_mask(inside.view(np.uint64)), field)
        return field.astype(a.dtype)

    return Operation(compute, (type_name, "u32", "u32"), type_name)


def insert_field(modifiers: Modifiers) -> Operation:
    """bfi: `b` with the low `length` bits of `a` from bit `start` on."""
    type_name = modifiers.type(("b32", "b64"))
    modifiers.end()
    bits = _OF_32_OR_64[type_name]

    def compute(a: Array, b: Array, start: Array, length: Array) -> Array:
        first = _field_number(start, bits)
        count = _field_number(length, bits)
        place = _mask(count) << first
        return (b & ~place | (a.astype(np.uint64) << first) & place).astype(a.dtype)

    return Operation(compute, (type_name, type_name, "u32", "u32"), type_name)


_WRAP = constant(31, 32)
_LIMIT = constant(32, 32)


def _count_of_bits(amount: Array, mode: str) -> Array:
    """A bit count under .clamp (at most 32) or .wrap (modulo 32), as a 64-bit integer."""
    return (amount & _WRAP if mode == "wrap" else np.minimum(amount, _LIMIT)).astype(np.uint64)


def mask_field(modifiers: Modifiers) -> Operation:
    """bmsk: `length` ones from bit `start` on."""
    modifiers.type(("b32",))
    mode = modifiers.one_of(("clamp", "wrap"), "clamp")
    modifiers.end()

    def compute(start: Array, length: Array) -> Array:
        return (_mask(_count_of_bits(length, mode)) << _count_of_bits(start, mode)).astype(np.uint32)

    return Operation(compute, ("b32", "b32"), "b32")


def extend_field(modifiers: Modifiers) -> Operation:
    """szext: the low `length` bits, extended by zeros or by their highest bit."""
    type_name = modifiers.type(("u32", "s32"))
    mode = modifiers.one_of(("clamp", "wrap"), "clamp")
    modifiers.end()

    def compute(a: Array, length: Array) -> Array:
        count = _count_of_bits(length, mode)
        field = a & _mask(count)
        if type_name == "s32":
            highest = np.maximum(count.view(np.int64) - 1, 0).view(np.uint64)
            is_negative = (a >> highest & 1 == 1) & (count > 0)
            field = np.where(is_negative, field | ~_mask(count), field)
        return field.astype(np.uint32)

    return Operation(compute, (type_name, "u32"), type_name)


_PERMUTE_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}
"""PTX ISA, "prmt": the source byte of d's bytes 3, 2, 1, 0 for each value of the selector's two low bits."""


_PLACES = np.array([0, 4, 8, 12], np.uint32)  # bit offsets of the digits of a selector
_SIGN_DIGITS = 0x8888


def _eight_bytes(a: Array, b: Array) -> Array:
    """(threads, 8): the bytes of {b, a}."""
    both = np.empty((len(a), 2), np.uint32)
    both[:, 0] = a
    both[:, 1] = b
    return both.view(np.uint8)


def _permute_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Four bytes of {b, a} by the four low hexadecimal digits of the selector; bit 3 of a digit replicates the sign."""
    source = _eight_bytes(a, b)
    digits_of_all = shared_value(selector)
    if digits_of_all is not None and digits_of_all & _SIGN_DIGITS == 0:
        columns = [digits_of_all >> 4 * place & 7 for place in range(4)]
        return source.take(columns, axis=1).view(np.uint32).ravel()
    digits = selector[:, None] >> _PLACES
    selected = np.take_along_axis(source, (digits & 7).view(np.int32), axis=1)
    if np.count_nonzero(selector & _SIGN_DIGITS):
        sign = selected.view(np.int8) >> 7
        selected = np.where(digits & 8, sign.view(np.uint8), selected)
    return selected.view(np.uint32).ravel()


def permute(modifiers: Modifiers) -> Operation:
    """prmt, by digits or by one of its six modes."""
    mode = modifiers.one_of(_PERMUTE_MODES, "")
    modifiers.type(("b32",))
    modifiers.end()
    if not mode:
        return Operation(_permute_bytes, ("b32",) * 3, "b32")
    digits = np.array([int(row, 16) for row in _PERMUTE_MODES[mode]], np.uint32)

    def compute(a: Array, b: Array, selector: Array) -> Array:
        return _permute_bytes(a, b, digits[selector & 3])

    return Operation(compute, ("b32",) * 3, "b32")


def _length(words: Array) -> Array:
    """The bit length of numbers: 0 for 0, 1 for 1, 8 for 255. 64-bit numbers are split into halves, exact as floats."""
    if words.itemsize == 4:
        return np.frexp(words.astype(np.float64))[1].view(np.uint32)
    wide = words.astype(np.uint64)
    upper = np.frexp((wide >> _WORD_BITS).astype(np.float64))[1]
    lower = np.frexp((wide & constant(0xFFFFFFFF, 64)).astype(np.float64))[1]
    return np.where(upper > 0, upper + 32, lower).astype(np.uint32)


def count_bits(modifiers: Modifiers) -> Operation:
    """Popc counts ones; clz counts leading zeros."""
    type_name = modifiers.type(("b32", "b64"))
    modifiers.end()
    bits = np.uint32(_OF_32_OR_64[type_name])

    def ones(a: Array) -> Array:
        return np.bitwise_count(a).astype(np.uint32)

    def leading_zeros(a: Array) -> Array:
        zeros: Array = bits - _length(a)
        return zeros

    return Operation(ones if modifiers.name == "popc" else leading_zeros, (type_name,), "u32")


def find_highest(modifiers: Modifiers) -> Operation:
    """bfind: the highest bit that is set (that differs from the sign); .shiftamt: how far it is from the top.

    All ones if there is none.
    """
    type_name = modifiers.type(("u32", "s32", "u64", "s64"))
    as_shift = modifiers.has("shiftamt")
    modifiers.end()
    bits = _OF_32_OR_64[type_name]

    def compute(a: Array) -> Array:
        if type_name.startswith("s"):
            a = a ^ (view_signed(a) >> (bits - 1)).view(a.dtype)
        position = _length(a) - np.uint32(1)
        if as_shift:
            return np.where(a == 0, position, np.uint32(bits - 1) - position)
        return position

    return Operation(compute, (type_name,), "u32")


_REVERSED_BYTES = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def reverse_bits(modifiers: Modifiers) -> Operation:
    """brev: bit 0 becomes the highest one."""
    type_name = modifiers.type(("b32", "b64"))
    modifiers.end()

    def compute(a: Array) -> Array:
        mirrored = _REVERSED_BYTES[np.ascontiguousarray(a).view(np.uint8)]
        return mirrored.view(a.dtype).byteswap()

    return Operation(compute, (type_name,), type_name)


def find_nth(modifiers: Modifiers) -> Operation:
    """fns: the position of the n-th bit that is set, from bit `base` upwards (n > 0) or downwards (n < 0).

    For n = 0 it is `base` if that bit is set. All ones if there is none.
    """
    modifiers.type(("b32",))
    modifiers.end()

    def compute(mask: Array, base: Array, offset: Array) -> Array:
        places = np.arange(32)
        is_set = (mask[:, None] >> places.astype(np.uint32) & np.uint32(1)).astype(bool)
        start = base.astype(np.int64)[:, None]
        steps = view_signed(offset).astype(np.int64)[:, None]
        is_reached = np.where(steps >= 0, places >= start, places <= start) & is_set
        upwards = np.cumsum(is_reached, axis=1)
        downwards = np.cumsum(is_reached[:, ::-1], axis=1)[:, ::-1]
        rank = np.where(steps >= 0, upwards, downwards)
        is_found = is_reached & np.where(steps == 0, places == start, rank == np.abs(steps))
        position = np.where(is_found.any(axis=1), is_found.argmax(axis=1), -1)
        return position.astype(np.int32).view(np.uint32)

    return Operation(compute, ("b32", "b32", "s32"), "b32")


FAMILIES: dict[str, Callable[[Modifiers], Operation]] = {
    "bfe": extract_field,
    "bfi": insert_field,
    "bmsk": mask_field,
    "szext": extend_field,
    "prmt": permute,
    "popc": count_bits,
    "clz": count_bits,
    "bfind": find_highest,
    "brev": reverse_bits,
    "fns": find_nth,
}
