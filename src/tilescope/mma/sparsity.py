"""2:4 sparsity: half of A is stored, and the metadata says where it belongs.

row of A     5 0 7 0   0 2 0 3        groups of 4, of which 2 are stored
stored       5 7       2 3
metadata     0x8       0xd            a nibble a group: the places 0 and 2, 1 and 3, two bits each
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.rule import rule

Matrix = npt.NDArray[Any]
Nibbles = npt.NDArray[np.uint8]
PIECE_ELEMENTS = {4: 2, 8: 1, 16: 1, 32: 1}  # elements that stay together, by bits of an element in shared memory
_TF32_NIBBLES = np.array([0x4, 0xE], np.uint8)

MMA_SPARSE = rule(
    "mma-sparse",
    ("A sparse A has at most 2 elements of every 4 that are not zero: 1 of 2 for tf32, 2 of 4 pairs for 4 bits."),
    argument="a",
    found="row {row} has {nonzero} {unit} that are not zero in k {first} to {last}",
    limit="a sparse A of {data_type} has at most {kept} of {count} {unit}",
    fix="Prune A to {kept} of {count} {unit}, or use sparse=False.",
    source="PTX ISA, tcgen05.mma: sparse matrices",
    architectures=BLACKWELL,
    passing='ts.emulate_mma(np.eye(128), np.zeros((128, 8)), data_type="bf16", consumer="tcgen05", sparse=True)',
    failing=(
        'ts.emulate_mma(np.ones((128, 128)), np.zeros((128, 8)), data_type="bf16", consumer="tcgen05", sparse=True)'
    ),
)


class Compressed(NamedTuple):
    """A sparse A as it is stored."""

    stored: Matrix  # half of the elements (m, k / 2)
    nibbles: Nibbles  # their metadata: a nibble for a group of a row


def compressed(a: Matrix, data_type: DataType) -> Compressed:
    """The stored half of A (m, k), and its metadata: a nibble for a group of a row.

    >>> stored, nibbles = compressed(np.array([[5, 0, 7, 0, 0, 2, 0, 3]]), DataType.named("f16"))
    >>> stored.tolist(), [hex(nibble) for nibble in nibbles[0]]
    ([[5, 7, 2, 3]], ['0x8', '0xd'])
    """
    pieces = _pieces(a, data_type)
    count = pieces.shape[2]
    kept = count // 2
    filled = (pieces != 0).any(axis=-1)
    used = filled.sum(axis=-1)
    if (used > kept).any():
        raise _too_many_nonzero(used, pieces, data_type)
    positions = np.sort(np.argsort(~filled, axis=-1, kind="stable")[..., :kept], axis=-1)
    stored = np.take_along_axis(pieces, positions[..., None], axis=2).reshape(len(a), -1)
    nibbles = _TF32_NIBBLES[positions[..., 0]] if kept == 1 else (positions @ [1, 4]).astype(np.uint8)
    return Compressed(stored, nibbles)


def _too_many_nonzero(used: npt.NDArray[np.int64], pieces: Matrix, data_type: DataType) -> RuleError:
    """The error for the first group of a row with more pieces that are not zero than are stored."""
    _, _, count, together = pieces.shape
    row, group = np.argwhere(used > count // 2)[0].tolist()
    extent = count * together
    first = group * extent
    last = first + extent - 1
    return MMA_SPARSE.error(
        row=row,
        nonzero=int(used[row, group]),
        k=(first, last),
        first=first,
        last=last,
        unit="pairs" if together > 1 else "elements",
        data_type=data_type.name,
        kept=count // 2,
        count=count,
    )


def expanded(stored: Matrix, nibbles: Nibbles, data_type: DataType) -> Matrix:
    """A (m, k) as the tensor core sees it: the stored elements at the positions that the metadata names."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]), stored.dtype)
    pieces = _pieces(dense, data_type)
    kept = stored.reshape(*pieces.shape[:2], pieces.shape[2] // 2, pieces.shape[3])
    positions = np.stack([nibbles & 3, nibbles >> 2], axis=-1).astype(np.int64)
    if pieces.shape[2] == 2:
        positions = (nibbles == _TF32_NIBBLES[1]).astype(np.int64)[..., None]
    np.put_along_axis(pieces, positions[..., None], kept, axis=2)
    return pieces.reshape(dense.shape)


def _pieces(a: Matrix, data_type: DataType) -> Matrix:
    """A as (m, groups, pieces of a group, elements of a piece)."""
    return a.reshape(len(a), -1, 2 if data_type.smem_bits == 32 else 4, PIECE_ELEMENTS[data_type.smem_bits])
