"""A matrix in the registers of warps or warpgroups: read from the registers, and written back.

    registers of one warp                             matrix (rows, columns), as the fragment says
                lane 0   lane 1   lane 2  …
    register 0  a0 a1    a2 a3    a4 a5               ┌ a0 a1 a2 a3 a4 a5 …
    register 1  b0 b1    b2 b3    …                   │ …

Which lane holds what is in mma/fragment.py; here it becomes one index array for each form of an instruction, so that all
warps that execute it together are gathered or filled at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.cluster import Cluster
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError
from tilescope.mma.fragment import REGISTER_BITS, Fragment, fragment
from tilescope.mma.mma_instruction import Operand as MatrixOperand
from tilescope.ptx.syntax import Operand, Register
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.tma.elements import pack_values, unpack_values

Elements = npt.NDArray[Any]  # codes of elements: unsigned integers


class LaneGroups(NamedTuple):
    """The whole warps or warpgroups that execute an instruction: all their lanes, group after group.

    Some of the lanes may have ended, or never existed: their registers take part, and their results are not used.
    """

    lanes: Lanes
    group_count: int

    def lane_numbers(self, cluster: Cluster) -> LaneNumbers:
        """The lanes as numbers, also where they are a slice."""
        return np.arange(cluster.lane_count)[self.lanes]


def lane_groups(cluster: Cluster, at: Lanes, group_lanes: int = WARP_LANES) -> LaneGroups:
    """The warps, or groups of more lanes, that some lanes belong to; none of them lacks lanes at the end of its block."""
    if cluster.block_lanes % group_lanes == 0:  # groups follow each other without a gap: most fronts are whole ones
        first = 0 if isinstance(at, slice) else int(at[0])
        end = cluster.lane_count if isinstance(at, slice) else int(at[-1]) + 1
        is_run = isinstance(at, slice) or end - first == len(at)
        if is_run and first % group_lanes == 0 and end % group_lanes == 0:
            return LaneGroups(slice(first, end), (end - first) // group_lanes)
    grouping = cluster.grouping(group_lanes)
    first_lanes = grouping.first_lanes[np.unique(grouping.of_lane[at])]
    lanes = (first_lanes[:, None] + np.arange(group_lanes)).ravel()
    return LaneGroups(lanes, len(first_lanes))


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """An operand of an instruction in registers: (groups, matrices, rows, columns) ↔ registers of lanes.

    B has rows of n and columns of k, as tensor cores multiply it. Bits (b1) stay packed: a column is a word of 32.

    >>> a = RegisterTile("mma.m16n8k16", "A", "f16")
    >>> a.registers, a.shape
    (4, (1, 16, 16))
    >>> RegisterTile("mma.m16n8k256", "B", "b1").shape
    (1, 8, 8)
    """

    instruction: str
    operand: MatrixOperand
    data_type: str | None = None

    @property
    def fragment(self) -> Fragment:
        """Which lane holds which element."""
        return fragment(self.instruction, self.operand, self.data_type)

    @property
    def registers(self) -> int:
        """How many registers of a lane hold it."""
        return _places(self).registers

    @property
    def register_bits(self) -> int:
        """32, or 64 where a register holds a float64."""
        return _places(self).register_bits

    @property
    def shape(self) -> tuple[int, int, int]:
        """Matrices, rows and columns that one group holds."""
        return _places(self).shape

    @property
    def order(self) -> npt.NDArray[np.uint16]:
        """Which element each lane's register holds: register after register, lane after lane, part after part."""
        return _places(self).order

    def targets(self, assembler: Assembler, operand: Operand) -> tuple[int, ...]:
        """The numbers of the registers that an instruction writes the operand to."""
        return self._require_registers(
            assembler, [(element, assembler.written(element)) for element in assembler.vector(operand)]
        )

    def sources(self, assembler: Assembler, operand: Operand) -> tuple[int, ...]:
        """The numbers of the registers that an instruction reads the operand from; constants are registers too."""
        width = "b32" if self.register_bits == REGISTER_BITS else "f64"
        return self._require_registers(
            assembler, [(element, assembler.source(element, width)) for element in assembler.vector(operand)]
        )

    def _require_registers(self, assembler: Assembler, registers: list[tuple[Operand, int]]) -> tuple[int, ...]:
        """The numbers, if there are as many registers as the operand takes, each as wide as it should be."""
        subject = "the matrix" if self.operand == "matrix" else f"operand {self.operand}"
        if len(registers) != self.registers:
            raise RefusedError(f"{subject} takes {counted(self.registers, 'register')}, not {len(registers)}")
        for written, number in registers:
            if assembler.dtype(number).itemsize * 8 != self.register_bits:
                name = written.name if isinstance(written, Register) else "another"
                raise RefusedError(f"{subject} takes registers of {self.register_bits} bits, unlike {name}")
        return tuple(number for _, number in registers)

    def gathered(self, cluster: Cluster, numbers: Sequence[int], groups: LaneGroups) -> Elements:
        """The elements that registers hold, as (groups, matrices, rows, columns) of codes."""
        places = _places(self)
        words = np.concatenate([cluster.registers[number][groups.lanes] for number in numbers])
        by_group = words.reshape(places.registers, groups.group_count, -1).swapaxes(0, 1)
        elements = _elements(np.ascontiguousarray(by_group).reshape(groups.group_count, -1), places.element_bits)
        return elements.take(places.gather, axis=1).reshape(groups.group_count, *places.shape)

    def fill(self, cluster: Cluster, numbers: Sequence[int], groups: LaneGroups, elements: Elements) -> None:
        """Put the elements of (groups, matrices, rows, columns) into registers."""
        places = _places(self)
        scattered = np.ascontiguousarray(elements).reshape(groups.group_count, -1).take(places.scatter, axis=1)
        if places.element_bits == 4:
            scattered = pack_values(scattered, places.element_bits)
        by_group = scattered.view(f"u{places.register_bits // 8}").reshape(groups.group_count, places.registers, -1)
        words = np.ascontiguousarray(by_group.swapaxes(0, 1)).reshape(places.registers, -1)
        for number, values in zip(numbers, words, strict=True):
            cluster.registers[number][groups.lanes] = values


def _elements(words: npt.NDArray[np.unsignedinteger], bits: int) -> Elements:
    """The elements in words (groups, words), lowest bits first; of 4 bits in a byte each, single bits stay words."""
    if bits == 1:
        return words
    if bits == 4:
        return unpack_values(words.view(np.uint8), bits)
    return words.view(f"u{bits // 8}")


class _Places(NamedTuple):
    """The layout of one form of an operand in the registers of a group."""

    registers: int
    register_bits: int
    element_bits: int
    shape: tuple[int, int, int]
    gather: npt.NDArray[np.intp]  # for each element of the matrices: its position among (registers, threads, parts)
    scatter: npt.NDArray[np.intp]  # for each (register, thread, part): which element it is
    order: npt.NDArray[np.uint16]  # the same, in a quarter of the bytes


@lru_cache(maxsize=256)
def _places(tile: RegisterTile) -> _Places:
    layout = tile.fragment
    register_bits = max(REGISTER_BITS, layout.element_bits)
    matrix, row, column = layout.indices()
    if tile.operand == "B":
        row, column = column, row
    rows, columns = layout.shape if tile.operand != "B" else layout.shape[::-1]
    parts = register_bits // layout.element_bits
    if layout.element_bits == 1:
        matrix, row, column = matrix[:, ::parts], row[:, ::parts], column[:, ::parts] // parts
        columns //= parts
        parts = 1
    index = (matrix * rows + row) * columns + column  # (threads, values)
    threads, values = index.shape
    scatter = index.reshape(threads, values // parts, parts).swapaxes(0, 1).ravel().astype(np.intp)
    gather = np.empty(layout.matrices * rows * columns, np.intp)
    gather[scatter[::-1]] = np.arange(len(scatter))[::-1]  # of copies the first stays
    shape = (layout.matrices, rows, columns)
    order = scatter.astype(np.uint16)
    return _Places(values // parts, register_bits, layout.element_bits, shape, gather, scatter, order)
