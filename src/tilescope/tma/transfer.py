"""The copies themselves: load, store, reduce, gather4, scatter4, multicast.

         global memory                                              shared memory

    load      rows of the box ── gather ──▶ dense rows ── place ──▶ swizzled pieces
    store     rows of the box ◀── scatter ─ dense rows ◀── pick ─── swizzled pieces

Rows start on 16 bytes in both memories, so whole pieces of 16 bytes move; only the tail of a row that the
tensor's edge cuts is moved by bytes. The work grows with the bytes of the box, never with the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.reading import Bytes, entries, integer, integers, readable, writeable
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import format_value
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map import AnyMap, Copy
from tilescope.tma.elements import SIX_BIT_TYPE, combine_elements, deliver_elements, dense_bytes, pack_values
from tilescope.tma.request import request_copy
from tilescope.tma.walk import Offsets, Placement, Walk, placement, row_coords, source_offset, walk

Pieces = npt.NDArray[np.void]  # bytes that move as a whole
Memory = TypeVar("Memory")  # any array of the caller, which is returned
# What numpy moves without asking how it is aligned: 16 bytes, or 8 in the mode that flips halves.
_PIECE_TYPES = {piece_bytes: np.dtype(f"V{piece_bytes}") for piece_bytes in (CHUNK_BYTES // 2, CHUNK_BYTES)}
_NAN_FILL = (0xF7, 0x7F)  # 0x7FF7 in every 16 bits, for every float type
MAX_CLUSTER_BLOCKS = 16  # bits of the multicast mask
_EXAMPLE = 'ts.load(ts.TensorMap("u8", (64,), (), (16,)), np.zeros({memory}, "u1"), (48,), smem=np.zeros({smem}, "u1"))'
_CAST = 'ts.load_multicast(ts.TensorMap("u8", (64,), (), (16,)), np.zeros(64, "u1"), (0,), [np.zeros(16, "u1")], cta_mask={mask})'

MEMORY_EXTENT = rule(
    "memory-extent",
    "The array contains every byte that the copy accesses, counted from the tensor's first byte.",
    argument="memory",
    found="byte {byte:#x} of the tensor (coordinates {coords}) in an array of {bytes} bytes",
    limit="the array, from the tensor's first byte on, holds every byte that the copy accesses",
    fix="Pass at least {needed_bytes} bytes, or move the box. Elements outside the tensor need no bytes.",
    source="the bytes of the tensor that the copy reads or writes",
    basis="measured",
    passing=_EXAMPLE.format(memory=64, smem=16),
    failing=_EXAMPLE.format(memory=63, smem=16),
)
_MEMORY_BEHIND_ROW = MEMORY_EXTENT.worded(
    found="byte {byte:#x} of the tensor (coordinates {coords}, behind the row's end: a store writes whole 16 bytes) in an "
    "array of {bytes} bytes"
)
SMEM_EXTENT = rule(
    "smem-extent",
    "The array for shared memory is large enough for the whole box with its gaps.",
    argument="{name}",
    found="{name} of {bytes} bytes",
    limit="the box in shared memory takes {needed_bytes} bytes",
    fix="Use an array of at least {needed_bytes} bytes.",
    source="the bytes of shared memory that the copy covers",
    basis="measured",
    passing=_EXAMPLE.format(memory=64, smem=16),
    failing=_EXAMPLE.format(memory=64, smem=15),
)
CTA_MASK = rule(
    "cta-mask",
    "The mask of a multicast has a bit for each block of the cluster, and at least one of them is set.",
    argument="cta_mask",
    found="cta_mask = {cta_mask:#x} for {blocks:block}",
    limit=f"one bit for each block of the cluster, at most {MAX_CLUSTER_BLOCKS}, and at least one bit set",
    fix="Use cta_mask = {whole_mask:#x}.",
    source='PTX ISA, "cp.async.bulk.tensor", .multicast::cluster: ctaMask has 16 bits',
    passing=_CAST.format(mask=1),
    failing=_CAST.format(mask=2),
)
_MASK_WITHOUT_BLOCKS = CTA_MASK.worded(fix="Pass the shared memory of every block in smems.")


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

    `memory[0]` is at `tensor_map.address`; `coords` are innermost first. `smem`, whose first byte is at
    `smem_address`, is written in place and returned; bytes that the copy does not write are unchanged. Without it, the result
    has `smem_bytes` bytes, and bytes that the copy does not write are zero. (Two kinds of copies need more: an im2col-wide copy
    also has its halo, and an interleaved copy that ends within a line may be swizzled into the rest of that line.)

    `offsets` are those of a filter tap, W first, or an im2col-wide copy's halo and offset; without them they are 0.

    >>> import tilescope as ts
    >>> matrix = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    >>> a = ts.TensorMap.from_array(matrix, (8, 64), swizzle="128B", address=0)
    >>> tile = ts.load(a, matrix, a.coords(16, 0)).view(np.uint16).reshape(8, 64)
    >>> tile[1, :4] - matrix[17, 0]  # row 17 begins with its second piece of 8 elements
    array([ 8,  9, 10, 11], dtype=uint16)
    """
    copy = request_copy(tensor_map, "load", coords, smem_address=smem_address, offsets=offsets)
    return _run_load(copy, memory, smem)


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

    `memory` is written in place: elements outside the tensor are dropped. But within a row the tensor's end is
    rounded up to 16 bytes: if dims[0] is not a multiple of 16 bytes, a store also overwrites the bytes after the
    last element (see `trace(…).overrun_bytes`). Rows that overlap through zero or small strides are written one
    after another here; on the chip their order is not defined.

    `reduce` is add, min, max, inc, dec, and, or, xor.

    >>> import tilescope as ts
    >>> memory = np.ones(64, np.uint32)
    >>> a = ts.TensorMap("u32", (64,), (), (8,))
    >>> ts.store(a, np.arange(8, dtype=np.uint32), memory, (8,), reduce="add")[6:18]
    array([1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1], dtype=uint32)
    """
    copy = request_copy(tensor_map, "store", coords, smem_address=smem_address, reduce=reduce)
    return _run_store(copy, smem, memory)


def gather4(
    tensor_map: AnyMap, memory: Any, column: int, rows: Sequence[int], *, smem: Any = None, smem_address: int = 0
) -> Any:
    """Shared memory after cp.async.bulk.tensor with tile::gather4: four rows of a matrix with separate coordinates.

    The map's box is one row high. Documented, not measured.

    >>> import tilescope as ts
    >>> matrix = np.arange(64 * 8, dtype=np.uint16).reshape(64, 8)
    >>> a = ts.TensorMap.from_array(matrix, (1, 8), address=0, arch="sm_100")
    >>> ts.gather4(a, matrix, 0, (5, 3, 60, 3)).view(np.uint16).reshape(4, 8)[:, 0] // 8
    array([ 5,  3, 60,  3], dtype=uint16)
    """
    copy = request_copy(tensor_map, "load", _column_and_rows(column, rows), smem_address=smem_address, rows4=True)
    return _run_load(copy, memory, smem)


def scatter4(
    tensor_map: AnyMap, smem: Any, memory: Any, column: int, rows: Sequence[int], *, smem_address: int = 0
) -> Any:
    """Global memory after cp.async.bulk.tensor with tile::scatter4: four rows with separate coordinates.

    Documented, not measured. Returns `memory`, which is written in place.

    >>> import tilescope as ts
    >>> memory = np.zeros((8, 8), np.uint16)
    >>> a = ts.TensorMap.from_array(memory, (1, 8), address=0, arch="sm_100")
    >>> ts.scatter4(a, np.repeat(np.arange(1, 5, dtype=np.uint16), 8), memory, 0, (7, 0, 2, 9))[:, 0]
    array([2, 0, 3, 0, 0, 0, 0, 1], dtype=uint16)
    """
    copy = request_copy(tensor_map, "store", _column_and_rows(column, rows), smem_address=smem_address, rows4=True)
    return _run_store(copy, smem, memory)


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
    of `cta_mask` selects it as a receiver. All are returned; the mbarrier of each receiver gets all `transaction_bytes`. Measured
    with two blocks on sm_90; other cases follow the documentation.

    >>> import tilescope as ts
    >>> a = ts.TensorMap("u8", (64,), (), (16,))
    >>> blocks = [np.zeros(16, np.uint8) for _ in range(4)]
    >>> [int(block[0]) for block in ts.load_multicast(a, np.full(64, 7, np.uint8), (0,), blocks, cta_mask=0b1010)]
    [0, 7, 0, 7]
    """
    copy = request_copy(tensor_map, "load", coords, smem_address=smem_address, offsets=offsets, cluster=True)
    blocks = entries(smems, MAX_CLUSTER_BLOCKS + 1)
    if blocks is None or len(blocks) > MAX_CLUSTER_BLOCKS:
        raise ARGUMENT_TYPE.error(
            argument="smems",
            found=format_value(smems) if blocks is None else f"more than {MAX_CLUSTER_BLOCKS} blocks",
            limit=f"a sequence of at most {MAX_CLUSTER_BLOCKS} arrays, one for each block of the cluster",
            fix="Pass a list of arrays, one for every block.",
        )
    source = readable("memory", memory)
    targets = {f"smems[{rank}]": blocks[rank] for rank in receivers(cta_mask, len(blocks))}
    deliver(copy, source, {name: writeable(name, block) for name, block in targets.items()})
    return tuple(blocks)


def require_smem(name: str, smem: Bytes, needed_bytes: int) -> None:
    """Refuse shared memory that is shorter than the box of a copy; `name` is the argument to report."""
    if len(smem) < needed_bytes:
        raise SMEM_EXTENT.error(name=name, bytes=len(smem), needed_bytes=needed_bytes)


def receivers(cta_mask: object, block_count: int) -> list[int]:
    """The ranks of the blocks whose bits are set."""
    mask = integer("cta_mask", cta_mask)
    most = min(block_count, MAX_CLUSTER_BLOCKS)
    if not 0 < mask < 1 << most:
        wording = CTA_MASK.wording if most else _MASK_WITHOUT_BLOCKS
        raise wording.error(cta_mask=mask, blocks=block_count, whole_mask=(1 << most) - 1)
    return [rank for rank in range(most) if mask >> rank & 1]


def _column_and_rows(column: object, rows: object) -> tuple[int, ...]:
    return integer("column", column), *integers("rows", rows)


def _run_load(copy: Copy, memory: object, smem: Memory | None) -> Memory | Bytes:
    source = readable("memory", memory)
    if smem is None:
        return deliver(copy, source, {})
    deliver(copy, source, {"smem": writeable("smem", smem)})
    return smem


def deliver(copy: Copy, memory: Bytes, smems: Mapping[str, Bytes], walked: Walk | None = None) -> Bytes:
    """Carry out a load into the bytes of shared memories, by their names, or of none into zeros as long as it takes.

    `walked` are the rows of the copy, if the caller knows them.
    """
    walked = walk(copy) if walked is None else walked
    placed = placement(copy.tensor_map, walked.rows, copy.smem_address)
    require_memory(copy, walked, walked.high_bytes, len(memory))
    for name, smem in smems.items():  # all are looked at before one is written
        require_smem(name, smem, placed.footprint_bytes)
    targets = list(smems.values())
    if not targets:
        targets = [np.zeros(placed.footprint_bytes, np.uint8)]
    rows = _gather_rows(copy.tensor_map, walked, memory)
    for target in targets:
        _place(copy.tensor_map, placed, rows, target)
    return targets[0]


def deliver_together(copies: Sequence[Copy], walks: Sequence[Walk], memory: Bytes, smems: Bytes, name: str) -> None:
    """Execute loads that differ only in their coordinates, each into its own row of `smems`: (copies, bytes).

    `name` is what a refusal calls the shared memory.
    """
    tensor_map: AnyMap = copies[0].tensor_map
    placed = placement(tensor_map, walks[0].rows, copies[0].smem_address)
    is_dense = _dense_bytes_of_piece(tensor_map, placed) == placed.piece_bytes
    if not is_dense or not all(_is_whole(walked) for walked in walks):
        for copy, walked, smem in zip(copies, walks, smems, strict=True):
            deliver(copy, memory, {name: smem}, walked)
        return
    for copy, walked in zip(copies, walks, strict=True):
        require_memory(copy, walked, walked.high_bytes, len(memory))
    require_smem(name, smems[0], placed.footprint_bytes)
    starts = np.concatenate([walked.starts for walked in walks])
    rows = deliver_elements(tensor_map.data_type, _read_pieces(memory, starts, 0, walks[0].row_bytes))
    whole_bytes = smems.shape[1] // placed.piece_bytes * placed.piece_bytes
    pieces = smems[:, :whole_bytes].view(_PIECE_TYPES[placed.piece_bytes])
    pieces[:, placed.places] = rows.reshape(len(copies), -1).view(pieces.dtype)


def _is_whole(walked: Walk) -> bool:
    """Whether a copy is completely inside the tensor."""
    return walked.all_inside and walked.low_bytes == 0 and walked.high_bytes == walked.row_bytes


def _gather_rows(tensor_map: AnyMap, walked: Walk, memory: Bytes) -> Bytes:
    """(rows, row bytes) dense rows as a load delivers them: filled outside the tensor, tf32 rounded."""
    if _is_whole(walked):
        return deliver_elements(tensor_map.data_type, _read_pieces(memory, walked.starts, 0, walked.row_bytes))
    rows = np.zeros((walked.rows, walked.row_bytes), np.uint8)
    if tensor_map.oob_fill.name == "nan":
        rows.reshape(-1, 2)[:] = _NAN_FILL
    if not walked.inside.any():
        return rows
    starts = walked.starts[walked.inside]
    low = walked.low_bytes
    high = walked.high_bytes
    body = high // CHUNK_BYTES * CHUNK_BYTES
    if low < body:
        rows[walked.inside, low:body] = deliver_elements(tensor_map.data_type, _read_pieces(memory, starts, low, body))
    if body < high:  # the tensor ends within a piece: its last elements, by bytes
        tail = memory[starts[:, None] + np.arange(body, high)]
        rows[walked.inside, body:high] = deliver_elements(tensor_map.data_type, tail)
    return rows


def _read_pieces(memory: Bytes, starts: Offsets, low: int, high: int) -> Bytes:
    """(rows, high - low) bytes of rows that start on 16 bytes."""
    pieces = _pieces_of(memory, CHUNK_BYTES)
    index = (starts // CHUNK_BYTES)[:, None] + np.arange(low // CHUNK_BYTES, high // CHUNK_BYTES)
    rows: Bytes = pieces.take(index, mode="clip").view(np.uint8)
    return rows


def _place(tensor_map: AnyMap, placed: Placement, rows: Bytes, target: Bytes) -> None:
    """Write dense rows to their places in shared memory."""
    pieces = _pieces_of(target, placed.piece_bytes)
    dense = _dense_bytes_of_piece(tensor_map, placed)
    if dense == placed.piece_bytes:
        pieces[placed.places] = rows.reshape(-1).view(pieces.dtype)
    else:  # a padded type: each piece is data, then padding
        pieces.view(np.uint8).reshape(-1, CHUNK_BYTES)[placed.places, :dense] = rows.reshape(-1, dense)


def _pick_rows(tensor_map: AnyMap, placed: Placement, source: Bytes) -> Bytes:
    """(rows, row bytes) dense rows, from their places in shared memory."""
    pieces = _pieces_of(source, placed.piece_bytes)
    dense = _dense_bytes_of_piece(tensor_map, placed)
    rows = pieces.take(placed.places, mode="clip").view(np.uint8)
    if tensor_map.data_type.name == SIX_BIT_TYPE:
        rows = pack_values(rows.reshape(-1, CHUNK_BYTES), tensor_map.data_type.bits)
    elif dense != placed.piece_bytes:
        rows = rows.reshape(-1, CHUNK_BYTES)[:, :dense]
    return np.ascontiguousarray(rows).reshape(-1)


def _pieces_of(memory: Bytes, piece_bytes: int) -> Pieces:
    """Memory as pieces that move whole; a rest that is no piece is left out."""
    return memory[: len(memory) // piece_bytes * piece_bytes].view(_PIECE_TYPES[piece_bytes])


def _dense_bytes_of_piece(tensor_map: AnyMap, placed: Placement) -> int:
    """How many bytes of a piece are data."""
    return dense_bytes(tensor_map.data_type) * placed.piece_bytes // CHUNK_BYTES


def _run_store(copy: Copy, smem: object, memory: Memory) -> Memory:
    source = readable("smem", smem)
    target = writeable("memory", memory)
    write_rows(copy, read_rows(copy, source), target)
    return memory


def read_rows(copy: Copy, smem: Bytes, name: str = "smem", walked: Walk | None = None) -> Bytes:
    """The first half of a store: dense rows, from their places in shared memory; `name` is what a refusal calls it."""
    tensor_map: AnyMap = copy.tensor_map
    walked = walk(copy) if walked is None else walked
    placed = placement(tensor_map, walked.rows, copy.smem_address)
    require_smem(name, smem, placed.footprint_bytes)
    return _pick_rows(tensor_map, placed, smem).reshape(walked.rows, walked.row_bytes)


def write_rows(copy: Copy, rows: Bytes, memory: Bytes, walked: Walk | None = None) -> None:
    """The second half of a store: the part of each row that is in the tensor is written, or combined with memory."""
    tensor_map: AnyMap = copy.tensor_map
    walked = walk(copy) if walked is None else walked
    require_memory(copy, walked, walked.reach_bytes, len(memory))
    if not walked.inside.any():
        return
    inside_rows = np.ascontiguousarray(rows[walked.inside, : walked.reach_bytes])
    starts = walked.starts[walked.inside]
    if copy.reduce is None:
        _write_pieces(memory, starts, inside_rows)
        return
    word = np.dtype(f"u{tensor_map.data_type.bits // 8}")
    for batch in _batches_to_combine(starts, walked.reach_bytes):
        old = _read_pieces(memory, starts[batch], 0, walked.reach_bytes).view(word)
        words = combine_elements(copy.reduce, tensor_map.data_type, old, inside_rows[batch].view(word))
        _write_pieces(memory, starts[batch], words.view(np.uint8))


def _batches_to_combine(starts: Offsets, reach_bytes: int) -> list[slice]:
    """The rows that a reduction combines at once: all of them, but one after another where rows share bytes."""
    are_apart = (np.diff(np.sort(starts)) >= reach_bytes).all()
    if are_apart:
        return [slice(None)]
    return [slice(row, row + 1) for row in range(len(starts))]


def _write_pieces(memory: Bytes, starts: Offsets, rows: Bytes) -> None:
    """Write rows one after another; where they overlap the last one stays."""
    pieces = _pieces_of(memory, CHUNK_BYTES)
    index = (starts // CHUNK_BYTES)[:, None] + np.arange(rows.shape[1] // CHUNK_BYTES)
    pieces[index] = rows.view(_PIECE_TYPES[CHUNK_BYTES])


def require_memory(copy: Copy, walked: Walk, reach_bytes: int, memory_bytes: int) -> None:
    """Refuse an array that ends before what the copy touches; filled and dropped elements need no memory."""
    if walked.last_start is None or walked.last_start + reach_bytes <= memory_bytes:
        return
    tensor_map: AnyMap = copy.tensor_map
    all_coords = row_coords(copy)
    row = int(np.flatnonzero(walked.inside & (walked.starts + reach_bytes > memory_bytes))[0])
    coords = tuple(all_coords[row].tolist())
    start = source_offset(tensor_map, coords)
    missing = max(start + walked.low_bytes, memory_bytes)
    if not tensor_map.interleave.slice_bytes:
        coords = (coords[0] + (missing - start) * 8 // tensor_map.data_type.bits, *coords[1:])
    last_start = max(source_offset(tensor_map, tuple(row)) for row in all_coords[walked.inside].tolist())
    wording = _MEMORY_BEHIND_ROW if missing - start >= walked.high_bytes else MEMORY_EXTENT.wording
    raise wording.error(byte=missing, coords=coords, bytes=memory_bytes, needed_bytes=last_start + reach_bytes)
