"""What a refused command advises can be done: its options exist, its commands run, and what it offers is taken."""

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

import tilescope as ts
from tilescope.cli import COMMANDS, run
from tilescope.cli import tilescope as program

# Command lines that are refused, or whose answer is no: several for each command.
REFUSED = """
plan
plan 128 bf16
plan 128x64 nope
plan 0x64 bf16
plan 128x64 bf16 --swizzle 128
plan 128x64 bf16 --stages 99
plan 128x64 bf16 --consumer nope
plan 128x64 bf16 --arch sm_120 --consumer wgmma
plan 128x64 bf16 --emit nope
plan 128x64 bf16 --copy ld.global --emit triton
plan 12x64 bf16
plan 128x7 bf16
plan 128x64 bf16 --json --svg -
gemm 4096x4096 bf16
gemm 4096x4096x4096 bf16 --tile 128x128x64 --stages 50
gemm 4096x4096x4097 bf16
sweep
sweep nosuchfile.txt
pipeline 128x64
pipeline 128x64 bf16 --stages 99
pipeline 128x64 256x64 bf16 --cta-group 2
run
run nosuch.ptx
run double.ptx
run double.ptx --grid 1 --arg f17:8 --arg map:3,box=8 --arg seven --arg f32:8:zeroes
run double.ptx --grid 1 --block 32
run double.ptx --grid 1 --block 32 --arg 7 --arg f32:8:zeros
run double.ptx --grid 1x1x1x1 --block 32 --arg f32:32 --arg 32
run double.ptx --grid 1 --block 1025 --arg f32:32 --arg 32
run double.ptx --grid 1 --block 32 --arg f32:32 --arg 32 --entry nope
run double.ptx --grid 1 --block 32 --arg f32:32 --arg 32 --blocks here
run double.ptx --grid 1 --block 32 --arg f32:32 --arg 32 --blocks 4,4
run double.ptx --grid 1 --block 32 --arg f32:32 --arg 32 --save 3=x.npy
run double.ptx --grid 1 --block 32 --arg @nosuch.npy --arg 32
run double.ptx --grid 1 --block 32 --arg f32:16 --arg 32
run --launch double.ptx
check nosuch.json
check --type bf16 --dims 64,64
check --type bf16 --dims 64,64 --box 64,64 --swizzle 128
check --type bf16 --dims 4100,1000 --strides 8200 --box 64,64
check --type bf16 --dims 64,64 --box 64,64 --lower 1
check --type bf16 --dims 64,64 --box 64,64 --wide W
check --type bf16 --dims 64,64 --box 64,64 --arch sm_80
check 1234
encode --type bf16 --dims 64,64 --box 512,64
encode --type bf16 --dims 64,64 --box 64,64 --arch sm_100
encode 0xZZZ
decode 0xZZZ
decode zzz
decode nosuch.bin
decode 1 2 3 4 5 6 7 8 9
decode 0x12345678901234567890
decode 0x4000004000010040 --rows 0
diff a.json b.json
diff 00 11
load nosuch.json
load --type bf16 --dims 64,64 --box 64,64 --coords 4,0
load --type bf16 --dims 64,64 --box 64,64 --coords 0
load --type bf16 --dims 64,64 --box 64,64 --coords 0,0 --out x
load --type bf16 --dims 64,64 --box 64,1 --coords 0,1,2,3,4 --operation scatter4 --arch sm_120
identify a b
conv 64x56x56x63 3x3 bf16
swizzle 128
banks 64x64 bf16
banks 64x64 bf16 --pattern ldmatrix.x3
mma nope
mma layout 63x64 bf16
mma fragment mma.m16n8k17
mma fragment mma.m16n8k16
mma tmem --m 100
mma tmem --m 100 --n 64
mma tmem --m 128 --n 640
mma tmem --m 256 --n 64
mma tmem --m 32 --n 64
mma tmem --m 128 --n 64 --k 64
mma tmem --m 128 --n 64 --metadata
mma scales 128x256 nope
mma instruction f16 128x256
mma instruction f16 100x256 --a-type bf16
mma descriptors 60x64 bf16
mma check zz
mma check 0x4000004000010040 nosuch.json
mma check 0x4000004000010040 --smem-address 0x400 --type bf16 --dims 64,64 --box 64,64
draw "(8,8):(1"
convert "(8,8):(1,8)" --to triton
serve --export nosuch
verify --nope
bench nope
explain zzzzqqqq
explain error 12345
chek
""".strip().splitlines()


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A kernel, in a folder of its own."""
    shutil.copy(Path(__file__).parent / "double.ptx", tmp_path)
    monkeypatch.chdir(tmp_path)


def options_of(words):
    """The options of the command that the words name."""
    command, context = program, click.Context(program)
    for word in words:
        if not isinstance(command, click.Group) or (child := command.get_command(context, word)) is None:
            break
        command = child
    return {
        "--help",
        *(option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)),
    }


def said_by(line, capsys):
    """What a refused command line says, on one line."""
    assert run(shlex.split(line)) in (1, 2), line
    shown = capsys.readouterr()
    return " ".join((shown.out + shown.err).split())


def test_the_list_has_every_command_that_can_be_refused_here():
    assert {line.split()[0] for line in REFUSED} - {"chek"} == set(COMMANDS) - {"watch"}  # watch takes any words


@pytest.mark.parametrize("line", REFUSED)
def test_options_and_commands_of_a_refusal_exist(line, capsys):
    said, words = said_by(line, capsys), shlex.split(line)
    commands = re.findall(r"`tilescope ([^`]*)`", said)
    advised = re.findall(r"(?<![\w\[-])--[a-z][a-z0-9-]*\b(?!-)", re.sub(r"`[^`]*`|No such option '[^']*'", "", said))
    assert [option for option in advised if option not in options_of(words)] == []
    for command in map(shlex.split, commands):
        assert command[0] in COMMANDS, said
        assert [word for word in command if word.startswith("--") and word not in options_of(command)] == []


@pytest.mark.parametrize(
    ("line", "advice", "followed"),
    [
        ("mma tmem --m 100", "Use m 128.", "mma tmem --m 128 --n 64"),
        ("mma tmem --m 100 --n 64", "Use m 128.", "mma tmem --m 128 --n 64"),
        ("mma tmem --m 100 --k 32", "Use m 128.", "mma tmem --m 128 --k 32"),
        ("mma tmem --m 100 --n 64 --cta-group 2", "Use m 128.", "mma tmem --m 128 --n 64 --cta-group 2"),
        ("mma tmem --m 256 --n 64", "Use m 256 with --cta-group 2.", "mma tmem --m 256 --n 64 --cta-group 2"),
        ("mma tmem --m 32 --n 64", "Use m 32 with --ws.", "mma tmem --m 32 --n 64 --ws"),
        ("mma tmem --m 40 --n 64 --ws", "Use m 32.", "mma tmem --m 32 --n 64 --ws"),
        (
            "mma tmem --m 128 --n 64 --metadata --type f16",
            "--k K in place of --n",
            "mma tmem --m 128 --k 32 --metadata --type f16",
        ),
        ("swizzle 128", "Did you mean 128B?", "swizzle 128B"),
        (
            "check --type bf16 --dims 64,64 --box 64,64 --wide W",
            "Leave box out",
            "check --type bf16 --dims 64,64 --box 64,64",
        ),
        (
            "check --type bf16 --dims 64,64 --box 64,64 --channels 64",
            "leave out channels_per_pixel.",
            "check --type bf16 --dims 64,64 --box 64,64",
        ),
        (
            "load --type bf16 --dims 64,64 --box 64,1 --coords 0,1,2,3,4 --operation scatter4 --arch sm_120",
            "Plan for sm_100",
            "load --type bf16 --dims 64,64 --box 64,1 --coords 0,1,2,3,4 --operation scatter4 --arch sm_100",
        ),
    ],
)
def test_following_the_advice_helps(line, advice, followed, capsys):
    assert advice in said_by(line, capsys)
    assert run(shlex.split(followed)) == 0


@pytest.mark.parametrize(
    ("swizzle", "offered"),
    [(128, "128B"), (64, "64B"), (32, "32B"), (96, "96B"), (0, "none"), (3, "128B"), (2, "64B"), ("128", "128B")],
)
def test_a_swizzle_by_number_is_offered_the_mode_that_it_means(swizzle, offered):
    with pytest.raises(ts.TensorMapError) as refused:
        ts.TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle=swizzle)
    violation = refused.value.violations[0]
    assert violation.change == {"swizzle": offered}
    assert f"Did you mean {offered}" in violation.fix


@pytest.mark.parametrize("promotion", [64, 128, 256])
def test_other_names_with_one_number_are_offered_for_it(promotion):
    with pytest.raises(ts.TensorMapError, match=f"Did you mean {promotion}B"):
        ts.TensorMap("bf16", (64, 64), (128,), (64, 64), l2_promotion=promotion)


@pytest.mark.parametrize("number", [True, 7, 129, -1, 10**5000], ids=["bool", "7", "129", "-1", "huge"])
def test_a_number_that_means_no_mode_is_offered_none_in_particular(number):
    with pytest.raises(ts.TensorMapError) as refused:
        ts.TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle=number)
    assert refused.value.violations[0].change is None
