"""What people type, in their words: codes, logs, misspellings, sentences. Each leads to what they mean, or to the list.

what_people_type.tsv holds phrases of public threads and logs, and the answer that a person judged right for them: the
symptom or term meant, or what is near to it.
"""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilescope.cli import run
from tilescope.errors import RuleError
from tilescope.questions import topic_questions

TABLE = Path(__file__).with_name("what_people_type.tsv")
TYPED = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()[1:]]


def of_kind(kind):
    return [(typed, name) for typed, answered_by, name in TYPED if answered_by == kind]


@pytest.mark.parametrize(("typed", "symptom"), of_kind("symptom"))
def test_what_people_see_leads_to_its_symptom(typed, symptom):
    assert topic_questions.find(typed).symptoms[0].name == symptom


@pytest.mark.parametrize(("typed", "term"), of_kind("term"))
def test_words_of_the_trade_lead_to_their_term(typed, term):
    assert topic_questions.find(typed).name == term


@pytest.mark.parametrize("typed", [typed for typed, _ in of_kind("list")])
def test_what_is_unknown_leads_to_the_list_and_to_nothing_unrelated(typed):
    with pytest.raises(RuleError) as refused:
        topic_questions.find(typed)
    assert refused.value.violations[0].fix.startswith("`tilescope explain` lists")


@pytest.mark.parametrize(("typed", "near"), of_kind("near"))
def test_a_sentence_that_names_nothing_leads_to_what_is_near(typed, near):
    found = topic_questions.find(typed)
    assert not found.is_known
    assert near in found.nearest


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "hostile",
    [
        "x" * 1_000_000,
        "hang " * 300_000,
        "\x00\x1b[31m",
        "a_" * 100_000,
        "' OR 1=1 --",
        "../../etc/passwd",
        "%s%n",
        "🙂" * 9999,
        "misalligned " * 20_000,
        "(" * 50_000,
        "\n" * 99_999,
        "qzxw vbnm " * 20_000,
        "a." * 50_000,
        "llvm/" * 20_000,
    ],
)
def test_hostile_text_is_answered(hostile, capsys):
    assert run(["explain", hostile]) in (0, 1)
    said = capsys.readouterr()
    assert said.err == ""


def test_a_long_log_is_read_at_both_ends():
    log = "INFO starting worker 7 with config a=1\n" * 20_000
    error = "RuntimeError: CUDA error: misaligned address\n"
    for text in (error + log, log + error):
        assert topic_questions.find(text).symptoms[0].name == "misaligned address (716)"


@settings(max_examples=30)
@given(st.text(max_size=300))
def test_any_text_is_explained_or_refused(text):
    with suppress(RuleError):
        topic_questions.find(text)
