"""The drawings of layouts: a tile in shared memory, two layouts or notations side by side.

`tile_pieces` cuts a tile into the pieces that are drawn; a tensor core's operand is drawn by `operand_view`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.layout import Layout, oriented
from tilescope.layout.layout_comparison import contiguous_index, require_one_tile
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation import Conversion, NoEquivalent
from tilescope.notation.every_notation import EveryNotation
from tilescope.sentence import by, counted
from tilescope.view.drawing import Beside, Drawing, Entry, Legend, Part, Table
from tilescope.view.grid import Grid
from tilescope.view.operand_view import draw_operand
from tilescope.view.tile_pieces import Element, Pieces, row_addresses

_MAX_WHOLE = 256  # rows and columns of a tile that is drawn whole, in pieces
_MAX_COMPARED = 16  # rows and columns of each of two layouts that are not drawn whole
_MAX_COMPARED_PIECES = 1 << 14  # of each of two layouts that are drawn whole
_MAX_HELD = 8192  # pieces of a drawing of shared memory
_MAX_LINES = 1024  # of it


def draw_layout(
    layout: Layout,
    *,
    element: Element | None = None,
    other: Layout | None = None,
    whole: bool = False,
    notations: EveryNotation | None = None,
) -> Drawing:
    """The place of each piece of the tile in shared memory; for a tensor core's operand, its atoms too.

    `element` is marked and told; `other` is compared with the layout; `whole` draws the whole tile, and shared memory;
    `notations` are listed instead, above the whole tile.

    >>> from tilescope.notation import parse_layout
    >>> draw_layout(parse_layout("((32,4),4):((16,4),1)", element_bits=8)).title
    'A tile of 128 x 4 elements of 8 bits: mn x k, k contiguous'
    """
    if notations is not None:
        drawn = draw_notations(notations)
        return drawn.with_parts(dict(whole_layout(layout).figures().named)) if whole else drawn
    if other is not None:
        return draw_difference(layout, other, element=element, whole=whole)
    if whole:
        return whole_layout(layout)
    canonical = CanonicalLayout.of(layout)
    if canonical is not None:
        return draw_operand(canonical, layout, element)
    pieces = Pieces.of(layout)
    focus = None if element is None else oriented(layout.major, *element)
    links = set() if focus is None else {f"{focus[0]},{focus[1] // pieces.elements * pieces.elements}"}
    grid = pieces.grid("The tile in shared memory", asked=focus).marked(links)
    return _draw_pieces(layout, pieces, {"tile": grid}, element)


def draw_notations(notations: EveryNotation) -> Drawing:
    """One layout as every notation writes it, or why one has no text for it."""
    texts = Table(tuple(notations.texts.items()), ("notation", "text"))
    return Drawing(f"{notations.written} in every notation", {"texts": texts, "assumed": notations.assumption})


def whole_layout(layout: Layout) -> Drawing:
    """The place of each piece of the tile, and beside it the contents of shared memory.

    >>> drawing = whole_layout(Layout((8, 64), 16, swizzle="128B"))
    >>> drawing["tile"].title, drawing["memory"].title
    ('The tile', 'Shared memory')
    """
    pieces = Pieces.of(layout)
    grids = {"tile": pieces.grid("The tile", (_MAX_WHOLE, _MAX_WHOLE))}
    if pieces.addresses.size <= _MAX_HELD:
        grids["memory"] = pieces.memory("Shared memory", most=_MAX_LINES)
    return _draw_pieces(layout, pieces, grids)


def _draw_pieces(layout: Layout, pieces: Pieces, grids: dict[str, Grid], element: Element | None = None) -> Drawing:
    facts = {
        "strides": f"`{layout.modes}` in elements" if layout.modes else f"`{layout.bit_modes}` in bits",
        "swizzle": str(layout.swizzle),
        "size": f"{counted(layout.size_bytes, 'byte')} from {layout.start:#x}",
        "address": f"`{layout.terms().c}`",
    }
    if element is not None:
        facts[f"element {', '.join(map(str, element))}"] = f"address {layout.address(*element):#x}"
    return Drawing(
        f"A tile of {describe_layout(layout)}",
        {"grids": Beside(grids), "key": pieces.key, "facts": Table(facts)},
    )


def draw_difference(one: Layout, other: Layout, *, element: Element | None = None, whole: bool = True) -> Drawing:
    """Two layouts of one tile side by side; pieces at different places are marked.

    Without `whole`, only the part of a large tile around `element`, or around the first difference.

    >>> draw_difference(Layout((8, 64), 16), Layout((8, 64), 16, swizzle="128B")).title
    'The layouts differ: 448 of 512 elements are elsewhere'
    """
    require_one_tile(one, other)
    pieces, other_pieces, elsewhere = _compared_pieces(one, other)
    by_piece = elsewhere.reshape(*pieces.addresses.shape, pieces.elements)
    marked: npt.NDArray[np.bool_] = np.any(by_piece, axis=2)
    first = one.first_difference(other)
    whole = whole and pieces.addresses.size <= _MAX_COMPARED_PIECES
    most = (_MAX_WHOLE, _MAX_WHOLE) if whole else (_MAX_COMPARED, _MAX_COMPARED)
    shown = element or first
    focus: Element | None = None
    if shown is not None and not whole:
        mn, k, *_ = shown
        focus = oriented(one.major, mn, k) if one.major == other.major else (mn, k)
    grids = Beside(
        {
            "first": pieces.grid("The first", most, asked=focus, elsewhere=marked),
            "second": other_pieces.grid("The second", most, asked=focus, elsewhere=marked),
        }
    )
    facts = {"the first": f"`{one!r}`", "the second": f"`{other!r}`"}
    if element is not None:
        facts[f"element {', '.join(map(str, element))}"] = _in_both(one, other, element)
    if first is None:
        title = "The layouts are the same: every element has the same address in both"
        return Drawing(title, {"grids": grids, "key": pieces.key, "facts": Table(facts)})
    difference = f"element {first}: {_in_both(one, other, first)}"
    legend = Legend((Entry("is elsewhere in the other layout", 5, "collision", "5"),))
    title = f"The layouts differ: {int(elsewhere.sum())} of {elsewhere.size} elements are elsewhere"
    table = Table({"first difference": difference} | facts)
    return Drawing(title, {"grids": grids, "legend": legend, "key": pieces.key, "facts": table})


class _Compared(NamedTuple):
    """Two layouts of one tile, cut into pieces of equally many elements."""

    pieces: Pieces
    other_pieces: Pieces
    elsewhere: npt.NDArray[np.bool_]  # by element: whether the layouts place it differently


def _compared_pieces(one: Layout, other: Layout) -> _Compared:
    """Both layouts in pieces that are contiguous in each; drawn as mn x k if their contiguous indices differ."""
    if one.major == other.major:
        names = one.as_rows().names
        addresses = row_addresses(one)
        other_addresses = row_addresses(other)
    else:
        names = ("mn", "k")
        addresses = one.addresses()
        other_addresses = other.addresses()
    elements = min(
        Pieces.of(one, addresses=addresses).elements,
        Pieces.of(other, addresses=other_addresses).elements,
    )
    return _Compared(
        Pieces.of(one, addresses=addresses, names=names, most=elements),
        Pieces.of(other, addresses=other_addresses, names=names, most=elements),
        addresses != other_addresses,
    )


def _in_both(one: Layout, other: Layout, element: tuple[int, ...]) -> str:
    """The place of an element in each of two layouts."""
    return f"at {one.address(*element):#x} in the first, at {other.address(*element):#x} in the second"


def describe_layout(layout: Layout) -> str:
    """The tile's extents, its elements' width, and which index is contiguous."""
    description = f"{by(layout.shape)} elements of {counted(layout.element_bits, 'bit')}"
    contiguous = contiguous_index(layout)
    return description if contiguous is None else f"{description}: mn x k, {contiguous} contiguous"


def draw_conversion(conversion: Conversion, picture: bool = True) -> Drawing:
    """Both texts with what was compared; with `picture`, the tile as each of them lays it out.

    >>> from tilescope.notation import convert_layout
    >>> found = convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic")
    >>> draw_conversion(found, picture=False).title
    'The same layout in mosaic'
    """
    beside = [f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value]
    facts = {
        "from": f"`{conversion.source}`",
        "to": f"`{conversion.result}`",
        "unsaid there": ", ".join(beside) or "nothing: the text says all",
        "tile": describe_layout(conversion.layout),
        "compared": f"{conversion.compared} addresses of both texts, all equal",
    }
    if conversion.assumed:
        facts["assumed"] = conversion.assumption
    parts: dict[str, Part] = {}
    if picture:
        written = Pieces.of(conversion.layout)
        read_again = Pieces.of(conversion.read_again())
        parts["grids"] = Beside(
            {
                "written": written.grid("As written"),
                "read again": read_again.grid(f"Read again from {conversion.notation}"),
            }
        )
        parts["key"] = written.key
    parts["facts"] = Table(facts)
    return Drawing(f"The same layout in {conversion.notation}", parts)


def draw_no_equivalent(reason: NoEquivalent, *, layout: Layout | None = None) -> Drawing:
    """Why there is no text, and the layout that has none."""
    parts: dict[str, Part | tuple[Part, ...] | None] = {"reasons": tuple(map(str, reason.violations))}
    if layout is not None:
        parts |= dict(whole_layout(layout).figures().named)
    return Drawing("No such text", parts)


DRAWINGS = {
    Conversion: draw_conversion,
    Layout: draw_layout,
    NoEquivalent: draw_no_equivalent,
}
