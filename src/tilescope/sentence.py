"""Sentences made of facts: one template language, in which rules, reasons and mistakes are worded.

    template                       facts                   sentence
    box[{axis}] = {extent}         axis=0, extent=512      box[0] = 512
    at {address:#x}                address=64              at 0x40                   as Python formats it
    card {name!r}                  name="H20"              card 'H20'                in quotes
    {stages:stage}                 stages=3                3 stages                  a count with its noun …
    {entries:entry|entries}        entries=1               1 entry                   … whose plural is said if it is not + s
    {tile: x }                     tile=(64, 32)           64 x 32                   a sequence, joined by what is said
    {types:and}                    types=("s8", "u8")      s8 and u8                 … as people list things; also {types:or}
    {time:us} {size:MB} {share:%}  time=7.372, …           7.37 us                   with a unit
    a tile[[ of {rows} rows]]      rows=None               a tile                    left out where a fact in it is None, 0,
                                                                                     empty or missing
    Use {swizzle:="{span}B"}.      span=128                Use swizzle="128B".       an argument and its value, as the reader says
                                                                                     it: on a command line --swizzle 128B

Facts are data: numbers, names, tuples of them. The wording is in the template.
"""

from __future__ import annotations

import re
import string
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, TypeAlias

Facts: TypeAlias = Mapping[str, Any]  # numbers, names, sequences of them
_PRINTED_BITS = 256  # a longer integer is no number that people mean, and json refuses those above 4300 digits
_SEQUENCE_CHARACTERS = 400  # of a sequence as Python writes it
_FIRST_SENTENCE = re.compile(r".+?(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s|$)", re.DOTALL)
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]")
_NOUN = re.compile(r"[A-Za-z][A-Za-z -]+(\|.+)?")  # of a count; what Python formats numbers with has no two letters


def is_printable(number: int) -> bool:
    """Whether an integer is short enough to be printed."""
    return number.bit_length() <= _PRINTED_BITS


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun.

    >>> counted(1, "stage"), counted(3, "stage"), counted(2, "entry", "entries")
    ('1 stage', '3 stages', '2 entries')
    """
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {plural or noun + 's'}"


def by(extents: Iterable[object]) -> str:
    """Extents as people write them.

    >>> by((64, 32))
    '64 x 32'
    """
    return " x ".join(map(str, extents))


def listed(names: Iterable[object], conjunction: str = "and") -> str:
    """Things as people list them.

    >>> listed(["TMA"]), listed(["TMA", "wgmma"]), listed(["A", "B", "C"], "or")
    ('TMA', 'TMA and wgmma', 'A, B or C')
    """
    *others, last = [str(name) for name in names] or [""]
    if not others:
        return last
    return f"{', '.join(others)} {conjunction} {last}"


def first_sentence(text: str) -> str:
    """The first sentence of a text, even if the next one begins with a lower-case name such as wgmma.

    >>> first_sentence("PTX 8.0 has it, e.g. on sm_90. Older ones do not.")
    'PTX 8.0 has it, e.g. on sm_90.'
    >>> first_sentence("Where a product adds up. wgmma has it in registers.")
    'Where a product adds up.'
    """
    match = _FIRST_SENTENCE.match(text)
    return text if match is None else match[0]


def shorten(text: str, limit: int = 80) -> str:
    """`text` on one line of at most `limit` characters, so that a pasted file does not fill an error."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def format_value(value: object, limit: int = 80) -> str:
    """`value` as errors show it: its repr on one short line, or a description if that is too long.

    >>> format_value("K-major"), format_value(1 << 5000)
    ("'K-major'", 'an integer of 5001 bits')
    """
    if isinstance(value, int) and not is_printable(value):
        return f"an integer of {value.bit_length()} bits"
    try:
        return shorten(repr(value), limit)
    except ValueError:  # such an integer inside a sequence
        return f"a {type(value).__name__} that cannot be printed"


def format_hex(value: int) -> str:
    """An address or a descriptor word as errors show it.

    >>> format_hex(1024), format_hex(1 << 5000)
    ('0x400', 'an integer of 5001 bits')
    """
    return hex(value) if is_printable(value) else format_value(value)


def in_us(microseconds: float) -> str:
    """A time with three digits or more.

    >>> in_us(132.41), in_us(7.372), in_us(0.01234)
    ('132.4 us', '7.37 us', '0.0123 us')
    """
    digits = ".1f" if microseconds >= 100 else "#.3g"
    return f"{microseconds:{digits}} us"


def in_mb(count_bytes: float) -> str:
    """Megabytes with three digits or more.

    >>> in_mb(2_500_000), in_mb(250_000_000)
    ('2.50 MB', '250.0 MB')
    """
    digits = ".1f" if count_bytes >= 100e6 else "#.3g"
    return f"{count_bytes / 1e6:{digits}} MB"


def in_percent(share: float) -> str:
    """A share of the whole.

    >>> in_percent(0.5)
    '50 %'
    """
    return f"{100 * share:.0f} %"


Unit = Callable[[Any], str]
UNITS: Mapping[str, Unit] = {"us": in_us, "MB": in_mb, "%": in_percent}


ArgumentSaid = Callable[[str, object], str]  # an argument of a call and its value, in the words of whoever reads them


def as_python(argument: str, value: object) -> str:
    """An argument and its value in Python's spelling, which is also JSON's.

    >>> as_python("swizzle", "128B"), as_python("stages", 4)
    ('swizzle="128B"', 'stages=4')
    """
    return f'{argument}="{value}"' if isinstance(value, str) else f"{argument}={value!r}"


_ARGUMENT_SAID: ContextVar[ArgumentSaid] = ContextVar("argument_said", default=as_python)


@contextmanager
def saying_arguments(said: ArgumentSaid) -> Iterator[None]:
    """A context in which sentences spell arguments with `said`: as options of a command, or as fields of a page.

    >>> with saying_arguments(lambda argument, value: f"--{argument} {value}"):
    ...     print(fill_template('Use {swizzle:="128B"}.', {}))
    Use --swizzle 128B.
    """
    token = _ARGUMENT_SAID.set(said)
    try:
        yield
    finally:
        _ARGUMENT_SAID.reset(token)


def argument_said(argument: str, value: object) -> str:
    """An argument and its value in the current spelling; by default Python's.

    >>> argument_said("swizzle", "128B"), argument_said("cluster", (2, 1))
    ('swizzle="128B"', 'cluster=(2, 1)')
    """
    return _ARGUMENT_SAID.get()(argument, value)


class _Slot(NamedTuple):
    """The text up to a fact, the fact's name (None behind the last one), and how it is shown."""

    text: str
    name: str | None
    shown_as: str
    is_quoted: bool


class _Piece(NamedTuple):
    """A run of a template, which is always printed, or only if none of its facts is empty."""

    slots: tuple[_Slot, ...]
    is_optional: bool


@cache
def _pieces(template: str) -> tuple[_Piece, ...]:
    """A template taken apart."""
    pieces = []
    for number, run in enumerate(_OPTIONAL.split(template)):
        slots = [
            _Slot(text, name, shown_as or "", is_quoted=conversion == "r")
            for text, name, shown_as, conversion in string.Formatter().parse(run)
        ]
        pieces.append(_Piece(tuple(slots), is_optional=number % 2 == 1))
    return tuple(pieces)


@cache
def fact_names(template: str) -> tuple[str, ...]:
    """The facts that a template names, in its order.

    >>> fact_names("box[{axis}] = {extent}[[, of {most} at most]]")
    ('axis', 'extent', 'most')
    """
    names = [name for piece in _pieces(template) for slot in piece.slots for name in _names_of(slot)]
    return tuple(dict.fromkeys(names))


def _names_of(slot: _Slot) -> tuple[str, ...]:
    """The facts that fill a slot: those of an argument's value, if it has one."""
    if slot.name is None:
        return ()
    return fact_names(slot.shown_as[1:]) if slot.shown_as.startswith("=") else (slot.name,)


def fill_template(template: str, facts: Facts, units: Mapping[str, Unit] = UNITS) -> str:
    """The sentence that a template makes of facts.

    >>> fill_template("box[{axis}] = {extent}[[, of {rows:row}]]", {"axis": 0, "extent": 512, "rows": 1})
    'box[0] = 512, of 1 row'
    """
    if "{" not in template:
        return template
    parts = []
    for slots, is_optional in _pieces(template):
        if is_optional and not all(facts.get(name) for slot in slots for name in _names_of(slot)):
            continue
        for text, name, shown_as, is_quoted in slots:
            parts.append(text)
            if name is not None and shown_as.startswith("="):
                parts.append(argument_said(name, _value_of(fill_template(shown_as[1:], facts, units))))
            elif name is not None:
                fact = facts[name]
                parts.append(format_value(fact) if is_quoted else _format_fact(fact, shown_as, units))
    return "".join(parts)


class _HexNumber(int):
    """A number that stays hexadecimal: an address."""

    def __repr__(self) -> str:
        return hex(self)

    __str__ = __repr__


def _value_of(literal: str) -> object:
    """The value that a template writes as Python does; what is none stays a text."""
    if literal.startswith("0x"):
        return _HexNumber(literal, 16)
    try:
        return literal_eval(literal)
    except (SyntaxError, ValueError):
        return literal


def _format_fact(fact: object, shown_as: str, units: Mapping[str, Unit]) -> str:
    if not shown_as:  # as most are: names and numbers
        if type(fact) is str:
            return fact
        if type(fact) is int and is_printable(fact):
            return str(fact)
    if shown_as in units:
        return units[shown_as](fact)
    if isinstance(fact, tuple | list):
        return _shown_sequence(fact, shown_as)
    if not isinstance(fact, int):
        return format(fact, shown_as)
    if not is_printable(fact):
        return format_value(fact)
    if shown_as and _is_noun(shown_as):
        noun, _, plural = shown_as.partition("|")
        return counted(fact, noun, plural)
    return format(fact, shown_as)


@cache
def _is_noun(shown_as: str) -> bool:
    return _NOUN.fullmatch(shown_as) is not None


def _shown_sequence(facts: tuple[object, ...] | list[object], shown_as: str) -> str:
    if shown_as in ("and", "or"):
        return listed(facts, shown_as)
    if shown_as:
        return shown_as.join(map(str, facts))
    return format_value(facts, _SEQUENCE_CHARACTERS)
