"""Reading one line of somebody else's notation, token by token.

    Sw<3,4,3> o smem_ptr[16b](unset) o (_8,(_64,_2)):(_64,(Int<1>{},_512))
    └┬┘│┬│      └──┬───┘               ││  ││               └──┬───┘
    name number   name                 a tuple of integers, nested

A token has a value, however it is spelled: 64 for _64, 0x40, 64ull, cute::Int<64>{} and integral_constant<int, 64>;
half_t for cutlass::half_t. Whatever is pasted, the answer is a layout or a reason: length, depth and numbers have limits,
and every refusal names the character at which the text stopped making sense.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, TypeAlias

from tilescope.data_type import BLOCK_SCALED, DataType
from tilescope.errors import RuleError, argument_type
from tilescope.layout import IntTree
from tilescope.names import nearest_name
from tilescope.rule import rule
from tilescope.sentence import shorten

FieldValue: TypeAlias = "int | bool | str | list[Any]"  # of a field of an encoding, as deep as one likes
Fields: TypeAlias = "dict[str, Any]"  # an encoding's, by name, as FieldValues
CHARACTERS = 1 << 16  # of one text; the type name of a layout takes some thousand
NESTING = 16  # parentheses within parentheses
INTEGER = 2**40  # extents and strides; shared memory ends at 2^18 bytes
POINTER = 2**48 - 1  # what a kernel prints: a generic pointer into the window of shared memory

NOTATION_TEXT = rule(
    "notation-text",
    "A layout's text follows the grammar of its notation.",
    argument="text",
    found="{word} at place {place} of {text}",
    limit="expected {expected}",
    fix="Write {expected} there.",
    source="the grammars of CuTe, Triton, Mosaic, PTX and the driver",
    passing='ts.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)")',
    failing='ts.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64)")',
)
NO_NOTATION = NOTATION_TEXT.worded(
    found="{word}, with which no notation begins",
    limit="CuTe, Triton, Mosaic, PTX and the driver are read",
    fix='Write "(8,64):(64,1)", "Sw<3,4,3> o (8,64):(64,1)" or "CU_TENSOR_MAP_SWIZZLE_128B", for example.',
)
UNEXPECTED_WORD = NOTATION_TEXT.worded(fix="{advice}")
TOO_LONG_TEXT = NOTATION_TEXT.worded(
    found="{characters} characters",
    limit="one layout, at most {most} characters",
    fix="Read one layout at a time.",
)
EMPTY_TEXT = NOTATION_TEXT.worded(
    found="an empty text",
    limit="the text of a layout",
    fix='Try "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)".',
)
NOT_ASCII = NOTATION_TEXT.worded(
    found="character {character!r} at place {place} of {text}",
    limit="notations are written in plain ASCII",
    fix="Remove {character!r}.",
)
STRANGE_CHARACTER = NOTATION_TEXT.worded(
    found="{character!r} at place {place} of {text}",
    limit="names, integers and the usual brackets",
    fix="Remove {character!r}.",
)
UNKNOWN_TYPE = NOTATION_TEXT.worded(
    found="the element type {type}",
    limit="such as half_t, f16, bf16, i8, float_e4m3_t",
    fix="Write uint16_t: only its bits matter.",
)
UNKNOWN_FIELD = NOTATION_TEXT.worded(
    found="the {what} {field}",
    limit="known: {known:, }",
    fix="Use {nearest}.",
)
# No group is repeated possessively, (…)*+: Python 3.11.0 to 3.11.4 misplaces what is captured after it.
_INTEGER_TYPE = r"(?:(?:unsigned|signed|long|short|char|int|size_t|u?int(?:32|64)_t)\s*+)+"
_TOKEN = re.compile(
    rf"""(?P<blank>\{{\s*\}}|\b(?:struct|class|typename|const)\b)
      | (?P<number>(?P<constant>(?:\w++::)*(?:Int|C|constant|integral_constant)\s*<\s*(?:{_INTEGER_TYPE},\s*)?)?
          (?:\(\s*{_INTEGER_TYPE}\)\s*)?(?:(?:\w++::)*_)?(?P<digits>0[xX][0-9a-fA-F]+|[0-9]+)
          (?:(?:[uU][lL]{{0,2}}|[lL]{{1,2}}[uU]?)\b)?(?![0-9_])(?(constant)\s*>))
      | (?P<name>[#!]?(?:[A-Za-z_][A-Za-z0-9_]*+(?:::|\.)(?=[A-Za-z_]))*(?P<last>[A-Za-z_][A-Za-z0-9_]*+))
      | (?P<symbol>[-()<>\[\]{{}},:=@?.+*"'/&|^;])
      | (?P<strange>[^ ])""",
    re.VERBOSE,
)
_KNOWN_WHEN_RUNNING = re.compile(rf"\?|_|{_INTEGER_TYPE}")
CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}
_TUPLE_NAMES = frozenset(
    {"Shape", "Stride", "Step", "Coord", "tuple", "make_shape", "make_stride", "make_step", "make_tuple"}
)
_LITERALS: dict[int | str, FieldValue] = {"true": True, "True": True, "false": False, "False": False, "None": []}
_BRACKET = re.compile(r"[<>()\[\]{}]")
_BRACKETED = 8000  # characters that one pair of brackets may enclose
_DIGITS = 40  # of an integer that is read
_TOO_LARGE = int("1" + "0" * _DIGITS)


class Token(NamedTuple):
    """One word of the text: its kind ("number", "name", "symbol", "end"), spelling, place and value."""

    kind: str
    spelling: str
    place: int
    value: int | str  # the integer; the name without its namespaces; the symbol


def checked_text(text: object) -> str:
    """`text` itself, when it is a line of ASCII of sane length; CuTe's ring operator may be "o" or "∘"."""
    if not isinstance(text, str):
        raise RuleError([argument_type("text", text, "a text", 'Use "(8,64):(64,1)", for example.')])
    if len(text) > CHARACTERS:
        raise TOO_LONG_TEXT.error(characters=len(text), most=CHARACTERS)
    line = " ".join(text.replace("∘", " o ").split())
    if not line:
        raise EMPTY_TEXT.error()
    strange = re.search("[^ -~]", line)
    if strange:
        raise NOT_ASCII.error(character=strange[0], place=strange.start(), text=_quote(line))
    return line


def last_name(name: str) -> str:
    """The name without its namespaces and modules.

    >>> last_name("cute::GMMA::Layout_K_SW128_Atom"), last_name("plgpu.SwizzleTransform")
    ('Layout_K_SW128_Atom', 'SwizzleTransform')
    """
    return name.rpartition("::")[2].rpartition(".")[2].lstrip("#!")


def type_bits(name: str) -> int:
    """The bits of an element by the name of its type: half_t, cutlass::float_e4m3_t, f16, Float8E4M3FN, uint128_t.

    >>> type_bits("cutlass::detail::float_e2m1_unpacksmem_t"), type_bits("f8E4M3FNUZ"), type_bits("uint128_t")
    (8, 8, 128)
    """
    plain = last_name(name).casefold()
    integer = re.fullmatch(r"u?int([1-9]\d{0,2})_t", plain)  # as in the text
    if integer:
        return int(integer[1])
    match = re.fullmatch(r"[a-z]{1,8}?([1-9]\d{0,2})(?:b?_t|e\dm\d[a-z]*)?", plain)
    try:
        row = DataType.named(name)
    except RuleError as unknown:
        if match is not None:
            return int(match[1])
        if unknown.violations[0].rule == BLOCK_SCALED.name:
            raise
        raise UNKNOWN_TYPE.error(type=shorten(name, 40)) from None
    return row.smem_bits if row.driver_code is not None else row.bits


def closing_place(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes; the end of the text where it does not."""
    depth = 0
    for bracket in _BRACKET.finditer(text, opening, opening + _BRACKETED):
        depth += 1 if bracket[0] in CLOSING else -1
        if depth == 0:
            return bracket.start()
    return len(text)


def _token(word: re.Match[str], text: str) -> Token:
    """One word of a text, with its value."""
    kind = word.lastgroup or ""
    spelling = word[0]
    if kind == "strange":
        raise STRANGE_CHARACTER.error(character=spelling, place=word.start(), text=_quote(text))
    value: int | str = spelling
    if kind == "name":
        value = word["last"]
    elif kind == "number":
        value = _number(word["digits"])
    return Token(kind, spelling, word.start(), value)


def _number(digits: str) -> int:
    """The integer of decimal or hexadecimal digits; more digits than any integer of a layout has are one too large."""
    if len(digits) > _DIGITS:
        return _TOO_LARGE
    base = 16 if "x" in digits or "X" in digits else 10
    return int(digits, base)


class Scanner:
    """The tokens of a text, taken from left to right.

    >>> scan = Scanner("((8, _2), Int<64>{})")
    >>> scan.integers()
    ((8, 2), 64)
    >>> scan.finished()
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._next = 0
        words = (word for word in _TOKEN.finditer(text) if word.lastgroup != "blank")
        self._tokens = [_token(word, text) for word in words]
        self._tokens += [Token("end", "", len(text), "")] * 3  # as far as anybody looks ahead

    def peek(self, ahead: int = 0) -> Token:
        """The token up to two places on; after the last one they are of kind "end"."""
        return self._tokens[self._next + ahead]

    def take(self) -> Token:
        """The next token, consumed."""
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def at(self, value: str) -> bool:
        """Whether the next token is this name or symbol."""
        return self._tokens[self._next].value == value

    def accept(self, *values: str) -> bool:
        """Whether the next tokens are these, consuming them if they are."""
        place = self._next
        for ahead, value in enumerate(values):
            if self._tokens[place + ahead].value != value:
                return False
        self._next += len(values)
        return True

    def expect(self, *values: str) -> None:
        """Consume tokens that must be there."""
        for value in values:
            if not self.accept(value):
                self.refuse(f'"{value}"')

    def refuse(self, expected: str, fix: str | None = None) -> NoReturn:
        """Give up at the next token."""
        token = self.peek()
        word = f'"{shorten(token.spelling, 30)}"' if token.spelling else "the end"
        shown = _quote(self.text)
        if fix is None:
            raise NOTATION_TEXT.error(word=word, place=token.place, text=shown, expected=expected)
        raise UNEXPECTED_WORD.error(word=word, place=token.place, text=shown, expected=expected, advice=fix)

    def finished(self) -> None:
        """Refuse the remaining text; a closing ";" of source code may stay."""
        self.accept(";")
        if self.peek().kind != "end":
            self.refuse("the end of the layout")

    def at_noise(self, *more: str) -> bool:
        """Whether the values of a tensor follow, or what a log writes behind a layout."""
        return self.peek().spelling in (":", "=", ",", ";", "]", "'", '"', *more)

    def name(self) -> str:
        """The next token, which must be a name, with its namespaces."""
        if self.peek().kind != "name":
            self.refuse("a name")
        return self.take().spelling

    def opened(self) -> str:
        """The bracket that closes the "(" or "<" which comes next, and is consumed."""
        if not (self.at("(") or self.at("<")):
            self.refuse('"(" or "<"')
        return CLOSING[self.take().spelling]

    def until(self, closing: str) -> Iterator[None]:
        """Once for every member of a list up to the closing bracket; commas and bracket are consumed."""
        while not self.accept(closing):
            yield
            if not self.at(closing) and not self.accept(","):
                self.refuse(f'"," or "{closing}"')

    def enclosed(self) -> int:
        """An integer in brackets: <16>."""
        closing = self.opened()
        value = self.integer()
        self.expect(closing)
        return value

    def type_bits(self) -> int:
        """The bits of the C++ type that comes next: half_t, unsigned char, uint_bit_t<16>."""
        if self.peek().value in ("uint_bit_t", "int_bit_t"):
            self.take()
            return self.enclosed()
        name = self.name()
        while self.peek().kind == "name":
            name += f" {self.name()}"
        self.accept("*")
        return type_bits(name)

    def integer(self, most: int = INTEGER) -> int:
        """The next token, which must be an integer of at least 0."""
        token = self.peek()
        if not isinstance(token.value, int):
            fix = None
            if token.spelling == "-":
                fix = "Shared memory begins at its start: write strides of at least 0."
            elif _KNOWN_WHEN_RUNNING.fullmatch(token.spelling):
                fix = "A size that only the running kernel knows has no address map: put a number."
            elif token.place == 0 and token.kind == "name":
                raise NO_NOTATION.error(word=f'"{shorten(token.spelling, 30)}"')
            self.refuse("an integer of at least 0", fix)
        if token.value > most:
            bits = most.bit_length() - 1 if most == INTEGER else most.bit_length()
            self.refuse(f"an integer of at most 2^{bits}", "Shared memory is smaller than that.")
        self._next += 1
        if self.at("@"):
            self.refuse(
                "a stride in elements",
                "A stride such as 1@0 counts coordinates of a tensor, not places in memory: give the layout in memory.",
            )
        return token.value

    def integers(self, depth: int = 0) -> IntTree:
        """An integer, or a tuple of such nested up to 16 deep: (8,(64,2)), Shape<_8,_64>, make_shape(8, 64)."""
        if self.peek().value in _TUPLE_NAMES and self.peek(1).value in ("(", "<"):
            self.take()
        elif self.peek().value not in ("(", "["):
            return self.integer()
        if depth == NESTING:
            limit = f"at most {NESTING} parentheses inside one another"
            self.refuse(limit, "Write (8,(4,2)) instead of ((8),((4),(2))).")
        closing = CLOSING[self.take().spelling]
        members = [self.integers(depth + 1) for _ in self.until(closing)]
        if not members:
            self.refuse("an integer")
        return tuple(members)

    def fields(self, closing: str, positions: tuple[str, ...] = (), quoted: tuple[str, ...] = ()) -> Fields:
        """Values up to the closing bracket: key = value, or only a value for the next of `positions`.

        >>> Scanner('(8, 64), 16, swizzle="128B")').fields(")", ("shape", "element_bits"), ("swizzle",))
        {'shape': [8, 64], 'element_bits': 16, 'swizzle': '128B'}
        """
        fields: Fields = {}
        for _ in self.until(closing):
            if self.peek(1).value == "=":
                key = self.name()
                self.expect("=")
            elif len(fields) < len(positions):
                key = positions[len(fields)]
            else:
                self.refuse("a field such as vec = 8")
            if key in fields:
                self.refuse(f"{key} once", "Remove one of the two.")
            fields[key] = self._read_quoted() if key in quoted else self.value()
        return fields

    def value(self, depth: int = 0) -> FieldValue:
        """A number (8, 8 : i32), true, false, an interval with its padding (256:+8), a text in quotes, or a list of such."""
        token = self.peek()
        if token.kind == "number":
            number = self.integer()
            if self.accept(":", "+"):
                return [number, self.integer()]
            if self.accept(":"):
                self.name()
            return number
        if token.value in ("[", "(") and depth < NESTING:
            return [self.value(depth + 1) for _ in self.until(CLOSING[self.take().spelling])]
        if token.value in _LITERALS:
            return _LITERALS[self.take().value]
        if token.value not in ('"', "'"):
            self.refuse("a number, true, false or a list")
        return self._read_quoted()

    def _read_quoted(self) -> str:
        quote = self.peek().spelling
        if quote not in ('"', "'"):
            self.refuse('a name in quotes, such as "128B"')
        self.take()
        start = self.peek().place
        while not self.at(quote) and self.peek().kind != "end":
            self.take()
        end = self.peek().place
        self.expect(quote)
        return self.text[start:end]


def require_known(fields: Iterable[str], known: tuple[str, ...], what: str = "field") -> None:
    """Refuse unknown fields."""
    for key in fields:
        if key not in known:
            raise UNKNOWN_FIELD.error(what=what, field=key, known=known, nearest=nearest_name(key, known) or known[0])


def _quote(text: str) -> str:
    return f'"{shorten(text, 60)}"'
