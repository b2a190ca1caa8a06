"""A tile anywhere in a dump: at any byte, with rows any distance apart, under any XOR swizzle.

Pieces that occur once in the tile are looked up in the dump. A swizzle and the line at which the dump starts undo the
XOR of every place. If they are the right ones, the places are a linear function on which most pieces agree:

    piece (row, column) at byte p      logical = swizzle(p + line * 128) - line * 128
                                       logical = offset + row * pitch + column          rows: pitch and offset by a vote
                                       logical = offset + what a grid of atoms says     atoms, boxes: offset by a vote
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.layout import Layout
from tilescope.swizzle import SMEM_LINE_BYTES, SWIZZLE, Swizzle

_ANCHORS = 48  # pieces that are looked up
_FEWER_ANCHORS = 16  # in a dump of more bytes than shared memory has
_LONG_DUMP_BYTES = 1 << 20
_OCCURRENCES = 4  # limit of places of one piece in the dump; a piece with more places is not informative
_ENOUGH = 0.9  # share of the anchors that settles the search
_LEAST = 0.125  # share of the anchors below which nothing was found
_FEWEST = 3  # anchors that must agree
_MAX_LINES_TRIED = 32  # of a swizzle's pattern, for the dump to start on
_PAIRED = 6  # pieces behind one that are compared with it for the distance of rows
_PIECES_BYTES = (16, 8, 4, 2, 1)  # widest first: a swizzle leaves them whole
_TELLING_BYTES = 4  # narrower pieces occur by chance
_KEPT = 4  # sightings, of all that were found
Ints = npt.NDArray[np.int64]
Tile = npt.NDArray[np.unsignedinteger]  # (rows, columns)
Forms = Callable[[tuple[int, ...], int, Swizzle], Iterator[Layout]]


class Sighting(NamedTuple):
    """A layout, and how many of the looked-up pieces of the tile are in the dump where it has them."""

    hits: int
    layout: Layout  # of the tile or its transpose; starts at the dump's phase plus the offset
    offset: int  # of the tile's first byte in the dump


class _Match(NamedTuple):
    """A place where the dump holds a piece of the tile."""

    place: int  # in the dump
    row: int
    byte: int  # in the row
    anchor: int  # which piece it is


class _Matches(NamedTuple):
    """All of them, an entry for each in every array."""

    place: Ints
    row: Ints
    byte: Ints
    anchor: Ints
    anchors: int  # pieces that were looked up

    @property
    def present(self) -> int:
        """How many pieces the dump has."""
        return len(np.unique(self.anchor))


def sightings(dump: npt.NDArray[np.uint8], tile: Tile, start: int | None, forms: Forms) -> list[Sighting]:
    """The likeliest places of a 2-D tile in the dump, best first; none where only chance would explain them."""
    content = dump.tobytes()
    best: list[Sighting] = []
    recognised = 0.0  # share of the anchors that the best layout explains
    for piece_bytes in _piece_widths(tile):
        matches = _matches(content, tile, piece_bytes)
        share = matches.present / max(1, matches.anchors)
        if matches.present < _FEWEST or share < max(_LEAST, recognised + _LEAST):  # not more than wider pieces: chance
            continue
        for swizzles in (SWIZZLE.values(), _xor_swizzles(piece_bytes)):
            for swizzle in swizzles:
                best += _under(swizzle, matches, tile, start, forms)
            best = sorted(best, key=lambda sighting: -sighting.hits)[:_KEPT]  # a stable sort: the simplest first
            recognised = best[0].hits / matches.anchors if best else 0
            if recognised >= _ENOUGH * share:
                break
        if recognised >= _ENOUGH:
            break
    return best


def places_in_pattern(swizzle: Swizzle, start: int | None) -> list[int]:
    """Where the dump may start within the swizzle's pattern, in bytes: by its address, or on any line where that is unknown."""
    if start is not None:
        return [start % (swizzle.period_lines * SMEM_LINE_BYTES)]
    return [line * SMEM_LINE_BYTES for line in range(min(swizzle.period_lines, _MAX_LINES_TRIED))]


def _piece_widths(tile: Tile) -> list[int]:
    """The pieces that rows of the tile are made of, widest first."""
    row_bytes = tile.shape[1] * tile.itemsize
    least_bytes = tile.itemsize
    if row_bytes % _TELLING_BYTES == 0:
        least_bytes = max(tile.itemsize, _TELLING_BYTES)
    return [width for width in _PIECES_BYTES if width >= least_bytes and row_bytes % width == 0]


def _matches(content: bytes, tile: Tile, piece_bytes: int) -> _Matches:
    """Places of some pieces that the tile has once and the dump rarely."""
    pieces = np.ascontiguousarray(tile).view(np.dtype(f"V{piece_bytes}"))
    _, first, count = np.unique(pieces.view(f"S{piece_bytes}"), return_index=True, return_counts=True)
    single = first[count == 1]
    anchors = _ANCHORS if len(content) < _LONG_DUMP_BYTES else _FEWER_ANCHORS
    chosen = np.sort(np.random.default_rng(0).permutation(single)[:anchors])
    matches: list[_Match] = []
    for number, index in enumerate(chosen.tolist()):
        row, column = divmod(index, pieces.shape[1])
        places = _places(content, pieces[row, column].tobytes())
        matches += [_Match(place, row, column * piece_bytes, number) for place in places]
    occurrences = Counter(match.anchor for match in matches)
    once = [match for match in matches if occurrences[match.anchor] == 1]
    if len(once) >= anchors // 2:  # enough that leave no doubt
        matches = once
    columns = np.array(matches, np.int64).reshape(-1, len(_Match._fields)).T
    return _Matches(columns[0], columns[1], columns[2], columns[3], len(chosen))


def _places(content: bytes, piece: bytes) -> list[int]:
    places: list[int] = []
    at = content.find(piece)
    while at >= 0:
        places.append(at)
        if len(places) > _OCCURRENCES:
            return []
        at = content.find(piece, at + 1)
    return places


def _xor_swizzles(piece_bytes: int) -> Iterator[Swizzle]:
    """XOR swizzles other than the hardware's that leave pieces whole, few bits and short shifts first."""
    hardware = {(row.bits, row.base, row.shift) for row in SWIZZLE.values()}
    for bits in range(1, 6):
        for base in range(piece_bytes.bit_length() - 1, 9):
            for shift in range(bits, 11):
                if base + bits <= 10 and base + bits + shift <= 15 and (bits, base, shift) not in hardware:
                    yield Swizzle.xor(bits, base, shift)


def _under(swizzle: Swizzle, found: _Matches, tile: Tile, start: int | None, forms: Forms) -> Iterator[Sighting]:
    """What the pieces agree on under a swizzle, for every line on which the dump may start; XOR swizzles have plain rows."""
    size = tile.itemsize
    row_bytes = tile.shape[1] * size
    layouts = list(forms(tile.shape, size, swizzle)) if swizzle.feature is not None else []
    grids = [layout for layout in layouts if layout.atom != layout.shape]
    within = [layout.logical(found.row, found.byte // size) - layout.start for layout in grids]
    for begin in places_in_pattern(swizzle, start):
        place = swizzle.apply(found.place + begin) - begin
        pitch = _pitch(place - found.byte, found.row, row_bytes)
        if (pitch - row_bytes) % size:
            continue
        in_rows = found.row * pitch + found.byte
        for grid, logical in zip([None, *grids], [in_rows, *within], strict=True):
            offsets, count = np.unique(place - logical, return_counts=True)
            offset = int(offsets[count.argmax()])  # the start of the tile for most pieces
            hits = len(set(found.anchor[place - logical == offset].tolist()))
            if offset < 0 or hits < max(_FEWEST, _LEAST * found.anchors):
                continue
            layout = grid
            if layout is None:
                layout = Layout(tile.shape, size * 8, padding_bytes=pitch - row_bytes, swizzle=swizzle)
            yield Sighting(hits, layout.with_start(begin + offset), offset)


def _pitch(start: Ints, row: Ints, row_bytes: int) -> int:
    """The distance of rows that most pairs of near pieces agree on; that of dense rows where none do."""
    rows_apart = np.concatenate([row[distance:] - row[:-distance] for distance in range(1, _PAIRED + 1)])
    bytes_apart = np.concatenate([start[distance:] - start[:-distance] for distance in range(1, _PAIRED + 1)])
    are_apart = rows_apart > 0
    step, remainder = np.divmod(bytes_apart[are_apart], rows_apart[are_apart])
    steps, count = np.unique(step[(remainder == 0) & (step >= row_bytes)], return_counts=True)
    return int(steps[count.argmax()]) if len(steps) else row_bytes
