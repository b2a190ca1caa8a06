"""Lines of tinted text, the form in which a drawing reaches a terminal."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate, groupby
from typing import NamedTuple, TypeAlias

from tilescope.view.palette import Tint, colour_of
from tilescope.view.parts import Word, packed, word_length, words

_NOTE_WIDTH = 36  # notes under a narrow grid may be this wide


class Span(NamedTuple):
    """A piece of a line in one tint."""

    text: str
    tint: Tint | None = None


Line: TypeAlias = list[Span]
_CODES = {"bold": "1", "dim": "2", "reverse": "7", "cyan": "36"}


def line_width(line: Line) -> int:
    """Characters of a line."""
    return sum(len(span.text) for span in line)


def plain_line(line: Line) -> str:
    """The line without tints and without blanks at its end."""
    return "".join(span.text for span in line).rstrip()


def ansi_line(line: Line) -> str:
    r"""The line with 24-bit ANSI escapes.

    >>> ansi_line([Span("a", 0), Span(" "), Span("b", "title")])
    '\x1b[38;2;255;255;255;48;2;0;57;112ma\x1b[0m \x1b[1mb\x1b[0m'
    """
    pieces = []
    for style, spans in groupby(line, lambda span: colour_of(span.tint).terminal):
        text = "".join(span.text for span in spans)
        pieces.append(f"\x1b[{_escape(style)}m{text}\x1b[0m" if style else text)
    return "".join(pieces)


@lru_cache
def _escape(style: str) -> str:
    """The codes for a style of the palette, such as "bold #ffffff on #c8102e"."""
    codes, plane = [], "38"
    for word in style.split():
        if word == "on":
            plane = "48"
        elif word.startswith("#"):
            codes.append(f"{plane};2;" + ";".join(str(int(word[at : at + 2], 16)) for at in (1, 3, 5)))
        else:
            codes.append(_CODES[word])
    return ";".join(codes)


def centred(text: str, width: int, filling: str = " ") -> str:
    """The text in the middle, the odd character of filling after it (str.center wavers).

    >>> centred("3", 4), centred("12", 3)
    (' 3  ', '12 ')
    """
    left = max(0, width - len(text)) // 2
    return (filling * left + text).ljust(width, filling)


def wrapped(text: str, width: int, tint: Tint | None = None) -> list[Line]:
    """A text broken between words; code in it gets a tint of its own.

    >>> [plain_line(line) for line in wrapped("one `two` three", 8)]
    ['one two', 'three']
    """
    fitting = [(word_length(word), word) for long in words(text) for word in _fitting(long, width)]
    space: Word = ((" ", False),)
    return [
        [
            Span(piece, "code" if is_code else tint)
            for number, word in enumerate(line)
            for piece, is_code in (*(space if number else ()), *word)
        ]
        for _, line in packed(fitting, width, 1)
    ]


def _fitting(word: Word, width: int) -> list[Word]:
    """A word as it is, or, where it is too long for a line, cut at the spaces of its code, then behind a bracket or comma."""
    if word_length(word) <= width:
        return [word]
    cut: list[Word] = []
    for text, is_code in word:
        first, *more = text.split(" ")
        cut[-1:] = [(*cut[-1], (first, is_code))] if cut else [((first, is_code),)]
        cut += [((piece, is_code),) for piece in more]
    return [part for piece in cut for part in _chopped(piece, width)]


def _chopped(word: Word, width: int) -> list[Word]:
    if word_length(word) <= width or len(word) > 1:
        return [word]
    [(text, is_code)] = word
    most = f".{{1,{width}}}"
    return [((part, is_code),) for part in re.findall(f"{most}$|{most}(?<=[(<,:])|{most}", text)]


def line_part(line: Line, start: int, stop: int) -> Line:
    """The characters of a line from `start` to below `stop`.

    >>> line_part([Span("abc", 1), Span("de")], 2, 4)
    [Span(text='c', tint=1), Span(text='d', tint=None)]
    """
    ends = accumulate(len(span.text) for span in line)
    begins = ((end - len(span.text), span) for end, span in zip(ends, line, strict=True))
    cut = [Span(span.text[max(0, start - at) : max(0, stop - at)], span.tint) for at, span in begins]
    return [span for span in cut if span.text]


def titled(title: str, lines: list[Line], notes: tuple[str, ...], width: int) -> list[Line]:
    """Lines under their title and above their notes; notes are no wider than what they belong to."""
    note_width = min(width, max(_NOTE_WIDTH, *map(line_width, lines), 0))
    return [
        *wrapped(title, width, "title"),
        *lines,
        *(line for note in notes for line in wrapped(note, note_width, "muted")),
    ]
