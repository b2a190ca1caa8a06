"""The same facts as terminal text and as SVG: one grid, one palette, one legend, one bit ruler.

    value ── draw(value) ──▶ Drawing ── text(), svg() ──▶ characters, a picture
          ── walk(value) ──▶ steps, each of which marks cells of the drawing and says what they are

Every module has a table `DRAWINGS` of the functions that draw its types of values (and `WALKS`, if there is something
to walk over). It is imported when such a value is drawn for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from tilescope.rule import rule

if TYPE_CHECKING:
    from tilescope.errors import RuleError
    from tilescope.value import Value
    from tilescope.view.drawing import Drawing
    from tilescope.view.walk_step import Step

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
_STEPPED = frozenset({"trace"})  # kinds that a notebook shows with a slider; html() makes the same of any other
_MODULE_OF = {  # the module that draws values of a kind
    "agreement": "descriptor_view",
    "bank_report": "banks_view",
    "canonical_layout": "operand_view",
    "conversion": "layout_view",
    "convolution": "convolution_view",
    "diagnosis": "rule_view",
    "element_path": "path_view",
    "fragment": "fragment_view",
    "gemm_plan": "gemm_view",
    "identification": "trace_view",
    "im2col_map": "tensor_map_view",
    "im2col_wide_map": "tensor_map_view",
    "inspection": "descriptor_view",
    "instruction_descriptor": "descriptor_view",
    "kernel_plan": "kernel_view",
    "kernel_run": "run_view",
    "layout": "layout_view",
    "layout_search": "banks_view",
    "map_log": "map_log_view",
    "map_log_diff": "map_log_view",
    "map_report": "tensor_map_view",
    "mbarrier": "descriptor_view",
    "modes": "modes_view",
    "nearest_topics": "topic_view",
    "no_equivalent": "layout_view",
    "pipeline": "pipeline_view",
    "plan": "plan_view",
    "plan_report": "plan_view",
    "rule": "rule_view",
    "scale_lanes": "scale_view",
    "scale_layout": "scale_view",
    "simulation": "pipeline_view",
    "sweep": "sweep_view",
    "run_state": "state_view",
    "smem_picture": "smem_view",
    "swizzle": "swizzle_view",
    "tcgen05_descriptor": "descriptor_view",
    "tcgen05_loop": "descriptor_view",
    "tcgen05_pair_loop": "descriptor_view",
    "tensor_map": "tensor_map_view",
    "tensor_map_diff": "tensor_map_view",
    "tensor_memory": "tmem_view",
    "tile_report": "banks_view",
    "tmem_address": "descriptor_view",
    "tmem_agreement": "tmem_view",
    "tmem_budget": "tmem_view",
    "tmem_layout": "tmem_view",
    "topic": "topic_view",
    "topic_index": "topic_view",
    "trace": "trace_view",
    "unplanned": "plan_view",
    "wgmma_descriptor": "descriptor_view",
    "wgmma_loop": "descriptor_view",
    "word_readings": "descriptor_view",
}


def draw(value: Value, **options: object) -> Drawing | None:
    """The drawing of a value, or None if its kind has none; `options` go to the drawing function.

    >>> from tilescope.swizzle import Swizzle
    >>> draw(Swizzle.named("128B"), address=0x480).title
    'Swizzle 128B at shared address 0x480, base offset 1'
    """
    if value.kind not in _MODULE_OF:
        return None
    module = import_module(f"tilescope.view.{_MODULE_OF[value.kind]}")
    drawings: Mapping[type[Value], Callable[..., Drawing]] = module.DRAWINGS
    return drawings[type(value)](value, **options)


def walk(value: Value, **options: object) -> tuple[Step, ...]:
    """The steps of a walk over the drawing of a value, which takes the same options; none if its kind has no walk.

    >>> from tilescope.swizzle import Swizzle
    >>> walk(Swizzle.named("128B"))[9].sentence
    'logical bytes 0x90 to 0x9f: stored at 0x80 to 0x8f'
    """
    if value.kind not in _MODULE_OF:
        return ()
    module = import_module(f"tilescope.view.{_MODULE_OF[value.kind]}")
    walks: Mapping[type[Value], Callable[..., Iterator[Step]]] = getattr(module, "WALKS", {})
    if type(value) not in walks:
        return ()
    return tuple(walks[type(value)](value, **options))


def text(value: Value, *, width: int = 80, **options: object) -> str:
    """The value drawn with characters; its `repr` if its kind has no drawing."""
    drawn = draw(value, **options)
    return repr(value) if drawn is None else drawn.text(width)


def svg(value: Value, **options: object) -> str | None:
    """The value as a standalone SVG document, or None if its kind has no drawing."""
    drawn = draw(value, **options)
    return None if drawn is None else drawn.svg()


def html(value: Value, **options: object) -> str | None:
    """The value as HTML whose cells answer to the mouse, with a slider over the steps of its walk; None without a drawing."""
    from tilescope.view.walk_html import walk_html

    drawn = draw(value, **options)
    return None if drawn is None else walk_html(drawn, walk(value, **options))


def no_drawing(value: Value) -> RuleError:
    """The error for a value whose kind has no drawing."""
    return DRAWING.error(kind=value.kind)


def notebook_pictures(value: Value) -> dict[str, str]:
    """What a notebook may show of a value, by media type; nothing if its kind has no drawing.

    >>> from tilescope.swizzle import Swizzle
    >>> [*notebook_pictures(Swizzle.named("128B"))]
    ['image/svg+xml']
    """
    from tilescope.view.svg_document import NOTEBOOK, document

    drawn = draw(value)
    if drawn is None:
        return {}
    pictures = {"image/svg+xml": document(drawn.title, drawn.parts, NOTEBOOK)}
    if value.kind in _STEPPED:
        pictures["text/html"] = html(value) or ""
    return pictures
