"""Pages as HTML: templates for all pages of the table, for the first page, for refusals, and for drawings.

A saved SVG holds the whole drawing. On a page its words are words: they wrap on a phone, grow with the reader's font
and are read aloud; only grids and bit rulers are the SVG that view/ makes. Colours come from the page's style sheet, so
that grids turn dark with it. An exported page is one file, for a blog or a talk: style, script, drawing and tables inside.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from tilescope.errors import RuleError, Violation
from tilescope.questions.gallery import GALLERY
from tilescope.questions.page import Code, Page
from tilescope.questions.run_examples import EXAMPLES
from tilescope.questions.run_page import RECORDED_SECONDS, RECORDED_STEPS, SOURCE_SAMPLE
from tilescope.questions.source_text import LANGUAGES
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Beside, Part, pack_lines, plain
from tilescope.view.grid import Grid
from tilescope.view.palette import CHUNK_COLOURS, ROLES, colour_of
from tilescope.view.ruler import BitRuler
from tilescope.view.svg_grid import DENSE, ROOMY, TIGHT, Density, GridBlocks, grid_blocks, grid_width
from tilescope.view.svg_ruler import ruler_rows
from tilescope.view.svg_shapes import Block, ink, number
from tilescope.view.svg_style import hatchings, style_sheet
from tilescope.web.field import choice_of
from tilescope.web.form import Form, command_line, filled_form
from tilescope.web.pages import PAGES, form_at
from tilescope.web.sheet import Sheet
from tilescope.web.side_by_side import Comparison, saved_drawing, saved_json
from tilescope.web.source_compiler import COMPILE_SECONDS, MAX_SOURCE_CHARACTERS
from tilescope.web.term_links import link_terms

_SMALLEST_SCALE = 0.91  # the smallest texts, of 11 pixels, have 10: smaller ones cannot be read
_ANSWER_WIDTHS = (911, 1031)  # pixels for an answer in windows of 1280 and 1400
_BESIDE_GAP = 20
_BOX_PADDING = 6  # around every grid
_NARROWEST_PART = 160  # pixels that the title of a narrow grid has
_SIDE_WIDTH = 440  # pixels for one of two states, in a window of 1280
_LONGEST_TEXT = 5000  # characters of a field that are sent to a script that has them
_ROOT_FONT = 16  # pixels of a font size of 1 rem, where the reader has not chosen another


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tilescope.web"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (colour_of, command_line, link_terms, fit_beside, picture, plain)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"pages": PAGES, "hatchings": Markup(hatchings())}  # noqa: S704  colours, no text
    return environment


def static_file(name: str) -> str:
    """A file of the page: its script, or its style with the colours of the drawings."""
    content = (files("tilescope.web") / "static" / name).read_text("utf-8")
    return content + _drawing_rules() if name == "explorer.css" else content


def _drawing_rules() -> str:
    """The style of view/, and the same colours for the swatches of a legend."""
    swatches = "".join(
        f".tint-{colour.name}{{background:{colour.fill};color:{colour.ink}}}"
        for colour in (*CHUNK_COLOURS, *ROLES.values())
    )
    return f"\n@layer drawing{{{style_sheet()}{swatches}}}\n"


class Standalone(NamedTuple):
    """What an exported page holds inside, where a served page has links."""

    style: Markup
    script: Markup
    policy: str
    svg: str  # packed: the script unpacks it when it is saved
    json: str
    image: str  # the address of a picture for the card that other sites show of a link; empty: none


def render_form(form: Form, *, has_texts: bool = True) -> tuple[int, str]:
    """The status and the page of a filled form: its answer, or its mistakes.

    Without `has_texts` long texts of its fields are left out, for a script that has them.
    """
    try:
        sheet = Sheet.of(form)
    except RuleError as error:
        return 422, _page_html(form, None, error.violations, has_texts=has_texts)
    try:
        compared = Comparison.of(sheet)
    except RuleError as error:
        return 422, render_refusal(f"{form.page.title}: the left state has no answer", error.violations)
    return 200, _page_html(form, sheet, sheet.answer.violations, compared=compared, has_texts=has_texts)


def render_unread(page: Page, pasted: str, violations: tuple[Violation, ...]) -> str:
    """A page with a pasted text that cannot be read: its first form as it is at first, and the text for another try."""
    return _page_html(filled_form(page, {}), None, violations, pasted=pasted)


def _page_html(
    form: Form,
    sheet: Sheet | None,
    violations: tuple[Violation, ...],
    *,
    standalone: Standalone | None = None,
    pasted: str = "",
    template: str = "page.html",
    compared: Comparison | None = None,
    has_texts: bool = True,
) -> str:
    """The page of a form, and of its answer if it has one; `compared` is that answer beside another."""
    drawing: Drawing | None = None
    program: Code | None = None
    if sheet is not None:
        drawing = sheet.drawing
        code = sheet.code() if compared is None else ()
        if isinstance(code, Code):
            program = code
        else:
            drawing = drawing.with_parts({"no code": code})
    return _render(
        template,
        form=form,
        page=form.page,
        choice=choice_of(form.page),
        sheet=sheet,
        compared=compared,
        drawn=drawing,
        code=program,
        standalone=standalone,
        pasted=pasted,
        longest_text=None if has_texts else _LONGEST_TEXT,
        gallery=GALLERY,
        run_examples=EXAMPLES if form.page.name == "run" else (),
        can_record=form.description.record is not None
        and any("steps" in violation.values for violation in violations if sheet is None),
        recorded_steps=RECORDED_STEPS,
        recorded_seconds=RECORDED_SECONDS,
        source_languages=LANGUAGES,
        source_sample=SOURCE_SAMPLE,
        compile_seconds=COMPILE_SECONDS,
        source_characters=MAX_SOURCE_CHARACTERS,
        told=set() if standalone is None else None,
        pan=None if sheet is None or standalone is not None or compared is not None else sheet.pan,
        wrong=form.wrong_fields(violations),
        violations=[(violation, form.cure(violation)) for violation in violations],
        fixes={} if standalone or compared else form.fixes(violations, None if sheet is None else sheet.answer),
    )


def render_first() -> str:
    """The first page: a search box, the path of one element, and the tiles of well-known kernels."""
    form = filled_form(PAGES["path"], {})
    sheet = Sheet.of(form)
    return _page_html(form, sheet, sheet.answer.violations, template="first.html")


def render_refusal(title: str, violations: tuple[Violation, ...]) -> str:
    """A page with the reason why there is no page."""
    return _render("refusal.html", title=title, violations=violations, standalone=None, told=set())


def _render(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


class Size(NamedTuple):
    """How large grids are drawn."""

    density: Density
    scale: float


_SIZES_ALONE = (  # of grids, the largest first
    Size(ROOMY, 1.0),
    Size(ROOMY, _SMALLEST_SCALE),
    Size(DENSE, 1.0),
    Size(DENSE, _SMALLEST_SCALE),
    Size(TIGHT, _SMALLEST_SCALE),
)
_SIZES_BESIDE = _SIZES_ALONE[1:]


def picture(part: Grid | BitRuler, *, is_narrow: bool = False) -> Markup:
    """The cells of a grid, or the bits of a ruler, without the words around them; `is_narrow` beside another state."""
    if isinstance(part, BitRuler):
        labelled = " labelled" if part.bits > part.row_bits else ""
        return _svg(ruler_rows(part, linked=True), 1, f" ruler{labelled}")
    return _grid_picture(part, _size_alone([part], _SIDE_WIDTH if is_narrow else _ANSWER_WIDTHS[0]))


def _grid_picture(grid: Grid, size: Size) -> Markup:
    return _draw_labelled(grid, grid_blocks(grid, size.density), size.scale)


class FittedPart(NamedTuple):
    """A part that is placed beside others, and its picture if it is a grid."""

    name: str
    part: Part
    picture: Markup | None


def fit_beside(beside: Beside, *, is_narrow: bool = False) -> tuple[FittedPart, ...]:
    """Parts that are placed side by side, with the pictures of their grids; those that do not fit are placed below.

    If it `is_narrow`, as beside another state, all are placed below each other.
    """
    grids = [part for part in beside.parts if isinstance(part, Grid)]
    size = _size_alone(grids, _SIDE_WIDTH) if is_narrow else _size_beside(grids)
    return tuple(
        FittedPart(name, part, _grid_picture(part, size) if isinstance(part, Grid) else None)
        for name, part in beside.named
    )


def _size_alone(grids: list[Grid], width: float) -> Size:
    """The largest size at which grids below each other fit a width; where one does not, that of the fewest."""

    def too_wide(size: Size) -> int:
        return sum(grid_width(grid, size.density) * size.scale + _BOX_PADDING > width for grid in grids)

    return min(_sizes_of(grids, _SIZES_ALONE), key=too_wide)


def _size_beside(grids: list[Grid]) -> Size:
    """The largest size at which adjacent grids take the fewest lines, in a small window and in a usual one."""

    def lines(size: Size) -> list[int]:
        pictures = [grid_width(grid, size.density) * size.scale + _BOX_PADDING for grid in grids]
        widths = [(max(_NARROWEST_PART, width), width) for width in pictures]
        return [len(pack_lines(widths, answer, _BESIDE_GAP)) for answer in _ANSWER_WIDTHS]

    return min(_sizes_of(grids, _SIZES_BESIDE), key=lines)


def _sizes_of(grids: list[Grid], sizes: tuple[Size, ...]) -> list[Size]:
    """Those that grids may have: where one has many cells, they are small in all."""
    is_dense = any(grid.is_dense for grid in grids)
    return [size for size in sizes if size.density is not ROOMY or not is_dense]


def _draw_labelled(grid: Grid, blocks: GridBlocks, scale: float) -> Markup:
    """The labels of a grid, which stay visible, and its cells, which scroll beside them.

    The cells of a painted grid are not separate shapes: the script finds them by their positions, and their texts are
    stored beside the picture.
    """
    if blocks.painted is None:
        return _svg(blocks.labels, scale, " labels", edge=0) + _svg(blocks.cells, scale)
    places = blocks.painted
    tints = [*dict.fromkeys(cell.colour for row in grid.rows for cell in row.cells)]
    number_of = {tint: number for number, tint in enumerate(tints)}
    cells = [[[cell.text, cell.title, cell.link, number_of[cell.colour]] for cell in row.cells] for row in grid.rows]
    facts = {
        **places._asdict(),
        "colours": [[colour_of(tint).name, ink(tint)] for tint in tints],
        "cells": cells,
    }
    payload = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")
    data = Markup('<script type="application/json" class="painted-cells">{}</script>')
    drawn = _svg(blocks.cells, scale, " paint")
    return _svg(blocks.labels, scale, " labels", edge=0) + drawn + data.format(Markup(payload))  # noqa: S704  no "<" in it


def _svg(drawn: Block, scale: float, kind: str = "", *, edge: int = 2) -> Markup:
    """A block as a separate picture; `edge` is space at its right for frames that extend beyond it."""
    width, height = drawn.width + edge, drawn.height + 2
    svg = Markup(
        '<svg class="tilescope{}" width="{}rem" height="{}rem" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>'
    )
    shown = [f"{pixels * scale / _ROOT_FONT:.3f}" for pixels in (width, height)]  # grows with the reader's font
    return svg.format(kind, *shown, number(width), number(height), Markup(drawn.body))  # noqa: S704  view/ escapes it


def export_page(url: str, *, image: str = "") -> str:
    """The page at `url`, complete or from its path on, as a document that supports hover and steps without a server.

    It may be in a frame of another page. `image` is the address of a picture for previews of its link.

    >>> export_page("/swizzle?mode=64B").count("<script")
    2
    """
    sheet = Sheet.of(form_at(url))
    style = static_file("explorer.css")
    script = static_file("explorer.js")
    standalone = Standalone(
        style=Markup(style),  # noqa: S704  our own files
        script=Markup(script),  # noqa: S704
        policy=f"default-src 'none'; style-src '{hash_source(style)}'; script-src '{hash_source(script)}'; img-src data: blob:",
        svg=_pack(saved_drawing(sheet.form).svg()),
        json=_pack(saved_json(sheet.form)),
        image=image,
    )
    compared = Comparison.of(sheet)
    return _page_html(sheet.form, sheet, sheet.answer.violations, standalone=standalone, compared=compared)


def hash_source(text: str) -> str:
    """A style or script as a content security policy names it.

    >>> hash_source("")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _pack(text: str) -> str:
    """A text as gzip in base64, a tenth of its size; the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
