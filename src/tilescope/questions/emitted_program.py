"""The output of --emit: the program of a plan, and its launch file."""

from __future__ import annotations

from pathlib import Path

from tilescope.kernel_plan import KernelPlan
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.questions.question import Asked, Made, MadeFile


def program_of(planned: Plan | GemmPlan | KernelPlan, asked: Asked) -> str:
    """The plan as source code, for the file that it goes to."""
    from tilescope.emitter.emission import emit_file  # which a plan starts without

    path: Path | None = asked.get("path")
    return emit_file(planned, asked["emit"], "" if path is None else path.name)


def launch_files_of(planned: Plan | GemmPlan | KernelPlan, asked: Asked) -> tuple[MadeFile, ...]:
    """The launch file of a CUDA program, with which `tilescope run` needs no options."""
    from tilescope.emitter.program_launch import format_program_launch
    from tilescope.machine.launch.launch_file import LAUNCH_SUFFIX

    path: Path | None = asked.get("path")
    if asked["emit"] != "cuda" or path is None or path.suffix != ".cu":
        return ()
    text = format_program_launch(planned, path.name)
    return (MadeFile(str(path.with_suffix(LAUNCH_SUFFIX)), Made(text.encode(), f", for tilescope run {path}")),)
