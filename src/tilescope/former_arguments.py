"""Former spellings of arguments: they work for one more version, with a warning that names the replacement.

A function takes them as `**former`, typed by a TypedDict, so that its signature shows only the present ones:

    emulate_mma(a, b, a_major="MN")
    DeprecationWarning: a_major of emulate_mma will be removed: use major=(a_major, b_major)
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tilescope.sentence import listed


class Replacement(NamedTuple):
    """Former arguments of a function, and what to pass in their place."""

    former: tuple[str, ...]
    use: str


def warn_about_former(
    function: str, passed: Collection[str], replacements: Iterable[Replacement], *, stacklevel: int = 4
) -> None:
    """Warn the caller of `function` about the former arguments that it passed; TypeError for a name that it never had."""
    unknown = set(passed)
    for replacement in replacements:
        names = [name for name in replacement.former if name in passed]
        unknown.difference_update(names)
        if names:
            message = f"{listed(names)} of {function} will be removed: use {replacement.use}"
            warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")
