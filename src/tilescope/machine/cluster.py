"""The state of the blocks that run together: registers, shared and local memory, barriers, asynchronous work.

A block without a cluster is a cluster of one. Threads are lanes of one long row: block after block, each padded to whole
warps, so that lane // 32 is a warp. Lanes that pad a block never run.

    block (3, 40 threads)     lanes 0-39 exist, 40-63 do not; warps 0 and 1
    block of rank 1           lanes 64-103, …
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.machine.address import (
    BUFFER_ALIGNMENT_BYTES,
    PARAM_WINDOW,
    SHARED_OFFSET_MASK,
    SHARED_RANK_SHIFT,
    WINDOWS,
    Addresses,
    Space,
    is_in_window,
)
from tilescope.machine.fault import ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, KernelFaultError
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.observers.operand_reads import Marks
from tilescope.machine.observers.thread_tiles import StoreMarks
from tilescope.machine.pending import Pending
from tilescope.machine.program import Constant, Program, VariableAddress
from tilescope.machine.records import RunningPhase
from tilescope.machine.special import special_values
from tilescope.machine.step import LaneNumbers, Lanes
from tilescope.machine.tmem_state import TensorMemories
from tilescope.machine.warp_sums import differ_by_rounding
from tilescope.sentence import counted
from tilescope.sync.detector.accesses import Same
from tilescope.sync.detector.detector import Order
from tilescope.sync.detector.stale_reads import OlderValues
from tilescope.sync.mbarrier import Mbarrier

if TYPE_CHECKING:
    from tilescope.machine.launch.launch import Launch

Words = npt.NDArray[np.generic]


class LaneGrouping(NamedTuple):
    """Lanes in groups that execute together; the last group of a block may be smaller."""

    first_lanes: LaneNumbers  # of each group
    of_lane: LaneNumbers  # the group of each lane


class Cluster:
    """Blocks that run together, with all that their threads hold."""

    def __init__(self, launch: Launch, first_block: tuple[int, int, int]) -> None:
        program = launch.program
        self.launch = launch
        self.program: Program = program
        self.memory: GlobalMemory = launch.memory
        self.blocks = launch.cluster_blocks
        self.block_threads = launch.block_threads
        self.block_lanes = launch.block_lanes
        self.lane_count = self.blocks * self.block_lanes
        self.first_block = first_block
        self.pc = 0  # of the step that runs now
        self._all_lanes: LaneNumbers = np.arange(self.lane_count)
        self._all_lanes.flags.writeable = False
        lane_of_block = self._all_lanes % self.block_lanes
        self.exists: npt.NDArray[np.bool_] = lane_of_block < self.block_threads
        self.live: npt.NDArray[np.bool_] = self.exists.copy()
        self.block_of_lane: npt.NDArray[np.intp] = self._all_lanes // self.block_lanes
        self.shared_stride = launch.shared_stride
        self.shared: npt.NDArray[np.uint8] = np.zeros(self.blocks * self.shared_stride, np.uint8)
        self.local_stride = rounded_up(program.local_bytes, BUFFER_ALIGNMENT_BYTES)
        self.local: npt.NDArray[np.uint8] = np.zeros(self.lane_count * self.local_stride, np.uint8)
        self.mbarriers: dict[int, Mbarrier] = {}  # by shared address; their state is not in memory
        self.running_phases: dict[int, RunningPhase] = {}  # of the mbarriers, by shared address
        self.pending = Pending(self.lane_count)
        self.polled: dict[int, int] = {}  # mbarriers that a wait did not pass: address → lanes that asked
        self.version = 0  # counts what others could wait for: stores to shared memory, arrivals
        self.random = launch.random
        self.costs = launch.costs
        self.tile_marks: Marks | None = None  # by 16 bytes of shared memory: the tensor copy that wrote them
        self.store_marks: StoreMarks | None = None  # by 4 bytes: the store of threads that wrote them
        self.log = launch.take_log()
        if self.log is not None:
            self.log.begin(self)
        self._groupings: dict[int, LaneGrouping] = {}
        self.registers: list[Words] = [self._register(number) for number in range(len(program.register_dtypes))]
        self.order: Order | None = None if launch.order is None else Order(self, launch.order)
        if launch.watch is not None:
            launch.watch.begin(self)

    def _register(self, number: int) -> Words:
        dtype = self.program.register_dtypes[number]
        content = self.program.read_only.get(number)
        if content is None:
            return np.zeros(self.lane_count, dtype)
        if isinstance(content, Constant):
            return np.broadcast_to(np.array(content.bits, dtype), (self.lane_count,))
        if isinstance(content, VariableAddress):
            return self._addresses_of(content)
        return special_values(self, content.name)

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
        return np.broadcast_to(np.array(address + content.offset, np.uint64), (self.lane_count,))

    def lanes(self, at: Lanes) -> LaneNumbers:
        """Lane numbers, also where all are meant."""
        return self._all_lanes if isinstance(at, slice) else at

    def grouping(self, group_lanes: int) -> LaneGrouping:
        """The warps (32 lanes) or warpgroups (128) of all blocks; each block begins a new one."""
        known = self._groupings.get(group_lanes)
        if known is None:
            starts_in_block = np.arange(0, self.block_lanes, group_lanes)
            first_lanes = (np.arange(self.blocks)[:, None] * self.block_lanes + starts_in_block).ravel()
            of_lane = np.searchsorted(first_lanes, np.arange(self.lane_count), side="right") - 1
            known = LaneGrouping(first_lanes, of_lane)
            self._groupings[group_lanes] = known
        return known

    def stacked(self, numbers: tuple[int, ...], at: Lanes) -> Words:
        """(lanes, registers) words of several registers."""
        return np.stack([self.registers[number][at] for number in numbers], axis=1)

    @cached_property
    def tensor_memory(self) -> TensorMemories:
        """The tensor memory of all blocks; kernels without tcgen05 never make it."""
        return TensorMemories(self.blocks)

    def load(self, space: Space, at: Lanes, addresses: Addresses, dtype: np.dtype[np.generic], count: int = 1) -> Words:
        """(lanes,) words, or (lanes, count) that follow each other, from a space; faults are the card's."""
        self._require_aligned(at, addresses, dtype.itemsize * count)
        if space == "generic":
            return self._load_generic(at, addresses, dtype, count)
        if space == "global":
            with _LaneNames(self, at):
                found = self.memory.load(addresses, dtype, count)
            if self.order is not None:
                older = self.order.touching.memory(self.lanes(at), addresses, dtype.itemsize * count, None)
                if older:
                    self._put_older(found, older)
            return found
        buffer, places = self._places(space, at, addresses, dtype.itemsize * count)
        if self.tile_marks is not None and self.costs is not None and space == "shared":
            self.costs.tiles.read(self, at, places)
        words = buffer.view(dtype)
        first = places // dtype.itemsize
        loaded: Words = words[first if count == 1 else first[:, None] + np.arange(count)]
        if self.order is not None and space == "shared":
            older = self.order.touching.shared(self.lanes(at), places, dtype.itemsize * count, None)
            if older:
                self._put_older(loaded, older)
        return loaded

    def _put_older(self, loaded: Words, older: OlderValues) -> None:
        """Loads of flags that came before the last write: they see the value before it."""
        self.version += 1  # the next load will see something else
        for place, value in older.items():
            loaded[place] = np.frombuffer(value, loaded.dtype).reshape(loaded[place].shape)

    def store(self, space: Space, at: Lanes, addresses: Addresses, values: Words) -> None:
        """Write (lanes,) or (lanes, count) words; of several lanes at one address the last one wins."""
        count = values.shape[1] if values.ndim > 1 else 1
        self._require_aligned(at, addresses, values.dtype.itemsize * count)
        if space == "generic":
            for own_space, chosen in self._by_space(addresses):
                own = addresses[chosen] - WINDOWS.get(own_space, 0)
                self.store(own_space, self.lanes(at)[chosen], own, values[chosen])
            return
        if space == "global":
            self._store_global(at, addresses, values)
            return
        buffer, places = self._places(space, at, addresses, values.dtype.itemsize * count)
        if space == "param":
            return  # the card neither faults nor changes the parameters (measured on an H200)
        words = buffer.view(values.dtype)
        first = places // values.dtype.itemsize
        chosen = first if count == 1 else first[:, None] + np.arange(count)
        order = self.order if space == "shared" else None
        held = words[chosen]
        if order is not None:
            same = _sameness(held, values)
            order.touching.shared(self.lanes(at), places, values.dtype.itemsize * count, same)
            order.mbarriers.overwritten(self.lanes(at), places)
            order.fences.early.overwritten(order.fences.shared_flags, places, held)
        if space == "shared" and self.costs is not None:
            self.costs.tiles.wrote(self, at, places, values.dtype.itemsize * count)
        if np.array_equal(held, values):  # a store of the same values changes nothing for threads that wait
            return
        self.version += 1
        words[chosen] = values
        if order is not None and len(places) > 1:
            stored = words[chosen]
            if (stored != values).any():
                lost = int(np.argmin(_sameness(stored, values)()))
                is_rounding = differ_by_rounding(stored, values)
                lane = int(self.lanes(at)[lost])
                order.touching.two_values("shared", lane, int(places[lost]), differ_by_rounding=is_rounding)

    def _store_global(self, at: Lanes, addresses: Addresses, values: Words) -> None:
        with _LaneNames(self, at):
            if self.order is None:
                self.memory.store(addresses, values)
                return
            count = values.shape[1] if values.ndim > 1 else 1
            held, stored = self.memory.exchange(addresses, values)
            lanes = self.lanes(at)
            self.order.touching.memory(lanes, addresses, values.dtype.itemsize * count, _sameness(held, values))
            self.order.fences.early.overwritten(self.order.witness.launch.flags, addresses, held)
            if (stored != values).any():
                lost = int(np.argmin(_sameness(stored, values)()))
                is_rounding = differ_by_rounding(stored, values)
                address = int(addresses[lost])
                self.order.touching.two_values("global", int(lanes[lost]), address, differ_by_rounding=is_rounding)

    def shared_places(self, addresses: Addresses) -> Addresses:
        """Where shared addresses lie in the memory of all blocks."""
        return (addresses >> SHARED_RANK_SHIFT) * self.shared_stride + (addresses & SHARED_OFFSET_MASK)

    def shared_bytes(self, rank: int) -> npt.NDArray[np.uint8]:
        """The shared memory of one block, from address 0 of its window on."""
        start = rank * self.shared_stride
        return self.shared[start : start + self.launch.shared_end]

    def split_shared(self, address: int) -> tuple[int, int]:
        """(rank, offset in the block's window) of a shared address; a fault outside the cluster."""
        rank = address >> SHARED_RANK_SHIFT
        offset = address & SHARED_OFFSET_MASK
        if not 0 <= rank < self.blocks or offset >= self.launch.shared_end:
            raise _outside_shared(address, self, None)
        return rank, offset

    def require_shared(self, at: Lanes, addresses: Addresses, size_bytes: int) -> None:
        """A fault unless every address is a multiple of the size and lies in the cluster's shared memory."""
        self._require_aligned(at, addresses, size_bytes)
        self._places("shared", at, addresses, size_bytes)

    def _load_generic(self, at: Lanes, addresses: Addresses, dtype: np.dtype[np.generic], count: int) -> Words:
        pieces = self._by_space(addresses)
        if len(pieces) == 1:
            own_space = pieces[0][0]
            return self.load(own_space, at, addresses - WINDOWS.get(own_space, 0), dtype, count)
        shape = (len(addresses), count) if count > 1 else (len(addresses),)
        result = np.empty(shape, dtype)
        lanes = self.lanes(at)
        for own_space, chosen in pieces:
            own = addresses[chosen] - WINDOWS.get(own_space, 0)
            result[chosen] = self.load(own_space, lanes[chosen], own, dtype, count)
        return result

    def _by_space(self, addresses: Addresses) -> list[tuple[Space, LaneNumbers]]:
        """Which entries of generic addresses lie in which space."""
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
        """The array that holds a space, and where in it the addresses lie."""
        if space == "shared":
            rank = addresses >> SHARED_RANK_SHIFT
            offset = addresses & SHARED_OFFSET_MASK
            is_outside = (rank < 0) | (rank >= self.blocks) | (offset + size_bytes > self.launch.shared_end)
            if is_outside.any():
                first = int(np.argmax(is_outside))
                raise _outside_shared(int(addresses[first]), self, int(self.lanes(at)[first]))
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
            reason = f"an access of {size_bytes} bytes at {address:#x}, which is no multiple of {size_bytes}"
            raise KernelFaultError(MISALIGNED_ADDRESS, reason, int(self.lanes(at)[first]), address)


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


def _sameness(held: Words, values: Words) -> Same:
    """For each lane whether the words of a store lie there already."""

    def same() -> npt.NDArray[np.bool_]:
        is_equal = held == values
        return np.asarray(is_equal if is_equal.ndim == 1 else is_equal.all(axis=1))

    return same


def _outside_shared(address: int, cluster: Cluster, lane: int | None) -> KernelFaultError:
    """The fault of an address outside the shared memory of the cluster (the codes were measured on an H200)."""
    rank = address >> SHARED_RANK_SHIFT
    if not 0 <= rank < cluster.blocks:
        reason = (
            f"shared address {address:#x} of block {rank} of the cluster, which has {counted(cluster.blocks, 'block')}"
        )
        return KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane, address)
    held = cluster.launch.shared_end
    reason = f"shared address {address:#x}, but shared memory of a block ends at {held:#x}"
    return KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address)
