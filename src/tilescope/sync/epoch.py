"""An access in one 64-bit stamp: its epoch (who, and when), and the instruction.

    63        62             61-35    34       33-17   16-0
    (free)    asynchronous   epoch    strong   pc      column

A column is an actor that does one thing after another: a thread, its cp.async, an mbarrier whose copies complete … Its epoch
counts up; 0 means never. Numpy compares thousands of stamps at once.

Epochs of threads come from one counter, so the stamps of threads are ordered by age: if all threads up to some epoch happen
before an access, so do all stamps below `settled_end` of that epoch. Stamps of asynchronous work are larger than any of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Stamps = npt.NDArray[np.int64]
Columns = npt.NDArray[np.int64]
Epochs = npt.NDArray[np.int64] | npt.NDArray[np.int32]

COLUMN_END = 1 << 17
PC_END = 1 << 17
EPOCH_END = 1 << 27
PENDING = EPOCH_END - 1  # the epoch of pending work: nothing can be ordered after it yet

_PC_SHIFT = 17
_STRONG_SHIFT = 34
_EPOCH_SHIFT = 35
_ASYNCHRONOUS_SHIFT = 62
_STRONG = np.int64(1 << _STRONG_SHIFT)


class Stamp(NamedTuple):
    """The fields of one stamp."""

    column: int
    epoch: int
    pc: int
    is_strong: bool


def stamp_base(pc: int, *, is_strong: bool = False, is_asynchronous: bool = False) -> int:
    """The part of a stamp that all lanes of an instruction share."""
    return pc << _PC_SHIFT | int(is_strong) << _STRONG_SHIFT | int(is_asynchronous) << _ASYNCHRONOUS_SHIFT


def pack_stamps(base: int, columns: Columns | int, epochs: Epochs | int) -> Stamps:
    """Stamps of several columns.

    >>> unpack_stamp(int(pack_stamps(stamp_base(7), np.array([3]), np.array([12]))[0]))
    Stamp(column=3, epoch=12, pc=7, is_strong=False)
    """
    high = np.asarray(epochs, np.int64) << _EPOCH_SHIFT
    return np.asarray(high | (np.asarray(columns, np.int64) | base))


def pack_stamp(base: int, column: int, epoch: int) -> int:
    """One stamp.

    >>> unpack_stamp(pack_stamp(stamp_base(7), 3, 12))
    Stamp(column=3, epoch=12, pc=7, is_strong=False)
    """
    return stamp_of_epoch(epoch) | column | base


def stamp_of_epoch(epoch: int) -> int:
    """The part of a stamp with the time.

    >>> unpack_stamp(stamp_of_epoch(12) | 3)
    Stamp(column=3, epoch=12, pc=0, is_strong=False)
    """
    return epoch << _EPOCH_SHIFT


def settled_end(epoch: int) -> int:
    """A bound above the stamps of all threads up to an epoch, and below those of asynchronous work.

    >>> stamps = pack_stamps(stamp_base(7), np.array([3, 3]), np.array([12, 13]))
    >>> (stamps < settled_end(12)).tolist()
    [True, False]
    """
    return stamp_of_epoch(epoch + 1)


def columns_of(stamps: Stamps) -> Columns:
    """The column of each stamp."""
    return stamps & (COLUMN_END - 1)


def epochs_of(stamps: Stamps) -> Epochs:
    """The epoch of each stamp; 0: no access."""
    return stamps >> _EPOCH_SHIFT & (EPOCH_END - 1)


def pcs_of(stamps: Stamps) -> npt.NDArray[np.int64]:
    """The instruction of each stamp."""
    return stamps >> _PC_SHIFT & (PC_END - 1)


def first_of_each(numbers: npt.NDArray[np.int64]) -> list[int]:
    """The index of the first occurrence of each number.

    >>> first_of_each(np.array([7, 7, 3, 7]))
    [2, 0]
    """
    indices: list[int] = np.unique(numbers, return_index=True)[1].tolist()
    return indices


def is_strong(stamps: Stamps) -> npt.NDArray[np.bool_]:
    """Whether each was strong: an atomic, or a load or store with an ordering."""
    return np.asarray((stamps & _STRONG) != 0)


def is_asynchronous(stamp: int) -> bool:
    """Whether a copy or a tensor core made the access, not a thread."""
    return bool(stamp >> _ASYNCHRONOUS_SHIFT)


def are_asynchronous(stamps: Stamps) -> npt.NDArray[np.bool_]:
    """For each of several stamps whether a copy or a tensor core made the access."""
    return np.asarray(stamps >> _ASYNCHRONOUS_SHIFT != 0)


def unpack_stamp(stamp: int) -> Stamp:
    """The fields of one stamp."""
    return Stamp(
        stamp & (COLUMN_END - 1),
        stamp >> _EPOCH_SHIFT & (EPOCH_END - 1),
        stamp >> _PC_SHIFT & (PC_END - 1),
        bool(stamp >> _STRONG_SHIFT & 1),
    )
