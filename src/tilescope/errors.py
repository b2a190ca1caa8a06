r"""What goes wrong, as data: a `Violation` says which rule, with what value, and what would work.

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

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from types import MappingProxyType
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning", "note"]
_NAMES_LISTED = 40  # of a table
_PRINTED_BITS = 256  # a longer integer is no number that people mean, and json refuses those above 4300 digits
NO_VALUES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, the value that broke it, the limit, and the nearest thing that works.

    `severity` is "error" (the hardware or driver refuses), "warning" (accepted, but wrong or forbidden
    by the documents) or "note" (advice). `change` holds the arguments that cure it, where one does; `values` holds the
    numbers that the sentences are made of, by name. Sequences in both are tuples.

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
    change: Mapping[str, Any] | None = field(default=None, hash=False)
    values: Mapping[str, Any] = field(default_factory=lambda: NO_VALUES, hash=False)

    def __post_init__(self) -> None:
        if self.change is not None:
            object.__setattr__(self, "change", _frozen(self.change))
        if self.values:
            object.__setattr__(self, "values", _frozen(self.values))

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}; {self.limit}. {self.fix}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        >>> Violation("rank", "error", "dims", "0", "1 to 5", "Use 1.").to_dict()["rule"]
        'rank'
        """
        return {"kind": self.kind} | {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Violation:
        """The violation that `to_dict` described."""
        fields_read = dict(data) if isinstance(data, Mapping) else {}
        kind = fields_read.pop("kind", cls.kind)
        if not isinstance(kind, str) or kind != cls.kind:
            raise RuleError([unknown_name("kind", "kind", kind, [cls.kind])])
        known = [field.name for field in fields(cls)]
        check_fields("violation", fields_read, known, known[:-2])
        for name, wanted in (("change", "arguments by name, or None"), ("values", "numbers by name")):
            if fields_read.get(name) is not None and not isinstance(fields_read[name], Mapping):
                raise RuleError([argument_type(name, fields_read[name], wanted, "Use what to_dict() returned.")])
        return cls(**fields_read | {"values": fields_read.get("values") or NO_VALUES})

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return Violation.from_dict, (self.to_dict(),)  # a mapping proxy cannot be pickled


def _frozen(value: Any) -> Any:
    """Read-only mappings and tuples all the way down; an integer that nobody prints becomes its description."""
    kind = type(value)
    if kind is int:  # as nearly all are
        return value if value.bit_length() <= _PRINTED_BITS else printed(value)
    if kind is tuple or kind is list:
        return tuple(map(_frozen, value))
    if kind is dict or (kind is not str and kind is not float and isinstance(value, Mapping)):
        return MappingProxyType({name: _frozen(item) for name, item in value.items()})
    return value


def _plain(value: Any) -> Any:
    """Dicts and lists all the way down."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


class TilescopeError(Exception):
    """Base of everything tilescope raises on purpose.

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
        self.violations = tuple(violations)
        super().__init__(self.violations)

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations))


class TensorMapError(RuleError):
    """A tensor map that the driver refuses, or bytes that are no tensor map.

    >>> import tilescope as ts
    >>> try:
    ...     ts.TensorMap("f16", (64,), (), (512,))
    ... except ts.TensorMapError as error:
    ...     print(error)
    box-range: box[0] = 512 elements; 1 to 256 elements. Use 256 and more copies.
    """


class FaultError(RuleError):
    """A use of a sound tensor map that faults on the chip and kills the CUDA context; `.code` is CUDA's error number.

    >>> [(kind.code, kind.fault) for kind in FAULTS.values()]
    [(715, 'illegal instruction'), (716, 'misaligned address'), (719, 'unspecified launch failure')]
    """

    code: ClassVar[int]
    fault: ClassVar[str]  # what CUDA calls the code

    def __str__(self) -> str:
        return f"{RuleError.__str__(self)}\n{self.answer}"

    @property
    def answer(self) -> str:
        """What the chip answers, in a sentence."""
        return f"The chip answers with error {self.code}, {self.fault}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: that the chip faults is an answer."""
        listed = [violation.to_dict() for violation in self.violations]
        return {"code": self.code, "answer": self.answer, "violations": listed}


class IllegalInstructionError(FaultError):
    """A copy that the chip answers with error 715, illegal instruction.

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
    """A copy that the chip answers with error 716, misaligned address.

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
    """A use that the chip answers with error 719, unspecified launch failure.

    >>> LaunchFailureError.code, issubclass(LaunchFailureError, RuleError)  # so it carries `.violations`
    (719, True)
    """

    code: ClassVar[int] = 719
    fault: ClassVar[str] = "unspecified launch failure"


FAULTS: dict[int, type[FaultError]] = {
    kind.code: kind for kind in (IllegalInstructionError, MisalignedAddressError, LaunchFailureError)
}


class PlanError(RuleError):
    """No plan is left: every candidate was refused, and these are the reasons.

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


# The rows of these four rules stand in rule.py, which is made of what stands here.
def check_fields(kind: str, data: Iterable[str], known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse plain data with fields that a value does not have, or without those that it needs."""
    names = list(known)
    if strange := [name for name in data if name not in names]:
        raise RuleError(unknown_name(f"field of {kind}", "data", name, names) for name in strange)
    if missing := ", ".join(name for name in needed if name not in data):
        found, limit = f"a {kind} without {missing}", "every field is needed"
        raise RuleError([Violation("missing-field", "error", "data", found, limit, f"Add {missing}.")])


def argument_type(argument: str, value: object, wanted: str, fix: str) -> Violation:
    """The violation for an argument of the wrong type.

    >>> print(argument_type("rows", 6.5, "an integer", "Use 6."))
    argument-type: rows = 6.5 (float); rows is an integer. Use 6.
    """
    found = f"{argument} = {printed(value)} ({type(value).__name__})"
    return Violation(
        "argument-type", "error", argument, found, f"{argument} is {wanted}", fix, None, _shown(argument, value)
    )


def argument_range(
    argument: str, value: object, limit: str, fix: str, change: Mapping[str, Any] | None = None
) -> Violation:
    """The violation for an argument of the right type and a value that is not taken.

    >>> print(argument_range("stages", 0, "1 to 1024", "Use 1."))
    argument-range: stages = 0; 1 to 1024. Use 1.
    """
    found = f"{argument} = {printed(value)}"
    return Violation("argument-range", "error", argument, found, limit, fix, change, _shown(argument, value))


def _shown(argument: str, value: object) -> Mapping[str, Any]:
    """The value of an argument as a violation holds it: numbers, and short lists of them."""
    numbers = value if isinstance(value, list | tuple) else (value,)
    is_short = len(numbers) <= _NAMES_LISTED and all(
        isinstance(number, int) or (isinstance(number, float) and isfinite(number))  # JSON has no nan and no infinity
        for number in numbers
    )
    return {argument: value} if is_short else NO_VALUES


def unknown_name(
    what: str, argument: str, name: object, known: Iterable[str], spellings: Iterable[str] = ()
) -> Violation:
    """The violation for a name that no table has, with the nearest one as its fix.

    `spellings` are understood too, but too many to list.

    >>> print(unknown_name("swizzle", "swizzle", "128b_atom", ["none", "128B", "128B_ATOM_32B"]))
    unknown-name: swizzle 128b_atom; known: none, 128B, 128B_ATOM_32B. Did you mean 128B_ATOM_32B?
    """
    names = list(known)
    more = len(names) - _NAMES_LISTED
    shown = name if isinstance(name, str) else f"{printed(name)} ({type(name).__name__})"
    nearest = nearest_name(name, [*names, *spellings]) if isinstance(name, str) else _name_of_number(name, names)
    listed = ", ".join(names[:_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")
    found = f"{what} is missing" if name is None else f"{what} {shortened(shown, 120)}"
    limit = f"known: {listed}" if names else "none is known"
    if nearest is not None:
        return Violation(
            "unknown-name", "error", argument, found, limit, f"Did you mean {nearest}?", {argument: nearest}
        )
    fix = f"Use {'one of them, such as ' if names[1:] else ''}{names[0]}." if names else "Add it, or leave this out."
    return Violation("unknown-name", "error", argument, found, limit, fix)


def _name_of_number(number: object, names: list[str]) -> str | None:
    """The first name whose only number is this one: 128 for "128B"; None for other values.

    >>> _name_of_number(128, ["none", "64B", "128B", "128B_ATOM_32B"])
    '128B'
    """
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    return next((name for name in names if [int(digits) for digits in re.findall(r"\d+", name)] == [number]), None)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun.

    >>> counted(1, "stage"), counted(3, "stage"), counted(2, "entry", "entries")
    ('1 stage', '3 stages', '2 entries')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def by(extents: Iterable[object]) -> str:
    """Extents as people write them.

    >>> by((64, 32))
    '64 x 32'
    """
    return " x ".join(map(str, extents))


def ceil_div(number: int, divisor: int) -> int:
    """The quotient rounded up.

    >>> ceil_div(100, 16), ceil_div(96, 16)
    (7, 6)
    """
    return -(-number // divisor)


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple at or above `number`: 112 for 100 and 16."""
    return -(-number // multiple) * multiple


def nearest_name(written: str, known: Iterable[str]) -> str | None:
    """The known name that `written` begins, or else the one most like it, ignoring case; None if none is.

    >>> nearest_name("bflaot16", ["float16", "bfloat16"]), nearest_name("bfloat", ["float", "bfloat16"])
    ('bfloat16', 'bfloat16')
    """
    names = list(known)
    folded = written[:80].casefold()
    begun = sorted((name for name in names if folded and name.casefold().startswith(folded)), key=len)
    near = begun or nearest_names(folded, names)
    within = (name for name in names if folded and (folded in name.casefold() or name.casefold() in folded))
    return near[0] if near else next(within, None)


def nearest_names(written: str, known: Iterable[str], spread: float = 0.1) -> list[str]:
    """The known names that resemble `written` at least half: the best first, then those nearly as near.

    >>> nearest_names("strides", ["stride", "stride_bytes", "box"])
    ['stride']
    """
    matcher = difflib.SequenceMatcher(b=written.casefold())
    likeness = {}
    for name in known:
        matcher.set_seq1(name.casefold())
        if matcher.quick_ratio() < 0.5:  # never less than the ratio itself, and soon known
            continue
        first = matcher.get_matching_blocks()[0]
        likeness[name] = matcher.ratio(), first.size if first.a == first.b == 0 else 0
    least = max(0.5, max(likeness.values(), default=(0.0, 0))[0] - spread)
    return sorted(
        (name for name in likeness if likeness[name][0] >= least), key=lambda name: likeness[name], reverse=True
    )


def shortened(text: str, limit: int = 80) -> str:
    """`text` on one line of at most `limit` characters, so that a pasted file does not fill an error."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printed(value: object, limit: int = 80) -> str:
    """`value` as errors show it: its repr on one short line, or what can be said where that is too much.

    >>> printed("K-major"), printed(1 << 5000)
    ("'K-major'", 'an integer of 5001 bits')
    """
    if isinstance(value, int) and value.bit_length() > _PRINTED_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        return shortened(repr(value), limit)
    except ValueError:  # such an integer inside a sequence
        return f"a {type(value).__name__} that cannot be printed"


def printed_hex(value: int) -> str:
    """An address or a descriptor word as errors show it.

    >>> printed_hex(1024), printed_hex(1 << 5000)
    ('0x400', 'an integer of 5001 bits')
    """
    return printed(value) if value.bit_length() > _PRINTED_BITS else hex(value)
