"""A plan as data: the candidate, how its copy completes, and its cost. `plans.Plan` adds the reasons.

How a copy completes, and how the writers and readers of shared memory synchronize:

copy                mechanism        who waits                   between writers and readers
TMA load            mbarrier         every reader                nothing more: the mbarrier orders both proxies
TMA store           bulk group       the thread that issued it   proxy fence by every writer, a barrier, then the copy
cp.async            cp.async group   every copying thread        (proxy fence where a tensor core reads), a barrier
ld.global + st      barrier          every thread                (proxy fence where a tensor core reads), a barrier
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from tilescope.arch import Basis
from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.layout import AtomOrder, Layout
from tilescope.mma.canonical import CanonicalLayout
from tilescope.planner.boxes import Boxes, PlannedCopy
from tilescope.planner.consumers import containers_for
from tilescope.planner.problem import Problem
from tilescope.swizzle import Swizzle
from tilescope.sync.mbarrier import MBARRIER_BYTES
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value, row_field

RESERVED_BYTES = 1024  # of shared memory, that the driver keeps for every block
Mechanism = Literal["mbarrier", "cp.async group", "bulk group", "barrier"]
Waiter = Literal["every reader", "the issuing thread", "every copying thread"]
PROXY_FENCE = "fence.proxy.async.shared::cta"


@dataclass(frozen=True, slots=True)
class Completion(Value):
    """How a kernel detects that a tile has arrived, or may be overwritten.

    >>> from tilescope.planner import plan
    >>> plan((128, 64), "bf16").best.completion.expected_bytes
    16384
    >>> copied = plan((128, 64), "bf16", copy="cp.async").best.completion
    >>> copied.mechanism, copied.wait, copied.fence, copied.barrier
    ('cp.async group', 'cp.async.wait_group', 'fence.proxy.async.shared::cta', True)
    """

    mechanism: Mechanism
    commit: str | None  # what the thread that issued the copies executes
    wait: str | None  # what those who wait execute
    waited_by: Waiter
    expected_bytes: int | None = None  # of an mbarrier, for one tile
    fence: str | None = None  # by every writer, between writes and reads of different proxies
    barrier: bool = False  # of the block, between writers and readers

    @classmethod
    def of(cls, problem: Problem) -> Completion:
        """The completion of a problem's copy."""
        end = _ENDS[problem.copy, problem.direction]
        if end.mechanism == "mbarrier":
            return replace(end, expected_bytes=problem.moved_bytes)
        crosses_proxies = problem.direction == "store" or problem.reads_by_descriptor
        return replace(end, fence=PROXY_FENCE if crosses_proxies else None, barrier=True)


_ENDS = {  # by copy and direction
    ("tma", "load"): Completion(
        mechanism="mbarrier",
        commit="mbarrier.arrive.expect_tx",
        wait="mbarrier.try_wait.parity",
        waited_by="every reader",
    ),
    ("tma", "store"): Completion(
        mechanism="bulk group",
        commit="cp.async.bulk.commit_group",
        wait="cp.async.bulk.wait_group",
        waited_by="the issuing thread",
    ),
    ("cp.async", "load"): Completion(
        mechanism="cp.async group",
        commit="cp.async.commit_group",
        wait="cp.async.wait_group",
        waited_by="every copying thread",
    ),
    ("ld.global", "load"): Completion(
        mechanism="barrier",
        commit=None,
        wait=None,
        waited_by="every copying thread",
    ),
}


def barrier_bytes(problem: Problem) -> int:
    """Shared memory of one stage's mbarrier, where its copy ends by one."""
    return MBARRIER_BYTES if _ENDS[problem.copy, problem.direction].mechanism == "mbarrier" else 0


@dataclass(frozen=True, slots=True)
class Costs(Value):
    """What a plan costs for one tile. None: not counted by any instrument, or not measured."""

    tma_instructions: int
    gmem_request_bytes: int  # contiguous global bytes of one request
    smem_bytes: int  # of one stage
    waste_bytes: int  # of these, what no element occupies
    smem_alignment_bytes: int
    transaction_bytes: int
    read_wavefronts: int | None  # of the consumer; tensor cores that read shared memory have none
    read_ideal: int | None
    write_wavefronts: int | None  # where threads write; TMA has none
    write_ideal: int | None
    gb_per_s: float | None  # predicted, of the whole card; None: its rates are not known
    bandwidth_share: float | None  # of the fastest boxes measured on the card in this direction
    gmem_cycles: int | None  # for which the tile keeps one SM's part of global memory busy
    access: str  # what is counted: the consumer's reads, for a store the epilogue's writes; "" where nothing is

    @property
    def wavefronts(self) -> int:
        """Wavefronts of shared memory, reading and writing, a cycle for every one."""
        return (self.read_wavefronts or 0) + (self.write_wavefronts or 0)

    @property
    def excess_wavefronts(self) -> int:
        """Of these, what is lost to bank conflicts."""
        return self.wavefronts - (self.read_ideal or 0) - (self.write_ideal or 0)

    @property
    def cycles(self) -> int | None:
        """What bounds a stream of such tiles: global and shared memory work side by side, the slower one counts."""
        return None if self.gmem_cycles is None else max(self.gmem_cycles, self.wavefronts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTile(Value):
    """One way to move a tile: swizzle, atoms, boxes, their offsets in shared memory, and the cost."""

    problem: Problem
    swizzle: Swizzle = row_field(Swizzle.named)
    atom_order: AtomOrder
    layout: Layout  # where every element is stored
    boxes: Boxes | None  # None: threads copy, not TMA
    l2_promotion: L2PromotionName
    costs: Costs
    basis: Basis
    canonical: CanonicalLayout | None = field(default=None)  # None: no tensor core reads it
    warnings: tuple[Violation, ...] = ()  # rules that a map breaks although the driver accepts it

    @property
    def containers(self) -> Layout:
        """The tile as copies and descriptors count it: a byte for every value that TMA pads, the layout for other types.

        >>> from tilescope.planner import plan
        >>> best = plan((128, 128), "e2m3", arch="sm_100").best
        >>> best.containers.address(0, 5), best.layout.address(0, 5)  # a load leaves its values dense in a chunk
        (5, 3)
        """
        if self.layout.element_bits == self.problem.data_type.smem_bits:
            return self.layout
        layout = containers_for(self.problem, self.swizzle, self.atom_order)
        assert isinstance(layout, Layout)  # it was, when the plan was made
        return layout

    @property
    def box(self) -> tuple[int, ...] | None:
        """Extent of one TMA box, driver order, elements."""
        return None if self.boxes is None else self.boxes.box

    @property
    def copies(self) -> tuple[PlannedCopy, ...]:
        """The TMA copies of one tile: coords relative to the tile, and offset in its shared memory."""
        return () if self.boxes is None else self.boxes.copies

    @property
    def folded(self) -> bool:
        """Whether the map sees the matrix through one or two more dimensions."""
        return self.boxes is not None and self.boxes.folded

    @property
    def tma_instructions(self) -> int:
        """Copies that one tile takes."""
        return self.costs.tma_instructions

    @property
    def transaction_bytes(self) -> int:
        """What the mbarrier expects for one tile."""
        return self.costs.transaction_bytes

    @property
    def smem_bytes(self) -> int:
        """Shared memory of one tile and stage."""
        return self.costs.smem_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """Alignment of a stage's shared memory."""
        return self.costs.smem_alignment_bytes

    @property
    def gmem_request_bytes(self) -> int:
        """Contiguous global bytes of one box row, at most 128."""
        return self.costs.gmem_request_bytes

    @property
    def completion(self) -> Completion:
        """How the copy completes, who waits, and which fence orders writers and readers."""
        return Completion.of(self.problem)

    @property
    def stage_bytes(self) -> int:
        """From one stage to the next: the tile, rounded up to its alignment."""
        return stage_bytes(self.containers)

    @property
    def total_smem_bytes(self) -> int:
        """Shared memory of all stages, without their mbarriers."""
        return self.problem.stages * self.stage_bytes

    @property
    def barrier_bytes(self) -> int:
        """Shared memory of the mbarriers, one for every stage that TMA loads."""
        return self.problem.stages * barrier_bytes(self.problem)

    @property
    def blocks_per_sm(self) -> int:
        """Blocks that fit an SM if only shared memory counts."""
        return blocks_per_sm(self.problem, self.containers)

    @property
    def in_flight_bytes(self) -> int:
        """Outstanding bytes of the copies of one SM: all stages of all its blocks."""
        return self.blocks_per_sm * self.problem.stages * self.transaction_bytes


def stage_bytes(layout: Layout) -> int:
    """From one stage to the next: the tile, rounded up to its alignment."""
    return rounded_up(layout.size_bytes, layout.alignment_bytes)


def blocks_per_sm(problem: Problem, layout: Layout) -> int:
    """Blocks that fit an SM by the shared memory of their stages and mbarriers."""
    stage = stage_bytes(layout) + barrier_bytes(problem)
    block = problem.stages * stage + RESERVED_BYTES
    return min(problem.arch.blocks_per_sm, problem.arch.smem_per_sm_bytes // block)
