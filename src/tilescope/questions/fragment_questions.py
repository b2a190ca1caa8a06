"""The question about fragments: which thread holds which element of an operand, in which register."""

from __future__ import annotations

from dataclasses import replace

from tilescope.mma.fragment import REGISTER_BITS, Fragment, fragment
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line, shared_bits
from tilescope.questions.page import PageForm
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.questions.shared_inputs import TYPE
from tilescope.written import number, pair

FRAGMENT_OPERAND = Input(
    "operand",
    "--operand",
    "Operand",
    "of mma, wgmma and wmma; E: the metadata of a sparse A.",
    unsaid="none",
    choices=("A", "B", "C", "D", "E"),
)
FRAGMENT_TYPE = replace(TYPE, hint="the operand's own, such as f32 for D.", unsaid="none")


_MOST_HELD = 4  # elements of a thread, that are named


def fragment_answer(asked: Asked) -> Answer:
    """Which thread holds which element."""
    call = Call(fragment, (asked["instruction"],), asked.options([FRAGMENT_OPERAND, FRAGMENT_TYPE]), "fragment")
    fragment_layout = call.run()
    lane = asked.get("lane")
    element = asked.get("element")
    return Answer(
        fragment_layout,
        call,
        first=_summarize_fragment(fragment_layout, lane, element),
        shown={"lane": lane, "element": element},
        extra=fragment_facts(fragment_layout, lane, element),
    )


def _summarize_fragment(held: Fragment, lane: int | None, element: tuple[int, int] | None) -> FirstLine:
    """Who holds an element, what a thread holds, or how much all of them hold."""
    if element is not None:
        thread, value = held.holder(*element)
        register, bit = held.register_of(value)
        return make_line(
            "Thread {thread} holds element {element}: value {value}, register {register}[[, bits {bits: to }]].",
            thread=thread,
            element=element,
            value=value,
            register=register,
            bits=shared_bits(bit, held.value_bits, REGISTER_BITS),
        )
    if lane is not None:
        return make_line(
            "Thread {lane} holds {values:element} in {registers:register}[[, as {order}]]: {coords:, }[[ and {more} more]].",
            lane=lane,
            values=held.values,
            registers=held.registers,
            order="(matrix, row, column)" if held.matrices > 1 else "",
            coords=tuple(_coord_of(held, lane, value) for value in range(min(held.values, _MOST_HELD))),
            more=max(0, held.values - _MOST_HELD),
        )
    return make_line(
        "{threads:thread} hold {values:value} each of {shape: x } {data_type}[[, {matrices:matrix|matrices}]], in "
        "{registers:register}.",
        threads=held.threads,
        values=held.values,
        shape=held.shape,
        data_type=held.content,
        matrices=held.matrices if held.matrices > 1 else 0,
        registers=held.registers,
    )


def _coord_of(held: Fragment, thread: int, value: int) -> tuple[int, ...]:
    """The row and column of a value, behind its matrix where there are several."""
    coord = held.coord(thread, value)
    return (held.matrix_of(thread, value), *coord) if held.matrices > 1 else coord


def fragment_facts(
    held: Fragment, lane: int | None = None, element: tuple[int, int] | None = None
) -> dict[str, object]:
    """CuTe's inverse layout; the elements of one thread, and the thread of an element, if requested.

    >>> list(fragment_facts(fragment("ldmatrix.x4"), lane=5))
    ['inverse', 'lane', 'holds', 'matrices']
    """
    facts: dict[str, object] = {"inverse": str(held.inverse)}
    if lane is not None:
        facts["lane"] = lane
        facts["holds"] = [list(coord) for coord in held.held_by(lane)]
        facts["matrices"] = [held.matrix_of(lane, value) for value in range(held.values)]
    if element is not None:
        thread, value = held.holder(*element)
        facts["element"] = list(element)
        facts["holder"] = {"thread": thread, "value": value}
    return facts


FRAGMENT_INSTRUCTION = Input(
    "instruction",
    "",
    "Instruction",
    choices=(
        "mma.m16n8k16",
        "mma.m16n8k8",
        "wgmma.m64n128k16",
        "mma.sp.m16n8k32",
        "wmma.m16n16k16",
        "ldmatrix.x4",
        "ldmatrix.x4.trans",
        "stmatrix.x4",
    ),
    is_open=True,
)
LANE = Input("lane", "--lane", "Mark thread", read=number)
FRAGMENT = Question(
    name="mma fragment",
    summary="Which thread holds which element, in which register.",
    help="""Draw which thread holds which element of an operand, and what each thread holds.

    INSTRUCTION: mma.m16n8k16, wgmma.m64n128k16, wmma.m16n16k16, mma.sp.m16n8k32, ldmatrix.x4.trans or tcgen05.ld.32x32b.x8,
    for example.
    """,
    inputs=(
        FRAGMENT_INSTRUCTION,
        FRAGMENT_OPERAND,
        FRAGMENT_TYPE,
        LANE,
        Input("element", "--element", "Mark the thread that holds this element", "row,column.", read=pair),
    ),
    answer=fragment_answer,
    functions=(fragment,),
)
FRAGMENT_FORM = PageForm(
    FRAGMENT,
    inputs=(FRAGMENT_INSTRUCTION, FRAGMENT_OPERAND, FRAGMENT_TYPE, LANE),
    presets={"instruction": "mma.m16n8k16", "operand": "A", "data_type": "bf16"},
    walks=True,
)
QUESTIONS = (FRAGMENT,)
