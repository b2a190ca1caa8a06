"""The tables of inputs against the functions that take them: names, and what is taken if nobody says it."""

from inspect import signature

import pytest

import tilescope as ts
from tilescope.inputs import READERS, command_words, defaults, flag, maps, plans, tiles
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.smem.report import layout_as_written

QUESTIONS = {
    "plan": (plans.PLAN, ts.plan),
    "gemm": (plans.GEMM[2:], ts.plan_gemm),
    "problem": (plans.PROBLEM, ts.plan),
    "pipeline": ([row for row in plans.PIPELINE if row.name not in ("no_multicast", "cluster")], plan_pipeline),
    "map": ([row for row in maps.MAP if row.name in signature(ts.TensorMap).parameters], ts.TensorMap),
    "im2col": ([row for row in maps.MAP if row.name not in ("box", "mode")], ts.Im2colMap),
    "copy": (maps.COPY, ts.trace),
    "descriptors": (tiles.DESCRIPTORS[:-1], ts.wgmma_descriptors),
    "layout": ([row for row in tiles.LAYOUT_TEXT if row.name != "smem_address"], ts.parse_layout),
    "banks": (tiles.BANK_TILE, layout_as_written),
    "fragment": (tiles.FRAGMENT[:-1], ts.fragment),
}
ROWS = {f"{name}-{row.name}": (row, function) for name, (rows, function) in QUESTIONS.items() for row in rows}


@pytest.mark.parametrize(("row", "function"), ROWS.values(), ids=ROWS)
def test_an_input_is_an_argument_and_its_default_is_the_functions(row, function):
    taken = signature(function).parameters[row.name].default
    if type(taken) is str:
        assert row.default == taken
    elif type(taken) is int:
        assert row.read(row.default) == taken


@pytest.mark.parametrize("row", [row for row, _ in ROWS.values()], ids=ROWS)
def test_what_a_command_says_is_read_back_by_its_option(row):
    if row.read is flag:
        assert command_words([row], {row.name: True}, {}) == [row.option]
        return
    samples = {"N": 5, "N,…": (4, 8), "N,N": (4, 8), "NxN": (64, 32), "MxNxK": (64, 32, 16), "A": 1024}
    value = samples.get(READERS[row.read][0], row.choices[-1] if row.choices else "some name")
    words = command_words([row], {row.name: value}, {})
    assert words[:-1] == row.option.split()[:1]
    assert row.read(words[-1]) == value


def test_a_command_leaves_out_what_the_library_takes_anyway():
    said = {"tile": (128, 64), "data_type": "bf16", "major": "K", "stages": 1, "direction": "load", "fold": False}
    taken = defaults(ts.plan)
    assert command_words(plans.PLAN, said, taken) == ["128x64", "bf16"]
    assert command_words(plans.PLAN, said | {"major": "MN", "fold": True}, taken) == [
        "128x64",
        "bf16",
        "--major",
        "MN",
        "--fold",
    ]
    assert command_words(maps.COPY, {"coords": (-8, 2), "smem_address": 0}, defaults(ts.trace)) == ["--coords=-8,2"]


def test_what_one_function_takes_anyway_is_said_to_another_that_does_not():
    said = {"swizzle": "none", "arch": "sm_90", "element_strides": (1,)}
    assert command_words(maps.MAP, said, defaults(ts.TensorMap)) == ["--element-strides", "1"]
    assert command_words(maps.MAP, said, defaults(ts.Im2colWideMap)) == [
        "--element-strides",
        "1",
        "--swizzle",
        "none",
        "--arch",
        "sm_90",
    ]


def test_help_names_what_an_im2col_wide_map_takes_otherwise():
    rows = {row.name: row for row in maps.MAP}
    for name, taken in defaults(ts.Im2colWideMap).items():
        if name in rows and type(taken) is str and taken != rows[name].default and name != "mode":
            assert taken in rows[name].hint
