"""The question about a matrix product: its plan, its code, and the pages that show its operands and stages."""

from __future__ import annotations

from dataclasses import replace

from tilescope.errors import PlanError
from tilescope.layout import MAJORS
from tilescope.planner import GemmPlan, Plan, plan_gemm
from tilescope.questions.call import Call
from tilescope.questions.emitted_program import launch_files_of, program_of
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.page import Code, Leads, PageForm, Sentences, address
from tilescope.questions.plan_questions import (
    ARCHITECTURE,
    CARD_INPUT,
    CONSUMER_INPUT,
    EMIT,
    GEMM_TARGETS,
    PATH_OF,
    PROGRAM_FILE,
    STAGES,
    TARGET,
    WHY,
    asking_why,
    code_of,
    path_leads,
    refuse_misuse,
    summarize_element_path,
    unplanned_answer,
)
from tilescope.questions.question import Answer, Asked, Input, Question, flag, refuse
from tilescope.questions.shared_inputs import ELEMENT_TYPE
from tilescope.sentence import by, shorten
from tilescope.written import number, product, tile

SHAPE = Input("shape", "", "Product", "in elements, m x n x k.", read=product)
GEMM_OPTIONS = (
    ARCHITECTURE,
    CARD_INPUT,
    CONSUMER_INPUT,
    Input("tile", "--tile", "Tile", "this one instead of the best.", read=product),
    replace(STAGES, unsaid="as many as fit and help"),
    Input("a_major", "--a-major", "Contiguous in A", choices=MAJORS),
    Input("b_major", "--b-major", "Contiguous in B", choices=MAJORS),
    Input("output_type", "--output-type", "Type of C", unsaid="TYPE; bf16 for 8 bits or less, s32 for b1"),
    Input("sms", "--sms", "SMs to plan for", "", read=number, unsaid="the card's"),
    Input("swapped", "--swapped", "Take the tensor core's rows from B", read=flag),
    Input("split", "--split", "Blocks of a cluster that share k", "", read=number, unsaid="what is fastest"),
    Input("parts", "--parts", "Clusters that share k", "", read=number, unsaid="what is fastest"),
    Input("group", "--group", "Tiles along m taken together", "0: all.", read=number, unsaid="what is fastest"),
    Input("tail", "--tail", "Blocks that share a tile of the last round", "", read=number, unsaid="what is fastest"),
    Input(
        "cta_group",
        "--cta-group",
        "Blocks that multiply together",
        "2: pairs, by tcgen05.",
        read=number,
        unsaid="what is fastest",
    ),
    Input("dynamic", "--dynamic", "Let blocks request their next tile by cluster launch control", read=flag),
    Input(
        "multicast",
        "--multicast",
        "Tiles of a cluster",
        "along m, which share B, and along n, which share A.",
        read=tile,
        unsaid="what is fastest",
    ),
    Input("ping_pong", "--ping-pong", "Let two warpgroups take tiles in turn", read=flag),
    Input(
        "scales",
        "--scales",
        "Format of the scale factors",
        "where TYPE names the elements alone: mxfp8, mxfp4 or nvfp4; block128: float32 for 1 x 128 of A and 128 x 128 of B, sm_90.",
        unsaid="those of TYPE",
    ),
    Input(
        "epilogue",
        "--epilogue",
        "What is fused",
        "of scale, bias, relu, gelu, silu, swiglu, swiglu-interleaved, residual; joined by +. "
        "swiglu has gate and up columns side by side in B, swiglu-interleaved in groups of 8.",
        unsaid="nothing",
    ),
    Input("batch", "--batch", "Batch", "products of this shape, one after the other.", read=number, unsaid="1"),
    Input("experts", "--experts", "Experts", "with their own B each; M rows on average.", read=number, unsaid="none"),
    Input(
        "rows",
        "--rows",
        "How the rows of experts are stored",
        "contiguous (a group starts at a multiple of the tile's m) or masked.",
        unsaid="contiguous",
    ),
    Input("dependent", "--dependent", "Start before the kernel before has ended, which writes A but not B", read=flag),
)
OPERAND_OF = Input("operand", "--operand", "Operand", "whose element is followed.", choices=("A", "B"), unsaid="A")


def gemm_answer(asked: Asked) -> Answer:
    """The plan of a product, or why there is none."""
    refuse_misuse(asked)
    refuse(
        "operand" in asked and "element" not in asked,
        "--operand selects the operand of --element MN,K: pass both options.",
    )
    operand = asked.get("operand", "A")
    refuse(operand.upper() not in OPERAND_OF.choices, f"--operand {shorten(operand)}: the operands are A and B.")
    call = Call(plan_gemm, (*asked["shape"], asked["data_type"]), asked.options(GEMM_OPTIONS), "gemm")
    try:
        planned = call.run()
    except PlanError as error:
        return unplanned_answer(call, f"GEMM {by(asked['shape'])} {asked['data_type']}", error)
    if "emit" in asked:
        return Answer(
            planned,
            first=_summarize_gemm(planned),
            program=program_of(planned, asked),
            files=launch_files_of(planned, asked),
        )
    if "element" in asked:
        return _operand_path(asked, planned, call)
    return Answer(
        planned,
        call,
        first=_summarize_gemm(planned),
        shown={"why": asked.get("why", False)},
        extra=planned.kernel_facts(),
    )


def _operand_path(asked: Asked, planned: GemmPlan, call: Call[GemmPlan]) -> Answer:
    """The way of an element of A or B, in the first stage of shared memory."""
    name = asked.get("operand", "A").lower()
    (start, *_) = planned.smem_offsets()[name]
    operand = replace(call, name=name, attribute=name)
    following = Call(Plan.path, asked["element"], {"smem_address": start}, name="path", receiver=operand)
    path = following.run()
    return Answer(path, following, first=summarize_element_path(path))


def _summarize_gemm(planned: GemmPlan) -> FirstLine:
    """The tile and the stages of a product, how k is shared, and how long it takes: as predicted, or at least."""
    sharing = planned.schedule.blocks_of_a_tile
    is_of_pair = planned.schedule.cta_group == 2
    return make_line(
        "{shape: x } {type}: tile {tile: x }[[ of a {pair}]], {stages:stage} of {stage_bytes} bytes[[ a {block}]], {tiles:tile} of C[[ in "
        "{rounds:round} of {sms} SMs]][[, k shared by {sharing} blocks]][[; {predicted:us} predicted]][[; at least {floor:us}]]"
        "[[ for memory alone: TFLOP/s of {type} are not known for the {unweighed}]].",
        shape=planned.shape,
        type=planned.data_type.name if planned.scales is None else planned.scales.name,
        tile=planned.tile,
        pair="pair" if is_of_pair else None,  # whose tile and whose bytes: a pair has two blocks
        block="block" if is_of_pair else None,
        stages=planned.stages,
        stage_bytes=planned.in_flight_bytes // planned.stages,
        tiles=planned.tiles,
        rounds=planned.rounds,
        sms=planned.sms,
        sharing=sharing if sharing > 1 else None,
        predicted=planned.predicted_us,
        floor=planned.floor_us if planned.predicted_us is None else None,
        unweighed=_card_of_unknown_rate(planned),
    )


def _card_of_unknown_rate(planned: GemmPlan) -> str | None:
    """The card, if its rate for this type is unknown: a floor is then of little use."""
    card = planned.card
    if card is None or planned.floor_us is None or planned.product.tflops is not None:
        return None
    return card.name


GEMM = Question(
    name="gemm",
    help="""Plan the operands, stages and epilogue of a GEMM together. SHAPE is M x N x K, TYPE that of A and B.

    Every tile shape worth trying is planned and ranked by the time that follows from the card's rates. The answer has both
    operands' plans, the stages that fit into shared memory, the barriers and the epilogue. --emit prints its program.
    """,
    inputs=(
        SHAPE,
        ELEMENT_TYPE,
        *GEMM_OPTIONS,
        replace(PATH_OF, hint="of an operand's tile, as mn,k: its whole way, instead of the plan."),
        OPERAND_OF,
        WHY,
        replace(EMIT, hint="cuda or python (programs that check themselves), or header (to call)."),
        PROGRAM_FILE,
    ),
    answer=gemm_answer,
    functions=(plan_gemm,),
)


def _gemm_code(asked: Asked, answer: Answer) -> Code | Sentences:
    """The plan as source text, or why there is none."""
    planned = answer.value
    if not isinstance(planned, GemmPlan) or answer.call is None:
        return ()
    command = GEMM.words(asked.saying(why=None, emit=asked.get("target")))
    return code_of(planned, answer.call, asked.get("target", "none"), command)


def _gemm_leads(asked: Asked, answer: Answer) -> Leads:
    """The way of an element of A and of B, and the stages run."""
    planned = answer.value
    if not isinstance(planned, GemmPlan):
        return {}
    stages = {"given": "gemm", "shape": SHAPE.written(planned.shape), "data_type": planned.data_type.name}
    options = {name: str(asked[name]) for name in ("arch", "consumer") if name in asked}
    leads = {
        "Follow an element of A": _way_of(planned.a, "A"),
        "Follow an element of B": _way_of(planned.b, "B"),
        "Run its stages": address("pipeline", stages | options),
    }
    return {"plan": leads}


def _way_of(plan: Plan, operand: str) -> str:
    """The page of one element of an operand's tile."""
    problem = plan.problem
    query = {
        "tile": by(problem.tile).replace(" ", ""),
        "data_type": problem.data_type.name,
        "element": "0,0",
        "major": problem.major,
        "arch": problem.arch.name,
        "swizzle": plan.swizzle.name,
        "operand": operand,
    }
    return address("path", query)


def _answer_with_operands(asked: Asked) -> Answer:
    """The answer of a page, which draws A and B in shared memory."""
    answer = gemm_answer(asked)
    if not isinstance(answer.value, GemmPlan):
        return answer
    return replace(answer, shown={**answer.shown, "operands": True})


_EXTENTS = {"m": ("shape", 0), "n": ("shape", 1), "k": ("shape", 2)}
GEMM_PLAN_FORM = PageForm(
    GEMM,
    extents=_EXTENTS,
    inputs=(SHAPE, ELEMENT_TYPE, *GEMM_OPTIONS, replace(TARGET, choices=("none", *GEMM_TARGETS))),
    presets={"shape": "4096x4096x4096", "data_type": "bf16", "target": "cuda"},
    rare=frozenset(
        [
            "card",
            "tile",
            "stages",
            "output_type",
            "sms",
            "swapped",
            "split",
            "parts",
            "group",
            "tail",
            "cta_group",
            "dynamic",
            "scales",
            "dependent",
        ]
    ),
    asking=asking_why,
    answer=_answer_with_operands,
    leads=_gemm_leads,
    code=_gemm_code,
)
GEMM_PATH_FORM = PageForm(
    GEMM,
    extents=_EXTENTS,
    inputs=(SHAPE, ELEMENT_TYPE, OPERAND_OF, replace(PATH_OF, is_required=True), *GEMM_OPTIONS),
    presets={"shape": "4096x4096x4096", "data_type": "bf16", "operand": "A", "element": "37,21"},
    rare=frozenset(["card", "stages", "output_type", "sms", "a_major", "b_major"]),
    walks=True,
    picked="element",
    leads=path_leads,
)
QUESTIONS = (GEMM,)
