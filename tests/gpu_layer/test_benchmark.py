"""bench: what is measured fits the card, and what comes of it is told; a stand-in gives the times."""

import json

import pytest

from tilescope.cli import run
from tilescope.gpu.benchmark import SETTINGS
from tilescope.gpu.streaming import LEAST_BYTES, MATRIX_BYTES, MOST_BOXES, MOST_STAGES, SM_SMEM_BYTES, moved_bytes
from tilescope.value import Value


@pytest.mark.parametrize("topic", ["loads", "stores"])
def test_every_setting_fits_an_sm_and_moves_more_than_any_cache_holds(topic):
    for table, setting, case in SETTINGS[topic](132):
        smem_bytes = case["blocks_per_sm"] * case["streams"] * case["stages"] * case["stage_bytes"]
        assert smem_bytes <= SM_SMEM_BYTES, (table, setting)
        assert case["stages"] <= MOST_STAGES
        assert case["streams"] * case["issuers"] <= 32
        assert len(case["boxes"]) <= MOST_BOXES
        assert all(box[2] % 128 == 0 for box in case["boxes"])
        assert LEAST_BYTES <= moved_bytes(case) <= MATRIX_BYTES, (table, setting)


@pytest.mark.usefixtures("predicting")
def test_rates_and_the_planners_order_are_drawn_and_lead_back(capsys):
    assert run(["bench", "plain", "stores", "smem", "plans", "--tiles", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {rate["gb_per_s"] for rate in printed["rates"]} == {4000.0}
    order = printed["plan_order"]
    assert (order["tiles"], order["first_choice_good"], order["pairs"], order["misses"]) == (3, 3, 0, [])
    assert order["candidates"] == order["predicted"] > 3
    assert Value.from_dict(printed).to_dict() == printed
    assert run(["bench", "plain", "plans", "--tiles", "1"]) == 0
    shown = capsys.readouterr().out
    assert "copy, read and written  4000  █" in shown
    assert "1 of 1 tiles" in shown
