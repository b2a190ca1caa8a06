"""The state of the blocks that run together: registers, shared and local memory, barriers, asynchronous work.

A block without a cluster is a cluster of one. Threads are lanes of one long row: block after block, each padded to whole
warps, so that lane // 32 is a warp. Lanes that pad a block never run.

    block (3, 40 threads)     lanes 0-39 exist, 40-63 do not; warps 0 and 1
    block of rank 1           lanes 64-103, …
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.machine.compiled.register_tables import RegisterTables
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, KernelFaultError
from tilescope.machine.execution.pending import Pending, Work
from tilescope.machine.execution.records import CopyRecord, RunningPhase
from tilescope.machine.execution.shared_site import MOST_LANES, MOST_SITES, SharedSite
from tilescope.machine.execution.special import special_values
from tilescope.machine.execution.tmem_state import TensorMemories
from tilescope.machine.execution.undefined_values import UndefinedValues
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.program import Constant, Program, VariableAddress
from tilescope.machine.step import EVERYONE
from tilescope.ptx.syntax import SpecialRegister
from tilescope.sentence import counted
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.address import (
    BUFFER_ALIGNMENT_BYTES,
    PARAM_WINDOW,
    SHARED_OFFSET_MASK,
    SHARED_RANK_SHIFT,
    WINDOWS,
    Addresses,
    Space,
    is_in_window,
)
from tilescope.sync.bus import Bus, StaleValues
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape, LaneGrouping, LaneNumbers, Lanes
from tilescope.sync.events import AccessCost, Load, LocalStore, Store
from tilescope.sync.footprint import Rows
from tilescope.sync.mbarrier import Mbarrier

if TYPE_CHECKING:
    from tilescope.machine.launch.launch import Launch

Words = npt.NDArray[np.generic]
_NO_LANES: LaneNumbers = np.zeros(0, np.intp)
_PADDING_LANES = 16  # of a row of registers: rows a power of two apart would share lines of the processor's cache


class Cluster:
    """Blocks that run together, with all that their threads hold."""

    def __init__(self, launch: Launch, first_block: tuple[int, int, int]) -> None:
        program = launch.program
        self.launch = launch
        self.program: Program = program
        self.memory: GlobalMemory = launch.memory
        self.shape = self._shape(launch, first_block)
        self.blocks = self.shape.blocks
        self.block_threads = self.shape.block_threads
        self.block_lanes = self.shape.block_lanes
        self.lane_count = self.shape.lane_count
        self.block_of_lane = self.shape.block_of_lane
        self.exists = self.shape.exists
        self.shared_stride = self.shape.shared_stride
        self.first_block = first_block
        self.bus = Bus()
        self.emit = self.bus.emit
        self.accesses: Sequence[AccessSemantics | None] = ()  # by instruction; filled in when somebody listens
        self.pc = 0  # of the step that runs now
        self.live: npt.NDArray[np.bool_] = self.exists.copy()
        self.has_exits = False  # whether a thread has exited
        self.shared: npt.NDArray[np.uint8] = np.zeros(self.blocks * self.shared_stride, np.uint8)
        if launch.shared_pattern:
            self.shared[:] = launch.shared_pattern
        self.local_stride = rounded_up(program.local_bytes, BUFFER_ALIGNMENT_BYTES)
        self.local: npt.NDArray[np.uint8] = np.zeros(self.lane_count * self.local_stride, np.uint8)
        self.mbarriers: dict[int, Mbarrier] = {}  # by shared address; their state is not in memory
        self.running_phases: dict[int, RunningPhase] = {}  # of the mbarriers, by shared address
        self.works: list[Work] = []  # pending asynchronous work, oldest first
        self.polled: dict[int, int] = {}  # mbarriers that a wait did not pass: address → lanes that waited
        self.version = 0  # counts what others could wait for: stores to shared memory, arrivals
        self.random = launch.random
        self.undefined: UndefinedValues | None = None  # while there are undefined values
        self._sites: dict[int, SharedSite] = {}  # by instruction: where it last accessed shared memory
        self.stretches = program.stretches
        rows = program.fact(rows_of_words)
        self.registers: list[Words] = [self._register(number, row) for number, row in enumerate(rows)]

    def _shape(self, launch: Launch, first_block: BlockIndex) -> ClusterShape:
        """The lanes of its blocks."""
        return launch.cluster_shape(first_block)

    @cached_property
    def pending(self) -> Pending:
        """The queue of asynchronous work; kernels without any never make it."""
        return Pending(self.lane_count, self.works)

    @cached_property
    def undefined_values(self) -> UndefinedValues:
        """Where undefined values are; kernels without an undefined value never make it."""
        return UndefinedValues(self)

    def follow_undefined(self, values: UndefinedValues | None) -> None:
        """Follow undefined values from now on; None: there are none any more."""
        self.undefined = values
        self.stretches = self.program.stretches if values is None else values.stretches

    def _register(self, number: int, row: int | None) -> Words:
        """A register of all lanes; `row` is its place among the words, if it is one."""
        if row is not None:
            return self.words[row, : self.lane_count]
        dtype = self.program.register_dtypes[number]
        content = self.program.read_only.get(number)
        if content is None:
            return np.zeros(self.lane_count, dtype)
        if isinstance(content, Constant):
            return _repeat_word(np.array(content.bits, dtype), self.lane_count)
        if isinstance(content, VariableAddress):
            return self._addresses_of(content)
        return self._special(content)

    @cached_property
    def register_tables(self) -> RegisterTables:
        """Addresses of the registers, for compiled code."""
        return RegisterTables(self.registers, self.lane_count)

    @cached_property
    def words(self) -> npt.NDArray[np.uint32]:
        """All registers of 32 bits, a row each, so that a compiled loop can take several of them."""
        rows = sum(row is not None for row in self.program.fact(rows_of_words))
        return np.zeros((rows, self.lane_count + _PADDING_LANES), np.uint32)

    def rows_of(self, numbers: Sequence[int]) -> npt.NDArray[np.int64]:
        """The rows of `words` that hold registers of 32 bits, which instructions write."""
        rows = self.program.fact(rows_of_words)
        return np.array([rows[number] for number in numbers], np.int64)

    def _special(self, content: SpecialRegister) -> Words:
        """A special register, for every lane."""
        return special_values(self.launch, self.shape, content.name)

    def _addresses_of(self, content: VariableAddress) -> Words:
        """An address in a variable, in its own space, for every lane: that of shared memory has the block's rank."""
        variable = content.variable
        program = self.program
        if variable.space == "shared":
            offset = program.shared_offsets[variable.number] + content.offset
            addresses = (self.block_of_lane << SHARED_RANK_SHIFT) + offset
            return addresses.astype(np.uint64)
        if variable.number in program.param_offsets:
            address = PARAM_WINDOW + program.param_offsets[variable.number]
        elif variable.number in program.local_offsets:
            address = program.local_offsets[variable.number]
        else:
            address = self.launch.variable_addresses[variable.name]
        return _repeat_word(np.array(address + content.offset, np.uint64), self.lane_count)

    def lanes(self, at: Lanes) -> LaneNumbers:
        """Lane numbers, also where all are meant."""
        return self.shape.all_lanes if isinstance(at, slice) else at

    def grouping(self, group_lanes: int) -> LaneGrouping:
        """The warps (32 lanes) or warpgroups (128) of all blocks; each block begins a new one."""
        return self.shape.grouping(group_lanes)

    def stacked(self, numbers: tuple[int, ...], at: Lanes) -> Words:
        """(lanes, registers) words of several registers."""
        return np.stack([self.registers[number][at] for number in numbers], axis=1)

    @property
    def whole(self) -> Cluster:
        """All that an instruction changes: of a leader the blocks that follow it, too."""
        return self

    def in_all_blocks(self, at: Lanes) -> Lanes:
        """Lanes, and of a leader the same lanes of the blocks that follow it."""
        return at

    def followers(self, lane: int) -> LaneNumbers:
        """The same lane of the blocks that follow a leader."""
        return _NO_LANES

    def select_heard_lanes(self, lanes: LaneNumbers) -> LaneNumbers:
        """The lanes whose events observers want; in a batch, the leader's."""
        return lanes

    def keep_rows(self, pc: int, lane: int, rows: Rows, *, is_write: bool) -> None:
        """Of a leader: a copy of one of its blocks reads or writes bytes of global memory."""

    def keep_follower(self, lane: int, record: CopyRecord) -> None:
        """Of a leader: the record of a copy of a block that follows it."""

    def require_alike(self, numbers: Iterable[int], at: Lanes) -> None:
        """Refuse registers in which the blocks that follow a leader differ from it."""

    @cached_property
    def tensor_memory(self) -> TensorMemories:
        """The tensor memory of all blocks; kernels without tcgen05 never make it."""
        return TensorMemories(self.blocks)

    def load(
        self,
        space: Space,
        at: Lanes,
        addresses: Addresses,
        dtype: np.dtype[np.generic],
        count: int = 1,
        *,
        cost: AccessCost | None = None,
    ) -> Words:
        """(lanes,) words, or (lanes, count) that follow each other, from a space; faults are the card's.

        `cost` is how the load/store unit serves the instruction; None: it is not counted.
        """
        if space == "generic":
            self._require_aligned(at, addresses, dtype.itemsize * count)
            return self._load_generic(at, addresses, dtype, count, cost)
        if space == "shared":
            site = self._site_of(at, addresses, dtype, count)
            loaded: Words = self.shared.view(dtype)[site.words]
            lanes, addresses, places = site.lanes, site.addresses, site.places
        else:
            loaded, places = self._read(space, at, addresses, dtype, count)
            lanes = self.lanes(at)
        if self.bus.is_heard and space in ("shared", "global"):
            size_bytes = dtype.itemsize * count
            access = self.accesses[self.pc]
            stale = self.bus.load(Load(self.pc, lanes, space, addresses, places, size_bytes, access, cost))
            if stale:
                self._put_stale(loaded, stale)
        return loaded

    def _site_of(self, at: Lanes, addresses: Addresses, dtype: np.dtype[np.generic], count: int) -> SharedSite:
        """Where lanes access shared memory; a fault if an address is not aligned or outside."""
        lanes = self.lanes(at)
        site = self._sites.get(self.pc)
        if site is not None and site.has_same(lanes, addresses, dtype, count):
            return site
        size_bytes = dtype.itemsize * count
        self._require_aligned(at, addresses, size_bytes)
        places = self._places("shared", at, addresses, size_bytes)[1]
        first = places // dtype.itemsize
        words = first if count == 1 else first[:, None] + np.arange(count)
        site = SharedSite(lanes, addresses, places, words, dtype, count)
        if len(lanes) <= MOST_LANES:
            if len(self._sites) >= MOST_SITES:
                self._sites.clear()
            self._sites[self.pc] = site
        return site

    def read(self, space: Space, at: Lanes, addresses: Addresses, dtype: np.dtype[np.generic], count: int = 1) -> Words:
        """The same words, read as part of a larger operation, which emits an event itself."""
        if space != "generic":
            return self._read(space, at, addresses, dtype, count)[0]
        result = np.empty((len(addresses), count) if count > 1 else (len(addresses),), dtype)
        for own_space, chosen in self._by_space(addresses):
            space_addresses = addresses[chosen] - WINDOWS.get(own_space, 0)
            result[chosen] = self._read(own_space, self.lanes(at)[chosen], space_addresses, dtype, count)[0]
        return result

    def _read(
        self, space: Space, at: Lanes, addresses: Addresses, dtype: np.dtype[np.generic], count: int
    ) -> tuple[Words, Addresses]:
        """Words of a space that is not generic, and their places in its array; in global memory the addresses."""
        size_bytes = dtype.itemsize * count
        self._require_aligned(at, addresses, size_bytes)
        if space == "global":
            with _LaneNames(self, at):
                return self.memory.load(addresses, dtype, count), addresses
        buffer, places = self._places(space, at, addresses, size_bytes)
        first = places // dtype.itemsize
        return buffer.view(dtype)[first if count == 1 else first[:, None] + np.arange(count)], places

    def _put_stale(self, loaded: Words, stale: StaleValues) -> None:
        """Loads of flags that may come before the last write: they see the value before it."""
        self.version += 1  # the next load will see something else
        for index, value in stale.items():
            loaded[index] = np.frombuffer(value, loaded.dtype).reshape(loaded[index].shape)

    def store(
        self, space: Space, at: Lanes, addresses: Addresses, values: Words, *, cost: AccessCost | None = None
    ) -> None:
        """Write (lanes,) or (lanes, count) words; of several lanes at one address the last one wins."""
        if space == "shared":
            self._store_shared(at, addresses, values, cost)
            return
        self._require_aligned(at, addresses, _bytes_of_lane(values))
        if space == "generic":
            for own_space, chosen in self._by_space(addresses):
                space_addresses = addresses[chosen] - WINDOWS.get(own_space, 0)
                self.store(own_space, self.lanes(at)[chosen], space_addresses, values[chosen], cost=cost)
        elif space == "global":
            self._store_global(at, addresses, values, cost)
        else:
            self._store_local(space, at, addresses, values)

    def _store_shared(self, at: Lanes, addresses: Addresses, values: Words, cost: AccessCost | None) -> None:
        site = self._site_of(at, addresses, values.dtype, values.shape[1] if values.ndim > 1 else 1)
        words = self.shared.view(values.dtype)
        chosen = site.words.reshape(values.shape)
        before = words[chosen]
        is_changed = not np.array_equal(before, values)
        if is_changed:  # a store of the same values changes nothing for threads that wait
            self.version += 1
            words[chosen] = values
        if self.bus.is_heard:
            stored = _unless_equal(words[chosen], values) if is_changed else None
            access = self.accesses[self.pc]
            at_site = (site.addresses, site.places, _bytes_of_lane(values))
            self.emit(Store(self.pc, site.lanes, "shared", *at_site, access, cost, before, values, stored))

    def _store_local(self, space: Space, at: Lanes, addresses: Addresses, values: Words) -> None:
        """Write to the local memory of threads."""
        size_bytes = _bytes_of_lane(values)
        buffer, places = self._places(space, at, addresses, size_bytes)
        if space == "param":
            return  # the card neither faults nor changes the parameters (measured on an H200)
        words = buffer.view(values.dtype)
        first = places // values.dtype.itemsize
        chosen = first if values.ndim == 1 else first[:, None] + np.arange(values.shape[1])
        if not np.array_equal(words[chosen], values):
            self.version += 1
            words[chosen] = values
        if self.bus.is_heard:
            self.emit(LocalStore(self.pc, self.lanes(at), places, size_bytes))

    def _store_global(self, at: Lanes, addresses: Addresses, values: Words, cost: AccessCost | None) -> None:
        with _LaneNames(self, at):
            if not self.bus.is_heard:
                self.memory.store(addresses, values)
                return
            before, after = self.memory.exchange(addresses, values)
        access = self.accesses[self.pc]
        lanes = self.lanes(at)
        size_bytes = _bytes_of_lane(values)
        stored = _unless_equal(after, values)
        self.emit(
            Store(self.pc, lanes, "global", addresses, addresses, size_bytes, access, cost, before, values, stored)
        )

    def write(self, space: Space, at: Lanes, addresses: Addresses, values: Words) -> None:
        """Write words as part of a larger operation, which has emitted an event itself."""
        if space == "global":
            with _LaneNames(self, at):
                self.memory.store(addresses, values)
            return
        size_bytes = _bytes_of_lane(values)
        buffer, places = self._places(space, at, addresses, size_bytes)
        words = buffer.view(values.dtype)
        first = places // values.dtype.itemsize
        words[first if values.ndim == 1 else first[:, None] + np.arange(values.shape[1])] = values
        self.version += 1

    def shared_places(self, at: Lanes, addresses: Addresses) -> Addresses:
        """The offsets of shared addresses of lanes in the memory of all blocks."""
        return self.shape.places(addresses)

    def shared_bytes(self, rank: int) -> npt.NDArray[np.uint8]:
        """The shared memory of one block, from address 0 of its window on."""
        start = rank * self.shared_stride
        return self.shared[start : start + self.launch.shared_end]

    def split_shared(self, address: int) -> tuple[int, int]:
        """(rank, offset in the block's window) of a shared address; a fault outside the cluster."""
        rank = address >> SHARED_RANK_SHIFT
        offset = address & SHARED_OFFSET_MASK
        if not 0 <= rank < self.blocks or offset >= self.launch.shared_end:
            raise _outside_shared(address, self, None, offset + 1)
        return rank, offset

    def require_shared(self, at: Lanes, addresses: Addresses, size_bytes: int) -> None:
        """A fault unless every address is a multiple of the size and is in the cluster's shared memory."""
        self._require_aligned(at, addresses, size_bytes)
        self._places("shared", at, addresses, size_bytes)

    def _load_generic(
        self,
        at: Lanes,
        addresses: Addresses,
        dtype: np.dtype[np.generic],
        count: int,
        cost: AccessCost | None,
    ) -> Words:
        pieces = self._by_space(addresses)
        if len(pieces) == 1:
            own_space = pieces[0][0]
            return self.load(own_space, at, addresses - WINDOWS.get(own_space, 0), dtype, count, cost=cost)
        shape = (len(addresses), count) if count > 1 else (len(addresses),)
        result = np.empty(shape, dtype)
        lanes = self.lanes(at)
        for own_space, chosen in pieces:
            space_addresses = addresses[chosen] - WINDOWS.get(own_space, 0)
            result[chosen] = self.load(own_space, lanes[chosen], space_addresses, dtype, count, cost=cost)
        return result

    def _by_space(self, addresses: Addresses) -> list[tuple[Space, LaneNumbers]]:
        """Which entries of generic addresses are in which space."""
        pieces: list[tuple[Space, LaneNumbers]] = []
        is_global = np.ones(len(addresses), np.bool_)
        for space in WINDOWS:
            is_inside = is_in_window(space, addresses)
            if is_inside.any():
                pieces.append((space, np.flatnonzero(is_inside)))
                is_global &= ~is_inside
        if is_global.any():
            pieces.append(("global", np.flatnonzero(is_global)))
        return pieces

    def _places(
        self, space: Space, at: Lanes, addresses: Addresses, size_bytes: int
    ) -> tuple[npt.NDArray[np.uint8], Addresses]:
        """The array that holds a space, and the positions of the addresses in it."""
        if space == "shared":
            rank = addresses >> SHARED_RANK_SHIFT
            offset = addresses & SHARED_OFFSET_MASK
            is_outside = (rank < 0) | (rank >= self.blocks) | (offset + size_bytes > self.launch.shared_end)
            if is_outside.any():
                first = int(np.argmax(is_outside))
                end = int(offset.max()) + size_bytes
                raise _outside_shared(int(addresses[first]), self, int(self.lanes(at)[first]), end)
            return self.shared, rank * self.shared_stride + offset
        if space == "local":
            self._require_inside(at, addresses, size_bytes, self.program.local_bytes, "local memory")
            return self.local, self.lanes(at) * self.local_stride + addresses
        if space == "param":
            offsets = np.where(addresses >= PARAM_WINDOW, addresses - PARAM_WINDOW, addresses)
            self._require_inside(at, offsets, size_bytes, len(self.launch.parameters), "the kernel's parameters")
            return self.launch.parameters, offsets
        raise AssertionError(space)

    def _require_inside(self, at: Lanes, offsets: Addresses, size_bytes: int, end: int, where: str) -> None:
        is_outside = (offsets < 0) | (offsets + size_bytes > end)
        if is_outside.any():
            first = int(np.argmax(is_outside))
            address = int(offsets[first])
            reason = f"an access of {size_bytes} bytes at {address:#x}, outside {where} of {end} bytes"
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(self.lanes(at)[first]), address)

    def _require_aligned(self, at: Lanes, addresses: Addresses, size_bytes: int) -> None:
        is_wrong = addresses & (size_bytes - 1)
        if size_bytes > 1 and is_wrong.any():
            first = int(np.flatnonzero(is_wrong)[0])
            address = int(addresses[first])
            reason = f"an access of {size_bytes} bytes at {address:#x}, which is not a multiple of {size_bytes}"
            raise KernelFaultError(MISALIGNED_ADDRESS, reason, int(self.lanes(at)[first]), address)


@dataclass(slots=True, eq=False)
class Front:
    """Lanes at one instruction.

    `rounds` counts the quanta that it has used: fronts that have used fewer run first. `steps` are those of this quantum.
    """

    pc: int
    lanes: LaneNumbers
    rounds: int = 0
    steps: int = 0
    _counted: LaneNumbers | None = None  # the lanes whose warps were counted last
    _warps: int = 0

    def at(self, cluster: Cluster) -> Lanes:
        """The lanes, or the slice that means everyone."""
        return EVERYONE if len(self.lanes) == cluster.lane_count else self.lanes

    def warp_count(self) -> int:
        """How many warps the lanes belong to."""
        if self._counted is not self.lanes:
            self._counted = self.lanes
            self._warps = int(np.count_nonzero(np.bincount(self.lanes // WARP_LANES)))
        return self._warps


class _LaneNames:
    """A fault of global memory inside this context has the number of an entry of the access; it gets the lane's number."""

    def __init__(self, cluster: Cluster, at: Lanes) -> None:
        self.cluster = cluster
        self.at = at

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: object, trace: object) -> None:
        if isinstance(fault, KernelFaultError) and fault.lane is not None:
            fault.lane = int(self.cluster.lanes(self.at)[fault.lane])


def _repeat_word(value: Words, count: int) -> Words:
    """A read-only array with one value for all lanes; numpy.broadcast_to takes ten times as long to create it."""
    repeated: Words = np.ndarray((count,), value.dtype, value.tobytes(), strides=(0,))
    return repeated


def rows_of_words(program: Program) -> list[int | None]:
    """By register: its number among the registers of 32 bits that instructions write; None: it is another one."""
    rows: list[int | None] = []
    count = 0
    for number, dtype in enumerate(program.register_dtypes):
        is_word = dtype == np.uint32 and number not in program.read_only
        rows.append(count if is_word else None)
        count += is_word
    return rows


def _bytes_of_lane(values: Words) -> int:
    """Bytes that each lane stores."""
    return values.dtype.itemsize * (values.shape[1] if values.ndim > 1 else 1)


def _unless_equal(after: Words, values: Words) -> Words | None:
    """What memory holds after a store; None if that is the value of every lane."""
    return after if after is not values and (after != values).any() else None


def _outside_shared(address: int, cluster: Cluster, lane: int | None, end: int) -> KernelFaultError:
    """The fault of an address outside the shared memory of the cluster (the codes were measured on an H200).

    `end` is the first offset behind all bytes of the access.
    """
    rank = address >> SHARED_RANK_SHIFT
    if not 0 <= rank < cluster.blocks:
        reason = (
            f"shared address {address:#x} of block {rank} of the cluster, which has {counted(cluster.blocks, 'block')}"
        )
        return KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane, address)
    shared_end = cluster.launch.shared_end
    reason = f"shared address {address:#x}, but shared memory of a block ends at {shared_end:#x}"
    return KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address, shared_end=end)
