"""Two layouts compared: they are of one tile, or there is nothing to compare."""

from __future__ import annotations

from tilescope.layout.layout import Layout
from tilescope.layout.tiling import oriented
from tilescope.rule import rule

LAYOUT_DIFFERENCE = rule(
    "layout-difference",
    "Two layouts can be compared in one drawing if they have the same tile and element width.",
    argument="other",
    found="{shape: x } elements of {element_bits:bit}[[: mn x k, {contiguous} contiguous]], "
    "and {other_shape: x } elements of {other_element_bits:bit}[[: mn x k, {other_contiguous} contiguous]]",
    limit="two layouts of one tile and one width",
    fix="Use a second tile of {shape: x } elements of {element_bits} bits.",
    source="the command line",
    passing='ts.layout.layout_comparison.require_one_tile(ts.Layout((8, 64), 16), ts.Layout((8, 64), 16, swizzle="128B"))',
    failing="ts.layout.layout_comparison.require_one_tile(ts.Layout((8, 64), 16), ts.Layout((8, 64), 8))",
)


def require_one_tile(one: Layout, other: Layout) -> None:
    """Refuse to compare layouts of different tiles."""
    if (one.shape, one.element_bits) != (other.shape, other.element_bits):
        raise LAYOUT_DIFFERENCE.error(
            shape=one.shape,
            element_bits=one.element_bits,
            contiguous=contiguous_index(one),
            other_shape=other.shape,
            other_element_bits=other.element_bits,
            other_contiguous=contiguous_index(other),
        )


def contiguous_index(layout: Layout) -> str | None:
    """The index of a tile, mn or k, along which elements are contiguous; None if the layout does not determine it.

    >>> contiguous_index(Layout((8, 64), 16))
    'k'
    """
    if layout.major is None:
        return None
    _, contiguous = oriented(layout.major, "mn", "k")
    return contiguous
