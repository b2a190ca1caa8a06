"""What copies through im2col maps demand: offsets, corners of stores, base pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES, nearest
from tilescope.tensor_map.copy_instruction import Copy
from tilescope.tensor_map.limits import HALO_END, OFFSET_END, WIDE_OFFSET_END
from tilescope.tensor_map.record import ColumnFacts, Im2colFacts
from tilescope.tensor_map.rules.arch_limits import WIDE_ARCHITECTURES
from tilescope.tensor_map.samples import H200, IMAGES, PTX_COPY, WIDE, copy_sample

OFFSETS_RANGE = rule(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255 or 31 for rank 3, 4 or 5, one for each of W, H and D. An im2col-wide halo is "
    "below 512 (32 in mode W128), its offset below 32. Stores and tiled copies have no offsets.",
    argument="offsets[{axis}]",
    found="offsets[{axis}] = {offset}",
    limit="0 to {most} here",
    fix="Use {taken}: an offset is a filter tap's distance from the base pixel.",
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copy_sample("load", 0, 0, 0, 0, offsets=(255, 0)),
    failing=IMAGES | copy_sample("load", 0, 0, 0, 0, offsets=(256, 0)),
)
_TILED_OFFSETS = OFFSETS_RANGE.worded(
    argument="offsets", found="{offsets:offset}", limit="a tiled copy has none", fix="Leave offsets out."
)
_STORED_OFFSETS = _TILED_OFFSETS.worded(limit="an im2col store has none: im2col_no_offs")
_WIDE_OFFSETS = _TILED_OFFSETS.worded(
    limit="{wanted} for an im2col-wide map", fix="Use (0, 0): the halo and the offset."
)
_IM2COL_OFFSETS = _TILED_OFFSETS.worded(
    limit="{wanted} for an im2col map of rank {rank}", fix="Use {zeros}, for example: {walked:, }."
)


def wrong_offsets(copy: Copy) -> Iterable[Violation]:
    """Offsets that are out of range, too many or too few."""
    return _offsets_of_kind(copy) if copy.offsets else ()


def _offsets_of_kind(copy: Copy) -> Iterator[Violation]:
    a = copy.tensor_map
    count = len(copy.offsets)
    ends = _offset_ends(copy)
    if count == len(ends):
        yield from _offsets_out_of_range(copy.offsets, ends)
    elif a.subject == "wide":
        yield _WIDE_OFFSETS.violation(offsets=count, wanted=len(ends))
    elif a.subject == "tiled":
        yield _TILED_OFFSETS.violation(offsets=count, wanted=0)
    elif copy.direction != "load":
        yield _STORED_OFFSETS.violation(offsets=count, wanted=0)
    else:
        expected = len(ends)
        yield _IM2COL_OFFSETS.violation(
            offsets=count, wanted=expected, rank=a.rank, zeros=(0,) * expected, walked=tuple("WHD"[:expected])
        )


def _offset_ends(copy: Copy) -> tuple[int, ...]:
    """What the offsets of a copy stay below; one for each that it has."""
    a = copy.tensor_map
    if a.subject == "wide":
        return HALO_END[a.mode], WIDE_OFFSET_END
    if a.subject == "im2col" and copy.direction == "load":
        rank = len(copy.tensor_map.dims)
        return (OFFSET_END[rank],) * (rank - 2)
    return ()


def _offsets_out_of_range(offsets: tuple[int, ...], ends: tuple[int, ...]) -> Iterator[Violation]:
    taken = tuple(nearest(offset, 0, end - 1) for offset, end in zip(offsets, ends, strict=True))
    for axis, offset in enumerate(offsets):
        if offset != taken[axis]:
            yield OFFSETS_RANGE.violation(
                axis=axis, offset=offset, most=ends[axis] - 1, taken=taken[axis], change={"offsets": taken}
            )


IM2COL_STORE = rule(
    "im2col-store",
    "An im2col store has lower corners of 0 or more and upper corners of 0 or less.",
    argument="lower_corner",
    found="corners {lower_corner} and {upper_corner}",
    limit="im2col_no_offs stores need lower corners >= 0 and upper corners <= 0",
    fix="Encode a map without padding for the store: lower_corner = upper_corner = {zeros}.",
    source=f"{PTX_COPY}, im2col_no_offs; {H200}",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copy_sample("store", 0, 0, 0, 0) | {"lower_corner": (0, 0), "upper_corner": (0, 0)},
    failing=IMAGES | copy_sample("store", 0, 0, 0, 0),
    code=715,
)


def padded_store(copy: Copy) -> Iterable[Violation]:
    """Stores through a map that walks beyond the image."""
    if copy.direction == "load" or copy.tensor_map.subject != "im2col":
        return ()
    a: Im2colFacts = copy.tensor_map
    if min(a.lower_corner) >= 0 >= max(a.upper_corner):
        return ()
    zeros = (0,) * len(a.lower_corner)
    return (IM2COL_STORE.violation(lower_corner=a.lower_corner, upper_corner=a.upper_corner, zeros=zeros),)


IM2COL_BASE = rule(
    "im2col-base",
    "The base pixel of an im2col copy is inside the bounding box; N may be outside the tensor.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="the bounding box runs from {lowest} to {highest}",
    fix="Use {taken}: the offsets, not the base, reach a filter's taps.",
    source=H200,
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copy_sample("load", 0, -1, -1, 99),
    failing=IMAGES | copy_sample("load", 0, -2, 0, 0),
    code=715,
)
WIDE_BASE = rule(
    "wide-base",
    "The base pixel of an im2col-wide copy may be to the left of the bounding box, but not to the right of it.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="the bounding box runs from {lowest} to {highest}, and the copy starts in it or left of it",
    fix="Use {taken} or less.",
    source='PTX ISA, "im2col::w and im2col::w::128 modes"',
    subjects=("instruction",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE | copy_sample("load", 0, -9, 0, 0),
    failing=WIDE | copy_sample("load", 0, 31, 0, 0),
    code=715,
)


def base_outside(copy: Copy) -> Iterable[Violation]:
    """Base pixels outside the bounding box."""
    if copy.tensor_map.subject == "tiled" or len(copy.coords) != len(copy.tensor_map.dims):
        return ()
    return _bases_outside(copy, copy.tensor_map)


def _bases_outside(copy: Copy, a: ColumnFacts) -> Iterator[Violation]:
    is_wide = a.subject == "wide"
    wording = WIDE_BASE if is_wide else IM2COL_BASE
    for axis, lowest, upper in a.corners:
        place = copy.coords[axis]
        highest = a.dims[axis] - 1 + upper  # an im2col-wide offset moves both in the same way
        if place > highest or (place < lowest and not is_wide):
            taken = nearest(place, lowest, highest)
            yield wording.violation(
                axis=axis,
                coord=place,
                lowest=lowest,
                highest=highest,
                taken=taken,
                change={"coords": (*copy.coords[:axis], taken, *copy.coords[axis + 1 :])},
            )
