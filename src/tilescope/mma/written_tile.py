"""The addresses of a tile's elements in shared memory, after TMA copies or in a layout.

    tensor map, copies ──▶ address of every element (mn, k)

    box (64, 8) of bf16, swizzle 128B, at 0x400     (0, 0) at 0x400, (1, 0) at 0x490: line 1 stores its chunk 0 as chunk 1

Copies are placed as the TMA emulator places them. The global address of a row tells which row of the matrix it is, so a
folded map, which has more dimensions over the same matrix, gives the same elements as a plain one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import Layout, Major
from tilescope.reading import entries, plain_int
from tilescope.rule import Basis
from tilescope.swizzle import Swizzle
from tilescope.tensor_map import AnyMap, TensorMap
from tilescope.tma.request import request_copy
from tilescope.tma.walk import placement, row_coords

Addresses = npt.NDArray[np.int64]
NOT_WRITTEN = -1


@runtime_checkable
class PlacedCopy(Protocol):
    """A copy of a plan: the place of its box in the tensor, and in the shared memory of the tile."""

    @property
    def coords(self) -> tuple[int, ...]:
        """Of the first element of the box."""

    @property
    def smem_offset_bytes(self) -> int:
        """From the start of the tile."""


class BoxPlace(NamedTuple):
    """One copy: the coordinates of its box, and its offset in shared memory."""

    coords: tuple[int, ...]
    smem_offset_bytes: int


class WrittenTile(NamedTuple):
    """A tile in shared memory: the address of every element (mn, k), and what the writer did."""

    addresses: Addresses
    writer: str  # "TMA" or "the layout"
    swizzle: Swizzle
    row_bytes: int  # contiguous bytes before the swizzle: a row of a box, or of an atom
    element_bits: int  # of the writer's elements
    basis: Basis
    copies: tuple[BoxPlace, ...] = ()

    @classmethod
    def by_copies(
        cls,
        tensor_map: AnyMap,
        copies: object,
        *,
        smem_address: int,
        major: Major,
        data_type: DataType,
        element_bits: int,
    ) -> WrittenTile:
        """What TMA copies of a map leave (without copies, one of its first box); `major` is innermost in the map.

        If two copies write one place, the last one's element is there. `element_bits` is the distance of the values of
        a padded type in their chunk: 8 as descriptors count, 4 or 6 as stored.
        """
        box_places = copies_of([((0,) * tensor_map.rank, 0)] if copies is None else copies)
        pieces = [
            _piece_addresses(tensor_map, copy.coords, smem_address + copy.smem_offset_bytes, data_type)
            for copy in box_places
        ]
        row, column, address = np.concatenate(pieces, axis=1)
        row -= row.min()
        column -= column.min()
        _, last = np.unique(address[::-1], return_index=True)  # data of an earlier copy is overwritten
        last_writes = len(address) - 1 - last
        piece_elements = placement(tensor_map, 1, 0).piece_bytes * 8 // data_type.smem_bits
        within = np.arange(piece_elements)
        placed = np.full((int(row.max()) + 1, int(column.max()) + piece_elements), NOT_WRITTEN, np.int64)
        placed[row[last_writes, None], column[last_writes, None] + within] = (
            address[last_writes, None] + within * element_bits // 8
        )
        return cls(
            addresses=placed if major == "K" else placed.T,
            writer="TMA",
            swizzle=tensor_map.swizzle,
            row_bytes=tensor_map.interleave.slice_bytes or tensor_map.inner_bytes,
            element_bits=tensor_map.data_type.smem_bits,
            basis=tensor_map.basis,
            copies=box_places,
        )

    @classmethod
    def by_layout(cls, layout: Layout) -> WrittenTile:
        """The contents of shared memory in a layout."""
        row_elements = 0 if layout.tiling is None else layout.tiling.atom[1]
        return cls(
            addresses=layout.addresses(),
            writer="the layout",
            swizzle=layout.swizzle,
            row_bytes=row_elements * layout.element_bits // 8,
            element_bits=layout.element_bits,
            basis="documented",
        )

    def part(self, origin: tuple[int, int], shape: tuple[int, ...], *, turned: bool = False) -> Addresses:
        """The addresses from element `origin` on, NOT_WRITTEN beyond the tile; `turned`, mn and k exchanged."""
        addresses = self.addresses.T if turned else self.addresses
        part = addresses[origin[0] : origin[0] + shape[0], origin[1] : origin[1] + shape[1]]
        padded = np.full(shape, NOT_WRITTEN, np.int64)
        padded[: part.shape[0], : part.shape[1]] = part
        return padded


def copies_of(copies: object) -> tuple[BoxPlace, ...]:
    """Copies as (coords, smem_offset_bytes): pairs, or values with these names."""
    listed = [_copy_of(copy) for copy in entries(copies, 1 << 16) or ()]
    read = tuple(copy for copy in listed if copy is not None)
    if not read or len(read) < len(listed):
        expected = "pairs of coordinates and offset in shared memory"
        fix = "Use [((0, 0), 0), ((64, 0), 8192)], for example."
        raise RuleError([argument_type("copies", copies, expected, fix)])
    return read


def _copy_of(copy: object) -> BoxPlace | None:
    if isinstance(copy, PlacedCopy):
        pair: list[object] = [copy.coords, copy.smem_offset_bytes]
    else:
        pair = entries(copy, 3) or []
    if len(pair) != 2:
        return None
    coords = entries(pair[0], 6)
    offset = plain_int(pair[1])
    if coords is None or offset is None:
        return None
    return BoxPlace(tuple(coords), offset)


def _piece_addresses(tensor_map: AnyMap, coords: tuple[int, ...], address: int, data_type: DataType) -> Addresses:
    """Row, column and address of the first element of every piece that one copy writes: (3, pieces)."""
    corners = row_coords(request_copy(tensor_map, "load", coords, smem_address=address))
    placed = placement(tensor_map, len(corners), address)
    places = placed.places.reshape(len(corners), -1).astype(np.int64) * placed.piece_bytes + address
    row, first = _in_matrix(tensor_map, corners)
    pieces = np.arange(places.shape[1]) * (placed.piece_bytes * 8 // data_type.smem_bits)
    column = (first * tensor_map.data_type.smem_bits // data_type.smem_bits)[:, None] + pieces
    return np.stack(np.broadcast_arrays(row[:, None], column, places)).reshape(3, -1)


def _in_matrix(tensor_map: AnyMap, corners: Addresses) -> tuple[Addresses, Addresses]:
    """Row and first column, in elements of the map, of the matrix that its innermost two dimensions span."""
    if isinstance(tensor_map, TensorMap) and _has_plain_rows(tensor_map):
        pitch_bytes = tensor_map.strides_bytes[0]
        bits = tensor_map.data_type.bits
        offset = corners[:, 0] * bits // 8 + corners[:, 1:] @ np.array(tensor_map.strides_bytes, np.int64)
        return offset // pitch_bytes, offset % pitch_bytes * 8 // bits
    rows = np.arange(len(corners))
    if tensor_map.interleave.slice_bytes:
        return rows, np.zeros(len(corners), np.int64)
    return rows, corners[:, 0]


def _has_plain_rows(tensor_map: TensorMap) -> bool:
    """Whether global addresses tell rows: no slices, no steps between rows, and no rows that overlap in memory."""
    strides = tensor_map.strides_bytes
    if tensor_map.interleave.slice_bytes or not strides or max(tensor_map.element_strides[1:]) != 1:
        return False
    return strides[0] * 8 >= tensor_map.box[0] * tensor_map.data_type.bits
