"""Names that were mistyped: which of the known ones was meant.

"bflaot16"   bfloat16        spelled most like it
"bfloat"     bfloat16        begun
128          128B            the only number in it
"256B"       128B            but for its number the same, and the nearest
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(\D*)(\d{1,9})(\D*)")
_LONGEST = 80  # characters of a name that are looked at
_LEAST_LIKENESS = 0.5  # of a name that could be meant
_NEARLY_AS_NEAR = 0.1  # less similar than the best, and still suggested


def nearest_name(written: str, known: Iterable[str]) -> str | None:
    """The known name that `written` begins, or else the one most like it, ignoring case; None if none is.

    >>> nearest_name("bflaot16", ["float16", "bfloat16"]), nearest_name("bfloat", ["float", "bfloat16"])
    ('bfloat16', 'bfloat16')
    """
    names = list(known)
    folded = written[:_LONGEST].casefold()
    if not folded:
        return None
    begun = [name for name in names if name.casefold().startswith(folded)]
    if begun:
        return min(begun, key=len)
    numbered = _nearest_number(folded, names)
    if numbered is not None:
        return numbered
    alike = nearest_names(folded, names)
    if alike:
        return alike[0]
    for name in names:
        if folded in name.casefold() or name.casefold() in folded:
            return name
    return None


def _nearest_number(written: str, known: Iterable[str]) -> str | None:
    """Of the names that differ from `written` only in their number, the one with the nearest.

    >>> _nearest_number("256b", ["none", "32B", "128B", "128B_ATOM_32B"])
    '128B'
    """
    written_match = _NUMBERED.fullmatch(written)
    if written_match is None:
        return None
    distances: dict[str, int] = {}
    for name in known:
        name_match = _NUMBERED.fullmatch(name.casefold())
        if name_match is not None and (name_match[1], name_match[3]) == (written_match[1], written_match[3]):
            distances[name] = abs(int(name_match[2]) - int(written_match[2]))
    return min(distances, key=distances.__getitem__) if distances else None


def nearest_names(written: str, known: Iterable[str]) -> list[str]:
    """The known names that resemble `written` at least half: the best first, then those nearly as near.

    >>> nearest_names("strides", ["stride", "stride_bytes", "box"])
    ['stride']
    """
    import difflib

    matcher = difflib.SequenceMatcher(b=written.casefold())
    likeness: dict[str, tuple[float, int]] = {}  # how like it is, and how many of its first letters are the same
    for name in known:
        matcher.set_seq1(name.casefold())
        if matcher.quick_ratio() < _LEAST_LIKENESS:  # never less than the ratio itself, and soon known
            continue
        first = matcher.get_matching_blocks()[0]
        same_start = first.size if first.a == first.b == 0 else 0
        likeness[name] = (matcher.ratio(), same_start)
    if not likeness:
        return []
    best, _ = max(likeness.values())
    least = max(_LEAST_LIKENESS, best - _NEARLY_AS_NEAR)
    near = [name for name, (alike, _) in likeness.items() if alike >= least]
    return sorted(near, key=likeness.__getitem__, reverse=True)


def name_of_number(number: object, names: Iterable[str]) -> str | None:
    """The first name whose only number is this one: 128 for "128B"; None for other values.

    >>> name_of_number(128, ["none", "64B", "128B", "128B_ATOM_32B"])
    '128B'
    """
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    for name in names:
        if [int(digits) for digits in re.findall(r"\d+", name)] == [number]:
            return name
    return None
