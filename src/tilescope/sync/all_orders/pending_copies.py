"""Copies, commits and groups: what is sent on its way, and what it does when it lands.

copy into a[0] ──▶ under way ──▶ 4096 bytes land, for full[0]
"""

from __future__ import annotations

from copy import copy
from itertools import chain

from tilescope.pipeline.wording import mistake_error
from tilescope.sync.all_orders.action import NONE, Action, Flight, Key
from tilescope.sync.all_orders.arrivals import Arrivals
from tilescope.sync.all_orders.contents import Fill, Segment, aged, laid
from tilescope.sync.all_orders.mistake import MistakeFoundError
from tilescope.sync.happens_before import Access


class Copies(Arrivals):
    """The state of a run in which copies and products are under way."""

    def _copy(self, agent: int, action: Action) -> None:
        barriers = action.barriers or (NONE,) * len(action.slots)
        if not action.number:
            return  # no bytes move, and none are counted
        for number, (slot, barrier) in enumerate(zip(action.slots, barriers, strict=True)):
            self._require_memory(agent, slot)
            by_threads = action.choice == "cp.async"
            fill = (barrier, self.phase[barrier], NONE)
            if by_threads or barrier == NONE:
                fill = (NONE, agent, self._groups_made(agent))
            start, end = self._extent(slot, action, agent, fill)
            access = Access(self._key(agent, number), agent, True, action.choice, start, end, fill, action.tile)
            self._begin(slot, access, ends_at_once=False)
            held = aged(self.contents[slot], fill)
            self.contents[slot] = laid(held, Segment(start, end, action.tile, fill))
            reads = [self._read_source(source, agent, action, len(action.slots) + number) for source in action.sources]
            if by_threads:
                for one in (access, *reads):
                    self._add_to_group(one)
            elif barrier != NONE:
                past = self.order.past(agent)
                keys = (access.key, *(one.key for one in reads))
                self._send(Flight("copy", barrier, action.number, (slot,), agent, past, keys, access.key))

    def _read_source(self, source: int, agent: int, action: Action, number: int) -> Access:
        """A copy reads its source in global memory until it has landed."""
        size = self.program.slots[source].of.bytes or 1
        access = Access(self._key(agent, number), agent, False, action.choice, 0, size)
        self._begin(source, access, ends_at_once=False)
        self._require_content(source, agent, action)
        return access

    def _extent(self, slot: int, action: Action, agent: int, fill: Fill) -> tuple[int, int]:
        """The bytes of a slot that a copy fills: from its offset on, or after the other copies of the same phase."""
        size = self.program.slots[slot].of.bytes
        if not size:
            return 0, 1
        of_fill, reached = self.filled.get(slot, (fill, 0))
        if action.offset is not None:
            start = action.offset
        else:
            start = reached if of_fill == fill else 0
        end = start + action.number
        if action.offset is None:
            self.filled[slot] = fill, end
            if any(one.fill == fill and one.agent != agent and one.tile != action.tile for one in self.accesses[slot]):
                self.order.mixes(fill[0], fill[1], agent)  # which tile lies first depends on who comes first
        if end > size:
            raise self._too_large(slot, action, agent, start)
        return start, end

    def _too_large(self, slot: int, action: Action, agent: int, start: int) -> MistakeFoundError:
        """A copy, alone or with those before it in its phase, does not fit into its slot."""
        size = self.program.slots[slot].of.bytes
        end = start + action.number
        if start and action.offset is None and action.number <= size:
            return mistake_error(
                self.program, "too much", slot=slot, agent=agent, size=size, bytes=action.number, together=end
            )
        return mistake_error(
            self.program, "beyond", slot=slot, agent=agent, size=size, bytes=action.number, offset=start, end=end
        )

    def _cp_arrive(self, agent: int, action: Action) -> None:
        barrier = action.barriers[0]
        if action.times >= self.program.agents[agent].of.warps:
            self._cover_with(agent, barrier)
        if not action.flag:
            self.count(barrier, agent, more=action.times, step=action.step)
        self.handed_over[agent] = self.handed_over.get(agent, 0) + 1
        groups = tuple(tuple(filter(self.order.is_alive, keys)) for keys in self._groups(agent, "cp.async"))
        self.groups[agent, "cp.async"] = groups
        keys = self.heard_of[agent] = tuple(chain(*groups))
        op = "cp_arrive" if action.flag else "cp_drop"  # a cp_drop takes back what was added
        key = self._key(agent, 0)
        self._send(Flight(op, barrier, action.times, (), agent, self.order.past(agent), keys, key))

    def _commit(self, agent: int, action: Action) -> None:
        """tcgen05.commit: an arrival when all products of the agent so far are finished."""
        self.uncommitted.pop(agent, None)
        keys = tuple(filter(self.order.is_alive, self._groups(agent, "tcgen05")[-1]))
        self.groups[agent, "tcgen05"] = (keys,)  # a later commit waits for them as well
        for number, barrier in enumerate(action.barriers):
            self._reach(barrier, agent)
            past = self.order.past(agent)
            self._send(Flight("commit", barrier, 1, (), agent, past, keys, self._key(agent, number)))

    def _wait_group(self, agent: int, action: Action) -> None:
        groups = self._groups(agent, action.choice)
        done = max(0, len(groups) - 1 - action.number)
        keys = tuple(chain(*groups[:done]))
        self.groups[agent, action.choice] = groups[done:]
        if action.choice == "cp.async":
            self.handed_over[agent] = self.handed_over.get(agent, 0) + done
            if self.program.agents[agent].of.warps > 1:  # every warp waits for its own
                self.uncovered[agent] = (*self.uncovered.get(agent, ()), *filter(self.order.is_alive, keys))
                return
        if action.choice == "bulk":
            keys = self._stored(agent, action, keys)
            if self.program.agents[agent].of.warps > 1:  # one thread stores and waits
                self._keep_from_other_warps(agent, keys)
        for key in keys:
            self.order.finishes(key, agent)

    def _keep_from_other_warps(self, agent: int, keys: tuple[Key, ...]) -> None:
        """One warp knows that stores have read their slots; the others do not until they meet, or wait for it.

        In one order of many that is seen at once: they may do what comes next, up to a wait that holds them up.
        """
        if not self.order.tries_orders:
            times = dict.fromkeys(keys, self.order.time(agent))
            self.unmet_stores[agent] = self.unmet_stores.get(agent, {}) | times
            return
        stored = {slot: access for slot, held in enumerate(self.accesses) for access in held if access.key in keys}
        for action in copy(self.sources[agent]):
            if action.meets or (action.waits and self.phase[action.barriers[0]] & 1 == action.number):
                return
            written = [slot for slot in stored if slot in action.slots] if action.op == "write" else []
            if written:
                store = stored[written[0]]
                raise self._race_of_warps(written[0], store, store._replace(how="generic", write=True))

    def _stored(self, agent: int, action: Action, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        """Of stores that are waited for, those accesses that are over: with .read only the reads of their sources."""
        written = tuple(key for key in keys if key in self.store_writes)
        if action.flag:
            self.unflushed[agent] = (*self.unflushed.get(agent, ()), *written)
            return tuple(key for key in keys if key not in self.store_writes)
        if action.number:
            return keys
        return (*keys, *self.unflushed.pop(agent, ()))

    def land(self, flight: Flight) -> None:
        """Bytes, or an arrival under way, reach their barrier; of a copy with a smaller `number` only these bytes."""
        whole = self.flights.pop(flight.key)
        self.ended, self.sent = [], []
        barrier = flight.barrier
        agent = flight.agent
        past = flight.past
        if flight.number < whole.number:
            self.flights[flight.key] = whole._replace(number=whole.number - flight.number)
            phase = self.count(barrier, agent, past, tx=-flight.number)
            if self.ended:
                torn = mistake_error(
                    self.program, "piece", barrier=barrier, phase=phase, tx=flight.number, bytes=whole.number
                )
                self.piece = torn.mistake
            return
        reached = self.program.barriers[barrier]
        by_copy = flight.op == "copy"
        blocks = {reached.home} if barrier < self.barriers else set()  # a barrier of threads outlives a block
        if by_copy:
            blocks.add(self.program.slots[flight.slots[0]].home)
            phase = self.count(barrier, agent, past, tx=-flight.number)
        else:
            phase = self.count(barrier, agent, past, arrivals=flight.number, takes_back=flight.op == "cp_drop")
        for key in flight.keys:
            self.order.finishes_with(key, barrier, phase)
        if flight.op == "late":
            self.uncovered[agent] = tuple(key for key in self.uncovered.get(agent, ()) if key not in flight.keys)
        for block in blocks:
            harmless = not by_copy and block == self.program.agents[agent].home
            if not harmless:
                what = "a copy" if by_copy else "an arrival"
                self._require_present(block, f"{what} of {self.program.agents[agent].title}", reached)
            self.order.lands_in(block, barrier, phase, harmless=harmless)
