"""A mistake in a pipeline: one sentence with the barrier, the numbers and the fix, and the way into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tilescope.errors import Violation
from tilescope.rule import Basis, Rule, rule
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

    def violation(self) -> Violation:
        """The mistake as a broken rule, as other checks report theirs."""
        return Rule.named(self.rule).violation(self.subject, self.found, self.consequence, self.fix)


_RIGHT = 'ts.plan_pipeline(ts.plan((64, 64), "bf16").best, steps=3)'


def example(*steps: dict[str, Any], others: tuple[tuple[dict[str, Any], ...], ...] = (), **fields: Any) -> str:
    """An expression that simulates roles with these steps on a barrier `full` and a slot `a`."""
    roles = [{"name": f"role {number}", "steps": list(each)} for number, each in enumerate((steps, *others))]
    data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 4096}}, "roles": roles} | fields
    return f"ts.simulate({data}).violations"


def pipeline_rule(name: str, demand: str, failing: str, *, basis: Basis = "documented", source: str = "") -> Rule:
    """A rule that `ts.simulate` finds broken; what ts.plan_pipeline plans keeps all of them."""
    by = {"measured": "PTX ISA, mbarrier; an H200", "documented": "PTX ISA, mbarrier"}[basis]
    return rule(
        name, demand, source=source or by, basis=basis, passing=f"ts.simulate({_RIGHT}).violations", failing=failing
    )


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves this package."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake
