"""Global memory at the host's own addresses: a pointer that a program stores in a tensor is valid in a kernel.

    memory = HostMemory(arguments)        the storages of all tensors among the arguments, and …
                                          … of the tensors whose addresses an int64 tensor holds

What a launch places itself, such as variables of the module, lies above the addresses that an operating system hands out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tilescope.errors import DeviceError, RuleError
from tilescope.machine.launch.host_array import read_tensor_dtype
from tilescope.machine.memory import GlobalMemory, Memory
from tilescope.sync.address import WINDOW_BYTES, WINDOWS
from tilescope.triton.host_tensor import Extent, Tensor, find_extent, list_live_tensors, merge_extents

OWN_START = 1 << 48  # above every address of a process
_POINTER_RANGE = (1 << 32, 1 << 48)  # values of an int64 that may be addresses of the host
_TABLE_BYTES = 1 << 24  # larger tensors are not searched for addresses
_MOST_LEVELS = 4  # tables of tables


class HostMemory(Memory):
    """The memory of one launch: the storages of its tensors, where the host has them."""

    def __init__(self, tensors: Iterable[Tensor], addresses: Iterable[int] = ()) -> None:
        super().__init__()
        given = [*tensors]
        extents = merge_extents(find_extent(tensor) for tensor in given)
        self.extents = _follow_pointers(given, extents, {*addresses})
        for extent in self.extents:
            _require_free_addresses(extent)
            self._contents.place_at(extent.address, extent.view())

    def _make_contents(self) -> GlobalMemory:
        return GlobalMemory(OWN_START)


def _require_free_addresses(extent: Extent) -> None:
    """Refuse memory where the machine has the windows of shared, local and parameter memory."""
    for space, start in WINDOWS.items():
        if extent.address < start + WINDOW_BYTES and extent.end > start:
            raise DeviceError(
                f"The operating system put a tensor at {extent.address:#x}, where kernels have their {space} memory: "
                "run the program again."
            )


def _follow_pointers(tensors: list[Tensor], extents: list[Extent], addresses: set[int]) -> list[Extent]:
    """The extents, with those that addresses among the arguments, and in tables of them, point into."""
    tables = tensors
    wanted = {address for address in addresses if _POINTER_RANGE[0] <= address < _POINTER_RANGE[1]}
    for _ in range(_MOST_LEVELS):
        for table in tables:
            wanted.update(_read_addresses(table))
        unknown = [address for address in wanted if not any(extent.has(address) for extent in extents)]
        if not unknown:
            return extents
        tables = []
        found: list[Extent] = []
        for tensor in list_live_tensors():
            extent = _find_live_extent(tensor)
            if extent is not None and any(extent.has(address) for address in unknown):
                tables.append(tensor)
                found.append(extent)
        if not found:
            return extents
        extents = merge_extents([*extents, *found])
    return extents


def _find_live_extent(tensor: Tensor) -> Extent | None:
    """The extent of a tensor of the program; None if it has no memory on the host, as sparse and fake tensors."""
    try:
        return find_extent(tensor)
    except (RuleError, RuntimeError, NotImplementedError):
        return None


def _read_addresses(table: Tensor) -> set[int]:
    """Values of a tensor of 64-bit integers that may be addresses."""
    try:
        dtype = read_tensor_dtype(table)
    except RuleError:
        return set()
    if dtype not in (np.int64, np.uint64):
        return set()
    extent = find_extent(table)
    offset = -extent.address % 8
    if not 8 <= extent.size_bytes - offset <= _TABLE_BYTES:
        return set()
    whole = (extent.size_bytes - offset) // 8 * 8
    values: npt.NDArray[np.int64] = extent.view()[offset : offset + whole].view(np.int64)
    low, high = _POINTER_RANGE
    is_address = (values >= low) & (values < high)
    return {int(value) for value in values[is_address]}
