"""Why a GEMM is planned as it is: its numbers and choices, each in a sentence."""

from __future__ import annotations

from tilescope.errors import counted
from tilescope.mma.tcgen05_kind import tcgen05_for
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_tiles import (
    BYTES_PER_S,
    FLOPS_16_BIT,
    arithmetic_us,
    flops_per_s,
    in_mb,
    in_us,
    in_words,
    memory_us,
)
from tilescope.planner.plans import MBARRIER_BYTES
from tilescope.planner.product import (
    ACCUMULATOR_BYTES,
    EXTENTS,
    REGISTER_FILE_BYTES,
    TENSOR_MEMORY_COLUMNS,
    Product,
    accumulator_columns,
    in_extents,
    is_exchanged,
)


def gemm_reasons(product: Product, best: GemmPlan, *, is_given: bool) -> tuple[str, ...]:
    """The plan's numbers and choices, each in a sentence."""
    full = f"{best.tiles / (best.rounds * best.sms):.0%}".replace("%", " %")
    grid = f"{counted(best.tiles, 'tile')} of C for {counted(best.sms, 'SM')}, {counted(best.rounds, 'round')}"
    return (
        f"Tile {in_words(best.tile)}: {grid}, {full} full.",
        _floor_words(product, best),
        *([] if is_given else _choice_words(best)),
        _accumulator_words(product, best),
        _stage_words(best),
        *_row_words(best),
        *_epilogue_words(best),
        *_exchange_words(product, best),
        *_scale_words(product),
        *_edge_words(best),
    )


def _floor_words(product: Product, best: GemmPlan) -> str:
    m, n, k = product.shape
    arithmetic, memory = arithmetic_us(product, best.tile), memory_us(product)
    bound = "arithmetic" if arithmetic >= memory else "memory"
    elsewhere = "" if product.arch.name == "sm_90" else f", not on {product.arch.name}"
    scaled = "" if product.data_type.smem_bits == 16 else f", from {FLOPS_16_BIT / 1e12:.0f} of 16-bit types"
    return (
        f"Floor {in_us(best.floor_us)}, bound by {bound}: {2 * m * n * k / 1e9:.1f} GFLOP in {counted(best.rounds, 'round')} take "
        f"{in_us(arithmetic)} at {flops_per_s(product) / 1e12:.0f} TFLOP/s (cuBLAS{scaled}), all bytes once {in_us(memory)} at "
        f"{BYTES_PER_S / 1e12:.2f} TB/s: rates measured on an H200{elsewhere}."
    )


def _choice_words(best: GemmPlan) -> list[str]:
    words = [
        f"{in_words(each.tile)} would come first, but: {each.violations[0].found}; {each.violations[0].limit}."
        for each in [each for each in best.refused if each.would_lead][:2]
    ]
    near = [each for each in best.ranked if each.behind_in != "floor"]
    chosen = best.ranked[0]
    if len(near) > 1:
        sentence = (
            f"Of {len(near)} tiles within a tenth of the lowest floor, none lets its busiest SM fetch less than "
            f"{in_mb(chosen.busiest_bytes)}"
        )
        ties = [each for each in near[1:] if each.behind_in in ("instructions", "order")]
        words.append(sentence + "".join(f"; {in_words(each.tile)} ties: {each.why}" for each in ties[:1]) + ".")
    elif best.others:
        words.append(f"No other tile's floor is within a tenth of it: {in_words(best.others[0].tile)} comes next.")
    return words


def _accumulator_words(product: Product, best: GemmPlan) -> str:
    m, n, _ = best.tile
    if product.consumer == "tcgen05":
        where = f"{accumulator_columns(best.tile)} of {TENSOR_MEMORY_COLUMNS} columns of tensor memory"
    else:
        where = f"{m * n * ACCUMULATOR_BYTES} of the {REGISTER_FILE_BYTES} bytes of an SM's registers"
    return f"Accumulators, {m} x {n} of {ACCUMULATOR_BYTES} bytes: {where}."


def _stage_words(best: GemmPlan) -> str:
    parts = [f"{counted(best.stages, 'stage')} of {best.a.stage_bytes} + {best.b.stage_bytes} bytes"]
    if best.epilogue is not None:
        parts.append(f"an epilogue of {best.epilogue.stage_bytes}")
    if best.a.boxes is not None:
        parts.append(f"{2 * best.stages} mbarriers of {MBARRIER_BYTES}")
    listed = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{listed}: {best.smem_bytes} of {best.budget_bytes} bytes."


def _row_words(best: GemmPlan) -> list[str]:
    """How wide the rows of A and B are in shared memory, and how the swizzle takes them."""
    said: dict[str, list[str]] = {}
    for matrix, each in (("A", best.a), ("B", best.b)):
        name = EXTENTS[matrix][1 if each.problem.major == "K" else 0]
        span = each.swizzle.span_bytes
        whole = (
            "core matrices of 8 x 16 bytes"
            if span is None
            else f"{counted(each.problem.row_bytes // span, 'span')} of {each.swizzle.name}"
        )
        said.setdefault(
            f"{each.problem.columns} {name} contiguous: {each.problem.row_bytes} bytes in shared memory, {whole}.", []
        ).append(matrix)
    return [f"Rows of {' and '.join(matrices)}, {words}" for words, matrices in said.items()]


def _epilogue_words(best: GemmPlan) -> list[str]:
    if best.epilogue is None:
        return ["Without TMA the accumulators are stored straight from registers: no shared memory for C."]
    width = best.epilogue.problem.columns
    turns = f", {counted(best.slices, 'slice')} in turn" if best.slices > 1 else ""
    slices = f"Epilogue: {width} columns of C at a time{turns}, written by {best.epilogue.costs.access}"
    return [f"{slices}, stored by TMA with swizzle {best.epilogue.swizzle.name}."]


def _exchange_words(product: Product, best: GemmPlan) -> list[str]:
    if not is_exchanged(product, best.tile):
        return []
    return [
        "A and B are exchanged: mma takes 16 rows, here of B, and 8 columns, here of A; its accumulators hold the transpose of C."
    ]


def _scale_words(product: Product) -> list[str]:
    by_tcgen05 = product.consumer == "tcgen05" and tcgen05_for(product.data_type).is_scaled
    by_mma = product.consumer == "ldmatrix" and product.data_type.name in ("e2m1", "16u4_align8b")
    if not by_tcgen05 and not by_mma:
        return []
    return [
        f"{product.data_type.name} packed two to a byte is multiplied with scale factors: their memory is not planned here."
    ]


def _edge_words(best: GemmPlan) -> list[str]:
    rows, columns = (
        [in_extents(each, *EXTENTS[matrix]) for each in plan.edge()] for matrix, plan in (("A", best.a), ("B", best.b))
    )
    edges = dict.fromkeys(each for name in "mnk" for each in (*rows, *columns) if each.startswith(f"{name}:"))
    return [f"Edge, {each}." for each in edges]
