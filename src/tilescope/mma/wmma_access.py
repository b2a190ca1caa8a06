"""How the lanes of a warp read and write the memory of a wmma: which line each lane goes to, and how much it takes there.

A line is a row of a row-major matrix (.row), or a column of a column-major one (.col). A lane holds w adjacent elements
(see fragment.py). There are four methods, seen in the machine code of ptxas 13.4 for sm_80 to sm_120:

    neighbours lie along a line              one access for all of them
    16 bits, and they lie across lines       the words of the transposed 8 x 8 matrix; lanes exchange them (movmatrix)
    other types across lines                 one access for every element
    A and B in shared memory, where the      ldmatrix, with .trans for the second: lanes give rows of 16 bytes
    first or second way would do
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.mma.fragment import QUAD_LANES, REGISTER_BITS, Fragment
from tilescope.mma.matrix_form import ROW_BYTES

Order = Literal["row", "col"]
Numbers = npt.NDArray[np.int64]
_MATRIX_ROWS = 8
_HALF_BITS = 16
_NEIGHBOURS_OF_D = 2  # that a lane holds of an accumulator


class LaneAccess(NamedTuple):
    """One access of a warp: the lanes from the first on, the line and the first element that each of them goes to."""

    line: Numbers
    first: Numbers
    elements: int  # that a lane takes
    matrices: int | None = None  # of ldmatrix; None: an ordinary load or store

    @property
    def lanes(self) -> int:
        """How many lanes take part."""
        return len(self.line)


@lru_cache(maxsize=256)
def wmma_accesses(held: Fragment, order: Order, *, by_ldmatrix: bool) -> tuple[LaneAccess, ...]:
    """The accesses that a fragment is loaded or stored by; `by_ldmatrix`: A or B, in shared memory.

    >>> from tilescope.mma.fragment import fragment
    >>> a = fragment("wmma.m16n16k16", "A", "f16")
    >>> words = wmma_accesses(a, "row", by_ldmatrix=False)
    >>> len(words), words[0].elements, words[0].line[5], words[0].first[5]
    (4, 2, np.int64(1), np.int64(2))
    >>> [(access.matrices, access.lanes, access.elements) for access in wmma_accesses(a, "row", by_ldmatrix=True)]
    [(4, 32, 8)]
    """
    values = held.values // held.copies
    _, row, column = held.indices()
    line, place = (row, column) if order == "row" else (column, row)
    line = line[:, :values]
    place = place[:, :values]
    neighbours = _neighbours(held)
    goes_along = neighbours > 1 and line[0, 0] == line[0, 1]
    goes_across = neighbours > 1 and not goes_along and held.element_bits == _HALF_BITS
    if by_ldmatrix and (goes_along or goes_across):
        return _rows_of_matrices(held, line[0, ::neighbours], place[0, ::neighbours])
    if goes_across:
        lane = np.arange(WARP_LANES)
        return tuple(
            LaneAccess(
                line[0, value] + lane // QUAD_LANES, place[0, value] + neighbours * (lane % QUAD_LANES), neighbours
            )
            for value in range(0, values, neighbours)
        )
    step = neighbours if goes_along else 1
    return tuple(LaneAccess(line[:, value], place[:, value], step) for value in range(0, values, step))


def _neighbours(held: Fragment) -> int:
    """How many elements of a lane are adjacent in the matrix."""
    if held.operand in ("A", "B"):
        return max(1, REGISTER_BITS // held.element_bits)
    return _NEIGHBOURS_OF_D


def _rows_of_matrices(held: Fragment, line: Numbers, place: Numbers) -> tuple[LaneAccess, ...]:
    """ldmatrix: `line` and `place` are where the matrix of every register begins. Two or four matrices hold 16 rows."""
    most = 4 if held.element_bits == _HALF_BITS else 2
    elements = ROW_BYTES * 8 // held.element_bits
    row = np.arange(_MATRIX_ROWS)
    accesses = []
    for start in range(0, len(line), most):
        lines = (line[start : start + most, None] + row).ravel()
        places = np.repeat(place[start : start + most], _MATRIX_ROWS)
        accesses.append(LaneAccess(lines, places, elements, matrices=len(lines) // _MATRIX_ROWS))
    return tuple(accesses)
