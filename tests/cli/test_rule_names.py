"""Every rule name that tilescope can print is explained: the names are read out of its own source."""

import ast
from itertools import product
from pathlib import Path

import pytest

import tilescope
from tilescope.cli import run, topics
from tilescope.cli.rule_names import RULE_NAMES
from tilescope.rule import RULES

SOURCE = Path(tilescope.__file__).parent
# What the expressions inside f-strings that spell a rule's name can be.
EXPANDED = {
    "name": ("wgmma", "tcgen05"),
    "self.form.instruction": ("wgmma", "tcgen05"),
}
PASSED_ON = {"rule", "self.name", "what"}  # a parameter, or a row of RULES: its caller gives the name


def called(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def spelled(node, **known):
    """All texts that an expression can be; none where a caller decides."""
    if isinstance(node, ast.Constant):
        return {node.value}
    if not isinstance(node, ast.JoinedStr):
        assert ast.unparse(node) in PASSED_ON, f"what can {ast.unparse(node)} be, in line {node.lineno}?"
        return set()
    pieces = []
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            pieces.append([piece.value])
        else:
            pieces.append(known.get(ast.unparse(piece.value)) or EXPANDED[ast.unparse(piece.value)])
    return {"".join(each) for each in product(*pieces)}


def names_in(module):
    """The rule names of one module: of violations, of local functions that make them, of loops over rules."""
    found = set()
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and node.args]
    makers = {}  # function whose first parameter is the rule: how it spells the name
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        parameters = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
        if parameters[:1] in (["rule"], ["what"]):
            inner = [
                each
                for each in ast.walk(node)
                if isinstance(each, ast.Call) and called(each) in ("Violation", "broken", "_wrong")
            ]
            if inner:
                makers[node.name] = inner[0].args[0]
    for call in calls:
        if called(call) in ("Violation", "broken") and not (
            isinstance(call.args[0], ast.JoinedStr) and "{rule}" in ast.unparse(call.args[0])
        ):
            found |= spelled(call.args[0])
        elif called(call) in makers and isinstance(call.args[0], ast.Constant):
            spelling = makers[called(call)]
            if isinstance(spelling, ast.Constant):  # the parameter is no rule after all
                continue
            while isinstance(spelling, ast.Name) and "_wrong" in makers and called(call) != "_wrong":
                spelling = makers["_wrong"]  # passed on once more
            given = call.args[0].value
            found |= spelled(spelling, rule=[given]) if isinstance(spelling, ast.JoinedStr) else {given}
    for node in ast.walk(module):
        if (
            isinstance(node, ast.For)
            and isinstance(node.target, ast.Tuple)
            and ast.unparse(node.target.elts[0]) == "rule"
        ):
            found |= {row.elts[0].value for row in node.iter.elts}
    return found


NAMES = sorted(
    {name for path in SOURCE.rglob("*.py") for name in names_in(ast.parse(path.read_text("utf-8")))} | set(RULES)
)


def test_the_source_gives_the_names_that_are_printed():
    assert {"plan-layout", "access-torn", "tile-atoms", "swizzle-span", "lane-alignment", "matrix-range"} <= set(NAMES)
    assert {"wgmma-tile", "tcgen05-layout", "tcgen05-flag", "wgmma-read", "input-file"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_name_is_explained(name, capsys):
    assert run(["explain", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}\n") or name not in RULES.keys() | RULE_NAMES.keys()  # a term may bear the name


def test_the_table_has_no_other_names():
    assert set(RULE_NAMES) <= set(NAMES)
    assert not set(RULE_NAMES) & set(RULES)
    assert all(topics.find(name).meaning.endswith(".") for name in RULE_NAMES)
