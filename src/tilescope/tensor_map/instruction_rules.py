"""What a copy instruction demands although the map was accepted; each broken rule kills the context.

map accepted by the driver ──▶ cp.async.bulk.tensor … ──▶ "illegal instruction" when one of these is broken
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tilescope.arch import architectures_with
from tilescope.errors import IllegalInstructionError, Violation, unknown_name
from tilescope.tensor_map.encode_rules import H200, IMAGES, MATRIX, PACKED, PADDED_TYPES
from tilescope.tensor_map.rule import RULES, rule, violation

if TYPE_CHECKING:
    from tilescope.tensor_map.maps import AnyMap

Direction = Literal["load", "store", "reduce"]
ReduceOp = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]
SMEM_ALIGNMENT_BYTES = 128
TRANSACTION_END_BYTES = 1 << 20
PTX_COPY = 'PTX ISA, "cp.async.bulk.tensor"'

# The types each reduction takes. Seen on an H200: all listed pairs work.
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": ("uint32", "int32", "uint64", "float16", "float32", "float64", "bfloat16", "float32_ftz"),
    "min": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16", "bfloat16"),
    "inc": ("uint32",),
    "dec": ("uint32",),
    "and": ("uint32", "int32", "uint64"),
    "or": ("uint32", "int32", "uint64"),
    "xor": ("uint32", "int32", "uint64"),
}


@dataclass(frozen=True, slots=True)
class Copy:
    """One use of a map by an instruction, as the rules below look at it."""

    tensor_map: Any
    direction: Direction
    coords: tuple[int, ...]  # driver order; gather4 and scatter4: column, then four rows
    smem_address: int = 0
    offsets: tuple[int, ...] = ()  # im2col: W, H, D; im2col-wide: halo, offset
    reduce: str | None = None
    rows4: bool = False  # tile::gather4 or tile::scatter4


def broken_by(copy: Copy) -> tuple[Violation, ...]:
    """Every rule that the instruction breaks; empty when the chip executes it.

    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 8))
    >>> [broken.rule for broken in broken_by(Copy(a, "store", (-8, 0), smem_address=64))]
    ['smem-address', 'store-coords']
    """
    return tuple(found for each in _INSTRUCTION_RULES for found in each.check(copy))


def require_legal(copy: Copy) -> None:
    """Raise IllegalInstructionError where the chip would answer with an illegal instruction."""
    violations = broken_by(copy)
    if violations:
        raise IllegalInstructionError(violations)


@rule(
    "smem-address", "The shared address of a tensor copy is a multiple of 128 bytes.", source=H200, subjects=("instruction",),
    reads=(), passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 128}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0), "smem_address": 64}},
)  # fmt: skip
def _smem_address(copy: Copy) -> Iterable[Violation]:
    if copy.smem_address % SMEM_ALIGNMENT_BYTES:
        aligned = copy.smem_address // SMEM_ALIGNMENT_BYTES * SMEM_ALIGNMENT_BYTES
        yield violation(
            "smem-address", "smem_address", f"smem_address = {copy.smem_address:#x}", "a multiple of 128 bytes",
            f"Use {aligned:#x} or {aligned + SMEM_ALIGNMENT_BYTES:#x}; {copy.tensor_map.smem_alignment_bytes} keeps "
            "the swizzle pattern at its start.", {"smem_address": aligned},
        )  # fmt: skip


@rule(
    "inner-coordinate", "Without interleave, the inner coordinate lands on a multiple of 16 bytes of the row.", source=H200,
    subjects=("instruction",), reads=(), passing=MATRIX | {"copy": {"direction": "load", "coords": (-8, 0)}},
    failing=MATRIX | {"copy": {"direction": "load", "coords": (4, 0)}},
)  # fmt: skip
def _inner_coordinate(copy: Copy) -> Iterable[Violation]:
    a: AnyMap = copy.tensor_map
    if a.interleave.slice_bytes or not copy.coords:
        return
    padded = a.data_type.name in PADDED_TYPES
    step = 128 if padded else max(1, 128 // a.data_type.bits)
    if copy.coords[0] % step:
        below = copy.coords[0] // step * step
        yield violation(
            "inner-coordinate", "coords[0]", f"coords[0] = {copy.coords[0]} elements = {copy.coords[0] * a.data_type.bits / 8:g} bytes",
            f"a multiple of {step} elements" + ("" if padded else " (16 bytes)"), f"Use {below} or {below + step}.",
            {"coords": (below, *copy.coords[1:])},
        )  # fmt: skip


@rule(
    "store-coords", "Stores and reductions have no negative coordinate.", source=H200, subjects=("instruction",), reads=(),
    passing=MATRIX | {"copy": {"direction": "store", "coords": (0, 0)}}, failing=MATRIX | {"copy": {"direction": "store", "coords": (0, -1)}},
)  # fmt: skip
def _store_coords(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load":
        return
    for axis, place in enumerate(copy.coords):
        if place < 0:
            yield violation(
                "store-coords", f"coords[{axis}]", f"coords[{axis}] = {place}", "0 or more for stores and reductions",
                "Only the far edge of a stored box may lie outside the tensor.", {"coords": tuple(max(0, each) for each in copy.coords)},
            )  # fmt: skip


@rule(
    "reduce-type", "The reduction takes the map's data type.", source=f'PTX ISA, "cp.reduce.async.bulk.tensor"; {H200}',
    subjects=("instruction",), reads=(),
    passing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "add"}},
    failing=MATRIX | {"copy": {"direction": "reduce", "coords": (0, 0), "reduce": "xor"}},
)  # fmt: skip
def _reduce_type(copy: Copy) -> Iterable[Violation]:
    if copy.direction != "reduce":
        return
    if copy.reduce not in REDUCTIONS:
        yield unknown_name("reduction", "reduce", copy.reduce, REDUCTIONS)
    elif copy.tensor_map.data_type.name not in REDUCTIONS[copy.reduce]:
        yield violation(
            "reduce-type", "reduce", f"{copy.reduce} on {copy.tensor_map.data_type.name}",
            f"{copy.reduce} takes {', '.join(REDUCTIONS[copy.reduce])}", "Encode the map with one of these types.",
        )  # fmt: skip


@rule(
    "packed-store", "16u4_align16b cannot be stored, and no packed type can be reduced.", source=PTX_COPY, basis="documented",
    subjects=("instruction",), reads=(), passing=PACKED | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing=PACKED | {"copy": {"direction": "store", "coords": (0, 0)}},
)  # fmt: skip
def _packed_store(copy: Copy) -> Iterable[Violation]:
    data_type = copy.tensor_map.data_type
    if copy.direction == "store" and data_type.name == "16u4_align16b":
        yield violation(
            "packed-store",
            "data_type",
            f"a store of {data_type.name}",
            "it can only be loaded",
            "Store dense values as 16u4_align8b.",
        )


@rule(
    "gather-map", "gather4 and scatter4 take a tiled map of rank 2, one box row, no interleave, and an architecture that has them.",
    source=f"{PTX_COPY}, tile::gather4", basis="documented", subjects=("instruction",), reads=(),
    passing=MATRIX | {"box": (64, 1), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
    failing=MATRIX | {"box": (64, 4), "arch": "sm_100", "copy": {"direction": "load", "coords": (0, 5, 3, 9, 7), "rows4": True}},
)  # fmt: skip
def _gather_map(copy: Copy) -> Iterable[Violation]:
    if not copy.rows4:
        return
    a = copy.tensor_map
    name, feature = ("gather4", "gather4") if copy.direction == "load" else ("scatter4", "scatter4")
    if a.subject != "tiled" or a.rank != 2:
        yield violation(
            "gather-map",
            "dims",
            f"a {a.kind} of rank {a.rank}",
            f"{name} takes a tiled map of rank 2",
            "Describe the rows as a matrix.",
        )
    elif a.box[1] != 1:
        yield violation(
            "gather-map", "box[1]", f"box[1] = {a.box[1]}", f"{name} names its four rows one by one: box[1] is 1",
            "Use box[1] = 1.", {"box": (a.box[0], 1)},
        )  # fmt: skip
    if a.interleave.slice_bytes:
        yield violation(
            "gather-map", "interleave", f"interleave = {a.interleave.name}", f"{name} takes none", 'Use "none".'
        )
    if not a.arch.has(feature):
        known = ", ".join(architectures_with(feature))
        yield violation("gather-map", "arch", f"arch = {a.arch.name}", f"{name} exists on {known}", "Copy row by row.")


OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # by rank
HALO_END = {"W": 512, "W128": 32}
WIDE_OFFSET_END = 32


@rule(
    "offsets-range", "im2col offsets are 0 to 65535, 255, 31 for rank 3, 4, 5; halo below 512 (32 in W128), wide offset below 32.",
    source=f"{PTX_COPY}, im2col", basis="documented", subjects=("instruction",), reads=(),
    passing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (255, 0)}},
    failing=IMAGES | {"copy": {"direction": "load", "coords": (0, 0, 0, 0), "offsets": (256, 0)}},
)  # fmt: skip
def _offsets_range(copy: Copy) -> Iterable[Violation]:
    a = copy.tensor_map
    if a.subject == "wide":
        ends: tuple[int, ...] = (HALO_END[a.mode], WIDE_OFFSET_END)
    else:
        ends = (OFFSET_END.get(a.rank, 0),) * len(copy.offsets)
    for axis, (offset, end) in enumerate(zip(copy.offsets, ends, strict=False)):
        if not 0 <= offset < end:
            yield violation(
                "offsets-range", f"offsets[{axis}]", f"offsets[{axis}] = {offset}", f"0 to {end - 1} here",
                "An offset is a filter tap's distance from the base pixel.",
            )  # fmt: skip


@rule(
    "im2col-store", "An im2col store has lower corners of at least 0 and upper corners of at most 0.",
    source=f"{PTX_COPY}, im2col_no_offs", basis="documented", subjects=("instruction",), reads=(),
    passing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (0, 0), "copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
    failing=IMAGES | {"copy": {"direction": "store", "coords": (0, 0, 0, 0)}},
)  # fmt: skip
def _im2col_store(copy: Copy) -> Iterable[Violation]:
    a = copy.tensor_map
    if copy.direction == "load" or a.subject != "im2col":
        return
    if min(a.lower_corner) < 0 or max(a.upper_corner) > 0:
        yield violation(
            "im2col-store", "lower_corner", f"corners {a.lower_corner} and {a.upper_corner}",
            "im2col_no_offs stores need lower corners >= 0 and upper corners <= 0", "Encode a map without padding for the store.",
        )  # fmt: skip


@rule(
    "transaction-bytes", "One copy adds less than 2^20 bytes to its mbarrier.", source='PTX ISA, "mbarrier": tx-count range',
    basis="documented", subjects=("instruction",), reads=(), passing=MATRIX | {"copy": {"direction": "load", "coords": (0, 0)}},
    failing={
        "data_type": "u8", "dims": (16, 256, 256, 2), "strides_bytes": (16, 4096, 1 << 20), "box": (16, 256, 256, 2),
        "element_strides": (8, 7, 1, 2), "copy": {"direction": "load", "coords": (0, 0, 0, 0)},
    },
)  # fmt: skip
def _transaction_bytes(copy: Copy) -> Iterable[Violation]:
    if copy.direction == "load" and copy.tensor_map.transaction_bytes >= TRANSACTION_END_BYTES:
        yield violation(
            "transaction-bytes", "box", f"a copy of {copy.tensor_map.transaction_bytes} bytes",
            "an mbarrier counts at most 2^20 - 1 outstanding bytes", "Use a smaller box and more copies.",
        )  # fmt: skip


_INSTRUCTION_RULES = tuple(
    RULES[name]
    for name in (
        "smem-address",
        "inner-coordinate",
        "store-coords",
        "reduce-type",
        "packed-store",
        "gather-map",
        "offsets-range",
        "im2col-store",
        "transaction-bytes",
    )  # fmt: skip
)
