"""Two maps, or two logs of maps, side by side."""

import json

import pytest

import tilescope as ts
from tilescope.tensor_map import TensorMapDiff
from tilescope.tensor_map.samples import IMAGES, MATRIX
from tilescope.tensor_map.text.json_maps import maps_in_json
from tilescope.tensor_map.text.log_difference import MapLogDiff
from tilescope.tensor_map.text.map_log import MapLog
from tilescope.tensor_map.text.pasted_source import MapSource


def named(differences):
    return [(each.name, each.one, each.other) for each in differences]


def test_equal_maps_have_no_differences():
    found = TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.TensorMap(**MATRIX))
    assert found.same
    assert (found.arguments, found.consequences, found.words) == ((), (), ())


def test_arguments_consequences_and_words():
    one = ts.TensorMap(**MATRIX)
    found = TensorMapDiff.of(one, one.with_fields(swizzle="128B", box=(32, 64), address=0x1000))
    assert named(found.arguments) == [("swizzle", "none", "128B"), ("address", "0x0", "0x1000"), ("box[0]", "64", "32")]
    assert named(found.consequences) == [
        ("smem_alignment_bytes", "128", "1024"),
        ("transaction_bytes", "8192", "4096"),
        ("box_bytes", "8192", "4096"),
    ]
    assert [each.name for each in found.words] == ["word 0", "word 1", "word 6", "word 8", "word 9"]
    assert not found.same


def test_other_kinds_and_other_ranks():
    found = TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.Im2colMap(**IMAGES))
    assert ("kind", "tensor_map", "im2col_map") in named(found.arguments)
    assert ("dims[3]", "-", "8") in named(found.arguments)
    assert ("box[1]", "64", "-") in named(found.arguments)


def test_words_need_two_measured_maps():
    found = TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.TensorMap(**MATRIX, arch="sm_100"))
    assert named(found.arguments) == [("arch", "sm_90", "sm_100")]
    assert found.words == ()
    assert named(found.consequences) == [("basis", "measured", "documented")]


def test_a_diff_survives_plain_data():
    found = TensorMapDiff.of(ts.TensorMap(**MATRIX), ts.Im2colMap(**IMAGES))
    assert ts.Value.from_dict(found.to_dict()) == found


def log_of(*boxes):
    lines = (f'{{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [{box}]}}' for box in boxes)
    return MapLog.of(MapSource.read("\n".join(lines).encode()))


def test_maps_of_one_log_only_are_counted_with_their_lines():
    found = MapLogDiff.of(log_of(16, 32, 32), log_of(16))
    assert (found.in_both, [one.lines for one in found.only_one], found.only_other) == (1, [(2, 3)], ())
    assert found.summary == "1 map in both logs, 2 only in the first: lines 2 and 3."
    found = MapLogDiff.of(log_of(16), log_of(16, 64))
    assert found.summary == "1 map in both logs, 1 only in the second: line 2."
    assert not found.same
    assert MapLogDiff.of(log_of(16, 32), log_of(32, 16)).same


def test_records_of_a_json_log_that_are_no_maps_are_passed_over():
    given = {"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [16]}
    found = maps_in_json(f'{{"message": "start"}}\n{json.dumps(given)}\n[1]')
    assert [(asked.given, asked.lines) for asked in found.maps] == [(given, (2,))]
    with pytest.raises(ts.RuleError) as refused:
        maps_in_json("[1]")
    assert refused.value.violations[0].rule == "argument-json"
