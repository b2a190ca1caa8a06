"""One order of a pipeline's roles, run on the host: what every read of a right pipeline must see.

Every copy and every write has a serial number, which fills its bytes. Roles do not branch on data, so in a right pipeline
every order shows a reader the same serials, and any one order tells which. Here copies land at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.gpu.verify.suites import Array
from tilescope.gpu.verify.suites.pipeline_actions import (
    Action,
    Agent,
    NotRunnableError,
    copied_bytes,
    meeting_threads,
    stages,
)
from tilescope.pipeline.description import Pipeline
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.mbarrier import TX_END_BYTES
from tilescope.sync.thread_limits import WARP_THREADS

NEVER = 0xFFFFFFFF  # a serial that no chunk has
Key: TypeAlias = tuple[int, int]  # an agent, and the place of an action in its role
# of a slot in a block, what fills it together: a barrier and its phase, or an agent and its groups of cp.async before
Filler: TypeAlias = tuple[int | None, int]


@dataclass(slots=True)
class _Barrier:
    """An mbarrier of the host's order."""

    count: int
    is_ready: bool
    phase: int = 0
    pending: int = 0
    tx_bytes: int = 0

    def change(self, arrivals: int, tx_bytes: int) -> None:
        """Take arrivals, and bytes that are expected (more) or have come (less); the phase may end."""
        self.pending -= arrivals
        self.tx_bytes += tx_bytes
        if not self.is_ready or self.pending < 0 or abs(self.tx_bytes) >= TX_END_BYTES:
            raise NotRunnableError("a barrier faults")
        if self.pending == 0 and self.tx_bytes == 0:
            self.phase += 1
            self.pending = self.count


@dataclass(slots=True)
class _Meeting:
    """A barrier of threads: how many came, and how often it was complete."""

    came: int = 0
    generation: int = 0


@dataclass(slots=True)
class Seen:
    """What one order shows: of every read the serials of its chunks, of every copy its place in the slot."""

    serials: dict[Key, list[Array]] = field(default_factory=dict)  # by agent and action, one array a slot
    offsets: dict[Key, int] = field(default_factory=dict)


class Order:
    """Runs a pipeline on the host, one order of its roles; copies land at once.

    `eager`: a role goes on as far as it can; otherwise roles take turns.
    """

    def __init__(self, pipeline: Pipeline, agents: Sequence[Agent], serials: Mapping[Key, int]) -> None:
        self.agents = agents
        self.serials = serials
        initialises = any(action.op == "init" for agent in agents for action in agent.actions)
        counts = [part.size for part in stages(pipeline.barriers)]
        blocks = range(pipeline.blocks)
        self.barriers = {
            (block, number): _Barrier(count, not initialises, pending=count)
            for block in blocks
            for number, count in enumerate(counts)
        }
        self.chunks = {
            (block, number): np.full(ceil_div(part.size, CHUNK_BYTES), NEVER, np.uint32)
            for block in blocks
            for number, part in enumerate(stages(pipeline.slots))
        }
        self.tiles: dict[int, int | None] = {NEVER: None}  # of serials
        self.meetings: dict[tuple[int, int], _Meeting] = {}
        self.cluster = _Meeting()
        # those that leave are not waited for any more
        self.cluster_members = {number for number, agent in enumerate(agents) if agent.actions}
        self.cluster_came: set[int] = set()
        self.places = [0] * len(agents)
        self.waiting: dict[int, int] = {}  # agents at a barrier, and the generation whose end they wait for
        self.cluster_waits: Counter[int] = Counter()
        self.filled_bytes: Counter[tuple[int, int, Filler]] = Counter()  # of a slot in a block, by what fills it
        self.groups: Counter[int] = Counter()  # of cp.async, closed by an agent
        self.seen = Seen()

    def run(self, turns: Sequence[int], *, eager: bool) -> Seen:
        """Act until no agent can."""
        moved = True
        while moved:
            moved = False
            for agent in turns:
                while self._acts(agent):
                    moved = True
                    if not eager:
                        break
        return self.seen

    def _acts(self, number: int) -> bool:
        """Do an agent's next action, if it can be done now."""
        agent = self.agents[number]
        place = self.places[number]
        if place == len(agent.actions):
            return False
        action = agent.actions[place]
        if not self._passes(number, agent, action):
            return False
        self._do(number, agent, action)
        self.places[number] += 1
        if self.places[number] == len(agent.actions):
            self.cluster_members.remove(number)
            self._end_cluster_meeting()
        return True

    def _passes(self, number: int, agent: Agent, action: Action) -> bool:
        """Whether an action no longer needs to wait; arrives at a barrier when it is first called."""
        if action.op in ("wait", "tail"):
            barrier = self.barriers[agent.block, action.targets[0]]
            if not barrier.is_ready:
                raise NotRunnableError("a wait at a barrier that was not initialized")
            parity: int = action.arguments["parity"]
            return barrier.phase & 1 != parity & 1
        if action.op == "sync":
            meeting = self._meeting(agent, action)
            if number not in self.waiting:
                self.waiting[number] = meeting.generation
                self._come(meeting, WARP_THREADS * agent.warps, self._threads(agent, action))
            if meeting.generation == self.waiting[number]:
                return False
            del self.waiting[number]
        if action.op == "cluster" and action.targets[0] != "arrive":
            if action.targets[0] == "sync" and number not in self.waiting:
                self.waiting[number] = 0
                self._come_to_cluster(number)
            if self.cluster.generation <= self.cluster_waits[number]:
                return False
            self.waiting.pop(number, None)
            self.cluster_waits[number] += 1
        return True

    def _do(self, number: int, agent: Agent, action: Action) -> None:
        """Do an action; those that only wait, or that the host does not see, do nothing here."""
        doing = _DOING.get(action.op)
        if doing is not None:
            doing(self, (number, self.places[number]), agent, action)

    def _initialise(self, _key: Key, agent: Agent, action: Action) -> None:
        for target in action.targets:
            barrier = self.barriers[agent.block, target]
            if barrier.is_ready:
                raise NotRunnableError("a barrier is initialised twice")
            barrier.is_ready = True

    def _expect(self, _key: Key, agent: Agent, action: Action) -> None:
        for rank in action.ranks(agent.block):
            barrier = self._barrier(rank, action.targets[0])
            barrier.change(int(action.arguments["arrive"]), action.arguments["bytes"])

    def _arrive(self, _key: Key, agent: Agent, action: Action) -> None:
        for rank in action.ranks(agent.block):
            if action.arguments["count"]:
                self._barrier(rank, action.targets[0]).change(action.arguments["count"], 0)

    def _cp_arrive(self, key: Key, agent: Agent, action: Action) -> None:
        self.groups[key[0]] += 1
        if action.arguments["noinc"]:
            self._barrier(agent.block, action.targets[0]).change(action.arguments["count"], 0)

    def _write(self, key: Key, agent: Agent, action: Action) -> None:
        for slot in action.targets:
            self.chunks[agent.block, slot][:] = self.serials[key]
            self.tiles[self.serials[key]] = action.arguments["tile"]

    def _read(self, key: Key, agent: Agent, action: Action) -> None:
        tile = action.arguments.get("tile")
        self.seen.serials[key] = [self._seen(self.chunks[agent.block, slot], tile) for slot in action.targets]

    def _commit(self, key: Key, _agent: Agent, action: Action) -> None:
        if action.targets[0] == "cp.async":
            self.groups[key[0]] += 1

    def _bar_arrive(self, _key: Key, agent: Agent, action: Action) -> None:
        self._come(self._meeting(agent, action), WARP_THREADS * agent.warps, self._threads(agent, action))

    def _cluster_arrive(self, key: Key, _agent: Agent, action: Action) -> None:
        if action.targets[0] == "arrive":
            self._come_to_cluster(key[0])

    def _copy(self, key: Key, agent: Agent, action: Action) -> None:
        arguments = action.arguments
        slot = action.targets[0]
        size = copied_bytes(action)
        barrier = arguments["barrier"]
        serial = self.serials[key]
        self.tiles[serial] = arguments["tile"]
        for rank in action.ranks(agent.block):
            if (rank, slot) not in self.chunks:
                raise NotRunnableError("a copy into a block that is not there")
            filler: Filler = (key[0], self.groups[key[0]])
            if arguments["by"] != "cp.async":
                filler = (barrier, self._barrier(rank, barrier).phase)
            offset = arguments.get("offset")
            if offset is None:
                offset = self.filled_bytes[rank, slot, filler]
                self.filled_bytes[rank, slot, filler] += size
                if offset + size > CHUNK_BYTES * len(self.chunks[rank, slot]):
                    offset = 0  # not a further part: it overwrites what the slot holds
            if self.seen.offsets.setdefault(key, offset) != offset:
                raise NotRunnableError("a multicast copy to different places of its blocks")
            first = offset // CHUNK_BYTES
            self.chunks[rank, slot][first : first + size // CHUNK_BYTES] = serial
            if arguments["by"] != "cp.async":
                self._barrier(rank, barrier).change(0, -size)

    def _seen(self, chunks: Array, tile: int | None) -> Array:
        """What a reader must see: the chunks, but none of another tile than it names."""
        seen = chunks.copy()
        for place, serial in enumerate(chunks.tolist()):
            if tile is not None and self.tiles[serial] not in (None, tile):
                seen[place] = NEVER
        return seen

    def _barrier(self, rank: int, number: int | None) -> _Barrier:
        if number is None or (rank, number) not in self.barriers:
            raise NotRunnableError("a copy without a barrier, or a block that is not there")
        return self.barriers[rank, number]

    def _meeting(self, agent: Agent, action: Action) -> _Meeting:
        return self.meetings.setdefault((agent.block, action.targets[0]), _Meeting())

    def _threads(self, agent: Agent, action: Action) -> int:
        return meeting_threads(self.agents, agent, action)

    def _come_to_cluster(self, number: int) -> None:
        self.cluster_came.add(number)
        self._end_cluster_meeting()

    def _end_cluster_meeting(self) -> None:
        if self.cluster_came and self.cluster_members <= self.cluster_came:
            self.cluster_came.clear()
            self.cluster.generation += 1

    @staticmethod
    def _come(meeting: _Meeting, coming: int, wanted: int) -> None:
        meeting.came += coming
        if meeting.came >= wanted:
            meeting.came = 0
            meeting.generation += 1


# what operations do
_DOING: dict[str, Callable[[Order, Key, Agent, Action], None]] = {
    "init": Order._initialise,
    "expect": Order._expect,
    "arrive": Order._arrive,
    "release": Order._arrive,
    "cp_arrive": Order._cp_arrive,
    "copy": Order._copy,
    "write": Order._write,
    "read": Order._read,
    "multiply": Order._read,
    "store": Order._read,
    "commit": Order._commit,
    "bar_arrive": Order._bar_arrive,
    "cluster": Order._cluster_arrive,
}
