"""What one cluster did, step by step: who ran what, what they wrote, who waited, what was pending.

    begin(40, lanes)      the changes of the instruction before are recorded, then step 41 begins
    begin(41, lanes)      …

Nothing changes between two steps except asynchronous work, which belongs to the step before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster, Words
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.records import CopyRecord
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import EVERYONE
from tilescope.machine.stepping.tmem_log import TmemLog
from tilescope.machine.stepping.write_log import WriteLog
from tilescope.sync.address import Addresses
from tilescope.sync.bus import Handler
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import (
    AsyncStoreIssued,
    Atomic,
    BarrierComplete,
    CopyCompleted,
    CopyIssued,
    LocalStore,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    Store,
)
from tilescope.sync.footprint import CellNumbers
from tilescope.sync.mbarrier import Mbarrier

SHARED_UNIT_BYTES = 16  # of bulk and tensor copies
NEVER = 1 << 62  # the step at which work completes that is pending at the end
_ALL_LANES = 0  # the number of the set of all lanes
_WRITTEN_LATER = frozenset({"wgmma", "tcgen05"})  # families whose registers are written when their work completes


class Parked(NamedTuple):
    """Lanes that wait at an instruction, and for what."""

    pc: int
    lanes: LaneNumbers
    waits_for: str


class BarrierRow(NamedTuple):
    """An mbarrier from a step on; `state` is None once it is invalid."""

    step: int
    address: int
    state: Mbarrier | None
    phase: int


class WorkRow(NamedTuple):
    """Pending work of some lanes, after the steps from `first` to `end` - 1. Lanes whose part completes early end a row."""

    issued: int
    first: int
    end: int
    work: Work
    lanes: LaneNumbers
    copy: CopyIssued | None


class WrittenRegister(NamedTuple):
    """The bytes of a register of one lane, and the step that wrote them."""

    number: int
    step: int
    content: bytes


class _Pieces(NamedTuple):
    """Bytes that lanes have written in this step."""

    pc: int
    lanes: LaneNumbers
    starts: Addresses
    piece_bytes: int


class ClusterLog:
    """The steps of one cluster; `begin` and `settle` record, the other methods read."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.cluster: Cluster = schedule.cluster
        self.steps = array("q")  # by instruction executed: the number of the step in the run
        self.pcs = array("i")
        self.sets = array("i")  # numbers of lane sets
        self.lane_sets: list[LaneNumbers] = [self.cluster.shape.all_lanes]
        self.shared = WriteLog(self.cluster.shared)
        self.memory = WriteLog()
        self.local = WriteLog(self.cluster.local, has_snapshots=False)
        self.tmem = TmemLog(self.cluster)
        self.parked: list[tuple[int, tuple[Parked, ...]]] = [(0, ())]
        self.barriers: list[BarrierRow] = []
        self.works: list[WorkRow] = []
        self.barrier_steps: list[int] = []
        self.loads: list[tuple[int, CopyRecord]] = []  # tensor copies that wrote shared memory
        self._register_steps = array("q")
        self._register_numbers = array("i")
        self._register_sets = array("i")
        self._register_offsets = array("q")
        self._values = bytearray()
        self._set_numbers: dict[bytes, int] = {}
        self._latest_lanes: Lanes | None = None
        self._latest_set = _ALL_LANES
        self._targets = _targets_written_at_once(self.cluster)
        self._pc = -1  # of the step that has begun; -1: none
        self._written: tuple[Lanes, int] = (EVERYONE, _ALL_LANES)  # lanes whose registers it may write
        self._is_turn = False
        self._open_works: list[Work] = []
        self._open_rows: dict[int, WorkRow] = {}  # by id of the work
        self._issues: list[CopyIssued] = []
        self._shared_pieces: list[_Pieces] = []
        self._memory_pieces: list[_Pieces] = []
        self._local_pieces: list[_Pieces] = []
        self._are_barriers_changed = False
        self._known_barriers: dict[int, Mbarrier] = {}
        self._version = self.cluster.version
        self._mirror = self.cluster.shared.copy()

    @property
    def size_bytes(self) -> int:
        """Memory that the log takes."""
        tables = 16 * len(self.steps) + 24 * len(self._register_steps) + 200 * (len(self.works) + len(self.barriers))
        logs = (self.shared, self.memory, self.local, self.tmem)
        return len(self._values) + tables + sum(log.size_bytes for log in logs)

    def handlers(self) -> dict[type, Handler]:
        """What listens to the events of the cluster."""
        return {
            Store: self._store,
            Atomic: self._atomic,
            CopyIssued: self._issues.append,
            CopyCompleted: self._complete,
            MbarrierInit: self._change_barrier,
            MbarrierInval: self._change_barrier,
            MbarrierArrive: self._change_barrier,
            MbarrierExpect: self._change_barrier,
            BarrierComplete: self._complete_barrier,
            LocalStore: self._store_local,
            **self.tmem.handlers(),
        }

    def begin(self, step: int, pc: int, lanes: Lanes, *, written: Lanes | None = None, is_turn: bool = False) -> None:
        """A step begins: `lanes` execute an instruction. It may write registers of `written` lanes, if those are others."""
        number = self._number_set(lanes)
        self.steps.append(step)
        self.pcs.append(pc)
        self.sets.append(number)
        self._pc = pc
        self._is_turn = is_turn
        self._written = (lanes, number) if written is None else (written, self._number_set(written))

    def settle(self, step: int) -> None:
        """Record what the step that began last has changed."""
        cluster = self.cluster
        lanes, number = self._written
        if self._pc >= 0:
            for register in self._targets[self._pc]:
                self._keep_register(step, register, lanes, number)
        if cluster.works or self._open_works:
            self._compare_works(step)
        if self._shared_pieces or self._memory_pieces or cluster.version != self._version:
            self._keep_writes(step)
        self._issues.clear()
        for pieces in self._local_pieces:
            self.local.add(step, pieces.pc, pieces.lanes, pieces.starts, pieces.piece_bytes)
        self._local_pieces.clear()
        self.tmem.settle(step)
        if self._are_barriers_changed:
            self._keep_barriers(step)
        if self._is_turn:
            self._keep_parked(step)
        self._pc = -1

    def write_registers(self, pc: int) -> None:
        """Parts of warps have executed an instruction without the rest, outside a step; it may write registers of whole warps."""
        self._pc = pc
        self._is_turn = True
        self._written = (EVERYONE, _ALL_LANES)

    def end(self, step: int) -> None:
        """Nothing more follows: pending work stays pending."""
        self.settle(step)
        self._is_turn = True
        self._keep_parked(step)
        self.works.extend(self._open_rows.values())
        self._open_rows.clear()

    def count_until(self, step: int) -> int:
        """How many instructions the cluster had executed after a step."""
        return bisect_right(self.steps, step)

    def find_next(self, count: int) -> npt.NDArray[np.int64]:
        """By lane: its next instruction after the first `count` executed; -1 if there is none."""
        return self._latest_by_lane(np.arange(len(self.steps) - 1, count - 1, -1))

    def find_latest(self, count: int) -> npt.NDArray[np.int64]:
        """By lane: its latest instruction among the first `count` executed; -1 if there is none."""
        return self._latest_by_lane(np.arange(count))

    def _latest_by_lane(self, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """By lane: the pc of the last of some executions, in this order, in which it took part."""
        sets = np.array(self.sets, np.int32)[order]
        last = np.full(len(self.lane_sets), -1, np.int64)
        last[sets] = np.arange(len(order))
        latest_pcs = np.full(self.cluster.lane_count, -1, np.int64)
        for number in np.argsort(last).tolist():
            if last[number] >= 0:
                latest_pcs[self.lane_sets[number]] = self.pcs[int(order[last[number]])]
        return latest_pcs

    def parked_at(self, step: int) -> tuple[Parked, ...]:
        """Who waited after a step."""
        return self.parked[bisect_right(self.parked, step, key=lambda row: row[0]) - 1][1]

    def barriers_at(self, step: int) -> dict[int, BarrierRow]:
        """The mbarriers after a step, by shared address."""
        rows = self.barriers[: bisect_right(self.barriers, step, key=lambda row: row.step)]
        return {row.address: row for row in rows}

    def works_at(self, step: int) -> list[WorkRow]:
        """The work that was pending after a step, oldest first."""
        rows = [row for row in self.works if row.first <= step < row.end]
        return sorted(rows, key=lambda row: row.issued)

    def events(self) -> Iterator[tuple[int, str, int]]:
        """(step, what happened, instruction): work issued and completed, phases of mbarriers, barriers of blocks."""
        for row in self.works:
            if row.first == row.issued:
                yield row.issued, f"{row.work.kind} issued", row.work.pc
            if row.end < NEVER:
                yield row.end, f"{row.work.kind} completed", row.work.pc
        phases: dict[int, int] = {}
        for barrier in self.barriers:
            if barrier.phase > phases.get(barrier.address, 0):
                yield barrier.step, "phase completed", self._pc_at(barrier.step)
            phases[barrier.address] = barrier.phase
        for step in self.barrier_steps:
            yield step, "barrier completed", self._pc_at(step)

    def _pc_at(self, step: int) -> int:
        return self.pcs[max(self.count_until(step) - 1, 0)]

    def registers_of(self, lane: int, step: int) -> list[WrittenRegister]:
        """The registers that a lane has written up to a step."""
        count = bisect_right(self._register_steps, step)
        positions = np.full(len(self.lane_sets), -1, np.int64)
        for number, lanes in enumerate(self.lane_sets):
            place = int(np.searchsorted(lanes, lane))
            if place < len(lanes) and lanes[place] == lane:
                positions[number] = place
        sets = np.array(self._register_sets, np.int32)[:count]
        rows = np.flatnonzero(positions[sets] >= 0)
        last = np.full(len(self.cluster.registers), -1, np.int64)
        last[np.array(self._register_numbers, np.int32)[rows]] = rows
        written = []
        for register in np.flatnonzero(last >= 0).tolist():
            row = int(last[register])
            size_bytes = self.cluster.program.register_dtypes[register].itemsize
            first = self._register_offsets[row] + int(positions[sets[row]]) * size_bytes
            content = bytes(self._values[first : first + size_bytes])
            written.append(WrittenRegister(register, self._register_steps[row], content))
        return written

    def _number_set(self, lanes: Lanes) -> int:
        """The number of a set of lanes; equal sets have one number."""
        if lanes is self._latest_lanes:
            return self._latest_set
        if isinstance(lanes, slice):
            return _ALL_LANES
        key = lanes.tobytes()
        number = self._set_numbers.get(key)
        if number is None:
            number = self._set_numbers[key] = len(self.lane_sets)
            self.lane_sets.append(lanes.copy())
        self._latest_lanes = lanes
        self._latest_set = number
        return number

    def _keep_register(self, step: int, register: int, lanes: Lanes, number: int) -> None:
        values: Words = self.cluster.registers[register][lanes]
        self._register_steps.append(step)
        self._register_numbers.append(register)
        self._register_sets.append(number)
        self._register_offsets.append(len(self._values))
        self._values += values.tobytes()

    def _store(self, event: Store) -> None:
        pieces = _Pieces(event.pc, event.lanes, event.places, event.size_bytes)
        (self._shared_pieces if event.space == "shared" else self._memory_pieces).append(pieces)

    def _store_local(self, event: LocalStore) -> None:
        self._local_pieces.append(_Pieces(event.pc, event.lanes, event.places, event.size_bytes))

    def _atomic(self, event: Atomic) -> None:
        pieces = _Pieces(event.pc, event.written_lanes, event.written_places, event.written_bytes)
        (self._shared_pieces if event.space == "shared" else self._memory_pieces).append(pieces)

    def _complete(self, event: CopyCompleted) -> None:
        """The bytes of a copy, or of st.async, have been written to shared memory."""
        issue = event.issue
        if isinstance(issue, AsyncStoreIssued):
            self._shared_pieces.append(_Pieces(issue.pc, issue.lanes, issue.places, issue.size_bytes))
            return
        lane = np.array([issue.lane])
        self._shared_pieces += [_Pieces(issue.pc, lane, *run) for run in shared_runs(issue)]
        record = issue.record
        if record.coords is not None:
            self.loads.append((self.steps[-1], record))

    def _complete_barrier(self, _: BarrierComplete) -> None:
        self.barrier_steps.append(self.steps[-1])

    def _change_barrier(self, _: object) -> None:
        self._are_barriers_changed = True

    def _compare_works(self, step: int) -> None:
        """Record work that was issued or completed."""
        works = self.cluster.works
        counts = sum(len(work.lanes) for work in works)
        rows = self._open_rows
        if works == self._open_works and counts == sum(len(rows[id(work)].lanes) for work in works):
            return
        self._are_barriers_changed = True
        completed: dict[bytes, tuple[LaneNumbers, set[int]]] = {}
        for work in self._open_works:
            row = rows[id(work)]
            is_open = work in works
            if is_open and len(work.lanes) == len(row.lanes):
                continue
            del rows[id(work)]
            self.works.append(row._replace(end=step))
            registers = completed.setdefault(row.lanes.tobytes(), (row.lanes, set()))[1]
            registers |= work.registers
            if row.copy is not None and row.copy.memory is not None and row.copy.record.kind != "load":
                memory = row.copy.memory
                self._memory_pieces.append(_Pieces(work.pc, row.lanes[:1], memory.starts, memory.row_bytes))
            if is_open:
                rows[id(work)] = row._replace(first=step, lanes=work.lanes.copy())
        for work in works:
            if id(work) not in rows:
                rows[id(work)] = WorkRow(step, step, NEVER, work, work.lanes.copy(), self._take_issue(work))
        self._open_works = list(works)
        for lanes, numbers in completed.values():
            for register in sorted(numbers):
                self._keep_register(step, register, lanes, self._number_set(lanes))

    def _take_issue(self, work: Work) -> CopyIssued | None:
        """The copy that a piece of work performs; each copy was announced right before its work was queued."""
        for index, issue in enumerate(self._issues):
            if issue.pc == work.pc and issue.lane == int(work.lanes[0]):
                return self._issues.pop(index)
        return None

    def _keep_writes(self, step: int) -> None:
        cluster = self.cluster
        if cluster.version != self._version:
            self._version = cluster.version
            if not self._shared_pieces:
                self._keep_unannounced()
        for pieces in self._shared_pieces:
            self.shared.add(step, pieces.pc, pieces.lanes, pieces.starts, pieces.piece_bytes)
            places = pieces.starts[:, None] + np.arange(pieces.piece_bytes)
            self._mirror[places] = cluster.shared[places]
        self._shared_pieces.clear()
        for pieces in self._memory_pieces:
            self.memory.add(step, pieces.pc, pieces.lanes, pieces.starts, pieces.piece_bytes)
        self._memory_pieces.clear()

    def _keep_unannounced(self) -> None:
        """Bytes of shared memory that changed without an event, as the address that tcgen05.alloc writes."""
        if np.array_equal(self._mirror, self.cluster.shared):
            return
        changed = np.flatnonzero(self._mirror != self.cluster.shared)
        lanes = self._written[0]
        first = self.cluster.lanes(lanes)[:1]
        self._shared_pieces.append(_Pieces(self.pcs[-1], first, changed, 1))

    def _keep_barriers(self, step: int) -> None:
        self._are_barriers_changed = False
        now = self.cluster.mbarriers
        for address, state in now.items():
            if self._known_barriers.get(address) is not state:
                phase = self.cluster.running_phases[address].number
                self.barriers.append(BarrierRow(step, address, state, phase))
        for address in self._known_barriers.keys() - now.keys():
            self.barriers.append(BarrierRow(step, address, None, 0))
        self._known_barriers = dict(now)

    def _keep_parked(self, step: int) -> None:
        schedule = self.schedule
        rows = [Parked(pc, lanes, "the rest of its warp") for pc, lanes in schedule.gathering.items()]
        for (_, number), barrier in schedule.barriers.named.items():
            rows += [Parked(waiters.pc - 1, waiters.lanes, f"barrier {number}") for waiters in barrier.waiting]
        rows += [
            Parked(waiters.pc - 1, waiters.lanes, "the barrier of the cluster")
            for waiters in schedule.barriers.cluster_waiting
        ]
        rows += [
            Parked(spinning.front.pc, spinning.front.lanes, "a change of what it polls")
            for spinning in schedule.spinning
        ]
        latest = self.parked[-1][1]
        if len(latest) == len(rows) and all(
            parked.lanes is row.lanes and parked.pc == row.pc for parked, row in zip(latest, rows, strict=True)
        ):
            return
        self.parked.append((step, tuple(rows)))


class SharedRun(NamedTuple):
    """Pieces of shared memory of equal size."""

    starts: CellNumbers
    piece_bytes: int


def shared_runs(issue: CopyIssued) -> list[SharedRun]:
    """The bytes of shared memory that a copy reads or writes, as offsets in the cluster's array."""
    if issue.shared is None:
        return []
    units = issue.shared.cells(SHARED_UNIT_BYTES)
    if isinstance(units, slice):
        first = units.start * SHARED_UNIT_BYTES
        return [SharedRun(np.array([first]), (units.stop - units.start) * SHARED_UNIT_BYTES)]
    return [SharedRun(units * SHARED_UNIT_BYTES, SHARED_UNIT_BYTES)]


def _targets_written_at_once(cluster: Cluster) -> list[tuple[int, ...]]:
    """By instruction: the registers that it writes itself, not the asynchronous work that it issues."""
    targets = []
    for pc, instruction in enumerate(cluster.program.instructions):
        is_late = instruction is not None and instruction.name in _WRITTEN_LATER
        targets.append(() if is_late else cluster.program.targets[pc])
    return targets
