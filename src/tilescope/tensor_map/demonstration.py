"""Running the examples of a rule: what tilescope says to the one within the limit, and to the one beyond it.

What an example is depends on what the rule speaks of; of anything but tensor maps it is an expression:

    a map           the arguments of the map
    instruction     a map, and the copy that uses it
    descriptor      a map whose encoded words are overwritten, or cut short
    replacement     a map, and the fields to replace
    array           the metadata of an array, and a box
    convolution     the arguments of Im2colMap.for_convolution
    paste           text
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilescope.errors import RuleError, Violation
from tilescope.rule import Example, Rule
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.copy import Copy
from tilescope.tensor_map.decoding import descriptor_bytes, inspect_tensor_map
from tilescope.tensor_map.encode_call import encode_calls
from tilescope.tensor_map.im2col import Im2colMap
from tilescope.tensor_map.rules.instruction import broken_by
from tilescope.tensor_map.tiled import TensorMap


def demonstrated(rule: Rule, example: Example | None) -> tuple[Violation, ...]:
    """Violations of `rule` that the example causes: none for its passing example, some for its failing one.

    >>> box_range = Rule.named("box-range")
    >>> demonstrated(box_range, box_range.passing)
    ()
    >>> demonstrated(box_range, box_range.failing)[0].fix
    'Use 256 and more copies.'
    """
    found: Any = ()
    try:
        if isinstance(example, str):  # of our own source, like any other code
            found = eval(example, {"ts": import_module("tilescope"), "np": np})  # noqa: S307
        elif example is not None:
            found = _RUN.get(rule.subjects[0], _run_map)(dict(example))
    except RuleError as error:
        found = error.violations
    listed = found if isinstance(found, tuple | list) else ()
    return tuple(each for each in listed if isinstance(each, Violation) and each.rule == rule.name)


def _run_map(example: dict[str, Any]) -> tuple[Violation, ...]:
    return MapArguments.of(example).check()


def _run_copy(example: dict[str, Any]) -> tuple[Violation, ...]:
    copy = example.pop("copy")
    return broken_by(Copy(MapArguments.of(example).tensor_map(), **copy))


def _run_encoding(example: dict[str, Any]) -> tuple[Violation, ...]:
    MapArguments.of(example).tensor_map().encode()
    return ()


def _run_descriptor(example: dict[str, Any]) -> tuple[Violation, ...]:
    edits = example.pop("descriptor")
    words = list(struct.unpack("<16Q", MapArguments.of(example).tensor_map().encode()))
    for name, value in edits.items():
        if name.startswith("word "):
            words[int(name.removeprefix("word "))] = value
    return inspect_tensor_map(struct.pack("<16Q", *words)[: edits.get("bytes")]).violations


def _run_replacement(example: dict[str, Any]) -> tuple[Violation, ...]:
    fields = example.pop("replace")
    MapArguments.of(example).tensor_map().replace(**fields)
    return ()


def _run_array(example: dict[str, Any]) -> tuple[Violation, ...]:
    array = SimpleNamespace(__array_interface__=example["array"] | {"data": (0x1000, False), "version": 3})
    return TensorMap.from_array(array, example["box_shape"]).findings


def _run_convolution(example: dict[str, Any]) -> tuple[Violation, ...]:
    return Im2colMap.for_convolution(**example).tensor_map.findings


def _run_paste(example: dict[str, Any]) -> tuple[Violation, ...]:
    read: dict[str, Callable[[str], object]] = {
        "text": descriptor_bytes,
        "dump": dumped_arguments,
        "call": encode_calls,
        "json": MapArguments.from_json,
    }
    found = [read[name](text) for name, text in example.items()]
    return tuple(each for asked in found if isinstance(asked, tuple) for each in asked[0].check())


_RUN: dict[str, Callable[[dict[str, Any]], tuple[Violation, ...]]] = {
    "instruction": _run_copy,
    "encoding": _run_encoding,
    "descriptor": _run_descriptor,
    "replacement": _run_replacement,
    "array": _run_array,
    "convolution": _run_convolution,
    "paste": _run_paste,
}
