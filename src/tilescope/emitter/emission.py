"""`emit`: a plan as a program or a text, by target."""

from __future__ import annotations

import re
from typing import Any, Literal

from tilescope.emitter.cute_text import cute_facts
from tilescope.emitter.gemm_program import gemm_facts
from tilescope.emitter.gluon_text import gluon_facts
from tilescope.emitter.ptx_text import ptx_facts
from tilescope.emitter.source import rendered
from tilescope.emitter.tile_program import refused, tile_facts
from tilescope.errors import RuleError, argument_type
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import known_name

Target = Literal["cuda", "ptx", "cute", "triton", "python"]
TARGETS: tuple[Target, ...] = ("cuda", "ptx", "cute", "triton", "python")

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
    facts = gemm_facts(plan) if isinstance(plan, GemmPlan) else tile_facts(plan)
    if target in _TEXTS:
        if isinstance(plan, GemmPlan):
            raise refused(
                "target", f"{target} of a GEMM", f"{target} shows one tile", "Emit it for the plans a, b or epilogue."
            )
        template, more = _TEXTS[target]
        return rendered(template, facts | more(plan, facts))
    program = "gemm" if isinstance(plan, GemmPlan) else plan.problem.direction
    source = rendered(f"{program}.cu.jinja", facts)
    if target == "cuda":
        return source
    script = "gemm" if isinstance(plan, GemmPlan) else "tile"
    return rendered(f"{script}.py.jinja", facts | _python_facts(facts, source))


def device_half(source: str) -> str:
    r"""The part of a program that NVRTC compiles.

    >>> device_half("kernel\n#ifndef __CUDACC_RTC__\nhost\n#endif")
    'kernel'
    """
    return source.partition("#ifndef __CUDACC_RTC__")[0].rstrip()


def _python_facts(facts: dict[str, Any], source: str) -> dict[str, Any]:
    """What the Python script says in numpy's words."""
    element, bits = f"uint{facts['element_bits']}", facts.get("data", {"bits": "h"})["bits"]
    output_bits = facts.get("output_bits", 8)
    return {
        "kernel": device_half(source),
        "numpy_sample": re.sub(r"(0x[0-9A-F]+|\b\d+)", r"np.uint64(\1)", bits),
        "element_numpy": element,
        "result_numpy": {"float": "float32", "int": "int32"}.get(facts.get("result_type", ""), element),
        "output_numpy": f"uint{output_bits}",
        "output_fill": hex(int("EE" * (output_bits // 8), 16)),
        "maps": {row["name"]: row.get("map") for row in facts["operands"]}
        if "operands" in facts
        else {"tile": facts["map"]},
    }
