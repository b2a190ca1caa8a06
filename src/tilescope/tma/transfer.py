"""The copies themselves: load, store, reduce, gather4, scatter4, multicast.

         global memory                                              shared memory

    load      rows of the box ── gather ──▶ dense rows ── place ──▶ swizzled pieces
    store     rows of the box ◀── scatter ─ dense rows ◀── pick ─── swizzled pieces

Rows start on 16 bytes in both memories, so whole pieces of 16 bytes move; only the tail of a row that the
tensor's edge cuts is moved by bytes. The work grows with the bytes of the box, never with the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilescope.reading import Bytes, entries, integer, integers, readable, writeable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import counted, printed, shortened
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map import AnyMap, Copy
from tilescope.tma.elements import SIX_BIT_TYPE, combined, delivered, dense_bytes, packed
from tilescope.tma.request import requested
from tilescope.tma.walk import Placement, Walk, placement, row_coords, source_offset, walk

_PIECE = np.dtype(f"V{CHUNK_BYTES}")  # 16 bytes that numpy moves without asking how they are aligned
_NAN_FILL = (0xF7, 0x7F)  # 0x7FF7 in every 16 bits, whatever the float type
_MAX_CLUSTER_BLOCKS = 16  # bits of the multicast mask
_EXAMPLE = 'ts.load(ts.TensorMap("u8", (64,), (), (16,)), np.zeros({memory}, "u1"), (48,), smem=np.zeros({smem}, "u1"))'
_CAST = 'ts.load_multicast(ts.TensorMap("u8", (64,), (), (16,)), np.zeros(64, "u1"), (0,), [np.zeros(16, "u1")], cta_mask={mask})'

MEMORY_EXTENT = rule(
    "memory-extent",
    "The array holds, from the tensor's first byte on, all that the copy touches.",
    source="the bytes of the tensor that the copy reads or writes",
    basis="measured",
    passing=_EXAMPLE.format(memory=64, smem=16),
    failing=_EXAMPLE.format(memory=63, smem=16),
)
SMEM_EXTENT = rule(
    "smem-extent",
    "The array for shared memory holds the whole box, gaps included.",
    source="the bytes of shared memory that the copy covers",
    basis="measured",
    passing=_EXAMPLE.format(memory=64, smem=16),
    failing=_EXAMPLE.format(memory=64, smem=15),
)
CTA_MASK = rule(
    "cta-mask",
    "The mask of a multicast has a bit for each block of the cluster, and at least one of them is set.",
    source='PTX ISA, "cp.async.bulk.tensor", .multicast::cluster: ctaMask has 16 bits',
    passing=_CAST.format(mask=1),
    failing=_CAST.format(mask=2),
)


def load(
    tensor_map: AnyMap,
    memory: Any,
    coords: Sequence[int],
    *,
    offsets: Sequence[int] = (),
    smem: Any = None,
    smem_address: int = 0,
) -> Any:
    """Shared memory after one copy from global memory: cp.async.bulk.tensor, tile or im2col.

    `memory[0]` lies at `tensor_map.address`; `coords` are innermost first. `smem`, whose first byte lies at
    `smem_address`, is written in place and returned; bytes that the copy does not touch keep what they held. Without it
    the result is `smem_bytes` long and zero where nothing is written. (Two copies need more: an im2col-wide one has its
    halo besides, and an interleaved one that ends within a line may have pieces swizzled to the rest of that line.)

    `offsets` are those of a filter tap, W first, or an im2col-wide copy's halo and offset; without them they are 0.

    >>> import tilescope as ts
    >>> matrix = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    >>> a = ts.TensorMap.from_array(matrix, (8, 64), swizzle="128B", address=0)
    >>> tile = ts.load(a, matrix, a.coords(16, 0)).view(np.uint16).reshape(8, 64)
    >>> tile[1, :4] - matrix[17, 0]  # row 17 begins with its second piece of 8 elements
    array([ 8,  9, 10, 11], dtype=uint16)
    """
    copy = requested(tensor_map, "load", coords, smem_address=smem_address, offsets=offsets)
    return _loaded(copy, memory, smem)


def store(
    tensor_map: AnyMap,
    smem: Any,
    memory: Any,
    coords: Sequence[int],
    *,
    reduce: str | None = None,
    smem_address: int = 0,
) -> Any:
    """Global memory after one copy from shared memory; with `reduce`, after combining with it. Returns `memory`.

    `memory` is written in place: what lies outside the tensor is dropped. But within a row the tensor's end is
    rounded up to 16 bytes: where dims[0] is no multiple of 16 bytes, a store also overwrites what lies behind the
    last element (see `trace(…).overrun_bytes`). Rows that overlap through zero or small strides are written one
    after another here; on the chip their order is not defined.

    `reduce` is add, min, max, inc, dec, and, or, xor.

    >>> import tilescope as ts
    >>> memory = np.ones(64, np.uint32)
    >>> a = ts.TensorMap("u32", (64,), (), (8,))
    >>> ts.store(a, np.arange(8, dtype=np.uint32), memory, (8,), reduce="add")[6:18]
    array([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1], dtype=uint32)
    """
    copy = requested(tensor_map, "store", coords, smem_address=smem_address, reduce=reduce)
    return _stored(copy, smem, memory)


def gather4(
    tensor_map: AnyMap, memory: Any, column: int, rows: Sequence[int], *, smem: Any = None, smem_address: int = 0
) -> Any:
    """Shared memory after cp.async.bulk.tensor with tile::gather4: four rows of a matrix, named one by one.

    The map's box is one row high. Known from the documents alone.

    >>> import tilescope as ts
    >>> matrix = np.arange(64 * 8, dtype=np.uint16).reshape(64, 8)
    >>> a = ts.TensorMap.from_array(matrix, (1, 8), address=0, arch="sm_100")
    >>> ts.gather4(a, matrix, 0, (5, 3, 60, 3)).view(np.uint16).reshape(4, 8)[:, 0] // 8
    array([ 5,  3, 60,  3], dtype=uint16)
    """
    copy = requested(tensor_map, "load", _column_and_rows(column, rows), smem_address=smem_address, rows4=True)
    return _loaded(copy, memory, smem)


def scatter4(
    tensor_map: AnyMap, smem: Any, memory: Any, column: int, rows: Sequence[int], *, smem_address: int = 0
) -> Any:
    """Global memory after cp.async.bulk.tensor with tile::scatter4: four rows, written where they are named.

    Known from the documents alone. Returns `memory`, which is written in place.

    >>> import tilescope as ts
    >>> memory = np.zeros((8, 8), np.uint16)
    >>> a = ts.TensorMap.from_array(memory, (1, 8), address=0, arch="sm_100")
    >>> ts.scatter4(a, np.repeat(np.arange(1, 5, dtype=np.uint16), 8), memory, 0, (7, 0, 2, 9))[:, 0]
    array([2, 0, 3, 0, 0, 0, 0, 1], dtype=uint16)
    """
    copy = requested(tensor_map, "store", _column_and_rows(column, rows), smem_address=smem_address, rows4=True)
    return _stored(copy, smem, memory)


def load_multicast(
    tensor_map: AnyMap,
    memory: Any,
    coords: Sequence[int],
    smems: Sequence[Any],
    *,
    cta_mask: int,
    offsets: Sequence[int] = (),
    smem_address: int = 0,
) -> tuple[Any, ...]:
    """One load into the same place of several blocks' shared memory: .multicast::cluster.

    `smems[r]` is the shared memory of the block with rank r in the cluster, its first byte at `smem_address`; bit r
    of `cta_mask` says whether it receives the box. All are returned; each receiving block's mbarrier gets the whole
    `transaction_bytes`. Measured with two blocks; more, and architectures other than sm_90, follow the documents.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("u8", (64,), (), (16,))
    >>> blocks = [np.zeros(16, np.uint8) for _ in range(4)]
    >>> [int(block[0]) for block in ts.load_multicast(a, np.full(64, 7, np.uint8), (0,), blocks, cta_mask=0b1010)]
    [0, 7, 0, 7]
    """
    copy = requested(tensor_map, "load", coords, smem_address=smem_address, offsets=offsets, cluster=True)
    blocks = entries(smems, _MAX_CLUSTER_BLOCKS + 1)
    if blocks is None or len(blocks) > _MAX_CLUSTER_BLOCKS:
        shown = printed(smems) if blocks is None else f"more than {_MAX_CLUSTER_BLOCKS} blocks"
        limit = f"a sequence of at most {_MAX_CLUSTER_BLOCKS} arrays, one for each block of the cluster"
        raise ARGUMENT_TYPE.error("smems", shown, limit, "Pass a list of arrays, one for every block.")
    source = readable("memory", memory)
    receivers = {f"smems[{rank}]": blocks[rank] for rank in _receivers(cta_mask, len(blocks))}
    deliver(copy, source, {name: writeable(name, block) for name, block in receivers.items()})
    return tuple(blocks)


def require_smem(argument: str, smem: Bytes, needed_bytes: int) -> None:
    """Refuse shared memory that is shorter than the box of a copy."""
    if len(smem) < needed_bytes:
        raise SMEM_EXTENT.error(
            argument, f"{len(smem)} bytes", f"the box in shared memory takes {needed_bytes} bytes",
            f"Use an array of at least {needed_bytes} bytes.", bytes=len(smem), needed_bytes=needed_bytes,
        )  # fmt: skip


def _receivers(cta_mask: Any, block_count: int) -> list[int]:
    mask = integer("cta_mask", cta_mask)
    most = min(block_count, _MAX_CLUSTER_BLOCKS)
    if not 0 < mask < 1 << most:
        raise CTA_MASK.error(
            "cta_mask", f"cta_mask = {shortened(hex(mask), 40)} for {counted(block_count, 'block')}",
            f"one bit for each block of the cluster, at most {_MAX_CLUSTER_BLOCKS}, and at least one bit set",
            f"Use cta_mask = {(1 << most) - 1:#x}." if most else "Pass the shared memory of every block in smems.",
            cta_mask=mask, blocks=block_count,
        )  # fmt: skip
    return [rank for rank in range(most) if mask >> rank & 1]


def _column_and_rows(column: Any, rows: Any) -> tuple[int, ...]:
    return integer("column", column), *integers("rows", rows)


def _loaded(copy: Copy, memory: Any, smem: Any) -> Any:
    made = deliver(copy, readable("memory", memory), {} if smem is None else {"smem": writeable("smem", smem)})
    return made if smem is None else smem


def deliver(copy: Copy, memory: Bytes, smems: Mapping[str, Bytes]) -> Bytes:
    """Carry out a load into the bytes of shared memories, by their names, or of none into zeros as long as it takes."""
    walked = walk(copy)
    placed = placement(copy.tensor_map, walked.rows, copy.smem_address)
    require_memory(copy, walked, walked.high_bytes, len(memory))
    for name, smem in smems.items():  # all are looked at before one is written
        require_smem(name, smem, placed.footprint_bytes)
    targets = [*smems.values()] or [np.zeros(placed.footprint_bytes, np.uint8)]
    rows = _gathered(copy.tensor_map, walked, memory)
    for target in targets:
        _place(copy.tensor_map, placed, rows, target)
    return targets[0]


def _gathered(tensor_map: AnyMap, walked: Walk, memory: Bytes) -> Bytes:
    """(rows, row bytes) dense rows as a load delivers them: filled outside the tensor, tf32 rounded."""
    if walked.all_inside and walked.low_bytes == 0 and walked.high_bytes == walked.row_bytes:
        return delivered(tensor_map.data_type, _read_pieces(memory, walked.starts, 0, walked.row_bytes))
    rows = np.zeros((walked.rows, walked.row_bytes), np.uint8)
    if tensor_map.oob_fill.name == "nan":
        rows.reshape(-1, 2)[:] = _NAN_FILL
    if not walked.inside.any():
        return rows
    starts = walked.starts[walked.inside]
    low, high = walked.low_bytes, walked.high_bytes
    body = high // CHUNK_BYTES * CHUNK_BYTES
    if low < body:
        rows[walked.inside, low:body] = delivered(tensor_map.data_type, _read_pieces(memory, starts, low, body))
    if body < high:  # the tensor ends within a piece: its last elements, by bytes
        tail = memory[starts[:, None] + np.arange(body, high)]
        rows[walked.inside, body:high] = delivered(tensor_map.data_type, tail)
    return rows


def _read_pieces(memory: Bytes, starts: Any, low: int, high: int) -> Bytes:
    pieces = memory[: len(memory) // CHUNK_BYTES * CHUNK_BYTES].view(_PIECE)
    index = (starts // CHUNK_BYTES)[:, None] + np.arange(low // CHUNK_BYTES, high // CHUNK_BYTES)
    rows: Bytes = pieces.take(index, mode="clip").view(np.uint8)
    return rows


def _place(tensor_map: AnyMap, placed: Placement, rows: Bytes, target: Bytes) -> None:
    """Write dense rows to their places in shared memory."""
    pieces, dense = _shared_pieces(tensor_map, placed, target)
    if dense == placed.piece_bytes:
        pieces[placed.places] = rows.reshape(-1).view(pieces.dtype)
    else:  # a padded type: each piece is data, then padding
        pieces.view(np.uint8).reshape(-1, CHUNK_BYTES)[placed.places, :dense] = rows.reshape(-1, dense)


def _picked(tensor_map: AnyMap, placed: Placement, source: Bytes) -> Bytes:
    """(rows, row bytes) dense rows, from their places in shared memory."""
    pieces, dense = _shared_pieces(tensor_map, placed, source)
    rows = pieces.take(placed.places, mode="clip").view(np.uint8)
    if tensor_map.data_type.name == SIX_BIT_TYPE:
        rows = packed(rows.reshape(-1, CHUNK_BYTES), tensor_map.data_type.bits)
    elif dense != placed.piece_bytes:
        rows = rows.reshape(-1, CHUNK_BYTES)[:, :dense]
    return np.ascontiguousarray(rows).reshape(-1)


def _shared_pieces(tensor_map: AnyMap, placed: Placement, smem: Bytes) -> tuple[Any, int]:
    """Shared memory as pieces that move whole, and how many bytes of a piece are data."""
    piece_bytes = placed.piece_bytes
    pieces = smem[: len(smem) // piece_bytes * piece_bytes].view(np.dtype(f"V{piece_bytes}"))
    return pieces, dense_bytes(tensor_map.data_type) * piece_bytes // CHUNK_BYTES


def _stored(copy: Copy, smem: Any, memory: Any) -> Any:
    tensor_map, source, target = copy.tensor_map, readable("smem", smem), writeable("memory", memory)
    walked = walk(copy)
    placed = placement(tensor_map, walked.rows, copy.smem_address)
    require_smem("smem", source, placed.footprint_bytes)
    require_memory(copy, walked, walked.reach_bytes, len(target))
    if not walked.inside.any():
        return memory
    rows = _picked(tensor_map, placed, source).reshape(walked.rows, walked.row_bytes)
    rows = np.ascontiguousarray(rows[walked.inside, : walked.reach_bytes])
    starts = walked.starts[walked.inside]
    if copy.reduce is None:
        _write_pieces(target, starts, rows)
        return memory
    word = np.dtype(f"u{tensor_map.data_type.bits // 8}")
    apart = (
        np.diff(np.sort(starts)) >= walked.reach_bytes
    ).all()  # else rows share bytes: one is combined after another
    for batch in [slice(None)] if apart else [slice(row, row + 1) for row in range(len(starts))]:
        old = _read_pieces(target, starts[batch], 0, walked.reach_bytes).view(word)
        words = combined(copy.reduce, tensor_map.data_type, old, rows[batch].view(word))
        _write_pieces(target, starts[batch], words.view(np.uint8))
    return memory


def _write_pieces(memory: Bytes, starts: Any, rows: Bytes) -> None:
    """Write rows one after another; where they overlap the last one stays."""
    pieces = memory[: len(memory) // CHUNK_BYTES * CHUNK_BYTES].view(_PIECE)
    index = (starts // CHUNK_BYTES)[:, None] + np.arange(rows.shape[1] // CHUNK_BYTES)
    pieces[index] = rows.view(_PIECE)


def require_memory(copy: Copy, walked: Walk, reach_bytes: int, memory_bytes: int) -> None:
    """Refuse an array that ends before what the copy touches; filled and dropped elements need no memory."""
    if walked.last_start < 0 or walked.last_start + reach_bytes <= memory_bytes:
        return
    tensor_map: AnyMap = copy.tensor_map
    all_coords = row_coords(copy)
    row = int(np.flatnonzero(walked.inside & (walked.starts + reach_bytes > memory_bytes))[0])
    coords = tuple(all_coords[row].tolist())
    start = source_offset(tensor_map, coords)
    missing = max(start + walked.low_bytes, memory_bytes)
    if not tensor_map.interleave.slice_bytes:
        coords = (coords[0] + (missing - start) * 8 // tensor_map.data_type.bits, *coords[1:])
    behind = ", behind the row's end: a store writes whole 16 bytes" if missing - start >= walked.high_bytes else ""
    last_start = max(source_offset(tensor_map, tuple(row)) for row in all_coords[walked.inside].tolist())
    needed = last_start + reach_bytes
    raise MEMORY_EXTENT.error(
        "memory",
        f"byte {missing:#x} of the tensor (coordinates {coords}{behind}) in an array of {memory_bytes} bytes",
        "the array, from the tensor's first byte on, holds all that the copy touches",
        f"Pass at least {needed} bytes, or move the box. Elements outside the tensor need no bytes.",
        byte=missing, bytes=memory_bytes, needed_bytes=needed,
    )  # fmt: skip
