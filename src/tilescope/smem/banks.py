"""How many wavefronts a warp's shared-memory access takes: the number that Nsight Compute counts.

Shared memory is 32 banks of 4 bytes; bank = (address / 4) mod 32. One wavefront takes one word from each
bank, so lanes of a group wait for each other only when they want *different* words of *one* bank:

    ld.b32, four lanes          bank  0    1    2    3  …
                                    ┌────┬────┬────┬────┬
    addresses 0, 4, 132, 4          │ 0  │1,3 │    │    │   line 0      lanes 1, 3: one word, read together
                                    │    │ 2  │    │    │   line 1      lane 2: another word of bank 1
                                    └────┴────┴────┴────┴
                                      1    2                 →  2 wavefronts, the largest count of a column

A wide access is served in groups of lanes (op.py), each with its own count; the counts add up. Loads of
64 and 128 bits have one exception: when over the whole warp every pair of active lanes i, i ^ 1 has the
same address - or every pair i, i ^ 2 - neighbouring groups go together in twos. A pair with an inactive
lane is no obstacle. Copies (cp.async) have another: lanes that write one word wait for each other too, so the largest
number of lanes of a column counts. Measured on an H200; the recordings are in the tests.

The rule stands here twice: for numpy, and as a loop that numba compiles (the extra `fast`). Loading numba takes a second
or two the first time (the result is kept on disk), so large batches alone take the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError, Violation, argument_type, raise_all
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, rule
from tilescope.sentence import counted, printed
from tilescope.smem.op import WARP_LANES, SmemOp, SmemOpName
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.swizzle.permutation import compiler

Addresses = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LANE_ALIGNMENT = rule(
    "lane-alignment",
    "A lane's address is a multiple of the bytes that the instruction takes for a lane.",
    source="PTX ISA, ld.shared, st.shared, ldmatrix and stmatrix: the address is aligned to the access size",
    passing='ts.wavefronts("ld.b128", np.arange(32) * 16)',
    failing='ts.wavefronts("ld.b128", np.arange(32) * 8)',
)
_LINE_SHIFT = 7  # a line is 128 bytes
_LANES = np.arange(WARP_LANES)
_PAIRS = [(_LANES[_LANES & distance == 0], _LANES[_LANES & distance != 0]) for distance in (1, 2)]  # i and i ^ distance
_BLOCK_ACCESSES = 2048  # as many as keep the intermediate arrays in the cache
FIRST_BATCH = 4096  # accesses in one call that make loading the compiled loop worth while: more will follow
NEXT_BATCH = 64  # once it is there


@overload
def wavefronts(
    op: SmemOpName | SmemOp, lane_address: list[int] | tuple[int, ...] | range, active: Any = None
) -> int: ...
@overload
def wavefronts(op: SmemOpName | SmemOp, lane_address: npt.ArrayLike, active: Any = None) -> Any: ...
def wavefronts(op: Any, lane_address: Any, active: Any = None) -> Any:
    """Wavefronts of warp accesses: (..., 32) byte addresses give (...) counts, 32 addresses give an int.

    `active` masks lanes: booleans of the addresses' shape, or an integer with bit i for lane i. The
    addresses of inactive lanes, and of lanes beyond an ldmatrix's rows, are not looked at.

    >>> wavefronts("ld.b32", [lane * 4 for lane in range(32)])
    1
    >>> wavefronts("ld.b32", [lane * 128 for lane in range(32)])  # down a column of bank 0
    32
    >>> wavefronts("ld.b128", [lane * 16 for lane in range(32)])  # four groups, none in conflict
    4
    >>> pitches = np.array([[128], [144]])  # ldmatrix down 8 rows: without and with 16 bytes of padding
    >>> wavefronts("ldmatrix.x1", np.arange(32) * pitches)
    array([8, 1])
    """
    row = SmemOp.named(op)
    address, mask = checked_lanes(row, lane_address, active)
    shape = address.shape[:-1]
    counts = count_wavefronts(
        row, address.reshape(-1, row.lanes), None if mask is None else mask.reshape(-1, row.lanes)
    )
    return counts.reshape(shape) if shape else int(counts[0])


def lane_arrays(lane_address: Any, active: Any) -> tuple[Addresses, Mask | None]:
    """Addresses and mask of whole warps, (..., 32); the mask is None where every lane is active."""
    address = _address_array(lane_address)
    if address.shape[-1:] != (WARP_LANES,):
        lanes = address.shape[-1] if address.ndim else 1
        limit = "a warp has 32 lanes: the last axis"
        raise ARGUMENT_RANGE.error("lane_address", counted(lanes, "lane"), limit, "Use 32 addresses.", lanes=lanes)
    return address, _mask_array(active, address.shape)


def checked_lanes(row: SmemOp, lane_address: Any, active: Any) -> tuple[Addresses, Mask | None]:
    """Addresses and mask of the lanes that count, (..., row.lanes); a RuleError names all that is wrong."""
    address, mask = lane_arrays(lane_address, active)
    address = address[..., : row.lanes]
    if mask is not None:
        mask = mask[..., : row.lanes]
    joined = int(np.bitwise_or.reduce(address, axis=None)) if address.size else 0
    if joined < 0 or joined % row.access_bytes:  # one pass finds that something is wrong, the rest finds what
        raise_all(_problems(row, address, mask))
    return address, mask


def count_wavefronts(row: SmemOp, address: Addresses, mask: Mask | None) -> Addresses:
    """Counts for checked (n, row.lanes) addresses."""
    if not row.words_merge:  # a line for every lane: none is found twice, and every lane stays in its column
        address = address % SMEM_LINE_BYTES + _LANES[: row.lanes] * SMEM_LINE_BYTES
    compiled = kernel(len(address))
    if compiled is not None:
        counts = np.empty(len(address), np.int64)
        cell_shift = row.cell_bytes.bit_length() - 1
        compiled(
            np.ascontiguousarray(address),
            np.empty((0, 0), np.bool_) if mask is None else np.ascontiguousarray(mask),
            mask is not None, row.lanes_per_group, cell_shift, row.pairs_merge, counts,
        )  # fmt: skip
        return counts
    if len(address) <= _BLOCK_ACCESSES:
        return _block_counts(row, address, mask)
    blocks = [slice(start, start + _BLOCK_ACCESSES) for start in range(0, len(address), _BLOCK_ACCESSES)]
    counted_blocks = [_block_counts(row, address[block], None if mask is None else mask[block]) for block in blocks]
    return np.concatenate(counted_blocks)


def count_ideal(row: SmemOp, address: Addresses, mask: Mask | None) -> Addresses:
    """Wavefronts without any conflict, for checked (n, row.lanes) addresses: groups with an active lane."""
    used = np.ones(address.shape, np.bool_) if mask is None else mask
    taken = used.reshape(len(address), row.groups, row.lanes_per_group).any(axis=2)
    ideal: Addresses = taken.sum(axis=1)
    if row.pairs_merge:
        in_twos = taken.reshape(len(address), row.groups // 2, 2).any(axis=2).sum(axis=1)
        ideal = np.where(pairs_merge(row, address, mask), in_twos, ideal)
    return ideal


def count_least(row: SmemOp, address: Addresses, mask: Mask | None, piece_bytes: int) -> Addresses:
    """Wavefronts that no layout undercuts if pieces of `piece_bytes` stay whole, for checked (n, row.lanes) addresses.

    A line has 128 / piece_bytes places for a piece, so words at one distance from the start of their pieces share as many
    columns of banks: 16-byte pieces leave a column of the tile 8 banks.

    >>> column = np.arange(32)[None] * 128
    >>> [int(count_least(SmemOp.named("ld.b32"), column, None, piece)[0]) for piece in (4, 16)]
    [1, 4]
    """
    least = count_ideal(row, address, mask)
    if piece_bytes <= row.cell_bytes or not address.size:
        return least
    used = np.ones(address.shape, np.bool_) if mask is None else mask
    within = piece_bytes // row.cell_bytes  # cells of a piece
    group = np.arange(len(address))[:, None] * row.groups + np.arange(row.lanes) // row.lanes_per_group
    cell = address // row.cell_bytes
    column, piece = (group * within + cell % within)[used], (cell // within)[used]
    pieces = np.unique(column * (int(piece.max(initial=0)) + 1) + piece) // (int(piece.max(initial=0)) + 1)
    count = np.bincount(pieces, minlength=len(address) * row.groups * within).reshape(len(address), row.groups, within)
    needed = -(-count.max(axis=2) // (SMEM_LINE_BYTES // piece_bytes))
    return np.where(pairs_merge(row, address, mask), least, np.maximum(least, needed.sum(axis=1)))


def pairs_merge(row: SmemOp, address: Addresses, mask: Mask | None) -> Mask:
    """Which of (n, lanes) accesses have every pair of active lanes i, i^1, or every pair i, i^2, at one address.

    >>> twins = np.arange(32)[None] // 2 * 16
    >>> [bool(pairs_merge(SmemOp.named(op), twins, None)[0]) for op in ("ld.b128", "st.b128", "ld.b32")]
    [True, False, False]
    """
    merged = np.zeros(len(address), np.bool_)
    for lane, partner in _PAIRS if row.pairs_merge else ():
        equal = address[:, lane] == address[:, partner]
        if mask is not None:
            equal |= ~(mask[:, lane] & mask[:, partner])
        merged |= equal.all(axis=1)
    return merged


def _block_counts(row: SmemOp, address: Addresses, mask: Mask | None) -> Addresses:
    """Every access with its own groups; those whose lanes ask in pairs with groups of twice the lanes."""
    counts = _group_counts(address, mask, row.lanes_per_group, row.cell_bytes)
    merged = np.flatnonzero(pairs_merge(row, address, mask))
    if merged.size:
        chosen = None if mask is None else mask[merged]
        counts[merged] = _group_counts(address[merged], chosen, 2 * row.lanes_per_group, row.cell_bytes)
    return counts


def _group_counts(address: Addresses, mask: Mask | None, lanes_per_group: int, cell_bytes: int) -> Addresses:
    """Sum over groups of the largest number of different lines wanted of one column.

    A lane takes a cell of a line: a column of cells is one bank, two banks (8 bytes) or four (16 bytes).
    Sorted by (group, column, line), equal cells are neighbours, so each first of its kind is counted.
    """
    accesses, lanes = address.shape
    groups, columns = lanes // lanes_per_group, SMEM_LINE_BYTES // cell_bytes
    small = not address.size or int(address.max()) < 1 << 31  # shared memory is; 4-byte keys sort faster
    column_shift = 24 if small else 56  # above the bits of a line number
    keys: npt.NDArray[Any] = address.astype(np.int32 if small else np.int64)
    column = (keys & (SMEM_LINE_BYTES - 1)) >> (cell_bytes.bit_length() - 1)
    column += np.arange(lanes, dtype=keys.dtype) // lanes_per_group * columns
    keys = column << column_shift | keys >> _LINE_SHIFT
    if mask is not None:
        keys[~mask] = -1
    keys.sort(axis=1)
    first = np.empty(keys.shape, np.bool_)
    first[:, 0] = True
    np.not_equal(keys[:, 1:], keys[:, :-1], out=first[:, 1:])
    if mask is not None:
        first &= keys >= 0
    column = keys >> column_shift
    column += (np.arange(accesses, dtype=keys.dtype) * (groups * columns))[:, None]
    cells = np.bincount(column[first], minlength=accesses * groups * columns)
    counts: Addresses = cells.reshape(accesses, groups, columns).max(axis=2).sum(axis=1)
    return counts


def _address_array(lane_address: Any) -> Addresses:
    problem = None
    try:
        address = np.asarray(lane_address)
    except (ValueError, TypeError, OverflowError):
        problem = "lanes of different lengths"
    else:
        if address.dtype.kind not in "iu":
            problem = f"{printed(lane_address, 40)} ({address.dtype})"
        elif address.dtype == np.uint64 and address.size and address.max() >= 1 << 63:
            problem = f"address {int(address.max()):#x}"
    if problem is not None:
        raise ARGUMENT_TYPE.error(
            "lane_address", problem, "byte addresses are integers from 0 to 2^63 - 1",
            "Use 32 integers, or an integer array of shape (..., 32).",
        )  # fmt: skip
    return address.astype(np.int64, copy=False)


def _mask_array(active: Any, shape: tuple[int, ...]) -> Mask | None:
    if active is None:
        return None
    if isinstance(active, int | np.integer) and not isinstance(active, bool) and 0 <= active < 1 << WARP_LANES:
        active = [bool(int(active) >> lane & 1) for lane in range(WARP_LANES)]
    try:
        lanes = np.asarray(active)
        mask = np.broadcast_to(lanes.astype(np.bool_), shape)
    except (ValueError, TypeError, OverflowError):
        lanes, mask = np.zeros(0), np.zeros(0, np.bool_)
    if lanes.dtype.kind not in "biu" or lanes.shape[-1:] != (WARP_LANES,) or (lanes != mask).any():
        wanted = f"32 booleans (or an array of them that fits {shape}), or an integer with bit i for lane i, below 2^32"
        raise RuleError([argument_type("active", active, wanted, "Use None for a full warp.")])
    return None if mask.all() else mask


def _problems(row: SmemOp, address: Addresses, mask: Mask | None) -> Iterator[Violation]:
    used, width = np.ones(address.shape, np.bool_) if mask is None else mask, row.access_bytes
    for broken, wrong, limit, fix in (
        (ARGUMENT_RANGE, address < 0, "byte addresses start at 0", "Use 0 or more."),
        (
            LANE_ALIGNMENT, address % width != 0, f"{row.name} takes addresses that are multiples of {width}",
            f"Use a start and a row pitch of multiples of {width}, or a narrower access.",
        ),
    ):  # fmt: skip
        where = np.argwhere(wrong & used)
        if len(where):
            *access, lane = (int(index) for index in where[0])
            at = f"lane {lane}" + (f" of access {access if len(access) > 1 else access[0]}" if access else "")
            more = f", as {len(where)} of {used.sum()} lanes are" if len(where) > 1 else ""
            first = int(address[tuple(where[0])])
            yield broken.violation(
                f"lane_address[{lane}]", f"{at} at address {first}{more}", limit, fix,
                lane=lane, access=access, address=first, access_bytes=width, wrong_lanes=len(where), lanes=int(used.sum()),
            )  # fmt: skip


def kernel(accesses: int) -> Callable[..., None] | None:
    """The compiled loop if a batch of this size repays it, else None."""
    loaded = _compiled.cache_info().currsize > 0
    return _compiled() if accesses >= (NEXT_BATCH if loaded else FIRST_BATCH) else None


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., None] | None:
    numba = compiler()
    return None if numba is None else numba.compiled(_count)


def _count(
    address: Any, mask: Any, masked: bool, lanes_per_group: int, cell_shift: int, pairs_merge: bool, counts: Any
) -> None:
    """Write the wavefronts of each row of `address` into `counts`.

    Lanes are first dealt to the columns of the line without a look at each other; only a column with more
    lanes than the degree found so far is looked through for equal lines.
    """
    columns = SMEM_LINE_BYTES >> cell_shift
    lines = np.empty((columns, 32), np.int64)  # that lanes want of each column
    wanted = np.empty(columns, np.int64)  # how many lanes do
    lanes = address.shape[1]
    for access in range(len(address)):
        per_group = lanes_per_group
        if pairs_merge:
            for distance in (1, 2):
                equal = True
                for lane in range(lanes):
                    other = lane ^ distance
                    if address[access, lane] != address[access, other] and not (
                        masked and not (mask[access, lane] and mask[access, other])
                    ):
                        equal = False
                        break
                if equal:
                    per_group = 2 * lanes_per_group
        total = 0
        for first in range(0, lanes, per_group):
            wanted[:] = 0
            for lane in range(first, first + per_group):
                column = (address[access, lane] & (SMEM_LINE_BYTES - 1)) >> cell_shift
                lines[column, wanted[column]] = address[access, lane] >> _LINE_SHIFT
                wanted[column] += mask[access, lane] if masked else 1
            degree = 0
            for column in range(columns):
                if wanted[column] > degree:
                    different = 0
                    for place in range(wanted[column]):
                        line = lines[column, place]
                        known = 0
                        while known < different and lines[column, known] != line:
                            known += 1
                        if known == different:
                            lines[column, different] = line
                            different += 1
                    degree = max(degree, different)
            total += degree
        counts[access] = total
