"""Titles and error lines of public threads in the words of their authors: the right cause is first for nine of ten.

titles_and_error_lines.tsv holds them with what a person judged right from the line and from how its thread ended: one or
several causes, terms or symptoms. None of them was written with tilescope's tables in sight.
"""

from pathlib import Path

import pytest

from tilescope.errors import RuleError
from tilescope.questions import topics
from tilescope.symptoms import CAUSE, SEEN, TERMS, Diagnosis
from tilescope.symptoms.tables import table
from tilescope.symptoms.words import words_of

TABLE = Path(__file__).with_name("titles_and_error_lines.tsv")
LINES = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()[1:]]
SHARE_RIGHT = 0.9
TOGETHER = frozenset(table("words")["together"])  # words that stand for several


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


# Phrases of several words of which filler leaves one, where that one says it all.
ONE_WORD_IS_ENOUGH = {
    *("segfault gpu", "out of memory", "cuda graph", "numerical error", "slow kernel", "of peak", "cuda syscall"),
    *("ecc error", "nvlink error", "gsp error", "sticky error", "only tn"),
}


def test_filler_leaves_no_phrase_a_single_common_word():
    """Where "consumer gpu" was "consumer", any title about a consumer was about consumer cards."""
    phrases = [phrase for row in (*CAUSE.values(), *SEEN.values()) for phrase in row.phrases]
    left = {phrase for phrase in phrases if len(phrase.split()) > 1 and len(words_of(phrase)) == 1}
    joined = {phrase for phrase in left if words_of(phrase) <= TOGETHER}
    assert left - joined <= ONE_WORD_IS_ENOUGH, sorted(left - joined - ONE_WORD_IS_ENOUGH)


@pytest.mark.parametrize(
    ("typed", "word", "is_there"),
    [
        ("RTX5090", "5090", True),
        ("sm90_gemm_tma_warpspecialized", "specialize", True),
        ("swaps rows (e.g. block_M=256)", "g", False),
        ("works with -G", "g", True),
        ("GPU at 100%", "fullpercent", True),
        ("sm_100a: +31% time", "fullpercent", False),
        ("3 of 4 rows are wrong", "fraction34", True),
        ("wrong with Triton 3.4", "fraction34", False),
    ],
)
def test_what_is_one_word_and_what_is_none(typed, word, is_there):
    assert (word in words_of(typed)) == is_there


def test_who_asks_for_a_difference_gets_the_first_of_the_two():
    found = topics.find("Is the key difference between mbarrier and barrier their handling of producer-consumer count?")
    assert found.name == "mbarrier"
