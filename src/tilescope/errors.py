r"""Mistakes as data: a `Violation` has the rule, the value, and what would work.

    swizzle-span: box[0] = 128 elements x 2 bytes = 256 bytes; swizzle 128B takes a row of at
    most 128 bytes. Use box[0] <= 64 and one box per span.
    \__ rule     \__ found                                     \__ limit              \__ fix

Exceptions carry all violations of a call at once, so that one run names every mistake:

    TilescopeError
    ├── RuleError (also a ValueError)         .violations
    │   ├── TensorMapError                    the driver would answer INVALID_VALUE
    │   ├── FaultError                        .code: the driver takes it, and the chip kills the context
    │   │   ├── IllegalInstructionError       715
    │   │   ├── MisalignedAddressError        716
    │   │   └── LaunchFailureError            719
    │   └── PlanError                         no candidate is left
    └── DeviceError (also a RuntimeError)     the card, the driver or a package is missing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from tilescope.html_table import html_table
from tilescope.names import name_of_number, nearest_name
from tilescope.sentence import fill_template, format_value, is_printable, shorten

Severity = Literal["error", "warning", "note"]
PlainData: TypeAlias = dict[str, Any]  # what JSON takes: strings, numbers, lists and dicts of them
Change: TypeAlias = Mapping[str, Any]  # arguments to replace, by name
_NAMES_LISTED = 40  # of a table
_TEXTS = frozenset({"argument", "found", "limit", "fix"})  # facts that are sentences themselves
NO_VALUES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, the value that broke it, the limit, and the nearest thing that works.

    `severity` is "error" (the hardware or driver refuses), "warning" (accepted, but wrong or forbidden by the documentation) or
    "note" (advice). `change` holds the arguments that fix it, if they do; `values` holds the numbers of the message by name.
    Sequences in both are tuples.

    >>> print(Violation("rank", "error", "dims", "0 dimensions", "a tiled map has 1 to 5", "Use 1 to 5 dims."))
    rank: 0 dimensions; a tiled map has 1 to 5. Use 1 to 5 dims.
    """

    kind: ClassVar[str] = "violation"

    rule: str
    severity: Severity
    argument: str
    found: str
    limit: str
    fix: str
    change: Change | None = field(default=None, hash=False)
    values: Mapping[str, Any] = field(default_factory=lambda: NO_VALUES, hash=False)

    def __post_init__(self) -> None:
        if self.change is not None:
            object.__setattr__(self, "change", _frozen_mapping(self.change))
        if self.values:
            object.__setattr__(self, "values", _frozen_mapping(self.values))

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}; {self.limit}. {self.fix}"

    def to_dict(self) -> PlainData:
        """Plain values for JSON.

        >>> Violation("rank", "error", "dims", "0", "1 to 5", "Use 1.").to_dict()["rule"]
        'rank'
        """
        return {"kind": self.kind} | {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Violation:
        """The violation that `to_dict` described."""
        fields_read: PlainData = dict(data) if isinstance(data, Mapping) else {}
        kind = fields_read.pop("kind", cls.kind)
        if not isinstance(kind, str) or kind != cls.kind:
            raise RuleError([unknown_name("kind", "kind", kind, [cls.kind])])
        names = [field.name for field in fields(cls)]
        check_fields("violation", fields_read, names, names[:-2])
        for name, expected in (("change", "arguments by name, or None"), ("values", "numbers by name")):
            if fields_read.get(name) is not None and not isinstance(fields_read[name], Mapping):
                raise RuleError([argument_type(name, fields_read[name], expected, "Use what to_dict() returned.")])
        return cls(**fields_read | {"values": fields_read.get("values") or NO_VALUES})

    def _repr_html_(self) -> str:
        return violations_table((self,))

    def __reduce__(self) -> tuple[Callable[[PlainData], Violation], tuple[PlainData]]:
        return Violation.from_dict, (self.to_dict(),)  # a mapping proxy cannot be pickled


def violations_table(violations: Iterable[Violation]) -> str:
    """Broken rules as the rows of an HTML table, for a notebook.

    >>> broken = Violation("rank", "error", "dims", "0 dimensions", "a tiled map has 1 to 5", "Use 1 to 5 dims.")
    >>> violations_table([broken]).count("<td")
    6
    """
    headings = ("severity", "rule", "where", "found", "limit", "fix")
    rows = [
        (violation.severity, violation.rule, violation.argument, violation.found, violation.limit, violation.fix)
        for violation in violations
    ]
    return html_table(headings, rows)


def _frozen_mapping(mapping: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType({name: _frozen(item) for name, item in mapping.items()})


def _frozen(value: object) -> object:
    """Read-only mappings and tuples at every level; an integer too long to print becomes its description."""
    if type(value) is int:  # as nearly all are
        return value if is_printable(value) else format_value(value)
    if isinstance(value, str | float):
        return value
    if type(value) is tuple or type(value) is list:
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        return _frozen_mapping(value)
    return value


def _plain(value: object) -> object:
    """Dicts and lists all the way down."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Wording:
    """How a broken rule is reported: templates for the argument, what was found, the limit and the fix.

    `sentence` has the template language. The facts that fill the templates become the `values` of the violation, but for
    those that are a text of it themselves: argument, found, limit, fix.

    >>> wording = Wording("box-range", "error", "box[{axis}]", "box[{axis}] = {extent}", "1 to {most}", "Use {most}.")
    >>> print(wording.violation(axis=0, extent=512, most=256))
    box-range: box[0] = 512; 1 to 256. Use 256.
    """

    rule: str
    severity: Severity
    argument: str
    found: str
    limit: str
    fix: str
    code: int | None = None  # CUDA's error number for what the chip answers; None: it is refused before, or executed

    def violation(
        self, *, change: Change | None = None, short: Mapping[str, object] | None = None, **facts: Any
    ) -> Violation:
        """The violation that these facts make; `change` holds the arguments that fix it.

        `short` replaces facts that a report prints on lines of their own, such as the thread and the instruction. With it,
        the values get a `headline`: the same sentence about what was found, without those details.

        >>> wording = Wording("run-race", "error", "", "{where}: {who} reads {what}", "nothing orders it", "Use bar.sync.")
        >>> facts = {"where": "PTX line 4 (ld.shared.u32 %r1, [s])", "who": "thread (0, 0, 0)", "what": "s"}
        >>> wording.violation(**facts, short={"where": "PTX line 4", "who": "a thread"}).values["headline"]
        'PTX line 4: a thread reads s'
        """
        values = facts
        if not _TEXTS.isdisjoint(facts):
            values = {name: fact for name, fact in facts.items() if name not in _TEXTS}
        if short is not None:
            values = {**values, "headline": fill_template(self.found, {**facts, **short})}
        return Violation(
            self.rule,
            self.severity,
            fill_template(self.argument, facts),
            fill_template(self.found, facts),
            fill_template(self.limit, facts),
            fill_template(self.fix, facts),
            change,
            values or NO_VALUES,
        )

    def error(self, *, change: Change | None = None, **facts: Any) -> RuleError:
        """The exception for this single violation: a FaultError if the chip faults."""
        kind = RuleError if self.code is None else FAULTS[self.code]
        return kind([self.violation(change=change, **facts)])

    def worded(
        self,
        *,
        argument: str | None = None,
        found: str | None = None,
        limit: str | None = None,
        fix: str | None = None,
        severity: Severity | None = None,
    ) -> Wording:
        """The same rule with other texts, for a special case, which may be less severe; texts that are left out stay.

        >>> wording = Wording("rank", "error", "dims", "{rank} dimensions", "1 to 5", "Use 5.")
        >>> print(wording.worded(fix="Add dimensions of extent 1.").violation(rank=0))
        rank: 0 dimensions; 1 to 5. Add dimensions of extent 1.
        """
        return replace(
            self,
            argument=self.argument if argument is None else argument,
            found=self.found if found is None else found,
            limit=self.limit if limit is None else limit,
            fix=self.fix if fix is None else fix,
            severity=self.severity if severity is None else severity,
        )


class TilescopeError(Exception):
    """Base of all exceptions that tilescope raises.

    >>> issubclass(RuleError, TilescopeError)
    True
    """


class RuleError(TilescopeError, ValueError):
    """The input breaks rules; `.violations` holds all of them.

    >>> error = RuleError([Violation("span", "error", "box[0]", "256 bytes", "at most 128", "Halve it.")])
    >>> error.violations[0].argument
    'box[0]'
    """

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations: tuple[Violation, ...] = tuple(violations)
        super().__init__(self.violations)

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations))


class TensorMapError(RuleError):
    """A tensor map that the driver refuses, or bytes that are not a tensor map.

    >>> import tilescope as ts
    >>> try:
    ...     ts.TensorMap("f16", (64,), (), (512,))
    ... except ts.TensorMapError as error:
    ...     print(error)
    box-range: box[0] = 512 elements; 1 to 256 elements. Use 256 and more copies.
    """


class FaultError(RuleError):
    """A use of a valid tensor map that faults on the chip and destroys the CUDA context; `.code` is CUDA's error number.

    >>> [(kind.code, kind.fault) for kind in FAULTS.values()]
    [(715, 'illegal instruction'), (716, 'misaligned address'), (719, 'unspecified launch failure')]
    """

    code: ClassVar[int]
    fault: ClassVar[str]  # what CUDA calls the code

    def __str__(self) -> str:
        return f"{RuleError.__str__(self)}\nThe chip answers with error {self.code}, {self.fault}."

    @property
    def answer(self) -> str:
        """The error of the chip and its cause, in a sentence."""
        first = self.violations[0]
        return f"The chip answers with error {self.code}, {self.fault}: {first.found}; {first.limit}."

    def to_dict(self) -> PlainData:
        """Plain values for JSON: a fault is a result too."""
        listed = [violation.to_dict() for violation in self.violations]
        return {"code": self.code, "answer": self.answer, "advice": self.violations[0].fix, "violations": listed}


class IllegalInstructionError(FaultError):
    """A copy for which the chip reports error 715, illegal instruction.

    >>> import tilescope as ts
    >>> try:
    ...     ts.trace(ts.TensorMap("f16", (64, 64), (128,), (64, 8)), (4, 0))
    ... except ts.IllegalInstructionError as error:
    ...     print(error)
    inner-coordinate: coords[0] = 4 elements = 8 bytes; a multiple of 8 elements (16 bytes). Use 0 or 8.
    The chip answers with error 715, illegal instruction.
    """

    code: ClassVar[int] = 715
    fault: ClassVar[str] = "illegal instruction"


class MisalignedAddressError(FaultError):
    """A copy for which the chip reports error 716, misaligned address.

    >>> import tilescope as ts
    >>> try:
    ...     ts.trace(ts.TensorMap("f16", (64, 64), (128,), (64, 8)), (0, 0), smem_address=64)
    ... except ts.MisalignedAddressError as error:
    ...     print(error)
    smem-address: smem_address = 0x40; a multiple of 128 bytes. Use 0x0 or 0x80.
    The chip answers with error 716, misaligned address.
    """

    code: ClassVar[int] = 716
    fault: ClassVar[str] = "misaligned address"


class LaunchFailureError(FaultError):
    """An operation for which the chip reports error 719, unspecified launch failure.

    >>> LaunchFailureError.code, issubclass(LaunchFailureError, RuleError)  # so it carries `.violations`
    (719, True)
    """

    code: ClassVar[int] = 719
    fault: ClassVar[str] = "unspecified launch failure"


FAULTS: dict[int, type[FaultError]] = {
    kind.code: kind for kind in (IllegalInstructionError, MisalignedAddressError, LaunchFailureError)
}


class PlanError(RuleError):
    """Every candidate plan was refused; `.violations` holds the reasons.

    >>> issubclass(PlanError, RuleError)  # so it carries `.violations`
    True
    """


class DeviceError(TilescopeError, RuntimeError):
    """A card, a driver or an optional package is missing or failed.

    >>> issubclass(DeviceError, ValueError)  # the input is not to blame
    False
    """


def raise_all(problems: Iterable[Violation]) -> None:
    """Raise a `RuleError` that names every problem; without problems, do nothing.

    >>> raise_all([])
    """
    if listed := tuple(problems):
        raise RuleError(listed)


# How arguments are refused, whoever reads them; the rows of these rules are in rule.py, which imports this module.
MISSING_FIELD_WORDING = Wording(
    "missing-field", "error", "data", "a {kind} without {missing:, }", "every field is needed", "Add {missing:, }."
)
ARGUMENT_TYPE_WORDING = Wording("argument-type", "error", "{argument}", "{found}", "{limit}", "{fix}")
ARGUMENT_RANGE_WORDING = Wording("argument-range", "error", "{argument}", "{found}", "{limit}", "{fix}")
UNKNOWN_NAME_WORDING = Wording("unknown-name", "error", "{argument}", "{found}", "{limit}", "{fix}")


def check_fields(kind: str, data: Iterable[str], known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse plain data with fields that a value does not have, or without those that it needs."""
    names, present = list(known), list(data)
    strange = [name for name in present if name not in names]
    if strange:
        raise RuleError(unknown_name(f"field of {kind}", "data", name, names) for name in strange)
    missing = tuple(name for name in needed if name not in present)
    if missing:
        raise MISSING_FIELD_WORDING.error(kind=kind, missing=missing)


def argument_type(argument: str, value: object, wanted: str, fix: str) -> Violation:
    """The violation for an argument of the wrong type.

    >>> print(argument_type("rows", 6.5, "an integer", "Use 6."))
    argument-type: rows = 6.5 (float); rows is an integer. Use 6.
    """
    violation = ARGUMENT_TYPE_WORDING.violation(
        argument=argument,
        found=f"{argument} = {format_value(value)} ({type(value).__name__})",
        limit=f"{argument} is {wanted}",
        fix=fix,
    )
    return _with_value(violation, argument, value)


def argument_range(argument: str, value: object, limit: str, fix: str, change: Change | None = None) -> Violation:
    """The violation for an argument of the right type and a value that is not taken.

    >>> print(argument_range("stages", 0, "1 to 1024", "Use 1."))
    argument-range: stages = 0; 1 to 1024. Use 1.
    """
    description = f"{argument} = {format_value(value)}"
    violation = ARGUMENT_RANGE_WORDING.violation(
        argument=argument, found=description, limit=limit, fix=fix, change=change
    )
    return _with_value(violation, argument, value)


def _with_value(violation: Violation, argument: str, value: object) -> Violation:
    """The violation with the argument's value under its name: numbers, and short lists of them."""
    numbers = value if isinstance(value, list | tuple) else (value,)
    if len(numbers) > _NAMES_LISTED or not all(map(_is_number, numbers)):
        return violation
    return replace(violation, values={argument: value})


def _is_number(value: object) -> bool:
    """Whether JSON has this number: it has no nan and no infinity."""
    return isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def unknown_name(
    what: str, argument: str, name: object, known: Iterable[str], spellings: Iterable[str] = ()
) -> Violation:
    """The violation for a name that no table has, with the nearest one as its fix.

    `spellings` are understood too, but too many to list.

    >>> print(unknown_name("swizzle", "swizzle", "128b_atom", ["none", "128B", "128B_ATOM_32B"]))
    unknown-name: swizzle 128b_atom; known: none, 128B, 128B_ATOM_32B. Did you mean 128B_ATOM_32B?
    """
    names = list(known)
    nearest = None
    if name is None:
        description = f"{what} is missing"
    elif isinstance(name, str):
        description = f"{what} {shorten(name, 120)}"
        nearest = nearest_name(name, [*names, *spellings])
    else:
        description = f"{what} {format_value(name)} ({type(name).__name__})"
        nearest = name_of_number(name, names)
    limit = _known_names(names)
    if nearest is None:
        return UNKNOWN_NAME_WORDING.violation(argument=argument, found=description, limit=limit, fix=_example_of(names))
    fix = f"Did you mean {nearest}?"
    change = {argument: nearest}
    return UNKNOWN_NAME_WORDING.violation(argument=argument, found=description, limit=limit, fix=fix, change=change)


def _known_names(names: list[str]) -> str:
    if not names:
        return "none is known"
    listed = ", ".join(names[:_NAMES_LISTED])
    more = len(names) - _NAMES_LISTED
    return f"known: {listed} and {more} more" if more > 0 else f"known: {listed}"


def _example_of(names: list[str]) -> str:
    if not names:
        return "Add it, or leave this out."
    return f"Use {names[0]}." if len(names) == 1 else f"Use one of them, such as {names[0]}."
