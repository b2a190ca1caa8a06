"""Two maps side by side."""

import tilescope as ts
from tilescope.tensor_map import TensorMapDiff
from tilescope.tensor_map.samples import IMAGES, MATRIX


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
