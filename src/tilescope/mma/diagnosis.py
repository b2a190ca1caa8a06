"""Where copies leave a tile in shared memory, and why a descriptor or a layout does not read it there.

    tensor map, copies ──▶ written addresses ──▶ the descriptor that reads them, if there is one ──▶ the fields that differ

Copies are placed as the TMA emulator places them. The global address of a row tells which row of the matrix it is, so a
folded map, which has more dimensions over the same matrix, gives the same elements as a plain one.

From the addresses of a few elements follow start, leading and stride; the rest is trial: the other majorness, base offset 0,
the swizzle that TMA wrote with. A layout is tried with one thing changed. If nothing fits, the copies are to blame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import ATOM_ORDERS, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.reading import entries, one_of, plain_int
from tilescope.rule import ARGUMENT_RANGE, Basis
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import AnyMap, TensorMap
from tilescope.tma.request import requested
from tilescope.tma.walk import placement, row_coords

Addresses = npt.NDArray[np.int64]
Copies = tuple[tuple[tuple[int, ...], int], ...]  # coordinates, and offset in shared memory
NOT_WRITTEN = -1

Cause = Literal[
    "none-against-none", "box-wider-than-atom", "majorness", "swizzle-mode", "leading-stride-exchanged", "base-offset",
    "start-address", "leading-bytes", "stride-bytes", "not-written", "several", "pair-half", "atom-order",
]  # fmt: skip
# One sentence for each field in which the right descriptor or layout may differ, the most important first.
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


class WrittenTile(NamedTuple):
    """A tile in shared memory: the address of every element (mn, k), and what the writer did."""

    addresses: Addresses
    writer: str  # "TMA" or "the layout"
    swizzle: Swizzle
    row_bytes: int  # contiguous bytes before the swizzle: a row of a box, or of an atom
    element_bits: int  # of the writer's elements
    basis: Basis
    copies: Copies = ()

    @classmethod
    def by_copies(
        cls, tensor_map: AnyMap, copies: Any, *, smem_address: int, major: Major, data_type: DataType, element_bits: int
    ) -> WrittenTile:
        """What TMA copies of a map leave (without copies, one of its first box); `major` is innermost in the map.

        Where two copies write one place, the last one's element lies there. `element_bits` are those from one value of a
        padded type to the next in its chunk: 8 as descriptors count them, 4 or 6 as they lie.
        """
        brought, bits = copies_of([((0,) * tensor_map.rank, 0)] if copies is None else copies), data_type.smem_bits
        row, column, address = np.concatenate(
            [_placed(tensor_map, coords, smem_address + offset, data_type) for coords, offset in brought], axis=1
        )
        row, column = row - row.min(), column - column.min()
        _, last = np.unique(address[::-1], return_index=True)  # what an earlier copy left there is gone
        kept, within = len(address) - 1 - last, np.arange(placement(tensor_map, 1, 0).piece_bytes * 8 // bits)
        placed = np.full((int(row.max()) + 1, int(column.max()) + len(within)), NOT_WRITTEN, np.int64)
        placed[row[kept, None], column[kept, None] + within] = address[kept, None] + within * element_bits // 8
        addresses, elements = placed if major == "K" else placed.T, tensor_map.data_type.smem_bits
        row_bytes = tensor_map.interleave.slice_bytes or tensor_map.inner_bytes
        return cls(addresses, "TMA", tensor_map.swizzle, row_bytes, elements, tensor_map.basis, brought)

    @classmethod
    def by_layout(cls, layout: Layout) -> WrittenTile:
        """What lies in shared memory as a layout says."""
        atom, bits = layout.tiling.atom[1] if layout.tiling is not None else 0, layout.element_bits
        return cls(layout.addresses(), "the layout", layout.swizzle, atom * bits // 8, bits, "documented")

    def part(self, origin: tuple[int, int], shape: tuple[int, ...], *, turned: bool = False) -> Addresses:
        """The addresses from element `origin` on, NOT_WRITTEN beyond the tile; `turned`, mn and k exchanged."""
        addresses, whole = self.addresses.T if turned else self.addresses, np.full(shape, NOT_WRITTEN, np.int64)
        part = addresses[origin[0] : origin[0] + shape[0], origin[1] : origin[1] + shape[1]]
        whole[: part.shape[0], : part.shape[1]] = part
        return whole


def copies_of(copies: Any) -> Copies:
    """Copies as (coords, smem_offset_bytes): pairs, or values with these names."""
    pairs = [
        [copy.coords, copy.smem_offset_bytes] if hasattr(copy, "smem_offset_bytes") else entries(copy, 3) or []
        for copy in entries(copies, 1 << 16) or ()
    ]
    listed = [(entries(pair[0], 6), plain_int(pair[1])) for pair in pairs if len(pair) == 2]
    read = tuple((tuple(coords), offset) for coords, offset in listed if coords is not None and offset is not None)
    if not pairs or len(read) < len(pairs):
        wanted = "pairs of coordinates and offset in shared memory"
        fix = "Use [((0, 0), 0), ((64, 0), 8192)], for example."
        raise RuleError([argument_type("copies", copies, wanted, fix)])
    return read


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
    strides, bits, slices = tensor_map.strides_bytes, tensor_map.data_type.bits, tensor_map.interleave.slice_bytes
    if (
        isinstance(tensor_map, TensorMap)
        and not slices
        and strides
        and max(tensor_map.element_strides[1:]) == 1
        and strides[0] * 8 >= tensor_map.box[0] * bits  # else rows overlap in memory
    ):
        offset = corners[:, 0] * bits // 8 + corners[:, 1:] @ np.array(strides, np.int64)
        return offset // strides[0], offset % strides[0] * 8 // bits
    return np.arange(len(corners)), np.zeros(len(corners), np.int64) if slices else corners[:, 0]


class Diagnosis(NamedTuple):
    """What is likely wrong, and what would be right."""

    cause: Cause
    sentence: str
    correction: OperandDescriptor | Layout | None = None  # what reads the tile as it was written
    correction_major: Major | None = None  # as which it does


class Read(NamedTuple):
    """What an instruction reads of a tile, or where a layout has all of it; and where these elements were written."""

    reader: Any  # an OperandDescriptor or a Layout
    major: Major
    origin: tuple[int, int]  # (mn, k) of its first element
    element_bits: int
    addresses: Addresses  # where it looks for its elements, (rows, k)
    written: Addresses


def diagnosed(read: Read, tile: WrittenTile, *, flip: bool) -> Diagnosis:
    """The likely cause; with `flip`, the map's innermost dimension may be the other one of the tile."""
    reader, is_layout = read.reader, isinstance(read.reader, Layout)
    if not is_layout and tile.swizzle.bits == 0 and tile.row_bytes not in (0, CHUNK_BYTES):
        return _plain_rows(reader.swizzle, tile)
    missing = read.written == NOT_WRITTEN
    only_missing = missing.any() and bool((read.addresses == read.written)[~missing].all())
    fitting = _fitting_layouts(read, tile.swizzle) if is_layout else _fitting_descriptors(read, tile, flip=flip)
    fits = [(right, major, changes) for right, major in fitting if (changes := _changes(read, right, major))]
    if fits and not only_missing:
        right, major, changes = min(fits, key=lambda fit: len(fit[2]))
        by_address = {"leading-bytes": _LEADING_ADDRESS} if not is_layout and reader.leading_is_address else {}
        table = (_LAYOUT_SENTENCES if is_layout else _FIELD_SENTENCES) | by_address
        if "leading-stride-exchanged" in changes:  # also the one that this read does not reach
            right = replace(right, leading_bytes=reader.stride_bytes, stride_bytes=reader.leading_bytes)
        sentences = [
            table[cause].format(right=value, wrong=wrong, writer=tile.writer)
            for cause, (value, wrong) in changes.items()
        ]
        if flip and "majorness" in changes:  # nobody said which dimension of the map is innermost
            sentences.append(_INNERMOST_UNSAID.format(dimension="k" if read.major == "K" else "mn", major=read.major))
        return Diagnosis(next(iter(changes)), " ".join(sentences), right, major)
    if missing.any():
        mn, k = tile.addresses.shape
        said = f"Not written: the tile has {mn} x {k} elements (mn x k), fewer than are read. Copy more, or read less"
        others = [
            f', or pass major="{major}" if the tile is {major}-major' for right, major, _ in fits if right == reader
        ]
        return Diagnosis("not-written", said + "".join(others[:1]) + ".")
    if is_layout:
        return Diagnosis("several", "More than one thing differs between the tile and the layout.")
    name = f"{reader.form.instruction} descriptor"
    if tile.swizzle.name != reader.swizzle.name:
        sentence = f"Swizzle mode: {tile.writer} wrote with swizzle {tile.swizzle.name}, which no {name} reads here."
        return Diagnosis("swizzle-mode", sentence)
    return Diagnosis("several", f"More than one thing differs: no single {name} reads this tile.")


def _plain_rows(swizzle: Swizzle, tile: WrittenTile) -> Diagnosis:
    """Rows without swizzle that are no core matrices: no descriptor reads them."""
    span, is_tma = swizzle.span_bytes or CHUNK_BYTES, tile.writer == "TMA"
    wide: Cause = "box-wider-than-atom" if tile.row_bytes > span else "swizzle-mode"
    cause: Cause = wide if swizzle.bits else "none-against-none"
    box = f"box[0] = {span * 8 // tile.element_bits}" if is_tma else f"rows of {span} bytes"
    where = "the tensor map" if is_tma else tile.writer
    return Diagnosis(cause, _PLAIN_SENTENCES[cause].format(
        writer=tile.writer, row_bytes=tile.row_bytes, span=span, box=box, swizzle=swizzle.name, where=where
    ))  # fmt: skip


def _fitting_layouts(read: Read, swizzle: Swizzle) -> Iterator[tuple[Layout, Major | None]]:
    """The layout with its swizzle, start, atom order or majorness changed, where that is what was written."""
    layout: Layout = read.reader
    bits, start, (mn, k) = layout.element_bits, layout.start, layout.shape
    tried = [
        Layout.from_modes(layout.bit_modes, bits, unit_bits=1, swizzle=swizzle, start=start),
        layout.with_start(max(0, layout.swizzle.apply(int(read.written[0, 0])))),
    ]
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        for form in (canonical, CanonicalLayout("MN" if layout.major == "K" else "K", layout.swizzle, bits)):
            if mn % form.atom[0] == 0 == k % form.atom[1]:
                tried += [form.tile((mn, k), atom_order=order, start=start) for order in ATOM_ORDERS]
    for changed in tried:
        if (changed.addresses() == read.written).all():
            yield changed, changed.major


def _fitting_descriptors(read: Read, tile: WrittenTile, *, flip: bool) -> Iterator[tuple[OperandDescriptor, Major]]:
    """The descriptors that read what was written, and their majorness."""
    other: Major = "MN" if read.major == "K" else "K"
    views: list[tuple[Major, Addresses]] = [(read.major, read.written), (other, read.written)]
    if flip:  # which dimension is innermost in the map is unknown: try the other one too
        (k, rows), wanted = tile.addresses.shape, read.written.shape
        shape = min(wanted[0], rows), min(wanted[1], k)
        views.append((other, tile.part(read.origin[::-1], shape, turned=True)))
    for major, written in views:
        for base_offset in dict.fromkeys((read.reader.base_offset, 0)):
            try:
                fitted = _fitted(read, major, written, tile.swizzle, base_offset)
                rows, k = written.shape
                agrees = (fitted.addresses(major, rows, k, read.element_bits) == written).all()
            except RuleError:  # no field holds such a value, or no instruction reads so
                continue
            if agrees:
                yield fitted, major


def _fitted(read: Read, major: Major, written: Addresses, swizzle: Swizzle, base_offset: int) -> OperandDescriptor:
    """The descriptor of this swizzle and base offset that reads the first elements where they were written."""
    aimed: OperandDescriptor = replace(read.reader, swizzle=swizzle, base_offset=base_offset)
    layout, logical = aimed.layout(major, read.element_bits), aimed.physical(written)
    start = int(logical[0, 0])

    def reached(step: tuple[int, int] | None, otherwise: int, origin: int = start) -> int:
        beyond = step is None or step[0] >= written.shape[0] or step[1] >= written.shape[1]
        return otherwise if beyond else int(logical[step]) - origin

    leading = reached(layout.leading_step, aimed.leading_bytes)
    if aimed.leading_is_address:
        seam = (0, (SMEM_LINE_BYTES - start % SMEM_LINE_BYTES) * 8 // read.element_bits)
        leading = reached(seam, aimed.leading_bytes, origin=0)
    stride = reached(layout.stride_step, aimed.stride_bytes)
    return replace(aimed, start_address=start, leading_bytes=leading, stride_bytes=stride)


def _changes(read: Read, right: Any, major: Major | None) -> dict[Cause, tuple[Any, Any]]:
    """What is right and what is wrong, by cause, the most important first."""
    wrong = read.reader
    pairs: dict[Any, tuple[Any, Any]] = {"swizzle-mode": (right.swizzle.name, wrong.swizzle.name)}
    if isinstance(wrong, Layout):
        pairs["start-address"] = right.start, wrong.start
        if right.pairs != wrong.pairs:
            pairs |= {"majorness": (right.major, wrong.major), "atom-order": (right.atom_order, wrong.atom_order)}
    else:
        pairs |= {
            "majorness": (major, read.major),
            "start-address": (right.start_address, wrong.start_address),
            "base-offset": (right.base_offset, wrong.base_offset),
        }
        swapped = {"leading_bytes": wrong.stride_bytes, "stride_bytes": wrong.leading_bytes}
        looked_at = [name for name in swapped if name not in right.ignored_fields(major)]
        moved = {name: getattr(right, name) for name in looked_at if getattr(right, name) != getattr(wrong, name)}
        if moved and moved.items() <= swapped.items():
            pairs["leading-stride-exchanged"] = tuple(swapped.values())
        else:
            pairs |= {name.replace("_", "-"): (value, getattr(wrong, name)) for name, value in moved.items()}
    order: tuple[Cause, ...] = (*_FIELD_SENTENCES, "atom-order")
    return {cause: pairs[cause] for cause in order if cause in pairs and pairs[cause][0] != pairs[cause][1]}


def wrong_half(source: AnyMap | Layout, tile: WrittenTile, major: Major, cta_rank: Any) -> Diagnosis | None:
    """The mistake if the copies bring the rows of the pair's other block; None if they bring this block's own."""
    cta_rank = one_of("cta_rank", cta_rank, (0, 1))
    rank = None if isinstance(source, Layout) else source.rank
    if rank != 2:
        found = "a layout, which names no coordinates" if rank is None else f"a map of rank {rank}"
        limit = "rows are counted by the coordinates of a rank-2 map"
        raise ARGUMENT_RANGE.error("cta_rank", found, limit, "Leave cta_rank out.", rank=rank)
    brought, rows = min(coords[1 if major == "K" else 0] for coords, _ in tile.copies), tile.addresses.shape[0]
    own = brought // (2 * rows) * 2 * rows + cta_rank * rows
    if brought == own:
        return None
    return Diagnosis("pair-half", (
        f"Half of the pair: block {cta_rank} brings mn {brought} to {brought + rows - 1}, and holds mn {own} to {own + rows - 1} of the "
        f"pair's {2 * rows}. Copy from coordinate {own}."
    ))  # fmt: skip
