"""The page of a matrix product: its plan, code of it, and the pages on which its operands and stages go on."""

from __future__ import annotations

from tilescope.planner import GemmPlan, Plan
from tilescope.questions.page import Code, Leads, PageForm, Sentences, address
from tilescope.questions.plan_questions import GEMM, GEMM_OPTIONS, SHAPE, TARGET, asking_why, code_of
from tilescope.questions.question import Answer, Asked
from tilescope.questions.shared_inputs import ELEMENT_TYPE
from tilescope.sentence import by


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
    kept = {name: str(asked[name]) for name in ("arch", "consumer") if name in asked}
    leads = {
        "Follow an element of A": _way_of(planned.a, "A"),
        "Follow an element of B": _way_of(planned.b, "B"),
        "Run its stages": address("pipeline", stages | kept),
    }
    return {"plan": leads}


def _way_of(plan: Plan, operand: str) -> str:
    """The page of one element of an operand's tile."""
    problem = plan.problem
    said = {
        "tile": by(problem.tile).replace(" ", ""),
        "data_type": problem.data_type.name,
        "element": "0,0",
        "major": problem.major,
        "arch": problem.arch.name,
        "swizzle": plan.swizzle.name,
        "operand": operand,
    }
    return address("path", said)


GEMM_PLAN_FORM = PageForm(
    GEMM,
    inputs=(SHAPE, ELEMENT_TYPE, *GEMM_OPTIONS, TARGET),
    presets={"shape": "4096x4096x4096", "data_type": "bf16", "target": "none"},
    rare=frozenset(["card", "tile", "stages", "output_type", "sms"]),
    asking=asking_why,
    leads=_gemm_leads,
    code=_gemm_code,
)
