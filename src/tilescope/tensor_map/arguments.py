"""The arguments of a map whose kind they decide: what JSON, a command line, a pasted dump or an example give.

{"data_type": "bf16", "dims": …, "box": …}             a tiled map
{… "lower_corner": …, "upper_corner": …}               an im2col map
{… "lower_width": …, "upper_width": …}                 an im2col-wide map
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from itertools import accumulate
from operator import mul
from typing import Any

from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.reading import integers
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.driver_answer import DRIVER_RESULT, DriverAnswer
from tilescope.tensor_map.kinds import Im2colMap, Im2colWideMap, TensorMap
from tilescope.tensor_map.option import Interleave
from tilescope.tensor_map.samples import CUDA_H, IMAGES, MATRIX, WIDE
from tilescope.value import Value

# Of the kinds whose arguments could be meant, the first one is.
_OWN_ARGUMENTS: dict[type[AnyMap], set[str]] = {
    Im2colWideMap: {"lower_width", "upper_width"},
    Im2colMap: {"lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"},
    TensorMap: set(),
}
MAP_KINDS = {map_class.kind: map_class for map_class in reversed(_OWN_ARGUMENTS)}
_EXAMPLES: dict[str, Any] = WIDE | IMAGES | MATRIX  # arguments by name, for the fix where one is missing
_CORNERS = {"lower_corner": "pixelBoxLowerCorner", "upper_corner": "pixelBoxUpperCorner"}
_MAX_REPAIRS = 20  # every round mends an argument; a map has fewer
argument_missing = map_rule(
    "argument-missing",
    "Every argument that has no default is given.",
    source=CUDA_H,
    passing=MATRIX,
    failing={name: value for name, value in MATRIX.items() if name != "strides_bytes"},
)
argument_json = map_rule(
    "argument-json",
    "Arguments in JSON are one object, by name.",
    source="RFC 8259",
    subjects=("paste",),
    passing='ts.tensor_map.MapArguments.from_json("""{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}""")',
    failing='ts.tensor_map.MapArguments.from_json("""["u8", [64], [], [64]]""")',
)


@dataclass(frozen=True, slots=True)
class MapReport(Value):
    """Whether a map is accepted, everything the rules say about it, and the map itself if it is one."""

    accepted: bool
    violations: tuple[Violation, ...]
    tensor_map: AnyMap | None


@dataclass(frozen=True, slots=True)
class MapArguments:
    """Arguments by name, and the kind of map that they are for.

    >>> asked = MapArguments.of({"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [128, 8]})
    >>> asked.map_class.__name__, [violation.rule for violation in asked.check()]
    ('TensorMap', ['box-larger'])
    """

    map_class: type[AnyMap]
    given: Mapping[str, Any]
    answer: DriverAnswer = field(default=DriverAnswer(), compare=False)  # what a dump says beside them

    @classmethod
    def of(cls, arguments: Any) -> MapArguments:
        """The kind that `kind` or the names of the arguments say; a hexadecimal address may be text."""
        if not isinstance(arguments, Mapping):
            known = signature(TensorMap).parameters
            raise RuleError([unknown_name("arguments by name, not", "arguments", arguments, known)])
        named = dict(arguments)
        kind = named.pop("kind", None)
        if kind is None:
            kind = next(known.kind for known, own in _OWN_ARGUMENTS.items() if not own or own & named.keys())
        if not isinstance(kind, str) or kind not in MAP_KINDS:
            raise RuleError([unknown_name("kind of map", "kind", kind, MAP_KINDS)])
        if isinstance(named.get("address"), str):
            with suppress(ValueError):  # it stays text, which the rule argument-type names
                named["address"] = int(named["address"], 0)
        ordered = {name: named[name] for name in signature(MAP_KINDS[kind]).parameters if name in named}
        return cls(MAP_KINDS[kind], ordered | named)

    @classmethod
    def from_json(cls, text: str | bytes) -> MapArguments:
        """What JSON says, as `to_dict` of a map prints it; an inspection or a convolution holds its map."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            value, found = None, f"no JSON: {error}"
        else:
            found = "tensor_map is null" if isinstance(value, dict) else f"a {type(value).__name__}"
        nested = value.get("tensor_map", value) if isinstance(value, dict) else value
        if not isinstance(nested, dict):
            fix = 'Use what json.dumps(tensor_map.to_dict()) prints: {"data_type": "bf16", "dims": [64, 64], …}.'
            raise argument_json.error("json", found, "a map is one JSON object", fix)
        return cls.of(nested)

    @classmethod
    def all_from_json(cls, text: str | bytes) -> tuple[MapArguments, ...]:
        r"""The maps that JSON lines hold, each once; what is not in lines is one map's. Lines without a map are left out.

        >>> line = '{"tensor_map": {"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [16]}, "result": 0}'
        >>> lines = [line % 64, line % 128, '{"tensor_map": null, "result": 1}']
        >>> [asked.given["dims"] for asked in MapArguments.all_from_json("\n".join(lines))]
        [[64], [128]]
        """
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            values = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return (cls.from_json(text),)
        calls_without_map = [isinstance(value, dict) and value.get("tensor_map", value) is None for value in values]
        held = [line for line, is_without in zip(lines, calls_without_map, strict=True) if not is_without]
        maps: list[MapArguments] = []
        for asked in map(cls.from_json, held or lines):
            maps += [] if asked in maps else [asked]
        return tuple(maps)

    def completed(self, base: MapArguments | None = None) -> MapArguments:
        """These arguments, the rest from `base`; strides that nobody gives are dense, which takes a type that is known.

        The strides of `base` hold for as many dims as it has:

        >>> base = MapArguments.of({"data_type": "bf16", "dims": (100, 8), "strides_bytes": (256,), "box": (8, 8)})
        >>> MapArguments.of({"dims": (64, 8)}).completed(base).given["strides_bytes"]
        (256,)
        >>> MapArguments.of({"dims": (64, 4, 2)}).completed(base).given["strides_bytes"]
        (128, 512)
        """
        arguments = dict(self.given)
        if base is not None:
            known = {"kind": base.map_class.kind} | dict(base.given)
            if "dims" in arguments and len(arguments["dims"]) != len(known.get("dims", ())):
                known.pop("strides_bytes", None)
            arguments = known | arguments
        if {"dims", "data_type"} <= arguments.keys() and "strides_bytes" not in arguments:
            slice_bytes = Interleave.named(arguments.get("interleave", "none")).slice_bytes
            step_bits = slice_bytes * 8 if slice_bytes else DataType.named(arguments["data_type"]).tma.bits
            steps = accumulate((step_bits, *integers("dims", arguments["dims"])[:-1]), mul)
            arguments["strides_bytes"] = tuple(bits // 8 for bits in steps)[1:]
        kept = base is None or set(self.given) <= {"arch"}  # of other arguments the driver was not asked
        return replace(MapArguments.of(arguments), answer=(base or self).answer if kept else DriverAnswer())

    def check(self) -> tuple[Violation, ...]:
        """Every rule that the arguments break; missing and unknown ones are violations too."""
        if wrong := self.misnamed():
            return wrong
        violations: tuple[Violation, ...] = self.map_class.check(**self.given)  # type: ignore[attr-defined]
        return *violations, *self.answer.violations(violations, self.given.get("address"))

    def report(self) -> MapReport:
        """What the rules say, and the map if they accept it."""
        violations = self.check()
        refused = [violation.rule for violation in violations if violation.severity == "error"]
        return MapReport(not refused, violations, self.tensor_map() if set(refused) <= {DRIVER_RESULT.name} else None)

    def tensor_map(self) -> AnyMap:
        """The map, or TensorMapError with every violation."""
        if wrong := self.misnamed():
            raise TensorMapError(wrong)
        return self.map_class(**self.given)

    def repaired(self) -> MapArguments:
        """The nearest map that the driver takes: every rule's own change applied; TensorMapError where a rule names none.

        >>> broken = {"data_type": "bf16", "dims": (4096, 1000), "strides_bytes": (8200,), "box": (128, 300), "swizzle": "128B"}
        >>> mended = MapArguments.of(broken).repaired().given
        >>> mended["strides_bytes"], mended["box"]
        ((8208,), (64, 256))
        """
        asked = self
        for _ in range(_MAX_REPAIRS):
            broken = [violation for violation in asked.check() if violation.severity == "error"]
            if not broken:
                return asked
            changed = {**asked.given, **next((violation.change for violation in broken if violation.change), {})}
            if changed == asked.given:
                break
            asked = MapArguments(asked.map_class, changed)
        raise TensorMapError([violation for violation in broken if not violation.change] or broken)

    def misnamed(self) -> tuple[Violation, ...]:
        """What keeps the arguments from being a map's at all: unknown names, and missing ones."""
        parameters = signature(self.map_class).parameters
        wrong = [unknown_name("argument", str(name), name, parameters) for name in self.given if name not in parameters]
        needed = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]
        kind = f"{'an' if self.map_class is Im2colMap else 'a'} {self.map_class.subject}"
        for name in needed:
            if name not in self.given:
                found = f"no {name}" + (f" ({_CORNERS[name]} of the driver)" if name in _CORNERS else "")
                limit, fix = f"{kind} map needs {', '.join(needed)}", f"Add {name}, such as {_EXAMPLES[name]!r}."
                wrong.append(argument_missing.violation(name, found, limit, fix))
        return tuple(wrong)
