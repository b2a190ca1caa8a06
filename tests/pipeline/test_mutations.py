"""Right pipelines are proven, and whatever is changed in one is refused or harmless in every order.

The second opinion is `naive`, which tries all orders and has seen what it calls bad: no rule is beyond it.
"""

import itertools

import pytest
from descriptions import RIGHT, mutants
from naive import naive

import tilescope as ts


def verdict(data):
    try:
        return ts.simulate(data, max_states=4000)
    except ts.RuleError as refused:
        return refused


@pytest.mark.parametrize("name", RIGHT)
def test_right_pipelines_are_proven_and_right_in_every_order(name):
    data = RIGHT[name]()
    found = ts.simulate(data)
    assert found.verdict == "proven", found.sentence
    assert (found.warnings, found.aliasing, found.states) == ((), (), 0)
    assert naive(data) == ""


LARGE = ("multicast", "gemm", "gemm, tcgen05", "split meetings")
EVERY = [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in RIGHT]


@pytest.mark.parametrize("name", EVERY)
def test_every_change_is_refused_or_harmless(name, request):
    """`./test --every-case` tries every change, the others every third."""
    undecided = []
    step = 1 if request.config.getoption("--every-case") else 3
    for said, changed in itertools.islice(mutants(RIGHT[name]()), 0, None, step):
        found = verdict(changed)
        if isinstance(found, ts.RuleError):
            continue
        seen = naive(changed)
        if found.verdict == "proven":
            assert seen == "", f"{said}: proven, but {seen}"
        elif found.verdict == "mistake":
            assert seen, f"{said}: {found.sentence}, but every order is right"
        elif found.verdict == "undecided":
            undecided.append(said)
    assert undecided == []
