"""The drawing of a sweep: a line for each problem, and the reasons of those without a plan."""

from __future__ import annotations

from tilescope.errors import by, counted
from tilescope.planner.sweeping import Sweep, SweepRow
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Part, Table

_MOST_ROWS = 500
_MOST_REASONS = 20
_HEADINGS = ("problem", "swizzle", "box", "copies", "request", "smem", "bandwidth")


def draw_sweep(found: Sweep) -> Drawing:
    """The best plan of every problem in numbers; what all problems have in common stands in the title."""
    asked = [_asked(row) for row in found.rows if row.problem is not None]
    common = [words[0] for words in list(zip(*asked, strict=True))[1:] if len(set(words)) == 1]
    rows = tuple((_named(row, common), *_facts(row)) for row in found.rows[:_MOST_ROWS])
    notes = (f"The first {_MOST_ROWS} of {len(found.rows)}; --json has all.",) if len(found.rows) > _MOST_ROWS else ()
    parts: list[Part] = [Table(rows, _HEADINGS, align="lllrrrr", notes=notes)]
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        for violation in row.violations[:1]:
            reasons.setdefault(str(violation), []).append(row.asked)
    if reasons:
        shown = list(reasons.items())[:_MOST_REASONS]
        listed = tuple((names[0] + (f" and {len(names) - 1} more" if names[1:] else ""), why) for why, names in shown)
        parts.append(Table(listed, ("problem", "why it has no plan"), title="Without a plan"))
    title = f"{counted(len(found.rows), 'problem')}, {found.planned} with a plan"
    return Drawing(f"{title}: {', '.join(common)}" if common else title, tuple(parts))


def _asked(row: SweepRow) -> tuple[str, ...]:
    problem = row.problem
    assert problem is not None
    consumer = problem.consumer if isinstance(problem.consumer, str) else problem.consumer.name
    return by(problem.tile).replace(" ", ""), problem.data_type.ptx, problem.major, consumer, problem.arch.name


def _named(row: SweepRow, common: list[str]) -> str:
    if row.problem is None:
        return row.asked
    tile, *others = _asked(row)
    return " ".join([tile, *(word for word in others if word not in common)])


def _facts(row: SweepRow) -> tuple[str, ...]:
    if not row.has_plan:
        return ("no plan", *[""] * (len(_HEADINGS) - 2))
    box = "-" if row.box is None else by(row.box).replace(" ", "")
    share = "-" if row.bandwidth_share is None else f"{row.bandwidth_share:.0%}"
    request = f"{row.gmem_request_bytes} B"
    return str(row.swizzle), box, str(row.tma_instructions), request, str(row.smem_bytes), share
