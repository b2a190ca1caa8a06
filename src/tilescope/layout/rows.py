"""A tile as rows and columns: how it is drawn, and how threads read it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilescope.layout.checks import MAX_RANK
from tilescope.layout.modes import Modes
from tilescope.layout.pairs import Pairs, coalesced, summed
from tilescope.layout.tiling import Tiling, contiguous, find_tiling, oriented
from tilescope.rule import rule
from tilescope.swizzle import Swizzle

LAYOUT_ATOMS = rule(
    "layout-atoms",
    "A copy, a plan or a search needs a tile of rows in equal atoms; other strides have addresses alone.",
    source="the grid of atoms of `Layout`",
    passing="ts.Layout((64, 64), 16, atom=(8, 64)).as_rows().tiling",
    failing="ts.Layout.from_modes((((2, 4), 8), ((1, 32), 2)), 16).as_rows().tiling",
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows and columns of a tile, its contiguous index left to right; made by `Layout.as_rows`."""

    pairs: tuple[Pairs, Pairs]  # (extent, stride in bits) of rows and of columns
    names: tuple[str, str]  # of the index that counts rows, and of the one that counts columns
    element_bits: int
    swizzle: Swizzle
    start: int
    unit_bits: int  # what an address counts
    atoms: Tiling | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = (prod(extent for extent, _ in index) for index in self.pairs)
        return rows, columns

    @property
    def tiling(self) -> Tiling:
        """The tile as a grid of atoms; RuleError where it is none."""
        if self.atoms is None:
            found = f"rows {self.pairs[0]}, columns {self.pairs[1]}, (extent, stride in bits)"
            limit = "rows of one pitch in equal atoms that follow each other by column or by row"
            raise LAYOUT_ATOMS.error("layout", found, limit, "Use a tile such as Layout((64, 64), 16, atom=(8, 64)).")
        return self.atoms

    @property
    def run_elements(self) -> int:
        """Elements of a row that lie beside each other before the swizzle."""
        extent, stride = self.pairs[1][0]
        return extent if stride == self.element_bits else 1

    def logical(self, row: Any, column: Any) -> Any:
        """Address before the swizzle, of indices inside the tile."""
        return summed(self.pairs, (row, column), self.start, self.unit_bits)

    def address(self, row: Any, column: Any) -> Any:
        """Physical byte address, of indices inside the tile."""
        return self.swizzle.apply(self.logical(row, column))

    def byte_address(self, row: Any, byte: Any) -> Any:
        """Physical address of byte `byte` of a row, as if the row lay in one piece."""
        rows, columns = self.pairs
        further = columns[1:] if columns[0][1] == self.element_bits else columns
        pairs = rows, ((self.run_elements * self.element_bits // 8, 8), *further)
        return self.swizzle.apply(summed(pairs, (row, byte), self.start, self.unit_bits))


def two_indices(bit_modes: Modes, element_bits: int) -> tuple[Pairs, ...]:
    """The strides of mn, of k, and of the indices above them, in bits.

    CuTe prints the staged tile of an MMA as ((mma mn, mma k), mn, k, stages): the parts of mn come together, and of k.

    >>> staged = Modes(((128, 16), 1, 4, 2), ((1024, 16), 0, 256, 131072))
    >>> two_indices(staged, 16)
    (((128, 1024),), ((64, 16),), ((2, 131072),))
    """
    pairs = tuple(coalesced(*part.pairs) for part in bit_modes.parts)
    rank, blocks = len(pairs), bit_modes.parts[0].parts
    if rank < 3:
        return pairs if rank == 2 else (((1, 0),), *pairs)
    steps = [index[0][1] for index in pairs]
    if steps[-1] == element_bits and element_bits not in steps[:-1]:  # as Triton orders them: buffers, mn, k
        return (*pairs[-2:], *pairs[:-2])
    if rank == MAX_RANK or len(blocks) != 2:
        return pairs
    major = contiguous(pairs[:2], element_bits) if rank == 3 else None
    plain = find_tiling(*oriented(major, *pairs[:2]), element_bits) if major else None
    if plain is not None and not plain.padding_bytes:  # (mn, k, stages)
        return pairs
    inner = [coalesced(*block.pairs, *outer) for block, outer in zip(blocks, pairs[1:3], strict=True)]
    return (*inner, *pairs[3:])
