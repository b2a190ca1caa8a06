"""A pipeline as data: barriers, slots, and roles with their steps.

    producer   wait empty ─▶ expect full ─▶ copy a, b ──┐ the bytes land
                  ▲                                     ▼
    consumer   release empty ◀─ wait_group ◀─ multiply ◀─ wait full

A role is a group of threads that act together; a role of a warpgroup arrives once for each of its threads where the step
says count = 128. `Pipeline.from_dict` reads what `to_dict` wrote, and what people write: see docs/pipelines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilescope.errors import broken
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
        return {"loop": self.counter, "count": self.count} | start | {"steps": [each.plain() for each in self.steps]}


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


@dataclass(frozen=True, slots=True)
class Pipeline(Value):
    """Barriers, slots and roles of a kernel, as data.

    >>> pipeline = Pipeline.from_dict({
    ...     "name": "one copy",
    ...     "barriers": {"full": {"count": 1}},
    ...     "slots": {"a": {"bytes": 4096}},
    ...     "roles": [{"name": "thread", "steps": [
    ...         {"expect": "full", "bytes": 4096},
    ...         {"copy": "a", "bytes": 4096, "barrier": "full"},
    ...         {"wait": "full", "parity": 0},
    ...         {"read": ["a"]},
    ...     ]}],
    ... })
    >>> pipeline.barriers[0].count, len(pipeline.roles[0].steps)
    (1, 4)
    >>> Pipeline.from_dict(pipeline.to_dict()) == pipeline
    True
    """

    name: str
    barriers: tuple[Barrier, ...]
    slots: tuple[Slot, ...]
    roles: tuple[Role, ...]
    cluster: tuple[int, int] = (1, 1)
    constants: Mapping[str, int] = field(default_factory=dict)
    registers: int | None = None  # of each thread at entry, where setmaxnreg is used

    @property
    def blocks(self) -> int:
        """Blocks of the cluster."""
        return self.cluster[0] * self.cluster[1]

    def to_dict(self) -> dict[str, Any]:
        """The pipeline as it is written in a file."""
        shown: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.blocks > 1:
            shown["cluster"] = list(self.cluster)
        if self.constants:
            shown["constants"] = dict(self.constants)
        if self.registers is not None:
            shown["registers"] = self.registers
        shown["barriers"] = {each.name: {"count": each.count, "stages": each.stages} for each in self.barriers}
        shown["slots"] = {
            each.name: {"stages": each.stages, "bytes": each.bytes, "space": each.space} for each in self.slots
        }
        shown["roles"] = [
            {"name": each.name, "threads": each.threads, "instances": each.instances}
            | ({} if each.mask is None else {"mask": each.mask})
            | {"steps": [step.plain() for step in each.steps]}
            for each in self.roles
        ]
        return shown

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline that plain data describes; every mistake in it is named at once."""
        from tilescope.pipeline.reader import read_pipeline

        return read_pipeline(data)

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """The pipeline that a JSON or TOML file describes."""
        return cls.from_text(Path(path).read_bytes(), Path(path).name)

    @classmethod
    def from_text(cls, content: bytes, name: str) -> Pipeline:
        """The pipeline that JSON or TOML describes; `name` is its source, for messages and where it names none itself."""
        import json
        import tomllib

        try:
            text = content.decode("utf-8")
            data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # those of both decoders are ValueErrors
            raise broken("pipeline-file", "file", f"{name}: {error}", "JSON or TOML", "Correct it.") from None
        if not isinstance(data, Mapping):
            raise broken("pipeline-file", "file", name, "a table with barriers, slots and roles", "Correct it.")
        return cls.from_dict({"name": Path(name).stem} | dict(data))


def _flat(steps: tuple[Step | Loop, ...]) -> Iterator[Step]:
    for each in steps:
        if isinstance(each, Loop):
            yield from _flat(each.steps)
        else:
            yield each
