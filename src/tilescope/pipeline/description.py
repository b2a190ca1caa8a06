"""A pipeline as data: barriers, slots, and roles with their steps.

    producer   wait empty ─▶ expect full ─▶ copy a, b ──┐ the bytes land
                  ▲                                     ▼
    consumer   release empty ◀─ wait_group ◀─ multiply ◀─ wait full

`Pipeline.from_dict` reads what `to_dict` wrote, and what people write (see docs/pipelines.md): names, stages, expressions
and arguments are checked, and every mistake is named at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from tilescope.errors import Violation, argument_range, argument_type, raise_all, unknown_name
from tilescope.pipeline.demands import GRAMMAR, example, pipeline_rule
from tilescope.pipeline.mbarrier import ARRIVALS_END
from tilescope.pipeline.parts import (
    MAX_BLOCKS,
    MAX_STAGES,
    OPERATIONS,
    Argument,
    Barrier,
    Expression,
    Flag,
    Loop,
    Operation,
    Role,
    Slot,
    Step,
    reference,
)
from tilescope.reading import attempted, flag, integer, known_name, plain_int
from tilescope.sentence import printed
from tilescope.value import Value

SELF_NAMES = ("rank", "x", "y", "instance", "blocks")
MAX_ROLES = 64
_TOP = ("kind", "extra", "name", "cluster", "constants", "registers", "barriers", "slots", "flags", "roles")
_MAX_DEPTH = 8
_LARGEST = 1 << 40
_STAGES = partial(integer, least=1, most=MAX_STAGES)
# names of fields: the default (None: it must be there), and the reader
_FIELDS: dict[str, dict[str, tuple[Any, Callable[..., Any]]]] = {
    "barriers": {"count": (None, partial(integer, least=1, most=ARRIVALS_END - 1)), "stages": (1, _STAGES)},
    "slots": {
        "stages": (1, _STAGES),
        "bytes": (0, partial(integer, least=0, most=(1 << 24) - 1)),
        "space": ("smem", partial(known_name, known=("smem", "tmem", "gmem"), what="space")),
    },
    "flags": {"stages": (1, _STAGES)},
    "roles": {
        "threads": (1, partial(integer, least=1, most=1024)),
        "instances": (1, partial(integer, least=1, most=32)),
        "earlier": (False, flag),
    },
}
# what is taken for a field that nobody states
FIELD_DEFAULTS = {
    kind: {name: default for name, (default, _) in fields.items() if default is not None}
    for kind, fields in _FIELDS.items()
}
Read = TypeVar("Read")

NAME = pipeline_rule(
    "pipeline-name",
    "Barriers, slots, loop counters and roles have names of their own, none of which a role knows of itself.",
    example(barriers={"rank": {"count": 1}}),
    source=GRAMMAR,
)
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
    flags: tuple[Flag, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of the cluster."""
        return self.cluster[0] * self.cluster[1]

    def to_dict(self) -> dict[str, Any]:
        """The pipeline as it is written in a file."""
        optional = {
            "cluster": list(self.cluster) if self.blocks > 1 else None,
            "constants": dict(self.constants) or None,
            "registers": self.registers,
        }
        tables = {
            name: {row.pop("name"): row for row in map(asdict, rows)}
            for name, rows in (("barriers", self.barriers), ("slots", self.slots), ("flags", self.flags))
            if rows or name != "flags"
        }
        shown = {name: value for name, value in optional.items() if value is not None} | tables
        return {"kind": self.kind, "name": self.name} | shown | {"roles": [role.plain() for role in self.roles]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline that plain data describes; every mistake in it is named at once."""
        return _Reader().pipeline(data)

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """The pipeline that a JSON or TOML file describes."""
        return cls.from_text(Path(path).read_bytes(), Path(path).name)

    @classmethod
    def from_text(cls, content: bytes, name: str) -> Pipeline:
        """The pipeline that JSON or TOML describes; `name` is the file's, for messages and for a pipeline without a name."""
        try:
            text = content.decode("utf-8")
            data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # those of both decoders are ValueErrors
            fix = "Start from what `tilescope pipeline 128x64 bf16 --describe` prints."
            raise FILE.error("file", f"{name}: {error}", "JSON or TOML", fix, error=str(error)) from None
        return cls.from_dict({"name": Path(name).stem} | data)


def _number(at: str, written: Any, argument: Argument, names: Collection[str]) -> None:
    """Read an argument's expression; a number is also checked, others are when their names have values."""
    expression = Expression.read(at, written, names)
    if expression.code is None:
        argument.checked(expression.constant)


class _Reader:
    """Collects problems while it reads; what cannot be read gets a harmless value."""

    def __init__(self) -> None:
        self.problems: list[Violation] = []
        self.known: dict[str, list[str]] = {}  # names of barriers and of slots

    def pipeline(self, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline, or a RuleError with all problems."""
        data = self._table("pipeline", data, _TOP)
        constants = {
            name: self._try(0, integer, f"constants.{name}", value, -_LARGEST, _LARGEST)
            for name, value in self._table("constants", data.get("constants", {})).items()
        }
        barriers = tuple(Barrier(name, **fields) for name, fields in self._rows("barriers", data))
        slots = tuple(Slot(name, **fields) for name, fields in self._rows("slots", data))
        flags = tuple(Flag(name, **fields) for name, fields in self._rows("flags", data))
        self.known = {
            "barrier": [row.name for row in barriers],
            "slot": [row.name for row in slots],
            "counter": [row.name for row in flags],
        }
        cluster = self._cluster(data.get("cluster", (1, 1)))
        names = (*SELF_NAMES, *constants)
        roles = tuple(
            self._role(number, row, names, cluster[0] * cluster[1])
            for number, row in enumerate(self._list("roles", data.get("roles", ()))[:MAX_ROLES])
        )
        registers = self._optional("registers", data.get("registers"), 24, 256)
        self._check_roles(roles, registers)
        raise_all(self.problems)
        name = str(data.get("name", "pipeline"))
        return Pipeline(name, barriers, slots, roles, cluster, constants, registers, flags)

    def _check_roles(self, roles: tuple[Role, ...], registers: int | None) -> None:
        """Problems of all roles together: there are some, their names differ, and setmaxnreg knows what it starts from."""
        if not roles:
            self.problems.append(argument_range("roles", roles, "a pipeline has at least one role", "Add [[roles]]."))
        used = [role.name for role in roles]
        for name in sorted({name for name in used if used.count(name) > 1}):
            fix = f"Call one of them {name} 2."
            self.problems.append(NAME.violation("roles", f"two roles called {name}", "names differ", fix))
        if registers is None and any(step.op == "registers" for role in roles for step in role.all_steps()):
            wanted = "the registers of a thread at entry, since a step uses setmaxnreg"
            self.problems.append(argument_type("registers", None, wanted, "Add registers = 168, for example."))

    def _cluster(self, written: Any) -> tuple[int, int]:
        extents = [plain_int(extent) or 0 for extent in (written if isinstance(written, list | tuple) else [written])]
        if len(extents) == 1:
            extents.append(1)
        if len(extents) != 2 or min(extents) < 1 or prod(extents) > MAX_BLOCKS:
            limit = f"[x, y] with at most {MAX_BLOCKS} blocks"
            self.problems.append(argument_range("cluster", written, limit, "Use [2, 1], for example."))
            return 1, 1
        return extents[0], extents[1]

    def _rows(self, kind: str, data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, row in self._table(kind, data.get(kind, {})).items():
            at = f"{kind}.{name}"
            self._name(at, name, SELF_NAMES)
            yield name, self._fields(at, self._table(at, row, _FIELDS[kind]), kind)

    def _role(self, number: int, row: Any, names: tuple[str, ...], blocks: int) -> Role:
        table = self._table(f"roles[{number}]", row, ("name", *_FIELDS["roles"], "mask", "steps"))
        name = str(table.get("name", f"role {number}"))
        mask = self._optional(f"{name}.mask", table.get("mask"), 1, (1 << blocks) - 1)
        steps = self._steps(name, table.get("steps", ()), names, 0)
        return Role(name, steps, mask=mask, **self._fields(name, table, "roles"))

    def _steps(self, where: str, written: Any, names: tuple[str, ...], depth: int) -> tuple[Step | Loop, ...]:
        if depth > _MAX_DEPTH:
            fix = f"Put at most {_MAX_DEPTH} loops inside each other."
            self.problems.append(argument_range(where, depth, f"loops are at most {_MAX_DEPTH} deep", fix))
            return ()
        steps: list[Step | Loop] = []
        for number, row in enumerate(self._list(f"{where}.steps", written)):
            at = f"{where}.steps[{number}]"
            table = self._table(at, row)
            if "loop" in table:
                steps.append(self._loop(at, table, names, depth))
            elif op := next((name for name in table if name in OPERATIONS), ""):
                steps.append(self._step(at, OPERATIONS[op], table, names))
            else:
                self.problems.append(unknown_name("step", at, next(iter(table), ""), [*OPERATIONS, "loop"]))
        return tuple(steps)

    def _loop(self, at: str, table: Mapping[str, Any], names: tuple[str, ...], depth: int) -> Loop:
        self._table(at, table, ("loop", "count", "start", "steps"))
        counter, count, start = str(table["loop"]), table.get("count"), table.get("start", 0)
        self._name(f"{at}.loop", table["loop"], names)
        self._expression(f"{at}.count", count, names)
        self._expression(f"{at}.start", start, names)
        return Loop(counter, count, self._steps(at, table.get("steps", ()), (*names, counter), depth + 1), start)

    def _step(self, at: str, row: Operation, table: Mapping[str, Any], names: tuple[str, ...]) -> Step:
        arguments = {argument.name: table[argument.name] for argument in row.arguments if argument.name in table}
        self._table(f"{at} ({row.name})", table, (row.name, "when", *(argument.name for argument in row.arguments)))
        target = table[row.name]
        if row.target.many:
            target = tuple(target) if isinstance(target, list | tuple) else (target,)
        step = Step(row.name, target, arguments, table.get("when"))
        for argument, value in step.values():
            if argument.name in table:
                self._value(f"{at}.{argument.name}", argument, value, names)
            elif argument.default is None:
                needed = f"what {row.name} needs"
                self.problems.append(argument_type(f"{at}.{argument.name}", None, needed, f"Add {argument.name}."))
        if "when" in table:
            self._expression(f"{at}.when", step.when, names)
        return step

    def _value(self, at: str, argument: Argument, written: Any, names: tuple[str, ...]) -> None:
        """What a step acts on, or an argument of it."""
        kind = "choice" if written in argument.choices else argument.kind
        readers: dict[str, tuple[Any, ...]] = {
            "number": (_number, argument, names),
            "bar": (_number, argument, names),
            "flag": (flag,),
            "barriers": (known_name, self.known["barrier"], "barrier"),
            "choice": (known_name, argument.choices, argument.name),
        }
        if kind in readers:
            reader, *limits = readers[kind]
            self._try(None, reader, at, written, *limits)
        else:
            name, index = self._try(("", "0"), reference, at, written)
            if name and name not in self.known[kind]:
                what = "flag" if kind == "counter" else kind
                self.problems.append(unknown_name(what, at, name, self.known[kind]))
            self._expression(at, index, names)

    def _expression(self, at: str, written: Any, names: tuple[str, ...]) -> None:
        self._try(None, Expression.read, at, written, names)

    def _fields(self, at: str, table: Mapping[str, Any], kind: str) -> dict[str, Any]:
        return {
            name: self._try(1 if default is None else default, reader, f"{at}.{name}", table.get(name, default))
            for name, (default, reader) in _FIELDS[kind].items()
        }

    def _optional(self, at: str, written: Any, least: int, most: int) -> int | None:
        return None if written is None else self._try(least, integer, at, written, least, most)

    def _name(self, at: str, written: Any, used: tuple[str, ...]) -> None:
        if not isinstance(written, str) or not written.isidentifier() or written in used:
            limit = f"a name, none of {', '.join(used)}"
            self.problems.append(NAME.violation(at, printed(written), limit, "Use a name such as full or tile_a."))

    def _table(self, at: str, written: Any, known: Collection[str] = ()) -> Mapping[str, Any]:
        """A table of names and values; where `known` lists names, no others."""
        if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
            fix = "Use { count = 1 }, for example."
            self.problems.append(argument_type(at, written, "a table of names and values", fix))
            return {}
        strange = [name for name in written if known and name not in known]
        self.problems += [unknown_name(f"key of {at}", at, name, known) for name in strange]
        return written

    def _list(self, at: str, written: Any) -> list[Any]:
        if isinstance(written, list | tuple):
            return list(written)
        self.problems.append(argument_type(at, written, "a list", "Use a list such as [1, 2]."))
        return []

    def _try(self, otherwise: Read, reader: Callable[..., Read], *arguments: Any) -> Read:
        return attempted(self.problems, otherwise, reader, *arguments)
