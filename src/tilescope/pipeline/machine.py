"""What each action does to the state of a run: barriers counted, slots touched, copies sent on their way, groups closed.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.

A role of several warps is one agent here, but its warps do not wait for each other: what threads read or wrote is known to
others when all warps have met (sync) or arrived (a count of at least the warps), not when one of them arrives or stores.
"""

from __future__ import annotations

from copy import copy
from itertools import chain
from typing import NamedTuple

from tilescope.bits import ones
from tilescope.errors import counted
from tilescope.pipeline.clocks import Clocks
from tilescope.pipeline.contents import Fill, Segment, aged, gap, laid, read
from tilescope.pipeline.kinds import NO_PEER
from tilescope.pipeline.mistake import Mistake, MistakeFoundError
from tilescope.pipeline.order import Access
from tilescope.pipeline.parts import WARPGROUP_THREADS
from tilescope.pipeline.program import NONE, Action, Flight, Instance, Key
from tilescope.pipeline.state import Groups, State

_NO_GROUPS: Groups = ((),)


class How(NamedTuple):
    """A way to reach memory: in words, as the subject of a sentence, and what lets others know that it is finished."""

    words: str
    subject: str
    finish: str


class Fence(NamedTuple):
    """What two accesses need between them: the kind of a fence, its instruction, and where it stands."""

    kind: str
    instruction: str
    where: str
    by: str  # whose fence counts: that of the "first" agent, of the "second", or of "any" on the way
    between_agents: bool = False  # one agent alone needs none


_COPIED = "Expect the copy's bytes on its barrier, and wait for that phase first."
_ORDERED = "Put a barrier between: {} arrives after its access, and {} waits before its own."
_VERB = {True: "writes", False: "reads"}
HOW = {
    "generic": How("threads", "{} (threads)", _ORDERED),
    "cp.async": How(
        "cp.async",
        "cp.async of {}",
        "Commit its group and wait for it (cp.async.wait_group), or wait for its barrier first.",
    ),
    "tma": How("TMA", "a TMA copy of {}", _COPIED),
    "bulk": How("bulk copy", "a bulk copy of {}", _COPIED),
    "wgmma": How("wgmma", "wgmma of {}", "Commit its group and wait for it (wgmma.wait_group) before the release."),
    "tcgen05": How(
        "tcgen05",
        "{} (tcgen05)",
        "Wait for the barrier of a tcgen05.commit first: a thread's arrival does not wait for products.",
    ),
    "store": How(
        "TMA store",
        "a TMA store of {}",
        "Let the thread that stores commit its group and wait with cp.async.bulk.wait_group.read first.",
    ),
}
_ASYNC = ("tma", "bulk", "wgmma", "tcgen05", "store")  # through the async proxy go TMA and the tensor cores
_OUT_OF_TENSOR_MEMORY = Fence(
    "tcgen05.after", "tcgen05.fence::after_thread_sync", "after the wait", "second", between_agents=True
)
_INTO_TENSOR_MEMORY = Fence(
    "tcgen05.before", "tcgen05.fence::before_thread_sync", "before the arrival", "first", between_agents=True
)
_THREADS_TO_ASYNC = Fence("proxy.async", "fence.proxy.async", "after the access and before the barrier", "any")
_CP_ASYNC_TO_ASYNC = Fence("proxy.async", "fence.proxy.async", "between the copy's end and the read", "any")
FENCES = {  # (space, first access, second)
    ("tmem", "tcgen05", "generic"): _OUT_OF_TENSOR_MEMORY,
    ("tmem", "generic", "tcgen05"): _INTO_TENSOR_MEMORY,
    **{("smem", "generic", how): _THREADS_TO_ASYNC for how in _ASYNC},
    **{("smem", "cp.async", how): _CP_ASYNC_TO_ASYNC for how in _ASYNC},
    **{("gmem", "generic", how): _THREADS_TO_ASYNC for how in ("tma", "bulk", "store")},
}


class Machine(State):
    """The state of a run that can go on: an agent performs its next action, or something under way lands."""

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.left[agent] and not self._late_arrivals(agent)
        if self.starts_late(agent):
            return False
        if action.op == "poll":
            return self.tx[action.barriers[0]] >= action.number
        if action.op == "griddepcontrol":
            return action.choice == "launch" or self.program.earlier[agent] or self._grid_before_has_ended()
        if action.waits:
            return self.phase[action.barriers[0]] & 1 != action.number
        if action.op in ("sync", "bar_arrive", "cluster") and action.choice != "wait" and self._late_arrivals(agent):
            return False
        if action.meets:
            standing = self.standing.get((agent, action.barriers[0]))
            if standing is None or (action.choice != "wait" and standing.place != self.pc[agent]):
                return True  # it has not arrived yet
            return self.phase[action.barriers[0]] > standing.phase
        if action.op == "registers":
            return self.register_need(agent, action) <= self.pool[self.program.agents[agent].home]
        return True

    def _grid_before_has_ended(self) -> bool:
        return self.phase[self.program.grid] > 0 or not any(self.program.earlier)

    def starts_late(self, agent: int) -> bool:
        """Whether an agent has to wait for the grid before, which does not let this one start sooner."""
        is_first = self.pc[agent] == 0 and self.program.starts_late and not self.program.earlier[agent]
        return is_first and not self._grid_before_has_ended()

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended, self.sent = [], []
        self.order.begin(agent)
        if self.program.starts_late and not self.program.earlier[agent] and self.pc[agent] == 0:
            self.order.meets(self.program.grid, agent)
        self.actions_done += 1
        if action is None:
            self._leave_work(agent)
            self.leave(agent)
            self._leave_memory(self.program.agents[agent].home)
        elif action.mask:
            raise self._mask_mistake(agent, action)
        elif self._do(agent, action):
            self.pc[agent] += 1
            self.next_action[agent] = next(self.sources[agent], None)

    def _do(self, agent: int, action: Action) -> bool:
        """Change the state as an action says; whether it is over: a meeting takes two, arriving and leaving."""
        match action.op:
            case "wait" | "tail":
                self.pass_wait(action.barriers[0], agent)
            case "expect" | "arrive" | "release":
                self._arrive(agent, action)
            case "init":
                self._initialise(agent, action)
            case "sync" | "bar_arrive" | "cluster":
                return self._meet_threads(agent, action)
            case "copy":
                self._copy(agent, action)
            case "cp_arrive":
                self._cp_arrive(agent, action)
            case "commit" if action.choice:
                self.groups[agent, action.choice] = (*self._groups(agent, action.choice), ())
            case "commit":
                self._commit(agent, action)
            case "wait_group":
                self._wait_group(agent, action)
            case "fence" if action.choice == "mbarrier_init":
                self.order.shows_init(agent)
            case "fence":
                own = {access.key for access in chain(*self.accesses) if self._is_by_own_threads(access, agent)}
                self.order.fences(agent, action.choice, chain(*self.accesses), own)
            case "signal":
                self.signal(action.barriers[0], agent, action.times, action.step)
            case "poll":
                thresholds = self.program.thresholds.get(action.barriers[0], [])
                phase = thresholds.index(action.number) if action.number else NONE
                self.order.polls(action.barriers[0], phase, agent)
            case "griddepcontrol":
                if action.choice == "wait":
                    self.order.meets(self.program.grid, agent)
            case "registers":
                self._take_registers(agent, action)
            case _:
                self._touch(agent, action)
        return True

    def _groups(self, agent: int, kind: str) -> Groups:
        return self.groups.get((agent, kind), _NO_GROUPS)

    def _key(self, agent: int, number: int) -> Key:
        return agent, self.pc[agent], number

    # barriers

    def _arrive(self, agent: int, action: Action) -> None:
        arrivals = int(action.flag) if action.op == "expect" else action.times
        dropped = arrivals if action.flag and action.op == "arrive" else 0
        by_all_warps = arrivals >= self.program.agents[agent].of.warps
        tx = action.number if action.op == "expect" else 0
        keys = tuple(filter(self.order.is_alive, self.uncovered.get(agent, ())))
        if by_all_warps and keys and not dropped:  # the last warp may be late
            self._arrive_late(agent, action, keys)
            return
        for barrier in action.barriers:
            self._reach(barrier, agent)
            if by_all_warps:
                self._cover_with(agent, barrier)
            weak = action.scope == "cta" and self._is_elsewhere(barrier, agent)
            self.count(barrier, agent, tx=tx, arrivals=arrivals, dropped=dropped, weak=weak, step=action.step)

    def _meet_threads(self, agent: int, action: Action) -> bool:
        """Come to a barrier of threads; whether the action is over: a meeting takes two, arriving and leaving."""
        if action.meets and action.choice != "wait":
            self._cover(agent)
        elif action.choice != "wait":  # the warps go on, one sooner than the other
            self._cover_with(agent, action.barriers[0])
        is_over = self.meet(agent, action)
        if is_over and action.meets:  # what one warp knew all of them know
            self.unmet_stores.pop(agent, None)
            self.unmet_inits = {barrier: maker for barrier, maker in self.unmet_inits.items() if maker != agent}
        return is_over

    def _arrive_late(self, agent: int, action: Action, keys: tuple[Key, ...]) -> None:
        """Several warps arrive behind accesses of their own: one may go on before the last has come.

        Where orders are tried one by one, the arrival comes by itself; else it counts now, and whoever needs it must know
        of a phase in which it counted, or that the warps have met.
        """
        self.uncovered[agent] = keys
        phases = [self.phase[barrier] for barrier in action.barriers]
        blocks = [self.program.barriers[barrier].home for barrier in action.barriers]
        if not self.order.tries_orders:
            self.order.is_late(action.barriers, phases, blocks, agent)
        for number, barrier in enumerate(action.barriers):
            self._reach(barrier, agent)
            self._require_met(barrier, agent)
            if self.order.tries_orders:
                key = self._key(agent, number)
                self._send(Flight("late", barrier, action.times, (), agent, None, keys, key))
                continue
            weak = action.scope == "cta" and self._is_elsewhere(barrier, agent)
            self.count(barrier, agent, arrivals=action.times, weak=weak, step=action.step)
            for key in keys:
                self.order.finishes_after(key, barrier, phases[number])

    def _late_arrivals(self, agent: int) -> list[Flight]:
        """Arrivals whose last warp is not there yet."""
        return [flight for flight in self.flights.values() if flight.op == "late" and flight.agent == agent]

    def can_land(self, flight: Flight) -> bool:
        """Whether something under way may land now: a warp arrives in the order of its steps."""
        if flight.op != "late":
            return True
        return all(other.key[1] >= flight.key[1] for other in self._late_arrivals(flight.agent))

    def _cover_with(self, agent: int, barrier: int) -> None:
        """All warps of an agent arrive, and go on: what they did before is over when the phase ends."""
        self._require_met(barrier, agent)
        self.order.warps_arrive(agent, barrier, self.phase[barrier])
        keys = tuple(filter(self.order.is_alive, self.uncovered.get(agent, ())))
        for key in keys:
            self.order.finishes_after(key, barrier, self.phase[barrier])
        if keys:
            self.uncovered[agent] = keys
        else:
            self.uncovered.pop(agent, None)

    def _cover(self, agent: int) -> None:
        """All warps of an agent meet: what they did before is over for whoever is behind that."""
        self.order.warps_meet(agent)
        for key in self.uncovered.pop(agent, ()):
            self.order.finishes(key, agent)

    def _initialise(self, agent: int, action: Action) -> None:
        for barrier in action.barriers:
            if self.initialised[barrier]:
                raise self.program.mistake("init twice", agent=agent, barrier=barrier)
            self.initialised[barrier] = True
            if self.program.agents[agent].of.warps > 1:
                self.unmet_inits[barrier] = agent
            self.order.initialises(barrier, agent)

    def _is_elsewhere(self, barrier: int, agent: int) -> bool:
        return self.program.barriers[barrier].home != self.program.agents[agent].home

    def _reach(self, barrier: int, agent: int) -> None:
        """Note an operation on another block's barrier: that block must not have left."""
        if self._is_elsewhere(barrier, agent):
            reached = self.program.barriers[barrier]
            self._require_present(reached.home, self.program.agents[agent].title, reached)
            self.order.reaches(reached.home, agent)

    def _require_present(self, block: int, who: str, reached: Instance) -> None:
        if not self.present[block]:
            raise self.exit_mistake(block, who, reached.title)

    def _require_memory(self, agent: int, slot: int) -> None:
        """Stop where an agent reaches for the memory of a block that has left; global memory stays."""
        reached = self.program.slots[slot]
        if reached.of.space != "gmem":
            self._require_present(reached.home, self.program.agents[agent].title, reached)

    # copies

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
                past, keys = self.order.past(agent), (access.key, *(one.key for one in reads))
                self._send(Flight("copy", barrier, action.number, (slot,), agent, past, keys, access.key))

    def _read_source(self, source: int, agent: int, action: Action, number: int) -> Access:
        """A copy reads its source in global memory until it has landed."""
        size = self.program.slots[source].of.bytes or 1
        access = Access(self._key(agent, number), agent, False, action.choice, 0, size)
        self._begin(source, access, ends_at_once=False)
        self._require_content(source, agent, action)
        return access

    def _extent(self, slot: int, action: Action, agent: int, fill: Fill) -> tuple[int, int]:
        """The bytes of a slot that a copy fills: where it says, or behind the other copies of the same phase."""
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
        facts = {"slot": slot, "agent": agent, "size": size, "bytes": action.number}
        if end > size and start and action.offset is None and action.number <= size:
            raise self.program.mistake("too much", **facts, together=end)
        if end > size:
            raise self.program.mistake("beyond", **facts, offset=start, end=end)
        return start, end

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
            past, key = self.order.past(agent), self._key(agent, number)
            self._send(Flight("commit", barrier, 1, (), agent, past, keys, key))

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
            written = stored.keys() & {*action.slots} if action.op == "write" else ()
            for slot in written:
                raise self._race_of_warps(slot, stored[slot], stored[slot]._replace(how="generic", write=True))

    def _stored(self, agent: int, action: Action, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        """Of stores that are waited for, those accesses that are over: with .read only the reads of their sources."""
        written = tuple(key for key in keys if key in self.store_writes)
        if action.flag:
            self.unflushed[agent] = (*self.unflushed.get(agent, ()), *written)
            return tuple(key for key in keys if key not in self.store_writes)
        return (*keys, *(self.unflushed.pop(agent, ()) if not action.number else ()))

    def _send(self, flight: Flight) -> None:
        """Send bytes or an arrival on their way."""
        self.flights[flight.key] = flight
        self.sent.append(flight.key)

    def land(self, flight: Flight) -> None:
        """Bytes, or an arrival under way, reach their barrier; of a copy with a smaller `number` only these bytes."""
        whole = self.flights.pop(flight.key)
        self.ended, self.sent = [], []
        barrier, agent, past = flight.barrier, flight.agent, flight.past
        if flight.number < whole.number:
            self.flights[flight.key] = whole._replace(number=whole.number - flight.number)
            phase = self.count(barrier, agent, past, tx=-flight.number)
            if self.ended:
                facts = {"barrier": barrier, "phase": phase, "tx": flight.number, "bytes": whole.number}
                self.piece = self.program.mistake("piece", **facts).mistake
            return
        reached = self.program.barriers[barrier]
        by_copy = flight.op == "copy"
        blocks = {reached.home}
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
                title = self.program.agents[agent].title
                self._require_present(block, f"{'a copy' if by_copy else 'an arrival'} of {title}", reached)
            self.order.lands_in(block, barrier, phase, harmless=harmless)

    # memory

    def _add_to_group(self, access: Access) -> None:
        """The access belongs to the group of its kind that is open."""
        group = access.agent, "bulk" if access.how == "store" else access.how
        *closed, opened = self._groups(*group)
        self.groups[group] = (*closed, (*opened, access.key))
        if access.how == "tcgen05":
            self.uncommitted[access.agent] = (*self.uncommitted.get(access.agent, ()), access.key)

    def _touch(self, agent: int, action: Action) -> None:
        """Touch slots: threads at once, a tensor core or a TMA store until a group or a commit is waited for."""
        if action.choice in ("wgmma", "tcgen05"):
            how = action.choice
        else:
            how = "store" if action.op == "store" else "generic"
        writes = action.op == "write"
        touched = [*((slot, writes) for slot in action.slots), *((slot, True) for slot in action.into)]
        for number, (slot, write) in enumerate(touched):
            self._require_memory(agent, slot)
            size = self.program.slots[slot].of.bytes or 1
            access = Access(self._key(agent, number), agent, write, how, 0, size)
            by_one_warp = how == "generic" and self.program.agents[agent].of.warps == 1
            self._begin(slot, access, ends_at_once=by_one_warp)
            if write:
                tile = action.tile if writes else None
                self.contents[slot] = (Segment(0, size, tile, (NONE, agent, NONE)),)
            else:
                self._require_content(slot, agent, action)
            if how == "store" and write:
                self.store_writes[access.key] = True
            if how != "generic":
                self._add_to_group(access)
            elif not by_one_warp:
                self.uncovered[agent] = (*self.uncovered.get(agent, ()), access.key)

    def _require_content(self, slot: int, agent: int, action: Action) -> None:
        """Stop where a slot does not hold what its reader means."""
        contents, program = self.contents[slot], self.program
        if not contents:
            raise program.mistake("unfilled", agent=agent, slot=slot)
        size = program.slots[slot].of.bytes or 1
        missing = gap(contents, size)
        if missing is not None:
            first, end = missing
            facts = {"agent": agent, "slot": slot, "size": size, "first": first, "last": end - 1}
            raise program.mistake("partial", **facts, bytes=size - (end - first))
        for part in contents:
            if None not in (action.tile, part.tile) and part.tile != action.tile:
                raise program.mistake("stale", agent=agent, slot=slot, tile=action.tile, held=part.tile)
        self.contents[slot] = read(contents)

    def _begin(self, slot: int, access: Access, *, ends_at_once: bool) -> None:
        """Begin an access, or stop at the race that it makes."""
        kept: list[Access] = []
        for earlier in self.accesses[slot]:
            overlaps = earlier.start < access.end and access.start < earlier.end
            if overlaps and (earlier.write or access.write):
                keep = self._meet_access(slot, earlier, access)
            elif earlier.write or access.write or (earlier.agent, earlier.how) != (access.agent, access.how):
                keep = True
            else:
                keep = not self.order.knows(earlier, access.agent)
            is_unmet = earlier.key in self.unmet_stores.get(earlier.agent, ())  # only one of its warps knows the end
            if is_unmet or (keep and self.order.needs_later(earlier)):
                kept.append(earlier)
            else:
                self.order.forgets(earlier.key)
        self.accesses[slot] = (*kept, access)
        self.order.starts(access, ends_at_once=ends_at_once)

    def _meet_access(self, slot: int, earlier: Access, access: Access) -> bool:
        """Check an access against an earlier one that it conflicts with; whether the earlier one still matters."""
        covers = access.write and access.start <= earlier.start and earlier.end <= access.end
        if earlier.fill is not None and earlier.fill == access.fill:  # copies of one phase
            named_apart = None not in (earlier.tile, access.tile) and earlier.tile != access.tile
            if self.program.slots[slot].of.bytes:
                facts = {"slot": slot, "agent": access.agent, "first": access.start, "last": access.end - 1}
                raise self.program.mistake("overlap", **facts)
            if named_apart:
                raise self.program.mistake("two tiles", slot=slot, agent=access.agent)
            return True
        own = earlier.agent == access.agent
        if own and earlier.how == access.how == "tcgen05":  # they run in order
            return not covers
        if access.how == "generic" and self._is_by_own_threads(earlier, access.agent):
            return not covers
        if own and access.how in ("generic", "cp.async") and earlier.key in self.unmet_stores.get(access.agent, ()):
            raise self._race_of_warps(slot, earlier, access)
        if not self.order.knows(earlier, access.agent):
            raise self._race(slot, earlier, access)
        self._check_fence(slot, earlier, access)
        return not covers

    def _is_by_own_threads(self, access: Access, agent: int) -> bool:
        """Whether an agent's threads made an access, or waited for their cp.async: they see their own."""
        waited_for = access.how == "cp.async" and access.key in self.uncovered.get(agent, ())
        return access.agent == agent and (access.how == "generic" or waited_for)

    def _race(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        program = self.program
        how, first, second = HOW[earlier.how], program.agents[earlier.agent], program.agents[access.agent]
        if earlier.key in self.uncovered.get(earlier.agent, ()):
            return self._race_of_warps(slot, earlier, access)
        if self.order.is_out_of_scope(earlier, access.agent):
            facts = {"agent": access.agent, "agent_before": earlier.agent, "slot": slot}
            return program.mistake("scope", **facts, does=_VERB[access.write], did="wrote" if earlier.write else "read")
        barrier, phase, _ = earlier.fill or (NONE, 0, NONE)
        if not access.write and barrier != NONE and self.last_pass.get((access.agent, barrier), 0) > phase:
            return program.mistake("early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
        return program.mistake(
            "race",
            slot=slot,
            agent=access.agent,
            agent_before=earlier.agent,
            done="written" if access.write else "read",
            how=HOW[access.how].words,
            how_before=earlier.how,
            doing=f"{how.subject.format(first.title)} {'' if earlier.how == 'generic' else 'still '}{_VERB[earlier.write]}",
            finish=how.finish.format(first.title, second.title),
        )

    def _race_of_warps(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        """A warp of a role goes on before the others know, or are done."""
        return self.program.mistake(
            "warps" if earlier.how != "store" else "store warps",
            agent=access.agent,
            agent_before=earlier.agent,
            slot=slot,
            warps=self.program.agents[earlier.agent].of.warps,
            did="wrote" if earlier.write else "read",
            does=_VERB[access.write],
            how=HOW[access.how].words,
        )

    def _check_fence(self, slot: int, earlier: Access, access: Access) -> None:
        """Refuse an access that is in order but lacks the fence that its kind needs; of a read before it, only warn."""
        program = self.program
        row = program.slots[slot].of
        fence = FENCES.get((row.space, earlier.how, access.how))
        if fence is None or (fence.between_agents and earlier.agent == access.agent):
            return
        by = {"first": (earlier.agent,), "second": (access.agent,), "any": None}[fence.by]
        if self.order.is_fenced(earlier, fence.kind, by, access.agent):
            return
        error = program.mistake(
            "fence",
            slot=slot,
            agent=access.agent,
            agent_before=earlier.agent,
            fence=fence.instruction,
            where=fence.where,
            does=_VERB[access.write],
            did="wrote" if earlier.write else "read",
            how=HOW[access.how].words,
            how_before=HOW[earlier.how].words,
        )
        if earlier.write or fence.between_agents:
            raise error
        self.warn(error.mistake, row.name, program.agents[earlier.agent].title)

    # registers, masks, leaving

    def register_need(self, agent: int, action: Action) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative where it gives some back."""
        threads = self.program.agents[agent].of.whole_threads(WARPGROUP_THREADS)
        return int((action.number - self.registers[agent]) * threads)

    def _take_registers(self, agent: int, action: Action) -> None:
        block, need = self.program.agents[agent].home, self.register_need(agent, action)
        self.pool[block] -= need
        self.registers[agent] = action.number
        self.order.takes_registers(agent, block, need)
        self.ended.append(NONE)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        program, blocks = self.program, self.program.pipeline.blocks
        beyond = [rank for rank in ones(action.mask) if rank >= blocks]
        every = (1 << blocks) - 1
        subjects = [
            *(program.barriers[number] for number in action.barriers),
            *(program.slots[number] for number in action.slots),
            program.agents[agent],
        ]
        return program.mistake(
            "mask",
            more=NO_PEER if action.op == "commit" else "",
            subject=subjects[0].title,
            op=action.op,
            agent=agent,
            mask=action.mask,
            beyond=", ".join(map(str, beyond)),
            size=counted(blocks, "block"),
            blocks=blocks,
            works=action.mask & every or every,
        )

    def _leave_work(self, agent: int) -> None:
        """Stop where an agent leaves work behind that reads or writes its block's memory."""
        if any(self._groups(agent, "bulk")):
            raise self.program.mistake("stores", agent=agent)
        if any(self._groups(agent, "wgmma")):
            raise self.program.mistake("products", agent=agent, unit="wgmma", ended="wgmma.wait_group 0")
        if self.uncommitted.get(agent):
            ended = "a wait for the barrier of a tcgen05.commit"
            raise self.program.mistake("products", agent=agent, unit="tcgen05.mma", ended=ended)
        if {*chain(*self._groups(agent, "cp.async"))} - {*self.heard_of.get(agent, ())}:
            title = self.program.agents[agent].title
            self.warn(self.program.mistake("cp.async left", agent=agent).mistake, title, title)
        self._cover(agent)

    def _leave_memory(self, block: int) -> None:
        """Stop where all agents of a block have left, and its memory is still used: by other blocks, or by a copy without barrier."""
        if self.present[block]:
            return
        agents = [number for number, agent in enumerate(self.program.agents) if agent.home == block]
        for slot, accesses in zip(self.program.slots, self.accesses, strict=True):
            if slot.home != block or slot.of.space == "gmem":
                continue
            for access in accesses:
                is_untold = access.how in ("tma", "bulk") and access.fill is not None and access.fill[0] == NONE
                if not (is_untold or access.agent not in agents):
                    continue
                if not any(self.order.knows(access, agent) for agent in agents):
                    who = HOW[access.how].subject.format(self.program.agents[access.agent].title)
                    raise self.exit_mistake(block, who, slot.title)

    def warn(self, mistake: Mistake, subject: str, by: str) -> None:
        """Keep a mistake as a warning, once for its subject and whoever makes it."""
        self.warnings.setdefault((mistake.rule, subject, by), mistake)

    def check_exits(self, clocks: Clocks) -> None:
        """After the run: whatever reached into a block certainly did so before that block left."""
        for block, place in clocks.unseen(clocks.remote):
            if place < self.agents:
                raise self.exit_mistake(block, self.program.agents[place].title, "one of its mbarriers")
            title = self.program.barriers[place - self.agents].title
            raise self.exit_mistake(block, f"a copy or an arrival for {title}", "it")
        for block, barrier in clocks.unseen_warps():
            title = self.program.barriers[barrier].title
            raise self.exit_mistake(block, f"the last warp that arrives at {title}", "it")
        for block, place in clocks.unseen(clocks.local):
            barrier = place - self.agents
            mistake = self.program.mistake("arrival left", where=self._where(block), barrier=barrier).mistake
            self.warn(mistake, self.program.barriers[barrier].of.name, "")

    def exit_mistake(self, block: int, who: str, what: str) -> MistakeFoundError:
        """Something reaches into a block that may have left."""
        return self.program.mistake("left", where=self._where(block), who=who, what=what, block=block)

    def _where(self, block: int) -> str:
        grid, rank = divmod(block, self.program.pipeline.blocks)
        where = f"block {rank}" if self.program.pipeline.blocks > 1 else "the block"
        return f"{where} of the grid before" if grid else where
