"""tensormap.replace and cuTensorMapReplaceAddress: what they change, and what they cannot."""

import pytest

import tilescope as ts
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.replacement import KEPT_VALUES, REPLACE_FIELDS
from tilescope.tensor_map.samples import IMAGES, MATRIX, SIX_BITS, WIDE


def refusals(tensor_map, **fields):
    with pytest.raises(ts.TensorMapError) as raised:
        tensor_map.replace(**fields)
    return [each.rule for each in raised.value.violations]


def test_each_field_of_a_tiled_map():
    before = ts.TensorMap(**MATRIX)
    for fields in (
        {"address": 0x2000},
        {"box": (32, 8)},
        {"dims": (512, 256), "strides_bytes": (1024,)},
        {"element_strides": (1, 2)},
        {"data_type": "f16"},
        {"swizzle": "128B"},
        {"oob_fill": "nan"},
        {
            "dims": (64, 8, 2, 2),
            "strides_bytes": (128, 1024, 4096),
            "box": (64, 8, 1, 1),
            "element_strides": (1, 1, 1, 1),
        },
    ):
        assert before.replace(**fields) == before.with_fields(**fields)


def test_the_result_is_checked_like_any_map():
    assert refusals(ts.TensorMap(**MATRIX), address=0x2008) == ["address-alignment"]
    assert refusals(ts.TensorMap(**MATRIX), box=(128, 64), swizzle="128B") == ["swizzle-span"]
    assert refusals(ts.TensorMap(**SIX_BITS | {"swizzle": "none"}), address=16) == ["address-alignment"]


def test_what_cannot_be_replaced():
    assert refusals(ts.TensorMap(**MATRIX), l2_promotion="128B") == ["replace-field"]
    assert refusals(ts.TensorMap(**MATRIX), arch="sm_100") == ["replace-field"]
    assert refusals(ts.TensorMap(**MATRIX), dims=(1 << 32, 4096)) == ["replace-field"]
    assert refusals(ts.TensorMap(**MATRIX), boxes=(64, 64)) == ["unknown-name"]
    assert ts.TensorMap(**MATRIX).replace(dims=((1 << 32) - 1, 4096)).dims[0] == (1 << 32) - 1


@pytest.mark.parametrize(("kind", "arguments"), [(ts.Im2colMap, IMAGES), (ts.Im2colWideMap, WIDE)])
def test_an_im2col_map_changes_its_address_alone(kind, arguments):
    assert kind(**arguments).replace(address=0x2000).address == 0x2000
    for name in kind.readers:
        if name != "address":
            assert refusals(kind(**arguments), **{name: arguments.get(name, 1)}) == ["replace-field"]


def test_the_fields_are_those_of_ptx():
    assert list(REPLACE_FIELDS) == [
        "global_address",
        "rank",
        "box_dim",
        "global_dim",
        "global_stride",
        "element_stride",
        "elemtype",
        "interleave_layout",
        "swizzle_mode",
        "swizzle_atomicity",
        "fill_mode",
    ]
    assert {name: row.ordinals for name, row in REPLACE_FIELDS.items() if row.ordinals} == {
        "box_dim": 5,
        "global_dim": 5,
        "global_stride": 4,
        "element_stride": 5,
    }
    assert {name for name, row in REPLACE_FIELDS.items() if row.width == "b64"} == {"global_address", "global_stride"}
    modes = REPLACE_FIELDS["swizzle_mode"].value
    for row in SWIZZLE.values():
        assert row.ptx_mode is None or f"{row.ptx_mode} " in modes


def test_entries_and_kept_values_are_those_of_ptx():
    """PTX ISA, "tensormap.replace": fields with an ordinal, and the values that a map can hold."""
    ordinals = {field.ptx: field.ordinals for field in REPLACE_FIELDS.values()}
    with_ordinal = {"box_dim": 5, "global_dim": 5, "global_stride": 4, "element_stride": 5}
    assert {name: count for name, count in ordinals.items() if count} == with_ordinal
    assert {name: (kept.least, kept.most) for name, kept in KEPT_VALUES.items() if name != "global_address"} == {
        "global_stride": (0, 2**40 - 16),
        "box_dim": (1, 256),
        "element_stride": (1, 8),
    }
    assert [KEPT_VALUES["box_dim"].nearest(value) for value in (0, 1, 256, 257)] == [1, 1, 256, 256]
