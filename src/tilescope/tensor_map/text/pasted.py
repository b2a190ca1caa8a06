r"""The 128 bytes of a map from any text that shows them: debuggers, printf, hex dumps and C source.

    (cuda-gdb) x/16gx &map                        $1 = {opaque = {0x7f5a20000000, 0x…, 0x0 <repeats 6 times>}}
    0x7ffe10 <map>:     0x00007f5a20000000 …      w0=7f5a20000000, w1=…
    0x7ffe20 <map+16>:  0x0000020000016510 …      {140024…, 2199…ull, …}          10 65 01 00 … (128 bytes)

Prompts, addresses, labels and comments are dropped. What is left are numbers, of which there must be 16, 32,
64 or 128 (words of 64, 32, 16 bits, or bytes), or 256 hexadecimal digits in memory order. Some texts can be
read in two ways: 32 groups of eight digits are words, or bytes in groups of four. The reading that is a sound
map is then the right one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import RuleError, Violation
from tilescope.rule import rule
from tilescope.tensor_map.map_decoding import inspect_tensor_map
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES

LONGEST_TEXT = 1 << 16  # characters worth reading; 128 decimal bytes with labels take a few thousand
HEX_DIGITS = DESCRIPTOR_BYTES * 2

PASTED_DESCRIPTOR = rule(
    "pasted-descriptor",
    "A pasted descriptor is 16, 32, 64 or 128 numbers, or 256 hexadecimal digits.",
    argument="text",
    found="{numbers:number} with {digits:digit} in all",
    limit="16 words of 64 bits, 32 of 32, 64 of 16, 128 bytes, or 256 hexadecimal digits",
    fix="Paste the whole CUtensorMap: `x/16gx &map` in cuda-gdb prints it.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    basis="measured",
    subjects=("paste",),
    architectures=architectures_with("tma"),
    passing='ts.tensor_map.descriptor_bytes("$1 = {opaque = {0x0 <repeats 16 times>}}")',
    failing='ts.tensor_map.descriptor_bytes("$1 = {opaque = {0x0 <repeats 15 times>}}")',
)
_NO_NUMBERS = PASTED_DESCRIPTOR.worded(found="a text without a number")
_LONG_PASTE = PASTED_DESCRIPTOR.worded(found="{characters} characters of text")
_MAP_OR_WORD = (
    "one integer of at most 64 bits, or 16 words of 64 bits, 32 of 32, 64 of 16, 128 bytes, or 256 hexadecimal digits"
)
_PASTE_MAP_OR_WORD = "Paste the whole CUtensorMap: `x/16gx &map` in cuda-gdb prints it; or give up to 8 words, which are read one by one."

_REPEATS = re.compile(r"(?<![0-9a-fA-Fx])([0-9a-fA-Fx]+)(?:[uUlL]{0,3})\s*<repeats (\d{1,3}) times>")
_NOISE = re.compile(
    r"""
    /\*.*?\*/ | //[^\n]*                                      # comments of C
    | ^[ \t]*\((?:cuda-)?gdb\)[^\n]*                             # a prompt, and the command behind it
    | ^[ \t]*(?:0x)?[0-9a-fA-F]+\s*(?:<[^>\n]*>\s*)?:(?=\s)      # an address, perhaps with its symbol
    | ^[ \t]*<[^>\n]*>\s*:                                       # a symbol alone
    | (?:\$\d+|(?<![\w.])[A-Za-z_][\w.]*)(?:[ ]+\d+)?(?:\s*\[\s*\d*\s*\])*\s*(?:=|:(?=\s))   # a name or an index before its value
    | \[\s*\d+\s*\]\s*[:=]
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_HEXDUMP = re.compile(r"^[0-9a-fA-F]{7,8}(?:  ?|: )((?:[0-9a-fA-F]{2,4} {1,2}){8,16})[| ].*$", re.MULTILINE)
_HEXDUMP_END = re.compile(r"\n0{5,6}80\s*\Z")
_DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])[_'](?=[0-9a-fA-F])")
_NUMBER = re.compile(r"(?<![\w.])(0[xX])?([0-9a-fA-F]+)(?:[uUlL]{1,3})?(?![\w.])")
WORD_BITS = 64
_LEAST_DECIMAL_DIGITS = 9  # of a word in decimal; shorter numbers count something
_MOST_DECIMAL_DIGITS = 20


class NoDescriptorError(RuleError):
    """The text shows no 128 bytes; `words` are the numbers of up to 64 bits that it shows instead."""

    def __init__(self, violation: Violation, words: tuple[int, ...] = (), text: str = "") -> None:
        super().__init__([violation])
        self.words = words
        self.text = text


def descriptor_bytes(text: str) -> bytes:
    """The 128 bytes that the text shows; RuleError where it shows something else.

    >>> descriptor_bytes("0x0 <repeats 16 times>") == bytes(128)
    True
    >>> words = ["0x1000", "0x0000020000016510"] + ["0"] * 14
    >>> descriptor_bytes("opaque = {" + ", ".join(words) + "}")[:10].hex()
    '00100000000000001065'
    """
    if len(text) > LONGEST_TEXT:
        raise NoDescriptorError(paste_refused({"characters": len(text)}), text=text)
    numbers = _numbers(text)
    readings = [*_python_bytes(text), *_readings(numbers)]
    if not readings:
        digit_count = sum(len(number.digits) for number in numbers)
        refusal = paste_refused({"numbers": len(numbers), "digits": digit_count})
        raise NoDescriptorError(refusal, _words(numbers), text)
    return next((reading for reading in readings if inspect_tensor_map(reading).sound), readings[0])


def paste_refused(held: Mapping[str, int], *, or_word: bool = False) -> Violation:
    """The violation for a pasted text that is no descriptor; with `or_word`, one word would do too.

    `held` counts its `characters`, or its `numbers` and `digits`.
    """
    if "characters" in held:
        wording = _LONG_PASTE
    else:
        wording = PASTED_DESCRIPTOR.wording if held["numbers"] else _NO_NUMBERS
    if or_word:
        wording = wording.worded(limit=_MAP_OR_WORD, fix=_PASTE_MAP_OR_WORD)
    if "characters" in held:
        return wording.violation(characters=held["characters"])
    return wording.violation(numbers=held["numbers"], digits=held["digits"])


def _python_bytes(text: str) -> Iterator[bytes]:
    """The bytes of a Python literal, in which printable bytes are characters."""
    if re.match(r"\s*(?:b|bytearray\(b)['\"]", text) is None:
        return
    try:
        literal = ast.literal_eval(text.strip().removeprefix("bytearray(").removesuffix(")"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if len(literal) == DESCRIPTOR_BYTES:
        yield literal


class _Number(NamedTuple):
    """A number of the text."""

    is_hex: bool  # as 0x implies
    digits: str

    @property
    def may_be_decimal(self) -> bool:
        return self.is_hex or self.digits.isdecimal()


def _numbers(text: str) -> list[_Number]:
    """The numbers of the text in their order."""
    plain = _HEXDUMP.sub(r"\1", _HEXDUMP_END.sub("", text.replace("\\x", " 0x")))
    plain = _DIGIT_SEPARATOR.sub("", plain)
    plain = _REPEATS.sub(lambda match: f"{match[1]} " * min(int(match[2]), DESCRIPTOR_BYTES + 1), plain)
    plain = _NOISE.sub(" ", plain)
    if "{" in plain:  # text around the braces of C is not part of the value
        plain = plain[plain.index("{") : plain.rindex("}") if "}" in plain else None]
    return [_Number(bool(match[1]), match[2]) for match in _NUMBER.finditer(plain)]


def _words(numbers: list[_Number]) -> tuple[int, ...]:
    """The numbers that may be words of 64 bits: those with 0x, or, if none has it, long decimal ones."""
    marked = [int(number.digits, 16) for number in numbers if number.is_hex]
    decimal = [
        int(number.digits)
        for number in numbers
        if number.digits.isdecimal() and _LEAST_DECIMAL_DIGITS <= len(number.digits) <= _MOST_DECIMAL_DIGITS
    ]
    return tuple(word for word in marked or decimal if word < 1 << WORD_BITS)


def _readings(numbers: list[_Number]) -> Iterator[bytes]:
    """Every way to read the numbers as 128 bytes, the likeliest first."""
    digits = "".join(number.digits for number in numbers)
    is_marked = any(number.is_hex for number in numbers)
    is_whole = len(digits) == HEX_DIGITS and all(len(number.digits) % 2 == 0 for number in numbers)
    if is_whole and (not is_marked or len(numbers) == 1):
        yield bytes.fromhex(digits)
    if len(numbers) not in (16, 32, 64, 128):
        return
    word_bytes = DESCRIPTOR_BYTES // len(numbers)
    for base in _likely_bases(numbers, is_marked=is_marked):
        values = [int(number.digits, 16 if number.is_hex else base) for number in numbers]
        if max(values) < 1 << 8 * word_bytes:
            yield b"".join(value.to_bytes(word_bytes, "little") for value in values)


def _likely_bases(numbers: list[_Number], *, is_marked: bool) -> tuple[int, ...]:
    """The bases of numbers without 0x, the likelier one first: if others have it, those without are decimal."""
    if not all(number.may_be_decimal for number in numbers):
        return (16,)
    return (10, 16) if is_marked else (16, 10)
