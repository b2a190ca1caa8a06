"""`tilescope swizzle`: what it prints, writes and refuses."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tilescope import view
from tilescope.cli import run
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.value import Value, own_data

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "swizzle-128B.svg"


@pytest.mark.parametrize("mode", [*SWIZZLE, "xor:5,2,5"])
def test_prints_the_drawing_at_the_width_of_the_terminal(mode, capsys, monkeypatch):
    for columns in (80, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["swizzle", mode]) == 0
        shown = capsys.readouterr()
        first, drawing = shown.out.split("\n\n", 1)
        assert first.startswith(f"Swizzle {mode} moves ")
        assert drawing == view.text(Swizzle.named(mode), width=columns) + "\n"
        assert shown.err == ""


@pytest.mark.parametrize("spelled", ["128b", "128B", "CU_TENSOR_MAP_SWIZZLE_128B", " 128B "])
def test_a_mode_may_be_spelled_in_many_ways(spelled, capsys):
    assert run(["swizzle", spelled]) == 0
    assert "a ^ ((a >> 3) & 0x70)" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("spelled", ["xor:3,4,3", "Swizzle<3,4,3>"])
def test_any_xor_swizzle_may_be_given(spelled, capsys):
    assert run(["swizzle", spelled]) == 0
    assert "a ^ ((a >> 3) & 0x70)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("triple", "mode", "span", "readers"),
    [
        ("3,4,3", "128B", 128, "TMA, wgmma and tcgen05 take"),
        ("2,4,3", "64B", 64, "TMA, wgmma and tcgen05 take"),
        ("1,4,3", "32B", 32, "TMA, wgmma and tcgen05 take"),
        ("2,5,2", "128B_ATOM_32B", 128, "TMA and tcgen05 take"),
        ("1,6,1", "128B_ATOM_64B", 128, "TMA takes"),
    ],
)
def test_an_xor_swizzle_is_named_as_the_mode_that_it_equals(triple, mode, span, readers, capsys):
    """CuTe's Swizzle<3,4,3> on bytes is TMA's 128B; both commands said that no hardware has it."""
    for command in (["swizzle", f"xor:{triple}"], ["explain", f"Swizzle<{triple}>"]):
        assert run(command) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"map as the {mode} mode" in shown
        assert f"{readers} it where rows are {span} bytes" in shown
        assert "threads may store rows" in shown
        assert "neither" not in shown
    assert run(["swizzle", "xor:5,2,5"]) == 0
    assert "neither TMA nor the tensor" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("written", ["0x480", "1152", "1_152", "0b10010000000", "0x4_80"])
def test_an_address_may_be_written_in_many_ways(written, capsys):
    assert run(["swizzle", "64B", "--address", written]) == 0
    _, drawing = capsys.readouterr().out.split("\n\n", 1)
    assert drawing == view.text(SWIZZLE["64B"], address=0x480) + "\n"


@pytest.mark.parametrize("written", ["-1", "12x", "", "0x", "1.5", "9" * 5000, "0x100000000", str(1 << 40)])
def test_what_is_no_address_is_refused(written, capsys):
    assert run(["swizzle", "64B", "--address", written]) == 2
    shown = capsys.readouterr()
    assert "--address" in shown.err
    assert len(shown.err) < 400
    assert shown.out == ""


def test_a_shared_address_has_32_bits(capsys):
    assert run(["swizzle", "64B", "--smem-address", "0xffffff80"]) == 0
    capsys.readouterr()
    for command in (
        ["swizzle", "64B"],
        ["mma", "layout", "64x64", "bf16"],
        ["load", "--type", "u8", "--dims", "64", "--box", "64"],
    ):
        assert run([*command, "--smem-address", "0x100000000"]) == 2
        shown_text = capsys.readouterr().err
        assert "'0x100000000' is no shared address" in shown_text
        assert "write one from 0 to 0xffffffff." in shown_text


@pytest.mark.parametrize("mode", ["129B", "", "xor:9,4,3", "xor:1,2", "\x00", "é" * 300])
def test_an_unknown_mode_is_refused(mode, capsys):
    assert run(["swizzle", mode]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ")
    assert shown.out == ""


@pytest.mark.parametrize("mode", [*SWIZZLE, "xor:5,2,5"])
def test_json_gives_the_value_back(mode, capsys):
    assert run(["swizzle", mode, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert own_data(data) == Swizzle.named(mode).to_dict()
    assert Value.from_dict(data) == Swizzle.named(mode)


def test_json_with_an_address_says_the_base_offset(capsys):
    assert run(["swizzle", "128B", "--address", "0x480", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["extra"]
    assert (data["address"], data["base_offset"]) == ("0x480", 1)


def test_svg_writes_the_drawing_and_prints_it_too(tmp_path, capsys):
    file = tmp_path / "a swizzle.svg"
    assert run(["swizzle", "64B", "--address", "0x80", "--svg", str(file)]) == 0
    assert file.read_text("utf-8") == view.svg(SWIZZLE["64B"], address=0x80)
    shown = capsys.readouterr()
    assert shown.out.endswith("\n\n" + view.text(SWIZZLE["64B"], address=0x80) + "\n")
    assert shown.err == f"wrote {file}\n"


def test_svg_and_json_go_together(tmp_path, capsys):
    file = tmp_path / "swizzle.svg"
    assert run(["swizzle", "64B", "--json", "--svg", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "64B"
    ET.fromstring(file.read_text("utf-8"))


def test_svg_to_stdout_replaces_the_text(capsys):
    assert run(["swizzle", "64B", "--svg", "-"]) == 0
    assert capsys.readouterr().out == view.svg(SWIZZLE["64B"])


def test_svg_to_a_directory_is_refused(tmp_path, capsys):
    assert run(["swizzle", "64B", "--svg", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "is a directory" in said.err
    assert said.out == ""


def test_svg_into_no_directory_is_refused(tmp_path, capsys):
    assert run(["swizzle", "64B", "--svg", str(tmp_path / "none" / "a.svg")]) == 2
    assert "there is no directory" in capsys.readouterr().err


def test_svg_that_cannot_be_written_is_refused(tmp_path, capsys):
    assert run(["swizzle", "64B", "--svg", str(tmp_path / ("x" * 300))]) == 2
    assert "name too long" in capsys.readouterr().err.casefold()


def coloured(text):
    return "\x1b[" in text


def test_a_pipe_gets_no_colour(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    run(["swizzle", "32B"])
    assert not coloured(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_a_terminal_gets_colour_unless_it_is_refused(capsys, monkeypatch, environment, expected):
    import sys

    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["swizzle", "32B"]) == 0
    shown = capsys.readouterr().out
    assert coloured(shown) == expected
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert [line.rstrip() for line in plain.splitlines()][2:] == view.text(SWIZZLE["32B"]).splitlines()


def test_the_picture_of_the_documentation_is_what_the_command_draws():
    """After a change: tilescope swizzle 128B --svg docs/images/swizzle-128B.svg."""
    assert PICTURE.read_text("utf-8") == view.svg(SWIZZLE["128B"])
