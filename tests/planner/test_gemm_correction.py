"""Times that `bench gemm --tune --save-card` kept decide plans for that card, and for no other."""

import json
from dataclasses import asdict

import pytest

import tilescope as ts
from tilescope.card import add_timed_gemms, describe_card
from tilescope.cli import run
from tilescope.gpu.bench.gemm_tuning import alternatives, timed_gemm

SHAPE = (512, 4096, 7168)


def tune(name, plan, times_us, date="2026-11-18"):
    """Keep times for the kernels of a plan, as if they had been measured."""
    describe_card(name, ts.Card.named("H200"), "NVIDIA H200")
    made = [timed_gemm(each, us, date) for each, us in zip(alternatives(plan), times_us, strict=False)]
    return add_timed_gemms(name, made)


def test_alternatives_are_the_ranked_kernels():
    plan = ts.plan_gemm(256, 896, 5120, "bf16")
    made = alternatives(plan)
    assert [(each.tile, each.schedule, each.stages) for each in made] == [
        (each.tile, each.schedule, each.stages) for each in plan.ranked
    ]
    scaled = alternatives(ts.plan_gemm(64, 512, 512, "e4m3", scales="block128"))
    assert all(each.block_scales for each in scaled)


@pytest.mark.usefixtures("cards")
def test_the_fastest_measured_kernel_is_chosen_where_the_card_is_named():
    plan = ts.plan_gemm(*SHAPE, "bf16")
    assert len(plan.ranked) >= 5
    before = plan.to_dict()
    tune("mine", plan, [60.0, 55.0, 40.0, 58.0, 59.0])
    tuned = ts.plan_gemm(*SHAPE, "bf16", card="mine")
    assert (tuned.tile, tuned.schedule) == (plan.ranked[2].tile, plan.ranked[2].schedule)
    assert tuned.predicted_us == pytest.approx(40.0, rel=1e-3)
    said = " ".join(map(str, tuned.reasons))
    assert "Corrected by measurements of this card, mine, 2026-11-18: this kernel itself was timed." in said
    assert ts.plan_gemm(*SHAPE, "bf16").to_dict() == before  # never silently
    assert ts.plan_gemm(*SHAPE, "bf16", card="H200").tile == plan.tile


@pytest.mark.usefixtures("cards")
def test_other_products_are_corrected_by_the_mean_of_their_bound():
    plan = ts.plan_gemm(*SHAPE, "bf16")
    uncorrected = [timed_gemm(each, 1.0, "").predicted_us for each in alternatives(plan)]
    bounds = [each.prediction.bound for each in plan.ranked]
    tune("mine", plan, [2 * us for us in uncorrected])
    bound = max(set(bounds), key=bounds.count)
    assert bounds.count(bound) >= 3
    other = next(
        shape for shape in ((512, 4096, 14336), (1024, 4096, 7168), (2048, 4096, 4096))
        if ts.plan_gemm(*shape, "bf16").ranked[0].prediction.bound == bound
    )  # fmt: skip
    doubled = ts.plan_gemm(*other, "bf16", card="mine")
    assert doubled.predicted_us == pytest.approx(2 * ts.plan_gemm(*other, "bf16").predicted_us, rel=0.02)
    assert f"measured to predicted times of {bounds.count(bound)} kernels" in " ".join(map(str, doubled.reasons))


@pytest.mark.usefixtures("cards")
def test_a_time_below_the_floor_is_raised_to_it():
    plan = ts.plan_gemm(*SHAPE, "bf16")
    tune("mine", plan, [1.0])
    tuned = ts.plan_gemm(*SHAPE, "bf16", card="mine")
    assert all(each.prediction.us >= each.floor_us for each in tuned.ranked)


@pytest.mark.usefixtures("cards")
def test_times_of_another_model_say_nothing_about_other_kernels(monkeypatch):
    plan = ts.plan_gemm(*SHAPE, "bf16")
    tune("mine", plan, [2 * each.prediction.us for each in plan.ranked])
    monkeypatch.setattr("tilescope.planner.gemm_correction.MODEL", "another")
    assert ts.plan_gemm(1024, 4096, 7168, "bf16", card="mine").ranked[0].prediction.timed_kernels == 0
    again = ts.plan_gemm(*SHAPE, "bf16", card="mine", tile=plan.tile, **asdict(plan.schedule))
    assert again.ranked[0].prediction.timed_kernels == 1


def test_a_kernel_that_is_timed_again_gets_its_new_time(cards):
    plan = ts.plan_gemm(*SHAPE, "bf16")
    tune("mine", plan, [60.0, 55.0])
    path = add_timed_gemms("mine", [timed_gemm(alternatives(plan)[1], 50.0, "2026-11-19")])
    rows = json.loads(path.read_text())["gemms"]
    assert (path.parent, [row["us"] for row in rows]) == (cards, [60.0, 50.0])


@pytest.mark.parametrize("spoiled", ['[{"product": "p"}]', "3", '[{"us": -1}]'])
def test_a_spoiled_list_of_times_is_refused_by_the_file(spoiled, cards, capsys):
    path = describe_card("mine", ts.Card.named("H200"), "NVIDIA H200")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"gemms": json.loads(spoiled)}))
    assert run(["gemm", "512x4096x7168", "bf16", "--card", "mine"]) == 2
    assert "saved-card" in capsys.readouterr().err
    assert path.parent == cards


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gemm", "--tune"], "--tune needs a shape"),
        (["loads", "--tune"], "--tune times the alternatives of a product"),
        (["gemm", "512x512x512", "--save-card", "mine"], "keeps a card with --tune"),
        (["gemm", "512x512x512", "--tune", "--dependent"], "leave --dependent out"),
        (["gemm", "512x512x512", "--tiles", "3"], "--tiles are those of `bench plans`"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, reason, capsys):
    assert run(["bench", *words]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())
