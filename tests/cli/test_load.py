"""`tilescope load`: what it prints, writes and refuses."""

import io
import json
import sys

import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run

MAP = ["--type", "bf16", "--dims", "64,64", "--box", "64,8", "--swizzle", "128B"]


def test_draws_the_box_and_shared_memory(capsys):
    assert run(["load", *MAP, "--coords", "0,60", "--smem-address", "0x400"]) == 0
    printed = capsys.readouterr().out
    assert "Load of a box at (0, 60) to shared address 0x400" in printed
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
    a = ts.Im2colMap("f16", (64, 8, 8, 2), (128, 1024, 8192), lower_corner=(-1, -1), upper_corner=(-1, -1),
                     channels_per_pixel=64, pixels_per_column=32)  # fmt: skip
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


def test_draws_so_many_lines(capsys):
    assert run(["load", *MAP, "--lines", "3"]) == 0
    assert "5 more lines are not drawn." in capsys.readouterr().out


REFUSED = {
    "no map": ([], "stdin is empty"),
    "a broken map": (["--type", "bf16", "--dims", "64,64", "--box", "128,8", "--swizzle", "128B"], "swizzle-span"),
    "a coordinate": ([*MAP, "--coords", "4,0"], "inner-coordinate"),
    "a shared address": ([*MAP, "--smem-address", "64"], "smem-address"),
    "too many coordinates": ([*MAP, "--coords", "0,0,0"], "coords-rank"),
    "a result without a tensor": ([*MAP, "--out", "x.npy"], "--out needs --npy"),
    "no such file": ([*MAP, "--npy", "missing.npy"], "missing.npy"),
    "no lines": ([*MAP, "--lines", "0"], "at least 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_the_reason_on_stderr(name, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    options, reason = REFUSED[name]
    assert run(["load", *options]) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_refuses_files_that_hold_no_array(tmp_path, capsys):
    (tmp_path / "text.npy").write_text("no array")
    np.savez(tmp_path / "several.npz", one=np.zeros(1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    np.save(tmp_path / "small.npy", np.zeros(16, np.uint8))
    for name, reason in {
        "text.npy": "npy-file",
        "several.npz": "npy-file",
        "objects.npy": "npy-file",
        "small.npy": "memory-extent",
    }.items():
        assert run(["load", *MAP, "--npy", str(tmp_path / name)]) == 2, name
        assert reason in capsys.readouterr().err, name
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
    assert "outside   2 of 8 rows and 16 bytes of the other 6: filled\n" in both
    assert " (box)  the part of the copy that lies outside the tensor\n" in both
    assert "outside   16 bytes of every row: filled\n" in said(8, 0)
    assert "outside   2 of 8 rows: filled\n" in said(0, -2)
    assert "outside   8 of 8 rows: filled\n" in said(64, 0)
    assert "outside " not in said(0, 0).split("tensor  ")[1]
