"""Where the copies of a tile leave its elements in shared memory, as the TMA emulator places them.

    tensor map + copies (coords, offset)  ──▶  address of element (mn, k), or -1 where no copy brings it

The global address of a row tells which row of the matrix it is. So a folded map, which has more dimensions over the same
matrix, gives the same elements as a plain one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import Layout, Major
from tilescope.reading import entries, plain_int
from tilescope.swizzle import Swizzle
from tilescope.tensor_map import AnyMap, TensorMap
from tilescope.tma.request import requested
from tilescope.tma.walk import placement, row_coords

Addresses = npt.NDArray[np.int64]
Copies = tuple[tuple[tuple[int, ...], int], ...]  # coordinates, and offset in shared memory
NOT_WRITTEN = -1


class WrittenTile(NamedTuple):
    """A tile in shared memory: the address of every element (mn, k), and what the writer did."""

    addresses: Addresses
    writer: str  # "TMA" or "the layout"
    swizzle: Swizzle
    row_bytes: int  # contiguous bytes before the swizzle: a row of a box, or of an atom
    element_bits: int  # of the writer's elements
    basis: Basis

    @classmethod
    def by_copies(cls, tensor_map: AnyMap, addresses: Addresses) -> WrittenTile:
        """What TMA copies of a map left at these addresses."""
        row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
        bits = tensor_map.data_type.smem_bits
        return cls(addresses, "TMA", tensor_map.swizzle, row_bytes, bits, tensor_map.basis)

    @classmethod
    def by_layout(cls, layout: Layout) -> WrittenTile:
        """What lies in shared memory as a layout says."""
        atom = layout.tiling.atom[1] if layout.tiling is not None else 0
        bits = layout.element_bits
        return cls(layout.addresses(), "the layout", layout.swizzle, atom * bits // 8, bits, "documented")


@runtime_checkable
class PlannedTile(Protocol):
    """What a plan has: the copies of one tile, the map they go through, and the descriptors that read the tile."""

    problem: Any  # its `tile` (mn, k) and `major`
    copies: tuple[Any, ...]  # with `coords` and `smem_offset_bytes`
    tensor_map: Any  # (address, global_shape): the map of a matrix of `global_shape` (mn, k)
    descriptors: Any  # (smem_address)


def copies_of(copies: Any) -> Copies:
    """Copies as (coords, smem_offset_bytes): pairs, or values with these names."""
    pairs = [
        [copy.coords, copy.smem_offset_bytes] if hasattr(copy, "smem_offset_bytes") else entries(copy, 3) or []
        for copy in entries(copies, 1 << 16) or ()
    ]
    listed = [(entries(pair[0], 6), plain_int(pair[1])) for pair in pairs if len(pair) == 2]
    read = tuple((tuple(coords), offset) for coords, offset in listed if coords is not None and offset is not None)
    if not pairs or len(read) < len(pairs):
        wanted = "pairs of coordinates and offset in shared memory"
        fix = "Use [((0, 0), 0), ((64, 0), 8192)], for example."
        raise RuleError([argument_type("copies", copies, wanted, fix)])
    return read


def written_addresses(
    tensor_map: AnyMap, copies: Copies, *, smem_address: int, major: Major, data_type: DataType,
) -> Addresses:  # fmt: skip
    """The physical address of every element (mn, k) of the tile that the copies bring; NOT_WRITTEN in between.

    `major` names the dimension of the tile that is innermost in the map. Where two copies write one place, the last one's
    element lies there.

    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B")
    >>> bf16 = DataType.named("bf16")
    >>> written_addresses(a, [((0, 0), 0)], smem_address=0, major="K", data_type=bf16)[1, [0, 8]].tolist()
    [144, 128]
    """
    rows, columns, addresses = zip(*(
        _placed(tensor_map, coords, smem_address + offset_bytes, data_type) for coords, offset_bytes in copies
    ), strict=True)  # fmt: skip
    row, column, address = (np.concatenate([part.ravel() for part in parts]) for parts in (rows, columns, addresses))
    row, column = row - row.min(), column - column.min()
    _, last = np.unique(address[::-1], return_index=True)  # what an earlier copy left there is gone
    kept = len(address) - 1 - last
    step = _elements_per_piece(tensor_map, data_type)
    placed, within = np.full((int(row.max()) + 1, int(column.max()) + step), NOT_WRITTEN, np.int64), np.arange(step)
    placed[row[kept, None], column[kept, None] + within] = address[kept, None] + within * data_type.smem_bits // 8
    return placed if major == "K" else placed.T


def _elements_per_piece(tensor_map: AnyMap, data_type: DataType) -> int:
    return placement(tensor_map, 1, 0).piece_bytes * 8 // data_type.smem_bits


def _placed(
    tensor_map: AnyMap, coords: tuple[int, ...], address: int, data_type: DataType
) -> tuple[Addresses, Addresses, Addresses]:
    """Row, column and address of the first element of every piece that one copy writes."""
    copy = requested(tensor_map, "load", coords, smem_address=address)
    corners = row_coords(copy)
    placed = placement(tensor_map, len(corners), address)
    places = placed.places.reshape(len(corners), -1).astype(np.int64) * placed.piece_bytes + address
    row, first = _in_matrix(tensor_map, corners)
    column = first * tensor_map.data_type.smem_bits // data_type.smem_bits
    pieces = np.arange(places.shape[1]) * _elements_per_piece(tensor_map, data_type)
    return np.broadcast_to(row[:, None], places.shape), column[:, None] + pieces, places


def _in_matrix(tensor_map: AnyMap, corners: Addresses) -> tuple[Addresses, Addresses]:
    """Row and first column, in elements of the map, of the matrix that its innermost two dimensions span."""
    strides, bits = tensor_map.strides_bytes, tensor_map.data_type.bits
    numbered = np.arange(len(corners))
    if tensor_map.interleave.slice_bytes:
        return numbered, np.zeros_like(numbered)
    if not isinstance(tensor_map, TensorMap) or not strides or max(tensor_map.element_strides[1:]) > 1:
        return numbered, corners[:, 0]
    pitch = strides[0]
    if pitch * 8 < tensor_map.box[0] * bits:  # rows that overlap in memory
        return numbered, corners[:, 0]
    offset = corners[:, 0] * bits // 8 + corners[:, 1:] @ np.array(strides, np.int64)
    row, within = np.divmod(offset, pitch)
    return row, within * 8 // bits
