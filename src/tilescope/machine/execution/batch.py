"""Blocks in lockstep: all blocks at the same instruction execute it together, as the lanes of a block do.

    block 7    lanes   0-127          one row of registers for all blocks; each has its own part of shared memory,
    block 8    lanes 128-255          from the same addresses on
    …

The blocks are independent. Each executes the same steps, in the same order, as if it ran without the others. If this is
not certain, OrderMattersError is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster, Front, Words
from tilescope.machine.execution.special import AXES, special_values
from tilescope.machine.execution.undefined_values import UndefinedValues
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import VariableAddress
from tilescope.machine.schedule import ClusterState, Schedule
from tilescope.ptx.syntax import SpecialRegister
from tilescope.sync.address import Addresses, Space
from tilescope.sync.cluster_shape import BlockIndex, ClusterShape, LaneNumbers, Lanes
from tilescope.sync.events import BlocksMet
from tilescope.sync.shadow.lockstep_cells import BlocksDifferError, OrderMattersError

_OF_BLOCKS = ("%ctaid", "%clusterid")  # special registers in which blocks differ …
_OF_MULTIPROCESSORS = "%smid"  # … and one that is computed of them


class Batch(Cluster):
    """Blocks without clusters, side by side."""

    def __init__(self, launch: Launch, starts: Sequence[BlockIndex]) -> None:
        self.starts = starts
        self._spread_lanes: tuple[LaneNumbers, LaneNumbers] | None = None  # of the first block, and of all
        self._alone: ClusterShape = launch.cluster_shape(starts[0])
        super().__init__(launch, starts[0])

    def _shape(self, launch: Launch, first_block: BlockIndex) -> ClusterShape:
        return launch.row_of_blocks(first_block, len(self.starts))

    def _special(self, content: SpecialRegister) -> Words:
        stem, _, axis = content.name.partition(".")
        if stem in _OF_BLOCKS and axis in AXES:
            coords = np.array([start[AXES.index(axis)] for start in self.starts], np.uint32)
            return coords.repeat(self.block_lanes)
        if content.name == _OF_MULTIPROCESSORS:
            alone = [special_values(self.launch, self.launch.cluster_shape(start), stem) for start in self.starts]
            return np.concatenate(alone)
        return np.tile(special_values(self.launch, self._alone, content.name), len(self.starts))

    def _addresses_of(self, content: VariableAddress) -> Words:
        if content.variable.space != "shared":
            return super()._addresses_of(content)
        offset = self.program.shared_offsets[content.variable.number] + content.offset
        return np.broadcast_to(np.array(offset, np.uint64), (self.lane_count,))

    @cached_property
    def undefined_values(self) -> UndefinedValues:
        """None may be undefined."""
        raise OrderMattersError("an undefined value")

    def _places(
        self, space: Space, at: Lanes, addresses: Addresses, size_bytes: int
    ) -> tuple[npt.NDArray[np.uint8], Addresses]:
        if space != "shared":
            return super()._places(space, at, addresses, size_bytes)
        if int(addresses.min()) < 0 or int(addresses.max()) + size_bytes > self.launch.shared_end:
            raise OrderMattersError("an address outside shared memory")
        return self.shared, self.shared_places(at, addresses)

    def in_all_blocks(self, at: Lanes) -> Lanes:
        """Lanes of the first block, and the same of all others."""
        if isinstance(at, slice):
            return at
        if self._spread_lanes is None or self._spread_lanes[0] is not at:
            starts = np.arange(self.blocks)[:, None] * self.block_lanes
            self._spread_lanes = (at, (starts + at).ravel())
        return self._spread_lanes[1]

    def select_heard_lanes(self, lanes: LaneNumbers) -> LaneNumbers:
        """The lanes of the first block, which leads the others."""
        return lanes[lanes < self.block_lanes]

    def require_alike(self, numbers: Iterable[int], at: Lanes) -> None:
        """Refuse registers in which blocks differ."""
        is_everyone = isinstance(at, slice) or len(at) == self.block_lanes
        for number in numbers:
            rows = self._by_block(number)
            rows = rows if is_everyone else rows[:, at]
            if not (rows == rows[0]).all():
                raise BlocksDifferError(f"register {number}", [row.tobytes() for row in rows])

    def spread(self, numbers: Iterable[int], at: Lanes) -> None:
        """Registers of the first block, for all others too."""
        for number in numbers:
            rows = self._by_block(number)
            rows[1:, at] = rows[0, at]

    def _by_block(self, number: int) -> Words:
        register = self.registers[number]
        return register.reshape(self.blocks, self.block_lanes, *register.shape[1:])

    def shared_places(self, at: Lanes, addresses: Addresses) -> Addresses:
        """The offsets of shared addresses of lanes in the memory of all blocks."""
        return self.block_of_lane[at] * self.shared_stride + addresses


@dataclass(slots=True, eq=False)
class BatchSchedule(Schedule):
    """Runs a batch to its end.

    A single block runs the front at its smallest instruction, and so does the batch, whose fronts have lanes of several
    blocks. When a front has used its quantum, a single block switches fronts; the batch does so only if all threads are
    in one front.
    """

    _is_at_barrier: npt.NDArray[np.bool_] = field(init=False)
    _barrier_pcs: npt.NDArray[np.int64] = field(init=False)  # of lanes at a barrier
    # Whether every front has as many steps as each of its blocks would have in a separate run.
    _has_equal_steps: bool = True
    _blocks_of: tuple[LaneNumbers, int] | None = None  # lanes, and how many blocks they are of

    def __post_init__(self) -> None:
        Schedule.__post_init__(self)
        self._is_at_barrier = np.zeros(self.cluster.lane_count, np.bool_)
        self._barrier_pcs = np.zeros(self.cluster.lane_count, np.int64)
        self.finds_spins = False

    def run(self) -> ClusterState:
        """Run until every thread has ended."""
        cluster = self.cluster
        while self.ready:
            if cluster.launch.steps_left <= 0:
                raise OrderMattersError("the budget of steps is spent")
            front = self._next_front()
            assert front is not None
            self._advance(front)
            if front.rounds:
                self._begin_quantum(front)
        if cluster.live.any():
            raise OrderMattersError("threads wait for something else than barriers")
        if cluster.launch.steps_left <= 0:
            raise OrderMattersError("the budget of steps is spent")
        return "finished"

    def _begin_quantum(self, front: Front) -> None:
        """Handle a front that has used its quantum; without other fronts this has no effect."""
        is_alone = len(self.ready) == 1 and len(self.ready[0].lanes) == np.count_nonzero(self.cluster.live)
        if not self._has_equal_steps or not is_alone:
            raise OrderMattersError("fronts of a block take turns")
        self.ready[0].rounds = 0
        front.rounds = 0

    def _count(self, front: Front, start: int, end: int) -> None:
        Schedule._count(self, front, start, end)
        if self._blocks_of is None or self._blocks_of[0] is not front.lanes:
            blocks = self.cluster.block_of_lane[front.lanes]
            self._blocks_of = (front.lanes, 1 + int(np.count_nonzero(blocks[1:] != blocks[:-1])))
        self.cluster.launch.count_steps((end - start) * (self._blocks_of[1] - 1))

    def add(self, front: Front) -> None:
        """Make a front ready; it is merged into a front at the same instruction."""
        for other in self.ready:
            if other.pc == front.pc and other.steps != front.steps and len(front.lanes):
                self._has_equal_steps = False
                other.steps = front.steps = max(other.steps, front.steps)
        Schedule.add(self, front)

    def meet_in_lockstep(self, front: Front) -> bool:
        """Resume blocks whose threads have all arrived at a barrier; the others wait. True if this was done."""
        cluster = self.cluster
        lanes = front.lanes
        if cluster.has_exits and not cluster.live[self._lanes_of_blocks(lanes)].all():
            raise OrderMattersError("a barrier after threads of its block have exited")
        self._is_at_barrier[lanes] = True
        self._barrier_pcs[lanes] = front.pc
        is_missing = np.asarray((cluster.exists & ~self._is_at_barrier).reshape(cluster.blocks, -1).any(axis=1))
        blocks = self._blocks_among(lanes)
        complete = blocks[~is_missing[blocks]]
        if len(complete):
            released = self._lanes_of(complete)
            if (self._barrier_pcs[released] != front.pc).any():
                raise OrderMattersError("threads of a block arrive at different barriers")
            self._is_at_barrier[released] = False
            if cluster.bus.is_heard:
                cluster.emit(BlocksMet(front.pc, complete))
            if not self.ready and len(released) == np.count_nonzero(cluster.live):
                self._has_equal_steps = True
            self.add(Front(front.pc + 1, released))
        return True

    def _lanes_of(self, blocks: LaneNumbers) -> LaneNumbers:
        """The threads of some blocks."""
        if len(blocks) == self.cluster.blocks:
            return np.flatnonzero(self.cluster.exists)
        width = self.cluster.block_lanes
        lanes: LaneNumbers = (blocks[:, None] * width + np.arange(width)).ravel()
        return np.asarray(lanes[self.cluster.exists[lanes]])

    def _lanes_of_blocks(self, lanes: LaneNumbers) -> LaneNumbers:
        """The threads of all blocks that some lanes belong to."""
        return self._lanes_of(self._blocks_among(lanes))

    def _blocks_among(self, lanes: LaneNumbers) -> LaneNumbers:
        """The blocks that some lanes belong to, each once."""
        return np.flatnonzero(np.bincount(self.cluster.block_of_lane[lanes]))

    def exit(self, lanes: LaneNumbers) -> None:
        """End threads. Warps of their blocks may be complete without them."""
        cluster = self.cluster
        cluster.live[lanes] = False
        cluster.has_exits = True
        if not cluster.live.any():
            return
        block_lanes = self._lanes_of_blocks(lanes)
        if self._is_at_barrier[block_lanes].any():
            raise OrderMattersError("threads exit while others of their block wait at a barrier")
        for pc in list(self.gathering):
            waiting = self.gathering[pc]
            is_concerned = np.isin(waiting, block_lanes)
            if is_concerned.any():
                self.gathering[pc] = waiting[~is_concerned]
                if not len(self.gathering[pc]):
                    del self.gathering[pc]
                self.add(Front(pc, waiting[is_concerned]))
