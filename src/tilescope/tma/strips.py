"""Filling rows of equal tiles, each piece by piece in one and the same order.

Three ways, which leave the same bytes:

    take      np.take into place; for tiles without gaps
    place     gather, round where the type asks for it, then scatter: for gaps and for tf32
    stream    a compiled loop that writes past the cache; for large results where numba is installed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.reading import Bytes
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.swizzle.permutation import STREAMED_BYTES, in_shares
from tilescope.tma.rounding import TF32_TYPES, delivered

_BATCH_PIECES = 1 << 13  # of one np.take: its indices stay in the cache


@dataclass(frozen=True, slots=True)
class Strips:
    """Rows of tiles in a tensor, and where they go."""

    data_type: DataType
    source: Bytes
    target: Bytes
    source_begins: npt.NDArray[np.int64]  # byte of each strip's first tile
    target_begins: npt.NDArray[np.int64]
    tiles: int  # of one strip
    tile_step_bytes: int  # from tile to tile in the source …
    tile_bytes: int  # … and in the target
    piece_bytes: int
    piece_offsets: npt.NDArray[np.int64]  # in the source, from a tile's first byte on
    places: npt.NDArray[np.intp]  # of these pieces in the target, in pieces

    def fill(self, threads: int) -> None:
        """Write all tiles, on as many threads as are worth it."""
        in_shares(self._work(), 0, len(self.source_begins), 1, threads, self.tiles * self.tile_bytes)

    def _work(self) -> Callable[[int, int], None]:
        gapless = len(self.places) * self.piece_bytes == self.tile_bytes
        if not gapless or self.data_type.name in TF32_TYPES:
            return self.place
        size_bytes = len(self.source_begins) * self.tiles * self.tile_bytes
        aligned = self.target.ctypes.data % SMEM_LINE_BYTES % 64 == 0 and self.tile_bytes % SMEM_LINE_BYTES == 0
        if (
            size_bytes >= STREAMED_BYTES
            and aligned
            and self.piece_bytes == CHUNK_BYTES
            and tile_streaming() is not None
        ):
            return self.stream
        return self.take

    def take(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` of gapless tiles."""
        source, target = self._pieces(self.source), self._pieces(self.target)
        in_place = self._offsets_in_place() // self.piece_bytes
        batch = max(1, _BATCH_PIECES // len(in_place))
        steps = np.arange(min(batch, self.tiles))[:, None] * (self.tile_step_bytes // self.piece_bytes)
        order = (steps + in_place).reshape(-1)
        for first_source, first_target in self._begins(begin, end):
            for tile in range(0, self.tiles, batch):
                pieces = min(batch, self.tiles - tile) * len(in_place)
                begin_source = (first_source + tile * self.tile_step_bytes) // self.piece_bytes
                begin_target = (first_target + tile * self.tile_bytes) // self.piece_bytes
                np.take(
                    source[begin_source:], order[:pieces], out=target[begin_target : begin_target + pieces], mode="clip"
                )

    def place(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end`, gaps left alone."""
        source, target = self._pieces(self.source), self._pieces(self.target)
        batch = max(1, _BATCH_PIECES // len(self.places))
        steps = np.arange(min(batch, self.tiles))[:, None] * self.tile_step_bytes
        order = (steps + self.piece_offsets) // self.piece_bytes
        tile_pieces = self.tile_bytes // self.piece_bytes
        for first_source, first_target in self._begins(begin, end):
            for tile in range(0, self.tiles, batch):
                count = min(batch, self.tiles - tile)
                begin_source = (first_source + tile * self.tile_step_bytes) // self.piece_bytes
                begin_target = first_target // self.piece_bytes + tile * tile_pieces
                found = source[begin_source:].take(order[:count], mode="clip")
                moved = delivered(self.data_type, found.view(np.uint8)).view(found.dtype)
                tiles = target[begin_target : begin_target + count * tile_pieces].reshape(count, tile_pieces)
                tiles[:, self.places] = moved

    def stream(self, begin: int, end: int) -> None:
        """Fill strips `begin` to `end` of gapless tiles by the compiled loop."""
        compiled = tile_streaming()
        assert compiled is not None
        compiled.stream_tiles(
            self.source.ctypes.data + self.source_begins[begin:end],
            self.target.ctypes.data + self.target_begins[begin:end],
            self.tiles,
            self.tile_step_bytes,
            self._offsets_in_place(),
        )

    def _begins(self, begin: int, end: int) -> list[tuple[int, int]]:
        return list(zip(self.source_begins[begin:end].tolist(), self.target_begins[begin:end].tolist(), strict=True))

    def _offsets_in_place(self) -> npt.NDArray[np.int64]:
        """The source of each piece of a gapless tile, in the order of shared memory."""
        in_place = np.empty_like(self.piece_offsets)
        in_place[self.places] = self.piece_offsets
        return in_place

    def _pieces(self, array: Bytes) -> npt.NDArray[np.void]:
        whole = array[: len(array) // self.piece_bytes * self.piece_bytes]
        return whole.view(np.dtype(f"V{self.piece_bytes}"))


@cache
def tile_streaming() -> ModuleType | None:
    """The compiled loop; None where numba is not installed."""
    try:
        from tilescope.tma import tile_streaming as compiled
    except ImportError:
        return None
    return compiled
