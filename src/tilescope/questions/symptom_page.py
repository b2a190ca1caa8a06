"""The page of symptoms: what somebody sees in, causes in order out, each with the page that tests it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.pipeline.toml_text import template_text
from tilescope.questions import (
    bank_questions,
    copy_questions,
    decode_questions,
    map_questions,
    operand_questions,
    pipeline_questions,
    plan_questions,
    swizzle_questions,
)
from tilescope.questions.call import Call
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.pipeline_samples import SAMPLES
from tilescope.questions.question import Answer, Asked, Input
from tilescope.questions.topic_questions import EXPLAIN, find, summarize_topic
from tilescope.rule import ARGUMENT_TYPE, Rule
from tilescope.symptoms import SYMPTOM, Cause, Diagnosis, Symptom, diagnose
from tilescope.symptoms.topic import Topic
from tilescope.tensor_map import TensorMap

_ALSO_SHOWN = 3  # other symptoms


class PageOfTest(NamedTuple):
    """The page that gives the same answer as the command of a cause."""

    page: str
    title: str
    form: PageForm
    query: dict[str, str]  # inputs of the page in addition to the words of the command


_TEST_PAGES = {
    "check": PageOfTest("tensor-map", "Tensor map", map_questions.CHECK_FORMS[TensorMap.kind], {"swizzle": "none"}),
    "load": PageOfTest("load", "Load", copy_questions.LOAD_FORMS[TensorMap.kind], {"swizzle": "none", "coords": "0,0"}),
    "swizzle": PageOfTest("swizzle", "Swizzle", swizzle_questions.SWIZZLE_FORM, {}),
    "plan": PageOfTest("plan", "Plan", plan_questions.PLAN_FORM, {}),
    "banks": PageOfTest("banks", "Banks", bank_questions.TILE_FORM, {"other": ""}),
    "mma descriptors": PageOfTest("tensor-core", "Tensor core", operand_questions.DESCRIPTORS_FORM, {}),
    "decode": PageOfTest("tensor-core", "Tensor core", decode_questions.WORD_FORM, {"show": "word"}),
}
_SHOWN_ANYWAY = ("--fix", "--addresses")  # what the page shows unasked
_ON_PIPELINE = "Test it on the page Pipeline"
_TILE_WORD = re.compile("[0-9]+x[0-9]+")


def answer(asked: Asked) -> Answer:
    """What `explain` finds; where it finds nothing, the diagnosis, which leads to the nearest symptoms."""
    (seen,) = asked["topic"]
    call: Call[Diagnosis | Topic | Rule]
    try:
        result = find(seen)
        name = "diagnosis" if isinstance(result, Diagnosis) else "topic"
        call = Call(find, (seen,), name=name, module="tilescope.questions.topic_questions")
    except RuleError:
        result = diagnose(seen)
        call = Call(diagnose, (seen,), name="diagnosis", module="tilescope.symptoms")
    return Answer(result, call, first=summarize_topic(result))


def _asking_topic(asked: Asked) -> Asked:
    """What is seen, without dashes before it, which a command would take for an option."""
    seen = asked["seen"].lstrip("- ")
    if not seen:
        raise ARGUMENT_TYPE.error(
            argument="seen",
            found="no words",
            limit="seen is a code, a name or a few words",
            fix="Write 715, for example.",
        )
    return asked.saying(topic=(seen,))


def _leads(_: Asked, answer: Answer) -> Leads:
    """The pages that test the causes, and those of other symptoms."""
    diagnosis = answer.value
    if not isinstance(diagnosis, Diagnosis):
        return {}
    leads = {f"cause {cause.name}": _tests_of(cause) for cause in diagnosis.causes}
    leads["others"] = _pages_of(diagnosis.symptoms[1 : 1 + _ALSO_SHOWN])
    leads["suggested"] = _pages_of(diagnosis.suggested)
    return leads


def _pages_of(symptoms: tuple[Symptom, ...]) -> dict[str, str]:
    return {symptom.name: address("symptoms", {"seen": symptom.name}) for symptom in symptoms}


def _tests_of(cause: Cause) -> dict[str, str]:
    """The page that tests a cause, filled as its command is; none where only the command, or nothing, can."""
    if cause.name in SAMPLES:  # a pipeline with this very mistake
        return {_ON_PIPELINE: address("pipeline", {"given": "text", "text": SAMPLES[cause.name].text})}
    _, *words = shlex.split(cause.command)
    if words[:1] == ["pipeline"]:
        return _pipeline_test(words[1:])
    for name, test in _TEST_PAGES.items():
        named = name.split()
        if words[: len(named)] == named:
            filled = _fill_fields(test.form, words[len(named) :])
            if filled is None:
                return {}
            return {f"Test it on the page {test.title}": address(test.page, test.query | filled)}
    return {}


def _pipeline_test(words: list[str]) -> dict[str, str]:
    """The page that runs the template or the tiles of a command."""
    if words[0] == "--template":
        return {_ON_PIPELINE: address("pipeline", {"given": "text", "text": template_text(words[1])})}
    tiles = [*takewhile(_TILE_WORD.fullmatch, words)]
    second = {"other": tiles[1]} if len(tiles) > 1 else {}
    without_tiles = replace(pipeline_questions.TILES_FORM, inputs=pipeline_questions.TILES_FORM.inputs[2:])
    filled = _fill_fields(without_tiles, words[len(tiles) :])
    if filled is None:
        return {}
    return {_ON_PIPELINE: address("pipeline", {"tile": tiles[0], **second, **filled})}


def _fill_fields(form: PageForm, words: list[str]) -> dict[str, str] | None:
    """The fields of a form that the words of a command fill; None if it has no field for one."""
    by_option = {row.option.split()[0]: row.name for row in form.inputs if row.option} | {"--pattern": "pattern"}
    places = [row.name for row in form.inputs if not row.option]
    filled: dict[str, str] = {}
    remaining = list(words)
    while remaining:
        word = remaining.pop(0)
        if word in by_option and remaining:
            filled[by_option[word]] = remaining.pop(0)
        elif places and not word.startswith("-"):
            filled[places.pop(0)] = word
        elif word not in _SHOWN_ANYWAY:
            return None
    return filled


SEEN_FORM = PageForm(
    EXPLAIN,
    inputs=(
        Input(
            "seen",
            "",
            "What you see",
            'such as 715, "wrong after the first stage", or an error\'s name.',
            choices=tuple(SYMPTOM),
            is_open=True,
            is_long=True,
        ),
    ),
    presets={"seen": "the kernel hangs in try_wait"},
    asking=_asking_topic,
    answer=answer,
    leads=_leads,
)
