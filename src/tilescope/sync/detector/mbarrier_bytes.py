"""An mbarrier is eight bytes of shared memory, which belong to it from mbarrier.init to mbarrier.inval.

    st.shared [bar]      bytes like any other
    mbarrier.init        live: nobody else may write these bytes, and a second init is not defined
    arrive, wait, copy   uses
    mbarrier.inval       every use has completed; from here on the bytes may hold anything

A store over a live mbarrier is an error if a thread uses the mbarrier afterwards. If none does until the block exits,
it is a warning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.accesses import Accesses, Request
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.mbarrier_history import BARRIER_BYTES, Commit, MbarrierHistory
from tilescope.sync.detector.race import Mistake, Side
from tilescope.sync.footprint import Cells
from tilescope.sync.vector_clock import EXECUTED, HAPPENS_BEFORE, Vector


class MbarrierBytes:
    """The bytes of all live mbarriers of one cluster."""

    def __init__(self, context: DetectorContext, accesses: Accesses) -> None:
        self._context = context
        self._accesses = accesses
        shared_bytes = context.cluster.blocks * context.cluster.shared_stride
        self._is_live: npt.NDArray[np.bool_] = np.zeros(ceil_div(shared_bytes, BARRIER_BYTES), np.bool_)  # by word
        self._live: dict[int, MbarrierHistory] = {}  # by word
        self._initialised: dict[int, MbarrierHistory] = {}  # by word: the last one there, invalidated or not

    def init(self, address: int, held: MbarrierHistory, made: MbarrierHistory) -> None:
        """mbarrier.init: no live mbarrier may be there, and all accesses to its bytes must happen before."""
        context = self._context
        place = context.cluster.place(address)
        assert made.init is not None
        assert made.init.lane is not None
        if held.overwrite is not None:
            self._report("store over barrier", held.overwrite, made.init, place)
        elif held.init is not None:
            self._report("second init", held.init, made.init, place)
        else:
            request = Request(np.array([made.init.lane]), np.array([place]), BARRIER_BYTES)
            self._accesses.find_races(context.shared, self._accesses.shared_access("init", request))
        self._is_live[place // BARRIER_BYTES] = True
        self._live[place // BARRIER_BYTES] = made
        self._initialised[place // BARRIER_BYTES] = made

    def inval(self, address: int, lane: int, held: MbarrierHistory) -> Side:
        """mbarrier.inval: all uses must have completed, copies and arrivals too; the word is written to memory."""
        context = self._context
        place = context.cluster.place(address)
        now = Side(context.pc, "inval", lane)
        if self.require_live(address, held, now) and self._require_uses_done(held, now, place, EXECUTED):
            self._require_nothing_pending(held, now, place)
        self._is_live[place // BARRIER_BYTES] = False
        self._live.pop(place // BARRIER_BYTES, None)
        context.inval_pcs.add(context.pc)
        self._accesses.stamp_write(np.array([lane]), context.cells_at(address, BARRIER_BYTES))
        return now

    def require_live(self, address: int, barrier: MbarrierHistory, now: Side) -> bool:
        """Report a use of an mbarrier before its init, after its inval, or after a store over it; False if it is not live."""
        place = self._context.cluster.place(address)
        if barrier.init is None:
            self._report("dead barrier", barrier.invalidated, now, place)
            return False
        if barrier.overwrite is not None:
            self._report("store over barrier", barrier.overwrite, now, place)
            barrier.overwrite = None
        return True

    def store(self, lanes: LaneNumbers, places: Addresses, size_bytes: int) -> None:
        """Threads store to shared memory, perhaps over a live mbarrier."""
        if not self._live:
            return
        words = places[:, None] // BARRIER_BYTES + np.arange(ceil_div(size_bytes, BARRIER_BYTES))
        is_live = self._is_live[words]
        if not is_live.any():
            return
        for row, column in np.argwhere(is_live).tolist():
            now = Side(self._context.pc, "write", int(lanes[row]))
            word = int(words[row, column])
            barrier = self._live[word]
            is_ordered = self._require_uses_done(barrier, now, word * BARRIER_BYTES, HAPPENS_BEFORE)
            if is_ordered and barrier.overwrite is None:
                barrier.overwrite = now

    def copy(self, cells: Cells, now: Side) -> None:
        """A copy into shared memory is issued: it may not write a live mbarrier."""
        if not self._live:
            return
        width = self._context.cell_bytes
        if isinstance(cells, slice):
            first = cells.start * width // BARRIER_BYTES
            live = first + np.flatnonzero(self._is_live[first : ceil_div(cells.stop * width, BARRIER_BYTES)])
        else:
            places = cells[:, None] * width + np.arange(0, width, min(width, BARRIER_BYTES))
            words = np.unique(places // BARRIER_BYTES)
            live = words[self._is_live[words]]
        for word in live.tolist():
            self._report("copy over barrier", self._live[word].init, now, word * BARRIER_BYTES)

    def end(self, rank: int) -> None:
        """A block exits: report stores over its mbarriers that were not used since."""
        for word, barrier in self._live.items():
            place = word * BARRIER_BYTES
            if barrier.overwrite is not None and place // self._context.cluster.shared_stride == rank:
                self._report("barrier overwritten", barrier.init, barrier.overwrite, place)

    def _require_uses_done(self, barrier: MbarrierHistory, now: Side, place: int, vector: int) -> bool:
        """Report a use of an mbarrier that is not ordered before its invalidation or a store over it.

        For mbarrier.inval all uses must be over in time, as in cuda::pipeline, whose last warp invalidates the mbarriers; to
        write other data there, they must have happened before.
        """
        clock = self._clock_of(now, vector)
        assert barrier.init is not None
        assert barrier.init.lane is not None
        if clock[barrier.init.lane] < barrier.init_epoch:
            self._report("barrier reuse", barrier.init, now, place)
            return False
        for user, (epoch, pc) in barrier.users.items():
            if clock[user] < epoch:
                self._report("barrier reuse", Side(pc, "arrival", user), now, place)
                return False
        return True

    def _require_nothing_pending(self, barrier: MbarrierHistory, now: Side, place: int) -> None:
        """Report a copy, a commit or an arrival behind copies that may still reach an mbarrier when it is invalidated."""
        clock = self._clock_of(now, EXECUTED)
        for is_own_load in (True, False):
            copy_pc = barrier.unfinished_copy(clock, is_own_load=is_own_load)
            if copy_pc is not None:
                self._report("barrier pending", Side(copy_pc, "copy", None), now, place)
                return
        commit = barrier.last_commit
        if commit is not None and clock[barrier.column] < commit.epoch and not self._has_later_commit(commit, clock):
            self._report("barrier pending", Side(commit.pc, "tcgen05.commit", None), now, place)
            return
        for pc, arrivals in barrier.late_arrivals.items():
            is_open = clock[arrivals.columns] < arrivals.epochs
            if is_open.any():
                lane = int(arrivals.columns[np.argmax(is_open)]) % self._context.clocks.lane_count
                self._report("barrier pending", Side(pc, "arrival", lane), now, place)
                return

    def _has_later_commit(self, commit: Commit, known: Vector) -> bool:
        """Whether a later commit of the same thread is known to have arrived, at whichever mbarrier."""
        return any(
            other.last_commit is not None
            and other.last_commit.lane == commit.lane
            and other.last_commit.number > commit.number
            and bool(known[other.column] >= other.last_commit.epoch)
            for other in self._initialised.values()
        )

    def _clock_of(self, side: Side, vector: int) -> Vector:
        """By column: the last epoch that happens before a thread's access, or that has completed."""
        assert side.lane is not None
        vectors = self._context.clocks.view(side.lane)
        return np.asarray(np.maximum(vectors[HAPPENS_BEFORE], vectors[vector]))

    def _report(self, mistake: Mistake, before: Side | None, now: Side, place: int) -> None:
        self._context.report(mistake, before, now, "shared", place)
