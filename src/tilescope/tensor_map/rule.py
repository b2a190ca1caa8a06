"""A rule of the tensor map, as data: what it demands, who says so, and a map on each side of its limit.

    @rule("box-range", "Every box extent is 1 to 256 elements.", …)
    def box_range(tensor_map): …            yields a Violation for each broken extent

Checks, error messages, `tilescope explain`, the documentation and the tests all read the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tilescope.arch import Basis, architectures_with
from tilescope.errors import Severity, Violation

Subject = Literal["tiled", "im2col", "wide", "instruction"]
MAPS: tuple[Subject, ...] = ("tiled", "im2col", "wide")
Check = Callable[[Any], Iterable[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its demand in a sentence, its source, and arguments that keep and break it.

    >>> from tilescope.tensor_map import RULES
    >>> RULES["box-range"].demand
    'Every box extent is 1 to 256 elements.'
    """

    name: str
    severity: Severity
    demand: str
    source: str
    basis: Basis
    subjects: tuple[Subject, ...]  # the kinds of map, or the instruction, that it speaks of
    reads: tuple[str, ...]  # the arguments it needs; it is passed over when one of them is unreadable
    passing: Mapping[str, Any]  # an example within the limit …
    failing: Mapping[str, Any]  # … and one beyond it
    architectures: tuple[str, ...]
    check: Check = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kind": "rule",
            "name": self.name,
            "severity": self.severity,
            "demand": self.demand,
            "source": self.source,
            "basis": self.basis,
            "subjects": list(self.subjects),
            "architectures": list(self.architectures),
            "passing": dict(self.passing),
            "failing": dict(self.failing),
        }


RULES: dict[str, Rule] = {}


def rule(
    name: str,
    demand: str,
    *,
    source: str,
    passing: Mapping[str, Any],
    failing: Mapping[str, Any],
    reads: tuple[str, ...],
    subjects: tuple[Subject, ...] = MAPS,
    severity: Severity = "error",
    basis: Basis = "measured",
    architectures: tuple[str, ...] = architectures_with("tma"),
) -> Callable[[Check], Check]:
    """Enter the decorated check into RULES."""

    def enter(check: Check) -> Check:
        RULES[name] = Rule(
            name, severity, demand, source, basis, subjects, reads,
            MappingProxyType(dict(passing)), MappingProxyType(dict(failing)), architectures, check,
        )  # fmt: skip
        return check

    return enter


def violation(
    name: str, argument: str, found: str, limit: str, fix: str, change: Mapping[str, Any] | None = None
) -> Violation:
    """A violation of the rule called `name`, with that rule's severity."""
    return Violation(
        name,
        RULES[name].severity,
        argument,
        found,
        limit,
        fix,
        None if change is None else MappingProxyType(dict(change)),
    )
