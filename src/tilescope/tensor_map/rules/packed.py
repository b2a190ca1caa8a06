"""The packed 4- and 6-bit types: sixteen values in 8 or 12 global bytes, and limits of their own.

16u4_align8b     dense everywhere
16u4_align16b    spread out in shared memory to a byte a value; loads only
16u6_align16b    the same; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Geometry, rounded_up
from tilescope.tensor_map.rules.samples import CUDA_H, PADDED, PTX_COPY, SIX_BITS

PADDED_ROW_ELEMENTS = 128
PACKED_ARCHITECTURES = architectures_with("packed_types")
_SWIZZLES = {
    "16u4_align16b": ("none", "128B", "128B_ATOM_32B"),
    "16u6_align16b": ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"),
}


def takes_half_rows(a: Geometry) -> bool:
    """Whether a store may use rows of 64 values and 16-byte alignment: 16u6_align16b on sm_103."""
    return a.data_type.name == "16u6_align16b" and a.arch.has("half_row_16u6_store")


def padded_row_elements(a: Geometry) -> int:
    """The least number of values in a row of a padded type: what dims[0] and coords[0] are a multiple of."""
    return PADDED_ROW_ELEMENTS // 2 if takes_half_rows(a) else PADDED_ROW_ELEMENTS


@checked(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    source=f"{CUDA_H}; {PTX_COPY}", basis="documented", reads=("dims", "data_type", "arch"),
    architectures=PACKED_ARCHITECTURES, passing=PADDED, failing=PADDED | {"dims": (4000, 64)},
)  # fmt: skip
def _packed_dim(a: Geometry) -> Found:
    if not a.data_type.is_packed:
        return ()
    multiple = padded_row_elements(a) if a.is_padded else 2
    if a.dims[0] % multiple == 0:
        return ()
    padded = rounded_up(a.dims[0], multiple)
    return Breach(
        "dims[0]", f"dims[0] = {a.dims[0]} values", f"a multiple of {multiple} with {a.data_type.name}",
        f"Pad the rows to {padded} values.", {"dims": (padded, *a.dims[1:])},
        {"elements": a.dims[0], "multiple_elements": multiple},
    )  # fmt: skip


@checked(
    "packed-row",
    "The padded packed types take rows of exactly 128 values (stores of 16u6_align16b on sm_103 also 64).",
    source=f"{CUDA_H}; {PTX_COPY}", basis="documented",
    reads=("box", "channels_per_pixel", "data_type", "dims", "arch"), architectures=PACKED_ARCHITECTURES,
    passing=PADDED, failing=PADDED | {"box": (64, 8)},
)  # fmt: skip
def _packed_row(a: Geometry) -> Found:
    if not a.is_padded:
        return ()
    allowed = sorted({padded_row_elements(a), PADDED_ROW_ELEMENTS})
    if a.inner_elements in allowed:
        return ()
    return Breach(
        a.inner_argument, f"{a.inner_argument} = {a.inner_elements} values",
        f"exactly {' or '.join(map(str, allowed))} values with {a.data_type.name}",
        f"Use {a.inner_argument} = {PADDED_ROW_ELEMENTS}.", a.inner_change(PADDED_ROW_ELEMENTS),
        {"elements": a.inner_elements, "allowed_elements": tuple(allowed)},
    )  # fmt: skip


@checked(
    "packed-interleave", "16u6_align16b takes no interleave.", source=CUDA_H, basis="documented",
    reads=("interleave", "data_type"), architectures=PACKED_ARCHITECTURES, passing=SIX_BITS,
    failing=SIX_BITS | {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"},
)  # fmt: skip
def _packed_interleave(a: Geometry) -> Found:
    if a.data_type.name != "16u6_align16b" or not a.interleave.slice_bytes:
        return ()
    return Breach(
        "interleave", f"interleave = {a.interleave.name} with 16u6_align16b", "16u6_align16b takes no interleave",
        'Use interleave="none".', {"interleave": "none"},
    )  # fmt: skip


@checked(
    "packed-interleave-unknown", "Whether 16u4_align16b takes an interleave is nowhere written.", severity="warning",
    source=f"{CUDA_H} (silent)", basis="documented", reads=("interleave", "data_type"),
    architectures=PACKED_ARCHITECTURES, passing=PADDED,
    failing=PADDED | {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"},
)  # fmt: skip
def _packed_interleave_unknown(a: Geometry) -> Found:
    if a.data_type.name != "16u4_align16b" or not a.interleave.slice_bytes:
        return ()
    return Breach(
        "interleave", f"interleave = {a.interleave.name} with 16u4_align16b", "no document allows or forbids it",
        'Use interleave="none", or try it on the card.', {"interleave": "none"},
    )  # fmt: skip


@checked(
    "packed-swizzle",
    "The padded packed types take swizzle none, 128B, 128B_ATOM_32B; stores of 16u6_align16b also 128B_ATOM_64B, "
    "and on sm_103 64B.", source=f"{CUDA_H} (narrower than PTX); {PTX_COPY}", basis="documented",
    reads=("swizzle", "data_type", "arch"), architectures=PACKED_ARCHITECTURES, passing=PADDED,
    failing=PADDED | {"swizzle": "128B_ATOM_64B"},
)  # fmt: skip
def _packed_swizzle(a: Geometry) -> Found:
    if not a.is_padded:
        return ()
    allowed = _SWIZZLES[a.data_type.name] + (("64B",) if takes_half_rows(a) else ())
    if a.swizzle.name in allowed:
        return ()
    return Breach(
        "swizzle", f"swizzle = {a.swizzle.name} with {a.data_type.name}",
        f"{a.data_type.name} takes {', '.join(allowed)}", 'Use swizzle="128B".', {"swizzle": "128B"},
    )  # fmt: skip


def store_only_reasons(a: Geometry) -> list[str]:
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
    "swizzle none, 128B or 128B_ATOM_32B.", severity="warning", source=f"{CUDA_H}; {PTX_COPY}", basis="documented",
    reads=("data_type", "dims", "strides_bytes", "box", "channels_per_pixel", "swizzle", "address", "arch"),
    architectures=PACKED_ARCHITECTURES, passing=SIX_BITS, failing=SIX_BITS | {"swizzle": "128B_ATOM_64B"},
)  # fmt: skip
def _packed_store_only(a: Geometry) -> Found:
    reasons = store_only_reasons(a)
    if not reasons:
        return ()
    return Breach(
        "data_type", " and ".join(reasons), "such a map serves stores alone",
        "Use it for stores, and another map for loads.",
        values={"row_elements": a.inner_elements, "elements": a.dims[0], "address": a.address},
    )  # fmt: skip
