"""A call of the library as a value: a page runs it and prints it, so what it shows is what it ran.

>>> from tilescope.swizzle import Swizzle
>>> asked = Call(Swizzle.named, ("128B",), name="swizzle")
>>> asked.run().name
'128B'
>>> print(asked.source())
import tilescope as ts
<BLANKLINE>
swizzle = ts.Swizzle.named("128B")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pprint import pformat
from textwrap import indent
from typing import Any, Generic, TypeVar

from tilescope.value import Row

_LINE_WIDTH = 88
_LARGE = 1 << 32  # addresses and words of descriptors, written in hexadecimal
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """A public function, its arguments, and the name of its result; arguments may be calls themselves."""

    function: Callable[..., Result]
    arguments: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    name: str = "value"
    receiver: Call[Any] | None = None  # of a method: the call that gives its object
    module: str = "tilescope"  # where the function is public; "builtins" is Python's own
    attribute: str = ""  # of what the function gives: the result is this attribute

    def run(self) -> Result:
        """The result; exceptions of the library are passed on."""
        receiver = () if self.receiver is None else (self.receiver,)
        arguments = [_run_argument(argument) for argument in (*receiver, *self.arguments)]
        result = self.function(*arguments, **{name: _run_argument(option) for name, option in self.options.items()})
        if not self.attribute:
            return result
        taken: Result = getattr(result, self.attribute)
        return taken

    def source(self) -> str:
        """The Python that does the same, imports included."""
        calls = list(self._calls())
        names: dict[str, set[str]] = {}  # that are imported, by module
        for call in calls:
            if call.module not in ("tilescope", "builtins"):
                imported_name = call.function.__qualname__.partition(".")[0]  # the class, of a method
                names.setdefault(call.module, set()).add(imported_name)
        imports = [f"from {module} import {', '.join(sorted(imported))}" for module, imported in sorted(names.items())]
        lines = {call.name: f"{call.name} = {call.expression()}" for call in calls if call.name}
        return "\n".join(["import tilescope as ts", *imports, "", *lines.values()])

    def _calls(self) -> Iterator[Call[Any]]:
        """The calls that this one needs, then itself."""
        for argument in (self.receiver, *self.arguments, *self.options.values()):
            entries = argument if isinstance(argument, list) else [argument]
            for entry in entries:
                if isinstance(entry, Call):
                    yield from entry._calls()
        yield self

    def expression(self) -> str:
        """Only the call; named arguments have their names, defaults are omitted."""
        qualified = self.function.__qualname__
        if self.receiver is not None:
            qualified = f"{_print_argument(self.receiver)}.{qualified.rpartition('.')[2]}"
        elif self.module == "tilescope":
            qualified = f"ts.{qualified}"
        parameters = signature(self.function).parameters
        pieces = [_print_argument(argument) for argument in self.arguments]
        for name, option in self.options.items():
            default = parameters[name].default if name in parameters else None
            if type(option) is not type(default) or option != default:
                pieces.append(f"{name}={_print_argument(option, is_address=name.endswith('address'))}")
        taken = f".{self.attribute}" if self.attribute else ""
        on_one_line = f"{qualified}({', '.join(pieces)}){taken}"
        is_short = len(on_one_line) <= _LINE_WIDTH and "\n" not in on_one_line
        if is_short or not pieces:
            return on_one_line
        return f"{qualified}(\n" + indent(",\n".join(pieces), "    ") + f",\n){taken}"


def _run_argument(argument: object) -> object:
    if isinstance(argument, list):
        return [_run_argument(entry) for entry in argument]
    return argument.run() if isinstance(argument, Call) else argument


def _print_argument(argument: object, *, is_address: bool = False) -> str:
    match argument:
        case Call():
            return argument.name or argument.expression()
        case list():
            return f"[{', '.join(map(_print_argument, argument))}]"
        case tuple():
            return f"({', '.join(map(_print_argument, argument))}{',' if len(argument) == 1 else ''})"
        case dict():
            return pformat(argument, width=_LINE_WIDTH, sort_dicts=False)
        case Row():
            return _print_argument(argument.name)
        case str() | bytes() if len(argument.splitlines()) > 1:
            return "\n".join(map(repr, argument.splitlines(keepends=True)))
        case str() if '"' not in argument and "\\" not in argument and argument.isprintable():
            return f'"{argument}"'
        case int() if (is_address or argument >= _LARGE) and not isinstance(argument, bool):
            return hex(argument)
    return repr(argument)
