"""The checks of maps and copies, each with the row of the rule book that it holds: what breaks it, the facts, the sentence.

    checked(
        "address-range", "The address is 0 to 2^57 - 1; 0 is accepted.",
        lambda a: not 0 <= a.address < 1 << 57,                     asked of every map: quick
        "address", "address = {address:#x}", "a device address is 0 to 2^57 - 1", "Pass the device pointer itself.",
        values=lambda a: {"address": a.address},                    the numbers of the sentence, one mapping a violation
        examples=(MATRIX, {"address": 16}, {"address": 1 << 57}))   a sample; within the limit, and beyond it

`values` may hold the `change` that cures it, too. In the sentences `a` is the map, of a copy its map. Some rules are broken
while arguments are read, bytes are decoded or an array is described: `map_rule` enters those, which have no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
Facts = dict[str, Any]


class Check(NamedTuple):
    """A rule, when a map or a copy breaks it, and the facts and sentences of its violations."""

    rule: Rule
    broken: Callable[[Any], object]
    sentences: tuple[str, str, str, str]  # argument, found, limit, fix
    values: Callable[[Any], Facts | Iterable[Facts]]
    change: Facts | None

    def violations(self, subject: Any) -> Iterator[Violation]:
        """What a map or a copy that breaks the rule is told."""
        a = getattr(subject, "tensor_map", subject)
        values = self.values(subject)
        for facts in (values,) if isinstance(values, dict) else values:
            argument, found, limit, fix = (
                part.format(a=a, **facts) if "{" in part else part for part in self.sentences
            )
            numbers = {name: value for name, value in facts.items() if type(value) is not str and name != "change"}
            yield self.rule.violation(argument, found, limit, fix, facts.get("change", self.change), **numbers)


CHECKS: list[Check] = []  # in the order of a report


def map_rule(
    name: str,
    demand: str,
    *,
    passing: Example,
    failing: Example,
    source: str = f"{CUDA_H}; {H200}",
    documented: str = "",  # a source that no card was asked about
    subjects: tuple[Subject, ...] = MAPS,
    severity: Severity = "error",
    architectures: tuple[str, ...] = TMA_ARCHITECTURES,
    code: int | None = None,
) -> Rule:
    """Enter a rule about maps, or about what is done with them."""
    basis: Basis = "documented" if documented else "measured"
    facts: dict[str, Any] = {"source": documented or source, "basis": basis, "severity": severity, "code": code}
    return rule(name, demand, subjects=subjects, passing=passing, failing=failing, architectures=architectures, **facts)


def checked(
    name: str,
    demand: str,
    broken: Callable[[Any], object],
    argument: str = "{argument}",
    found: str = "{found}",
    limit: str = "{limit}",
    fix: str = "{fix}",
    *,
    examples: tuple[Facts, Facts, Facts],
    values: Callable[[Any], Facts | Iterable[Facts]] = lambda _: {},
    change: Facts | None = None,
    **facts: Any,
) -> Check:
    """Enter a rule with its check; the sentences are templates for the facts.

    `examples` are a sample, and what is changed in it for an example within the limit and for one beyond it.
    """
    sample, within, beyond = examples
    row = map_rule(name, demand, passing=sample | within, failing=sample | beyond, **facts)
    if change and fix == "{fix}":
        fix = "Use " + ", ".join(f'{replaced}="{value}"' for replaced, value in change.items()) + "."
    check = Check(row, broken, (argument, found, limit, fix), values, change)
    CHECKS.append(check)
    return check


def ranged(
    name: str,
    demand: str,
    argument: str,
    ends: tuple[int, int],
    limit: str,
    below: str,
    above: str,
    unit: str = "",
    **facts: Any,
) -> None:
    """Enter a rule that an argument, or every entry of it, lies between two ends; `below` and `above` are the fixes."""
    least, most = ends

    def broken(a: Any) -> bool:
        held = getattr(a, argument)
        return not least <= held <= most if type(held) is int else min(held) < least or max(held) > most

    def values(a: Any) -> Iterator[Facts]:
        held = getattr(a, argument)
        numbers = held if isinstance(held, tuple) else (held,)
        taken = tuple(nearest(number, least, most) for number in numbers)
        for axis, number in enumerate(numbers):
            if number != taken[axis]:
                entry, change = (f"{argument}[{axis}]", taken) if numbers is held else (argument, taken[0])
                fix = (below if number < least else above).format(taken[axis])
                yield {"entry": entry, "number": number, "fix": fix, "change": {argument: change}}

    checked(name, demand, broken, "{entry}", "{entry} = {number}" + unit, limit, values=values, **facts)


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
