"""A GEMM's plans share one budget, its tiles follow the work there is, and what cannot be says what to change."""

import itertools
import json
import re
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.data_type import DATA_TYPE
from tilescope.planner.gemm_tiles import NEAR_TIME_RATIO, TILE_M, TILE_N
from tilescope.value import Value
from tilescope.view import text


def outcome(*shape, **options):
    """(the plan, no violations) or (None, the violations)."""
    try:
        return ts.plan_gemm(*shape, **options), ()
    except ts.PlanError as error:
        return None, error.violations


def sentences(gemm):
    return [str(reason) for reason in gemm.reasons]


def refusal(*shape, **options):
    gemm, violations = outcome(*shape, **options)
    assert gemm is None
    return violations


# Tiles


# An H200, as measured: one SM's GB/s for rows of 128 bytes, microseconds from issue to arrival, GB/s from memory;
# m64n256k16 of 16-bit types in 128 cycles, 1979 TFLOP/s of 8-bit types by its datasheet; 128 bytes a cycle of shared
# memory; 1.98 GHz.
SM_GB_PER_S, LATENCY_US, MEMORY_GB_PER_S, SMEM_GB_PER_S = 210, 0.75, 4559, 128 * 1.98
TFLOPS = {16: 132 * (2 * 64 * 256 * 16 / 128) * 1.98e9 / 1e12, 8: 1979}
IN_FLIGHT = {8: 1386, 16: 2477, 24: 3384, 32: 3925, 48: 4248, 64: 4316, 96: 4336, 192: 4336}  # GB/s by KiB on every SM


def naive_terms(shape, each, bits, output_bits, sms=132):
    """Microseconds of arithmetic, of shared-memory reads, of one SM's loads and of memory."""
    m, n, k = shape
    tile = each.tile
    rows, columns = (tile[1], tile[0]) if each.schedule.swapped else tile[:2]
    shared_by = each.schedule.split * each.schedule.parts
    all_steps = -(-k // tile[2])
    k_steps = -(-all_steps // shared_by)
    k_here = min(k, k_steps * tile[2]) if shared_by > 1 else k
    tiles = -(-m // tile[0]) * -(-n // tile[1])
    k_done = -(-tiles // sms) * k_here  # by the busiest SM
    if each.schedule.tail > 1:
        k_done -= k - min(k, -(-all_steps // each.schedule.tail) * tile[2])
    arithmetic = tile[0] * tile[1] * k_done * 2 / (TFLOPS[bits] * 1e6 / 132)
    instructions = (k_done * bits // 256) * (rows // 64)  # 32 bytes of k, 64 rows and all columns each
    reads = instructions * (64 + columns) * 32 / (SMEM_GB_PER_S * 1e3)
    in_flight = each.stages * (tile[0] + tile[1]) * tile[2] * bits // 8
    b_sharers, a_sharers = each.schedule.multicast
    fetched = (min(m, tile[0]) / a_sharers + min(n, tile[1]) / b_sharers) * k_done * bits // 8
    loads = fetched / (min(SM_GB_PER_S, in_flight / LATENCY_US / 1e3) * 1e3)
    steps = [(0, 0), *IN_FLIGHT.items()]
    share = 1.0
    for (low, slow), (high, fast) in pairwise(steps):
        if low * 1024 <= in_flight <= high * 1024:
            share = (slow + (fast - slow) * (in_flight / 1024 - low) / (high - low)) / 4336
    memory = ((m * k + n * k) * bits + m * n * output_bits) / 8 / (MEMORY_GB_PER_S * 1e3 * share)
    return {"arithmetic": arithmetic, "shared-memory reads": reads, "loads of one SM": loads, "memory": memory}


PRODUCTS = [
    ((4096, 4096, 4096), "bf16", 16, (128, 256, 64)),
    ((16, 4096, 4096), "bf16", 16, (16, 64, 128)),
    ((8192, 8192, 512), "e4m3", 8, (128, 128, 128)),
    ((1024, 1024, 1024), "f16", 16, (128, 64, 64)),
]


@pytest.mark.parametrize(("shape", "data_type", "bits", "expected"), PRODUCTS)
def test_tiles_are_ranked_by_predicted_time_and_have_floors(shape, data_type, bits, expected):
    gemm = ts.plan_gemm(*shape, data_type)
    for each in gemm.ranked:
        expected_terms = naive_terms(shape, each, bits, output_bits=16)
        assert {term.name: term.us for term in each.terms} == pytest.approx(expected_terms, rel=0.02)
        assert each.floor_us == max(term.us for term in each.terms)
    times = [each.prediction.us for each in gemm.ranked]
    assert times[0] <= NEAR_TIME_RATIO * min(times)
    assert gemm.tile == gemm.ranked[0].tile == expected
    assert gemm.floor_us == gemm.ranked[0].floor_us < gemm.predicted_us


def test_every_other_tile_says_how_much_longer_it_takes_or_what_else_it_costs():
    gemm = ts.plan_gemm(128, 4096, 7168, "bf16")
    assert (gemm.ranked[0].behind_in, gemm.others) == ("", gemm.ranked[1:])
    shortest = min(each.prediction.us for each in gemm.ranked)
    for each in gemm.others:
        near = each.prediction.us <= NEAR_TIME_RATIO * shortest
        assert (each.behind_in == "time") != near
        assert near or each.why.startswith(f"predicted {each.prediction.us:#.3g} us,")
    assert "bytes" in {each.behind_in for each in gemm.others}


def test_of_equally_fast_kernels_one_without_clusters_comes_first():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16")
    assert prod(gemm.schedule.cluster) == 1
    behind = {prod(each.schedule.cluster): each.behind_in for each in gemm.others if each.behind_in != "time"}
    assert behind == {1: "instructions", 2: "cluster"}


def test_ties_are_explained(wording):
    by_mma = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_80", sms=128)
    assert any("; 256 x 128 x 64 is equal in every term." in reason for reason in sentences(by_mma))
    by_mma = by_mma.others[0]
    assert (by_mma.tile, by_mma.behind_in) == ((256, 128, 64), "order")
    wording("ties are explained", by_mma.why)


def test_tiles_that_were_not_chosen_are_what_they_would_be_if_asked_for():
    arch = "sm_120"
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch=arch)
    tried = {(m, n) for m in (64, 128, 256) for n in (8, 16, 32, 64, 96, 128, 192, 256) if m * n <= 128 * 256}
    assert sorted(each.tile[:2] for each in (*gemm.ranked, *gemm.refused)) == sorted(tried)
    assert gemm.refused
    for each in gemm.refused:
        asked = refusal(4096, 4096, 4096, "bf16", arch=arch, tile=each.tile)
        assert [(one.rule, one.found) for one in asked] == [(one.rule, one.found) for one in each.violations]
    for each in gemm.others[:3]:
        assert ts.plan_gemm(4096, 4096, 4096, "bf16", arch=arch, tile=each.tile).stages == each.stages


def test_a_better_tile_that_does_not_fit_is_named():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_120", sms=128)
    assert gemm.tile == (128, 128, 64)
    assert [each.tile for each in gemm.refused if each.would_lead] == [(128, 256, 64), (256, 128, 64)]
    assert not ts.plan_gemm(4096, 4096, 4096, "bf16").refused
    [said] = [reason for reason in sentences(gemm) if reason.startswith("128 x 256 x 64 would come first")]
    assert "2 stages of 16384 + 32768 bytes" in said
    assert "epilogue of 16384 = 114720 bytes" in said
    assert "block of sm_120 has 101376" in said


LITTLE_WORK = [  # of which the consumer reads no tile as small as the matrix
    ((16, 4096, 4096, "nvfp4"), {"arch": "sm_100", "swapped": False}, 0, 128),
    ((1, 4096, 4096, "mxfp4"), {"arch": "sm_103", "swapped": False}, 0, 128),
    ((64, 4096, 4096, "nvfp4"), {"arch": "sm_110", "swapped": False}, 0, 128),
    ((16, 4096, 4096, "nvfp4"), {"arch": "sm_100", "cta_group": 1}, 1, 128),  # swapped: B gives the rows
    ((4096, 16, 4096, "tf32"), {"arch": "sm_100", "b_major": "MN"}, 1, 32),
    ((4096, 4, 4096, "tf32"), {"arch": "sm_100", "b_major": "MN"}, 1, 32),
]


@pytest.mark.parametrize(("product", "options", "axis", "smallest"), LITTLE_WORK)
def test_the_smallest_tile_that_is_read_is_never_too_large(product, options, axis, smallest):
    assert ts.plan_gemm(*product, **options).tile[axis] == smallest


def check_that_the_search_finds_what_can_be(product, **options):
    """Where no plan is found, no shape of the tables is accepted when it is given either."""
    found, violations = outcome(*product, **options)
    if found is None and violations[0].argument not in ("m", "n", "k", "data_type", "a_major", "b_major"):
        tile_k = 1024 // ts.DataType.named(product[3]).smem_bits
        for tile in itertools.product(TILE_M, TILE_N, [tile_k]):
            assert outcome(*product, **options, tile=tile)[0] is None, (product, options, tile)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("data_type", ["tf32", "bf16", "e4m3", "e2m1", "e2m3"])
@pytest.mark.parametrize("b_major", ["K", "MN"])
def test_the_search_finds_a_plan_where_a_given_tile_has_one(data_type, b_major):
    for m, n in ((1, 128), (16, 16), (128, 128)):
        options = {"arch": "sm_100", "b_major": b_major, "output_type": "f32"}
        check_that_the_search_finds_what_can_be((m, n, 256, data_type), **options)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCH)
@pytest.mark.parametrize("data_type", DATA_TYPE)
def test_the_search_finds_a_plan_for_every_product_that_a_given_tile_has_one_for(arch, data_type):
    for m, n in ((16, 4096), (4096, 16), (65, 8)):
        for a_major, b_major in itertools.product(("K", "MN"), repeat=2):
            options = {"arch": arch, "a_major": a_major, "b_major": b_major}
            check_that_the_search_finds_what_can_be((m, n, 4096, data_type), **options)


def test_a_given_tile_is_not_compared():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", tile=(64, 64, 64))
    assert (len(gemm.ranked), gemm.others, gemm.refused) == (1, (), ())


# Shared memory


def pieces(gemm):
    """(name, start, bytes, alignment) of everything in shared memory, from the plans themselves."""
    offsets = gemm.smem_offsets()
    plans = {"a": gemm.a, "b": gemm.b} | ({} if gemm.epilogue is None else {"epilogue": gemm.epilogue})
    found = [
        (name, start, plan.smem_bytes, plan.smem_alignment_bytes)
        for name, plan in plans.items()
        for start in offsets[name]
    ]
    assert all(len(offsets[name]) == (gemm.c_buffers if name == "epilogue" else gemm.stages) for name in plans)
    by_tma = gemm.arch.has("tma")
    assert len(offsets.get("barriers", ())) == (2 * gemm.stages if by_tma else 0)
    in_tmem = ("accumulators", "address") if gemm.accumulators else ()
    assert set(offsets) == {*plans, *(["barriers"] if by_tma else []), *in_tmem}
    found += [("address", start, 4, 4) for start in offsets.get("address", ())]
    names = ("barriers", "accumulators")
    return found + [(name, start, 8, 8) for name in names for start in offsets.get(name, ())]


def check_shared_memory(gemm):
    found = sorted(pieces(gemm), key=lambda piece: piece[1])
    assert found[0][1] == 0
    for (_, start, size, _), (_, after, _, _) in pairwise(found):
        assert start + size <= after
    assert all(start % alignment == 0 for _, start, _, alignment in found)
    assert all(gemm.smem_alignment_bytes % alignment == 0 for *_, alignment in found)
    _, last, size, _ = found[-1]
    assert 0 <= gemm.smem_bytes - (last + size) < 1024  # a stage is rounded up to its alignment
    if gemm.arch.has("tma"):
        assert gemm.smem_bytes == last + size
    assert gemm.smem_bytes <= gemm.budget_bytes == gemm.arch.smem_per_block_bytes


gemms = st.fixed_dictionaries(
    {
        "data_type": st.sampled_from(["bf16", "f16", "tf32", "e4m3", "s8"]),
        "arch": st.sampled_from(["sm_80", "sm_90", "sm_90", "sm_100", "sm_120"]),
        "consumer": st.sampled_from([None, None, "ldmatrix"]),
        "a_major": st.sampled_from(["K", "K", "MN"]),
        "b_major": st.sampled_from(["K", "K", "MN"]),
        "output_type": st.sampled_from([None, "f32", "bf16"]),
        "tile": st.tuples(
            st.sampled_from([8, 16, 24, 64, 128, 192]),
            st.sampled_from([8, 16, 24, 40, 64, 96, 256]),
            st.sampled_from([8, 16, 32, 48, 64, 128]),
        ),
        "stages": st.sampled_from([None, 1, 2, 3, 5]),
    }
)


def planned_or_refused(options):
    gemm, violations = outcome(960, 480, 256, **options)
    assert all(each.found and each.limit and each.fix for each in violations)
    return gemm


@given(gemms)
def test_regions_are_aligned_apart_and_within_the_budget(options):
    gemm = planned_or_refused(options)
    if gemm is not None:
        check_shared_memory(gemm)
        assert gemm.stages == (options["stages"] or gemm.stages)


@pytest.mark.slow
@given(gemms)
@settings(max_examples=1500)
def test_many_more_gemms_are_laid_out_without_overlap(options):
    gemm = planned_or_refused(options)
    if gemm is not None:
        check_shared_memory(gemm)


def test_small_regions_leave_the_next_one_aligned():
    gemm = ts.plan_gemm(64, 64, 64, "bf16", tile=(8, 64, 16), consumer="ldmatrix", b_major="MN", stages=3)
    # A: 3 x 256 bytes in all, then B, which needs 1024
    assert gemm.smem_offsets() == {
        "a": (0, 256, 512),
        "b": (1024, 3072, 5120),
        "epilogue": (7168,),
        "barriers": (8192, 8200, 8208, 8216, 8224, 8232),
    }
    assert gemm.smem_bytes == 8240


@pytest.mark.parametrize("options", [{}, {"arch": "sm_80"}, {"arch": "sm_100", "output_type": "f32"}])
def test_as_many_stages_as_fit(options):
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", **options)
    check_shared_memory(gemm)
    asked = options | {"tile": gemm.tile, "cta_group": gemm.schedule.cta_group}
    assert [each.rule for each in refusal(4096, 4096, 4096, "bf16", **asked, stages=gemm.stages + 1)] == ["gemm-smem"]
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", **asked, stages=gemm.stages).stages == gemm.stages


@pytest.mark.parametrize(("tile", "stages"), [((64, 8, 64), 18), ((64, 32, 64), 13), ((128, 64, 64), 8)])
def test_stages_keep_as_many_bytes_in_flight_as_one_sm_needs(tile, stages):
    gemm = ts.plan_gemm(512, 512, 2048, "bf16", tile=tile)
    assert gemm.stages == stages
    assert gemm.in_flight_bytes >= 210e9 * 0.75e-6  # one SM's rate for as long as a copy takes
    assert stages == 8 or gemm.in_flight_bytes * (stages - 1) / stages < 210e9 * 0.75e-6
    assert ts.plan_gemm(512, 512, 512, "bf16", tile=tile, arch="sm_100").stages == 8  # not measured: eight are usual


def test_large_products_take_large_tiles():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16")
    assert (gemm.tile, gemm.stages, gemm.smem_bytes) == ((128, 256, 64), 4, 4 * (16384 + 32768) + 2 * 16384 + 64)


def test_low_batch_products_give_every_sm_a_tile():
    gemm = ts.plan_gemm(8, 4096, 14336, "bf16")
    assert gemm.tiles * gemm.schedule.blocks_of_a_tile == 128


# Maps, descriptors, epilogues


def test_the_maps_of_a_gemm_are_sound():
    gemm = ts.plan_gemm(4096, 2048, 1024, "e4m3")
    assert gemm.a.tensor_map(0).dims == (1024, 4096)
    assert gemm.b.tensor_map(0).dims == (1024, 2048)
    assert gemm.epilogue.tensor_map(0).dims == (2048, 4096)
    assert gemm.slices * gemm.epilogue.problem.columns == gemm.tile[1]


def copied(plan, tensor_map, smem, start, corner, move):
    """Every copy of a tile with its corner at `corner`, between global memory and the region at `start`."""
    for copy in plan.copies:
        place = start + copy.smem_offset_bytes
        move(tensor_map, plan.copy_coords(copy, *corner), smem[place:], place)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((256, 256, 256), {"tile": (128, 128, 64), "stages": 3}),
        ((256, 256, 256), {"arch": "sm_100", "tile": (128, 96, 128), "a_major": "MN", "stages": 2}),
        ((256, 256, 256), {"arch": "sm_120", "tile": (64, 24, 48), "b_major": "MN"}),
        ((64, 128, 64), {"consumer": "ldmatrix", "tile": (8, 64, 16), "b_major": "MN", "stages": 3}),
    ],
)
def test_a_tile_goes_through_shared_memory_as_laid_out(shape, options):
    gemm = ts.plan_gemm(*shape, "bf16", **options)
    m, n, k = shape
    tile_m, tile_n, tile_k = gemm.tile
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 1 << 16, extents, np.uint16) for extents in ((m, k), (n, k), (m, n)))
    smem, offsets = np.zeros(gemm.smem_bytes, np.uint8), gemm.smem_offsets()

    def brought(plan, matrix):
        memory = np.ascontiguousarray(matrix if plan.problem.major == "K" else matrix.T)
        return lambda tensor_map, coords, part, place: ts.load(
            tensor_map, memory, coords, smem=part, smem_address=place
        )

    stages = [(stage, stage * tile_k % k) for stage in range(gemm.stages)]
    for stage, k_first in stages:  # all stages are filled before any is read
        copied(gemm.a, gemm.a.tensor_map(0), smem, offsets["a"][stage], (tile_m, k_first), brought(gemm.a, a))
        copied(gemm.b, gemm.b.tensor_map(0), smem, offsets["b"][stage], (tile_n, k_first), brought(gemm.b, b))
    width = tile_n // gemm.slices
    stored = np.zeros((m, n), np.uint16)
    for turn in range(gemm.slices):  # and the epilogue goes through while they lie there
        first = tile_n + turn * width
        rows, columns = np.arange(tile_m)[:, None], np.arange(width)[None, :]
        swapped = gemm.epilogue.problem.major == "MN"  # the accumulators hold C's transpose
        address = gemm.epilogue.address(*((columns, rows) if swapped else (rows, columns)), offsets["epilogue"][0])
        smem.view(np.uint16)[address // 2] = c[tile_m : 2 * tile_m, first : first + width]
        corner = (first, tile_m) if swapped else (tile_m, first)
        copied(
            gemm.epilogue,
            gemm.epilogue.tensor_map(0),
            smem,
            offsets["epilogue"][0],
            corner,
            lambda tensor_map, coords, part, place: ts.store(tensor_map, part, stored, coords, smem_address=place),
        )
    tile_of_c = np.s_[tile_m : 2 * tile_m, tile_n : 2 * tile_n]
    assert np.array_equal(stored[tile_of_c], c[tile_of_c])
    stored[tile_of_c] = 0
    assert not stored.any()
    for stage, k_first in stages:
        for plan, matrix, start, mn in ((gemm.a, a, offsets["a"], tile_m), (gemm.b, b, offsets["b"], tile_n)):
            rows, columns = np.arange(mn)[:, None], np.arange(tile_k)[None, :]
            address = plan.address(rows, columns, start[stage])
            if plan.problem.consumer != "ldmatrix":
                assert np.array_equal(plan.descriptors(start[stage]).addresses(), address)
            tile = np.zeros((mn, tile_k), np.uint16)
            inside = matrix[mn : 2 * mn, k_first : k_first + tile_k]
            tile[: inside.shape[0], : inside.shape[1]] = inside
            assert np.array_equal(smem.view(np.uint16)[address // 2], tile)


@pytest.mark.parametrize(
    ("arch", "consumer"),
    [("sm_90", "wgmma"), ("sm_90", "ldmatrix"), ("sm_100", "tcgen05"), ("sm_100", "ldmatrix"), ("sm_120", "ldmatrix")],
)
def test_who_multiplies_also_writes_the_epilogue(arch, consumer):
    found = ts.plan_gemm(256, 256, 256, "bf16", arch=arch, consumer=consumer, output_type="f32", tile=(64, 64, 64))
    assert found.epilogue.problem.consumer == consumer


def test_without_tma_accumulators_go_straight_to_global_memory():
    gemm = ts.plan_gemm(4096, 4098, 4096, "f16", arch="sm_80")  # rows of C may be any number of bytes
    assert (gemm.a.problem.copy, gemm.a.problem.consumer, gemm.epilogue, gemm.slices) == (
        "cp.async",
        "ldmatrix",
        None,
        0,
    )
    assert set(gemm.smem_offsets()) == {"a", "b"}
    assert "Without TMA the accumulators" in "\n".join(sentences(gemm))


# Types: what mma multiplies with 32-bit registers, by architecture (PTX, "Matrix multiply-accumulate using mma").
SINCE_SM_80 = {"float16", "bfloat16", "tfloat32", "int8", "uint8", "int4", "uint4", "b1"}
FP8 = {"e4m3", "e5m2"}
NARROW = {"e2m3", "e3m2", "e2m1", "16u4_align16b", "16u6_align16b"}
MULTIPLIED = {
    "sm_80": SINCE_SM_80,
    "sm_86": SINCE_SM_80,
    "sm_89": SINCE_SM_80 | FP8,
    "sm_90": (SINCE_SM_80 | FP8) - {"int4", "uint4", "b1"},  # its TMA moves whole bytes
    "sm_100": (SINCE_SM_80 | FP8) - {"b1"},
    "sm_120": (SINCE_SM_80 | FP8 | NARROW) - {"b1"},
}


@pytest.mark.parametrize("arch", MULTIPLIED)
def test_mma_multiplies_what_ptx_lists_and_nothing_else(arch):
    taken = set()
    for name, row in DATA_TYPE.items():
        tile = (16, 16, 1024 // row.smem_bits)
        options = {"arch": arch, "consumer": "ldmatrix", "tile": tile, "output_type": "f32"}
        gemm, violations = outcome(128, 128, 1024, row, **options)
        assert [each.rule for each in violations] == ([] if gemm else ["gemm-type"]), name
        taken |= {name} if gemm else set()
    assert taken == MULTIPLIED[arch]


@pytest.mark.parametrize("arch", ARCH)
def test_float32_is_sent_to_tfloat32(arch, wording):
    [found] = refusal(64, 64, 64, "f32", arch=arch)
    assert found.fix.startswith("Use tfloat32: ")
    wording("float32 is sent to tfloat32", found.fix)
    assert ts.plan_gemm(64, 64, 64, "tf32", arch=arch, tile=(64, 64, 32))


def test_a_type_of_a_later_architecture_names_it():
    [found] = refusal(64, 64, 64, "e4m3", arch="sm_80")
    assert (found.found, found.argument) == ("e4m3 on sm_80", "data_type")
    assert "multiplies float16, int8, uint8, int4, uint4, b1, tfloat32, bfloat16" in found.limit
    assert found.fix == 'Use data_type="bfloat16", or arch="sm_89".'
    assert refusal(64, 64, 64, "e2m3", consumer="ldmatrix")[0].fix == 'Use data_type="bfloat16", or arch="sm_120".'
    assert refusal(64, 64, 64, "u16", arch="sm_120")[0].fix == 'Use data_type="bfloat16".'
    assert refusal(64, 64, 64, "s8", arch="sm_103")[0].fix == 'Use consumer="ldmatrix", or arch="sm_100".'


def test_c_has_the_type_of_the_operands_unless_they_are_bits():
    assert ts.plan_gemm(64, 64, 64, "bf16", tile=(64, 64, 64)).output_type.name == "bfloat16"
    assert ts.plan_gemm(64, 64, 1024, "b1", arch="sm_80", tile=(64, 64, 1024)).output_type.name == "int32"


@pytest.mark.parametrize(("arch", "consumer"), [("sm_90", "wgmma"), ("sm_90", "ldmatrix"), ("sm_120", "ldmatrix")])
def test_bits_are_not_sent_to_the_product_of_bytes(arch, consumer, wording):
    [found] = refusal(64, 64, 1024, "b1", arch=arch, consumer=consumer)
    assert (found.rule, found.argument, found.found) == ("gemm-type", "data_type", f"b1 on {arch}")
    assert "TMA moves b1 as uint8" in found.limit
    wording("a product of bits", f"{found.limit}. {found.fix}")
    assert "uint8 with ts.plan" in found.fix
    assert ts.plan((64, 1024 // 8), "uint8", arch=arch, consumer=consumer).best
    [found] = refusal(64, 64, 1024, "bf16", arch=arch, consumer=consumer, output_type="b1")
    assert (found.argument, found.fix) == ("output_type", 'Use output_type="int32".')


# Tiles that cannot be


@pytest.mark.parametrize(
    ("data_type", "k", "kind"), [("bf16", 64, "f16"), ("tf32", 32, "tf32"), ("e4m3", 128, "f8f6f4")]
)
def test_instructions_of_128_rows_take_n_in_steps_of_16(data_type, k, kind):
    options = {"arch": "sm_100", "output_type": "f32"}
    for m, n, near in ((128, 8, 16), (128, 24, 32), (256, 40, 48), (128, 272, 288)):
        [found] = refusal(512, 512, 512, data_type, tile=(m, n, k), **options)
        assert (found.rule, found.argument) == ("gemm-tile", "tile")
        assert f"n = {n}" in found.found
        assert f"kind {kind} beside 128 rows" in found.limit
        assert found.fix == f"Use n = {near}, or m = 64."
        ts.plan_gemm(512, 512, 512, data_type, tile=(m, near, k), stages=1, **options)
    for m, n in ((64, 8), (192, 24), (128, 16)):
        ts.plan_gemm(512, 512, 512, data_type, tile=(m, n, k), stages=1, **options)
    searched = ts.plan_gemm(512, 8, 512, data_type, **options)
    assert all(each.tile[0] == 64 or each.tile[1] >= 16 for each in searched.ranked)
    assert {each.tile[:2] for each in searched.refused} == {(128, 8), (256, 8)}


def test_steps_of_16_are_not_asked_of_other_kinds():
    options = {"arch": "sm_100", "output_type": "f32", "stages": 1}
    assert ts.plan_gemm(512, 512, 512, "s8", tile=(128, 8, 128), **options)


ACCUMULATORS = [  # tile that fits, tile that does not, options
    ((128, 504, 16), (128, 512, 16), {}),
    ((256, 248, 16), (256, 256, 16), {}),
    ((64, 1016, 16), (64, 1024, 16), {}),
    ((128, 504, 16), (128, 512, 16), {"arch": "sm_80"}),
    ((256, 256, 16), (256, 272, 16), {"arch": "sm_100"}),
    ((128, 512, 16), (256, 512, 16), {"arch": "sm_100"}),
]


@pytest.mark.parametrize(("fits", "does_not", "options"), ACCUMULATORS)
def test_accumulators_fit_into_registers_or_tensor_memory(fits, does_not, options):
    [found] = refusal(1024, 1024, 1024, "bf16", tile=does_not, **options)
    m, n, _ = does_not
    assert found.rule == "gemm-accumulators"
    assert f"{m} x {n} accumulators of 4 bytes = {4 * m * n} bytes" in found.found
    held = "512 columns of 128 lanes x 4 bytes" if "sm_100" in options.values() else f"hold {256 * 255 * 4} bytes"
    assert held in found.limit
    _, violations = outcome(1024, 1024, 1024, "bf16", tile=fits, stages=1, **options)
    assert {each.rule for each in violations} <= {"gemm-smem"}  # its epilogue may be too large


def test_scale_factors_need_tensor_memory_too():
    [found] = refusal(512, 512, 512, "nvfp4", arch="sm_100", tile=(256, 256, 256), output_type="bf16")
    assert found.rule == "gemm-accumulators"
    assert "scale factors need some" in found.limit
    assert ts.plan_gemm(512, 512, 512, "nvfp4", arch="sm_100", tile=(128, 256, 256), output_type="bf16")
    assert ts.plan_gemm(512, 512, 512, "e2m1", arch="sm_100", tile=(256, 256, 128), output_type="bf16")


# PTX ISA, "tcgen05.mma" and "mma": kind f8f6f4 reads 4-bit elements a byte each, k 32 an instruction; mxf4 and mxf4nvf4 read
# them packed, k 64, with scale factors.
@pytest.mark.parametrize(
    ("arch", "scales", "moved", "stage_bytes", "transferred_bytes"),
    [
        ("sm_100", None, "16u4_align16b", 128 * 128, 128 * 64),
        ("sm_103", None, "16u4_align16b", 128 * 128, 128 * 64),
        ("sm_120", None, "16u4_align16b", 128 * 128, 128 * 64),
        ("sm_100", "nvfp4", "16u4_align8b", 128 * 64, 128 * 64),
        ("sm_120", "mxfp4", "16u4_align8b", 128 * 64, 128 * 64),
    ],
)
def test_e2m1_takes_a_byte_for_each_element_unless_it_has_scale_factors(
    arch, scales, moved, stage_bytes, transferred_bytes
):
    tile = (128, 128, 128)
    gemm = ts.plan_gemm(256, 256, 256, "e2m1", arch=arch, scales=scales, tile=tile)
    assert (gemm.data_type.name, gemm.a.tensor_map(0, (256, 256)).data_type.name) == ("e2m1", moved)
    assert (gemm.a.stage_bytes, gemm.a.transaction_bytes) == (stage_bytes, transferred_bytes)
    if arch != "sm_120":
        steps = gemm.a.descriptors()[0]
        assert len(steps) == (4 if scales is None else 2)
    said = [reason for reason in sentences(gemm) if "kind f8f6f4" in reason]
    assert len(said) == (1 if scales is None else 0)


def test_e2m1_without_scale_factors_has_the_rate_of_elements_of_a_byte():
    rates = {
        data_type: ts.plan_gemm(4096, 4096, 4096, data_type, card="B200").product.tflops
        for data_type in ("e2m1", "e4m3", "nvfp4")
    }
    assert rates == {"e2m1": 4500, "e4m3": 4500, "nvfp4": 9000}


@pytest.mark.parametrize("arch", ["sm_100", "sm_110", "sm_120"])
def test_packed_elements_without_scale_factors_are_refused_with_three_ways_out(arch, wording):
    [found] = refusal(256, 256, 256, "16u4_align8b", arch=arch)
    assert (found.rule, found.argument, found.found) == (
        "gemm-type",
        "data_type",
        "16u4_align8b without scale factors",
    )
    wording("packed elements without scale factors", str(found))
    for data_type in ("e2m1", "mxfp4", "nvfp4"):
        assert f'"{data_type}"' in found.fix
        assert ts.plan_gemm(256, 256, 256, data_type, arch=arch)


def test_rows_of_e2m1_without_scale_factors_are_whole_boxes():
    found, _ = refusal(256, 256, 160, "e2m1", arch="sm_100")  # of A, and the same of B
    assert (found.rule, found.found) == ("gemm-rows", "k = 160: rows of A are 80 bytes of e2m1")
    assert "multiples of 128 elements" in found.limit
    assert ts.plan_gemm(256, 256, 256, "e2m1", arch="sm_100")


def test_mma_takes_whole_instructions_with_a_and_b_either_way():
    options = {"consumer": "ldmatrix", "output_type": "f32"}
    assert ts.plan_gemm(64, 64, 64, "bf16", tile=(16, 8, 16), **options)
    exchanged = ts.plan_gemm(64, 128, 64, "bf16", tile=(8, 64, 16), **options)
    assert any(reason.startswith("A and B are exchanged") for reason in sentences(exchanged))
    assert (exchanged.epilogue.problem.tile, exchanged.epilogue.problem.major, exchanged.slices) == ((32, 8), "MN", 2)
    assert exchanged.epilogue.tensor_map(0).dims == (128, 64)  # n contiguous, as C always lies
    [found] = refusal(64, 64, 64, "bf16", tile=(8, 8, 16), **options)
    assert (found.rule, found.fix) == ("gemm-tile", "Use 16 x 8 x 16.")


def test_one_stage_is_planned_when_asked_for(wording):
    [found] = refusal(512, 512, 512, "bf16", tile=(256, 128, 256))
    assert "2 stages of 131072 + 65536 bytes" in found.found
    assert f"epilogue of 32768 = {2 * 196608 + 32768 + 32} bytes with barriers" in found.found
    wording("one stage is planned when asked for", found.found)
    assert "least 2 stages are planned" in found.limit
    assert "unless stages=1 is asked" in found.limit
    assert "Use stages=1 (copy and product" in found.fix
    assert "or tile=(256, 128, 128)." in found.fix
    wording("one stage is planned when asked for, 2", found.fix)
    assert ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 128, 128)).stages == 2
    assert ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 128, 256), stages=1).stages == 1
    [found] = refusal(512, 512, 512, "bf16", tile=(128, 128, 64), stages=99)
    assert found.fix == "Use stages=6."
    [found] = refusal(512, 512, 512, "bf16", tile=(256, 128, 512))
    assert (found.rule, found.fix) == ("gemm-smem", "Use 128 x 128 x 64.")
    assert "393216 bytes" in found.found


# Refusals name the matrix, and what cures them is an argument of the call


PADDED = [
    ((64, 100, 64, "bf16"), {}, [("C", "n", 104)]),
    ((64, 64, 63, "bf16"), {}, [("A", "k", 64), ("B", "k", 64)]),
    ((63, 64, 64, "bf16"), {"a_major": "MN"}, [("A", "m", 64)]),
    ((64, 60, 64, "bf16"), {"b_major": "MN"}, [("B", "n", 64), ("C", "n", 64)]),
    ((64, 64, 100, "e4m3"), {}, [("A", "k", 112), ("B", "k", 112)]),
    ((64, 6, 64, "bf16"), {"output_type": "f32"}, [("C", "n", 8)]),
    ((64, 64, 60, "bf16"), {"arch": "sm_80"}, [("A", "k", 64), ("B", "k", 64)]),
    ((128, 128, 192, "e2m3"), {"arch": "sm_100"}, [("A", "k", 256), ("B", "k", 256)]),
    ((128, 192, 128, "e2m3"), {"arch": "sm_100", "output_type": "e2m3"}, [("C", "n", 256)]),
    ((128, 96, 128, "e2m3"), {"arch": "sm_103", "output_type": "e2m3"}, [("C", "n", 128)]),
]


def test_long_rows_are_told_to_the_last_byte(wording):
    (found,) = refusal(64, 10_000_001, 64, "bf16")
    assert "n = 10000001: rows of C are 20000002 bytes" in found.found
    assert "bfloat16" in found.found
    wording("long rows are told to the last byte", found.found)


@pytest.mark.parametrize(("shape", "options", "expected"), PADDED)
def test_rows_out_of_step_name_the_matrix_and_the_extent_to_pad(shape, options, expected):
    found = refusal(*shape, **options)
    assert [each.rule for each in found] == ["gemm-rows"] * len(expected)
    asked = dict(zip("mnk", shape[:3], strict=True))
    for violation, (matrix, extent, up) in zip(found, expected, strict=True):
        assert violation.argument == extent
        assert violation.found.startswith(f"{extent} = {asked[extent]}: rows of {matrix} are ")
        assert f"Use {extent} = {up}" in violation.fix
        assert f"rows of {matrix} padded" in violation.fix
        assert dict(violation.change) == {extent: up}
    padded = asked | {key: up for violation in found for key, up in violation.change.items()}
    assert ts.plan_gemm(**padded, data_type=shape[3], **options)


def test_a_tile_that_one_matrix_cannot_have_names_the_extent_or_the_matrix():
    [found] = refusal(64, 64, 64, "bf16", tile=(60, 64, 64))
    assert (found.rule, found.found) == ("wgmma-tile", "m = 60")
    assert found.fix.startswith("Use 64; ")
    assert [each.found for each in refusal(64, 64, 64, "bf16", tile=(64, 60, 64))] == ["n = 60"]
    assert [each.found for each in refusal(64, 64, 64, "bf16", tile=(64, 64, 24))] == ["k = 24"]  # of A and of B
    blackwell = refusal(1024, 1024, 1024, "tf32", arch="sm_100", tile=(100, 64, 32))
    assert [(each.rule, each.found) for each in blackwell] == [("tcgen05-tile", "m = 100")]  # and no swizzle's troubles
    [found] = refusal(64, 64, 128, "e4m3", tile=(64, 8, 128), output_type="e4m3")
    assert (found.found, found.fix) == ("C: n = 8 elements of 8 bits = 8 contiguous bytes", "Use n = 16.")
    assert (found.values["matrix"], found.values["extent"], found.values["up"]) == ("C", "n", 16)


def test_types_of_a_byte_an_element_move_in_rows_of_128():
    found = refusal(1024, 1024, 1024, "e2m3", arch="sm_100", tile=(128, 64, 192), output_type="e2m3")
    assert [(each.found, each.fix) for each in found] == [
        ("A: k = 192 elements of e2m3", "Use k = 256."),
        ("B: k = 192 elements of e2m3", "Use k = 256."),
        ("C: n = 64 elements of e2m3", "Use n = 128."),
    ]
    assert {(each.rule, each.limit.split()[-1]) for each in found} == {("gemm-tile", "128")}
    assert ts.plan_gemm(
        1024, 1024, 1024, "e2m3", arch="sm_103", tile=(128, 64, 256), output_type="e2m3"
    )  # its stores take half rows


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        ({}, "wgmma "),
        ({"consumer": "ldmatrix"}, "ldmatrix.trans "),
        ({"arch": "sm_80"}, "ldmatrix.trans "),
    ],
)
def test_a_majorness_that_is_not_read_names_the_operand(options, instruction, wording):
    [found] = refusal(64, 64, 128, "s8", b_major="MN", **options)
    assert (found.rule, found.argument, found.found) == ("gemm-major", "b_major", "B MN-major, of int8")
    assert found.limit.startswith(instruction)
    assert "16 bits" in found.limit
    wording(f"a majorness that {instruction}does not read", found)
    assert dict(found.change) == {"b_major": "K"}
    both = refusal(64, 64, 128, "s8", a_major="MN", b_major="MN", **options)
    assert [each.argument for each in both] == ["a_major", "b_major"]


def test_tcgen05_reads_more_majornesses():
    assert ts.plan_gemm(128, 128, 128, "e4m3", arch="sm_100", a_major="MN", b_major="MN", tile=(128, 64, 64))
    assert ts.plan_gemm(128, 128, 128, "tf32", arch="sm_100", a_major="MN", tile=(128, 64, 64))
    [found] = refusal(128, 128, 128, "e2m3", arch="sm_100", a_major="MN")
    assert found.rule == "gemm-major"
    assert found.limit.endswith("8, 16, 32 bits")


def test_where_no_tile_can_be_the_one_that_came_nearest_says_why():
    [found] = refusal(512, 512, 512, "bf16", stages=99)
    assert (found.rule, found.argument) == ("gemm-smem", "stages")
    assert "smaller tile" not in found.fix  # every tile was tried
    assert found.fix == "Use stages=25."
    assert ts.plan_gemm(512, 512, 512, "bf16", stages=25)
    assert refusal(512, 512, 512, "bf16", stages=26)[0].fix == "Use stages=25."


def test_a_lack_of_shared_memory_is_not_hidden_by_tiles_that_c_cannot_have():
    options = {"arch": "sm_120", "output_type": "e2m3"}
    [found] = refusal(1024, 128, 256, "bf16", stages=7, **options)
    assert (found.rule, found.argument, found.fix) == ("gemm-smem", "stages", "Use stages=3.")
    assert ts.plan_gemm(1024, 128, 256, "bf16", stages=3, **options)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("arch", ["sm_100", "sm_103", "sm_120"])
@pytest.mark.parametrize(
    ("data_type", "options"),
    [("16u4_align16b", {"output_type": "16u4_align16b"}), ("bf16", {"output_type": "16u4_align16b"})],
)
@pytest.mark.parametrize("tile", [None, (128, 128, 128)])
def test_what_tma_never_stores_is_no_output_type(arch, data_type, options, tile):
    [found] = refusal(128, 128, 128, data_type, arch=arch, tile=tile, **options)
    assert (found.rule, found.argument, found.found) == ("gemm-type", "output_type", f"16u4_align16b on {arch}")
    assert f"{found.limit}." == ts.RULES["packed-store"].demand
    assert found.fix == 'Use output_type="bfloat16".'
    assert ts.plan_gemm(128, 128, 128, data_type, arch=arch, output_type="bfloat16")


def test_a_type_that_is_not_moved_is_said_once():
    assert [each.argument for each in refusal(128, 128, 128, "int4", consumer="ldmatrix")] == ["data_type"]
    [found] = refusal(128, 128, 128, "bf16", output_type="int4")
    assert found.argument == "output_type"


@pytest.mark.parametrize("data_type", ["e2m1", "16u4_align8b"])
def test_a_c_of_half_bytes_needs_rows_for_mma(data_type):
    options = {"arch": "sm_120", "output_type": data_type}
    for m, up in ((8, 16), (40, 48)):
        [found] = refusal(128, 128, 128, "bf16", tile=(m, 128, 64), **options)
        assert found.rule == "gemm-tile"
        assert found.fix.startswith(f"Use m = {up}, ")
        assert "8 bits" in found.fix
        assert ts.plan_gemm(128, 128, 128, "bf16", tile=(up, 128, 64), **options)
        assert ts.plan_gemm(128, 128, 128, "bf16", tile=(m, 128, 64), arch="sm_120", output_type="s8")


def test_a_slice_of_c_that_does_not_fit_is_not_blamed_on_a_swizzle(wording):
    options = {"arch": "sm_120", "output_type": "s32"}
    [found] = refusal(1024, 1024, 1024, "e5m2", tile=(256, 120, 48), **options)
    assert (found.rule, found.found) == ("plan-smem", "C: 122880 bytes")
    assert found.limit.startswith("a block of sm_120 has 101376")
    assert "Use n = 128: C is then stored 32 columns" in found.fix
    wording("a slice of c that does not fit is not blamed on a swizzle", found.fix)
    assert ts.plan_gemm(1024, 1024, 1024, "e5m2", tile=(256, 128, 48), **options)


def test_an_operand_that_only_one_swizzle_brings_is_refused_for_its_atoms():
    [found] = refusal(512, 512, 512, "tf32", arch="sm_100", b_major="MN", tile=(128, 16, 32))
    assert (found.rule, found.found, found.fix) == (
        "tile-atoms",
        "B: a tile of 16 x 32 (n x k)",
        "Use 32 x 32 (n x k).",
    )
    assert ts.plan_gemm(512, 512, 512, "tf32", arch="sm_100", b_major="MN", tile=(128, 32, 32))


@given(
    gemms, st.sampled_from(["sm_100", "sm_120"]), st.sampled_from([8, 24, 64, 256]), st.sampled_from(["s32", "e2m1"])
)
def test_no_refusal_speaks_of_what_a_product_cannot_choose(options, arch, m, output_type):
    asked = options | {"arch": arch, "tile": (m, *options["tile"][1:]), "output_type": output_type}
    _, violations = outcome(960, 480, 256, **asked)
    assert not [str(each) for each in violations if "smaller swizzle" in each.fix or "K-major tile" in each.fix]


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (((0, 64, 64, "bf16"), {}), "argument-range"),
        (((64, 64, 64, "bf16"), {"tile": (64, 64)}), "argument-range"),
        (((64, 64, 64, "bf16"), {"stages": 0}), "argument-range"),
        (((64, 64, 64, "bf16"), {"stages": 1025}), "argument-range"),
        (((64, 64, 64, "bf16"), {"stages": 1 << 40}), "argument-range"),
        (((64, 64, 64, "bf16"), {"stages": 1024}), "gemm-smem"),
        (((64, 64, 64, "bf16"), {"sms": 0}), "argument-range"),
        (((64, 64, 64, "bf16"), {"consumer": "magic"}), "unknown-name"),
        (((64, 64, 64, "bf16"), {"consumer": "tcgen05"}), "gemm-consumer"),
        (((64, 64, 64, "bf16"), {"a_major": "Q"}), "unknown-name"),
        (((64, 64, 64, "f64"), {}), "wgmma-type"),
        (((64, 64, 64, "f64"), {"arch": "sm_100"}), "tcgen05-type"),
    ],
)
def test_nonsense_is_refused_with_a_rule(asked, rule):
    shape, options = asked
    with pytest.raises(ts.RuleError) as refused:
        ts.plan_gemm(*shape, **options)
    assert [each.rule for each in refused.value.violations] == [rule]
    assert all(each.fix for each in refused.value.violations)


# Words


def test_reasons_name_the_card_whose_rates_they_use(wording):
    here = sentences(ts.plan_gemm(4096, 4096, 4096, "bf16"))
    assert "Floor 132.4 us by the rates" in here[1]
    assert "H200, bound by arithmetic" in here[1]
    assert "arithmetic 132.4 us at 1071 TFLOP/s (measured)" in here[1]
    assert "shared-memory reads 82.7 us at 253.4 GB/s" in here[1]
    assert "(documented); loads of one SM 59.9" in here[1]
    assert "us at 210 GB/s (measured)" in here[1]
    assert "memory 22.1 us at 4559 GB/s (measured)." in here[1]
    wording("reasons name the card whose rates they use", here[1])
    assert "power of an H200 allows 790" in here[2]
    assert "TFLOP/s: 174.0 us." in here[2]
    wording("reasons name the card whose rates they use, 2", here[2])
    elsewhere = sentences(ts.plan_gemm(16, 4096, 4096, "e4m3", arch="sm_100"))
    assert elsewhere[1].startswith("Floor 2.48 us by the rates")
    assert "B200, bound by shared-memory reads" in elsewhere[1]
    assert "memory 2.12 us at 8000 GB/s (documented)" in elsewhere[1]
    assert "B200." in elsewhere[2]
    wording("reasons name the card whose rates they use, 3", elsewhere[2])
    named = sentences(ts.plan_gemm(4096, 4096, 4096, "bf16", card="H100 PCIe"))
    assert "for 114 SMs" in named[0]
    assert "at 756.5 TFLOP/s (documented)" in named[1]
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", arch="H100").card.name == "H100 SXM"  # not an H200's numbers
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", arch="RTX4090").sms == 128


def test_without_a_card_nothing_is_weighed_by_rates():
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_86")
    assert (gemm.card, gemm.sms, gemm.rounds, gemm.floor_us) == (None, None, None, None)
    assert "no card of sm_86" in "\n".join(sentences(gemm))
    total = {
        each.tile: -(-4096 // each.tile[0]) * -(-4096 // each.tile[1]) * (each.tile[0] + each.tile[1]) * 8192
        for each in gemm.ranked
    }
    assert [each.busiest_bytes for each in gemm.ranked] == sorted(total.values())
    assert gemm.others[1].why.startswith("all SMs together fetch ")
    assert ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_86", sms=84).rounds is not None
    assert "sm_86" in text(gemm)


def test_few_tiles_are_bound_by_the_loads_of_their_sms():
    """The busiest SM fetches 9.4 MB, and one SM takes at most 210 GB/s of rows of 128 bytes: 45 us, not 11."""
    gemm = ts.plan_gemm(128, 128, 65536, "bf16", tile=(8, 64, 64), split=1, parts=1)
    assert gemm.floor_us == pytest.approx(9437184 / 210e3)
    assert gemm.ranked[0].terms[0].name == "loads of one SM"
    elsewhere = ts.plan_gemm(128, 128, 65536, "bf16", arch="sm_120")
    assert any("split K or swapped operands" in reason for reason in sentences(elsewhere))
    assert not any("Not planned" in reason for reason in sentences(gemm))


@pytest.mark.parametrize(("n", "cycles"), [(8, 18), (16, 20), (32, 24), (64, 32), (128, 48), (256, 80)])
def test_a_narrow_wgmma_waits_for_shared_memory(n, cycles):
    """m64nNk16 reads 64 + n rows of 32 bytes, 128 bytes a cycle, while its sums take n / 2 cycles."""
    gemm = ts.plan_gemm(64, n, 4096, "bf16", tile=(64, n, 64), split=1, parts=1)
    terms = {term.name: term.us for term in gemm.ranked[0].terms}
    assert terms["shared-memory reads"] == pytest.approx(4096 / 16 * cycles / 1980)
    assert (terms["shared-memory reads"] > terms["arithmetic"]) == (n < 64)


def test_fewer_bytes_in_flight_are_slower():
    floors = [
        ts.plan_gemm(16, 65536, 4096, "bf16", tile=(64, 8, 64), stages=stages).ranked[0].terms
        for stages in (1, 2, 4, 8)
    ]
    memory = [next(term.rate for term in terms if term.name == "memory") for terms in floors]
    alone = [next(term.rate for term in terms if term.name == "loads of one SM") for terms in floors]
    measured = [4559 * gb / 4336 for gb in (1522, 2704, 4006, 4321)]  # between the bytes in flight that were measured
    assert memory == pytest.approx(measured, rel=0.06)
    assert memory == sorted(memory)
    assert alone == pytest.approx([stages * 9216 / 750 for stages in (1, 2, 4, 8)])


@pytest.mark.parametrize(
    ("data_type", "options", "expected"),
    [
        (
            "bf16",
            {"tile": (64, 64, 64)},
            [["A", "64", "128", "1", "128"]],
        ),
        (
            "bf16",
            {"tile": (64, 64, 128)},
            [["A", "128", "256", "2", "128"]],
        ),
        (
            "bf16",
            {"tile": (128, 32, 64), "a_major": "MN", "b_major": "MN"},
            [
                ["A", "128", "256", "2", "128"],
                ["B", "32", "64", "1", "64"],
            ],
        ),
        (
            "e2m1",
            {"tile": (128, 64, 256), "arch": "sm_100"},
            [
                ["A", "256", "256", "2", "128"],
            ],
        ),
        (
            "e2m3",
            {"tile": (128, 128, 128), "arch": "sm_100"},
            [
                ["A", "128", "128", "1", "128"],
            ],
        ),
        (
            "bf16",
            {"tile": (16, 8, 8), "consumer": "ldmatrix"},
            [
                ["A", "8", "16", "8", "16"],
            ],
        ),
    ],
)
def test_rows_are_described_as_they_are(data_type, options, expected, wording):
    gemm = ts.plan_gemm(1024, 1024, 1024, data_type, **options)
    rows = [reason for reason in sentences(gemm) if reason.startswith("Rows of ")]
    assert [re.findall(r"(?<=Rows of )\w|\d+", row) for row in rows] == expected
    wording(f"rows of {data_type}, {options}", "\n".join(rows))


def test_one_of_a_thing_is_not_called_several(wording):
    gemm = ts.plan_gemm(64, 64, 64, "bf16", sms=1, tile=(64, 64, 64), stages=1)
    wording("one of a thing is not called several", sentences(gemm)[0])
    drawn = text(gemm)
    for said in (*sentences(gemm), drawn):
        assert not re.search(r"\b1 (tiles|SMs|rounds|stages|slices|spans|columns|copies|k tiles)\b", said), said


def test_accumulators_are_weighed_against_where_they_lie():
    said = "Accumulators, 128 x 256 of 4 bytes: "
    on_hopper = [reason for reason in sentences(ts.plan_gemm(4096, 4096, 4096, "bf16")) if reason.startswith(said)]
    assert [re.findall(r"\d+", reason)[3:] for reason in on_hopper] == [["131072", "262144"]]
    blackwell = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_100", tile=(128, 256, 64))
    two = "2 accumulators of 128 x 256 x 4 bytes: 512 of 512 columns of tensor memory, 512 allocated."
    assert two in sentences(blackwell)
    tall = ts.plan_gemm(4096, 4096, 4096, "bf16", arch="sm_100", tile=(256, 96, 64))
    assert any("256 x 96" in reason and "384 of 512 columns" in reason for reason in sentences(tall))


def test_edges_are_named_by_the_extents_of_the_product(wording):
    gemm = ts.plan_gemm(1000, 200, 1000, "bf16", tile=(128, 64, 64))
    edges = [reason for reason in sentences(gemm) if reason.startswith("Edge")]
    assert [re.findall(r"(?<=Edge, )\w|\d+", edge) for edge in edges] == [
        ["m", "8", "128", "104", "128", "24"],
        ["n", "4", "64", "8", "64", "56"],
        ["k", "16", "64", "40", "64", "24"],
    ]
    wording("edges of a product", "\n".join(edges))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_a_plan_survives_json(arch):
    gemm = ts.plan_gemm(4096, 4096, 4096, "bf16", arch=arch)
    data = json.loads(json.dumps(gemm.to_dict()))
    assert (data["smem_bytes"], data["floor_us"], data["tiles"]) == (gemm.smem_bytes, gemm.floor_us, gemm.tiles)
    assert Value.from_dict(data) == gemm
    assert replace(gemm, ranked=gemm.ranked[:1]) != gemm
