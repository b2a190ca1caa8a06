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
from typing import Any

from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.reading import integers
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.driver_answer import DRIVER_RESULT, DriverAnswer
from tilescope.tensor_map.im2col import Im2colMap, Im2colWideMap
from tilescope.tensor_map.option import Interleave
from tilescope.tensor_map.rules.samples import IMAGES, MATRIX, WIDE
from tilescope.tensor_map.tiled import TensorMap
from tilescope.value import Value

MAP_KINDS: dict[str, type[AnyMap]] = {each.kind: each for each in (TensorMap, Im2colMap, Im2colWideMap)}

_EXAMPLES: dict[str, Any] = WIDE | IMAGES | MATRIX  # arguments by name, for the fix where one is missing
_CORNERS = {"lower_corner": "pixelBoxLowerCorner", "upper_corner": "pixelBoxUpperCorner"}
argument_missing = map_rule(
    "argument-missing", "Every argument that has no default is given.", source="cuda.h, cuTensorMapEncodeTiled",
    passing=MATRIX, failing={name: value for name, value in MATRIX.items() if name != "strides_bytes"},
)  # fmt: skip

argument_json = map_rule(
    "argument-json", "Arguments in JSON are one object, by name.", source="RFC 8259", subjects=("paste",),
    passing={"json": '{"data_type": "bf16", "dims": [64], "strides_bytes": [], "box": [64]}'},
    failing={"json": '["bf16", [64], [], [64]]'},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MapReport(Value):
    """Whether a map is accepted, everything the rules say about it, and the map itself if it is one."""

    accepted: bool
    violations: tuple[Violation, ...]
    tensor_map: AnyMap | None


def _is_call_without_map(found: Any) -> bool:
    return isinstance(found, dict) and found.get("tensor_map", found) is None


@dataclass(frozen=True, slots=True)
class MapArguments:
    """Arguments by name, and the kind of map that they are for.

    >>> asked = MapArguments.of({"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [128, 8]})
    >>> asked.map_class.__name__, [found.rule for found in asked.check()]
    ('TensorMap', ['box-larger'])
    """

    map_class: type[AnyMap]
    given: Mapping[str, Any]
    answer: DriverAnswer = field(default=DriverAnswer(), compare=False)  # what a dump says beside them

    @classmethod
    def of(cls, given: Any) -> MapArguments:
        """The kind that `kind` or the names of the arguments say; a hexadecimal address may be text."""
        if not isinstance(given, Mapping):
            raise RuleError(
                [unknown_name("arguments by name, not", "arguments", given, signature(TensorMap).parameters)]
            )
        arguments = dict(given)
        kind = arguments.pop("kind", None)
        if kind is None:
            chosen: type[AnyMap] = TensorMap
            if "lower_width" in arguments or "upper_width" in arguments:
                chosen = Im2colWideMap
            elif arguments.keys() & {"lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"}:
                chosen = Im2colMap
        elif isinstance(kind, str) and kind in MAP_KINDS:
            chosen = MAP_KINDS[kind]
        else:
            raise RuleError([unknown_name("kind of map", "kind", kind, MAP_KINDS)])
        address = arguments.get("address")
        if isinstance(address, str):
            with suppress(ValueError):  # it stays text, which the rule argument-type names
                arguments["address"] = int(address, 0)
        ordered = {name: arguments[name] for name in signature(chosen).parameters if name in arguments}
        return cls(chosen, ordered | arguments)

    @classmethod
    def from_json(cls, text: str | bytes) -> MapArguments:
        """What JSON says, as `to_dict` of a map prints it; an inspection or a convolution holds its map."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RuleError(
                [
                    argument_json.violation(
                        "json",
                        f"no JSON: {error}",
                        "a map is one JSON object",
                        "Use what json.dumps(tensor_map.to_dict()) prints.",
                    )
                ]
            ) from None
        nested = found.get("tensor_map", found) if isinstance(found, dict) else found
        if not isinstance(nested, dict):
            what = f"a {type(found).__name__}" if nested is found else "tensor_map is null"
            fix = 'Use {"data_type": "bf16", "dims": [64, 64], …}.'
            raise RuleError([argument_json.violation("json", what, "a map is one JSON object", fix)])
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
            objects = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            return (cls.from_json(text),)
        held = [line for line, found in zip(lines, objects, strict=True) if not _is_call_without_map(found)]
        found: list[MapArguments] = []
        for each in map(cls.from_json, held or lines):
            if each not in found:
                found.append(each)
        return tuple(found)

    def completed(self, base: MapArguments | None = None) -> MapArguments:
        """These arguments, the rest from `base`; strides that nobody gives are dense, which takes a type that is known.

        The strides of `base` hold for as many dims as it has:

        >>> base = MapArguments.of({"data_type": "bf16", "dims": (100, 8), "strides_bytes": (256,), "box": (8, 8)})
        >>> MapArguments.of({"dims": (64, 8)}).completed(base).given["strides_bytes"]
        (256,)
        >>> MapArguments.of({"dims": (64, 4, 2)}).completed(base).given["strides_bytes"]
        (128, 512)
        """
        given = dict(self.given)
        if base is not None:
            known = {"kind": base.map_class.kind} | dict(base.given)
            if "dims" in given and len(given["dims"]) != len(known.get("dims", ())):
                known.pop("strides_bytes", None)
            given = known | given
        if {"dims", "data_type"} <= given.keys() and "strides_bytes" not in given:
            given["strides_bytes"] = _dense_strides(given)
        kept = base is None or set(self.given) <= {"arch"}  # of other arguments the driver was not asked
        return replace(MapArguments.of(given), answer=(base or self).answer if kept else DriverAnswer())

    def check(self) -> tuple[Violation, ...]:
        """Every rule that the arguments break; missing and unknown ones are violations too."""
        wrong = self.misnamed()
        if wrong:
            return wrong
        found: tuple[Violation, ...] = self.map_class.check(**self.given)  # type: ignore[attr-defined]
        return *found, *self.answer.violations(found, self.given.get("address"))

    def report(self) -> MapReport:
        """What the rules say, and the map if they accept it."""
        violations = self.check()
        refused = [violation.rule for violation in violations if violation.severity == "error"]
        return MapReport(not refused, violations, self.tensor_map() if set(refused) <= {DRIVER_RESULT.name} else None)

    def tensor_map(self) -> AnyMap:
        """The map, or TensorMapError with every violation."""
        wrong = self.misnamed()
        if wrong:
            raise TensorMapError(wrong)
        return self.map_class(**self.given)

    def misnamed(self) -> tuple[Violation, ...]:
        """What keeps the arguments from being a map's at all: unknown names, and missing ones."""
        parameters = signature(self.map_class).parameters
        wrong = [unknown_name("argument", str(name), name, parameters) for name in self.given if name not in parameters]
        for name, parameter in parameters.items():
            if parameter.default is Parameter.empty and name not in self.given:
                needed = ", ".join(each.name for each in parameters.values() if each.default is Parameter.empty)
                wrong.append(argument_missing.violation(
                    name, f"no {name}" + (f" ({_CORNERS[name]} of the driver)" if name in _CORNERS else ""),
                    f"{'a' if self.map_class is not Im2colMap else 'an'} {self.map_class.subject} map needs {needed}",
                    f"Add {name}, such as {_EXAMPLES[name]!r}.",
                ))  # fmt: skip
        return tuple(wrong)


def _dense_strides(given: Mapping[str, Any]) -> tuple[int, ...]:
    """Strides without padding."""
    slice_bytes = Interleave.named(given.get("interleave", "none")).slice_bytes
    step_bits = slice_bytes * 8 if slice_bytes else DataType.named(given.get("data_type")).tma.bits
    strides = []
    for extent in integers("dims", given["dims"])[:-1]:
        step_bits *= extent
        strides.append(step_bits // 8)
    return tuple(strides)
