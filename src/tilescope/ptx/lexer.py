r"""A PTX text as tokens: names, words after a dot, numbers, strings and marks.

    @!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+8];
    ││└┬┘ ┤└──┬──┘          └┬┘              │
    marks name word         name             number

Comments become blanks first, so that every token keeps its place in the text, and with it its line and column.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple, NoReturn

from tilescope.errors import RuleError, Wording
from tilescope.ptx.rules import CHARACTER, LIMIT, OPEN_COMMENT, OPEN_STRING, SYNTAX
from tilescope.sentence import shorten

MAX_CHARACTERS = 1 << 26  # of a text; a debug build of a CuTe kernel takes 2^25
NAME = r"(?:[A-Za-z_]|[$%][A-Za-z0-9_$])[A-Za-z0-9_$]*"
_WORD = r"\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*"  # .shared::cluster, .2d
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<name>%[A-Za-z0-9_$]+\.[xyzw]\b|{NAME})
    | (?P<hex_float>0[fF][0-9a-fA-F]{{8}}(?![\w$])|0[dD][0-9a-fA-F]{{16}}(?![\w$]))
    | (?P<float>(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?![\w$]))
    | (?P<integer>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?(?![\w$]))
    | (?P<word>{_WORD})
    | (?P<string>"[^"\n]*")
    | (?P<mark><<|>>|[][@!{{}}(),;:|+\-*/%&^~<>=])
    | (?P<other>[\w$]+|.)
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_KINDS = tuple(_TOKEN.groupindex)
_NO_CODE = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|#[^\n]*|"|/\*|[^\t-\r -~]', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


class Place(NamedTuple):
    """Line and column of a character, both from 1."""

    line: int
    column: int


class Text:
    r"""A PTX text: `original` unchanged, `code` with comments replaced by blanks, character for character.

    >>> text = Text("ret; // done\nexit;")
    >>> text.code
    'ret;        \nexit;'
    >>> text.place(13)
    Place(line=2, column=1)
    """

    def __init__(self, original: str) -> None:
        if len(original) > MAX_CHARACTERS:
            raise LIMIT.error(line=1, column=1, amount=len(original), what="characters", most=MAX_CHARACTERS)
        self.original = original
        self._line_ends = [newline.start() for newline in re.finditer(r"\n", original)]
        self.code = _NO_CODE.sub(self._blank, original)

    def place(self, position: int) -> Place:
        """Line and column of a position."""
        line = bisect_right(self._line_ends, position - 1)
        start = self._line_ends[line - 1] + 1 if line else 0
        return Place(line + 1, position - start + 1)

    def line(self, position: int) -> int:
        """The line of a position."""
        return bisect_right(self._line_ends, position - 1) + 1

    def rest_of_line(self, position: int) -> str:
        """What follows a position on its line, comments included."""
        index = bisect_right(self._line_ends, position - 1)
        end = self._line_ends[index] if index < len(self._line_ends) else len(self.original)
        return self.original[position:end]

    def error(self, wording: Wording, position: int, **facts: object) -> RuleError:
        """The refusal of the text at a position."""
        place = self.place(position)
        return wording.error(change=None, line=place.line, column=place.column, **facts)

    def _blank(self, found: re.Match[str]) -> str:
        """Blanks for a comment; a string stays."""
        piece = found[0]
        if piece.startswith("//") or (piece.startswith("#") and self._begins_line(found.start())):
            return " " * len(piece)
        if piece == "/*":
            raise self.error(OPEN_COMMENT, found.start())
        if piece.startswith("/*"):
            return _NOT_NEWLINE.sub(" ", piece)
        if piece == '"':
            raise self.error(OPEN_STRING, found.start())
        if not piece.startswith('"'):
            raise self.error(CHARACTER, found.start(), character=piece[0])
        return piece

    def _begins_line(self, position: int) -> bool:
        """Whether only blanks precede a position on its line: `# 1 "kernel.cu"` is the preprocessor's."""
        column = self.place(position).column
        return not self.original[position - column + 1 : position].strip()


class Token(NamedTuple):
    """A piece of the text. `kind`: name, word (after a dot), integer, float, hex_float, string, mark, other or end."""

    kind: str
    text: str
    start: int


class Cursor:
    """A place in a text from which tokens are taken, one after another; `token` is the next one.

    >>> cursor = Cursor(Text("bra $done;"))
    >>> cursor.take().text, cursor.take().text, cursor.takes(";"), cursor.token.kind
    ('bra', '$done', True, 'end')
    """

    __slots__ = ("code", "end", "text", "token")

    def __init__(self, text: Text) -> None:
        self.text = text
        self.code = text.code
        self.move(0)

    def move(self, position: int) -> None:
        """Go to a position."""
        match = _TOKEN.match(self.code, position)
        assert match is not None  # the last alternatives match anything
        group = match.lastindex
        assert group is not None
        self.end = match.end()  # of the token
        self.token = Token(_KINDS[group - 1], match[group], match.start(group))

    def take(self) -> Token:
        """Take the next token, and move past it."""
        token = self.token
        self.move(self.end)
        return token

    def takes(self, text: str) -> bool:
        """Whether the next token has this text; if so, move past it."""
        if self.token.text != text:
            return False
        self.move(self.end)
        return True

    def expect(self, text: str, expected: str | None = None) -> Token:
        """Take the next token, which must have this text."""
        if self.token.text != text:
            self.refuse(expected or f"`{text}`")
        return self.take()

    def expect_kind(self, kind: str, expected: str) -> Token:
        """Take the next token, which must be of this kind."""
        if self.token.kind != kind:
            self.refuse(expected)
        return self.take()

    def refuse(self, expected: str, token: Token | None = None) -> NoReturn:
        """Refuse the next token, or another one."""
        refused = token or self.token
        shown = "the end of the text" if refused.kind == "end" else f"`{shorten(refused.text, 60)}`"
        raise self.text.error(SYNTAX.wording, refused.start, shown=shown, expected=expected)
