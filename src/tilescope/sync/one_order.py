"""Pending operations in one order of many: the search over every order uses it in place of clocks.

    role    write a ─────────▶ next step         an access of one warp is pending until its next step,
    role    write a ──────────────────▶ sync     that of several warps until all of them have synchronized or arrived
    TMA     copy into a ──────────▶ bytes land

Other orders are not considered: an access that begins while a conflicting one is pending is a data race in this order.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable

from tilescope.sync.happens_before import Access, Clock, HappensBefore, Key


class OneOrder(HappensBefore):
    """The pending accesses, the fences so far, and the barriers that are initialised."""

    is_one_order = True

    def __init__(self) -> None:
        self.pending: frozenset[Key] = frozenset()
        self.ends_with_step: dict[int, tuple[Key, ...]] = {}  # agent: accesses that end when its next step begins
        # barrier, phase, access: the access ends when the phase does
        self.ends_with_phase: frozenset[tuple[int, int, Key]] = frozenset()
        self.fenced: frozenset[tuple[Key, str, int]] = frozenset()  # access, kind, agent
        self.initialised: dict[int, int] = {}  # barrier: its agent
        self.fenced_inits: frozenset[int] = frozenset()  # barriers whose init was fenced for other blocks

    def clone(self) -> OneOrder:
        """An independent copy."""
        other = OneOrder()
        other.pending = self.pending
        other.ends_with_step = self.ends_with_step.copy()
        other.ends_with_phase = self.ends_with_phase
        other.fenced = self.fenced
        other.initialised = self.initialised.copy()
        other.fenced_inits = self.fenced_inits
        return other

    def key(self) -> Hashable:
        """Equal for two orders after which the same may come."""
        ending = tuple(sorted(self.ends_with_step.items()))
        inits = tuple(sorted(self.initialised.items()))
        return self.pending, ending, self.ends_with_phase, self.fenced, inits, self.fenced_inits

    def advance(self, agent: int) -> None:
        """An agent begins its next action: its own accesses before it end."""
        if agent in self.ends_with_step:
            self.pending -= {*self.ends_with_step.pop(agent)}

    def end_phase(self, barrier: int, phase: int) -> None:
        """A phase ends: so do the accesses of all warps before they arrived in it."""
        ended = {mark for mark in self.ends_with_phase if mark[:2] == (barrier, phase)}
        self.ends_with_phase -= ended
        self.pending -= {key for *_, key in ended}

    def begin_access(self, access: Access, *, ends_at_once: bool) -> None:
        """An access begins; one of a single warp ends when its next step begins."""
        self.pending |= {access.key}
        if ends_at_once:
            self.ends_with_step[access.agent] = (*self.ends_with_step.get(access.agent, ()), access.key)

    def finish_access(self, key: Key, agent: int) -> None:
        """An access ends."""
        self.pending -= {key}

    def finish_with_phase(self, key: Key, barrier: int, phase: int) -> None:
        """An access ends."""
        self.pending -= {key}

    def finish_after_arrivals(self, key: Key, barrier: int, phase: int) -> None:
        """All warps arrive in a phase: their access ends with it."""
        self.ends_with_phase |= {(barrier, phase, key)}

    def is_tracked(self, key: Key) -> bool:
        """Whether an access is pending."""
        return key in self.pending

    def forget_access(self, key: Key) -> None:
        """An access no longer matters."""
        self.pending -= {key}
        self.fenced = frozenset(mark for mark in self.fenced if mark[0] != key)

    def is_ordered(self, access: Access, agent: int) -> bool:
        """Whether an access has ended."""
        return access.key not in self.pending

    def must_keep(self, access: Access) -> bool:
        """Whether an access must be kept: it is pending, or a later access may need a fence after it."""
        return access.key in self.pending or (access.write and access.how in ("generic", "cp.async", "tcgen05"))

    def fence(self, agent: int, kind: str, accesses: Iterable[Access], own: Container[Key]) -> None:
        """A fence: it covers the accesses of the agent's own warps, and those that have ended."""
        covered = (access for access in accesses if access.key in own or access.key not in self.pending)
        self.fenced |= {(access.key, kind, agent) for access in covered}

    def is_fenced(self, access: Access, kind: str, by: Iterable[int] | None, agent: int) -> bool:
        """Whether a fence came after the access; `by` selects whose fences count, None all."""
        return any(
            (key, fence) == (access.key, kind) and (by is None or fencer in by) for key, fence, fencer in self.fenced
        )

    def initialise(self, barrier: int, agent: int) -> None:
        """An agent initialises a barrier."""
        self.initialised[barrier] = agent

    def fence_inits(self, agent: int) -> None:
        """A fence.mbarrier_init: other blocks see what the agent has initialised."""
        self.fenced_inits |= {barrier for barrier, maker in self.initialised.items() if maker == agent}

    def is_initialised(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether a barrier is initialised."""
        return barrier in self.initialised

    def is_init_fenced(self, barrier: int, agent: int, issued_at: Clock | None) -> bool:
        """Whether a fence has made the init of a barrier visible to other blocks."""
        return barrier in self.fenced_inits
