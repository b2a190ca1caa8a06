"""The state of a run: what barriers have counted, what slots hold, what is under way, and where every agent stands.

It is what a chip would hold. What follows from it for other orders of the roles is the business of `order`.

A barrier of threads, bar.sync or that of the cluster, is one whose arrivals are threads or roles.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from itertools import chain, tee
from typing import NamedTuple, Self

from tilescope.arithmetic import ceil_div
from tilescope.pipeline.parts import Step
from tilescope.pipeline.role_program import Program
from tilescope.pipeline.wording import mistake_error
from tilescope.sync.all_orders.action import NONE, Action, Clock, Flight, Key
from tilescope.sync.all_orders.contents import Contents, Fill, Segment
from tilescope.sync.all_orders.mistake import Mistake, MistakeFoundError
from tilescope.sync.happens_before import Access, Order
from tilescope.sync.mbarrier import ARRIVALS_END, TX_END_BYTES
from tilescope.sync.thread_limits import BARS, WARP_THREADS

Groups = tuple[tuple[Key, ...], ...]  # keys of the accesses of closed groups, and last those of the open one


class Note(NamedTuple):
    """What a barrier counted in its running phase."""

    op: str  # arrive, expect, bytes, more
    agent: int
    amount: int
    step: Step | None = None


class Standing(NamedTuple):
    """An arrival at a barrier of threads that the agent has not waited for yet."""

    phase: int
    place: int  # of its step in the agent's role


class Noted(NamedTuple):
    """The operations of one kind in a barrier's running phase."""

    agents: list[int]
    amount: int  # of all of them


class State:
    """Lists by agent, barrier, slot or block; a copy of the state copies them and shares what they hold."""

    def __init__(self, program: Program, order: Order) -> None:
        self.program = program
        self.order = order
        agents = self.agents = len(program.agents)
        slots, blocks, counting = len(program.slots), program.blocks, len(program.barriers)
        self.barriers = program.mbarriers
        self.actions_done = 0
        self.sent: list[Key] = []  # flights of the last action
        self.ended: list[int] = []  # barriers whose phase ended in the last action; NONE: registers were given back
        self.piece: Mistake | None = None  # a phase that ended in the midst of a copy
        self.warnings: dict[tuple[str, str, str], Mistake] = {}
        # agents
        # actions after the next one; tee's iterators can be copied with the state
        self.sources = [tee(program.actions(agent), 1)[0] for agent in program.agents]
        self.next_action = [next(source, None) for source in self.sources]
        self.pc = [0] * agents
        self.left = [False] * agents
        self.registers = [program.pipeline.registers or 0] * agents
        self.groups: dict[tuple[int, str], Groups] = {}
        self.handed_over: dict[int, int] = {}  # agent: groups of cp.async that were waited for, or handed to a barrier
        self.heard_of: dict[int, tuple[Key, ...]] = {}  # agent: cp.async whose end some barrier hears of
        self.store_writes: dict[Key, bool] = {}  # what bulk stores write in global memory
        self.unflushed: dict[int, tuple[Key, ...]] = {}  # agent: such writes, of which only the sources are known read
        self.uncommitted: dict[int, tuple[Key, ...]] = {}  # tcgen05 products that no commit covers
        self.uncovered: dict[int, tuple[Key, ...]] = {}  # accesses of several warps, since these last met
        self.unmet_stores: dict[int, dict[Key, int]] = {}  # agent: stores that one of its warps waited for, and when
        self.unmet_inits: dict[int, int] = {}  # barrier: the agent of which one warp initialised it
        self.standing: dict[tuple[int, int], Standing] = {}  # (agent, barrier of threads): it has arrived
        # barriers
        counts = program.counts
        flags = program.grid - program.first_flag
        earlier = sum(program.earlier)
        in_grids = [agents - earlier, earlier] if earlier else [agents]
        self.expected = [*counts, *[0] * blocks * BARS, *in_grids, *[0] * flags, earlier]
        self.pending = list(self.expected)
        self.tx = [0] * counting  # bytes that are missing; of a flag its value
        self.phase = [0] * counting
        self.expected_bytes = [0] * counting  # in the running phase
        self.notes: list[tuple[Note, ...]] = [()] * counting  # of the running phase
        self.first_notes: dict[int, tuple[Note, ...]] = {}  # of the first phase that ended
        self.arrivers: list[tuple[int, ...]] = [()] * counting  # agents that ever arrived
        self.last_pass: dict[tuple[int, int], int] = {}  # (agent, barrier): the phase in which its last wait passed
        self.initialised = [False] * counting
        self.seen_ready: dict[tuple[int, int], bool] = {}  # agents that know that a barrier is initialised
        # memory, flights, blocks
        self.accesses: list[tuple[Access, ...]] = [()] * slots
        self.contents: list[Contents] = [()] * slots
        self.filled: dict[int, tuple[Fill, int]] = {}  # slot: the fill whose copies follow each other, and their bytes
        self.flights: dict[Key, Flight] = {}
        self.pool = [0] * blocks  # registers that were given back
        # agents of a block that have not left
        self.present = [sum(agent.home == block for agent in program.agents) for block in range(blocks)]

    def current(self, agent: int) -> Action | None:
        """What an agent does next, or None when it has left."""
        return None if self.left[agent] else self.next_action[agent]

    def noted(self, barrier: int, op: str) -> Noted:
        """What a barrier's running phase counted of one kind of operation."""
        notes = [note for note in self.notes[barrier] if note.op == op]
        return Noted([note.agent for note in notes], sum(note.amount for note in notes))

    def clone(self) -> Self:
        """An independent copy; actions are shared."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
        other.sources = [copy(source) for source in self.sources]
        other.order = self.order.clone()
        return other

    def key(self) -> Hashable:
        """Equal for two states if the same may come after both, where their orders are equal too."""
        return (
            tuple(self.pc),
            tuple(self.left),
            tuple(self.pending),
            tuple(self.tx),
            tuple(self.phase),
            tuple(self.expected),
            tuple(self.pool),
            tuple(self.contents),
            tuple(self.accesses),
            tuple(sorted(self.groups.items())),
            tuple(sorted(self.uncovered.items())),
            tuple(sorted(self.standing.items())),
            tuple(sorted(self.filled.items())),
            tuple(sorted((key, flight.number) for key, flight in self.flights.items())),
        )

    def relative(self, tiles: int, unused: list[bool]) -> list[object]:
        """The state counted from now, equal in two rounds of a loop if the second repeats the first.

        Phases count from the running one, keys from where their agents stand, tiles from `tiles`.
        """

        def named(key: Key) -> Key:
            agent, place, number = key
            return agent, self.pc[agent] - place, number

        def tile(number: int | None) -> int | None:
            return None if number is None else number - tiles

        def filling(fill: Fill | None) -> Fill | None:
            if fill is None:
                return None
            source, number, group = fill
            if source != NONE:
                return source, number - self.phase[source], NONE
            return source, number, group - self._groups_made(number) if group != NONE else NONE

        def accessed(one: Access) -> tuple[object, ...]:
            return named(one.key), one[1:6], filling(one.fill), tile(one.tile)

        def held(part: Segment) -> tuple[object, ...]:
            return *part[:2], tile(part.tile), filling(part.fill), *part[4:]

        parities = [phase % 2 for phase in self.phase[: self.barriers]]
        flights = [
            (named(key), one.op, one.barrier, one.number, one.slots, [*map(named, one.keys)])
            for key, one in self.flights.items()
        ]
        standing = [
            (agent, barrier, one.phase - self.phase[barrier], self.pc[agent] - one.place)
            for (agent, barrier), one in self.standing.items()
        ]
        last_passes = [
            (agent, barrier, phase - self.phase[barrier])
            for (agent, barrier), phase in self.last_pass.items()
            if not unused[barrier]
        ]
        return [
            [self.pending, self.tx, self.expected, parities],
            [[*map(accessed, accesses)] for accesses in self.accesses],
            [[*map(held, contents)] for contents in self.contents],
            [(slot, filling(fill), reached) for slot, (fill, reached) in sorted(self.filled.items())],
            sorted(flights),
            sorted((who, [[*map(named, keys)] for keys in groups]) for who, groups in self.groups.items()),
            sorted((agent, [*map(named, keys)]) for agent, keys in self.uncommitted.items()),
            sorted((agent, [*map(named, keys)]) for agent, keys in self.uncovered.items()),
            sorted((agent, [*map(named, keys)]) for agent, keys in self.unmet_stores.items()),
            [[note.agent for note in notes] for notes in self.notes[self.barriers :]],
            [self.registers, self.pool],
            sorted(standing),
            sorted(last_passes),
        ]

    def _groups_made(self, agent: int) -> int:
        """Groups of cp.async that an agent has closed, or handed to a barrier."""
        return self.handed_over.get(agent, 0) + len(self.groups.get((agent, "cp.async"), ((),)))

    def count(
        self,
        barrier: int,
        agent: int,
        past: Clock | None = None,  # what the agent knew when it sent what lands now; None: the agent acts itself
        *,
        arrivals: int = 0,
        tx: int = 0,  # bytes expected; negative: bytes that landed
        more: int = 0,  # arrivals that the phase waits for in addition
        dropped: int = 0,  # arrivals that later phases no longer wait for
        takes_back: bool = False,  # the arrivals are those that `more` added: they say nothing of other counts
        weak: bool = False,  # it hands no data on
        step: Step | None = None,
    ) -> int:
        """Count an operation on a barrier; the phase that it met."""
        self._require_ready(barrier, agent, past)
        phase = self.phase[barrier]
        if arrivals or tx or more:
            self.order.counts(barrier, phase, agent, past, weak=weak)
        if more:
            self.notes[barrier] += (Note("more", agent, more, step),)
        if tx > 0:
            self.notes[barrier] += (Note("expect", agent, tx, step),)
            self.expected_bytes[barrier] += tx
        elif tx < 0:
            self.notes[barrier] += (Note("bytes", agent, -tx, step),)
        if arrivals or not (more or tx):
            self.notes[barrier] += (Note("arrive", agent, arrivals, step),)
        if arrivals and agent not in self.arrivers[barrier]:
            self.arrivers[barrier] += (agent,)
        is_dead = self.pending[barrier] >= ARRIVALS_END  # all its arrivals were dropped: none may come any more
        pending = self.pending[barrier] = self.pending[barrier] + more - arrivals
        after = self.tx[barrier] = self.tx[barrier] + tx
        self.expected[barrier] -= dropped
        self._require_countable(barrier, is_dead=is_dead)
        if more or (tx > 0 and not arrivals):
            self.order.raises(barrier, agent)
        elif arrivals and not takes_back:
            self.order.arrives(barrier, agent, past)
        if pending == 0 and after == 0:
            self._end_phase(barrier)
        return phase

    def _require_countable(self, barrier: int, *, is_dead: bool) -> None:
        """Stop where more arrives than a phase waits for, or its bytes go beyond what a barrier counts.

        No landing of a phase certainly comes before something expected in it, so all that is expected can be outstanding.
        """
        pending = self.pending[barrier]
        if pending < 0 or (is_dead and pending < ARRIVALS_END):
            raise self.miscounted(barrier, "too many arrivals" if barrier < self.barriers else "sync surplus")
        outstanding = max(self.expected_bytes[barrier], abs(self.tx[barrier]))
        if outstanding >= TX_END_BYTES:
            raise mistake_error(
                self.program,
                "outstanding",
                barrier=barrier,
                phase=self.phase[barrier],
                tx=outstanding,
                limit=TX_END_BYTES - 1,
                needed=ceil_div(outstanding, TX_END_BYTES - 1),
            )

    def _end_phase(self, barrier: int) -> None:
        """The next phase begins."""
        phase = self.phase[barrier]
        self.order.ends(barrier, phase)
        self.phase[barrier] = phase + 1
        # a barrier from which all arrivals were dropped never ends a phase again
        self.pending[barrier] = self.expected[barrier] or ARRIVALS_END
        self.first_notes.setdefault(barrier, self.notes[barrier])
        self.notes[barrier] = ()
        self.expected_bytes[barrier] = 0
        self.ended.append(barrier)

    def signal(self, flag: int, agent: int, amount: int, step: Step | None) -> None:
        """Add to a flag: its phases end at the values for which somebody polls; nobody waits for an addition of 0."""
        if not amount:
            return
        thresholds = self.program.thresholds.get(flag, [])
        self.order.counts(flag, self.phase[flag], agent, None)
        self.notes[flag] += (Note("arrive", agent, amount, step),)
        self.tx[flag] += amount
        while self.phase[flag] < len(thresholds) and self.tx[flag] >= thresholds[self.phase[flag]]:
            if self.tx[flag] > thresholds[self.phase[flag]]:
                self.order.overshoots(flag, self.phase[flag], agent)
            self._end_phase(flag)
            if self.phase[flag] < len(thresholds):
                self.order.counts(flag, self.phase[flag], agent, None)

    def pass_wait(self, barrier: int, agent: int) -> None:
        """A wait passes."""
        self._require_ready(barrier, agent)
        self._require_met(barrier, agent)
        if (
            agent in self.unmet_stores
        ):  # all warps now wait for a phase that ended after one of them waited for its store
            heard = self.order.hears_of_itself(barrier, agent)
            held = self.unmet_stores[agent]
            self.unmet_stores[agent] = {key: time for key, time in held.items() if time > heard}
        self.order.passes(barrier, self.phase[barrier], agent)
        self.last_pass[agent, barrier] = self.phase[barrier]

    def _require_ready(self, barrier: int, agent: int, past: Clock | None = None) -> None:
        """Stop where an agent cannot know that a barrier is initialised; a copy that lands had to know when it was issued."""
        program = self.program
        if not program.initialises or barrier >= self.barriers:
            return
        if past is None and (agent, barrier) in self.seen_ready:
            return
        if not self.order.is_ready(barrier, agent, past):
            raise mistake_error(program, "init", agent=agent, barrier=barrier)
        elsewhere = program.barriers[barrier].home != program.agents[agent].home
        if elsewhere and not self.order.is_shown(barrier, agent, past):
            raise mistake_error(program, "init fence", agent=agent, barrier=barrier)
        if past is None:
            self.seen_ready[agent, barrier] = True

    def _require_met(self, barrier: int, agent: int) -> None:
        """Stop where all warps of an agent use a barrier that one of them has initialised, before they have met."""
        if self.unmet_inits.get(barrier) == agent:
            raise mistake_error(self.program, "init", agent=agent, barrier=barrier)

    def miscounted(self, barrier: int, kind: str) -> MistakeFoundError:
        """The mistake of a barrier that waits for other arrivals than those that come."""
        agents, came = self.noted(barrier, "arrive")
        expected = self.expected[barrier]
        return mistake_error(
            self.program,
            kind,
            barrier=barrier,
            phase=self.phase[barrier],
            expected=expected,
            came=came,
            agents=agents,
            tx=self.tx[barrier],
            added=self.noted(barrier, "more").amount,
            pending=self.pending[barrier],
            surplus=came - expected,
        )

    def threads_at(self, barrier: int, agent: int) -> int:
        """What an agent counts at a barrier of threads: its threads, or 1 at that of the cluster."""
        of_cluster = barrier == self.program.cluster_of(agent)
        return 1 if of_cluster else self.program.agents[agent].of.whole_threads(WARP_THREADS)

    def meet(self, agent: int, action: Action, *, counts: bool = True) -> bool:
        """Arrive at a barrier of threads, or leave one whose phase has ended; whether the action is over.

        An arrival that does not count comes later by itself.
        """
        barrier = action.barriers[0]
        of_cluster = barrier == self.program.cluster_of(agent)
        standing = self.standing.get((agent, barrier))
        has_arrived = standing is not None and (standing.place == self.pc[agent] or action.choice == "wait")
        if not has_arrived:
            if action.choice == "wait":
                raise mistake_error(self.program, "cluster wait", agent=agent)
            if of_cluster and standing is not None:
                raise mistake_error(self.program, "cluster again", agent=agent)
            if not of_cluster:
                self._expect_threads(agent, action, barrier)
            if action.meets or of_cluster:
                self.standing[agent, barrier] = Standing(self.phase[barrier], self.pc[agent])
            if counts:
                self.count(barrier, agent, arrivals=self.threads_at(barrier, agent), step=action.step)
        if action.meets:
            if self.phase[barrier] <= self.standing[agent, barrier].phase:
                return False
            del self.standing[agent, barrier]
            self.order.meets(barrier, agent)
        return True

    def _expect_threads(self, agent: int, action: Action, barrier: int) -> None:
        """The first who comes to a bar.sync says how many threads meet there; the others must say the same."""
        block = self.program.agents[agent].home
        in_block = (other.of for other in self.program.agents if other.home == block)
        asked = action.times or sum(role.whole_threads(WARP_THREADS) for role in in_block)
        came = self.notes[barrier]
        expected = self.expected[barrier]
        if came and expected != asked:
            raise mistake_error(self.program, "sync counts", barrier=barrier, expected=expected, other=asked)
        if not came:
            self.expected[barrier] = self.pending[barrier] = asked

    def leave(self, agent: int) -> None:
        """An agent leaves: the cluster barrier no longer waits for it."""
        self.left[agent] = True
        self.present[self.program.agents[agent].home] -= 1
        if self.program.earlier[agent]:
            self.count(self.program.grid, agent, arrivals=1)
            if self.phase[self.program.grid]:  # all that the grid has stored is written now
                stored = (keys for other, keys in self.unflushed.items() if self.program.earlier[other])
                for key in chain(*stored):
                    self.order.finishes_with(key, self.program.grid, 0)
        cluster = self.program.cluster_of(agent)
        has_arrived = agent in self.noted(cluster, "arrive").agents
        self.order.leaves(cluster, agent, in_next_phase=has_arrived)
        self.expected[cluster] -= 1
        if not has_arrived:
            self.pending[cluster] -= 1
            if self.pending[cluster] == 0 and self.notes[cluster]:
                self._end_phase(cluster)
