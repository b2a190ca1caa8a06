"""The first line of every command is the answer; --quiet prints it alone, with the fix where the answer is no."""

import json

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

# command line: exit status, and what it prints with --quiet
QUIET = [
    (["swizzle", "64B"], 0, "Swizzle 64B moves byte a to a ^ ((a >> 3) & 0x30), a pattern of 512 bytes."),
    (
        ["swizzle", "128B", "--smem-address", "0x480"],
        0,
        (
            "Swizzle 128B moves byte a to a ^ ((a >> 3) & 0x70), a pattern of 1024 bytes; a buffer at 0x480 starts on its "
            "line 1."
        ),
    ),
    (
        ["decode", "0x4000004000010040", "0x4000404000010040"],
        0,
        "2 words: 0x4000004000010040, a wgmma descriptor; 0x4000404000010040, a tcgen05 descriptor.",
    ),
    (["swizzle", "none"], 0, "Swizzle none moves nothing: every byte lies at its own address."),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--element", "37,21"],
        0,
        "Element (37, 21) lies at byte 0x12aa: line 37, chunk 2, bank 10.",
    ),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--other", "(64,64):(72,1)"],
        0,
        "The layouts differ: 4032 of 4096 elements lie elsewhere, the first (1, 0) at 0x80 and at 0x90.",
    ),
    (
        ["draw", "(64,64):(64,1)", "--bits", "16", "--other", "(64,64):(64,1)"],
        0,
        "The layouts are the same: all 4096 elements lie at equal addresses.",
    ),
    (["draw", "((4,8),(2,2)):((32,1),(16,8))"], 0, "32 threads hold 4 values each, at offsets 0 to 127."),
    (
        ["check", *MAP],
        0,
        "Accepted: tiled map of 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B; a copy brings 8192 bytes.",
    ),
    (
        ["check", *WIDE_MAP],
        1,
        (
            "Refused: box[0] = 128 elements x 2 bytes = 256 bytes; swizzle 128B takes a row of at most 128 bytes.\n"
            "Use box[0] <= 64 and one box per span."
        ),
    ),
    (
        ["check", *WIDE_MAP, "--fix"],
        0,
        (
            "Accepted with 1 change: box: (128, 64) → (64, 64): tiled map of 4096 x 4096 bfloat16, box 64 x 64, swizzle "
            "128B."
        ),
    ),
    (
        ["check", "maps.jsonl"],
        1,
        (
            "2 maps, 1 refused: line 2.\n"
            "Line 2: strides_bytes[0] = 120 bytes; strides are multiples of 16 bytes. Pad dimension 0 so that the next one "
            "steps 128 bytes."
        ),
    ),
    (
        ["encode", *MAP],
        0,
        "128 bytes, as the driver writes them on sm_90: tiled map of 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B.",
    ),
    (
        ["decode", "0x4000004000010040"],
        0,
        "0x4000004000010040 is a wgmma descriptor: start 0x400, leading 16 bytes, stride 1024 bytes, 128B.",
    ),
    (
        ["decode", "0x000003f0001ffffe"],
        0,
        (
            "0x3f0001ffffe is an mbarrier: phase 0 (parity 1 passes, parity 0 waits): 0 of 1 arrival and 32768 bytes are "
            "missing."
        ),
    ),
    (
        ["decode", "00" * 128],
        1,
        (
            "The 128 bytes are no tensor map: box[0] = 1 elements x 8 bits = 1 bytes; a row of the box is a multiple of 16 bytes; "
            "and 1 more reason.\nUse box[0] = 16."
        ),
    ),
    (["diff", ONE, OTHER], 1, "The maps differ in 1 argument: strides_bytes[0] is 128 and 256."),
    (["diff", ONE, ONE], 0, "The maps are the same: tiled map of 64 x 64 bfloat16, box 64 x 64."),
    (["load", *MAP, "--element", "37,21"], 0, "Element (37, 21) lies at byte 0x12fa: line 37, chunk 7, bank 30."),
    (
        ["load", *MAP, "--at", "0x12fa"],
        0,
        "Byte 0x12fa (line 37, chunk 7, bank 30) holds element (37, 21) of the box, coordinates (21, 37).",
    ),
    (
        ["load", *MAP, "--coords", "0,4090"],
        0,
        (
            "The load moves 64 rows of 128 bytes to shared address 0x0; the mbarrier expects 8192 bytes; 58 rows lie outside "
            "the tensor."
        ),
    ),
    (
        ["load", *MAP, "--coords", "4,0"],
        1,
        (
            "The chip answers with error 715, illegal instruction: coords[0] = 4 elements = 8 bytes; a multiple of 8 elements "
            "(16 bytes).\nUse 0 or 8."
        ),
    ),
    (
        ["identify", "dump.bin", "tile.npy"],
        0,
        "The tile lies at byte 0x0 of the dump: swizzle 128B, rows 128 bytes apart; 8192 of 8192 bytes fit.",
    ),
    (
        ["identify", "noise.bin", "tile.npy"],
        1,
        (
            "The tile is not in the dump: even the best layout leaves 8176 of 8192 bytes wrong.\n"
            "Check that the dump is of the same stage, and that the tile has the right type and values."
        ),
    ),
    (
        ["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1"],
        0,
        (
            "Forward needs an im2col map with lower corner (-1, -1) and upper corner (-1, -1): 1764 copies of 128 pixels x 64 "
            "channels, 16384 bytes each."
        ),
    ),
    (
        ["conv", "8x56x56x60", "128x3x3", "bf16"],
        1,
        (
            "No such map: strides_bytes[0] = 120 bytes; strides are multiples of 16 bytes; and 2 more reasons.\n"
            "Pad dimension 0 so that the next one steps 128 bytes."
        ),
    ),
    (
        ["banks", "64x64", "bf16", "--pattern", "ldmatrix.x4"],
        0,
        "ldmatrix.x4: 8-way conflict, 512 wavefronts where 64 would do.",
    ),
    (
        ["banks", "64x64", "bf16", "--swizzle", "128B", "--pattern", "ldmatrix.x4"],
        0,
        "ldmatrix.x4: no conflict, 64 wavefronts.",
    ),
    (
        ["banks", "32x32", "f32", "--pattern", "transpose", "--pattern", "st.b32 rows", "--fix"],
        0,
        (
            "ld.b32 columns: 32-way conflict, 1024 wavefronts where 32 would do; st.b32 rows: no conflict, 32 wavefronts. "
            "Without a conflict: swizzle xor:5,2,5."
        ),
    ),
    (
        ["banks", "32x32", "bf16", "--pattern", "transpose", "--pattern", "st.b128 rows", "--fix"],
        1,
        (
            "ld.b16 columns: 16-way conflict, 512 wavefronts where 32 would do; st.b128 rows: no conflict, 16 wavefronts. "
            "No layout of 34 tried is without a conflict; swizzle 64B has the least, 96 wavefronts too many.\n"
            "No layout can: 16-byte stores leave a column 8 banks, so ld.b16 columns takes at least 128 wavefronts, 32 "
            "without conflicts. With the lanes dealt otherwise, ld.b16 lanes 8x4 in place of ld.b16 columns (rows x pieces), "
            "swizzle 64B leaves no conflict."
        ),
    ),
    (
        ["mma", "layout", "128x64", "bf16", "--element", "37,21"],
        0,
        "Element (37, 21) lies at byte 0x12fa: line 37, chunk 7, bank 30.",
    ),
    (
        ["mma", "layout", "128x64", "bf16"],
        0,
        (
            "128 x 64 elements of 16 bits take 16384 bytes from 0x0: element (mn, k) lies at (a = base + mn * 128 + k * 2, a ^ "
            "((a >> 3) & 0x70))."
        ),
    ),
    (
        ["mma", "fragment", "mma.m16n8k16", "--operand", "A", "--type", "bf16", "--element", "3,4"],
        0,
        "Thread 14 holds element (3, 4): value 0, register 0, bits 0 to 15.",
    ),
    (
        ["mma", "fragment", "ldmatrix.x4", "--lane", "5"],
        0,
        (
            "Thread 5 holds 8 elements in 4 registers, as (matrix, row, column): (0, 1, 2), (0, 1, 3), (1, 1, 2), (1, 1, 3) and "
            "4 more."
        ),
    ),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--element", "37,5"],
        0,
        "Element (m 37, n 5) lies in lane 37, column 5: address 0x00250005, which warp 1 of four reaches.",
    ),
    (
        ["mma", "tmem", "--m", "128", "--n", "64", "--element", "37,40", "--ld", "32x32b.x32"],
        0,
        "Element (m 37, n 40) comes to warp 1, lane 5, register 8, by tcgen05.ld.32x32b.x32 at 0x00200020.",
    ),
    (
        ["mma", "tmem", "--budget", "D:64x128,D:64x128,A:64x64"],
        0,
        "3 parts fit: 160 of 512 columns, 1 of them in free lanes of another's columns; ask tcgen05.alloc for 256.",
    ),
    (
        ["mma", "tmem", "--budget", "D:128x256*2,A:128x64"],
        1,
        (
            "3 parts do not fit: 544 columns, tensor memory has 512.\n"
            "Use a narrower accumulator, one stage fewer of it, or keep A in shared memory."
        ),
    ),
    (
        ["mma", "scales", "128x256", "nvfp4", "--block", "37,5"],
        0,
        (
            "The scale of row 37, block 5 (k 80 to 95) is byte 597 (0x255) in memory; in tensor memory it lies in lanes 5, 37, "
            "69 and 101, column 5, byte 1."
        ),
    ),
    (
        ["mma", "scales", "128x256", "nvfp4"],
        0,
        "128 x 16 scale factors of ue4m3, one for 16 elements of k, take 2048 bytes: 1 x 4 atoms of 128 x 4.",
    ),
    (
        ["mma", "instruction", "f16", "128x256", "--a-type", "bf16"],
        0,
        "0x08400490 is the descriptor: kind f16: bfloat16 x bfloat16 -> float32, m128 n256 k16, A K-major, B K-major.",
    ),
    (
        ["mma", "descriptors", "64x64", "bf16", "--major", "MN", "--operand", "B"],
        0,
        (
            "wgmma.m64n64k16 reads B with 4 descriptors, the first 0x4000004002000000: leading 8192, stride 1024 bytes, K step "
            "+2048 bytes, imm-trans-b = 1 (tnspB: Major::MN)."
        ),
    ),
    (
        ["mma", "descriptors", "128x64", "bf16", "--for", "tcgen05"],
        0,
        (
            "tcgen05.mma.kind::f16, m128 k16 reads A with 4 descriptors, the first 0x4000404000010000: leading 16, stride 1024 "
            "bytes, K step +32 bytes, transpose A = 0 (bit 15 of the instruction descriptor)."
        ),
    ),
    (
        ["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x400"],
        0,
        "The descriptor reads what was copied: all 64 x 16 elements (mn x k) agree.",
    ),
    (
        ["mma", "check", "0x4000004000010040", *MAP, "--smem-address", "0x800"],
        1,
        (
            "The descriptor reads something else (start-address): 1024 of 1024 elements differ, the first (mn 0, k 0) written at "
            "0x800, read at 0x400.\nUse 0x4000004000010080: start 0x800, leading 16 bytes, stride 1024 bytes, 128B."
        ),
    ),
    (
        ["convert", ATOM, "--to", "mosaic"],
        0,
        (
            "In mosaic: (TileTransform((8, 64)), SwizzleTransform(128)) (all 512 addresses equal; beside it: element_bits = 16, "
            "shape = (8, 64))."
        ),
    ),
    (
        ["convert", "Layout((16, 128), 16, padding_bytes=16)", "--to", "mosaic"],
        1,
        "mosaic has no text for this layout: 16 bytes of padding a row; tiles lie without gaps.\nUse padding_bytes = 0.",
    ),
    (
        ["plan", "128x64", "bf16"],
        0,
        "128 x 64 bfloat16: swizzle 128B, 1 copy of box 64 x 128, 16384 bytes a stage; predicted 4559 GB/s (H200).",
    ),
    (
        ["plan", "64x63", "bf16"],
        1,
        (
            "No plan for 64 x 63 bf16: k = 63 elements of 16 bits = 126 contiguous bytes; copies move multiples of 16 bytes.\n"
            "Use k = 64."
        ),
    ),
    (
        ["gemm", "4096x4096x4096", "bf16"],
        0,
        (
            "4096 x 4096 x 4096 bfloat16: tile 128 x 256 x 64, 4 stages of 49152 bytes, 512 tiles of C in 4 rounds of 132 SMs; "
            "176.0 us predicted."
        ),
    ),
    (
        ["gemm", "64x100x64", "bf16"],
        1,
        (
            "No plan for GEMM 64 x 100 x 64 bf16: n = 100: rows of C are 200 bytes of bfloat16; TMA takes rows that are multiples "
            "of 8 elements, 16 bytes.\nUse n = 104, with rows of C padded to 208 bytes."
        ),
    ),
    (["pipeline", "128x64", "bf16", "--stages", "2"], 0, "Proven for every order: 89 actions, no hang, no race."),
    (
        ["pipeline", "hang.toml"],
        1,
        "Hang: full, phase 0 expects 8192 bytes, the copies bring 4096: the phase never ends.\nExpect 4096 bytes.",
    ),
    (["sweep", "--tile", "64x64,128x64", "--type", "bf16"], 0, "2 of 2 problems have a plan."),
    (
        ["sweep", "--tile", "64x63", "--type", "bf16"],
        1,
        (
            "0 of 1 problems have a plan; 64 x 63 bf16 has none: k = 63 elements of 16 bits = 126 contiguous bytes; copies move "
            "multiples of 16 bytes.\nUse k = 64."
        ),
    ),
    (
        ["explain", "base", "offset"],
        0,
        "base offset: The line of the swizzle pattern on which a buffer starts: (shared address / 128) modulo the period.",
    ),
    (["explain", "box-range"], 0, "box-range: Every box extent is 1 to 256 elements."),
    (
        ["explain", "illegal instruction (715)"],
        0,
        (
            "illegal instruction (715): look first at coordinate-16-bytes. The innermost coordinate times the element size is not "
            "a multiple of 16 bytes.\n"
            "Start boxes at multiples of 16 bytes in the innermost dimension, or pad the tensor in front."
        ),
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


@pytest.mark.parametrize(("command", "status", "printed"), QUIET, ids=IDS)
def test_quiet_prints_the_answer_and_the_fix_alone(command, status, printed, capsys):
    assert run([*command, "-q"]) == status
    assert capsys.readouterr() == (f"{printed}\n", "")


@pytest.mark.parametrize(("command", "status", "printed"), QUIET, ids=IDS)
def test_the_first_line_and_json_say_the_same(command, status, printed, capsys):
    sentence, *advice = printed.split("\n")
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
    assert capsys.readouterr().out == "Proven for every order: 89 actions, no hang, no race.\n"
    assert run(["check", *WIDE_MAP, "--fix", "--json"]) == 0
    (tmp_path / "fixed.json").write_text(capsys.readouterr().out)
    assert run(["check", "fixed.json", "-q"]) == 0
    assert capsys.readouterr().out.startswith("Accepted: tiled map of 4096 x 4096 bfloat16, box 64 x 64")


def test_a_floor_without_the_rate_of_the_tensor_cores_says_so(capsys):
    """Of a B200 the rate of tf32 is not known: a floor by memory alone is below that of bf16, which takes half as long."""
    assert run(["gemm", "4096x4096x4096", "tf32", "--arch", "sm_100", "--tile", "128x256x32", "-q"]) == 0
    said = capsys.readouterr().out
    assert "at least 25.2 us for memory alone: TFLOP/s of tfloat32 are not known for the B200." in said
    assert run(["gemm", "4096x4096x4096", "bf16", "--arch", "sm_100", "--tile", "128x256x64", "-q"]) == 0
    assert "memory alone" not in capsys.readouterr().out
