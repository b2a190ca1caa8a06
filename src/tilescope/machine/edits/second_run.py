"""Second runs of the same kernel: they tell whether the result depends on something that this run cannot decide.

    unwritten shared memory     filled with another pattern: does global memory come out otherwise?
    a load that races           given another value: does any store change? If not, its value is not used
    a flag that is polled once  asked as late as possible: what does the path do that the first run never took?

Each is made only if the first run met such a thing, on a copy of the initial memory, and takes at most twice the steps of the first run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tilescope.machine.decoding.dataflow import find_copied_loads, find_stored_values
from tilescope.machine.edits.trial import InitialState, make_trial, used_steps
from tilescope.machine.execution.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.launch.launch import Launch
from tilescope.machine.observers.store_log import OTHER_BYTES, StoreLog
from tilescope.machine.program import Program
from tilescope.machine.report.races.conflict_groups import is_lost_update
from tilescope.sync.detector.race import Conflict

PATTERNS = (0x7B, 0xFB)  # large numbers of both signs in every float type; the first run fills shared memory with zeros
_MOST_LOADS_TRIED = 16  # one by one
_STEPS_OF_A_SECOND_RUN = 2  # times the steps of the run


def run_again(launch: Launch, result: GridRun, initial: InitialState) -> None:
    """Make the second runs that a finished run needs, and note in its conflicts what they show."""
    if launch.detector is None or result.outcome != "finished":
        return
    conflicts = list(launch.detector.conflicts.found.values())
    unwritten = [conflict for conflict in conflicts if conflict.mistake in ("unwritten", "unwritten operand")]
    if unwritten and _depends_on_pattern(launch, initial):
        for conflict in unwritten:
            conflict.facts["changes_result"] = 1
    _mark_unused_loads(launch, initial, [conflict for conflict in conflicts if _has_open_use(launch, conflict)])
    late_pcs = _find_untaken_polls(launch)
    if late_pcs:
        _take_other_outcome(launch, result, initial, late_pcs)


def _find_untaken_polls(launch: Launch) -> tuple[int, ...]:
    """Polls that never saw what other threads wrote in the end: no thread took the path behind them."""
    assert launch.detector is not None
    written = launch.detector.flags.before
    return tuple(
        sorted(
            pc
            for pc, poll in launch.detector.polls.items()
            if not poll.has_passed and (poll.is_of_mbarrier or not poll.words or not poll.words.isdisjoint(written))
        )
    )


def _take_other_outcome(launch: Launch, result: GridRun, initial: InitialState, late_pcs: tuple[int, ...]) -> None:
    """Run again with polls that execute as late as possible; add new conflicts, and mark them as found this way."""
    assert launch.detector is not None
    program = replace(launch.program, straight_end=_split_runs(launch.program.straight_end, late_pcs))
    second = _run(launch, initial, program=program, late_pcs=late_pcs)
    assert second.launch.detector is not None
    conflicts = launch.detector.conflicts.found
    launch.detector.polling_pcs |= second.launch.detector.polling_pcs
    for key, conflict in second.launch.detector.conflicts.found.items():
        if key not in conflicts:
            conflict.facts["poll_pc"] = late_pcs[0]
            conflicts[key] = conflict
    if second.result.outcome in ("hang", "fault"):
        result.after_polls = second.result
        launch.after_polls = second.launch


def _split_runs(straight_end: list[int], late_pcs: tuple[int, ...]) -> list[int]:
    """For every instruction the next turn, label or late poll.

    >>> _split_runs([4, 4, 4, 4, 5], (2,))
    [2, 2, 4, 4, 5]
    """
    ends = list(straight_end)
    for late in reversed(late_pcs):
        for pc in range(late - 1, -1, -1):
            if straight_end[pc] <= late:
                break
            ends[pc] = min(ends[pc], late)
    return ends


class _SecondRun(NamedTuple):
    """A second run, and how it ended."""

    launch: Launch
    result: GridRun


def _run(
    launch: Launch,
    initial: InitialState,
    *,
    program: Program | None = None,
    log: StoreLog | None = None,
    pattern: int = 0,
    late_pcs: tuple[int, ...] = (),
) -> _SecondRun:
    """Run the same launch with one thing changed."""
    steps = _STEPS_OF_A_SECOND_RUN * used_steps(launch)
    trial = make_trial(launch, program or launch.program, initial, initial.seed, steps)
    assert trial.detector is not None
    trial.detector.late_pcs = frozenset(late_pcs)
    trial.late_pcs = late_pcs
    trial.shared_pattern = pattern
    trial.store_log = log
    if log is not None and log.first is None:
        trial.detector.racing_loads = log.racing
    with np.errstate(all="ignore"):
        result = run_grid(trial, cluster_starts(trial, initial.blocks))
    return _SecondRun(trial, result)


def _depends_on_pattern(launch: Launch, initial: InitialState) -> bool:
    """Whether the kernel leaves other bytes in global memory, or does not finish, if shared memory holds another pattern."""
    for pattern in PATTERNS:
        second = _run(launch, initial, pattern=pattern)
        if second.launch.is_out_of_time:
            return False
        if second.result.outcome != "finished" or not second.launch.memory.has_same_bytes(launch.memory):
            return True
    return False


def _has_open_use(launch: Launch, conflict: Conflict) -> bool:
    """Whether a conflict is a data race between a plain load and a write, both by threads, and the use of the load is open.

    A load whose value the text never stores is left as it is: the programmer meant to use it. A value that the text
    stores unchanged is used. Only for an update of a word, compare whether all stores leave the same values there.
    """
    load = _racing_load(launch, conflict) if conflict.mistake == "race" else None
    program = launch.program
    if load is None or load not in program.fact(find_stored_values):
        return False
    return load not in program.fact(find_copied_loads) or is_lost_update(program, conflict)


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
    """Turn races with loads whose value is not used into notes: given other values there, all stores stay as they were."""
    pcs = {pc for conflict in races if (pc := _racing_load(launch, conflict)) is not None}
    if not pcs:
        return
    first = StoreLog(frozenset(pcs))
    if _run(launch, initial, log=first).result.outcome != "finished" or not first.is_whole:
        return
    if len(pcs) > _MOST_LOADS_TRIED and not _find_use(launch, initial, first, frozenset(pcs)).is_unused:
        return  # a run for each of them takes too long: they stay errors
    for pc in sorted(pcs):
        use = _find_use(launch, initial, first, frozenset({pc}))
        for conflict in races:
            if _racing_load(launch, conflict) == pc:
                if use.is_unused:
                    conflict.mistake = "unused load"
                elif use.has_equal_stores:
                    conflict.facts["has_equal_stores"] = 1


class _LoadUse(NamedTuple):
    """The use of a racing load: none, or stores of the same values to the loaded addresses."""

    is_unused: bool
    has_equal_stores: bool


def _find_use(launch: Launch, initial: InitialState, first: StoreLog, pcs: frozenset[int]) -> _LoadUse:
    """Give loads other values, large, small and zero, as long as no store changes."""
    log = first
    for byte in OTHER_BYTES:
        log = StoreLog(pcs, first, byte)
        second = _run(launch, initial, log=log)
        is_same = log.digest() == first.digest() and second.launch.memory.has_same_bytes(launch.memory)
        if second.result.outcome != "finished" or not is_same:
            return _LoadUse(is_unused=False, has_equal_stores=log.are_values_equal)
    return _LoadUse(is_unused=True, has_equal_stores=log.are_values_equal)
