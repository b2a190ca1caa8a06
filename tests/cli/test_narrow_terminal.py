"""Every command's drawing fits a terminal of 60 columns."""

import pytest

from tilescope.cli import run

MAP = ["--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B"]
PIXELS = [
    "--type",
    "f16",
    "--dims",
    "64,56,56,8",
    "--lower=-1,-1",
    "--upper=-1,-1",
    "--channels",
    "64",
    "--pixels",
    "128",
]
WORD = "0x4000004000010040"
COMMANDS = [
    *(["swizzle", mode] for mode in ("none", "128B", "64B", "128B_ATOM_32B_FLIP_8B", "xor:5,2,5", "xor:3,4,3")),
    ["check", *MAP],
    ["check", *MAP, "--strides", "8200"],
    ["load", *MAP, "--coords", "4064,-10", "--lines", "4"],
    ["load", *PIXELS, "--coords", "0,50,-1,0", "--swizzle", "128B", "--lines", "4"],
    ["mma", "layout", "128x64", "bf16", "--major", "MN", "--swizzle", "none"],
    ["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--lane", "3"],
    ["mma", "fragment", "wgmma.m64n256k16", "--operand", "D", "--type", "f32", "--lane", "100"],
    ["mma", "fragment", "ldmatrix.x4", "--lane", "13"],
    ["mma", "descriptors", "128x128", "bf16", "--smem-address", "0x8010"],
    ["mma", "check", WORD, *MAP, "--smem-address", "0x400"],
    ["mma", "check", "0x4000002000010040", *MAP, "--smem-address", "0x400"],
    ["decode", WORD, "--addresses"],
    ["decode", "0x08200490"],
    ["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4"],
    ["banks", "32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows", "--fix"],
    ["convert", "128B", "--shape", "64x64", "--bits", "16", "--to", "cute", "--draw"],
    *(["explain", *topic] for topic in ([], ["swizzle"], ["rank"], ["128B"], ["sm_90"], ["box"])),
    ["plan", "128x64", "bf16"],
    ["plan", "256x128", "bf16", "--why"],
    ["gemm", "4096x4096x4096", "bf16"],
    ["gemm", "128x128x65536", "bf16", "--why"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_line_is_wider_than_60_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(command) in (0, 1)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first  # the answer is one line, however narrow the terminal
    assert [line for line in lines if len(line) > 60] == []


def test_the_descriptor_of_a_map_fits_too(monkeypatch, capsys):
    assert run(["encode", *MAP]) == 0
    digits = capsys.readouterr().out
    assert digits.startswith("// ")
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["decode", digits]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 60] == []
    assert "box" in "".join(lines)


def test_a_table_too_wide_lists_every_row_as_facts(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4", "--pattern", "st.b128 rows"]) == 0
    shown = capsys.readouterr().out
    assert "pattern       ldmatrix.x4\ninstructions  16\nwavefronts    512\n" in shown
    assert "pattern       st.b128 rows\ninstructions  16\n" in shown


def test_a_ruler_too_wide_is_drawn_in_two_parts(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["decode", WORD]) == 0
    parts = [
        "63    56      48      40      32",
        "ee··········[d]···[---stride---]",
        "      24      16       8       0",
        "··[--leading---]··[---start----]",
    ]
    assert "\n".join(parts) in capsys.readouterr().out
