"""A whole tensor cut into boxes, each laid out as a copy would leave it in shared memory.

The grid steps by the box, so neighbouring tiles along dim 0 read neighbouring bytes. Such a row of tiles is a
*strip*; all strips are filled in one order of pieces, from another place each:

    tensor                         result, axes outermost first
    ┌────┬────┬────┬──┐
    │ 00 │ 01 │ 02 │▒▒│  strip 0   [0, 0] [0, 1] [0, 2] [0, 3]
    ├────┼────┼────┼──┤
    │ 10 │ 11 │ 12 │▒▒│  strip 1   [1, 0] [1, 1] [1, 2] [1, 3]
    └────┴────┴────┴──┘            ▒ tiles that the tensor's end cuts are loaded one by one

The rows of one tile lie far apart, often by a power of two: they share few places in the processor's cache, and it does
not fetch ahead in 64 rows at once. So a strip is read along the rows of the tensor, through many tiles before the next
rows begin: eight rows at a time by the compiled loop; by numpy, where it helps, one row at a time into a buffer.
"""

from __future__ import annotations

import itertools
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.errors import ceil_div
from tilescope.reading import Bytes, integer, readable, writeable
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.swizzle.permutation import OUT_ARRAY, STREAMED_BYTES, in_shares
from tilescope.tensor_map import TensorMap
from tilescope.tma.elements import TF32_TYPES, delivered
from tilescope.tma.request import requested
from tilescope.tma.transfer import deliver, require_memory
from tilescope.tma.walk import Placement, placement, source_offset, walk

_ROWS_AT_ONCE = 8  # that the compiled loop reads side by side
# Some processors fetch ahead in few rows at a time. Neoverse N1, 256 MiB in rows of 32 KiB: through a buffer numpy takes 3.6 times
# as long as np.copyto, without 8.5. A Xeon (Sapphire Rapids) reads 64 rows side by side as well: 2.5 with a buffer, 2.0 without.
_THROUGH_A_BUFFER = platform.machine() in ("aarch64", "arm64")
# of the tiles of one np.take: through a buffer a long run of every row, else as many as keep the indices in the cache
_BATCH_BYTES = 1 << 21 if _THROUGH_A_BUFFER else 1 << 17

TILES_MAP = rule(
    "tiles-map",
    "Tiles are cut by a tiled map, whose grid steps by the box.",
    source="the definition of load_tiles",
    passing='ts.load_tiles(ts.TensorMap("u8", (64,), (), (16,)), np.zeros(64, "u1"))',
    failing='ts.load_tiles(ts.Im2colMap.for_convolution(1, 8, 8, 64, 3, 3, data_type="f16", channels_per_pixel=64, '
    'pixels_per_column=16).tensor_map, np.zeros(8192, "u1"))',
)
TILES_EXTENT = rule(
    "tiles-extent",
    "All tiles together fit into memory.",
    source="the array that load_tiles returns",
    passing='ts.load_tiles(ts.TensorMap("u8", (16, 4), (16,), (16, 1)), np.zeros(64, "u1"))',
    failing='ts.load_tiles(ts.TensorMap("u8", (16, 1 << 31, 1 << 31), (0, 0), (16, 1, 1)), np.zeros(16, "u1"))',
)


def load_tiles(tensor_map: TensorMap, memory: Any, *, out: Any = None, threads: int = 1) -> Any:
    """Every tile of a tensor as `load` leaves it at an aligned shared address: (*grid, smem_bytes) bytes.

    The grid steps by the box (by one slice where the map is interleaved), its axes are outermost first, and tiles
    at the far edges are filled. `memory[0]` lies at `tensor_map.address`. `out` is written in place, bytes in
    gaps kept; without it they are zero. (A tile is longer than `smem_bytes`, as for `load`, where an interleaved one
    ends within a swizzled line, whose pieces may lie behind its end.)

    >>> import tilescope as ts
    >>> matrix = np.arange(128 * 192, dtype=np.uint16).reshape(128, 192)
    >>> a = ts.TensorMap.from_array(matrix, (64, 64), swizzle="128B", address=0)
    >>> tiles = ts.load_tiles(a, matrix)
    >>> tiles.shape, np.array_equal(tiles[1, 2], ts.load(a, matrix, a.coords(64, 128)))
    ((2, 3, 8192), True)
    """
    if not isinstance(tensor_map, TensorMap):
        raise TILES_MAP.error(
            "tensor_map", type(tensor_map).__name__, "a tiled map, whose grid steps by the box",
            "Call ts.load for every column of an im2col map.",
        )  # fmt: skip
    workers = integer("threads", threads, least=1)
    source = readable("memory", memory)
    tiling = _Tiling.of(tensor_map)
    tiling.require_memory(source)
    if out is None:
        out = tiling.zeros()
    target = writeable("out", out)
    if len(target) != prod(tiling.shape):
        raise OUT_ARRAY.error(
            "out", f"an array of {len(target)} bytes", f"{prod(tiling.shape)} bytes: {tiling.shape}",
            f"Use np.empty({tiling.shape}, np.uint8).", bytes=len(target), needed_bytes=prod(tiling.shape),
        )  # fmt: skip
    if tiling.strips:
        tiling.whole_strips(source, target).fill(workers)
    for number, place in tiling.cut_tiles():
        begin = number * tiling.tile_bytes
        deliver(requested(tensor_map, "load", place), source, {"out": target[begin : begin + tiling.tile_bytes]})
    return out


@dataclass(frozen=True, slots=True)
class _Tiling:
    """The grid of a tensor, and which of its tiles lie wholly inside; all innermost first."""

    tensor_map: TensorMap
    steps: tuple[int, ...]  # elements from tile to tile
    grid: tuple[int, ...]  # tiles
    whole: tuple[int, ...]  # of them, those that the tensor's end does not cut
    placed: Placement  # of one tile

    @classmethod
    def of(cls, a: TensorMap) -> _Tiling:
        steps = list(a.box)
        reach = [(count - 1) * stride for count, stride in zip(a.visited_elements, a.element_strides, strict=True)]
        if a.interleave.slice_bytes:
            steps[-2] = 1
        else:
            reach[0] = a.box[0] - 1
        grid = tuple(ceil_div(extent, step) for extent, step in zip(a.dims, steps, strict=True))
        whole = tuple(
            max(0, (extent - 1 - last) // step + 1) for extent, step, last in zip(a.dims, steps, reach, strict=True)
        )
        if a.is_padded:  # its pieces are not those of global memory
            whole = (0,) * a.rank
        return cls(a, tuple(steps), grid, whole, placement(a, a.rows, 0))

    @property
    def tile_bytes(self) -> int:
        return self.placed.footprint_bytes

    @property
    def shape(self) -> tuple[int, ...]:
        return *self.grid[::-1], self.tile_bytes

    @property
    def strips(self) -> int:
        """Rows of whole tiles."""
        return prod(self.whole[1:]) if self.whole[0] else 0

    def zeros(self) -> Bytes:
        try:
            return np.zeros(self.shape, np.uint8)
        except (MemoryError, ValueError):
            raise TILES_EXTENT.error(
                "tensor_map", f"{prod(self.grid)} tiles of {self.tile_bytes} bytes",
                "an array that fits in memory", "Load the tiles one by one.",
                tiles=prod(self.grid), tile_bytes=self.tile_bytes,
            ) from None  # fmt: skip

    def require_memory(self, memory: Bytes) -> None:
        """The last tile reaches farthest: where it is in memory, all are."""
        last = tuple((count - 1) * step for count, step in zip(self.grid, self.steps, strict=True))
        copy = requested(self.tensor_map, "load", last)
        found = walk(copy)
        require_memory(copy, found, found.high_bytes, len(memory))

    def cut_tiles(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The number in the result and the coordinates of each tile that is in no strip."""
        for axis in range(len(self.grid)):  # cut in this dimension, whole in those before, whatever in those behind
            ranges = [
                *map(range, self.whole[:axis]), range(self.whole[axis], self.grid[axis]), *map(range, self.grid[axis + 1 :])
            ]  # fmt: skip
            for index in itertools.product(*ranges):
                number = int(np.ravel_multi_index(index, self.grid, order="F"))
                yield number, tuple(place * step for place, step in zip(index, self.steps, strict=True))

    def whole_strips(self, source: Bytes, target: Bytes) -> Strips:
        a = self.tensor_map
        rows = walk(requested(a, "load", (0,) * a.rank))
        source_begins, numbers = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for axis in range(a.rank - 1, 0, -1):
            index = np.arange(self.whole[axis])
            step_bytes = self.steps[axis] * a.strides_bytes[axis - 1]
            source_begins = (source_begins[:, None] + index * step_bytes).reshape(-1)
            numbers = (numbers[:, None] * self.grid[axis] + index).reshape(-1)
        return Strips(
            tiling=self,
            source=source,
            target=target,
            source_begins=source_begins,
            target_begins=numbers * self.grid[0] * self.tile_bytes,
            tile_step_bytes=source_offset(a, (self.steps[0], *(0,) * (a.rank - 1))),
            row_offsets=rows.starts,
            row_bytes=rows.row_bytes,
        )


@dataclass(frozen=True, slots=True)
class Strips:
    """Rows of tiles in a tensor, and where they go."""

    tiling: _Tiling
    source: Bytes
    target: Bytes
    source_begins: npt.NDArray[np.int64]  # byte of each strip's first tile
    target_begins: npt.NDArray[np.int64]
    tile_step_bytes: int  # from tile to tile in the source
    row_offsets: npt.NDArray[np.int64]  # of a tile's rows in the source, from its first byte on
    row_bytes: int  # of one row of one tile

    def fill(self, threads: int) -> None:
        """Write all tiles, on as many threads as are worth it."""
        tile_bytes = self.tiling.tile_bytes
        strip_bytes = self.tiling.whole[0] * tile_bytes
        streams = (
            self._is_gapless
            and len(self.source_begins) * strip_bytes >= STREAMED_BYTES
            and self.target.ctypes.data % 64 == 0
            and tile_bytes % SMEM_LINE_BYTES == 0
            and self.tiling.placed.piece_bytes == CHUNK_BYTES
            and tile_streaming() is not None
        )
        in_shares(self.stream if streams else self.copy, 0, len(self.source_begins), 1, threads, strip_bytes)

    @property
    def _is_gapless(self) -> bool:
        """Whether every byte of a tile is one of the tensor, as it is there."""
        placed, data_type = self.tiling.placed, self.tiling.tensor_map.data_type
        is_full = len(placed.places) * placed.piece_bytes == placed.footprint_bytes
        return is_full and data_type.name not in TF32_TYPES

    def copy(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` with numpy, a few neighbouring tiles at a time.

        Gapless tiles are taken in the order of shared memory. Those with gaps, or of a type that is rounded, are
        gathered in the order of their rows, and then scattered.
        """
        tile_bytes, whole = self.tiling.tile_bytes, self.tiling.whole[0]
        places, piece = self.tiling.placed.places, np.dtype(f"V{self.tiling.placed.piece_bytes}")
        is_gapless = self._is_gapless
        batch = min(max(1, _BATCH_BYTES // tile_bytes), whole)
        rows = _BufferedRows(self, batch) if _THROUGH_A_BUFFER else _RowsInPlace(self)
        order_in_tile = self._piece_offsets(rows.row_offsets) // piece.itemsize
        if is_gapless:
            order_in_tile[places] = order_in_tile.copy()
        order = np.arange(batch)[:, None] * (rows.tile_step_bytes // piece.itemsize) + order_in_tile
        for strip in range(begin, end):
            first = int(self.target_begins[strip])
            tiles = self.target[first : first + whole * tile_bytes].reshape(whole, tile_bytes).view(piece)
            for tile in range(0, whole, batch):
                count = min(batch, whole - tile)
                source = rows.read(strip, tile, count)
                pieces = source[: len(source) // piece.itemsize * piece.itemsize].view(piece)
                if is_gapless:
                    pieces.take(order[:count], out=tiles[tile : tile + count], mode="clip")
                else:
                    moved = pieces.take(order[:count], mode="clip").view(np.uint8)
                    tiles[tile : tile + count, places] = delivered(self.tiling.tensor_map.data_type, moved).view(piece)

    def stream(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` of gapless tiles by the compiled loop, which writes past the cache."""
        compiled = tile_streaming()
        assert compiled is not None
        sources, targets = (
            array.ctypes.data + begins[begin:end]
            for array, begins in ((self.source, self.source_begins), (self.target, self.target_begins))
        )
        offsets = self._piece_offsets(self.row_offsets)
        order = np.empty_like(offsets)
        order[self.tiling.placed.places] = offsets
        pieces_at_once = _ROWS_AT_ONCE * self.row_bytes // CHUNK_BYTES
        compiled.stream_tiles(sources, targets, self.tiling.whole[0], self.tile_step_bytes, order, pieces_at_once)

    def _piece_offsets(self, row_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets of a tile's pieces, row by row, where its rows begin at `row_offsets`."""
        return (row_offsets[:, None] + np.arange(0, self.row_bytes, self.tiling.placed.piece_bytes)).reshape(-1)


class _RowsInPlace:
    """The rows of a strip where the tensor has them."""

    def __init__(self, strips: Strips) -> None:
        self.strips = strips
        self.row_offsets = strips.row_offsets
        self.tile_step_bytes = strips.tile_step_bytes

    def read(self, strip: int, tile: int, count: int) -> Bytes:
        """Bytes that begin with those of a tile; `count` tiles are wanted."""
        return self.strips.source[int(self.strips.source_begins[strip]) + tile * self.tile_step_bytes :]


class _BufferedRows:
    """The rows of a few tiles of a strip, copied one after another into a buffer that stays in the cache.

    tensor row 0  │ tile 0 │ tile 1 │ …  ──▶  buffer row 0
    tensor row 1  │ tile 0 │ tile 1 │ …  ──▶  buffer row 1
    """

    def __init__(self, strips: Strips, tiles: int) -> None:
        self.strips = strips
        self.rows_in_run = _rows_in_run(strips.row_offsets)
        # Rows whose distance is a power of two would drive each other out of the cache, so each is a little longer.
        # Measured on Neoverse N1: 32 bytes behind a line's end are as fast as none, most other lengths a third slower.
        width_bytes = tiles * strips.row_bytes + SMEM_LINE_BYTES + 2 * CHUNK_BYTES
        self.buffer = _on_large_pages(len(strips.row_offsets) * width_bytes).reshape(-1, width_bytes)
        self.row_offsets = np.arange(len(self.buffer)) * width_bytes
        self.tile_step_bytes = strips.row_bytes

    def read(self, strip: int, tile: int, count: int) -> Bytes:
        """The buffer, filled with `count` tiles."""
        strips = self.strips
        begin = int(strips.source_begins[strip]) + tile * strips.tile_step_bytes
        step_bytes = int(strips.row_offsets[1] - strips.row_offsets[0]) if self.rows_in_run > 1 else 0
        shape = (self.rows_in_run, count, strips.row_bytes)
        strides = (step_bytes, strips.tile_step_bytes, 1)
        for first in range(0, len(self.buffer), self.rows_in_run):
            run = np.ndarray(shape, np.uint8, strips.source, begin + int(strips.row_offsets[first]), strides)
            held = self.buffer[first : first + self.rows_in_run, : count * strips.row_bytes]
            held.reshape(shape)[...] = run
        return self.buffer.reshape(-1)


def _on_large_pages(byte_count: int) -> Bytes:
    """An array that begins a page of 2 MiB, where the system has such pages.

    Every row of the buffer would lie on another page of 4 KiB, and a processor knows the places of few pages at a time.
    numpy asks for large pages in arrays of 4 MiB and more.
    """
    page_bytes = 1 << 21
    held = np.empty(byte_count + 2 * page_bytes, np.uint8)
    begin = -held.ctypes.data % page_bytes
    return held[begin : begin + byte_count]


def _rows_in_run(row_offsets: npt.NDArray[np.int64]) -> int:
    """How many rows lie one step apart, before the next as many begin: the rows of a box along dim 1.

    >>> _rows_in_run(np.array([0, 64, 128, 1000, 1064, 1128])), _rows_in_run(np.array([0, 64, 100]))
    (3, 1)
    """
    steps = np.diff(row_offsets)
    others = np.flatnonzero(steps != steps[:1])
    count = int(others[0]) + 1 if others.size else len(row_offsets)
    if len(row_offsets) % count:
        return 1
    runs = row_offsets.reshape(-1, count)
    return count if np.all(np.diff(runs, axis=1) == steps[:1]) else 1


@cache
def tile_streaming() -> ModuleType | None:
    """The compiled loop; None where numba is not installed."""
    try:
        from tilescope.tma import tile_streaming as compiled
    except ImportError:
        return None
    return compiled
