"""Lane addresses from an expression of `lane`, in C or Python style, read by a small parser of its own.

    "(lane % 8) * 144 + lane / 8 * 16"        →   0 144 288 … 1008  16 160 …   (32 numbers)

    loosest   |     ^     &     << >>     + -     * / // %     - + ~ (sign)     ( ) number lane   tightest

C and Python bind these operators alike, and agree on their values as long as nothing negative is
divided, so that is refused. Nothing is evaluated by the interpreter; length, depth, shifts and
numbers are bounded, so a hostile text costs a sentence, not time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from tilescope.errors import RuleError, argument_type, shortened
from tilescope.rule import rule
from tilescope.smem.op import WARP_LANES

LANE_NAMES = ("lane", "lane_id", "laneid", "tid", "threadIdx.x")
MAX_CHARACTERS = 500
MAX_DEPTH = 40
MAX_SHIFT = 40
MAX_NUMBER = 1 << 48

LANE_EXPRESSION = rule(
    "lane-expression",
    "An expression of lane has C's operators on integers, and gives an address for every lane.",
    source="the operators that C and Python share",
    passing='ts.Access.expression("lane / 8 * 16")',
    failing='ts.Access.expression("lane / 0")',
)

_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)(?:[uU]?[lL]{0,2})(?![\w.])"
    r"|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<sign>//|<<|>>|[-+*/%^&|~()]))"
)
_LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "//", "%"))  # loosest first
_OPERATION: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_SIGN: dict[str, Callable[[int], int]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


def lane_values(text: str) -> tuple[int, ...]:
    """The 32 values of the expression, for lane 0 to lane 31.

    >>> lane_values("(lane % 8) * 144 + lane / 8 * 16")[6:10]
    (864, 1008, 16, 160)
    >>> lane_values("threadIdx.x << 4 ^ (threadIdx.x & 0x18)")[9]
    152
    >>> lane_values("lane / 0")
    Traceback (most recent call last):
      ...
    tilescope.errors.RuleError: lane-expression: lane / 0: division by 0 in lane 0, at character 6; ...
    """
    if not isinstance(text, str):
        raise RuleError([argument_type("expression", text, "a text", "Use 'lane * 16', for example.")])
    if len(text) > MAX_CHARACTERS:
        raise _problem(
            text, f"{len(text)} characters", f"at most {MAX_CHARACTERS} are read", "Pass the 32 addresses instead."
        )
    return _Parser(text, _tokens(text)).parse()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "number", "name", "sign" or "end"
    text: str
    start: int


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _misplaced(text, len(text) - len(text[at:].lstrip()))
        kind = found.lastgroup or ""
        tokens.append(_Token(kind, found[kind], found.start(kind)))
        at = found.end()
    return [*tokens, _Token("end", "", end)]


class _Parser:
    """Reads the tokens from left to right; every part is the list of its 32 values."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.next = 0

    def parse(self) -> tuple[int, ...]:
        values = self._binary(0, 0)
        if self.tokens[self.next].kind != "end":
            raise _misplaced(self.text, self.tokens[self.next].start)
        return tuple(values)

    def _binary(self, level: int, depth: int) -> list[int]:
        if level == len(_LEVELS):
            return self._operand(depth)
        left = self._binary(level + 1, depth)
        while self.tokens[self.next].text in _LEVELS[level]:
            sign = self._take()
            left = self._combined(sign, left, self._binary(level + 1, depth))
        return left

    def _operand(self, depth: int) -> list[int]:
        token = self._take()
        if depth > MAX_DEPTH:
            raise _problem(
                self.text,
                f"{depth} signs or parentheses within each other",
                f"at most {MAX_DEPTH}",
                "Use fewer of them.",
            )
        if token.text in _SIGN:
            return self._bounded(token, [_SIGN[token.text](value) for value in self._operand(depth + 1)])
        if token.text == "(":
            values = self._binary(0, depth + 1)
            if self._take().text != ")":
                raise _problem(
                    self.text, f"the parenthesis at character {token.start + 1} stays open", "every one is closed",
                    "Add a closing parenthesis.",
                )  # fmt: skip
            return values
        if token.kind == "number":
            return self._bounded(token, [self._number(token)] * WARP_LANES)
        if token.text in LANE_NAMES:
            return list(range(WARP_LANES))
        raise _misplaced(self.text, token.start)

    def _number(self, token: _Token) -> int:
        if re.fullmatch(r"0[0-9]+", token.text):
            raise _problem(
                self.text, f"{token.text} at character {token.start + 1}",
                "C reads a leading 0 as octal, Python refuses it", f"Write {token.text.lstrip('0') or '0'}.",
            )  # fmt: skip
        return int(token.text, 0)

    def _combined(self, sign: _Token, left: list[int], right: list[int]) -> list[int]:
        for lane, (one, other) in enumerate(zip(left, right, strict=True)):
            if sign.text in ("/", "//", "%"):
                if other == 0:
                    raise self._at(
                        sign, f"division by 0 in lane {lane}", "a divisor is at least 1", "Divide by 1 or more."
                    )
                if one < 0 or other < 0:
                    raise self._at(
                        sign, f"{one} {sign.text} {other} in lane {lane}",
                        "C and Python divide negative numbers differently", "Add a multiple of the divisor first.",
                    )  # fmt: skip
            elif sign.text in ("<<", ">>") and not 0 <= other <= MAX_SHIFT:
                raise self._at(
                    sign, f"a shift by {other} in lane {lane}", f"0 to {MAX_SHIFT}", f"Shift by at most {MAX_SHIFT}."
                )
        operation = _OPERATION[sign.text]
        return self._bounded(sign, list(map(operation, left, right)))

    def _bounded(self, token: _Token, values: list[int]) -> list[int]:
        largest = max(map(abs, values))
        if largest > MAX_NUMBER:
            raise self._at(
                token, "a number of " + (f"{largest.bit_length()} bits"), f"values stay within 2^{MAX_NUMBER.bit_length() - 1}",
                "Shared memory ends at 228 KiB: use smaller numbers.",
            )  # fmt: skip
        return values

    def _take(self) -> _Token:
        token = self.tokens[self.next]
        if token.kind == "end":
            raise _problem(
                self.text, "it ends too early", "an operand or a parenthesis is missing", "Add it, as in 'lane * 16'."
            )
        self.next += 1
        return token

    def _at(self, token: _Token, found: str, limit: str, fix: str) -> RuleError:
        return _problem(self.text, f"{found}, at character {token.start + 1}", limit, fix)


def _misplaced(text: str, start: int) -> RuleError:
    word = re.match(r"[\w.]+|\S{1,3}", text[start:])
    shown = shortened(word[0] if word else text[start : start + 1], 20)
    return _problem(
        text, f"{shown!r} at character {start + 1}",
        "integers, lane, + - * / % ^ & | ~ << >> and parentheses", f"The lane is called {', '.join(LANE_NAMES)}.",
    )  # fmt: skip


def _problem(text: str, found: str, limit: str, fix: str) -> RuleError:
    return LANE_EXPRESSION.error("expression", f"{shortened(text, 60)}: {found}", limit, fix)
