"""What an architecture can make at all: TMA, packed types, swizzle modes, im2col-wide; the limits of the packed types.

16u4_align8b     dense everywhere
16u4_align16b    4 bits spread out in shared memory to a byte a value; loads only
16u6_align16b    6 bits likewise; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tilescope.arch import architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.checking import DRIVER, MAPS, TMA_ARCHITECTURES, Check
from tilescope.tensor_map.limits import PADDED_ROW_ELEMENTS, WIDE_ALIGNMENT_BYTES
from tilescope.tensor_map.record import (
    FOUR_BIT_TYPE,
    SIX_BIT_TYPE,
    MapOptions,
    MapRecord,
    WideRecord,
    packed_multiple,
    takes_half_rows,
)
from tilescope.tensor_map.samples import CUDA_H, H200, MATRIX, PADDED, PTX_COPY, PTX_REPLACE, SIX_BITS, SLICES, WIDE

if TYPE_CHECKING:
    from tilescope.tensor_map.any_map import AnyMap

PACKED_ARCHITECTURES = architectures_with("packed_types")
SWIZZLE_96B_ARCHITECTURES = architectures_with("swizzle_96B")
WIDE_ARCHITECTURES = architectures_with("im2col_wide")
WIDE_128_ARCHITECTURES = architectures_with("im2col_wide_128")
PACKED_DOCUMENTS = f"{CUDA_H}; {PTX_COPY}"
_INTERLEAVED = {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"}

ARCH_TMA = rule(
    "arch-tma",
    "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    argument="arch",
    found="arch = {arch}",
    limit="a tensor map exists on {makers:, }",
    fix='Use arch="{first}".',
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
    "128B atom modes exist from sm_100 on, 96B on sm_103 alone.",
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
    fix='Use mode="W".',
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
    "Swizzle 96B takes no interleave.",
    argument="swizzle",
    found="swizzle 96B with interleave {interleave}",
    limit="96B goes with interleave none",
    fix='Use swizzle="32B".',
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
    "No driver call makes a 96B map; tensormap.replace does.",
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


def cluster_restrictions(a: MapRecord | AnyMap) -> list[Restriction]:
    """Why loads through the map do not reach .shared::cluster on its architecture.

    Restrictions of PTX ISA, "cp.async.bulk.tensor", on sm_120; that im2col::w does not assemble there says ptxas.
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


PACKED_DIM = rule(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    argument="dims[0]",
    found="dims[0] = {elements} values",
    limit="a multiple of {multiple} with {data_type}",
    fix="Pad the rows to {padded} values.",
    source=PACKED_DOCUMENTS,
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | {"dims": (4000, 64)},
)


def _cut_packed_rows(a: MapRecord) -> Iterator[Violation]:
    multiple = packed_multiple(a.data_type, a.arch)
    padded = rounded_up(a.dims[0], PADDED_ROW_ELEMENTS if a.is_padded else multiple)  # so that loads take it too
    yield PACKED_DIM.violation(
        elements=a.dims[0],
        multiple=multiple,
        data_type=a.data_type.name,
        padded=padded,
        change={"dims": (padded, *a.dims[1:])},
    )


PACKED_ROW = rule(
    "packed-row",
    "The padded packed types take rows of exactly 128 values (stores of 16u6_align16b on sm_103 also 64).",
    argument="{inner}",
    found="{inner} = {elements} values",
    limit="exactly {allowed: or } values with {data_type}",
    fix="Use {inner} = {whole}.",
    source=PACKED_DOCUMENTS,
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | {"box": (64, 8)},
)


def _packed_rows(options: MapOptions) -> tuple[int, ...]:
    """The rows that a padded type takes."""
    if options.takes_half_rows:
        return PADDED_ROW_ELEMENTS // 2, PADDED_ROW_ELEMENTS
    return (PADDED_ROW_ELEMENTS,)


def _other_packed_rows(a: MapRecord) -> Iterator[Violation]:
    yield PACKED_ROW.violation(
        inner=a.inner_argument,
        elements=a.inner_elements,
        allowed=_packed_rows(a),
        data_type=a.data_type.name,
        whole=PADDED_ROW_ELEMENTS,
        change=a.inner_change(PADDED_ROW_ELEMENTS),
    )


PACKED_INTERLEAVE = rule(
    "packed-interleave",
    "16u6_align16b takes no interleave.",
    argument="interleave",
    found="interleave = {interleave} with 16u6_align16b",
    limit="16u6_align16b takes no interleave",
    fix='Use interleave="none".',
    source=CUDA_H,
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS,
    failing=SIX_BITS | _INTERLEAVED,
)
PACKED_INTERLEAVE_UNKNOWN = rule(
    "packed-interleave-unknown",
    "Whether 16u4_align16b takes an interleave is nowhere written.",
    argument="interleave",
    found="interleave = {interleave} with 16u4_align16b",
    limit="no document allows or forbids it",
    fix='Use interleave="none", or try it on the card.',
    source=f"{CUDA_H} (silent)",
    severity="warning",
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | _INTERLEAVED,
)


def _interleaved_six_bits(a: MapRecord) -> Iterator[Violation]:
    yield PACKED_INTERLEAVE.violation(interleave=a.interleave.name, change={"interleave": "none"})


def _interleaved_four_bits(a: MapRecord) -> Iterator[Violation]:
    yield PACKED_INTERLEAVE_UNKNOWN.violation(interleave=a.interleave.name, change={"interleave": "none"})


PACKED_SWIZZLE = rule(
    "packed-swizzle",
    "The padded packed types take swizzle none, 128B, 128B_ATOM_32B; stores of 16u6_align16b also 128B_ATOM_64B, "
    "and on sm_103 64B.",
    argument="swizzle",
    found="swizzle = {swizzle} with {data_type}",
    limit="{data_type} takes {swizzles:, }",
    fix='Use swizzle="128B".',
    source=f"{CUDA_H} (narrower than PTX); {PTX_COPY}",
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED,
    failing=PADDED | {"swizzle": "128B_ATOM_64B"},
)


def _packed_swizzles(options: MapOptions) -> tuple[str, ...]:
    """The swizzles that a padded type takes."""
    names = ["none", "128B", "128B_ATOM_32B"]
    if options.data_type.name == SIX_BIT_TYPE:
        names.append("128B_ATOM_64B")
    if options.takes_half_rows:
        names.append("64B")
    return tuple(names)


def _other_packed_swizzles(a: MapRecord) -> Iterator[Violation]:
    yield PACKED_SWIZZLE.violation(
        swizzle=a.swizzle.name,
        data_type=a.data_type.name,
        swizzles=_packed_swizzles(a),
        change={"swizzle": "128B"},
    )


def store_only_reasons(a: MapRecord | AnyMap) -> tuple[str, ...]:
    """Why a map of 16u6_align16b serves stores alone; empty when it can be loaded through."""
    if a.data_type.name != SIX_BIT_TYPE:
        return ()
    reasons = []
    if a.swizzle.name == "128B_ATOM_64B":
        reasons.append("swizzle 128B_ATOM_64B")
    if takes_half_rows(a.data_type, a.arch):
        reasons += _beyond_loads(a)
    return tuple(reasons)


def _beyond_loads(a: MapRecord | AnyMap) -> Iterator[str]:
    """What a store takes on sm_103, and a load does not."""
    if a.swizzle.name == "64B":
        yield "swizzle 64B"
    if a.inner_elements != PADDED_ROW_ELEMENTS:
        yield f"rows of {a.inner_elements} values"
    if a.dims[0] % PADDED_ROW_ELEMENTS:
        yield f"dims[0] = {a.dims[0]} values"
    if a.address % WIDE_ALIGNMENT_BYTES:
        yield f"address {a.address:#x}"
    if any(stride % WIDE_ALIGNMENT_BYTES for stride in a.strides_bytes):
        yield "strides that are no multiples of 32 bytes"


PACKED_STORE_ONLY = rule(
    "packed-store-only",
    "A 16u6_align16b map that is loaded through keeps the limits of loads: rows of 128 values, 32-byte alignment, "
    "swizzle none, 128B or 128B_ATOM_32B.",
    argument="data_type",
    found="16u6_align16b with {reasons: and }",
    limit="only stores take that",
    fix="Store through this map, and encode another one for loads.",
    source=PACKED_DOCUMENTS,
    severity="warning",
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS,
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B"},
)


def _stored_only(a: MapRecord) -> Iterator[Violation]:
    yield PACKED_STORE_ONLY.violation(
        reasons=store_only_reasons(a), row_elements=a.inner_elements, elements=a.dims[0], address=a.address
    )


_STORE_ONLY_READS = ("data_type", "swizzle", "takes_half_rows", "inner_elements", "dims", "address")
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
    Check(
        PACKED_DIM,
        reads=("data_type", "takes_half_rows", "dims"),
        find=_cut_packed_rows,
        broken=lambda a: a.dims[0] % packed_multiple(a.data_type, a.arch) != 0,
        concerns=lambda options: options.data_type.is_packed,
    ),
    Check(
        PACKED_ROW,
        reads=("data_type", "takes_half_rows", "inner_elements"),
        find=_other_packed_rows,
        broken=lambda a: a.inner_elements not in _packed_rows(a),
        concerns=lambda options: options.is_padded,
    ),
    Check(
        PACKED_INTERLEAVE,
        reads=("data_type", "interleave"),
        find=_interleaved_six_bits,
        concerns=lambda options: options.data_type.name == SIX_BIT_TYPE and options.is_interleaved,
    ),
    Check(
        PACKED_INTERLEAVE_UNKNOWN,
        reads=("data_type", "interleave"),
        find=_interleaved_four_bits,
        concerns=lambda options: options.data_type.name == FOUR_BIT_TYPE and options.is_interleaved,
    ),
    Check(
        PACKED_SWIZZLE,
        reads=("data_type", "takes_half_rows", "swizzle"),
        find=_other_packed_swizzles,
        concerns=lambda options: options.is_padded and options.swizzle.name not in _packed_swizzles(options),
    ),
    Check(
        PACKED_STORE_ONLY,
        reads=_STORE_ONLY_READS,
        find=_stored_only,
        broken=lambda a: bool(store_only_reasons(a)),
        concerns=lambda options: options.data_type.name == SIX_BIT_TYPE and not options.takes_half_rows,
    ),
    Check(
        PACKED_STORE_ONLY,
        reads=(*_STORE_ONLY_READS, "strides_bytes"),
        find=_stored_only,
        broken=lambda a: bool(store_only_reasons(a)),
        concerns=lambda options: options.takes_half_rows,
    ),
)
