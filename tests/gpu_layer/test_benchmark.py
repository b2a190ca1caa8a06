"""bench: what is measured fits the card, and what comes of it is told and kept; a stand-in gives the times."""

import json
import sys

import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.value import Value, own_data


@pytest.mark.slow
@pytest.mark.usefixtures("predicting")
def test_rates_and_the_planners_order_are_drawn_and_lead_back(capsys):
    assert run(["bench", "plain", "stores", "smem", "plans", "--tiles", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {rate["gb_per_s"] for rate in printed["rates"]} == {4000.0}
    order = printed["plan_order"]
    assert (order["tiles"], order["first_choice_good"], order["pairs"], order["misses"]) == (3, 3, 0, [])
    assert order["candidates"] == order["predicted"] > 3
    assert printed["weighed_by"] == "H200"
    assert Value.from_dict(printed).to_dict() == own_data(printed)
    assert run(["bench", "plain", "plans", "--tiles", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("stand-in: at most 4000 GB/s (plain")
    assert "good for 1 of 1 tiles." in shown
    assert "stand-in, 132 SMs, 1980 MHz at most" in shown
    assert "memory 3201 MHz, driver 0.0" in shown
    assert "copy, read and written  4000  █" in shown
    assert "1 of 1 tiles" in shown


@pytest.mark.usefixtures("predicting")
def test_a_measured_card_is_kept_and_used_where_it_is_named(cards, capsys):
    before = ts.plan((128, 64), "bf16").to_dict()
    assert run(["bench", "loads", "stores", "--save-card", "my card"]) == 0
    assert "Saved as a card:" in capsys.readouterr().out
    assert [path.name for path in cards.iterdir()] == ["my card.json"]
    assert ts.plan((128, 64), "bf16").to_dict() == before  # never silently
    mine = ts.Card.named("my card")
    assert (mine.arch.name, mine.sms, mine.l2_bytes, mine.basis("tma")) == ("sm_90", 132, 60 << 20, "measured")
    assert mine.tma.load(16) == mine.memory_gb_per_s == 4000
    assert mine.tma.latency_us == pytest.approx(132 * 8192 / 4000 / 1e3, abs=1e-3)
    assert mine.tma.issue_ns["one thread"] == round(132 * 512 / 4000)
    best = ts.plan((128, 64), "bf16", card="my card").best
    assert best.costs.gb_per_s == 4000
    assert ts.Value.from_dict(best.to_dict()) == best
    assert run(["plan", "128x64", "bf16", "--card", "my card"]) == 0
    assert "4000 GB/s on the card my" in capsys.readouterr().out


@pytest.mark.usefixtures("predicting", "cards")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("H200", "H200 is a card"),
        ("nvidia h100 pcie", "H100 PCIe is a card"),
        *((name, "a name has 1 to 61 letters, digits,") for name in ("../escape", "", "a/b")),
    ],
)
def test_a_card_of_the_table_keeps_its_name_and_no_name_leaves_the_folder(name, reason, capsys):
    assert run(["bench", "loads", "stores", "--save-card", name]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("predicting", "cards")
def test_a_card_is_saved_from_loads_and_stores(capsys):
    assert run(["bench", "plain", "--save-card", "mine"]) == 2
    assert "bench-save" in capsys.readouterr().err


@pytest.mark.usefixtures("predicting")
def test_without_platformdirs_there_is_one_sentence_and_status_3(monkeypatch, capsys, wording):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert run(["bench", "loads", "stores", "--save-card", "mine"]) == 3
    wording("without platformdirs there is one sentence and status 3", capsys.readouterr().err.strip())
    assert run(["plan", "128x64", "bf16", "--card", "mine"]) == 2
    assert "known: H200" in capsys.readouterr().err
