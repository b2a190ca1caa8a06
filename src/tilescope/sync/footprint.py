"""The bytes that an asynchronous operation reads or writes.

Rows(starts=[0x1000000400], row_bytes=8192)       one run: the box of a TMA load without gaps
Rows(starts=[0x400, 0x480, …], row_bytes=64)      rows narrower than their pitch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.sync.address import Addresses

CellNumbers: TypeAlias = npt.NDArray[np.int64]
Cells: TypeAlias = slice | CellNumbers
"""Numbers of shadow cells: a run of them as a slice, or any of them, each once."""


class Footprint(Protocol):
    """Bytes of the cluster's shared memory, as shadow cells of any width."""

    def cells(self, cell_bytes: int) -> Cells:
        """The cells that hold any of the bytes, each once."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of consecutive bytes. In shared memory `starts` are offsets in the cluster's array, in global memory addresses."""

    starts: Addresses
    row_bytes: int

    def cells(self, cell_bytes: int) -> Cells:
        """The cells that hold any of the bytes, each once.

        >>> Rows(np.array([1024]), 40).cells(16)
        slice(64, 67, None)
        >>> Rows(np.array([0, 64]), 32).cells(16).tolist()
        [0, 1, 4, 5]
        """
        if len(self.starts) == 1:
            first = int(self.starts[0])
            return slice(first // cell_bytes, ceil_div(first + self.row_bytes, cell_bytes))
        cells_of_row = self.row_bytes // cell_bytes
        if cells_of_row <= 1:
            return np.unique(self.starts // cell_bytes)
        cells: CellNumbers = (self.starts[:, None] // cell_bytes + np.arange(cells_of_row)).ravel()
        return cells

    def whole_cells(self, cell_bytes: int) -> CellNumbers:
        """The cells that are completely inside the rows.

        >>> Rows(np.array([8]), 40).whole_cells(16).tolist()
        [1, 2]
        """
        first = -(-self.starts // cell_bytes)
        end = (self.starts + self.row_bytes) // cell_bytes
        most = int((end - first).max(initial=0))
        cells: CellNumbers = first[:, None] + np.arange(most)
        return cells[cells < end[:, None]]


def one_row(start: int, size_bytes: int) -> Rows:
    """Consecutive bytes."""
    return Rows(np.array([start]), size_bytes)
