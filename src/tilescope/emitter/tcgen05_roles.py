"""The lines of the producer, the multiplier and the epilogue of a GEMM by tcgen05, step by step as its pipeline has them."""

from __future__ import annotations

from tilescope.emitter.gemm_facts import EpilogueFacts, GemmOperand, ProductFacts, Tcgen05Work
from tilescope.emitter.gemm_roles import stored_at
from tilescope.emitter.role_text import Work, role_text
from tilescope.emitter.scale_facts import declare_stages, scale_loads
from tilescope.emitter.source_template import rendered, told
from tilescope.emitter.tile_order import tile_origin
from tilescope.emitter.tile_program import RolesFacts, copy_lines
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_gemm import ANSWER_BYTES


def tcgen05_roles(
    gemm: GemmPlan, product: ProductFacts, c: GemmOperand, work: Tcgen05Work, epilogue: EpilogueFacts
) -> RolesFacts:
    """What the three roles do, as the GEMM's pipeline says."""
    pipeline = plan_pipeline(gemm)
    in_pairs = work.cta_group == 2
    next_tile = {
        "read answer": [f"tiles += take_tile(tile, answers + {ANSWER_BYTES} * (t % {gemm.schedule.answers}));"]
    }
    tile = "const int tile = first_tile + t * pairs;" if in_pairs else "const int tile = blockIdx.x + t * gridDim.x;"
    numbered = [] if gemm.schedule.dynamic else [tile]  # cluster launch control gives the number
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    origin = tile_origin(gemm, "m_tiles")
    scale_stages = [] if work.scales is None else [declare_stages(work.scales)]
    half_m = " + rank * (TILE_M / 2)" if in_pairs else ""
    half_n = " + rank * (TILE_N / 2)" if in_pairs else ""
    barrier = "full_of_pair" if in_pairs else "full"
    producer = Work(
        lines=next_tile
        | {
            "copy a": copy_lines(f"tma_load(a{{}}, &a_map, {barrier} + 8 * slot, {{}});", product.a.copies),
            "copy b": copy_lines(f"tma_load(b{{}}, &b_map, {barrier} + 8 * slot, {{}});", product.b.copies),
        }
        | scale_loads(work.scales, barrier, in_pairs=in_pairs),
        opening={
            "t": [*numbered, *origin.lines(half_m, half_n)],
            "k_tile": ["const int k = k_tile * TILE_K;", stages, *scale_stages],
        },
        notes={
            "wait empty": "passes at once while the slots are fresh",
            "expect full": "A and B of both blocks" if in_pairs else "A and B",
            "tail empty": "every stage was read",
        },
    )
    rows, columns = work.rows_operand.name, work.columns_operand.name
    sums = f"tmem + t % {gemm.accumulators} * COLUMNS"
    first_column = " + slice * C_COLUMNS" if epilogue.slices > 1 else ""
    multiplier = Work(
        lines=next_tile
        | {
            "multiply": _multiplied(work, f"{sums}, {rows}, {columns}"),
        },
        opening={"k_tile": [stages, *scale_stages]},
        notes={
            "wait acc_empty": "the epilogue has read this accumulator",
            "commit empty": "when the products have read the stage",
            "commit acc_full": "when the sums are complete",
            "tail acc_empty": "every accumulator was read",
        },
    )
    written = "gemm_epilogue.jinja" if work.tmem_load.shape == "16x256b" else "gemm_epilogue_rows.jinja"
    swapped = gemm.schedule.swapped
    stored = Work(
        lines=next_tile
        | {
            "read accumulator": [
                "Accumulator d[ROWS][SUMS];",
                f"read_sums(d, {sums}{first_column}, warp);",
                *_globally_scaled(work),
            ],
            "write": rendered(written, told(product, work, epilogue)).splitlines(),
            "store": [stored_at(gemm, epilogue), *copy_lines("tma_store(&c_map, c_slice{}, {});", c.copies)],
        },
        opening={"t": [*numbered, *origin.lines("" if swapped else half_m, half_n if swapped else "")]},
        notes={
            "wait_group bulk": "TMA has read the last slice"
            if gemm.c_buffers == 1
            else "TMA has read the slice before the last",
            "fence proxy.async": "before TMA's next access",
            "release acc_empty": "the multiplier may overwrite it",
        },
        unrolled=("slice",),
    )
    scheduler = Work(
        lines=next_tile | {"copy answer": [f"ask_tile(answers + {ANSWER_BYTES} * slot, next_full + 8 * slot);"]},
        notes={
            "wait next_empty": "every role has read the answer",
            "tail next_empty": "every answer was read",
        },
    )
    return RolesFacts(
        barriers=pipeline.barriers,
        arrivals={
            "full": "the producer's arrive.expect_tx",
            "empty": "a commit of the multiplier",
            "acc_full": "a commit of the multiplier",
            "next_full": "the scheduler's arrive.expect_tx",
            "next_empty": "every thread that reads the answer" + (", of both blocks" if in_pairs else ""),
            "acc_empty": "every thread of the epilogue" + (", of both blocks" if in_pairs else ""),
        },
        producer=role_text(pipeline, "producer", producer, 6),
        consumer_steps=role_text(pipeline, "consumer", multiplier, 6),
        epilogue_steps=role_text(pipeline, "epilogue", stored, 4),
        scheduler_steps=role_text(pipeline, "scheduler", scheduler, 6) if gemm.schedule.dynamic else "",
    )


def _multiplied(work: Tcgen05Work, operands: str) -> list[str]:
    """The products of a stage; scale factors come to tensor memory first."""
    if work.scales is None:
        return [f"multiply({operands}, k_tile == 0);"]
    return ["copy_scales(tmem, sfa, sfb);", f"multiply({operands}, tmem, k_tile == 0);"]


def _globally_scaled(work: Tcgen05Work) -> list[str]:
    """nvfp4 scales all of C by one number: the product of both operands' global scales."""
    return ["scale_sums(d, global_scale);"] if work.scales is not None and work.scales.has_global else []
