"""Video instructions: arithmetic on bytes and half-words that operands select.

    vadd.s32.u32.s32.sat  d, a.b0, b.h1             d = clamp(byte 0 of a + half-word 1 of b)
    vadd.u32.u32.u32.max  d, a, b, c                d = max(a + b, c)
    vadd.u32.u32.u32      d.b2, a, b, c             d = c, with the sum in its byte 2
    vabsdiff4.u32.u32.u32 d, a, b, c                four differences of bytes
    vabsdiff4.u32.u32.u32.add  d.b10, a.b3210, b.b7654, c    d = c + the differences of bytes 0 and 1

A selector of a SIMD form numbers the parts of {b, a}, the highest part of the result first: `.h32` are the halves of b. Scalar forms
compute exactly in 34 bits and cut to 33 before the secondary operation (PTX ISA, "Scalar Video Instructions").
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Modifiers, Operation, UnknownForm, split_parts

_TYPES = ("u32", "s32")
_SECONDARY: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_SCALAR_SELECTOR = re.compile("b[0-3]|h[01]")
_PART_BITS = {"b": 8, "h": 16}
_SCALE_BITS = {"": 0, "shr7": 7, "shr15": 15}
_MOST_SHIFT = 32
_FAR = 1 << 40  # beyond every 32-bit number, and small enough to be doubled


def _absolute_difference(a: Array, b: Array) -> Array:
    difference: Array = np.abs(a - b)
    return difference


def _average(a: Array, b: Array) -> Array:
    """Half of the sum, rounded away from zero if it is positive and down if it is negative, as the PTX ISA specifies."""
    total = a + b
    return total + (total >= 0) >> 1


_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": _absolute_difference,
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_SIMD_ARITHMETIC = {**_ARITHMETIC, "vavrg": _average}
_SIMD_BITS = {"2": 16, "4": 8}  # of a part, by the number of parts
SCALAR_NAMES = (*_ARITHMETIC, "vshl", "vshr", "vmad", "vset")
SIMD_NAMES = tuple(f"{name}{count}" for count in _SIMD_BITS for name in (*_SIMD_ARITHMETIC, "vset"))


class Selectors(NamedTuple):
    """The parts that an instruction names, without the dot: d.b0 and a.h1 give ("b0", "h1", ""); empty: the whole register."""

    target: str = ""
    a: str = ""
    b: str = ""


def build_video(
    name: str,
    modifiers: tuple[str, ...],
    selectors: Selectors,
    source_count: int,
    are_negated: tuple[bool, ...] = (),  # sources
) -> Operation:
    """The operation of a video instruction; an UnknownForm if PTX has no such form.

    >>> halves = build_video("vadd2", ("u32", "u32", "u32"), Selectors(), 3)
    >>> [hex(word) for word in halves.compute(*np.array([[0x0001FFFF], [0x00010001], [0]], np.uint32))]
    ['0x20000']
    """
    words = Modifiers(name, modifiers)
    if any(are_negated) and name != "vmad":
        raise UnknownForm(f"{name} negates no source")
    if name in SIMD_NAMES:
        return _simd(words, selectors, source_count)
    if name == "vmad":
        return _multiply_add(words, selectors, source_count, are_negated)
    return _scalar(words, selectors, source_count)


def _take_type(words: Modifiers) -> str:
    type_name = words.one_of(_TYPES, "")
    if not type_name:
        raise UnknownForm(f"{words.name} lacks one of its types")
    return type_name


def _is_signed(type_name: str) -> bool:
    return type_name == "s32"


def _limits(bits: int, *, is_signed: bool) -> tuple[int, int]:
    """The least and the greatest integer of a width.

    >>> _limits(8, is_signed=True)
    (-128, 127)
    """
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


def _wide(words: Array, *, is_signed: bool) -> Array:
    """Words as 64-bit integers."""
    signed: Array = words.view(f"i{words.itemsize}") if is_signed else words
    return signed.astype(np.int64)


def _select_part(words: Array, selector: str, *, is_signed: bool) -> Array:
    """A byte, a half-word or all of a register as an integer."""
    if not selector:
        return _wide(words, is_signed=is_signed)
    bits = _PART_BITS[selector[0]]
    parts = split_parts(words, bits)[int(selector[1]) :: 32 // bits]
    return _wide(parts, is_signed=is_signed)


def _require_scalar_selectors(name: str, selectors: Selectors) -> None:
    for selector in selectors:
        if selector and _SCALAR_SELECTOR.fullmatch(selector) is None:
            raise UnknownForm(f"{name} has no selector .{selector} here")


def _require_sources(name: str, expected: int, source_count: int) -> None:
    if source_count != expected:
        raise UnknownForm(f"{name} takes {expected} source operands here, not {source_count}")


def _scalar(words: Modifiers, selectors: Selectors, source_count: int) -> Operation:
    """vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr and vset, with saturation, a secondary operation or a merge."""
    name = words.name
    is_comparison = name == "vset"
    result_type = "u32" if is_comparison else _take_type(words)
    a_type = _take_type(words)
    b_type = _take_type(words)
    is_saturated = not is_comparison and words.has("sat")
    compute_primary = _primary(words, is_saturated=is_saturated)
    secondary = words.one_of(_SECONDARY, "")
    words.end()
    _require_scalar_selectors(name, selectors)
    if secondary and selectors.target:
        raise UnknownForm(f"{name} has a secondary operation or a part of its result, not both")
    has_third = bool(secondary or selectors.target)
    _require_sources(name, 3 if has_third else 2, source_count)
    is_signed = _is_signed(result_type)
    result_bits = _PART_BITS[selectors.target[0]] if selectors.target else 32
    least, most = _limits(result_bits, is_signed=is_signed)

    def compute(a: Array, b: Array, *third: Array) -> Array:
        first = _select_part(a, selectors.a, is_signed=_is_signed(a_type))
        second = _select_part(b, selectors.b, is_signed=_is_signed(b_type))
        result = compute_primary(first, second)
        result = np.clip(result, least, most) if is_saturated else _cut_to_33_bits(result)
        if secondary:
            result = _SECONDARY[secondary](result, _wide(third[0], is_signed=is_signed))
        if selectors.target:
            return _merge(result, selectors.target, third[0])
        return result.astype(np.uint32)

    return Operation(compute, (a_type, b_type, result_type)[: 2 + has_third], result_type)


def _primary(words: Modifiers, *, is_saturated: bool) -> Callable[[Array, Array], Array]:
    """What a scalar form does to its first two operands."""
    name = words.name
    if name in _ARITHMETIC:
        return _ARITHMETIC[name]
    if name == "vset":
        comparison = words.one_of(_COMPARISONS, "")
        if not comparison:
            raise UnknownForm("vset has no comparison")
        compare = _COMPARISONS[comparison]
        return lambda a, b: compare(a, b).astype(np.int64)
    mode = words.one_of(("clamp", "wrap"), "")
    if not mode:
        raise UnknownForm(f"{name} has .clamp or .wrap")

    def shift(a: Array, b: Array) -> Array:
        amount = b & 31 if mode == "wrap" else np.minimum(b, _MOST_SHIFT)
        if name == "vshr":
            return a >> amount
        last = amount == _MOST_SHIFT  # in two steps: 64 bits do not hold 33 bits, shifted by 32
        shifted = a << np.where(last, _MOST_SHIFT - 1, amount)
        if is_saturated:
            shifted = np.clip(shifted, -_FAR, _FAR)
        return np.where(last, shifted << 1, shifted)

    return shift


def _cut_to_33_bits(result: Array) -> Array:
    """The low 33 bits as a signed integer."""
    return (result + (1 << 32) & (1 << 33) - 1) - (1 << 32)


def _merge(result: Array, selector: str, third: Array) -> Array:
    """The third operand with the low bits of the result in one of its parts."""
    bits = _PART_BITS[selector[0]]
    start = bits * int(selector[1])
    mask = (1 << bits) - 1
    return (third.astype(np.int64) & ~(mask << start) | (result & mask) << start).astype(np.uint32)


def _multiply_add(
    words: Modifiers, selectors: Selectors, source_count: int, are_negated: tuple[bool, ...]
) -> Operation:
    """vmad: a product and a sum of 128 bits, scaled by a right shift, then saturated; .po adds one, - negates the product or c."""
    result_type = _take_type(words)
    a_type = _take_type(words)
    b_type = _take_type(words)
    plus_one = int(words.has("po"))
    is_saturated = words.has("sat")
    scale = words.one_of(("shr7", "shr15"), "")
    words.end()
    _require_scalar_selectors("vmad", selectors)
    if selectors.target:
        raise UnknownForm("vmad writes a whole register")
    _require_sources("vmad", 3, source_count)
    negates_a, negates_b, negates_c = (*are_negated, False, False, False)[:3]
    negates_product = negates_a != negates_b
    if any(are_negated) and (plus_one or (negates_product and negates_c)):
        raise UnknownForm("vmad negates the product or c, and nothing with .po")
    is_signed = _is_signed(a_type) or _is_signed(b_type) or negates_product or negates_c
    least, most = _limits(32, is_signed=is_signed)

    def compute(a: Array, b: Array, c: Array) -> Array:
        first = _select_part(a, selectors.a, is_signed=_is_signed(a_type)).astype(object)
        second = _select_part(b, selectors.b, is_signed=_is_signed(b_type)).astype(object)
        # c is complemented in 32 bits, before its sign is extended
        third = _wide(~c if negates_c else c, is_signed=is_signed).astype(object)
        # Python's integers: 66 bits do not fit into 64
        product = -(first * second) if negates_product else first * second
        result = product + third + max(plus_one, int(negates_c)) >> _SCALE_BITS[scale]
        if is_saturated:
            result = np.clip(result, least, most)
        low: Array = (result & (1 << 32) - 1).astype(np.uint32)
        return low

    return Operation(compute, (a_type, b_type, result_type), result_type)


class _SimdParts(NamedTuple):
    """The parts of a SIMD form: the sources of each part among those of {b, a}, and which parts are computed."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    mask: tuple[bool, ...]


def _simd_parts(name: str, selectors: Selectors, letter: str, count: int) -> _SimdParts:
    def read(selector: str, default: tuple[int, ...], most: int, *, is_mask: bool) -> tuple[int, ...]:
        if not selector:
            return default
        digits = tuple(int(digit) for digit in reversed(selector[1:]))
        is_right = selector[0] == letter and max(digits) < most
        is_right &= digits == tuple(sorted(set(digits))) if is_mask else len(digits) == count
        if not is_right:
            raise UnknownForm(f"{name} has no selector .{selector} here")
        return digits

    all_parts = tuple(range(count))
    chosen = read(selectors.target, all_parts, count, is_mask=True)
    return _SimdParts(
        read(selectors.a, all_parts, 2 * count, is_mask=False),
        read(selectors.b, tuple(range(count, 2 * count)), 2 * count, is_mask=False),
        tuple(part in chosen for part in all_parts),
    )


def _simd(words: Modifiers, selectors: Selectors, source_count: int) -> Operation:
    """vadd2, vabsdiff4 and similar: every part is computed separately, merged into c or added to it."""
    name, bits = words.name[:-1], _SIMD_BITS[words.name[-1]]
    is_comparison = name == "vset"
    result_type = "u32" if is_comparison else _take_type(words)
    a_type = _take_type(words)
    b_type = _take_type(words)
    compare = _COMPARISONS.get(words.one_of(_COMPARISONS, "")) if is_comparison else None
    if is_comparison and compare is None:
        raise UnknownForm(f"{words.name} has no comparison")
    is_added = words.has("add")
    is_saturated = not is_comparison and not is_added and words.has("sat")
    words.end()
    _require_sources(words.name, 3, source_count)
    parts = _simd_parts(words.name, selectors, "h" if bits == 16 else "b", 32 // bits)
    least, most = _limits(bits, is_signed=_is_signed(result_type))
    operate = compare or _SIMD_ARITHMETIC[name]
    mask = np.array(parts.mask)

    def compute(a: Array, b: Array, c: Array) -> Array:
        both = np.stack([a, b], axis=1)
        selectable = split_parts(both, bits).reshape(len(a), -1)
        first = _wide(selectable[:, parts.a], is_signed=_is_signed(a_type))
        second = _wide(selectable[:, parts.b], is_signed=_is_signed(b_type))
        results = operate(first, second).astype(np.int64)
        if is_saturated:
            results = np.clip(results, least, most)
        if is_added:
            total: Array = c.astype(np.int64) + (results * mask).sum(axis=1)
            return total.astype(np.uint32)
        c_parts = split_parts(c, bits).reshape(len(a), -1)
        merged = np.where(mask, results.astype(c_parts.dtype), c_parts)
        return np.ascontiguousarray(merged).view(np.uint32).ravel()

    return Operation(compute, (a_type, b_type, result_type), result_type)
