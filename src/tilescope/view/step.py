"""A walk over a drawing: one step after the other marks some cells and says what they are.

The function that walks over a value takes the options of the one that draws it, and passes over those that change
no step.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One step: the links of the cells that it marks, separated by blanks, and its sentence."""

    links: str
    sentence: str
