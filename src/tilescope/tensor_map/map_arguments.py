"""The arguments of a map whose kind they decide: what JSON, a command line, a pasted dump or an example give.

{"data_type": "bf16", "dims": …, "box": …}             a tiled map
{… "lower_corner": …, "upper_corner": …}               an im2col map
{… "lower_width": …, "upper_width": …}                 an im2col-wide map
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

from tilescope.arch import ARCH_PARTLY_KNOWN
from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.reading import integers
from tilescope.rule import ARGUMENT_TYPE, UNKNOWN_NAME, rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import MAPS, TMA_ARCHITECTURES
from tilescope.tensor_map.map_kinds import Im2colMap, Im2colWideMap, TensorMap
from tilescope.tensor_map.option import Interleave
from tilescope.tensor_map.repair import repaired_arguments
from tilescope.tensor_map.samples import CUDA_H, IMAGES, MATRIX, WIDE
from tilescope.tensor_map.text.driver_answer import DRIVER_RESULT, DriverAnswer
from tilescope.value import Row, Value, own_data

# Of the kinds whose arguments could be meant, the first one is.
_OWN_ARGUMENTS: dict[type[AnyMap], set[str]] = {
    Im2colWideMap: {"lower_width", "upper_width", "mode"},
    Im2colMap: {"lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"},
    TensorMap: set(),
}
MAP_KINDS = {map_class.kind: map_class for map_class in reversed(_OWN_ARGUMENTS)}
_PARAMETERS: dict[type[AnyMap], Mapping[str, Parameter]] = {  # cached: a log needs them ten thousand times
    map_class: signature(map_class).parameters for map_class in _OWN_ARGUMENTS
}
_NOT_UNDERSTOOD = (UNKNOWN_NAME.name, ARGUMENT_TYPE.name, ARCH_PARTLY_KNOWN.name)
_EXAMPLES: dict[str, Any] = WIDE | IMAGES | MATRIX  # arguments by name, for the fix where one is missing
ARGUMENT_MISSING = rule(
    "argument-missing",
    "Every argument without a default is passed.",
    argument="{name}",
    found="no {name}",
    limit="{kind} map needs {needed:, }",
    fix="Add {name}, such as {example}.",
    source=CUDA_H,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX,
    failing={name: value for name, value in MATRIX.items() if name != "strides_bytes"},
)
# The driver's names of what people know by them.
_MISSING = {
    "lower_corner": ARGUMENT_MISSING.worded(found="no {name} (pixelBoxLowerCorner of the driver)"),
    "upper_corner": ARGUMENT_MISSING.worded(found="no {name} (pixelBoxUpperCorner of the driver)"),
}
_CHECKS: Mapping[type[AnyMap], Callable[..., tuple[Violation, ...]]] = {
    TensorMap: TensorMap.check,
    Im2colMap: Im2colMap.check,
    Im2colWideMap: Im2colWideMap.check,
}


@dataclass(frozen=True, slots=True)
class MapReport(Value):
    """Whether a map is accepted, all violations, and the map itself if it is accepted."""

    accepted: bool
    violations: tuple[Violation, ...]
    tensor_map: AnyMap | None

    @property
    def not_understood(self) -> tuple[Violation, ...]:
        """Violations of arguments without a meaning: a name in no table, or only partly in one, or a wrong type."""
        return tuple(broken for broken in self.violations if broken.rule in _NOT_UNDERSTOOD)


class ArgumentChange(NamedTuple):
    """An argument of a map, as it was given and as the driver takes it."""

    argument: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.argument == "address":
            return f"{self.argument}: {self.old:#x} → {self.new:#x}"
        return f"{self.argument}: {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class MapArguments:
    """Arguments by name, and the kind of map that they are for.

    >>> asked = MapArguments.of({"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [128, 8]})
    >>> asked.map_class.__name__, [violation.rule for violation in asked.check()]
    ('TensorMap', ['box-larger'])
    """

    map_class: type[AnyMap]
    given: Mapping[str, Any]
    answer: DriverAnswer = field(default=DriverAnswer(), compare=False)  # other values of a dump
    are_strides_computed: bool = field(default=False, compare=False)  # dense: omitted by the caller
    lines: tuple[int, ...] = field(default=(), compare=False)  # of the text that they come from, on which they begin

    @classmethod
    def of(cls, arguments: object) -> MapArguments:
        """The kind that `kind` or the names of the arguments imply; a hexadecimal address may be text."""
        if not isinstance(arguments, Mapping):
            raise RuleError([unknown_name("arguments by name, not", "arguments", arguments, TensorMap.readers)])
        named = own_data(arguments)
        kind = named.pop("kind", None)
        if kind is None:
            kind = _meant_kind(named)
        if not isinstance(kind, str) or kind not in MAP_KINDS:
            raise RuleError([unknown_name("kind of map", "kind", kind, MAP_KINDS)])
        if "address" in named:
            named["address"] = _address(named["address"])
        ordered = {name: named[name] for name in _PARAMETERS[MAP_KINDS[kind]] if name in named}
        return cls(MAP_KINDS[kind], ordered | named)

    def completed(self, base: MapArguments | None = None) -> MapArguments:
        """These arguments, the rest from `base`; omitted strides are dense, which needs a known type.

        The strides of `base` hold for as many dims as it has:

        >>> base = MapArguments.of({"data_type": "bf16", "dims": (100, 8), "strides_bytes": (256,), "box": (8, 8)})
        >>> MapArguments.of({"dims": (64, 8)}).completed(base).given["strides_bytes"]
        (256,)
        >>> MapArguments.of({"dims": (64, 4, 2)}).completed(base).given["strides_bytes"]
        (128, 512)
        """
        arguments = dict(self.given)
        if base is not None:
            base_arguments = {"kind": base.map_class.kind} | dict(base.given)
            if "dims" in arguments and len(arguments["dims"]) != len(base_arguments.get("dims", ())):
                base_arguments.pop("strides_bytes", None)
            arguments = base_arguments | arguments
        are_strides_computed = "strides_bytes" not in arguments and {"dims", "data_type"} <= arguments.keys()
        if are_strides_computed:
            interleave = arguments.get("interleave", "none")
            arguments["strides_bytes"] = _packed_strides(arguments["data_type"], interleave, arguments["dims"])
        is_about_these = base is None or set(self.given) <= {"arch"}  # the driver was called with other arguments
        answer = (base or self).answer if is_about_these else DriverAnswer()
        return replace(
            MapArguments.of(arguments),
            answer=answer,
            are_strides_computed=are_strides_computed,
            lines=(base or self).lines,
        )

    def check(self) -> tuple[Violation, ...]:
        """Every rule that the arguments break; missing and unknown ones are violations too."""
        wrong = self.misnamed()
        if wrong:
            return wrong
        violations = _CHECKS[self.map_class](**self.given)
        return *violations, *self.answer.violations(violations, self.given.get("address"))

    def report(self) -> MapReport:
        """The violations, and the map if it is accepted."""
        violations = self.check()
        refused = {violation.rule for violation in violations if violation.severity == "error"}
        tensor_map = self.tensor_map() if refused <= {DRIVER_RESULT.name} else None
        return MapReport(not refused, violations, tensor_map)

    def tensor_map(self) -> AnyMap:
        """The map, or TensorMapError with every violation."""
        wrong = self.misnamed()
        if wrong:
            raise TensorMapError(wrong)
        return self.map_class(**self.given)

    def repaired(self) -> MapArguments:
        """The nearest map that the driver takes; TensorMapError where a broken rule names no change that helps.

        No error is left, and no warning but those that the values cause which were given and are legal.

        >>> broken = {"data_type": "bf16", "dims": (4096, 1000), "strides_bytes": (8200,), "box": (128, 300), "swizzle": "128B"}
        >>> mended = MapArguments.of(broken).repaired().given
        >>> mended["strides_bytes"], mended["box"]
        ((8208,), (64, 256))
        """
        wrong = self.misnamed()
        if wrong:
            raise TensorMapError(wrong)
        check = _CHECKS[self.map_class]
        mended = repaired_arguments(check, self.given, are_strides_given=not self.are_strides_computed)
        return MapArguments(self.map_class, mended, lines=self.lines)

    def changes_to(self, other: MapArguments) -> tuple[ArgumentChange, ...]:
        """The arguments that differ in `other`, with both values; one that was not given had its default.

        >>> broken = MapArguments.of({"data_type": "u8", "dims": (64,), "strides_bytes": (), "box": (300,)})
        >>> [str(change) for change in broken.changes_to(broken.repaired())]
        ['box: (300,) → (256,)']
        """
        parameters = _PARAMETERS[self.map_class]
        changes = []
        for name, new in other.given.items():
            old = self.given.get(name, parameters[name].default)
            if name == "element_strides" and old is None:
                old = (1,) * len(self.given["dims"])
            if new is not None and _plain(old) != _plain(new):
                changes.append(ArgumentChange(name, _plain(old), _plain(new)))
        return tuple(changes)

    def with_defaults(self) -> dict[str, object]:
        """Every argument by name, those that were not given with their defaults, and the type as its table calls it.

        >>> asked = MapArguments.of({"data_type": "bf16", "dims": [64], "strides_bytes": [], "box": [512]})
        >>> asked.with_defaults()["data_type"], asked.with_defaults()["box"], asked.with_defaults()["swizzle"]
        ('bfloat16', (512,), 'none')
        """
        arguments: dict[str, object] = {}
        for name, parameter in _PARAMETERS[self.map_class].items():
            value = _plain(self.given.get(name, parameter.default))
            if name == "element_strides" and value is None:
                value = (1,) * len(self.given["dims"])
            if name == "data_type":
                value = DataType.named(value).name
            arguments[name] = value
        return arguments

    def misnamed(self) -> tuple[Violation, ...]:
        """What keeps the arguments from being a map's at all: unknown names, and missing ones."""
        parameters = _PARAMETERS[self.map_class]
        needed = tuple(name for name, parameter in parameters.items() if parameter.default is Parameter.empty)
        unknown = [self._unknown(str(name), parameters) for name in self.given if name not in parameters]
        missing = [
            _MISSING.get(name, ARGUMENT_MISSING).violation(
                name=name, kind=_with_article(self.map_class), needed=needed, example=repr(_EXAMPLES[name])
            )
            for name in needed
            if name not in self.given
        ]
        return *unknown, *missing

    def _unknown(self, name: str, parameters: Iterable[str]) -> Violation:
        """The violation for an argument that this kind of map does not have: another kind has it, or none."""
        others = [kind.subject for kind in reversed(_OWN_ARGUMENTS) if name in _PARAMETERS[kind]]
        if not others:
            return unknown_name("argument", name, name, parameters)
        fix = f"Leave {name} out."
        makes_it = [argument for argument in self.given if argument in _OWN_ARGUMENTS[self.map_class]]
        if makes_it:
            fix = f"Leave {name} out; or, for a {others[0]} map, leave out {', '.join(makes_it)}."
        return UNKNOWN_NAME.violation(
            argument=name,
            found=f"{name} in the arguments of {_with_article(self.map_class)} map",
            limit=f"{others[0]} maps have it, {self.map_class.subject} maps do not",
            fix=fix,
        )

    def lacking(self) -> tuple[Violation, ...]:
        """The arguments that are needed for a map: as `misnamed`, without the strides, which follow from the rest."""
        wrong = self.misnamed()
        return tuple(violation for violation in wrong if violation.argument != "strides_bytes") or wrong


def _with_article(map_class: type[AnyMap]) -> str:
    """The kind of a map, as a sentence names it: a tiled, an im2col, a wide."""
    article = "an" if map_class is Im2colMap else "a"
    return f"{article} {map_class.subject}"


def _meant_kind(named: Mapping[str, object]) -> str:
    """The kind of map whose own arguments are among these."""
    for map_class, arguments in _OWN_ARGUMENTS.items():
        if arguments & named.keys():
            return map_class.kind
    return TensorMap.kind


def _address(written: object) -> object:
    """The number in a text; another text is returned unchanged, and the rule argument-type names it."""
    if not isinstance(written, str):
        return written
    try:
        return int(written, 0)
    except ValueError:
        return written


def _packed_strides(data_type: object, interleave: object, dims: object) -> tuple[int, ...]:
    """Strides without any gap."""
    slice_bytes = Interleave.named(interleave).slice_bytes
    step_bits = slice_bytes * 8 if slice_bytes else DataType.named(data_type).tma.bits
    steps = accumulate((step_bits, *integers("dims", dims)[:-1]), mul)
    return tuple(bits // 8 for bits in steps)[1:]


def _plain(value: object) -> object:
    """A value as a change shows it: the name of a row, a sequence as a tuple."""
    if isinstance(value, Row):
        return value.name
    return tuple(value) if isinstance(value, list) else value
