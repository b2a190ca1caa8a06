"""A Triton program that runs without a GPU, for `tilescope run program.py`."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout

from tilescope.machine.report.verdict import read_acceptance
from tilescope.questions.first_line import FirstLine
from tilescope.questions.question import Answer, Asked, refuse

_ONE_KERNEL = {  # inputs that belong to a run of one kernel, by their options
    "triton": "--triton",
    "cuda": "--cuda",
    "signature": "--signature",
    "constexprs": "--constexpr",
    "options": "--option",
    "grid": "--grid",
    "block": "--block",
    "cluster": "--cluster",
    "smem_bytes": "--smem",
    "args": "--arg",
    "entry": "--entry",
    "max_steps": "--max-steps",
    "blocks": "--blocks",
    "saved": "--save",
    "launch": "--launch",
    "template": "--template",
    "by": "--by",
    "all_lines": "--all-lines",
    "no_remedies": "--no-remedies",
    "advice": "--advice",
    "prove": "--prove",
    "draw": "--draw",
    "smem_block": "--draw-block",
    "smem_at": "--at",
    "thread": "--thread",
}
_CHOOSES_KERNEL = ("grid", "args", "signature", "constexprs", "launch", "template", "options", "entry")


def names_program(asked: Asked) -> bool:
    """Whether a .py file is a program to run: no input belongs to one of its kernels."""
    return not any(name in asked for name in _CHOOSES_KERNEL)


def answer_program(asked: Asked) -> Answer:
    """The run of a whole program, or module, under Triton's driver."""
    from tilescope.triton.host_device import DEFAULT_ARCH, Device
    from tilescope.triton.main_program import ProgramRequest, run_program

    for name, option in _ONE_KERNEL.items():
        refuse(name in asked, f"{option} is for one kernel: name it behind the file, program.py:kernel.")
    allow = [read_acceptance(entry) for entry in asked.get("allow", ())]
    program = ProgramRequest(asked["program"], asked.get("program_arguments", ()), bool(asked.get("module")))
    device = Device(asked.get("arch", DEFAULT_ARCH), seed=asked.get("seed"), reports=False, allow=allow)
    is_stdout_taken = asked.get("is_stdout_taken", False)
    with redirect_stdout(sys.stderr) if is_stdout_taken else nullcontext():
        status = run_program(program, device)
    report = device.report()
    failing = ("error", "warning") if asked.get("strict") else ("error",)
    is_clean = not any(
        finding.severity in failing and not any(entry.matches(finding) for entry in allow)
        for finding in report.findings
    )
    return Answer(
        report,
        first=FirstLine(report.sentence),
        text=str(report),
        violations=report.findings,
        is_yes=is_clean,
        status=status or None,
        extra={"status": status},
    )
