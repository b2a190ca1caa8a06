"""Titles and error lines of public threads in the words of their authors: the right cause is first for nine of ten.

titles_and_error_lines.tsv holds them with what a person judged right from the line and from how its thread ended: one or
several causes, terms or symptoms. None of them was written with tilescope's tables in sight.
"""

from pathlib import Path

from tilescope.errors import RuleError
from tilescope.questions import topics
from tilescope.symptoms import CAUSE, SEEN, TERMS, Diagnosis

TABLE = Path(__file__).with_name("titles_and_error_lines.tsv")
LINES = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()[1:]]
SHARE_RIGHT = 0.9


def first_named(typed):
    """What an answer puts first: the first symptom and its first cause, or the topic; nothing where it knows nothing."""
    try:
        found = topics.find(typed)
    except RuleError:
        return frozenset()
    if not isinstance(found, Diagnosis):
        return frozenset({found.name})
    symptoms = {symptom.name for symptom in found.symptoms[:1]}
    return frozenset(symptoms | {cause.name for cause in found.causes[:1]})


def accepted(names):
    return frozenset(names.split(" | "))


def test_the_right_cause_comes_first_for_nine_lines_of_ten():
    misses = []
    for typed, names, thread in LINES:
        first = first_named(typed)
        if not first & accepted(names):
            misses.append(f"{typed} ({thread})\n    wanted {names}; first is {' / '.join(sorted(first)) or 'nothing'}")
    right = len(LINES) - len(misses)
    assert right >= SHARE_RIGHT * len(LINES), f"{right} of {len(LINES)} are right; not these:\n" + "\n".join(misses)


def test_all_that_is_wanted_exists():
    known = {*CAUSE, *SEEN, *(term.name for term in TERMS)}
    wanted = frozenset().union(*(accepted(names) for _, names, _ in LINES))
    assert wanted <= known, sorted(wanted - known)
