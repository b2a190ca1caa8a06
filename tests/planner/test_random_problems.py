"""Any problem whatever gets a proven plan, or a refusal whose reasons name what to change."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.planner.boxes import PlannedCopy
from tilescope.planner.plan_reasons import decisive, rank_plans
from tilescope.planner.proof import proven

problems = st.fixed_dictionaries(
    {
        "tile": st.tuples(
            st.sampled_from([8, 16, 24, 64, 64, 96, 128, 256, 320]) | st.integers(1, 300),
            st.sampled_from([8, 16, 32, 48, 64, 64, 128, 256]) | st.integers(1, 300),
        ),
        "data_type": st.sampled_from(
            ["bf16", "f16", "tf32", "e4m3", "s8", "f32", "f64", "u64", "e2m1", "e2m3", "u8", "b1", "16u4_align16b"]
        ),
        "arch": st.sampled_from(["sm_90", "sm_90", "sm_80", "sm_86", "sm_100", "sm_103", "sm_120", "H100", None]),
        "major": st.sampled_from(["K", "MN"]),
        "consumer": st.sampled_from(
            [None, "wgmma", "tcgen05", "ldmatrix", "ld.b128 columns", "ld.b32 rows", "st.b128 rows"]
        ),
        "swizzle": st.sampled_from(
            [None, None, None, "none", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B"]
        ),
        "atom_order": st.sampled_from([None, None, "column", "row"]),
        "operand": st.sampled_from([None, "A", "B"]),
        "stages": st.integers(1, 6),
        "copy": st.sampled_from([None, "tma", "cp.async", "ld.global"]),
        "direction": st.sampled_from(["load", "load", "store"]),
        "traffic": st.sampled_from(["dense", "sparse"]),
        "fold": st.booleans(),
        "global_shape": st.none() | st.tuples(st.integers(1, 2000), st.integers(1, 250).map(lambda n: 8 * n)),
        "strides_bytes": st.none()
        | st.integers(0, 500).map(lambda n: (16 * n,))
        | st.integers(1, 8000).map(lambda n: (n,)),
    }
)


def check(problem):
    best = None
    try:
        report = ts.plan(problem.pop("tile"), problem.pop("data_type"), **problem)
        best = report.best
    except ts.RuleError as error:
        reasons = error.violations
    if best is None:
        assert reasons
        assert [each for each in reasons if not (each.found and each.limit and each.fix)] == []
        # No plan may be wrong, only impossible; and what cannot be asked for is not what to change.
        assert {"plan-proof", "memory-extent", "smem-address"}.isdisjoint(each.rule for each in reasons)
        return
    assert proven(best) is best
    assert report.candidates == tuple(rank_plans(list(report.candidates)))
    assert decisive(best, best) is None
    assert best.reasons


@given(problems)
def test_every_problem_is_planned_or_refused_with_reasons(problem):
    check(problem)


@pytest.mark.slow
@given(problems)
@settings(max_examples=2000)
def test_two_thousand_problems_are_planned_or_refused_with_reasons(problem):
    check(problem)


def test_the_proof_notices_a_copy_that_lands_in_the_wrong_place():
    best = ts.plan((64, 128), "bf16").best
    moved = tuple(PlannedCopy(copy.coords, copy.smem_offset_bytes ^ 8192) for copy in best.copies)
    with pytest.raises(ts.PlanError, match=r"plan-proof.*element \(0, 0\)"):
        proven(replace(best, boxes=replace(best.boxes, copies=moved)))
