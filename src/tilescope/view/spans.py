"""Lines of tinted text, the form in which a drawing reaches a terminal."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tilescope.view.palette import Tint
from tilescope.view.parts import word_length, words

_NOTE_WIDTH = 36  # notes under a narrow grid may be this wide


class Span(NamedTuple):
    """A piece of a line in one tint."""

    text: str
    tint: Tint | None = None


Line: TypeAlias = list[Span]


def line_width(line: Line) -> int:
    """Characters of a line."""
    return sum(len(span.text) for span in line)


def plain_line(line: Line) -> str:
    """The line without tints and without blanks at its end."""
    return "".join(span.text for span in line).rstrip()


def wrapped(text: str, width: int, tint: Tint | None = None) -> list[Line]:
    """A text broken between words; code in it gets a tint of its own.

    >>> [plain_line(line) for line in wrapped("one `two` three", 8)]
    ['one two', 'three']
    """
    lines: list[Line] = []
    taken = 0
    for word in words(text):
        spans = [Span(piece, "code" if is_code else tint) for piece, is_code in word]
        if lines and taken + 1 + word_length(word) <= width:
            lines[-1] += [Span(" ", tint), *spans]
            taken += 1 + word_length(word)
        else:
            lines.append(spans)
            taken = word_length(word)
    return lines


def titled(title: str, lines: list[Line], notes: tuple[str, ...], width: int) -> list[Line]:
    """Lines under their title and above their notes; notes are no wider than what they belong to."""
    note_width = min(width, max(_NOTE_WIDTH, *map(line_width, lines), 0))
    return [
        *wrapped(title, width, "title"),
        *lines,
        *(line for note in notes for line in wrapped(note, note_width, "muted")),
    ]
