"""The base of all results: frozen values that convert to plain data and back, and draw themselves.

    value ── to_dict() ──▶ {"kind": "wgmma_descriptor", "start_address": "0x400", ...} ── json ──▶ anywhere
          ◀─ from_dict() ──

Addresses and descriptor words become hexadecimal strings, because JavaScript rounds integers above
2^53; rows of tables (`Swizzle`, `DataType`, `Arch`) become their names; arrays become nested lists.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from tilescope.errors import RuleError, Violation, broken, missing_fields, shortened, unknown_name


def hex_field(**options: Any) -> Any:
    """A dataclass field of addresses or descriptor words: hexadecimal in `to_dict`."""
    return field(metadata={"hex": True}, **options)


def array_field(dtype: str, **options: Any) -> Any:
    """A dataclass field that holds a read-only array of `dtype`."""
    return field(metadata={"dtype": dtype}, **options)


def row_field(named: Callable[[Any], Any], **options: Any) -> Any:
    """A dataclass field that holds a row of a table; `named` finds the row by its name."""
    return field(metadata={"named": named}, **options)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array with its write flag cleared, as results hold them."""
    array.flags.writeable = False
    return array


def plain_int(given: object) -> int | None:
    """The int that `given` stands for, numpy's integers included; None for anything else, and for a bool.

    >>> plain_int(np.uint8(7)), plain_int(7.0), plain_int(True)
    (7, None, None)
    """
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        return None


class Value:
    """Base of tilescope's frozen dataclasses: equality, plain data, notebook display.

    A dataclass that holds arrays is declared with `eq=False`, so that it compares by this class.

    >>> import tilescope as ts
    >>> tile = ts.Layout((8, 64), 16, swizzle="128B", start=0x400)
    >>> tile.to_dict()["start"], Value.from_dict(tile.to_dict()) == tile
    ('0x400', True)
    """

    __slots__ = ()
    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Value]]] = {}
    _derived: ClassVar[tuple[str, ...]] = ()  # properties that to_dict shows for reading; from_dict passes them over

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        known = Value._kinds.setdefault(cls.kind, cls)
        same = (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)  # slots make a class twice
        assert same, f"two kinds of value are called {cls.kind}: {known} and {cls}"
        Value._kinds[cls.kind] = cls

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, with the value's `kind`; JSON takes it as it is."""
        shown = {name: _plain(getattr(self, name), _PROPERTY) for name in self._derived}
        return {"kind": self.kind} | {
            each.name: _plain(getattr(self, each.name), each) for each in _fields(self) if each.init
        } | shown  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The value that `to_dict` described; on `Value` itself, of whatever kind it was."""
        found = data.get("kind", cls.__dict__.get("kind")) if isinstance(data, Mapping) else None
        chosen = Value._kinds.get(found) if isinstance(found, str) else None
        if chosen is None or not issubclass(chosen, cls):
            known = [kind for kind, each in Value._kinds.items() if issubclass(each, cls)]
            raise RuleError([unknown_name("kind", "kind", found, known)])
        if chosen is not cls and "from_dict" in vars(chosen):  # a value that reads its plain data in its own way
            return chosen.from_dict(data)
        data = {name: value for name, value in data.items() if name not in chosen._derived}
        known_fields = {each.name: each for each in _fields(chosen) if each.init}
        if strange := [name for name in data if name != "kind" and name not in known_fields]:
            raise RuleError(unknown_name(f"field of {chosen.kind}", "data", name, known_fields) for name in strange)
        parameters = inspect.signature(chosen).parameters.values()
        if missing := [each.name for each in parameters if each.default is each.empty and each.name not in data]:
            raise missing_fields(chosen.kind, missing)
        return chosen(**{name: _revived(data[name], each) for name, each in known_fields.items() if name in data})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, each.name), getattr(other, each.name)) for each in _fields(self))

    def __hash__(self) -> int:
        return hash(tuple(_hashable(getattr(self, each.name)) for each in _fields(self)))

    def text(self) -> str:
        """The value drawn with characters, without colour."""
        from tilescope import view

        return view.text(self)

    def svg(self) -> str:
        """The value drawn as a standalone SVG document."""
        from tilescope import view

        drawn = view.svg(self)
        if drawn is None:
            raise broken("drawing", "value", f"a {self.kind}", "it has no drawing", "Print it, or use to_dict().")
        return drawn

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from tilescope import view

        drawn = view.svg(self)
        return {"text/plain": repr(self)} | ({} if drawn is None else {"image/svg+xml": drawn})


class Row(Value):
    """A row of one of tilescope's tables; inside other values' plain data, and pickled, it is its name."""

    __slots__ = ()
    name: str

    @classmethod
    def named(cls, name: Any) -> Self:
        """The row called `name`."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return type(self).named, (self.name,)


_PROPERTY: Field[Any] = field()  # stands for a property: a field without marks


def _fields(value: Any) -> tuple[Field[Any], ...]:
    return fields(value)  # every subclass is a dataclass


def _plain(value: Any, described: Field[Any]) -> Any:
    if isinstance(value, Row):
        return value.name
    if isinstance(value, Value | Violation):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return _plain(value.item(), described)
    if isinstance(value, tuple | list):
        return [_plain(item, described) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, described) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and described.metadata.get("hex"):
        return hex(value)
    return value


def _revived(value: Any, described: Field[Any]) -> Any:
    if "dtype" in described.metadata:
        return None if value is None else _revived_array(value, described)
    if isinstance(value, Mapping) and value.get("kind") == "violation":
        return Violation.from_dict(value)
    if isinstance(value, Mapping) and value.get("kind") in Value._kinds:
        return Value.from_dict(value)
    if isinstance(value, tuple | list):
        return tuple(_revived(item, described) for item in value)
    if isinstance(value, str) and described.metadata.get("hex"):
        try:
            return int(value, 0)
        except ValueError:
            raise broken(
                "number", described.name, shortened(repr(value)), "an integer such as 1024 or 0x400", "Correct it."
            ) from None
    if isinstance(value, str) and "named" in described.metadata:
        return described.metadata["named"](value)
    return value


def _revived_array(value: Any, described: Field[Any]) -> np.ndarray[Any, Any]:
    dtype = described.metadata["dtype"]
    try:
        return read_only(np.array(value, dtype=dtype))
    except (TypeError, ValueError, OverflowError):
        found, limit = shortened(repr(value)), f"nested lists of {dtype}"
        raise broken("array", described.name, found, limit, "Give what to_dict() gave.") from None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)


def _hashable(value: Any) -> Any:
    """Equal for equal values, whatever the dtype of an array or the order of a mapping."""
    if isinstance(value, np.ndarray):
        return value.shape, tuple(value.ravel()[:16].tolist())
    if isinstance(value, Mapping):
        return frozenset(value)
    return value
