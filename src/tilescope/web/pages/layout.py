"""The page of layouts: any notation drawn, two side by side with their differences, threads and values."""

from __future__ import annotations

from math import prod
from typing import Any

from tilescope.notation import parse_layout
from tilescope.web.call import Call
from tilescope.web.field import Field, choice, integer, optional, pair, text
from tilescope.web.page import Answer, Page, drawn, limited

MOST_ELEMENTS = 1 << 16


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """The layout drawn piece by piece."""
    options = {"element_bits": asked["element_bits"], "shape": asked["shape"], "major": asked["major"] or None,
               "start": asked["smem_address"]}  # fmt: skip
    call = Call(parse_layout, (asked["text"],), options, "layout")
    found = call.run()
    limited("elements", "text", prod(found.shape), MOST_ELEMENTS, "Draw a part of it.")
    drawing = drawn(found)
    command = ("convert", asked["text"], "--to", "tilescope")
    return Answer(call, command, found, drawing)


PAGE = Page(
    "layout",
    "Layout",
    "Any layout of shared memory, as CuTe, Triton, Mosaic or tilescope write it, drawn element by element.",
    {
        "": (
            Field("text", "Layout", "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", text, control="area",
                  most_characters=4000, hint="CuTe, Triton, Gluon, Mosaic, PTX, the driver's names, Layout(…)."),
            Field("element_bits", "Bits of an element", "", optional(integer), "Where the text does not say."),
            Field("shape", "Tile", "", optional(pair), "mn x k, where the text does not say."),
            choice("major", "Contiguous", ("", "K", "MN"), hint="Where the text does not say."),
            Field("smem_address", "Shared address", "0x0", integer),
        )
    },
    answer,
)  # fmt: skip
