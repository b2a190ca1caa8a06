"""Im2col maps: corners, the bounding box, channels and pixels; what im2col-wide takes; offsets and base pixels of copies."""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.sentence import counted
from tilescope.tensor_map.checking import OFFSET_END, Copy, Facts, ManyFacts, checked, nearest, ranged
from tilescope.tensor_map.descriptor import CORNER_BITS
from tilescope.tensor_map.kinds import Im2colMap, Im2colWideMap
from tilescope.tensor_map.rules.tensor import LARGEST_EXTENT, LARGEST_PIXELS
from tilescope.tensor_map.samples import COPY, H200, IMAGES, NO_FAULT, PTX_COPY, WIDE, copied

_CUDA_H = "cuda.h, cuTensorMapEncodeIm2col"
_IM2COL: Facts = {"source": f"{_CUDA_H}; {H200}", "subjects": ("im2col",)}
_BOTH = _IM2COL | {"subjects": ("im2col", "wide")}
_WIDE: Facts = {
    "documented": f"{_CUDA_H}Wide",
    "subjects": ("wide",),
    "architectures": architectures_with("im2col_wide"),
}
_LARGE_IMAGES = IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608)}


def _corner_range(a: Im2colMap | Im2colWideMap) -> tuple[int, int]:
    """Smallest and largest corner of a map: 16, 8 or 5 signed bits for rank 3, 4, 5; im2col-wide always has 16."""
    end = 1 << (CORNER_BITS.get(a.rank, 16) if a.subject == "im2col" else 16) - 1
    return -end, end - 1


def pixels_between(extent: int, lower: int, upper: int) -> int:
    """Pixels of the bounding box along one dim; the driver keeps its end, dim + upper, in signed 32 bits.

    >>> pixels_between(32, -1, -1), pixels_between((1 << 32) - 1, 0, 0)
    (32, -1)
    """
    end = (extent + upper + (1 << 31)) % (1 << 32) - (1 << 31)
    return end - lower


def _corners_outside(a: Im2colMap | Im2colWideMap) -> ManyFacts:
    low, high = _corner_range(a)
    if all(low <= lower <= high and low <= upper <= high for _, lower, upper in a.corners):
        return  # as nearly all are
    _, *ends = zip(*a.corners, strict=True) if a.corners else ((),) * 3
    cured = a.corner_change(*(tuple(nearest(place, low, high) for place in end) for end in ends))
    change = {name: places for name, places in cured.items() if places != getattr(a, name)}
    for name, end in zip(cured, ends, strict=True):
        for axis, corner in enumerate(end):
            if corner != (taken := nearest(corner, low, high)):
                argument = f"{name}[{axis}]" if a.subject == "im2col" else name
                numbers = {"corner": corner, "low": low, "high": high, "taken": taken}
                yield numbers | {"argument": argument, "change": change}


_CORNER: Facts = {
    "broken": _corners_outside,
    "found": "{argument} = {corner}",
    "fix": "Use {taken}: a smaller padding or filter.",
}


def _opened(limits: tuple[int, int], extent: int, lower: int, upper: int) -> tuple[int, int] | None:
    """Corners within the limits that leave a pixel, the upper one raised first; None where there are none."""
    missing = max(0, 1 - pixels_between(extent, lower, upper))
    raised = min(upper + missing, max(limits[1], upper))
    lowered = max(lower - (upper + missing - raised), min(limits[0], lower))
    return (lowered, raised) if pixels_between(extent, lowered, raised) >= 1 else None


def _empty_dims(a: Im2colMap | Im2colWideMap) -> ManyFacts:
    """The dims in which the bounding box has no pixel."""
    corners = [(axis, a.dims[axis], lower, upper) for axis, lower, upper in a.corners if axis < a.rank]
    if all(pixels_between(extent, lower, upper) >= 1 for _, extent, lower, upper in corners):
        return
    limits = _corner_range(a)
    opened = [_opened(limits, *corner) for _, *corner in corners]
    change = a.corner_change(*zip(*opened, strict=True)) if opened and all(opened) else None
    for place, (axis, extent, lower, upper) in enumerate(corners):
        if (pixels := pixels_between(extent, lower, upper)) < 1:
            argument = f"upper_corner[{place}]" if a.subject == "im2col" else "upper_width"
            numbers = {"axis": axis, "extent": extent, "upper": upper, "lower": lower, "pixels": pixels}
            fix = (
                ", ".join(f"{name} = {value}" for name, value in change.items())
                if change
                else "a smaller dim: the driver counts in signed 32 bits"
            )
            yield numbers | {"argument": argument, "fix": fix, "change": change}


_BOUNDING_BOX: Facts = {
    "broken": _empty_dims,
    "found": "dims[{axis}] + upper - lower = {extent} + {upper} - {lower} = {pixels} pixels",
    "limit": "the bounding box has at least 1 pixel in every spatial dim",
    "fix": "Use {fix}. For a convolution: lower = -pad, upper = pad - (filter - 1) * dilation.",
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
    examples=(IMAGES | {"lower_corner": (0, 0)}, {"upper_corner": (-31, -31)}, {"upper_corner": (-32, -31)}),
    **_BOUNDING_BOX | _IM2COL | {"source": f"{_CUDA_H}; computed in signed 32 bits ({H200})"},
)
ranged(
    "channels-range",
    "channels_per_pixel is 1 to 256.",
    "channels_per_pixel",
    LARGEST_EXTENT,
    "1 to 256",
    examples=(IMAGES, {"channels_per_pixel": 256}, {"channels_per_pixel": 264}),
    **_BOTH,
)
ranged(
    "pixels-range",
    "pixels_per_column is 1 to 1024.",
    "pixels_per_column",
    LARGEST_PIXELS,
    "1 to 1024",
    examples=(IMAGES, {"pixels_per_column": 1024}, {"pixels_per_column": 1025}),
    **_BOTH,
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
    found="swizzle = {a.swizzle.name} in mode {a.mode}",
    limit="64B, 128B or 128B_ATOM_32B; 96B in mode W",
    change={"swizzle": "128B"},
    examples=(WIDE, {}, {"swizzle": "none"}),
    **_WIDE,
)
checked(
    "wide-interleave",
    "An im2col-wide map is not interleaved.",
    lambda a: a.interleave.name != "none",
    found="interleave = {a.interleave.name}",
    limit="im2col-wide takes no interleave",
    change={"interleave": "none"},
    examples=(WIDE, {}, {"interleave": "16B"}),
    **_WIDE | {"documented": 'PTX ISA, "Interleave layout"'},
)


HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32


def _wrong_offsets(copy: Copy) -> ManyFacts:
    a, count = copy.tensor_map, len(copy.offsets)
    ends: tuple[int, ...] = ()
    limit, fix = "a tiled copy has none", "Leave offsets out."
    if a.subject == "wide":
        ends = HALO_END[a.mode], WIDE_OFFSET_END
        limit, fix = "2 for an im2col-wide map", "Use (0, 0): the halo and the offset."
    elif a.subject == "im2col" and copy.direction == "load":
        ends = (OFFSET_END[a.rank],) * (a.rank - 2)
        limit = f"{len(ends)} for an im2col map of rank {a.rank}"
        fix = f"Use {(0,) * len(ends)}, for example: {', '.join('WHD'[: len(ends)])}."
    elif a.subject == "im2col":
        limit = "an im2col store has none: im2col_no_offs"
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
    lambda copy: copy.offsets and _wrong_offsets(copy),
    subjects=("instruction",),
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    examples=(IMAGES, copied("load", 0, 0, 0, 0, offsets=(255, 0)), copied("load", 0, 0, 0, 0, offsets=(256, 0))),
)


def _padded_store(copy: Copy) -> Facts | None:
    a = copy.tensor_map
    if a.subject != "im2col" or copy.direction == "load" or (min(a.lower_corner) >= 0 >= max(a.upper_corner)):
        return None
    return {"lower_corner": a.lower_corner, "upper_corner": a.upper_corner, "zeros": str((0,) * len(a.lower_corner))}


checked(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    _padded_store,
    "corners {lower_corner} and {upper_corner}",
    "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0",
    "Encode a map without padding for the store: lower_corner = upper_corner = {zeros}.",
    argument="lower_corner",
    examples=(IMAGES | copied("store", 0, 0, 0, 0), {"lower_corner": (0, 0), "upper_corner": (0, 0)}, {}),
    **COPY | {"source": f"{PTX_COPY}, im2col_no_offs; {H200}"},
)


def _base_outside(copy: Copy) -> ManyFacts:
    a = copy.tensor_map
    for axis, lower, upper in a.corners if len(copy.coords) == a.rank else ():
        place, highest = copy.coords[axis], a.dims[axis] - 1 + upper  # an im2col-wide offset moves both alike
        if place > highest or (place < lower and a.subject == "im2col"):
            taken = nearest(place, lower, highest)
            numbers = {"axis": axis, "coord": place, "lowest": lower, "highest": highest, "taken": taken}
            yield numbers | {"change": {"coords": (*copy.coords[:axis], taken, *copy.coords[axis + 1 :])}}


checked(
    "im2col-base",
    "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    lambda copy: copy.tensor_map.subject == "im2col" and _base_outside(copy),
    "coords[{axis}] = {coord}",
    "the bounding box runs from {lowest} to {highest}",
    "Use {taken}: the offsets, not the base, reach a filter's taps.",
    examples=(IMAGES, copied("load", 0, -1, -1, 99), copied("load", 0, -2, 0, 0)),
    **COPY,
)
checked(
    "wide-base",
    "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    lambda copy: copy.tensor_map.subject == "wide" and _base_outside(copy),
    "coords[{axis}] = {coord}",
    "the bounding box runs from {lowest} to {highest}, and the copy starts in it or left of it",
    "Use {taken} or less.",
    examples=(WIDE, copied("load", 0, -9, 0, 0), copied("load", 0, 31, 0, 0)),
    **COPY | NO_FAULT | {"documented": 'PTX ISA, "im2col::w and im2col::w::128 modes"'},
    architectures=architectures_with("im2col_wide"),
)
