"""A mistake in a pipeline: where it is, its numbers, what happens then, and what to change.

`demands` holds the rules that a mistake breaks, `kinds` the sentences of every kind of mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilescope.errors import Severity, Violation
from tilescope.value import Value

Outcome = Literal["hang", "launch failure", "race", "wrong data", "undefined"]


@dataclass(frozen=True, slots=True)
class Mistake(Value):
    """What goes wrong: where, the numbers, what happens then, and what to change.

    >>> print(Mistake("pipeline-bytes", "hang", "full[2]", "full[2], phase 1 expects 16384 bytes, the copies bring 12288",
    ...               "the phase never ends", "Expect 12288 bytes."))
    full[2], phase 1 expects 16384 bytes, the copies bring 12288: the phase never ends. Expect 12288 bytes.
    """

    rule: str
    outcome: Outcome
    subject: str  # the barrier, slot or role
    found: str
    consequence: str
    fix: str
    way: tuple[str, ...] = ()  # the shortest way into it
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)  # the numbers and names of the sentence

    def __str__(self) -> str:
        return f"{self.found}: {self.consequence}. {self.fix}"

    def violation(self, severity: Severity = "error") -> Violation:
        """The mistake as a broken rule, as other checks report theirs."""
        return Violation(self.rule, severity, self.subject, self.found, self.consequence, self.fix, values=self.values)


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves this package.

    `kind` is its row of `kinds.KINDS`, `facts` the numbers of agents, barriers and slots that its sentence was made of.
    """

    def __init__(self, mistake: Mistake, kind: str, facts: dict[str, Any]) -> None:
        super().__init__(str(mistake))
        self.mistake, self.kind, self.facts = mistake, kind, facts
