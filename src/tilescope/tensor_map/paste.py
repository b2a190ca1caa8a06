r"""The 128 bytes of a descriptor out of whatever text shows them: debuggers, printf, hex dumps, C source.

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
from collections.abc import Iterator

from tilescope.errors import RuleError, counted
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.decoding import inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES

LONGEST_TEXT = 1 << 16  # characters worth reading; 128 decimal bytes with labels take a few thousand
HEX_DIGITS = DESCRIPTOR_BYTES * 2

pasted_descriptor = map_rule(
    "pasted-descriptor", "A pasted descriptor is 16, 32, 64 or 128 numbers, or 256 hexadecimal digits.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS", subjects=("paste",),
    passing={"text": "$1 = {opaque = {0x0 <repeats 16 times>}}"},
    failing={"text": "$1 = {opaque = {0x0 <repeats 15 times>}}"},
)  # fmt: skip

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


def descriptor_bytes(text: str) -> bytes:
    """The 128 bytes that the text shows; RuleError where it shows something else.

    >>> descriptor_bytes("0x0 <repeats 16 times>") == bytes(128)
    True
    >>> words = ["0x1000", "0x0000020000016510"] + ["0"] * 14
    >>> descriptor_bytes("opaque = {" + ", ".join(words) + "}")[:10].hex()
    '00100000000000001065'
    """
    if len(text) > LONGEST_TEXT:
        raise _refused(f"{len(text)} characters of text", characters=len(text))
    numbers = _numbers(text)
    readings = list(dict.fromkeys([*_python_bytes(text), *_readings(numbers)]))
    if not readings:
        digit_count = sum(len(digits) for _, digits in numbers)
        found = f"{counted(len(numbers), 'number')} of {counted(digit_count, 'digit')}"
        raise _refused(found, numbers=len(numbers), digits=digit_count)
    for reading in readings:
        if inspect_tensor_map(reading).tensor_map is not None:
            return reading
    return readings[0]


def _refused(found: str, **values: int) -> RuleError:
    return RuleError([pasted_descriptor.violation(
        "text", found, "16 words of 64 bits, 32 of 32, 64 of 16, 128 bytes, or 256 hexadecimal digits",
        "Paste the whole CUtensorMap: `x/16gx &map` in cuda-gdb prints it.", **values,
    )])  # fmt: skip


def _python_bytes(text: str) -> Iterator[bytes]:
    """The bytes of a Python literal, in which printable bytes are characters."""
    if re.match(r"\s*(?:b|bytearray\(b)['\"]", text):
        try:
            found = ast.literal_eval(text.strip().removeprefix("bytearray(").removesuffix(")"))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return
        if len(found) == DESCRIPTOR_BYTES:
            yield found


def _numbers(text: str) -> list[tuple[bool, str]]:
    """The numbers of the text in their order: whether each is marked as hexadecimal, and its digits."""
    plain = _HEXDUMP.sub(r"\1", _HEXDUMP_END.sub("", text.replace("\\x", " 0x")))
    plain = _DIGIT_SEPARATOR.sub("", plain)
    plain = _REPEATS.sub(lambda found: f"{found[1]} " * min(int(found[2]), DESCRIPTOR_BYTES + 1), plain)
    plain = _NOISE.sub(" ", plain)
    if "{" in plain:  # what stands around the braces of C is no part of the value
        plain = plain[plain.index("{") : plain.rindex("}") if "}" in plain else None]
    return [(bool(found[1]), found[2]) for found in _NUMBER.finditer(plain)]


def _readings(numbers: list[tuple[bool, str]]) -> Iterator[bytes]:
    """Every way to read the numbers as 128 bytes, the likeliest first."""
    digits = "".join(each for _, each in numbers)
    marked = any(is_hex for is_hex, _ in numbers)
    whole = len(digits) == HEX_DIGITS and all(len(each) % 2 == 0 for _, each in numbers)
    if whole and (not marked or len(numbers) == 1):
        yield bytes.fromhex(digits)
    if len(numbers) in (16, 32, 64, 128):
        word_bytes = DESCRIPTOR_BYTES // len(numbers)
        decimal = all(is_hex or each.isdecimal() for is_hex, each in numbers)
        for base in (10, 16) if marked and decimal else (16, 10) if decimal else (16,):
            values = [int(each, 16 if is_hex else base) for is_hex, each in numbers]
            if max(values) < 1 << 8 * word_bytes:
                yield b"".join(value.to_bytes(word_bytes, "little") for value in values)
