"""Scales of float32 in a GEMM's kernel: their arrays, and the lines that fetch them for a K step and apply them to its sums."""

from __future__ import annotations

from tilescope.emitter.gemm_facts import BlockScaleFacts
from tilescope.planner.block_scales import a_scale_shape, b_scale_shape
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_schedule import Schedule


def block_scale_facts(gemm: GemmPlan, groups: int) -> BlockScaleFacts | None:
    """What the kernel knows of its scales; None: it has none."""
    if not gemm.block_scales:
        return None
    _, n, k = gemm.shape
    has_item = gemm.batch.count > 1 or gemm.batch.is_of_experts
    item = ", item" if has_item else ""
    k_block = _k_block(gemm.schedule)
    return BlockScaleFacts(
        k_blocks=a_scale_shape(1, k)[0],
        b_shape=b_scale_shape(n, k),
        item=has_item,
        stacks_a=gemm.batch.stacks("a") and has_item,
        prefetch=f"prefetch_scales(a_scales, m, {k_block}, m_rows{item});",
        fetch=f"scales = fetch_scales(a_scales, b_scales, m, n, {k_block}, m_rows{', group' if groups > 1 else ''}, warp, lane{item});",
    )


def _k_block(schedule: Schedule) -> str:
    """The block of k that a K step multiplies: of blocks that share k, behind those of the blocks before."""
    shares_k = not schedule.persistent or schedule.tail > 1
    return "first_k / TILE_K + k_tile" if shares_k else "k_tile"
