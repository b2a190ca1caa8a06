"""What `ts.simulate` proves is right in every order, and what it calls a mistake is one: held against `naive`, which tries all.

Random small pipelines come from `generated`. Beside them stand the pipelines of golden/pipelines: small wrong ones that
were once proven, and real kernels.
"""

import json
import random
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from generated import pipelines
from naive import naive
from right_pipelines import TEMPLATES

import tilescope as ts

GOLDEN = Path(__file__).parent.parent / "golden" / "pipelines"
FALSE_PROOFS = {row["name"]: row["pipeline"] for row in json.loads((GOLDEN / "false_proofs.json").read_text())}
KERNELS = sorted(path.stem for path in GOLDEN.glob("*.toml"))

STATE_LIMIT = 20_000
SAMPLE = 60
SLOW_SEEDS = range(1, 13)
PIPELINES_PER_SEED = 600


def agreement(seed, count):
    """How often simulate and naive came to which pair of answers; a contradiction fails."""
    pairs = Counter()
    for name, data in pipelines(seed, count):
        try:
            found = ts.simulate(data)
        except ts.RuleError:
            pairs["refused"] += 1
            continue
        seen = naive(data, STATE_LIMIT)
        if seen is None:
            pairs["too many orders"] += 1
            continue
        if found.verdict == "proven":
            assert seen == "", f"{name}: proven, but {seen}: {json.dumps(data)}"
        elif found.verdict == "mistake":
            assert seen, f"{name}: {found.sentence}, but every order is right: {json.dumps(data)}"
        pairs[found.verdict, "bad" if seen else "right"] += 1
    return pairs


def assert_most_are_decided(pairs):
    total = pairs.total()
    assert pairs["proven", "right"] > 0.25 * total, pairs
    assert pairs["mistake", "bad"] > 0.25 * total, pairs
    assert pairs["undecided", "right"] + pairs["undecided", "bad"] < 0.02 * total, pairs
    assert pairs["too many orders"] < 0.02 * total, pairs
    assert pairs["refused"] < 0.1 * total, pairs


def test_a_sample_of_random_pipelines_agrees_with_every_order():
    assert_most_are_decided(agreement(0, SAMPLE))


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", SLOW_SEEDS)
def test_thousands_of_random_pipelines_agree_with_every_order(seed):
    assert_most_are_decided(agreement(seed, PIPELINES_PER_SEED))


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_are_right_in_every_order(name):
    for seed in range(12):
        data = TEMPLATES[name](random.Random(seed))
        assert naive(data, STATE_LIMIT) == "", data


@pytest.mark.slow
def test_random_pipelines_are_the_same_for_the_same_seed_and_bad_in_every_way():
    count = 600
    drawn = list(pipelines(0, count))
    assert drawn == list(pipelines(0, count))
    assert drawn != list(pipelines(1, count))
    seen = Counter(naive(data, STATE_LIMIT) for _, data in drawn)
    ways = {"hang", "fault", "race", "fence", "beyond", "overlap", "unfilled", "partial", "stale", "undefined", "exit"}
    assert ways <= seen.keys()
    assert 0.3 * count < seen[""] < 0.7 * count


# ---- small wrong pipelines that were once proven ----

# what is seen first when every order is tried
SEEN = {
    "A": "race",
    "A2": "race",
    "B": "race",
    "B2": "race",
    "C": "hang",
    "D": "overlap",
    "E": "beyond",
    "E2": "partial",
    "F": "fault",
    "G": "hang",
    "H": "undefined",
    "I": "race",
    "I2": "race",
    "J": "stale",
    "K": "overlap",
    "M": "exit",
}


@pytest.mark.parametrize("name", SEEN)
def test_pipelines_that_were_once_proven_are_bad_in_some_order(name):
    assert naive(FALSE_PROOFS[name]) == SEEN[name]


@pytest.mark.parametrize("name", SEEN)
def test_pipelines_that_were_once_proven_are_mistakes(name):
    assert ts.simulate(FALSE_PROOFS[name]).verdict == "mistake"


def test_numbers_that_nobody_can_mean_are_refused():
    assert FALSE_PROOFS.keys() - SEEN.keys() == {"L"}
    with pytest.raises(ts.RuleError):
        ts.simulate(FALSE_PROOFS["L"])


# ---- kernels ----

# Fewer rounds, so that every order can be tried: what is written in the file, and what stands for it here.
FEWER_ROUNDS = {
    "cutlass_cooperative": {
        "S = 4, T = 3, K = 5": "S = 2, T = 1, K = 2",
        "cluster = [2, 1]": "cluster = [1, 1]",  # one block, which loads both slices
        "empty = {stages = 4, count = 4}": "empty = {stages = 4, count = 2}",
        "mask = 3": "mask = 1",
        "rank == 1": "rank == 0",
        "count = 15": "count = 2",
        "start = 15, count = 4": "start = 2, count = 2",
        'loop = "t", count = 3': 'loop = "t", count = 1',
        'loop = "k", count = 5': 'loop = "k", count = 2',
        "start = 3, count = 2": "start = 1, count = 2",
    },
    "cutlass_pingpong": {
        "S = 4, K = 3": "S = 2, K = 2",
        "count = 18": "count = 8",
        "start = 18, count = 4": "start = 8, count = 2",
        'loop = "t", count = 3': 'loop = "t", count = 2',
        'loop = "k", count = 3': 'loop = "k", count = 2',
    },
    "deepgemm_multicast": {
        "S = 4}": "S = 1}",
        "count = 10": "count = 2",
        "start = 10, count = 4": "start = 2, count = 1",
    },
    "flash3": {
        "N = 4": "N = 2",
        'loop = "w", count = 3': 'loop = "w", count = 1',
        'loop = "n", count = 4': 'loop = "n", count = 2',
        'loop = "n", count = 3': 'loop = "n", count = 1',
        "w * N + 3": "w * N + 1",
    },
    "flash4": {
        "N = 3": "N = 1",
        'loop = "w", count = 2': 'loop = "w", count = 1',
        'loop = "n", count = 6': 'loop = "n", count = 2',
        'loop = "n", count = 3': 'loop = "n", count = 1',
        'loop = "i", count = 6': 'loop = "i", count = 1',
        "n < 2": "n < 0",
        "n == 2": "n == 0",
        "n == 1": "n == 0",
    },
    "thunderkittens": {
        "S = 4, K = 6": "S = 2, K = 3",
        'loop = "t", count = 3': 'loop = "t", count = 2',
        'loop = "k", count = 6': 'loop = "k", count = 3',
    },
    "pdl": {},
    "store_epilogue": {},
    "stream_k": {},
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("flash4", "cutlass_cooperative") else [])
        for name in KERNELS
    ],
)
def test_kernels_with_fewer_rounds_are_right_in_every_order(name):
    text = (GOLDEN / f"{name}.toml").read_text()
    for written, fewer in FEWER_ROUNDS[name].items():
        assert written in text
        text = text.replace(written, fewer)
    assert naive(tomllib.loads(text)) == ""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_proven(name):
    found = ts.simulate(tomllib.loads((GOLDEN / f"{name}.toml").read_text()))
    assert found.verdict == "proven", found.sentence
