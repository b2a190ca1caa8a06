"""`tilescope watch --record`: a launch in a file, with the memory that it reaches, which `tilescope run` takes."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tilescope.cli import run
from tilescope.gpu.watch.watch_recording import default_path, parse_launch
from tilescope.machine.launch.launch_archive import read_archive

PTX = Path(__file__).parent.parent / "cli" / "double.ptx"


@pytest.fixture
def record(watch, tmp_path):
    """Runs the stand-in program under `watch --record`; what was said, and the archive if there is one."""

    def run_it(*words, kernel="double_all", options=(), sanitizer="plain"):
        path = tmp_path / "found.launch"
        asked = ("--record", kernel, "--record-to", str(path), *options)
        found = watch("init", *words, options=asked, sanitizer=sanitizer)
        assert found.status == 0, found.stderr
        return found, read_archive(path.read_bytes(), path.name) if path.exists() else None

    return run_it


def numbers(archive, name):
    return archive.read_array(name).view(np.float32).tolist()


def test_a_launch_is_recorded_with_its_memory_before_and_after(record, sanitizer):
    found, archive = record("launch", sanitizer=sanitizer)
    launch = archive.launch
    assert (launch.entry, launch.grid, launch.block, launch.cluster) == ("double_all", (2, 1, 1), (32, 1, 1), None)
    assert launch.arch == "sm_90"
    assert [len(one.content) // 2 for one in launch.arguments] == [8, 4]
    (memory,) = launch.memory
    assert int.from_bytes(bytes.fromhex(launch.arguments[0].content), "little") == memory.address
    assert numbers(archive, memory.file) == [float(i) for i in range(40)]
    assert numbers(archive, memory.after) == [2.0 * i for i in range(40)]
    assert "recorded a launch of double_all" in found.stderr
    assert "grid 2 x 1 x 1, block 32 x 1 x 1, 2 parameters" in found.stderr
    assert "1 allocation of 160 bytes" in found.stderr


def test_the_recording_runs_here_and_its_bytes_are_compared_with_the_cards(record, tmp_path, capsys, monkeypatch):
    record("launch")
    shutil.copy(PTX, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["run", "double.ptx", "--launch", "found.launch"]) == 0
    assert "1 recorded allocation" in capsys.readouterr().out
    text = (tmp_path / "double.ptx").read_text()
    assert "add.f32" in text
    (tmp_path / "triple.ptx").write_text(text.replace("add.f32", "mul.f32"))
    assert run(["run", "triple.ptx", "--launch", "found.launch"]) == 1
    assert "bytes at 0x" in capsys.readouterr().out


def test_memory_behind_a_pointer_in_memory_is_recorded_too(record):
    _, archive = record("launch-through", kernel="through")
    assert [len(archive.read_array(one.file)) for one in archive.launch.memory] == [16, 160]


def test_the_cluster_and_shared_memory_of_a_launch_are_recorded(record):
    _, archive = record("launch-clustered")
    assert (archive.launch.cluster, archive.launch.smem_bytes) == ((2, 1, 1), 1024)


def test_a_later_launch_is_recorded_by_its_number(record):
    _, archive = record("launch", "launch", "launch", kernel="double:3")
    assert numbers(archive, archive.launch.memory[0].file) == [4.0 * i for i in range(40)]


def test_what_does_not_fit_the_limit_is_left_out_and_said(watch, tmp_path):
    path = tmp_path / "cut.launch"
    environment = {"TILESCOPE_WATCH_RECORD_BYTES": "64"}  # the command's own limit is in megabytes
    found = watch(
        "init",
        "launch-inside",
        options=("--record", "double", "--record-to", str(path)),
        command=lambda made: [
            "env",
            *[f"{key}={value}" for key, value in environment.items()],
            *made.command("init", "launch"),
        ],
    )
    (memory,) = read_archive(path.read_bytes(), path.name).launch.memory
    assert memory.missing_bytes == 160 - 64
    assert "96 bytes beyond the limit" in found.stderr


@pytest.mark.parametrize(
    ("words", "kernel", "said"),
    [
        (["launch"], "matmul", "launched were double_all."),
        (
            ["launch"],
            "double:7",
            "launch 7 of a kernel whose",
        ),
        ([], "matmul", "nothing was launched through"),
        (["capture=1", "launch"], "double", "captured into a graph"),
        (["fault=700", "launch"], "double", "answers with an error before"),
    ],
)
def test_why_nothing_was_recorded_is_said(record, words, kernel, said):
    found, archive = record(*words, kernel=kernel)
    assert archive is None
    assert said in found.stderr


def test_a_program_that_is_watched_without_a_recording_has_no_launches_looked_at(watch):
    assert "record" not in watch("init", "launch", options=()).stderr


def test_options_of_a_recording_need_one(capsys):
    assert run(["watch", "--record-to", "x.launch", "--", "true"]) == 2
    shown_text = capsys.readouterr().err
    assert "--record-to and --record-limit" in shown_text
    assert "--record." in shown_text


def test_a_file_that_is_cut_short_is_refused():
    with pytest.raises(Exception, match=r"cut short|not one"):
        parse_launch(b"TSLAUNCH" + (1).to_bytes(4, "little") + bytes(12) + b"\x01" * 100)


def test_the_file_is_named_after_the_kernel():
    assert default_path("_Z6matmulPf").name == "Z6matmulPf.launch"
