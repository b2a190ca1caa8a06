"""Where copies leave a tile in shared memory, and why a descriptor or a layout does not read it there.

    tensor map, copies ──▶ written addresses ──▶ the descriptor that reads them, if there is one ──▶ the fields that differ

Copies are placed as the TMA emulator places them. The global address of a row tells which row of the matrix it is, so a
folded map, which has more dimensions over the same matrix, gives the same elements as a plain one.

From the addresses of a few elements follow start, leading and stride; the rest is trial: the other majorness, base offset 0,
the swizzle that TMA wrote with. A layout is tried with one thing changed. If nothing fits, the copies are to blame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import ATOM_ORDERS, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.reading import entries, one_of, plain_int
from tilescope.rule import ARGUMENT_RANGE, Basis
from tilescope.sentence import filled
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import AnyMap, TensorMap
from tilescope.tma.request import requested
from tilescope.tma.walk import placement, row_coords

Addresses = npt.NDArray[np.int64]
NOT_WRITTEN = -1

Cause = Literal[
    "none-against-none",
    "box-wider-than-atom",
    "majorness",
    "swizzle-mode",
    "leading-stride-exchanged",
    "base-offset",
    "start-address",
    "leading-bytes",
    "stride-bytes",
    "not-written",
    "several",
    "pair-half",
    "atom-order",
]
# One sentence for each field in which the right descriptor may differ.
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
    "leading-bytes": "Leading: the neighbour lies {right} bytes away, not {wrong}. Use leading_bytes={right}.",
    "stride-bytes": "Stride: the neighbour lies {right} bytes away, not {wrong}. Use stride_bytes={right}.",
}
_INNERMOST_UNSAID = 'If the map\'s innermost dimension is {dimension}, pass tile_major="{major}": then the copies lie in the wrong place.'
_LEADING_ADDRESS = "Leading: the neighbour begins at {right:#x}, not {wrong}. Use leading_bytes={right}."
_LAYOUT_SENTENCES: dict[Cause, str] = {
    "majorness": "Majorness: the tile was written with {right}-major, the layout has {wrong}-major.",
    "swizzle-mode": "Swizzle mode: the tile was written with {right}, the layout has {wrong}.",
    "start-address": "Start address: the tile was written with {right:#x}, the layout has {wrong:#x}.",
    "atom-order": "Atom order: the tile was written with {right}, the layout has {wrong}.",
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


_NOT_WRITTEN = (
    "Not written: the tile has {mn} x {k} elements (mn x k), fewer than are read. Copy more, or read less"
    '[[, or pass major="{major}" if the tile is {major}-major]].'
)
_PAIR_HALF = (
    "Half of the pair: block {cta_rank} brings mn {brought} to {brought_last}, and holds mn {own} to {own_last} of the "
    "pair's {pair_rows}. Copy from coordinate {own}."
)


@runtime_checkable
class PlacedCopy(Protocol):
    """A copy of a plan: where its box lies in the tensor, and where in the shared memory of the tile."""

    @property
    def coords(self) -> tuple[int, ...]:
        """Of the first element of the box."""

    @property
    def smem_offset_bytes(self) -> int:
        """From the start of the tile."""


class BoxPlace(NamedTuple):
    """One copy: the coordinates of its box, and its offset in shared memory."""

    coords: tuple[int, ...]
    smem_offset_bytes: int


class WrittenTile(NamedTuple):
    """A tile in shared memory: the address of every element (mn, k), and what the writer did."""

    addresses: Addresses
    writer: str  # "TMA" or "the layout"
    swizzle: Swizzle
    row_bytes: int  # contiguous bytes before the swizzle: a row of a box, or of an atom
    element_bits: int  # of the writer's elements
    basis: Basis
    copies: tuple[BoxPlace, ...] = ()

    @classmethod
    def by_copies(
        cls,
        tensor_map: AnyMap,
        copies: object,
        *,
        smem_address: int,
        major: Major,
        data_type: DataType,
        element_bits: int,
    ) -> WrittenTile:
        """What TMA copies of a map leave (without copies, one of its first box); `major` is innermost in the map.

        Where two copies write one place, the last one's element lies there. `element_bits` are those from one value of a
        padded type to the next in its chunk: 8 as descriptors count them, 4 or 6 as they lie.
        """
        brought = copies_of([((0,) * tensor_map.rank, 0)] if copies is None else copies)
        pieces = [
            _placed(tensor_map, copy.coords, smem_address + copy.smem_offset_bytes, data_type) for copy in brought
        ]
        row, column, address = np.concatenate(pieces, axis=1)
        row -= row.min()
        column -= column.min()
        _, last = np.unique(address[::-1], return_index=True)  # what an earlier copy left there is gone
        kept = len(address) - 1 - last
        piece_elements = placement(tensor_map, 1, 0).piece_bytes * 8 // data_type.smem_bits
        within = np.arange(piece_elements)
        placed = np.full((int(row.max()) + 1, int(column.max()) + piece_elements), NOT_WRITTEN, np.int64)
        placed[row[kept, None], column[kept, None] + within] = address[kept, None] + within * element_bits // 8
        return cls(
            addresses=placed if major == "K" else placed.T,
            writer="TMA",
            swizzle=tensor_map.swizzle,
            row_bytes=tensor_map.interleave.slice_bytes or tensor_map.inner_bytes,
            element_bits=tensor_map.data_type.smem_bits,
            basis=tensor_map.basis,
            copies=brought,
        )

    @classmethod
    def by_layout(cls, layout: Layout) -> WrittenTile:
        """What lies in shared memory as a layout says."""
        row_elements = 0 if layout.tiling is None else layout.tiling.atom[1]
        return cls(
            addresses=layout.addresses(),
            writer="the layout",
            swizzle=layout.swizzle,
            row_bytes=row_elements * layout.element_bits // 8,
            element_bits=layout.element_bits,
            basis="documented",
        )

    def part(self, origin: tuple[int, int], shape: tuple[int, ...], *, turned: bool = False) -> Addresses:
        """The addresses from element `origin` on, NOT_WRITTEN beyond the tile; `turned`, mn and k exchanged."""
        addresses = self.addresses.T if turned else self.addresses
        part = addresses[origin[0] : origin[0] + shape[0], origin[1] : origin[1] + shape[1]]
        whole = np.full(shape, NOT_WRITTEN, np.int64)
        whole[: part.shape[0], : part.shape[1]] = part
        return whole


def copies_of(copies: object) -> tuple[BoxPlace, ...]:
    """Copies as (coords, smem_offset_bytes): pairs, or values with these names."""
    listed = [_copy_of(copy) for copy in entries(copies, 1 << 16) or ()]
    read = tuple(copy for copy in listed if copy is not None)
    if not read or len(read) < len(listed):
        wanted = "pairs of coordinates and offset in shared memory"
        fix = "Use [((0, 0), 0), ((64, 0), 8192)], for example."
        raise RuleError([argument_type("copies", copies, wanted, fix)])
    return read


def _copy_of(copy: object) -> BoxPlace | None:
    if isinstance(copy, PlacedCopy):
        pair: list[object] = [copy.coords, copy.smem_offset_bytes]
    else:
        pair = entries(copy, 3) or []
    if len(pair) != 2:
        return None
    coords = entries(pair[0], 6)
    offset = plain_int(pair[1])
    if coords is None or offset is None:
        return None
    return BoxPlace(tuple(coords), offset)


def _placed(tensor_map: AnyMap, coords: tuple[int, ...], address: int, data_type: DataType) -> Addresses:
    """Row, column and address of the first element of every piece that one copy writes: (3, pieces)."""
    corners = row_coords(requested(tensor_map, "load", coords, smem_address=address))
    placed = placement(tensor_map, len(corners), address)
    places = placed.places.reshape(len(corners), -1).astype(np.int64) * placed.piece_bytes + address
    row, first = _in_matrix(tensor_map, corners)
    pieces = np.arange(places.shape[1]) * (placed.piece_bytes * 8 // data_type.smem_bits)
    column = (first * tensor_map.data_type.smem_bits // data_type.smem_bits)[:, None] + pieces
    return np.stack(np.broadcast_arrays(row[:, None], column, places)).reshape(3, -1)


def _in_matrix(tensor_map: AnyMap, corners: Addresses) -> tuple[Addresses, Addresses]:
    """Row and first column, in elements of the map, of the matrix that its innermost two dimensions span."""
    if isinstance(tensor_map, TensorMap) and _has_plain_rows(tensor_map):
        pitch_bytes = tensor_map.strides_bytes[0]
        bits = tensor_map.data_type.bits
        offset = corners[:, 0] * bits // 8 + corners[:, 1:] @ np.array(tensor_map.strides_bytes, np.int64)
        return offset // pitch_bytes, offset % pitch_bytes * 8 // bits
    rows = np.arange(len(corners))
    if tensor_map.interleave.slice_bytes:
        return rows, np.zeros(len(corners), np.int64)
    return rows, corners[:, 0]


def _has_plain_rows(tensor_map: TensorMap) -> bool:
    """Whether global addresses tell rows: no slices, no steps between rows, and no rows that overlap in memory."""
    strides = tensor_map.strides_bytes
    if tensor_map.interleave.slice_bytes or not strides or max(tensor_map.element_strides[1:]) != 1:
        return False
    return strides[0] * 8 >= tensor_map.box[0] * tensor_map.data_type.bits


class Diagnosis(NamedTuple):
    """What is likely wrong, and what would be right."""

    cause: Cause
    sentence: str
    correction: OperandDescriptor | Layout | None = None  # what reads the tile as it was written
    correction_major: Major | None = None  # as which it does


class Read(NamedTuple):
    """What an instruction reads of a tile, or where a layout has all of it; and where these elements were written."""

    reader: OperandDescriptor | Layout
    major: Major
    origin: tuple[int, int]  # (mn, k) of its first element
    element_bits: int
    addresses: Addresses  # where it looks for its elements, (rows, k)
    written: Addresses

    @property
    def is_only_cut_short(self) -> bool:
        """Whether all that was written is read where it lies."""
        is_written = self.written != NOT_WRITTEN
        return not is_written.all() and bool((self.addresses == self.written)[is_written].all())


class FieldChange(NamedTuple):
    """A field of a descriptor or a layout: what would be right, and what it says."""

    cause: Cause
    right: int | str | None
    wrong: int | str | None


class Fit(NamedTuple):
    """A descriptor or a layout that reads a tile as it was written, and in what it differs from the one that does not."""

    right: OperandDescriptor | Layout
    major: Major | None
    changes: list[FieldChange]  # the most important first


def diagnosed(read: Read, tile: WrittenTile, *, flip: bool) -> Diagnosis:
    """The likely cause; with `flip`, the map's innermost dimension may be the other one of the tile."""
    reader = read.reader
    if isinstance(reader, Layout):
        fits = _fitting_layouts(read, reader, tile.swizzle)
        sentences = _LAYOUT_SENTENCES
    elif tile.swizzle.bits == 0 and tile.row_bytes not in (0, CHUNK_BYTES):
        return _plain_rows(reader.swizzle, tile)
    else:
        fits = _fitting_descriptors(read, reader, tile, flip=flip)
        sentences = _FIELD_SENTENCES
        if reader.leading_is_address:
            sentences = _FIELD_SENTENCES | {"leading-bytes": _LEADING_ADDRESS}
    if fits and not read.is_only_cut_short:
        best = min(fits, key=lambda fit: len(fit.changes))
        said = [filled(sentences[change.cause], _facts(change, tile.writer)) for change in best.changes]
        if flip and any(change.cause == "majorness" for change in best.changes):
            dimension = "k" if read.major == "K" else "mn"  # nobody said which dimension of the map is innermost
            said.append(filled(_INNERMOST_UNSAID, {"dimension": dimension, "major": read.major}))
        return Diagnosis(best.changes[0].cause, " ".join(said), best.right, best.major)
    if (read.written == NOT_WRITTEN).any():
        mn, k = tile.addresses.shape
        other_major = next((fit.major for fit in fits if fit.right == reader), None)
        return Diagnosis("not-written", filled(_NOT_WRITTEN, {"mn": mn, "k": k, "major": other_major}))
    return _unexplained(reader, tile)


def _facts(change: FieldChange, writer: str) -> dict[str, int | str | None]:
    return {"right": change.right, "wrong": change.wrong, "writer": writer}


def _unexplained(reader: OperandDescriptor | Layout, tile: WrittenTile) -> Diagnosis:
    """What can be said where no single change makes the reader fit."""
    if isinstance(reader, Layout):
        return Diagnosis("several", "More than one thing differs between the tile and the layout.")
    name = f"{reader.form.instruction} descriptor"
    if tile.swizzle.name != reader.swizzle.name:
        sentence = f"Swizzle mode: {tile.writer} wrote with swizzle {tile.swizzle.name}, which no {name} reads here."
        return Diagnosis("swizzle-mode", sentence)
    return Diagnosis("several", f"More than one thing differs: no single {name} reads this tile.")


def _plain_rows(swizzle: Swizzle, tile: WrittenTile) -> Diagnosis:
    """Rows without swizzle that are no core matrices: no descriptor reads them."""
    span_bytes = swizzle.span_bytes or CHUNK_BYTES
    is_tma = tile.writer == "TMA"
    cause: Cause = "swizzle-mode"
    if swizzle.bits == 0:
        cause = "none-against-none"
    elif tile.row_bytes > span_bytes:
        cause = "box-wider-than-atom"
    facts = {
        "writer": tile.writer,
        "row_bytes": tile.row_bytes,
        "span": span_bytes,
        "box": f"box[0] = {span_bytes * 8 // tile.element_bits}" if is_tma else f"rows of {span_bytes} bytes",
        "swizzle": swizzle.name,
        "where": "the tensor map" if is_tma else tile.writer,
    }
    return Diagnosis(cause, filled(_PLAIN_SENTENCES[cause], facts))


def _fitting_layouts(read: Read, layout: Layout, swizzle: Swizzle) -> list[Fit]:
    """The layout with its swizzle, start, atom order or majorness changed, where that is what was written."""
    bits = layout.element_bits
    start = layout.start
    mn, k = layout.shape
    tried = [
        Layout.from_modes(layout.bit_modes, bits, unit_bits=1, swizzle=swizzle, start=start),
        layout.with_start(max(0, layout.swizzle.apply(int(read.written[0, 0])))),
    ]
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        turned = CanonicalLayout("MN" if layout.major == "K" else "K", layout.swizzle, bits)
        for form in (canonical, turned):
            if mn % form.atom[0] == 0 and k % form.atom[1] == 0:
                tried += [form.tile((mn, k), atom_order=order, start=start) for order in ATOM_ORDERS]
    written = [changed for changed in tried if (changed.addresses() == read.written).all()]
    fits = [Fit(right, right.major, _layout_changes(right, layout)) for right in written]
    return [fit for fit in fits if fit.changes]


def _layout_changes(right: Layout, wrong: Layout) -> list[FieldChange]:
    changes = [
        FieldChange("swizzle-mode", right.swizzle.name, wrong.swizzle.name),
        FieldChange("start-address", right.start, wrong.start),
    ]
    if right.pairs != wrong.pairs:
        changes.insert(0, FieldChange("majorness", right.major, wrong.major))
        changes.append(FieldChange("atom-order", right.atom_order, wrong.atom_order))
    return [change for change in changes if change.right != change.wrong]


def _fitting_descriptors(read: Read, reader: OperandDescriptor, tile: WrittenTile, *, flip: bool) -> list[Fit]:
    """The descriptors that read what was written, and their majorness."""
    other: Major = "MN" if read.major == "K" else "K"
    views: list[tuple[Major, Addresses]] = [(read.major, read.written), (other, read.written)]
    if flip:  # which dimension is innermost in the map is unknown: try the other one too
        k, rows = tile.addresses.shape
        shape = (min(read.written.shape[0], rows), min(read.written.shape[1], k))
        views.append((other, tile.part(read.origin[::-1], shape, turned=True)))
    fits = []
    for major, written in views:
        for base_offset in dict.fromkeys((reader.base_offset, 0)):
            try:
                aimed = replace(reader, swizzle=tile.swizzle, base_offset=base_offset)
                fitted = _fitted(aimed, major, written, read.element_bits)
                rows, k = written.shape
                agrees = (fitted.addresses(major, rows, k, read.element_bits) == written).all()
            except RuleError:  # no field holds such a value, or no instruction reads so
                continue
            changes = _descriptor_changes(read, reader, fitted, major) if agrees else []
            if any(change.cause == "leading-stride-exchanged" for change in changes):
                # Also the one of the two that this read does not reach.
                fitted = replace(fitted, leading_bytes=reader.stride_bytes, stride_bytes=reader.leading_bytes)
            if changes:
                fits.append(Fit(fitted, major, changes))
    return fits


def _fitted(aimed: OperandDescriptor, major: Major, written: Addresses, element_bits: int) -> OperandDescriptor:
    """The descriptor with this swizzle and base offset that reads the first elements where they were written."""
    layout = aimed.layout(major, element_bits)
    logical = aimed.physical(written)
    start = int(logical[0, 0])

    def address_of(step: tuple[int, int] | None) -> int | None:
        """Where the element at (mn, k) lies; None if that is beyond what is read."""
        if step is None or step[0] >= written.shape[0] or step[1] >= written.shape[1]:
            return None
        return int(logical[step])

    leading_bytes = aimed.leading_bytes
    if aimed.leading_is_address:
        line_end_k = (SMEM_LINE_BYTES - start % SMEM_LINE_BYTES) * 8 // element_bits
        seam = address_of((0, line_end_k))
        if seam is not None:
            leading_bytes = seam
    else:
        neighbour = address_of(layout.leading_step)
        if neighbour is not None:
            leading_bytes = neighbour - start
    stride_bytes = aimed.stride_bytes
    neighbour = address_of(layout.stride_step)
    if neighbour is not None:
        stride_bytes = neighbour - start
    return replace(aimed, start_address=start, leading_bytes=leading_bytes, stride_bytes=stride_bytes)


def _descriptor_changes(
    read: Read, wrong: OperandDescriptor, right: OperandDescriptor, major: Major
) -> list[FieldChange]:
    ignored = right.ignored_fields(major)
    offsets = []
    if "leading_bytes" not in ignored and right.leading_bytes != wrong.leading_bytes:
        offsets.append(FieldChange("leading-bytes", right.leading_bytes, wrong.leading_bytes))
    if "stride_bytes" not in ignored and right.stride_bytes != wrong.stride_bytes:
        offsets.append(FieldChange("stride-bytes", right.stride_bytes, wrong.stride_bytes))
    other_field = {"leading-bytes": wrong.stride_bytes, "stride-bytes": wrong.leading_bytes}
    is_exchanged = bool(offsets) and all(change.right == other_field[change.cause] for change in offsets)
    changes = [
        FieldChange("majorness", major, read.major),
        FieldChange("swizzle-mode", right.swizzle.name, wrong.swizzle.name),
    ]
    if is_exchanged:
        changes.append(FieldChange("leading-stride-exchanged", wrong.stride_bytes, wrong.leading_bytes))
    changes.append(FieldChange("base-offset", right.base_offset, wrong.base_offset))
    changes.append(FieldChange("start-address", right.start_address, wrong.start_address))
    if not is_exchanged:
        changes += offsets
    return [change for change in changes if change.right != change.wrong]


def wrong_half(source: AnyMap | Layout, tile: WrittenTile, major: Major, cta_rank: int) -> Diagnosis | None:
    """The mistake if the copies bring the rows of the pair's other block; None if they bring this block's own."""
    cta_rank = one_of("cta_rank", cta_rank, (0, 1))
    rank = None if isinstance(source, Layout) else source.rank
    if rank != 2:
        raise ARGUMENT_RANGE.error(
            argument="cta_rank",
            found="a layout, which names no coordinates" if rank is None else f"a map of rank {rank}",
            limit="rows are counted by the coordinates of a rank-2 map",
            fix="Leave cta_rank out.",
            rank=rank,
        )
    brought = min(copy.coords[1 if major == "K" else 0] for copy in tile.copies)
    rows = tile.addresses.shape[0]
    own = brought // (2 * rows) * 2 * rows + cta_rank * rows
    if brought == own:
        return None
    facts = {
        "cta_rank": cta_rank,
        "brought": brought,
        "brought_last": brought + rows - 1,
        "own": own,
        "own_last": own + rows - 1,
        "pair_rows": 2 * rows,
    }
    return Diagnosis("pair-half", filled(_PAIR_HALF, facts))
