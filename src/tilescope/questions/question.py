"""A question: its inputs, the call that answers it, and the parts of its answer.

    QUESTION = Question(
        name="swizzle",                              tilescope swizzle 128B --smem-address 0x80
        inputs=(Input("mode"), Input("address", …)),  /swizzle?mode=128B&address=0x80
        answer=answer,                               answer(asked): the value and what stands beside it
        functions=(Swizzle.swizzle,),                their signatures have the defaults
    )

A command reads words, a page reads fields; both make an `Asked` of them, and both show the `Answer`. What a user
leaves out is not in `Asked`: the library has its defaults, and --help and the hints of a page read them from its signatures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from tilescope import written
from tilescope.errors import TilescopeError, Violation
from tilescope.questions.call import Call
from tilescope.questions.first_line import NO_LINE, FirstLine
from tilescope.questions.plain_argument import describe_argument
from tilescope.rule import rule
from tilescope.sentence import ArgumentSaid, shorten
from tilescope.value import ADVICE, ANSWER, EXTRA, JSON_VERSION, VERSION, Row, Value

Reader: TypeAlias = Callable[[str], object]  # a ValueError has two arguments: the mistake, and what to write instead
Function: TypeAlias = Callable[..., object]

PAGE_LIMIT = rule(
    "page-limit",
    "A page of the explorer accepts what it can compute within a second; the command line accepts more.",
    argument="{argument}",
    found="{count} {what}",
    limit="a page takes at most {most}",
    fix="{fix}",
    source="the explorer",
    passing='ts.web.pages.form_at("/banks?tile=32x32").answer()',
    failing='ts.web.pages.form_at("/banks?tile=4096x4096").answer()',
)
_LONGEST_METAVAR = 22  # characters; longer text is on its own line


class MisuseError(TilescopeError):
    """Inputs that contradict each other; the sentence gives the reason."""


def refuse(is_misused: object, sentence: str) -> None:
    """Refuse what does not go together."""
    if is_misused:
        raise MisuseError(sentence)


def text(said: str) -> str:
    """The text unchanged, without blanks at its ends."""
    return said.strip()


def flag(said: str) -> bool:
    """A box to tick on a page, or an option without a value."""
    if said not in ("", "yes"):
        raise ValueError(f"{shorten(said, 80)!r} is no tick", "yes, or nothing")
    return said == "yes"


class Writing(NamedTuple):
    """How people write what a reader takes."""

    metavar: str  # in --help
    called: str  # by a refusal


READERS: dict[Reader, Writing] = {
    text: Writing("", "text"),
    flag: Writing("", "ticked or empty"),
    written.number: Writing("N", "a number"),
    written.word: Writing("N", "a number"),
    written.numbers: Writing("N,…", "numbers"),
    written.pair: Writing("N,N", "two numbers"),
    written.extents: Writing("NxN", "a shape"),
    written.tile: Writing("NxN", "two numbers"),
    written.tile_or_name: Writing("TILE | FILE", "two numbers, or a name"),
    written.rows_and_columns: Writing("NxN", "a shape"),
    written.product: Writing("MxNxK", "three numbers"),
    written.smem_address: Writing("A", "an address of shared memory"),
}
_SHAPES: tuple[Reader, ...] = (
    written.extents,
    written.tile,
    written.tile_or_name,
    written.rows_and_columns,
    written.product,
)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a question: the argument of the library, the option of the command, the field of the page."""

    name: str  # in `Asked`, and in the address of a page
    option: str = ""  # of the command, followed by its other spellings; empty: a positional argument
    label: str = ""
    hint: str = ""
    _: KW_ONLY
    read: Reader = text
    unsaid: str = ""  # the default in words, if no signature has it
    argument: str = ""  # its name in the library, where it has another
    choices: tuple[str, ...] = ()
    is_open: bool = False  # whether other names than the choices are taken
    is_strict: bool = False  # whether the command itself refuses other names than the choices
    is_long: bool = False  # whether it is a text of several lines
    longest: int | None = None  # characters that a page takes, where it takes more of this text than of others
    is_hex: bool = False  # whether its number is written in hexadecimal
    is_many: bool = False  # whether it may be repeated
    is_required: bool | None = None  # None: a word is, an option is not
    least: int | None = None  # the command refuses a smaller number
    file: Literal["", "input", "kernel", "array", "output"] = ""  # whether the command takes the name of a file
    shown_as: str = ""  # how --help writes it, where not by how it is read
    completed: Callable[[], Iterable[str]] | None = None  # what a shell completes, where it is not the choices

    @property
    def library_name(self) -> str:
        """The name of the argument."""
        return self.argument or self.name

    @property
    def metavar(self) -> str:
        """How --help writes the value: N,… for numbers, K|MN for a few names, TYPE,… for several names."""
        if self.shown_as:
            return self.shown_as
        if self.read in READERS and self.read is not text:
            return READERS[self.read].metavar
        first_spelling = (self.option or self.name).split()[0]
        name = re.split("[-_]", first_spelling)[-1].upper()  # TYPE for --element-type
        if self.read is not text:
            return f"{name},…"
        choices = "" if self.is_open else "|".join(self.choices)
        return choices if 0 < len(choices) <= _LONGEST_METAVAR else name

    def help(self, default: str) -> str:
        """The text of --help."""
        help_text = f"{self.label}: {self._names_or_hint}" if self._names_or_hint else f"{self.label}."
        return f"{help_text} [default: {default}]" if default else help_text

    @property
    def _names_or_hint(self) -> str:
        if self.hint or not self.choices or self.metavar == "|".join(self.choices):
            return self.hint
        ending = ", …" if len(self.choices) > 4 else "."
        return ", ".join(self.choices[:4]) + ending

    def written(self, value: object) -> str:
        """A value as people write it.

        >>> Input("smem_address", read=written.smem_address, is_hex=True).written(1024)
        '0x400'
        >>> Input("tile", read=written.tile).written((128, 64))
        '128x64'
        """
        if self.is_hex and isinstance(value, int):
            return hex(value)
        spelling = in_words(value)
        return spelling.replace(",", "x") if self.read in _SHAPES and not isinstance(value, str) else spelling

    def words(self, value: object) -> list[str]:
        """The words of a command for `value`; none for an omitted option.

        >>> Input("coords", "--coords", read=written.numbers).words((-8, 2))
        ['--coords=-8,2']
        """
        if value is None or value is False:
            return []
        option = self.option.split()[0] if self.option else ""
        if value is True:
            return [option]
        entries = value if self.is_many and isinstance(value, tuple | list) else (value,)
        texts = [self.written(entry) for entry in entries]
        if not option:
            return texts
        words = []
        for entry in texts:
            if entry.startswith("-"):  # which would be parsed as another option
                words.append(f"{option}={entry}")
            elif entry:
                words += [option, entry]
        return words


def as_options(inputs: Iterable[Input]) -> ArgumentSaid:
    """How messages of a command name an argument and its value.

    >>> said = as_options([Input("swizzle", "--swizzle"), Input("ws", "--ws", read=flag)])
    >>> said("swizzle", "128B"), said("ws", True), said("ws", False), said("cta_group", 2)
    ('--swizzle 128B', '--ws', 'no --ws', 'cta group 2')
    """
    import shlex

    options = {row.library_name: row for row in inputs if row.option}

    def said(argument: str, value: object) -> str:
        row = options.get(argument)
        if row is None:
            return describe_argument(argument, value)
        if value is False:
            return f"no {row.option.split()[0]}"
        return " ".join(map(shlex.quote, row.words(value)))

    return said


def as_fields(inputs: Iterable[Input]) -> ArgumentSaid:
    """How messages of a page name an argument and its value: by the label of the field.

    >>> as_fields([Input("l2_promotion", "--l2", "L2 promotion")])("l2_promotion", "128B")
    'L2 promotion = 128B'
    """
    labels = {row.library_name: row for row in inputs if row.label}

    def said(argument: str, value: object) -> str:
        row = labels.get(argument)
        if row is None:
            return describe_argument(argument, value)
        if isinstance(value, bool):
            return describe_argument(row.label, value)
        return f"{row.label} = {row.written(value)}"

    return said


def in_words(value: object) -> str:
    """A value as people write it: (64, 8) is "64,8".

    >>> in_words((64, 8)), in_words("128B"), in_words(None)
    ('64,8', '128B', '')
    """
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return value.name if isinstance(value, Row) else str(value)


@cache
def defaults(*functions: Function) -> Mapping[str, object]:
    """The defaults of functions, by the names of their arguments.

    >>> def placed(shape, swizzle="none", start=0): ...
    >>> dict(defaults(placed))
    {'swizzle': 'none', 'start': 0}
    """
    values = {
        name: parameter.default
        for function in functions
        for name, parameter in signature(function).parameters.items()
        if parameter.default is not Parameter.empty
    }
    return MappingProxyType(values)


def default_of(row: Input, functions: Iterable[Function]) -> str:
    """The default of an input of these functions, in words; empty where there is none, as of a tick."""
    if row.unsaid or row.read is flag:
        return row.unsaid
    taken = defaults(*functions).get(row.library_name)
    if taken is None or taken is False or taken == ():
        return ""
    return row.written(taken)


class Asked(Mapping[str, Any]):
    """The inputs of a user by name, without omitted ones; and the limits of a page."""

    __slots__ = ("_limits", "_said")

    def __init__(self, said: Mapping[str, object], limits: Mapping[str, int] | None = None) -> None:
        self._said = said
        self._limits = limits or {}  # by what is counted; the command line has none

    def __getitem__(self, name: str) -> Any:
        return self._said[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def saying(self, **more: object) -> Asked:
        """The same with some inputs replaced; None removes an input."""
        values = {**self._said, **more}
        return Asked({name: value for name, value in values.items() if value is not None}, self._limits)

    def options(self, inputs: Iterable[Input]) -> dict[str, object]:
        """The values of these inputs, by the library's names for them.

        >>> Asked({"smem_address": 64, "mode": "128B"}).options([Input("smem_address", argument="start")])
        {'start': 64}
        """
        return {row.library_name: self._said[row.name] for row in inputs if row.name in self._said}

    def limit(self, counted: str) -> int | None:
        """How much of it a page takes; None for the command line, which takes more."""
        return self._limits.get(counted)

    def require_at_most(self, what: str, count: int, *, argument: str, fix: str, counted: str = "") -> None:
        """Refuse what a page would take too long or too much memory to answer, before it is computed.

        `what` is counted; `counted` is the name of the limit, where it has another.
        """
        most = self.limit(counted or what)
        if most is not None and count > most:
            raise PAGE_LIMIT.error(argument=argument, what=what, count=count, most=most, fix=fix)


class Made(NamedTuple):
    """Bytes that a command writes to a file, and the text that it prints after the file's name."""

    content: bytes
    note: str


class MadeFile(NamedTuple):
    """A file that a command writes in addition to its answer."""

    path: str
    made: Made


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question gives: a value, and what a command and a page show of it."""

    value: Value
    call: Call[Any] | None = None  # the Python that makes the value
    _: KW_ONLY
    first: FirstLine = NO_LINE  # printed first; the only output of --quiet
    then: Call[Any] | None = None  # a question about the value, shown below the Python that makes it
    shown: Mapping[str, object] = field(default_factory=dict)  # options of its drawing; None: the drawing's defaults
    extra: Mapping[str, object] = field(default_factory=dict)  # added to the value's own data in JSON
    late_extra: Callable[[], Mapping[str, object]] | None = None  # the same, computed when the JSON is requested
    is_yes: bool = True  # exit status 1 if it is not
    status: int | None = None  # exit status of a program that was run, where it is not 0
    violations: tuple[Violation, ...] = ()  # broken rules, which a page lists itself …
    told_in: str = ""  # … in place of this part of the drawing
    text: str = ""  # what a command prints instead of the first line and the drawing
    printed: str = ""  # what a command prints as it is between the first line and the drawing …
    told_above: tuple[str, ...] = ()  # … both in place of these parts of the drawing, which its SVG keeps
    below: tuple[Answer, ...] = ()  # what a command draws below it
    code: str = ""  # a call to copy, which a command prints at the end
    program: str | None = None  # source code, which a command writes instead of everything else
    made: Made | None = None  # what --out writes
    files: tuple[MadeFile, ...] = ()  # what a command writes to files that were named otherwise

    def json(self) -> str:
        """The value as plain data, with the additional data: the output of --json, and the data that a page saves."""
        data = self.value.to_dict()
        document: dict[str, object] = {"kind": data["kind"], VERSION: JSON_VERSION}
        if self.first.sentence:
            document[ANSWER] = self.first.sentence
        if self.first.advice:
            document[ADVICE] = self.first.advice
        document |= data
        extra = {**self.extra, **({} if self.late_extra is None else self.late_extra())}
        if extra:
            document[EXTRA] = extra
        return json.dumps(document, indent=2)


@dataclass(frozen=True, slots=True)
class Question:
    """A question of users, and how it is answered."""

    _: KW_ONLY
    name: str  # the words of its command
    help: str  # its text in --help
    inputs: tuple[Input, ...]
    answer: Callable[[Asked], Answer]
    functions: tuple[Function, ...] = ()  # of the library, that are called: their signatures have the defaults
    taken: Callable[[Asked], Mapping[str, object]] | None = None  # the defaults, if they depend on the inputs
    said_first: tuple[Input, ...] = ()  # options that come before the others in its written command
    summary: str = ""  # its text in the list of a group of commands
    is_drawn: bool = True
    makes: str = ""  # the bytes that --out writes, in words; empty: it makes none
    makes_if: str = ""  # the sentence for an empty result

    def default(self, row: Input) -> str:
        """The default of an input, in words; empty where there is none."""
        return default_of(row, self.functions)

    def words(self, asked: Asked) -> list[str]:
        """The words of the command for these inputs: first the positional arguments, then the options.

        Options that equal the defaults of the called function are omitted.
        """
        taken = defaults(*self.functions) if self.taken is None else self.taken(asked)
        places = [row for row in self.inputs if not row.option]
        options = [row for row in self.inputs if row.option and row not in self.said_first]
        words = self.name.split()
        for row in (*places, *self.said_first, *options):
            is_default = bool(row.option) and _is_taken(row, asked, taken)
            if not is_default:
                words += row.words(asked.get(row.name))
        return words


def _is_taken(row: Input, asked: Asked, taken: Mapping[str, object]) -> bool:
    """Whether an input equals the default."""
    if row.library_name not in taken:
        return False
    value = asked.get(row.name)
    default = taken[row.library_name]
    return type(value) is type(default) and bool(value == default)
