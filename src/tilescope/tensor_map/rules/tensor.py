"""The tensor in global memory, and the box of a copy: rank, address, dims, strides; rows, traversal, size, fill."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from operator import floordiv, gt, mul

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation, Wording
from tilescope.rule import Rule, rule
from tilescope.tensor_map.checking import DRIVER, MAPS, TMA_ARCHITECTURES, Check, nearest
from tilescope.tensor_map.limits import (
    ADDRESS_END,
    LARGEST_BOX_BYTES,
    LARGEST_BOX_EXTENT,
    LARGEST_DIM,
    LARGEST_ELEMENT_STRIDE,
    LARGEST_PIXELS,
    LEAST_IM2COL_RANK,
    LEAST_INTERLEAVED_RANK,
    MAX_RANK,
    ROW_BITS,
    STRIDE_END_BYTES,
    WIDE_128_PIXELS,
    WIDE_ALIGNMENT_BYTES,
)
from tilescope.tensor_map.record import ColumnRecord, MapOptions, MapRecord, TiledRecord, WideRecord
from tilescope.tensor_map.samples import BYTES, CUDA_H, H200, MATRIX, SLICES

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
    told = _IM2COL_RANK_BELOW if a.rank < LEAST_IM2COL_RANK else _IM2COL_RANK
    yield told.violation(rank=a.rank, least=LEAST_IM2COL_RANK, most=MAX_RANK)


def _too_many_dimensions_apart(a: TiledRecord) -> Iterator[Violation]:
    """More dimensions than a map has, of which no two make one."""
    if not _runs(a):
        yield RANK.violation(rank=a.rank, least=1, most=MAX_RANK)


def _too_many_dimensions_in_runs(a: TiledRecord) -> Iterator[Violation]:
    """More dimensions than a map has, of which two lie without a gap."""
    runs = _runs(a)
    if not runs:
        return
    whole = [axis for axis in runs if a.element_strides[axis] == a.element_strides[axis + 1] == 1]
    if not whole:
        yield RANK.violation(rank=a.rank, least=1, most=MAX_RANK)
        return
    axis = whole[0]
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
    """The dimensions, outermost first, that make one with the next: the box covers them, or one index of the next."""
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
    fix='Add dimensions of extent 1, dims = {dims}, or use interleave="none".',
    source=DRIVER,
    basis="measured",
    subjects=("tiled",),
    architectures=TMA_ARCHITECTURES,
    passing=SLICES,
    failing=SLICES | {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)},
)


def _without_channel_slices(a: TiledRecord) -> Iterator[Violation]:
    """A map with too few dimensions; those of extent 1 are added, and their strides are never taken."""
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


def _entries_outside(
    argument: str, entries: tuple[int, ...], most: int, below: Rule | Wording, above: Rule | Wording
) -> Iterator[Violation]:
    """A violation for each entry of an argument that is not 1 to `most`."""
    taken = tuple(nearest(number, 1, most) for number in entries)
    for axis, number in enumerate(entries):
        if number != taken[axis]:
            told = below if number < 1 else above
            yield told.violation(axis=axis, number=number, taken=taken[axis], change={argument: taken})


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
    return _entries_outside("dims", a.dims, LARGEST_DIM, below=_DIM_BELOW, above=DIM_RANGE)


STRIDE_ALIGNMENT = rule(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    argument="strides_bytes[{axis}]",
    found="strides_bytes[{axis}] = {stride} bytes",
    limit="strides are multiples of {multiple} bytes[[ with {cause}]]",
    fix="Pad dimension {axis} so that the next one steps {taken} bytes.",
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
    """What helps a stride that is no matter of padding; None where it is one."""
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
    taken = tuple(rounded_up(stride, a.cured_alignment_bytes) for stride in a.strides_bytes)
    for axis, stride in enumerate(a.strides_bytes):
        if stride != taken[axis]:
            yield STRIDE_ALIGNMENT.worded(fix=_stride_fix(a, axis)).violation(
                axis=axis,
                next_axis=axis + 1,
                stride=stride,
                taken=taken[axis],
                multiple=a.alignment_bytes,
                cause=_alignment_cause(a),
                change={"strides_bytes": taken},
            )


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
                multiple=16,
                change={"strides_bytes": taken},
            )


STRIDE_OVERLAP = rule(
    "stride-overlap",
    "Each stride steps over the whole of the dimensions with smaller strides: no two indices share bytes.",
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
            told = STRIDE_OVERLAP if stride else _BROADCAST
            step = rounded_up(reach, a.cured_alignment_bytes)
            yield told.violation(axis=axis, stride=stride, reach=reach, next=step)
        reach += max(0, stride * (extent - 1))


BOX_RANGE = rule(
    "box-range",
    "Every box extent is 1 to 256 elements.",
    argument="box[{axis}]",
    found="box[{axis}] = {number} elements",
    limit="1 to 256 elements",
    fix="Use {taken} and more copies.",
    source=DRIVER,
    basis="measured",
    subjects=("tiled",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"box": (64, 256)},
    failing=MATRIX | {"box": (64, 257)},
)
_BOX_BELOW = BOX_RANGE.worded(fix="Use {taken}.")


def _box_out_of_range(a: TiledRecord) -> Iterator[Violation]:
    return _entries_outside("box", a.box, LARGEST_BOX_EXTENT, below=_BOX_BELOW, above=BOX_RANGE)


INNER_MULTIPLE = rule(
    "inner-multiple",
    "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    argument="{inner}",
    found="{inner} = {elements} elements x {bits} bits = {row_bytes} bytes",
    limit="a row of the box is a multiple of 16 bytes",
    fix="Use {inner} = {taken}.",
    source=f"{CUDA_H} (there for interleave none only); {H200}",
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"box": (8, 64)},
    failing=MATRIX | {"box": (9, 64)},
)


def _cut_rows(a: MapRecord) -> Iterator[Violation]:
    bits = a.data_type.bits
    step = ROW_BITS // bits if ROW_BITS % bits == 0 else 64  # 64 six-bit values: 48 bytes
    taken = min(rounded_up(max(a.inner_elements, 1), step), LARGEST_BOX_EXTENT // step * step)
    whole_bytes, rest_bits = divmod(a.inner_elements * bits, 8)
    has_fraction = rest_bits and whole_bytes < (1 << 53)  # a float holds no larger number
    yield INNER_MULTIPLE.violation(
        inner=a.inner_argument,
        elements=a.inner_elements,
        bits=bits,
        row_bytes=whole_bytes + rest_bits / 8 if has_fraction else whole_bytes,
        taken=taken,
        change=a.inner_change(taken),
    )


SWIZZLE_SPAN = rule(
    "swizzle-span",
    "Without interleave, a row of the box is at most the swizzle's span.",
    argument="{inner}",
    found="{inner} = {elements} elements x {element_bytes:g} bytes = {row_bytes} bytes",
    limit="swizzle {swizzle} takes a row of at most {span} bytes",
    fix="Use {inner} <= {most} and one {copy} per span.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"swizzle": "128B"},
    failing=MATRIX | {"box": (128, 64), "swizzle": "128B"},
)


def _span_bytes(options: MapOptions) -> int:
    """The widest row that the swizzle takes; it has one."""
    assert options.swizzle.span_bytes is not None
    return options.swizzle.span_bytes


def _rows_beyond_span(a: MapRecord) -> Iterator[Violation]:
    span_bytes = _span_bytes(a)
    most = span_bytes * 8 // a.data_type.smem_bits
    yield SWIZZLE_SPAN.violation(
        inner=a.inner_argument,
        elements=a.inner_elements,
        element_bytes=a.data_type.smem_bits / 8,
        row_bytes=a.inner_bytes,
        swizzle=a.swizzle.name,
        span=span_bytes,
        most=most,
        copy="box" if a.subject == "tiled" else "copy",
        change=a.inner_change(most),
    )


ELEMENT_STRIDE_RANGE = rule(
    "element-stride-range",
    "Every element stride is 1 to 8, that of dim 0 too.",
    argument="element_strides[{axis}]",
    found="element_strides[{axis}] = {number}",
    limit="1 to 8",
    fix="Use 1, and multiply strides_bytes by the step.",
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"element_strides": (1, 8)},
    failing=MATRIX | {"element_strides": (1, 9)},
)
_ELEMENT_STRIDE_BELOW = ELEMENT_STRIDE_RANGE.worded(fix="Use 1.")


def _element_strides_out_of_range(a: MapRecord) -> Iterator[Violation]:
    return _entries_outside(
        "element_strides",
        a.element_strides,
        LARGEST_ELEMENT_STRIDE,
        below=_ELEMENT_STRIDE_BELOW,
        above=ELEMENT_STRIDE_RANGE,
    )


BOX_BYTES = rule(
    "box-bytes",
    "The box is at most 233,472 bytes: element bytes x the product of floor(box / element stride).",
    argument="box",
    found="a box of {box_bytes} bytes",
    limit="at most {most_bytes} bytes (228 KiB)",
    fix="Use box = {box} and more copies.",
    source=H200,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=BYTES | {"box": (256, 114, 8)},
    failing=BYTES | {"box": (256, 115, 8)},
)
_COLUMN_BYTES = BOX_BYTES.worded(
    argument="pixels_per_column",
    fix="Use channels_per_pixel = {channels_per_pixel}, pixels_per_column = {pixels_per_column} and more copies.",
)


def _is_too_large(a: MapRecord) -> bool:
    return min(a.element_strides) >= 1 and a.box_bytes > LARGEST_BOX_BYTES


def _large_boxes(a: TiledRecord) -> Iterator[Violation]:
    box = _halved(a)
    yield BOX_BYTES.violation(box_bytes=a.box_bytes, most_bytes=LARGEST_BOX_BYTES, box=box, change={"box": box})


def _halved(a: TiledRecord) -> tuple[int, ...]:
    """A box that fits: the outermost extents halved as often as it takes."""
    box = [nearest(extent, 1, LARGEST_BOX_EXTENT) for extent in a.box]
    axis = len(box) - 1
    while a.data_type.bits * prod(map(floordiv, box, a.element_strides)) // 8 > LARGEST_BOX_BYTES:
        if box[axis] == 1:
            axis -= 1
        box[axis] = max(1, box[axis] // 2)
    return tuple(box)


def _large_columns(a: ColumnRecord) -> Iterator[Violation]:
    most_elements = LARGEST_BOX_BYTES * 8 // a.data_type.bits
    is_wide_128 = isinstance(a, WideRecord) and a.mode == "W128"  # which always loads 128 pixels
    step = max(1, ROW_BITS // a.data_type.bits)
    most_channels = most_elements // (WIDE_128_PIXELS if is_wide_128 else 1) // step * step
    channels = min(nearest(a.channels_per_pixel, 1, LARGEST_BOX_EXTENT), most_channels)
    pixels = nearest(a.pixels_per_column, 1, min(LARGEST_PIXELS, most_elements // channels))
    yield _COLUMN_BYTES.violation(
        box_bytes=a.box_bytes,
        most_bytes=LARGEST_BOX_BYTES,
        channels_per_pixel=channels,
        pixels_per_column=pixels,
        change={"channels_per_pixel": channels, "pixels_per_column": pixels},
    )


NAN_FILL = rule(
    "nan-fill",
    "NaN fill is for floating-point types.",
    argument="oob_fill",
    found="oob_fill = nan with {data_type}",
    limit="only floating-point types have a NaN",
    fix='Use oob_fill="zero".',
    source=DRIVER,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"oob_fill": "nan"},
    failing=MATRIX | {"data_type": "u16", "oob_fill": "nan"},
)


def _nan_of_integers(a: MapRecord) -> Iterator[Violation]:
    yield NAN_FILL.violation(data_type=a.data_type.name, change={"oob_fill": "zero"})


INTERLEAVE_SWIZZLE = rule(
    "interleave-swizzle",
    "Interleave 32B goes with swizzle 32B.",
    argument="swizzle",
    found="interleave 32B with swizzle {swizzle}",
    limit="the documents allow swizzle 32B only; the driver accepts this",
    fix='Use swizzle="32B".',
    source=f"{CUDA_H}; the driver accepts others ({H200})",
    basis="measured",
    severity="warning",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=SLICES | {"interleave": "32B", "swizzle": "32B"},
    failing=SLICES | {"interleave": "32B"},
)


def _other_interleaved_swizzle(a: MapRecord) -> Iterator[Violation]:
    yield INTERLEAVE_SWIZZLE.violation(swizzle=a.swizzle.name, change={"swizzle": "32B"})


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
    Check(
        BOX_RANGE,
        reads=("box",),
        find=_box_out_of_range,
        broken=lambda a: min(a.box) < 1 or max(a.box) > LARGEST_BOX_EXTENT,
    ),
    Check(
        INNER_MULTIPLE,
        reads=("inner_elements", "data_type"),
        find=_cut_rows,
        broken=lambda a: a.inner_elements * a.data_type.bits % ROW_BITS != 0,
    ),
    Check(
        SWIZZLE_SPAN,
        reads=("inner_elements", "data_type", "swizzle", "interleave"),
        find=_rows_beyond_span,
        broken=lambda a: a.inner_bytes > _span_bytes(a),
        concerns=lambda options: options.swizzle.span_bytes is not None and not options.is_interleaved,
    ),
    Check(
        ELEMENT_STRIDE_RANGE,
        reads=("element_strides",),
        find=_element_strides_out_of_range,
        broken=lambda a: min(a.element_strides) < 1 or max(a.element_strides) > LARGEST_ELEMENT_STRIDE,
    ),
    Check(
        BOX_BYTES,
        reads=("element_strides", "box_bytes"),
        find=_large_boxes,
        broken=_is_too_large,
        only=("tiled",),
    ),
    Check(
        BOX_BYTES,
        reads=("element_strides", "box_bytes", "pixels_per_column"),
        find=_large_columns,
        broken=_is_too_large,
        only=("im2col", "wide"),
    ),
    Check(
        NAN_FILL,
        reads=("oob_fill", "data_type"),
        find=_nan_of_integers,
        concerns=lambda options: options.oob_fill.name == "nan" and not options.data_type.is_float,
    ),
    Check(
        INTERLEAVE_SWIZZLE,
        reads=("interleave", "swizzle"),
        find=_other_interleaved_swizzle,
        concerns=lambda options: options.interleave.name == "32B" and options.swizzle.name != "32B",
    ),
)
