"""Trials of fixes: candidates are tried one after another, the likeliest first, until one of them passes.

    candidates      bar.sync before the load    bar.sync after the store    bar.sync where control flow joins
    verdicts        fails                       fixes                       not tried

All trials of a run share a budget of steps. Steps do not depend on the machine, and so neither do the fixes that are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Literal, NamedTuple, TypeVar

Verdict = Literal["fixes", "helps", "fails"]
"""fixes: the kernel or pipeline has no mistake left. helps: this mistake is gone, and another one shows."""

Candidate = TypeVar("Candidate")


class TrialBudget:
    """The steps that all trials of a run may use together."""

    def __init__(self, steps: int) -> None:
        self.total = steps
        self.left = steps
        self.is_exhausted = False  # a trial was left out, or ended before its time

    def spend(self, steps: int) -> None:
        """Count steps that a trial has used."""
        self.left -= steps


class TrialResult(NamedTuple, Generic[Candidate]):
    """The first candidate that fixes, and the first that helps; None if there is none."""

    fix: Candidate | None
    help: Candidate | None
    tried: int


def try_candidates(
    candidates: Iterable[Candidate], judge: Callable[[Candidate], Verdict], budget: TrialBudget
) -> TrialResult[Candidate]:
    """Try candidates in their order, up to the first that fixes or to the end of the budget.

    >>> budget = TrialBudget(10)
    >>> def judge(number):
    ...     budget.spend(4)
    ...     return "fixes" if number == 3 else "fails"
    >>> try_candidates([1, 2, 3], judge, budget), budget.is_exhausted
    (TrialResult(fix=3, help=None, tried=3), False)
    >>> try_candidates([1, 2, 3], judge, budget), budget.is_exhausted
    (TrialResult(fix=None, help=None, tried=0), True)
    """
    first_help = None
    tried = 0
    for candidate in candidates:
        if budget.left <= 0:
            budget.is_exhausted = True
            break
        tried += 1
        verdict = judge(candidate)
        if verdict == "fixes":
            return TrialResult(candidate, first_help, tried)
        if verdict == "helps" and first_help is None:
            first_help = candidate
    return TrialResult(None, first_help, tried)
