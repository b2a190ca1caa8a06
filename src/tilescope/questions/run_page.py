"""The page that runs a kernel: PTX and a launch in, the outcome, the findings and the pictures out.

A launch is the text of a launch file. Its page reads no file, and takes what it can run within two seconds.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from math import prod
from typing import Any, Never

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.errors import raise_all
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.argument_text import format_arguments
from tilescope.machine.launch.described_launch import run_launch
from tilescope.machine.launch.launch_description import ALL, LaunchDescription, own_array
from tilescope.machine.launch.launch_file import format_launch, read_launch
from tilescope.machine.report.run import KernelRun
from tilescope.machine.report.verdict import judge_run
from tilescope.questions.call import Call
from tilescope.questions.opened_file import fields_of_text
from tilescope.questions.page import ListedLine, OpenedField, PageForm
from tilescope.questions.question import PAGE_LIMIT, Answer, Asked, Input
from tilescope.questions.run_questions import (
    LINES,
    RUN,
    SMEM_AT,
    SMEM_BLOCK,
    SMEM_PICTURE,
    answer,
    launch_of,
    picture_options,
)
from tilescope.questions.run_sentences import make_first_line

MAX_PTX_CHARACTERS = 30_000
_LIMITS = {
    "seconds": 1,  # of the run; reading the text and drawing come on top
    "steps": 100_000,
    "bytes of arrays": 4 << 20,  # what the order of accesses keeps is a hundred times as much
    "threads of a cluster": 4096,  # the clock is read between branches: what stands between them must not take long
    "bytes of local memory": 16 << 20,
    "bytes of shared memory, times warps": 16 << 20,
    "copies and phases of mbarriers": 5000,
}
_SEVERITIES = ("error", "warning", "note")

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
    fix="Use fewer blocks or a smaller problem; the command line takes more.",
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
    """The command reads the PTX from its input, and is told the launch by its options."""
    described = read_launch(asked.get("launch", "").encode("utf-8", errors="replace"), "launch")
    owned = [(index, own_array(one)) for index, one in enumerate(described.arguments)]
    named = [(index, array.file) for index, array in owned if array is not None and array.file]
    raise_all([NO_FILES.violation(index=index, file=file) for index, file in named])
    arguments = format_arguments(described.arguments)
    blocks = described.blocks if isinstance(described.blocks, tuple) else (described.blocks,)
    is_drawn = asked.get("draw") == SMEM_PICTURE
    return asked.saying(
        launch=None,
        kernel="-",
        read_array=_no_file,
        no_remedies=True,  # which of them are tried within a second depends on the machine
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
    )


def _answer(asked: Asked) -> Answer:
    """The run, if it is small enough, and the Python that makes it."""
    kernel = Kernel(asked["ptx"], asked.get("entry"))
    launch = launch_of(LaunchDescription(), asked)
    _require_small(asked, kernel, launch)
    most = _LIMITS["steps"]
    said = launch.max_steps
    try:
        found = answer(asked.saying(max_steps=most if said is None else min(said, most)))
    except MemoryError:
        raise TOO_MUCH_MEMORY.error() from None
    run = found.value
    assert isinstance(run, KernelRun)
    is_out_of_time = any("max_seconds" in finding.values for finding in run.findings)
    is_own_end = said is not None and said <= most and not is_out_of_time
    if run.outcome == "stopped" and not is_own_end:
        raise TOO_LONG.error(steps=run.steps, most=most)
    asked.require_at_most(
        "copies and phases of mbarriers",
        len(run.copies) + len(run.barriers),
        argument="ptx",
        fix="Use fewer blocks; the command line takes more.",
    )
    extra = {name: value for name, value in found.extra.items() if name != "seconds"}
    return replace(
        found, call=_call(asked, launch), extra=extra, first=make_first_line(run, None, judge_run(run), None)
    )


def _call(asked: Asked, launch: LaunchDescription) -> Call[Any]:
    """The Python that runs the kernel."""
    entry = {} if "entry" not in asked else {"entry": asked["entry"]}
    kernel = Call(Kernel, (asked["ptx"],), entry, "kernel")
    content = f"{format_launch(launch)}\n".encode()
    described = Call(
        read_launch, (content, "launch.toml"), name="launch", module="tilescope.machine.launch.launch_file"
    )
    options = {**picture_options(asked), "remedies": False}
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
    variables = [one.size_bytes or 0 for one in kernel.module.variables.values() if one.space in ("global", "const")]
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
    counts: dict[int, int] = {}
    for row in run.instructions:
        counts[row.ptx_line] = max(counts.get(row.ptx_line, 0), row.warps)
    numbers: dict[int, list[int]] = {}
    for number, finding in enumerate(found.violations, 1):
        for line in finding.values.get("ptx_lines", ()):
            numbers.setdefault(line, []).append(number)
    listed = []
    for line, text in enumerate(asked["ptx"].split("\n"), 1):
        here = numbers.get(line, [])
        severities = {found.violations[number - 1].severity for number in here}
        worst = next((severity for severity in _SEVERITIES if severity in severities), "")
        listed.append(ListedLine(line, text.rstrip("\r"), counts.get(line), worst, tuple(here)))
    return tuple(listed)


def _sample(name: str) -> str:
    return (files("tilescope.questions") / "samples" / name).read_text("utf-8").rstrip()


RUN_FORM = PageForm(
    RUN,
    inputs=(
        Input(
            "ptx",
            "",
            "PTX",
            "of Triton, nvcc, NVRTC or CuTe; the command reads it from its input.",
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
            "draw", "--draw", "Draw", "the shared memory of a block, beside the lines.", choices=(SMEM_PICTURE, LINES)
        ),
        replace(SMEM_BLOCK, label="Block", hint="whose shared memory is drawn."),
        replace(SMEM_AT, label="At"),
    ),
    presets={"ptx": _sample("run.ptx"), "launch": _sample("run.toml"), "draw": SMEM_PICTURE},
    opens={"ptx": OpenedField(fields_of_text, ("ptx",)), "launch": OpenedField(fields_of_text, ("toml",))},
    asking=_ask_from_input,
    answer=_answer,
    limits=_LIMITS,
    shown={"is_page": True},
    listing=_list_lines,
)
