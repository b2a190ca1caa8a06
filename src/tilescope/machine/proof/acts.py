"""The rows of a recording as what every warp did, one act after another: the table that turns each event into acts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tilescope.arch import WARP_LANES
from tilescope.machine.proof.act import Act, CannotSayError
from tilescope.machine.proof.recorded_rows import Access, BlockSync, ClusterSync, Fence, Row, Wait
from tilescope.machine.proof.recorder import Recorder
from tilescope.machine.proof.warp_accesses import copied_bytes
from tilescope.machine.proof.warp_barriers import WarpBarriers
from tilescope.pipeline.operations import Written
from tilescope.sync.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
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


class Acts(WarpBarriers):
    """What the warps of a cluster did; warps are numbered through all blocks."""

    def __init__(self, log: Recorder) -> None:
        super().__init__(log)
        self._issuers = _issuers(log.rows)
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

    def _add_access(self, row: Access) -> None:
        key = (id(row.lanes), id(row.addresses), row.size_bytes, row.how == "agreed")
        touches = self._split.get(key)
        if touches is None:
            touches = self._by_warp(row)
            if row.how == "agreed":
                touches = self._split_agreed(touches)
            self._split[key] = touches
        if self._shared_with_data and row.how != "read":
            self._end_barriers_under(int(row.lanes[0]) // WARP_LANES, row.pc, row.addresses, row.size_bytes)
        for warp, touch in touches:
            how = "write" if len(touch.warps) == 1 else row.how
            self._touch(warp, row.pc, touch._replace(how=how, unseen=self._unseen_barriers(warp, row.lanes)))

    def _add_commit(self, row: TmemCommit) -> None:
        warp = row.lane // WARP_LANES
        barriers = {self._barrier(address, row.pc) for address in row.addresses}
        if len(barriers) > 1:
            raise CannotSayError("a commit at mbarriers whose addresses differ in other blocks", row.pc)
        ranks = [address >> SHARED_RANK_SHIFT for address in row.addresses]
        mask = None
        if ranks != [self._rank(warp)]:
            mask = sum(1 << rank for rank in ranks)
        self._do(warp, Act("commit", row.pc, 0, barrier=barriers.pop(), mask=mask))

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
        participants = issuers & set(row.lanes.tolist())
        if participants and participants != issuers:
            raise CannotSayError(f"groups of {row.unit} that threads of one warp count apart from each other", row.pc)
        return bool(participants)

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
        barriers = {self._barrier(copy.record.barrier or 0, row.pc) for copy in copies}
        ranks = [copy.record.shared_address >> SHARED_RANK_SHIFT for copy in copies]
        barrier_ranks = [(copy.record.barrier or 0) >> SHARED_RANK_SHIFT for copy in copies]
        of_even_blocks = barrier_ranks == [rank - rank % 2 for rank in ranks]
        if len(barriers) > 1 or (barrier_ranks != ranks and not of_even_blocks and len(set(barrier_ranks)) > 1):
            raise CannotSayError("a copy that tells mbarriers of other blocks than it fills", row.pc)
        if cells is None:
            return
        if self._shared_with_data:
            addresses, size_bytes = copied_bytes(row)
            for rank in ranks:
                self._end_barriers_under(warp, row.pc, addresses + (rank << SHARED_RANK_SHIFT), size_bytes)
        mask = sum(1 << rank for rank in ranks)
        is_own = ranks == [self._rank(warp)]
        arguments: list[tuple[str, Written]] = [("by", "tma" if row.tensor_copy is not None else "bulk")]
        if barrier_ranks != ranks:
            arguments.append(("barrier_rank", barrier_ranks[0] if len(set(barrier_ranks)) == 1 else "rank - rank % 2"))
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


def _issuers(rows: Iterable[Row]) -> dict[str, dict[int, set[int]]]:
    """The lanes of every warp that issue what is waited for by groups."""
    issuers: dict[str, dict[int, set[int]]] = {"cp.async": defaultdict(set), "bulk": defaultdict(set)}
    for row in rows:
        if isinstance(row, Access) and row.how == "cp.async":
            for lane in row.lanes.tolist():
                issuers["cp.async"][lane // WARP_LANES].add(lane)
        elif isinstance(row, CopyIssued) and row.record.barrier is None:
            issuers["bulk"][row.lane // WARP_LANES].add(row.lane)
    return issuers


def _is_same_multicast(copies: list[CopyIssued], row: Row) -> bool:
    """Whether a row is the part of the same copy that another block receives."""
    if not isinstance(row, CopyIssued) or row.record.barrier is None:
        return False
    first = copies[0].record
    record = row.record
    is_alike = (first.pc, first.lane, first.coords, first.other_address) == (
        record.pc,
        record.lane,
        record.coords,
        record.other_address,
    )
    is_same_place = (first.shared_address ^ record.shared_address) & SHARED_OFFSET_MASK == 0
    return is_alike and is_same_place and record.shared_address > copies[-1].record.shared_address


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
