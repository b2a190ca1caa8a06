"""The parts of a drawing as one standalone SVG document.

No script, no link, no font file: it opens in any browser, in a notebook and in a README. The white
background is part of the drawing, so a dark page does not swallow its text. A grid is one group a row, a rectangle
and a text a cell; everything about a cell's look is a class, so that 8,192 cells stay below a megabyte.

Text has no width before a browser chooses its font, so widths are reckoned from above: a monospaced
character takes 0.61 of the font size everywhere, one of the sans-serif fonts what it takes in DejaVu Sans, the widest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from itertools import accumulate
from math import inf
from typing import TypeAlias

from tilescope.view.grid import Columns, Grid, Spanning, number_span, placed
from tilescope.view.palette import CHUNK_COLOURS, ROLES, Mark, Tint, colour_of
from tilescope.view.parts import Beside, Legend, Part, Table, packed, pieces, words
from tilescope.view.ruler import BitField, BitRuler, Piece, RulerRow

_MONO_WIDTH = 0.61  # of the font size: Menlo, Consolas, DejaVu Sans Mono and their like take 0.55 to 0.602
_SANS_WIDTHS = {  # of characters that are narrower or wider than most
    character: width
    for width, characters in {
        0.36: " '.,:;|/-fijlIJ", 0.46: '()[]tr!"', 0.7: "ABCKRVXZ", 0.84: "DGHNOQUw&+<=>^#~→", 1.0: "mMW%@…",
    }.items()
    for character in characters
}  # fmt: skip
_SANS_WIDTH = 0.64  # of all others
_BOLD = 1.1  # times as wide
_BODY = 13  # font sizes in pixels
_SMALL = 12
_TINY = 11
_LINE_HEIGHT = 18
_MARGIN = 24
_PART_GAP = 26
_BESIDE_GAP = 40
_TEXT_WIDTH = 720  # text is this wide unless a grid is wider
_NARROW_TEXT = 360  # text beside a grid, and the title and notes of a narrow one
_COLUMN_GAP = 18
_BIT_WIDTH = {64: 17, 32: 28}  # two digits and a little air
_NUMBERS = 15  # height of the bit numbers
_FIELD_HEIGHT = 36
_EMPTY_ROW = 24
_HEADER_HEIGHT = 17
_RULE_HEIGHT = 4

_MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
_SANS = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans","Liberation Sans",Arial,sans-serif'
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a drawing with its size; its body counts from its own upper left corner."""

    width: float
    height: float
    body: str


Laid: TypeAlias = tuple[float, Callable[[float], Block]]  # the width that a part needs, and how it is drawn


def document(title: str, parts: tuple[Part, ...]) -> str:
    """A whole SVG document: the title, then the parts below each other."""
    laid = [laid_out(part) for part in parts]
    width = max([_TEXT_WIDTH, *(rigid for rigid, _ in laid)])
    heading = _prose(title, width, size=19, classes="title")
    content = _below([replace(heading, height=heading.height + 6), *(draw(width) for _, draw in laid)], gap=_PART_GAP)
    total_width, total_height = (number(size + 2 * _MARGIN) for size in (content.width, content.height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tilescope" role="img" '
        f'width="{total_width}" height="{total_height}" viewBox="0 0 {total_width} {total_height}">'
        f"<title>{_escaped(title)}</title><defs><style>{style_sheet()}</style>{hatchings()}</defs>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{_moved(_MARGIN, _MARGIN, content.body)}</svg>\n'
    )


@singledispatch
def laid_out(part: object) -> Laid:
    """The width that a part cannot change, 0 for text, and the function that draws it with its text wrapped to a width."""
    raise NotImplementedError(type(part))


laid_out.register(str, lambda part: (0, partial(_prose, part)))


@laid_out.register
def _beside(part: Beside) -> Laid:
    laid = (_grid(inner, part.is_dense) if isinstance(inner, Grid) else laid_out(inner) for inner in part.parts)
    rigid, draws = zip(*laid, strict=True)
    gaps = _BESIDE_GAP * (len(rigid) - 1)

    def draw(width: float) -> Block:
        rest = max(_NARROW_TEXT, (width - sum(rigid) - gaps) / (rigid.count(0) or 1))
        return _abreast([inner(fixed or rest) for inner, fixed in zip(draws, rigid, strict=True)], _BESIDE_GAP)

    return sum(fixed or _NARROW_TEXT for fixed in rigid) + gaps, draw


@laid_out.register
def _legend(part: Legend) -> Laid:
    def draw(width: float) -> Block:
        entries = []
        for entry in part.entries:
            said, swatch = _prose(entry.text, width), max(24.0, _mono_width(entry.sample, _BODY) + 10)
            sample = _label(swatch / 2, 16, entry.sample, _ink(entry.colour))
            surface = _framed(entry.colour, 0, 0, swatch, 22, mark=entry.mark)
            body = f'<g class="cells roomy">{surface}{sample}</g>{_moved(swatch + 8, 2, said.body)}'
            entries.append(Block(swatch + 8 + said.width, max(24.0, said.height + 2), body))
        lines = packed([(entry.width, entry) for entry in entries], width, 22)
        return _titled(part.title, [_abreast(line, 22) for _, line in lines], (), width)

    return 0, draw


@laid_out.register
def _table(part: Table) -> Laid:
    def cell(text: str, names: bool, side: str, width: float = inf) -> Block:
        return _prose(text, width, classes=f"{'head' * names} {'end' * (side == 'r')}".strip())

    lines = [[(*said, side) for said, side in zip(line, part.align, strict=True)] for line in part.lines()]
    rows = [[cell(*said) for said in line] for line in lines]
    widths = [max(block.width for block in column) for column in zip(*rows, strict=True)]
    starts = [sum(widths[:column]) + _COLUMN_GAP * column for column in range(len(widths))]

    def draw(width: float) -> Block:
        drawn = []
        for (*fitting, _), (*_, said) in zip(rows, lines, strict=True):
            last = cell(*said, max(_NARROW_TEXT, width - starts[-1]))
            body = ""
            for start, needed, block, side in zip(starts, widths, [*fitting, last], part.align, strict=True):
                body += _moved(start + needed * (side == "r"), 0, block.body)
            height = max(block.height for block in (*fitting, last))
            drawn.append(Block(starts[-1] + last.width, height + 3, body))
        return _titled(part.title, [_below(drawn)], part.notes, width)

    return 0, draw


@laid_out.register
def _grid(part: Grid, dense: bool = False) -> Laid:
    block = grid_block(part, dense=dense)
    return block.width, lambda _: block


def grid_block(grid: Grid, *, linked: bool = False, dense: bool = False) -> Block:
    """The grid with its title, headers, labels and notes; `linked` cells bear their links, for a page with a script."""
    dense = dense or grid.is_dense
    height, size, density = (18.0, _TINY, "dense") if dense else (25.0, _BODY, "roomy")
    padding, header_padding, least = (6, 5, 18) if dense else (12, 12, 28)
    columns = Columns.of(
        grid,
        label=lambda text: _mono_width(text, _SMALL) + 10,
        cell=lambda cell: _mono_width(cell.text, size) + padding,
        header=lambda header: _mono_width(header.text, _TINY) + header_padding,
        least=least,
        gap=5,
        unnamed=6,
    )
    stub, baseline = columns.stub, float(round(height / 2 + size * 0.35))
    width = stub + (columns.ends[-1] if columns.ends else 0)
    label_ends = [*accumulate(columns.label_widths)]

    def labels(texts: tuple[str, ...], y: float) -> str:
        return "".join(_label(end - 10, y, text, "l") for text, end in zip(texts, label_ends, strict=False))

    def edges(items: tuple[Spanning, ...]) -> Iterator[tuple[Spanning, float, float]]:
        for first, item in placed(items):
            yield item, stub + columns.starts[first], stub + columns.ends[first + item.span - 1]

    headers, rows = [], []
    for tier in grid.tiers:
        body = labels(grid.label_names if tier is grid.tiers[-1] else (), 12.0) + _label(stub - 8, 12, tier.name, "l")
        for header, left, right in edges(tier.headers):
            body += _label((left + right) / 2, 12, header.text, "h")
            body += _rule(left + 1, right - 1, _HEADER_HEIGHT - 1) if header.span > 1 else ""
        headers.append(Block(width, _HEADER_HEIGHT, body))
    for row in grid.rows:
        cells = [
            _framed(cell.colour, left, 0, right - left, height, cell.mark, cell.title, cell.link if linked else "")
            + _label((left + right) / 2, baseline, cell.text, _ink(cell.colour))
            for cell, left, right in edges(row.cells)
        ]
        body = f'{labels(row.labels, baseline)}<g class="cells {density}">{"".join(cells)}</g>'
        if row.ruled:
            body = _rule(stub, width, 2) + _moved(0, _RULE_HEIGHT, body)
        rows.append(Block(width, height + _RULE_HEIGHT * row.ruled, body))
    drawn = _below([_below(headers), _below(rows)], gap=2)
    return _titled(grid.title, [Block(width, drawn.height, drawn.body)], grid.notes, max(width, _NARROW_TEXT), gap=6)


@laid_out.register
def _ruler(part: BitRuler) -> Laid:
    rows, (_, table) = ruler_rows(part), laid_out(part.table())
    return rows.width, lambda width: _titled(part.title, [rows, table(width)], (), width, gap=12)


def ruler_rows(ruler: BitRuler, *, linked: bool = False) -> Block:
    """The rows of the ruler, without title and table; `linked` fields bear their links, for a page with a script."""
    rows = ruler.rows()
    names = max(_mono_width(row.label, _SMALL) for row in rows)
    return _below([_ruler_row(row, ruler.row_bits, names + 12 if names else 0.0, linked) for row in rows], gap=6)


def _ruler_row(row: RulerRow, bits: int, stub: float, linked: bool) -> Block:
    bit_width = _BIT_WIDTH[bits]
    width = stub + bits * bit_width
    if not row.fields:
        text = _label(stub - 10, 16, row.label, "l") + _label(stub, 16, "no named bits", "small muted")
        return Block(width, _EMPTY_ROW, text)
    body = _label(stub - 10, _NUMBERS + _FIELD_HEIGHT / 2 + 4, row.label, "l")
    for piece in row.pieces:
        left, wide = stub + (bits - 1 - piece.high) * bit_width, (piece.high - piece.low + 1) * bit_width
        if piece.field is None:
            title = f"bits {number_span(piece.low, piece.high)}: no field"
            body += f'<g class="cells">{_box(left, _NUMBERS, wide, _FIELD_HEIGHT, "unused", title)}</g>'
        else:
            body += _moved(left, 0, _ruler_piece(piece, piece.field, wide, linked))
    return Block(width, _NUMBERS + _FIELD_HEIGHT, body)


def _ruler_piece(piece: Piece, field: BitField, width: float, linked: bool) -> str:
    ink, link = _ink(field.colour), field.link if linked else ""
    numbers = _label(2, 11, str(piece.high), "h start") + _label(width - 2, 11, str(piece.low), "h end")
    if piece.high == piece.low:
        numbers = _label(width / 2, 11, str(piece.low), "h")
    shown = field.name if _mono_width(field.name, _TINY) + 8 <= width else piece.key
    value = field.value if _mono_width(field.value, _TINY) + 4 <= width or len(field.value) == 1 else ""
    title = f"bits {number_span(piece.low, piece.high)}: {field.name}" + (f" = {field.value}" if field.value else "")
    title += f" ({field.meaning})" if field.meaning else ""
    return (
        f'{numbers}<g class="cells dense">'
        + _framed(field.colour, 0, _NUMBERS, width, _FIELD_HEIGHT, field.mark, title, link)
        + _label(width / 2, _NUMBERS + (15 if value else 22), shown, f"{ink} strong".strip())
        + _label(width / 2, _NUMBERS + 29, value, ink)
        + "</g>"
    )


def _escaped(text: str) -> str:
    """Text fit for an element or an attribute.

    >>> _escaped('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    """
    return html.escape(_UNPRINTABLE.sub("\ufffd", text))


def number(value: float) -> str:
    """A coordinate in as few characters as it needs.

    >>> number(12.0), number(7.26)
    ('12', '7.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def _mono_width(text: str, size: float) -> float:
    """The most that monospaced text takes."""
    return len(text) * size * _MONO_WIDTH


def _sans_width(text: str, size: float) -> float:
    """The most that text of the sans-serif fonts takes."""
    return sum(_SANS_WIDTHS.get(character, _SANS_WIDTH) for character in text) * size


def _label(x: float, y: float, text: str, classes: str) -> str:
    """A text element with its baseline at `y`; the classes say font, ink and which end `x` is."""
    said = f' class="{classes}"' if classes else ""
    return f'<text x="{number(x)}" y="{number(y)}"{said}>{_escaped(text)}</text>' if text else ""


def _box(x: float, y: float, width: float, height: float, classes: str, title: str = "", link: str = "") -> str:
    """A rectangle; `title` is its tooltip, and boxes that share a word of `link` belong together."""
    top = f' y="{number(y)}"' if y else ""
    shape = f'<rect x="{number(x)}"{top} width="{number(width)}" height="{number(height)}" class="{classes}"'
    shape += f' data-link="{_escaped(link)}"' if link else ""
    return f"{shape}><title>{_escaped(title)}</title></rect>" if title else shape + "/>"


def _framed(
    tint: Tint, x: float, y: float, width: float, height: float, mark: Mark = "", title: str = "", link: str = ""
) -> str:
    """A box of a colour; that of a marked cell has a frame with a white line inside, so that it shows on every colour."""
    shape = _box(x, y, width, height, colour_of(tint).name, title, link)
    if not mark:
        return shape
    inner = _box(x + 2.5, y + 2.5, width - 5, height - 5, "halo")
    return shape + inner + _box(x + 1, y + 1, width - 2, height - 2, f"frame {mark}")


def _ink(tint: Tint) -> str:
    """The class of text on a colour; black, the ink of a cell, needs none."""
    colour = colour_of(tint)
    return {"#000000": "", "#ffffff": "w"}.get(colour.ink, f"on-{colour.name}")


def _rule(left: float, right: float, y: float) -> str:
    """A thin level line."""
    return f'<path d="M{number(left)} {number(y)}h{number(right - left)}" class="line"/>'


def _moved(x: float, y: float, body: str) -> str:
    return f'<g transform="translate({number(x)} {number(y)})">{body}</g>\n'


def _below(blocks: Iterable[Block], gap: float = 0) -> Block:
    """Blocks stacked, `gap` pixels apart; those without height are left out."""
    shown = [block for block in blocks if block.height]
    tops = accumulate((block.height + gap for block in shown), initial=0.0)
    body = "".join(_moved(0, top, block.body) for top, block in zip(tops, shown, strict=False))
    height = sum(block.height + gap for block in shown) - gap
    return Block(max((block.width for block in shown), default=0.0), max(0.0, height), body)


def _abreast(blocks: Sequence[Block], gap: float) -> Block:
    """Blocks next to each other, `gap` pixels apart, their tops aligned."""
    lefts = accumulate((block.width + gap for block in blocks), initial=0.0)
    body = "".join(_moved(left, 0, block.body) for left, block in zip(lefts, blocks, strict=False))
    return Block(sum(block.width + gap for block in blocks) - gap, max(block.height for block in blocks), body)


def _titled(title: str, blocks: Iterable[Block], notes: Iterable[str], width: float, gap: float = 8) -> Block:
    """Blocks under their title and above their notes."""
    said = [_prose(note, width, size=_SMALL, classes="small muted") for note in notes]
    return _below([_prose(title, width, size=15, classes="sub"), *blocks, *said], gap)


def _prose(text: str, width: float, *, size: int = _BODY, classes: str = "") -> Block:
    """Text wrapped to `width` pixels; code between backticks is set in the monospaced font."""
    broad = size * (_BOLD if classes in ("title", "sub") else 1)
    step = max(_LINE_HEIGHT, round(1.2 * size))  # a large title that wraps needs more
    sized = (
        (
            sum(_mono_width(piece, size) if is_code else _sans_width(piece, broad) for piece, is_code in pieces(word)),
            word,
        )
        for word in words(text)
    )
    lines = packed(sized, width, _sans_width(" ", broad))
    attribute = f' class="{classes}"' if classes else ""
    body = ""
    for row, (_, line) in enumerate(lines):
        said = [
            f'<tspan class="m">{_escaped(piece)}</tspan>' if is_code else _escaped(piece)
            for piece, is_code in pieces(" ".join(line))
        ]
        body += f'<text y="{row * step + size + 1}"{attribute}>{"".join(said)}</text>'
    height = _LINE_HEIGHT + (len(lines) - 1) * step if lines else 0
    return Block(max((taken for taken, _ in lines), default=0.0), height, body)


def style_sheet() -> str:
    """The rules behind every class; all are held under the drawing's own class, so that a page keeps its style."""
    rules = [
        f"text{{font:{_BODY}px {_SANS};font-variant-ligatures:none;fill:{ROLES['background'].ink}}}",
        f".m,.h,.l,.cells text{{font-family:{_MONO}}}",
        f".h,.dense text{{font-size:{_TINY}px}}.l,.small{{font-size:{_SMALL}px}}.roomy text{{font-size:{_BODY}px}}",
        ".h,.cells text{text-anchor:middle}.l,.end{text-anchor:end}.start{text-anchor:start}",
        f".h,.l,.head{{fill:{ROLES['header'].ink}}}.muted{{fill:{ROLES['muted'].ink}}}",
        ".title{font-size:19px;font-weight:600}.sub{font-size:15px;font-weight:600}.strong{font-weight:600}",
        ".cells rect{stroke:#ffffff;stroke-width:1}.line{stroke:#9aa1ad;stroke-width:1}",
        ".cells text{fill:#000000;pointer-events:none}.cells text.w{fill:#ffffff}",  # the tooltip is the cell's
    ]
    rules += [
        f".cells .{colour.name}{{fill:{f'url(#tilescope-{colour.name})' if colour.hatched else colour.fill}}}"
        f".cells text.on-{colour.name}{{fill:{colour.ink}}}"
        for colour in (*CHUNK_COLOURS, *ROLES.values())
    ]
    rules += [  # after the surfaces: a frame bears the name of its mark, which is a colour's too
        ".cells .halo{fill:none;stroke:#ffffff;pointer-events:none}",
        ".cells .frame{fill:none;stroke-width:2;pointer-events:none}",
        f".cells .frame.collision{{stroke:{ROLES['collision'].fill}}}",
        f".cells .frame.focus{{stroke:{ROLES['focus'].fill}}}",
    ]
    return "".join(
        ",".join(f".tilescope {selector}" for selector in selectors.split(",")) + block
        for selectors, block in re.findall(r"([^{}]+)(\{[^{}]*\})", "".join(rules))
    )


def hatchings() -> str:
    """Thin diagonals for the colours that stand for no data."""
    return "".join(
        f'<pattern id="tilescope-{colour.name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{colour.fill}"/>'
        f'<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="#b9bfca" stroke-width="1"/></pattern>'
        for colour in ROLES.values()
        if colour.hatched
    )
