"""`tilescope draw` draws whatever text describes a layout; `tilescope banks --layout` counts on it."""

import json
from xml.etree import ElementTree as ET

import pytest

from tilescope import Access, Layout, Value, parse_layout, tile_report
from tilescope.cli import run
from tilescope.notation import NOTATION

SW128 = "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"


@pytest.mark.parametrize("row", NOTATION.values(), ids=lambda row: row.name)
def test_every_notation_is_drawn(row, capsys, tmp_path):
    beside = [] if row.name == "tilescope" else ["--shape", "8x64"]
    beside += ["--bits", "16"] if "element_bits" in row.unsaid else []
    assert run(["draw", row.example, *beside, "--svg", str(tmp_path / "drawn.svg")]) == 0
    assert "Operand " in capsys.readouterr().out
    ET.fromstring((tmp_path / "drawn.svg").read_text("utf-8"))
    assert run(["draw", row.example, *beside, "--json"]) == 0
    layout = Value.from_dict(json.loads(capsys.readouterr().out))
    assert layout.swizzle.name == "128B"


def test_shape_and_stride_alone_is_a_thread_value_layout(capsys):
    assert run(["draw", "((4,8),(2,2)):((32,1),(16,8))", "--shape", "16x8"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("32 threads hold 4 values each,")
    assert "offsets 0 to 127." in printed
    assert "Thread-value layout of 32 threads" in printed
    assert "T28 V2" in printed
    assert run(["draw", "((4,8),(2,2)):((32,1),(16,8))", "--bits", "16"]) == 0
    assert capsys.readouterr().out.startswith("32 x 4 elements of 16 bits take 256 bytes")


def test_a_plain_matrix_is_a_tile_unless_a_shape_makes_its_rows_threads(capsys):
    assert run(["draw", "(8,64):(64,1)"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("A tile of 8 x 64 elements at")
    assert "offsets 0 to 511" in printed
    assert "64 from row to row" in printed
    assert "1 from column to column." in printed
    assert "thread" not in printed
    assert run(["draw", "(8,64):(64,1)", "--shape", "8x64"]) == 0
    assert capsys.readouterr().out.startswith("8 threads hold 64 values each")


def test_staged_tiles_and_single_elements(capsys):
    assert run(["draw", "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64,3):(64,1,512)"]) == 0
    assert "8 x 64 x 3 elements of 16 bits" in capsys.readouterr().out
    assert run(["draw", SW128, "--element", "9,8"]) == 0
    assert "address 0x480" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["(8,64)"], "a layout is both"),
        (["CU_TENSOR_MAP_SWIZZLE_128B"], "--bits"),
        ([SW128, "--element", "64,0"], "outside the tile"),
        (["#ttg.blocked<{sizePerThread = [1]}>"], "swizzled_shared, nvmma_shared, padded_shared, shared_linear"),
    ],
)
def test_what_is_not_understood_ends_with_status_2(arguments, reason, capsys):
    assert run(["draw", *arguments]) == 2
    printed = capsys.readouterr()
    assert reason in printed.err
    assert printed.out == ""


def test_banks_count_on_a_layout_in_any_notation(capsys):
    assert run(["banks", "--layout", SW128, "--pattern", "ldmatrix.x4", "--json"]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert found == tile_report(Access.ldmatrix((64, 64), 16), Layout((64, 64), 16, swizzle="128B"))
    assert run(["banks", "--layout", "(64,64):(64,1)", "--bits", "16", "--pattern", "ldmatrix.x4", "--fix"]) == 0
    assert "swizzle 128B" in capsys.readouterr().out


def test_banks_count_a_thread_value_layout(capsys):
    tv = "(32,32):(1,32)"
    assert run(["banks", "--layout", "(32,32):(32,1)", "--bits", "32", "--tv", tv, "--op", "ld.b32", "--json"]) == 0
    found = Value.from_dict(json.loads(capsys.readouterr().out))
    assert (found.costs[0].instructions, found.costs[0].wavefronts) == (32, 1024)  # 32 rows of one bank each
    layout = parse_layout("(32,32):(32,1)", element_bits=32)
    assert found == tile_report(Access.thread_values(((32, 32), (1, 32)), layout, "ld.b32"), layout)
    assert run(["banks", "--layout", "(32,32):(33,1)", "--bits", "32", "--tv", tv]) == 0
    assert "no conflict" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--layout", SW128], "say what is accessed"),
        (["64x64", "bf16", "--layout", SW128, "--pattern", "ldmatrix.x4"], "takes the place"),
        (["64x64", "bf16", "--tv", "(32,2):(2,1)"], "--layout TEXT"),
        (["--layout", SW128, "--tv", "(32,2):(2,1)", "--fix"], "patterns alone"),
        (["--layout", SW128, "--tv", "(32,2,2):(2,1,64)"], "two indices, thread and value"),
    ],
)
def test_banks_say_what_they_need(arguments, reason, capsys):
    assert run(["banks", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_convert_draws_a_layout_that_has_no_other_text(capsys):
    """Where the answer says that a layout can be drawn, --draw draws it."""
    staged = "Sw<3,4,3> o smem_ptr[16b](unset) o ((_8,_16),(_64,_1),(_1,_3)):((_64,_512),(_1,_0),(_0,_8192))"
    assert run(["convert", staged, "--to", "triton", "--draw"]) == 1
    printed = capsys.readouterr().out
    assert "3 indices" in printed
    assert "tile: (128,64):(64,1)." in printed
    assert "128 x 64 x 3 elements of 16 bits" in printed
    odd = "smem_ptr[16b](unset) o ((8,64),48,2):((64,1),512,9)"
    assert run(["convert", odd, "--to", "triton"]) == 1
    assert "take that" not in capsys.readouterr().out


def test_two_layouts_are_drawn_beside_each_other_with_their_first_difference(capsys):
    assert run(["draw", 'Layout((8, 64), 16, swizzle="128B")', "--other", "Layout((8, 64), 16)"]) == 0
    one, other = Layout((8, 64), 16, swizzle="128B"), Layout((8, 64), 16)
    first = one.first_difference(other)
    said = capsys.readouterr().out
    assert f"element {first}" in " ".join(said.split())
    assert f"{one.address(*first):#x} in the first" in " ".join(said.split())
    assert f"{other.address(*first):#x}" in " ".join(said.split())
    assert run(["draw", "Layout((8, 64), 16)", "--other", "Layout((8, 32), 16)"]) == 2


def test_the_element_that_was_asked_for_is_in_the_drawing(capsys):
    assert run(["draw", "(64,64):(64,1)", "--bits", "16", "--element", "37,21"]) == 0
    shown = capsys.readouterr().out
    assert "\n37    296  297 298*" in shown
    assert "Drawn: rows 32 to 47 of 64." in shown


def test_of_two_large_layouts_the_rows_around_the_first_difference_are_drawn(capsys):
    swapped = "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"
    assert run(["draw", swapped, "--other", "(64,64):(64,1)", "--bits", "16"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Drawn: 16 of 64 rows.") == 2
    assert run(["draw", swapped, "--other", "(64,64):(64,1)", "--bits", "16", "--element", "37,21"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Drawn: rows 32 to 47 of 64.") == 2
    assert "element 37, 21    at 0x12fa" in shown
    assert "first, at 0x12aa" in shown
