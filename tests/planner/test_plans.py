"""What the documents and the definitions of a plan demand, number by number."""

import re

import numpy as np
import pytest

import tilescope as ts
from tilescope.layout import Layout
from tilescope.planner.boxes import map_arguments


def sentences(plan):
    return [str(reason) for reason in plan.reasons]


SPAN = {16: "none", 32: "32B", 64: "64B", 128: "128B"}


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("row_bytes", SPAN)
def test_chooses_the_span_that_is_the_row(major, row_bytes):
    columns = row_bytes // 2
    tile = (64, columns) if major == "K" else (columns, 64)
    best = ts.plan(tile, "bf16", consumer="ldmatrix", major=major).best
    assert (best.swizzle.name, best.gmem_request_bytes) == (SPAN[row_bytes], row_bytes)


def test_chooses_the_largest_span_that_divides_not_merely_fits():
    best = ts.plan((64, 48), "bf16", consumer="ldmatrix").best  # 96 bytes: 64B fits, 32B divides
    assert (best.swizzle.name, best.gmem_request_bytes, best.tma_instructions) == ("32B", 32, 3)


def test_a_wide_tile_is_one_box_for_each_span():
    best = ts.plan((64, 128), "bf16", consumer="ldmatrix").best  # 64 x 256 bytes
    assert (best.box, best.tma_instructions) == ((64, 64), 2)


# tile bytes (rows x row bytes), swizzle → copies in column order, in row order
COPIES = [
    ((64, 64), "32B", 2, 16),
    ((16, 64), "none", 4, 8),
    ((16, 64), "32B", 2, 4),
]


@pytest.mark.parametrize(("tile", "swizzle", "column", "row"), COPIES)
def test_counts_copies_by_atom_order(tile, swizzle, column, row):
    shape = tile[0], tile[1] // 2
    counts = {
        order: ts.plan(shape, "bf16", consumer="ldmatrix", swizzle=swizzle, atom_order=order).best.tma_instructions
        for order in ("column", "row")
    }
    assert counts == {"column": column, "row": row}


def test_none_for_a_tensor_core_is_core_matrices_not_plain_rows():
    best = ts.plan((8, 32), "bf16", consumer="ldmatrix", swizzle="none").best
    assert (best.box, best.tma_instructions) == ((8, 8), 4)


# The documents' thread copy of 8 x 64 bytes: source chunks that a warp reads for each line it stores.
THREAD_COPY = {
    "none": [[0, 4, 8, 12, 16, 20, 24, 28]],
    "32B": [[0, 1, 4, 5, 8, 9, 12, 13]],
    "64B": [[0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 11, 10, 13, 12, 15, 14]],
}


@pytest.mark.parametrize("copy", ["cp.async", "ld.global"])
@pytest.mark.parametrize("swizzle", THREAD_COPY)
def test_threads_copy_chunks_as_the_documents_say(swizzle, copy):
    best = ts.plan((8, 32), "bf16", consumer="ldmatrix", copy=copy, swizzle=swizzle, arch="sm_80").best
    lines = THREAD_COPY[swizzle]
    assert best.chunk_order[: len(lines)].tolist() == lines
    assert best.gmem_request_bytes == (best.swizzle.span_bytes or 16)
    assert best.costs.write_wavefronts == best.costs.write_ideal


# K none: column SBO = a, LBO = R a; row LBO = a, SBO = C a. And so on, for atoms of a bytes in an R x C grid.
STRIDES = {
    ("K", "none", "column"): lambda a, high, _: (high * a, a),
    ("K", "none", "row"): lambda a, _, wide: (a, wide * a),
    ("K", "32B", "column"): lambda a, *_: (None, a),
    ("K", "32B", "row"): lambda a, _, wide: (None, wide * a),
    ("MN", "32B", "column"): lambda a, high, _: (high * a, a),
    ("MN", "32B", "row"): lambda a, _, wide: (a, wide * a),
    ("MN", "none", "column"): lambda a, high, _: (a, high * a),
    ("MN", "none", "row"): lambda a, _, wide: (wide * a, a),
}


@pytest.mark.parametrize(("major", "swizzle", "order"), STRIDES)
def test_leading_and_stride_bytes_lead_from_atom_to_atom(major, swizzle, order):
    best = ts.plan((64, 64), "bf16", major=major, swizzle=swizzle, atom_order=order).best
    tile = best.layout.as_rows().tiling
    high, wide = tile.grid
    leading, stride = STRIDES[major, swizzle, order](tile.atom_bytes, high, wide)
    first = best.descriptors()[0][0]
    assert first.stride_bytes == stride
    if leading is not None:
        assert first.leading_bytes == leading


@pytest.mark.parametrize("order", ["column", "row"])
def test_a_folded_plan_moves_the_same_bytes_with_one_copy(order):
    shape = (256, 512)
    plain = ts.plan((64, 128), "bf16", swizzle="64B", atom_order=order).best
    folded = ts.plan((64, 128), "bf16", swizzle="64B", atom_order=order, fold=True, global_shape=shape).best
    assert folded.folded
    assert folded.tma_instructions == 1 < plain.tma_instructions
    matrix = np.arange(256 * 512, dtype=np.uint16)
    images = []
    for each in (plain, folded):
        smem = np.zeros(each.smem_bytes, np.uint8)
        for copy in each.copies:
            ts.load(
                each.tensor_map(0, shape),
                matrix,
                each.copy_coords(copy, 128, 256),
                smem=smem[copy.smem_offset_bytes :],
                smem_address=copy.smem_offset_bytes,
            )
        images.append(smem)
    assert np.array_equal(*images)


def test_a_matrix_that_cannot_be_folded_is_refused_with_the_reason():
    report = ts.plan((64, 128), "bf16", swizzle="128B", fold=True, global_shape=(100, 520))
    assert {each.rule for refusal in report.refused if refusal.folded for each in refusal.violations} >= {"plan-fold"}
    assert not any(each.folded for each in report.candidates)


def test_a_fold_that_is_too_large_for_a_box_is_refused_not_forgotten():
    report = ts.plan((296, 64), "bf16", consumer="ldmatrix", swizzle="32B", fold=True)
    folded = {each.atom_order: each.violations[0].rule for each in report.refused if each.folded}
    assert folded == {"column": "box-range"}
    assert report.best.box == (16, 8, 4, 37)  # in row order it fits


def test_a_plan_is_a_sound_map_for_the_whole_matrix():
    best = ts.plan((128, 64), "bf16", global_shape=(4096, 4096)).best
    assert best.tensor_map(0x1000).findings == ()
    assert best.tensor_map(0x1000) == ts.TensorMap(
        "bf16", (4096, 4096), (8192,), (64, 128), swizzle="128B", l2_promotion="128B", address=0x1000
    )


def test_a_map_without_a_shape_is_that_of_the_problem_or_of_the_tile_itself():
    assert ts.plan((128, 64), "bf16").best.tensor_map(0).dims == (64, 128)
    assert ts.plan((128, 64), "bf16", major="MN").best.tensor_map(0).dims == (128, 64)
    assert ts.plan((128, 64), "bf16", global_shape=(512, 256)).best.tensor_map(0).dims == (256, 512)
    assert ts.plan((128, 64), "bf16", global_shape=(512, 256)).best.tensor_map(0, (1024, 128)).dims == (128, 1024)


def test_the_c_expression_is_the_layout():
    for order in ("column", "row"):
        layout = Layout((64, 64), 16, atom=(8, 16), atom_order=order, swizzle="32B", start=0x480)
        logical, physical = layout.c_expression[1:-1].removeprefix("a = ").split(", ")
        for r, c in ((0, 0), (7, 15), (9, 17), (63, 63), (33, 40)):
            a = eval(logical.replace("/", "//"), {"base": 0x480, "r": r, "c": c})
            assert eval(physical, {"a": a}) == layout.address(r, c)


def test_stores_count_the_writes_and_name_the_fence():
    report = ts.plan((64, 64), "bf16", direction="store", global_shape=(64, 100), strides_bytes=(208,))
    assert report.best.swizzle.name == "128B"
    assert report.best.costs.write_wavefronts == report.best.costs.write_ideal
    assert any("fence.proxy.async" in reason for reason in sentences(report.best))
    assert any("8 bytes behind each row" in reason for reason in sentences(report.best))
    plain = next(each for each in report.candidates if each.swizzle.name == "none")
    assert plain.costs.excess_wavefronts > 0


def d_fragment_stores(tile, bits, major):
    """Lane addresses of an epilogue written out: lane 4 g + t of a warp holds rows g and g + 8, columns 2 t and 2 t + 1
    of each 16 x 8 block (f64: rows g of an 8 x 8 block); neighbours in memory go in one store."""
    height, halves = (8, 1) if bits == 64 else (16, 2)
    m, n = tile
    pitch = (n if major == "K" else m) * bits // 8
    together = 2 if major == "K" else 1
    found = []
    for row in range(0, m, height):
        for column in range(0, n, 8):
            for half in range(halves):
                for value in range(0, 2, together):
                    lanes = []
                    for lane in range(32):
                        mn, k = row + lane // 4 + 8 * half, column + lane % 4 * 2 + value
                        r, c = (mn, k) if major == "K" else (k, mn)
                        lanes.append(r * pitch + c * bits // 8)
                    found.append(lanes)
    return f"st.b{together * bits}", found


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("data_type", ["e4m3", "f32", "f64"])
def test_an_epilogue_is_written_as_the_accumulators_lie_in_registers(data_type, major):
    tile = (64, 128)
    report = ts.plan(tile, data_type, direction="store", major=major)
    best = report.best
    op, lanes = d_fragment_stores(tile, best.layout.element_bits, major)
    assert best.costs.access.startswith(op + " mma.")
    for each in report.candidates:  # every swizzle, conflicts and all
        placed = ts.Access(op, lanes).on(each.layout)
        assert each.costs.write_wavefronts == ts.wavefronts(op, placed.lane_address).sum()
    assert len({each.costs.write_wavefronts for each in report.candidates}) > 1


def test_blackwell_writes_a_row_of_the_accumulator_from_each_lane():
    best = ts.plan((128, 32), "f32", direction="store", arch="sm_100").best
    lanes = [
        [row * 128 + chunk * 16 for row in range(first, first + 32)] for chunk in range(8) for first in (0, 32, 64, 96)
    ]
    placed = ts.Access("st.b128", lanes).on(best.layout)
    assert best.costs.write_wavefronts == ts.wavefronts("st.b128", placed.lane_address).sum() == best.costs.write_ideal
    assert best.swizzle.name == "128B"


def test_mma_on_blackwell_writes_its_own_fragments():
    best = ts.plan((128, 32), "f32", direction="store", arch="sm_100", consumer="ldmatrix").best
    assert best.costs.access == "st.b64 mma.m16n8k16 D"


def test_warnings_of_the_map_stay_with_the_plan():
    best = ts.plan((64, 64), "bf16", direction="store", strides_bytes=(16,)).best
    assert [each.rule for each in best.warnings] == ["stride-overlap"]
    assert str(best.reasons[-1]).startswith("Warning, stride-overlap: strides_bytes[0] = 16 bytes")
    assert ts.plan((64, 64), "bf16", direction="store").best.warnings == ()


def test_a_refused_pattern_speaks_of_the_tile_as_it_was_given():
    with pytest.raises(ts.PlanError, match=r"36 x 40 elements \(n x m\).*Use 40 x 48\."):
        _ = ts.plan((40, 36), "f32", major="MN", direction="store").best
    assert ts.plan((48, 40), "f32", major="MN", direction="store").best


@pytest.mark.parametrize(("swizzle", "accepted"), [("xor:2,4,3", True), ("xor:3,3,3", False), ("xor:4,6,-4", False)])
def test_threads_follow_a_xor_swizzle_that_keeps_chunks_whole_and_stays_in_the_tile(swizzle, accepted):
    def asked():
        return ts.plan((64, 64), "bf16", copy="cp.async", consumer="ld.b32 rows", swizzle=swizzle).best

    if accepted:
        assert sentences(asked())[0] == f"Swizzle {swizzle}: rows of 128 bytes."
    else:
        with pytest.raises(ts.PlanError, match="plan-swizzle"):
            asked()


def test_half_bytes_are_not_stored_one_by_one():
    with pytest.raises(ts.PlanError, match=r"plan-layout.*4 bits.*Use.*K-major"):
        _ = ts.plan((128, 64), "e2m1", direction="store", arch="sm_100", major="MN").best


def test_the_writer_of_a_store_may_be_given_and_must_write():
    best = ts.plan((64, 64), "f32", direction="store", consumer="st.b128 columns").best
    assert best.costs.access == "st.b128 columns"
    assert best.swizzle.name == "128B"  # the D fragment's own 8-byte stores would conflict there
    for direction, consumer in (("store", "ld.b128 rows"), ("load", "st.b128 rows")):
        with pytest.raises(ts.PlanError, match="plan-pattern"):
            ts.plan((64, 64), "f32", direction=direction, consumer=consumer)


@pytest.mark.parametrize("k", range(8, 272, 8))
def test_plain_rows_are_named_where_ldmatrix_reads_them_freely(k):
    report = ts.plan((64, k), "bf16", consumer="ldmatrix")
    offered = [each for each in sentences(report.best) if each.startswith("Plain rows")]
    walk = "ldmatrix.x4" if k % 16 == 0 else "ldmatrix.x1"
    plain = ts.plan((64, k), "bf16", consumer=walk, swizzle="none").best
    free = plain.costs.excess_wavefronts == 0 and plain.tma_instructions == 1
    assert bool(offered) == (free and k > 8)
    assert all(f'consumer="{walk}"' in each for each in offered)


def test_tensor_core_reads_have_no_counted_wavefronts():
    costs = ts.plan((64, 64), "bf16").best.costs
    assert costs.read_wavefronts is None
    assert costs.write_wavefronts is None


def test_an_access_pattern_may_be_the_consumer():
    report = ts.plan((32, 32), "f32", consumer="ld.b32 columns")
    assert {each.costs.read_wavefronts for each in report.candidates} >= {1024}  # a column in one bank: 32-way
    assert report.best.costs.read_wavefronts == min(each.costs.read_wavefronts for each in report.candidates)


def test_too_many_stages_are_refused_with_the_number_that_fits():
    with pytest.raises(ts.PlanError, match=r"plan-smem.*Use stages=14"):
        _ = ts.plan((128, 64), "bf16", stages=15).best
    assert ts.plan((128, 64), "bf16", stages=14).best.blocks_per_sm == 1


@pytest.mark.parametrize(
    ("options", "fate"),
    [
        ({}, "24 filled"),
        ({"direction": "store"}, "24 dropped"),
        ({"copy": "cp.async"}, "24 to be filled"),
        ({"copy": "ld.global"}, "24 to be filled"),
    ],
)
def test_edges_say_what_becomes_of_what_lies_outside(options, fate, wording):
    best = ts.plan((128, 64), "bf16", global_shape=(1000, 4096), **options).best
    name = "m" if "direction" in options else "mn"
    (edge,) = [sentence for sentence in sentences(best) if sentence.startswith(f"Edge, {name}: ")]
    assert re.findall(r"\d+", edge) == ["8", "128", "104", "128", "24"]
    assert fate in edge
    wording(f"an edge, {options}", edge)


# rows of a tile → height of the tallest box: as few boxes of at most 256 rows as cut it evenly, each on a line
@pytest.mark.parametrize(("rows", "height"), [(64, 64), (256, 256), (264, 132), (296, 148), (512, 256), (768, 256)])
def test_boxes_are_as_tall_as_they_may_be(rows, height):
    report = ts.plan((rows, 64), "bf16", consumer="ldmatrix", swizzle="128B")
    assert report.best.box == (64, height)
    assert report.best.tma_instructions == rows // height


def test_boxes_half_as_tall_are_candidates_too():
    report = ts.plan((64, 64), "bf16", swizzle="64B", atom_order="column")
    assert [each.box for each in report.candidates] == [(32, 64), (32, 32)]


def test_the_slower_of_global_and_shared_memory_decides():
    report = ts.plan((128, 32), "f32", direction="store")
    best = report.best  # 2-way conflicts of 8-byte stores take 256 cycles, the 16 KiB of global memory 1022
    assert (best.swizzle.name, best.costs.write_wavefronts, best.costs.write_ideal) == ("128B", 256, 128)
    assert best.costs.cycles == best.costs.gmem_cycles == round(128 * 128 / (4190 / 132 / 1.98)) == 1022
    assert any("128 lost" in each and "1022 cycles" in each for each in sentences(best))
    transposed = ts.plan((32, 32), "f32", consumer="ld.b32 columns", swizzle="none").best
    assert transposed.costs.cycles == transposed.costs.read_wavefronts == 1024


def test_what_the_consumer_must_wait_for_is_named():
    by_threads = {
        name: ts.plan((64, 64), "bf16", consumer=name, copy="cp.async").best for name in ("wgmma", "ldmatrix")
    }
    waits = {
        name: next(each for each in sentences(best) if each.startswith("Between")) for name, best in by_threads.items()
    }
    assert all("cp.async.commit_group and cp.async.wait_group" in each for each in waits.values())
    assert "fence.proxy.async" in waits["wgmma"]  # the tensor core reads through the async proxy
    assert "fence" not in waits["ldmatrix"]


def test_mbarriers_need_room_too():
    tile = (8, 64)  # 1024 bytes a stage: 227 fill a block's 227 KiB to the last byte
    with pytest.raises(ts.PlanError, match="Use stages=225"):
        _ = ts.plan(tile, "bf16", operand="B", stages=227).best
    best = ts.plan(tile, "bf16", operand="B", stages=225).best
    assert best.total_smem_bytes + best.barrier_bytes == 225 * (1024 + 8) <= 227 * 1024
    assert ts.plan(tile, "bf16", consumer="ldmatrix", copy="cp.async", stages=227).best.barrier_bytes == 0


def test_a_corner_that_a_folded_map_cannot_name_is_refused():
    best = ts.plan((64, 128), "bf16", fold=True, global_shape=(256, 512)).best
    assert best.folded
    assert best.copy_coords(best.copies[0], 3, 64) == (0, 3, 1)
    with pytest.raises(ts.RuleError, match="plan-corner"):
        best.copy_coords(best.copies[0], 3, 10)


@pytest.mark.parametrize("shape", ["ab", (1,), (1, 2, 3), (0, 5), 7])
def test_a_shape_that_is_none_is_refused(shape):
    best = ts.plan((64, 64), "bf16").best
    with pytest.raises(ts.RuleError):
        best.tensor_map(0, shape)
    with pytest.raises(ts.RuleError):
        best.edge(shape)


NONSENSE = [
    (((0, 64), "bf16", {}), "argument-range"),
    (((64,), "bf16", {}), "argument-range"),
    ((64, "bf16", {}), "argument-type"),
    (((64, 64), "bf17", {}), "unknown-name"),
    (((64, 64), "bf16", {"consumer": "tcgen05"}), "plan-consumer"),
    (((64, 64), "bf16", {"consumer": "wgma"}), "unknown-name"),
    (((64, 64), "bf16", {"arch": "sm_80"}), None),
    (((64, 64), "bf16", {"arch": "sm_80", "consumer": "wgmma"}), "plan-consumer"),
    (((64, 64), "bf16", {"arch": "sm_80", "copy": "tma"}), "plan-copy"),
    (((64, 64), "bf16", {"arch": "sm_90", "card": "A100"}), "plan-card"),
    (((64, 64), "bf16", {"card": "H2000"}), "unknown-name"),
    (((64, 64), "bf16", {"card": 200}), "unknown-name"),
    (((64, 63), "bf16", {}), "plan-row"),
    (((64, 64), "bf16", {"stages": 0}), "argument-range"),
    (((1 << 30, 64), "bf16", {}), "argument-range"),
    (((64, 64), "bf16", {"swizzle": "256B"}), "unknown-name"),
    (((64, 64), "bf16", {"atom_order": "diagonal"}), "unknown-name"),
    (((64, 64), "bf16", {"traffic": "heavy"}), "unknown-name"),
    (((64, 64), "bf16", {"fold": 1}), "argument-type"),
    (((64, 64), "bf16", {"strides_bytes": (256, 999)}), "argument-range"),
    (((64, 64), "bf16", {"strides_bytes": ()}), "argument-range"),
    (((64, 256), "b1", {}), "plan-type"),
    (((64, 128), "e2m3", {"arch": "sm_100", "consumer": "tcgen05", "copy": "cp.async"}), "plan-type"),
    (((64, 64), "bf16", {"copy": "cp.async", "strides_bytes": (130,)}), "plan-pitch"),
    (((64, 64), "bf16", {"copy": "ld.global", "global_shape": (1000, 1001)}), "plan-pitch"),
    (
        ((64, 64), "bf16", {"copy": "cp.async", "swizzle": "128B_ATOM_32B_FLIP_8B", "consumer": "ld.b32 rows"}),
        "plan-swizzle",
    ),
    (((64, 64), "bf16", {"arch": "sm_80", "direction": "store", "copy": "cp.async"}), "plan-copy"),
    (((3, 320), "u8", {"consumer": "ld.b32 rows"}), "plan-rows"),
    (((64, 288), "u8", {"consumer": "ld.b128 rows", "swizzle": "none", "atom_order": "row"}), "plan-rows"),
    (
        ((264, 64), "bf16", {"direction": "store", "atom_order": "row", "swizzle": "128B", "consumer": "st.b32 rows"}),
        None,
    ),
    (
        ((263, 64), "bf16", {"direction": "store", "atom_order": "row", "swizzle": "128B", "consumer": "st.b32 rows"}),
        "plan-rows",
    ),
    (((16384, 16384), "bf16", {}), "plan-smem"),
]


@pytest.mark.parametrize(("asked", "rule"), NONSENSE)
def test_nonsense_is_refused_with_a_rule(asked, rule):
    tile, data_type, options = asked
    if rule is None:
        assert ts.plan(tile, data_type, **options).best
        return
    with pytest.raises(ts.RuleError) as refused:
        _ = ts.plan(tile, data_type, **options).best
    assert rule in {each.rule for each in refused.value.violations}
    assert all(each.fix for each in refused.value.violations)


@pytest.mark.parametrize("copy", ["tma", "cp.async"])
def test_a_refused_store_does_not_send_you_in_circles(copy):
    with pytest.raises(ts.PlanError) as refused:
        ts.plan((64, 64), "bf16", arch="sm_80", direction="store", copy=copy)
    assert not any("copy=" in each.fix for each in refused.value.violations)


def test_the_map_of_a_plan_is_built_from_the_tile_shape_alone():
    best = ts.plan((64, 64), "tf32").best
    assert map_arguments(best.problem, best.layout, best.boxes, (64, 64), None)["dims"] == (64, 64)


def test_a_majorness_that_ldmatrix_does_not_read_is_refused_once_whatever_the_swizzle():
    with pytest.raises(ts.PlanError) as refused:
        _ = ts.plan((64, 64), "u8", consumer="ldmatrix", major="MN").best
    (said,) = refused.value.violations
    assert said.fix.startswith('Use major="K"')
    assert ts.plan((64, 64), "u8", consumer="ldmatrix", **said.change).best.swizzle == "64B"


def test_a_swizzle_that_ldmatrix_does_not_read_names_others():
    report = ts.plan((64, 64), "bf16", consumer="ldmatrix", major="MN", arch="sm_100", swizzle="128B_ATOM_32B")
    assert {said.fix for refused in report.refused for said in refused.violations} == {
        "Use swizzle 128B, 64B, 32B or none."
    }


@pytest.mark.parametrize("tile", [(64, 64), (128, 64), (256, 128)])
def test_a_pipeline_and_a_plan_fit_the_same_stages(tile):
    fit = max(stages for stages in range(1, 30) if ts.plan(tile, "bf16", stages=stages).candidates)
    best = ts.plan(tile, "bf16").best
    assert ts.simulate(ts.plan_pipeline(best, stages=fit)).verdict == "proven"
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_pipeline(best, stages=fit + 1)
    assert refused.value.violations[0].fix.startswith(f"Use at most {fit} stage{'s' * (fit > 1)}, ")


def test_tiles_of_which_not_one_stage_fits_are_told_to_be_smaller():
    best = ts.plan((256, 128), "f32", consumer="ldmatrix").best
    with pytest.raises(ts.PlanError) as refused:
        ts.plan_pipeline([best, best], stages=1)
    assert refused.value.violations[0].fix == "Use smaller tiles."
