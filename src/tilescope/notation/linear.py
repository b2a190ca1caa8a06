"""Layouts that map every bit of an offset to an index: Triton's linear layouts.

    offset bit   0      1      2      3      4      5             4 x 16 elements
    basis      [0,1]  [0,2]  [0,4]  [0,8]  [1,4]  [2,8]

The offset is the XOR of its bits, so the index is the XOR of their bases. A basis of one index bit is a stride; one
that also has the index bit of a lower offset bit (here 4 and 8) is a swizzle: bits 4 and 5 of the offset change bits 2
and 3. If all such bases follow one another with the same distance, they are one XOR of the address. A basis of zeros is
a gap without an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tilescope.layout import Layout, Modes
from tilescope.layout.modes import Pairs, coalesced, steps_of
from tilescope.notation.hints import byte_base, on_pattern, xor_swizzle
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE, Swizzle

Basis = tuple[int, ...]

LINEAR_BASES = rule(
    "linear-bases",
    "A linear layout has an address map if it consists of strides and one XOR: each basis has one index bit, or one "
    "and that of an offset bit equally far below.",
    argument="text",
    found="basis {basis} of offset bit {offset_bit}",
    limit="one separate index bit, and at most one of an offset bit below",
    fix="A swizzle of more than one XOR has no address map here.",
    source="Triton, LinearLayout.h; CuTe, Swizzle<B,M,S>",
    passing='ts.parse_layout("#ttg.shared_linear<{offset = [[0, 1], [0, 2], [1, 1], [2, 2]]}, alignment = 16>", element_bits=16)',
    failing='ts.parse_layout("#ttg.shared_linear<{offset = [[0, 1], [0, 2], [1, 1], [2, 1]]}, alignment = 16>", element_bits=16)',
)


PADDED_SWIZZLE = LINEAR_BASES.worded(limit="with padding, every basis is one index bit", fix="Remove the intervals.")
UNEVEN_XOR = LINEAR_BASES.worded(
    limit="offset bits {first} to {last} change the bits {shift} below them, and this one does not",
    fix="Use a basis that changes bit {wanted}.",
)
MISSING_BASIS = LINEAR_BASES.worded(
    found="no basis leads to {step} of index {index}",
    limit="index {index} reaches {reaches}",
    fix="Add the basis {basis}.",
)


def unit_bases(shape: Sequence[int], indices: Iterable[int], start: Sequence[int] | None = None) -> list[Basis]:
    """The bases of these indices, the first fastest, from `start` up to their extents, powers of two.

    >>> unit_bases((2, 8), (1, 0))
    [(0, 1), (0, 2), (0, 4), (1, 0)]
    """
    bases = []
    for index in indices:
        first_bit = start[index].bit_length() - 1 if start else 0
        end_bit = shape[index].bit_length() - 1
        for bit in range(first_bit, end_bit):
            basis = [0] * len(shape)
            basis[index] = 1 << bit
            bases.append(tuple(basis))
    return bases


def extents_of(bases: Sequence[Basis]) -> tuple[int, ...]:
    """The shape that the bases reach.

    >>> extents_of([(0, 1), (0, 2), (1, 2)])
    (2, 4)
    """
    return tuple(1 << max(column).bit_length() for column in zip(*bases, strict=True))


def layout_of(
    bases: Sequence[Basis],
    element_bits: int,
    *,
    padding: Sequence[Sequence[int]] = (),
    buffers: int = 1,
    start: int = 0,
) -> Layout:
    """The layout with these bases, innermost offset bit first; `buffers` of it, one after the other, are its first index.

    `padding` lists (interval, elements): after every interval of elements there are this many unused ones.

    >>> str(layout_of([(0, 1), (0, 2), (1, 0)], 16, padding=[(4, 2)]).modes)
    '(2,4):(6,1)'
    """
    offset_bits = _offset_bits(bases)
    swizzle = _swizzle(offset_bits.xor, element_bits, len(bases))
    if offset_bits.xor.sources and padding:
        first = offset_bits.xor.sources[0]
        raise PADDED_SWIZZLE.error(basis=list(bases[first]), offset_bit=first)
    strides = [1 << bit for bit in range(len(bases) + 1)]
    if padding:
        strides = [step + sum(step // interval * elements for interval, elements in padding) for step in strides]
    indices: list[Pairs] = [((buffers, strides[-1]),)] if buffers > 1 else []
    for index, place_of in enumerate(offset_bits.places):
        reach = sum(place_of)
        if reach & (reach + 1):
            step = ~reach & (reach + 1)
            basis = [0] * len(offset_bits.places)
            basis[index] = step
            raise MISSING_BASIS.error(step=step, index=index, reaches=max(place_of), basis=basis)
        indices.append(coalesced(*[(2, strides[place_of[step]]) for step in sorted(place_of)]))
    start = on_pattern(start, swizzle)
    return Layout.from_modes(Modes.of_indices(indices), element_bits, swizzle=swizzle, start=start)


def padded_bases(layout: Layout) -> tuple[list[Basis], list[tuple[int, int]]] | None:
    """The bases of a layout whose elements have padding between them, and the (interval, elements) of it; None for any other.

    Elements that differ in one bit of the offset are twice as far apart as those of the previous bit, plus the padding
    of this interval:

    >>> padded_bases(Layout((2, 4), 16, padding_bytes=4))
    ([(0, 1), (0, 2), (1, 0)], [(4, 2)])
    """
    if layout.modes is None or layout.swizzle.bits:
        return None
    bases: list[Basis] = []
    padding: list[tuple[int, int]] = []
    expected = 1
    for step in steps_of(layout.modes.indices):
        if step.extent & (step.extent - 1):
            return None
        for bit in range(step.extent.bit_length() - 1):
            distance = step.stride << bit
            unused = distance - expected
            if unused < 0 or unused & (unused - 1):
                return None
            if unused:
                padding.append((1 << len(bases), unused))
            basis = [0] * len(layout.shape)
            basis[step.place] = step.weight << bit
            bases.append(tuple(basis))
            expected = 2 * distance
    return (bases, padding) if padding else None


class _Xor(NamedTuple):
    """The XOR of a layout: the offset bits that change others, and how far below them those are."""

    sources: list[int]
    shift: int


class _OffsetBits(NamedTuple):
    """The meaning of the bits of an offset."""

    places: list[dict[int, int]]  # for every index, the offset bit of each of its steps 1, 2, 4 …
    xor: _Xor


def _offset_bits(bases: Sequence[Basis]) -> _OffsetBits:
    """The bases read; refused where they are more than strides and one XOR."""
    places: list[dict[int, int]] = [{} for _ in bases[0]]
    sources: list[int] = []
    shift = 0
    for place, basis in enumerate(bases):
        new_steps = 0
        lower = []
        for index_places, part in zip(places, basis, strict=True):
            remaining = part
            while remaining:
                step = remaining & -remaining
                remaining -= step
                if step in index_places:
                    lower.append(index_places[step])
                else:
                    index_places[step] = place
                    new_steps += 1
        if new_steps > 1 or len(lower) > new_steps:
            raise LINEAR_BASES.error(basis=list(basis), offset_bit=place)
        if lower:
            if sources and (place - lower[0] != shift or place != sources[-1] + 1):
                raise UNEVEN_XOR.error(
                    basis=list(basis),
                    offset_bit=place,
                    first=sources[0],
                    last=sources[-1],
                    shift=shift,
                    wanted=place - shift,
                )
            shift = place - lower[0]
            sources.append(place)
    return _OffsetBits(places, _Xor(sources, shift))


def _swizzle(xor: _Xor, element_bits: int, offset_bits: int) -> Swizzle:
    """The XOR of byte addresses; where the tile ends before the pattern does, the mode of the hardware it begins."""
    if not xor.sources:
        return SWIZZLE["none"]
    base = byte_base(xor.sources[0] - xor.shift, element_bits)
    bits = len(xor.sources)
    if xor.sources[-1] == offset_bits - 1:
        for longer in range(bits, xor.shift + 1):
            mode = xor_swizzle(longer, base, xor.shift).hardware_mode
            if mode is not None:
                return mode
    return xor_swizzle(bits, base, xor.shift)
