"""Errors as data: they print, compare, travel through JSON and pickle, and suggest the nearest name."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilescope.errors import (
    DeviceError,
    IllegalInstructionError,
    PlanError,
    RuleError,
    TensorMapError,
    TilescopeError,
    Violation,
    argument_range,
    argument_type,
    unknown_name,
)
from tilescope.names import nearest_name
from tilescope.rule import Rule
from tilescope.sentence import shorten

SPAN = Violation("span", "error", "box[0]", "256 bytes", "at most 128", "Halve it.", {"box": [64, 64]})
NOTE = Violation("l2", "note", "l2_promotion", "none", "128B is quicker", "Use 128B.")


def test_tree_of_exceptions():
    for kind in (TensorMapError, IllegalInstructionError, PlanError):
        assert issubclass(kind, RuleError)
    assert issubclass(RuleError, TilescopeError)
    assert issubclass(RuleError, ValueError)
    assert issubclass(DeviceError, TilescopeError)
    assert issubclass(DeviceError, RuntimeError)
    assert not issubclass(TilescopeError, ValueError)


def test_error_prints_one_violation_a_line():
    error = RuleError(iter([SPAN, NOTE]))
    assert error.violations == (SPAN, NOTE)
    assert str(error).splitlines() == [str(SPAN), str(NOTE)]


@pytest.mark.parametrize("violation", [SPAN, NOTE, unknown_name("swizzle", "swizzle", "128", ["128B"])])
def test_violation_travels_through_json_and_pickle(violation):
    for back in (
        Violation.from_dict(json.loads(json.dumps(violation.to_dict()))),
        pickle.loads(pickle.dumps(violation)),
        copy.deepcopy(violation),
    ):
        assert back == violation
        assert hash(back) == hash(violation)
        assert str(back) == str(violation)


@pytest.mark.parametrize("kind", [RuleError, TensorMapError, IllegalInstructionError, PlanError])
def test_error_travels_through_pickle(kind):
    back = pickle.loads(pickle.dumps(kind([SPAN, NOTE])))
    assert type(back) is kind
    assert back.violations == (SPAN, NOTE)
    assert str(back) == str(kind([SPAN, NOTE]))


def test_revived_change_cannot_be_changed():
    with pytest.raises(TypeError):
        Violation.from_dict(SPAN.to_dict()).change["box"] = 1


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (SPAN.to_dict() | {"rul": "x"}, "violation rul; known: rule"),
        ({"rule": "x"}, "severity, argument, found, limit, fix"),
        ({}, "without rule"),
        (None, "without rule"),
        ([1], "without rule"),
    ],
)
def test_strange_data_is_no_violation(data, says):
    with pytest.raises(RuleError) as caught:
        Violation.from_dict(data)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (0, 0),
        (6.5, 6.5),
        ((8, 64), (8, 64)),
        ("64x64", None),
        (1 << 20000, "an integer of 20001 bits"),
        (float("nan"), None),
        ((8, float("inf")), None),
    ],
    ids=["integer", "float", "pair", "text", "long integer", "nan", "infinity"],
)
def test_an_argument_s_violation_holds_its_value_and_travels(value, held):
    for violation in (
        argument_range("rows", value, "at least 1", "Use 1."),
        argument_type("rows", value, "an integer", "Use 1."),
    ):
        assert violation.values.get("rows") == held
        assert Violation.from_dict(json.loads(json.dumps(violation.to_dict(), allow_nan=False))) == violation


def test_one_mistake_is_an_error_of_one_violation():
    error = Rule.named("missing-field").error(kind="layout", missing=("shape",))
    told = ("data", "a layout without shape", "every field is needed", "Add shape.")
    values = {"kind": "layout", "missing": ("shape",)}
    assert error.violations == (Violation("missing-field", "error", *told, values=values),)


KNOWN = ["none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_64B"]


@pytest.mark.parametrize(
    ("found", "nearest"),
    [
        ("128b", "128B"),
        ("128b_atom", "128B_ATOM_32B"),  # the first of equals
        ("atom_64", "128B_ATOM_64B"),
        ("non", "none"),
        ("31B", "32B"),  # as near as 128B and 64B are not
        ("the 64B mode, please", "64B"),  # contains it
        ("", None),
        ("zzzz", None),
        ("128B" * 10_000, "128B"),
    ],
)
def test_nearest_name(found, nearest):
    assert nearest_name(found, KNOWN) == nearest


def test_nothing_is_nearest_where_nothing_is_known():
    assert nearest_name("x", []) is None


@given(st.text(), st.lists(st.text()))
def test_nearest_name_is_a_known_one(found, known):
    assert nearest_name(found, known) in [*known, None]


@given(st.lists(st.text(min_size=1), min_size=1, unique=True))
def test_known_name_is_nearest_to_itself(known):
    folded = [name.casefold()[:80] for name in known]
    for name in known:
        if len(name) <= 40 and folded.count(name.casefold()) == 1:
            assert nearest_name(name, known) == name


def test_unknown_name_shows_what_was_given_and_what_is_known(wording):
    violation = unknown_name("swizzle", "mode", "128b_atm_32b", KNOWN)
    assert (violation.rule, violation.found) == ("unknown-name", "swizzle 128b_atm_32b")
    assert violation.fix == "Did you mean 128B_ATOM_32B?"
    wording("an unknown name", violation)
    assert violation.change == {"mode": "128B_ATOM_32B"}


def test_unknown_thing_that_is_no_name_shows_its_type():
    violation = unknown_name("swizzle", "mode", 3, KNOWN)
    assert violation.found == "swizzle 3 (int)"
    assert violation.fix.endswith(" none.")
    assert violation.change is None


def test_missing_name_and_empty_table_are_said_in_words(wording):
    assert unknown_name("operand", "operand", None, ("A", "B")).found == "operand is missing"
    nothing_known = unknown_name("slot", "at", "a", ())
    assert (nothing_known.rule, nothing_known.found) == ("unknown-name", "slot a")
    wording("an unknown name where none is known", nothing_known)


@given(st.text(), st.integers(2, 100))
def test_shortened_text_is_one_line_within_its_limit(text, limit):
    short = shorten(text, limit)
    assert len(short) <= limit
    assert len(short.splitlines()) <= 1
    assert short == " ".join(text.split()) or short.endswith("…")
