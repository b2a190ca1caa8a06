"""The 4- and 6-bit types, which lie closer in global memory than in shared memory.

A piece of 16 shared bytes holds 16 values:

    type             in global memory       a load leaves in shared memory      a store expects there
    16u4_align8b     8 bytes, dense         the same 8 bytes                    the same
    16u4_align16b    8 bytes, dense         8 bytes, then 8 of padding          (cannot be stored)
    16u6_align16b    12 bytes, dense        12 bytes, then 4 of padding         16 bytes, a value in the low 6 bits of each

The padding after a load is not defined: here it keeps what was there. Value i of a dense group of 6-bit values
has bits 6 i to 6 i + 5, counted from the lowest bit of the first byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.swizzle import CHUNK_BYTES

SIX_BIT_TYPE = "16u6_align16b"


def dense_bytes(data_type: DataType) -> int:
    """Global bytes of what fills 16 shared bytes: 16 but for the padded types.

    >>> [dense_bytes(DataType.named(name)) for name in ("f16", "16u4_align8b", "16u4_align16b", "16u6_align16b")]
    [16, 16, 8, 12]
    """
    return CHUNK_BYTES * data_type.bits // data_type.smem_bits


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
