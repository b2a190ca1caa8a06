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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tilescope.bits import Inspection, WordFormat, ones
from tilescope.errors import RuleError, TensorMapError, Violation
from tilescope.sentence import counted
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import stated
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES, FORMATS, MAX_RANK, SIZE_FLAG_BIT, arguments_of, format_of
from tilescope.tensor_map.kinds import Im2colMap, TensorMap
from tilescope.tensor_map.limits import SMALL_TENSOR_BYTES
from tilescope.tensor_map.rules.accepted import CLEAR_SIZE_FLAG, SIZE_FLAG, SIZE_FLAG_BUG
from tilescope.tensor_map.samples import H200
from tilescope.value import Row, Value

_INSPECTED, _MAP = "ts.inspect_tensor_map({}).violations", 'ts.TensorMap("u8", (64, 64), (64,), (64, 64))'
_MEASURED: dict[str, Any] = {"source": H200, "subjects": ("descriptor",), "architectures": ("sm_90",)}
descriptor_length = stated(
    "descriptor-length",
    "A descriptor is 128 bytes.",
    argument="blob",
    limit="a tensor map is 128 bytes",
    fix="Pass the whole CUtensorMap, 128 bytes.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    subjects=("descriptor",),
    passing=_INSPECTED.format("bytes(128)"),
    failing=_INSPECTED.format("bytes(64)"),
)
descriptor_bits = stated(
    "descriptor-bits",
    "Bits that belong to no field are zero.",
    "{bits_set} set: {first}",
    "they are zero in a map of sm_90",
    "Check that all 128 bytes were copied, in order, from the map of an sm_90 card.",
    argument="blob",
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format(f"{_MAP}.encode()[:80] + bytes(47) + b'1'"),
    **_MEASURED,
)
descriptor_codes = stated(
    "descriptor-codes",
    "Type, interleave and rank hold numbers that stand for something.",
    fix="These bytes are not a tensor map: check where they were copied from.",
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format("bytes(8) + b'1' * 8 + bytes(112)"),
    **_MEASURED,
)
descriptor_derived = stated(
    "descriptor-derived",
    "Box bytes, swizzle repeat and unused dimensions agree with the other fields; tensormap.replace leaves them as they were.",
    fix="After tensormap.replace this is normal; otherwise these bytes belong to another chip.",
    severity="warning",
    passing=_INSPECTED.format(f"{_MAP}.encode()"),
    failing=_INSPECTED.format(f"{_MAP}.encode()[:64] + bytes(64)"),
    **_MEASURED | {"source": f"{H200}: copies through an edited map do not look at them"},
)


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields, violations and, where the bytes are a sound map, the map. Any 128 bytes will do.

    >>> found = inspect_tensor_map(bytes(128))
    >>> found.field("rank").meaning, found.tensor_map is None
    ('1 dimension', True)
    """
    form, word, described, violations = _read(blob)
    fields, found = form.described(word), tuple(violations)
    return Inspection(name=form.name, bits=form.bits, word=word, fields=fields, violations=found, described=described)


def decode_tensor_map(blob: bytes) -> TensorMap | Im2colMap:
    """The map that an sm_90 driver encoded into these 128 bytes; TensorMapError where they are no map.

    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> decode_tensor_map(a.encode()) == a
    True
    """
    *_, described, violations = _read(blob)
    if described is None:
        raise TensorMapError([violation for violation in violations if violation.severity == "error"])
    return described


def _checked_word(blob: Any) -> int:
    try:
        data = blob if isinstance(blob, bytes) else bytes(memoryview(blob).cast("B"))
    except (TypeError, ValueError):
        raise TensorMapError([descriptor_length.told(found=f"a {type(blob).__name__}")]) from None
    if len(data) != DESCRIPTOR_BYTES:
        raise TensorMapError([descriptor_length.told(found=f"{len(data)} bytes", bytes=len(data))])
    return int.from_bytes(data, "little")


def _read(blob: Any) -> tuple[WordFormat, int, TensorMap | Im2colMap | None, list[Violation]]:
    """The format and the bits; the map that they are, None where an error is among the violations; and all violations."""
    word = _checked_word(blob)
    form = format_of(word)
    values = form.decode(word)
    arguments = arguments_of(values)
    violations = _unnamed(arguments, values)
    described, expected = None, word
    if not violations:
        try:
            described = (Im2colMap if values["im2col"] else TensorMap)(**arguments)
            violations += described.findings
            expected = int.from_bytes(described.encode(), "little")
            if expected == word:  # what the driver writes for a map is that map
                return form, word, described, violations
        except RuleError as error:
            violations += error.violations
    violations = [*_unknown_bits(form, word, values["rank"]), *violations, *_derived(form, word, expected)]
    if word >> SIZE_FLAG_BIT & 1:
        violations.append(_size_flag(described))
    refused = any(violation.severity == "error" for violation in violations)
    return form, word, None if refused else described, violations


def _unnamed(arguments: Mapping[str, Any], values: Mapping[str, int]) -> list[Violation]:
    """Codes that stand for nothing."""
    nameless = {name: values[name] for name, value in arguments.items() if value is None}
    limit, rank = "a code of its table", values["rank"]
    wrong = [
        descriptor_codes.told(argument=name, found=f"{name} code {code}", limit=limit, code=code)
        for name, code in nameless.items()
    ]
    if rank > MAX_RANK:
        wrong.append(descriptor_codes.told(argument="rank", found=f"{rank} dimensions", limit="1 to 5", rank=rank))
    return wrong


def _unknown_bits(form: WordFormat, word: int, rank: int) -> Iterator[Violation]:
    """Bits that are set in no field of the map: in none at all, or in those of dimensions that it does not have."""
    # Of dimensions that a map does not have the driver sets no bits; tensormap.replace leaves some when it lowers the rank.
    unused = () if form.field("im2col").extract(word) else ones(word & ~form.covered & FORMATS[False, MAX_RANK].covered)
    strange = [bit for bit in form.reserved_ones(word) if bit != SIZE_FLAG_BIT and bit not in unused]
    if strange:
        first = ", ".join(f"word {bit // 64} bit {bit % 64}" for bit in strange[:4]) + (", …" if strange[4:] else "")
        numbers = {"count": len(strange), "bits": strange, "places": [divmod(bit, 64) for bit in strange]}
        yield descriptor_bits.told(bits_set=counted(len(strange), "unknown bit"), first=first, **numbers)
    if unused:
        found = f"{len(unused)} bits set in fields of dimensions beyond rank {rank}"
        facts = {"argument": "blob", "limit": "the driver leaves them zero", "count": len(unused), "rank": rank}
        yield descriptor_derived.told(found=found, **facts)


def _derived(form: WordFormat, word: int, expected: int) -> Iterator[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    for field in form.fields:
        if (word ^ expected) & field.mask:
            held, stored = ((bits & field.mask) >> field.low for bits in (word, expected))
            found = f"{field.name} holds {held} ({field.says(field.extract(word))})"
            facts = {"argument": field.name, "limit": f"the driver stores {stored} for this map", "stored": stored}
            yield descriptor_derived.told(found=found, held=held, **facts)


def _size_flag(a: TensorMap | Im2colMap | None) -> Violation:
    """What bit 21 of word 1 means for this tensor."""
    fix, numbers = CLEAR_SIZE_FLAG, {"limit_bytes": SMALL_TENSOR_BYTES}
    numbers |= {} if a is None else {"reach_bytes": a.reach_bytes}
    if a is not None and (a.is_dense or a.reach_bytes >= SMALL_TENSOR_BYTES):
        fix = f"Leave it: this tensor is {'dense' if a.is_dense else f'{a.reach_bytes} bytes long'}."
    return SIZE_FLAG.violation("blob", "word 1 bit 21 is set", SIZE_FLAG_BUG, fix, **numbers)


LONGEST_TEXT = 1 << 16  # characters worth reading; 128 decimal bytes with labels take a few thousand
HEX_DIGITS = DESCRIPTOR_BYTES * 2

pasted_descriptor = stated(
    "pasted-descriptor",
    "A pasted descriptor is 16, 32, 64 or 128 numbers, or 256 hexadecimal digits.",
    argument="text",
    limit="{one_word}16 words of 64 bits, 32 of 32, 64 of 16, 128 bytes, or 256 hexadecimal digits",
    fix="Paste the whole CUtensorMap: `x/16gx &map` in cuda-gdb prints it{alone}.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    subjects=("paste",),
    passing='ts.tensor_map.descriptor_bytes("$1 = {opaque = {0x0 <repeats 16 times>}}")',
    failing='ts.tensor_map.descriptor_bytes("$1 = {opaque = {0x0 <repeats 15 times>}}")',
)

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
        digit_count = sum(len(digits) for _, digits in numbers)
        raise RuleError([paste_refused({"numbers": len(numbers), "digits": digit_count})])
    return next((reading for reading in readings if inspect_tensor_map(reading).sound), readings[0])


def paste_refused(held: Mapping[str, Any], *, or_word: bool = False) -> Violation:
    """The violation for a pasted text that is no descriptor; with `or_word`, one word would do too.

    `held` counts its `characters`, or its `numbers` and `digits`.
    """
    found = f"{held.get('characters')} characters of text"
    if "digits" in held:
        found = f"{counted(held['numbers'], 'number')} with {counted(held['digits'], 'digit')} in all"
    one_word, alone = "one integer of at most 64 bits, or " * or_word, "; or give one word at a time" * or_word
    return pasted_descriptor.told(found=found, one_word=one_word, alone=alone, **held)


def _python_bytes(text: str) -> Iterator[bytes]:
    """The bytes of a Python literal, in which printable bytes are characters."""
    if re.match(r"\s*(?:b|bytearray\(b)['\"]", text):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = ast.literal_eval(text.strip().removeprefix("bytearray(").removesuffix(")"))
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
    digits = "".join(written for _, written in numbers)
    marked = any(is_hex for is_hex, _ in numbers)
    whole = len(digits) == HEX_DIGITS and all(len(written) % 2 == 0 for _, written in numbers)
    if whole and (not marked or len(numbers) == 1):
        yield bytes.fromhex(digits)
    if len(numbers) in (16, 32, 64, 128):
        word_bytes = DESCRIPTOR_BYTES // len(numbers)
        decimal = all(is_hex or written.isdecimal() for is_hex, written in numbers)
        for base in (10, 16) if marked and decimal else (16, 10) if decimal else (16,):
            values = [int(written, 16 if is_hex else base) for is_hex, written in numbers]
            if max(values) < 1 << 8 * word_bytes:
                yield b"".join(value.to_bytes(word_bytes, "little") for value in values)


CONSEQUENCES = ("smem_bytes", "smem_alignment_bytes", "transaction_bytes", "box_bytes", "basis")


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
        words = _words(one), _words(other)
        sizes = ({name: str(getattr(a, name)) for name in CONSEQUENCES} for a in (one, other))
        arguments = _differing(_arguments(one), _arguments(other))
        return cls(one, other, arguments, _differing(*sizes), _differing(*words) if all(words) else ())


def _differing(one: dict[str, str], other: dict[str, str]) -> tuple[MapDifference, ...]:
    pairs = ((name, one.get(name, "-"), other.get(name, "-")) for name in one | other)
    return tuple(MapDifference(*pair) for pair in pairs if pair[1] != pair[2])


def _arguments(tensor_map: AnyMap) -> dict[str, str]:
    """Every argument with its value in words, sequences entry by entry."""
    shown = {"kind": tensor_map.kind}
    for name in tensor_map.readers:
        value = getattr(tensor_map, name)
        if isinstance(value, tuple):
            shown |= {f"{name}[{place}]": str(entry) for place, entry in enumerate(value)}
        else:
            shown[name] = hex(value) if name == "address" else str(value.name if isinstance(value, Row) else value)
    return shown


def _words(tensor_map: AnyMap) -> dict[str, str]:
    with suppress(RuleError):  # not of sm_90
        words = struct.unpack("<16Q", tensor_map.encode())
        return {f"word {number}": f"{word:#018x}" for number, word in enumerate(words)}
    return {}
