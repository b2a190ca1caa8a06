"""What is under way in one order of many: the search that tries every order looks at it in place of clocks.

    role    write a ─────────▶ next step         a warp's own access is under way until its next step,
    role    write a ──────────────────▶ sync     that of several warps until all of them have met or arrived
    TMA     copy into a ──────────▶ bytes land

It knows nothing of what could have been: an access that begins while another is under way is a race in this order.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable

from tilescope.sync.all_orders.action import Clock, Key
from tilescope.sync.happens_before import Access, Order


class Sight(Order):
    """What is under way, which fences have come, and which barriers are ready."""

    tries_orders = True

    def __init__(self) -> None:
        self.under_way: frozenset[Key] = frozenset()
        self.ends_with_step: dict[int, tuple[Key, ...]] = {}  # agent: accesses that are over when its next step begins
        # barrier, phase: accesses that are over when it ends
        self.closing: frozenset[tuple[int, int, Key]] = frozenset()
        self.fenced: frozenset[tuple[Key, str, int]] = frozenset()  # access, kind, agent
        self.initialised: dict[int, int] = {}  # barrier: its agent
        self.shown: frozenset[int] = frozenset()  # barriers whose init was fenced for other blocks

    def clone(self) -> Sight:
        """An independent copy."""
        other = Sight()
        other.under_way = self.under_way
        other.ends_with_step = self.ends_with_step.copy()
        other.closing = self.closing
        other.fenced = self.fenced
        other.initialised = self.initialised.copy()
        other.shown = self.shown
        return other

    def key(self) -> Hashable:
        """Equal for two orders after which the same may come."""
        ending = tuple(sorted(self.ends_with_step.items()))
        return self.under_way, ending, self.closing, self.fenced, tuple(sorted(self.initialised.items())), self.shown

    def begin(self, agent: int) -> None:
        """An agent begins its next action: its own accesses before it are over."""
        if agent in self.ends_with_step:
            self.under_way -= {*self.ends_with_step.pop(agent)}

    def ends(self, barrier: int, phase: int) -> None:
        """A phase ends: what all warps did before they arrived in it is over."""
        over = {mark for mark in self.closing if mark[:2] == (barrier, phase)}
        self.closing -= over
        self.under_way -= {key for *_, key in over}

    def starts(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; a warp's own one ends when its next step begins."""
        self.under_way |= {access.key}
        if ends_at_once:
            self.ends_with_step[access.agent] = (*self.ends_with_step.get(access.agent, ()), access.key)

    def finishes(self, key: Key, agent: int) -> None:
        """An access is over."""
        self.under_way -= {key}

    def finishes_with(self, key: Key, barrier: int, phase: int) -> None:
        """An access is over."""
        self.under_way -= {key}

    def finishes_after(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase: their access is over when that ends."""
        self.closing |= {(barrier, phase, key)}

    def is_alive(self, key: Key) -> bool:
        """Whether an access is under way."""
        return key in self.under_way

    def forgets(self, key: Key) -> None:
        """An access no longer matters."""
        self.under_way -= {key}
        self.fenced = frozenset(mark for mark in self.fenced if mark[0] != key)

    def knows(self, access: Access, agent: int) -> bool:
        """Whether an access is over."""
        return access.key not in self.under_way

    def needs_later(self, access: Access) -> bool:
        """Whether an access must be kept: it is under way, or a later access may need a fence after it."""
        return access.key in self.under_way or (access.write and access.how in ("generic", "cp.async", "tcgen05"))

    def fences(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it counts for what the agent's warps did, and for what is over."""
        over = (access for access in accesses if access.key in own or access.key not in self.under_way)
        self.fenced |= {(access.key, kind, agent) for access in over}

    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence has come since the access; `by` says whose fences count, None all."""
        return any(
            (key, fence) == (access.key, kind) and (by is None or fencer in by) for key, fence, fencer in self.fenced
        )

    def initialises(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""
        self.initialised[barrier] = agent

    def shows_init(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""
        self.shown |= {barrier for barrier, maker in self.initialised.items() if maker == agent}

    def is_ready(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether a barrier is initialised."""
        return barrier in self.initialised

    def is_shown(self, barrier: int, agent: int, past: Clock | None) -> bool:
        """Whether a fence has made the init of a barrier known to other blocks."""
        return barrier in self.shown
