"""kernels: random PTX programs, run by the machine and by the card; bytes compared.

A case is the seed of a program (see gpu/programs). A difference names the first result that differs, in the order of the
program, with its PTX line; the note has the smallest program: what that result does not depend on is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.programs.growing import grown
from tilescope.gpu.programs.program import Program
from tilescope.gpu.programs.running import differing_step, pieces, run_here, run_on
from tilescope.gpu.suites import Case, Outcome, Piece, Result, Suite
from tilescope.sentence import counted

_SEED_BITS = 48  # of a program


def _draw(random: random.Random, _arch: str) -> Case:
    return {"program": random.getrandbits(_SEED_BITS)}


def _predict(case: Case) -> list[Piece]:
    program = grown(case["program"])
    ran = run_here(program)
    if ran.run.outcome != "finished":
        raise RuntimeError(f"The machine ends {ran.run.outcome!r}, case {case}: {ran.run.findings}")
    return pieces(program, ran.after)


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    return run_on(device, [grown(case["program"]) for case in cases])


def smallest_program(case: Case, measured: Outcome) -> Program | None:
    """The part of a program that the first differing result depends on; None where all are equal, or nothing came back."""
    if measured.data is None or measured.ended:
        return None
    program = grown(case["program"])
    data = measured.data
    for number, piece in enumerate(_predict(case)):
        size = piece.numbers.nbytes
        wrong = np.flatnonzero(np.frombuffer(data[:size], piece.numbers.dtype) != piece.numbers)
        if wrong.size:
            return program.needed_for(differing_step(program, number, int(wrong[0])))
        data = data[size:]
    return None


def _note(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """The smallest program whose results differ, whole."""
    found = []
    for case, outcome in zip(cases, outcomes, strict=True):
        program = smallest_program(case, outcome)
        if program is not None:
            found.append(program)
    if not found:
        return ""
    smallest = min(found, key=lambda program: len(program.steps))
    return f"The smallest of {counted(len(found), 'program')} that differ (program {smallest.seed}):\n{smallest.text()}"


KERNELS = Suite(
    "kernels",
    _draw,
    _predict,
    _run,
    note=_note,
    count=1000,
    together=25,
    children=8,
    feature="wgmma",
    seconds_at_most=60.0,
)
