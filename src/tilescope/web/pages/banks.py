"""The page of banks: what patterns cost on a layout, and the layout that cures them beside it."""

from __future__ import annotations

from typing import Any

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.layout import ATOM_ORDERS, Layout
from tilescope.notation import parse_layout
from tilescope.smem.access import Access
from tilescope.smem.search import find_layouts
from tilescope.smem.tile import cured_report, tile_report
from tilescope.swizzle import SWIZZLE
from tilescope.web.call import Call
from tilescope.web.field import Field, Optional, choice, integer, limited, option_words, pair, text
from tilescope.web.page import Answer, Page, drawn

MOST_ELEMENTS = 1 << 15
_PATTERNS = ("transpose", "st.b128 rows", "ld.b32 columns", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4",
             "mma.m16n8k16 A bf16")  # fmt: skip


def answer(given_as: str, asked: dict[str, Any]) -> Answer:
    """The cost of the patterns as things are, and on the best layout that the search knows."""
    patterns = [each for each in (asked["pattern"], asked.get("other")) if each]
    named = [word for pattern in patterns for word in ("--pattern", pattern)]
    if given_as == "lanes":
        call = Call(tile_report, ([Call(Access.named, (each,), name="") for each in patterns],), name="report")
        report = call.run()
        return Answer(call, ("banks", *named), report, drawn(report))
    layout, command = (_tile if given_as == "tile" else _text)(asked)
    placed = layout.run()
    limited("elements", "tile", placed.elements, MOST_ELEMENTS, "Use a smaller tile.")
    tile, bits = placed.as_rows().shape, placed.element_bits
    accesses = [Call(Access.named, (each, tile, bits), name="") for each in patterns]
    call, ran = Call(tile_report, (accesses, layout), name="report"), [access.run() for access in accesses]
    report, search = tile_report(ran, placed), find_layouts(ran, tile=tile, element_bits=bits)
    cured = cured_report(ran, placed, search.best.layout) if report.excess > search.best.excess else None
    drawing = drawn(report, search=search, cured=cured)
    return Answer(call, ("banks", *command, *named, "--fix"), report, drawing, extra={"search": search.to_dict()})


def _tile(asked: dict[str, Any]) -> tuple[Call, list[str]]:
    """The layout of a tile that fields describe, and the words of the command that say the same."""
    rows, columns = asked["tile"]
    limited("elements", "tile", abs(rows * columns), MOST_ELEMENTS, "Use a smaller tile.")
    bits = DataType.named(asked["data_type"]).smem_bits
    options = {"swizzle": asked["swizzle"], "padding_bytes": asked["pad"], "atom_order": asked["atom_order"],
               "start": asked["smem_address"], "atom": asked["atom"]}  # fmt: skip
    command = [f"{rows}x{columns}", asked["data_type"], *option_words(PAGE.forms["tile"], asked)]
    return Call(Layout, (asked["tile"], bits), options, "layout"), command


def _text(asked: dict[str, Any]) -> tuple[Call, list[str]]:
    """The layout that a text says, and the words of the command that say the same."""
    command = ["--layout", asked["text"], *option_words(PAGE.forms["layout"], asked)]
    return Call(parse_layout, (asked["text"],), {"element_bits": asked["element_bits"]}, "layout"), command


_PATTERN = Field("pattern", "Pattern", "transpose", text, "An access of one warp, or a walk over the tile.", _PATTERNS)
_OTHER = Field("other", "And", "st.b32 rows", text, "A second pattern on the same tile.", _PATTERNS)

PAGE = Page(
    "banks",
    "Banks",
    "How many wavefronts a warp's accesses take, which lanes wait for each other, and a layout that cures it.",
    {
        "tile": (
            Field("tile", "Tile", "32x32", pair, "rows x columns, in elements."),
            Field("data_type", "Element type", "f32", choices=tuple(DATA_TYPE)),
            _PATTERN,
            _OTHER,
            Field("swizzle", "Swizzle", "none", text, "A mode, or xor:B,M,S.", tuple(SWIZZLE), option="--swizzle", unsaid="none"),
            Field("pad", "Padding in bytes", "0", integer, "After each row of an atom.", option="--pad"),
            Field("atom", "Atom", "", Optional(pair), "Stored whole, rows x columns; empty: the tile.", option="--atom"),
            choice("atom_order", "Atom order", ATOM_ORDERS, option="--atom-order", unsaid="column"),
            Field("smem_address", "Shared address", "0x0", integer, option="--smem-address", unsaid="0"),
        ),
        "layout": (
            Field("text", "Layout", "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)", text, control="area",
                  most_characters=4000, hint="In any notation that the layout page reads."),
            Field("element_bits", "Bits of an element", "", Optional(integer), "Where the text does not say.", option="--bits"),
            Field("pattern", "Pattern", "ldmatrix.x4", text, _PATTERN.hint, _PATTERNS),
            Field("other", "And", "", text, _OTHER.hint, _PATTERNS),
        ),
        "lanes": (
            Field("pattern", "Addresses", "ld.b32: lane * 33 * 4", text, "An access, a colon, an expression of lane."),
        ),
    },
    answer,
    choice("given", "Accessed is", ("tile", "layout", "lanes")),
)  # fmt: skip
