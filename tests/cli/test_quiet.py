"""The first line of every command is the answer; --quiet prints it alone, with the fix where the answer is no."""

import json
import shlex

import numpy as np
import pytest

from tilescope.cli import COMMANDS, mma_group, run
from tilescope.swizzle import Swizzle

MAP = ["--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B"]
WIDE_MAP = ["--type", "bf16", "--dims", "4096,4096", "--box", "128,64", "--swizzle", "128B"]
ONE = '{"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [64, 64]}'
OTHER = ONE.replace("[128]", "[256]")
ATOM = "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"
HANG = """
[barriers.full]
count = 1
[slots.a]
bytes = 4096
[[roles]]
name = "thread"
steps = [
    { expect = "full", bytes = 8192 },
    { copy = "a", bytes = 4096, barrier = "full" },
    { wait = "full", parity = 0 },
    { read = ["a"] },
]
"""
WITHOUT = {"serve", "watch", "verify", "bench", "run"}  # a browser; tests/watch; tests/gpu_layer; test_run_command.py

# command line: exit status, and a piece of what it prints with --quiet
QUIET = [
    (["swizzle", "64B"], 0, "^ ((a >> 3) & 0x30), a pattern of 512 bytes."),
    (
        ["swizzle", "128B", "--smem-address", "0x480"],
        0,
        ("^ ((a >> 3) & 0x70), a pattern of 1024 bytes"),
    ),
    (
        ["decode", "0x4000004000010040", "0x4000404000010040"],
        0,
        "2 words: 0x4000004000010040, a wgmma descriptor; 0x4000404000010040",
    ),
    (["swizzle", "none"], 0, "Swizzle none moves nothing"),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--element", "37,21"],
        0,
        "Element (37, 21) is at byte 0x12aa",
    ),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--other", "(64,64):(72,1)"],
        0,
        "first (1, 0) at 0x80 and at 0x90.",
    ),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--other", "(64,64):(64,1)"],
        0,
        "all 4096 elements have equal",
    ),
    (["draw", "((4,8),(2,2)):((32,1),(16,8))"], 0, "32 threads hold 4 values each"),
    (
        ["check", *MAP],
        0,
        "Accepted: tiled map of 4096 x 4096 bfloat16",
    ),
    (
        ["check", *WIDE_MAP],
        1,
        ("Refused: box[0] = 128 elements x 2 bytes = 256 bytes"),
    ),
    (
        ["check", *WIDE_MAP, "--fix"],
        0,
        ("Accepted with 1 change: box: (128, 64) → (64, 64)"),
    ),
    (
        ["check", "maps.jsonl"],
        1,
        ("2 maps, 1 refused: line 2."),
    ),
    (
        ["encode", *MAP],
        0,
        "tiled map of 4096 x 4096 bfloat16, box 64 x 64",
    ),
    (
        ["decode", "0x4000004000010040"],
        0,
        "leading 16 bytes, stride 1024 bytes, 128B.",
    ),
    (
        ["decode", "0x000003f0001ffffe"],
        0,
        ("phase 0 (parity 1 passes, parity 0 waits)"),
    ),
    (
        ["decode", "00" * 128],
        1,
        ("map: box[0] = 1 elements x 8 bits = 1 bytes"),
    ),
    (["diff", ONE, OTHER], 1, "strides_bytes[0] is 128 and 256."),
    (["diff", ONE, ONE], 0, "tiled map of 64 x 64 bfloat16, box 64 x 64."),
    (["load", *MAP, "--element", "37,21"], 0, "Element (37, 21) is at byte 0x12fa"),
    (
        ["load", *MAP, "--at", "0x12fa"],
        0,
        "21) of the box, coordinates (21, 37).",
    ),
    (
        ["load", *MAP, "--coords", "0,4090"],
        0,
        ("load moves 64 rows of 128"),
    ),
    (
        ["load", *MAP, "--coords", "4,0"],
        1,
        ("illegal instruction: coords[0] = 4 elements = 8 bytes"),
    ),
    (
        ["identify", "dump.bin", "tile.npy"],
        0,
        "8192 of 8192 bytes fit.",
    ),
    (
        ["identify", "noise.bin", "tile.npy"],
        1,
        ("even the best layout leaves 8176"),
    ),
    (
        ["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1"],
        0,
        ("1764 copies of 128 pixels x 64 channels"),
    ),
    (
        ["conv", "8x56x56x60", "128x3x3", "bf16"],
        1,
        ("No such map: strides_bytes[0] = 120 bytes"),
    ),
    (
        ["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4"],
        0,
        ("512 wavefronts where 64 would do."),
    ),
    (
        ["banks", "64x64", "bf16", "--swizzle", "128B", "--pattern", "ldmatrix.x4"],
        0,
        "ldmatrix.x4: no conflict, 64 wavefronts.",
    ),
    (
        ["banks", "32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows", "--fix"],
        0,
        ("st.b32 rows: no conflict, 32 wavefronts."),
    ),
    (
        ["banks", "32x32", "bf16", "--pattern", "transpose", "--pattern", "st.b128 rows", "--fix"],
        1,
        ("st.b128 rows: no conflict, 16 wavefronts."),
    ),
    (
        ["mma", "layout", "128x64", "bf16", "--element", "37,21"],
        0,
        "Element (37, 21) is at byte 0x12fa",
    ),
    (
        ["mma", "layout", "128x64", "bf16"],
        0,
        ("k) is at (a = base + mn * 128 + k * 2, a ^ ((a >> 3) & 0x70))."),
    ),
    (
        ["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--element", "3,4"],
        0,
        "Thread 14 holds element (3, 4): value 0, register 0",
    ),
    (
        ["mma", "fragment", "ldmatrix.x4", "--lane", "5"],
        0,
        ("(matrix, row, column): (0, 1, 2), (0, 1, 3), (1, 1, 2), (1, 1"),
    ),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--element", "37,5"],
        0,
        "Element (m 37, n 5) is in lane 37, column 5",
    ),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--element", "37,40", "--ld", "32x32b.x32"],
        0,
        "Element (m 37, n 40) is loaded to warp 1, lane 5",
    ),
    (
        ["mma", "tmem", "--budget", "D:64x128,D:64x128,A:64x64"],
        0,
        "3 parts fit: 160 of 512 columns",
    ),
    (
        ["mma", "tmem", "--budget", "D:128x256*2,A:128x64"],
        1,
        ("3 parts do not fit: 544 columns"),
    ),
    (
        ["mma", "scales", "128x256", "nvfp4", "--block", "37,5"],
        0,
        ("block 5 (k 80 to 95) is byte 597 (0x255)"),
    ),
    (
        ["mma", "scales", "128x256", "nvfp4"],
        0,
        "take 2048 bytes: 1 x 4 atoms of 128 x 4.",
    ),
    (
        ["mma", "instruction", "f16", "128x256", "--a-type", "bf16"],
        0,
        "bfloat16 x bfloat16 -> float32, m128 n256 k16, A K-major",
    ),
    (
        ["mma", "descriptors", "64x64", "bf16", "--major", "MN", "--operand", "B"],
        0,
        ("first 0x4000004002000000: leading 8192, stride 1024 bytes"),
    ),
    (
        ["mma", "descriptors", "128x64", "bf16", "--for", "tcgen05"],
        0,
        ("tcgen05.mma.kind::f16, m128 k16 reads A with 4 descriptors"),
    ),
    (
        ["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x400"],
        0,
        "copied: all 64 x 16 elements (mn x k) agree.",
    ),
    (
        ["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x800"],
        1,
        ("first (mn 0, k 0) written at 0x800"),
    ),
    (
        ["convert", ATOM, "--to", "mosaic"],
        0,
        ("not in the text: element_bits = 16, shape = (8, 64))."),
    ),
    (
        ["convert", "Layout((16, 128), 16, padding_bytes=16)", "--to", "mosaic"],
        1,
        "16 bytes of padding a row",
    ),
    (
        ["plan", "128x64", "bf16"],
        0,
        "128 x 64 bfloat16: swizzle 128B, 1 copy of box 64 x 128",
    ),
    (
        ["plan", "64x63", "bf16"],
        1,
        ("k = 63 elements of 16 bits = 126 contiguous bytes"),
    ),
    (
        ["gemm", "4096x4096x4096", "bf16"],
        0,
        ("4096 x 4096 x 4096 bfloat16: tile 128 x 256 x 64, 4 stages of 49152 bytes"),
    ),
    (
        ["gemm", "64x100x64", "bf16"],
        1,
        ("No plan for GEMM 64 x 100 x 64 bf16: n = 100"),
    ),
    (["pipeline", "128x64", "bf16", "--stages", "2"], 0, "Proven for every order: 89 actions"),
    (
        ["pipeline", "hang.toml"],
        1,
        "Hang: full, phase 0 expects 8192 bytes",
    ),
    (["sweep", "--tile", "64x64,128x64", "--type", "bf16"], 0, "2 of 2 problems have a plan."),
    (
        ["sweep", "--tile", "64x63", "--type", "bf16"],
        1,
        ("k = 63 elements of 16 bits = 126 contiguous bytes"),
    ),
    (
        ["explain", "base", "offset"],
        0,
        "starts: (shared address / 128) modulo",
    ),
    (["explain", "box-range"], 0, "box-range: Every box extent is 1"),
    (
        ["explain", "illegal instruction (715)"],
        0,
        ("look first at coordinate-16-bytes."),
    ),
]
IDS = [f"{' '.join(command)[:50]}-{number}" for number, (command, _, _) in enumerate(QUIET)]


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A tile, a dump in which it lies swizzled, one in which it does not lie, a pipeline that hangs, and two maps."""
    tile = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    np.save(tmp_path / "tile.npy", tile)
    (tmp_path / "dump.bin").write_bytes(Swizzle.named("128B").swizzle(tile.tobytes()))
    (tmp_path / "noise.bin").write_bytes(bytes([255]) * 8192)
    (tmp_path / "hang.toml").write_text(HANG)
    (tmp_path / "maps.jsonl").write_text(f"{ONE}\n{ONE.replace('[128]', '[120]')}\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("command", "status", "piece"), QUIET, ids=IDS)
def test_quiet_prints_the_answer_and_the_fix_alone(command, status, piece, capsys, wording):
    assert run([*command, "-q"]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    assert piece in printed.out.splitlines()[0]
    wording(f"quiet: {shlex.join(command)}", printed.out)


@pytest.mark.parametrize(("command", "status", "piece"), QUIET, ids=IDS)
def test_the_first_line_and_json_say_the_same(command, status, piece, capsys):
    run([*command, "-q"])
    sentence, *advice = capsys.readouterr().out.splitlines()
    assert piece in sentence
    assert run(command) == status
    assert capsys.readouterr().out.splitlines()[0].removeprefix("// ") == sentence
    assert run([*command, "--json"]) == status
    data = json.loads(capsys.readouterr().out)
    assert [data["answer"], *([data["advice"]] if "advice" in data else [])] == [sentence, *advice]


def test_every_command_is_among_them():
    assert {command[0] for command, _, _ in QUIET} == set(COMMANDS) - WITHOUT
    assert {command[1] for command, _, _ in QUIET if command[0] == "mma"} == set(mma_group().commands)


@pytest.mark.parametrize("other", [["--json"], ["--svg", "-"]])
def test_quiet_shares_stdout_with_nothing(other, capsys):
    assert run(["swizzle", "64B", "--quiet", *other]) == 2
    shown = capsys.readouterr()
    assert "both write to stdout" in shown.err
    assert shown.out == ""


def test_quiet_writes_files_all_the_same(tmp_path, capsys):
    assert run(["swizzle", "64B", "-q", "--svg", "swizzle.svg"]) == 0
    assert (tmp_path / "swizzle.svg").read_text("utf-8").startswith("<svg")
    assert run(["plan", "128x64", "bf16", "-q", "--emit", "cuda", "-o", "tile.cu"]) == 0
    assert "__global__" in (tmp_path / "tile.cu").read_text("utf-8")
    assert capsys.readouterr().out.count("\n") == 2
    assert run(["plan", "128x64", "bf16", "-q", "--emit", "cuda"]) == 2
    assert "give --emit a file with -o" in capsys.readouterr().err


def test_what_is_not_understood_is_told_on_stderr_all_the_same(capsys):
    assert run(["swizzle", "129B", "-q"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Did you mean 128B?" in shown.err


def test_what_json_holds_beside_a_value_is_passed_over_where_it_is_read_again(tmp_path, capsys):
    assert run(["pipeline", "128x64", "bf16", "--stages", "2", "--describe", "--json"]) == 0
    described = capsys.readouterr().out
    assert "answer" in json.loads(described)
    (tmp_path / "described.json").write_text(described)
    assert run(["pipeline", "described.json", "-q"]) == 0
    assert "89 actions" in capsys.readouterr().out
    assert run(["check", *WIDE_MAP, "--fix", "--json"]) == 0
    (tmp_path / "fixed.json").write_text(capsys.readouterr().out)
    assert run(["check", "fixed.json", "-q"]) == 0
    assert "4096 x 4096 bfloat16, box 64 x 64" in capsys.readouterr().out


def test_a_floor_without_the_rate_of_the_tensor_cores_says_so(capsys):
    """Of an RTX 5090 the rate of e2m3 is not known: C of 2 bytes and A and B of 6 bits, once each, at 1792 GB/s."""
    assert run(["gemm", "4096x4096x4096", "e2m3", "--card", "RTX 5090", "-q"]) == 0
    said = capsys.readouterr().out
    assert f"least {4096**2 * (2 + 2 * 6 / 8) / 1792e3:.1f} us for memory" in said
    assert "alone: TFLOP/s of e2m3" in said
    assert "not known for the RTX 5090." in said
    assert run(["gemm", "4096x4096x4096", "bf16", "--card", "RTX 5090", "-q"]) == 0
    assert "memory alone" not in capsys.readouterr().out


@pytest.mark.parametrize("arch", ["sm_107", "sm_999"])
@pytest.mark.parametrize(
    "command", [["check", *MAP], ["conv", "8x56x56x64", "128x3x3", "bf16"]], ids=lambda words: words[0]
)
def test_an_architecture_that_is_not_known_is_no_refusal_by_the_driver(command, arch, capsys):
    assert run([*command, "--arch", arch, "--quiet"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert arch in told.err
