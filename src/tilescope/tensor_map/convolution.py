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

from itertools import accumulate
from math import prod
from operator import mul
from typing import Any, Literal, NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, by, ceil_div
from tilescope.reading import integer, integers, known_name
from tilescope.rule import Rule
from tilescope.tensor_map.checking import OFFSET_END, map_rule

Pass = Literal["forward", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")
_CALL = 'ts.Im2colMap.for_convolution(1, 16, 16, 64, 3, 3, 1, {}, data_type="f16", channels_per_pixel=64, pixels_per_column=64)'
extents = map_rule(
    "convolution-extents",
    "Extents, strides and dilations of a convolution are at least 1, paddings at least 0; the filter fits the padded image.",
    source="the arithmetic of a convolution",
    subjects=("convolution",),
    passing=_CALL.format(1),
    failing=_CALL.format(0),
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
        found = f"an image of {len(image)} extents and a filter of {rank}"
        limit = "an im2col map walks W, H and W, or D, H and W, between N and C"
        numbers = {"image": image, "extents": (len(image), rank)}
        raise _refused(without_im2col, "image", found, limit, "Use NxWxC, NxHxWxC or NxDxHxWxC.", **numbers)
    n, *sizes, c = (_positive(name, extent) for name, extent in zip(names, image, strict=True))
    taps = tuple(_positive(name, extent) for name, extent in zip("trs"[-rank:], filter_shape, strict=True))
    pads, steps, spread = (
        _of_each_dimension(name, value, least, rank)
        for name, value, least in (("pad", pad, 0), ("stride", stride, 1), ("dilation", dilation, 1))
    )
    reach = [(tap - 1) * gap for tap, gap in zip(taps, spread, strict=True)]
    room = [size + 2 * padding - far for size, padding, far in zip(sizes, pads, reach, strict=True)]
    if min(room) < 1:
        found = f"a {by(taps)} filter on an image of {by(sizes)} with padding {pads}"
        fix = f"Use pad = {max(pads) + ceil_div(1 - min(room), 2)}, or a smaller filter or dilation."
        numbers = {"filter": taps, "image": tuple(sizes), "pad": pads}
        raise _refused(extents, "pad", found, "the filter fits the padded image", fix, **numbers)
    most = OFFSET_END[rank + 2] - 1
    if max(reach) > most:
        found, limit = (
            f"taps up to {max(reach)} pixels apart",
            f"offsets of an im2col copy in {rank} dimensions reach {most}",
        )
        fix = f"Split the filter into parts of at most {most + 1} pixels."
        raise _refused(extents, "filter", found, limit, fix, reach=max(reach), most=most)
    is_dgrad = direction == "dgrad"
    if is_dgrad and max(steps) > 1:
        limit = "with a stride, a pixel of the result takes only some of the taps, and which ones changes from pixel to pixel"
        fix = (
            f"Split the result into {by(steps)} sets of pixels, one for each remainder by the stride: each is a dgrad of stride 1 "
            "with its own taps."
        )
        raise _refused(without_im2col, "stride", f"dgrad with stride {steps}", limit, fix, stride=steps)
    filters, columns = _positive("filters", filters), prod(taps)
    output = tuple((free - 1) // step + 1 for free, step in zip(room, steps, strict=True))
    pixels = n * prod(output)
    gemm = {
        "forward": (pixels, filters, columns * c),
        "dgrad": (n * prod(sizes), c, columns * filters),
        "wgrad": (filters, columns * c, pixels),
    }[direction]
    walked, extent, channels = (tuple(sizes), output, filters) if is_dgrad else (output, tuple(sizes), c)
    outer, inner = (-padding for padding in pads), (padding - far for padding, far in zip(pads, reach, strict=True))
    lower, upper = (tuple(corner)[::-1] for corner in ((inner, outer) if is_dgrad else (outer, inner)))
    dims = (channels, *extent[::-1], n)
    strides = accumulate((channels * data_type.bits // 8, *dims[1:-1]), mul)
    arguments = {
        "dims": dims,
        "strides_bytes": tuple(strides),
        "lower_corner": lower,
        "upper_corner": upper,
        "element_strides": (1, *steps[::-1], 1),
    }
    ahead = [[tap * gap for tap in range(count)] for count, gap in zip(taps, spread, strict=True)]
    return Walk(arguments, _nested([far[::-1] if is_dgrad else far for far in ahead]), (n, *walked), steps, gemm)


def tap_offsets(offsets: Any, rank: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(tap, offsets W first) of every tap, the last dimension fastest.

    >>> tap_offsets((((0, 0), (1, 0)), ((0, 1), (1, 1))), 2)[1]
    ((0, 1), (1, 0))
    """
    taps: list[tuple[tuple[int, ...], Any]] = [((), offsets)]
    for _ in range(rank):
        taps = [((*tap, number), inner) for tap, held in taps for number, inner in enumerate(held)]
    return taps


def _nested(ahead: list[list[int]], *outer: int) -> Any:
    """The offsets of every tap, nested like the taps, innermost dimension first: those of each dimension, combined."""
    return tuple(_nested(ahead[1:], offset, *outer) for offset in ahead[0]) if ahead else outer


def _of_each_dimension(argument: str, value: Any, least: int, rank: int) -> tuple[int, ...]:
    numbers = integers(argument, value if isinstance(value, list | tuple) else (value,))
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank or min(numbers) < least:
        limit = f"one integer of at least {least}, or {rank}, outermost first"
        found, fix = f"{argument} = {value}", f"Use {max(least, 1)}."
        raise _refused(extents, argument, found, limit, fix, **{argument: numbers})
    return numbers


def _positive(argument: str, value: Any) -> int:
    number = integer(argument, value)
    if number < 1:
        raise _refused(extents, argument, f"{argument} = {number}", "at least 1", "Use 1.", **{argument: number})
    return number


def _refused(rule: Rule, argument: str, found: str, limit: str, fix: str, **values: Any) -> TensorMapError:
    return TensorMapError([rule.violation(argument, found, limit, fix, **values)])
