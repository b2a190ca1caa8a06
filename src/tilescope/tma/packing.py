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


def packed_six_bit(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """(…, 16) bytes, of which the low 6 bits count, as (…, 12) dense bytes.

    >>> packed_six_bit(np.array([1, 0xFF, 0, 0] * 4, np.uint8)).tolist()
    [193, 15, 0, 193, 15, 0, 193, 15, 0, 193, 15, 0]
    """
    four = (values & 0x3F).astype(np.uint32).reshape(*values.shape[:-1], 4, 4)
    word = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
    dense = np.stack([word & 0xFF, word >> 8 & 0xFF, word >> 16], axis=-1).astype(np.uint8)
    return dense.reshape(*values.shape[:-1], 12)
