"""Every rule is a row of RULES, and `tilescope explain` knows it."""

import re
from pathlib import Path

import tilescope
from tilescope.questions import topic_questions
from tilescope.rule import RULES

# Rules about files, ports, cards and tilescope itself, which no expression breaks: their sources say why.
WITHOUT_EXAMPLES = {
    "bench-save",
    "capture",
    "capture-format",
    "capture-program",
    "plan-proof",
    "serve-host",
    "serve-port",
    "cuda-compile",
    "triton-compile",
    "triton-parameters",
}
SOURCE = Path(tilescope.__file__).parent
ROWS_OF_ARGUMENTS = ("errors.py", "rule.py")  # below the rule book: what they say of arguments has rows in rule.py
BARE_NAME = re.compile(r"(?<!\.)\b(?:Violation|broken)\(\s*f?\"")


def test_every_rule_is_explained():
    listed = dict(topic_questions.index().groups)["rules"]
    assert set(listed) == set(RULES)
    assert all(topic_questions.find(name) is row for name, row in RULES.items())


def test_no_violation_is_made_from_a_bare_name():
    paths = [path for path in SOURCE.rglob("*.py") if path.name not in ROWS_OF_ARGUMENTS]
    assert [path.name for path in paths if BARE_NAME.search(path.read_text("utf-8"))] == []


def test_every_rule_names_its_source_and_has_an_example_on_each_side():
    """tests/tensor_map/test_rules.py runs the examples."""
    without = {name for name, row in RULES.items() if not (row.source and row.passing and row.failing)}
    assert without == WITHOUT_EXAMPLES
