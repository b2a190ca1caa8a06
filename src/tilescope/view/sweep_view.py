"""A sweep drawn: a line for each problem with its best plan in numbers, and why others have none.

2 problems, 1 with a plan: bf16, K, wgmma, sm_90        what all problems share stands in the title
problem    swizzle   box      copies   request   smem    bandwidth
128 x 64   128B      64x128        1     128 B   16384        100%
100 x 64   no plan
"""

from __future__ import annotations

from tilescope.planner.problem import Problem
from tilescope.planner.sweeping import Sweep, SweepRow
from tilescope.sentence import by, counted
from tilescope.view.drawing import Drawing, Table
from tilescope.view.plan_view import box_in_short, in_percent_or_none

_MAX_PROBLEMS = 500
_MAX_REASONS = 20


def draw_sweep(sweep: Sweep) -> Drawing:
    """A line for each problem with its best plan in numbers, and why others have none.

    Facts that all problems share are in the title.
    """
    common = _common_words(sweep)
    title = f"{counted(len(sweep.rows), 'problem')}, {sweep.planned} with a plan"
    if common:
        title += f": {', '.join(common)}"
    records = (_problem_record(row, common) for row in sweep.rows)
    return Drawing(
        title,
        {
            "problems": Table.of(records, align="lllrrrr", most=_MAX_PROBLEMS, noun="problems; --json has all"),
            "unplanned": Table.of(_unplanned_records(sweep)[:_MAX_REASONS], "Without a plan"),
        },
    )


def _common_words(sweep: Sweep) -> list[str]:
    """The common facts of all problems, besides the tile."""
    options = [_options(row.problem) for row in sweep.rows if row.problem is not None]
    common = []
    for words in zip(*options, strict=True):  # the types of all problems, then their majorness, and so on
        is_alike = len(set(words)) == 1
        if is_alike and words[0]:
            common.append(words[0])
    return common


def _problem_record(row: SweepRow, common: list[str]) -> dict[str, object]:
    """A problem with its best plan in numbers."""
    problem = row.asked
    if row.problem is not None:
        differing = [word for word in _options(row.problem) if word and word not in common]
        problem = " ".join([by(row.problem.tile), *differing])
    if not row.has_plan:
        nothing = dict.fromkeys(("box", "copies", "request", "smem", "bandwidth"), "")
        return {"problem": problem, "swizzle": "no plan", **nothing}
    return {
        "problem": problem,
        "swizzle": row.swizzle,
        "box": box_in_short(row.box),
        "copies": row.tma_instructions,
        "request": f"{row.gmem_request_bytes} B",
        "smem": row.smem_bytes,
        "bandwidth": in_percent_or_none(row.bandwidth_share),
    }


def _unplanned_records(sweep: Sweep) -> list[dict[str, object]]:
    """Each reason with the first problem that has no plan for it, and how many more there are."""
    asked_by_reason: dict[str, list[str]] = {}
    for row in sweep.rows:
        for violation in row.violations[:1]:
            asked_by_reason.setdefault(str(violation), []).append(row.asked)
    records: list[dict[str, object]] = []
    for reason, (first, *others) in asked_by_reason.items():
        problem = f"{first} and {len(others)} more" if others else first
        records.append({"problem": problem, "why it has no plan": reason})
    return records


def _options(problem: Problem) -> tuple[str, ...]:
    """The inputs of a problem besides its tile, word by word; empty for an open one."""
    swizzle = "" if problem.swizzle is None else problem.swizzle.name
    return problem.data_type.ptx, problem.major, problem.consumer_name, swizzle, problem.arch.name


DRAWINGS = {Sweep: draw_sweep}
