"""A pipeline as data: barriers, slots, and roles with their steps.

    producer   wait empty ─▶ expect full ─▶ copy a, b ──┐ the bytes land
                  ▲                                     ▼
    consumer   release empty ◀─ wait_group ◀─ multiply ◀─ wait full

`Pipeline.from_dict` reads what `to_dict` wrote, and what people write: see docs/pipelines.md.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilescope.pipeline.mistake import GRAMMAR, pipeline_rule
from tilescope.pipeline.parts import Barrier, Role, Slot
from tilescope.pipeline.reader import read_fields
from tilescope.value import Value

FILE = pipeline_rule(
    "pipeline-file",
    "A pipeline's file is JSON or TOML: a table with barriers, slots and roles.",
    """type(ts.plan_pipeline(ts.plan((64, 64), "bf16").best)).from_text(b"{", "kernel.json")""",
    source=GRAMMAR,
)


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
        for name, rows in (("barriers", self.barriers), ("slots", self.slots)):
            shown[name] = {
                row.name: {key: value for key, value in asdict(row).items() if key != "name"} for row in rows
            }
        return shown | {"roles": [role.plain() for role in self.roles]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline that plain data describes; every mistake in it is named at once."""
        return cls(**read_fields(data))

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """The pipeline that a JSON or TOML file describes."""
        return cls.from_text(Path(path).read_bytes(), Path(path).name)

    @classmethod
    def from_text(cls, content: bytes, name: str) -> Pipeline:
        """The pipeline that JSON or TOML describes; `name` is its source, for messages and where it names none itself."""
        try:
            text = content.decode("utf-8")
            data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # those of both decoders are ValueErrors
            fix = "Start from what `tilescope pipeline 128x64 bf16 --describe` prints."
            raise FILE.error("file", f"{name}: {error}", "JSON or TOML", fix, error=str(error)) from None
        return cls.from_dict({"name": Path(name).stem} | data)
