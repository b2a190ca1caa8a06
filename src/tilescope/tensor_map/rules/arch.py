"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide; the limits of the packed types.

16u4_align8b     dense everywhere
16u4_align16b    4 bits spread out in shared memory to a byte a value; loads only
16u6_align16b    6 bits likewise; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Facts, checked
from tilescope.tensor_map.samples import CUDA_H, H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SIX_BITS, SLICES, WIDE

_PACKED_TYPES, _SWIZZLE_96B = architectures_with("packed_types"), architectures_with("swizzle_96B")


def _without_tma(a: AnyMap) -> Facts | bool:
    kind, feature = ("an im2col-wide map", "im2col_wide") if a.subject == "wide" else ("a tensor map", "tma")
    makers = architectures_with(feature)
    facts = {"kind": kind, "makers": ", ".join(makers), "first": makers[0], "change": {"arch": makers[0]}}
    return a.arch.name not in makers and facts


checked(
    "arch-tma",
    "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    _without_tma,
    "arch = {a.arch.name}",
    "{kind} exists on {makers}",
    'Use arch="{first}".',
    documented="cuda.h; ptxas",
    examples=(MATRIX, {"arch": "sm_90"}, {"arch": "sm_80"}),
)
checked(
    "arch-data-type",
    "The packed 4- and 6-bit types exist from sm_100 on.",
    lambda a: a.data_type.is_packed and not a.arch.has("packed_types"),
    "data_type = {a.data_type.name} on {a.arch.name}",
    f"packed types exist on {', '.join(_PACKED_TYPES)}",
    'Move the bytes as "uint8", or plan for sm_100.',
    change={"arch": "sm_100"},
    architectures=_PACKED_TYPES,
    examples=(PADDED, {}, {"arch": "sm_90"}),
)


def _other_swizzles(a: AnyMap) -> Facts:
    here = [row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)]
    nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
    where = " or ".join(a.swizzle.architectures)
    return {"here": ", ".join(here), "nearest": nearest, "where": where, "change": {"swizzle": nearest}}


checked(
    "arch-swizzle",
    "128B atom modes exist from sm_100 on, 96B on sm_103 alone.",
    lambda a: a.arch.has("tma") and not a.arch.has(a.swizzle.feature),
    "swizzle = {a.swizzle.name} on {a.arch.name}",
    "{a.arch.name} has {here}",
    "Use {nearest}, or arch {where}.",
    values=_other_swizzles,
    source=f"{PTX_REPLACE}; {H200}",
    examples=(MATRIX, {"swizzle": "128B_ATOM_32B", "arch": "sm_100"}, {"swizzle": "128B_ATOM_32B"}),
)
checked(
    "wide-mode",
    "Mode W128 needs an architecture with im2col::w::128.",
    lambda a: a.arch.has("im2col_wide") and not a.arch.has("im2col_wide_128") and a.mode == "W128",
    found="mode = W128 on {a.arch.name}",
    limit=f"W128 exists on {', '.join(architectures_with('im2col_wide_128'))}",
    change={"mode": "W"},
    documented=f"ptxas; {PTX_COPY}, im2col::w::128",
    subjects=("wide",),
    architectures=architectures_with("im2col_wide_128"),
    examples=(WIDE, {"mode": "W128"}, {"mode": "W128", "arch": "sm_120"}),
)
checked(
    "swizzle-96B-interleave",
    "Swizzle 96B takes no interleave.",
    lambda a: a.swizzle.name == "96B" and a.interleave.name != "none",
    "swizzle 96B with interleave {a.interleave.name}",
    "96B goes with interleave none",
    argument="swizzle",
    change={"swizzle": "32B"},
    documented=PTX_COPY,
    architectures=_SWIZZLE_96B,
    examples=(SLICES, {"swizzle": "64B", "arch": "sm_103"}, {"swizzle": "96B", "arch": "sm_103"}),
)
checked(
    "swizzle-96B",
    "No driver call makes a 96B map; tensormap.replace does.",
    lambda a: a.swizzle.name == "96B" and a.arch.has("swizzle_96B"),
    "swizzle = 96B",
    "the driver has no enumerator for it",
    "Encode with swizzle 128B, which takes rows as wide, then set swizzle_mode 4 with tensormap.replace on sm_103a.",
    severity="warning",
    documented=f"{PTX_REPLACE}; cuda.h has no such enumerator",
    architectures=_SWIZZLE_96B,
    examples=(MATRIX | {"arch": "sm_103"}, {"box": (32, 64), "swizzle": "64B"}, {"box": (48, 64), "swizzle": "96B"}),
)


def cluster_restrictions(a: AnyMap) -> list[tuple[str, str]]:
    """Why loads through the map do not reach .shared::cluster on its architecture: pairs of argument and reason.

    Restrictions of PTX ISA, "cp.async.bulk.tensor", on sm_120; that im2col::w does not assemble there says ptxas.
    """
    reasons = {
        ("data_type", a.data_type.name): a.arch.name == "sm_120" and a.data_type.is_packed,
        ("swizzle", f"swizzle {a.swizzle.name}"): a.arch.name == "sm_120" and a.swizzle.feature == "swizzle_atomicity",
        ("tensor_map", "an im2col-wide map"): a.subject == "wide"
        and a.arch.has("im2col_wide")
        and not a.arch.has("im2col_wide_cluster"),
    }
    return [reason for reason, holds in reasons.items() if holds]


checked(
    "cluster-load",
    "On sm_120, maps of packed types and atom modes, and im2col-wide maps, are loaded to .shared::cta, not to "
    ".shared::cluster.",
    cluster_restrictions,
    "{reasons} on {a.arch.name}",
    "its loads can only go to .shared::cta",
    "Leave .shared::cluster out of the load.",
    argument="arch",
    values=lambda a: {"reasons": " and ".join(reason for _, reason in cluster_restrictions(a))},
    severity="note",
    documented=PTX_COPY,
    examples=(PADDED, {}, {"arch": "sm_120"}),
)


PADDED_ROW_ELEMENTS = 128
_INTERLEAVED = {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"}
DOCUMENTED: Facts = {"documented": f"{CUDA_H}; {PTX_COPY}", "architectures": _PACKED_TYPES}


def takes_half_rows(a: AnyMap) -> bool:
    """Whether a store may use rows of 64 values and 16-byte alignment: 16u6_align16b on sm_103."""
    return a.data_type.name == "16u6_align16b" and a.arch.has("half_row_16u6_store")


def row_multiple(a: AnyMap) -> int:
    """What dims[0] of a packed type is a multiple of; of a padded one, coords[0] too."""
    padded = PADDED_ROW_ELEMENTS // 2 if takes_half_rows(a) else PADDED_ROW_ELEMENTS
    return padded if a.is_padded else 2


def _whole_rows(a: AnyMap) -> int:
    """dims[0] rounded up to what loads take too."""
    return rounded_up(a.dims[0], PADDED_ROW_ELEMENTS if a.is_padded else row_multiple(a))


checked(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    lambda a: a.data_type.is_packed and a.dims[0] % row_multiple(a),
    "dims[0] = {elements} values",
    "a multiple of {multiple} with {a.data_type.name}",
    "Pad the rows to {padded} values.",
    values=lambda a: {
        "elements": a.dims[0],
        "multiple": row_multiple(a),
        "padded": _whole_rows(a),
        "change": {"dims": (_whole_rows(a), *a.dims[1:])},
    },
    examples=(PADDED, {}, {"dims": (4000, 64)}),
    **DOCUMENTED,
)
checked(
    "packed-row",
    "The padded packed types take rows of exactly 128 values (stores of 16u6_align16b on sm_103 also 64).",
    lambda a: a.is_padded and a.inner_elements not in (row_multiple(a), PADDED_ROW_ELEMENTS),
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
    found="interleave = {a.interleave.name} with 16u6_align16b",
    limit="16u6_align16b takes no interleave",
    change={"interleave": "none"},
    examples=(SIX_BITS, {}, _INTERLEAVED),
    **DOCUMENTED | {"documented": CUDA_H},
)
checked(
    "packed-interleave-unknown",
    "Whether 16u4_align16b takes an interleave is nowhere written.",
    lambda a: a.data_type.name == "16u4_align16b" and a.interleave.name != "none",
    found="interleave = {a.interleave.name} with 16u4_align16b",
    limit="no document allows or forbids it",
    fix='Use interleave="none", or try it on the card.',
    change={"interleave": "none"},
    severity="warning",
    examples=(PADDED, {}, _INTERLEAVED),
    **DOCUMENTED | {"documented": f"{CUDA_H} (silent)"},
)


def _swizzles(a: AnyMap) -> tuple[str, ...]:
    """The swizzles that a padded type takes."""
    more = {"128B_ATOM_64B": a.data_type.name == "16u6_align16b", "64B": takes_half_rows(a)}
    return "none", "128B", "128B_ATOM_32B", *(name for name, holds in more.items() if holds)


checked(
    "packed-swizzle",
    "The padded packed types take swizzle none, 128B, 128B_ATOM_32B; stores of 16u6_align16b also 128B_ATOM_64B, "
    "and on sm_103 64B.",
    lambda a: a.is_padded and a.swizzle.name not in _swizzles(a),
    found="swizzle = {a.swizzle.name} with {a.data_type.name}",
    limit="{a.data_type.name} takes {swizzles}",
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
    "16u6_align16b with {reasons}",
    "only stores take that",
    "Store through this map, and encode another one for loads.",
    argument="data_type",
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
