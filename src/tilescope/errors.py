r"""What goes wrong, as data: a `Violation` says which rule, with what value, and what would work.

    swizzle-span: box[0] = 128 elements x 2 bytes = 256 bytes; swizzle 128B takes a row of at
    most 128 bytes. Use box[0] <= 64 and one box per span.
    \__ rule     \__ found                                     \__ limit              \__ fix

Exceptions carry all violations of a call at once, so that one run names every mistake:

    TilescopeError
    ├── RuleError (also a ValueError)         .violations
    │   ├── TensorMapError                    the driver would answer INVALID_VALUE
    │   ├── FaultError                        the chip answers with a fault that kills the context; .code
    │   │   ├── IllegalInstructionError       715
    │   │   ├── MisalignedAddressError        716
    │   │   └── LaunchFailureError            719
    │   └── PlanError                         no candidate is left
    └── DeviceError (also a RuntimeError)     the card, the driver or a package is missing
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, the value that broke it, the limit, and the nearest thing that works.

    `severity` is "error" (the hardware or driver refuses), "warning" (accepted, but wrong or forbidden
    by the documents) or "note" (advice). `change` holds the arguments that cure it, where one does; sequences in it
    are tuples.

    >>> print(Violation("rank", "error", "dims", "0 dimensions", "a tiled map has 1 to 5", "Give 1 to 5 dims."))
    rank: 0 dimensions; a tiled map has 1 to 5. Give 1 to 5 dims.
    """

    kind: ClassVar[str] = "violation"

    rule: str
    severity: Severity
    argument: str
    found: str
    limit: str
    fix: str
    change: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if self.change is not None:
            object.__setattr__(self, "change", _frozen(self.change))

    def __str__(self) -> str:
        return f"{self.rule}: {self.found}; {self.limit}. {self.fix}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON.

        >>> Violation("rank", "error", "dims", "0", "1 to 5", "Give 1.").to_dict()["rule"]
        'rank'
        """
        return {
            "kind": self.kind,
            "rule": self.rule,
            "severity": self.severity,
            "argument": self.argument,
            "found": self.found,
            "limit": self.limit,
            "fix": self.fix,
            "change": _plain(self.change),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Violation:
        """The violation that `to_dict` described."""
        given = dict(data) if isinstance(data, Mapping) else {}
        if (kind := given.pop("kind", cls.kind)) != cls.kind:
            raise RuleError([unknown_name("kind", "kind", kind, [cls.kind])])
        known = [each.name for each in fields(cls)]
        if strange := [name for name in given if name not in known]:
            raise RuleError(unknown_name("field of violation", "data", name, known) for name in strange)
        if missing := [name for name in known[:-1] if name not in given]:
            raise missing_fields("violation", missing)
        if not isinstance(given.get("change"), Mapping | None):
            found = printed(given["change"])
            raise broken("change", "change", found, "arguments by name, or None", "Give what to_dict() gave.")
        return cls(**given)

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any]]]:
        return Violation.from_dict, (self.to_dict(),)  # a mapping proxy cannot be pickled


def _frozen(value: Any) -> Any:
    """Read-only mappings and tuples all the way down."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: _frozen(item) for name, item in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


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
        super().__init__("\n".join(str(violation) for violation in self.violations))

    def __reduce__(self) -> tuple[type[RuleError], tuple[tuple[Violation, ...]]]:
        return type(self), (self.violations,)


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
    """What the chip answers with a fault that kills the CUDA context; `.code` is the driver's error code.

    >>> issubclass(FaultError, RuleError)  # so it carries `.violations`
    True
    """

    code: ClassVar[int]


class IllegalInstructionError(FaultError):
    """A use of a sound tensor map that the chip answers with an illegal instruction.

    >>> IllegalInstructionError.code
    715
    """

    code = 715


class MisalignedAddressError(FaultError):
    """An address that the chip answers with "misaligned address".

    >>> MisalignedAddressError.code
    716
    """

    code = 716


class LaunchFailureError(FaultError):
    """A use of a barrier that the chip answers with "unspecified launch failure".

    >>> LaunchFailureError.code
    719
    """

    code = 719


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


def broken(rule: str, argument: str, found: str, limit: str, fix: str) -> RuleError:
    """A `RuleError` of one violation, for a caller's single mistake."""
    return RuleError([Violation(rule, "error", argument, found, limit, fix)])


def missing_fields(kind: str, names: Iterable[str]) -> RuleError:
    """The error for plain data that lacks fields of a value."""
    listed = ", ".join(names)
    return broken("missing-field", "data", f"a {kind} without {listed}", "every field is needed", f"Add {listed}.")


def unknown_name(
    what: str, argument: str, found: object, known: Iterable[str], spellings: Iterable[str] = ()
) -> Violation:
    """The violation for a name that no table has, with the nearest one as its fix.

    `spellings` are understood too, but too many to list.

    >>> print(unknown_name("swizzle", "swizzle", "128b_atom", ["none", "128B", "128B_ATOM_32B"]))
    unknown-name: swizzle 128b_atom; known: none, 128B, 128B_ATOM_32B. Did you mean 128B_ATOM_32B?
    """
    names = list(known)
    shown = str(found) if isinstance(found, str) else f"{printed(found)} ({type(found).__name__})"
    nearest = nearest_name(found, [*names, *spellings]) if isinstance(found, str) else None
    fix = f"Did you mean {nearest}?" if nearest else f"Give one of these {what} names."
    return Violation(
        "unknown-name",
        "error",
        argument,
        f"{what} {shortened(shown, 120)}",
        "known: " + ", ".join(names),
        fix,
        None if nearest is None else {argument: nearest},
    )


def in_number(number: int, noun: str) -> str:
    """So many of something.

    >>> in_number(1, "stage"), in_number(3, "stage")
    ('1 stage', '3 stages')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def nearest_name(found: str, known: Iterable[str]) -> str | None:
    """The known name that resembles `found` most, ignoring case, or None; of equals the one that begins alike.

    >>> nearest_name("bflaot16", ["float16", "bfloat16"]), nearest_name("sm_91", ["sm_89", "sm_90"])
    ('bfloat16', 'sm_90')
    """
    names = list(known)
    folded = found[:80].casefold()
    matcher = difflib.SequenceMatcher(b=folded)

    def likeness(name: str) -> tuple[float, int]:
        matcher.set_seq1(name.casefold())
        first = matcher.get_matching_blocks()[0]
        return matcher.ratio(), first.size if first.a == first.b == 0 else 0

    best = max(names, key=likeness, default=None)
    if best is not None and likeness(best)[0] >= 0.5:
        return best
    return next((name for name in names if folded and (folded in name.casefold() or name.casefold() in folded)), None)


def shortened(text: str, limit: int = 80) -> str:
    """`text` on one line of at most `limit` characters, so that a pasted file does not fill an error."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printed(value: object, limit: int = 80) -> str:
    """`value` as errors show it: its repr on one short line, or what can be said where that is too much.

    >>> printed("K-major"), printed(1 << 5000)
    ("'K-major'", 'an integer of 5001 bits')
    """
    try:
        if isinstance(value, int) and value.bit_length() > 256:
            return f"an integer of {value.bit_length()} bits"
        return shortened(repr(value), limit)
    except Exception:  # noqa: BLE001  the __class__ or repr of a foreign object may raise whatever it likes
        return "an object that cannot be printed"


def printed_hex(value: int) -> str:
    """An address or a descriptor word as errors show it.

    >>> printed_hex(1024), printed_hex(1 << 5000)
    ('0x400', 'an integer of 5001 bits')
    """
    return printed(value) if value.bit_length() > 256 else hex(value)
