"""What copies through im2col maps demand of their offsets and base pixel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilescope.arch import architectures_with
from tilescope.errors import counted
from tilescope.tensor_map.checking import checked, nearest
from tilescope.tensor_map.copy import COPY, NO_FAULT, Copy, copied
from tilescope.tensor_map.rules.samples import H200, IMAGES, PTX_COPY, WIDE

OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank
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
