"""The interface to happens-before for a run of roles.

    Interpreter ── begin_access, release, pass_wait … ──▶ RoleClocks: what holds in every order of the roles (vector clocks)
                ◀── is_ordered? is_fenced? ─────────────  OneOrder: what is pending in the one order that a search tries

An access of one agent happens-before an action of another if a chain of releases and acquires leads from its end to
that action: an arrival releases the agent's clock to a phase of a barrier, and a wait that passes acquires (joins) it.
`RoleClocks` follows that chain. `OneOrder` sees one interleaving as it is, and needs fewer reports.

Two more conditions come on top of happens-before: the scope of an arrival (`is_ordered_out_of_scope`), and the fences
that accesses through different proxies need (`is_fenced`; `proxies` has the table).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt

NONE = -1  # no barrier, agent, phase or group
# identifies an access or a pending operation: its agent, the number of the action in its role, its number in the action
Key: TypeAlias = tuple[int, int, int]
# rows for control and data; a column for every agent and barrier (see `role_clocks`)
Clock: TypeAlias = npt.NDArray[np.int64]
# the phase or group that filled bytes: a barrier, its phase and NONE; of cp.async NONE, the agent and its groups before; of
# threads NONE, the agent and NONE
Fill: TypeAlias = tuple[int, int, int]


class Access(NamedTuple):
    """One access to a slot, from its action until it is finished for everybody."""

    key: Key
    agent: int
    write: bool
    how: str  # one of `proxies.AccessKind`
    start: int  # bytes of the slot; of a slot that does not state its bytes 0 and 1
    end: int
    fill: Fill | None = None  # of a copy
    tile: int | None = None


class OrderReports:
    """What a run reports of phases, blocks and registers. `OneOrder` has no use for it, so nothing is done here."""

    def snapshot(self, agent: int) -> Clock | None:
        """An agent's vector clock, for work that it issues now; None if only one order is examined."""
        return None

    def release(
        self, barrier: int, phase: int, agent: int, issued_at: Clock | None, *, without_data: bool = False
    ) -> None:
        """Release a clock to a phase: that of the agent, or with `issued_at` that of something it issued before."""

    def raise_count(self, barrier: int, agent: int) -> None:
        """Raise what a phase waits for, without arriving."""

    def count_arrival(self, barrier: int, agent: int, issued_at: Clock | None) -> None:
        """Count an arrival that the phase needs."""

    def release_at_exit(self, barrier: int, agent: int, *, in_next_phase: bool) -> None:
        """An agent exits: the cluster barrier counts it as arrived from now on."""

    def delay_arrival(self, barriers: Sequence[int], phases: Sequence[int], blocks: Sequence[int], agent: int) -> None:
        """The last warp of the arrival that an agent makes now, at barriers of some blocks, may come later."""

    def synchronize_warps(self, agent: int) -> None:
        """All warps of an agent synchronize with each other."""

    def arrive_with_all_warps(self, agent: int, barrier: int, phase: int) -> None:
        """All warps of an agent arrive in a phase, and do not wait for it."""

    def mix_tiles(self, barrier: int, phase: int, agent: int) -> None:
        """Copies of several agents fill a slot one after another, and copy different tiles."""

    def epoch(self, agent: int) -> int:
        """How many actions an agent has begun."""
        return 0

    def released_epoch(self, barrier: int, agent: int) -> int:
        """The agent's last own epoch that happens-before the end of the barrier's last phase."""
        return 0

    def find_unordered_use(self, barrier: int, agent: int) -> int | None:
        """An agent whose use of a barrier does not happen-before the action of another; None if all of them do."""
        return None

    def end_phase(self, barrier: int, phase: int) -> None:
        """A phase ends."""

    def pass_wait(self, barrier: int, phase: int, agent: int) -> None:
        """A wait on an mbarrier passes: the agent acquires what was released to the phase before."""

    def pass_poll(self, flag: int, phase: int, agent: int) -> None:
        """A poll of a flag passes: the agent acquires what was released up to the value."""

    def overshoot(self, flag: int, phase: int, agent: int) -> None:
        """A flag reaches more than somebody polls for."""

    def acquire(self, barrier: int, agent: int) -> None:
        """An agent passes a barrier of threads, or starts after the grid before: it joins the last phase's clock."""

    def access_block(self, block: int, agent: int) -> None:
        """An agent accesses another block, which must not have exited."""

    def land_in_block(self, block: int, barrier: int, phase: int, *, harmless: bool) -> None:
        """Something lands in a block, which must not have exited; an arrival of a commit or of cp.async is harmless."""

    def take_registers(self, agent: int, block: int, registers: int) -> None:
        """Setmaxnreg takes registers from the block's pool, or gives some back."""

    def is_ordered_out_of_scope(self, access: Access, agent: int) -> bool:
        """Whether an access is finished for an agent, but only through an arrival whose scope is the other block."""
        return False


class HappensBefore(OrderReports, ABC):
    """The reports, and the questions that every kind of order has to answer."""

    is_one_order: bool  # only one order of many is examined; other orders are not considered

    @abstractmethod
    def clone(self) -> Self:
        """An independent copy."""

    @abstractmethod
    def advance(self, agent: int) -> None:
        """An agent begins its next action: its own epoch advances."""

    # accesses

    @abstractmethod
    def begin_access(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; one that ends at once is finished when its agent begins the next action."""

    @abstractmethod
    def finish_access(self, key: Key, agent: int) -> None:
        """An access is finished for whoever comes after the agent's action."""

    @abstractmethod
    def finish_with_phase(self, key: Key, barrier: int, phase: int) -> None:
        """An access is finished for whoever comes after the end of the phase."""

    @abstractmethod
    def finish_after_arrivals(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase, and go on: their access is finished for whoever comes after its end."""

    @abstractmethod
    def forget_access(self, key: Key) -> None:
        """An access no longer matters."""

    @abstractmethod
    def is_tracked(self, key: Key) -> bool:
        """Whether an access may still matter."""

    @abstractmethod
    def is_ordered(self, access: Access, agent: int) -> bool:
        """Whether the end of an access happens-before the agent's current action."""

    @abstractmethod
    def must_keep(self, access: Access) -> bool:
        """Whether later accesses have to be compared with this one."""

    # fences

    @abstractmethod
    def fence(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it covers the accesses of the agent's own threads, and those that happen-before it."""

    @abstractmethod
    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence is between an access and the agent's; `by` selects whose fences count, None all."""

    # init

    @abstractmethod
    def initialise(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""

    @abstractmethod
    def fence_inits(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""

    @abstractmethod
    def is_initialised(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether the init of a barrier happens-before the agent's action."""

    @abstractmethod
    def is_init_fenced(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether a fence has made the init of a barrier visible to other blocks."""
