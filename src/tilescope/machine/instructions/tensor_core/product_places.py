"""The places of the matrices of a tcgen05.mma in tensor memory: the cells of D, of A and its metadata, of scale factors.

`tmem_layout` and `scale_layout` compute them. The cells are cached, because a kernel uses the same matrices in every
step.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.execution.tmem_state import COLUMN_MASK, LANE_SHIFT, Places
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_address import CELL_BITS, TMEM_COLUMNS, TMEM_LANES, cells_of
from tilescope.mma.tmem_copy import DECOMPRESSIONS
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout

_CACHED_LAYOUTS = 64
PADDED_TYPES = {4: "16u4_align16b", 6: "16u6_align16b"}  # of elements of 4 and 6 bits that are unpacked to a byte
_WORD_BYTES = 4  # scale factors in a cell


class MatrixKey(NamedTuple):
    """A matrix in tensor memory: shape, type, form of the instruction, and its address word."""

    m: int
    columns: int  # n of D; k of A and of its metadata
    data_type: str
    cta_group: int
    ws: bool
    word: int
    sparse: bool  # whether A is


class ScaleKey(NamedTuple):
    """Scale factors in tensor memory: as many of every row, from byte `first` of its word on."""

    operand: Literal["A", "B"]
    rows: int
    m: int
    cta_group: int
    word: int
    first: int
    scales: int


class MatrixCells(NamedTuple):
    """The cells of A or its metadata, (rows, k, copies), and where in them the elements are."""

    cells: Places
    bits: npt.NDArray[np.uint32]
    element_bits: int
    lowest_bit: int  # of the element in its container


@lru_cache(maxsize=_CACHED_LAYOUTS)
def accumulator_places(key: MatrixKey) -> Places:
    """The cells of D, (rows of a block, n)."""
    return _cells_of(_layout("D", key).bit_addresses()[..., 0])


@lru_cache(maxsize=_CACHED_LAYOUTS)
def a_cells(key: MatrixKey) -> MatrixCells:
    """The cells of A, with the bit positions of its elements."""
    lowest_bit = 0
    for spread in DECOMPRESSIONS.values():
        if key.data_type == PADDED_TYPES.get(spread.bits):
            lowest_bit = spread.lowest_bit
    return _matrix_cells(_layout("A", key), lowest_bit)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def metadata_cells(key: MatrixKey) -> MatrixCells:
    """The cells of metadata: an entry for every element of k."""
    return _matrix_cells(_layout("metadata", key), lowest_bit=0)


def _layout(operand: Literal["D", "A", "metadata"], key: MatrixKey) -> TmemLayout:
    return tmem_layout(
        (key.m, key.columns),
        operand=operand,
        data_type=key.data_type,
        cta_group=key.cta_group,
        ws=key.ws,
        sparse=key.sparse,
        address=key.word,
    )


def _matrix_cells(layout: TmemLayout, lowest_bit: int) -> MatrixCells:
    addresses = layout.bit_addresses()
    bits = (addresses % CELL_BITS).astype(np.uint32)
    return MatrixCells(_cells_of(addresses), bits, layout.element_bits, lowest_bit)


def _cells_of(bit_addresses: npt.NDArray[np.int64]) -> Places:
    """Lane * 512 + column of bit addresses."""
    lane, column, _ = cells_of(bit_addresses)
    return np.asarray(lane * TMEM_COLUMNS + column)


@lru_cache(maxsize=_CACHED_LAYOUTS)
def scale_cells(key: ScaleKey, *, in_bytes: bool = False) -> Places:
    """The cells (or their bytes) of scale factors, (rows, copies, scales).

    Those of k = 96 run on into the next word, as many columns further on as `scale_layout` puts it there.
    """
    layout = scale_layout(key.rows, 64, "nvfp4")  # the places of words do not depend on the format
    placed = layout.tensor_memory(key.operand, m=key.m, cta_group=key.cta_group).bit_addresses()[: key.rows, 0]
    first_column = key.word & COLUMN_MASK
    first_lane = key.word >> LANE_SHIFT
    placed_lane, placed_column, _ = cells_of(placed)
    lane = placed_lane + first_lane
    column = placed_column + first_column
    further, byte = np.divmod(key.first + np.arange(key.scales), _WORD_BYTES)
    word_columns = layout.columns_per_word(key.operand, m=key.m, cta_group=key.cta_group)
    columns = column[..., None] + further * word_columns
    if int(columns.max()) >= TMEM_COLUMNS or int(lane.max()) >= TMEM_LANES:
        reason = f"scale factors of {key.operand} reach column {int(columns.max())} of tensor memory"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, None, key.word)
    cells = lane[..., None] * TMEM_COLUMNS + columns
    return np.asarray(cells * _WORD_BYTES + byte if in_bytes else cells)
