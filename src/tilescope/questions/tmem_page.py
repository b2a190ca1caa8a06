"""The page of tensor memory: places of an accumulator, an operand or scale factors, and which of them fit together."""

from __future__ import annotations

from dataclasses import replace

from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, Input
from tilescope.questions.scale_questions import SCALE_KIND, SCALED_SHAPE, SCALES, SCALES_ATOM
from tilescope.questions.tmem_questions import (
    TMEM,
    TMEM_BUDGET,
    TMEM_ELEMENT,
    TMEM_FORM,
    TMEM_K,
    TMEM_LOAD,
    TMEM_M,
    TMEM_METADATA,
    TMEM_N,
    TMEM_OPTIONS,
)
from tilescope.written import pair

LARGEST_SCALED_ELEMENTS = 1 << 26
MAX_BUDGET_CHARACTERS = 400
_M = replace(TMEM_M, label="Rows m", hint="of the instruction; with 2 blocks those of the pair.", is_required=True)
_N = replace(TMEM_N, label="Columns n", hint="of the accumulator.", is_required=True)
_K = replace(TMEM_K, label="Columns k", hint="of A, in elements.", is_required=True)
_METADATA = replace(TMEM_METADATA, label="Its metadata instead")
_ELEMENT = replace(TMEM_ELEMENT, label="Mark element", hint="as row,column.")
_LOADED_BY = replace(
    TMEM_LOAD,
    label="Loaded by",
    hint="a tcgen05.ld: which warp, lane and register get the element.",
    choices=("32x32b.x32", "16x64b.x8", "16x128b.x8", "16x256b.x4"),
    is_open=True,
)
_TYPE, _ADDRESS = TMEM_OPTIONS[len(TMEM_FORM) :]
_BUDGET = replace(
    TMEM_BUDGET,
    label="Matrices",
    hint="with commas between them: D, A, metadata as MxN[:TYPE][*COUNT]; SFA, SFB as ROWSxK:KIND; a number is columns.",
    choices=(
        "D:128x128*2,SFA:128x256:nvfp4,SFB:128x256:nvfp4",
        "D:128x256*2",
        "D:128x256*2,A:128x64",
        "D:64x128,D:64x128",
    ),
    is_open=True,
    is_long=True,
    longest=MAX_BUDGET_CHARACTERS,
    is_required=True,
)
_SCALED = Input("element", "--element", "Mark element", "of the matrix, as row,k.", read=pair)


def _scale_leads(asked: Asked, _: Answer) -> Leads:
    """The form that checks whether the scale factors fit together with their accumulators."""
    rows, k = asked["shape"]
    if rows > 128 or asked.get("atom", "128x4") != "128x4":
        return {}
    parts = f"D:128x128*2,SFA:{rows}x{k}:{asked['kind']}"
    return {"tables": {"See whether they fit": address("tensor-memory", {"show": "budget", "budget": parts})}}


ACCUMULATOR_FORM = PageForm(
    TMEM,
    inputs=(_M, _N, *TMEM_FORM, _ELEMENT, _LOADED_BY, _TYPE, _ADDRESS),
    presets={"m": "128", "n": "64", "element": "37,40", "load": "32x32b.x32"},
    rare=frozenset(["ws", "sparse", "data_type", "address"]),
)
OPERAND_FORM = PageForm(
    TMEM,
    inputs=(_M, _K, *TMEM_FORM, _METADATA, _ELEMENT, _TYPE, _ADDRESS),
    presets={"m": "128", "k": "64", "element": "37,40"},
    rare=frozenset(["ws", "sparse", "metadata", "address"]),
)
SCALES_FORM = PageForm(
    SCALES,
    inputs=(SCALED_SHAPE, SCALE_KIND, _SCALED, SCALES_ATOM),
    presets={"shape": "128x256", "kind": "nvfp4", "element": "37,100"},
    limits={"scaled elements": LARGEST_SCALED_ELEMENTS},
    leads=_scale_leads,
)
BUDGET_FORM = PageForm(
    TMEM,
    inputs=(_BUDGET, *TMEM_FORM),
    presets={"budget": "D:128x128*2,SFA:128x256:nvfp4,SFB:128x256:nvfp4"},
    rare=frozenset(["ws", "sparse"]),
)
FORMS = {"accumulator": ACCUMULATOR_FORM, "operand": OPERAND_FORM, "scales": SCALES_FORM, "budget": BUDGET_FORM}
