"""The packed 4- and 6-bit types: rows, alignment, swizzles, and maps that are valid only for stores.

16u4_align8b     dense everywhere
16u4_align16b    4 bits spread out in shared memory to a byte a value; loads only
16u6_align16b    6 bits likewise; on sm_103 a store also takes half rows: 64 values, 16-byte alignment, swizzle 64B
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import MAPS, Check
from tilescope.tensor_map.limits import PADDED_ROW_ELEMENTS, WIDE_ALIGNMENT_BYTES
from tilescope.tensor_map.record import (
    FOUR_BIT_TYPE,
    SIX_BIT_TYPE,
    MapFacts,
    MapOptions,
    MapRecord,
    packed_multiple,
    takes_half_rows,
)
from tilescope.tensor_map.rules.arch_limits import PACKED_ARCHITECTURES
from tilescope.tensor_map.samples import CUDA_H, PADDED, PTX_COPY, SIX_BITS

_DOCUMENTS = f"{CUDA_H}; {PTX_COPY}"
_INTERLEAVED = {"dims": (128, 8, 8), "strides_bytes": (2048, 16384), "box": (128, 1, 8), "interleave": "16B"}

PACKED_DIM = rule(
    "packed-dim",
    "dims[0] is a multiple of 128 for the padded packed types (64 for stores on sm_103), of 2 for 16u4_align8b.",
    argument="dims[0]",
    found="dims[0] = {elements} values",
    limit="a multiple of {multiple} with {data_type}",
    fix="Pad the rows to {padded} values.",
    source=_DOCUMENTS,
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
    "Rows of the padded packed types have exactly 128 values (for stores of 16u6_align16b on sm_103 also 64).",
    argument="{inner}",
    found="{inner} = {elements} values",
    limit="exactly {allowed: or } values with {data_type}",
    fix="Use {inner} = {whole}.",
    source=_DOCUMENTS,
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
    "16u6_align16b does not support interleave.",
    argument="interleave",
    found="interleave = {interleave} with 16u6_align16b",
    limit="16u6_align16b takes no interleave",
    fix='Use {interleave:="none"}.',
    source=CUDA_H,
    subjects=MAPS,
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS,
    failing=SIX_BITS | _INTERLEAVED,
)
PACKED_INTERLEAVE_UNKNOWN = rule(
    "packed-interleave-unknown",
    "It is not documented whether 16u4_align16b supports interleave.",
    argument="interleave",
    found="interleave = {interleave} with 16u4_align16b",
    limit="the documentation neither allows nor forbids it",
    fix='Use {interleave:="none"}, or try it on the card.',
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
    "The padded packed types support swizzle none, 128B and 128B_ATOM_32B; stores of 16u6_align16b also "
    "128B_ATOM_64B, and on sm_103 64B.",
    argument="swizzle",
    found="swizzle = {swizzle} with {data_type}",
    limit="{data_type} takes {swizzles:, }",
    fix='Use {swizzle:="128B"}.',
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


def store_only_reasons(a: MapFacts) -> tuple[str, ...]:
    """Why a map of 16u6_align16b is valid only for stores; empty if it can be used for loads."""
    if a.data_type.name != SIX_BIT_TYPE:
        return ()
    reasons = []
    if a.swizzle.name == "128B_ATOM_64B":
        reasons.append("swizzle 128B_ATOM_64B")
    if takes_half_rows(a.data_type, a.arch):
        reasons += _beyond_loads(a)
    return tuple(reasons)


def _beyond_loads(a: MapFacts) -> Iterator[str]:
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
    "A 16u6_align16b map that is used for loads keeps their limits: rows of 128 values, 32-byte alignment, swizzle "
    "none, 128B or 128B_ATOM_32B.",
    argument="data_type",
    found="16u6_align16b with {reasons: and }",
    limit="only stores take that",
    fix="Store through this map, and encode another one for loads.",
    source=_DOCUMENTS,
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
