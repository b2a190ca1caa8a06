"""The order of one cluster's accesses: every instruction that touches memory, or orders such, is told here.

        cluster ──▶ touching          loads, stores, atomics           ┐
        fences  ──▶ fences            flags, scopes, proxies           │     cells: who touched this last?
        bar     ──▶ barriers          of warps, blocks, clusters       ├──▶  knowledge: does this thread know?
        mbarrier──▶ mbarriers         arrivals, polls                  │     conflicts: what nobody ordered
        cp      ──▶ copies, bulk      cp.async, bulk and tensor copies │
        wgmma   ──▶ products          operands and registers           │
        tcgen05 ──▶ tensor            tensor memory, operands          ┘

What is found depends on the path that threads take and on their data, not on which of them this run let go first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilescope.machine.address import SHARED_OFFSET_MASK, SHARED_RANK_SHIFT
from tilescope.machine.records import block_index
from tilescope.sync.detector.accesses import Touching
from tilescope.sync.detector.bulk_copies import BulkCopies
from tilescope.sync.detector.context import BarrierBytes, LaunchOrder, Witness
from tilescope.sync.detector.fences import Fences
from tilescope.sync.detector.map_edits import MapEdits
from tilescope.sync.detector.mbarrier_order import Mbarriers
from tilescope.sync.detector.race import Side
from tilescope.sync.detector.thread_barriers import ThreadBarriers
from tilescope.sync.detector.thread_copies import ThreadCopies
from tilescope.sync.detector.tmem_order import TensorMemoryOrder
from tilescope.sync.detector.wgmma_order import Products
from tilescope.sync.epoch import taken_apart
from tilescope.sync.lane_clocks import ALWAYS, KNOWN, Clock, joined
from tilescope.sync.shadow.accessor import Unit

if TYPE_CHECKING:
    from tilescope.machine.cluster import Cluster


class Order:
    """The order of one cluster, part by part."""

    def __init__(self, cluster: Cluster, launch: LaunchOrder) -> None:
        self.witness = Witness(cluster, launch)
        self.fences = Fences(self.witness)
        self.touching = Touching(self.witness, self.fences)
        self.barriers = ThreadBarriers(self.witness, self.fences)
        self.mbarriers = Mbarriers(self.witness, self.fences)
        self.copies = ThreadCopies(self.witness, self.touching, self.mbarriers)
        self.bulk = BulkCopies(self.witness, self.touching, self.mbarriers)
        self.products = Products(self.witness, self.copies)
        self.maps = MapEdits(self.witness)
        self.tensor = TensorMemoryOrder(self.witness, self.mbarriers)

    def block_ended(self, rank: int) -> None:
        """All threads of a block have ended: nothing may still read or write its shared memory."""
        witness = self.witness
        witness.ended_blocks.add(rank)
        if not witness.launch.mbarrier_uses:
            witness.launch.mbarrier_uses = self.mbarriers.uses(rank)
        lanes = np.flatnonzero(witness.cluster.block_of_lane == rank)
        clock = witness.knowledge.clock(lanes)
        before_end = self.barriers.before_end.get(rank)
        if before_end is not None:
            clock = joined(before_end, clock)
        self.bulk.end(lanes, rank, clock)
        self.products.end(lanes, rank, clock)
        self.copies.end(lanes, rank)
        self.fences.early.end(rank)
        self.tensor.end(rank, clock)
        self._end_of_remote_arrivals(rank, clock)
        if rank in self.touching.reached_blocks:
            self._end_of_remote_accesses(rank, clock)

    def cluster_ended(self) -> None:
        """All blocks have ended, and all copies have landed: keep the phases that ended before all their bytes had come."""
        witness = self.witness
        for address, barrier in self.mbarriers.at.items():
            if barrier.spilled is not None:
                rank = address >> SHARED_RANK_SHIFT
                block = block_index(witness.cluster.first_block, witness.cluster.launch.cluster, rank)
                witness.launch.spilled.append(BarrierBytes(address & SHARED_OFFSET_MASK, block, barrier.spilled))

    def _end_of_remote_arrivals(self, rank: int, clock: Clock) -> None:
        """Other blocks that may still come to an mbarrier of a block that ends."""
        ranks = self.witness.cluster.block_of_lane
        for address, barrier in self.mbarriers.at.items():
            if address >> SHARED_RANK_SHIFT != rank:
                continue
            for lane, (epoch, pc) in barrier.users.items():
                if ranks[lane] != rank and clock.known[lane] < epoch:
                    side = Side(pc, "arrival", lane)
                    self.witness.tell("block end", None, side, "shared", self.witness.place(address), rank=rank)
                    break

    def _end_of_remote_accesses(self, rank: int, clock: Clock) -> None:
        """Accesses of other blocks to a block's shared memory that its threads do not know to be finished."""
        witness = self.witness
        first = rank * witness.cluster.shared_stride // witness.cell_bytes
        cells = slice(first, first + witness.cluster.shared_stride // witness.cell_bytes)
        vectors = clock.vectors.copy()
        vectors[KNOWN, np.flatnonzero(witness.cluster.block_of_lane == rank)] = ALWAYS
        visible = Unit(witness.knowledge, vectors, {})
        for met in (witness.shared.unknown_writes(cells, visible), *witness.shared.unknown_reads(cells, visible)):
            if met is None:
                continue
            side = witness.side(taken_apart(int(met.stamps[0])), was_write=True)
            if side.how in ("write", "read", "atomic"):
                address = witness.address_of(cells, int(met.places[0]), "shared")
                witness.tell("block end", None, side, "shared", address, rank=rank)
