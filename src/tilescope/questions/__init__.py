"""What people ask: one value per question, from which a command and the forms of a page are made.

    tilescope swizzle 64B ──┐                                            ┌──▶ drawn in a terminal, --json, --svg
                            ├──▶ Asked ── Question.answer ──▶ Answer ────┤
    /swizzle?mode=64B ──────┘                                            └──▶ a page, its .svg and its .json

So a page and the command that it shows answer the same. Every module holds some questions, and the forms in which
pages ask them. It is imported when one of them is asked: `tilescope swizzle` starts without the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilescope.questions.question import Question

MODULES = {  # of questions, by the words of their commands
    "plan": "plans",
    "gemm": "plans",
    "pipeline": "pipelines",
    "run": "runs",
    "check": "maps",
    "decode": "decoding",
    "diff": "map_differences",
    "load": "copies",
    "identify": "copies",
    "conv": "convolutions",
    "swizzle": "swizzles",
    "banks": "banks",
    "mma layout": "operands",
    "mma fragment": "fragments",
    "mma tmem": "tensor_memory",
    "mma scales": "scale_factors",
    "mma instruction": "instruction_words",
    "mma descriptors": "operands",
    "mma check": "agreements",
    "draw": "layouts",
    "convert": "layouts",
    "explain": "topics",
}


def question_of(command: str) -> Question:
    """The question that a command asks.

    >>> question_of("swizzle").inputs[0].label
    'Mode'
    """
    questions: tuple[Question, ...] = import_module(f"tilescope.questions.{MODULES[command]}").QUESTIONS
    return next(one for one in questions if one.name == command)
