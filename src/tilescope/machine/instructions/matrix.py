"""Matrices between shared memory and registers: ldmatrix, stmatrix, movmatrix.

Lane 8 j + r gives the address of row r of matrix j, 16 bytes; those of other lanes are not looked at. Forms and fragments are
those of mma/matrix_form.py and mma/fragment.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.access_kind import matrix_kind
from tilescope.machine.execution.collective import Collective
from tilescope.machine.instructions.load_store import decode_address, space_of
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.register_tile import LaneGroups, RegisterTile, lane_groups
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.matrix_form import ROW_BYTES, MatrixForm, named_form
from tilescope.ptx.syntax import Address, Instruction, Operand
from tilescope.sync.address import Addresses
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.tma.elements import unpack_values

_WORD = np.dtype(np.uint64)
_ROW_WORDS = ROW_BYTES // _WORD.itemsize


class _Rows:
    """Where the rows of the matrices of an instruction are stored: the addresses that its first lanes give."""

    def __init__(self, assembler: Assembler, instruction: Instruction, operand: Operand, rows: int) -> None:
        words = Words(instruction)
        self.space = space_of(assembler, operand, words.space())
        self.addresses = decode_address(assembler, operand)
        self.rows = rows
        self.cost = matrix_kind(instruction.opcode, ROW_BYTES)

    def find(self, cluster: Cluster, warps: LaneGroups) -> tuple[LaneNumbers, Addresses]:
        """The lanes that give addresses, and these."""
        lanes = warps.lane_numbers(cluster).reshape(-1, WARP_LANES)[:, : self.rows].ravel()
        addresses = self.addresses(cluster, warps.lanes).reshape(-1, WARP_LANES)[:, : self.rows].ravel()
        return lanes, addresses


def _form(instruction: Instruction) -> tuple[MatrixForm, int]:
    """The form of ldmatrix or stmatrix, and the number of matrices; an error if there is no such form."""
    try:
        _, form, count = named_form(instruction.opcode)
    except RuleError as refused:
        raise RefusedError(refused.violations[0].limit) from None
    return form, count


def _ldmatrix(assembler: Assembler, instruction: Instruction) -> Turn:
    form, count = _form(instruction)
    target, address = instruction.operands
    rows = _Rows(assembler, instruction, _require_brackets(address), form.rows * count)
    tile = RegisterTile(form.opcode("ldmatrix", count), "matrix")
    targets = tile.targets(assembler, target)

    def load(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        lanes, addresses = rows.find(cluster, warps)
        words = cluster.load(rows.space, lanes, addresses, _WORD, _ROW_WORDS, cost=rows.cost)
        tile.fill(cluster, targets, warps, _stored_elements(words.view(np.uint8), form))

    return Collective(load)


def _stored_elements(rows: npt.NDArray[np.uint8], form: MatrixForm) -> npt.NDArray[np.unsignedinteger]:
    """The elements of rows of 16 bytes, as wide as they are in a register."""
    if form.packed_bits < 8:
        return unpack_values(rows[:, : form.columns * form.packed_bits // 8], form.packed_bits)
    return rows.view(f"u{form.element_bits // 8}")


def _stmatrix(assembler: Assembler, instruction: Instruction) -> Turn:
    form, count = _form(instruction)
    address, source = instruction.operands
    rows = _Rows(assembler, instruction, _require_brackets(address), form.rows * count)
    tile = RegisterTile(form.opcode("stmatrix", count), "matrix")
    sources = tile.sources(assembler, source)

    def store(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        lanes, addresses = rows.find(cluster, warps)
        elements = tile.gathered(cluster, sources, warps)
        cluster.store(rows.space, lanes, addresses, elements.reshape(len(lanes), -1).view(_WORD), cost=rows.cost)

    return Collective(store)


def _require_brackets(operand: Operand) -> Operand:
    if not isinstance(operand, Address):
        raise RefusedError("the matrix's address is in brackets")
    return operand


def _movmatrix(assembler: Assembler, instruction: Instruction) -> Turn:
    """A matrix of 8 x 8 elements is transposed: what ldmatrix.trans would load where stmatrix had put it."""
    words = Words(instruction)
    words.flag("sync")
    words.flag("aligned")
    for word in ("m8n8", "trans", "b16"):
        words.required((word,), f".{word}")
    words.done()
    plain = RegisterTile("stmatrix.x1", "matrix")
    transposed = RegisterTile("ldmatrix.x1.trans", "matrix")
    target, source = instruction.operands
    targets = transposed.targets(assembler, target)
    sources = plain.sources(assembler, source)

    def transpose(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        transposed.fill(cluster, targets, warps, plain.gathered(cluster, sources, warps))

    return Collective(transpose)


FAMILIES: dict[str, Decoder] = {"ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix}
