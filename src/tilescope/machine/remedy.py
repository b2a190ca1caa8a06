"""Remedies that were tried: the text with an instruction more is run again, and the finding is gone, or nothing is said.

Put `bar.sync 0;` (__syncthreads) before softmax.py:12, PTX line 240 (ld.shared.b32 %r1, [%r2]): tried, and this finding is gone.

A trial runs on a copy of memory as it was before the run, so arrays keep what the kernel left in them. It holds if the edited
kernel finishes, if the two instructions do not meet unordered any more, and if no others do that did not before: in the
order of the run, and with two other seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.assembly import assemble
from tilescope.machine.grid import GridRun, cluster_starts, run_grid
from tilescope.machine.launch import Launch
from tilescope.machine.mutation.change import KernelText
from tilescope.machine.order.conflict import Conflict, Insertion, Remedy, Side
from tilescope.machine.order_rules import severity_of
from tilescope.machine.program import Program
from tilescope.machine.remedy_candidates import Candidate, candidates
from tilescope.machine.trial import OTHER_SEEDS, Before, trial_launch
from tilescope.ptx import read_module
from tilescope.ptx.editing import Edit, edited

FINDINGS_TRIED = 5  # the first errors
CANDIDATES_OF_A_FINDING = 16
STEPS_OF_ALL_TRIALS = 8  # times those of the run; short runs have SHORT_STEPS
SHORT_STEPS = 20_000

Met = frozenset[int]  # where the instructions of a conflict stand in the text: one, or two in either order


def try_remedies(ptx: str, launch: Launch, result: GridRun, before: Before) -> None:
    """Give the first errors of a run a remedy that holds, where one of ours does."""
    if launch.order is None or result.outcome == "stopped":
        return
    errors = [one for one in launch.order.conflicts.found.values() if severity_of(one) == "error"]
    if not errors:
        return
    trials = _Trials(ptx, launch, before, errors)
    for number, conflict in enumerate(errors):
        conflict.remedy = trials.known_remedy(conflict)
        if conflict.remedy is None and number < FINDINGS_TRIED:
            conflict.remedy = trials.remedy_for(conflict)


class _Trials:
    """Runs of edited kernels, each made once."""

    def __init__(self, ptx: str, launch: Launch, before: Before, errors: Sequence[Conflict]) -> None:
        program = launch.program
        functions = tuple(program.module.functions[name] for name in program.functions)
        self._text = KernelText(ptx, program.module, functions)
        self._launch = launch
        self._before = before
        self._errors = errors
        self._met = [_met(program, one) for one in errors]
        self._holding: list[Candidate] = []
        self._programs: dict[Candidate, Program | None] = {}
        self._steps = launch.max_steps - launch.steps_left
        self._steps_left = max(SHORT_STEPS, STEPS_OF_ALL_TRIALS * self._steps)
        self._left: dict[
            tuple[Candidate, int | None], set[Met] | None
        ] = {}  # what is still unordered; None: the run did not finish

    def known_remedy(self, conflict: Conflict) -> Remedy | None:
        """What cured another conflict, where it cures this one too: nothing is run for that."""
        return self._first_that_holds(self._holding, conflict)

    def remedy_for(self, conflict: Conflict) -> Remedy | None:
        """The first candidate that holds."""
        possible = candidates(self._launch, self._text, conflict)
        return self._first_that_holds(itertools.islice(possible, CANDIDATES_OF_A_FINDING), conflict)

    def _first_that_holds(self, tried: Iterable[Candidate], conflict: Conflict) -> Remedy | None:
        met = _met(self._launch.program, conflict)
        seeds = (self._before.seed, *OTHER_SEEDS)
        for candidate in tried:
            if all(self._holds(candidate, met, seed) for seed in seeds):
                if candidate not in self._holding:
                    self._holding.append(candidate)
                return self._remedy(candidate)
        return None

    def _remedy(self, candidate: Candidate) -> Remedy:
        left = self._left[candidate, self._before.seed]
        assert left is not None  # it holds
        gone = frozenset(one.pcs for one, met in zip(self._errors, self._met, strict=True) if met not in left)
        return Remedy(tuple(one._replace(offset=self._edit(one).start) for one in candidate), gone)

    def _holds(self, candidate: Candidate, met: Met, seed: int | None) -> bool:
        """Whether a run finishes in which two instructions are ordered, and none are not that were before."""
        if (candidate, seed) not in self._left:
            if self._steps_left <= 0 or self._launch.is_late():
                return False
            self._left[candidate, seed] = self._run(candidate, seed)
        left = self._left[candidate, seed]
        return left is not None and met not in left and left.issubset(self._met)

    def _run(self, candidate: Candidate, seed: int | None) -> set[Met] | None:
        """What nothing orders after an edit, by places in the text as it was."""
        edits = sorted(self._edit(insertion) for insertion in candidate)
        program = self._program(candidate, edits)
        if program is None:
            return None
        launch = trial_launch(self._launch, program, self._before, seed)
        with np.errstate(all="ignore"):
            result = run_grid(launch, cluster_starts(launch, self._before.blocks))
        self._steps_left -= launch.max_steps - launch.steps_left
        if result.outcome != "finished" or launch.order is None:
            return None
        errors = [one for one in launch.order.conflicts.found.values() if severity_of(one) == "error"]
        return {frozenset(_original(start, edits) for start in _met(program, one)) for one in errors}

    def _program(self, candidate: Candidate, edits: Sequence[Edit]) -> Program | None:
        """The edited kernel; None where a name is not known there, or the target does not have an instruction."""
        if candidate not in self._programs:
            try:
                module = read_module(edited(self._text.short, edits))
                self._programs[candidate] = assemble(module, module.functions[self._launch.program.entry.name])
            except RuleError:
                self._programs[candidate] = None
        return self._programs[candidate]

    def _edit(self, insertion: Insertion) -> Edit:
        instruction = self._launch.program.instructions[insertion.pc]
        assert instruction is not None
        if insertion.place == "before":
            return Edit(instruction.start, instruction.start, f"{insertion.text} ")
        end = self._text.statement(instruction).end
        return Edit(end, end, f" {insertion.text}")


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
    """A place of an edited text in the text as it was; -1 for what was inserted.

    >>> [_original(position, [Edit(4, 4, "bar; ")]) for position in (3, 4, 9)]
    [3, -1, 4]
    """
    for edit in edits:
        if position < edit.start:
            break
        if position < edit.start + len(edit.text):
            return -1
        position -= len(edit.text)
    return position
