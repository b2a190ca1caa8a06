"""Facts about a product's scale factors for the templates: their maps, their stages, and where instructions find them."""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.emitter.gemm_facts import ScaledOperand, ScaleFacts
from tilescope.emitter.tile_program import map_facts
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.tmem_address import QUARTER_LANES
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_scales import SCALE_SLOTS, SCALED_ROWS, ScalePlan
from tilescope.planner.product import accumulator_columns

_SCALE_BITS = {"ue8m0": ("0x7F", "0x80"), "ue4m3": ("0x38", "0x40")}  # of 1 and 2


def scale_facts(gemm: GemmPlan, instructions: Sequence[int] = ()) -> ScaleFacts | None:
    """The scale factors of both operands; None: the types have none. `instructions` are tcgen05's words, one a K step."""
    if gemm.scales is None:
        return None
    m, n, _ = gemm.shape
    a, b = gemm.scale_plans
    first_column = gemm.accumulators * accumulator_columns(gemm.schedule.sums(gemm.tile))
    one, two = _SCALE_BITS[gemm.scales.scale_type]
    return ScaleFacts(
        format=gemm.scales.name,
        block=gemm.scales.block,
        qualifier=_qualifier(gemm, gemm.scales),
        instructions=[f"{word:#x}" for word in instructions],
        one=one,
        two=two,
        has_global=gemm.scales.name == "nvfp4",
        block_columns=a.block_columns,
        shift=_shift(gemm),
        a=_operand(gemm, 0, a, m, first_column),
        b=_operand(gemm, 1, b, n, first_column + a.columns),
    )


def _shift(gemm: GemmPlan) -> str:
    """The columns of tensor memory behind which the scale factors of a tile begin, as an expression of its origin."""
    letter, columns = ("m", gemm.tile[0]) if gemm.schedule.swapped else ("n", gemm.tile[1])
    if not gemm.product.in_tensor_memory or columns % SCALED_ROWS == 0:
        return ""
    return f"{letter} % {SCALED_ROWS} / {QUARTER_LANES}"


def _qualifier(gemm: GemmPlan, scales: ScaleFormat) -> str:
    """How an instruction spells the size of a block: family targets support only tcgen05's .block16 and .block32."""
    if gemm.product.in_tensor_memory:
        return f"block_scale.block{scales.block}"
    return f"block_scale.scale_vec::{scales.qualifier.split()[0]}"


def _operand(gemm: GemmPlan, number: int, plan: ScalePlan, rows: int, column: int) -> ScaledOperand:
    name = SCALE_SLOTS[number]
    return ScaledOperand(
        name=name,
        mn="mn"[number],
        offset=gemm.smem_offsets()[name][0],
        stage_bytes=plan.stage_bytes,
        box_words=plan.box[0],
        map=map_facts(plan.tensor_map(0, rows, gemm.shape[2])),
        column=column,
        copies=[(f"{copy.descriptor.encode():#x}", copy.address.column) for copy in plan.copies],
        step_columns=[step.column for step in plan.steps],
    )


def declare_stages(scales: ScaleFacts) -> str:
    """The declaration of where the scale factors of a stage start."""
    starts = (
        f"{part.name} = base + {part.name.upper()}_OFFSET + slot * {part.name.upper()}_STAGE_BYTES"
        for part in scales.both
    )
    return f"const unsigned {', '.join(starts)};"


def scale_loads(
    scales: ScaleFacts | None, barrier: str, *, in_pairs: bool = False, swapped: bool = False
) -> dict[str, list[str]]:
    """One copy for the scale factors of each operand; each block of a pair needs those of all columns of the sums."""
    if scales is None:
        return {}
    first = {"m": "m / 128", "n": "n / 128"}
    if in_pairs:  # each block loads half of either operand, but all scale factors of the columns
        letter = "m" if swapped else "n"
        first[letter] = f"({letter} - rank % 2 * (TILE_{letter.upper()} / 2)) / 128"
    return {
        f"copy {part.name}": [
            f"tma_load({part.name}, &{part.name}_map, {barrier} + 8 * slot, k_tile * {part.box_words}, {first[part.mn]});"
        ]
        for part in scales.both
    }
