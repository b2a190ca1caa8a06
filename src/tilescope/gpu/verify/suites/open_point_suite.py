"""What documents leave open, asked of the card: shifts, remote_arrivals, pair_exits, and how long emitted GEMMs take (rates).

shifts            tcgen05.shift.down: lane l + 1 goes to lane l, or the other way round
remote_arrivals   mbarrier.arrive and waits across blocks without a scope: whether what was written before is seen behind them
pair_exits        a block of a pair that leaves before the other's commit arrives at it: nothing, a fault, or a hang
rates             microseconds of emitted GEMMs, by which plans of this architecture can be weighed

Only shifts have a right answer here. For the others, the capture stores what the card did, and the note describes it.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from tilescope.arch import Arch
from tilescope.emitter import emit
from tilescope.errors import RuleError
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Outcome, Piece, Result, Suite, pool
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.planner import plan_gemm

_COLUMNS = 128  # that a block allocates
_LANES = 128
_ROUNDS = 20_000
_PROGRAMS: tuple[Case, ...] = tuple(
    {"shape": shape, "data_type": data_type}
    for data_type in ("bf16", "e4m3", "mxfp8", "nvfp4")
    for shape in ([128, 4096, 4096], [4096, 4096, 4096], [8192, 8192, 8192])
)


def _cells() -> Array:
    """What the cells hold before."""
    return pool()[: 4 * _LANES * _COLUMNS].view("<u4").reshape(_LANES, _COLUMNS)


def _predict_shift(case: Case) -> list[Piece]:
    memory = TensorMemory().alloc(_COLUMNS)
    cells = memory.cells.copy()
    cells[:, :_COLUMNS] = _cells()
    shifted = TensorMemory(cells, memory.allocations).shift(case["quarter"] * 32 << 16)
    return [Piece("lane {}, column {}", np.ascontiguousarray(shifted.cells[:, :_COLUMNS]), _COLUMNS)]


def _run_shifts(device: Device, cases: list[Case]) -> Iterable[Result]:
    after = np.empty((len(cases), _LANES, _COLUMNS), "<u4")
    quarters = np.array([case["quarter"] for case in cases], np.int32)
    device.launch("tensor_memory:shifts", quarters, _cells(), out=(after,), blocks=len(cases), threads=128)
    return ([cells] for cells in after)


def _run_remote_arrivals(device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        written, stale = np.zeros(1, "<u4"), np.zeros(1, "<u4")
        has_scope = int(case["scope"] == "cluster")
        device.launch("barriers:remote_arrivals", has_scope, case["rounds"], out=(written, stale), blocks=2, threads=32)
        yield [stale]


def _note_remote_arrivals(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """How many rounds read an older value, for either spelling."""
    parts = []
    for case, outcome in zip(cases, outcomes, strict=True):
        stale = outcome.ended or f"{int.from_bytes(outcome.data or b'', 'little')} of {case['rounds']} rounds stale"
        parts.append(f"scope {case['scope']}: {stale}")
    return "; ".join(parts)


def _judge_remote_arrival(case: Case, outcome: Outcome) -> str:
    """With .cluster nothing is stale; the default is the open question."""
    if case["scope"] == "cluster" and int.from_bytes(outcome.data or b"", "little"):
        return "a round read what was written before, behind an arrival of scope cluster"
    return ""


def _run_pair_exits(device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        waited = np.zeros(2, "<u4")
        device.launch("tensor_memory:pair_exits", int(case["early"]), out=(waited,), blocks=2, threads=32)
        yield [waited]


def _note_pair_exits(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """How each pair ended."""
    parts = []
    for case, outcome in zip(cases, outcomes, strict=True):
        words = np.frombuffer(outcome.data or b"", "<u4").tolist()
        ended = outcome.ended or f"done, the even block's wait {'passed' if words[:1] == [1] else 'did not pass'}"
        parts.append(f"the odd block leaves {'early' if case['early'] else 'last'}: {ended}")
    return "; ".join(parts)


def _judge_pair_exit(case: Case, outcome: Outcome) -> str:
    """A pair whose blocks both wait ends; the other case is the open question."""
    if not case["early"] and outcome.ended:
        return f"the pair ended with {outcome.ended}, though no block left early"
    return ""


def _run_rates(_device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        m, n, k = case["shape"]
        printed = _run_program(emit(plan_gemm(m, n, k, case["data_type"], arch=case["arch"]), "python"))
        timed = re.search(r"ours ([\d.]+) us", printed)
        wrong = re.search(r"(\d+) wrong", printed)
        yield [np.array([float(timed[1]) if timed else -1, float(wrong[1]) if wrong else -1], "<f8")]


def _run_program(program: str) -> str:
    """What an emitted program prints with --time."""
    before = sys.argv
    sys.argv = ["gemm.py", "--time"]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            exec(compile(program, "gemm.py", "exec"), {"__name__": "__main__"})  # noqa: S102  our own text
    finally:
        sys.argv = before
    return printed.getvalue()


def _judge_rate(_case: Case, outcome: Outcome) -> str:
    """A program that was timed has the right product, too."""
    if outcome.ended:
        return f"the program ended with {outcome.ended}"
    us, wrong = np.frombuffer(outcome.data or bytes(16), "<f8").tolist()
    if min(us, wrong) < 0:
        return "the program did not print its time and how many elements are wrong"
    return f"{wrong:.0f} elements of the product are wrong" if wrong else ""


def _note_rates(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """One line for every program."""
    lines = ["microseconds of emitted GEMMs"]
    for case, outcome in zip(cases, outcomes, strict=True):
        shape = " x ".join(map(str, case["shape"]))
        us, _ = np.frombuffer(outcome.data or bytes(16), "<f8").tolist()
        lines.append(f"{shape} {case['data_type']}: {outcome.ended or f'{us:.2f} us'}")
    return "\n".join(lines)


@cache
def _list_programs(arch: str) -> tuple[Case, ...]:
    """The products of this table for which the architecture has a program."""
    listed: list[Case] = []
    for row in _PROGRAMS:
        m, n, k = row["shape"]
        with contextlib.suppress(RuleError):
            emit(plan_gemm(m, n, k, row["data_type"], arch=Arch.named(arch)), "python")
            listed.append(row | {"arch": arch})
    return tuple(listed)


def _not_drawn(_random: random.Random, _arch: str) -> Case | None:
    raise AssertionError("all cases are listed")


SHIFTS = Suite(
    "shifts",
    _not_drawn,
    _predict_shift,
    _run_shifts,
    kernels=("tensor_memory",),
    feature="tcgen05",
    every=lambda _arch: [{"quarter": quarter} for quarter in range(4)],
)
REMOTE_ARRIVALS = Suite(
    "remote_arrivals",
    _not_drawn,
    lambda _: [],
    _run_remote_arrivals,
    kernels=("barriers",),
    together=1,
    seconds_at_most=30.0,
    judge=_judge_remote_arrival,
    note=_note_remote_arrivals,
    every=lambda _arch: [{"scope": scope, "rounds": _ROUNDS} for scope in ("default", "cluster")],
)
PAIR_EXITS = Suite(
    "pair_exits",
    _not_drawn,
    lambda _: [],
    _run_pair_exits,
    kernels=("tensor_memory",),
    feature="tcgen05",
    together=1,
    seconds_at_most=30.0,
    judge=_judge_pair_exit,
    note=_note_pair_exits,
    every=lambda _arch: [{"early": early} for early in (False, True)],
)
RATES = Suite(
    "rates",
    _not_drawn,
    lambda _: [],
    _run_rates,
    feature="packed_types",  # Blackwell; an H200 has `tilescope bench`
    count=len(_PROGRAMS),
    together=1,
    judge=_judge_rate,
    note=_note_rates,
    every=_list_programs,
)
