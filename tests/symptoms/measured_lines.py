"""How explain does on labelled lines: `python tests/symptoms/measured_lines.py lines_measured` prints the shares, and those by topic."""

import sys
from collections import defaultdict
from typing import NamedTuple

from fit_choice import Labelled, read_lines

from tilescope.errors import RuleError
from tilescope.questions.sentence_choice import first_names
from tilescope.questions.topic_questions import find, summarize_topic
from tilescope.symptoms import CAUSE, SYMPTOM, Diagnosis
from tilescope.symptoms.choice import family, is_sure


class Measured(NamedTuple):
    """One line: whether its topic is first, among three, whether the answer is sure, and whether a sure fix is another's."""

    labelled: Labelled
    first: tuple[str, ...]
    is_first: bool
    is_among_three: bool
    is_sure: bool
    is_wrong_fix: bool


def _with_first_cause(name: str) -> tuple[str, ...]:
    return (name, *SYMPTOM[name].causes[:1]) if name in SYMPTOM else (name,)


def measure(row: Labelled) -> Measured:
    """Ask explain for one line."""
    wanted = {family(topic) for topic in row.topics}
    try:
        found = find(row.line)
    except RuleError:
        return Measured(row, (), False, False, False, False)
    names = first_names(found) if not hasattr(found, "demand") else (found.name,)
    listed = [name for candidate, _ in getattr(found, "candidates", ()) for name in _with_first_cause(candidate)]
    first = names or tuple(listed[:2])
    is_known = not isinstance(found, Diagnosis) or found.is_known
    sure = is_known and is_sure(getattr(found, "strength", 1.0))
    is_first = not wanted.isdisjoint(map(family, first))
    fixes = {cause.name for cause in found.causes[:1]} if isinstance(found, Diagnosis) else set()
    shows_fix = any(CAUSE[name].fix.replace("`", "") == summarize_topic(found).advice for name in fixes)
    is_wrong_fix = sure and shows_fix and wanted.isdisjoint(map(family, fixes))
    return Measured(row, first, is_first, not wanted.isdisjoint(map(family, (*first, *listed))), sure, is_wrong_fix)


def describe(lines: list[Measured]) -> str:
    """The shares of a set, in one line."""
    count = len(lines)
    sure = [line for line in lines if line.is_sure]
    return (
        f"{sum(line.is_first for line in lines)} of {count} right first, {sum(line.is_among_three for line in lines)} among three; "
        f"{len(sure)} sure, {sum(line.is_first for line in sure)} of them right; "
        f"{sum(line.is_wrong_fix for line in lines)} with a wrong fix, surely"
    )


def describe_by_topic(lines: list[Measured]) -> str:
    """Right first, by the first label."""
    counts = defaultdict(list)
    for line in lines:
        for topic in line.labelled.topics:
            counts[topic].append(line.is_first)
    return "\n".join(f"{sum(right):4d} of {len(right):3d}  {topic}" for topic, right in sorted(counts.items()))


if __name__ == "__main__":
    for table in sys.argv[1:]:
        measured = [measure(row) for row in read_lines(table)]
        sys.stdout.write(f"{table}: {describe(measured)}\n{describe_by_topic(measured)}\n")
