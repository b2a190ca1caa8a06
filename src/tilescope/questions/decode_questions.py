"""The question about words and bytes: the fields of a tensor map, a descriptor word or an mbarrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from struct import unpack
from typing import ClassVar, TypeAlias

from tilescope.bits import Inspection
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.readings import WordReadings, descriptor_readings
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.map_questions import describe_map
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Question, flag, refuse
from tilescope.questions.shared_inputs import MAJOR, TYPE
from tilescope.sentence import counted, fill_template
from tilescope.sync.mbarrier import Mbarrier, MbarrierToken, barrier_readings
from tilescope.tensor_map import MapLog, TensorMap, descriptor_bytes, inspect_tensor_map
from tilescope.tensor_map.text.map_log import lines_in_words
from tilescope.tensor_map.text.pasted_source import MapSource
from tilescope.value import Value
from tilescope.written import number, word

HALF_BITS = 32
WORD_TYPE = replace(TYPE, unsaid="bf16")
ROWS = Input("rows", "--rows", "mn that the instruction reads", read=number)
ADDRESSES = Input(
    "addresses", "--addresses", "List the address of every 16 bytes that one instruction reads", read=flag
)
WORD_OPTIONS = (MAJOR, WORD_TYPE, ROWS, ADDRESSES)


Barriers: TypeAlias = Mapping[str, Mbarrier | MbarrierToken]  # the description of a word, by its possible kinds
_MOST_KINDS = 3  # of a word, that are named


@dataclass(frozen=True, slots=True)
class DecodedEntry(Value):
    """A map of a log, or one of several words, field by field."""

    lines: tuple[int, ...]  # that hold it, from 1; of words, their places
    title: str  # what it is, in a line
    decoded: Value  # an inspection of a map, or everything that a word could be


@dataclass(frozen=True, slots=True)
class DecodedLog(Value):
    """Several maps or words, each decoded."""

    _derived: ClassVar[tuple[str, ...]] = ("total",)

    entries: tuple[DecodedEntry, ...]
    refused_lines: tuple[int, ...]  # of maps that the driver refuses, or that are not encoded: they have no bytes

    @property
    def total(self) -> int:
        """How many maps or words there are, equal ones counted as often as they are there."""
        return sum(len(entry.lines) for entry in self.entries) + len(self.refused_lines)


def answer(asked: Asked) -> Answer:
    """The meaning of the bits: `word` is one number, `several` are numbers, `source` is a map in bytes or words, or a log."""
    if "several" in asked:
        _refuse_picture(asked)
        return _several_answer(asked)
    if "word" in asked:
        return _word_answer(asked)
    source: MapSource = asked["source"]
    for row in WORD_OPTIONS:
        refuse(
            row.name in asked, f"{row.option} is for the word of a descriptor; a tensor map has nothing of the kind."
        )
    if len(source.asked) == 1 or source.blob is not None:
        return _map_answer(source)
    _refuse_picture(asked)
    return _log_answer(source)


def _refuse_picture(asked: Asked) -> None:
    """One picture has no room for several maps or words."""
    refuse("svg" in asked, "--svg draws one map or word; name one of them, such as FILE:3.")


def _log_answer(source: MapSource) -> Answer:
    """The bytes of each map of a log, field by field."""
    below: list[Answer] = []
    entries: list[DecodedEntry] = []
    refused: list[int] = []
    for logged in MapLog.of(source).maps:
        try:
            decoded = inspect_tensor_map(logged.asked.tensor_map().encode())
        except RuleError:
            refused.extend(logged.lines)
            continue
        heading = FirstLine(f"{lines_in_words(logged.lines).capitalize()}: {logged.map}.")
        below.append(Answer(decoded, first=heading))
        entries.append(DecodedEntry(logged.lines, logged.map, decoded))
    log = DecodedLog(tuple(entries), tuple(sorted(refused)))
    first = FirstLine(_decoded_summary(log))
    return Answer(log, first=first, is_yes=not refused, text=first.sentence, below=tuple(below))


def _several_answer(asked: Asked) -> Answer:
    """Everything that each of several words could be; of the halves of a descriptor, what the whole is."""
    joined = joined_halves(asked["several"])
    if joined is not None:
        return _word_answer(asked.saying(word=joined))
    places_by_value: dict[int, list[int]] = {}
    for place, value in enumerate(asked["several"], 1):
        places_by_value.setdefault(value, []).append(place)
    answers = [_word_answer(asked.saying(word=value)) for value in places_by_value]
    entries = [
        DecodedEntry(tuple(places), f"{value:#x}", word_answer.value)
        for (value, places), word_answer in zip(places_by_value.items(), answers, strict=True)
    ]
    log = DecodedLog(tuple(entries), ())
    is_yes = all(word_answer.is_yes for word_answer in answers)
    first = _summarize_words([(descriptor_readings(value), barrier_readings(value)) for value in places_by_value])
    return Answer(log, first=first, is_yes=is_yes, text=first.sentence, below=tuple(answers))


def joined_halves(words: Sequence[int]) -> int | None:
    """The descriptor whose low and high 32 bits two words are, as `x/2wx` and registers show it; else None.

    >>> hex(joined_halves([0x02000080, 0x40000040]))
    '0x4000004002000080'
    >>> joined_halves([0x08200490, 0x08200010])  # two instruction descriptors
    """
    if len(words) != 2 or max(words) >= 1 << HALF_BITS:
        return None
    low, high = words
    joined = high << HALF_BITS | low
    is_high_half = not descriptor_readings(high).possible and not barrier_readings(high)
    return joined if is_high_half and descriptor_readings(joined).possible else None


def _decoded_summary(log: DecodedLog) -> str:
    parts = [counted(log.total, "map")]
    different = len(log.entries)
    if different < log.total - len(log.refused_lines):
        parts.append(f"{different} of them different")
    if log.refused_lines:
        parts.append(
            f"{len(log.refused_lines)} without bytes: {lines_in_words(log.refused_lines)}; `tilescope check` says why"
        )
    return f"{', '.join(parts)}."


def require_rows(asked: Asked) -> None:
    """Refuse rows that no instruction reads or that would not be listed, before a file is read."""
    rows: int | None = asked.get("rows")
    refuse(rows is not None and rows < 1, f"--rows {rows}: an instruction reads at least 1.")
    refuse(rows is not None and not asked.get("addresses"), "--rows is how many rows --addresses lists: give both.")


def _map_answer(source: MapSource) -> Answer:
    blob = source.tensor_map().encode() if source.blob is None else source.blob
    blob_call = Call(bytes.fromhex, (blob.hex(),), name="blob", module="builtins")
    call = Call(inspect_tensor_map, (blob_call,), name="inspection")
    inspection = call.run()
    return Answer(
        inspection,
        call,
        first=_summarize_inspection(inspection),
        is_yes=inspection.tensor_map is not None,
        violations=inspection.violations,
        told_in="findings",
    )


def _word_answer(asked: Asked) -> Answer:
    """All possible kinds of a number, with the bytes that it reads if `addresses` are requested."""
    options = asked.options([MAJOR])
    if "data_type" in asked:
        options["element_bits"] = DataType.named(asked["data_type"]).smem_bits
    call = Call(descriptor_readings, (asked["word"],), options, "readings")
    readings = call.run()
    extra: dict[str, object] = {}
    rows: int | None = None
    if asked.get("addresses"):
        lines = _addresses(readings, asked.get("rows"))
        rows = len(lines) if lines else asked.get("rows")
        if lines:
            extra["addresses"] = lines
    barriers = barrier_readings(asked["word"])
    extra |= barrier_facts(barriers)
    return Answer(
        readings,
        call,
        first=_summarize_word(readings, barriers),
        shown={"rows": rows},
        extra=extra,
        is_yes=bool(readings.possible or barriers),
    )


def _summarize_inspection(inspection: Inspection) -> FirstLine:
    """What 128 bytes are."""
    tensor_map = inspection.tensor_map
    if tensor_map is None:
        return refusal_line("The 128 bytes are not a tensor map", inspection.violations)
    return make_line(
        "The 128 bytes are a {map}, at {address:#x}.", map=describe_map(tensor_map), address=tensor_map.address
    )


def _summarize_word(readings: WordReadings, barriers: Barriers) -> FirstLine:
    """What a number is."""
    kinds = _possible_kinds(readings, barriers)
    descriptions = [str(reading.descriptor) for reading in readings.possible]
    descriptions += [barrier.state for barrier in barriers.values()]
    if not kinds:
        return refusal_line(
            fill_template("{word:#x} is no descriptor", {"word": readings.word}), readings.readings[0].violations
        )
    if len(kinds) == 1:
        return make_line("{word:#x} is {kind}: {said}.", word=readings.word, kind=kinds[0], said=descriptions[0])
    return make_line(
        "{word:#x} could be {count} things: {kinds:; }[[; or {more} more]]. As the first of them: {said}.",
        word=readings.word,
        count=len(kinds),
        kinds=tuple(kinds[:_MOST_KINDS]),
        more=max(0, len(kinds) - _MOST_KINDS),
        said=descriptions[0],
    )


def _possible_kinds(readings: WordReadings, barriers: Barriers) -> list[str]:
    """All that a number could be."""
    return [f"a {reading.name}" for reading in readings.possible] + [f"an {name}" for name in barriers]


def _summarize_words(words: Sequence[tuple[WordReadings, Barriers]]) -> FirstLine:
    """The first possible kind of each of several numbers, and how many more there are."""
    descriptions: list[str] = []
    for readings, barriers in words:
        first, *more = _possible_kinds(readings, barriers) or ["no descriptor"]
        others = f" ({len(more)} other readings)" if len(more) > 1 else " (1 other reading)"
        descriptions.append(f"{readings.word:#x}, {first}{others if more else ''}")
    return make_line("{count:word}: {told:; }.", count=len(descriptions), told=tuple(descriptions))


def _addresses(readings: WordReadings, rows: int | None) -> list[list[str]]:
    """The address of every element that one instruction reads, row by row; none if the word is no operand's."""
    operand = next((reading for reading in readings.possible if reading.major is not None), None)
    if operand is None or operand.element_bits is None:
        return []
    bits = operand.element_bits
    options = {"major": operand.major, "k": K_STEP_BYTES * 8 // bits, "element_bits": bits}
    if rows is not None:
        options["rows"] = rows
    read = Call(operand.descriptor.addresses, (), options).run()
    return [[hex(address) for address in line] for line in read.tolist()]


def barrier_facts(barriers: Mapping[str, Value]) -> dict[str, object]:
    """A word as an mbarrier, or as the token of an arrival."""
    return {name.replace(" ", "_"): barrier.to_dict() for name, barrier in barriers.items()}


def _asking_word(asked: Asked) -> Asked:
    return asked.saying(words=(hex(asked["word"]),))


def _asking_bytes(asked: Asked) -> Asked:
    """The 128 bytes as 16 words, which a command takes."""
    blob = descriptor_bytes(asked["hex"])
    return asked.saying(source=MapSource(blob), words=tuple(hex(entry) for entry in unpack("<16Q", blob)))


DECODE = Question(
    name="decode",
    help="""Explain WORDS: a tensor map, any descriptor number of a tensor core, or an mbarrier, field by field.

    A tensor map is 128 bytes: 256 hexadecimal digits, 16 or 32 words as cuda-gdb or printf show them (any separators,
    0x or not), JSON, or a file with any of these or with the bytes themselves; - is stdin.

    In a log, every map is decoded; of several numbers that are not a map, every number. Two halves of a descriptor,
    low before high, are joined. A number is read as everything it could be: the 64-bit descriptors of wgmma and
    tcgen05, up to 32 bits tcgen05's instruction descriptor of each kind, and an mbarrier or the token of an arrival.
    The word of an operand contains neither its majorness nor its element type: pass --major and --type.
    """,
    inputs=(MAJOR, WORD_TYPE, ROWS, Input("words", read=str, is_many=True), ADDRESSES),
    answer=answer,
    functions=(descriptor_readings, OperandDescriptor.addresses),
)
WORD_FORM = PageForm(
    DECODE,
    inputs=(Input("word", "", "Word", "a number from a debugger.", read=word, is_hex=True), MAJOR, WORD_TYPE),
    presets={"word": "0x4000004000010040", "data_type": "bf16"},
    asking=_asking_word,
)
_SAMPLE = TensorMap("bf16", (72, 16), (144,), (64, 8), swizzle="128B")
BYTES_FORM = PageForm(
    DECODE,
    inputs=(Input("hex", "", "Descriptor", "128 bytes or 16 words.", is_long=True),),
    presets={"hex": _SAMPLE.encode().hex()},
    asking=_asking_bytes,
    shown={"show_bytes": True},
)
QUESTIONS = (DECODE,)
