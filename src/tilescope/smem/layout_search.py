"""The layouts of a tile on which several access patterns together cost least.

Tried in this order: the plain tile; the hardware's swizzle modes, in columns of one span as TMA writes
them; every other XOR swizzle that moves bank bits; every padding of the rows. The search is exhaustive,
yet small, because most instructions of a walk are one instruction moved:

    XOR swizzles    are linear: swizzle(a ^ t) = swizzle(a) ^ swizzle(t). Lanes that all move by one XOR
                    land in other banks, but collide as before
    paddings        keep sums: lanes that all move by the same rows and bytes (whole words) do too

So one instruction of each kind is counted and multiplied, and the answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from tilescope.errors import RuleError, argument_range, argument_type
from tilescope.layout import Layout, oriented
from tilescope.reading import integer
from tilescope.smem.access import Access, placed
from tilescope.smem.banks import Addresses, Mask, count_ideal, count_least, count_wavefronts
from tilescope.smem.op import BANK_BYTES, SmemOp
from tilescope.smem.pattern import tile_bytes
from tilescope.smem.report import access_list
from tilescope.swizzle import SMEM_LINE_BYTES, SWIZZLE, Swizzle
from tilescope.value import Value, row_field

Family = Literal["plain", "hardware", "xor", "padding"]
FAMILIES: tuple[Family, ...] = ("plain", "hardware", "xor", "padding")
_MAX_PADDING_BYTES = 1024
_BATCH_ACCESSES = 2048  # counted together
_LANES = ("16x2", "8x4", "4x8", "2x16")  # other ways to deal a warp: rows x pieces
_UNUSED = -(1 << 62)  # no distance between two lanes


class _Walk(NamedTuple):
    """The instructions of a pattern: offsets in the plain tile, one row for each, and the lanes that take part."""

    op: SmemOp
    address: Addresses
    mask: Mask | None


@dataclass(frozen=True, slots=True)
class FoundLayout(Value):
    """One layout with its proof: the wavefronts of each pattern on it."""

    family: Family
    layout: Layout
    wavefronts: tuple[int, ...]  # of each pattern, in their order
    excess: int  # of all patterns together

    @property
    def extra_bytes(self) -> int:
        """Shared memory that the padding takes."""
        tile = self.layout.as_rows().tiling
        return tile.shape[0] * tile.padding_bytes

    @property
    def label(self) -> str:
        """The layout in a few words.

        >>> find_layouts(Access.columns((64, 64), 32), tile=(64, 64), element_bits=32).best.label
        'swizzle 128B in 2 columns of atoms'
        """
        if self.family == "plain":
            return "plain rows"
        if self.family == "padding":
            return f"pad rows by {self.layout.padding_bytes} bytes"
        across = self.layout.as_rows().tiling.grid[1]
        swizzled = f"swizzle {self.layout.swizzle.name}"
        return f"{swizzled} in {across} columns of atoms" if across > 1 else swizzled


@dataclass(frozen=True, slots=True)
class LayoutSearch(Value):
    """All layouts with the least excess, best known first, and what was tried.

    >>> tile = (64, 64)
    >>> search = find_layouts([Access.rows(tile, 16, "st.b128"), Access.ldmatrix(tile, 16)], tile=tile, element_bits=16)
    >>> search.best.label, search.best.wavefronts, search.conflict_free
    ('swizzle 128B', (64, 64), True)
    """

    tile: tuple[int, int]
    element_bits: int
    max_padding_bytes: int
    patterns: tuple[str, ...]
    ideal: tuple[int, ...]  # wavefronts of each pattern without any conflict
    found: tuple[FoundLayout, ...]  # at least one: the plain tile is among those tried
    tried: Mapping[str, int] = field(hash=False)  # layouts of each family
    bound: tuple[int, ...]  # wavefronts of each pattern that no layout undercuts
    widest: SmemOp = row_field(SmemOp.named)  # whose bytes stay together: the reason for the bound
    other_lanes: LayoutSearch | None = None  # if conflicts remain: the same with another order of a pattern's lanes
    hardware: FoundLayout | None = None  # the best of the hardware's modes, with conflicts or without; None: none fits

    def __iter__(self) -> Iterator[FoundLayout]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @property
    def best(self) -> FoundLayout:
        """The first of those found: the hardware's own mode where one serves."""
        return self.found[0]

    @property
    def conflict_free(self) -> bool:
        """Whether some layout serves every pattern without a conflict."""
        return self.best.excess == 0

    @property
    def conclusion(self) -> str:
        """What the search showed, in a sentence."""
        among = f"of {sum(self.tried.values())} layouts tried"
        if self.conflict_free:
            return f"{len(self.found)} {among} serve every pattern without a conflict."
        sentence = (
            f"None {among} serves every pattern without a conflict: the least excess is {self.best.excess} wavefronts."
        )
        return " ".join([sentence, *self.reasons])

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why no layout at all can serve some patterns, and what else helps."""
        reasons = []
        width = self.widest.access_bytes
        bounded = [
            f"{name} takes at least {least} wavefronts, {ideal} without conflicts"
            for name, least, ideal in zip(self.patterns, self.bound, self.ideal, strict=True)
            if least > ideal
        ]
        if bounded:
            verb = "loads" if self.widest.is_load else "stores"
            places = f"{width}-byte {verb} leave a column {SMEM_LINE_BYTES // width} banks"
            reasons.append(f"No layout can: {places}, so {', and '.join(bounded)}.")
        if self.other_lanes is not None:
            changed = [
                f"{new} in place of {old}"
                for old, new in zip(self.patterns, self.other_lanes.patterns, strict=True)
                if old != new
            ]
            label = self.other_lanes.best.label
            reasons.append(
                f"With the lanes dealt otherwise, {', '.join(changed)} (rows x pieces), {label} leaves no conflict."
            )
        return tuple(reasons)


def find_layouts(
    accesses: Access | Iterable[Access],
    *,
    tile: tuple[int, int] | Layout,
    element_bits: int | None = None,
    max_padding_bytes: int = 128,
) -> LayoutSearch:
    """The layouts of the tile with the fewest excess wavefronts over all patterns.

    Patterns are those of a plain tile (rows, columns) of elements of `element_bits`, or of the tile of a layout. Rows may
    be padded by up to `max_padding_bytes` (beyond a line of 128 bytes, paddings repeat themselves).

    >>> tile = (32, 32)  # of floats: rows are written, columns read
    >>> search = find_layouts([Access.rows(tile, 32, "st.b32"), Access.transpose(tile, 32)], tile=tile, element_bits=32)
    >>> search.best.label, search.best.wavefronts
    ('swizzle xor:5,2,5', (32, 32))
    >>> find_layouts(Access.ldmatrix((64, 64), 16), tile=Layout((64, 64), 16, padding_bytes=16)).best.layout
    Layout((64, 64), 16, swizzle="128B")
    """
    patterns = access_list(accesses)
    plain = _plain_tile(tile, element_bits)
    search = _search_plain(patterns, plain, max_padding_bytes)
    if search.conflict_free:
        return search
    return replace(search, other_lanes=next(_dealt_otherwise(patterns, plain, search), None))


def _dealt_otherwise(patterns: list[Access], plain: Layout, found: LayoutSearch) -> Iterator[LayoutSearch]:
    """Searches without a conflict, in which the lanes of one pattern of rows or columns take a block of the tile."""
    tile = plain.as_rows().shape
    for number, access in enumerate(patterns):
        if access.name not in (f"{access.op.name} rows", f"{access.op.name} columns"):
            continue
        for lanes in _LANES:
            try:
                dealt = Access.named(f"{access.op.name} lanes {lanes}", tile, plain.element_bits)
            except RuleError:
                continue
            other = _search_plain([*patterns[:number], dealt, *patterns[number + 1 :]], plain, found.max_padding_bytes)
            if other.conflict_free:
                yield other


def _search_plain(patterns: list[Access], plain: Layout, max_padding_bytes: int) -> LayoutSearch:
    """The best layouts for the patterns as they are."""
    _, row_bytes = tile_bytes(plain.as_rows().shape, plain.element_bits)
    max_padding_bytes = integer("max_padding_bytes", max_padding_bytes, 0, _MAX_PADDING_BYTES)
    for access in patterns:
        access.on(plain)  # refuses what was made for another tile, or placed already
    widest = max((access.op for access in patterns), key=lambda op: op.access_bytes)
    candidates = _candidates(plain, row_bytes, widest.access_bytes, max_padding_bytes)
    walks = [_Walk(access.op, *access.flat()) for access in patterns]
    ideal = tuple(int(count_ideal(*walk).sum()) for walk in walks)
    everything = []
    for family, layouts in candidates.items():
        counts = [_family_counts(family, walk, layouts, row_bytes).tolist() for walk in walks]
        for layout, *wavefronts in zip(layouts, *counts, strict=True):
            everything.append(FoundLayout(family, layout, tuple(wavefronts), sum(wavefronts) - sum(ideal)))
    least = min(candidate.excess for candidate in everything)
    by_hardware = [candidate for candidate in everything if candidate.family == "hardware"]
    return LayoutSearch(
        tile=plain.as_rows().shape,
        element_bits=plain.element_bits,
        max_padding_bytes=max_padding_bytes,
        patterns=tuple(access.name for access in patterns),
        ideal=ideal,
        found=tuple(candidate for candidate in everything if candidate.excess == least),
        tried={family: len(layouts) for family, layouts in candidates.items()},
        bound=tuple(int(count_least(*walk, widest.access_bytes).sum()) for walk in walks),
        widest=widest,
        hardware=min(by_hardware, key=lambda candidate: candidate.excess, default=None),
    )


def _plain_tile(tile: tuple[int, int] | Layout, element_bits: int | None) -> Layout:
    """The tile row after row, from address 0."""
    if not isinstance(tile, Layout):
        if element_bits is None:
            expected = "the bits of an element of the tile"
            raise RuleError([argument_type("element_bits", None, expected, "Use 16 for bf16 or f16, 32 for f32.")])
        return Layout(tile, element_bits)
    if element_bits not in (None, tile.element_bits):
        limit = f"the layout has elements of {tile.element_bits} bits"
        change = {"element_bits": tile.element_bits}
        raise RuleError([argument_range("element_bits", element_bits, limit, "Leave element_bits out.", change)])
    shape = tile.as_rows().tiling.shape
    return Layout(oriented(tile.major, *shape), tile.element_bits, major=tile.major or "K")


def _candidates(plain: Layout, row_bytes: int, widest_bytes: int, max_padding_bytes: int) -> dict[Family, list[Layout]]:
    """Every layout to try that keeps accesses of `widest_bytes` whole."""
    rows, columns = plain.as_rows().shape
    bits = plain.element_bits
    major = plain.major or "K"
    modes = [mode for mode in SWIZZLE.values() if _fits(plain, row_bytes, mode, widest_bytes)]
    modes.sort(key=lambda mode: (mode.feature != "tma", -(mode.span_bytes or 0)))  # every TMA supports it; widest first
    atoms = {mode: oriented(major, rows, (mode.span_bytes or 0) * 8 // bits) for mode in modes}
    make = partial(Layout, oriented(major, rows, columns), bits, major=major)
    hardware_triples = {_triple(mode) for mode, atom in atoms.items() if atom == plain.shape}
    swizzles = _xor_swizzles(plain.size_bytes, max(widest_bytes, BANK_BYTES))
    return {
        "plain": [plain],
        "hardware": [make(atom=atom, swizzle=mode) for mode, atom in atoms.items()],
        "xor": [make(swizzle=swizzle) for swizzle in swizzles if _triple(swizzle) not in hardware_triples],
        "padding": [
            make(padding_bytes=padding)
            for padding in range(1, max_padding_bytes + 1)
            if (row_bytes + padding) % widest_bytes == 0 and padding * 8 % bits == 0
        ],
    }


def _fits(plain: Layout, row_bytes: int, mode: Swizzle, widest_bytes: int) -> bool:
    """Whether the tile is cut into columns of the mode's span, and the mode leaves an access whole."""
    return (
        mode.span_bytes is not None
        and row_bytes % mode.span_bytes == 0
        and mode.span_bytes * 8 % plain.element_bits == 0
        and plain.size_bytes % mode.block_bytes == 0
        and widest_bytes <= (mode.flip_bytes or mode.atom_bytes)
    )


def _xor_swizzles(tile_size_bytes: int, piece_bytes: int) -> Iterator[Swizzle]:
    """XOR swizzles that move bank bits by bits that the tile has: large pieces first, few bits first."""
    line_bits = SMEM_LINE_BYTES.bit_length() - 1
    tile_bits = (tile_size_bytes - 1).bit_length()
    for base in reversed(range(piece_bytes.bit_length() - 1, line_bits)):
        for bits in range(1, line_bits - base + 1):
            if tile_size_bytes % (1 << base + bits) == 0:  # the tile is permuted within itself
                for shift in range(bits, tile_bits - base - bits + 1):
                    yield Swizzle.xor(bits, base, shift)


def _triple(swizzle: Swizzle) -> tuple[int, int, int, int]:
    return swizzle.bits, swizzle.base, swizzle.shift, swizzle.flip_bytes


def _family_counts(family: Family, walk: _Walk, layouts: list[Layout], row_bytes: int) -> Addresses:
    """Wavefronts of all the pattern's instructions together, on each layout."""
    if not layouts:
        return np.zeros(0, np.int64)
    kinds = _kinds(family, walk.address, walk.mask, row_bytes)
    addresses = walk.address[kinds.first]
    kind_masks = None if walk.mask is None else walk.mask[kinds.first]
    batch = max(1, _BATCH_ACCESSES // max(1, len(addresses)))
    totals = []
    for first in range(0, len(layouts), batch):
        here = layouts[first : first + batch]
        physical = np.concatenate([_place_offsets(family, walk.op, addresses, layout, row_bytes) for layout in here])
        masks = None if kind_masks is None else np.tile(kind_masks, (len(here), 1))
        counts = count_wavefronts(walk.op, physical, masks)
        totals.append(counts.reshape(len(here), len(addresses)) @ kinds.occurrences)
    return np.concatenate(totals)


class _Kinds(NamedTuple):
    """Instructions that a family of layouts does not tell apart, kind by kind."""

    first: Addresses  # the number of one instruction of every kind
    occurrences: Addresses  # how often the kind is there


def _kinds(family: Family, address: Addresses, mask: Mask | None, row_bytes: int) -> _Kinds:
    """The kinds of a pattern's instructions under a family of layouts."""
    if family in ("plain", "hardware"):
        return _Kinds(np.arange(len(address)), np.ones(len(address), np.int64))
    used = np.ones(address.shape, np.bool_) if mask is None else mask
    first = used.argmax(axis=1)[:, None]
    if family == "xor":
        key = np.where(used, address ^ np.take_along_axis(address, first, axis=1), _UNUSED)
    else:
        parts = []
        for place in np.divmod(address, row_bytes):  # row, byte in it
            start = np.take_along_axis(place, first, axis=1)
            parts.append(np.where(used, place - start, _UNUSED))
            parts.append(start % BANK_BYTES)  # moved by whole words for any pitch
        key = np.concatenate(parts, axis=1)
    numbers: dict[bytes, list[int]] = {}  # np.unique by rows takes twice as long
    for number, row in enumerate(key):
        numbers.setdefault(row.tobytes(), []).append(number)
    return _Kinds(
        first=np.array([alike[0] for alike in numbers.values()]),
        occurrences=np.array([len(alike) for alike in numbers.values()]),
    )


def _place_offsets(family: Family, op: SmemOp, offset: Addresses, layout: Layout, row_bytes: int) -> Addresses:
    """The offsets placed on one of the family's layouts; swizzled or padded plain tiles need no more than this."""
    if family == "xor":
        return layout.swizzle.apply(offset).astype(np.int64, copy=False)
    if family == "padding":
        return offset + offset // row_bytes * (layout.padding_bytes or 0)
    return placed(op, offset, layout)
