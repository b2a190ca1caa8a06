"""The question whether a descriptor reads the bytes that TMA wrote, and the way of one element through both."""

from __future__ import annotations

from dataclasses import fields, replace

from tilescope.errors import RuleError
from tilescope.layout import MAJORS
from tilescope.mma.agreement import compatible
from tilescope.mma.operand_descriptor import OperandDescriptor
from tilescope.mma.readings import descriptor_readings
from tilescope.mma.smem_agreement import Agreement
from tilescope.planner.map_path import path_of_map
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.map_inputs import BOX, DESCRIBED_MAP, DIMS, MAP_OPTIONS, STRIDES, map_call, read_map
from tilescope.questions.page import PageForm
from tilescope.questions.plan_questions import LARGEST_TILE_ELEMENTS, summarize_element_path
from tilescope.questions.question import Answer, Asked, Input, Question, refuse
from tilescope.questions.shared_inputs import SMEM_ADDRESS, TYPE
from tilescope.sentence import fill_template
from tilescope.tensor_map import TensorMap
from tilescope.written import number, numbers, pair, word


def placed_copy(text: str) -> tuple[tuple[int, ...], int]:
    """Coordinates of a copy and where it goes: 64,0@8192.

    >>> placed_copy("64,0@0x2000")
    ((64, 0), 8192)
    """
    coords, _, offset = text.partition("@")
    return numbers(coords), number(offset or "0")


READ_OPTIONS = (
    SMEM_ADDRESS,
    Input("major", "--major", "How the instruction reads the tile", unsaid="as --tile-major, else K", choices=MAJORS),
    Input("tile_major", "--tile-major", "Innermost dimension of the map", unsaid="as --major", choices=MAJORS),
    Input("rows", "--rows", "mn that the instruction reads", read=number, unsaid="all, up to 256"),
    Input("k", "--k", "k that the instruction reads", read=number, unsaid="32 bytes"),
    Input("origin", "--origin", "The first element that it reads", "mn,k.", read=pair),
    Input(
        "data_type_read",
        "--read-as",
        "Element type that the tensor core reads",
        unsaid="the map's",
        argument="data_type",
    ),
)
SWIZZLE_OF_MAP = replace(next(row for row in MAP_OPTIONS if row.name == "swizzle"), hint="")
ARCH_OF_MAP = next(option for option in MAP_OPTIONS if option.name == "arch")
WORD = Input("word", label="Descriptor", hint="its 64 bits, as a kernel has them.", read=word, is_hex=True)
PATH_ELEMENT = Input(
    "element", "--element", "Follow element", "of the box, as mn,k: its whole way, instead of the check.", read=pair
)
COPIES = Input(
    "copies",
    "--copy",
    "A copy that loads the tile, such as 64,0@8192: coordinates innermost first, bytes; may be repeated",
    read=placed_copy,
    unsaid="one, to its start",
    is_many=True,
    shown_as="COORDS@OFFSET",
)


def _path_answer(asked: Asked) -> Answer:
    """The way of an element of the tile that the map's box is and the descriptor reads."""
    for row in (*READ_OPTIONS, COPIES):
        refuse(
            row is not SMEM_ADDRESS and row.name in asked,
            f"{row.option} is for the check; --element follows one copy of the box, read as its plan reads it.",
        )
    start = {"smem_address": asked["smem_address"]} if "smem_address" in asked else {}
    call = Call(
        path_of_map,
        (map_call(read_map(asked)), asked["word"], *asked["element"]),
        start,
        name="path",
        module="tilescope.planner.map_path",
    )
    path = call.run()
    return Answer(path, call, first=summarize_element_path(path))


def check_answer(asked: Asked) -> Answer:
    """Whether the bytes that TMA wrote are those that a descriptor reads."""
    if "element" in asked:
        return _path_answer(asked)
    maps = read_map(asked)
    tensor_map = maps.tensor_map()
    readings = [reading for reading in descriptor_readings(asked["word"]).readings if reading.major is not None]
    sound = [reading.descriptor for reading in readings if reading.sound]
    if not sound:
        raise RuleError(reading.violations[0] for reading in readings)
    read = sound[0]
    arguments = {each.name: getattr(read, each.name) for each in fields(read) if each.init}
    descriptor = Call(type(read), (), arguments, name="descriptor")
    call = Call(
        compatible,
        (map_call(maps) or tensor_map, descriptor),
        asked.options((*READ_OPTIONS, COPIES)),
        name="agreement",
    )
    agreement = call.run()
    assert isinstance(agreement, Agreement)  # of a map; the other kind compares places in tensor memory
    return Answer(agreement, call, first=_summarize_agreement(agreement), is_yes=agreement.agrees)


def _summarize_agreement(agreement: Agreement) -> FirstLine:
    """Whether a descriptor reads what the copies wrote."""
    if agreement.agrees:
        return make_line(
            "The descriptor reads what was copied: all {shape: x } elements (mn x k) agree.", shape=agreement.shape
        )
    difference = agreement.difference
    count = agreement.shape[0] * agreement.shape[1]
    sentence = fill_template(
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
    return fill_template("Use {word:#018x}: {said}[[, read as {major}-major]].", facts)


CHECK = Question(
    name="mma check",
    summary="Whether a descriptor reads what TMA wrote, or why not.",
    help="""Check whether the descriptor WORD reads the bytes that TMA wrote, and if not, why.

    The tensor map is described by options or by SOURCE, as for `tilescope check`.
    """,
    inputs=(*READ_OPTIONS, WORD, PATH_ELEMENT, *DESCRIBED_MAP, COPIES),
    answer=check_answer,
    functions=(compatible, TensorMap),
)
MAP_PATH_FORM = PageForm(
    CHECK,
    inputs=(WORD, PATH_ELEMENT, TYPE, DIMS, BOX, SWIZZLE_OF_MAP, SMEM_ADDRESS, STRIDES, ARCH_OF_MAP),
    presets={
        "word": "0x4000004000010002",
        "element": "37,21",
        "data_type": "bf16",
        "dims": "64,128",
        "box": "64,128",
        "swizzle": "128B",
        "smem_address": "0x0",
    },
    limits={"elements": LARGEST_TILE_ELEMENTS},
    rare=frozenset(["strides_bytes", "arch"]),
    walks=True,
    picked="element",
)
QUESTIONS = (CHECK,)
