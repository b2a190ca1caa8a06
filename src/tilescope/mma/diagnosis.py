"""Why a descriptor does not read what was written: the cause is found by putting it right.

    written addresses ──▶ the descriptor that reads them, if there is one ──▶ the fields in which this one differs

From the addresses of a few elements follow start, leading and stride; the rest is trial: the other majorness, base offset 0,
the swizzle that TMA wrote with. If nothing fits, the copies are to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from tilescope.arch import Basis
from tilescope.errors import RuleError
from tilescope.layout import AtomOrder, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor import OperandDescriptor, readable_bits
from tilescope.mma.written import NOT_WRITTEN, Addresses, WrittenTile
from tilescope.reading import one_of
from tilescope.rule import ARGUMENT_RANGE
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import AnyMap

Cause = Literal[
    "none-against-none", "box-wider-than-atom", "majorness", "swizzle-mode", "leading-stride-exchanged", "base-offset",
    "start-address", "leading-bytes", "stride-bytes", "not-written", "several", "pair-half", "atom-order",
]  # fmt: skip


class Diagnosis(NamedTuple):
    """What is likely wrong, and what would be right."""

    cause: Cause
    sentence: str
    correction: OperandDescriptor | Layout | None = None  # what reads the tile as it was written
    correction_major: Major | None = None  # as which it does


@dataclass(frozen=True, slots=True)
class Read:
    """One instruction's reading of part of a tile, or a layout's idea of all of it."""

    descriptor: OperandDescriptor | Layout
    major: Major
    origin: tuple[int, int]
    rows: int
    k: int
    element_bits: int

    def addresses(self) -> Addresses:
        """Where it looks for each of its elements, (rows, k)."""
        if isinstance(self.descriptor, Layout):
            return self.descriptor.addresses()
        return self.descriptor.addresses(self.major, self.rows, self.k, self.element_bits)

    @property
    def basis(self) -> Basis:
        """Whether a card was seen to read so."""
        return "documented" if isinstance(self.descriptor, Layout) else self.descriptor.basis

    def part_of(self, written: Addresses) -> Addresses:
        """What was written of the elements that it reads."""
        (mn, k), found = self.origin, np.full((self.rows, self.k), NOT_WRITTEN, np.int64)
        part = written[mn : mn + self.rows, k : k + self.k]
        found[: part.shape[0], : part.shape[1]] = part
        return found


def diagnosed(read: Read, tile: WrittenTile, *, flip: bool) -> Diagnosis:
    """The likely cause; with `flip`, the map's innermost dimension may be the other one of the tile."""
    written = tile.addresses
    if isinstance(read.descriptor, Layout):
        return _layout_diagnosed(read, read.descriptor, tile)
    if tile.swizzle.bits == 0 and tile.row_bytes not in (0, CHUNK_BYTES):
        return _plain_rows(read.descriptor, tile)
    fits = sorted(_fits(read, tile, flip=flip), key=lambda fit: len(_changes(read, fit[0], fit[1], tile.writer)))
    part = read.part_of(written)
    missing = part == NOT_WRITTEN
    only_missing = missing.any() and bool((read.addresses() == part)[~missing].all())
    if fits and not only_missing:
        fitted, major = fits[0]
        changes = _changes(read, fitted, major, tile.writer)
        return Diagnosis(next(iter(changes)), " ".join(changes.values()), _corrected(read, fitted, changes), major)
    if missing.any():
        return _not_written(
            written, [major for fitted, major in fits if major != read.major and fitted == read.descriptor]
        )
    reader = f"{read.descriptor.form.instruction} descriptor"
    if tile.swizzle.name != read.descriptor.swizzle.name:
        said = f"Swizzle mode: {tile.writer} wrote with swizzle {tile.swizzle.name}, which no {reader} reads here."
        return Diagnosis("swizzle-mode", said)
    return Diagnosis("several", f"More than one thing differs: no single {reader} reads this tile.")


def _not_written(written: Addresses, other_major: list[Major]) -> Diagnosis:
    mn, k = written.shape
    said = f"Not written: {mn} x {k} elements (mn x k) lie there, and not all that is read. Copy more, or read less"
    other = f", or, if the tile lies {other_major[0]}-major, read it so." if other_major else "."
    return Diagnosis("not-written", said + other)


def _layout_diagnosed(read: Read, layout: Layout, tile: WrittenTile) -> Diagnosis:
    """The one thing in which the layout differs from the tile that was written, found by changing it."""
    part = read.part_of(tile.addresses)
    if (part == NOT_WRITTEN).any():
        return _not_written(tile.addresses, [])
    for cause, name, changed in _changed_layouts(layout, tile.swizzle, int(part[0, 0])):
        if (changed.addresses() == part).all():
            values = {
                "swizzle-mode": (changed.swizzle.name, layout.swizzle.name), "start-address": (hex(changed.start), hex(layout.start)),
                "atom-order": (changed.atom_order, layout.atom_order), "majorness": (f"{changed.major}-major", f"{layout.major}-major"),
            }  # fmt: skip
            right, wrong = values[cause]
            return Diagnosis(
                cause, f"{name}: the tile was written with {right}, the layout has {wrong}.", changed, changed.major
            )
    return Diagnosis("several", "More than one thing differs between the tile and the layout.")


def _changed_layouts(layout: Layout, swizzle: Swizzle, first: int) -> Iterator[tuple[Cause, str, Layout]]:
    """The layout with one thing changed: its swizzle, start, atom order or majorness."""
    modes, bits = layout.bit_modes, layout.element_bits
    yield (
        "swizzle-mode", "Swizzle mode", Layout.from_modes(modes, bits, unit_bits=1, swizzle=swizzle, start=layout.start),
    )  # fmt: skip
    yield "start-address", "Start address", layout.with_start(layout.swizzle.apply(first))
    canonical, (mn, k) = CanonicalLayout.of(layout), layout.shape
    if canonical is None:
        return
    orders: tuple[AtomOrder, AtomOrder] = ("row", "column") if layout.atom_order == "column" else ("column", "row")
    yield "atom-order", "Atom order", canonical.tile((mn, k), atom_order=orders[0], start=layout.start)
    other = CanonicalLayout("MN" if layout.major == "K" else "K", layout.swizzle, bits)
    if mn % other.atom[0] == 0 and k % other.atom[1] == 0:
        for order in orders:
            yield "majorness", "Majorness", other.tile((mn, k), atom_order=order, start=layout.start)


def wrong_half(
    tensor_map: AnyMap | None, copies: Iterable[tuple[tuple[int, ...], int]], major: Major, rows: int, cta_rank: Any
) -> str | None:
    """What is wrong where the copies bring the rows of the pair's other block; None where they bring this block's own."""
    cta_rank = one_of("cta_rank", cta_rank, (0, 1))
    if tensor_map is None or tensor_map.rank != 2:
        found = "a layout, which names no coordinates" if tensor_map is None else f"a map of rank {tensor_map.rank}"
        limit = "rows are counted by the coordinates of a rank-2 map"
        raise ARGUMENT_RANGE.error("cta_rank", found, limit, "Leave cta_rank out.")
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
    assert isinstance(read.descriptor, OperandDescriptor)
    if "leading-stride-exchanged" not in changes:
        return fitted
    values = {name: value for name, value in fitted.to_dict().items() if name != "kind"}
    return type(fitted).from_dict(
        values | {"leading_bytes": read.descriptor.stride_bytes, "stride_bytes": read.descriptor.leading_bytes}
    )


def _plain_rows(descriptor: OperandDescriptor, tile: WrittenTile) -> Diagnosis:
    """Rows without swizzle that are no core matrices: no descriptor reads them."""
    writer, row_bytes = tile.writer, tile.row_bytes
    span = descriptor.swizzle.span_bytes or CHUNK_BYTES
    box = f"box[0] = {span * 8 // tile.element_bits}" if writer == "TMA" else f"rows of {span} bytes"
    if descriptor.swizzle.bits == 0:
        return Diagnosis("none-against-none", (
            f"{writer} none against MMA none: {writer} stores plain rows of {row_bytes} bytes, the tensor core reads core matrices of "
            f"8 rows x 16 bytes. Use {box} and one copy for each column of 16 bytes, or a swizzle in both."
        ))  # fmt: skip
    if row_bytes > span:
        return Diagnosis("box-wider-than-atom", (
            f"Box wider than the atom: its rows are {row_bytes} bytes, an atom of {descriptor.swizzle.name} is {span} wide. "
            f"Use {box}, swizzle {descriptor.swizzle.name}, and one copy for each column of atoms."
        ))  # fmt: skip
    return Diagnosis("swizzle-mode", (
        f"Swizzle mode: {writer} wrote plain rows (swizzle none), the descriptor reads {descriptor.swizzle.name}. "
        f"Use swizzle {descriptor.swizzle.name} in {'the tensor map' if writer == 'TMA' else writer}."
    ))  # fmt: skip


def _fits(read: Read, tile: WrittenTile, *, flip: bool) -> list[tuple[OperandDescriptor, Major]]:
    """The descriptors that read what was written, each with the majorness it takes."""
    written, descriptor = tile.addresses, read.descriptor
    assert isinstance(descriptor, OperandDescriptor)
    other: Major = "MN" if read.major == "K" else "K"
    views = [(read.major, read, written), (other, replace(read, major=other), written)]
    if flip:  # nobody said which dimension the map's innermost one is: perhaps it is the other
        extent = min(read.rows, written.shape[1]), min(read.k, written.shape[0])
        views.append(
            (other, replace(read, major=other, rows=extent[0], k=extent[1], origin=read.origin[::-1]), written.T)
        )
    found = []
    for major, view, addresses in views:
        for base_offset in dict.fromkeys((descriptor.base_offset, 0)):
            fitted = _fitted(view, view.part_of(addresses), tile.swizzle.name, base_offset)
            if fitted is not None:
                found.append((fitted, major))
    return found


def _fitted(read: Read, written: Addresses, swizzle: Any, base_offset: int) -> OperandDescriptor | None:
    """The descriptor of this swizzle and base offset that reads the written addresses, if there is one."""
    descriptor = read.descriptor
    assert isinstance(descriptor, OperandDescriptor)
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


def _changes(read: Read, fitted: OperandDescriptor, major: Major, writer: str) -> dict[Cause, str]:
    """The fields in which the right descriptor differs from the one that reads, as causes, the weightiest first."""
    descriptor, changes = read.descriptor, dict[Cause, str]()
    assert isinstance(descriptor, OperandDescriptor)
    if major != read.major:
        changes["majorness"] = (
            f'Majorness: the tile lies {major}-major, and is read as {read.major}-major. Use major="{major}".'
        )
    if fitted.swizzle != descriptor.swizzle:
        changes["swizzle-mode"] = (
            f"Swizzle mode: {writer} wrote {fitted.swizzle.name}, the descriptor reads {descriptor.swizzle.name}. "
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
