"""The same facts as terminal text and as SVG: one grid, one palette, one legend, one bit ruler.

    value ── draw(value) ──▶ Drawing ── text(), svg() ──▶ characters, a picture

The function `draw_<kind>` draws values of that kind; one table names its module, which is imported when such a value
is drawn for the first time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilescope.rule import rule

if TYPE_CHECKING:
    from tilescope.value import Value
    from tilescope.view.drawing import Drawing

DRAWING = rule(
    "drawing",
    "A value has an SVG if its kind has a drawing.",
    argument="value",
    found="a {kind}",
    limit="it has no drawing",
    fix="Print it, or use to_dict().",
    source="the table of drawings",
    passing='ts.Swizzle.named("128B").svg()',
    failing='ts.Card.named("H200").svg()',
)
_KINDS = {  # of values, by the module that draws them
    "banks_view": "bank_report layout_search tile_report",
    "descriptor_view": "agreement inspection instruction_descriptor mbarrier tcgen05_descriptor tcgen05_loop "
    "tcgen05_pair_loop tmem_address wgmma_descriptor wgmma_loop word_readings",
    "fragment_view": "fragment modes",
    "layout_view": "canonical_layout conversion layout",
    "pipeline_view": "pipeline simulation",
    "plan_view": "gemm_plan plan plan_report sweep unplanned",
    "rule_view": "diagnosis rule",
    "swizzle_view": "swizzle",
    "tensor_map_view": "convolution im2col_map im2col_wide_map map_report tensor_map tensor_map_diff",
    "tmem_view": "scale_lanes scale_layout tensor_memory tmem_agreement tmem_budget tmem_layout",
    "trace_view": "identification trace",
}
_MODULE_OF = {kind: module for module, kinds in _KINDS.items() for kind in kinds.split()}


def draw(value: Value, **options: Any) -> Drawing | None:
    """The drawing of a value, or None if its kind has none; `options` go to the drawing function.

    >>> from tilescope.swizzle import Swizzle
    >>> draw(Swizzle.named("128B"), address=0x480).title
    'Swizzle 128B at shared address 0x480, base offset 1'
    """
    if value.kind not in _MODULE_OF:
        return None
    module = import_module(f"tilescope.view.{_MODULE_OF[value.kind]}")
    drawn: Drawing = getattr(module, f"draw_{value.kind}")(value, **options)
    return drawn


def text(value: Value, *, width: int = 80, **options: Any) -> str:
    """The value drawn with characters; its `repr` if its kind has no drawing."""
    drawn = draw(value, **options)
    return repr(value) if drawn is None else drawn.text(width)


def svg(value: Value, **options: Any) -> str | None:
    """The value as a standalone SVG document, or None if its kind has no drawing."""
    drawn = draw(value, **options)
    return None if drawn is None else drawn.svg()
