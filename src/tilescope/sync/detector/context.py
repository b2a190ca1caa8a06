"""What all parts of the detector share: the clocks and shadow memory of one cluster, and where conflicts are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import ceil_div
from tilescope.sync.access_semantics import AccessSemantics
from tilescope.sync.cluster_shape import WARPGROUP_LANES, BlockIndex, ClusterShape, LaneNumbers
from tilescope.sync.detector.control_paths import CollectiveKind, ControlPaths
from tilescope.sync.detector.race import Conflict, Conflicts, How, Mistake, Side, Space
from tilescope.sync.detector.releases import SyncWords
from tilescope.sync.epoch import Stamp, Stamps, columns_of, epochs_of, first_of_each, pcs_of, unpack_stamp
from tilescope.sync.footprint import CellNumbers, Cells, one_row
from tilescope.sync.lane_clocks import BULK_READ, BULK_WRITE, CP_ASYNC, LaneClocks
from tilescope.sync.release_graph import ReleaseGraph
from tilescope.sync.shadow.accessor import Unit
from tilescope.sync.shadow.global_cells import GlobalCells, Regions
from tilescope.sync.shadow.shadow_cells import CellTable, Unordered
from tilescope.sync.vector_clock import EXECUTED, HAPPENS_BEFORE, SCOPED, Vector, VectorClock


class PublishedColumns(NamedTuple):
    """Two columns of an actor on tensor memory: what tcgen05.fence::before_thread_sync, or a commit, has released."""

    fenced: int  # of what has completed
    issued: int  # completed or not


class PhaseBytes(NamedTuple):
    """The bytes of a completed phase: expected, and arrived, late ones included; the instructions of both."""

    expected: int
    came: int
    pcs: frozenset[int]


class MbarrierUse(NamedTuple):
    """How a block used an mbarrier: its expected arrivals, and the last instruction of each thread that used it."""

    arrivals: int  # that complete a phase of it
    pcs: frozenset[int]


class NarrowRelease(NamedTuple):
    """An arrival at another block's mbarrier and its wait, one of them with the scope of a block: what the arrival releases."""

    clock: VectorClock
    names_scope: bool  # False: the scope is the default


class BarrierBytes(NamedTuple):
    """An mbarrier, by its offset in a block's shared memory, and the bytes of one of its phases."""

    offset: int
    block: BlockIndex
    bytes: PhaseBytes


@dataclass(slots=True)
class Poll:
    """An instruction that polls: whether it ever saw what another thread wrote, and some of the global words that it loads."""

    is_of_mbarrier: bool
    has_passed: bool = False
    words: set[int] = field(default_factory=set)


class ProgramFacts(NamedTuple):
    """What the detector must know of the program text; lists are by instruction."""

    accesses: Sequence[AccessSemantics | None]
    has_flag_loads: bool  # strong loads, through which threads may synchronize
    may_defer_releases: bool  # no asynchronous work, and no scope narrower than .gpu
    tensor_operations: Mapping[int, How]  # of tcgen05 instructions
    map_edits: frozenset[int]  # tensormap.replace
    map_copies: frozenset[int]  # tensormap.cp_fenceproxy
    scopes: npt.NDArray[np.int8] | None  # of strong accesses; None: all are .gpu or wider
    decisions: frozenset[int]  # strong loads whose value only decides where threads go on
    stores_of_sums: frozenset[int]  # of float sums that all lanes of a warp hold, each rounded in another order
    has_remote_arrivals: bool  # at mbarriers of other blocks of the cluster
    shared_cell_bytes: int  # the narrowest access
    global_cell_bytes: int
    has_branches: bool  # at which threads may take different paths
    collectives: Mapping[int, CollectiveKind]  # instructions of whole warps
    partial_masks: frozenset[int]  # instructions with a mask that may not name all lanes
    control: Callable[[], ControlPaths]  # computed on first use


class LaunchDetector:
    """What all clusters of a launch share."""

    def __init__(self, program: ProgramFacts, regions: Regions) -> None:
        self.program = program
        self.shared_cell_bytes = program.shared_cell_bytes
        self.conflicts = Conflicts()
        self.memory = GlobalCells(regions, program.global_cell_bytes)
        self.copies_issued = 0  # bulk and tensor copies, as far as the run keeps records of them
        self.running: dict[BlockIndex, Any] = {}  # the detectors of clusters that have not ended, by first block
        self.flags = SyncWords("global")
        self.releases: ReleaseGraph | None = None  # None: no release was deferred
        self.polls: dict[int, Poll] = {}  # by instruction: loads of flags, and tests of mbarriers
        self.late_pcs: frozenset[int] = frozenset()  # polls that see what others have written, whenever they can
        self.polling_pcs: set[int] = set()  # loads that poll: a thread repeated them until the word changed
        self.spilled: list[BarrierBytes] = []  # of blocks that have ended
        # by instruction and first block of the cluster: the lanes whose loads race; None if not requested
        self.racing_loads: dict[tuple[int, BlockIndex], set[int]] | None = None
        self.clusters = 0
        self.first_blocks: list[BlockIndex] = []  # of the clusters
        self.mbarrier_uses: dict[int, MbarrierUse] = {}  # by offset: those of the first block that has any

    def reported_conflicts(self) -> list[Conflict]:
        """The conflicts of the launch, without those of loads that poll, and each pair of accesses of a warp once."""
        conflicts = [*self.conflicts.found.values()]
        polling = self.polling_pcs
        ordered_by_nothing = {conflict.pcs for conflict in conflicts if conflict.mistake == "lane order"}
        reported = []
        for conflict in conflicts:
            if conflict.mistake == "lane order" and not polling.isdisjoint(conflict.pcs):
                continue
            is_repeated = conflict.now.pc in polling or conflict.pcs in ordered_by_nothing
            if conflict.mistake == "stale read" and is_repeated:
                continue
            reported.append(conflict)
        return reported


class DetectorContext:
    """The clocks and shadow memory of one cluster."""

    def __init__(self, cluster: ClusterShape, launch: LaunchDetector) -> None:
        launch.clusters += 1
        launch.first_blocks.append(cluster.first_block)
        self.cluster = cluster
        self.pc = 0  # of the event that is judged
        self.launch = launch
        self.number = launch.clusters
        self.warpgroup_of_lane: LaneNumbers = cluster.grouping(WARPGROUP_LANES).of_lane
        self.warpgroups = int(self.warpgroup_of_lane[-1]) + 1
        self._warpgroups_found: tuple[LaneNumbers, Sequence[int]] | None = None  # the last answer of warpgroups_of
        has_scopes = cluster.blocks > 1 and launch.program.has_remote_arrivals
        self.clocks = LaneClocks(self.number, cluster.lane_count, self.warpgroups, has_scopes=has_scopes)
        self.narrow_releases: dict[tuple[int, int], NarrowRelease] = {}  # by the pcs of arrival and wait
        self.has_cp_async = False  # whether any thread has issued one
        self.ended_blocks: set[int] = set()  # by rank
        self.inval_pcs: set[int] = set()  # mbarrier.inval, which writes the word of its mbarrier
        self.tensor_columns: dict[int, PublishedColumns] = {}  # by the column of each actor on tensor memory
        self.cell_bytes = launch.shared_cell_bytes
        warps = cluster.lane_count // WARP_LANES
        shared_bytes = cluster.blocks * cluster.shared_stride
        self.shared = CellTable(shared_bytes // self.cell_bytes + 1, warps, self.warpgroups + 2)

    @property
    def bulk_unit(self) -> int:
        """The slot of `shared` for reads by bulk copies."""
        return self.warpgroups

    def warpgroups_of(self, lanes: LaneNumbers) -> Sequence[int]:
        """The warpgroups of lanes, which are in ascending order."""
        found = self._warpgroups_found
        if found is not None and found[0] is lanes:
            return found[1]
        first = int(self.warpgroup_of_lane[lanes[0]])
        last = int(self.warpgroup_of_lane[lanes[-1]])
        warpgroups: Sequence[int] = range(first, last + 1)
        if last - first > 1:
            warpgroups = np.unique(self.warpgroup_of_lane[lanes]).tolist()
        self._warpgroups_found = (lanes, warpgroups)
        return warpgroups

    @property
    def tensor_unit(self) -> int:
        """The slot of `shared` for reads by tcgen05."""
        return self.warpgroups + 1

    def published_tensor_work(self, lanes: LaneNumbers) -> VectorClock | None:
        """What fence::before_thread_sync before a relaxed arrival released: the order of execution carries it."""
        if not self.tensor_columns:
            return None
        clocks = self.clocks
        clock = clocks.clock_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for column, published in self.tensor_columns.items():
            finished = int(clocks.time_known_to(lanes, published.fenced).max())
            clock.vectors[HAPPENS_BEFORE, [column, published.fenced]] = finished
            clock.vectors[HAPPENS_BEFORE, published.issued] = int(clocks.time_known_to(lanes, published.issued).max())
        return clock

    @property
    def tensor_work_columns(self) -> list[int]:
        """All columns of actors on tensor memory."""
        return [
            actor_column for column, published in self.tensor_columns.items() for actor_column in (column, *published)
        ]

    def cells_at(self, address: int, size_bytes: int) -> slice:
        """The cells of consecutive bytes in shared memory."""
        first = self.cluster.place(address)
        return slice(first // self.cell_bytes, ceil_div(first + size_bytes, self.cell_bytes))

    def global_cells_at(self, address: int, size_bytes: int) -> CellNumbers:
        """The cells of global memory that are completely inside consecutive bytes."""
        return one_row(address, size_bytes).whole_cells(self.launch.memory.cell_bytes)

    def side(self, stamp: Stamp, *, was_write: bool) -> Side:
        """The access that left a stamp."""
        kind, lane = divmod(stamp.column, self.clocks.lane_count)
        if stamp.column in self.tensor_columns:
            return self.tensor_side(stamp.pc, None)
        if stamp.column >= self.clocks.first_barrier:
            return Side(stamp.pc, "copy", None)
        if stamp.column >= self.clocks.first_warpgroup:
            return Side(stamp.pc, "wgmma", None)
        if kind == CP_ASYNC:
            return Side(stamp.pc, "cp.async", lane)
        if kind in (BULK_READ, BULK_WRITE):
            return Side(stamp.pc, "bulk store", lane)
        if stamp.pc in self.inval_pcs:
            return Side(stamp.pc, "inval", lane)
        meaning = self.launch.program.accesses[stamp.pc]
        how: How = "write" if was_write else "read"
        if meaning is not None and meaning.kind == "atomic":
            how = "atomic"
        return Side(stamp.pc, how, lane)

    def tensor_side(self, pc: int, lane: int | None) -> Side:
        """An access to tensor memory; its kind follows from the instruction's name."""
        return Side(pc, self.launch.program.tensor_operations[pc], lane)

    def foreign(self, unordered: Unordered, index: int) -> dict[str, int]:
        """The cluster of the earlier access, if it is another one."""
        if unordered.clusters is None or int(unordered.clusters[index]) == self.number:
            return {}
        return {"cluster": int(unordered.clusters[index])}

    def poll_at(self, pc: int, *, is_of_mbarrier: bool = False) -> Poll:
        """The poll at an instruction."""
        poll = self.launch.polls.get(pc)
        if poll is None:
            poll = self.launch.polls[pc] = Poll(is_of_mbarrier)
        return poll

    def note_racing_loads(self, unordered: Unordered, lanes: LaneNumbers, *, was_write: bool) -> None:
        """Note which lanes' loads race. Shadow memory keeps one reader of a warp: with it all lanes of its warp are noted."""
        noted = self.launch.racing_loads
        assert noted is not None
        if was_write:
            noted.setdefault((self.pc, self.cluster.first_block), set()).update(lanes.tolist())
            return
        for index, stamp in enumerate(unordered.stamps.tolist()):
            read = unpack_stamp(stamp)
            first = read.column // WARP_LANES * WARP_LANES
            number = self.foreign(unordered, index).get("cluster", self.number)
            warp = range(first, first + WARP_LANES)
            noted.setdefault((read.pc, self.launch.first_blocks[number - 1]), set()).update(warp)

    def report_unit(
        self, unordered: Unordered, cells: Cells, now: Side, unit: Unit, space: Literal["shared", "global"]
    ) -> None:
        """Report writes that are not ordered before a copy or a tensor core, or not visible to the async proxy.

        Of all threads that wrote with one instruction, one of another warp is reported if there is one: it is a better
        example than a neighbour.
        """
        for index in self._farthest_of_each(unordered.stamps, now):
            stamp = unpack_stamp(int(unordered.stamps[index]))
            before = self.side(stamp, was_write=True)
            mistake = classify_conflict(before.how, now.how, was_write=True)
            facts = self.foreign(unordered, index)
            if before.how == "inval" and unit.happens_after(stamp, facts.get("cluster")):
                continue  # like the other uses of an mbarrier, it needs no proxy fence
            if mistake == "copy wait" and unit.vectors[EXECUTED, stamp.column] >= stamp.epoch:
                facts["relaxed"] = 1
            if before.how in ("write", "atomic", "cp.async") and unit.happens_after(stamp, facts.get("cluster")):
                mistake = "proxy fence"
            self.report(
                mistake, before, now, space, self.address_of(cells, int(unordered.places[index]), space), **facts
            )

    def report_narrow_writes(
        self, table: CellTable, cells: Cells, now: Side, unit: Unit, *, table_start: int = 0
    ) -> None:
        """Report writes by threads of other blocks that a copy or a tensor core reads, ordered only by block scope."""
        if not self.clocks.has_scopes:
            return
        unordered = table.unordered_writes(cells, replace(unit, proxy=SCOPED))
        if unordered is None:
            return
        space: Literal["shared", "global"] = "shared" if table is self.shared else "global"
        accesses = self.own_unordered(unordered)
        for index in self._farthest_of_each(accesses.stamps, now):
            stamp = unpack_stamp(int(accesses.stamps[index]))
            if stamp.column < self.clocks.lane_count and unit.find_visible(unit.vectors)[stamp.column] >= stamp.epoch:
                start = self.address_of(slice(table_start, None), 0, space)
                address = start + self.address_of(cells, int(accesses.places[index]), space)
                self.report_narrow_scope(stamp, now, space, address, was_write=True)

    def own_unordered(self, unordered: Unordered) -> Unordered:
        """Those accesses that threads and units of this cluster made."""
        return unordered if unordered.clusters is None else unordered.where(unordered.clusters == self.number)

    def report_narrow_scope(
        self, stamp: Stamp, now: Side, space: Literal["shared", "global"], address: int, *, was_write: bool
    ) -> None:
        """Report two accesses that only an arrival or a wait with the scope of one block orders."""
        before = self.side(stamp, was_write=was_write)
        pairs = [
            key for key, release in self.narrow_releases.items() if release.clock.known[stamp.column] >= stamp.epoch
        ]
        if not pairs:
            return
        arrival, wait = max(pairs, key=lambda key: self.narrow_releases[key].names_scope)
        names_scope = int(self.narrow_releases[arrival, wait].names_scope)
        self.report("narrow scope", before, now, space, address, arrival=arrival, wait=wait, names_scope=names_scope)

    def _farthest_of_each(self, stamps: Stamps, now: Side) -> list[int]:
        """One stamp of each instruction: of a thread of another warp than the issuer's, if there is one."""
        columns = columns_of(stamps)
        own_warp = -1 if now.lane is None else now.lane // WARP_LANES
        is_far = (columns < self.clocks.lane_count) & (columns // WARP_LANES != own_warp)
        far_first = np.argsort(~is_far, kind="stable")
        indices: list[int] = far_first[first_of_each(pcs_of(stamps[far_first]))].tolist()
        return indices

    def report_unwritten(self, cells: Cells, now: Side) -> None:
        """Report bytes of shared memory that a copy or a tensor core reads, and that were never written.

        Some of them may be the edge of a tile, whose results are not used. A product without any written byte is wrong.
        """
        flags = self.shared.find_unwritten(cells)
        if not flags.any():
            return
        mistake: Mistake = "unwritten operand" if now.how == "wgmma" and flags.all() else "unwritten"
        self.report(mistake, None, now, "shared", self.address_of(cells, int(np.argmax(flags)), "shared"))

    def note_unfenced_copies(self, cells: CellNumbers, fenced: Vector, now: Side) -> None:
        """Report operands that cp.async wrote without a proxy fence since: the documentation requires one, public kernels have none."""
        if not self.has_cp_async:
            return
        stamps = self.shared.writes[cells]
        columns = columns_of(stamps)
        is_copied = columns // self.clocks.lane_count == CP_ASYNC
        is_unfenced = is_copied & (fenced[columns] < epochs_of(stamps))
        if is_unfenced.any():
            place = int(np.argmax(is_unfenced))
            before = self.side(unpack_stamp(int(stamps[place])), was_write=True)
            self.report("cp.async fence", before, now, "shared", int(cells[place]) * self.cell_bytes)

    def address_of(self, cells: Cells, place: int, space: Literal["shared", "global"]) -> int:
        """The address of one of some cells: in the cluster's shared memory, or in global memory."""
        cell = (cells.start or 0) + place if isinstance(cells, slice) else int(cells[place])
        return cell * (self.cell_bytes if space == "shared" else self.launch.memory.cell_bytes)

    def report(
        self, mistake: Mistake, before: Side | None, now: Side, space: Space, address: int | None, **facts: int
    ) -> None:
        """Keep a conflict."""
        cluster = self.cluster
        rank = facts.get("rank", 0 if now.lane is None else int(cluster.block_of_lane[now.lane]))
        block = cluster.block_index(rank)
        conflict = Conflict(mistake, before, now, space, address, block, facts)
        conflict.copies_made = self.launch.copies_issued
        if space == "shared" and address is not None:
            stamp = int(self.shared.writes[address // self.cell_bytes])
            conflict.writer_pc = unpack_stamp(stamp).pc if stamp else None
        self.launch.conflicts.add(conflict)


def classify_conflict(before: How, now: How, *, was_write: bool) -> Mistake:
    """Which mistake two unordered accesses are."""
    if before == "copy" and was_write:
        return "copy wait"
    if before == "cp.async":
        return "cp.async"
    if before == "bulk store" and not was_write:
        return "store source"
    if before in ("wgmma", "tcgen05.mma", "tcgen05.cp") or (now == "copy" and not was_write):
        return "refill"
    return "race"
