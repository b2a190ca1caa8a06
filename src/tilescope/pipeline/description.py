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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from math import prod
from pathlib import Path
from typing import Any, TypeVar, cast

from tilescope.errors import Violation, argument_range, argument_type, raise_all, unknown_name
from tilescope.pipeline.expression import Expression, Reference, reference
from tilescope.pipeline.operations import OPERATIONS, Argument, Operation, Written
from tilescope.pipeline.parts import MAX_STAGES, Barrier, Flag, Loop, Role, Slot, Step
from tilescope.pipeline.pipeline_rules import GRAMMAR, PLANNED, Plain, example
from tilescope.reading import flag, integer, known_name, plain_int, read_table, try_read
from tilescope.rule import Basis, rule
from tilescope.sentence import format_value
from tilescope.sync.mbarrier import ARRIVALS_END
from tilescope.sync.thread_limits import BLOCK_THREADS, LEAST_REGISTERS, MAX_BLOCKS, MOST_REGISTERS
from tilescope.value import Value, own_data

SELF_NAMES = ("rank", "x", "y", "instance", "blocks")
SPACES = ("smem", "tmem", "gmem")
MAX_ROLES = 64
MAX_INSTANCES = 32
MAX_SLOT_BYTES = (1 << 24) - 1
_TOP = (
    "kind",
    "extra",
    "name",
    "cluster",
    "constants",
    "registers",
    "not_covered",
    "basis",
    "mistakes_found",
    "barriers",
    "slots",
    "flags",
    "roles",
)
_ROLE = ("name", "threads", "instances", "earlier", "mask", "steps")
_MAX_DEPTH = 8
_LARGEST_CONSTANT = 1 << 40
Read = TypeVar("Read")

NAME = rule(
    "pipeline-name",
    "Barriers, slots and loop counters have names that expressions do not define already, and role names are unique.",
    argument="{at}",
    found="{shown}",
    limit="a name of letters, digits and _ other than {used:, }",
    fix="Use a name such as full or tile_a.",
    source=GRAMMAR,
    passing=PLANNED,
    failing=example(barriers={"rank": {"count": 1}}),
)
SAME_NAME = NAME.worded(
    argument="roles",
    found="two roles called {name}",
    limit="every role has a distinct name",
    fix="Call one of them {name} 2.",
)
FILE = rule(
    "pipeline-file",
    "A pipeline's file is JSON or TOML: a table with barriers, slots and roles.",
    argument="file",
    found="{name}: {error}",
    limit="a pipeline's file is JSON or TOML",
    fix="Start from what `tilescope pipeline 128x64 bf16 --describe` prints.",
    source=GRAMMAR,
    passing=PLANNED,
    failing="""type(ts.plan_pipeline(ts.plan((64, 64), "bf16").best)).from_text(b"{", "kernel.json")""",
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
    not_covered: tuple[str, ...] = ()  # operations of the kernel outside the pipeline, which a proof does not cover
    basis: Basis = "documented"  # "measured": as an H200, which keeps shared memory until a block's copies are done
    mistakes_found: tuple[str, ...] = ()  # errors of synchronization that a run found, and that no step describes

    @property
    def blocks(self) -> int:
        """Blocks of the cluster."""
        return self.cluster[0] * self.cluster[1]

    def to_dict(self) -> dict[str, Any]:
        """The pipeline as it is written in a file."""
        data: dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.blocks > 1:
            data["cluster"] = list(self.cluster)
        if self.constants:
            data["constants"] = dict(self.constants)
        if self.registers is not None:
            data["registers"] = self.registers
        if self.not_covered:
            data["not_covered"] = list(self.not_covered)
        if self.mistakes_found:
            data["mistakes_found"] = list(self.mistakes_found)
        if self.basis != "documented":
            data["basis"] = self.basis
        data["barriers"] = _table(self.barriers)
        data["slots"] = _table(self.slots)
        if self.flags:
            data["flags"] = _table(self.flags)
        data["roles"] = [role.plain() for role in self.roles]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pipeline:
        """The pipeline that plain data describes; every mistake in it is named at once."""
        return _Reader().pipeline(own_data(data) if isinstance(data, Mapping) else data)

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
        except UnicodeDecodeError:
            raise FILE.error(name=name, error="bytes that are not UTF-8 text") from None
        except (ValueError, RecursionError) as error:  # those of both decoders are ValueErrors
            raise FILE.error(name=name, error=str(error)) from None
        return cls.from_dict({"name": Path(name).stem} | data)


def field_defaults(row: type[Barrier] | type[Slot] | type[Flag] | type[Role]) -> Plain:
    """The default of every field that a row may leave out.

    >>> field_defaults(Slot)
    {'stages': 1, 'bytes': 0, 'space': 'smem'}
    """
    return {field.name: field.default for field in fields(row) if field.default is not MISSING}


def _table(rows: Sequence[Barrier | Slot | Flag]) -> dict[str, Plain]:
    """Rows by their names, as they are written in a file."""
    table = {}
    for row in rows:
        fields = asdict(row)
        table[fields.pop("name")] = fields
    return table


def _number(at: str, written: object, argument: Argument, names: Collection[str]) -> None:
    """Read an argument's expression. A constant is checked now, other expressions when their names have values."""
    expression = Expression.read(at, written, names)
    if expression.code is None:
        argument.check_range(expression.constant)


class _Reader:
    """Collects problems while it reads; what cannot be read gets a harmless value."""

    def __init__(self) -> None:
        self.problems: list[Violation] = []
        self.known: dict[str, list[str]] = {}  # names of barriers, slots and flags, by the kind of an argument

    def pipeline(self, data: object) -> Pipeline:
        """The pipeline, or a RuleError with all problems."""
        top = self._table("pipeline", data, _TOP)
        constants = {
            name: self._integer(f"constants.{name}", value, -_LARGEST_CONSTANT, _LARGEST_CONSTANT, otherwise=0)
            for name, value in self._table("constants", top.get("constants", {})).items()
        }
        barriers = tuple(self._barrier(name, row) for name, row in self._rows("barriers", top))
        slots = tuple(self._slot(name, row) for name, row in self._rows("slots", top))
        flags = tuple(self._flag(name, row) for name, row in self._rows("flags", top))
        self.known = {
            "barrier": [row.name for row in barriers],
            "slot": [row.name for row in slots],
            "counter": [row.name for row in flags],
        }
        cluster = self._cluster(top.get("cluster", (1, 1)))
        names = (*SELF_NAMES, *constants)
        rows = self._list("roles", top.get("roles", ()))[:MAX_ROLES]
        roles = tuple(self._role(number, row, names, prod(cluster)) for number, row in enumerate(rows))
        registers = self._optional("registers", top.get("registers"), LEAST_REGISTERS, MOST_REGISTERS)
        self._check_roles(roles, registers)
        not_covered = tuple(map(str, self._list("not_covered", top.get("not_covered", ()))))
        raise_all(self.problems)
        name = str(top.get("name", "pipeline"))
        basis: Basis = "measured" if top.get("basis") == "measured" else "documented"
        mistakes = tuple(map(str, self._list("mistakes_found", top.get("mistakes_found", ()))))
        return Pipeline(
            name, barriers, slots, roles, cluster, constants, registers, flags, not_covered, basis, mistakes
        )

    def _check_roles(self, roles: Sequence[Role], registers: int | None) -> None:
        """Problems of all roles together: no role, two of one name, or setmaxnreg without the registers at entry."""
        if not roles:
            self.problems.append(argument_range("roles", roles, "a pipeline has at least one role", "Add [[roles]]."))
        used = [role.name for role in roles]
        for name in sorted({name for name in used if used.count(name) > 1}):
            self.problems.append(SAME_NAME.violation(name=name))
        if registers is None and any(step.op == "registers" for role in roles for step in role.all_steps()):
            expected = "the registers of a thread at entry, since a step uses setmaxnreg"
            self.problems.append(argument_type("registers", None, expected, "Add registers = 168, for example."))

    def _cluster(self, written: object) -> tuple[int, int]:
        listed = written if isinstance(written, list | tuple) else [written]
        extents = [plain_int(extent) or 0 for extent in listed]
        if len(extents) == 1:
            extents.append(1)
        if len(extents) != 2 or min(extents) < 1 or prod(extents) > MAX_BLOCKS:
            limit = f"[x, y] with at most {MAX_BLOCKS} blocks"
            self.problems.append(argument_range("cluster", written, limit, "Use [2, 1], for example."))
            return 1, 1
        return extents[0], extents[1]

    def _rows(self, kind: str, top: Mapping[str, object]) -> list[tuple[str, object]]:
        """The rows of a table of barriers, slots or flags, with their names."""
        return list(self._table(kind, top.get(kind, {})).items())

    def _barrier(self, name: str, written: object) -> Barrier:
        at = f"barriers.{name}"
        self._name(at, name, SELF_NAMES)
        row = {**field_defaults(Barrier), **self._table(at, written, ("count", "stages"))}
        count = self._integer(f"{at}.count", row.get("count"), 1, ARRIVALS_END - 1)
        return Barrier(name, count, self._stages(at, row["stages"]))

    def _slot(self, name: str, written: object) -> Slot:
        at = f"slots.{name}"
        self._name(at, name, SELF_NAMES)
        row = {**field_defaults(Slot), **self._table(at, written, ("stages", "bytes", "space"))}
        stages = self._stages(at, row["stages"])
        size = self._integer(f"{at}.bytes", row["bytes"], 0, MAX_SLOT_BYTES)
        space = self._try("smem", known_name, f"{at}.space", row["space"], SPACES, "space")
        return Slot(name, stages, size, space)

    def _flag(self, name: str, written: object) -> Flag:
        at = f"flags.{name}"
        self._name(at, name, SELF_NAMES)
        row = {**field_defaults(Flag), **self._table(at, written, ("stages",))}
        return Flag(name, self._stages(at, row["stages"]))

    def _stages(self, at: str, written: object) -> int:
        return self._integer(f"{at}.stages", written, 1, MAX_STAGES)

    def _role(self, number: int, written: object, names: tuple[str, ...], blocks: int) -> Role:
        row = {**field_defaults(Role), **self._table(f"roles[{number}]", written, _ROLE)}
        name = str(row.get("name", f"role {number}"))
        mask = self._optional(f"{name}.mask", row["mask"], 1, (1 << blocks) - 1)
        steps = self._steps(name, row.get("steps", ()), names, 0)
        threads = self._integer(f"{name}.threads", row["threads"], 1, BLOCK_THREADS)
        instances = self._integer(f"{name}.instances", row["instances"], 1, MAX_INSTANCES)
        earlier = self._try(False, flag, f"{name}.earlier", row["earlier"])
        return Role(name, steps, threads, instances, mask, earlier)

    def _steps(self, where: str, written: object, names: tuple[str, ...], depth: int) -> tuple[Step | Loop, ...]:
        if depth > _MAX_DEPTH:
            fix = f"Put at most {_MAX_DEPTH} loops inside each other."
            self.problems.append(argument_range(where, depth, f"loops are at most {_MAX_DEPTH} deep", fix))
            return ()
        steps: list[Step | Loop] = []
        for number, row in enumerate(self._list(f"{where}.steps", written)):
            at = f"{where}.steps[{number}]"
            table = self._table(at, row)
            op = next((name for name in table if name in OPERATIONS), None)
            if "loop" in table:
                steps.append(self._loop(at, table, names, depth))
            elif op is not None:
                steps.append(self._step(at, OPERATIONS[op], table, names))
            else:
                self.problems.append(unknown_name("step", at, next(iter(table), ""), [*OPERATIONS, "loop"]))
        return tuple(steps)

    def _loop(self, at: str, table: Mapping[str, object], names: tuple[str, ...], depth: int) -> Loop:
        self._table(at, table, ("loop", "count", "start", "steps"))
        counter = str(table["loop"])
        count = table.get("count")
        start = table.get("start", 0)
        self._name(f"{at}.loop", table["loop"], names)
        self._expression(f"{at}.count", count, names)
        self._expression(f"{at}.start", start, names)
        steps = self._steps(at, table.get("steps", ()), (*names, counter), depth + 1)
        return Loop(counter, _read_written(count), steps, _read_written(start))

    def _step(self, at: str, row: Operation, table: Mapping[str, object], names: tuple[str, ...]) -> Step:
        self._table(
            f"{at} ({row.name})", table, (row.name, "when", "at", *(argument.name for argument in row.arguments))
        )
        target = table[row.name]
        targets = tuple(target) if row.target.many and isinstance(target, list | tuple) else (target,)
        for each in targets:
            self._value(f"{at}.{row.name}", row.target, each, names)
        arguments: dict[str, Written] = {}
        for argument in row.arguments:
            place = f"{at}.{argument.name}"
            if argument.name in table:
                self._value(place, argument, table[argument.name], names)
                arguments[argument.name] = _read_written(table[argument.name])
            elif argument.default is None:
                self.problems.append(argument_type(place, None, f"what {row.name} needs", f"Add {argument.name}."))
        if "when" in table:
            self._expression(f"{at}.when", table["when"], names)
        when = table.get("when")
        acted_on = tuple(map(str, targets)) if row.target.many else _read_written(target)
        at_line = str(table.get("at", ""))
        return Step(row.name, acted_on, arguments, None if when is None else _read_written(when), at_line)

    def _value(self, at: str, argument: Argument, written: object, names: tuple[str, ...]) -> None:
        """What a step acts on, or an argument of it."""
        kind = "choice" if written in argument.choices else argument.kind
        match kind:
            case "number" | "bar":
                self._try(None, _number, at, written, argument, names)
            case "flag":
                self._try(False, flag, at, written)
            case "barriers":
                self._try("", known_name, at, written, self.known["barrier"], "barrier")
            case "choice":
                self._try("", known_name, at, written, argument.choices, argument.name)
            case _:
                self._reference(at, kind, written, names)

    def _reference(self, at: str, kind: str, written: object, names: tuple[str, ...]) -> None:
        """A barrier, slot or flag, and the expression of its stage."""
        name, index = self._try(Reference("", "0"), reference, at, written)
        if name and name not in self.known[kind]:
            what = "flag" if kind == "counter" else kind
            self.problems.append(unknown_name(what, at, name, self.known[kind]))
        self._expression(at, index, names)

    def _expression(self, at: str, written: object, names: tuple[str, ...]) -> None:
        self._try(None, Expression.read, at, written, names)

    def _integer(self, at: str, written: object, least: int, most: int, otherwise: int = 1) -> int:
        return self._try(otherwise, integer, at, written, least, most)

    def _optional(self, at: str, written: object, least: int, most: int) -> int | None:
        return None if written is None else self._integer(at, written, least, most, otherwise=least)

    def _name(self, at: str, written: object, used: tuple[str, ...]) -> None:
        if not isinstance(written, str) or not written.isidentifier() or written in used:
            self.problems.append(NAME.violation(at=at, shown=format_value(written), used=used))

    def _table(self, at: str, written: object, known: Collection[str] = ()) -> Mapping[str, object]:
        return read_table(self.problems, at, written, known, "Use { count = 1 }, for example.")

    def _list(self, at: str, written: object) -> list[object]:
        if isinstance(written, list | tuple):
            return list(written)
        self.problems.append(argument_type(at, written, "a list", "Use a list such as [1, 2]."))
        return []

    def _try(self, otherwise: Read, reader: Callable[..., Read], *arguments: object) -> Read:
        return try_read(self.problems, otherwise, reader, *arguments)


def _read_written(value: object) -> Written:
    """The text that a user wrote. It was checked: anything but a number or a text is already among the problems."""
    return cast("Written", value)
