"""kernels: random PTX programs and whole kernels, run by the machine and by the card; bytes compared.

Most cases are the seed of a program (see gpu/programs), and the digest of its text: another version of tilescope may grow another
program from the seed, and then a capture says nothing about it. A difference names the first result that differs, in the order of the
program, with its PTX line; the note has the smallest program: what that result does not depend on is left out.

One case of 24 is a whole kernel with random sizes, numbers and, for a GEMM that `emit` writes, a random plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.programs.doubtful import is_doubtful
from tilescope.gpu.verify.programs.program_generator import generate_program
from tilescope.gpu.verify.programs.program_run import differing_step, pieces, run_here, run_on
from tilescope.gpu.verify.programs.random_program import Program
from tilescope.gpu.verify.programs.whole_kernels import (
    draw_kernel,
    kernel_pieces,
    launch_of,
    run_kernel_here,
    run_kernel_on,
)
from tilescope.gpu.verify.suites import Case, Outcome, Piece, Result, Suite
from tilescope.gpu.verify.verification import OTHER_PROGRAM

_SEED_BITS = 48  # of a program
_PROGRAMS_PER_KERNEL = 24
_DIGEST_BYTES = 8


def _draw(random: random.Random, _arch: str) -> Case | None:
    seed = random.getrandbits(_SEED_BITS)
    if seed % _PROGRAMS_PER_KERNEL == 0:
        return draw_kernel(random)
    if is_doubtful(generate_program(seed)):
        return None
    return {"program": seed, "digest": _digest(generate_program(seed))}


def _kind(case: Case) -> str:
    return "kernel" if "kernel" in case else "program"


def _digest(program: Program) -> str:
    return blake2b(program.text().encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _program(case: Case) -> Program:
    """The program of a case; refused where it is not the one that the case was drawn with."""
    program = generate_program(case["program"])
    digest = _digest(program)
    if digest != case["digest"]:
        raise OTHER_PROGRAM.error(seed=case["program"], recorded=case["digest"], grown=digest)
    return program


def _predict(case: Case) -> list[Piece]:
    if _kind(case) == "kernel":
        launch = launch_of(case)
        outcome = run_kernel_here(launch)
        expected = kernel_pieces(launch)
    else:
        program = _program(case)
        ran = run_here(program)
        outcome = ran.run.outcome
        expected = pieces(program, ran.after)
    if outcome != "finished":
        return [Piece(f"our run ends otherwise ({outcome}): byte {{}}", np.zeros(0, np.uint8))]
    return expected


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    if _kind(cases[0]) == "kernel":
        return [_run_kernel(device, case) for case in cases]
    return run_on(device, [_program(case) for case in cases])


def _run_kernel(device: Device, case: Case) -> Result:
    launch = launch_of(case)
    run_kernel_on(device, launch)
    device.free()
    return list(launch.arrays.values())


def smallest_program(case: Case, measured: Outcome) -> Program | None:
    """The part of a program that the first differing result depends on; None if all are equal, or nothing was returned.

    None for a whole kernel too: nothing can be left out of it.

    The whole program, where scratch memory differs that no step has.
    """
    if measured.data is None or measured.ended or _kind(case) == "kernel":
        return None
    program = _program(case)
    data = measured.data
    for number, piece in enumerate(_predict(case)):
        size = piece.numbers.nbytes
        wrong = np.flatnonzero(np.frombuffer(data[:size], piece.numbers.dtype) != piece.numbers)
        if wrong.size:
            step = differing_step(program, number, int(wrong[0]))
            return program if step is None else program.needed_for(step)
        data = data[size:]
    return None


def _note(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """The smallest program whose results differ, whole."""
    differing = []
    for case, outcome in zip(cases, outcomes, strict=True):
        program = smallest_program(case, outcome)
        if program is not None:
            differing.append(program)
    if not differing:
        return ""
    smallest = min(differing, key=lambda program: len(program.steps))
    return f"Programs that differ: {len(differing)}. The smallest (program {smallest.seed}):\n{smallest.text()}"


KERNELS = Suite(
    "kernels",
    _draw,
    _predict,
    _run,
    kind=_kind,
    note=_note,
    count=500,
    together=25,
    children=8,
    feature="wgmma",
    seconds_at_most=60.0,
)
