"""What the three kinds of map share: reading and checking their arguments, encoding, replacing.

arguments ── readers ──▶ fields ── rules ──▶ a map, with its findings
                │                    └─────▶ TensorMapError, with every violation
                └─ what cannot be read is a violation too; rules that need it are passed over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Self

from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.tensor_map import reading
from tilescope.tensor_map.descriptor import encoded
from tilescope.tensor_map.geometry import Geometry
from tilescope.tensor_map.replacement import replacement_fields
from tilescope.tensor_map.rules import MAP_CHECKS
from tilescope.tensor_map.rules.tensor import rank_check
from tilescope.value import Row

COMMON_READERS: dict[str, reading.Reader] = {
    "data_type": reading.tma_type,
    "dims": reading.integers,
    "strides_bytes": reading.integers,
    "element_strides": reading.optional_integers,
    "interleave": reading.interleave,
    "swizzle": reading.hardware_swizzle,
    "l2_promotion": reading.l2_promotion,
    "oob_fill": reading.oob_fill,
    "address": reading.integer,
    "arch": reading.arch,
}


@dataclass(frozen=True, slots=True, init=False, repr=False, kw_only=True)
class AnyMap(Geometry):
    """A sound tensor map of whatever kind; `findings` are the warnings and notes of the rules."""

    readers: ClassVar[Mapping[str, reading.Reader]]  # of every constructor argument
    lengths: ClassVar[Mapping[str, int]]  # how many entries less than dims a sequence has

    def _construct(self, given: Mapping[str, Any]) -> None:
        """Read the arguments into this map; raise when an error is among what the rules find."""
        violations = _filled(self, given)
        for each in violations:
            if each.severity == "error":
                raise TensorMapError(violations)
        object.__setattr__(self, "findings", violations)

    @classmethod
    def _checked(cls, given: Mapping[str, Any]) -> tuple[Violation, ...]:
        return _filled(object.__new__(cls), given)

    def __repr__(self) -> str:
        """The constructor call that makes this map, defaults left out."""
        shown = []
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            plain: Any = value.name if isinstance(value, Row) else value
            if plain == parameter.default or (name == "element_strides" and set(value) == {1}):
                continue
            text = hex(plain) if name == "address" else repr(plain)
            shown.append(text if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def with_fields(self, **fields: Any) -> Self:
        """A map with some constructor arguments replaced, checked like any other.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).with_fields(swizzle="128B").swizzle.name
        '128B'
        """
        for name in fields:
            if name not in self.readers:
                raise TensorMapError([unknown_name("argument", name, name, self.readers)])
        return type(self)(**{name: fields.get(name, getattr(self, name)) for name in self.readers})

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes for this map on sm_90.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B").encode().hex()[16:24]
        '10650000'
        """
        return encoded(self)

    def replace(self, **fields: Any) -> Self:
        """The map after tensormap.replace (or, for an address alone, cuTensorMapReplaceAddress).

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).replace(address=0x1000).address
        4096
        """
        return self.with_fields(**replacement_fields(self, self.readers, fields))


def _filled(tensor_map: AnyMap, given: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Set the map's fields from the arguments, and return what the rules say about them."""
    violations: list[Violation] = []
    unreadable: set[str] = set()
    place = object.__setattr__
    for name, read in tensor_map.readers.items():
        try:
            place(tensor_map, name, read(name, given[name]))
        except RuleError as error:
            violations.extend(error.violations)
            unreadable.add(name)
    if "dims" not in unreadable:
        rank = len(tensor_map.dims)
        if given["element_strides"] is None:
            place(tensor_map, "element_strides", (1,) * rank)
        for name, fewer in tensor_map.lengths.items():
            if name not in unreadable and len(getattr(tensor_map, name)) != max(0, rank - fewer):
                violations.append(reading.wrong_length(name, len(getattr(tensor_map, name)), rank, fewer))
                unreadable.add(name)
        if rank == 0:  # no rule but one can speak of a tensor without dimensions
            violations.extend(rank_check.violations(tensor_map))
            unreadable.update(tensor_map.lengths, ["dims"])
    elif given["element_strides"] is None:
        unreadable.add("element_strides")
    for rule, reads, run in MAP_CHECKS[tensor_map.subject]:
        if not unreadable or unreadable.isdisjoint(reads):
            breaches = run(tensor_map)
            if breaches:
                violations.extend(rule.violation(*breach) for breach in breaches)
    return tuple(violations)
