"""Problems for a sweep from a file: JSON, TOML or CSV, or every combination of some lists.

[{"tile": "128x64", "data_type": "bf16"}, …]        JSON: a list of objects, or one a line
[[problem]]                                         TOML
tile = [128, 64]
tile,data_type,major                                CSV: the first line names the columns
128x64,bf16,K
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from io import StringIO
from itertools import islice, product
from typing import Any

from tilescope import written
from tilescope.errors import RuleError, shortened, unknown_name
from tilescope.planner.problem import Problem
from tilescope.planner.sweeping import MAX_PROBLEMS, PROBLEM_FILE

_NAMES = tuple(name for name in signature(Problem.__init__).parameters if name not in ("self", "extent_names"))
_ALIASES = {"type": "data_type", "dtype": "data_type", "order": "atom_order", "shape": "global_shape"}
_EXTENTS = ("tile", "global_shape", "strides_bytes")
_TRUE = ("1", "true", "yes")


def read_problems(content: bytes) -> list[dict[str, Any]]:
    """The arguments of every problem in a file.

    >>> read_problems(b'[{"tile": "128x64", "type": "bf16", "stages": 4}]')
    [{'tile': (128, 64), 'data_type': 'bf16', 'stages': 4}]
    """
    text = content.decode("utf-8-sig", errors="replace").strip()
    try:
        rows = list(islice(_rows(text), MAX_PROBLEMS + 1))
    except (ValueError, RecursionError, csv.Error) as error:  # JSON and TOML say what is wrong with a ValueError
        raise _wrong(shortened(" ".join(str(error).split()), 80)) from None
    if not rows or len(rows) > MAX_PROBLEMS:
        raise _wrong("no problem" if not rows else f"more than {MAX_PROBLEMS} problems")
    return [_arguments(row) for row in rows]


def combinations(lists: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of some arguments, the last one fastest.

    >>> len(list(combinations({"tile": [(64, 64), (128, 64)], "data_type": ["bf16"], "major": ["K", "MN"]})))
    4
    """
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def _rows(text: str) -> Iterator[Any]:
    if text[:1] == "[" and text[:2] != "[[":
        yield from json.loads(text)
    elif text[:1] == "{":
        for line in text.splitlines() if "\n{" in text else [text]:
            found = json.loads(line)
            yield from (
                found["problems"] if isinstance(found, dict) and isinstance(found.get("problems"), list) else [found]
            )
    elif text[:2] == "[[" or "\n[[" in text:
        for tables in tomllib.loads(text).values():
            yield from tables if isinstance(tables, list) else []
    else:
        for row in csv.DictReader(StringIO(text)):
            yield {name: value for name, value in row.items() if value not in ("", None)}


def _arguments(row: Any) -> dict[str, Any]:
    """The arguments of one problem, by their names, numbers as numbers."""
    if not isinstance(row, dict) or not all(isinstance(name, str) for name in row):
        raise _wrong(f"{shortened(str(row), 40)} in place of a problem")
    named = {_ALIASES.get(name.strip(), name.strip()): value for name, value in row.items()}
    unknown = [name for name in named if name not in _NAMES]
    if unknown:
        raise RuleError(
            [unknown_name(shortened(name, 40), "argument of a problem", name, _NAMES) for name in unknown[:4]]
        )
    return {name: _value(name, value) for name, value in named.items()}


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    try:
        if name in _EXTENTS:
            return written.numbers(value)
        if name == "stages":
            return written.number(value)
    except ValueError as error:
        raise _wrong(f"{name}: {error.args[0]}") from None
    return value.strip().casefold() in _TRUE if name == "fold" else value.strip()


def _wrong(found: str) -> RuleError:
    return PROBLEM_FILE.error(
        "source", found, "JSON, TOML or CSV with the arguments of problems, such as tile and data_type",
        'Write [{"tile": "128x64", "data_type": "bf16"}], or a CSV whose first line is tile,data_type.',
    )  # fmt: skip
