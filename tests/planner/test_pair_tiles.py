"""Tiles of a pair (cta_group::2) are the pair's: each block loads half of A's rows and half of B's columns."""

import json

import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.mma.consumer import tcgen05_descriptors
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.pair_shares import pair_shares
from tilescope.planner.pair_tiles import half_of


def planned(tiles, data_type="bf16", *, cta_group=2, cluster=2, arch="sm_100", **options):
    plans = [ts.plan(tile, data_type, arch=arch, **options).best for tile in tiles]
    return ts.plan_pipeline(plans, stages=1, steps=2, cluster=cluster, cta_group=cta_group)


def slot_bytes(pipeline):
    return [slot.bytes for slot in pipeline.slots]


@pytest.mark.parametrize(
    ("tiles", "data_type", "leader_bytes"),
    [
        ([(256, 64), (256, 64)], "bf16", 65536),  # CUTLASS's 2-SM tutorial
        ([(128, 64), (256, 64)], "bf16", 49152),
        ([(256, 128), (64, 128)], "e4m3", 40960),
        ([(256, 32), (16, 32)], "tf32", 34816),
    ],
)
def test_the_leader_expects_the_tiles_of_the_pair_once(tiles, data_type, leader_bytes):
    """Every element of the pair's tiles is brought by one of the two blocks."""
    pipeline = planned(tiles, data_type)
    bits = ts.DataType.named(data_type).bits
    assert leader_bytes == sum(mn * k for mn, k in tiles) * bits // 8
    found = ts.simulate(pipeline)
    assert found.verdict == "proven", found.sentence
    assert found.barriers[0].bytes == (leader_bytes, 0)
    assert slot_bytes(pipeline) == [mn * k * bits // 8 // 2 for mn, k in tiles]
    assert "of a pair" in pipeline.name


def test_all_speak_of_the_same_tile():
    """The descriptor's m and n, tensor memory's, the descriptors of shared memory, the emulator's and the pipeline's."""
    m, n, k = 256, 128, 64
    assert InstructionDescriptor("f16", m, n, a_type="bf16").forms == ("cta_group::2",)
    d = ts.tmem_layout((m, n), cta_group=2)
    assert (d.matrix, d.rows) == ((m, n), m // 2)
    a, b = (tcgen05_descriptors((mn, k), "bf16", operand=operand, cta_group=2) for mn, operand in ((m, "A"), (n, "B")))
    assert (a.layout.shape, b.layout.shape) == ((m // 2, k), (n // 2, k))
    assert (a.instruction, b.instruction) == (
        "tcgen05.mma.cta_group::2.kind::f16, m256 k16",
        "tcgen05.mma.cta_group::2.kind::f16, n128 k16",
    )
    share = pair_shares((2, 1), m, n)[1]
    assert (share.a_rows, share.b_columns) == ((m // 2, m), (n // 2, n))
    assert slot_bytes(planned([(m, k), (n, k)])) == [a.layout.size_bytes, b.layout.size_bytes]
    ones = np.ones((m, k)), np.ones((k, n))
    product = ts.emulate_mma(
        *ones,
        data_type="bf16",
        consumer="tcgen05",
        cta_group=2,
        layout=(a.layout, b.layout.with_start(1 << 15)),
    )
    assert (product == k).all()


def test_a_gemm_tile_is_the_pairs_too():
    gemm = ts.plan_gemm(4096, 4096, 512, "bf16", arch="sm_100", tile=(256, 128, 64))
    alone, pair = (ts.plan_pipeline(gemm, cluster=group, cta_group=group) for group in (1, 2))
    halves = {slot.name: slot.bytes for slot in pair.slots if slot.space != "tmem"}
    assert halves == {slot.name: slot.bytes // 2 for slot in alone.slots if slot.space != "tmem"}
    found = ts.simulate(pair)
    assert found.verdict == "proven", found.sentence
    assert found.barriers[0].bytes == (gemm.a.transaction_bytes + gemm.b.transaction_bytes, 0)


def test_a_half_keeps_the_swizzle_where_it_can():
    rows = ts.plan((256, 64), "bf16", arch="sm_100", swizzle="64B").best
    assert (half_of(rows).swizzle.name, half_of(rows).problem.tile) == ("64B", (128, 64))
    columns = ts.plan((64, 64), "bf16", arch="sm_100", major="MN").best  # half of its rows of 128 bytes is one of 64
    assert (columns.swizzle.name, half_of(columns).swizzle.name) == ("128B", "64B")


NO_PAIR_OF_64_ROWS = (
    "m = 64 in a tile of A of a pair; tiles of a pair are those of both blocks; kind f16 in cta_group::2 has m 128, 256, and a "
    "tile is a whole number of instructions. Use m = 128."
)


@pytest.mark.parametrize(
    ("cta_group", "tiles", "data_type", "sentence"),
    [
        (2, [(64, 64), (64, 64)], "bf16", NO_PAIR_OF_64_ROWS),
        (2, [(192, 64), (64, 64)], "bf16", "Use m = 256."),
        (2, [(128, 64), (24, 64)], "bf16", "n = 24 in a tile of B"),
        (2, [(128, 32), (16, 32)], "s8", "kind i8 in cta_group::2 has n 32 to 256"),
        (2, [(8, 64)], "bf16", "n = 8 in a tile of B"),
        (1, [(32, 64), (64, 64)], "bf16", "kind f16 in cta_group::1 has m 64, 128"),
        (1, [(64, 128), (64, 128)], "e2m1", "kind mxf4 in cta_group::1 has m 128,"),
    ],
)
def test_shapes_that_tcgen05_lacks_are_refused_with_the_rule(cta_group, tiles, data_type, sentence):
    with pytest.raises(ts.RuleError) as refused:
        planned(tiles, data_type, cta_group=cta_group, cluster=cta_group)
    assert [violation.rule for violation in refused.value.violations] == ["tcgen05-shape"]
    assert sentence in str(refused.value)


def test_a_gemm_tile_that_a_pair_lacks_is_refused():
    gemm = ts.plan_gemm(4096, 4096, 512, "bf16", arch="sm_100", tile=(64, 64, 64))
    assert ts.simulate(ts.plan_pipeline(gemm)).verdict == "proven"
    with pytest.raises(ts.RuleError, match=r"m = 64.* of a pair"):
        ts.plan_pipeline(gemm, cluster=2, cta_group=2)


@pytest.mark.parametrize(("operand", "mn", "up"), [("A", 64, 128), ("A", 192, 256), ("B", 24, 32)])
def test_descriptors_of_a_tile_that_a_pair_lacks_are_refused(operand, mn, up):
    with pytest.raises(ts.RuleError, match=f"= {mn} of a pair.* Use {up}"):
        tcgen05_descriptors((mn, 64), "bf16", operand=operand, cta_group=2)


def test_the_command_says_what_the_pair_brings(capsys):
    pair = ["--arch", "sm_100", "--cta-group", "2", "--cluster", "2x1"]
    assert run(["pipeline", "256x64", "256x64", "bf16", *pair, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "proven"
    assert told["barriers"][0]["bytes"] == [65536, 0]
    assert run(["pipeline", "64x64", "64x64", "bf16", *pair]) == 1
    assert "tcgen05-shape: m = 64 in a tile" in capsys.readouterr().out
    assert run(["pipeline", "--help"]) == 0
    assert "--cta-group 2 a tile" in capsys.readouterr().out


def test_stores_have_no_instruction_to_fit():
    stored = ts.plan((24, 64), "bf16", arch="sm_100", direction="store").best
    assert ts.simulate(ts.plan_pipeline(stored, stages=2)).verdict == "proven"
