"""The inputs of `tilescope run` that its page has too: the launch, the order of the run, and what is drawn."""

from __future__ import annotations

from tilescope.arch import ARCH
from tilescope.questions.question import Input
from tilescope.written import number, numbers

GRID = Input("grid", "--grid", "Blocks of the grid", "x, y, z.", read=numbers, shown_as="NxN")
BLOCK = Input("block", "--block", "Threads of a block", "x, y, z.", read=numbers, unsaid="the kernel's .reqntid")
CLUSTER = Input(
    "cluster", "--cluster", "Blocks of a cluster", "", read=numbers, unsaid="the kernel's .reqnctapercluster"
)
SMEM = Input("smem_bytes", "--smem", "Dynamic shared memory in bytes", read=number)
ARCHITECTURE = Input(
    "arch", "--arch", "Whose arithmetic", choices=tuple(ARCH), is_open=True, unsaid="the text's .target"
)
SEED = Input(
    "seed",
    "--seed",
    "Run blocks, warps and asynchronous work in the random order of a seed",
    read=number,
    unsaid="as late as waits allow",
)
MAX_STEPS = Input("max_steps", "--max-steps", "Instructions after which a run is stopped", read=number)
SMEM_BLOCK = Input(
    "smem_block",
    "--draw-block",
    "The block whose shared memory or state is drawn",
    read=numbers,
    shown_as="X,Y,Z",
    unsaid="0,0,0",
)
SMEM_AT = Input(
    "smem_at",
    "--at",
    "The step after which the state is drawn",
    "with --draw smem a line: right before PTX line 40 or mm.py:12 runs; 40:3 is the third time.",
    shown_as="STEP|LINE[:TIMES]",
    unsaid="the end",
)
THREAD = Input(
    "thread", "--thread", "The thread whose registers are drawn", read=number, unsaid="one that ran the step"
)
