"""ldmatrix and stmatrix on numpy arrays: matrices of 8 or 16 rows of 16 bytes, shared memory ↔ registers.

Lane 8 j + r gives the address of row r of matrix j: 16 bytes. Register j of lane L then holds two elements of
matrix j, the first in its low half:

              plain                                 .trans
              column 0 1  2 3  4 5  6 7             column  0   1   2  …  7
    row 0            L0   L1   L2   L3     row 0            L0  L4  L8 … L28     (low half)
    row 1            L4   L5   L6   L7     row 1            L0  L4  L8 … L28     (high half)
      …                                    row 2            L1  L5  L9 … L29

So plain ldmatrix fills the fragments of mma from rows that run along k, and .trans from rows that run along
m or n. stmatrix is the mirror image. The drawing is of the 8 x 8 matrices of 16-bit elements; matrix_form.py tells of
the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import Violation, raise_all
from tilescope.mma.fragment import fragment
from tilescope.mma.matrix_form import ROW_BYTES, MatrixFormName, matrix_form
from tilescope.reading import as_array, integer, readable, writeable
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.tma.elements import unpack_values

MATRIX_ALIGNMENT = rule(
    "matrix-alignment",
    "The row of a matrix starts at a multiple of 16 bytes.",
    argument="lane_address",
    found="lane {lane} passes {address:#x} ({wrong} of {rows} row addresses are wrong)",
    limit="row addresses are multiples of 16",
    fix="Use a row pitch of 16, 32, …",
    source="PTX ISA, ldmatrix and stmatrix: addresses are naturally aligned",
    passing="ts.ldmatrix(np.zeros(128, np.uint8), np.arange(32) * 16, count=1)",
    failing="ts.ldmatrix(np.zeros(128, np.uint8), np.arange(32) * 8, count=1)",
)
MATRIX_RANGE = rule(
    "matrix-range",
    "Each row of a matrix is inside the shared memory passed to the call.",
    argument="lane_address",
    found="lane {lane} passes {address:#x} ({wrong} of {rows} row addresses are wrong)",
    limit="smem holds {smem_address:#x} to {smem_end:#x}, and a row is 16 bytes",
    fix="Use addresses up to {last:#x}.",
    source="the argument `smem`",
    passing="ts.ldmatrix(np.zeros(128, np.uint8), np.arange(32) * 16, count=1)",
    failing="ts.ldmatrix(np.zeros(112, np.uint8), np.arange(32) * 16, count=1)",
)
MATRIX_OVERLAP = rule(
    "matrix-overlap",
    "Two rows that are stored to the same address are equal: it is undefined which of them remains.",
    argument="lane_address",
    found="lanes {lanes:and} both give {address:#x}, with different rows",
    limit="which of two rows stays at one address is not defined",
    fix="Store every row at its own address, 16 bytes apart.",
    source="PTX ISA, stmatrix: the order of its stores is not defined",
    passing="ts.stmatrix(np.arange(32)[:, None], np.zeros(64, np.uint16), np.arange(32) * 16)",
    failing="ts.stmatrix(np.arange(32)[:, None], np.zeros(64, np.uint16), np.arange(32) * 0)",
)


def ldmatrix(
    smem: Any,
    lane_address: npt.ArrayLike,
    *,
    count: int = 4,
    transpose: bool = False,
    smem_address: int = 0,
    form: MatrixFormName = "m8n8.b16",
) -> npt.NDArray[np.uint32]:
    """The registers after ldmatrix.x`count`: (32, count) words; (..., 32) addresses give (..., 32, count).

    `smem` holds shared memory from address `smem_address` on. Lane i passes `lane_address[i]`; only the addresses of the
    first 8 * count lanes are used (16 * count for the m16n16 forms, which also fill two registers a matrix).
    `form` is one of the 8-bit forms of sm_100 and later: m8n16.b6x16_p32, m8n16.b4x16_p64, m16n16.b8 and others.

    >>> smem = np.arange(64, dtype=np.uint16)  # element (r, c) of an 8 x 8 matrix is 8 r + c
    >>> rows = np.arange(32) % 8 * 16
    >>> word = ldmatrix(smem, rows, count=1)[22, 0]
    >>> divmod(int(word) & 0xFFFF, 8), divmod(int(word) >> 16, 8)  # lane 22: row 5, columns 4 and 5
    ((5, 4), (5, 5))

    Sixteen 4-bit values of a row are unpacked into the low bits of a byte each:

    >>> packed = np.array([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] + 8 * [0], np.uint8)
    >>> [hex(word) for word in ldmatrix(np.tile(packed, 8), rows, count=1, form="m8n16.b4x16_p64")[:4, 0]]
    ['0x3020100', '0x7060504', '0xb0a0908', '0xf0e0d0c']
    """
    chosen = matrix_form("ldmatrix", form, count=count, transpose=transpose)
    matrices = fragment(chosen.opcode("ldmatrix", count))
    memory = readable("smem", smem)
    first_byte = _row_offsets(memory, lane_address, chosen.rows * count, smem_address)
    rows = memory[first_byte[..., None] + np.arange(ROW_BYTES)]
    if chosen.packed_bits < 8:
        rows = unpack_values(rows[..., : 2 * chosen.packed_bits], chosen.packed_bits)
    elements = rows.view(f"<u{chosen.element_bits // 8}")
    elements = elements.reshape(*first_byte.shape[:-1], count, chosen.rows, chosen.columns)
    values = np.ascontiguousarray(elements[(..., *matrices.indices())])  # (..., 32, values)
    registers: npt.NDArray[np.uint32] = values.view("<u4").astype(np.uint32, copy=False)
    return registers


def stmatrix(
    registers: npt.ArrayLike,
    smem: npt.NDArray[Any],
    lane_address: npt.ArrayLike,
    *,
    transpose: bool = False,
    smem_address: int = 0,
    form: MatrixFormName = "m8n8.b16",
) -> None:
    """Store (32, count) registers as stmatrix.x`count` does, into `smem` in place.

    `form` "m16n8.b8" (sm_100 and later, transposing) stores bytes: 8 rows of 16 for a register.

    >>> smem = np.zeros(64, np.uint16)
    >>> stmatrix(np.arange(32, dtype=np.uint32)[:, None], smem, np.arange(32) % 8 * 16)
    >>> smem[:4].tolist()  # low halves of lanes 0 and 1, high halves 0
    [0, 0, 1, 0]
    """
    words = _registers(registers)
    count = words.shape[1]
    chosen = matrix_form("stmatrix", form, count=count, transpose=transpose)
    matrices = fragment(chosen.opcode("stmatrix", count))
    memory = writeable("smem", smem)
    first_byte = _row_offsets(memory, lane_address, chosen.rows * count, smem_address)
    if first_byte.ndim != 1:
        shape = np.shape(lane_address)
        raise ARGUMENT_RANGE.error(
            argument="lane_address",
            found=f"an array of shape {shape}",
            limit="one store takes 32 addresses",
            fix="Store lane_address[0], then [1] …",
            shape=shape,
        )
    values = words.astype("<u4").view(f"<u{chosen.element_bits // 8}")  # (32, values)
    stacked = matrices.collect(values).reshape(count * chosen.rows, chosen.columns)
    rows = np.ascontiguousarray(stacked).view(np.uint8)
    _require_one_value_each(first_byte, rows, smem_address)
    memory[first_byte[:, None] + np.arange(ROW_BYTES)] = rows


def _registers(registers: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    words = as_array("registers", registers)
    if words.shape not in ((WARP_LANES, 1), (WARP_LANES, 2), (WARP_LANES, 4)) or words.dtype.kind not in "iu":
        raise ARGUMENT_RANGE.error(
            argument="registers",
            found=f"an array of shape {words.shape} and type {words.dtype}",
            limit="32-bit words of shape (32, 1), (32, 2) or (32, 4): one register per lane and matrix",
            fix="Use np.uint32 words, as ldmatrix gives them.",
            shape=words.shape,
        )
    if words.dtype.itemsize == 4:
        return words.view(np.uint32)
    if words.size and (words.min() < 0 or words.max() > 0xFFFF_FFFF):
        raise ARGUMENT_RANGE.error(
            argument="registers", found="words beyond 32 bits", limit="0 to 0xffffffff", fix="Use np.uint32 words."
        )
    return words.astype(np.uint32)


def _row_offsets(
    memory: npt.NDArray[np.uint8], lane_address: npt.ArrayLike, rows: int, smem_address: int
) -> npt.NDArray[np.int64]:
    """Where in `memory` the rows start, (..., rows); refused where the hardware would fault."""
    base = integer("smem_address", smem_address, 0, (1 << 32) - 1)
    address = as_array("lane_address", lane_address)
    if address.shape[-1:] != (WARP_LANES,) or address.dtype.kind not in "iu":
        raise ARGUMENT_RANGE.error(
            argument="lane_address",
            found=f"an array of shape {address.shape} and type {address.dtype}",
            limit="32 integer addresses, one per lane",
            fix="Use 32 integers; those of lanes beyond the rows may be 0.",
            shape=address.shape,
        )
    used: npt.NDArray[np.int64] = address[..., :rows].astype(np.int64)
    raise_all(_row_problems(used, base, base + memory.size))
    return used - base


def _row_problems(address: npt.NDArray[np.int64], smem_address: int, smem_end: int) -> Iterator[Violation]:
    """Row addresses that are misaligned, or outside of shared memory."""
    last = smem_end - ROW_BYTES
    wrong_by_rule = (
        (MATRIX_ALIGNMENT, address % ROW_BYTES != 0),
        (MATRIX_RANGE, (address < smem_address) | (address > last)),
    )
    for broken, is_wrong in wrong_by_rule:
        if is_wrong.any():
            yield broken.violation(
                lane=int(np.argwhere(is_wrong)[0][-1]),
                address=int(address[is_wrong][0]),
                wrong=int(is_wrong.sum()),
                rows=is_wrong.size,
                smem_address=smem_address,
                smem_end=smem_end,
                last=last,
            )


def _require_one_value_each(first_byte: npt.NDArray[np.int64], rows: npt.NDArray[np.uint8], smem_address: int) -> None:
    """Refuse two different rows for one address: which of them stays is not defined."""
    order = np.argsort(first_byte, kind="stable")
    same_place = first_byte[order][1:] == first_byte[order][:-1]
    differ = same_place & (rows[order][1:] != rows[order][:-1]).any(axis=1)
    if differ.any():
        lane, other_lane = sorted(order[np.argmax(differ) : np.argmax(differ) + 2].tolist())
        raise MATRIX_OVERLAP.error(lanes=(lane, other_lane), address=int(first_byte[lane]) + smem_address)
