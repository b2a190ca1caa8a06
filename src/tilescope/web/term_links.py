"""Text with links: code in a code font, terms that `explain` defines, and public threads.

    The 128B swizzle needs `1024` bytes     →   The 128B | swizzle → /symptoms?seen=swizzle | needs | code 1024 | bytes
    tile-ai/tilelang#460                    →   https://github.com/tile-ai/tilelang/issues/460

A page links a term at its first occurrence, and a thread at every one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tilescope.questions.page import address
from tilescope.symptoms import TERMS
from tilescope.view.drawing_parts import pieces

# Terms that are also everyday words: most occurrences are not about the term. "PTX line 42" is a place.
_EVERYDAY = frozenset(
    ["PTX", "cooperative", "coordinates", "floor", "line", "period", "reduction", "request", "scope", "span"]
)
_NAMES = sorted((term.name for term in TERMS if term.name not in _EVERYDAY), key=len, reverse=True)  # the longest first
_NAME_OF = {name: name for name in _NAMES} | {name.capitalize(): name for name in _NAMES if name.islower()}
_THREAD = r"(?P<repository>[A-Za-z0-9-]{1,39}/[\w.-]{1,100})#(?P<thread>\d{1,7})"
_TERM = re.compile(rf"(?<![\w./:-])(?:{_THREAD}|(?P<term>{'|'.join(map(re.escape, _NAME_OF))})s?(?![\w:-]|\.\w))")


class TextPiece(NamedTuple):
    """A piece of a text."""

    text: str
    is_code: bool = False
    path: str = ""  # of the page that explains it; empty: no link
    is_thread: bool = False  # whether the link leads to a public thread


def link_terms(text: str, told: set[str] | None) -> Iterator[TextPiece]:
    """The pieces of a text; terms not yet in `told` become links, and are added to it. None links nothing.

    >>> [(piece.text, piece.path) for piece in link_terms("One swizzle, `two` swizzles.", set())]
    [('One ', ''), ('swizzle', '/symptoms?seen=swizzle'), (', ', ''), ('two', ''), (' swizzles.', '')]
    """
    for piece, is_code in pieces(text):
        if is_code or told is None:
            yield TextPiece(piece, is_code)
        else:
            yield from _with_links(piece, told)


def _with_links(text: str, told: set[str]) -> Iterator[TextPiece]:
    reached = 0
    for match in _TERM.finditer(text):
        link = _link_of(match, told)
        if link is None:
            continue
        if reached < match.start():
            yield TextPiece(text[reached : match.start()])
        yield link
        reached = match.end()
    if reached < len(text):
        yield TextPiece(text[reached:])


def _link_of(found: re.Match[str], told: set[str]) -> TextPiece | None:
    """The link of a thread, or of a term that has no link yet; None for a term that has one."""
    if found["thread"]:
        # An issue's address also leads to a pull request of that number.
        path = f"https://github.com/{found['repository']}/issues/{found['thread']}"
        return TextPiece(found[0], path=path, is_thread=True)
    name = _NAME_OF[found["term"]]
    if name in told:
        return None
    told.add(name)
    return TextPiece(found[0], path=address("symptoms", {"seen": name}))
