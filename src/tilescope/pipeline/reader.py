"""Reading a pipeline from plain data: names, stages, expressions and arguments checked, every mistake named at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilescope.errors import RuleError, Violation, printed, unknown_name
from tilescope.pipeline.expression import Expression, reference
from tilescope.pipeline.mbarrier import ARRIVALS_END
from tilescope.pipeline.mistake import example, pipeline_rule
from tilescope.pipeline.operation import OPERATIONS, Argument, Operation
from tilescope.pipeline.parts import MAX_BLOCKS, MAX_STAGES, Barrier, Loop, Role, Slot, Step
from tilescope.reading import plain_int
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE, Rule

SELF_NAMES = ("rank", "x", "y", "instance", "blocks")
MAX_ROLES = 64
MAX_THREADS = 1024
_TOP = ("kind", "extra", "name", "cluster", "constants", "registers", "barriers", "slots", "roles")
_SPACES = ("smem", "tmem")
_MAX_DEPTH = 8


NAME = pipeline_rule(
    "pipeline-name", "Barriers, slots, loop counters and roles have names of their own, none of which a role knows of itself.",
    example(barriers={"rank": {"count": 1}}), source="the grammar of descriptions",
)  # fmt: skip


def read_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the pipeline that plain data describes."""
    return _Reader().pipeline(data)


class _Reader:
    """Collects problems while it reads; what cannot be read gets a harmless value."""

    def __init__(self) -> None:
        self.problems: list[Violation] = []
        self.names: dict[str, tuple[str, ...]] = {}

    def pipeline(self, data: Mapping[str, Any]) -> dict[str, Any]:
        data = self._table("pipeline", data)
        self._known_keys("pipeline", data, _TOP)
        cluster = self._cluster(data.get("cluster", (1, 1)))
        constants = {
            name: self._integer(f"constants.{name}", value, -(1 << 40), 1 << 40)
            for name, value in self._table("constants", data.get("constants", {})).items()
        }
        barriers = tuple(
            self._barrier(name, each) for name, each in self._table("barriers", data.get("barriers", {})).items()
        )
        slots = tuple(self._slot(name, each) for name, each in self._table("slots", data.get("slots", {})).items())
        self.names = {
            "barrier": tuple(barrier.name for barrier in barriers),
            "slot": tuple(slot.name for slot in slots),
        }
        roles = tuple(
            self._role(number, each, [*SELF_NAMES, *constants], cluster)
            for number, each in enumerate(self._sequence("roles", data.get("roles", ()))[:MAX_ROLES])
        )
        if not roles:
            self._problem(ARGUMENT_RANGE, "roles", "no roles", "a pipeline has at least one", "Add [[roles]].")
        twice = {each.name for each in roles if [other.name for other in roles].count(each.name) > 1}
        for name in sorted(twice):
            self._problem(NAME, "roles", f"two roles called {name}", "names differ", "Rename one.")
        registers = data.get("registers")
        if registers is not None:
            registers = self._integer("registers", registers, 24, 257)
        elif any(step.op == "registers" for role in roles for step in role.all_steps()):
            self._problem(
                ARGUMENT_TYPE, "registers", "setmaxnreg without the registers at entry", "the block's pool is known",
                "Add registers = N, the count of __launch_bounds__, to the pipeline.",
            )  # fmt: skip
        if self.problems:
            raise RuleError(self.problems)
        return {
            "name": str(data.get("name", "pipeline")), "barriers": barriers, "slots": slots, "roles": roles,
            "cluster": cluster, "constants": constants, "registers": registers,
        }  # fmt: skip

    def _cluster(self, given: Any) -> tuple[int, int]:
        extents = [given] if plain_int(given) is not None else list(given) if isinstance(given, list | tuple) else []
        found = [plain_int(extent) or 0 for extent in extents]
        found += [1] * (2 - len(found)) if found else []
        if len(found) != 2 or min(found) < 1 or found[0] * found[1] > MAX_BLOCKS:
            self._problem(
                ARGUMENT_RANGE, "cluster", printed(given), f"[x, y] with at most {MAX_BLOCKS} blocks", "Use [2, 1], for example."
            )  # fmt: skip
            return 1, 1
        return found[0], found[1]

    def _barrier(self, name: str, given: Any) -> Barrier:
        table = self._table(f"barriers.{name}", given)
        self._name(f"barriers.{name}", name)
        self._known_keys(f"barrier {name}", table, ("count", "stages"))
        return Barrier(
            name,
            self._integer(f"barriers.{name}.count", table.get("count"), 1, ARRIVALS_END),
            self._integer(f"barriers.{name}.stages", table.get("stages", 1), 1, MAX_STAGES + 1),
        )

    def _slot(self, name: str, given: Any) -> Slot:
        table = self._table(f"slots.{name}", given)
        self._name(f"slots.{name}", name)
        self._known_keys(f"slot {name}", table, ("stages", "bytes", "space"))
        space = table.get("space", "smem")
        if space not in _SPACES:
            self.problems.append(unknown_name("space", f"slots.{name}.space", space, _SPACES))
        return Slot(
            name,
            self._integer(f"slots.{name}.stages", table.get("stages", 1), 1, MAX_STAGES + 1),
            self._integer(f"slots.{name}.bytes", table.get("bytes", 0), 0, 1 << 24),
            str(space),
        )

    def _role(self, number: int, given: Any, names: list[str], cluster: tuple[int, int]) -> Role:
        table = self._table(f"roles[{number}]", given)
        name = str(table.get("name", f"role {number}"))
        self._known_keys(f"role {name}", table, ("name", "threads", "instances", "mask", "steps"))
        mask = table.get("mask")
        if mask is not None:
            mask = self._integer(f"{name}.mask", mask, 1, 1 << cluster[0] * cluster[1])
        return Role(
            name,
            self._steps(name, table.get("steps", ()), names, 0),
            self._integer(f"{name}.threads", table.get("threads", 1), 1, MAX_THREADS + 1),
            self._integer(f"{name}.instances", table.get("instances", 1), 1, 33),
            mask,
        )

    def _steps(self, where: str, given: Any, names: list[str], depth: int) -> tuple[Step | Loop, ...]:
        if depth > _MAX_DEPTH:
            self._problem(ARGUMENT_RANGE, where, "loops too deep", f"at most {_MAX_DEPTH}", "Flatten them.")
            return ()
        found: list[Step | Loop] = []
        for number, each in enumerate(self._sequence(f"{where}.steps", given)):
            at = f"{where}.steps[{number}]"
            table = self._table(at, each)
            if "loop" in table:
                found.append(self._loop(at, table, names, depth))
            elif (step := self._step(at, table, names)) is not None:
                found.append(step)
        return tuple(found)

    def _loop(self, at: str, table: Mapping[str, Any], names: list[str], depth: int) -> Loop:
        self._known_keys(at, table, ("loop", "count", "start", "steps"))
        counter = table["loop"]
        self._name(f"{at}.loop", counter)
        if counter in names:
            self._problem(NAME, f"{at}.loop", f"{counter}", "a name that is not in use", "Rename the counter.")
        for argument in ("count", "start"):
            self._expression(f"{at}.{argument}", table.get(argument, 0 if argument == "start" else None), names)
        steps = self._steps(at, table.get("steps", ()), [*names, str(counter)], depth + 1)
        return Loop(str(counter), table.get("count"), steps, table.get("start", 0))

    def _step(self, at: str, table: Mapping[str, Any], names: list[str]) -> Step | None:
        ops = [name for name in table if name in OPERATIONS]
        first = next(iter(table), "")
        if not ops:
            self.problems.append(unknown_name("step", at, first, [*OPERATIONS, "loop"]))
            return None
        row = OPERATIONS[first if first in ops else ops[0]]
        known = {each.name: each for each in row.arguments}
        self._known_keys(f"{at} ({row.name})", table, (row.name, "when", *known))
        target = self._target(f"{at}.{row.name}", row, table[row.name], names)
        for name, argument in known.items():
            if name in table:
                self._argument(f"{at}.{name}", argument, table[name], names)
            elif argument.default is None:
                self._problem(
                    ARGUMENT_TYPE, f"{at}.{name}", f"{row.name} without {name}", f"{row.name} needs {name}", f"Add {name}."
                )  # fmt: skip
        if "when" in table:
            self._expression(f"{at}.when", table["when"], names)
        given = {name: table[name] for name in known if name in table}
        return Step(row.name, target, given, table.get("when"))

    def _target(self, at: str, row: Operation, given: Any, names: list[str]) -> Any:
        many = list(given) if isinstance(given, list | tuple) else [given]
        match row.target:
            case "barrier" | "slot":
                self._reference(at, row.target, given, names)
            case "slots":
                for each in many:
                    self._reference(at, "slot", each, names)
                return tuple(many)
            case "barriers":
                for each in many:
                    if each not in self.names["barrier"]:
                        self.problems.append(unknown_name("barrier", at, each, self.names["barrier"]))
                return tuple(many)
            case "number":
                self._expression(at, given, names)
            case "group or barrier" if given not in row.choices:
                self._reference(at, "barrier", given, names)
            case _ if given not in row.choices:
                self.problems.append(unknown_name(row.name, at, given, row.choices))
        return given

    def _argument(self, at: str, argument: Argument, given: Any, names: list[str]) -> None:
        match argument.kind:
            case "number":
                self._expression(at, given, names)
            case "flag" if not isinstance(given, bool):
                self._problem(ARGUMENT_TYPE, at, printed(given), "true or false", "Use true.")
            case "choice" if given not in argument.choices:
                self.problems.append(unknown_name(argument.name, at, given, argument.choices))
            case "barrier" | "slot":
                self._reference(at, argument.kind, given, names)

    def _reference(self, at: str, kind: str, given: Any, names: list[str]) -> None:
        try:
            name, index = reference(at, given)
        except RuleError as error:
            self.problems += error.violations
            return
        if name not in self.names[kind]:
            self.problems.append(unknown_name(kind, at, name, self.names[kind]))
        self._expression(at, index, names)

    def _expression(self, at: str, given: Any, names: list[str]) -> None:
        try:
            Expression.read(at, given, names)
        except RuleError as error:
            self.problems += error.violations

    def _integer(self, at: str, given: Any, low: int, end: int) -> int:
        found = plain_int(given)
        if found is None or not low <= found < end:
            self._problem(
                ARGUMENT_RANGE, at, f"{at} = {printed(given)}", f"an integer from {low} to {end - 1}", f"Use {low}."
            )  # fmt: skip
            return low
        return found

    def _name(self, at: str, given: Any) -> None:
        if not isinstance(given, str) or not given.isidentifier() or given in SELF_NAMES:
            self._problem(
                NAME,
                at,
                printed(given),
                f"a name, none of {', '.join(SELF_NAMES)}",
                "Use a name such as full or tile_a.",
            )

    def _table(self, at: str, given: Any) -> Mapping[str, Any]:
        if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
            return given
        self._problem(
            ARGUMENT_TYPE, at, printed(given), "a table of names and values", 'Use a table such as { op = "wait" }.'
        )
        return {}

    def _sequence(self, at: str, given: Any) -> list[Any]:
        if isinstance(given, list | tuple):
            return list(given)
        self._problem(ARGUMENT_TYPE, at, printed(given), "a list", "Use a list such as [1, 2].")
        return []

    def _known_keys(self, what: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for name in table:
            if name not in known:
                self.problems.append(unknown_name(f"key of {what}", what, name, known))

    def _problem(self, broken: Rule, argument: str, found: str, limit: str, fix: str) -> None:
        self.problems.append(broken.violation(argument, found, limit, fix))
