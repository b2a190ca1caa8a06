"""A mistake in a pipeline: one sentence with the barrier, the numbers and the fix, and the way into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.value import Value

Outcome = Literal["hang", "launch failure", "race", "wrong data", "undefined"]


@dataclass(frozen=True, slots=True)
class Mistake(Value):
    """What goes wrong: where, the numbers, what happens then, and what to change.

    >>> print(Mistake("pipeline-bytes", "hang", "full[2]", "full[2], phase 1 expects 16384 bytes, the copies bring 12288",
    ...               "it never ends", "Expect 12288 bytes."))
    full[2], phase 1 expects 16384 bytes, the copies bring 12288: it never ends. Expect 12288 bytes.
    """

    rule: str
    outcome: Outcome
    subject: str  # the barrier, slot or role
    found: str
    consequence: str
    fix: str
    way: tuple[str, ...] = ()  # the shortest way into it

    def __str__(self) -> str:
        return f"{self.found}: {self.consequence}. {self.fix}"


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves this package."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake
