"""Copies that the chip refuses although the map was accepted."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.tensor_map import REDUCTIONS, Copy, MapArguments, broken_by, require_legal
from tilescope.tensor_map.samples import BYTES, IMAGES, MATRIX, PADDED, SLICES, WIDE

BF16 = ts.TensorMap(**MATRIX)


def rules(*arguments, **options):
    return [each.rule for each in broken_by(Copy(*arguments, **options))]


@pytest.mark.parametrize("address", [0, 128, 1024, 128 * 999])
def test_shared_addresses_are_multiples_of_128(address):
    assert rules(BF16, "load", (0, 0), smem_address=address) == []
    for beside in (address + 16, address + 64, address + 127):
        assert rules(BF16, "load", (0, 0), smem_address=beside) == ["smem-address"]


def test_a_shared_address_off_128_has_an_aligned_one_on_either_side():
    (found,) = broken_by(Copy(BF16, "load", (0, 0), smem_address=0x4C0))
    assert (found.values["below"], found.values["above"]) == (0x480, 0x500)
    assert found.change == {"smem_address": 0x480}


@pytest.mark.parametrize(("data_type", "step"), [("u8", 16), ("bf16", 8), ("f32", 4), ("f64", 2)])
def test_the_inner_coordinate_lands_on_16_bytes(data_type, step):
    tensor_map = ts.TensorMap(data_type, (4096, 64), (32768,), (64, 8))
    for direction in ("load", "store"):
        assert rules(tensor_map, direction, (step * 5, 0)) == []
        assert rules(tensor_map, direction, (step * 5 + step // 2, 0)) == ["inner-coordinate"]
    assert rules(tensor_map, "load", (-step, 0)) == []
    assert rules(tensor_map, "load", (-step + 1, 0)) == ["inner-coordinate"]


def test_the_inner_coordinate_has_an_aligned_one_on_either_side_and_the_others_stay():
    (found,) = broken_by(Copy(BF16, "load", (12, 5)))
    assert (found.values["elements"], found.values["inner_bytes"]) == (12, 24)
    assert found.values["around"] == (8, 16)
    assert found.change == {"coords": (8, 5)}


def test_interleaved_coordinates_are_pixels():
    assert rules(ts.TensorMap(**SLICES), "load", (1, 1, 1)) == []


def test_stores_and_reductions_start_inside():
    assert rules(BF16, "load", (-8, -1)) == []
    assert rules(BF16, "store", (-8, -1)) == ["store-coords", "store-coords"]
    assert rules(BF16, "reduce", (0, -1), reduce="add") == ["store-coords"]


def test_the_measured_reductions_and_no_others():
    seen = {
        "add": "u32 s32 u64 f16 f32 f64 bf16 f32.ftz tf32 tf32.ftz",
        **dict.fromkeys(("min", "max"), "u32 s32 u64 s64 f16 bf16"),
        **dict.fromkeys(("inc", "dec"), "u32"),
        **dict.fromkeys(("and", "or", "xor"), "u32 s32 u64"),
    }
    assert {op: set(names) for op, names in REDUCTIONS.items()} == {
        op: {ts.DataType.named(name).name for name in names.split()} for op, names in seen.items()
    }
    for name in ("uint8", "int64", "tfloat32"):
        tensor_map = ts.TensorMap(name, (4096, 64), (32768,), (64, 8))
        for op, taken in REDUCTIONS.items():
            assert rules(tensor_map, "reduce", (0, 0), reduce=op) == ([] if name in taken else ["reduce-type"])


FLIP = MATRIX | {"dims": (64, 8), "strides_bytes": (128,), "box": (64, 8), "arch": "sm_100"}


def test_the_mode_that_flips_halves_is_loaded_and_never_stored():
    """PTX ISA, "cp.async.bulk.tensor": its copy direction is from global to shared memory."""
    flipping = ts.TensorMap(**FLIP, swizzle="128B_ATOM_32B_FLIP_8B")
    plain = ts.TensorMap(**FLIP, swizzle="128B_ATOM_32B")
    memory = np.zeros(1024, np.uint8)
    smem = ts.load(flipping, memory, (0, 0))
    ts.store(plain, smem, memory, (0, 0))
    for refused in (
        lambda: ts.store(flipping, smem, memory, (0, 0)),
        lambda: ts.store(flipping, smem, memory, (0, 0), reduce="add"),
        lambda: ts.trace(flipping, (0, 0), operation="store"),
        lambda: ts.scatter4(flipping.with_fields(box=(64, 1)), smem, memory, 0, (0, 1, 2, 3)),
    ):
        with pytest.raises(ts.RuleError) as raised:
            refused()
        assert [each.rule for each in raised.value.violations] == ["flip-store"]
    assert ts.gather4(flipping.with_fields(box=(64, 1)), memory, 0, (0, 1, 2, 3)).size
    assert ts.RULES["flip-store"].basis == "documented"


def test_no_plan_stores_through_the_mode_that_flips_halves():
    options = {"direction": "store", "consumer": "st.b64 rows", "arch": "sm_100"}
    flipping = ts.plan((64, 64), "bf16", swizzle="128B_ATOM_32B_FLIP_8B", **options)
    assert flipping.candidates == ()
    assert "flip-store" in {each.rule for refused in flipping.refused for each in refused.violations}
    assert ts.plan((64, 64), "bf16", swizzle="128B_ATOM_32B", **options).candidates


def test_a_reduction_that_does_not_exist_is_an_unknown_name():
    assert rules(BF16, "reduce", (0, 0), reduce="mul") == ["unknown-name"]
    assert rules(BF16, "reduce", (0, 0)) == ["unknown-name"]


def test_padded_packed_types():
    padded = ts.TensorMap(**PADDED)
    assert rules(padded, "load", (128, 0)) == []
    assert rules(padded, "load", (64, 0)) == ["inner-coordinate"]
    assert rules(padded, "store", (128, 0)) == ["packed-store"]
    assert rules(padded, "reduce", (128, 0), reduce="add") == ["reduce-type"]


def test_gather_and_scatter(wording):
    rows = ts.TensorMap(**MATRIX | {"box": (64, 1), "arch": "sm_100"})
    assert rules(rows, "load", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows, "store", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows, "load", (0, 5), rows4=True) == ["coords-rank"]
    (found,) = broken_by(Copy(rows, "load", (0, 5, 3, 9), rows4=True))
    assert (found.argument, found.found) == ("rows", "3 rows")
    assert "(0, 1, 2, 3)" in found.fix
    (found,) = broken_by(Copy(rows, "store", (), rows4=True))
    assert found.found == "no column"
    wording("a scatter without a column", found)
    assert rules(rows.with_fields(arch="sm_120"), "store", (0, 5, 3, 9, 7), rows4=True) == ["gather-arch"]
    assert rules(rows.with_fields(arch="sm_120"), "load", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows.with_fields(arch="sm_90"), "load", (0, 5, 3, 9, 7), rows4=True) == ["gather-arch"]
    three = ts.TensorMap(**SLICES | {"arch": "sm_100"})
    assert rules(three, "load", (0, 0, 0, 0, 0), rows4=True) == ["gather-map", "gather-map"]


@pytest.mark.parametrize(("rank", "end"), [(3, 65536), (4, 256), (5, 32)])
def test_im2col_offsets_by_rank(rank, end):
    dims = (64, 32, 32, 8, 2)[:rank]
    arguments = IMAGES | {"dims": dims, "strides_bytes": (128, 4096, 131072, 1 << 20)[: rank - 1]}
    corner = (0,) * (rank - 2)
    tensor_map = ts.Im2colMap(**arguments | {"lower_corner": corner, "upper_corner": corner})
    coords = (0,) * rank
    assert rules(tensor_map, "load", coords, offsets=(end - 1,) * (rank - 2)) == []
    assert rules(tensor_map, "load", coords, offsets=(end,) * (rank - 2)) == ["offsets-range"] * (rank - 2)
    assert rules(tensor_map, "load", coords, offsets=(-1,) * (rank - 2)) == ["offsets-range"] * (rank - 2)
    assert rules(tensor_map, "load", coords, offsets=(0,) * (rank - 1)) == ["offsets-range"]


OFFSETS = {
    #                    map          direction  offsets    what is said of it
    "tiled": (BF16, "load", (1,), ("a tiled copy has none", "Leave offsets out.")),
    "two, of three": (IMAGES, "load", (1,), ("2 for an im2col map of rank 4", "Use (0, 0), for example: W, H.")),
    "three, of two": (IMAGES, "load", (1, 1, 1), ("2 for an im2col map of rank 4", "Use (0, 0), for example: W, H.")),
    "a halo alone": (WIDE, "load", (1,), ("2 for an im2col-wide map", "Use (0, 0): the halo and the offset.")),
    "stored": (IMAGES, "store", (1, 1), ("an im2col store has none: im2col_no_offs", "Leave offsets out.")),
    "stored, zero": (IMAGES, "store", (0, 0), ("an im2col store has none: im2col_no_offs", "Leave offsets out.")),
    "reduced": (IMAGES, "reduce", (0, 0), ("an im2col store has none: im2col_no_offs", "Leave offsets out.")),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_are_those_that_the_kind_of_copy_has(name):
    given, direction, offsets, said = OFFSETS[name]
    corners = {"lower_corner": (0, 0), "upper_corner": (0, 0)} if given is IMAGES else {}
    tensor_map = given if given is BF16 else MapArguments.of(given | corners).tensor_map()
    coords = (0,) * tensor_map.rank
    reduce = "add" if direction == "reduce" else None
    (found,) = broken_by(Copy(tensor_map, direction, coords, offsets=offsets, reduce=reduce))
    assert (found.rule, found.limit, found.fix) == ("offsets-range", *said)
    if direction != "load":
        assert rules(tensor_map, direction, coords, reduce=reduce) == []


def test_the_halo_of_an_im2col_wide_copy():
    wide, wide128 = ts.Im2colWideMap(**WIDE), ts.Im2colWideMap(**WIDE | {"mode": "W128"})
    assert rules(wide, "load", (0, 0, 0, 0), offsets=(511, 31)) == []
    assert rules(wide, "load", (0, 0, 0, 0), offsets=(512, 32)) == ["offsets-range"] * 2
    assert rules(wide128, "load", (0, 0, 0, 0), offsets=(32, 0)) == ["offsets-range"]


@pytest.mark.parametrize("mode", ["W", "W128"])
def test_an_im2col_wide_copy_may_start_left_of_the_bounding_box_and_not_right_of_it(mode):
    wide = ts.Im2colWideMap(**WIDE | {"mode": mode})  # from -1 to 32 - 1 - 1
    for w in (-100, -2, -1, 0, 30):
        assert rules(wide, "load", (0, w, 0, 0)) == []
    for w in (31, 32, 1000):
        assert rules(wide, "load", (0, w, 0, 0)) == ["wide-base"]
        assert rules(wide, "load", (0, w, 0, 0), offsets=(0, 31)) == ["wide-base"]  # the offset moves the box too
    assert rules(wide, "load", (0, 30, 0, 0), offsets=(0, 31)) == []
    (found,) = broken_by(Copy(wide, "load", (0, 31, 5, 7)))
    assert found.change == {"coords": (0, 30, 5, 7)}
    assert ts.RULES["wide-base"].basis == "documented"


CLUSTER = {
    "a matrix": (MATRIX, {}),
    "packed, dense": (MATRIX | {"data_type": "16u4_align8b", "dims": (4096, 64), "strides_bytes": (2048,)}, {}),
    "packed, padded": (PADDED, {}),
    "six bits": (PADDED | {"data_type": "16u6_align16b", "strides_bytes": (3072,)}, {}),
    "an atom of 32 bytes": (MATRIX | {"swizzle": "128B_ATOM_32B"}, {}),
    "an atom of 64 bytes": (MATRIX | {"swizzle": "128B_ATOM_64B"}, {}),
    "a flip": (MATRIX | {"swizzle": "128B_ATOM_32B_FLIP_8B"}, {}),
    "im2col": (IMAGES, {"coords": (0, 0, 0, 0)}),
    "im2col wide": (WIDE, {"coords": (0, 0, 0, 0)}),
    "gather4": (MATRIX | {"box": (64, 1)}, {"coords": (0, 1, 2, 3, 4), "rows4": True}),
}


@pytest.mark.parametrize("name", CLUSTER)
def test_what_reaches_the_shared_memory_of_a_cluster_by_architecture(name):
    given, options = CLUSTER[name]
    options = {"coords": (0, 0)} | options
    for arch in ("sm_100", "sm_103", "sm_110", "sm_120"):
        tensor_map = MapArguments.of(given | {"arch": arch}).tensor_map()
        assert rules(tensor_map, "load", **options) == []
        refused = arch == "sm_120" and name not in ("a matrix", "im2col")
        assert rules(tensor_map, "load", **options, cluster=True) == ["cluster-copy"] * refused
    assert ts.RULES["cluster-copy"].basis == "documented"


def test_a_transaction_is_below_a_mebibyte():
    most = BYTES | {"box": (256, 256, 15), "element_strides": (8, 1, 1)}
    assert rules(ts.TensorMap(**most), "load", (0, 0, 0)) == []
    assert rules(ts.TensorMap(**most | {"box": (256, 256, 16)}), "load", (0, 0, 0)) == ["transaction-limit"]
    assert rules(ts.TensorMap(**most | {"box": (256, 256, 16)}), "store", (0, 0, 0)) == []


def test_require_legal_raises_all_at_once():
    require_legal(Copy(BF16, "store", (0, 0)))
    with pytest.raises(ts.IllegalInstructionError) as raised:
        require_legal(Copy(BF16, "store", (4, -1, 0), smem_address=64))
    assert [each.rule for each in raised.value.violations] == [
        "smem-address",
        "coords-rank",
        "inner-coordinate",
        "store-coords",
    ]
