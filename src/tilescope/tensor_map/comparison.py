"""Two maps field by field: which arguments differ, what follows from it, and which words of the descriptors."""

from __future__ import annotations

import struct
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
    >>> diff = TensorMapDiff.of(a, a.with_fields(box=(64, 32)))
    >>> [(differs.name, differs.one, differs.other) for differs in diff.arguments]
    [('box[1]', '64', '32')]
    >>> [differs.name for differs in diff.consequences]
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
        words = _words(one), _words(other)
        arguments = _differing(_arguments(one), _arguments(other))
        return cls(
            one,
            other,
            arguments,
            _differing(_consequences(one), _consequences(other)),
            _differing(*words) if all(words) else (),
        )


def _differing(one: dict[str, str], other: dict[str, str]) -> tuple[MapDifference, ...]:
    pairs = ((name, one.get(name, "-"), other.get(name, "-")) for name in one | other)
    return tuple(MapDifference(*pair) for pair in pairs if pair[1] != pair[2])


def _arguments(tensor_map: AnyMap) -> dict[str, str]:
    """Every argument with its value in words, sequences entry by entry."""
    shown = {"kind": tensor_map.kind}
    for name in tensor_map.readers:
        value = getattr(tensor_map, name)
        if isinstance(value, tuple):
            shown |= {f"{name}[{place}]": str(entry) for place, entry in enumerate(value)}
        else:
            shown[name] = hex(value) if name == "address" else str(value.name if isinstance(value, Row) else value)
    return shown


def _consequences(tensor_map: AnyMap) -> dict[str, str]:
    return {name: str(getattr(tensor_map, name)) for name in CONSEQUENCES}


def _words(tensor_map: AnyMap) -> dict[str, str]:
    try:
        words = struct.unpack("<16Q", tensor_map.encode())
    except RuleError:  # not of sm_90
        return {}
    return {f"word {number}": f"{word:#018x}" for number, word in enumerate(words)}
