"""Running the examples of a rule: what tilescope says to the one within the limit, and to the one beyond it.

An example is the arguments of a map; with `copy`, a copy through that map; or an expression.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilescope.errors import RuleError, Violation
from tilescope.rule import Example, Rule
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.copy import Copy
from tilescope.tensor_map.encode_call import encode_call  # with what it imports, this enters all rules about pastes
from tilescope.tensor_map.rules.instruction import broken_by

__all__ = ["demonstrated", "encode_call"]


def demonstrated(rule: Rule, example: Example | None) -> tuple[Violation, ...]:
    """Violations of `rule` that the example causes: none for its passing example, some for its failing one.

    >>> box_range = Rule.named("box-range")
    >>> demonstrated(box_range, box_range.passing)
    ()
    >>> demonstrated(box_range, box_range.failing)[0].fix
    'Use 256 and more copies.'
    """
    said: Any = ()
    try:
        if isinstance(example, str):  # of our own source, like any other code
            said = eval(example, {"ts": import_module("tilescope"), "np": np})  # noqa: S307
        elif example is not None:
            arguments = dict(example)
            copy = arguments.pop("copy", None)
            asked = MapArguments.of(arguments)
            said = asked.check() if copy is None else broken_by(Copy(asked.tensor_map(), **copy))
    except RuleError as error:
        said = error.violations
    listed = said if isinstance(said, tuple | list) else ()
    return tuple(entry for entry in listed if isinstance(entry, Violation) and entry.rule == rule.name)
