"""Proves long loops by a short run: a state that recurs, with all counts advanced by the same amount, recurs forever.

    i = 0 … 191     192 … 215     216 … 239     9760 … 9999
    warm up         one round  =  the same round, 24 steps later  ──▶  so are all rounds until the loop ends

A run against the nominal clock depends only on its state. So if the state after a round of P steps equals that before
it, with every clock, phase and tile counted from now, further rounds repeat it. A loop of N steps then ends like one
that skips m P steps in the middle. The remaining steps keep their own numbers, so what comes after the loop finds the
tiles of its last steps.

Counted from now, two rounds of a loop are the same if all epochs are equally old in both:

    round 1    producer at 3, full 1 ended     clock of the consumer: producer 3, full 1     from now: 0, 0
    round 2    producer at 6, full 2 ended     clock of the consumer: producer 6, full 2     from now: 0, 0, so it recurs
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tilescope.sync.all_orders.contents import Segment
from tilescope.sync.all_orders.search import Run
from tilescope.sync.all_orders.state import State
from tilescope.sync.happens_before import NONE, Access, Clock, Fill, Key
from tilescope.sync.role_clocks import DelayedArrival, Epoch, RoleClocks
from tilescope.sync.role_program import RoleProgram

MAX_ROUNDS = 2  # a state recurs after 1 or 2 rounds


class LoopPlace(NamedTuple):
    """An agent's long loop: the number of its first action, and the actions of a round."""

    first: int
    actions: int


class ShortenedRun(Run):
    """The run of a program whose long loops are cut; compares its state at every round of them with those before.

    The last round comes after the cut, with the counters that it has in the whole loop.
    """

    def __init__(
        self, program: RoleProgram, places: Mapping[int, LoopPlace], *, period: int, rounds: int, actions_cut: int
    ) -> None:
        super().__init__(program)
        self.places = places  # agents that act in a long loop
        self.period = period  # steps of a round
        self.rounds = rounds  # before the cut
        self.actions_cut = actions_cut
        self.leader = min(places, default=NONE)
        self.seen: dict[bytes, int] = {}
        self.first_round: list[_BarrierUse] = []  # of barriers, when it began
        self.rounds_seen = 0
        self.recurs = False

    def proves(self) -> bool:
        """Whether the short run is right, its phases are determined, and its state recurs: so for the long one."""
        return self() is None and not self.clocks.ambiguities and self.recurs

    def act(self, agent: int) -> None:
        """Let an agent act, and look at the state when the leading agent begins a round."""
        super().act(agent)
        if agent != self.leader or self.recurs:
            return
        first, length = self.places[agent]
        rounds, inside = divmod(self.state.pc[agent] - first, length)
        if inside or not self.rounds_seen <= rounds < self.rounds:  # in the midst, or seen already
            return
        self.rounds_seen = rounds + 1
        state = self._state_from_now(rounds)
        if state is not None:
            before = self.seen.setdefault(state, rounds)
            self.recurs = before < rounds and MAX_ROUNDS % (rounds - before) == 0

    def _relative_key(self, key: Key) -> Key:
        """A key whose action is counted from the agent's current one."""
        agent, place, number = key
        return agent, place - self.state.pc[agent], number

    def _state_from_now(self, rounds: int) -> bytes | None:
        """All that the future depends on, counted from now; None while some agent is not in its loop."""
        state = self.state
        positions = []
        for agent, (pc, exited) in enumerate(zip(state.pc, state.exited, strict=True)):
            first, length = self.places.get(agent, (0, 0))
            if agent in self.places and (exited or not 0 <= pc - first < self.rounds * length):
                return None
            positions.append((pc - first - rounds * length, exited))
        barriers = [
            _BarrierUse(phase, len(operations), passed)
            for phase, operations, passed in zip(state.phase, state.operations, self.clocks.passed, strict=True)
        ]
        self.first_round = self.first_round or barriers
        unused = [now == first for now, first in zip(barriers, self.first_round, strict=True)]
        queue = [
            (due.tick - self.tick, due.agent, None if due.agent != NONE else self._relative_key(due.pending))
            for due in sorted(self.queue)
        ]
        parked = sorted((barrier, agents) for barrier, agents in self.parked.items() if agents)
        busy = [max(0, until - self.tick) for until in self.busy_until]
        clocks = _ClocksFromNow(self.clocks, state.phase, state.pc).parts(unused)
        parts = _StateFromNow(state, rounds * self.period).parts(unused)
        return pickle.dumps((positions, clocks, parts, queue, parked, busy))


class _BarrierUse(NamedTuple):
    """The counts of a barrier: it is unused in a round that changes none of them."""

    phase: int
    operations: int
    passed: dict[int, int]


class _StateFromNow:
    """A state counted from now: phases from the running one, keys from their agents' positions, tiles from `tiles`."""

    def __init__(self, state: State, tiles: int) -> None:
        self._state = state
        self._tiles = tiles

    def parts(self, unused: Sequence[bool]) -> list[object]:
        """All of it, equal in two rounds of a loop if the second repeats the first."""
        state = self._state
        parities = [phase % 2 for phase in state.phase[: state.mbarriers]]
        outstanding = [
            (
                self._key(key),
                pending.kind,
                pending.barrier,
                pending.arrivals,
                pending.size_bytes,
                pending.slots,
                self._keys(pending.keys),
            )
            for key, pending in state.outstanding.items()
        ]
        thread_arrivals = [
            (agent, barrier, arrival.phase - state.phase[barrier], state.pc[agent] - arrival.place)
            for (agent, barrier), arrival in state.thread_arrivals.items()
        ]
        last_passes = [
            (agent, barrier, phase - state.phase[barrier])
            for (agent, barrier), phase in state.last_pass.items()
            if not unused[barrier]
        ]
        return [
            [state.pending, state.tx, state.expected, parities],
            [[*map(self._access, accesses)] for accesses in state.accesses],
            [[*map(self._segment, contents)] for contents in state.contents],
            [(slot, self._fill(fill), end) for slot, (fill, end) in sorted(state.fill_ends.items())],
            sorted(outstanding),
            sorted((group, [self._keys(keys) for keys in groups]) for group, groups in state.groups.items()),
            sorted((agent, self._keys(keys)) for agent, keys in state.uncommitted.items()),
            sorted((agent, self._keys(keys)) for agent, keys in state.unsynced.items()),
            sorted((agent, self._keys(keys)) for agent, keys in state.unsynced_stores.items()),
            [[operation.agent for operation in operations] for operations in state.operations[state.mbarriers :]],
            [state.registers, state.pool],
            sorted(thread_arrivals),
            sorted(last_passes),
        ]

    def _key(self, key: Key) -> Key:
        agent, place, number = key
        return agent, self._state.pc[agent] - place, number

    def _keys(self, keys: Iterable[Key]) -> list[Key]:
        return [*map(self._key, keys)]

    def _tile(self, number: int | None) -> int | None:
        return None if number is None else number - self._tiles

    def _fill(self, fill: Fill | None) -> Fill | None:
        if fill is None:
            return None
        source, number, group = fill
        if source != NONE:
            return source, number - self._state.phase[source], NONE
        return source, number, group - self._state.groups_made(number) if group != NONE else NONE

    def _access(self, access: Access) -> tuple[object, ...]:
        return self._key(access.key), access[1:6], self._fill(access.fill), self._tile(access.tile)

    def _segment(self, part: Segment) -> tuple[object, ...]:
        return *part[:2], self._tile(part.tile), self._fill(part.fill), *part[4:]


class _ClocksFromNow:
    """Vector clocks as distances from the present epochs of agents and phases of barriers."""

    def __init__(self, clocks: RoleClocks, phases: Sequence[int], places: Sequence[int]) -> None:
        self._clocks = clocks
        self._phases = phases
        self._places = places  # of the agents in their roles
        times = [clock[0, agent] for agent, clock in enumerate(clocks.clock)]
        self._now = np.array([*times, *phases])
        self._counts = self._now.tolist()

    def parts(self, unused: Sequence[bool]) -> list[object]:
        """All of it, equal in two rounds of a loop if the second repeats the first.

        `unused` barriers were not used in the rounds that are compared, so their clocks stay as they are and decide
        nothing there.
        """
        clocks = self._clocks
        used = [barrier for barrier, is_unused in enumerate(unused) if not is_unused]
        finished = [(self._key(key), self._epochs(epochs)) for key, epochs in clocks.finished.items()]
        fenced = [(self._key(key), kind, self._epochs(epochs)) for (key, kind), epochs in clocks.fenced.items()]
        return [
            [self._clock(clock) for clock in clocks.clock],
            [self._barrier(barrier) for barrier in used],
            sorted(finished),
            sorted(fenced),
            [self._block_uses(clocks.remote), self._block_uses(clocks.local)],
        ]

    def _barrier(self, barrier: int) -> tuple[object, ...]:
        """The clocks of a barrier."""
        clocks = self._clocks
        phases = []
        for ended in clocks.arrival_phases[barrier]:
            delayed = [self._find_delay_epochs(arrival) for arrival in ended.delayed]
            phases.append((ended.phase - self._phases[barrier], self._clock(ended.clock), delayed))
        return (
            self._clock(clocks.gathered[barrier]),
            self._clock(clocks.gathered_next[barrier]),
            self._clock(clocks.released[barrier]),
            clocks.has_landings[barrier],
            phases,
            [self._find_delay_epochs(arrival) for arrival in clocks.delayed[barrier]],
            self._epochs(clocks.raised[barrier]),
            self._epochs(sorted(clocks.passed[barrier].items())),
        )

    def _clock(self, clock: Clock | None) -> bytes | None:
        return None if clock is None else (clock - self._now).tobytes()

    def _epochs(self, epochs: Iterable[Epoch]) -> list[Epoch]:
        return [(column, value - self._counts[column]) for column, value in epochs]

    def _key(self, key: Key) -> Key:
        agent, place, number = key
        return agent, self._places[agent] - place, number

    def _find_delay_epochs(self, arrival: DelayedArrival) -> list[list[Epoch]]:
        syncs = [epoch for time, epoch in self._clocks.warp_syncs.get(arrival.agent, ()) if time > arrival.time]
        return [self._epochs([(arrival.agent, arrival.time)]), self._epochs(arrival.phases), self._epochs(syncs)]

    def _block_uses(self, uses: Mapping[tuple[int, int], int]) -> list[tuple[int, Epoch]]:
        """Blocks that something accessed, and when."""
        return sorted((block, (column, value - self._counts[column])) for (block, column), value in uses.items())
