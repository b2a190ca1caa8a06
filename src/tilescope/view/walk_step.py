"""A walk over a drawing: each step marks some cells and describes them.

The function that walks over a value takes the options of the one that draws it, and passes over those that change
no step.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """One step: the links of the cells that it marks, separated by blanks, its sentence, and where it goes."""

    links: str
    sentence: str
    goes: str = ""  # the place that a page goes to, as `Cell.goes`; empty: the step only marks
    walk: str = ""  # its name, where a drawing has several walks
