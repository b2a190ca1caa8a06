"""All clusters of a grid, one after another; those that wait for others through global memory take turns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.fault import KernelFaultError
from tilescope.machine.launch import Launch
from tilescope.machine.run import Outcome
from tilescope.machine.schedule import Schedule

BlockIndex = tuple[int, int, int]


@dataclass(slots=True)
class GridRun:
    """How a grid came out: what stopped it, and where everybody stood then."""

    outcome: Outcome = "finished"
    fault: KernelFaultError | None = None
    waiting: list[Schedule] = field(default_factory=list)  # clusters that were under way when it stopped
    finished_blocks: int = 0
    thread_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    warp_counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def cluster_starts(launch: Launch, blocks: Sequence[BlockIndex] | None) -> list[BlockIndex]:
    """The first block of every cluster that runs, x fastest; with a seed in another order."""
    if blocks is None:
        axes = [range(0, extent, step) for extent, step in zip(launch.grid, launch.cluster, strict=True)]
        starts = [(x, y, z) for z, y, x in itertools.product(*reversed(axes))]
    else:
        width, height, depth = launch.cluster
        starts = [(x // width * width, y // height * height, z // depth * depth) for x, y, z in blocks]
        starts = list(dict.fromkeys(starts))
    if launch.random is not None:
        launch.random.shuffle(starts)
    return starts


def run_grid(launch: Launch, starts: Sequence[BlockIndex]) -> GridRun:
    """Run the clusters. One that can only wait for others stays, and goes on when memory has changed."""
    result = GridRun()
    size = len(launch.program.steps) + 1
    result.thread_counts = np.zeros(size, np.int64)
    result.warp_counts = np.zeros(size, np.int64)
    to_start = iter(starts)
    waiting = result.waiting
    while True:
        schedule = _runnable(waiting)
        if schedule is None:
            start = next(to_start, None)
            if start is None:
                break
            schedule = Schedule(Cluster(launch, start))
        try:
            state = schedule.run()
        except KernelFaultError as fault:
            _count(result, schedule)
            result.outcome = "fault"
            result.fault = fault
            waiting.append(schedule)
            return result
        if state == "finished":
            _count(result, schedule)
            result.finished_blocks += launch.cluster_blocks
            continue
        waiting.append(schedule)
        if state == "running":
            result.outcome = "stopped"
            break
    for schedule in waiting:
        _count(result, schedule)
    if waiting and result.outcome == "finished":
        result.outcome = "hang"
    return result


def _runnable(waiting: list[Schedule]) -> Schedule | None:
    """A cluster that was waiting and can go on."""
    for schedule in waiting:
        if schedule.wake_for_others():
            waiting.remove(schedule)
            return schedule
    return None


def _count(result: GridRun, schedule: Schedule) -> None:
    result.thread_counts += schedule.thread_counts
    result.warp_counts += schedule.warp_counts
