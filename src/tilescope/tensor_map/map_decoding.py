"""From 128 bytes back to a map, or to the mistakes of bytes that are not a map.

`decode_tensor_map` insists on a sound map, `inspect_tensor_map` never fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tilescope.arch import architectures_with
from tilescope.bits import Inspection, WordFormat, ones
from tilescope.errors import RuleError, TensorMapError, Violation
from tilescope.rule import rule
from tilescope.tensor_map.limits import MAX_RANK, SMALL_TENSOR_BYTES
from tilescope.tensor_map.map_descriptor import (
    DESCRIPTOR_BYTES,
    FORMATS,
    SIZE_FLAG_BIT,
    WORD_BITS,
    arguments_of,
    format_of,
)
from tilescope.tensor_map.map_kinds import Im2colMap, TensorMap
from tilescope.tensor_map.map_object import CLEAR_SIZE_FLAG, SIZE_FLAG_BUG
from tilescope.tensor_map.rules.accepted import SIZE_FLAG
from tilescope.tensor_map.samples import H200

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
    "Type, interleave and rank hold defined codes.",
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
    "Box bytes, swizzle repeat and unused dimensions agree with the other fields; tensormap.replace does not update "
    "them.",
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
# Bit 21 of word 1: to be cleared where it does harm to the tensor, or where the tensor is not known.
_SIZE_FLAG_SET = SIZE_FLAG.worded(
    argument="blob", found="word 1 bit 21 is set", limit=SIZE_FLAG_BUG, fix=CLEAR_SIZE_FLAG
)
_SIZE_FLAG_OF_DENSE = _SIZE_FLAG_SET.worded(fix="Leave it: this tensor is dense.")
_SIZE_FLAG_OF_LONG = _SIZE_FLAG_SET.worded(fix="Leave it: this tensor is {reach_bytes} bytes long.")
_BITS_NAMED = 4  # of those that belong to no field


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields and violations of any 128 bytes, and the map if they are a valid one.

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
    """The map in these 128 bytes, as an sm_90 driver encodes it; TensorMapError if they are not a map.

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
    violations = _find_unknown_codes(arguments, values)
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
    violations = [*_unknown_bits(form, word, values["rank"]), *violations, *_find_foreign_fields(form, word, expected)]
    if word >> SIZE_FLAG_BIT & 1:
        violations.append(_size_flag(described))
    is_refused = any(violation.severity == "error" for violation in violations)
    return _Reading(form, word, None if is_refused else described, violations)


def _find_unknown_codes(arguments: Mapping[str, object], values: Mapping[str, int]) -> list[Violation]:
    """Codes without a meaning."""
    wrong = [
        DESCRIPTOR_CODES.violation(field=name, code=values[name])
        for name, argument in arguments.items()
        if argument is None
    ]
    if values["rank"] > MAX_RANK:
        wrong.append(_DESCRIPTOR_RANK.violation(rank=values["rank"]))
    return wrong


def _unknown_bits(form: WordFormat, word: int, rank: int) -> Iterator[Violation]:
    """Bits that are set outside the fields of the map: in no field at all, or in those of dimensions beyond its rank."""
    unused: tuple[int, ...] = ()
    if not form.field("im2col").extract(word):
        # The driver sets no bits of dimensions beyond the rank; tensormap.replace leaves some when it lowers the rank.
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


def _find_foreign_fields(form: WordFormat, word: int, expected: int) -> Iterator[Violation]:
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
    wording = _SIZE_FLAG_SET
    if a.is_dense:
        wording = _SIZE_FLAG_OF_DENSE
    elif a.reach_bytes >= SMALL_TENSOR_BYTES:
        wording = _SIZE_FLAG_OF_LONG
    return wording.violation(limit_bytes=SMALL_TENSOR_BYTES, reach_bytes=a.reach_bytes)
