"""`tilescope watch` as one uses it: what it says, what it leaves to the program, and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tilescope.cli import run
from tilescope.gpu.watch import watch_session
from tilescope.gpu.watch.watch_text import WatchSummary
from tilescope.value import Value

COMMAND = [sys.executable, "-m", "tilescope", "watch"]


@pytest.fixture
def around(build, cache, tmp_path):
    """The environment of a command over the stand-ins, with a folder of its own for sockets."""
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    return build("plain").environment | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(sockets)}


def sockets(around):
    return list(os.scandir(around["TMPDIR"]))


def test_a_refusal_is_explained_as_check_does(watch, tmp_path, capsys):
    found = watch("init", "refused", options=())
    assert run(["check", f"{tmp_path / 'maps.jsonl'}:1"]) == 1
    told, checked = found.stderr, capsys.readouterr().out
    sentences = " ".join(told.split())
    for rule in ("address-alignment", "swizzle-span"):
        assert rule in told
        assert rule in checked
    assert re.search(r"Refused: cuTensorMapEncodeTiled in process \d+ \(calls\)", told)
    assert "Use box[0] <= 64 and one box" in sentences
    assert "1 call in 1 process, 1 refused" in told
    assert re.search(r"box +128, 64\n", told)
    assert re.search(r"Called by\n +calls ", told)


def test_accepted_maps_are_told_of_where_asked_or_remarked_on(watch):
    assert "accepted" not in watch("init", "accepted", options=()).stderr
    verbose = watch("init", "accepted", "accepted", options=("--verbose",)).stderr
    assert verbose.count("tiled 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B, at 0x1000") == 1
    assert "2 calls in 1 process, 0 refused" in verbose


def test_quiet_prints_how_many_were_refused_in_one_line(watch):
    found = watch("init", "accepted", "refused", options=("--quiet",))
    assert found.stderr == "tilescope: 2 calls in 1 process, 1 refused.\n"


def test_a_disagreement_is_loud(watch):
    said = watch("init", "wrongly-accepted", "wrongly-refused", options=()).stderr
    assert said.count("DISAGREEMENT between ") == 2
    assert said.count("rules: cuTensorMapEncodeTiled") == 2
    assert "driver accepted this map" in said
    assert "driver refused this map" in said
    assert "2 DISAGREEMENTS between the driver" in said


def test_bytes_that_say_something_else_are_a_disagreement(watch):
    other = watch("init", "accepted", STANDIN_cuTensorMapEncodeTiled="00" * 128)
    assert other.states == ["disagreement"]


def test_ranks_that_fail_alike_are_explained_once(watch):
    def twice(build):
        one = f"{build.program} init refused"
        return ["sh", "-c", f"{one}; {one}"]

    said = watch(command=twice, options=()).stderr
    assert said.count("Refused: ") == 1
    assert len(re.findall(r"also refused in process \d+ \(calls\), as above: tiled", said)) == 1
    assert "2 calls in 2 processes, 2 refused" in said


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("word", "status"), [("exit=5", 5), ("signal=15", -15), ("signal=9", -9), ("accepted", 0)])
def test_the_programs_end_is_its_own(watch, word, status):
    found = watch("init", "refused", "flood=3", word, alone=True)  # a signal that ends the program ends the command
    assert (found.status, found.states) == (status, ["refused", "accepted"])
    assert re.fullmatch(r"3 calls, .* us each\n", found.stdout)
    assert found.total("times") == 4 + (word == "accepted")


def test_signals_go_to_the_program_and_nothing_is_left_behind(build, around):
    program = build("plain").command("init", "accepted", "sleep=600000")
    line = [*COMMAND, "--json", "--verbose", "--", *program]
    with subprocess.Popen(line, env=around, stderr=subprocess.PIPE, text=True) as watched:
        assert json.loads(watched.stderr.readline())["result"] == 0  # the program runs, and sleeps now
        watched.send_signal(signal.SIGTERM)
        said = watched.stderr.read()
        assert watched.wait(300) == -signal.SIGTERM
    assert json.loads(said.splitlines()[-1])["kind"] == "watch_summary"
    assert not sockets(around)


def test_a_program_that_stops_stops_the_command_and_both_go_on(build, around):
    program = build("plain").command("init", f"signal={int(signal.SIGSTOP)}", "accepted", "exit=7")
    with subprocess.Popen([*COMMAND, "--json", "--", *program], env=around, stderr=subprocess.PIPE) as watched:
        _, status = os.waitpid(watched.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        watched.send_signal(signal.SIGCONT)
        assert watched.wait(300) == 7
        assert json.loads(watched.stderr.read().splitlines()[-1])["maps"][0]["times"] == 1


def test_the_terminal_is_the_programs(around):
    """Ctrl-C reaches the program once, from the terminal; it can ask whether it has one."""
    script = 'trap "echo caught; exit 4" INT; test -t 0 && test -t 1 && echo ready; while :; do sleep 0.1; done'
    ours, theirs = os.openpty()
    line = ["env", "--default-signal=INT", "setsid", "--ctty", "--wait", *COMMAND, "--", "sh", "-c", script]
    with subprocess.Popen(line, env=around, stdin=theirs, stdout=theirs, stderr=theirs) as watched:
        os.close(theirs)
        said = b""
        while b"ready" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"\x03")
        while b"0 calls" not in said:
            said += os.read(ours, 4096)
        assert watched.wait(300) == 4
    os.close(ours)
    assert said.count(b"caught") == 1


def test_what_it_leaves_running_is_not_waited_for(watch, tmp_path):
    pid = tmp_path / "pid"

    def leaves(build):
        program = f"{build.program} init accepted flood=1 sleep=600000 accepted"
        return [
            "sh",
            "-c",
            f"({program} 2>/dev/null & echo $! >{pid}) | head -1 >/dev/null",
        ]  # a line: it made its call

    found = watch(command=leaves, alone=True)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert found.status == 0
    assert found.states == ["accepted"]
    assert found.total("times") == 2


def told_in_process(monkeypatch, around, words):
    with monkeypatch.context() as patch:
        for name, value in around.items():
            patch.setenv(name, value)
        return run(["watch", *words])


def test_a_mistake_of_ours_does_not_keep_us_from_waiting(build, around, monkeypatch, capfd):
    def fail(call):
        raise ZeroDivisionError(call.function.name)

    monkeypatch.setattr(watch_session, "judge_call", fail)
    program = build("plain").command("init", "accepted", "refused", "sleep=200", "exit=6")
    assert told_in_process(monkeypatch, around, ["--", *program]) == 6
    said = capfd.readouterr().err
    assert said.count("ZeroDivisionError: cuTensorMapEncodeTiled") == 1
    assert "The program runs on." in said


def test_a_socket_that_fails_is_closed_and_the_program_waited_for(build, around, monkeypatch, capfd):
    def fail(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(watch_session.Reader, "_take", fail)
    program = build("plain").command("init", "accepted", "sleep=200", "refused", "exit=6")
    assert told_in_process(monkeypatch, around, ["--", *program]) == 6
    assert "Too many open files" in capfd.readouterr().err


def test_a_full_disk_ends_the_file_and_nothing_else(build, around, monkeypatch, capfd):
    program = build("plain").command("init", "accepted", "refused", "exit=6")
    assert told_in_process(monkeypatch, around, ["--out", "/dev/full", "--", *program]) == 6
    said = capfd.readouterr().err
    assert said.count("/dev/full: No space left on") == 1
    assert "2 calls in 1 process, 1 refused" in said


def test_what_is_missing_is_said_in_one_sentence(around, tmp_path, monkeypatch, capfd):
    def said(**environment):
        status = told_in_process(monkeypatch, around | environment, ["--", "true"])
        return status, capfd.readouterr().err.splitlines()

    status, (sentence,) = said(CUDA_INJECTION64_PATH="/other.so")
    assert status == 3
    assert sentence.startswith("CUDA_INJECTION64_PATH is set already")
    status, (sentence,) = said(CC="", PATH=str(tmp_path))
    assert status == 3
    assert "found no C compiler" in sentence
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'watch.c: error: no such thing' >&2\nexit 1\n")
    broken.chmod(0o755)
    status, (sentence,) = said(CC=str(broken))
    assert status == 3
    assert sentence.startswith("watch could not build its library")
    assert str(broken) in sentence


def test_without_cupti_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("tilescope.gpu.watch.watch_build._installations", list)
    assert run(["watch", "--", "true"]) == 3
    assert capsys.readouterr().err.startswith("watch needs CUPTI: set CUDA_HOME")


def test_a_program_without_cuda_and_one_that_is_not_there(around, monkeypatch, capfd):
    assert told_in_process(monkeypatch, around, ["--", "echo", "hello"]) == 0
    plain = capfd.readouterr()
    assert plain.out == "hello\n"
    assert "initialised CUDA" in plain.err
    assert told_in_process(monkeypatch, around, ["--", "/nonexistent/program"]) == 2
    assert "No such file or directory" in capfd.readouterr().err
    assert not sockets(around)


def test_its_lines_are_maps_for_check_diff_and_load(watch, tmp_path, capsys):
    found = watch("init", "accepted", "refused", "im2col", "replace", "replace-refused", "null", "rank=6")
    path = tmp_path / "maps.jsonl"
    assert [each["tensor_map"] is None for each in found.maps] == [False] * 5 + [True] * 2
    assert "box" in found.maps[5]["arguments"]
    assert [run(["check", f"{path}:{line}"]) for line in range(1, 6)] == [0, 1, 0, 0, 1]
    capsys.readouterr()
    assert run(["check", str(path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["total"], answer["refused"], answer["refused_lines"]) == (5, 2, [2, 5])
    assert answer["lines_without_map"] == [6, 7]
    assert run(["diff", f"{path}:1", f"{path}:4"]) == 1
    assert "address" in capsys.readouterr().out
    assert run(["load", f"{path}:1", "--coords", "64,0"]) == 0
    assert run(["load", str(path), "--coords", "64,0"]) == 2  # which of them?
    assert run(["check", f"{path}:6"]) == 2
    assert "tensor_map is null" in capsys.readouterr().err
    assert run(["check", f"{path}:99"]) == 2
    assert "line 99 of" in capsys.readouterr().err


def test_a_summary_leads_back_from_json(watch):
    summary = watch("init", "accepted", "refused").summary
    found = Value.from_dict(summary)
    assert isinstance(found, WatchSummary)
    assert found.times == 2
    assert found.to_dict() == summary
