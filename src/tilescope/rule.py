"""The rule book: the demands of tilescope, their sources, and an example on either side of each limit.

A row is defined next to the check that uses it, in any module:

    BOX_RANGE = rule(
        "box-range",
        "Every box extent is 1 to 256 elements.",
        argument="box[{axis}]",
        found="box[{axis}] = {extent} elements",
        limit="1 to {most} elements",
        fix="Use {most} and more copies.",
        source=…, passing=…, failing=…,
    )
    …
    raise BOX_RANGE.error(axis=0, extent=512, most=256)

The four texts are templates (`sentence` has their language); a special case with other texts is `BOX_RANGE.worded(fix=…)`.

`RULES` holds all of them. Its names come from `rule_index`, so that listing them imports nothing, and looking one up imports
the module that defines it. Errors, `tilescope explain`, the documentation and the tests read the same table.

An example is a mapping of the arguments of a tensor map (`tensor_map.rules` says what else it may hold), or an
expression such as 'ts.Swizzle.xor(3, 4, 3)' that raises the violation or gives a sequence of violations. An example with
a kernel has its PTX in a file of rule_examples/: NAME.pass.ptx and NAME.fail.ptx, or one file if both run the same kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tilescope.errors import (
    ARGUMENT_RANGE_WORDING,
    ARGUMENT_TYPE_WORDING,
    MISSING_FIELD_WORDING,
    UNKNOWN_NAME_WORDING,
    Change,
    RuleError,
    Severity,
    Violation,
    Wording,
    unknown_name,
)
from tilescope.rule_index import MODULE_OF_RULE
from tilescope.value import Row

Basis = Literal["measured", "documented"]
Example = Mapping[str, Any] | str

_EXAMPLE_FOLDER = Path(__file__).parent / "rule_examples"


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Row):
    """One rule: its demand in a sentence, its source, a passing and a failing example.

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
    subjects: tuple[str, ...]  # what it applies to
    passing: Example | None  # an example within the limit …
    failing: Example | None  # … and one beyond it; rules about arguments have none
    architectures: tuple[str, ...]  # on which it can be kept; empty: everywhere
    code: int | None  # CUDA's error number for what the chip answers; None: it is refused before, or executed
    argument: str  # templates of a violation's texts: the argument that breaks it …
    found: str  # … the value that does …
    limit: str  # … what is demanded …
    fix: str  # … and what works instead

    @classmethod
    def named(cls, name: object) -> Rule:
        """The rule called `name`."""
        if isinstance(name, Rule):
            return name
        row = RULES.get(name) if isinstance(name, str) else None
        if row is None:
            raise RuleError([unknown_name("rule", "rule", name, RULES)])
        return row

    @property
    def wording(self) -> Wording:
        """The message templates of a violation."""
        wording = _WORDING_OF_RULE.get(self.name)
        if wording is None:
            wording = Wording(self.name, self.severity, self.argument, self.found, self.limit, self.fix, self.code)
            _WORDING_OF_RULE[self.name] = wording
        return wording

    def violation(self, *, change: Change | None = None, **facts: Any) -> Violation:
        """A violation of this rule; `facts` fill its templates, `change` holds the arguments that fix it.

        >>> Rule.named("missing-field").violation(kind="layout", missing=("shape",)).found
        'a layout without shape'
        """
        return self.wording.violation(change=change, **facts)

    def error(self, *, change: Change | None = None, **facts: Any) -> RuleError:
        """The exception for one violation of this rule: a FaultError if the chip reports an error for it.

        >>> str(Rule.named("missing-field").error(kind="layout", missing=("shape",)))
        'missing-field: a layout without shape; every field is needed. Add shape.'
        """
        return self.wording.error(change=change, **facts)

    def worded(
        self,
        *,
        argument: str | None = None,
        found: str | None = None,
        limit: str | None = None,
        fix: str | None = None,
        severity: Severity | None = None,
    ) -> Wording:
        """This rule with other texts, for a special case that may be less severe; omitted texts do not change."""
        return self.wording.worded(argument=argument, found=found, limit=limit, fix=fix, severity=severity)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """The rule of that name."""
        return cls.named(data.get("name") if isinstance(data, Mapping) else data)


_WORDING_OF_RULE: dict[str, Wording] = {}  # cached for reports of many violations


class _RuleBook(Mapping[str, Rule]):
    """All rules by name. A row is loaded with the module that defines it, when it is first looked up."""

    def __init__(self) -> None:
        self._rows: dict[str, Rule] = {}

    def enter(self, row: Rule) -> Rule:
        """Add a row; two rows of one name are a mistake."""
        assert row.name not in self._rows, row.name
        self._rows[row.name] = row
        return row

    def __getitem__(self, name: str) -> Rule:
        if name not in self._rows:
            import_module(f"tilescope.{MODULE_OF_RULE[name]}")
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in MODULE_OF_RULE

    def __iter__(self) -> Iterator[str]:
        return iter(MODULE_OF_RULE)

    def __len__(self) -> int:
        return len(MODULE_OF_RULE)

    def __repr__(self) -> str:
        return f"<the rule book: {len(self)} rules by name>"


RULES = _RuleBook()


def rule(
    name: str,
    demand: str,
    *,
    argument: str = "{argument}",
    found: str = "{found}",
    limit: str = "{limit}",
    fix: str = "{fix}",
    source: str,
    basis: Basis = "documented",
    severity: Severity = "error",
    subjects: tuple[str, ...] = (),
    passing: Example | None = None,
    failing: Example | None = None,
    architectures: tuple[str, ...] = (),
    code: int | None = None,
) -> Rule:
    """Enter a row into RULES; a text that is not given is a fact of each violation, by its name."""
    row = Rule(
        name=name,
        severity=severity,
        demand=demand,
        source=source,
        basis=basis,
        subjects=subjects,
        passing=_frozen_example(passing),
        failing=_frozen_example(failing),
        architectures=architectures,
        code=code,
        argument=argument,
        found=found,
        limit=limit,
        fix=fix,
    )
    return RULES.enter(row)


def ptx_example(file: str) -> str:
    """The PTX of a file in rule_examples/ as a Python literal, for the expression of an example.

    >>> print(ptx_example("empty.ptx"))
    '''// A kernel that returns at once.
    .version 8.0
    .target sm_90
    .address_size 64
    <BLANKLINE>
    .visible .entry k()
    {
        ret;
    }
    '''
    """
    return f"'''{(_EXAMPLE_FOLDER / file).read_text('utf-8')}'''"


def _frozen_example(example: Example | None) -> Example | None:
    return MappingProxyType(dict(example)) if isinstance(example, Mapping) else example


# The texts of errors.py about arguments, for all readers.
ARGUMENT_TYPE = rule(
    ARGUMENT_TYPE_WORDING.rule,
    "Every argument has the expected kind: integers, sequences of integers, arrays of numbers, names of a table.",
    source="the signature of the call",
    passing='ts.TensorMap("bf16", (64, 64), (128,), (64, 64))',
    failing='ts.TensorMap("bf16", "64x64", (128,), (64, 64))',
)
ARGUMENT_RANGE = rule(
    ARGUMENT_RANGE_WORDING.rule,
    "Every argument has a value that the call accepts: a number between its limits, or a sequence of the expected length.",
    source="the documentation of the call",
    passing='ts.Swizzle.named("128B").chunk_in_line(0, 7)',
    failing='ts.Swizzle.named("128B").chunk_in_line(0, 8)',
)
UNKNOWN_NAME = rule(
    UNKNOWN_NAME_WORDING.rule,
    "The name is in its table, such as data types, swizzles or architectures.",
    source="the tables of tilescope",
    passing='ts.Swizzle.named("128B")',
    failing='ts.Swizzle.named("128b-atom")',
)
MISSING_FIELD = rule(
    MISSING_FIELD_WORDING.rule,
    "The plain data from which a value is built has all its fields.",
    argument=MISSING_FIELD_WORDING.argument,
    found=MISSING_FIELD_WORDING.found,
    limit=MISSING_FIELD_WORDING.limit,
    fix=MISSING_FIELD_WORDING.fix,
    source="to_dict() of the value",
    passing='ts.Value.from_dict(ts.TensorMap("u8", (64,), (), (64,)).to_dict())',
    failing='ts.Value.from_dict({"kind": "tensor_map"})',
)
