"""The question about the instruction descriptor of tcgen05.mma: its 32 bits."""

from __future__ import annotations

from tilescope.layout import MAJORS
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.question import Answer, Asked, Input, Question, flag
from tilescope.written import number, tile

INSTRUCTION_OPTIONS = (
    Input("a_type", "--a-type", "Type of A", unsaid="the kind's, if it has only one"),
    Input("b_type", "--b-type", "Type of B", unsaid="as A"),
    Input("d_type", "--d-type", "Type of the accumulator", "f16, f32 or s32.", unsaid="the widest"),
    Input("a_major", "--a-major", "Contiguous in A", choices=MAJORS),
    Input("b_major", "--b-major", "Contiguous in B", choices=MAJORS),
    Input("negate_a", "--negate-a", "Multiply by -A", read=flag),
    Input("negate_b", "--negate-b", "Multiply by -B", read=flag),
    Input("saturate", "--saturate", "Sums of kind i8 saturate", read=flag),
    Input("sparse", "--sparse", "A is sparse (.sp)", read=flag),
    Input(
        "sparsity_selector",
        "--selector",
        "Selector of the metadata",
        "0 to 3 for kinds f16 and tf32, else 0.",
        read=number,
    ),
    Input("max_shift", "--max-shift", "Largest shift of B under .ws", "0, 8, 16 or 32.", read=number),
    Input("scale_type", "--scale-type", "Type of the scale factors", "ue8m0 or ue4m3."),
    Input("a_scale_id", "--a-scale-id", "First byte of A's scale factors", "0 to 3.", read=number),
    Input("b_scale_id", "--b-scale-id", "First byte of B's scale factors", "0 to 3.", read=number),
    Input(
        "k",
        "--k",
        "K of one step",
        "96 for the wide one of mxf4 and mxf4nvf4 (sm_103a).",
        read=number,
        unsaid="the kind's",
    ),
)


def instruction_answer(asked: Asked) -> Answer:
    """The 32-bit descriptor of an instruction."""
    call = Call(InstructionDescriptor, (asked["kind"], *asked["shape"]), asked.options(INSTRUCTION_OPTIONS))
    descriptor = call.run()
    return Answer(
        descriptor,
        first=_summarize_instruction(descriptor),
        extra={"word": hex(descriptor.encode()), "forms": list(descriptor.forms)},
    )


def _summarize_instruction(descriptor: InstructionDescriptor) -> FirstLine:
    """The word of an instruction descriptor."""
    return make_line("{word:#010x} is the descriptor: {said}.", word=descriptor.encode(), said=str(descriptor))


INSTRUCTION = Question(
    name="mma instruction",
    summary="The instruction descriptor (idesc) of tcgen05.mma.",
    help="""Build the 32-bit descriptor of tcgen05.mma: KIND (f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4) and
    M x N.

    For a pair of blocks (cta_group::2) M and N are those of the pair.
    """,
    inputs=(Input("kind"), Input("shape", read=tile), *INSTRUCTION_OPTIONS),
    answer=instruction_answer,
    functions=(InstructionDescriptor,),
)
QUESTIONS = (INSTRUCTION,)
