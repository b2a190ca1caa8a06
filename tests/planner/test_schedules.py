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
from tilescope.planner.gemm_rates import H200_RATES
from tilescope.planner.gemm_schedule import Schedule, clusters
from tilescope.planner.gemm_time import predict_time
from tilescope.planner.product import Product
from tilescope.planner.tile_groups import count_fetched_bytes, count_operand_bytes, count_stored_bytes

GOLDEN = Path(__file__).parent.parent / "golden"
BF16 = DataType.named("bf16")


def product(shape, sms=132):
    return Product(tuple(shape), BF16, BF16, ARCH["sm_90"], CARD["H200"], "wgmma", "K", "K", sms)


def test_few_rows_are_swapped_and_their_k_is_split():
    gemm = ts.plan_gemm(8, 4096, 14336, "bf16")
    assert (gemm.tile, gemm.schedule) == ((8, 64, 128), Schedule(swapped=True, parts=2))
    assert gemm.sums == (64, 8)
    assert gemm.k_tiles * gemm.tile[2] * 2 == 14336


def test_deep_k_of_few_tiles_is_shared_by_many_blocks():
    gemm = ts.plan_gemm(128, 128, 65536, "bf16")
    assert gemm.schedule.blocks_of_a_tile >= 16
    assert gemm.workspace_bytes > 0
    assert gemm.counters == gemm.tiles * gemm.schedule.split


def test_a_last_round_that_leaves_most_sms_idle_is_shared():
    gemm = ts.plan_gemm(4096, 11008, 4096, "bf16", tile=(128, 256, 64), swapped=False, multicast=(1, 1))
    assert (gemm.schedule.tail, gemm.schedule.parts, gemm.schedule.split) == (2, 1, 1)
    assert gemm.tail_tiles == gemm.tiles % 132
    assert gemm.blocks == 132


def test_matrices_beyond_the_l2_are_taken_in_groups():
    assert ts.plan_gemm(8192, 8192, 8192, "bf16").schedule.group == 8
    assert ts.plan_gemm(512, 8192, 1024, "bf16", tile=(128, 256, 64)).schedule.group == 0


def test_what_is_asked_for_is_planned():
    gemm = ts.plan_gemm(512, 4096, 4096, "bf16", tile=(128, 256, 64), swapped=False, split=2, parts=1, tail=1)
    assert (gemm.tile, gemm.schedule.split, gemm.schedule.swapped) == ((128, 256, 64), 2, False)
    assert gemm.share == 128


@pytest.mark.parametrize("group", [0, 1, 4])
def test_an_order_that_is_asked_for_changes_nothing_else(group):
    left_open = ts.plan_gemm(1024, 1024, 4096, "bf16", tile=(128, 128, 64))
    asked = ts.plan_gemm(1024, 1024, 4096, "bf16", tile=(128, 128, 64), group=group)
    assert asked.schedule == replace(left_open.schedule, group=group)


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
        times = [(predict_time(asked, tile, schedule, stages).us, us) for tile, schedule, stages, us in kernels]
        errors += [abs(guess / us - 1) for guess, us in times if us < 1.2 * best_us]  # among which the choice is
        regrets.append(min(times)[1] / best_us)  # of the kernel with the shortest predicted time
    assert np.mean(np.array(errors) < 0.15) > 0.91
    assert np.mean(regrets) < 1.03


def test_few_columns_and_many_rows_are_taken_along_n():
    """Neighbouring SMs then share rows of A: 66 us, not 96, on an H200."""
    assert ts.plan_gemm(13004, 576, 11328, "bf16", tile=(128, 128, 64)).schedule.group == 1
    assert ts.plan_gemm(256, 28672, 4096, "bf16", tile=(128, 224, 64)).schedule.group == 0


# Microseconds on an H200, by tiles along m that are taken together (0: all).
ORDERS_US = [
    (768, 1536, 7168, "bf16", (64, 144, 64), {0: 28.7, 1: 38.4, 2: 30.1, 4: 24.6, 8: 24.6}),
    (676, 1536, 3456, "bf16", (64, 128, 64), {0: 13.6, 1: 17.3, 2: 17.0, 4: 12.9, 8: 13.2}),
    (2183, 20416, 2560, "bf16", (160, 192, 64), {0: 303.6, 1: 375.3, 2: 326.6, 4: 314.4, 8: 306.2}),
    (7054, 29888, 448, "bf16", (128, 128, 64), {0: 270.1, 1: 315.3, 2: 308.0, 4: 307.0, 8: 287.5, 16: 283.0}),
    (14090, 1216, 1344, "bf16", (192, 192, 64), {0: 78.2, 1: 69.5, 2: 69.4, 4: 69.4, 8: 69.4, 16: 70.6}),
    (16222, 5632, 128, "bf16", (128, 128, 64), {0: 65.5, 1: 56.6, 2: 57.4, 4: 57.3, 8: 56.6, 16: 57.8}),
    (8192, 2880, 4096, "bf16", (192, 192, 64), {0: 250.6, 1: 244.3, 2: 242.4, 4: 241.9, 8: 243.9, 16: 245.2}),
    (5266, 13120, 5184, "bf16", (160, 192, 64), {0: 924.4, 1: 1008.8, 2: 963.8, 4: 913.9, 8: 908.2, 16: 912.4}),
    (1557, 13616, 2432, "e4m3", (128, 128, 128), {0: 87.8, 1: 94.6, 2: 92.4, 4: 91.3, 8: 89.0}),
]


@pytest.mark.parametrize(("m", "n", "k", "data_type", "tile", "times"), ORDERS_US)
def test_tiles_are_taken_in_an_order_that_was_fast_on_the_card(m, n, k, data_type, tile, times):
    gemm = ts.plan_gemm(m, n, k, data_type, tile=tile, split=1, parts=1, tail=1, multicast=(1, 1))
    assert times[gemm.schedule.group] < 1.04 * min(times.values())


def naive_fetches(grid, group, blocks, sms):
    """How often sets of blocks fetch the rows of A of a tile, and those of B, in the first two rounds."""
    tiles_m, tiles_n = grid
    order = []
    for first in range(0, tiles_m, group):
        for column in range(tiles_n):
            order += [(row, column) for row in range(first, min(first + group, tiles_m))]
    at_once = clusters(sms, blocks)
    fetched_a, fetched_b = set(), set()
    for place, (row, column) in enumerate(order[: 2 * at_once]):
        in_round = place % at_once
        block_set = (place // at_once, in_round * 8 // at_once if blocks == 1 else in_round % 8)
        fetched_a.add((block_set, row))
        fetched_b.add((block_set, column))
    scale = len(order) / min(len(order), 2 * at_once)
    return len(fetched_a) * scale, len(fetched_b) * scale


@pytest.mark.parametrize("grid", [(8, 16), (12, 11), (5, 3), (14, 107), (63, 10), (2, 200), (33, 33)])
@pytest.mark.parametrize("multicast", [(1, 1), (2, 1), (1, 2)])
def test_rows_that_a_set_of_blocks_shares_are_fetched_once(grid, multicast):
    """Sets of 16 or 17 consecutive blocks; of clusters, every eighth."""
    asked = product((64 * grid[0] * multicast[0], 64 * grid[1] * multicast[1], 64))
    blocks = multicast[0] * multicast[1]
    tile_bytes = 64 * 64 * 2
    for group in (1, 2, 4, 8, 16):
        schedule = Schedule(group=group * multicast[0], multicast=multicast)
        a, b = naive_fetches(grid, min(group, grid[0]), blocks, 132)
        expected_bytes = (a * multicast[0] + b * multicast[1]) * tile_bytes
        assert count_fetched_bytes(asked, (64, 64, 64), schedule) == pytest.approx(expected_bytes)


def test_operands_come_once_where_one_round_takes_all_tiles_or_the_l2_holds_them():
    once = product((1024, 1024, 65536))  # 256 MB in 64 tiles
    assert count_operand_bytes(once, (128, 128, 64), 1) == 2 * 1024 * 65536 * 2
    held = product((2048, 4096, 256))
    assert count_operand_bytes(held, (128, 128, 64), 4) == (2048 + 4096) * 256 * 2


def test_c_replaces_operands_in_the_l2():
    """7054 x 29888 x 448: A and B take 33 MB, C 422 MB; B comes again for every group, unless one group takes all."""
    written = product((7054, 29888, 448))
    assert count_operand_bytes(written, (128, 128, 64), 4) > 5 * count_operand_bytes(written, (128, 128, 64), 0)


@pytest.mark.parametrize("shape", [(2**31, 2**31, 64), (2**25, 2**25, 128), (100000, 2**31, 64)])
def test_products_of_millions_of_tiles_have_an_order(shape):
    gemm = ts.plan_gemm(*shape, "bf16")
    assert 0 <= gemm.schedule.group <= 16 * gemm.schedule.multicast[0]


def test_edges_of_tiles_within_sectors_of_c_cost_memory():
    def extra_bytes(n, tile, **options):  # of a row of C, by edge
        product = ts.plan_gemm(8192, n, 64, "bf16", tile=(64, 64, 64)).product
        edges = -(-n // tile[1]) - 1
        return (count_stored_bytes(product, tile, Schedule(**options)) / 8192 - 2 * n) / edges

    narrow = (128, 64, 64)
    assert extra_bytes(12288, narrow, group=1) == extra_bytes(12304, narrow, group=1) == 0  # at lines, and at sectors
    assert extra_bytes(12296, narrow, group=1) == H200_RATES.torn_bytes  # 16 bytes into a sector
    assert extra_bytes(12296, narrow, group=4) == H200_RATES.torn_bytes + 2 * H200_RATES.torn_apart_bytes
    assert extra_bytes(12288, narrow, group=4) == pytest.approx(2 * H200_RATES.apart_bytes)
    assert extra_bytes(12296, narrow) == extra_bytes(12296, narrow, group=64)  # down m: 64 tiles
    together = extra_bytes(12296, narrow, group=1, multicast=(1, 2))
    assert H200_RATES.inner_share * H200_RATES.torn_bytes < together < H200_RATES.torn_bytes


def test_tiles_whose_edges_tear_sectors_are_taken_along_n():
    torn, whole = (ts.plan_gemm(9310, n, 136, "bf16") for n in (15240, 15232))
    assert torn.schedule.group == 1
    assert torn.predicted_us > 1.04 * whole.predicted_us


def test_clusters_that_share_operands_are_planned_only_where_they_are_faster():
    assert ts.plan_gemm(4096, 4096, 4096, "bf16").schedule.multicast == (1, 1)  # clusters gain less than 1 %
    assert ts.plan_gemm(3000, 1672, 904, "bf16").schedule.multicast != (1, 1)  # rows straddle lines


@pytest.mark.parametrize("m", [1, 8, 32])
def test_tiles_for_few_rows_are_swapped(m):
    """64 rows of an unswapped tile would be mostly beyond the matrix."""
    assert all(each.schedule.swapped for each in ts.plan_gemm(m, 4096, 4096, "bf16").ranked)
    assert not ts.plan_gemm(m, 4096, 4096, "bf16", swapped=False).schedule.swapped  # if asked for


def test_warpgroups_do_not_take_wide_tiles_in_turn():
    """Of 30 products on an H200, 27 were slower with 64 x 200 to 64 x 256 than with another kernel."""
    gemm = ts.plan_gemm(2597, 9344, 256, "bf16")
    in_turn = [each for each in gemm.ranked if each.schedule.ping_pong]
    assert in_turn
    assert max(each.schedule.sums(each.tile)[1] for each in in_turn) <= 192


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
