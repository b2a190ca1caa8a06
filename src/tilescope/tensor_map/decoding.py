"""From 128 bytes back to a map: `decode_tensor_map` insists on a sound one, `inspect_tensor_map` never fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES, SIZE_FLAG_BIT, DescriptorField, raw_fields, unknown_bits
from tilescope.tensor_map.im2col import Im2colMap
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.rules.advice import CLEAR_SIZE_FLAG, SMALL_TENSOR_BYTES, size_flag_check
from tilescope.tensor_map.rules.samples import H200, MATRIX
from tilescope.tensor_map.tiled import TensorMap
from tilescope.value import Value

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
    source=H200,
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=MATRIX | {"descriptor": {"word 10": 0}},
    failing=MATRIX | {"descriptor": {"word 10": 1}},
)
descriptor_codes = map_rule(
    "descriptor-codes",
    "Type, interleave and rank hold numbers that stand for something.",
    source=H200,
    subjects=("descriptor",),
    architectures=("sm_90",),
    passing=MATRIX | {"descriptor": {"word 4": 0xFFF00000FFF}},
    failing=MATRIX | {"descriptor": {"word 1": 0x1990}},
)
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


@dataclass(frozen=True, slots=True)
class Inspection(Value):
    """What 128 bytes say: every field, what is wrong with them, and the map if they are one.

    >>> found = inspect_tensor_map(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").encode())
    >>> found.field("swizzle").meaning, found.field("box[1]").meaning, found.violations
    ('128B', '8 elements', ())
    """

    fields: tuple[DescriptorField, ...]
    unknown_bits: tuple[int, ...]  # set, and part of no field of this map; counted through all sixteen words
    violations: tuple[Violation, ...]
    tensor_map: TensorMap | Im2colMap | None

    def field(self, name: str) -> DescriptorField:
        """The field called `name`."""
        for each in self.fields:
            if each.name == name:
                return each
        raise RuleError([unknown_name("field", "name", name, [each.name for each in self.fields])])


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields, violations and, where the bytes are a sound map, the map. Any 128 bytes will do.

    >>> found = inspect_tensor_map(bytes(128))
    >>> found.field("rank").meaning, found.tensor_map is None
    ('1 dimension', True)
    """
    data = _checked_blob(blob)
    fields = raw_fields(data)
    violations: list[Violation] = []
    beyond, left_over = unknown_bits(data)
    unknown = [bit for bit in beyond if bit != SIZE_FLAG_BIT]
    if unknown:
        shown = ", ".join(f"word {bit // 64} bit {bit % 64}" for bit in unknown[:4]) + (", …" if unknown[4:] else "")
        found = f"{len(unknown)} unknown bits set: {shown}"
        fix = "Check that all 128 bytes were copied, in order, from the map of an sm_90 card."
        violations.append(descriptor_bits.violation("blob", found, "they are zero in a map of sm_90", fix))
    if left_over:
        found = f"{len(left_over)} bits set in fields of dimensions beyond rank {fields['rank'].raw + 1}"
        violations.append(descriptor_derived.violation("blob", found, "the driver leaves them zero", _EDITED))
    tensor_map = None
    arguments, unnamed = _arguments(fields)
    violations.extend(unnamed)
    if not unnamed:
        kind = Im2colMap if fields["im2col"].raw else TensorMap
        try:
            tensor_map = kind(**arguments)
            violations.extend(tensor_map.findings)
            if tensor_map.encode() != data:
                violations.extend(_derived(tensor_map, fields))
        except RuleError as error:
            violations.extend(error.violations)
    if SIZE_FLAG_BIT in beyond:
        violations.append(_size_flag(tensor_map))
    refused = any(each.severity == "error" for each in violations)
    nameless = tuple(sorted((*beyond, *left_over)))
    return Inspection(tuple(fields.values()), nameless, tuple(violations), None if refused else tensor_map)


def decode_tensor_map(blob: bytes) -> TensorMap | Im2colMap:
    """The map that an sm_90 driver encoded into these 128 bytes; TensorMapError where they are no map.

    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> decode_tensor_map(a.encode()) == a
    True
    """
    found = inspect_tensor_map(blob)
    if found.tensor_map is None:
        raise TensorMapError([each for each in found.violations if each.severity == "error"])
    return found.tensor_map


def _checked_blob(blob: Any) -> bytes:
    try:
        data = bytes(memoryview(blob).cast("B")) if not isinstance(blob, bytes) else blob
    except (TypeError, ValueError):
        data = None
    if data is None or len(data) != DESCRIPTOR_BYTES:
        found = f"a {type(blob).__name__}" if data is None else f"{len(data)} bytes"
        raise TensorMapError([descriptor_length.violation("blob", found, "128 bytes", "Give the whole CUtensorMap.")])
    return data


def _size_flag(tensor_map: TensorMap | Im2colMap | None) -> Violation:
    """What bit 21 of word 1 means for this tensor."""
    limit = "on Blackwell it is wrong for a tensor that is not dense and whose memory is less than 128 KiB: sporadic illegal accesses"
    if tensor_map is not None and (tensor_map.is_dense or tensor_map.reach_bytes >= SMALL_TENSOR_BYTES):
        size = "dense" if tensor_map.is_dense else f"{tensor_map.reach_bytes} bytes long"
        fix = f"Leave it: this tensor is {size}."
    else:
        fix = f"Clear it after the encode call, as CUTLASS and Triton do: {CLEAR_SIZE_FLAG}."
    values = {} if tensor_map is None else {"reach_bytes": tensor_map.reach_bytes, "limit_bytes": SMALL_TENSOR_BYTES}
    return size_flag_check.rule.violation("blob", "word 1 bit 21 is set", limit, fix, values=values)


def _row_name(table: dict[str, Any], code: int) -> str | None:
    return next((name for name, row in table.items() if row.driver_code == code), None)


def _type_name(code: int, tf32: int) -> str | None:
    wanted = code + 4 if tf32 else code
    return next(
        (name for name, row in DATA_TYPE.items() if row.ptx_code == wanted and (wanted >= 11) == bool(tf32)), None
    )


def _arguments(fields: dict[str, DescriptorField]) -> tuple[dict[str, Any], list[Violation]]:
    raw = {name: each.raw for name, each in fields.items()}
    rank = raw["rank"] + 1
    dims = range(min(rank, 5))
    names = {
        "data_type": _type_name(raw["data_type"], raw["tf32"]),
        "interleave": _row_name(INTERLEAVE, raw["interleave"]),
        "swizzle": _row_name(SWIZZLE, raw["swizzle"]),
        "l2_promotion": _row_name(L2_PROMOTION, raw["l2_promotion"]),
        "oob_fill": _row_name(OOB_FILL, raw["oob_fill"]),
    }
    unnamed = [
        descriptor_codes.violation(name, f"{name} code {raw[name]}", "a code of its table", "These bytes are no map.")
        for name, found in names.items()
        if found is None
    ]
    if rank > 5:
        unnamed.append(descriptor_codes.violation("rank", f"{rank} dimensions", "1 to 5", "These bytes are no map."))
    arguments: dict[str, Any] = names | {
        "dims": tuple(raw[f"dims[{i}]"] + 1 for i in dims),
        "strides_bytes": tuple(
            (raw[f"strides_bytes[{i}] high"] << 32 | raw[f"strides_bytes[{i}]"]) * 16 for i in list(dims)[:-1]
        ),
        "element_strides": tuple(raw[f"element_strides[{i}]"] + 1 for i in dims),
        "address": raw["address"],
    }
    if raw["im2col"]:
        corners = [name for name in raw if name.startswith("lower_corner")]
        for corner in ("lower_corner", "upper_corner"):
            arguments[corner] = tuple(int(fields[f"{corner}[{i}]"].meaning) for i in range(len(corners)))
        arguments |= {
            "channels_per_pixel": raw["channels_per_pixel"] + 1,
            "pixels_per_column": raw["pixels_per_column"] + 1,
        }
    else:
        arguments["box"] = tuple(raw[f"box[{i}]"] + 1 for i in dims)
    return arguments, unnamed


def _derived(tensor_map: TensorMap | Im2colMap, fields: dict[str, DescriptorField]) -> Iterable[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    expected = raw_fields(tensor_map.encode())
    for name, each in fields.items():
        if each.raw != expected[name].raw:
            yield descriptor_derived.violation(
                name,
                f"{name} holds {each.raw} ({each.meaning})",
                f"the driver stores {expected[name].raw} for this map",
                _EDITED,
            )
