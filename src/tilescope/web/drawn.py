"""A drawing as HTML: text and tables as a browser sets them, grids and bit rulers as the SVG that view/ makes.

A saved SVG holds the whole drawing. On a page its words are words: they wrap on a phone, grow with the reader's font
and are read aloud. Colours come from the page's style sheet, so that grids turn dark with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch
from types import MappingProxyType

from markupsafe import Markup, escape

from tilescope.view.drawing import Drawing
from tilescope.view.grid import Grid
from tilescope.view.palette import colour_of
from tilescope.view.parts import Beside, Legend, Table, plain, words
from tilescope.view.ruler import BitRuler
from tilescope.view.svg_canvas import Block, number
from tilescope.view.svg_document import grid_block, ruler_rows
from tilescope.web.page import Drag, Lead

_BESIDE_SCALE = 0.88  # of grids that stand beside each other …
_SMALLEST_SCALE = 0.6  # … and of those that would not fit …
_BESIDE_WIDTH, _BESIDE_GAP = 1010, 32  # … into the answer of a window of 1400 pixels
_NOTHING = Markup("")
NO_LEADS: Mapping[str, tuple[Lead, ...]] = MappingProxyType({})


def drawing_html(
    drawing: Drawing, drag: Drag | None = None, leads: Mapping[str, tuple[Lead, ...]] = NO_LEADS
) -> Markup:
    """The parts of a drawing below each other, each with the links that lead on from it; the page shows the title."""
    return Markup("\n").join(
        _part(part, drag) + _links(leads.get(getattr(part, "title", ""), ())) for part in drawing.parts
    )


def _links(leads: tuple[Lead, ...]) -> Markup:
    if not leads:
        return _NOTHING
    links = (Markup('<a class="button" href="{}">{}</a>').format(lead.path, lead.label) for lead in leads)
    return Markup('<p class="leads">{}</p>').format(Markup(" ").join(links))


@singledispatch
def _part(part: object, drag: Drag | None) -> Markup:
    raise NotImplementedError(type(part), drag)


@_part.register
def _(part: str, drag: Drag | None) -> Markup:  # noqa: ARG001
    return Markup("<p>{}</p>").format(_prose(part))


@_part.register
def _(part: Beside, drag: Drag | None) -> Markup:
    blocks = [_cells(each) if isinstance(each, Grid) else None for each in part.parts]
    fitting = (_BESIDE_WIDTH - _BESIDE_GAP * len(blocks)) / max(sum(each.width for each in blocks if each), 1)
    scale = fitting if _SMALLEST_SCALE <= fitting < _BESIDE_SCALE else _BESIDE_SCALE
    drawn = [
        _grid_figure(each, block, drag, scale) if isinstance(each, Grid) and block else _part(each, drag)
        for each, block in zip(part.parts, blocks, strict=True)
    ]
    shrinks = all(blocks) and fitting >= _SMALLEST_SCALE  # together, where the window is narrower
    return Markup('<div class="beside{}">{}</div>').format(" shrinks" if shrinks else "", _NOTHING.join(drawn))


@_part.register
def _(part: Table, drag: Drag | None) -> Markup:  # noqa: ARG001
    if not part.rows:
        return _NOTHING
    head = _NOTHING
    if part.headings:
        cells = _NOTHING.join(
            Markup("<th{} scope=col>{}</th>").format(_side(part, column), _prose(text)) if text else Markup("<td></td>")
            for column, text in enumerate(part.headings)
        )
        head = Markup("<thead><tr>{}</tr></thead>").format(cells)
    body = _NOTHING.join(_table_row(part, row) for row in part.rows)
    title = _titled(part.title)
    shape = "facts" if not part.headings else "listing"
    table = Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="{}">{}<tbody>{}</tbody></table></div>'
    )
    named = plain(part.title) or " ".join(part.headings) or "Facts"
    return Markup('<section class="part">{}{}{}</section>').format(
        title, table.format(named, shape, head, body), _notes(part.notes)
    )


def _table_row(table: Table, row: tuple[str, ...]) -> Markup:
    cells = []
    for column, text in enumerate(row):
        if column == 0 and not table.headings:
            cells.append(Markup("<th scope=row>{}</th>").format(_prose(text)))
        else:
            cells.append(Markup("<td{}>{}</td>").format(_side(table, column), _prose(text)))
    return Markup("<tr>{}</tr>").format(_NOTHING.join(cells))


def _side(table: Table, column: int) -> Markup:
    return Markup(' class="right"') if table.right(column) else _NOTHING


@_part.register
def _(part: Legend, drag: Drag | None) -> Markup:  # noqa: ARG001
    entries = []
    for entry in part.entries:
        colour = colour_of(entry.colour)
        swatch = Markup('<span class="swatch {} {}">{}</span>').format(
            f"tint-{colour.name}", f"mark-{entry.mark}" if entry.mark else "", entry.sample
        )
        entries.append(Markup("<li>{} {}</li>").format(swatch, _prose(entry.text)))
    return Markup('<section class="part">{}<ul class="legend">{}</ul></section>').format(
        _titled(part.title), _NOTHING.join(entries)
    )


@_part.register
def _(part: Grid, drag: Drag | None) -> Markup:
    return _grid_figure(part, _cells(part), drag)


def _cells(part: Grid) -> Block:
    return grid_block(replace(part, title="", notes=()), linked=True)


def _grid_figure(part: Grid, drawn: Block, drag: Drag | None, scale: float = 1.0) -> Markup:
    hooks = _NOTHING
    if drag is not None and part.title == drag.grid:
        columns = " ".join(header.text for header in part.tiers[-1].headers)
        rows = " ".join(row.labels[0] for row in part.rows)
        hooks = Markup(' data-drag="{}" data-across="{}" data-down="{}" data-columns="{}" data-rows="{}"').format(
            drag.field, drag.across, "" if drag.down is None else drag.down, columns, rows
        )
    return _figure(part.title, drawn, part.notes, hooks, scale)


@_part.register
def _(part: BitRuler, drag: Drag | None) -> Markup:
    table = Table(part.table_rows(), part.table_headings(), notes=part.notes)
    return _figure(part.title, ruler_rows(part, linked=True), (), classes="tilescope ruler") + _part(table, drag)


def _figure(
    title: str,
    drawn: Block,
    notes: tuple[str, ...],
    hooks: Markup = _NOTHING,
    scale: float = 1,
    classes: str = "tilescope",
) -> Markup:
    """An SVG in a box that scrolls and takes the arrow keys."""
    width, height = drawn.width + 2, drawn.height + 2
    svg = Markup('<svg class="{}" width="{}" height="{}" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>')
    sizes = map(number, (width * scale, height * scale, width, height))
    picture = svg.format(classes, *sizes, Markup(drawn.body))  # noqa: S704  view/ escapes what it draws
    return Markup(
        '<figure class="part"{}>{}<div class="scroll cells-box" tabindex="0" role="group" aria-label="{}">{}</div>{}</figure>'
    ).format(hooks, _titled(title), f"{plain(title) or 'Drawing'}; arrow keys visit its cells", picture, _notes(notes))


def _titled(title: str) -> Markup:
    return Markup("<h3>{}</h3>").format(_prose(title)) if title else _NOTHING


def _notes(notes: tuple[str, ...]) -> Markup:
    return _NOTHING.join(Markup('<p class="note">{}</p>').format(_prose(note)) for note in notes)


def _prose(text: str) -> Markup:
    """Text with the code between its backticks set as code."""
    pieces = [
        _NOTHING.join(Markup("<code>{}</code>").format(piece) if is_code else escape(piece) for piece, is_code in word)
        for word in words(text)
    ]
    return Markup(" ").join(pieces)
