"""One rule is looked up without loading the others: the index of rules is complete, and used."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import tilescope as ts
from tilescope.rule_index import MODULE_OF_RULE

_spec = importlib.util.spec_from_file_location("rule_index_writer", Path(__file__).parent / "rule_index.py")
rule_index = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rule_index)


def test_the_index_is_what_the_source_defines():
    assert rule_index.indexed_rules() == MODULE_OF_RULE, "write it anew: python tests/rule_index.py"


def test_every_row_is_loaded_under_its_name():
    assert [row.name for row in ts.RULES.values()] == list(ts.RULES) == sorted(ts.RULES)


def loaded_by(expression):
    """The modules of tilescope that an expression loads in a new process."""
    program = (
        f"import sys, tilescope as ts; {expression}; print(*(name for name in sys.modules if 'tilescope' in name))"
    )
    return set(subprocess.check_output([sys.executable, "-c", program], text=True).split())


def test_names_and_one_rule_load_little():
    table = loaded_by("ts.RULES")
    assert loaded_by("assert 'swizzle-span' in ts.RULES; assert len(list(ts.RULES)) == len(ts.RULES)") == table
    loaded = loaded_by("ts.RULES['swizzle-span'].demand")
    assert "tilescope.tensor_map.rules.box_rules" in loaded
    assert not {"tilescope.machine", "tilescope.planner", "tilescope.view", "tilescope.cli"} & loaded


def test_an_example_loads_the_modules_it_names():
    program = (
        "from tilescope.rule import Rule; from tilescope.tensor_map.demonstration import demonstrate; "
        "row = Rule.named('one-map'); print(len(demonstrate(row, row.failing)), demonstrate(row, row.passing))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "1 ()\n"
