"""The nearest map that the driver takes: every rule's own change applied, until none is broken.

box (128, 300), stride 8200   ──swizzle-span, box-range, stride-alignment──▶   box (64, 256), stride 8208
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilescope.errors import TensorMapError, Violation
from tilescope.tensor_map.arguments import MapArguments

_MAX_ROUNDS = 20  # every round mends an argument; a map has fewer


def repaired(asked: MapArguments) -> MapArguments:
    """The arguments with the changes that broken rules name; TensorMapError where a rule names none.

    >>> broken = {"data_type": "bf16", "dims": (4096, 1000), "strides_bytes": (8200,), "box": (128, 300), "swizzle": "128B"}
    >>> mended = repaired(MapArguments.of(broken)).given
    >>> mended["strides_bytes"], mended["box"]
    ((8208,), (64, 256))
    """
    for _ in range(_MAX_ROUNDS):
        broken = [violation for violation in asked.check() if violation.severity == "error"]
        if not broken:
            return asked
        change = next((violation.change for violation in broken if violation.change), None)
        if change is None or _changed(asked.given, change) == asked.given:
            raise TensorMapError(_without_change(broken))
        asked = MapArguments(asked.map_class, _changed(asked.given, change))
    raise TensorMapError(broken)


def _changed(arguments: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    return {**arguments, **change}


def _without_change(broken: list[Violation]) -> list[Violation]:
    return [violation for violation in broken if not violation.change] or broken
