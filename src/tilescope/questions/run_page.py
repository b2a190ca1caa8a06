"""The page that runs a kernel: PTX and a launch in, the outcome, the findings and the pictures out.

A launch is the text of a launch file. Its page reads no files, and accepts launches that run within a second. The runs
of the last few texts are cached: a step of the same run is answered from its recording. A longer run is recorded once
after a click (`record_run`); its page is then answered like any other.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib.resources import files
from math import prod
from threading import Lock
from typing import Any, Never, Unpack

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.errors import Violation, raise_all
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.argument_builder import ReadArray
from tilescope.machine.launch.argument_text import format_arguments
from tilescope.machine.launch.described_launch import LaunchOutcome, run_launch
from tilescope.machine.launch.launch_description import ALL, LaunchDescription, own_array
from tilescope.machine.launch.launch_file import format_launch, read_launch
from tilescope.machine.report.run import KernelRun
from tilescope.machine.report.verdict import judge_run
from tilescope.machine.run_arguments import Advice
from tilescope.machine.stepping.run_state import RunState
from tilescope.ptx.editing import Edit, apply_edits
from tilescope.questions.call import Call
from tilescope.questions.opened_file import fields_of_text
from tilescope.questions.page import ListedLine, OpenedField, PageForm
from tilescope.questions.question import PAGE_LIMIT, Answer, Asked, Input
from tilescope.questions.run_answers import (
    LINES,
    SMEM_PICTURE,
    STATE,
    PictureOptions,
    answer_run,
    complete_launch,
    read_picture_options,
)
from tilescope.questions.run_inputs import SMEM_AT, SMEM_BLOCK, THREAD
from tilescope.questions.run_questions import RUN
from tilescope.questions.run_sentences import make_first_line

MAX_PTX_CHARACTERS = 2_000_000
MAX_FIXED_CHARACTERS = 30_000  # of a text whose fixes are tried: each is read and run again
_RUNS_KEPT = 4
_LISTED_LINES = 2000  # of a text; of a longer one those around findings and what ran last
_LINES_AROUND = 40
_LINE_CHARACTERS = 500  # of a line
RunKey = tuple[str, ...]  # text, entry, launch, picture, and how it was run
_RECORDED = "recorded"  # after a click
_RUNS: OrderedDict[RunKey, LaunchOutcome] = OrderedDict()
_LOCK = Lock()
_LIMITS = {
    "seconds": 1,  # of the run; reading the text and drawing come on top
    "steps": 100_000,
    "bytes of arrays": 4 << 20,  # what the order of accesses keeps is a hundred times as much
    "threads of a cluster": 4096,  # the clock is read between branches, so the code between them must not take long
    "bytes of local memory": 16 << 20,
    "bytes of shared memory, times warps": 16 << 20,
    "copies and phases of mbarriers": 5000,
}
_SEVERITIES = ("error", "warning", "note")
RECORDED_STEPS = 300_000  # of a run that is recorded after a click …
RECORDED_SECONDS = 30  # … and of its run, before 15 more for the recording
_STATE_SECONDS = 3.0  # of a recording that was not requested
RecordProgress = Callable[[str, int], None]  # what is done, and the steps so far; what it raises ends the recording

NO_FILES = PAGE_LIMIT.worded(
    argument="launch",
    found="argument {index}: the file {file!r}",
    limit="a page reads no files",
    fix="Give a type, a shape and a fill; the command line reads files.",
)
TOO_LONG = PAGE_LIMIT.worded(
    argument="ptx",
    found="a run that goes on after {steps:step}",
    limit="a page runs for at most a second, and at most {most} steps",
    fix="Record it by the button, or use fewer blocks or a smaller problem; the command line takes more.",
)
TOO_LONG_TO_RECORD = PAGE_LIMIT.worded(
    argument="ptx",
    found="a recording that goes on after {steps:step}",
    limit="a page records for at most {most} seconds unasked",
    fix="Record it by the button, or use fewer blocks.",
)
TOO_MUCH_MEMORY = PAGE_LIMIT.worded(
    argument="ptx",
    found="a launch that needs more memory than there is",
    limit="a page has less memory than the command line",
    fix="Use fewer threads, blocks of a cluster, or bytes.",
)


def _no_file(name: str) -> Never:
    """Nothing is read from files for a page."""
    raise NO_FILES.error(index=0, file=name)


def _ask_from_input(asked: Asked) -> Asked:
    """The command reads the PTX from its input, and gets the launch from its options."""
    described = read_launch(asked.get("launch", "").encode("utf-8", errors="replace"), "launch")
    owned = [(index, own_array(argument)) for index, argument in enumerate(described.arguments)]
    named = [(index, array.file) for index, array in owned if array is not None and array.file]
    raise_all([NO_FILES.violation(index=index, file=file) for index, file in named])
    arguments = format_arguments(described.arguments)
    blocks = described.blocks if isinstance(described.blocks, tuple) else (described.blocks,)
    file, _, line = str(asked.get("smem_at", "")).rpartition(":")
    if asked.get("draw") == STATE and "." in file and line.isdecimal():
        asked = asked.saying(draw=SMEM_PICTURE)  # a source line is never a step
    is_drawn = asked.get("draw") in (SMEM_PICTURE, STATE)
    is_short = len(asked.get("ptx", "")) <= MAX_FIXED_CHARACTERS
    return asked.saying(
        launch=None,
        kernel="-",
        read_array=_no_file,
        no_remedies=None if is_short else True,
        entry=described.entry,
        grid=described.grid,
        block=described.block,
        cluster=described.cluster,
        smem_bytes=described.smem_bytes,
        arch=described.arch,
        seed=described.seed,
        max_steps=described.max_steps,
        blocks=None if described.blocks == ALL else blocks,
        args=arguments or None,
        smem_block=asked.get("smem_block") if is_drawn else None,
        smem_at=asked.get("smem_at") if is_drawn else None,
        thread=asked.get("thread") if asked.get("draw") == STATE else None,
    )


def _answer(asked: Asked) -> Answer:
    """The run, if it is small enough, and the Python that makes it."""
    kernel = _read_once(asked["ptx"], asked.get("entry"))
    launch = complete_launch(LaunchDescription(), asked)
    _require_small(asked, kernel, launch)
    key = (asked["ptx"], kernel.entry, repr(launch), repr(read_picture_options(asked)), str(asked.get("no_remedies")))
    recorded = _cached_run(_recorded_key(asked, kernel, launch))
    most = _LIMITS["steps"]
    max_steps = launch.max_steps
    limited = asked.saying(
        made_kernel=kernel,
        max_steps=most if max_steps is None else min(max_steps, most),
        run_launch=partial(_run_once, key, max_steps) if recorded is None else lambda *_, **__: recorded,
        progress=_end_late_recording(),
    )
    try:
        answer = answer_run(limited)
    except MemoryError:
        raise TOO_MUCH_MEMORY.error() from None
    run = answer.value
    assert isinstance(run, KernelRun)
    if recorded is None:
        asked.require_at_most(
            "copies and phases of mbarriers",
            len(run.copies) + len(run.barriers),
            argument="ptx",
            fix="Use fewer blocks; the command line takes more.",
        )
    violations = tuple(replace(finding, change=_edit_text(asked["ptx"], finding)) for finding in answer.violations)
    extra = {name: value for name, value in answer.extra.items() if name != "seconds"}
    return replace(
        answer,
        call=_call(asked, launch),
        extra=extra,
        first=make_first_line(run, None, judge_run(run), None),
        violations=violations,
    )


@lru_cache(maxsize=_RUNS_KEPT)
def _read_once(ptx: str, entry: str | None) -> Kernel:
    """The kernel of a text; cached for the last few texts."""
    return Kernel(ptx, entry)


class RunOptions(PictureOptions, total=False):
    """What a page tells `run_launch`."""

    max_seconds: float | None
    advice: Advice


def _run_once(
    key: RunKey,
    said_steps: int | None,
    kernel: Kernel,
    launch: LaunchDescription,
    read: ReadArray,
    **options: Unpack[RunOptions],
) -> LaunchOutcome:
    """Run a launch, or return the cached run of the same text and launch; RuleError if it takes too long for a page.

    `said_steps` is the limit of steps in the launch file.
    """
    done = _cached_run(key)
    if done is None:
        done = run_launch(kernel, launch, read, **options)
        _keep(key, done)
    most = _LIMITS["steps"]
    is_out_of_time = any("max_seconds" in finding.values for finding in done.run.findings)
    is_own_end = said_steps is not None and said_steps <= most and not is_out_of_time
    if done.run.outcome == "stopped" and not is_own_end:
        raise TOO_LONG.error(steps=done.run.steps, most=most)
    return done


def _cached_run(key: RunKey) -> LaunchOutcome | None:
    """A cached run; None if there is none of this text and launch."""
    with _LOCK:
        if key in _RUNS:
            _RUNS.move_to_end(key)
        return _RUNS.get(key)


def _keep(key: RunKey, done: LaunchOutcome) -> None:
    """Cache a run; of several recordings after a click only the last, which may take 350 MB."""
    with _LOCK:
        for other in [other for other in _RUNS if other[-1] == key[-1] == _RECORDED]:
            del _RUNS[other]
        _RUNS[key] = done
        while len(_RUNS) > _RUNS_KEPT:
            _RUNS.popitem(last=False)


def _recorded_key(asked: Asked, kernel: Kernel, launch: LaunchDescription) -> RunKey:
    return (asked["ptx"], kernel.entry, repr(launch), repr(read_picture_options(asked)), _RECORDED)


def _end_late_recording() -> Callable[[int], None]:
    """Ends a recording that was not requested if it takes too long after its first report."""
    reports: list[float] = []

    def check(steps: int) -> None:
        reports.append(time.thread_time())
        if reports[-1] - reports[0] > _STATE_SECONDS:
            raise TOO_LONG_TO_RECORD.error(steps=steps, most=int(_STATE_SECONDS))

    return check


def record_run(asked: Asked, progress: RecordProgress) -> None:
    """Run and record a launch that is too long for its page, and keep it for the page.

    It has RECORDED_STEPS steps, half a minute for the run and 15 s for the recording; no fixes are tried. RuleError if it is
    refused.
    """
    kernel = _read_once(asked["ptx"], asked.get("entry"))
    launch = complete_launch(LaunchDescription(), asked)
    _require_small(asked, kernel, launch)
    max_steps = launch.max_steps
    limited = replace(launch, max_steps=RECORDED_STEPS if max_steps is None else min(max_steps, RECORDED_STEPS))
    try:
        done = run_launch(
            kernel,
            limited,
            asked["read_array"],
            max_seconds=RECORDED_SECONDS,
            advice="none",
            progress=partial(progress, "running"),
            **read_picture_options(asked),
        )
        done.run.state(0, progress=partial(progress, "recording"))
    except MemoryError:
        raise TOO_MUCH_MEMORY.error() from None
    _keep(_recorded_key(asked, kernel, launch), done)


def _edit_text(ptx: str, finding: Violation) -> dict[str, str] | None:
    """The text with the tested fix of a finding, as the field that a button fills; None if it has no fix in the PTX."""
    change: Mapping[str, Any] = finding.change or {}
    edits = [
        Edit(
            insertion["offset"],
            insertion["offset"],
            f"{insertion['text']}\n    " if insertion["place"] == "before" else f"\n    {insertion['text']}",
        )
        for insertion in change.get("insert_ptx", ())
    ]
    edits += [
        Edit(replacement["start"], replacement["end"], replacement["text"])
        for replacement in change.get("replace_ptx", ())
    ]
    return {"ptx": apply_edits(ptx, edits)} if edits else None


def _call(asked: Asked, launch: LaunchDescription) -> Call[Any]:
    """The Python that runs the kernel."""
    entry = {} if "entry" not in asked else {"entry": asked["entry"]}
    kernel = Call(Kernel, (asked["ptx"],), entry, "kernel")
    content = f"{format_launch(launch)}\n".encode()
    described = Call(
        read_launch, (content, "launch.toml"), name="launch", module="tilescope.machine.launch.launch_file"
    )
    options: dict[str, object] = {**read_picture_options(asked)}
    if asked.get("no_remedies"):
        options["advice"] = "none"
    return Call(
        run_launch,
        (kernel, described),
        options,
        "run",
        module="tilescope.machine.launch.described_launch",
        attribute="run",
    )


def _require_small(asked: Asked, kernel: Kernel, launch: LaunchDescription) -> None:
    """Refuse what takes too much memory, before any of it is made."""
    program = kernel.program
    arrays = [array for array in map(own_array, launch.arguments) if array is not None]
    variables = [
        variable.size_bytes or 0
        for variable in kernel.module.variables.values()
        if variable.space in ("global", "const")
    ]
    array_bytes = sum(prod(array.shape) * DataType.named(array.data_type).bits // 8 for array in arrays)
    _require(asked, "bytes of arrays", array_bytes + sum(variables), "Use smaller arrays.")
    threads = prod(launch.block or program.entry.required_threads or (1,))
    cluster_blocks = prod(launch.cluster or program.entry.required_cluster or (1,))
    cluster_threads = threads * cluster_blocks
    _require(asked, "threads of a cluster", cluster_threads, "Use smaller blocks or clusters.")
    _require(asked, "bytes of local memory", program.local_bytes * cluster_threads, "Use fewer threads.")
    shared_bytes = cluster_blocks * (program.static_shared_end + (launch.smem_bytes or 0))
    warps = ceil_div(cluster_threads, WARP_LANES)
    _require(asked, "bytes of shared memory, times warps", shared_bytes * warps, "Use fewer warps or less memory.")


def _require(asked: Asked, what: str, count: int, fix: str) -> None:
    asked.require_at_most(what, count, argument="launch", fix=f"{fix} The command line takes more.")


def _list_lines(asked: Asked, found: Answer) -> tuple[ListedLine, ...]:
    """The PTX with the warps that ran each line, and the findings about it."""
    run = found.value
    assert isinstance(run, KernelRun)
    numbers: dict[int, list[int]] = {}
    for number, finding in enumerate(found.violations, 1):
        for line in finding.values.get("ptx_lines", ()):
            numbers.setdefault(line, []).append(number)
    lines = asked["ptx"].split("\n")
    state = found.shown.get("state")
    current = {place.ptx_line for place in state.warps} if isinstance(state, RunState) else set()
    shown = _lines_shown(len(lines), [*sorted(numbers), *sorted(line for line in current if line is not None)])
    shown_lines = set(shown)
    rows = [row for row in run.instructions if row.ptx_line in shown_lines]
    sources = {row.ptx_line: row.source_line or "" for row in rows}
    counts: dict[int, int] = {}
    for row in rows:
        counts[row.ptx_line] = max(counts.get(row.ptx_line, 0), row.warps)
    listed = []
    for line in shown:
        here = numbers.get(line, [])
        severities = {found.violations[number - 1].severity for number in here}
        worst = next((severity for severity in _SEVERITIES if severity in severities), "")
        text = lines[line - 1].rstrip("\r")[:_LINE_CHARACTERS]
        listed.append(ListedLine(line, text, counts.get(line), worst, tuple(here), sources.get(line, "")))
    return tuple(listed)


def _lines_shown(count: int, places: Sequence[int]) -> list[int]:
    """The lines that are listed: all of a short text, of a long one those around some places.

    >>> _lines_shown(3, []), len(_lines_shown(100_000, [5000]))
    ([1, 2, 3], 81)
    """
    if count <= _LISTED_LINES:
        return list(range(1, count + 1))
    near: set[int] = set()
    for place in places or [1]:
        if len(near) < _LISTED_LINES:
            near |= set(range(max(1, place - _LINES_AROUND), min(count, place + _LINES_AROUND) + 1))
    return sorted(near)


def _sample(name: str) -> str:
    return (files("tilescope.questions") / "samples" / name).read_text("utf-8").rstrip()


SOURCE_SAMPLE = _sample("run.cu")
RUN_FORM = PageForm(
    RUN,
    inputs=(
        Input(
            "ptx",
            "",
            "PTX",
            "of Triton, nvcc, NVRTC or CuTe, up to 2 MB; the command reads it from its input.",
            is_long=True,
            longest=MAX_PTX_CHARACTERS,
            read=str,
        ),
        Input(
            "launch",
            "",
            "Launch",
            "as a launch file has it: tilescope run kernel.ptx --template prints one. Files are not read here.",
            is_long=True,
        ),
        Input(
            "draw",
            "--draw",
            "Draw",
            "the state after a step, the shared memory at a line, or the lines alone.",
            choices=(STATE, SMEM_PICTURE, LINES),
        ),
        replace(SMEM_BLOCK, label="Block", hint="whose state or shared memory is drawn."),
        replace(
            SMEM_AT, label="At", hint="a step; where shared memory is drawn, a line: 40, or 40:3 for the third time."
        ),
        replace(THREAD, label="Thread", hint="whose registers are drawn."),
    ),
    presets={"ptx": _sample("run.ptx"), "launch": _sample("run.toml"), "draw": STATE},
    opens={
        "ptx": OpenedField(fields_of_text, ("ptx",)),
        "launch": OpenedField(fields_of_text, ("toml",)),
        "source": OpenedField(fields_of_text, ("cu", "cuh", "py")),
    },
    asking=_ask_from_input,
    answer=_answer,
    limits=_LIMITS,
    record=record_run,
    shown={"is_page": True},
    listing=_list_lines,
)
