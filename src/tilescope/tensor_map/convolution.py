"""The walk of a convolution over its input: corners, traversal strides, and the offsets of each filter tap.

A filter with padding p, dilation e and stride t has a base pixel, the corner of its taps. The corners bound the base
pixel, and the offsets select the tap. In each dimension:

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

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from tilescope.arithmetic import ceil_div
from tilescope.errors import TensorMapError
from tilescope.reading import integer, integers
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES
from tilescope.tensor_map.limits import OFFSET_END

Pass = Literal["forward", "dgrad", "wgrad"]
PASSES: tuple[Pass, ...] = ("forward", "dgrad", "wgrad")
Offsets = tuple["Offsets", ...] | tuple[int, ...]  # of a tap, nested like the taps

_CALL = 'ts.Im2colMap.for_convolution(1, 16, 16, 64, 3, 3, 1, {}, data_type="f16", channels_per_pixel=64, pixels_per_column=64)'
CONVOLUTION_EXTENTS = rule(
    "convolution-extents",
    "Extents, strides and dilations of a convolution are at least 1, paddings at least 0; the filter fits the padded image.",
    argument="{name}",
    found="{name} = {number}",
    limit="at least 1",
    fix="Use {name} = 1.",
    source="the arithmetic of a convolution",
    basis="measured",
    subjects=("convolution",),
    architectures=TMA_ARCHITECTURES,
    passing=_CALL.format(1),
    failing=_CALL.format(0),
)
_STEPS = CONVOLUTION_EXTENTS.worded(
    found="{name} = {written}",
    limit="one integer of at least {least}, or a tuple of {rank}, outermost first",
    fix="Use {name} = {usual}.",
)
_FILTER_BEYOND_IMAGE = CONVOLUTION_EXTENTS.worded(
    argument="pad",
    found="a {filter: x } filter on an image of {image: x } with padding {pad}",
    limit="the filter fits the padded image",
    fix="Use pad = {wider}, or a smaller filter or dilation.",
)
_TAPS_APART = CONVOLUTION_EXTENTS.worded(
    argument="filter",
    found="taps up to {reach} pixels apart",
    limit="offsets of an im2col copy in {rank} dimensions reach {most}",
    fix="Split the filter into parts of at most {part} pixels.",
)

_DGRAD = 'ts.tensor_map.Convolution.of((1, 8, 8, 64), (64, 3, 3), "f16", direction="dgrad", stride={stride})'
CONVOLUTION_IM2COL = rule(
    "convolution-im2col",
    "An im2col map covers one, two or three dimensions with constant steps. The gradient of the input has constant "
    "steps only for stride 1.",
    argument="image",
    found="an image of {image_rank} extents and filters of {filters_rank}",
    limit="an image is N, one to three extents and C; filters are their count and as many extents",
    fix="Use NxHxWxC and KxRxS, such as 8x56x56x64 and 128x3x3.",
    source='PTX ISA, "Im2col mode"',
    subjects=("convolution",),
    architectures=TMA_ARCHITECTURES,
    passing=_DGRAD.format(stride=1),
    failing=_DGRAD.format(stride=2),
)
_STRIDED_DGRAD = CONVOLUTION_IM2COL.worded(
    argument="stride",
    found="dgrad with stride {stride}",
    limit="with a stride, a pixel of the result takes only some of the taps, and which ones changes from pixel to pixel",
    fix="Split the result into {stride: x } sets of pixels, one for each remainder by the stride: each is a dgrad of stride 1 "
    "with its own taps.",
)


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of a convolution: arguments of its map, and facts of a pass."""

    dims: tuple[int, ...]  # driver order, like everything up to the corners
    element_strides: tuple[int, ...]
    lower_corner: tuple[int, ...]
    upper_corner: tuple[int, ...]
    offsets: Offsets
    output_shape: tuple[int, ...]  # of the walk: n, then its extents, outermost first
    stride: tuple[int, ...]
    gemm: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution, as it was read: everything outermost first."""

    n: int
    sizes: tuple[int, ...]  # of the image
    c: int
    taps: tuple[int, ...]
    pads: tuple[int, ...]
    steps: tuple[int, ...]
    gaps: tuple[int, ...]  # between taps

    @property
    def rank(self) -> int:
        return len(self.taps)

    @property
    def reach(self) -> tuple[int, ...]:
        """From the first tap to the last."""
        return tuple((tap - 1) * gap for tap, gap in zip(self.taps, self.gaps, strict=True))

    @property
    def room(self) -> tuple[int, ...]:
        """How many places the filter has."""
        ends = zip(self.sizes, self.pads, self.reach, strict=True)
        return tuple(size + 2 * pad - reach for size, pad, reach in ends)

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(ceil_div(room, step) for room, step in zip(self.room, self.steps, strict=True))


def walk_of(
    image: tuple[int, ...], filters: tuple[int, ...], direction: Pass, *, pad: object, stride: object, dilation: object
) -> Walk:
    """The walk of a pass; everything outermost first."""
    read = _read(image, filters, pad, stride, dilation)
    if min(read.room) < 1:
        wider = max(read.pads) + ceil_div(1 - min(read.room), 2)
        refused = _FILTER_BEYOND_IMAGE.violation(filter=read.taps, image=read.sizes, pad=read.pads, wider=wider)
        raise TensorMapError([refused])
    most = OFFSET_END[read.rank + 2] - 1
    if max(read.reach) > most:
        refused = _TAPS_APART.violation(reach=max(read.reach), rank=read.rank, most=most, part=most + 1)
        raise TensorMapError([refused])
    if direction == "dgrad" and max(read.steps) > 1:
        raise TensorMapError([_STRIDED_DGRAD.violation(stride=read.steps)])
    count = _positive("filters", filters[0])
    return _backward(read, count) if direction == "dgrad" else _forward(read, count, direction)


def _read(
    image: tuple[int, ...], filters: tuple[int, ...], pad: object, stride: object, dilation: object
) -> _Convolution:
    filter_shape = filters[1:]
    rank = len(filter_shape)
    names = ("n", *"dhw"[-rank:], "c") if 1 <= rank <= 3 else ()
    if len(image) != len(names):
        refused = CONVOLUTION_IM2COL.violation(
            image=image, extents=(len(image), rank), image_rank=len(image), filters_rank=len(filters)
        )
        raise TensorMapError([refused])
    n, *sizes, c = (_positive(name, extent) for name, extent in zip(names, image, strict=True))
    return _Convolution(
        n=n,
        sizes=tuple(sizes),
        c=c,
        taps=tuple(_positive(name, extent) for name, extent in zip("trs"[-rank:], filter_shape, strict=True)),
        pads=_at_least(0, "pad", pad, rank),
        steps=_at_least(1, "stride", stride, rank),
        gaps=_at_least(1, "dilation", dilation, rank),
    )


def _forward(read: _Convolution, count: int, direction: Pass) -> Walk:
    """Walk the image: its pixels are the rows of the product; for the gradient of the filter, the sum runs over them."""
    pixels = read.n * prod(read.output)
    taken = prod(read.taps) * read.c
    reached = zip(read.taps, read.gaps, strict=True)
    ends = zip(read.pads[::-1], read.reach[::-1], strict=True)
    return Walk(
        dims=(read.c, *read.sizes[::-1], read.n),
        element_strides=(1, *read.steps[::-1], 1),
        lower_corner=tuple(-pad for pad in read.pads[::-1]),
        upper_corner=tuple(pad - reach for pad, reach in ends),
        offsets=_tap_offsets([[tap * gap for tap in range(taps)] for taps, gap in reached]),
        output_shape=(read.n, *read.output),
        stride=read.steps,
        gemm=(count, taken, pixels) if direction == "wgrad" else (pixels, count, taken),
    )


def _backward(read: _Convolution, count: int) -> Walk:
    """Walk the gradient of the output, with corners and taps the other way round."""
    reached = zip(read.taps, read.gaps, strict=True)
    ends = zip(read.pads[::-1], read.reach[::-1], strict=True)
    return Walk(
        dims=(count, *read.output[::-1], read.n),
        element_strides=(1, *read.steps[::-1], 1),
        lower_corner=tuple(pad - reach for pad, reach in ends),
        upper_corner=tuple(-pad for pad in read.pads[::-1]),
        offsets=_tap_offsets([[tap * gap for tap in reversed(range(taps))] for taps, gap in reached]),
        output_shape=(read.n, *read.sizes),
        stride=read.steps,
        gemm=(read.n * prod(read.sizes), read.c, prod(read.taps) * count),
    )


def _tap_offsets(ahead: list[list[int]], *outer: int) -> Offsets:
    """The offsets of every tap, nested like the taps, innermost dimension first: those of each dimension, combined."""
    if not ahead:
        return outer
    return tuple(_tap_offsets(ahead[1:], offset, *outer) for offset in ahead[0])


def _positive(argument: str, value: object) -> int:
    """One integer of at least 1."""
    number = integer(argument, value)
    if number < 1:
        facts: dict[str, Any] = {"name": argument, "number": number, argument: number}
        raise TensorMapError([CONVOLUTION_EXTENTS.violation(**facts)])
    return number


def _at_least(least: int, argument: str, value: object, rank: int) -> tuple[int, ...]:
    """`rank` integers of at least `least`; one integer is repeated for all dimensions."""
    numbers = integers(argument, value) if isinstance(value, list | tuple) else (integer(argument, value),)
    if len(numbers) == 1:
        numbers *= rank
    if len(numbers) != rank or min(numbers) < least:
        facts: dict[str, Any] = {"name": argument, "written": str(value), argument: numbers}
        raise TensorMapError([_STEPS.violation(least=least, rank=rank, usual=max(least, 1), **facts)])
    return numbers
