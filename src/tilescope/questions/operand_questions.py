"""The questions about an operand in shared memory: its layout, and the descriptors that read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilescope.data_type import DataType
from tilescope.layout import Layout
from tilescope.mma.canonical import CanonicalLayout, canonical_layout
from tilescope.mma.consumer import CONSUMER
from tilescope.mma.descriptor_loop import DescriptorLoop
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, layout_line, make_line
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.questions.shared_inputs import ATOM_ORDER, ELEMENT, ELEMENT_TYPE, MAJOR, START, TILE
from tilescope.reading import known_name

LARGEST_OPERAND_BYTES = 1 << 18  # on a page
_LOOPS = {name: row.descriptors for name, row in CONSUMER.items() if row.descriptors is not None}
_FIRST_READER = next(iter(_LOOPS))

OPERAND_SWIZZLE = Input(
    "swizzle",
    "--swizzle",
    "Swizzle",
    choices=("none", "32B", "64B", "128B", "128B_ATOM_32B"),
)
OPERAND_INPUTS = (TILE, ELEMENT_TYPE, MAJOR, OPERAND_SWIZZLE, ATOM_ORDER)


def _require_small(asked: Asked) -> None:
    """Refuse an operand that is larger than a page draws."""
    mn, k = asked["tile"]
    if asked.limit("bytes of an operand") is None:
        return
    size = mn * k * DataType.named(asked["data_type"]).smem_bits // 8
    asked.require_at_most(
        "bytes of an operand", size, argument="tile", fix="Use a tile that a block's shared memory holds."
    )


def layout_answer(asked: Asked) -> Answer:
    """The layout of an operand in shared memory."""
    _require_small(asked)
    canonical = Call(canonical_layout, (), asked.options([ELEMENT_TYPE, MAJOR, OPERAND_SWIZZLE]), "layout")
    call = Call(
        CanonicalLayout.tile, (asked["tile"],), asked.options([ATOM_ORDER, START]), "operand", receiver=canonical
    )
    operand = call.run()
    element = asked.get("element")
    return Answer(
        operand,
        call,
        first=layout_line(operand, element),
        shown={"element": element},
        extra=operand_facts(operand, element),
    )


def operand_facts(operand: Layout, element: tuple[int, int] | None) -> dict[str, object]:
    """The place of the requested element; nothing without one."""
    return {} if element is None else {"element": list(element), "address": hex(operand.address(*element))}


DESCRIPTOR_OPERAND = Input(
    "operand",
    "--operand",
    "Operand",
    "A is read in blocks of rows, B in one n.",
    choices=("A", "B"),
)
DESCRIPTOR_START = replace(START, argument="")
READER = Input("reader", "--for", "Read by", choices=tuple(_LOOPS))
DESCRIPTOR_OPTIONS = (MAJOR, OPERAND_SWIZZLE, ATOM_ORDER, DESCRIPTOR_START, DESCRIPTOR_OPERAND)


def loop_of(reader: str = _FIRST_READER) -> Callable[..., DescriptorLoop]:
    """The function that lists the descriptors with which a tensor core reads a tile."""
    return _LOOPS[known_name("reader", reader, tuple(_LOOPS))]


def descriptors_answer(asked: Asked) -> Answer:
    """The descriptors of a K loop."""
    _require_small(asked)
    listing = Call(loop_of, (), asked.options([READER])).run()
    call = Call(listing, (asked["tile"], asked["data_type"]), asked.options(DESCRIPTOR_OPTIONS), "loop")
    loop = call.run()
    return Answer(loop, call, first=_summarize_descriptors(loop), extra=loop_facts(loop))


def _summarize_descriptors(loop: DescriptorLoop) -> FirstLine:
    """The number of descriptors of a tile, the first of them, and the instruction's other operands."""
    return make_line(
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


def loop_facts(loop: DescriptorLoop) -> dict[str, object]:
    """The descriptors of a K loop as words, the meaning of their numbers, and the rules that they break."""
    return {
        "descriptors": [[hex(step.encode()) for step in steps] for steps in loop],
        "explanation": list(loop.explanation),
        "transpose": loop.transpose,
        "findings": [finding.to_dict() for finding in loop.findings],
    }


LAYOUT = Question(
    name="mma layout",
    summary="An operand as it is stored in shared memory, swizzled.",
    help="""Draw an operand of TILE (mn x k, such as 128x64) elements of TYPE as it is stored in shared memory.

    The tensor core reads it in atoms of 8 rows; the drawing shows the atoms, their order, and the chunks
    of the first one under the banks. --element marks an element and prints its address.
    """,
    inputs=(*OPERAND_INPUTS, START, replace(ELEMENT, hint="as mn,k; the atom that holds it is drawn.")),
    answer=layout_answer,
    functions=(canonical_layout, CanonicalLayout.tile),
)
DESCRIPTORS = Question(
    name="mma descriptors",
    summary="Matrix descriptors (LBO, SBO) of a K loop, transpose bits.",
    help="""List the descriptors that read an operand of TILE (mn x k) elements of TYPE, for the whole K loop.

    Every number has its reason: the leading and stride byte offsets (LBO, SBO) with the two atoms they connect, the
    step from one instruction to the next, and the transpose bit.
    """,
    inputs=(*OPERAND_INPUTS, DESCRIPTOR_START, DESCRIPTOR_OPERAND, READER),
    answer=descriptors_answer,
    functions=(loop_of(), loop_of),
)

_FIRST = {"tile": "128x64", "data_type": "bf16", "smem_address": "0x0"}
_LIMITS = {"bytes of an operand": LARGEST_OPERAND_BYTES}
_EXTENTS = {"m": ("tile", 0), "n": ("tile", 0), "k": ("tile", 1)}
LAYOUT_FORM = PageForm(
    LAYOUT, inputs=(*OPERAND_INPUTS, START, ELEMENT), presets=_FIRST, limits=_LIMITS, extents=_EXTENTS
)
DESCRIPTORS_FORM = PageForm(
    DESCRIPTORS,
    inputs=DESCRIPTORS.inputs,
    presets=_FIRST,
    limits=_LIMITS,
    extents=_EXTENTS,
    shown={"chunks": True},
    walks=True,
)
QUESTIONS = (LAYOUT, DESCRIPTORS)
