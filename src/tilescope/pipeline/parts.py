"""What a pipeline is made of: barriers, slots, steps, loops and roles.

A role is a group of threads that act together; a role of a warpgroup arrives once for each of its threads where the step
says count = 128.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilescope.value import Value

MAX_BLOCKS = 16
MAX_STAGES = 64


@dataclass(frozen=True, slots=True)
class Barrier(Value):
    """An mbarrier of every block, or one for each of `stages` stages; `count` arrivals end a phase."""

    name: str
    count: int
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Slot(Value):
    """Memory that is filled and emptied in turn: `stages` buffers of every block, in shared or tensor memory."""

    name: str
    stages: int = 1
    bytes: int = 0
    space: str = "smem"


@dataclass(frozen=True, slots=True)
class Step(Value):
    """One thing a role does: an operation of the table, what it acts on, and its arguments."""

    op: str
    target: Any  # a reference, a tuple of them, a name, or an expression
    arguments: Mapping[str, Any] = field(default_factory=dict)
    when: Any = None  # an expression: the step is left out where it is 0

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        target = list(self.target) if isinstance(self.target, tuple) else self.target
        return {self.op: target} | dict(self.arguments) | ({} if self.when is None else {"when": self.when})


@dataclass(frozen=True, slots=True)
class Loop(Value):
    """Steps repeated with a counter from `start` to `start + count - 1`."""

    counter: str
    count: Any  # expressions, as those of the steps
    steps: tuple[Step | Loop, ...]
    start: Any = 0

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        start = {} if self.start == 0 else {"start": self.start}
        return {"loop": self.counter, "count": self.count} | start | {"steps": [step.plain() for step in self.steps]}


@dataclass(frozen=True, slots=True)
class Role(Value):
    """Threads that act together: `instances` groups of `threads` threads in the blocks of `mask`."""

    name: str
    steps: tuple[Step | Loop, ...]
    threads: int = 1
    instances: int = 1
    mask: int | None = None  # bits of ranks; None: every block

    def all_steps(self) -> Iterator[Step]:
        """Every step, those in loops too."""
        yield from _flat(self.steps)


def _flat(steps: tuple[Step | Loop, ...]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Loop):
            yield from _flat(step.steps)
        else:
            yield step
