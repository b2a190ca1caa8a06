"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide."""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Geometry, WideGeometry
from tilescope.tensor_map.rules.samples import CUDA_H, H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SLICES, WIDE


@checked(
    "arch-tma", "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    source="cuda.h; ptxas", basis="documented", reads=("arch",), passing=MATRIX | {"arch": "sm_90"},
    failing=MATRIX | {"arch": "sm_80"},
)  # fmt: skip
def _arch_tma(a: Geometry) -> Found:
    feature = "im2col_wide" if a.subject == "wide" else "tma"
    if a.arch.has(feature):
        return ()
    known = architectures_with(feature)
    return Breach(
        "arch", f"arch = {a.arch.name}",
        f"{'an im2col-wide' if a.subject == 'wide' else 'a tensor'} map exists on {', '.join(known)}",
        f'Use arch="{known[0]}".', {"arch": known[0]},
    )  # fmt: skip


@checked(
    "arch-data-type", "The packed 4- and 6-bit types exist from sm_100 on.", source=f"{CUDA_H}; {H200}",
    reads=("data_type", "arch"), architectures=architectures_with("packed_types"), passing=PADDED,
    failing=PADDED | {"arch": "sm_90"},
)  # fmt: skip
def _arch_data_type(a: Geometry) -> Found:
    if not a.data_type.is_packed or a.arch.has("packed_types"):
        return ()
    return Breach(
        "data_type", f"data_type = {a.data_type.name} on {a.arch.name}",
        f"packed types exist on {', '.join(architectures_with('packed_types'))}",
        'Move the bytes as "uint8", or plan for sm_100.', {"arch": "sm_100"},
    )  # fmt: skip


@checked(
    "arch-swizzle", "128B atom modes exist from sm_100 on, 96B on sm_103 alone.", source=f"{PTX_REPLACE}; {H200}",
    reads=("swizzle", "arch"), passing=MATRIX | {"swizzle": "128B_ATOM_32B", "arch": "sm_100"},
    failing=MATRIX | {"swizzle": "128B_ATOM_32B"},
)  # fmt: skip
def _arch_swizzle(a: Geometry) -> Found:
    feature = a.swizzle.feature
    if feature is None or a.arch.has(feature) or not a.arch.has("tma"):
        return ()
    here = [row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)]
    nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
    return Breach(
        "swizzle", f"swizzle = {a.swizzle.name} on {a.arch.name}", f"{a.arch.name} has {', '.join(here)}",
        f"Use {nearest}, or arch {' or '.join(a.swizzle.architectures)}.", {"swizzle": nearest},
    )  # fmt: skip


@checked(
    "wide-mode", "Mode W128 needs an architecture with im2col::w::128.", source=f"ptxas; {PTX_COPY}, im2col::w::128",
    basis="documented", subjects=("wide",), reads=("mode", "arch"), architectures=architectures_with("im2col_wide_128"),
    passing=WIDE | {"mode": "W128"}, failing=WIDE | {"mode": "W128", "arch": "sm_120"},
)  # fmt: skip
def _wide_mode(a: WideGeometry) -> Found:
    if a.mode != "W128" or a.arch.has("im2col_wide_128") or not a.arch.has("im2col_wide"):
        return ()
    return Breach(
        "mode", f"mode = W128 on {a.arch.name}", f"W128 exists on {', '.join(architectures_with('im2col_wide_128'))}",
        'Use mode="W".', {"mode": "W"},
    )  # fmt: skip


@checked(
    "swizzle-96B-interleave", "Swizzle 96B takes no interleave.", source=PTX_COPY, basis="documented",
    reads=("swizzle", "interleave"), architectures=architectures_with("swizzle_96B"),
    passing=SLICES | {"swizzle": "64B", "arch": "sm_103"}, failing=SLICES | {"swizzle": "96B", "arch": "sm_103"},
)  # fmt: skip
def _swizzle_96_interleave(a: Geometry) -> Found:
    if a.swizzle.name != "96B" or not a.interleave.slice_bytes:
        return ()
    return Breach(
        "swizzle", f"swizzle 96B with interleave {a.interleave.name}", "96B goes with interleave none",
        'Use interleave="none".', {"interleave": "none"},
    )  # fmt: skip


@checked(
    "swizzle-96B", "No driver call makes a 96B map; tensormap.replace does.", severity="warning",
    source=f"{PTX_REPLACE}; cuda.h has no such enumerator", basis="documented", reads=("swizzle", "arch"),
    architectures=architectures_with("swizzle_96B"),
    passing=MATRIX | {"box": (32, 64), "swizzle": "64B", "arch": "sm_103"},
    failing=MATRIX | {"box": (48, 64), "swizzle": "96B", "arch": "sm_103"},
)  # fmt: skip
def _swizzle_96(a: Geometry) -> Found:
    if a.swizzle.name != "96B" or not a.arch.has("swizzle_96B"):
        return ()
    return Breach(
        "swizzle", "swizzle = 96B", "the driver has no enumerator for it",
        "Encode with swizzle 64B, then set swizzle_mode 4 with tensormap.replace on sm_103a.",
    )  # fmt: skip


def cluster_restrictions(a: Geometry) -> list[tuple[str, str]]:
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
    ".shared::cluster.", severity="note", source=PTX_COPY, basis="documented", reads=("data_type", "swizzle", "arch"),
    passing=PADDED, failing=PADDED | {"arch": "sm_120"},
)  # fmt: skip
def _cluster_load(a: Geometry) -> Found:
    reasons = cluster_restrictions(a)
    if not reasons:
        return ()
    which = " and ".join(reason for _, reason in reasons)
    return Breach(
        "arch", f"{which} on {a.arch.name}", "loads of such a map go to .shared::cta alone",
        "Leave .shared::cluster out of the load.",
    )  # fmt: skip
