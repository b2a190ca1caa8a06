"""Why a descriptor does not read what was written: the cause is found by putting it right.

    written addresses ──▶ the descriptor that reads them, if there is one ──▶ the fields in which this one differs

From the addresses of a few elements follow start, leading and stride; the rest is trial: the other majorness, base offset 0,
the swizzle that TMA wrote with. If nothing fits, the copies are to blame.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.layout import Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.operand_descriptor import OperandDescriptor, readable_bits
from tilescope.mma.written import NOT_WRITTEN, Addresses
from tilescope.reading import one_of
from tilescope.rule import ARGUMENT_RANGE
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map import AnyMap

Cause = Literal[
    "none-against-none", "box-wider-than-atom", "majorness", "swizzle-mode", "leading-stride-exchanged", "base-offset",
    "start-address", "leading-bytes", "stride-bytes", "not-written", "several", "pair-half",
]  # fmt: skip


class Diagnosis(NamedTuple):
    """What is likely wrong, and what would be right."""

    cause: Cause
    sentence: str
    correction: OperandDescriptor | None = None  # the descriptor that reads what was written
    correction_major: Major | None = None  # as which it does


@dataclass(frozen=True, slots=True)
class Read:
    """One instruction's reading of part of a tile."""

    descriptor: OperandDescriptor
    major: Major
    origin: tuple[int, int]
    rows: int
    k: int
    element_bits: int

    def addresses(self) -> Addresses:
        """Where it looks for each of its elements, (rows, k)."""
        return self.descriptor.addresses(self.major, self.rows, self.k, self.element_bits)

    def part_of(self, written: Addresses) -> Addresses:
        """What was written of the elements that it reads."""
        (mn, k), found = self.origin, np.full((self.rows, self.k), NOT_WRITTEN, np.int64)
        part = written[mn : mn + self.rows, k : k + self.k]
        found[: part.shape[0], : part.shape[1]] = part
        return found


def diagnosed(read: Read, written: Addresses, tensor_map: AnyMap, *, flip: bool) -> Diagnosis:
    """The likely cause; with `flip`, the map's innermost dimension may be the other one of the tile."""
    row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
    if tensor_map.swizzle.bits == 0 and row_bytes != CHUNK_BYTES:
        return _plain_rows(read, tensor_map, row_bytes)
    fits = sorted(_fits(read, written, tensor_map, flip=flip), key=lambda fit: len(_changes(read, *fit)))
    part = read.part_of(written)
    missing = part == NOT_WRITTEN
    only_missing = missing.any() and bool((read.addresses() == part)[~missing].all())
    if fits and not only_missing:
        fitted, major = fits[0]
        changes = _changes(read, fitted, major)
        return Diagnosis(next(iter(changes)), " ".join(changes.values()), _corrected(read, fitted, changes), major)
    if missing.any():
        mn, k = written.shape
        said = f"Not written: the copies bring {mn} x {k} elements (mn x k), and not all that is read. Copy more, or read less"
        other = [major for fitted, major in fits if major != read.major and fitted == read.descriptor]
        return Diagnosis(
            "not-written", said + (f", or, if the tile lies {other[0]}-major, read it so." if other else ".")
        )
    reader = f"{read.descriptor.form.instruction} descriptor"
    if tensor_map.swizzle.name != read.descriptor.swizzle.name:
        said = f"Swizzle mode: TMA wrote with swizzle {tensor_map.swizzle.name}, which no {reader} reads here."
        return Diagnosis("swizzle-mode", said)
    return Diagnosis("several", f"More than one thing differs: no single {reader} reads these copies.")


def wrong_half(
    tensor_map: AnyMap, copies: Iterable[tuple[tuple[int, ...], int]], major: Major, rows: int, cta_rank: Any
) -> str | None:
    """What is wrong where the copies bring the rows of the pair's other block; None where they bring this block's own."""
    cta_rank = one_of("cta_rank", cta_rank, (0, 1))
    if tensor_map.rank != 2:
        limit = "rows are counted by the coordinates of a rank-2 map"
        raise ARGUMENT_RANGE.error("cta_rank", f"a map of rank {tensor_map.rank}", limit, "Leave cta_rank out.")
    brought = min(coords[1 if major == "K" else 0] for coords, _ in copies)
    own = brought // (2 * rows) * 2 * rows + cta_rank * rows
    if brought == own:
        return None
    return (
        f"Half of the pair: block {cta_rank} brings mn {brought} to {brought + rows - 1}, and holds mn {own} to {own + rows - 1} of the "
        f"pair's {2 * rows}. Copy from coordinate {own}."
    )


def _corrected(read: Read, fitted: OperandDescriptor, changes: Any) -> OperandDescriptor:
    """The fitted descriptor; exchanged fields both change, also the one that this read does not reach."""
    if "leading-stride-exchanged" not in changes:
        return fitted
    values = {name: value for name, value in fitted.to_dict().items() if name != "kind"}
    return type(fitted).from_dict(
        values | {"leading_bytes": read.descriptor.stride_bytes, "stride_bytes": read.descriptor.leading_bytes}
    )


def _plain_rows(read: Read, tensor_map: AnyMap, row_bytes: int) -> Diagnosis:
    """Rows without swizzle that are no core matrices: no descriptor reads them."""
    bits, descriptor = tensor_map.data_type.smem_bits, read.descriptor
    span = descriptor.swizzle.span_bytes or CHUNK_BYTES
    box = f"box[0] = {span * 8 // bits}"
    if descriptor.swizzle.bits == 0:
        return Diagnosis(
            "none-against-none",
            (
                f"TMA none against MMA none: TMA stores plain rows of {row_bytes} bytes, the tensor core reads core matrices of 8 rows "
                f"x 16 bytes. Use {box} and one copy for each column of 16 bytes, or a swizzle in both."
            ),
        )
    if row_bytes > span:
        return Diagnosis(
            "box-wider-than-atom",
            (
                f"Box wider than the atom: its rows are {row_bytes} bytes, an atom of {descriptor.swizzle.name} is {span} wide. "
                f"Use {box}, swizzle {descriptor.swizzle.name}, and one copy for each column of atoms."
            ),
        )
    return Diagnosis(
        "swizzle-mode",
        (
            f"Swizzle mode: TMA wrote plain rows (swizzle none), the descriptor reads {descriptor.swizzle.name}. "
            f"Use swizzle {descriptor.swizzle.name} in the tensor map."
        ),
    )


def _fits(read: Read, written: Addresses, tensor_map: AnyMap, *, flip: bool) -> list[tuple[OperandDescriptor, Major]]:
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


def _fitted(read: Read, written: Addresses, swizzle: Any, base_offset: int) -> OperandDescriptor | None:
    """The descriptor of this swizzle and base offset that reads the written addresses, if there is one."""
    descriptor = read.descriptor
    is_address = getattr(descriptor, "leading_is_address", False)
    fields = {"leading_is_address": True} if is_address else {}
    try:
        layout = CanonicalLayout(read.major, swizzle, read.element_bits)
        if read.element_bits not in readable_bits(descriptor.form.instruction, read.major, layout.swizzle):
            return None
        blank = type(descriptor)(0, leading_bytes=0, stride_bytes=0, swizzle=swizzle, base_offset=base_offset)
    except RuleError:
        return None
    if (written == NOT_WRITTEN).any():
        return None
    logical = blank.physical(written)
    start = int(logical[0, 0])

    def reached(step: tuple[int, int] | None) -> int | None:
        return None if step is None or step[0] >= read.rows or step[1] >= read.k else int(logical[step])

    leading, stride = reached(layout.leading_step), reached(layout.stride_step)
    if is_address:
        leading = reached((0, (SMEM_LINE_BYTES - start % SMEM_LINE_BYTES) * 8 // read.element_bits))
    elif leading is not None:
        leading -= start
    try:
        fitted = type(descriptor)(
            start, leading_bytes=descriptor.leading_bytes if leading is None else leading,
            stride_bytes=descriptor.stride_bytes if stride is None else stride - start,
            swizzle=swizzle, base_offset=base_offset, **fields,
        )  # fmt: skip
        agrees = (fitted.addresses(read.major, read.rows, read.k, read.element_bits) == written).all()
    except RuleError:
        return None
    return fitted if agrees else None


def _changes(read: Read, fitted: OperandDescriptor, major: Major) -> dict[Cause, str]:
    """The fields in which the right descriptor differs from the one that reads, as causes, the weightiest first."""
    descriptor, changes = read.descriptor, dict[Cause, str]()
    if major != read.major:
        changes["majorness"] = (
            f'Majorness: the tile lies {major}-major, and is read as {read.major}-major. Use major="{major}".'
        )
    if fitted.swizzle != descriptor.swizzle:
        changes["swizzle-mode"] = (
            f"Swizzle mode: TMA wrote {fitted.swizzle.name}, the descriptor reads {descriptor.swizzle.name}. "
            f"Use swizzle {fitted.swizzle.name}."
        )
    ignored = fitted.ignored_fields(major)
    moved = [
        name for name in ("leading_bytes", "stride_bytes")
        if getattr(fitted, name) != getattr(descriptor, name) and name not in ignored
    ]  # fmt: skip
    exchanged = {"leading_bytes": descriptor.stride_bytes, "stride_bytes": descriptor.leading_bytes}
    if moved and all(getattr(fitted, name) == exchanged[name] for name in moved):
        changes["leading-stride-exchanged"] = (
            f"Leading and stride are in each other's role: use leading_bytes={descriptor.stride_bytes}, "
            f"stride_bytes={descriptor.leading_bytes}."
        )
        moved = []
    if fitted.base_offset != descriptor.base_offset:
        changes["base-offset"] = (
            f"Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says {descriptor.base_offset}. "
            "Use base_offset=0."
        )
    if fitted.start_address != descriptor.start_address:
        changes["start-address"] = (
            f"Start address: the first element was written for start {fitted.start_address:#x}, the descriptor says "
            f"{descriptor.start_address:#x}. Use start_address={fitted.start_address:#x}."
        )
    causes: dict[str, tuple[Cause, str]] = {
        "leading_bytes": ("leading-bytes", "Leading"),
        "stride_bytes": ("stride-bytes", "Stride"),
    }
    for name in moved:
        (cause, field), value = causes[name], getattr(fitted, name)
        is_address = name == "leading_bytes" and getattr(descriptor, "leading_is_address", False)
        where = f"begins at {value:#x}" if is_address else f"lies {value} bytes away"
        changes[cause] = f"{field}: the neighbour {where}, not {getattr(descriptor, name)}. Use {name}={value}."
    return changes
