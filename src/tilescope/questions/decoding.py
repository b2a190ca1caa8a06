"""The question about words and bytes: what a tensor map, a descriptor number or an mbarrier says, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from struct import unpack

from tilescope.data_type import DataType
from tilescope.mma.descriptor import OperandDescriptor
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.mma.readings import WordReadings, descriptor_readings
from tilescope.pipeline.barrier_reading import barrier_readings
from tilescope.questions.call import Call
from tilescope.questions.first_lines.maps import of_inspection
from tilescope.questions.first_lines.tensor_core import of_word
from tilescope.questions.inputs import MAJOR, TYPE
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Question, flag, refuse
from tilescope.tensor_map import TensorMap, descriptor_bytes, inspect_tensor_map
from tilescope.tensor_map.source import MapSource
from tilescope.value import Value
from tilescope.written import number, word

WORD_TYPE = replace(TYPE, unsaid="bf16")


def answer(asked: Asked) -> Answer:
    """What the bits say: `word` is one number, `source` a map in bytes or words."""
    return _word_answer(asked) if "word" in asked else _map_answer(asked["source"])


def require_rows(asked: Asked) -> None:
    """Refuse rows that no instruction reads, before a file is."""
    rows: int | None = asked.get("rows")
    refuse(rows is not None and rows < 1, f"--rows {rows}: an instruction reads at least 1.")


def _map_answer(source: MapSource) -> Answer:
    blob = source.tensor_map().encode() if source.blob is None else source.blob
    blob_call = Call(bytes.fromhex, (blob.hex(),), name="blob", module="builtins")
    call = Call(inspect_tensor_map, (blob_call,), name="inspection")
    inspection = call.run()
    return Answer(
        inspection,
        call,
        first=of_inspection(inspection),
        is_yes=inspection.tensor_map is not None,
        violations=inspection.violations,
        told_in="findings",
    )


def _word_answer(asked: Asked) -> Answer:
    """Everything that a number could be, with the bytes that it reads if `addresses` are asked for."""
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
        first=of_word(readings, barriers),
        shown={"rows": rows},
        extra=extra,
        is_yes=bool(readings.possible or barriers),
    )


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
    """What a word says as an mbarrier, or as the token of an arrival."""
    return {name.replace(" ", "_"): barrier.to_dict() for name, barrier in barriers.items()}


def _asking_word(asked: Asked) -> Asked:
    return asked.saying(words=(hex(asked["word"]),))


def _asking_bytes(asked: Asked) -> Asked:
    """The 128 bytes as 16 words, which a command takes."""
    blob = descriptor_bytes(asked["hex"])
    return asked.saying(source=MapSource(blob), words=tuple(hex(one) for one in unpack("<16Q", blob)))


DECODE = Question(
    name="decode",
    help="""Explain WORDS: a tensor map, any descriptor number of a tensor core, or an mbarrier, field by field.

    A tensor map is 128 bytes: 256 hexadecimal digits, 16 or 32 words as cuda-gdb or printf show them (any separators,
    0x or not), JSON, or a file with any of these or with the bytes themselves; - is stdin.

    \b
    tilescope decode map.bin
    tilescope decode - < words-from-cuda-gdb.txt
    tilescope decode 0x4000004000010040 --major K --type bf16
    tilescope decode 0x08200490
    tilescope decode 0x000003f0001ffffe

    A number is read as everything it could be: the 64-bit descriptors of wgmma and tcgen05, up to 32 bits tcgen05's
    instruction descriptor of each kind, and an mbarrier or the token of an arrival. Majorness and element type of an
    operand are not in its word; the instruction has them, so say them with --major and --type. Exit status 1: the bytes
    or bits are no descriptor.
    """,
    inputs=(
        MAJOR,
        WORD_TYPE,
        Input("rows", "--rows", "mn that the instruction reads", read=number),
        Input("words", read=str, is_many=True),
        Input("addresses", "--addresses", "List the address of every 16 bytes that one instruction reads", read=flag),
    ),
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
