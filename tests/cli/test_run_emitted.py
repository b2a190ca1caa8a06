"""Emitted programs run with nothing typed: the launch file beside them says how."""

import json

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.emitter.program_launch import describe_program_launch, format_program_launch
from tilescope.machine.launch.argument_builder import build_array
from tilescope.machine.launch.launch_description import own_array
from tilescope.machine.launch.launch_file import read_launch


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nvcc(require):
    require("gxx")
    require("nvcc")


def arrays_of(file):
    """The arrays that a launch file describes, by the names of their arguments, before the run."""
    launch = read_launch(file.read_bytes(), file.name)
    owned = {number: own_array(argument) for number, argument in enumerate(launch.arguments)}
    return {
        launch.arguments[number].name: build_array(array, number)
        for number, array in owned.items()
        if array is not None
    }


def emit_and_run(tmp_path, capsys, output, *words):
    """Run what a command emits: its arrays before, the array of argument `output` after it, and what --json says."""
    assert run([*words, "--emit", "cuda", "-o", "program.cu"]) == 0
    assert "wrote program.launch.toml" in capsys.readouterr().err
    status = run(["run", "program.cu", "--save", "after", "--json"])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    told = json.loads(printed.out)
    (after,) = (tmp_path / "after").glob(f"{output}_*.npy")
    return arrays_of(tmp_path / "program.launch.toml"), np.load(after), told


GEMMS = {
    "persistent": ("128x64x192", "bf16", "--tile", "64x64x64", "--stages", "2", "--sms", "1"),
    "split": ("16x128x256", "bf16", "--tile", "16x64x64", "--swapped", "--split", "2", "--stages", "2"),
    "parts": ("64x72x256", "f16", "--tile", "64x64x64", "--parts", "2", "--stages", "2"),
    "mn-major": ("64x128x64", "bf16", "--tile", "64x64x64", "--a-major", "MN", "--stages", "2"),
    "sm_80": ("64x64x64", "f16", "--arch", "sm_80", "--tile", "64x64x32", "--stages", "2"),
    "pair": ("256x64x128", "bf16", "--arch", "sm_100", "--tile", "256x64x64", "--cta-group", "2", "--stages", "2"),
}


@pytest.mark.usefixtures("nvcc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "sm_80" else [pytest.mark.slow]) for name in GEMMS]
)
def test_an_emitted_gemm_runs_and_is_right(name, tmp_path, capsys):
    before, after, told = emit_and_run(tmp_path, capsys, 2, "gemm", *GEMMS[name])
    assert told["outcome"] == "finished"
    assert [finding["rule"] for finding in told["findings"] if finding["severity"] == "error"] == []
    assert "Launched as program.launch.toml says." in told["extra"]["compiled"]
    a, b = (array.astype(np.float64) for array in list(before.values())[:2])
    expected = (a.T if name == "mn-major" else a) @ b.T
    dtype = np.float16 if GEMMS[name][1] == "f16" else ml_dtypes.bfloat16
    found = after.view(dtype).astype(np.float64) if after.dtype.kind == "V" else after.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=2**-7, atol=2**-6)


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_an_emitted_load_runs_and_gives_the_tiles(tmp_path, capsys):
    words = ("plan", "64x64", "bf16", "--stages", "2", "--global-shape", "100x136")
    before, after, told = emit_and_run(tmp_path, capsys, 1, *words)
    assert told["outcome"] == "finished"
    matrix = before["map"].astype(np.float32)
    assert after.shape == (128, 192)
    assert np.array_equal(after[:100, :136], matrix)
    assert not after[100:].any()
    assert not after[:, 136:].any()


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_arguments_of_the_command_replace_the_launch_file(capsys):
    assert run(["plan", "64x64", "bf16", "--emit", "cuda", "-o", "tile.cu"]) == 0
    capsys.readouterr()
    assert run(["run", "tile.cu", "--grid", "1", "--block", "32", "--arg", "1"]) == 2  # it takes three arguments
    assert "3" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("nvcc")
def test_without_the_launch_file_the_command_names_what_is_missing(tmp_path, capsys):
    assert run(["plan", "64x64", "bf16", "--emit", "cuda", "-o", "tile.cu"]) == 0
    (tmp_path / "tile.launch.toml").unlink()
    capsys.readouterr()
    assert run(["run", "tile.cu"]) == 2
    missing = capsys.readouterr().err
    assert "--grid" in missing
    assert "--block" in missing
    assert "--arg" in missing


def test_a_launch_of_tcgen05_names_the_rows_the_pair_and_the_scale_factors():
    gemm = ts.plan_gemm(512, 128, 512, "nvfp4", arch="sm_100", tile=(256, 128, 256), cta_group=2, sms=8)
    launch = describe_program_launch(gemm)
    assert launch.grid == (4,)  # two tiles, each of a pair
    names = [argument.name for argument in launch.arguments]
    assert names == ["a_map", "b_map", "sfa_map", "sfb_map", "c_map", "m_rows", "global_scale"]
    assert launch.arguments[5].value == 512
    assert read_launch(format_program_launch(gemm, "gemm.cu").encode(), "gemm.launch.toml") == launch


def test_a_launch_file_is_written_for_cuda_in_a_file_alone(tmp_path, capsys):
    for words in (["--emit", "cuda"], ["--emit", "cuda", "-o", "tile.txt"], ["--emit", "ptx", "-o", "tile.cu"]):
        assert run(["plan", "64x64", "bf16", *words]) == 0
    assert "launch" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.toml")] == []


def test_a_large_product_says_which_blocks_run():
    launch = describe_program_launch(ts.plan_gemm(4096, 4096, 4096, "bf16"))
    assert launch.grid == (132,)
    assert launch.blocks == ((0,),)
    written = format_program_launch(ts.plan_gemm(4096, 4096, 4096, "bf16"), "gemm.cu")
    assert "blocks = [[0]]  # of 132;" in written
    assert read_launch(written.encode(), "gemm.launch.toml") == launch
    assert describe_program_launch(ts.plan_gemm(512, 512, 512, "bf16")).blocks == "all"
