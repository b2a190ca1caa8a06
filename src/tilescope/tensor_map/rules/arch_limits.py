"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide, loads to a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import DRIVER, MAPS, TMA_ARCHITECTURES, Check
from tilescope.tensor_map.record import MapFacts, MapOptions, MapRecord, WideRecord
from tilescope.tensor_map.samples import H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SLICES, WIDE

PACKED_ARCHITECTURES = architectures_with("packed_types")
SWIZZLE_96B_ARCHITECTURES = architectures_with("swizzle_96B")
WIDE_ARCHITECTURES = architectures_with("im2col_wide")
WIDE_128_ARCHITECTURES = architectures_with("im2col_wide_128")

ARCH_TMA = rule(
    "arch-tma",
    "The architecture has TMA and supports this kind of map: sm_90 and later, im2col-wide from sm_100 on.",
    argument="arch",
    found="arch = {arch}",
    limit="a tensor map exists on {makers:, }",
    fix='Use {arch:="{first}"}.',
    source="cuda.h; ptxas",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"arch": "sm_90"},
    failing=MATRIX | {"arch": "sm_80"},
)
_ARCH_WIDE = ARCH_TMA.worded(limit="an im2col-wide map exists on {makers:, }")


def _without_tma(a: MapRecord) -> Iterator[Violation]:
    first = TMA_ARCHITECTURES[0]
    yield ARCH_TMA.violation(arch=a.arch.name, makers=TMA_ARCHITECTURES, first=first, change={"arch": first})


def _without_wide_maps(a: WideRecord) -> Iterator[Violation]:
    first = WIDE_ARCHITECTURES[0]
    yield _ARCH_WIDE.violation(arch=a.arch.name, makers=WIDE_ARCHITECTURES, first=first, change={"arch": first})


ARCH_DATA_TYPE = rule(
    "arch-data-type",
    "The packed 4- and 6-bit types exist from sm_100 on.",
    argument="data_type",
    found="data_type = {data_type} on {arch}",
    limit="packed types exist on {makers:, }",
    fix='Move the bytes as "uint8", or plan for sm_100.',
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | {"arch": "sm_90"},
)


def _has_unknown_type(options: MapOptions) -> bool:
    return options.data_type.is_packed and not options.arch.has("packed_types")


def _unknown_type(a: MapRecord) -> Iterator[Violation]:
    yield ARCH_DATA_TYPE.violation(
        data_type=a.data_type.name, arch=a.arch.name, makers=PACKED_ARCHITECTURES, change={"arch": "sm_100"}
    )


ARCH_SWIZZLE = rule(
    "arch-swizzle",
    "The 128B modes with wider atoms exist from sm_100 on, 96B only on sm_103.",
    argument="swizzle",
    found="swizzle = {swizzle} on {arch}",
    limit="{arch} has {here:, }",
    fix="Use {nearest}, or arch {where: or }.",
    source=f"{PTX_REPLACE}; {H200}",
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"swizzle": "128B_ATOM_32B", "arch": "sm_100"},
    failing=MATRIX | {"swizzle": "128B_ATOM_32B"},
)


def _has_unknown_swizzle(options: MapOptions) -> bool:
    feature = options.swizzle.feature
    return options.arch.has("tma") and feature is not None and not options.arch.has(feature)


def _unknown_swizzle(a: MapRecord) -> Iterator[Violation]:
    nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
    yield ARCH_SWIZZLE.violation(
        swizzle=a.swizzle.name,
        arch=a.arch.name,
        here=tuple(row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)),
        nearest=nearest,
        where=a.swizzle.architectures,
        change={"swizzle": nearest},
    )


WIDE_MODE = rule(
    "wide-mode",
    "Mode W128 needs an architecture with im2col::w::128.",
    argument="mode",
    found="mode = W128 on {arch}",
    limit="W128 exists on {makers:, }",
    fix='Use {mode:="W"}.',
    source=f"ptxas; {PTX_COPY}, im2col::w::128",
    subjects=("wide",),
    architectures=WIDE_128_ARCHITECTURES,
    passing=WIDE | {"mode": "W128"},
    failing=WIDE | {"mode": "W128", "arch": "sm_120"},
)


def _has_wide_maps_of_one_mode(options: MapOptions) -> bool:
    return options.arch.has("im2col_wide") and not options.arch.has("im2col_wide_128")


def _unknown_wide_mode(a: WideRecord) -> Iterator[Violation]:
    yield WIDE_MODE.violation(arch=a.arch.name, makers=WIDE_128_ARCHITECTURES, change={"mode": "W"})


SWIZZLE_96B_INTERLEAVE = rule(
    "swizzle-96B-interleave",
    "Swizzle 96B does not support interleave.",
    argument="swizzle",
    found="swizzle 96B with interleave {interleave}",
    limit="96B goes with interleave none",
    fix='Use {swizzle:="32B"}.',
    source=PTX_COPY,
    subjects=MAPS,
    architectures=SWIZZLE_96B_ARCHITECTURES,
    passing=SLICES | {"swizzle": "64B", "arch": "sm_103"},
    failing=SLICES | {"swizzle": "96B", "arch": "sm_103"},
)


def _interleaved_96b(a: MapRecord) -> Iterator[Violation]:
    yield SWIZZLE_96B_INTERLEAVE.violation(interleave=a.interleave.name, change={"swizzle": "32B"})


SWIZZLE_96B = rule(
    "swizzle-96B",
    "The driver cannot encode a 96B map; tensormap.replace can.",
    argument="swizzle",
    found="swizzle = 96B",
    limit="the driver has no enumerator for it",
    fix="Encode with swizzle 128B, which takes rows as wide, then set swizzle_mode 4 with tensormap.replace on sm_103a.",
    source=f"{PTX_REPLACE}; cuda.h has no such enumerator",
    severity="warning",
    subjects=MAPS,
    architectures=SWIZZLE_96B_ARCHITECTURES,
    passing=MATRIX | {"arch": "sm_103", "box": (32, 64), "swizzle": "64B"},
    failing=MATRIX | {"arch": "sm_103", "box": (48, 64), "swizzle": "96B"},
)


def _unencodable_96b(_: MapRecord) -> Iterator[Violation]:
    yield SWIZZLE_96B.violation()


class Restriction(NamedTuple):
    """Why a load does not reach .shared::cluster."""

    argument: str
    reason: str


def cluster_restrictions(a: MapFacts) -> list[Restriction]:
    """Why loads through the map do not reach .shared::cluster on its architecture.

    Restrictions of PTX ISA, "cp.async.bulk.tensor", on sm_120; ptxas shows that im2col::w does not assemble there.
    """
    restrictions = []
    if a.arch.name == "sm_120" and a.data_type.is_packed:
        restrictions.append(Restriction("data_type", a.data_type.name))
    if a.arch.name == "sm_120" and a.swizzle.feature == "swizzle_atomicity":
        restrictions.append(Restriction("swizzle", f"swizzle {a.swizzle.name}"))
    if a.subject == "wide" and a.arch.has("im2col_wide") and not a.arch.has("im2col_wide_cluster"):
        restrictions.append(Restriction("tensor_map", "an im2col-wide map"))
    return restrictions


CLUSTER_LOAD = rule(
    "cluster-load",
    "On sm_120, maps of packed types and atom modes, and im2col-wide maps, are loaded to .shared::cta, not to "
    ".shared::cluster.",
    argument="arch",
    found="{reasons: and } on {arch}",
    limit="its loads can only go to .shared::cta",
    fix="Leave .shared::cluster out of the load.",
    source=PTX_COPY,
    severity="note",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | {"arch": "sm_120"},
)


def _out_of_cluster(a: MapRecord) -> Iterator[Violation]:
    reasons = tuple(restriction.reason for restriction in cluster_restrictions(a))
    yield CLUSTER_LOAD.violation(reasons=reasons, arch=a.arch.name)


CHECKS = (
    Check(
        ARCH_TMA,
        reads=("arch",),
        find=_without_tma,
        concerns=lambda options: not options.arch.has("tma"),
        only=("tiled", "im2col"),
    ),
    Check(
        ARCH_TMA,
        reads=("arch",),
        find=_without_wide_maps,
        concerns=lambda options: not options.arch.has("im2col_wide"),
        only=("wide",),
    ),
    Check(ARCH_DATA_TYPE, reads=("data_type", "arch"), find=_unknown_type, concerns=_has_unknown_type),
    Check(ARCH_SWIZZLE, reads=("swizzle", "arch"), find=_unknown_swizzle, concerns=_has_unknown_swizzle),
    Check(
        WIDE_MODE,
        reads=("mode", "arch"),
        find=_unknown_wide_mode,
        broken=lambda a: a.mode == "W128",
        concerns=_has_wide_maps_of_one_mode,
    ),
    Check(
        SWIZZLE_96B_INTERLEAVE,
        reads=("swizzle", "interleave"),
        find=_interleaved_96b,
        concerns=lambda options: options.swizzle.name == "96B" and options.is_interleaved,
    ),
    Check(
        SWIZZLE_96B,
        reads=("swizzle", "arch"),
        find=_unencodable_96b,
        concerns=lambda options: options.swizzle.name == "96B" and options.arch.has("swizzle_96B"),
    ),
    Check(
        CLUSTER_LOAD,
        reads=("data_type", "swizzle", "arch"),
        find=_out_of_cluster,
        broken=lambda a: bool(cluster_restrictions(a)),
        concerns=lambda options: options.arch.name == "sm_120",
    ),
)
