"""Obstacles to a plan: rules that a candidate breaks, as facts whose sentences are formatted last.

A search refuses many candidates and shows few, so a check returns the broken rule and the facts:

    broken(PLAN_TILE, extent="mn", rows=12, up=16)
        .rule           "plan-tile"
        .violation()    "plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16."
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from tilescope.errors import Change, RuleError, Violation, Wording
from tilescope.rule import Rule

Given = ParamSpec("Given")
Made = TypeVar("Made")


class Broken(NamedTuple):
    """A broken rule and the facts that its templates tell."""

    told: Wording
    facts: Mapping[str, Any]
    change: Change | None

    @property
    def rule(self) -> str:
        """The name of the rule, as of a violation."""
        return self.told.rule

    def violation(self) -> Violation:
        """The violation, its sentences made now."""
        return self.told.violation(change=self.change, **self.facts)


def broken(told: Rule | Wording, *, change: Change | None = None, **facts: object) -> Broken:
    """The rule, or a variant of it with other texts, broken by these facts.

    >>> from tilescope.planner.consumers import PLAN_TILE
    >>> print(broken(PLAN_TILE, extent="mn", rows=12, up=16).violation())
    plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16.
    """
    return Broken(told.wording if isinstance(told, Rule) else told, facts, change)


Obstacle = Broken | Violation  # a violation where another package did the check


def violations(obstacles: Iterable[Obstacle]) -> tuple[Violation, ...]:
    """Obstacles as violations, in their order and without repetition."""
    return tuple(
        dict.fromkeys(obstacle if isinstance(obstacle, Violation) else obstacle.violation() for obstacle in obstacles)
    )


def or_obstacles(make: Callable[Given, Made], *given: Given.args, **options: Given.kwargs) -> Made | list[Obstacle]:
    """What a function makes of its arguments, or the violations with which it refuses them."""
    try:
        return make(*given, **options)
    except RuleError as error:
        return list(error.violations)
