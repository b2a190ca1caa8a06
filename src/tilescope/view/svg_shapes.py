"""The elements of an SVG drawing: boxes, labels, wrapped text, and blocks of them below or beside each other.

Text has no width before a browser chooses its font, so widths are reckoned from above: a monospaced
character takes 0.61 of the font size everywhere, one of the sans-serif fonts what it takes in DejaVu Sans, the widest.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tilescope.view.drawing_parts import pack_lines, pieces, words
from tilescope.view.palette import Mark, Tint, colour_of
from tilescope.view.svg_style import BODY, SMALL, SUBTITLE

_MONO_WIDTH = 0.61  # of the font size: Menlo, Consolas, DejaVu Sans Mono and their like take 0.55 to 0.602
_SANS_WIDTH = 0.64  # of most characters …
_CHARACTERS_OF_WIDTH = {  # … and of those that are narrower or wider
    0.36: " '.,:;|/-fijlIJ",
    0.46: '()[]tr!"',
    0.7: "ABCKRVXZ",
    0.84: "DGHNOQUw&+<=>^#~→",
    1.0: "mMW%@…",
}
_SANS_WIDTHS = {character: width for width, characters in _CHARACTERS_OF_WIDTH.items() for character in characters}
_BOLD = 1.1  # times as wide
_LINE_HEIGHT = 18
_NARROWEST_WITH_HALO = 20  # pixels of a cell: two digits and a line on each side
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a drawing with its size; its body counts from its own upper left corner."""

    width: float
    height: float
    body: str


class Area(NamedTuple):
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    def inset(self, by: float) -> Area:
        """The rectangle inside, `by` pixels from every edge."""
        return Area(self.x + by, self.y + by, self.width - 2 * by, self.height - 2 * by)


def escape(text: str) -> str:
    """Text fit for an element or an attribute.

    >>> escape('a < b & "c"')
    'a &lt; b &amp; &quot;c&quot;'
    """
    return html.escape(_UNPRINTABLE.sub("\ufffd", text))


@lru_cache(maxsize=1 << 14)  # a drawing has few distances, many times
def number(value: float) -> str:
    """A coordinate in as few characters as it needs.

    >>> number(12.0), number(7.26)
    ('12', '7.3')
    """
    return f"{value:.1f}".removesuffix(".0")


def mono_width(text: str, size: float) -> float:
    """The most that monospaced text takes."""
    return len(text) * size * _MONO_WIDTH


def _sans_width(text: str, size: float) -> float:
    """The most that text of the sans-serif fonts takes."""
    return sum(_SANS_WIDTHS.get(character, _SANS_WIDTH) for character in text) * size


def label(x: float, y: float, text: str, classes: str) -> str:
    """A text element with its baseline at `y`; the classes select font, ink and which end `x` is. Empty for an empty text."""
    if not text:
        return ""
    return f'<text x="{number(x)}" y="{number(y)}"{_class_attribute(classes)}>{escape(text)}</text>'


def _class_attribute(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def box(area: Area, classes: str, *, title: str = "", link: str = "", goes: str = "") -> str:
    """A rectangle; `title` is its tooltip, boxes that share a word of `link` belong together, and a click `goes` there."""
    top = f' y="{number(area.y)}"' if area.y else ""
    linked = f' data-link="{escape(link)}"' if link else ""
    if goes:
        linked += f' data-goes="{escape(goes)}"'
    size = f'width="{number(area.width)}" height="{number(area.height)}"'
    shape = f'<rect x="{number(area.x)}"{top} {size} class="{classes}"{linked}'
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def draw_frame(area: Area, tint: Tint, *, mark: Mark = "", title: str = "", link: str = "", goes: str = "") -> str:
    """A box of a colour; a marked one has a frame, with a white line inside where that does not cross its text."""
    shape = box(area, colour_of(tint).name, title=title, link=link, goes=goes)
    if not mark:
        return shape
    halo = box(area.inset(2.5), "halo") if area.width >= _NARROWEST_WITH_HALO else ""
    frame = box(area.inset(1), f"frame {mark}")
    return shape + halo + frame


def ink(tint: Tint) -> str:
    """The class of text on a colour; black, the ink of a cell, needs none."""
    colour = colour_of(tint)
    return {"#000000": "", "#ffffff": "w"}.get(colour.ink, f"on-{colour.name}")


def level_line(left: float, right: float, y: float) -> str:
    """A thin level line."""
    return f'<path d="M{number(left)} {number(y)}h{number(right - left)}" class="line"/>'


def move_group(x: float, y: float, body: str) -> str:
    """A group with its origin elsewhere."""
    return f'<g transform="translate({number(x)} {number(y)})">{body}</g>\n'


def below(blocks: Iterable[Block], gap: float = 0) -> Block:
    """Blocks stacked, `gap` pixels apart; those without height are left out."""
    shown = [block for block in blocks if block.height]
    bodies = []
    top = 0.0
    for block in shown:
        bodies.append(move_group(0, top, block.body))
        top += block.height + gap
    return Block(max((block.width for block in shown), default=0.0), max(0.0, top - gap), "".join(bodies))


def abreast(blocks: Sequence[Block], gap: float) -> Block:
    """Blocks next to each other, `gap` pixels apart, their tops aligned."""
    bodies = []
    left = 0.0
    for block in blocks:
        bodies.append(move_group(left, 0, block.body))
        left += block.width + gap
    return Block(left - gap, max(block.height for block in blocks), "".join(bodies))


def fit_block(block: Block, widest: float) -> Block:
    """The block, made smaller where it is too wide."""
    if block.width <= widest:
        return block
    scale = widest / block.width
    return Block(widest, block.height * scale, f'<g transform="scale({scale:.4f})">{block.body}</g>')


def stack_titled(title: str, blocks: Iterable[Block], notes: Iterable[str], width: float, gap: float = 8) -> Block:
    """Blocks under their title and above their notes."""
    note_blocks = [prose(note, width, size=SMALL, classes="small muted") for note in notes]
    return below([prose(title, width, size=SUBTITLE, classes="sub"), *blocks, *note_blocks], gap)


def prose(text: str, width: float, *, size: int = BODY, classes: str = "") -> Block:
    """Text wrapped to `width` pixels; code between backticks is set in the monospaced font."""
    sans_size = size * _BOLD if classes in ("title", "sub") else size

    def word_width(word: str) -> float:
        return sum(
            mono_width(piece, size) if is_code else _sans_width(piece, sans_size) for piece, is_code in pieces(word)
        )

    lines = pack_lines([(word_width(word), word) for word in words(text)], width, _sans_width(" ", sans_size))
    if not lines:
        return Block(0.0, 0, "")
    step = max(_LINE_HEIGHT, round(1.2 * size))  # a large title that wraps needs more
    body = ""
    for row, (_, line) in enumerate(lines):
        spans = [
            f'<tspan class="m">{escape(piece)}</tspan>' if is_code else escape(piece)
            for piece, is_code in pieces(" ".join(line))
        ]
        body += f'<text y="{row * step + size + 1}"{_class_attribute(classes)}>{"".join(spans)}</text>'
    height = _LINE_HEIGHT + (len(lines) - 1) * step
    return Block(max(taken for taken, _ in lines), height, body)
