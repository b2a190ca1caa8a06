"""The table of fences: one row for two accesses, and a severity for each judge."""

import pytest

import tilescope as ts
from tilescope.pipeline.operations import OPERATIONS
from tilescope.sync.proxies import ACCESS_FENCES, FENCE_RULES, find_fence_rule

# the rule that a run reports for a row of the table
RULE_OF_RUN = {
    ("smem", "generic"): "run-proxy-fence",
    ("gmem", "generic"): "run-proxy-fence",
    ("smem", "cp.async"): "run-cp-async-fence",
    ("tmem", "generic"): "run-tmem-fence",
    ("tmem", "tcgen05"): "run-tmem-fence",
    ("smem", "init"): "run-init-fence",
    ("gmem", "map"): "run-map-fence",
    ("registers", "generic"): "run-accumulators",
}


def test_two_accesses_have_one_row():
    accesses = [(row.space, row.first, row.first_writes, row.second) for row in FENCE_RULES]
    assert len(accesses) == len(set(accesses))


@pytest.mark.parametrize("row", FENCE_RULES, ids=lambda row: f"{row.space} {row.first} {row.second} {row.first_writes}")
def test_the_severity_of_a_run_is_that_of_its_rule(row):
    if row.run is not None:
        assert ts.RULES[RULE_OF_RUN[row.space, row.first]].severity == row.run


def test_a_description_can_state_every_fence_that_the_search_asks_for():
    choices = OPERATIONS["fence"].target.choices
    assert {row.fence.kind for row in FENCE_RULES if row.proof is not None} == set(choices)
    assert set(ACCESS_FENCES) == set(choices) - {"mbarrier_init"}


@pytest.mark.parametrize(
    ("space", "first", "first_writes", "second", "proof", "run"),
    [
        ("smem", "generic", True, "store", "error", "error"),
        ("smem", "generic", False, "tma", "warning", None),
        ("smem", "cp.async", True, "wgmma", "error", "note"),
        ("tmem", "tcgen05", True, "generic", "error", "note"),
    ],
)
def test_rows_on_which_the_judges_differ_have_two_severities(space, first, first_writes, second, proof, run):
    row = find_fence_rule(space, first, second, first_writes=first_writes)
    assert (row.proof, row.run) == (proof, run)


def test_accesses_through_one_proxy_need_no_fence():
    assert find_fence_rule("smem", "tma", "wgmma", first_writes=True) is None
    assert find_fence_rule("smem", "generic", "generic", first_writes=True) is None
