"""The tensor in global memory: rank, address, dims, strides."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from operator import gt, mul

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation, Wording
from tilescope.rule import Rule, rule
from tilescope.tensor_map.checking import DRIVER, MAPS, TMA_ARCHITECTURES, Check, nearest
from tilescope.tensor_map.limits import (
    ADDRESS_END,
    ALIGNMENT_BYTES,
    LARGEST_DIM,
    LEAST_IM2COL_RANK,
    LEAST_INTERLEAVED_RANK,
    MAX_RANK,
    STRIDE_END_BYTES,
    WIDE_ALIGNMENT_BYTES,
)
from tilescope.tensor_map.record import ColumnRecord, MapOptions, MapRecord, TiledRecord
from tilescope.tensor_map.samples import CUDA_H, H200, MATRIX, SLICES

RANK = rule(
    "rank",
    "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.",
    argument="dims",
    found="{rank:dimension}",
    limit="a tiled map has {least} to {most}",
    fix="Use a map of the five inner dimensions, and one copy for each slice of the others.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX,
    failing=MATRIX
    | {
        "dims": (16, 8, 8, 8, 8, 8),
        "strides_bytes": (32, 256, 2048, 16384, 131072),
        "box": (16, 8, 8, 1, 1, 1),
    },
)
_MERGING_HELPS = RANK.worded(
    fix="Merge dims {axis} and {next_axis}, which have no gap between them: dims = {merged_dims}."
)
_RANK_BELOW = RANK.worded(fix="Add dimensions of extent 1 up to rank {least}.")
_IM2COL_RANK = RANK.worded(limit="an im2col map has {least} to {most}")
_IM2COL_RANK_BELOW = _IM2COL_RANK.worded(fix=_RANK_BELOW.fix)


def _without_dimension(a: TiledRecord) -> Iterator[Violation]:
    yield _RANK_BELOW.violation(rank=a.rank, least=1, most=MAX_RANK)


def _im2col_ranks(a: ColumnRecord) -> Iterator[Violation]:
    wording = _IM2COL_RANK_BELOW if a.rank < LEAST_IM2COL_RANK else _IM2COL_RANK
    yield wording.violation(rank=a.rank, least=LEAST_IM2COL_RANK, most=MAX_RANK)


def _too_many_dimensions_apart(a: TiledRecord) -> Iterator[Violation]:
    """More dimensions than a map has, and no two that can be merged."""
    if not _runs(a):
        yield RANK.violation(rank=a.rank, least=1, most=MAX_RANK)


def _too_many_dimensions_in_runs(a: TiledRecord) -> Iterator[Violation]:
    """More dimensions than a map has, and two without a gap between them, which can be merged."""
    runs = _runs(a)
    if not runs:
        return
    mergeable = [axis for axis in runs if a.element_strides[axis] == a.element_strides[axis + 1] == 1]
    if not mergeable:
        yield RANK.violation(rank=a.rank, least=1, most=MAX_RANK)
        return
    axis = mergeable[0]
    change = {
        "dims": _with_merged(a.dims, axis),
        "box": _with_merged(a.box, axis),
        "element_strides": _with_merged(a.element_strides, axis),
        "strides_bytes": a.strides_bytes[:axis] + a.strides_bytes[axis + 1 :],
    }
    yield _MERGING_HELPS.violation(
        rank=a.rank,
        least=1,
        most=MAX_RANK,
        axis=axis,
        next_axis=axis + 1,
        merged_dims=change["dims"],
        change=change,
    )


def _runs(a: TiledRecord) -> list[int]:
    """The dimensions, outermost first, that can be merged with the next: the box covers them, or one index of the next."""
    runs = []
    for axis in range(a.rank - 2, 0, -1):
        has_no_gap = a.strides_bytes[axis] == a.strides_bytes[axis - 1] * a.dims[axis]
        is_one_run = a.box[axis] == a.dims[axis] or a.box[axis + 1] == 1
        if has_no_gap and is_one_run:
            runs.append(axis)
    return runs


def _with_merged(entries: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*entries[:axis], entries[axis] * entries[axis + 1], *entries[axis + 2 :])


INTERLEAVE_RANK = rule(
    "interleave-rank",
    "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    argument="interleave",
    found="interleave = {interleave} with rank {rank}",
    limit="interleave needs rank 3 to 5: W, (H, (D,)) slices, N",
    fix='Add dimensions of extent 1, dims = {dims}, or use {interleave:="none"}.',
    source=DRIVER,
    basis="measured",
    subjects=("tiled",),
    architectures=TMA_ARCHITECTURES,
    passing=SLICES,
    failing=SLICES | {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)},
)


def _without_channel_slices(a: TiledRecord) -> Iterator[Violation]:
    """A map with too few dimensions; the fix adds some of extent 1, whose strides no copy uses."""
    missing = LEAST_INTERLEAVED_RANK - a.rank
    ones = (1,) * missing
    reach_bytes = a.strides_bytes[-1] * a.dims[-1] if a.strides_bytes else a.row_bytes
    change = {
        "dims": (*a.dims, *ones),
        "box": (*a.box, *ones),
        "element_strides": (*a.element_strides, *ones),
        "strides_bytes": (*a.strides_bytes, *(reach_bytes,) * missing),
    }
    yield INTERLEAVE_RANK.violation(interleave=a.interleave.name, rank=a.rank, dims=change["dims"], change=change)


ADDRESS_ALIGNMENT = rule(
    "address-alignment",
    "The address is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    argument="address",
    found="address = {address:#x}, {beyond} bytes past {start:#x}",
    limit="addresses are multiples of {multiple} bytes[[ with {cause}]]",
    fix="Start the tensor at {start:#x} and shift the coordinates, or align the allocation.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"address": 0x1010},
    failing=MATRIX | {"address": 0x1008},
)


def _alignment_cause(options: MapOptions) -> str:
    """What makes addresses and strides multiples of 32 bytes; empty where 16 are enough."""
    if options.is_padded and not options.takes_half_rows:
        return options.data_type.name
    return "interleave 32B" if options.alignment_bytes == WIDE_ALIGNMENT_BYTES else ""


def _misaligned_address(a: MapRecord) -> Iterator[Violation]:
    start = a.address // a.cured_alignment_bytes * a.cured_alignment_bytes
    yield ADDRESS_ALIGNMENT.violation(
        address=a.address,
        beyond=a.address - start,
        start=start,
        multiple=a.alignment_bytes,
        cause=_alignment_cause(a),
        change={"address": start},
    )


ADDRESS_RANGE = rule(
    "address-range",
    "The address is 0 to 2^57 - 1; 0 is accepted.",
    argument="address",
    found="address = {address:#x}",
    limit="a device address is 0 to 2^57 - 1",
    fix="Pass the device pointer without upper bits: {low:#x}.",
    source=H200,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"address": ADDRESS_END - 16},
    failing=MATRIX | {"address": ADDRESS_END},
)


def _address_out_of_range(a: MapRecord) -> Iterator[Violation]:
    low = a.address % ADDRESS_END
    yield ADDRESS_RANGE.violation(address=a.address, low=low, change={"address": low})


def entries_outside(
    argument: str, entries: tuple[int, ...], most: int, below: Rule | Wording, above: Rule | Wording
) -> Iterator[Violation]:
    """A violation for each entry of an argument that is not 1 to `most`."""
    taken = tuple(nearest(number, 1, most) for number in entries)
    for axis, number in enumerate(entries):
        if number != taken[axis]:
            wording = below if number < 1 else above
            yield wording.violation(axis=axis, number=number, taken=taken[axis], change={argument: taken})


DIM_RANGE = rule(
    "dim-range",
    "Every dim is 1 to 2^32 elements.",
    argument="dims[{axis}]",
    found="dims[{axis}] = {number}",
    limit="1 to 2^32 elements",
    fix="Use several maps of at most 2^32 elements along this dim.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"dims": (LARGEST_DIM, 1), "strides_bytes": (2 * LARGEST_DIM,)},
    failing=MATRIX | {"dims": (64, 0)},
)
_DIM_BELOW = DIM_RANGE.worded(fix="Use {taken}; a tensor without elements has no map.")


def _dims_out_of_range(a: MapRecord) -> Iterator[Violation]:
    return entries_outside("dims", a.dims, LARGEST_DIM, below=_DIM_BELOW, above=DIM_RANGE)


STRIDE_ALIGNMENT = rule(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    argument="strides_bytes[{axis}]",
    found="strides_bytes[{axis}] = {stride} bytes",
    limit="strides are multiples of {multiple} bytes[[ with {cause}]]",
    fix="Pad dimension {axis} so that the next one steps {taken} bytes[[, with strides_bytes = {together}]].",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"strides_bytes": (8208,)},
    failing=MATRIX | {"strides_bytes": (8200,)},
)
STRIDE_RANGE = rule(
    "stride-range",
    "Every stride is 0 to 2^40 - 1 bytes.",
    argument="strides_bytes[{axis}]",
    found="strides_bytes[{axis}] = {stride} bytes",
    limit="0 to 2^40 - 1 bytes",
    fix="Pad dimension {axis} so that the next one steps {taken} bytes.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"strides_bytes": (STRIDE_END_BYTES - 16,)},
    failing=MATRIX | {"strides_bytes": (STRIDE_END_BYTES,)},
)
# No copy uses the stride of a dimension of extent 1 (flashinfer#2150, flashinfer#2232).
_STRIDE_OF_ONE = (
    "dims[{next_axis}] is 1, so no copy uses this stride: any multiple of {multiple} works, such as {multiple}."
)
_FLIPPED_STRIDE = "Use a copy of the tensor with this dimension flipped, and a positive stride."
_FAR_STRIDE = "Use several maps, each with strides below 2^40 bytes."


def _stride_fix(a: MapRecord, axis: int) -> str | None:
    """The fix of a stride that padding does not fix; None where padding does."""
    if a.dims[axis + 1] == 1:
        return _STRIDE_OF_ONE
    if a.strides_bytes[axis] < 0:
        return _FLIPPED_STRIDE
    return _FAR_STRIDE if a.strides_bytes[axis] >= STRIDE_END_BYTES else None


def _has_misaligned_stride(a: MapRecord) -> bool:
    if gcd(WIDE_ALIGNMENT_BYTES, *a.strides_bytes) == WIDE_ALIGNMENT_BYTES:
        return False  # as nearly all are
    return gcd(a.alignment_bytes, *a.strides_bytes) < a.alignment_bytes


def _misaligned_strides(a: MapRecord) -> Iterator[Violation]:
    taken = _padded_strides(a)
    aligned = {axis for axis, stride in enumerate(a.strides_bytes) if stride % a.cured_alignment_bytes == 0}
    moves_aligned = any(taken[axis] != a.strides_bytes[axis] for axis in aligned)
    for axis, stride in enumerate(a.strides_bytes):
        if axis not in aligned:
            yield STRIDE_ALIGNMENT.worded(fix=_stride_fix(a, axis)).violation(
                axis=axis,
                next_axis=axis + 1,
                stride=stride,
                taken=taken[axis],
                multiple=a.alignment_bytes,
                cause=_alignment_cause(a),
                together=taken if moves_aligned else "",
                change={"strides_bytes": taken},
            )


def _padded_strides(a: MapRecord) -> tuple[int, ...]:
    """The strides, padded together: a padded row makes the strides above it step over padded rows.

    An aligned stride that overlapped before stays: it is a window or a broadcast.
    """
    multiple_bytes = a.cured_alignment_bytes
    taken = [rounded_up(stride, multiple_bytes) for stride in a.strides_bytes]
    covered_bytes = given_bytes = a.row_bytes  # what the smaller strides cover: padded, and as they were given
    for stride, axis in sorted((stride, axis) for axis, stride in enumerate(a.strides_bytes)):
        overlapped = stride < given_bytes
        if a.dims[axis + 1] == 1 or (overlapped and taken[axis] == stride):
            continue
        taken[axis] = max(taken[axis], rounded_up(covered_bytes, multiple_bytes))
        covered_bytes += taken[axis] * (a.dims[axis + 1] - 1)
        given_bytes += max(stride, 0) * (a.dims[axis + 1] - 1)
    return tuple(taken)


def _has_stride_out_of_range(a: MapRecord) -> bool:
    if not a.strides_bytes:
        return False
    return min(a.strides_bytes) < 0 or max(a.strides_bytes) >= STRIDE_END_BYTES


def _strides_out_of_range(a: MapRecord) -> Iterator[Violation]:
    # The stride of a flipped dimension is positive.
    taken = tuple(min(abs(stride), STRIDE_END_BYTES - WIDE_ALIGNMENT_BYTES) for stride in a.strides_bytes)
    for axis, stride in enumerate(a.strides_bytes):
        if stride != taken[axis]:
            yield STRIDE_RANGE.worded(fix=_stride_fix(a, axis)).violation(
                axis=axis,
                next_axis=axis + 1,
                stride=stride,
                taken=taken[axis],
                multiple=ALIGNMENT_BYTES,
                change={"strides_bytes": taken},
            )


STRIDE_OVERLAP = rule(
    "stride-overlap",
    "Each stride is at least the extent of the dimensions with smaller strides, so that no two indices share bytes.",
    argument="strides_bytes[{axis}]",
    found="strides_bytes[{axis}] = {stride} bytes, less than the {reach} bytes that one index covers: neighbours share bytes",
    limit="loads work; a store through such a map races with itself",
    fix="Use {next} bytes, or keep it for sliding windows and broadcasts.",
    source=f"{CUDA_H} (its construction of the strides); the driver accepts others ({H200})",
    basis="measured",
    severity="warning",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX,
    failing=MATRIX | {"strides_bytes": (64,)},
)
_BROADCAST = STRIDE_OVERLAP.worded(
    found="strides_bytes[{axis}] = {stride} bytes, less than the {reach} bytes that one index covers: "
    "every index reads the same bytes (a broadcast)"
)


def _may_overlap(a: MapRecord) -> bool:
    """Whether a stride is less than what the dimension before it covers."""
    covered_bytes = (a.row_bytes, *map(mul, a.dims[1:], a.strides_bytes))
    return any(map(gt, covered_bytes, a.strides_bytes))


def _overlaps(a: MapRecord) -> Iterator[Violation]:
    reach = a.row_bytes
    for stride, extent, axis in sorted(zip(a.strides_bytes, a.dims[1:], range(a.rank - 1), strict=True)):
        if stride < reach and extent > 1:
            wording = STRIDE_OVERLAP if stride else _BROADCAST
            step = rounded_up(reach, a.cured_alignment_bytes)
            yield wording.violation(axis=axis, stride=stride, reach=reach, next=step)
        reach += max(0, stride * (extent - 1))


CHECKS = (
    Check(RANK, reads=("rank",), find=_without_dimension, broken=lambda a: not a.dims, only=("tiled",)),
    Check(
        RANK,
        reads=("rank", "dims", "strides_bytes", "box"),
        find=_too_many_dimensions_apart,
        broken=lambda a: len(a.dims) > MAX_RANK,
        only=("tiled",),
    ),
    Check(
        RANK,
        reads=("rank", "dims", "strides_bytes", "box", "element_strides"),
        find=_too_many_dimensions_in_runs,
        broken=lambda a: len(a.dims) > MAX_RANK,
        only=("tiled",),
    ),
    Check(
        RANK,
        reads=("rank",),
        find=_im2col_ranks,
        broken=lambda a: not LEAST_IM2COL_RANK <= len(a.dims) <= MAX_RANK,
        only=("im2col", "wide"),
    ),
    Check(
        INTERLEAVE_RANK,
        reads=("interleave", "dims", "strides_bytes", "box", "element_strides"),
        find=_without_channel_slices,
        broken=lambda a: len(a.dims) < LEAST_INTERLEAVED_RANK,
        concerns=lambda options: options.is_interleaved,
    ),
    Check(
        ADDRESS_ALIGNMENT,
        reads=("address", "alignment_bytes"),
        find=_misaligned_address,
        broken=lambda a: a.address % WIDE_ALIGNMENT_BYTES != 0 and a.address % a.alignment_bytes != 0,
    ),
    Check(
        ADDRESS_RANGE,
        reads=("address",),
        find=_address_out_of_range,
        broken=lambda a: not 0 <= a.address < ADDRESS_END,
    ),
    Check(
        DIM_RANGE,
        reads=("dims",),
        find=_dims_out_of_range,
        broken=lambda a: min(a.dims) < 1 or max(a.dims) > LARGEST_DIM,
    ),
    Check(
        STRIDE_ALIGNMENT,
        reads=("strides_bytes", "dims", "alignment_bytes"),
        find=_misaligned_strides,
        broken=_has_misaligned_stride,
    ),
    Check(
        STRIDE_RANGE,
        reads=("strides_bytes", "dims"),
        find=_strides_out_of_range,
        broken=_has_stride_out_of_range,
    ),
    Check(
        STRIDE_OVERLAP,
        reads=("data_type", "interleave", "dims", "strides_bytes"),
        find=_overlaps,
        broken=_may_overlap,
    ),
)
