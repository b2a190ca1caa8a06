"""What a copy instruction demands although the driver accepted the map; most broken rules kill the context.

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.errors import FAULTS, RuleError, Violation, counted, unknown_name
from tilescope.tensor_map.checking import CHECKS, Breach, Found, checked
from tilescope.tensor_map.copy import COPY_RULES, REDUCTIONS, Copy
from tilescope.tensor_map.rules.arch import cluster_restrictions
from tilescope.tensor_map.rules.packed import (
    PACKED_ARCHITECTURES,
    PADDED_ROW_ELEMENTS,
    padded_row_elements,
    store_only_reasons,
    takes_half_rows,
)
from tilescope.tensor_map.rules.samples import BYTES, H200, MATRIX, PADDED, PTX_COPY, SIX_BITS

SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20


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
    for check in _CHECKS:
        if check.run(copy):  # asked for every copy: no list for nothing
            found += check.violations(copy)
    return tuple(found)


def require_legal(copy: Copy) -> None:
    """Raise the FaultError of what the chip answers; 715 where several faults apply, as on an H200.

    A RuleError where no fault is known: the copy does something else than was asked, or no assembler lets it pass.
    """
    violations = broken_by(copy)
    if not violations:
        return
    codes = [_CODES[violation.rule] for violation in violations if violation.rule in _CODES]
    raise (FAULTS[min(codes)] if codes else RuleError)(violations)


@checked(
    "smem-address", "The shared address of a tensor copy is a multiple of 128 bytes.",
    source=f"{H200}: 360 random copies; where a rule of error 715 is broken too, the chip answers 715",
    subjects=COPY_RULES, code=716,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 128}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 64}},
)  # fmt: skip
def _smem_address(copy: Copy) -> Found:
    if copy.smem_address % SMEM_ALIGNMENT_BYTES == 0:
        return ()
    below = copy.smem_address // SMEM_ALIGNMENT_BYTES * SMEM_ALIGNMENT_BYTES
    alignment = copy.tensor_map.smem_alignment_bytes
    return Breach(
        "smem_address",
        f"smem_address = {copy.smem_address:#x}",
        "a multiple of 128 bytes",
        f"Use {below:#x} or {below + SMEM_ALIGNMENT_BYTES:#x}"
        + (f"; a multiple of {alignment} starts the swizzle pattern at its first line." if alignment > 128 else "."),
        {"smem_address": below},
        {"smem_address": copy.smem_address, "multiple_bytes": SMEM_ALIGNMENT_BYTES},
    )


@checked(
    "coords-rank", "A copy has one coordinate for each dimension; gather4 and scatter4 have a column and four rows.",
    source=PTX_COPY, basis="documented", subjects=COPY_RULES,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0, 0)}},
)  # fmt: skip
def _coords_rank(copy: Copy) -> Found:
    wanted = 5 if copy.rows4 else copy.tensor_map.rank
    count = len(copy.coords)
    if count == wanted:
        return ()
    if copy.rows4:
        name = "gather4" if copy.direction == "load" else "scatter4"
        argument, found = ("rows", counted(count - 1, "row")) if count else ("coords", "no column")
        return Breach(
            argument, found, f"{name} takes a column and four rows", "Use column 0 and rows (0, 1, 2, 3), for example.",
            values={"rows": count - 1},
        )  # fmt: skip
    return Breach(
        "coords", counted(count, "coordinate"), f"a map of rank {wanted} takes {wanted}",
        f"Use coords = {(0,) * wanted}, for example, innermost first.", values={"coords": count, "rank": wanted},
    )  # fmt: skip


@checked(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).", source=f"{H200}; {PTX_COPY} for packed types",
    subjects=COPY_RULES, code=715, passing=MATRIX | {"copy": {"direction": "load", "coords": (-8, 0)}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (4, 0)}},
)  # fmt: skip
def _inner_coordinate(copy: Copy) -> Found:
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
    inner_bytes = inner * a.data_type.bits / 8
    return Breach(
        "coords[0]", f"coords[0] = {inner} elements = {inner_bytes:g} bytes", limit, f"Use {below} or {below + step}.",
        {"coords": (below, *copy.coords[1:])},
        {"elements": inner, "inner_bytes": inner_bytes, "multiple_elements": step},
    )  # fmt: skip


@checked(
    "store-coords", "Stores and reductions have no negative coordinate.", source=H200, subjects=COPY_RULES, code=715,
    passing=MATRIX | {"copy": {"direction": "store", "coords": (0, 0)}},
    failing=MATRIX | {"copy": {"direction": "store", "coords": (0, -1)}},
)  # fmt: skip
def _store_coords(copy: Copy) -> Found:
    if copy.direction == "load" or min(copy.coords, default=0) >= 0:
        return ()
    change = {"coords": tuple(max(0, place) for place in copy.coords)}
    return [
        Breach(
            f"coords[{axis}]",
            f"coords[{axis}] = {place}",
            "0 or more for stores and reductions",
            "Use 0: only the far edge of a stored box may lie outside the tensor.",
            change,
            {"coord": place},
        )
        for axis, place in enumerate(copy.coords)
        if place < 0
    ]


@checked(
    "reduce-type", "The reduction takes the map's data type.", source=f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}',
    subjects=COPY_RULES, code=715,
    passing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "add"}},
    failing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "xor"}},
)  # fmt: skip
def _reduce_type(copy: Copy) -> Found:
    if copy.direction != "reduce" or copy.reduce not in REDUCTIONS:
        return ()
    taken, name = REDUCTIONS[copy.reduce], copy.tensor_map.data_type.name
    if name in taken:
        return ()
    return Breach(
        "reduce", f"{copy.reduce} on {name}", f"{copy.reduce} takes {', '.join(taken)}",
        f'Encode the map with data_type="{taken[0]}".',
    )  # fmt: skip


@checked(
    "packed-store", "TMA cannot store 16u4_align16b.", source=PTX_COPY, basis="documented", subjects=COPY_RULES,
    code=715, architectures=PACKED_ARCHITECTURES, passing=PADDED | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=PADDED | {"copy": {"direction": "store", "coords": (0, 0)}},
)  # fmt: skip
def _packed_store(copy: Copy) -> Found:
    if copy.direction != "store" or copy.tensor_map.data_type.name != "16u4_align16b":
        return ()
    return (
        Breach("data_type", "a store of 16u4_align16b", "it can only be loaded", "Store dense values as 16u4_align8b."),
    )


@checked(
    "packed-load", "A 16u6_align16b map that serves stores alone is not loaded through.", source=PTX_COPY,
    basis="documented", subjects=COPY_RULES, code=715, architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B", "copy": {"direction": "load", "coords": (0, 0)}},
)  # fmt: skip
def _packed_load(copy: Copy) -> Found:
    if copy.direction != "load":
        return ()
    reasons = store_only_reasons(copy.tensor_map)
    if not reasons:
        return ()
    wider = " on sm_103" if takes_half_rows(copy.tensor_map) else ""
    return Breach(
        "data_type", f"a load with {' and '.join(reasons)}", f"only a store{wider} takes that",
        "Encode another map for loads.",
    )  # fmt: skip


@checked(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row, no interleave, and an architecture that has them.",
    source=f"{PTX_COPY}, tile::gather4",
    basis="documented",
    subjects=COPY_RULES,
    code=715,
    architectures=architectures_with("gather4"),
    passing=MATRIX
    | {"box": (64, 1), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
    failing=MATRIX
    | {"box": (64, 4), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
)
def _gather_map(copy: Copy) -> Found:
    if not copy.rows4:
        return ()
    a = copy.tensor_map
    name = "gather4" if copy.direction == "load" else "scatter4"
    found = []
    if a.subject != "tiled" or a.rank != 2:
        found.append(Breach(
            "dims", f"a {a.subject} map of rank {a.rank}", f"{name} takes a tiled map of rank 2",
            "Describe the rows as a matrix: dims = (columns, rows).", values={"rank": a.rank},
        ))  # fmt: skip
    elif a.box[1] != 1:
        found.append(Breach(
            "box[1]", f"box[1] = {a.box[1]}", f"{name} names its four rows one by one: box[1] is 1", "Use box[1] = 1.",
            {"box": (a.box[0], 1)}, {"rows": a.box[1]},
        ))  # fmt: skip
    if a.interleave.slice_bytes:
        found.append(
            Breach("interleave", f"interleave = {a.interleave.name}", f"{name} takes none", 'Use interleave="none".')
        )
    if not a.arch.has(name):
        known = ", ".join(architectures_with(name))
        found.append(Breach(
            "arch", f"arch = {a.arch.name}", f"{name} exists on {known}",
            f"Plan for {architectures_with(name)[0]}, or copy row by row.",
        ))  # fmt: skip
    return found


@checked(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    source=f"{PTX_COPY}; ptxas",
    basis="documented",
    subjects=COPY_RULES,
    passing=PADDED | {"arch": "sm_100", "copy": {"direction": "load", "coords": (0, 0), "cluster": True}},
    failing=PADDED | {"arch": "sm_120", "copy": {"direction": "load", "coords": (0, 0), "cluster": True}},
)
def _cluster_copy(copy: Copy) -> Found:
    if not copy.cluster:
        return ()
    a = copy.tensor_map
    reasons = cluster_restrictions(a)
    if copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster"):
        reasons.append(("tensor_map", "gather4"))
    limit, fix = "it is loaded to .shared::cta alone there", "Load to .shared::cta: every block loads its own copy."
    return [Breach(argument, f"{what} to .shared::cluster on {a.arch.name}", limit, fix) for argument, what in reasons]


@checked(
    "transaction-limit",
    "One copy adds less than 2^20 bytes to its mbarrier.",
    source='PTX ISA, "mbarrier": tx-count range',
    basis="documented",
    subjects=COPY_RULES,
    passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=BYTES
    | {"box": (256, 256, 16), "element_strides": (8, 1, 1), "copy": {"direction": "load", "coords": (0, 0, 0)}},
)
def _transaction_limit(copy: Copy) -> Found:
    if copy.direction != "load" or copy.tensor_map.transaction_bytes < TRANSACTION_END_BYTES:
        return ()
    return Breach(
        "box", f"a copy of {copy.tensor_map.transaction_bytes} bytes",
        "an mbarrier counts at most 2^20 - 1 outstanding bytes", "Use a smaller box and more copies.",
        values={"transaction_bytes": copy.tensor_map.transaction_bytes, "end_bytes": TRANSACTION_END_BYTES},
    )  # fmt: skip


_CHECKS = tuple(each for each in CHECKS if each.rule.subjects == COPY_RULES)
_CODES = {check.rule.name: check.rule.code for check in _CHECKS if check.rule.code is not None}
