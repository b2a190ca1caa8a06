"""Clocks counted from now: two rounds of a loop are the same if all that is known lies as far back in both.

round 1    producer at 3, full 1 ended     the consumer knows producer 3, full 1     from now: 0, 0
round 2    producer at 6, full 2 ended     the consumer knows producer 6, full 2     from now: 0, 0, so it repeats
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tilescope.sync.all_orders.action import Clock, Key
from tilescope.sync.role_clocks import Clocks, LateArrival, Point


class ClocksFromNow:
    """What clocks know, as distances from the present times of agents and phases of barriers."""

    def __init__(self, clocks: Clocks, phases: Sequence[int], places: Sequence[int]) -> None:
        self._clocks = clocks
        self._phases = phases
        self._places = places  # of the agents in their roles
        times = [clock[0, agent] for agent, clock in enumerate(clocks.clock)]
        self._now = np.array([*times, *phases])
        self._counts = self._now.tolist()

    def parts(self, unused: Sequence[bool]) -> list[object]:
        """All of it, equal in two rounds of a loop if the second repeats the first.

        `unused` barriers were not touched in the rounds that are compared, so what they hold on to stays as it is and
        decides nothing there.
        """
        clocks = self._clocks
        used = [barrier for barrier, is_unused in enumerate(unused) if not is_unused]
        finished = [(self._key(key), self._points(points)) for key, points in clocks.finished.items()]
        fenced = [(self._key(key), kind, self._points(points)) for (key, kind), points in clocks.fenced.items()]
        return [
            [self._clock(clock) for clock in clocks.clock],
            [self._barrier(barrier) for barrier in used],
            sorted(finished),
            sorted(fenced),
            [self._reached(clocks.remote), self._reached(clocks.local)],
        ]

    def _barrier(self, barrier: int) -> tuple[object, ...]:
        """What is known of a barrier."""
        clocks = self._clocks
        arrived = []
        for one in clocks.arrived[barrier]:
            late = [self._late(arrival) for arrival in one.late]
            arrived.append((one.phase - self._phases[barrier], self._clock(one.known), late))
        return (
            self._clock(clocks.gathered[barrier]),
            self._clock(clocks.gathered_next[barrier]),
            self._clock(clocks.released[barrier]),
            clocks.has_landings[barrier],
            arrived,
            [self._late(arrival) for arrival in clocks.late[barrier]],
            self._points(clocks.raised[barrier]),
            self._points(sorted(clocks.passed[barrier].items())),
        )

    def _clock(self, clock: Clock | None) -> bytes | None:
        return None if clock is None else (clock - self._now).tobytes()

    def _points(self, points: Iterable[Point]) -> list[Point]:
        return [(place, value - self._counts[place]) for place, value in points]

    def _key(self, key: Key) -> Key:
        agent, place, number = key
        return agent, self._places[agent] - place, number

    def _late(self, late: LateArrival) -> list[list[Point]]:
        met = [point for time, point in self._clocks.meetings.get(late.agent, ()) if time > late.time]
        return [self._points([(late.agent, late.time)]), self._points(late.phases), self._points(met)]

    def _reached(self, held: dict[tuple[int, int], int]) -> list[tuple[int, Point]]:
        """Blocks that something reached into, and when."""
        reached = []
        for (block, place), value in held.items():
            reached.append((block, (place, value - self._counts[place])))
        return sorted(reached)
