"""A plan as a whole program: what the templates of a load and of a store say, as data.

    plan ──▶ facts (constants, copies, descriptors, addresses) ──▶ template ──▶ source

A kernel proves its own plan. A load multiplies every tile by an identity matrix, so that the accumulators are the
tile's elements (or lets threads read it); a store writes known elements. The host compares all of them.
"""

from __future__ import annotations

from typing import Any

from tilescope.emitter.multiply import Multiplied, multiplied
from tilescope.emitter.role_text import Work, barrier_init, group_text, role_text
from tilescope.errors import RuleError
from tilescope.mma.descriptor import WgmmaDescriptor
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.completion import MBARRIER_BYTES
from tilescope.planner.plans import Plan
from tilescope.rule import rule
from tilescope.smem.access import Access
from tilescope.tensor_map import TensorMap

EMIT = rule(
    "emit",
    "Programs are emitted for wgmma, ldmatrix and threads, and for types that these multiply or move.",
    source="tilescope's templates",
    passing='ts.emit(ts.plan((64, 64), "bf16").best, "ptx")',
    failing='ts.emit(ts.plan((128, 64), "bf16", arch="sm_100").best, "ptx")',
)
CONSUMER_WARPS = 4
IDENTITY_ROWS = 64  # of A, which wgmma takes in blocks of 64; B's identity has as many rows as a K step
_SAID = (
    "row-is-a-span",
    "row-of-spans",
    "core-matrices",
    "plain-rows",
    "boxes",
    "folded-box",
    "copied-by-threads",
    "budget",
)
K_STEP_BYTES = 32  # of k that one instruction takes
ELEMENT = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
_VECTOR = {  # bytes a lane reads: PTX width, C type and register constraint of a word, number of words
    2: ("b16", "unsigned short", "h", 1),
    4: ("b32", "unsigned", "r", 1),
    8: ("v2.b32", "unsigned", "r", 2),
    16: ("v4.b32", "unsigned", "r", 4),
}


def tile_facts(plan: Plan) -> dict[str, Any]:
    """Everything that a program for the plan of one tile says, by the names that its template uses."""
    problem = plan.problem
    row = problem.data_type
    if row.bits not in ELEMENT or row.smem_bits != row.bits:
        limit = "programs are emitted for elements of 8, 16, 32 and 64 bits"
        raise refused("data_type", f"elements of {row.name}", limit, "Plan the same bytes as uint8.")
    facts = _common(plan) | _copies(plan) | (_store(plan) if problem.direction == "store" else _load(plan))
    if facts["smem_bytes"] > problem.arch.smem_per_block_bytes:
        found = f"{facts['smem_bytes']} bytes of shared memory, barriers and identity included"
        limit = f"a block of {problem.arch.name} has {problem.arch.smem_per_block_bytes} bytes"
        raise refused("stages", found, limit, f"Plan with {max(problem.stages - 1, 1)} stages or a smaller tile.")
    return facts


def refused(argument: str, found: str, limit: str, fix: str) -> RuleError:
    """The error for a plan that no program is emitted for."""
    return EMIT.error(argument, found, limit, fix)


def demonstrated_shape(plan: Plan) -> tuple[int, int]:
    """The matrix of the program: the plan's own, else one whose slots and phases come round twice."""
    mn, k = plan.problem.tile
    return plan.problem.global_shape or (3 * mn, (2 * plan.problem.stages + 1) * k)


def _common(plan: Plan) -> dict[str, Any]:
    problem = plan.problem
    shape = demonstrated_shape(plan)
    return {
        "title": f"{problem.tile[0]} x {problem.tile[1]} {problem.data_type.ptx} tile, {problem.major}-major",
        "summary": [str(reason) for reason in plan.reasons if reason.name in _SAID],
        "tile": problem.tile,
        "major": problem.major,
        "stages": problem.stages,
        "stage_bytes": plan.stage_bytes,
        "alignment": plan.smem_alignment_bytes,
        "transaction_bytes": plan.transaction_bytes,
        "element_bits": problem.data_type.bits,
        "element_type": ELEMENT[problem.data_type.bits],
        "type_name": problem.data_type.name,
        "tile_rows": problem.rows,
        "tile_columns": problem.columns,
        "row_chunks": problem.row_bytes // 16,
        "shape": shape,
        "pitch_bytes": _pitch_bytes(plan),
        "direction": problem.direction,
        "address_lines": address_lines(plan),
        "load_ranks": (),
        "store_ranks": (),
        "transposed": problem.major == "MN",
        "consumer_warps": CONSUMER_WARPS,
    }


def _pitch_bytes(plan: Plan) -> int:
    problem = plan.problem
    if problem.strides_bytes is not None:
        return problem.strides_bytes[0]
    mn, k = demonstrated_shape(plan)
    return (k if problem.major == "K" else mn) * problem.data_type.bits // 8


def address_lines(plan: Plan) -> list[str]:
    """The body of a function of base, mn and k: the layout's own expression."""
    terms = plan.layout.terms()
    if not terms.swizzle.bits:
        return [f"return {terms.c};"]
    return [f"const unsigned a = {terms.logical_c};", f"return {terms.swizzle.c_expression};"]


def _copies(plan: Plan) -> dict[str, Any]:
    if plan.boxes is None:
        return {"tma": False, "map": None}
    tensor_map = plan.tensor_map(0, demonstrated_shape(plan), (_pitch_bytes(plan),))
    return {"tma": True, "copies": copies_of(plan), "map": map_of(tensor_map)}


def copies_of(plan: Plan, mn: str = "mn") -> list[dict[str, Any]]:
    """The copies of one tile: their offset in the stage, and their coordinates as C expressions of `mn` and k."""
    row, column = (mn, "k") if plan.problem.major == "K" else ("k", mn)
    corner: tuple[str, ...] = (column, row)
    if plan.folded:
        rows, columns = plan.layout.as_rows().tiling.atom
        corner = ("0", row, f"{column} / {columns}")
        if plan.atom_order == "row":
            corner = ("0", "0", f"{column} / {columns}", f"{row} / {rows}")
    return [
        {"offset": copy.smem_offset_bytes, "coords": [_sum(a, b) for a, b in zip(corner, copy.coords, strict=True)]}
        for copy in plan.copies
    ]


def map_of(tensor_map: TensorMap) -> dict[str, Any]:
    """A tensor map's arguments as the encode call spells them."""
    return {
        "rank": len(tensor_map.dims),
        "dims": tensor_map.dims,
        "strides_bytes": tensor_map.strides_bytes,
        "box": tensor_map.box,
        "data_type": f"CU_TENSOR_MAP_DATA_TYPE_{tensor_map.data_type.tma.name.upper()}",
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{tensor_map.swizzle.name.upper()}",
        "interleave": tensor_map.interleave.driver_name,
        "l2_promotion": tensor_map.l2_promotion.driver_name,
        "oob_fill": tensor_map.oob_fill.driver_name,
    }


def _sum(name: str, offset: int) -> str:
    return name if not offset else str(offset) if name == "0" else f"{name} + {offset}"


def _load(plan: Plan) -> dict[str, Any]:
    problem = plan.problem
    consumed = _consumer(plan)
    by_tma = plan.boxes is not None
    regions, end = [], problem.stages * plan.stage_bytes
    if consumed.setdefault("identity", None):
        regions.append({"name": "IDENTITY", "offset": end, "comment": "behind the stages"})
        end += consumed["identity"]["bytes"]
    if by_tma:
        for name, comment in (("FULL", "a barrier a stage: the tile has arrived"), ("EMPTY", "and: the tile was read")):
            regions.append({"name": name, "offset": end, "comment": comment})
            end += problem.stages * MBARRIER_BYTES
    async_reader = problem.consumer == "wgmma"
    uses = {*consumed["uses"], "mbarrier" if by_tma else problem.copy.replace(".", "_")}
    if async_reader or by_tma:
        uses.add("proxy_fence")
    warps = CONSUMER_WARPS + by_tma
    roles = f"{CONSUMER_WARPS} consumer warps" + (" and a producer warp" if by_tma else ", which also copy")
    target = problem.arch.target("wgmma") if async_reader else problem.arch.name
    return consumed | {
        "regions": regions,
        "smem_bytes": end,
        "threads": 32 * warps,
        "threads_comment": roles,
        "uses": uses,
        "load_ranks": (len(plan.box),) if plan.box is not None else (),
        "async_reader": async_reader,
        "reads_by_threads": not async_reader,
        "cp_async": problem.copy == "cp.async",
        **built_for(str(target)),
        **(_roles(plan) if by_tma else {"group_steps": "wgmma_commit(); wgmma_wait<0>();"}),
    }


def _roles(plan: Plan) -> dict[str, Any]:
    """What the producer and the consumers do, as the plan's pipeline says."""
    pipeline = plan_pipeline(plan, arrivals="warp")
    copies = copy_lines("tma_load(stage{}, &map, full + 8 * slot, {});", copies_of(plan))
    opening = ["const unsigned stage = base + slot * STAGE_BYTES;", "const int mn = mn_tile * TILE_MN, k = i * TILE_K;"]
    producer = Work({"copy a": copies}, {"i": opening}, {
        "wait empty": "passes at once while the slots are fresh", "expect full": "all copies of a tile",
        "tail empty": "every tile was read",
    })  # fmt: skip
    consumer = Work(
        {"multiply": ["consume(base, base + slot * STAGE_BYTES, result, mn_tile, i, k_tiles);"]},
        notes={"fence proxy.async": "the reads come before TMA's next writes"}, inside=("wgmma",),
    )  # fmt: skip
    return {
        "barrier_init": barrier_init(
            pipeline, {"full": "the producer's arrive.expect_tx", "empty": "one arrival of each consumer warp"}
        ),
        "producer": role_text(pipeline, "producer", producer, 6),
        "consumer_steps": role_text(pipeline, "consumer", consumer, 2),
        "group_steps": group_text(pipeline, "wgmma"),
    }


def copy_lines(call: str, copies: list[dict[str, Any]]) -> list[str]:
    """A call for each copy: its offset in the stage, and its coordinates."""
    return [call.format(f" + {copy['offset']}" if copy["offset"] else "", ", ".join(copy["coords"])) for copy in copies]


def built_for(target: str) -> dict[str, str]:
    """The target, such as sm_90a, and the command that compiles for it."""
    number = target.removeprefix("sm_")
    command = f"nvcc -std=c++17 -gencode=arch=compute_{number},code=sm_{number} -o tile tile.cu"
    return {"target": target, "build_command": command}


def _consumer(plan: Plan) -> dict[str, Any]:
    """How the tile is read in the proof: by descriptor, by ldmatrix and mma, or by threads."""
    problem = plan.problem
    row = multiplied(problem.data_type)
    consumer = problem.consumer
    name = consumer.op.name if isinstance(consumer, Access) else consumer
    if name == "tcgen05":
        limit = "programs are emitted for wgmma, ldmatrix and threads"
        raise refused("consumer", "consumer = tcgen05", limit, "Plan for sm_90, or take snippets of this plan.")
    if name == "wgmma" or name.startswith("ldmatrix"):
        if row is None:
            limit = "tensor cores multiply bf16, f16, tf32, e4m3, e5m2, s8 and u8 in emitted programs"
            raise refused(
                "data_type", f"{problem.data_type.name} for {name}", limit, 'Plan for consumer="ld.b128 rows".'
            )
        common = {
            "proof": "multiplies it by an identity matrix, so that the results are its elements",
            "result_type": row.c_accumulator[row.accumulator],
            "accumulator": row.c_accumulator[row.accumulator],
            "constraint": row.constraints[row.accumulator],
            "one": row.one,
            "k_step": K_STEP_BYTES * 8 // problem.data_type.bits,
            "data": {"bits": row.sample, "comment": f"a {problem.data_type.name} of moderate size"},
            "decode": {"exponent": row.exponent_bits, "mantissa": row.mantissa_bits, "bias": row.bias, "integer": row.integer},
        }  # fmt: skip
        return common | (_wgmma(plan, row) if name == "wgmma" else _mma(plan, row, name))
    assert isinstance(consumer, Access)
    vector_bytes = max(consumer.op.access_bytes, problem.data_type.bits // 8)
    if vector_bytes not in _VECTOR:
        raise refused(
            "consumer", f"consumer = {consumer.name}", "threads read 2 to 16 bytes at once", "Read ld.b16 or wider."
        )
    ptx, c_type, constraint, count = _VECTOR[vector_bytes]
    bits = "(h & 0x807FE000) | (0x78 + (h >> 40 & 7)) << 23" if problem.data_type.ptx.startswith("tf32") else "h"
    return {
        "consumer": "threads",
        "proof": "lets threads read it and write it back",
        "result_type": "Element",
        "vector_bytes": vector_bytes,
        "vector_words": {"ptx": ptx, "type": c_type, "constraint": constraint, "count": count},
        "by_columns": "columns" in consumer.name,
        "data": {"bits": bits, "comment": "any bits"},
        "decode": None,
        "uses": set(),
    }


def _wgmma(plan: Plan, row: Multiplied) -> dict[str, Any]:
    loop = plan.descriptors()
    operand, k_step = loop.operand, loop.k_per_step
    rows, n = (k_step, k_step) if operand == "A" else (IDENTITY_ROWS, loop.block_mn)
    identity = WgmmaDescriptor(0, leading_bytes=128, stride_bytes=256, swizzle="none")
    majors = [int(plan.problem.major == "MN" and operand == name) for name in ("A", "B")]
    flags = (
        f", 1, 1, {majors[0]}, {majors[1]}" if row.name in ("bf16", "f16") else ", 1, 1" if row.exponent_bits else ""
    )
    first = loop[0][0]
    return {
        "consumer": "wgmma_a" if operand == "A" else "wgmma_b",
        "identity": {
            "bytes": rows * K_STEP_BYTES,
            "comment": f"{rows} x {k_step}, K-major, no swizzle",
            "descriptor": f"{identity.encode():#x}",
            "fields": "core matrices 128 bytes apart along k, 256 along the rows",
        },
        "descriptors": [[f"{step.encode():#x}" for step in block] for block in loop],
        "descriptor_fields": f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes, swizzle {first.swizzle.name}; "
        "the start is the offset in the stage",
        "blocks": len(loop),
        "k_steps": len(loop[0]),
        "n": n,
        "wgmma": f"m64n{n}k{k_step}.{row.accumulator}.{row.name}.{row.name}",
        "wgmma_registers": n // 2,
        "wgmma_flags": flags,
        "uses": {"wgmma"},
    }  # fmt: skip


def _mma(plan: Plan, row: Multiplied, reader: str) -> dict[str, Any]:
    problem = plan.problem
    mn, k = problem.tile
    k_step = K_STEP_BYTES * 8 // problem.data_type.bits
    if row.name in ("e4m3", "e5m2") and not problem.arch.has("mma_fp8"):
        limit = "mma multiplies fp8 from sm_89 on"
        raise refused("data_type", f"{row.name} on {problem.arch.name}", limit, "Use sm_89 or later, or another type.")
    if problem.major == "MN" and problem.data_type.bits != 16:
        raise refused(
            "major", f"{reader} of an MN-major {row.name} tile", "ldmatrix.trans moves 16 bits", "Use K-major."
        )
    return {
        "consumer": "mma",
        "mma": f"m16n8k{k_step}.row.col.{row.accumulator}.{row.name}.{row.name}.{row.accumulator}",
        "mn_tail": mn % 16 != 0,
        "k_tail": k % k_step != 0,
        "uses": {"ldmatrix", "mma"},
    }


def _store(plan: Plan) -> dict[str, Any]:
    problem = plan.problem
    bits = problem.data_type.bits
    mn, k = problem.tile
    matrices = mn * k // 64 if bits == 16 and mn % 8 == 0 == k % 8 else 0
    count = next((count for count in (4, 2, 1) if matrices and matrices % count == 0), 0)
    constraint = {8: "r", 16: "h", 32: "r", 64: "l"}[bits]
    return {
        "stmatrix_count": count,
        "element_constraint": constraint,
        "element_cast": "static_cast<unsigned>(value)" if bits == 8 else "value",
        "uses": {"bulk_group", "proxy_fence"} | ({"stmatrix"} if count else set()),
        "store_ranks": (len(plan.box or ()),),
        "smem_bytes": problem.stages * plan.stage_bytes,
        "threads": 32 * CONSUMER_WARPS,
        "steps": role_text(plan_pipeline(plan), "epilogue", _storing(plan), 2),
        **built_for(problem.arch.name),
    }


def _storing(plan: Plan) -> Work:
    stores = copy_lines("tma_store(&map, stage{}, {});", copies_of(plan))
    return Work(
        {"write": ["write_tile(stage, mn_tile, i, k_tiles * TILE_K);"], "store": stores},
        {
            "i": [
                "const unsigned stage = base + slot * STAGE_BYTES;",
                "const int mn = mn_tile * TILE_MN, k = i * TILE_K;",
            ]
        },
        {
            "wait_group bulk": "TMA has read what this slot held",
            "fence proxy.async": "every writer, before the barrier",
        },
    )
