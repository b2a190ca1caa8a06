"""What messages say, pinned once: tests/wording has a golden file for each package.

Sentences are not promised, so tests assert rules, places and values. The sentences themselves are compared here, for the
failing example of every rule, and by the fixture `wording` for what a test adds. After a change that is meant:

    python -m pytest --update-wording tests/test_wording.py tests/machine
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import tilescope
from tilescope.rule import RULES
from tilescope.tensor_map.demonstration import demonstrate

TESTS = Path(__file__).parent
SOURCE = Path(tilescope.__file__).parent
RULE_ENTRY = "rule "  # what the names of rules' entries begin with
TOP = "tilescope"  # the package of modules that lie in no folder


def package_of(path, root):
    """The folder below `root` that holds a file."""
    parts = path.relative_to(root).parts
    return parts[0] if len(parts) > 1 else TOP


@cache
def packages_of_rules():
    """The package of every rule: the one whose source enters it."""
    packages = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        for name in re.findall(r"\b(?:\w*rule|Wording)\(\s*\"([A-Za-z0-9-]+)\"", text):
            packages[name] = package_of(path, SOURCE)
    return packages


@cache
def texts_of_rules():
    """What the failing example of every rule says, by package and name."""
    texts = {}
    for row in RULES.values():
        if row.failing is not None:
            violations = demonstrate(row, row.failing)
            package = packages_of_rules()[row.name]
            texts.setdefault(package, {})[RULE_ENTRY + row.name] = "\n".join(map(str, violations))
    return texts


@cache
def names_in_tests():
    """The names of `wording(name, text)` in the tests, by package; a name made of a case is a pattern."""
    names = {}
    for path in sorted(set(TESTS.rglob("test_*.py")) - {Path(__file__)}):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "wording":
                names.setdefault(package_of(path, TESTS), []).append(pattern_of(call.args[0]))
    return names


def pattern_of(name):
    """A regular expression for the names that an argument of `wording` stands for."""
    if isinstance(name, ast.Constant):
        return re.escape(name.value)
    assert isinstance(name, ast.JoinedStr), f"line {name.lineno}: a name is a literal or an f-string"
    return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in name.values)


def packages_with_wording():
    return sorted({path.stem for path in (TESTS / "wording").glob("*.txt")} | texts_of_rules().keys())


def test_every_rule_has_a_package():
    assert sorted(RULES.keys() - packages_of_rules().keys()) == []


def test_the_examples_of_rules_say(wording):
    for package, texts in texts_of_rules().items():
        for name, text in texts.items():
            wording(name, text, package=package)


def is_asked_for(package, name):
    """Whether a rule or a test compares an entry of a golden file."""
    patterns = names_in_tests().get(package, [])
    return name in texts_of_rules().get(package, {}) or any(re.fullmatch(pattern, name) for pattern in patterns)


def test_every_entry_is_asked_for(golden, pytestconfig):
    """--update-wording deletes what no rule and no test asks for any more."""
    for package in packages_with_wording():
        texts = golden.golden_texts(package)
        asked = {name: text for name, text in texts.items() if is_asked_for(package, name)}
        if pytestconfig.getoption("--update-wording"):
            golden.write_golden_texts(package, asked)
        else:
            assert sorted(texts.keys() - asked.keys()) == [], package


def test_every_name_has_an_entry(golden, pytestconfig):
    """Also that of a test that takes long, and of one that needs a program that is missing here."""
    if pytestconfig.getoption("--update-wording"):
        pytest.skip("entries are written by the tests that follow")
    for package, names in names_in_tests().items():
        texts = golden.golden_texts(package)
        assert [name for name in names if not any(re.fullmatch(name, entry) for entry in texts)] == [], package


def test_a_name_stands_in_one_test_alone():
    twice = [
        (package, name) for package, names in names_in_tests().items() for name in set(names) if names.count(name) > 1
    ]
    assert twice == []


def test_golden_files_are_written_as_they_are_read(golden, tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    texts = {"b": "first line\n\nthird line", "a": "one line"}
    golden.write_golden_texts("machine", texts)
    assert golden.golden_file("machine").read_text("utf-8") == "## a\none line\n\n## b\nfirst line\n\nthird line\n"
    assert golden.golden_texts("machine") == texts


def test_another_text_is_shown_as_a_difference(wording, golden, tmp_path, monkeypatch, pytestconfig):
    if pytestconfig.getoption("--update-wording"):
        pytest.skip("texts are written, not compared")
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    golden.write_golden_texts("machine", {"hang": "2 of 3 arrivals"})
    wording("hang", "2 of 3 arrivals", package="machine")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)- 2 of 3 arrivals\n.*\+ 1 of 3 arrivals"):
        wording("hang", "1 of 3 arrivals", package="machine")
    with pytest.raises(pytest.fail.Exception, match="has no race"):
        wording("race", "1 of 3 arrivals", package="machine")
