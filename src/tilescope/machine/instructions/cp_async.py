"""The family cp: cp.async here, its bulk and tensor copies in their own modules, and the groups that threads wait for.

cp.async copies 4, 8 or 16 bytes for each thread. One piece of work holds all threads that issued it together. Alignment and
the destination are checked when it is issued; the source is read when the copy is done, and with a size of 0 not at all.

    cp.async.cg.shared.global [dst], [src], 16, n;      n bytes of the source, then zeros
    cp.async.mbarrier.arrive [barrier];                 an arrival after all copies that the thread has issued
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.decoding.access_kind import AccessKind, access_kind
from tilescope.machine.execution.fault import (
    INVALID_ADDRESS_SPACE,
    LAUNCH_FAILURE,
    MISALIGNED_ADDRESS,
    KernelFaultError,
    fault_of,
)
from tilescope.machine.execution.pending import Pending, Work
from tilescope.machine.instructions.barrier_unit import barrier_at, change, group_by_barrier
from tilescope.machine.instructions.cp_async_bulk import decode_bulk
from tilescope.machine.instructions.load_store import AddressOf, decode_address
from tilescope.machine.instructions.mbarrier_instructions import decode_shared_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_copies import decode_tensor_copy
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import Immediate, Instruction, Negated, Operand, Register, operand_text
from tilescope.sentence import listed
from tilescope.sync.address import WINDOWS, Addresses, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import CopyUnit, CpAsyncArrived, CpAsyncArriveIssued, CpAsyncIssued, GroupCommit, GroupWait
from tilescope.sync.mbarrier import Mbarrier

Sizes = npt.NDArray[np.int64]
SizesOf = Callable[[Cluster, Lanes], Sizes]
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}
_GROUP_ACTIONS = ("commit_group", "wait_group", "wait_all")
_WORD_OF_BYTES: dict[int, tuple[np.dtype[np.generic], int]] = {  # and how many of them
    4: (np.dtype(np.uint32), 1),
    8: (np.dtype(np.uint64), 1),
    16: (np.dtype(np.uint64), 2),
}
_BYTE = np.dtype(np.uint8)


def _cp(assembler: Assembler, instruction: Instruction) -> Step:
    words = Words(instruction)
    is_reduction = words.flag("reduce")
    words.required(("async",), "async")
    is_bulk = words.flag("bulk")
    if is_bulk and words.flag("prefetch"):
        return _prefetch
    action = words.one_of(_GROUP_ACTIONS)
    if action is not None:
        return _group(instruction, words, "bulk" if is_bulk else "cp.async", action)
    if is_bulk and words.flag("tensor"):
        return decode_tensor_copy(assembler, instruction, words, is_reduction=is_reduction)
    if is_bulk:
        return decode_bulk(assembler, instruction, words, is_reduction=is_reduction)
    if words.flag("mbarrier"):
        return _arrive_after_copies(assembler, instruction, words)
    return _cp_async(assembler, instruction, words)


def _prefetch(cluster: Cluster, at: Lanes) -> None:
    """Bytes into the L2 cache, which change no value."""


def _group(instruction: Instruction, words: Words, kind: CopyUnit, action: str) -> Step:
    only_read = words.flag("read")
    words.done()
    if action == "commit_group":
        return _commit(kind)
    if action == "wait_all":
        return _wait_all(kind)
    return _wait_group(kind, _constant(instruction.operands[0]), only_read=only_read)


def _commit(kind: CopyUnit) -> Step:
    def commit(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        cluster.emit(GroupCommit(cluster.pc, lanes, kind, cluster.pending.open_groups[kind][lanes]))
        cluster.pending.commit(kind, lanes)

    return commit


def _wait_all(kind: CopyUnit) -> Step:
    def wait_all(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        pc = cluster.pc  # copies that complete now have another
        cluster.pending.wait_all(kind, lanes)
        completed = cluster.pending.open_groups[kind][lanes]
        cluster.emit(GroupWait(pc, lanes, kind, None, only_read=False, completed=completed))

    return wait_all


def _wait_group(kind: CopyUnit, newest: int, *, only_read: bool) -> Step:
    def wait_group(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        pc = cluster.pc
        cluster.pending.wait_group(kind, lanes, newest, only_read=only_read)
        completed = cluster.pending.open_groups[kind][lanes] - newest
        cluster.emit(GroupWait(pc, lanes, kind, newest, only_read=only_read, completed=completed))

    return wait_group


def _constant(operand: Operand) -> int:
    if not isinstance(operand, Immediate) or operand.value < 0:
        raise RefusedError(f"a constant of at least 0 is expected, not {operand_text(operand)}")
    return operand.value


def _cp_async(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    """cp.async.ca or .cg: [dst], [src], bytes{, bytes of the source | ignore the source}{, cache policy}."""
    cache = words.required(("ca", "cg"), ".ca or .cg")
    words.required(("shared", "shared::cta"), "destination in .shared")
    words.required(("global",), "source in .global")
    operands = list(instruction.operands)
    if words.flag("L2::cache_hint"):
        operands.pop()
    words.without_effect()
    words.done()
    target, source, written = operands[:3]
    size_bytes = _constant(written)
    if size_bytes not in _SIZES[cache]:
        raise RefusedError(f"cp.async.{cache} copies {listed(_SIZES[cache], 'or')} bytes, not {size_bytes}")
    sizes_of = _source_sizes(assembler, operands[3:], size_bytes)
    kind = access_kind("cp.async", size_bytes)
    if cache == "cg":
        kind = kind._replace(shared_op=None)  # past L1: its time does not follow banks
    return _copy_step(decode_address(assembler, target), decode_address(assembler, source), kind, sizes_of)


def _source_sizes(assembler: Assembler, operands: list[Operand], size_bytes: int) -> SizesOf | None:
    """How many bytes of the source each lane takes; None where all take all of them."""
    if not operands:
        return None
    last = operands[0]
    if isinstance(last, Negated) or (isinstance(last, Register) and last.type == "pred"):
        number, is_negated = assembler.predicate(last)

        def sizes_by_predicate(cluster: Cluster, at: Lanes) -> Sizes:
            is_ignored = cluster.registers[number][at].astype(np.bool_) ^ is_negated
            return np.where(is_ignored, 0, size_bytes)

        return sizes_by_predicate
    register = assembler.source(last, "u32")

    def sizes_by_register(cluster: Cluster, at: Lanes) -> Sizes:
        return np.minimum(cluster.registers[register][at].astype(np.int64), size_bytes)

    return sizes_by_register


def _copy_step(target_of: AddressOf, source_of: AddressOf, kind: AccessKind, sizes_of: SizesOf | None) -> Step:
    size_bytes = kind.size_bytes

    def issue(cluster: Cluster, at: Lanes) -> None:
        targets = target_of(cluster, at)
        sources = source_of(cluster, at)
        sizes = None if sizes_of is None else sizes_of(cluster, at)
        if sizes is not None and (sizes == size_bytes).all():
            sizes = None
        lanes = cluster.lanes(at).copy()
        pc = cluster.pc
        cluster.require_shared(at, targets, size_bytes)
        _require_aligned_sources(lanes, sources, sizes, size_bytes)
        if cluster.bus.is_heard:
            reads = np.ones(len(lanes), np.bool_) if sizes is None else sizes > 0
            is_whole = np.ones(len(lanes), np.bool_) if sizes is None else (sizes == size_bytes)[reads]
            places = cluster.shared_places(lanes, targets)
            cluster.emit(
                CpAsyncIssued(pc, lanes, targets, places, size_bytes, kind, lanes[reads], sources[reads], is_whole)
            )

        def perform(some: LaneNumbers) -> None:
            cluster.pc = pc
            if len(some) == len(lanes):
                _copy(cluster, lanes, targets, _read_sources(cluster, lanes, sources, sizes, size_bytes))
                return
            chosen = np.searchsorted(lanes, some)
            their_sizes = None if sizes is None else sizes[chosen]
            values = _read_sources(cluster, some, sources[chosen], their_sizes, size_bytes)
            _copy(cluster, some, targets[chosen], values)

        cluster.pending.add(Work("cp.async", pc, lanes, perform))

    return issue


def _copy(cluster: Cluster, lanes: LaneNumbers, targets: Addresses, values: Values) -> None:
    cluster.store("shared", lanes, targets, values)


def _require_aligned_sources(lanes: LaneNumbers, sources: Addresses, sizes: Sizes | None, size_bytes: int) -> None:
    is_wrong = sources & (size_bytes - 1) != 0
    if sizes is not None:
        is_wrong &= sizes > 0
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        address = int(sources[first])
        reason = f"cp.async of {size_bytes} bytes from {address:#x}, which is not a multiple of {size_bytes}"
        raise KernelFaultError(MISALIGNED_ADDRESS, reason, int(lanes[first]), address)


def _read_sources(
    cluster: Cluster, lanes: LaneNumbers, sources: Addresses, sizes: Sizes | None, size_bytes: int
) -> Values:
    """The words that each lane writes: bytes of the source, then zeros."""
    word, count = _WORD_OF_BYTES[size_bytes]
    if sizes is None:
        return _read(cluster, lanes, sources, word, count)
    values = np.zeros((len(lanes), size_bytes), _BYTE)
    for taken_bytes in np.unique(sizes).tolist():
        if taken_bytes == 0:
            continue
        chosen = np.flatnonzero(sizes == taken_bytes)
        read = _read(cluster, lanes[chosen], sources[chosen], _BYTE, taken_bytes)
        values[chosen, :taken_bytes] = read.reshape(len(chosen), taken_bytes)
    words: Values = values.view(word)
    return words if count > 1 else words[:, 0]


def _read(cluster: Cluster, lanes: LaneNumbers, sources: Addresses, word: np.dtype[np.generic], count: int) -> Values:
    """Words of global memory; inside the window of another space the card answers 717, as measured."""
    try:
        return cluster.memory.load(sources, word, count)
    except KernelFaultError as fault:
        address = fault.address
        if address is not None and any(is_in_window(space, address) for space in WINDOWS):
            fault.code = INVALID_ADDRESS_SPACE
        if fault.lane is not None:
            fault.lane = int(lanes[fault.lane])
        raise


def _arrive_after_copies(assembler: Assembler, instruction: Instruction, words: Words) -> Step:
    """cp.async.mbarrier.arrive: an arrival when all copies that the thread has issued are done.

    Without .noinc the barrier expects one more arrival in this phase, so that mbarrier.init need not count this one.
    """
    words.required(("arrive",), "arrive")
    is_counted_by_init = words.flag("noinc")
    space = words.space()
    words.flag("b64")
    words.done()
    addresses_of = decode_shared_address(assembler, instruction.operands[0], space)

    def issue(cluster: Cluster, at: Lanes) -> None:
        addresses = addresses_of(cluster, at)
        lanes = cluster.lanes(at).copy()
        groups = group_by_barrier(lanes, addresses)
        cluster.launch.charge(len(groups))
        for group in groups:
            if not is_counted_by_init:
                _expect_more(cluster, group.address, int(group.lanes[0]), len(group.lanes))
            _add_arrival(cluster, group.address, group.lanes, is_counted=is_counted_by_init)

    return issue


def _expect_more(cluster: Cluster, address: int, lane: int, arrivals: int) -> None:
    state = barrier_at(cluster, address, lane)
    try:
        cluster.mbarriers[address] = Mbarrier(
            state.count, phase=state.phase, pending=state.pending + arrivals, tx_bytes=state.tx_bytes
        )
    except RuleError as error:
        raise fault_of(error, lane, address, LAUNCH_FAILURE) from None
    cluster.version += 1


def _add_arrival(cluster: Cluster, address: int, lanes: LaneNumbers, *, is_counted: bool) -> None:
    """Issue the arrivals of lanes. Each full count completes a phase, and the lanes beyond it arrive later (measured on an H200)."""
    pc = cluster.pc
    pending = cluster.pending
    barrier_at(cluster, address, int(lanes[0]))
    issue = CpAsyncArriveIssued(pc, lanes, address, is_counted)
    cluster.emit(issue)
    copies = [work for work in pending.works if work.kind == "cp.async" and np.isin(work.lanes, lanes).any()]

    def perform(some: LaneNumbers) -> None:
        arrivals = max(1, min(len(some), barrier_at(cluster, address, int(some[0])).pending))
        arriving, later = some[:arrivals], some[arrivals:]
        for work in copies:
            _finish_for(pending, work, arriving)
        cluster.pc = pc
        cluster.emit(CpAsyncArrived(pc, issue, arriving))
        change(cluster, address, int(some[0]), lambda state: state.arrive(arrivals))
        if len(later):
            pending.add(Work("arrival", pc, later, perform, barrier=address))

    pending.add(Work("arrival", pc, lanes, perform, barrier=address))


def _finish_for(pending: Pending, work: Work, lanes: LaneNumbers) -> None:
    """Do the remaining part of some pending work for some lanes."""
    if work in pending.works:
        due = work.lanes[np.isin(work.lanes, lanes)]
        if len(due):
            pending.finish(work, due)


FAMILIES: dict[str, Decoder] = {"cp": _cp}
