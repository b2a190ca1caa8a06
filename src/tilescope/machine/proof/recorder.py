"""What the warps of one cluster did that others can wait for or stumble over, written down while it runs.

    a row        one instruction: where it stands, the lanes that ran it together, what it acted on
    the order    that of the run; the rows of one warp stand in its program order

A poll that fails is no row: only the wait that passes is. The addresses of accesses are kept once for all rows of a loop
that have the same ones, so the log grows with what is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.address import SHARED_WINDOW, WINDOW_BYTES, Addresses, Space
from tilescope.machine.pending import WorkKind
from tilescope.machine.step import LaneNumbers, Lanes

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster
    from tilescope.machine.instructions.tensor_core.wgmma import Descriptors, SmemRead
    from tilescope.machine.records import CopyRecord
    from tilescope.tensor_map import Copy

ROWS_KEPT = 100_000
AccessKind = Literal["read", "write", "agreed", "atomic", "cp.async"]
Values = npt.NDArray[np.generic]
Places = npt.NDArray[np.int64]  # of tensor memory: lane * 512 + column


class Touched(NamedTuple):
    """Shared memory that lanes reached themselves, or by cp.async: `size_bytes` from each address on."""

    pc: int
    lanes: Lanes
    how: AccessKind
    addresses: Addresses
    size_bytes: int


class Initialised(NamedTuple):
    """mbarrier.init with the arrivals that it counts; None: mbarrier.inval."""

    pc: int
    lane: int
    address: int
    arrivals: int | None


class Arrived(NamedTuple):
    """Arrivals of lanes of one warp at an mbarrier, and the bytes that they expect; expect_tx alone has no arrivals."""

    pc: int
    lane: int
    address: int
    arrivals: int
    expected_bytes: int
    is_drop: bool = False


class ArrivedBehindCopies(NamedTuple):
    """cp.async.mbarrier.arrive of lanes of one warp."""

    pc: int
    lane: int
    address: int
    arrivals: int
    is_counted_on: bool  # .noinc


class Waited(NamedTuple):
    """Lanes whose wait for a phase of an mbarrier passed; at the end of a run that hangs, those that still wait."""

    pc: int
    lanes: LaneNumbers
    address: int
    parity: int
    phase: int  # that ended, or never does, counted from 0; -1 where a fresh barrier lets a parity of 1 pass


class Grouped(NamedTuple):
    """commit_group, or wait_group with the groups that may stay under way; None: wait_all."""

    pc: int
    lanes: Lanes
    kind: WorkKind
    is_commit: bool
    newest: int | None = 0
    only_read: bool = False


class OperandRead(NamedTuple):
    """How a wgmma reads an operand, and the descriptor of each warpgroup."""

    read: SmemRead
    descriptors: Descriptors


class Multiplied(NamedTuple):
    """wgmma.mma_async of warpgroups, named by their first lanes."""

    pc: int
    first_lanes: LaneNumbers
    operands: tuple[OperandRead, ...]


class Copied(NamedTuple):
    """A TMA or bulk copy as it was issued, of a multicast the part of one block; `tensor_copy` is None for a bulk copy."""

    pc: int
    lane: int
    record: CopyRecord
    tensor_copy: Copy | None


class Met(NamedTuple):
    """Lanes at a barrier of threads of their block: bar.sync or bar.red once it has ended, bar.arrive at once."""

    pc: int
    lanes: LaneNumbers
    number: int
    threads: int
    waits: bool
    meeting: int = 0  # counts the barriers that ended


class MetCluster(NamedTuple):
    """barrier.cluster.arrive or .wait; at the end of a run that hangs, those that still wait."""

    pc: int
    lanes: LaneNumbers
    waits: bool
    has_passed: bool = True


class MetWarp(NamedTuple):
    """bar.warp.sync."""

    pc: int
    lanes: Lanes


class Fenced(NamedTuple):
    """fence.proxy.async, fence.mbarrier_init, or one of tcgen05."""

    pc: int
    lanes: Lanes
    kind: Literal["proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after"]


class TensorWorked(NamedTuple):
    """tcgen05.mma or cp of a thread, in one block or in two: the shared memory that it reads, and the places of tensor memory."""

    pc: int
    lane: int
    ranks: tuple[int, ...]
    shared: tuple[Addresses, ...]
    read: Places
    written: Places


class TensorMoved(NamedTuple):
    """tcgen05.ld or st of a warp, named by its first lane."""

    pc: int
    lane: int
    is_load: bool
    places: Places


class TensorWaited(NamedTuple):
    """tcgen05.wait::ld or wait::st."""

    pc: int
    lanes: LaneNumbers
    is_load: bool


class TensorFreed(NamedTuple):
    """tcgen05.dealloc of a warp, named by its first lane."""

    pc: int
    lane: int
    places: Places


class Committed(NamedTuple):
    """tcgen05.commit of a thread: an arrival at these mbarriers when what it has issued is done."""

    pc: int
    lane: int
    addresses: tuple[int, ...]


Row = (
    Touched
    | Initialised
    | Arrived
    | ArrivedBehindCopies
    | Waited
    | Grouped
    | Multiplied
    | Copied
    | Met
    | MetCluster
    | MetWarp
    | Fenced
    | TensorWorked
    | TensorMoved
    | TensorWaited
    | TensorFreed
    | Committed
)


class _Poll(NamedTuple):
    """A wait that has not passed."""

    pc: int
    parity: int
    phase: int


@dataclass(slots=True)
class EventLog:
    """The rows of one cluster, in the order of the run: the first ROWS_KEPT of them."""

    rows: list[Row] = field(default_factory=list)
    is_cut: bool = False
    hangs_elsewhere: bool = False  # nobody waits at a barrier that is known here
    refused: dict[str, int] = field(default_factory=dict)  # what no pipeline can say, and the instruction
    blocks: int = 1
    block_lanes: int = 0
    exists: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))  # of all lanes
    first_block: tuple[int, int, int] = (0, 0, 0)
    shared_end: int = 0
    _patterns: dict[bytes, Addresses] = field(default_factory=dict)
    _failed: dict[tuple[int, int], _Poll] = field(default_factory=dict)  # by warp and address

    def begin(self, cluster: Cluster) -> None:
        """Take the shape of the cluster that it is about."""
        self.blocks = cluster.blocks
        self.block_lanes = cluster.block_lanes
        self.exists = cluster.exists
        self.first_block = cluster.first_block
        self.shared_end = cluster.launch.shared_end

    def add(self, row: Row) -> None:
        """Write a row down, unless there are too many."""
        if len(self.rows) >= ROWS_KEPT:
            self.is_cut = True
            return
        self.rows.append(row)

    def refuse(self, pc: int, reason: str) -> None:
        """Something was done that a pipeline has no step for."""
        self.refused.setdefault(reason, pc)

    def touch(
        self, pc: int, at: Lanes, how: AccessKind, addresses: Addresses, size_bytes: int, *, space: Space = "shared"
    ) -> None:
        """An access of lanes; of generic addresses those in shared memory."""
        if space == "generic":
            is_shared = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_BYTES)
            if not is_shared.any():
                return
            if not is_shared.all():
                at = np.arange(len(self.exists))[at][is_shared]
                addresses = addresses[is_shared]
            addresses = addresses - SHARED_WINDOW
        elif space != "shared":
            return
        self.add(Touched(pc, at, how, self._kept(addresses), size_bytes))

    def store(self, pc: int, at: Lanes, addresses: Addresses, values: Values, space: Space = "shared") -> None:
        """A store of lanes; where some of them meet at one address and write the same there, they agree."""
        how: AccessKind = "write"
        if space in ("shared", "generic") and len(addresses) > 1:
            order = np.argsort(addresses, kind="stable")
            is_same = addresses[order][1:] == addresses[order][:-1]
            if is_same.any():
                ordered = values[order]
                differs = ordered[1:] != ordered[:-1]
                if ordered.ndim > 1:
                    differs = differs.any(axis=1)
                how = "write" if (differs & is_same).any() else "agreed"
        size_bytes = values.dtype.itemsize * (values.shape[1] if values.ndim > 1 else 1)
        self.touch(pc, at, how, addresses, size_bytes, space=space)

    def _kept(self, addresses: Addresses) -> Addresses:
        """The same addresses, held once for all rows."""
        content = addresses.tobytes()
        kept = self._patterns.get(content)
        if kept is None:
            kept = addresses.copy()
            self._patterns[content] = kept
        return kept

    def polled(self, pc: int, lanes: LaneNumbers, address: int, *, parity: int, phase: int, has_passed: bool) -> None:
        """A poll of lanes that asked the same: a row if it passed, else kept in case nothing comes behind it."""
        warps = {int(lanes[0]) // WARP_LANES} if len(lanes) == 1 else set((lanes // WARP_LANES).tolist())
        if has_passed:
            for warp in warps:
                self._failed.pop((warp, address), None)
            self.add(Waited(pc, lanes, address, parity, phase))
        else:
            for warp in warps:
                self._failed.pop((warp, address), None)  # the last one stands last
                self._failed[warp, address] = _Poll(pc, parity, phase + 1)

    def end(self, meetings: Sequence[Met], spinning: Sequence[LaneNumbers], at_cluster: Sequence[MetCluster]) -> None:
        """The cluster hangs: whoever still waits gets the row of that wait, which never passed.

        Lanes that spin do so at their last poll that failed; one that was not tried again is no wait.
        """
        warps = {warp for lanes in spinning for warp in (lanes // WARP_LANES).tolist()}
        last = {warp: (address, poll) for (warp, address), poll in self._failed.items() if warp in warps}
        self.hangs_elsewhere = not last and not meetings and not at_cluster
        for warp, (address, poll) in last.items():
            first_lane = np.array([warp * WARP_LANES])
            self.add(Waited(poll.pc, first_lane, address, poll.parity, poll.phase))
        for met in meetings:
            self.add(met)
        if not last and not meetings:  # those who wait for the cluster are often victims of the other waits
            for waiting in at_cluster:
                self.add(waiting)
