"""All clusters of a grid, one after another; clusters that wait for each other through global memory alternate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.control_flow import ControlFlow
from tilescope.machine.execution.fault import KernelFaultError
from tilescope.machine.execution.lockstep import (
    CLUSTER_START_STEPS,
    LockstepRun,
    may_run_in_lockstep,
    run_in_lockstep,
    run_led_by_first,
)
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.observe import observe
from tilescope.machine.observers.smem_watch import SmemWatch
from tilescope.machine.report.run import Outcome
from tilescope.machine.schedule import Schedule
from tilescope.sync.detector.race import Remedy

BlockIndex = tuple[int, int, int]
IDLE_CLUSTERS = 32  # that compute at once, turn by turn; beyond them no new one is started


@dataclass(slots=True)
class GridRun:
    """The result of a grid: why it stopped, and where each thread was then."""

    outcome: Outcome = "finished"
    fault: KernelFaultError | None = None
    waiting: list[Schedule] = field(default_factory=list)  # clusters that were under way when it stopped
    remedy: Remedy | None = None  # what was tried, and lets it finish
    is_remedy_tried: bool = False  # changes were tried that would let it finish
    is_remedy_untried: bool = False  # not everything was tried: the trials had no steps left
    after_polls: GridRun | None = None  # a second run in which polls pass at once, if it did not finish
    unstarted_blocks: int = 0  # that found no room, since resident blocks wait for each other
    finished_blocks: int = 0
    thread_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    warp_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def cluster_starts(launch: Launch, blocks: Sequence[BlockIndex] | None) -> Iterator[BlockIndex]:
    """The first block of every cluster that runs, x fastest; with a seed in another order.

    A grid may have 2^31 blocks: none of them is listed before its turn comes.
    """
    counts = [extent // step for extent, step in zip(launch.grid, launch.cluster, strict=True)]
    if blocks is None:
        numbers: Sequence[int] = range(prod(counts))
    else:
        numbers = list(dict.fromkeys(_cluster_number(index, launch.cluster, counts) for index in blocks))
    for position in _order(launch, len(numbers)):
        number = numbers[position]
        place = (number % counts[0], number // counts[0] % counts[1], number // (counts[0] * counts[1]))
        x, y, z = (coord * step for coord, step in zip(place, launch.cluster, strict=True))
        yield x, y, z


def _cluster_number(index: BlockIndex, cluster: BlockIndex, counts: Sequence[int]) -> int:
    x, y, z = (coord // step for coord, step in zip(index, cluster, strict=True))
    return x + counts[0] * (y + counts[1] * z)


def _order(launch: Launch, count: int) -> Iterator[int]:
    """0 to count - 1, or with a seed the same numbers in steps that share no divisor with their count.

    A grid that does not fit on the card starts in order with every seed, since blocks may wait for earlier blocks.
    """
    if launch.random is None or count < 2 or launch.residency is not None:
        yield from range(count)
        return
    first = launch.random.randrange(count)
    step = launch.random.randrange(1, count)
    while gcd(step, count) != 1:
        step = launch.random.randrange(1, count)
    for turn in range(count):
        yield (first + turn * step) % count


class MakesSchedules(Protocol):
    """A recorder of steps: it makes the schedules of the clusters that it records."""

    def schedule(self, cluster: Cluster) -> Schedule:
        """The schedule of a cluster that begins."""


def run_grid(
    launch: Launch,
    starts: Iterable[BlockIndex],
    watch: SmemWatch | None = None,
    recorder: MakesSchedules | None = None,
) -> GridRun:
    """Run the clusters. A cluster that waits for others is suspended, and resumes after memory has changed.

    `watch` looks at the shared memory of one block meanwhile. With a `recorder` all clusters run one by one, none in lockstep.
    """
    result = GridRun()
    size = len(launch.program.steps) + 1
    result.thread_counts = np.zeros(size, np.int64)
    result.warp_counts = np.zeros(size, np.int64)
    launch.to_start = iter(starts)
    residency = launch.residency
    room = None if residency is None else residency.blocks // launch.cluster_blocks
    waiting = result.waiting
    may_join = watch is None and recorder is None and launch.cluster_blocks < prod(launch.grid)
    _add(result, run_led_by_first(launch) if may_join and may_run_in_lockstep(launch) else None)
    while True:
        schedule = _next(launch, waiting, room, watch, recorder)
        if schedule is None:
            break
        version = launch.memory.version
        try:
            state = schedule.run()
        except KernelFaultError as fault:
            result.outcome = "fault"
            result.fault = fault
            waiting.append(schedule)
            break
        if state == "finished":
            _count(result, schedule)
            result.finished_blocks += launch.cluster_blocks
            is_first = result.finished_blocks == launch.cluster_blocks and not waiting
            if is_first and may_join and may_run_in_lockstep(launch):
                _add(result, run_in_lockstep(launch))
            continue
        waiting.append(schedule)
        schedule.wait_longer(has_written=launch.memory.version != version)
        if state == "stopped":
            result.outcome = "stopped"
            break
    for schedule in waiting:
        _count(result, schedule)
    if waiting and result.outcome == "finished":
        result.outcome = "hang"
        if next(launch.to_start, None) is not None:
            result.unstarted_blocks = prod(launch.grid) - result.finished_blocks - launch.cluster_blocks * len(waiting)
    return result


def _next(
    launch: Launch,
    waiting: list[Schedule],
    room: int | None,
    watch: SmemWatch | None,
    recorder: MakesSchedules | None,
) -> Schedule | None:
    """A suspended cluster whose memory has changed, a new cluster, or one that can run while it waits.

    `room` is how many clusters the card holds; None: all. One that has often looked in vain lets several new ones start first.
    As a last resort, parts of warps continue that wait for the rest of their warp: a card does not wait for it at barriers.
    """
    woken = next((schedule for schedule in waiting if not schedule.is_patient() and schedule.wake_for_others()), None)
    woken = woken or _start_next(launch, waiting, room, watch, recorder)
    woken = woken or next((schedule for schedule in waiting if schedule.wake_for_others()), None)
    woken = woken or next((schedule for schedule in waiting if schedule.pass_time()), None)
    woken = woken or next((schedule for schedule in waiting if _diverge(launch, schedule)), None)
    if woken in waiting:
        waiting.remove(woken)
    return woken


def _start_next(
    launch: Launch,
    waiting: list[Schedule],
    room: int | None,
    watch: SmemWatch | None,
    recorder: MakesSchedules | None,
) -> Schedule | None:
    """The next cluster, if the card has room for it and not too many idle ones wait already."""
    idle = [schedule for schedule in waiting if schedule.ready]
    if len(idle) < IDLE_CLUSTERS and (room is None or len(waiting) < room):
        start = next(launch.to_start, None)
        if start is not None:
            launch.steps_left -= CLUSTER_START_STEPS
            cluster = Cluster(launch, start)
            observe(cluster, watch)
            return Schedule(cluster) if recorder is None else recorder.schedule(cluster)
    return None


def _diverge(launch: Launch, schedule: Schedule) -> bool:
    """Resume parts of warps that wait for the rest of their warp; False if there are none."""
    pcs = schedule.find_gatherings()
    if pcs:
        schedule.diverge(launch.program.fact(ControlFlow).find_first(pcs))
    return bool(pcs)


def _add(result: GridRun, others: LockstepRun | None) -> None:
    """Add what blocks did in lockstep, if they have."""
    if others is not None:
        result.finished_blocks += others.blocks
        result.thread_counts += others.thread_counts
        result.warp_counts += others.warp_counts


def _count(result: GridRun, schedule: Schedule) -> None:
    result.thread_counts += schedule.thread_counts
    result.warp_counts += schedule.warp_counts
