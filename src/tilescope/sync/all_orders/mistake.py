"""A mistake in a pipeline: where it is, its numbers, what happens then, and what to change.

`demands` holds the rules that a mistake breaks, `kinds` the sentences of every kind of mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from tilescope.errors import Severity, Violation
from tilescope.sync.all_orders.action import Action
from tilescope.value import Value

Outcome = Literal["hang", "launch failure", "race", "wrong data", "undefined"]
# of a sentence; agents, barriers and slots are numbers
Fact: TypeAlias = int | str | Sequence[int] | Sequence[Sequence[int]] | None


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


class EarlierStep(NamedTuple):
    """A step that another agent waits for, and the wait of its own role that should come after it."""

    held: int  # the agent
    needed: Action
    wait: Action
    sentence: str


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves this package.

    An action that goes wrong is found deep within it: a copy begins an access, which meets an earlier one, which lacks its
    fence. What follows the mistake must not be done, and every caller on the way up would have to ask whether it may go on.
    So the mistake is raised, and caught in one place by whoever runs the pipeline: `Run` and `search`.

    `kind` is its row of `kinds.KINDS`, `facts` what its sentence was made of; agents, barriers and slots are numbers there.
    """

    def __init__(self, mistake: Mistake, kind: str, facts: Mapping[str, Fact]) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake
        self.kind = kind
        self.facts = facts
        self.earlier_steps: Sequence[EarlierStep] = ()  # in a circle of waits: steps that would let an agent go on

    def number(self, name: str, otherwise: int = 0) -> int:
        """The fact of that name, which is a number."""
        fact = self.facts.get(name, otherwise)
        assert isinstance(fact, int), name
        return fact

    def text(self, name: str) -> str:
        """The fact of that name, which is a text; empty where there is none."""
        fact = self.facts.get(name, "")
        assert isinstance(fact, str), name
        return fact
