"""The walk of a convolution over its input: corners, traversal strides, and the offsets of each filter tap.

A filter with padding p, dilation e and stride t stands on a base pixel, the corner of its taps; the corners bound where
it may stand, the offsets pick the tap. In each dimension:

    pass      walks over   lower                     upper                     step   offset of tap r
    forward   the image    -p                        p - (taps - 1) * e        t      r * e
    dgrad     the output   p - (taps - 1) * e        -p                        1      (taps - 1 - r) * e
    wgrad     the image    as forward; the pixels are summed over

     lower ┌ ─ ─ ─ ─ ─ ─ ─ ┐
           │ ┌ image ────┐ │        the walk over W and H visits every base position,
           │ │ ·  ·  ·   │ │        element_strides apart, and adds the tap's offset
           │ └───────────┘ │
           └ ─ ─ ─ ─ ─ ─ ─ ┘ upper
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, by
from tilescope.reading import integer, integers, known_name
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.copy import OFFSET_END

Pass = Literal["forward", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")
_IMAGE = {"n": 1, "h": 16, "w": 16, "c": 64, "data_type": "f16", "channels_per_pixel": 64, "pixels_per_column": 64}
extents = map_rule(
    "convolution-extents",
    "Extents, strides and dilations of a convolution are at least 1, paddings at least 0; the filter fits the padded image.",
    source="the arithmetic of a convolution",
    subjects=("convolution",),
    passing=_IMAGE | {"r": 3, "s": 3, "pad": 1},
    failing=_IMAGE | {"r": 3, "s": 3, "stride": 0},
)
_DGRAD = 'ts.tensor_map.Convolution.of((1, 8, 8, 64), (64, 3, 3), "f16", direction="dgrad", stride={stride})'
without_im2col = map_rule(
    "convolution-im2col",
    "An im2col map walks one, two or three dimensions, in even steps; the gradient of the input does so for stride 1 alone.",
    documented='PTX ISA, "Im2col mode"',
    subjects=("convolution",),
    passing=_DGRAD.format(stride=1),
    failing=_DGRAD.format(stride=2),
)


class Walk(NamedTuple):
    """The part of an im2col map that the convolution decides, and what a kernel needs beside it."""

    arguments: dict[str, Any]
    offsets: Any  # nested like the taps, outermost first; innermost the offsets of one tap, W first
    walked_shape: tuple[int, ...]  # n and the extents of the base positions, outermost first
    stride: tuple[int, ...]
    gemm: tuple[int, int, int]  # m, n, k of the product that the pass is


def walk_of(
    image: tuple[int, ...],
    filters: int,
    filter_shape: tuple[int, ...],
    pad: Any,
    stride: Any,
    dilation: Any,
    data_type: DataType,
    direction: Pass = "forward",
) -> Walk:
    """The walk over an image N x extents x C, or over the gradient of its output; extents are outermost first.

    >>> walk = walk_of((1, 10, 10, 64), 64, (3, 3), 0, 1, 1, DataType.named("f16"))
    >>> walk.arguments["lower_corner"], walk.arguments["upper_corner"], walk.walked_shape
    ((0, 0), (-2, -2), (1, 8, 8))
    """
    known_name("direction", direction, PASSES)
    rank = len(filter_shape)
    names = ("n", *"dhw"[-rank:], "c") if 1 <= rank <= 3 else ()
    if len(image) != len(names):
        raise _without(
            "image", f"an image of {len(image)} extents and a filter of {rank}",
            "an im2col map walks W, H and W, or D, H and W, between N and C", "Use NxWxC, NxHxWxC or NxDxHxWxC.",
            {"image": image, "extents": (len(image), rank)},
        )  # fmt: skip
    n, *sizes, c = (_positive(name, extent) for name, extent in zip(names, image, strict=True))
    taps = tuple(_positive(name, extent) for name, extent in zip("trs"[-rank:], filter_shape, strict=True))
    pads, steps, spread = (
        _each(name, given, least, rank)
        for name, given, least in (("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1))
    )
    reach = tuple((tap - 1) * gap for tap, gap in zip(taps, spread, strict=True))
    room = [size + 2 * each - far for size, each, far in zip(sizes, pads, reach, strict=True)]
    if min(room) < 1:
        raise _wrong(
            "pad", f"a {by(taps)} filter on an image of {by(sizes)} with padding {pads}", "the filter fits the padded image",
            "Use a larger padding, or a smaller filter or dilation.", {"filter": taps, "image": tuple(sizes), "pad": pads},
        )  # fmt: skip
    most = OFFSET_END[rank + 2] - 1
    if max(reach) > most:
        raise _wrong(
            "filter", f"taps up to {max(reach)} pixels apart", f"offsets of an im2col copy in {rank} dimensions reach {most}",
            "Split the filter.", {"reach": max(reach)},
        )  # fmt: skip
    output = tuple((free - 1) // step + 1 for free, step in zip(room, steps, strict=True))
    columns = prod(taps)
    if direction == "dgrad":
        if max(steps) > 1:
            raise _without(
                "stride", f"dgrad with stride {steps}",
                "with a stride, a pixel of the result takes only some of the taps, and which ones changes from pixel to pixel",
                f"Split the result into {by(steps)} sets of pixels, one for each remainder by the stride: each is a dgrad of stride 1 "
                "with its own taps.", {"stride": steps},
            )  # fmt: skip
        walked, extent, channels = tuple(sizes), output, _positive("filters", filters)
        lower = tuple(each - far for each, far in zip(pads, reach, strict=True))
        upper = tuple(-each for each in pads)
        gemm = n * prod(sizes), c, columns * channels
    else:
        walked, extent, channels = output, tuple(sizes), c
        lower = tuple(-each for each in pads)
        upper = tuple(each - far for each, far in zip(pads, reach, strict=True))
        pixels, filters = n * prod(output), _positive("filters", filters)
        gemm = (pixels, filters, columns * c) if direction == "forward" else (filters, columns * c, pixels)
    pixel_bytes = channels * data_type.bits // 8
    dims = (channels, *extent[::-1], n)
    arguments = {
        "dims": dims,
        "strides_bytes": tuple(pixel_bytes * prod(dims[1:axis]) for axis in range(1, len(dims))),
        "lower_corner": lower[::-1],
        "upper_corner": upper[::-1],
        "element_strides": (1, *steps[::-1], 1),
    }
    flipped = direction == "dgrad"
    return Walk(arguments, _offsets(taps, spread, flipped), (n, *walked), steps, gemm)


def tap_offsets(offsets: Any, rank: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(tap, offsets W first) of every tap, the last dimension fastest.

    >>> tap_offsets((((0, 0), (1, 0)), ((0, 1), (1, 1))), 2)[1]
    ((0, 1), (1, 0))
    """
    found: list[tuple[tuple[int, ...], Any]] = [((), offsets)]
    for _ in range(rank):
        found = [((*tap, number), inner) for tap, held in found for number, inner in enumerate(held)]
    return found


def _offsets(taps: tuple[int, ...], spread: tuple[int, ...], flipped: bool) -> Any:
    """Nested like the taps: the offsets of each, innermost dimension first."""
    nested: list[Any] = [
        tuple(
            ((count - 1 - tap) if flipped else tap) * gap for tap, count, gap in zip(index, taps, spread, strict=True)
        )[::-1]
        for index in product(*map(range, taps))
    ]
    for count in taps[:0:-1]:
        nested = [tuple(nested[first : first + count]) for first in range(0, len(nested), count)]
    return tuple(nested)


def _each(argument: str, given: Any, least: int, rank: int) -> tuple[int, ...]:
    found = integers(argument, given if isinstance(given, list | tuple) else (given,) * rank)
    found = found * rank if len(found) == 1 else found
    if len(found) != rank or min(found) < least:
        raise _wrong(
            argument, f"{argument} = {given}", f"one integer of at least {least}, or {rank}, outermost first",
            f"Use {max(least, 1)}.", {argument: found},
        )  # fmt: skip
    return found


def _positive(argument: str, given: Any) -> int:
    number = integer(argument, given)
    if number < 1:
        raise _wrong(argument, f"{argument} = {number}", "at least 1", "Use 1.", {argument: number})
    return number


def _wrong(argument: str, found: str, limit: str, fix: str, values: dict[str, Any]) -> TensorMapError:
    return TensorMapError([extents.violation(argument, found, limit, fix, **values)])


def _without(argument: str, found: str, limit: str, fix: str, values: dict[str, Any]) -> TensorMapError:
    return TensorMapError([without_im2col.violation(argument, found, limit, fix, **values)])
