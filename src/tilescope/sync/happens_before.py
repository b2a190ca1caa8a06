"""What a run reports and asks about the order of events: the calls that `Clocks` and `Sight` answer.

    Machine ── copy begins, phase ends, warp waits … ──▶ Clocks: what is certain in every order of the roles
            ◀── is that access finished? ───────────────  Sight: what is under way in the one order that a search tries

Clocks hears all reports. A search sees the phases of its one order as they are, and needs fewer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, Self

from tilescope.sync.all_orders.action import Clock, Key
from tilescope.sync.all_orders.contents import Fill


class Access(NamedTuple):
    """One access to a slot, from its action until it is known to be finished."""

    key: Key
    agent: int
    write: bool
    how: str  # a row of memory.HOW
    start: int  # bytes of the slot; of a slot that does not state its bytes 0 and 1
    end: int
    fill: Fill | None = None  # of a copy
    tile: int | None = None


class Reports:
    """What a run reports of phases, blocks and registers: one order alone has no use for it, so nothing is done here."""

    def past(self, agent: int) -> Clock | None:
        """What an agent knows now, for what it sends on its way; None where one order alone is looked at."""
        return None

    def counts(self, barrier: int, phase: int, agent: int, past: Clock | None, *, weak: bool = False) -> None:
        """Something counts on a barrier: an agent's action, or with `past` a landing of what it sent."""

    def raises(self, barrier: int, agent: int) -> None:
        """An agent raises what a phase waits for without arriving."""

    def arrives(self, barrier: int, agent: int, past: Clock | None) -> None:
        """An arrival that the phase needs."""

    def leaves(self, barrier: int, agent: int, *, in_next_phase: bool) -> None:
        """An agent leaves: the cluster barrier takes it as arrived from now on."""

    def is_late(self, barriers: Sequence[int], phases: Sequence[int], blocks: Sequence[int], agent: int) -> None:
        """The arrival that an agent makes now, at barriers of some blocks, may be late by a warp."""

    def warps_meet(self, agent: int) -> None:
        """All warps of an agent meet."""

    def warps_arrive(self, agent: int, barrier: int, phase: int) -> None:
        """All warps of an agent arrive somewhere and go on."""

    def mixes(self, barrier: int, phase: int, agent: int) -> None:
        """Copies of several agents fill a slot one after another, and bring different tiles."""

    def time(self, agent: int) -> int:
        """How many actions an agent has begun."""
        return 0

    def hears_of_itself(self, barrier: int, agent: int) -> int:
        """The last of an agent's own actions that certainly came before the last phase of a barrier ended."""
        return 0

    def ends(self, barrier: int, phase: int) -> None:
        """A phase ends."""

    def passes(self, barrier: int, phase: int, agent: int) -> None:
        """A wait passes."""

    def polls(self, flag: int, phase: int, agent: int) -> None:
        """A poll passes."""

    def overshoots(self, flag: int, phase: int, agent: int) -> None:
        """A flag reaches more than somebody polls for."""

    def meets(self, barrier: int, agent: int) -> None:
        """An agent passes a barrier of threads, or starts after the grid before."""

    def reaches(self, block: int, agent: int) -> None:
        """An agent reaches into another block, which must not have left."""

    def lands_in(self, block: int, barrier: int, phase: int, *, harmless: bool) -> None:
        """Something lands in a block, which must not have left; an arrival by a commit or cp.async there is harmless."""

    def takes_registers(self, agent: int, block: int, registers: int) -> None:
        """Setmaxnreg takes registers from the block's pool, or gives some back."""

    def is_out_of_scope(self, access: Access, agent: int) -> bool:
        """Whether an access is over, but what ordered it was an arrival whose scope ends at the other block."""
        return False


class Order(Reports, ABC):
    """The reports, and what every kind of order has to keep and to answer."""

    tries_orders: bool  # one order of many is looked at, and what may happen in others is not asked

    @abstractmethod
    def clone(self) -> Self:
        """An independent copy."""

    @abstractmethod
    def begin(self, agent: int) -> None:
        """An agent begins its next action."""

    # accesses

    @abstractmethod
    def starts(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; one that ends at once is over when its agent begins the next action."""

    @abstractmethod
    def finishes(self, key: Key, agent: int) -> None:
        """An access is finished for whoever knows of the agent's action."""

    @abstractmethod
    def finishes_with(self, key: Key, barrier: int, phase: int) -> None:
        """An access is finished for whoever knows that the phase has ended."""

    @abstractmethod
    def finishes_after(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase, and go on: their access is finished for whoever knows that it has ended."""

    @abstractmethod
    def forgets(self, key: Key) -> None:
        """An access no longer matters."""

    @abstractmethod
    def is_alive(self, key: Key) -> bool:
        """Whether an access may still matter."""

    @abstractmethod
    def knows(self, access: Access, agent: int) -> bool:
        """Whether an access is finished for an agent."""

    @abstractmethod
    def needs_later(self, access: Access) -> bool:
        """Whether an access must be kept for what comes."""

    # fences

    @abstractmethod
    def fences(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it counts for what the agent's warps did themselves, and for what is finished."""

    @abstractmethod
    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence lies between an access and the agent's; `by` says whose fences count, None all."""

    # init

    @abstractmethod
    def initialises(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""

    @abstractmethod
    def shows_init(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""

    @abstractmethod
    def is_ready(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether an agent knows that a barrier is initialised."""

    @abstractmethod
    def is_shown(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether a fence has made the init of a barrier known to other blocks."""
