"""The way of an element through a map and a descriptor: it is the plan's, and what does not fit is refused."""

import pytest

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.planner.map_path import path_of_map

TILE = ts.TensorMap("bf16", (64, 128), (128,), (64, 128), swizzle="128B")


@pytest.mark.parametrize(
    ("tile", "data_type", "options"),
    [
        ((128, 64), "bf16", {}),
        ((64, 128), "e4m3", {}),
        ((64, 16), "tf32", {"swizzle": "64B"}),
        ((64, 64), "f16", {"major": "MN"}),
        ((128, 64), "bf16", {"arch": "sm_100"}),
    ],
)
@pytest.mark.parametrize("start", [0, 0x2000])
def test_the_map_and_any_descriptor_of_a_plan_lead_to_its_way(tile, data_type, options, start):
    plan = next(
        candidate
        for candidate in ts.plan(tile, data_type, **options).candidates
        if candidate.boxes is not None and len(candidate.copies) == 1 and not candidate.folded
    )
    words = [descriptor.encode() for block in plan.descriptors(start) for descriptor in block]
    for word in (words[0], words[-1]):
        found = path_of_map(plan.tensor_map(0), word, 37, 13, start)
        expected = plan.path(37, 13, start)
        assert (found.address, found.descriptor, found.result) == (
            expected.address,
            expected.descriptor,
            expected.result,
        )


def test_a_descriptor_of_another_swizzle_is_refused_and_the_right_ones_are_named():
    with pytest.raises(RuleError) as refused:
        path_of_map(TILE, 0x8000004000010002, 0, 0)  # 64B
    (violation,) = refused.value.violations
    assert violation.rule == "path-descriptor"
    assert "0x4000004000010000, 0x4000004000010002" in violation.limit


def test_a_descriptor_of_another_start_is_refused():
    with pytest.raises(RuleError, match="path-descriptor"):
        path_of_map(TILE, 0x4000004000010002, 0, 0, 0x4000)


@pytest.mark.parametrize(
    "tensor_map",
    [
        ts.TensorMap("bf16", (64, 128, 2), (128, 128 * 128), (64, 128, 1), swizzle="128B"),
        ts.TensorMap("bf16", (64, 128), (128,), (64, 4), swizzle="128B"),  # half an atom
    ],
)
def test_a_map_whose_box_is_no_tile_is_refused(tensor_map):
    with pytest.raises(RuleError, match="no tensor core reads such"):
        path_of_map(tensor_map, 0x4000004000010002, 0, 0)
