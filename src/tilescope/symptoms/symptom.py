"""What people see: error codes, hangs, wrong elements, slow copies, each with its likely causes in order.

    "illegal instruction", 715, CUDA_ERROR_ILLEGAL_INSTRUCTION      phrases: all words of one must be in the question
        1. coordinate-16-bytes   2. negative-store   3. …           causes, most likely first

Symptoms are written in symptoms.toml, their phrases in plain words; `question.py` folds the words that mean the same
("stuck", "deadlock": hang).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.symptoms.tables import row_named, table
from tilescope.value import Row


@dataclass(frozen=True, slots=True, eq=False)
class Symptom(Row):
    """Something seen: the phrases by which people name it, the causes to try in order, and what to know first.

    >>> Symptom.named("unspecified launch failure (719)").causes[0]
    'barrier-arrivals'
    """

    name: str
    phrases: tuple[str, ...]
    causes: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def named(cls, name: object) -> Symptom:
        """The symptom called `name`."""
        return row_named(cls, SYMPTOM, name)


SYMPTOM = {name: Symptom(name, **entry) for name, entry in table("symptoms").items()}
