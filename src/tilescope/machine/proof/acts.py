"""The rows of a log as what every warp did, one act after another.

What a warp reads and writes itself between two acts that others could notice is one read and one write, of all these bytes: nobody
can tell their order. Copies of cp.async, and the instructions of one wgmma product, are put together likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.machine.instructions.tensor_core.wgmma import WARPGROUP_WARPS, SmemRead, operand_bytes
from tilescope.machine.proof.pieces import LARGEST_CELL_BYTES, CellNumbers, CellSets, tensor_cells
from tilescope.machine.proof.recorder import Access, BlockSync, ClusterSync, Fence, Recorder, Row, Wait
from tilescope.mma.tmem_address import TMEM_COLUMNS, TMEM_LANES
from tilescope.pipeline.operations import Written
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT, Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.events import (
    CopyIssued,
    CpAsyncArriveIssued,
    GroupCommit,
    GroupWait,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    MemoryFence,
    TmemCommit,
    TmemDealloc,
    TmemMove,
    TmemWait,
    TmemWork,
    WarpSync,
    WgmmaIssued,
)
from tilescope.sync.mbarrier import MBARRIER_BYTES
from tilescope.tma.walk import placement

_GENERIC = ("read", "write", "agreed", "atomic")
_TELLING = ("arrive", "expect", "cp_arrive", "commit", "sync", "bar_arrive", "cluster")


class Act(NamedTuple):
    """One thing that a warp did: a step of a pipeline, but for the names of its barrier and of its slots."""

    op: str  # that of a step, or "atomic", or "agreed": a write of what other warps write there too
    pc: int
    order: int  # among all acts
    target: Written = ""
    arguments: tuple[tuple[str, Written], ...] = ()
    cells: int | None = None  # a set of cells
    into: int | None = None  # the set that a tensor core writes
    barrier: int | None = None  # a number in `Acts.barriers`
    mask: int | None = None  # of blocks; None: the warp's own
    size_bytes: int = 0  # of a copy
    warps: tuple[int, ...] = ()  # that agree, in their block
    unseen: frozenset[int] = (
        frozenset()
    )  # barriers for which other lanes of the warp have waited, and not those that act

    @property
    def kind(self) -> tuple[object, ...]:
        """What it has in common with the same act of another warp."""
        return self.op, self.target, self.arguments, self.barrier, self.mask


class BarrierUse(NamedTuple):
    """An mbarrier from its init to its end: where it lies in its block, which one of those that lay there, the arrivals it counts."""

    offset: int
    number: int
    arrivals: int


class _Touch(NamedTuple):
    how: str
    cells: int
    warps: tuple[int, ...] = ()
    unseen: frozenset[int] = frozenset()
    into: int | None = None
    mask: int | None = None


@dataclass(slots=True)
class _AtCluster:
    """A phase of the cluster's barrier at which lanes of a warp have arrived: the acts so far, and these lanes."""

    phase: int
    acts: list[Act]
    lanes: set[int]
    has_wait: bool = False


@dataclass(slots=True)
class _Open:
    """Accesses of a warp that are put together."""

    pc: int = 0
    order: int = 0
    touches: list[_Touch] = field(default_factory=list)

    @property
    def family(self) -> str:
        how = self.touches[0].how
        return "generic" if how in _GENERIC else how


class CannotSayError(Exception):
    """What was done has no step in a pipeline: a reason, and the instruction."""

    def __init__(self, reason: str, pc: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pc = pc


class Acts:
    """What the warps of a cluster did; warps are numbered through all blocks."""

    def __init__(self, log: Recorder) -> None:
        self.log = log
        self.block_warps = log.block_lanes // WARP_LANES
        self.sets = CellSets()
        self.barriers: list[BarrierUse] = []
        self.of_warp: dict[int, list[Act]] = {
            warp: [] for warp in range(log.blocks * self.block_warps) if log.exists[warp * WARP_LANES]
        }
        self.has_inexact_copies = False
        self._order = 0
        self._open: dict[int, _Open] = defaultdict(_Open)
        self._barrier_at: dict[int, int] = {}  # shared address → number in `barriers`
        self._uses: dict[int, int] = defaultdict(int)  # shared address → inits so far
        self._number_of_use: dict[tuple[int, int], int] = {}
        self._waited: dict[tuple[int, int, int], set[int]] = {}  # warp, barrier and phase: lanes that have waited
        self._met: dict[tuple[int, int], int] = {}
        # lanes of a warp that have not waited for the phase of a barrier that others of it waited for, by warp and barrier
        self._left_out: dict[int, dict[int, set[int]]] = defaultdict(dict)
        self._at_cluster: dict[int, _AtCluster] = {}  # by warp: the last phase at which it arrived
        self._is_fenced: dict[int, bool] = {}  # by warp: a memory fence covers what it accessed
        self._former_barrier: dict[int, int] = {}  # shared address → the last one that was invalidated there
        self._inits_to_come = _inits_by_address(log.rows)
        self._shared_with_data = _mbarriers_over_data(log.rows, self._inits_to_come)
        self._split: dict[tuple[int, int, int, bool], list[tuple[int, _Touch]]] = {}
        self._products: dict[tuple[object, int], int] = {}
        self._moving: dict[tuple[int, bool], list[TmemMove]] = defaultdict(list)  # by warp and direction
        self._issuers = _issuers(log.rows)
        _divide_cells(self.sets, log.rows)
        if self._shared_with_data:
            self.sets.divide_by(np.array(sorted(self._shared_with_data)), MBARRIER_BYTES)
        self._add_all()

    def _add_all(self) -> None:
        copies: list[CopyIssued] = []
        for row in self.log.rows:
            if copies and not _is_same_multicast(copies, row):
                self._add_copies(copies)
                copies = []
            self._order += 1
            if isinstance(row, CopyIssued):
                copies.append(row)
            else:
                _ADDING[type(row)](self, row)
        if copies:
            self._add_copies(copies)
        for warp in self.of_warp:
            self._close(warp)

    def _warps(self, lanes: LaneNumbers) -> list[int]:
        if len(lanes) == len(self.log.exists):
            return list(self.of_warp)
        warps: list[int] = np.unique(lanes // WARP_LANES).tolist()
        return warps

    def _rank(self, warp: int) -> int:
        return warp // self.block_warps

    def _do(self, warp: int, act: Act) -> None:
        """Add an act of a warp, behind what it touched before."""
        self._require_moved(warp, act)
        self._close(warp)
        self.of_warp[warp].append(act._replace(order=self._order))

    def _add_access(self, row: Access) -> None:
        key = (id(row.lanes), id(row.addresses), row.size_bytes, row.how == "agreed")
        found = self._split.get(key)
        if found is None:
            found = self._by_warp(row)
            if row.how == "agreed":
                found = self._split_agreed(found)
            self._split[key] = found
        if self._shared_with_data and row.how != "read":
            self._end_barriers_under(int(row.lanes[0]) // WARP_LANES, row.pc, row.addresses, row.size_bytes)
        for warp, touch in found:
            how = "write" if len(touch.warps) == 1 else row.how
            self._touch(warp, row.pc, touch._replace(how=how, unseen=self._unseen_barriers(warp, row.lanes)))

    def _unseen_barriers(self, warp: int, lanes: LaneNumbers) -> frozenset[int]:
        """Barriers for which some of these lanes have not waited, while others of their warp have."""
        left_out = self._left_out.get(warp)
        if not left_out:
            return frozenset()
        acting = set(lanes.tolist())
        return frozenset(barrier for barrier, lanes_left in left_out.items() if lanes_left & acting)

    def _by_warp(self, row: Access) -> list[tuple[int, _Touch]]:
        """The cells that each warp reached."""
        lanes = row.lanes
        warps = lanes // WARP_LANES
        ranks = row.addresses >> SHARED_RANK_SHIFT
        if (ranks != warps // self.block_warps).any():
            raise CannotSayError("an access to the shared memory of another block by its address", row.pc)
        offsets = row.addresses & SHARED_OFFSET_MASK
        return [
            (warp, _Touch(row.how, self.sets.of(offsets[warps == warp], row.size_bytes)))
            for warp in np.unique(warps).tolist()
        ]

    def _split_agreed(self, found: list[tuple[int, _Touch]]) -> list[tuple[int, _Touch]]:
        """The cells of each warp apart, by the warps of its block that write them too."""
        writers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for warp, touch in found:
            for cell in self.sets.sets[touch.cells].tolist():
                writers[self._rank(warp), cell].append(warp)
        by_writers: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for (_, cell), writing in writers.items():
            by_writers[tuple(writing)].append(cell)
        apart = []
        for warps, cells in by_writers.items():
            in_block = tuple(warp % self.block_warps for warp in warps)
            number = self.sets.number(np.array(sorted(cells), np.int64))
            apart += [(warp, _Touch("agreed", number, in_block)) for warp in warps]
        return apart

    def _touch(self, warp: int, pc: int, touch: _Touch) -> None:
        self._is_fenced.pop(warp, None)
        held = self._open[warp]
        family = "generic" if touch.how in _GENERIC else touch.how
        if held.touches and held.family != family:
            self._close(warp)
            held = self._open[warp]
        if not held.touches:
            held.pc = pc
            held.order = self._order
        held.touches.append(touch)

    def _close(self, warp: int) -> None:
        """Put together what a warp touched since its last act."""
        held = self._open.pop(warp, None)
        if held is None or not held.touches:
            return
        acts = self.of_warp[warp]
        if held.family == "multiply":
            acts.append(Act("multiply", held.pc, held.order, cells=self._all_of(held, "multiply")))
            return
        if held.family == "tcgen05":
            acts.append(
                Act(
                    "multiply",
                    held.pc,
                    held.order,
                    arguments=(("unit", "tcgen05"),),
                    cells=self._all_of(held, "tcgen05"),
                    into=self.sets.union(frozenset(touch.into for touch in held.touches if touch.into is not None)),
                    mask=held.touches[0].mask,
                )
            )
            return
        if held.family == "cp.async":
            cells = self._all_of(held, "cp.async")
            acts.append(Act("copy", held.pc, held.order, cells=cells, arguments=(("by", "cp.async"),)))
            return
        read_first = self._read_first(held.touches)
        if read_first is not None:
            unseen = frozenset(barrier for touch in held.touches for barrier in touch.unseen)
            acts.append(Act("read", held.pc, held.order, cells=read_first, unseen=unseen))
        for how in ("write", "atomic"):
            cells = self._all_of(held, how)
            if cells is not None:
                acts.append(Act(how, held.pc, held.order, cells=cells))
        for warps in dict.fromkeys(touch.warps for touch in held.touches if touch.how == "agreed"):
            numbers = frozenset(touch.cells for touch in held.touches if touch.warps == warps and touch.how == "agreed")
            acts.append(Act("agreed", held.pc, held.order, cells=self.sets.union(numbers), warps=warps))

    def _all_of(self, held: _Open, how: str) -> int | None:
        numbers = frozenset(touch.cells for touch in held.touches if touch.how == how)
        return self.sets.union(numbers) if numbers else None

    def _read_first(self, touches: list[_Touch]) -> int | None:
        """What is read, without what the warp has written itself just before."""
        written: set[int] = set()
        read: set[int] = set()
        for how, cells, *_ in touches:
            if how in ("write", "agreed"):
                written.add(cells)
            elif how == "read" and cells not in written:
                left = self.sets.without(cells, self.sets.union(frozenset(written))) if written else cells
                if left is not None:
                    read.add(left)
        return self.sets.union(frozenset(read)) if read else None

    def _add_wgmma(self, row: WgmmaIssued) -> None:
        numbers = [self._operand(operand.read, operand.descriptor) for operand in row.operands]
        cells = self.sets.union(frozenset(numbers))
        first_warp = int(row.lanes[0]) // WARP_LANES
        for warp in range(first_warp, first_warp + WARPGROUP_WARPS):
            self._touch(warp, row.pc, _Touch("multiply", cells))

    def _operand(self, read: SmemRead, descriptor: int) -> int:
        key = (read, descriptor)
        number = self._products.get(key)
        if number is None:
            chunks = np.unique(operand_bytes(read, descriptor) // CHUNK_BYTES)  # wgmma reads whole ones
            number = self.sets.of(chunks * CHUNK_BYTES, CHUNK_BYTES)
            self._products[key] = number
        return number

    def _add_tmem_work(self, row: TmemWork) -> None:
        warp = row.lane // WARP_LANES
        reads = [self._chunks_read(addresses) for addresses in row.shared]
        if len(row.read):
            reads.append(self._tensor_set(row.read))
        cells = self.sets.union(frozenset(reads))
        held = self._open.get(warp)
        if held is not None and any(
            touch.into is not None and self._overlap(touch.into, cells) for touch in held.touches
        ):
            self._close(warp)  # it reads what was written just before
        mask = None
        if len(row.ranks) > 1:
            mask = sum(1 << rank for rank in row.ranks)
        self._touch(warp, row.pc, _Touch("tcgen05", cells, into=self._tensor_set(row.written), mask=mask))

    def _chunks_read(self, addresses: CellNumbers) -> int:
        """The chunks of 16 bytes that a tensor core reads."""
        key = ("tcgen05", id(addresses))
        number = self._products.get(key)
        if number is None:
            number = self.sets.of(np.unique(addresses // CHUNK_BYTES) * CHUNK_BYTES, CHUNK_BYTES)
            self._products[key] = number
        return number

    def _tensor_set(self, places: CellNumbers) -> int:
        return self.sets.of(tensor_cells(places), LARGEST_CELL_BYTES)

    def _overlap(self, one: int, other: int) -> bool:
        return self.sets.without(one, other) != one

    def _add_tmem_move(self, row: TmemMove) -> None:
        self._moving[int(row.lanes[0]) // WARP_LANES, row.is_load].append(row)

    def _add_tmem_wait(self, row: TmemWait) -> None:
        """What a warp has loaded or stored is read or written at its wait."""
        for warp in self._warps(row.lanes):
            for moved in self._moving.pop((warp, row.is_load), []):
                how = "read" if row.is_load else "write"
                self._touch(warp, moved.pc, _Touch(how, self._tensor_set(moved.places)))

    def _require_moved(self, warp: int, act: Act) -> None:
        """Refuse loads and stores of tensor memory that are under way where a warp tells others of what it did."""
        for is_load in (True, False):
            moving = self._moving.get((warp, is_load))
            if moving and act.op in _TELLING:
                name = "ld" if is_load else "st"
                raise CannotSayError(
                    f"tcgen05.{name}, and no tcgen05.wait::{name} before the next barrier", moving[0].pc
                )

    def _add_dealloc(self, row: TmemDealloc) -> None:
        """What others use of these columns is over; documents ask for no fence here."""
        warp = row.lane // WARP_LANES
        first_cells = np.arange(TMEM_LANES)[:, None] * TMEM_COLUMNS + row.first_column
        places = (first_cells + np.arange(row.columns)).ravel()
        self._do(warp, Act("fence", row.pc, 0, target="tcgen05.after"))
        self._do(warp, Act("write", row.pc, 0, cells=self._tensor_set(places)))

    def _add_commit(self, row: TmemCommit) -> None:
        warp = row.lane // WARP_LANES
        barriers = {self._barrier(address, row.pc) for address in row.addresses}
        if len(barriers) > 1:
            raise CannotSayError("a commit at mbarriers that lie elsewhere in other blocks", row.pc)
        ranks = [address >> SHARED_RANK_SHIFT for address in row.addresses]
        mask = None
        if ranks != [self._rank(warp)]:
            mask = sum(1 << rank for rank in ranks)
        self._do(warp, Act("commit", row.pc, 0, barrier=barriers.pop(), mask=mask))

    def _add_inval(self, row: MbarrierInval) -> None:
        self._end_barrier(row.lane // WARP_LANES, row.address, row.pc)

    def _end_barrier(self, warp: int, address: int, pc: int) -> None:
        """A warp invalidates an mbarrier, or writes over it."""
        number = self._barrier_at.pop(address, None)
        if number is not None:
            self._former_barrier[address] = number
            self._do(warp, Act("inval", pc, 0, barrier=number, mask=self._mask(warp, address)))

    def _end_barriers_under(self, warp: int, pc: int, addresses: Addresses, size_bytes: int) -> None:
        """Bytes are written: the mbarriers that lie there are no more."""
        for address in list(self._barrier_at):
            if address in self._shared_with_data and bool(
                ((addresses < address + MBARRIER_BYTES) & (address < addresses + size_bytes)).any()
            ):
                self._end_barrier(warp, address, pc)

    def _add_init(self, row: MbarrierInit) -> None:
        warp = row.lane // WARP_LANES
        offset = row.address & SHARED_OFFSET_MASK
        if row.address >> SHARED_RANK_SHIFT != self._rank(warp):
            raise CannotSayError("mbarrier.init in another block", row.pc)
        number = self._barrier_at.get(row.address)
        if number is None:
            use = (offset, self._uses[row.address])
            self._uses[row.address] += 1
            number = self._number_of_use.setdefault(use, len(self.barriers))
            if number == len(self.barriers):
                self.barriers.append(BarrierUse(*use, row.arrivals))
            self._barrier_at[row.address] = number
        if row.address in self._shared_with_data:
            cells = self.sets.of(np.array([offset]), MBARRIER_BYTES)
            self._touch(warp, row.pc, _Touch("write", cells))
        if self.barriers[number].arrivals != row.arrivals:
            raise CannotSayError("an mbarrier with another count in another block, or a second time", row.pc)
        self._do(warp, Act("init", row.pc, 0, barrier=number))

    def _barrier(self, address: int, pc: int) -> int:
        number = self._barrier_at.get(address, self._former_barrier.get(address))
        if number is None and address in self._inits_to_come:  # by an init that comes too late
            use = (address & SHARED_OFFSET_MASK, 0)
            number = self._number_of_use.setdefault(use, len(self.barriers))
            if number == len(self.barriers):
                self.barriers.append(BarrierUse(*use, self._inits_to_come[address]))
        if number is None:
            raise CannotSayError("an mbarrier that was never initialised", pc)
        return number

    def _mask(self, warp: int, address: int) -> int | None:
        rank = address >> SHARED_RANK_SHIFT
        return None if rank == self._rank(warp) else 1 << rank

    def _add_expect(self, row: MbarrierExpect) -> None:
        if row.size_bytes:
            warp = int(row.lanes[0]) // WARP_LANES
            arguments: tuple[tuple[str, Written], ...] = (("bytes", row.size_bytes), ("arrive", False))
            self._do(warp, self._arrival(warp, row)._replace(op="expect", arguments=arguments))
        else:
            self._barrier(row.address, row.pc)

    def _arrival(self, warp: int, row: MbarrierArrive | MbarrierExpect) -> Act:
        barrier = self._barrier(row.address, row.pc)
        return Act("arrive", row.pc, 0, barrier=barrier, mask=self._mask(warp, row.address))

    def _add_arrive(self, row: MbarrierArrive) -> None:
        warp = int(row.lanes[0]) // WARP_LANES
        act = self._arrival(warp, row)
        if row.expected_bytes:
            is_both = row.arrivals == 1 and not row.is_drop
            arguments: list[tuple[str, Written]] = [("bytes", row.expected_bytes)]
            if not is_both:
                arguments.append(("arrive", False))
            self._do(warp, act._replace(op="expect", arguments=tuple(arguments)))
            if is_both:
                return
        if row.arrivals:
            counts: list[tuple[str, Written]] = [("count", row.arrivals)] if row.arrivals > 1 else []
            if row.is_drop:
                counts.append(("drop", True))
            self._do(warp, act._replace(arguments=tuple(counts)))

    def _add_arrive_after_copies(self, row: CpAsyncArriveIssued) -> None:
        arguments: list[tuple[str, Written]] = [("count", len(row.lanes))]
        if row.is_counted:
            arguments.append(("noinc", True))
        barrier = self._barrier(row.address, row.pc)
        warp = int(row.lanes[0]) // WARP_LANES
        self._do(warp, Act("cp_arrive", row.pc, 0, barrier=barrier, arguments=tuple(arguments)))

    def _add_wait(self, row: Wait) -> None:
        number = self._barrier(row.address, row.pc)
        for warp in self._warps(row.lanes):
            if self._mask(warp, row.address) is not None:
                raise CannotSayError("a wait for the mbarrier of another block", row.pc)
            lanes = {lane for lane in row.lanes.tolist() if lane // WARP_LANES == warp}
            waited = self._waited.setdefault((warp, number, row.phase), set())
            is_first = not waited or bool(waited & lanes)  # not: its other lanes have waited already
            self._leave_out(warp, number, row.lanes, is_first=is_first)
            if not is_first:
                waited |= lanes
                continue
            self._waited[warp, number, row.phase] = lanes
            self._do(warp, Act("wait", row.pc, 0, barrier=number, arguments=(("parity", row.parity),)))

    def _leave_out(self, warp: int, barrier: int, lanes: LaneNumbers, *, is_first: bool) -> None:
        """Note the lanes of a warp that have not waited for a phase."""
        left_out = self._left_out[warp]
        if is_first:
            first_lane = warp * WARP_LANES
            left_out[barrier] = set(range(first_lane, first_lane + WARP_LANES))
        left_out[barrier] = left_out.get(barrier, set()) - set(lanes.tolist())
        if not left_out[barrier]:
            del left_out[barrier]

    def _add_warp_sync(self, row: WarpSync) -> None:
        """Lanes that synchronize learn what any of them has waited for."""
        lanes = row.lanes
        for warp in self._warps(row.lanes):
            left_out = self._left_out.get(warp)
            if left_out:
                met = set(lanes[lanes // WARP_LANES == warp].tolist())
                for lanes_left in left_out.values():
                    if met - lanes_left:
                        lanes_left.difference_update(met)

    def _add_block_sync(self, row: BlockSync) -> None:
        threads = rounded_up(row.threads, WARP_LANES)
        for warp in self._warps(row.lanes):
            if row.waits:
                self._left_out.pop(warp, None)
            if row.waits and self._met.get((warp, row.number)) == row.completion:  # its other lanes came by another way
                continue
            self._met[warp, row.number] = row.completion
            op = "sync" if row.waits else "bar_arrive"
            self._do(warp, Act(op, row.pc, 0, target=row.number, arguments=(("threads", threads),)))

    def _add_cluster_sync(self, row: ClusterSync) -> None:
        for warp in self._warps(row.lanes):
            if row.waits:
                self._wait_for_cluster(warp, row)
            else:
                self._arrive_at_cluster(warp, row)

    def _arrive_at_cluster(self, warp: int, row: ClusterSync) -> None:
        """A warp has arrived when all its lanes have: those that come before their elected lane do not count yet."""
        lanes = {lane for lane in row.lanes.tolist() if lane // WARP_LANES == warp}
        earlier = self._at_cluster.get(warp)
        if earlier is not None and earlier.phase == row.phase:
            if earlier.lanes & lanes:
                raise CannotSayError("barrier.cluster.arrive again, without barrier.cluster.wait", row.pc)
            for act in earlier.acts:
                self.of_warp[warp].remove(act)
            lanes |= earlier.lanes
        elif earlier is not None and not earlier.has_wait:
            raise CannotSayError("barrier.cluster.arrive again, without barrier.cluster.wait", row.pc)
        is_relaxed = row.is_relaxed and not self._is_fenced.get(warp, False)
        arguments: tuple[tuple[str, Written], ...] = (("relaxed", True),) if is_relaxed else ()
        self._do(warp, Act("cluster", row.pc, 0, target="arrive", arguments=arguments))
        self._at_cluster[warp] = _AtCluster(row.phase, [self.of_warp[warp][-1]], lanes)

    def _wait_for_cluster(self, warp: int, row: ClusterSync) -> None:
        self._left_out.pop(warp, None)
        arrived = self._at_cluster.get(warp)
        if arrived is None or arrived.has_wait:  # its other lanes wait already, unless it never arrived
            if row.has_passed or arrived is not None:
                return
            self._do(warp, Act("cluster", row.pc, 0, target="wait"))
            return
        self._do(warp, Act("cluster", row.pc, 0, target="wait"))
        arrived.acts.append(self.of_warp[warp][-1])
        arrived.has_wait = True

    def _add_memory_fence(self, row: MemoryFence) -> None:
        """fence.acq_rel by a whole warp: a relaxed arrival behind it releases what the warp accessed before."""
        lanes = row.lanes // WARP_LANES
        for warp in self._warps(row.lanes):
            first_lane = warp * WARP_LANES
            expected = int(self.log.exists[first_lane : first_lane + WARP_LANES].sum())
            self._is_fenced[warp] = int((lanes == warp).sum()) == expected

    def _add_fence(self, row: Fence) -> None:
        for warp in self._warps(row.lanes):
            self._do(warp, Act("fence", row.pc, 0, target=row.kind))

    def _add_group_commit(self, row: GroupCommit) -> None:
        for warp in self._warps(row.lanes):
            if self._is_of_issuers(warp, row):
                self._do(warp, Act("commit", row.pc, 0, target=row.unit))

    def _add_group_wait(self, row: GroupWait) -> None:
        for warp in self._warps(row.lanes):
            if not self._is_of_issuers(warp, row):
                continue
            if row.newest is None:
                self._do(warp, Act("commit", row.pc, 0, target=row.unit))
            arguments: list[tuple[str, Written]] = [("pending", row.newest or 0)]
            if row.only_read:
                arguments.append(("read", True))
            self._do(warp, Act("wait_group", row.pc, 0, target=row.unit, arguments=tuple(arguments)))

    def _is_of_issuers(self, warp: int, row: GroupCommit | GroupWait) -> bool:
        """Whether a commit or wait is by the lanes whose groups count, and by all of them."""
        if row.unit == "wgmma":
            return True
        issuers = self._issuers[row.unit].get(warp, set())
        came = issuers & set(row.lanes.tolist())
        if came and came != issuers:
            raise CannotSayError(f"groups of {row.unit} that threads of one warp count apart from each other", row.pc)
        return bool(came)

    def _add_copies(self, copies: list[CopyIssued]) -> None:
        """A copy, of a multicast with all blocks that receive it."""
        row = copies[0]
        record = row.record
        warp = row.lane // WARP_LANES
        cells = self._copied_cells(row)
        if record.barrier is None:
            if cells is not None:
                self._do(warp, Act("store", row.pc, 0, cells=cells, size_bytes=record.bytes))
            return
        if record.kind != "load":
            raise CannotSayError("a reduction into shared memory", row.pc)
        barriers = {self._barrier(one.record.barrier or 0, row.pc) for one in copies}
        ranks = [one.record.shared_address >> SHARED_RANK_SHIFT for one in copies]
        told = [(one.record.barrier or 0) >> SHARED_RANK_SHIFT for one in copies]
        if len(barriers) > 1 or (told != ranks and len(set(told)) > 1):
            raise CannotSayError("a copy that tells mbarriers of other blocks than it fills", row.pc)
        if cells is None:
            return
        if self._shared_with_data:
            addresses, size_bytes = _copied_bytes(row)
            for rank in ranks:
                self._end_barriers_under(warp, row.pc, addresses + (rank << SHARED_RANK_SHIFT), size_bytes)
        mask = sum(1 << rank for rank in ranks)
        is_own = ranks == [self._rank(warp)]
        arguments: list[tuple[str, Written]] = [("by", "tma" if row.tensor_copy is not None else "bulk")]
        if told != ranks:
            arguments.append(("barrier_rank", told[0]))
        self._do(
            warp,
            Act(
                "copy",
                row.pc,
                0,
                cells=cells,
                barrier=barriers.pop(),
                mask=None if is_own else mask,
                arguments=tuple(arguments),
                size_bytes=record.bytes,
            ),
        )

    def _copied_cells(self, row: CopyIssued) -> int | None:
        record = row.record
        if not record.bytes:
            return None
        addresses, size_bytes = _copied_bytes(row)
        number = self.sets.of(addresses, size_bytes)
        if len(self.sets.sets[number]) * self.sets.cell_bytes != record.bytes:
            self.has_inexact_copies = True
        return number


def _copied_bytes(row: CopyIssued) -> tuple[CellNumbers, int]:
    """Where a copy's bytes lie in shared memory: addresses of its pieces, and the bytes of one."""
    record = row.record
    offset = record.shared_address & SHARED_OFFSET_MASK
    if row.tensor_copy is None:
        return np.array([offset]), record.bytes
    tensor_map = row.tensor_copy.tensor_map
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    rows = max(1, record.bytes // row_bytes)
    placed = placement(tensor_map, rows, offset)
    return offset + placed.places * placed.piece_bytes, placed.piece_bytes


def _inits_by_address(rows: Iterable[Row]) -> dict[int, int]:
    """The arrivals that the first init at each shared address counts."""
    inits: dict[int, int] = {}
    for row in rows:
        if isinstance(row, MbarrierInit):
            inits.setdefault(row.address, row.arrivals)
    return inits


def _mbarriers_over_data(rows: Iterable[Row], inits: dict[int, int]) -> set[int]:
    """The addresses of mbarriers whose bytes are accessed as data too."""
    found: set[int] = set()
    addresses = np.array(sorted(inits), np.int64)
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if isinstance(row, Access):
            starts, size_bytes = row.addresses, row.size_bytes
            key = (id(starts), size_bytes)
        elif isinstance(row, CopyIssued) and row.record.bytes:
            starts, size_bytes = _copied_bytes(row)
            starts = starts + (row.record.shared_address >> SHARED_RANK_SHIFT << SHARED_RANK_SHIFT)
            key = (row.record.shared_address, row.record.bytes)
        else:
            continue
        if key not in seen and len(addresses):
            seen.add(key)
            ordered = np.sort(starts)
            # the last access that starts before the end of an mbarrier reaches into it, or none does
            before = np.searchsorted(ordered, addresses + MBARRIER_BYTES) - 1
            reaches = (before >= 0) & (ordered[before] + size_bytes > addresses)
            found.update(addresses[reaches].tolist())
    return found


def _divide_cells(sets: CellSets, rows: Iterable[Row]) -> None:
    """Choose the size of a cell by all accesses of the log."""
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if isinstance(row, Access):
            key = (id(row.addresses), row.size_bytes)
            if key not in seen:
                seen.add(key)
                sets.divide_by(row.addresses, row.size_bytes)
        elif isinstance(row, CopyIssued) and row.record.bytes:
            sets.divide_by(*_copied_bytes(row))


def _issuers(rows: Iterable[Row]) -> dict[str, dict[int, set[int]]]:
    """The lanes of every warp that issue what is waited for by groups."""
    found: dict[str, dict[int, set[int]]] = {"cp.async": defaultdict(set), "bulk": defaultdict(set)}
    for row in rows:
        if isinstance(row, Access) and row.how == "cp.async":
            for lane in row.lanes.tolist():
                found["cp.async"][lane // WARP_LANES].add(lane)
        elif isinstance(row, CopyIssued) and row.record.barrier is None:
            found["bulk"][row.lane // WARP_LANES].add(row.lane)
    return found


def _is_same_multicast(copies: list[CopyIssued], row: Row) -> bool:
    """Whether a row is the part of the same copy that another block receives."""
    if not isinstance(row, CopyIssued) or row.record.barrier is None:
        return False
    first = copies[0].record
    own = row.record
    is_alike = (first.pc, first.lane, first.coords, first.other_address) == (
        own.pc,
        own.lane,
        own.coords,
        own.other_address,
    )
    is_same_place = (first.shared_address ^ own.shared_address) & SHARED_OFFSET_MASK == 0
    return is_alike and is_same_place and own.shared_address > copies[-1].record.shared_address


_ADDING: dict[type[object], Callable[[Acts, Any], None]] = {
    Access: Acts._add_access,
    WgmmaIssued: Acts._add_wgmma,
    MbarrierInit: Acts._add_init,
    MbarrierInval: Acts._add_inval,
    MemoryFence: Acts._add_memory_fence,
    MbarrierArrive: Acts._add_arrive,
    MbarrierExpect: Acts._add_expect,
    CpAsyncArriveIssued: Acts._add_arrive_after_copies,
    Wait: Acts._add_wait,
    BlockSync: Acts._add_block_sync,
    ClusterSync: Acts._add_cluster_sync,
    WarpSync: Acts._add_warp_sync,
    Fence: Acts._add_fence,
    GroupCommit: Acts._add_group_commit,
    GroupWait: Acts._add_group_wait,
    TmemWork: Acts._add_tmem_work,
    TmemMove: Acts._add_tmem_move,
    TmemWait: Acts._add_tmem_wait,
    TmemDealloc: Acts._add_dealloc,
    TmemCommit: Acts._add_commit,
}
