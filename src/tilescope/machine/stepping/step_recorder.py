"""Records the steps of a launch: every step of its program tells the log of its cluster that it begins."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.schedule import ClusterState, Schedule
from tilescope.machine.step import EVERYONE, Step
from tilescope.machine.stepping.cluster_log import ClusterLog
from tilescope.sync.cluster_shape import Lanes

MAX_RECORDED_SECONDS = 15.0  # of CPU time
MAX_RECORDED_BYTES = 350 << 20
_STEPS_BETWEEN_CHECKS = 1024  # of both limits
Progress = Callable[[int], None]


@dataclass(slots=True)
class StepRecorder:
    """The steps of all clusters of a launch, in the order in which they ran; `is_whole` unless a limit ended the recording."""

    progress: Progress | None = None
    step: int = 0
    logs: list[ClusterLog] = field(default_factory=list)
    is_whole: bool = True
    _begun: float = field(default_factory=time.thread_time)
    _turns: list[tuple[int, ClusterLog]] = field(default_factory=list)  # the first step of each turn of a cluster
    _log: ClusterLog | None = None  # of the cluster that runs
    _launch: Launch | None = None

    def schedule(self, cluster: Cluster) -> Schedule:
        """The schedule of a cluster that begins, which records its steps."""
        recorded = RecordedSchedule(cluster, recorder=self)
        log = ClusterLog(recorded)
        cluster.bus.subscribe(log.handlers())
        cluster.accesses = cluster.program.fact(decode_accesses)
        self.logs.append(log)
        recorded.log = log
        self._launch = cluster.launch
        return recorded

    def enter(self, log: ClusterLog) -> None:
        """A cluster runs from now on."""
        self._log = log
        self._turns.append((self.step + 1, log))

    def leave(self) -> None:
        """The cluster stops running, for now."""
        assert self._log is not None
        self._log.settle(self.step)
        self._log = None

    def begin(self, pc: int, lanes: Lanes, *, written: Lanes | None = None, is_turn: bool = False) -> None:
        """The next step begins; what the one before changed is recorded first."""
        log = self._log
        assert log is not None
        log.settle(self.step)
        self.step += 1
        log.begin(self.step, pc, lanes, written=written, is_turn=is_turn)
        if self.step % _STEPS_BETWEEN_CHECKS == 0:
            self._check_limits()

    def end(self) -> None:
        """The launch has ended."""
        for log in self.logs:
            log.end(self.step)

    def log_of(self, step: int) -> ClusterLog:
        """The log of the cluster that executed a step."""
        return self._turns[max(bisect_right(self._turns, step, key=lambda turn: turn[0]) - 1, 0)][1]

    def _check_limits(self) -> None:
        if self.progress is not None:
            self.progress(self.step)
        is_late = time.thread_time() - self._begun > MAX_RECORDED_SECONDS
        if is_late or sum(log.size_bytes for log in self.logs) > MAX_RECORDED_BYTES:
            assert self._launch is not None
            self._launch.steps_left = min(self._launch.steps_left, 0)
            self.is_whole = False


@dataclass(slots=True, eq=False)
class RecordedSchedule(Schedule):
    """Runs one cluster, and records its turns; its steps record themselves."""

    recorder: StepRecorder = field(kw_only=True)
    log: ClusterLog = field(init=False)

    def run(self) -> ClusterState:
        """Run as far as the cluster can go."""
        self.recorder.enter(self.log)
        try:
            return Schedule.run(self)
        finally:
            self.recorder.leave()

    def _turn(self, front: Front) -> bool:
        self.recorder.begin(front.pc, front.lanes, written=self._writing_lanes(front), is_turn=True)
        return Schedule._turn(self, front)

    def _writing_lanes(self, front: Front) -> Lanes:
        """The lanes whose registers a turn may write: their whole warps, of those that waited for it too; at a barrier all."""
        instruction = self.cluster.program.instructions[front.pc]
        if not self.cluster.program.targets[front.pc] or len(front.lanes) == self.cluster.lane_count:
            return front.lanes
        if instruction is not None and instruction.name in ("bar", "barrier"):
            return EVERYONE
        waiting = self.gathering.get(front.pc)
        lanes = front.lanes if waiting is None else np.concatenate([waiting, front.lanes])
        warps = np.unique(lanes // WARP_LANES)
        return np.asarray(warps[:, None] * WARP_LANES + np.arange(WARP_LANES)).ravel()

    def diverge(self, pc: int) -> None:
        """Let lanes execute an instruction without the rest of their warp."""
        self.log.settle(self.recorder.step)
        Schedule.diverge(self, pc)
        self.log.write_registers(pc)
        self.log.settle(self.recorder.step)


def record_program(program: Program, recorder: StepRecorder) -> Program:
    """The program whose steps record themselves; turns are recorded by the schedule."""
    steps = [None if step is None else _record(pc, step, recorder) for pc, step in enumerate(program.steps)]
    return replace(program, steps=steps)


def _record(pc: int, step: Step, recorder: StepRecorder) -> Step:
    def record_and_take(cluster: Cluster, at: Lanes) -> None:
        recorder.begin(pc, at)
        step(cluster, at)

    return record_and_take
