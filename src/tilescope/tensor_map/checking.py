"""The checks of maps and copies, each with the row of the rule book that it holds: what breaks it, the facts, the sentence.

    checked(
        "address-range", "The address is 0 to 2^57 - 1; 0 is accepted.",
        lambda a: not 0 <= a.address < 1 << 57,                     asked of every map: quick
        "address = {address:#x}", "a device address is 0 to 2^57 - 1", "Pass the device pointer itself.",
        values=lambda a: {"address": a.address},                    the facts: numbers of the sentence, and the `change` that cures it
        examples=(MATRIX, {"address": 16}, {"address": 1 << 57}))   a sample; within the limit, and beyond it

A condition that is more than a comparison answers with the facts at once, or with an iterator of facts: a violation for each.
In the sentences `a` is the map, of a copy its map. Some rules are broken while arguments are read, bytes are decoded or an array
is described: `stated` enters those, and `told` makes their violations of the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import NO_VALUES, Violation
from tilescope.rule import Rule, rule
from tilescope.tensor_map.samples import CUDA_H, H200

# The kinds of map, and the other things that rules speak of.
Subject = Literal[
    "tiled", "im2col", "wide", "instruction", "encoding", "descriptor", "replacement", "array", "convolution", "paste"
]
MAPS: tuple[Subject, ...] = ("tiled", "im2col", "wide")
Facts = dict[str, Any]
ManyFacts = Iterator[Facts]

Direction = Literal["load", "store", "reduce"]
COORD_END = 1 << 31  # coordinates are signed 32-bit numbers
OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank

# The types that a reduction takes. All 8 x 13 pairs were tried on an H200: these work, all others are illegal.
_BITWISE = ("uint32", "int32", "uint64")
_ORDERED = (*_BITWISE, "int64", "float16", "bfloat16")
_ADDED = (*_BITWISE, "float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz")
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": _ADDED,
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": _BITWISE,
    "or": _BITWISE,
    "xor": _BITWISE,
}


class Copy(NamedTuple):  # made for every copy: a frozen dataclass takes four times as long to make
    """One use of a map by an instruction."""

    tensor_map: Any  # of whatever kind
    direction: Direction
    coords: tuple[int, ...]  # driver order; gather4 and scatter4: column, then four rows
    smem_address: int = 0
    offsets: tuple[int, ...] = ()  # im2col: W, H, D; im2col-wide: halo, offset
    reduce: str | None = None
    rows4: bool = False  # tile::gather4 or tile::scatter4
    cluster: bool = False  # to .shared::cluster, as a multicast goes; else to the .shared::cta of its own block


class Check(NamedTuple):
    """A rule, when a map or a copy breaks it and with what facts, and the sentences of its violations."""

    rule: Rule
    broken: Callable[[Any], Any]  # false, true, the facts, or an iterator of facts
    sentences: tuple[str, str, str, str]  # argument, found, limit, fix
    values: Callable[[Any], Facts | list[Facts]] | None  # the facts, where `broken` says true alone
    change: Facts | None

    def told(self, a: Any = None, /, **facts: Any) -> Violation:
        """The violation that these facts make; `a` is the map."""
        numbers = {name: value for name, value in facts.items() if type(value) is not str and name != "change"}
        facts["a"] = a
        argument, found, limit, fix = [part.format_map(facts) if "{" in part else part for part in self.sentences]
        name, severity, change = self.rule.name, self.rule.severity, facts.get("change", self.change)
        return Violation(name, severity, argument, found, limit, fix, change, numbers or NO_VALUES)

    def violations(self, subject: Any, answer: Any) -> list[Violation]:
        """What a map or a copy is told for which `broken` answered so."""
        a = getattr(subject, "tensor_map", subject)
        held = self.values(subject) if self.values else answer
        many = (held,) if isinstance(held, dict) else held if isinstance(held, Iterator | list) else ({},)
        return [self.told(a, **facts) for facts in many]


CHECKS: list[Check] = []  # in the order of a report


def stated(
    name: str,
    demand: str,
    found: str = "{found}",
    limit: str = "{limit}",
    fix: str = "{fix}",
    *,
    argument: str = "",
    broken: Callable[[Any], Any] = bool,
    values: Callable[[Any], Facts | list[Facts]] | None = None,
    change: Facts | None = None,
    documented: str = "",
    **facts: Any,
) -> Check:
    """Enter a rule about maps, or about what is done with them; the sentences are templates for the facts.

    `found` begins with the argument, as in "address = {address:#x}", unless the row names it. A `change` that is always the
    same names the argument too, and is the fix. `documented` is a source that no card was asked about.
    """
    facts = {"subjects": MAPS, "architectures": architectures_with("tma"), "source": f"{CUDA_H}; {H200}"} | facts
    facts |= {"basis": "documented", "source": documented} if documented else {"basis": "measured"}
    start, is_equation, _ = found.partition(" = ")
    argument = argument or (start if is_equation and " " not in start else "{argument}")
    for replaced, value in (change or {}).items():
        argument = argument.replace("{argument}", replaced)
        fix = fix.replace("{fix}", f'Use {replaced}="{value}".')
    return Check(rule(name, demand, **facts), broken, (argument, found, limit, fix), values, change)


def checked(
    name: str,
    demand: str,
    broken: Callable[[Any], Any],
    *sentences: str,
    examples: tuple[Facts, Facts, Facts],
    **facts: Any,
) -> Check:
    """Enter a rule with its check; `examples` are a sample, and what is changed in it for examples within the limit and beyond."""
    sample, within, beyond = examples
    facts |= {"passing": sample | within, "failing": sample | beyond}
    CHECKS.append(stated(name, demand, *sentences, broken=broken, **facts))
    return CHECKS[-1]


def ranged(
    name: str,
    demand: str,
    argument: str,
    most: int,
    limit: str,
    below: str = "Use {}.",
    above: str = "Use {} and more copies.",
    unit: str = "",
    **facts: Any,
) -> None:
    """Enter a rule that an argument, or every entry of it, is 1 to `most`; `below` and `above` are the fixes."""

    def broken(a: Any) -> Any:
        held = getattr(a, argument)
        is_within = 1 <= held <= most if type(held) is int else min(held) >= 1 and max(held) <= most
        return not is_within and outside(held)

    def outside(held: Any) -> ManyFacts:
        numbers = held if isinstance(held, tuple) else (held,)
        taken = tuple(nearest(number, 1, most) for number in numbers)
        for axis, number in enumerate(numbers):
            if number != taken[axis]:
                entry, change = (f"{argument}[{axis}]", taken) if numbers is held else (argument, taken[0])
                fix = (below if number < 1 else above).format(taken[axis])
                yield {"entry": entry, "number": number, "fix": fix, "change": {argument: change}}

    checked(name, demand, broken, "{entry} = {number}" + unit, limit, **facts)


def nearest(number: int, least: int, most: int) -> int:
    """The number from `least` to `most` that is nearest."""
    return min(max(number, least), most)
