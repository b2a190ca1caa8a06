"""A whole tensor cut into boxes, each laid out as a copy would leave it in shared memory.

The grid steps by the box, so neighbouring tiles along dim 0 read neighbouring bytes. Such a row of tiles is a
*strip*; all strips are filled in one order of pieces, from another place each:

    tensor                         result, axes outermost first
    ┌────┬────┬────┬──┐
    │ 00 │ 01 │ 02 │▒▒│  strip 0   [0, 0] [0, 1] [0, 2] [0, 3]
    ├────┼────┼────┼──┤
    │ 10 │ 11 │ 12 │▒▒│  strip 1   [1, 0] [1, 1] [1, 2] [1, 3]
    └────┴────┴────┴──┘            ▒ tiles that the tensor's end cuts are loaded one by one

The rows of one tile are far apart, often by a power of two: they share few lines of the processor's cache, and it
cannot prefetch in 64 rows at once. So a strip is read along the rows of the tensor, through many tiles before the next
rows begin: eight rows at a time by the compiled loop, and one after another by numpy, on processors that need it.
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

from tilescope.arithmetic import ceil_div
from tilescope.reading import Bytes, integer, readable, writeable
from tilescope.rule import rule
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.swizzle.permutation import OUT_ARRAY, STREAMED_BYTES, in_shares
from tilescope.tensor_map import TensorMap
from tilescope.tma.elements import TF32_TYPES, deliver_elements
from tilescope.tma.request import request_copy
from tilescope.tma.transfer import deliver, require_memory
from tilescope.tma.walk import Placement, placement, source_offset, walk

_ROWS_AT_ONCE = 8  # rows that a loop reads side by side
# Some processors fetch ahead in few rows at a time. Neoverse N1, 256 MiB in rows of 32 KiB, as multiples of np.copyto: numpy takes
# 2.8 along the rows, 8.5 tile by tile. A Xeon (Sapphire Rapids) fetches ahead in 64 rows as well: 3.2 and 2.9.
_ALONG_ROWS = platform.machine() in ("aarch64", "arm64")
# Tiles are filled together up to this size: along the rows in long runs, else so that the indices stay in the cache.
_BATCH_BYTES = 1 << 21 if _ALONG_ROWS else 1 << 17

TILES_MAP = rule(
    "tiles-map",
    "Tiles are cut by a tiled map, in steps of the box.",
    argument="tensor_map",
    found="{kind}",
    limit="a tiled map, whose grid steps by the box",
    fix="Call ts.load for every column of an im2col map.",
    source="the definition of load_tiles",
    passing='ts.load_tiles(ts.TensorMap("u8", (64,), (), (16,)), np.zeros(64, "u1"))',
    failing='ts.load_tiles(ts.Im2colMap.for_convolution(1, 8, 8, 64, 3, 3, data_type="f16", channels_per_pixel=64, '
    'pixels_per_column=16).tensor_map, np.zeros(8192, "u1"))',
)
TILES_EXTENT = rule(
    "tiles-extent",
    "All tiles together fit into memory.",
    argument="tensor_map",
    found="{tiles} tiles of {tile_bytes} bytes",
    limit="an array that fits in memory",
    fix="Load the tiles one by one.",
    source="the array that load_tiles returns",
    passing='ts.load_tiles(ts.TensorMap("u8", (16, 4), (16,), (16, 1)), np.zeros(64, "u1"))',
    failing='ts.load_tiles(ts.TensorMap("u8", (16, 1 << 31, 1 << 31), (0, 0), (16, 1, 1)), np.zeros(16, "u1"))',
)
_TILES_OUT = OUT_ARRAY.worded(
    argument="out",
    found="an array of {bytes} bytes",
    limit="{needed_bytes} bytes: {shape}",
    fix="Use np.empty({shape}, np.uint8).",
)


def load_tiles(tensor_map: TensorMap, memory: Any, *, out: Any = None, threads: int = 1) -> Any:
    """Every tile of a tensor as `load` leaves it at an aligned shared address: (*grid, smem_bytes) bytes.

    The grid steps by the box (by one slice if the map is interleaved), its axes are outermost first, and tiles at the far edges
    are filled. `memory[0]` is at `tensor_map.address`. `out` is written in place, except for gaps; without it, gaps are zero.
    (As for `load`, an interleaved tile that ends within a swizzled line is longer than `smem_bytes`.)

    >>> import tilescope as ts
    >>> matrix = np.arange(128 * 192, dtype=np.uint16).reshape(128, 192)
    >>> a = ts.TensorMap.from_array(matrix, (64, 64), swizzle="128B", address=0)
    >>> tiles = ts.load_tiles(a, matrix)
    >>> tiles.shape, np.array_equal(tiles[1, 2], ts.load(a, matrix, a.coords(64, 128)))
    ((2, 3, 8192), True)
    """
    if not isinstance(tensor_map, TensorMap):
        raise TILES_MAP.error(kind=type(tensor_map).__name__)
    workers = integer("threads", threads, least=1)
    source = readable("memory", memory)
    tiling = _Tiling.of(tensor_map)
    tiling.require_memory(source)
    if out is None:
        out = tiling.zeros()
    target = writeable("out", out)
    needed_bytes = prod(tiling.shape)
    if len(target) != needed_bytes:
        raise _TILES_OUT.error(bytes=len(target), needed_bytes=needed_bytes, shape=tiling.shape)
    if tiling.strips:
        tiling.whole_strips(source, target).fill(workers)
    for number, place in tiling.cut_tiles():
        begin = number * tiling.tile_bytes
        deliver(request_copy(tensor_map, "load", place), source, {"out": target[begin : begin + tiling.tile_bytes]})
    return out


@dataclass(frozen=True, slots=True)
class _Tiling:
    """The grid of a tensor, and which of its tiles are completely inside; all innermost first."""

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
            raise TILES_EXTENT.error(tiles=prod(self.grid), tile_bytes=self.tile_bytes) from None

    def require_memory(self, memory: Bytes) -> None:
        """The last tile reaches farthest: where it is in memory, all are."""
        last = tuple((count - 1) * step for count, step in zip(self.grid, self.steps, strict=True))
        copy = request_copy(self.tensor_map, "load", last)
        walked = walk(copy)
        require_memory(copy, walked, walked.high_bytes, len(memory))

    def cut_tiles(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The number in the result and the coordinates of each tile that is in no strip."""
        for axis in range(len(self.grid)):  # cut in this dimension, whole in the previous ones, any in the following
            before = [range(count) for count in self.whole[:axis]]
            cut = range(self.whole[axis], self.grid[axis])
            behind = [range(count) for count in self.grid[axis + 1 :]]
            for index in itertools.product(*before, cut, *behind):
                number = int(np.ravel_multi_index(index, self.grid, order="F"))
                yield number, tuple(place * step for place, step in zip(index, self.steps, strict=True))

    def whole_strips(self, source: Bytes, target: Bytes) -> Strips:
        a = self.tensor_map
        rows = walk(request_copy(a, "load", (0,) * a.rank))
        source_begins = np.zeros(1, np.int64)
        numbers = np.zeros(1, np.int64)
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
        by_numpy = self.scatter if _ALONG_ROWS else self.gather
        in_shares(
            self.stream if streams else by_numpy, 0, len(self.source_begins), 1, threads=threads, unit_bytes=strip_bytes
        )

    @property
    def _is_gapless(self) -> bool:
        """Whether every byte of a tile is one of the tensor, as it is there."""
        placed = self.tiling.placed
        is_full = len(placed.places) * placed.piece_bytes == placed.footprint_bytes
        return is_full and self.tiling.tensor_map.data_type.name not in TF32_TYPES

    def gather(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` with numpy, a few neighbouring tiles at a time.

        Gapless tiles are taken in the order of shared memory. Those with gaps, or of a type that is rounded, are
        gathered in the order of their rows, and then scattered.
        """
        places = self.tiling.placed.places
        piece = self._piece
        is_gapless = self._is_gapless
        order_in_tile = self._piece_offsets(self.row_offsets) // piece.itemsize
        if is_gapless:
            order_in_tile[places] = order_in_tile.copy()
        order = np.arange(self._batch)[:, None] * (self.tile_step_bytes // piece.itemsize) + order_in_tile
        for strip in range(begin, end):
            for first, tiles in self._batches(strip):
                source = self.source[int(self.source_begins[strip]) + first * self.tile_step_bytes :]
                pieces = source[: len(source) // piece.itemsize * piece.itemsize].view(piece)
                if is_gapless:
                    pieces.take(order[: len(tiles)], out=tiles, mode="clip")
                else:
                    moved = pieces.take(order[: len(tiles)], mode="clip").view(np.uint8)
                    tiles[:, places] = deliver_elements(self.tiling.tensor_map.data_type, moved).view(piece)

    def scatter(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` with numpy: rows of the tensor, through many tiles each, to their places.

        tensor row 0  │ tile 0 │ tile 1 │ …  ──▶  row 0 of tile 0, row 0 of tile 1, …
        tensor row 1  │ tile 0 │ tile 1 │ …  ──▶  row 1 of tile 0, row 1 of tile 1, …
        """
        piece = self._piece
        data_type = self.tiling.tensor_map.data_type
        places_in_tile = self.tiling.placed.places.reshape(len(self.row_offsets), 1, -1)
        pieces_of_tile = self.tiling.tile_bytes // piece.itemsize
        places = places_in_tile + np.arange(self._batch)[:, None] * pieces_of_tile  # (rows, tiles, pieces of a row)
        groups = list(_row_groups(self.row_offsets))
        for strip in range(begin, end):
            for first_tile, tiles in self._batches(strip):
                shared_memory = tiles.reshape(-1)
                begin_bytes = int(self.source_begins[strip]) + first_tile * self.tile_step_bytes
                for first, count, step_bytes in groups:
                    shape = (count, len(tiles), self.row_bytes)
                    strides = (step_bytes, self.tile_step_bytes, 1)
                    offset = begin_bytes + int(self.row_offsets[first])
                    rows = np.ascontiguousarray(np.ndarray(shape, np.uint8, self.source, offset, strides))
                    moved = deliver_elements(data_type, rows).view(piece)
                    shared_memory[places[first : first + count, : len(tiles)]] = moved

    @property
    def _piece(self) -> np.dtype[np.void]:
        """What moves as a whole, as numpy calls it."""
        return np.dtype(f"V{self.tiling.placed.piece_bytes}")

    @property
    def _batch(self) -> int:
        """How many tiles of a strip are filled together."""
        return min(max(1, _BATCH_BYTES // self.tiling.tile_bytes), self.tiling.whole[0])

    def _batches(self, strip: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """The number of the first of a few tiles in a strip, and where they go: (tiles, pieces)."""
        first_byte = int(self.target_begins[strip])
        strip_tiles = self.tiling.whole[0]
        strip_bytes = self.target[first_byte : first_byte + strip_tiles * self.tiling.tile_bytes]
        tiles = strip_bytes.reshape(strip_tiles, self.tiling.tile_bytes).view(self._piece)
        for first in range(0, strip_tiles, self._batch):
            yield first, tiles[first : first + self._batch]

    def stream(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` of gapless tiles by the compiled loop, which writes past the cache."""
        compiled = tile_streaming()
        assert compiled is not None
        strips = np.empty((end - begin, 2), np.int64)
        strips[:, 0] = self.source.ctypes.data + self.source_begins[begin:end]
        strips[:, 1] = self.target.ctypes.data + self.target_begins[begin:end]
        offsets = self._piece_offsets(self.row_offsets)
        order = np.empty_like(offsets)
        order[self.tiling.placed.places] = offsets
        pieces_at_once = _ROWS_AT_ONCE * self.row_bytes // CHUNK_BYTES
        compiled.stream_tiles(strips, self.tiling.whole[0], self.tile_step_bytes, order, pieces_at_once)

    def _piece_offsets(self, row_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets of a tile's pieces, row by row, where its rows begin at `row_offsets`."""
        return (row_offsets[:, None] + np.arange(0, self.row_bytes, self.tiling.placed.piece_bytes)).reshape(-1)


def _row_groups(row_offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """The rows of a tile in groups of a few rows with the same distance: the first one's number, how many, and the step.

    >>> list(_row_groups(np.array([0, 64, 128, 1000, 1064, 1128])))
    [(0, 3, 64), (3, 3, 64)]
    """
    steps = np.diff(row_offsets, append=row_offsets[-1:]).tolist()  # from every row to the next
    first = 0
    for row, step in enumerate(steps):
        is_full = row + 1 - first == _ROWS_AT_ONCE
        if is_full or row + 1 == len(steps) or step != steps[first]:
            yield first, row + 1 - first, steps[first]
            first = row + 1


@cache
def tile_streaming() -> ModuleType | None:
    """The compiled loop; None where numba is not installed."""
    try:
        from tilescope.tma import tile_streaming as compiled
    except ImportError:
        return None
    return compiled
