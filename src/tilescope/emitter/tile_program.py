"""A plan as a whole program: what the templates of a load and of a store say, as data.

    plan ──▶ facts (copies, descriptors, addresses, roles) ──▶ template ──▶ source

A kernel proves its own plan. A load multiplies every tile by an identity matrix, so that the accumulators are the
tile's elements (or lets threads read it); a store writes known elements. The host compares all of them.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

from tilescope.arch import Arch
from tilescope.emitter.role_text import Work, group_text, role_text
from tilescope.emitter.source import EMIT, K_STEP_BYTES, MULTIPLIED, Multiplied, multiplied
from tilescope.mma.consumer import Consumer
from tilescope.mma.descriptor import WgmmaDescriptor
from tilescope.pipeline.description import Pipeline
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.planned_tile import MBARRIER_BYTES
from tilescope.planner.plans import Plan
from tilescope.smem.access import Access

CONSUMER_WARPS = 4
IDENTITY_ROWS = 64  # of A, which wgmma takes in blocks of 64; B's identity has as many rows as a K step
_SUMMARY = (  # reasons of the plan that the program repeats
    "row-is-a-span", "row-of-spans", "core-matrices", "plain-rows", "boxes", "folded-box", "copied-by-threads", "budget",
)  # fmt: skip
ELEMENT = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
# an operand of inline assembly, by bits
REGISTER = {8: '"r"(static_cast<unsigned>(value))', 16: '"h"(value)', 32: '"r"(value)', 64: '"l"(value)'}
_VECTOR = {  # bytes a lane reads: PTX width, C type and register constraint of a word, number of words
    2: {"ptx": "b16", "type": "unsigned short", "constraint": "h", "count": 1},
    4: {"ptx": "b32", "type": "unsigned", "constraint": "r", "count": 1},
    8: {"ptx": "v2.b32", "type": "unsigned", "constraint": "r", "count": 2},
    16: {"ptx": "v4.b32", "type": "unsigned", "constraint": "r", "count": 4},
}


def tile_facts(plan: Plan) -> dict[str, Any]:
    """Everything that a program for the plan of one tile says, by the names that its template uses."""
    problem = plan.problem
    row = problem.data_type
    if row.bits not in ELEMENT or row.smem_bits != row.bits:
        limit = "programs are emitted for elements of 8, 16, 32 and 64 bits"
        raise EMIT.error("data_type", f"elements of {row.name}", limit, "Plan the same bytes as uint8.", bits=row.bits)
    mn, k = problem.tile
    shape = problem.global_shape or (3 * mn, (2 * problem.stages + 1) * k)  # slots and phases come round twice
    contiguous = shape[1] if problem.major == "K" else shape[0]
    pitch_bytes = problem.strides_bytes[0] if problem.strides_bytes else contiguous * row.bits // 8
    tma = plan.boxes is not None
    facts = plan_facts(plan) | {
        "summary": [str(reason) for reason in plan.reasons if reason.name in _SUMMARY],
        "element_type": ELEMENT[row.bits],
        "shape": shape,
        "pitch_bytes": pitch_bytes,
        "transposed": problem.major == "MN",
        "consumer_warps": CONSUMER_WARPS,
        "tma": tma,
        "destination": load_destination(problem.arch),
        "rank": len(plan.box or ()),
        "map": map_facts(plan.tensor_map(0, shape, (pitch_bytes,))) if tma else None,
        "copies": copies_of(plan) if tma else (),
    }
    facts |= _store(plan, facts["copies"]) if problem.direction == "store" else _load(plan, facts["copies"])
    smem_bytes, limit_bytes = facts["smem_bytes"], problem.arch.smem_per_block_bytes
    if smem_bytes > limit_bytes:
        found = f"{smem_bytes} bytes of shared memory, barriers and identity included"
        limit = f"a block of {problem.arch.name} has {limit_bytes} bytes"
        fix = f"Plan with {max(problem.stages - 1, 1)} stages or a smaller tile."
        raise EMIT.error("stages", found, limit, fix, smem_bytes=smem_bytes, limit_bytes=limit_bytes)
    return facts


def load_destination(arch: Arch) -> str:
    """The state space that a TMA load names for its own block's shared memory.

    PTX 8.6 has .shared::cta. The older .shared::cluster means the same bytes, but is slow where there are no clusters worth the
    name (jax-ml/jax#40721, NVIDIA/cccl#6362); elsewhere it assembles with every toolkit that has TMA.

    >>> load_destination(Arch.named("sm_90")), load_destination(Arch.named("sm_121"))
    ('shared::cluster', 'shared::cta')
    """
    return "shared::cta" if arch.compute_capability[0] == 12 else "shared::cluster"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """The plan, its problem, its layout and the terms of an address, for templates that read their fields, and a title."""
    problem = plan.problem
    title = f"{problem.tile[0]} x {problem.tile[1]} {problem.data_type.ptx} tile, {problem.major}-major"
    return {"plan": plan, "problem": problem, "layout": plan.layout, "terms": plan.layout.terms(), "title": title}


def descriptor_facts(plan: Plan) -> dict[str, Any]:
    """The descriptors of a stage by [mn block][K step], and the fields that they share."""
    first = plan.descriptors()[0][0]
    fields = f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes, swizzle {first.swizzle.name}"
    return {"descriptors": plan.descriptor_words(), "descriptor_fields": fields}


class Coordinate(NamedTuple):
    """A coordinate of a copy: name / divisor + offset; without a name the offset alone."""

    name: str
    offset: int
    divisor: int = 1

    def __str__(self) -> str:
        divided = f"{self.name} / {self.divisor}" if self.divisor > 1 else self.name
        return " + ".join(filter(None, (divided, str(self.offset) if self.offset or not self.name else "")))


def copies_of(plan: Plan, mn: str = "mn") -> list[dict[str, Any]]:
    """The copies of one tile: their offset in the stage, and their coordinates in `mn` and k."""
    row, column = (mn, "k") if plan.problem.major == "K" else ("k", mn)
    corner: tuple[tuple[str, int], ...] = ((column, 1), (row, 1))
    if plan.folded:
        rows, columns = plan.containers.as_rows().tiling.atom
        corner = (("", 1), (row, 1), (column, columns))
        if plan.atom_order == "row":
            corner = (("", 1), ("", 1), (column, columns), (row, rows))
    return [
        {
            "offset": copy.smem_offset_bytes,
            "coords": [
                Coordinate(name, offset, divisor) for (name, divisor), offset in zip(corner, copy.coords, strict=True)
            ],
        }
        for copy in plan.copies
    ]


def copy_lines(call: str, copies: list[dict[str, Any]]) -> list[str]:
    """A call for each copy: its offset in the stage, and its coordinates."""
    return [
        call.format(f" + {copy['offset']}" if copy["offset"] else "", ", ".join(map(str, copy["coords"])))
        for copy in copies
    ]


def map_facts(tensor_map: Any) -> dict[str, Any]:
    """A tensor map's arguments as the encode call spells them."""
    fields = {name: getattr(tensor_map, name) for name in tensor_map.to_dict()}
    rows = {name: fields[name] for name in ("interleave", "l2_promotion", "oob_fill", "swizzle")}
    return fields | {
        "rank": len(tensor_map.dims),
        "data_type": f"CU_TENSOR_MAP_DATA_TYPE_{tensor_map.data_type.tma.name.upper()}",
        **{name: row.driver_name for name, row in rows.items() if name != "swizzle"},
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{tensor_map.swizzle.name.upper()}",
        "core": {name: row.name for name, row in rows.items()} | {"data_type": tensor_map.data_type.tma.name},
    }


def roles_facts(pipeline: Pipeline, producer: Work, consumer: Work, consumer_arrivals: str) -> dict[str, Any]:
    """What the producer and the consumers do, as a pipeline says."""
    return {
        "barriers": pipeline.barriers,
        "arrivals": {"full": "the producer's arrive.expect_tx", "empty": consumer_arrivals},
        "producer": role_text(pipeline, "producer", producer, 6),
        "consumer_steps": role_text(pipeline, "consumer", consumer, 2),
    }


_OPENING = {
    "i": ["const unsigned stage = base + slot * STAGE_BYTES;", "const int mn = mn_tile * TILE_MN, k = i * TILE_K;"]
}


def _load(plan: Plan, copies: list[dict[str, Any]]) -> dict[str, Any]:
    problem, tma = plan.problem, plan.boxes is not None
    facts: dict[str, Any] = {"identity": None, "group_steps": "wgmma_commit(); wgmma_wait<0>();"} | _reader(plan)
    behind = [("IDENTITY", facts["identity"]["bytes"], "behind the stages")] if facts["identity"] else []
    if tma:
        barriers_bytes = problem.stages * MBARRIER_BYTES
        behind += [
            ("FULL", barriers_bytes, "a barrier a stage: the tile has arrived"),
            ("EMPTY", barriers_bytes, "and: the tile was read"),
        ]
        pipeline = plan_pipeline(plan, arrivals="warp")
        producer = Work({"copy a": copy_lines("tma_load(stage{}, &map, full + 8 * slot, {});", copies)}, _OPENING, {
            "wait empty": "passes at once while the slots are fresh", "expect full": "all copies of a tile",
            "tail empty": "every tile was read",
        })  # fmt: skip
        consumer = Work(
            {"multiply": ["consume(base, base + slot * STAGE_BYTES, result, mn_tile, i, k_tiles);"]},
            notes={"fence proxy.async": "the reads come before TMA's next writes"},
            inside=("wgmma",),
        )
        facts |= roles_facts(pipeline, producer, consumer, "one arrival of each consumer warp")
        facts["group_steps"] = group_text(pipeline, "wgmma")
    *offsets, smem_bytes = accumulate((size for _, size, _ in behind), initial=problem.stages * plan.stage_bytes)
    target = problem.arch.target("wgmma") if problem.reads_by_descriptor else problem.arch.name
    return facts | {
        "target": str(target),
        "regions": [(name, at, comment) for (name, _, comment), at in zip(behind, offsets, strict=True)],
        "smem_bytes": smem_bytes,
        "threads": 32 * (CONSUMER_WARPS + tma),
    }  # fmt: skip


def require_program(row: Consumer | None) -> None:
    """Refuse a tensor core whose sums lie in tensor memory: no template reads it."""
    if row is not None and row.accumulators == "tensor memory":
        limit = "programs are emitted for wgmma, ldmatrix and threads"
        fix = "Plan for sm_90, or take snippets of this plan."
        raise EMIT.error("consumer", f"consumer = {row.name}", limit, fix)


def _reader(plan: Plan) -> dict[str, Any]:
    """How the tile is read in the proof: by descriptor, by ldmatrix and mma, or by threads."""
    problem = plan.problem
    consumer, data_type = problem.consumer, problem.data_type
    require_program(problem.tensor_core)
    if isinstance(consumer, Access) and not consumer.op.is_matrix:
        return _threads(plan, consumer)
    name = consumer.op.name if isinstance(consumer, Access) else consumer
    row = multiplied(data_type, name, 'Plan for consumer="ld.b128 rows".')
    facts = row.sums | {
        "result_type": row.sums["accumulator"],
        "one": row.one,
        "k_step": K_STEP_BYTES * 8 // data_type.bits,
        "data": {"bits": row.sample, "comment": f"a {data_type.name} of moderate size"},
        "decode": row,
    }
    return facts | (_wgmma(plan, row) if problem.reads_by_descriptor else _mma(plan, row, name))


def _threads(plan: Plan, access: Access) -> dict[str, Any]:
    data_type = plan.problem.data_type
    vector_bytes = max(access.op.access_bytes, data_type.bits // 8)
    if vector_bytes not in _VECTOR:
        limit, fix = "threads read 2 to 16 bytes at once", 'Use consumer="ld.b16 rows".'
        raise EMIT.error("consumer", f"consumer = {access.name}", limit, fix, vector_bytes=vector_bytes)
    bits = MULTIPLIED["tf32"].sample if data_type.ptx.startswith("tf32") else "h"
    return {
        "consumer": "threads",
        "result_type": "Element",
        "vector_bytes": vector_bytes,
        "vector_words": _VECTOR[vector_bytes],
        "by_columns": "columns" in access.name,
        "data": {"bits": bits, "comment": "any bits"},
        "decode": None,
    }


def _wgmma(plan: Plan, row: Multiplied) -> dict[str, Any]:
    loop = plan.descriptors()
    operand, k_step = loop.operand, loop.k_per_step
    rows, n = (k_step, k_step) if operand == "A" else (IDENTITY_ROWS, loop.block_mn)
    identity = WgmmaDescriptor(0, leading_bytes=128, stride_bytes=256, swizzle="none")
    major = plan.problem.major
    facts = descriptor_facts(plan)
    facts["descriptor_fields"] += "; the start is the offset in the stage"
    return facts | row.wgmma(n, k_step, (major, "K") if operand == "A" else ("K", major)) | {
        "consumer": f"wgmma_{operand.lower()}",
        "identity": {
            "bytes": rows * K_STEP_BYTES,
            "rows": rows,
            "descriptor": f"{identity.encode():#x}",
        },
        "blocks": len(loop),
        "k_steps": len(loop[0]),
        "n": n,
    }  # fmt: skip


def _mma(plan: Plan, row: Multiplied, reader: str) -> dict[str, Any]:
    problem = plan.problem
    mn, k = problem.tile
    k_step = K_STEP_BYTES * 8 // problem.data_type.bits
    if row.name in ("e4m3", "e5m2") and not problem.arch.has("mma_fp8"):
        found, limit = f"{row.name} on {problem.arch.name}", "mma multiplies fp8 from sm_89 on"
        raise EMIT.error("data_type", found, limit, 'Plan for arch="sm_89".')
    if problem.major == "MN" and problem.data_type.bits != 16:
        found = f"{reader} of an MN-major {row.name} tile"
        raise EMIT.error("major", found, "ldmatrix.trans moves 16 bits", 'Plan with major="K".')
    return {"consumer": "mma", "mma": row.mma(k_step), "mn_tail": mn % 16 != 0, "k_tail": k % k_step != 0}


def _store(plan: Plan, copies: list[dict[str, Any]]) -> dict[str, Any]:
    problem = plan.problem
    bits = problem.data_type.bits
    mn, k = problem.tile
    matrices = mn * k // 64 if bits == 16 and mn % 8 == 0 == k % 8 else 0
    count = next((count for count in (4, 2, 1) if matrices and matrices % count == 0), 0)
    stores = copy_lines("tma_store(&map, stage{}, {});", copies)
    work = Work(
        {"write": ["write_tile(stage, mn_tile, i, k_tiles * TILE_K);"], "store": stores},
        _OPENING,
        {
            "wait_group bulk": "TMA has read what this slot held",
            "fence proxy.async": "every writer, before the barrier",
        },
    )
    return {
        "target": problem.arch.name,
        "stmatrix_count": count,
        "register": REGISTER[bits],
        "smem_bytes": problem.stages * plan.stage_bytes,
        "threads": 32 * CONSUMER_WARPS,
        "steps": role_text(plan_pipeline(plan), "epilogue", work, 2),
    }
