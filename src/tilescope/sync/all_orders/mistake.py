"""Mistakes that a run finds, as data: their kind, and the facts of the case. Sentences are made by whoever prints them.

    kind "stale"    facts    agent 1, slot 0, tile 3, held 1

Agents, barriers and slots are numbers. A kind has an outcome: what becomes of a kernel with this mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from tilescope.sync.role_events import Action

Outcome = Literal["hang", "launch failure", "race", "wrong data", "undefined"]
Fact: TypeAlias = int | str | Sequence[int] | Sequence[Sequence[int]] | None

OUTCOME_OF_KIND: dict[str, Outcome] = {
    # masks
    "mask": "launch failure",
    # exits
    "stores": "race",
    "left": "launch failure",
    "products": "race",
    "cp.async left": "race",
    "arrival left": "undefined",
    "copy left": "undefined",
    # counting on a barrier
    "init twice": "undefined",
    "init": "undefined",
    "init fence": "undefined",
    "inval": "undefined",
    "after inval": "undefined",
    "too many arrivals": "launch failure",
    "piece": "race",
    "outstanding": "launch failure",
    # memory
    "unfilled": "wrong data",
    "stale": "wrong data",
    "beyond": "wrong data",
    "too much": "wrong data",
    "overlap": "wrong data",
    "two tiles": "wrong data",
    "partial": "wrong data",
    "warps": "race",
    "cp.async warps": "race",
    "store warps": "race",
    "scope": "race",
    "early end": "race",
    "race": "race",
    "fence": "race",
    # barriers of threads
    "sync counts": "undefined",
    "cluster wait": "undefined",
    "cluster again": "undefined",
    "sync surplus": "undefined",
    "sync": "hang",
    "cluster": "hang",
    # deadlocks
    "registers": "hang",
    "flag": "hang",
    "no bytes": "hang",
    "too few bytes": "hang",
    "too many bytes": "hang",
    "noinc": "hang",
    "too few arrivals": "hang",
    "only empty arrivals": "hang",
    "receiver": "hang",
    "some arrive": "hang",
    "nobody arrives": "hang",
    "nobody arrives again": "hang",
    "several roles": "hang",
    "late": "hang",
    "parity": "hang",
    "start": "hang",
    "circle": "hang",
}


class BlockedAgent(NamedTuple):
    """An agent that cannot act, and the action that it waits to perform."""

    agent: int
    action: Action


class EarlierStep(NamedTuple):
    """A step that another agent waits for, and the wait in the same role that should come after it."""

    blocked: int  # the agent whose steps these are
    needed: Action
    wait: Action
    waiting: int  # the agent that waits for `needed`


class MistakeFoundError(Exception):
    """Stops a run at its first mistake; never leaves the packages that search.

    A mistake is detected deep within an action: a copy begins an access, which conflicts with an earlier one, which
    lacks its fence. The rest of the action must not be executed, and every caller on the way up would have to check for
    it. So the mistake is raised as an exception, which only `Run` and `search` catch.
    """

    def __init__(self, kind: str, **facts: Fact) -> None:
        super().__init__(kind)
        self.kind = kind
        self.facts = facts
        self.action: Action | None = None  # of a mistake in one action, in every order
        # in a circle of waits: the agents in it, and steps that would let one of them go on
        self.blocked: Sequence[BlockedAgent] = ()
        self.earlier_steps: Sequence[EarlierStep] = ()

    @property
    def outcome(self) -> Outcome:
        """What becomes of a kernel with this mistake."""
        return OUTCOME_OF_KIND[self.kind]

    def number(self, name: str, otherwise: int = 0) -> int:
        """The fact of that name, which is a number."""
        fact = self.facts.get(name, otherwise)
        assert isinstance(fact, int), name
        return fact

    def text(self, name: str) -> str:
        """The fact of that name, which is a text; empty if there is none."""
        fact = self.facts.get(name, "")
        assert isinstance(fact, str), name
        return fact
