"""What the arrays of a recorded kernel hold before it runs: made again from a few words, so that files stay small.

The recorder on the card and the tests make it by the same function, `filled`; it needs numpy and ml_dtypes alone.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

# Exponent and mantissa bits of the float types, by the name that a launch gives them.
FLOAT_BITS = {
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float64": (11, 52),
    "float8_e4m3fn": (4, 3),
    "float8_e5m2": (5, 2),
}


def element_type(name):
    """The numpy type of a launch's type name.

    >>> element_type("bfloat16").itemsize
    2
    """
    return np.dtype(getattr(ml_dtypes, name, name))


def random_words(seed, count):
    """`count` random 64-bit words: splitmix64, the same with every version of numpy."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0xBF58476D1CE4E5B9
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_floats(name, words, exponents):
    """Floats of any sign and mantissa whose exponents lie in a range (both ends included), from random words."""
    exponent_bits, mantissa_bits = FLOAT_BITS[name]
    bias = 2 ** (exponent_bits - 1) - 1
    low, high = exponents
    sign = words & np.uint64(1)
    exponent = (words >> np.uint64(1)) % np.uint64(high - low + 1) + np.uint64(low + bias)
    mantissa = words >> np.uint64(64 - mantissa_bits)
    bits = sign << np.uint64(exponent_bits + mantissa_bits) | exponent << np.uint64(mantissa_bits) | mantissa
    size_bits = 1 + exponent_bits + mantissa_bits
    return bits.astype(f"uint{size_bits}").view(element_type(name))


def filled(array):
    """The elements of one array of a launch, from its `fill`, as bytes.

    >>> filled({"type": "int32", "shape": [2], "fill": {"kind": "constant", "value": 1}}).tolist()
    [1, 0, 0, 0, 1, 0, 0, 0]
    """
    name, count, fill = array["type"], math.prod(array["shape"]), array["fill"]
    kind, dtype = fill["kind"], element_type(name)
    if kind == "constant":
        elements = np.full(count, fill["value"], dtype)
    elif kind == "bits":
        words = random_words(fill["seed"], -(-count * dtype.itemsize // 8))
        return words.view(np.uint8)[: count * dtype.itemsize].copy()
    elif kind == "integers":
        words = random_words(fill["seed"], count)
        numbers = (words % np.uint64(fill["high"] - fill["low"])).astype(np.int64) + fill["low"]
        elements = numbers.astype(dtype) if dtype.kind in "iu" else numbers.astype(np.float32).astype(dtype)
    else:
        elements = random_floats(name, random_words(fill["seed"], count), fill["exponents"])
    return np.ascontiguousarray(elements).view(np.uint8).copy()
