"""tcgen05: tensor memory and the tensor core that works on it (Blackwell), known from documentation.

    alloc, dealloc, relinquish_alloc_permit     columns of tensor memory, by one warp
    ld, st, wait::ld, wait::st                  tmem_moves.py
    cp, shift                                   tmem_copies.py
    mma                                         tensor_products.py
    commit                                      an arrival at an mbarrier after all of these that the thread has issued
    fence::before_thread_sync, after_…          order accesses, and change no value

Products and copies of a block, or of a pair of blocks, are done in the order in which they were issued, as late as a commit allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.execution.collective import Collective, announce_missing_threads, gather_warps
from tilescope.machine.execution.fault import fault_of
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.tmem_state import pair_ranks, split_address
from tilescope.machine.instructions.barrier_unit import BARRIER_BYTES, barrier_at, change
from tilescope.machine.instructions.copy_engine import cast_to
from tilescope.machine.instructions.load_store import AddressOf, decode_address, space_of
from tilescope.machine.instructions.mbarrier_instructions import decode_shared_address
from tilescope.machine.instructions.modifiers import Words, require_target
from tilescope.machine.instructions.tensor_core.tensor_products import decode_product
from tilescope.machine.instructions.tensor_core.tmem_copies import decode_copy, decode_shift
from tilescope.machine.instructions.tensor_core.tmem_moves import decode_move, decode_wait
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.ptx.syntax import Instruction, Operand
from tilescope.sync.address import WINDOW_BYTES, Space
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import TmemAlloc, TmemCommit, TmemCommitArrived, TmemDealloc, TmemFence

_GROUPS = {"cta_group::1": 1, "cta_group::2": 2}
_WORD = np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class AllocTurn:
    """tcgen05.alloc: a warp waits until enough columns are free, and writes their address to shared memory."""

    target: AddressOf
    columns: int  # the register
    cta_group: int

    def take(self, schedule: Schedule, front: Front) -> None:
        """Allocate for the warps whose columns are free; the others look again when something changes."""
        if not gather_warps(schedule, front):
            return
        if schedule.cluster.has_exits:
            announce_missing_threads(schedule.cluster, front)
        self._allocate_columns(schedule, front)

    def take_without_rest(self, schedule: Schedule, front: Front) -> None:
        """Allocate for a part of a warp."""
        announce_missing_threads(schedule.cluster, front)
        self._allocate_columns(schedule, front)

    def _allocate_columns(self, schedule: Schedule, front: Front) -> None:
        cluster = schedule.cluster
        pc = front.pc
        warps = front.lanes // WARP_LANES
        waiting = [
            front.lanes[warps == warp]
            for warp in np.unique(warps).tolist()
            if not self._allocate(cluster, front.lanes[warps == warp])
        ]
        served = front.lanes if not waiting else front.lanes[~np.isin(front.lanes, np.concatenate(waiting))]
        for lanes in waiting:
            schedule.spin(Front(pc, lanes, front.rounds, front.steps), reads_clock=False)
        if len(served):
            front.lanes = served
            schedule.go_on(front, pc + 1)

    def _allocate(self, cluster: Cluster, lanes: LaneNumbers) -> bool:
        """Columns for one warp; False while there are none."""
        lane = int(lanes[0])
        rank = int(cluster.block_of_lane[lane])
        memory = cluster.tensor_memory
        before = memory.books[rank]
        try:
            first = memory.allocate(rank, int(cluster.registers[self.columns][lane]))
        except RuleError as error:
            raise fault_of(error, lane) from None
        if first is None:
            return False
        at = np.array([lane])
        target = self.target(cluster, at)
        cluster.store("shared", at, target, np.array([first], _WORD))
        cluster.version += 1
        peer = rank ^ 1 if self.cta_group > 1 and rank ^ 1 < cluster.blocks else None
        cluster.emit(TmemAlloc(cluster.pc, lanes, int(target[0]), before, memory.books[rank], peer))
        return True


def _decode_narrow_address(assembler: Assembler, operand: Operand, space: Space) -> AddressOf:
    """A function that gives shared addresses, of whichever form: the instruction takes the lower 32 bits of its register.

    ThunderKittens passes a generic address to tcgen05.alloc…shared::cta, and a shared one to tcgen05.commit without .shared.
    """
    if space_of(assembler, operand, space) not in ("shared", "generic"):
        return decode_shared_address(assembler, operand, space)  # which refuses it
    addresses = decode_address(assembler, operand)
    return lambda cluster, at: addresses(cluster, at) & (WINDOW_BYTES - 1)


def _alloc(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Turn:
    _take_sync(words)
    space = words.space()
    words.flag("b32")
    words.done()
    target, columns = instruction.operands
    addresses_of = _decode_narrow_address(assembler, target, space)
    return AllocTurn(addresses_of, assembler.source(columns, "u32"), cta_group)


def _dealloc(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Turn:
    """tcgen05.dealloc taddr, nCols; without such an allocation, nothing is freed, and a finding is reported."""
    _take_sync(words)
    words.flag("b32")
    words.done()
    address = assembler.source(instruction.operands[0], "u32")
    columns = assembler.source(instruction.operands[1], "u32")

    def free(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        for lane in lanes[np.unique(lanes // WARP_LANES, return_index=True)[1]].tolist():
            _free(cluster, lane, int(cluster.registers[address][lane]), int(cluster.registers[columns][lane]))

    return Collective(free)


def _free(cluster: Cluster, lane: int, word: int, columns: int) -> None:
    rank = int(cluster.block_of_lane[lane])
    memory = cluster.tensor_memory
    try:
        memory.books[rank] = memory.books[rank].dealloc(word, columns)
        cluster.version += 1  # a warp may wait for these columns
    except RuleError:
        cluster.emit(TmemDealloc(cluster.pc, lane, rank, split_address(word)[1], columns, is_allocated=False))
        return
    cluster.emit(TmemDealloc(cluster.pc, lane, rank, split_address(word)[1], columns, is_allocated=True))


def _relinquish(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Turn:
    _take_sync(words)
    words.done()

    def relinquish(cluster: Cluster, at: Lanes) -> None:
        books = cluster.tensor_memory.books
        for rank in np.unique(cluster.block_of_lane[at]).tolist():
            books[rank] = replace(books[rank], may_allocate=False)

    return Collective(relinquish)


def _take_sync(words: Words) -> None:
    words.flag("sync")
    words.flag("aligned")


def _commit(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Step:
    """tcgen05.commit…{.shared::cluster}{.multicast::cluster}.b64 [mbar]{, ctaMask}."""
    words.required(("mbarrier::arrive::one",), "mbarrier::arrive::one")
    has_mask = words.flag("multicast::cluster")
    space = words.space()
    words.flag("b64")
    words.done()
    addresses_of = _decode_narrow_address(assembler, instruction.operands[0], space)
    mask = assembler.source(instruction.operands[1], "u16") if has_mask else None

    def issue(cluster: Cluster, at: Lanes) -> None:
        addresses = addresses_of(cluster, at)
        cluster.launch.charge(len(addresses))
        for lane, address in zip(cluster.lanes(at).tolist(), addresses.tolist(), strict=True):
            targets = [address]
            if mask is not None:
                targets = cast_to(cluster, lane, address, int(cluster.registers[mask][lane]))
            commit = TmemCommit(cluster.pc, lane, tuple(targets))
            cluster.emit(commit)
            for target in targets:
                _add_arrival(cluster, commit, target, cta_group)

    return issue


def _add_arrival(cluster: Cluster, commit: TmemCommit, address: int, cta_group: int) -> None:
    """An arrival when all that was issued before it for these blocks is done."""
    pc = cluster.pc
    lane = commit.lane
    pending = cluster.pending
    cluster.require_shared(np.array([lane]), np.array([address]), BARRIER_BYTES)
    barrier_at(cluster, address, lane)
    ranks = pair_ranks(int(cluster.block_of_lane[lane]), cta_group, cluster.blocks, lane)
    before = [
        work for work in pending.works if work.kind == "tcgen05" and int(cluster.block_of_lane[work.lanes[0]]) in ranks
    ]

    def perform(lanes: LaneNumbers) -> None:
        for work in before:
            if work in pending.works:
                pending.finish(work)
        cluster.pc = pc
        cluster.emit(TmemCommitArrived(pc, commit, address))
        change(cluster, address, lane, lambda state: state.arrive(1))

    pending.add(Work("arrival", pc, np.array([lane]), perform, barrier=address))


def _fence(*, is_before: bool) -> Step:
    def fence(cluster: Cluster, at: Lanes) -> None:
        cluster.emit(TmemFence(cluster.pc, cluster.lanes(at), is_before))

    return fence


Grouped = Callable[[Assembler, Instruction, Words, int], Step | Turn]
_GROUPED: dict[str, Grouped] = {
    "alloc": _alloc,
    "dealloc": _dealloc,
    "relinquish_alloc_permit": _relinquish,
    "cp": decode_copy,
    "shift": decode_shift,
    "mma": decode_product,
    "commit": _commit,
}
_ACTIONS = (
    *_GROUPED,
    "ld",
    "st",
    "wait::ld",
    "wait::st",
    "fence::before_thread_sync",
    "fence::after_thread_sync",
)


def _tcgen05(assembler: Assembler, instruction: Instruction) -> Step | Turn:
    require_target(assembler.module, BLACKWELL, "tcgen05")
    words = Words(instruction)
    action = words.required(_ACTIONS, f"known action: {', '.join(_ACTIONS)}")
    if action in ("ld", "st"):
        return decode_move(assembler, instruction)
    if action == "wait::ld":
        return decode_wait("tcgen05.ld", words)
    if action == "wait::st":
        return decode_wait("tcgen05.st", words)
    if action.startswith("fence::"):
        words.done()
        return _fence(is_before=action == "fence::before_thread_sync")
    cta_group = _GROUPS[words.required(_GROUPS, ".cta_group::1 or .cta_group::2")]
    groups = assembler.program.cta_groups
    groups.add(cta_group)
    if len(groups) > 1:
        raise RefusedError("all tcgen05 instructions of a kernel have the same cta_group, and this one has another")
    return _GROUPED[action](assembler, instruction, words, cta_group)


FAMILIES: dict[str, Decoder] = {"tcgen05": _tcgen05}
