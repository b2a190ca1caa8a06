"""Counts and bytes of published kernels: what their barriers are initialised with, and what `ts.plan_pipeline` gives.

Left out are kernels whose full barrier counts something else than one arming thread: fast.cu's matmul_2 and matmul_5 (every
thread arrives there, 128 and 257), tilelang's barrierpipe (128 producer threads), DeepGEMM's sm100 and learn-cuda's v5 and
ThunderKittens' b200 (both blocks of a pair arm the leader's barrier: 2; here the leader alone expects the bytes of both),
DeepEP's combine (32 lanes), and CUTLASS's scale factors by cp.async beside TMA, epilogue loads and CLC queries, which are
barriers of their own. A description written by hand holds any of them; three stand below.
"""

import pytest

import tilescope as ts

HOPPER = {}
BLACKWELL = {"arch": "sm_100", "consumer": "tcgen05"}

# kernel: tiles of a stage, their type and plan options, pipeline options; full: count, bytes; empty: count
PUBLISHED = {
    "CUTLASS wgmma_tma_sm90": (
        [(128, 64), (128, 64)], "f16", HOPPER, {"stages": 3, "cluster": (2, 1), "multicast": False, "arrivals": "thread"},
        (1, 32768), 128,
    ),
    "fast.cu matmul_7": ([(128, 64), (256, 64)], "bf16", HOPPER, {"stages": 3, "consumers": 2}, (1, 49152), 2),
    "fast.cu matmul_8": (
        [(128, 64), (256, 64)], "bf16", HOPPER, {"stages": 3, "consumers": 2, "cluster": 2}, (1, 49152), 4,
    ),
    "CUTLASS sm90 cooperative": (
        [(128, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "consumers": 2, "arrivals": "thread"}, (1, 32768), 256,
    ),
    "CUTLASS sm90 cooperative 2x1": (
        [(128, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "consumers": 2, "cluster": (2, 1)}, (1, 32768), 4,
    ),
    "CUTLASS sm90 cooperative 2x2": (
        [(128, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "consumers": 2, "cluster": (2, 2)}, (1, 32768), 6,
    ),
    "CUTLASS sm90 pingpong": (
        [(64, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "arrivals": "thread"}, (1, 24576), 128,
    ),
    "CUTLASS sm90 pingpong 2x1": ([(64, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "cluster": 2}, (1, 24576), 2),
    "CUTLASS sm100 1-SM": ([(128, 64), (256, 64)], "bf16", BLACKWELL, {"stages": 4}, (1, 49152), 1),
    "CUTLASS blackwell/03": (
        [(128, 64), (256, 64)], "bf16", BLACKWELL, {"stages": 1, "cluster": (4, 4)}, (1, 49152), 7,
    ),
    "CUTLASS blackwell/04": (
        [(128, 64), (128, 64)], "bf16", BLACKWELL, {"stages": 1, "cluster": (4, 4), "cta_group": 2}, (1, 65536), 5,
    ),
    "DeepGEMM sm90_fp8_gemm_1d2d, without its 512 bytes of scales": (
        [(128, 128), (128, 128)], "e4m3", HOPPER, {"stages": 4, "consumers": 2, "cluster": 2, "arrivals": "warp"},
        (1, 32768), 16,
    ),
    "learn-cuda v4": ([(128, 64), (128, 64)], "bf16", BLACKWELL, {"stages": 7}, (1, 32768), 1),
    "ThunderKittens bf16_h100": (
        [(128, 64), (256, 64)], "bf16", HOPPER, {"stages": 4, "consumers": 2, "arrivals": "warp"}, (1, 49152), 8,
    ),
    "ThunderKittens mha_h100, Q": ([(192, 128)], "bf16", HOPPER, {"stages": 1, "consumers": 3}, (1, 49152), 3),
    "ThunderKittens mha_h100, K": ([(128, 128)], "bf16", HOPPER, {"stages": 2, "consumers": 3}, (1, 32768), 3),
    "flash-attention hopper, Q": ([(128, 128)], "f16", HOPPER, {"stages": 1, "consumers": 2}, (1, 32768), 2),
    "flash-attention hopper, K": ([(176, 128)], "f16", HOPPER, {"stages": 2, "consumers": 2}, (1, 45056), 2),
}  # fmt: skip


@pytest.mark.parametrize("kernel", PUBLISHED)
def test_counts_and_bytes_of_published_kernels(kernel):
    tiles, data_type, options, arguments, (full_count, full_bytes), empty_count = PUBLISHED[kernel]
    plans = [ts.plan(tile, data_type, **options).best for tile in tiles]
    pipeline = ts.plan_pipeline(plans, **arguments)
    found = ts.simulate(pipeline)
    assert found.verdict == "proven", found.sentence
    full, empty = found.barriers
    assert (full.count, empty.count) == (full_count, empty_count)
    pairs = arguments.get("cta_group", 1) == 2
    assert full.bytes == tuple(0 if pairs and rank % 2 else full_bytes for rank in range(pipeline.blocks))
    assert (full.parities, empty.parities) == ((("consumer", 0),), (("producer", 1),))
    assert sum(count for _, count in empty.arrivals) == empty_count


@pytest.mark.parametrize(("cluster", "cta_group", "freed_by"), [(1, 1, 128), (2, 2, 256)])
def test_accumulators_of_blackwell(cluster, cta_group, freed_by):
    gemm = ts.plan_gemm(4096, 4096, 512, "bf16", arch="sm_100")
    found = ts.simulate(ts.plan_pipeline(gemm, cluster=cluster, cta_group=cta_group))
    assert found.verdict == "proven", found.sentence
    facts = {each.name: each for each in found.barriers}
    assert (facts["acc_full"].count, set(facts["acc_full"].bytes)) == (1, {0})
    assert facts["acc_empty"].count == freed_by


def loop(count, *steps):
    return {"loop": "i", "count": count, "steps": list(steps)}


# fast.cu matmul_2: 128 threads, one of which copies; all arrive at both barriers, and meet before the next copy
MATMUL_2 = {
    "barriers": {"a_full": {"count": 128}, "b_full": {"count": 128}},
    "slots": {"a": {"bytes": 8192}, "b": {"bytes": 8192}},
    "roles": [{"name": "warpgroup", "threads": 128, "steps": [loop(
        8,
        {"expect": "a_full", "bytes": 8192, "arrive": False},
        {"copy": "a", "bytes": 8192, "barrier": "a_full", "tile": "i"},
        {"expect": "b_full", "bytes": 8192, "arrive": False},
        {"copy": "b", "bytes": 8192, "barrier": "b_full", "tile": "i"},
        {"arrive": "a_full", "count": 128}, {"arrive": "b_full", "count": 128},
        {"wait": "a_full", "parity": "i % 2"}, {"wait": "b_full", "parity": "i % 2"},
        {"multiply": ["a", "b"], "tile": "i"}, {"commit": "wgmma"}, {"wait_group": "wgmma"},
    )]}],
}  # fmt: skip

# fast.cu matmul_5: the 256 consumer threads and the producer arrive at both barriers of a stage
MATMUL_5 = {
    "barriers": {"full": {"count": 257, "stages": 3}, "empty": {"count": 257, "stages": 3}},
    "slots": {"a": {"stages": 3, "bytes": 16384}, "b": {"stages": 3, "bytes": 32768}},
    "roles": [
        {"name": "producer", "steps": [loop(
            9,
            {"arrive": "empty[i % 3]"}, {"wait": "empty[i % 3]", "parity": "(i / 3) % 2"},
            {"copy": "a[i % 3]", "bytes": 16384, "barrier": "full[i % 3]", "tile": "i"},
            {"copy": "b[i % 3]", "bytes": 32768, "barrier": "full[i % 3]", "tile": "i"},
            {"expect": "full[i % 3]", "bytes": 49152},
        )]},
        {"name": "consumer", "threads": 128, "instances": 2, "steps": [
            {"loop": "s", "count": 3, "steps": [{"arrive": "empty[s]", "count": 128}]},
            loop(
                9,
                {"arrive": "full[i % 3]", "count": 128}, {"wait": "full[i % 3]", "parity": "(i / 3) % 2"},
                {"multiply": ["a[i % 3]", "b[i % 3]"], "tile": "i"}, {"commit": "wgmma"}, {"wait_group": "wgmma"},
                {"arrive": "empty[i % 3]", "count": 128},
            ),
        ]},
    ],
}  # fmt: skip

# learn-cuda v5: both blocks of a pair arm the leader's barrier with their own bytes
PAIR_ARMS_LEADER = {
    "cluster": [2, 1],
    "barriers": {"full": {"count": 2, "stages": 2}, "empty": {"count": 1, "stages": 2}},
    "slots": {"a": {"stages": 2, "bytes": 16384}, "b": {"stages": 2, "bytes": 16384}},
    "roles": [
        {"name": "producer", "steps": [
            loop(
                6,
                {"wait": "empty[i % 2]", "parity": "(i / 2) % 2 ^ 1"},
                {"expect": "full[i % 2]", "bytes": 32768, "mask": 1},
                {"copy": "a[i % 2]", "bytes": 16384, "barrier": "full[i % 2]", "barrier_rank": 0, "tile": "i"},
                {"copy": "b[i % 2]", "bytes": 16384, "barrier": "full[i % 2]", "barrier_rank": 0, "tile": "i"},
            ),
            {"loop": "j", "start": 6, "count": 2, "steps": [{"tail": "empty[j % 2]", "parity": "(j / 2) % 2 ^ 1"}]},
        ]},
        {"name": "multiplier", "mask": 1, "steps": [loop(
            6,
            {"wait": "full[i % 2]", "parity": "(i / 2) % 2"},
            {"multiply": ["a[i % 2]", "b[i % 2]"], "unit": "tcgen05", "mask": 3, "tile": "i"},
            {"commit": "empty[i % 2]", "mask": 3},
        )]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("data", [MATMUL_2, MATMUL_5, PAIR_ARMS_LEADER])
def test_kernels_written_down_by_hand_are_proven(data):
    found = ts.simulate(data)
    assert found.verdict == "proven", (found.sentence, found.mistake.way if found.mistake else found.aliasing)
