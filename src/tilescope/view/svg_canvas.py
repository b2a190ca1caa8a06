"""What SVG drawings are made of: blocks with a size, text whose width is known, one style sheet.

Text has no width before a browser chooses its font, so widths are reckoned from above: a monospaced
character takes 0.61 of the font size everywhere, one of the sans-serif fonts 0.58 on average at most.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilescope.view.palette import CHUNK_COLOURS, ROLES, Colour, Mark
from tilescope.view.parts import Word, packed, words

MONO_WIDTH = 0.61  # of the font size: Menlo, Consolas, DejaVu Sans Mono and their like take 0.55 to 0.602
SANS_WIDTH = 0.58
_BOLD_WIDTH = 0.69  # digits of the bold sans-serif fonts
BODY = 13  # font sizes in pixels
SMALL = 12
TINY = 11
LINE_HEIGHT = 18

_MONO = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
_SANS = 'system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans","Liberation Sans",Arial,sans-serif'
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a drawing with its size; its body counts from its own upper left corner."""

    width: float
    height: float
    body: str


def escaped(text: str) -> str:
    """Text fit for an element or an attribute.

    >>> escaped('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    """
    return html.escape(_UNPRINTABLE.sub("\ufffd", text))


def number(value: float) -> str:
    """A coordinate in as few characters as it needs.

    >>> number(12.0), number(7.26)
    ('12', '7.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def mono_width(text: str, size: float) -> float:
    """The most that monospaced text takes."""
    return len(text) * size * MONO_WIDTH


def label(x: float, y: float, text: str, classes: str) -> str:
    """A text element with its baseline at `y`; the classes say font, ink and which end `x` is."""
    said = f' class="{classes}"' if classes else ""
    return f'<text x="{number(x)}" y="{number(y)}"{said}>{escaped(text)}</text>' if text else ""


def box(x: float, width: float, height: float, classes: str, title: str = "", y: float = 0, link: str = "") -> str:
    """A rectangle; `title` is its tooltip, and boxes that share a word of `link` belong together."""
    top = f' y="{number(y)}"' if y else ""
    shape = f'<rect x="{number(x)}"{top} width="{number(width)}" height="{number(height)}" class="{classes}"'
    shape += f' data-link="{escaped(link)}"' if link else ""
    return f"{shape}><title>{escaped(title)}</title></rect>" if title else shape + "/>"


def framed_box(
    colour: Colour, x: float, y: float, width: float, height: float, *, mark: Mark = "", title: str = "", link: str = ""
) -> str:
    """A box of a colour; that of a marked cell has a frame with a white line inside, so that it shows on every colour."""
    shape = box(x, width, height, colour.name, title, y, link)
    if not mark:
        return shape
    inner = box(x + 2.5, width - 5, height - 5, "halo", y=y + 2.5)
    return shape + inner + box(x + 1, width - 2, height - 2, f"frame {mark}", y=y + 1)


def ink_class(colour: Colour) -> str:
    """The class of text on a colour; black, the ink of a cell, needs none."""
    return {"#000000": "", "#ffffff": "w"}.get(colour.ink, f"on-{colour.name}")


def line(left: float, right: float, y: float) -> str:
    """A thin level line."""
    return f'<path d="M{number(left)} {number(y)}h{number(right - left)}" class="line"/>'


def moved(x: float, y: float, body: str) -> str:
    """A body shifted to (x, y)."""
    return f'<g transform="translate({number(x)} {number(y)})">{body}</g>\n'


def below(blocks: Iterable[Block], gap: float = 0) -> Block:
    """Blocks stacked, `gap` pixels apart."""
    shown = [block for block in blocks if block.height]
    tops = accumulate((block.height + gap for block in shown), initial=0.0)
    body = "".join(moved(0, top, block.body) for top, block in zip(tops, shown, strict=False))
    height = sum(block.height + gap for block in shown) - gap
    return Block(max((block.width for block in shown), default=0.0), max(0.0, height), body)


def beside(blocks: Sequence[Block], gap: float) -> Block:
    """Blocks next to each other, `gap` pixels apart, their tops aligned."""
    lefts = accumulate((block.width + gap for block in blocks), initial=0.0)
    body = "".join(moved(left, 0, block.body) for left, block in zip(lefts, blocks, strict=False))
    width = sum(block.width + gap for block in blocks) - gap
    return Block(max(0.0, width), max((block.height for block in blocks), default=0), body)


def prose(text: str, width: float, *, size: int = BODY, classes: str = "") -> Block:
    """Text wrapped to `width` pixels; code between backticks is set in the monospaced font."""
    sans = _BOLD_WIDTH if classes in ("title", "sub") else SANS_WIDTH
    step = max(LINE_HEIGHT, round(1.2 * size))  # a large title that wraps needs more
    lines = packed(((_word_width(word, size, sans), word) for word in words(text)), width, size * sans / 2)
    widest = max((taken for taken, _ in lines), default=0.0)
    attribute = f' class="{classes}"' if classes else ""
    body = "".join(
        f'<text y="{row * step + size + 1}"{attribute}>{" ".join(map(_word_element, line))}</text>'
        for row, (_, line) in enumerate(lines)
    )
    return Block(widest, LINE_HEIGHT + (len(lines) - 1) * step if lines else 0, body)


def _word_element(word: Word) -> str:
    return "".join(f'<tspan class="m">{escaped(text)}</tspan>' if is_code else escaped(text) for text, is_code in word)


def _word_width(word: Word, size: float, sans: float) -> float:
    return sum(len(piece) * size * (MONO_WIDTH if is_code else sans) for piece, is_code in word)


def text_width(text: str) -> float:
    """The most that text takes on one line; code between backticks is wider."""
    widths = [_word_width(word, BODY, SANS_WIDTH) for word in words(text)]
    return sum(widths) + max(0, len(widths) - 1) * BODY * SANS_WIDTH / 2


def style_sheet() -> str:
    """The rules behind every class; all are held under the drawing's own class, so that a page keeps its style."""
    rules = [
        f"text{{font:{BODY}px {_SANS};fill:{ROLES['background'].ink}}}",
        f".m,.h,.l,.cells text{{font-family:{_MONO}}}",
        f".h,.dense text{{font-size:{TINY}px}}.l,.small{{font-size:{SMALL}px}}.roomy text{{font-size:{BODY}px}}",
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
