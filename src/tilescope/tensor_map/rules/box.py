"""The box of a copy: its extents, its rows, its traversal, its size, its fill."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import floordiv
from typing import Any

from tilescope.errors import Violation
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Says, checked, nearest, option_rule, ranged, rounded_up
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
    limit="1 to 256 elements",
    below="Use {}.",
    above="Use {} and more copies.",
    unit=" elements",
    subjects=("tiled",),
    passing=MATRIX | {"box": (64, 256)},
    failing=MATRIX | {"box": (64, 257)},
)


@checked(
    "inner-multiple",
    "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    lambda a: a.inner_elements * a.data_type.bits % ROW_BITS,
    source=f"{CUDA_H} (there for interleave none only); {H200}",
    passing=MATRIX | {"box": (8, 64)},
    failing=MATRIX | {"box": (9, 64)},
)
def _inner_multiple(a: AnyMap, violation: Says) -> Iterator[Violation]:
    argument, elements, bits = a.inner_argument, a.inner_elements, a.data_type.bits
    step = ROW_BITS // bits if ROW_BITS % bits == 0 else 64  # 64 six-bit values: 48 bytes
    taken = min(rounded_up(max(elements, 1), step), LARGEST_EXTENT // step * step)
    numbers = {"elements": elements, "element_bits": bits, "row_bytes": elements * bits / 8}
    found = f"{argument} = {elements} elements x {bits} bits = {elements * bits / 8:g} bytes"
    limit, fix = "a row of the box is a multiple of 16 bytes", f"Use {argument} = {taken}."
    yield violation(argument, found, limit, fix, a.inner_change(taken), **numbers)


@checked(
    "swizzle-span",
    "Without interleave, a row of the box is at most the swizzle's span.",
    lambda a: a.swizzle.span_bytes and not a.interleave.slice_bytes and a.inner_bytes > a.swizzle.span_bytes,
    passing=MATRIX | {"swizzle": "128B"},
    failing=MATRIX | {"box": (128, 64), "swizzle": "128B"},
)
def _swizzle_span(a: AnyMap, violation: Says) -> Iterator[Violation]:
    argument, elements, element_bytes = a.inner_argument, a.inner_elements, a.data_type.smem_bits / 8
    span = a.swizzle.span_bytes or 0
    most = span * 8 // a.data_type.smem_bits
    numbers = {"element_bytes": element_bytes, "row_bytes": a.inner_bytes, "span_bytes": span, "most": most}
    found = f"{argument} = {elements} elements x {element_bytes:g} bytes = {a.inner_bytes} bytes"
    limit = f"swizzle {a.swizzle.name} takes a row of at most {span} bytes"
    fix = f"Use {argument} <= {most} and one {'box' if a.subject == 'tiled' else 'copy'} per span."
    yield violation(argument, found, limit, fix, a.inner_change(most), elements=elements, **numbers)


ranged(
    "element-stride-range",
    "Every element stride is 1 to 8, that of dim 0 too.",
    "element_strides",
    (1, 8),
    limit="1 to 8",
    below="Use 1.",
    above="Use 1, and multiply strides_bytes by the step.",
    passing=MATRIX | {"element_strides": (1, 8)},
    failing=MATRIX | {"element_strides": (1, 9)},
)


@checked(
    "box-bytes",
    "The box is at most 233,472 bytes: element bytes x the product of floor(box / element stride).",
    lambda a: min(a.element_strides) >= 1 and a.box_bytes > LARGEST_BOX_BYTES,
    source=H200,
    passing=BYTES | {"box": (256, 114, 8)},
    failing=BYTES | {"box": (256, 115, 8)},
)
def _box_bytes(a: Any, violation: Says) -> Iterator[Violation]:  # of whatever kind
    change = {"box": _halved(a)} if a.subject == "tiled" else _fewer_pixels(a)
    taken = ", ".join(f"{name} = {value}" for name, value in change.items())
    found, limit = f"a box of {a.box_bytes} bytes", f"at most {LARGEST_BOX_BYTES} bytes (228 KiB)"
    numbers = {"box_bytes": a.box_bytes, "limit_bytes": LARGEST_BOX_BYTES}
    yield violation([*change][-1], found, limit, f"Use {taken} and more copies.", change, **numbers)


def _halved(a: Any) -> tuple[int, ...]:
    """A box that fits: the outermost extents halved as often as it takes."""
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


option_rule(
    "nan-fill",
    "NaN fill is for floating-point types.",
    lambda a: a.oob_fill.name == "nan" and not a.data_type.is_float,
    found="oob_fill = nan with {a.data_type.name}",
    limit="only floating-point types have a NaN",
    change={"oob_fill": "zero"},
    passing=MATRIX | {"oob_fill": "nan"},
    failing=MATRIX | {"data_type": "u16", "oob_fill": "nan"},
)
option_rule(
    "interleave-swizzle",
    "Interleave 32B goes with swizzle 32B.",
    lambda a: a.interleave.name == "32B" and a.swizzle.name != "32B",
    found="interleave 32B with swizzle {a.swizzle.name}",
    limit="the documents allow swizzle 32B only; the driver accepts this",
    change={"swizzle": "32B"},
    severity="warning",
    source=f"{CUDA_H}; the driver accepts others ({H200})",
    passing=SLICES | {"interleave": "32B", "swizzle": "32B"},
    failing=SLICES | {"interleave": "32B"},
)
