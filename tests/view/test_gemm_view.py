"""The screen of a GEMM says what its plan says, and tiles, copies and regions stand where they belong."""

import pytest

import tilescope as ts
from tilescope.planner import Unplanned
from tilescope.view import draw, text

DRAWN = """\
GEMM 512 x 512 x 512 bfloat16, by wgmma on sm_90

The plan
tile              64 x 96 x 128 (m x n x k)
tiles of C        8 x 6 = 48, in 1 round of 132 SMs; 4 k tiles each
floor             1.50 us, bound by loads of one SM: rates of an H200, measured
predicted         8.06 us
schedule          groups of 4
stages            2 of 16384 + 24576 bytes, 81920 bytes in flight
mbarrier expects  40960 bytes a stage
shared memory     94240 of 232448 bytes, aligned to 1024

Tensor maps
   type      dims       stride bytes  box      swizzle  copies
A  bfloat16  512 x 512          1024  64 x 64  128B     2 a stage
B  bfloat16  512 x 512          1024  64 x 96  128B     2 a stage
C  bfloat16  512 x 512          1024  32 x 64  64B      3 a tile
Innermost first, as the driver takes them; L2 promotion 128B. A
and B are loaded, C is stored.

Descriptors (bytes)
   first of stage 0    leading  stride  K steps    each adds  blocks
A  0x4000004000010000       16    1024        8   +32, +8096  1 of m64
B  0x4000004000010800       16    1024        8  +32, +12192  1 of n96

A, 64 m x 128 k: copies   B, 96 n x 128 k: copies   C, 64 m x 96 n: stores
   m k  0 64                 n k  0 64                 m n  0 32 64
0-63    0  1              0-95    0  1              0-63    0  1  2

Shared memory: starts of the stages
      region      A          B     slice of C    full       empty
stage  bytes    16384      24576      4096         8          8
    0            0x0      0x8000     0x14000    0x17000    0x17010
    1          0x4000     0xe000     0x15000    0x17008    0x17018
    2                                0x16000
Ends at 0x17020: 138208 bytes stay free.
"""


def test_draws_facts_maps_descriptors_copies_and_shared_memory():
    drawn = text(ts.plan_gemm(512, 512, 512, "bf16", tile=(64, 96, 128), stages=2))
    shown = [line.rstrip() for line in drawn.split("\nWhy\n")[0].splitlines()]
    assert shown == DRAWN.splitlines()


GEMMS = [
    {},
    {"arch": "sm_120", "b_major": "MN"},
    {"arch": "sm_100", "tile": (256, 96, 64), "output_type": "f32"},
    {"arch": "sm_80"},
    {"tile": (64, 8, 64), "stages": 1},
    {"ping_pong": True, "tile": (64, 128, 64)},
    {"epilogue": "residual"},
    {"epilogue": "bias+residual", "ping_pong": True, "tile": (64, 128, 64)},
]


@pytest.mark.parametrize("options", GEMMS, ids=str)
def test_shared_memory_is_drawn_where_it_is(options):
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", **options)
    grid = draw(gemm)["memory"]
    names = [header.text for header in grid.tiers[0].headers]
    offsets = gemm.smem_offsets()
    barriers = offsets.get("barriers", ())
    starts = {
        "A": offsets["a"],
        "B": offsets["b"],
        "slice of C": offsets.get("epilogue"),
        "full": barriers[: gemm.stages],
        "empty": barriers[gemm.stages :],
        "acc_full": offsets.get("accumulators", ())[: gemm.accumulators],
        "acc_empty": offsets.get("accumulators", ())[gemm.accumulators :],
        "address": offsets.get("address", ()),
        "residual_full": offsets.get("residual_barrier", ()),
        "order": offsets.get("order_barriers", ()),
    }
    assert len(grid.rows) == max(gemm.stages, len(offsets.get("epilogue", ())))  # slices of C may have two buffers
    for column, name in enumerate(names):
        shown = [row.cells[column].text for row in grid.rows]
        assert [int(each, 16) for each in shown if each] == list(starts.pop(name))
    assert not any(starts.values())
    assert grid.notes == (f"Ends at {gemm.smem_bytes:#x}: {gemm.budget_bytes - gemm.smem_bytes} bytes stay free.",)


@pytest.mark.parametrize("options", GEMMS, ids=str)
def test_every_copy_is_drawn_once(options):
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", **options)
    grids = dict(draw(gemm)["grids"].named)
    counts = {"A": gemm.a.tma_instructions, "B": gemm.b.tma_instructions}
    if gemm.epilogue is not None:
        counts["C"] = gemm.epilogue.tma_instructions * gemm.slices
    assert set(grids) == set(counts)
    if gemm.a.boxes is None:
        return
    for name, count in counts.items():
        cells = [cell.text for row in grids[name].rows for cell in row.cells]
        assert sorted(map(int, cells)) == list(range(count))


def test_maps_and_descriptors_are_those_of_the_plans():
    gemm = ts.plan_gemm(4096, 1024, 512, "bf16", arch="sm_100", output_type="f32")
    drawing = draw(gemm)
    for row, plan in zip(drawing["maps"].rows, (gemm.a, gemm.b, gemm.epilogue), strict=True):
        made = plan.tensor_map(0)
        dims, box = (" x ".join(map(str, each)) for each in (made.dims, made.box))
        assert row[1:6] == (made.data_type.name, dims, str(made.strides_bytes[0]), box, made.swizzle.name)
    words = [row[1].strip("`") for row in drawing["reading"].rows]
    offsets = gemm.smem_offsets()
    firsts = (gemm.a.descriptors(offsets["a"][0])[0][0], gemm.b.descriptors(offsets["b"][0])[0][0])
    assert words == [f"{first.encode():#018x}" for first in firsts]


def test_mma_is_shown_the_address_of_each_element():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_120", b_major="MN", tile=(64, 32, 64))
    assert [row[1:] for row in draw(gemm)["reading"].rows] == [
        ("(m, k)", "`base + m * 128 + k * 2`, `a ^ ((a >> 3) & 0x70)`"),
        ("(n, k)", "`base + n * 2 + k * 64`, `a ^ ((a >> 3) & 0x30)`"),
    ]


def test_the_ranking_and_the_refused_are_whole_with_why(wording):
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_120", sms=128)
    short = draw(gemm)
    assert len(short["ranking"].rows) == 8
    assert short["ranking"].notes == ("… 10 more; `--why` lists them.",)
    wording("the ranking and the refused are whole with why", short["refused"])
    whole = draw(gemm, why=True)
    assert [(row[1], row[-1]) for row in whole["ranking"].rows] == [
        (" x ".join(map(str, each.tile)), each.behind_in) for each in gemm.ranked
    ]
    refused = whole["refused"].rows
    assert [row[0] for row in refused] == [" x ".join(map(str, each.tile)) for each in gemm.refused]
    assert all("gemm-smem: 2 stages of" in row[1] for row in refused)


def test_a_refused_product_is_drawn_with_its_reasons():
    with pytest.raises(ts.PlanError) as caught:
        ts.plan_gemm(64, 100, 64, "bf16")
    refused = Unplanned("GEMM 64 x 100 x 64 bfloat16 on sm_90", caught.value.violations)
    assert text(refused).startswith("No plan for GEMM 64 x 100 x 64 bfloat16")
    assert "sm_90\n\n1  gemm-rows: n = 100: rows of C" in text(refused)
    assert Unplanned.from_dict(refused.to_dict()) == refused


def test_a_pair_with_scale_factors_says_whose_tile_and_bytes_it_has():
    drawn = str(ts.plan_gemm(4096, 4096, 4096, "nvfp4", arch="sm_100", tile=(256, 192, 256), cta_group=2).text())
    assert "GEMM 4096 x 4096 x 4096 nvfp4 (e2m1), by tcgen05 on sm_100" in drawn
    words = " ".join(drawn.split())
    assert "256 x 192 x 256 (m x n x k) of a pair: A 128 x 256 and B 96 x 256 of each block" in words
    assert "6 of 16384 + 12288 bytes and 6144 of scale factors, 208896 bytes in flight of each block" in words
