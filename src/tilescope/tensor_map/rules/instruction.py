"""What a copy instruction demands although the driver accepted the map; most broken rules kill the context.

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import FAULTS, RuleError, Violation, unknown_name
from tilescope.tensor_map.checking import CHECKS, Breach, Subject, checked
from tilescope.tensor_map.rules.arch import kept_from_clusters
from tilescope.tensor_map.rules.packed import (
    PACKED_ARCHITECTURES,
    PADDED_ROW_ELEMENTS,
    padded_row_elements,
    store_only_reasons,
    takes_half_rows,
)
from tilescope.tensor_map.rules.samples import BYTES, H200, IMAGES, MATRIX, PADDED, PTX_COPY, SIX_BITS, WIDE

Direction = Literal["load", "store", "reduce"]
ReduceOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]
SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20
OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank
HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32
_COPY: tuple[Subject, ...] = ("instruction",)

# The types each reduction takes. All 8 x 13 pairs were tried on an H200: these work, all others are illegal.
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": (
        "uint32",
        "int32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "float32_ftz",
        "tfloat32",
        "tfloat32_ftz",
    ),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "int32", "uint64"),
    "or": ("uint32", "int32", "uint64"),
    "xor": ("uint32", "int32", "uint64"),
}


class Copy(NamedTuple):  # made for every copy: a frozen dataclass takes four times as long to make
    """One use of a map by an instruction, as the rules below look at it."""

    tensor_map: Any  # of whatever kind
    direction: Direction
    coords: tuple[int, ...]  # driver order; gather4 and scatter4: column, then four rows
    smem_address: int = 0
    offsets: tuple[int, ...] = ()  # im2col: W, H, D; im2col-wide: halo, offset
    reduce: str | None = None
    rows4: bool = False  # tile::gather4 or tile::scatter4
    cluster: bool = False  # to .shared::cluster, as a multicast goes; else to the .shared::cta of its own block


def broken_by(copy: Copy) -> tuple[Violation, ...]:
    """Every rule that the instruction breaks; empty when the chip executes it.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 8))
    >>> [broken.rule for broken in broken_by(Copy(a, "store", (-8, 0), smem_address=64))]
    ['smem-address', 'store-coords']
    """
    found: list[Violation] = []
    if copy.direction == "reduce" and copy.reduce not in REDUCTIONS:
        found.append(unknown_name("reduction", "reduce", copy.reduce, REDUCTIONS))
    for row, _, run in _CHECKS:
        if breaches := run(copy):  # asked for every copy: no list for nothing
            found += [row.violation(*breach) for breach in breaches]
    return tuple(found)


def require_legal(copy: Copy) -> None:
    """Raise the FaultError of what the chip answers; 715 where several faults apply, as on an H200.

    A RuleError where no fault is known: the copy does something else than was asked, or no assembler lets it pass.
    """
    violations = broken_by(copy)
    if not violations:
        return
    codes = [_CODES[each.rule] for each in violations if each.rule in _CODES]
    raise (FAULTS[min(codes)] if codes else RuleError)(violations)


@checked(
    "smem-address",
    "The shared address of a tensor copy is a multiple of 128 bytes.",
    source=f"{H200}: 360 random copies; where a rule of error 715 is broken too, the chip answers 715",
    subjects=_COPY,
    code=716,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 128}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 64}},
)
def _smem_address(copy: Copy) -> Sequence[Breach]:
    if copy.smem_address % SMEM_ALIGNMENT_BYTES == 0:
        return ()
    below = copy.smem_address // SMEM_ALIGNMENT_BYTES * SMEM_ALIGNMENT_BYTES
    alignment = copy.tensor_map.smem_alignment_bytes
    return (
        Breach(
            "smem_address",
            f"smem_address = {copy.smem_address:#x}",
            "a multiple of 128 bytes",
            f"Use {below:#x} or {below + SMEM_ALIGNMENT_BYTES:#x}"
            + (
                f"; a multiple of {alignment} starts the swizzle pattern at its first line." if alignment > 128 else "."
            ),
            {"smem_address": below},
        ),
    )


@checked(
    "coords-rank",
    "A copy has one coordinate for each dimension; gather4 and scatter4 have a column and four rows.",
    source=PTX_COPY,
    basis="documented",
    subjects=_COPY,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0, 0)}},
)
def _coords_rank(copy: Copy) -> Sequence[Breach]:
    wanted = 5 if copy.rows4 else copy.tensor_map.rank
    count = len(copy.coords)
    if count == wanted:
        return ()
    if copy.rows4:
        name = "gather4" if copy.direction == "load" else "scatter4"
        argument, found = ("rows", f"{count - 1} rows") if count else ("coords", "no column")
        return (Breach(argument, found, f"{name} takes a column and four rows", "Give a column and four rows."),)
    fix = f"Give {wanted} coordinates, innermost first."
    return (Breach("coords", f"{count} coordinates", f"a map of rank {wanted} takes {wanted}", fix),)


@checked(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).",
    source=f"{H200}; {PTX_COPY} for packed types",
    subjects=_COPY,
    code=715,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (-8, 0)}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (4, 0)}},
)
def _inner_coordinate(copy: Copy) -> Sequence[Breach]:
    a = copy.tensor_map
    if a.interleave.slice_bytes or not copy.coords:
        return ()
    if a.is_padded:
        step = padded_row_elements(a) if copy.direction == "store" else PADDED_ROW_ELEMENTS
        limit = f"a multiple of {step} values with {a.data_type.name}"
    else:
        step = 128 // a.data_type.bits
        limit = f"a multiple of {step} elements (16 bytes)"
    inner = copy.coords[0]
    if inner % step == 0:
        return ()
    below = inner // step * step
    found = f"coords[0] = {inner} elements = {inner * a.data_type.bits / 8:g} bytes"
    change = {"coords": (below, *copy.coords[1:])}
    return (Breach("coords[0]", found, limit, f"Use {below} or {below + step}.", change),)


@checked(
    "store-coords",
    "Stores and reductions have no negative coordinate.",
    source=H200,
    subjects=_COPY,
    code=715,
    passing=MATRIX | {"copy": {"direction": "store", "coords": (0, 0)}},
    failing=MATRIX | {"copy": {"direction": "store", "coords": (0, -1)}},
)
def _store_coords(copy: Copy) -> Sequence[Breach]:
    if copy.direction == "load" or min(copy.coords, default=0) >= 0:
        return ()
    change = {"coords": tuple(max(0, place) for place in copy.coords)}
    return [
        Breach(
            f"coords[{axis}]",
            f"coords[{axis}] = {place}",
            "0 or more for stores and reductions",
            "Only the far edge of a stored box may lie outside the tensor.",
            change,
        )
        for axis, place in enumerate(copy.coords)
        if place < 0
    ]


@checked(
    "reduce-type",
    "The reduction takes the map's data type.",
    source=f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}',
    subjects=_COPY,
    code=715,
    passing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "add"}},
    failing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "xor"}},
)
def _reduce_type(copy: Copy) -> Sequence[Breach]:
    if copy.direction != "reduce" or copy.reduce not in REDUCTIONS:
        return ()
    taken, name = REDUCTIONS[copy.reduce], copy.tensor_map.data_type.name
    if name in taken:
        return ()
    fix = "Encode the map with one of these types."
    return (Breach("reduce", f"{copy.reduce} on {name}", f"{copy.reduce} takes {', '.join(taken)}", fix),)


@checked(
    "packed-store",
    "16u4_align16b cannot be stored.",
    source=PTX_COPY,
    basis="documented",
    subjects=_COPY,
    code=715,
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=PADDED | {"copy": {"direction": "store", "coords": (0, 0)}},
)
def _packed_store(copy: Copy) -> Sequence[Breach]:
    if copy.direction != "store" or copy.tensor_map.data_type.name != "16u4_align16b":
        return ()
    limit, fix = "it can only be loaded", "Store dense values as 16u4_align8b."
    return (Breach("data_type", "a store of 16u4_align16b", limit, fix),)


@checked(
    "packed-load",
    "A 16u6_align16b map that serves stores alone is not loaded through.",
    source=PTX_COPY,
    basis="documented",
    subjects=_COPY,
    code=715,
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B", "copy": {"direction": "load", "coords": (0, 0)}},
)
def _packed_load(copy: Copy) -> Sequence[Breach]:
    if copy.direction != "load":
        return ()
    reasons = store_only_reasons(copy.tensor_map)
    if not reasons:
        return ()
    wider = " on sm_103" if takes_half_rows(copy.tensor_map) else ""
    limit = f"only a store{wider} takes that"
    return (Breach("data_type", f"a load with {' and '.join(reasons)}", limit, "Encode another map for loads."),)


@checked(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row, no interleave, and an architecture that has them.",
    source=f"{PTX_COPY}, tile::gather4",
    basis="documented",
    subjects=_COPY,
    code=715,
    architectures=architectures_with("gather4"),
    passing=MATRIX
    | {"box": (64, 1), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
    failing=MATRIX
    | {"box": (64, 4), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
)
def _gather_map(copy: Copy) -> Sequence[Breach]:
    if not copy.rows4:
        return ()
    a = copy.tensor_map
    name = "gather4" if copy.direction == "load" else "scatter4"
    found = []
    if a.subject != "tiled" or a.rank != 2:
        which = f"a {a.subject} map of rank {a.rank}"
        found.append(Breach("dims", which, f"{name} takes a tiled map of rank 2", "Describe the rows as a matrix."))
    elif a.box[1] != 1:
        limit = f"{name} names its four rows one by one: box[1] is 1"
        found.append(Breach("box[1]", f"box[1] = {a.box[1]}", limit, "Use box[1] = 1.", {"box": (a.box[0], 1)}))
    if a.interleave.slice_bytes:
        which = f"interleave = {a.interleave.name}"
        found.append(Breach("interleave", which, f"{name} takes none", 'Use interleave="none".'))
    if not a.arch.has(name):
        known = ", ".join(architectures_with(name))
        found.append(Breach("arch", f"arch = {a.arch.name}", f"{name} exists on {known}", "Copy row by row."))
    return found


@checked(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    source=f"{PTX_COPY}; ptxas",
    basis="documented",
    subjects=_COPY,
    passing=PADDED | {"arch": "sm_100", "copy": {"direction": "load", "coords": (0, 0), "cluster": True}},
    failing=PADDED | {"arch": "sm_120", "copy": {"direction": "load", "coords": (0, 0), "cluster": True}},
)
def _cluster_copy(copy: Copy) -> Sequence[Breach]:
    if not copy.cluster:
        return ()
    a = copy.tensor_map
    reasons = kept_from_clusters(a)
    if copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster"):
        reasons.append(("tensor_map", "gather4"))
    limit, fix = "it is loaded to .shared::cta alone there", "Let each block load for itself."
    return [Breach(argument, f"{what} to .shared::cluster on {a.arch.name}", limit, fix) for argument, what in reasons]


@checked(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5, one for each of W, H, D; an im2col-wide halo is below 512 "
    "(32 in mode W128), its offset below 32. Stores and tiled copies have none.",
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    subjects=_COPY,
    passing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (255, 0)}},
    failing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (256, 0)}},
)
def _offsets_range(copy: Copy) -> Sequence[Breach]:
    if not copy.offsets:
        return ()
    a = copy.tensor_map
    ends: tuple[int, ...] = ()
    limit, fix = "a tiled copy has none", "Leave offsets out."
    if a.subject == "wide":
        ends = (HALO_END[a.mode], WIDE_OFFSET_END)
        limit, fix = "2 for an im2col-wide map", "Give the halo and the offset."
    elif a.subject == "im2col" and copy.direction != "load":
        limit = "an im2col store has none: im2col_no_offs"
    elif a.subject == "im2col":
        ends = (OFFSET_END[a.rank],) * (a.rank - 2)
        spatial = ", ".join("WHD"[: len(ends)])
        limit, fix = f"{len(ends)} for an im2col map of rank {a.rank}", f"Give one for each of {spatial}."
    if len(copy.offsets) != len(ends):
        count = f"{len(copy.offsets)} {'offset' if len(copy.offsets) == 1 else 'offsets'}"
        return (Breach("offsets", count, limit, fix),)
    change = {"offsets": tuple(min(max(offset, 0), end - 1) for offset, end in zip(copy.offsets, ends, strict=True))}
    fix = "An offset is a filter tap's distance from the base pixel."
    return [
        Breach(f"offsets[{axis}]", f"offsets[{axis}] = {offset}", f"0 to {end - 1} here", fix, change)
        for axis, (offset, end) in enumerate(zip(copy.offsets, ends, strict=True))
        if not 0 <= offset < end
    ]


@checked(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    source=f"{PTX_COPY}, im2col_no_offs; {H200}",
    subjects=_COPY,
    code=715,
    passing=IMAGES
    | {"lower_corner": (0, 0), "upper_corner": (0, 0), "copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
    failing=IMAGES | {"copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
)
def _im2col_store(copy: Copy) -> Sequence[Breach]:
    a = copy.tensor_map
    if copy.direction == "load" or a.subject != "im2col":
        return ()
    if min(a.lower_corner) >= 0 and max(a.upper_corner) <= 0:
        return ()
    found = f"corners {a.lower_corner} and {a.upper_corner}"
    limit = "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0"
    return (Breach("lower_corner", found, limit, "Encode a map without padding for the store."),)


@checked(
    "im2col-base",
    "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    source=H200,
    subjects=_COPY,
    code=715,
    passing=IMAGES | {"copy": {"direction": "load", "coords": (0, -1, -1, 99)}},
    failing=IMAGES | {"copy": {"direction": "load", "coords": (0, -2, 0, 0)}},
)
def _im2col_base(copy: Copy) -> Sequence[Breach]:
    a = copy.tensor_map
    if a.subject != "im2col" or len(copy.coords) != a.rank:
        return ()
    first = 0 if a.interleave.slice_bytes else 1  # interleaved coordinates start with W
    found = []
    for axis, (lower, upper) in enumerate(zip(a.lower_corner, a.upper_corner, strict=True), first):
        place, highest = copy.coords[axis], a.dims[axis] - 1 + upper
        if not lower <= place <= highest:
            nearest = (*copy.coords[:axis], min(max(place, lower), highest), *copy.coords[axis + 1 :])
            limit = f"the bounding box runs from {lower} to {highest}"
            fix = "Start inside the box: the offsets, not the base, reach a filter's taps."
            found.append(Breach(f"coords[{axis}]", f"coords[{axis}] = {place}", limit, fix, {"coords": nearest}))
    return found


@checked(
    "wide-base",
    "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    source='PTX ISA, "im2col::w and im2col::w::128 modes"',
    basis="documented",
    subjects=_COPY,
    code=715,
    architectures=architectures_with("im2col_wide"),
    passing=WIDE | {"copy": {"direction": "load", "coords": (0, -9, 0, 0)}},
    failing=WIDE | {"copy": {"direction": "load", "coords": (0, 31, 0, 0)}},
)
def _wide_base(copy: Copy) -> Sequence[Breach]:
    a = copy.tensor_map
    if a.subject != "wide" or len(copy.coords) != a.rank:
        return ()
    place, highest = copy.coords[1], a.dims[1] - 1 + a.upper_width  # the instruction's offset moves both alike
    if place <= highest:
        return ()
    limit = f"the bounding box runs from {a.lower_width} to {highest}, and the copy starts in it or left of it"
    change = {"coords": (copy.coords[0], highest, *copy.coords[2:])}
    return (Breach("coords[1]", f"coords[1] = {place}", limit, f"Use {highest} or less.", change),)


@checked(
    "transaction-limit",
    "One copy adds less than 2^20 bytes to its mbarrier.",
    source='PTX ISA, "mbarrier": tx-count range',
    basis="documented",
    subjects=_COPY,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=BYTES
    | {"box": (256, 256, 16), "element_strides": (8, 1, 1), "copy": {"direction": "load", "coords": (0, 0, 0)}},
)
def _transaction_limit(copy: Copy) -> Sequence[Breach]:
    if copy.direction != "load" or copy.tensor_map.transaction_bytes < TRANSACTION_END_BYTES:
        return ()
    found = f"a copy of {copy.tensor_map.transaction_bytes} bytes"
    limit = "an mbarrier counts at most 2^20 - 1 outstanding bytes"
    return (Breach("box", found, limit, "Use a smaller box and more copies."),)


_CHECKS = tuple(each for each in CHECKS if each.rule.subjects == _COPY)
_CODES = {each.rule.name: each.rule.code for each in _CHECKS if each.rule.code is not None}
