"""2:4 sparsity: half of A is stored, and the metadata selects its positions.

row of A     5 0 7 0   0 2 0 3        groups of 4, of which 2 are stored
stored       5 7       2 3
metadata     0x8       0xd            a nibble a group: the places 0 and 2, 1 and 3, two bits each

A nibble chooses two of four units for every type; the types differ in what a unit is:

    type of A          a group         stored           a unit         nibbles in use
    f16, bf16          4 elements      2                an element     4 8 9 c d e
    8 bits             4 elements      2                an element     4 8 9 c d e
    4 bits             8 elements      2 pairs of 4     a pair         4 8 9 c d e
    tf32               2 elements      1                half of one    4 (the first) and e (the second)

A tensor core uses a nibble to choose elements of B: row m of A is multiplied by the two units of every group of B that
its nibbles select. On an H200 this is the complete behaviour, also for nibbles that PTX leaves undefined (one unit
twice, or halves of two tf32).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import rule

Matrix = npt.NDArray[Any]
Nibbles = npt.NDArray[np.uint8]
GROUP_UNITS = 4
ORDERED_NIBBLES = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)  # two places, the lower first
PIECE_ELEMENTS = {4: 2, 8: 1, 16: 1, 32: 1}  # elements that stay together, by bits of an element in shared memory
TF32_NIBBLES = np.array([0x4, 0xE], np.uint8)
# Four of these are a group, by bits of an element: codes of 4 bits have a byte each, so a pair of them has 16.
_UNIT_DTYPES = {4: np.uint16, 8: np.uint8, 16: np.uint16, 32: np.uint16}

MMA_SPARSE = rule(
    "mma-sparse",
    ("A sparse A has at most 2 nonzero elements of every 4; for tf32 1 of 2, for 4 bits 2 of 4 pairs."),
    argument="a",
    found="row {row} has {nonzero} {unit} that are not zero in k {first} to {last}: {values:, }",
    limit="a sparse A of {data_type} has at most {kept} of {count} {unit}",
    fix="Prune A to {kept} of {count} {unit}, or multiply it dense.",
    source="PTX ISA, mma.sp, wgmma.mma_async.sp and tcgen05.mma.sp: sparse matrix storage",
    passing='ts.compress([[5, 0, 7, 0]], "bf16")',
    failing='ts.compress([[5, 0, 7, 1]], "bf16")',
)


def group_elements(data_type: DataType) -> int:
    """Elements of A, and of B, that one nibble covers.

    >>> [group_elements(DataType.named(name)) for name in ("tf32", "f16", "e4m3", "s4")]
    [2, 4, 4, 8]
    """
    return 2 if data_type.smem_bits == 32 else GROUP_UNITS * PIECE_ELEMENTS[data_type.smem_bits]


class Compressed(NamedTuple):
    """The stored form of a sparse A."""

    values: Matrix  # half of the elements (m, k / 2)
    metadata: npt.NDArray[np.unsignedinteger[Any]]  # a nibble for a group of a row, or as an instruction takes it


def compress_rows(a: Matrix, data_type: DataType) -> Compressed:
    """The stored half of A (m, k), and its metadata: a nibble for a group of a row.

    >>> stored, nibbles = compress_rows(np.array([[5, 0, 7, 0, 0, 2, 0, 3]]), DataType.named("f16"))
    >>> stored.tolist(), [hex(nibble) for nibble in nibbles[0]]
    ([[5, 7, 2, 3]], ['0x8', '0xd'])
    """
    pieces = _pieces(a, data_type)
    count = pieces.shape[2]
    kept_count = count // 2
    filled = (pieces != 0).any(axis=-1)
    used = filled.sum(axis=-1)
    if (used > kept_count).any():
        raise _too_many_nonzero(used, pieces, data_type)
    positions = np.sort(np.argsort(~filled, axis=-1, kind="stable")[..., :kept_count], axis=-1)
    stored = np.take_along_axis(pieces, positions[..., None], axis=2).reshape(len(a), -1)
    if kept_count == 1:
        nibbles = TF32_NIBBLES[positions[..., 0]]
    else:
        lower, upper = positions[..., 0], positions[..., 1]
        nibbles = (lower | upper << 2).astype(np.uint8)  # two bits each
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
        values=tuple(f"{value:g}" for value in pieces[row, group].ravel().astype(float).tolist()),
    )


def entries_of_elements(nibbles: Nibbles, data_type: DataType, entry_bits: int) -> Nibbles:
    """Metadata as in tensor memory: an entry for every element of A (m, k); a pair of 4-bit elements shares one.

    >>> entries_of_elements(np.array([[0xD]], np.uint8), DataType.named("f16"), 1).tolist()  # 1 0 1 1, the lowest bit first
    [[1, 0, 1, 1]]
    """
    entries = nibbles[..., None] >> _entry_shifts(data_type) & np.uint8((1 << entry_bits) - 1)
    return entries.reshape(len(nibbles), -1)


def nibbles_of_entries(entries: Nibbles, data_type: DataType) -> Nibbles:
    """The nibbles that were cut into entries of elements."""
    shifts = _entry_shifts(data_type)
    groups = entries.reshape(*entries.shape[:-1], -1, len(shifts))
    nibbles: Nibbles = np.bitwise_or.reduce(groups << shifts, axis=-1)
    return nibbles


def _entry_shifts(data_type: DataType) -> Nibbles:
    """The first bit of every element's entry in the nibble of its group."""
    group = group_elements(data_type)
    return (GROUP_UNITS * np.arange(group) // group).astype(np.uint8)


def expand_rows(stored: Matrix, nibbles: Nibbles, data_type: DataType) -> Matrix:
    """A (m, k) as the tensor core sees it: the stored elements at the positions that the metadata names."""
    dense = np.zeros((len(stored), 2 * stored.shape[1]), stored.dtype)
    pieces = _pieces(dense, data_type)
    values = stored.reshape(*pieces.shape[:2], pieces.shape[2] // 2, pieces.shape[3])
    positions = np.stack([nibbles & 3, nibbles >> 2], axis=-1).astype(np.int64)
    if pieces.shape[2] == 2:
        positions = (nibbles == TF32_NIBBLES[1]).astype(np.int64)[..., None]
    np.put_along_axis(pieces, positions[..., None], values, axis=2)
    return pieces.reshape(dense.shape)


def seen_by_rows(b: Matrix, nibbles: Nibbles, data_type: DataType) -> Matrix:
    """What every row of A multiplies its stored elements by: B (…, n, k) and nibbles (…, m, groups) → (…, m, n, k / 2).

    >>> b = np.array([[10, 11, 12, 13]], np.float16)
    >>> seen_by_rows(b, np.array([[0x4], [0xD]], np.uint8), DataType.named("f16")).tolist()  # two rows of A
    [[[10.0, 11.0]], [[11.0, 13.0]]]
    """
    units = np.ascontiguousarray(b).view(_UNIT_DTYPES[data_type.smem_bits])
    first = GROUP_UNITS * np.arange(nibbles.shape[-1])[:, None]
    places = first + np.stack([nibbles & 3, nibbles >> 2], axis=-1)
    columns = places.reshape(*nibbles.shape[:-1], -1)
    seen: Matrix = np.take_along_axis(units[..., None, :, :], columns[..., :, None, :], axis=-1)
    return seen.view(b.dtype)


def _pieces(a: Matrix, data_type: DataType) -> Matrix:
    """A as (m, groups, pieces of a group, elements of a piece)."""
    together = PIECE_ELEMENTS[data_type.smem_bits]
    return a.reshape(len(a), -1, group_elements(data_type) // together, together)
