"""The parts of a pipeline: barriers, slots, flags, and roles with their steps.

A role is a group of threads that act together; a role of a warpgroup arrives once for each of its threads if the step
has count = 128. A step is an operation of the table in `operations`:

    {wait = "full[i % 4]", parity = "(i / 4) % 2"}
    {copy = "a[i % 4]", bytes = 16384, barrier = "full[i % 4]"}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tilescope.arithmetic import rounded_up
from tilescope.pipeline.operations import OPERATIONS, Argument, Written
from tilescope.pipeline.pipeline_rules import Plain
from tilescope.sync.thread_limits import WARP_THREADS
from tilescope.value import Value

MAX_STAGES = 64


@dataclass(frozen=True, slots=True)
class Barrier(Value):
    """An mbarrier of every block, or one for each of `stages` stages; `count` arrivals end a phase."""

    name: str
    count: int
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Slot(Value):
    """Memory that is filled and emptied alternately: `stages` buffers of every block, in shared or tensor memory.

    In global memory ("gmem") all blocks share them.
    """

    name: str
    stages: int = 1
    bytes: int = 0
    space: str = "smem"


@dataclass(frozen=True, slots=True)
class Flag(Value):
    """A counter in global memory that all blocks share, or one for each of `stages` stages; 0 at the start."""

    name: str
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Step(Value):
    """One thing a role does: an operation of the table, what it acts on, and its arguments."""

    op: str
    target: Written | tuple[str, ...]  # a reference, a tuple of them, a name, or an expression
    arguments: Mapping[str, Written] = field(default_factory=dict)
    when: Written | None = None  # an expression: the step is left out where it is 0
    at: str = ""  # the source line that it describes

    @property
    def targets(self) -> tuple[Written, ...]:
        """What it acts on, always as a tuple."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

    def values(self) -> Iterator[tuple[Argument, Written]]:
        """What it acts on and every argument, defaults included, with their rows of the table."""
        row = OPERATIONS[self.op]
        for target in self.targets:
            yield row.target, target
        for argument in row.arguments:
            value = self.arguments.get(argument.name, argument.default)
            if value is not None:
                yield argument, value

    def plain(self) -> Plain:
        """As it is written in a file."""
        target = list(self.target) if isinstance(self.target, tuple) else self.target
        written: Plain = {self.op: target, **self.arguments}
        if self.when is not None:
            written["when"] = self.when
        if self.at:
            written["at"] = self.at
        return written


@dataclass(frozen=True, slots=True)
class Loop(Value):
    """Steps repeated with a counter from `start` to `start + count - 1`."""

    counter: str
    count: Written  # expressions, as those of the steps
    steps: tuple[Step | Loop, ...]
    start: Written = 0

    def plain(self) -> Plain:
        """As it is written in a file."""
        written: Plain = {"loop": self.counter, "count": self.count}
        if self.start != 0:
            written["start"] = self.start
        written["steps"] = [step.plain() for step in self.steps]
        return written


@dataclass(frozen=True, slots=True)
class Role(Value):
    """Threads that act together: `instances` groups of `threads` threads in the blocks of `mask`."""

    name: str
    steps: tuple[Step | Loop, ...]
    threads: int = 1
    instances: int = 1
    mask: int | None = None  # bits of ranks; None: every block
    earlier: bool = False  # of the grid that runs before this one

    def plain(self) -> Plain:
        """As it is written in a file."""
        written: Plain = {"name": self.name, "threads": self.threads, "instances": self.instances}
        if self.mask is not None:
            written["mask"] = self.mask
        if self.earlier:
            written["earlier"] = True
        written["steps"] = [step.plain() for step in self.steps]
        return written

    @property
    def warps(self) -> int:
        """Its warps; threads of less than a warp are one."""
        return self.whole_threads(WARP_THREADS) // WARP_THREADS

    def whole_threads(self, group: int) -> int:
        """Its threads in whole warps (32) or warpgroups (128)."""
        return rounded_up(self.threads, group)

    def all_steps(self) -> Iterator[Step]:
        """Every step, those in loops too."""
        return flatten_steps(self.steps)


def flatten_steps(steps: Iterable[Step | Loop]) -> Iterator[Step]:
    """The steps, with those of loops in their place."""
    for step in steps:
        if isinstance(step, Loop):
            yield from flatten_steps(step.steps)
        else:
            yield step
