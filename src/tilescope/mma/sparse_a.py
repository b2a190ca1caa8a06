"""Sparse A: half of its elements are stored, and metadata in tensor memory says where in k the stored ones belong.

A             a 0 b 0 | 0 c 0 d | …         of every 4 elements at most 2 are not zero
stored A      a   b   |   c   d | …         what lies in shared or tensor memory
metadata      0   2   |   1   3 | …         2 bits each, the first in the low bits: a nibble for a group, 0x8, 0xD, …

A             group    stored      a position counts
16, 8 bits    4        2           elements
tf32          2        1           halves of an element: nibble 0x4 for the first, 0xE for the second
4 bits        8        4           pairs of elements
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.rule import rule

Matrix = npt.NDArray[Any]
_PIECE = {4: 2, 8: 1, 16: 1, 32: 1}  # elements that stay together, by bits of an element in shared memory
_TF32_NIBBLES = np.array([0x4, 0xE], np.uint8)
MMA_SPARSE = rule(
    "mma-sparse",
    "A sparse A has at most 2 elements of every 4 that are not zero: 1 of 2 for tf32, 2 of 4 pairs for 4 bits.",
    source="PTX ISA, tcgen05.mma: sparse matrices",
    passing='ts.emulate_mma(np.eye(128), np.zeros((128, 8)), data_type="bf16", consumer="tcgen05", sparse=True)',
    failing='ts.emulate_mma(np.ones((128, 128)), np.zeros((128, 8)), data_type="bf16", consumer="tcgen05", sparse=True)',
)


def compressed(a: Matrix, data_type: DataType) -> tuple[Matrix, Matrix]:
    """The stored half of A (m, k), and its metadata: a nibble for each group of a row.

    >>> stored, nibbles = compressed(np.array([[5, 0, 7, 0, 0, 2, 0, 3]]), DataType.named("f16"))
    >>> stored.tolist(), [hex(nibble) for nibble in nibbles[0]]
    ([[5, 7, 2, 3]], ['0x8', '0xd'])
    """
    pieces = _pieces(a, data_type)
    filled = (pieces != 0).any(axis=-1)
    keep = pieces.shape[2] // 2
    if (filled.sum(axis=-1) > keep).any():
        row, group = (int(each) for each in np.argwhere(filled.sum(axis=-1) > keep)[0])
        first, extent = group * a.shape[1] // pieces.shape[1], a.shape[1] // pieces.shape[1]
        unit = "pairs" if pieces.shape[3] > 1 else "elements"
        raise MMA_SPARSE.error(
            "a", f"row {row} has {int(filled[row, group].sum())} {unit} that are not zero in k {first} to {first + extent - 1}",
            f"a sparse A of {data_type.name} has at most {keep} of {pieces.shape[2]} {unit}", "Prune A, or multiply it dense.",
        )  # fmt: skip
    positions = np.sort(np.argsort(~filled, axis=-1, kind="stable")[..., :keep], axis=-1)
    stored = np.take_along_axis(pieces, positions[..., None], axis=2).reshape(len(a), -1)
    nibbles = _TF32_NIBBLES[positions[..., 0]] if keep == 1 else (positions @ [1, 4]).astype(np.uint8)
    return stored, nibbles


def expanded(stored: Matrix, nibbles: Matrix, data_type: DataType) -> Matrix:
    """A (m, k) as the tensor core sees it: the stored elements at the positions that the metadata names."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]), stored.dtype)
    pieces = _pieces(dense, data_type)
    kept = stored.reshape(*pieces.shape[:2], pieces.shape[2] // 2, pieces.shape[3])
    half = (nibbles == _TF32_NIBBLES[1]).astype(np.int64)[..., None]
    positions = half if pieces.shape[2] == 2 else np.stack([nibbles & 3, nibbles >> 2], axis=-1).astype(np.int64)
    np.put_along_axis(pieces, positions[..., None], kept, axis=2)
    return pieces.reshape(dense.shape)


def _pieces(a: Matrix, data_type: DataType) -> Matrix:
    """A as (m, groups, pieces of a group, elements of a piece)."""
    piece = _PIECE[data_type.smem_bits]
    return a.reshape(len(a), -1, 2 if data_type.smem_bits == 32 else 4, piece)


def nibble_places(layout: TmemLayout) -> npt.NDArray[np.int64]:
    """The bit address of every bit (row, group, 4) of the metadata of one instruction."""
    first = layout.bit_addresses()[..., 0]
    if layout.element_bits == 2:  # two bits for an element: a group of two
        return (first[..., None] + np.arange(2)).reshape(len(first), -1, 4)
    stride = 2 if (first[:, 0] == first[:, 1]).all() else 1  # one bit for a pair of 4-bit elements
    return first[:, ::stride].reshape(len(first), -1, 4)
