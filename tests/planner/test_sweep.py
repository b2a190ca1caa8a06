"""A sweep has a row for every problem, in their order, and says the same as the plan of each."""

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cli import run
from tilescope.planner.sweeping import MAX_PROBLEMS, read_problems

TILES = [(64, 64), (128, 64), (64, 20), (256, 32)]
PROBLEMS = [
    {"tile": tile, "data_type": name, "major": major}
    for tile in TILES
    for name in ("bf16", "e4m3")
    for major in ("K", "MN")
]


def test_every_row_is_the_plan_of_its_problem():
    rows = ts.sweep(PROBLEMS).rows
    assert len(rows) == len(PROBLEMS)
    for row, asked in zip(rows, PROBLEMS, strict=True):
        if row.has_plan:
            best = ts.plan(**asked).best
            found = (row.swizzle, row.atom_order, row.box, row.tma_instructions, row.smem_bytes)
            assert found == (best.swizzle.name, best.atom_order, best.box, best.tma_instructions, best.smem_bytes)
            continue
        with pytest.raises(ts.RuleError) as refused:
            _ = ts.plan(**asked).best
        assert {each.rule for each in refused.value.violations} & {each.rule for each in row.violations}


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_gives_the_same_table_in_the_same_order(pool):
    with pool(2) as executor:
        found = ts.sweep(PROBLEMS[:6], executor=executor)
    assert found == ts.sweep(PROBLEMS[:6])
    assert ts.Value.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_problems_and_mappings_may_be_mixed_and_nonsense_is_a_row():
    found = ts.sweep(
        [ts.Problem((64, 64), "bf16"), {"tile": (64, 64)}, 7, {"quark": 1}, {"tile": "x", "data_type": "bf16"}]
    )
    assert [row.has_plan for row in found.rows] == [True, False, False, False, False]
    assert all(row.violations for row in found.rows[1:])
    for wrong in ("text", {"tile": (64, 64)}, 5, None, ts.Problem((64, 64), "bf16")):
        with pytest.raises(ts.RuleError, match="an iterable of Problem"):
            ts.sweep(wrong)


FILES = {
    "list.json": '[{"tile": "128x64", "data_type": "bf16", "major": "MN"}, {"tile": [64, 64], "type": "e4m3"}]',
    "object.json": '{"problems": [{"tile": [128, 64], "dtype": "bf16", "major": "MN"}, {"tile": [64, 64], "type": "e4m3"}]}',
    "lines.jsonl": '{"tile": [128, 64], "data_type": "bf16", "major": "MN"}\n{"tile": [64, 64], "data_type": "e4m3"}',
    "a.toml": '[[problem]]\ntile = [128, 64]\ndata_type = "bf16"\nmajor = "MN"\n[[problem]]\ntile = "64x64"\ndata_type = "e4m3"\n',
    "a.csv": "tile,data_type,major\n128x64,bf16,MN\n64x64,e4m3,\n",
}


@pytest.mark.parametrize("name", FILES)
def test_the_command_reads_every_kind_of_file(name, tmp_path, capsys):
    (tmp_path / name).write_text(FILES[name])
    assert run(["sweep", str(tmp_path / name), "--json"]) == 0
    found = ts.Value.from_dict(json.loads(capsys.readouterr().out))
    assert found == ts.sweep(
        [{"tile": (128, 64), "data_type": "bf16", "major": "MN"}, {"tile": (64, 64), "data_type": "e4m3"}]
    )


def test_the_command_takes_every_combination(capsys, tmp_path):
    assert run(["sweep", "--tile", "64x64,128x64,64x20", "--type", "bf16,e4m3", "--major", "K,MN"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("6 of 12 problems have a plan;")
    assert "64 x 64 e4m3 MN wgmma sm_90 has none" in said
    assert "12 problems, 6 with a plan: wgmma" in said
    assert "sm_90" in said
    assert "Use k = 24." in " ".join(said.split())
    assert run(["sweep", "--tile", "64x20", "--type", "bf16", "--svg", str(tmp_path / "a.svg")]) == 1
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    capsys.readouterr()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--tile", "64x64"],
        ["--type", "bf16"],
        ["--tile", "64", "--type", "bf16"],
        ["--tile", ",", "--type", "bf16"],
        ["nothing.csv"],
        ["--tile", "64x64", "--type", "bf16", "--workers", "0"],
    ],
)
def test_the_command_says_what_it_needs(arguments, capsys):
    assert run(["sweep", *arguments]) == 2
    assert "mistake in tilescope" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[1, 2]",
        "{}",
        "tile\n",
        "quark,data_type\n1,2\n",
        "[[a]]\nb = ",
        "\x00\xff",
        "[" * 5000,
        '{"tile": 1',
        "null",
        "[[1]]",
        "tile,data_type\n64xx,bf16\n",
        "a" * 100_000,
    ],
)
def test_hostile_files_are_answered_with_a_reason(content, tmp_path, capsys):
    (tmp_path / "hostile").write_text(content)
    assert run(["sweep", str(tmp_path / "hostile")]) in (1, 2)
    said = capsys.readouterr()
    assert "mistake in tilescope" not in said.err
    assert len(said.err) < 900


@given(st.binary(max_size=200))
def test_any_bytes_are_problems_or_refused(content):
    try:
        assert len(read_problems(content)) <= MAX_PROBLEMS
    except ts.RuleError:
        return
