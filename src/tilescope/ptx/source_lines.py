"""The lines of the program that a PTX text was made from: .file, .loc, and what was inlined into what.

    .loc 2 1066 10, function_name $L__info_string0, inlined_at 1 105 3       nvcc: a line that was inlined, and where
    .loc 2 1041 10, function_name $L__info_string1, inlined_at 2 1066 10     … into what a .loc before it says
    .loc 2 170 27  // standard.py:170:27 @[ kernels.py:46:131 ]              Triton: in the comment

Triton counts the lines of an inline assembly text as lines of the program: only the first .loc of such a text is true.

    .loc 1 5 23                             tl.load stands in line 5
    // begin inline asm
    .loc 1 5 23
    mov.u32 %r1, 0x0;
    .loc 1 6 23                             the second line of the text, not line 6
    ld.global.b32 { %r1 }, [ %rd1 + 0 ];
    // end inline asm

Most .file directives come after their use, and the names of functions in a debug section at the text's end. So lines are
numbered while the text is read, and `resolved` names them when all of it is known.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from pathlib import PurePosixPath
from typing import NamedTuple

from tilescope.ptx.lexer import NAME, Text
from tilescope.ptx.rules import LIMIT, SYNTAX
from tilescope.ptx.syntax import SourceLine

MAX_INLINED = 200  # functions inlined into each other
_NUMBER = "([0-9]{1,9})"
_LOC = re.compile(
    rf"""\.loc [ \t]+ {_NUMBER} [ \t]+ {_NUMBER} [ \t]+ {_NUMBER} (?![\w$.])
    (?: [ \t]* , [ \t]* function_name [ \t]+ ({NAME}) (?: [ \t]* \+ [ \t]* ([0-9]{{1,9}}) )? )?
    (?: [ \t]* ,? [ \t]* inlined_at [ \t]+ {_NUMBER} [ \t]+ {_NUMBER} [ \t]+ {_NUMBER} )?""",
    re.VERBOSE,
)
_COMMENTED_LINE = re.compile(r"([^\s@\[\]][^@\[\]]*?):([0-9]{1,9}):([0-9]{1,9})\s*(?:@\[|\]|\Z)\s*")
_ASSEMBLY_BEGINS = re.compile(r"//[ \t]*begin inline asm")
_ASSEMBLY_ENDS = re.compile(r"//[ \t]*end inline asm")
_STRING = re.compile(rf"({NAME}):\s*((?:\.b8[^\n]*\n\s*)*)")


class _Line(NamedTuple):
    """A line that has a number: `file` is a number of .file or a name, `inlined_at` the number of another line."""

    file: int | str
    line: int
    column: int
    function: tuple[str, int] | None = None  # label and offset in the debug strings
    inlined_at: int | None = None


class SourceLines:
    """All lines of a text, numbered in the order of their first use."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._files: dict[int, str] = {}
        self._commented: dict[int, str] = {}  # names that comments give to files
        self._lines: list[_Line] = []
        self._depths: list[int] = []
        self._numbers: dict[_Line, int] = {}
        self._latest: dict[tuple[int, int, int], int] = {}
        self._strings_at: int | None = None  # where the section of debug strings begins
        self._assembly_begins = [match.start() for match in _ASSEMBLY_BEGINS.finditer(text.original)]
        self._assembly_ends = [match.start() for match in _ASSEMBLY_ENDS.finditer(text.original)]
        self._assembly_lines: dict[int, int | None] = {}  # the first line of every inline assembly text

    def add_file(self, number: int, path: str) -> None:
        """Note `.file number "path"`."""
        self._files.setdefault(number, path)

    def add_strings(self, position: int) -> None:
        """Note where the section of debug strings begins."""
        self._strings_at = position

    def read_loc(self, position: int) -> tuple[int | None, int]:
        """The line of the .loc at a position, by its number (None: no line), and where the .loc ends."""
        match = _LOC.match(self._text.code, position)
        if match is None:
            raise self._text.error(
                SYNTAX.wording, position, shown="`.loc`", expected="a .loc with the numbers of file, line and column"
            )
        file, line, column = int(match[1]), int(match[2]), int(match[3])
        if match[6] is not None:
            number = self._outer_line(match, (file, line, column))
        else:
            number = self._commented_line(match, (file, line, column))
        if number is not None:
            self._latest[file, line, column] = number
        assembly = self._assembly_around(position)
        if assembly is not None:
            number = self._assembly_lines.setdefault(assembly, number)
        return number, match.end()

    def _assembly_around(self, position: int) -> int | None:
        """The number of the inline assembly text that contains a position, or None."""
        begun = bisect_left(self._assembly_begins, position)
        ended = bisect_left(self._assembly_ends, position)
        return begun if begun > ended else None

    def _outer_line(self, found: re.Match[str], place: tuple[int, int, int]) -> int | None:
        """A line of nvcc's, that was inlined into another."""
        caller_place = (int(found[6]), int(found[7]), int(found[8]))
        caller = self._latest.get(caller_place)
        if caller is None:
            caller = self._enter(_Line(*caller_place), found.start())
        function = (found[4], int(found[5] or 0)) if found[4] else None
        file, line, column = place
        return self._enter(_Line(file, line, column, function, caller), found.start())

    def _commented_line(self, found: re.Match[str], place: tuple[int, int, int]) -> int | None:
        """A line of Triton's, whose comment may have the line that it was inlined into; or a plain one."""
        file, line, column = place
        frames = _frames(self._text.rest_of_line(found.end()))
        if not frames or frames[0][1:] != (line, column):
            return self._enter(_Line(file, line, column), found.start())
        self._commented.setdefault(file, frames[0][0])
        caller = None
        for name, caller_line, caller_column in reversed(frames[1:]):
            caller = self._enter(_Line(name, caller_line, caller_column, None, caller), found.start())
        return self._enter(_Line(file, line, column, None, caller), found.start())

    def _enter(self, line: _Line, position: int) -> int | None:
        """The number of a line. Line 0 means no line: then that of the line it was inlined into, or None."""
        if line.line == 0:
            return line.inlined_at
        number = self._numbers.get(line)
        if number is not None:
            return number
        depth = 0 if line.inlined_at is None else self._depths[line.inlined_at] + 1
        if depth > MAX_INLINED:
            raise self._text.error(
                LIMIT.wording, position, amount=depth, what="functions inlined into each other", most=MAX_INLINED
            )
        self._numbers[line] = number = len(self._lines)
        self._lines.append(line)
        self._depths.append(depth)
        return number

    def resolved(self) -> list[SourceLine]:
        """All lines, by number."""
        names = self._names()
        strings = self._strings()
        sources: list[SourceLine] = []
        for line in self._lines:
            name = names.get(line.file, f"file {line.file}") if isinstance(line.file, int) else line.file
            function = None
            if line.function is not None:
                label, offset = line.function
                function = strings.get(label, "")[offset:].partition("\0")[0] or None
            caller = None if line.inlined_at is None else sources[line.inlined_at]
            sources.append(SourceLine(name, line.line, line.column, function, caller))
        return sources

    def _names(self) -> dict[int, str]:
        """Names of the files: the last part of the path, or the whole path where files share the last part."""
        paths = self._commented | self._files
        bases = {number: PurePosixPath(path.replace("\\", "/")).name or path for number, path in paths.items()}
        different_files = {(bases[number], path) for number, path in paths.items()}
        sharing = Counter(base for base, _ in different_files)
        return {number: base if sharing[base] == 1 else paths[number] for number, base in bases.items()}

    def _strings(self) -> dict[str, str]:
        """The debug strings that lines name, by label."""
        labels = {line.function[0] for line in self._lines if line.function is not None}
        if self._strings_at is None or not labels:
            return {}
        strings: dict[str, str] = {}
        end = self._text.code.find("}", self._strings_at)
        for match in _STRING.finditer(self._text.code, self._strings_at, max(end, self._strings_at)):
            if match[1] in labels:
                strings[match[1]] = _string(match[2])
        return strings


def _frames(comment: str) -> list[tuple[str, int, int]]:
    """The lines that a comment of Triton's names, innermost first.

    >>> _frames(" // standard.py:43:17 @[ kernels.py:9:36 ]")
    [('standard.py', 43, 17), ('kernels.py', 9, 36)]
    """
    blanks, slashes, words = comment.partition("//")
    if blanks.strip() or not slashes:
        return []
    frames = []
    words = words.strip()
    position = 0
    while (match := _COMMENTED_LINE.match(words, position)) is not None:
        frames.append((match[1], int(match[2]), int(match[3])))
        position = match.end()
    return frames


def _string(bytes_written: str) -> str:
    """What `.b8 95,90,0` spells."""
    numbers = bytes_written.replace(".b8", ",").split(",")
    values = [int(number) for number in numbers if number.strip().isdecimal() and len(number) < 8]
    return bytes(value for value in values if value < 256).decode("latin-1")
