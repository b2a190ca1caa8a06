"""The lines of the producer, the multiplier and the epilogue of a GEMM by tcgen05, step by step as its pipeline has them."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.emitter.gemm_facts import EpilogueFacts, GemmOperand, ProductFacts, Tcgen05Work
from tilescope.emitter.gemm_roles import part_loads, stored_at
from tilescope.emitter.role_text import Work, role_text
from tilescope.emitter.scale_facts import declare_stages, scale_loads
from tilescope.emitter.source_template import render, template_values
from tilescope.emitter.tile_order import tile_origin
from tilescope.emitter.tile_program import RolesFacts, copy_lines
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_smem import ANSWER_BYTES


def tcgen05_roles(
    gemm: GemmPlan, product: ProductFacts, c: GemmOperand, work: Tcgen05Work, epilogue: EpilogueFacts
) -> RolesFacts:
    """The code of the three roles, from the GEMM's pipeline."""
    pipeline = plan_pipeline(gemm)
    in_pairs = work.cta_group == 2
    next_tile = {
        "read answer": [f"tiles += take_tile(tile, answers + {ANSWER_BYTES} * (t % {gemm.schedule.answers}));"]
    }
    in_clusters = work.cluster_blocks > 1
    tile = "const int tile = blockIdx.x + t * gridDim.x;"
    if in_clusters:
        tile = "const int tile = first_tile + t * clusters;"
    numbered = [] if gemm.schedule.dynamic else [tile]  # cluster launch control gives the number
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    origin = tile_origin(gemm, "m_tiles")
    scale_stages = [] if work.scales is None else [declare_stages(work.scales)]
    offsets = _Offsets.of(gemm)
    barrier = "full_of_pair" if in_pairs else "full"
    producer = Work(
        lines=next_tile
        | {
            "copy a": part_loads(pipeline, product.a, barrier, gemm.schedule.multicast[1]),
            "copy b": part_loads(pipeline, product.b, barrier, gemm.schedule.multicast[0]),
        }
        | scale_loads(work.scales, barrier, in_pairs=in_pairs, swapped=gemm.schedule.swapped),
        opening={
            "t": [*numbered, *origin.lines(offsets.a_rows, offsets.b_columns)],
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
    shifted = []
    if work.scales is not None and work.scales.shift:  # the tile may begin in the middle of an atom
        lines = origin.lines(offsets.m_tile, offsets.n_tile)
        lines[-1] = _only(lines[-1], work.scales.shift[0])
        shifted = [*numbered, *lines, f"const int shift = {work.scales.shift};"]
    multiplier = Work(
        lines=next_tile
        | {
            "multiply": _multiply_lines(work, f"{sums}, {rows}, {columns}"),
        },
        opening={"t": shifted, "k_tile": [stages, *scale_stages]} if shifted else {"k_tile": [stages, *scale_stages]},
        notes={
            "wait acc_empty": "the epilogue has read this accumulator",
            "commit empty": "when the products have read the stage",
            "commit acc_full": "when the sums are complete",
            "tail acc_empty": "every accumulator was read",
        },
    )
    written = "gemm_epilogue.jinja" if work.tmem_load.shape == "16x256b" else "gemm_epilogue_rows.jinja"
    stored = Work(
        lines=next_tile
        | {
            "read accumulator": [
                "Accumulator d[ROWS][SUMS];",
                f"read_sums(d, {sums}{first_column}, warp);",
                *_globally_scaled(work),
            ],
            "write": render(written, template_values(product, work, epilogue)).splitlines(),
            "store": [stored_at(gemm, epilogue), *copy_lines("tma_store(&c_map, c_slice{}, {});", c.copies)],
        },
        opening={"t": [*numbered, *origin.lines(offsets.sums_m, offsets.sums_n)]},
        notes={
            "wait_group bulk": "TMA has read the last slice",
            "bulk_wait_read<1>()": "TMA has read the slice before the last",
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
            "empty": "a commit of the multiplier"
            + (" of every tile whose blocks fetch for it" if offsets.shares else ""),
            "acc_full": "a commit of the multiplier",
            "next_full": "the scheduler's arrive.expect_tx",
            "next_empty": "every thread that reads the answer" + (", of all blocks" if in_clusters else ""),
            "acc_empty": "every thread of the epilogue" + (", of both blocks" if in_pairs else ""),
        },
        producer=role_text(pipeline, "producer", producer, 6),
        consumer_steps=role_text(pipeline, "consumer", multiplier, 6),
        epilogue_steps=role_text(pipeline, "epilogue", stored, 4),
        scheduler_steps=role_text(pipeline, "scheduler", scheduler, 6) if gemm.schedule.dynamic else "",
    )


class _Offsets(NamedTuple):
    """Where a block of a cluster starts within its tiles: what it loads of A and B, and the sums that it stores."""

    a_rows: str
    b_columns: str
    sums_m: str
    sums_n: str
    m_tile: str  # those of the tile itself
    n_tile: str
    shares: bool

    @classmethod
    def of(cls, gemm: GemmPlan) -> _Offsets:
        """Those of a plan: the blocks of a pair are adjacent along m, and load half of the rows of A and of the columns of B each."""
        in_pairs = gemm.schedule.cta_group == 2
        along_m, along_n = gemm.schedule.multicast
        half_m, half_n = (" + rank % 2 * (TILE_M / 2)", " + rank % 2 * (TILE_N / 2)") if in_pairs else ("", "")
        m_tile = f" + x{' / 2' if in_pairs else ''} * TILE_M" if along_m > 1 else ""
        n_tile = " + y * TILE_N" if along_n > 1 else ""
        swapped = gemm.schedule.swapped
        return cls(
            a_rows=m_tile + half_m,
            b_columns=n_tile + half_n,
            sums_m=m_tile + ("" if swapped else half_m),
            sums_n=n_tile + (half_n if swapped else ""),
            m_tile=m_tile,
            n_tile=n_tile,
            shares=along_m * along_n > 1,
        )


def _multiply_lines(work: Tcgen05Work, operands: str) -> list[str]:
    """The products of a stage; scale factors come to tensor memory first."""
    if work.scales is None:
        return [f"multiply({operands}, k_tile == 0);"]
    shift = ", shift" if work.scales.shift else ""
    return ["copy_scales(tmem, sfa, sfb);", f"multiply({operands}, tmem{shift}, k_tile == 0);"]


def _only(line: str, name: str) -> str:
    """The declaration of only m or n, from a line that declares both.

    >>> _only("const int m = tile % 2 * 64, n = tile / 2 * 64;", "n")
    'const int n = tile / 2 * 64;'
    """
    m, n = line.removeprefix("const int ").removesuffix(";").split(", n = ")
    return f"const int {m};" if name == "m" else f"const int n = {n};"


def _globally_scaled(work: Tcgen05Work) -> list[str]:
    """nvfp4 scales all of C by one number: the product of both operands' global scales."""
    return ["scale_sums(d, global_scale);"] if work.scales is not None and work.scales.has_global else []
