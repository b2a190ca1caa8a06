"""The answer of `tilescope run`: run the kernel, judge the run and prove it if requested; then write files and drawings."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import PurePath
from typing import Any, TypedDict

import numpy.typing as npt

from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.argument_text import parse_arguments
from tilescope.machine.launch.described_launch import LaunchOutcome, run_launch
from tilescope.machine.launch.launch_description import Blocks, LaunchDescription
from tilescope.machine.launch.launch_template import build_launch_template
from tilescope.machine.program import Program
from tilescope.machine.report.line_count import line_counts
from tilescope.machine.report.outcome import describe_work
from tilescope.machine.report.run import KernelRun
from tilescope.machine.report.verdict import Verdict, judge_run, read_acceptance
from tilescope.machine.run_arguments import ADVICE, Advice, Smem
from tilescope.machine.stepping.run_state import RunState
from tilescope.questions.first_line import make_line
from tilescope.questions.program_questions import answer_program
from tilescope.questions.question import Answer, Asked, Made, MadeFile, refuse
from tilescope.questions.run_inputs import ARCHITECTURE, BLOCK, CLUSTER, GRID, MAX_STEPS, SEED, SMEM
from tilescope.questions.run_sentences import RunProof, describe_replay, find_differences, make_first_line, prove_run
from tilescope.sentence import shorten
from tilescope.tma.array_file import as_npy

_Array = npt.NDArray[Any]
ReadSource = Callable[[str], str | None]  # the name of a source file as in the PTX → its text
BY_LINE = "line"
LINES = "lines"
TIMELINE = "timeline"
SMEM_PICTURE = "smem"
STATE = "state"
_STEP_DIGITS = 12
_TOLD_WITH_PROOF = ("sentence", "way")  # parts of a timeline
_SAVED = re.compile(r"(?P<argument>\d{1,9})=(?P<path>.+)")


def answer_run(asked: Asked) -> Answer:
    """The run of a kernel whose text is `ptx`; `described` is the content of a launch file, `read_array` reads arrays.

    `made_kernel` replaces the text if the kernel was compiled first, and `compiled` names the compiler. `program` is a
    Python program that launches kernels itself.
    """
    if "program" in asked:
        return answer_program(asked)
    description: LaunchDescription = asked.get("described", LaunchDescription())
    kernel = (
        asked["made_kernel"] if "made_kernel" in asked else Kernel(asked["ptx"], asked.get("entry", description.entry))
    )
    if asked.get("template"):
        return _make_template(asked, kernel)
    refuse(
        "args" in asked and description.arguments, "--arg and the launch file both give arguments; keep one of them."
    )
    allow: tuple[str, ...] = asked.get("allow", ())
    for entry in allow:  # refused before the kernel runs, which may take long
        read_acceptance(entry)
    launch = complete_launch(description, asked)
    picture = read_picture_options(asked)
    start = time.perf_counter()
    with asked.get("count_steps", nullcontext)() as progress:
        done: LaunchOutcome = asked.get("run_launch", run_launch)(
            kernel,
            launch,
            asked["read_array"],
            max_seconds=asked.limit("seconds"),
            advice=_read_advice(asked),
            **({} if progress is None else {"progress": progress}),
            **picture,
        )
    seconds = time.perf_counter() - start
    run = done.run
    state = read_state(run, asked)
    texts: dict[str, str] | None = None
    if asked.get("by") == BY_LINE or asked.get(
        "all_lines"
    ):  # a web page has only the text of the kernel, and reads no source files
        texts = read_source_lines(kernel.program, asked["read_source"]) if "read_source" in asked else {}
    verdict = judge_run(run, allow)
    is_proof_asked = asked.get("prove") or asked.get("draw") == TIMELINE
    proof = prove_run(run) if is_proof_asked else None
    strict = asked.get("strict", False)
    is_finding_said = bool(verdict.errors) or (strict and verdict.is_finished and bool(verdict.warnings))
    paragraphs = (
        describe_work(run, seconds) if is_finding_said else "",
        "\n".join(f"warning: --{line}." for line in verdict.describe_unmatched()),
        asked.get("compiled", ""),
        run.printed.rstrip(),
        describe_replay(done),
        "" if proof is None else proof.describe(is_verdict_said=not is_finding_said),
        _explain_missing_picture(asked, run),
    )
    printed = [text for text in paragraphs if text]
    timeline = proof.simulation if proof is not None and asked.get("draw") == TIMELINE else None
    return Answer(
        run,
        first=make_first_line(run, seconds, verdict, proof, strict=strict),
        shown={
            "outputs": done.outputs,
            "lines": asked.get("draw") == LINES,
            "all_lines": asked.get("all_lines"),
            "texts": texts,
            "accepted": verdict.accepted_findings,
            "timeline": timeline,
            "smem": run.smem,
            "state": state,
        },
        extra={"seconds": round(seconds, 6)},
        late_extra=lambda: _list_facts(asked, done, verdict, proof, state),
        is_yes=_is_as_hoped(asked, done, verdict, proof),
        violations=run.findings,
        told_in="findings",
        printed="\n\n".join(printed),
        told_above=("outcome", "printed", *_TOLD_WITH_PROOF),
        files=_list_files(asked.get("saved", ()), done),
    )


def read_source_lines(program: Program, read: ReadSource) -> dict[str, str]:
    r"""The text of each source line of a kernel, by the name that a run gives the line: of inlined code the innermost in the kernel's file.

    >>> head = '.version 8.0 .target sm_90 .address_size 64 .file 1 "a.cu"'
    >>> kernel = Kernel(head + " .entry k() {\n.loc 1 2 0\nbar.sync 0;\nret; }")
    >>> read_source_lines(kernel.program, {"a.cu": "void k() {\n  sync();\n}"}.get)
    {'a.cu:2': '  sync();'}
    """
    lines_of_file: dict[str, list[str]] = {}
    texts = {}
    for instruction in program.instructions:
        if instruction is None or instruction.source is None:
            continue
        line = instruction.source.innermost_of_kernel
        if line.file not in lines_of_file:
            lines_of_file[line.file] = (read(line.file) or "").splitlines()
        lines = lines_of_file[line.file]
        if 1 <= line.line <= len(lines):
            texts[str(instruction.source)] = lines[line.line - 1]
    return texts


def _make_template(asked: Asked, kernel: Kernel) -> Answer:
    """A launch file for the kernel to start from."""
    refuse(kernel.host is not None, "--template is for PTX; of a kernel of Triton its signature says what it takes.")
    file_name = "" if "made_kernel" in asked else PurePath(asked["kernel"]).name
    template = build_launch_template(kernel, file_name)
    first = make_line("A launch file to start from: {parameters:parameter}.", parameters=len(kernel.parameters))
    return Answer(template.launch, first=first, text=f"# {first.sentence}\n{template.text}")


def _list_facts(
    asked: Asked, done: LaunchOutcome, verdict: Verdict, proof: RunProof | None, state: RunState | None
) -> dict[str, object]:
    """Data of --json in addition to the run's own."""
    run = done.run
    facts: dict[str, object] = {
        "exact": run.exact,
        "outputs": [output.to_dict() for output in done.outputs],
        "lines": [count.to_dict() for count in line_counts(run)],
    }
    if "allow" in asked:
        facts["accepted"] = [accepted.to_dict() for accepted in verdict.accepted]
        facts["unmatched"] = list(verdict.unmatched)
    if "compiled" in asked:
        facts["compiled"] = asked["compiled"]
    if done.memory:
        facts["memory"] = [outcome.to_dict() for outcome in done.memory]
    if proof is not None:
        facts["proof"] = proof.to_dict()
    if run.smem is not None:
        facts["smem"] = run.smem.to_dict()
    if state is not None:
        facts["state"] = state.to_dict()
    return facts


def _is_as_hoped(asked: Asked, done: LaunchOutcome, verdict: Verdict, proof: RunProof | None) -> bool:
    """Whether the run is clean, is proven if a proof was requested, and left the same memory as the card."""
    if not verdict.is_clean(strict=asked.get("strict", False)):
        return False
    if asked.get("prove") and (proof is None or not proof.is_proven):
        return False
    return bool(done.run.inexact or done.run.assumed) or not find_differences(done)


def _read_advice(asked: Asked) -> Advice:
    """What further runs look for."""
    return ADVICE[not asked.get("no_remedies"), bool(asked.get("advice"))]


class PictureOptions(TypedDict, total=False):
    """What `run_launch` takes to make a picture of shared memory."""

    smem: Smem


def asks_state(asked: Asked) -> bool:
    """Whether the state after a step is requested: by --draw state, or by --at without another drawing."""
    return bool(asked.get("draw", STATE if "smem_at" in asked else None) == STATE)


def read_state(run: KernelRun, asked: Asked) -> RunState | None:
    """The state after the step of --at, or after the last; None if no state is requested."""
    if not asks_state(asked):
        return None
    steps = run.state(0, progress=asked.get("progress")).steps
    return run.state(
        read_step(asked["smem_at"]) if "smem_at" in asked else steps,
        block=asked.get("smem_block"),
        thread=asked.get("thread"),
    )


def read_step(written: str) -> int:
    """The number of a step, from --at."""
    is_number = written.isascii() and written.isdigit() and len(written) <= _STEP_DIGITS
    refuse(not is_number, f"--at {shorten(written, 40)}: a step is a number; --draw smem takes a line.")
    return int(written)


def read_picture_options(asked: Asked) -> PictureOptions:
    """The picture of shared memory for --draw smem."""
    if asked.get("draw") != SMEM_PICTURE:
        is_unused = "smem_at" in asked or "smem_block" in asked or "thread" in asked
        refuse(is_unused and not asks_state(asked), "--at and --draw-block are for --draw smem and --draw state.")
        return {}
    block: tuple[int, ...] = asked.get("smem_block", (0, 0, 0))
    return {"smem": (block, asked["smem_at"]) if "smem_at" in asked else block}


def _explain_missing_picture(asked: Asked, run: KernelRun) -> str:
    """Why a requested picture is missing."""
    if not read_picture_options(asked) or run.smem is not None:
        return ""
    return f"Block {asked.get('smem_block', (0, 0, 0))} did not run: there is no shared memory to draw."


def complete_launch(described: LaunchDescription, asked: Asked) -> LaunchDescription:
    """The content of the launch file, with the command line's values replacing those of the file."""
    options: dict[str, Any] = asked.options((GRID, BLOCK, CLUSTER, SMEM, ARCHITECTURE, SEED, MAX_STEPS))
    if "args" in asked:
        options["arguments"] = parse_arguments(asked["args"])
    if "blocks" in asked:
        options["blocks"] = _read_blocks(asked["blocks"])
    return replace(described, **options)


def _read_blocks(said: tuple[str | tuple[int, ...], ...]) -> Blocks:
    named = [entry for entry in said if isinstance(entry, str)]
    if named:
        refuse(len(said) > 1, f"--blocks {named[0]} cannot be combined with other blocks.")
        return named[0]
    return tuple(entry for entry in said if not isinstance(entry, str))


def _list_files(said: tuple[str, ...], done: LaunchOutcome) -> tuple[MadeFile, ...]:
    """The files for --save: one argument's array, or all that changed, in a folder."""
    files: list[MadeFile] = []
    for text in said:
        match = _SAVED.fullmatch(text)
        if match is None:  # a folder
            for output in done.outputs:
                path = PurePath(text) / f"{output.argument}_{output.name}.npy"
                files.append(_make_array_file(str(path), done.arrays[output.argument]))
            continue
        index = int(match["argument"])
        refuse(index not in done.arrays, f"--save {shorten(text, 60)}: argument {index} is not an array.")
        files.append(_make_array_file(match["path"], done.arrays[index]))
    return tuple(files)


def _make_array_file(path: str, array: _Array) -> MadeFile:
    return MadeFile(path, Made(as_npy(array), f": {array.dtype} of shape {array.shape}"))
