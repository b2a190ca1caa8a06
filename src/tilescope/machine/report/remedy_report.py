"""Findings with a remedy that was tested: what was inserted or replaced, where, and the result, as a message and as data.

Put `__syncthreads()` (`bar.sync 0;`) before mm.cu:12, PTX line 240 (ld.shared…): tried, and this finding is gone.
Use the other parity at ring.cu:34, PTX lines 147 and 204: tried with block (0, 0, 0), and the kernel finishes.

Instructions are spelled as the source of the kernel spells them. The .loc lines of a text name its source files: .cu and headers are
CUDA C++, with CuTe if functions of cute or cutlass were inlined; .py is Triton or Gluon. A text without .loc was written by hand, and PTX
is its language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from tilescope.errors import Change, Violation, Wording
from tilescope.machine.edits.trial import trial_step_budget
from tilescope.machine.execution.launch_grid import GridRun
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.places import name_instruction
from tilescope.machine.report.source_spelling import SPELLINGS
from tilescope.ptx.syntax import SourceLine
from tilescope.sentence import Facts, counted, listed
from tilescope.sync.detector.race import Correction, Insertion, Remedy

Language = Literal["cuda", "triton", "cute"]

_CUDA_FILES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp", ".inl", ".inc")
_CUTE_NAMES = ("cute", "cutlass")
FINDING_GONE = "this finding is gone[[, and {others_gone:other} with it, at {also_at}]]"
KERNEL_FINISHES = "the kernel finishes"
_PUT = "Put {insertions:and}: tried[[ with block {tried_block}]], and "
_USE = "Use {corrections:and}: tried[[ with block {tried_block}]], and "
_UNTRIED = "Not all remedies were tried: their runs end after {trial_steps:step}."
_NONE_FOUND = "No change that was tried lets the kernel finish. "
_LINES_NAMED = 6
_PREPOSITIONS = {"before": "before", "behind": "after"}  # by the place of an insertion


def report_ending(wording: Wording, launch: Launch, result: GridRun, facts: Facts) -> Violation:
    """A finding about a hang, a fault or wrong bytes, with the remedy that lets the kernel finish, if one passed."""
    if result.remedy is not None:
        return report_remedy(wording, launch, result.remedy, KERNEL_FINISHES, facts)
    if result.is_remedy_tried:  # what follows is advice, and not tested
        wording = wording.worded(fix=f"{_NONE_FOUND}{wording.fix}")
    return report_untried(wording, launch, facts) if result.is_remedy_untried else wording.violation(**facts)


def report_remedy(wording: Wording, launch: Launch, remedy: Remedy, effect: str, facts: Facts) -> Violation:
    """A finding whose fix is a tested remedy."""
    program = launch.program
    trial_facts: dict[str, Any] = {"tried_block": remedy.block}
    change: Change
    if remedy.corrections:
        fix = _USE
        trial_facts["corrections"] = _describe_corrections(program, remedy.corrections)
        change = {"replace_ptx": [_correction_data(program, correction) for correction in remedy.corrections]}
    else:
        fix = _PUT
        trial_facts["insertions"] = _describe_insertions(program, remedy.insertions)
        change = {"insert_ptx": [_insertion_data(program, insertion) for insertion in remedy.insertions]}
    return wording.worded(fix=f"{fix}{effect}.").violation(change=change, **facts, **trial_facts)


def report_untried(wording: Wording, launch: Launch, facts: Facts) -> Violation:
    """A finding for which the budget did not allow all trials."""
    return wording.worded(fix=f"{wording.fix} {_UNTRIED}").violation(**facts, trial_steps=trial_step_budget(launch))


def _correction_data(program: Program, correction: Correction) -> dict[str, str | int]:
    """A correction as data: the text, and the characters of the PTX that it replaces."""
    instruction = program.instructions[correction.pc]
    assert instruction is not None
    return {
        "text": correction.text,
        "line": instruction.line,
        "start": correction.start,
        "end": correction.end,
        "where": name_instruction(program, correction.pc),
    }


def _describe_corrections(program: Program, corrections: Sequence[Correction]) -> list[str]:
    """Describe corrections; a number at several instructions appears once."""
    by_number: dict[str, list[Correction]] = {}
    for correction in corrections:
        by_number.setdefault(correction.number, []).append(correction)
    phrases = []
    for number, equal in by_number.items():
        spelled = spell(number.strip("`"), _find_language(program, equal[0].pc))
        name = number if spelled is None else f"`{spelled}` ({number})"
        phrases.append(f"{name} at {_name_places(program, [correction.pc for correction in equal])}")
    return phrases


def _name_places(program: Program, pcs: Sequence[int]) -> str:
    """Name one instruction with its text, several by their lines: "ring.cu:34, PTX lines 147, 204 and 300"."""
    if len(pcs) == 1:
        return name_instruction(program, pcs[0])
    instructions = [instruction for pc in pcs if (instruction := program.instructions[pc]) is not None]
    lines = [str(instruction.line) for instruction in instructions]
    if len(lines) > _LINES_NAMED:
        lines = [*lines[:_LINES_NAMED], counted(len(lines) - _LINES_NAMED, "other")]
    sources = {str(instruction.source) for instruction in instructions if instruction.source is not None}
    return ", ".join([*sorted(sources), f"PTX lines {listed(lines)}"])


def _insertion_data(program: Program, insertion: Insertion) -> dict[str, str | int]:
    """An insertion as data: the text, and the instruction before or after it."""
    instruction = program.instructions[insertion.pc]
    assert instruction is not None
    return {
        "text": insertion.text,
        "place": insertion.place,
        "line": instruction.line,
        "offset": insertion.offset,
        "where": name_instruction(program, insertion.pc),
    }


def _describe_insertions(program: Program, insertions: Sequence[Insertion]) -> list[str]:
    """Describe insertions; a text at several places appears once."""
    by_text: dict[str, dict[str, list[int]]] = {}
    for insertion in insertions:
        by_text.setdefault(insertion.text, {}).setdefault(insertion.place, []).append(insertion.pc)
    phrases = []
    for text, pcs_of_place in by_text.items():
        first = next(iter(pcs_of_place.values()))[0]
        spelled = spell(text, _find_language(program, first))
        name = f"`{text}`" if spelled is None else f"`{spelled}` (`{text}`)"
        places = [f"{_PREPOSITIONS[place]} {_name_places(program, pcs)}" for place, pcs in pcs_of_place.items()]
        phrases.append(f"{name} {listed(places)}")
    return phrases


def _find_language(program: Program, pc: int) -> Language | None:
    """The language of the source of an instruction; None if its text names no source, or a file of another kind."""
    instruction = program.instructions[pc]
    source = None if instruction is None else instruction.source
    if source is None:
        return None
    file = source.outermost.file
    if file.endswith(".py"):
        return "triton"
    if not file.endswith(_CUDA_FILES):
        return None
    return "cute" if program.fact(_uses_cute) else "cuda"


def _uses_cute(program: Program) -> bool:
    """Whether the kernel, a function that was inlined into it, or one of its files belongs to CuTe or CUTLASS."""
    names = {program.entry.name}
    for instruction in program.instructions:
        source: SourceLine | None = None if instruction is None else instruction.source
        while source is not None:
            names.update((source.file, source.function or ""))
            source = source.inlined_at
    return any(word in name for word in _CUTE_NAMES for name in names)


def spell(text: str, language: Language | None) -> str | None:
    """Instructions as a language spells them; None if it has no name for one of them.

    >>> spell("cp.async.wait_group 1;", "cuda"), spell("bar.sync 0;", None)
    ('__pipeline_wait_prior(1)', None)
    >>> spell("fence.proxy.async; bar.sync 0;", "cute")
    'cutlass::arch::fence_view_async_shared(); __syncthreads()'
    """
    if language is None:
        return None
    spelling = _spell_one(text, language)
    if spelling is not None or text.startswith("{"):
        return spelling
    parts = [_spell_one(f"{part};", language) for part in text.rstrip(";").split("; ")]
    return None if None in parts else "; ".join(part for part in parts if part is not None)


def _spell_one(text: str, language: Language) -> str | None:
    unguarded = text.partition(" ")[2] if text.startswith("@") else text
    for spelling in SPELLINGS:
        match = re.fullmatch(spelling.ptx, unguarded)
        if match is not None:
            names = {"cuda": spelling.cuda, "triton": spelling.triton, "cute": spelling.cute or spelling.cuda}
            return names[language].format(*match.groups()) or None
    return None
