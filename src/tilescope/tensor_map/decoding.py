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

descriptor_length = map_rule(
    "descriptor-length", "A descriptor is 128 bytes.", source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    subjects=("descriptor",), passing=MATRIX | {"descriptor": {"bytes": 128}},
    failing=MATRIX | {"descriptor": {"bytes": 64}},
)  # fmt: skip
descriptor_bits = map_rule(
    "descriptor-bits", "Bits that belong to no field are zero.", source=H200, subjects=("descriptor",),
    architectures=("sm_90",), passing=MATRIX | {"descriptor": {"word 10": 0}},
    failing=MATRIX | {"descriptor": {"word 10": 1}},
)  # fmt: skip
descriptor_codes = map_rule(
    "descriptor-codes", "Type, interleave and rank hold numbers that stand for something.", source=H200,
    subjects=("descriptor",), architectures=("sm_90",), passing=MATRIX | {"descriptor": {"word 4": 0xFFF00000FFF}},
    failing=MATRIX | {"descriptor": {"word 1": 0x1990}},
)  # fmt: skip
descriptor_derived = map_rule(
    "descriptor-derived",
    "Box bytes, swizzle repeat and unused dimensions agree with the other fields; tensormap.replace leaves them as they were.",
    severity="warning",
    source=f"{H200}: copies through an edited map do not look at them",
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=MATRIX | {"descriptor": {"word 8": 8192}},
    failing=MATRIX | {"descriptor": {"word 8": 4096}},
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
        shown = ", ".join(f"word {bit // 64} bit {bit % 64}" for bit in strange[:4]) + (", …" if strange[4:] else "")
        violations.append(descriptor_bits.violation(
            "blob", f"{counted(len(strange), 'unknown bit')} set: {shown}", "they are zero in a map of sm_90",
            "Check that all 128 bytes were copied, in order, from the map of an sm_90 card.", None,
            count=len(strange), bits=tuple(strange), places=tuple(divmod(bit, 64) for bit in strange),
        ))  # fmt: skip
    if unused:
        violations.append(descriptor_derived.violation(
            "blob", f"{len(unused)} bits set in fields of dimensions beyond rank {values['rank']}",
            "the driver leaves them zero", _EDITED, count=len(unused),
        ))  # fmt: skip
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
    return Inspection(
        name=form.name, bits=form.bits, word=bits, fields=form.described(bits), violations=tuple(violations),
        described=None if refused else tensor_map,
    )  # fmt: skip


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
        data = bytes(memoryview(blob).cast("B")) if not isinstance(blob, bytes) else blob
    except (TypeError, ValueError):
        data = None
    if data is None or len(data) != DESCRIPTOR_BYTES:
        raise TensorMapError([descriptor_length.violation(
            "blob", f"a {type(blob).__name__}" if data is None else f"{len(data)} bytes", "a tensor map is 128 bytes",
            "Pass the whole CUtensorMap, 128 bytes.", **({} if data is None else {"bytes": len(data)}),
        )])  # fmt: skip
    return data


def _size_flag(tensor_map: TensorMap | Im2colMap | None) -> Violation:
    """What bit 21 of word 1 means for this tensor."""
    limit = "on Blackwell it is wrong for a tensor that is not dense and whose memory is less than 128 KiB: sporadic illegal accesses"
    if tensor_map is not None and (tensor_map.is_dense or tensor_map.reach_bytes >= SMALL_TENSOR_BYTES):
        size = "dense" if tensor_map.is_dense else f"{tensor_map.reach_bytes} bytes long"
        fix = f"Leave it: this tensor is {size}."
    else:
        fix = CLEAR_SIZE_FLAG
    return SIZE_FLAG.rule.violation(
        "blob", "word 1 bit 21 is set", limit, fix,
        **({} if tensor_map is None else {"reach_bytes": tensor_map.reach_bytes, "limit_bytes": SMALL_TENSOR_BYTES}),
    )  # fmt: skip


def _unnamed(arguments: Mapping[str, Any], values: Mapping[str, int]) -> list[Violation]:
    """Codes that stand for nothing."""
    fix = "These bytes are not a tensor map: check where they were copied from."
    unnamed = [
        descriptor_codes.violation(name, f"{name} code {values[name]}", "a code of its table", fix, code=values[name])
        for name, found in arguments.items()
        if found is None
    ]
    if values["rank"] > LARGEST_RANK:
        unnamed.append(descriptor_codes.violation(
            "rank", f"{values['rank']} dimensions", "1 to 5", fix, rank=values["rank"],
        ))  # fmt: skip
    return unnamed


def _derived(tensor_map: TensorMap | Im2colMap, form: WordFormat, bits: int) -> Iterable[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    expected = int.from_bytes(tensor_map.encode(), "little")
    for field in form.fields:
        if (bits ^ expected) & field.mask:
            held, stored = ((word & field.mask) >> field.low for word in (bits, expected))
            yield descriptor_derived.violation(
                field.name,
                f"{field.name} holds {held} ({field.says(field.extract(bits))})",
                f"the driver stores {stored} for this map",
                _EDITED,
                held=held,
                stored=stored,
            )
