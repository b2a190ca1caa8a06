"""im2col copies against a convolution's gather in plain numpy."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cli import run
from tilescope.tensor_map import Convolution

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def gathered(image, tap, output_shape, *, pad, stride, dilation):
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


@given(
    n=st.integers(1, 3),
    h=st.integers(1, 7),
    w=st.integers(1, 7),
    taps=PAIRS,
    pad=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    stride=PAIRS,
    dilation=PAIRS,
    pixels=st.integers(1, 24),
    swizzle=st.sampled_from(["none", "32B", "64B", "128B"]),
)
def test_im2col_brings_what_each_filter_tap_multiplies(*, n, h, w, taps, pad, stride, dilation, pixels, swizzle):
    reach = [(tap - 1) * gap for tap, gap in zip(taps, dilation, strict=True)]
    assume(h + 2 * pad[0] > reach[0])
    assume(w + 2 * pad[1] > reach[1])
    channels = 32
    image = np.random.default_rng(0).integers(0, 1 << 16, (n, h, w, channels), dtype=np.uint16)
    wide = {"32B": 16, "64B": 32}.get(swizzle, 32)
    convolution = ts.Im2colMap.for_convolution(
        n,
        h,
        w,
        channels,
        *taps,
        pad,
        stride,
        dilation,
        data_type="u16",
        channels_per_pixel=wide,
        pixels_per_column=pixels,
        swizzle=swizzle,
    )
    a = convolution.tensor_map
    wanted = [
        ((h + 2 * pad[0] - reach[0] - 1) // stride[0]) + 1,
        ((w + 2 * pad[1] - reach[1] - 1) // stride[1]) + 1,
    ]
    assert convolution.output_shape == (n, *wanted)
    for r in range(taps[0]):
        for s in range(taps[1]):
            matrix = gathered(image, (r, s), convolution.output_shape, pad=pad, stride=stride, dilation=dilation)
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


def written_out(image, filters, pad, stride, dilation):
    """The output of a convolution, pixel by pixel and tap by tap, in any number of dimensions."""
    taps = filters.shape[1:-1]
    sizes = image.shape[1:-1]
    shape = [
        (size + 2 * p - (tap - 1) * e - 1) // t + 1
        for size, tap, p, t, e in zip(sizes, taps, pad, stride, dilation, strict=True)
    ]
    output = np.zeros((image.shape[0], *shape, filters.shape[0]), np.int64)
    for pixel in np.ndindex(*shape):
        for tap in np.ndindex(*taps):
            at = [x * t - p + r * e for x, r, p, t, e in zip(pixel, tap, pad, stride, dilation, strict=True)]
            if all(0 <= place < size for place, size in zip(at, sizes, strict=True)):
                output[(slice(None), *pixel)] += image[(slice(None), *at)] @ filters[(slice(None), *tap)].T
    return output


def column(convolution, tensor, tap_offsets):
    """(pixels, channels): what the map's copies bring for a tap, all columns and slices of channels together."""
    a = convolution.tensor_map
    pixels = int(np.prod(convolution.output_shape))
    slices = []
    for channel in range(0, a.dims[0], a.channels_per_pixel):
        rows = []
        for first in range(0, pixels, a.pixels_per_column):
            smem = ts.load(a, tensor, convolution.coords(channel, first), offsets=tap_offsets)
            plain = a.swizzle.unswizzle(np.pad(smem, (0, -len(smem) % 1024)))[: len(smem)]
            rows.append(
                plain.reshape(a.pixels_per_column, a.pitch_bytes)[:, : a.channels_per_pixel * 2].copy().view(np.int16)
            )
        slices.append(np.concatenate(rows)[:pixels])
    return np.concatenate(slices, axis=1).astype(np.int64)


CASES = [
    ((2, 9, 16), (32, 3), (1,), (1,), (1,)),
    ((1, 11, 16), (16, 3), (2,), (2,), (2,)),
    ((2, 5, 6, 16), (32, 3, 2), (1, 0), (1, 1), (1, 1)),
    ((1, 7, 5, 32), (16, 3, 3), (2, 1), (1, 1), (2, 1)),
    ((1, 7, 6, 16), (16, 2, 3), (1, 1), (2, 3), (1, 1)),
    ((1, 3, 4, 5, 16), (16, 2, 3, 3), (1, 1, 0), (1, 1, 1), (1, 1, 1)),
    ((1, 4, 5, 4, 16), (32, 2, 2, 3), (0, 1, 1), (2, 1, 2), (1, 2, 1)),
    ((2, 4, 4, 16), (16, 1, 1), (0, 0), (1, 1), (1, 1)),
]


@pytest.mark.parametrize(("image_shape", "filter_shape", "pad", "stride", "dilation"), CASES)
def test_every_pass_through_the_map_is_the_convolution(image_shape, filter_shape, pad, stride, dilation):
    """Forward, wgrad and dgrad as products of what TMA brings, held against the convolution and its derivatives."""
    noise = np.random.default_rng(0)
    image = noise.integers(-4, 5, image_shape).astype(np.int16)
    filters = noise.integers(-4, 5, (*filter_shape, image_shape[-1])).astype(np.int16)
    output = written_out(image.astype(np.int64), filters.astype(np.int64), pad, stride, dilation)
    options = {"pad": pad, "stride": stride, "dilation": dilation, "pixels_per_column": 24}

    def convolution(direction):
        return Convolution.of(image_shape, filters.shape, "u16", direction=direction, **options)

    forward = convolution("forward")
    assert forward.output_shape == output.shape[:-1]
    brought = {tap: column(forward, image, offsets) for tap, offsets in forward.taps}
    found = sum(brought[tap] @ filters[(slice(None), *tap)].T.astype(np.int64) for tap in brought)
    assert np.array_equal(found.reshape(output.shape), output)
    assert forward.gemm == (found.shape[0], filter_shape[0], len(brought) * image_shape[-1])

    gradient = noise.integers(-4, 5, output.shape).astype(np.int16)
    wgrad = convolution("wgrad")
    assert wgrad.tensor_map == forward.tensor_map
    flat = gradient.reshape(-1, filter_shape[0]).astype(np.int64)
    for tap, pixels in brought.items():
        moved = filters.astype(np.int64)
        moved[(slice(None), *tap)] += 1  # the derivative of a linear function is a difference
        change = written_out(image.astype(np.int64), moved, pad, stride, dilation) - output
        assert (flat.T @ pixels).sum() == (change * gradient).sum()
    assert wgrad.gemm == (filter_shape[0], len(brought) * image_shape[-1], len(flat))

    if max(stride) > 1:
        with pytest.raises(ts.TensorMapError, match="convolution-im2col"):
            convolution("dgrad")
        return
    dgrad = convolution("dgrad")
    assert dgrad.output_shape == image_shape[:-1]
    found = sum(
        column(dgrad, gradient, offsets) @ filters[(slice(None), *tap)].astype(np.int64) for tap, offsets in dgrad.taps
    ).reshape(image_shape)
    for place in noise.choice(image.size, 12, replace=False):
        one = np.zeros(image.size, np.int64)
        one[place] = 1
        effect = written_out(one.reshape(image_shape), filters.astype(np.int64), pad, stride, dilation)
        assert found.reshape(-1)[place] == (effect * gradient).sum()


def test_the_command_makes_the_map_or_says_why_not(capsys):
    assert run(["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1", "--json"]) == 0
    found = ts.Value.from_dict(json.loads(capsys.readouterr().out))
    assert found == Convolution.of((8, 56, 56, 64), (128, 3, 3), "bf16", pad=1)
    assert run(["conv", "8x56x56x64", "128x3x3", "bf16", "--pad", "1,1", "--direction", "dgrad"]) == 0
    assert "the taps run backwards" in " ".join(capsys.readouterr().out.split())
    assert run(["conv", "8x56x56x64", "128x3x3", "bf16", "--stride", "2", "--direction", "dgrad"]) == 1
    assert "stride 1" in " ".join(capsys.readouterr().out.split())
    assert run(["conv", "2x8x8x8x64", "64x40x3x3", "bf16", "--pad", "20,1,1"]) == 1
    assert "reach 31" in " ".join(capsys.readouterr().out.split())
    assert run(["conv", "8x56x56x3", "64x7x7", "bf16", "--pad", "3", "--stride", "2"]) == 1  # 6 bytes of channels
    assert "stride-alignment" in capsys.readouterr().out
    for hostile in (
        ["8x8", "8", "bf16"],
        ["-1x8x8", "8x3", "bf16"],
        ["8x8x8x8", "8x0x3", "bf16"],
        ["8x8x64", "8x3", "quark"],
        ["8x8x64", "8x3", "bf16", "--pad", "x"],
        ["8x8x8x8x8x8x8", "8x3", "bf16"],
    ):
        assert run(["conv", *hostile]) in (1, 2)
        said = capsys.readouterr()
        assert "mistake in tilescope" not in said.err
        assert len(said.out + said.err) < 900
