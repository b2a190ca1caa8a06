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

from math import prod
from typing import Any, Literal

from tilescope.arithmetic import ceil_div
from tilescope.errors import TensorMapError
from tilescope.reading import integer, integers
from tilescope.sentence import by
from tilescope.tensor_map.checking import OFFSET_END, Check, stated

Pass = Literal["forward", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")
_CALL = 'ts.Im2colMap.for_convolution(1, 16, 16, 64, 3, 3, 1, {}, data_type="f16", channels_per_pixel=64, pixels_per_column=64)'
extents = stated(
    "convolution-extents",
    "Extents, strides and dilations of a convolution are at least 1, paddings at least 0; the filter fits the padded image.",
    source="the arithmetic of a convolution",
    subjects=("convolution",),
    passing=_CALL.format(1),
    failing=_CALL.format(0),
)
_DGRAD = 'ts.tensor_map.Convolution.of((1, 8, 8, 64), (64, 3, 3), "f16", direction="dgrad", stride={stride})'
without_im2col = stated(
    "convolution-im2col",
    "An im2col map walks one, two or three dimensions, in even steps; the gradient of the input does so for stride 1 alone.",
    documented='PTX ISA, "Im2col mode"',
    subjects=("convolution",),
    passing=_DGRAD.format(stride=1),
    failing=_DGRAD.format(stride=2),
)


def walk_of(
    image: tuple[int, ...], filters: tuple[int, ...], direction: Pass, pad: Any, stride: Any, dilation: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of the map that a convolution decides, and what it says beside them; everything outermost first."""
    count, *filter_shape = filters or (0,)
    rank = len(filter_shape)
    names = ("n", *"dhw"[-rank:], "c") if 1 <= rank <= 3 else ()
    if len(image) != len(names):
        found = f"an image of {len(image)} extents and filters of {len(filters)}"
        limit = "an image is N, one to three extents and C; filters are their count and as many extents"
        numbers = {"image": image, "extents": (len(image), rank)}
        raise _refused(
            without_im2col, "image", found, limit, "Use NxHxWxC and KxRxS, such as 8x56x56x64 and 128x3x3.", **numbers
        )
    n, *sizes, c = (_positive(name, extent) for name, extent in zip(names, image, strict=True))
    taps = tuple(_positive(name, extent) for name, extent in zip("trs"[-rank:], filter_shape, strict=True))
    pads, steps, spread = (
        _at_least(least, name, value, rank)
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
        found = f"taps up to {max(reach)} pixels apart"
        limit = f"offsets of an im2col copy in {rank} dimensions reach {most}"
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
    count, columns = _positive("filters", count), prod(taps)
    output = tuple((free - 1) // step + 1 for free, step in zip(room, steps, strict=True))
    pixels = n * prod(output)
    gemm = {
        "forward": (pixels, count, columns * c),
        "dgrad": (n * prod(sizes), c, columns * count),
        "wgrad": (count, columns * c, pixels),
    }[direction]
    walked, extent, channels = (tuple(sizes), output, count) if is_dgrad else (output, tuple(sizes), c)
    corners = [(-padding, padding - far) for padding, far in zip(pads, reach, strict=True)]
    lower, upper = zip(*(corner[::-1] if is_dgrad else corner for corner in corners[::-1]), strict=True)
    arguments = {"dims": (channels, *extent[::-1], n), "lower_corner": lower, "upper_corner": upper}
    ahead = [[tap * gap for tap in range(count)] for count, gap in zip(taps, spread, strict=True)]
    offsets = _nested([far[::-1] if is_dgrad else far for far in ahead])
    facts = {"offsets": offsets, "output_shape": (n, *walked), "stride": steps, "gemm": gemm}
    return arguments | {"element_strides": (1, *steps[::-1], 1)}, facts


def _nested(ahead: list[list[int]], *outer: int) -> Any:
    """The offsets of every tap, nested like the taps, innermost dimension first: those of each dimension, combined."""
    return tuple(_nested(ahead[1:], offset, *outer) for offset in ahead[0]) if ahead else outer


def _positive(argument: str, value: Any) -> int:
    """One integer of at least 1."""
    number = integer(argument, value)
    if number < 1:
        found, fix = f"{argument} = {number}", f"Use {argument} = 1."
        raise _refused(extents, argument, found, "at least 1", fix, **{argument: number})
    return number


def _at_least(least: int, argument: str, value: Any, rank: int) -> tuple[int, ...]:
    """`rank` integers of at least `least`; one stands for all of them."""
    numbers = integers(argument, value) if isinstance(value, list | tuple) else (integer(argument, value),)
    numbers = numbers * rank if len(numbers) == 1 else numbers
    if len(numbers) != rank or min(numbers) < least:
        limit = f"one integer of at least {least}, or a tuple of {rank}, outermost first"
        fix = f"Use {argument} = {max(least, 1)}."
        raise _refused(extents, argument, f"{argument} = {value}", limit, fix, **{argument: numbers})
    return numbers


def _refused(rule: Check, argument: str, found: str, limit: str, fix: str, **values: Any) -> TensorMapError:
    return TensorMapError([rule.told(argument=argument, found=found, limit=limit, fix=fix, **values)])
