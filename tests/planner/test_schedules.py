"""How blocks share a GEMM: what is chosen, what it is predicted to cost, and that its pipeline is right."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.data_type import DataType
from tilescope.pipeline.description import Pipeline
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.gemm_time import predicted
from tilescope.planner.product import Product

GOLDEN = Path(__file__).parent.parent / "golden"
BF16 = DataType.named("bf16")


def product(shape, sms=132):
    return Product(tuple(shape), BF16, BF16, ARCH["sm_90"], CARD["H200"], "wgmma", "K", "K", sms)


def test_few_rows_are_swapped_and_their_k_is_split():
    gemm = ts.plan_gemm(8, 4096, 14336, "bf16")
    assert (gemm.tile, gemm.schedule) == ((8, 64, 128), Schedule(swapped=True, split=2))
    assert gemm.sums == (64, 8)
    assert gemm.k_tiles * gemm.tile[2] * 2 == 14336


def test_deep_k_of_few_tiles_is_shared_by_many_blocks():
    gemm = ts.plan_gemm(128, 128, 65536, "bf16")
    assert gemm.schedule.blocks_of_a_tile >= 16
    assert gemm.workspace_bytes > 0
    assert gemm.counters == gemm.tiles * gemm.schedule.split


def test_a_last_round_that_leaves_most_sms_idle_is_shared():
    gemm = ts.plan_gemm(4096, 11008, 4096, "bf16")
    assert gemm.schedule == Schedule(tail=2)
    assert gemm.tail_tiles == gemm.tiles % 132
    assert gemm.blocks == 132


def test_matrices_beyond_the_l2_are_taken_in_groups():
    assert ts.plan_gemm(8192, 8192, 8192, "bf16").schedule.group == 16
    assert ts.plan_gemm(2048, 8192, 1024, "bf16", tile=(128, 256, 64)).schedule.group == 0


def test_what_is_asked_for_is_planned():
    gemm = ts.plan_gemm(512, 4096, 4096, "bf16", tile=(128, 256, 64), swapped=False, split=2, parts=1, tail=1)
    assert (gemm.tile, gemm.schedule.split, gemm.schedule.swapped) == ((128, 256, 64), 2, False)
    assert gemm.share == 128


def test_a_prediction_is_the_sum_of_its_parts_and_names_what_binds():
    gemm = ts.plan_gemm(16, 4096, 4096, "bf16")
    prediction = gemm.ranked[0].prediction
    parts = (prediction.launch_us, prediction.main_us, prediction.epilogue_us, prediction.adding_us)
    assert gemm.predicted_us == pytest.approx(sum(parts))
    assert prediction.bound == max(dict(prediction.bounds_us), key=dict(prediction.bounds_us).get) == "memory"
    assert prediction.main_us >= max(dict(prediction.bounds_us).values())
    assert any("bound by memory" in str(reason) for reason in gemm.reasons)


def test_the_ranking_is_by_predicted_time():
    gemm = ts.plan_gemm(512, 4096, 14336, "bf16")
    times = [tile.prediction.us for tile in gemm.ranked]
    assert times[0] <= 1.01 * min(times)
    later = [tile for tile in gemm.others if tile.behind_in == "time"]
    assert later
    assert [tile.prediction.us for tile in later] == sorted(tile.prediction.us for tile in later)
    assert min(tile.prediction.us for tile in later) > 1.01 * min(times)


def recorded():
    """Shapes, and for every shape its kernels: tile, schedule, stages (0: as many as fit), microseconds."""
    with np.load(GOLDEN / "gemm_times.npz") as file:
        columns = (file[name].tolist() for name in ("shape", "tile", "schedule", "stages", "us"))
        kernels = {}
        for shape, tile, shared, stages, us in zip(*columns, strict=True):
            swapped, split, parts, group, tail, along_m, along_n, ping_pong = shared
            schedule = Schedule(
                swapped=bool(swapped),
                split=split,
                parts=parts,
                group=group,
                tail=tail,
                multicast=(along_m, along_n),
                ping_pong=bool(ping_pong),
            )
            kernels.setdefault(tuple(shape), []).append((tuple(tile), schedule, stages, us))
    return kernels


def test_predictions_are_close_to_the_times_of_the_card():
    errors = []
    regrets = []
    for shape, kernels in recorded().items():
        asked = product(shape)
        best_us = min(us for *_, us in kernels)
        times = [(predicted(asked, tile, schedule, stages).us, us) for tile, schedule, stages, us in kernels]
        errors += [abs(guess / us - 1) for guess, us in times if us < 1.2 * best_us]  # among which the choice is
        regrets.append(min(times)[1] / best_us)  # of the kernel with the shortest predicted time
    assert np.mean(np.array(errors) < 0.15) > 0.91
    assert np.mean(regrets) < 1.03


def test_few_columns_and_many_rows_are_taken_along_n():
    """Neighbouring SMs then share rows of A: 66 us, not 96, on an H200."""
    assert ts.plan_gemm(13004, 576, 11328, "bf16", tile=(128, 128, 64)).schedule.group == 1
    assert ts.plan_gemm(256, 28672, 4096, "bf16", tile=(128, 224, 64)).schedule.group == 0


def test_tiles_of_few_rounds_are_taken_near_squares():
    """768 x 1536 x 7168 in tiles of 64 x 144 took 25 us in groups of 4 on an H200, 33 down m and 39 along n."""
    assert ts.plan_gemm(768, 1536, 7168, "bf16", tile=(64, 144, 64)).schedule.group == 4
    assert ts.plan_gemm(3251, 576, 11328, "bf16", tile=(128, 128, 64)).schedule.group == 6
    assert ts.plan_gemm(548, 2872, 4896, "bf16", tile=(112, 128, 64)).schedule.group == 0  # 5 rows of tiles: one group


def test_dependent_launch_fetches_b_before_it_waits_for_the_kernel_before():
    gemm = ts.plan_gemm(16, 4096, 4096, "bf16", split=2, dependent=True)
    plain = ts.plan_gemm(16, 4096, 4096, "bf16", split=2)
    assert gemm.schedule == replace(plain.schedule, dependent=True)
    assert gemm.predicted_us < plain.predicted_us - 1
    pipeline = ts.plan_pipeline(gemm)
    assert ts.simulate(pipeline).verdict == "proven"
    producer = pipeline.to_dict()["roles"][0]["steps"]
    waiting = next(place for place, step in enumerate(producer) if step.get("griddepcontrol") == "wait")
    early = [step["copy"][0] for loop in producer[:waiting] for step in loop.get("steps", []) if "copy" in step]
    late = [step["copy"][0] for loop in producer[waiting:] for step in loop.get("steps", []) if "copy" in step]
    assert (early, late) == (["b"], ["a", "a", "b"])


@pytest.mark.parametrize("left_out", [0, 1])
def test_both_meetings_of_a_cluster_are_needed(left_out):
    pipeline = ts.plan_pipeline(ts.plan_gemm(128, 256, 1024, "bf16", tile=(128, 128, 64), split=2, stages=4))
    assert ts.simulate(pipeline).verdict == "proven"
    data = pipeline.to_dict()
    steps = data["roles"][1]["steps"]
    meetings = [place for place, step in enumerate(steps) if "cluster" in step]
    assert len(meetings) == 2
    del steps[meetings[left_out]]
    assert ts.simulate(Pipeline.from_dict(data)).verdict == "mistake"


@pytest.mark.parametrize(
    "options",
    [
        {"tile": (16, 64, 64), "swapped": True, "split": 4},
        {"tile": (8, 128, 64), "swapped": True, "split": 8},
        {"tile": (64, 64, 64), "parts": 3},
        {"tile": (128, 64, 64), "tail": 2, "sms": 5},
        {"tile": (128, 64, 64), "tail": 2, "sms": 5, "dependent": True},
        {"tile": (64, 64, 64), "parts": 3, "dependent": True},
    ],
)
def test_every_schedules_pipeline_is_proven(options):
    gemm = ts.plan_gemm(300, 256, 1600, "bf16", **options)
    assert ts.simulate(ts.plan_pipeline(gemm)).verdict == "proven"


def test_a_cluster_of_its_own_is_refused_beside_split_k():
    gemm = ts.plan_gemm(128, 128, 1024, "bf16", tile=(128, 128, 64), split=2)
    with pytest.raises(ts.RuleError, match="blocks that share k"):
        ts.plan_pipeline(gemm, cluster=2)


@pytest.mark.parametrize(("data_type", "output"), [("e4m3", "bfloat16"), ("s8", "bfloat16"), ("bf16", "bfloat16")])
def test_small_operands_give_bf16(data_type, output):
    assert ts.plan_gemm(256, 256, 256, data_type).output_type.name == output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"arch": "sm_80", "split": 2}, "split with ldmatrix; it is planned for wgmma"),
        ({"arch": "sm_80", "split": 2, "parts": 2}, "split, parts with ldmatrix; they are planned for wgmma"),
        ({"arch": "sm_100", "tail": 2}, "tail with tcgen05; it is planned for wgmma"),
        ({"dynamic": True}, "dynamic with wgmma; it is planned for tcgen05"),
        ({"cta_group": 2}, "cta_group with wgmma; it is planned for tcgen05"),
        ({"tile": (128, 64, 64), "tail": 2, "sms": 4}, "the last round leaves 0 tiles"),
        ({"tile": (128, 64, 64), "tail": 2, "split": 2}, "have no separate last round"),
        ({"tile": (128, 256, 64), "split": 8, "swapped": False, "stages": 2}, "they reuse the memory of the stages"),
    ],
)
def test_schedules_that_cannot_be_are_refused_with_the_reason(options, said):
    with pytest.raises(ts.PlanError, match=said) as caught:
        ts.plan_gemm(300, 256, 1600, "bf16", **options)
    assert caught.value.violations[0].rule == "gemm-schedule"
