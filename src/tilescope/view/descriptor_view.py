"""The drawing of tensor-core descriptors: a word as a bit ruler, the bytes it reads, the words of a K loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from tilescope.bits import Inspection
from tilescope.errors import Violation
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.instruction_descriptor import InstructionDescriptor, inspect_instruction_descriptor
from tilescope.mma.readings import WordReadings, inspect_descriptor
from tilescope.mma.tmem_address import TmemAddress, inspect_tmem_address
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES, WORD_BITS
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.mbarrier_view import barrier_readings, reading_parts
from tilescope.view.memory_grid import chunk_bytes
from tilescope.view.parts import Beside, Paragraph, Part, Table
from tilescope.view.ruler import BitField, BitRuler
from tilescope.view.tensor_map_view import findings, in_words, map_title

_ROWS_BESIDE = 16  # rows of one grid of addresses; the next stands beside it
_MOST_STEPS = 64  # descriptors listed of a loop
_SHOWN_NAME = {  # of fields that are not shown by their own names
    "start_address": "start", "leading_bytes": "leading", "stride_bytes": "stride", "base_offset": "base offset",
    "leading_is_address": "leading mode", "m": "M", "n": "N", "k": "K", "a_type": "A type", "b_type": "B type", "d_type": "D type",
    "a_major": "A major", "b_major": "B major", "negate_a": "negate A", "negate_b": "negate B", "sparsity_selector": "selector",
    "max_shift": "max shift", "scale_type": "scale type", "a_scale_id": "A scale", "b_scale_id": "B scale",
}  # fmt: skip


def draw_operand_descriptor(descriptor: OperandDescriptor) -> Drawing:
    """The descriptor as a word, read as K-major with 16-bit elements.

    >>> from tilescope.mma.descriptor import WgmmaDescriptor
    >>> descriptor = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> draw_operand_descriptor(descriptor).title
    'wgmma descriptor 0x4000004000010040'
    """
    return draw_inspection(inspect_descriptor(descriptor.encode(), instruction=descriptor.form.instruction))


def draw_instruction_descriptor(descriptor: InstructionDescriptor) -> Drawing:
    """The descriptor as a word of its kind."""
    return draw_inspection(inspect_instruction_descriptor(descriptor.encode(), descriptor.mma_kind))


def draw_tmem_address(address: TmemAddress) -> Drawing:
    """The address as a word."""
    return draw_inspection(inspect_tmem_address(address.encode()))


def draw_inspection(word: Inspection, rows: int | None = None) -> Drawing:
    """The fields of a word; with `rows`, also the address of every 16 bytes that one instruction reads."""
    if word.bits == DESCRIPTOR_BYTES * 8:
        wrong = {violation.argument for violation in word.violations if violation.severity == "error"}
        title, said = (
            "Not a tensor map",
            "These 128 bytes are no tensor map of sm_90. As one, they would say what the fields below say.",
        )
        if word.tensor_map is not None:
            title, said = map_title(word.tensor_map), in_words(word.tensor_map)
        return Drawing(title, (Paragraph(said), *findings(word.violations), word_ruler(word, "The descriptor", wrong)))
    return Drawing(f"{word.name} {word.word:#0{word.bits // 4 + 2}x}", tuple(_word_parts(word, rows)))


def draw_word_readings(found: WordReadings, rows: int | None = None) -> Drawing:
    """What a number could be: every kind with its verdict, and the fields of those that it can be; mbarriers too.

    >>> from tilescope.mma.readings import descriptor_readings
    >>> draw_word_readings(descriptor_readings(0x4000404000010040)).title
    '0x4000404000010040: a tcgen05 descriptor'
    """
    possible, barriers = found.possible, barrier_readings(found.word)
    if barriers and not possible:
        title = " or ".join(f"an {name}" for name in barriers)
    elif len(possible) == 1:
        title = f"a {possible[0].name}" + "".join(f", or an {name}" for name in barriers)
    else:
        noun = "word" if any(isinstance(each.described, TmemAddress) for each in possible) else "descriptor"
        title = f"could be {len(possible)} kinds of {noun}" if possible else "no descriptor"
    verdicts = Table(
        tuple((each.name, "yes" if each.sound else "no", _verdict(each)) for each in found.readings)
        + tuple((name, "yes", each.state) for name, each in barriers.items()),
        ("read as", "", "what it says, or why it is none"),
    )
    parts: list[Part] = [verdicts]
    for reading in possible or (() if barriers else found.readings[:1]):
        if len(possible) + len(barriers) > 1:
            parts.append(Paragraph(f"As a {reading.name}:"))
        parts += _word_parts(reading, rows)
    parts += reading_parts(found.word, barriers)
    return Drawing(f"{found.word:#x}: {title}", tuple(parts))


def _verdict(reading: Inspection) -> str:
    return str(reading.descriptor) if reading.sound else f"{reading.violations[0].found}; {reading.violations[0].limit}"


def _word_parts(word: Inspection, rows: int | None) -> list[Part]:
    parts: list[Part] = []
    if not word.sound:
        parts.append(Paragraph(f"Not a {word.name}. As one, it would say:"))
    elif word.major is not None:
        said = f"Read as {word.major}-major with {word.element_bits}-bit elements (the instruction decides that, not the word)."
        parts.append(Paragraph(said))
    elif isinstance(word.described, TmemAddress):
        said = f"{word.descriptor}. One 32-bit cell of a lane; tcgen05.ld and st add their own lanes and columns to it."
        parts.append(Paragraph(said))
    elif word.descriptor is not None:
        parts.append(Paragraph(f"{word.descriptor}; for {', '.join(word.descriptor.forms)}."))
    parts.append(word_ruler(word))
    if word.violations:
        parts.append(_findings(word.violations))
    if rows is not None and word.major is not None and word.descriptor is not None:
        parts += _addresses(word.descriptor, word, rows)
    return parts


def draw_descriptor_loop(loop: DescriptorLoop) -> Drawing:
    """What leading and stride connect, the first descriptor, and the start of every other."""
    tile, layout = loop.layout, loop.canonical
    mn, k = tile.shape
    title = f"{loop.instruction}: descriptors of {loop.operand}, {mn} x {k} {loop.data_type.name} (mn x k)"
    sentence = f"{layout.major}-major {layout.mode}, atoms in {tile.atom_order} order, {tile.size_bytes} bytes."
    instruction = loop.described.form.instruction
    first = inspect_descriptor(
        loop[0][0].encode(), major=layout.major, element_bits=layout.element_bits, instruction=instruction
    )
    warned = (_findings(loop.findings),) if loop.findings else ()
    ruler = word_ruler(first, "The first descriptor")
    return Drawing(title, (Paragraph(sentence), *warned, Table(loop.facts), ruler, _steps(loop)))


def word_ruler(word: Inspection, title: str = "", wrong: Collection[str] = ()) -> BitRuler:
    """The fields of a word or a tensor map to scale; those named in `wrong` are marked."""
    is_map = word.bits == DESCRIPTOR_BYTES * 8
    fields = [
        BitField(
            field.bit, field.bit + field.width_bits - 1, _SHOWN_NAME.get(field.name, field.name),
            str(field.raw) if is_map and field.raw < 10 else hex(field.raw), field.meaning,
            "unused" if field.name in word.ignored else None, "collision" if field.name in wrong else "",
        )
        for field in word.fields
    ]  # fmt: skip
    name, meaning = ("unknown", "part of no field") if is_map else ("reserved", "must be 0")
    for first, last in _runs(word.unknown_bits):
        fields.append(BitField(first, last, name, "set", meaning, "collision", "collision"))
    if is_map:
        return BitRuler(title, tuple(fields), bits=word.bits, notes=("Bits without a name are zero.",))
    names = {field.name for field in word.fields}
    note = "Unnamed bits are 0."
    if word.major is not None:
        note = "Start, leading and stride are stored divided by 16; unnamed bits are 0."
    elif "m" in names:
        note = "N is stored divided by 8, M by 16 or 128; unnamed bits are 0."
    return BitRuler(title, tuple(fields), bits=word.bits, row_bits=word.bits, notes=(note,))


def _runs(bits: Iterable[int]) -> list[tuple[int, int]]:
    """Neighbouring bits of one word as first and last."""
    runs: list[tuple[int, int]] = []
    for bit in bits:
        if runs and bit == runs[-1][1] + 1 and bit % WORD_BITS:
            runs[-1] = runs[-1][0], bit
        else:
            runs.append((bit, bit))
    return runs


def _findings(findings: tuple[Violation, ...]) -> Table:
    rows = tuple((finding.severity, f"{finding.found}; {finding.limit}. {finding.fix}") for finding in findings)
    return Table(rows, title="What to look at")


def _addresses(descriptor: OperandDescriptor, word: Inspection, rows: int) -> list[Part]:
    assert word.major is not None
    assert word.element_bits is not None  # an operand's word
    layout, bits = descriptor.layout(word.major, word.element_bits), word.element_bits
    k = K_STEP_BYTES * 8 // bits
    addresses = descriptor.addresses(word.major, rows, k, bits)
    per_chunk = CHUNK_BYTES * 8 // bits
    drawn = addresses if layout.major == "K" else addresses.T
    chunk_addresses = drawn[:, ::per_chunk].tolist()
    names = ("mn", "k") if layout.major == "K" else ("k", "mn")
    headers = tuple(
        Header(f"{first}-{first + per_chunk - 1}", short=str(first)) for first in range(0, drawn.shape[1], per_chunk)
    )
    grids = []
    for first in range(0, len(chunk_addresses), _ROWS_BESIDE):
        lines = []
        for number, places in enumerate(chunk_addresses[first : first + _ROWS_BESIDE], first):
            cells = tuple(_address_cell(place) for place in places)
            lines.append(Row((str(number),), cells, ruled=number % layout.atom_rows == 0 and number > first))
        grids.append(Grid("", (Tier(names[1], headers),), tuple(lines), (names[0],)))
    said = (
        f"One instruction reads {rows} x {k} elements (mn x k), {rows * k * bits // 8} bytes: "
        "the address of every 16-byte chunk, coloured by the four banks that hold it."
    )
    return [Paragraph(said), Beside(tuple(grids)) if len(grids) > 1 else grids[0]]


def _address_cell(address: int) -> Cell:
    return Cell(f"{address:#06x}", address % SMEM_LINE_BYTES // CHUNK_BYTES, title=chunk_bytes(address))


def _steps(loop: DescriptorLoop) -> Table:
    rows = []
    for block, descriptors in enumerate(loop):
        starts = [each.start_address for each in descriptors]
        advances = ["", *(f"+{after - before}" for before, after in pairwise(starts))]
        for step, (descriptor, advance) in enumerate(zip(descriptors, advances, strict=True)):
            first_mn, first_k = block * loop.block_mn, step * loop.k_per_step
            spans = f"{first_mn}-{first_mn + loop.block_mn - 1}", f"{first_k}-{first_k + loop.k_per_step - 1}"
            rows.append((*spans, f"{descriptor.start_address:#x}", advance, f"{descriptor.encode():#018x}"))
    notes = (f"The first {_MOST_STEPS} of {len(rows)}.",) if len(rows) > _MOST_STEPS else ()
    headings = ("mn", "k", "start", "k step", "descriptor")
    return Table(tuple(rows[:_MOST_STEPS]), headings, title="Every block of mn and K step", align="rrrrl", notes=notes)
