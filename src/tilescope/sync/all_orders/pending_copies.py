"""Copies, commits and groups: what is issued, and what it does when it lands.

copy into a[0] ──▶ pending ──▶ 4096 bytes land, for full[0]
"""

from __future__ import annotations

from copy import copy
from itertools import chain

from tilescope.sync.all_orders.arrivals import Arrivals
from tilescope.sync.all_orders.contents import Segment, mark_stale, overwrite
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.all_orders.state import PendingKind, PendingOperation
from tilescope.sync.happens_before import NONE, Access, Fill, Key
from tilescope.sync.role_events import (
    CopyIssued,
    CpAsyncArriveIssued,
    CpAsyncIssued,
    GroupWait,
    MbarrierWait,
    Store,
    ThreadBarrier,
    TmemCommit,
)


class PendingCopies(Arrivals):
    """The state of a run in which copies and products are pending."""

    def _copy(self, agent: int, action: CopyIssued) -> None:
        barriers = action.barriers or (NONE,) * len(action.slots)
        if not action.size_bytes:
            return  # no bytes move, and none are counted
        for number, (slot, barrier) in enumerate(zip(action.slots, barriers, strict=True)):
            self._require_memory(agent, slot)
            is_by_threads = isinstance(action, CpAsyncIssued)
            fill = (barrier, self.phase[barrier], NONE)
            if is_by_threads or barrier == NONE:
                fill = (NONE, agent, self.groups_made(agent))
            start, end = self._extent(slot, action, agent, fill)
            access = Access(self._key(agent, number), agent, True, action.how, start, end, fill, action.tile)
            self._begin_access(slot, access, ends_at_once=False)
            contents = mark_stale(self.contents[slot], fill)
            self.contents[slot] = overwrite(contents, Segment(start, end, action.tile, fill))
            reads = [self._read_source(source, agent, action, len(action.slots) + number) for source in action.sources]
            if is_by_threads:
                for part in (access, *reads):
                    self._add_to_group(part)
            elif barrier != NONE:
                clock = self.ordering.snapshot(agent)
                keys = (access.key, *(read.key for read in reads))
                self._issue(
                    PendingOperation(
                        "copy", barrier, agent, keys, access.key, clock, size_bytes=action.size_bytes, slots=(slot,)
                    )
                )

    def _read_source(self, source: int, agent: int, action: CopyIssued, number: int) -> Access:
        """Begin the read of a copy's source in global memory, which ends when the copy has landed."""
        size = self.program.slots[source].bytes or 1
        access = Access(self._key(agent, number), agent, False, action.how, 0, size)
        self._begin_access(source, access, ends_at_once=False)
        self._require_content(source, agent, action.tile)
        return access

    def _extent(self, slot: int, action: CopyIssued, agent: int, fill: Fill) -> tuple[int, int]:
        """The bytes of a slot that a copy fills: from its offset on, or after the other copies of the same phase."""
        size = self.program.slots[slot].bytes
        if not size:
            return 0, 1
        last_fill, reached = self.fill_ends.get(slot, (fill, 0))
        if action.offset_bytes is not None:
            start = action.offset_bytes
        else:
            start = reached if last_fill == fill else 0
        end = start + action.size_bytes
        if action.offset_bytes is None:
            self.fill_ends[slot] = fill, end
            is_mixed = any(
                access.fill == fill and access.agent != agent and access.tile != action.tile
                for access in self.accesses[slot]
            )
            if is_mixed:
                self.ordering.mix_tiles(fill[0], fill[1], agent)  # which tile is first depends on who comes first
        if end > size:
            raise self._too_large(slot, action, agent, start)
        return start, end

    def _too_large(self, slot: int, action: CopyIssued, agent: int, start: int) -> MistakeFoundError:
        """A copy does not fit into its slot, by its own size or after the earlier copies of its phase."""
        size = self.program.slots[slot].bytes
        end = start + action.size_bytes
        if start and action.offset_bytes is None and action.size_bytes <= size:
            return MistakeFoundError(
                "too much", slot=slot, agent=agent, size=size, bytes=action.size_bytes, together=end
            )
        return MistakeFoundError(
            "beyond", slot=slot, agent=agent, size=size, bytes=action.size_bytes, offset=start, end=end
        )

    def _arrive_after_copies(self, agent: int, action: CpAsyncArriveIssued) -> None:
        """cp.async.mbarrier.arrive: an arrival when all cp.async of the agent so far have landed."""
        barrier = action.barriers[0]
        if action.arrivals >= self.program.agents[agent].warps:
            self._finish_with_arrivals(agent, barrier)
        if not action.is_counted:
            self.count(barrier, agent, more=action.arrivals)
        self.groups_finished[agent] = self.groups_finished.get(agent, 0) + 1
        groups = tuple(tuple(filter(self.ordering.is_tracked, keys)) for keys in self._groups(agent, "cp.async"))
        self.groups[agent, "cp.async"] = groups
        keys = self.signalled_copies[agent] = tuple(chain(*groups))
        kind: PendingKind = "cp_arrive" if action.is_counted else "cp_drop"  # a cp_drop takes back what was added
        key = self._key(agent, 0)
        clock = self.ordering.snapshot(agent)
        self._issue(PendingOperation(kind, barrier, agent, keys, key, clock, arrivals=action.arrivals))

    def _commit(self, agent: int, action: TmemCommit) -> None:
        """tcgen05.commit: an arrival when all products of the agent so far are finished."""
        self.uncommitted.pop(agent, None)
        keys = tuple(filter(self.ordering.is_tracked, self._groups(agent, "tcgen05")[-1]))
        self.groups[agent, "tcgen05"] = (keys,)  # a later commit waits for them as well
        for number, barrier in enumerate(action.barriers):
            self._reach_barrier(barrier, agent)
            clock = self.ordering.snapshot(agent)
            self._issue(PendingOperation("commit", barrier, agent, keys, self._key(agent, number), clock, arrivals=1))

    def _wait_group(self, agent: int, action: GroupWait) -> None:
        groups = self._groups(agent, action.unit)
        finished_count = max(0, len(groups) - 1 - action.newest)
        keys = tuple(chain(*groups[:finished_count]))
        self.groups[agent, action.unit] = groups[finished_count:]
        has_several_warps = self.program.agents[agent].warps > 1
        if action.unit == "cp.async":
            self.groups_finished[agent] = self.groups_finished.get(agent, 0) + finished_count
            if has_several_warps:  # every warp waits for its own
                tracked = filter(self.ordering.is_tracked, keys)
                self.unsynced[agent] = (*self.unsynced.get(agent, ()), *tracked)
                return
        if action.unit == "bulk":
            keys = self._finished_stores(agent, action, keys)
            if has_several_warps:  # one thread stores and waits
                self._keep_from_other_warps(agent, keys)
        for key in keys:
            self.ordering.finish_access(key, agent)

    def _keep_from_other_warps(self, agent: int, keys: tuple[Key, ...]) -> None:
        """One warp has waited until stores have read their slots; the others have not until they synchronize, or wait.

        In one order of many the race is found at once: they may do what comes next, up to a wait that blocks them.
        """
        if not self.ordering.is_one_order:
            times = dict.fromkeys(keys, self.ordering.epoch(agent))
            self.unsynced_stores[agent] = self.unsynced_stores.get(agent, {}) | times
            return
        stores = {
            slot: access for slot, accesses in enumerate(self.accesses) for access in accesses if access.key in keys
        }
        for action in copy(self.later_actions[agent]):
            if isinstance(action, ThreadBarrier) and action.waits:
                return
            if isinstance(action, MbarrierWait) and self.phase[action.barriers[0]] & 1 == action.parity:
                return
            written = [slot for slot in stores if slot in action.slots] if isinstance(action, Store) else []
            if written:
                store = stores[written[0]]
                raise self._race_of_warps(written[0], store, store._replace(how="generic", write=True))

    def _finished_stores(self, agent: int, action: GroupWait, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        """The finished accesses of stores that are waited for: with .read only the reads of their sources."""
        written = tuple(key for key in keys if key in self.store_writes)
        if action.only_read:
            self.unfinished_writes[agent] = (*self.unfinished_writes.get(agent, ()), *written)
            return tuple(key for key in keys if key not in self.store_writes)
        if action.newest:
            return keys
        return (*keys, *self.unfinished_writes.pop(agent, ()))

    def _arrive_in_phases(self, operation: PendingOperation) -> int:
        """Threads arrive behind their cp.async one by one: each full count ends a phase. The arrivals of the last phase."""
        barrier = operation.barrier
        left = operation.arrivals
        while left > self.pending[barrier] > 0 and self.tx[barrier] == 0:
            arrivals = self.pending[barrier]
            # the thread that has not arrived may be any of them: none of their accesses is released
            self.count(barrier, operation.agent, operation.issued_at, arrivals=arrivals, without_data=True)
            left -= arrivals
        return left

    def land(self, operation: PendingOperation) -> None:
        """Bytes, or a pending arrival, reach their barrier; of a copy with fewer bytes only these."""
        outstanding = self.outstanding.pop(operation.key)
        self.ended, self.issued = [], []
        barrier = operation.barrier
        agent = operation.agent
        issued_at = operation.issued_at
        if operation.size_bytes < outstanding.size_bytes:
            self.outstanding[operation.key] = outstanding._replace(
                size_bytes=outstanding.size_bytes - operation.size_bytes
            )
            phase = self.count(barrier, agent, issued_at, tx=-operation.size_bytes)
            if self.ended:
                self.torn_copy = MistakeFoundError(
                    "piece", barrier=barrier, phase=phase, tx=operation.size_bytes, bytes=outstanding.size_bytes
                )
            return
        is_copy = operation.kind == "copy"
        # a barrier of threads outlives a block
        blocks = {self.program.barriers[barrier].home} if barrier < self.mbarriers else set()
        if is_copy:
            blocks.add(self.program.slots[operation.slots[0]].home)
            phase = self.count(barrier, agent, issued_at, tx=-operation.size_bytes)
        else:
            takes_back = operation.kind == "cp_drop"
            is_one_by_one = self.program.is_measured and operation.kind == "cp_arrive"
            arrivals = self._arrive_in_phases(operation) if is_one_by_one else operation.arrivals
            phase = self.count(barrier, agent, issued_at, arrivals=arrivals, takes_back=takes_back)
        for key in operation.keys:
            self.ordering.finish_with_phase(key, barrier, phase)
        if operation.kind == "late":
            self.unsynced[agent] = tuple(key for key in self.unsynced.get(agent, ()) if key not in operation.keys)
        home = self.program.agents[agent].home
        is_kept = is_copy and self.program.is_measured
        if is_kept and home in blocks:
            self.own_copies[home, barrier] = True
        for block in blocks:
            harmless = block == home and (is_kept or not is_copy)
            if not harmless:
                by = "copy" if is_copy else "arrival"
                self._require_present(block, by=by, agent=agent, barrier=barrier)
            self.ordering.land_in_block(block, barrier, phase, harmless=harmless)
