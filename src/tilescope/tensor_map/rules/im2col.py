"""Im2col maps: corners, the bounding box, channels and pixels; what im2col-wide takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.tensor_map.checking import Says, checked, nearest, option_rule, ranged
from tilescope.tensor_map.descriptor import CORNER_BITS
from tilescope.tensor_map.im2col import ColumnMap
from tilescope.tensor_map.rules.box import LARGEST_EXTENT, LARGEST_PIXELS
from tilescope.tensor_map.rules.samples import CUDA_H_IM2COL, CUDA_H_WIDE, H200, IMAGES, WIDE

_IM2COL: dict[str, Any] = {"source": f"{CUDA_H_IM2COL}; {H200}", "subjects": ("im2col",)}
_COLUMN: dict[str, Any] = _IM2COL | {"subjects": ("im2col", "wide")}
_WIDE: dict[str, Any] = {
    "source": CUDA_H_WIDE,
    "basis": "documented",
    "subjects": ("wide",),
    "architectures": architectures_with("im2col_wide"),
    "passing": WIDE,
}
_LARGE_IMAGES = IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608)}


def corner_range(a: ColumnMap) -> tuple[int, int]:
    """Smallest and largest corner of a map: 16, 8 or 5 signed bits for rank 3, 4, 5; im2col-wide always has 16."""
    bits = CORNER_BITS.get(a.rank, 16) if a.subject == "im2col" else 16
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def pixels_between(extent: int, lower: int, upper: int) -> int:
    """Pixels of the bounding box along one dim; the driver keeps its end, dim + upper, in signed 32 bits.

    >>> pixels_between(32, -1, -1), pixels_between((1 << 32) - 1, 0, 0)
    (32, -1)
    """
    end = (extent + upper + (1 << 31)) % (1 << 32) - (1 << 31)
    return end - lower


def _has_corner_outside(a: ColumnMap) -> bool:
    low, high = corner_range(a)
    return any(not (low <= lower <= high and low <= upper <= high) for _, lower, upper in a.corners)


def _corner_range(a: ColumnMap, violation: Says) -> Iterator[Violation]:
    low, high = corner_range(a)
    _, lower, upper = zip(*a.corners, strict=True) if a.corners else ((), (), ())
    for name, held in a.corner_change(lower, upper).items():
        corners = held if isinstance(held, tuple) else (held,)
        for axis, corner in enumerate(corners):
            if not low <= corner <= high:
                cured = a.corner_change(*(tuple(nearest(place, low, high) for place in end) for end in (lower, upper)))
                change = {side: places for side, places in cured.items() if places != getattr(a, side)}
                argument, limit = (f"{name}[{axis}]", f" for rank {a.rank}") if corners is held else (name, "")
                found, fix = f"{argument} = {corner}", f"Use {nearest(corner, low, high)}: a smaller padding or filter."
                ends = {"corner": corner, "least": low, "most": high, "rank": a.rank}
                yield violation(argument, found, f"{low} to {high}{limit}", fix, change, **ends)


checked(
    "corner-range",
    "Corners fit 16, 8 or 5 signed bits for rank 3, 4, 5.",
    _has_corner_outside,
    passing=_LARGE_IMAGES | {"lower_corner": (-128, 127)},
    failing=_LARGE_IMAGES | {"lower_corner": (-129, 0)},
    **_IM2COL,
)(_corner_range)


def _opened(limits: tuple[int, int], extent: int, lower: int, upper: int) -> tuple[int, int] | None:
    """Corners within the limits that leave a pixel, the upper one raised first; None where there are none."""
    missing = max(0, 1 - pixels_between(extent, lower, upper))
    raised = min(upper + missing, max(limits[1], upper))
    lowered = max(lower - (upper + missing - raised), min(limits[0], lower))
    return (lowered, raised) if pixels_between(extent, lowered, raised) >= 1 else None


def _is_empty(a: ColumnMap) -> bool:
    """Whether the bounding box has no pixel in some dim."""
    return any(pixels_between(a.dims[axis], lower, upper) < 1 for axis, lower, upper in a.corners if axis < a.rank)


def _bounding_box(a: ColumnMap, violation: Says) -> Iterator[Violation]:
    walked = [(axis, a.dims[axis], lower, upper) for axis, lower, upper in a.corners if axis < a.rank]
    opened = [_opened(corner_range(a), *extents) for _, *extents in walked]
    possible = [corners for corners in opened if corners is not None]
    change = a.corner_change(*zip(*possible, strict=True)) if len(possible) == len(opened) else None
    for place, (axis, extent, lower, upper) in enumerate(walked):
        if (pixels := pixels_between(extent, lower, upper)) < 1:
            argument = f"upper_corner[{place}]" if a.subject == "im2col" else "upper_width"
            found = f"dims[{axis}] + upper - lower = {extent} + {upper} - {lower} = {pixels} pixels"
            limit = "every spatial dim has at least 1 pixel (the driver counts in signed 32 bits)"
            corners = opened[place]
            fix = "Use a smaller dim." if corners is None else f"Use lower = {corners[0]}, upper = {corners[1]}."
            fix += " For a convolution: lower = -pad, upper = pad - (filter - 1) * dilation."
            numbers = {"extent": extent, "upper": upper, "lower": lower, "pixels": pixels}
            yield violation(argument, found, limit, fix, change, **numbers)


checked(
    "bounding-box",
    "The bounding box holds at least one pixel in each spatial dim: dim + upper - lower >= 1.",
    _is_empty,
    passing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-31, -31)},
    failing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-32, -31)},
    **_IM2COL | {"source": f"{CUDA_H_IM2COL}; computed in signed 32 bits ({H200})"},
)(_bounding_box)
ranged(
    "channels-range",
    "channels_per_pixel is 1 to 256.",
    "channels_per_pixel",
    (1, LARGEST_EXTENT),
    limit="1 to 256",
    below="Use {}.",
    above="Use {} and more copies.",
    passing=IMAGES | {"channels_per_pixel": 256},
    failing=IMAGES | {"channels_per_pixel": 264},
    **_COLUMN,
)
ranged(
    "pixels-range",
    "pixels_per_column is 1 to 1024.",
    "pixels_per_column",
    (1, LARGEST_PIXELS),
    limit="1 to 1024",
    below="Use {}.",
    above="Use {} and more copies.",
    passing=IMAGES | {"pixels_per_column": 1024},
    failing=IMAGES | {"pixels_per_column": 1025},
    **_COLUMN,
)
checked(
    "wide-corner",
    "The width corners fit 16 signed bits.",
    _has_corner_outside,
    failing=WIDE | {"lower_width": -40000},
    **_WIDE,
)(_corner_range)
checked(
    "wide-bounding-box",
    "The bounding box holds at least one pixel along W: dims[1] + upper - lower >= 1.",
    _is_empty,
    failing=WIDE | {"lower_width": 0, "upper_width": -32},
    **_WIDE | {"passing": WIDE | {"lower_width": 0, "upper_width": -31}},
)(_bounding_box)
option_rule(
    "wide-swizzle",
    "An im2col-wide map is swizzled 64B, 128B or 128B_ATOM_32B, or in mode W 96B.",
    lambda a: a.swizzle.name not in ("64B", "128B", "128B_ATOM_32B") and (a.swizzle.name != "96B" or a.mode != "W"),
    found="swizzle = {a.swizzle.name} in mode {a.mode}",
    limit="64B, 128B or 128B_ATOM_32B; 96B in mode W",
    change={"swizzle": "128B"},
    failing=WIDE | {"swizzle": "none"},
    **_WIDE,
)
option_rule(
    "wide-interleave",
    "An im2col-wide map is not interleaved.",
    lambda a: a.interleave.name != "none",
    found="interleave = {a.interleave.name}",
    limit="im2col-wide takes no interleave",
    change={"interleave": "none"},
    failing=WIDE | {"interleave": "16B"},
    **_WIDE | {"source": 'PTX ISA, "Interleave layout"'},
)
