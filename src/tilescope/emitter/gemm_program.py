"""A GEMM plan as a whole program: persistent, warp-specialised, staged, and checked against a plain product."""

from __future__ import annotations

from math import prod
from typing import Any

from tilescope.data_type import DataType
from tilescope.emitter.multiply import CONVERSION, Multiplied, multiplied
from tilescope.emitter.role_text import Work, barrier_init, role_text
from tilescope.emitter.source import rendered
from tilescope.emitter.tile_program import (
    ELEMENT,
    K_STEP_BYTES,
    address_lines,
    built_for,
    copies_of,
    copy_lines,
    map_of,
    refused,
)  # fmt: skip
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import MAX_ACCUMULATORS, GemmPlan
from tilescope.planner.plans import Plan

WARPGROUP = 128  # threads


def gemm_facts(gemm: GemmPlan) -> dict[str, Any]:
    """Everything that the program of a GEMM says, by the names that its template uses."""
    row = multiplied(gemm.data_type)
    consumer = gemm.a.problem.consumer
    if row is None:
        limit = "tensor cores multiply bf16, f16, tf32, e4m3, e5m2, s8 and u8 in emitted programs"
        raise refused("data_type", f"a GEMM of {gemm.data_type.name}", limit, "Use bf16.")
    if consumer not in ("wgmma", "ldmatrix"):
        limit = "programs are emitted for wgmma, ldmatrix and threads"
        raise refused("consumer", f"consumer = {consumer}", limit, "Plan for sm_90, or take snippets of its plans.")
    conversion = CONVERSION.get((row.accumulator, gemm.output_type.ptx))
    if conversion is None:
        known = ", ".join(name for sums, name in CONVERSION if sums == row.accumulator)
        raise refused(
            "output_type",
            f"C of {gemm.output_type.name}",
            f"{row.accumulator} sums become {known}",
            f"Use output_type={known.split(', ')[0]!r}.",
        )
    by_tma = gemm.epilogue is not None
    offsets = gemm.smem_offsets()
    a, b = (_operand(gemm, name, plan, offsets[name][0]) for name, plan in (("a", gemm.a), ("b", gemm.b)))
    c = None if gemm.epilogue is None else _result(gemm, gemm.epilogue, offsets["epilogue"][0])
    barriers = offsets.get("barriers", (0,) * 2 * gemm.stages)
    bits = gemm.output_type.bits
    facts: dict[str, Any] = {
        "title": f"GEMM {' x '.join(map(str, gemm.shape))} {gemm.data_type.ptx}, tile {' x '.join(map(str, gemm.tile))}",
        "summary": [],
        "shape": gemm.shape,
        "tile": gemm.tile,
        "stages": gemm.stages,
        "a": a,
        "b": b,
        "c": c,
        "operands": [a, b] if c is None else [a, b, c],
        "tma": by_tma,
        "full_offset": barriers[0],
        "empty_offset": barriers[gemm.stages],
        "smem_bytes": gemm.smem_bytes,
        "element_type": ELEMENT[gemm.data_type.bits],
        "element_bits": gemm.data_type.bits,
        "type_name": gemm.data_type.name,
        "accumulator": row.c_accumulator[row.accumulator],
        "constraint": row.constraints[row.accumulator],
        "output_type": ELEMENT[bits],
        "output_name": gemm.output_type.name,
        "output_bits": bits,
        "output_constraint": {8: "r", 16: "h", 32: "r"}[bits],
        "output_cast": "static_cast<unsigned>(value)" if bits == 8 else "value",
        "conversion": conversion,
        "signed": row.name != "u8",
        "number_bits": _numbers(row, gemm.data_type),
        "k_step": K_STEP_BYTES * 8 // gemm.data_type.bits,
        "transposed": False,
        "load_ranks": (2,) if by_tma else (),
        "store_ranks": (2,) if by_tma else (),
    }
    facts |= _wgmma(gemm, row) if consumer == "wgmma" else _mma(gemm, row)
    facts["uses"] |= {"mbarrier", "bulk_group", "proxy_fence"} if by_tma else {"cp_async"}
    if by_tma and bits == 16:
        facts["stmatrix_count"] = 4 if facts["epilogue"]["columns"] % 16 == 0 else 2
        facts["epilogue"]["step"] = 4 * facts["stmatrix_count"]
        facts["uses"].add("stmatrix")
    return facts | (_roles(gemm, facts) if by_tma else {})


def _roles(gemm: GemmPlan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the producer and the consumers do, as the GEMM's pipeline says."""
    by_groups = facts["consumer"] == "wgmma"
    pipeline = plan_pipeline(gemm, consumers=facts["groups"]) if by_groups else plan_pipeline(gemm)
    tile = "const int tile = blockIdx.x + t * gridDim.x, m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;"
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    copies = {
        f"copy {name}": copy_lines(f"tma_load({name}{{}}, &{name}_map, full + 8 * slot, {{}});", facts[name]["copies"])
        for name in "ab"
    }
    producer = Work(copies, {"t": [tile], "k_tile": ["const int k = k_tile * TILE_K;", stages]}, {
        "wait empty": "passes at once while the slots are fresh", "expect full": "A and B", "tail empty": "every stage was read",
    })  # fmt: skip
    sums, share = (
        (f"d[{facts['blocks']}][{facts['wgmma_registers']}];", "group, k_tile == 0") if by_groups
        else ("d[ROWS][COLUMNS * 4] = {};", "first_m, first_n")
    )  # fmt: skip
    stores = copy_lines("tma_store(&c_map, base + C_OFFSET{}, {});", facts["c"]["copies"])
    consumer = Work(
        {
            "multiply": [f"multiply(d, a, b, {share});"],
            "write": rendered("gemm_epilogue.jinja", facts).splitlines(),
            "store": ["const int mn = m, k = n + slice * C_COLUMNS;  // rows and columns of C", *stores],
        },
        {"t": [tile, f"Accumulator {sums}"], "k_tile": [stages]},
        {
            "wait_group bulk": "TMA has read the last slice",
            "fence proxy.async": "before TMA's next access",
            "wait_group wgmma": "older products have read their stages",
        },
        unrolled=("slice",),
    )
    arrivals = f"one arrival of each consumer warp{'group' if by_groups else ''}"
    return {
        "barrier_init": barrier_init(pipeline, {"full": "the producer's arrive.expect_tx", "empty": arrivals}),
        "producer": role_text(pipeline, "producer", producer, 6),
        "consumer_steps": role_text(pipeline, "consumer", consumer, 2),
    }


def _numbers(row: Multiplied, data_type: DataType) -> list[str]:
    """The bits of -1, 0 and 1; of 0, 1 and 2 where there is no sign."""
    if row.name == "u8":
        return ["0", "1", "2"]
    minus = 0xFF if row.name == "s8" else int(row.one, 0) | 1 << (data_type.bits - 1)
    return [f"{minus:#x}", "0", row.one]


def _operand(gemm: GemmPlan, name: str, plan: Plan, offset: int) -> dict[str, Any]:
    problem = plan.problem
    k_major = problem.major == "K"
    mn = "m" if name == "a" else "n"
    whole = mn.upper()
    named = {
        "name": name,
        "names": f"{mn}, k",
        "offset": offset,
        "stage_bytes": plan.stage_bytes,
        "comment": f"{problem.tile[0]} x {problem.tile[1]}, {problem.major}-major, swizzle {plan.swizzle.name}",
        "address_lines": address_lines(plan),
        "transposed": not k_major,
        "rows": problem.rows,
        "row_chunks": problem.row_bytes // 16,
        "from_row_column": "row, column" if k_major else "column, row",
        "matrix": f"{whole}, K" if k_major else f"K, {whole}",
        "corner": f"{mn}, k" if k_major else f"k, {mn}",
        "index": f"{mn} * K + k" if k_major else f"k * {whole} + {mn}",
    }
    if plan.boxes is not None:
        shape = (gemm.shape[0 if name == "a" else 1], gemm.shape[2])
        named |= {"copies": copies_of(plan, mn), "map": map_of(plan.tensor_map(0, shape))}
    return named


def _result(gemm: GemmPlan, plan: Plan, offset: int) -> dict[str, Any]:
    columns = plan.problem.columns
    return {
        "name": "c",
        "names": "row, column",
        "offset": offset,
        "columns": columns,
        "comment": f"a slice of the tile, {gemm.tile[0]} x {columns}, swizzle {plan.swizzle.name}",
        "address_lines": address_lines(plan),
        "copies": copies_of(plan),
        "map": map_of(plan.tensor_map(0, gemm.shape[:2])),
    }


def _wgmma(gemm: GemmPlan, row: Multiplied) -> dict[str, Any]:
    loops = gemm.a.descriptors(), gemm.b.descriptors()
    n, k_step = loops[1].block_mn, loops[1].k_per_step
    groups = min(2, len(loops[0]))
    blocks = len(loops[0]) // groups
    if len(loops[1]) != 1 or len(loops[0]) % groups or blocks * n // 2 > MAX_ACCUMULATORS:
        found = f"a tile of {gemm.tile[0]} x {gemm.tile[1]}"
        limit = (
            f"two warpgroups hold at most {MAX_ACCUMULATORS} accumulators a thread, and one instruction covers all of n"
        )
        raise refused("tile", found, limit, "Plan with tile=(128, 256, k) or a smaller one.")
    majors = [int(plan.problem.major == "MN") for plan in (gemm.a, gemm.b)]
    flags = (
        f", 1, 1, {majors[0]}, {majors[1]}" if row.name in ("bf16", "f16") else ", 1, 1" if row.exponent_bits else ""
    )
    described: dict[str, Any] = {}
    for name, loop in zip("ab", loops, strict=True):
        first = loop[0][0]
        described[name] = {
            "descriptors": [[f"{step.encode():#x}" for step in block] for block in loop],
            "descriptor_fields": f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes, swizzle {first.swizzle.name}",
        }
    offsets = gemm.smem_offsets()
    return {
        "consumer": "wgmma",
        "a": _operand(gemm, "a", gemm.a, offsets["a"][0]) | described["a"],
        "b": _operand(gemm, "b", gemm.b, offsets["b"][0]) | described["b"],
        "k_steps": len(loops[1][0]),
        "groups": groups,
        "blocks": blocks,
        "wgmma": f"m64n{n}k{k_step}.{row.accumulator}.{row.name}.{row.name}",
        "wgmma_registers": n // 2,
        "wgmma_flags": flags,
        "consumer_threads": groups * WARPGROUP,
        "threads": groups * WARPGROUP + 32,
        "roles_comment": f"A producer warp loads, {'two warpgroups multiply' if groups == 2 else 'a warpgroup multiplies'}.",
        "uses": {"wgmma"},
        "stmatrix_count": 0,
        "epilogue": {
            "blocks": blocks,
            "row": f"(group * {blocks} + block) * 64 + warp * 16",
            "columns": gemm.epilogue.problem.columns if gemm.epilogue else 0,
            "step": 8,
            "held": "slice * (C_COLUMNS / 8)",
            "column": "first",
            "partial": False,
        },
        **built_for(str(gemm.arch.target("wgmma"))),
    }  # fmt: skip


def _mma(gemm: GemmPlan, row: Multiplied) -> dict[str, Any]:
    m, n, k = gemm.tile
    k_step, warps = K_STEP_BYTES * 8 // gemm.data_type.bits, gemm.warps
    if not prod(warps) or k % k_step:
        found = f"a tile of {m} x {n} x {k}"
        limit = f"mma takes 16 rows, 8 columns and {k_step} of k, in at most {MAX_ACCUMULATORS} accumulators a thread"
        raise refused("tile", found, limit, "Plan with tile=(64, 64, k).")
    columns = n // warps[1]
    partial = gemm.epilogue is not None and gemm.epilogue.problem.columns != n
    return {
        "consumer": "mma",
        "mma": f"m16n8k{k_step}.row.col.{row.accumulator}.{row.name}.{row.name}.{row.accumulator}",
        "warps": warps,
        "consumer_threads": 32 * warps[0] * warps[1],
        "threads": 32 * (warps[0] * warps[1] + (gemm.epilogue is not None)),
        "roles_comment": f"{'A producer warp loads, ' if gemm.epilogue else ''}{warps[0] * warps[1]} warps multiply.",
        "uses": {"mma"},
        "stmatrix_count": 0,
        "epilogue": {
            "blocks": "ROWS", "row": "first_m + block * 16", "columns": columns, "step": 8, "held": "0",
            "column": "first_n + first - slice * C_COLUMNS", "partial": partial or warps[1] > 1,
        },
        **built_for(gemm.arch.name),
    }  # fmt: skip
