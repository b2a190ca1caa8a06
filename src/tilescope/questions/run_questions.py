"""The question about a kernel: what does it do when it is run, without a card. `run_answers.py` has the answer."""

from __future__ import annotations

from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.launch_description import ALL, CORNERS
from tilescope.questions.question import Input, Question, flag
from tilescope.questions.run_answers import BY_LINE, LINES, SMEM_PICTURE, STATE, TIMELINE, answer_run
from tilescope.questions.run_inputs import (
    ARCHITECTURE,
    BLOCK,
    CLUSTER,
    GRID,
    MAX_STEPS,
    SEED,
    SMEM,
    SMEM_AT,
    SMEM_BLOCK,
    THREAD,
)
from tilescope.sentence import shorten
from tilescope.written import numbers


def which_blocks(said: str) -> str | tuple[int, ...]:
    """Blocks to run: all, corners, or the coordinates of one.

    >>> which_blocks("corners"), which_blocks("1,0")
    ('corners', (1, 0))
    """
    if said in (ALL, CORNERS):
        return said
    try:
        return numbers(said)
    except ValueError:
        raise ValueError(f"{shorten(said, 40)!r} names no block", "0,0 or corners or all") from None


RUN = Question(
    name="run",
    help="""Run a kernel's PTX, or a whole Triton program, without a GPU, and report what it did: results equal an H200's bytes.

    FILE is PTX, CUDA C++ (kernel.cu, or --cuda), which nvcc or NVRTC compiles first, or a kernel of Triton or Gluon
    (module.py:function, or --triton): it imports your module, which runs its top-level code, and the installed Triton
    compiles it. --launch also takes what `tilescope watch --record` wrote. Without it, kernel.launch.toml next to
    kernel.cu is taken, which --emit cuda -o kernel.cu wrote.

    A Python program (program.py, or -m MODULE) runs unchanged: its Triton and Gluon kernels run without a GPU, tensors of torch and
    its "cuda" are on the CPU, and every launch is checked. It takes the options --arch, --seed, --strict and --allow.

    \b
    Arguments of a kernel, behind FILE or --arg, in the order of the parameters:
    f16:256x192                    random numbers, the same every time
    f16:256x192:zeros              also :ones and :arange
    f16:256x192@a.npy              a file; bf16@a.npy: its shape, @a.npy: its type
    map:0,box=64x128,swizzle=128B  a tensor map over the array of argument 0
    map:f16:256x192,box=64x128     a tensor map over a new array
    ptr:0+1024                     an address in the array of argument 0
    7  0x40  1.5                   numbers
    bytes:00ff                     a struct by value
    """,
    inputs=(
        Input("kernel", file="kernel", is_required=False, shown_as="[FILE]"),
        Input(
            "module",
            "-m",
            "A Python module to run as a program, followed by its arguments",
            "pytest, for example.",
            shown_as="MODULE",
        ),
        Input(
            "program_arguments",
            "",
            "Arguments of a kernel or a program",
            is_many=True,
            is_required=False,
            shown_as="[-- ARGUMENT…]",
        ),
        Input(
            "triton",
            "--triton",
            "A kernel of Triton or Gluon",
            "its module is imported, and the installed Triton compiles it.",
            shown_as="MODULE.py:FUNCTION",
        ),
        Input(
            "signature",
            "--signature",
            "Types of its parameters",
            'such as "*fp16, i32".',
            shown_as="TYPE,…",
            unsaid="those of the arguments",
        ),
        Input("constexprs", "--constexpr", "A constant of it", is_many=True, shown_as="NAME=VALUE"),
        Input("cuda", "--cuda", "A file of CUDA C++, compiled by nvcc or NVRTC", file="input", shown_as="FILE.cu"),
        Input(
            "options",
            "--option",
            "An option of the compiler",
            "num_warps=8 of Triton, -Iinclude of nvcc.",
            is_many=True,
            shown_as="OPTION",
        ),
        GRID,
        BLOCK,
        CLUSTER,
        SMEM,
        Input("args", "--arg", "An argument of the kernel", is_many=True, shown_as="ARGUMENT"),
        Input("entry", "--entry", "The kernel, or a part of its name", unsaid="the only one"),
        ARCHITECTURE,
        SEED,
        MAX_STEPS,
        Input(
            "blocks",
            "--blocks",
            "Blocks to run",
            "several times for several.",
            read=which_blocks,
            is_many=True,
            shown_as="X,Y|corners|all",
            unsaid="all",
        ),
        Input(
            "saved",
            "--save",
            "Write the array of argument N to a file, or all that changed into a folder",
            is_many=True,
            shown_as="N=FILE|FOLDER",
        ),
        Input("launch", "--launch", "A launch file, whose values options replace", file="input", shown_as="FILE"),
        Input("template", "--template", "Print a launch file for the kernel, and do not run it", read=flag),
        Input(
            "by",
            "--by",
            "Print the cost of accesses by source line, worst first, then copies by map and operands of wgmma",
            choices=(BY_LINE,),
            is_strict=True,
        ),
        Input("all_lines", "--all-lines", "Print them for every line that ran, not only for the first 20", read=flag),
        Input("strict", "--strict", "Warnings fail too: exit status 1", read=flag),
        Input(
            "allow",
            "--allow",
            "Accept the findings of a rule, at one PTX line (12) or source line (mm.py:12) or everywhere",
            is_many=True,
            shown_as="RULE[@LINE]",
        ),
        Input("no_remedies", "--no-remedies", "Do not run it again to try fixes of an error", read=flag),
        Input(
            "advice",
            "--advice",
            "Run it again without some of its barriers, and name those that ordered nothing",
            read=flag,
        ),
        Input(
            "prove",
            "--prove",
            "Prove what the warps of the first cluster did for every order of them, or name the mistake",
            read=flag,
        ),
        Input(
            "draw",
            "--draw",
            "What the drawing shows: the lines that ran, the warps, copies and barriers over time, "
            "the shared memory of a block and who wrote it, or the state after a step",
            choices=(LINES, TIMELINE, SMEM_PICTURE, STATE),
            is_strict=True,
        ),
        SMEM_BLOCK,
        SMEM_AT,
        THREAD,
    ),
    answer=answer_run,
    functions=(Kernel.run,),
)
QUESTIONS = (RUN,)
