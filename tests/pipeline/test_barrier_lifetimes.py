"""mbarriers from init to inval, and arrivals at the cluster's barrier that hand on no data."""

import pytest

import tilescope as ts

SYNC = {"sync": 1, "threads": 64}
WAIT = {"wait": "f", "parity": 0}
CLUSTER = {"cluster": "sync"}
FENCE = {"fence": "mbarrier_init"}


def pipeline(*roles, **more):
    named = [{"name": f"role {number}", "threads": 32, "steps": steps} for number, steps in enumerate(roles)]
    return {"barriers": {"f": {"count": 1}}, "slots": {"a": {"bytes": 64}}, "roles": named, **more}


def simulated(data, **options):
    found = ts.simulate(data, **options)
    return found.verdict, found.mistake.rule if found.mistake else ""


LIFETIMES = {
    "after the last use": (pipeline([{"arrive": "f"}, SYNC, {"inval": "f"}], [WAIT, SYNC]), "proven"),
    "by whoever waited": (pipeline([{"arrive": "f"}], [WAIT, {"inval": "f"}]), "proven"),
    "while another role waits": (pipeline([{"arrive": "f"}, WAIT, {"inval": "f"}], [WAIT]), "mistake"),
    "before an arrival": (pipeline([{"inval": "f"}, {"arrive": "f"}]), "mistake"),
    "while a copy is pending": (
        pipeline([{"expect": "f", "bytes": 64}, {"copy": "a", "bytes": 64, "barrier": "f"}, {"inval": "f"}]),
        "mistake",
    ),
    "behind a copy that was waited for": (
        pipeline([{"expect": "f", "bytes": 64}, {"copy": "a", "bytes": 64, "barrier": "f"}, WAIT, {"inval": "f"}]),
        "proven",
    ),
}


@pytest.mark.parametrize("name", LIFETIMES)
def test_a_barrier_is_invalidated_after_its_last_use(name):
    data, verdict = LIFETIMES[name]
    assert simulated(data) == (verdict, "pipeline-init" if verdict == "mistake" else "")


def relaxed(is_relaxed):
    return {"cluster": "sync", "relaxed": is_relaxed}


@pytest.mark.parametrize(("is_relaxed", "expected"), [(False, ("proven", "")), (True, ("mistake", "pipeline-scope"))])
def test_a_relaxed_arrival_orders_no_data(is_relaxed, expected):
    assert (
        simulated(pipeline([{"write": ["a"]}, relaxed(is_relaxed)], [relaxed(is_relaxed), {"read": ["a"]}])) == expected
    )


@pytest.mark.parametrize(
    ("space", "steps", "expected"),
    [
        ("tmem", [relaxed(True)], ("proven", "")),  # a load that was waited for has its values
        ("tmem", [], ("mistake", "pipeline-race")),
        ("smem", [relaxed(True)], ("mistake", "pipeline-scope")),  # a load of shared memory may be late
    ],
)
def test_tensor_memory_is_freed_behind_a_relaxed_arrival(space, steps, expected):
    first, second = [{"write": ["a"]}, CLUSTER, *steps, {"write": ["a"]}], [CLUSTER, {"read": ["a"]}, *steps]
    assert simulated(pipeline(first, second, slots={"a": {"bytes": 64, "space": space}})) == expected


@pytest.mark.parametrize(
    ("fences", "is_relaxed", "verdict"), [([FENCE], True, "proven"), ([], True, "mistake"), ([FENCE], False, "proven")]
)
def test_a_relaxed_arrival_hands_on_inits_behind_their_fence(fences, is_relaxed, verdict):
    first = [{"init": ["f"]}, *fences, relaxed(is_relaxed), {"arrive": "f", "mask": 2}, WAIT | {"when": 0}, CLUSTER]
    data = pipeline(first, [relaxed(is_relaxed), CLUSTER], cluster=[2, 1])
    data["barriers"]["f"]["count"] = 2
    data["roles"][0]["steps"][-3]["when"] = "rank == 0"
    assert simulated(data)[0] == verdict


def test_what_a_kernel_does_besides_is_not_proven():
    data = pipeline([{"arrive": "f"}], [WAIT])
    found = ts.simulate({**data, "not_covered": ["flags in global memory"]})
    assert (found.verdict, found.not_covered, bool(found)) == (
        "synchronization proven",
        ("flags in global memory",),
        False,
    )
    assert found.sentence.endswith("Memory not covered: flags in global memory.")
    assert found.pipeline.to_dict()["not_covered"] == ["flags in global memory"]
