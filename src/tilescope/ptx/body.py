"""The body of a function: statements, scopes and labels into instructions.

    {                        a scope opens
        .reg .pred p;        a directive
    waitLoop:                a label: the number of the instruction that follows
        @!p bra waitLoop;    an instruction
    }                        and closes

One expression takes a whole statement. An instruction of the common form is read quickly (`operands`), any other with
care. Labels, tables of labels and functions may follow their use, so a name that the scope does not know yet is looked up
at the end.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from tilescope.names import nearest_name
from tilescope.ptx.declarations import (
    PLAIN_PARAMETER,
    VARIABLE_SPACES,
    VariableCounter,
    plain_parameter,
    read_registers,
    read_variables,
    refuse_second,
    skip_parentheses,
)
from tilescope.ptx.lexer import NAME, Cursor, Text, Token
from tilescope.ptx.operand_reader import OperandReader, Problems, quick_guard, quick_operands
from tilescope.ptx.rules import DECLARED_AGAIN, LIMIT, NO_FUNCTION, NO_LABEL
from tilescope.ptx.rules import NAME as NAME_RULE
from tilescope.ptx.scope import NAMES_COMPARED, Scope
from tilescope.ptx.source_lines import SourceLines
from tilescope.ptx.syntax import (
    Arguments,
    BranchTable,
    FunctionName,
    Guard,
    Instruction,
    Label,
    Operand,
    Prototype,
    Register,
    Sink,
    SourceLine,
    Variable,
)
from tilescope.sentence import shorten

MAX_SCOPES = 100  # within each other
_STATEMENT = re.compile(
    rf"""\s*+(?:
      (?P<label>{NAME})\s*:(?!:)(?:\s*(?P<table>\.(?:branchtargets|calltargets|callprototype)\b))?
    | (?P<instruction>
        (?:@(?P<negated>!?)(?P<guard>{NAME})\s+)?
        (?P<opcode>[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*)*)(?=[\s;{{(\[])
        (?P<operands>[^;]*+))
      ;
    | (?P<open>\{{)
    | (?P<close>\}})
    | (?P<directive>\.[a-z_]+)
    )""",
    re.VERBOSE,
)
_OF_LABELS = frozenset({"bra", "brx", "call"})  # a bare name after these is a label or a function
_CALL = re.compile(
    rf"""\s*(?:\((?P<results>[^()]*)\)\s*,\s*)?(?P<name>{NAME})\s*(?:,\s*\((?P<arguments>[^()]*)\)\s*)?"""
)
_SKIPPED = frozenset({".pragma"})

Opcode = tuple[str, tuple[str, ...]]


class _Draft(NamedTuple):
    """An instruction whose labels and source line are not known yet."""

    opcode: Opcode
    operands: list[Operand]
    guard: Guard | None
    line: int
    source: int | None
    text: str
    start: int


class _OpenName(NamedTuple):
    """An operand that is a label, a table or a function."""

    scope: Scope
    draft: int
    operand: int
    name: Token


class _OpenTable(NamedTuple):
    """A table whose labels are looked up at the function's end."""

    scope: Scope
    name: str
    labels: list[Token]


class Body(NamedTuple):
    """A function's body; `finished` makes its instructions once the source lines are known."""

    variables: tuple[Variable, ...]
    drafts: list[_Draft]
    scope: Scope

    def finished(self, sources: list[SourceLine]) -> tuple[Instruction, ...]:
        """The instructions."""
        return tuple(
            Instruction(
                draft.opcode[0],
                draft.opcode[1],
                tuple(draft.operands),
                draft.guard,
                draft.line,
                None if draft.source is None else sources[draft.source],
                draft.text,
                draft.start,
            )
            for draft in self.drafts
        )


class BodyReader:
    """Reads one body, from the brace that opens it."""

    def __init__(self, text: Text, sources: SourceLines, numbers: VariableCounter, problems: Problems) -> None:
        self.text = text
        self.sources = sources
        self.numbers = numbers
        self.problems = problems
        self.cursor = Cursor(text)
        self.variables: list[Variable] = []
        self.drafts: list[_Draft] = []
        self.open_names: list[_OpenName] = []
        self.open_tables: list[_OpenTable] = []
        self.opcodes: dict[str, Opcode] = {}
        self.scope = Scope()
        self.source: int | None = None

    def read(self, position: int, outermost: Scope, functions: Collection[str]) -> tuple[Body, int]:
        """The body that the brace at `position` opens, and where it ends; `outermost` has the parameters already."""
        code = self.text.code
        self.scope = outermost
        position = self._open_brace(position)
        while self.scope is not outermost.around:
            match = _STATEMENT.match(code, position)
            if match is None:
                position = self._read_carefully(position)
            elif match.lastgroup == "instruction":
                position = self._read_quickly(match)
            elif match.lastgroup in ("label", "table"):
                position = self._read_label(match)
            elif match.lastgroup == "directive":
                position = self._read_directive(match.start("directive"), match["directive"])
            else:
                position = self._read_brace(match)
        self._resolve(functions)
        return Body(tuple(self.variables), self.drafts, outermost), position

    def _open_brace(self, position: int) -> int:
        self.cursor.move(position)
        self.cursor.expect("{")
        return self.cursor.token.start

    def _read_brace(self, found: re.Match[str]) -> int:
        """`{` opens a scope, `}` closes it."""
        if found.lastgroup == "open":
            if self.scope.depth >= MAX_SCOPES:
                raise self.text.error(
                    LIMIT.wording,
                    found.start("open"),
                    amount=self.scope.depth + 1,
                    what="scopes within each other",
                    most=MAX_SCOPES,
                )
            self.scope = Scope(self.scope)
        else:
            self.scope.operands.clear()
            assert self.scope.around is not None  # that of the module
            self.scope = self.scope.around
        return found.end()

    def _read_label(self, found: re.Match[str]) -> int:
        """A label, or the name of a table of labels."""
        name = found["label"]
        if self.scope.declares(name):
            raise self.text.error(DECLARED_AGAIN, found.start("label"), name=shorten(name))
        if found["table"] is not None:
            self.cursor.move(found.start("table"))
            return self._read_table(name)
        self.scope.labels[name] = len(self.drafts)
        return found.end()

    def _read_table(self, name: str) -> int:
        """`name: .branchtargets a, b;`, or what a call through a register needs."""
        cursor = self.cursor
        directive = cursor.take()
        if directive.text == ".branchtargets":
            labels = self._read_names()
            self.scope.tables[name] = None
            self.open_tables.append(_OpenTable(self.scope, name, labels))
        else:
            _skip_statement(cursor)
            self.scope.tables[name] = Prototype(name)
        return _after_semicolon(cursor)

    def _read_names(self) -> list[Token]:
        cursor = self.cursor
        names = [cursor.expect_kind("name", "a label")]
        while cursor.takes(","):
            names.append(cursor.expect_kind("name", "a label"))
        if cursor.token.text != ";":
            cursor.refuse("`,` or `;`")
        return names

    def _read_directive(self, position: int, directive: str) -> int:
        if directive == ".loc":
            self.source, end = self.sources.read_loc(position)
            return end
        plain = PLAIN_PARAMETER.match(self.text.code, position)
        if plain is not None and not self.scope.declares(plain["name"]):
            self._declare(plain_parameter(plain, self.numbers))
            return plain.end()
        cursor = self.cursor
        cursor.move(position)
        directive = cursor.token.text  # .shared::cta, where a pattern found .shared
        if directive == ".reg":
            read_registers(cursor, self.scope)
        elif directive in VARIABLE_SPACES:
            self._declare_variables()
        elif directive in _SKIPPED:
            _skip_statement(cursor)
            return _after_semicolon(cursor)
        else:
            cursor.refuse("an instruction, a label, or a directive of a function's body")
        return cursor.token.start

    def _declare_variables(self) -> None:
        for declared in read_variables(self.cursor, self.numbers):
            refuse_second(self.cursor, self.scope, declared.token)
            if declared.addresses:
                self.cursor.refuse("a variable without addresses: only those of the module hold some", declared.token)
            self._declare(declared.variable)

    def _declare(self, variable: Variable) -> None:
        self.scope.declare(variable.name, variable)
        self.variables.append(variable)

    def _read_quickly(self, found: re.Match[str]) -> int:
        """An instruction of the common form; any other is read with care."""
        opcode = self._opcode(found["opcode"])
        guard = None
        if found["guard"] is not None:
            guard = quick_guard(found["guard"], found["negated"] == "!", self.scope)
            if guard is None:
                return self._read_carefully(found.start("instruction"))
        operands = self._quick_operands(opcode[0], found)
        if operands is None:
            return self._read_carefully(found.start("instruction"))
        start = found.start("instruction")
        text = " ".join(found["instruction"].split())
        self.drafts.append(_Draft(opcode, operands, guard, self.text.line(start), self.source, text, start))
        return found.end()

    def _quick_operands(self, name: str, found: re.Match[str]) -> list[Operand] | None:
        """The operands of an instruction of the common form; None: use the careful reader."""
        written = found["operands"]
        if not written or written.isspace():
            return []
        if name not in _OF_LABELS:
            return quick_operands(written, self.scope)
        call = _CALL.fullmatch(written)
        if call is None or isinstance(self.scope.find(call["name"]), Register):
            return None
        return self._quick_call(call, found.start("operands"))

    def _quick_call(self, call: re.Match[str], start: int) -> list[Operand] | None:
        """The operands of `bra label` and of `call (result), function, (arguments)`, written from `start` on."""
        operands: list[Operand] = []
        for group in ("results", "name", "arguments"):
            written = call[group]
            if group == "name":
                token = Token("name", written, start + call.start("name"))
                open_name = _OpenName(self.scope, len(self.drafts), len(operands), token)
                operands.append(Sink())
            elif written is not None:
                variables = quick_operands(written, self.scope)
                if variables is None:
                    return None
                operands.append(Arguments(tuple(variables)))
        self.open_names.append(open_name)
        return operands

    def _opcode(self, written: str) -> Opcode:
        opcode = self.opcodes.get(written)
        if opcode is None:
            name, *modifiers = written.split(".")
            opcode = self.opcodes[written] = (name, tuple(modifiers))
        return opcode

    def _read_carefully(self, position: int) -> int:
        """An instruction, token by token."""
        cursor = self.cursor
        cursor.move(position)
        start = cursor.token.start
        reader = OperandReader(cursor, self.scope, self.problems)
        guard = reader.guard()
        name = cursor.expect_kind("name", "an instruction, a label or `}`")
        modifiers = []
        while cursor.token.kind == "word":
            modifiers.append(cursor.take().text)
        opcode = self._opcode(name.text + "".join(modifiers))
        operands = reader.operands(of_labels=opcode[0] in _OF_LABELS)
        for operand, token in reader.unresolved:
            self.open_names.append(_OpenName(self.scope, len(self.drafts), operand, token))
        end = cursor.code.rindex(";", start, cursor.token.start)
        text = " ".join(cursor.code[start:end].split())
        self.drafts.append(_Draft(opcode, operands, guard, self.text.line(start), self.source, text, start))
        return end + 1

    def _resolve(self, functions: Collection[str]) -> None:
        """Give labels, tables and functions their places in the operands."""
        for table in self.open_tables:
            targets = tuple(self._target(table.scope, label) for label in table.labels)
            table.scope.tables[table.name] = BranchTable(table.name, targets)
        for open_name in self.open_names:
            meaning = self._meaning(open_name, functions)
            if meaning is not None:
                self.drafts[open_name.draft].operands[open_name.operand] = meaning

    def _target(self, scope: Scope, label: Token) -> int:
        target = scope.find_label(label.text)
        if target is None:
            nearest = scope.nearest(label.text, of_labels=True)
            self.problems.add(NO_LABEL, label.start, name=shorten(label.text), nearest=nearest)
            return 0
        return target

    def _meaning(self, open_name: _OpenName, functions: Collection[str]) -> Operand | None:
        scope, name = open_name.scope, open_name.name
        target = scope.find_label(name.text)
        if target is not None:
            return Label(name.text, target)
        table = scope.find_table(name.text)
        if table is not None:
            return table
        if name.text in functions:
            return FunctionName(name.text)
        instruction = self.drafts[open_name.draft].opcode[0]
        if instruction == "call":
            wording, nearest = NO_FUNCTION, nearest_name(name.text, islice(functions, NAMES_COMPARED))
        elif instruction in _OF_LABELS:
            wording, nearest = NO_LABEL, scope.nearest(name.text, of_labels=True)
        else:
            wording, nearest = NAME_RULE.wording, scope.nearest(name.text)
        self.problems.add(wording, name.start, name=shorten(name.text), nearest=nearest)
        return None


def _skip_statement(cursor: Cursor) -> None:
    """Go to the semicolon that ends a statement; parentheses and strings are skipped whole."""
    while cursor.token.text != ";":
        if cursor.token.text == "(":
            skip_parentheses(cursor)
        elif cursor.token.kind == "end" or cursor.token.text in ("{", "}"):
            cursor.refuse("`;`")
        else:
            cursor.take()


def _after_semicolon(cursor: Cursor) -> int:
    """Where the next statement begins; the semicolon of this one comes next."""
    cursor.expect(";")
    return cursor.token.start
