"""Words in memory through which threads synchronize: flags, counters, locks.

    st.release, atom.release            releases the thread's clock at the word
    fence, then a relaxed store         … as it was at the fence
    ld.acquire, atom.acquire            acquires the releases at the word
    a relaxed load, then fence          … at the fence

A word has all its releases, since each atomic on it continues the release sequence. The scope determines who can
acquire one.

Releases of a word are numbered. An atomic that acquires all releases of a word and then releases there includes them: whoever
acquires its release need not visit the ones before. So a counter that 1,000 blocks increment costs each of them one acquire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.memory_scope import CLUSTER, CTA, GPU
from tilescope.sync.vector_clock import ThreadEpochs, VectorClock, join_clocks


class Release(NamedTuple):
    """A release at a word: its clock, its scope, and the rank of its block.

    `number` counts the releases of the word; the clock includes those of all releases there up to number `includes`.
    `threads` made it: whoever has joined what they knew in that epoch or later has joined the clock.
    """

    clock: VectorClock
    scope: int
    rank: int
    number: int = 0
    includes: int = 0
    threads: tuple[ThreadEpochs, ...] = ()  # of joined releases, each; empty: not known

    def join(self, earlier: Release) -> Release:
        """This release, with the clock of an earlier one joined in."""
        threads = (*earlier.threads, *self.threads) if earlier.threads and self.threads else ()
        return self._replace(clock=join_clocks(earlier.clock, self.clock), threads=_each_lane_once(threads))

    def reaches(self, cluster: int, rank: int, scope: int) -> bool:
        """Whether a thread with that scope can acquire it: a release is only as wide as the narrower of both scopes."""
        if self.clock.cluster != cluster:
            needed = GPU
        else:
            needed = CTA if self.rank == rank else CLUSTER
        return min(self.scope, scope) >= needed


def _each_lane_once(threads: tuple[ThreadEpochs, ...]) -> tuple[ThreadEpochs, ...]:
    """The last epochs of the same lanes."""
    return tuple({one.lanes.tobytes(): one for one in threads}.values()) if len(threads) > 1 else threads


_ReleasesAtWord = dict[tuple[int, int, int], Release]  # by cluster, rank and scope, the oldest first


@dataclass(slots=True)
class Overwritten:
    """A word before its last strong write: the value, the releases, and who wrote when."""

    releases: _ReleasesAtWord
    node: int  # of the last release in the graph; 0: none
    cluster: int
    pc: int
    writers: ThreadEpochs  # several where one atomic adds for a warp
    first_node: int  # of the graph, that may include the write
    value: bytes | None = None  # None until the write is done
    seen_by: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)  # by cluster: lanes whose next load sees it

    def have_seen(self, cluster: int, lane_count: int) -> npt.NDArray[np.bool_]:
        """Which lanes of a cluster see the write at their next load; to be changed in place."""
        seen = self.seen_by.get(cluster)
        if seen is None:
            seen = self.seen_by[cluster] = np.zeros(lane_count, np.bool_)
            if cluster == self.cluster:
                seen[self.writers.lanes] = True
        return seen


@dataclass(slots=True)
class SyncWords:
    """All words with releases, by address."""

    space: Literal["shared", "global"]
    releases: dict[int, _ReleasesAtWord] = field(default_factory=dict)
    before: dict[int, Overwritten] = field(default_factory=dict)
    deferred: dict[int, int] = field(
        default_factory=dict
    )  # by address: the node of its last release (sync/release_graph.py)

    def add(self, address: int, release: Release) -> None:
        """A store or an atomic releases."""
        key = (release.clock.cluster, release.rank, release.scope)
        at_word = self.releases.setdefault(address, {})
        number = self.newest_number(address) + 1
        previous = at_word.pop(key, None)
        joined = release if previous is None else release.join(previous)
        at_word[key] = joined._replace(number=number)

    def newest_number(self, address: int) -> int:
        """The number of the newest release at a word; 0: there is none."""
        at_word = self.releases.get(address)
        return next(reversed(at_word.values())).number if at_word else 0

    def at(self, address: int) -> list[Release]:
        """The releases that a load may acquire, the newest first."""
        at_word = self.releases.get(address)
        return [] if at_word is None else list(reversed(at_word.values()))
