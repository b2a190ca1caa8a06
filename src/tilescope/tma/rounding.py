"""What a load does to numbers: tf32 is rounded on its way to shared memory, everything else arrives as it is.

f32   s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm        round to nearest even at bit 13, denormals too
tf32  s eeeeeeee mmmmmmmmmm 0000000000000        infinity stays, every NaN becomes 0x7FFFE000
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType

TF32_TYPES = ("tfloat32", "tfloat32_ftz")
_TF32_NAN = 0x7FFFE000
_DROPPED_BITS = 13


def rounded_to_tf32(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The words of f32 numbers as a tf32 load leaves them.

    >>> [hex(word) for word in rounded_to_tf32(np.array([0x3F801000, 0x3F803000, 0xFFC00001], np.uint32))]
    ['0x3f800000', '0x3f804000', '0x7fffe000']
    """
    half = np.uint32((1 << _DROPPED_BITS - 1) - 1)
    odd = words >> np.uint32(_DROPPED_BITS) & np.uint32(1)
    rounded = words + half + odd & ~np.uint32((1 << _DROPPED_BITS) - 1)
    return np.where((words & 0x7FFFFFFF) > 0x7F800000, np.uint32(_TF32_NAN), rounded)


def delivered(data_type: DataType, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Bytes of elements as a load leaves them in shared memory."""
    if data_type.name in TF32_TYPES:
        return rounded_to_tf32(data.view(np.uint32)).view(np.uint8)
    return data
