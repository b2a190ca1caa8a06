"""Registers and variables as they are declared.

.reg .b32 %r<180>;                         registers %r0 to %r179
.reg .v2 .f32 %v;                          a vector of two: %v.x and %v.y
.shared .align 16 .b8 tile[4][64];         256 bytes of shared memory
.param .u64 .ptr .global .align 16 out     a parameter; what follows .ptr is a hint for the compiler
.global .align 4 .b8 table[4] = {1, 2};    with initial values
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.ptx.constants import read_count, read_integer
from tilescope.ptx.initial import Initial, InitialAddress, read_initial
from tilescope.ptx.lexer import NAME, Cursor, Token
from tilescope.ptx.rules import DECLARED_AGAIN, LIMIT, TYPE
from tilescope.ptx.scope import RegisterRange, Scope
from tilescope.ptx.syntax import BITS_OF_TYPE, Register, Variable, VariableSpace, Vector
from tilescope.sentence import shorten

MAX_REGISTERS = 1 << 20  # of one range
MAX_DIMENSIONS = 8
MAX_ALIGNMENT_BYTES = 1 << 20
VARIABLE_SPACES: dict[str, VariableSpace] = {
    ".param": "param",
    ".shared": "shared",
    ".local": "local",
    ".const": "const",
    ".global": "global",
}
MAX_BYTES: dict[VariableSpace, int] = {
    "param": 32764,  # of a kernel, since CUDA 12.1
    "shared": 256 << 10,  # an SM does not have more
    "local": 512 << 10,  # of a thread
    "const": 64 << 10,
    "global": 1 << 30,  # the reader's own
}
"""Bytes of one variable."""
_VECTOR_LANES = {".v2": 2, ".v4": 4, ".v8": 8}
_LANE_NAMES = "xyzw"
_TYPES = tuple(f".{name}" for name in BITS_OF_TYPE)


@dataclass
class VariableCounter:
    """Numbers for the variables of a module."""

    count: int = 0

    def next(self) -> int:
        """The next number."""
        number = self.count
        self.count += 1
        return number


PLAIN_PARAMETER = re.compile(rf"\.param\s+\.(?P<type>[bus](?:8|16|32|64)|f32|f64)\s+(?P<name>{NAME})\s*;")
"""The common form of a parameter: calls declare thousands of them, so it is read by one expression."""


class _Kind(NamedTuple):
    """The qualifiers before a variable's name."""

    space: VariableSpace
    type: str
    lanes: int
    alignment_bytes: int | None


class Declared(NamedTuple):
    """A variable, and the addresses that its initial values name."""

    variable: Variable
    token: Token
    addresses: tuple[InitialAddress, ...]


def read_registers(cursor: Cursor, scope: Scope) -> None:
    """Declare the registers of `.reg .type name, name<count>;`."""
    cursor.expect(".reg")
    lanes = _read_lanes(cursor)
    register_type = _read_type(cursor)
    while True:
        name = cursor.expect_kind("name", "the name of a register")
        refuse_second(cursor, scope, name)
        if cursor.token.text != "<" and scope.range_has(name.text):
            raise cursor.text.error(DECLARED_AGAIN, name.start, name=shorten(name.text))
        if cursor.takes("<"):
            count = read_count(cursor, "registers", MAX_REGISTERS)
            cursor.expect(">")
            scope.declare_range(name.text, RegisterRange(register_type, count))
        elif lanes > 1:
            scope.declare(name.text, _vector_register(scope, name.text, register_type, lanes))
        else:
            scope.declare_register(name.text, register_type)
        if cursor.takes(";"):
            return
        cursor.expect(",", "`,` or `;`")


def _vector_register(scope: Scope, name: str, register_type: str, lanes: int) -> Vector:
    """%v of `.reg .v2 .f32 %v`: its parts are separate registers, %v.x and %v.y."""
    parts: list[Register] = [scope.make_register(f"{name}.{lane}", register_type) for lane in _LANE_NAMES[:lanes]]
    return Vector(tuple(parts))


def refuse_second(cursor: Cursor, scope: Scope, name: Token) -> None:
    """Refuse a name that its scope has declared already."""
    if name.text != "_" and scope.declares(name.text):
        raise cursor.text.error(DECLARED_AGAIN, name.start, name=shorten(name.text))


def read_variables(cursor: Cursor, numbers: VariableCounter, *, is_extern: bool = False) -> list[Declared]:
    """`.space .align n .type name[extent] = value, name …;`, all of it."""
    kind = _read_kind(cursor)
    declared = [_read_variable(cursor, kind, numbers, is_extern)]
    while not cursor.takes(";"):
        cursor.expect(",", "`,`, `=` or `;`")
        declared.append(_read_variable(cursor, kind, numbers, is_extern))
    return declared


def read_parameter(cursor: Cursor, numbers: VariableCounter) -> Declared:
    """One parameter of a function: `.param .align 64 .b8 map[128]`."""
    if cursor.token.text != ".param":
        cursor.refuse("`.param`: parameters of functions are read from memory")
    kind = _read_kind(cursor)
    return _read_variable(cursor, kind, numbers, is_extern=False)


def plain_parameter(found: re.Match[str], numbers: VariableCounter) -> Variable:
    """The variable of a PLAIN_PARAMETER."""
    element_type = found["type"]
    size_bytes = BITS_OF_TYPE[element_type] // 8
    return Variable(found["name"], numbers.next(), "param", element_type, size_bytes, size_bytes)


def _read_kind(cursor: Cursor) -> _Kind:
    space = VARIABLE_SPACES[cursor.take().text]
    alignment_bytes = None
    lanes = 1
    element_type = ""
    while cursor.token.kind == "word":
        word = cursor.token.text
        if word == ".align":
            cursor.take()
            alignment_bytes = _read_alignment(cursor)
        elif word == ".attribute":
            cursor.take()
            skip_parentheses(cursor)
        elif word == ".ptr":
            _skip_pointee(cursor)
        elif word in _VECTOR_LANES:
            lanes = _read_lanes(cursor)
        else:
            element_type = _read_type(cursor)
    if not element_type or element_type == "pred":
        cursor.refuse("the type of a variable, such as .b32")
    return _Kind(space, element_type, lanes, alignment_bytes)


def _skip_pointee(cursor: Cursor) -> None:
    """`.ptr .global .align 16`: what the compiler may believe of the pointer."""
    cursor.expect(".ptr")
    if cursor.token.text in (".global", ".shared", ".local", ".const"):
        cursor.take()
    if cursor.takes(".align"):
        _read_alignment(cursor)


def skip_parentheses(cursor: Cursor) -> None:
    """Skip `(…)`, parentheses inside included."""
    cursor.expect("(")
    open_parentheses = 1
    while open_parentheses:
        token = cursor.take()
        if token.kind == "end":
            cursor.refuse("`)`", token)
        if token.text == "(":
            open_parentheses += 1
        elif token.text == ")":
            open_parentheses -= 1


def _read_alignment(cursor: Cursor) -> int:
    token = cursor.token
    alignment_bytes = read_integer(cursor, "an alignment in bytes")
    if alignment_bytes < 1 or alignment_bytes & (alignment_bytes - 1):
        cursor.refuse("a power of two", token)
    if alignment_bytes > MAX_ALIGNMENT_BYTES:
        raise cursor.text.error(
            LIMIT.wording, token.start, amount=alignment_bytes, what="bytes of alignment", most=MAX_ALIGNMENT_BYTES
        )
    return alignment_bytes


def _read_lanes(cursor: Cursor) -> int:
    lanes = _VECTOR_LANES.get(cursor.token.text)
    if lanes is None:
        return 1
    cursor.take()
    return lanes


def _read_type(cursor: Cursor) -> str:
    token = cursor.token
    if token.kind != "word":
        cursor.refuse("a type such as .b32")
    if token.text not in _TYPES:
        raise cursor.text.error(TYPE.wording, token.start, shown=f"`{token.text[:60]}`", known=_TYPES)
    return cursor.take().text[1:]


def _read_variable(cursor: Cursor, kind: _Kind, numbers: VariableCounter, is_extern: bool) -> Declared:
    name = cursor.expect_kind("name", "the name of a variable")
    element_bytes = max(BITS_OF_TYPE[kind.type] // 8, 1) * kind.lanes
    extents = _read_extents(cursor)
    initial = Initial(b"", ())
    has_initial = cursor.takes("=")
    if has_initial:
        initial = read_initial(cursor, kind.type, tuple(extent or 0 for extent in extents), kind.lanes)
    size_bytes = _size_bytes(element_bytes, extents, initial if has_initial else None)
    if size_bytes is not None and size_bytes > MAX_BYTES[kind.space]:
        raise cursor.text.error(
            LIMIT.wording, name.start, amount=size_bytes, what=f"bytes of .{kind.space}", most=MAX_BYTES[kind.space]
        )
    if size_bytes is not None and len(initial.data) > size_bytes:
        cursor.refuse(f"initial values of at most {size_bytes} bytes", name)
    variable = Variable(
        name=name.text,
        number=numbers.next(),
        space=kind.space,
        type=kind.type,
        alignment_bytes=kind.alignment_bytes or element_bytes,
        size_bytes=size_bytes,
        initial=initial.data if has_initial else None,
        addresses=tuple((address.offset_bytes, address.name.text) for address in initial.addresses),
        is_extern=is_extern,
    )
    return Declared(variable, name, initial.addresses)


def _read_extents(cursor: Cursor) -> list[int | None]:
    """`[4][64]`; None for `[]`."""
    extents: list[int | None] = []
    while cursor.token.text == "[":
        token = cursor.take()
        if len(extents) == MAX_DIMENSIONS:
            raise cursor.text.error(
                LIMIT.wording, token.start, amount=MAX_DIMENSIONS + 1, what="dimensions", most=MAX_DIMENSIONS
            )
        if cursor.takes("]"):
            if extents:
                cursor.refuse("the extent of an inner dimension", token)
            extents.append(None)
            continue
        extents.append(read_count(cursor, "elements", 1 << 40))
        cursor.expect("]")
    return extents


def _size_bytes(element_bytes: int, extents: list[int | None], initial: Initial | None) -> int | None:
    """Bytes of a variable; where `[]` leaves the extent open, those of its initial values, or None."""
    if None not in extents:
        return element_bytes * prod(extent for extent in extents if extent is not None)
    if initial is None:
        return None
    row_bytes = element_bytes * prod(extent for extent in extents if extent is not None)
    return ceil_div(len(initial.data), max(row_bytes, 1)) * row_bytes
