"""The windows of the 64-bit generic address space.

    0x7b00_0000_0000   functions: calls through registers use these addresses, and nothing can be read there
    0x7c00_0000_0000   parameters of the kernel (and its .const variables are global memory)
    0x7d00_0000_0000   local memory: every thread sees its own
    0x7e00_0000_0000   shared memory of the cluster: 16 MiB for each block, by its rank
    elsewhere          global memory, which exists only where an array was placed

Inside a window addresses are what ld.shared, ld.local and ld.param take. In a block's shared memory the first KiB is the
system's; static variables follow from 0x400 on, dynamic memory after them (measured on sm_90).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Space = Literal["global", "shared", "local", "param", "generic"]
Addresses: TypeAlias = npt.NDArray[np.int64]

WINDOW_BYTES = 1 << 32
CODE_WINDOW = 0x7B00_0000_0000
PARAM_WINDOW = 0x7C00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
GLOBAL_START = 0x7F00_0000_0000

SHARED_RANK_SHIFT = 24  # the rank of a block in its cluster, in an address of shared memory
SHARED_OFFSET_MASK = (1 << SHARED_RANK_SHIFT) - 1
SHARED_RESERVED_BYTES = 0x400
BUFFER_ALIGNMENT_BYTES = 128  # of a block's shared memory and a thread's local memory in their arrays

# start of each space's window; addresses outside all windows are global memory
WINDOWS: dict[Space, int] = {"param": PARAM_WINDOW, "local": LOCAL_WINDOW, "shared": SHARED_WINDOW}


@overload
def is_in_window(space: Space, address: int) -> bool: ...


@overload
def is_in_window(space: Space, address: Addresses) -> npt.NDArray[np.bool_]: ...


def is_in_window(space: Space, address: int | Addresses) -> bool | npt.NDArray[np.bool_]:
    """Whether a generic address, or each of an array, is in the window of a space.

    >>> is_in_window("shared", SHARED_WINDOW + 0x400), is_in_window("local", SHARED_WINDOW + 0x400)
    (True, False)
    """
    start = WINDOWS[space]
    return (address >= start) & (address < start + WINDOW_BYTES)


def places_of_each(addresses: Addresses) -> list[tuple[int, npt.NDArray[np.intp]]]:
    """Each address once, with the places that have it, in ascending order.

    >>> [(address, places.tolist()) for address, places in places_of_each(np.array([72, 64, 72]))]
    [(64, [1]), (72, [0, 2])]
    """
    if not len(addresses):
        return []
    if (addresses == addresses[0]).all():
        return [(int(addresses[0]), np.arange(len(addresses)))]
    order = np.argsort(addresses, kind="stable")
    in_order = addresses[order]
    firsts = np.flatnonzero(in_order[1:] != in_order[:-1]) + 1
    return list(zip(in_order[[0, *firsts]].tolist(), np.split(order, firsts), strict=True))
