"""A fix names an argument as its reader does: Python in Python, an option on the command line, a field on a page."""

import re

import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.questions.plain_argument import describe_argument
from tilescope.questions.refusal import broken_rules
from tilescope.rule import RULES
from tilescope.sentence import saying_arguments
from tilescope.tensor_map.demonstration import demonstrate
from tilescope.web.pages import form_at

# A keyword of a Python call: copy="tma", tile=(64, 64), ws=False. --arg has box=64x128 of its own, behind a comma.
KEYWORD = re.compile(r"""(?<![\w.,:(])[a-z][a-z_0-9]*=(?:["'(\[]|True\b|False\b|None\b|\d)""")
# Rules about objects of Python, which no command makes.
OF_PYTHON = {"layout-atoms", "no-equivalent", "pack-field", "scale-atom-copy"}
SPOKEN_TO_COMMANDS = [row for row in RULES.values() if row.failing is not None and row.name not in OF_PYTHON]

COMMANDS = {
    "an option with a name": ("plan 128x64 bf16 --emit triton --copy cp.async", "Plan with --copy tma."),
    "a number": ("plan 128x64 bf16 --stages 99", "Use --stages 14."),
    "extents": ("gemm 512x512x512 bf16 --tile 128x128x64 --stages 8", "Use --stages 6 or --tile 128x128x32."),
    "a type, which is no option": ("gemm 512x512x512 nvfp4 --arch sm_90", "Use data type int8, or another type"),
    "another type of C": ("gemm 512x512x512 bf16 --output-type e2m1", "Use --output-type int8, or another type"),
    "another operand": ("gemm 256x256x256 e4m3 --b-major MN", "Use --b-major K: transpose B once"),
    "an architecture": ("plan 64x64 bf16 --consumer wgmma --arch sm_80", "--arch sm_90"),
    "a map": ("encode --type bf16 --dims 64,64 --box 64,64 --interleave 16B", "--interleave none"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_options(name, capsys):
    command, expected = COMMANDS[name]
    assert run(command.split()) in (1, 2)
    captured = capsys.readouterr()
    printed = " ".join((captured.out + captured.err).split())
    assert expected in printed
    assert not KEYWORD.search(printed)


@pytest.mark.slow  # every kernel of the rule book is run
def test_no_rule_speaks_python_on_the_command_line():
    """What a command prints of every rule's failing example."""
    spoken = {}
    with saying_arguments(describe_argument):
        for row in SPOKEN_TO_COMMANDS:
            printed = broken_rules(ts.RuleError(demonstrate(row, row.failing)))
            if KEYWORD.search(printed):
                spoken[row.name] = printed
    assert spoken == {}


def test_python_says_python():
    with pytest.raises(ts.RuleError) as raised:
        ts.plan((64, 64), "bf16", consumer="wgmma", arch="sm_80").best  # noqa: B018  the refusal is the answer
    assert 'arch="sm_90"' in str(raised.value)


def test_a_page_says_its_fields():
    form = form_at("/plan?tile=64x64&data_type=bf16&consumer=wgmma&arch=sm_80")
    answer = form.answer_shown(form.asked())
    (violation,) = answer.violations
    assert "Read by = ldmatrix" in violation.fix
    assert "Architecture = sm_90." in violation.fix


def test_json_says_python_whoever_asks_for_it(capsys):
    form = form_at("/plan?tile=64x64&data_type=bf16&consumer=wgmma&arch=sm_80")
    run(["plan", "64x64", "bf16", "--consumer", "wgmma", "--arch", "sm_80", "--json"])
    for answer in (form.answer().json(), capsys.readouterr().out):
        assert 'Use consumer=\\"ldmatrix\\", or arch=\\"sm_90\\".' in answer
