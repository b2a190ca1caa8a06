"""How the answers to two states of a page differ, in words.

    left    32 x 32 f32, no swizzle       transpose: 32 wavefronts
    right   32 x 32 f32, padding of 4     transpose: 1 wavefront
    said    On the right, transpose: 1 wavefront instead of 32 wavefronts.

The facts of one answer are a mapping from names to values. Two answers differ in the facts that they do not share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm
from typing import TypeAlias

import numpy as np

from tilescope.pipeline.simulation import Simulation
from tilescope.planner import PlanReport, Unplanned
from tilescope.questions.question import Answer
from tilescope.sentence import by, counted
from tilescope.smem.report import TileReport
from tilescope.swizzle import CHUNK_BYTES, Swizzle
from tilescope.value import Value

Facts: TypeAlias = Mapping[str, str]
_LARGEST_PATTERN_BYTES = 1 << 16  # of two swizzles that are compared chunk by chunk


def differences(left: Answer, right: Answer) -> str:
    """What the right one of two answers has instead of the left one's, in a sentence."""
    facts = _facts_of(left)
    other_facts = _facts_of(right)
    if bool(facts) != bool(other_facts):
        return f"There is a plan on the {'left' if facts else 'right'} alone."
    clauses = [
        _describe_difference(name, facts.get(name), other_facts.get(name))
        for name in dict.fromkeys((*facts, *other_facts))
        if facts.get(name) != other_facts.get(name)
    ]
    moved = _moved_chunks(left, right)
    if moved:
        clauses.append(moved)
    if not clauses:
        return "Both sides give the same answer."
    return f"On the right, {'; '.join(clauses)}."


def _describe_difference(name: str, left: str | None, right: str | None) -> str:
    """One fact that differs.

    >>> _describe_difference("copies", "4", "2"), _describe_difference("transpose", "32 wavefronts", None)
    ('copies: 2 instead of 4', 'no transpose: 32 wavefronts on the left')
    """
    if right is None:
        return f"no {name}: {left} on the left"
    if left is None:
        return f"also {name}: {right}"
    return f"{name}: {right} instead of {left}"


def _facts_of(answer: Answer) -> Facts:
    """The facts in the headline of an answer."""
    return _FACTS[type(answer.value)](answer)


def _swizzle_facts(answer: Answer) -> Facts:
    mode = answer.value
    assert isinstance(mode, Swizzle)
    start = answer.shown.get("address", 0)
    assert isinstance(start, int)
    span = "any" if mode.span_bytes is None else f"at most {mode.span_bytes} bytes"
    return {
        "mode": mode.name,
        "a row of the box": span,
        "the pattern repeats after": counted(mode.repeat_bytes, "byte") if mode.bits else "nothing moves",
        "base offset": str(mode.base_offset(start)),
    }


def _moved_chunks(left: Answer, right: Answer) -> str:
    """How many chunks of a pattern two swizzles place differently; empty for other answers and equal ones."""
    swizzle = left.value
    other_swizzle = right.value
    if not isinstance(swizzle, Swizzle) or not isinstance(other_swizzle, Swizzle):
        return ""
    pattern_bytes = lcm(max(swizzle.repeat_bytes, CHUNK_BYTES), max(other_swizzle.repeat_bytes, CHUNK_BYTES))
    if pattern_bytes > _LARGEST_PATTERN_BYTES:
        return ""
    chunks = np.arange(0, pattern_bytes, CHUNK_BYTES)
    elsewhere = int((swizzle.apply(chunks) != other_swizzle.apply(chunks)).sum())
    if not elsewhere:
        return ""
    return f"{elsewhere} of the {len(chunks)} chunks in {pattern_bytes} bytes are elsewhere"


def _bank_facts(answer: Answer) -> Facts:
    report = answer.value
    assert isinstance(report, TileReport)
    return {cost.name: f"{counted(cost.wavefronts, 'wavefront')} ({cost.verdict})" for cost in report.costs}


def _plan_facts(answer: Answer) -> Facts:
    report = answer.value
    assert isinstance(report, PlanReport)
    if not report.candidates:
        return {}
    best = report.best
    costs = best.costs
    facts = {
        "swizzle": best.swizzle.name,
        "copies": best.problem.copy if best.box is None else f"{best.tma_instructions} of box {by(best.box)}",
        "a stage": counted(best.smem_bytes, "byte"),
        "conflicts": counted(costs.excess_wavefronts, "wavefront"),
    }
    if costs.gb_per_s is not None:
        facts["predicted"] = f"{costs.gb_per_s:.0f} GB/s"
    return facts


def _no_plan(_: Answer) -> Facts:
    return {}


def _pipeline_facts(answer: Answer) -> Facts:
    simulation = answer.value
    assert isinstance(simulation, Simulation)
    mistake = simulation.mistake
    ticks = max((event.end for event in simulation.events), default=0)
    return {
        "verdict": simulation.verdict if mistake is None else f"{mistake.outcome}, because {mistake.found}",
        "the timeline": counted(ticks, "nominal tick"),
        "actions": str(simulation.actions),
        "barriers": ", ".join(f"{barrier.name} x {barrier.stages}" for barrier in simulation.barriers),
    }


_FACTS: dict[type[Value], Callable[[Answer], Facts]] = {
    PlanReport: _plan_facts,
    Simulation: _pipeline_facts,
    Swizzle: _swizzle_facts,
    TileReport: _bank_facts,
    Unplanned: _no_plan,
}
