"""Shared memory cut into pieces that every access takes whole or not at all.

    bytes      0 · · · 4 · · · 8 · · · 12        accesses     TMA writes 0-11, warp 0 reads 0-7, warp 1 reads 8-11
    pieces     └── piece 0 ───┘└ piece 1 ┘

A cell is the largest number of bytes that divides every address and size. A piece is a set of cells, which need not be
adjacent: the part of a swizzled tile that one warp writes is one piece, if no access separates its cells.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np
import numpy.typing as npt

from tilescope.mma.tmem_address import TMEM_COLUMNS

CellNumbers = npt.NDArray[np.int64]
LARGEST_CELL_BYTES = 16
TENSOR_MEMORY_START = 1 << 18  # cells of tensor memory have larger numbers than those of shared memory
TENSOR_CELL_LANES = 16  # of one column: no instruction but cp.4x256b touches less


def tensor_cells(places: CellNumbers) -> CellNumbers:
    """The position of cells of tensor memory among those of shared memory; `places` are lane * 512 + column.

    >>> [hex(cell) for cell in tensor_cells(np.array([0, 512, 1, 16 * 512]))]
    ['0x40000', '0x40010', '0x42000']
    """
    lanes, columns = np.divmod(places, TMEM_COLUMNS)
    cells: CellNumbers = np.unique(lanes // TENSOR_CELL_LANES * TMEM_COLUMNS + columns)
    return TENSOR_MEMORY_START + cells * LARGEST_CELL_BYTES


def tensor_address(first_byte: int) -> int | None:
    """The address of tensor memory, lane and column, that a cell has; None for one of shared memory.

    >>> hex(tensor_address(0x42010)), tensor_address(0x400)
    ('0x100001', None)
    """
    if first_byte < TENSOR_MEMORY_START:
        return None
    lane_group, column = divmod((first_byte - TENSOR_MEMORY_START) // LARGEST_CELL_BYTES, TMEM_COLUMNS)
    return lane_group * TENSOR_CELL_LANES << 16 | column


@dataclass(slots=True)
class CellSets:
    """Sets of cells, each kept once and known by its number."""

    cell_bytes: int = LARGEST_CELL_BYTES
    sets: list[CellNumbers] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _unions: dict[frozenset[int], int] = field(default_factory=dict)

    def divide_by(self, addresses: CellNumbers, size_bytes: int) -> None:
        """Make cells small enough for an access; before the first set is made."""
        self.cell_bytes = gcd(self.cell_bytes, size_bytes, int(np.gcd.reduce(addresses, initial=0)))

    def of(self, addresses: CellNumbers, size_bytes: int) -> int:
        """The set of the cells of `size_bytes` from each address on."""
        first = addresses // self.cell_bytes
        cells = (first[:, None] + np.arange(size_bytes // self.cell_bytes)).ravel()
        return self.number(np.unique(cells))

    def number(self, cells: CellNumbers) -> int:
        """The number of a set of cells, which are sorted."""
        content = cells.tobytes()
        number = self._numbers.get(content)
        if number is None:
            number = len(self.sets)
            self._numbers[content] = number
            self.sets.append(cells)
        return number

    def union(self, numbers: frozenset[int]) -> int:
        """The set of all cells of some sets."""
        if len(numbers) == 1:
            return next(iter(numbers))
        union = self._unions.get(numbers)
        if union is None:
            union = self.number(np.unique(np.concatenate([self.sets[number] for number in sorted(numbers)])))
            self._unions[numbers] = union
        return union

    def without(self, number: int, taken: int) -> int | None:
        """The set without the cells of another; None where nothing is left."""
        left = np.setdiff1d(self.sets[number], self.sets[taken], assume_unique=True)
        return self.number(left) if len(left) else None


class Pieces:
    """Cells in classes: two cells are in one piece if every set has both of them or none.

    >>> sets = CellSets(cell_bytes=4)
    >>> everything, left = sets.number(np.arange(3)), sets.number(np.arange(2))
    >>> pieces = Pieces(sets, [everything, left])
    >>> pieces.of(everything), pieces.of(left), pieces.first_byte(0), pieces.size_bytes(1)
    ((0, 1), (0,), 0, 4)
    """

    def __init__(self, sets: CellSets, used: list[int]) -> None:
        self.sets = sets
        end = max((int(sets.sets[number][-1]) + 1 for number in used), default=0)
        labels = np.full(end, -1, np.int64)
        sizes: list[int] = []
        for number in used:
            _split(labels, sizes, sets.sets[number])
        is_touched = labels >= 0
        labels_found, firsts, piece_of_cell = np.unique(labels[is_touched], return_index=True, return_inverse=True)
        cells = np.flatnonzero(is_touched)
        order = np.argsort(firsts)  # pieces are numbered by their first cells
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self._piece_of_cell = np.full(end, -1, np.int64)
        self._piece_of_cell[cells] = rank[piece_of_cell]
        self._first_cells = cells[firsts[order]]
        self._sizes = np.bincount(rank[piece_of_cell], minlength=len(labels_found))
        self._of_set: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._first_cells)

    def of(self, number: int) -> tuple[int, ...]:
        """The pieces of a set."""
        pieces = self._of_set.get(number)
        if pieces is None:
            pieces = tuple(np.unique(self._piece_of_cell[self.sets.sets[number]]).tolist())
            self._of_set[number] = pieces
        return pieces

    def first_byte(self, piece: int) -> int:
        """Where a piece begins."""
        return int(self._first_cells[piece]) * self.sets.cell_bytes

    def size_bytes(self, piece: int) -> int:
        """Bytes of a piece."""
        return int(self._sizes[piece]) * self.sets.cell_bytes


def _split(labels: CellNumbers, sizes: list[int], cells: CellNumbers) -> None:
    """Give the cells of a set labels that no other cell has; classes inside the set keep theirs."""
    old_labels = labels[cells]
    distinct, inverse, counts = np.unique(old_labels, return_inverse=True, return_counts=True)
    renamed = distinct.copy()
    for place, (label, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
        if label >= 0 and sizes[label] == count:
            continue
        if label >= 0:
            sizes[label] -= count
        renamed[place] = len(sizes)
        sizes.append(count)
    labels[cells] = renamed[inverse]
