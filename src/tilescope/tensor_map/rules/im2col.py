"""Im2col maps: corners, the bounding box, channels and pixels; what im2col-wide takes; offsets and base pixels of copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilescope.arch import architectures_with
from tilescope.errors import counted
from tilescope.tensor_map.checking import checked, nearest, ranged
from tilescope.tensor_map.copy import COPY, NO_FAULT, OFFSET_END, Copy, copied
from tilescope.tensor_map.descriptor import CORNER_BITS
from tilescope.tensor_map.im2col import ColumnMap
from tilescope.tensor_map.rules.samples import CUDA_H_IM2COL, CUDA_H_WIDE, H200, IMAGES, PTX_COPY, WIDE
from tilescope.tensor_map.rules.tensor import LARGEST_EXTENT, LARGEST_PIXELS

_IM2COL: dict[str, Any] = {"source": f"{CUDA_H_IM2COL}; {H200}", "subjects": ("im2col",)}
_WIDE: dict[str, Any] = {
    "documented": CUDA_H_WIDE,
    "subjects": ("wide",),
    "architectures": architectures_with("im2col_wide"),
}
_LARGE_IMAGES = IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608)}


def _corner_range(a: ColumnMap) -> tuple[int, int]:
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
    low, high = _corner_range(a)
    return any(not (low <= lower <= high and low <= upper <= high) for _, lower, upper in a.corners)


def _corners_outside(a: ColumnMap) -> Iterator[dict[str, Any]]:
    low, high = _corner_range(a)
    _, *ends = zip(*a.corners, strict=True)
    cured = a.corner_change(*(tuple(nearest(place, low, high) for place in end) for end in ends))
    change = {name: places for name, places in cured.items() if places != getattr(a, name)}
    for name, end in zip(cured, ends, strict=True):
        for axis, corner in enumerate(end):
            if not low <= corner <= high:
                argument = f"{name}[{axis}]" if a.subject == "im2col" else name
                numbers = {"corner": corner, "low": low, "high": high, "taken": nearest(corner, low, high)}
                yield numbers | {"argument": argument, "change": change}


_CORNER: dict[str, Any] = {
    "broken": _has_corner_outside,
    "argument": "{argument}",
    "found": "{argument} = {corner}",
    "fix": "Use {taken}: a smaller padding or filter.",
    "values": _corners_outside,
}


def _is_empty(a: ColumnMap) -> bool:
    """Whether the bounding box has no pixel in some dim."""
    return any(pixels_between(a.dims[axis], lower, upper) < 1 for axis, lower, upper in a.corners if axis < a.rank)


def _opened(limits: tuple[int, int], extent: int, lower: int, upper: int) -> tuple[int, int] | None:
    """Corners within the limits that leave a pixel, the upper one raised first; None where there are none."""
    missing = max(0, 1 - pixels_between(extent, lower, upper))
    raised = min(upper + missing, max(limits[1], upper))
    lowered = max(lower - (upper + missing - raised), min(limits[0], lower))
    return (lowered, raised) if pixels_between(extent, lowered, raised) >= 1 else None


def _empty_dims(a: ColumnMap) -> Iterator[dict[str, Any]]:
    opened = [_opened(_corner_range(a), a.dims[axis], lower, upper) for axis, lower, upper in a.corners]
    possible = [corners for corners in opened if corners is not None]
    change = a.corner_change(*zip(*possible, strict=True)) if len(possible) == len(opened) else None
    for place, (axis, lower, upper) in enumerate(a.corners):
        if (pixels := pixels_between(a.dims[axis], lower, upper)) < 1:
            argument = f"upper_corner[{place}]" if a.subject == "im2col" else "upper_width"
            numbers = {"axis": axis, "extent": a.dims[axis], "upper": upper, "lower": lower, "pixels": pixels}
            corners = opened[place]
            fix = "a smaller dim" if corners is None else f"lower = {corners[0]}, upper = {corners[1]}"
            yield numbers | {"argument": argument, "fix": fix, "change": change}


_BOUNDING_BOX: dict[str, Any] = {
    "broken": _is_empty,
    "argument": "{argument}",
    "found": "dims[{axis}] + upper - lower = {extent} + {upper} - {lower} = {pixels} pixels",
    "limit": "every spatial dim has at least 1 pixel (the driver counts in signed 32 bits)",
    "fix": "Use {fix}. For a convolution: lower = -pad, upper = pad - (filter - 1) * dilation.",
    "values": _empty_dims,
}

checked(
    "corner-range",
    "Corners fit 16, 8 or 5 signed bits for rank 3, 4, 5.",
    limit="{low} to {high} for rank {a.rank}",
    examples=(_LARGE_IMAGES, {"lower_corner": (-128, 127)}, {"lower_corner": (-129, 0)}),
    **_CORNER | _IM2COL,
)
checked(
    "bounding-box",
    "The bounding box holds at least one pixel in each spatial dim: dim + upper - lower >= 1.",
    examples=(
        IMAGES,
        {"lower_corner": (0, 0), "upper_corner": (-31, -31)},
        {"lower_corner": (0, 0), "upper_corner": (-32, -31)},
    ),
    **_BOUNDING_BOX | _IM2COL | {"source": f"{CUDA_H_IM2COL}; computed in signed 32 bits ({H200})"},
)
ranged(
    "channels-range",
    "channels_per_pixel is 1 to 256.",
    "channels_per_pixel",
    (1, LARGEST_EXTENT),
    "1 to 256",
    "Use {}.",
    "Use {} and more copies.",
    examples=(IMAGES, {"channels_per_pixel": 256}, {"channels_per_pixel": 264}),
    **_IM2COL | {"subjects": ("im2col", "wide")},
)
ranged(
    "pixels-range",
    "pixels_per_column is 1 to 1024.",
    "pixels_per_column",
    (1, LARGEST_PIXELS),
    "1 to 1024",
    "Use {}.",
    "Use {} and more copies.",
    examples=(IMAGES, {"pixels_per_column": 1024}, {"pixels_per_column": 1025}),
    **_IM2COL | {"subjects": ("im2col", "wide")},
)
checked(
    "wide-corner",
    "The width corners fit 16 signed bits.",
    limit="{low} to {high}",
    examples=(WIDE, {}, {"lower_width": -40000}),
    **_CORNER | _WIDE,
)
checked(
    "wide-bounding-box",
    "The bounding box holds at least one pixel along W: dims[1] + upper - lower >= 1.",
    examples=(WIDE | {"lower_width": 0}, {"upper_width": -31}, {"upper_width": -32}),
    **_BOUNDING_BOX | _WIDE,
)
checked(
    "wide-swizzle",
    "An im2col-wide map is swizzled 64B, 128B or 128B_ATOM_32B, or in mode W 96B.",
    lambda a: a.swizzle.name not in ("64B", "128B", "128B_ATOM_32B") and (a.swizzle.name != "96B" or a.mode != "W"),
    "swizzle",
    "swizzle = {a.swizzle.name} in mode {a.mode}",
    "64B, 128B or 128B_ATOM_32B; 96B in mode W",
    change={"swizzle": "128B"},
    examples=(WIDE, {}, {"swizzle": "none"}),
    **_WIDE,
)
checked(
    "wide-interleave",
    "An im2col-wide map is not interleaved.",
    lambda a: a.interleave.name != "none",
    "interleave",
    "interleave = {a.interleave.name}",
    "im2col-wide takes no interleave",
    change={"interleave": "none"},
    examples=(WIDE, {}, {"interleave": "16B"}),
    **_WIDE | {"documented": 'PTX ISA, "Interleave layout"'},
)


HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32


def _offset_ends(copy: Copy) -> tuple[tuple[int, ...], str, str]:
    """The ends of the offsets that a copy takes; how many it takes, and which would do."""
    a = copy.tensor_map
    if a.subject == "wide":
        return (HALO_END[a.mode], WIDE_OFFSET_END), "2 for an im2col-wide map", "Use (0, 0): the halo and the offset."
    if a.subject == "tiled":
        return (), "a tiled copy has none", "Leave offsets out."
    if copy.direction != "load":
        return (), "an im2col store has none: im2col_no_offs", "Leave offsets out."
    count = a.rank - 2
    example = f"Use {(0,) * count}, for example: {', '.join('WHD'[:count])}."
    return (OFFSET_END[a.rank],) * count, f"{count} for an im2col map of rank {a.rank}", example


def _wrong_offsets(copy: Copy) -> Iterator[dict[str, Any]]:
    ends, limit, fix = _offset_ends(copy)
    count = len(copy.offsets)
    if count != len(ends):
        facts = {"argument": "offsets", "found": counted(count, "offset"), "limit": limit, "fix": fix}
        yield facts | {"offsets": count, "wanted": len(ends)}
        return
    taken = tuple(nearest(offset, 0, end - 1) for offset, end in zip(copy.offsets, ends, strict=True))
    for axis, offset in enumerate(copy.offsets):
        if offset != taken[axis]:
            argument, most = f"offsets[{axis}]", ends[axis] - 1
            fix = f"Use {taken[axis]}: an offset is a filter tap's distance from the base pixel."
            facts = {"argument": argument, "found": f"{argument} = {offset}", "limit": f"0 to {most} here", "fix": fix}
            yield facts | {"offset": offset, "most": most, "change": {"offsets": taken}}


checked(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5, one for each of W, H, D; an im2col-wide halo is below 512 "
    "(32 in mode W128), its offset below 32. Stores and tiled copies have none.",
    lambda copy: copy.offsets,
    values=_wrong_offsets,
    subjects=("instruction",),
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    examples=(IMAGES, copied("load", 0, 0, 0, 0, offsets=(255, 0)), copied("load", 0, 0, 0, 0, offsets=(256, 0))),
)


def _is_padded_store(copy: Copy) -> bool:
    """Whether an im2col map with padding is stored through."""
    a = copy.tensor_map
    is_store = a.subject == "im2col" and copy.direction != "load"
    return is_store and bool(min(a.lower_corner) < 0 or max(a.upper_corner) > 0)


checked(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    _is_padded_store,
    "lower_corner",
    "corners {lower_corner} and {upper_corner}",
    "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0",
    "Encode a map without padding for the store: lower_corner = upper_corner = {zeros}.",
    values=lambda copy: {
        "lower_corner": copy.tensor_map.lower_corner,
        "upper_corner": copy.tensor_map.upper_corner,
        "zeros": str((0,) * len(copy.tensor_map.lower_corner)),
    },
    examples=(
        IMAGES,
        {"lower_corner": (0, 0), "upper_corner": (0, 0)} | copied("store", 0, 0, 0, 0),
        copied("store", 0, 0, 0, 0),
    ),
    **COPY | {"source": f"{PTX_COPY}, im2col_no_offs; {H200}"},
)


def _bases_outside(copy: Copy) -> Iterator[dict[str, Any]]:
    a = copy.tensor_map
    for axis, lower, upper in a.corners:
        place, highest = copy.coords[axis], a.dims[axis] - 1 + upper  # an im2col-wide offset moves both alike
        lowest = lower if a.subject == "im2col" else min(lower, place)
        if not lowest <= place <= highest:
            taken = nearest(place, lower, highest)
            change = {"coords": (*copy.coords[:axis], taken, *copy.coords[axis + 1 :])}
            numbers = {"axis": axis, "coord": place, "lowest": lower, "highest": highest, "taken": taken}
            yield numbers | {"change": change}


checked(
    "im2col-base",
    "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    lambda copy: copy.tensor_map.subject == "im2col" and len(copy.coords) == copy.tensor_map.rank,
    "coords[{axis}]",
    "coords[{axis}] = {coord}",
    "the bounding box runs from {lowest} to {highest}",
    "Use {taken}: the offsets, not the base, reach a filter's taps.",
    values=_bases_outside,
    examples=(IMAGES, copied("load", 0, -1, -1, 99), copied("load", 0, -2, 0, 0)),
    **COPY,
)
checked(
    "wide-base",
    "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    lambda copy: copy.tensor_map.subject == "wide" and len(copy.coords) == copy.tensor_map.rank,
    "coords[{axis}]",
    "coords[{axis}] = {coord}",
    "the bounding box runs from {lowest} to {highest}, and the copy starts in it or left of it",
    "Use {taken} or less.",
    values=_bases_outside,
    examples=(WIDE, copied("load", 0, -9, 0, 0), copied("load", 0, 31, 0, 0)),
    **COPY | NO_FAULT | {"documented": 'PTX ISA, "im2col::w and im2col::w::128 modes"'},
    architectures=architectures_with("im2col_wide"),
)
