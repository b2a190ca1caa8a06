"""The clusters of a grid in lockstep: batches of blocks, each as large as memory allows.

    first cluster     leads the first batch, where blocks follow a leader: recorder and detector listen to it
                      else alone: the recorder listens, and mistakes that every block makes are found here
    the others        in batches, as long as nothing that they do depends on their order
    many of them      in shares, one for each core: forks of this process run all but the first, and send back what blocks did

If something does, or if anything is to be reported, all batches are undone. A first cluster that was the leader then
runs separately, and the others are tried again; if that fails, they run one after another.

Blocks that follow a leader may do different things: those at the edges of a matrix store fewer rows. Then all are undone, too, and
tried again in batches of blocks that do the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.decoding.access_decoder import cell_bytes, decode_accesses
from tilescope.machine.decoding.independent_blocks import (
    are_blocks_independent,
    changes_global_words,
    do_atomics_commute,
    may_follow_a_leader,
)
from tilescope.machine.execution.batch import Batch, BatchSchedule
from tilescope.machine.execution.fault import KernelFaultError
from tilescope.machine.execution.forked_call import ForkedCall, count_processes
from tilescope.machine.execution.leader import Leader, LeaderSchedule
from tilescope.machine.execution.records import RECORDS_KEPT, CopyRecord, PhaseRecord
from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import ChangedBytes
from tilescope.machine.observers.array_ends import ArrayEnds
from tilescope.machine.observers.costs import Costs
from tilescope.machine.observers.tile_use import TileUse
from tilescope.machine.proof.recorder import Recorder
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.context import LaunchDetector
from tilescope.sync.detector.detector import RECORDED_COPIES, ClusterDetector
from tilescope.sync.detector.leader_order import LeaderOrder
from tilescope.sync.detector.lockstep_order import LockstepMemory, LockstepOrder, MemoryTouched
from tilescope.sync.shadow.global_cells import GlobalCells
from tilescope.sync.shadow.lockstep_cells import BlocksDifferError, OrderMattersError

Kinds: TypeAlias = dict[BlockIndex, tuple[tuple[str, bytes], ...]]
"""By block: in what it differed from others of its batch."""

CLUSTER_START_STEPS = 100  # what starting a cluster counts for: making its registers takes about as long
_MOST_LANES = 1 << 14  # of a batch: beyond, more blocks take as much longer
_MOST_BYTES = 1 << 27  # of the registers and memories of a batch
_MOST_SHARED_BYTES = 1 << 29  # of those of all processes
_MOST_UNDO_BYTES = 1 << 28  # of arrays that are written
_MOST_THREADS = 1 << 30
_LEAST_BLOCKS = 3  # for which a batch is worth while …
_LEAST_BLOCKS_LED_BY_FIRST = 4  # … and of which the first one leads: if that fails, it was for nothing
_LEAST_SHARED_WORK = 1 << 20  # warp instructions of blocks that are worth several processes …
_LEAST_SHARED_STEPS = 1000  # … and of one block: what a short one did to memory takes longer to send than to do
_SHARE_BATCHES = 64  # of a share: a grid may have more blocks than can be listed
_MOST_TRIES = 4  # each finds blocks that do something else than their leader …
_MOST_KINDS = 16  # … until there are more kinds of blocks …
_LEAST_BLOCKS_OF_KIND = 3  # … or fewer blocks of a kind in the mean
_MOST_SORTED = 1 << 14  # blocks that are sorted by their kind


def may_run_in_lockstep(launch: Launch) -> bool:
    """Whether the clusters that have not started may run in lockstep, as far as one can tell beforehand."""
    detector = launch.detector
    has_findings = detector is not None and bool(detector.conflicts.found)
    return (
        launch.random is None
        and not launch.late_pcs
        and launch.store_log is None
        and launch.cluster_blocks == 1
        and not has_findings
        and launch.grid[0] * launch.grid[1] * launch.grid[2] * launch.block_lanes < _MOST_THREADS
        and not _has_misfits(launch)
        and (launch.program.fact(are_blocks_independent) or _may_be_led(launch))
    )


def _may_be_led(launch: Launch) -> bool:
    program = launch.program
    return program.may_be_led and not launch.followers_differ and program.fact(may_follow_a_leader)


def _has_misfits(launch: Launch) -> bool:
    """Whether a tile does not match the swizzle that reads it; only the first of the grid is reported."""
    return launch.costs is not None and bool(launch.costs.operands.mismatches or launch.costs.tiles.misfits)


class LockstepRun(NamedTuple):
    """What blocks did that ran to their ends; counts by instruction, as differences."""

    blocks: int
    thread_counts: npt.NDArray[np.int64]
    warp_counts: npt.NDArray[np.int64]


def run_led_by_first(launch: Launch) -> LockstepRun | None:
    """Run all clusters, if the first one can lead them. None if nothing was run and the first must run separately.

    A try that fails takes time, so that none is made in a run whose time is limited.
    """
    if launch.max_seconds is not None or launch.program.fact(are_blocks_independent):
        return None
    return _run_at_least(_LEAST_BLOCKS_LED_BY_FIRST, launch, has_first=True)


def run_in_lockstep(launch: Launch) -> LockstepRun | None:
    """Run all clusters after the first one; None: nothing has happened, and they must run one by one."""
    return _run_at_least(_LEAST_BLOCKS, launch, has_first=False)


def _run_at_least(blocks: int, launch: Launch, *, has_first: bool) -> LockstepRun | None:
    """Run the clusters that have not started, if there are as many."""
    first = list(itertools.islice(launch.to_start, blocks))
    launch.to_start = itertools.chain(first, launch.to_start)
    if len(first) < blocks:
        return None
    kinds: Kinds = {}
    for _ in range(_MOST_TRIES):
        lockstep = _Lockstep(launch, kinds, has_first=has_first)
        done = lockstep.run()
        kinds = lockstep.kinds
        if done is not None or not lockstep.may_sort_blocks:
            break
    launch.followers_differ = done is None and len({kinds[start] for start in kinds.keys() - first[:1]}) > 1
    return done


class _LedByFirst(NamedTuple):
    """What listened to the first cluster of a launch, which led others."""

    recorder: Recorder | None
    detector: LaunchDetector | None
    costs: Costs | None


class _ShareDone(NamedTuple):
    """What the blocks of a share did, for the process that has not run them."""

    steps: int
    budget: int  # of steps that they took
    counts: npt.NDArray[np.int64]
    bulk_copies: int
    inexact: set[str]
    copies: list[CopyRecord]
    phases: list[PhaseRecord]
    costs: Costs | None
    touched: MemoryTouched
    changes: list[ChangedBytes]


class _Lockstep:
    """All batches of a launch: they come to their end together, or are undone together."""

    def __init__(self, launch: Launch, kinds: Kinds, *, has_first: bool) -> None:
        self._launch = launch
        self._old_kinds = kinds  # which earlier tries have found
        self.kinds = dict(kinds)
        self._blocks_before = 0 if has_first else 1
        self._first: _LedByFirst | None = None
        self._started: list[BlockIndex] = []
        self._listed: list[BlockIndex] = []  # in the order of the grid, where they are sorted by kind
        self._copies = 0  # bulk copies that were issued
        self._counts = np.zeros((2, len(launch.program.steps) + 1), np.int64)
        detector = launch.detector
        if detector is None:
            cells = GlobalCells(launch.memory, cell_bytes(launch.program, "global"))
        else:
            cells = detector.memory
        self._memory = LockstepMemory(cells, launch.block_lanes, self._blocks_before * launch.block_lanes)
        self._costs = None if launch.costs is None else Costs()
        array_ends = launch.array_ends
        self._array_ends = None if array_ends is None else ArrayEnds(array_ends.watched, dict(array_ends.found))

    def run(self) -> LockstepRun | None:
        """Run batch after batch. None: they were undone."""
        launch = self._launch
        steps, steps_left = launch.steps, launch.steps_left
        atomic_order = None if launch.atomic_order is None else launch.atomic_order.copy()
        inexact = set(launch.inexact)
        copies, phases, maps = len(launch.copies), len(launch.phases), len(launch.maps)
        launch.memory.keep_for_undo(_MOST_UNDO_BYTES)
        try:
            for starts in self._rounds():
                self._run_round(starts)
            if self._has_new_kinds:
                raise OrderMattersError("blocks of a batch differ")
            self._memory.require_unwritten_sources()
            if self._old_kinds:
                self._put_in_order(copies, phases)
        except (OrderMattersError, KernelFaultError):
            launch.memory.undo()
            launch.steps, launch.steps_left, launch.is_out_of_time = steps, steps_left, False
            launch.atomic_order = atomic_order
            del launch.copies[copies:], launch.phases[phases:]
            launch.forget_maps(maps)
            launch.inexact.clear()
            launch.inexact.update(inexact)
            launch.to_start = itertools.chain(self._listed or self._started, launch.to_start)
            return None
        launch.memory.keep_changes()
        self._finish()
        return LockstepRun(len(self._started), *self._counts)

    def _rounds(self) -> Iterator[list[BlockIndex]]:
        """Blocks that processes share among themselves; a first cluster that leads has led its batch before."""
        if self._old_kinds:
            yield from self._sorted_by_kind()
            return
        if not self._blocks_before:
            yield list(itertools.islice(self._launch.to_start, self._batch_blocks))
        most = self._processes * self._batch_blocks * _SHARE_BATCHES
        while starts := list(itertools.islice(self._launch.to_start, most)):
            yield starts

    def _sorted_by_kind(self) -> Iterator[list[BlockIndex]]:
        """The blocks of each kind; the first batch of the first kind alone, if a first cluster leads it."""
        self._listed = list(self._launch.to_start)
        by_kind: dict[object, list[BlockIndex]] = {}
        for start in self._listed:
            by_kind.setdefault(self._old_kinds.get(start), []).append(start)
        for number, starts in enumerate(by_kind.values()):
            led = self._batch_blocks if number == 0 and not self._blocks_before else 0
            yield from (part for part in (starts[:led], starts[led:]) if part)

    @property
    def may_sort_blocks(self) -> bool:
        """Whether another try may come to its end, and is worth while, with its blocks in batches of one kind."""
        is_worth_while = _LEAST_BLOCKS_OF_KIND * len(set(self.kinds.values())) <= prod(self._launch.grid)
        return self._has_new_kinds and is_worth_while and not self._has_too_many_kinds

    @property
    def _has_too_many_kinds(self) -> bool:
        """Whether there are too many to sort blocks by them. Those that leave a loop one after another differ in its register each time."""
        kinds = set(self.kinds.values())
        is_loop = any(len({where for where, _ in kind}) < len(kind) for kind in kinds)
        return is_loop or len(kinds) > _MOST_KINDS or prod(self._launch.grid) > _MOST_SORTED

    @property
    def _has_new_kinds(self) -> bool:
        return self.kinds != self._old_kinds

    def _put_in_order(self, copies: int, phases: int) -> None:
        """Put records into the order of blocks, in which they are kept."""
        launch = self._launch
        if max(len(launch.copies), len(launch.phases)) >= RECORDS_KEPT:
            raise OrderMattersError("not all records are kept")
        order = {start: number for number, start in enumerate(self._listed)}
        launch.copies[copies:] = sorted(launch.copies[copies:], key=lambda record: order[record.block])
        launch.phases[phases:] = sorted(launch.phases[phases:], key=lambda record: order[record.block])

    def _run_round(self, starts: list[BlockIndex]) -> None:
        """Run a share of the blocks here, and meanwhile the others in forks, if that is worth while."""
        before = len(self._started)
        self._started += starts
        launch = self._launch
        count = min(self._processes, len(starts) // _LEAST_BLOCKS)
        blocks_before = self._blocks_before + before
        block_steps = launch.steps // blocks_before if blocks_before else 0
        work = block_steps * (launch.block_lanes // WARP_LANES) * len(starts)
        if count < 2 or block_steps < _LEAST_SHARED_STEPS or work < _LEAST_SHARED_WORK or not blocks_before:
            self._run_batches(starts, before)
            return
        edges = [len(starts) * share // count for share in range(count + 1)]
        shares = [(first, starts[first:end]) for first, end in itertools.pairwise(edges)]
        forks = [ForkedCall(partial(self._run_share, share, before + first)) for first, share in shares[1:]]
        try:
            self._run_batches(shares[0][1], before)
            for (first, share), fork in zip(shares[1:], forks, strict=True):
                share_result = fork.result()
                if share_result is None:
                    self._run_batches(share, before + first)
                else:
                    self._join(share_result)
        finally:
            for fork in forks:
                fork.end()

    def _run_share(self, starts: list[BlockIndex], before: int) -> _ShareDone | None:
        """Run blocks in a fork. None: they have met something that this process must see itself."""
        launch = self._launch
        steps, steps_left = launch.steps, launch.steps_left
        copies, phases, maps, edits = len(launch.copies), len(launch.phases), len(launch.maps), len(launch.cut_edits)
        self._counts[:] = 0
        self._copies = 0
        self._costs = None if launch.costs is None else Costs()
        try:
            self._run_batches(starts, before)
        except (OrderMattersError, KernelFaultError):
            return None
        if len(launch.maps) > maps or len(launch.cut_edits) > edits or self._has_new_kinds:
            return None
        return _ShareDone(
            steps=launch.steps - steps,
            budget=steps_left - launch.steps_left,
            counts=self._counts,
            bulk_copies=self._copies,
            inexact=launch.inexact,
            copies=launch.copies[copies:],
            phases=launch.phases[phases:],
            costs=self._costs,
            touched=self._memory.list_touched((self._blocks_before + before) * launch.block_lanes),
            changes=launch.memory.list_changes(),
        )

    def _join(self, done: _ShareDone) -> None:
        """Add what the blocks of a share did that a fork has run."""
        launch = self._launch
        self._memory.join(done.touched)
        launch.memory.apply_changes(done.changes)
        launch.steps += done.steps
        launch.steps_left -= done.budget
        if launch.steps_left <= 0:
            raise OrderMattersError("the budget of steps is spent")
        self._counts += done.counts
        self._copies += done.bulk_copies
        launch.inexact |= done.inexact
        launch.copies += done.copies[: RECORDS_KEPT - len(launch.copies)]
        launch.phases += done.phases[: RECORDS_KEPT - len(launch.phases)]
        if self._costs is not None and done.costs is not None:
            self._costs.add(done.costs)

    @cached_property
    def _processes(self) -> int:
        """How many may work at once: one where atomics have an order, or where time is limited and counted here."""
        launch = self._launch
        is_ordered = launch.atomic_order is not None or launch.program.fact(changes_global_words)
        return 1 if is_ordered or launch.max_seconds is not None else count_processes()

    @cached_property
    def _batch_blocks(self) -> int:
        """Blocks of a batch: as many as fit in memory."""
        launch = self._launch
        program = launch.program
        registers = [dtype.itemsize for dtype in program.register_dtypes]
        block_bytes = launch.block_lanes * (sum(registers) + program.local_bytes) + launch.shared_stride
        most_bytes = min(_MOST_BYTES, _MOST_SHARED_BYTES // self._processes)
        return max(1, min(_MOST_LANES // launch.block_lanes, most_bytes // max(block_bytes, 1)))

    def _run_batches(self, starts: list[BlockIndex], before: int) -> None:
        """Run blocks, batch by batch; `before` is how many have started before them in lockstep."""
        for first in range(0, len(starts), self._batch_blocks):
            self._run_batch(starts[first : first + self._batch_blocks], before + first)

    def _run_batch(self, starts: list[BlockIndex], before: int) -> None:
        launch = self._launch
        launch.steps_left -= CLUSTER_START_STEPS * len(starts)
        batch = Batch(launch, starts)
        first_thread = (self._blocks_before + before) * launch.block_lanes
        if launch.program.fact(are_blocks_independent):
            self._run_apart(batch, first_thread)
        else:
            self._run_led(batch, first_thread)
        ends = launch.array_ends
        if ends is not None and self._array_ends is not None and len(self._array_ends.found) > len(ends.found):
            raise OrderMattersError("a read that leaves its array")

    def _run_apart(self, batch: Batch, first_thread: int) -> None:
        """Run blocks that may take different paths."""
        facts = None if self._launch.detector is None else self._launch.detector.program
        commute = self._launch.program.fact(do_atomics_commute)
        order = LockstepOrder(batch.shape, self._memory, first_thread, facts, do_atomics_commute=commute)
        self._observe(batch, order)
        schedule = BatchSchedule(batch)
        schedule.run()
        self._counts[0] += schedule.thread_counts
        self._counts[1] += schedule.warp_counts

    def _run_led(self, batch: Batch, first_thread: int) -> None:
        """Run blocks that all do what the first of them does."""
        launch = self._launch
        is_first = first_thread == 0
        leader = Leader(batch)
        detector = None if launch.detector is None else LaunchDetector(launch.detector.program, launch.memory)
        facts = None if detector is None else detector.program
        order = LeaderOrder(batch.shape, self._memory, first_thread, facts, leader.bus, is_first=is_first)
        self._observe(batch, order)
        recorder = self._record(leader) if is_first else None
        costs = self._observe_leader(leader, order, detector)
        if is_first:
            self._first = _LedByFirst(recorder, detector, costs)
        copies, phases = len(launch.copies), len(launch.phases)
        schedule = LeaderSchedule(leader, detector=detector)
        try:
            with _steps_of_all(launch, batch.blocks):
                schedule.run()
        except BlocksDifferError as differ:
            self._note_kinds(batch.starts, differ)
            return
        if detector is not None:
            self._require_nothing_new(detector)
        self._memory.add_copies(leader.touches, first_thread)
        self._count_followers(leader, schedule, copies, phases)
        if costs is not None:
            self._add_operands(costs, batch.blocks)

    def _note_kinds(self, starts: Sequence[BlockIndex], differ: BlocksDifferError) -> None:
        """Note what the blocks of a batch differ in; the other batches run on, so that one try finds all that do."""
        for start, label in zip(starts, differ.labels, strict=True):
            self.kinds[start] = (*self.kinds.get(start, ()), label)
        if self._has_too_many_kinds:
            raise differ

    def _record(self, leader: Leader) -> Recorder | None:
        """Let a recorder listen to the first cluster, if the launch has one."""
        if self._launch.recorder is None:
            return None
        recorder = Recorder()
        leader.bus.subscribe(recorder.handlers(leader.shape))
        leader.accesses = leader.program.fact(decode_accesses)
        return recorder

    def _add_operands(self, costs: Costs, blocks: int) -> None:
        """Add the operands that all blocks have read as their leader; refuse tiles with a finding."""
        known_costs = self._known_costs()
        assert self._costs is not None
        costs.finish()
        is_new = not costs.tiles.written.items() <= known_costs.tiles.written.items()
        if costs.operands.mismatches or costs.tiles.misfits or is_new:
            raise OrderMattersError("a tile to report")
        self._costs.operands.add_reads(costs.operands, blocks)

    def _known_costs(self) -> Costs:
        """The costs of the first cluster."""
        costs = self._launch.costs if self._first is None else self._first.costs
        assert costs is not None
        return costs

    def _observe_leader(self, leader: Leader, order: LeaderOrder, detector: LaunchDetector | None) -> Costs | None:
        """Let the detector, and those who watch tiles, listen to a leader."""
        bus = leader.bus
        bus.subscribe(order.leader_handlers())
        if self._array_ends is not None:
            bus.subscribe(self._array_ends.handlers(leader.shape))
        if detector is None:
            return None
        judge = ClusterDetector(leader.shape, detector)
        bus.answer_by(judge)
        bus.subscribe(judge.handlers())
        leader.accesses = detector.program.accesses
        if self._costs is None:
            return None
        costs = Costs(has_tiles=True)
        bus.subscribe(TileUse(costs, leader.shape, self._launch.program).handlers())
        return costs

    def _require_nothing_new(self, detector: LaunchDetector) -> None:
        """Refuse what the detector of a leader has to report, or has seen for the first time."""
        known_detector = self._launch.detector if self._first is None else self._first.detector
        assert known_detector is not None
        polls = known_detector.polls
        is_new = any(pc not in polls or polls[pc].has_passed < poll.has_passed for pc, poll in detector.polls.items())
        has_uses = bool(detector.mbarrier_uses) and not known_detector.mbarrier_uses
        if detector.conflicts.found or detector.spilled or is_new or has_uses or detector.polling_pcs:
            raise OrderMattersError("a leader has something to report")

    def _count_followers(self, leader: Leader, schedule: LeaderSchedule, copies: int, phases: int) -> None:
        """Count for all blocks what the leader did, and keep their records in the order of blocks."""
        launch = self._launch
        blocks = leader.batch.blocks
        self._counts[0] += schedule.thread_counts * blocks
        self._counts[1] += schedule.warp_counts * blocks
        own_phases = launch.phases[phases:]
        if launch.detector is not None:
            self._copies += (len(launch.copies) - copies) * blocks
        for start, records in zip(leader.batch.starts[1:], leader.follower_copies[1:], strict=True):
            launch.copies += records[: RECORDS_KEPT - len(launch.copies)]
            launch.phases += [phase._replace(block=start) for phase in own_phases][: RECORDS_KEPT - len(launch.phases)]

    def _observe(self, batch: Batch, order: LockstepOrder) -> None:
        """Let those listen who count, and the one who sees to it that order does not matter."""
        launch = self._launch
        bus = batch.bus
        if launch.atomic_order is not None:
            bus.subscribe(launch.atomic_order.handlers(batch.shape, batch.starts))
        if self._array_ends is not None:
            bus.subscribe(self._array_ends.handlers(batch.shape))
        if self._costs is not None:
            bus.subscribe(self._costs.handlers(batch.shape, batch.starts))
        bus.answer_by(order)
        bus.subscribe(order.handlers())
        batch.accesses = launch.program.fact(decode_accesses)

    def _finish(self) -> None:
        """What the clusters leave to those who look at the run."""
        launch = self._launch
        if self._first is not None:
            self._keep_first(self._first)
        if launch.costs is not None and self._costs is not None:
            launch.costs.add(self._costs)
        if launch.detector is not None:
            self._memory.finish()
            launch.detector.copies_issued = min(launch.detector.copies_issued + self._copies, RECORDED_COPIES)
            launch.detector.clusters += len(self._started)
            launch.detector.first_blocks += self._started

    def _keep_first(self, first: _LedByFirst) -> None:
        """Keep the observations of the first cluster as if it had run separately; costs of all blocks are counted elsewhere."""
        launch = self._launch
        if first.recorder is not None:
            launch.recorder = first.recorder
        if launch.detector is not None and first.detector is not None:
            launch.detector.polls = first.detector.polls
            launch.detector.mbarrier_uses = first.detector.mbarrier_uses
        if launch.costs is not None and first.costs is not None:
            first.costs.operands.reads = {}
            launch.costs.has_tiles = first.costs.has_tiles
            launch.costs.operands = first.costs.operands
            launch.costs.tiles = first.costs.tiles


@contextmanager
def _steps_of_all(launch: Launch, blocks: int) -> Iterator[None]:
    """Let a leader take the steps of all blocks: it has its part of those that are left, and what it takes counts for each of them."""
    steps, steps_left = launch.steps, launch.steps_left
    own_steps = launch.steps_left = steps_left // blocks
    try:
        yield
    except BlocksDifferError:
        launch.steps, launch.steps_left = steps, steps_left
        raise
    if launch.steps_left <= 0:
        raise OrderMattersError("the budget of steps is spent")
    launch.steps = steps + (launch.steps - steps) * blocks
    launch.steps_left = steps_left - (own_steps - launch.steps_left) * blocks
