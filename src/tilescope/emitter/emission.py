"""`emit`: a plan as a program or a text, by target. `snippet`: a piece of code out of a plan or a tensor map, to paste."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

from tilescope.emitter.gemm_program import gemm_facts
from tilescope.emitter.role_text import stage_facts
from tilescope.emitter.source import EMIT, rendered
from tilescope.emitter.texts import cute_facts, gluon_facts, ptx_facts
from tilescope.emitter.tile_program import descriptor_facts, map_facts, plan_facts, tile_facts
from tilescope.errors import RuleError, argument_type
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.tensor_map.any_map import AnyMap

Target = Literal["cuda", "ptx", "cute", "triton", "python"]
TARGETS: tuple[Target, ...] = get_args(Target)

_TEXTS = {
    "ptx": ("ptx.jinja", ptx_facts),
    "cute": ("cute.jinja", cute_facts),
    "triton": ("gluon.py.jinja", gluon_facts),
}


SnippetName = Literal[
    "encode", "encode-bindings", "encode-core", "address", "address-python", "address-triton", "barriers", "descriptors",
    "fences",
]  # fmt: skip
SNIPPETS: tuple[SnippetName, ...] = get_args(SnippetName)
_FUNCTION = {
    "tensor_map": "cuTensorMapEncodeTiled",
    "im2col_map": "cuTensorMapEncodeIm2col",
    "im2col_wide_map": "cuTensorMapEncodeIm2colWide",
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


def snippet(source: Plan | AnyMap, name: SnippetName) -> str:
    """A piece of code out of a plan, or the encode call of a tensor map.

    >>> from tilescope.planner import plan
    >>> print(snippet(plan((64, 64), "bf16").best, "address-python"))
    def element_address(base, mn, k):
        \"\"\"Shared address of element (mn, k) of a tile whose stage starts at `base`; integers or arrays.\"\"\"
        return (a := base + mn * 128 + k * 2) ^ ((a >> 3) & 0x70)
    <BLANKLINE>
    """
    known_name("name", name, SNIPPETS)
    if not isinstance(source, Plan | AnyMap):
        raise RuleError(
            [argument_type("source", source, "a plan or a tensor map", 'Use ts.plan((64, 64), "bf16").best.')]
        )
    if name.startswith("encode"):
        if isinstance(source, Plan):
            source = source.tensor_map(0, source.problem.global_shape or source.problem.tile)
        facts = _encode_facts(source, name)
    elif isinstance(source, Plan):
        facts = plan_facts(source) | _plan_facts(source, name)
    else:
        limit, fix = "a map alone has its encode call", 'Use "encode", or a plan.'
        raise EMIT.error("name", f'"{name}" of a tensor map', limit, fix)
    return rendered(f"snippet_{name.replace('-', '_')}.jinja", facts)


def _encode_facts(tensor_map: Any, name: str) -> dict[str, Any]:
    kind = tensor_map.kind
    if name == "encode-core" and kind != "tensor_map":
        found = "encode-core of an im2col map"
        raise EMIT.error("name", found, "cuda.core makes tiled maps", 'Use "encode-bindings".')
    wide = kind == "im2col_wide_map"
    mode = f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.mode}" if wide else ""
    return {
        "title": f"{' x '.join(map(str, tensor_map.dims))} {tensor_map.data_type.name}, innermost first",
        "function": _FUNCTION[kind],
        "map": map_facts(tensor_map) | {"mode": mode},
    }


def _plan_facts(plan: Plan, name: str) -> dict[str, Any]:
    problem = plan.problem
    if name == "descriptors":
        return descriptor_facts(plan)
    if name != "barriers":
        return {}
    if plan.boxes is None or problem.direction == "store":
        found = f"barriers for {problem.copy} {problem.direction}s"
        raise EMIT.error("name", found, "TMA loads complete on mbarriers", 'Use "fences".')
    return stage_facts(plan_pipeline(plan))
