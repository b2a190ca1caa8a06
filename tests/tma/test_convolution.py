"""im2col copies against a convolution's gather in plain numpy."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tilescope as ts

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def gathered(image, tap, output_shape, pad, stride, dilation):
    """(output pixels, channels): what filter tap (r, s) multiplies, zero in the padding."""
    _, h, w, c = image.shape
    rows = []
    for index in range(np.prod(output_shape)):
        picture, p, q = np.unravel_index(index, output_shape)
        y = p * stride[0] - pad[0] + tap[0] * dilation[0]
        x = q * stride[1] - pad[1] + tap[1] * dilation[1]
        inside = 0 <= y < h and 0 <= x < w
        rows.append(image[picture, y, x] if inside else np.zeros(c, image.dtype))
    return np.array(rows)


@settings(max_examples=80)
@given(
    n=st.integers(1, 3), h=st.integers(1, 7), w=st.integers(1, 7), taps=PAIRS, pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    stride=PAIRS, dilation=PAIRS, pixels=st.integers(1, 24), swizzle=st.sampled_from(["none", "32B", "64B", "128B"]),
)  # fmt: skip
def test_im2col_brings_what_each_filter_tap_multiplies(n, h, w, taps, pad, stride, dilation, pixels, swizzle):
    reach = [(tap - 1) * gap for tap, gap in zip(taps, dilation, strict=True)]
    assume(h + 2 * pad[0] > reach[0])
    assume(w + 2 * pad[1] > reach[1])
    channels = 32
    image = np.random.default_rng(0).integers(0, 1 << 16, (n, h, w, channels), dtype=np.uint16)
    wide = {"32B": 16, "64B": 32}.get(swizzle, 32)
    convolution = ts.Im2colMap.for_convolution(
        n, h, w, channels, *taps, pad, stride, dilation, data_type="u16", channels_per_pixel=wide, pixels_per_column=pixels,
        swizzle=swizzle,
    )  # fmt: skip
    a = convolution.tensor_map
    wanted = [
        ((h + 2 * pad[0] - reach[0] - 1) // stride[0]) + 1,
        ((w + 2 * pad[1] - reach[1] - 1) // stride[1]) + 1,
    ]
    assert convolution.output_shape == (n, *wanted)
    for r in range(taps[0]):
        for s in range(taps[1]):
            matrix = gathered(image, (r, s), convolution.output_shape, pad, stride, dilation)
            for channel in range(0, channels, wide):
                column = []
                for first in range(0, len(matrix), pixels):
                    smem = ts.load(a, image, convolution.coords(channel, first), offsets=convolution.offsets[r][s])
                    plain = a.swizzle.unswizzle(np.pad(smem, (0, -len(smem) % 1024)))[: len(smem)]
                    rows = plain.reshape(pixels, a.pitch_bytes)[:, : wide * 2].copy().view(np.uint16)
                    column.append(rows)
                found = np.concatenate(column)
                assert np.array_equal(found[: len(matrix)], matrix[:, channel : channel + wide])
                assert not found[len(matrix) :].any()  # behind the last image
