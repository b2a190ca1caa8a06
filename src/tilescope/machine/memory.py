"""Global memory of the emulator: numpy arrays at addresses like those of a card.

    memory = Memory()
    address = memory.place(a)        # 0x7f0000000000: a multiple of 256, unreadable bytes between arrays
    memory.map(a, (64, 128))         # a tensor map over the placed array, box innermost first

The array itself is the memory: what a kernel stores is seen in it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, KernelFaultError
from tilescope.machine.launch.host_array import as_host_array
from tilescope.reading import integers
from tilescope.sentence import counted
from tilescope.sync.address import GLOBAL_START, Addresses
from tilescope.sync.shadow.lockstep_cells import OrderMattersError
from tilescope.tensor_map import TensorMap

PLACE_ALIGNMENT_BYTES = 256  # of cudaMalloc
GUARD_BYTES = 1 << 16  # between arrays: a step too far is a fault, not the next array
Bytes = npt.NDArray[np.uint8]
_WIDE_DTYPES: dict[int, np.dtype[np.generic]] = {  # by bytes: types whose items numpy copies as they are
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
    16: np.dtype(np.complex128),
}


@dataclass(slots=True)
class Region:
    """One array and its address."""

    address: int
    array: npt.NDArray[np.generic]  # what the user placed: kept alive, and found again by where its bytes are
    content: Bytes
    host_address: int

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + len(self.content)

    def words(self, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """The bytes as words; bytes after the last whole word are left out."""
        whole_bytes = len(self.content) // dtype.itemsize * dtype.itemsize
        return self.content[:whole_bytes].view(dtype)

    def lookup(self, addresses: Addresses, dtype: np.dtype[np.generic], count: int) -> WordRows:
        """The addresses of (lanes, count) consecutive words, or of (lanes,) words if `count` is 1.

        If rows are aligned to their size and a type of that size exists, they are treated as words of it: numpy gathers
        them ten times faster.
        """
        offsets = addresses - self.address
        wide = _WIDE_DTYPES.get(dtype.itemsize * count) if count > 1 else dtype
        if wide is not None and not (count > 1 and np.count_nonzero(offsets & wide.itemsize - 1)):
            return WordRows(self.words(wide), offsets >> wide.itemsize.bit_length() - 1)
        return WordRows(self.words(dtype), (offsets // dtype.itemsize)[:, None] + np.arange(count))

    def copy(self) -> Region:
        """The same bytes at the same address, copied unless they are read-only."""
        if not self.content.flags.writeable:
            return self
        content = self.content.copy()
        return Region(self.address, content, content, content.__array_interface__["data"][0])


class WordRows(NamedTuple):
    """Words of an array, or rows of them that count as one word, and which of them are meant."""

    words: npt.NDArray[np.generic]
    places: npt.NDArray[np.int64]

    def pick(self, dtype: np.dtype[np.generic], count: int) -> npt.NDArray[np.generic]:
        """A copy of the words that are meant."""
        words: npt.NDArray[np.generic] = self.words[self.places]
        return words if words.dtype == dtype else words.view(dtype).reshape(-1, count)

    def put(self, values: npt.NDArray[np.generic]) -> None:
        """Write (lanes,) or (lanes, count) values; of several lanes at one place the last one wins."""
        if values.dtype != self.words.dtype:
            values = np.ascontiguousarray(values).view(self.words.dtype)[:, 0]
        self.words[self.places] = values

    def are_ascending(self) -> bool:
        """Whether every row begins after the end of the previous one, so that no two lanes share a row."""
        return self.places.ndim == 1 and bool((self.places[1:] > self.places[:-1]).all())


class Exchanged(NamedTuple):
    """Words that were written: their old and new values."""

    before: npt.NDArray[np.generic]
    after: npt.NDArray[np.generic]


class ChangedBytes(NamedTuple):
    """Bytes of one array that differ from what they were: a bit for each byte from an address on, and those whose bit is set."""

    address: int
    bits: Bytes
    values: Bytes


class _Piece(NamedTuple):
    """Words of one array that lanes write."""

    rows: WordRows
    lanes: slice | npt.NDArray[np.int64]


class GlobalMemory:
    """What the machine loads from and stores to: the arrays of a `Memory` by their addresses."""

    def __init__(self, start: int = GLOBAL_START) -> None:
        self._regions: list[Region] = []
        self._starts: list[int] = []
        self._next = start
        self._latest: Region | None = None
        self.version = 0  # counts stores, so that a spin loop can see that memory is unchanged
        self._before: dict[int, Bytes] | None = None  # arrays before the run, by address; None if undo is not possible
        self._undo_bytes = 0  # that may still be kept

    def place(self, placed: npt.NDArray[np.generic]) -> int:
        """The address of a C-contiguous array; one that is inside a placed array is found there."""
        host_address: int = placed.__array_interface__["data"][0]
        for region in self._regions:
            offset = host_address - region.host_address
            if placed.nbytes and offset >= 0 and offset + placed.nbytes <= len(region.content):
                return region.address + offset
        address = self._next
        while (other := self._overlapping(address, placed.nbytes + GUARD_BYTES)) is not None:
            address = rounded_up(other.end + GUARD_BYTES, PLACE_ALIGNMENT_BYTES)
        region = self._enter(address, placed)
        self._next = rounded_up(region.end + GUARD_BYTES, PLACE_ALIGNMENT_BYTES)
        return address

    def place_at(self, address: int, placed: npt.NDArray[np.generic]) -> bool:
        """Place a C-contiguous array at this address; False if another array overlaps it.

        >>> memory = GlobalMemory()
        >>> memory.place_at(0x1000, np.zeros(16, np.uint8)), memory.place_at(0x1008, np.zeros(16, np.uint8))
        (True, False)
        """
        if self._overlapping(address, placed.nbytes) is not None:
            return False
        self._enter(address, placed)
        return True

    def _enter(self, address: int, placed: npt.NDArray[np.generic]) -> Region:
        content = placed.reshape(-1).view(np.uint8)
        host_address: int = placed.__array_interface__["data"][0]
        region = Region(address, placed, content, host_address)
        place = bisect.bisect_right(self._starts, address)
        self._regions.insert(place, region)
        self._starts.insert(place, address)
        return region

    def _overlapping(self, address: int, size_bytes: int) -> Region | None:
        """An array that shares addresses with a range."""
        index = bisect.bisect_left(self._starts, address + size_bytes) - 1
        if index < 0 or self._regions[index].end <= address:
            return None
        return self._regions[index]

    def copy_within(self, most_bytes: int) -> GlobalMemory | None:
        """A copy of all arrays at the same addresses; read-only arrays are shared.

        None if that is more than `most_bytes`, or if two arrays share bytes, which copies of them would not.

        >>> memory = GlobalMemory()
        >>> address = memory.place(np.arange(4, dtype=np.uint8))
        >>> copy = memory.copy_within(4)
        >>> copy.bytes_at(address, 4)[:] = 9
        >>> memory.bytes_at(address, 4).tolist(), memory.copy_within(3)
        ([0, 1, 2, 3], None)
        """
        written = [region for region in self._regions if region.content.flags.writeable]
        if sum(len(region.content) for region in written) > most_bytes or _share_bytes(self._regions):
            return None
        copy = GlobalMemory()
        copy._regions = [region.copy() for region in self._regions]
        copy._starts = [*self._starts]
        copy._next = self._next
        return copy

    def has_same_bytes(self, other: GlobalMemory) -> bool:
        """Whether all arrays hold the same bytes as those of another memory, which are at the same addresses.

        >>> memory = GlobalMemory()
        >>> address = memory.place(np.arange(4, dtype=np.uint8))
        >>> copy = memory.copy_within(4)
        >>> memory.has_same_bytes(copy)
        True
        """
        return all(
            region.address == other_region.address and np.array_equal(region.content, other_region.content)
            for region, other_region in zip(self._regions, other._regions, strict=True)
        )

    @property
    def allocations(self) -> tuple[tuple[int, int], ...]:
        """(address, bytes) of every array, in the order of addresses."""
        return tuple((region.address, len(region.content)) for region in self._regions)

    def region_at(self, address: int) -> Region | None:
        """The array that an address is in."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._regions[index].end:
            return None
        return self._regions[index]

    def load(self, addresses: Addresses, dtype: np.dtype[np.generic], count: int = 1) -> npt.NDArray[np.generic]:
        """(lanes,) words at the addresses, or (lanes, count) words that follow each other there."""
        size_bytes = dtype.itemsize * count
        region = self._one_region(addresses, size_bytes)
        if region is not None:
            return region.lookup(addresses, dtype, count).pick(dtype, count)
        shape = (len(addresses), count) if count > 1 else len(addresses)
        result = np.empty(shape, dtype)
        for region, lanes in self._by_region(addresses, size_bytes):
            result[lanes] = region.lookup(addresses[lanes], dtype, count).pick(dtype, count)
        return result

    def store(self, addresses: Addresses, values: npt.NDArray[np.generic]) -> None:
        """Write (lanes,) or (lanes, count) words; of several lanes at one address the last one wins."""
        for piece in self._written_pieces(addresses, values):
            piece.rows.put(values[piece.lanes])

    def exchange(self, addresses: Addresses, values: npt.NDArray[np.generic]) -> Exchanged:
        """Write words as `store` does; returns their old and new values."""
        count = values.shape[1] if values.ndim > 1 else 1
        pieces = self._written_pieces(addresses, values)
        if len(pieces) == 1 and pieces[0].rows.are_ascending():
            rows = pieces[0].rows
            before = rows.pick(values.dtype, count)
            rows.put(values)
            return Exchanged(before, values)
        before = np.empty_like(values)
        after = np.empty_like(values)
        for rows, lanes in pieces:
            before[lanes] = rows.pick(values.dtype, count)
            rows.put(values[lanes])
            after[lanes] = rows.pick(values.dtype, count)
        return Exchanged(before, after)

    def _written_pieces(self, addresses: Addresses, values: npt.NDArray[np.generic]) -> list[_Piece]:
        """Where words are written, array by array; a fault before the first is written."""
        count = values.shape[1] if values.ndim > 1 else 1
        size_bytes = values.dtype.itemsize * count
        self.version += 1
        region = self._one_region(addresses, size_bytes)
        regions = [(region, slice(None))] if region else self._by_region(addresses, size_bytes)
        pieces = []
        for region, lanes in regions:
            if not region.content.flags.writeable:
                lane = 0 if isinstance(lanes, slice) else int(lanes[0])
                raise KernelFaultError(
                    ILLEGAL_ADDRESS, "a store to a read-only array", lane, int(addresses[lane]), is_global=True
                )
            self._keep(region)
            pieces.append(_Piece(region.lookup(addresses[lanes], values.dtype, count), lanes))
        return pieces

    def keep_for_undo(self, most_bytes: int) -> None:
        """Keep every array as it is before the first store to it, as far as memory allows."""
        self._before = {}
        self._undo_bytes = most_bytes

    def keep_changes(self) -> None:
        """The stores will not be undone."""
        self._before = None

    def list_changes(self) -> list[ChangedBytes]:
        """What has changed since `keep_for_undo` was called.

        >>> memory = GlobalMemory()
        >>> address = memory.place(np.zeros(16, np.uint8))
        >>> memory.keep_for_undo(16)
        >>> memory.store(np.array([address + 4]), np.array([7], np.uint8))
        >>> [(change.address - address, change.values.tolist()) for change in memory.list_changes()]
        [(4, [7])]
        """
        assert self._before is not None
        changes = []
        for address, before in self._before.items():
            region = self.region_at(address)
            assert region is not None
            is_changed = region.content != before
            first = int(is_changed.argmax()) if len(before) else 0
            end = len(before) - int(is_changed[::-1].argmax()) if len(before) else 0
            if end > first and is_changed[first]:
                bits = np.packbits(is_changed[first:end])
                changes.append(ChangedBytes(address + first, bits, region.content[first:end][is_changed[first:end]]))
        return changes

    def apply_changes(self, changes: Sequence[ChangedBytes]) -> None:
        """Write what a copy of this memory has listed as its changes.

        >>> memory = GlobalMemory()
        >>> address = memory.place(np.zeros(4, np.uint8))
        >>> memory.apply_changes([ChangedBytes(address + 1, np.packbits([1, 0, 1]), np.array([5, 6], np.uint8))])
        >>> memory.bytes_at(address, 4).tolist()
        [0, 5, 0, 6]
        """
        for address, bits, values in changes:
            self.begin_write(address)
            region = self.region_at(address)
            assert region is not None
            first = address - region.address
            region.content[first + np.flatnonzero(np.unpackbits(bits))] = values

    def undo(self) -> None:
        """Put arrays back as they were when `keep_for_undo` was called."""
        assert self._before is not None
        for address, content in self._before.items():
            region = self.region_at(address)
            assert region is not None
            region.content[:] = content
        self._before = None

    def begin_write(self, address: int) -> None:
        """The array at an address is about to be written, not by `store`."""
        self.version += 1
        region = self.region_at(address)
        if region is not None:
            self._keep(region)

    def _keep(self, region: Region) -> None:
        if self._before is None or region.address in self._before:
            return
        self._undo_bytes -= len(region.content)
        if self._undo_bytes < 0:
            raise OrderMattersError("arrays too large to be kept for an undo")
        self._before[region.address] = region.content.copy()

    def bytes_at(self, address: int, size_bytes: int) -> Bytes:
        """The bytes from an address on, as a view of the array; a fault where they are not inside one array."""
        region = self.region_at(address)
        if region is None or address + size_bytes > region.end:
            raise KernelFaultError(ILLEGAL_ADDRESS, _outside(address, size_bytes), None, address, is_global=True)
        start = address - region.address
        return region.content[start : start + size_bytes]

    def _one_region(self, addresses: Addresses, size_bytes: int) -> Region | None:
        """The array that contains all of an access, if it is one array."""
        low = int(addresses.min())
        high = int(addresses.max()) + size_bytes
        region = self._latest
        if region is None or low < region.address or high > region.end:
            region = self.region_at(low)
            if region is None or high > region.end:
                return None
            self._latest = region
        return region

    def _by_region(self, addresses: Addresses, size_bytes: int) -> list[tuple[Region, npt.NDArray[np.int64]]]:
        """The lanes of an access by array; a fault if a lane accesses none."""
        index = np.searchsorted(np.array(self._starts, np.int64), addresses, side="right") - 1
        ends = np.array([region.end for region in self._regions] or [0], np.int64)
        is_outside = (index < 0) | (addresses > ends[np.maximum(index, 0)] - size_bytes)
        if is_outside.any():
            lane = int(np.argmax(is_outside))
            address = int(addresses[lane])
            raise KernelFaultError(ILLEGAL_ADDRESS, _outside(address, size_bytes), lane, address, is_global=True)
        return [(self._regions[number], np.flatnonzero(index == number)) for number in np.unique(index).tolist()]


class Memory:
    """Global memory: arrays at the addresses that kernels use.

    >>> memory = Memory()
    >>> a = np.zeros(100, np.float32)
    >>> address = memory.place(a)
    >>> address % 256, memory.place(a) == address, memory.place(a[10:]) == address + 40
    (0, True, True)
    """

    def __init__(self) -> None:
        self._contents = self._make_contents()

    def _make_contents(self) -> GlobalMemory:
        return GlobalMemory()

    def __repr__(self) -> str:
        sizes_bytes = [size_bytes for _, size_bytes in self._contents.allocations]
        return f"<Memory: {counted(len(sizes_bytes), 'array')}, {counted(sum(sizes_bytes), 'byte')}>"

    def place(self, array: Any) -> int:
        """The address of an array, which becomes part of this memory; an array that was placed before keeps its address.

        A part of a placed array is inside it. A tensor of torch on the CPU is an array too. A read-only array may be read;
        a store to it is a fault.
        """
        return self._contents.place(as_host_array(array))

    def map(self, array: Any, box: Sequence[int], **options: Any) -> TensorMap:
        """A tensor map over an array, which is placed first if needed; `box` is innermost first.

        >>> memory = Memory()
        >>> tensor_map = memory.map(np.zeros((256, 192), np.float16), (64, 128), swizzle="128B")
        >>> tensor_map.dims, tensor_map.box, tensor_map.address % 256
        ((192, 256), (64, 128), 0)
        """
        address = self.place(array)
        box_shape = integers("box", box)[::-1]
        return TensorMap.from_array(as_host_array(array), box_shape, address=address, **options)


def contents_of(memory: Memory) -> GlobalMemory:
    """The contents of a Memory, which the machine loads from and stores to."""
    return memory._contents


def _share_bytes(regions: Sequence[Region]) -> bool:
    """Whether two arrays share bytes of the host: a part that was placed before the whole."""
    placed = sorted((region.host_address, region.host_address + len(region.content)) for region in regions)
    return any(end > start for (_, end), (start, _) in itertools.pairwise(placed))


def _outside(address: int, size_bytes: int) -> str:
    return f"an access of {size_bytes} bytes at {address:#x}, which no array contains"
