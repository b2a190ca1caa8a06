"""Where things lie in the 64-bit space of generic addresses.

    0x7c00_0000_0000   parameters of the kernel (and its .const variables are global memory)
    0x7d00_0000_0000   local memory: every thread sees its own
    0x7e00_0000_0000   shared memory of the cluster: 16 MiB for each block, by its rank
    elsewhere          global memory, which exists only where an array was placed

Inside a window addresses are what ld.shared, ld.local and ld.param take. In a block's shared memory the first KiB is the
system's; static variables follow from 0x400 on, dynamic memory behind them (measured on sm_90).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Space = Literal["global", "shared", "local", "param", "generic"]
Addresses: TypeAlias = npt.NDArray[np.int64]

WINDOW_BYTES = 1 << 32
PARAM_WINDOW = 0x7C00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
GLOBAL_START = 0x7F00_0000_0000

SHARED_RANK_SHIFT = 24  # the rank of a block in its cluster, in an address of shared memory
SHARED_OFFSET_MASK = (1 << SHARED_RANK_SHIFT) - 1
SHARED_RESERVED_BYTES = 0x400

WINDOW_OF_SPACE: dict[str, int] = {"param": PARAM_WINDOW, "local": LOCAL_WINDOW, "shared": SHARED_WINDOW, "global": 0}


def is_in_window(address: int) -> bool:
    """Whether a generic address lies in the window of shared, local or parameter memory."""
    return any(start <= address < start + WINDOW_BYTES for start in (PARAM_WINDOW, LOCAL_WINDOW, SHARED_WINDOW))
