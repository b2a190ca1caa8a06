"""`snippet`: a piece of code out of a plan or a tensor map, to paste."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tilescope.emitter.role_text import expected_bytes, waited_parity
from tilescope.emitter.source import EMIT, rendered
from tilescope.emitter.tile_program import descriptor_facts, map_facts, plan_facts
from tilescope.errors import RuleError, argument_type
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.tensor_map.any_map import AnyMap

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
    problem, terms = plan.problem, plan.layout.terms()
    match name:
        case "address-python":
            return {"address_python": terms.python}
        case "address-triton":
            result = terms.swizzle.c_expression if terms.swizzle.bits else "a"
            return {"address_triton": [f"a = {terms.logical_c.replace('/', '//')}", f"return {result}"]}
        case "descriptors":
            return descriptor_facts(plan)
        case "barriers":
            if plan.boxes is None or problem.direction == "store":
                found = f"barriers for {problem.copy} {problem.direction}s"
                raise EMIT.error("name", found, "TMA loads complete on mbarriers", 'Use "fences".')
            pipeline = plan_pipeline(plan)
            full, empty = (barrier.count for barrier in pipeline.barriers)
            several = f"an arrival of each of {empty} warps that read"
            return {
                "full_count": full,
                "empty_count": empty,
                "expected_bytes": expected_bytes(pipeline),
                "readers": "one arrival of the warpgroup that reads" if empty == 1 else several,
                "consumer_parity": waited_parity(pipeline, "consumer"),
                "producer_parity": waited_parity(pipeline, "producer"),
            }
    return {}
