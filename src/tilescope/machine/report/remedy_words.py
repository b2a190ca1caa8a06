"""Remedies in words, and as data: what was put or written otherwise, where, and what came of it.

Put `bar.sync 0;` (__syncthreads()) before mm.py:12, PTX line 240 (ld.shared…): tried, and this finding is gone.
Use the other parity at ring.cu:34, PTX lines 147 and 204: tried with block (0, 0, 0), and the kernel finishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilescope.errors import Change, Violation, Wording
from tilescope.machine.edits.trial import steps_of_all_trials
from tilescope.machine.launch.launch import Launch
from tilescope.machine.launch_grid import GridRun
from tilescope.machine.program import Program
from tilescope.machine.report.places import instruction_named
from tilescope.rule import Rule
from tilescope.sentence import Facts, counted, listed
from tilescope.sync.detector.race import Correction, Insertion, Remedy

FINDING_GONE = "this finding is gone[[, and {others_gone:other} with it]]"
KERNEL_FINISHES = "the kernel finishes"
_PUT = "Put {insertions:and}: tried[[ with block {tried_block}]], and "
_USE = "Use {corrections:and}: tried[[ with block {tried_block}]], and "
_UNTRIED = "Not all remedies were tried: their runs end after {trial_steps:step}[[, or when the whole takes {max_seconds} seconds]]."
_LINES_TOLD = 6
_PLACE_WORDS: dict[str | int, str] = {"before": "before", "behind": "after"}  # of an insertion
_IN_CUDA: dict[str | int, str] = {
    "bar.sync 0;": "__syncthreads()",
    "bar.warp.sync 0xffffffff;": "__syncwarp()",
    "barrier.cluster.arrive; barrier.cluster.wait;": "cluster.sync()",
    "fence.acq_rel.gpu;": "__threadfence()",
    "fence.acq_rel.cta;": "__threadfence_block()",
}


def of_what_ended(wording: Wording | Rule, launch: Launch, result: GridRun, facts: Facts) -> Violation:
    """A finding about what ended a run, with what lets the kernel finish, if that is known."""
    if result.cure is not None:
        return cured(wording, launch, result.cure, KERNEL_FINISHES, facts)
    return untried(wording, launch, facts) if result.is_cure_untried else wording.violation(**facts)


def cured(wording: Wording | Rule, launch: Launch, remedy: Remedy, came_of_it: str, facts: Facts) -> Violation:
    """A finding whose fix is a remedy that was tried."""
    program = launch.program
    tried: dict[str, Any] = {"tried_block": remedy.block}
    change: Change
    if remedy.corrections:
        fix = _USE
        tried["corrections"] = _corrected(program, remedy.corrections)
        change = {"replace_ptx": [_replacement(program, one) for one in remedy.corrections]}
    else:
        fix = _PUT
        places = [_inserted(program, one) for one in remedy.insertions]
        tried["insertions"] = _put(places)
        change = {"insert_ptx": places}
    return wording.worded(fix=f"{fix}{came_of_it}.").violation(change=change, **facts, **tried)


def untried(wording: Wording | Rule, launch: Launch, facts: Facts) -> Violation:
    """A finding for which not everything was tried that could cure it."""
    limits: dict[str, Any] = {"trial_steps": steps_of_all_trials(launch), "max_seconds": launch.max_seconds}
    return wording.worded(fix=f"{wording.fix} {_UNTRIED}").violation(**facts, **limits)


def _replacement(program: Program, correction: Correction) -> dict[str, str | int]:
    """A correction as data: the text, and the characters of the PTX that it stands in place of."""
    instruction = program.instructions[correction.pc]
    assert instruction is not None
    return {
        "text": correction.text,
        "line": instruction.line,
        "start": correction.start,
        "end": correction.end,
        "where": instruction_named(program, correction.pc),
    }


def _corrected(program: Program, corrections: Sequence[Correction]) -> list[str]:
    """Corrections in words; one number at several instructions is written once."""
    by_number: dict[str, list[int]] = {}
    for one in corrections:
        by_number.setdefault(one.number, []).append(one.pc)
    return [f"{number} at {_places(program, pcs)}" for number, pcs in by_number.items()]


def _places(program: Program, pcs: Sequence[int]) -> str:
    """One instruction with its text; of several the lines: "ring.cu:34, PTX lines 147, 204 and 300"."""
    if len(pcs) == 1:
        return instruction_named(program, pcs[0])
    instructions = [one for pc in pcs if (one := program.instructions[pc]) is not None]
    lines = [str(one.line) for one in instructions]
    if len(lines) > _LINES_TOLD:
        lines = [*lines[:_LINES_TOLD], counted(len(lines) - _LINES_TOLD, "other")]
    sources = {str(one.source) for one in instructions if one.source is not None}
    return ", ".join([*sorted(sources), f"PTX lines {listed(lines)}"])


def _inserted(program: Program, insertion: Insertion) -> dict[str, str | int]:
    """An insertion as data: the text, and the instruction before or after which it is put."""
    instruction = program.instructions[insertion.pc]
    assert instruction is not None
    return {
        "text": insertion.text,
        "place": insertion.place,
        "line": instruction.line,
        "offset": insertion.offset,
        "where": instruction_named(program, insertion.pc),
    }


def _put(places: list[dict[str, str | int]]) -> list[str]:
    """Insertions in words; one text at several places is written once."""
    by_text: dict[str | int, list[str]] = {}
    for one in places:
        by_text.setdefault(one["text"], []).append(f"{_PLACE_WORDS[one['place']]} {one['where']}")
    phrases = []
    for text, spots in by_text.items():
        in_cuda = _IN_CUDA.get(text)
        name = f"`{text}`" if in_cuda is None else f"`{text}` ({in_cuda})"
        phrases.append(f"{name} {listed(spots)}")
    return phrases
