"""A table of text: rows under headings, or a list of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


def _cell_text(value: object) -> str:
    return "-" if value is None else str(value)


class TableText(NamedTuple):
    """A text of a table, and whether it is a heading or the name of a fact."""

    text: str
    is_name: bool = False


@dataclass(frozen=True, init=False)
class Table:
    """Rows of text; the last column wraps. Without headings it is a list of facts, the first column their names.

    Rows may contain any printable value, "-" for None; a dictionary gives facts, without the empty ones. `align` has
    one letter per column, "l" or "r"; columns beyond it are left-aligned. Rows beyond `most` are counted in a note.

    >>> Table({"copies": 4, "note": ""}).rows
    (('copies', '4'),)
    >>> Table(([k] for k in range(9)), ["k"], most=2, noun="steps").notes
    ('The first 2 of 9 steps.',)
    """

    rows: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...]
    title: str
    align: str
    notes: tuple[str, ...]

    def __init__(
        self,
        rows: Mapping[str, object] | Iterable[Iterable[object]],
        headings: Iterable[str] = (),
        title: str = "",
        align: str = "",
        notes: Iterable[str] = (),
        *,
        most: int | None = None,
        noun: str = "rows",
    ) -> None:
        if isinstance(rows, Mapping):
            rows = [(name, value) for name, value in rows.items() if value != ""]
        listed = [*rows]
        if most is not None and len(listed) > most:
            notes = (*notes, f"The first {most} of {len(listed)} {noun}.")
        cells = tuple(tuple(map(_cell_text, row)) for row in listed[:most])
        headed = tuple(headings)
        columns = len(headed)
        if not headed and cells:
            columns = len(cells[0])
        object.__setattr__(self, "rows", cells)
        object.__setattr__(self, "headings", headed)
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "align", align.ljust(columns, "l"))
        object.__setattr__(self, "notes", tuple(notes))

    @classmethod
    def of(
        cls,
        records: Iterable[Mapping[str, object]],
        title: str = "",
        align: str = "",
        *,
        notes: Iterable[str] = (),
        most: int | None = None,
        noun: str = "rows",
    ) -> Table:
        """A row for each record, under the names of its fields.

        >>> Table.of([{"stage": 0, "start": "0x400"}, {"stage": 1, "start": None}])
        Table(rows=(('0', '0x400'), ('1', '-')), headings=('stage', 'start'), title='', align='ll', notes=())
        """
        listed = [*records]
        headings = next(iter(listed), {})
        return cls((record.values() for record in listed), headings, title, align, notes, most=most, noun=noun)

    @classmethod
    def numbered(cls, sentences: Iterable[object], title: str) -> Table:
        """Sentences below each other, counted from 1."""
        return cls(enumerate(sentences, 1), title=title)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def lines(self) -> list[list[TableText]]:
        """All rows, the headings first."""
        if self.headings:
            heading = [TableText(text, is_name=True) for text in self.headings]
            return [heading, *([TableText(text) for text in row] for row in self.rows)]
        has_names = len(self.align) > 1  # a list of facts: the first column names them
        return [
            [TableText(text, is_name=has_names and column == 0) for column, text in enumerate(row)] for row in self.rows
        ]
