"""Global memory at the host's own addresses: a pointer that a program stores in a tensor is valid in a kernel.

    memory = HostMemory(arguments)        the storages of all tensors among the arguments, and …
                                          … of the tensors whose addresses an int64 tensor holds

Arrays that a launch places itself, such as variables of the module, are above the addresses that operating systems use.
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
_POINTER_RANGE = (
    1 << 22,
    1 << 48,
)  # integers that may be addresses: x86-64 loads programs at 4 MiB, and heaps are above
_TABLE_BYTES = 1 << 24  # larger tensors are not searched for addresses
_MOST_LEVELS = 4  # tables of tables

Addresses = npt.NDArray[np.uint64]
_NO_ADDRESSES: Addresses = np.array([], np.uint64)


class HostMemory(Memory):
    """The memory of one launch: the storages of its tensors, where the host has them."""

    def __init__(self, tensors: Iterable[Tensor], addresses: Iterable[int] = ()) -> None:
        super().__init__()
        tensor_list = [*tensors]
        extents = merge_extents(find_extent(tensor) for tensor in tensor_list)
        low, high = _POINTER_RANGE
        likely = np.array([address for address in addresses if low <= address < high], np.uint64)
        self.extents = _follow_pointers(tensor_list, extents, likely)
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


def _follow_pointers(tensors: list[Tensor], extents: list[Extent], addresses: Addresses) -> list[Extent]:
    """The extents, with those that addresses among the arguments, and in tables of them, point into."""
    tables = tensors
    unresolved = addresses
    for _ in range(_MOST_LEVELS):
        unresolved = np.unique(np.concatenate([unresolved, *(_read_addresses(table) for table in tables)]))
        for extent in extents:
            first, end = _find_within(unresolved, extent)
            unresolved = np.delete(unresolved, slice(first, end))
        if not unresolved.size:
            return extents
        tables = []
        reached: list[Extent] = []
        for tensor in list_live_tensors():
            live = _find_live_extent(tensor)
            if live is None:
                continue
            first, end = _find_within(unresolved, live)
            if first < end:
                tables.append(tensor)
                reached.append(live)
        if not reached:
            return extents
        extents = merge_extents([*extents, *reached])
    return extents


def _find_within(addresses: Addresses, extent: Extent) -> tuple[int, int]:
    """The sorted addresses inside an extent, as a range."""
    first, end = np.searchsorted(addresses, np.array([extent.address, extent.end], np.uint64))
    return int(first), int(end)


def _find_live_extent(tensor: Tensor) -> Extent | None:
    """The extent of a tensor of the program; None if it has no memory on the host, as sparse and fake tensors."""
    try:
        return find_extent(tensor)
    except (RuleError, RuntimeError, NotImplementedError):
        return None


def _read_addresses(table: Tensor) -> Addresses:
    """Values of a tensor of 64-bit integers that may be addresses."""
    try:
        dtype = read_tensor_dtype(table)
    except RuleError:
        return _NO_ADDRESSES
    if dtype not in (np.int64, np.uint64):
        return _NO_ADDRESSES
    extent = find_extent(table)
    offset = -extent.address % 8
    if not 8 <= extent.size_bytes - offset <= _TABLE_BYTES:
        return _NO_ADDRESSES
    table_bytes = (extent.size_bytes - offset) // 8 * 8
    values: Addresses = extent.view()[offset : offset + table_bytes].view(np.uint64)
    low, high = _POINTER_RANGE
    return values[(values >= low) & (values < high)]
