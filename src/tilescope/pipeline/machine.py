"""One run of a pipeline: the state of roles, barriers, copies and groups, and who knows what of whom.

Every agent and every barrier has a place in a vector clock. An agent's clock holds, for another agent, the number of
its actions that certainly lie in the past, and for a barrier the number of its phases that have certainly ended:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

Roles do not branch on data, so if every operation certainly meets the phase that it met in this run, it meets it in
every order of the roles, and what is ordered by clocks is ordered in all of them. An operation that could have met
another phase is kept in `ambiguities`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilescope.errors import counted
from tilescope.pipeline.barriers import Barriers, Journal
from tilescope.pipeline.meeting import Meetings
from tilescope.pipeline.memory import Access, Clock, Memory, copied
from tilescope.pipeline.mistake import Mistake, MistakeFoundError, example, pipeline_rule
from tilescope.pipeline.program import NONE, Action, Program, Steps

WARPGROUP_THREADS = 128


EXIT = pipeline_rule(
    "pipeline-exit", "A block stays until everything that reaches into it has come, and until its stores have been read.",
    example({"write": ["a"]}, {"fence": "proxy.async"}, {"store": ["a"]}, {"commit": "bulk"}),
    source="PTX ISA, cp.async.bulk.wait_group; mapa",
)  # fmt: skip


class Flight(NamedTuple):
    """Something under way: a copy's bytes, or an arrival that comes when work is done."""

    number: int
    op: str  # copy, commit, cp_arrive, cp_drop
    barrier: int
    amount: int  # bytes, or arrivals
    slot: int
    agent: int
    clock: Clock
    keys: tuple[int, ...]
    tile: int | None


class Machine:
    """The state of a run, and what each action does to it."""

    def __init__(self, program: Program, *, keep: bool = False) -> None:
        self.program = program
        self.agents = agents = len(program.agents)
        self.steps = [Steps(program.actions(agent), keep) for agent in program.agents]
        self.journal = Journal()
        self.meetings = Meetings(program, self.journal, agents + program.barrier_count)
        self.width = agents + program.barrier_count + self.meetings.places  # of a clock
        zero = np.zeros(self.width, np.int64)
        self.barriers = Barriers(program, self.journal, zero)
        self.pc = [0] * agents
        self.next_action = [steps.at(0) for steps in self.steps]
        self.clock: list[Clock] = [zero] * agents
        self.ends: list[Clock | None] = [None] * agents
        self.flights: dict[int, Flight] = {}
        self.next_number = 0
        self.groups: dict[tuple[int, str], tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = {}
        self.mma: list[tuple[int, ...]] = [()] * agents
        self.registers = [program.pipeline.registers or 0] * agents
        self.pool = [0] * program.pipeline.blocks
        self.remote: dict[tuple[int, int], int] = {}  # (block, place): a clock value that its exit must know
        self.memory = Memory(program)
        self.memory.phases = self.barriers.phase
        self.actions_done = 0

    def clone(self) -> Machine:
        """An independent copy; clocks and actions are shared."""
        other = copied(self)
        other.steps = self.steps
        other.journal = self.journal.clone()
        other.barriers = self.barriers.clone(other.journal)
        other.meetings = self.meetings.clone(other.journal)
        other.memory = self.memory.clone()
        other.memory.phases = other.barriers.phase
        return other

    @property
    def left(self) -> list[bool]:
        """Whether each agent has left."""
        return self.meetings.left

    def key(self) -> tuple[Any, ...]:
        """What distinguishes two states for what may come after them."""
        flights = tuple(sorted(
            (flight.op, flight.barrier, flight.amount, flight.slot, flight.agent, flight.tile or 0) for flight in self.flights.values()
        ))  # fmt: skip
        barriers = self.barriers
        groups = tuple((key, len(each[0]), len(each[1])) for key, each in sorted(self.groups.items()))
        return (
            tuple(self.pc), tuple(barriers.pending), tuple(barriers.tx), tuple(barriers.phase), flights, groups,
            tuple(self.pool), self.meetings.key(), self.memory.key(),
        )  # fmt: skip

    def current(self, agent: int) -> Action | None:
        """What an agent does next, or None when it has left."""
        return None if self.left[agent] else self.next_action[agent]

    def enabled(self, agent: int) -> bool:
        """Whether an agent can act now."""
        action = self.current(agent)
        if action is None:
            return not self.left[agent]
        match action.op:
            case "wait" | "tail":
                return (self.barriers.phase[action.barriers[0]] & 1) != action.number
            case "sync":
                return self.meetings.enabled(agent, action)
            case "cluster" if action.choice != "arrive":
                return self.meetings.enabled(agent, action)
            case "registers":
                return self.register_need(agent, action) <= self.pool[self.program.agents[agent].rank]
        return True

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.journal.ended = []
        clock = self.clock[agent].copy()
        time = int(clock[agent]) + 1
        clock[agent] = time
        self.clock[agent] = clock
        self.actions_done += 1
        if action is None:
            self._leave(agent)
            return
        if action.mask:
            raise MistakeFoundError(self._mask_mistake(agent, action))
        if action.op == "sync" or (action.op == "cluster" and action.choice != "arrive"):
            if not self.meetings.meet(agent, action, clock):
                return
        else:
            getattr(self, f"_do_{action.op}")(agent, action, clock, time)
        self.pc[agent] += 1
        self.next_action[agent] = self.steps[agent].at(self.pc[agent])

    # barriers

    def _do_wait(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        self.barriers.pass_wait(action.barriers[0], agent, clock, time)

    _do_tail = _do_wait

    def _do_expect(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            arrives = bool(action.flag)
            self.barriers.count(
                barrier, agent, clock, time, tx=action.number, arrivals=int(arrives), raises=not arrives
            )

    def _do_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            dropped = action.times if action.flag else 0
            self.barriers.count(barrier, agent, clock, time, arrivals=action.times, dropped=dropped)

    _do_release = _do_arrive

    def _reach(self, barrier: int, agent: int, time: int) -> None:
        """Note an operation on another block's barrier: that block must not have left."""
        block = self.program.barrier_rank(barrier)
        if block != self.program.agents[agent].rank:
            self._require_present(block, agent, self.program.barrier_name(barrier))
            self.remote[block, agent] = max(time, self.remote.get((block, agent), 0))

    def _require_present(self, block: int, agent: int, what: str) -> None:
        if all(self.left[each] for each, other in enumerate(self.program.agents) if other.rank == block):
            raise MistakeFoundError(_exit_mistake(self.program, block, self.program.agents[agent].name, what))

    def _do_init(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self.barriers.initialised[barrier] = (agent, time)

    # copies, groups, memory

    def _do_copy(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        barriers = action.barriers or (NONE,) * len(action.slots)
        rank = self.program.agents[agent].rank
        for slot, barrier in zip(action.slots, barriers, strict=True):
            key = self._new_number()
            fill = (barrier, self.barriers.phase[barrier]) if barrier != NONE else (NONE, agent)
            block = self.program.slot_rank(slot)
            if block != rank:
                self._require_present(block, agent, self.program.slot_name(slot))
            self.memory.touch(slot, Access(agent, time, True, action.choice, key, fill), clock)
            if action.choice == "cp.async":
                self.memory.fill(slot, action.tile)
                self._add_to_group(agent, "cp.async", key)
            elif barrier != NONE:
                self.flights[key] = Flight(key, "copy", barrier, action.number, slot, agent, clock, (key,), action.tile)

    def _do_cp_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        barrier = action.barriers[0]
        if not action.flag:
            self.barriers.count(barrier, agent, clock, time, more=action.times)
        opened, closed = self.groups.get((agent, "cp.async"), ((), ()))
        keys = tuple(key for group in (*closed, opened) for key in group if self.memory.alive(key))
        self.groups[agent, "cp.async"] = (tuple(key for key in opened if self.memory.alive(key)), closed)
        number = self._new_number()
        op = "cp_arrive" if action.flag else "cp_drop"  # what was added is taken back
        self.flights[number] = Flight(number, op, barrier, action.times, NONE, agent, clock, keys, None)

    def _do_commit(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        if action.choice:
            opened, closed = self.groups.get((agent, action.choice), ((), ()))
            self.groups[agent, action.choice] = ((), (*closed, opened))
            return
        self.mma[agent] = tuple(key for key in self.mma[agent] if self.memory.alive(key))
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            number = self._new_number()
            self.flights[number] = Flight(number, "commit", barrier, 1, NONE, agent, clock, self.mma[agent], None)

    def piece_of(self, number: int) -> int:
        """Bytes of a copy under way that leave its barrier's count at 0 before the last have come; 0: none do."""
        flight = self.flights[number]
        tx = self.barriers.tx[flight.barrier] if flight.op == "copy" else 0
        return tx if 0 < tx < flight.amount else 0

    def land(self, number: int, piece: int = 0) -> None:
        """Bytes, or an arrival under way, reach their barrier; with `piece` only as many bytes of a copy."""
        flight = self.flights.pop(number)
        self.journal.ended = []
        barrier, agent, clock = flight.barrier, flight.agent, flight.clock
        time = int(clock[agent])
        if piece:
            self.flights[number] = flight._replace(amount=flight.amount - piece)
            self.barriers.count(barrier, agent, clock, time, tx=-piece, lands=True)
            return
        block, place = self.program.barrier_rank(barrier), self.agents + barrier
        if flight.op == "copy":
            self.memory.fill(flight.slot, flight.tile)
            phase = self.barriers.count(barrier, agent, clock, time, tx=-flight.amount, lands=True)
        else:
            covers = flight.op != "cp_drop"
            phase = self.barriers.count(barrier, agent, clock, time, arrivals=flight.amount, covers=covers)
        for key in flight.keys:
            self.memory.finish(key, place, phase + 1)
        blocks = {block} | ({self.program.slot_rank(flight.slot)} if flight.op == "copy" else set())
        if flight.op == "copy" or block != self.program.agents[flight.agent].rank:
            for each in blocks:
                self._require_present(each, flight.agent, self.program.barrier_name(flight.barrier))
                self.remote[each, place] = phase + 1

    def _do_wait_group(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        opened, closed = self.groups.get((agent, action.choice), ((), ()))
        done = len(closed) - action.number
        for group in closed[: max(0, done)]:
            for key in group:
                self.memory.finish(key, agent, time)
        self.groups[agent, action.choice] = (opened, closed[max(0, done) :])

    def _add_to_group(self, agent: int, kind: str, key: int) -> None:
        opened, closed = self.groups.get((agent, kind), ((), ()))
        self.groups[agent, kind] = ((*opened, key), closed)

    def _do_read(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, False, "generic"), clock, action.tile)

    def _do_write(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, True, "generic"), clock)
            self.memory.fill(slot, action.tile)

    def _do_multiply(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        if action.choice == "mma":
            self._do_read(agent, action, clock, time)
            return
        key = self._new_number()
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, False, action.choice, key), clock, action.tile)
        for slot in action.into:
            self.memory.touch(slot, Access(agent, time, True, action.choice, key), clock)
        if action.choice == "wgmma":
            self._add_to_group(agent, "wgmma", key)
        else:
            self.mma[agent] = (*self.mma[agent], key)

    def _do_store(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        key = self._new_number()
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, False, "store", key), clock)
        self._add_to_group(agent, "bulk", key)

    def _do_fence(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        memory = self.memory
        match action.choice:
            case "proxy.async":
                memory.proxy_fences[agent] = (*memory.proxy_fences[agent][-63:], time)
                memory.proxy_clock[agent] = clock.copy()
            case "mbarrier_init":
                self.barriers.init_fences[agent] = (*self.barriers.init_fences[agent], time)
            case "tcgen05.before":
                memory.before_fences[agent] = (*memory.before_fences[agent][-63:], time)
            case "tcgen05.after":
                memory.after_clock[agent] = clock.copy()

    def _new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    def _do_bar_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        self.meetings.arrive(agent, action, clock)

    _do_cluster = _do_bar_arrive

    def _mask_mistake(self, agent: int, action: Action) -> Mistake:
        blocks, who = self.program.pipeline.blocks, self.program.agents[agent].name
        beyond = [rank for rank in range(blocks, action.mask.bit_length()) if action.mask >> rank & 1]
        inside = action.mask & (1 << blocks) - 1
        named = [*map(self.program.barrier_name, action.barriers[:1]), *map(self.program.slot_name, action.slots[:1])]
        peer = " With cta_group::1 a commit has no peer: leave the peer's bit out." if action.op == "commit" else ""
        return Mistake(
            "pipeline-mask", "launch failure", named[0] if named else who,
            f"the {action.op} of {who} has mask {action.mask:#x}, which names block {', '.join(map(str, beyond))}, and the cluster has "
            f"{counted(blocks, 'block')}", "an address out of range (Xid 13), a launch failure",
            (f"Use mask {inside:#x}." if inside else f"Use bits 0 to {blocks - 1}.") + peer,
        )  # fmt: skip

    # registers and leaving

    def register_need(self, agent: int, action: Action) -> int:
        """Registers that setmaxnreg takes from the block's pool; negative where it gives some back."""
        threads = -(-self.program.agents[agent].role.threads // WARPGROUP_THREADS) * WARPGROUP_THREADS
        return (action.number - self.registers[agent]) * threads

    def _do_registers(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        self.pool[self.program.agents[agent].rank] -= self.register_need(agent, action)
        self.registers[agent] = action.number
        self.journal.ended.append(NONE)

    def _leave(self, agent: int) -> None:
        self.meetings.leave(agent)
        self.ends[agent] = self.clock[agent]
        opened, closed = self.groups.get((agent, "bulk"), ((), ()))
        if opened or any(closed):
            raise MistakeFoundError(Mistake(
                "pipeline-exit", "race", self.program.agents[agent].name,
                f"{self.program.agents[agent].name} leaves while its TMA stores may still read shared memory",
                "output is lost", "End with cp.async.bulk.commit_group and wait_group.read 0 in the issuing thread.",
            ))  # fmt: skip

    def check_exits(self) -> None:
        """After the run: whatever reached into a block certainly did so before that block left."""
        for (block, place), value in self.remote.items():
            ends = [
                end
                for end, agent in zip(self.ends, self.program.agents, strict=True)
                if agent.rank == block and end is not None
            ]
            if any(end[place] >= value for end in ends):
                continue
            if place < self.agents:
                who, what = self.program.agents[place].name, "an mbarrier there"
            else:
                name = self.program.barrier_name(place - self.agents)
                who, what = f"what completes on {name}", "it"
            raise MistakeFoundError(_exit_mistake(self.program, block, who, what))


def _exit_mistake(program: Program, block: int, who: str, what: str) -> Mistake:
    where = f"block {block}" if program.pipeline.blocks > 1 else "the block"
    return Mistake(
        "pipeline-exit", "launch failure", where, f"{where} may have left when {who} reaches {what}",
        "launch failure (719), or another block's memory is overwritten",
        "Let its roles wait for it before they leave: a tail of waits on all stages, or a cluster barrier.",
    )  # fmt: skip
