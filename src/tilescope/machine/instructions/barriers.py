"""Barriers of threads: bar and barrier, barrier.cluster, bar.warp.sync, and the fences, which order but change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster, Front
from tilescope.machine.decoding.access_decoder import scope_of
from tilescope.machine.execution.block_barrier import Votes, Waiting
from tilescope.machine.execution.collective import Collective, announce_missing_threads, gather_warps
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.instructions.load_store import decode_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.schedule import Schedule
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Immediate, Instruction, Operand
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import (
    BarrierArrive,
    ClusterArrive,
    ClusterWait,
    MbarrierInitFence,
    MemoryFence,
    ProxyFence,
    TensormapAcquire,
    TensormapRelease,
    WarpSync,
)
from tilescope.sync.thread_limits import BARS

_THREADS_END = 1 << 12  # the card looks at the lower 12 bits of a number of threads
_MOST_THREADS = 1536  # waits forever, as no block has them; 1664 and more are an illegal instruction
_ARRIVE_OPERANDS = 2  # the barrier and its threads
_REDUCE_OPERANDS = 3  # a result, the barrier and a predicate; the threads may come before the predicate


@dataclass(frozen=True, slots=True)
class BlockBarrierTurn:
    """bar.sync, bar.arrive and bar.red: registers with the barrier's number and the threads that it waits for.

    Measured on an H200: the number counts modulo 16, the threads modulo 4096. Threads that are not whole warps are an illegal
    instruction, and so are 0 threads of bar.arrive; 0 threads of bar.sync are all threads of the block.
    """

    action: str  # sync, arrive or red
    number: int
    threads: int | None
    target: int | None = None
    predicate: tuple[int, bool] | None = None
    reduction: str = ""  # popc, and, or
    is_aligned: bool = True  # False: barrier without .aligned, which parts of a warp may execute

    def take(self, schedule: Schedule, front: Front) -> None:
        """Count the lanes of each block, and park them unless they complete the barrier; an .aligned one waits for whole warps."""
        cluster = schedule.cluster
        if self.is_aligned and len(front.lanes) < cluster.lane_count:  # else all threads have come together
            if not gather_warps(schedule, front):
                return
            if cluster.has_exits:
                announce_missing_threads(cluster, front)
        self._arrive_in_blocks(schedule, front)

    def take_without_rest(self, schedule: Schedule, front: Front) -> None:
        """Count warps of which only some lanes come."""
        announce_missing_threads(schedule.cluster, front)
        self._arrive_in_blocks(schedule, front)

    def _arrive_in_blocks(self, schedule: Schedule, front: Front) -> None:
        if schedule.meet_in_lockstep(front):
            return
        cluster = schedule.cluster
        numbers = cluster.registers[self.number][front.lanes].astype(np.int64) % BARS
        ranks = cluster.block_of_lane[front.lanes]
        if (ranks == ranks[0]).all() and (numbers == numbers[0]).all():  # as nearly always
            self._arrive_together(schedule, int(ranks[0]), int(numbers[0]), front, front.lanes)
            return
        for rank in np.unique(ranks).tolist():
            for number in np.unique(numbers[ranks == rank]).tolist():
                lanes = front.lanes[(ranks == rank) & (numbers == number)]
                self._arrive_together(schedule, rank, number, front, lanes)

    def _arrive_together(self, schedule: Schedule, rank: int, number: int, front: Front, lanes: LaneNumbers) -> None:
        """Lanes of a front arrive at one barrier of their block."""
        for warps in self._split_arrivals(schedule.cluster, lanes):
            self._arrive(schedule, rank, number, Front(front.pc, warps, front.rounds, front.steps))

    def _split_arrivals(self, cluster: Cluster, lanes: LaneNumbers) -> list[LaneNumbers]:
        """All lanes at once, or warp by warp if the barrier ends before all of them have come."""
        expected = self._expected_threads(cluster, lanes)
        if expected is None or len(lanes) <= expected:
            return [lanes]
        warps = lanes // WARP_LANES
        return np.split(lanes, np.flatnonzero(np.diff(warps)) + 1)

    def _expected_threads(self, cluster: Cluster, lanes: LaneNumbers) -> int | None:
        """The threads that the barrier waits for, as the first lane names them; None: all of the block."""
        if self.threads is None:
            return None
        named = int(cluster.registers[self.threads][lanes[0]])
        threads = named % _THREADS_END
        is_none = not threads and self.action == "arrive"
        if threads % WARP_LANES or threads > _MOST_THREADS or is_none:
            reason = f"bar.{self.action} for {named} threads: whole warps of a block take part in a barrier"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, int(lanes[0]))
        return threads or None

    def _arrive(self, schedule: Schedule, rank: int, number: int, front: Front) -> None:
        cluster = schedule.cluster
        lanes = front.lanes
        expected = self._expected_threads(cluster, lanes)
        waits = self.action != "arrive"
        threads = len(lanes) if expected is None else expected
        cluster.emit(BarrierArrive(front.pc, lanes, rank, number, threads, waits))
        barrier = schedule.barriers.arrive(rank, number, lanes, expected, is_aligned=self.is_aligned)
        if not waits:
            schedule.add(Front(front.pc + 1, lanes, front.rounds, front.steps))
        else:
            barrier.waiting.append(self._make_waiting(cluster, front))
        schedule.release(schedule.barriers.complete(rank, number))

    def _make_waiting(self, cluster: Cluster, front: Front) -> Waiting:
        lanes = front.lanes
        if self.predicate is None:
            return Waiting(front.pc + 1, lanes)
        register, is_negated = self.predicate
        votes = cluster.registers[register][lanes].astype(np.bool_) ^ is_negated

        def write_result(everyone: Votes) -> None:
            self._write_result(cluster, lanes, everyone)

        return Waiting(front.pc + 1, lanes, votes, write_result)

    def _write_result(self, cluster: Cluster, lanes: LaneNumbers, votes: Votes) -> None:
        results = {"popc": votes.sum(), "and": votes.all(), "or": votes.any()}
        assert self.target is not None
        cluster.registers[self.target][lanes] = results[self.reduction]


@dataclass(frozen=True, slots=True)
class _ClusterTurn:
    """barrier.cluster.arrive and .wait: with .aligned they wait for whole warps."""

    is_aligned: bool

    def take(self, schedule: Schedule, front: Front) -> None:
        """Execute it, with .aligned by whole warps."""
        if self.is_aligned:
            if not gather_warps(schedule, front):
                return
            if schedule.cluster.has_exits:
                announce_missing_threads(schedule.cluster, front)
        self._execute(schedule, front)

    def take_without_rest(self, schedule: Schedule, front: Front) -> None:
        """Execute it by the lanes that are here."""
        announce_missing_threads(schedule.cluster, front)
        self._execute(schedule, front)

    def _execute(self, schedule: Schedule, front: Front) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ClusterWaitTurn(_ClusterTurn):
    """barrier.cluster.wait: parks until every thread of the cluster has arrived."""

    def _execute(self, schedule: Schedule, front: Front) -> None:
        """Continue, or wait for the rest of the cluster."""
        schedule.cluster.emit(ClusterWait(front.pc, front.lanes))
        if schedule.barriers.has_passed_cluster(front.lanes):
            schedule.barriers.pass_cluster(front.lanes)
            schedule.go_on(front, front.pc + 1)
            return
        schedule.barriers.cluster_waiting.append(Waiting(front.pc + 1, front.lanes))


@dataclass(frozen=True, slots=True)
class ClusterArriveTurn(_ClusterTurn):
    """barrier.cluster.arrive: counts the threads, which continue."""

    is_relaxed: bool

    def _execute(self, schedule: Schedule, front: Front) -> None:
        """Arrive, and release the threads for which that was the last arrival."""
        barriers = schedule.barriers
        schedule.cluster.emit(ClusterArrive(front.pc, front.lanes, barriers.cluster_phase, self.is_relaxed))
        barriers.cluster_arrive(front.lanes)
        schedule.release(schedule.barriers.complete_cluster())
        schedule.go_on(front, front.pc + 1)


def _bar(assembler: Assembler, instruction: Instruction) -> Turn:
    """bar.sync a{, b}; bar.arrive a, b; bar.red.popc d, a{, b}, p; bar.warp.sync mask."""
    words = Words(instruction)
    if words.flag("warp"):
        words.flag("sync")
        words.done()
        return Collective(_sync_warps, assembler.source(instruction.operands[0], "u32"), meets_elsewhere=True)
    words.flag("cta")
    is_aligned = words.flag("aligned") or instruction.name == "bar"
    action = words.required(("sync", "arrive", "red"), "sync, arrive or red")
    if action == "red":
        return _bar_red(assembler, instruction, words, is_aligned=is_aligned)
    words.done()
    operands = instruction.operands
    if action == "arrive" and len(operands) < _ARRIVE_OPERANDS:
        raise RefusedError("bar.arrive needs the number of threads that take part in the barrier")
    _require_bar(operands[0], operands[1] if len(operands) > 1 else None)
    number = assembler.source(operands[0], "u32")
    threads = assembler.source(operands[1], "u32") if len(operands) > 1 else None
    return BlockBarrierTurn(action, number, threads, is_aligned=is_aligned)


def _require_bar(number: Operand, threads: Operand | None) -> None:
    """Refuse constants that ptxas refuses: a block has 16 barriers, for whole warps."""
    if isinstance(number, Immediate) and not 0 <= number.value < BARS:
        raise RefusedError(f"a block has barriers 0 to {BARS - 1}, not {number.value}")
    if isinstance(threads, Immediate) and threads.value % WARP_LANES:
        raise RefusedError(f"the threads of a barrier are a multiple of {WARP_LANES}, not {threads.value}")


def _bar_red(assembler: Assembler, instruction: Instruction, words: Words, *, is_aligned: bool) -> Turn:
    reduction = words.required(("popc", "and", "or"), "reduction")
    words.one_of(("u32", "pred"))
    words.done()
    operands = instruction.operands
    if not _REDUCE_OPERANDS <= len(operands) <= _REDUCE_OPERANDS + 1:
        raise RefusedError("bar.red takes a result, a barrier, perhaps its threads, and a predicate")
    has_threads = len(operands) > _REDUCE_OPERANDS
    _require_bar(operands[1], operands[2] if has_threads else None)
    target = assembler.written(operands[0])
    number = assembler.source(operands[1], "u32")
    threads = assembler.source(operands[2], "u32") if has_threads else None
    predicate = assembler.predicate(operands[-1])
    return BlockBarrierTurn("red", number, threads, target, predicate, reduction, is_aligned=is_aligned)


def _barrier(assembler: Assembler, instruction: Instruction) -> Turn:
    """barrier.sync, .arrive, .red as bar; barrier.cluster.arrive and .wait."""
    words = Words(instruction)
    if not words.flag("cluster"):
        return _bar(assembler, instruction)
    action = words.required(("arrive", "wait"), "arrive or wait")
    words.without_effect()
    is_aligned = words.flag("aligned")
    words.done()
    if action == "arrive":
        return ClusterArriveTurn(is_aligned, "relaxed" in instruction.modifiers)
    return ClusterWaitTurn(is_aligned)


def _sync_warps(cluster: Cluster, at: Lanes) -> None:
    """bar.warp.sync orders memory accesses, and changes no value."""
    cluster.emit(WarpSync(cluster.pc, cluster.lanes(at)))


_FENCES = (
    "acq_rel",
    "sc",
    "acquire",
    "release",
    "proxy",
    "alias",
    "async",
    "async::generic",
    "async.global",
    "generic",
    "mbarrier_init",
    "tensormap::generic",
    "sync_restrict::shared::cta",
    "sync_restrict::shared::cluster",
    "global",
    "shared::cta",
    "shared::cluster",
    "gl",
)


def _fence(assembler: Assembler, instruction: Instruction) -> Step:
    """Fence and membar change no value here, since instructions run one after another; they order accesses."""
    words = Words(instruction)
    words.without_effect()
    while words.one_of(_FENCES) is not None:
        pass
    words.done()
    modifiers = instruction.modifiers
    if "tensormap::generic" in modifiers:
        return _fence_of_maps(assembler, instruction)
    if "mbarrier_init" in modifiers:
        return _fence_of_init
    if any(word.startswith("async") for word in modifiers):
        return _fence_of_proxies(modifiers)
    if "proxy" in modifiers:
        return _no_fence
    return _fence_of_memory(scope_of(instruction))


def _no_fence(cluster: Cluster, at: Lanes) -> None:
    """fence.proxy.alias: nothing here has two addresses."""


def _fence_of_memory(scope: int) -> Step:
    def fence(cluster: Cluster, at: Lanes) -> None:
        cluster.emit(MemoryFence(cluster.pc, cluster.lanes(at), scope))

    return fence


def _fence_of_proxies(modifiers: Sequence[str]) -> Step:
    """fence.proxy.async, in shared or in global memory, or in both."""
    names_global = "global" in modifiers
    names_shared = not names_global and ("shared::cta" in modifiers or "shared::cluster" in modifiers)

    def fence(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        cluster.emit(ProxyFence(cluster.pc, lanes, is_for_shared=not names_global, is_for_global=not names_shared))

    return fence


def _fence_of_init(cluster: Cluster, at: Lanes) -> None:
    cluster.emit(MbarrierInitFence(cluster.pc, cluster.lanes(at)))


def _fence_of_maps(assembler: Assembler, instruction: Instruction) -> Step:
    """fence.proxy.tensormap::generic.release, or .acquire [map], 128."""
    if "acquire" not in instruction.modifiers:

        def release(cluster: Cluster, at: Lanes) -> None:
            cluster.emit(TensormapRelease(cluster.pc, cluster.lanes(at)))

        return release
    addresses = decode_address(assembler, instruction.operands[0])

    def acquire(cluster: Cluster, at: Lanes) -> None:
        cluster.emit(TensormapAcquire(cluster.pc, cluster.lanes(at), addresses(cluster, at)))

    return acquire


FAMILIES: dict[str, Decoder] = {"bar": _bar, "barrier": _barrier, "fence": _fence, "membar": _fence}
