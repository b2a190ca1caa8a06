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
# One sentence for each field in which the right descriptor may differ, the most important first.
_FIELD_SENTENCES: dict[Cause, str] = {
    "majorness": 'Majorness: the tile lies {right}-major, and is read as {wrong}-major. Use major="{right}".',
    "swizzle-mode": "Swizzle mode: {writer} wrote {right}, the descriptor reads {wrong}. Use swizzle {right}.",
    "leading-stride-exchanged": "Leading and stride are in each other's role: use leading_bytes={right}, stride_bytes={wrong}.",
    "base-offset": (
        "Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says {wrong}. "
        "Use base_offset={right}."
    ),
    "start-address": (
        "Start address: the first element was written for start {right:#x}, the descriptor says {wrong:#x}. "
        "Use start_address={right:#x}."
    ),
    "leading-bytes": "Leading: the neighbour {where}, not {wrong}. Use leading_bytes={right}.",
    "stride-bytes": "Stride: the neighbour {where}, not {wrong}. Use stride_bytes={right}.",
}
_PLAIN_SENTENCES: dict[Cause, str] = {
    "none-against-none": (
        "{writer} none against MMA none: {writer} stores plain rows of {row_bytes} bytes, the tensor core reads core matrices of "
        "8 rows x 16 bytes. Use {box} and one copy for each column of 16 bytes, or a swizzle in both."
    ),
    "box-wider-than-atom": (
        "Box wider than the atom: its rows are {row_bytes} bytes, an atom of {swizzle} is {span} wide. Use {box}, swizzle {swizzle}, "
        "and one copy for each column of atoms."
    ),
    "swizzle-mode": (
        "Swizzle mode: {writer} wrote plain rows (swizzle none), the descriptor reads {swizzle}. Use swizzle {swizzle} in {where}."
    ),
}
_LAYOUT_NAMES: dict[Cause, str] = {
    "swizzle-mode": "Swizzle mode", "start-address": "Start address", "atom-order": "Atom order", "majorness": "Majorness",
}  # fmt: skip


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
        """Where it looks for its elements, (rows, k)."""
        if isinstance(self.descriptor, Layout):
            return self.descriptor.addresses()
        return self.descriptor.addresses(self.major, self.rows, self.k, self.element_bits)

    @property
    def basis(self) -> Basis:
        """Whether a card was measured to read so."""
        return "documented" if isinstance(self.descriptor, Layout) else self.descriptor.basis

    def part_of(self, written: Addresses) -> Addresses:
        """What was written of the elements that it reads."""
        mn, k = self.origin
        part = written[mn : mn + self.rows, k : k + self.k]
        missing = (0, self.rows - part.shape[0]), (0, self.k - part.shape[1])
        return np.pad(part, missing, constant_values=NOT_WRITTEN) if np.any(missing) else part


def diagnosed(read: Read, tile: WrittenTile, *, flip: bool) -> Diagnosis:
    """The likely cause; with `flip`, the map's innermost dimension may be the other one of the tile."""
    written = tile.addresses
    if isinstance(read.descriptor, Layout):
        return _layout_diagnosed(read, read.descriptor, tile)
    if tile.swizzle.bits == 0 and tile.row_bytes not in (0, CHUNK_BYTES):
        return _plain_rows(read.descriptor, tile)
    part = read.part_of(written)
    missing = part == NOT_WRITTEN
    only_missing = missing.any() and bool((read.addresses() == part)[~missing].all())
    fits = [
        (fitted, major, _changes(read, fitted, major, tile.writer)) for fitted, major in _fits(read, tile, flip=flip)
    ]
    if fits and not only_missing:
        fitted, major, changes = min(fits, key=lambda fit: len(fit[2]))
        sentences = [_FIELD_SENTENCES[cause].format(**facts) for cause, facts in changes.items()]
        return Diagnosis(next(iter(changes)), " ".join(sentences), _corrected(read, fitted, changes), major)
    if missing.any():
        return _not_written(
            written, [major for fitted, major, _ in fits if major != read.major and fitted == read.descriptor]
        )
    reader = f"{read.descriptor.form.instruction} descriptor"
    if tile.swizzle.name != read.descriptor.swizzle.name:
        sentence = f"Swizzle mode: {tile.writer} wrote with swizzle {tile.swizzle.name}, which no {reader} reads here."
        return Diagnosis("swizzle-mode", sentence)
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
    for cause, changed in _changed_layouts(layout, tile.swizzle, int(part[0, 0])):
        if (changed.addresses() == part).all():
            right, wrong = (
                {
                    "swizzle-mode": one.swizzle.name,
                    "start-address": hex(one.start),
                    "atom-order": one.atom_order,
                    "majorness": f"{one.major}-major",
                }[cause]
                for one in (changed, layout)
            )
            sentence = f"{_LAYOUT_NAMES[cause]}: the tile was written with {right}, the layout has {wrong}."
            return Diagnosis(cause, sentence, changed, changed.major)
    return Diagnosis("several", "More than one thing differs between the tile and the layout.")


def _changed_layouts(layout: Layout, swizzle: Swizzle, first: int) -> Iterator[tuple[Cause, Layout]]:
    """The layout with one thing changed: its swizzle, start, atom order or majorness."""
    bits, start = layout.element_bits, layout.start
    yield "swizzle-mode", Layout.from_modes(layout.bit_modes, bits, unit_bits=1, swizzle=swizzle, start=start)
    yield "start-address", layout.with_start(layout.swizzle.apply(first))
    canonical, (mn, k) = CanonicalLayout.of(layout), layout.shape
    if canonical is None:
        return
    orders: tuple[AtomOrder, AtomOrder] = ("row", "column") if layout.atom_order == "column" else ("column", "row")
    yield "atom-order", canonical.tile((mn, k), atom_order=orders[0], start=start)
    other = CanonicalLayout("MN" if layout.major == "K" else "K", layout.swizzle, bits)
    if mn % other.atom[0] == 0 and k % other.atom[1] == 0:
        for order in orders:
            yield "majorness", other.tile((mn, k), atom_order=order, start=start)


def wrong_half(
    tensor_map: AnyMap | None, copies: Iterable[tuple[tuple[int, ...], int]], major: Major, rows: int, cta_rank: Any
) -> str | None:
    """The mistake if the copies bring the rows of the pair's other block; None if they bring this block's own."""
    cta_rank = one_of("cta_rank", cta_rank, (0, 1))
    if tensor_map is None or tensor_map.rank != 2:
        found = "a layout, which names no coordinates" if tensor_map is None else f"a map of rank {tensor_map.rank}"
        limit = "rows are counted by the coordinates of a rank-2 map"
        rank = None if tensor_map is None else tensor_map.rank
        raise ARGUMENT_RANGE.error("cta_rank", found, limit, "Leave cta_rank out.", rank=rank)
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
    writer, row_bytes, swizzle = tile.writer, tile.row_bytes, descriptor.swizzle
    span = swizzle.span_bytes or CHUNK_BYTES
    by_tma = writer == "TMA"
    cause: Cause = "swizzle-mode"
    if swizzle.bits == 0:
        cause = "none-against-none"
    elif row_bytes > span:
        cause = "box-wider-than-atom"
    box = f"box[0] = {span * 8 // tile.element_bits}" if by_tma else f"rows of {span} bytes"
    where = "the tensor map" if by_tma else writer
    facts = {
        "writer": writer,
        "row_bytes": row_bytes,
        "span": span,
        "box": box,
        "swizzle": swizzle.name,
        "where": where,
    }
    return Diagnosis(cause, _PLAIN_SENTENCES[cause].format(**facts))


def _fits(read: Read, tile: WrittenTile, *, flip: bool) -> list[tuple[OperandDescriptor, Major]]:
    """The descriptors that read what was written, and their majorness."""
    written, descriptor = tile.addresses, read.descriptor
    assert isinstance(descriptor, OperandDescriptor)
    other: Major = "MN" if read.major == "K" else "K"
    views = [(read, written), (replace(read, major=other), written)]
    if flip:  # which dimension is innermost in the map is unknown: try the other one too
        rows, k = min(read.rows, written.shape[1]), min(read.k, written.shape[0])
        views.append((replace(read, major=other, rows=rows, k=k, origin=read.origin[::-1]), written.T))
    offsets = dict.fromkeys((descriptor.base_offset, 0))
    tried = [
        (_fitted(view, view.part_of(addresses), tile.swizzle, offset), view.major)
        for view, addresses in views
        for offset in offsets
    ]
    return [(fitted, major) for fitted, major in tried if fitted is not None]


def _fitted(read: Read, written: Addresses, swizzle: Swizzle, base_offset: int) -> OperandDescriptor | None:
    """The descriptor of this swizzle and base offset that reads the written addresses, if there is one."""
    descriptor = read.descriptor
    assert isinstance(descriptor, OperandDescriptor)
    form, is_address = descriptor.form, descriptor.leading_is_address
    if read.element_bits not in readable_bits(form.instruction, read.major, swizzle) or swizzle.name not in form.codes:
        return None
    if (written == NOT_WRITTEN).any():
        return None
    layout = CanonicalLayout(read.major, swizzle, read.element_bits)
    fields: dict[str, Any] = {"swizzle": swizzle, "base_offset": base_offset}
    logical = type(descriptor)(0, leading_bytes=0, stride_bytes=0, **fields).physical(written)
    start = int(logical[0, 0])

    def reached(step: tuple[int, int] | None, otherwise: int, origin: int = start) -> int:
        beyond = step is None or step[0] >= read.rows or step[1] >= read.k
        return otherwise if beyond else int(logical[step]) - origin

    leading = reached(layout.leading_step, descriptor.leading_bytes)
    if is_address:
        seam = (0, (SMEM_LINE_BYTES - start % SMEM_LINE_BYTES) * 8 // read.element_bits)
        leading, fields = reached(seam, descriptor.leading_bytes, origin=0), fields | {"leading_is_address": True}
    stride = reached(layout.stride_step, descriptor.stride_bytes)
    try:
        fitted = type(descriptor)(start, leading_bytes=leading, stride_bytes=stride, **fields)
        agrees = (fitted.addresses(read.major, read.rows, read.k, read.element_bits) == written).all()
    except RuleError:
        return None
    return fitted if agrees else None


def _changes(read: Read, fitted: OperandDescriptor, major: Major, writer: str) -> dict[Cause, dict[str, Any]]:
    """The fields in which the right descriptor differs from the one that reads, by cause, with what their sentences say."""
    descriptor = read.descriptor
    assert isinstance(descriptor, OperandDescriptor)
    leading, stride = descriptor.leading_bytes, descriptor.stride_bytes
    ignored = fitted.ignored_fields(major)
    moved = [
        name
        for name in ("leading_bytes", "stride_bytes")
        if getattr(fitted, name) != getattr(descriptor, name) and name not in ignored
    ]
    exchanged = {"leading_bytes": stride, "stride_bytes": leading}
    swapped = bool(moved) and all(getattr(fitted, name) == exchanged[name] for name in moved)
    pairs: dict[Cause, tuple[Any, Any]] = {
        "majorness": (major, read.major),
        "swizzle-mode": (fitted.swizzle.name, descriptor.swizzle.name),
        "leading-stride-exchanged": (stride, leading) if swapped else (0, 0),
        "base-offset": (fitted.base_offset, descriptor.base_offset),
        "start-address": (fitted.start_address, descriptor.start_address),
        "leading-bytes": (fitted.leading_bytes, leading) if "leading_bytes" in moved and not swapped else (0, 0),
        "stride-bytes": (fitted.stride_bytes, stride) if "stride_bytes" in moved and not swapped else (0, 0),
    }
    changes = {}
    for cause, (right, wrong) in pairs.items():
        if right != wrong:
            at_seam = cause == "leading-bytes" and descriptor.leading_is_address
            where = f"begins at {right:#x}" if at_seam else f"lies {right} bytes away"
            changes[cause] = {"right": right, "wrong": wrong, "writer": writer, "where": where}
    return changes
