"""The first lines of answers about tensor cores: words, operands, fragments, tensor memory, descriptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.tmem_address import CELL_BITS, QUARTER_LANES, TMEM_COLUMNS
from tilescope.questions.first_lines import line, refused
from tilescope.questions.question import FirstLine
from tilescope.sentence import filled

if TYPE_CHECKING:
    from tilescope.mma.descriptor_loop import DescriptorLoop
    from tilescope.mma.fragment import Fragment
    from tilescope.mma.instruction_descriptor import InstructionDescriptor
    from tilescope.mma.readings import WordReadings
    from tilescope.mma.scale_layout import ScaleLayout
    from tilescope.mma.smem_agreement import Agreement
    from tilescope.mma.tmem_budget import TmemBudget
    from tilescope.mma.tmem_layout import TmemLayout
    from tilescope.mma.tmem_load import LoadedElement
    from tilescope.sync.mbarrier import Mbarrier, MbarrierToken

Barriers: TypeAlias = "Mapping[str, Mbarrier | MbarrierToken]"  # what a word says as one, by what it would be

_MOST_KINDS = 3  # of a word, that are named
_MOST_HELD = 4  # elements of a thread, that are named


def of_word(readings: WordReadings, barriers: Barriers) -> FirstLine:
    """What a number is."""
    kinds = _kinds(readings, barriers)
    said = [str(reading.descriptor) for reading in readings.possible]
    said += [barrier.state for barrier in barriers.values()]
    if not kinds:
        return refused(filled("{word:#x} is no descriptor", {"word": readings.word}), readings.readings[0].violations)
    if len(kinds) == 1:
        return line("{word:#x} is {kind}: {said}.", word=readings.word, kind=kinds[0], said=said[0])
    return line(
        "{word:#x} could be {count} things: {kinds:; }[[; or {more} more]]. As the first of them: {said}.",
        word=readings.word,
        count=len(kinds),
        kinds=tuple(kinds[:_MOST_KINDS]),
        more=max(0, len(kinds) - _MOST_KINDS),
        said=said[0],
    )


def _kinds(readings: WordReadings, barriers: Barriers) -> list[str]:
    """All that a number could be."""
    return [f"a {reading.name}" for reading in readings.possible] + [f"an {name}" for name in barriers]


def of_words(words: Sequence[tuple[WordReadings, Barriers]]) -> FirstLine:
    """What each of several numbers is: its first kind, and how many more there are."""
    told: list[str] = []
    for readings, barriers in words:
        first, *more = _kinds(readings, barriers) or ["no descriptor"]
        others = f" ({len(more)} other readings)" if len(more) > 1 else " (1 other reading)"
        told.append(f"{readings.word:#x}, {first}{others if more else ''}")
    return line("{count:word}: {told:; }.", count=len(told), told=tuple(told))


def of_fragment(held: Fragment, lane: int | None, element: tuple[int, int] | None) -> FirstLine:
    """Who holds an element, what a thread holds, or how much all of them hold."""
    if element is not None:
        thread, value = held.holder(*element)
        register, bit = held.register_of(value)
        return line(
            "Thread {thread} holds element {element}: value {value}, register {register}[[, {bits}]].",
            thread=thread,
            element=element,
            value=value,
            register=register,
            bits=_bits(bit, held.value_bits),
        )
    if lane is not None:
        return line(
            "Thread {lane} holds {values:element} in {registers:register}[[, as {order}]]: {coords:, }[[ and {more} more]].",
            lane=lane,
            values=held.values,
            registers=held.registers,
            order="(matrix, row, column)" if held.matrices > 1 else "",
            coords=tuple(_coord(held, lane, value) for value in range(min(held.values, _MOST_HELD))),
            more=max(0, held.values - _MOST_HELD),
        )
    return line(
        "{threads:thread} hold {values:value} each of {shape: x } {data_type}[[, {matrices:matrix|matrices}]], in "
        "{registers:register}.",
        threads=held.threads,
        values=held.values,
        shape=held.shape,
        data_type=held.content,
        matrices=held.matrices if held.matrices > 1 else 0,
        registers=held.registers,
    )


def _coord(held: Fragment, thread: int, value: int) -> tuple[int, ...]:
    """The row and column of a value, behind its matrix where there are several."""
    coord = held.coord(thread, value)
    return (held.matrix_of(thread, value), *coord) if held.matrices > 1 else coord


def _bits(first: int, count: int, whole: int = CELL_BITS) -> str:
    """Which bits of a register or cell an element takes; nothing where it fills it."""
    return "" if count >= whole else f"bits {first} to {first + count - 1}"


def of_tmem(matrix: TmemLayout, element: tuple[int, int] | None, loaded: LoadedElement | None) -> FirstLine:
    """Where a matrix or an element of it lies in tensor memory, and who gets the element by a load."""
    first, second = matrix.names[:2]
    if element is None:
        return line(
            "{operand} of {shape: x } ({names: x }) takes {columns:column} from {first_column} on and {lanes} lanes of "
            "tensor memory[[: layout {datapath}]].",
            operand=matrix.operand,
            shape=matrix.matrix,
            names=(first, second),
            columns=matrix.columns,
            first_column=matrix.base.column,
            lanes=len(matrix.lanes),
            datapath=matrix.datapath,
        )
    place = matrix.place(*element)
    asked = {"first": first, "row": element[0], "second": second, "column": element[1]}
    block = f"block {place.cta} of the pair" if matrix.ctas > 1 else ""
    if loaded is not None:
        return line(
            "Element ({first} {row}, {second} {column}) comes to warp {warp}, lane {lane}, register {register}"
            "[[, {bits}]][[ of {block}]], by {instruction} at {address:#010x}.",
            warp=loaded.warp,
            lane=loaded.lane,
            register=loaded.register,
            bits=_bits(loaded.bit, matrix.element_bits),
            block=block,
            instruction=loaded.instruction,
            address=loaded.address,
            **asked,
        )
    return line(
        "Element ({first} {row}, {second} {column}) lies in {lanes_word} {lanes:and}, column {place_column}[[, {bits}]]"
        "[[ of {block}]]: address {address:#010x}, which warp {warp} of four reaches.",
        lanes_word="lane" if len(place.lanes) == 1 else "lanes",
        lanes=place.lanes,
        place_column=place.column,
        bits=_bits(place.bit, matrix.element_bits),
        block=block,
        address=place.lanes[0] << 16 | place.column,
        warp=place.lanes[0] // QUARTER_LANES,
        **asked,
    )


def of_budget(budget: TmemBudget) -> FirstLine:
    """Whether the parts of a kernel fit into tensor memory together."""
    shared = sum(1 for part in budget.parts if part.lane)
    facts = {
        "parts": len(budget.parts),
        "columns": budget.columns,
        "most": TMEM_COLUMNS,
        "shared": shared,
        "alloc": budget.alloc_columns,
    }
    if budget.fits:
        return line(
            "{parts:part} fit: {columns} of {most} columns[[, {shared} of them in free lanes of another's columns]]; "
            "ask tcgen05.alloc for {alloc}.",
            **facts,
        )
    sentence = filled("{parts:part} do not fit: {columns} columns, tensor memory has {most}.", facts)
    return FirstLine(sentence, budget.violations[0].fix)


_SCALE_IN_MEMORY = (
    "The scale of row {row}, block {block} (k {first} to {last}) is byte {offset} ({offset:#x}) in memory"
)
TENSOR_CORE_ATOM = "128x4"  # in which tcgen05 finds scale factors


def of_scales(scales: ScaleLayout, block: tuple[int, int] | None) -> FirstLine:
    """Where the scale of a (row, block) lies, or how much room all scales take."""
    if block is None:
        return line(
            "{shape: x } scale factors of {scale_type}, one for {width} elements of k, take {size_bytes} bytes: {atoms: x } "
            "atoms of {atom}.",
            shape=scales.shape,
            scale_type=scales.format.scale_type,
            width=scales.format.block,
            size_bytes=scales.size_bytes,
            atoms=scales.atoms,
            atom=scales.atom.replace("x", " x "),
        )
    row, number = block
    width = scales.format.block
    in_memory = {
        "row": row,
        "block": number,
        "first": number * width,
        "last": number * width + width - 1,
        "offset": int(scales.offset(row, number)),
    }
    if scales.atom != TENSOR_CORE_ATOM:  # how others come to tensor memory stands in no document
        return line(f"{_SCALE_IN_MEMORY}.", **in_memory)
    place = scales.tensor_memory("A").place(row, number)
    return line(
        f"{_SCALE_IN_MEMORY}; in tensor memory it lies in lanes {{lanes:and}}, column {{column}}, byte {{byte}}.",
        **in_memory,
        lanes=place.lanes,
        column=place.column,
        byte=place.bit // 8,
    )


def of_instruction(descriptor: InstructionDescriptor) -> FirstLine:
    """The word of an instruction descriptor."""
    return line("{word:#010x} is the descriptor: {said}.", word=descriptor.encode(), said=str(descriptor))


def of_descriptors(loop: DescriptorLoop) -> FirstLine:
    """How many descriptors read a tile, the first of them, and what the instruction is told beside them."""
    return line(
        "{instruction} reads {operand} with {count:descriptor}, the first {word:#018x}: leading {leading}, stride {stride} "
        "bytes[[, K step {advance:, } bytes]], {transpose}.",
        instruction=loop.instruction,
        operand=loop.operand,
        count=sum(map(len, loop)),
        word=loop[0][0].encode(),
        leading=loop.leading_bytes,
        stride=loop.stride_bytes,
        advance=tuple(f"+{step}" for step in dict.fromkeys(loop.advance_bytes)),
        transpose=loop.transpose,
    )


def of_agreement(agreement: Agreement) -> FirstLine:
    """Whether a descriptor reads what the copies wrote."""
    if agreement.agrees:
        return line(
            "The descriptor reads what was copied: all {shape: x } elements (mn x k) agree.", shape=agreement.shape
        )
    difference = agreement.difference
    count = agreement.shape[0] * agreement.shape[1]
    sentence = filled(
        "The descriptor reads something else[[ ({cause})]]: {differing} of {count:element} differ[[, the first (mn {mn}, k "
        "{k}) written at {written}, read at {read}]].",
        {
            "cause": agreement.cause,
            "differing": agreement.differing,
            "count": count,
            "mn": "" if difference is None else str(difference.mn),
            "k": "" if difference is None else str(difference.k),
            "written": "" if difference is None else _written_at(difference.written_address),
            "read": "" if difference is None else hex(difference.read_address),
        },
    )
    return FirstLine(sentence, _correction(agreement))


def _written_at(address: int | None) -> str:
    return "no address at all" if address is None else hex(address)


def _correction(agreement: Agreement) -> str:
    """What reads the tile as it was written."""
    right = agreement.correction
    if not isinstance(right, OperandDescriptor):
        return "Change the copies: no descriptor reads the tile as they write it."
    facts = {"word": right.encode(), "said": str(right), "major": ""}
    if agreement.correction_major != agreement.major:
        facts["major"] = agreement.correction_major
    return filled("Use {word:#018x}: {said}[[, read as {major}-major]].", facts)
