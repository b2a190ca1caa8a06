"""What each action does to the state of a run: barriers counted, slots touched, copies sent on their way, groups closed."""

from __future__ import annotations

from tilescope.errors import counted
from tilescope.pipeline.barriers import can_meet, count, leave, meet, pass_wait
from tilescope.pipeline.memory import finish, touch
from tilescope.pipeline.mistake import MistakeFoundError
from tilescope.pipeline.program import NONE, Action, Instances
from tilescope.pipeline.state import Access, Clock, Flight, Groups, State

WARPGROUP_THREADS = 128
_NO_GROUPS: Groups = ((), ())
_HELD_FENCES = 64


class Machine(State):
    """The state of a run that can go on: an agent performs its next action, or something under way lands."""

    def current(self, agent: int) -> Action | None:
        """What an agent does next, or None when it has left."""
        return None if self.left[agent] else self.next_action[agent]

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.left[agent]
        if action.waits:
            return (self.phase[action.barriers[0]] & 1) != action.number
        if _meets(action):
            return can_meet(self, agent, action)
        if action.op == "registers":
            return self.register_need(agent, action) <= self.pool[self.program.agents[agent].rank]
        return True

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended = []
        clock = self.clock[agent] = self.clock[agent].copy()
        clock[agent] += 1
        self.actions_done += 1
        if action is None:
            self._leave(agent)
            return
        if action.mask:
            raise self._mask_mistake(agent, action)
        if not self._do(agent, action, clock, int(clock[agent])):
            return
        self.pc[agent] += 1
        self.next_action[agent] = self.steps[agent].at(self.pc[agent])

    def _do(self, agent: int, action: Action, clock: Clock, time: int) -> bool:
        """Change the state as an action says; whether it is over: a meeting takes two, arriving and leaving."""
        groups = self.groups.get((agent, action.choice), _NO_GROUPS)
        match action.op:
            case "wait" | "tail":
                pass_wait(self, action.barriers[0], agent, clock, time)
            case "expect" | "arrive" | "release":
                self._arrive(agent, action, clock, time)
            case "init":
                for barrier in action.barriers:
                    self.initialised[barrier] = (agent, time)
            case "sync" | "bar_arrive" | "cluster":
                return meet(self, agent, action, clock, waits=_meets(action))
            case "copy":
                self._copy(agent, action, clock, time)
            case "cp_arrive":
                self._cp_arrive(agent, action, clock)
            case "commit" if action.choice:
                self.groups[agent, action.choice] = ((), (*groups[1], groups[0]))
            case "commit":
                keys = self._alive(self.groups.get((agent, "tcgen05"), _NO_GROUPS)[0])
                self.groups[agent, "tcgen05"] = (keys, ())  # a later commit waits for them as well
                for barrier in action.barriers:
                    self._reach(barrier, agent, time)
                    self._fly(agent, "commit", barrier, 1, keys)
            case "wait_group":
                done = max(0, len(groups[1]) - action.number)
                for key in (key for group in groups[1][:done] for key in group):
                    finish(self, key, agent, time)
                self.groups[agent, action.choice] = (groups[0], groups[1][done:])
            case "fence":
                before = self.fences.get((agent, action.choice), ())
                self.fences[agent, action.choice] = (*before[1 - _HELD_FENCES :], time)
                self.fence_clock[agent, action.choice] = clock
            case "registers":
                self.pool[self.program.agents[agent].rank] -= self.register_need(agent, action)
                self.registers[agent] = action.number
                self.ended.append(NONE)
            case _:
                self._touch(agent, action, clock, time)
        return True

    def _arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        expects = action.op == "expect"
        arrivals = int(action.flag) if expects else action.times
        dropped = arrivals if action.flag and not expects else 0
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            count(self, barrier, agent, clock, tx=action.number, arrivals=arrivals, dropped=dropped)

    def _reach(self, barrier: int, agent: int, time: int) -> None:
        """Note an operation on another block's barrier: that block must not have left."""
        block = self.program.barriers.rank(barrier)
        if block != self.program.agents[agent].rank:
            self._require_present(block, agent, self.program.barriers, barrier)
            self.remote[block, agent] = max(time, self.remote.get((block, agent), 0))

    def _require_present(self, block: int, agent: int, reached: Instances, number: int) -> None:
        if not self.present[block]:
            raise self._exit_mistake(block, self.program.agents[agent].name, reached.name(number))

    def _copy(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot, barrier in zip(action.slots, action.barriers or (NONE,) * len(action.slots), strict=True):
            key = self._new_key()
            block = self.program.slots.rank(slot)
            if block != self.program.agents[agent].rank:
                self._require_present(block, agent, self.program.slots, slot)
            fill = (barrier, self.phase[barrier]) if barrier != NONE else (NONE, agent)
            touch(self, slot, Access(agent, time, True, action.choice, key, fill), clock)
            if action.choice == "cp.async":
                self.content[slot] = action.tile
                self._add_to_group(agent, "cp.async", key)
            elif barrier != NONE:
                self._fly(agent, "copy", barrier, action.number, (key,), action._replace(slots=(slot,)))

    def _cp_arrive(self, agent: int, action: Action, clock: Clock) -> None:
        barrier = action.barriers[0]
        if not action.flag:
            count(self, barrier, agent, clock, more=action.times)
        opened, closed = self.groups.get((agent, "cp.async"), _NO_GROUPS)
        self.groups[agent, "cp.async"] = (self._alive(opened), closed)
        keys = self._alive(tuple(key for group in (*closed, opened) for key in group))
        op = "cp_arrive" if action.flag else "cp_drop"  # what was added is taken back
        self._fly(agent, op, barrier, action.times, keys)

    def _fly(
        self, agent: int, op: str, barrier: int, number: int, keys: tuple[int, ...], copy: Action | None = None
    ) -> None:
        """Send bytes or an arrival on their way; a copy has the key of its access."""
        key = self._new_key() if copy is None else keys[0]
        slots, tile = ((), None) if copy is None else (copy.slots, copy.tile)
        self.flights[key] = Flight(key, op, barrier, number, slots, agent, self.clock[agent], keys, tile)

    def piece_of(self, flight: Flight) -> int:
        """Bytes of a copy under way that leave its barrier's count at 0 before the last have come; 0: none do."""
        tx = self.tx[flight.barrier] if flight.op == "copy" else 0
        return tx if 0 < tx < flight.number else 0

    def land(self, flight: Flight) -> None:
        """Bytes, or an arrival under way, reach their barrier; of a copy with a smaller `number` only these bytes."""
        whole = self.flights.pop(flight.key)
        self.ended = []
        _, op, barrier, number, slots, agent, clock, keys, tile = flight
        if number < whole.number:
            self.flights[flight.key] = whole._replace(number=whole.number - number)
            count(self, barrier, agent, clock, tx=-number, lands=True)
            return
        place, blocks = self.agents + barrier, {self.program.barriers.rank(barrier)}
        if op == "copy":
            self.content[slots[0]] = tile
            phase = count(self, barrier, agent, clock, tx=-number, lands=True)
            blocks.add(self.program.slots.rank(slots[0]))
        else:
            phase = count(self, barrier, agent, clock, arrivals=number, covers=op != "cp_drop")
            blocks -= {self.program.agents[agent].rank}
        for key in keys:
            finish(self, key, place, phase + 1)
        for block in blocks:
            self._require_present(block, agent, self.program.barriers, barrier)
            self.remote[block, place] = phase + 1

    def _add_to_group(self, agent: int, group: str, key: int) -> None:
        opened, closed = self.groups.get((agent, group), _NO_GROUPS)
        self.groups[agent, group] = ((*opened, key), closed)

    def _touch(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        """Touch slots: threads at once, a tensor core or a TMA store until a group or a commit is waited for."""
        how = action.choice if action.choice in ("wgmma", "tcgen05") else "store" if action.op == "store" else "generic"
        key, writes = None if how == "generic" else self._new_key(), action.op == "write"
        for slot in action.slots:
            touch(self, slot, Access(agent, time, writes, how, key), clock, action.tile)
            if writes:
                self.content[slot] = action.tile
        for slot in action.into:
            touch(self, slot, Access(agent, time, True, how, key), clock)
        if key is not None:
            self._add_to_group(agent, "bulk" if how == "store" else how, key)

    def _new_key(self) -> int:
        self.last_key += 1
        return self.last_key

    def _alive(self, keys: tuple[int, ...]) -> tuple[int, ...]:
        """Those of accesses that may still matter."""
        return tuple(key for key in keys if key in self.uses)

    def _mask_mistake(self, agent: int, action: Action) -> MistakeFoundError:
        program, blocks = self.program, self.program.pipeline.blocks
        beyond = [rank for rank in range(blocks, action.mask.bit_length()) if action.mask >> rank & 1]
        every = (1 << blocks) - 1
        named = [*map(program.barriers.name, action.barriers[:1]), *map(program.slots.name, action.slots[:1])]
        return program.mistake(
            "mask",
            " With cta_group::1 a commit has no peer: leave the peer's bit out." if action.op == "commit" else "",
            subject=named[0] if named else program.agents[agent].name,
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
        return (action.number - self.registers[agent]) * self.register_threads(agent)

    def register_threads(self, agent: int) -> int:
        """Threads whose registers setmaxnreg sets: whole warpgroups."""
        return -(-self.program.agents[agent].role.threads // WARPGROUP_THREADS) * WARPGROUP_THREADS

    def _leave(self, agent: int) -> None:
        leave(self, agent)
        opened, closed = self.groups.get((agent, "bulk"), _NO_GROUPS)
        if opened or any(closed):
            raise self.program.mistake("stores", agent=agent)

    def check_exits(self) -> None:
        """After the run: whatever reached into a block certainly did so before that block left."""
        for (block, place), value in self.remote.items():
            ends = (clock for clock, agent in zip(self.clock, self.program.agents, strict=True) if agent.rank == block)
            if any(clock[place] >= value for clock in ends):
                continue
            if place < self.agents:
                raise self._exit_mistake(block, self.program.agents[place].name, "an mbarrier there")
            name = self.program.barriers.name(place - self.agents)
            raise self._exit_mistake(block, f"what completes on {name}", "it")

    def _exit_mistake(self, block: int, who: str, what: str) -> MistakeFoundError:
        where = f"block {block}" if self.program.pipeline.blocks > 1 else "the block"
        return self.program.mistake("left", where=where, who=who, what=what, block=block)


def _meets(action: Action) -> bool:
    """Whether an action waits at a barrier of threads."""
    return action.op == "sync" or (action.op == "cluster" and action.choice != "arrive")
