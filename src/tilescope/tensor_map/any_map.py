"""What the three kinds of map share: reading and checking their arguments, encoding, replacing.

arguments ── readers ──▶ fields ── rules ──▶ a map, with its findings
                │                    └─────▶ TensorMapError, with every violation
                └─ what cannot be read is a violation too; rules that need it are passed over
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any, ClassVar, Concatenate, ParamSpec, Self

from tilescope.arch import ARCH, Arch
from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, counted, unknown_name
from tilescope.reading import integer, integers, known_name
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.checking import Check, map_rule
from tilescope.tensor_map.descriptor import encoded
from tilescope.tensor_map.geometry import Geometry
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL, Interleave, L2Promotion, OobFill
from tilescope.tensor_map.replacement import replacement_fields
from tilescope.tensor_map.rules import MAP_CHECKS, OPTION_CHECKS
from tilescope.tensor_map.rules.samples import CUDA_H, MATRIX
from tilescope.tensor_map.rules.tensor import rank_check
from tilescope.value import Row

Arguments = ParamSpec("Arguments")  # of a constructor
Reader = Callable[[str, Any], Any]
WIDE_MODES = ("W", "W128")  # CUtensorMapIm2ColWideMode 0 and 1

argument_length = map_rule(
    "argument-length", "Every sequence has one entry for each dimension; strides_bytes one less, corners two less.",
    source=CUDA_H, passing=MATRIX | {"strides_bytes": (8192,)}, failing=MATRIX | {"strides_bytes": (2, 8192)},
)  # fmt: skip


def _tma_type(_: str, given: Any) -> DataType:
    """The driver's type as which TMA moves the given one."""
    return DataType.named(given).tma


def _hardware_swizzle(argument: str, given: Any) -> Swizzle:
    """A swizzle that TMA knows: one of the table, no software swizzle."""
    row = Swizzle.named(given)
    if row.feature is None:
        raise RuleError([unknown_name("swizzle of TMA", argument, row.name, SWIZZLE)])
    return row


def _row(table: type[Row], rows: Mapping[str, Row]) -> Reader:
    """Finds a row by its name; whatever else a row is called, the table knows."""
    return lambda _, given: rows.get(given) or table.named(given) if type(given) is str else table.named(given)


_COMMON_READERS: dict[str, Reader] = {
    "data_type": _tma_type,
    "dims": integers,
    "strides_bytes": integers,
    "element_strides": lambda argument, given: None if given is None else integers(argument, given),
    "interleave": _row(Interleave, INTERLEAVE),
    "swizzle": _hardware_swizzle,
    "l2_promotion": _row(L2Promotion, L2_PROMOTION),
    "oob_fill": _row(OobFill, OOB_FILL),
    "address": integer,
    "arch": _row(Arch, ARCH),
}
_OTHER_READERS: dict[str, Reader] = {
    "box": integers,
    "lower_corner": integers,
    "upper_corner": integers,
    "lower_width": integer,
    "upper_width": integer,
    "channels_per_pixel": integer,
    "pixels_per_column": integer,
    "mode": lambda argument, given: known_name(argument, given, WIDE_MODES, "im2col-wide mode"),
}
# How many entries a sequence has less than the tensor has dimensions, and which it leaves out.
_LENGTHS: dict[str, dict[str, int]] = {
    "tiled": {"strides_bytes": 1, "box": 0, "element_strides": 0},
    "im2col": {"strides_bytes": 1, "element_strides": 0, "lower_corner": 2, "upper_corner": 2},
    "wide": {"strides_bytes": 1, "element_strides": 0},
}
_ENTRIES = ("one for each dimension", "one for each dimension but the innermost", "one for each of W, H, D")


def readers_of(*others: str) -> dict[str, Reader]:
    """The readers of all arguments of a map: the common ones, and these."""
    return _COMMON_READERS | {name: _OTHER_READERS[name] for name in others}


def check_of(
    construct: Callable[Concatenate[Any, Arguments], None],
) -> classmethod[AnyMap, Arguments, tuple[Violation, ...]]:
    """The class method `check`, which takes the arguments of a constructor."""

    def check(cls: type[AnyMap], /, *given: Arguments.args, **named: Arguments.kwargs) -> tuple[Violation, ...]:
        """Every rule that the constructor's arguments break, and the advice; empty for a sound map. Never raises.

        >>> from tilescope.tensor_map import TensorMap
        >>> [broken.rule for broken in TensorMap.check("bf16", (100,), (), (0,), address=8)]
        ['address-alignment', 'box-range', 'store-overrun']
        """
        checked = object.__new__(cls)
        try:
            construct(checked, *given, **named)
        except TensorMapError as error:
            return error.violations
        return checked.findings

    own, *arguments = signature(construct).parameters.values()
    check.__signature__ = Signature(  # type: ignore[attr-defined]
        [own.replace(name="cls"), *arguments], return_annotation="tuple[Violation, ...]"
    )
    return classmethod(check)


@dataclass(frozen=True, slots=True, init=False, repr=False, kw_only=True)
class AnyMap(Geometry):
    """A sound tensor map of whatever kind; `findings` are the warnings and notes of the rules."""

    readers: ClassVar[Mapping[str, Reader]]  # of every constructor argument

    def _construct(self, given: Mapping[str, Any]) -> None:
        """Read the arguments into this map; raise when an error is among what the rules find."""
        violations = _filled(self, given)
        for violation in violations:
            if violation.severity == "error":
                raise TensorMapError(violations)
        object.__setattr__(self, "findings", violations)

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
        lengths = _LENGTHS[tensor_map.subject]
        for name, fewer in lengths.items():
            if name not in unreadable and len(getattr(tensor_map, name)) != max(0, rank - fewer):
                violations.append(_wrong_length(name, len(getattr(tensor_map, name)), rank, fewer))
                unreadable.add(name)
        if rank == 0:  # no rule but one can speak of a tensor without dimensions
            violations.extend(rank_check.violations(tensor_map))
            unreadable.update(lengths, ["dims"])
    elif given["element_strides"] is None:
        unreadable.add("element_strides")
    for check in _needed(tensor_map) if not unreadable else MAP_CHECKS[tensor_map.subject]:
        if (not unreadable or unreadable.isdisjoint(check.reads)) and check.run(tensor_map):
            violations += check.violations(tensor_map)
    return tuple(violations)


_NEEDED: dict[tuple[str, ...], tuple[Check, ...]] = {}  # by the kind and the options of a map, of which there are few


def _needed(a: AnyMap) -> tuple[Check, ...]:
    """The checks that this map needs: those of its options alone only where its options break them."""
    options = (
        a.subject, a.data_type.name, a.interleave.name, a.swizzle.name, a.l2_promotion.name, a.oob_fill.name, a.arch.name,
    )  # fmt: skip
    checks = _NEEDED.get(options)
    if checks is None:
        alone = OPTION_CHECKS[a.subject]
        checks = tuple(check for check in MAP_CHECKS[a.subject] if check not in alone or check.run(a))
        _NEEDED[options] = checks
    return checks


def _wrong_length(argument: str, count: int, rank: int, fewer: int) -> Violation:
    wanted = max(0, rank - fewer)
    fix = f"Use {counted(wanted, 'entry', 'entries')}, innermost first."
    if argument == "strides_bytes" and count == rank:
        fix = "strides_bytes leaves out dim 0: drop the first entry."
    return argument_length.violation(
        argument, f"{counted(count, 'entry', 'entries')} for rank {rank}",
        f"{counted(wanted, 'entry', 'entries')}: {_ENTRIES[fewer]}", fix, entries=count, rank=rank,
    )  # fmt: skip
