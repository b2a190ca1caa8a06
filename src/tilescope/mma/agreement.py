"""Does it fit? Whether the bytes that TMA copies wrote are the bytes that a descriptor reads.

    tensor map, copies ──▶ where (mn, k) was written ─┐
                                                      ├─ equal everywhere, or the first (mn, k) where not, and why
    descriptor, major  ──▶ where (mn, k) is read ─────┘

Every byte is compared, not a rule of thumb: the addresses come from the emulator's placement and from the descriptor's own
reading. What is wrong then is diagnosis.py's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import Layout, Major, major_named
from tilescope.mma.canonical import DESCRIPTOR_LAYOUT
from tilescope.mma.descriptor import MAX_ROWS, OperandDescriptor
from tilescope.mma.descriptor_loop import DescriptorLoop, smem_tile
from tilescope.mma.diagnosis import Addresses, Cause, Diagnosis, Read, WrittenTile, diagnosed, wrong_half
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.scale_layout import ScaleLayout
from tilescope.mma.tmem_agreement import TmemAgreement, tmem_compatible
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import integer, pair
from tilescope.rule import ARGUMENT_RANGE, Basis
from tilescope.sentence import by
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field


@runtime_checkable
class PlannedTile(Protocol):
    """What a plan has: the copies of one tile, the map they go through, and the descriptors that read the tile."""

    problem: Any  # its `tile` (mn, k) and `major`
    copies: tuple[Any, ...]  # with `coords` and `smem_offset_bytes`
    tensor_map: Any  # (address, global_shape): the map of a matrix of `global_shape` (mn, k)
    descriptors: Any  # (smem_address)


@dataclass(frozen=True, slots=True)
class Difference(Value):
    """An element that is not read where it was written."""

    mn: int
    k: int
    read_address: int = hex_field()
    written_address: int | None = hex_field(default=None)  # None: no copy brings it
    found: tuple[int, int] | None = None  # the (mn, k) that lies where it is read; None: none of the tile


@dataclass(frozen=True, slots=True)
class Agreement(Value):
    """The answer of `compatible`: true where everything agrees, else the first difference and its likely cause.

    >>> from tilescope.mma.descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> plain = TensorMap("bf16", (64, 64), (128,), (64, 64))
    >>> wrong = compatible(plain, WgmmaDescriptor(0, leading_bytes=128, stride_bytes=1024, swizzle="none"))
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


def compatible(
    tensor_map_or_plan: Any, descriptor: Any = None, *, major: Major | None = None, tile_major: Major | None = None,
    rows: int | None = None, k: int | None = None, origin: tuple[int, int] = (0, 0), smem_address: int = 0, copies: Any = None,
    data_type: Any = None, cta_rank: int | None = None, operand: Any = None, warp: int | None = None, address: Any = None,
) -> Agreement | TmemAgreement:  # fmt: skip
    """Whether the bytes that TMA copies wrote are the bytes that a descriptor reads; if not: where, and why.

    The tile is written by one copy of the tensor map's box to `smem_address`, by `copies` ((coords, smem_offset_bytes), …), or by
    a plan's copies. A `Layout` has its own start; `smem_address` replaces it. A whole loop (`wgmma_descriptors`,
    `tcgen05_descriptors`, a plan's own) or a `Layout` as reader needs no further arguments.

        rows, k      elements that one descriptor reads, from (mn, k) = `origin` on
        major        majorness set in the instruction
        tile_major   "K" if the map's innermost dimension is k, "MN" if it is mn; a plan sets it, otherwise it is `major`
        data_type    type that the tensor core reads, if the map moves the bytes as another, such as uint8
        cta_rank     the block's place in a pair (cta_group::2): the copies must bring its half of the rows; for scale
                     factors: that the instruction is a pair's

    What lies in tensor memory is compared too: an accumulator (`tmem_layout`) with the load of a `warp` at an `address`, such
    as compatible(d, "tcgen05.ld.32x32b.x32", warp=1, address=0x200000); scale factors (`scale_layout`) of `operand` with the
    instruction descriptor that reads them for `k`, or with the copies that bring them. See tmem_agreement.py.

    >>> from tilescope.mma.descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> right = WgmmaDescriptor(0x480, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> print(compatible(a, right, smem_address=0x480))
    All 64 x 16 elements (mn x k) lie where the descriptor reads them.
    >>> print(compatible(a, WgmmaDescriptor.decode(right.encode() | 1 << 49), smem_address=0x480))
    Element (mn 0, k 0) was written at 0x490 and is read at 0x480, where (mn 0, k 8) lies; 1024 of 1024 elements differ. \
Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says 1. Use base_offset=0.
    """
    if isinstance(tensor_map_or_plan, TmemLayout | ScaleLayout):
        options = {"warp": warp, "address": address, "operand": operand, "k": k, "cta_rank": cta_rank}
        return tmem_compatible(tensor_map_or_plan, descriptor, **options)
    smem_address = integer("smem_address", smem_address)
    source, reader, data_major = tensor_map_or_plan, descriptor, None
    if isinstance(source, PlannedTile):
        if not source.copies:
            found, fix = "a plan whose threads copy", 'Plan with copy="tma", or use plan.layout.'
            raise ARGUMENT_RANGE.error("tensor_map_or_plan", found, "compatible follows TMA copies", fix)
        reader = source.descriptors(smem_address) if reader is None else reader
        copies, data_major = source.copies if copies is None else copies, source.problem.major
        source = source.tensor_map(0, source.problem.tile)
    if isinstance(source, Layout):
        source = smem_tile("tensor_map_or_plan", source)
        source, data_major = source.with_start(smem_address) if smem_address else source, source.major
    elif not isinstance(source, AnyMap):
        fix = "Use a TensorMap, a Layout, or the result of plan(...)."
        raise RuleError([argument_type("tensor_map_or_plan", source, "a tensor map, a plan or a layout", fix)])
    if not isinstance(reader, OperandDescriptor | DescriptorLoop | Layout):
        wanted = "a WgmmaDescriptor, a Tcgen05Descriptor, the descriptors of a loop, or a Layout"
        decode = "Decode the word first: WgmmaDescriptor.decode(word)."
        fix = decode if reader is not None else "Pass the descriptor that reads the tile; only a plan brings its own."
        raise RuleError([argument_type("descriptor", reader, wanted, fix)])
    data_major = data_major if tile_major is None else major_named(tile_major)
    reader = smem_tile("descriptor", reader) if isinstance(reader, Layout) else reader
    read_tile = reader.layout if isinstance(reader, DescriptorLoop) else reader
    own = read_tile.major if isinstance(read_tile, Layout) else data_major
    major = major_named((own or "K") if major is None else major)
    if isinstance(source, Layout):
        _require_containers(source, reader)
        written, bits = WrittenTile.by_layout(source), source.element_bits
    else:
        row = source.data_type if data_type is None else DataType.named(data_type)
        bits = row.bits if isinstance(reader, Layout) and reader.element_bits == row.bits else row.smem_bits
        placed: Any = {"smem_address": smem_address, "major": data_major or major, "data_type": row}
        written = WrittenTile.by_copies(source, copies, **placed, element_bits=bits)
    reads = _reads(reader, major, written, bits, origin, rows, k)
    wrong = [read.addresses != read.written for read in reads]
    differing = sum(int(part.sum()) for part in wrong)
    first, last = reads[0], reads[-1]
    shape = tuple(a + extent - b for a, extent, b in zip(last.origin, last.written.shape, first.origin, strict=True))
    read, difference = first, None
    diagnosis = None if cta_rank is None else wrong_half(source, written, data_major or major, cta_rank)
    if diagnosis is not None:
        differing = prod(shape)
    elif differing:
        read, place = next((read, np.argwhere(part)[0]) for read, part in zip(reads, wrong, strict=True) if part.any())
        difference = _difference(read, written.addresses, *place.tolist())
        diagnosis = diagnosed(read, written, flip=data_major is None and not isinstance(source, Layout))
    reader_basis = "documented" if isinstance(first.reader, Layout) else first.reader.basis
    return Agreement(
        agrees=diagnosis is None, descriptor=read.reader, major=major, element_bits=bits, shape=shape, differing=differing,
        difference=difference, cause=diagnosis and diagnosis.cause, sentence=_sentence(shape, reads, differing, difference, diagnosis),
        correction=diagnosis and diagnosis.correction, correction_major=diagnosis and diagnosis.correction_major,
        basis="measured" if written.basis == reader_basis == "measured" else "documented",
    )  # fmt: skip


def _require_containers(layout: Layout, reader: object) -> None:
    """Refuse a layout of the values of a padded type beside descriptors, which count a byte for each of them."""
    row = reader.data_type if isinstance(reader, DescriptorLoop) else None
    if row is not None and layout.element_bits == row.bits < row.smem_bits:
        found = f"a layout of {row.bits}-bit values beside descriptors of {row.name}"
        limit = f"descriptors count its values as containers of {row.smem_bits} bits, sixteen to a chunk of 16 bytes"
        raise DESCRIPTOR_LAYOUT.error("tensor_map_or_plan", found, limit, "Use the plan, or plan.containers.")


def _reads(
    reader: OperandDescriptor | DescriptorLoop | Layout, major: Major, written: WrittenTile, bits: int, origin: Any, rows: Any, k: Any
) -> list[Read]:  # fmt: skip
    """What a layout, every descriptor of a loop, or one descriptor reads."""
    if isinstance(reader, Layout):
        placed: list[tuple[Any, tuple[int, int], Addresses]] = [(reader, (0, 0), reader.addresses())]
    elif isinstance(reader, DescriptorLoop):
        block, step = reader.block_mn, reader.k_per_step
        placed = [
            (at_step, (number * block, place * step), at_step.addresses(major, block, step, bits))
            for number, steps in enumerate(reader)
            for place, at_step in enumerate(steps)
        ]
    else:
        (mn, extent), first = written.addresses.shape, pair("origin", origin)
        mn_first, k_first = integer("origin[0]", first[0], 0, mn - 1), integer("origin[1]", first[1], 0, extent - 1)
        rows = min(MAX_ROWS, mn - mn_first) if rows is None else rows
        k = min(K_STEP_BYTES * 8 // bits, extent - k_first) if k is None else k
        placed = [(reader, (mn_first, k_first), reader.addresses(major, rows, k, bits))]
    return [
        Read(reader, major, first, bits, addresses, written.part(first, addresses.shape))
        for reader, first, addresses in placed
    ]


def _difference(read: Read, written: Addresses, row: int, k: int) -> Difference:
    read_at, left_at = int(read.addresses[row, k]), int(read.written[row, k])
    lies = np.argwhere(written == read_at).tolist()
    there, left = (lies[0][0], lies[0][1]) if lies else None, left_at if left_at >= 0 else None
    return Difference(read.origin[0] + row, read.origin[1] + k, read_at, left, there)


def _sentence(
    shape: tuple[int, ...], reads: list[Read], differing: int, difference: Difference | None, diagnosis: Diagnosis | None,
) -> str:  # fmt: skip
    """The answer in English, from what was compared."""
    if diagnosis is None:
        readers = "the descriptor reads" if len(reads) == 1 else f"the {len(reads)} descriptors read"
        readers = "the layout has" if isinstance(reads[0].reader, Layout) else readers
        return f"All {by(shape)} elements (mn x k) lie where {readers} them."
    if difference is None:
        return diagnosis.sentence
    there, left = difference.found, difference.written_address
    lies = "nothing of the tile" if there is None else f"(mn {there[0]}, k {there[1]})"
    where = f"is read at {difference.read_address:#x}, where {lies} lies"
    where = f"{where}, but no copy brings it" if left is None else f"was written at {left:#x} and {where}"
    return (
        f"Element (mn {difference.mn}, k {difference.k}) {where}; "
        f"{differing} of {prod(shape)} elements differ. {diagnosis.sentence}"
    )
