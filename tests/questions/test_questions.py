"""Questions of public threads, each answered by a command: threads.toml."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tilescope.cli import run

SHORTEST_STATEMENT = 18  # characters
QUESTIONS = tomllib.loads((Path(__file__).parent / "threads.toml").read_text("utf-8"))["question"]


@pytest.mark.parametrize(
    "question", QUESTIONS, ids=[f"{each['thread']}-{number}" for number, each in enumerate(QUESTIONS)]
)
def test_the_command_answers_the_thread(question, capsys):
    program, *arguments = shlex.split(question["command"])
    assert program == "tilescope"
    status = run(arguments)
    answer = capsys.readouterr()
    said = " ".join((answer.out + answer.err).split())
    assert status == question.get("status", 0), said
    assert [text for text in question["contains"] if text not in said] == [], said


def test_there_are_enough_threads_and_every_one_is_named_well():
    threads = {each["thread"] for each in QUESTIONS}
    assert len(threads) >= 60
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in threads)
    assert all(each["symptom"] and each["contains"] for each in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=[each["thread"] for each in QUESTIONS])
def test_what_must_be_there_is_a_statement_and_no_word(question):
    """ "conflict" stands in "no conflict" too."""
    assert max(map(len, question["contains"])) >= SHORTEST_STATEMENT
