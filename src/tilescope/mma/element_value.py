"""Elements as the adder of a tensor core sees them: a value, and the exponent by which it is aligned.

    1.5      significand 1.5     exponent  0      of every type
    2**-16   significand 0.25    exponent -14     of f16, where it is subnormal: no exponent lies below the type's least
    2**-16   significand 1       exponent -16     of bf16

A product is aligned by the sum of its factors' exponents; nothing is aligned to a product that is zero, so a zero among
the factors has an exponent below all others. An accumulator of zero counts with exponent -133, which is then the least.

Types of up to 16 bits are looked up in a table of all their codes; float16, float32 and tf32 are decomposed into their
bits. A tf32 has ten of its 23 fractional bits. The rest is truncated even in a NaN, so some NaN become infinite.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType

Doubles = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int16]
Array = npt.NDArray[Any]  # elements of any type, or their codes

ZERO_ADDEND_EXPONENT = -133
NO_EXPONENT = -16000  # of a zero factor: the sum of two still fits 16 bits
_SPECIAL_EXPONENT = NO_EXPONENT - 1  # of an infinity or NaN in a table
REFUSED_EXPONENT = 8000  # in a table of narrow factors: of what the sum in 32 bits does not take
_NARROW_EXPONENTS = (-45, 60)  # that it takes
_FLOAT16_BIAS = 15
_FLOAT16_FRACTION_BITS = 10
_FLOAT16_MAGNITUDE = np.uint16(0x7FFF)
_FLOAT16_INFINITY = np.uint16(0x7C00)
_FLOAT32_BIAS = 127
_FLOAT32_FRACTION_BITS = 23
_FLOAT32_EXPONENT_MASK = 0xFF
_TF32_MASK = np.uint32(0xFFFF_E000)  # sign, exponent, ten fractional bits
_LEAST_EXPONENT = {
    "float16": -14,
    "bfloat16": -126,
    "e5m2": -14,
    "e4m3": -6,
    "e3m2": -2,
    "e2m3": 0,
    "e2m1": 0,
    "ue8m0": -127,
}


class Elements(NamedTuple):
    """Values and exponents of an array of elements; infinities and NaN have the value 0."""

    values: Doubles
    exponents: Exponents
    specials: Doubles | None = None  # the values with infinities and NaN, if there are any

    @property
    def with_specials(self) -> Doubles:
        """The values, infinities and NaN among them."""
        return self.values if self.specials is None else self.specials


def factors(array: Array, data_type: DataType) -> Elements:
    """The elements of an operand: an array of the type, or of its codes (unsigned integers as wide).

    >>> f16 = DataType.named("f16")
    >>> half = factors(np.array([1.5, 2.0**-16, 0], np.float16), f16)
    >>> half.values.tolist(), half.exponents.tolist()
    ([1.5, 1.52587890625e-05, 0.0], [0, -14, -16000])
    >>> factors(np.array([0x3E00], np.uint16), f16).values.tolist()
    [1.5]
    >>> factors(np.array([1 + 2.0**-10 + 2.0**-11], np.float32), DataType.named("tf32")).values.tolist()
    [1.0009765625]
    """
    if data_type.bits == 32:
        cut = _of_float32(array.view(np.uint32) & _TF32_MASK)
        cut.exponents[cut.values == 0] = NO_EXPONENT
        return cut
    codes = array.view(f"u{max(1, data_type.bits // 8)}")
    finite = _of_finite_float16(codes) if data_type.name == "float16" else None
    if finite is not None:
        return finite
    table = _table(data_type)
    if data_type.bits < 8:
        codes = codes & np.uint8((1 << data_type.bits) - 1)
    values = table.values[codes]
    exponents = table.exponents[codes]
    if table.specials is None or exponents.min() > _SPECIAL_EXPONENT:
        return Elements(values, exponents)
    return Elements(values, exponents, table.specials[codes])


def addends(array: Array) -> Elements:
    """The elements of an accumulator, float32 or float16.

    >>> c = addends(np.array([3, 2.0**-140, 0], np.float32))
    >>> c.exponents.tolist()
    [1, -126, -133]
    """
    if array.dtype == np.float32:
        elements = _of_float32(array.view(np.uint32))
        elements.exponents[elements.values == 0] = ZERO_ADDEND_EXPONENT
        return elements
    halves = factors(array, DataType.named("float16"))
    return halves._replace(exponents=np.maximum(halves.exponents, np.int16(ZERO_ADDEND_EXPONENT)))


class NarrowFactors(NamedTuple):
    """The value and the exponent of every code of a type, as the sum in 32 bits takes them (narrow_sum_loop.py)."""

    values: npt.NDArray[np.float32]
    exponents: Exponents


@cache
def narrow_factors(data_type: DataType) -> NarrowFactors:
    """The table of a type of up to 16 bits; codes that the sum in 32 bits does not take have REFUSED_EXPONENT.

    >>> halves = narrow_factors(DataType.named("f16"))
    >>> halves.values[0x3E00].item(), halves.exponents[[0x3E00, 0x0001, 0x0000, 0x7C00]].tolist()
    (1.5, [0, -14, -16000, 8000])
    """
    table = _table(data_type)
    least, most = _NARROW_EXPONENTS
    is_taken = (table.exponents == NO_EXPONENT) | ((table.exponents >= least) & (table.exponents <= most))
    return NarrowFactors(
        np.where(is_taken, table.values, 0.0).astype(np.float32),
        np.where(is_taken, table.exponents, REFUSED_EXPONENT).astype(np.int16),
    )


def _of_finite_float16(bits: npt.NDArray[np.uint16]) -> Elements | None:
    """float16 by its bits, eight times as quick as the table; None if one is infinite or NaN."""
    magnitudes = bits & _FLOAT16_MAGNITUDE
    if (magnitudes >= _FLOAT16_INFINITY).any():
        return None
    fields = (magnitudes >> _FLOAT16_FRACTION_BITS).astype(np.int16)
    exponents = np.maximum(fields, np.int16(1)) - np.int16(_FLOAT16_BIAS)
    exponents[magnitudes == 0] = NO_EXPONENT
    return Elements(bits.view(np.float16).astype(np.float64), exponents)


def _of_float32(bits: npt.NDArray[np.uint32]) -> Elements:
    """float32 by its bits: a subnormal has the smallest exponent, and a zero gets it here."""
    field = (bits >> np.uint32(_FLOAT32_FRACTION_BITS)).astype(np.int16) & np.int16(_FLOAT32_EXPONENT_MASK)
    exponents = np.maximum(field, np.int16(1)) - np.int16(_FLOAT32_BIAS)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = bits.view(np.float32).astype(np.float64)
    if not (field == _FLOAT32_EXPONENT_MASK).any():
        return Elements(values, exponents)
    return Elements(np.where(np.isfinite(values), values, 0.0), exponents, values)


@cache
def _table(data_type: DataType) -> Elements:
    """Every code of a type of up to 16 bits."""
    codes = np.arange(1 << data_type.bits, dtype=np.uint8 if data_type.bits <= 8 else np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        specials = codes.view(data_type.numpy).astype(np.float64)
    is_finite = np.isfinite(specials)
    values = np.where(is_finite, specials, 0.0)
    exponents = np.maximum(np.frexp(values)[1] - 1, _LEAST_EXPONENT[data_type.name])
    exponents = np.where(values == 0, NO_EXPONENT, exponents)
    exponents = np.where(is_finite, exponents, _SPECIAL_EXPONENT).astype(np.int16)
    return Elements(values, exponents, None if is_finite.all() else specials)
