"""What a copy instruction demands although the driver accepted the map; most broken rules kill the context.

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.errors import FAULTS, RuleError, Violation, counted, unknown_name
from tilescope.tensor_map.checking import CHECKS, REDUCTIONS, Copy, Facts, ManyFacts, checked
from tilescope.tensor_map.rules.arch import (
    DOCUMENTED,
    PADDED_ROW_ELEMENTS,
    cluster_restrictions,
    row_multiple,
    store_only_reasons,
    takes_half_rows,
)
from tilescope.tensor_map.samples import BYTES, COPY, H200, MATRIX, NO_FAULT, PADDED, PTX_COPY, SIX_BITS, copied

SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20
_PACKED: Facts = COPY | DOCUMENTED | {"documented": PTX_COPY}


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
        if answer := check.broken(copy):
            violations += check.violations(copy, answer)
    return tuple(violations)


def require_legal(copy: Copy) -> None:
    """Raise the FaultError of what the chip answers; 715 where several faults apply, as on an H200.

    A RuleError where no fault is known: the copy does something else than was asked, or no assembler lets it pass.
    """
    if violations := broken_by(copy):
        codes = [_CODES[violation.rule] for violation in violations if violation.rule in _CODES]
        raise (FAULTS[min(codes)] if codes else RuleError)(violations)


def _lines_around(copy: Copy) -> Facts:
    below = copy.smem_address // SMEM_ALIGNMENT_BYTES * SMEM_ALIGNMENT_BYTES
    facts = {"smem_address": copy.smem_address, "below": below, "above": below + SMEM_ALIGNMENT_BYTES, "more": ""}
    if (alignment := copy.tensor_map.smem_alignment_bytes) > SMEM_ALIGNMENT_BYTES:
        facts["more"] = f"; a multiple of {alignment} starts the swizzle pattern at its first line"
    return facts | {"change": {"smem_address": below}}


checked(
    "smem-address",
    "The shared address of a tensor copy is a multiple of 128 bytes.",
    lambda copy: copy.smem_address % SMEM_ALIGNMENT_BYTES,
    "smem_address",
    "smem_address = {smem_address:#x}",
    "a multiple of 128 bytes",
    "Use {below:#x} or {above:#x}{more}.",
    values=_lines_around,
    subjects=("instruction",),
    code=716,
    source=f"{H200}: 360 random copies; where a rule of error 715 is broken too, the chip answers 715",
    examples=(MATRIX, copied("load", 0, 0, smem_address=128), copied("load", 0, 0, smem_address=64)),
)


def _gather(copy: Copy) -> str:
    """The name of a copy of four rows."""
    return "gather4" if copy.direction == "load" else "scatter4"


def _coords_facts(copy: Copy) -> Facts:
    rank, count = copy.tensor_map.rank, len(copy.coords)
    if not copy.rows4:
        fix = f"Use coords = {(0,) * rank}, for example, innermost first."
        limit = f"a map of rank {rank} takes {rank}"
        return {"argument": "coords", "found": counted(count, "coordinate"), "count": count, "limit": limit, "fix": fix}
    argument, found = ("rows", counted(count - 1, "row")) if count else ("coords", "no column")
    limit, fix = f"{_gather(copy)} takes a column and four rows", "Use column 0 and rows (0, 1, 2, 3), for example."
    return {"argument": argument, "found": found, "count": count - 1, "limit": limit, "fix": fix}


checked(
    "coords-rank",
    "A copy has one coordinate for each dimension; gather4 and scatter4 have a column and four rows.",
    lambda copy: len(copy.coords) != (5 if copy.rows4 else len(copy.tensor_map.dims)),
    values=_coords_facts,
    examples=(MATRIX, copied("load", 0, 0), copied("load", 0, 0, 0)),
    **NO_FAULT,
)


def _inner_step(copy: Copy) -> int:
    """What the inner coordinate is a multiple of."""
    a = copy.tensor_map
    if not a.is_padded:
        return 128 // int(a.data_type.bits)
    return row_multiple(a) if copy.direction == "store" else PADDED_ROW_ELEMENTS


def _inner_facts(copy: Copy) -> Facts:
    a, step, inner = copy.tensor_map, _inner_step(copy), copy.coords[0]
    below, inner_bytes = inner // step * step, inner * a.data_type.bits / 8
    unit = f"values with {a.data_type.name}" if a.is_padded else "elements (16 bytes)"
    numbers = {"elements": inner, "inner_bytes": inner_bytes, "step": step, "below": below, "above": below + step}
    return numbers | {"unit": unit, "change": {"coords": (below, *copy.coords[1:])}}


checked(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).",
    lambda copy: copy.coords and not copy.tensor_map.interleave.slice_bytes and copy.coords[0] % _inner_step(copy),
    "coords[0]",
    "coords[0] = {elements} elements = {inner_bytes:g} bytes",
    "a multiple of {step} {unit}",
    "Use {below} or {above}.",
    values=_inner_facts,
    examples=(MATRIX, copied("load", -8, 0), copied("load", 4, 0)),
    **COPY | {"source": f"{H200}; {PTX_COPY} for packed types"},
)
checked(
    "store-coords",
    "Stores and reductions have no negative coordinate.",
    lambda copy: copy.direction != "load" and copy.coords and min(copy.coords) < 0,
    "coords[{axis}]",
    "coords[{axis}] = {coord}",
    "0 or more for stores and reductions",
    "Use 0: only the far edge of a stored box may lie outside the tensor.",
    values=lambda copy: [
        {"axis": axis, "coord": place, "change": {"coords": tuple(max(0, coord) for coord in copy.coords)}}
        for axis, place in enumerate(copy.coords)
        if place < 0
    ],
    examples=(MATRIX, copied("store", 0, 0), copied("store", 0, -1)),
    **COPY,
)
checked(
    "reduce-type",
    "The reduction takes the map's data type.",
    lambda copy: copy.reduce in REDUCTIONS and copy.tensor_map.data_type.name not in REDUCTIONS[copy.reduce],
    "reduce",
    "{reduce} on {a.data_type.name}",
    "{reduce} takes {types}",
    'Encode the map with data_type="{first}".',
    values=lambda copy: {
        "reduce": copy.reduce,
        "types": ", ".join(REDUCTIONS[copy.reduce]),
        "first": REDUCTIONS[copy.reduce][0],
    },
    examples=(MATRIX, copied("reduce", 0, 0, reduce="add"), copied("reduce", 0, 0, reduce="xor")),
    **COPY | {"source": f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}'},
)
checked(
    "packed-store",
    "TMA cannot store 16u4_align16b.",
    lambda copy: copy.direction == "store" and copy.tensor_map.data_type.name == "16u4_align16b",
    "data_type",
    "a store of 16u4_align16b",
    "it can only be loaded",
    "Store dense values as 16u4_align8b.",
    examples=(PADDED, copied("load", 0, 0), copied("store", 0, 0)),
    **_PACKED,
)
checked(
    "packed-load",
    "A 16u6_align16b map that serves stores alone is not loaded through.",
    lambda copy: copy.direction == "load" and store_only_reasons(copy.tensor_map),
    "data_type",
    "a load with {reasons}",
    "only a store{where} takes that",
    "Encode another map for loads.",
    values=lambda copy: {
        "reasons": " and ".join(store_only_reasons(copy.tensor_map)),
        "where": " on sm_103" if takes_half_rows(copy.tensor_map) else "",
    },
    examples=(SIX_BITS, copied("load", 0, 0), {"swizzle": "128B_ATOM_64B"} | copied("load", 0, 0)),
    **_PACKED,
)


def _not_gathered(copy: Copy) -> ManyFacts:
    """What keeps the map of a copy of four rows from being one of their maps."""
    a, name = copy.tensor_map, _gather(copy)
    if a.subject != "tiled" or a.rank != 2:
        found, limit = f"a {a.subject} map of rank {a.rank}", f"{name} takes a tiled map of rank 2"
        fix = "Describe the rows as a matrix: dims = (columns, rows)."
        yield {"argument": "dims", "found": found, "limit": limit, "fix": fix, "rank": a.rank}
    elif a.box[1] != 1:
        limit, change = f"{name} names its four rows one by one: box[1] is 1", {"box": (a.box[0], 1)}
        facts = {"argument": "box[1]", "found": f"box[1] = {a.box[1]}", "limit": limit, "fix": "Use box[1] = 1."}
        yield facts | {"rows": a.box[1], "change": change}
    if a.interleave.slice_bytes:
        found, limit, fix = f"interleave = {a.interleave.name}", f"{name} takes none", 'Use interleave="none".'
        yield {"argument": "interleave", "found": found, "limit": limit, "fix": fix}
    if not a.arch.has(name):
        known = architectures_with(name)
        limit, fix = f"{name} exists on {', '.join(known)}", f"Plan for {known[0]}, or copy row by row."
        yield {"argument": "arch", "found": f"arch = {a.arch.name}", "limit": limit, "fix": fix}


checked(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row, no interleave, and an architecture that has them.",
    lambda copy: copy.rows4 and _not_gathered(copy),
    examples=(
        MATRIX | {"arch": "sm_100"} | copied("load", 0, 5, 3, 9, 7, rows4=True),
        {"box": (64, 1)},
        {"box": (64, 4)},
    ),
    **COPY | NO_FAULT | {"documented": f"{PTX_COPY}, tile::gather4", "architectures": architectures_with("gather4")},
)


def _out_of_cluster(copy: Copy) -> ManyFacts:
    a = copy.tensor_map
    is_gather = copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster")
    for argument, what in cluster_restrictions(a) + [("tensor_map", "gather4")] * is_gather:
        yield {"argument": argument, "what": what}


checked(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    lambda copy: copy.cluster and _out_of_cluster(copy),
    "{argument}",
    "{what} to .shared::cluster on {a.arch.name}",
    "it is loaded to .shared::cta alone there",
    "Load to .shared::cta: every block loads its own copy.",
    examples=(PADDED | copied("load", 0, 0, cluster=True), {"arch": "sm_100"}, {"arch": "sm_120"}),
    **NO_FAULT | {"documented": f"{PTX_COPY}; ptxas"},
)
checked(
    "transaction-limit",
    "One copy adds less than 2^20 bytes to its mbarrier.",
    lambda copy: copy.direction == "load" and copy.tensor_map.transaction_bytes >= TRANSACTION_END_BYTES,
    "box",
    "a copy of {transaction_bytes} bytes",
    "an mbarrier counts at most 2^20 - 1 outstanding bytes",
    "Use a smaller box and at least {copies} copies.",
    values=lambda copy: {
        "transaction_bytes": copy.tensor_map.transaction_bytes,
        "copies": copy.tensor_map.transaction_bytes // TRANSACTION_END_BYTES + 1,
    },
    examples=(BYTES | {"element_strides": (8, 1, 1)} | copied("load", 0, 0, 0), {}, {"box": (256, 256, 16)}),
    **NO_FAULT | {"documented": 'PTX ISA, "mbarrier": tx-count range'},
)
_CHECKS = tuple(check for check in CHECKS if check.rule.subjects == ("instruction",))
_CODES = {check.rule.name: check.rule.code for check in _CHECKS if check.rule.code is not None}
