"""The numbers that a program's threads start from: special values, close exponents, wide exponents, random bits.

kind       of a register with     numbers
f16 … f64  its own bits           NaN with payloads, infinities, subnormals, exponents near 1, wide ones, any bits
f16x2 …    32                     two of them
u16 … u64  its own bits           extremes, short ones, any bits
small      32                     mostly 0 to 65: shift amounts, lengths and starts of fields
pred       1                      0 or 1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.gpu.verify.suites import splitmix_bytes

Words = npt.NDArray[np.uint64]
_SMALL_NUMBERS = 66
_CHOICES = 8


class FloatBits(NamedTuple):
    """How a float is laid out."""

    exponent: int
    fraction: int

    @property
    def bits(self) -> int:
        """Sign, exponent and fraction."""
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        """The exponent's code of 1.0."""
        return (1 << self.exponent - 1) - 1


FLOATS = {"f16": FloatBits(5, 10), "bf16": FloatBits(8, 7), "f32": FloatBits(8, 23), "f64": FloatBits(11, 52)}
_FACTOR_FLOATS = {**FLOATS, "tf32": FLOATS["f32"], "e4m3": FloatBits(4, 3), "e5m2": FloatBits(5, 2)}
_CLOSE_BINADES = 6
BITS_OF_KIND = {
    "pred": 32,
    "small": 32,
    "f16x2": 32,
    "bf16x2": 32,
    "u16": 16,
    "u32": 32,
    "u64": 64,
    **{name: form.bits for name, form in FLOATS.items()},
}


def numbers(kind: str, count: int, seed: int) -> npt.NDArray[np.generic]:
    """`count` numbers of a kind, as unsigned integers.

    >>> numbers("f32", 4, 7).dtype, [hex(number) for number in numbers("small", 4, 7).tolist()]
    (dtype('uint32'), ['0xb', '0x11', '0x31', '0x33'])
    """
    if kind in ("f16x2", "bf16x2"):
        return numbers(kind.removesuffix("x2"), 2 * count, seed).view(np.uint32)
    words: Words = splitmix_bytes(seed, 32 * count).view("<u8").reshape(4, count).astype(np.uint64)
    drawn: Words
    if kind == "pred":
        drawn = words[0] & np.uint64(1)
    elif kind == "small":
        drawn = np.where(words[0] % np.uint64(16) == 15, words[2], words[1] % np.uint64(_SMALL_NUMBERS))
    elif kind in FLOATS:
        drawn = _floats(FLOATS[kind], words)
    else:
        drawn = _integers(BITS_OF_KIND[kind], words)
    bits: npt.NDArray[np.generic] = drawn.astype(f"u{BITS_OF_KIND[kind] // 8}")
    return bits


def factors(type_name: str, count: int, seed: int) -> npt.NDArray[np.generic]:
    """Numbers to multiply and add up, as unsigned integers: integers of any bits; floats below 1, so that sums stay finite.

    Three of four floats have exponents close to each other, the others any exponent.

    >>> [hex(number) for number in factors("f16", 4, 7).tolist()]
    ['0xa80f', '0x3179', '0x3809', '0xaae0']
    """
    words: Words = splitmix_bytes(seed, 32 * count).view("<u8").reshape(4, count).astype(np.uint64)
    if type_name not in _FACTOR_FLOATS:
        integers: npt.NDArray[np.generic] = words[0].astype(np.uint8)
        return integers
    form = _FACTOR_FLOATS[type_name]
    sign = (words[0] & np.uint64(1)) << np.uint64(form.bits - 1)
    binades = np.where(words[1] % np.uint64(4) == 0, np.uint64(form.bias), np.uint64(_CLOSE_BINADES))
    exponent = np.uint64(form.bias - 1) - words[2] % binades
    fraction = words[3] & np.uint64((1 << form.fraction) - 1)
    floats: Words = sign | exponent << np.uint64(form.fraction) | fraction
    bits: npt.NDArray[np.generic] = floats.astype(f"u{form.bits // 8}")
    return bits


def _floats(form: FloatBits, words: Words) -> Words:
    choice = words[0] % np.uint64(_CHOICES)
    sign = (words[0] >> np.uint64(40) & np.uint64(1)) << np.uint64(form.bits - 1)
    fraction = words[1] & np.uint64((1 << form.fraction) - 1)
    close = sign | _exponents(form, words[2], 4) | fraction
    wide = sign | _exponents(form, words[2], min(form.bias - 1, 60)) | fraction
    specials = np.array(_special_floats(form), np.uint64)
    special = sign | specials[(words[1] % np.uint64(len(specials))).astype(np.intp)]
    any_bits = words[3] & np.uint64((1 << form.bits) - 1)
    floats: Words = np.select([choice < 4, choice == 6, choice == 7], [close, special, any_bits], wide)
    return floats


def _exponents(form: FloatBits, word: Words, reach: int) -> Words:
    """Exponents up to `reach` away from that of 1.0, in their place."""
    codes = np.uint64(form.bias - reach) + word % np.uint64(2 * reach + 1)
    return codes << np.uint64(form.fraction)


def _special_floats(form: FloatBits) -> list[int]:
    """Zero, subnormals, the smallest and the largest normal, one, infinity and NaNs."""
    infinity = ((1 << form.exponent) - 1) << form.fraction
    one = form.bias << form.fraction
    quiet = 1 << form.fraction - 1
    return [
        0,
        1,
        (1 << form.fraction) - 1,
        1 << form.fraction,
        infinity - 1,
        one,
        infinity,
        infinity | quiet,
        infinity | 1,
    ]


def _integers(bits: int, words: Words) -> Words:
    mask = np.uint64((1 << bits) - 1)
    top = 1 << bits - 1
    extremes = np.array([0, 1, 2 * top - 1, top, top - 1, 2, 2 * top - 2, top + 1], np.uint64)
    choice = words[0] % np.uint64(_CHOICES)
    short = (words[1] & mask) >> words[2] % np.uint64(bits)
    extreme = extremes[(words[2] % np.uint64(len(extremes))).astype(np.intp)]
    integers: Words = np.where(choice < 2, extreme, np.where(choice < 5, short, words[3])) & mask
    return integers
