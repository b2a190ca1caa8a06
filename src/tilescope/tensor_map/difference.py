"""Two maps compared: which arguments differ, what follows from it, and which words of the descriptors."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.map_descriptor import is_encodable
from tilescope.value import Row, Value


@dataclass(frozen=True, slots=True)
class MapDifference(Value):
    """One difference, with the value of each map; "-" if a map does not have it."""

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
        """Compare two maps of any kinds."""
        words: tuple[MapDifference, ...] = ()
        if is_encodable(one) and is_encodable(other):
            words = differing(_words(one), _words(other))
        return cls(
            one=one,
            other=other,
            arguments=differing(_arguments(one), _arguments(other)),
            consequences=differing(_sizes(one), _sizes(other)),
            words=words,
        )


def differing(one: dict[str, str], other: dict[str, str]) -> tuple[MapDifference, ...]:
    """The entries that differ, or that one of the two lacks."""
    differences = (MapDifference(name, one.get(name, "-"), other.get(name, "-")) for name in one | other)
    return tuple(difference for difference in differences if difference.one != difference.other)


def _sizes(tensor_map: AnyMap) -> dict[str, str]:
    """The sizes that follow from the arguments, and what they rest on."""
    return {
        "smem_bytes": str(tensor_map.smem_bytes),
        "smem_alignment_bytes": str(tensor_map.smem_alignment_bytes),
        "transaction_bytes": str(tensor_map.transaction_bytes),
        "box_bytes": str(tensor_map.box_bytes),
        "basis": tensor_map.basis,
    }


def _arguments(tensor_map: AnyMap) -> dict[str, str]:
    return entries_of(tensor_map.kind, {name: getattr(tensor_map, name) for name in tensor_map.readers})


def entries_of(kind: str, arguments: Mapping[str, object]) -> dict[str, str]:
    """Every argument of a map with its value in words, sequences entry by entry.

    >>> entries_of("tensor_map", {"box": (64, 8), "address": 1024})
    {'kind': 'tensor_map', 'box[0]': '64', 'box[1]': '8', 'address': '0x400'}
    """
    shown = {"kind": kind}
    for name, value in arguments.items():
        if isinstance(value, tuple):
            shown |= {f"{name}[{place}]": str(entry) for place, entry in enumerate(value)}
        else:
            shown[name] = _format_field(name, value)
    return shown


def _format_field(name: str, value: object) -> str:
    if isinstance(value, Row):
        return value.name
    return hex(value) if name == "address" and isinstance(value, int) else str(value)


def _words(tensor_map: AnyMap) -> dict[str, str]:
    words = struct.unpack("<16Q", tensor_map.encode())
    return {f"word {number}": f"{word:#018x}" for number, word in enumerate(words)}
