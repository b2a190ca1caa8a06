"""The packed 4- and 6-bit types: sixteen values in 8 or 12 global bytes, and limits of their own.

16u4_align8b     dense everywhere
16u4_align16b    spread out in shared memory to a byte a value; loads only
16u6_align16b    the same; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Says, checked, option_rule, rounded_up
from tilescope.tensor_map.rules.samples import CUDA_H, PADDED, PTX_COPY, SIX_BITS

PADDED_ROW_ELEMENTS = 128
_INTERLEAVED = {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"}
DOCUMENTED: dict[str, Any] = {"basis": "documented", "architectures": architectures_with("packed_types")}


def takes_half_rows(a: AnyMap) -> bool:
    """Whether a store may use rows of 64 values and 16-byte alignment: 16u6_align16b on sm_103."""
    return a.data_type.name == "16u6_align16b" and a.arch.has("half_row_16u6_store")


def padded_row_elements(a: AnyMap) -> int:
    """The least number of values in a row of a padded type: what dims[0] and coords[0] are a multiple of."""
    return PADDED_ROW_ELEMENTS // 2 if takes_half_rows(a) else PADDED_ROW_ELEMENTS


def _row_multiple(a: AnyMap) -> int:
    """What dims[0] of a packed type is a multiple of."""
    return padded_row_elements(a) if a.is_padded else 2


@checked(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    lambda a: a.data_type.is_packed and a.dims[0] % _row_multiple(a),
    source=f"{CUDA_H}; {PTX_COPY}",
    passing=PADDED,
    failing=PADDED | {"dims": (4000, 64)},
    **DOCUMENTED,
)
def _packed_dim(a: AnyMap, violation: Says) -> Iterator[Violation]:
    multiple = _row_multiple(a)
    padded = rounded_up(a.dims[0], multiple)
    found, limit = f"dims[0] = {a.dims[0]} values", f"a multiple of {multiple} with {a.data_type.name}"
    change, fix = {"dims": (padded, *a.dims[1:])}, f"Pad the rows to {padded} values."
    yield violation("dims[0]", found, limit, fix, change, elements=a.dims[0], multiple_elements=multiple)


@checked(
    "packed-row",
    "The padded packed types take rows of exactly 128 values (stores of 16u6_align16b on sm_103 also 64).",
    lambda a: a.is_padded and a.inner_elements not in (padded_row_elements(a), PADDED_ROW_ELEMENTS),
    source=f"{CUDA_H}; {PTX_COPY}",
    passing=PADDED,
    failing=PADDED | {"box": (64, 8)},
    **DOCUMENTED,
)
def _packed_row(a: AnyMap, violation: Says) -> Iterator[Violation]:
    allowed = sorted({padded_row_elements(a), PADDED_ROW_ELEMENTS})
    argument, elements = a.inner_argument, a.inner_elements
    limit = f"exactly {' or '.join(map(str, allowed))} values with {a.data_type.name}"
    change, fix = a.inner_change(PADDED_ROW_ELEMENTS), f"Use {argument} = {PADDED_ROW_ELEMENTS}."
    numbers = {"elements": elements, "allowed_elements": allowed}
    yield violation(argument, f"{argument} = {elements} values", limit, fix, change, **numbers)


option_rule(
    "packed-interleave",
    "16u6_align16b takes no interleave.",
    lambda a: a.data_type.name == "16u6_align16b" and a.interleave.name != "none",
    found="interleave = {a.interleave.name} with 16u6_align16b",
    limit="16u6_align16b takes no interleave",
    change={"interleave": "none"},
    source=CUDA_H,
    passing=SIX_BITS,
    failing=SIX_BITS | _INTERLEAVED,
    **DOCUMENTED,
)
option_rule(
    "packed-interleave-unknown",
    "Whether 16u4_align16b takes an interleave is nowhere written.",
    lambda a: a.data_type.name == "16u4_align16b" and a.interleave.name != "none",
    found="interleave = {a.interleave.name} with 16u4_align16b",
    limit="no document allows or forbids it",
    fix='Use interleave="none", or try it on the card.',
    change={"interleave": "none"},
    severity="warning",
    source=f"{CUDA_H} (silent)",
    passing=PADDED,
    failing=PADDED | _INTERLEAVED,
    **DOCUMENTED,
)


def _swizzles(a: AnyMap) -> tuple[str, ...]:
    """The swizzles that a padded type takes."""
    stored = ("128B_ATOM_64B",) if a.data_type.name == "16u6_align16b" else ()
    return "none", "128B", "128B_ATOM_32B", *stored, *(("64B",) if takes_half_rows(a) else ())


@checked(
    "packed-swizzle",
    "The padded packed types take swizzle none, 128B, 128B_ATOM_32B; stores of 16u6_align16b also 128B_ATOM_64B, "
    "and on sm_103 64B.",
    lambda a: a.is_padded and a.swizzle.name not in _swizzles(a),
    source=f"{CUDA_H} (narrower than PTX); {PTX_COPY}",
    passing=PADDED,
    failing=PADDED | {"swizzle": "128B_ATOM_64B"},
    **DOCUMENTED,
)
def _packed_swizzle(a: AnyMap, violation: Says) -> Iterator[Violation]:
    found = f"swizzle = {a.swizzle.name} with {a.data_type.name}"
    limit = f"{a.data_type.name} takes {', '.join(_swizzles(a))}"
    yield violation("swizzle", found, limit, 'Use swizzle="128B".', {"swizzle": "128B"})


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


@checked(
    "packed-store-only",
    "A 16u6_align16b map that is loaded through keeps the limits of loads: rows of 128 values, 32-byte alignment, "
    "swizzle none, 128B or 128B_ATOM_32B.",
    store_only_reasons,
    severity="warning",
    source=f"{CUDA_H}; {PTX_COPY}",
    passing=SIX_BITS,
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B"},
    **DOCUMENTED,
)
def _packed_store_only(a: AnyMap, violation: Says) -> Iterator[Violation]:
    numbers = {"row_elements": a.inner_elements, "elements": a.dims[0], "address": a.address}
    found, limit = " and ".join(store_only_reasons(a)), "such a map serves stores alone"
    yield violation("data_type", found, limit, "Use it for stores, and another map for loads.", None, **numbers)
