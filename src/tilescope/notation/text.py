"""Reading one line of somebody else's notation, token by token.

    Sw<3,4,3> o smem_ptr[16b](unset) o (_8,(_64,_2)):(_64,(_1,_512))
    └┬┘│┬│      └──┬───┘               ││  ││
    name number   name                 a tuple of integers, nested

Whatever is pasted, the answer is a layout or a reason: length, depth and numbers have limits, and every
refusal names the character at which the text stopped making sense.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from tilescope.data_type import BLOCK_SCALED, DataType
from tilescope.errors import RuleError, argument_type, nearest_name, shortened
from tilescope.layout import IntTree
from tilescope.rule import rule

CHARACTERS = 1 << 16  # of one text; the type name of a layout takes some thousand
NESTING = 16  # parentheses within parentheses
INTEGER = 2**40  # extents and strides; shared memory ends at 2^18 bytes
POINTER = 2**48 - 1  # what a kernel prints: a generic pointer into the window of shared memory

NOTATION_TEXT = rule(
    "notation-text", "A layout's text follows the grammar of its notation.",
    source="the grammars of CuTe, Triton, Mosaic, PTX and the driver",
    passing='ts.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)")',
    failing='ts.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64)")',
)  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<number>_?(?:0[xX][0-9a-fA-F]+|[0-9]+)(?![0-9_]))
      | (?P<name>[#!]?[A-Za-z_][A-Za-z0-9_]*(?:(?:::|\.)[A-Za-z_][A-Za-z0-9_]*)*)
      | (?P<symbol>[-()<>\[\]{},:=@?.+*"'/&|^;])
      | (?P<strange>[^ ])""",
    re.VERBOSE,
)
_CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}
_TUPLE_NAMES = frozenset(
    {"Shape", "Stride", "Step", "Coord", "tuple", "make_shape", "make_stride", "make_step", "make_tuple"}
)
INTEGER_NAMES = frozenset({"Int", "C", "constant", "integral_constant"})
_C_INTEGERS = frozenset(
    {"int", "unsigned", "signed", "long", "short", "char", "size_t", "uint32_t", "int32_t", "uint64_t", "int64_t"}
)
_SUFFIX = re.compile(r"[uU]?[lL]{0,2}|[lL]{1,2}[uU]")  # of an integer in C
_KEYWORDS = frozenset({"struct", "class", "typename", "const"})  # before a type, saying nothing
_LITERALS: dict[str, Any] = {"true": True, "True": True, "false": False, "False": False, "None": []}
_BRACKET = re.compile(r"[<>()\[\]{}]")
_BRACKETED = 8000  # characters that one pair of brackets may enclose


class Token(NamedTuple):
    """One word of the text: its kind ("number", "name", "symbol", "end"), spelling and place."""

    kind: str
    spelling: str
    place: int


def refusal(found: str, limit: str, fix: str, **values: Any) -> RuleError:
    """The error for a text that no notation explains."""
    return NOTATION_TEXT.error("text", found, limit, fix, **values)


def checked_text(text: Any) -> str:
    """`text` itself, when it is a line of ASCII of sane length; CuTe's ring operator may be "o" or "∘"."""
    if not isinstance(text, str):
        raise RuleError([argument_type("text", text, "a text", 'Use "(8,64):(64,1)", for example.')])
    if len(text) > CHARACTERS:
        limit = f"one layout, at most {CHARACTERS} characters"
        raise refusal(f"{len(text)} characters", limit, "Read one layout at a time.", characters=len(text))
    line = re.sub(r"[ \t\r\n]+", " ", text.replace("∘", " o ")).strip(" ")
    if not line:
        fix = 'Try "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)".'
        raise refusal("an empty text", "the text of a layout", fix)
    if strange := re.search("[^ -~]", line):
        found = f"character {strange[0]!r} at place {strange.start()} of {_shown(line)}"
        raise refusal(found, "notations are written in plain ASCII", f"Remove {strange[0]!r}.", place=strange.start())
    return line


def last_name(name: str) -> str:
    """The name without its namespaces and modules.

    >>> last_name("cute::GMMA::Layout_K_SW128_Atom"), last_name("plgpu.SwizzleTransform")
    ('Layout_K_SW128_Atom', 'SwizzleTransform')
    """
    return name.rpartition("::")[2].rpartition(".")[2]


def type_bits(name: str) -> int:
    """The bits of an element by the name of its type: half_t, cutlass::float_e4m3_t, f16, Float8E4M3FN, uint128_t.

    >>> type_bits("cutlass::detail::float_e2m1_unpacksmem_t"), type_bits("f8E4M3FNUZ"), type_bits("uint128_t")
    (8, 8, 128)
    """
    found = re.fullmatch(r"[a-z]{1,8}?(\d{1,3})(?:b?_t|e\dm\d[a-z]*)?", last_name(name).casefold())
    try:
        row = DataType.named(name)
    except RuleError as unknown:
        if found is not None:
            return int(found[1])
        if unknown.violations[0].rule == BLOCK_SCALED.name:
            raise
        limit, fix = "such as half_t, f16, bf16, i8, float_e4m3_t", "Write uint16_t: only its bits matter."
        raise refusal(f"the element type {shortened(name, 40)}", limit, fix) from None
    return row.smem_bits if row.driver_code is not None else row.bits


def closing_place(text: str, opening: int) -> int:
    """Where the bracket at `opening` closes; the end of the text where it does not."""
    depth = 0
    for found in _BRACKET.finditer(text, opening, opening + _BRACKETED):
        depth += 1 if found[0] in _CLOSING else -1
        if depth == 0:
            return found.start()
    return len(text)


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
        self._tokens = [
            Token(word.lastgroup or "", word[0], word.start())
            for word in _TOKEN.finditer(text)
            if word[0] not in _KEYWORDS
        ]
        if strange := next((token for token in self._tokens if token.kind == "strange"), None):
            found = f"{strange.spelling!r} at place {strange.place} of {_shown(text)}"
            limit, fix = "names, integers and the usual brackets", f"Remove {strange.spelling!r}."
            raise refusal(found, limit, fix, place=strange.place)
        self._tokens += [Token("end", "", len(text))] * 3  # as far as anybody looks ahead

    def peek(self, ahead: int = 0) -> Token:
        """The token up to two places on; after the last one they are of kind "end"."""
        return self._tokens[self._next + ahead]

    def take(self) -> Token:
        """The next token, consumed."""
        token = self.peek()
        self._next += token.kind != "end"
        return token

    def at(self, *spellings: str) -> bool:
        """Whether the next tokens are spelled so."""
        place = self._next
        if self._tokens[place].spelling != spellings[0]:  # nearly always: the one question a scanner asks most
            return False
        return all(self._tokens[place + ahead].spelling == other for ahead, other in enumerate(spellings[1:], 1))

    def accept(self, *spellings: str) -> bool:
        """Whether the next tokens are spelled so, consuming them if they are."""
        is_next = self.at(*spellings)
        self._next += len(spellings) if is_next else 0
        return is_next

    def expect(self, *spellings: str) -> None:
        """Consume tokens that must be there."""
        for spelling in spellings:
            if not self.accept(spelling):
                self.refuse(f'"{spelling}"')

    def refuse(self, expected: str, fix: str | None = None) -> NoReturn:
        """Give up at the next token."""
        token = self.peek()
        word = f'"{shortened(token.spelling, 30)}"' if token.spelling else "the end"
        found = f"{word} at place {token.place} of {_shown(self.text)}"
        raise refusal(found, f"expected {expected}", fix or f"Write {expected} there.", place=token.place)

    def finished(self) -> None:
        """Refuse what is left over; a closing "{}" or ";" of source code may stay."""
        self.accept("{", "}")
        self.accept(";")
        if self.peek().kind != "end":
            self.refuse("the end of the layout")

    def at_noise(self, *more: str) -> bool:
        """Whether the values of a tensor follow, or what a log writes behind a layout."""
        return self.peek().spelling in (":", "=", ",", ";", "]", "'", '"', *more)

    def name(self) -> str:
        """The next token, which must be a name."""
        if self.peek().kind != "name":
            self.refuse("a name")
        return self.take().spelling

    def opened(self) -> str:
        """The bracket that closes the "(" or "<" which comes next, and is consumed."""
        if not (self.at("(") or self.at("<")):
            self.refuse('"(" or "<"')
        return _CLOSING[self.take().spelling]

    def enclosed(self) -> int:
        """An integer in brackets: <16>."""
        closing = self.opened()
        value = self.integer()
        self.expect(closing)
        return value

    def type_bits(self) -> int:
        """The bits of the C++ type that comes next: half_t, unsigned char, uint_bit_t<16>."""
        name = self.name()
        if last_name(name) in ("uint_bit_t", "int_bit_t"):
            return self.enclosed()
        while self.peek().kind == "name":
            name += f" {self.name()}"
        self.accept("*")
        return type_bits(name)

    def integer(self, most: int = INTEGER) -> int:
        """The next token, which must be an integer: 64, _64, 0x40, Int<64>{}, C<(int)64>, integral_constant<int, 64>."""
        self._cast()
        if not (self.peek(1).spelling == "<" and last_name(self.peek().spelling) in INTEGER_NAMES):
            return self._literal(most)
        self.take()
        self.expect("<")
        while self.peek().spelling in _C_INTEGERS:
            self.take()
            self.accept(",")
        self._cast()
        value = self._literal(most)
        self.expect(">")
        self.accept("{", "}")
        return value

    def _literal(self, most: int) -> int:
        """64, _64, 0x40, 64ull or cute::_64."""
        token = self.peek()
        digits = last_name(token.spelling).removeprefix("_")
        if token.kind != "number" and not (digits.isdecimal() and token.kind == "name"):
            if token.spelling == "-":
                fix = "Shared memory lies above its start: write strides of at least 0."
                self.refuse("an integer of at least 0", fix)
            is_dynamic = token.spelling in ("?", "_", *_C_INTEGERS)
            fix = "A size that only the running kernel knows has no address map: put a number."
            self.refuse("an integer", fix if is_dynamic else None)
        base = 16 if digits[:2] in ("0x", "0X") else 10
        if len(digits) > 40 or int(digits, base) > most:
            limit = f"2^{most.bit_length() - (most == INTEGER)}"
            self.refuse(f"an integer of at most {limit}", "Shared memory is smaller than that.")
        self.take()
        after = self.peek()
        if after.kind == "name" and after.place == token.place + len(token.spelling):
            self._next += _SUFFIX.fullmatch(after.spelling) is not None
        self.accept("{", "}")
        if self.at("@"):
            fix = (
                "A stride such as 1@0 counts coordinates of a tensor, not places in memory: give the layout in memory."
            )
            self.refuse("a stride in elements", fix)
        return int(digits, base)

    def _cast(self) -> None:
        """Pass over a cast to an integer type, (int) or (unsigned int), which nvcc writes before every constant."""
        if self.at("(") and self.peek(1).spelling in _C_INTEGERS:
            self.take()
            while self.peek().spelling in _C_INTEGERS:
                self.take()
            self.expect(")")

    def integers(self) -> IntTree:
        """An integer, or a tuple of such nested up to 16 deep: (8,(64,2)), Shape<_8,_64>, make_shape(8, 64)."""
        open_tuples: list[tuple[str, list[IntTree]]] = []  # closing bracket, members
        while True:
            member: IntTree
            opening = self._opened_tuple()
            if opening is not None:
                if len(open_tuples) == NESTING:
                    self.refuse(
                        f"at most {NESTING} parentheses inside one another",
                        "Write (8,(4,2)) instead of ((8),((4),(2))).",
                    )
                open_tuples.append((_CLOSING[opening], []))
                continue
            member = self.integer()
            while open_tuples:
                closing, members = open_tuples[-1]
                members.append(member)
                if self.accept(",") and not self.at(closing):
                    break
                self.expect(closing)
                self.accept("{", "}")
                open_tuples.pop()
                member = tuple(members)
            else:
                return member

    def _opened_tuple(self) -> str | None:
        """The bracket of a tuple that starts here, consumed with its name."""
        self._cast()
        token = self.peek()
        if token.kind == "name" and last_name(token.spelling) in _TUPLE_NAMES and self.peek(1).spelling in ("(", "<"):
            self.take()
            return self.take().spelling
        if token.spelling in ("(", "["):
            return self.take().spelling
        return None

    def fields(self, closing: str, positions: tuple[str, ...] = (), quoted: tuple[str, ...] = ()) -> dict[str, Any]:
        """Values up to the closing bracket: key = value, or a value alone for the next of `positions`.

        >>> Scanner('(8, 64), 16, swizzle="128B")').fields(")", ("shape", "element_bits"), ("swizzle",))
        {'shape': [8, 64], 'element_bits': 16, 'swizzle': '128B'}
        """
        fields: dict[str, Any] = {}
        while not self.accept(closing):
            if self.peek(1).spelling == "=":
                key = self.name()
                self.expect("=")
            elif len(fields) < len(positions):
                key = positions[len(fields)]
            else:
                self.refuse("a field such as vec = 8")
            if key in fields:
                self.refuse(f"{key} once", "Remove one of the two.")
            fields[key] = self._quoted() if key in quoted else self.value()
            if not self.at(closing):
                self.expect(",")
        return fields

    def value(self, depth: int = 0) -> Any:
        """A number (8, 8 : i32), true, false, an interval with its padding (256:+8), a text in quotes, or a list of such."""
        token = self.peek()
        if token.spelling in ('"', "'"):
            return self._quoted()
        if token.spelling in _LITERALS:
            return _LITERALS[self.take().spelling]
        if token.spelling in ("[", "(") and depth < NESTING:
            closing = _CLOSING[self.take().spelling]
            members = []
            while not self.accept(closing):
                members.append(self.value(depth + 1))
                if not self.at(closing):
                    self.expect(",")
            return members
        if token.kind == "name" or token.spelling in _CLOSING:
            self.refuse("a number, true, false or a list")
        number = self.integer()
        if self.accept(":", "+"):
            return [number, self.integer()]
        if self.accept(":"):
            self.name()
        return number

    def _quoted(self) -> str:
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
    """Refuse fields that nobody knows."""
    for key in fields:
        if key not in known:
            fix = f"Use {nearest_name(key, known) or known[0]}."
            raise refusal(f"the {what} {key}", f"known: {', '.join(known)}", fix)


def _shown(text: str) -> str:
    return f'"{shortened(text, 60)}"'
