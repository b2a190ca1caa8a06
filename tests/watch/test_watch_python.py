"""Python programs under watch: the frames that called, whoever holds the GIL."""

import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "program.py"


def python(*words):
    """The program by this Python; where the library is instrumented, the sanitizer is loaded first."""

    def command(build):
        around = [f"{name}={value}" for name, value in build.preloaded().items()]
        prefix = build.command()[:-1]
        return [*prefix, "env", *around, sys.executable, str(PROGRAM), str(build.driver), *words]

    return command


def frames(line):
    return [(Path(each["file"]).name, each["function"]) for each in line["python"]]


def test_frames_are_told_whoever_holds_the_gil(watch, sanitizer):
    found = watch(command=python("released", "held", "taken"), sanitizer=sanitizer)
    assert (found.status, found.stdout, found.states) == (0, "done\n", ["refused"] * 3)
    released, held, taken = found.maps
    names = ["encode", "released", "<module>"]
    assert frames(released) == [("program.py", name) for name in names]
    assert frames(held) == [("program.py", name) for name in ("encode", "held", "<module>")]
    assert taken["python"] == []
    lines = PROGRAM.read_text().splitlines()
    assert "cuTensorMapEncodeTiled" in lines[released["python"][0]["place"] - 1]
    assert "encode(" in lines[held["python"][1]["place"] - 1]


def test_the_summary_names_the_line(watch):
    found = watch(command=python("held"), options=("--verbose",))
    assert "Python, innermost call first" in found.stderr
    assert "watch/program.py:" in found.stderr
