"""A page of the explorer: forms that ask questions, and how their answers are shown.

    /plan?tile=128x64&target=cuda
     │    └ the fields of a form ── asking ──▶ Asked ── question.answer ──▶ Answer
     └ the page

A page asks the same question as the command that it prints. Its fields are parsed into the same `Asked`, and its own
data is here: the initial values of its fields, its limits, its other drawings, and its links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlencode

from tilescope.questions.call import Call
from tilescope.questions.question import Answer, Asked, Input, Question

Sentences: TypeAlias = tuple[str, ...]
Leads: TypeAlias = Mapping[str, Mapping[str, str]]  # label: address, by the name of the part above
Fixes: TypeAlias = Mapping[str, Mapping[str, str]]  # the fields that a fix fills, by its label


FileReader: TypeAlias = Callable[[str, bytes], Mapping[str, str]]  # the name of a field, the content of a file


class OpenedField(NamedTuple):
    """A field that takes a file: how its bytes are read, and the endings by which a dropped file finds it."""

    read: FileReader
    endings: tuple[str, ...] = ()


def address(page: str, query: Mapping[str, str]) -> str:
    """The path and query of a state of a page.

    >>> address("load", {"coords": "4,128"})
    '/load?coords=4,128'
    """
    if not query:
        return f"/{page}"
    return f"/{page}?{urlencode(query, safe=',:/()')}"


@dataclass(frozen=True, slots=True)
class Code:
    """A program to copy, and the call and the command that write it."""

    title: str
    source: str
    call: Call[Any]
    command: tuple[str, ...]


class ListedLine(NamedTuple):
    """A line of the user's text, beside the answer."""

    number: int
    text: str
    warps: int | None  # that ran it; None where it has no instruction
    severity: str = ""  # of the worst finding about it; empty: none
    findings: tuple[int, ...] = ()  # their numbers in the list of findings, from 1
    source: str = ""  # the line of the program that it was made from: "kernel.cu:12"


def as_said(asked: Asked) -> Asked:
    """The fields are passed to the question unchanged."""
    return asked


def nowhere(_: Asked, __: Answer) -> Leads:
    """An answer without a link to another page."""
    return {}


def without_fixes(_: Asked, __: Answer | None) -> Fixes:
    """An answer with no fix but those that its violations name."""
    return {}


def without_code(_: Asked, __: Answer) -> Sentences:
    """An answer that is no program."""
    return ()


def without_listing(_: Asked, __: Answer) -> tuple[ListedLine, ...]:
    """An answer that is not about a text."""
    return ()


@dataclass(frozen=True, slots=True)
class PageForm:
    """A form of a page: its fields, its question, and the parts of the answer that the page shows."""

    question: Question
    _: KW_ONLY
    inputs: tuple[Input, ...]  # its fields
    presets: Mapping[str, str] = field(default_factory=dict)  # what they hold at first, if not the library's own choice
    samples: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # texts for a field, by what they show
    opens: Mapping[str, OpenedField] = field(
        default_factory=dict
    )  # fields that take a file which is dropped on the page
    asking: Callable[[Asked], Asked] = as_said  # inputs of the question if the fields are filled
    answer: Callable[[Asked], Answer] | None = None  # where the page answers what the command refuses
    limits: Mapping[str, int] = field(default_factory=dict)  # how much it takes, by what is counted
    shown: Mapping[str, object] = field(
        default_factory=dict
    )  # options of the drawing, in addition to those of the answer
    rare: frozenset[str] = frozenset()  # fields under "More" until one of them is filled
    extents: Mapping[str, tuple[str, int]] = field(
        default_factory=dict
    )  # the field, and the place in it, of m, n and k
    walks: bool = False  # whether it steps through the drawing
    pans: bool = False  # whether the drawing shows a part of a timeline, which is moved and zoomed
    picked: str = ""  # the field that takes the place of a cell that is clicked, instead of a pin
    dragged: str = ""  # the field that takes the place to which a part of the drawing is dragged
    leads: Callable[[Asked, Answer], Leads] = nowhere
    fixes: Callable[[Asked, Answer | None], Fixes] = without_fixes  # answer: None where the question is refused
    record: Callable[[Asked, Callable[[str, int], None]], None] | None = None  # makes a long answer ready after a click
    listing: Callable[[Asked, Answer], tuple[ListedLine, ...]] = without_listing  # the text beside its answer
    # A program below the drawing, or why there is none.
    code: Callable[[Asked, Answer], Code | Sentences] = without_code


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the explorer.

    `forms` are its forms by the choice that selects one; a page with one form has it under "". `redirect` may send a
    query to another page, such as a pasted text to the fields that it fills.
    """

    name: str  # its path
    title: str
    sentence: str  # what it shows
    forms: Mapping[str, PageForm]
    chooser: Input | None = None  # the field that selects a form
    pasted: str = ""  # what its paste box takes; empty: it has none
    redirect: Callable[[Mapping[str, str]], Mapping[str, str] | None] | None = None
    is_compared: bool = False  # whether two of its states can be shown side by side
    is_common: bool = True  # whether the bar names it; the list of all pages names every page

    @property
    def records(self) -> bool:
        """Whether a long answer is made ready after a click."""
        return any(form.record is not None for form in self.forms.values())
