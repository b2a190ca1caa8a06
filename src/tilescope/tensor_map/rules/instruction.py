"""What a copy instruction demands although the driver accepted the map; most broken rules kill the context.

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import FAULTS, RuleError, Violation, counted, unknown_name
from tilescope.tensor_map.checking import CHECKS, Says, checked, nearest
from tilescope.tensor_map.rules.arch import cluster_restrictions
from tilescope.tensor_map.rules.packed import (
    DOCUMENTED,
    PADDED_ROW_ELEMENTS,
    padded_row_elements,
    store_only_reasons,
    takes_half_rows,
)
from tilescope.tensor_map.rules.samples import BYTES, H200, IMAGES, MATRIX, PADDED, PTX_COPY, SIX_BITS, WIDE

Direction = Literal["load", "store", "reduce"]
SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20
OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank
HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32

# The types that a reduction takes. All 8 x 13 pairs were tried on an H200: these work, all others are illegal.
_BITWISE = ("uint32", "int32", "uint64")
_ORDERED = (*_BITWISE, "int64", "float16", "bfloat16")
_ADDED = (*_BITWISE, "float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz")
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": _ADDED,
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": _BITWISE,
    "or": _BITWISE,
    "xor": _BITWISE,
}


class Copy(NamedTuple):  # made for every copy: a frozen dataclass takes four times as long to make
    """One use of a map by an instruction."""

    tensor_map: Any  # of whatever kind
    direction: Direction
    coords: tuple[int, ...]  # driver order; gather4 and scatter4: column, then four rows
    smem_address: int = 0
    offsets: tuple[int, ...] = ()  # im2col: W, H, D; im2col-wide: halo, offset
    reduce: str | None = None
    rows4: bool = False  # tile::gather4 or tile::scatter4
    cluster: bool = False  # to .shared::cluster, as a multicast goes; else to the .shared::cta of its own block

    @property
    def gather(self) -> str:
        """The name of a copy of four rows."""
        return "gather4" if self.direction == "load" else "scatter4"


def broken_by(copy: Copy) -> tuple[Violation, ...]:
    """Every rule that the instruction breaks; empty when the chip executes it.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 8))
    >>> [broken.rule for broken in broken_by(Copy(a, "store", (-8, 0), smem_address=64))]
    ['smem-address', 'store-coords']
    """
    violations: list[Violation] = []
    if copy.direction == "reduce" and copy.reduce not in REDUCTIONS:
        violations.append(unknown_name("reduction", "reduce", copy.reduce, REDUCTIONS))
    for check in _CHECKS:
        if check.may_break(copy):
            violations += check.violations(copy, check.rule.violation)
    return tuple(violations)


def require_legal(copy: Copy) -> None:
    """Raise the FaultError of what the chip answers; 715 where several faults apply, as on an H200.

    A RuleError where no fault is known: the copy does something else than was asked, or no assembler lets it pass.
    """
    if violations := broken_by(copy):
        codes = [_CODES[violation.rule] for violation in violations if violation.rule in _CODES]
        raise (FAULTS[min(codes)] if codes else RuleError)(violations)


def _used(example: dict[str, Any], direction: Direction, *coords: int, **more: Any) -> dict[str, Any]:
    """The map of an example and a copy through it."""
    return example | {"copy": {"direction": direction, "coords": coords} | more}


_COPY: dict[str, Any] = {"subjects": ("instruction",), "source": H200, "code": 715}  # what most of these rules share
_DOCUMENTED: dict[str, Any] = _COPY | DOCUMENTED | {"source": PTX_COPY}


@checked(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5, one for each of W, H, D; an im2col-wide halo is below 512 "
    "(32 in mode W128), its offset below 32. Stores and tiled copies have none.",
    lambda copy: copy.offsets,
    subjects=("instruction",),
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    passing=_used(IMAGES, "load", 0, 0, 0, 0, offsets=(255, 0)),
    failing=_used(IMAGES, "load", 0, 0, 0, 0, offsets=(256, 0)),
)
def _offsets_range(copy: Copy, violation: Says) -> Iterator[Violation]:
    a = copy.tensor_map
    ends: tuple[int, ...] = ()
    limit, fix = "a tiled copy has none", "Leave offsets out."
    if a.subject == "wide":
        ends = (HALO_END[a.mode], WIDE_OFFSET_END)
        limit, fix = "2 for an im2col-wide map", "Use (0, 0): the halo and the offset."
    elif a.subject == "im2col" and copy.direction != "load":
        limit = "an im2col store has none: im2col_no_offs"
    elif a.subject == "im2col":
        ends = (OFFSET_END[a.rank],) * (a.rank - 2)
        limit = f"{len(ends)} for an im2col map of rank {a.rank}"
        fix = f"Use {(0,) * len(ends)}, for example: {', '.join('WHD'[: len(ends)])}."
    if len(copy.offsets) != len(ends):
        numbers = {"offsets": len(copy.offsets), "wanted": len(ends)}
        yield violation("offsets", counted(len(copy.offsets), "offset"), limit, fix, None, **numbers)
        return
    taken = tuple(nearest(offset, 0, end - 1) for offset, end in zip(copy.offsets, ends, strict=True))
    for axis, (offset, end) in enumerate(zip(copy.offsets, ends, strict=True)):
        if offset != taken[axis]:
            argument = f"offsets[{axis}]"
            found, limit = f"{argument} = {offset}", f"0 to {end - 1} here"
            fix = f"Use {taken[axis]}: an offset is a filter tap's distance from the base pixel."
            yield violation(argument, found, limit, fix, {"offsets": taken}, offset=offset, most=end - 1)


def _has_padding(a: Any) -> bool:
    return bool(min(a.lower_corner) < 0 or max(a.upper_corner) > 0)


@checked(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    lambda copy: copy.tensor_map.subject == "im2col" and copy.direction != "load" and _has_padding(copy.tensor_map),
    passing=_used(IMAGES | {"lower_corner": (0, 0), "upper_corner": (0, 0)}, "store", 0, 0, 0, 0),
    failing=_used(IMAGES, "store", 0, 0, 0, 0),
    **_COPY | {"source": f"{PTX_COPY}, im2col_no_offs; {H200}"},
)
def _im2col_store(copy: Copy, violation: Says) -> Iterator[Violation]:
    a = copy.tensor_map
    found = f"corners {a.lower_corner} and {a.upper_corner}"
    limit = "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0"
    zeros = (0,) * len(a.lower_corner)
    fix = f"Encode a map without padding for the store: lower_corner = upper_corner = {zeros}."
    corners = {"lower_corner": a.lower_corner, "upper_corner": a.upper_corner}
    yield violation("lower_corner", found, limit, fix, None, **corners)


@checked(
    "im2col-base",
    "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    lambda copy: copy.tensor_map.subject == "im2col" and len(copy.coords) == copy.tensor_map.rank,
    passing=_used(IMAGES, "load", 0, -1, -1, 99),
    failing=_used(IMAGES, "load", 0, -2, 0, 0),
    **_COPY,
)
def _im2col_base(copy: Copy, violation: Says) -> Iterator[Violation]:
    a = copy.tensor_map
    for axis, lower, upper in a.corners:
        place, highest = copy.coords[axis], a.dims[axis] - 1 + upper
        if not lower <= place <= highest:
            taken = (*copy.coords[:axis], nearest(place, lower, highest), *copy.coords[axis + 1 :])
            argument, limit = f"coords[{axis}]", f"the bounding box runs from {lower} to {highest}"
            fix = f"Use {taken[axis]}: the offsets, not the base, reach a filter's taps."
            numbers = {"coord": place, "lowest": lower, "highest": highest}
            yield violation(argument, f"{argument} = {place}", limit, fix, {"coords": taken}, **numbers)


@checked(
    "wide-base",
    "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    lambda copy: copy.tensor_map.subject == "wide" and len(copy.coords) == copy.tensor_map.rank,
    passing=_used(WIDE, "load", 0, -9, 0, 0),
    failing=_used(WIDE, "load", 0, 31, 0, 0),
    **_DOCUMENTED
    | {
        "source": 'PTX ISA, "im2col::w and im2col::w::128 modes"',
        "architectures": architectures_with("im2col_wide"),
    },
)
def _wide_base(copy: Copy, violation: Says) -> Iterator[Violation]:
    a = copy.tensor_map
    place, highest = copy.coords[1], a.dims[1] - 1 + a.upper_width  # the instruction's offset moves both alike
    if place > highest:
        limit = f"the bounding box runs from {a.lower_width} to {highest}, and the copy starts in it or left of it"
        change = {"coords": (copy.coords[0], highest, *copy.coords[2:])}
        numbers = {"coord": place, "lowest": a.lower_width, "highest": highest}
        yield violation("coords[1]", f"coords[1] = {place}", limit, f"Use {highest} or less.", change, **numbers)


@checked(
    "smem-address",
    "The shared address of a tensor copy is a multiple of 128 bytes.",
    lambda copy: copy.smem_address % SMEM_ALIGNMENT_BYTES,
    passing=_used(MATRIX, "load", 0, 0, smem_address=128),
    failing=_used(MATRIX, "load", 0, 0, smem_address=64),
    **_COPY
    | {
        "source": f"{H200}: 360 random copies; where a rule of error 715 is broken too, the chip answers 715",
        "code": 716,
    },
)
def _smem_address(copy: Copy, violation: Says) -> Iterator[Violation]:
    below = copy.smem_address // SMEM_ALIGNMENT_BYTES * SMEM_ALIGNMENT_BYTES
    alignment = copy.tensor_map.smem_alignment_bytes
    pattern = f"; a multiple of {alignment} starts the swizzle pattern at its first line"
    more = pattern if alignment > SMEM_ALIGNMENT_BYTES else ""
    fix = f"Use {below:#x} or {below + SMEM_ALIGNMENT_BYTES:#x}{more}."
    numbers = {"smem_address": copy.smem_address, "multiple_bytes": SMEM_ALIGNMENT_BYTES}
    found, change = f"smem_address = {copy.smem_address:#x}", {"smem_address": below}
    yield violation("smem_address", found, "a multiple of 128 bytes", fix, change, **numbers)


@checked(
    "coords-rank",
    "A copy has one coordinate for each dimension; gather4 and scatter4 have a column and four rows.",
    lambda copy: len(copy.coords) != (5 if copy.rows4 else len(copy.tensor_map.dims)),
    source=PTX_COPY,
    basis="documented",
    subjects=("instruction",),
    passing=_used(MATRIX, "load", 0, 0),
    failing=_used(MATRIX, "load", 0, 0, 0),
)
def _coords_rank(copy: Copy, violation: Says) -> Iterator[Violation]:
    wanted, count = copy.tensor_map.rank, len(copy.coords)
    if copy.rows4:
        argument, found = ("rows", counted(count - 1, "row")) if count else ("coords", "no column")
        limit, fix = f"{copy.gather} takes a column and four rows", "Use column 0 and rows (0, 1, 2, 3), for example."
        yield violation(argument, found, limit, fix, None, rows=count - 1)
    else:
        found, limit = counted(count, "coordinate"), f"a map of rank {wanted} takes {wanted}"
        fix = f"Use coords = {(0,) * wanted}, for example, innermost first."
        yield violation("coords", found, limit, fix, None, coords=count, rank=wanted)


def _inner_step(copy: Copy) -> int:
    """What the inner coordinate is a multiple of."""
    a = copy.tensor_map
    if not a.is_padded:
        return 128 // int(a.data_type.bits)
    return padded_row_elements(a) if copy.direction == "store" else PADDED_ROW_ELEMENTS


@checked(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).",
    lambda copy: copy.coords and not copy.tensor_map.interleave.slice_bytes and copy.coords[0] % _inner_step(copy),
    passing=_used(MATRIX, "load", -8, 0),
    failing=_used(MATRIX, "load", 4, 0),
    **_COPY | {"source": f"{H200}; {PTX_COPY} for packed types"},
)
def _inner_coordinate(copy: Copy, violation: Says) -> Iterator[Violation]:
    a, step, inner = copy.tensor_map, _inner_step(copy), copy.coords[0]
    bits, limit = a.data_type.bits, f"values with {a.data_type.name}" if a.is_padded else "elements (16 bytes)"
    below = inner // step * step
    found, change = (
        f"coords[0] = {inner} elements = {inner * bits / 8:g} bytes",
        {"coords": (below, *copy.coords[1:])},
    )
    numbers = {"elements": inner, "inner_bytes": inner * bits / 8, "multiple_elements": step}
    fix = f"Use {below} or {below + step}."
    yield violation("coords[0]", found, f"a multiple of {step} {limit}", fix, change, **numbers)


@checked(
    "store-coords",
    "Stores and reductions have no negative coordinate.",
    lambda copy: copy.direction != "load" and copy.coords and min(copy.coords) < 0,
    passing=_used(MATRIX, "store", 0, 0),
    failing=_used(MATRIX, "store", 0, -1),
    **_COPY,
)
def _store_coords(copy: Copy, violation: Says) -> Iterator[Violation]:
    for axis, place in enumerate(copy.coords):
        if place < 0:
            argument, change = f"coords[{axis}]", {"coords": tuple(max(0, coord) for coord in copy.coords)}
            limit = "0 or more for stores and reductions"
            fix = "Use 0: only the far edge of a stored box may lie outside the tensor."
            yield violation(argument, f"{argument} = {place}", limit, fix, change, coord=place)


@checked(
    "reduce-type",
    "The reduction takes the map's data type.",
    lambda copy: copy.reduce in REDUCTIONS and copy.tensor_map.data_type.name not in REDUCTIONS[copy.reduce],
    passing=_used(MATRIX, "reduce", 0, 0, reduce="add"),
    failing=_used(MATRIX, "reduce", 0, 0, reduce="xor"),
    **_COPY | {"source": f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}'},
)
def _reduce_type(copy: Copy, violation: Says) -> Iterator[Violation]:
    name, taken = copy.tensor_map.data_type.name, REDUCTIONS[copy.reduce or ""]
    found, limit = f"{copy.reduce} on {name}", f"{copy.reduce} takes {', '.join(taken)}"
    yield violation("reduce", found, limit, f'Encode the map with data_type="{taken[0]}".')


@checked(
    "packed-store",
    "TMA cannot store 16u4_align16b.",
    lambda copy: copy.direction == "store" and copy.tensor_map.data_type.name == "16u4_align16b",
    passing=_used(PADDED, "load", 0, 0),
    failing=_used(PADDED, "store", 0, 0),
    **_DOCUMENTED,
)
def _packed_store(_: Copy, violation: Says) -> Iterator[Violation]:
    fix = "Store dense values as 16u4_align8b."
    yield violation("data_type", "a store of 16u4_align16b", "it can only be loaded", fix)


@checked(
    "packed-load",
    "A 16u6_align16b map that serves stores alone is not loaded through.",
    lambda copy: copy.direction == "load" and store_only_reasons(copy.tensor_map),
    passing=_used(SIX_BITS, "load", 0, 0),
    failing=_used(SIX_BITS | {"swizzle": "128B_ATOM_64B"}, "load", 0, 0),
    **_DOCUMENTED,
)
def _packed_load(copy: Copy, violation: Says) -> Iterator[Violation]:
    reasons = store_only_reasons(copy.tensor_map)
    wider = " on sm_103" if takes_half_rows(copy.tensor_map) else ""
    found, limit = f"a load with {' and '.join(reasons)}", f"only a store{wider} takes that"
    yield violation("data_type", found, limit, "Encode another map for loads.")


@checked(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row, no interleave, and an architecture that has them.",
    lambda copy: copy.rows4,
    passing=_used(MATRIX | {"box": (64, 1), "arch": "sm_100"}, "load", 0, 5, 3, 9, 7, rows4=True),
    failing=_used(MATRIX | {"box": (64, 4), "arch": "sm_100"}, "load", 0, 5, 3, 9, 7, rows4=True),
    **_DOCUMENTED | {"source": f"{PTX_COPY}, tile::gather4", "architectures": architectures_with("gather4")},
)
def _gather_map(copy: Copy, violation: Says) -> Iterator[Violation]:
    a, name = copy.tensor_map, copy.gather
    if a.subject != "tiled" or a.rank != 2:
        found, limit = f"a {a.subject} map of rank {a.rank}", f"{name} takes a tiled map of rank 2"
        fix = "Describe the rows as a matrix: dims = (columns, rows)."
        yield violation("dims", found, limit, fix, None, rank=a.rank)
    elif a.box[1] != 1:
        limit, change = f"{name} names its four rows one by one: box[1] is 1", {"box": (a.box[0], 1)}
        yield violation("box[1]", f"box[1] = {a.box[1]}", limit, "Use box[1] = 1.", change, rows=a.box[1])
    if a.interleave.slice_bytes:
        found = f"interleave = {a.interleave.name}"
        yield violation("interleave", found, f"{name} takes none", 'Use interleave="none".')
    if not a.arch.has(name):
        known = architectures_with(name)
        limit, fix = f"{name} exists on {', '.join(known)}", f"Plan for {known[0]}, or copy row by row."
        yield violation("arch", f"arch = {a.arch.name}", limit, fix)


@checked(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    lambda copy: copy.cluster,
    source=f"{PTX_COPY}; ptxas",
    basis="documented",
    subjects=("instruction",),
    passing=_used(PADDED | {"arch": "sm_100"}, "load", 0, 0, cluster=True),
    failing=_used(PADDED | {"arch": "sm_120"}, "load", 0, 0, cluster=True),
)
def _cluster_copy(copy: Copy, violation: Says) -> Iterator[Violation]:
    a, reasons = copy.tensor_map, cluster_restrictions(copy.tensor_map)
    if copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster"):
        reasons.append(("tensor_map", "gather4"))
    limit, fix = "it is loaded to .shared::cta alone there", "Load to .shared::cta: every block loads its own copy."
    for argument, what in reasons:
        yield violation(argument, f"{what} to .shared::cluster on {a.arch.name}", limit, fix)


@checked(
    "transaction-limit",
    "One copy adds less than 2^20 bytes to its mbarrier.",
    lambda copy: copy.direction == "load" and copy.tensor_map.transaction_bytes >= TRANSACTION_END_BYTES,
    source='PTX ISA, "mbarrier": tx-count range',
    basis="documented",
    subjects=("instruction",),
    passing=_used(MATRIX, "load", 0, 0),
    failing=_used(BYTES | {"box": (256, 256, 16), "element_strides": (8, 1, 1)}, "load", 0, 0, 0),
)
def _transaction_limit(copy: Copy, violation: Says) -> Iterator[Violation]:
    count = copy.tensor_map.transaction_bytes
    copies = count // TRANSACTION_END_BYTES + 1
    found, limit = f"a copy of {count} bytes", "an mbarrier counts at most 2^20 - 1 outstanding bytes"
    numbers = {"transaction_bytes": count, "end_bytes": TRANSACTION_END_BYTES, "copies": copies}
    yield violation("box", found, limit, f"Use a smaller box and at least {copies} copies.", None, **numbers)


_CHECKS = tuple(check for check in CHECKS if check.rule.subjects == ("instruction",))
_CODES = {check.rule.name: check.rule.code for check in _CHECKS if check.rule.code is not None}
