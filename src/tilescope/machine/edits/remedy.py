"""Remedies that were tested: the edited kernel runs again, and only an edit that removes the finding is reported.

Put `bar.sync 0;` (__syncthreads) before softmax.py:12, PTX line 240 (ld.shared.b32 %r1, [%r2]): tried, and this finding is gone.
Use the other parity at ring.cu:17, PTX line 75 (mbarrier.try_wait.parity…): tried, and the kernel finishes.

A trial runs on a copy of the initial memory, so the arrays keep the results of the run itself. An insertion passes if the
edited kernel finishes, if the two accesses are ordered, and if no other data race appears. A correction of an mbarrier operand
passes if the kernel finishes with the bytes that it expects, if no wait passes too early, and if no other data race appears.
Both must pass with the seed of the run and with two other seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tilescope.machine.edits.barrier_numbers import WAIT_MISTAKES, Stuck, find_corrections, find_stuck_mbarriers
from tilescope.machine.edits.kernel_text import Edits, KernelText
from tilescope.machine.edits.remedy_candidates import Candidate, find_candidates
from tilescope.machine.edits.trial import OTHER_SEEDS, InitialState, make_trial, trial_step_budget, used_steps
from tilescope.machine.execution.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.race_report import find_wrong_bytes
from tilescope.machine.report.race_rules import severity_of
from tilescope.ptx.editing import Edit
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.race import Conflict, Insertion, Mistake, Pcs, Remedy, Side

CANDIDATES_OF_A_FINDING = 16
_UNWRITTEN: frozenset[Mistake] = frozenset({"unwritten", "unwritten operand"})

Offsets = frozenset[int]  # of the instructions of a conflict in the text: one, or two in either order


def try_remedies(text: KernelText, launch: Launch, result: GridRun, initial: InitialState) -> None:
    """Test remedies for the errors of a run, and for its hang or fault, and note those that pass in the conflicts and the result."""
    if launch.detector is None or result.outcome == "stopped":
        return
    conflicts = launch.detector.reported_conflicts()
    errors = [conflict for conflict in conflicts if severity_of(conflict) == "error"]
    wrong = find_wrong_bytes(launch, result)
    stuck = None
    if result.outcome != "finished" or any(wrong):
        stuck = find_stuck_mbarriers(launch, result, wrong)
    if not errors and stuck is None:
        return
    trials = _Trials(text, launch, initial, errors, _select_serious(conflicts))
    correction = trials.find_correction(stuck, _first_stuck_block(launch, result))
    result.is_remedy_untried = trials.is_exhausted
    for conflict in errors:
        if correction is not None and conflict.pcs in correction.gone:
            conflict.remedy = correction
        else:
            conflict.remedy = trials.reuse_remedy(conflict) or trials.find_remedy(conflict)
            conflict.is_untried = trials.is_exhausted
    if stuck is not None:
        result.remedy = correction or next((error.remedy for error in errors if error.remedy is not None), None)


def _first_stuck_block(launch: Launch, result: GridRun) -> BlockIndex | None:
    """The first block of a cluster that did not finish; None if the grid is a single cluster."""
    if not result.waiting or launch.grid == launch.cluster:
        return None
    return result.waiting[0 if result.outcome == "hang" else -1].cluster.first_block


class _Finished(NamedTuple):
    """A trial that finished: its remaining conflicts, and the addresses of mbarriers that completed a phase."""

    remaining: frozenset[Offsets]
    completed: frozenset[int]


class _Trials:
    """Runs of edited kernels; each edit is tested once with each seed."""

    def __init__(
        self,
        text: KernelText,
        launch: Launch,
        initial: InitialState,
        errors: Sequence[Conflict],
        serious: Sequence[Conflict],
    ) -> None:
        program = launch.program
        self._text = text
        self._launch = launch
        self._initial = initial
        self._errors = errors
        self._error_offsets = [_conflict_offsets(program, conflict) for conflict in errors]
        self._known_offsets = {_conflict_offsets(program, conflict) for conflict in serious}
        early_waits = [conflict for conflict in errors if conflict.mistake in WAIT_MISTAKES]
        self._early_wait_offsets = {_conflict_offsets(program, conflict) for conflict in early_waits}
        self._seeds = (initial.seed, *OTHER_SEEDS)
        self._passing: list[Candidate] = []
        self._assembled: set[Edits] = set()
        self._steps_left = trial_step_budget(launch)
        self.is_exhausted = False  # a trial was left out, because no steps or no time were left
        self._finished: dict[tuple[Edits, int | None], _Finished | None] = {}  # None: the run did not finish

    def find_correction(self, stuck: Stuck | None, block: BlockIndex | None) -> Remedy | None:
        """The first correction of an mbarrier operand that passes; a cluster that does not finish is run alone."""
        if stuck is None and not self._early_wait_offsets:
            return None
        initial = self._initial
        if block is not None:
            initial = initial._replace(blocks=[block])
        stuck_addresses: tuple[int, ...] = () if stuck is None else stuck.addresses
        for corrections in find_corrections(self._launch, self._text, stuck, self._errors):
            edits = tuple(sorted(Edit(correction.start, correction.end, correction.text) for correction in corrections))
            if all(self._corrects(edits, initial, seed, stuck_addresses) for seed in self._seeds):
                return Remedy(self._fixed_errors(edits), corrections=corrections, block=block)
        return None

    def _corrects(self, edits: Edits, initial: InitialState, seed: int | None, stuck_addresses: Sequence[int]) -> bool:
        """Whether a run finishes in which no wait passes too early, and no new conflict appears.

        With the other parity, a wait for a phase that never completes would pass too. So the stuck mbarriers must complete a
        phase.
        """
        trial = self._run_once(edits, initial, seed)
        if trial is None or not trial.completed.issuperset(stuck_addresses):
            return False
        return trial.remaining.isdisjoint(self._early_wait_offsets) and trial.remaining.issubset(self._known_offsets)

    def reuse_remedy(self, conflict: Conflict) -> Remedy | None:
        """The remedy of another conflict, if it fixes this one too; that needs no further run."""
        return self._first_passing(self._passing, conflict)

    def find_remedy(self, conflict: Conflict) -> Remedy | None:
        """The first candidate that passes."""
        candidates = find_candidates(self._launch, self._text, conflict)
        return self._first_passing(itertools.islice(candidates, CANDIDATES_OF_A_FINDING), conflict)

    def _first_passing(self, candidates: Iterable[Candidate], conflict: Conflict) -> Remedy | None:
        offsets = _conflict_offsets(self._launch.program, conflict)
        for candidate in candidates:
            edits = tuple(sorted(self._make_edit(insertion) for insertion in candidate))
            if all(self._orders(edits, offsets, seed) for seed in self._seeds):
                if candidate not in self._passing:
                    self._passing.append(candidate)
                placed = tuple(insertion._replace(offset=self._make_edit(insertion).start) for insertion in candidate)
                return Remedy(self._fixed_errors(edits), insertions=placed)
        return None

    def _fixed_errors(self, edits: Edits) -> frozenset[Pcs]:
        """The errors that do not remain after edits that pass."""
        trial = self._finished[edits, self._initial.seed]
        assert trial is not None  # they pass
        errors = zip(self._errors, self._error_offsets, strict=True)
        return frozenset(error.pcs for error, offsets in errors if offsets not in trial.remaining)

    def _orders(self, edits: Edits, offsets: Offsets, seed: int | None) -> bool:
        """Whether a run finishes in which a conflict does not remain, and no new one appears."""
        trial = self._run_once(edits, self._initial, seed)
        return trial is not None and offsets not in trial.remaining and trial.remaining.issubset(self._known_offsets)

    def _run_once(self, edits: Edits, initial: InitialState, seed: int | None) -> _Finished | None:
        """The trial after edits; None if it does not finish, or the budget is exhausted."""
        if (edits, seed) not in self._finished:
            if self._steps_left <= 0 or self._launch.is_late():
                self.is_exhausted = True
                return None
            self._finished[edits, seed] = self._run(edits, initial, seed)
        return self._finished[edits, seed]

    def _run(self, edits: Edits, initial: InitialState, seed: int | None) -> _Finished | None:
        if edits not in self._assembled:  # counts even if an earlier run of this kernel has assembled it
            self._assembled.add(edits)
            self._steps_left -= len(self._launch.program.instructions)
        program = self._text.program_after(edits)
        if program is None:
            return None
        launch = make_trial(self._launch, program, initial, seed, self._steps_left)
        with np.errstate(all="ignore"):
            result = run_grid(launch, cluster_starts(launch, initial.blocks))
        self._steps_left -= used_steps(launch)
        if result.outcome == "stopped":
            self.is_exhausted = True
        if result.outcome != "finished" or launch.detector is None or any(find_wrong_bytes(launch, result)):
            return None
        serious = _select_serious(launch.detector.reported_conflicts())
        remaining = {
            frozenset(_original_offset(offset, edits) for offset in _conflict_offsets(program, conflict))
            for conflict in serious
        }
        return _Finished(frozenset(remaining), frozenset(phase.address for phase in launch.phases))

    def _make_edit(self, insertion: Insertion) -> Edit:
        instruction = self._launch.program.instructions[insertion.pc]
        assert instruction is not None
        if insertion.place == "before":
            return Edit(instruction.start, instruction.start, f"{insertion.text} ")
        end = self._text.statement(instruction).end
        return Edit(end, end, f" {insertion.text}")


def _select_serious(conflicts: Iterable[Conflict]) -> list[Conflict]:
    """Errors, and reads of uninitialised bytes: an edit that introduces one of these is not a remedy."""
    return [conflict for conflict in conflicts if severity_of(conflict) == "error" or conflict.mistake in _UNWRITTEN]


def _conflict_offsets(program: Program, conflict: Conflict) -> Offsets:
    sides = [conflict.now] if conflict.before is None else [conflict.now, conflict.before]
    return frozenset(_text_offset(program, side) for side in sides)


def _text_offset(program: Program, side: Side) -> int:
    instruction = program.instructions[side.pc]
    return -1 if instruction is None else instruction.start


def _original_offset(offset: int, edits: Edits) -> int:
    """The offset in the original text of an instruction of the edited text; -1 for an inserted instruction.

    >>> [_original_offset(offset, (Edit(4, 4, "bar; "),)) for offset in (3, 4, 9)]
    [3, -1, 4]
    >>> [_original_offset(offset, (Edit(4, 8, "wait; "),)) for offset in (3, 4, 10)]
    [3, 4, 8]
    """
    for edit in edits:
        if offset < edit.start:
            break
        if offset < edit.start + len(edit.text):
            return -1 if edit.start == edit.end else edit.start
        offset += edit.end - edit.start - len(edit.text)
    return offset
