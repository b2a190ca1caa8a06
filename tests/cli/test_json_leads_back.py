"""What a command prints with --json is a value: `Value.from_dict` takes it back, whatever was added beside it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tilescope.cli import COMMANDS, mma_group, run
from tilescope.swizzle import Swizzle
from tilescope.value import EXTRA, Value, own_data

MAP = ["--type", "bf16", "--dims", "256,256", "--box", "64,64", "--swizzle", "128B"]
IM2COL = [
    "--type",
    "f16",
    "--dims",
    "64,14,14,8",
    "--lower=-1,-1",
    "--upper=-1,-1",
    "--channels",
    "64",
    "--pixels",
    "64",
]
ATOM = "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"
TWO_MAPS = '{"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [64, 64]}'
LAUNCH = ["--grid", "2", "--block", "32", "--arg", "f32:40", "--arg", "40"]
LOG = "\n".join([TWO_MAPS, TWO_MAPS.replace("[64, 64]}", "[64, 300]}"), TWO_MAPS])
CAPTURE = str(Path(__file__).parent.parent / "golden" / "verify_h200.npz")
NEED_A_CARD = {"bench"}  # tests/gpu_layer tries it with a stand-in

# command line: the kind that it prints, and what stands beside it
PRINTED = [
    (["plan", "128x64", "bf16"], "plan_report", ["best"]),
    (["plan", "128x64", "bf16", "--fold", "--why"], "plan_report", ["best"]),
    (["plan", "128x64", "bf16", "--swizzle", "96B"], "plan_report", []),
    (["gemm", "4096x4096x4096", "bf16"], "gemm_plan", ["smem_offsets", "tensor_maps", "descriptors"]),
    (["gemm", "512x512x512", "bf16", "--arch", "sm_80"], "gemm_plan", ["smem_offsets", "tensor_maps", "descriptors"]),
    (["plan", "64x63", "bf16"], "unplanned", []),
    (["gemm", "64x100x64", "bf16"], "unplanned", []),
    (["plan", "gemm", "--set", "STAGES=3"], "kernel_plan", ["proof"]),
    (["plan", "--template", "gemm"], "kernel_description", []),
    (["pipeline", "128x64", "bf16", "--stages", "2"], "simulation", []),
    (["pipeline", "128x64", "128x64", "bf16", "--cluster", "2x1", "--steps", "2"], "simulation", []),
    (["pipeline", "128x64", "bf16", "--direction", "store", "--describe"], "pipeline", []),
    (["run", "double.ptx", *LAUNCH], "kernel_run", ["seconds", "exact", "outputs", "lines"]),
    (
        ["run", "double.ptx", *LAUNCH, "--allow", "run-race"],
        "kernel_run",
        ["seconds", "exact", "outputs", "lines", "accepted", "unmatched"],
    ),
    (["run", "double.ptx", "--template"], "launch_description", []),
    (["check", *MAP], "map_report", []),
    (["check", "--type", "bf16", "--dims", "256,256", "--box", "128,64", "--swizzle", "128B"], "map_report", []),
    (["check", LOG], "map_log", []),
    (["check", LOG, "--fix"], "map_log", ["fixed"]),
    (["encode", *MAP], "inspection", ["hex", "words"]),
    (["encode", *IM2COL], "inspection", ["hex", "words"]),
    (["decode", 256 * "f"], "inspection", []),
    (["decode", "0x4000004000010040"], "word_readings", []),
    (["decode", "0x4000004000010040", "--addresses"], "word_readings", ["addresses"]),
    (["decode", "0x4000004000010040", "--addresses", "--rows", "8", "--major", "MN"], "word_readings", ["addresses"]),
    (["diff", TWO_MAPS, TWO_MAPS.replace("128]", "256]")], "tensor_map_diff", []),
    (["diff", LOG, TWO_MAPS], "map_log_diff", []),
    (["decode", LOG], "decoded_log", []),
    (["decode", "0x4000004000010040", "0x4000004000010080"], "decoded_log", []),
    (["load", *MAP, "--coords", "224,0"], "trace", []),
    (["load", *IM2COL, "--coords", "0,-1,-1,0"], "trace", []),
    (["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1"], "convolution", ["encode"]),
    (["identify", "dump.bin", "tile.npy"], "identification", []),
    (["sweep", "--tile", "64x64,128x64", "--type", "bf16"], "sweep", []),
    (["swizzle", "128B"], "swizzle", []),
    (["swizzle", "xor:2,4,3", "--address", "0x480"], "swizzle", ["address", "base_offset"]),
    (["banks", "--pattern", "ld.b32: lane * 33 * 4"], "tile_report", []),
    (["banks", "32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows"], "tile_report", []),
    (["banks", "32x32", "f32", "--pattern", "transpose", "--fix"], "tile_report", ["search"]),
    (["banks", "--layout", "(32,32):(32,1)", "--bits", "32", "--tv", "(32,32):(1,32)"], "tile_report", []),
    (["draw", "((32,4),4):((16,4),1)", "--bits", "8"], "layout", []),
    (["draw", "((4,8),(2,2)):((32,1),(16,8))"], "modes", []),
    (["draw", "(64,64):(64,1)", "--bits", "16", "--other", "(64,64):(72,1)"], "layout", ["other", "first_difference"]),
    (["mma", "layout", "128x64", "bf16"], "layout", []),
    (["mma", "layout", "128x64", "bf16", "--element", "9,8"], "layout", ["element", "address"]),
    (["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16"], "fragment", ["inverse"]),
    (["mma", "fragment", "ldmatrix.x4", "--lane", "3"], "fragment", ["inverse", "lane", "holds", "matrices"]),
    (["mma", "fragment", "tcgen05.ld.32x32b.x8"], "fragment", ["inverse"]),
    (["mma", "tmem", "--m", "128", "--n", "256"], "tmem_layout", []),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--cta-group", "2", "--element", "37,5"],
        "tmem_layout",
        ["element", "place"],
    ),
    (["mma", "tmem", "--m", "64", "--k", "64", "--type", "bf16"], "tmem_layout", []),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--element", "37,40", "--ld", "32x32b.x32"],
        "tmem_layout",
        ["element", "place", "loaded"],
    ),
    (["mma", "tmem", "--budget", "D:128x256*2,A:128x64"], "tmem_budget", ["alloc_columns"]),
    (["mma", "scales", "128x256", "nvfp4"], "scale_layout", []),
    (["mma", "scales", "200x256", "mxfp8", "--element", "37,5"], "scale_layout", ["element", "block", "offset"]),
    (["mma", "scales", "200x256", "mxfp8", "--block", "37,5"], "scale_layout", ["row", "block", "offset"]),
    (["decode", "0x00600025"], "word_readings", []),
    (["mma", "instruction", "f16", "128x256", "--a-type", "bf16"], "instruction_descriptor", ["word", "forms"]),
    (["mma", "descriptors", "64x64", "bf16"], "wgmma_loop", ["descriptors", "explanation", "transpose", "findings"]),
    (["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x400"], "agreement", []),
    (["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x800"], "agreement", []),
    (["convert", ATOM, "--to", "triton"], "conversion", []),
    (["convert", "Layout((60, 60), 16, padding_bytes=8)", "--to", "triton"], "no_equivalent", []),
    (["verify", "--replay", CAPTURE], "verification", []),
    (["verify", "--environment"], "environment", []),
    (["explain"], "topic_index", []),
    (["explain", "base", "offset"], "topic", []),
    (["explain", "bf16"], "topic", []),
    (["explain", "lower_corner[i]"], "topic", []),
    (["explain", "box-range"], "rule", []),
]


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A kernel, a tile, and a dump in which it lies swizzled."""
    shutil.copy(Path(__file__).parent / "double.ptx", tmp_path)
    tile = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    np.save(tmp_path / "tile.npy", tile)
    (tmp_path / "dump.bin").write_bytes(Swizzle.named("128B").swizzle(tile.tobytes()))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("arguments", "kind", "beside"), PRINTED, ids=lambda given: " ".join(given)[:60])
def test_what_a_command_prints_leads_back_to_its_value(arguments, kind, beside, capsys):
    assert run([*arguments, "--json"]) in (0, 1)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["kind"], list(printed.get(EXTRA, ()))) == (kind, beside)
    found = Value.from_dict(printed)
    assert type(found) is Value._kinds[kind]
    assert printed["answer"].endswith((".", "?", ")")), printed["answer"]
    assert "\n" not in printed["answer"]
    assert found.to_dict() == own_data(printed)
    assert Value.from_dict(found.to_dict()) == found


def test_every_command_is_among_them():
    others = {
        "watch",
        "serve",
    }  # their JSON goes to stderr, beside a program (tests/watch), or to a browser (tests/web)
    assert {arguments[0] for arguments, _, _ in PRINTED} | NEED_A_CARD == set(COMMANDS) - others
    assert {arguments[1] for arguments, _, _ in PRINTED if arguments[0] == "mma"} == set(mma_group().commands)
