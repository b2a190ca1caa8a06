"""How many wavefronts a warp's shared-memory access takes: the number that Nsight Compute counts.

Shared memory has 32 banks of 4 bytes; bank = (address / 4) mod 32. One wavefront takes one word from each bank, so
lanes of a group conflict only if they access *different* words of *one* bank:

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

The rule is implemented twice: here for numpy, and in wavefront_loop.py as a loop that numba compiles (the extra
`fast`). Loading numba takes a second or two the first time (the result is cached on disk), so only large batches use
the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError, Violation, argument_type, raise_all
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, rule
from tilescope.sentence import counted, format_value
from tilescope.smem.op import SmemOp, SmemOpName
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.swizzle.permutation import compiler

Addresses = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

LANE_ALIGNMENT = rule(
    "lane-alignment",
    "A lane's address is a multiple of the bytes that the lane accesses.",
    argument="lane_address[{lane}]",
    found="lane {lane}[[ of access {access:, }]] at address {address}",
    limit="{op} takes addresses that are multiples of {access_bytes}",
    fix="Use a start and a row pitch of multiples of {access_bytes}, or a narrower access.",
    source="PTX ISA, ld.shared, st.shared, ldmatrix and stmatrix: the address is aligned to the access size",
    passing='ts.wavefronts("ld.b128", np.arange(32) * 16)',
    failing='ts.wavefronts("ld.b128", np.arange(32) * 8)',
)
NEGATIVE_ADDRESS = ARGUMENT_RANGE.worded(
    argument=LANE_ALIGNMENT.argument,
    found=LANE_ALIGNMENT.found,
    limit="byte addresses start at 0",
    fix="Use 0 or more.",
)
_SEVERAL_LANES = f"{LANE_ALIGNMENT.found}, as {{wrong_lanes}} of {{lanes}} lanes are"
_LINE_SHIFT = SMEM_LINE_BYTES.bit_length() - 1
_LANES = np.arange(WARP_LANES)
_PAIRS = [(_LANES[_LANES & distance == 0], _LANES[_LANES & distance != 0]) for distance in (1, 2)]  # i and i ^ distance
_BLOCK_ACCESSES = 2048  # counted together: their intermediate arrays stay in the cache
FIRST_BATCH = 4096  # accesses in one call that make loading the compiled loop worth while: more will follow
NEXT_BATCH = 64  # once it is there


@overload
def wavefronts(
    op: SmemOpName | SmemOp, lane_address: list[int] | tuple[int, ...] | range, active: npt.ArrayLike | None = None
) -> int: ...
@overload
def wavefronts(
    op: SmemOpName | SmemOp, lane_address: npt.ArrayLike, active: npt.ArrayLike | None = None
) -> Any: ...  # an int or an array, by the shape of the addresses
def wavefronts(op: Any, lane_address: Any, active: Any = None) -> Any:
    """Wavefronts of warp accesses: (..., 32) byte addresses give (...) counts, 32 addresses give an int.

    `active` masks lanes: booleans of the addresses' shape, or an integer with bit i for lane i. The
    addresses of inactive lanes, and of lanes beyond an ldmatrix's rows, are ignored.

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
    warp_masks = None if mask is None else mask.reshape(-1, row.lanes)
    counts = count_wavefronts(row, address.reshape(-1, row.lanes), warp_masks)
    return counts.reshape(shape) if shape else int(counts[0])


def lane_arrays(lane_address: object, active: object) -> tuple[Addresses, Mask | None]:
    """Addresses and mask of whole warps, (..., 32); the mask is None where every lane is active."""
    address = _address_array(lane_address)
    if address.shape[-1:] != (WARP_LANES,):
        lanes = address.shape[-1] if address.ndim else 1
        raise ARGUMENT_RANGE.error(
            argument="lane_address",
            found=counted(lanes, "lane"),
            limit="a warp has 32 lanes: the last axis",
            fix="Use 32 addresses.",
            lanes=lanes,
        )
    return address, _mask_array(active, address.shape)


def checked_lanes(row: SmemOp, lane_address: object, active: object) -> tuple[Addresses, Mask | None]:
    """Addresses and mask of the lanes that count, (..., row.lanes); a RuleError names all that is wrong."""
    address, mask = lane_arrays(lane_address, active)
    address = address[..., : row.lanes]
    if mask is not None:
        mask = mask[..., : row.lanes]
    joined = int(np.bitwise_or.reduce(address, axis=None)) if address.size else 0
    if joined < 0 or joined % row.access_bytes:  # one pass finds that something is wrong, the rest finds what
        raise_all(_lane_problems(row, address, mask))
    return address, mask


def count_wavefronts(row: SmemOp, address: Addresses, mask: Mask | None) -> Addresses:
    """Counts for checked (n, row.lanes) addresses."""
    if not row.words_merge:  # a line for every lane: none is found twice, and every lane stays in its column
        address = address % SMEM_LINE_BYTES + _LANES[: row.lanes] * SMEM_LINE_BYTES
    compiled = kernel(len(address))
    if compiled is not None:
        counts = np.empty(len(address), np.int64)
        cell_shift = row.cell_bytes.bit_length() - 1
        flags = np.empty((0, row.lanes), np.bool_) if mask is None else np.ascontiguousarray(mask)
        compiled(np.ascontiguousarray(address), flags, cell_shift, row.pairs_merge, counts)
        return counts
    if len(address) <= _BLOCK_ACCESSES:
        return _block_counts(row, address, mask)
    counted_blocks = []
    for start in range(0, len(address), _BLOCK_ACCESSES):
        block = slice(start, start + _BLOCK_ACCESSES)
        block_mask = None if mask is None else mask[block]
        counted_blocks.append(_block_counts(row, address[block], block_mask))
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
    column = (group * within + cell % within)[used]
    piece = (cell // within)[used]
    pieces = int(piece.max(initial=0)) + 1
    columns_of_pieces = np.unique(column * pieces + piece) // pieces  # every piece of a column once
    pieces_per_column = np.bincount(columns_of_pieces, minlength=len(address) * row.groups * within)
    most_wanted = pieces_per_column.reshape(len(address), row.groups, within).max(axis=2)
    needed = -(-most_wanted // (SMEM_LINE_BYTES // piece_bytes))  # rounded up
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
    """Every access with its groups; accesses with equal addresses in pairs of lanes have groups of twice the lanes."""
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


def _address_array(lane_address: object) -> Addresses:
    try:
        address = np.asarray(lane_address)
    except (ValueError, TypeError, OverflowError):
        raise _no_addresses("lanes of different lengths") from None
    if address.dtype.kind not in "iu":
        raise _no_addresses(f"{format_value(lane_address, 40)} ({address.dtype})")
    if address.dtype == np.uint64 and address.size and address.max() >= 1 << 63:
        raise _no_addresses(f"address {int(address.max()):#x}")
    return address.astype(np.int64, copy=False)


def _no_addresses(found: str) -> RuleError:
    return ARGUMENT_TYPE.error(
        argument="lane_address",
        found=found,
        limit="byte addresses are integers from 0 to 2^63 - 1",
        fix="Use 32 integers, or an integer array of shape (..., 32).",
    )


def _mask_array(active: object, shape: tuple[int, ...]) -> Mask | None:
    if active is None:
        return None
    lanes = _lane_flags(active)
    mask = None if lanes is None else _spread(lanes, shape)
    if mask is None:
        expected = (
            f"32 booleans (or an array of them that fits {shape}), or an integer with bit i for lane i, below 2^32"
        )
        raise RuleError([argument_type("active", active, expected, "Use None for a full warp.")])
    return None if mask.all() else mask


def _lane_flags(active: object) -> npt.NDArray[np.generic] | None:
    """The flags of lanes: those listed, or the low 32 bits of an integer; None for anything else."""
    if isinstance(active, int | np.integer) and not isinstance(active, bool) and 0 <= active < 1 << WARP_LANES:
        return np.array([bool(int(active) >> lane & 1) for lane in range(WARP_LANES)])
    try:
        lanes = np.asarray(active)
    except (ValueError, TypeError, OverflowError):
        return None
    is_flags = lanes.dtype.kind in "biu" and lanes.shape[-1:] == (WARP_LANES,)
    return lanes if is_flags else None


def _spread(lanes: npt.NDArray[np.generic], shape: tuple[int, ...]) -> Mask | None:
    """The flags for every access; None if they have another shape, or are neither 0 nor 1."""
    try:
        mask = np.broadcast_to(lanes.astype(np.bool_), shape)
    except ValueError:
        return None
    return None if (lanes != mask).any() else mask


def _lane_problems(row: SmemOp, address: Addresses, mask: Mask | None) -> Iterator[Violation]:
    used = np.ones(address.shape, np.bool_) if mask is None else mask
    wrong_by_rule = (
        (NEGATIVE_ADDRESS, address < 0),
        (LANE_ALIGNMENT.wording, address % row.access_bytes != 0),
    )
    for wording, is_wrong in wrong_by_rule:
        where = np.argwhere(is_wrong & used)
        if len(where) == 0:
            continue
        *access, lane = where[0].tolist()
        template = _SEVERAL_LANES if len(where) > 1 else wording.found
        yield wording.worded(found=template).violation(
            lane=lane,
            access=tuple(access),
            address=int(address[tuple(where[0])]),
            op=row.name,
            access_bytes=row.access_bytes,
            wrong_lanes=len(where),
            lanes=int(used.sum()),
        )


def kernel(accesses: int) -> Callable[..., None] | None:
    """The compiled loop if a batch of this size repays it, else None."""
    is_loaded = _compiled_count.cache_info().currsize > 0
    least = NEXT_BATCH if is_loaded else FIRST_BATCH
    return _compiled_count() if accesses >= least else None


@lru_cache(maxsize=1)
def _compiled_count() -> Callable[..., None] | None:
    if compiler() is None:
        return None
    from tilescope.smem.wavefront_loop import count

    return count
