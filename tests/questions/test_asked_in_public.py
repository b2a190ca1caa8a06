"""Questions of public threads of 2024 to 2026, each answered by what a newcomer types: asked_in_public.toml.

A test holds what the answer says, not that it says something: "no conflict" must not pass for "conflict".
"""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tilescope.cli import run

HERE = Path(__file__).parent
QUESTIONS = tomllib.loads((HERE / "asked_in_public.toml").read_text("utf-8"))["question"]
ASKED_BEFORE = tomllib.loads((HERE / "threads.toml").read_text("utf-8"))["question"]
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+|forums\.developer\.nvidia\.com/t/\d+")
FEWEST_THREADS = 60


def arguments(question):
    """What stands behind `tilescope` in a question's command, the pasted text filled in."""
    program, *words = shlex.split(question["command"])
    assert program == "tilescope"
    return [question["pasted"] if word == "PASTED" else word for word in words]


def value_at(answer, path):
    """The value of an answer's JSON at a path such as "violations.0.rule"."""
    for key in path.split("."):
        answer = answer[int(key) if isinstance(answer, list) else key]
    return answer


def identifiers(questions):
    return [f"{question['thread']}-{number}" for number, question in enumerate(questions)]


@pytest.mark.parametrize("question", QUESTIONS, ids=identifiers(QUESTIONS))
def test_the_answer_says_what_the_thread_asks(question, capsys):
    status = run(arguments(question))
    answer = capsys.readouterr()
    said = " ".join((answer.out + answer.err).split())
    assert status == question.get("status", 0), said
    assert [phrase for phrase in question.get("says", ()) if phrase not in said] == [], said
    assert [phrase for phrase in question.get("lacks", ()) if phrase in said] == [], said


WITH_VALUES = [question for question in QUESTIONS if "json" in question]


@pytest.mark.parametrize("question", WITH_VALUES, ids=identifiers(WITH_VALUES))
def test_the_json_of_the_answer_has_the_values(question, capsys):
    status = run([*arguments(question), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert status == question.get("status", 0)
    assert {path: value_at(answer, path) for path in question["json"]} == question["json"]


def test_there_are_enough_threads_that_were_not_asked_before():
    threads = {question["thread"] for question in QUESTIONS}
    assert len(threads - {question["thread"] for question in ASKED_BEFORE}) >= FEWEST_THREADS


@pytest.mark.parametrize("question", QUESTIONS, ids=identifiers(QUESTIONS))
def test_a_question_names_its_thread_and_holds_something(question):
    assert THREAD.fullmatch(question["thread"])
    assert question["question"]
    assert ("pasted" in question) == ("PASTED" in question["command"])
    assert any(key in question for key in ("says", "lacks", "json"))
