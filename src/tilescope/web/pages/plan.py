"""The page of plans: a tile in, ranked plans and the code of the best one out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilescope.arch import ARCH
from tilescope.card import CARD
from tilescope.data_type import DATA_TYPE
from tilescope.emitter.emission import TARGETS, emit
from tilescope.errors import RuleError
from tilescope.mma.consumer import CONSUMER
from tilescope.planner import plan
from tilescope.planner.search import PlanReport
from tilescope.swizzle import SWIZZLE
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part
from tilescope.web.call import Call
from tilescope.web.field import Field, choice, integer, limited, optional, pair, text, tick
from tilescope.web.page import Answer, Code, Page, command_line, drawn, written_argument

MOST_ELEMENTS = 1 << 17
_MOST_COUNTED = 1 << 15  # of a tile that threads read as they like: every instruction is counted
# option of plan: of the command
_OPTIONS = {
    "major": "--major", "consumer": "--consumer", "arch": "--arch", "card": "--card", "swizzle": "--swizzle", "atom_order": "--atom-order",
    "operand": "--operand", "stages": "--stages", "copy": "--copy", "direction": "--direction", "traffic": "--traffic",
    "fold": "--fold", "global_shape": "--global-shape",
}  # fmt: skip


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """Every candidate, ranked, with the reasons of those that were refused."""
    mn, k = asked["tile"]
    most = MOST_ELEMENTS if asked["consumer"] in (None, *CONSUMER) else _MOST_COUNTED
    limited("elements", "tile", abs(mn * k), most, "Plan a smaller tile.")
    options = {name: asked[name] for name in _OPTIONS if asked[name] is not None}
    call = Call(plan, (asked["tile"], asked["data_type"]), options, "report")
    report = call.run()
    command = ["plan", f"{mn}x{k}", asked["data_type"], "--why"]
    for name, option in _OPTIONS.items():
        if name == "fold":
            command += [option] if asked[name] else []
        elif name in options and written_argument(options[name]) != _DEFAULTS[name]:
            written = written_argument(options[name])
            command += [option, written.replace(",", "x") if name == "global_shape" else written]
    drawing = drawn(report, why=True)
    code, sentences = _code(call, report, asked["target"], command)
    extra = {} if code is None else {"source": code.source}
    return Answer(
        call, tuple(command), report, Drawing(drawing.title, (*drawing.parts, *sentences)), extra=extra, code=code
    )


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
_NAME = optional(text)
_FIELDS = (
    Field("tile", "Tile", "128x64", pair, "mn x k, in elements."),
    Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE)),
    choice("major", "Contiguous", ("K", "MN")),
    Field("consumer", "Read by", "", _NAME, 'Or a pattern such as "ld.b128 columns"; empty: the best tensor core.',
          tuple(CONSUMER)),
    Field("arch", "Architecture", "", _NAME, "Empty: the card's.", tuple(ARCH)),
    Field("card", "Card", "", _NAME, "Whose rates weigh the plans; empty: the architecture's.", tuple(CARD)),
    Field("swizzle", "Swizzle", "", _NAME, "Empty: all.", tuple(SWIZZLE)),
    Field("atom_order", "Atom order", "", _NAME, "column, row; empty: both.", ("column", "row")),
    Field("operand", "Operand", "", _NAME, "A or B; empty: whichever.", ("A", "B")),
    Field("stages", "Stages", "1", integer),
    Field("copy", "Copied by", "", _NAME, "Empty: TMA where there is one.", ("tma", "cp.async", "ld.global")),
    choice("direction", "Direction", ("load", "store")),
    choice("traffic", "Traffic", ("dense", "sparse")),
    tick("fold", "Also maps of rank 3 and 4"),
    choice("target", "Code to copy", ("none", *TARGETS), "cuda", "Of the best plan, below the drawing."),
    Field("global_shape", "Whole matrix", "", optional(pair), "mn x k; empty: the tile."),
)  # fmt: skip
_DEFAULTS = {field.name: field.default for field in _FIELDS}

PAGE = Page(
    "plan",
    "Plan",
    "What to do with a tile: swizzle, boxes, copies and descriptors, ranked, with the reasons, and code to copy.",
    {"": _FIELDS},
    answer,
)
