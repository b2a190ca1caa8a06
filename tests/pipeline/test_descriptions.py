"""Descriptions of pipelines: what is read, what is refused and why, and that they lead back to themselves."""

import json
import re
from pathlib import Path

import pytest
from descriptions import RIGHT, ring

import tilescope as ts
from tilescope.pipeline import simulation
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.operations import OPERATIONS
from tilescope.value import Value

ONE = {
    "barriers": {"full": {"count": 1}},
    "slots": {"a": {"bytes": 64}},
    "roles": [{"name": "thread", "steps": [{"arrive": "full"}]}],
}


def with_steps(*steps, **top):
    return ONE | {"roles": [{"name": "thread", "steps": list(steps)}]} | top


@pytest.mark.parametrize("name", RIGHT)
def test_plain_data_leads_back(name):
    pipeline = Pipeline.from_dict(RIGHT[name]())
    data = json.loads(json.dumps(pipeline.to_dict()))
    assert Value.from_dict(data) == pipeline
    assert Pipeline.from_dict(data).to_dict() == pipeline.to_dict()


def test_json_and_toml_say_the_same(tmp_path):
    toml, plain = tmp_path / "ring.toml", tmp_path / "ring.json"
    toml.write_text(
        'barriers.full.count = 1\nslots.a.bytes = 64\n[[roles]]\nname = "thread"\nsteps = [{arrive = "full"}]\n'
    )
    plain.write_text(json.dumps(ONE))
    assert Pipeline.from_file(toml).roles == Pipeline.from_file(plain).roles
    assert (Pipeline.from_file(toml).name, Pipeline.from_dict(ONE).name) == ("ring", "pipeline")


@pytest.mark.parametrize(
    ("data", "rule", "argument"),
    [
        ({}, "argument-range", "roles"),
        ({"roles": {}}, "argument-type", "roles"),
        ([1], "argument-type", "pipeline"),
        (with_steps({"wait": "full"}), "argument-type", "thread.steps[0].parity"),
        (with_steps({"wait": "ful", "parity": 0}), "unknown-name", "thread.steps[0].wait"),
        (with_steps({"wait": "full[", "parity": 0}), "pipeline-reference", "thread.steps[0].wait"),
        (with_steps({"wait": "full", "parity": "i % 2"}), "unknown-name", "thread.steps[0].parity"),
        (with_steps({"wait": "full", "parity": "__import__('os')"}), "pipeline-expression", "thread.steps[0].parity"),
        (with_steps({"wait": "full", "parity": 0, "bites": 3}), "unknown-name", "thread.steps[0] (wait)"),
        (with_steps({"wiat": "full"}), "unknown-name", "thread.steps[0]"),
        (with_steps({"fence": "proxy"}), "unknown-name", "thread.steps[0].fence"),
        (with_steps({"commit": "wgmm"}), "unknown-name", "thread.steps[0].commit"),
        (with_steps({"multiply": ["b"]}), "unknown-name", "thread.steps[0].multiply"),
        (with_steps({"init": ["full[0]"]}), "unknown-name", "thread.steps[0].init"),  # all stages of a barrier at once
        (with_steps({"expect": "full", "bytes": 16, "arrive": 1}), "argument-type", "thread.steps[0].arrive"),
        (with_steps({"registers": 40}), "argument-type", "registers"),
        (with_steps({"loop": "rank", "count": 2, "steps": []}), "pipeline-name", "thread.steps[0].loop"),
        (with_steps(cluster=[4, 8]), "argument-range", "cluster"),
        (with_steps(cluster="2x1"), "argument-range", "cluster"),
        (ONE | {"barriers": {"full": {"count": 0}}}, "argument-range", "barriers.full.count"),
        (ONE | {"barriers": {"full": {}}}, "argument-type", "barriers.full.count"),
        (ONE | {"slots": {"a": {"space": "registers"}}}, "unknown-name", "slots.a.space"),
        (ONE | {"roles": [*ONE["roles"], *ONE["roles"]]}, "pipeline-name", "roles"),
    ],
)
def test_what_cannot_be_read_is_named(data, rule, argument):
    with pytest.raises(ts.RuleError) as refused:
        Pipeline.from_dict(data)
    assert (rule, argument) in [(each.rule, each.argument) for each in refused.value.violations]


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ts.RuleError) as refused:
        Pipeline.from_dict(with_steps({"wait": "ful", "parity": "i"}, {"jump": 3}, cluster=[0]))
    assert len(refused.value.violations) == 4


@pytest.mark.parametrize("content", [b"\xff", b"{", b"a = ", b"[1, 2]", b"3"])
def test_files_that_are_no_description_are_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ts.RuleError):
        Pipeline.from_file(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 / 2", 3),
        ("7 // 2", 3),
        ("i % 4 ^ 1", 2),
        ("1 << i", 128),
        ("i == 7", 1),
        ("-i + 8", 1),
        (5, 5),
        ("3 if i > 9 else 4", 4),
    ],
)
def test_expressions(text, value):
    assert Expression.read("x", text, ["i"]).value({"i": 7}) == value


@pytest.mark.parametrize(
    "text", ["i.real", "f(i)", "[i]", "i ** 99", "'i'", "1.5", "", "i i", "lambda: 1", "(i := 2)", 1.5, None, "1" * 300]
)
def test_what_is_no_arithmetic_is_refused(text):
    with pytest.raises(ts.RuleError):
        Expression.read("x", text, ["i"])


@pytest.mark.parametrize(("text", "i"), [("1 % i", 0), ("1 << i", 64), ("1 << i", -1), ("1 >> i", -1)])
def test_values_that_do_not_exist_are_refused(text, i):
    with pytest.raises(ts.RuleError):
        Expression.read("x", text, ["i"]).value({"i": i})


def test_references():
    assert reference("wait", " full [ i % 4 ] ") == ("full", "i % 4")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"wait": "empty[i]", "parity": "(i / 2) % 2 ^ 1"}, "pipeline-stage"),
        ({"arrive": "full[i % 2]", "mask": 0}, "pipeline-mask"),
        ({"loop": "j", "count": 1 << 70, "steps": []}, "argument-range"),
    ],
)
def test_indices_and_masks_outside_are_refused_when_they_are_met(change, rule):
    data = ring()
    data["roles"][0]["steps"][0]["steps"].insert(0, change)
    with pytest.raises(ts.RuleError) as refused:
        ts.simulate(data)
    assert refused.value.violations[0].rule == rule


def test_every_operation_is_carried_out_somewhere():
    used = {step.op for name in RIGHT for role in Pipeline.from_dict(RIGHT[name]()).roles for step in role.all_steps()}
    in_global_memory = {"signal", "poll", "griddepcontrol"}  # test_verdicts carries them out
    assert set(OPERATIONS) - used - in_global_memory <= {"arrive", "inval"}


def test_every_mistake_names_a_row_of_the_rule_book():
    text = "".join(path.read_text("utf-8") for path in Path(simulation.__file__).parent.glob("*.py"))
    named = set(re.findall(r'"(pipeline-[a-z]+)"', text))
    assert len(named) > 20
    assert named <= set(ts.RULES)
