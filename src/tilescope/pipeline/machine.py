"""What each action does to the state of a run: barriers counted, slots touched, copies sent on their way, groups closed.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from tilescope.bits import ones
from tilescope.errors import counted
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.parts import WARPGROUP_THREADS
from tilescope.pipeline.program import NONE, Action, Clock, Flight, Instance
from tilescope.pipeline.state import Access, Groups, State

_NO_GROUPS: Groups = ((),)
_HELD_FENCES = 64
_MAX_ENDS = 64  # ways to know that one access is finished: barriers of a multicast commit, and later commits


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
    by: tuple[str, ...]  # whose fence counts: that of the first agent before its arrival, of the second behind its wait
    between_agents: bool = False  # one agent alone needs none


_COPIED = "Expect its bytes on its barrier and wait for that phase first."
_ORDERED = "Let a barrier order {} before {}."
_VERB = {True: "writes", False: "reads"}
# fmt: off
HOW = {
    "generic":  How("threads", "{} (threads)", _ORDERED),
    "cp.async": How("cp.async", "cp.async of {}", "Wait for its group or barrier first."),
    "tma":      How("TMA", "a TMA copy of {}", _COPIED),
    "bulk":     How("bulk copy", "a bulk copy of {}", _COPIED),
    "wgmma":    How("wgmma", "wgmma of {}", "Let wgmma.wait_group come before the release."),
    "tcgen05":  How("tcgen05", "{} (tcgen05)", "Let tcgen05.commit release the slot, not an arrival."),
    "store":    How("TMA store", "a TMA store of {}", "Let the issuing thread wait with cp.async.bulk.wait_group.read first."),
}
_ASYNC = ("tma", "bulk", "wgmma", "tcgen05", "store")  # through the async proxy go TMA and the tensor cores
FENCES = {  # (space, first access, second)
    ("tmem", "tcgen05", "generic"):
        Fence("tcgen05.after", "tcgen05.fence::after_thread_sync", "behind the wait", ("second",), between_agents=True),
    ("tmem", "generic", "tcgen05"):
        Fence("tcgen05.before", "tcgen05.fence::before_thread_sync", "before the arrival", ("first",), between_agents=True),
    **dict.fromkeys((("smem", "generic", how) for how in _ASYNC),
        Fence("proxy.async", "fence.proxy.async", "behind the access and before the barrier", ("first",))),
    **dict.fromkeys((("smem", "cp.async", how) for how in _ASYNC),
        Fence("proxy.async", "fence.proxy.async", "between the copy's end and the read", ("first", "second"))),
}
# fmt: on


class Machine(State):
    """The state of a run that can go on: an agent performs its next action, or something under way lands."""

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.left[agent]
        if action.waits:
            return (self.phase[action.barriers[0]] & 1) != action.number
        if action.meets:
            return self.phase[action.barriers[0]] > self.standing.get((agent, action.barriers[0]), NONE)
        if action.op == "registers":
            return self.register_need(agent, action) <= self.pool[self.program.agents[agent].block]
        return True

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended = []
        clock = self.clock[agent] = self.clock[agent].copy()
        clock[agent] += 1
        self.actions_done += 1
        if action is None:
            self.leave(agent)
            if any(self.groups.get((agent, "bulk"), ())):
                raise self.program.mistake("stores", agent=agent)
        elif action.mask:
            raise self._mask_mistake(agent, action)
        elif self._do(agent, action, clock, int(clock[agent])):
            self.pc[agent] += 1
            self.next_action[agent] = next(self.sources[agent], None)

    def _do(self, agent: int, action: Action, clock: Clock, time: int) -> bool:
        """Change the state as an action says; whether it is over: a meeting takes two, arriving and leaving."""
        groups = self.groups.get((agent, action.choice), _NO_GROUPS)
        match action.op:
            case "wait" | "tail":
                self.pass_wait(action.barriers[0], agent, clock, time)
            case "expect" | "arrive" | "release":
                arrivals = int(action.flag) if action.op == "expect" else action.times
                dropped = arrivals if action.flag and action.op == "arrive" else 0
                for barrier in action.barriers:
                    self._reach(barrier, agent, time)
                    self.count(barrier, agent, clock, tx=action.number, arrivals=arrivals, dropped=dropped)
            case "init":
                for barrier in action.barriers:
                    self.initialised[barrier] = (agent, time)
            case "sync" | "bar_arrive" | "cluster":
                return self.meet(agent, action, clock)
            case "copy":
                self._copy(agent, action, clock, time)
            case "cp_arrive":
                self._cp_arrive(agent, action, clock)
            case "commit" if action.choice:
                self.groups[agent, action.choice] = (*groups, ())
            case "commit":
                keys = self._alive(self.groups.get((agent, "tcgen05"), _NO_GROUPS)[-1])
                self.groups[agent, "tcgen05"] = (keys,)  # a later commit waits for them as well
                for barrier in action.barriers:
                    self._reach(barrier, agent, time)
                    self._fly(Flight("commit", barrier, 1, (), agent, clock, keys))
            case "wait_group":
                done = max(0, len(groups) - 1 - max(0, action.number))
                for key in chain(*groups[:done]):
                    self._finish(key, agent, time)
                self.groups[agent, action.choice] = groups[done:]
            case "fence":
                before = self.fences.get((agent, action.choice), ())
                self.fences[agent, action.choice] = (*before[1 - _HELD_FENCES :], time)
                self.fence_clock[agent, action.choice] = clock
            case "registers":
                self.pool[self.program.agents[agent].block] -= self.register_need(agent, action)
                self.registers[agent] = action.number
                self.ended.append(NONE)
            case _:
                self._touch(agent, action, clock, time)
        return True

    def _reach(self, barrier: int, agent: int, time: int) -> None:
        """Note an operation on another block's barrier: that block must not have left."""
        reached = self.program.barriers[barrier]
        if reached.block != self.program.agents[agent].block:
            self._require_present(agent, reached.block, reached)
            self.remote[reached.block, agent] = max(time, self.remote.get((reached.block, agent), 0))

    def _require_present(self, agent: int, block: int, reached: Instance) -> None:
        if not self.present[block]:
            raise self._exit_mistake(block, self.program.agents[agent].title, reached.title)

    def _copy(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot, barrier in zip(action.slots, action.barriers or (NONE,) * len(action.slots), strict=True):
            reached = self.program.slots[slot]
            self._require_present(agent, reached.block, reached)
            fill = (barrier, self.phase[barrier]) if barrier != NONE else (NONE, agent)
            access = Access(agent, time, True, action.choice, self._new_key(), fill)
            self._begin(slot, access, clock)
            if action.choice == "cp.async":
                self.content[slot] = action.tile
                self._add_to_group(agent, access)
            elif barrier != NONE:
                flight = Flight("copy", barrier, action.number, (slot,), agent, clock, (self.last_key,), action.tile)
                self._fly(flight)

    def _cp_arrive(self, agent: int, action: Action, clock: Clock) -> None:
        barrier = action.barriers[0]
        if not action.flag:
            self.count(barrier, agent, clock, more=action.times)
        *closed, opened = self.groups.get((agent, "cp.async"), _NO_GROUPS)
        self.groups[agent, "cp.async"] = (*closed, self._alive(opened))
        keys = self._alive((*chain(*closed), *opened))
        # a cp_drop takes back what was added
        self._fly(Flight("cp_arrive" if action.flag else "cp_drop", barrier, action.times, (), agent, clock, keys))

    def _fly(self, flight: Flight) -> None:
        """Send bytes or an arrival on their way."""
        key = self._new_key()
        self.flights[key] = flight._replace(key=key)

    def land(self, flight: Flight) -> None:
        """Bytes, or an arrival under way, reach their barrier; of a copy with a smaller `number` only these bytes."""
        whole = self.flights.pop(flight.key)
        self.ended = []
        op, barrier, number, slots, agent, clock, keys, tile, _ = flight
        if number < whole.number:
            self.flights[flight.key] = whole._replace(number=whole.number - number)
            self.count(barrier, agent, clock, tx=-number, lands=True)
            return
        reached = self.program.barriers[barrier]
        place, blocks = self.agents + barrier, {reached.block}
        if op == "copy":
            self.content[slots[0]] = tile
            phase = self.count(barrier, agent, clock, tx=-number, lands=True)
            blocks.add(self.program.slots[slots[0]].block)
        else:
            phase = self.count(barrier, agent, clock, arrivals=number, covers=op != "cp_drop")
            blocks -= {self.program.agents[agent].block}
        for key in keys:
            self._finish(key, place, phase + 1)
        for block in blocks:
            self._require_present(agent, block, reached)
            self.remote[block, place] = phase + 1

    def _add_to_group(self, agent: int, access: Access) -> None:
        """The access belongs to the group of its kind that is open."""
        assert access.key is not None
        group = agent, "bulk" if access.how == "store" else access.how
        *closed, opened = self.groups.get(group, _NO_GROUPS)
        self.groups[group] = (*closed, (*opened, access.key))

    def _touch(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        """Touch slots: threads at once, a tensor core or a TMA store until a group or a commit is waited for."""
        how = action.choice if action.choice in ("wgmma", "tcgen05") else "store" if action.op == "store" else "generic"
        writes = action.op == "write"
        for slot, write in (*((slot, writes) for slot in action.slots), *((slot, True) for slot in action.into)):
            access = Access(agent, time, write, how, None if how == "generic" else self._new_key())
            self._begin(slot, access, clock, action.tile)
            if access.key is not None:
                self._add_to_group(agent, access)
            elif writes:
                self.content[slot] = action.tile

    def _new_key(self) -> int:
        self.last_key += 1
        return self.last_key

    def _alive(self, keys: tuple[int, ...]) -> tuple[int, ...]:
        """Those of accesses that may still matter."""
        return tuple(key for key in keys if key in self.finished)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        program, blocks = self.program, self.program.pipeline.blocks
        beyond = [rank for rank in ones(action.mask) if rank >= blocks]
        every = (1 << blocks) - 1
        named = [*(program.barriers[at] for at in action.barriers), *(program.slots[at] for at in action.slots)]
        return program.mistake(
            "mask",
            more=" With cta_group::1 a commit has no peer: leave the peer's bit out." if action.op == "commit" else "",
            subject=(named or program.agents[agent:])[0].title,
            op=action.op,
            agent=agent,
            mask=action.mask,
            beyond=", ".join(map(str, beyond)),
            size=counted(blocks, "block"),
            blocks=blocks,
            works=action.mask & every or every,
        )

    def register_need(self, agent: int, action: Action) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative where it gives some back."""
        threads = self.program.agents[agent].of.whole_threads(WARPGROUP_THREADS)
        return int((action.number - self.registers[agent]) * threads)

    def check_exits(self) -> None:
        """After the run: whatever reached into a block certainly did so before that block left."""
        for (block, place), value in self.remote.items():
            ends = (clock for clock, agent in zip(self.clock, self.program.agents, strict=True) if agent.block == block)
            if not any(clock[place] >= value for clock in ends):
                if place < self.agents:
                    raise self._exit_mistake(block, self.program.agents[place].title, "an mbarrier there")
                title = self.program.barriers[place - self.agents].title
                raise self._exit_mistake(block, f"what completes on {title}", "it")

    def _exit_mistake(self, block: int, who: str, what: str) -> MistakeFoundError:
        where = f"block {block}" if self.program.pipeline.blocks > 1 else "the block"
        return self.program.mistake("left", where=where, who=who, what=what, block=block)

    def _finish(self, key: int, place: int, value: int) -> None:
        """From now on whoever has `value` at `place` of its clock knows that the access is finished."""
        if key in self.finished:
            self.finished[key] = (*self.finished[key][-_MAX_ENDS:], (place, value))

    def _ordered(self, access: Access, clock: Clock | None) -> bool:
        """Whether the access is finished for whoever has this clock."""
        if clock is None:
            return False
        if access.key is None:
            return bool(clock[access.agent] >= access.time)
        return any(clock[place] >= value for place, value in self.finished[access.key])

    def _begin(self, slot: int, access: Access, clock: Clock, tile: int | None = None) -> None:
        """Begin an access, or stop at the race that it makes."""
        kept: list[Access] = []
        for earlier in self.accesses[slot]:
            if not (earlier.write or access.write):
                keep = earlier.agent != access.agent or not self._ordered(earlier, clock)
            else:
                same_fill = earlier.write and access.write and earlier.fill is not None and earlier.fill == access.fill
                in_order = earlier.how == access.how == "tcgen05" and earlier.agent == access.agent
                if not same_fill and not in_order:
                    if not self._ordered(earlier, clock):
                        raise self._race(slot, earlier, access)
                    self._check_fence(slot, earlier, access, clock)
                keep = same_fill or not access.write
            if keep:
                kept.append(earlier)
            elif earlier.key is not None:
                del self.finished[earlier.key]
        if not access.write:
            if not any(earlier.write for earlier in self.accesses[slot]):
                raise self.program.mistake("unfilled", agent=access.agent, slot=slot)
            held = self.content[slot]
            if tile is not None and held is not None and held != tile:
                raise self.program.mistake("stale", agent=access.agent, slot=slot, tile=tile, held=held)
        if access.key is not None:
            self.finished[access.key] = ()
        self.accesses[slot] = (*kept, access)

    def _race(self, slot: int, earlier: Access, access: Access) -> MistakeFoundError:
        program = self.program
        barrier, phase = earlier.fill or (NONE, 0)
        if not access.write and barrier != NONE and self.phase[barrier] > phase:
            return program.mistake("early end", phase=phase, barrier=barrier, slot=slot, agent=access.agent)
        how, first, second = HOW[earlier.how], program.agents[earlier.agent].title, program.agents[access.agent].title
        return program.mistake(
            "race",
            slot=slot,
            agent=access.agent,
            agent_before=earlier.agent,
            done="written" if access.write else "read",
            how=HOW[access.how].words,
            doing=f"{how.subject.format(first)} {'' if earlier.key is None else 'still '}{_VERB[earlier.write]}",
            finish=how.finish.format(first, second),
        )

    def _check_fence(self, slot: int, earlier: Access, access: Access, clock: Clock) -> None:
        """Refuse an access that is in order but lacks the fence that its kind needs; of a read before it, only warn."""
        program = self.program
        row = program.slots[slot].of
        fence = FENCES.get((row.space, earlier.how, access.how))
        if fence is None or (fence.between_agents and earlier.agent == access.agent):
            return
        times, seen = self.fences.get((earlier.agent, fence.kind), ()), self.fence_clock.get((access.agent, fence.kind))
        fenced = "first" in fence.by and any(earlier.time < time <= clock[earlier.agent] for time in times)
        if fenced or ("second" in fence.by and self._ordered(earlier, seen)):
            return
        error = program.mistake(
            "fence", slot=slot, agent=access.agent, agent_before=earlier.agent, fence=fence.instruction, where=fence.where,
            does=_VERB[access.write], did="wrote" if earlier.write else "read", how=HOW[access.how].words,
            how_before=HOW[earlier.how].words,
        )  # fmt: skip
        if earlier.write or fence.between_agents:
            raise error
        self.warnings.setdefault((error.mistake.rule, row.name, program.agents[earlier.agent].title), error.mistake)
