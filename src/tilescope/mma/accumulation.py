"""The sum that a tensor core makes of one instruction, bit for bit: the one function for all of tilescope.

    A (m, k)  ─┐
    B (n, k)  ─┼─▶ tensor_core_sum(…, arithmetic=arithmetic_of("sm_90", "wgmma", "bf16")) ──▶ D (m, n)
    C (m, n)  ─┘

`arithmetic` is a row of the table in tensor_core_arithmetic.py. Leading axes are a batch: the warps that execute an
instruction together. An infinity or NaN among the operands gives the IEEE result in every method.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.mma.aligned_sum import Terms, aligned_sum, cut_to_float32, float32_sum, rounded_to_float16
from tilescope.mma.element_value import Array, Doubles, Elements, addends, factors
from tilescope.mma.tensor_core_arithmetic import Arithmetic
from tilescope.one_rounding import Rounding, fma32, fma64

BitOperation = Literal["and", "xor"]
Floats = npt.NDArray[np.float32]
_QUIET_BIT = np.uint64(1 << 51)
_NAN64 = np.uint64(0xFFF8_0000_0000_0000)


class ScaleFactors(NamedTuple):
    """Scale factors of both operands, a byte each: (…, rows, blocks of k)."""

    a: npt.NDArray[np.uint8]
    b: npt.NDArray[np.uint8]
    data_type: DataType  # ue8m0, or e4m3 for ue4m3

    def part(self, step: int, steps: int) -> ScaleFactors:
        """Those of one of several instructions along k."""
        blocks = self.a.shape[-1] // steps
        part = slice(step * blocks, (step + 1) * blocks)
        return ScaleFactors(self.a[..., part], self.b[..., part], self.data_type)


def tensor_core_sum(
    a: Array,
    b: Array,
    c: Array,
    *,
    arithmetic: Arithmetic,
    a_type: DataType,
    b_type: DataType | None = None,
    output_type: DataType | None = None,
    saturate: bool = False,
    bit_operation: BitOperation = "and",
    rounding: Rounding = "rn",
    scales: ScaleFactors | None = None,
) -> Array:
    """D (…, m, n) of one instruction: the products of A (…, m, k) and B (…, n, k), added to C (…, m, n) as the chip does.

    A and B are arrays of their types or of their codes; narrow elements have a byte each, bits (b1) are packed into
    unsigned integers of any width. C is float16, float32, float64 or int32; D is of `output_type`, or as C. `saturate` clamps
    integers (.satfinite), which wrap otherwise; `bit_operation` is what happens to pairs of bits before they are counted;
    `rounding` is that of float64.

    >>> from tilescope.mma.tensor_core_arithmetic import arithmetic_of
    >>> f16 = DataType.named("f16")
    >>> a, b = np.array([[2048, 1, 2.0**-14]], np.float16), np.array([[2048, 1, 1]], np.float16)
    >>> hopper = arithmetic_of("sm_90", "mma", f16)
    >>> float(tensor_core_sum(a, b, np.zeros((1, 1), np.float32), arithmetic=hopper, a_type=f16)[0, 0])  # 2**22 + 1
    4194305.0
    >>> c = np.full((1, 1), -(2.0**22), np.float32)
    >>> float(tensor_core_sum(a, b, c, arithmetic=hopper, a_type=f16)[0, 0])  # 2**-14 lies below 2**(22 - 25): cut off
    1.0
    """
    d_dtype = c.dtype if output_type is None else output_type.numpy
    if b_type is None:
        b_type = a_type
    if arithmetic.method == "exact":
        total = _bits_counted(a, b, bit_operation) if a_type.name == "b1" else _integers_summed(a, b, a_type, b_type)
        return _in_32_bits(total + c, saturate=saturate)
    if arithmetic.method == "fused float64":
        return _fused_float64(a, b, c, rounding)
    if arithmetic.method == "fused float32":
        return _fused_float32(a, b, c, d_dtype)
    if arithmetic.method == "in f16":
        return _in_f16(a, b, c, a_type, b_type, arithmetic=arithmetic)
    step_k = arithmetic.step_k or a.shape[-1]
    a_scales = None if scales is None else factors(scales.a, scales.data_type)
    b_scales = None if scales is None else factors(scales.b, scales.data_type)
    d = c
    for first in range(0, a.shape[-1], step_k):
        step = slice(first, first + step_k)
        left = _operand(a[..., step], a_type, arithmetic, a_scales)
        right = _operand(b[..., step], b_type, arithmetic, b_scales)
        d = _add_aligned(left, right, d, d_dtype, arithmetic)
    return d


def k_loop_sum(
    a: Array,
    b: Array,
    c: Array,
    instruction_k: int,
    *,
    arithmetic: Arithmetic,
    data_type: DataType,
    scales: ScaleFactors | None = None,
) -> Array:
    """D of a K loop: one instruction for every `instruction_k` elements of k, each beginning with what the last one left.

    >>> from tilescope.mma.tensor_core_arithmetic import arithmetic_of
    >>> f16 = DataType.named("f16")
    >>> a = np.array([[2.0**-13] * 31 + [1]], np.float16)
    >>> once = {"arithmetic": arithmetic_of("sm_90", "mma", f16), "data_type": f16}
    >>> k_loop_sum(a, a, np.full((1, 1), 2, np.float32), 16, **once).item()  # 31 products of 2**-26, each cut off
    3.0
    """
    steps = a.shape[-1] // instruction_k
    d = c
    for step in range(steps):
        part = slice(step * instruction_k, (step + 1) * instruction_k)
        own_scales = None if scales is None else scales.part(step, steps)
        d = tensor_core_sum(a[..., part], b[..., part], d, arithmetic=arithmetic, a_type=data_type, scales=own_scales)
    return d


def summed_once(a: Array, b: Array, c: Array, data_type: DataType, scales: ScaleFactors | None = None) -> Array:
    """D as no chip makes it: everything added in double precision or int64, and rounded once.

    >>> e4m3 = DataType.named("e4m3")
    >>> a = np.array([[1, 2.0**-9]]).astype(e4m3.numpy)
    >>> summed_once(a, a, np.zeros((1, 1), np.float32), e4m3).item() == 1 + 2.0**-18
    True
    """
    wide = np.float64 if data_type.is_float else np.int64
    left = a.astype(wide)
    right = b.astype(wide)
    if scales is not None:
        left = left * _spread(factors(scales.a, scales.data_type).with_specials, left.shape[-1])
        right = right * _spread(factors(scales.b, scales.data_type).with_specials, right.shape[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.asarray(left @ right.swapaxes(-1, -2) + c)
        return total.astype(c.dtype)


class _Operand(NamedTuple):
    """One operand as the adder takes it, and with its infinities and NaN, if there are any: (batch, rows, k)."""

    terms: Terms
    elements: Elements


def _operand(array: Array, data_type: DataType, arithmetic: Arithmetic, scales: Elements | None = None) -> _Operand:
    """The terms of an operand (…, rows, k): its elements times their scale factors, aligned one by one or in groups."""
    rows, k = array.shape[-2:]
    elements = factors(array.reshape(-1, rows, k), data_type)
    group = arithmetic.term_elements
    term_exponents = elements.exponents if group == 1 else np.zeros((len(elements.values), rows, k // group), np.int16)
    if scales is not None:
        own_scales = _in_batches(scales, rows)
        elements = _apply_scales(elements, own_scales)
        term_exponents = term_exponents + _spread(own_scales.exponents, term_exponents.shape[-1])
    values = elements.values.reshape(len(elements.values), rows, k // group, group)
    return _Operand(Terms(values, term_exponents), elements)


def _in_batches(elements: Elements, rows: int) -> Elements:
    """Elements (…, blocks) as (batch, rows, blocks), for an operand of that many rows."""
    shape = (-1, rows, elements.values.shape[-1])
    specials = None if elements.specials is None else elements.specials.reshape(shape)
    return Elements(elements.values.reshape(shape), elements.exponents.reshape(shape), specials)


def _apply_scales(elements: Elements, scales: Elements) -> Elements:
    """Elements (batch, rows, k) times the scale factors of their blocks."""
    k = elements.values.shape[-1]
    values = elements.values * _spread(scales.values, k)
    if elements.specials is None and scales.specials is None:
        return Elements(values, elements.exponents)
    with np.errstate(invalid="ignore"):
        specials = elements.with_specials * _spread(scales.with_specials, k)
    return Elements(values, elements.exponents, specials)


def _spread(of_blocks: Array, extent: int) -> Array:
    """Every entry of the last axis as often as makes `extent` of them."""
    return np.repeat(of_blocks, extent // of_blocks.shape[-1], axis=-1)


def _add_aligned(a: _Operand, b: _Operand, c: Array, d_dtype: np.dtype[Any], arithmetic: Arithmetic) -> Array:
    """One step of an aligned sum, rounded to the type of D."""
    batch = c.reshape(-1, *c.shape[-2:])
    if d_dtype == np.float32 and c.dtype == np.float32 and a.elements.specials is None and b.elements.specials is None:
        finite = float32_sum(a.terms, b.terms, batch, arithmetic)
        if finite is not None:
            return finite.reshape(c.shape)
    before = addends(batch)
    sums = aligned_sum(a.terms, b.terms, before, arithmetic.fractional_bits)
    d: Array = rounded_to_float16(sums) if d_dtype == np.float16 else cut_to_float32(sums, arithmetic.result_bits)
    if not (a.elements.specials is None and b.elements.specials is None and before.specials is None):
        with np.errstate(invalid="ignore", over="ignore"):
            ieee = a.elements.with_specials @ b.elements.with_specials.swapaxes(-1, -2) + before.with_specials
            d = np.where(np.isfinite(ieee), d, ieee.astype(d_dtype))
    return _with_one_nan(d).reshape(c.shape)


def _with_one_nan(d: Array) -> Array:
    """D, every NaN of which is the one that tensor cores and adders make."""
    is_nan = np.isnan(d)
    if is_nan.any():
        d.view(f"u{d.itemsize}")[is_nan] = (1 << 8 * d.itemsize - 1) - 1
    return d


def _in_f16(a: Array, b: Array, c: Array, a_type: DataType, b_type: DataType, *, arithmetic: Arithmetic) -> Array:
    """fp8 by way of f16: k mod 4 = 0 and 1 first, then 2 and 3, each a product of f16; then C."""
    halves = DataType.named("float16")
    is_first = np.arange(a.shape[-1]) % 4 < 2
    d = np.zeros_like(c)
    for part in (is_first, ~is_first):
        left = _operand(_as_float16(a[..., part], a_type), halves, arithmetic)
        right = _operand(_as_float16(b[..., part], b_type), halves, arithmetic)
        d = _add_aligned(left, right, d, c.dtype, arithmetic)
    with np.errstate(invalid="ignore", over="ignore"):
        return _with_one_nan(c + d)


def _as_float16(array: Array, data_type: DataType) -> npt.NDArray[np.float16]:
    """fp8 as float16, which has all of its values."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        return array.view(data_type.numpy).astype(np.float16)


def _fused_float32(a: Array, b: Array, c: Array, d_dtype: np.dtype[Any]) -> Array:
    """Four products of f16 by float32 fma: a chain and then C; for a float16 D two pairs, added to C one after the other."""
    with np.errstate(invalid="ignore", over="ignore"):
        left = a.view(np.float16).astype(np.float32)[..., :, None, :]
        right = b.view(np.float16).astype(np.float32)[..., None, :, :]
        before: Floats = c.astype(np.float32)
        if d_dtype != np.float16:
            total = np.zeros_like(before)
            for k in range(a.shape[-1]):
                total = fma32(left[..., k], right[..., k], total)
            return _with_one_nan(before + total)
        d = before
        for k in range(0, a.shape[-1], 2):
            d = d + fma32(left[..., k + 1], right[..., k + 1], left[..., k] * right[..., k])
        return _with_one_nan(d.astype(np.float16))


def _fused_float64(a: Array, b: Array, c: Array, rounding: Rounding) -> Array:
    """An fma for every k. A NaN stays what it is: that of B before that of the sum so far, and that of A last."""
    left = a.view(np.float64)
    right = b.view(np.float64)
    d: Doubles = c.view(np.float64)
    for k in range(a.shape[-1]):
        of_a = left[..., :, None, k]
        of_b = right[..., None, :, k]
        total = fma64(of_a, of_b, d, rounding)
        is_nan = np.isnan(total)
        if is_nan.any():
            code = _quiet_nan(of_a, np.full(total.shape, _NAN64))
            code = _quiet_nan(of_b, _quiet_nan(d, code))
            total = np.where(is_nan, code.view(np.float64), total)
        d = total
    return d


def _quiet_nan(values: Doubles, otherwise: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The codes of the NaN among values, made quiet; elsewhere others."""
    return np.where(np.isnan(values), np.ascontiguousarray(values).view(np.uint64) | _QUIET_BIT, otherwise)


def _bits_counted(a: Array, b: Array, operation: BitOperation) -> npt.NDArray[np.int64]:
    """How many bits of k are set in both (and), or differ (xor)."""
    pairs = np.bitwise_and if operation == "and" else np.bitwise_xor
    counts = np.bitwise_count(pairs(a[..., :, None, :], b[..., None, :, :]))
    total: npt.NDArray[np.int64] = counts.sum(axis=-1, dtype=np.int64)
    return total


def _integers_summed(a: Array, b: Array, a_type: DataType, b_type: DataType) -> npt.NDArray[np.int64]:
    products = _whole_numbers(a, a_type) @ _whole_numbers(b, b_type).swapaxes(-1, -2)
    total: npt.NDArray[np.int64] = products.astype(np.int64)
    return total


def _in_32_bits(total: npt.NDArray[np.int64], *, saturate: bool) -> npt.NDArray[np.int32]:
    if saturate:
        limits = np.iinfo(np.int32)
        total = np.clip(total, limits.min, limits.max)
    return total.astype(np.int32)


def _whole_numbers(array: Array, data_type: DataType) -> Doubles:
    """Integers of 4 or 8 bits as float64, in which their sums of products are exact."""
    codes = array.view(np.uint8) & np.uint8((1 << data_type.bits) - 1)
    numbers = codes.astype(np.int16)
    if data_type.name.startswith("int"):
        sign = np.int16(1 << data_type.bits - 1)
        numbers = (numbers ^ sign) - sign
    return numbers.astype(np.float64)
