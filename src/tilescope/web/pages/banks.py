"""The page of banks: what patterns cost on a layout, and the layout that cures them beside it."""

from __future__ import annotations

from typing import Any

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import in_number
from tilescope.layout import ATOM_ORDERS, Layout
from tilescope.smem.access import Access
from tilescope.smem.search import find_layouts
from tilescope.smem.tile import TileReport, tile_report
from tilescope.swizzle import SWIZZLE
from tilescope.view.banks_view import bank_grid
from tilescope.view.drawing import Drawing
from tilescope.view.grid import Grid
from tilescope.view.parts import Beside, Part
from tilescope.web.call import Call
from tilescope.web.field import Field, choice, integer, optional, pair, text
from tilescope.web.page import Answer, Page, drawn, limited

MOST_ELEMENTS = 1 << 16
_PATTERNS = ("transpose", "st.b128 rows", "ld.b32 columns", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4",
             "mma.m16n8k16 A bf16")  # fmt: skip


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """The cost of the patterns as things are, and on the best layout that the search knows."""
    rows, columns = asked["tile"]
    limited("elements", "tile", abs(rows * columns), MOST_ELEMENTS, "Use a smaller tile.")
    bits = DataType.named(asked["data_type"]).smem_bits
    patterns = [each for each in (asked["pattern"], asked["other"]) if each]
    accesses = [Call(Access.named, (each, asked["tile"], bits), name="") for each in patterns]
    options = {"swizzle": asked["swizzle"], "padding_bytes": asked["pad"], "atom_order": asked["atom_order"],
               "start": asked["smem_address"], "atom": asked["atom"]}  # fmt: skip
    layout = Call(Layout, (asked["tile"], bits), options, "layout")
    call = Call(tile_report, (accesses, layout), name="report")
    report = call.run()
    ran = [each.run() for each in accesses]
    search = find_layouts(ran, tile=asked["tile"], element_bits=bits)
    cured = tile_report(ran, search.best.layout)
    command = ["banks", f"{rows}x{columns}", asked["data_type"]]
    for each in patterns:
        command += ["--pattern", each]
    command += ["--swizzle", asked["swizzle"]] if asked["swizzle"] != "none" else []
    command += ["--pad", str(asked["pad"])]
    command += ["--atom", f"{asked['atom'][0]}x{asked['atom'][1]}"] if asked["atom"] else []
    command += ["--atom-order", asked["atom_order"]] if asked["atom_order"] != "column" else []
    command += ["--smem-address", hex(asked["smem_address"])] if asked["smem_address"] else []
    searched = drawn(search)
    return Answer(
        call, (*command, "--fix"), report, _beside_its_cure(report, cured, search.best.label, searched),
        extra={"search": search.to_dict()},
    )  # fmt: skip


def _beside_its_cure(report: TileReport, cured: TileReport, label: str, search: Drawing) -> Drawing:
    """The report's drawing, with every picture of a conflict beside the same access on the layout that was found."""
    drawing = drawn(report)
    pairs = iter([
        (before, after) for before, after in zip(report.costs, cured.costs, strict=True) if before.worst and before.worst.excess
    ])  # fmt: skip
    parts: list[Part] = []
    for part in drawing.parts:
        if isinstance(part, Grid) and report.excess:
            _, cure = next(pairs)
            assert cure.worst is not None
            title = f"{cure.name} with {label}: {in_number(cure.worst.wavefronts, 'wavefront')}"
            parts.append(Beside((part, bank_grid(cure.worst, title))))
        else:
            parts.append(part)
    return Drawing(drawing.title, (*parts, *search.parts))


PAGE = Page(
    "banks",
    "Banks",
    "How many wavefronts a warp's accesses take, which lanes wait for each other, and a layout that cures it.",
    {
        "": (
            Field("tile", "Tile", "32x32", pair, "rows x columns, in elements."),
            Field("data_type", "Element type", "f32", choices=tuple(DATA_TYPE)),
            Field(
                "pattern", "Pattern", "transpose", text, "An access of one warp, or a walk over the tile.", _PATTERNS
            ),
            Field("other", "And", "st.b32 rows", text, "A second pattern on the same tile.", _PATTERNS),
            Field("swizzle", "Swizzle", "none", text, "A mode, or xor:B,M,S.", tuple(SWIZZLE)),
            Field("pad", "Padding in bytes", "0", integer, "After each row of an atom."),
            Field("atom", "Atom", "", optional(pair), "Stored whole, rows x columns; empty: the tile."),
            choice("atom_order", "Atom order", ATOM_ORDERS),
            Field("smem_address", "Shared address", "0x0", integer),
        )
    },
    answer,
)
