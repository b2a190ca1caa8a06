"""The page of copies: the box in the tensor, shared memory beside it, and the walk from row to row."""

from __future__ import annotations

from typing import Any

from tilescope.tma import trace
from tilescope.tma.tracing import OPERATIONS, Trace
from tilescope.tma.walk import row_coords
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Grid
from tilescope.view.parts import Beside
from tilescope.view.tensor_plane import chunk_links, dim_names
from tilescope.web.call import Call
from tilescope.web.field import Field, Optional, choice, integer, integers, limited, option_words
from tilescope.web.page import Answer, Drag, Page, Step, drawn
from tilescope.web.pages.map_fields import KIND, MAP_FORMS, map_arguments, map_call

MOST_SMEM_BYTES = 1 << 18
MOST_LINES = 256  # drawn
EXACT = (32, 160)  # columns and rows of a tensor that are drawn one by one
_MOST_STEPS = 512


def answer(kind: str, asked: dict[str, Any]) -> Answer:
    """The trace of one copy."""
    arguments = map_arguments(kind, asked)
    tensor_map = arguments.tensor_map()
    limited("bytes of shared memory", "box", tensor_map.smem_bytes, MOST_SMEM_BYTES, "Use a smaller box.")
    coords = asked["coords"] if asked["coords"] is not None else (0,) * tensor_map.rank
    options = {
        "offsets": asked.get("offsets") or (),
        "smem_address": asked["smem_address"],
        "operation": asked["operation"],
    }
    call = Call(trace, (map_call(arguments), coords), options, "trace")
    found = call.run()
    drawing = drawn(found, lines=MOST_LINES, exact=EXACT)
    fields = (*MAP_FORMS[kind], *_copy_fields(kind))
    command = ("load", *option_words(fields, asked | {"coords": coords}))
    return Answer(
        call, command, found, drawing,
        violations=tensor_map.findings, steps=_steps(found), drag=_drag(found, drawing),
    )  # fmt: skip


def _steps(found: Trace) -> tuple[Step, ...]:
    """The rows of the copy in the order of shared memory."""
    steps = []
    for row, coords in enumerate(row_coords(found.copy)[:_MOST_STEPS].tolist()):
        steps.append(Step(chunk_links(found, row), f"row {row} of the copy: coordinates {tuple(coords)}"))
    return tuple(steps)


def _drag(found: Trace, drawing: Drawing) -> Drag | None:
    """The plane of the tensor, which moves along the dimensions that it shows; four gathered rows do not."""
    plane = next(part for beside in drawing.parts if isinstance(beside, Beside) for part in beside.parts)
    if not isinstance(plane, Grid) or found.operation not in ("load", "store"):
        return None
    names = dim_names(found)
    across, down = plane.tiers[0].name, plane.label_names[0]
    return Drag("coords", plane.title, names.index(across), names.index(down) if down else None)


_FIRST = {"tensor_map": "16,11", "im2col_map": "0,-1,-1,0", "im2col_wide_map": "0,0,0,0"}


def _copy_fields(kind: str) -> tuple[Field, ...]:
    """The fields of one copy through a map of this kind."""
    said = "Where the box starts, innermost first. Drag it, too."
    offsets = Field("offsets", "Offsets", read=Optional(integers), option="--offsets",
                    hint="Im2col: W, H, D; im2col-wide: halo, offset.")  # fmt: skip
    return (
        Field("coords", "Coordinates", _FIRST[kind], Optional(integers), said, option="--coords"),
        *((offsets,) if kind != "tensor_map" else ()),
        Field("smem_address", "Shared address", "0x0", integer, option="--smem-address", unsaid="0"),
        choice("operation", "Operation", OPERATIONS, option="--operation", unsaid="load"),
    )


PAGE = Page(
    "load",
    "Load",
    "One TMA copy, byte for byte: where the box lies in the tensor, and where its rows land in shared memory.",
    {kind: (*_copy_fields(kind), *fields) for kind, fields in MAP_FORMS.items()},
    answer,
    KIND,
)
