"""Scales of float32 in a GEMM's kernel: their arrays, and the lines that fetch them for a K step and apply them to its sums.

Behind the products of step k, which take their time, threads take over the scales of k and load those of k + 1:

    promote(k - 1)    multiply(k)    scales = coming [k]    coming = fetch [k + 1]    …    promote(k)    multiply(k + 1)

Two steps at a time, so that nothing is moved. Where a thread has too many of them for that, it loads those of k there, and waits
for them before it promotes.
"""

from __future__ import annotations

from tilescope.emitter.gemm_facts import BlockScaleFacts
from tilescope.planner.block_scales import a_scale_shape, b_scale_shape, thread_scales
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_schedule import Schedule

_MOST_REGISTERS = 136  # of sums and scales, both twice, if the next step's are loaded ahead


def block_scale_facts(gemm: GemmPlan, groups: int, blocks: int) -> BlockScaleFacts | None:
    """The kernel's facts about its scales; None: it has none. A warpgroup of `groups` has `blocks` of 64 rows."""
    if not gemm.block_scales:
        return None
    _, n, k = gemm.shape
    has_item = gemm.batch.count > 1 or gemm.batch.is_of_experts
    item = ", item" if has_item else ""
    first = _first_block(gemm.schedule)
    sums = blocks * gemm.sums[1] // 2
    of_a_thread = thread_scales(gemm.sums[1], blocks, swapped=gemm.schedule.swapped)
    is_ahead = 2 * (sums + of_a_thread) <= _MOST_REGISTERS

    def fetch(k_block: str) -> str:
        arguments = f"m, n, {k_block}, m_rows{', group' if groups > 1 else ''}, warp, lane{item}"
        return f"fetch_scales(a_scales, b_scales, {arguments})"

    lines = [f"scales = {fetch(f'{first}k_tile')};"]
    if is_ahead:
        lines = ["scales = coming;", f"coming = {fetch(f'{first}k_tile + 1')};"]
    return BlockScaleFacts(
        k_blocks=a_scale_shape(1, k)[0],
        a_count=of_a_thread,
        b_shape=b_scale_shape(n, k),
        item=has_item,
        stacks_a=gemm.batch.stacks("a") and has_item,
        is_ahead=is_ahead,
        declared=f"Scales scales, coming = {fetch(f'{first}0')};" if is_ahead else "Scales scales;",
        prefetch=f"prefetch_scales(a_scales, m, {first}k_tile, m_rows{item});",
        fetches=tuple(lines),
    )


def _first_block(schedule: Schedule) -> str:
    """What comes before the number of a K step: of blocks that share k, the blocks of k before theirs."""
    shares_k = not schedule.persistent or schedule.tail > 1
    return "first_k / TILE_K + " if shares_k else ""
