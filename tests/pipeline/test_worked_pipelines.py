"""Counts and bytes of published kernels: what their barriers are initialised with, and what `ts.plan_pipeline` gives.

The arguments of `ts.plan_pipeline` say: one thread arms a full barrier with all bytes that land in its block (of a pair: in
both), and consumers or commits free the slot. What else the published kernels do is written down by hand below: all threads
arrive (fast.cu's matmul_2 and matmul_5, tilelang's barrierpipe), both blocks of a pair arm the leader's barrier (DeepGEMM's
sm100, learn-cuda's v5, ThunderKittens' b200), scales come by cp.async beside TMA, an epilogue loads C by a warp, lanes arm with
their own bytes (DeepEP), a query of CUTLASS's scheduler counts 416 threads of two blocks, and pingpong's groups take turns.
Left out: DeepGEMM's sm100_fp8_fp4_1d1d, whose second stage transposes scales between two barriers (64 lanes), and the order of
pingpong's epilogues, which is the order barrier once more.
"""

import pytest

import tilescope as ts

HOPPER = {}
BLACKWELL = {"arch": "sm_100", "consumer": "tcgen05"}

# kernel: tiles of a stage, their type and plan options, pipeline options; full: count, bytes; empty: count
PUBLISHED = {
    "CUTLASS wgmma_tma_sm90": (
        [(128, 64), (128, 64)],
        "f16",
        HOPPER,
        {"stages": 3, "cluster": (2, 1), "multicast": False, "arrivals": "thread"},
        (1, 32768),
        128,
    ),
    "fast.cu matmul_7": ([(128, 64), (256, 64)], "bf16", HOPPER, {"stages": 3, "consumers": 2}, (1, 49152), 2),
    "fast.cu matmul_8": (
        [(128, 64), (256, 64)],
        "bf16",
        HOPPER,
        {"stages": 3, "consumers": 2, "cluster": 2},
        (1, 49152),
        4,
    ),
    "CUTLASS sm90 cooperative": (
        [(128, 64), (128, 64)],
        "bf16",
        HOPPER,
        {"stages": 4, "consumers": 2, "arrivals": "thread"},
        (1, 32768),
        256,
    ),
    "CUTLASS sm90 cooperative 2x1": (
        [(128, 64), (128, 64)],
        "bf16",
        HOPPER,
        {"stages": 4, "consumers": 2, "cluster": (2, 1)},
        (1, 32768),
        4,
    ),
    "CUTLASS sm90 cooperative 2x2": (
        [(128, 64), (128, 64)],
        "bf16",
        HOPPER,
        {"stages": 4, "consumers": 2, "cluster": (2, 2)},
        (1, 32768),
        6,
    ),
    "CUTLASS sm90 pingpong": (
        [(64, 64), (128, 64)],
        "bf16",
        HOPPER,
        {"stages": 4, "arrivals": "thread"},
        (1, 24576),
        128,
    ),
    "CUTLASS sm90 pingpong 2x1": ([(64, 64), (128, 64)], "bf16", HOPPER, {"stages": 4, "cluster": 2}, (1, 24576), 2),
    "CUTLASS sm100 1-SM": ([(128, 64), (256, 64)], "bf16", BLACKWELL, {"stages": 4}, (1, 49152), 1),
    "CUTLASS blackwell/03": (
        [(128, 64), (256, 64)],
        "bf16",
        BLACKWELL,
        {"stages": 1, "cluster": (4, 4)},
        (1, 49152),
        7,
    ),
    "CUTLASS blackwell/04": (  # its MMA tile, 256 x 256 x 64, is the pair's
        [(256, 64), (256, 64)],
        "bf16",
        BLACKWELL,
        {"stages": 1, "cluster": (4, 4), "cta_group": 2},
        (1, 65536),
        5,
    ),
    "DeepGEMM sm90_fp8_gemm_1d2d, its scales as 512 more bytes": (
        [(128, 128), (128, 128), (8, 64)],
        "e4m3",
        HOPPER,
        {"stages": 4, "consumers": 2, "cluster": 2, "arrivals": "warp"},
        (1, 33280),
        16,
    ),
    "learn-cuda v4": ([(128, 64), (128, 64)], "bf16", BLACKWELL, {"stages": 7}, (1, 32768), 1),
    "ThunderKittens bf16_h100": (
        [(128, 64), (256, 64)],
        "bf16",
        HOPPER,
        {"stages": 4, "consumers": 2, "arrivals": "warp"},
        (1, 49152),
        8,
    ),
    "ThunderKittens mha_h100, Q": ([(192, 128)], "bf16", HOPPER, {"stages": 1, "consumers": 3}, (1, 49152), 3),
    "ThunderKittens mha_h100, K": ([(128, 128)], "bf16", HOPPER, {"stages": 2, "consumers": 3}, (1, 32768), 3),
    "flash-attention hopper, Q": ([(128, 128)], "f16", HOPPER, {"stages": 1, "consumers": 2}, (1, 32768), 2),
    "flash-attention hopper, K": ([(176, 128)], "f16", HOPPER, {"stages": 2, "consumers": 2}, (1, 45056), 2),
}


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
    gemm = ts.plan_gemm(4096, 4096, 512, "bf16", arch="sm_100", cta_group=cta_group)
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
    "roles": [
        {
            "name": "warpgroup",
            "threads": 128,
            "steps": [
                loop(
                    8,
                    {"expect": "a_full", "bytes": 8192, "arrive": False},
                    {"copy": "a", "bytes": 8192, "barrier": "a_full", "tile": "i"},
                    {"expect": "b_full", "bytes": 8192, "arrive": False},
                    {"copy": "b", "bytes": 8192, "barrier": "b_full", "tile": "i"},
                    {"arrive": "a_full", "count": 128},
                    {"arrive": "b_full", "count": 128},
                    {"wait": "a_full", "parity": "i % 2"},
                    {"wait": "b_full", "parity": "i % 2"},
                    {"multiply": ["a", "b"], "tile": "i"},
                    {"commit": "wgmma"},
                    {"wait_group": "wgmma"},
                )
            ],
        }
    ],
}

# fast.cu matmul_5: the 256 consumer threads and the producer arrive at both barriers of a stage
MATMUL_5 = {
    "barriers": {"full": {"count": 257, "stages": 3}, "empty": {"count": 257, "stages": 3}},
    "slots": {"a": {"stages": 3, "bytes": 16384}, "b": {"stages": 3, "bytes": 32768}},
    "roles": [
        {
            "name": "producer",
            "steps": [
                loop(
                    9,
                    {"arrive": "empty[i % 3]"},
                    {"wait": "empty[i % 3]", "parity": "(i / 3) % 2"},
                    {"copy": "a[i % 3]", "bytes": 16384, "barrier": "full[i % 3]", "tile": "i"},
                    {"copy": "b[i % 3]", "bytes": 32768, "barrier": "full[i % 3]", "tile": "i"},
                    {"expect": "full[i % 3]", "bytes": 49152},
                )
            ],
        },
        {
            "name": "consumer",
            "threads": 128,
            "instances": 2,
            "steps": [
                {"loop": "s", "count": 3, "steps": [{"arrive": "empty[s]", "count": 128}]},
                loop(
                    9,
                    {"arrive": "full[i % 3]", "count": 128},
                    {"wait": "full[i % 3]", "parity": "(i / 3) % 2"},
                    {"multiply": ["a[i % 3]", "b[i % 3]"], "tile": "i"},
                    {"commit": "wgmma"},
                    {"wait_group": "wgmma"},
                    {"arrive": "empty[i % 3]", "count": 128},
                ),
            ],
        },
    ],
}

# learn-cuda v5: both blocks of a pair arm the leader's barrier with their own bytes
PAIR_ARMS_LEADER = {
    "cluster": [2, 1],
    "barriers": {"full": {"count": 2, "stages": 2}, "empty": {"count": 1, "stages": 2}},
    "slots": {"a": {"stages": 2, "bytes": 16384}, "b": {"stages": 2, "bytes": 16384}},
    "roles": [
        {
            "name": "producer",
            "steps": [
                loop(
                    6,
                    {"wait": "empty[i % 2]", "parity": "(i / 2) % 2 ^ 1"},
                    {"expect": "full[i % 2]", "bytes": 32768, "mask": 1},
                    {"copy": "a[i % 2]", "bytes": 16384, "barrier": "full[i % 2]", "barrier_rank": 0, "tile": "i"},
                    {"copy": "b[i % 2]", "bytes": 16384, "barrier": "full[i % 2]", "barrier_rank": 0, "tile": "i"},
                ),
                {"loop": "j", "start": 6, "count": 2, "steps": [{"tail": "empty[j % 2]", "parity": "(j / 2) % 2 ^ 1"}]},
            ],
        },
        {
            "name": "multiplier",
            "mask": 1,
            "steps": [
                loop(
                    6,
                    {"wait": "full[i % 2]", "parity": "(i / 2) % 2"},
                    {"multiply": ["a[i % 2]", "b[i % 2]"], "unit": "tcgen05", "mask": 3, "tile": "i"},
                    {"commit": "empty[i % 2]", "mask": 3},
                )
            ],
        },
    ],
}


def staged(count, *, full, empty, producer, consumer, stages=2, slots=("a", "b"), **top):
    """A producer and consumers around `stages` stages, each role as (fields, steps)."""
    return {
        "barriers": {"full": {"count": full, "stages": stages}, "empty": {"count": empty, "stages": stages}},
        "slots": {name: {"stages": stages} for name in slots},
        "constants": {"S": stages},
        "roles": [
            {"name": name, **fields, "steps": [loop(count, *steps)]}
            for name, (fields, steps) in (("producer", producer), ("consumer", consumer))
        ],
    } | top


FREE = {"wait": "empty[i % S]", "parity": "i / S % 2 ^ 1"}
FILLED = {"wait": "full[i % S]", "parity": "i / S % 2"}
COPIES = [{"copy": f"{name}[i % S]", "bytes": 16384, "barrier": "full[i % S]", "tile": "i"} for name in "ab"]
WGMMA = [{"multiply": ["a[i % S]", "b[i % S]"], "tile": "i"}, {"commit": "wgmma"}, {"wait_group": "wgmma"}]

# tilelang barrierpipe_stage2: 128 producer threads arrive at full, one of which arms it; 128 consumer threads free the slot
BARRIERPIPE = staged(
    6,
    full=128,
    empty=128,
    producer=(
        {"threads": 128},
        [
            FREE,
            {"expect": "full[i % S]", "bytes": 32768, "arrive": False},
            *COPIES,
            {"arrive": "full[i % S]", "count": 128},
        ],
    ),
    consumer=({"threads": 128}, [FILLED, *WGMMA, {"release": "empty[i % S]", "count": 128}]),
)

# CUTLASS sm90 fp8 blockwise: a warp's scales by cp.async .noinc (32) beside the arming thread (1)
BLOCKWISE = staged(
    6,
    full=33,
    empty=1,
    slots=("a", "b", "scales"),
    producer=(
        {"threads": 32},
        [
            FREE,
            {"expect": "full[i % S]", "bytes": 32768},
            *COPIES,
            {"copy": "scales[i % S]", "bytes": 512, "by": "cp.async", "tile": "i"},
            {"cp_arrive": "full[i % S]", "count": 32, "noinc": True},
        ],
    ),
    consumer=(
        {"threads": 128},
        [
            FILLED,
            *WGMMA,
            {"read": ["scales[i % S]"], "tile": "i"},
            {"sync": 1, "threads": 128},
            {"release": "empty[i % S]"},
        ],
    ),
)

# CUTLASS epilogue load: a warp arrives at full with the bytes of a subtile of C, 128 threads free it
EPILOGUE_LOAD = staged(
    6,
    full=32,
    empty=128,
    slots=("c",),
    producer=(
        {"threads": 32},
        [
            FREE,
            {"expect": "full[i % S]", "bytes": 8192, "arrive": False},
            {"copy": "c[i % S]", "bytes": 8192, "barrier": "full[i % S]"},
            {"arrive": "full[i % S]", "count": 32},
        ],
    ),
    consumer=(
        {"threads": 128},
        [FILLED, {"read": ["c[i % S]"]}, {"fence": "proxy.async"}, {"release": "empty[i % S]", "count": 128}],
    ),
)

# DeepEP internode combine: every lane arms with its own bytes or none, and all of them wait; no empty barrier
LANES = {
    "barriers": {"full": {"count": 32, "stages": 2}},
    "slots": {"row": {"stages": 2}},
    "roles": [
        {
            "name": "warp",
            "threads": 32,
            "steps": [
                loop(
                    6,
                    {"arrive": "full[i % 2]", "count": 31},
                    {"expect": "full[i % 2]", "bytes": 3072},
                    {"copy": "row[i % 2]", "bytes": 3072, "barrier": "full[i % 2]", "by": "bulk"},
                    {"wait": "full[i % 2]", "parity": "i / 2 % 2"},
                    {"read": ["row[i % 2]"]},
                    {"fence": "proxy.async"},
                )
            ],
        }
    ],
}

# CUTLASS sm100 CLC, 2x1: block 0 asks, 16 bytes land in both; 32 threads of the scheduler and 192 of each block free the answer
CLC = {
    "cluster": [2, 1],
    "barriers": {"full": {"count": 1}, "empty": {"count": 416}},
    "slots": {"answer": {"bytes": 16}},
    "roles": [
        {
            "name": "scheduler",
            "threads": 32,
            "mask": 1,
            "steps": [
                loop(
                    4,
                    {"wait": "empty", "parity": "i % 2 ^ 1"},
                    {"expect": "full", "bytes": 16, "mask": 3},
                    {"copy": "answer", "bytes": 16, "barrier": "full", "by": "bulk", "mask": 3},
                    {"wait": "full", "parity": "i % 2"},
                    {"read": ["answer"]},
                    {"fence": "proxy.async"},
                    {"release": "empty", "count": 32},
                ),
                {"tail": "empty", "parity": 1},
                {"cluster": "sync"},
            ],
        },
        {
            "name": "workers",
            "threads": 192,
            "steps": [
                loop(
                    4,
                    {"wait": "full", "parity": "i % 2"},
                    {"read": ["answer"]},
                    {"fence": "proxy.async"},
                    {"release": "empty", "count": 192, "mask": 1},
                ),
                {"cluster": "sync"},
            ],
        },
    ],
}

# CUTLASS pingpong: two groups of 128 threads take turns; each group's order barrier counts the 128 threads of the other
ORDER = {
    "barriers": {"first": {"count": 128}, "second": {"count": 128}},
    "slots": {"tensor_core": {}},
    "roles": [
        {
            "name": "group 0",
            "threads": 128,
            "steps": [
                loop(
                    4,
                    {"wait": "first", "parity": "i % 2 ^ 1"},
                    {"write": ["tensor_core"]},
                    {"arrive": "second", "count": 128},
                )
            ],
        },
        {
            "name": "group 1",
            "threads": 128,
            "steps": [
                loop(
                    4,
                    {"wait": "second", "parity": "i % 2"},
                    {"write": ["tensor_core"]},
                    {"arrive": "first", "count": 128},
                )
            ],
        },
    ],
}


def pair(arms, stages=2, multipliers=1):
    """Both blocks of a pair arrive at the leader's barrier, `arms` says with which bytes; commits free the slots of both."""
    mma = [
        FILLED,
        {"multiply": ["a[i % S]", "b[i % S]"], "unit": "tcgen05", "mask": 3, "tile": "i"},
        {"commit": "empty[i % S]", "mask": 3},
    ]
    leading = [
        {**each, "barrier_rank": 0, "bytes": 32768 if each["copy"].startswith("b") and multipliers == 2 else 16384}
        for each in COPIES
    ]
    data = staged(
        6,
        full=2,
        empty=multipliers,
        stages=stages,
        cluster=[2, 1],
        producer=({}, [FREE, *arms, *leading]),
        consumer=({"mask": 1, "instances": multipliers}, mma),
    )
    tail = {"loop": "j", "start": 6, "count": stages, "steps": [{"tail": "empty[j % S]", "parity": "j / S % 2 ^ 1"}]}
    data["roles"][0]["steps"].append(tail)
    return data


DEEPGEMM_ARMS = [
    {"expect": "full[i % S]", "bytes": 65536, "when": "rank == 0"},
    {"arrive": "full[i % S]", "mask": 1, "when": "rank == 1"},
]

# kernel: its description; for every barrier its count, and the bytes of a phase in the blocks that count on it
WRITTEN = {
    "fast.cu matmul_2": (MATMUL_2, {"a_full": (128, 8192), "b_full": (128, 8192)}),
    "fast.cu matmul_5": (MATMUL_5, {"full": (257, 49152), "empty": (257, 0)}),
    "learn-cuda v5": (PAIR_ARMS_LEADER, {"full": (2, 65536), "empty": (1, 0)}),
    "DeepGEMM sm100_bf16_gemm": (pair(DEEPGEMM_ARMS), {"full": (2, 65536), "empty": (1, 0)}),
    "ThunderKittens bf16_b200": (
        pair([{"expect": "full[i % S]", "bytes": 49152, "mask": 1}], stages=4, multipliers=2),
        {"full": (2, 98304), "empty": (2, 0)},
    ),
    "tilelang barrierpipe_stage2": (BARRIERPIPE, {"full": (128, 32768), "empty": (128, 0)}),
    "CUTLASS sm90 fp8 blockwise scaling": (BLOCKWISE, {"full": (33, 32768), "empty": (1, 0)}),
    "CUTLASS epilogue load": (EPILOGUE_LOAD, {"full": (32, 8192), "empty": (128, 0)}),
    "DeepEP internode combine": (LANES, {"full": (32, 3072)}),
    "CUTLASS sm100 CLC": (CLC, {"full": (1, 16), "empty": (416, 0)}),
    "CUTLASS sm90 pingpong, order": (ORDER, {"first": (128, 0), "second": (128, 0)}),
}


@pytest.mark.parametrize("kernel", WRITTEN)
def test_kernels_written_down_by_hand_are_proven(kernel):
    data, expected = WRITTEN[kernel]
    found = ts.simulate(data)
    assert found.verdict == "proven", (found.sentence, found.mistake.way if found.mistake else found.aliasing)
    assert {each.name: (each.count, max(each.bytes)) for each in found.barriers} == expected
    for each in found.barriers:
        assert sum(count for _, count in each.arrivals) == each.count


@pytest.mark.parametrize(("cluster", "empty"), [((2, 1), 1), ((1, 2), 2), ((2, 2), 2), ((4, 1), 1), ((1, 4), 4)])
def test_one_tile_is_released_to_the_blocks_that_share_it_and_to_no_other(cluster, empty):
    """The first tile is A, which the blocks along y share: those along x load their own."""
    found = ts.simulate(ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=2, cluster=cluster))
    assert found.verdict == "proven"
    assert {barrier.name: barrier.count for barrier in found.barriers} == {"full": 1, "empty": empty}
