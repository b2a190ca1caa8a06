"""cvt.rs to four small floats: a random number below one step is added, and the sum is cut.

    cvt.rs.satfinite.e4m3x4.f32  d, {a, b, e, f}, rbits        a in the uppermost byte

    step of the result's format      |--------------------|
    magnitude of the source                    x
    x + random / 65536 steps                   x.........>|    reaches the next number: it is rounded up

Each result takes 16 of the random bits. The PTX ISA gives the upper half of the word to a and b, the lower half to e and f (for 4-bit
results two bytes each). Which of them weighs most is known from public probes of a B200, not measured here: b and f read
their bits in order, a and e read them in reverse.
"""

from __future__ import annotations

import numpy as np

from tilescope.machine.arithmetic.compute import Array, Operation, UnknownForm
from tilescope.machine.arithmetic.float_conversion import F32_EXPONENT, ConversionStyle, float_to_float
from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat

QUADS_OF_SMALL = {"e4m3x4": "e4m3", "e5m2x4": "e5m2", "e2m3x4": "e2m3", "e3m2x4": "e3m2", "e2m1x4": "e2m1"}
_RANDOM_BITS = 16
_F32 = FORMATS["f32"]
_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint32)


def to_quad(result_type: str, source_type: str, style: ConversionStyle) -> Operation:
    """The stochastic conversion of four f32 to four small floats."""
    if source_type != "f32" or style.mode != "rs" or not style.satfinite:
        raise UnknownForm(f"cvt to .{result_type} has .rs and .satfinite, from .f32")
    form = FORMATS[QUADS_OF_SMALL[result_type]]
    is_nibble = form.bits == 4
    place_bits = 4 if is_nibble else 8
    word = np.dtype("u2" if is_nibble else "u4")
    convert = float_to_float(_F32, form, style._replace(mode="rn"))  # of numbers that the format has

    def compute(a: Array, b: Array, e: Array, f: Array, random: Array) -> Array:
        upper, lower = _halves(random, is_nibble=is_nibble)
        slices = (_reverse(upper), upper, _reverse(lower), lower)
        result = np.zeros(len(a), np.uint32)
        for value, bits in zip((a, b, e, f), slices, strict=True):
            result = result << np.uint32(place_bits) | convert(_round_up_by_chance(value, bits, form)).astype(np.uint32)
        return result.astype(word)

    register = "b16" if is_nibble else "b32"
    return Operation(compute, ("f32", "f32", "f32", "f32", "b32"), register, exactness="unknown")


def _halves(random: Array, *, is_nibble: bool) -> tuple[Array, Array]:
    """The 16 random bits of a and b, and those of e and f; 4-bit results take bytes 3 and 1, and bytes 2 and 0.

    >>> [[hex(half) for half in halves] for halves in _halves(np.array([0x12345678], np.uint32), is_nibble=True)]
    [['0x1256'], ['0x3478']]
    """
    byte = np.uint32(0xFF)
    upper = random >> np.uint32(16)
    lower = random & np.uint32(0xFFFF)
    if not is_nibble:
        return upper, lower
    eight = np.uint32(8)
    return upper >> eight << eight | lower >> eight, (upper & byte) << eight | lower & byte


def _reverse(half: Array) -> Array:
    """16 bits in the opposite order.

    >>> hex(_reverse(np.array([0x8001], np.uint32))[0]), hex(_reverse(np.array([0x00F0], np.uint32))[0])
    ('0x8001', '0xf00')
    """
    reversed_bits: Array = _REVERSED[half & 0xFF] << np.uint32(8) | _REVERSED[half >> 8]
    return reversed_bits


def _round_up_by_chance(words: Array, random: Array, form: FloatFormat) -> Array:
    """The f32 cut to a number of the format, after a random part of a step was added to its magnitude; NaN and infinity stay."""
    values = words.view(np.float32).astype(np.float64)
    exponent = np.maximum(np.frexp(values)[1] - 1, 1 - form.bias)
    steps = np.ldexp(np.abs(values), form.fraction_bits - exponent)
    rounded = np.floor(steps + np.ldexp(random.astype(np.float64), -_RANDOM_BITS))
    result = np.copysign(np.ldexp(rounded, exponent - form.fraction_bits), values).astype(np.float32)
    is_finite = words & F32_EXPONENT != F32_EXPONENT
    return np.where(is_finite, result.view(np.uint32), words)
