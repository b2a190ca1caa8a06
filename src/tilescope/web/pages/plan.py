"""The page of plans: a tile in, ranked plans and the code of the best one out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.data_type import DATA_TYPE
from tilescope.emitter.emission import TARGETS, emit
from tilescope.errors import RuleError, by
from tilescope.mma.consumer import CONSUMER
from tilescope.planner import plan
from tilescope.planner.plans import Plan
from tilescope.planner.search import PlanReport
from tilescope.swizzle import SWIZZLE
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part
from tilescope.web.call import Call
from tilescope.web.field import (
    Field,
    Optional,
    choice,
    integer,
    limited,
    option_words,
    pair,
    text,
    tick,
    written_argument,
)
from tilescope.web.page import Answer, Code, Lead, Page, address, command_line, drawn

MOST_ELEMENTS = 1 << 17
_MOST_COUNTED = 1 << 15  # of a tile that threads read as they like: every instruction is counted


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """Every candidate, ranked, with the reasons of those that were refused."""
    mn, k = asked["tile"]
    most = MOST_ELEMENTS if asked["consumer"] in (None, *CONSUMER) else _MOST_COUNTED
    limited("elements", "tile", abs(mn * k), most, "Plan a smaller tile.")
    options = {each.name: asked[each.name] for each in _FIELDS if each.option and asked[each.name] is not None}
    call = Call(plan, (asked["tile"], asked["data_type"]), options, "report")
    report = call.run()
    command = ["plan", f"{mn}x{k}", asked["data_type"], "--why", *option_words(_FIELDS, asked)]
    drawing = drawn(report, why=True)
    code, sentences = _code(call, report, asked["target"], command)
    extra = {} if code is None else {"source": code.source}
    return Answer(
        call, tuple(command), report, Drawing(drawing.title, (*drawing.parts, *sentences)), extra=extra, code=code,
        leads={"The plan": _leads(report.best)} if report.candidates else {},
    )  # fmt: skip


def _leads(best: Plan) -> tuple[Lead, ...]:
    """The pages on which the plan goes on: one of its copies, its descriptors, its stages."""
    problem = best.problem
    said = {"tile": by(problem.tile).replace(" ", ""), "data_type": problem.data_type.name}
    leads = []
    if best.boxes is not None and problem.direction == "load":
        made = best.tensor_map(0)
        copied = {
            name: written_argument(getattr(made, name))
            for name in ("data_type", "dims", "strides_bytes", "box", "swizzle")
        }
        leads.append(
            Lead(address("load", copied | {"coords": written_argument(best.copies[0].coords)}), "See its first copy")
        )
    if problem.reads_by_descriptor:
        layout = {"major": problem.major, "swizzle": best.swizzle.name, "atom_order": best.atom_order}
        operand = {"operand": problem.operand or "A", "reader": str(problem.consumer)}
        leads.append(Lead(address("tensor-core", said | layout | operand), "See its descriptors"))
    if problem.reads_by_descriptor and problem.direction == "load":
        planned = {"arch": problem.arch.name, "stages": str(max(2, problem.stages))}
        leads.append(Lead(address("pipeline", said | planned), "Run its stages"))
    return tuple(leads)


def _code(call: Call, report: PlanReport, target: str, command: list[str]) -> tuple[Code | None, list[Part]]:
    """The best plan as source text, or the sentences that say why there is none."""
    if target == "none" or not report.candidates:
        return None, []
    best = replace(call, name="", attribute="best")
    written = Call(emit, (best, target), name="source")
    try:
        source = emit(report.best, target)  # type: ignore[arg-type]
    except RuleError as error:
        return None, [Paragraph(f"No {target} code: {violation}") for violation in error.violations]
    words = [*(word for word in command if word != "--why"), "--emit", target]
    return Code(f"The best plan as {_TARGET_NAMES[target]}", source, written, command_line(words)), []


_TARGET_NAMES = {
    "cuda": "a CUDA program", "ptx": "PTX", "cute": "CuTe C++", "triton": "Triton (Gluon)", "python": "a Python script",
}  # fmt: skip
_NAME = Optional(text)
_FIELDS = (
    Field("tile", "Tile", "128x64", pair, "mn x k, in elements."),
    Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE)),
    choice("major", "Contiguous", ("K", "MN"), option="--major", unsaid="K"),
    Field("consumer", "Read by", "", _NAME, 'Or a pattern such as "ld.b128 columns"; empty: the best tensor core.',
          tuple(CONSUMER), option="--consumer"),
    Field("arch", "Architecture", "", _NAME, "Empty: the card's.", tuple(ARCH), option="--arch"),
    Field("card", "Card", "", _NAME, "Whose rates weigh the plans; empty: the architecture's.", tuple(CARD), option="--card"),
    Field("swizzle", "Swizzle", "", _NAME, "Empty: all.", tuple(SWIZZLE), option="--swizzle"),
    Field("atom_order", "Atom order", "", _NAME, "column, row; empty: both.", ("column", "row"), option="--atom-order"),
    Field("operand", "Operand", "", _NAME, "A or B; empty: whichever.", ("A", "B"), option="--operand"),
    Field("stages", "Stages", "1", integer, option="--stages", unsaid="1"),
    Field("copy", "Copied by", "", _NAME, "Empty: TMA where there is one.", ("tma", "cp.async", "ld.global"), option="--copy"),
    choice("direction", "Direction", ("load", "store"), option="--direction", unsaid="load"),
    choice("traffic", "Traffic", ("dense", "sparse"), option="--traffic", unsaid="dense"),
    tick("fold", "Also maps of rank 3 and 4", option="--fold"),
    choice("target", "Code to copy", ("none", *TARGETS), "cuda", "Of the best plan, below the drawing."),
    Field("global_shape", "Whole matrix", "", Optional(pair), "mn x k; empty: the tile.", option="--global-shape"),
)  # fmt: skip

PAGE = Page(
    "plan",
    "Plan",
    "What to do with a tile: swizzle, boxes, copies and descriptors, ranked, with the reasons, and code to copy.",
    {"": _FIELDS},
    answer,
)
