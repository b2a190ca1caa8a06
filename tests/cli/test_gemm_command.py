"""`tilescope gemm` plans, refuses with status 1, and says both in JSON and SVG too."""

import json

import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.planner import Unplanned
from tilescope.value import Value


def test_shows_the_plan_with_the_ranking_and_counts_the_refused(capsys):
    assert run(["gemm", "4096x4096x4096", "bf16", "--arch", "sm_120", "--sms", "128"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4096 x 4096 x 4096 bfloat16: tile ")
    assert "GEMM 4096 x 4096 x 4096 bfloat16" in out
    assert "ldmatrix on sm_120" in out
    assert "Tiles, best first" in out
    assert "4 tiles refused" in out
    assert "2 of which would rank before" in out
    assert "--why names" in out
    assert "gemm-smem" not in out


def test_why_names_the_refused(capsys):
    assert run(["gemm", "4096x4096x4096", "bf16", "--arch", "sm_120", "--why"]) == 0
    out = capsys.readouterr().out
    assert "128 x 256 x 64  gemm-smem: 2 stages of 16384 + 32768 bytes" in out
    assert "--why" not in out


def test_the_answer_says_whose_rates_it_used(capsys):
    for options, said in (
        ([], "rates of an H200, measured"),
        (["--card", "h100 pcie"], "rates of an H100 PCIe, documented"),
        (["--arch", "H100"], "rates of an H100 SXM, documented"),
        (["--arch", "sm_100"], "rates of a B200, documented"),
        (["--arch", "sm_103"], "sm_103"),
    ):
        assert run(["gemm", "4096x4096x4096", "bf16", "--tile", "128x256x64", *options]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_options_reach_the_plan(capsys):
    options = ["--tile", "64x64x64", "--stages", "3", "--b-major", "MN", "--output-type", "f32", "--sms", "114"]
    assert run(["gemm", "512x512x512", "bf16", *options, "--json"]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert found == ts.plan_gemm(
        512, 512, 512, "bf16", tile=(64, 64, 64), stages=3, b_major="MN", output_type="f32", sms=114
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_json_has_what_the_plan_leads_to_beside_it(arch, capsys):
    assert run(["gemm", "512x512x512", "bf16", "--arch", arch, "--tile", "64x64x64", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    gemm, extra = Value.from_dict(printed), printed["extra"]
    assert extra["smem_offsets"] == {name: list(starts) for name, starts in gemm.smem_offsets().items()}
    by_tma = {} if arch == "sm_80" else {"a": gemm.a, "b": gemm.b, "c": gemm.epilogue}
    assert {name: Value.from_dict(each) for name, each in extra["tensor_maps"].items()} == {
        name: plan.tensor_map(0) for name, plan in by_tma.items()
    }
    if arch != "sm_90":
        assert extra["descriptors"] == {}
        return
    for name, plan in (("a", gemm.a), ("b", gemm.b)):
        loop = plan.descriptors(extra["smem_offsets"][name][0])
        assert extra["descriptors"][name] == [[hex(step.encode()) for step in block] for block in loop]


REFUSED = ["gemm", "64x100x64", "bf16"]


def test_a_product_that_cannot_be_ends_with_status_1_and_reasons_on_stdout(capsys):
    assert run(REFUSED) == 1
    shown = capsys.readouterr()
    assert "gemm-rows: n = 100: rows of C are 200 bytes" in shown.out
    assert shown.err == ""


def test_a_refusal_is_json_under_json(capsys, tmp_path):
    assert run([*REFUSED, "--json", "--svg", str(tmp_path / "refused.svg")]) == 1
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert isinstance(found, Unplanned)
    assert [(each.rule, dict(each.change)) for each in found.violations] == [("gemm-rows", {"n": 104})]
    assert "No plan for GEMM" in (tmp_path / "refused.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["128x32", "bf16"], "2 extents; write 3, such as 128x32x64."),
        (["64x64x64", "bf17"], "unknown-name: data type bf17"),
        (["64x64x64", "bf16", "--a-major", "Q"], "unknown-name: majorness Q"),
        (["64x64x64", "bf16", "--consumer", "magic"], "unknown-name"),
        (["64x64x64", "bf16", "--tile", "64x64"], "2 extents; write 3"),
    ],
)
def test_input_not_understood_ends_with_status_2(arguments, said, capsys):
    assert run(["gemm", *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


def test_writes_a_picture(capsys, tmp_path):
    path = tmp_path / "gemm.svg"
    assert run(["gemm", "512x512x512", "bf16", "--svg", str(path)]) == 0
    assert capsys.readouterr().out
    assert "starts of the stages" in path.read_text("utf-8")


def test_three_numbers_are_a_shape_too(capsys):
    assert run(["gemm", "256", "512", "1024", "bf16"]) == 0
    spaced = capsys.readouterr().out
    assert run(["gemm", "256x512x1024", "bf16"]) == 0
    assert capsys.readouterr().out == spaced
    assert run(["plan", "128", "64", "bf16", "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("128 x 64 bfloat16")


@pytest.mark.parametrize("operand", ["C", "--json"])
def test_the_element_is_one_of_a_or_b(capsys, operand):
    assert run(["gemm", "64x64x64", "bf16", "--element", "1,1", "--operand", operand, "-q"]) == 2
    assert f"--operand {operand}: the operands are A and B." in capsys.readouterr().err
    assert run(["gemm", "64x64x64", "bf16", "--element", "1,1", "--operand", "b", "-q"]) == 0
