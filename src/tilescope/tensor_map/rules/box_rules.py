"""The box of a copy: its extents, its rows, its traversal, its size, its fill."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import floordiv

from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import DRIVER, MAPS, TMA_ARCHITECTURES, Check, nearest
from tilescope.tensor_map.limits import (
    LARGEST_BOX_BYTES,
    LARGEST_BOX_EXTENT,
    LARGEST_ELEMENT_STRIDE,
    LARGEST_PIXELS,
    ROW_BITS,
    WIDE_128_PIXELS,
)
from tilescope.tensor_map.record import ColumnRecord, MapOptions, MapRecord, TiledRecord, WideRecord
from tilescope.tensor_map.rules.tensor_rules import entries_outside
from tilescope.tensor_map.samples import BYTES, CUDA_H, H200, MATRIX, SLICES

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
    return entries_outside("box", a.box, LARGEST_BOX_EXTENT, below=_BOX_BELOW, above=BOX_RANGE)


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
    "Without interleave, a row of the box is not wider than the swizzle's span.",
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
    "Every element stride is 1 to 8, including that of dim 0.",
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
    return entries_outside(
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
    box = _halve_box(a)
    yield BOX_BYTES.violation(box_bytes=a.box_bytes, most_bytes=LARGEST_BOX_BYTES, box=box, change={"box": box})


def _halve_box(a: TiledRecord) -> tuple[int, ...]:
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
    fix='Use {oob_fill:="zero"}.',
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
    limit="the documentation allows only swizzle 32B; the driver accepts this",
    fix='Use {swizzle:="32B"}.',
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
