"""What counts although the driver accepts the map: advice, and what copy instructions demand.

Most broken rules of copies kill the context:

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from math import gcd
from operator import lt

from tilescope.arch import architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.errors import FAULTS, RuleError, Violation, unknown_name
from tilescope.sentence import counted
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import (
    CHECKS,
    COORD_END,
    REDUCTIONS,
    Copy,
    Direction,
    Facts,
    ManyFacts,
    checked,
    nearest,
)
from tilescope.tensor_map.kinds import TensorMap
from tilescope.tensor_map.rules import arch
from tilescope.tensor_map.rules.tensor import LARGEST_EXTENT, ROW_BITS
from tilescope.tensor_map.samples import BYTES, COPY, H200, MATRIX, NO_FAULT, PADDED, PTX_COPY, SIX_BITS, copied


def _exceeds_block(a: AnyMap) -> Facts | None:
    """A copy that needs more shared memory than a block has; an interleaved box has at least three dimensions."""
    most_bytes = a.arch.smem_per_block_bytes
    is_uncountable = min(a.element_strides) < 1 or (a.interleave.slice_bytes and a.rank < 3)
    if is_uncountable or not 0 < most_bytes < a.rows * a.pitch_bytes:
        return None
    facts = {name: getattr(a, name) for name in ("smem_bytes", "rows", "pitch_bytes")}
    argument = "box" if a.subject == "tiled" else "pixels_per_column"
    return facts | {"argument": argument, "most_bytes": most_bytes, "most_rows": most_bytes // a.pitch_bytes}


checked(
    "smem-capacity",
    "The shared memory of one copy fits the largest that a block can have.",
    _exceeds_block,
    "a copy of {smem_bytes} shared bytes ({rows} rows of {pitch_bytes})",
    "a block of {a.arch.name} has at most {most_bytes} bytes",
    "Use copies of at most {most_rows} rows.",
    severity="warning",
    documented="CUDA programming guide, compute capabilities; the driver's own check can miss it",
    examples=(
        BYTES | {"swizzle": "128B"},
        {"box": (128, 64, 8)},
        {"box": (16, 256, 256), "element_strides": (1, 5, 1)},
    ),
)


def _larger_extents(a: TensorMap) -> ManyFacts:
    wholes = list(a.dims)
    if a.interleave.slice_bytes:
        wholes[-2:-1] = a.box[-2:-1]  # one slice a copy, whatever the box says
    elif ROW_BITS % a.data_type.bits == 0:
        wholes[0] = rounded_up(wholes[0], ROW_BITS // a.data_type.bits)  # rows are multiples of 16 bytes
    trimmed = tuple(min(extent, max(whole, 1)) for extent, whole in zip(a.box, wholes, strict=True))
    for axis, (extent, dim) in enumerate(zip(a.box, a.dims, strict=True)):
        if trimmed[axis] < extent <= LARGEST_EXTENT and dim >= 1:
            yield {"axis": axis, "extent": extent, "dim": dim, "taken": trimmed[axis], "change": {"box": trimmed}}


checked(
    "box-larger",
    "A box is no larger than the tensor; what lies beyond its end is filled.",
    lambda a: any(map(lt, a.dims, a.box)) and _larger_extents(a),
    "box[{axis}] = {extent} over dims[{axis}] = {dim}",
    "the rest of the box is fill, and counts in the transaction",
    "Use box[{axis}] = {taken} unless the fill is wanted.",
    severity="note",
    source=f"accepted by the driver ({H200})",
    subjects=("tiled",),
    examples=(MATRIX, {"dims": (4096, 64)}, {"dims": (4096, 32)}),
)


checked(
    "store-overrun",
    "Rows of the tensor end on a multiple of 16 bytes, if it is ever stored to.",
    lambda a: not a.interleave.slice_bytes and a.dims[0] * a.data_type.bits % ROW_BITS and a.dims[0] > 0,
    "dims[0] = {elements} elements end {inside_bytes:g} bytes into a 16-byte piece",
    "a store or reduction also overwrites the {overwritten_bytes} bytes behind the last element of each row",
    "Use dims[0] = {whole} if those bytes are padding, or store the last elements of each row with threads.",
    values=lambda a: {
        "elements": a.dims[0],
        "inside_bytes": a.dims[0] * a.data_type.bits % ROW_BITS / 8,
        "overwritten_bytes": -a.dims[0] * a.data_type.bits % ROW_BITS // 8,
        "whole": rounded_up(a.dims[0], ROW_BITS // gcd(ROW_BITS, a.data_type.bits)),
    },
    severity="note",
    source=H200,
    examples=(MATRIX, {}, {"dims": (100, 64), "strides_bytes": (208,)}),
)
checked(
    "address-128",
    "Under a swizzle the global address is a multiple of 128 bytes.",
    lambda a: a.swizzle.bits and a.address % 128 and a.address % 16 == 0,
    "address = {address:#x} under swizzle {a.swizzle.name}",
    "the guide asks for 128 bytes; 16 is enough for the hardware",
    "Align the allocation to 128 bytes for whole cache lines.",
    values=lambda a: {"address": a.address, "change": {"address": a.address // 128 * 128}},
    severity="note",
    source="CUDA programming guide, swizzle table; 16 bytes are enough for the hardware",
    examples=(MATRIX, {"swizzle": "128B", "address": 0x1080}, {"swizzle": "128B", "address": 0x1010}),
)

SMALL_TENSOR_BYTES = 128 * 1024
# What is known of the bug, wherever it is told: here, of a descriptor's bits, and among the causes of symptoms.
SIZE_FLAG_BUG = (
    "Blackwell now and then reads past the end of a tensor that is not dense and has less than 128 KiB behind it, because the "
    "driver set bit 21 of word 1 in its descriptor: a known issue of drivers 595.71.05 and 595.91.07, and no version is known "
    "to be free of it"
)
CLEAR_SIZE_FLAG = "Clear it after the encode call, as CUTLASS and Triton do: ((uint64_t*)&map)[1] &= ~(1ull << 21)."
_BLACKWELL = architectures_with("packed_types")
SIZE_FLAG = checked(
    "descriptor-size-flag",
    "On Blackwell, bit 21 of word 1 is clear in the descriptor of a tensor that is not dense and whose memory is less than "
    "128 KiB.",
    lambda a: a.arch.name in _BLACKWELL and a.reach_bytes < SMALL_TENSOR_BYTES and not a.is_dense,
    "a tensor with gaps between its rows that spans {reach_bytes} bytes",
    SIZE_FLAG_BUG,
    CLEAR_SIZE_FLAG,
    argument="strides_bytes",
    values=lambda a: {"reach_bytes": a.reach_bytes},
    severity="warning",
    documented="NVIDIA, release notes of drivers 595.71.05 (quoted in triton-lang/triton#10442) and 595.91.07, known issues; "
    "CUTLASS and Triton clear the bit",
    architectures=_BLACKWELL,
    examples=(MATRIX | {"dims": (64, 64), "strides_bytes": (256,), "arch": "sm_100"}, {"strides_bytes": (128,)}, {}),
)
checked(
    "l2-256B",
    "Prefer L2 promotion 128B: 256B was never faster.",
    lambda a: a.l2_promotion.name == "256B",
    found="l2_promotion = 256B",
    limit="128B moved 7 to 14 % more bytes a second on an H200",
    change={"l2_promotion": "128B"},
    severity="note",
    source=f"{H200}: 256B never won",
    examples=(MATRIX, {"l2_promotion": "128B"}, {"l2_promotion": "256B"}),
)

SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20
_PACKED: Facts = COPY | arch.DOCUMENTED | {"documented": PTX_COPY}


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


def inner_step(a: AnyMap, direction: Direction) -> int:
    """What the inner coordinate of a copy is a multiple of, in elements."""
    if a.interleave.slice_bytes:
        return 1
    if not a.is_padded:
        return 128 // int(a.data_type.bits)
    return arch.row_multiple(a) if direction == "store" else arch.PADDED_ROW_ELEMENTS


def nearest_coords(coord: int, step: int, direction: Direction) -> list[int]:
    """The multiples of `step` around a coordinate that a copy takes: signed 32-bit numbers, of stores none below 0.

    >>> nearest_coords(12, 8, "load"), nearest_coords(-4, 8, "store"), nearest_coords(1 << 31, 16, "load")
    ([8, 16], [0], [2147483632])
    """
    least, most = -COORD_END if direction == "load" else 0, (COORD_END - 1) // step * step
    return sorted({nearest(coord // step * step, least, most), nearest(rounded_up(coord, step), least, most)})


def _inner_facts(copy: Copy) -> Facts:
    a, step, inner = copy.tensor_map, inner_step(copy.tensor_map, copy.direction), copy.coords[0]
    around = nearest_coords(inner, step, copy.direction)
    unit = f"values with {a.data_type.name}" if a.is_padded else "elements (16 bytes)"
    numbers = {"elements": inner, "inner_bytes": inner * a.data_type.bits / 8, "step": step}
    facts = {"unit": unit, "around": " or ".join(map(str, around)), "change": {"coords": (around[0], *copy.coords[1:])}}
    return numbers | facts


checked(
    "inner-coordinate",
    "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row; for padded packed types on "
    "a multiple of 128 values (64 for stores on sm_103).",
    lambda copy: copy.coords and copy.coords[0] % inner_step(copy.tensor_map, copy.direction),
    "coords[0] = {elements} elements = {inner_bytes:.15g} bytes",
    "a multiple of {step} {unit}",
    "Use {around}.",
    values=_inner_facts,
    examples=(MATRIX, copied("load", -8, 0), copied("load", 4, 0)),
    **COPY | {"source": f"{H200}; {PTX_COPY} for packed types"},
)
checked(
    "store-coords",
    "Stores and reductions have no negative coordinate.",
    lambda copy: copy.direction != "load" and copy.coords and min(copy.coords) < 0,
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
    "{reduce} on {a.data_type.name}",
    "{reduce} takes {types}",
    'Encode the map with data_type="{first}".',
    argument="reduce",
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
    "a store of 16u4_align16b",
    "it can only be loaded",
    "Store dense values as 16u4_align8b.",
    argument="data_type",
    examples=(PADDED, copied("load", 0, 0), copied("store", 0, 0)),
    **_PACKED,
)
checked(
    "flip-store",
    "Swizzle 128B_ATOM_32B_FLIP_8B serves loads alone: no store, scatter4 or reduction goes through it.",
    lambda copy: copy.direction != "load" and copy.tensor_map.swizzle.flip_bytes,
    "a {what} under swizzle {a.swizzle.name}",
    "shared memory with flipped halves can only be loaded to",
    "Encode another map for the {what}, with swizzle 128B_ATOM_32B and shared memory written without the flip.",
    argument="swizzle",
    values=lambda copy: {
        "what": _gather(copy) if copy.rows4 else {"reduce": "reduction"}.get(copy.direction, copy.direction)
    },
    examples=(
        MATRIX | {"swizzle": "128B_ATOM_32B_FLIP_8B", "arch": "sm_100"},
        copied("load", 0, 0),
        copied("store", 0, 0),
    ),
    **NO_FAULT
    | {
        "documented": f"{PTX_COPY}, restrictions on 32-byte atomicity with 8-byte flip",
        "architectures": architectures_with("swizzle_atomicity"),
    },
)
checked(
    "packed-load",
    "A 16u6_align16b map that serves stores alone is not loaded through.",
    lambda copy: copy.direction == "load" and arch.store_only_reasons(copy.tensor_map),
    "a load with {reasons}",
    "only a store{where} takes that",
    "Encode another map for loads.",
    argument="data_type",
    values=lambda copy: {
        "reasons": " and ".join(arch.store_only_reasons(copy.tensor_map)),
        "where": " on sm_103" if arch.takes_half_rows(copy.tensor_map) else "",
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


checked(
    "gather-map",
    "gather4 and scatter4 take a tiled map of rank 2, one box row and no interleave.",
    lambda copy: copy.rows4 and _not_gathered(copy),
    examples=(
        MATRIX | {"arch": "sm_100"} | copied("load", 0, 5, 3, 9, 7, rows4=True),
        {"box": (64, 1)},
        {"box": (64, 4)},
    ),
    **COPY | NO_FAULT | {"documented": f"{PTX_COPY}, tile::gather4", "architectures": architectures_with("gather4")},
)


def _gather_facts(copy: Copy) -> Facts:
    known = architectures_with(_gather(copy))
    return {"name": _gather(copy), "known": ", ".join(known), "first": known[0]}


checked(
    "gather-arch",
    f"gather4 exists on {', '.join(architectures_with('gather4'))}; scatter4 on {', '.join(architectures_with('scatter4'))}.",
    lambda copy: copy.rows4 and not copy.tensor_map.arch.has(_gather(copy)),
    "{name} on {a.arch.name}",
    "{name} exists on {known}",
    "Plan for {first}, or copy row by row.",
    argument="arch",
    values=_gather_facts,
    examples=(
        MATRIX | {"box": (64, 1)} | copied("store", 0, 5, 3, 9, 7, rows4=True),
        {"arch": "sm_100"},
        {"arch": "sm_120"},
    ),
    **NO_FAULT | {"documented": f"{PTX_COPY}, tile::scatter4; ptxas", "architectures": architectures_with("gather4")},
)


def _out_of_cluster(copy: Copy) -> ManyFacts:
    a = copy.tensor_map
    is_gather = copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster")
    for argument, what in arch.cluster_restrictions(a) + [("tensor_map", "gather4")] * is_gather:
        yield {"argument": argument, "what": what}


checked(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded to .shared::cta alone: a multicast, which goes to "
    ".shared::cluster, has none of them.",
    lambda copy: copy.cluster and _out_of_cluster(copy),
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
    "a copy of {transaction_bytes} bytes",
    "an mbarrier counts at most 2^20 - 1 outstanding bytes",
    "Use a smaller box and at least {copies} copies.",
    argument="box",
    values=lambda copy: {
        "transaction_bytes": copy.tensor_map.transaction_bytes,
        "copies": copy.tensor_map.transaction_bytes // TRANSACTION_END_BYTES + 1,
    },
    examples=(BYTES | {"element_strides": (8, 1, 1)} | copied("load", 0, 0, 0), {}, {"box": (256, 256, 16)}),
    **NO_FAULT | {"documented": 'PTX ISA, "mbarrier": tx-count range'},
)
_CHECKS = tuple(check for check in CHECKS if check.rule.subjects == ("instruction",))
_CODES = {check.rule.name: check.rule.code for check in _CHECKS if check.rule.code is not None}
