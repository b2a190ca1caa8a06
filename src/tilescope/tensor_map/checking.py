"""The checks of maps and copies, each beside the row of the rule book that it holds.

    @checked("address-range", "The address is 0 to 2^57 - 1; 0 is accepted.", lambda a: not 0 <= a.address < 1 << 57, …)
    def _address_range(a, violation): …         yields violation(argument, found, limit, fix, change, **values)

The third argument is what is quickly asked of every map: only where it holds may the rule be broken, and the check runs.


    ranged("box-range", "Every box extent is 1 to 256 elements.", "box", (1, 256), …)       numbers between two ends
    option_rule("nan-fill", "NaN fill is for floating-point types.", lambda a: …, …)        options that do not go together

Some rules are broken while arguments are read, bytes are decoded or an array is described: `map_rule` enters those,
which have no check of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import Severity, Violation, ceil_div
from tilescope.rule import Basis, Example, Rule, rule
from tilescope.tensor_map.rules.samples import CUDA_H, H200

# The kinds of map, and the other things that rules speak of.
Subject = Literal[
    "tiled", "im2col", "wide", "instruction", "encoding", "descriptor", "replacement", "array", "convolution", "paste"
]
MAPS: tuple[Subject, ...] = ("tiled", "im2col", "wide")
TMA_ARCHITECTURES = architectures_with("tma")
Says = Callable[..., Violation]  # Rule.violation: argument, found, limit, fix, change, and the numbers by name


class Check(NamedTuple):
    """A rule, when a map or a copy may break it, and what makes its violations then."""

    rule: Rule
    may_break: Callable[[Any], object]
    violations: Callable[[Any, Says], Iterable[Violation]]


CHECKS: list[Check] = []  # in the order of a report


def map_rule(
    name: str,
    demand: str,
    *,
    passing: Example,
    failing: Example,
    source: str = f"{CUDA_H}; {H200}",
    subjects: tuple[Subject, ...] = MAPS,
    basis: Basis = "measured",
    severity: Severity = "error",
    architectures: tuple[str, ...] = TMA_ARCHITECTURES,
    code: int | None = None,
) -> Rule:
    """Enter a rule about maps, or about what is done with them."""
    facts: dict[str, Any] = {"source": source, "basis": basis, "severity": severity, "code": code}
    return rule(name, demand, subjects=subjects, passing=passing, failing=failing, architectures=architectures, **facts)


def checked(
    name: str, demand: str, may_break: Callable[[Any], object], **facts: Any
) -> Callable[[Callable[[Any, Says], Iterable[Violation]]], Check]:
    """Enter a rule about maps with its check; the decorated name then stands for both."""

    def entered(violations: Callable[[Any, Says], Iterable[Violation]]) -> Check:
        check = Check(map_rule(name, demand, **facts), may_break, violations)
        CHECKS.append(check)
        return check

    return entered


def nearest(number: int, least: int, most: int) -> int:
    """The number from `least` to `most` that is nearest.

    >>> nearest(300, 1, 256)
    256
    """
    return min(max(number, least), most)


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple at or above `number`.

    >>> rounded_up(100, 16)
    112
    """
    return ceil_div(number, multiple) * multiple


def ranged(
    name: str,
    demand: str,
    argument: str,
    ends: tuple[int, int],
    *,
    limit: str,
    below: str,
    above: str,
    unit: str = "",
    **facts: Any,
) -> None:
    """Enter a rule that an argument, or every entry of it, lies between two ends.

    `below` and `above` are the fixes; {} stands for the nearest number that is taken.
    """
    least, most = ends

    def may_break(a: Any) -> bool:
        held = getattr(a, argument)
        return not least <= held <= most if type(held) is int else min(held) < least or max(held) > most

    def violations(a: Any, violation: Says) -> Iterator[Violation]:
        held = getattr(a, argument)
        numbers = held if isinstance(held, tuple) else (held,)
        for axis, number in enumerate(numbers):
            if not least <= number <= most:
                taken = tuple(nearest(number, least, most) for number in numbers)
                entry, change = (f"{argument}[{axis}]", taken) if numbers is held else (argument, taken[0])
                fix = (below if number < least else above).format(taken[axis])
                values = {"number": number, "least": least, "most": most}
                yield violation(entry, f"{entry} = {number}{unit}", limit, fix, {argument: change}, **values)

    checked(name, demand, may_break, **facts)(violations)


def option_rule(
    name: str,
    demand: str,
    broken: Callable[[Any], bool],
    *,
    found: str,
    limit: str,
    change: Mapping[str, str],
    argument: str = "",
    fix: str = "",
    **facts: Any,
) -> None:
    """Enter a rule that options break by their names; `found` is a template, in which `a` is the map.

    Unless said otherwise, the argument to blame is the one that `change` replaces, and the fix is to replace it.
    """
    ((replaced, taken),) = change.items()
    cure = fix or f'Use {replaced}="{taken}".'

    def violations(a: Any, violation: Says) -> Iterator[Violation]:
        yield violation(argument or replaced, found.format(a=a), limit, cure, change)

    checked(name, demand, broken, **facts)(violations)
