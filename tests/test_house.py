"""How the code is written: rules as named constants, told in one way; types that say something; a formatter that decides."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import tilescope
from tilescope.rule import RULES, Rule

SOURCE = Path(tilescope.__file__).parent
TESTS = Path(__file__).parent
FORMATTED_BY_HAND = re.compile(r"#\s*fmt:\s*(?:skip|off)")
MOST_BY_HAND_IN_SOURCE = 4  # tables whose columns carry meaning
MOST_BY_HAND_IN_TESTS = 60
MOST_WITH_ANY = 150  # functions, all of them readers of what users pass


LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.For)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOKED_AT = (ast.Call, ast.ImportFrom, *LOOPS, *FUNCTIONS)


@cache
def nodes_of_modules():
    """Every module: its path, and the calls, imports, loops and functions of its syntax."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        found.append((path.relative_to(SOURCE), [node for node in ast.walk(tree) if isinstance(node, LOOKED_AT)]))
    return found


def by_hand(folder):
    """How often the formatter is switched off below a folder."""
    return sum(len(FORMATTED_BY_HAND.findall(path.read_text("utf-8"))) for path in folder.rglob("*.py"))


def test_every_rule_is_a_constant_that_a_search_finds():
    assert len(list(RULES.values())) > 250  # which loads every module that holds one
    modules = [module for name, module in sys.modules.items() if name.startswith("tilescope.")]
    named = {
        held.name
        for module in modules
        for name, held in vars(module).items()
        if isinstance(held, Rule) and name.isupper()
    }
    assert sorted(set(RULES) - named) == []


def test_violations_are_told_by_named_facts():
    positional = []
    for path, nodes in nodes_of_modules():
        for call in nodes:
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
                continue
            is_rule = isinstance(call.func.value, ast.Name) and call.func.value.id.lstrip("_").isupper()
            if call.func.attr in ("violation", "error", "worded") and is_rule:
                positional.append(f"{path}:{call.lineno}")
    assert positional == []


def imports_rule(nodes):
    """Whether a module enters rules of its own."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "tilescope.rule"
        and "rule" in [name.name for name in node.names]
        for node in nodes
    )


def is_rule_call(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and re.fullmatch(r"(\w*_)?rule", node.func.id)


def holds(outer, inner):
    """Whether one node of a module's syntax stands around another."""
    begins = (outer.lineno, outer.col_offset) <= (inner.lineno, inner.col_offset)
    return begins and (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)


def test_rules_come_out_of_no_comprehension():
    made = [
        f"{path}:{call.lineno}"
        for path, nodes in nodes_of_modules()
        if imports_rule(nodes)
        for call in filter(is_rule_call, nodes)
        if any(isinstance(loop, LOOPS) and holds(loop, call) for loop in nodes)
    ]
    assert made == []


def test_the_formatter_decides():
    assert by_hand(SOURCE) <= MOST_BY_HAND_IN_SOURCE
    assert by_hand(TESTS) <= MOST_BY_HAND_IN_TESTS


def says_any(annotation):
    return annotation is not None and any(
        isinstance(part, ast.Name) and part.id == "Any" for part in ast.walk(annotation)
    )


def test_few_signatures_say_any():
    functions = []
    for path, nodes in nodes_of_modules():
        for function in nodes:
            if isinstance(function, FUNCTIONS):
                arguments = function.args
                every = [
                    *arguments.posonlyargs,
                    *arguments.args,
                    *arguments.kwonlyargs,
                    arguments.vararg,
                    arguments.kwarg,
                ]
                annotations = [function.returns, *(argument.annotation for argument in every if argument is not None)]
                if any(map(says_any, annotations)):
                    functions.append(f"{path}:{function.lineno} {function.name}")
    assert len(functions) <= MOST_WITH_ANY, "\n".join(functions)


@pytest.mark.parametrize(
    "packed",
    [
        r'"[^"\n]*" \* (?:\([^)]*(?:[=!]=|[<>]|\bin\b|\bis\b|\bnot\b)|is_|has_)',  # a string times a condition
        r"\blocals\(\)",
        r"__signature__",
        r"getattr\(\w+, f\"",  # a name made up on the way
    ],
)
def test_no_line_has_to_be_decoded(packed):
    found = [
        f"{path}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        if re.search(packed, path.read_text("utf-8"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(packed, line)
    ]
    assert found == []


def test_no_comment_is_a_banner():
    """What a banner would announce is the module's idea, or a module of its own."""
    banner = re.compile(r"^ *#.*-{6}", re.MULTILINE)
    modules = [*SOURCE.rglob("*.py"), *TESTS.rglob("*.py")]
    assert [str(path) for path in modules if banner.search(path.read_text("utf-8"))] == []


def test_no_group_of_a_pattern_is_repeated_possessively():
    """Python 3.11.0 to 3.11.4 misplaces what is captured after (…)*+, and Debian 12 has 3.11.2."""
    possessive = re.compile(r"\(\?.*\)(?:[*+?]|\{\d*,?\d*\})\+")
    found = [
        f"{path}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if possessive.search(line)
    ]
    assert found == []


CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "time_ns"}


def reads_clock(node, functions=frozenset()):
    """Whether a clock is read in a piece of syntax, or one of these functions is called."""
    called = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    return any(
        name.attr in CLOCKS if isinstance(name, ast.Attribute) else isinstance(name, ast.Name) and name.id in functions
        for name in called
    )


def test_no_assertion_reads_a_clock():
    """A loaded machine fails none of our tests: benchmarks/ measures how long things take."""
    timed = []
    for path in sorted(TESTS.glob("**/test_*.py")):
        text = path.read_text("utf-8")
        if not any(f"{clock}(" in text for clock in CLOCKS):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        clocks = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and reads_clock(node)}
        asserted = [node for node in nodes if isinstance(node, ast.Assert)]
        timed += [f"{path.relative_to(TESTS)}:{node.lineno}" for node in asserted if reads_clock(node.test, clocks)]
    assert timed == []


def test_no_page_shows_where_files_are_on_a_machine():
    """Tracebacks of examples are elided."""
    root = TESTS.parent
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    assert [page.name for page in pages if re.search(r'^ +File "/', page.read_text("utf-8"), re.MULTILINE)] == []
