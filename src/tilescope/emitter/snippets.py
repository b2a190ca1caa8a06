"""`snippet`: a piece of code out of a plan or a tensor map, to paste into a kernel or its host program.

encode                      the driver's call that makes the tensor map, in C++; -bindings and -core in Python
address                     the shared address of an element, in C++; -python and -triton
barriers, fences            what a copy and its readers wait for
descriptors                 the 64-bit words with which wgmma finds the tile
"""

from __future__ import annotations

from typing import Literal, get_args

from tilescope.emitter.role_text import stage_facts
from tilescope.emitter.source_template import EMIT, Facts, SourceText, render, template_values
from tilescope.emitter.tile_program import TileFacts, map_facts
from tilescope.emitter.tile_reader import DescriptorFacts
from tilescope.errors import RuleError, argument_type
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.sentence import by
from tilescope.tensor_map import Im2colWideMap
from tilescope.tensor_map.any_map import AnyMap

SnippetName = Literal[
    "encode",
    "encode-bindings",
    "encode-core",
    "address",
    "address-python",
    "address-triton",
    "barriers",
    "descriptors",
    "fences",
]
SNIPPETS: tuple[SnippetName, ...] = get_args(SnippetName)
_ENCODE_FUNCTION = {
    "tensor_map": "Tiled",
    "im2col_map": "Im2col",
    "im2col_wide_map": "Im2colWide",
}  # cuTensorMapEncode…
SNIPPET_NEEDS_PLAN = EMIT.worded(
    argument="name",
    found='"{name}" of a tensor map',
    limit="a map alone has its encode call",
    fix='Use "encode", or a plan.',
)
IM2COL_NOT_IN_CORE = EMIT.worded(
    argument="name",
    found="encode-core of an im2col map",
    limit="cuda.core makes tiled maps",
    fix='Use "encode-bindings".',
)
NO_BARRIERS = EMIT.worded(
    argument="name",
    found="barriers for {copy} {direction}s",
    limit="TMA loads complete on mbarriers",
    fix='Use "fences".',
)


def snippet(source: Plan | AnyMap, name: SnippetName) -> str:
    """A snippet of code for a plan, or the encode call of a tensor map.

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
        facts = template_values(TileFacts.of(source)) | _plan_facts(source, name)
    else:
        raise SNIPPET_NEEDS_PLAN.error(name=name)
    return SourceText(render(f"snippet_{name.replace('-', '_')}.jinja", facts))


def _encode_facts(tensor_map: AnyMap, name: str) -> Facts:
    if name == "encode-core" and tensor_map.kind != "tensor_map":
        raise IM2COL_NOT_IN_CORE.error()
    mode = ""
    if isinstance(tensor_map, Im2colWideMap):
        mode = f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.mode}"
    return {
        "title": f"{by(tensor_map.dims)} {tensor_map.data_type.name}, innermost first",
        "function": f"cuTensorMapEncode{_ENCODE_FUNCTION[tensor_map.kind]}",
        "map": map_facts(tensor_map) | {"mode": mode},
    }


def _plan_facts(plan: Plan, name: str) -> Facts:
    problem = plan.problem
    if name == "descriptors":
        return template_values(DescriptorFacts.of(plan))
    if name != "barriers":
        return {}
    if plan.boxes is None or problem.direction == "store":
        raise NO_BARRIERS.error(copy=problem.copy, direction=problem.direction)
    return template_values(stage_facts(plan_pipeline(plan)))
