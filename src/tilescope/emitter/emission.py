"""`emit`: a plan as a program or a text, by target.

    cuda, python         a whole program that fills the matrix, runs the kernel and checks every element
    header               of a GEMM: the kernel, and a function that launches it for any number of rows
    ptx, cute, triton    the text of one tile: its copies, its layout, and what reads it; `ptx_facts` and its neighbours

>>> from tilescope.planner import plan
>>> emit(plan((64, 64), "bf16").best, "cute").count("GMMA::Layout_K_SW128_Atom<Element>")
1
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal, get_args

from tilescope.emitter.attention_program import attention_facts, describe_attention
from tilescope.emitter.cute_facts import cute_facts
from tilescope.emitter.gemm_facts import GemmProgram
from tilescope.emitter.gemm_program import gemm_program
from tilescope.emitter.gluon_facts import gluon_facts
from tilescope.emitter.kernel_program import kernel_source, kernel_target
from tilescope.emitter.ptx_facts import ptx_facts
from tilescope.emitter.source_template import EMIT, Facts, SourceText, render
from tilescope.emitter.tile_program import TileProgram, tile_program
from tilescope.errors import RuleError, Violation, argument_type
from tilescope.kernel_plan.planned_kernel import KernelPlan
from tilescope.planner.gemm_batch import ONE
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_scales import SCALED_MMA
from tilescope.planner.plans import Plan
from tilescope.reading import known_name

Target = Literal["cuda", "ptx", "cute", "triton", "python", "gluon", "header"]
ALIASES: dict[str, Target] = {"gluon": "triton"}  # Triton's language for layouts, in which its text is written
TARGETS: tuple[Target, ...] = tuple(name for name in get_args(Target) if name not in ALIASES)
GEMM_TARGETS: tuple[Target, ...] = ("cuda", "python", "header")  # what a GEMM is written as


KERNEL_NOT_SHOWN = EMIT.worded(
    argument="target",
    found="{target} of a kernel",
    limit="a whole kernel is written as CUDA alone",
    fix="Use cuda.",
)
GEMM_NOT_SHOWN = EMIT.worded(
    argument="target",
    found="{target} of a GEMM",
    limit="{target} shows one tile",
    fix="Use {known:, }; or emit one tile: tilescope plan {tile:x} {data_type} --arch {arch} --emit {target}.",
)
TILE_HEADER = EMIT.worded(
    argument="target",
    found="header of a tile",
    limit="a header launches a whole GEMM",
    fix="Use {known:, }; or plan a GEMM: tilescope gemm 4096x4096x4096 bf16 --emit header.",
)
FORM_NOT_SHOWN = EMIT.worded(
    argument="target",
    found="python of a GEMM with {form}",
    limit="epilogues, batches and experts are written as CUDA C++",
    fix="Use cuda or header.",
)
HEADER_WITHOUT_TMA = EMIT.worded(
    argument="target",
    found="header of a GEMM by {consumer}",
    limit="a header launches kernels of wgmma",
    fix="Use cuda or python.",
)


def emit(plan: Plan | GemmPlan | KernelPlan, target: Target) -> str:
    """The plan as source text.

    "cuda" is a complete program that checks itself. "python" is the same as a script, compiled by NVRTC. "header" is a GEMM to
    call from other programs. "gluon" is an alias of "triton".
    For a kernel plan, "cuda" is the kernel with empty functions for its arithmetic, or a complete program if its file names
    one.

    >>> from tilescope.planner import plan
    >>> source = emit(plan((128, 64), "bf16", stages=4).best, "cuda")
    >>> [line for line in source.splitlines() if "STAGES =" in line]
    ['constexpr int STAGES = 4;']
    """
    return SourceText(emit_file(plan, target, ""))


def emit_file(plan: Plan | GemmPlan | KernelPlan, target: Target, file: str) -> str:
    """The source text for a file of this name, which the build command contains; "": tile.cu or gemm.cu.

    >>> from tilescope.planner import plan
    >>> source = emit_file(plan((128, 64), "bf16").best, "cuda", "loads.cu")
    >>> [line for line in source.splitlines() if "nvcc" in line]
    ['//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o loads loads.cu && ./loads']
    """
    target_name = known_name("target", target, get_args(Target))
    target = ALIASES.get(target_name, target_name)
    if isinstance(plan, KernelPlan):
        return _kernel_text(plan, target, file)
    if isinstance(plan, GemmPlan):
        if target == "header":
            return _gemm_header(plan)
        program = _gemm_program(plan, target)
    elif isinstance(plan, Plan):
        if target == "header":
            raise TILE_HEADER.error(known=tuple(name for name in TARGETS if name != "header"))
        tile = tile_program(plan)
        if target not in ("cuda", "python"):
            return _tile_text(plan, tile, target)
        program = _tile_program(tile)
    else:
        raise RuleError([argument_type("plan", plan, "a plan", 'Use ts.plan((64, 64), "bf16").best, for example.')])
    build = ""  # a script builds its kernel itself
    if target == "cuda":
        named = file if file.isprintable() else ""  # a comment holds one line
        build = _build_line(named or f"{program.script}.cu", program.target)
    source = render(f"{program.kernel}.cu.jinja", program.facts | {"build": build, "family": program.family})
    if target == "cuda":
        return source
    numpy_sample = re.sub(r"(0x[0-9A-F]+|\b\d+)", r"np.uint64(\1)", program.sample)
    return render(
        f"{program.script}.py.jinja",
        program.facts | {"kernel": device_half(source), "numpy_sample": numpy_sample},
    )


@dataclass(frozen=True, slots=True)
class _Program:
    """A whole program: its templates and their facts."""

    kernel: str  # NAME.cu.jinja
    script: str  # NAME.py.jinja
    target: str  # the architecture that it is compiled for
    sample: str  # bits of test data, from a hash h
    facts: Facts
    family: str = ""  # a target whose code the other chips of the family run too; "": there is none


def _kernel_text(plan: KernelPlan, target: Target, file: str) -> str:
    """A kernel as CUDA: a whole program, or one with gaps, which has no main and is compiled to a cubin."""
    if target != "cuda":
        raise KERNEL_NOT_SHOWN.error(target=target)
    named = file if file.isprintable() and file else f"{plan.kernel.program or 'kernel'}.cu"
    architecture = kernel_target(plan)
    if plan.kernel.program is not None:
        facts = attention_facts(describe_attention(plan))
        return render("attention.cu.jinja", facts | {"build": _build_line(named, architecture)})
    build = f"nvcc -std=c++17 -arch={architecture} -cubin -o {shlex.quote(named)}bin {shlex.quote(named)}"
    return kernel_source(plan, build)


def _gemm_program(gemm: GemmPlan, target: Target) -> _Program:
    program = gemm_program(gemm)
    if target not in ("cuda", "python"):
        a = gemm.a.problem
        raise GEMM_NOT_SHOWN.error(
            target=target, known=GEMM_TARGETS, tile=a.tile, data_type=a.data_type.ptx, arch=a.arch.name
        )
    if target == "python" and not (gemm.fused.is_plain and gemm.batch == ONE):
        raise FORM_NOT_SHOWN.error(form=str(gemm.batch) if gemm.fused.is_plain else f"epilogue {gemm.fused}")
    return _Program("gemm", "gemm", program.work.target, "h", program.facts(), _family_target(gemm))


def unemitted_targets(gemm: GemmPlan) -> dict[Target, Violation]:
    """The targets that a GEMM is written as in general, and this one is not, with the reason.

    >>> from tilescope.planner import plan_gemm
    >>> print(unemitted_targets(plan_gemm(256, 256, 256, "bf16", arch="sm_100"))["header"].limit)
    a header launches kernels of wgmma
    """
    refused: dict[Target, Violation] = {}
    for target in GEMM_TARGETS:
        try:
            _header_program(gemm) if target == "header" else _gemm_program(gemm, target)
        except RuleError as error:
            refused[target] = error.violations[0]
    return refused


def _header_program(gemm: GemmPlan) -> GemmProgram:
    """The facts of a header: alpha and beta are arguments in every epilogue."""
    if gemm.product.consumer != "wgmma":
        raise HEADER_WITHOUT_TMA.error(consumer=gemm.product.consumer)
    callable_plan = gemm
    if gemm.product.has_float_sums:
        callable_plan = replace(gemm, fused=replace(gemm.fused, scale=True, residual=True))
    return gemm_program(callable_plan)


def _gemm_header(gemm: GemmPlan) -> str:
    """The kernel and its launch for other programs."""
    program = _header_program(gemm)
    name = f"gemm_{gemm.shape[1]}x{gemm.shape[2]}_{gemm.data_type.ptx}"
    architecture = program.work.target.removeprefix("sm_")
    built = f"-gencode=arch=compute_{architecture},code={program.work.target}"
    return render("gemm.hpp.jinja", program.facts() | {"name": name, "linkage": "static", "build": built})


def _family_target(gemm: GemmPlan) -> str:
    """The family's target, if every instruction of a GEMM exists there; "": it needs the chip's own target, or none.

    >>> from tilescope.planner import plan_gemm
    >>> _family_target(plan_gemm(256, 256, 256, "bf16", arch="sm_100")), _family_target(plan_gemm(256, 256, 256, "s8", arch="sm_100"))
    ('sm_100f', '')
    """
    if gemm.product.in_tensor_memory:
        features: tuple[str, ...] = ("tcgen05", gemm.product.kind.feature)
    elif gemm.scales is not None:
        features = (SCALED_MMA,)
    else:
        return ""
    in_family = all(gemm.arch.features[feature] == "a,f" for feature in features)
    return f"{gemm.arch.name}f" if in_family else ""


def _tile_program(program: TileProgram) -> _Program:
    sample = "h" if program.reader is None else program.reader.data.bits
    return _Program(program.tile.problem.direction, "tile", program.work.target, sample, program.facts())


def _tile_text(plan: Plan, program: TileProgram, target: Target) -> str:
    """One tile in a notation that is no whole program."""
    facts = program.facts()
    if target == "ptx":
        return render("ptx.jinja", facts | ptx_facts(plan, program))
    if target == "cute":
        return render("cute.jinja", facts | cute_facts(plan, program))
    return render("gluon.py.jinja", facts | gluon_facts(plan))


def _build_line(file: str, target: str) -> str:
    """The shell's line that compiles a program and runs it.

    >>> _build_line("my gemm.cu", "sm_90a")
    "nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o 'my gemm' 'my gemm.cu' && './my gemm'"
    """
    path = PurePath(file)
    program = path.stem if path.suffix == ".cu" else f"{file}.out"
    language = "" if path.suffix == ".cu" else "-x cu "
    architecture = f"-gencode=arch=compute_{target.removeprefix('sm_')},code={target}"
    built = shlex.quote(program)
    source = shlex.quote(file)
    started = shlex.quote(f"./{program}")
    return f"nvcc -std=c++17 {architecture} -o {built} {language}{source} && {started}"


def device_half(source: str) -> str:
    r"""The part of a program that NVRTC compiles.

    >>> device_half("kernel\n#ifndef __CUDACC_RTC__\nhost\n#endif")
    'kernel'
    """
    return source.partition("#ifndef __CUDACC_RTC__")[0].rstrip()
