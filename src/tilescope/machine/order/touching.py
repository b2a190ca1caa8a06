"""Threads that load, store and change memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.address import Addresses
from tilescope.machine.order.accessor import Threads
from tilescope.machine.order.cells import CellNumbers, CellTable, Met
from tilescope.machine.order.conflict import How, Side
from tilescope.machine.order.early_loads import OlderValues
from tilescope.machine.order.fences import Fences
from tilescope.machine.order.flags import CARD, Flags
from tilescope.machine.order.global_cells import read_slots
from tilescope.machine.order.semantics import Meaning
from tilescope.machine.order.stamp import first_of_each, pcs_of, stamp_base, stamped, taken_apart
from tilescope.machine.order.witness import Witness, mistake_of
from tilescope.machine.step import LaneNumbers

Same = Callable[[], npt.NDArray[np.bool_]]
"""For each lane of a store: whether what it writes lies there already."""
NO_OLDER_VALUES: OlderValues = {}
_WEAK_READ = Meaning("read", is_strong=False, acquires=False, releases=False, reach=CARD)


class Request(NamedTuple):
    """What lanes ask for: as many bytes each, from its place on."""

    lanes: LaneNumbers
    places: Addresses
    size_bytes: int
    same: Same | None = None  # None: a load, or nobody can say


class Part(NamedTuple):
    """The cells of an access that lie in one table of global memory, and their positions in it."""

    cells: CellNumbers
    positions: CellNumbers


@dataclass(frozen=True, slots=True)
class Touch:
    """An access of threads, cell by cell: those of one lane follow each other."""

    space: Literal["shared", "global"]
    how: How
    is_strong: bool
    cells: CellNumbers
    lanes: LaneNumbers  # of each cell
    cells_of_lane: int
    same: Same | None

    @property
    def writes(self) -> bool:
        """Whether it may change what lies there."""
        return self.how != "read"


class Touching:
    """Loads, stores and atomics of the threads of one cluster."""

    def __init__(self, witness: Witness, fences: Fences) -> None:
        self._witness = witness
        self._fences = fences
        self.reached_blocks: set[int] = set()  # whose shared memory other blocks have touched

    def shared(self, lanes: LaneNumbers, places: Addresses, size_bytes: int, same: Same | None) -> OlderValues:
        """A load (`same` is None) or a store; `places` are those in the cluster's shared memory."""
        witness = self._witness
        meaning = witness.launch.meanings[witness.cluster.pc]
        if meaning is None or (same is not None and meaning.kind == "atomic"):
            return NO_OLDER_VALUES  # it is told elsewhere: asynchronous work when issued, an atomic when it loads
        if witness.cluster.blocks > 1:
            self._reach(lanes, places)
        request = Request(lanes, places, size_bytes, same)
        touch = self.spread("shared", meaning.kind, request, is_strong=meaning.is_strong)
        self.meet(witness.shared, touch)
        stamps = self._stamps(touch)
        if meaning.kind != "write":
            self._unwritten(touch)
        if touch.writes:
            witness.shared.write(touch.cells, stamps)
        else:
            witness.shared.read_by_threads(touch.cells, touch.lanes // WARP_LANES * 2, stamps)
        return self._pass_on(self._fences.shared_flags, meaning, request) if meaning.is_strong else NO_OLDER_VALUES

    def memory(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int, same: Same | None) -> OlderValues:
        """A load (`same` is None) or a store of global memory."""
        meaning = self._witness.launch.meanings[self._witness.cluster.pc]
        if meaning is None or (same is not None and meaning.kind == "atomic"):
            return NO_OLDER_VALUES
        request = Request(lanes, addresses, size_bytes, same)
        self._touch_memory(request, meaning)
        return self._pass_on(self._witness.launch.flags, meaning, request) if meaning.is_strong else NO_OLDER_VALUES

    def _pass_on(self, flags: Flags, meaning: Meaning, request: Request) -> OlderValues:
        """Strong accesses: what they order, and which loads are early."""
        if meaning.kind == "read":
            return self._fences.poll(flags, meaning, request.lanes, request.places, request.size_bytes)
        self._fences.pass_on(flags, meaning, request.lanes, request.places)
        return NO_OLDER_VALUES

    def source_of_copies(self, lanes: LaneNumbers, addresses: Addresses, size_bytes: int) -> None:
        """Threads read global memory by cp.async."""
        self._touch_memory(Request(lanes, addresses, size_bytes, None), _WEAK_READ)

    def _touch_memory(self, request: Request, meaning: Meaning) -> None:
        witness = self._witness
        whole = self.spread("global", meaning.kind, request, is_strong=meaning.is_strong)
        for table, cells, positions in witness.launch.memory.pieces(whole.cells):
            self.meet(table, whole, Part(cells, positions))
            stamps = self._stamps(whole)[positions]
            if whole.writes:
                table.write_by(witness.number, cells, stamps)
            else:
                slots = read_slots(witness.number, whole.lanes[positions] // WARP_LANES)
                table.read_by(witness.number, cells, slots, stamps)

    def two_values(self, space: Literal["shared", "global"], lane: int, address: int) -> None:
        """Two threads of one store wrote different values to one place."""
        meaning = self._witness.launch.meanings[self._witness.cluster.pc]
        if meaning is not None and not meaning.is_strong:
            side = Side(self._witness.cluster.pc, "write", lane)
            self._witness.tell("race", side, side, space, address)

    def spread(
        self, space: Literal["shared", "global"], how: How, request: Request, *, is_strong: bool = False
    ) -> Touch:
        """The cells that lanes touch, one after another."""
        witness = self._witness
        width = witness.cell_bytes if space == "shared" else witness.launch.memory.cell_bytes
        first = request.places // width
        count = -(-request.size_bytes // width)
        if count == 1:
            return Touch(space, how, is_strong, first, request.lanes, 1, request.same)
        cells = (first[:, None] + np.arange(count)).ravel()
        return Touch(space, how, is_strong, cells, np.repeat(request.lanes, count), count, request.same)

    def _stamps(self, touch: Touch) -> npt.NDArray[np.int64]:
        base = stamp_base(self._witness.cluster.pc, is_strong=touch.is_strong)
        return stamped(base, touch.lanes, self._witness.knowledge.own[touch.lanes])

    def meet(self, table: CellTable, touch: Touch, part: Part | None = None) -> None:
        """Tell whom threads meet without knowing that they were finished."""
        cells = touch.cells if part is None else part.cells
        threads = Threads(self._witness.knowledge, touch.lanes if part is None else touch.lanes[part.positions])
        met = table.unknown_writes(cells, threads, strong=touch.is_strong)
        if met is not None:
            self._tell(met, touch, part, was_write=True)
        if touch.writes:
            for read in table.unknown_reads(cells, threads, strong=touch.is_strong):
                self._tell(read, touch, part, was_write=False)

    def _tell(self, met: Met, touch: Touch, part: Part | None, *, was_write: bool) -> None:
        """One conflict for each instruction that was met; to overwrite with what lies there is none."""
        witness = self._witness
        positions = met.places if part is None else part.positions[met.places]
        if touch.same is not None and touch.same()[positions // touch.cells_of_lane].all():
            return
        width = witness.cell_bytes if touch.space == "shared" else witness.launch.memory.cell_bytes
        for index in first_of_each(pcs_of(met.stamps)):
            position = int(positions[index])
            before = witness.side(taken_apart(int(met.stamps[index])), was_write=was_write)
            now = Side(witness.cluster.pc, touch.how, int(touch.lanes[position]))
            mistake = mistake_of(before.how, now.how, was_write=was_write)
            address = int(touch.cells[position]) * width
            witness.tell(mistake, before, now, touch.space, address, **witness.foreign(met, index))

    def _unwritten(self, touch: Touch) -> None:
        flags = self._witness.shared.unwritten(touch.cells)
        if flags.any():
            first = int(np.argmax(flags))
            now = Side(self._witness.cluster.pc, touch.how, int(touch.lanes[first]))
            address = int(touch.cells[first]) * self._witness.cell_bytes
            self._witness.tell("unwritten", None, now, "shared", address)

    def _reach(self, lanes: LaneNumbers, places: Addresses) -> None:
        """Note which blocks are touched by others; one that has ended is an error."""
        cluster = self._witness.cluster
        ranks = places // cluster.shared_stride
        is_remote = ranks != cluster.block_of_lane[lanes]
        if not is_remote.any():
            return
        reached = np.unique(ranks[is_remote]).tolist()
        self.reached_blocks.update(reached)
        for rank in self._witness.ended_blocks.intersection(reached):
            index = int(np.argmax(is_remote & (ranks == rank)))
            now = Side(cluster.pc, "read", int(lanes[index]))
            self._witness.tell("block end", None, now, "shared", int(places[index]), rank=rank)
