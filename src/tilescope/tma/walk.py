"""The rows that a copy visits: for each row of shared memory, its origin in the tensor, and the addresses of its pieces.

In every mode, a copy is a list of *rows*. Rows follow one another in shared memory, each starts at a multiple of 16
bytes in both memories, and the tensor's inner edge cuts all of them at the same place:

    tensor, dims (20, 5)                 box (16, 3) at coords (8, 3)

    ····················                 row  coords   start      inside
    ····················                  0   (8, 3)   3 S + 8 e  yes     ┌─────────┐···
    ····················                  1   (8, 4)   4 S + 8 e  yes     └─────────┘···   low = 0
    ········▓▓▓▓▓▓▓▓▓▓▓▓····              2   (8, 5)   -          no      ··············   high = 12 e
    ········▓▓▓▓▓▓▓▓▓▓▓▓····                                             ◀── inner row ──▶
            ················             S: strides_bytes[0], e: bytes of an element

    tiled          a row is box[0] elements; dim 1 runs fastest, then dim 2, …
    interleaved    a row is one pixel of one slice: 16 or 32 bytes; W runs fastest, the slice stays
    im2col         a row is one pixel's channels; the base pixel runs through its box, W, H, D, N
    im2col wide    the same, but H and D stay; halo pixels follow
    gather4        four rows, named one by one

`load` gathers these rows, `store` scatters them, `trace` writes them down.

In shared memory row r starts at r x pitch, and a swizzled row takes its whole span even when it is narrower. Then the
swizzle moves pieces of 16 bytes (8 in the mode that flips halves), by the absolute address:

    rows of 64 bytes, swizzle 128B, at 0x480       line of the pattern, and the piece that lies at each place

    row 0  a b c d                                 0x480   1   b a d c ─ ─ ─ ─      ─ : gap, keeps its bytes
    row 1  e f g h                                 0x500   2   g h e f ─ ─ ─ ─
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.swizzle import CHUNK_BYTES, Swizzle
from tilescope.tensor_map import AnyMap, Copy, Im2colMap, Im2colWideMap, TensorMap

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Coord = TypeVar("Coord", int, npt.NDArray[np.int64], npt.NDArray[np.object_])  # of one element, or of many

HALO_EVERY_PIXELS = 32  # mode W128 loads its halo after each of these
FAR_BYTES = 1 << 62  # beyond any memory; the value for addresses that do not fit 64 bits


class Walk(NamedTuple):  # one is made for every copy, and a frozen dataclass takes four times as long to make
    """The rows of one copy, in their order in shared memory."""

    starts: Offsets  # (rows,): byte offset of each row from the tensor's first byte; meaningless where not inside
    inside: Flags  # (rows,): every coordinate but the inner one is in the tensor
    all_inside: bool
    last_start: int | None  # the farthest of the rows inside; None where none is
    low_bytes: int  # the part of each row that is in the tensor …
    high_bytes: int  # … as bytes of the dense row
    row_bytes: int  # of a dense row, as in global memory

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.starts)

    @property
    def inside_rows(self) -> int:
        """How many of them are in the tensor."""
        return self.rows if self.all_inside else int(np.count_nonzero(self.inside))

    @property
    def reach_bytes(self) -> int:
        """Where a store stops in a row: the tensor's end rounded up to 16 bytes, but never past the box.

        So a store overwrites bytes after a row whose length is not a multiple of 16 bytes.
        """
        return min(rounded_up(self.high_bytes, CHUNK_BYTES), self.row_bytes)


def walk(copy: Copy) -> Walk:
    """The rows that a copy visits.

    >>> edge = TensorMap("f16", (20, 5), (64,), (16, 3))
    >>> found = walk(Copy(edge, "load", (8, 3)))
    >>> found.starts[:2].tolist(), found.inside.tolist(), found.low_bytes, found.high_bytes
    ([208, 272], [True, True, False], 0, 24)
    """
    a: AnyMap = copy.tensor_map
    if a.interleave.slice_bytes:
        row_bytes = a.interleave.slice_bytes
        low = 0
        high = row_bytes
        first_outer = 0
    else:
        bits = a.data_type.bits
        inner = a.inner_elements
        first = copy.coords[0]
        row_bytes = inner * bits // 8
        low = min(max(0, -first), inner) * bits // 8
        high = min(max(0, a.dims[0] - first), inner) * bits // 8
        first_outer = 1
    if low < high and isinstance(a, TensorMap) and not copy.rows4:
        steps = _box_steps(a)
        if steps.near and steps.all_inside(copy.coords, a.dims, first_outer):  # the common case, and a quick one
            first_start = source_offset(a, copy.coords)
            starts = steps.offsets_bytes + first_start
            return Walk(starts, steps.ones, True, first_start + steps.farthest_bytes, low, high, row_bytes)
    coords = row_coords(copy)
    outer = coords[:, first_outer:]
    inside: Flags = np.all((outer >= 0) & (outer < a.dims[first_outer:]), axis=1)
    if low >= high:
        inside = np.zeros_like(inside)
    if _is_near(a):
        starts = source_offset(a, [*coords.T])
    else:
        exact = source_offset(a, [*coords.T.astype(object)])
        starts = np.clip(exact, -FAR_BYTES, FAR_BYTES).astype(np.int64)
    last_start = int(starts[inside].max()) if inside.any() else None
    return Walk(starts, inside, bool(inside.all()), last_start, low, high, row_bytes)


def row_coords(copy: Copy) -> Offsets:
    """(rows, rank) coordinates, innermost first, of the first element of each row (interleaved: of each pixel)."""
    a = copy.tensor_map
    if copy.rows4:
        column, *rows = copy.coords
        return np.array([(column, row) for row in rows], np.int64)
    if isinstance(a, TensorMap):
        return _box_steps(a).indices + np.array(copy.coords, np.int64)
    if isinstance(a, Im2colMap):
        return _im2col_coords(a, copy.coords, copy.offsets)
    assert isinstance(a, Im2colWideMap)
    return _wide_coords(a, copy.coords, copy.offsets)


def source_offset(tensor_map: AnyMap, coords: Sequence[Coord]) -> Coord:
    """Byte offset of an element (interleaved: of a pixel) from the tensor's first byte; of many, with an array a coordinate."""
    slice_bytes = tensor_map.interleave.slice_bytes
    inner_bits = slice_bytes * 8 if slice_bytes else tensor_map.data_type.bits
    offset: Coord = coords[0] * inner_bits // 8
    for axis, stride in enumerate(tensor_map.strides_bytes, 1):
        offset = offset + coords[axis] * stride
    return offset


def _is_near(tensor_map: AnyMap) -> bool:
    """Whether 64 bits hold the offset of every element; else no memory holds the tensor."""
    return source_offset(tensor_map, tensor_map.dims) < FAR_BYTES


@dataclass(frozen=True, slots=True)
class _BoxSteps:
    """Distances from a box's first element to the first element of each row."""

    indices: Offsets  # (rows, rank)
    offsets_bytes: Offsets  # (rows,)
    last: tuple[int, ...]  # the farthest in each dimension
    farthest_bytes: int  # of `offsets_bytes`
    ones: Flags
    near: bool  # the tensor's offsets fit 64 bits

    def all_inside(self, coords: tuple[int, ...], dims: tuple[int, ...], first_outer: int) -> bool:
        """Whether every row is in the tensor when the box starts at `coords`."""
        for axis in range(first_outer, len(dims)):  # noqa: SIM110  a generator takes longer than all of this
            if not 0 <= coords[axis] < dims[axis] - self.last[axis]:
                return False
        return True


@lru_cache(maxsize=64)
def _box_steps(a: TensorMap) -> _BoxSteps:
    """The rows of a box, dim 1 running fastest; of an interleaved one, whose rows are pixels, dim 0."""
    sliced = a.interleave.slice_bytes or 0
    counts = a.visited_elements if sliced else (1, *a.visited_elements[1:])
    number = np.arange(prod(counts))
    indices = np.empty((len(number), a.rank), np.int64)
    for axis, (count, stride) in enumerate(zip(counts, a.element_strides, strict=True)):
        number, index = np.divmod(number, count)
        indices[:, axis] = index * stride
    offsets_bytes = indices @ np.array((sliced, *a.strides_bytes), np.int64)
    last = tuple((count - 1) * stride for count, stride in zip(counts, a.element_strides, strict=True))
    ones = np.ones(len(indices), np.bool_)
    for array in (indices, offsets_bytes, ones):
        array.flags.writeable = False
    return _BoxSteps(indices, offsets_bytes, last, int(offsets_bytes.max()), ones, _is_near(a))


def _im2col_coords(a: Im2colMap, coords: tuple[int, ...], offsets: tuple[int, ...]) -> Offsets:
    """The base pixel walks W, then H, then D, then N; a pixel is base + offset.

    Each moves by its own element stride, N too; N never comes round.

    With an interleave the dims are W, H, D, slices, N and the slice stays; without, channels, W, H, D, N. A store
    (im2col_no_offs) has no offsets.
    """
    pixel_coords = np.full((a.pixels_per_column, a.rank), coords, np.int64)
    advances = np.arange(a.pixels_per_column)
    for (axis, lower, upper), offset in zip(a.corners, offsets or (0,) * (a.rank - 2), strict=True):
        end = a.dims[axis] + upper
        pixel_coords[:, axis], advances = _cycle_positions(coords[axis], advances, lower, end, a.element_strides[axis])
        pixel_coords[:, axis] += offset
    pixel_coords[:, -1] += advances * a.element_strides[-1]
    return pixel_coords


def _wide_coords(a: Im2colWideMap, coords: tuple[int, ...], offsets: tuple[int, ...]) -> Offsets:
    """The base pixel walks W, then N; H and D stay where the coordinates put them.

    The second operand moves the walk and both its corners along W. Halo pixels go on along W from the last
    pixel before them, past the corner: they are the neighbours that its filter window needs. Where the
    documents leave room (which pixel a halo starts from), this is a reading that no card has confirmed.
    """
    halo, shift = offsets
    step = a.element_strides[1]
    pixels = a.visited_elements[1]
    main = np.full((pixels, a.rank), coords, np.int64)
    first_width = a.lower_width + shift
    end_width = a.dims[1] + a.upper_width + shift
    main[:, 1], laps = _cycle_positions(coords[1] + shift, np.arange(pixels), first_width, end_width, step)
    main[:, -1] += laps * a.element_strides[-1]
    groups = main.reshape(-1, HALO_EVERY_PIXELS if a.mode == "W128" else pixels, a.rank)
    beyond = np.repeat(groups[:, -1:], halo, axis=1)
    beyond[:, :, 1] += step * np.arange(1, halo + 1)
    return np.concatenate([groups, beyond], axis=1).reshape(-1, a.rank)


def _cycle_positions(start: int, advances: Offsets, lower: int, end: int, step: int) -> tuple[Offsets, Offsets]:
    """Positions after the numbers of `advances`, and how often they wrapped: at `end` a position goes back to `lower`."""
    to_first_wrap = max(1, ceil_div(end - start, step))
    lap = max(1, ceil_div(end - lower, step))
    over = advances - to_first_wrap
    first_lap = over < 0
    position = np.where(first_lap, start + advances * step, lower + over % lap * step)
    return position, np.where(first_lap, 0, 1 + over // lap)


@dataclass(frozen=True, slots=True)
class Placement:
    """The place of each piece, in pieces from the buffer's start."""

    places: npt.NDArray[np.intp]  # (rows x pieces of a row,)
    piece_bytes: int
    footprint_bytes: int  # from the buffer's start to the end of the copy's last byte or gap


def placement(tensor_map: AnyMap, rows: int, smem_address: int) -> Placement:
    """The addresses of `rows` rows of the map from shared address `smem_address` on.

    >>> narrow = TensorMap("f16", (64, 64), (128,), (32, 2), swizzle="128B")
    >>> placement(narrow, 2, 0x480).places.tolist()
    [1, 0, 3, 2, 10, 11, 8, 9]
    """
    swizzle = tensor_map.swizzle
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    return _place_rows(swizzle, smem_address % swizzle.repeat_bytes, rows, row_bytes, tensor_map.pitch_bytes)


@lru_cache(maxsize=64)
def _place_rows(swizzle: Swizzle, phase: int, rows: int, row_bytes: int, pitch_bytes: int) -> Placement:
    piece_bytes = swizzle.piece_bytes
    logical = np.arange(rows)[:, None] * pitch_bytes + np.arange(0, row_bytes, piece_bytes)
    places = ((swizzle.apply(phase + logical) - phase) // piece_bytes).astype(np.intp).ravel()
    places.flags.writeable = False
    # Rows as wide as the span stay in it; the last, cut line of an interleaved copy may send pieces beyond its end.
    footprint = max(rows * pitch_bytes, (int(places.max()) + 1) * piece_bytes)
    return Placement(places, piece_bytes, footprint)
