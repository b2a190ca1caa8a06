"""Fifteen tasks as somebody has them who is new here: `tilescope` alone leads to the command."""

import re

import pytest

from tilescope.cli import COMMAND_GROUPS, COMMANDS, mma_group, run

# What somebody wants: the words that they look for in the list of commands, and the command that the line names.
TASKS = [
    ("cuTensorMapEncodeTiled returns CUDA_ERROR_INVALID_VALUE", ["INVALID_VALUE", "refused"], "check"),
    ("what does error 715 mean", ["error"], "explain"),
    ("what is a base offset", ["word means"], "explain"),
    ("my kernel waits forever in try_wait", ["barriers hang"], "pipeline"),
    ("shared memory has bank conflicts", ["Bank conflicts"], "banks"),
    ("which swizzle and box do I take for a 128 x 64 tile", ["Swizzle, box", "tile"], "plan"),
    ("how many stages for a GEMM", ["stages", "GEMM"], "gemm"),
    ("where is element (37, 21) after the TMA load", ["TMA copy puts each element"], "load"),
    ("what does this descriptor word say", ["descriptor word"], "decode"),
    ("my shared-memory dump is scrambled", ["dump"], "identify"),
    ("write a CuTe layout for Triton", ["CuTe, Triton"], "convert"),
    ("the im2col map of a convolution", ["im2col"], "conv"),
    ("in what do my two tensor maps differ", ["two tensor maps differ"], "diff"),
    ("which tensor maps does my program make", ["Run a program"], "watch"),
    ("does my GPU really do that", ["GPU here does what"], "verify"),
]
TASKS_OF_TENSOR_CORES = [
    ("LBO and SBO of a wgmma descriptor", "LBO, SBO", "descriptors"),
    (
        "which register holds an accumulator's element",
        "thread holds which element",
        "fragment",
    ),
    ("do my accumulators fit into tensor memory", "what fits", "tmem"),
    ("where does a scale factor of nvfp4 lie", "nvfp4", "scales"),
]


@pytest.mark.parametrize("arguments", [[], ["--help"]], ids=["alone", "--help"])
@pytest.mark.parametrize(("task", "words", "command"), TASKS, ids=[task for task, _, _ in TASKS])
def test_the_list_of_commands_leads_to_the_command(task, words, command, arguments, capsys):
    assert run(arguments) == 0
    listed = capsys.readouterr().out
    (line,) = re.findall(rf"^  {command} .*", listed, re.MULTILINE)
    assert [word for word in words if word not in line] == [], task
    assert listed.count(words[0]) == 1  # no other line seems to be the one


@pytest.mark.parametrize(("task", "words", "command"), TASKS_OF_TENSOR_CORES)
def test_the_commands_of_tensor_cores_are_found_below_mma(task, words, command, capsys):
    assert run(["mma"]) == 0
    (line,) = re.findall(rf"^  {command} .*", capsys.readouterr().out, re.MULTILINE)
    assert words in line, task
    assert command in mma_group().commands


def test_every_command_stands_in_one_group_on_one_line(capsys):
    assert sum(map(len, COMMAND_GROUPS.values())) == len(COMMANDS)
    assert run([]) == 0
    listed = capsys.readouterr().out
    for title in COMMAND_GROUPS:
        assert f"\n{title}:\n" in listed
    assert listed.index('tilescope explain "my kernel hangs"') < listed.index("Options:")
