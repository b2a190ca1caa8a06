"""Why a descriptor or a layout does not read a tile where it was written.

    written addresses ──▶ the descriptor that reads them, if there is one ──▶ the fields that differ

    (mn 0, k 0) written at 0x490, read at 0x480     with base offset 0 the descriptor fits; it says 1: base offset

From the addresses of a few elements follow start, leading and stride; the rest is trial: the other majorness, base offset 0,
the swizzle that TMA wrote with. A layout is tried with one thing changed. If nothing fits, the copies are to blame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from tilescope.errors import RuleError
from tilescope.layout import ATOM_ORDERS, Layout, Major
from tilescope.mma.canonical import CanonicalLayout
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.written_tile import NOT_WRITTEN, Addresses, WrittenTile
from tilescope.reading import one_of
from tilescope.rule import ARGUMENT_RANGE
from tilescope.sentence import fill_template
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle
from tilescope.tensor_map import AnyMap

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
    "majorness": 'Majorness: the tile is {right}-major, and is read as {wrong}-major. Use {major:="{right}"}.',
    "swizzle-mode": "Swizzle mode: {writer} wrote {right}, the descriptor reads {wrong}. Use swizzle {right}.",
    "leading-stride-exchanged": "Leading and stride are in each other's role: use {leading_bytes:={right}}, {stride_bytes:={wrong}}.",
    "base-offset": (
        "Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says {wrong}. "
        "Use {base_offset:={right}}."
    ),
    "start-address": (
        "Start address: the first element was written for start {right:#x}, the descriptor says {wrong:#x}. "
        "Use {start_address:={right:#x}}."
    ),
    "leading-bytes": "Leading: the neighbour is {right} bytes away, not {wrong}. Use {leading_bytes:={right}}.",
    "stride-bytes": "Stride: the neighbour is {right} bytes away, not {wrong}. Use {stride_bytes:={right}}.",
}
_INNERMOST_UNSAID = (
    "If the map's innermost dimension is {dimension}, pass "
    '{tile_major:="{major}"}: then the copies write to the wrong place.'
)
_LEADING_ADDRESS = "Leading: the neighbour begins at {right:#x}, not {wrong}. Use {leading_bytes:={right}}."
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
    "Half of the pair: block {cta_rank} loads mn {brought} to {brought_last}, and holds mn {own} to {own_last} of the "
    "pair's {pair_rows}. Copy from coordinate {own}."
)


class Diagnosis(NamedTuple):
    """What is likely wrong, and what would be right."""

    cause: Cause
    sentence: str
    correction: OperandDescriptor | Layout | None = None  # what reads the tile as it was written
    correction_major: Major | None = None  # as which it does


class Read(NamedTuple):
    """The elements of a tile that an instruction reads, or a layout's addresses of all of them; and where they were written."""

    reader: OperandDescriptor | Layout
    major: Major
    origin: tuple[int, int]  # (mn, k) of its first element
    element_bits: int
    addresses: Addresses  # where it looks for its elements, (rows, k)
    written: Addresses

    @property
    def is_only_cut_short(self) -> bool:
        """Whether everything that was written is read from its place."""
        is_written = self.written != NOT_WRITTEN
        return not is_written.all() and bool((self.addresses == self.written)[is_written].all())


class FieldChange(NamedTuple):
    """A field of a descriptor or a layout: the correct value, and the actual one."""

    cause: Cause
    right: int | str | None
    wrong: int | str | None


class Fit(NamedTuple):
    """A descriptor or a layout that reads a tile as it was written, and in what it differs from the one that does not."""

    right: OperandDescriptor | Layout
    major: Major | None
    changes: list[FieldChange]  # the most important first


def diagnose_operand(read: Read, tile: WrittenTile, *, flip: bool) -> Diagnosis:
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
        messages = [fill_template(sentences[change.cause], _facts(change, tile.writer)) for change in best.changes]
        if flip and any(change.cause == "majorness" for change in best.changes):
            dimension = "k" if read.major == "K" else "mn"  # the innermost dimension of the map was not specified
            messages.append(fill_template(_INNERMOST_UNSAID, {"dimension": dimension, "major": read.major}))
        return Diagnosis(best.changes[0].cause, " ".join(messages), best.right, best.major)
    if (read.written == NOT_WRITTEN).any():
        mn, k = tile.addresses.shape
        other_major = next((fit.major for fit in fits if fit.right == reader), None)
        return Diagnosis("not-written", fill_template(_NOT_WRITTEN, {"mn": mn, "k": k, "major": other_major}))
    return _describe_unexplained(reader, tile)


def _facts(change: FieldChange, writer: str) -> dict[str, int | str | None]:
    return {"right": change.right, "wrong": change.wrong, "writer": writer}


def _describe_unexplained(reader: OperandDescriptor | Layout, tile: WrittenTile) -> Diagnosis:
    """The message if no single change makes the reader match."""
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
    return Diagnosis(cause, fill_template(_PLAIN_SENTENCES[cause], facts))


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
                fitted = _fit_descriptor(aimed, major, written, read.element_bits)
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


def _fit_descriptor(aimed: OperandDescriptor, major: Major, written: Addresses, element_bits: int) -> OperandDescriptor:
    """The descriptor with this swizzle and base offset that reads the first elements where they were written."""
    layout = aimed.layout(major, element_bits)
    logical = aimed.physical(written)
    start = int(logical[0, 0])

    def address_of(step: tuple[int, int] | None) -> int | None:
        """The place of the element at (mn, k); None if it is not read."""
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
    if right.stride_bytes != wrong.stride_bytes:  # which no mode ignores
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
    """The mistake if the copies load the rows of the pair's other block; None if they load this block's own."""
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
    first_loaded = min(copy.coords[1 if major == "K" else 0] for copy in tile.copies)
    rows = tile.addresses.shape[0]
    first_own = first_loaded // (2 * rows) * 2 * rows + cta_rank * rows
    if first_loaded == first_own:
        return None
    facts = {
        "cta_rank": cta_rank,
        "brought": first_loaded,
        "brought_last": first_loaded + rows - 1,
        "own": first_own,
        "own_last": first_own + rows - 1,
        "pair_rows": 2 * rows,
    }
    return Diagnosis("pair-half", fill_template(_PAIR_HALF, facts))
