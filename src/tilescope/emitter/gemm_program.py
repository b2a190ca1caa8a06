"""A GEMM plan as a whole program: persistent, warp-specialised, staged, and checked against a plain product."""

from __future__ import annotations

from math import ceil, prod, sqrt
from typing import Any

from tilescope.emitter.role_text import Work
from tilescope.emitter.source import CONVERSION, EMIT, K_STEP_BYTES, Multiplied, multiplied, rendered
from tilescope.emitter.tile_program import (
    ELEMENT,
    REGISTER,
    copies_of,
    copy_lines,
    descriptor_facts,
    load_destination,
    map_facts,
    plan_facts,
    require_program,
    roles_facts,
)
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_gemm import MAX_ACCUMULATORS
from tilescope.planner.plans import Plan
from tilescope.planner.staging import WARPGROUP_THREADS


def gemm_facts(gemm: GemmPlan) -> dict[str, Any]:
    """Everything that the program of a GEMM says, by the names that its template uses."""
    row = multiplied(gemm.data_type, "a GEMM", 'Plan with data_type="bf16".')
    require_program(gemm.a.problem.tensor_core)
    conversions = {name: body for (sums, name), body in CONVERSION.items() if sums == row.accumulator}
    if gemm.output_type.ptx not in conversions:
        limit = f"{row.accumulator} sums become {', '.join(conversions)}"
        fix = f"Use output_type={next(iter(conversions))!r}."
        raise EMIT.error("output_type", f"C of {gemm.output_type.name}", limit, fix)
    tma, bits = gemm.epilogue is not None, gemm.output_type.bits
    offsets = gemm.smem_offsets()
    plans = {"a": ("a", gemm.a), "b": ("b", gemm.b), "c": ("epilogue", gemm.epilogue)}
    operands = [_operand(gemm, name, plan, offsets[at][0]) for name, (at, plan) in plans.items() if plan is not None]
    facts: dict[str, Any] = row.sums | {
        "gemm": gemm,
        "title": f"GEMM {' x '.join(map(str, gemm.shape))} {gemm.data_type.ptx}, tile {' x '.join(map(str, gemm.tile))}",
        "operands": operands,
        "c": None,
        **{operand["name"]: operand for operand in operands},
        "tma": tma,
        "destination": load_destination(gemm.arch),
        "offsets": offsets,
        "element_type": ELEMENT[gemm.data_type.bits],
        "output_type": ELEMENT[bits],
        "register": REGISTER[bits],
        "conversion": conversions[gemm.output_type.ptx],
        "signed": row.name != "u8",
        "spread": max(3, ceil(3 * sqrt(gemm.shape[2] / 32))),  # of unsigned test data: sums of about 32
        "number_bits": _numbers(row, gemm.data_type.bits),
        "k_step": K_STEP_BYTES * 8 // gemm.data_type.bits,
        "transposed": False,
        "rank": 2,
    }  # fmt: skip
    facts |= _wgmma(gemm, row) if gemm.a.problem.reads_by_descriptor else _mma(gemm, row)
    facts |= _epilogue_facts(gemm, facts)
    facts["stmatrix_count"] = (4 if facts["columns"] % 16 == 0 else 2) if tma and bits == 16 else 0
    return facts | _roles(gemm, facts) if tma else facts


def _epilogue_facts(gemm: GemmPlan, facts: dict[str, Any]) -> dict[str, Any]:
    """How the sums of a thread are indexed, and the rows and columns of a slice of C that they belong to.

    Indices of loops with one turn are left out: one block of rows, one warpgroup, one slice.
    """
    slices = gemm.slices if gemm.epilogue is not None else 1
    if "groups" not in facts:
        other_slices = " - slice * C_COLUMNS" if slices > 1 else ""
        return {
            "slices": slices,
            "sums": "d[block]",
            "sums_extents": "[ROWS][COLUMNS * 4]",
            "first_row": "first_m + block * 16",
            "first_column": f"first_n + first{other_slices}",
        }
    groups, blocks, registers = facts["groups"], facts["blocks"], facts["wgmma_registers"]
    row_blocks = {  # of 64 rows: this warpgroup's, and of these the one that the loop is at
        (False, False): "",
        (False, True): "block * 64 + ",
        (True, False): "group * 64 + ",
        (True, True): f"(group * {blocks} + block) * 64 + ",
    }
    return {
        "slices": slices,
        "sums": "d[block]" if blocks > 1 else "d",
        "sums_extents": f"[{blocks}][{registers}]" if blocks > 1 else f"[{registers}]",
        "first_row": row_blocks[groups > 1, blocks > 1] + "warp * 16",
        "first_column": "first",
    }


def _roles(gemm: GemmPlan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the producer and the consumers do, as the GEMM's pipeline says."""
    by_groups = "groups" in facts
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
    zeroed, share = " = {}", "first_m, first_n"
    if by_groups:
        zeroed, share = "", "group, k_tile == 0" if facts["groups"] > 1 else "k_tile == 0"
    first_column = "n + slice * C_COLUMNS" if facts["slices"] > 1 else "n"
    stores = copy_lines("tma_store(&c_map, base + C_OFFSET{}, {});", facts["c"]["copies"])
    consumer = Work(
        {
            "multiply": [f"multiply(d, a, b, {share});"],
            "write": rendered("gemm_epilogue.jinja", facts).splitlines(),
            "store": [f"const int mn = m, k = {first_column};  // rows and columns of C", *stores],
        },
        {"t": [tile, f"Accumulator d{facts['sums_extents']}{zeroed};"], "k_tile": [stages]},
        {
            "wait_group bulk": "TMA has read the last slice",
            "fence proxy.async": "before TMA's next access",
            "wait_group wgmma": "older products have read their stages",
        },
        unrolled=("slice",),
    )
    return roles_facts(pipeline, producer, consumer, f"one arrival of each consumer warp{'group' if by_groups else ''}")


def _numbers(row: Multiplied, bits: int) -> list[str]:
    """The bits of -1, 0 and 1; of 0, 1 and 2 where there is no sign."""
    if row.exponent_bits:
        return [f"{int(row.one, 0) | 1 << (bits - 1):#x}", "0", row.one]
    return ["0xff", "0", "1"] if row.name == "s8" else ["0", "1", "2"]


def _operand(gemm: GemmPlan, name: str, plan: Plan, offset: int) -> dict[str, Any]:
    """A matrix of the product: its plan, where it lies in shared memory, and how it is copied and read."""
    m, n, k = gemm.shape
    mn, shape = {"a": ("m", (m, k)), "b": ("n", (n, k)), "c": ("mn", (m, n))}[name]
    facts = plan_facts(plan) | {"name": name, "mn": mn, "offset": offset, "transposed": plan.problem.major == "MN"}
    if plan.boxes is not None:
        facts |= {"copies": copies_of(plan, mn), "map": map_facts(plan.tensor_map(0, shape))}
    return facts | (descriptor_facts(plan) if name != "c" and plan.problem.reads_by_descriptor else {})


def _refused_tile(gemm: GemmPlan, limit: str, fix: str) -> Exception:
    found = f"a tile of {' x '.join(map(str, gemm.tile))}"
    return EMIT.error("tile", found, limit, fix, tile=gemm.tile, accumulators=MAX_ACCUMULATORS)


def _wgmma(gemm: GemmPlan, row: Multiplied) -> dict[str, Any]:
    a, b = gemm.a.descriptors(), gemm.b.descriptors()
    n, groups = b.block_mn, min(2, len(a))
    blocks = len(a) // groups
    if len(b) != 1 or len(a) % groups or blocks * n // 2 > MAX_ACCUMULATORS:
        most = f"at most {MAX_ACCUMULATORS} accumulators a thread"
        limit = f"two warpgroups hold {most}, and one instruction covers all of n"
        raise _refused_tile(gemm, limit, f"Plan with tile=(128, 256, {gemm.tile[2]}).")
    return row.wgmma(n, b.k_per_step, (gemm.a.problem.major, gemm.b.problem.major)) | {
        "consumer": "wgmma",
        "k_steps": len(b[0]),
        "groups": groups,
        "blocks": blocks,
        "consumer_threads": groups * WARPGROUP_THREADS,
        "threads": groups * WARPGROUP_THREADS + 32,
        "columns": gemm.epilogue.problem.columns if gemm.epilogue else 0,
        "partial": False,
        "target": str(gemm.arch.target("wgmma")),
    }  # fmt: skip


def _mma(gemm: GemmPlan, row: Multiplied) -> dict[str, Any]:
    _, n, k = gemm.tile
    k_step, warps = K_STEP_BYTES * 8 // gemm.data_type.bits, gemm.warps
    if not prod(warps) or k % k_step:
        limit = f"mma takes 16 rows, 8 columns and {k_step} of k, in at most {MAX_ACCUMULATORS} accumulators a thread"
        raise _refused_tile(gemm, limit, f"Plan with tile=(64, 64, {2 * k_step}).")
    has_slices = gemm.epilogue is not None and gemm.slices > 1
    return {
        "consumer": "mma",
        "mma": row.mma(k_step),
        "warps": warps,
        "consumer_threads": 32 * prod(warps),
        "threads": 32 * (prod(warps) + (gemm.epilogue is not None)),
        "columns": n // warps[1],
        "partial": has_slices,
        "target": gemm.arch.name,
    }
