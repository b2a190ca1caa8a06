"""`tilescope watch` on a real card: programs that make maps in every way, and what is said of them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("card")]
PROGRAMS = Path(__file__).parent / "watched"


@pytest.fixture
def watch(tmp_path):
    """Runs a program under watch, gives what it did, what was said, and the maps that were written."""

    def run(*command, options=()):
        maps = tmp_path / "maps.jsonl"
        line = [sys.executable, "-m", "tilescope", "watch", *options, "--out", str(maps), "--", *map(str, command)]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300, check=False)
        return done, [json.loads(each) for each in maps.read_text().splitlines()]

    return run


@pytest.fixture
def maps_program(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    program = tmp_path / "maps"
    driver = subprocess.check_output([sys.executable, PROGRAMS / "driver_path.py"], text=True).strip()
    subprocess.run(["nvcc", "-g", "-std=c++17", "-o", program, PROGRAMS / "maps.cu", "-Xlinker", driver], check=True)
    return program


def states(maps):
    return [each["state"] for each in maps]


def test_a_cpp_program_keeps_its_output_and_status_and_each_refusal_is_explained(watch, maps_program):
    plain = subprocess.run([maps_program], capture_output=True, text=True, check=False)
    done, maps = watch(maps_program)
    assert (done.stdout, done.returncode) == (plain.stdout, plain.returncode)
    results = [int(line.rpartition(" ")[2]) for line in plain.stdout.splitlines()]
    assert [each["result"] for each in maps] == results
    refused = [{each["rule"] for each in found["violations"] if each["severity"] == "error"} for found in maps]
    wide = maps[7]
    assert (wide["function"], refused[7]) == ("cuTensorMapEncodeIm2colWide", {"arch-tma"})
    # drivers differ in whether they make such maps for sm_90, where no instruction takes them: 580.159 does
    assert wide["state"] == ("refused" if wide["result"] else "disagreement")
    assert states(maps) == [
        *("accepted", "accepted", "refused", "accepted", "accepted", "refused", "refused", wide["state"], "failed")
    ]
    assert refused[2] == {"swizzle-span"}
    assert refused[5] == {"address-alignment"}
    assert "channels-range" in refused[6]
    assert "maps.cu:" in done.stderr
    assert "stride-overlap" in done.stderr


def test_triton_host_descriptors_are_seen_with_their_python_lines(watch):
    pytest.importorskip("triton")
    done, maps = watch(sys.executable, PROGRAMS / "copy_triton.py")
    assert set(states(maps)) == {"accepted", "refused"}
    calls, refused = map(int, re.search(r"(\d+) calls in 1 process, (\d+) refused", done.stderr).groups())
    assert calls - refused >= 2  # source and target are the same map but for the address, which is counted, not listed
    assert refused >= 1
    assert "stride-range" in done.stderr
    assert "copy_triton.py:" in done.stderr


def test_a_refusal_of_cuda_bindings_names_the_line_that_called(watch):
    pytest.importorskip("cuda.bindings")
    done, maps = watch(sys.executable, PROGRAMS / "refused_bindings.py")
    assert states(maps) == ["accepted", "refused"]
    line = (
        (PROGRAMS / "refused_bindings.py")
        .read_text()
        .splitlines()
        .index("    print(encode(int(memory) + 8, (128, 64)).name)")
    )
    assert maps[1]["python"][1]["place"] == line + 1
    assert "address-alignment" in done.stderr
    assert "swizzle-span" in done.stderr


def test_forked_workers_are_told_apart(watch):
    pytest.importorskip("cuda.bindings")
    done, maps = watch(sys.executable, PROGRAMS / "two_workers.py")
    assert sorted(states(maps)) == ["accepted", "refused"]
    assert len({each["process"] for each in maps}) == 2
    assert "in 2 processes" in done.stderr


def test_what_a_killed_program_did_is_told_and_so_is_its_end(watch):
    pytest.importorskip("cuda.bindings")
    done, maps = watch(sys.executable, PROGRAMS / "killed.py")
    assert done.returncode == -signal.SIGKILL
    assert states(maps) == ["accepted", "refused"]
    assert "101 calls in 1 process, 1 refused" in done.stderr
