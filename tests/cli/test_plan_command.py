"""`tilescope plan`: the best plan on one screen, the ranking, and why not."""

import io
import json

import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.kernel_plan.known_kernels import known_kernel_text
from tilescope.value import EXTRA, Value


def printed(capsys, *arguments, status=0):
    assert run(["plan", *arguments]) == status
    return capsys.readouterr().out


def test_the_screen_has_facts_drawing_reasons_and_ranking(capsys):
    text = printed(capsys, "128x64", "bf16")
    for part in ("The plan", "Tile: which copy brings what", "Shared memory: row.chunk", "Why", "Plans, best first"):
        assert part in text
    assert "candidates refused" not in text  # 128 contiguous bytes: every swizzle divides them


def test_json_is_the_report_and_what_a_kernel_needs_of_the_best(capsys):
    shown = json.loads(printed(capsys, "128x64", "bf16", "--global-shape", "4096x4096", "--json"))
    report = ts.plan((128, 64), "bf16", global_shape=(4096, 4096))
    assert Value.from_dict(shown) == report
    beside, best = shown[EXTRA]["best"], report.best
    assert Value.from_dict(beside["tensor_map"]) == best.tensor_map(0)
    words = [[int(word, 16) for word in block] for block in beside["descriptors"]]
    assert words == [[step.encode() for step in block] for block in best.descriptors()]
    assert beside["c_expression"] == best.c_expression


def test_a_copy_by_threads_says_which_chunk_lies_where(capsys):
    shown = json.loads(printed(capsys, "8x32", "bf16", "--arch", "A100", "--swizzle", "64B", "--json"))
    assert shown["problem"]["copy"] == "cp.async"  # an A100 has no TMA
    assert shown[EXTRA]["best"]["chunk_order"][1] == [9, 8, 11, 10, 13, 12, 15, 14]


def test_a_card_has_its_architecture_and_says_what_is_not_known_of_it(capsys):
    shown = " ".join(printed(capsys, "128x64", "bf16", "--card", "RTX 5090").split())
    assert "for ldmatrix on sm_120" in shown
    assert "Not weighed: TMA's rates" in shown
    assert "RTX 5090." in shown
    assert "H200, the fastest measured" in printed(capsys, "128x64", "bf16").replace("\n   ", " ")


def test_why_names_the_reasons_of_what_was_refused(capsys):
    assert "2 candidates refused" in printed(capsys, "64x32", "bf16")
    assert "--why names the reasons." in printed(capsys, "64x32", "bf16")
    assert "tile-atoms: a tile of 64 x 32 (mn x k)" in printed(capsys, "64x32", "bf16", "--why")


def test_a_reason_says_which_swizzles_it_refuses_where_that_is_not_told_yet(capsys):
    assert run(["plan", "60x64", "bf16", "--arch", "sm_100"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "refuses swizzle none, 32B, 64B, 128B." in shown
    assert "swizzle 128B_ATOM_64B; tensor cores read" in shown
    assert shown.count("This refuses") == 1
    assert run(["plan", "100x64", "bf16"]) == 1
    assert "This refuses" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["100x64", "bf16"], 1, "wgmma-tile: n = 100"),
        (["64x63", "bf16"], 1, "plan-row: k = 63"),
        (["64x64", "bf16", "--strides-bytes", "200"], 1, "stride-alignment: strides_bytes[0] = 200 bytes"),
        (["64x64", "bf16", "--arch", "sm_80", "--copy", "tma"], 1, "plan-copy: copy = tma on sm_80"),
        (["64x64", "bf17"], 2, "Did you mean bf16?"),
        (["64x64", "bf16", "--card", "H2000"], 2, "unknown-name: card H2000"),
        (["64x64", "bf16", "--card", "A100", "--arch", "sm_90"], 2, "plan-card: card = A100 with arch = sm_90"),
        (["64x64", "bf16", "--consumer", "foo"], 2, "unknown-name: consumer foo"),
        (["64", "bf16"], 2, "'64' is not a shape; write 128x64."),
    ],
)
def test_refusals_go_to_stdout_and_what_is_not_understood_to_stderr(capsys, arguments, status, said):
    assert run(["plan", *arguments]) == status
    shown = capsys.readouterr()
    assert said in " ".join((shown.out if status == 1 else shown.err).split())
    assert (shown.err if status == 1 else shown.out) == ""


def test_pairs_of_blocks_in_a_cluster_of_one_are_refused_with_a_reason(capsys):
    assert run(["pipeline", "256x64", "256x64", "bf16", "--arch", "sm_100", "--cta-group", "2"]) == 1
    assert "use --cluster 2" in capsys.readouterr().out


def test_emitted_code_is_written_to_the_file_that_it_names(capsys, tmp_path):
    for name, command in (("loads.cu", ["plan", "64x64", "bf16"]), ("product.cu", ["gemm", "512x512x512", "bf16"])):
        file = tmp_path / name
        assert run([*command, "--emit", "cuda", "-o", str(file)]) == 0
        program = file.stem
        assert f"-o {program} {name} && ./{program}\n" in file.read_text("utf-8")
    capsys.readouterr()
    assert run(["gemm", "512x512x512", "bf16", "--emit", "cuda"]) == 0
    assert "-o gemm gemm.cu && ./gemm\n" in capsys.readouterr().out


def test_gluon_prints_what_triton_prints(capsys):
    assert printed(capsys, "64x64", "bf16", "--emit", "gluon") == printed(capsys, "64x64", "bf16", "--emit", "triton")


def test_a_dash_reads_a_kernel_from_stdin(capsys, monkeypatch):
    kernel = known_kernel_text("gemm").encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(kernel)))
    assert printed(capsys, "-") == printed(capsys, "gemm")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(kernel)))
    assert printed(capsys, "-", "--set", "LEAST=8", status=1).startswith("No plan for gemm: 394240 bytes with 8 stages")


@pytest.mark.parametrize("content", [b"hello\n", b"\x89\xf7\xff"])
def test_a_file_that_holds_no_kernel_is_not_understood(capsys, tmp_path, content):
    (tmp_path / "kernel.toml").write_bytes(content)
    assert run(["plan", str(tmp_path / "kernel.toml")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: kernel-file: ")
    assert "codec" not in shown.err
