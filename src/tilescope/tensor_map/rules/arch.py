"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Says, checked, option_rule
from tilescope.tensor_map.rules.samples import H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SLICES, WIDE


def _feature(a: AnyMap) -> str:
    """What an architecture must have for this kind of map."""
    return "im2col_wide" if a.subject == "wide" else "tma"


@checked(
    "arch-tma",
    "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    lambda a: not a.arch.has(_feature(a)),
    source="cuda.h; ptxas",
    basis="documented",
    passing=MATRIX | {"arch": "sm_90"},
    failing=MATRIX | {"arch": "sm_80"},
)
def _arch_tma(a: AnyMap, violation: Says) -> Iterator[Violation]:
    known = architectures_with(_feature(a))
    kind = "an im2col-wide" if a.subject == "wide" else "a tensor"
    limit, change = f"{kind} map exists on {', '.join(known)}", {"arch": known[0]}
    yield violation("arch", f"arch = {a.arch.name}", limit, f'Use arch="{known[0]}".', change)


option_rule(
    "arch-data-type",
    "The packed 4- and 6-bit types exist from sm_100 on.",
    lambda a: a.data_type.is_packed and not a.arch.has("packed_types"),
    argument="data_type",
    found="data_type = {a.data_type.name} on {a.arch.name}",
    limit=f"packed types exist on {', '.join(architectures_with('packed_types'))}",
    fix='Move the bytes as "uint8", or plan for sm_100.',
    change={"arch": "sm_100"},
    architectures=architectures_with("packed_types"),
    passing=PADDED,
    failing=PADDED | {"arch": "sm_90"},
)


@checked(
    "arch-swizzle",
    "128B atom modes exist from sm_100 on, 96B on sm_103 alone.",
    lambda a: a.arch.has("tma") and not a.arch.has(a.swizzle.feature),
    source=f"{PTX_REPLACE}; {H200}",
    passing=MATRIX | {"swizzle": "128B_ATOM_32B", "arch": "sm_100"},
    failing=MATRIX | {"swizzle": "128B_ATOM_32B"},
)
def _arch_swizzle(a: AnyMap, violation: Says) -> Iterator[Violation]:
    here = [row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)]
    nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
    found, limit = f"swizzle = {a.swizzle.name} on {a.arch.name}", f"{a.arch.name} has {', '.join(here)}"
    fix = f"Use {nearest}, or arch {' or '.join(a.swizzle.architectures)}."
    yield violation("swizzle", found, limit, fix, {"swizzle": nearest})


option_rule(
    "wide-mode",
    "Mode W128 needs an architecture with im2col::w::128.",
    lambda a: a.arch.has("im2col_wide") and not a.arch.has("im2col_wide_128") and a.mode == "W128",
    found="mode = W128 on {a.arch.name}",
    limit=f"W128 exists on {', '.join(architectures_with('im2col_wide_128'))}",
    change={"mode": "W"},
    source=f"ptxas; {PTX_COPY}, im2col::w::128",
    basis="documented",
    subjects=("wide",),
    architectures=architectures_with("im2col_wide_128"),
    passing=WIDE | {"mode": "W128"},
    failing=WIDE | {"mode": "W128", "arch": "sm_120"},
)
option_rule(
    "swizzle-96B-interleave",
    "Swizzle 96B takes no interleave.",
    lambda a: a.swizzle.name == "96B" and a.interleave.name != "none",
    argument="swizzle",
    found="swizzle 96B with interleave {a.interleave.name}",
    limit="96B goes with interleave none",
    change={"interleave": "none"},
    source=PTX_COPY,
    basis="documented",
    architectures=architectures_with("swizzle_96B"),
    passing=SLICES | {"swizzle": "64B", "arch": "sm_103"},
    failing=SLICES | {"swizzle": "96B", "arch": "sm_103"},
)


@checked(
    "swizzle-96B",
    "No driver call makes a 96B map; tensormap.replace does.",
    lambda a: a.swizzle.name == "96B" and a.arch.has("swizzle_96B"),
    severity="warning",
    source=f"{PTX_REPLACE}; cuda.h has no such enumerator",
    basis="documented",
    architectures=architectures_with("swizzle_96B"),
    passing=MATRIX | {"box": (32, 64), "swizzle": "64B", "arch": "sm_103"},
    failing=MATRIX | {"box": (48, 64), "swizzle": "96B", "arch": "sm_103"},
)
def _swizzle_96(_: AnyMap, violation: Says) -> Iterator[Violation]:
    fix = "Encode with swizzle 64B, then set swizzle_mode 4 with tensormap.replace on sm_103a."
    yield violation("swizzle", "swizzle = 96B", "the driver has no enumerator for it", fix)


def cluster_restrictions(a: AnyMap) -> list[tuple[str, str]]:
    """Why loads through the map do not reach .shared::cluster on its architecture: pairs of argument and reason.

    Restrictions of PTX ISA, "cp.async.bulk.tensor", on sm_120; that im2col::w does not assemble there says ptxas.
    """
    reasons = []
    if a.arch.name == "sm_120" and a.data_type.is_packed:
        reasons.append(("data_type", a.data_type.name))
    if a.arch.name == "sm_120" and a.swizzle.feature == "swizzle_atomicity":
        reasons.append(("swizzle", f"swizzle {a.swizzle.name}"))
    if a.subject == "wide" and a.arch.has("im2col_wide") and not a.arch.has("im2col_wide_cluster"):
        reasons.append(("tensor_map", "an im2col-wide map"))
    return reasons


@checked(
    "cluster-load",
    "On sm_120, maps of packed types and atom modes, and im2col-wide maps, are loaded to .shared::cta, not to "
    ".shared::cluster.",
    cluster_restrictions,
    severity="note",
    source=PTX_COPY,
    basis="documented",
    passing=PADDED,
    failing=PADDED | {"arch": "sm_120"},
)
def _cluster_load(a: AnyMap, violation: Says) -> Iterator[Violation]:
    found = f"{' and '.join(reason for _, reason in cluster_restrictions(a))} on {a.arch.name}"
    limit, fix = "loads of such a map go to .shared::cta alone", "Leave .shared::cluster out of the load."
    yield violation("arch", found, limit, fix)
