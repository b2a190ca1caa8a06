"""Operands: the careful reader takes any of them, the quick one takes what nearly all of them are.

    %r1  !%p1  %p1|%p2  _  -8  0f3F800000  {%f1, %f2}  [%rd1+8]  [map, {%r1, %r2}]  (param0)  $L__BB0_2

The quick reader handles any text that it has seen in this scope before, and names, decimal numbers and plain addresses.
For anything else it returns None, and the careful reader parses the statement token by token, or reports the mistake.
"""

from __future__ import annotations

import re

from tilescope.errors import RuleError, Violation, Wording
from tilescope.ptx.constants import MAX_NESTING, WARP_SIZE, read_constant, read_integer, starts_constant
from tilescope.ptx.lexer import NAME, Cursor, Text, Token
from tilescope.ptx.rules import LIMIT, MANY_NAMES, NO_PREDICATE
from tilescope.ptx.rules import NAME as NAME_RULE
from tilescope.ptx.scope import SPECIAL_REGISTERS, Scope
from tilescope.ptx.syntax import (
    Address,
    AddressOf,
    Arguments,
    Guard,
    Immediate,
    Negated,
    Operand,
    Pair,
    Part,
    Register,
    Sink,
    SpecialRegister,
    Variable,
    Vector,
)
from tilescope.sentence import shorten

MAX_PROBLEMS = 20  # unknown names that one refusal lists
_QUICK = re.compile(
    rf"""
      (?P<name>{NAME}(?:\.[xyzw])?)
    | (?P<number>-?[1-9][0-9]{{0,17}}|0)
    | \[\s*(?P<base>{NAME})\s*(?:\+\s*(?P<offset>-?[1-9][0-9]{{0,17}}|0)\s*)?\]
    """,
    re.VERBOSE,
)
_SELECTOR = re.compile(r"\.[bh][0-7]{1,4}")
_PART = re.compile(r"\s*(?:\{([^{}]*)\}|(\[[^][{}]*\]|[^][,{}()]+))\s*(?:,(?!\s*\Z)|\Z)")


class Problems:
    """Names that are not declared, gathered so that one run tells all of them."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.violations: list[Violation] = []

    def add(self, wording: Wording, position: int, **facts: object) -> None:
        """Note a problem, and stop at the last one that is listed: more are not worth reading."""
        place = self.text.place(position)
        violation = wording.violation(change=None, short=None, line=place.line, column=place.column, **facts)
        self.violations.append(violation)
        if len(self.violations) >= MAX_PROBLEMS:
            count = len(self.violations)
            last = MANY_NAMES.violation(line=place.line, column=place.column, count=count)
            raise RuleError([*self.violations, last])

    def unknown(self, scope: Scope, token: Token) -> None:
        """Note an undeclared register or variable."""
        self.add(NAME_RULE.wording, token.start, name=shorten(token.text), nearest=scope.nearest(token.text))


def quick_operands(written: str, scope: Scope) -> list[Operand] | None:
    """The operands of an instruction if all of them have a common form; None: use the careful reader.

    >>> from tilescope.ptx.scope import RegisterRange
    >>> scope = Scope()
    >>> scope.declare_range("%r", RegisterRange("b32", 9))
    >>> quick_operands("%r1, -4", scope)
    [Register(name='%r1', type='b32', number=0), Immediate(value=-4, float_bits=None)]
    >>> quick_operands("%r1, 0x4", scope) is None
    True
    """
    if "{" in written or "(" in written:
        return _quick_parts(written, scope)
    return _quick_list(written, scope)


def _quick_list(written: str, scope: Scope) -> list[Operand] | None:
    cached = scope.operands
    operands: list[Operand] = []
    for part in written.split(","):
        text = part.strip()
        operand = cached.get(text)
        if operand is None:
            operand = _quick_operand(text, scope)
            if operand is None:
                return None
            cached[text] = operand
        operands.append(operand)
    return operands


def _quick_parts(written: str, scope: Scope) -> list[Operand] | None:
    """Vectors among the operands."""
    operands: list[Operand] = []
    position = 0
    while position < len(written):
        match = _PART.match(written, position)
        if match is None:
            return None
        vector, other = match.groups()
        elements = _quick_list(other if vector is None else vector, scope)
        if elements is None:
            return None
        operands += elements if vector is None else [Vector(tuple(elements))]
        position = match.end()
    return operands


def _quick_operand(text: str, scope: Scope) -> Operand | None:
    match = _QUICK.fullmatch(text)
    if match is None:
        return None
    if match["number"] is not None:
        return Immediate(int(match["number"]))
    if match["base"] is not None:
        base = scope.find(match["base"])
        return Address(base, int(match["offset"] or 0)) if isinstance(base, Register | Variable) else None
    name = match["name"]
    named = scope.find(name)
    if named is None and name in SPECIAL_REGISTERS:
        return SpecialRegister(name)
    return Sink() if name == "_" else named


class OperandReader:
    """The careful reader of operands, in one scope. A name that may be a label is left to `unresolved`."""

    def __init__(self, cursor: Cursor, scope: Scope, problems: Problems) -> None:
        self.cursor = cursor
        self.scope = scope
        self.problems = problems
        self.unresolved: list[tuple[int, Token]] = []  # operand's number, name

    def guard(self) -> Guard | None:
        """`@%p1` or `@!%p1`, if one follows."""
        cursor = self.cursor
        if not cursor.takes("@"):
            return None
        is_negated = cursor.takes("!")
        return Guard(self._predicate(), is_negated)

    def operands(self, *, of_labels: bool) -> list[Operand]:
        """Operands with commas between them, up to the semicolon; `of_labels`: bare names are labels and functions."""
        cursor = self.cursor
        operands: list[Operand] = []
        if cursor.takes(";"):
            return operands
        while True:
            start = cursor.token
            if of_labels and start.kind == "name" and not isinstance(self.scope.find(start.text), Register):
                self.unresolved.append((len(operands), cursor.take()))
                operands.append(Sink())
            else:
                operands.append(self._known_operand(start, len(operands)))
            if cursor.takes(";"):
                return operands
            cursor.expect(",", "`,` or `;`")

    def _known_operand(self, start: Token, number: int) -> Operand:
        """An operand, remembered by its text unless it is a name that is resolved later."""
        unresolved = len(self.unresolved)
        problems = len(self.problems.violations)
        operand = self._operand(number, depth=0)
        if len(self.unresolved) == unresolved and len(self.problems.violations) == problems:
            written = self.cursor.code[start.start : self.cursor.token.start]
            self.scope.operands[written.strip()] = operand
        return operand

    def _operand(self, number: int | None, depth: int) -> Operand:
        """One operand; `number` is its own where it may be a label, None inside braces and brackets."""
        cursor = self.cursor
        token = cursor.token
        if depth > MAX_NESTING:
            raise cursor.text.error(
                LIMIT.wording, token.start, amount=depth, what="braces within braces", most=MAX_NESTING
            )
        if token.text == "{":
            return Vector(self._read_list("}", depth))
        if token.text == "[":
            return self._address(depth)
        if token.text == "(" and number is not None and not self._is_constant_in_parentheses():
            return Arguments(self._read_list(")", depth))
        if token.text == "!":
            cursor.take()
            return Negated(self._predicate())
        if token.kind == "name":
            return self._read_name(number)
        if token.text == "-" and number is not None and self._is_sign_of_register():
            cursor.take()
            return self._negated_register(number)
        return read_constant(cursor, "an operand or `;`" if number == 0 else "an operand")

    def _is_sign_of_register(self) -> bool:
        """Whether a register follows the minus: `-%r1`, and not `-8`."""
        cursor = self.cursor
        start = cursor.token.start
        cursor.take()
        is_register = cursor.token.kind == "name" and isinstance(self.scope.find(cursor.token.text), Register)
        cursor.move(start)
        return is_register

    def _negated_register(self, number: int) -> Operand:
        """A register, or a part of it, behind its minus."""
        token = self.cursor.token
        named = self._read_name(number)
        if isinstance(named, Part):
            return named._replace(is_negated=True)
        if not isinstance(named, Register):
            self.cursor.refuse("a register", token)
        return Part(named, "", is_negated=True)

    def _is_constant_in_parentheses(self) -> bool:
        """Whether a number follows the parenthesis: `(4+4)*2`, and not `(param0)`."""
        cursor = self.cursor
        start = cursor.token.start
        cursor.take()
        is_constant = starts_constant(cursor.token)
        cursor.move(start)
        return is_constant

    def _read_list(self, end: str, depth: int) -> tuple[Operand, ...]:
        """Operands with commas between them, in braces or parentheses."""
        cursor = self.cursor
        cursor.take()
        if cursor.takes(end):
            return ()
        elements = [self._operand(None, depth + 1)]
        while not cursor.takes(end):
            cursor.expect(",", f"`,` or `{end}`")
            elements.append(self._operand(None, depth + 1))
        return tuple(elements)

    def _read_name(self, number: int | None) -> Operand:
        """A register, a variable, a special register or `_`; perhaps a pair of them, `%p1|%p2`, or a part, `%r1.b0`."""
        cursor = self.cursor
        token = cursor.token
        if token.text == WARP_SIZE:
            return self._warp_size()
        first = self._meaning(cursor.take(), number)
        if isinstance(first, Variable) and cursor.token.text in ("+", "-"):
            return AddressOf(first, read_integer(cursor))
        if isinstance(first, Register | Sink) and cursor.takes("|"):
            token = cursor.expect_kind("name", "the register after `|`")
            return Pair(first, self._meaning(token, None))
        if isinstance(first, Register) and _SELECTOR.fullmatch(cursor.token.text):
            return Part(first, cursor.take().text[1:])
        return first

    def _warp_size(self) -> Operand:
        """WARP_SZ: as an operand it stays a name, in an expression it is 32."""
        cursor = self.cursor
        start = cursor.take().start
        if cursor.token.text in (",", ";", "}", "]", ")"):
            return SpecialRegister(WARP_SIZE)
        cursor.move(start)
        return read_constant(cursor)

    def _meaning(self, token: Token, number: int | None) -> Operand:
        name = token.text
        if name == "_":
            return Sink()
        named = self.scope.find(name)
        if named is not None:
            return named
        if name in SPECIAL_REGISTERS:
            return SpecialRegister(name)
        if number is None or name.startswith("%"):
            self.problems.unknown(self.scope, token)
        else:
            self.unresolved.append((number, token))
        return Sink()

    def _address(self, depth: int) -> Address:
        """`[base+offset]`, or `[map, {x, y}]` with the coordinates of a copy."""
        cursor = self.cursor
        cursor.take()
        base = self._base()
        offset = read_integer(cursor) if cursor.token.text in ("+", "-") else 0
        coordinates: list[Operand] = []
        while not cursor.takes("]"):
            cursor.expect(",", "`]`, `+` or `,`")
            coordinates.append(self._operand(None, depth + 1))
        match coordinates:
            case [Vector(elements)]:
                return Address(base, offset, elements)
        return Address(base, offset, tuple(coordinates))

    def _base(self) -> Register | Variable | Immediate:
        cursor = self.cursor
        token = cursor.token
        if token.kind != "name":
            return Immediate(read_integer(cursor, "a register, a variable or a number"))
        cursor.take()
        named = self.scope.find(token.text)
        if isinstance(named, Register | Variable):
            return named
        if named is not None or token.text in SPECIAL_REGISTERS:
            cursor.refuse("a register, a variable or a number", token)
        self.problems.unknown(self.scope, token)
        return Immediate(0)

    def _predicate(self) -> Register:
        """A register of type .pred."""
        cursor = self.cursor
        token = cursor.expect_kind("name", "a register of type .pred")
        named = self.scope.find(token.text)
        if named is None:
            self.problems.unknown(self.scope, token)
            return Register(token.text, "pred", 0)
        if not isinstance(named, Register):
            cursor.refuse("a register of type .pred", token)
        if named.type != "pred":
            raise cursor.text.error(NO_PREDICATE, token.start, name=shorten(token.text), type=named.type)
        return named


def quick_guard(name: str, is_negated: bool, scope: Scope) -> Guard | None:
    """The guard of an instruction; None: use the careful reader."""
    register = scope.find(name)
    if isinstance(register, Register) and register.type == "pred":
        return Guard(register, is_negated)
    return None
