"""From 128 bytes back to a map: `decode_tensor_map` insists on a sound one, `inspect_tensor_map` never fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tilescope.bits import Inspection, WordFormat
from tilescope.errors import RuleError, TensorMapError, Violation, counted
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.descriptor import (
    DESCRIPTOR_BYTES,
    LARGEST_RANK,
    SIZE_FLAG_BIT,
    arguments_of,
    format_of,
    left_over,
)
from tilescope.tensor_map.im2col import Im2colMap
from tilescope.tensor_map.rules.advice import CLEAR_SIZE_FLAG, SIZE_FLAG, SMALL_TENSOR_BYTES
from tilescope.tensor_map.rules.samples import H200, MATRIX
from tilescope.tensor_map.tiled import TensorMap

_MEASURED: dict[str, Any] = {"source": H200, "subjects": ("descriptor",), "architectures": ("sm_90",)}
descriptor_length = map_rule(
    "descriptor-length",
    "A descriptor is 128 bytes.",
    source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    subjects=("descriptor",),
    passing=MATRIX | {"descriptor": {"bytes": 128}},
    failing=MATRIX | {"descriptor": {"bytes": 64}},
)
descriptor_bits = map_rule(
    "descriptor-bits",
    "Bits that belong to no field are zero.",
    passing=MATRIX | {"descriptor": {"word 10": 0}},
    failing=MATRIX | {"descriptor": {"word 10": 1}},
    **_MEASURED,
)
descriptor_codes = map_rule(
    "descriptor-codes",
    "Type, interleave and rank hold numbers that stand for something.",
    passing=MATRIX | {"descriptor": {"word 4": 0xFFF00000FFF}},
    failing=MATRIX | {"descriptor": {"word 1": 0x1990}},
    **_MEASURED,
)
descriptor_derived = map_rule(
    "descriptor-derived",
    "Box bytes, swizzle repeat and unused dimensions agree with the other fields; tensormap.replace leaves them as they were.",
    severity="warning",
    passing=MATRIX | {"descriptor": {"word 8": 8192}},
    failing=MATRIX | {"descriptor": {"word 8": 4096}},
    **_MEASURED | {"source": f"{H200}: copies through an edited map do not look at them"},
)
_EDITED = "Expect it after tensormap.replace; otherwise these bytes belong to another chip."


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields, violations and, where the bytes are a sound map, the map. Any 128 bytes will do.

    >>> found = inspect_tensor_map(bytes(128))
    >>> found.field("rank").meaning, found.tensor_map is None
    ('1 dimension', True)
    """
    data = _checked_blob(blob)
    bits = int.from_bytes(data, "little")
    form = format_of(bits)
    values = form.decode(bits)
    violations: list[Violation] = []
    unused = left_over(bits)
    strange = [bit for bit in form.reserved_ones(bits) if bit != SIZE_FLAG_BIT and bit not in unused]
    if strange:
        places = ", ".join(f"word {bit // 64} bit {bit % 64}" for bit in strange[:4]) + (", …" if strange[4:] else "")
        found = f"{counted(len(strange), 'unknown bit')} set: {places}"
        fix = "Check that all 128 bytes were copied, in order, from the map of an sm_90 card."
        numbers = {"count": len(strange), "bits": strange, "places": [divmod(bit, 64) for bit in strange]}
        violations.append(descriptor_bits.violation("blob", found, "they are zero in a map of sm_90", fix, **numbers))
    if unused:
        found = f"{len(unused)} bits set in fields of dimensions beyond rank {values['rank']}"
        numbers = {"count": len(unused), "rank": values["rank"]}
        violations.append(
            descriptor_derived.violation("blob", found, "the driver leaves them zero", _EDITED, **numbers)
        )
    tensor_map = None
    arguments = arguments_of(values)
    violations += (unnamed := _unnamed(arguments, values))
    if not unnamed:
        try:
            tensor_map = (Im2colMap if values["im2col"] else TensorMap)(**arguments)
            violations += tensor_map.findings
            violations += _derived(tensor_map, form, bits)
        except RuleError as error:
            violations += error.violations
    if bits >> SIZE_FLAG_BIT & 1:
        violations.append(_size_flag(tensor_map))
    refused = any(violation.severity == "error" for violation in violations)
    described = None if refused else tensor_map
    facts: dict[str, Any] = {"name": form.name, "bits": form.bits, "word": bits, "fields": form.described(bits)}
    return Inspection(violations=tuple(violations), described=described, **facts)


def decode_tensor_map(blob: bytes) -> TensorMap | Im2colMap:
    """The map that an sm_90 driver encoded into these 128 bytes; TensorMapError where they are no map.

    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> decode_tensor_map(a.encode()) == a
    True
    """
    data = _checked_blob(blob)
    values = format_of(bits := int.from_bytes(data, "little")).decode(bits)
    with suppress(TensorMapError):
        decoded: TensorMap | Im2colMap = (Im2colMap if values["im2col"] else TensorMap)(**arguments_of(values))
        if decoded.encode() == data:  # what the driver writes for a map is that map
            return decoded
    inspected = inspect_tensor_map(data)
    if inspected.tensor_map is None:
        raise TensorMapError([violation for violation in inspected.violations if violation.severity == "error"])
    edited: TensorMap | Im2colMap = inspected.tensor_map
    return edited


def _checked_blob(blob: Any) -> bytes:
    try:
        data = blob if isinstance(blob, bytes) else bytes(memoryview(blob).cast("B"))
    except (TypeError, ValueError):
        data = b""
    if len(data) != DESCRIPTOR_BYTES:
        found = f"{len(data)} bytes" if data else f"a {type(blob).__name__}"
        fix = "Pass the whole CUtensorMap, 128 bytes."
        raise TensorMapError([descriptor_length.violation("blob", found, "a tensor map is 128 bytes", fix, bytes=len(data))])
    return data


def _size_flag(a: TensorMap | Im2colMap | None) -> Violation:
    """What bit 21 of word 1 means for this tensor."""
    limit = "on Blackwell it is wrong for a tensor that is not dense and whose memory is less than 128 KiB: sporadic illegal accesses"
    fix, numbers = CLEAR_SIZE_FLAG, {} if a is None else {"reach_bytes": a.reach_bytes}
    if a is not None and (a.is_dense or a.reach_bytes >= SMALL_TENSOR_BYTES):
        fix = f"Leave it: this tensor is {'dense' if a.is_dense else f'{a.reach_bytes} bytes long'}."
    return SIZE_FLAG.rule.violation("blob", "word 1 bit 21 is set", limit, fix, **numbers)


def _unnamed(arguments: Mapping[str, Any], values: Mapping[str, int]) -> list[Violation]:
    """Codes that stand for nothing."""
    wrong = {name: f"{name} code {values[name]}" for name, value in arguments.items() if value is None}
    if values["rank"] > LARGEST_RANK:
        wrong["rank"] = f"{values['rank']} dimensions"
    fix = "These bytes are not a tensor map: check where they were copied from."
    return [
        descriptor_codes.violation(name, found, "a code of its table; of rank 1 to 5", fix, code=values[name])
        for name, found in wrong.items()
    ]


def _derived(tensor_map: TensorMap | Im2colMap, form: WordFormat, bits: int) -> Iterable[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    expected = int.from_bytes(tensor_map.encode(), "little")
    for field in form.fields:
        if (bits ^ expected) & field.mask:
            held, stored = ((word & field.mask) >> field.low for word in (bits, expected))
            found = f"{field.name} holds {held} ({field.says(field.extract(bits))})"
            limit = f"the driver stores {stored} for this map"
            yield descriptor_derived.violation(field.name, found, limit, _EDITED, held=held, stored=stored)
