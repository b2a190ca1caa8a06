"""The questions of users: one value per question, from which a command and the forms of a page are built.

    tilescope swizzle 64B ──┐                                            ┌──▶ drawn in a terminal, --json, --svg
                            ├──▶ Asked ── Question.answer ──▶ Answer ────┤
    /swizzle?mode=64B ──────┘                                            └──▶ a page, its .svg and its .json

So a page and the command that it shows give the same answer. Every module defines some questions, and the forms of
their pages. It is imported when one of them is used: `tilescope swizzle` starts without the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilescope.questions.question import Question

MODULES = {  # of questions, by the words of their commands
    "plan": "plan_questions",
    "gemm": "gemm_questions",
    "pipeline": "pipeline_questions",
    "run": "run_questions",
    "check": "map_questions",
    "decode": "decode_questions",
    "diff": "difference_questions",
    "load": "copy_questions",
    "identify": "copy_questions",
    "conv": "convolution_questions",
    "swizzle": "swizzle_questions",
    "banks": "bank_questions",
    "mma layout": "operand_questions",
    "mma fragment": "fragment_questions",
    "mma tmem": "tmem_questions",
    "mma scales": "scale_questions",
    "mma instruction": "instruction_questions",
    "mma descriptors": "operand_questions",
    "mma check": "agreement_questions",
    "draw": "layout_questions",
    "convert": "layout_questions",
    "explain": "topic_questions",
}


def question_of(command: str) -> Question:
    """The question of a command.

    >>> question_of("swizzle").inputs[0].label
    'Mode'
    """
    questions: tuple[Question, ...] = import_module(f"tilescope.questions.{MODULES[command]}").QUESTIONS
    return next(question for question in questions if question.name == command)
