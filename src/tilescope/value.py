"""The base of all results: frozen values that convert to plain data and back, and draw themselves.

    value ── to_dict() ──▶ {"kind": "wgmma_descriptor", "start_address": "0x400", ...} ── json ──▶ anywhere
          ◀─ from_dict() ──

Addresses and descriptor words become hexadecimal strings, because JavaScript rounds integers above
2^53; rows of tables (`Swizzle`, `DataType`, `Arch`) become their names; arrays become nested lists.

    repr(value)   one short line: rows as their names, inner values and long sequences cut
    str(value)    its drawing, where its kind has one
    a notebook    its drawing, or its fields as a table; a list of values or violations is a table too
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast

from tilescope.errors import (
    PlainData,
    RuleError,
    Violation,
    argument_type,
    check_fields,
    unknown_name,
    violations_table,
)
from tilescope.html_table import html_table
from tilescope.sentence import by, counted, shorten

if TYPE_CHECKING:
    import numpy as np  # late: a tenth of a second, and few values hold arrays

# The modules that, with what they import, define every kind of value. All of them import this one, so they are
# imported by name, and only when a kind is asked for that is not known yet: a fresh process reads JSON.
_DEFINING_MODULES = (
    "layout",
    "tensor_map",
    "tensor_map.text.log_difference",
    "tma",
    "tma.place",
    "mma.consumer",
    "mma.agreement",
    "mma.readings",
    "mma.pair_shares",
    "mma.tensor_memory",
    "smem.layout_search",
    "smem.report",
    "notation",
    "sync.mbarrier",
    "pipeline.simulation",
    "machine.report.line_count",
    "machine.launch.described_launch",
    "triton.program_report",
    "planner",
    "kernel_plan",
    "gpu.bench.benchmark",
    "gpu.driver.environment",
    "gpu.bench.gemm_benchmark",
    "gpu.verify.verification",
    "gpu.watch.watch_text",
    "questions.decode_questions",
    "symptoms.topic",
)
_RENDERER_MODULE = "tilescope.view"
# Keys of plain data that a command adds beside a value's own: the version of the format, its answer in a sentence, what to
# do where it is no, and further facts. from_dict passes them over.
VERSION = "version"
ANSWER = "answer"
ADVICE = "advice"
EXTRA = "extra"
_BESIDE = (VERSION, ANSWER, ADVICE, EXTRA)
JSON_VERSION = 1  # grows when a field goes, or means something else; what an older version wrote is read all the same
_REPR_BUDGETS = (400, 100, 60, 40, 24, 12)  # characters that a field of a repr may take, until all take 400
_ENTRIES_SHOWN = 4  # of a long sequence …
_ENTRIES_READ = 64  # … and those that are looked at
_LEAST_ROOM = 24  # characters of a text that is cut
_TABLE_ROOM = 100  # characters of a field in a table of one value …
_ROW_ROOM = 48  # … and in a table with a row for each value
_Array: TypeAlias = "np.ndarray[Any, Any]"
_Field: TypeAlias = "Field[Any]"
Array = TypeVar("Array", bound="np.ndarray[Any, Any]")


def hex_field(**options: Any) -> Any:  # like dataclasses.field, for a field of any type
    """A dataclass field of addresses or descriptor words: hexadecimal in `to_dict`."""
    return field(metadata={"hex": True}, **options)


def array_field(dtype: str, **options: Any) -> Any:
    """A dataclass field that holds a read-only array of `dtype`."""
    return field(metadata={"dtype": dtype}, **options)


def row_field(named: Callable[[object], Row], **options: Any) -> Any:
    """A dataclass field that holds a row of a table; `named` finds the row by its name."""
    return field(metadata={"named": named}, **options)


def own_data(data: Mapping[str, Any]) -> PlainData:
    """Plain data without what a command adds to it.

    >>> own_data({"kind": "swizzle", "answer": "Swizzle 64B moves …", "name": "64B"})
    {'kind': 'swizzle', 'name': '64B'}
    """
    return {name: value for name, value in data.items() if name not in _BESIDE}


def read_only(array: Array) -> Array:
    """The array with its write flag cleared, as results hold them."""
    array.flags.writeable = False
    return array


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

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        first = Value._kinds.setdefault(cls.kind, cls)
        same = (first.__module__, first.__qualname__) == (cls.__module__, cls.__qualname__)  # slots make a class twice
        assert same, f"two kinds of value are called {cls.kind}: {first} and {cls}"
        Value._kinds[cls.kind] = cls
        if not cls.__dict__.get("_extends_a_kind", False):
            for base in cls.__mro__[1:]:  # what other kinds derive from is no kind itself
                Value._kinds.pop(base.__dict__.get("kind", ""), None)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # the class's own: dataclass leaves that alone

    def to_dict(self) -> PlainData:
        """Plain dicts, lists, strings and numbers, with the value's `kind`; JSON takes it as it is."""
        field_values = {field.name: _plain(getattr(self, field.name), field) for field in _fields(self) if field.init}
        derived = {name: _plain(getattr(self, name), _PROPERTY) for name in self._derived}
        return {"kind": self.kind, **field_values, **derived}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The value that `to_dict` described; on `Value` itself, of whatever kind it was."""
        kind = data.get("kind", cls.__dict__.get("kind")) if isinstance(data, Mapping) else None
        if cls is Value and isinstance(kind, str) and kind == Violation.kind:
            return Violation.from_dict(data)  # type: ignore[return-value]  # the one kind that is no Value: errors.py comes first
        chosen = _kind_called(kind) if isinstance(kind, str) else None
        if chosen is None or not issubclass(chosen, cls):
            kinds = sorted(name for name, value_class in Value._kinds.items() if issubclass(value_class, cls))
            raise RuleError([unknown_name("kind", "kind", kind, kinds)])
        if chosen is not cls and "from_dict" in vars(chosen):  # a value that reads its plain data in its own way
            return chosen.from_dict(data)
        field_values = {name: value for name, value in own_data(data).items() if name not in (*chosen._derived, "kind")}
        chosen_fields = {field.name: field for field in _fields(chosen) if field.init}
        parameters = inspect.signature(chosen).parameters
        needed = (name for name, parameter in parameters.items() if parameter.default is parameter.empty)
        check_fields(chosen.kind, field_values, chosen_fields, needed)
        return chosen(**{name: _revive(value, chosen_fields[name]) for name, value in field_values.items()})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        compared = (field.name for field in _fields(self) if field.compare)
        return all(_same(getattr(self, name), getattr(other, name)) for name in compared)

    def __hash__(self) -> int:
        return hash(tuple(_hashable(getattr(self, field.name)) for field in _fields(self) if field.compare))

    def __repr__(self) -> str:
        """The call that makes the value, defaults left out; what is long is cut until the whole is short."""
        parameters = inspect.signature(type(self)).parameters
        candidates = (field for field in _fields(self) if field.repr and field.name in parameters)
        shown = [field for field in candidates if not _is_default(self, field, parameters[field.name].default)]
        text = ""
        for room in _REPR_BUDGETS:
            parts = (f"{field.name}={_cut_repr(getattr(self, field.name), field, room)}" for field in shown)
            text = f"{type(self).__name__}({', '.join(parts)})"
            if len(text) <= _REPR_BUDGETS[0]:
                break
        return text

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """The value drawn with characters, without colour."""
        return _renderer().text(self)

    def svg(self) -> str:
        """The value drawn as a standalone SVG document."""
        renderer = _renderer()
        drawn = renderer.svg(self)
        if drawn is None:
            raise renderer.no_drawing(self)
        return drawn

    def html(self) -> str:
        """The value drawn as standalone HTML, for a notebook or a web page.

        What belongs together lights up under the mouse, and a slider steps through the drawing, where there are steps.
        """
        renderer = _renderer()
        drawn = renderer.html(self)
        if drawn is None:
            raise renderer.no_drawing(self)
        return drawn

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        pictures = _renderer().notebook_pictures(self) or {"text/html": fields_table(self)}
        return {"text/plain": repr(self)} | pictures


class _Renderer(Protocol):
    """The functions by which a value draws itself; `tilescope.view` has them."""

    def text(self, value: Value, /) -> str: ...

    def svg(self, value: Value, /) -> str | None: ...

    def html(self, value: Value, /) -> str | None: ...

    def notebook_pictures(self, value: Value, /) -> dict[str, str]: ...

    def no_drawing(self, value: Value, /) -> RuleError: ...


def _renderer() -> _Renderer:
    """The package that draws values. It imports this module, so it is loaded by name when the first value is drawn."""
    return cast("_Renderer", import_module(_RENDERER_MODULE))


def fields_table(value: Value) -> str:
    """The fields of a value as an HTML table, for one that has no drawing.

    >>> from tilescope.arch import Arch
    >>> fields_table(Arch.named("sm_90")).splitlines()[1]
    '<caption style="text-align:left">Arch</caption>'
    """
    texts = _field_texts(value, _TABLE_ROOM)
    return html_table((), texts.items(), caption=type(value).__name__)


def rows_table(rows: object) -> str | None:
    """Values of one kind, or violations, as the rows of an HTML table; None for anything else.

    >>> from tilescope.arch import ARCH
    >>> rows_table([*ARCH.values()]).count("<tr>") == 1 + len(ARCH)
    True
    >>> rows_table([1, 2]), rows_table(())
    (None, None)
    """
    if not isinstance(rows, tuple | list) or not rows:
        return None
    kinds = {type(row) for row in rows}
    kind = kinds.pop()
    if kinds or not issubclass(kind, Value | Violation):
        return None
    if issubclass(kind, Violation):
        return violations_table(rows)
    text_rows = [_field_texts(row, _ROW_ROOM) for row in rows]
    headings = [name for name in text_rows[0] if any(texts[name] not in _NOTHING for texts in text_rows)]
    return html_table(headings, ([texts[name] for name in headings] for texts in text_rows))


class Row(Value):
    """A row of one of tilescope's tables; inside other values' plain data, and pickled, it is its name.

    A row class is declared with `eq=False`, so that its hash is this one.
    """

    __slots__ = ()
    name: str

    @classmethod
    def named(cls, name: object) -> Self:
        """The row called `name`."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """A row equals its own name: `tensor_map.swizzle == "128B"`."""
        if self is other:
            return True
        return self.name == other if isinstance(other, str) else Value.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(self.name)  # as quick as can be: maps of rows are keys of caches

    def __reduce__(self) -> tuple[Callable[[object], Self], tuple[str]]:
        return type(self).named, (self.name,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}.named({self.name!r})"


_NOTHING = ("", "-")  # the cell of a table for a field that is None or empty
_PROPERTY: _Field = field()  # marks a property: a field without marks


def _fields(value: Any) -> tuple[_Field, ...]:
    return fields(value)  # every subclass is a dataclass


def _kind_called(kind: str) -> type[Value] | None:
    """The class of that kind; modules that define kinds are imported until one of them does."""
    for module in _DEFINING_MODULES:
        if kind in Value._kinds:
            break
        import_module(f"tilescope.{module}")
    return Value._kinds.get(kind)


def _field_texts(value: Value, room: int) -> dict[str, str]:
    """The text of a table for each field that a repr shows, in about `room` characters."""
    texts: dict[str, str] = {}
    for described in _fields(value):
        if described.repr:
            texts[described.name] = _cell_text(getattr(value, described.name), described, room)
    return texts


def _cell_text(held: object, described: _Field, room: int) -> str:
    if held is None:
        return "-"
    if isinstance(held, str):
        return shorten(held, room)
    if isinstance(held, Row):
        return held.name
    if isinstance(held, tuple) and not held:
        return "-"
    return _cut_repr(held, described, room)


def _is_array(value: object) -> TypeGuard[_Array]:
    """Whether a value is an array; without an import of numpy there are none."""
    return "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].ndarray)


def _is_array_entry(value: object) -> TypeGuard[np.generic]:
    """Whether a value is a number of numpy's."""
    return "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic)


def _is_default(value: Value, described: _Field, default: object) -> bool:
    current = getattr(value, described.name)
    if described.default_factory is not MISSING:
        default = described.default_factory()
    if isinstance(current, Row) and isinstance(default, str):
        current = current.name
    return _same(current, default)


def _cut_repr(value: object, described: _Field, room: int) -> str:
    """`value` in about `room` characters: whole, or its first entries and a count, or what it is."""
    if isinstance(value, Row):
        return repr(value.name)
    if _is_array(value):
        return _cut_array(value, described, room)
    if isinstance(value, tuple | list):
        return _cut_sequence(value, described, room)
    if isinstance(value, Mapping):
        entries = [f"{key!r}: {_cut_repr(entry, described, room)}" for key, entry in value.items()]
        text = f"{{{', '.join(entries)}}}"
        return text if len(text) <= room else f"{{… {len(value)} entries}}"
    text = hex(value) if type(value) is int and described.metadata.get("hex") else repr(value)
    if len(text) <= room:
        return text
    if isinstance(value, Value | Violation):
        return f"{type(value).__name__}(…)"
    return shorten(text, max(room, _LEAST_ROOM))


def _cut_array(array: _Array, described: _Field, room: int) -> str:
    if array.size <= _ENTRIES_SHOWN:
        return f"{array.tolist()}"
    first = [_cut_repr(entry, described, room) for entry in array.ravel()[:_ENTRIES_SHOWN].tolist()]
    return f"<{by(array.shape)} {array.dtype}: {', '.join(first)}, …>"


def _cut_sequence(value: tuple[object, ...] | list[object], described: _Field, room: int) -> str:
    entries = [_cut_repr(entry, described, room // _ENTRIES_SHOWN) for entry in value[:_ENTRIES_READ]]
    text = f"({entries[0]},)" if len(value) == 1 else f"({', '.join(entries)})"
    is_cut = len(text) > room or "…" in text or len(value) > len(entries)
    if len(value) > _ENTRIES_SHOWN and is_cut:
        text = f"({', '.join(entries[:_ENTRIES_SHOWN])}, … {len(value) - _ENTRIES_SHOWN} more)"
    return text if len(text) <= room else f"(… {counted(len(value), 'entry', 'entries')})"


def _plain(value: object, described: _Field) -> object:
    if isinstance(value, Row):
        return value.name
    if isinstance(value, Value | Violation):
        return value.to_dict()
    if _is_array(value):
        return value.tolist()
    if _is_array_entry(value):
        return _plain(value.item(), described)
    if isinstance(value, tuple | list):
        return [_plain(item, described) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {key: _plain(item, described) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool) and described.metadata.get("hex"):
        return hex(value)
    return value


def _revive(value: object, described: _Field) -> object:
    if "dtype" in described.metadata:
        return None if value is None else _revived_array(value, described)
    if isinstance(value, Mapping) and isinstance(value.get("kind"), str):
        return Value.from_dict(value)
    if isinstance(value, tuple | list):
        return tuple(_revive(item, described) for item in value)
    if isinstance(value, str) and described.metadata.get("hex"):
        try:
            return int(value, 0)
        except ValueError:
            raise RuleError([argument_type(described.name, value, "an integer", "Use 0x400, for example.")]) from None
    if isinstance(value, str) and "named" in described.metadata:
        named: Callable[[object], Row] = described.metadata["named"]
        return named(value)
    return value


def _revived_array(value: object, described: _Field) -> object:
    import numpy as np

    dtype = described.metadata["dtype"]
    try:
        return read_only(np.array(value, dtype=dtype))
    except (TypeError, ValueError, OverflowError):
        expected, fix = f"nested lists of {dtype}", "Use what to_dict() returned."
        raise RuleError([argument_type(described.name, value, expected, fix)]) from None


def _same(one: object, other: object) -> bool:
    if _is_array(one) or _is_array(other):
        import numpy as np

        return bool(np.array_equal(one, other))  # type: ignore[arg-type]  # one of them may be no array: not equal then
    return bool(one == other)


def _hashable(value: object) -> object:
    """Equal for equal values, for any dtype of an array and any order of a mapping."""
    if _is_array(value):
        return value.shape, tuple(value.ravel()[:16].tolist())
    return frozenset(value) if isinstance(value, Mapping) else value
