"""Remedies that were tried: the changed kernel is run again, and the finding is gone, or nothing is said.

Put `bar.sync 0;` (__syncthreads) before softmax.py:12, PTX line 240 (ld.shared.b32 %r1, [%r2]): tried, and this finding is gone.
Use the other parity at ring.cu:17, PTX line 75 (mbarrier.try_wait.parity…): tried, and the kernel finishes.

A trial runs on a copy of memory as it was before the run, so arrays keep what the kernel left in them. An insertion holds if the
edited kernel finishes, if the two instructions do not meet unordered any more, and if no others do that did not before. A
correction of a number of an mbarrier holds if the kernel finishes with the bytes that it expects, no wait comes too early, and
nothing is unordered that was ordered. Both hold in the order of the run, and with two other seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.assembly import assemble
from tilescope.machine.edits.barrier_numbers import MISTAKES_OF_WAITS, Stuck, corrections, stuck_of
from tilescope.machine.edits.change import KernelText
from tilescope.machine.edits.remedy_candidates import Candidate, candidates
from tilescope.machine.edits.trial import OTHER_SEEDS, Before, steps_made, steps_of_all_trials, trial_launch
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun, cluster_starts, run_grid
from tilescope.machine.program import Program
from tilescope.machine.report.race_report import wrong_bytes
from tilescope.machine.report.race_rules import severity_of
from tilescope.ptx import read_module
from tilescope.ptx.editing import Edit, edited
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.race import Conflict, Insertion, Mistake, Pcs, Remedy, Side

CANDIDATES_OF_A_FINDING = 16
_UNWRITTEN: frozenset[Mistake] = frozenset({"unwritten", "unwritten operand"})

Met = frozenset[int]  # where the instructions of a conflict stand in the text: one, or two in either order
Edits = tuple[Edit, ...]  # in the order of the text


def try_remedies(ptx: str, launch: Launch, result: GridRun, before: Before) -> None:
    """Give what ended a run, and its errors, a remedy that holds, where one of ours does."""
    if launch.detector is None or result.outcome == "stopped":
        return
    found = launch.detector.conflicts.found.values()
    errors = [one for one in found if severity_of(one) == "error"]
    stuck = stuck_of(launch, result)
    if not errors and stuck is None:
        return
    trials = _Trials(ptx, launch, before, errors, _weighty(found))
    cure = trials.cure(stuck, _stuck_block(launch, result))
    result.is_cure_untried = trials.has_run_out
    for conflict in errors:
        if cure is not None and conflict.pcs in cure.gone:
            conflict.remedy = cure
        else:
            conflict.remedy = trials.known_remedy(conflict) or trials.remedy_for(conflict)
            conflict.is_untried = trials.has_run_out
    if stuck is not None:
        result.cure = cure or next((one.remedy for one in errors if one.remedy is not None), None)


def _stuck_block(launch: Launch, result: GridRun) -> BlockIndex | None:
    """The first block of a cluster that did not finish; None where there is no other cluster."""
    if not result.waiting or launch.grid == launch.cluster:
        return None
    return result.waiting[0 if result.outcome == "hang" else -1].cluster.first_block


class _Finished(NamedTuple):
    """A trial that finished: what was still unordered, and the mbarriers of which a phase ended, by address."""

    left: frozenset[Met]
    ended: frozenset[int]


class _Trials:
    """Runs of edited kernels, each made once."""

    def __init__(
        self, ptx: str, launch: Launch, before: Before, errors: Sequence[Conflict], weighty: Sequence[Conflict]
    ) -> None:
        program = launch.program
        functions = tuple(program.module.functions[name] for name in program.functions)
        self._text = KernelText(ptx, program.module, functions)
        self._launch = launch
        self._before = before
        self._errors = errors
        self._met = [_met(program, one) for one in errors]
        self._known = {_met(program, one) for one in weighty}
        self._met_by_waits = {_met(program, one) for one in errors if one.mistake in MISTAKES_OF_WAITS}
        self._seeds = (before.seed, *OTHER_SEEDS)
        self._holding: list[Candidate] = []
        self._programs: dict[Edits, Program | None] = {}
        self._steps_left = steps_of_all_trials(launch)
        self.has_run_out = False  # something was not tried, because no steps or no time were left
        self._finished: dict[tuple[Edits, int | None], _Finished | None] = {}  # None: the run did not finish

    def cure(self, stuck: Stuck | None, block: BlockIndex | None) -> Remedy | None:
        """The first correction of a number that holds; a cluster that does not finish is run alone."""
        before = self._before
        if block is not None:
            before = before._replace(blocks=[block])
        stuck_barriers: tuple[int, ...] = () if stuck is None else stuck.addresses
        for corrected in corrections(self._launch, self._text, stuck, self._errors):
            edits = tuple(sorted(Edit(one.start, one.end, one.text) for one in corrected))
            if all(self._is_cured(edits, before, seed, stuck_barriers) for seed in self._seeds):
                return Remedy(self._gone(edits), corrections=corrected, block=block)
        return None

    def _is_cured(self, edits: Edits, before: Before, seed: int | None, stuck_barriers: Sequence[int]) -> bool:
        """Whether a run finishes in which no wait comes too early, and nothing is unordered that was ordered.

        A wait for a phase that nobody ends passes with the other parity too: so phases of the stuck mbarriers must end.
        """
        trial = self._trial(edits, before, seed)
        if trial is None or not trial.ended.issuperset(stuck_barriers):
            return False
        return trial.left.isdisjoint(self._met_by_waits) and trial.left.issubset(self._known)

    def known_remedy(self, conflict: Conflict) -> Remedy | None:
        """What cured another conflict, where it cures this one too: nothing is run for that."""
        return self._first_that_holds(self._holding, conflict)

    def remedy_for(self, conflict: Conflict) -> Remedy | None:
        """The first candidate that holds."""
        possible = candidates(self._launch, self._text, conflict)
        return self._first_that_holds(itertools.islice(possible, CANDIDATES_OF_A_FINDING), conflict)

    def _first_that_holds(self, tried: Iterable[Candidate], conflict: Conflict) -> Remedy | None:
        met = _met(self._launch.program, conflict)
        for candidate in tried:
            edits = tuple(sorted(self._edit(insertion) for insertion in candidate))
            if all(self._holds(edits, met, seed) for seed in self._seeds):
                if candidate not in self._holding:
                    self._holding.append(candidate)
                placed = tuple(one._replace(offset=self._edit(one).start) for one in candidate)
                return Remedy(self._gone(edits), insertions=placed)
        return None

    def _gone(self, edits: Edits) -> frozenset[Pcs]:
        """The errors that edits that hold have cured."""
        trial = self._finished[edits, self._before.seed]
        assert trial is not None  # they hold
        return frozenset(one.pcs for one, met in zip(self._errors, self._met, strict=True) if met not in trial.left)

    def _holds(self, edits: Edits, met: Met, seed: int | None) -> bool:
        """Whether a run finishes in which two instructions are ordered, and none are not that were before."""
        trial = self._trial(edits, self._before, seed)
        return trial is not None and met not in trial.left and trial.left.issubset(self._known)

    def _trial(self, edits: Edits, before: Before, seed: int | None) -> _Finished | None:
        """The run after edits; None where it does not finish, or cannot be made any more."""
        if (edits, seed) not in self._finished:
            if self._steps_left <= 0 or self._launch.is_late():
                self.has_run_out = True
                return None
            self._finished[edits, seed] = self._run(edits, before, seed)
        return self._finished[edits, seed]

    def _run(self, edits: Edits, before: Before, seed: int | None) -> _Finished | None:
        """What a run after edits leaves, by places in the text as it was."""
        program = self._program(edits)
        if program is None:
            return None
        launch = trial_launch(self._launch, program, before, seed, self._steps_left)
        with np.errstate(all="ignore"):
            result = run_grid(launch, cluster_starts(launch, before.blocks))
        self._steps_left -= steps_made(launch)
        if result.outcome == "stopped":
            self.has_run_out = True
        if result.outcome != "finished" or launch.detector is None or any(wrong_bytes(launch, result)):
            return None
        weighty = _weighty(launch.detector.conflicts.found.values())
        left = {frozenset(_original(start, edits) for start in _met(program, one)) for one in weighty}
        return _Finished(frozenset(left), frozenset(phase.address for phase in launch.phases))

    def _program(self, edits: Edits) -> Program | None:
        """The edited kernel; None where a name is not known there, or the target does not have an instruction."""
        if edits not in self._programs:
            self._steps_left -= len(self._launch.program.instructions)
            try:
                module = read_module(edited(self._text.short, edits))
                self._programs[edits] = assemble(module, module.functions[self._launch.program.entry.name])
            except RuleError:
                self._programs[edits] = None
        return self._programs[edits]

    def _edit(self, insertion: Insertion) -> Edit:
        instruction = self._launch.program.instructions[insertion.pc]
        assert instruction is not None
        if insertion.place == "before":
            return Edit(instruction.start, instruction.start, f"{insertion.text} ")
        end = self._text.statement(instruction).end
        return Edit(end, end, f" {insertion.text}")


def _weighty(found: Iterable[Conflict]) -> list[Conflict]:
    """Errors, and reads of bytes that nobody wrote: a remedy that brings in one of these is none."""
    return [one for one in found if severity_of(one) == "error" or one.mistake in _UNWRITTEN]


def _met(program: Program, conflict: Conflict) -> Met:
    """Where the instructions of a conflict stand."""
    return frozenset(_start(program, side) for side in _sides(conflict))


def _sides(conflict: Conflict) -> Iterator[Side]:
    yield conflict.now
    if conflict.before is not None:
        yield conflict.before


def _start(program: Program, side: Side) -> int:
    instruction = program.instructions[side.pc]
    return -1 if instruction is None else instruction.start


def _original(position: int, edits: Sequence[Edit]) -> int:
    """A place of an edited text in the text as it was: the instruction's that another stands in place of; -1 for what was inserted.

    >>> [_original(position, [Edit(4, 4, "bar; ")]) for position in (3, 4, 9)]
    [3, -1, 4]
    >>> [_original(position, [Edit(4, 8, "wait; ")]) for position in (3, 4, 10)]
    [3, 4, 8]
    """
    for edit in edits:
        if position < edit.start:
            break
        if position < edit.start + len(edit.text):
            return -1 if edit.start == edit.end else edit.start
        position += edit.end - edit.start - len(edit.text)
    return position
