"""The packed 4- and 6-bit types: sixteen values in 8 or 12 global bytes, and limits of their own.

16u4_align8b     dense everywhere
16u4_align16b    spread out in shared memory to a byte a value; loads only
16u6_align16b    the same; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from typing import Any

from tilescope.arch import architectures_with
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import checked, rounded_up
from tilescope.tensor_map.rules.samples import CUDA_H, PADDED, PTX_COPY, SIX_BITS

PADDED_ROW_ELEMENTS = 128
_INTERLEAVED = {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"}
DOCUMENTED: dict[str, Any] = {
    "documented": f"{CUDA_H}; {PTX_COPY}",
    "architectures": architectures_with("packed_types"),
}


def takes_half_rows(a: AnyMap) -> bool:
    """Whether a store may use rows of 64 values and 16-byte alignment: 16u6_align16b on sm_103."""
    return a.data_type.name == "16u6_align16b" and a.arch.has("half_row_16u6_store")


def row_multiple(a: AnyMap) -> int:
    """What dims[0] of a packed type is a multiple of; of a padded one, coords[0] too."""
    if not a.is_padded:
        return 2
    return PADDED_ROW_ELEMENTS // 2 if takes_half_rows(a) else PADDED_ROW_ELEMENTS


def _padded_dims(a: AnyMap) -> dict[str, Any]:
    multiple = row_multiple(a)
    padded = rounded_up(a.dims[0], multiple)
    return {"elements": a.dims[0], "multiple": multiple, "padded": padded, "change": {"dims": (padded, *a.dims[1:])}}


checked(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    lambda a: a.data_type.is_packed and a.dims[0] % row_multiple(a),
    "dims[0]",
    "dims[0] = {elements} values",
    "a multiple of {multiple} with {a.data_type.name}",
    "Pad the rows to {padded} values.",
    values=_padded_dims,
    examples=(PADDED, {}, {"dims": (4000, 64)}),
    **DOCUMENTED,
)
checked(
    "packed-row",
    "The padded packed types take rows of exactly 128 values (stores of 16u6_align16b on sm_103 also 64).",
    lambda a: a.is_padded and a.inner_elements not in (row_multiple(a), PADDED_ROW_ELEMENTS),
    "{a.inner_argument}",
    "{a.inner_argument} = {elements} values",
    "exactly {allowed} values with {a.data_type.name}",
    f"Use {{a.inner_argument}} = {PADDED_ROW_ELEMENTS}.",
    values=lambda a: {
        "elements": a.inner_elements,
        "allowed": "64 or 128" if takes_half_rows(a) else "128",
        "change": a.inner_change(PADDED_ROW_ELEMENTS),
    },
    examples=(PADDED, {}, {"box": (64, 8)}),
    **DOCUMENTED,
)
checked(
    "packed-interleave",
    "16u6_align16b takes no interleave.",
    lambda a: a.data_type.name == "16u6_align16b" and a.interleave.name != "none",
    "interleave",
    "interleave = {a.interleave.name} with 16u6_align16b",
    "16u6_align16b takes no interleave",
    change={"interleave": "none"},
    examples=(SIX_BITS, {}, _INTERLEAVED),
    **DOCUMENTED | {"documented": CUDA_H},
)
checked(
    "packed-interleave-unknown",
    "Whether 16u4_align16b takes an interleave is nowhere written.",
    lambda a: a.data_type.name == "16u4_align16b" and a.interleave.name != "none",
    "interleave",
    "interleave = {a.interleave.name} with 16u4_align16b",
    "no document allows or forbids it",
    'Use interleave="none", or try it on the card.',
    change={"interleave": "none"},
    severity="warning",
    examples=(PADDED, {}, _INTERLEAVED),
    **DOCUMENTED | {"documented": f"{CUDA_H} (silent)"},
)


def _swizzles(a: AnyMap) -> tuple[str, ...]:
    """The swizzles that a padded type takes."""
    stored = ("128B_ATOM_64B",) if a.data_type.name == "16u6_align16b" else ()
    return "none", "128B", "128B_ATOM_32B", *stored, *(("64B",) if takes_half_rows(a) else ())


checked(
    "packed-swizzle",
    "The padded packed types take swizzle none, 128B, 128B_ATOM_32B; stores of 16u6_align16b also 128B_ATOM_64B, "
    "and on sm_103 64B.",
    lambda a: a.is_padded and a.swizzle.name not in _swizzles(a),
    "swizzle",
    "swizzle = {a.swizzle.name} with {a.data_type.name}",
    "{a.data_type.name} takes {swizzles}",
    values=lambda a: {"swizzles": ", ".join(_swizzles(a))},
    change={"swizzle": "128B"},
    examples=(PADDED, {}, {"swizzle": "128B_ATOM_64B"}),
    **DOCUMENTED | {"documented": f"{CUDA_H} (narrower than PTX); {PTX_COPY}"},
)


def store_only_reasons(a: AnyMap) -> list[str]:
    """Why a map of 16u6_align16b serves stores alone; empty when it can be loaded through."""
    if a.data_type.name != "16u6_align16b":
        return []
    reasons = {"swizzle 128B_ATOM_64B": a.swizzle.name == "128B_ATOM_64B"}
    if takes_half_rows(a):
        reasons |= {
            "swizzle 64B": a.swizzle.name == "64B",
            f"rows of {a.inner_elements} values": a.inner_elements != PADDED_ROW_ELEMENTS,
            f"dims[0] = {a.dims[0]} values": a.dims[0] % PADDED_ROW_ELEMENTS != 0,
            f"address {a.address:#x}": a.address % 32 != 0,
            "strides that are no multiples of 32 bytes": any(stride % 32 for stride in a.strides_bytes),
        }
    return [reason for reason, holds in reasons.items() if holds]


checked(
    "packed-store-only",
    "A 16u6_align16b map that is loaded through keeps the limits of loads: rows of 128 values, 32-byte alignment, "
    "swizzle none, 128B or 128B_ATOM_32B.",
    store_only_reasons,
    "data_type",
    "{reasons}",
    "such a map serves stores alone",
    "Use it for stores, and another map for loads.",
    values=lambda a: {
        "reasons": " and ".join(store_only_reasons(a)),
        "row_elements": a.inner_elements,
        "elements": a.dims[0],
        "address": a.address,
    },
    severity="warning",
    examples=(SIX_BITS, {}, {"swizzle": "128B_ATOM_64B"}),
    **DOCUMENTED,
)
