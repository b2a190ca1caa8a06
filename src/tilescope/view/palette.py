"""The colours of every drawing: eight for chunks, and a few with fixed meanings.

A chunk's number can be read off its colour in two ways, neither of which needs to tell red from green:

    chunk      0     1     2     3     4     5     6     7
    lightness  24    34    44    53    63    73    83    93      rises with the number: greyscale keeps it
    hue        cool  warm  cool  warm  cool  warm  cool  warm    even or odd: colour-blind eyes keep it

So chunks that trade places with their neighbour (XOR 1) swap cool and warm, and larger XORs jump in
lightness. Beyond eight the colours repeat: number n takes colour n mod 8, as the lanes of a warp repeat in
groups of eight for 16-byte accesses; the text in the cell tells the turns apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["background", "title", "header", "muted", "code", "unused", "gap", "fill", "collision", "focus"]
Tint = int | Role | None  # a number takes one of the eight; None is the background
Mark = Literal["", "collision", "focus"]


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour of the palette: the surface, the text on it, and how a terminal shows it.

    >>> colour_of(1).fill, colour_of(1).ink
    ('#992121', '#ffffff')
    """

    name: str  # also its class in an SVG's style sheet
    fill: str
    ink: str
    terminal: str  # a rich style; roles without a surface keep the terminal's own background
    hatched: bool = False  # SVG draws thin diagonals, so that it is no chunk in greyscale either


_FILLS = ("#003970", "#992121", "#2467b7", "#cc6034", "#1ca3da", "#eca54c", "#7edcf6", "#fdec94")
_INKS = ("#ffffff",) * 3 + ("#000000",) * 5  # on the three dark ones, on the others
CHUNK_COLOURS = tuple(
    Colour(f"c{number}", fill, ink, f"{ink} on {fill}")
    for number, (fill, ink) in enumerate(zip(_FILLS, _INKS, strict=True))
)

_ROWS = (
    Colour("background", fill="#ffffff", ink="#1b1f27", terminal=""),
    Colour("title", fill="#ffffff", ink="#1b1f27", terminal="bold"),
    Colour("header", fill="#ffffff", ink="#4a5160", terminal="dim"),
    Colour("muted", fill="#ffffff", ink="#5b6270", terminal="dim"),
    Colour("code", fill="#ffffff", ink="#1b1f27", terminal="cyan"),
    Colour("unused", fill="#eef0f3", ink="#5b6270", terminal="dim"),
    Colour("gap", fill="#ffffff", ink="#5b6270", terminal="dim", hatched=True),
    Colour("fill", fill="#e7daf3", ink="#3b2355", terminal="#3b2355 on #e7daf3", hatched=True),
    Colour("collision", fill="#c8102e", ink="#ffffff", terminal="bold #ffffff on #c8102e"),
    Colour("focus", fill="#111111", ink="#ffffff", terminal="bold reverse"),
)
ROLES: dict[Role, Colour] = {row.name: row for row in _ROWS}  # type: ignore[misc]

MARK_SIGN: dict[Mark, str] = {"": "", "collision": "!", "focus": "*"}
"""What follows the text of a marked cell, so that a mark is seen without colour too."""


def colour_of(tint: Tint) -> Colour:
    """The colour of a cell: a number cycles through the eight, a role is looked up, None is background.

    >>> colour_of("collision").name, colour_of(9).name, colour_of(None).name
    ('collision', 'c1', 'background')
    """
    if isinstance(tint, int):
        return CHUNK_COLOURS[tint % len(CHUNK_COLOURS)]
    return ROLES[tint or "background"]
