"""The same facts as terminal text and as SVG: one grid, one palette, one legend, one bit ruler.

    value ── draw(value) ──▶ Drawing ── text(), svg() ──▶ characters, a picture

A drawing function lives in a module of its own and is named in one table by the `kind` of the value it
draws; it is imported when such a value is drawn for the first time.
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
    source="the table of drawings",
    passing='ts.Swizzle.named("128B").svg()',
    failing='ts.Card.named("H200").svg()',
)
_DRAWN_BY = {
    "agreement": "descriptor_view:draw_agreement",
    "bank_report": "banks_view:draw_bank_report",
    "canonical_layout": "layout_view:draw_canonical_layout",
    "conversion": "layout_view:draw_conversion",
    "convolution": "tensor_map_view:draw_convolution",
    "diagnosis": "rule_view:draw_diagnosis",
    "fragment": "fragment_view:draw_fragment",
    "gemm_plan": "gemm_view:draw_gemm_plan",
    "identification": "trace_view:draw_identification",
    "im2col_map": "tensor_map_view:draw_map",
    "im2col_wide_map": "tensor_map_view:draw_map",
    "inspection": "descriptor_view:draw_inspection",
    "instruction_descriptor": "descriptor_view:draw_instruction_descriptor",
    "layout": "layout_view:draw_layout",
    "layout_search": "banks_view:draw_layout_search",
    "map_report": "tensor_map_view:draw_map_report",
    "mbarrier": "descriptor_view:draw_mbarrier",
    "modes": "fragment_view:draw_modes",
    "pipeline": "pipeline_view:draw_pipeline",
    "plan": "plan_view:draw_plan",
    "plan_report": "plan_view:draw_plan_report",
    "rule": "rule_view:draw_rule",
    "scale_lanes": "tmem_view:draw_scale_lanes",
    "scale_layout": "tmem_view:draw_scale_layout",
    "simulation": "pipeline_view:draw_simulation",
    "sweep": "plan_view:draw_sweep",
    "swizzle": "swizzle_view:draw_swizzle",
    "tcgen05_descriptor": "descriptor_view:draw_operand_descriptor",
    "tcgen05_loop": "descriptor_view:draw_descriptor_loop",
    "tcgen05_pair_loop": "descriptor_view:draw_descriptor_loop",
    "tensor_memory": "tmem_view:draw_tensor_memory",
    "tensor_map": "tensor_map_view:draw_map",
    "tensor_map_diff": "tensor_map_view:draw_diff",
    "tile_report": "banks_view:draw_tile_report",
    "tmem_address": "descriptor_view:draw_tmem_address",
    "tmem_agreement": "tmem_view:draw_tmem_agreement",
    "tmem_budget": "tmem_view:draw_tmem_budget",
    "tmem_layout": "tmem_view:draw_tmem_layout",
    "trace": "trace_view:draw_trace",
    "unplanned": "plan_view:draw_unplanned",
    "wgmma_descriptor": "descriptor_view:draw_operand_descriptor",
    "wgmma_loop": "descriptor_view:draw_descriptor_loop",
    "word_readings": "descriptor_view:draw_word_readings",
}


def draw(value: Value, **options: Any) -> Drawing | None:
    """The drawing of a value, or None if its kind has none; `options` go to the drawing function.

    >>> from tilescope.swizzle import Swizzle
    >>> draw(Swizzle.named("128B"), address=0x480).title
    'Swizzle 128B at shared address 0x480, base offset 1'
    """
    place = _DRAWN_BY.get(value.kind)
    if place is None:
        return None
    module, function = place.split(":")
    drawn: Drawing = getattr(import_module(f"tilescope.view.{module}"), function)(value, **options)
    return drawn


def text(value: Value, *, width: int = 80, **options: Any) -> str:
    """The value drawn with characters; its `repr` if its kind has no drawing."""
    drawn = draw(value, **options)
    return repr(value) if drawn is None else drawn.text(width)


def svg(value: Value, **options: Any) -> str | None:
    """The value as a standalone SVG document, or None if its kind has no drawing."""
    drawn = draw(value, **options)
    return None if drawn is None else drawn.svg()
