"""The page of layouts: any notation drawn, two side by side with their differences, threads and values."""

from __future__ import annotations

from typing import Any

from tilescope.layout import Layout, Modes
from tilescope.notation import parse_layout, parse_layout_or_modes, parse_modes
from tilescope.view.layout_view import draw_difference, whole_layout
from tilescope.web.call import Call
from tilescope.web.field import Field, Optional, choice, integer, limited, option_words, pair, text
from tilescope.web.page import Answer, Page, Step, drawn

MOST_ELEMENTS = 1 << 15
_MOST_COMPARED = 1 << 14
_MOST_THREADS = 32  # that a walk visits


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """A layout both ways; with another, where the two differ; threads and values where nothing says the bits."""
    beside = {
        "element_bits": asked["element_bits"], "shape": asked["shape"], "major": asked["major"] or None,
        "unit": asked["unit"] or None, "start": asked["smem_address"],
    }  # fmt: skip
    found = parse_layout_or_modes(asked["text"], **beside)
    command = ("draw", asked["text"], *option_words(PAGE.forms[""], asked))
    if isinstance(found, Modes):
        limited("threads and values", "text", found.size, MOST_ELEMENTS, "Draw a part of it.")
        call = Call(parse_modes, (asked["text"],), name="modes", module="tilescope.notation")
        threads = min(_MOST_THREADS, found.parts[0].size)
        steps = tuple(Step(f"T{thread}", f"thread {thread}") for thread in range(threads))
        return Answer(call, command, found, drawn(found, shape=asked["shape"]), steps=steps)
    limited("elements", "text", found.elements, MOST_ELEMENTS, "Draw a part of it.")
    call = Call(parse_layout, (asked["text"],), beside, "layout")
    if not asked["other"]:
        return Answer(call, command, found, whole_layout(found))
    compared = Call(parse_layout, (asked["other"],), beside, "other")
    other = compared.run()
    limited("elements", "other", max(found.elements, other.elements), _MOST_COMPARED, "Compare a part of them.")
    return Answer(
        call,
        command,
        found,
        draw_difference(found, other),
        extra=_difference(found, other),
        then=Call(Layout.first_difference, (compared,), name="", receiver=call),
    )


def _difference(one: Layout, other: Layout) -> dict[str, Any]:
    first = one.first_difference(other)
    return {"other": other.to_dict(), "first_difference": None if first is None else list(first)}


_SAMPLES = (
    "Sw<3,4,3> o smem_ptr[16b](unset) o (_16,_64):(_64,_1)", "GMMA::Layout_K_SW128_Atom<half_t>",
    "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
    "(TileTransform((8, 64)), SwizzleTransform(128))", 'Layout((64, 64), 16, swizzle="128B")', "((4,8),(2,2)):((32,1),(16,8))",
)  # fmt: skip

PAGE = Page(
    "layout",
    "Layout",
    "Any layout of shared memory or of threads, as CuTe, Triton, Mosaic or tilescope write it.",
    {
        "": (
            Field("text", "Layout", _SAMPLES[0], text, control="area", most_characters=4000, choices=_SAMPLES,
                  hint="CuTe, Triton, Gluon, Mosaic, PTX, the driver's names, Layout(…)."),
            Field("other", "Compare with", "", text, control="area", most_characters=4000,
                  hint="A second layout of the same tile: where they differ is marked.", option="--other"),
            Field("element_bits", "Bits of an element", "", Optional(integer),
                  "Where the text does not say. Shape and stride without it are threads and values.", option="--bits"),
            Field("shape", "Tile", "", Optional(pair), "mn x k, where the text does not say.", option="--shape"),
            choice("major", "Contiguous", ("", "K", "MN"), hint="Where the text does not say.", option="--major"),
            choice("unit", "Unit of the swizzle", ("", "bytes", "elements"), hint="Of CuTe's Python form.", option="--unit"),
            Field("smem_address", "Shared address", "0x0", integer, option="--smem-address", unsaid="0"),
        )
    },
    answer,
)  # fmt: skip
