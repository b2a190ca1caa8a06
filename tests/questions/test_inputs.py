"""The inputs of questions: what a command says is read back, and what the library takes anyway is left out."""

from inspect import signature

import pytest

import tilescope as ts
from tilescope.questions import MODULES, question_of
from tilescope.questions.map_inputs import MAP_INPUTS
from tilescope.questions.map_questions import CHECK
from tilescope.questions.plan_questions import PLAN
from tilescope.questions.question import READERS, Asked, defaults, flag

QUESTIONS = [question_of(name) for name in MODULES]
OPTIONS = {f"{question.name} {row.name}": row for question in QUESTIONS for row in question.inputs if row.option}
READ_OPTIONS = {name: row for name, row in OPTIONS.items() if row.read in READERS and row.read is not flag}
FLAGS = {name: row for name, row in OPTIONS.items() if row.read is flag}
SAMPLES = {"N": 5, "N,…": (4, 8), "N,N": (4, 8), "NxN": (64, 32), "MxNxK": (64, 32, 16), "A": 1024}


@pytest.mark.parametrize("row", READ_OPTIONS.values(), ids=READ_OPTIONS)
def test_what_a_command_says_is_read_back_by_its_option(row):
    value = SAMPLES.get(READERS[row.read].metavar, row.choices[-1] if row.choices else "some name")
    option, said = row.words(value)
    assert option == row.option.split()[0]
    assert row.read(said) == value


@pytest.mark.parametrize("row", FLAGS.values(), ids=FLAGS)
def test_a_flag_stands_alone(row):
    assert row.words(True) == [row.option]


@pytest.mark.parametrize("question", QUESTIONS, ids=MODULES)
def test_a_default_that_help_shows_is_what_the_library_takes_or_is_said_in_words(question):
    for row in question.inputs:
        shown = question.default(row)
        if shown and not row.unsaid:
            assert row.read(shown) in (defaults(*question.functions)[row.library_name], (0,), (1,))


@pytest.mark.parametrize("question", QUESTIONS, ids=MODULES)
def test_inputs_of_a_question_have_names_of_their_own(question):
    names = [row.name for row in question.inputs]
    options = [option for row in question.inputs for option in row.option.split()]
    assert len(set(names)) == len(names)
    assert len(set(options)) == len(options)


def test_a_command_leaves_out_what_the_library_takes_anyway():
    said = {"tile": (128, 64), "data_type": "bf16", "major": "K", "stages": 1, "direction": "load", "fold": False}
    assert PLAN.words(Asked(said)) == ["plan", "128x64", "bf16"]
    other = Asked(said | {"major": "MN", "fold": True})
    assert PLAN.words(other) == ["plan", "128x64", "bf16", "--major", "MN", "--fold"]


def test_a_negative_number_is_no_option():
    words = question_of("load").words(Asked({"coords": (-8, 2), "smem_address": 0}))
    assert words == ["load", "--coords=-8,2"]


def test_what_one_kind_of_map_takes_anyway_is_said_to_another_that_does_not():
    said = {"swizzle": "none", "arch": "sm_90", "element_strides": (1,)}
    assert CHECK.words(Asked(said)) == ["check", "--element-strides", "1"]
    wide = CHECK.words(Asked(said | {"mode": "W"}))
    assert wide == ["check", "--wide", "W", "--element-strides", "1", "--swizzle", "none", "--arch", "sm_90"]


def test_the_inputs_of_a_map_are_arguments_of_a_kind_of_map():
    arguments = {name for kind in (ts.TensorMap, ts.Im2colMap, ts.Im2colWideMap) for name in signature(kind).parameters}
    assert {row.name for row in MAP_INPUTS} <= arguments


def test_help_names_what_an_im2col_wide_map_takes_otherwise():
    rows = {row.name: row for row in MAP_INPUTS}
    for name, taken in defaults(ts.Im2colWideMap).items():
        if name in rows and type(taken) is str and taken != CHECK.default(rows[name]) and name != "mode":
            assert taken in rows[name].hint
