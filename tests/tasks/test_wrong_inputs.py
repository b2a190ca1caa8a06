"""Sixty command lines as people mistype them: no traceback, the exit status of the manual, and what to do instead."""

import os
import signal
import subprocess
import sys

import click
import numpy as np
import pytest

NOT_UNDERSTOOD = 2
CALL = (
    "cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box, es, "
    "CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, "
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"
)
# A command line, its exit status, and what it has to say.
WRONG = [
    # names
    ("plann 128x64 bf16", 2, "Did you mean plan?"),
    ("plan 128x64 bfloat", 2, "Did you mean bfloat16?"),
    ("plan 128x64 fp8", 2, "e4m3, e5m2"),
    ("plan 128x64 bf16 --swizle 128B", 2, "'--swizzle'?"),
    ("plan 128x64 bf16 --swizzle 128", 2, "Did you mean 128B?"),
    ("plan 128x64 bf16 --swizzle SWIZZLE_128B", 2, "Did you mean 128B?"),
    ("plan 128x64 bf16 --card H300", 2, "Did you mean H200?"),
    ("swizzle 256B", 2, "Did you mean 128B?"),
    ("banks 64x64 bf16 --pattern ldmatrx.x4", 2, "Did you mean ldmatrix.x4?"),
    ("mma descritors 64x128 bf16", 2, "Did you mean descriptors?"),
    ("mma fragment mma.m16n8k17 --operand A --type bf16", 2, "Use mma.m16n8k16."),
    ("mma fragment mma.m16n8k16 --operand E --type bf16", 2, "known: A, B, C, D"),
    ("mma scales 128x256 nvfp8", 2, "Did you mean nvfp4?"),
    ("pipeline --template pingpong", 2, "Did you mean ping-pong?"),
    ('convert "(8,8):(8,1)" --to tritn', 2, "Did you mean triton?"),
    ("explain swizle", 1, 'is it "swizzle"?'),
    ("explain 99999", 1, "runtime has that number"),
    ("run double.ptx --grid 1 --block 32 --arg f31:64", 2, "Did you mean f32?"),
    # missing values
    ("plan", 2, "name a TILE and its TYPE such as 128x64 bf16"),
    ("plan 128x64", 2, "name a TILE and its TYPE such as 128x64 bf16"),
    ("plan 128x64 bf16 --swizzle", 2, "requires an argument"),
    ("gemm 4096x4096x4096", 2, "Missing argument 'TYPE'"),
    ("check --type bf16 --dims 4096,1000", 2, "no box"),
    ("check --dims 4096,1000 --box 64,64", 2, "no data_type"),
    ("banks 64x64 bf16", 2, "say what is accessed: --pattern"),
    ("banks 64x64 --pattern ldmatrix.x4", 2, "such as 64x64 bf16"),
    ("diff map.bin", 2, "Missing argument 'OTHER'"),
    ("mma tmem", 2, "Give --m M with --n N"),
    ("sweep", 2, "--tile 64x64,128x64 --type bf16"),
    ("watch", 2, "Missing argument 'COMMAND...'"),
    ("run double.ptx", 2, "Add --grid 4"),
    ("run double.ptx --grid 1 --block 32", 2, "double has 1 parameter: a."),
    # wrong order, shape, number, unit
    ("plan bf61 128x64", 2, "'bf61' is not a tile such as"),
    ("plan 128x64x32 bf16", 2, "has 3 extents; write 2"),
    ("gemm 4096x4096 bf16", 2, "has 2 extents; write 3"),
    ("gemm 4kx4kx4k bf16", 2, "write 4096x4096x4096"),
    ("plan 1.5x64 bf16", 2, "is not a shape"),
    ("plan -128x64 bf16", 2, "'-128x64' is below 0"),
    ("plan 0x64 bf16", 2, "tile[0] = 0; 1 to 1048576"),
    ("plan 99999999999999999999x64 bf16", 2, "too large"),
    ("plan 128x64 bf16 --stages four", 2, "'four' is not a number"),
    ("plan 128x64 bf16 --stages -1", 2, "Use 1."),
    ("check --type bf16 --dims 4096,1000 --box 64,64 --strides 8KB", 2, "'8KB' is not a number"),
    ("check --type bf16 --dims 4096,-1000 --box 64,64", 1, "dims[1] = -1000; 1 to 2^32 elements"),
    ("check --type bf16 --dims 4096,1000 --box 64", 1, "box has 1 entry for rank 2"),
    ("load --type bf16 --dims 64,64 --box 64,64 --element 64,0", 2, "Use a row from 0 to 63"),
    ("load --type bf16 --dims 64,64 --box 64,64 --element 5", 2, "write two, such as 5,8"),
    ("load --type bf16 --dims 64,64 --box 64,64 --smem-address 3", 1, "a multiple of 128 bytes"),
    ("mma fragment mma.m16n8k16 --operand A --type bf16 --lane 32", 2, "0 to 31"),
    ('banks --pattern "ld.b32: lane *"', 2, "Use 'lane * 16', for example"),
    ('convert "(8,8):(8,1"  --to triton', 2, 'expected "," or ")"'),
    ("draw hello", 2, '"hello", with which no notation'),
    ("conv 8x56x56x64 128x3x3 bf16 --pad 1,1,1", 1, "a tuple of 2"),
    ("serve --port abc", 2, "'abc' is not a valid"),
    ("decode -1", 2, "'-1' is below 0"),
    # files
    ("check nosuch.json", 2, "no such file: nosuch.json"),
    ("check empty.txt", 2, "empty.txt is empty"),
    (f"check '{CALL}'", 2, "`cuuint64_t dims[] = {64, 64};` to the text."),
    ("check words.txt", 2, "a text without a number"),
    ("check noise.bin", 2, "a descriptor is 128 bytes"),
    ("check folder", 2, "folder is a directory"),
    ("pipeline noise.bin", 2, "bytes that are not UTF-8"),
    ("pipeline words.txt", 2, "JSON or TOML"),
    ("run noise.bin --grid 1", 2, "cuobjdump --dump-ptx"),
    ("run words.txt --grid 1", 2, "`hello world`"),
    ("run empty.txt --grid 1", 2, "PTX text begins"),
    ("identify noise.bin nosuch.npy", 2, "there is no file 'nosuch.npy'"),
    ("plan 128x64 bf16 --svg nowhere/plan.svg", 2, "there is no directory 'nowhere'"),
    ("plan 128x64 bf16 --svg folder", 2, "'folder' is a directory"),
]
DOUBLE = """\
.version 8.0 .target sm_90 .address_size 64
.visible .entry double(.param .u64 a) { ret; }
"""


@pytest.fixture
def files(desk):
    (desk.folder / "folder").mkdir()
    (desk.folder / "empty.txt").touch()
    desk.write("words.txt", "hello world\n")
    desk.write("double.ptx", DOUBLE)
    (desk.folder / "noise.bin").write_bytes(np.random.default_rng(1).bytes(4096))
    return desk


@pytest.mark.parametrize(("line", "status", "words"), WRONG, ids=[line for line, _, _ in WRONG])
def test_a_wrong_line_is_told_what_to_write(line, status, words, files):
    said = files.type(f"tilescope {line}")
    assert said.status == status
    assert words in said.text
    assert "Traceback" not in said.text
    if status == NOT_UNDERSTOOD:
        assert said.out == ""
    else:
        assert said.err == ""


def test_there_are_sixty():
    assert len(WRONG) >= 60


def test_a_file_that_may_not_be_read_is_named(files, monkeypatch):
    def forbidden(name, *_):
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(click, "open_file", forbidden)  # whoever runs this may be allowed everything
    said = files.type("tilescope check words.txt")
    assert said.status == NOT_UNDERSTOOD
    assert said.err == "error: words.txt: Permission denied.\n"


@pytest.mark.slow
def test_a_reader_that_leaves_and_ctrl_c_are_no_errors(tmp_path):
    command = [sys.executable, "-m", "tilescope"]
    for words in (["explain"], ["load", "--type", "bf16", "--dims", "64,64", "--box", "64,64", "--json"]):
        with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            process.stdout.close()
            assert "Traceback" not in process.stderr.read()
            assert process.wait() in (0, 141)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heeding = [
        "env",
        "--default-signal=INT",
        *command,
    ]  # shells let background jobs ignore Ctrl-C, and so would their children
    with subprocess.Popen([*heeding, "check", str(pipe)], stderr=subprocess.PIPE, text=True) as process:
        with pipe.open("w"):  # opens once the command reads
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        assert process.stderr.read() == ""
