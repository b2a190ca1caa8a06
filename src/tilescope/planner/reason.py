"""Why a plan is as it is, or cannot be: facts with names, and the one place where they become sentences.

    Reason("row-of-spans", {"swizzle": "128B", "row_bytes": 256, "spans": 2, "span_bytes": 128})
        data for programs     .name, .values
        a sentence for people "Swizzle 128B: a row of 256 bytes is 2 spans of 128."

    PLAN_TILE.broken("tile", extent="mn", rows=12, up=16)
        a rule and the values that break it; as a violation: "plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use …"

A sentence is a template. {copies:copy|copies} counts, {share:%} {time:us} {size:MB} have units, {card:an} takes an article,
{tile: x } joins; what stands in [brackets] is left out where a value in it is None or 0.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from tilescope.card import CARD
from tilescope.errors import RuleError, Violation
from tilescope.rule import Basis, Rule, rule
from tilescope.sentence import counted
from tilescope.value import Value

Made = TypeVar("Made")

# fmt: off
SENTENCES = {
    # a tile: swizzle, copies, rates
    "row-is-a-span": "Swizzle {swizzle}: a row of {row_bytes} bytes is one span.",
    "row-of-spans": "Swizzle {swizzle}: a row of {row_bytes} bytes is {spans} spans of {span_bytes}.",
    "core-matrices": "Swizzle none: core matrices of 8 rows x 16 bytes.",
    "plain-rows": "Swizzle {swizzle}: rows of {row_bytes} bytes.",
    "boxes": "{copies:copy|copies} of box {box: x }[ in {order} order] ({request_bytes} bytes a request).",
    "folded-box": "1 copy of box {box: x }: the map sees columns of spans ({request_bytes} bytes a request).",
    "copied-by-threads": "{copy}: each thread moves 16 bytes, 8 threads a line of 128; requests of {request_bytes} bytes.",
    "fastest-rate": "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, the fastest measured.",
    "rate": "Predicted {direction} rate: {gb_per_s:.0f} GB/s on {card:an}, {share:%} of the fastest measured"
            "[: {in_flight_bytes} bytes in flight on an SM are too few].",
    "memory-rate": "Predicted {direction} rate: at most {gb_per_s:.0f} GB/s on {card:an} ({basis})"
                   "[: requests of {request_bytes} bytes use {share:%} of its sectors].",
    "not-weighed": "Not weighed: {cells:, }, which {verb} not known for {card:an}.",
    "no-card": "Nothing is weighed by rates: no card of {arch} is known.",
    "no-sms": "Pass sms=: without the number of SMs, the tile that fetches least in all comes first.",
    "issue": "One thread issues {copies} copies in {issue_us:us}, and their bytes take {memory_us:us}: let several warps issue.",
    "promotion": "L2 promotion {promotion}: never slower than none or 256B on an H200.",
    "promotion-of-stores": "L2 promotion {promotion}: made no difference to stores on an H200.",
    "promotion-of-sparse-traffic": "L2 promotion none: sparse traffic should not fetch neighbours.",
    # shared memory and who waits for whom
    "wavefronts": "Shared-memory {what} ({access}): {taken} wavefronts, {lost} lost to bank conflicts"
                  "[, hidden behind {hidden_behind} cycles of global memory].",
    "no-conflict": "Shared-memory {what} ({access}): {taken} wavefronts, no conflict.",
    "uncounted": "TMA writes and tensor-core reads have no counted wavefronts; canonical atoms are made for them.",
    "plain-rows-would-do": "Plain rows of {row_bytes} bytes have no conflict either, and longer requests: "
                           'plan for consumer="{access}".',
    "budget": "Shared memory: [{stages} x {stage_bytes} = ]{total_bytes} bytes[ and {barrier_bytes} of mbarriers], "
              "aligned to {alignment_bytes}; blocks that fit an SM: {blocks}.",
    "wait": "Between the copy and the reads: {steps:, then }.",
    "wait-of-store": "Between the writes and the copy: {steps:, then }; one thread stores.",
    "overwrite": "A store overwrites {over_bytes} bytes behind each row: the tensor's end is rounded up to 16 bytes.",
    "edge": "Edge, {extent}: {tiles:tile} of {part}, the last with {last} of {part}: {outside} {fate}.",
    "warning": "Warning, {rule}: {found}; {limit}. {fix}",
    # why another plan comes first
    "behind-conflicts": "{here} wavefronts lost to conflicts, not {there}",
    "behind-bandwidth": "{here:%} of the bandwidth, not {there:%}",
    "behind-request": "requests of {here} bytes, not {there}",
    "behind-copies": "{here} copies, not {there}",
    "behind-unused-bytes": "{here} bytes of shared memory unused, not {there}",
    "behind-alignment": "needs {here}-byte alignment, not {there}",
    "equal": "equal in every term",
    "first": "first",
    # a product: tiles and floors
    "tiles": "Tile {tile: x }: {tiles:tile} of C[ for {sms:SM}, {rounds:round}, {full:%} full].",
    "floor": "Floor {floor_us:us} by the rates of {card:an}, bound by {bound}: {terms:; }.",
    "not-planned": "Not planned: {options: or }[; {idle:SM} have no tile].",
    "would-lead": "{tile: x } would come first, but: {found}; {limit}.",
    "near-floors": "Of {near} tiles within a tenth of the lowest floor, none lets its busiest SM fetch less than {busiest_bytes:MB}"
                   "[; {tied: x } ties: {more} instructions a K step, not {fewest}][; {alike: x } is equal in every term].",
    "next-floor": "No other tile's floor is within a tenth of it: {next: x } comes next.",
    "behind-floor": "floor {here:us}, more than a tenth above the lowest, {there:us}",
    "behind-bytes": "its busiest SM fetches {here:MB}, not {there:MB}",
    "behind-all-bytes": "all SMs together fetch {here:MB}, not {there:MB}",
    "behind-few-bytes": "its busiest SM fetches {here} bytes, not {there}",
    "behind-instructions": "{here} instructions a K step, not {there}",
    "behind-order": "equal in every term; fewer rows come first",
    # a product: accumulators, stages, rows, epilogue
    "registers": "Accumulators, {m} x {n} of 4 bytes: {taken} of the {available} bytes of an SM's registers.",
    "tensor-memory": "Accumulators, {m} x {n} of 4 bytes: {taken} of {available} columns of tensor memory.",
    "stages": "{stages:stage} of {a_bytes} + {b_bytes} bytes[, an epilogue of {epilogue_bytes}][ and {barriers} mbarriers of 8]: "
              "{smem_bytes} of {budget_bytes} bytes.",
    "rows": "Rows of {matrices: and }, {columns} {extent} contiguous: {row_bytes} bytes in shared memory, "
            "[{spans:span} of {swizzle}][core matrices of 8 x {chunk_bytes} bytes].",
    "epilogue": "Epilogue: {columns} columns of C at a time[, {slices:slice} in turn], written by {access}, "
                "stored by TMA with swizzle {swizzle}.",
    "no-epilogue": "Without TMA the accumulators are stored straight from registers: no shared memory for C.",
    "exchanged": "A and B are exchanged: mma takes 16 rows, here of B, and 8 columns, here of A; its accumulators hold the "
                 "transpose of C.",
    "scale-factors": "{data_type} packed two to a byte is multiplied with scale factors: their memory is not planned here.",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Reason(Value):
    """One reason: what it is about, and its numbers. `str` makes the sentence.

    >>> print(Reason("behind-copies", {"here": 4, "there": 1}))
    4 copies, not 1
    """

    _derived: ClassVar[tuple[str, ...]] = ("sentence",)

    name: str
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        frozen = {key: tuple(value) if isinstance(value, list) else value for key, value in self.values.items()}
        object.__setattr__(self, "values", MappingProxyType(frozen))

    @classmethod
    def of(cls, name: str, **values: Any) -> Reason:
        """A reason with those of the values that its sentence names."""
        return cls(name, {key: values[key] for key in _names(SENTENCES[name]) if key in values})

    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, Any]]]:
        return Reason, (self.name, dict(self.values))  # a mapping proxy cannot be pickled

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.values.items())))

    @property
    def sentence(self) -> str:
        """The reason as a sentence."""
        return sentence(SENTENCES[self.name], self.values)

    def text(self) -> str:
        """The reason as a sentence."""
        return self.sentence


Texts = tuple[str, str, str]  # templates: what is wrong, the limit, what works instead


class PlanRule(NamedTuple):
    """A rule of the planner with the sentences for the ways to break it, by case."""

    row: Rule
    texts: Mapping[str, Texts]

    def broken(
        self, argument: str, case: str = "said", change: Mapping[str, Any] | None = None, /, **values: Any
    ) -> Broken:
        """The rule, broken by these values.

        >>> from tilescope.planner.consumers import PLAN_TILE
        >>> print(PLAN_TILE.broken("tile", extent="mn", rows=12, up=16).violation())
        plan-tile: mn = 12; ldmatrix reads 8 rows at a time. Use mn = 16.
        """
        return Broken(self.row, argument, self.texts[case], change, values)


def plan_rule(
    name: str, demand: str, source: str, passing: str, failing: str | None, basis: Basis = "documented", **texts: Texts
) -> PlanRule:
    """Enter a row of the planner into RULES."""
    return PlanRule(rule(name, demand, source=source, basis=basis, passing=passing, failing=failing), texts)


class Broken(NamedTuple):
    """A rule that a check finds broken: facts, of which sentences are made last."""

    row: Rule
    argument: str
    texts: Texts
    change: Mapping[str, Any] | None
    values: Mapping[str, Any]

    @property
    def rule(self) -> str:
        """The name of the rule, as of a violation."""
        return self.row.name

    def violation(self) -> Violation:
        """The violation, its sentences made now; a value called matrix, of a product, comes first."""
        templates = ("[{matrix}: ]" + self.texts[0], *self.texts[1:])
        found, limit, fix = (sentence(template, self.values) for template in templates)
        return self.row.violation(self.argument, found, limit, fix, self.change, **self.values)

    def error(self, kind: type[RuleError] = RuleError) -> RuleError:
        """The exception for this violation alone."""
        return kind([self.violation()])


Obstacle = Broken | Violation  # a violation where another package did the check


def violations(obstacles: Iterable[Obstacle]) -> tuple[Violation, ...]:
    """Obstacles as violations, in their order and without repetition."""
    return tuple(dict.fromkeys(found if isinstance(found, Violation) else found.violation() for found in obstacles))


def or_obstacles(make: Callable[..., Made], *arguments: Any) -> Made | list[Obstacle]:
    """What a function makes of its arguments, or the violations with which it refuses them."""
    try:
        return make(*arguments)
    except RuleError as error:
        return list(error.violations)


@cache
def _pieces(template: str) -> tuple[tuple[bool, tuple[tuple[str, str | None, str | None], ...]], ...]:
    """A template taken apart: whether a piece stands in brackets; its texts, with the value behind them and its unit."""
    return tuple(
        (number % 2 == 1, tuple(part[:3] for part in string.Formatter().parse(piece)))
        for number, piece in enumerate(re.split(r"\[([^\]]*)\]", template))
    )


@cache
def _names(template: str) -> tuple[str, ...]:
    """The values that a template names, in its order."""
    return tuple(dict.fromkeys(name for _, parts in _pieces(template) for _, name, _ in parts if name))


def sentence(template: str, values: Mapping[str, Any]) -> str:
    """The template filled; what stands in brackets only where all its values are something."""
    return "".join(
        text + ("" if name is None else _shown(values[name], unit or ""))
        for in_brackets, parts in _pieces(template)
        if not in_brackets or all(values.get(name) for _, name, _ in parts if name)
        for text, name, unit in parts
    )


def _shown(value: Any, unit: str) -> str:
    if isinstance(value, tuple):
        return unit.join(map(str, value))
    if unit in _UNITS:
        return _UNITS[unit](value)
    if unit and isinstance(value, int):
        one, _, several = unit.partition("|")
        return counted(value, one, several or None)
    return format(value, unit)


def in_us(microseconds: float) -> str:
    """A time with three digits or more.

    >>> in_us(179.41), in_us(7.372), in_us(0.01234)
    ('179.4 us', '7.37 us', '0.0123 us')
    """
    return f"{microseconds:{'.1f' if microseconds >= 100 else '#.3g'}} us"


def in_mb(count_bytes: float) -> str:
    """Megabytes with three digits or more."""
    return f"{count_bytes / 1e6:{'.1f' if count_bytes >= 100e6 else '#.3g'}} MB"


def with_article(name: str) -> str:
    """The name of a card after its article, which follows from how its first letter is said; a saved card is one of a kind.

    >>> with_article("H200"), with_article("B200"), with_article("RTX 5090"), with_article("mine")
    ('an H200', 'a B200', 'an RTX 5090', 'the card mine')
    """
    if name not in CARD:
        return f"the card {name}"
    return f"{'an' if name[0] in 'AEFHILMNORSX' else 'a'} {name}"


_UNITS: dict[str, Callable[[Any], str]] = {
    "us": in_us,
    "MB": in_mb,
    "an": with_article,
    "%": lambda share: f"{100 * share:.0f} %",
}
