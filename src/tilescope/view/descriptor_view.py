"""The drawings of words: descriptors and mbarriers as bit rulers, what a K loop reads, whether copies agree with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tilescope.bits import Inspection
from tilescope.layout import Layout, Major, oriented
from tilescope.mma.consumer import Tcgen05Loop, Tcgen05PairLoop, WgmmaLoop
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.mma.instruction_descriptor import InstructionDescriptor, inspect_instruction_descriptor
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import OperandDescriptor, Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.readings import WordReadings, inspect_descriptor
from tilescope.mma.smem_agreement import Agreement
from tilescope.mma.tmem_address import TmemAddress, inspect_tmem_address
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.sync.mbarrier import Mbarrier, MbarrierToken, barrier_readings
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid, Header
from tilescope.view.memory_grid import chunk_bytes, lines_of_bytes, memory_grid
from tilescope.view.number_span import extent
from tilescope.view.palette import Tint
from tilescope.view.ruler import BitField, BitRuler
from tilescope.view.tensor_map_view import findings, in_words, map_title, severities
from tilescope.view.walk_step import Step
from tilescope.view.word_ruler import is_tensor_map, map_bytes, map_ruler, word_ruler

_ROWS_BESIDE = 16  # rows of one grid of addresses; the next is beside it
_MAX_STEPS = 64  # descriptors listed of a loop
_MAX_LINES = 256  # of shared memory
_PATTERN_LINES = 8
_STALE = (
    "The state of a live barrier is not in memory: plain loads, atomics and bulk stores show stale bytes. "
    "mbarrier.inval writes it back; the token of mbarrier.arrive holds it from bit 32 on."
)


def draw_descriptor(descriptor: OperandDescriptor | InstructionDescriptor | TmemAddress) -> Drawing:
    """The descriptor, or the address in tensor memory, as a word; an operand's is read as K-major with 16-bit elements.

    >>> from tilescope.mma.operand_descriptor import WgmmaDescriptor
    >>> descriptor = WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> draw_descriptor(descriptor).title
    'wgmma descriptor 0x4000004000010040'
    """
    if isinstance(descriptor, TmemAddress):
        return draw_inspection(inspect_tmem_address(descriptor.encode()))
    if isinstance(descriptor, InstructionDescriptor):
        return draw_inspection(inspect_instruction_descriptor(descriptor.encode(), descriptor.mma_kind))
    return draw_inspection(_inspect(descriptor, "K", 16))


def draw_inspection(word: Inspection, *, rows: int | None = None, show_bytes: bool = False) -> Drawing:
    """The fields of a word or a tensor map.

    With `rows`, also the address of every 16 bytes that one instruction reads; with `show_bytes`, those of a map.
    """
    if not is_tensor_map(word):
        return Drawing(f"{word.name} {word.word:#0{word.bits // 4 + 2}x}", _word_parts(word, rows))
    title = "Not a tensor map"
    summary = "These 128 bytes are not a tensor map of sm_90. The fields below show how they would be read as one."
    if word.tensor_map is not None:
        title = map_title(word.tensor_map)
        summary = in_words(word.tensor_map)
    ruler = map_ruler(word)
    return Drawing(
        title,
        {
            "words": summary,
            "findings": findings(word.violations),
            "bytes": map_bytes(word, ruler) if show_bytes else None,
            "ruler": ruler,
        },
    )


def draw_word_readings(readings: WordReadings, rows: int | None = None) -> Drawing:
    """What a number could be: every kind with its verdict, and the fields of those that it can be; mbarriers too.

    >>> from tilescope.mma.readings import descriptor_readings
    >>> draw_word_readings(descriptor_readings(0x4000404000010040)).title
    '0x4000404000010040: a tcgen05 descriptor'
    """
    barriers = barrier_readings(readings.word)
    parts: dict[str, Part | tuple[Part, ...]] = {"verdicts": _verdicts(readings, barriers)}
    described = readings.possible
    if not described and not barriers:
        described = readings.readings[:1]  # no kind fits: the reading of the first
    is_one_of_several = len(readings.possible) + len(barriers) > 1
    for word in described:
        heading = f"As a {word.name}:" if is_one_of_several else ""
        parts[word.name] = (heading, *_word_parts(word, rows).values())
    for name, barrier in barriers.items():
        parts[name] = (f"As an {name}:", *_barrier_parts(barrier, readings.word).values())
    return Drawing(f"{readings.word:#x}: {_kinds(readings, barriers)}", parts)


def _kinds(readings: WordReadings, barriers: Mapping[str, Mbarrier | MbarrierToken]) -> str:
    """What the number could be, in a few words."""
    possible = readings.possible
    if len(possible) > 1:
        noun = "word" if any(isinstance(word.described, TmemAddress) for word in possible) else "descriptor"
        return f"could be {len(possible)} kinds of {noun}"
    kinds = [f"an {name}" for name in barriers]
    if possible:
        return ", or ".join([f"a {possible[0].name}", *kinds])
    return " or ".join(kinds) or "no descriptor"


def _verdicts(readings: WordReadings, barriers: Mapping[str, Mbarrier | MbarrierToken]) -> Table:
    """Every kind with its verdict."""
    rows = []
    for word in readings.readings:
        if word.sound:
            rows.append((word.name, "yes", str(word.descriptor)))
        else:
            first = word.violations[0]
            rows.append((word.name, "no", f"{first.found}; {first.limit}"))
    for name, barrier in barriers.items():
        rows.append((name, "yes", barrier.state))
    return Table(rows, ("read as", "", "meaning, or why it does not apply"))


def _word_parts(word: Inspection, rows: int | None) -> dict[str, Part]:
    parts: dict[str, Part] = {
        "words": _word_sentence(word),
        "ruler": word_ruler(word),
        "findings": severities(word.violations),
    }
    return parts if rows is None else parts | _addresses(word, rows)


def _word_sentence(word: Inspection) -> str:
    """What a word of the tensor core is, or that it is none."""
    if not word.sound:
        return f"Not a {word.name}. As one, it would say:"
    if word.major is not None:
        read_as = f"{word.major}-major with {word.element_bits}-bit elements"
        return f"Read as {read_as} (the instruction decides that, not the word)."
    if isinstance(word.described, TmemAddress):
        return f"{word.described}. One 32-bit cell of a lane; tcgen05.ld and st add their own lanes and columns to it."
    if isinstance(word.described, InstructionDescriptor):
        return f"{word.described}; for {', '.join(word.described.forms)}."
    return ""


def draw_descriptor_loop(loop: DescriptorLoop, *, chunks: bool = False) -> Drawing:
    """What leading and stride connect, the first descriptor, and the start of every other.

    With `chunks`, shared memory is beside them: the K step that reads each chunk.
    """
    tile = loop.layout
    layout = loop.canonical
    mn, k = tile.shape
    title = f"{loop.instruction}: descriptors of {loop.operand}, {mn} x {k} {loop.data_type.name} (mn x k)"
    summary = f"{layout.major}-major {layout.mode}, atoms in {tile.atom_order} order, {tile.size_bytes} bytes."
    ruler = word_ruler(_inspect(loop[0][0], layout.major, layout.element_bits), "The first descriptor")
    return Drawing(
        title,
        {
            "layout": summary,
            "findings": severities(loop.findings),
            "facts": Table(loop.facts),
            "ruler": ruler,
            "steps": Beside({"chunks": k_step_grid(loop) if chunks else None, "steps": _steps(loop)}),
        },
    )


def walk_descriptor_loop(loop: DescriptorLoop, **_: object) -> Iterator[Step]:
    """Every K step of every block of mn."""
    for block, descriptors in enumerate(loop):
        mn = extent(block * loop.block_mn, loop.block_mn)
        for step, descriptor in enumerate(descriptors):
            k = extent(step * loop.k_per_step, loop.k_per_step)
            reads = f"start {descriptor.start_address:#x}, descriptor {descriptor.encode():#018x}"
            yield Step(step_link(block, step), f"mn {mn}, k {k}: {reads}")


def _inspect(descriptor: OperandDescriptor, major: Major, element_bits: int) -> Inspection:
    instruction = descriptor.form.instruction
    return inspect_descriptor(descriptor.encode(), major=major, element_bits=element_bits, instruction=instruction)


def _addresses(word: Inspection, rows: int) -> dict[str, Part]:
    """Where one instruction reads `rows` rows, chunk by chunk; nothing for words that are no operand's."""
    if word.major is None or word.element_bits is None or word.descriptor is None:
        return {}
    bits = word.element_bits
    layout = word.descriptor.layout(word.major, bits)
    k = K_STEP_BYTES * 8 // bits
    per_chunk = CHUNK_BYTES * 8 // bits
    read = word.descriptor.addresses(word.major, rows, k, bits)
    names = oriented(word.major, "mn", "k")  # of rows and columns
    drawn = read if word.major == "K" else read.T

    def cell(row: int, column: int) -> Cell:
        address = int(drawn[row, column])
        return Cell(f"{address:#06x}", address % SMEM_LINE_BYTES // CHUNK_BYTES, title=chunk_bytes(address))

    drawn_rows, elements = drawn.shape
    columns = {first: Header.of_numbers(first, per_chunk) for first in range(0, elements, per_chunk)}
    key = (
        f"One instruction reads {rows} x {k} elements (mn x k), {rows * k * bits // 8} bytes: "
        "the address of every 16-byte chunk, coloured by the four banks that hold it."
    )
    grids = {}
    for first in range(0, drawn_rows, _ROWS_BESIDE):
        band = range(first, min(first + _ROWS_BESIDE, drawn_rows))
        grids[f"rows {first}"] = Grid.of("", names, band, columns, cell, rule_every=layout.atom_rows)
    return {"key": key, "addresses": Beside(grids)}


def _steps(loop: DescriptorLoop) -> Table:
    records = []
    for block, steps in enumerate(loop):
        for step, descriptor in enumerate(steps):
            advance = f"+{descriptor.start_address - steps[step - 1].start_address}" if step else ""
            records.append(
                {
                    "mn": extent(block * loop.block_mn, loop.block_mn),
                    "k": extent(step * loop.k_per_step, loop.k_per_step),
                    "start": hex(descriptor.start_address),
                    "k step": advance,
                    "descriptor": f"{descriptor.encode():#018x}",
                }
            )
    return Table.of(records, "Every block of mn and K step", "rrrrl", most=_MAX_STEPS, noun="descriptors")


def step_link(block: int, step: int) -> str:
    """The word that links all chunks of one instruction's read.

    >>> step_link(0, 3)
    'mn0-k3'
    """
    return f"mn{block}-k{step}"


def k_step_grid(loop: DescriptorLoop) -> Grid:
    """Which bytes each K step reads: shared memory from the operand's first line on, a cell for a 16-byte chunk.

        bank       0-3  4-7  8-11 …
        0x0000      0    0    1       a cell says the K step, in its colour; the swizzle spreads a step over all banks
        0x0080      0    0    1
        0x0100      1    1    0

    >>> from tilescope.mma.consumer import wgmma_descriptors
    >>> grid = k_step_grid(wgmma_descriptors((64, 64), "bf16", swizzle="128B"))
    >>> [cell.text for cell in grid.rows[2].cells]
    ['1', '1', '0', '0', '3', '3', '2', '2']
    """
    addresses = loop.addresses()
    chunks, elements = np.unique(addresses.ravel() // CHUNK_BYTES, return_index=True)
    first_element = dict(zip((chunks * CHUNK_BYTES).tolist(), elements.tolist(), strict=True))

    def cell(address: int) -> Cell:
        if address not in first_element:
            return Cell("", "unused", title=f"{chunk_bytes(address)}: no K step reads them")
        mn, k = divmod(first_element[address], addresses.shape[1])
        block = mn // loop.block_mn
        step = k // loop.k_per_step
        title = f"{chunk_bytes(address)}: from mn {mn}, k {k}; read by K step {step} of block {block}"
        return Cell(str(step), step, title=title, link=step_link(block, step))

    return memory_grid(
        "Which K step reads each chunk",
        lines_of_bytes(int(addresses.min()), int(addresses.max()) + 1),
        cell,
        most=_MAX_LINES,
        period=_PATTERN_LINES,
        notes=("A cell is a 16-byte chunk and says which K step reads it.",),
    )


def draw_agreement(agreement: Agreement) -> Drawing:
    """Whether copies and descriptor agree: the verdict, the first difference, the descriptor and the one that fits.

    Fields that are wrong are marked.

    >>> from tilescope.mma.agreement import compatible
    >>> from tilescope.mma.operand_descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> draw_agreement(compatible(a, WgmmaDescriptor(0, leading_bytes=16, stride_bytes=512, swizzle="128B"))).title
    'The descriptor reads something else: stride-bytes'
    """
    sentence = agreement.sentence
    facts = _agreement_facts(agreement)
    if isinstance(agreement.descriptor, Layout):
        title = "The layout has the tile where it is stored"
        if not agreement.agrees:
            title = f"The layout is another: {agreement.cause}"
        return Drawing(title, {"sentence": sentence, "facts": facts})
    word = _inspect(agreement.descriptor, agreement.major, agreement.element_bits)
    if agreement.agrees:
        ruler = word_ruler(word, "The descriptor")
        return Drawing("Copies and descriptor agree", {"sentence": sentence, "ruler": ruler, "facts": facts})
    wrong: list[str] = []
    right_ruler = None
    if isinstance(agreement.correction, OperandDescriptor) and agreement.correction_major is not None:
        right = _inspect(agreement.correction, agreement.correction_major, agreement.element_bits)
        pairs = zip(word.fields, right.fields, strict=True)
        wrong = [
            field.name
            for field, right_field in pairs
            if field.raw != right_field.raw and field.name not in right.ignored
        ]
        if wrong:
            right_ruler = word_ruler(right, f"What reads these copies: {right.word:#018x}")
    return Drawing(
        f"The descriptor reads something else: {agreement.cause}",
        {
            "sentence": sentence,
            "facts": facts,
            "ruler": word_ruler(word, f"The descriptor: {word.word:#018x}", wrong),
            "right ruler": right_ruler,
        },
    )


def _agreement_facts(agreement: Agreement) -> Table:
    mn, k = agreement.shape
    facts = {"compared": f"{mn} x {k} elements (mn x k), read as {agreement.major}-major"}
    first = agreement.difference
    if first is not None:
        written = "by no copy" if first.written_address is None else f"at {first.written_address:#x}"
        lies_there = "nothing of the tile"
        if first.found is not None:
            found_mn, found_k = first.found
            lies_there = f"(mn {found_mn}, k {found_k})"
        facts |= {
            "differing": f"{agreement.differing} of {mn * k}",
            "first": f"(mn {first.mn}, k {first.k}): written {written}, read at {first.read_address:#x}",
            "lies there": lies_there,
            "cause": str(agreement.cause),
        }
    return Table(facts | {"basis": agreement.basis})


def draw_mbarrier(barrier: Mbarrier) -> Drawing:
    """The barrier's state in words, and its 64 bits.

    >>> draw_mbarrier(Mbarrier(1)).title
    'mbarrier 0x7ffff800001ffffe'
    """
    word = barrier.encode()
    return Drawing(f"mbarrier {word:#018x}", _barrier_parts(barrier, word))


def _barrier_parts(barrier: Mbarrier | MbarrierToken, word: int) -> dict[str, Part]:
    def field(low: int, high: int, name: str, meaning: str, colour: Tint) -> BitField:
        length = high + 1 - low
        raw = (word >> low) & ((1 << length) - 1)
        return BitField(low, high, name, str(raw) if low == high else hex(raw), meaning, colour)

    fields = [
        field(63, 63, "phase", "parity of the running phase", 0),
        field(43, 62, "- pending", f"arrivals missing: {barrier.pending}", 1),
    ]
    if isinstance(barrier, Mbarrier):
        fields.append(field(21, 41, "- bytes", f"bytes missing: {barrier.tx_bytes}", 4))
        fields.append(field(1, 20, "- expected", f"arrivals that end a phase: {barrier.count}", 5))
    else:
        meaning = f"bytes missing: {barrier.tx_bytes_lowest} to {barrier.tx_bytes_highest}"
        fields.append(field(32, 41, "- bytes, upper", meaning, 4))
        fields.append(field(0, 31, "no state", "the lower half of a token is not the state", "unused"))
    notes = ("Counts are stored negated; unnamed bits are 0.",)
    return {"state": f"It is in {barrier.state}. {_STALE}", "ruler": BitRuler("", tuple(fields), notes=notes)}


DRAWINGS = {
    Agreement: draw_agreement,
    Inspection: draw_inspection,
    InstructionDescriptor: draw_descriptor,
    Mbarrier: draw_mbarrier,
    Tcgen05Descriptor: draw_descriptor,
    Tcgen05Loop: draw_descriptor_loop,
    Tcgen05PairLoop: draw_descriptor_loop,
    TmemAddress: draw_descriptor,
    WgmmaDescriptor: draw_descriptor,
    WgmmaLoop: draw_descriptor_loop,
    WordReadings: draw_word_readings,
}
WALKS = {
    Tcgen05Loop: walk_descriptor_loop,
    Tcgen05PairLoop: walk_descriptor_loop,
    WgmmaLoop: walk_descriptor_loop,
}
