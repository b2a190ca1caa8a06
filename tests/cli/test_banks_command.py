import json
import re

import pytest

from tilescope.cli import run
from tilescope.layout import Layout
from tilescope.smem.access import Access
from tilescope.smem.layout_search import find_layouts
from tilescope.smem.report import tile_report
from tilescope.value import Value


def as_json(capsys, *arguments):
    assert run(["banks", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_counts_patterns_on_a_tile(capsys):
    data = as_json(
        capsys, "64x64", "bf16", "--swizzle", "128B", "--pattern", "ldmatrix.x4", "--pattern", "st.b128 rows"
    )
    tile = (64, 64)
    accesses = [Access.ldmatrix(tile, 16), Access.rows(tile, 16, "st.b128")]
    assert Value.from_dict(data) == tile_report(accesses, Layout(tile, 16, swizzle="128B"))


def test_counts_an_expression_without_a_tile(capsys):
    data = as_json(capsys, "--pattern", "ld.b32: lane * 32 * 4")
    assert data["layout"] is None
    assert data["costs"][0]["wavefronts"] == 32
    assert data["costs"][0]["worst"]["counters"]["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 32


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        (["64x128", "bf16", "--swizzle", "128B"], Layout((64, 128), 16, atom=(64, 64), swizzle="128B")),
        (["64x32", "bf16", "--swizzle", "128B"], Layout((64, 32), 16, padding_bytes=64, swizzle="128B")),
        (
            ["64x128", "bf16", "--swizzle", "128B", "--pad", "16"],
            Layout((64, 128), 16, padding_bytes=16, swizzle="128B"),
        ),
        (["64x64", "e4m3", "--address", "0x400"], Layout((64, 64), 8, start=0x400)),
        (["32x32", "f32", "--swizzle", "xor:5,2,5"], Layout((32, 32), 32, swizzle="xor:5,2,5")),
        (
            ["64x64", "f16", "--atom", "8x32", "--atom-order", "row", "--swizzle", "64B"],
            Layout((64, 64), 16, atom=(8, 32), atom_order="row", swizzle="64B"),
        ),
    ],
)
def test_the_layout_is_the_one_asked_for_and_else_as_tma_writes_it(capsys, options, layout):
    data = as_json(capsys, *options, "--pattern", "ld.b32 rows")
    assert Value.from_dict(data["layout"]) == layout


def test_prints_a_table_and_a_picture(capsys):
    assert run(["banks", "16x64", "bf16", "--pattern", "ldmatrix.x4"]) == 0
    out = capsys.readouterr().out
    assert "ldmatrix.x4             4         128     16     112  8-way conflict" in out
    assert "  0-7 0x0380       7!" in out


def test_writes_a_picture(capsys, tmp_path):
    assert run(["banks", "16x64", "bf16", "--pattern", "ldmatrix.x4", "--svg", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    capsys.readouterr()


def test_fix_searches(capsys):
    arguments = ["32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows", "--fix"]
    data = as_json(capsys, *arguments)
    tile = (32, 32)
    accesses = [Access.transpose(tile, 32), Access.rows(tile, 32, "st.b32")]
    assert Value.from_dict(data["extra"]["search"]) == find_layouts(accesses, tile=tile, element_bits=32)
    assert run(["banks", *arguments]) == 0
    out = capsys.readouterr().out
    assert "32-way conflict" in out
    assert "xor:5,2,5" in out


def test_fix_says_no_where_every_layout_has_conflicts(capsys):
    arguments = [
        "banks",
        "32x32",
        "f32",
        "--pattern",
        "transpose",
        "--pattern",
        "st.b128 rows",
        "--fix",
        "--max-padding",
        "16",
    ]
    assert run(arguments) == 1
    assert "layouts tried serves every pattern" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["64x64", "bf16", "--pattern", "ldmatrix.x4", "--pad", "1"],
            ("multiples of 16. Use --pad 16, 8 elements"),
        ),
        (
            ["32x32", "f32", "--pattern", "transpose", "--pad", "1"],
            ("multiples of 4. Use --pad 4, 1 element"),
        ),
    ],
)
def test_a_padding_meant_in_elements_is_told_that_it_is_bytes(arguments, said, capsys, wording):
    """It said "lane 1 of access 0 at address 129 (and 767 more)"."""
    assert run(["banks", *arguments]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    wording(f"padding: {' '.join(arguments)}", printed)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--pattern"),
        (["64x64", "--pattern", "ldmatrix.x4"], "a tile needs the type"),
        (["64x", "bf16", "--pattern", "ldmatrix.x4"], "'64x' is not a shape"),
        (["64x64", "bf16", "--pattern", "cp.async.cg"], "copy-past-l1"),
        (["64x64", "bf17", "--pattern", "ldmatrix.x4"], "unknown-name: data type bf17"),
        (["64x64", "bf16", "--pattern", "ldmatrx.x4"], "unknown-name"),
        (["64x64", "bf16", "--pattern", "ldmatrix.x4", "--swizzle", "129B"], "unknown-name: swizzle 129B"),
        (["64x64", "bf16", "--pattern", "ldmatrix.x4", "--pad", "-4"], "at least 0"),
        (["999999x999999", "bf16", "--pattern", "ldmatrix.x4", "--fix"], "address-window: "),
        (["64x64", "bf16", "--pattern", "ldmatrix.x4", "--fix", "--max-padding", "1" + "0" * 30], "argument-range: "),
        (["0x64", "bf16", "--pattern", "ldmatrix.x4"], "argument-range: "),
        (["--pattern", "ldmatrix.x4"], "pattern-tile"),
        (["--pattern", "ld.b32: lane", "--fix"], "--fix needs a tile"),
        (["--pattern", "ld.b32: __import__('os')"], "lane-expression"),
        (["--pattern", "ld.b32: " + "(" * 5000], "lane-expression"),
        (["--pattern", "ld.b99: lane"], "unknown-name: operation ld.b99"),
        (["3x5", "f32", "--pattern", "ld.b64 rows"], "tile-width"),
    ],
)
def test_what_is_not_understood_is_said_on_stderr(capsys, arguments, reason):
    assert run(["banks", *arguments]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["64", "bf16", "--pattern", "ldmatrix.x4"], "matrix-tile: 1 rows of 128 bytes"),
        (["64x64", "bf16", "--pattern", "ldmatrix.x4", "--pad", "4"], "lane-alignment"),
        (["2048x2048", "bf16", "--pattern", "ldmatrix.x4", "--fix"], "tile-size"),
        (["--pattern", "ld.b32: lane"], "lane-alignment: lane 1 at address 1"),
    ],
)
def test_what_the_hardware_cannot_do_is_answered_with_no(capsys, arguments, reason):
    assert run(["banks", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("Refused: ")
    assert reason in captured.out
    assert captured.err == ""


def test_an_unused_half_of_the_banks_is_left_out(capsys):
    for first, kept, left_out in ((0, "12  13  14  15", "16-31"), (64, "28  29  30  31", "0-15")):
        assert run(["banks", "--pattern", f"ld.b32: {first} + lane % 16 * 4"]) == 0
        shown = capsys.readouterr().out
        assert " ".join(kept.split()) in " ".join(shown.split())
        assert f"No lane wants banks {left_out}." in shown
        assert shown.count("line  bank") == 1
    assert run(["banks", "--pattern", "ld.b32: lane * 4"]) == 0
    assert "No lane wants" not in capsys.readouterr().out


def test_the_counter_is_one_line(capsys):
    assert run(["banks", "32x32", "f32", "--pattern", "transpose"]) == 0
    shown = capsys.readouterr().out
    assert "\nCounted by l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum\n" in shown
    assert "Nsight" not in shown


def test_the_cure_stands_beside_the_disease_with_both_addresses(capsys):
    assert run(["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4", "--fix"]) == 0
    said = capsys.readouterr().out
    assert "(r, c) at  base + r * 128 + c * 2\n" in said
    assert "cured at   (a = base + r * 128 + c * 2, a ^ ((a >> 3) & 0x70))\n" in said
    assert said.index("Worst instruction of ldmatrix.x4: 32") < said.index("With swizzle 128B: 4 wavefronts")


def test_where_nothing_can_help_the_bound_and_other_lanes_are_named(capsys):
    arguments = ["32x32", "f32", "--pattern", "st.b128 rows", "--pattern", "transpose"]
    assert run(["banks", *arguments, "--fix"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "16-byte stores leave a column 8" in said
    assert "ld.b32 lanes 8x4 in place" in said
    assert "ld.b32 columns (rows x pieces)" in said
    assert "swizzle 128B leaves no conflict" in said
    assert run(["banks", *arguments[:4], "--pattern", "ld.b32 lanes 8x4", "--swizzle", "128B"]) == 0
    assert "conflict" in capsys.readouterr().out
    assert run(["banks", "32x32", "f32", "--pattern", "ld.b32 lanes 5x4"]) == 2
    assert "lane-block" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        (["128x64", "bf16"], Layout((128, 64), 16, major="MN")),
        (["128x64", "bf16", "--swizzle", "128B"], Layout((128, 64), 16, atom=(64, 64), swizzle="128B", major="MN")),
        (["32x64", "bf16", "--swizzle", "128B"], Layout((32, 64), 16, padding_bytes=64, swizzle="128B", major="MN")),
    ],
)
def test_an_mn_major_tile_is_walked_along_its_contiguous_extent(capsys, options, layout):
    """--major MN counted for nothing: 128 x 64 was read as 128 rows of 64."""
    data = as_json(capsys, *options, "--major", "MN", "--pattern", "ldmatrix.x4.trans")
    access = Access.named("ldmatrix.x4.trans", layout.shape[::-1], 16)
    assert Value.from_dict(data) == tile_report([access], layout)


def test_an_mn_major_tile_is_cured_by_mn_major_layouts(capsys):
    data = as_json(capsys, "128x64", "bf16", "--major", "MN", "--pattern", "ldmatrix.x4.trans", "--fix")
    found = Value.from_dict(data["extra"]["search"])
    assert found.best.layout == Layout((128, 64), 16, atom=(64, 64), swizzle="128B", major="MN")


def test_a_tile_of_one_extent_is_one_row(capsys):
    arguments = ["f32", "--pattern", "ld.b64 rows", "--fix"]
    assert as_json(capsys, "2048", *arguments) == as_json(capsys, "1x2048", *arguments)


def test_cp_async_is_a_pattern(capsys):
    data = as_json(capsys, "64x64", "bf16", "--pattern", "cp.async", "--pattern", "cp.async.4 columns")
    tile = (64, 64)
    accesses = [Access.rows(tile, 16, "cp.async.16"), Access.columns(tile, 16, "cp.async.4")]
    assert Value.from_dict(data) == tile_report(accesses, Layout(tile, 16))
    assert run(["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4", "--pattern", "cp.async"]) == 0
    assert "cp.async.cg goes past L1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows"],
            "ld.b32 columns 4 wavefronts per access",
        ),
        (
            ["32x32", "f32", "--pattern", "transpose", "--pattern", "st.b128 rows"],
            "ld.b32 columns 4 wavefronts per access",
        ),
        (
            ["5x7", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows", "--pad", "4"],
            "hardware fits this tile.",
        ),
    ],
)
def test_fix_says_what_the_best_hardware_mode_costs_where_none_cures(capsys, arguments, said, wording):
    assert run(["banks", *arguments, "--fix"]) in (0, 1)
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    sentence = re.search(r"(Best hardware mode|No swizzle mode)[^.]*(\.b[^.]*)*\.", printed)[0]
    wording(f"hardware mode: {' '.join(arguments)}", sentence)


def test_fix_does_not_repeat_a_hardware_mode_that_cures(capsys):
    assert run(["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4", "--fix"]) == 0
    assert "Best hardware mode" not in capsys.readouterr().out


TEXT = ["--layout", "(64,64):(64,1)", "--bits", "16"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["64x64", "bf16", "--bits", "8"], "--bits is for a --layout"),
        (["64x64", "bf16", "--shape", "32x32"], "--shape is for a --layout"),
        (["64x64", "bf16", "--unit", "elements"], "--unit is for a --layout"),
        (["64x64", "bf16", "--op", "ld.b32"], "--op is the operation of --tv"),
        (["64x64", "bf16", "--max-padding", "16"], "--max-padding is for --fix"),
        ([*TEXT, "--swizzle", "128B"], "--swizzle describes a TILE"),
        ([*TEXT, "--pad", "16"], "--pad describes a TILE"),
        ([*TEXT, "--atom", "8x64"], "--atom describes a TILE"),
        ([*TEXT, "--atom-order", "row"], "--atom-order describes a TILE"),
    ],
)
def test_an_option_that_would_count_for_nothing_is_refused(capsys, arguments, said, wording):
    assert run(["banks", *arguments, "--pattern", "ldmatrix.x4"]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert said in printed
    wording(f"banks option: {' '.join(arguments)}", printed)


@pytest.mark.parametrize("option", [["--major", "MN"], ["--smem-address", "64"], ["--swizzle", "128B"]])
def test_addresses_without_a_tile_take_no_options_of_one(capsys, option):
    assert run(["banks", "--pattern", "ld.b32: lane * 4", *option]) == 2
    assert option[0] in capsys.readouterr().err
