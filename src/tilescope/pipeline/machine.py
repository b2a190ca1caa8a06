"""One run of a pipeline: the state of roles, barriers, copies and groups, and who knows what of whom.

Every agent and every barrier has a place in a vector clock. An agent's clock holds, for another agent, the number of
its actions that certainly lie in the past, and for a barrier the number of its phases that have certainly ended:

    producer  arrive ──▶ phase 0 of full ends ──▶ consumer passes its wait     clock: producer 3, full 1

Roles do not branch on data, so if every operation certainly meets the phase that it met in this run, it meets it in
every order of the roles, and what is ordered by clocks is ordered in all of them. An operation that could have met
another phase is kept in `ambiguities`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.pipeline.meeting import Meeting
from tilescope.pipeline.memory import Access, Clock, Memory
from tilescope.pipeline.mistake import Mistake, MistakeFoundError
from tilescope.pipeline.program import NONE, Action, Program

WARPGROUP_THREADS = 128
_HELD_ACTIONS = 64


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


class Note(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int


class Ambiguity(NamedTuple):
    """An operation that could meet another phase than it met."""

    op: str  # arrive, wait, late, early
    barrier: int
    phase: int
    agent: int


class Steps:
    """An agent's actions by number; those behind the one asked for are kept only where `keep` says so."""

    def __init__(self, actions: Iterator[Action], keep: bool) -> None:
        self.source, self.keep, self.first = actions, keep, 0
        self.held: list[Action] = []

    def at(self, number: int) -> Action | None:
        """The action of that number, or None behind the last; what lies behind it may be forgotten."""
        if not self.keep and number - self.first > _HELD_ACTIONS:
            del self.held[: number - self.first]
            self.first = number
        return self.peek(number)

    def peek(self, number: int) -> Action | None:
        """The same, forgetting nothing."""
        while self.first + len(self.held) <= number:
            found = next(self.source, None)
            if found is None:
                return None
            self.held.append(found)
        return self.held[number - self.first]


class Machine:
    """The state of a run, and what each action does to it."""

    def __init__(self, program: Program, *, keep: bool = False) -> None:
        self.program = program
        agents, barriers = len(program.agents), program.barrier_count
        self.steps = [Steps(program.actions(agent), keep) for agent in program.agents]
        self.places = agents + barriers  # of a clock; meetings come behind
        self.meetings: dict[tuple[int, int], Meeting] = {}
        self.meeting_place: dict[tuple[int, int], int] = {}
        self.width = self.places + 17 * program.pipeline.blocks + 1
        self.agents = agents
        self.pc = [0] * agents
        self.next_action = [steps.at(0) for steps in self.steps]
        self.arrived_at: list[int] = [NONE] * agents  # generation of bar.sync that an agent waits in
        self.cluster_at: list[int] = [NONE] * agents  # and of the cluster barrier at which it arrived
        self.left = [False] * agents
        zero = np.zeros(self.width, np.int64)
        self.clock: list[Clock] = [zero] * agents
        self.ends: list[Clock | None] = [None] * agents
        counts = [program.barrier(number).count for number in range(barriers)] if program.pipeline.barriers else []
        self.expected = counts
        self.pending = list(counts)
        self.tx = [0] * len(counts)
        self.phase = [0] * len(counts)
        self.gathered: list[Clock | None] = [None] * len(counts)  # of the running phase
        self.released: list[Clock] = [zero] * len(counts)  # of the phase before
        self.raised: list[tuple[tuple[int, int], ...]] = [()] * len(
            counts
        )  # (agent, time) of what no arrival covers yet
        self.passed: list[tuple[tuple[int, int], ...]] = [()] * len(counts)  # waits that passed in the running phase
        self.notes: list[tuple[Note, ...]] = [()] * len(counts)
        self.first_notes: list[tuple[Note, ...]] = [()] * len(counts)  # of phase 0
        self.arrivers: list[tuple[int, ...]] = [()] * len(counts)  # agents that have ever arrived
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): phase in which its last wait passed
        self.initialised: list[tuple[int, int] | None] = [None] * len(counts)
        self.init_fences: list[tuple[int, ...]] = [()] * agents
        self.flights: dict[int, Flight] = {}
        self.next_number = 0
        self.groups: dict[tuple[int, str], tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]] = {}
        self.mma: list[tuple[int, ...]] = [()] * agents
        self.registers = [program.pipeline.registers or 0] * agents
        self.pool = [0] * program.pipeline.blocks
        self.remote: dict[tuple[int, int], int] = {}  # (block, place): a clock value that its exit must know
        self.memory = Memory(program)
        self.memory.phases = self.phase
        self.ambiguities: list[Ambiguity] = []
        self.ended: list[int] = []  # barriers and meetings that completed in the last action
        self.actions_done = 0

    def clone(self) -> Machine:
        """An independent copy; clocks and actions are shared."""
        other = object.__new__(Machine)
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        other.steps = self.steps
        other.memory = self.memory.clone()
        other.memory.phases = other.phase
        other.meetings = {key: each.clone() for key, each in self.meetings.items()}
        return other

    def key(self) -> tuple[Any, ...]:
        """What distinguishes two states for what may come after them."""
        flights = tuple(sorted(
            (each.op, each.barrier, each.amount, each.slot, each.agent, each.tile or 0) for each in self.flights.values()
        ))  # fmt: skip
        meetings = tuple((key, each.generation, each.arrived) for key, each in sorted(self.meetings.items()))
        groups = tuple((key, len(each[0]), len(each[1])) for key, each in sorted(self.groups.items()))
        return (
            tuple(self.pc), tuple(self.arrived_at), tuple(self.cluster_at), tuple(self.pending), tuple(self.tx), tuple(self.phase), flights,
            meetings, groups, tuple(self.pool), self.memory.key(),
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
                return (self.phase[action.barriers[0]] & 1) != action.number
            case "sync":
                meeting = self._meeting(agent, action)
                return self.arrived_at[agent] == NONE or meeting.generation > self.arrived_at[agent]
            case "cluster" if action.choice != "arrive":
                arrived = self.cluster_at[agent]
                return arrived == NONE or self._cluster().generation > arrived
            case "registers":
                return self._register_need(agent, action) <= self.pool[self.program.agents[agent].rank]
        return True

    def perform(self, agent: int) -> None:
        """Carry out an agent's next action."""
        action = self.current(agent)
        self.ended = []
        clock = self.clock[agent].copy()
        time = int(clock[agent]) + 1
        clock[agent] = time
        self.clock[agent] = clock
        self.actions_done += 1
        if action is None:
            self._leave(agent)
            return
        if action.op == "sync" or (action.op == "cluster" and action.choice != "arrive"):
            if not self._meet(agent, action, clock):
                return
        else:
            _ACTS[action.op](self, agent, action, clock, time)
        self.pc[agent] += 1
        self.next_action[agent] = self.steps[agent].at(self.pc[agent])

    # barriers

    def _wait(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        barrier = action.barriers[0]
        phase, place = self.phase[barrier], self.agents + barrier
        self._require_initialised(barrier, agent, clock)
        if phase >= 2 and clock[place] < phase - 1:
            self.ambiguities.append(Ambiguity("wait", barrier, phase, agent))
        if phase:
            np.maximum(clock, self.released[barrier], out=clock)
        self.passed[barrier] = (*self.passed[barrier], (agent, time))
        self.last_pass[agent, barrier] = phase

    def _expect(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            self._count(
                barrier, agent, clock, time, tx=action.number, arrivals=int(action.flag), raises=not action.flag
            )

    def _arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            self._count(barrier, agent, clock, time, arrivals=action.times, dropped=action.times if action.flag else 0)

    def _count(
        self, barrier: int, agent: int, clock: Clock, time: int, *,
        arrivals: int = 0, tx: int = 0, more: int = 0, raises: bool = False, dropped: int = 0, lands: bool = False, covers: bool = True,
    ) -> int:  # fmt: skip
        """Count an operation on a barrier; the phase that it met."""
        self._require_initialised(barrier, agent, clock)
        phase, place = self.phase[barrier], self.agents + barrier
        if clock[place] < phase:
            self.ambiguities.append(Ambiguity("arrive", barrier, phase, agent))
        op = "bytes" if lands else "more" if more else "expect" if tx else "arrive"
        amount = -tx if lands else tx or more or arrivals
        self.notes[barrier] = (*self.notes[barrier], Note(op, agent, amount))
        if tx and not lands and arrivals:
            self.notes[barrier] = (*self.notes[barrier], Note("arrive", agent, arrivals))
        if arrivals and agent not in self.arrivers[barrier]:
            self.arrivers[barrier] = (*self.arrivers[barrier], agent)
        self.pending[barrier] += more - arrivals
        self.tx[barrier] += tx
        self.expected[barrier] -= dropped
        if self.pending[barrier] < 0:
            raise MistakeFoundError(self._too_many(barrier, agent))
        if not -TX_END_BYTES < self.tx[barrier] < TX_END_BYTES:
            raise MistakeFoundError(self._too_many_bytes(barrier))
        if raises or more:
            self.raised[barrier] = (*self.raised[barrier], (agent, time))
        elif arrivals and covers and self.raised[barrier]:
            self.raised[barrier] = tuple(each for each in self.raised[barrier] if clock[each[0]] < each[1])
        gathered = self.gathered[barrier]
        self.gathered[barrier] = clock if gathered is None else np.maximum(gathered, clock)
        if self.pending[barrier] == 0 and self.tx[barrier] == 0:
            self._end_phase(barrier, agent, None if lands else clock)
        return phase

    def _end_phase(self, barrier: int, agent: int, clock: Clock | None) -> None:
        """The next phase begins; `clock` is that of the agent whose own action ended this one."""
        phase, place = self.phase[barrier], self.agents + barrier
        gathered = self.gathered[barrier]
        assert gathered is not None
        if self.raised[barrier]:
            self.ambiguities.append(Ambiguity("early", barrier, phase, self.raised[barrier][0][0]))
        for waiter, time in self.passed[barrier]:
            if gathered[waiter] < time:
                self.ambiguities.append(Ambiguity("late", barrier, phase, waiter))
        alone = clock is not None and bool((gathered <= clock).all())  # nothing else was needed: the agent knows
        released = gathered.copy()
        np.maximum(released, self.released[barrier], out=released)
        released[place] = phase + 1
        if alone and clock is not None:
            clock[place] = phase + 1
        self.released[barrier] = released
        self.gathered[barrier] = None
        self.phase[barrier] = phase + 1
        self.pending[barrier] = self.expected[barrier]
        self.raised[barrier] = self.passed[barrier] = ()
        if phase == 0:
            self.first_notes[barrier] = self.notes[barrier]
        self.notes[barrier] = ()
        self.ended.append(barrier)

    def _reach(self, barrier: int, agent: int, time: int) -> None:
        """Note an operation on another block's barrier: that block must not have left."""
        block = self.program.barrier_rank(barrier)
        if block != self.program.agents[agent].rank:
            self._require_present(block, agent, self.program.barrier_name(barrier))
            self.remote[block, agent] = max(time, self.remote.get((block, agent), 0))

    def _require_present(self, block: int, agent: int, what: str) -> None:
        if all(self.left[each] for each, other in enumerate(self.program.agents) if other.rank == block):
            raise MistakeFoundError(_exit_mistake(self.program, block, self.program.agents[agent].name, what))

    def _require_initialised(self, barrier: int, agent: int, clock: Clock) -> None:
        if not self.program.initialises:
            return
        made = self.initialised[barrier]
        name, who = self.program.barrier_name(barrier), self.program.agents[agent]
        if made is None or clock[made[0]] < made[1]:
            raise MistakeFoundError(Mistake(
                "pipeline-init", "undefined", name, f"{who.name} uses {name} without knowing that it is initialised",
                "it may count on old bytes", "Put a sync (cluster sync for other blocks) between init and the first use.",
            ))  # fmt: skip
        if self.program.agents[made[0]].rank != who.rank and not any(
            made[1] < fence <= clock[made[0]] for fence in self.init_fences[made[0]]
        ):
            raise MistakeFoundError(Mistake(
                "pipeline-init", "undefined", name, f"{who.name} uses {name}, initialised in another block without fence.mbarrier_init",
                "it may count on old bytes", "Put fence.mbarrier_init.release.cluster between init and the cluster barrier.",
            ))  # fmt: skip

    def _init(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for barrier in action.barriers:
            self.initialised[barrier] = (agent, time)

    def _too_many(self, barrier: int, agent: int) -> Mistake:
        name, phase = self.program.barrier_name(barrier), self.phase[barrier]
        came = sum(note.amount for note in self.notes[barrier] if note.op == "arrive")
        names = list(
            dict.fromkeys(self.program.agents[note.agent].name for note in self.notes[barrier] if note.op == "arrive")
        )
        count = self.expected[barrier]
        waiting = f", {self.tx[barrier]} bytes still missing" if self.tx[barrier] else ""
        return Mistake(
            "pipeline-arrivals", "launch failure", name,
            f"{name} counts {count} and {came} arrivals come in phase {phase} ({', '.join(names)}{waiting})",
            "launch failure (719)", f"Initialise it with {came}, or let {came - count} fewer arrive.",
        )  # fmt: skip

    def _too_many_bytes(self, barrier: int) -> Mistake:
        name = self.program.barrier_name(barrier)
        return Mistake(
            "pipeline-bytes", "launch failure", name, f"{name}, phase {self.phase[barrier]} has {self.tx[barrier]} bytes outstanding",
            f"a barrier counts up to {TX_END_BYTES - 1}: launch failure (719)", "Spread the copies over more stages or barriers.",
        )  # fmt: skip

    # copies, groups, memory

    def _copy(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        barriers = action.barriers or (NONE,) * len(action.slots)
        rank = self.program.agents[agent].rank
        for slot, barrier in zip(action.slots, barriers, strict=True):
            key = self._new_number()
            fill = (barrier, self.phase[barrier]) if barrier != NONE else (NONE, agent)
            block = self.program.slot_rank(slot)
            if block != rank:
                self._require_present(block, agent, self.program.slot_name(slot))
            self.memory.touch(slot, Access(agent, time, True, action.choice, key, fill), clock)
            if action.choice == "cp.async":
                self.memory.fill(slot, action.tile)
                self._add_to_group(agent, "cp.async", key)
            elif barrier != NONE:
                self.flights[key] = Flight(key, "copy", barrier, action.number, slot, agent, clock, (key,), action.tile)

    def _cp_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        barrier = action.barriers[0]
        if not action.flag:
            self._count(barrier, agent, clock, time, more=action.times)
        opened, closed = self.groups.get((agent, "cp.async"), ((), ()))
        keys = (*(key for group in closed for key in group), *opened)
        number = self._new_number()
        op = "cp_arrive" if action.flag else "cp_drop"  # what was added is taken back
        self.flights[number] = Flight(number, op, barrier, action.times, NONE, agent, clock, keys, None)

    def _commit(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        if action.choice:
            opened, closed = self.groups.get((agent, action.choice), ((), ()))
            self.groups[agent, action.choice] = ((), (*closed, opened))
            return
        self.mma[agent] = tuple(key for key in self.mma[agent] if self.memory.alive(key))
        for barrier in action.barriers:
            self._reach(barrier, agent, time)
            number = self._new_number()
            self.flights[number] = Flight(number, "commit", barrier, 1, NONE, agent, clock, self.mma[agent], None)

    def land(self, number: int) -> None:
        """Bytes, or an arrival under way, reach their barrier."""
        flight = self.flights.pop(number)
        self.ended = []
        time = int(flight.clock[flight.agent])
        tx, arrivals = (-flight.amount, 0) if flight.op == "copy" else (0, flight.amount)
        if flight.op == "copy":
            self.memory.fill(flight.slot, flight.tile)
        block = self.program.barrier_rank(flight.barrier)
        place = self.agents + flight.barrier
        phase = self._count(
            flight.barrier,
            flight.agent,
            flight.clock,
            time,
            tx=tx,
            arrivals=arrivals,
            lands=flight.op == "copy",
            covers=flight.op != "cp_drop",
        )
        for key in flight.keys:
            self.memory.finish(key, place, phase + 1)
        blocks = {block} | ({self.program.slot_rank(flight.slot)} if flight.op == "copy" else set())
        if flight.op == "copy" or block != self.program.agents[flight.agent].rank:
            for each in blocks:
                self._require_present(each, flight.agent, self.program.barrier_name(flight.barrier))
                self.remote[each, place] = phase + 1

    def _wait_group(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        opened, closed = self.groups.get((agent, action.choice), ((), ()))
        done = len(closed) - action.number
        for group in closed[: max(0, done)]:
            for key in group:
                self.memory.finish(key, agent, time)
        self.groups[agent, action.choice] = (opened, closed[max(0, done) :])

    def _add_to_group(self, agent: int, kind: str, key: int) -> None:
        opened, closed = self.groups.get((agent, kind), ((), ()))
        self.groups[agent, kind] = ((*opened, key), closed)

    def _read(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, False, "generic"), clock, action.tile)

    def _write(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, True, "generic"), clock)
            self.memory.fill(slot, action.tile)

    def _multiply(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        if action.choice == "mma":
            self._read(agent, action, clock, time)
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

    def _store(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        key = self._new_number()
        for slot in action.slots:
            self.memory.touch(slot, Access(agent, time, False, "store", key), clock)
        self._add_to_group(agent, "bulk", key)

    def _fence(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        memory = self.memory
        match action.choice:
            case "proxy.async":
                memory.proxy_fences[agent] = (*memory.proxy_fences[agent][-63:], time)
                memory.proxy_clock[agent] = clock.copy()
            case "mbarrier_init":
                self.init_fences[agent] = (*self.init_fences[agent], time)
            case "tcgen05.before":
                memory.before_fences[agent] = (*memory.before_fences[agent][-63:], time)
            case "tcgen05.after":
                memory.after_clock[agent] = clock.copy()

    def _new_number(self) -> int:
        self.next_number += 1
        return self.next_number

    # meetings of threads

    def _meeting(self, agent: int, action: Action) -> Meeting:
        rank = self.program.agents[agent].rank
        threads = action.times or sum(each.warp_threads for each in self.program.agents if each.rank == rank)
        key = (rank, action.number)
        if key not in self.meetings:
            self.meetings[key] = Meeting(f"bar {action.number}", threads)
            self.meeting_place[key] = self.places + rank * 17 + action.number % 16
        meeting = self.meetings[key]
        if not meeting.arrived:
            meeting.threads = threads
        elif meeting.threads != threads:
            raise MistakeFoundError(Mistake(
                "pipeline-sync", "undefined", meeting.name,
                f"{meeting.name} is asked for {meeting.threads} and for {threads} threads at once",
                "what happens then is not defined", "Give all roles that meet there the same count.",
            ))  # fmt: skip
        return meeting

    def _cluster(self) -> Meeting:
        key = (NONE, 0)
        if key not in self.meetings:
            self.meetings[key] = Meeting("the cluster barrier", None)
            self.meeting_place[key] = self.width - 1
        return self.meetings[key]

    def _meet(self, agent: int, action: Action, clock: Clock) -> bool:
        """Arrive at a meeting, or leave one that is complete; whether the action is over."""
        of_cluster = action.op == "cluster"
        meeting = self._cluster() if of_cluster else self._meeting(agent, action)
        at = self.cluster_at if of_cluster else self.arrived_at
        if at[agent] == NONE:
            if action.choice == "wait":
                name = self.program.agents[agent].name
                raise MistakeFoundError(Mistake(
                    "pipeline-sync", "undefined", meeting.name, f"{name} waits at the cluster barrier without having arrived",
                    "what happens then is not defined", "Put cluster arrive before it, or use sync.",
                ))  # fmt: skip
            at[agent] = meeting.generation
            self._arrive_at(meeting, agent, clock)
        if meeting.generation <= at[agent]:
            return False
        at[agent] = NONE
        if meeting.done is not None:
            np.maximum(clock, meeting.done, out=clock)
        return True

    def _arrive_at(self, meeting: Meeting, agent: int, clock: Clock) -> None:
        key = next(key for key, each in self.meetings.items() if each is meeting)
        place = self.meeting_place[key]
        if clock[place] < meeting.generation:
            self.ambiguities.append(Ambiguity("meet", NONE, meeting.generation, agent))
        meeting.arrived = (*meeting.arrived, agent)
        meeting.clock = clock.copy() if meeting.clock is None else np.maximum(meeting.clock, clock)
        self._settle(meeting, place)

    def _settle(self, meeting: Meeting, place: int) -> None:
        """End the meeting's generation when everyone is there."""
        agents = self.program.agents
        if meeting.threads is None:
            complete = all(self.left[each] or each in meeting.arrived for each in range(self.agents))
        else:
            came = sum(agents[each].warp_threads for each in meeting.arrived)
            if came > meeting.threads:
                names = ", ".join(agents[each].name for each in meeting.arrived)
                raise MistakeFoundError(Mistake(
                    "pipeline-sync", "undefined", meeting.name,
                    f"{meeting.name} waits for {meeting.threads} threads and {came} come ({names})",
                    "what happens then is not defined", f"Let it count {came}, or use another barrier id.",
                ))  # fmt: skip
            complete = came == meeting.threads
        if complete and meeting.arrived and meeting.clock is not None:
            meeting.generation += 1
            meeting.done, meeting.clock, meeting.arrived = meeting.clock.copy(), None, ()
            meeting.done[place] = meeting.generation
            self.ended.append(NONE)

    def _bar_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        self._arrive_at(self._meeting(agent, action), agent, clock)

    def _cluster_arrive(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        meeting = self._cluster()
        self.cluster_at[agent] = meeting.generation
        self._arrive_at(meeting, agent, clock)

    # registers and leaving

    def _register_need(self, agent: int, action: Action) -> int:
        threads = -(-self.program.agents[agent].role.threads // WARPGROUP_THREADS) * WARPGROUP_THREADS
        return (action.number - self.registers[agent]) * threads

    def _set_registers(self, agent: int, action: Action, clock: Clock, time: int) -> None:
        self.pool[self.program.agents[agent].rank] -= self._register_need(agent, action)
        self.registers[agent] = action.number
        self.ended.append(NONE)

    def _leave(self, agent: int) -> None:
        self.left[agent] = True
        self.ends[agent] = self.clock[agent]
        opened, closed = self.groups.get((agent, "bulk"), ((), ()))
        if opened or any(closed):
            raise MistakeFoundError(Mistake(
                "pipeline-exit", "race", self.program.agents[agent].name,
                f"{self.program.agents[agent].name} leaves while its TMA stores may still read shared memory",
                "output is lost", "End with cp.async.bulk.commit_group and wait_group.read 0 in the issuing thread.",
            ))  # fmt: skip
        cluster = self.meetings.get((NONE, 0))
        if cluster is not None:
            self._settle(cluster, self.meeting_place[NONE, 0])

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


_ACTS: dict[str, Any] = {
    "wait": Machine._wait, "tail": Machine._wait, "expect": Machine._expect, "arrive": Machine._arrive,
    "release": Machine._arrive, "copy": Machine._copy, "cp_arrive": Machine._cp_arrive, "read": Machine._read,
    "write": Machine._write, "multiply": Machine._multiply, "store": Machine._store, "commit": Machine._commit,
    "wait_group": Machine._wait_group, "fence": Machine._fence, "bar_arrive": Machine._bar_arrive,
    "cluster": Machine._cluster_arrive, "registers": Machine._set_registers, "init": Machine._init,
}  # fmt: skip
