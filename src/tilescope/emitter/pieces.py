"""`snippet`: a piece of code out of a plan or a tensor map, to paste."""

from __future__ import annotations

from typing import Any, Literal, get_args

from tilescope.emitter.role_text import expected_bytes, waited_parity
from tilescope.emitter.source import rendered
from tilescope.emitter.tile_program import address_lines, refused
from tilescope.errors import RuleError, argument_type
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.tensor_map import TensorMap
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
    template = f"snippet_{name.replace('-', '_')}.jinja"
    if name.startswith("encode"):
        if isinstance(source, Plan):
            source = source.tensor_map(0, source.problem.global_shape or source.problem.tile)
        return rendered(template, {"map": _map_facts(source, name)})
    if not isinstance(source, Plan):
        raise refused(
            "name", f'"{name}" of a tensor map', "a map alone has its encode call", 'Use "encode", or give a plan.'
        )
    return rendered(template, _plan_facts(source, name))


def _map_facts(tensor_map: Any, name: str) -> dict[str, Any]:
    if name == "encode-core" and not isinstance(tensor_map, TensorMap):
        raise refused("name", "encode-core of an im2col map", "cuda.core makes tiled maps", 'Use "encode-bindings".')
    fields = {field: getattr(tensor_map, field) for field in tensor_map.to_dict() if field != "kind"}
    rows = ("interleave", "swizzle", "l2_promotion", "oob_fill")
    spelled = {row: getattr(tensor_map, row) for row in rows}
    kind = tensor_map.kind
    core = {row: _core_name(str(value.name)) for row, value in spelled.items()}
    wide = {"mode": f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.mode}"} if kind == "im2col_wide_map" else {"mode": ""}
    return fields | wide | {
        "kind": kind,
        "title": f"{' x '.join(map(str, tensor_map.dims))} {tensor_map.data_type.name}, innermost first",
        "function": _FUNCTION[kind],
        "rank": len(tensor_map.dims),
        "data_type": f"CU_TENSOR_MAP_DATA_TYPE_{tensor_map.data_type.tma.name.upper()}",
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{spelled['swizzle'].name.upper()}",
        **{row: spelled[row].driver_name for row in ("interleave", "l2_promotion", "oob_fill")},
        "core": core | {
            "data_type": tensor_map.data_type.tma.name.upper(),
            "oob_fill": "NONE" if core["oob_fill"] == "ZERO" else "NAN_REQUEST_ZERO_FMA",
            "l2_promotion": core["l2_promotion"].replace("SWIZZLE", "L2"),
            "interleave": core["interleave"].replace("SWIZZLE", "INTERLEAVE"),
        },
    }  # fmt: skip


def _core_name(name: str) -> str:
    return name.upper() if not name[:1].isdigit() else f"SWIZZLE_{name}"


def _plan_facts(plan: Plan, name: str) -> dict[str, Any]:
    problem = plan.problem
    terms = plan.layout.terms()
    facts: dict[str, Any] = {
        "title": f"{problem.tile[0]} x {problem.tile[1]} {problem.data_type.ptx} tile, {problem.major}-major",
        "stages": problem.stages,
        "stage_bytes": plan.stage_bytes,
        "alignment": plan.smem_alignment_bytes,
    }
    if name.startswith("address"):
        logical = terms.logical_c.replace("/", "//")
        swizzled = [f"return {terms.swizzle.c_expression}"] if terms.swizzle.bits else ["return a"]
        return facts | {
            "address_lines": address_lines(plan), "address_python": terms.python, "address_triton": [f"a = {logical}", *swizzled],
        }  # fmt: skip
    if name == "descriptors":
        loop = plan.descriptors()
        first = loop[0][0]
        fields = f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes, swizzle {first.swizzle.name}"
        return facts | {
            "descriptor_fields": fields,
            "descriptors": [[f"{step.encode():#x}" for step in block] for block in loop],
        }
    if name == "barriers":
        if plan.boxes is None or problem.direction == "store":
            found = f"{problem.copy} {problem.direction}s"
            raise refused("name", f"barriers for {found}", "TMA loads complete on mbarriers", 'Use "fences".')
        pipeline = plan_pipeline(plan)
        full, empty = (barrier.count for barrier in pipeline.barriers)
        by_one = empty == 1
        return facts | {
            "full_count": full, "empty_count": empty, "expected_bytes": expected_bytes(pipeline),
            "readers": "one arrival of the warpgroup that reads" if by_one else f"an arrival of each of {empty} warps that read",
            "consumer_parity": waited_parity(pipeline, "consumer"), "producer_parity": waited_parity(pipeline, "producer"),
        }  # fmt: skip
    return facts | {"fences": _fences(plan)}


def _fences(plan: Plan) -> list[str]:
    """What stands between the writers and the readers of a stage."""
    problem = plan.problem
    proxy = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // every thread that wrote'
    if problem.direction == "store":
        return [
            "// between the writes and the store:", proxy, "__syncthreads();", "// one thread stores, then:",
            'asm volatile("cp.async.bulk.commit_group;" ::: "memory");',
            'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // before the stage is written again',
        ]  # fmt: skip
    if plan.boxes is not None:
        return ["// TMA completes on the full barrier of the stage: no fence. Wait for it, then read."]
    wait = (
        ['asm volatile("cp.async.commit_group;\\ncp.async.wait_group 0;" ::: "memory");']
        if problem.copy == "cp.async"
        else []
    )
    tensor_core = [proxy] if problem.consumer in ("wgmma", "tcgen05") else []
    return ["// between the copy and the reads:", *wait, *tensor_core, "__syncthreads();"]
