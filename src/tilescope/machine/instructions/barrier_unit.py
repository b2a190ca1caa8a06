"""The mbarriers of a cluster, as the unit that holds them changes them.

The state of an mbarrier is not in memory. A separate unit counts, and mbarrier.inval writes the word back (measured on
an H200). So the state of an uninitialized barrier is the word in memory. `sync.mbarrier` does the counting. This module
knows the owner of each barrier, raises the faults, and records the phases that ended.

    arrive, 32 lanes of one warp       one change with 32 arrivals: more than are pending are a fault
    arrive, 4 warps                    four changes, one after another
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import LAUNCH_FAILURE, fault_of
from tilescope.machine.execution.records import RECORDS_KEPT, PhaseRecord, RunningPhase
from tilescope.sync.access_semantics import MbarrierSemantics
from tilescope.sync.address import SHARED_RANK_SHIFT, Addresses
from tilescope.sync.cluster_shape import LaneNumbers, block_index
from tilescope.sync.events import MbarrierInit, MbarrierInval, MbarrierPhaseCompleted, MbarrierTest
from tilescope.sync.mbarrier import ARRIVALS, ARRIVALS_END, Mbarrier

BARRIER_BYTES = 8
_WORD = np.dtype(np.uint64)
_FRESH = RunningPhase()
_TOKEN_MASK = 0xFFFF_FFFF_0000_0000  # the upper half of the state before an arrival; the lower half is something else

Change = Callable[[Mbarrier], Mbarrier]


class LanesAtBarrier(NamedTuple):
    """Lanes of one warp at one barrier; `places` are theirs in the arrays of the instruction."""

    address: int
    lanes: LaneNumbers
    places: LaneNumbers


def group_by_barrier(lanes: LaneNumbers, addresses: Addresses) -> list[LanesAtBarrier]:
    """The lanes of an instruction by warp and barrier, warp after warp.

    >>> groups = group_by_barrier(np.array([0, 1, 32, 33]), np.array([1024, 1024, 1024, 1032]))
    >>> [(group.address, group.lanes.tolist()) for group in groups]
    [(1024, [0, 1]), (1024, [32]), (1032, [33])]
    """
    places = np.arange(len(lanes))
    if len(lanes) == 1:
        return [LanesAtBarrier(int(addresses[0]), lanes, places)]
    order = np.lexsort((addresses, lanes // WARP_LANES))
    warps = lanes[order] // WARP_LANES
    ordered = addresses[order]
    is_other = (np.diff(warps) != 0) | (np.diff(ordered) != 0)
    parts = np.split(places[order], np.flatnonzero(is_other) + 1)
    return [LanesAtBarrier(int(addresses[part[0]]), lanes[part], part) for part in parts]


def barrier_at(cluster: Cluster, address: int, lane: int) -> Mbarrier:
    """The state of the barrier at a shared address; a fault if the word in memory is no barrier."""
    state = cluster.mbarriers.get(address)
    if state is not None:
        return state
    word = cluster.load("shared", np.array([lane]), np.array([address]), _WORD)
    try:
        return Mbarrier.decode(int(word[0]))
    except RuleError as error:
        raise fault_of(error, lane, address, LAUNCH_FAILURE) from None


def initialise(cluster: Cluster, address: int, count: int, lane: int) -> None:
    """mbarrier.init; the card cuts a count to 20 bits and reports nothing, and the barrier is broken."""
    cluster.require_shared(np.array([lane]), np.array([address]), BARRIER_BYTES)
    arrivals = count % ARRIVALS_END
    cluster.emit(MbarrierInit(cluster.pc, lane, address, arrivals))
    cluster.mbarriers[address] = Mbarrier(arrivals, pending=arrivals)
    cluster.running_phases[address] = _FRESH
    cluster.version += 1


def invalidate(cluster: Cluster, address: int, lane: int) -> None:
    """mbarrier.inval: the unit writes the word back to memory and forgets the barrier."""
    at = np.array([lane])
    word = barrier_at(cluster, address, lane).encode()
    cluster.emit(MbarrierInval(cluster.pc, lane, address))
    cluster.store("shared", at, np.array([address]), np.array([word], _WORD))
    cluster.mbarriers.pop(address, None)
    cluster.running_phases.pop(address, None)


def change(cluster: Cluster, address: int, lane: int, to_next: Change, *, expected_bytes: int = 0) -> int:
    """Change a barrier, and note the phase if that ends it. The token of an arrival: the state before."""
    before = barrier_at(cluster, address, lane)
    try:
        after = to_next(before)
    except RuleError as error:
        fault = fault_of(error, lane, address, LAUNCH_FAILURE)
        if fault.rule == ARRIVALS.name:
            fault.missing_bytes = before.tx_bytes
        raise fault from None
    cluster.mbarriers[address] = after
    cluster.version += 1
    running = cluster.running_phases.get(address, _FRESH)
    if expected_bytes:
        running = RunningPhase(running.number, running.bytes + expected_bytes)
    if after.phase != before.phase:
        _note_phase(cluster, address, before, running)
        cluster.emit(MbarrierPhaseCompleted(cluster.pc, lane, address))
        running = RunningPhase(running.number + 1)
    cluster.running_phases[address] = running
    return before.encode() & _TOKEN_MASK


def complete_bytes(cluster: Cluster, address: int, lane: int, size_bytes: int) -> None:
    """What a copy tells its barrier when its bytes have come."""
    if size_bytes:
        change(cluster, address, lane, lambda state: state.complete_tx(size_bytes))


def test_phase(
    cluster: Cluster, address: int, lanes: LaneNumbers, *, parity: int, semantics: MbarrierSemantics
) -> npt.NDArray[np.bool_]:
    """For each lane whether it sees the phase of that parity completed; a failed test makes its copies come next."""
    has_completed = barrier_at(cluster, address, int(lanes[0])).passes(parity)
    if has_completed:
        cluster.polled.pop(address, None)
    else:
        cluster.polled[address] = len(lanes)
    passes = np.full(len(lanes), has_completed)
    if not cluster.bus.is_heard:
        return passes
    phase = cluster.running_phases.get(address, _FRESH).number - 1
    passes = cluster.bus.test(MbarrierTest(cluster.pc, lanes, address, parity, phase, has_completed, semantics, passes))
    if has_completed and not passes.all():
        cluster.version += 1  # the next test will see something else
    return passes


def _note_phase(cluster: Cluster, address: int, ended: Mbarrier, running: RunningPhase) -> None:
    launch = cluster.launch
    if len(launch.phases) >= RECORDS_KEPT:
        return
    block = block_index(cluster.first_block, launch.cluster, address >> SHARED_RANK_SHIFT)
    launch.phases.append(PhaseRecord(address, block, running.number, ended.count, running.bytes, cluster.pc))
