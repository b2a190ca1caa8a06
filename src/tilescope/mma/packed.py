"""Values narrower than a byte: dense in memory, or one to a byte.

6 bits     byte 0        byte 1        byte 2             value i has bits 6 i to 6 i + 5,
           ·00000011     11·222222 …                      counted from the lowest bit of the first byte
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def unpacked(dense: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """(…, n) dense bytes as (…, 8 n / bits) bytes, a value in the low bits of each.

    >>> unpacked(np.array([0x21, 0x43], np.uint8), 4).tolist()
    [1, 2, 3, 4]
    """
    single = np.unpackbits(dense, axis=-1, bitorder="little").reshape(*dense.shape[:-1], -1, bits)
    values: npt.NDArray[np.uint8] = np.packbits(single, axis=-1, bitorder="little")[..., 0]
    return values


def packed(values: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """(…, m) values, of which the low bits count, as (…, m bits / 8) dense bytes: the inverse of `unpacked`.

    >>> packed(np.array([1, 2, 3, 4], np.uint8), 4).tolist()
    [33, 67]
    """
    single = np.unpackbits(values.view(np.uint8)[..., None], axis=-1, count=bits, bitorder="little")
    dense: npt.NDArray[np.uint8] = np.packbits(single.reshape(*values.shape[:-1], -1), axis=-1, bitorder="little")
    return dense
