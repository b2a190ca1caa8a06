"""Words in memory through which threads hand on what they know: flags, counters, locks.

        st.release, atom.release            what the thread knows is left at the word
        fence, then a relaxed store         … as it was at the fence
        ld.acquire, atom.acquire            what was left there is learnt
        a relaxed load, then fence          … at the fence

A word keeps what was left there, since each atomic on it carries on what the last one left. A scope says who can see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tilescope.sync.lane_clocks import VectorClock, join_clocks
from tilescope.sync.scope import CLUSTER, CTA, GPU


class Release(NamedTuple):
    """What somebody left at a word: how far it may be seen, from which block of its cluster on."""

    clock: VectorClock
    reach: int
    rank: int

    def reaches(self, cluster: int, rank: int, reach: int) -> bool:
        """Whether a thread sees it whose own scope reaches that far."""
        if self.clock.cluster != cluster:
            needed = GPU
        else:
            needed = CTA if self.rank == rank else CLUSTER
        return min(self.reach, reach) >= needed


_LeftAtWord = dict[tuple[int, int, int], Release]  # by cluster, rank and reach


@dataclass(slots=True)
class Overwritten:
    """What a word held before its last strong write: the value, what was left there, and who wrote when."""

    left: _LeftAtWord
    cluster: int
    pc: int
    writers: dict[int, int] = field(
        default_factory=dict
    )  # by lane: its epoch; several where one atomic adds for a warp
    value: bytes | None = None  # None until the write is done
    seen_by: set[tuple[int, int]] = field(default_factory=set)  # (cluster, lane) whose next load sees the write


@dataclass(slots=True)
class SyncWords:
    """All words at which something was left, by address."""

    space: Literal["shared", "global"]
    left: dict[int, _LeftAtWord] = field(default_factory=dict)
    before: dict[int, Overwritten] = field(default_factory=dict)

    def leave(self, address: int, left: Release) -> None:
        """A store or an atomic hands something on."""
        key = (left.clock.cluster, left.rank, left.reach)
        at_word = self.left.setdefault(address, {})
        held = at_word.get(key)
        at_word[key] = left if held is None else left._replace(clock=join_clocks(held.clock, left.clock))

    def at(self, address: int) -> list[Release]:
        """What a load from there may learn."""
        at_word = self.left.get(address)
        return [] if at_word is None else list(at_word.values())
