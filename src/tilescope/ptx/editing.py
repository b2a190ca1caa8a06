r"""Changes of a PTX text: an instruction taken out, or written with another operand; every line keeps its number.

    bar.sync 0;                                          /* bar.sync 0; */
    @p mbarrier.expect_tx.b64 [%r1], 4096;               @p mbarrier.expect_tx.b64 [%r1], 4112;
    @p mbarrier.expect_tx.b64 [%r1], %r2;                { .reg .b32 t; add.s32 t, %r2, 16; @p mbarrier.expect_tx.b64 [%r1], t; }

An edit replaces the characters from `start` to `end`. Edits are made on `Text.code`, whose comments are blanks.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import NamedTuple

from tilescope.ptx.lexer import Text
from tilescope.ptx.syntax import Instruction, Module

_HEAD = re.compile(r"(?:@\s*!?\s*[\w$%]+\s+)?[\w.:]+")
_BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}
_BRACE = re.compile(r'"[^"\n]*"|[{}]')
_BODY_START = re.compile(r"[{;]")
_NOT_NEWLINE = re.compile(r"[^\n]")


class Edit(NamedTuple):
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """A text after edits that do not overlap.

    >>> apply_edits("bar.sync 0; ret;", [Edit(9, 10, "1"), Edit(12, 16, "exit;")])
    'bar.sync 1; exit;'
    """
    pieces = []
    position = 0
    for edit in sorted(edits):
        assert edit.start >= position, "edits overlap"
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


class Statement(NamedTuple):
    """An instruction in a text: its place, its guard and opcode, and the text of its operands."""

    start: int
    end: int  # after the semicolon
    head: str
    operands: tuple[str, ...]
    line_ends: int  # inside it

    @property
    def written(self) -> str:
        """The whole instruction, with its semicolon."""
        operands = ", ".join(self.operands)
        return f"{self.head} {operands};" if operands else f"{self.head};"

    def removed(self) -> Edit:
        """Leave a comment where the instruction was."""
        return self.replaced(f"/* {self.written} */")

    def replaced(self, text: str) -> Edit:
        """Write another text on one line, which may be several instructions, in its place."""
        return Edit(self.start, self.end, text + "\n" * self.line_ends)

    def with_operand(self, index: int, operand: str, before: str = "") -> Edit:
        """Replace an operand; the instructions in `before` run first, in a separate scope."""
        operands = [*self.operands]
        operands[index] = operand
        changed = self._replace(operands=tuple(operands)).written
        return self.replaced(f"{{ {before} {changed} }}" if before else changed)


def statement_of(code: str, instruction: Instruction) -> Statement:
    """The place of an instruction in the text that it was read from, comments blanked.

    >>> from tilescope.ptx import read_module
    >>> text = ".version 8.0 .target sm_90 .entry k() { .reg .b32 %r<4>; mov.b64 {%r1, %r2}, 7; }"
    >>> statement = statement_of(text, read_module(text).functions["k"].instructions[0])
    >>> statement.head, statement.operands
    ('mov.b64', ('{%r1, %r2}', '7'))
    """
    start = instruction.start
    end = code.index(";", start)
    head = _HEAD.match(code, start)
    assert head is not None  # it was read as an instruction
    line_ends = code.count("\n", start, end)
    return Statement(start, end + 1, " ".join(head[0].split()), _operands(code[head.end() : end]), line_ends)


def _operands(written: str) -> tuple[str, ...]:
    """Split a list of operands at the commas outside of brackets."""
    operands: list[str] = []
    depth = 0
    begun = 0
    for position, character in enumerate(written):
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            operands.append(written[begun:position])
            begun = position + 1
    operands.append(written[begun:])
    stripped = tuple(" ".join(operand.split()) for operand in operands)
    return () if stripped == ("",) else stripped


def only_bodies(text: Text, module: Module, kept: Container[str]) -> str:
    """The code of a text in which functions that are not `kept` have empty bodies: it is read more quickly.

    >>> text = Text(".version 8.0 .target sm_90 .entry a() { ret; } .entry b() { exit; }")
    >>> from tilescope.ptx import read_module
    >>> only_bodies(text, read_module(text.original), {"b"})
    '.version 8.0 .target sm_90 .entry a() {      } .entry b() { exit; }'
    """
    edits = []
    line_starts = [0, *(newline.end() for newline in re.finditer("\n", text.code))]
    for function in module.functions.values():
        if function.name in kept or function.instructions is None:
            continue
        name = re.compile(rf"(?<![\w$%]){re.escape(function.name)}(?![\w$])")
        match = name.search(text.code, line_starts[function.line - 1])
        body = None if match is None else _body(text.code, match.end())
        if body is not None:
            start, end = body
            edits.append(Edit(start, end, _NOT_NEWLINE.sub(" ", text.code[start:end])))
    return apply_edits(text.original, set(edits))


def _body(code: str, position: int) -> tuple[int, int] | None:
    """The text between the braces of the function whose name ends at `position`; None: it is only declared."""
    begin = _BODY_START.search(code, position)
    if begin is None or begin[0] == ";":
        return None
    depth = 0
    for brace in _BRACE.finditer(code, begin.start()):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return begin.end(), brace.start()
    return None
