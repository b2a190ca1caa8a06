"""The checks of maps and copies, each beside the row of the rule book that it holds.

    @checked("box-range", "Every box extent is 1 to 256 elements.", reads=("box",), …)
    def _box_range(a): …                    returns a Breach for each extent that breaks it

Some rules are broken while arguments are read, bytes are decoded or an array is described: `map_rule` enters those,
which have no check of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import NO_VALUES, Severity, Violation
from tilescope.rule import Basis, Example, Rule, rule

# The kinds of map, and the other things that rules speak of.
Subject = Literal[
    "tiled", "im2col", "wide", "instruction", "encoding", "descriptor", "replacement", "array", "convolution", "paste"
]  # fmt: skip
MAPS: tuple[Subject, ...] = ("tiled", "im2col", "wide")
TMA_ARCHITECTURES = architectures_with("tma")


class Breach(NamedTuple):
    """What a check found: a violation that does not know yet which rule it breaks."""

    argument: str
    found: str
    limit: str
    fix: str
    change: Mapping[str, Any] | None = None  # arguments that cure it
    values: Mapping[str, Any] = NO_VALUES  # the numbers of the sentences


Found = Breach | Sequence[Breach]  # what a check returns; an empty sequence where the rule holds


class Check(NamedTuple):
    """A check, its rule, and the arguments it needs; it is passed over when one of them is unreadable."""

    rule: Rule
    reads: tuple[str, ...]
    run: Callable[[Any], Found]

    def violations(self, subject: Any) -> list[Violation]:
        """What the check finds in a map or a copy."""
        found = self.run(subject)
        return [
            self.rule.violation(*breach[:5], **breach.values)
            for breach in ((found,) if isinstance(found, Breach) else found)
        ]


CHECKS: list[Check] = []  # in the order of a report


def map_rule(
    name: str,
    demand: str,
    *,
    source: str,
    passing: Example,
    failing: Example,
    subjects: tuple[Subject, ...] = MAPS,
    basis: Basis = "measured",
    severity: Severity = "error",
    architectures: tuple[str, ...] = TMA_ARCHITECTURES,
    code: int | None = None,
) -> Rule:
    """Enter a rule about maps, or about what is done with them."""
    return rule(
        name, demand, source=source, passing=passing, failing=failing, subjects=subjects, basis=basis, severity=severity,
        architectures=architectures, code=code,
    )  # fmt: skip


def checked(
    name: str, demand: str, *, reads: tuple[str, ...] = (), **facts: Any
) -> Callable[[Callable[[Any], Found]], Check]:
    """Enter a rule about maps with its check; the decorated name then stands for both."""

    def entered(run: Callable[[Any], Found]) -> Check:
        check = Check(map_rule(name, demand, **facts), reads, run)
        CHECKS.append(check)
        return check

    return entered
