"""Where a copy starts: its shared address, and its coordinates in the tensor."""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import TMA_ARCHITECTURES, nearest
from tilescope.tensor_map.copy_instruction import Copy, Direction
from tilescope.tensor_map.limits import COORD_END, GATHERED_ROWS, PADDED_ROW_ELEMENTS, ROW_BITS, SMEM_ALIGNMENT_BYTES
from tilescope.tensor_map.record import MapFacts, packed_multiple
from tilescope.tensor_map.samples import H200, MATRIX, PTX_COPY, copy_sample

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
    passing=MATRIX | copy_sample("load", 0, 0, smem_address=128),
    failing=MATRIX | copy_sample("load", 0, 0, smem_address=64),
    code=716,
)
_SWIZZLED_SMEM_ADDRESS = SMEM_ADDRESS.worded(
    fix="Use {below:#x} or {above:#x}; a multiple of {pattern_bytes} starts the swizzle pattern at its first line."
)


def misaligned_in_smem(copy: Copy) -> Iterable[Violation]:
    """Shared addresses off 128 bytes."""
    beyond = copy.smem_address % SMEM_ALIGNMENT_BYTES
    if not beyond:
        return ()
    pattern_bytes = copy.tensor_map.smem_alignment_bytes
    wording = _SWIZZLED_SMEM_ADDRESS if pattern_bytes > SMEM_ALIGNMENT_BYTES else SMEM_ADDRESS
    below = copy.smem_address - beyond
    return (
        wording.violation(
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
    passing=MATRIX | copy_sample("load", 0, 0),
    failing=MATRIX | copy_sample("load", 0, 0, 0),
)
_GATHERED_COORDS = COORDS_RANK.worded(
    argument="rows",
    found="{count:row}",
    limit="{instruction} takes a column and four rows",
    fix="Use column 0 and rows (0, 1, 2, 3), for example.",
)
_NO_COLUMN = _GATHERED_COORDS.worded(argument="coords", found="no column")


def gather_name(copy: Copy) -> str:
    """The name of a copy of four rows."""
    return "gather4" if copy.direction == "load" else "scatter4"


def wrong_rank(copy: Copy) -> Iterable[Violation]:
    """Coordinates that are too many or too few."""
    count = len(copy.coords)
    rank = len(copy.tensor_map.dims)
    if count == (1 + GATHERED_ROWS if copy.rows4 else rank):
        return ()
    if not copy.rows4:
        return (COORDS_RANK.violation(count=count, rank=rank, zeros=(0,) * rank, change={"coords": (0,) * rank}),)
    wording = _GATHERED_COORDS if count else _NO_COLUMN
    return (wording.violation(count=count - 1, instruction=gather_name(copy)),)


def inner_step(a: MapFacts, direction: Direction) -> int:
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
    "Without interleave, the inner coordinate is at a multiple of 16 bytes of the row; for padded packed types at a "
    "multiple of 128 values (64 for stores on sm_103).",
    argument="coords[0]",
    found="coords[0] = {elements} elements = {inner_bytes:.15g} bytes",
    limit="a multiple of {step} elements (16 bytes)",
    fix="Use {around: or }.",
    source=f"{H200}; {PTX_COPY} for packed types",
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copy_sample("load", -8, 0),
    failing=MATRIX | copy_sample("load", 4, 0),
    code=715,
)
_PADDED_INNER_COORDINATE = INNER_COORDINATE.worded(limit="a multiple of {step} values with {data_type}")


def inner_coordinate_off(copy: Copy) -> Iterable[Violation]:
    """Inner coordinates off 16 bytes."""
    a: MapFacts = copy.tensor_map
    step = inner_step(a, copy.direction)
    if not copy.coords or copy.coords[0] % step == 0:
        return ()
    inner = copy.coords[0]
    around = nearest_coords(inner, step, copy.direction)
    wording = _PADDED_INNER_COORDINATE if a.is_padded else INNER_COORDINATE
    return (
        wording.violation(
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
    fix="Use 0: only the far edge of a stored box may be outside the tensor.",
    source=H200,
    basis="measured",
    subjects=("instruction",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | copy_sample("store", 0, 0),
    failing=MATRIX | copy_sample("store", 0, -1),
    code=715,
)


def negative_store(copy: Copy) -> Iterable[Violation]:
    """Negative coordinates of stores and reductions."""
    if copy.direction == "load" or not copy.coords or min(copy.coords) >= 0:
        return ()
    change = {"coords": tuple(max(0, coord) for coord in copy.coords)}
    negative = [(axis, coord) for axis, coord in enumerate(copy.coords) if coord < 0]
    return [STORE_COORDS.violation(axis=axis, coord=coord, change=change) for axis, coord in negative]
