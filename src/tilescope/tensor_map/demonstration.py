"""The examples of rules, run: the arguments of a map, a copy through a map, or an expression."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module

import numpy as np

from tilescope.errors import RuleError, Violation
from tilescope.rule import Example, Rule
from tilescope.tensor_map.copy_instruction import Copy
from tilescope.tensor_map.map_arguments import MapArguments
from tilescope.tensor_map.rules.copy_rules import broken_by

_MODULE_IN_EXPRESSION = re.compile(
    r"\bts\.((?:[a-z]\w*\.)*[a-z]\w*)\.[A-Za-z]\w*"
)  # tma.array_file of ts.tma.array_file.tile_of


def demonstrate(rule: Rule, example: Example | None) -> tuple[Violation, ...]:
    """Violations of `rule` that the example causes: none for its passing example, some for its failing one.

    >>> box_range = Rule.named("box-range")
    >>> demonstrate(box_range, box_range.passing)
    ()
    >>> demonstrate(box_range, box_range.failing)[0].fix
    'Use 256 and more copies.'
    """
    try:
        result = _list_violations(example)
    except RuleError as error:
        result = error.violations
    return tuple(entry for entry in result if isinstance(entry, Violation) and entry.rule == rule.name)


def _list_violations(example: Example | None) -> Iterable[object]:
    """What the example gives; only sequences can hold violations."""
    if example is None:
        return ()
    if isinstance(example, str):  # of our own source, like any other code
        for module in _MODULE_IN_EXPRESSION.findall(example):
            import_module(f"tilescope.{module}")
        result = eval(example, {"ts": import_module("tilescope"), "np": np})  # noqa: S307
        return result if isinstance(result, tuple | list) else ()
    arguments = dict(example)
    copy = arguments.pop("copy", None)
    map_arguments = MapArguments.of(arguments)
    return map_arguments.check() if copy is None else broken_by(Copy(map_arguments.tensor_map(), **copy))
