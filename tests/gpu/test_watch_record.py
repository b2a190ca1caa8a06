"""`tilescope watch --record` on a real card: launches of Triton and of C++, replayed here to the byte."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilescope as ts
from tilescope.cli import run

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("card")]
PROGRAMS = Path(__file__).parent / "watched"
KEPT = os.environ.get("TILESCOPE_KEEP_RECORDINGS")  # a folder for recordings that become tests/golden/recordings


@pytest.fixture
def record(tmp_path):
    """Runs a program under `watch --record`, and gives the file."""

    def run_it(kernel, *command):
        path = tmp_path / f"{kernel}.launch"
        line = [sys.executable, "-m", "tilescope", "watch", "--record", kernel, "--record-to", str(path), "--"]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(
            [*line, *map(str, command)], capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        assert path.exists(), done.stderr
        return path

    return run_it


def replayed(path, ptx, capsys):
    """The exit status of a replay, and what it printed; both files are kept where somebody asks for them."""
    if KEPT:
        shutil.copy(path, KEPT)
        shutil.copy(ptx, KEPT)
    status = run(["run", str(ptx), "--launch", str(path)])
    return status, capsys.readouterr().out


@pytest.mark.parametrize("kernel", ["matmul_tma", "matmul_pointers"])
def test_a_launch_of_triton_replays_to_the_byte(record, kernel, tmp_path, capsys):
    pytest.importorskip("triton")
    path = record(kernel, sys.executable, PROGRAMS / "matmul_triton.py", tmp_path)
    status, out = replayed(path, tmp_path / f"{kernel}.ptx", capsys)
    assert "all bytes equal the card's" in out
    assert status == 0


def test_a_launch_of_an_emitted_gemm_replays_to_the_byte(record, tmp_path, capsys):
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    source = tmp_path / "gemm_kernel.cu"
    source.write_text(ts.emit(ts.plan_gemm(128, 128, 128, "f16"), "cuda"))
    flags = ["-std=c++17", "-gencode=arch=compute_90a,code=sm_90a"]
    subprocess.run(["nvcc", *flags, "-o", tmp_path / "gemm", source, "-lcuda"], check=True)
    ptx = tmp_path / "gemm_kernel.ptx"
    subprocess.run(
        ["nvcc", "-std=c++17", "-lineinfo", "-ptx", "-arch=sm_90a", "-o", ptx, source.name], cwd=tmp_path, check=True
    )
    status, out = replayed(record("gemm_kernel", tmp_path / "gemm"), ptx, capsys)
    assert "all bytes equal the card's" in out
    assert status == 0
