"""The rule book: what tilescope demands, who says so, and an example on either side of the limit.

A row stands beside the check that refuses by it, in whatever module that is:

    BOX_RANGE = rule("box-range", "Every box extent is 1 to 256 elements.", source=…, passing=…, failing=…)
    …
    raise BOX_RANGE.error("box[0]", "box[0] = 512 elements", "1 to 256 elements", "Use 256 and more copies.")

`RULES` holds all of them. It loads the modules that hold rows when it is asked for a name that it does not know yet, or
for all of them: errors, `tilescope explain`, the documentation and the tests read the same table.

An example is a mapping of the arguments of a tensor map (`tensor_map.rules` says what else it may hold), or an
expression such as 'ts.Swizzle.xor(3, 4, 3)' that raises the violation or gives a sequence of violations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from tilescope.errors import FAULTS, NO_VALUES, RuleError, Severity, Violation, unknown_name
from tilescope.value import Row

Basis = Literal["measured", "documented"]
Example = Mapping[str, Any] | str

# The modules that, with what they import, hold every row. Most of them import this one, so they are imported by name.
_ROW_MODULES = (
    "tma", "tensor_map.source", "mma.readings", "mma.agreement", "mma.emulation", "smem.search", "notation", "planner",
    "tma.bulk", "tma.array_file", "pipeline.mbarrier",
    "pipeline.simulation", "planner.barrier_roles", "emitter.source", "view", "view.layout_view", "gpu.verification",
    "gpu.benchmark", "gpu.watch_call", "web.pages", "cli.map_source", "cli.serve",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Row):
    """One rule: its demand in a sentence, its source, and an example that keeps it and one that breaks it.

    >>> box_range = Rule.named("box-range")
    >>> box_range.demand
    'Every box extent is 1 to 256 elements.'
    >>> box_range.passing["box"], box_range.failing["box"]
    ((64, 256), (64, 257))
    """

    name: str
    severity: Severity
    demand: str
    source: str
    basis: Basis
    subjects: tuple[str, ...]  # what it speaks of
    passing: Example | None  # an example within the limit …
    failing: Example | None  # … and one beyond it; rules about arguments alone have none
    architectures: tuple[str, ...]  # on which it can be kept; empty: wherever tilescope runs
    code: int | None  # CUDA's error number for what the chip answers; None: it is refused before, or executed

    @classmethod
    def named(cls, name: object) -> Rule:
        """The rule called `name`."""
        if isinstance(name, Rule):
            return name
        row = RULES.get(name) if isinstance(name, str) else None
        if row is None:
            raise RuleError([unknown_name("rule", "rule", name, RULES)])
        return row

    def violation(
        self, argument: str, found: str, limit: str, fix: str, change: Mapping[str, Any] | None = None, /, **values: Any
    ) -> Violation:
        """A violation of this rule; `values` are the numbers that its sentences are made of.

        >>> Rule.named("box-range").violation("box[0]", "box[0] = 512", "1 to 256", "Use 256.", box=512).values["box"]
        512
        """
        return Violation(self.name, self.severity, argument, found, limit, fix, change, values or NO_VALUES)

    def error(
        self, argument: str, found: str, limit: str, fix: str, change: Mapping[str, Any] | None = None, /, **values: Any
    ) -> RuleError:
        """The exception for one violation of this rule: a FaultError where the chip has an answer to it.

        >>> Rule.named("smem-address").error("smem_address", "smem_address = 0x40", "a multiple of 128", "Use 0.").code
        716
        """
        kind = RuleError if self.code is None else FAULTS[self.code]
        return kind([self.violation(argument, found, limit, fix, change, **values)])

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """The rule of that name."""
        return cls.named(data.get("name") if isinstance(data, Mapping) else data)


class _RuleBook(Mapping[str, Rule]):
    """All rules by name; the modules that hold rows are loaded once somebody asks for more than what is there."""

    def __init__(self) -> None:
        self._rows: dict[str, Rule] = {}

    def enter(self, row: Rule) -> Rule:
        """Add a row; two rows of one name are a mistake."""
        assert row.name not in self._rows, row.name
        self._rows[row.name] = row
        return row

    def __getitem__(self, name: str) -> Rule:
        return self._rows[name] if name in self._rows else self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))  # whichever module came first

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Rule]:
        for module in _ROW_MODULES:
            import_module(f"tilescope.{module}")
        return self._rows


RULES = _RuleBook()


def rule(
    name: str,
    demand: str,
    *,
    source: str,
    basis: Basis = "documented",
    severity: Severity = "error",
    subjects: tuple[str, ...] = (),
    passing: Example | None = None,
    failing: Example | None = None,
    architectures: tuple[str, ...] = (),
    code: int | None = None,
) -> Rule:
    """Enter a row into RULES."""
    within, beyond = (
        MappingProxyType(dict(example)) if isinstance(example, Mapping) else example for example in (passing, failing)
    )
    return RULES.enter(Rule(name, severity, demand, source, basis, subjects, within, beyond, architectures, code))


# What errors.py says of arguments, whoever reads them.
ARGUMENT_TYPE = rule(
    "argument-type",
    "Every argument is of its own kind: integers, sequences of integers, arrays of numbers, names of a table.",
    source="the signature of the call",
    passing='ts.TensorMap("bf16", (64, 64), (128,), (64, 64))',
    failing='ts.TensorMap("bf16", "64x64", (128,), (64, 64))',
)
ARGUMENT_RANGE = rule(
    "argument-range",
    "Every argument is one of the values that the call takes: a number between its limits, a sequence of its length.",
    source="the documentation of the call",
    passing='ts.Swizzle.named("128B").chunk_in_line(0, 7)',
    failing='ts.Swizzle.named("128B").chunk_in_line(0, 8)',
)
UNKNOWN_NAME = rule(
    "unknown-name",
    "A name is one of its table: a data type, a swizzle, an architecture.",
    source="the tables of tilescope",
    passing='ts.Swizzle.named("128B")',
    failing='ts.Swizzle.named("128b-atom")',
)
MISSING_FIELD = rule(
    "missing-field",
    "Plain data from which a value is made has all its fields.",
    source="to_dict() of the value",
    passing='ts.Value.from_dict(ts.TensorMap("u8", (64,), (), (64,)).to_dict())',
    failing='ts.Value.from_dict({"kind": "tensor_map"})',
)
