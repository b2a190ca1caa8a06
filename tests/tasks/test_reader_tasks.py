"""Twenty questions of readers, each answered by at most two commands that the page they would open names.

A task has the reader's question, the page where the reader looks, the commands, and the parts of the answer that are the answer.
Expected words are those of the answer when it was written; where a comment stands beside them, the number was worked out by hand.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Task(NamedTuple):
    question: str
    page: str  # below docs/
    commands: tuple[str, ...]
    answer: tuple[str, ...]
    status: int = 0  # of the last command


TASKS = [
    Task(
        "The encode call returns CUDA_ERROR_INVALID_VALUE. Where do I begin?",
        "symptoms.md",
        ('tilescope explain "CUDA_ERROR_INVALID_VALUE from cuTensorMapEncodeTiled" -q',),
        ("look first at stride-16-bytes", "base-16-bytes"),
    ),
    Task(
        "My rows have 4100 bf16, 8200 bytes. What stride does the driver accept?",
        "how-to/a-refused-map.md",
        ("tilescope check --type bf16 --dims 4096,1000 --strides 8200 --box 64,64 --fix -q",),
        ("(8200,) → (8208,)",),  # the next multiple of 16
    ),
    Task(
        "What is SBO, and where in the descriptor is it?",
        "glossary.md",
        ("tilescope explain SBO -q",),
        ("Stride byte offset", "bits 32-45", "units of 16 bytes"),  # PTX ISA, matrix descriptor
    ),
    Task(
        "Which formula does the 64B swizzle have?",
        "layouts.md",
        ("tilescope swizzle 64B -q",),
        ("a ^ ((a >> 3) & 0x30)", "512 bytes"),  # four chunks, period of four lines
    ),
    Task(
        "At which byte is element (3, 10) of my 64 x 64 bf16 box?",
        "copies.md",
        ("tilescope load --type bf16 --dims 4096,4096 --box 64,64 --swizzle 128B --element 3,10 -q",),
        ("byte 0x1a4", "line 3, chunk 2"),  # row 3, chunk 1 ^ 3 = 2: 3 * 128 + 2 * 16 + 4
    ),
    Task(
        "My transpose reads columns of a 32 x 32 float tile. What does that cost?",
        "how-to/bank-conflicts.md",
        ('tilescope banks 32x32 f32 --pattern "ld.b32 columns" --fix -q',),
        ("32-way conflict", "1024 wavefronts where 32 would do", "Without a conflict: swizzle"),
    ),
    Task(
        "Which elements of A does lane 5 hold for mma.m16n8k16?",
        "tensor-cores.md",
        ("tilescope mma fragment mma.m16n8k16 --operand A --type bf16 --lane 5 -q",),
        ("(1, 2), (1, 3), (9, 2), (9, 3)", "4 registers"),  # PTX ISA: row = lane / 4, column = lane % 4 * 2
    ),
    Task(
        "How many bytes are the scale factors of a 128 x 256 nvfp4 operand?",
        "how-to/fp4-and-scales.md",
        ("tilescope mma scales 128x256 nvfp4 -q",),
        ("128 x 16 scale factors", "2048 bytes"),  # one byte for 16 elements
    ),
    Task(
        "Does an accumulator of 128 x 256 fit into tensor memory twice?",
        "tensor-memory.md",
        ("tilescope mma tmem --m 128 --n 256 -q", "tilescope mma tmem --budget D:128x256*2 -q"),
        ("512 of 512 columns",),  # 2 x 256
    ),
    Task(
        "A debugger shows 0x4000004000010040. What is it?",
        "how-to/raw-words.md",
        ("tilescope decode 0x4000004000010040 -q",),
        ("wgmma descriptor", "start 0x400", "stride 1024 bytes", "128B"),
    ),
    Task(
        "What does Triton call GMMA::Layout_MN_SW64_Atom<half_t>?",
        "for-cutlass-users.md",
        ('tilescope convert "GMMA::Layout_MN_SW64_Atom<half_t>" --to triton -q',),
        ("swizzlingByteWidth = 64, transposed = true", "all 256 addresses equal"),
    ),
    Task(
        "I want 20 stages of a 128 x 64 bf16 tile. How many are possible?",
        "planning.md",
        ("tilescope plan 128x64 bf16 --stages 20 -q",),
        ("232448 bytes of shared memory", "Use --stages 14."),  # 14 x 16384 = 229376; 15 would be 245760
        1,
    ),
    Task(
        "What would a small GEMM of 512 choose, and how long does it take on an H200?",
        "planning.md",
        ("tilescope gemm 512x512x512 f16 -q",),
        ("64 tiles of C in 1 round of 132 SMs", "us predicted"),  # 512 / 64 by 512 / 64
    ),
    Task(
        "cudaDeviceSynchronize returns 719. What now?",
        "symptoms.md",
        ("tilescope explain 719 -q",),
        ("unspecified launch failure", "barrier-arrivals"),
    ),
    Task(
        "My kernel waits at an mbarrier and never returns.",
        "how-to/a-hang.md",
        ('tilescope explain "kernel hangs in mbarrier wait" -q',),
        ("look first at parity", "barrier-bytes"),
    ),
    Task(
        "Corners of the im2col map of a 3 x 3 convolution with padding 1?",
        "how-to/im2col.md",
        ("tilescope conv 8x56x56x64 128x3x3 bf16 --pad 1 -q",),
        ("lower corner (-1, -1) and upper corner (-1, -1)",),
    ),
    Task(
        "Two consumers and four stages: are my barrier counts right?",
        "pipelines.md",
        ("tilescope pipeline 128x64 256x64 bf16 --stages 4 --consumers 2 -q",),
        ("Proven for every order", "no hang, no race"),
    ),
    Task(
        "A run reports run-proxy-fence. What does the rule demand?",
        "running.md",
        ("tilescope explain run-proxy-fence -q",),
        ("fence.proxy.async separates a write by threads",),
    ),
    Task(
        "My CUDA kernel gives the right numbers. Has it a race all the same?",
        "for-cuda-users.md",
        ("tilescope run reverse.ptx --grid 1 --block 64 --arg f32:64:arange -q",),
        ("run-race", "reverse.cu:7", "tried, and this finding is gone"),
        1,
    ),
    Task(
        "Which plans do two tiles get, in a table for a script?",
        "planning.md",
        ("tilescope sweep --tile 64x64,128x64 --type bf16 -q",),
        ("2 of 2 problems have a plan",),
    ),
]


@pytest.mark.parametrize("task", TASKS, ids=[task.question for task in TASKS])
def test_a_reader_gets_the_answer(task, desk):
    (desk.folder / "reverse.ptx").write_text((ROOT / "examples" / "reverse.ptx").read_text("utf-8"))
    said = [desk.type(command) for command in task.commands][-1]
    assert said.status == task.status
    assert said.err == ""
    missing = [part for part in task.answer if part not in said.text]
    assert missing == [], said.text


@pytest.mark.parametrize("task", TASKS, ids=[task.question for task in TASKS])
def test_the_page_names_the_command(task):
    text = (ROOT / "docs" / task.page).read_text("utf-8")
    for command in task.commands:
        words = re.match(r"tilescope ((?:mma )?\w+)", command)[1]
        assert f"tilescope {words}" in text, (task.page, words)


def test_there_are_twenty_and_none_takes_more_than_two_commands():
    assert len(TASKS) == 20
    assert max(len(task.commands) for task in TASKS) <= 2
