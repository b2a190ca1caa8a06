"""Redundant barriers: the kernel runs again without them, and no data race appears.

    bar.sync at kernels.py:10      removed: a data race                       it is needed
    bar.sync at kernels.py:11      removed: no finding, the same bytes        it is redundant

Barriers are removed one after another, the most executed first. A barrier stays removed if the run without it, and without all
barriers removed before it, finishes, has no new data race, and leaves the same bytes in memory. So the barriers of a note can be
removed together. Two other seeds must agree.

The result holds for the path and the data of this launch. Two kinds are never reported, because this launch may not need them
yet: a barrier in a loop that no thread repeats, and all barriers of a kernel with a ring of slots that never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tilescope.errors import Violation
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.edits.trial import OTHER_SEEDS, InitialState, make_trial, used_steps
from tilescope.machine.execution.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.instructions.barriers import BlockBarrierTurn
from tilescope.machine.instructions.control import Branch
from tilescope.machine.launch.launch import Launch
from tilescope.machine.memory import GlobalMemory
from tilescope.machine.program import Program
from tilescope.machine.report.places import line_facts, name_line
from tilescope.machine.report.races.race_rules import severity_of
from tilescope.machine.report.ring_notes import report_unwrapped_rings
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import Turn
from tilescope.rule import ptx_example, rule
from tilescope.sentence import counted, listed
from tilescope.sync.trials import TrialBudget

BARRIERS_TRIED = 100  # the most executed ones
STEPS_OF_A_TRIAL = 4  # times the steps of the run
STEPS_OF_ALL_TRIALS = 100  # times the steps of the run; short runs have SHORT_STEPS
SHORT_STEPS = 100_000
_LINES_NAMED = 8

IDLE_BARRIER = rule(
    "run-idle-barrier",
    "A barrier of a block orders accesses that are not ordered otherwise.",
    argument="{where}",
    found="{idle} of the {barriers} bar.sync that ran ordered nothing: {places}",
    limit="without them, in three orders of its threads, the run has the same findings and leaves the same bytes",
    fix="Remove them together, unless another launch takes another path: a barrier may be there for other data, or longer loops.",
    source="this run, repeated without them",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-idle-barrier.pass.ptx')}).run(1, 64, advice='barriers').findings",
    failing=f"ts.Kernel({ptx_example('run-idle-barrier.fail.ptx')}).run(1, 64, advice='barriers').findings",
)
NOT_TRIED = IDLE_BARRIER.worded(
    argument="advice",
    found="redundant barriers were not searched: {reason}",
    limit="advice needs runs that show what every barrier orders",
    fix="{remedy}",
)


@dataclass(slots=True)
class _SkippedBarrier:
    """A barrier that no thread waits at; `visits` counts how often each lane of a cluster reached it."""

    visits: dict[tuple[int, int, int], npt.NDArray[np.int64]] = field(default_factory=dict)

    def take(self, schedule: Schedule, front: Front) -> None:
        """Continue without waiting."""
        cluster: Cluster = schedule.cluster
        visits = self.visits.setdefault(cluster.first_block, np.zeros(cluster.lane_count, np.int64))
        visits[front.lanes] += 1
        schedule.go_on(front, front.pc + 1)

    @property
    def max_visits(self) -> int:
        """The visits of the lane that reached it most often."""
        return max((int(visits.max()) for visits in self.visits.values()), default=0)


def report_idle_barriers(launch: Launch, result: GridRun, initial: InitialState | None) -> tuple[Violation, ...]:
    """A note about the barriers that can be removed together; empty if every barrier is needed."""
    barriers = _find_executed_barriers(launch.program, result)
    if launch.detector is None or not barriers:
        return ()
    if result.outcome != "finished":
        return _report_not_tried(launch, barriers, "the run did not finish", "Fix that first.")
    if any(severity_of(conflict) == "error" for conflict in launch.detector.reported_conflicts()):
        return _report_not_tried(launch, barriers, "the run has errors", "Fix them first.")
    if initial is None:
        return _report_not_tried(
            launch, barriers, "its arrays are too large to be copied", "Use arrays of at most 64 MiB."
        )
    if any(report_unwrapped_rings(launch)):
        return _report_not_tried(launch, barriers, "a ring of slots never wrapped", "Use a launch that fills it again.")
    idle = _Trials(launch, initial).find_idle(barriers)
    if not idle:
        return ()
    return (
        IDLE_BARRIER.violation(
            where=name_line(launch.program, idle[0]),
            idle=len(idle),
            barriers=len(barriers),
            places=_name_places(launch.program, idle),
            **line_facts(launch.program, *sorted(idle)),
        ),
    )


def _report_not_tried(launch: Launch, barriers: Sequence[int], reason: str, remedy: str) -> tuple[Violation, ...]:
    return (NOT_TRIED.violation(reason=reason, remedy=remedy, **line_facts(launch.program, *sorted(barriers))),)


def _name_places(program: Program, pcs: Sequence[int]) -> str:
    """Barriers by source line: "mm.py:10 (PTX lines 40 and 44), mm.py:12 (PTX line 80) and 4 other lines"."""
    ptx_lines: dict[str, list[int]] = {}
    for pc in sorted(pcs):
        instruction = program.instructions[pc]
        assert instruction is not None  # the implicit return at the end of a body is not a barrier
        ptx_lines.setdefault(str(instruction.source or ""), []).append(instruction.line)
    places = [_name_place(source, lines) for source, lines in ptx_lines.items()]
    others = len(places) - _LINES_NAMED
    if others > 0:
        places = [*places[:_LINES_NAMED], counted(others, "other line")]
    return listed(places)


def _name_place(source: str, ptx_lines: Sequence[int]) -> str:
    """A source line, if the text has one, and the PTX lines that belong to it."""
    ptx = f"PTX line{'' if len(ptx_lines) == 1 else 's'} {listed(ptx_lines)}"
    return f"{source} ({ptx})" if source else ptx


def _find_executed_barriers(program: Program, result: GridRun) -> list[int]:
    """The bar.sync instructions that ran, the most executed first."""
    counts = np.cumsum(result.warp_counts)
    executed = [pc for pc, turn in enumerate(program.turns) if _is_sync(turn) and counts[pc]]
    return sorted(executed, key=lambda pc: (-int(counts[pc]), pc))[:BARRIERS_TRIED]


def _is_sync(turn: Turn | None) -> bool:
    return isinstance(turn, BlockBarrierTurn) and turn.action == "sync"


def _is_in_loop(program: Program, pc: int) -> bool:
    """Whether a later branch leads back to an instruction, or to an earlier one."""
    return any(isinstance(turn, Branch) and turn.target <= pc for turn in program.turns[pc:])


class _Trials:
    """Runs of the launch without some of its barriers."""

    def __init__(self, launch: Launch, initial: InitialState) -> None:
        self._launch = launch
        self._initial = initial
        self.budget = TrialBudget(max(SHORT_STEPS, STEPS_OF_ALL_TRIALS * used_steps(launch)))
        self._known_conflicts = frozenset() if launch.detector is None else frozenset(launch.detector.conflicts.found)

    def find_idle(self, barriers: Sequence[int]) -> list[int]:
        """The barriers that can be removed together, tested in this order."""
        skipped = {pc: _SkippedBarrier() for pc in barriers}
        is_all_idle = self._is_unchanged_without(skipped, self._initial.seed)
        candidates = [pc for pc in barriers if skipped[pc].max_visits != 1 or not _is_in_loop(self._launch.program, pc)]
        idle = candidates
        if not is_all_idle:
            idle = self._remove_one_by_one(candidates, self._initial.seed)
        for seed in OTHER_SEEDS:
            if idle and not self._is_unchanged_without({pc: _SkippedBarrier() for pc in idle}, seed):
                idle = self._remove_one_by_one(idle, seed)
        return idle

    def _remove_one_by_one(self, candidates: Sequence[int], seed: int | None) -> list[int]:
        idle: list[int] = []
        for pc in candidates:
            if self._is_unchanged_without({removed: _SkippedBarrier() for removed in (*idle, pc)}, seed):
                idle.append(pc)
        return idle

    def _is_unchanged_without(self, skipped: dict[int, _SkippedBarrier], seed: int | None) -> bool:
        """Whether a run without some barriers finishes without a new conflict, and with the run's own seed leaves the same bytes."""
        if self.budget.left <= 0:
            self.budget.is_exhausted = True
            return False
        turns: list[Turn | None] = [skipped.get(pc, turn) for pc, turn in enumerate(self._launch.program.turns)]
        program = replace(self._launch.program, turns=turns)
        max_steps = min(self.budget.left, STEPS_OF_A_TRIAL * used_steps(self._launch))
        trial = make_trial(self._launch, program, self._initial, seed, max_steps)
        with np.errstate(all="ignore"):
            result = run_grid(trial, cluster_starts(trial, self._initial.blocks))
        self.budget.spend(used_steps(trial))
        if result.outcome != "finished" or trial.detector is None:
            return False
        has_no_new_conflict = self._known_conflicts.issuperset(trial.detector.conflicts.found)
        return has_no_new_conflict and (
            seed != self._initial.seed or _has_same_bytes(self._launch.memory, trial.memory)
        )


def _has_same_bytes(memory: GlobalMemory, other: GlobalMemory) -> bool:
    """Whether another memory holds the same bytes in the arrays of this one."""
    return all(
        np.array_equal(memory.bytes_at(address, size_bytes), other.bytes_at(address, size_bytes))
        for address, size_bytes in memory.allocations
    )
