"""What copy instructions demand of a map that the driver accepted: types, directions, gathers, clusters, bytes.

Most broken rules of copies kill the context:

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ 715, illegal instruction    coordinates, negative stores, reductions
                                                      ──▶ 716, misaligned address     shared address off 128 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilescope.arch import architectures_with
from tilescope.errors import FAULTS, RuleError, Violation, unknown_name
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES
from tilescope.tensor_map.copy_instruction import REDUCTIONS, Copy
from tilescope.tensor_map.limits import TRANSACTION_END_BYTES
from tilescope.tensor_map.record import FOUR_BIT_TYPE, MapFacts, takes_half_rows
from tilescope.tensor_map.rules.arch_limits import PACKED_ARCHITECTURES, Restriction, cluster_restrictions
from tilescope.tensor_map.rules.coordinates import (
    INNER_COORDINATE,
    SMEM_ADDRESS,
    STORE_COORDS,
    gather_name,
    inner_coordinate_off,
    misaligned_in_smem,
    negative_store,
    wrong_rank,
)
from tilescope.tensor_map.rules.im2col_copies import (
    IM2COL_BASE,
    IM2COL_STORE,
    WIDE_BASE,
    base_outside,
    padded_store,
    wrong_offsets,
)
from tilescope.tensor_map.rules.packed_rules import store_only_reasons
from tilescope.tensor_map.samples import BYTES, H200, MATRIX, PADDED, PTX_COPY, SIX_BITS, copy_sample

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

    A RuleError if no fault is known: the copy does something else than intended, or no assembler accepts it.
    """
    violations = broken_by(copy)
    if not violations:
        return
    codes = [_CODES[violation.rule] for violation in violations if violation.rule in _CODES]
    kind = FAULTS[min(codes)] if codes else RuleError
    raise kind(violations)


REDUCE_TYPE = rule(
    "reduce-type",
    "The reduction supports the map's data type.",
    argument="reduce",
    found="{reduce} on {data_type}",
    limit="{reduce} takes {types:, }",
    fix='Encode the map with {data_type:="{first}"}.',
    source=f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}',
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copy_sample("reduce", 0, 0, reduce="add"),
    failing=MATRIX | copy_sample("reduce", 0, 0, reduce="xor"),
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
    passing=PADDED | copy_sample("load", 0, 0),
    failing=PADDED | copy_sample("store", 0, 0),
    code=715,
)


def _stored_four_bits(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "store" and copy.tensor_map.data_type.name == FOUR_BIT_TYPE:
        return (PACKED_STORE.violation(),)
    return ()


_FLIPPING = MATRIX | {"swizzle": "128B_ATOM_32B_FLIP_8B", "arch": "sm_100"}
FLIP_STORE = rule(
    "flip-store",
    "Swizzle 128B_ATOM_32B_FLIP_8B supports only loads, not stores, scatter4 or reductions.",
    argument="swizzle",
    found="a {instruction} under swizzle {swizzle}",
    limit="shared memory with flipped halves can only be loaded to",
    fix="Encode another map for the {instruction}, with swizzle 128B_ATOM_32B and shared memory written without the flip.",
    source=f"{PTX_COPY}, restrictions on 32-byte atomicity with 8-byte flip",
    subjects=("instruction",),
    architectures=architectures_with("swizzle_atomicity"),
    passing=_FLIPPING | copy_sample("load", 0, 0),
    failing=_FLIPPING | copy_sample("store", 0, 0),
)


def _flipped_store(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load" or not copy.tensor_map.swizzle.flip_bytes:
        return ()
    instruction = "reduction" if copy.direction == "reduce" else "store"
    if copy.rows4:
        instruction = gather_name(copy)
    return (FLIP_STORE.violation(instruction=instruction, swizzle=copy.tensor_map.swizzle.name),)


PACKED_LOAD = rule(
    "packed-load",
    "A 16u6_align16b map that is valid only for stores is not used for loads.",
    argument="data_type",
    found="a load with {reasons: and }",
    limit="only a store takes that",
    fix="Encode another map for loads.",
    source=PTX_COPY,
    subjects=("instruction",),
    architectures=PACKED_ARCHITECTURES,
    passing=SIX_BITS | copy_sample("load", 0, 0),
    failing=SIX_BITS | {"swizzle": "128B_ATOM_64B"} | copy_sample("load", 0, 0),
    code=715,
)
_PACKED_LOAD_ON_SM_103 = PACKED_LOAD.worded(limit="only a store on sm_103 takes that")


def _loaded_store_map(copy: Copy) -> Iterable[Violation]:
    if copy.direction != "load":
        return ()
    a: MapFacts = copy.tensor_map
    reasons = store_only_reasons(a)
    if not reasons:
        return ()
    wording = _PACKED_LOAD_ON_SM_103 if takes_half_rows(a.data_type, a.arch) else PACKED_LOAD
    return (wording.violation(reasons=reasons),)


_GATHER = MATRIX | {"arch": "sm_100"} | copy_sample("load", 0, 5, 3, 9, 7, rows4=True)
GATHER_MAP = rule(
    "gather-map",
    "gather4 and scatter4 need a tiled map of rank 2 with one box row and without interleave.",
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
    fix='Use {interleave:="none"}.',
)


def _not_gathered(copy: Copy) -> Iterable[Violation]:
    return _gather_obstacles(copy) if copy.rows4 else ()


def _gather_obstacles(copy: Copy) -> Iterator[Violation]:
    """What keeps the map of a copy of four rows from being one of their maps."""
    a = copy.tensor_map
    instruction = gather_name(copy)
    if a.subject != "tiled" or a.rank != 2:
        yield GATHER_MAP.violation(subject=a.subject, rank=a.rank, instruction=instruction)
    elif a.box[1] != 1:
        yield _GATHER_BOX.violation(rows=a.box[1], instruction=instruction, change={"box": (a.box[0], 1)})
    if a.interleave.slice_bytes:
        yield _GATHER_INTERLEAVE.violation(interleave=a.interleave.name, instruction=instruction)


_SCATTER = MATRIX | {"box": (64, 1)} | copy_sample("store", 0, 5, 3, 9, 7, rows4=True)
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
    architectures = _GATHER_ARCHITECTURES if copy.direction == "load" else _SCATTER_ARCHITECTURES
    arch = copy.tensor_map.arch.name
    if arch in architectures:
        return ()
    return (
        GATHER_ARCH.violation(instruction=gather_name(copy), arch=arch, known=architectures, first=architectures[0]),
    )


_MULTICAST = PADDED | copy_sample("load", 0, 0, cluster=True)
CLUSTER_COPY = rule(
    "cluster-copy",
    "On sm_120, packed types, atom modes, im2col::w and gather4 are loaded only to .shared::cta, so they cannot be "
    "multicast to .shared::cluster.",
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
    a: MapFacts = copy.tensor_map
    restrictions = cluster_restrictions(a)
    if copy.rows4 and a.arch.has("gather4") and not a.arch.has("gather4_cluster"):
        restrictions.append(Restriction("tensor_map", "gather4"))
    return [
        CLUSTER_COPY.violation(restricted=restriction.argument, reason=restriction.reason, arch=a.arch.name)
        for restriction in restrictions
    ]


_STRIDED_BYTES = BYTES | {"element_strides": (8, 1, 1)} | copy_sample("load", 0, 0, 0)
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
    wrong_offsets,
    padded_store,
    base_outside,
    misaligned_in_smem,
    wrong_rank,
    inner_coordinate_off,
    negative_store,
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
