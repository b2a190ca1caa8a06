r"""From 128 bytes back to a map, and the 128 bytes out of whatever text shows them.

`decode_tensor_map` insists on a sound map, `inspect_tensor_map` never fails. Debuggers, printf, hex dumps and C source show:

    (cuda-gdb) x/16gx &map                        $1 = {opaque = {0x7f5a20000000, 0x…, 0x0 <repeats 6 times>}}
    0x7ffe10 <map>:     0x00007f5a20000000 …      w0=7f5a20000000, w1=…
    0x7ffe20 <map+16>:  0x0000020000016510 …      {140024…, 2199…ull, …}          10 65 01 00 … (128 bytes)

Prompts, addresses, labels and comments are dropped. What is left are numbers, of which there must be 16, 32,
64 or 128 (words of 64, 32, 16 bits, or bytes), or 256 hexadecimal digits in memory order. Some texts can be
read in two ways: 32 groups of eight digits are words, or bytes in groups of four. The reading that is a sound
map is then the right one.

`TensorMapDiff` compares two maps: which arguments differ, what follows from it, and which words of the descriptors.
"""

from __future__ import annotations

import ast
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.arch import architectures_with
from tilescope.bits import Inspection, WordFormat, ones
from tilescope.errors import RuleError, TensorMapError, Violation
from tilescope.rule import rule
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.descriptor import (
    DESCRIPTOR_BYTES,
    FORMATS,
    MAX_RANK,
    SIZE_FLAG_BIT,
    WORD_BITS,
    arguments_of,
    format_of,
    is_encodable,
)
from tilescope.tensor_map.kinds import Im2colMap, TensorMap
from tilescope.tensor_map.rules.accepted import CLEAR_SIZE_FLAG, SIZE_FLAG, SIZE_FLAG_BUG, SMALL_TENSOR_BYTES
from tilescope.tensor_map.samples import H200
from tilescope.value import Row, Value

_INSPECTED = "ts.inspect_tensor_map({}).violations"
_MAP = 'ts.TensorMap("u8", (64, 64), (64,), (64, 64))'
DESCRIPTOR_LENGTH = rule(
    "descriptor-length",
    "A descriptor is 128 bytes.",
    argument="blob",
    found="{bytes} bytes",
    limit="a tensor map is 128 bytes",
    fix="Pass the whole CUtensorMap, 128 bytes.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    basis="measured",
    subjects=("descriptor",),
    architectures=architectures_with("tma"),
    passing=_INSPECTED.format("bytes(128)"),
    failing=_INSPECTED.format("bytes(64)"),
)
_NO_BYTES = DESCRIPTOR_LENGTH.worded(found="a {type}")
DESCRIPTOR_BITS = rule(
    "descriptor-bits",
    "Bits that belong to no field are zero.",
    argument="blob",
    found="{count:unknown bit} set: {first:, }",
    limit="they are zero in a map of sm_90",
    fix="Check that all 128 bytes were copied, in order, from the map of an sm_90 card.",
    source=H200,
    basis="measured",
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format(f"{_MAP}.encode()[:80] + bytes(47) + b'1'"),
)
DESCRIPTOR_CODES = rule(
    "descriptor-codes",
    "Type, interleave and rank hold numbers that stand for something.",
    argument="{field}",
    found="{field} code {code}",
    limit="a code of its table",
    fix="These bytes are not a tensor map: check where they were copied from.",
    source=H200,
    basis="measured",
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format("bytes(8) + b'1' * 8 + bytes(112)"),
)
_DESCRIPTOR_RANK = DESCRIPTOR_CODES.worded(argument="rank", found="{rank} dimensions", limit=f"1 to {MAX_RANK}")
DESCRIPTOR_DERIVED = rule(
    "descriptor-derived",
    "Box bytes, swizzle repeat and unused dimensions agree with the other fields; tensormap.replace leaves them as they were.",
    argument="{field}",
    found="{field} holds {held} ({meaning})",
    limit="the driver stores {stored} for this map",
    fix="After tensormap.replace this is normal; otherwise these bytes belong to another chip.",
    severity="warning",
    source=f"{H200}: copies through an edited map do not look at them",
    basis="measured",
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format(f"{_MAP}.encode()[:64] + bytes(64)"),
)
_BITS_BEYOND_RANK = DESCRIPTOR_DERIVED.worded(
    argument="blob",
    found="{count} bits set in fields of dimensions beyond rank {rank}",
    limit="the driver leaves them zero",
)
# What bit 21 of word 1 means for a tensor; for one that it does harm, or that nobody knows, it is to be cleared.
_SIZE_FLAG_SET = SIZE_FLAG.rule.worded(
    argument="blob", found="word 1 bit 21 is set", limit=SIZE_FLAG_BUG, fix=CLEAR_SIZE_FLAG
)
_SIZE_FLAG_OF_DENSE = _SIZE_FLAG_SET.worded(fix="Leave it: this tensor is dense.")
_SIZE_FLAG_OF_LONG = _SIZE_FLAG_SET.worded(fix="Leave it: this tensor is {reach_bytes} bytes long.")
_BITS_NAMED = 4  # of those that belong to no field


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields, violations and, where the bytes are a sound map, the map. Any 128 bytes will do.

    >>> found = inspect_tensor_map(bytes(128))
    >>> found.field("rank").meaning, found.tensor_map is None
    ('1 dimension', True)
    """
    read = _read(blob)
    return Inspection(
        name=read.form.name,
        bits=read.form.bits,
        word=read.word,
        fields=read.form.described(read.word),
        violations=tuple(read.violations),
        described=read.described,
    )


def decode_tensor_map(blob: bytes) -> TensorMap | Im2colMap:
    """The map that an sm_90 driver encoded into these 128 bytes; TensorMapError where they are no map.

    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> decode_tensor_map(a.encode()) == a
    True
    """
    read = _read(blob)
    if read.described is None:
        raise TensorMapError([violation for violation in read.violations if violation.severity == "error"])
    return read.described


def _checked_word(blob: Any) -> int:
    try:
        data = blob if isinstance(blob, bytes) else bytes(memoryview(blob).cast("B"))
    except (TypeError, ValueError):
        raise TensorMapError([_NO_BYTES.violation(type=type(blob).__name__)]) from None
    if len(data) != DESCRIPTOR_BYTES:
        raise TensorMapError([DESCRIPTOR_LENGTH.violation(bytes=len(data))])
    return int.from_bytes(data, "little")


class _Reading(NamedTuple):
    """What 128 bytes are."""

    form: WordFormat
    word: int
    described: TensorMap | Im2colMap | None  # None where an error is among the violations
    violations: list[Violation]


def _read(blob: bytes) -> _Reading:
    """The map of the bytes, and everything that is wrong with it or with them."""
    word = _checked_word(blob)
    form = format_of(word)
    values = form.decode(word)
    arguments = arguments_of(values)
    violations = _unnamed(arguments, values)
    described = None
    expected = word
    if not violations:
        try:
            described = Im2colMap(**arguments) if values["im2col"] else TensorMap(**arguments)
        except RuleError as error:
            violations += error.violations
        else:
            violations += described.findings
            expected = int.from_bytes(described.encode(), "little")
            if expected == word:  # what the driver writes for a map is that map
                return _Reading(form, word, described, violations)
    violations = [*_unknown_bits(form, word, values["rank"]), *violations, *_derived(form, word, expected)]
    if word >> SIZE_FLAG_BIT & 1:
        violations.append(_size_flag(described))
    is_refused = any(violation.severity == "error" for violation in violations)
    return _Reading(form, word, None if is_refused else described, violations)


def _unnamed(arguments: Mapping[str, object], values: Mapping[str, int]) -> list[Violation]:
    """Codes that stand for nothing."""
    wrong = [
        DESCRIPTOR_CODES.violation(field=name, code=values[name])
        for name, argument in arguments.items()
        if argument is None
    ]
    if values["rank"] > MAX_RANK:
        wrong.append(_DESCRIPTOR_RANK.violation(rank=values["rank"]))
    return wrong


def _unknown_bits(form: WordFormat, word: int, rank: int) -> Iterator[Violation]:
    """Bits that are set in no field of the map: in none at all, or in those of dimensions that it does not have."""
    unused: tuple[int, ...] = ()
    if not form.field("im2col").extract(word):
        # Of dimensions that a map does not have the driver sets no bits; tensormap.replace leaves some when it lowers the rank.
        unused = ones(word & ~form.covered & FORMATS[False, MAX_RANK].covered)
    strange = [bit for bit in form.reserved_ones(word) if bit != SIZE_FLAG_BIT and bit not in unused]
    if strange:
        places = [divmod(bit, WORD_BITS) for bit in strange]
        first = [f"word {number} bit {bit}" for number, bit in places[:_BITS_NAMED]]
        if len(strange) > _BITS_NAMED:
            first.append("…")
        yield DESCRIPTOR_BITS.violation(count=len(strange), first=first, bits=strange, places=places)
    if unused:
        yield _BITS_BEYOND_RANK.violation(count=len(unused), rank=rank)


def _derived(form: WordFormat, word: int, expected: int) -> Iterator[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    for field in form.fields:
        if (word ^ expected) & field.mask:
            yield DESCRIPTOR_DERIVED.violation(
                field=field.name,
                held=(word & field.mask) >> field.low,
                meaning=field.says(field.extract(word)),
                stored=(expected & field.mask) >> field.low,
            )


def _size_flag(a: TensorMap | Im2colMap | None) -> Violation:
    """What bit 21 of word 1 means for this tensor."""
    if a is None:
        return _SIZE_FLAG_SET.violation(limit_bytes=SMALL_TENSOR_BYTES)
    told = _SIZE_FLAG_SET
    if a.is_dense:
        told = _SIZE_FLAG_OF_DENSE
    elif a.reach_bytes >= SMALL_TENSOR_BYTES:
        told = _SIZE_FLAG_OF_LONG
    return told.violation(limit_bytes=SMALL_TENSOR_BYTES, reach_bytes=a.reach_bytes)


LONGEST_TEXT = 1 << 16  # characters worth reading; 128 decimal bytes with labels take a few thousand
HEX_DIGITS = DESCRIPTOR_BYTES * 2

pasted_descriptor = rule(
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
_LONG_PASTE = pasted_descriptor.worded(found="{characters} characters of text")
_MAP_OR_WORD = (
    "one integer of at most 64 bits, or 16 words of 64 bits, 32 of 32, 64 of 16, 128 bytes, or 256 hexadecimal digits"
)
_PASTE_MAP_OR_WORD = "Paste the whole CUtensorMap: `x/16gx &map` in cuda-gdb prints it; or give one word at a time."

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
        raise RuleError([paste_refused({"characters": len(text)})])
    numbers = _numbers(text)
    readings = [*_python_bytes(text), *_readings(numbers)]
    if not readings:
        digit_count = sum(len(number.digits) for number in numbers)
        raise RuleError([paste_refused({"numbers": len(numbers), "digits": digit_count})])
    return next((reading for reading in readings if inspect_tensor_map(reading).sound), readings[0])


def paste_refused(held: Mapping[str, int], *, or_word: bool = False) -> Violation:
    """The violation for a pasted text that is no descriptor; with `or_word`, one word would do too.

    `held` counts its `characters`, or its `numbers` and `digits`.
    """
    told = _LONG_PASTE if "characters" in held else pasted_descriptor.wording
    if or_word:
        told = told.worded(limit=_MAP_OR_WORD, fix=_PASTE_MAP_OR_WORD)
    if "characters" in held:
        return told.violation(characters=held["characters"])
    return told.violation(numbers=held["numbers"], digits=held["digits"])


def _python_bytes(text: str) -> Iterator[bytes]:
    """The bytes of a Python literal, in which printable bytes are characters."""
    if re.match(r"\s*(?:b|bytearray\(b)['\"]", text) is None:
        return
    try:
        found = ast.literal_eval(text.strip().removeprefix("bytearray(").removesuffix(")"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if len(found) == DESCRIPTOR_BYTES:
        yield found


class _Number(NamedTuple):
    """A number of the text."""

    is_hex: bool  # as 0x says
    digits: str

    @property
    def may_be_decimal(self) -> bool:
        return self.is_hex or self.digits.isdecimal()


def _numbers(text: str) -> list[_Number]:
    """The numbers of the text in their order."""
    plain = _HEXDUMP.sub(r"\1", _HEXDUMP_END.sub("", text.replace("\\x", " 0x")))
    plain = _DIGIT_SEPARATOR.sub("", plain)
    plain = _REPEATS.sub(lambda found: f"{found[1]} " * min(int(found[2]), DESCRIPTOR_BYTES + 1), plain)
    plain = _NOISE.sub(" ", plain)
    if "{" in plain:  # what stands around the braces of C is no part of the value
        plain = plain[plain.index("{") : plain.rindex("}") if "}" in plain else None]
    return [_Number(bool(found[1]), found[2]) for found in _NUMBER.finditer(plain)]


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
    """The bases of numbers without 0x, the likelier one first: where others have it, those without are decimal."""
    if not all(number.may_be_decimal for number in numbers):
        return (16,)
    return (10, 16) if is_marked else (16, 10)


@dataclass(frozen=True, slots=True)
class MapDifference(Value):
    """One thing that differs, and how each map has it; "-" where a map does not have it at all."""

    name: str
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class TensorMapDiff(Value):
    """What differs between two maps.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> diff = TensorMapDiff.of(a, a.with_fields(box=(64, 32)))
    >>> [(differs.name, differs.one, differs.other) for differs in diff.arguments]
    [('box[1]', '64', '32')]
    >>> [differs.name for differs in diff.consequences]
    ['smem_bytes', 'transaction_bytes', 'box_bytes']
    """

    one: AnyMap
    other: AnyMap
    arguments: tuple[MapDifference, ...]
    consequences: tuple[MapDifference, ...]  # sizes that follow from the arguments
    words: tuple[MapDifference, ...]  # of the descriptors; none where one of them was never measured

    @property
    def same(self) -> bool:
        """Whether the two maps are equal."""
        return not self.arguments

    @classmethod
    def of(cls, one: AnyMap, other: AnyMap) -> TensorMapDiff:
        """Compare two maps of whatever kinds."""
        words: tuple[MapDifference, ...] = ()
        if is_encodable(one) and is_encodable(other):
            words = _differing(_words(one), _words(other))
        return cls(
            one=one,
            other=other,
            arguments=_differing(_arguments(one), _arguments(other)),
            consequences=_differing(_sizes(one), _sizes(other)),
            words=words,
        )


def _differing(one: dict[str, str], other: dict[str, str]) -> tuple[MapDifference, ...]:
    differences = (MapDifference(name, one.get(name, "-"), other.get(name, "-")) for name in one | other)
    return tuple(found for found in differences if found.one != found.other)


def _sizes(tensor_map: AnyMap) -> dict[str, str]:
    """The sizes that follow from the arguments, and what they rest on."""
    return {
        "smem_bytes": str(tensor_map.smem_bytes),
        "smem_alignment_bytes": str(tensor_map.smem_alignment_bytes),
        "transaction_bytes": str(tensor_map.transaction_bytes),
        "box_bytes": str(tensor_map.box_bytes),
        "basis": tensor_map.basis,
    }


def _arguments(tensor_map: AnyMap) -> dict[str, str]:
    """Every argument with its value in words, sequences entry by entry."""
    shown = {"kind": tensor_map.kind}
    for name in tensor_map.readers:
        value = getattr(tensor_map, name)
        if isinstance(value, tuple):
            shown |= {f"{name}[{place}]": str(entry) for place, entry in enumerate(value)}
        else:
            shown[name] = _shown(name, value)
    return shown


def _shown(name: str, value: Row | int | str) -> str:
    if isinstance(value, Row):
        return value.name
    return f"{value:#x}" if name == "address" else str(value)


def _words(tensor_map: AnyMap) -> dict[str, str]:
    words = struct.unpack("<16Q", tensor_map.encode())
    return {f"word {number}": f"{word:#018x}" for number, word in enumerate(words)}
