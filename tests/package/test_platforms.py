"""The core on other systems: it imports, and commands that need no GPU answer, without what Unix alone has."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.cli import COMMANDS
from tilescope.cli.manual import manuals
from tilescope.extras import extra_of

PROGRAM = Path(__file__).parent / "elsewhere.py"
TESTS = PROGRAM.parents[1]
FOREIGN_OPTIONS = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
MAP = ["--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B"]
DOUBLE = str(TESTS / "cli" / "double.ptx")
# (words, exit status) of one command of every kind that needs no GPU
ANSWERED = [
    (["swizzle", "128B"], 0),
    (["check", *MAP], 0),
    (["check", "--type", "bf16", "--dims", "4096,4096", "--box", "128,64", "--swizzle", "128B"], 1),
    (["load", *MAP, "--element", "37,21"], 0),
    (["encode", *MAP, "--hex"], 0),
    (["decode", "0x4000004000010040"], 0),
    (["diff", json.dumps({"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [64, 64]}), "-"], 2),
    (["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4"], 0),
    (["plan", "64x64", "bf16"], 0),
    (["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16"], 0),
    (["draw", "(64,64):(64,1)", "--bits", "16"], 0),
    (["convert", "GMMA::Layout_K_SW128_Atom<half_t>", "--to", "triton"], 0),
    (["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1"], 0),
    (["pipeline", "128x64", "bf16", "--stages", "2"], 0),
    (["run", DOUBLE, "--grid", "1", "--block", "32", "--arg", "f32:32", "--arg", "32"], 0),
    (["gemm", "512x512x512", "bf16"], 0),
    (["explain", "715"], 0),
    (["sweep", "--tile", "64x64", "--type", "bf16"], 0),
    (["verify", "--environment"], 0),
    (["verify", "--replay", str(TESTS / "golden" / "no-such-capture.npz")], 2),
    # what needs more than the core says so
    (["verify", "loads"], 3),
    (["bench", "loads"], 3),
    (["watch", "--", "true"], 3),
    (["serve", "--no-browser"], 3),
]
FEW = 4  # of them in every run
SHOWN = ("swizzle", "draw", "banks", "gemm", "conv", "explain")  # whose examples name no file to read


def elsewhere(task, lines=()):
    done = subprocess.run(
        [sys.executable, *FOREIGN_OPTIONS, PROGRAM, task],
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_module_of_the_core_imports_without_unix_and_optional_packages():
    wanting = elsewhere("modules")
    assert {module for module in wanting if not module.startswith("tilescope.web.")} == {
        "tilescope.machine.arithmetic.fma_loop",
        "tilescope.machine.arithmetic.special_unit_loop",
        "tilescope.machine.instructions.tensor_core.warpgroup_loop",
        "tilescope.mma.aligned_sum_loop",
        "tilescope.mma.narrow_sum_loop",
        "tilescope.smem.wavefront_loop",
        "tilescope.swizzle.line_streaming",
        "tilescope.tma.tile_streaming",
    }  # loops that numba compiles
    of_numba = {"numba", "llvmlite"}
    assert [name for name in wanting.values() if name not in of_numba and extra_of(name) is None] == []


def differing(answered):
    """The commands that end otherwise elsewhere, with what they said."""
    found = elsewhere("commands", [json.dumps(words) for words, _ in answered])
    pairs = zip(answered, found, strict=True)
    return [(words, status, said) for (words, expected), (status, said) in pairs if status != expected]


def test_commands_answer_without_unix_and_optional_packages():
    assert differing(ANSWERED[:FEW]) == []


@pytest.mark.slow
def test_all_commands_answer_or_say_what_is_missing():
    assert differing(ANSWERED[FEW:]) == []
    untried = set(COMMANDS) - {words[0] for words, _ in ANSWERED}
    assert untried == {"identify"}  # which takes files of the user's


@pytest.mark.slow
def test_examples_of_the_manual_answer_elsewhere():
    lines = [example.run for name in SHOWN for example in manuals()[name].examples]
    said = [shlex.split(line)[1:] for line in lines if not re.search(r" (--svg|-o) ", line)]
    assert len(said) > 20
    found = elsewhere("commands", [json.dumps(words) for words in said])
    assert [(words, why) for words, (status, why) in zip(said, found, strict=True) if status > 1] == []
