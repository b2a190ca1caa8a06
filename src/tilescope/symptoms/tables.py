"""The tables of texts in this folder: symptoms, causes, and technical terms.

    symptom  "illegal instruction (715)"       phrases: all words of one must be in the question
       └── cause  coordinate-16-bytes          mechanism · how to tell · fix · the tilescope command that tests it
                                               phrases by which people name the cause itself
    error    CUDA_ERROR_INVALID_HANDLE (400)   a CUDA error of which no symptom speaks: what it means
    term     "base offset"                     what it means, other spellings, what to read next

A cause is written once; several symptoms point to it, in different orders, the most likely first. A text that is also
in a rule is quoted by the rule's name in braces. Commands are examples that run unchanged: replace the numbers by your
own. `word_forms.py` folds words with the same meaning ("stuck", "deadlock": hang).

Symptoms are in several files, by their source: symptoms.toml has those that users see, xid.toml the driver's log,
ptxas.toml the assembler, asserts.toml libraries and compilers.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Self, TypeAlias, cast

from tilescope.arch import Basis
from tilescope.cuda_error import CUDA_ERROR, CudaError
from tilescope.errors import RuleError, unknown_name
from tilescope.symptoms.json_cache import cached_json
from tilescope.tensor_map.map_object import CLEAR_SIZE_FLAG, MAP_ALIGNMENTS, SIZE_FLAG_BUG
from tilescope.value import Row

Entry: TypeAlias = "dict[str, Any]"  # of a table: the fields of its row
_TABLES = ("causes", "symptoms", "xid", "ptxas", "asserts", "glossary", "words", "printed", "computed")


def table(name: str) -> dict[str, Entry]:
    """The entries of a table, by name; lists are tuples."""
    return {title: _with_tuples(entry) for title, entry in _tables()[name].items()}


@cache
def table_sources() -> dict[str, bytes]:
    """The texts of the tables, by name."""
    return {name: files(__package__).joinpath(f"{name}.toml").read_bytes() for name in _TABLES}


@cache
def _tables() -> dict[str, dict[str, Entry]]:
    """All tables unchanged; parsing TOML is slow, so they are cached as JSON."""
    sources = table_sources()
    tables: Any = cached_json(
        "tables",
        sources.values(),
        lambda: {name: tomllib.loads(text.decode("utf-8")) for name, text in sources.items()},
    )
    return cast("dict[str, dict[str, Entry]]", tables)


def _with_tuples(entry: Entry) -> Entry:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


class _Prose(Row):
    """A row of a table of prose."""

    __slots__ = ()

    @classmethod
    def named(cls, name: object) -> Self:
        """The row called `name`, or the row itself; a RuleError names the nearest."""
        if isinstance(name, cls):
            return name
        rows: dict[str, Any] = CAUSE if cls is Cause else SYMPTOM
        if isinstance(name, str) and name in rows:
            row: Self = rows[name]
            return row
        noun = cls.__name__.lower()
        raise RuleError([unknown_name(noun, noun, name, rows)])


@dataclass(frozen=True, slots=True, eq=False)
class Cause(_Prose):
    """One mistake: what goes wrong, how to tell, the fix, and the command that tests it.

    >>> Cause.named("coordinate-16-bytes").fix
    'Start boxes at multiples of 16 bytes in the innermost dimension, or pad the tensor in front.'
    """

    name: str
    mechanism: str
    tell: str
    fix: str
    command: str
    basis: Basis
    threads: tuple[str, ...] = ()  # public threads in which it was the answer
    term: str = ""  # of the glossary, to which the cause owes its name
    phrases: tuple[str, ...] = ()  # by which people name the cause itself, for any symptom


@dataclass(frozen=True, slots=True, eq=False)
class Symptom(_Prose):
    """Something seen: the phrases by which people name it, the causes to try in order, and a note.

    >>> Symptom.named("unspecified launch failure (719)").causes[0]
    'barrier-arrivals'
    """

    name: str
    phrases: tuple[str, ...]
    causes: tuple[str, ...] = ()
    note: str = ""
    codes: tuple[int, ...] = ()  # the CUDA errors that it is; empty: it may come with any, or with none
    xids: tuple[int, ...] = ()  # the numbers of the driver's log that it is
    advice: str = ""  # what to do first where no cause is the likeliest: the note and this go before the causes
    is_generic: bool = False  # many causes show in this way: a cause that the line names goes first


class Term(NamedTuple):
    """A word, what it means, other spellings, and what to read next."""

    name: str
    meaning: str
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    is_general: bool = False  # occurs in titles about many things: any other topic ranks first


# Sentences that are also in a rule: a cause quotes them by name.
_QUOTED = {
    "MAP_ALIGNMENTS": MAP_ALIGNMENTS,
    "SIZE_FLAG_BUG": SIZE_FLAG_BUG,
    "CLEAR_SIZE_FLAG": CLEAR_SIZE_FLAG,
}


def _with_quotations(text: str) -> str:
    """The text of a cause, {NAME} replaced by the sentence of that name."""
    for name, sentence in _QUOTED.items():
        text = text.replace(f"{{{name}}}", sentence)
    return text


def _cause(name: str, entry: Entry) -> Cause:
    texts = {key: _with_quotations(entry[key]) for key in ("mechanism", "tell", "fix")}
    return Cause(name, **entry | texts)


CAUSE = {name: _cause(name, entry) for name, entry in table("causes").items()}
SEEN = {
    name: Symptom(name, **entry)
    for file in ("symptoms", "xid", "ptxas", "asserts")
    for name, entry in table(file).items()
}


def _error_symptom(error: CudaError) -> Symptom:
    """A CUDA error that no symptom of the table covers: its names, CUDA's text, and its meaning."""
    spellings = []
    if error.words:
        spellings.append(f'CUDA says "{error.words}"')
    if error.runtime_name and error.runtime_name != error.name:
        spellings.append(f"{error.runtime_name} in the runtime")
    note = f"{error.meaning} ({'; '.join(spellings)}.)" if spellings else error.meaning
    return Symptom(f"{error.name} ({error.number})", (), note=note, codes=(error.number,))


_CODES_SEEN = {code for symptom in SEEN.values() for code in symptom.codes}
ERRORS = {
    symptom.name: symptom
    for symptom in (_error_symptom(error) for number, error in CUDA_ERROR.items() if number not in _CODES_SEEN)
}
SYMPTOM = SEEN | ERRORS
TERMS = tuple(Term(name, **entry) for name, entry in table("glossary").items())
