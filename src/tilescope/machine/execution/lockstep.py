"""The clusters of a grid that follow the first one, in lockstep: batches of blocks, each as large as memory allows.

    first cluster     alone: the recorder listens, and mistakes that every block makes are found here
    the others        in batches, as long as nothing that they do depends on their order

If something does, or if anything is to be reported, all batches are undone, and the clusters run one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.decoding.access_decoder import cell_bytes, decode_accesses
from tilescope.machine.decoding.independent_blocks import are_blocks_independent
from tilescope.machine.execution.batch import Batch, BatchSchedule
from tilescope.machine.execution.fault import KernelFaultError
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.array_ends import ArrayEnds
from tilescope.machine.observers.costs import Costs
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.lockstep_order import LockstepMemory, LockstepOrder
from tilescope.sync.shadow.global_cells import GlobalCells
from tilescope.sync.shadow.lockstep_cells import OrderMattersError

CLUSTER_START_STEPS = 100  # what starting a cluster counts for: making its registers takes about as long
_MOST_LANES = 1 << 14  # of a batch: beyond, more blocks take as much longer
_MOST_BYTES = 1 << 27  # of the registers and memories of a batch
_MOST_UNDO_BYTES = 1 << 28  # of arrays that are written
_MOST_THREADS = 1 << 30
_LEAST_BLOCKS = 3  # for which a batch is worth while


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
        and launch.program.fact(are_blocks_independent)
    )


class LockstepRun(NamedTuple):
    """What blocks did that ran to their ends; counts by instruction, as differences."""

    blocks: int
    thread_counts: npt.NDArray[np.int64]
    warp_counts: npt.NDArray[np.int64]


def run_in_lockstep(launch: Launch) -> LockstepRun | None:
    """Run all clusters after the first one; None: nothing has happened, and they must run one by one."""
    first = list(itertools.islice(launch.to_start, _LEAST_BLOCKS))
    launch.to_start = itertools.chain(first, launch.to_start)
    if len(first) < _LEAST_BLOCKS:
        return None
    return _Lockstep(launch).run()


class _Lockstep:
    """All batches of a launch: they come to their end together, or are undone together."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._started: list[BlockIndex] = []
        self._counts = np.zeros((2, len(launch.program.steps) + 1), np.int64)
        detector = launch.detector
        width = cell_bytes(launch.program, "global")
        cells = GlobalCells(launch.memory, width) if detector is None else detector.memory
        self._memory = LockstepMemory(cells, launch.block_lanes, launch.block_lanes)
        self._costs = None if launch.costs is None else Costs()
        known = launch.array_ends
        self._array_ends = None if known is None else ArrayEnds(known.reads, known.has_operands, dict(known.found))

    def run(self) -> LockstepRun | None:
        """Run batch after batch. None: they were undone."""
        launch = self._launch
        steps, steps_left = launch.steps, launch.steps_left
        float_adds = None if launch.float_adds is None else launch.float_adds.copied()
        inexact = set(launch.inexact)
        launch.memory.keep_for_undo(_MOST_UNDO_BYTES)
        try:
            for starts in self._batches():
                self._run_batch(starts)
        except (OrderMattersError, KernelFaultError):
            launch.memory.undo()
            launch.steps, launch.steps_left, launch.is_out_of_time = steps, steps_left, False
            launch.float_adds = float_adds
            launch.inexact.clear()
            launch.inexact.update(inexact)
            launch.to_start = itertools.chain(self._started, launch.to_start)
            return None
        launch.memory.keep_changes()
        self._finish()
        return LockstepRun(len(self._started), *self._counts)

    def _batches(self) -> Iterator[list[BlockIndex]]:
        size = self._batch_blocks()
        while starts := list(itertools.islice(self._launch.to_start, size)):
            self._started += starts
            yield starts

    def _batch_blocks(self) -> int:
        """Blocks of a batch: as many as fit in memory."""
        launch = self._launch
        program = launch.program
        registers = [dtype.itemsize for dtype in program.register_dtypes]
        block_bytes = launch.block_lanes * (sum(registers) + program.local_bytes) + launch.shared_stride
        return max(1, min(_MOST_LANES // launch.block_lanes, _MOST_BYTES // max(block_bytes, 1)))

    def _run_batch(self, starts: list[BlockIndex]) -> None:
        launch = self._launch
        launch.steps_left -= CLUSTER_START_STEPS * len(starts)
        batch = Batch(launch, starts)
        self._observe(batch, len(self._started) - len(starts))
        schedule = BatchSchedule(batch)
        schedule.run()
        self._counts[0] += schedule.thread_counts
        self._counts[1] += schedule.warp_counts
        ends = launch.array_ends
        if ends is not None and self._array_ends is not None and len(self._array_ends.found) > len(ends.found):
            raise OrderMattersError("a read that leaves its array")

    def _observe(self, batch: Batch, place: int) -> None:
        """Let those listen who count, and the one who sees to it that order does not matter."""
        launch = self._launch
        bus = batch.bus
        if launch.float_adds is not None:
            bus.subscribe(launch.float_adds.handlers(batch.shape, batch.starts))
        if self._array_ends is not None:
            bus.subscribe(self._array_ends.handlers(batch.shape))
        if self._costs is not None:
            bus.subscribe(self._costs.handlers(batch.shape, batch.starts))
        facts = None if launch.detector is None else launch.detector.program
        first_thread = (1 + place) * launch.block_lanes
        order = LockstepOrder(batch.shape, self._memory, first_thread, facts)
        bus.answer_by(order)
        bus.subscribe(order.handlers())
        batch.accesses = launch.program.fact(decode_accesses)

    def _finish(self) -> None:
        """What the clusters leave to those who look at the run."""
        launch = self._launch
        if launch.costs is not None and self._costs is not None:
            launch.costs.add(self._costs)
        if launch.detector is not None:
            self._memory.finish()
            launch.detector.clusters += len(self._started)
            launch.detector.first_blocks += self._started
