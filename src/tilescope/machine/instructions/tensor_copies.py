"""Copies through tensor maps: cp.async.bulk.tensor and cp.reduce.async.bulk.tensor.

The map is read when the instruction is issued, from the kernel's parameters or from global memory, and its rules are
checked then; a broken rule is a fault, as on the chip. The bytes move when the copy completes, by the walk of `tma`.

    load     [dst], [map, {x, y}], [mbarrier]{, {offsets}}{, cta mask}{, cache policy}
    store    [map, {x, y}], [src]{, cache policy}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import (
    ILLEGAL_ADDRESS,
    ILLEGAL_INSTRUCTION,
    MISALIGNED_ADDRESS,
    KernelFaultError,
    fault_of,
)
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.records import CopyRecord
from tilescope.machine.instructions.barrier_unit import BARRIER_BYTES, complete_bytes
from tilescope.machine.instructions.copy_engine import (
    Bytes,
    cast_to,
    global_from,
    issuing_block,
    keep_record,
    shared_from,
    writeable_from,
)
from tilescope.machine.instructions.cp_async_bulk import BULK_GROUP, MBARRIER, SPACES
from tilescope.machine.instructions.load_store import AddressOf, decode_address
from tilescope.machine.instructions.modifiers import Words, require_target
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Step
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.ptx.syntax import Address, Instruction, Operand, operand_text
from tilescope.sentence import counted
from tilescope.sync.address import PARAM_WINDOW, SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import CopyCompleted, CopyIssued, CopyRead, CopyRequested, MapRead
from tilescope.sync.footprint import Rows, one_row
from tilescope.sync.shadow.lockstep_cells import OrderMattersError
from tilescope.tensor_map import REDUCTIONS, AnyMap, Copy, require_legal
from tilescope.tensor_map.copy_instruction import Direction
from tilescope.tensor_map.limits import MAP_ALIGNMENT_BYTES
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.record import MapSubject
from tilescope.tma.request import taken_offsets
from tilescope.tma.transfer import deliver, deliver_together, read_rows, write_rows
from tilescope.tma.walk import Walk, placement, walk

RANKS = ("1d", "2d", "3d", "4d", "5d")
_SUBJECT_OF_MODE: dict[str, MapSubject] = {
    "tile": "tiled",
    "tile::gather4": "tiled",
    "tile::scatter4": "tiled",
    "im2col": "im2col",
    "im2col_no_offs": "im2col",
    "im2col::w": "wide",
    "im2col::w::128": "wide",
}
_PAIR_BIT = 1 << SHARED_RANK_SHIFT  # in which the shared addresses of a pair of blocks differ
_ROWS4_MODES = ("tile::gather4", "tile::scatter4")


@dataclass(frozen=True, slots=True)
class TensorForm:
    """One tensor copy of the text, decoded: registers of its operands."""

    direction: Direction
    mode: str
    map_address: AddressOf
    shared_address: AddressOf
    coords: tuple[int, ...]
    reduce: str | None = None
    barrier: AddressOf | None = None
    offsets: tuple[int, ...] = ()
    cta_mask: int | None = None
    goes_to_cluster: bool = False
    signals_pair: bool = False  # .cta_group::2: the mbarrier may be the other block's of a pair


def decode_tensor_copy(assembler: Assembler, instruction: Instruction, words: Words, *, is_reduction: bool) -> Step:
    """The words after cp{.reduce}.async.bulk.tensor: rank, spaces, mode, completion, reduction."""
    rank = int(words.required(RANKS, "rank")[0])
    target_space = words.required(SPACES, "destination")
    source_space = words.required(SPACES, "source")
    mode = words.one_of(_SUBJECT_OF_MODE) or "tile"
    is_load = source_space == "global"
    if is_load == (target_space == "global"):
        raise RefusedError(f"there is no tensor copy from .{source_space} to .{target_space}")
    words.required((MBARRIER if is_load else BULK_GROUP,), "completion that this direction has")
    has_mask = words.flag("multicast::cluster")
    cta_group = words.one_of(("cta_group::1", "cta_group::2"))
    if cta_group is not None:
        require_target(assembler.module, BLACKWELL, f".{cta_group} of a tensor copy")
    has_policy = words.flag("L2::cache_hint")
    words.without_effect()
    reduce = words.required(tuple(REDUCTIONS), "reduction") if is_reduction else None
    words.done()
    operands = list(instruction.operands)
    if has_policy:
        operands.pop()
    if is_load:
        form = _load_form(assembler, operands, mode, has_mask=has_mask, to_cluster=target_space == "shared::cluster")
        form = replace(form, signals_pair=cta_group == "cta_group::2")
    else:
        box, source = operands
        form = TensorForm(
            direction="store" if reduce is None else "reduce",
            mode=mode,
            map_address=decode_address(assembler, box),
            shared_address=decode_address(assembler, source),
            coords=_coords(assembler, box),
            reduce=reduce,
        )
    coord_count = 5 if mode in _ROWS4_MODES else rank
    if len(form.coords) != coord_count:
        raise RefusedError(f"{counted(coord_count, 'coordinate')} expected, not {len(form.coords)}")
    return _for_each_lane(form)


def _load_form(
    assembler: Assembler, operands: list[Operand], mode: str, *, has_mask: bool, to_cluster: bool
) -> TensorForm:
    cta_mask = assembler.source(operands.pop(), "u16") if has_mask else None
    offsets: tuple[int, ...] = ()
    if mode.startswith("im2col"):
        offsets = tuple(assembler.source(offset, "u16") for offset in assembler.vector(operands.pop()))
    target, box, barrier = operands
    return TensorForm(
        direction="load",
        mode=mode,
        map_address=decode_address(assembler, box),
        shared_address=decode_address(assembler, target),
        coords=_coords(assembler, box),
        barrier=decode_address(assembler, barrier),
        offsets=offsets,
        cta_mask=cta_mask,
        goes_to_cluster=to_cluster,
    )


def _coords(assembler: Assembler, box: Operand) -> tuple[int, ...]:
    if not isinstance(box, Address):
        raise RefusedError(f"a map and its coordinates are expected, [map, {{x, y}}], not {operand_text(box)}")
    return tuple(assembler.source(coord, "s32") for coord in box.coordinates)


def _for_each_lane(form: TensorForm) -> Step:
    def step(cluster: Cluster, at: Lanes) -> None:
        map_addresses = form.map_address(cluster, at).tolist()
        cluster.launch.charge(len(map_addresses))
        shared_addresses = form.shared_address(cluster, at).tolist()
        barriers = [None] * len(map_addresses) if form.barrier is None else form.barrier(cluster, at).tolist()
        for lane, map_address, shared_address, barrier in zip(
            cluster.lanes(at).tolist(), map_addresses, shared_addresses, barriers, strict=True
        ):
            number = _map_number(cluster, lane, map_address)
            cluster.emit(MapRead(cluster.pc, lane, map_address))
            copy = _legal_copy(cluster, form, lane, cluster.launch.maps[number], shared_address)
            walked = WalkedCopy(copy, walk(copy))
            followers = _copies_of_followers(cluster, form, lane, walked)
            for rows in (walked.walk, *[follower.walked.walk for follower in followers]):
                row_bytes = rows.high_bytes - rows.low_bytes
                event = CopyRequested(cluster.pc, lane, copy.direction, number, rows.inside_rows, row_bytes)
                cluster.whole.emit(event)
            if barrier is None:
                _issue_store(cluster, lane, walked, number, followers)
            else:
                places = {"map_address": map_address, "map_number": number, "barrier": barrier}
                _issue_load(cluster, form, lane, walked, followers, **places)

    return step


@dataclass(frozen=True, eq=False)
class WalkedCopy:
    """A copy with the rows that it visits: they are walked once, when it is issued."""

    copy: Copy
    walk: Walk

    @cached_property
    def memory(self) -> Rows:
        """The part of the tensor in global memory that it reads or writes."""
        starts = self.copy.tensor_map.address + self.walk.starts[self.walk.inside] + self.walk.low_bytes
        return Rows(starts, self.walk.high_bytes - self.walk.low_bytes)


class FollowingCopy(NamedTuple):
    """The copy of a block that follows a leader: at the same offset in its shared memory, with its own coordinates."""

    lane: int  # of the batch
    walked: WalkedCopy
    shared: Bytes


def _copies_of_followers(cluster: Cluster, form: TensorForm, lane: int, walked: WalkedCopy) -> list[FollowingCopy]:
    """The copies of the blocks that follow a leader; their maps, places and mbarriers are the leader's.

    Blocks with equal coordinates, which read the same tile, share one copy.
    """
    lanes = cluster.followers(lane)
    if not len(lanes):
        return []
    whole = cluster.whole
    addresses = [form.map_address, form.shared_address, *([] if form.barrier is None else [form.barrier])]
    for address_of in addresses:
        if (address_of(whole, lanes) != address_of(cluster, np.array([lane]))).any():
            raise OrderMattersError("copies of blocks differ in more than their coordinates")
    stride = cluster.shared_stride
    copy = walked.copy
    first, *others = whole.stacked((*form.coords, *form.offsets), np.array([lane, *lanes])).tolist()
    walked_copies = {tuple(first): walked}
    followers = []
    for other, words in zip(lanes.tolist(), map(tuple, others), strict=True):
        if words not in walked_copies:
            follower_copy = _legal_copy(whole, form, other, copy.tensor_map, copy.smem_address)
            walked_copies[words] = WalkedCopy(follower_copy, walk(follower_copy))
        first_byte = other // whole.block_lanes * stride
        shared = whole.shared[first_byte + copy.smem_address : first_byte + cluster.launch.shared_end]
        followers.append(FollowingCopy(other, walked_copies[words], shared))
    return followers


def _map_number(cluster: Cluster, lane: int, address: int) -> int:
    """The map whose 128 bytes are at a generic address, by its number in the launch."""
    if address % MAP_ALIGNMENT_BYTES:
        reason = f"a tensor map at {address:#x}, which is not a multiple of {MAP_ALIGNMENT_BYTES} bytes"
        raise KernelFaultError(MISALIGNED_ADDRESS, reason, lane, address)
    if is_in_window("param", address):
        content = cluster.launch.parameters[address - PARAM_WINDOW :]
    else:
        content = global_from(cluster.memory, address)
    if len(content) < DESCRIPTOR_BYTES:
        reason = f"a tensor map at {address:#x}, where no {DESCRIPTOR_BYTES} bytes lie"
        raise KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address)
    try:
        return cluster.launch.map_number(content[:DESCRIPTOR_BYTES].tobytes())
    except RuleError as error:
        raise fault_of(error, lane, address) from None


def _legal_copy(cluster: Cluster, form: TensorForm, lane: int, tensor_map: AnyMap, shared_address: int) -> Copy:
    """The copy of one thread, or what the chip answers to it."""
    if tensor_map.subject != _SUBJECT_OF_MODE[form.mode]:
        reason = f"a copy in mode .{form.mode} through a map that is {tensor_map.subject}"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane)
    offsets = tuple(int(cluster.registers[number][lane]) for number in form.offsets)
    if tensor_map.subject == "im2col" and offsets:
        offsets = taken_offsets(tensor_map.rank, offsets)
    copy = Copy(
        tensor_map=tensor_map,
        direction=form.direction,
        coords=_read_signed(cluster, form.coords, lane),
        smem_address=shared_address,
        offsets=offsets,
        reduce=form.reduce,
        rows4=form.mode in _ROWS4_MODES,
        cluster=form.goes_to_cluster,
    )
    try:
        require_legal(copy)
    except RuleError as error:
        raise fault_of(error, lane, shared_address) from None
    return copy


def _read_signed(cluster: Cluster, numbers: Sequence[int], lane: int) -> tuple[int, ...]:
    """Registers of one thread as signed 32-bit numbers."""
    words = [int(cluster.registers[number][lane]) & 0xFFFFFFFF for number in numbers]
    return tuple(word - (word >> 31 << 32) for word in words)


def _issue_load(
    cluster: Cluster,
    form: TensorForm,
    lane: int,
    walked: WalkedCopy,
    followers: list[FollowingCopy],
    *,
    map_address: int,
    map_number: int,
    barrier: int,
) -> None:
    """One piece of work for every block that receives the box."""
    copy = walked.copy
    targets = [copy.smem_address]
    barriers = [barrier]
    if form.cta_mask is not None:
        cta_mask = int(cluster.registers[form.cta_mask][lane])
        targets = cast_to(cluster, lane, copy.smem_address, cta_mask)
        barriers = cast_to(cluster, lane, barrier, cta_mask)
        if form.signals_pair:  # of every pair the block that is even, or odd, as the one whose mbarrier is named
            parity = barrier >> SHARED_RANK_SHIFT & 1
            barriers = [address & ~_PAIR_BIT | parity << SHARED_RANK_SHIFT for address in barriers]
    for target, own_barrier in zip(targets, barriers, strict=True):
        target_copy = WalkedCopy(copy._replace(smem_address=target), walked.walk)
        places = {"map_address": map_address, "map_number": map_number, "barrier": own_barrier}
        _add_load(cluster, lane, target_copy, followers, **places)


def _add_load(
    cluster: Cluster,
    lane: int,
    walked: WalkedCopy,
    followers: list[FollowingCopy],
    *,
    map_address: int,
    map_number: int,
    barrier: int,
) -> None:
    pc = cluster.pc
    copy = walked.copy
    tensor_map: AnyMap = copy.tensor_map
    target = shared_from(cluster, lane, copy.smem_address)
    cluster.require_shared(np.array([lane]), np.array([barrier]), BARRIER_BYTES)
    record = _record(cluster, lane, walked, map_number, barrier)
    keep_record(cluster, record)
    _keep_copies_of_all(cluster, lane, walked, record, followers)
    issue = None
    if cluster.bus.is_heard:
        issue = CopyIssued(
            pc,
            lane,
            record,
            shared=_written_bytes(cluster, walked),
            memory=walked.memory,
            is_reduction=False,
            barrier=barrier,
            group=0,
            map_address=map_address,
            tensor_copy=copy,
        )
        cluster.emit(issue)

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        if issue is not None:
            cluster.emit(CopyCompleted(pc, issue, record.bytes))
        try:
            content = global_from(cluster.memory, tensor_map.address)
            if followers:
                _deliver_to_all(cluster, (walked, *[follower.walked for follower in followers]), content)
            else:
                deliver(copy, content, {_rest_named(copy): target}, walked.walk)
        except RuleError as error:  # bytes that no array holds
            raise fault_of(error, lane, tensor_map.address, ILLEGAL_ADDRESS) from None
        complete_bytes(cluster, barrier, lane, record.bytes)

    cluster.pending.add(Work("load", pc, np.array([lane]), perform, barrier=barrier))


def _deliver_to_all(cluster: Cluster, walked: Sequence[WalkedCopy], content: Bytes) -> None:
    """Carry out the loads of a leader and of the blocks that follow it, at the same place of their shared memories."""
    whole = cluster.whole
    copy = walked[0].copy
    smems = whole.shared.reshape(whole.blocks, -1)[:, copy.smem_address : cluster.launch.shared_end]
    copies = [walked_copy.copy for walked_copy in walked]
    deliver_together(copies, [walked_copy.walk for walked_copy in walked], content, smems, _rest_named(copy))


def _keep_copies_of_all(
    cluster: Cluster, lane: int, walked: WalkedCopy, record: CopyRecord, followers: list[FollowingCopy]
) -> None:
    """Of a leader: keep the records of the blocks that follow it, and the bytes that all of them access."""
    if cluster.whole is cluster:
        return
    is_write = walked.copy.direction != "load"
    cluster.keep_rows(cluster.pc, lane, walked.memory, is_write=is_write)
    for follower in followers:
        cluster.keep_rows(cluster.pc, follower.lane, follower.walked.memory, is_write=is_write)
        cluster.keep_follower(follower.lane, record._replace(coords=follower.walked.copy.coords))


def _rest_named(copy: Copy) -> str:
    """The shared memory that a copy may use: what the block has behind its address."""
    return f"the rest of shared memory from {copy.smem_address & SHARED_OFFSET_MASK:#x} on,"


def _issue_store(
    cluster: Cluster, lane: int, walked: WalkedCopy, map_number: int, followers: list[FollowingCopy]
) -> None:
    """A store or a reduction: rows are read from shared memory, then written."""
    pc = cluster.pc
    copy = walked.copy
    tensor_map: AnyMap = copy.tensor_map
    source = shared_from(cluster, lane, copy.smem_address)
    record = _record(cluster, lane, walked, map_number, None)
    keep_record(cluster, record)
    _keep_copies_of_all(cluster, lane, walked, record, followers)
    issue = None
    if cluster.bus.is_heard:
        issue = CopyIssued(
            pc,
            lane,
            record,
            shared=_read_bytes(cluster, walked),
            memory=walked.memory,
            is_reduction=copy.reduce is not None,
            barrier=None,
            group=int(cluster.pending.open_groups["bulk"][lane]),
            tensor_copy=copy,
        )
        cluster.emit(issue)
    copied_rows: list[Bytes] = []

    def read() -> None:
        cluster.pc = pc
        try:
            for walked_copy, shared in (
                (walked, source),
                *[(follower.walked, follower.shared) for follower in followers],
            ):
                copied_rows.append(read_rows(walked_copy.copy, shared, _rest_named(copy), walked_copy.walk))
        except RuleError as error:
            raise fault_of(error, lane, copy.smem_address, ILLEGAL_ADDRESS) from None
        if issue is not None:
            cluster.emit(CopyRead(pc, issue))

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        try:
            content = writeable_from(cluster, lane, tensor_map.address)
            copies = (walked, *[follower.walked for follower in followers])
            for walked_copy, rows in zip(copies, copied_rows, strict=True):
                write_rows(walked_copy.copy, rows, content, walked_copy.walk)
        except RuleError as error:
            raise fault_of(error, lane, tensor_map.address, ILLEGAL_ADDRESS) from None

    cluster.pending.add(Work("bulk", pc, np.array([lane]), perform, read=read))


def _written_bytes(cluster: Cluster, written: WalkedCopy) -> Rows:
    """The bytes of shared memory that a load writes: its whole box, or the pieces of rows that leave gaps."""
    copy, walked = written.copy, written.walk
    tensor_map: AnyMap = copy.tensor_map
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    if row_bytes == tensor_map.pitch_bytes and not tensor_map.interleave.slice_bytes:
        return one_row(cluster.shape.place(copy.smem_address), walked.rows * row_bytes)
    placed = placement(tensor_map, walked.rows, copy.smem_address)
    return _rows_of_pieces(cluster, copy, placed.places, placed.piece_bytes)


def _read_bytes(cluster: Cluster, read: WalkedCopy) -> Rows:
    """The bytes of shared memory that a store reads: nothing of its box that is outside the tensor.

    So the columns that pad a tile against bank conflicts need not be written, where the box is wider than the tensor.
    """
    copy, walked = read.copy, read.walk
    tensor_map: AnyMap = copy.tensor_map
    is_dense = walked.row_bytes == tensor_map.inner_bytes and not tensor_map.interleave.slice_bytes
    is_whole = walked.all_inside and walked.low_bytes == 0 and walked.reach_bytes == walked.row_bytes
    if is_whole or not is_dense:
        return _written_bytes(cluster, read)
    placed = placement(tensor_map, walked.rows, copy.smem_address)
    pieces = placed.places.reshape(walked.rows, -1)
    starts = np.arange(pieces.shape[1]) * placed.piece_bytes
    is_in_reach = (starts < walked.reach_bytes) & (starts + placed.piece_bytes > walked.low_bytes)
    return _rows_of_pieces(cluster, copy, pieces[walked.inside[:, None] & is_in_reach], placed.piece_bytes)


def _rows_of_pieces(cluster: Cluster, copy: Copy, pieces: npt.NDArray[np.intp], piece_bytes: int) -> Rows:
    """Pieces that are counted from the copy's first byte of shared memory on."""
    return Rows(cluster.shape.place(copy.smem_address) + pieces * piece_bytes, piece_bytes)


def _record(cluster: Cluster, lane: int, issued: WalkedCopy, map_number: int, barrier: int | None) -> CopyRecord:
    copy, walked = issued.copy, issued.walk
    return CopyRecord(
        pc=cluster.pc,
        block=issuing_block(cluster, lane),
        lane=lane,
        kind=copy.direction,
        bytes=walked.rows * walked.row_bytes,  # what is filled counts too
        shared_address=copy.smem_address,
        barrier=barrier,
        coords=copy.coords,
        map_number=map_number,
    )
