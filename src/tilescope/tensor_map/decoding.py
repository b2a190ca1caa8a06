"""From 128 bytes back to a map: `decode_tensor_map` insists on a sound one, `inspect_tensor_map` never fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilescope.data_type import DATA_TYPE
from tilescope.errors import RuleError, TensorMapError, Violation, broken
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES, SIZE_FLAG_BIT, DescriptorField, raw_fields, unknown_bits
from tilescope.tensor_map.maps import Im2colMap, TensorMap
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.rule import rule, violation
from tilescope.value import Value


@rule(
    "descriptor-bits", "Bits that belong to no field are zero.", source="measured on an H200 under driver 580",
    subjects=("instruction",), reads=(), passing={"word": 10, "value": 0}, failing={"word": 10, "value": 1},
)  # fmt: skip
def _descriptor_bits(_: Any) -> Iterable[Violation]:
    return ()  # found while decoding


@rule(
    "descriptor-derived", "Box bytes, swizzle repeat and unused dimensions agree with the other fields.",
    source="measured on an H200 under driver 580", subjects=("instruction",), reads=(),
    passing={"word": 8, "value": "box bytes"}, failing={"word": 8, "value": 1},
)  # fmt: skip
def _descriptor_derived(_: Any) -> Iterable[Violation]:
    return ()  # found while decoding


@dataclass(frozen=True, slots=True)
class Inspection(Value):
    """What 128 bytes say: every field, what is wrong with them, and the map if they are one."""

    fields: tuple[DescriptorField, ...]
    violations: tuple[Violation, ...]
    tensor_map: TensorMap | Im2colMap | None

    def field(self, name: str) -> DescriptorField:
        """The field called `name`."""
        return next(each for each in self.fields if each.name == name)


def inspect_tensor_map(blob: bytes) -> Inspection:
    """Fields, violations and, where the bytes are a sound map, the map. Any 128 bytes will do.

    >>> found = inspect_tensor_map(bytes(128))
    >>> found.field("rank").meaning, found.tensor_map is None
    ('1 dimensions', True)
    """
    data = _checked_blob(blob)
    fields = raw_fields(data)
    violations: list[Violation] = []
    unknown = [bit for bit in unknown_bits(data) if bit != SIZE_FLAG_BIT]
    if unknown:
        shown = ", ".join(f"word {bit // 64} bit {bit % 64}" for bit in unknown[:4]) + (", …" if unknown[4:] else "")
        violations.append(violation(
            "descriptor-bits", "blob", f"{len(unknown)} unknown bits set: {shown}", "they are zero in a map of sm_90",
            "Check that all 128 bytes were copied, in order, from the map of an sm_90 card.",
        ))  # fmt: skip
    tensor_map = None
    arguments, unnamed = _arguments(fields)
    violations.extend(unnamed)
    if not unnamed:
        kind = Im2colMap if fields["im2col"].raw else TensorMap
        try:
            tensor_map = kind(**arguments)
            violations.extend(tensor_map.findings)
            violations.extend(_derived(tensor_map, data))
        except RuleError as error:
            violations.extend(error.violations)
    refused = any(each.severity == "error" for each in violations)
    return Inspection(tuple(fields.values()), tuple(violations), None if refused else tensor_map)


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
        raise TensorMapError(
            broken("descriptor-length", "blob", found, "128 bytes", "Give the whole CUtensorMap.").violations
        )
    return data


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
        violation("unknown-name", name, f"{name} code {raw[name]}", "a code of its table", "These bytes are no map.")
        for name, found in names.items()
        if found is None
    ]
    if rank > 5:
        unnamed.append(violation("rank", "rank", f"{rank} dimensions", "1 to 5", "These bytes are no map."))
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


def _derived(tensor_map: TensorMap | Im2colMap, data: bytes) -> Iterable[Violation]:
    """Fields that the driver would have written differently for the map that the others describe."""
    expected = raw_fields(tensor_map.encode())
    for name, each in raw_fields(data).items():
        if each.raw != expected[name].raw:
            yield violation(
                "descriptor-derived", name, f"{name} holds {each.raw} ({each.meaning})",
                f"the driver stores {expected[name].raw} for this map", "These bytes were edited, or belong to another chip.",
            )  # fmt: skip


__all__ = ["Inspection", "decode_tensor_map", "inspect_tensor_map"]
