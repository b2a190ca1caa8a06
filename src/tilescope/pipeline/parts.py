"""What a pipeline is made of: barriers, slots, roles, and the table of steps with the instruction that each stands for.

A role is a group of threads that act together; a role of a warpgroup arrives once for each of its threads where the step
says count = 128. A step is written as its name with what it acts on, and its arguments beside it:

    {wait = "full[i % 4]", parity = "(i / 4) % 2"}
    {copy = "a[i % 4]", bytes = 16384, barrier = "full[i % 4]"}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tilescope.value import Value

MAX_BLOCKS = 16
MAX_STAGES = 64

Target = Literal["barrier", "barriers", "slot", "slots", "group", "group or barrier", "fence", "number", "choice"]
ArgumentKind = Literal["number", "flag", "barrier", "slot", "choice"]

GROUPS = ("wgmma", "bulk", "cp.async")
FENCES = ("proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after")
COPIES = ("tma", "bulk", "cp.async")
UNITS = ("wgmma", "tcgen05", "mma")


class Argument(NamedTuple):
    """An argument of a step: what it may be, the field of an Action that holds it, and its default (None: it must be there)."""

    name: str
    kind: ArgumentKind
    field: str
    default: int | str | bool | None = None
    choices: tuple[str, ...] = ()


class Operation(NamedTuple):
    """A kind of step."""

    name: str
    target: Target
    arguments: tuple[Argument, ...] = ()
    choices: tuple[str, ...] = ()


_OWN = Argument("mask", "number", "mask", "own")  # bits of the ranks whose barrier or memory it acts on
_TILE = Argument("tile", "number", "tile", "any")  # which tile the slot then holds, or must hold
_COUNT = Argument("count", "number", "times", 1)
_PARITY = Argument("parity", "number", "number")
_BYTES = Argument("bytes", "number", "number")
_THREADS = Argument("threads", "number", "times", 0)

# fmt: off
OPERATIONS = {row.name: row for row in (
    Operation("init", "barriers"),  # mbarrier.init; without any such step barriers are ready at the start
    Operation("wait", "barrier", (_PARITY,)),  # mbarrier.try_wait.parity: until the phase of this parity has ended
    Operation("tail", "barrier", (_PARITY,)),  # the same, before the role leaves
    Operation("expect", "barrier", (_BYTES, Argument("arrive", "flag", "flag", True), _OWN)),  # mbarrier.arrive.expect_tx, or expect_tx
    Operation("arrive", "barrier", (_COUNT, _OWN, Argument("drop", "flag", "flag", False))),  # mbarrier.arrive
    Operation("release", "barrier", (_COUNT, _OWN)),  # the same: the slot may be filled again
    Operation("copy", "slot",  # cp.async.bulk.tensor, cp.async.bulk, cp.async; its bytes count on a barrier
              (_BYTES, Argument("barrier", "barrier", "barriers", ""), Argument("by", "choice", "choice", "tma", COPIES), _OWN,
               Argument("barrier_rank", "number", "owner", "own"), _TILE)),
    Operation("cp_arrive", "barrier", (_COUNT, Argument("noinc", "flag", "flag", False))),  # when the role's cp.async have landed
    Operation("read", "slots", (_TILE,)),  # ld.shared, tcgen05.ld
    Operation("write", "slots", (_TILE,)),  # st.shared
    Operation("multiply", "slots",  # a tensor core reads until a group or a commit is waited for
              (Argument("unit", "choice", "choice", "wgmma", UNITS), Argument("into", "slot", "into", ""), _OWN, _TILE)),
    Operation("store", "slots", (_BYTES._replace(default=0),)),  # cp.async.bulk.tensor.global: TMA reads
    Operation("commit", "group or barrier", (_OWN,), GROUPS),  # closes a group; on a barrier tcgen05.commit
    Operation("wait_group", "group", (Argument("pending", "number", "number", 0), Argument("read", "flag", "flag", False)), GROUPS),
    Operation("fence", "fence", (), FENCES),
    Operation("sync", "number", (_THREADS,)),  # bar.sync of `threads` threads; 0: all of the block
    Operation("bar_arrive", "number", (_THREADS,)),  # arrives there without waiting
    Operation("cluster", "choice", (), ("sync", "arrive", "wait")),  # barrier.cluster
    Operation("registers", "number"),  # setmaxnreg
)}
# fmt: on


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

    @property
    def targets(self) -> tuple[Any, ...]:
        """What it acts on, always as a tuple."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

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

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        mask = {} if self.mask is None else {"mask": self.mask}
        steps = [step.plain() for step in self.steps]
        return {"name": self.name, "threads": self.threads, "instances": self.instances, **mask, "steps": steps}

    def all_steps(self) -> Iterator[Step]:
        """Every step, those in loops too."""
        waiting = list(self.steps[::-1])
        while waiting:
            step = waiting.pop()
            if isinstance(step, Loop):
                waiting += step.steps[::-1]
            else:
                yield step
