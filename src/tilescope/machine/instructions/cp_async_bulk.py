"""One-dimensional bulk copies and reductions: cp.async.bulk and cp.reduce.async.bulk.

    shared::cluster ← global        tells an mbarrier; .multicast::cluster: one in every block that receives the bytes
    shared::cluster ← shared::cta   notifies an mbarrier in the block that receives the bytes
    global ← shared::cta            belongs to a bulk group of its thread; the source is read first, memory written later

Both addresses are multiples of 16. A size is cut down to a multiple of 16, and the card reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, KernelFaultError, fault_of
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.records import CopyKind, CopyRecord
from tilescope.machine.instructions.barrier_unit import BARRIER_BYTES, complete_bytes
from tilescope.machine.instructions.copy_engine import (
    Bytes,
    cast_to,
    issuing_block,
    keep_record,
    shared_from,
    writeable_from,
)
from tilescope.machine.instructions.load_store import AddressOf, decode_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Instruction
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import CopyCompleted, CopyIssued, CopyRequested
from tilescope.sync.footprint import one_row
from tilescope.tensor_map import REDUCTIONS
from tilescope.tma.bulk_copy import bulk_bytes, require_aligned
from tilescope.tma.elements import combine_elements

MBARRIER = "mbarrier::complete_tx::bytes"
BULK_GROUP = "bulk_group"
SPACES = ("shared::cluster", "shared::cta", "global")
_COMPLETION = {  # by destination and source
    ("shared::cluster", "global"): MBARRIER,
    ("shared::cta", "global"): MBARRIER,
    ("shared::cluster", "shared::cta"): MBARRIER,
    ("global", "shared::cta"): BULK_GROUP,
}
_DATA_TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "b32": "uint32",
    "u32": "uint32",
    "s32": "int32",
    "b64": "uint64",
    "u64": "uint64",
    "s64": "int64",
}


class Reduction(NamedTuple):
    """How a copy combines its data with the destination."""

    operation: str
    data_type: DataType

    def write(self, target: Bytes, brought: Bytes) -> None:
        """Combine the bytes of elements, element by element."""
        word = np.dtype(f"u{self.data_type.bits // 8}")
        old = np.ascontiguousarray(target).view(word)
        target[:] = combine_elements(self.operation, self.data_type, old, brought.view(word)).view(np.uint8)


@dataclass(frozen=True, slots=True)
class BulkForm:
    """One bulk copy of the text, decoded: registers of its operands."""

    target: AddressOf
    source: AddressOf
    size: int
    barrier: AddressOf | None = None
    cta_mask: int | None = None
    reduction: Reduction | None = None

    def write(self, target: Bytes, brought: Bytes) -> None:
        """Write the bytes, or combine them with the memory's contents."""
        if self.reduction is None:
            target[:] = brought
        else:
            self.reduction.write(target, brought)


class _Ends(NamedTuple):
    """One copy of one thread."""

    lane: int
    target: int
    source: int
    size_bytes: int
    barrier: int


def decode_bulk(assembler: Assembler, instruction: Instruction, words: Words, *, is_reduction: bool) -> Step:
    """The words after cp{.reduce}.async.bulk: spaces, completion, multicast, reduction."""
    target_space = words.required(SPACES, "destination")
    source_space = words.required(SPACES, "source")
    completion = _COMPLETION.get((target_space, source_space))
    if completion is None:
        raise RefusedError(f"there is no bulk copy from .{source_space} to .{target_space}")
    words.required((completion,), f".{completion}")
    is_multicast = words.flag("multicast::cluster")
    has_policy = words.flag("L2::cache_hint")
    words.without_effect()
    reduction = _reduction(words) if is_reduction else None
    words.done()
    operands = list(instruction.operands)
    if has_policy:
        operands.pop()
    cta_mask = assembler.source(operands.pop(), "u16") if is_multicast else None
    barrier = decode_address(assembler, operands.pop()) if completion == MBARRIER else None
    target, source, size = operands
    form = BulkForm(
        target=decode_address(assembler, target),
        source=decode_address(assembler, source),
        size=assembler.source(size, "u32"),
        barrier=barrier,
        cta_mask=cta_mask,
        reduction=reduction,
    )
    if completion == BULK_GROUP:
        return _for_each_lane(form, _issue_store)
    return _for_each_lane(form, _issue_load if source_space == "global" else _issue_between_blocks)


def _reduction(words: Words) -> Reduction:
    operation = words.required(tuple(REDUCTIONS), "reduction")
    words.flag("noftz")
    data_type = DataType.named(_DATA_TYPES[words.required(tuple(_DATA_TYPES), "type")])
    if data_type.name not in REDUCTIONS[operation]:
        raise RefusedError(f"{operation} does not take {data_type.name}")
    return Reduction(operation, data_type)


def _for_each_lane(form: BulkForm, issue: Callable[[Cluster, BulkForm, _Ends], None]) -> Step:
    def step(cluster: Cluster, at: Lanes) -> None:
        targets = form.target(cluster, at).tolist()
        cluster.launch.charge(len(targets))
        sources = form.source(cluster, at).tolist()
        sizes = cluster.registers[form.size][at].tolist()
        barriers = [0] * len(targets) if form.barrier is None else form.barrier(cluster, at).tolist()
        for lane, target, source, size_bytes, barrier in zip(
            cluster.lanes(at).tolist(), targets, sources, sizes, barriers, strict=True
        ):
            issue(cluster, form, _Ends(lane, target, source, bulk_bytes(size_bytes), barrier))

    return step


def _require_aligned(lane: int, *, shared_address: int, other_address: int) -> None:
    try:
        require_aligned(address=other_address, smem_address=shared_address)
    except RuleError as error:
        raise fault_of(error, lane) from None


def _issue_load(cluster: Cluster, form: BulkForm, ends: _Ends) -> None:
    """Global memory into the shared memory of one block, or of all that a multicast reaches."""
    lane = ends.lane
    _require_aligned(lane, shared_address=ends.target, other_address=ends.source)
    cluster.emit(CopyRequested(cluster.pc, lane, "load", None, min(ends.size_bytes, 1), ends.size_bytes))
    targets = [ends.target]
    barriers = [ends.barrier]
    if form.cta_mask is not None:
        cta_mask = int(cluster.registers[form.cta_mask][lane])
        targets = cast_to(cluster, lane, ends.target, cta_mask)
        barriers = cast_to(cluster, lane, ends.barrier, cta_mask)
    for target, barrier in zip(targets, barriers, strict=True):
        _add_load(cluster, form, ends._replace(target=target, barrier=barrier), _read_global)


def _issue_between_blocks(cluster: Cluster, form: BulkForm, ends: _Ends) -> None:
    """Shared memory of the own block into that of any block of the cluster."""
    _require_aligned(ends.lane, shared_address=ends.source, other_address=ends.target)
    shared_from(cluster, ends.lane, ends.source, ends.size_bytes)
    _add_load(cluster, form, ends, _read_shared)


def _read_global(cluster: Cluster, ends: _Ends) -> Bytes:
    return cluster.memory.bytes_at(ends.source, ends.size_bytes)


def _read_shared(cluster: Cluster, ends: _Ends) -> Bytes:
    return shared_from(cluster, ends.lane, ends.source, ends.size_bytes)[: ends.size_bytes].copy()


def _add_load(cluster: Cluster, form: BulkForm, ends: _Ends, read: Callable[[Cluster, _Ends], Bytes]) -> None:
    lane = ends.lane
    pc = cluster.pc
    shared_from(cluster, lane, ends.target, ends.size_bytes)
    cluster.require_shared(np.array([lane]), np.array([ends.barrier]), BARRIER_BYTES)
    record = CopyRecord(
        pc=pc,
        block=issuing_block(cluster, lane),
        lane=lane,
        kind="load" if form.reduction is None else "reduce",
        bytes=ends.size_bytes,
        shared_address=ends.target,
        barrier=ends.barrier,
        other_address=ends.source,
    )
    keep_record(cluster, record)
    is_from_memory = read is _read_global
    issue = CopyIssued(
        pc,
        lane,
        record,
        shared=one_row(cluster.shape.place(ends.target), ends.size_bytes) if ends.size_bytes else None,
        memory=one_row(ends.source, ends.size_bytes) if is_from_memory and ends.size_bytes else None,
        is_reduction=form.reduction is not None,
        barrier=ends.barrier,
        group=0,
        source=None if is_from_memory else one_row(cluster.shape.place(ends.source), ends.size_bytes),
    )
    cluster.emit(issue)

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        if ends.size_bytes:
            cluster.emit(CopyCompleted(pc, issue, ends.size_bytes))
            target = shared_from(cluster, lane, ends.target, ends.size_bytes)
            form.write(target[: ends.size_bytes], _by_lane(read, cluster, ends))
        complete_bytes(cluster, ends.barrier, lane, ends.size_bytes)

    cluster.pending.add(Work("load", pc, np.array([lane]), perform, barrier=ends.barrier))


def _by_lane(read: Callable[[Cluster, _Ends], Bytes], cluster: Cluster, ends: _Ends) -> Bytes:
    """The bytes of the source; a fault of memory gets the thread that issued the copy."""
    try:
        return read(cluster, ends)
    except KernelFaultError as fault:
        fault.lane = ends.lane
        raise


def _issue_store(cluster: Cluster, form: BulkForm, ends: _Ends) -> None:
    """Shared memory into global memory: read, then written."""
    lane = ends.lane
    pc = cluster.pc
    size_bytes = ends.size_bytes
    _require_aligned(lane, shared_address=ends.source, other_address=ends.target)
    shared_from(cluster, lane, ends.source, size_bytes)
    direction: CopyKind = "store" if form.reduction is None else "reduce"
    cluster.emit(CopyRequested(pc, lane, direction, None, min(size_bytes, 1), size_bytes))
    record = CopyRecord(
        pc=pc,
        block=issuing_block(cluster, lane),
        lane=lane,
        kind=direction,
        bytes=size_bytes,
        shared_address=ends.source,
        other_address=ends.target,
    )
    keep_record(cluster, record)
    cluster.emit(
        CopyIssued(
            pc,
            lane,
            record,
            shared=one_row(cluster.shape.place(ends.source), size_bytes) if size_bytes else None,
            memory=one_row(ends.target, size_bytes) if size_bytes else None,
            is_reduction=form.reduction is not None,
            barrier=None,
            group=int(cluster.pending.open_groups["bulk"][lane]),
        )
    )
    contents: list[Bytes] = []

    def read() -> None:
        cluster.pc = pc
        contents.append(shared_from(cluster, lane, ends.source, size_bytes)[:size_bytes].copy())

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        if not size_bytes:
            return
        target = writeable_from(cluster, lane, ends.target)
        if len(target) < size_bytes:
            reason = f"a store of {size_bytes} bytes at {ends.target:#x}, which no array contains"
            raise KernelFaultError(ILLEGAL_ADDRESS, reason, lane, ends.target)
        form.write(target[:size_bytes], contents[0])

    cluster.pending.add(Work("bulk", pc, np.array([lane]), perform, read=read))
