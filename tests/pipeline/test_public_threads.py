"""Mistakes that people reported in public threads, each written down as they had it, and what `ts.simulate` says."""

import numpy as np
import pytest
from descriptions import BLACKWELL, RIGHT, planned, ring

import tilescope as ts


def first_load(count, *steps):
    """A block of 128 threads, one of which loads a tile by TMA; all read it."""
    return {
        "barriers": {"bar": {"count": count}},
        "slots": {"tile": {"bytes": 16384}},
        "roles": [
            {"name": "thread 0", "threads": 32, "steps": [{"init": ["bar"]}, {"sync": 0}, *steps]},
            {"name": "others", "threads": 96, "steps": [{"sync": 0}, {"wait": "bar", "parity": 0}, {"read": ["tile"]}]},
        ],
    }


LOAD = {"copy": "tile", "bytes": 16384, "barrier": "bar"}
ARM = {"expect": "bar", "bytes": 16384}
READ = [{"wait": "bar", "parity": 0}, {"read": ["tile"]}]


def pair_expects(total):
    """Blackwell's 2-SM tutorial, 256 x 256 x 64 for a pair, with another number of bytes."""
    data = planned([(256, 64), (256, 64)], BLACKWELL, stages=1, steps=2, cluster=2, cta_group=2)
    steps = next(step for step in data["roles"][0]["steps"] if "loop" in step)["steps"]
    steps[1]["bytes"] = total
    return data


def parity_of_the_loop():
    """Four barriers, each used once, waited for with the parity of the loop's counter."""
    return {
        "barriers": {"bar": {"count": 1, "stages": 4}},
        "slots": {"tile": {"stages": 4, "bytes": 4096}},
        "roles": [
            {
                "name": "block",
                "threads": 128,
                "steps": [
                    {
                        "loop": "s",
                        "count": 4,
                        "steps": [
                            {"expect": "bar[s]", "bytes": 4096},
                            {"copy": "tile[s]", "bytes": 4096, "barrier": "bar[s]"},
                            {"wait": "bar[s]", "parity": "s & 1"},
                            {"read": ["tile[s]"]},
                        ],
                    }
                ],
            }
        ],
    }


def cut_copy():
    """63 floats by a bulk copy, 252 bytes, of which 240 move."""
    return {
        "barriers": {"bar": {"count": 1}},
        "slots": {"row": {"bytes": 256}},
        "roles": [
            {
                "name": "block",
                "steps": [
                    {"expect": "bar", "bytes": 252},
                    {"copy": "row", "bytes": 252, "barrier": "bar", "by": "bulk"},
                    {"wait": "bar", "parity": 0},
                    {"read": ["row"]},
                ],
            }
        ],
    }


def store_without_fence():
    """Threads write a tile, meet, and one of them stores it."""
    data = RIGHT["stores"]()
    steps = data["roles"][0]["steps"][0]["steps"]
    steps[:] = [step for step in steps if "fence" not in step]
    return data


def cluster_init_without_fence():
    data = RIGHT["multicast"]()
    data["roles"][0]["steps"] = [step for step in data["roles"][0]["steps"] if "fence" not in step]
    return data


def own_slots_only():
    """Multicast to two blocks, and every consumer frees only its own block's slot."""
    data = RIGHT["multicast"]()
    data["barriers"]["empty"]["count"] = 1
    loop = next(step for step in data["roles"][1]["steps"] if "loop" in step)
    del loop["steps"][-1]["mask"]
    return data


def one_receiver_armed():
    data = RIGHT["multicast"]()
    loop = next(step for step in data["roles"][0]["steps"] if "loop" in step)
    loop["steps"][1]["when"] = "rank == 0"
    return data


def peer_bit_without_a_peer(cluster):
    """tcgen05 with cta_group 1, whose commit ORs the bit of a peer into its mask: the last block has no next one."""
    data = planned([(128, 64), (64, 64)], BLACKWELL, stages=2, steps=3, cluster=cluster)
    loop = next(step for step in data["roles"][1]["steps"] if "loop" in step)
    commit = loop["steps"][-1]
    commit["mask"] = f"{commit.get('mask', '1 << rank')} | 1 << (rank + 1)"
    return data


def lanes_that_wait_along():
    """All lanes of the load warp wait for the slot, one of them loads, and the others are held back by nothing."""
    data = ring(stages=1, steps=3)
    wait = data["roles"][0]["steps"][0]["steps"][0]
    data["roles"].append(
        {"name": "other lanes", "threads": 31, "steps": [{"loop": "i", "count": 3, "steps": [dict(wait)]}]}
    )
    return data


def half_of_the_threads():
    return {
        "slots": {},
        "roles": [
            {"name": "first half", "threads": 128, "steps": [{"sync": 1, "threads": 256}]},
            {"name": "second half", "threads": 128, "steps": []},
        ],
    }


# thread: the description, the rule that is broken, what the sentence says
THREADS = {
    "NVIDIA/cutlass#2879, the barrier counts the block and one thread arrives": (
        lambda: first_load(128, ARM, LOAD, *READ),
        "pipeline-arrivals",
        "bar counts 128, and phase 0 gets 1 arrival",
    ),
    "NVIDIA/cutlass#2701, bytes are expected and nobody arrives": (
        lambda: first_load(1, {**ARM, "arrive": False}, LOAD, *READ),
        "pipeline-arrivals",
        "which has 0 of 1 arrivals",
    ),
    "NVIDIA/cutlass#2701, nothing is expected": (
        lambda: first_load(1, LOAD, *READ),
        "pipeline-receiver",
        "gets 16384 unexpected bytes",
    ),
    "NVIDIA/cutlass#3314, the whole B expected from each block of a pair": (
        lambda: pair_expects(98304),
        "pipeline-bytes",
        "expects 98304 bytes, the copies deliver 65536",
    ),
    "NVIDIA/cutlass#3314, the bytes of one block": (
        lambda: pair_expects(32768),
        "",
        "",
    ),
    "NVIDIA/cutlass#3658, one block": (
        lambda: peer_bit_without_a_peer(1),
        "pipeline-mask",
        "commit of consumer has mask 0x3, which names block 1, but the cluster has 1 block: the launch fails",
    ),
    "NVIDIA/cutlass#3658, two blocks": (
        lambda: peer_bit_without_a_peer(2),
        "pipeline-mask",
        "mask 0x7, which names block 2, but the cluster has 2 blocks",
    ),
    "tile-ai/tilelang#2927": (parity_of_the_loop, "pipeline-race", "tile[1] is read by block"),
    "tile-ai/tilelang#2525": (cut_copy, "pipeline-bytes", "expects 252 bytes, the copies deliver 240"),
    "MoonshotAI/FlashKDA#24, store": (store_without_fence, "pipeline-fence", "without fence.proxy.async"),
    "MoonshotAI/FlashKDA#24, init": (cluster_init_without_fence, "pipeline-init", "without fence.mbarrier_init"),
    "deepseek-ai/DeepGEMM#51": (own_slots_only, "", ""),
    "facebookexperimental/triton#908": (
        one_receiver_armed,
        "pipeline-receiver",
        "full of block 1, phase 0 gets 16384 unexpected bytes",
    ),
    "NVIDIA/cutlass#3654": (lanes_that_wait_along, "", "other lanes waits"),
    "deepseek-ai/FlashMLA#57": (half_of_the_threads, "pipeline-sync", "bar 1 waits for 256 threads and 128 arrive"),
}


@pytest.mark.parametrize("thread", THREADS)
def test_what_people_reported_is_named(thread):
    make, rule, said = THREADS[thread]
    found = ts.simulate(make())
    assert found.verdict == "mistake", found.sentence
    if rule:
        assert found.mistake.rule == rule, found.sentence
    assert said in found.sentence
    assert found.mistake.way


@pytest.mark.parametrize(
    "step",
    [
        {"release": "empty[i % STAGES]", "mask": 4},
        {"copy": "a[i % STAGES]", "bytes": 8192, "barrier": "full[i % STAGES]", "mask": 7},
        {"expect": "full[i % STAGES]", "bytes": 8192, "mask": 6},
    ],
)
def test_a_mask_of_any_step_beyond_the_cluster_is_named(step, wording):
    data = planned([(64, 64)], stages=2, steps=3, cluster=2)
    role = data["roles"][0 if "release" not in step else 1]
    loop = next(each for each in role["steps"] if "loop" in each)
    place = next(number for number, each in enumerate(loop["steps"]) if next(iter(each)) == next(iter(step)))
    loop["steps"][place] = step
    found = ts.simulate(data)
    assert (found.mistake.rule, found.mistake.outcome) == ("pipeline-mask", "launch failure")
    assert (found.mistake.values["mask"], found.mistake.values["blocks"]) == (step["mask"], 2)
    wording(f"a mask beyond the cluster of {next(iter(step))}", found.sentence)


def test_a_bulk_store_of_63_floats_loses_the_last_three():
    memory = ts.bulk_store(np.arange(64, dtype=np.float32), np.zeros(64, np.float32), 0, 63 * 4)
    assert memory[59:].tolist() == [59, 0, 0, 0, 0]
