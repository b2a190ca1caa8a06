"""Barriers of threads: bar.sync of a block, and the barrier of the cluster."""

from __future__ import annotations

import numpy as np

from tilescope.pipeline.barriers import Ambiguity, Journal
from tilescope.pipeline.memory import Clock, copied
from tilescope.pipeline.mistake import Mistake, MistakeFoundError, example, pipeline_rule
from tilescope.pipeline.program import NONE, Action, Program

_BARS = 16  # of a block
CLUSTER = (NONE, 0)


SYNC = pipeline_rule(
    "pipeline-sync", "As many threads meet at a bar.sync as all of them name, and every role comes to the cluster barrier.",
    example({"sync": 1, "threads": 64}), source="PTX ISA, bar; barrier.cluster", basis="measured",
)  # fmt: skip


class Meeting:
    """Threads that wait for each other, generation after generation; `threads` None: all that have not left."""

    def __init__(self, name: str, threads: int | None) -> None:
        self.name, self.threads = name, threads
        self.generation = 0
        self.arrived: tuple[int, ...] = ()
        self.clock: Clock | None = None  # what those who arrived know together
        self.done: Clock | None = None  # the same of the generation before

    def clone(self) -> Meeting:
        """An independent copy."""
        return copied(self)


class Meetings:
    """The bar.syncs of every block and the cluster barrier; their places of a clock start at `first_place`."""

    def __init__(self, program: Program, journal: Journal, first_place: int) -> None:
        self.program, self.journal, self.first_place = program, journal, first_place
        self.all: dict[tuple[int, int], Meeting] = {}  # (block, id), or CLUSTER
        self.arrived_at = [NONE] * len(program.agents)  # generation of bar.sync that an agent waits in
        self.cluster_at = [NONE] * len(program.agents)  # and of the cluster barrier at which it arrived
        self.left = [False] * len(program.agents)

    @property
    def places(self) -> int:
        """Places of a clock that meetings take."""
        return self.program.pipeline.blocks * _BARS + 1

    def place(self, key: tuple[int, int]) -> int:
        """The place of a clock that a meeting has."""
        return self.first_place + (self.places - 1 if key == CLUSTER else key[0] * _BARS + key[1] % _BARS)

    def clone(self, journal: Journal) -> Meetings:
        """An independent copy; clocks are shared."""
        other = copied(self)
        other.journal, other.all = journal, {key: each.clone() for key, each in self.all.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """What distinguishes two states for what may come."""
        meetings = tuple((key, each.generation, each.arrived) for key, each in sorted(self.all.items()))
        return tuple(self.arrived_at), tuple(self.cluster_at), meetings

    def key_of(self, agent: int, action: Action) -> tuple[int, int]:
        """The key of the meeting that an action is about."""
        return CLUSTER if action.op == "cluster" else (self.program.agents[agent].rank, action.number)

    def of(self, agent: int, action: Action) -> tuple[tuple[int, int], Meeting]:
        """The meeting that an action is about, counted for as many threads as the action says."""
        key = self.key_of(agent, action)
        if key == CLUSTER:
            return key, self.all.setdefault(CLUSTER, Meeting("the cluster barrier", None))
        threads = action.times or sum(each.warp_threads for each in self.program.agents if each.rank == key[0])
        meeting = self.all.setdefault(key, Meeting(f"bar {action.number}", threads))
        if not meeting.arrived:
            meeting.threads = threads
        elif meeting.threads != threads:
            raise MistakeFoundError(Mistake(
                "pipeline-sync", "undefined", meeting.name,
                f"{meeting.name} is asked for {meeting.threads} and for {threads} threads at once",
                "what happens then is not defined", "Give all roles that meet there the same count.",
            ))  # fmt: skip
        return key, meeting

    def enabled(self, agent: int, action: Action) -> bool:
        """Whether an agent can arrive, or leave."""
        at = self.cluster_at[agent] if action.op == "cluster" else self.arrived_at[agent]
        return at == NONE or self.all[self.key_of(agent, action)].generation > at

    def meet(self, agent: int, action: Action, clock: Clock) -> bool:
        """Arrive at a meeting, or leave one that is complete; whether the action is over."""
        key, meeting = self.of(agent, action)
        at = self.cluster_at if key == CLUSTER else self.arrived_at
        if at[agent] == NONE:
            if action.choice == "wait":
                name = self.program.agents[agent].name
                raise MistakeFoundError(Mistake(
                    "pipeline-sync", "undefined", meeting.name, f"{name} waits at the cluster barrier without having arrived",
                    "what happens then is not defined", "Put cluster arrive before it, or use sync.",
                ))  # fmt: skip
            at[agent] = meeting.generation
            self._arrive(key, meeting, agent, clock)
        if meeting.generation <= at[agent]:
            return False
        at[agent] = NONE
        if meeting.done is not None:
            np.maximum(clock, meeting.done, out=clock)
        return True

    def arrive(self, agent: int, action: Action, clock: Clock) -> None:
        """Arrive without waiting."""
        key, meeting = self.of(agent, action)
        if key == CLUSTER:
            self.cluster_at[agent] = meeting.generation
        self._arrive(key, meeting, agent, clock)

    def leave(self, agent: int) -> None:
        """An agent leaves: the cluster barrier no longer waits for it."""
        self.left[agent] = True
        if CLUSTER in self.all:
            self._settle(CLUSTER, self.all[CLUSTER])

    def _arrive(self, key: tuple[int, int], meeting: Meeting, agent: int, clock: Clock) -> None:
        if clock[self.place(key)] < meeting.generation:
            self.journal.ambiguities.append(Ambiguity("meet", NONE, meeting.generation, agent))
        meeting.arrived = (*meeting.arrived, agent)
        meeting.clock = clock.copy() if meeting.clock is None else np.maximum(meeting.clock, clock)
        self._settle(key, meeting)

    def _settle(self, key: tuple[int, int], meeting: Meeting) -> None:
        """End the meeting's generation when everyone is there."""
        agents = self.program.agents
        if meeting.threads is None:
            complete = all(left or each in meeting.arrived for each, left in enumerate(self.left))
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
            meeting.done[self.place(key)] = meeting.generation
            self.journal.ended.append(NONE)
