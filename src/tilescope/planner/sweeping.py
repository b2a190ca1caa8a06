"""Many problems planned one after another, or side by side: a table with a row for every problem, in their order.

They come from a file, JSON, TOML or CSV, or are every combination of some lists:

[{"tile": "128x64", "data_type": "bf16"}, …]        JSON: a list of objects, or one a line
[[problem]]                                         TOML
tile = [128, 64]
tile,data_type,major                                CSV: the first line names the columns
128x64,bf16,K
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from inspect import signature
from io import StringIO
from itertools import islice, product
from typing import Any

from tilescope import written
from tilescope.errors import RuleError, Violation, argument_type, raise_all, unknown_name
from tilescope.planner.obstacle import violations
from tilescope.planner.plan_search import candidates
from tilescope.planner.problem import Problem
from tilescope.planner.proof import proven
from tilescope.reading import entries
from tilescope.rule import rule
from tilescope.sentence import by, format_value, shorten
from tilescope.value import Value

MAX_PROBLEMS = 100_000
_NAMES = tuple(name for name in signature(Problem.__init__).parameters if name not in ("self", "extent_names"))
_ALIASES = {"type": "data_type", "dtype": "data_type", "order": "atom_order", "shape": "global_shape"}


def _is_yes(text: str) -> bool:
    return text.strip().casefold() in ("1", "true", "yes")


_READERS: dict[str, Callable[[str], object]] = {  # of text in a file that is not a number
    "tile": written.numbers,
    "global_shape": written.numbers,
    "strides_bytes": written.numbers,
    "stages": written.number,
    "fold": _is_yes,
}


@dataclass(frozen=True, slots=True)
class SweepRow(Value):
    """One problem and its best plan in numbers; None without a plan, and the reasons."""

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

    >>> swept = sweep([Problem((64, 64), "bf16"), {"tile": (64, 16), "data_type": "bf16"}])
    >>> [(row.asked, row.swizzle) for row in swept.rows]
    [('64 x 64 bf16 K wgmma sm_90', '128B'), ('64 x 16 bf16 K wgmma sm_90', '32B')]
    """

    rows: tuple[SweepRow, ...]

    @property
    def planned(self) -> int:
        """Problems with a plan."""
        return sum(row.has_plan for row in self.rows)


def sweep(problems: Iterable[Problem | Mapping[str, Any]], *, executor: Executor | None = None) -> Sweep:
    """The best plan of every problem (a Problem, or its arguments by name); a problem without a plan is a row with the reasons.

    `executor` is any of concurrent.futures; without one the problems are planned one after another.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> tiles = [{"tile": (mn, 64), "data_type": "bf16"} for mn in (64, 128, 192)]
    >>> with ThreadPoolExecutor(2) as pool:
    ...     print([row.smem_bytes for row in sweep(tiles, executor=pool).rows])
    [8192, 16384, 24576]
    """
    listed = entries(problems, MAX_PROBLEMS)
    if listed is None:
        expected = "an iterable of Problem, or of mappings with its arguments"
        raise RuleError([argument_type("problems", problems, expected, 'Use [Problem((64, 64), "bf16")].')])
    pool: object = executor
    if not isinstance(pool, Executor | None):
        fix = "Use ThreadPoolExecutor(2), or leave it out."
        raise RuleError([argument_type("executor", pool, "an executor of concurrent.futures", fix)])
    rows = map(_row, listed) if executor is None else executor.map(_row, listed)
    return Sweep(tuple(rows))


def _row(asked: object) -> SweepRow:
    """One problem planned."""
    problem = _problem(asked)
    if not isinstance(problem, Problem):
        return SweepRow(_in_words(asked), None, violations=problem)
    named = f"{by(problem.tile)} {problem.data_type.ptx} {problem.major} {problem.consumer_name} {problem.arch.name}"
    tried = candidates(problem)
    if not tried.plans:
        return SweepRow(named, problem, violations=violations(tried.obstacles()))
    best = proven(tried.plans[0])
    return SweepRow(
        asked=named,
        problem=problem,
        swizzle=best.swizzle.name,
        atom_order=best.atom_order,
        box=best.box,
        tma_instructions=best.costs.tma_instructions,
        gmem_request_bytes=best.costs.gmem_request_bytes,
        smem_bytes=best.costs.smem_bytes,
        bandwidth_share=best.costs.bandwidth_share,
        excess_wavefronts=best.costs.excess_wavefronts,
        candidates=len(tried.plans),
    )


def _problem(asked: object) -> Problem | tuple[Violation, ...]:
    """The entry as a problem, or why it is not one."""
    if isinstance(asked, Problem):
        return asked
    try:
        return Problem(**asked)  # type: ignore[arg-type]  # what is no mapping of its arguments is a TypeError
    except RuleError as error:
        return error.violations
    except TypeError:
        expected = "a Problem, or a mapping of its arguments: tile, data_type, major, consumer, arch, …"
        return (argument_type("problem", asked, expected, 'Use {"tile": (64, 64), "data_type": "bf16"}.'),)


def _in_words(asked: object) -> str:
    """The entry as the file writes it."""
    if not isinstance(asked, Mapping):
        return format_value(asked, 60)
    values = [by(value) if isinstance(value, tuple) else str(value) for value in islice(asked.values(), 6)]
    return shorten(" ".join(values), 60)


def read_problems(content: bytes) -> list[dict[str, Any]]:
    """The arguments of every problem in a file.

    >>> read_problems(b'[{"tile": "128x64", "type": "bf16", "stages": 4}]')
    [{'tile': (128, 64), 'data_type': 'bf16', 'stages': 4}]
    """
    text = content.decode("utf-8-sig", errors="replace").strip()
    try:
        rows = list(islice(_rows(text), MAX_PROBLEMS + 1))
    except (ValueError, RecursionError, csv.Error) as error:  # JSON and TOML report mistakes as ValueError
        raise PROBLEM_FILE.error(wrong=shorten(" ".join(str(error).split()), 80)) from None
    if not rows:
        raise NO_PROBLEM.error(problems=MAX_PROBLEMS)
    if len(rows) > MAX_PROBLEMS:
        raise TOO_MANY_PROBLEMS.error(problems=MAX_PROBLEMS)
    return [_arguments(row) for row in rows]


def combinations(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of some arguments, the last one fastest.

    >>> len(list(combinations({"tile": [(64, 64), (128, 64)], "data_type": ["bf16"], "major": ["K", "MN"]})))
    4
    """
    return (dict(zip(lists, values, strict=True)) for values in product(*lists.values()))


def _rows(text: str) -> Iterator[object]:
    """The problems of a file in any format."""
    if text.startswith("[") and not text.startswith("[["):
        yield from json.loads(text)
    elif text.startswith("{"):
        yield from _json_lines(text)
    elif text.startswith("[[") or "\n[[" in text:
        for tables in tomllib.loads(text).values():
            if isinstance(tables, list):
                yield from tables
    else:
        for row in csv.DictReader(StringIO(text)):
            yield {name: value for name, value in row.items() if value not in ("", None)}


def _json_lines(text: str) -> Iterator[object]:
    """One object per line, or one object; an object with a list of problems is replaced by these."""
    lines = text.splitlines() if "\n{" in text else [text]
    for line in lines:
        row = json.loads(line)
        listed = row.get("problems") if isinstance(row, dict) else None
        if isinstance(listed, list):
            yield from listed
        else:
            yield row


def _arguments(row: object) -> dict[str, Any]:
    """The arguments of one problem, by their names, numbers as numbers."""
    if not isinstance(row, dict) or not all(isinstance(name, str) for name in row):
        raise NOT_A_PROBLEM.error(entry=row, shown=shorten(str(row), 40))
    named = {_ALIASES.get(name.strip(), name.strip()): value for name, value in row.items()}
    unknown = [name for name in named if name not in _NAMES][:4]
    raise_all(unknown_name(shorten(name, 40), "argument of a problem", name, _NAMES) for name in unknown)
    return {name: _value(name, value) for name, value in named.items()}


def _value(name: str, value: object) -> object:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    reader = _READERS.get(name, str.strip)
    try:
        return reader(value)
    except ValueError as error:
        raise WRONG_ARGUMENT.error(name=name, wrong=error.args[0]) from None


PROBLEM_FILE = rule(
    "problem-file",
    "A file of problems is JSON (a list of objects), TOML ([[problem]]) or CSV with named columns; the names are the "
    "arguments of Problem.",
    argument="source",
    found="{wrong}",
    limit="JSON, TOML or CSV with the arguments of problems, such as tile and data_type",
    fix='Write [{{"tile": "128x64", "data_type": "bf16"}}], or a CSV whose first line is tile,data_type.',
    source="`ts.Problem`",
    passing='ts.planner.read_problems(b"tile,data_type\\n64x64,bf16\\n")',
    failing='ts.planner.read_problems(b"[1, 2]")',
)
NO_PROBLEM = PROBLEM_FILE.worded(found="no problem")
TOO_MANY_PROBLEMS = PROBLEM_FILE.worded(found="more than {problems} problems")
NOT_A_PROBLEM = PROBLEM_FILE.worded(found="{shown} in place of a problem")
WRONG_ARGUMENT = PROBLEM_FILE.worded(found="{name}: {wrong}")
