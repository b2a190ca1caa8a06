"""One layout in every notation, as the answer lists it and the drawing shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class EveryNotation(NamedTuple):
    """A layout as every notation writes it, or why one has no text for it."""

    written: str  # the user's text
    texts: Mapping[str, str]  # by the name of the notation
    assumption: str  # what the text left unsaid; empty: nothing
    lacking: tuple[str, ...] = ()  # notations that have no text for it
