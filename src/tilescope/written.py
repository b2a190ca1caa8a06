"""Numbers as people write them, for the command line and for pages.

A text that is none raises ValueError with two arguments: what is wrong with it, and what to write instead.
"""

from __future__ import annotations

import re

from tilescope.errors import shortened


def number(text: str) -> int:
    """An integer as people write it: 1024, 0x400, 0b1000, 1_024.

    >>> number("0x400"), number("1_024"), number("-16")
    (1024, 1024, -16)
    """
    try:
        return int(text, 10 if text.strip().lstrip("+-").isdecimal() else 0)
    except ValueError:
        raise ValueError(f"{shortened(text, 40)!r} is not a number", "1024, 0x400 or 1_024") from None


def numbers(text: str) -> tuple[int, ...]:
    """Numbers as people list them: 4096,4096 or 4096x4096 or (64, 8) or "64 32 32 8".

    >>> numbers("4096,0x40"), numbers("64 x 32"), numbers("(64,)"), numbers("")
    ((4096, 64), (64, 32), (64,), ())
    """
    plain = text.strip().strip("()[]{}").strip()
    if re.fullmatch(r"[1-9]\d*(\s*[xX*]\s*\d+)+", plain):
        pieces = re.split(r"\s*[xX*]\s*", plain)
    else:
        pieces = re.split(r"\s*,\s*|\s+", re.sub(r"\s*,$", "", plain)) if plain else []
    if "" in pieces:
        raise ValueError(f"{shortened(text, 40)!r} has a comma without a number", "64,8")
    return tuple(number(piece) for piece in pieces)


def pair(text: str) -> tuple[int, int]:
    """Two numbers: 5,8 or 128x64.

    >>> pair("128x64")
    (128, 64)
    """
    found = numbers(text)
    if len(found) != 2:
        count = "is one number" if len(found) == 1 else f"has {len(found)} numbers"
        raise ValueError(f"{shortened(text, 40)!r} {count}", "two, such as 5,8")
    return found[0], found[1]
