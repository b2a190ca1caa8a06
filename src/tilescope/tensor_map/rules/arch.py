"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide."""

from __future__ import annotations

from typing import Any

from tilescope.arch import architectures_with
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import checked
from tilescope.tensor_map.rules.samples import H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SLICES, WIDE


def _makers(a: AnyMap) -> tuple[str, ...]:
    """The architectures that can make this kind of map."""
    return architectures_with("im2col_wide" if a.subject == "wide" else "tma")


checked(
    "arch-tma",
    "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    lambda a: a.arch.name not in _makers(a),
    "arch",
    "arch = {a.arch.name}",
    "such a map exists on {makers}",
    'Use arch="{first}".',
    values=lambda a: {
        "makers": ", ".join(_makers(a)),
        "first": _makers(a)[0],
        "change": {"arch": _makers(a)[0]},
    },
    documented="cuda.h; ptxas",
    examples=(MATRIX, {"arch": "sm_90"}, {"arch": "sm_80"}),
)
checked(
    "arch-data-type",
    "The packed 4- and 6-bit types exist from sm_100 on.",
    lambda a: a.data_type.is_packed and not a.arch.has("packed_types"),
    "data_type",
    "data_type = {a.data_type.name} on {a.arch.name}",
    f"packed types exist on {', '.join(architectures_with('packed_types'))}",
    'Move the bytes as "uint8", or plan for sm_100.',
    change={"arch": "sm_100"},
    architectures=architectures_with("packed_types"),
    examples=(PADDED, {}, {"arch": "sm_90"}),
)


def _other_swizzles(a: AnyMap) -> dict[str, Any]:
    here = [row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)]
    nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
    where = " or ".join(a.swizzle.architectures)
    return {"here": ", ".join(here), "nearest": nearest, "where": where, "change": {"swizzle": nearest}}


checked(
    "arch-swizzle",
    "128B atom modes exist from sm_100 on, 96B on sm_103 alone.",
    lambda a: a.arch.has("tma") and not a.arch.has(a.swizzle.feature),
    "swizzle",
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
    "mode",
    "mode = W128 on {a.arch.name}",
    f"W128 exists on {', '.join(architectures_with('im2col_wide_128'))}",
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
    "swizzle",
    "swizzle 96B with interleave {a.interleave.name}",
    "96B goes with interleave none",
    change={"interleave": "none"},
    documented=PTX_COPY,
    architectures=architectures_with("swizzle_96B"),
    examples=(SLICES, {"swizzle": "64B", "arch": "sm_103"}, {"swizzle": "96B", "arch": "sm_103"}),
)
checked(
    "swizzle-96B",
    "No driver call makes a 96B map; tensormap.replace does.",
    lambda a: a.swizzle.name == "96B" and a.arch.has("swizzle_96B"),
    "swizzle",
    "swizzle = 96B",
    "the driver has no enumerator for it",
    "Encode with swizzle 64B, then set swizzle_mode 4 with tensormap.replace on sm_103a.",
    severity="warning",
    documented=f"{PTX_REPLACE}; cuda.h has no such enumerator",
    architectures=architectures_with("swizzle_96B"),
    examples=(
        MATRIX,
        {"box": (32, 64), "swizzle": "64B", "arch": "sm_103"},
        {"box": (48, 64), "swizzle": "96B", "arch": "sm_103"},
    ),
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
    "arch",
    "{reasons} on {a.arch.name}",
    "loads of such a map go to .shared::cta alone",
    "Leave .shared::cluster out of the load.",
    values=lambda a: {"reasons": " and ".join(reason for _, reason in cluster_restrictions(a))},
    severity="note",
    documented=PTX_COPY,
    examples=(PADDED, {}, {"arch": "sm_120"}),
)
