"""The box of a copy: its extents, its rows, its traversal, its size, its fill."""

from __future__ import annotations

from math import prod
from operator import floordiv
from typing import Any

from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import checked, nearest, ranged, rounded_up
from tilescope.tensor_map.rules.samples import BYTES, CUDA_H, H200, MATRIX, SLICES

LARGEST_BOX_BYTES = 228 * 1024  # what the driver compares box_bytes with
LARGEST_EXTENT = 256
LARGEST_PIXELS = 1024
ROW_BITS = 128  # rows are multiples of 16 bytes

ranged(
    "box-range",
    "Every box extent is 1 to 256 elements.",
    "box",
    (1, LARGEST_EXTENT),
    "1 to 256 elements",
    "Use {}.",
    "Use {} and more copies.",
    " elements",
    subjects=("tiled",),
    examples=(MATRIX, {"box": (64, 256)}, {"box": (64, 257)}),
)


def _whole_rows(a: AnyMap) -> dict[str, Any]:
    elements, bits = a.inner_elements, a.data_type.bits
    step = ROW_BITS // bits if ROW_BITS % bits == 0 else 64  # 64 six-bit values: 48 bytes
    taken = min(rounded_up(max(elements, 1), step), LARGEST_EXTENT // step * step)
    numbers = {"elements": elements, "bits": bits, "row_bytes": elements * bits / 8, "taken": taken}
    return numbers | {"change": a.inner_change(taken)}


checked(
    "inner-multiple",
    "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    lambda a: a.inner_elements * a.data_type.bits % ROW_BITS,
    "{a.inner_argument}",
    "{a.inner_argument} = {elements} elements x {bits} bits = {row_bytes:g} bytes",
    "a row of the box is a multiple of 16 bytes",
    "Use {a.inner_argument} = {taken}.",
    values=_whole_rows,
    source=f"{CUDA_H} (there for interleave none only); {H200}",
    examples=(MATRIX, {"box": (8, 64)}, {"box": (9, 64)}),
)


def _within_span(a: AnyMap) -> dict[str, Any]:
    bits, span = a.data_type.smem_bits, a.swizzle.span_bytes or 0
    numbers = {"elements": a.inner_elements, "element_bytes": bits / 8, "row_bytes": a.inner_bytes, "span": span}
    copy = "box" if a.subject == "tiled" else "copy"
    return numbers | {"most": span * 8 // bits, "copy": copy, "change": a.inner_change(span * 8 // bits)}


checked(
    "swizzle-span",
    "Without interleave, a row of the box is at most the swizzle's span.",
    lambda a: a.swizzle.span_bytes and not a.interleave.slice_bytes and a.inner_bytes > a.swizzle.span_bytes,
    "{a.inner_argument}",
    "{a.inner_argument} = {elements} elements x {element_bytes:g} bytes = {row_bytes} bytes",
    "swizzle {a.swizzle.name} takes a row of at most {span} bytes",
    "Use {a.inner_argument} <= {most} and one {copy} per span.",
    values=_within_span,
    examples=(MATRIX, {"swizzle": "128B"}, {"box": (128, 64), "swizzle": "128B"}),
)
ranged(
    "element-stride-range",
    "Every element stride is 1 to 8, that of dim 0 too.",
    "element_strides",
    (1, 8),
    "1 to 8",
    "Use 1.",
    "Use 1, and multiply strides_bytes by the step.",
    examples=(MATRIX, {"element_strides": (1, 8)}, {"element_strides": (1, 9)}),
)


def _smaller(a: Any) -> dict[str, Any]:
    """The change to a box that fits."""
    change = {"box": _halved(a)} if a.subject == "tiled" else _fewer_pixels(a)
    taken = ", ".join(f"{name} = {value}" for name, value in change.items())
    return {"argument": [*change][-1], "box_bytes": a.box_bytes, "taken": taken, "change": change}


def _halved(a: Any) -> tuple[int, ...]:
    """The outermost extents halved as often as it takes."""
    box = [nearest(extent, 1, LARGEST_EXTENT) for extent in a.box]
    axis = len(box) - 1
    while a.data_type.bits * prod(map(floordiv, box, a.element_strides)) // 8 > LARGEST_BOX_BYTES:
        if box[axis] == 1:
            axis -= 1
        box[axis] = max(1, box[axis] // 2)
    return tuple(box)


def _fewer_pixels(a: Any) -> dict[str, Any]:
    """Channels and pixels that fit; mode W128 always loads 128 pixels."""
    most_elements = LARGEST_BOX_BYTES * 8 // a.data_type.bits
    step = max(1, ROW_BITS // a.data_type.bits)
    most_channels = most_elements // (128 if getattr(a, "mode", "W") == "W128" else 1) // step * step
    channels = min(nearest(a.channels_per_pixel, 1, LARGEST_EXTENT), most_channels)
    pixels = nearest(a.pixels_per_column, 1, min(LARGEST_PIXELS, most_elements // channels))
    return {"channels_per_pixel": channels, "pixels_per_column": pixels}


checked(
    "box-bytes",
    "The box is at most 233,472 bytes: element bytes x the product of floor(box / element stride).",
    lambda a: min(a.element_strides) >= 1 and a.box_bytes > LARGEST_BOX_BYTES,
    "{argument}",
    "a box of {box_bytes} bytes",
    f"at most {LARGEST_BOX_BYTES} bytes (228 KiB)",
    "Use {taken} and more copies.",
    values=_smaller,
    source=H200,
    examples=(BYTES, {"box": (256, 114, 8)}, {"box": (256, 115, 8)}),
)
checked(
    "nan-fill",
    "NaN fill is for floating-point types.",
    lambda a: a.oob_fill.name == "nan" and not a.data_type.is_float,
    "oob_fill",
    "oob_fill = nan with {a.data_type.name}",
    "only floating-point types have a NaN",
    change={"oob_fill": "zero"},
    examples=(MATRIX, {"oob_fill": "nan"}, {"data_type": "u16", "oob_fill": "nan"}),
)
checked(
    "interleave-swizzle",
    "Interleave 32B goes with swizzle 32B.",
    lambda a: a.interleave.name == "32B" and a.swizzle.name != "32B",
    "swizzle",
    "interleave 32B with swizzle {a.swizzle.name}",
    "the documents allow swizzle 32B only; the driver accepts this",
    change={"swizzle": "32B"},
    severity="warning",
    source=f"{CUDA_H}; the driver accepts others ({H200})",
    examples=(SLICES, {"interleave": "32B", "swizzle": "32B"}, {"interleave": "32B"}),
)
