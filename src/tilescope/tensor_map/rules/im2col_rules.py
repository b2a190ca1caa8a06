"""Im2col maps: corners, the bounding box, channels and pixels; what im2col-wide takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES, Check, nearest
from tilescope.tensor_map.limits import (
    CORNER_BITS,
    LARGEST_BOX_EXTENT,
    LARGEST_PIXELS,
    LEAST_IM2COL_RANK,
    WIDE_CORNER_BITS,
)
from tilescope.tensor_map.record import ColumnRecord, Im2colRecord, WideRecord
from tilescope.tensor_map.rules.arch_limits import WIDE_ARCHITECTURES
from tilescope.tensor_map.samples import H200, IMAGES, WIDE

_CUDA_H = "cuda.h, cuTensorMapEncodeIm2col"
_DRIVER = f"{_CUDA_H}; {H200}"
_CONVOLUTION = "For a convolution: lower = -pad, upper = pad - (filter - 1) * dilation."
_LARGE_IMAGES = IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608)}
_WIDE_SWIZZLES = ("64B", "128B", "128B_ATOM_32B")


class _Range(NamedTuple):
    """The corners that a map can hold."""

    low: int
    high: int

    def nearest(self, corner: int) -> int:
        return nearest(corner, self.low, self.high)


@cache
def _signed_range(bits: int) -> _Range:
    end = 1 << bits - 1
    return _Range(-end, end - 1)


def _im2col_range(rank: int) -> _Range:
    """Of 16, 8 or 5 signed bits for rank 3, 4, 5; another rule reports an invalid rank."""
    return _signed_range(CORNER_BITS.get(rank, CORNER_BITS[LEAST_IM2COL_RANK]))


_WIDE_RANGE = _signed_range(WIDE_CORNER_BITS)


CORNER_RANGE = rule(
    "corner-range",
    "Corners fit into 16, 8 or 5 signed bits for rank 3, 4 or 5.",
    argument="{end}[{axis}]",
    found="{end}[{axis}] = {corner}",
    limit="{low} to {high} for rank {rank}",
    fix="Use {taken}: a smaller padding or filter.",
    source=_DRIVER,
    basis="measured",
    subjects=("im2col",),
    architectures=TMA_ARCHITECTURES,
    passing=_LARGE_IMAGES | {"lower_corner": (-128, 127)},
    failing=_LARGE_IMAGES | {"lower_corner": (-129, 0)},
)


def _has_corner_out_of_range(a: Im2colRecord) -> bool:
    low, high = _im2col_range(a.rank)
    corners = a.lower_corner + a.upper_corner
    return bool(corners) and (min(corners) < low or max(corners) > high)


def _corners_out_of_range(a: Im2colRecord) -> Iterator[Violation]:
    taken = _im2col_range(a.rank)
    ends = {"lower_corner": a.lower_corner, "upper_corner": a.upper_corner}
    cured = {end: tuple(map(taken.nearest, corners)) for end, corners in ends.items()}
    change = {end: corners for end, corners in cured.items() if corners != ends[end]}
    for end in change:
        for axis, corner in enumerate(ends[end]):
            if corner != cured[end][axis]:
                yield CORNER_RANGE.violation(
                    end=end,
                    axis=axis,
                    corner=corner,
                    low=taken.low,
                    high=taken.high,
                    rank=a.rank,
                    taken=cured[end][axis],
                    change=change,
                )


BOUNDING_BOX = rule(
    "bounding-box",
    "The bounding box contains at least one pixel in each spatial dim: dim + upper - lower >= 1.",
    argument="upper_corner[{place}]",
    found="dims[{axis}] + upper - lower = {extent} + {upper} - {lower} = {pixels} pixels",
    limit="the bounding box has at least 1 pixel in every spatial dim",
    fix=f"Use lower_corner = {{lower_corner}}, upper_corner = {{upper_corner}}. {_CONVOLUTION}",
    source=f"{_CUDA_H}; computed in signed 32 bits ({H200})",
    basis="measured",
    subjects=("im2col",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-31, -31)},
    failing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-32, -31)},
)
_SMALLER_DIM = f"Use a smaller dim: the driver counts in signed 32 bits. {_CONVOLUTION}"
_NO_CORNERS_HELP = BOUNDING_BOX.worded(fix=_SMALLER_DIM)


def pixels_between(extent: int, lower: int, upper: int) -> int:
    """Pixels of the bounding box along one dim; the driver keeps its end, dim + upper, in signed 32 bits.

    >>> pixels_between(32, -1, -1), pixels_between((1 << 32) - 1, 0, 0)
    (32, -1)
    """
    end = (extent + upper + (1 << 31)) % (1 << 32) - (1 << 31)
    return end - lower


class _Walk(NamedTuple):
    """The walk of a copy along one dim."""

    axis: int
    extent: int
    lower: int
    upper: int

    @property
    def pixels(self) -> int:
        return pixels_between(self.extent, self.lower, self.upper)

    def opened(self, corners: _Range) -> _Walk | None:
        """The walk with corners within the range that leave a pixel, the upper one raised first; None where there are none."""
        missing = max(0, 1 - self.pixels)
        raised = min(self.upper + missing, max(corners.high, self.upper))
        lowered = max(self.lower - (self.upper + missing - raised), min(corners.low, self.lower))
        opened = self._replace(lower=lowered, upper=raised)
        return opened if opened.pixels >= 1 else None


def _walks(a: ColumnRecord) -> list[_Walk]:
    """The walks along those of the map's dims that it has."""
    return [_Walk(axis, a.dims[axis], lower, upper) for axis, lower, upper in a.corners if axis < a.rank]


def _opened_corners(walks: list[_Walk], corners: _Range) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Lower and upper corners that leave a pixel in every dim; None where there are none."""
    opened = [walk.opened(corners) for walk in walks]
    opened_walks = [walk for walk in opened if walk is not None]
    if len(opened_walks) < len(walks):
        return None
    return tuple(walk.lower for walk in opened_walks), tuple(walk.upper for walk in opened_walks)


def _has_no_pixel(a: ColumnRecord) -> bool:
    rank = len(a.dims)
    return any(axis < rank and pixels_between(a.dims[axis], lower, upper) < 1 for axis, lower, upper in a.corners)


def _empty_bounding_box(a: Im2colRecord) -> Iterator[Violation]:
    walks = _walks(a)
    opened = _opened_corners(walks, _im2col_range(a.rank))
    wording = _NO_CORNERS_HELP if opened is None else BOUNDING_BOX
    lower_corner, upper_corner = opened or ((), ())
    for place, walk in enumerate(walks):
        if walk.pixels < 1:
            yield wording.violation(
                place=place,
                axis=walk.axis,
                extent=walk.extent,
                lower=walk.lower,
                upper=walk.upper,
                pixels=walk.pixels,
                lower_corner=lower_corner,
                upper_corner=upper_corner,
                change=None if opened is None else a.corner_change(lower_corner, upper_corner),
            )


CHANNELS_RANGE = rule(
    "channels-range",
    "channels_per_pixel is 1 to 256.",
    argument="channels_per_pixel",
    found="channels_per_pixel = {number}",
    limit="1 to 256",
    fix="Use {taken} and more copies.",
    source=_DRIVER,
    basis="measured",
    subjects=("im2col", "wide"),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | {"channels_per_pixel": 256},
    failing=IMAGES | {"channels_per_pixel": 264},
)
_CHANNELS_BELOW = CHANNELS_RANGE.worded(fix="Use {taken}.")


def _channels_out_of_range(a: ColumnRecord) -> Iterator[Violation]:
    wording = _CHANNELS_BELOW if a.channels_per_pixel < 1 else CHANNELS_RANGE
    taken = nearest(a.channels_per_pixel, 1, LARGEST_BOX_EXTENT)
    yield wording.violation(number=a.channels_per_pixel, taken=taken, change={"channels_per_pixel": taken})


PIXELS_RANGE = rule(
    "pixels-range",
    "pixels_per_column is 1 to 1024.",
    argument="pixels_per_column",
    found="pixels_per_column = {number}",
    limit="1 to 1024",
    fix="Use {taken} and more copies.",
    source=_DRIVER,
    basis="measured",
    subjects=("im2col", "wide"),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | {"pixels_per_column": 1024},
    failing=IMAGES | {"pixels_per_column": 1025},
)
_PIXELS_BELOW = PIXELS_RANGE.worded(fix="Use {taken}.")


def _pixels_out_of_range(a: ColumnRecord) -> Iterator[Violation]:
    wording = _PIXELS_BELOW if a.pixels_per_column < 1 else PIXELS_RANGE
    taken = nearest(a.pixels_per_column, 1, LARGEST_PIXELS)
    yield wording.violation(number=a.pixels_per_column, taken=taken, change={"pixels_per_column": taken})


WIDE_CORNER = rule(
    "wide-corner",
    "The width corners fit into 16 signed bits.",
    argument="{end}",
    found="{end} = {corner}",
    limit="{low} to {high}",
    fix="Use {taken}: a smaller padding or filter.",
    source=f"{_CUDA_H}Wide",
    subjects=("wide",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE,
    failing=WIDE | {"lower_width": -40000},
)


def _widths_out_of_range(a: WideRecord) -> Iterator[Violation]:
    ends = {"lower_width": a.lower_width, "upper_width": a.upper_width}
    cured = {end: _WIDE_RANGE.nearest(corner) for end, corner in ends.items()}
    change = {end: corner for end, corner in cured.items() if corner != ends[end]}
    for end, taken in change.items():
        yield WIDE_CORNER.violation(
            end=end, corner=ends[end], low=_WIDE_RANGE.low, high=_WIDE_RANGE.high, taken=taken, change=change
        )


WIDE_BOUNDING_BOX = rule(
    "wide-bounding-box",
    "The bounding box contains at least one pixel along W: dims[1] + upper - lower >= 1.",
    argument="upper_width",
    found=BOUNDING_BOX.found,
    limit=BOUNDING_BOX.limit,
    fix=f"Use lower_width = {{lower_width}}, upper_width = {{upper_width}}. {_CONVOLUTION}",
    source=f"{_CUDA_H}Wide",
    subjects=("wide",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE | {"lower_width": 0, "upper_width": -31},
    failing=WIDE | {"lower_width": 0, "upper_width": -32},
)
_NO_WIDTHS_HELP = WIDE_BOUNDING_BOX.worded(fix=_SMALLER_DIM)


def _empty_wide_bounding_box(a: WideRecord) -> Iterator[Violation]:
    walk = _walks(a)[0]
    opened = walk.opened(_WIDE_RANGE)
    wording = _NO_WIDTHS_HELP if opened is None else WIDE_BOUNDING_BOX
    lower_width = a.lower_width if opened is None else opened.lower
    upper_width = a.upper_width if opened is None else opened.upper
    yield wording.violation(
        axis=walk.axis,
        extent=walk.extent,
        lower=walk.lower,
        upper=walk.upper,
        pixels=walk.pixels,
        lower_width=lower_width,
        upper_width=upper_width,
        change=None if opened is None else {"lower_width": lower_width, "upper_width": upper_width},
    )


WIDE_SWIZZLE = rule(
    "wide-swizzle",
    "An im2col-wide map has swizzle 64B, 128B or 128B_ATOM_32B, or in mode W 96B.",
    argument="swizzle",
    found="swizzle = {swizzle} in mode {mode}",
    limit="64B, 128B or 128B_ATOM_32B; 96B in mode W",
    fix='Use {swizzle:="128B"}.',
    source=f"{_CUDA_H}Wide",
    subjects=("wide",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE,
    failing=WIDE | {"swizzle": "none"},
)


def _other_wide_swizzle(a: WideRecord) -> Iterator[Violation]:
    yield WIDE_SWIZZLE.violation(swizzle=a.swizzle.name, mode=a.mode, change={"swizzle": "128B"})


WIDE_INTERLEAVE = rule(
    "wide-interleave",
    "An im2col-wide map is not interleaved.",
    argument="interleave",
    found="interleave = {interleave}",
    limit="im2col-wide takes no interleave",
    fix='Use {interleave:="none"}.',
    source='PTX ISA, "Interleave layout"',
    subjects=("wide",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE,
    failing=WIDE | {"interleave": "16B"},
)


def _interleaved_wide(a: WideRecord) -> Iterator[Violation]:
    yield WIDE_INTERLEAVE.violation(interleave=a.interleave.name, change={"interleave": "none"})


CHECKS = (
    Check(
        CORNER_RANGE,
        reads=("rank", "interleave", "lower_corner", "upper_corner"),
        find=_corners_out_of_range,
        broken=_has_corner_out_of_range,
    ),
    Check(
        BOUNDING_BOX,
        reads=("dims", "interleave", "lower_corner", "upper_corner"),
        find=_empty_bounding_box,
        broken=_has_no_pixel,
    ),
    Check(
        CHANNELS_RANGE,
        reads=("channels_per_pixel",),
        find=_channels_out_of_range,
        broken=lambda a: not 1 <= a.channels_per_pixel <= LARGEST_BOX_EXTENT,
    ),
    Check(
        PIXELS_RANGE,
        reads=("pixels_per_column",),
        find=_pixels_out_of_range,
        broken=lambda a: not 1 <= a.pixels_per_column <= LARGEST_PIXELS,
    ),
    Check(WIDE_CORNER, reads=("lower_width", "upper_width"), find=_widths_out_of_range),
    Check(
        WIDE_BOUNDING_BOX,
        reads=("dims", "lower_width", "upper_width"),
        find=_empty_wide_bounding_box,
        broken=_has_no_pixel,
    ),
    Check(
        WIDE_SWIZZLE,
        reads=("swizzle", "mode"),
        find=_other_wide_swizzle,
        broken=lambda a: a.swizzle.name != "96B" or a.mode != "W",
        concerns=lambda options: options.swizzle.name not in _WIDE_SWIZZLES,
    ),
    Check(
        WIDE_INTERLEAVE,
        reads=("interleave",),
        find=_interleaved_wide,
        concerns=lambda options: options.is_interleaved,
    ),
)
