"""The pages of swizzle modes, of layouts in any notation, and of the banks that accesses to them meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilescope.data_type import DataType
from tilescope.inputs import MODE, START, TYPE, Input, command_words, defaults
from tilescope.inputs.beside import comparison_facts, swizzle_facts
from tilescope.inputs.tiles import BANK_TILE, DRAWN_LAYOUT, LAYOUT_TEXT
from tilescope.layout import Layout, Modes
from tilescope.notation import parse_layout, parse_layout_or_modes, parse_modes
from tilescope.smem.access import Access
from tilescope.smem.report import cured_report, layout_as_written, padded_report, tile_report
from tilescope.smem.search import find_layouts
from tilescope.swizzle import Swizzle
from tilescope.view.layout_view import draw_difference, whole_layout
from tilescope.view.swizzle_view import draw_swizzle, pattern_grid
from tilescope.web.call import Call
from tilescope.web.page import Answer, Page, answered, drawn, form, limited
from tilescope.written import rows_and_columns

MAX_ELEMENTS = 1 << 15
_MAX_COMPARED = 1 << 14
_MAX_THREADS = 32  # that a walk visits


def swizzle_answer(_: str, asked: dict[str, Any]) -> Answer:
    """The mode's pattern from the address on; the walk visits every piece in the order in which a program counts."""
    call, start = Call(Swizzle.named, (asked["mode"],), name="swizzle"), asked.get("address", 0)
    mode: Swizzle = call.run()
    steps = [(cell.link, cell.title) for row in pattern_grid(mode, start).rows for cell in row.cells]
    return answered(call, drawing={"address": start}, steps=steps, extra=swizzle_facts(mode, start))


def swizzle_command(_: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    return ["swizzle", *command_words(MODE, asked, defaults(draw_swizzle))]


def _parsing(asked: dict[str, Any], name: str, text: str = "text") -> Call:
    """The call that reads a field's text as a layout, with what the other fields say beside it."""
    beside = {"start" if row is START else row.name: asked[row.name] for row in LAYOUT_TEXT if row.name in asked}
    return Call(parse_layout, (asked.get(text, ""),), beside, name)  # an empty text is refused with its reason


def layout_answer(_: str, asked: dict[str, Any]) -> Answer:
    """A layout both ways; with another, where the two differ; threads and values where nothing says the bits."""
    call = _parsing(asked, "layout")
    layout = parse_layout_or_modes(asked["text"], **call.options)
    if isinstance(layout, Modes):
        limited("threads and values", "text", layout.size, MAX_ELEMENTS, "Draw a part of it.")
        call = Call(parse_modes, (asked["text"],), name="modes", module="tilescope.notation")
        steps = [(f"T{thread}", f"thread {thread}") for thread in range(min(_MAX_THREADS, layout.parts[0].size))]
        return answered(call, drawing={"shape": asked.get("shape")}, steps=steps)
    limited("elements", "text", layout.elements, MAX_ELEMENTS, "Draw a part of it.")
    if "other" not in asked:
        return Answer(call, layout, whole_layout(layout))
    compared = _parsing(asked, "other", "other")
    other = compared.run()
    limited("elements", "other", max(layout.elements, other.elements), _MAX_COMPARED, "Compare a part of them.")
    return Answer(
        call,
        layout,
        draw_difference(layout, other),
        extra=comparison_facts(layout, other),
        then=Call(Layout.first_difference, (compared,), name="", receiver=call),
    )


def layout_command(_: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    return ["draw", *command_words(DRAWN_LAYOUT, asked, defaults(parse_layout, smem_address="start"))]


def banks_answer(chosen: str, asked: dict[str, Any]) -> Answer:
    """The cost of the patterns as things are, and on the best layout that the search knows."""
    patterns = [asked[name] for name in ("pattern", "other") if asked.get(name)]
    if chosen == "lanes":
        call = Call(tile_report, ([Call(Access.named, (pattern,), name="") for pattern in patterns],), name="report")
        return answered(call)
    layout = _tile_layout(asked) if chosen == "tile" else _parsing(asked, "layout")
    placed = layout.run()
    limited("elements", "tile", placed.elements, MAX_ELEMENTS, "Use a smaller tile.")
    tile, bits = placed.as_rows().shape, placed.element_bits
    accesses = [Call(Access.named, (pattern, tile, bits), name="") for pattern in patterns]
    call, ran = Call(tile_report, (accesses, layout), name="report"), [access.run() for access in accesses]
    report = padded_report(ran, placed, asked.get("pad", 0))
    search = find_layouts(ran, tile=placed if chosen == "tile" else tile, element_bits=bits)
    cured = cured_report(ran, placed, search.best.layout) if report.excess > search.best.excess else None
    return Answer(call, report, drawn(report, search=search, cured=cured), extra={"search": search.to_dict()})


def banks_command(chosen: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    patterns = [asked[name] for name in ("pattern", "other") if asked.get(name)]
    said = [word for pattern in patterns for word in ("--pattern", pattern)]
    if chosen == "lanes":
        return ["banks", *said]
    if chosen == "tile":
        words = command_words(_TILE, asked, defaults(layout_as_written, smem_address="start"))
    else:
        words = command_words(_TEXT, asked, defaults(parse_layout))
    return ["banks", *words, *said, "--fix"]


def _tile_layout(asked: dict[str, Any]) -> Call:
    """The layout of a tile that fields describe: with the atoms or the padding that TMA makes, where fields stay empty."""
    rows, columns = asked["tile"]
    limited("elements", "tile", rows * columns, MAX_ELEMENTS, "Use a smaller tile.")
    options = {"start" if row is START else row.name: asked[row.name] for row in _TILE[2:] if row.name in asked}
    written = layout_as_written(asked["tile"], DataType.named(asked["data_type"]).smem_bits, **options)
    names = ("atom", "atom_order", "padding_bytes", "major", "start")
    said = {name: getattr(written, name) for name in names} | {"swizzle": written.swizzle.name}
    if written.atom == written.shape:
        said.pop("atom")  # one atom is what a Layout has anyway
    return Call(Layout, (written.shape, written.element_bits), said, "layout")


_SAMPLES = (
    "Sw<3,4,3> o smem_ptr[16b](unset) o (_16,_64):(_64,_1)", "GMMA::Layout_K_SW128_Atom<half_t>",
    "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
    "(TileTransform((8, 64)), SwizzleTransform(128))", 'Layout((64, 64), 16, swizzle="128B")', "((4,8),(2,2)):((32,1),(16,8))",
)  # fmt: skip
_ACCESSES = (
    "transpose", "st.b128 rows", "ld.b32 columns", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4", "cp.async",
    "mma.m16n8k16 A bf16",
)  # fmt: skip
_PATTERNS = (
    Input("pattern", "", "Pattern", "an access of one warp, or a walk over the tile.", choices=_ACCESSES, is_open=True),
    Input("other", "", "And", "a second pattern on the same tile.", choices=_ACCESSES, is_open=True),
)
_TILE = (
    Input("tile", "", "Tile", "in elements, rows x columns.", rows_and_columns),
    replace(TYPE, option=""),
    *BANK_TILE,
    START,
)
_TEXT = (
    replace(DRAWN_LAYOUT[0], option="--layout", hint="in any notation that the layout page reads."),
    *(row for row in DRAWN_LAYOUT if row.name == "element_bits"),
)
_LANES = Input("pattern", "", "Addresses", "an access, a colon, an expression of lane.")

SWIZZLE_PAGE = Page(
    "swizzle",
    "Swizzle",
    "Where each 16-byte chunk of a line lies in shared memory, under a mode of the hardware or any XOR.",
    {"": form(MODE, mode="128B", address="0x0")},
    swizzle_answer,
    swizzle_command,
)
LAYOUT_PAGE = Page(
    "layout",
    "Layout",
    "Any layout of shared memory or of threads, as CuTe, Triton, Mosaic or tilescope write it.",
    {
        "": form(
            (replace(DRAWN_LAYOUT[0], choices=_SAMPLES, is_open=True), *DRAWN_LAYOUT[1:]),
            text=_SAMPLES[0], major="", unit="", smem_address="0x0",
        )
    },
    layout_answer,
    layout_command,
)  # fmt: skip
BANKS_PAGE = Page(
    "banks",
    "Banks",
    "How many wavefronts a warp's accesses take, which lanes wait for each other, and a layout that cures it.",
    {
        "tile": form(
            (*_TILE[:2], *_PATTERNS, *_TILE[2:]), tile="32x32", data_type="f32", pattern="transpose", other="st.b32 rows",
            swizzle="none", smem_address="0x0",
        ),
        "layout": form(
            (*_TEXT, *_PATTERNS), text="Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)",
            pattern="ldmatrix.x4",
        ),
        "lanes": form((_LANES,), pattern="ld.b32: lane * 33 * 4"),
    },
    banks_answer,
    banks_command,
    ("given", "Accessed is"),
)  # fmt: skip
