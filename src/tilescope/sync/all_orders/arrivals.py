"""Arrivals of roles at barriers, and of their warps.

    warp 0   write a ── arrive ─────────────▶ goes on
    warp 1   write a ────────────── arrive ─▶ the phase ends: both writes are finished

A role of several warps is one agent here, but its warps do not wait for each other. The accesses of all its threads are
finished when all warps have synchronized (sync), or when a phase has ended at which all of them arrive (a count of at
least the warps). They are not finished when one of them arrives or stores.
"""

from __future__ import annotations

from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.all_orders.slots import SlotAccesses
from tilescope.sync.all_orders.state import PendingOperation
from tilescope.sync.happens_before import Key
from tilescope.sync.role_events import (
    ClusterWait,
    MbarrierArrive,
    MbarrierExpect,
    MbarrierInit,
    MbarrierInval,
    ThreadBarrier,
)


class Arrivals(SlotAccesses):
    """The state of a run in which agents arrive at barriers."""

    def _expect(self, agent: int, action: MbarrierExpect) -> None:
        for barrier in action.barriers:
            self._reach_barrier(barrier, agent)
            without_data = action.scope == "cta" and self._is_remote(barrier, agent)
            self.count(barrier, agent, tx=action.size_bytes, without_data=without_data)

    def _arrive(self, agent: int, action: MbarrierArrive) -> None:
        arrivals = action.arrivals
        dropped = arrivals if action.is_drop else 0
        is_by_all_warps = arrivals >= self.program.agents[agent].warps
        keys = self._tracked_unsynced(agent)
        if is_by_all_warps and keys and not dropped:  # the last warp may be late
            self._arrive_delayed(agent, action, keys)
            return
        for barrier in action.barriers:
            self._reach_barrier(barrier, agent)
            if is_by_all_warps:
                self._finish_with_arrivals(agent, barrier)
            without_data = action.scope == "cta" and self._is_remote(barrier, agent)
            self.count(
                barrier,
                agent,
                tx=action.expected_bytes,
                arrivals=arrivals,
                dropped=dropped,
                without_data=without_data,
            )

    def _tracked_unsynced(self, agent: int) -> tuple[Key, ...]:
        """Accesses of an agent's warps since these last synchronized that may still matter."""
        return tuple(filter(self.ordering.is_tracked, self.unsynced.get(agent, ())))

    def _arrive_delayed(self, agent: int, action: MbarrierArrive, keys: tuple[Key, ...]) -> None:
        """Several warps arrive after their own accesses: one may continue before the last has arrived.

        If orders are tried one by one, the arrival is a separate move. Otherwise it counts now, and orders what follows
        a phase in which it counted, or a synchronization of the warps.
        """
        self.unsynced[agent] = keys
        phases = [self.phase[barrier] for barrier in action.barriers]
        blocks = [self.program.barriers[barrier].home for barrier in action.barriers]
        if not self.ordering.is_one_order:
            self.ordering.delay_arrival(action.barriers, phases, blocks, agent)
        for number, barrier in enumerate(action.barriers):
            self._reach_barrier(barrier, agent)
            self._require_init_synced(barrier, agent)
            if self.ordering.is_one_order:
                key = self._key(agent, number)
                self._issue(PendingOperation("late", barrier, agent, keys, key, arrivals=action.arrivals))
                continue
            without_data = action.scope == "cta" and self._is_remote(barrier, agent)
            self.count(barrier, agent, arrivals=action.arrivals, without_data=without_data)
            for key in keys:
                self.ordering.finish_after_arrivals(key, barrier, phases[number])

    def _delayed_arrivals(self, agent: int) -> list[PendingOperation]:
        """Arrivals whose last warp has not arrived yet."""
        return [
            operation
            for operation in self.outstanding.values()
            if operation.kind == "late" and operation.agent == agent
        ]

    def can_land(self, operation: PendingOperation) -> bool:
        """Whether a pending operation may land now: a warp arrives in the order of its steps."""
        if operation.kind != "late":
            return True
        return all(other.key[1] >= operation.key[1] for other in self._delayed_arrivals(operation.agent))

    def _synchronize_threads(self, agent: int, action: ThreadBarrier) -> bool:
        """Come to a barrier of threads; whether the action is over: waiting there takes two, arriving and passing."""
        if not action.waits:  # the warps go on, one sooner than the other
            return self._arrive_at_thread_barrier(agent, action)
        if not isinstance(action, ClusterWait):
            self._synchronize_warps(agent)
        is_over = self.synchronize(agent, action)
        if is_over:  # what happens-before one warp now happens-before all of them
            self.unsynced_stores.pop(agent, None)
            self.unsynced_inits = {barrier: maker for barrier, maker in self.unsynced_inits.items() if maker != agent}
        return is_over

    def _arrive_at_thread_barrier(self, agent: int, action: ThreadBarrier) -> bool:
        """Arrive at a barrier of threads, and do not wait. If orders are tried one by one, the last warp may be late."""
        barrier = action.barriers[0]
        keys = self._tracked_unsynced(agent)
        if not self.ordering.is_one_order or not (keys or self._delayed_arrivals(agent)):
            self._finish_with_arrivals(agent, barrier)
            return self.synchronize(agent, action)
        threads = self.threads_at(barrier, agent)
        self._issue(PendingOperation("late", barrier, agent, keys, self._key(agent, 0), arrivals=threads))
        return self.synchronize(agent, action, counts=False)

    def _finish_with_arrivals(self, agent: int, barrier: int) -> None:
        """All warps of an agent arrive, and go on: their accesses are finished when the phase ends."""
        self._require_init_synced(barrier, agent)
        self.ordering.arrive_with_all_warps(agent, barrier, self.phase[barrier])
        keys = self._tracked_unsynced(agent)
        for key in keys:
            self.ordering.finish_after_arrivals(key, barrier, self.phase[barrier])
        if keys:
            self.unsynced[agent] = keys
        else:
            self.unsynced.pop(agent, None)

    def _synchronize_warps(self, agent: int) -> None:
        """All warps of an agent synchronize: their accesses are finished for everything that comes after."""
        self.ordering.synchronize_warps(agent)
        for key in self.unsynced.pop(agent, ()):
            self.ordering.finish_access(key, agent)

    def _initialise(self, agent: int, action: MbarrierInit) -> None:
        for barrier in action.barriers:
            if self.initialised[barrier]:
                raise MistakeFoundError("init twice", agent=agent, barrier=barrier)
            self.initialised[barrier] = True
            if self.program.agents[agent].warps > 1:
                self.unsynced_inits[barrier] = agent
            self.ordering.initialise(barrier, agent)

    def _invalidate(self, agent: int, action: MbarrierInval) -> None:
        """Stop if something still uses a barrier that an agent invalidates."""
        for barrier in action.barriers:
            self._require_initialised(barrier, agent)
            pending = [operation.agent for operation in self.outstanding.values() if operation.barrier == barrier]
            user = pending[0] if pending else self.ordering.find_unordered_use(barrier, agent)
            if user is not None:
                raise MistakeFoundError("inval", agent=agent, barrier=barrier, agent_before=user)
            self.invalidated[barrier] = True

    def _is_remote(self, barrier: int, agent: int) -> bool:
        return self.program.barriers[barrier].home != self.program.agents[agent].home

    def _reach_barrier(self, barrier: int, agent: int) -> None:
        """Report an operation on another block's barrier: that block must not have exited."""
        if self._is_remote(barrier, agent):
            block = self.program.barriers[barrier].home
            self._require_present(block, by="role", agent=agent, barrier=barrier)
            self.ordering.access_block(block, agent)

    def _issue(self, operation: PendingOperation) -> None:
        """Issue bytes or an arrival that land later."""
        self.outstanding[operation.key] = operation
        self.issued.append(operation.key)
