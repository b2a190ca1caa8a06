"""Many problems planned one after another, or side by side: a table with one row for each, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tilescope.errors import RuleError, Violation, by, printed, shortened
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.planner.search import planned
from tilescope.reading import entries
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.value import Value

MAX_PROBLEMS = 100_000
PROBLEM_FILE = rule(
    "problem-file",
    "A file of problems is JSON (a list of objects), TOML ([[problem]]) or CSV with named columns, by the arguments of Problem.",
    source="`ts.Problem`",
    passing='ts.planner.read_problems(b"tile,data_type\\n64x64,bf16\\n")',
    failing='ts.planner.read_problems(b"[1, 2]")',
)


@dataclass(frozen=True, slots=True)
class SweepRow(Value):
    """One problem and its best plan in numbers; None where there is no plan, and the reasons."""

    asked: str
    problem: Problem | None  # None: it contradicts itself
    swizzle: str | None = None
    atom_order: str | None = None
    box: tuple[int, ...] | None = None
    tma_instructions: int | None = None
    gmem_request_bytes: int | None = None
    smem_bytes: int | None = None
    bandwidth_share: float | None = None
    excess_wavefronts: int | None = None
    candidates: int = 0
    violations: tuple[Violation, ...] = ()

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan."""
        return self.candidates > 0


@dataclass(frozen=True, slots=True)
class Sweep(Value):
    """The rows of many problems, in their order.

    >>> found = sweep([Problem((64, 64), "bf16"), {"tile": (64, 16), "data_type": "bf16"}])
    >>> [(row.asked, row.swizzle) for row in found.rows]
    [('64 x 64 bf16 K wgmma sm_90', '128B'), ('64 x 16 bf16 K wgmma sm_90', '32B')]
    """

    rows: tuple[SweepRow, ...]

    @property
    def planned(self) -> int:
        """Problems with a plan."""
        return sum(row.has_plan for row in self.rows)


def sweep(problems: Iterable[Problem | Mapping[str, Any]], *, executor: Executor | None = None) -> Sweep:
    """The best plan of every problem: a Problem, or its arguments by name; one that cannot be is a row with the reasons.

    `executor` is any of concurrent.futures; without one the problems are planned one after another.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> tiles = [{"tile": (mn, 64), "data_type": "bf16"} for mn in (64, 128, 192)]
    >>> with ThreadPoolExecutor(2) as pool:
    ...     print([row.smem_bytes for row in sweep(tiles, executor=pool).rows])
    [8192, 16384, 24576]
    """
    listed = entries(problems, MAX_PROBLEMS)
    if listed is None:
        limit, fix = "an iterable of Problem, or of mappings with its arguments", 'Use [Problem((64, 64), "bf16")].'
        raise ARGUMENT_TYPE.error("problems", f"a {type(problems).__name__}", limit, fix)
    pool: object = executor
    if pool is not None and not isinstance(pool, Executor):
        limit, fix = "an executor of concurrent.futures", "Use ThreadPoolExecutor(2), or leave it out."
        raise ARGUMENT_TYPE.error("executor", f"a {type(pool).__name__}", limit, fix)
    return Sweep(tuple(map(_row, listed) if executor is None else executor.map(_row, listed)))


def _row(asked: Any) -> SweepRow:
    """One problem planned."""
    try:
        problem = asked if isinstance(asked, Problem) else Problem(**asked)
    except RuleError as error:
        return SweepRow(_in_words(asked), None, violations=error.violations)
    except TypeError:
        limit = "a Problem, or a mapping of its arguments: tile, data_type, major, consumer, arch, …"
        fix = 'Use {"tile": (64, 64), "data_type": "bf16"}.'
        return SweepRow(
            _in_words(asked), None, violations=(ARGUMENT_TYPE.violation("problems", _in_words(asked), limit, fix),)
        )
    report = planned(problem)
    if not report.candidates:
        reasons = [violation for refusal in report.refused for violation in refusal.violations]
        return SweepRow(_named(problem), problem, violations=tuple(dict.fromkeys(reasons)))
    best: Plan = report.best
    return SweepRow(
        _named(problem), problem, best.swizzle.name, best.atom_order, best.box, best.tma_instructions, best.gmem_request_bytes,
        best.smem_bytes, best.costs.bandwidth_share, best.costs.excess_wavefronts, len(report.candidates),
    )  # fmt: skip


def _named(problem: Problem) -> str:
    consumer = problem.consumer if isinstance(problem.consumer, str) else problem.consumer.name
    return f"{by(problem.tile)} {problem.data_type.ptx} {problem.major} {consumer} {problem.arch.name}"


def _in_words(asked: Any) -> str:
    """What was asked, as it was given."""
    if not isinstance(asked, Mapping):
        return printed(asked, 60)
    values = [by(value) if isinstance(value, tuple) else str(value) for value in islice(asked.values(), 6)]
    return shortened(" ".join(values), 60)
