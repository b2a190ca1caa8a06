"""ldmatrix and stmatrix on numpy arrays: 8 x 8 matrices of 16-bit elements, shared memory ↔ registers.

Lane 8 j + r gives the address of row r of matrix j: 16 bytes. Register j of lane L then holds two elements of
matrix j, the first in its low half:

              plain                                 .trans
              column 0 1  2 3  4 5  6 7             column  0   1   2  …  7
    row 0            L0   L1   L2   L3     row 0            L0  L4  L8 … L28     (low half)
    row 1            L4   L5   L6   L7     row 1            L0  L4  L8 … L28     (high half)
      …                                    row 2            L1  L5  L9 … L29

So plain ldmatrix fills the fragments of mma from rows that run along k, and .trans from rows that run along
m or n. stmatrix is the mirror image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, broken
from tilescope.mma.fragment import MATRIX_COUNTS, Fragment, as_array, fragment
from tilescope.tma.buffers import readable, writeable

_LANES = 32
_ROW_BYTES = 16
_ROWS = 8


def ldmatrix(
    smem: Any, lane_address: npt.ArrayLike, *, count: int = 4, transpose: bool = False, smem_address: int = 0
) -> npt.NDArray[np.uint32]:
    """The registers after ldmatrix.x`count`: (32, count) words; (..., 32) addresses give (..., 32, count).

    `smem` holds shared memory from address `smem_address` on. Lane i gives `lane_address[i]`; only the first
    8 * count lanes' addresses are looked at.

    >>> smem = np.arange(64, dtype=np.uint16)  # element (r, c) of an 8 x 8 matrix is 8 r + c
    >>> rows = np.arange(32) % 8 * 16
    >>> word = ldmatrix(smem, rows, count=1)[22, 0]
    >>> divmod(int(word) & 0xFFFF, 8), divmod(int(word) >> 16, 8)  # lane 22: row 5, columns 4 and 5
    ((5, 4), (5, 5))
    """
    matrices = _fragment("ldmatrix", count, transpose)
    memory = readable("smem", smem)
    first_byte = _row_offsets(memory, lane_address, count, smem_address)
    rows = memory[first_byte[..., None] + np.arange(_ROW_BYTES)]
    elements = rows.view("<u2").reshape(*first_byte.shape[:-1], count, _ROWS, _ROW_BYTES // 2)
    held = np.ascontiguousarray(elements[(..., *matrices.indices())])  # (..., 32, 2 * count)
    registers: npt.NDArray[np.uint32] = held.view("<u4").astype(np.uint32, copy=False)
    return registers


def stmatrix(
    registers: npt.ArrayLike,
    smem: npt.NDArray[Any],
    lane_address: npt.ArrayLike,
    *,
    transpose: bool = False,
    smem_address: int = 0,
) -> None:
    """Store (32, count) registers as stmatrix.x`count` does, into `smem` in place.

    >>> smem = np.zeros(64, np.uint16)
    >>> stmatrix(np.arange(32, dtype=np.uint32)[:, None], smem, np.arange(32) % 8 * 16)
    >>> smem[:4].tolist()  # low halves of lanes 0 and 1, high halves 0
    [0, 0, 1, 0]
    """
    words = _registers(registers)
    count = words.shape[1]
    matrices = _fragment("stmatrix", count, transpose)
    memory = writeable("smem", smem)
    first_byte = _row_offsets(memory, lane_address, count, smem_address)
    if first_byte.ndim != 1:
        raise broken(
            "matrix-lanes", "lane_address", f"an array of shape {np.shape(lane_address)}",
            "one store takes 32 addresses", "Call it once for each store.",
        )  # fmt: skip
    halves = words.astype("<u4").view("<u2")  # (32, 2 * count)
    stacked = matrices.collect(halves).reshape(count * _ROWS, _ROW_BYTES // 2)
    rows = np.ascontiguousarray(stacked).view(np.uint8)
    _require_one_value_each(first_byte, rows, smem_address)
    memory[first_byte[:, None] + np.arange(_ROW_BYTES)] = rows


def _fragment(direction: str, count: Any, transpose: bool) -> Fragment:
    if isinstance(count, bool) or count not in MATRIX_COUNTS:
        raise broken("matrix-count", "count", f"{count!r} matrices", f"{direction} moves 1, 2 or 4", "Use 1, 2 or 4.")
    return fragment(f"{direction}.x{count}" + (".trans" if transpose else ""))


def _registers(registers: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    words = as_array("registers", registers)
    if (
        words.ndim != 2
        or words.shape[0] != _LANES
        or words.shape[1] not in MATRIX_COUNTS
        or words.dtype.kind not in "iu"
    ):
        raise broken(
            "matrix-registers", "registers", f"an array of shape {words.shape} and type {words.dtype}",
            "32-bit words of shape (32, 1), (32, 2) or (32, 4): one register per lane and matrix",
            "Give np.uint32 words.",
        )  # fmt: skip
    if words.dtype.itemsize != 4 and words.size and (words.min() < 0 or words.max() > 0xFFFF_FFFF):
        raise broken(
            "matrix-registers", "registers", "words beyond 32 bits", "0 to 0xffffffff", "Give np.uint32 words."
        )
    return words.view(np.uint32) if words.dtype.itemsize == 4 else words.astype(np.uint32)


def _row_offsets(
    memory: npt.NDArray[np.uint8], lane_address: npt.ArrayLike, count: int, smem_address: Any
) -> npt.NDArray[np.int64]:
    """Where in `memory` each row starts, (..., 8 * count); refused where the hardware would fault."""
    address = as_array("lane_address", lane_address)
    if not isinstance(smem_address, int) or smem_address < 0:
        raise broken("address", "smem_address", repr(smem_address), "an integer of at least 0", "Give a byte address.")
    if address.ndim == 0 or address.shape[-1] != _LANES or address.dtype.kind not in "iu":
        raise broken(
            "matrix-lanes", "lane_address", f"an array of shape {address.shape} and type {address.dtype}",
            "32 integer addresses, one per lane", "Give the address of a row for each lane (lanes beyond 8 x count: any).",
        )  # fmt: skip
    used = address[..., : _ROWS * count].astype(np.int64)
    offset = used - smem_address
    problems = []
    for rule, wrong, limit, fix in (
        ("matrix-alignment", used % _ROW_BYTES != 0, "row addresses are multiples of 16", "Align the rows."),
        (
            "matrix-range", (offset < 0) | (offset > memory.size - _ROW_BYTES),
            f"smem holds {smem_address:#x} to {smem_address + memory.size:#x}, and a row is 16 bytes", "Stay inside.",
        ),
    ):  # fmt: skip
        if wrong.any():
            lane = int(np.argwhere(wrong)[0][-1])
            found = f"lane {lane} gives {int(used[wrong][0]):#x} ({int(wrong.sum())} of {wrong.size} rows are wrong)"
            problems.append(Violation(rule, "error", "lane_address", found, limit, fix))
    if problems:
        raise RuleError(problems)
    return offset


def _require_one_value_each(first_byte: npt.NDArray[np.int64], rows: npt.NDArray[np.uint8], smem_address: int) -> None:
    """Refuse two different rows for one address: which of them stays is not defined."""
    order = np.argsort(first_byte, kind="stable")
    same_place = first_byte[order][1:] == first_byte[order][:-1]
    differ = same_place & (rows[order][1:] != rows[order][:-1]).any(axis=1)
    if differ.any():
        one, other = sorted(int(lane) for lane in order[np.argmax(differ) : np.argmax(differ) + 2])
        raise broken(
            "matrix-overlap", "lane_address",
            f"lanes {one} and {other} both give {int(first_byte[one]) + smem_address:#x}, with different rows",
            "which of two rows stays at one address is not defined", "Give every row a place of its own.",
        )  # fmt: skip
