"""Barriers that ordered nothing: the kernel is run again without them, and no access becomes unordered.

    bar.sync at kernels.py:10      removed with those above it: a race        it stays
    bar.sync at kernels.py:11      removed: no finding, the same bytes        it ordered nothing

Barriers are removed one after another, those that ran most first. One stays out if the run without it, and without all that
were removed before, finishes, has no accesses unordered that were ordered, and leaves the same bytes in memory. So the
barriers that are named can be removed together. Two other seeds must agree.

That holds for the path and the data of this launch. Two kinds are never named, because this launch may not need them yet: a
barrier in a loop that no thread went round twice, and all barriers of a kernel with a ring of slots that never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tilescope.errors import Violation
from tilescope.machine.cluster import Cluster
from tilescope.machine.edits.trial import OTHER_SEEDS, Before, trial_launch
from tilescope.machine.front import Front
from tilescope.machine.instructions.barriers import BlockBarrierTurn
from tilescope.machine.instructions.control import Branch
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.program import Program
from tilescope.machine.report.places import line_facts, line_named
from tilescope.machine.report.race_rules import severity_of
from tilescope.machine.report.ring_notes import ring_notes
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import Turn
from tilescope.rule import ptx_example, rule
from tilescope.sentence import counted, listed

BARRIERS_TRIED = 100  # those that ran most
_LINES_NAMED = 8

IDLE_BARRIER = rule(
    "run-idle-barrier",
    "A barrier of a block orders accesses that nothing else orders.",
    argument="{where}",
    found="{idle} of the {barriers} bar.sync that ran ordered nothing: {places}",
    limit="without them, in three orders of its threads, the run has the same findings and leaves the same bytes",
    fix="Remove them together, unless another launch takes another path: a barrier may be there for other data, or longer loops.",
    source="this run, repeated without them",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-idle-barrier.pass.ptx')}).run(1, 64, advice=True).findings",
    failing=f"ts.Kernel({ptx_example('run-idle-barrier.fail.ptx')}).run(1, 64, advice=True).findings",
)
NOT_TRIED = IDLE_BARRIER.worded(
    argument="advice",
    found="which barriers order nothing was not tried: {reason}",
    limit="advice needs runs that show what every barrier orders",
    fix="{remedy}",
)


@dataclass(slots=True)
class _PassedBarrier:
    """A barrier that nobody waits at; `visits` counts how often the lanes of each cluster came."""

    visits: dict[tuple[int, int, int], npt.NDArray[np.int64]] = field(default_factory=dict)

    def take(self, schedule: Schedule, front: Front) -> None:
        """Go on at once."""
        cluster: Cluster = schedule.cluster
        visits = self.visits.setdefault(cluster.first_block, np.zeros(cluster.lane_count, np.int64))
        visits[front.lanes] += 1
        schedule.go_on(front, front.pc + 1)

    @property
    def most_visits(self) -> int:
        """The visits of the lane that came most often."""
        return max((int(visits.max()) for visits in self.visits.values()), default=0)


def barrier_advice(launch: Launch, result: GridRun, before: Before | None) -> tuple[Violation, ...]:
    """A note about the barriers that can be removed together; empty if every barrier orders something."""
    barriers = _barriers(launch.program, result)
    if launch.detector is None or not barriers:
        return ()
    if result.outcome != "finished":
        return _not_tried(launch, barriers, "the run did not finish", "Fix that first.")
    if any(severity_of(conflict) == "error" for conflict in launch.detector.conflicts.found.values()):
        return _not_tried(launch, barriers, "the run has errors", "Fix them first.")
    if before is None:
        return _not_tried(launch, barriers, "its arrays are too large to be copied", "Use arrays of at most 64 MiB.")
    if any(ring_notes(launch)):
        return _not_tried(launch, barriers, "a ring of slots never wrapped", "Use a launch that fills it again.")
    idle = _Trials(launch, before).idle(barriers)
    if not idle:
        return ()
    return (
        IDLE_BARRIER.violation(
            where=line_named(launch.program, idle[0]),
            idle=len(idle),
            barriers=len(barriers),
            places=_places(launch.program, idle),
            **line_facts(launch.program, *sorted(idle)),
        ),
    )


def _not_tried(launch: Launch, barriers: Sequence[int], reason: str, remedy: str) -> tuple[Violation, ...]:
    return (NOT_TRIED.violation(reason=reason, remedy=remedy, **line_facts(launch.program, *sorted(barriers))),)


def _places(program: Program, pcs: Sequence[int]) -> str:
    """Barriers by source line: "mm.py:10 (PTX lines 40 and 44), mm.py:12 (PTX line 80) and 4 other lines"."""
    ptx_lines: dict[str, list[int]] = {}
    for pc in sorted(pcs):
        instruction = program.instructions[pc]
        assert instruction is not None  # the return at the end of a body is no barrier
        ptx_lines.setdefault(str(instruction.source or ""), []).append(instruction.line)
    named = [_named(source, lines) for source, lines in ptx_lines.items()]
    others = len(named) - _LINES_NAMED
    if others > 0:
        named = [*named[:_LINES_NAMED], counted(others, "other line")]
    return listed(named)


def _named(source: str, ptx_lines: Sequence[int]) -> str:
    """A source line, if there is one, and the PTX lines that belong to it."""
    ptx = f"PTX line{'' if len(ptx_lines) == 1 else 's'} {listed(ptx_lines)}"
    return f"{source} ({ptx})" if source else ptx


def _barriers(program: Program, result: GridRun) -> list[int]:
    """The bar.sync that ran, those that ran most first."""
    counts = np.cumsum(result.warp_counts)
    ran = [pc for pc, turn in enumerate(program.turns) if _is_sync(turn) and counts[pc]]
    return sorted(ran, key=lambda pc: (-int(counts[pc]), pc))[:BARRIERS_TRIED]


def _is_sync(turn: Turn | None) -> bool:
    return isinstance(turn, BlockBarrierTurn) and turn.action == "sync"


def _is_in_loop(program: Program, pc: int) -> bool:
    """Whether a later branch leads back to an instruction, or to one before it."""
    return any(isinstance(turn, Branch) and turn.target <= pc for turn in program.turns[pc:])


class _Trials:
    """Runs without some barriers."""

    def __init__(self, launch: Launch, before: Before) -> None:
        self._launch = launch
        self._before = before
        self._seen = frozenset() if launch.detector is None else frozenset(launch.detector.conflicts.found)

    def idle(self, barriers: Sequence[int]) -> list[int]:
        """The barriers that can be removed together, tried in this order."""
        passed = {pc: _PassedBarrier() for pc in barriers}
        is_all_idle = self._holds(passed, self._before.seed)
        tried = [pc for pc in barriers if passed[pc].most_visits != 1 or not _is_in_loop(self._launch.program, pc)]
        idle = tried
        if not is_all_idle:
            idle = self._one_by_one(tried, self._before.seed)
        for seed in OTHER_SEEDS:
            if idle and not self._holds({pc: _PassedBarrier() for pc in idle}, seed):
                idle = self._one_by_one(idle, seed)
        return idle

    def _one_by_one(self, tried: Sequence[int], seed: int | None) -> list[int]:
        idle: list[int] = []
        for pc in tried:
            if self._holds({one: _PassedBarrier() for one in (*idle, pc)}, seed):
                idle.append(pc)
        return idle

    def _holds(self, passed: dict[int, _PassedBarrier], seed: int | None) -> bool:
        """Whether a run without some barriers finishes, orders all that was ordered, and with the run's own seed leaves the same bytes."""
        if self._launch.is_late():
            return False
        turns: list[Turn | None] = [passed.get(pc, turn) for pc, turn in enumerate(self._launch.program.turns)]
        trial = trial_launch(self._launch, replace(self._launch.program, turns=turns), self._before, seed)
        with np.errstate(all="ignore"):
            result = run_grid(trial, cluster_starts(trial, self._before.blocks))
        if result.outcome != "finished" or trial.detector is None:
            return False
        is_ordered = self._seen.issuperset(trial.detector.conflicts.found)
        return is_ordered and (seed != self._before.seed or _same_bytes(self._launch.memory, trial.memory))


def _same_bytes(one: GlobalMemory, other: GlobalMemory) -> bool:
    """Whether two memories hold the same bytes in the arrays of the first one."""
    return all(
        np.array_equal(one.bytes_at(address, size_bytes), other.bytes_at(address, size_bytes))
        for address, size_bytes in one.allocations
    )
