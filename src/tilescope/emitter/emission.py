"""`emit`: a plan as a program or a text, by target."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from tilescope.emitter.gemm_program import gemm_facts
from tilescope.emitter.source import EMIT, rendered
from tilescope.emitter.texts import cute_facts, gluon_facts, ptx_facts
from tilescope.emitter.tile_program import tile_facts
from tilescope.errors import RuleError, argument_type
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import known_name

Target = Literal["cuda", "ptx", "cute", "triton", "python"]
TARGETS: tuple[Target, ...] = get_args(Target)

_TEXTS = {
    "ptx": ("ptx.jinja", ptx_facts),
    "cute": ("cute.jinja", cute_facts),
    "triton": ("gluon.py.jinja", gluon_facts),
}


def emit(plan: Plan | GemmPlan, target: Target) -> str:
    """The plan as source text.

    "cuda" is a whole program that checks itself; "python" the same from Python, compiled by NVRTC.

    >>> from tilescope.planner import plan
    >>> source = emit(plan((128, 64), "bf16", stages=4).best, "cuda")
    >>> [line for line in source.splitlines() if "STAGES =" in line]
    ['constexpr int STAGES = 4;']
    """
    known_name("target", target, TARGETS)
    if not isinstance(plan, Plan | GemmPlan):
        raise RuleError([argument_type("plan", plan, "a plan", 'Use ts.plan((64, 64), "bf16").best, for example.')])
    if isinstance(plan, GemmPlan):
        if target in _TEXTS:
            fix = "Emit it for the plans a, b or epilogue."
            raise EMIT.error("target", f"{target} of a GEMM", f"{target} shows one tile", fix)
        facts, program, script = gemm_facts(plan), "gemm", "gemm"
    else:
        facts, program, script = tile_facts(plan), plan.problem.direction, "tile"
        if target in _TEXTS:
            template, more = _TEXTS[target]
            return rendered(template, facts | more(plan, facts))
    source = rendered(f"{program}.cu.jinja", facts)
    return source if target == "cuda" else rendered(f"{script}.py.jinja", facts | _python_facts(plan, facts, source))


def device_half(source: str) -> str:
    r"""The part of a program that NVRTC compiles.

    >>> device_half("kernel\n#ifndef __CUDACC_RTC__\nhost\n#endif")
    'kernel'
    """
    return source.partition("#ifndef __CUDACC_RTC__")[0].rstrip()


def _python_facts(plan: Plan | GemmPlan, facts: dict[str, Any], source: str) -> dict[str, Any]:
    """What the Python script says in numpy's words."""
    element = f"uint{(plan if isinstance(plan, GemmPlan) else plan.problem).data_type.bits}"
    said = {"kernel": device_half(source), "element_numpy": element}
    if isinstance(plan, GemmPlan):
        bits = plan.output_type.bits
        return said | {
            "output_numpy": f"uint{bits}",
            "output_fill": hex(int("EE" * (bits // 8), 16)),
            "maps": {row["name"]: row.get("map") for row in facts["operands"]},
        }
    return said | {
        "numpy_sample": re.sub(r"(0x[0-9A-F]+|\b\d+)", r"np.uint64(\1)", facts.get("data", {"bits": "h"})["bits"]),
        "result_numpy": {"float": "float32", "int": "int32"}.get(facts.get("result_type", ""), element),
        "maps": {"tile": facts["map"]},
    }
