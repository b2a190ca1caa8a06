"""wmma, which nvcuda::wmma of CUDA C++ becomes: a warp loads matrices, multiplies them, and stores the result.

    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16     {a0, …, a7}, [p], stride;
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32       {d0, …, d7}, {a0, …, a7}, {b0, …, b7}, {c0, …, c7};
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32    [p], {d0, …, d7}, stride;

Where elements lie in registers is in mma/fragment.py, which lane reads what in mma/wmma_access.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.machine.access_cost import AccessKind, access_kind, matrix_kind
from tilescope.machine.address import Addresses, Space
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.collective import Collective
from tilescope.machine.fault import MISALIGNED_ADDRESS, KernelFaultError
from tilescope.machine.instructions.moving import AddressOf, decode_address, space_of
from tilescope.machine.instructions.words import Words
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.register_tile import Elements, LaneGroups, RegisterTile, lane_groups
from tilescope.machine.step import LaneNumbers, Lanes, RefusedError, Turn
from tilescope.mma.accumulation import BitOperation, tensor_core_sum
from tilescope.mma.arithmetic import arithmetic_of
from tilescope.mma.instruction import WMMA_INSTRUCTIONS
from tilescope.mma.instruction import Instruction as Row
from tilescope.mma.instruction import Operand as MatrixOperand
from tilescope.mma.matrix_form import ROW_BYTES
from tilescope.mma.wmma_access import LaneAccess, Order, wmma_accesses
from tilescope.one_rounding import Rounding
from tilescope.ptx.syntax import Instruction, Operand
from tilescope.sentence import counted
from tilescope.tma.elements import unpacked

_PTX_TYPES = {
    DATA_TYPE[name].ptx: DATA_TYPE[name] for row in WMMA_INSTRUCTIONS for name in (*row.types, *row.accumulators)
}
_SHAPES = {row.name.removeprefix("wmma."): row for row in WMMA_INSTRUCTIONS}
_ORDERS: tuple[Order, ...] = ("row", "col")
_ROUNDINGS: tuple[Rounding, ...] = ("rn", "rz", "rm", "rp")
_NAN16 = 0x7FFF


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
        held = tile.fragment
        self.tile = tile
        self.space = space
        self.addresses = addresses
        self.stride = stride  # the register that holds it
        self.bits = held.element_bits
        self.word = np.dtype(f"u{_word_bits(self.bits) // 8}")
        rows, columns = held.shape
        self.default_stride = columns if order == "row" else rows
        by_ldmatrix = space == "shared" and tile.operand in ("A", "B")
        verb: Literal["ld", "st"] = "st" if tile.operand == "D" else "ld"
        accesses = wmma_accesses(held, order, by_ldmatrix=by_ldmatrix)
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
            strides = (
                cluster.registers[self.stride][warps.lanes].astype(np.uint32).astype(np.int64).reshape(bases.shape)
            )
        for access in self.accesses:
            part = slice(0, access.lanes)
            self._require_whole_words(access, lanes[:, part], strides[:, part])
            line_bytes = access.line * strides[:, part] * self.bits // 8
            addresses = bases[:, part] + line_bytes + access.offset_bytes
            own = lanes[:, part].ravel()
            yield _Places(access, own, addresses.ravel(), cluster.live[own])

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

    def charge(self, cluster: Cluster, at: _Places) -> None:
        """Count what an access costs."""
        if cluster.costs is None:
            return
        lanes, addresses = at.taking_part
        if at.access.is_ldmatrix:
            cluster.costs.charge_matrices(cluster, at.access.kind, self.space, lanes, addresses)
        else:
            cluster.costs.charge(cluster, at.access.kind, self.space, lanes, addresses)


class _Places(NamedTuple):
    """An access, and where lanes go in it; not all of them may take part."""

    access: _Access
    lanes: LaneNumbers
    addresses: Addresses
    is_live: npt.NDArray[np.bool_]

    @property
    def taking_part(self) -> tuple[LaneNumbers, Addresses]:
        """The lanes that live, and where they go."""
        return self.lanes[self.is_live], self.addresses[self.is_live]


def _word_bits(element_bits: int) -> int:
    """What memory is read in: elements, or what holds whole ones of fewer than 8 bits."""
    return {1: 32, 4: 8}.get(element_bits, element_bits)


def _shape(words: Words) -> tuple[str, list[Row]]:
    """The shape, and the rows of the table that have it."""
    shape = words.required(_SHAPES, "shape that wmma has")
    return shape, [row for row in WMMA_INSTRUCTIONS if row.name == f"wmma.{shape}"]


def _order(words: Words, what: str) -> Order:
    return cast("Order", words.required(_ORDERS, f"{what}: .row or .col"))


def _transfer(assembler: Assembler, instruction: Instruction, letters: tuple[str, ...], address: Operand) -> _Transfer:
    """What a wmma.load or wmma.store moves; the stride, if there is one, is its third operand."""
    words = Words(instruction)
    words.required((instruction.modifiers[0],), "verb")
    operand = cast("MatrixOperand", words.required(letters, f"operand: .{' or .'.join(letters)}").upper())
    words.flag("sync")
    words.flag("aligned")
    space = space_of(assembler, address, words.space())
    order = _order(words, "layout")
    shape, rows = _shape(words)
    data_type = _PTX_TYPES[words.required(_PTX_TYPES, "type")]
    words.done()
    is_input = operand in ("A", "B")
    if not any(data_type.name in (row.types if is_input else row.accumulators) for row in rows):
        raise RefusedError(f"wmma.{shape} has no operand {operand} of {data_type.ptx}")
    _require_order(data_type, operand, order)
    tile = RegisterTile(f"wmma.{shape}", operand, data_type.name)
    stride = assembler.source(instruction.operands[2], "u32") if len(instruction.operands) > 2 else None
    return _Transfer(tile, order, space, decode_address(assembler, address), stride)


def _require_order(data_type: DataType, operand: str, order: Order) -> None:
    """A of fewer than 8 bits lies by rows, B by columns."""
    wanted = {"A": "row", "B": "col"}.get(operand, order)
    if data_type.bits < 8 and order != wanted:
        raise RefusedError(f"operand {operand} of {data_type.ptx} is .{wanted}, not .{order}")


def _load(assembler: Assembler, instruction: Instruction) -> Turn:
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
            loaded = cluster.load(transfer.space, lanes, addresses, transfer.word, access.words)
            transfer.charge(cluster, place)
            if cluster.log is not None:
                cluster.log.touch(cluster.pc, lanes, "read", addresses, access.size_bytes, space=transfer.space)
            words = np.zeros((len(place.lanes), access.words), transfer.word)
            words[place.is_live] = loaded.reshape(len(lanes), access.words)
            taken = unpacked(words, transfer.bits) if transfer.bits == 4 else words
            elements[:, access.elements] = taken.reshape(warps.group_count, access.lanes, -1)
        tile.fill(cluster, targets, warps, elements)

    return Collective(load)


def _store(assembler: Assembler, instruction: Instruction) -> Turn:
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
            cluster.store(transfer.space, lanes, addresses, values)
            transfer.charge(cluster, place)
            if cluster.log is not None:
                cluster.log.store(cluster.pc, lanes, addresses, values, transfer.space)

    return Collective(store)


class _Product(NamedTuple):
    """What one wmma.mma multiplies and adds: D = A B + C."""

    name: str  # wmma.m16n16k16
    d_type: DataType
    a_type: DataType  # and of B
    c_type: DataType
    saturates: bool
    bit_operation: BitOperation
    rounding: Rounding

    def summed(self, cluster: Cluster, a: Elements, b: Elements, c: Elements) -> Elements:
        """D of codes of A (…, m, k), B (…, n, k) and C (…, m, n), as the card adds.

        Where C and D have different types the sum is one of float32: C is widened before it, D is rounded after it.
        """
        before: Elements = c.view(self.c_type.numpy)
        is_mixed = self.c_type is not self.d_type
        if is_mixed:
            before = before.astype(np.float32)
        total = tensor_core_sum(
            a,
            b,
            before,
            arithmetic=arithmetic_of(cluster.launch.arch, self.name, self.a_type.name),
            a_type=self.a_type,
            saturate=self.saturates,
            bit_operation=self.bit_operation,
            rounding=self.rounding,
        )
        return _as_float16(total) if is_mixed and self.d_type.name == "float16" else total


def _as_float16(total: Elements) -> Elements:
    """Sums of float32 rounded to the nearest float16; a NaN becomes the one that the card makes."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = total.astype(np.float16)
    rounded.view(np.uint16)[np.isnan(total)] = _NAN16
    return rounded


def _decode_product(words: Words) -> _Product:
    words.required(("mma",), "verb")
    bit_operation = words.one_of(("and", "xor"))
    counts_bits = words.flag("popc")
    words.flag("sync")
    words.flag("aligned")
    orders = (_order(words, "layout of A"), _order(words, "layout of B"))
    shape, rows = _shape(words)
    rounding = words.one_of(_ROUNDINGS)
    types = []
    while (written := words.one_of(_PTX_TYPES)) is not None:
        types.append(_PTX_TYPES[written])
    saturates = words.flag("satfinite")
    words.done()
    if len(types) == 2:  # of D and C: then A and B are f16
        types[1:1] = [DATA_TYPE["float16"], DATA_TYPE["float16"]]
    if len(types) != 4:
        raise RefusedError("wmma.mma names the types of D and C (of f16), or of D, A, B and C")
    d_type, a_type, b_type, c_type = types
    own_rows = [row for row in rows if a_type.name in row.types and {c_type.name, d_type.name} <= set(row.accumulators)]
    is_of_bits = a_type.name == "b1"
    is_known = own_rows and a_type is b_type
    if not is_known or (saturates and (a_type.is_float or is_of_bits)) or (rounding and a_type.name != "float64"):
        named = f"{a_type.ptx} by {b_type.ptx}, added to {c_type.ptx}"
        raise RefusedError(f"wmma.{shape} does not multiply {named} with a result of {d_type.ptx} and these modifiers")
    if is_of_bits != (counts_bits and bit_operation is not None):
        raise RefusedError("wmma.mma of b1, and no other, is .xor.popc or .and.popc")
    for operand, order in zip("AB", orders, strict=True):
        _require_order(a_type, operand, order)
    return _Product(
        name=f"wmma.{shape}",
        d_type=d_type,
        a_type=a_type,
        c_type=c_type,
        saturates=saturates,
        bit_operation="xor" if bit_operation == "xor" else "and",
        rounding=cast("Rounding", rounding or "rn"),
    )


def _mma(assembler: Assembler, instruction: Instruction) -> Turn:
    product = _decode_product(Words(instruction))
    d_tile = RegisterTile(product.name, "D", product.d_type.name)
    a_tile = RegisterTile(product.name, "A", product.a_type.name)
    b_tile = RegisterTile(product.name, "B", product.a_type.name)
    c_tile = RegisterTile(product.name, "C", product.c_type.name)
    d_operand, a_operand, b_operand, c_operand = instruction.operands
    d = d_tile.targets(assembler, d_operand)
    a = a_tile.sources(assembler, a_operand)
    b = b_tile.sources(assembler, b_operand)
    c = c_tile.sources(assembler, c_operand)

    def multiply(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        left = a_tile.gathered(cluster, a, warps)
        right = b_tile.gathered(cluster, b, warps)
        before = c_tile.gathered(cluster, c, warps)
        d_tile.fill(cluster, d, warps, product.summed(cluster, left, right, before))

    return Collective(multiply)


_VERBS: dict[str, Decoder] = {"load": _load, "store": _store, "mma": _mma}


def _wmma(assembler: Assembler, instruction: Instruction) -> Turn:
    verb = instruction.modifiers[0] if instruction.modifiers else ""
    if verb not in _VERBS:
        raise RefusedError("wmma is wmma.load, wmma.mma or wmma.store")
    return cast("Turn", _VERBS[verb](assembler, instruction))


FAMILIES: dict[str, Decoder] = {"wmma": _wmma}
