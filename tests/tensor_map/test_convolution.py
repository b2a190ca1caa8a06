"""Im2col maps of convolutions, held against a convolution that is written out."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.tensor_map.map_kinds import Convolution


def convolution(*shape, **options):
    return ts.Im2colMap.for_convolution(
        *shape, **{"data_type": "f16", "channels_per_pixel": 64, "pixels_per_column": 64} | options
    )


@pytest.mark.parametrize(
    ("taps", "pad", "dilation", "lower", "upper"),
    [
        (3, 1, 1, -1, -1),
        (3, 0, 1, 0, -2),
        (1, 0, 1, 0, 0),
        (5, 2, 1, -2, -2),
        (3, 2, 2, -2, -2),
        (3, 0, 3, 0, -6),
        (7, 3, 1, -3, -3),
    ],
)
def test_corners(taps, pad, dilation, lower, upper):
    found = convolution(2, 16, 16, 64, taps, taps, pad=pad, dilation=dilation).tensor_map
    assert (found.lower_corner, found.upper_corner) == ((lower, lower), (upper, upper))


def test_height_and_width_keep_apart():
    found = convolution(2, 20, 30, 64, 5, 3, pad=(2, 1), stride=(2, 3), dilation=(1, 2))
    assert found.tensor_map.dims == (64, 30, 20, 2)
    assert found.tensor_map.strides_bytes == (128, 3840, 76800)
    assert found.tensor_map.element_strides == (1, 3, 2, 1)
    assert found.tensor_map.lower_corner == (-1, -2)
    assert found.tensor_map.upper_corner == (1 - 2 * 2, 2 - 4)
    assert len(found.offsets) == 5
    assert found.offsets[4][2] == (4, 4)
    assert found.output_shape == (2, 10, 10)


sizes = st.integers(1, 12)


@given(
    h=sizes,
    w=sizes,
    r=st.integers(1, 4),
    s=st.integers(1, 4),
    pad=st.integers(0, 3),
    step=st.integers(1, 3),
    gap=st.integers(1, 2),
)
def test_taps_and_coordinates_are_those_of_a_written_out_convolution(h, w, r, s, pad, step, gap):
    rows = (h + 2 * pad - (r - 1) * gap - 1) // step + 1
    columns = (w + 2 * pad - (s - 1) * gap - 1) // step + 1
    fits = h + 2 * pad >= (r - 1) * gap + 1 and w + 2 * pad >= (s - 1) * gap + 1
    make = {"pad": pad, "stride": step, "dilation": gap}
    if not fits:
        with pytest.raises(ts.TensorMapError, match="convolution"):
            convolution(2, h, w, 64, r, s, **make)
        return
    found = convolution(2, h, w, 64, r, s, **make)
    assert found.output_shape == (2, rows, columns)
    for number, (image, p, q) in enumerate(itertools.product(range(2), range(rows), range(columns))):
        channel, left, top, n = found.coords(8, number)
        assert (channel, n) == (8, image)
        for tap_r, tap_s in itertools.product(range(r), range(s)):
            right, down = found.offsets[tap_r][tap_s]
            assert top + down == p * step - pad + tap_r * gap
            assert left + right == q * step - pad + tap_s * gap


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"stride": 0}, "stride"),
        ({"pad": -1}, "pad"),
        ({"pad": (1, 2, 3)}, "pad"),
        ({"pad": "same"}, "pad"),
        ({"dilation": 1.5}, "dilation"),
        ({"dilation": 20}, "pad"),
    ],
)
def test_wrong_parameters_are_named(wrong, argument):
    with pytest.raises(ts.RuleError) as raised:
        convolution(1, 8, 8, 64, 3, 3, **wrong)
    assert raised.value.violations[0].argument.startswith(argument)


@pytest.mark.parametrize(("name", "wrong", "least"), [("stride", 0, 1), ("dilation", 0, 1), ("pad", -1, 0)])
def test_a_step_below_its_least_value_is_told_that_value_and_to_use_1(name, wrong, least):
    with pytest.raises(ts.RuleError) as raised:
        convolution(1, 8, 8, 64, 3, 3, **{name: wrong})
    (found,) = raised.value.violations
    assert (found.values["least"], found.values["usual"]) == (least, 1)
    assert convolution(1, 8, 8, 64, 3, 3, **{name: found.values["usual"]})


@pytest.mark.parametrize(
    "shape", [(0, 8, 8, 64, 3, 3), (1, 8, 8, 64, 0, 3), (1, 8, 8, 64, 3, 300), (1, 8, "8", 64, 3, 3)]
)
def test_wrong_extents_are_named(shape):
    with pytest.raises(ts.RuleError):
        convolution(*shape)


@pytest.mark.parametrize("place", range(6))
def test_an_extent_is_one_integer(place):
    shape = [1, 8, 8, 64, 3, 3]
    for wrong, rule, values in ((0, "convolution-extents", 0), ([3], "argument-type", (3,))):
        shape[place] = wrong
        with pytest.raises(ts.RuleError) as raised:
            convolution(*shape)
        (found,) = raised.value.violations
        assert (found.rule, found.values["nhwcrs"[place]]) == (rule, values)


def test_a_convolution_survives_plain_data():
    found = convolution(1, 8, 8, 64, 3, 3, pad=1)
    assert ts.Value.from_dict(found.to_dict()) == found


def test_without_more_words_a_convolution_has_no_padding_and_steps_by_one():
    image, filters = (2, 8, 8, 64), (64, 3, 3, 64)
    plain = Convolution.of(image, filters, "bf16")
    assert plain == Convolution.of(image, filters, "bf16", pad=0, stride=1, dilation=1)
    assert plain.gemm == (2 * 6 * 6, 64, 9 * 64)
    assert convolution(2, 8, 8, 64, 3, 3) == convolution(2, 8, 8, 64, 3, 3, pad=0, stride=1, dilation=1)
