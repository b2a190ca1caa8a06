"""A plan: everything a kernel needs to load one tile from global memory for its consumer, or to store it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import numpy as np
import numpy.typing as npt

from tilescope.arch import Basis
from tilescope.arithmetic import ceil_div
from tilescope.errors import raise_all
from tilescope.layout import oriented
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.planner.boxes import PlannedCopy, map_arguments, unfoldable
from tilescope.planner.consumers import descriptors_of
from tilescope.planner.element_path import (
    CopyStop,
    DescriptorStop,
    RegisterStop,
    ResultStop,
    copy_stop,
    descriptor_stop,
    register_stop,
    require_in_tile,
    result_stop,
    row_pitch_bytes,
)
from tilescope.planner.obstacle import or_obstacles, violations
from tilescope.planner.plan_reasons import edge_reasons, reasons_of
from tilescope.planner.planned_tile import PlannedTile
from tilescope.planner.problem import MAP_FOR_THREADS
from tilescope.planner.reason import Reason
from tilescope.reading import integers, pair
from tilescope.rule import rule
from tilescope.smem.op import BANK_BYTES, BANKS
from tilescope.swizzle import CHUNK_BYTES, CHUNKS_PER_LINE, SMEM_LINE_BYTES
from tilescope.tensor_map import TensorMap
from tilescope.value import Value, hex_field

PLAN_CORNER = rule(
    "plan-corner",
    "A tile that is copied through a folded map starts at a whole column of spans, in row order also at a whole group "
    "of rows.",
    argument="mn, k",
    found="(mn, k) = ({mn}, {k})",
    limit="a folded map sees columns of {columns}[[ and groups of {rows} rows]]",
    fix="Start the tile {earlier} {unit} earlier, or use the plan that is not folded.",
    source="the coordinates of the folded map",
    passing='[plan.copy_coords(plan.copies[0], 0, 64) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]',
    failing='[plan.copy_coords(plan.copies[0], 0, 8) for plan in ts.plan((64, 128), "bf16", fold=True).candidates]',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlannedTile):
    """One way to move a tile: swizzle, atoms, boxes, their offsets in shared memory, and the cost.

    >>> from tilescope.planner import plan
    >>> best = plan((128, 64), "bf16").best
    >>> best.swizzle.name, best.box, best.tma_instructions, best.smem_alignment_bytes
    ('128B', (64, 128), 1, 1024)
    """

    _derived: ClassVar[tuple[str, ...]] = ("reasons", "completion", "stage_bytes", "in_flight_bytes")

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is as it is, term by term."""
        return tuple(reasons_of(self))

    def tensor_map(
        self, address: int, global_shape: tuple[int, int] | None = None, strides_bytes: Sequence[int] | None = None
    ) -> TensorMap:
        """The tensor map for a matrix of `global_shape` (mn, k) at `address`; None: the problem's own, else the tile itself.

        >>> from tilescope.planner import plan
        >>> plan((128, 64), "bf16").best.tensor_map(0, (4096, 4096)).dims
        (4096, 4096)
        """
        if self.boxes is None:
            raise MAP_FOR_THREADS.error(copy=self.problem.copy)
        problem = self.problem
        matrix = self._matrix_shape(global_shape)
        strides = problem.strides_bytes if strides_bytes is None else integers("strides_bytes", strides_bytes, 1, 0)
        if self.folded:
            raise_all(violations(unfoldable(problem, self.containers, matrix)))
        arguments = map_arguments(problem, self.containers, self.boxes, matrix, strides)
        return TensorMap(**arguments, address=address, l2_promotion=self.l2_promotion)

    def copy_coords(self, copy: PlannedCopy, mn: int, k: int) -> tuple[int, ...]:
        """Coordinates of a copy for the tile whose corner is element (mn, k) of the matrix.

        >>> from tilescope.planner import plan
        >>> wide = plan((64, 128), "bf16").best
        >>> [wide.copy_coords(copy, 64, 256) for copy in wide.copies]
        [(256, 64), (320, 64)]
        """
        corner = self._folded_corner(mn, k) if self.folded else oriented(self.problem.major, mn, k)[::-1]
        return tuple(start + offset for start, offset in zip(corner, copy.coords, strict=True))

    def _folded_corner(self, mn: int, k: int) -> tuple[int, ...]:
        """Coordinates of element (mn, k) in the folded map, refused where a box cannot start there."""
        row, column = oriented(self.problem.major, mn, k)
        rows, columns = self.containers.as_rows().tiling.atom
        in_groups = self.atom_order == "row"  # of rows
        if column % columns or (in_groups and row % rows):
            raise PLAN_CORNER.error(
                mn=mn,
                k=k,
                columns=columns,
                rows=rows if in_groups else None,
                earlier=column % columns or row % rows,
                unit="elements" if column % columns else "rows",
            )
        if in_groups:
            return 0, 0, column // columns, row // rows
        return 0, row, column // columns

    @overload
    def address(self, mn: int, k: int, smem_address: int = 0) -> int: ...
    @overload
    def address(self, mn: npt.ArrayLike, k: npt.ArrayLike, smem_address: int = 0) -> npt.NDArray[np.int64]: ...
    def address(self, mn: npt.ArrayLike, k: npt.ArrayLike, smem_address: int = 0) -> int | npt.NDArray[np.int64]:
        """Physical shared address of element (mn, k) of the tile, whose stage starts at `smem_address`."""
        return self.layout.with_start(smem_address).address(mn, k)

    def descriptors(self, smem_address: int = 0) -> DescriptorLoop:
        """The tensor core's descriptors for the tile at `smem_address`, indexed [mn_block][k_step].

        >>> from tilescope.planner import plan
        >>> [hex(step.encode()) for step in plan((64, 64), "bf16").best.descriptors(0x400)[0]][:2]
        ['0x4000004000010040', '0x4000004000010042']
        """
        return descriptors_of(self.problem, self.containers.with_start(smem_address))

    def path(self, mn: int, k: int, smem_address: int = 0) -> ElementPath:
        """The way of element (mn, k) of the tile: its copy, its place in shared memory, who reads it, where its products go.

        >>> from tilescope.planner import plan
        >>> path = plan((128, 64), "bf16").best.path(37, 21)
        >>> hex(path.address), path.bank, path.descriptor.k_step
        ('0x12fa', 30, 1)
        """
        problem = self.problem
        require_in_tile(problem, mn, k)
        row, column = oriented(problem.major, mn, k)
        bits = problem.data_type.bits
        return ElementPath(
            plan=self,
            mn=mn,
            k=k,
            smem_address=smem_address,
            gmem_offset_bytes=row * row_pitch_bytes(self) + column * bits // 8,
            first_bit=column * bits % 8,
            chunk=column * self.containers.element_bits // 8 // CHUNK_BYTES,
            address=self.address(mn, k, smem_address),
            copy=copy_stop(self, row, column),
            descriptor=descriptor_stop(self, mn, k, smem_address),
            register=register_stop(self, mn, k),
            result=result_stop(self, mn),
            basis=self.basis,
        )

    @property
    def chunk_order(self) -> npt.NDArray[np.int64]:
        """The source chunk (row x chunks of a row + chunk) that every place of shared memory holds: (lines, 8).

        A warp that stores one line of 128 bytes reads these chunks from global memory.

        >>> from tilescope.planner import plan
        >>> plan((8, 32), "bf16", consumer="ldmatrix", copy="cp.async", swizzle="64B").best.chunk_order[:2].tolist()
        [[0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 11, 10, 13, 12, 15, 14]]
        """
        layout = self.containers
        bits = layout.element_bits
        tile = layout.as_rows()
        rows = tile.shape[0]
        chunks = tile.shape[1] * bits // 8 // CHUNK_BYTES
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
        """The layout as CuTe's atom and Triton's encoding; None if one of them cannot express it.

        >>> from tilescope.planner import plan
        >>> plan((64, 64), "bf16").best.spellings["CuTe"]
        'tile_to_shape(GMMA::Layout_K_SW128_Atom<uint16_t>{}, Shape<_64,_64>{})'
        """
        from tilescope.notation import spell_layout

        notations = {"CuTe": "cute-atom", "Triton": "triton"}
        texts = {name: or_obstacles(spell_layout, self.layout, notation) for name, notation in notations.items()}
        return {name: None if isinstance(text, list) else text for name, text in texts.items()}

    def kernel_facts(self) -> dict[str, object]:
        """What a kernel needs beyond the plan's own data, as plain data: map and descriptors of a stage at address 0."""
        facts: dict[str, object] = {
            "c_expression": self.c_expression,
            "stage_bytes": self.stage_bytes,
            "total_smem_bytes": self.total_smem_bytes,
            "barrier_bytes": self.barrier_bytes,
            "blocks_per_sm": self.blocks_per_sm,
            "spellings": self.spellings,
        }
        if self.boxes is None:
            facts["chunk_order"] = self.chunk_order.tolist()
        else:
            facts["tensor_map"] = self.tensor_map(0).to_dict()
        if self.problem.reads_by_descriptor:
            facts["descriptors"] = self.descriptor_words()
        return facts

    def descriptor_words(self, smem_address: int = 0) -> list[list[str]]:
        """The descriptors of `descriptors`, encoded, in hexadecimal."""
        return [[hex(step.encode()) for step in block] for block in self.descriptors(smem_address)]

    def edge(self, global_shape: tuple[int, int] | None = None) -> tuple[Reason, ...]:
        """The part of the last tiles of a matrix that is outside it.

        >>> from tilescope.planner import plan
        >>> print(*plan((128, 64), "bf16").best.edge((1000, 4096)))
        Edge, mn: 8 tiles of 128, the last with 104 of 128: 24 filled.
        """
        return tuple(edge_reasons(self.problem, self._matrix_shape(global_shape)))

    def _matrix_shape(self, asked: tuple[int, int] | None) -> tuple[int, int]:
        """The extents (mn, k) of a matrix as passed; None: the problem's, else the tile's."""
        if asked is not None:
            return pair("global_shape", asked, 1)
        return self.problem.global_shape or self.problem.tile


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementPath(Value):
    """One element of a planned tile, at every stop of its way.

    >>> from tilescope.planner import plan
    >>> path = plan((128, 64), "bf16").best.path(37, 21)
    >>> hex(path.address), path.line, path.smem_chunk, path.bank
    ('0x12fa', 37, 7, 30)
    >>> path.descriptor.k_step, path.descriptor.k, path.result.threads
    (1, 5, (84, 85, 86, 87))
    """

    plan: Plan  # whose tile it is in
    mn: int  # of the element, in the tile
    k: int  # of the element, in the tile
    smem_address: int = hex_field()  # of the tile's first byte
    gmem_offset_bytes: int  # of the element, from the tile's first element in the matrix
    first_bit: int  # of the element in its first byte
    chunk: int  # the 16 bytes of its row that hold it, from 0
    address: int = hex_field()  # in shared memory
    copy: CopyStop | None  # None: threads copy
    descriptor: DescriptorStop | None  # None: no tensor core reads the tile by descriptor
    register: RegisterStop | None  # None: it does not go to registers by ldmatrix
    result: ResultStop | None  # None: no tensor core reads the tile by descriptor
    basis: Basis  # of the plan

    @property
    def row(self) -> int:
        """Of the tile, where rows are contiguous."""
        return oriented(self.plan.problem.major, self.mn, self.k)[0]

    @property
    def line(self) -> int:
        """The 128 bytes of shared memory that hold it, counted from the tile's first."""
        return (self.address - self.smem_address) // SMEM_LINE_BYTES

    @property
    def smem_chunk(self) -> int:
        """The 16 bytes of that line that hold it."""
        return self.address % SMEM_LINE_BYTES // CHUNK_BYTES

    @property
    def bank(self) -> int:
        """The bank of its first byte."""
        return self.address // BANK_BYTES % BANKS
