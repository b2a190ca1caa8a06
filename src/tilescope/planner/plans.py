"""A plan: everything a kernel needs to bring one tile from global memory to its consumer, or back.

How a copy ends, and what stands between those who write shared memory and those who read it:

copy                mechanism        who waits                   between writers and readers
TMA load            mbarrier         every reader                nothing more: the mbarrier orders both proxies
TMA store           bulk group       the thread that issued it   proxy fence by every writer, a barrier, then the copy
cp.async            cp.async group   every copying thread        (proxy fence where a tensor core reads), a barrier
ld.global + st      barrier          every thread                (proxy fence where a tensor core reads), a barrier
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.arithmetic import ceil_div, rounded_up
from tilescope.errors import Violation, raise_all
from tilescope.layout import AtomOrder, Layout, oriented
from tilescope.mma.canonical import CanonicalLayout
from tilescope.planner.boxes import Boxes, PlannedCopy, map_arguments, unfoldable
from tilescope.planner.consumers import containers_for, descriptors_of
from tilescope.planner.problem import PLAN_COPY, Problem
from tilescope.planner.reason import Reason, or_obstacles, plan_rule, violations
from tilescope.planner.reasons import reasons_of
from tilescope.reading import integers, pair
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import TensorMap
from tilescope.tensor_map.option import L2PromotionName
from tilescope.value import Value, row_field

RESERVED_BYTES = 1024  # of shared memory, that the driver keeps for every block
Mechanism = Literal["mbarrier", "cp.async group", "bulk group", "barrier"]
Waiter = Literal["every reader", "the issuing thread", "every copying thread"]
MBARRIER_BYTES = 8
PROXY_FENCE = "fence.proxy.async.shared::cta"

# fmt: off
_ENDS: dict[tuple[str, str], tuple[Mechanism, str | None, str | None, Waiter]] = {
    ("tma", "load"):       ("mbarrier", "mbarrier.arrive.expect_tx", "mbarrier.try_wait.parity", "every reader"),
    ("tma", "store"):      ("bulk group", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "the issuing thread"),
    ("cp.async", "load"):  ("cp.async group", "cp.async.commit_group", "cp.async.wait_group", "every copying thread"),
    ("ld.global", "load"): ("barrier", None, None, "every copying thread"),
}
# fmt: on
_FATES = {  # of what lies outside the matrix, where threads copy
    "cp.async": "to be filled by the kernel (cp.async with a smaller source size)",
    "ld.global": "to be filled by the kernel (a predicate)",
}


@dataclass(frozen=True, slots=True)
class Completion(Value):
    """How a kernel knows that a tile has arrived, or may be overwritten.

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
        crosses = problem.direction == "store" or problem.reads_by_descriptor  # from one proxy to the other
        if barrier_bytes(problem):
            return cls(*_ENDS[problem.copy, problem.direction], expected_bytes=problem.moved_bytes)
        return cls(*_ENDS[problem.copy, problem.direction], fence=PROXY_FENCE if crosses else None, barrier=True)


def barrier_bytes(problem: Problem) -> int:
    """Shared memory of one stage's mbarrier, where its copy ends by one."""
    return MBARRIER_BYTES if _ENDS[problem.copy, problem.direction][0] == "mbarrier" else 0


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


# fmt: off
PLAN_CORNER = plan_rule(
    "plan-corner",
    "A tile that is copied through a folded map starts on a whole column of spans, in row order also on a whole group of rows.",
    "the coordinates of the folded map",
    '[plan.copy_coords(plan.copies[0], 0, 64) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]',
    '[plan.copy_coords(plan.copies[0], 0, 8) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]',
    said=("(mn, k) = ({mn}, {k})", "a folded map sees columns of {columns}[ and groups of {rows} rows]",
          "Start the tile {earlier} {unit} earlier, or use the plan that is not folded."),
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Value):
    """One way to move a tile: swizzle, atoms, boxes, where they land, and what it costs.

    >>> from tilescope.planner import plan
    >>> best = plan((128, 64), "bf16").best
    >>> best.swizzle.name, best.box, best.tma_instructions, best.smem_alignment_bytes
    ('128B', (64, 128), 1, 1024)
    """

    _derived: ClassVar[tuple[str, ...]] = ("reasons", "completion", "stage_bytes", "in_flight_bytes")

    problem: Problem
    swizzle: Swizzle = row_field(Swizzle.named)
    atom_order: AtomOrder
    layout: Layout  # where every element lies
    boxes: Boxes | None  # None: threads copy, not TMA
    l2_promotion: L2PromotionName
    costs: Costs
    basis: Basis
    canonical: CanonicalLayout | None = field(default=None)  # None: no tensor core reads it
    warnings: tuple[Violation, ...] = ()  # what the rules say of a map that the driver takes all the same

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is as it is, term by term."""
        return tuple(reasons_of(self))

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
        found = containers_for(self.problem, self.swizzle, self.atom_order)
        assert isinstance(found, Layout)  # it was, when the plan was made
        return found

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
        """How the copy ends, who waits, and which fence stands between writers and readers."""
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
        """Blocks that fit an SM by their shared memory alone."""
        return blocks_per_sm(self.problem, self.containers)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that the copies of one SM can have under way: all stages of all its blocks."""
        return self.blocks_per_sm * self.problem.stages * self.transaction_bytes

    def tensor_map(
        self, address: int, global_shape: tuple[int, int] | None = None, strides_bytes: Sequence[int] | None = None
    ) -> TensorMap:
        """The tensor map for a matrix of `global_shape` (mn, k) at `address`; None: the problem's own, else the tile itself.

        >>> from tilescope.planner import plan
        >>> plan((128, 64), "bf16").best.tensor_map(0, (4096, 4096)).dims
        (4096, 4096)
        """
        if self.boxes is None:
            raise PLAN_COPY.broken("copy", "map", copy=self.problem.copy).error()
        asked, whole = self.problem, self._matrix_shape(global_shape)
        strides = asked.strides_bytes if strides_bytes is None else integers("strides_bytes", strides_bytes, 1, 0)
        raise_all(violations(unfoldable(asked, self.containers, whole)) if self.folded else ())
        arguments = map_arguments(asked, self.containers, self.boxes, whole, strides)
        return TensorMap(**arguments, address=address, l2_promotion=self.l2_promotion)

    def copy_coords(self, copy: PlannedCopy, mn: int, k: int) -> tuple[int, ...]:
        """Coordinates of a copy for the tile whose corner is element (mn, k) of the matrix.

        >>> from tilescope.planner import plan
        >>> wide = plan((64, 128), "bf16").best
        >>> [wide.copy_coords(copy, 64, 256) for copy in wide.copies]
        [(256, 64), (320, 64)]
        """
        row, column = oriented(self.problem.major, mn, k)
        rows, columns = self.containers.as_rows().tiling.atom
        in_groups, corner = self.atom_order == "row", tuple[int, ...]((column, row))  # groups of rows
        if self.folded:
            if column % columns or (in_groups and row % rows):
                earlier, unit = (column % columns, "elements") if column % columns else (row % rows, "rows")
                told = {"columns": columns, "rows": rows if in_groups else None, "earlier": earlier, "unit": unit}
                raise PLAN_CORNER.broken("mn, k", mn=mn, k=k, **told).error()
            corner = (0, 0, column // columns, row // rows) if in_groups else (0, row, column // columns)
        return tuple(a + b for a, b in zip(corner, copy.coords, strict=True))

    def address(self, mn: Any, k: Any, smem_address: int = 0) -> Any:
        """Physical shared address of element (mn, k) of the tile, whose stage starts at `smem_address`."""
        return self.layout.with_start(smem_address).address(mn, k)

    def descriptors(self, smem_address: int = 0) -> Any:
        """The tensor core's descriptors for the tile at `smem_address`, indexed [mn_block][k_step].

        >>> from tilescope.planner import plan
        >>> [hex(step.encode()) for step in plan((64, 64), "bf16").best.descriptors(0x400)[0]][:2]
        ['0x4000004000010040', '0x4000004000010042']
        """
        return descriptors_of(self.problem, self.containers.with_start(smem_address))

    @property
    def chunk_order(self) -> npt.NDArray[np.int64]:
        """The source chunk (row x chunks of a row + chunk) that every place of shared memory holds: (lines, 8).

        A warp that stores one line of 128 bytes reads these chunks from global memory.

        >>> from tilescope.planner import plan
        >>> plan((8, 32), "bf16", consumer="ldmatrix", copy="cp.async", swizzle="64B").best.chunk_order[:2].tolist()
        [[0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 11, 10, 13, 12, 15, 14]]
        """
        layout = self.containers
        bits, tile = layout.element_bits, layout.as_rows()
        rows, chunks = tile.shape[0], tile.shape[1] * bits // 8 // CHUNK_BYTES
        columns = np.arange(chunks) * (CHUNK_BYTES * 8 // bits)
        place = (tile.address(np.arange(rows)[:, None], columns[None, :]) - layout.start) // CHUNK_BYTES
        order = np.full(ceil_div(layout.size_bytes, SMEM_LINE_BYTES) * CHUNKS_PER_LINE, -1, np.int64)
        order[place.reshape(-1)] = np.arange(rows * chunks)
        return order.reshape(-1, CHUNKS_PER_LINE)

    @property
    def c_expression(self) -> str:
        """The shared address of element (r, c) in C, with `unsigned a` declared: r strided, c contiguous.

        >>> from tilescope.planner import plan
        >>> plan((64, 64), "bf16").best.c_expression
        '(a = base + r * 128 + c * 2, a ^ ((a >> 3) & 0x70))'
        """
        return self.layout.c_expression

    @property
    def spellings(self) -> dict[str, str | None]:
        """The layout as CuTe's atom and Triton's encoding write it; None where one of them has no such layout.

        >>> from tilescope.planner import plan
        >>> plan((64, 64), "bf16").best.spellings["CuTe"]
        'tile_to_shape(GMMA::Layout_K_SW128_Atom<uint16_t>{}, Shape<_64,_64>{})'
        """
        from tilescope.notation import spell_layout

        notations = {"CuTe": "cute-atom", "Triton": "triton"}
        texts = {name: or_obstacles(spell_layout, self.layout, notation) for name, notation in notations.items()}
        return {name: None if isinstance(text, list) else text for name, text in texts.items()}

    def kernel_facts(self) -> dict[str, Any]:
        """What a kernel needs beyond the plan's own data, as plain data: map and descriptors of a stage at address 0."""
        told = ("c_expression", "stage_bytes", "total_smem_bytes", "barrier_bytes", "blocks_per_sm", "spellings")
        by_threads, by_descriptor = self.boxes is None, self.problem.reads_by_descriptor
        return {
            **{name: getattr(self, name) for name in told},
            **(
                {"chunk_order": self.chunk_order.tolist()}
                if by_threads
                else {"tensor_map": self.tensor_map(0).to_dict()}
            ),
            **({"descriptors": self.descriptor_words()} if by_descriptor else {}),
        }

    def descriptor_words(self, smem_address: int = 0) -> list[list[str]]:
        """The descriptors of `descriptors`, encoded, in hexadecimal."""
        return [[hex(step.encode()) for step in block] for block in self.descriptors(smem_address)]

    def edge(self, global_shape: tuple[int, int] | None = None) -> tuple[Reason, ...]:
        """What becomes of the last tiles of a matrix: how much of them lies outside.

        >>> from tilescope.planner import plan
        >>> print(*plan((128, 64), "bf16").best.edge((1000, 4096)))
        Edge, mn: 8 tiles of 128, the last with 104 of 128: 24 filled.
        """
        problem, shape = self.problem, self._matrix_shape(global_shape)
        fate = _FATES.get(problem.copy, "dropped" if problem.direction == "store" else "filled")
        extents = zip(problem.extent_names, shape, problem.tile, strict=True)
        return tuple(
            Reason.of(
                "edge", extent=name, tiles=ceil_div(whole, part), part=part, last=whole % part, outside=-whole % part, fate=fate
            )
            for name, whole, part in extents
            if whole % part
        )  # fmt: skip

    def _matrix_shape(self, asked: Any) -> tuple[int, int]:
        """The extents (mn, k) of a matrix as they were asked for; None: the problem's own, else the tile's."""
        return self.problem.global_shape or self.problem.tile if asked is None else pair("global_shape", asked, 1)


def stage_bytes(layout: Layout) -> int:
    """From one stage to the next: the tile, rounded up to its alignment."""
    return rounded_up(layout.size_bytes, layout.alignment_bytes)


def blocks_per_sm(problem: Problem, layout: Layout) -> int:
    """Blocks that fit an SM by the shared memory of their stages and mbarriers."""
    arch, stage = problem.arch, stage_bytes(layout) + barrier_bytes(problem)
    return min(arch.blocks_per_sm, arch.smem_per_sm_bytes // (problem.stages * stage + RESERVED_BYTES))
