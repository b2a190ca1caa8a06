"""What a variable holds when the kernel starts.

    .global .f32 scale = 0f3F800000;
    .global .b8  text[6] = {104, 101, 108, 108, 111};          the sixth byte is 0
    .global .s32 matrix[2][3] = {{1, 2}, {3}};                 each inner list begins a row
    .global .u64 names[2] = {generic(text), generic(text)+2};  addresses, and what is added to them
    .global .b8  packed[9] = {7, 0xFF(text), 0xFF00(text), …}; an address byte by byte

`read_initial` returns the bytes; at the place of an address they hold the offset that is added to it.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from tilescope.ptx.constants import read_constant, read_integer, starts_constant
from tilescope.ptx.lexer import Cursor, Token
from tilescope.ptx.rules import LIMIT, NO_VALUE_OF_TYPE, POINTER_TYPE
from tilescope.ptx.syntax import BITS_OF_TYPE, Immediate
from tilescope.sentence import counted

MAX_INITIAL_BYTES = 1 << 26
_ADDRESS_BYTES = 8
_PLAIN_BYTES = re.compile(r"\{((?:\s*(?:0|[1-9][0-9]{0,2})\s*,)*\s*(?:0|[1-9][0-9]{0,2})\s*)\}")
_FLOAT_FORMAT = {"f16": "<e", "f32": "<f", "f64": "<d"}


class InitialAddress(NamedTuple):
    """The address of a variable or function among the initial bytes."""

    offset_bytes: int
    name: Token
    is_generic: bool


class Initial(NamedTuple):
    """The bytes that a variable begins with, and the addresses among them."""

    data: bytes
    addresses: tuple[InitialAddress, ...]


class MaskedByte(NamedTuple):
    """`0xFF00(name)`: byte 1 of an address."""

    byte: int
    name: Token
    is_generic: bool
    added: int


@dataclass
class _Writer:
    """The bytes so far; rows of an array begin at multiples of their size."""

    type: str
    data: bytearray = field(default_factory=bytearray)
    addresses: list[InitialAddress] = field(default_factory=list)
    masked: list[MaskedByte] = field(default_factory=list)  # of an address whose other bytes follow

    @property
    def element_bytes(self) -> int:
        return BITS_OF_TYPE[self.type] // 8


def read_initial(cursor: Cursor, element_type: str, dimensions: tuple[int, ...], lanes: int = 1) -> Initial:
    r"""The value after `=`; `dimensions` are those of the array, `lanes` those of a vector type.

    >>> from tilescope.ptx.lexer import Text
    >>> read_initial(Cursor(Text("{{1, 2}, {3}};")), "u8", (2, 3)).data
    b'\x01\x02\x00\x03'
    """
    writer = _Writer(element_type)
    if lanes > 1:
        dimensions = (*dimensions, lanes)
    if cursor.token.text == "{":
        _read_list(cursor, writer, dimensions or (1,))
    else:
        _read_element(cursor, writer)
    if writer.masked:
        _refuse_address(cursor, writer, writer.masked[0].name)
    return Initial(bytes(writer.data), tuple(writer.addresses))


def _read_list(cursor: Cursor, writer: _Writer, dimensions: tuple[int, ...]) -> None:
    """Elements in braces, or a list for each row; an extent of 0 is not known yet."""
    row_bytes = writer.element_bytes
    for extent in dimensions[1:]:
        row_bytes *= extent
    begin = len(writer.data)
    if len(dimensions) == 1 and _read_plain_bytes(cursor, writer, dimensions[0]):
        return
    cursor.expect("{")
    count = 0
    while count or not cursor.takes("}"):
        if dimensions[0] and count == dimensions[0]:
            cursor.refuse(f"at most {counted(dimensions[0], 'value')} in this list")
        if len(dimensions) > 1:
            _fill(cursor, writer, begin + count * row_bytes)
            _read_list(cursor, writer, dimensions[1:])
        else:
            _read_element(cursor, writer)
        count += 1
        if not cursor.takes(","):
            cursor.expect("}", "`,` or `}`")
            return


def _read_plain_bytes(cursor: Cursor, writer: _Writer, extent: int) -> bool:
    """Read a list of decimal bytes at one go: strings and tables are long."""
    match = _PLAIN_BYTES.match(cursor.code, cursor.token.start)
    if match is None or writer.type not in ("b8", "u8") or writer.masked:
        return False
    values = [int(value) for value in match[1].split(",")]
    if max(values) > 255 or (extent and len(values) > extent):
        return False
    writer.data += bytes(values)
    cursor.move(match.end())
    return True


def _fill(cursor: Cursor, writer: _Writer, end_bytes: int) -> None:
    """Zeros up to a place."""
    if end_bytes > MAX_INITIAL_BYTES:
        raise cursor.text.error(
            LIMIT.wording, cursor.token.start, amount=end_bytes, what="initial bytes", most=MAX_INITIAL_BYTES
        )
    writer.data += bytes(end_bytes - len(writer.data))


def _read_element(cursor: Cursor, writer: _Writer) -> None:
    """A number, an address, or one byte of an address."""
    token = cursor.token
    if token.kind == "name" and not starts_constant(token):
        _write_address(cursor, writer)
        return
    value = read_constant(cursor, "a value")
    if cursor.token.text == "(":
        _write_masked(cursor, writer, value, token)
        return
    if writer.masked:
        _refuse_address(cursor, writer, writer.masked[0].name)
    writer.data += _bytes_of(cursor, value, writer.type, token)


def _bytes_of(cursor: Cursor, value: Immediate, element_type: str, token: Token) -> bytes:
    """A constant as the bytes of its type."""
    bits = BITS_OF_TYPE[element_type]
    if value.float_bits == bits:
        return value.value.to_bytes(bits // 8, "little")
    if element_type in _FLOAT_FORMAT:
        return _float_bytes(_number(value), _FLOAT_FORMAT[element_type])
    if value.float_bits is None:  # ptxas keeps the lower bits, too
        return (value.value % (1 << bits)).to_bytes(bits // 8, "little")
    shown = cursor.code[token.start : cursor.token.start].strip()
    raise cursor.text.error(NO_VALUE_OF_TYPE, token.start, shown=f"`{shown[:60]}`", type=element_type)


def _number(value: Immediate) -> float:
    """The value of a constant, from an integer or from the bits of a float."""
    if value.float_bits is None:
        return float(value.value)
    written_as = "<f" if value.float_bits == 32 else "<d"
    (number,) = struct.unpack(written_as, value.value.to_bytes(value.float_bits // 8, "little"))
    return float(number)


def _float_bytes(number: float, written_as: str) -> bytes:
    """A number rounded to a float's width; one beyond its largest is infinite."""
    try:
        return struct.pack(written_as, number)
    except OverflowError:
        return struct.pack(written_as, math.copysign(math.inf, number))


class _AddressText(NamedTuple):
    name: Token
    is_generic: bool


def _read_address(cursor: Cursor) -> _AddressText:
    """`name` or `generic(name)`."""
    name = cursor.expect_kind("name", "the name of a variable")
    if name.text == "generic" and cursor.takes("("):
        inner = cursor.expect_kind("name", "the name of a variable")
        cursor.expect(")")
        return _AddressText(inner, is_generic=True)
    return _AddressText(name, is_generic=False)


def _write_address(cursor: Cursor, writer: _Writer) -> None:
    """`generic(name)+4` in a type of 64 bits."""
    address = _read_address(cursor)
    added = read_integer(cursor) if cursor.token.text in ("+", "-") else 0
    if writer.element_bytes != _ADDRESS_BYTES or writer.masked:
        _refuse_address(cursor, writer, address.name)
    writer.addresses.append(InitialAddress(len(writer.data), address.name, address.is_generic))
    writer.data += (added % (1 << 64)).to_bytes(_ADDRESS_BYTES, "little")


def _write_masked(cursor: Cursor, writer: _Writer, mask: Immediate, token: Token) -> None:
    """`0xFF00(name)`: the eight bytes of an address follow one another."""
    cursor.expect("(")
    address = _read_address(cursor)
    added = read_integer(cursor) if cursor.token.text in ("+", "-") else 0
    cursor.expect(")")
    byte = MaskedByte(len(writer.masked), address.name, address.is_generic, added)
    begun = writer.masked[0] if writer.masked else byte
    is_next = (
        mask == Immediate(0xFF << 8 * byte.byte) and byte.name.text == begun.name.text and byte.added == begun.added
    )
    if writer.element_bytes != 1 or not is_next:
        _refuse_address(cursor, writer, token)
    writer.masked.append(byte)
    if len(writer.masked) == _ADDRESS_BYTES:
        writer.addresses.append(InitialAddress(len(writer.data), byte.name, byte.is_generic))
        writer.data += (added % (1 << 64)).to_bytes(_ADDRESS_BYTES, "little")
        writer.masked.clear()


def _refuse_address(cursor: Cursor, writer: _Writer, token: Token) -> None:
    raise cursor.text.error(POINTER_TYPE, token.start, type=writer.type)
