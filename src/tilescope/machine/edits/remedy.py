"""Remedies that were tested: the edited kernel runs again, and only an edit that removes the finding is reported.

Put `bar.sync 0;` (__syncthreads) before softmax.py:12, PTX line 240 (ld.shared.b32 %r1, [%r2]): tried, and this finding is gone.
Use the other parity at ring.cu:17, PTX line 75 (mbarrier.try_wait.parity…): tried, and the kernel finishes.

A trial runs on a copy of the initial memory, so the arrays keep the results of the run itself. An edit passes if the
edited kernel finishes, if the two accesses are ordered, and if no other data race appears. A correction of an mbarrier operand
passes if the kernel finishes with the bytes that it expects, if no wait passes too early, and if no other data race appears.
Both must pass with the seed of the run and with other seeds. A trial ends as soon as it fails.

If no block waits for another one, the block of the conflict first runs without the others, which saves steps in large
grids.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.edits.barrier_numbers import WAIT_MISTAKES, Stuck, find_corrections, find_stuck_barriers
from tilescope.machine.edits.converged_places import Convergence, VisitCounter
from tilescope.machine.edits.kernel_text import Edits, KernelText
from tilescope.machine.edits.remedy_candidates import Candidate, find_candidates
from tilescope.machine.edits.trial import (
    OTHER_SEEDS,
    InitialState,
    make_trial,
    trial_step_budget,
    used_steps,
    walked_steps,
)
from tilescope.machine.execution.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.races.conflict_groups import ConflictGroup, group_conflicts, is_in_one_warp
from tilescope.machine.report.races.race_report import find_wrong_bytes
from tilescope.machine.report.races.race_rules import severity_of
from tilescope.ptx.editing import Edit
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.race import Conflict, Conflicts, Insertion, Mistake, Pcs, Remedy, Side
from tilescope.sync.trials import TrialBudget, Verdict, try_candidates

CANDIDATES_OF_A_FINDING = 24
_UNWRITTEN: frozenset[Mistake] = frozenset({"unwritten", "unwritten operand"})

Offsets = frozenset[int]  # of the instructions of a conflict in the text: one, or two in either order


def try_remedies(text: KernelText, launch: Launch, result: GridRun, initial: InitialState) -> None:
    """Test remedies for the errors of a run, and for its hang or fault, and note those that pass in the conflicts and the result."""
    if launch.detector is None or result.outcome == "stopped":
        return
    conflicts = launch.detector.reported_conflicts()
    groups = group_conflicts(launch.program, conflicts)
    tried = [group for group in groups if _is_tried(group[0])]
    wrong = find_wrong_bytes(launch, result)
    stuck = None
    if result.outcome != "finished" or any(wrong):
        stuck = find_stuck_barriers(launch, result, wrong)
    if not tried and stuck is None:
        return
    errors = [conflict for group in tried for conflict in group]
    trials = _Trials(text, launch, initial, conflicts, errors)
    correction = trials.find_correction(stuck, _first_stuck_block(launch, result))
    result.is_remedy_tried = stuck is not None
    result.is_remedy_untried = trials.budget.is_exhausted
    remedies = [] if correction is None else [correction]
    for group in sorted(tried, key=lambda group: is_in_one_warp(group[0])):  # a barrier of the block may fix both
        if any(_fixes(remedy, group) for remedy in remedies):
            continue
        remedy = trials.find_remedy(group)
        if remedy is not None:
            remedies.append(remedy)
        for conflict in group:
            conflict.is_untried = remedy is None and trials.budget.is_exhausted
    remedies += [*trials.join_remedies(remedies, tried)]
    _assign_remedies(groups, tried, remedies)
    if stuck is not None:
        result.remedy = correction or next((error.remedy for error in errors if error.remedy is not None), None)


def _is_tried(conflict: Conflict) -> bool:
    """Errors, and stale reads between lanes of a warp, which a bar.warp.sync may fix."""
    if severity_of(conflict) == "error":
        return True
    return conflict.mistake == "stale read" and is_in_one_warp(conflict)


def _fixes(remedy: Remedy, group: ConflictGroup) -> bool:
    return remedy.gone.issuperset(conflict.pcs for conflict in group)


def _assign_remedies(
    groups: Sequence[ConflictGroup], tried: Sequence[ConflictGroup], remedies: Sequence[Remedy]
) -> None:
    """Note in each conflict the remedy that fixes it and most others; in warnings, the one that removes them too."""
    widest = sorted(remedies, key=lambda remedy: -sum(_fixes(remedy, group) for group in tried))
    used: list[Remedy] = []
    for group in tried:
        remedy = next((remedy for remedy in widest if _fixes(remedy, group)), None)
        if remedy is not None:
            used.append(remedy)
        for conflict in group:
            conflict.remedy = remedy
    for group in groups:
        if severity_of(group[0]) == "warning" and group[0].remedy is None:
            for conflict in group:
                conflict.remedy = next((remedy for remedy in used if _fixes(remedy, group)), None)


def _first_stuck_block(launch: Launch, result: GridRun) -> BlockIndex | None:
    """The first block of a cluster that did not finish; None if the grid is a single cluster."""
    if not result.waiting or launch.grid == launch.cluster:
        return None
    return result.waiting[0 if result.outcome == "hang" else -1].cluster.first_block


class _Finished(NamedTuple):
    """A trial that finished: its remaining conflicts, and the addresses of mbarriers that completed a phase."""

    remaining: frozenset[Offsets]
    completed: frozenset[int]


@dataclass(slots=True)
class _WatchedConflicts(Conflicts):
    """The conflicts of a trial, which ends at the first one that shows that the edit does not help."""

    is_failure: Callable[[Conflict], bool] = field(kw_only=True)
    stop: Callable[[], None] = field(kw_only=True)
    has_failed: bool = False

    def add(self, conflict: Conflict) -> None:
        """Keep a conflict, or count it."""
        Conflicts.add(self, conflict)
        if not self.has_failed and self.is_failure(conflict):
            self.has_failed = True
            self.stop()


class _Trials:
    """Runs of edited kernels within the budget of a run."""

    def __init__(
        self,
        text: KernelText,
        launch: Launch,
        initial: InitialState,
        conflicts: Sequence[Conflict],
        errors: Sequence[Conflict],
    ) -> None:
        program = launch.program
        self._text = text
        self._launch = launch
        self._initial = initial
        self._conflicts = conflicts
        self._errors = errors
        assert launch.detector is not None
        all_conflicts = launch.detector.conflicts.found.values()
        self._known_offsets = {_conflict_offsets(program, conflict) for conflict in all_conflicts}
        early_waits = [conflict for conflict in errors if conflict.mistake in WAIT_MISTAKES]
        self._early_wait_offsets = frozenset(_conflict_offsets(program, conflict) for conflict in early_waits)
        self._passing: list[Candidate] = []
        self._assembled: set[Edits] = set()
        self.budget = TrialBudget(trial_step_budget(launch))

    def find_correction(self, stuck: Stuck | None, block: BlockIndex | None) -> Remedy | None:
        """The first correction of a barrier's numbers that removes all errors, or the first that lets the kernel finish.

        A cluster that does not finish runs without the others.
        """
        if stuck is None and not self._early_wait_offsets:
            return None
        initial = self._initial if block is None else self._initial._replace(blocks=[block])
        stuck_addresses: tuple[int, ...] = () if stuck is None else stuck.addresses
        fixed_conflicts: dict[Candidate, frozenset[Pcs]] = {}

        def judge(candidate: Candidate) -> Verdict:
            edits = self._edits_of(candidate)
            finished = []
            for seed in self._seeds(initial):
                trial = self._run(edits, initial, seed, self._early_wait_offsets)
                # With the other parity, a wait for a phase that never completes would pass too.
                if trial is None or not trial.completed.issuperset(stuck_addresses):
                    return "fails"
                finished.append(trial)
            fixed_conflicts[candidate] = self._fixed_conflicts(finished, block)
            return "fixes" if fixed_conflicts[candidate].issuperset(error.pcs for error in self._errors) else "helps"

        corrections = find_corrections(self._launch, self._text, stuck, self._errors)
        result = try_candidates(
            (Candidate(corrections=correction_group) for correction_group in corrections), judge, self.budget
        )
        best = result.fix or result.help
        return None if best is None else Remedy(fixed_conflicts[best], corrections=best.corrections, block=block)

    def find_remedy(self, group: ConflictGroup) -> Remedy | None:
        """The first candidate that passes; those that fix other conflicts are tried first."""
        conflict = group[0]
        targets = frozenset(_conflict_offsets(self._launch.program, other) for other in group)
        remedies: dict[Candidate, Remedy] = {}

        def judge(candidate: Candidate) -> Verdict:
            remedy = self._test(candidate, conflict, targets)
            if remedy is None:
                return "fails"
            remedies[candidate] = remedy
            return "fixes"

        all_candidates = find_candidates(self._launch, self._text, conflict, lambda: self._convergence)
        new_candidates = filter(self._has_places, all_candidates)
        candidates = itertools.chain(self._passing, itertools.islice(new_candidates, CANDIDATES_OF_A_FINDING))
        fix = try_candidates(candidates, judge, self.budget).fix
        if fix is None:
            return None
        if fix not in self._passing:
            self._passing.append(fix)
        return remedies[fix]

    def join_remedies(self, remedies: Sequence[Remedy], groups: Sequence[ConflictGroup]) -> Iterator[Remedy]:
        """Remedies that pass together, and insert the same instruction at the same source lines: one mistake needs both places.

        The last copy of an unrolled loop lacks the store of the next tile: a barrier before the loads leaves the stores unordered, and
        a barrier before the stores leaves the last load.
        """
        for first, second in itertools.combinations(remedies, 2):
            texts = {insertion.text for insertion in (*first.insertions, *second.insertions)}
            fixed = [[group for group in groups if _fixes(remedy, group)] for remedy in (first, second)]
            lines = [frozenset(itertools.chain.from_iterable(map(self._lines, fixed_groups))) for fixed_groups in fixed]
            is_insertion = not (first.corrections or second.corrections) and len(texts) == 1
            if not is_insertion or not all(fixed) or not (lines[0] <= lines[1] or lines[1] <= lines[0]):
                continue
            both = [*fixed[0], *fixed[1]]
            targets = frozenset(
                _conflict_offsets(self._launch.program, conflict) for group in both for conflict in group
            )
            insertions = sorted({*first.insertions, *second.insertions}, key=lambda insertion: insertion.pc)
            remedy = self._test(Candidate(tuple(insertions)), both[0][0], targets)
            if remedy is not None:
                yield remedy

    def _lines(self, group: ConflictGroup) -> frozenset[object]:
        """The source lines of the accesses of conflicts, or their instructions in a text without source lines."""
        pcs = [pc for conflict in group for pc in conflict.pcs if pc is not None]
        instructions = {pc: self._launch.program.instructions[pc] for pc in pcs}
        return frozenset(
            pc if instruction is None or instruction.source is None else instruction.source
            for pc, instruction in instructions.items()
        )

    def _test(self, candidate: Candidate, conflict: Conflict, targets: frozenset[Offsets]) -> Remedy | None:
        """The remedy that a candidate makes, if runs finish in which a conflict does not remain and no new one appears."""
        edits = self._edits_of(candidate)
        block = self._single_block(conflict)
        initial = self._initial if block is None else self._initial._replace(blocks=[block])
        finished = []
        for seed in self._seeds(initial):
            trial = self._run(edits, initial, seed, targets)
            if trial is None:
                return None
            finished.append(trial)
        if block is not None and self.budget.left > used_steps(self._launch):
            trial = self._run(edits, self._initial, self._initial.seed, targets)
            if trial is None:
                return None
            finished = [trial]
            block = None
        insertions = tuple(self._place(insertion) for insertion in candidate.insertions)
        fixed_conflicts = self._fixed_conflicts(finished, block)
        return Remedy(fixed_conflicts, insertions, candidate.corrections, block)

    def _seeds(self, initial: InitialState) -> tuple[int | None, ...]:
        """The seed of the run, and other ones: fewer for long runs, so that several candidates have their turn."""
        steps = used_steps(self._launch)
        if initial.blocks is not None and len(initial.blocks) == 1:
            steps = steps * self._launch.cluster_blocks // max(1, self._blocks_run)
        others = len(OTHER_SEEDS) if (len(OTHER_SEEDS) + 2) * steps <= self.budget.total else 1
        return initial.seed, *OTHER_SEEDS[:others]

    @property
    def _blocks_run(self) -> int:
        if self._initial.blocks is not None:
            return len(self._initial.blocks)
        width, height, depth = self._launch.grid
        return width * height * depth

    def _single_block(self, conflict: Conflict) -> BlockIndex | None:
        """The block that can run without the others to judge a conflict; None if others must run too."""
        is_alone = self._blocks_run <= self._launch.cluster_blocks
        if is_alone or conflict.is_between_clusters or self._launch.program.fact(_has_global_flags):
            return None
        return conflict.block

    def _fixed_conflicts(self, finished: Sequence[_Finished], block: BlockIndex | None) -> frozenset[Pcs]:
        """The conflicts that remain in none of some trials; of other clusters than the one that ran nothing is known."""
        fixed = []
        for conflict in self._conflicts:
            has_run = block is None or self._first_block(conflict.block) == self._first_block(block)
            offsets = _conflict_offsets(self._launch.program, conflict)
            if has_run and not any(offsets in trial.remaining for trial in finished):
                fixed.append(conflict.pcs)
        return frozenset(fixed)

    def _first_block(self, block: BlockIndex) -> tuple[int, ...]:
        """The first block of the cluster of a block."""
        return tuple(index - index % extent for index, extent in zip(block, self._launch.cluster, strict=True))

    @cached_property
    def _convergence(self) -> Convergence:
        """Which threads reach which places, from one more run of the kernel as it is."""
        counter = VisitCounter(self._launch.program)
        launch = make_trial(
            self._launch,
            counter.counting_program(),
            self._initial,
            self._initial.seed,
            self.budget.left,
            is_judged=False,
        )
        with np.errstate(all="ignore"):
            run_grid(launch, cluster_starts(launch, self._initial.blocks))
        self.budget.spend(used_steps(launch))
        return Convergence(counter)

    def _run(
        self, edits: Edits, initial: InitialState, seed: int | None, targets: frozenset[Offsets]
    ) -> _Finished | None:
        """The trial after edits; None if it does not finish, if a target remains, or if a new error appears."""
        if edits not in self._assembled:  # counts even if an earlier run of this kernel has assembled it
            self._assembled.add(edits)
            self.budget.spend(len(self._launch.program.instructions))
        program = self._text.program_after(edits)
        if program is None:
            return None
        if self.budget.left <= 0:
            self.budget.is_exhausted = True
            return None
        launch = make_trial(self._launch, program, initial, seed, self.budget.left)
        assert launch.detector is not None

        def original_offsets(conflict: Conflict) -> Offsets:
            return frozenset(_original_offset(offset, edits) for offset in _conflict_offsets(program, conflict))

        def is_failure(conflict: Conflict) -> bool:
            offsets = original_offsets(conflict)
            return offsets in targets or (_is_serious(conflict) and offsets not in self._known_offsets)

        def stop() -> None:
            launch.steps_left = min(launch.steps_left, 0)

        conflicts = _WatchedConflicts(is_failure=is_failure, stop=stop)
        launch.detector.conflicts = conflicts
        with np.errstate(all="ignore"):
            result = run_grid(launch, cluster_starts(launch, initial.blocks))
        self.budget.spend(launch.steps + walked_steps(launch) if conflicts.has_failed else used_steps(launch))
        if conflicts.has_failed:
            return None
        if result.outcome == "stopped":
            self.budget.is_exhausted = True
        if result.outcome != "finished" or any(find_wrong_bytes(launch, result)):
            return None
        remaining = frozenset(original_offsets(conflict) for conflict in launch.detector.reported_conflicts())
        return _Finished(remaining, frozenset(phase.address for phase in launch.phases))

    def _has_places(self, candidate: Candidate) -> bool:
        """Whether its insertions have a place in the text. The return at the end of a body that does not end with one has none."""
        instructions = self._launch.program.instructions
        return all(instructions[insertion.pc] is not None for insertion in candidate.insertions)

    def _edits_of(self, candidate: Candidate) -> Edits:
        insertions = (self._make_edit(insertion) for insertion in candidate.insertions)
        corrections = (Edit(correction.start, correction.end, correction.text) for correction in candidate.corrections)
        return tuple(sorted([*insertions, *corrections]))

    def _place(self, insertion: Insertion) -> Insertion:
        return insertion._replace(offset=self._make_edit(insertion).start)

    def _make_edit(self, insertion: Insertion) -> Edit:
        instruction = self._launch.program.instructions[insertion.pc]
        assert instruction is not None
        if insertion.place == "before":
            return Edit(instruction.start, instruction.start, f"{insertion.text} ")
        end = self._text.statement(instruction).end
        return Edit(end, end, f" {insertion.text}")


def _has_global_flags(program: Program) -> bool:
    """Whether blocks may wait for each other: the program has atomics, or strong accesses, outside of shared memory."""
    accesses = zip(program.fact(decode_accesses), program.instructions, strict=True)
    return any(
        access is not None
        and access.is_strong
        and instruction is not None
        and not any(word.startswith("shared") for word in instruction.modifiers)
        for access, instruction in accesses
    )


def _is_serious(conflict: Conflict) -> bool:
    """Errors, and reads of uninitialised bytes: an edit that introduces one of these is not a remedy."""
    return severity_of(conflict) == "error" or conflict.mistake in _UNWRITTEN


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
