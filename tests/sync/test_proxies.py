"""The table of fences: one row for two accesses, with one severity for a run and for the search over all orders."""

import pytest

import tilescope as ts
from tilescope.pipeline.operations import OPERATIONS
from tilescope.sync.proxies import ACCESS_FENCES, FENCE_RULES, PROXY_TENSORMAP, WGMMA, find_fence_rule

# the rule that a run reports for a row of the table; a read before a copy gets none
RULE_OF_RUN = {
    ("smem", "generic", "error"): "run-proxy-fence",
    ("gmem", "generic", "error"): "run-proxy-fence",
    ("smem", "cp.async", "error"): "run-proxy-fence",
    ("smem", "cp.async", "note"): "run-cp-async-fence",
    ("tmem", "generic", "note"): "run-tmem-fence",
    ("tmem", "tcgen05", "note"): "run-tmem-fence",
    ("smem", "init", "error"): "run-barrier-init",
    ("gmem", "map", "error"): "run-map-fence",
    ("registers", "generic", "error"): "run-accumulators",
}


def test_two_accesses_have_one_row():
    accesses = [(row.space, row.first, row.first_writes, row.second) for row in FENCE_RULES]
    assert len(accesses) == len(set(accesses))


@pytest.mark.parametrize("row", FENCE_RULES, ids=lambda row: f"{row.space} {row.first} {row.second} {row.first_writes}")
def test_the_severity_of_a_run_is_that_of_its_rule(row):
    if row.first_writes or row.space == "tmem":
        assert ts.RULES[RULE_OF_RUN[row.space, row.first, row.severity]].severity == row.severity
    else:
        assert row.severity == "note"


def test_a_description_can_state_every_fence_that_the_search_asks_for():
    choices = OPERATIONS["fence"].target.choices
    beyond_descriptions = {PROXY_TENSORMAP.kind, WGMMA.kind}
    assert {row.fence.kind for row in FENCE_RULES} - beyond_descriptions == set(choices)
    assert set(ACCESS_FENCES) == set(choices) - {"mbarrier_init"}


@pytest.mark.parametrize(
    ("space", "first", "first_writes", "second", "severity"),
    [
        ("smem", "generic", True, "store", "error"),
        ("smem", "generic", False, "tma", "note"),
        ("smem", "cp.async", True, "store", "error"),
        ("smem", "cp.async", True, "wgmma", "note"),
        ("smem", "cp.async", True, "tcgen05", "note"),
        ("gmem", "generic", True, "bulk", "error"),
        ("gmem", "generic", False, "store", "note"),
        ("tmem", "tcgen05", True, "generic", "note"),
        ("tmem", "generic", False, "tcgen05", "note"),
    ],
)
def test_a_fence_that_can_change_a_result_is_an_error(space, first, first_writes, second, severity):
    assert find_fence_rule(space, first, second, first_writes=first_writes).severity == severity


def test_accesses_through_one_proxy_need_no_fence():
    assert find_fence_rule("smem", "tma", "wgmma", first_writes=True) is None
    assert find_fence_rule("smem", "generic", "generic", first_writes=True) is None
