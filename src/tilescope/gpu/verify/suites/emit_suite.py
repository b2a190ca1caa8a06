"""emitted: programs that `emit` writes, run as they are; they check their own results, and must notice a spoiled input."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Iterable
from types import CodeType

import numpy as np

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.emitter import emit
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Case, Piece, Result, Suite
from tilescope.planner import GemmPlan, Plan, plan, plan_gemm

_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")
_SCALED_TYPES = ("mxfp8", "mxfp4", "nvfp4")  # where the tensor core takes scale factors
# A program ends with 0, and with 1 where an argument spoils its input
_STATUSES = Piece("status of the program, alone (0) or with a spoiled input (1): run {}", np.array([0, 1], np.uint8))


def _draw(random: random.Random, arch: str) -> Case:
    """A GEMM, a tile that is loaded and read, or a tile that is stored; what cannot be emitted is drawn again."""
    if Arch.named(arch).has("packed_types") and random.random() < 0.2:
        extents = [random.choice((128, 200, 256)), random.choice((128, 136, 256)), 256 * random.randint(1, 4)]
        scaled: Case = {"gemm": extents, "data_type": random.choice(_SCALED_TYPES), "options": {"arch": arch}}
        emit(_make_plan(scaled), "python")
        return scaled
    row = DataType.named(random.choice(_TYPES))
    majors = ("K", "MN") if row.bits == 16 else ("K",)
    if random.random() < 0.3:
        extents = [random.choice((8, 64, 128, 200)) * random.randint(1, 4) for _ in range(2)]
        case: Case = {"gemm": [*extents, 64 * random.randint(1, 8)]}
        options: Case = {"a_major": random.choice(majors), "b_major": random.choice(majors)}
    else:
        options = {"stages": random.randint(1, 4), "major": random.choice(majors)}
        ldmatrix = {"consumer": "ldmatrix", "copy": random.choice(("tma", "cp.async"))}
        others: tuple[Case, ...] = ({"consumer": "ld.b128 columns"}, {"direction": "store"}, {"fold": True})
        options |= random.choice(({}, {"operand": "B"}, ldmatrix, *others))
        case = {"tile": [random.choice((64, 128)), 256 // row.bits * random.choice((1, 2, 3, 4))]}
    case |= {"data_type": row.name, "options": {**options, "arch": arch}}
    emit(_make_plan(case), "python")
    return case


def _make_plan(case: Case) -> Plan | GemmPlan:
    if "gemm" in case:
        m, n, k = case["gemm"]
        return plan_gemm(m, n, k, case["data_type"], **case["options"])
    report = plan(tuple(case["tile"]), case["data_type"], **case["options"])
    folded = [candidate for candidate in report.candidates if candidate.folded]
    return folded[0] if folded else report.best


def _run(_device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        program = compile(emit(_make_plan(case), "python"), "tile.py", "exec")
        yield [bytes([_status(program), _status(program, "spoil")])]


def _status(program: CodeType, *arguments: str) -> int:
    """The exit status of a Python program, run in this process: starting another takes seconds."""
    before = sys.argv
    sys.argv = ["tile.py", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, {"__name__": "__main__"})  # noqa: S102  our own text
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = before
    return 0


EMITTED = Suite("emitted", _draw, lambda _: [_STATUSES], _run, count=40, together=5, children=4)
