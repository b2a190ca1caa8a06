"""A rule as data: what it demands, who says so, and an example on each side of its limit.

    @rule("box-range", "Every box extent is 1 to 256 elements.", reads=("box",), …)
    def box_range(a): …                     returns a Breach for each extent that breaks it

Checks, error messages, `tilescope explain`, the documentation and the tests all read the same table.
Most rules are checks of a map or of a copy. A few are noticed on the way, while arguments are read, bytes
are decoded or an array is described; those are entered with `noticed`, and have no check of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack

from tilescope.arch import Basis, architectures_with
from tilescope.errors import RuleError, Severity, Violation, unknown_name
from tilescope.value import Row

# The kinds of map, and the other things that rules speak of.
Subject = Literal[
    "tiled",
    "im2col",
    "wide",
    "instruction",
    "encoding",
    "descriptor",
    "replacement",
    "array",
    "convolution",
    "paste",
]
MAPS: tuple[Subject, ...] = ("tiled", "im2col", "wide")


class Breach(NamedTuple):
    """What a check found: a violation that does not know yet which rule it breaks."""

    argument: str
    found: str
    limit: str
    fix: str
    change: Mapping[str, Any] | None = None  # arguments that cure it


Check = Callable[[Any], Sequence[Breach]]


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Row):
    """One rule: its demand in a sentence, its source, and an example that keeps it and one that breaks it.

    >>> box_range = Rule.named("box-range")
    >>> box_range.demand
    'Every box extent is 1 to 256 elements.'
    >>> box_range.passing["box"], box_range.failing["box"]
    ((64, 256), (64, 257))
    """

    name: str
    severity: Severity
    demand: str
    source: str
    basis: Basis
    subjects: tuple[Subject, ...]
    reads: tuple[str, ...]  # the arguments its check needs; it is passed over when one of them is unreadable
    passing: Mapping[str, Any]  # an example within the limit …
    failing: Mapping[str, Any]  # … and one beyond it
    architectures: tuple[str, ...]  # on which it can be kept
    check: Check | None = field(repr=False, compare=False)  # None: noticed while something else is done

    @classmethod
    def named(cls, name: object) -> Rule:
        """The rule called `name`."""
        if isinstance(name, Rule):
            return name
        found = RULES.get(name) if isinstance(name, str) else None
        if found is None:
            raise RuleError([unknown_name("rule", "rule", name, RULES)])
        return found

    def violation(
        self, argument: str, found: str, limit: str, fix: str, change: Mapping[str, Any] | None = None
    ) -> Violation:
        """A violation of this rule."""
        return Violation(self.name, self.severity, argument, found, limit, fix, change)

    def broken_by(self, subject: Any) -> list[Violation]:
        """What the rule's check finds in a map or a copy; nothing for a rule without a check."""
        return [] if self.check is None else [self.violation(*each) for each in self.check(subject)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the check, and what it reads, stay behind."""
        return {name: value for name, value in Row.to_dict(self).items() if name not in ("reads", "check")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """The rule of that name."""
        return cls.named(data.get("name") if isinstance(data, Mapping) else data)


RULES: dict[str, Rule] = {}


class Facts(TypedDict, total=False):
    """What is said of a rule beside its name and its demand."""

    source: Required[str]
    passing: Required[Mapping[str, Any]]
    failing: Required[Mapping[str, Any]]
    reads: tuple[str, ...]
    subjects: tuple[Subject, ...]
    severity: Severity
    basis: Basis
    architectures: tuple[str, ...]


def rule(name: str, demand: str, **facts: Unpack[Facts]) -> Callable[[Check], Rule]:
    """Enter the decorated check into RULES; the name then stands for the rule."""
    return lambda check: _entered(name, demand, check, **facts)


def noticed(name: str, demand: str, **facts: Unpack[Facts]) -> Rule:
    """Enter a rule that has no check of its own, since its breach is noticed while something else is done."""
    return _entered(name, demand, None, **facts)


def _entered(
    name: str,
    demand: str,
    check: Check | None,
    *,
    source: str,
    passing: Mapping[str, Any],
    failing: Mapping[str, Any],
    reads: tuple[str, ...] = (),
    subjects: tuple[Subject, ...] = MAPS,
    severity: Severity = "error",
    basis: Basis = "measured",
    architectures: tuple[str, ...] = architectures_with("tma"),
) -> Rule:
    assert name not in RULES, name
    examples = MappingProxyType(dict(passing)), MappingProxyType(dict(failing))
    RULES[name] = Rule(name, severity, demand, source, basis, subjects, reads, *examples, architectures, check)
    return RULES[name]
