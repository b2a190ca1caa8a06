"""`tilescope load`: what it prints, writes and refuses."""

import io
import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run

MAP = ["--type", "bf16", "--dims", "64,64", "--box", "64,8", "--swizzle", "128B"]


def test_draws_the_box_and_shared_memory(capsys):
    assert run(["load", *MAP, "--coords", "0,60", "--smem-address", "0x400"]) == 0
    printed = capsys.readouterr().out
    assert "Load of a box at (0" in printed
    assert "60) to shared address 0x400" in printed
    assert "bank   0    4    8" in printed
    assert "0x0480        1.1  1.0  1.3  1.2" in printed
    assert "outside   4 of 8 rows: filled" in printed


def test_json_is_the_trace(capsys):
    assert run(["load", *MAP, "--coords", "0,8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert ts.Value.from_dict(data) == ts.trace(ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B"), (0, 8))
    assert data["transaction_bytes"] == 1024


def test_writes_the_drawing(tmp_path, capsys):
    assert run(["load", *MAP, "--svg", str(tmp_path / "copy.svg")]) == 0
    assert (tmp_path / "copy.svg").read_text("utf-8").startswith("<svg")
    capsys.readouterr()


def test_takes_the_map_from_json(tmp_path, capsys):
    a = ts.Im2colMap(
        "f16",
        (64, 8, 8, 2),
        (128, 1024, 8192),
        lower_corner=(-1, -1),
        upper_corner=(-1, -1),
        channels_per_pixel=64,
        pixels_per_column=32,
    )
    (tmp_path / "map.json").write_text(json.dumps(a.to_dict()))
    assert run(["load", str(tmp_path / "map.json"), "--coords", "0,-1,-1,0", "--offsets", "1,1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["offsets"] == [1, 1]


def test_takes_json_coordinates_and_a_shared_address_together(tmp_path, capsys):
    a = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    (tmp_path / "map.json").write_text(json.dumps(a.to_dict()))
    place = ["--coords", "-8,60", "--smem-address", "0x480", "--json"]
    assert run(["load", "--from-json", str(tmp_path / "map.json"), *place]) == 0
    from_json = json.loads(capsys.readouterr().out)
    assert run(["load", *MAP, *place]) == 0
    assert from_json == json.loads(capsys.readouterr().out)
    assert ts.Value.from_dict(from_json) == ts.trace(a, (-8, 60), smem_address=0x480)

    np.save(tmp_path / "matrix.npy", np.arange(64 * 64, dtype=np.uint16))  # its own shape says nothing of the map
    files = ["--from-json", str(tmp_path / "map.json"), "--npy", str(tmp_path / "matrix.npy")]
    assert run(["load", *files, "--coords", "0,8", "--out", str(tmp_path / "smem.npy")]) == 0
    wanted = ts.load(a, np.load(tmp_path / "matrix.npy"), (0, 8))
    assert np.array_equal(np.load(tmp_path / "smem.npy"), wanted)
    capsys.readouterr()


@pytest.mark.parametrize("operation", ["load", "gather4"])
def test_carries_the_copy_out_on_a_file_and_writes_the_result(operation, tmp_path, capsys):
    matrix = np.random.default_rng(0).integers(0, 1 << 16, (128, 64), dtype=np.uint16)
    np.save(tmp_path / "matrix.npy", matrix)
    options = ["--npy", str(tmp_path / "matrix.npy"), "--out", str(tmp_path / "smem.npy"), "--operation", operation]
    if operation == "load":
        options += ["--box", "64,8", "--swizzle", "128B", "--coords", "0,16", "--smem-address", "128"]
        a = ts.TensorMap.from_array(matrix, (8, 64), swizzle="128B", address=0)
        wanted = ts.load(a, matrix, (0, 16), smem_address=128)
    else:
        options += ["--box", "32,1", "--arch", "sm_100", "--coords", "32,5,3,9,127"]
        a = ts.TensorMap.from_array(matrix, (1, 32), arch="sm_100", address=0)
        wanted = ts.gather4(a, matrix, 32, (5, 3, 9, 127))
    assert run(["load", *options]) == 0
    assert np.array_equal(np.load(tmp_path / "smem.npy"), wanted)
    assert f"smem.npy: {len(wanted)} bytes" in capsys.readouterr().err


def test_dims_beside_a_file_describe_its_bytes(tmp_path, capsys):
    np.save(tmp_path / "bytes.npy", np.arange(4096, dtype=np.uint8))
    options = ["--npy", str(tmp_path / "bytes.npy"), "--out", str(tmp_path / "smem.npy")]
    assert run(["load", *options, "--type", "f16", "--dims", "64,32", "--box", "8,2", "--coords", "8,1"]) == 0
    assert np.load(tmp_path / "smem.npy").tolist() == [*range(144, 160), *[value % 256 for value in range(272, 288)]]
    capsys.readouterr()


NARROW = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "ue8m0": ml_dtypes.float8_e8m0fnu}


@pytest.mark.parametrize("name", NARROW)
def test_the_type_names_the_elements_that_numpy_saves_as_bare_bytes(name, tmp_path, capsys):
    array = np.random.default_rng(1).standard_normal((128, 64)).astype(NARROW[name])
    np.save(tmp_path / "a.npy", array)
    assert np.load(tmp_path / "a.npy").dtype.kind == "V"
    whole = ["load", "--npy", str(tmp_path / "a.npy"), "--box", "32,8", "--coords", "32,16"]
    a = ts.TensorMap.from_array(array, (8, 32), address=0)
    for options in (["--type", name], ["--type", f"u{8 * array.itemsize}"], ["--type", name, "--dims", "64,128"]):
        assert run([*whole, *options, "--out", str(tmp_path / "smem.npy")]) == 0, capsys.readouterr().err
        assert np.array_equal(np.load(tmp_path / "smem.npy"), ts.load(a, array, (32, 16)))
    capsys.readouterr()
    assert run([*whole, "--type", name, "--json"]) == 0
    assert ts.Value.from_dict(json.loads(capsys.readouterr().out)).tensor_map == a

    wider = f"u{16 * array.itemsize}"
    for options, found, fix in (
        ([], f"a.npy has elements of |V{array.itemsize}", "such as --type"),
        (["--type", wider], f"--type {wider} has {16 * array.itemsize} bits", f"such as --type u{8 * array.itemsize}."),
        (["--type", "e2m1"], "--type e2m1 has 4 bits", f"such as --type u{8 * array.itemsize}."),
    ):
        assert run([*whole, *options]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: npy-type: ")
        assert found in said
        assert fix in said


def test_an_array_that_numpy_saves_and_cannot_read_is_told_how_to_be_saved(tmp_path, capsys):
    array = np.ones((8, 64), ml_dtypes.float8_e5m2)
    np.save(tmp_path / "a.npy", array)
    load = ["load", "--npy", str(tmp_path / "a.npy"), "--type", "e5m2", "--box", "64,8"]
    assert run(load) == 2
    assert 'np.save(…, array.view("u1")), and give --type e5m2.' in capsys.readouterr().err
    np.save(tmp_path / "a.npy", array.view("u1"))
    assert run(load) == 0
    capsys.readouterr()


def test_a_type_of_the_same_width_names_any_elements(tmp_path, capsys):
    np.save(tmp_path / "pairs.npy", np.zeros((8, 64), "i4,f4"))
    np.save(tmp_path / "complex.npy", np.zeros((8, 64), "c8"))
    np.save(tmp_path / "odd.npy", np.zeros((8, 64), "V3"))
    np.save(tmp_path / "big.npy", np.zeros((8, 64), ">f4"))
    for name in ("pairs", "complex"):
        assert run(["load", "--npy", str(tmp_path / f"{name}.npy"), "--type", "u64", "--box", "16,8"]) == 0
        assert "tensor    uint64, dims (64, 8)" in capsys.readouterr().out
    for name, fix in (("odd", 'np.save(…, array.view("u1"))'), ("big", 'Use array.astype("<f4")')):
        for options in ([], ["--type", "f32"], ["--type", "f32", "--dims", "64,8"]):
            assert run(["load", "--npy", str(tmp_path / f"{name}.npy"), "--box", "16,8", *options]) == 2
            assert fix in capsys.readouterr().err


def test_a_box_beside_an_array_has_an_entry_for_each_axis_innermost_first(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.zeros((8, 64), np.float16))
    assert run(["load", "--npy", str(tmp_path / "a.npy"), "--box", "64"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: array-box:")
    assert "--box 64 has 1 entry" in said
    assert "innermost first" in said
    assert "own order" not in said


@pytest.mark.parametrize("option", ["--out", "--svg"])
def test_refuses_to_write_over_the_array_that_it_reads(option, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(8 * 64, dtype=np.float16).reshape(8, 64))
    (tmp_path / "link.npy").symlink_to("a.npy")
    before = (tmp_path / "a.npy").read_bytes()
    for one, other in (("a.npy", "a.npy"), ("link.npy", "./a.npy"), ("a.npy", str(tmp_path / "link.npy"))):
        assert run(["load", "--npy", one, "--box", "64,8", option, other]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert f"--npy {one} and {option} {Path(other)}" in shown.err
    assert (tmp_path / "a.npy").read_bytes() == before


def test_out_writes_to_stdout_and_nothing_beside_it(tmp_path, capsysbinary, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(8 * 64, dtype=np.float16).reshape(8, 64))
    assert run(["load", "--npy", "a.npy", "--box", "64,8", "--out", "-", "--svg", "copy.svg"]) == 0
    shown = capsysbinary.readouterr()
    assert np.array_equal(np.load(io.BytesIO(shown.out)), np.load("a.npy").view(np.uint8).reshape(-1))
    assert shown.err == b"wrote copy.svg\n"
    for options in (["--json"], ["--svg", "-"]):
        assert run(["load", "--npy", "a.npy", "--box", "64,8", "--out", "-", *options]) == 2
        shown = capsysbinary.readouterr()
        assert shown.out == b""
        assert b"both write to stdout" in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "copy.svg"]


def test_a_store_beside_an_array_is_drawn_and_has_no_result(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.zeros((8, 64), np.float16))
    store = ["load", "--npy", str(tmp_path / "a.npy"), "--box", "64,8", "--operation", "store"]
    assert run(store) == 0
    assert "Store of a box" in capsys.readouterr().out
    assert run([*store, "--out", str(tmp_path / "smem.npy")]) == 2
    shown_text = capsys.readouterr().err
    assert "--out needs a load" in shown_text
    assert "--npy FILE" in shown_text


def test_draws_so_many_lines(capsys):
    assert run(["load", *MAP, "--lines", "3"]) == 0
    assert "Drawn: 3 of 8 lines." in capsys.readouterr().out


REFUSED = {
    "no map": ([], "stdin is empty"),
    "too many coordinates": ([*MAP, "--coords", "0,0,0"], "coords-rank"),
    "a result without a tensor": ([*MAP, "--out", "x.npy"], "--out needs a load"),
    "no such file": ([*MAP, "--npy", "missing.npy"], "missing.npy"),
    "no lines": ([*MAP, "--lines", "0"], "0 is not in the range x>=1"),
}


@pytest.mark.parametrize(
    ("options", "rule", "code"),
    [(["--coords", "4,0"], "inner-coordinate", 715), (["--smem-address", "64"], "smem-address", 716)],
)
def test_a_copy_that_faults_is_answered_with_no(options, rule, code, capsys):
    assert run(["load", *MAP, *options]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(f"The chip answers with error {code}, ")
    assert f"\nerror: {rule}: " in shown.out
    assert shown.err == ""
    assert run(["load", *MAP, *options, "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert (plain["code"], [violation["rule"] for violation in plain["violations"]]) == (code, [rule])
    assert plain["answer"] == shown.out.splitlines()[0]
    assert plain["advice"] == plain["violations"][0]["fix"]


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_the_reason_on_stderr(name, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    options, reason = REFUSED[name]
    assert run(["load", *options]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_the_driver_refuses_is_answered_with_no(capsys):
    assert run(["load", "--type", "bf16", "--dims", "64,64", "--box", "128,8", "--swizzle", "128B"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("Refused: box[0] = 128 elements x 2 bytes = 256 bytes;")
    assert "swizzle 128B takes a row" in shown.out
    assert "\nerror: swizzle-span: " in shown.out
    assert shown.err == ""


def test_refuses_files_that_hold_no_array(tmp_path, capsys):
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "several.npz", one=np.zeros(1))
    (tmp_path / "broken.npz").write_bytes((tmp_path / "several.npz").read_bytes()[:40])
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "small.npy", np.zeros(16, np.uint8))
    for name, reason in {
        "text.npy": "npy-file",
        "several.npz": "npy-file",
        "broken.npz": "npy-file",
        "objects.npy": "npy-file",
        "small.npy": "memory-extent",
    }.items():
        assert run(["load", *MAP, "--npy", str(tmp_path / name)]) == 2, name
        said = capsys.readouterr().err
        assert reason in said, name
        assert ("pickle" in said.lower() or "object" in said.lower()) == (name == "objects.npy"), name
    assert run(["load", "--swizzle", "128B", "--npy", str(tmp_path / "small.npy")]) == 2
    assert "--npy needs --box" in capsys.readouterr().err


def test_single_options_replace_single_values_of_an_array(tmp_path, capsys):
    path = str(tmp_path / "a.npy")
    np.save(path, np.arange(8 * 128, dtype=np.float16).reshape(8, 128))
    for options, dims, strides in (
        (["--dims", "100,8", "--box", "64,4"], [100, 8], [256]),  # as many dims: the array's own strides
        (["--dims", "100", "--box", "64"], [100], []),
        (["--dims", "32,4,8", "--box", "8,4,1"], [32, 4, 8], [64, 256]),  # others: dense
        (["--strides", "512", "--box", "64,4"], [128, 8], [512]),
        (["--dims", "100,8", "--strides", "512", "--box", "64,2"], [100, 8], [512]),
    ):
        assert run(["load", "--npy", path, *options, "--json"]) == 0, options
        found = json.loads(capsys.readouterr().out)["tensor_map"]
        assert (found["data_type"], found["dims"], found["strides_bytes"]) == ("float16", dims, strides)
    assert run(["load", "--npy", path, "--dims", "100", "--box", "64,4"]) == 2
    shown = capsys.readouterr().err
    assert "no data_type" not in shown
    assert "2 entries for rank 1" in shown


def test_takes_the_map_from_a_descriptor_or_a_pipe(tmp_path, capsys, monkeypatch):
    blob = ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").encode()
    (tmp_path / "map.bin").write_bytes(blob)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(blob), encoding="utf-8"))
    shown = []
    for source in (str(tmp_path / "map.bin"), blob.hex(), "-"):
        assert run(["load", source, "--coords", "0,8"]) == 0
        shown.append(capsys.readouterr().out)
    assert run(["load", *MAP, "--coords", "0,8"]) == 0
    assert shown == [capsys.readouterr().out] * 3


def test_says_what_lies_outside_in_rows_and_in_bytes(capsys):
    def said(*coords, box="64,8"):
        assert (
            run(["load", "--type", "bf16", "--dims", "64,64", "--box", box, f"--coords={','.join(map(str, coords))}"])
            == 0
        )
        return capsys.readouterr().out

    both = said(-8, -2)
    assert "outside   2 of 8 rows and 16 bytes" in both
    assert "other 6: filled" in both
    assert "copy outside" in both
    assert "outside   16 bytes of every row" in said(8, 0)
    assert "outside   2 of 8 rows: filled\n" in said(0, -2)
    assert "outside   8 of 8 rows: filled\n" in said(64, 0)
    assert "outside " not in said(0, 0).split("tensor  ")[1]


@pytest.mark.parametrize(
    ("asked", "marked"),
    [(["--element", "37,21"], "37.2*"), (["--at", "0x1280"], "37.5*"), (["--element", "3,0"], "3.0*")],
)
def test_one_place_is_drawn_with_the_eight_lines_around_it(asked, marked, capsys):
    assert run(["load", "--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B", *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 35
    (drawn,) = [line for line in lines if marked in line and line.startswith("0x")]
    assert len([line for line in lines if line.startswith("0x")]) == 8
    assert drawn.count("*") == 1


def test_two_places_far_apart_are_both_drawn(capsys):
    place = ["--element", "3,0", "--at", "0x1280"]
    assert run(["load", "--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B", *place]) == 0
    shown = capsys.readouterr().out
    assert " 3.0*" in shown
    assert " 37.5*" in shown
    assert "Drawn: 16 of 64 lines." in shown


def test_more_lines_are_drawn_around_a_place_where_they_are_asked_for(capsys):
    place = ["--element", "37,21", "--lines", "16"]
    assert run(["load", "--type", "bf16", "--dims", "4096,4096", "--box", "64,64", "--swizzle", "128B", *place]) == 0
    assert "Drawn: lines 0x1000 to 0x1780 of 64." in capsys.readouterr().out
