"""The walk of a convolution over its input: corners, traversal strides, and the offsets of each filter tap.

For a filter of R x S taps, padding p, dilation e and stride t, the base pixel of output (p, q) is the
top left corner of the filter; the corners bound where it may stand, the offsets pick the tap:

    lower = -pad          upper = pad - (filter - 1) * dilation          offset of tap r = r * dilation

     lower ┌ ─ ─ ─ ─ ─ ─ ─ ┐
           │ ┌ image ────┐ │        the walk over W and H visits every base position,
           │ │ ·  ·  ·   │ │        element_strides apart, and adds the tap's offset
           │ └───────────┘ │
           └ ─ ─ ─ ─ ─ ─ ─ ┘ upper
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import TensorMapError
from tilescope.reading import integer, integers
from tilescope.tensor_map.checking import map_rule

LARGEST_FILTER = 256  # the offsets of a rank-4 map are below 256
_IMAGE = {"n": 1, "h": 16, "w": 16, "c": 64, "data_type": "f16", "channels_per_pixel": 64, "pixels_per_column": 64}
extents = map_rule(
    "convolution-extents",
    "Extents, strides and dilations of a convolution are at least 1, paddings at least 0; the filter fits the padded image.",
    source="the arithmetic of a convolution",
    subjects=("convolution",),
    passing=_IMAGE | {"r": 3, "s": 3, "pad": 1},
    failing=_IMAGE | {"r": 3, "s": 3, "stride": 0},
)


class Walk(NamedTuple):
    """The part of an im2col map that the convolution decides, and what a kernel needs beside it."""

    arguments: dict[str, Any]
    offsets: tuple[tuple[tuple[int, int], ...], ...]
    output_shape: tuple[int, int, int]
    stride: tuple[int, int]


def walk_of(
    image: tuple[int, int, int, int],
    filter_shape: tuple[int, int],
    pad: Any,
    stride: Any,
    dilation: Any,
    data_type: DataType,
) -> Walk:
    """The walk over an NHWC image; pairs are (height, width).

    >>> walk = walk_of((1, 10, 10, 64), (3, 3), 0, 1, 1, DataType.named("f16"))
    >>> walk.arguments["lower_corner"], walk.arguments["upper_corner"], walk.output_shape
    ((0, 0), (-2, -2), (1, 8, 8))
    """
    n, h, w, c = (_positive(name, extent) for name, extent in zip("nhwc", image, strict=True))
    taps = _positive("r", filter_shape[0], LARGEST_FILTER), _positive("s", filter_shape[1], LARGEST_FILTER)
    pads, steps, spread = _pair("pad", pad, 0), _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    lower = tuple(-each for each in pads)
    upper = tuple(each - (tap - 1) * gap for each, tap, gap in zip(pads, taps, spread, strict=True))
    room = [size + high - low for size, low, high in zip((h, w), lower, upper, strict=True)]
    if min(room) < 1:
        raise TensorMapError(
            [
                extents.violation(
                    "pad",
                    f"a {taps[0]} x {taps[1]} filter on a {h} x {w} image with padding {pads}",
                    "the filter fits the padded image",
                    "Use a larger padding, or a smaller filter or dilation.",
                    None,
                    {"filter": taps, "image": (h, w), "pad": pads},
                )
            ]
        )
    pixel_bytes = c * data_type.bits // 8
    arguments = {
        "dims": (c, w, h, n),
        "strides_bytes": (pixel_bytes, w * pixel_bytes, h * w * pixel_bytes),
        "lower_corner": lower[::-1],
        "upper_corner": upper[::-1],
        "element_strides": (1, *steps[::-1], 1),
    }
    p, q = ((free - 1) // step + 1 for free, step in zip(room, steps, strict=True))
    offsets = tuple(tuple((s * spread[1], r * spread[0]) for s in range(taps[1])) for r in range(taps[0]))
    return Walk(arguments, offsets, (n, p, q), steps)


def _pair(argument: str, given: Any, least: int) -> tuple[int, int]:
    both = integers(argument, given if isinstance(given, list | tuple) else (given, given))
    if len(both) != 2 or min(both) < least:
        raise TensorMapError(
            [
                extents.violation(
                    argument,
                    f"{argument} = {given}",
                    f"one or two integers of at least {least}",
                    f"Use {max(least, 1)}, or two numbers: (height, width).",
                    None,
                    {argument: both},
                )
            ]
        )
    return both[0], both[1]


def _positive(argument: str, given: Any, most: int | None = None) -> int:
    number = integer(argument, given)
    if number >= 1 and (most is None or number <= most):
        return number
    limit, fix = ("at least 1", "Use 1.") if number < 1 else (f"offsets reach {most} taps", "Split the filter.")
    raise TensorMapError([extents.violation(argument, f"{argument} = {number}", limit, fix, None, {argument: number})])
