"""The rules, idea by idea; importing this package enters all of them into the rule book, in the order of a report.

arch      what an architecture can make at all; the packed 4- and 6-bit types
tensor    rank, address, dims and strides; the box, its rows, its traversal, its size, its fill
im2col    corners, channels, pixels; im2col-wide; offsets and base pixels of copies
accepted  what counts although the driver accepts the map: advice, and what copies demand of it

An example of a rule is the arguments of a map; with `copy`, a copy through that map; or an expression.
"""

from importlib import import_module
from typing import Any

import numpy as np

# isort: off
from tilescope.tensor_map.rules import arch
from tilescope.tensor_map.rules import tensor
from tilescope.tensor_map.rules import im2col
from tilescope.tensor_map.rules import accepted

# isort: on
from tilescope.errors import RuleError, Violation
from tilescope.rule import Example, Rule
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.checking import Copy

__all__ = ["accepted", "arch", "demonstrated", "im2col", "tensor"]


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
            said = asked.check() if copy is None else accepted.broken_by(Copy(asked.tensor_map(), **copy))
    except RuleError as error:
        said = error.violations
    violations = (entry for entry in said if isinstance(entry, Violation)) if isinstance(said, tuple | list) else ()
    return tuple(violation for violation in violations if violation.rule == rule.name)
