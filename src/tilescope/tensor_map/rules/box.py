"""The box of a copy: its extents, its rows, its traversal, its size, its fill."""

from __future__ import annotations

from typing import Any

from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Geometry, TiledGeometry, floor_product, rounded_up
from tilescope.tensor_map.rules.samples import BYTES, CUDA_H, H200, MATRIX, SLICES

LARGEST_BOX_BYTES = 228 * 1024  # what the driver compares box_bytes with
LARGEST_EXTENT = 256
LARGEST_ELEMENT_STRIDE = 8
LARGEST_PIXELS = 1024
ROW_BITS = 128  # rows are multiples of 16 bytes


@checked(
    "box-range", "Every box extent is 1 to 256 elements.", source=f"{CUDA_H}; {H200}", subjects=("tiled",),
    reads=("box",), passing=MATRIX | {"box": (64, 256)}, failing=MATRIX | {"box": (64, 257)},
)  # fmt: skip
def _box_range(a: TiledGeometry) -> Found:
    if not a.box or (min(a.box) >= 1 and max(a.box) <= LARGEST_EXTENT):
        return ()
    nearest = tuple(min(max(extent, 1), LARGEST_EXTENT) for extent in a.box)
    return [
        Breach(
            f"box[{axis}]",
            f"box[{axis}] = {extent} elements",
            "1 to 256 elements",
            f"Use {nearest[axis]}" + (" and more copies." if extent > LARGEST_EXTENT else "."),
            {"box": nearest},
            {"extent": extent},
        )
        for axis, extent in enumerate(a.box)
        if extent != nearest[axis]
    ]


@checked(
    "inner-multiple", "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    source=f"{CUDA_H} (there for interleave none only); {H200}",
    reads=("box", "channels_per_pixel", "data_type", "dims"), passing=MATRIX | {"box": (8, 64)},
    failing=MATRIX | {"box": (9, 64)},
)  # fmt: skip
def _inner_multiple(a: Geometry) -> Found:
    bits = a.inner_elements * a.data_type.bits
    if bits % ROW_BITS == 0:
        return ()
    step = ROW_BITS // a.data_type.bits if ROW_BITS % a.data_type.bits == 0 else 64  # 64 six-bit values: 48 bytes
    nearest = min(rounded_up(max(a.inner_elements, 1), step), LARGEST_EXTENT // step * step)
    return Breach(
        a.inner_argument,
        f"{a.inner_argument} = {a.inner_elements} elements x {a.data_type.bits} bits = {bits / 8:g} bytes",
        "a row of the box is a multiple of 16 bytes", f"Use {a.inner_argument} = {nearest}.", a.inner_change(nearest),
        {"elements": a.inner_elements, "element_bits": a.data_type.bits, "row_bytes": bits / 8},
    )  # fmt: skip


@checked(
    "swizzle-span", "Without interleave, a row of the box is at most the swizzle's span.", source=f"{CUDA_H}; {H200}",
    reads=("box", "channels_per_pixel", "data_type", "swizzle", "interleave", "dims"),
    passing=MATRIX | {"swizzle": "128B"}, failing=MATRIX | {"box": (128, 64), "swizzle": "128B"},
)  # fmt: skip
def _swizzle_span(a: Geometry) -> Found:
    span = a.swizzle.span_bytes
    if span is None or a.interleave.slice_bytes or a.inner_bytes <= span:
        return ()
    name, most = a.inner_argument, span * 8 // a.data_type.smem_bits
    return Breach(
        name,
        f"{name} = {a.inner_elements} elements x {a.data_type.smem_bits / 8:g} bytes = {a.inner_bytes} bytes",
        f"swizzle {a.swizzle.name} takes a row of at most {span} bytes",
        f"Use {name} <= {most} and one {'box' if a.subject == 'tiled' else 'copy'} per span.",
        a.inner_change(most),
        {
            "elements": a.inner_elements,
            "element_bytes": a.data_type.smem_bits / 8,
            "row_bytes": a.inner_bytes,
            "span_bytes": span,
        },
    )


@checked(
    "element-stride-range", "Every element stride is 1 to 8, that of dim 0 too.", source=f"{CUDA_H}; {H200}",
    reads=("element_strides",), passing=MATRIX | {"element_strides": (1, 8)},
    failing=MATRIX | {"element_strides": (1, 9)},
)  # fmt: skip
def _element_stride_range(a: Geometry) -> Found:
    strides = a.element_strides
    if not strides or (min(strides) >= 1 and max(strides) <= LARGEST_ELEMENT_STRIDE):
        return ()
    nearest = tuple(min(max(stride, 1), LARGEST_ELEMENT_STRIDE) for stride in strides)
    return [
        Breach(
            f"element_strides[{axis}]",
            f"element_strides[{axis}] = {stride}",
            "1 to 8",
            "Use 1." if stride < 1 else "Use 1, and multiply strides_bytes by the step.",
            {"element_strides": nearest},
            {"element_stride": stride},
        )
        for axis, stride in enumerate(strides)
        if stride != nearest[axis]
    ]


@checked(
    "box-bytes", "The box is at most 233,472 bytes: element bytes x the product of floor(box / element stride).",
    source=H200,
    reads=("box", "channels_per_pixel", "pixels_per_column", "mode", "data_type", "element_strides", "dims"),
    passing=BYTES | {"box": (256, 114, 8)}, failing=BYTES | {"box": (256, 115, 8)},
)  # fmt: skip
def _box_bytes(a: Any) -> Found:  # of whatever kind
    if min(a.element_strides, default=1) < 1 or a.box_bytes <= LARGEST_BOX_BYTES:
        return ()
    if a.subject == "tiled":
        box = _halved(a)
        change: dict[str, object] = {"box": box}
        argument, fix = "box", f"Use box = {box} and more copies."
    else:
        channels, pixels = _fewer_pixels(a)
        argument = "pixels_per_column"
        fix = f"Use channels_per_pixel = {channels}, pixels_per_column = {pixels} and more copies."
        change = {"channels_per_pixel": channels, "pixels_per_column": pixels}
    return Breach(
        argument, f"a box of {a.box_bytes} bytes", f"at most {LARGEST_BOX_BYTES} bytes (228 KiB)", fix, change,
        {"box_bytes": a.box_bytes, "limit_bytes": LARGEST_BOX_BYTES},
    )  # fmt: skip


def _halved(a: TiledGeometry) -> tuple[int, ...]:
    """A box that fits: the outermost extents halved as often as it takes."""
    box = [min(max(extent, 1), LARGEST_EXTENT) for extent in a.box]
    axis = len(box) - 1
    while a.data_type.bits * floor_product(tuple(box), a.element_strides) // 8 > LARGEST_BOX_BYTES:
        if box[axis] == 1:
            axis -= 1
        box[axis] = max(1, box[axis] // 2)
    return tuple(box)


def _fewer_pixels(a: Any) -> tuple[int, int]:
    """Channels and pixels that fit; mode W128 always loads 128 pixels."""
    fixed = getattr(a, "mode", "W") == "W128"
    least_pixels = 128 if fixed else 1
    step = max(1, ROW_BITS // a.data_type.bits)
    most_channels = LARGEST_BOX_BYTES * 8 // (a.data_type.bits * least_pixels) // step * step
    channels = min(max(a.channels_per_pixel, 1), LARGEST_EXTENT, most_channels)
    pixels = LARGEST_BOX_BYTES * 8 // (channels * a.data_type.bits)
    return channels, max(1, min(a.pixels_per_column, LARGEST_PIXELS, pixels))


@checked(
    "nan-fill", "NaN fill is for floating-point types.", source=f"{CUDA_H}; {H200}", reads=("oob_fill", "data_type"),
    passing=MATRIX | {"oob_fill": "nan"}, failing=MATRIX | {"data_type": "u16", "oob_fill": "nan"},
)  # fmt: skip
def _nan_fill(a: Geometry) -> Found:
    if a.data_type.is_float or a.oob_fill.name != "nan":
        return ()
    return Breach(
        "oob_fill", f"oob_fill = nan with {a.data_type.name}", "only floating-point types have a NaN",
        'Use oob_fill="zero".', {"oob_fill": "zero"},
    )  # fmt: skip


@checked(
    "interleave-swizzle", "Interleave 32B goes with swizzle 32B.", severity="warning",
    source=f"{CUDA_H}; the driver accepts others ({H200})", reads=("interleave", "swizzle"),
    passing=SLICES | {"interleave": "32B", "swizzle": "32B"}, failing=SLICES | {"interleave": "32B"},
)  # fmt: skip
def _interleave_swizzle(a: Geometry) -> Found:
    if a.interleave.name != "32B" or a.swizzle.name == "32B":
        return ()
    return Breach(
        "swizzle", f"interleave 32B with swizzle {a.swizzle.name}",
        "the documents allow swizzle 32B only; the driver accepts this", 'Use swizzle="32B".', {"swizzle": "32B"},
    )  # fmt: skip
