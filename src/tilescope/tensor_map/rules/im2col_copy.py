"""What copies through im2col maps demand of their offsets and base pixel."""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.errors import counted
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.copy import COPY_RULES, Copy
from tilescope.tensor_map.rules.samples import H200, IMAGES, PTX_COPY, WIDE

OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank
HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32


@checked(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5, one for each of W, H, D; an im2col-wide halo is below 512 "
    "(32 in mode W128), its offset below 32. Stores and tiled copies have none.",
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    subjects=COPY_RULES,
    passing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (255, 0)}},
    failing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (256, 0)}},
)
def _offsets_range(copy: Copy) -> Found:
    if not copy.offsets:
        return ()
    a = copy.tensor_map
    ends: tuple[int, ...] = ()
    limit, fix = "a tiled copy has none", "Leave offsets out."
    if a.subject == "wide":
        ends = (HALO_END[a.mode], WIDE_OFFSET_END)
        limit, fix = "2 for an im2col-wide map", "Use (0, 0): the halo and the offset."
    elif a.subject == "im2col" and copy.direction != "load":
        limit = "an im2col store has none: im2col_no_offs"
    elif a.subject == "im2col":
        ends = (OFFSET_END[a.rank],) * (a.rank - 2)
        spatial = ", ".join("WHD"[: len(ends)])
        limit, fix = (
            f"{len(ends)} for an im2col map of rank {a.rank}",
            f"Use {(0,) * len(ends)}, for example: {spatial}.",
        )
    if len(copy.offsets) != len(ends):
        count = len(copy.offsets)
        return (
            Breach("offsets", counted(count, "offset"), limit, fix, values={"offsets": count, "wanted": len(ends)}),
        )
    change = {"offsets": tuple(min(max(offset, 0), end - 1) for offset, end in zip(copy.offsets, ends, strict=True))}
    return [
        Breach(
            f"offsets[{axis}]",
            f"offsets[{axis}] = {offset}",
            f"0 to {end - 1} here",
            f"Use {change['offsets'][axis]}: an offset is a filter tap's distance from the base pixel.",
            change,
            {"offset": offset, "most": end - 1},
        )
        for axis, (offset, end) in enumerate(zip(copy.offsets, ends, strict=True))
        if not 0 <= offset < end
    ]


@checked(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    source=f"{PTX_COPY}, im2col_no_offs; {H200}",
    subjects=COPY_RULES,
    code=715,
    passing=IMAGES
    | {"lower_corner": (0, 0), "upper_corner": (0, 0), "copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
    failing=IMAGES | {"copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
)
def _im2col_store(copy: Copy) -> Found:
    a = copy.tensor_map
    if copy.direction == "load" or a.subject != "im2col":
        return ()
    if min(a.lower_corner) >= 0 and max(a.upper_corner) <= 0:
        return ()
    return Breach(
        "lower_corner", f"corners {a.lower_corner} and {a.upper_corner}",
        "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0",
        "Encode a map without padding for the store: lower_corner and upper_corner of zeros.",
        values={"lower_corner": a.lower_corner, "upper_corner": a.upper_corner},
    )  # fmt: skip


@checked(
    "im2col-base", "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    source=H200, subjects=COPY_RULES, code=715,
    passing=IMAGES | {"copy": {"direction": "load", "coords": (0, -1, -1, 99)}},
    failing=IMAGES | {"copy": {"direction": "load", "coords": (0, -2, 0, 0)}},
)  # fmt: skip
def _im2col_base(copy: Copy) -> Found:
    a = copy.tensor_map
    if a.subject != "im2col" or len(copy.coords) != a.rank:
        return ()
    first = 0 if a.interleave.slice_bytes else 1  # interleaved coordinates start with W
    found = []
    for axis, (lower, upper) in enumerate(zip(a.lower_corner, a.upper_corner, strict=True), first):
        place, highest = copy.coords[axis], a.dims[axis] - 1 + upper
        if not lower <= place <= highest:
            nearest = (*copy.coords[:axis], min(max(place, lower), highest), *copy.coords[axis + 1 :])
            found.append(Breach(
                f"coords[{axis}]", f"coords[{axis}] = {place}", f"the bounding box runs from {lower} to {highest}",
                f"Use {nearest[axis]}: the offsets, not the base, reach a filter's taps.", {"coords": nearest},
                {"coord": place, "lowest": lower, "highest": highest},
            ))  # fmt: skip
    return found


@checked(
    "wide-base", "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    source='PTX ISA, "im2col::w and im2col::w::128 modes"', basis="documented", subjects=COPY_RULES, code=715,
    architectures=architectures_with("im2col_wide"),
    passing=WIDE | {"copy": {"direction": "load", "coords": (0, -9, 0, 0)}},
    failing=WIDE | {"copy": {"direction": "load", "coords": (0, 31, 0, 0)}},
)  # fmt: skip
def _wide_base(copy: Copy) -> Found:
    a = copy.tensor_map
    if a.subject != "wide" or len(copy.coords) != a.rank:
        return ()
    place, highest = copy.coords[1], a.dims[1] - 1 + a.upper_width  # the instruction's offset moves both alike
    if place <= highest:
        return ()
    return Breach(
        "coords[1]", f"coords[1] = {place}",
        f"the bounding box runs from {a.lower_width} to {highest}, and the copy starts in it or left of it",
        f"Use {highest} or less.", {"coords": (copy.coords[0], highest, *copy.coords[2:])},
        {"coord": place, "lowest": a.lower_width, "highest": highest},
    )  # fmt: skip
