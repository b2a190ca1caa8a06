"""The lines of a GEMM's producer and consumers, step by step as its pipeline has them."""

from __future__ import annotations

from math import prod

from tilescope.emitter.gemm_facts import EpilogueFacts, GemmOperand, MmaWork, ProductFacts, WgmmaWork
from tilescope.emitter.role_text import Work, role_named
from tilescope.emitter.scale_facts import declare_stages, scale_loads
from tilescope.emitter.source_template import render, template_values
from tilescope.emitter.tile_program import RolesFacts, copies_of_part, copy_lines
from tilescope.pipeline.description import Pipeline
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.consumer_roles import PROMOTED_RUN
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_schedule import Schedule

_PROMOTED_BEHIND = {  # waits of K steps that have two accumulators in turn: which sums are then complete
    "wgmma_wait<1>()": [
        f"if (k_tile % {PROMOTED_RUN} > 0 && is_odd) promote(d, even_sums);",
        f"if (k_tile % {PROMOTED_RUN} > 0 && !is_odd) promote(d, odd_sums);",
    ],
    "wgmma_wait<0>()": ["if (is_odd) promote(d, odd_sums);", "else promote(d, even_sums);"],
}


def gemm_roles(
    gemm: GemmPlan, product: ProductFacts, c: GemmOperand, work: WgmmaWork | MmaWork, epilogue: EpilogueFacts
) -> RolesFacts:
    """The code of the producer and the consumers, from the GEMM's pipeline."""
    schedule = gemm.schedule
    tile = [*_tile_number(schedule), *product.tile_lines]
    first_k = "k_tile * TILE_K"
    if not schedule.persistent or schedule.tail > 1:
        first_k = "first_k + k_tile * TILE_K"
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    scale_stages = [] if work.scales is None else [declare_stages(work.scales)]
    scaled = work.block_scales if isinstance(work, WgmmaWork) else None
    registers = work.registers if isinstance(work, WgmmaWork) else None
    b_sharers, a_sharers = schedule.multicast
    pipeline = plan_pipeline(gemm)
    producer = Work(
        lines={
            "copy a": part_loads(pipeline, product.a, "full", a_sharers),
            "copy b": [
                *part_loads(pipeline, product.b, "full", b_sharers),
                *([scaled.prefetch] if scaled is not None else []),
            ],
        }
        | scale_loads(work.scales, "full")
        | ({f"registers {registers.producer}": []} if registers is not None else {}),  # by all threads, before
        opening={
            "t": tile,
            "k_tile": [f"const int k = {first_k};", stages, *scale_stages],
            "early": _early_lines(first_k, "early", "b"),
            "late": _early_lines(first_k, "late", "a"),
        },
        notes={
            "griddepcontrol wait": "the kernel before this one has written A",
            "griddepcontrol launch": "the next one may start",
            "wait empty": "passes at once while the slots are fresh",
            "expect full": "A and B",
            "tail empty": "every stage was read",
        },
    )
    opened_tile = [
        *_tile_number(schedule, needs_k=scaled is not None),
        *product.tile_lines,
        *_prefetch_lines(gemm, epilogue),
        *([] if _loads_bias_late(gemm, work) else _bias_lines(gemm, epilogue)),
    ]
    in_turn = isinstance(work, WgmmaWork) and len(work.step_sums) == 2
    if isinstance(work, WgmmaWork):
        arrivals = "one arrival of the warpgroup" if work.ping_pong else "one arrival of each consumer warpgroup"
        if work.cluster_blocks > 1:
            arrivals += f" of {work.sharing_blocks}"
        sums = f"Accumulator d{epilogue.sums_extents};"
        clear = "true" if work.step_sums else "k_tile == 0"
        share = f"group, {clear}" if work.groups > 1 else clear
        if work.step_sums:
            scales = f" {scaled.declared}" if scaled is not None else ""
            of_steps = ", ".join(f"{name}{epilogue.sums_extents}" for name in work.step_sums)
            sums = f"Accumulator d{epilogue.sums_extents} = {{}}, {of_steps};{scales}"
    else:
        arrivals = "one arrival of each consumer warp"
        sums = f"Accumulator d{epilogue.sums_extents} = {{}};"
        share = "first_m, first_n"
    stores = copy_lines("tma_store(&c_map, c_slice{}, {});", c.copies)
    leaves = "break" if schedule.persistent else "return"
    shared_by = "parts" if schedule.tail > 1 else "PARTS"
    in_a_cluster = prod(schedule.cluster)
    index = f"tile * {in_a_cluster} + rank" if in_a_cluster > 1 else "tile * OWNERS + rank"
    if schedule.tail > 1:
        index = f"first_tile % tail_tiles * {in_a_cluster} + rank" if in_a_cluster > 1 else "blockIdx.x % tail_tiles"
    consumer = Work(
        lines={
            "multiply": _multiply_lines(work, share),
            "write a": [],
            "write parts": ["send_parts(d, base, rank);"],
            "read parts": ["add_part(d, base, rank, other);"],
            "write partial": [
                f"if (!add_all(d, partial, arrived, {index}, part, {shared_by})) {leaves};  // another block stores"
            ],
            "write": [
                *_globally_scaled(work),
                *render("gemm_epilogue.jinja", template_values(product, work, epilogue)).splitlines(),
            ],
            "store": [stored_at(gemm, epilogue), *stores],
            **_residual_lines(gemm, pipeline, c, epilogue),
        }
        | (
            {f"registers {registers.consumer}": [f"setmaxnreg_inc<{registers.consumer}>();"]}
            if registers is not None
            else {}
        ),
        opening={
            "turn": ["const int t = 2 * turn + instance;", *opened_tile, sums],
            "t": [*opened_tile, sums],
            "k_tile": [stages, *scale_stages],
        }
        | (_sums_in_turn(stages) if in_turn else {}),
        closing={"rest" if in_turn else "k_tile": _behind_the_sums(gemm, work, epilogue)},
        notes={
            "wait order": "the other warpgroup has seen all stages of its tile",
            "arrive order": "its turn",
            "wait_group bulk": "TMA has read the last slice"
            if not gemm.holds_all_slices
            else "TMA has read the last tile",
            "fence proxy.async": "before TMA's next access",
            "wait_group wgmma": "older products have read their stages",
        },
        unrolled=("slice", "k_tile") if in_turn else ("slice",),
        doubled=("k_tile",) if scaled is not None and scaled.is_ahead else (),
        behind=_PROMOTED_BEHIND if in_turn else {},
    )
    return RolesFacts.of(pipeline, producer, consumer, arrivals)


def part_loads(pipeline: Pipeline, operand: GemmOperand, barrier: str, parts: int) -> list[str]:
    """The copies of a stage of A or B; for a shared stage, this block's part to all blocks of the pipeline's mask."""
    name = operand.name
    if parts == 1:
        return copy_lines(f"tma_load({name}{{}}, &{name}_map, {barrier} + 8 * slot, {{}});", operand.copies)
    [step] = [
        step
        for step in role_named(pipeline, "producer").all_steps()
        if step.op == "copy" and str(step.target).startswith(f"{name}[")
    ]
    call = f"tma_multicast({name}{{}}, &{name}_map, {barrier} + 8 * slot, {step.arguments['mask']}, {{}});"
    copies = copies_of_part(operand.plan, operand.mn, parts, f"{name}_part")
    of_item = operand.copies[0].coords[2:]  # of a batch
    return copy_lines(call, tuple(copy._replace(coords=(*copy.coords, *of_item)) for copy in copies))


def _residual_lines(
    gemm: GemmPlan, pipeline: Pipeline, c: GemmOperand, epilogue: EpilogueFacts
) -> dict[str, list[str]]:
    """One copy loads a slice of the residual for all warpgroups, whose parts the pipeline distinguishes."""
    if not gemm.stages_residual:
        return {}
    barrier = "residual_full + 8 * instance" if gemm.schedule.ping_pong else "residual_full"
    call = f"tma_load(base + C_OFFSET{epilogue.buffer}{{}}, &residual_map, {barrier}, {{}});"
    loads = ["{", f"  {stored_at(gemm, epilogue)}", *(f"  {line}" for line in copy_lines(call, c.copies)), "}"]
    steps = [step for step in role_named(pipeline, "consumer").all_steps() if step.op == "copy"]
    writers = len(steps) // gemm.slices
    lines: dict[str, list[str]] = {"read c": []}
    for number, step in enumerate(steps):
        of_slice = [line.replace("slice", str(number // writers)) for line in loads]
        lines[f"copy {step.target}"] = of_slice if number % writers == 0 else []
    return lines


def _prefetch_lines(gemm: GemmPlan, epilogue: EpilogueFacts) -> list[str]:
    """Where a residual is added, its tile comes to the L2 while the sums are made: a row a thread."""
    if not (gemm.fused.residual and epilogue.fetches) or gemm.stages_residual:
        return []
    columns = gemm.fused.columns(gemm.tile[1])
    first = "n / 2" if gemm.fused.is_gated else "n"
    item = "static_cast<long long>(item) * m_rows + " if gemm.batch.stacks("c") and gemm.batch.count > 1 else "0ll + "
    return [
        f"const int residual_columns = C_N - {first} < {columns} ? C_N - {first} : {columns};",
        "if (threadIdx.x < TILE_M && m + static_cast<int>(threadIdx.x) < m_rows && beta != 0.0f) {",
        f"  prefetch_residual(residual + ({item}m + threadIdx.x) * C_N + {first}, residual_columns);",
        "}",
    ]


def _loads_bias_late(gemm: GemmPlan, work: WgmmaWork | MmaWork) -> bool:
    """Whether a bias is loaded behind the K steps.

    Sums that are promoted leave no registers for it. In a dependent launch, the kernel before may still write it, until A has come.
    """
    is_promoted = isinstance(work, WgmmaWork) and bool(work.step_sums)
    return is_promoted or gemm.schedule.dependent or not gemm.schedule.persistent


def _bias_lines(gemm: GemmPlan, epilogue: EpilogueFacts) -> list[str]:
    """The bias of the columns that a warp stores comes to its registers."""
    if not gemm.fused.bias:
        return []
    item = ", item" if gemm.batch.count > 1 else ""
    return [f"const TileBias tile_bias = load_bias({epilogue.bias_column}, lane, bias{item});"]


def _behind_the_sums(gemm: GemmPlan, work: WgmmaWork | MmaWork, epilogue: EpilogueFacts) -> list[str]:
    """What follows the K steps of a tile: a bias is loaded, unless it was before, and the sums of the last step are promoted."""
    lines = []
    if _loads_bias_late(gemm, work):
        lines += _bias_lines(gemm, epilogue)
    if isinstance(work, WgmmaWork) and len(work.step_sums) == 1:
        lines.append(_promote(work))
    return lines


def _early_lines(first_k: str, counter: str, matrix: str) -> list[str]:
    """The k and the stage of one matrix, for the loops of a dependent launch."""
    name = matrix.upper()
    return [
        f"const int k = {first_k.replace('k_tile', counter)};",
        f"const unsigned {matrix} = base + {name}_OFFSET + slot * {name}_STAGE_BYTES;",
    ]


def _globally_scaled(work: WgmmaWork | MmaWork) -> list[str]:
    """nvfp4 scales all of C by one number, before the first slice is converted."""
    if work.scales is None or not work.scales.has_global:
        return []
    scaled = "for (int i = 0; i < ROWS * COLUMNS * 4; ++i) d[i / (COLUMNS * 4)][i % (COLUMNS * 4)] *= global_scale;"
    return ["#pragma unroll", scaled]


def _multiply_lines(work: WgmmaWork | MmaWork, share: str) -> list[str]:
    """A K step; where its accumulator is promoted, the sums of the step before are added first: they are complete by then."""
    if isinstance(work, WgmmaWork) and len(work.step_sums) == 2:
        even, odd = (f"multiply({sums}, a, b, {share});" for sums in work.step_sums)
        return [f"if (is_odd) {odd}", f"else {even}"]
    if isinstance(work, WgmmaWork) and work.step_sums:
        fetches = () if work.block_scales is None else work.block_scales.fetches
        return [f"if (k_tile > 0) {_promote(work)}", f"multiply(step_sums, a, b, {share});", *fetches]
    scales = "" if work.scales is None else "sfa, sfb, m % 128, n % 128, "
    return [f"multiply(d, a, b, {scales}{share});"]


def _sums_in_turn(stages: str) -> dict[str, list[str]]:
    """How loops open whose K steps have two accumulators in turn: which one a step has; of a run its last step."""
    return {
        "run": ["constexpr bool is_odd = true;  // the last K step"],
        "k_tile": [stages, "const bool is_odd = k_tile % 2;"],
        "rest": [stages, "constexpr bool is_odd = false;"],
    }


def _promote(work: WgmmaWork) -> str:
    """The line that adds the sums of a K step to those of full precision."""
    return "promote(d, step_sums);" if work.block_scales is None else "promote(d, step_sums, scales);"


def _tile_number(schedule: Schedule, *, needs_k: bool = True) -> list[str]:
    """The number of the tile that a persistent block, or a cluster, takes in its round t."""
    in_clusters = prod(schedule.cluster) > 1
    first, all_blocks = ("first_tile", "clusters") if in_clusters else ("blockIdx.x", "gridDim.x")
    if schedule.tail == 1:
        return [f"const int tile = {first} + t * {all_blocks};"]
    all_blocks = "CLUSTERS" if in_clusters else "BLOCKS"
    first_k = ", first_k = part * tail_k_tiles * TILE_K" if needs_k else ""
    return [
        f"const int part = t == whole ? {first} / tail_tiles : 0{first_k};",
        f"const int tile = t == whole ? whole * {all_blocks} + {first} % tail_tiles : {first} + t * {all_blocks};",
    ]


def first_of_slice(gemm: GemmPlan, slices: int) -> str:
    """The column of C in which a slice of the sums begins, of swapped operands the row; gates halve columns."""
    swapped = gemm.schedule.swapped
    halved = " / 2" if gemm.fused.is_gated and not swapped else ""
    parts = ["m" if swapped else f"n{halved}"]
    if gemm.schedule.split > 1:
        parts.append(f"rank * (SHARE{halved})" if halved else "rank * SHARE")
    if slices > 1:
        parts.append("slice * C_COLUMNS")
    return " + ".join(parts)


def stored_at(gemm: GemmPlan, epilogue: EpilogueFacts) -> str:
    """The position of a slice of the sums in C."""
    column = first_of_slice(gemm, epilogue.slices)
    if gemm.schedule.swapped:
        halved = " / 2" if gemm.fused.is_gated else ""
        return f"const int mn = n{halved}, k = {column};  // columns and rows of C"
    return f"const int mn = m, k = {column};  // rows and columns of C"
