"""Does it fit? Whether the bytes that TMA copies wrote are the bytes that a descriptor reads.

    tensor map, copies ──▶ where (mn, k) was written ─┐
                                                      ├─ equal everywhere, or the first (mn, k) where not, and why
    descriptor, major  ──▶ where (mn, k) is read ─────┘

What is wrong is found by putting it right: from the written addresses follows the descriptor that reads them, if there is
one; the fields in which it differs from the given one are the cause. If there is none, the map is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from tilescope.arch import Basis
from tilescope.data_type import DataType
from tilescope.errors import RuleError, broken
from tilescope.mma.canonical import CanonicalLayout, Major, major_named
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import OperandDescriptor, readable_bits
from tilescope.mma.written import NOT_WRITTEN, Addresses, PlannedTile, copies_of, written_addresses
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

Cause = Literal[
    "none-against-none", "box-wider-than-atom", "majorness", "swizzle-mode", "leading-stride-exchanged", "base-offset",
    "start-address", "leading-bytes", "stride-bytes", "not-written", "several",
]  # fmt: skip
_MOST_ROWS = 256


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

    >>> from tilescope.mma.wgmma import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> plain = TensorMap("bf16", (64, 64), (128,), (64, 64))
    >>> wrong = compatible(plain, WgmmaDescriptor(0, leading_bytes=128, stride_bytes=1024, swizzle="none"))
    >>> bool(wrong), wrong.cause, wrong.difference.mn, hex(wrong.difference.read_address)
    (False, 'none-against-none', 0, '0x80')
    """

    agrees: bool
    shape: tuple[int, int]  # mn x k elements that were compared
    differing: int  # of these
    difference: Difference | None
    cause: Cause | None
    sentence: str
    correction: OperandDescriptor | None  # the descriptor that reads what was written; None: the copies are to blame
    basis: Basis

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class _Read:
    """One instruction's reading of part of a tile."""

    descriptor: OperandDescriptor
    major: Major
    origin: tuple[int, int]
    rows: int
    k: int
    element_bits: int

    def addresses(self) -> Addresses:
        return self.descriptor.addresses(self.major, self.rows, self.k, self.element_bits)

    def part_of(self, written: Addresses) -> Addresses:
        """What was written of the elements that it reads."""
        (mn, k), found = self.origin, np.full((self.rows, self.k), NOT_WRITTEN, np.int64)
        part = written[mn : mn + self.rows, k : k + self.k]
        found[: part.shape[0], : part.shape[1]] = part
        return found


def compatible(
    tensor_map_or_plan: Any,
    descriptor: OperandDescriptor | DescriptorLoop | None = None,
    *,
    major: Major | None = None,
    tile_major: Major | None = None,
    rows: int | None = None,
    k: int | None = None,
    origin: tuple[int, int] = (0, 0),
    smem_address: int = 0,
    copies: Any = None,
    data_type: Any = None,
) -> Agreement:
    """Whether the bytes that TMA copies wrote are the bytes that a descriptor reads; if not: where, and why.

    The tile comes by one copy of the tensor map's box to `smem_address`, by `copies` ((coords, smem_offset_bytes), …), or by
    a plan's copies. The descriptor reads `rows` x `k` elements of it from (mn, k) = `origin` on, told by the instruction to
    read them as `major`; a whole loop (`wgmma_descriptors`, `tcgen05_descriptors`, a plan's own) knows all of that. The map's
    innermost dimension is k where `tile_major` is "K", mn where it is "MN"; a plan knows, and else `major` is believed.
    `data_type` is the tensor core's, where the map moves bytes as another.

    >>> from tilescope.mma.wgmma import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> right = WgmmaDescriptor(0x480, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> print(compatible(a, right, smem_address=0x480))
    All 64 x 16 elements (mn x k) lie where the descriptor reads them.
    >>> print(compatible(a, WgmmaDescriptor.decode(right.encode() | 1 << 49), smem_address=0x480))
    Element (mn 0, k 0) was written at 0x490 and is read at 0x480, where (mn 0, k 8) lies; 1024 of 1024 elements differ. \
Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says 1. Use base_offset=0.
    """
    tensor_map, brought, data_major, descriptor = _tile(tensor_map_or_plan, descriptor, copies, smem_address)
    data_major = data_major if tile_major is None else major_named(tile_major)
    if isinstance(descriptor, DescriptorLoop):
        major = descriptor.tile.canonical.major if major is None else major_named(major)
    else:
        major = major_named(major or data_major or "K")
    row = tensor_map.data_type if data_type is None else DataType.named(data_type)
    written = written_addresses(
        tensor_map, brought, smem_address=smem_address, major=data_major or major, data_type=row
    )
    reads = _reads(descriptor, major, written, row.smem_bits, origin, rows, k)
    basis: Basis = "measured" if tensor_map.basis == reads[0].descriptor.basis == "measured" else "documented"
    differing, first = 0, None
    for read in reads:
        wrong = read.addresses() != read.part_of(written)
        differing += int(wrong.sum())
        if first is None and wrong.any():
            first = read, tuple(int(each) for each in np.argwhere(wrong)[0])
    shape = (max(each.origin[0] + each.rows for each in reads) - reads[0].origin[0],
             max(each.origin[1] + each.k for each in reads) - reads[0].origin[1])  # fmt: skip
    if first is None:
        said = f"All {shape[0]} x {shape[1]} elements (mn x k) lie where the descriptor reads them."
        if len(reads) > 1:
            said = said.replace("descriptor reads", f"{len(reads)} descriptors read")
        return Agreement(True, shape, 0, None, None, said, None, basis)
    read, (row_of_read, k_of_read) = first
    difference = _difference(read, written, row_of_read, k_of_read)
    cause, why, correction = _cause(read, written, tensor_map, flip=data_major is None)
    said = f"{_in_words(difference)}; {differing} of {shape[0] * shape[1]} elements differ. {why}"
    return Agreement(False, shape, differing, difference, cause, said, correction, basis)


def _tile(given: Any, descriptor: Any, copies: Any, smem_address: int) -> tuple[AnyMap, Any, Major | None, Any]:
    """The map, its copies, the tile's majorness where it is known, and the descriptors."""
    if isinstance(given, AnyMap):
        brought = copies_of(copies) if copies is not None else (((0,) * given.rank, 0),)
        tensor_map, data_major = given, None
    elif isinstance(given, PlannedTile):
        if not given.copies:
            raise broken(
                "copies", "plan", "a plan whose threads copy", "compatible follows TMA copies", 'Plan with copy="tma".'
            )
        tensor_map, data_major = given.tensor_map(0, given.problem.tile), given.problem.major
        brought = copies_of(given.copies if copies is None else copies)
        descriptor = given.descriptors(smem_address) if descriptor is None else descriptor
    else:
        raise broken(
            "argument-type", "tensor_map_or_plan", f"a {type(given).__name__}", "a tensor map or a plan", "Give one."
        )
    if not isinstance(descriptor, OperandDescriptor | DescriptorLoop):
        raise broken(
            "argument-type", "descriptor", f"a {type(descriptor).__name__}",
            "a WgmmaDescriptor, a Tcgen05Descriptor or the descriptors of a loop", "Decode the word first: WgmmaDescriptor.decode(word).",
        )  # fmt: skip
    return tensor_map, brought, data_major, descriptor


def _reads(
    descriptor: OperandDescriptor | DescriptorLoop,
    major: Major,
    written: Addresses,
    bits: int,
    origin: Any,
    rows: Any,
    k: Any,
) -> list[_Read]:
    if isinstance(descriptor, DescriptorLoop):
        block, step = descriptor.block_mn, descriptor.k_per_step
        return [
            _Read(each, major, (number * block, place * step), block, step, bits)
            for number, steps in enumerate(descriptor)
            for place, each in enumerate(steps)
        ]
    try:
        mn_first, k_first = (int(each) for each in origin)
    except (TypeError, ValueError):
        mn_first = -1
    if mn_first < 0 or k_first < 0 or mn_first >= written.shape[0] or k_first >= written.shape[1]:
        raise broken(
            "origin", "origin", repr(origin), f"an element (mn, k) of the {written.shape[0]} x {written.shape[1]} that the copies bring",
            "Use (0, 0) for the first.",
        )  # fmt: skip
    rows = min(_MOST_ROWS, written.shape[0] - mn_first) if rows is None else rows
    k = min(K_STEP_BYTES * 8 // bits, written.shape[1] - k_first) if k is None else k
    read = _Read(descriptor, major, (mn_first, k_first), rows, k, bits)
    read.addresses()  # refuses what no instruction reads
    return [read]


def _difference(read: _Read, written: Addresses, row: int, k: int) -> Difference:
    read_at, left_at = int(read.addresses()[row, k]), int(read.part_of(written)[row, k])
    lies = np.argwhere(written == read_at)
    found = (int(lies[0][0]), int(lies[0][1])) if lies.size else None
    return Difference(
        read.origin[0] + row, read.origin[1] + k, read_at, None if left_at == NOT_WRITTEN else left_at, found
    )


def _in_words(difference: Difference) -> str:
    place = f"Element (mn {difference.mn}, k {difference.k})"
    there = (
        "nothing of the tile" if difference.found is None else f"(mn {difference.found[0]}, k {difference.found[1]})"
    )
    read = f"is read at {difference.read_address:#x}, where {there} lies"
    if difference.written_address is None:
        return f"{place} {read}, but no copy brings it"
    return f"{place} was written at {difference.written_address:#x} and {read}"


def _cause(
    read: _Read, written: Addresses, tensor_map: AnyMap, *, flip: bool
) -> tuple[Cause, str, OperandDescriptor | None]:
    """The likely cause, in words, and the descriptor that would be right."""
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    if tensor_map.swizzle.bits == 0 and row_bytes != CHUNK_BYTES:
        return *_plain_rows(read, tensor_map, row_bytes), None
    fits = sorted(_fits(read, written, tensor_map, flip=flip), key=lambda each: len(_changes(read, *each)))
    part = read.part_of(written)
    missing = part == NOT_WRITTEN
    only_missing = missing.any() and bool((read.addresses() == part)[~missing].all())
    if fits and not only_missing:
        changes = _changes(read, *fits[0])
        cause = next(iter(changes), "several")
        return cause, " ".join(changes.values()), _corrected(read, fits[0][0], changes)
    if missing.any():
        mn, k = written.shape
        said = f"Not written: the copies bring {mn} x {k} elements (mn x k), and not all that is read. Copy more, or read less"
        other = [major for fitted, major in fits if major != read.major and fitted == read.descriptor]
        said += f", or, if the tile lies {other[0]}-major, read it so." if other else "."
        return "not-written", said, None
    said = f"TMA wrote with swizzle {tensor_map.swizzle.name}, which no {read.descriptor.form.instruction} descriptor reads here."
    if tensor_map.swizzle.name != read.descriptor.swizzle.name:
        return "swizzle-mode", f"Swizzle mode: {said}", None
    return (
        "several",
        f"More than one thing differs: no single {read.descriptor.form.instruction} descriptor reads these copies.",
        None,
    )


def _corrected(read: _Read, fitted: OperandDescriptor, changes: Any) -> OperandDescriptor:
    """The fitted descriptor; exchanged fields both change, also the one that this read does not reach."""
    if "leading-stride-exchanged" not in changes:
        return fitted
    values = {name: value for name, value in fitted.to_dict().items() if name != "kind"}
    return type(fitted).from_dict(
        values | {"leading_bytes": read.descriptor.stride_bytes, "stride_bytes": read.descriptor.leading_bytes}
    )


def _plain_rows(read: _Read, tensor_map: AnyMap, row_bytes: int) -> tuple[Cause, str]:
    """Rows without swizzle that are no core matrices: no descriptor reads them."""
    bits, descriptor = tensor_map.data_type.smem_bits, read.descriptor
    span = descriptor.swizzle.span_bytes or CHUNK_BYTES
    box = f"box[0] = {span * 8 // bits}"
    if descriptor.swizzle.bits == 0:
        return "none-against-none", (
            f"TMA none against MMA none: TMA stores plain rows of {row_bytes} bytes, the tensor core reads core matrices of 8 rows "
            f"x 16 bytes. Use {box} and one copy for each column of 16 bytes, or a swizzle in both."
        )
    if row_bytes > span:
        return "box-wider-than-atom", (
            f"Box wider than the atom: its rows are {row_bytes} bytes, an atom of {descriptor.swizzle.name} is {span} wide. "
            f"Use {box}, swizzle {descriptor.swizzle.name}, and one copy for each column of atoms."
        )
    return "swizzle-mode", (
        f"Swizzle mode: TMA wrote plain rows (swizzle none), the descriptor reads {descriptor.swizzle.name}. "
        f"Use swizzle {descriptor.swizzle.name} in the tensor map."
    )


def _fits(read: _Read, written: Addresses, tensor_map: AnyMap, *, flip: bool) -> list[tuple[OperandDescriptor, Major]]:
    """The descriptors that read what was written, each with the majorness it takes."""
    other: Major = "MN" if read.major == "K" else "K"
    views = [(read.major, read, written), (other, replace(read, major=other), written)]
    if flip:  # nobody said which dimension the map's innermost one is: perhaps it is the other
        extent = min(read.rows, written.shape[1]), min(read.k, written.shape[0])
        views.append(
            (other, replace(read, major=other, rows=extent[0], k=extent[1], origin=read.origin[::-1]), written.T)
        )
    found = []
    for major, view, addresses in views:
        for base_offset in dict.fromkeys((read.descriptor.base_offset, 0)):
            fitted = _fitted(view, view.part_of(addresses), tensor_map.swizzle.name, base_offset)
            if fitted is not None:
                found.append((fitted, major))
    return found


def _fitted(read: _Read, written: Addresses, swizzle: Any, base_offset: int) -> OperandDescriptor | None:
    """The descriptor of this swizzle and base offset that reads the written addresses, if there is one."""
    given = read.descriptor
    fields = {each: getattr(given, each) for each in ("leading_is_address",) if hasattr(given, each)}
    try:
        layout = CanonicalLayout(read.major, swizzle, read.element_bits)
        if read.element_bits not in readable_bits(given.form.instruction, read.major, layout.swizzle):
            return None
        blank = type(given)(0, leading_bytes=0, stride_bytes=0, swizzle=swizzle, base_offset=base_offset)
    except RuleError:
        return None
    if (written == NOT_WRITTEN).any():
        return None
    logical = blank.physical(written)
    start = int(logical[0, 0])

    def reached(step: tuple[int, int] | None) -> int | None:
        return None if step is None or step[0] >= read.rows or step[1] >= read.k else int(logical[step])

    leading, stride = reached(layout.leading_step), reached(layout.stride_step)
    if fields.get("leading_is_address"):
        leading = reached((0, (SMEM_LINE_BYTES - start % SMEM_LINE_BYTES) * 8 // read.element_bits))
    elif leading is not None:
        leading -= start
    try:
        fitted = type(given)(
            start, leading_bytes=given.leading_bytes if leading is None else leading,
            stride_bytes=given.stride_bytes if stride is None else stride - start,
            swizzle=swizzle, base_offset=base_offset, **fields,
        )  # fmt: skip
        agrees = (fitted.addresses(read.major, read.rows, read.k, read.element_bits) == written).all()
    except RuleError:
        return None
    return fitted if agrees else None


def _changes(read: _Read, fitted: OperandDescriptor, major: Major) -> dict[Cause, str]:
    """The fields in which the right descriptor differs from the given one, as causes, the weightiest first."""
    given, changes = read.descriptor, dict[Cause, str]()
    if major != read.major:
        changes["majorness"] = (
            f'Majorness: the tile lies {major}-major, and is read as {read.major}-major. Use major="{major}".'
        )
    if fitted.swizzle != given.swizzle:
        changes["swizzle-mode"] = (
            f"Swizzle mode: TMA wrote {fitted.swizzle.name}, the descriptor reads {given.swizzle.name}. "
            f"Use swizzle {fitted.swizzle.name}."
        )
    ignored = fitted.ignored_fields(major)
    moved = [
        name for name in ("leading_bytes", "stride_bytes")
        if getattr(fitted, name) != getattr(given, name) and name not in ignored
    ]  # fmt: skip
    exchanged = {"leading_bytes": given.stride_bytes, "stride_bytes": given.leading_bytes}
    if moved and all(getattr(fitted, name) == exchanged[name] for name in moved):
        changes["leading-stride-exchanged"] = (
            f"Leading and stride are in each other's role: use leading_bytes={given.stride_bytes}, "
            f"stride_bytes={given.leading_bytes}."
        )
        moved = []
    if fitted.base_offset != given.base_offset:
        changes["base-offset"] = (
            f"Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says {given.base_offset}. "
            "Use base_offset=0."
        )
    if fitted.start_address != given.start_address:
        changes["start-address"] = (
            f"Start address: the first element was written for start {fitted.start_address:#x}, the descriptor says "
            f"{given.start_address:#x}. Use start_address={fitted.start_address:#x}."
        )
    words: dict[str, tuple[Cause, str]] = {
        "leading_bytes": ("leading-bytes", "Leading"),
        "stride_bytes": ("stride-bytes", "Stride"),
    }
    for name in moved:
        cause, word = words[name]
        value = getattr(fitted, name)
        where = f"lies {value} bytes away"
        if name == "leading_bytes" and getattr(given, "leading_is_address", False):
            where = f"begins at {value:#x}"
        changes[cause] = f"{word}: the neighbour {where}, not {getattr(given, name)}. Use {name}={value}."
    return changes
