"""What copy instructions demand of a map that the driver accepted.

Most broken rules of copies kill the context:

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tilescope.arch import architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.errors import FAULTS, RuleError, Violation, unknown_name
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES, nearest
from tilescope.tensor_map.instruction import REDUCTIONS, Copy, Direction
from tilescope.tensor_map.limits import (
    COORD_END,
    GATHERED_ROWS,
    HALO_END,
    OFFSET_END,
    PADDED_ROW_ELEMENTS,
    ROW_BITS,
    SMEM_ALIGNMENT_BYTES,
    TRANSACTION_END_BYTES,
    WIDE_OFFSET_END,
)
from tilescope.tensor_map.record import FOUR_BIT_TYPE, packed_multiple, takes_half_rows
from tilescope.tensor_map.rules.arch import (
    PACKED_ARCHITECTURES,
    WIDE_ARCHITECTURES,
    Restriction,
    cluster_restrictions,
    store_only_reasons,
)
from tilescope.tensor_map.samples import BYTES, H200, IMAGES, MATRIX, PADDED, PTX_COPY, SIX_BITS, WIDE, copied

if TYPE_CHECKING:
    from tilescope.tensor_map.any_map import AnyMap
    from tilescope.tensor_map.kinds import Im2colMap, Im2colWideMap

_GATHER_ARCHITECTURES = architectures_with("gather4")
_SCATTER_ARCHITECTURES = architectures_with("scatter4")


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
    for find in _CHECKS:
        violations += find(copy)
    return tuple(violations)


def require_legal(copy: Copy) -> None:
    """Raise the FaultError of what the chip answers; 715 where several faults apply, as on an H200.

    A RuleError where no fault is known: the copy does something else than was asked, or no assembler lets it pass.
    """
    violations = broken_by(copy)
    if not violations:
        return
    codes = [_CODES[violation.rule] for violation in violations if violation.rule in _CODES]
    kind = FAULTS[min(codes)] if codes else RuleError
    raise kind(violations)


OFFSETS_RANGE = rule(
    "offsets-range",
    "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5, one for each of W, H, D; an im2col-wide halo is below 512 "
    "(32 in mode W128), its offset below 32. Stores and tiled copies have none.",
    argument="offsets[{axis}]",
    found="offsets[{axis}] = {offset}",
    limit="0 to {most} here",
    fix="Use {taken}: an offset is a filter tap's distance from the base pixel.",
    source=f"{PTX_COPY}, im2col; the chip takes larger ones modulo 256 (rank 4) or lets them run into the next (rank 5)",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copied("load", 0, 0, 0, 0, offsets=(255, 0)),
    failing=IMAGES | copied("load", 0, 0, 0, 0, offsets=(256, 0)),
)
_TILED_OFFSETS = OFFSETS_RANGE.worded(
    argument="offsets", found="{offsets:offset}", limit="a tiled copy has none", fix="Leave offsets out."
)
_STORED_OFFSETS = _TILED_OFFSETS.worded(limit="an im2col store has none: im2col_no_offs")
_WIDE_OFFSETS = _TILED_OFFSETS.worded(
    limit="{wanted} for an im2col-wide map", fix="Use (0, 0): the halo and the offset."
)
_IM2COL_OFFSETS = _TILED_OFFSETS.worded(
    limit="{wanted} for an im2col map of rank {rank}", fix="Use {zeros}, for example: {walked:, }."
)


def _wrong_offsets(copy: Copy) -> Iterable[Violation]:
    return _offsets_of_kind(copy) if copy.offsets else ()


def _offsets_of_kind(copy: Copy) -> Iterator[Violation]:
    a = copy.tensor_map
    count = len(copy.offsets)
    ends = _offset_ends(copy)
    if count == len(ends):
        yield from _offsets_out_of_range(copy.offsets, ends)
    elif a.subject == "wide":
        yield _WIDE_OFFSETS.violation(offsets=count, wanted=len(ends))
    elif a.subject == "tiled":
        yield _TILED_OFFSETS.violation(offsets=count, wanted=0)
    elif copy.direction != "load":
        yield _STORED_OFFSETS.violation(offsets=count, wanted=0)
    else:
        wanted = len(ends)
        yield _IM2COL_OFFSETS.violation(
            offsets=count, wanted=wanted, rank=a.rank, zeros=(0,) * wanted, walked=tuple("WHD"[:wanted])
        )


def _offset_ends(copy: Copy) -> tuple[int, ...]:
    """What the offsets of a copy stay below; one for each that it has."""
    a = copy.tensor_map
    if a.subject == "wide":
        return HALO_END[a.mode], WIDE_OFFSET_END
    if a.subject == "im2col" and copy.direction == "load":
        rank = len(copy.tensor_map.dims)
        return (OFFSET_END[rank],) * (rank - 2)
    return ()


def _offsets_out_of_range(offsets: tuple[int, ...], ends: tuple[int, ...]) -> Iterator[Violation]:
    taken = tuple(nearest(offset, 0, end - 1) for offset, end in zip(offsets, ends, strict=True))
    for axis, offset in enumerate(offsets):
        if offset != taken[axis]:
            yield OFFSETS_RANGE.violation(
                axis=axis, offset=offset, most=ends[axis] - 1, taken=taken[axis], change={"offsets": taken}
            )


IM2COL_STORE = rule(
    "im2col-store",
    "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    argument="lower_corner",
    found="corners {lower_corner} and {upper_corner}",
    limit="im2col_no_offs stores need lower corners >= 0 and upper corners <= 0",
    fix="Encode a map without padding for the store: lower_corner = upper_corner = {zeros}.",
    source=f"{PTX_COPY}, im2col_no_offs; {H200}",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copied("store", 0, 0, 0, 0) | {"lower_corner": (0, 0), "upper_corner": (0, 0)},
    failing=IMAGES | copied("store", 0, 0, 0, 0),
    code=715,
)


def _padded_store(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load" or copy.tensor_map.subject != "im2col":
        return ()
    a: Im2colMap = copy.tensor_map
    if min(a.lower_corner) >= 0 >= max(a.upper_corner):
        return ()
    zeros = (0,) * len(a.lower_corner)
    return (IM2COL_STORE.violation(lower_corner=a.lower_corner, upper_corner=a.upper_corner, zeros=zeros),)


IM2COL_BASE = rule(
    "im2col-base",
    "The base pixel of an im2col copy lies inside the bounding box; N may lie outside the tensor.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="the bounding box runs from {lowest} to {highest}",
    fix="Use {taken}: the offsets, not the base, reach a filter's taps.",
    source=H200,
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=IMAGES | copied("load", 0, -1, -1, 99),
    failing=IMAGES | copied("load", 0, -2, 0, 0),
    code=715,
)
WIDE_BASE = rule(
    "wide-base",
    "The base pixel of an im2col-wide copy may lie left of the bounding box, never right of it.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="the bounding box runs from {lowest} to {highest}, and the copy starts in it or left of it",
    fix="Use {taken} or less.",
    source='PTX ISA, "im2col::w and im2col::w::128 modes"',
    subjects=("instruction",),
    architectures=WIDE_ARCHITECTURES,
    passing=WIDE | copied("load", 0, -9, 0, 0),
    failing=WIDE | copied("load", 0, 31, 0, 0),
    code=715,
)


def _base_outside(copy: Copy) -> Iterable[Violation]:
    if copy.tensor_map.subject == "tiled" or len(copy.coords) != len(copy.tensor_map.dims):
        return ()
    return _bases_outside(copy, copy.tensor_map)


def _bases_outside(copy: Copy, a: Im2colMap | Im2colWideMap) -> Iterator[Violation]:
    is_wide = a.subject == "wide"
    told = WIDE_BASE if is_wide else IM2COL_BASE
    for axis, lowest, upper in a.corners:
        place = copy.coords[axis]
        highest = a.dims[axis] - 1 + upper  # an im2col-wide offset moves both alike
        if place > highest or (place < lowest and not is_wide):
            taken = nearest(place, lowest, highest)
            yield told.violation(
                axis=axis,
                coord=place,
                lowest=lowest,
                highest=highest,
                taken=taken,
                change={"coords": (*copy.coords[:axis], taken, *copy.coords[axis + 1 :])},
            )


SMEM_ADDRESS = rule(
    "smem-address",
    "The shared address of a tensor copy is a multiple of 128 bytes.",
    argument="smem_address",
    found="smem_address = {smem_address:#x}",
    limit="a multiple of 128 bytes",
    fix="Use {below:#x} or {above:#x}.",
    source=f"{H200}: 360 random copies; where a rule of error 715 is broken too, the chip answers 715",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copied("load", 0, 0, smem_address=128),
    failing=MATRIX | copied("load", 0, 0, smem_address=64),
    code=716,
)
_SWIZZLED_SMEM_ADDRESS = SMEM_ADDRESS.worded(
    fix="Use {below:#x} or {above:#x}; a multiple of {pattern_bytes} starts the swizzle pattern at its first line."
)


def _misaligned_in_smem(copy: Copy) -> Iterable[Violation]:
    beyond = copy.smem_address % SMEM_ALIGNMENT_BYTES
    if not beyond:
        return ()
    pattern_bytes = copy.tensor_map.smem_alignment_bytes
    told = _SWIZZLED_SMEM_ADDRESS if pattern_bytes > SMEM_ALIGNMENT_BYTES else SMEM_ADDRESS
    below = copy.smem_address - beyond
    return (
        told.violation(
            smem_address=copy.smem_address,
            below=below,
            above=below + SMEM_ALIGNMENT_BYTES,
            pattern_bytes=pattern_bytes,
            change={"smem_address": below},
        ),
    )


COORDS_RANK = rule(
    "coords-rank",
    "A copy has one coordinate for each dimension; gather4 and scatter4 have a column and four rows.",
    argument="coords",
    found="{count:coordinate}",
    limit="a map of rank {rank} takes {rank}",
    fix="Use coords = {zeros}, for example, innermost first.",
    source=PTX_COPY,
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copied("load", 0, 0),
    failing=MATRIX | copied("load", 0, 0, 0),
)
_GATHERED_COORDS = COORDS_RANK.worded(
    argument="rows",
    found="{count:row}",
    limit="{instruction} takes a column and four rows",
    fix="Use column 0 and rows (0, 1, 2, 3), for example.",
)
_NO_COLUMN = _GATHERED_COORDS.worded(argument="coords", found="no column")


def _gather_name(copy: Copy) -> str:
    """The name of a copy of four rows."""
    return "gather4" if copy.direction == "load" else "scatter4"


def _wrong_rank(copy: Copy) -> Iterable[Violation]:
    count = len(copy.coords)
    rank = len(copy.tensor_map.dims)
    if count == (1 + GATHERED_ROWS if copy.rows4 else rank):
        return ()
    if not copy.rows4:
        return (COORDS_RANK.violation(count=count, rank=rank, zeros=(0,) * rank),)
    told = _GATHERED_COORDS if count else _NO_COLUMN
    return (told.violation(count=count - 1, instruction=_gather_name(copy)),)


def inner_step(a: AnyMap, direction: Direction) -> int:
    """What the inner coordinate of a copy is a multiple of, in elements."""
    if a.interleave.slice_bytes:
        return 1
    if not a.is_padded:
        return ROW_BITS // a.data_type.bits
    return packed_multiple(a.data_type, a.arch) if direction == "store" else PADDED_ROW_ELEMENTS


def nearest_coords(coord: int, step: int, direction: Direction) -> list[int]:
    """The multiples of `step` around a coordinate that a copy takes: signed 32-bit numbers, of stores none below 0.

    >>> nearest_coords(12, 8, "load"), nearest_coords(-4, 8, "store"), nearest_coords(1 << 31, 16, "load")
    ([8, 16], [0], [2147483632])
    """
    least = -COORD_END if direction == "load" else 0
    most = (COORD_END - 1) // step * step
    around = {nearest(coord // step * step, least, most), nearest(rounded_up(coord, step), least, most)}
    return sorted(around)


INNER_COORDINATE = rule(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).",
    argument="coords[0]",
    found="coords[0] = {elements} elements = {inner_bytes:.15g} bytes",
    limit="a multiple of {step} elements (16 bytes)",
    fix="Use {around: or }.",
    source=f"{H200}; {PTX_COPY} for packed types",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copied("load", -8, 0),
    failing=MATRIX | copied("load", 4, 0),
    code=715,
)
_PADDED_INNER_COORDINATE = INNER_COORDINATE.worded(limit="a multiple of {step} values with {data_type}")


def _inner_coordinate_off(copy: Copy) -> Iterable[Violation]:
    a: AnyMap = copy.tensor_map
    step = inner_step(a, copy.direction)
    if not copy.coords or copy.coords[0] % step == 0:
        return ()
    inner = copy.coords[0]
    around = nearest_coords(inner, step, copy.direction)
    told = _PADDED_INNER_COORDINATE if a.is_padded else INNER_COORDINATE
    return (
        told.violation(
            elements=inner,
            inner_bytes=inner * a.data_type.bits / 8,
            step=step,
            data_type=a.data_type.name,
            around=around,
            change={"coords": (around[0], *copy.coords[1:])},
        ),
    )


STORE_COORDS = rule(
    "store-coords",
    "Stores and reductions have no negative coordinate.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="0 or more for stores and reductions",
    fix="Use 0: only the far edge of a stored box may lie outside the tensor.",
    source=H200,
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copied("store", 0, 0),
    failing=MATRIX | copied("store", 0, -1),
    code=715,
)


def _negative_store(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load" or not copy.coords or min(copy.coords) >= 0:
        return ()
    change = {"coords": tuple(max(0, coord) for coord in copy.coords)}
    negative = [(axis, coord) for axis, coord in enumerate(copy.coords) if coord < 0]
    return [STORE_COORDS.violation(axis=axis, coord=coord, change=change) for axis, coord in negative]


REDUCE_TYPE = rule(
    "reduce-type",
    "The reduction takes the map's data type.",
    argument="reduce",
    found="{reduce} on {data_type}",
    limit="{reduce} takes {types:, }",
    fix='Encode the map with data_type="{first}".',
    source=f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}',
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copied("reduce", 0, 0, reduce="add"),
    failing=MATRIX | copied("reduce", 0, 0, reduce="xor"),
    code=715,
)


def _unreduced_type(copy: Copy) -> Iterable[Violation]:
    if copy.reduce is None or copy.reduce not in REDUCTIONS:
        return ()
    types = REDUCTIONS[copy.reduce]
    data_type = copy.tensor_map.data_type.name
    if data_type in types:
        return ()
    return (REDUCE_TYPE.violation(reduce=copy.reduce, data_type=data_type, types=types, first=types[0]),)


PACKED_STORE = rule(
    "packed-store",
    "TMA cannot store 16u4_align16b.",
    argument="data_type",
    found="a store of 16u4_align16b",
    limit="it can only be loaded",
    fix="Store dense values as 16u4_align8b.",
    source=PTX_COPY,
    subjects=("instruction",),
    architectures=PACKED_ARCHITECTURES,
    passing=PADDED | copied("load", 0, 0),
    failing=PADDED | copied("store", 0, 0),
    code=715,
)


def _stored_four_bits(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "store" and copy.tensor_map.data_type.name == FOUR_BIT_TYPE:
        return (PACKED_STORE.violation(),)
    return ()


_FLIPPING = MATRIX | {"swizzle": "128B_ATOM_32B_FLIP_8B", "arch": "sm_100"}
FLIP_STORE = rule(
    "flip-store",
    "Swizzle 128B_ATOM_32B_FLIP_8B serves loads alone: no store, scatter4 or reduction goes through it.",
    argument="swizzle",
    found="a {instruction} under swizzle {swizzle}",
    limit="shared memory with flipped halves can only be loaded to",
    fix="Encode another map for the {instruction}, with swizzle 128B_ATOM_32B and shared memory written without the flip.",
    source=f"{PTX_COPY}, restrictions on 32-byte atomicity with 8-byte flip",
    subjects=("instruction",),
    architectures=architectures_with("swizzle_atomicity"),
    passing=_FLIPPING | copied("load", 0, 0),
    failing=_FLIPPING | copied("store", 0, 0),
)


def _flipped_store(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load" or not copy.tensor_map.swizzle.flip_bytes:
        return ()
    instruction = "reduction" if copy.direction == "reduce" else "store"
    if copy.rows4:
        instruction = _gather_name(copy)
    return (FLIP_STORE.violation(instruction=instruction, swizzle=copy.tensor_map.swizzle.name),)


PACKED_LOAD = rule(
    "packed-load",
    "A 16u6_align16b map that serves stores alone is not loaded through.",
    argument="data_type",
    found="a load with {reasons: and }",
    limit="only a store takes that",
    fix="Encode another map for loads.",
    source=PTX_COPY,
    subjects=("instruction",),
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS | copied("load", 0, 0),
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B"} | copied("load", 0, 0),
    code=715,
)
_PACKED_LOAD_ON_SM_103 = PACKED_LOAD.worded(limit="only a store on sm_103 takes that")


def _loaded_store_map(copy: Copy) -> Iterable[Violation]:
    if copy.direction != "load":
        return ()
    a: AnyMap = copy.tensor_map
    reasons = store_only_reasons(a)
    if not reasons:
        return ()
    told = _PACKED_LOAD_ON_SM_103 if takes_half_rows(a.data_type, a.arch) else PACKED_LOAD
    return (told.violation(reasons=reasons),)


_GATHER = MATRIX | {"arch": "sm_100"} | copied("load", 0, 5, 3, 9, 7, rows4=True)
GATHER_MAP = rule(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row and no interleave.",
    argument="dims",
    found="a {subject} map of rank {rank}",
    limit="{instruction} takes a tiled map of rank 2",
    fix="Describe the rows as a matrix: dims = (columns, rows).",
    source=f"{PTX_COPY}, tile::gather4",
    subjects=("instruction",),
    architectures=_GATHER_ARCHITECTURES,
    passing=_GATHER | {"box": (64, 1)},
    failing=_GATHER | {"box": (64, 4)},
    code=715,
)
_GATHER_BOX = GATHER_MAP.worded(
    argument="box[1]",
    found="box[1] = {rows}",
    limit="{instruction} names its four rows one by one: box[1] is 1",
    fix="Use box[1] = 1.",
)
_GATHER_INTERLEAVE = GATHER_MAP.worded(
    argument="interleave",
    found="interleave = {interleave}",
    limit="{instruction} takes none",
    fix='Use interleave="none".',
)


def _not_gathered(copy: Copy) -> Iterable[Violation]:
    return _gather_obstacles(copy) if copy.rows4 else ()


def _gather_obstacles(copy: Copy) -> Iterator[Violation]:
    """What keeps the map of a copy of four rows from being one of their maps."""
    a = copy.tensor_map
    instruction = _gather_name(copy)
    if a.subject != "tiled" or a.rank != 2:
        yield GATHER_MAP.violation(subject=a.subject, rank=a.rank, instruction=instruction)
    elif a.box[1] != 1:
        yield _GATHER_BOX.violation(rows=a.box[1], instruction=instruction, change={"box": (a.box[0], 1)})
    if a.interleave.slice_bytes:
        yield _GATHER_INTERLEAVE.violation(interleave=a.interleave.name, instruction=instruction)


_SCATTER = MATRIX | {"box": (64, 1)} | copied("store", 0, 5, 3, 9, 7, rows4=True)
GATHER_ARCH = rule(
    "gather-arch",
    f"gather4 exists on {', '.join(_GATHER_ARCHITECTURES)}; scatter4 on {', '.join(_SCATTER_ARCHITECTURES)}.",
    argument="arch",
    found="{instruction} on {arch}",
    limit="{instruction} exists on {known:, }",
    fix="Plan for {first}, or copy row by row.",
    source=f"{PTX_COPY}, tile::scatter4; ptxas",
    subjects=("instruction",),
    architectures=_GATHER_ARCHITECTURES,
    passing=_SCATTER | {"arch": "sm_100"},
    failing=_SCATTER | {"arch": "sm_120"},
)


def _without_gather(copy: Copy) -> Iterable[Violation]:
    if not copy.rows4:
        return ()
    known = _GATHER_ARCHITECTURES if copy.direction == "load" else _SCATTER_ARCHITECTURES
    arch = copy.tensor_map.arch.name
    if arch in known:
        return ()
    return (GATHER_ARCH.violation(instruction=_gather_name(copy), arch=arch, known=known, first=known[0]),)


_MULTICAST = PADDED | copied("load", 0, 0, cluster=True)
CLUSTER_COPY = rule(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    argument="{restricted}",
    found="{reason} to .shared::cluster on {arch}",
    limit="it is loaded to .shared::cta alone there",
    fix="Load to .shared::cta: every block loads its own copy.",
    source=f"{PTX_COPY}; ptxas",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=_MULTICAST | {"arch": "sm_100"},
    failing=_MULTICAST | {"arch": "sm_120"},
)


def _out_of_cluster(copy: Copy) -> Iterable[Violation]:
    if not copy.cluster:
        return ()
    a: AnyMap = copy.tensor_map
    restrictions = cluster_restrictions(a)
    if copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster"):
        restrictions.append(Restriction("tensor_map", "gather4"))
    return [
        CLUSTER_COPY.violation(restricted=restriction.argument, reason=restriction.reason, arch=a.arch.name)
        for restriction in restrictions
    ]


_STRIDED_BYTES = BYTES | {"element_strides": (8, 1, 1)} | copied("load", 0, 0, 0)
TRANSACTION_LIMIT = rule(
    "transaction-limit",
    "One copy adds less than 2^20 bytes to its mbarrier.",
    argument="box",
    found="a copy of {transaction_bytes} bytes",
    limit="an mbarrier counts at most 2^20 - 1 outstanding bytes",
    fix="Use a smaller box and at least {copies} copies.",
    source='PTX ISA, "mbarrier": tx-count range',
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=_STRIDED_BYTES,
    failing=_STRIDED_BYTES | {"box": (256, 256, 16)},
)


def _beyond_transaction(copy: Copy) -> Iterable[Violation]:
    if copy.direction != "load":
        return ()
    transaction_bytes = copy.tensor_map.transaction_bytes
    if transaction_bytes < TRANSACTION_END_BYTES:
        return ()
    copies = transaction_bytes // TRANSACTION_END_BYTES + 1
    return (TRANSACTION_LIMIT.violation(transaction_bytes=transaction_bytes, copies=copies),)


# In the order of a report.
_CHECKS: tuple[Callable[[Copy], Iterable[Violation]], ...] = (
    _wrong_offsets,
    _padded_store,
    _base_outside,
    _misaligned_in_smem,
    _wrong_rank,
    _inner_coordinate_off,
    _negative_store,
    _unreduced_type,
    _stored_four_bits,
    _flipped_store,
    _loaded_store_map,
    _not_gathered,
    _without_gather,
    _out_of_cluster,
    _beyond_transaction,
)
_FAULTING = (
    IM2COL_STORE,
    IM2COL_BASE,
    WIDE_BASE,
    SMEM_ADDRESS,
    INNER_COORDINATE,
    STORE_COORDS,
    REDUCE_TYPE,
    PACKED_STORE,
    PACKED_LOAD,
    GATHER_MAP,
)
_CODES = {row.name: row.code for row in _FAULTING if row.code is not None}
