"""`tilescope decode` of a descriptor word."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import view
from tilescope.cli import run
from tilescope.value import Value

WORD = "0x4000004000010040"


@pytest.mark.parametrize(
    "written",
    [WORD, WORD.upper().replace("0X", "0x"), WORD.removeprefix("0x"), str(int(WORD, 0)), "0x4000_0040_0001_0040"],
)
def test_explains_a_wgmma_descriptor(written, capsys, wording):
    assert run(["decode", written]) == 0
    shown = capsys.readouterr().out
    first, drawing = shown.split("\n\n", 1)
    assert "start 0x400, leading 16 bytes, stride 1024 bytes, 128B." in first
    wording("explains a wgmma descriptor", first)
    assert drawing == view.text(ts.descriptor_readings(int(WORD, 0))) + "\n"
    assert drawing.startswith("0x4000004000010040: a wgmma descriptor\n")


def test_lists_the_reads(capsys):
    assert run(["decode", WORD, "--addresses", "--major", "MN", "--rows", "128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    addresses = found["extra"]["addresses"]
    descriptor = ts.WgmmaDescriptor.decode(int(WORD, 0))
    assert [[int(each, 0) for each in line] for line in addresses] == descriptor.addresses("MN", 128).tolist()
    assert Value.from_dict(found) == ts.descriptor_readings(int(WORD, 0), major="MN")
    assert Value.from_dict(found["readings"][0]) == ts.inspect_descriptor(int(WORD, 0), major="MN")
    assert run(["decode", WORD, "--addresses", "--type", "s8"]) == 0
    assert "64 x 32 elements" in capsys.readouterr().out


def test_says_no_to_a_word_that_is_none(capsys):
    assert run(["decode", "0x4000c04000010040", "--addresses"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("0x4000c04000010040 is no descriptor: 0x4000c04000010040 has bits 46,")
    assert "47 set" in shown.out
    assert "\n0x4000c04000010040: no descriptor\n" in shown.out
    assert "Not a wgmma descriptor" in shown.out
    assert "bits 46, 47 set" in shown.out
    assert shown.err == ""


def test_says_which_kinds_a_number_could_be(capsys):
    assert run(["decode", "0x4000404000010040"]) == 0
    assert capsys.readouterr().out.startswith("0x4000404000010040 is a tcgen05 descriptor: start 0x400")
    assert run(["decode", "0x08200490"]) == 0
    shown = capsys.readouterr().out
    assert "could be 3 kinds of descriptor" in shown
    assert "B is bfloat16" in shown  # kind f16
    assert "B is e5m2" in shown  # kind f8f6f4
    assert run(["decode", "0x00600025"]) == 0
    shown = capsys.readouterr().out
    assert "could be 2 kinds of word" in shown  # the other: a wgmma descriptor
    assert "lane 96 of 128: quarter 3" in shown
    assert "reached by warps 3, 7, 11" in shown
    assert run(["decode", "0x2000404000200040", "--addresses", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["readings"][0]["name"] == "tcgen05 descriptor"
    assert len(found["extra"]["addresses"][0]) == 8  # read MN-major with 32-bit elements, as the mode exists


@given(st.integers(0, (1 << 64) - 1) | st.integers(0, (1 << 32) - 1))
def test_every_number_is_read_as_all_it_could_be(word):
    found = ts.descriptor_readings(word)
    assert len(found.readings) == (2 if word >> 32 else 2 + 7 + 1)
    for reading in found.possible:
        assert reading.descriptor.encode() == word
    assert [reading.sound for reading in found.readings] == sorted(
        (reading.sound for reading in found.readings), reverse=True
    )
    assert Value.from_dict(found.to_dict()) == found
    assert view.text(found).startswith(f"{word:#x}: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0x1" + 16 * "0"], "at most 64 bits"),
        (["-1"], "below 0"),
        (["--", "-1"], "at most 64 bits"),
        (["12"] * 9, "up to 8 words"),
        (["twelve"], "no such file: twelve"),
        ([WORD, "--major", "row"], "known: K, MN"),
        ([WORD, "--rows", "0"], "at least 1"),
        ([WORD, "--rows", "-5"], "at least 1"),
        ([], "Missing argument"),
    ],
)
def test_refuses_with_the_reason_on_stderr(arguments, said, capsys):
    assert run(["decode", *arguments]) == 2
    shown = capsys.readouterr()
    assert said.casefold() in shown.err.casefold()
    assert shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([WORD, "--type", "f64"], "1, 4, 8, 16 or 32 bits"),
        ([WORD, "--type", "e2m1", "--addresses"], "elements of 1, 8, 16, 32 bits"),
        ([WORD, "--major", "MN", "--type", "s8", "--addresses"], "MN-major 128B with elements of 16 bits"),
        ([WORD, "--addresses", "--rows", "300"], "1 to 256"),
    ],
)
def test_what_tensor_cores_cannot_read_is_answered_with_no(arguments, said, capsys):
    assert run(["decode", *arguments]) == 1
    shown = capsys.readouterr()
    assert said in shown.out.splitlines()[0]
    assert shown.err == ""


def test_a_leading_distance_of_atoms_suggests_mn_major(capsys):
    far, near = (
        ts.WgmmaDescriptor(0x400, leading_bytes=each, stride_bytes=1024, swizzle="128B") for each in (8192, 16)
    )
    assert run(["decode", hex(far.encode())]) == 0
    shown_text = " ".join(capsys.readouterr().out.split())
    assert "operand is MN-major" in shown_text
    assert "say major MN" in shown_text
    assert run(["decode", hex(far.encode()), "--major", "MN"]) == 0
    assert run(["decode", hex(near.encode())]) == 0
    assert "say major MN" not in " ".join(capsys.readouterr().out.split())
