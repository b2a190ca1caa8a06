"""Second runs of the same kernel: they tell whether the result depends on something that this run cannot decide.

    unwritten shared memory     filled with another pattern: does global memory come out otherwise?
    a load that races           given another value: does any store change? If not, its value is not used
    a flag that is polled once  asked as late as possible: what does the path do that the first run never took?

Each is made only if the first run met such a thing, on a copy of the initial memory, and takes at most twice the steps of the first run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilescope.machine.edits.trial import InitialState, make_trial, used_steps
from tilescope.machine.execution.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.store_log import StoreLog
from tilescope.sync.detector.race import Conflict

SECOND_PATTERN = 0x7B  # a large positive number in every float type; the first run fills shared memory with zeros
_STEPS_OF_A_SECOND_RUN = 2  # times the steps of the run


def run_again(launch: Launch, result: GridRun, initial: InitialState) -> None:
    """Make the second runs that a finished run asks for, and note in its conflicts what they show."""
    if launch.detector is None or result.outcome != "finished":
        return
    conflicts = list(launch.detector.conflicts.found.values())
    unwritten = [conflict for conflict in conflicts if conflict.mistake in ("unwritten", "unwritten operand")]
    if unwritten and _depends_on_pattern(launch, initial):
        for conflict in unwritten:
            conflict.facts["changes_result"] = 1
    _mark_unused_loads(launch, initial, [conflict for conflict in conflicts if _is_race_with_load(launch, conflict)])


class _SecondRun(NamedTuple):
    """A second run, and how it ended."""

    launch: Launch
    result: GridRun


def _run(launch: Launch, initial: InitialState, log: StoreLog | None = None, pattern: int = 0) -> _SecondRun:
    """Run the same program with one thing changed."""
    steps = _STEPS_OF_A_SECOND_RUN * used_steps(launch)
    trial = make_trial(launch, launch.program, initial, initial.seed, steps)
    trial.shared_pattern = pattern
    trial.store_log = log
    with np.errstate(all="ignore"):
        result = run_grid(trial, cluster_starts(trial, initial.blocks))
    return _SecondRun(trial, result)


def _depends_on_pattern(launch: Launch, initial: InitialState) -> bool:
    """Whether the kernel leaves other bytes in global memory, or does not finish, if shared memory holds another pattern."""
    second = _run(launch, initial, pattern=SECOND_PATTERN)
    if second.launch.is_out_of_time:
        return False
    return second.result.outcome != "finished" or not second.launch.memory.has_same_bytes(launch.memory)


def _is_race_with_load(launch: Launch, conflict: Conflict) -> bool:
    """Whether a conflict is a data race between a plain load and a write, both by threads."""
    return conflict.mistake == "race" and _racing_load(launch, conflict) is not None


def _racing_load(launch: Launch, conflict: Conflict) -> int | None:
    """The plain load of a data race; None if there is none, or if a copy or a tensor core is the other side."""
    before, now = conflict.before, conflict.now
    if before is None or launch.detector is None or {before.how, now.how} - {"read", "write", "atomic"}:
        return None
    load = now if now.how == "read" else before
    access = launch.detector.program.accesses[load.pc]
    is_plain_load = load.how == "read" and access is not None and not access.is_strong
    return load.pc if is_plain_load else None


def _mark_unused_loads(launch: Launch, initial: InitialState, races: list[Conflict]) -> None:
    """Turn races with loads whose value nobody uses into notes: given other values there, all stores stay as they were."""
    pcs = {pc for conflict in races if (pc := _racing_load(launch, conflict)) is not None}
    if not pcs:
        return
    first = StoreLog(frozenset(pcs))
    if _run(launch, initial, log=first).result.outcome != "finished" or not first.is_whole:
        return
    for pc in sorted(pcs):
        log = StoreLog(frozenset({pc}), first)
        second = _run(launch, initial, log=log)
        is_same = log.digest() == first.digest() and second.launch.memory.has_same_bytes(launch.memory)
        for conflict in races:
            if _racing_load(launch, conflict) == pc:
                if second.result.outcome == "finished" and is_same:
                    conflict.mistake = "unused load"
                elif log.are_values_equal:
                    conflict.facts["has_equal_stores"] = 1
