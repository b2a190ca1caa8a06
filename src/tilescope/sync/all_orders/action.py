"""What the agents of a run do, and what is under way between them, as values with all their numbers.

wait full[0] 0        an Action of an agent: it waits at barrier 0, with parity 0
4096 bytes for a[0]   a Flight: a copy was issued, and its bytes have not landed yet
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.pipeline.parts import Step

NONE = -1  # no barrier
WAITS = ("wait", "tail")
# identifies an access or a flight: its agent, the number of the action in its role, its number within the action
Key = tuple[int, int, int]
# rows for control and data; for every agent and barrier, how far somebody's past reaches (see `clocks`)
Clock: TypeAlias = npt.NDArray[np.int64]


class Action(NamedTuple):
    """A step with every expression worked out. Barriers and slots are instances, one for each block that it acts on."""

    op: str
    barriers: tuple[int, ...]
    slots: tuple[int, ...]
    number: int  # parity, bytes, pending groups, barrier id, registers
    times: int  # arrivals, threads
    flag: bool
    choice: str  # which copy, unit, group, fence
    into: tuple[int, ...]
    tile: int | None
    mask: int  # as written if it names blocks beyond the cluster, else 0
    offset: int | None = None  # where a copy starts in its slot; None: after the other copies of its phase
    scope: str = ""  # of an arrival; empty if the step does not state one
    step: Step | None = None  # as written
    sources: tuple[int, ...] = ()  # slots of global memory that a copy reads

    @property
    def barrier(self) -> int:
        """The first of its barriers, or NONE."""
        return self.barriers[0] if self.barriers else NONE

    @property
    def waits(self) -> bool:
        """Whether it waits for a phase of an mbarrier."""
        return self.op in WAITS

    @property
    def meets(self) -> bool:
        """Whether it waits at a barrier of threads."""
        return self.op == "sync" or (self.op == "cluster" and self.choice != "arrive")


class Flight(NamedTuple):
    """Something under way: a copy's bytes, or an arrival that comes when work is done."""

    op: str  # copy, commit, cp_arrive, cp_drop, late
    barrier: int
    number: int  # bytes, or arrivals
    slots: tuple[int, ...]  # one, of a copy
    agent: int
    past: Clock | None  # what the agent knew when it sent it; None where orders are tried one by one
    keys: tuple[Key, ...]  # of the accesses that are finished when it lands
    key: Key = (NONE, NONE, NONE)  # its own: that of its access, if it has one
