"""Copies that the chip refuses although the map was accepted."""

import pytest

import tilescope as ts
from tilescope.tensor_map import REDUCTIONS, Copy, broken_by, require_legal
from tilescope.tensor_map.rules.samples import BYTES, IMAGES, MATRIX, PADDED, SLICES, WIDE

BF16 = ts.TensorMap(**MATRIX)


def rules(*arguments, **options):
    return [each.rule for each in broken_by(Copy(*arguments, **options))]


@pytest.mark.parametrize("address", [0, 128, 1024, 128 * 999])
def test_shared_addresses_are_multiples_of_128(address):
    assert rules(BF16, "load", (0, 0), smem_address=address) == []
    for beside in (address + 16, address + 64, address + 127):
        assert rules(BF16, "load", (0, 0), smem_address=beside) == ["smem-address"]


@pytest.mark.parametrize(("data_type", "step"), [("u8", 16), ("bf16", 8), ("f32", 4), ("f64", 2)])
def test_the_inner_coordinate_lands_on_16_bytes(data_type, step):
    tensor_map = ts.TensorMap(data_type, (4096, 64), (32768,), (64, 8))
    for direction in ("load", "store"):
        assert rules(tensor_map, direction, (step * 5, 0)) == []
        assert rules(tensor_map, direction, (step * 5 + step // 2, 0)) == ["inner-coordinate"]
    assert rules(tensor_map, "load", (-step, 0)) == []
    assert rules(tensor_map, "load", (-step + 1, 0)) == ["inner-coordinate"]


def test_interleaved_coordinates_are_pixels():
    assert rules(ts.TensorMap(**SLICES), "load", (1, 1, 1)) == []


def test_stores_and_reductions_start_inside():
    assert rules(BF16, "load", (-8, -1)) == []
    assert rules(BF16, "store", (-8, -1)) == ["store-coords", "store-coords"]
    assert rules(BF16, "reduce", (0, -1), reduce="add") == ["store-coords"]


def test_the_measured_reductions_and_no_others():
    seen = {
        "add": "u32 s32 u64 f16 f32 f64 bf16 f32.ftz",
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


def test_a_reduction_that_does_not_exist_is_an_unknown_name():
    assert rules(BF16, "reduce", (0, 0), reduce="mul") == ["unknown-name"]
    assert rules(BF16, "reduce", (0, 0)) == ["unknown-name"]


def test_padded_packed_types():
    padded = ts.TensorMap(**PADDED)
    assert rules(padded, "load", (128, 0)) == []
    assert rules(padded, "load", (64, 0)) == ["inner-coordinate"]
    assert rules(padded, "store", (128, 0)) == ["packed-store"]
    assert rules(padded, "reduce", (128, 0), reduce="add") == ["reduce-type"]


def test_gather_and_scatter():
    rows = ts.TensorMap(**MATRIX | {"box": (64, 1), "arch": "sm_100"})
    assert rules(rows, "load", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows, "store", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows, "load", (0, 5), rows4=True) == ["coords-rank"]
    assert rules(rows.with_fields(arch="sm_120"), "store", (0, 5, 3, 9, 7), rows4=True) == ["gather-map"]
    assert rules(rows.with_fields(arch="sm_120"), "load", (0, 5, 3, 9, 7), rows4=True) == []
    assert rules(rows.with_fields(arch="sm_90"), "load", (0, 5, 3, 9, 7), rows4=True) == ["gather-map"]
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


def test_a_tiled_copy_has_no_offsets():
    assert rules(BF16, "load", (0, 0), offsets=(1,)) == ["offsets-range"]


def test_the_halo_of_an_im2col_wide_copy():
    wide, wide128 = ts.Im2colWideMap(**WIDE), ts.Im2colWideMap(**WIDE | {"mode": "W128"})
    assert rules(wide, "load", (0, 0, 0, 0), offsets=(511, 31)) == []
    assert rules(wide, "load", (0, 0, 0, 0), offsets=(512, 32)) == ["offsets-range"] * 2
    assert rules(wide128, "load", (0, 0, 0, 0), offsets=(32, 0)) == ["offsets-range"]


def test_a_transaction_is_below_a_mebibyte():
    most = BYTES | {"box": (256, 256, 15), "element_strides": (8, 1, 1)}
    assert rules(ts.TensorMap(**most), "load", (0, 0, 0)) == []
    assert rules(ts.TensorMap(**most | {"box": (256, 256, 16)}), "load", (0, 0, 0)) == ["transaction-bytes"]
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
