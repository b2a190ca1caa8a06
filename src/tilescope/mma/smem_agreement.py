"""Whether a descriptor, the descriptors of a loop or a layout read a tile in shared memory where it was written.

    tensor map, copies ──▶ where (mn, k) was written ─┐
                                                      ├─ equal everywhere, or the first (mn, k) where not, and why
    descriptor, major  ──▶ where (mn, k) is read ─────┘

Every byte is compared, not a rule of thumb: the addresses come from the emulator's placement and from the descriptor's own
reading. What is wrong then is operand_diagnosis.py's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import Layout, Major, major_named
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT
from tilescope.mma.descriptor_loop import DescriptorLoop, smem_tile
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import MAX_ROWS, OperandDescriptor
from tilescope.mma.operand_diagnosis import Cause, Diagnosis, Read, diagnose_operand, wrong_half
from tilescope.mma.written_tile import NOT_WRITTEN, Addresses, PlacedCopy, WrittenTile
from tilescope.reading import integer, pair
from tilescope.rule import ARGUMENT_RANGE, Basis
from tilescope.sentence import argument_said, by
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

CONTAINERS = DESCRIPTOR_LAYOUT.worded(
    argument="tensor_map_or_plan",
    found="a layout of {value_bits}-bit values beside descriptors of {data_type}",
    limit="descriptors count its values as containers of {container_bits} bits, sixteen to a chunk of 16 bytes",
    fix="Use the plan, or plan.containers.",
)
Reader = OperandDescriptor | DescriptorLoop | Layout


class TileProblem(Protocol):
    """The request for a plan."""

    @property
    def tile(self) -> tuple[int, int]:
        """Its extents, mn x k."""

    @property
    def major(self) -> Major:
        """Which of them is contiguous."""


@runtime_checkable
class PlannedTile(Protocol):
    """The result of a plan: the copies of one tile, their map, and the descriptors that read the tile."""

    @property
    def problem(self) -> TileProblem:
        """The tile that was planned."""

    @property
    def copies(self) -> tuple[PlacedCopy, ...]:
        """Those of TMA; none where threads copy."""

    def tensor_map(self, address: int, global_shape: tuple[int, int]) -> AnyMap:
        """The map of a matrix of `global_shape` (mn, k)."""

    def descriptors(self, smem_address: int) -> DescriptorLoop:
        """Those that read the tile at an address."""


@dataclass(frozen=True, slots=True)
class Difference(Value):
    """An element that is not read where it was written."""

    mn: int
    k: int
    read_address: int = hex_field()
    written_address: int | None = hex_field(default=None)  # None: no copy loads it
    found: tuple[int, int] | None = None  # the (mn, k) stored where it is read; None: none of the tile


@dataclass(frozen=True, slots=True)
class Agreement(Value):
    """The result of `compatible`: true if all addresses agree, otherwise the first difference and its likely cause.

    >>> import tilescope as ts
    >>> from tilescope.mma.operand_descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> plain = TensorMap("bf16", (64, 64), (128,), (64, 64))
    >>> wrong = ts.compatible(plain, WgmmaDescriptor(0, leading_bytes=128, stride_bytes=1024, swizzle="none"))
    >>> bool(wrong), wrong.cause, wrong.difference.mn, hex(wrong.difference.read_address)
    (False, 'none-against-none', 0, '0x80')
    """

    agrees: bool
    descriptor: OperandDescriptor | Layout  # the first that reads elsewhere; the first of all where none does
    major: Major
    element_bits: int
    shape: tuple[int, int]  # mn x k elements that were compared
    differing: int  # elements that are read elsewhere
    difference: Difference | None
    cause: Cause | None
    sentence: str
    correction: OperandDescriptor | Layout | None  # what reads the tile as written; None: the copies are to blame
    correction_major: Major | None  # the majorness to read it with
    basis: Basis

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        return self.sentence


def smem_compatible(
    tensor_map_or_plan: object,
    descriptor: object,
    *,
    major: Major | None,
    tile_major: Major | None,
    rows: int | None,
    k: int | None,
    origin: tuple[int, int],
    smem_address: int,
    copies: object,
    data_type: object,
    cta_rank: int | None,
) -> Agreement:
    """Whether a descriptor, the descriptors of a loop or a layout read a tile in shared memory where it was written."""
    smem_address = integer("smem_address", smem_address)
    source = _source_of(tensor_map_or_plan, copies, smem_address)
    if descriptor is None and isinstance(tensor_map_or_plan, PlannedTile):
        descriptor = tensor_map_or_plan.descriptors(smem_address)
    reader = _reader_of(descriptor)
    tile_is_major = source.major if tile_major is None else major_named(tile_major)
    major = _major_read(reader, tile_is_major) if major is None else major_named(major)
    innermost = tile_is_major or major
    if isinstance(source.tile, Layout):
        _require_containers(source.tile, reader)
        bits = source.tile.element_bits
        written = WrittenTile.by_layout(source.tile)
    else:
        row = source.tile.data_type if data_type is None else DataType.named(data_type)
        is_unpadded = isinstance(reader, Layout) and reader.element_bits == row.bits
        bits = row.bits if is_unpadded else row.smem_bits
        written = WrittenTile.by_copies(
            source.tile,
            source.copies,
            smem_address=smem_address,
            major=innermost,
            data_type=row,
            element_bits=bits,
        )
    reads = _reads(reader, major, written, bits, origin=origin, rows=rows, k=k)
    if cta_rank is not None:
        wrong_rows = wrong_half(source.tile, written, innermost, cta_rank)
        if wrong_rows is not None:
            return _answer(reads, written, differing=prod(_extents(reads)), diagnosis=wrong_rows)
    is_unsaid = tile_is_major is None and not isinstance(source.tile, Layout)
    return _compare_elements(reads, written, innermost_is_unsaid=is_unsaid)


class _Source(NamedTuple):
    """Who wrote the tile."""

    tile: AnyMap | Layout  # the map of the copies, or the layout of the tile
    major: Major | None  # of the tile; None: not given
    copies: object  # None: one of the map's first box


def _source_of(source: object, copies: object, smem_address: int) -> _Source:
    if isinstance(source, PlannedTile):
        if not source.copies:
            raise ARGUMENT_RANGE.error(
                argument="tensor_map_or_plan",
                found="a plan whose threads copy",
                limit="compatible follows TMA copies",
                fix=f"Plan with {argument_said('copy', 'tma')}, or use plan.layout.",
            )
        tensor_map = source.tensor_map(0, source.problem.tile)
        return _Source(tensor_map, source.problem.major, source.copies if copies is None else copies)
    if isinstance(source, Layout):
        tile = smem_tile("tensor_map_or_plan", source)
        return _Source(tile.with_start(smem_address) if smem_address else tile, tile.major, copies)
    if not isinstance(source, AnyMap):
        fix = "Use a TensorMap, a Layout, or the result of plan(...)."
        raise RuleError([argument_type("tensor_map_or_plan", source, "a tensor map, a plan or a layout", fix)])
    return _Source(source, None, copies)


def _reader_of(reader: object) -> Reader:
    if isinstance(reader, Layout):
        return smem_tile("descriptor", reader)
    if isinstance(reader, OperandDescriptor | DescriptorLoop):
        return reader
    expected = "a WgmmaDescriptor, a Tcgen05Descriptor, the descriptors of a loop, or a Layout"
    fix = "Decode the word first: WgmmaDescriptor.decode(word)."
    if reader is None:
        fix = "Pass the descriptor that reads the tile; only a plan has its own."
    raise RuleError([argument_type("descriptor", reader, expected, fix)])


def _major_read(reader: Reader, tile_major: Major | None) -> Major:
    """The majorness with which the tile is read, where none is given: the reader's own, or that of the tile."""
    if isinstance(reader, DescriptorLoop):
        return reader.layout.major or "K"
    if isinstance(reader, Layout):
        return reader.major or "K"
    return tile_major or "K"


def _require_containers(layout: Layout, reader: Reader) -> None:
    """Refuse a layout of unpadded values together with descriptors, which count a byte for each value of a padded type."""
    if not isinstance(reader, DescriptorLoop):
        return
    row = reader.data_type
    if layout.element_bits == row.bits < row.smem_bits:
        raise CONTAINERS.error(value_bits=row.bits, data_type=row.name, container_bits=row.smem_bits)


def _reads(
    reader: Reader,
    major: Major,
    written: WrittenTile,
    bits: int,
    *,
    origin: tuple[int, int],
    rows: int | None,
    k: int | None,
) -> list[Read]:
    """The elements that every descriptor reads, or all of a layout; only one descriptor has an origin and extents."""
    if isinstance(reader, Layout):
        return [_read(reader, major, (0, 0), reader.addresses(), bits=bits, written=written)]
    if isinstance(reader, DescriptorLoop):
        return _reads_of_loop(reader, major, written, bits)
    return [_read_of_descriptor(reader, major, written, bits, origin=origin, rows=rows, k=k)]


def _read(
    reader: OperandDescriptor | Layout,
    major: Major,
    origin: tuple[int, int],
    addresses: Addresses,
    *,
    bits: int,
    written: WrittenTile,
) -> Read:
    return Read(
        reader=reader,
        major=major,
        origin=origin,
        element_bits=bits,
        addresses=addresses,
        written=written.part(origin, addresses.shape),
    )


def _reads_of_loop(loop: DescriptorLoop, major: Major, written: WrittenTile, bits: int) -> list[Read]:
    """What every descriptor of a loop reads."""
    reads = []
    for block, steps in enumerate(loop):
        for step, descriptor in enumerate(steps):
            addresses = descriptor.addresses(major, loop.block_mn, loop.k_per_step, bits)
            origin = (block * loop.block_mn, step * loop.k_per_step)
            reads.append(_read(descriptor, major, origin, addresses, bits=bits, written=written))
    return reads


def _read_of_descriptor(
    descriptor: OperandDescriptor,
    major: Major,
    written: WrittenTile,
    bits: int,
    *,
    origin: tuple[int, int],
    rows: int | None,
    k: int | None,
) -> Read:
    """The elements that one descriptor reads from `origin` on: an instruction's, unless `rows` or `k` are passed."""
    tile_mn, tile_k = written.addresses.shape
    first = pair("origin", origin)
    mn_first = integer("origin[0]", first[0], 0, tile_mn - 1)
    k_first = integer("origin[1]", first[1], 0, tile_k - 1)
    if rows is None:
        rows = min(MAX_ROWS, tile_mn - mn_first)
    if k is None:
        k = min(K_STEP_BYTES * 8 // bits, tile_k - k_first)
    addresses = descriptor.addresses(major, rows, k, bits)
    return _read(descriptor, major, (mn_first, k_first), addresses, bits=bits, written=written)


def _extents(reads: list[Read]) -> tuple[int, int]:
    """Extents of all that is read, mn x k."""
    first = reads[0]
    last = reads[-1]
    last_mn, last_k = last.written.shape
    return last.origin[0] + last_mn - first.origin[0], last.origin[1] + last_k - first.origin[1]


def _compare_elements(reads: list[Read], written: WrittenTile, *, innermost_is_unsaid: bool) -> Agreement:
    """Every element that is read, against where it was written."""
    differing = sum(int((read.addresses != read.written).sum()) for read in reads)
    for read in reads:
        places = np.argwhere(read.addresses != read.written)
        if len(places):
            mn, k = places[0].tolist()
            return _answer(
                reads,
                written,
                differing=differing,
                diagnosis=diagnose_operand(read, written, flip=innermost_is_unsaid),
                wrong=read,
                difference=_difference(read, written.addresses, mn, k),
            )
    return _answer(reads, written, differing=0)


def _difference(read: Read, written: Addresses, row: int, k: int) -> Difference:
    """The element at (row, k): the address where it is read, where it was written, and the element that is there."""
    read_address = int(read.addresses[row, k])
    written_address = int(read.written[row, k])
    there = np.argwhere(written == read_address).tolist()
    return Difference(
        mn=read.origin[0] + row,
        k=read.origin[1] + k,
        read_address=read_address,
        written_address=None if written_address == NOT_WRITTEN else written_address,
        found=(there[0][0], there[0][1]) if there else None,
    )


def _answer(
    reads: list[Read],
    written: WrittenTile,
    *,
    differing: int,
    diagnosis: Diagnosis | None = None,
    wrong: Read | None = None,
    difference: Difference | None = None,
) -> Agreement:
    first = reads[0]
    shape = _extents(reads)
    reader_basis = "documented" if isinstance(first.reader, Layout) else first.reader.basis
    if diagnosis is None:
        sentence = _describe_agreement(reads, shape)
    elif difference is None:
        sentence = diagnosis.sentence
    else:
        sentence = f"{_where(difference)}; {differing} of {prod(shape)} elements differ. {diagnosis.sentence}"
    return Agreement(
        agrees=diagnosis is None,
        descriptor=(wrong or first).reader,
        major=first.major,
        element_bits=first.element_bits,
        shape=shape,
        differing=differing,
        difference=difference,
        cause=None if diagnosis is None else diagnosis.cause,
        sentence=sentence,
        correction=None if diagnosis is None else diagnosis.correction,
        correction_major=None if diagnosis is None else diagnosis.correction_major,
        basis="measured" if written.basis == reader_basis == "measured" else "documented",
    )


def _describe_agreement(reads: list[Read], shape: tuple[int, int]) -> str:
    """The message if everything agrees."""
    if isinstance(reads[0].reader, Layout):
        readers = "the layout has"
    elif len(reads) == 1:
        readers = "the descriptor reads"
    else:
        readers = f"the {len(reads)} descriptors read"
    return f"All {by(shape)} elements (mn x k) are where {readers} them."


def _where(difference: Difference) -> str:
    """Where the first element that differs was written, and where it is read."""
    element = f"Element (mn {difference.mn}, k {difference.k})"
    stored_element = difference.found
    lies = "nothing of the tile" if stored_element is None else f"(mn {stored_element[0]}, k {stored_element[1]})"
    read = f"is read at {difference.read_address:#x}, where {lies} lies"
    if difference.written_address is None:
        return f"{element} {read}, but no copy loads it"
    return f"{element} was written at {difference.written_address:#x} and {read}"
