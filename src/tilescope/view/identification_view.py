"""The drawing of a tile found in a dump: where it lies, in which layout, and how much of it fits."""

from __future__ import annotations

from tilescope.tma.identification import Identification
from tilescope.view.drawing import Drawing
from tilescope.view.layout_view import draw_layout
from tilescope.view.parts import Paragraph, Table


def draw_identification(found: Identification) -> Drawing:
    """The layout with its facts and a picture; where nothing was found, that alone."""
    if not found.found:
        return Drawing("The tile is not in the dump", (Paragraph(found.advice),))
    tile = found.layout.as_rows().tiling
    fits = found.compared_bytes - found.wrong_bytes - found.missing_bytes
    facts = [
        ("offset", f"byte {found.offset:#x} of the dump"),
        ("swizzle", f"{found.swizzle.name}, base offset {found.base_offset}"),
        ("order", found.order_words + (" of the transposed tile" if found.transposed else "")),
        ("pitch", f"{tile.pitch_bytes} bytes from row to row"),
        ("fits", f"{fits} of {found.compared_bytes} bytes, {found.fitting_share:.1%}"),
    ]
    if found.missing_bytes:
        facts.append(("outside", f"{found.missing_bytes} bytes of the tile would lie outside the dump"))
    if (wrong := found.first_wrong) is not None:
        said = f"element ({wrong.row}, {wrong.column}) byte {wrong.byte} should be {wrong.expected:#04x} and is {wrong.found:#04x}"
        facts.append(("first wrong", f"at {wrong.address:#x} of the dump: {said}"))
    if found.equally_good:
        facts.append(("as good", f"{found.equally_good} more layouts explain as much; this is the simplest"))
    title = "The tile is in the dump" if found.explained else "A part of the tile is in the dump"
    return Drawing(title, (Table(tuple(facts)), *draw_layout(found.layout).parts))
