"""The parts of a drawing: grids, bit rulers, tables, legends, parts side by side, and sentences, which are strings.

Parts have names, by which a page requests one. Strings may contain code between backticks: an SVG sets it in a
monospaced font, a terminal in colour. The backticks themselves are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tilescope.view.grid import Grid
from tilescope.view.palette import Mark, Tint
from tilescope.view.ruler import BitRuler
from tilescope.view.table import Table

_CODE = re.compile("`([^`]*)`")
_WORD = re.compile(r"(?:`[^`]*`|\S)+")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: a swatch and its meaning."""

    text: str
    colour: Tint = None
    mark: Mark = ""
    sample: str = ""  # the text in the swatch


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours and marks of a drawing mean."""

    entries: tuple[Entry, ...]
    title: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Beside:
    """Parts next to each other, by name; a terminal puts those that no longer fit below the others.

    >>> Beside({"left": "one", "right": "two"}).parts
    ('one', 'two')
    """

    named: NamedParts

    def __init__(self, parts: Parts) -> None:
        object.__setattr__(self, "named", named_parts(parts))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts from left to right."""
        return tuple(part for _, part in self.named)

    @property
    def is_dense(self) -> bool:
        """Whether cells are small in all its grids, so that adjacent lines have the same height."""
        return any(isinstance(part, Grid) and part.is_dense for part in self.parts)


Part: TypeAlias = "str | Grid | BitRuler | Table | Legend | Beside"
NamedParts: TypeAlias = "tuple[tuple[str, Part], ...]"
Parts: TypeAlias = "Mapping[str, Part | tuple[Part | None, ...] | None]"


def named_parts(parts: Parts) -> NamedParts:
    """Parts with their names: a tuple is several parts of one name; None, empty strings and empty tables are left out.

    >>> named_parts({"rule": "Nothing moves.", "notes": ("One.", "Two."), "facts": None})
    (('rule', 'Nothing moves.'), ('notes', 'One.'), ('notes', 'Two.'))
    """
    named: list[tuple[str, Part]] = []
    for name, value in parts.items():
        several = value if isinstance(value, tuple) else (value,)
        named += [(name, part) for part in several if part]
    return tuple(named)


def words(text: str) -> list[str]:
    """The words of a text; code between backticks keeps its spaces and its neighbours.

    >>> words("Use `a ^ b`, not (`f`).")
    ['Use', '`a ^ b`,', 'not', '(`f`).']
    """
    return _WORD.findall(text)


def pieces(text: str) -> list[tuple[str, bool]]:
    """The text without its backticks, cut where code begins and ends, and whether a piece is code.

    >>> pieces("(`f`).")
    [('(', False), ('f', True), (').', False)]
    """
    return [(piece, number % 2 == 1) for number, piece in enumerate(_CODE.split(text)) if piece]


def plain(text: str) -> str:
    """The text without its backticks."""
    return text.replace("`", "")


def pack_lines(items: Iterable[tuple[float, Item]], width: float, gap: float) -> list[tuple[float, list[Item]]]:
    """Items of known width in lines of known width: a line takes what fits `width`, `gap` apart, and at least one.

    >>> pack_lines([(3, "one"), (3, "two"), (5, "three")], width=8, gap=1)
    [(7, ['one', 'two']), (5, ['three'])]
    """
    lines: list[tuple[float, list[Item]]] = []
    for item_width, item in items:
        if lines and lines[-1][0] + gap + item_width <= width:
            line_width, line = lines[-1]
            lines[-1] = (line_width + (gap + item_width), [*line, item])
        else:
            lines.append((item_width, [item]))
    return lines
