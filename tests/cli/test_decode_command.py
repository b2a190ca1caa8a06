"""`tilescope decode` of a descriptor word."""

import json

import pytest

import tilescope as ts
from tilescope import view
from tilescope.cli import run
from tilescope.value import Value

WORD = "0x4000004000010040"


@pytest.mark.parametrize(
    "written", [WORD, WORD.upper().replace("0X", "0x"), str(int(WORD, 0)), "0x4000_0040_0001_0040"]
)
def test_explains_a_wgmma_descriptor(written, capsys):
    assert run(["decode", written]) == 0
    assert capsys.readouterr().out == view.text(ts.inspect_descriptor(int(WORD, 0))) + "\n"


def test_lists_the_reads(capsys):
    assert run(["decode", WORD, "--addresses", "--major", "MN", "--rows", "128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    addresses = found.pop("addresses")
    descriptor = ts.WgmmaDescriptor.decode(int(WORD, 0))
    assert [[int(each, 0) for each in line] for line in addresses] == descriptor.addresses("MN", 128).tolist()
    assert Value.from_dict(found) == ts.inspect_descriptor(int(WORD, 0), major="MN")
    assert run(["decode", WORD, "--addresses", "--type", "s8"]) == 0
    assert "64 x 32 elements" in capsys.readouterr().out


def test_says_no_to_a_word_that_is_none(capsys):
    assert run(["decode", "0x4000404000010040", "--addresses"]) == 1
    shown = capsys.readouterr()
    assert "Not a wgmma descriptor" in shown.out
    assert "tcgen05" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0x1" + 16 * "0"], "at most 64 bits"),
        (["-1"], "No such option"),
        (["--", "-1"], "at most 64 bits"),
        (["12", "34"], "at most 64 bits"),
        (["twelve"], "no such file: twelve"),
        ([WORD, "--major", "row"], "known: K, MN"),
        ([WORD, "--type", "f64"], "1, 4, 8, 16 or 32 bits"),
        ([WORD, "--type", "e2m1", "--addresses"], "elements of 1, 8, 16, 32 bits"),
        ([WORD, "--major", "MN", "--type", "s8", "--addresses"], "MN-major elements of 16 bits"),
        ([WORD, "--addresses", "--rows", "300"], "1 to 256"),
        ([], "Missing argument"),
    ],
)
def test_refuses_with_the_reason_on_stderr(arguments, said, capsys):
    assert run(["decode", *arguments]) == 2
    shown = capsys.readouterr()
    assert said.casefold() in shown.err.casefold()
    assert shown.out == ""
