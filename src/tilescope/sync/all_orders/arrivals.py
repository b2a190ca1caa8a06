"""Arrivals of roles at barriers, and of their warps.

A role of several warps is one agent here, but its warps do not wait for each other: what threads read or wrote is known to
others when all warps have met (sync), or when a phase has ended at which all of them arrive (a count of at least the
warps). It is not known when one of them arrives or stores.
"""

from __future__ import annotations

from tilescope.pipeline.wording import mistake_error
from tilescope.sync.all_orders.action import Action, Flight, Key
from tilescope.sync.all_orders.slots import Memory


class Arrivals(Memory):
    """The state of a run whose barriers are reached."""

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

    def _arrive_late(self, agent: int, action: Action, keys: tuple[Key, ...]) -> None:
        """Several warps arrive after accesses of their own: one may go on before the last has come.

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

    def _meet_threads(self, agent: int, action: Action) -> bool:
        """Come to a barrier of threads; whether the action is over: a meeting takes two, arriving and leaving."""
        if not action.meets:  # the warps go on, one sooner than the other
            return self._come_and_go_on(agent, action)
        if action.choice != "wait":
            self._cover(agent)
        is_over = self.meet(agent, action)
        if is_over:  # what one warp knew all of them know
            self.unmet_stores.pop(agent, None)
            self.unmet_inits = {barrier: maker for barrier, maker in self.unmet_inits.items() if maker != agent}
        return is_over

    def _come_and_go_on(self, agent: int, action: Action) -> bool:
        """Arrive at a barrier of threads, and do not wait there. Where orders are tried one by one, the last warp may be late."""
        barrier = action.barriers[0]
        keys = tuple(filter(self.order.is_alive, self.uncovered.get(agent, ())))
        if not self.order.tries_orders or not (keys or self._late_arrivals(agent)):
            self._cover_with(agent, barrier)
            return self.meet(agent, action)
        threads = self.threads_at(barrier, agent)
        self._send(Flight("late", barrier, threads, (), agent, None, keys, self._key(agent, 0)))
        return self.meet(agent, action, counts=False)

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
        """All warps of an agent meet: what they did before is over for everything that comes after."""
        self.order.warps_meet(agent)
        for key in self.uncovered.pop(agent, ()):
            self.order.finishes(key, agent)

    def _initialise(self, agent: int, action: Action) -> None:
        for barrier in action.barriers:
            if self.initialised[barrier]:
                raise mistake_error(self.program, "init twice", agent=agent, barrier=barrier)
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

    def _send(self, flight: Flight) -> None:
        """Send bytes or an arrival on their way."""
        self.flights[flight.key] = flight
        self.sent.append(flight.key)
