"""The question about plans: what to do with a tile; and the path of one of its elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.errors import PlanError, RuleError
from tilescope.kernel_plan import KernelPlan
from tilescope.mma.consumer import CONSUMER
from tilescope.planner import GemmPlan, Plan, PlanReport, Unplanned, plan
from tilescope.planner.plans import ElementPath
from tilescope.planner.problem import COPIES
from tilescope.questions.call import Call
from tilescope.questions.emitted_program import launch_files_of, program_of
from tilescope.questions.first_line import FirstLine, make_line, refusal_line, shared_bits
from tilescope.questions.kernel_questions import (
    BLOCKS_PER_SM,
    KERNEL_FIELDS,
    KERNEL_LIMITS,
    KERNEL_OPTIONS,
    KERNEL_SAMPLE,
    KERNEL_TEXT,
    KNOWN_KERNEL,
    TEMPLATE,
    ask_about_text,
    ask_as_command,
    kernel_answer,
)
from tilescope.questions.opened_file import fields_of_text
from tilescope.questions.page import Code, Leads, OpenedField, PageForm, Sentences, address
from tilescope.questions.question import Answer, Asked, Input, Question, flag, in_words, refuse
from tilescope.questions.shared_inputs import ATOM_ORDER, ELEMENT_TYPE, MAJOR, TILE
from tilescope.sentence import by, fill_template
from tilescope.swizzle import SWIZZLE
from tilescope.written import number, numbers, pair, tile, tile_or_name

if TYPE_CHECKING:
    from tilescope.emitter.emission import Target

# Elements of a tile that a page plans, and those whose reads are counted instruction by instruction.
LARGEST_TILE_ELEMENTS = 1 << 17
LARGEST_COUNTED_ELEMENTS = 1 << 15

ARCHITECTURE = Input("arch", "--arch", "Architecture", unsaid="the card's, or sm_90", choices=tuple(ARCH))
CARD_INPUT = Input(
    "card",
    "--card",
    "Card",
    "whose measured or documented rates rank the plans.",
    unsaid="the architecture's",
    choices=tuple(CARD),
    is_open=True,
)
CONSUMER_INPUT = Input(
    "consumer",
    "--consumer",
    "Read by",
    unsaid="the best tensor core",
    choices=tuple(CONSUMER),
    is_open=True,
)
COPIED_BY = Input("copy", "--copy", "Copied by", unsaid="TMA if the architecture has it", choices=COPIES)
DIRECTION = Input("direction", "--direction", "Direction", choices=("load", "store"))
STAGES = Input("stages", "--stages", "Stages", read=number)
PLAN_OPTIONS = (
    MAJOR,
    replace(CONSUMER_INPUT, hint='one of wgmma, tcgen05, ldmatrix, or a pattern: "ld.b128 columns".'),
    ARCHITECTURE,
    CARD_INPUT,
    Input("swizzle", "--swizzle", "Swizzle", unsaid="the best", choices=tuple(SWIZZLE), is_open=True),
    replace(ATOM_ORDER, hint="", unsaid="the best"),
    Input("operand", "--operand", "Operand", unsaid="either", choices=("A", "B")),
    STAGES,
    COPIED_BY,
    DIRECTION,
    Input("traffic", "--traffic", "Traffic", choices=("dense", "sparse")),
    Input("fold", "--fold", "Also try maps of rank 3 and 4", read=flag),
    Input("global_shape", "--global-shape", "Whole matrix", "as mn x k.", read=tile, unsaid="the tile"),
    Input(
        "strides_bytes",
        "--strides-bytes",
        "Strides in bytes",
        "from row to row of the matrix.",
        read=numbers,
        unsaid="dense",
    ),
)
PLAN_INPUTS = (TILE, ELEMENT_TYPE, *PLAN_OPTIONS)
PATH_OF = Input("element", "--element", "Follow element", "as mn,k: its whole way, instead of the plan.", read=pair)
WHY = Input("why", "--why", "Name every other candidate, and the reasons of those refused", read=flag)
EMIT = Input(
    "emit", "--emit", "Print source code instead", "cuda, ptx, cute, triton (or gluon, its language) or python."
)
PROGRAM_FILE = Input("path", "-o", "With --emit: write it to FILE", file="output", shown_as="FILE")


def refuse_misuse(asked: Asked) -> None:
    """Refuse options of an element's path or of a program if neither is requested, and both together."""
    refuse("path" in asked and "emit" not in asked, "-o is the file that --emit writes: give both.")
    refuse("emit" in asked and "element" in asked, "--emit prints the plan, --element follows an element: give one.")


def plan_answer(asked: Asked) -> Answer:
    """Every candidate, ranked, with the reasons of those that were refused; or the plan of a whole kernel."""
    if "template" in asked or isinstance(asked.get("tile"), str):
        return kernel_answer(asked)
    for row in KERNEL_OPTIONS:
        refuse(row.name in asked, f"{row.option} is for a kernel: name its FILE, or a known kernel.")
    refuse(
        "tile" not in asked or "data_type" not in asked,
        "name a TILE and its TYPE such as 128x64 bf16, the FILE of a kernel, or a --template.",
    )
    refuse_misuse(asked)
    mn, k = asked["tile"]
    is_counted = asked.get("consumer", "") not in ("", *CONSUMER)
    asked.require_at_most(
        "elements",
        mn * k,
        argument="tile",
        fix="Plan a smaller tile.",
        counted="elements counted" if is_counted else "elements",
    )
    call = Call(plan, (asked["tile"], asked["data_type"]), asked.options(PLAN_OPTIONS), "report")
    try:
        report = call.run()
    except PlanError as error:
        return unplanned_answer(call, f"{by(asked['tile'])} {asked['data_type']}", error)
    if "emit" in asked:
        return Answer(
            report,
            first=_summarize_plan(report),
            program=program_of(report.best, asked),
            files=launch_files_of(report.best, asked),
        )
    if "element" in asked and report.candidates:
        best = replace(call, name="best", attribute="best")
        following = Call(Plan.path, asked["element"], name="path", receiver=best)
        path = following.run()
        return Answer(path, following, first=summarize_element_path(path))
    return Answer(
        report,
        call,
        first=_summarize_plan(report),
        shown={"why": asked.get("why", False)},
        extra=plan_facts(report),
        is_yes=bool(report.candidates),
    )


def unplanned_answer(call: Call[PlanReport] | Call[GemmPlan], subject: str, error: PlanError) -> Answer:
    """That there is no plan, and why: an answer too."""
    unplanned = Unplanned(subject, error.violations)
    return Answer(
        unplanned,
        call,
        first=_summarize_unplanned(unplanned),
        is_yes=False,
        violations=error.violations,
        told_in="reasons",
    )


def plan_facts(report: PlanReport) -> dict[str, object]:
    """What a kernel needs of the best plan; nothing where there is none."""
    return {"best": report.best.kernel_facts()} if report.candidates else {}


def _summarize_plan(report: PlanReport) -> FirstLine:
    """What to do with a tile."""
    problem = report.problem
    if not report.candidates:
        heading = fill_template("No plan for {tile: x } {type}", {"tile": problem.tile, "type": problem.data_type.name})
        reasons = {str(violation): violation for refusal in report.refused for violation in refusal.violations}
        return refusal_line(heading, list(reasons.values()))
    best = report.best
    costs = best.costs
    return make_line(
        "{tile: x } {type}: swizzle {swizzle}[[, {copies:copy|copies} of box {box: x }]][[, copied by {threads}]], "
        "{smem_bytes} bytes a stage[[, {excess:wavefront} of conflicts]][[; predicted {rate} GB/s ({card})]].",
        tile=problem.tile,
        type=problem.data_type.name,
        swizzle=best.swizzle.name,
        copies=0 if best.box is None else best.tma_instructions,
        box=best.box or (),
        threads="" if best.boxes is not None else problem.copy,
        smem_bytes=best.smem_bytes,
        excess=costs.excess_wavefronts,
        rate="" if costs.gb_per_s is None else f"{costs.gb_per_s:.0f}",
        card="" if problem.card is None else problem.card.name,
    )


def summarize_element_path(path: ElementPath) -> FirstLine:
    """The place of an element, and its reader."""
    return make_line(
        "Element ({mn}, {k}) is at byte {address}[[, bits {bits: to }]]: line {line}, chunk {chunk}, bank {bank}[[; {reader}]].",
        mn=path.mn,
        k=path.k,
        address=f"{path.address:#x}",
        bits=shared_bits(path.first_bit, path.plan.problem.data_type.bits),
        line=path.line,
        chunk=path.smem_chunk,
        bank=path.bank,
        reader=_reader_of(path),
    )


def _reader_of(path: ElementPath) -> str:
    """Who reads an element."""
    if path.descriptor is not None:
        return f"K step {path.descriptor.k_step} reads it by descriptor {path.descriptor.word:#018x}"
    if path.register is not None:
        return f"lane {path.register.lane} holds it in register {path.register.register}"
    return ""


def _summarize_unplanned(unplanned: Unplanned) -> FirstLine:
    """Why there is no plan."""
    return refusal_line(fill_template("No plan for {asked}", {"asked": unplanned.asked}), unplanned.violations)


PLAN = Question(
    name="plan",
    help="""Plan the path of a TILE of MN x K elements of TYPE: from global memory to shared memory and its reader.

    Every swizzle, atom order and box split is tried, checked by the rules, proven in the emulator and ranked. The
    answer has the swizzle, the boxes, the bytes that the mbarrier expects, the descriptors of the K loop and the address
    of every element, with the reasons. --emit prints its program.

    With the FILE of a kernel (TOML or JSON, see docs/kernels.md; - is stdin) or the name of a known one, the whole kernel is
    planned: shared memory, tensor memory, registers and barriers. --template prints a known kernel to start from.
    """,
    inputs=(
        replace(TILE, read=tile_or_name, is_required=False),
        replace(ELEMENT_TYPE, is_required=False),
        *PLAN_OPTIONS,
        *KERNEL_OPTIONS,
        TEMPLATE,
        PATH_OF,
        WHY,
        EMIT,
        PROGRAM_FILE,
    ),
    answer=plan_answer,
    functions=(plan,),
)
_TARGET_NAMES = {
    "cuda": "a CUDA program",
    "ptx": "PTX",
    "cute": "CuTe C++",
    "triton": "Triton (Gluon)",
    "python": "a Python script",
}
_GEMM_TARGET_NAMES = {"cuda": "a CUDA program", "python": "a Python script", "header": "a header to call"}
GEMM_TARGETS = tuple(_GEMM_TARGET_NAMES)
TARGET = Input(
    "target",
    "--emit",
    "Code to copy",
    "of the best plan, below the drawing.",
    choices=("none", *_TARGET_NAMES),
)


def asking_why(asked: Asked) -> Asked:
    """A page names every candidate, with the reasons, unasked."""
    return asked.saying(why=True)


def _plan_code(asked: Asked, answer: Answer) -> Code | Sentences:
    """The best plan as source text, or why there is none."""
    report = answer.value
    if answer.call is None or not isinstance(report, PlanReport) or not report.candidates:
        return ()
    best = replace(answer.call, attribute="best")
    command = PLAN.words(asked.saying(why=None, emit=asked.get("target")))
    return code_of(report.best, best, asked.get("target", "none"), command)


def code_of(
    planned: Plan | GemmPlan | KernelPlan, call: Call[Any], target: Target | Literal["none"], command: list[str]
) -> Code | Sentences:
    """A plan as source text, with the Python and the command that write it; or why there is none.

    `call` makes the plan.
    """
    if target == "none":
        return ()
    from tilescope.emitter.emission import emit

    try:
        source = emit(planned, target)
    except RuleError as error:
        return tuple(f"No {target} code: {violation}" for violation in error.violations)
    return Code(
        title=f"The best plan as {(_TARGET_NAMES | _GEMM_TARGET_NAMES)[target]}",
        source=source,
        call=Call(emit, (replace(call, name=""), target), name="source"),
        command=tuple(command),
    )


def _plan_leads(_: Asked, answer: Answer) -> Leads:
    """The pages on which the best plan goes on, by what they show: one of its copies, its descriptors, its stages."""
    report = answer.value
    if not isinstance(report, PlanReport) or not report.candidates:
        return {}
    best = report.best
    problem = best.problem
    query = {"tile": "x".join(map(str, problem.tile)), "data_type": problem.data_type.name}
    leads: dict[str, str] = {}
    if best.boxes is not None and problem.direction == "load":
        leads["See its first copy"] = address("load", _first_copy(best))
    if problem.reads_by_descriptor:
        layout = {"major": problem.major, "swizzle": best.swizzle.name, "atom_order": best.atom_order}
        operand = {"operand": problem.operand or "A", "reader": str(problem.consumer)}
        leads["See its descriptors"] = address("tensor-core", query | layout | operand)
    if problem.reads_by_descriptor and problem.direction == "load":
        planned = {"arch": problem.arch.name, "stages": str(max(2, problem.stages))}
        leads["Run its stages"] = address("pipeline", query | planned)
    return {"plan": leads}


def path_leads(asked: Asked, answer: Answer) -> Leads:
    """The pages that show one stop in full."""
    path = answer.value
    if not isinstance(path, ElementPath):
        return {}
    problem = path.plan.problem
    query = {"tile": "x".join(map(str, problem.tile)), "data_type": problem.data_type.name}
    options = {
        name: in_words(asked[name]) for name in ("major", "consumer", "arch", "swizzle", "operand") if name in asked
    }
    leads = {"See the plan": address("plan", query | options)}
    if path.plan.boxes is not None and not path.plan.folded:
        leads["See its first copy"] = address("load", _first_copy(path.plan))
    return {"stops": leads}


def _first_copy(best: Plan) -> Mapping[str, str]:
    """The map of a plan and where its first copy starts, as the fields of the page of copies hold them."""
    tensor_map = best.tensor_map(0)
    return {
        "data_type": in_words(tensor_map.data_type),
        "dims": in_words(tensor_map.dims),
        "strides_bytes": in_words(tensor_map.strides_bytes),
        "box": in_words(tensor_map.box),
        "swizzle": in_words(tensor_map.swizzle),
        "coords": in_words(best.copies[0].coords),
    }


_RARE = frozenset(
    ["card", "atom_order", "stages", "copy", "direction", "traffic", "fold", "global_shape", "strides_bytes"]
)
TILE_EXTENTS = {"mn": ("tile", 0), "m": ("tile", 0), "n": ("tile", 0), "k": ("tile", 1)}
PLAN_FORM = PageForm(
    PLAN,
    inputs=(*PLAN_INPUTS, TARGET),
    presets={"tile": "128x64", "data_type": "bf16", "target": "cuda"},
    rare=_RARE,
    extents=TILE_EXTENTS,
    asking=asking_why,
    limits={"elements": LARGEST_TILE_ELEMENTS, "elements counted": LARGEST_COUNTED_ELEMENTS},
    leads=_plan_leads,
    code=_plan_code,
)
PATH_FORM = PageForm(
    PLAN,
    inputs=(TILE, ELEMENT_TYPE, PATH_OF, *PLAN_OPTIONS),
    presets={"tile": "128x64", "data_type": "bf16", "element": "37,21"},
    limits={"elements": LARGEST_TILE_ELEMENTS, "elements counted": LARGEST_COUNTED_ELEMENTS},
    rare=_RARE,
    extents=TILE_EXTENTS,
    walks=True,
    picked="element",
    leads=path_leads,
)


def _kernel_code(asked: Asked, answer: Answer) -> Code | Sentences:
    """The planned kernel as CUDA, with gaps for its arithmetic."""
    if answer.call is None or not isinstance(answer.value, KernelPlan):
        return ()
    return code_of(answer.value, answer.call, "cuda", PLAN.words(asked.saying(emit="cuda")))


KERNEL_FORM = PageForm(
    PLAN,
    inputs=(KNOWN_KERNEL, *KERNEL_FIELDS, ARCHITECTURE, BLOCKS_PER_SM),
    presets={"known": "flash-attention-3-forward-128"},
    asking=ask_as_command,
    code=_kernel_code,
)
KERNEL_TEXT_FORM = PageForm(
    PLAN,
    inputs=(KERNEL_TEXT, ARCHITECTURE, BLOCKS_PER_SM),
    presets={"text": KERNEL_SAMPLE},
    opens={"text": OpenedField(fields_of_text)},
    asking=ask_about_text,
    code=_kernel_code,
    limits=KERNEL_LIMITS,
)
QUESTIONS = (PLAN,)
