"""The interpreter of `tilescope verify pipelines` on a card: known pipelines do what is known of them, under every seed."""

import numpy as np
import pytest

from tilescope.gpu.driver.isolation import card_in_children
from tilescope.gpu.verify.suites.pipeline_suite import SEEDS, describe_outcome

pytestmark = pytest.mark.gpu
HUNG, WRONG = 1, 2


def ring(*, parity="i / 2 % 2 ^ 1", copied=256, threads=32, release=1):
    """Two stages of 256 bytes, eight tiles."""
    return {
        "barriers": {"full": {"count": 1, "stages": 2}, "empty": {"count": release, "stages": 2}},
        "slots": {"a": {"stages": 2, "bytes": 256}},
        "roles": [
            {
                "name": "producer",
                "steps": [
                    {
                        "loop": "i",
                        "count": 8,
                        "steps": [
                            {"wait": "empty[i % 2]", "parity": parity},
                            {"expect": "full[i % 2]", "bytes": copied},
                            {"copy": "a[i % 2]", "bytes": copied, "barrier": "full[i % 2]", "tile": "i"},
                        ],
                    }
                ],
            },
            {
                "name": "consumer",
                "threads": threads,
                "steps": [
                    {
                        "loop": "i",
                        "count": 8,
                        "steps": [
                            {"wait": "full[i % 2]", "parity": "i / 2 % 2"},
                            {"read": ["a[i % 2]"], "tile": "i"},
                            {"release": "empty[i % 2]", "count": release},
                        ],
                    }
                ],
            },
        ],
    }


def one_role(*steps, threads=32, **parts):
    role = {"name": "p", "threads": threads, "steps": list(steps)}
    return {"barriers": {"f": {"count": 1}}, "slots": {"a": {"bytes": 64}}, "roles": [role], **parts}


def two_copies(read):
    copies = [{"copy": "a", "bytes": 64, "barrier": "f", "tile": tile} for tile in (0, 1)]
    return one_role({"expect": "f", "bytes": 128}, *copies, {"wait": "f", "parity": 0}, {"read": ["a"], "tile": read})


def multicast():
    """Four blocks, each of which copies its part into all."""
    begin = [{"init": ["full", "empty"]}, {"fence": "mbarrier_init"}, {"cluster": "sync"}]
    return {
        "cluster": [4, 1],
        "barriers": {"full": {"count": 1}, "empty": {"count": 4}},
        "slots": {"a": {"stages": 4, "bytes": 128}},
        "roles": [
            {
                "name": "producer",
                "steps": [
                    *begin,
                    {
                        "loop": "i",
                        "count": 5,
                        "steps": [
                            {"wait": "empty", "parity": "i % 2 ^ 1"},
                            {"expect": "full", "bytes": 512},
                            {"copy": "a[rank]", "bytes": 128, "barrier": "full", "mask": 15, "tile": "i"},
                        ],
                    },
                    {"cluster": "sync"},
                ],
            },
            {
                "name": "consumer",
                "threads": 32,
                "steps": [
                    {"cluster": "sync"},
                    {
                        "loop": "i",
                        "count": 5,
                        "steps": [
                            {"wait": "full", "parity": "i % 2"},
                            {"read": ["a[0]", "a[1]", "a[2]", "a[3]"], "tile": "i"},
                            {"release": "empty", "mask": 15},
                        ],
                    },
                    {"cluster": "sync"},
                ],
            },
        ],
    }


def stores():
    meet = {"sync": 1, "threads": 128}
    steps = [
        {"wait_group": "bulk", "pending": 0, "read": True},
        meet,
        {"write": ["a"], "tile": "i"},
        {"fence": "proxy.async"},
        meet,
        {"store": "a"},
        {"commit": "bulk"},
    ]
    return one_role({"loop": "i", "count": 4, "steps": steps}, {"wait_group": "bulk"}, threads=128)


def cp_async():
    steps = [{"copy": "a", "bytes": 64, "by": "cp.async", "tile": 7}, {"cp_arrive": "f", "count": 32, "noinc": True}]
    return one_role(*steps, {"wait": "f", "parity": 0}, {"read": ["a"], "tile": 7}, barriers={"f": {"count": 32}})


def cluster_meeting(*others):
    """Two blocks, in each of which a warp waits at the cluster's barrier and another role does something else."""
    waits = {"name": "waits", "threads": 32, "steps": [{"cluster": "sync"}]}
    other = {"name": "other", "steps": list(others)}
    return {"cluster": [2, 1], "barriers": {"f": {"count": 1}}, "roles": [waits, other]}


# what a byte of every seed is
HAPPENS_BEFORE = {
    "ring": (ring(), 0),
    "ring of four warps": (ring(threads=128, release=4), 0),
    "multicast": (multicast(), 0),
    "stores": (stores(), 0),
    "cp.async": (cp_async(), 0),
    "a role leaves before the cluster meets": (cluster_meeting({"fence": "proxy.async"}), 0),
    "the last of two copies": (two_copies(read=1), 0),
    "the producer starts with parity 0": (ring(parity="i / 2 % 2"), HUNG),
    "more bytes expected than come": (one_role({"expect": "f", "bytes": 32}, {"wait": "f", "parity": 0}), HUNG),
    "bar.sync for more threads than come": (one_role({"sync": 1, "threads": 64}), HUNG),
    "a role never comes to the cluster's barrier": (cluster_meeting({"wait": "f", "parity": 0}), HUNG),
    "a part of the slot copied": (ring(copied=128), WRONG),
    "the first of two copies": (two_copies(read=0), WRONG),
    "a read before the copy": (one_role({"read": ["a"]}, {"write": ["a"]}), WRONG),
}


@pytest.fixture(scope="module")
def outcomes(card):  # noqa: ARG001  skips without a card
    cases = [{"pipeline": data} for data, _ in HAPPENS_BEFORE.values()]
    with card_in_children() as children:
        children.compile(("pipelines",))
        found = list(children.outcomes("pipelines", cases, together=len(cases), seconds=60))
    return dict(zip(HAPPENS_BEFORE, zip(cases, found, strict=True), strict=True))


@pytest.mark.parametrize("name", HAPPENS_BEFORE)
def test_a_known_pipeline_does_what_is_known_of_it(outcomes, name):
    case, outcome = outcomes[name]
    assert outcome.ended == ""
    seeds = np.frombuffer(outcome.data[:SEEDS], np.uint8)
    assert set(seeds.tolist()) == {HAPPENS_BEFORE[name][1]}, describe_outcome(case, outcome)
