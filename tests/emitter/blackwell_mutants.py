"""Emitted programs with one thing wrong: a barrier's count, its bytes, a bit of a mask, a parity, a wait, a fence or a column."""

import re
from math import prod
from typing import NamedTuple

from blackwell_programs import PROGRAMS, launch_of, ptx_of

import tilescope as ts
from tilescope.emitter.emission import device_half


class Mutation(NamedTuple):
    """What is replaced: a pattern of the source, and what stands in its place."""

    name: str
    pattern: str
    replacement: str


MUTATIONS = (
    # counts
    Mutation("full counts 2", r"mbarrier_init\(full \+ 8 \* stage, 1\)", "mbarrier_init(full + 8 * stage, 2)"),
    Mutation("empty counts 2", r"mbarrier_init\(empty \+ 8 \* stage, 1\)", "mbarrier_init(empty + 8 * stage, 2)"),
    Mutation("acc_full counts 2", r"mbarrier_init\(acc_full \+ 8 \* i, 1\)", "mbarrier_init(acc_full + 8 * i, 2)"),
    Mutation("acc_empty counts 1 less", r"(acc_empty \+ 8 \* i, )(128|256)\)", r"\1\2 - 1)"),
    Mutation("acc_empty counts 1 more", r"(acc_empty \+ 8 \* i, )(128|256)\)", r"\1\2 + 1)"),
    Mutation("acc_empty counts half", r"(acc_empty \+ 8 \* i, )(128|256)\)", r"\1\2 / 2)"),
    Mutation("acc_empty counts warps", r"(acc_empty \+ 8 \* i, )(128|256)\)", r"\1\2 / 32)"),
    # bytes
    Mutation("16 bytes more", r"(mbarrier_arrive_expect\(full \+ 8 \* slot, )(\d+)\)", r"\1\2 + 16)"),
    Mutation("16 bytes less", r"(mbarrier_arrive_expect\(full \+ 8 \* slot, )(\d+)\)", r"\1\2 - 16)"),
    Mutation("half of the bytes", r"(mbarrier_arrive_expect\(full \+ 8 \* slot, )(\d+)\)", r"\1\2 / 2)"),
    # masks and ranks
    Mutation("empty of the leader alone", r"(tcgen05_commit\(empty \+ 8 \* slot, )3", r"\g<1>1"),
    Mutation("empty of the peer alone", r"(tcgen05_commit\(empty \+ 8 \* slot, )3", r"\g<1>2"),
    Mutation("acc_full of the leader alone", r"(tcgen05_commit\(acc_full [^,]*, )3", r"\g<1>1"),
    Mutation("acc_full of the peer alone", r"(tcgen05_commit\(acc_full [^,]*, )3", r"\g<1>2"),
    Mutation("copies signal their own block", r"full_of_pair = remote_address\([^)]*\)", "full_of_pair = full"),
    Mutation("both blocks expect", r"if \(rank % 2 == 0\) (mbarrier_arrive_expect)", r"\1"),
    Mutation(
        "the epilogue frees its own block",
        r"mbarrier_arrive_at\((acc_empty[^;]*), rank - rank % 2\)",
        r"mbarrier_arrive(\1)",
    ),
    Mutation("copies of B signal stage 0", r"(tma_load\(b[^;]* \+ 8 \* )slot", r"\g<1>0"),
    Mutation("the next stage is freed", r"(tcgen05_commit\(empty \+ 8 \* )slot", r"\1((slot + 1) % STAGES)"),
    # parities
    Mutation("producer's parity", r"(mbarrier_wait\(empty \+ 8 \* slot, .*) \^ 1\);  // passes", r"\1);  // passes"),
    Mutation("multiplier's parity", r"(mbarrier_wait\(full \+ 8 \* slot, [^;]*)\);", r"\1 ^ 1);"),
    Mutation("parity of acc_empty", r"(mbarrier_wait\(acc_empty \+ 8 \* \(t [^;]*) \^ 1\);", r"\1);"),
    Mutation("parity of acc_full", r"(mbarrier_wait\(acc_full [^;]*)\);", r"\1 ^ 1);"),
    # waits and meetings
    Mutation("no wait for empty", r"mbarrier_wait\(empty \+ 8 \* slot[^;]*;  // passes", ";  // passes"),
    Mutation("no wait for full", r"mbarrier_wait\(full \+ 8 \* slot[^;]*;", ";"),
    Mutation("no wait for acc_empty", r"mbarrier_wait\(acc_empty \+ 8 \* \(t [^;]*;", ";"),
    Mutation("no wait for acc_full", r"mbarrier_wait\(acc_full [^;]*;", ";"),
    Mutation("no wait for the stores", r"if \(threadIdx.x == 0\) bulk_wait_read<\d>\(\);  // TMA", ";  // TMA"),
    Mutation("no wait for tcgen05.ld", r"tcgen05.wait::ld.sync.aligned;", ""),
    Mutation("no commit of empty", r"tcgen05_commit\(empty \+ 8 \* slot[^;]*;", ";"),
    Mutation("no commit of acc_full", r"tcgen05_commit\(acc_full [^;]*;", ";"),
    Mutation("dealloc before the last reads", r"\w+\(\);  // nobody uses tensor memory", ";  // nobody"),
    # fences
    Mutation("no fence before the stores", r"fence_proxy_async\(\);  // before", ";  // before"),
    Mutation("no fence of mbarrier.init", r'asm volatile\("fence.mbarrier_init.release.cluster;" ::: "memory"\);', ""),
    Mutation(
        "no fence behind acc_full",
        r"(mbarrier_wait\(acc_full [^\n]*\n\s*)tcgen05_fence_after\(\);",
        r"\1",
    ),
    Mutation(
        "no fence behind acc_empty",
        r"(mbarrier_wait\(acc_empty \+ 8 \* \(t [^\n]*\n\s*)tcgen05_fence_after\(\);",
        r"\1",
    ),
    Mutation("no fence before acc_empty", r"tcgen05_fence_before\(\);(\s*mbarrier_arrive)", r"\1"),
    # columns
    Mutation("one accumulator is written", r"multiply\(tmem \+ t % 2 \* COLUMNS", "multiply(tmem"),
    Mutation("one accumulator is read", r"read_sums\(d, tmem \+ t % 2 \* COLUMNS", "read_sums(d, tmem"),
    Mutation("the next column is written", r"multiply\(tmem \+", "multiply(tmem + 1 +"),
    Mutation("columns 8 further are read", r"read_sums\(d, tmem \+", "read_sums(d, tmem + 8 +"),
    Mutation("the first slice is always read", r" \+ slice \* C_COLUMNS, warp\)", ", warp)"),
    Mutation("half of the columns are allocated", r"(TMEM_COLUMNS = )(\d+);", r"\1\2 / 2;"),
    Mutation("sums are never cleared", r"k_tile == 0\);", "false);"),
    # scale factors
    Mutation("scales of A are not copied", r"tcgen05_copy\(tmem \+ SFA_COLUMN[^;]*;", ";"),
    Mutation(
        "scales of B go 4 columns further", r"tcgen05_copy\(tmem \+ SFB_COLUMN", "tcgen05_copy(tmem + 4 + SFB_COLUMN"
    ),
    Mutation("scales of B of the next column", r"tmem \+ SFB_COLUMN \+ SFB\[", "tmem + 4 + SFB_COLUMN + SFB["),
    Mutation("scales of A over those of B", r"(SFA_COLUMN = \d+, SFB_COLUMN = )\d+", r"\g<1>SFA_COLUMN"),
    Mutation("scales over the first accumulator", r"SFA_COLUMN = \d+", "SFA_COLUMN = 0"),
    Mutation("every instruction begins with the first word", r"SFA\[(\d+)\] = \{[^}]*\}", r"SFA[\1] = {}"),
    Mutation("scales of A signal stage 0", r"(tma_load\(sfa[^;]* \+ 8 \* )slot", r"\g<1>0"),
    Mutation("scales of B go to stage 0", r"(sfb = base \+ SFB_OFFSET) \+ slot \* SFB_STAGE_BYTES", r"\1"),
    Mutation(
        "scales are not expected", r"(mbarrier_arrive_expect\(full \+ 8 \* slot, )(\d+)\)", r"\1\2 - SFA_STAGE_BYTES)"
    ),
    Mutation("scales of another row of A", r"m / 128\);", "m / 128 + 1);"),
    Mutation("no global scale", r"scale_sums\(d, global_scale\);", ";"),
    # multicast
    Mutation("shared: empty counts 1 less", r"(mbarrier_init\(empty \+ 8 \* stage, )(\d)\)", r"\1\2 - 1)"),
    Mutation("shared: empty counts 1 more", r"(mbarrier_init\(empty \+ 8 \* stage, )(\d)\)", r"\1\2 + 1)"),
    Mutation("shared: B to this block alone", r"(tma_multicast\(b[^;]*slot, )[^,]*,", r"\g<1>1 << rank,"),
    Mutation("shared: A to this block alone", r"(tma_multicast\(a[^;]*slot, )[^,]*,", r"\g<1>1 << rank,"),
    Mutation("shared: B to the other blocks alone", r"(tma_multicast\(b[^;]*slot, )([^,]*),", r"\1(\2) ^ 1 << rank,"),
    Mutation("shared: A to all blocks", r"(tma_multicast\(a[^;]*slot, )[^,]*,", r"\1(1 << CLUSTER_BLOCKS) - 1,"),
    Mutation("shared: B to all blocks", r"(tma_multicast\(b[^;]*slot, )[^,]*,", r"\1(1 << CLUSTER_BLOCKS) - 1,"),
    Mutation("shared: parts of B at one place", r"tma_multicast\(b \+ b_part \* \d+", "tma_multicast(b"),
    Mutation("shared: the same part of B twice", r"(tma_multicast\(b[^;]*)n \+ b_part \* \d+", r"\1n"),
    Mutation("shared: the same part of A twice", r"(tma_multicast\(a[^;]*)m \+ a_part \* \d+", r"\1m"),
    Mutation("shared: every block fetches the first part", r"b_part = x[^;]*;", "b_part = 0;"),
    Mutation("shared: empty of the own blocks alone", r"(tcgen05_commit\(empty \+ 8 \* slot, )[^;]*\);", r"\g<1>OWN);"),
    Mutation(
        "shared: empty of this block alone", r"(tcgen05_commit\(empty \+ 8 \* slot, )[^;]*\);", r"\g<1>1 << rank);"
    ),
    Mutation(
        "shared: copies signal the first pair", r"remote_address\(full, rank - rank % 2\)", "remote_address(full, 0)"
    ),
    Mutation(
        "shared: the first pair's epilogue is told", r"(mbarrier_arrive_at\(acc_empty[^;]*, )rank - rank % 2", r"\g<1>0"
    ),
    Mutation(
        "shared: the odd block's barrier is told",
        r"remote_address\(full, rank - rank % 2\)",
        "remote_address(full, rank | 1)",
    ),
    Mutation("shared: only the first pair multiplies", r"MULTIPLIER && rank % 2 == 0", "MULTIPLIER && rank == 0"),
    Mutation("shared: no meeting before the copies", r"cluster_sync\(\);  // both blocks run", ";  // both blocks run"),
    Mutation("shared: blocks leave alone", r"cluster_sync\(\);  // nobody", "__syncthreads();  // nobody"),
    Mutation("shared: no tail of the producer", r"mbarrier_wait\(empty[^;]*;  // every stage", ";  // every stage"),
    Mutation("shared: tiles of x", r"x(?: / 2)? \* TILE_M", "0 * TILE_M"),
    Mutation("shared: tiles of y", r"y \* TILE_N", "0 * TILE_N"),
    Mutation("the lanes of another warp", r"(lanes = \(?)warp \* 32", r"\1(warp ^ 1) * 32"),
)
MUTATED = [  # programs that differ in what can be wrong
    "sm_100-256x128x320-bf16-tile=(128,64,64)-cta_group=1",
    "sm_100-512x128x320-bf16-tile=(256,64,64)-cta_group=2",
    "sm_100-256x128x640-e4m3-tile=(128,64,128)-cta_group=1",
    "sm_100-512x128x320-bf16-tile=(256,64,64)-cta_group=2-output_type=f32",
    "sm_103-64x512x320-bf16-tile=(32,256,64)-cta_group=2-swapped=True-output_type=bf16",
]
SCALED_MUTATED = [  # with scale factors: what is wrong with them alone
    "sm_100-256x256x1280-nvfp4-tile=(128,128,256)-cta_group=1",
    "sm_103-520x136x1280-nvfp4-tile=(256,128,256)-cta_group=2",
]
SHARED_MUTATED = [  # clusters that share operands: what is wrong with the sharing alone
    "sm_100-512x128x320-bf16-tile=(128,64,64)-cta_group=1-multicast=(2,1)",
    "sm_100-1024x128x320-bf16-tile=(256,64,64)-cta_group=2-multicast=(2,1)",
    "sm_103-512x256x320-f16-tile=(256,64,64)-cta_group=2-multicast=(1,2)",
]
SHARED_MUTATIONS = [each.name for each in MUTATIONS if each.name.startswith("shared: ")]
SCALED_MUTATIONS = [each.name for each in MUTATIONS if "scale" in each.name or "every instruction" in each.name]
# Nobody waits for the wrong thing: the values are others, which the comparison with a plain product finds.
VALUE_MISTAKES = (
    "the first slice is always read",
    "scales of A over those of B",
    "every instruction begins with the first word",
    "scales of another row of A",
    "no global scale",
    "shared: the same part of A twice",
    "shared: the same part of B twice",
)


def mutants():
    """(program, mutation) for every mutation that changes the program."""
    for name in (*MUTATED, *SCALED_MUTATED, *SHARED_MUTATED):
        gemm = PROGRAMS[name].plan()
        source = device_half(ts.emit(gemm, "cuda"))
        for mutation in MUTATIONS:
            of_scales = mutation.name in SCALED_MUTATIONS
            of_sharing = mutation.name in SHARED_MUTATIONS
            is_meant = (of_scales, of_sharing) == (name in SCALED_MUTATED, name in SHARED_MUTATED)
            if is_meant and mutated(mutation, gemm, source) != source:
                yield name, mutation.name


def mutated(mutation, gemm, source):
    """The source of a plan with one thing wrong."""
    own = "3 << rank" if gemm.schedule.cta_group == 2 else "1 << rank"
    replacement = mutation.replacement.replace("OWN", own)
    return re.sub(mutation.pattern, replacement.replace("CLUSTER_BLOCKS", str(prod(gemm.schedule.cluster))), source)


def judge(name, mutation):
    """What tells the mutant from the program: "found" by the run, "disproved", "wrong" product only, or "" where nothing does.

    A missing tcgen05.fence is a note; the program itself has none.
    """
    program = PROGRAMS[name]
    [change] = [each for each in MUTATIONS if each.name == mutation]
    gemm = program.plan()
    source = device_half(ts.emit(gemm, "cuda"))
    changed = mutated(change, gemm, source)
    assert changed != source
    launch = launch_of(program, ptx_of(program, changed))
    run = launch.run(advice="none")
    if run.outcome != "finished" or run.findings:
        return "found"
    if ts.simulate(run.pipeline()).verdict != "proven":
        return "disproved"
    return "" if launch.is_right() else "wrong"
