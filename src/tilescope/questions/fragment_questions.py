"""The question about fragments: which thread holds which element of an operand, in which register."""

from __future__ import annotations

from dataclasses import replace

from tilescope.mma.fragment import Fragment, fragment
from tilescope.questions.call import Call
from tilescope.questions.first_lines.tensor_core import of_fragment
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


def fragment_answer(asked: Asked) -> Answer:
    """Which thread holds which element."""
    call = Call(fragment, (asked["instruction"],), asked.options([FRAGMENT_OPERAND, FRAGMENT_TYPE]), "fragment")
    held = call.run()
    lane = asked.get("lane")
    element = asked.get("element")
    return Answer(
        held,
        call,
        first=of_fragment(held, lane, element),
        shown={"lane": lane, "element": element},
        extra=fragment_facts(held, lane, element),
    )


def fragment_facts(
    held: Fragment, lane: int | None = None, element: tuple[int, int] | None = None
) -> dict[str, object]:
    """CuTe's inverse layout; what one thread holds, and which thread holds an element, if that is asked for.

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
