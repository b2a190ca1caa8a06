"""Two maps field by field: which arguments differ, what follows from it, and which words of the descriptors."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilescope.errors import RuleError
from tilescope.tensor_map.any_map import AnyMap
from tilescope.value import Row, Value

CONSEQUENCES = ("smem_bytes", "smem_alignment_bytes", "transaction_bytes", "box_bytes", "basis")


@dataclass(frozen=True, slots=True)
class MapDifference(Value):
    """One thing that differs, and how each map has it; "-" where a map does not have it at all."""

    name: str
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class TensorMapDiff(Value):
    """What differs between two maps.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> found = TensorMapDiff.of(a, a.with_fields(box=(64, 32)))
    >>> [(each.name, each.one, each.other) for each in found.arguments]
    [('box[1]', '64', '32')]
    >>> [each.name for each in found.consequences]
    ['smem_bytes', 'transaction_bytes', 'box_bytes']
    """

    one: AnyMap
    other: AnyMap
    arguments: tuple[MapDifference, ...]
    consequences: tuple[MapDifference, ...]  # sizes that follow from the arguments
    words: tuple[MapDifference, ...]  # of the descriptors; none where one of them was never measured

    @property
    def same(self) -> bool:
        """Whether the two maps are equal."""
        return not self.arguments

    @classmethod
    def of(cls, one: AnyMap, other: AnyMap) -> TensorMapDiff:
        """Compare two maps of whatever kinds."""
        return cls(
            one,
            other,
            _differing(dict(_arguments(one)), dict(_arguments(other))),
            _differing(_consequences(one), _consequences(other)),
            _differing(_words(one), _words(other)) if _words(one) and _words(other) else (),
        )


def _differing(one: dict[str, str], other: dict[str, str]) -> tuple[MapDifference, ...]:
    names = dict.fromkeys([*one, *other])
    pairs = ((name, one.get(name, "-"), other.get(name, "-")) for name in names)
    return tuple(MapDifference(*pair) for pair in pairs if pair[1] != pair[2])


def _arguments(tensor_map: AnyMap) -> Iterator[tuple[str, str]]:
    """Every argument with its value in words, sequences entry by entry."""
    yield "kind", tensor_map.kind
    for name in tensor_map.readers:
        value = getattr(tensor_map, name)
        if isinstance(value, tuple):
            yield from ((f"{name}[{place}]", str(entry)) for place, entry in enumerate(value))
        elif isinstance(value, Row):
            yield name, value.name
        else:
            yield name, hex(value) if name == "address" else str(value)


def _consequences(tensor_map: AnyMap) -> dict[str, str]:
    return {name: str(getattr(tensor_map, name)) for name in CONSEQUENCES}


def _words(tensor_map: AnyMap) -> dict[str, str]:
    try:
        words = struct.unpack("<16Q", tensor_map.encode())
    except RuleError:  # not of sm_90
        return {}
    return {f"word {number}": f"{word:#018x}" for number, word in enumerate(words)}
