"""wmma.load and wmma.store: a matrix between memory and the registers of a warp.

    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16     {a0, …, a7}, [p], stride;
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32    [p], {d0, …, d7}, stride;

mma/fragment.py has the layout in registers, mma/wmma_access.py the addresses of the lanes. The stride counts elements
from one row (or column) to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.decoding.access_kind import AccessKind, access_kind, matrix_kind
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import MISALIGNED_ADDRESS, KernelFaultError
from tilescope.machine.instructions.load_store import AddressOf, decode_address, space_of
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.register_tile import LaneGroups, RegisterTile, lane_groups
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.matrix_form import ROW_BYTES
from tilescope.mma.mma_instruction import WMMA_INSTRUCTIONS
from tilescope.mma.mma_instruction import Instruction as Row
from tilescope.mma.mma_instruction import Operand as MatrixOperand
from tilescope.mma.wmma_access import LaneAccess, Order, wmma_accesses
from tilescope.ptx.syntax import Instruction, Operand
from tilescope.sentence import counted
from tilescope.sync.address import Addresses, Space
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.tma.elements import unpack_values

WMMA_TYPES = {
    DATA_TYPE[name].ptx: DATA_TYPE[name] for row in WMMA_INSTRUCTIONS for name in (*row.types, *row.accumulators)
}
_ROWS_OF_SHAPE = {
    row.name.removeprefix("wmma."): [other for other in WMMA_INSTRUCTIONS if other.name == row.name]
    for row in WMMA_INSTRUCTIONS
}
_ORDERS: tuple[Order, ...] = ("row", "col")
_SPACES: tuple[Space, ...] = ("generic", "global", "shared")


class _Access(NamedTuple):
    """One access of a warp, ready to be executed."""

    lanes: int  # that take part, from the first on
    line: Addresses  # which row or column each of them goes to
    offset_bytes: Addresses  # where in it
    size_bytes: int
    words: int  # that a lane takes
    kind: AccessKind
    is_ldmatrix: bool
    elements: npt.NDArray[np.intp]  # (lanes, elements): which elements of the matrix these are


class _Transfer:
    """A matrix between memory and registers."""

    def __init__(
        self, tile: RegisterTile, order: Order, space: Space, addresses: AddressOf, stride: int | None
    ) -> None:
        fragment = tile.fragment
        self.tile = tile
        self.space = space
        self.addresses = addresses
        self.stride = stride  # the register that holds it
        self.bits = fragment.element_bits
        self.word = np.dtype(f"u{_word_bits(self.bits) // 8}")
        rows, columns = fragment.shape
        self.default_stride = columns if order == "row" else rows
        by_ldmatrix = space == "shared" and tile.operand in ("A", "B")
        verb: Literal["ld", "st"] = "st" if tile.operand == "D" else "ld"
        accesses = wmma_accesses(fragment, order, by_ldmatrix=by_ldmatrix)
        self.accesses = [self._ready(access, order, verb) for access in accesses]

    def _ready(self, access: LaneAccess, order: Order, verb: Literal["ld", "st"]) -> _Access:
        size_bytes = access.elements * self.bits // 8
        if access.matrices is None:
            kind = access_kind(verb, size_bytes)
        else:
            kind = matrix_kind(f"ldmatrix.x{access.matrices}", ROW_BYTES)
        line = access.line[:, None]
        place = access.first[:, None] + np.arange(access.elements)
        row, column = (line, place) if order == "row" else (place, line)
        if self.tile.operand == "B":
            row, column = column, row
        if self.bits == 1:  # which stay packed in words
            per_word = self.word.itemsize * 8
            row = np.broadcast_to(row, place.shape)[:, ::per_word]
            column = np.broadcast_to(column, place.shape)[:, ::per_word] // per_word
        return _Access(
            lanes=access.lanes,
            line=access.line,
            offset_bytes=access.first * self.bits // 8,
            size_bytes=size_bytes,
            words=size_bytes // self.word.itemsize,
            kind=kind,
            is_ldmatrix=access.matrices is not None,
            elements=(row * self.tile.shape[-1] + column).astype(np.intp),
        )

    def places(self, cluster: Cluster, warps: LaneGroups) -> Iterator[_Places]:
        """Where the lanes of some warps go in every access; those that have ended take no part."""
        lanes = warps.lane_numbers(cluster).reshape(-1, WARP_LANES)
        bases = self.addresses(cluster, warps.lanes).reshape(-1, WARP_LANES)
        strides = np.full(bases.shape, self.default_stride, np.int64)
        if self.stride is not None:
            stride_words = cluster.registers[self.stride][warps.lanes].astype(np.uint32)
            strides = stride_words.astype(np.int64).reshape(bases.shape)
        for access in self.accesses:
            part = slice(0, access.lanes)
            self._require_whole_words(access, lanes[:, part], strides[:, part])
            line_bytes = access.line * strides[:, part] * self.bits // 8
            addresses = bases[:, part] + line_bytes + access.offset_bytes
            access_lanes = lanes[:, part].ravel()
            yield _Places(access, access_lanes, addresses.ravel(), cluster.live[access_lanes])

    def _require_whole_words(self, access: _Access, lanes: LaneNumbers, strides: Addresses) -> None:
        """A fault where the stride tears apart what a lane takes at once; an H200 faults or rounds the stride down."""
        is_torn = strides * self.bits % (access.size_bytes * 8) != 0
        if is_torn.any():
            first = int(np.argmax(is_torn))
            reason = (
                f"a stride of {counted(int(strides.flat[first]), 'element')} of {counted(self.bits, 'bit')}, which is no "
                f"multiple of the {counted(access.size_bytes, 'byte')} that a lane takes at once: what it takes then is undefined"
            )
            raise KernelFaultError(MISALIGNED_ADDRESS, reason, int(lanes.flat[first]))


class _Places(NamedTuple):
    """An access, and the lane addresses; some lanes may not take part."""

    access: _Access
    lanes: LaneNumbers
    addresses: Addresses
    is_live: npt.NDArray[np.bool_]

    @property
    def taking_part(self) -> tuple[LaneNumbers, Addresses]:
        """The lanes that live, and where they go."""
        return self.lanes[self.is_live], self.addresses[self.is_live]


def _word_bits(element_bits: int) -> int:
    """The unit of memory accesses: elements, or a byte with several elements of fewer than 8 bits."""
    return {1: 32, 4: 8}.get(element_bits, element_bits)


def decode_shape(words: Words) -> tuple[str, list[Row]]:
    """The shape, and its entries of the table."""
    shape = words.required(_ROWS_OF_SHAPE, "shape that wmma has")
    return shape, _ROWS_OF_SHAPE[shape]


def decode_order(words: Words, what: str) -> Order:
    """The layout of a matrix in memory."""
    return cast("Order", words.required(_ORDERS, f"{what}: .row or .col"))


def _transfer(assembler: Assembler, instruction: Instruction, letters: tuple[str, ...], address: Operand) -> _Transfer:
    """What a wmma.load or wmma.store moves."""
    words = Words(instruction)
    words.required((instruction.modifiers[0],), "verb")
    operand = cast("MatrixOperand", words.required(letters, f"operand: .{' or .'.join(letters)}").upper())
    words.flag("sync")
    words.flag("aligned")
    space = space_of(assembler, address, words.space())
    order = decode_order(words, "layout")
    shape, rows = decode_shape(words)
    data_type = WMMA_TYPES[words.required(WMMA_TYPES, "type")]
    words.done()
    if space not in _SPACES:
        raise RefusedError(f"a matrix of wmma is in global or shared memory, not in {space} memory")
    is_input = operand in ("A", "B")
    if not any(data_type.name in (row.types if is_input else row.accumulators) for row in rows):
        raise RefusedError(f"wmma.{shape} has no operand {operand} of {data_type.ptx}")
    require_order(data_type, operand, order)
    tile = RegisterTile(f"wmma.{shape}", operand, data_type.name)
    return _Transfer(tile, order, space, decode_address(assembler, address), _decode_stride(assembler, instruction))


def _decode_stride(assembler: Assembler, instruction: Instruction) -> int | None:
    """The register of the stride; None where it is left out."""
    strides = instruction.operands[2:]
    if len(strides) > 1:
        raise RefusedError("the matrix, its registers and a stride are all that wmma takes")
    return assembler.source(strides[0], "u32") if strides else None


def require_order(data_type: DataType, operand: str, order: Order) -> None:
    """A of fewer than 8 bits is stored by rows, B by columns."""
    required = {"A": "row", "B": "col"}.get(operand, order)
    if data_type.bits < 8 and order != required:
        raise RefusedError(f"operand {operand} of {data_type.ptx} is .{required}, not .{order}")


def decode_load(assembler: Assembler, instruction: Instruction) -> Turn:
    """wmma.load.a, .b and .c."""
    target, address = instruction.operands[:2]
    transfer = _transfer(assembler, instruction, ("a", "b", "c"), address)
    tile = transfer.tile
    targets = tile.targets(assembler, target)

    def load(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        elements = np.zeros((warps.group_count, int(np.prod(tile.shape))), transfer.word)
        for place in transfer.places(cluster, warps):
            access = place.access
            lanes, addresses = place.taking_part
            loaded = cluster.load(transfer.space, lanes, addresses, transfer.word, access.words, cost=access.kind)
            words = np.zeros((len(place.lanes), access.words), transfer.word)
            words[place.is_live] = loaded.reshape(len(lanes), access.words)
            codes = unpack_values(words, transfer.bits) if transfer.bits == 4 else words
            elements[:, access.elements] = codes.reshape(warps.group_count, access.lanes, -1)
        tile.fill(cluster, targets, warps, elements)

    return Collective(load)


def decode_store(assembler: Assembler, instruction: Instruction) -> Turn:
    """wmma.store.d."""
    address, source = instruction.operands[:2]
    transfer = _transfer(assembler, instruction, ("d",), address)
    tile = transfer.tile
    sources = tile.sources(assembler, source)

    def store(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        elements = tile.gathered(cluster, sources, warps).reshape(warps.group_count, -1)
        for place in transfer.places(cluster, warps):
            lanes, addresses = place.taking_part
            values: Values = elements[:, place.access.elements].reshape(len(place.lanes), -1)[place.is_live]
            if place.access.words == 1:
                values = values[:, 0]
            cluster.store(transfer.space, lanes, addresses, values, cost=place.access.kind)

    return Collective(store)
