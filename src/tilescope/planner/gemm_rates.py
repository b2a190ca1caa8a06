"""The rates behind predicted times: seconds, bytes and cycles of the parts of a GEMM kernel, fitted to kernels on an H200.

`gemm_time.py` has the model whose constants they are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmRates:
    """What the prediction rests on."""

    launch_us: float
    dependent_us: float  # of a dependent launch
    block_us: float  # and more for every block
    cycle_ns: float  # of the tensor cores, under load
    smem_cycles: float  # of wgmma, for every 128 bytes that it reads
    issue_us: float  # of a K step: a wait, a promise and a copy of either operand
    issue_span_us: float  # and more for the two copies of every further span of k
    slot_us: float  # from the wait for a free stage until its bytes have come and are seen
    tall_slot_ratio: (
        float  # added for tiles with more than 128 rows: more blocks of 64 rows read a stage before it is free
    )
    alone_ratio: (
        float  # of the time of wgmma if one warpgroup has all rows to that of several, which cover each other's waits
    )
    wide_ratio: float  # of the time of wgmma if a thread has more than 128 sums
    promoted_ratio: float  # of the time of a step whose sums are promoted to that of a plain one
    alone_promoted_ratio: float  # the same if one warpgroup has all rows: no other one multiplies while it adds
    in_turn_ratio: (
        float  # of the time of a step whose sums are promoted during the next one's products to that of a plain one
    )
    alone_in_turn_ratio: float  # the same if one warpgroup has all rows
    memory_gb_per_s: float
    l2_gb_per_s: float  # of all bytes that SMs load
    shared_l2_gb_per_s: float  # of the same, where what neighbouring blocks share counts once
    uneven_l2_gb_per_s: float  # of all loaded bytes, in addition, if rows straddle lines
    sm_gb_per_s: float  # loads of one SM
    uneven_sm_gb_per_s: float  # in addition, if rows straddle lines
    half_line_share: float  # of what straddling costs, where rows start at multiples of 64 bytes
    sector_share: float  # and of 32
    torn_bytes: float  # of memory for every row of C, at an edge between tiles within a sector
    torn_apart_bytes: float  # and more each time that the number of tiles taken between the two doubles
    apart_bytes: float  # the same at an edge between sectors
    inner_share: float  # of the cost of an edge, within a cluster
    epilogue_us: float  # of a round, before its bytes
    epilogue_gb_per_s: float  # of one SM
    unsliced_ratio: float  # of the time of an epilogue that stores a tile at once to that of one in slices
    turn_us: float  # from the last K step of a tile to the next tile of the other warpgroup
    cluster_us: float  # two meetings of a cluster
    cluster_block_us: float  # and more for every block of it
    cluster_gb_per_s: float  # of one SM's parts
    workspace_us: float  # the counter, and the way to the L2 and back
    workspace_part_us: float  # and more for every part that the last block adds
    workspace_write_gb_per_s: float  # of one SM
    workspace_read_gb_per_s: float
    multicast_us: float  # a cluster that starts together, and ends together
    multicast_step_us: (
        float  # of a K step: a stage is free when both blocks have read it; sums that are promoted cover that
    )
    even_multicast_ratio: (
        float  # of the time of such a K step, where no row straddles a line and warpgroups share tiles
    )
    read_twice_share: float  # of B: what comes from memory again where a cluster splits k and several tiles need it
    sustained_tflops: float  # of products beyond 10^12 operations, whose clock falls
    sustained_l2_gb_per_s: float  # of the same: what SMs fetch takes power too
    sharpness: float  # how suddenly the longest of several times takes over


# Fitted to 13,369 kernels for 751 shapes of bf16 and e4m3 under driver 580.159.04, CUDA 13.0, to their times and, with more weight, to
# their order. The rates of clusters, of turns, of C's edges and of more than 128 sums a thread were fitted again to 4,090 kernels for 196
# shapes of bf16, of which 45 have rows of C that start within sectors. The kernel that is predicted to be the fastest takes 2.1 % longer
# than the fastest measured one in the mean if all rows start at lines, 3.3 % longer if they straddle lines, and 5.1 % longer for e4m3.
H200_RATES = GemmRates(
    launch_us=2.426,
    dependent_us=0.65,
    block_us=0.004241,
    cycle_ns=0.572,
    smem_cycles=1.328,
    issue_us=0.09536,
    issue_span_us=0.01689,
    slot_us=0.6965,
    tall_slot_ratio=1.165,
    alone_ratio=1.172,
    wide_ratio=1.12,
    promoted_ratio=1.065,
    alone_promoted_ratio=1.955,
    in_turn_ratio=1.054,
    alone_in_turn_ratio=1.416,
    memory_gb_per_s=4474,
    l2_gb_per_s=38890,
    shared_l2_gb_per_s=9928,
    uneven_l2_gb_per_s=11170,
    sm_gb_per_s=9686,
    uneven_sm_gb_per_s=93.89,
    half_line_share=0.3912,
    sector_share=0.5667,
    torn_bytes=73,
    torn_apart_bytes=24,
    apart_bytes=4.4,
    inner_share=0.68,
    epilogue_us=0.02146,
    epilogue_gb_per_s=83.25,
    unsliced_ratio=1.454,
    turn_us=0.142,
    cluster_us=0.66,
    cluster_block_us=0.008929,
    cluster_gb_per_s=11.84,
    workspace_us=0.438,
    workspace_part_us=0.1354,
    workspace_write_gb_per_s=27.35,
    workspace_read_gb_per_s=104.3,
    multicast_us=0.47,
    multicast_step_us=0.0092,
    even_multicast_ratio=1.02,
    read_twice_share=0.7427,
    sustained_tflops=4121,
    sustained_l2_gb_per_s=18110,
    sharpness=2.764,
)


def transfer_us(moved_bytes: float, gb_per_s: float) -> float:
    """Microseconds that bytes take at a rate."""
    return moved_bytes / gb_per_s / 1e3
