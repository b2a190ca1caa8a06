"""Operands of tcgen05 in shared memory, located by a descriptor: bytes of rows, for every swizzle.

The addresses that a descriptor reads are the same for all starts at the same position in the swizzle's pattern; they are computed
once, from the first pattern of shared memory on, and moved. Elements narrower than a byte come as the bytes that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.layout import Major
from tilescope.machine.cluster import Cluster
from tilescope.machine.decoding.operand_shape import ReadShape
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, OPERAND_FIX, KernelFaultError, fault_of
from tilescope.mma.descriptor_form import TCGEN05_FORM
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.swizzle import SWIZZLE
from tilescope.sync.events import OperandRead
from tilescope.sync.footprint import CellNumbers

_START = TCGEN05_FORM.word.field("start_address")
_IS_ADDRESS = TCGEN05_FORM.word.field("leading_is_address").mask
_PATTERN_BYTES = max(row.repeat_bytes for row in SWIZZLE.values())  # addresses this far apart have the same swizzle
_HIGH_START_MASK = _START.mask & ~_START.place(_PATTERN_BYTES - 1)
_CACHED_READS = 512

Addresses = npt.NDArray[np.int64]
Codes = npt.NDArray[np.unsignedinteger]


class SmemRead(NamedTuple):
    """How an instruction reads rows of shared memory: as many elements of `element_bits` each, K-major or not."""

    name: str  # what is read, for a fault: "operand A", "the source of tcgen05.cp"
    rows: int
    k: int
    element_bits: int  # 4 where two elements share a byte
    major: Major = "K"

    @property
    def stored_bytes(self) -> int:
        """Bytes that are read as one."""
        return max(1, self.element_bits // 8)


class SmemPlaces(NamedTuple):
    """The addresses of the elements of a descriptor in a block's shared memory: addresses from its window's start on."""

    base: int
    offsets: Addresses  # (rows, k), bytes that hold two elements once
    end: int  # the first byte after them, from `base` on

    @property
    def addresses(self) -> Addresses:
        """(rows, k) byte addresses in the block's window."""
        return self.base + self.offsets


class _Pattern(NamedTuple):
    offsets: Addresses
    end: int


@lru_cache(maxsize=_CACHED_READS)
def _pattern(read: SmemRead, word: int) -> _Pattern:
    """What a descriptor reads whose start is in the first pattern of shared memory."""
    descriptor = Tcgen05Descriptor.decode(word)
    addresses = descriptor.addresses(read.major, read.rows, read.k, read.element_bits)
    if read.element_bits < 8:
        addresses = np.ascontiguousarray(addresses[:, :: 8 // read.element_bits])
    return _Pattern(addresses, int(addresses.max()) + read.stored_bytes)


def smem_places(read: SmemRead, word: int, lane: int) -> SmemPlaces:
    """The addresses of a descriptor; an invalid descriptor is a fault."""
    start = 0 if word & _IS_ADDRESS else word & _HIGH_START_MASK  # an absolute address does not move with the start
    try:
        pattern = _pattern(read, word & ~start)
    except RuleError as error:
        raise fault_of(error, lane) from None
    return SmemPlaces(_START.extract(start), pattern.offsets, pattern.end)


def stored_codes(cluster: Cluster, read: SmemRead, word: int, rank: int, lane: int) -> Codes:
    """The elements, or bytes of two elements, that a descriptor reads from one block: (rows, k)."""
    places = smem_places(read, word, lane)
    held_bytes = cluster.launch.shared_end
    if places.base + places.end > held_bytes:
        address = places.base + places.end - read.stored_bytes
        reason = (
            f"{read.name} reaches shared address {address:#x}, but shared memory of a block ends at {held_bytes:#x}"
        )
        raise KernelFaultError(ILLEGAL_ADDRESS, reason, lane, address, fix=OPERAND_FIX)
    first_byte = rank * cluster.shared_stride
    stored = cluster.shared[first_byte : first_byte + cluster.shared_stride].view(f"u{read.stored_bytes}")
    codes: Codes = stored[places.addresses // read.stored_bytes]
    return codes


def emit_operand_read(cluster: Cluster, operand: Literal["A", "B"], read: SmemRead, word: int, rank: int) -> None:
    """Emit the read of an operand that one descriptor locates."""
    if word & _IS_ADDRESS:
        return  # its two parts are separate tiles
    start = word & _HIGH_START_MASK
    pattern = _pattern(read, word & ~start)
    base = _START.extract(start)
    shape = ReadShape(operand, read.rows, read.k, read.element_bits, read.major, "tcgen05")
    operand_bytes = OperandBytes(read, word & ~start, rank * cluster.shared_stride + base)
    cluster.emit(OperandRead(cluster.pc, shape, rank, word, base + int(pattern.offsets[0, 0]), operand_bytes))


@dataclass(frozen=True, slots=True, eq=False)
class OperandBytes:
    """The bytes that a descriptor reads from one block: a footprint."""

    read: SmemRead
    word: int  # the descriptor, its start in the first pattern of shared memory
    first_byte: int  # of that pattern, in the cluster's shared memory

    def cells(self, cell_bytes: int) -> CellNumbers:
        """The cells that hold any of the bytes, each once, in ascending order."""
        return _pattern_cells(self.read, self.word, cell_bytes) + self.first_byte // cell_bytes


@lru_cache(maxsize=_CACHED_READS)
def _pattern_cells(read: SmemRead, word: int, cell_bytes: int) -> CellNumbers:
    offsets = _pattern(read, word).offsets
    reached = offsets[..., None] + np.arange(0, read.stored_bytes, min(read.stored_bytes, cell_bytes))
    return np.unique(reached // cell_bytes)
