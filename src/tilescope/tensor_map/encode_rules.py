"""What the driver demands of a map when it is encoded, rule by rule.

The verdict "error" equals the driver's INVALID_VALUE on an H200 (rules marked measured); warnings and
notes are what the driver lets pass although it is forbidden by the documents, dangerous, or slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map.rule import MAPS, rule, violation

if TYPE_CHECKING:
    from tilescope.tensor_map.maps import AnyMap, Im2colMap, Im2colWideMap, TensorMap

CUDA_H = "cuda.h, cuTensorMapEncodeTiled"
PTX_PACKED = 'PTX ISA, "cp.async.bulk.tensor": packed types'
H200 = "measured on an H200"
LARGEST_BOX_BYTES = 228 * 1024  # what the driver compares box_bytes with
ADDRESS_END = 1 << 57
STRIDE_END_BYTES = 1 << 40
LARGEST_DIM = 1 << 32
PADDED_TYPES = ("16u4_align16b", "16u6_align16b")  # spread out to 16 shared bytes for 16 values
PADDED_INNER_ELEMENTS = 128  # the only inner extent these take
MATRIX = {"data_type": "bf16", "dims": (4096, 4096), "strides_bytes": (8192,), "box": (64, 64)}
IMAGES = {
    "data_type": "f16", "dims": (64, 32, 32, 8), "strides_bytes": (128, 4096, 131072), "lower_corner": (-1, -1),
    "upper_corner": (-1, -1), "channels_per_pixel": 64, "pixels_per_column": 64,
}  # fmt: skip
WIDE = {
    "data_type": "f16", "dims": (64, 32, 32, 8), "strides_bytes": (128, 4096, 131072), "lower_width": -1,
    "upper_width": -1, "channels_per_pixel": 64, "pixels_per_column": 64, "swizzle": "128B", "arch": "sm_100",
}  # fmt: skip
PACKED = {
    "data_type": "16u4_align16b", "dims": (4096, 64), "strides_bytes": (2048,), "box": (128, 8), "swizzle": "128B",
    "arch": "sm_100",
}  # fmt: skip


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple at or above `number`."""
    return -(-number // multiple) * multiple


@rule(
    "arch-tma", "The architecture has TMA and can make this kind of map: sm_90 on, im2col-wide from sm_100 on.",
    source="cuda.h; ptxas", basis="documented", reads=("arch",),
    passing=MATRIX | {"arch": "sm_90"}, failing=MATRIX | {"arch": "sm_80"},
)  # fmt: skip
def _arch_tma(a: AnyMap) -> Iterable[Violation]:
    feature = "im2col_wide" if a.subject == "wide" else "tma"
    if not a.arch.has(feature):
        known = ", ".join(architectures_with(feature))
        yield violation(
            "arch-tma", "arch", f"arch = {a.arch.name}", f"{a.kind} exists on {known}",
            f'Use arch="{architectures_with(feature)[0]}".', {"arch": architectures_with(feature)[0]},
        )  # fmt: skip


@rule(
    "arch-data-type", "The packed 4- and 6-bit types exist from sm_100 on.", source=f"{CUDA_H}; {H200}",
    reads=("data_type", "arch"), passing=PACKED, failing=PACKED | {"arch": "sm_90"},
)  # fmt: skip
def _arch_data_type(a: AnyMap) -> Iterable[Violation]:
    if a.data_type.is_packed and not a.arch.has("packed_types"):
        yield violation(
            "arch-data-type", "data_type", f"data_type = {a.data_type.name} on {a.arch.name}",
            f"packed types exist on {', '.join(architectures_with('packed_types'))}",
            'Move the bytes as "uint8", or plan for sm_100.', {"arch": "sm_100"},
        )  # fmt: skip


@rule(
    "arch-swizzle", "128B atom modes exist from sm_100 on, 96B on sm_103 alone.",
    source=f'PTX ISA, "tensormap.replace"; {H200}', reads=("swizzle", "arch"),
    passing=MATRIX | {"swizzle": "128B_ATOM_32B", "arch": "sm_100"}, failing=MATRIX | {"swizzle": "128B_ATOM_32B"},
)  # fmt: skip
def _arch_swizzle(a: AnyMap) -> Iterable[Violation]:
    if a.swizzle.feature is not None and not a.arch.has(a.swizzle.feature) and a.arch.has("tma"):
        here = [row.name for row in SWIZZLE.values() if row.feature and a.arch.has(row.feature)]
        nearest = "128B" if a.swizzle.span_bytes == 128 else "none"  # 96B has no smaller relative
        yield violation(
            "arch-swizzle", "swizzle", f"swizzle = {a.swizzle.name} on {a.arch.name}",
            f"{a.arch.name} has {', '.join(here)}", f"Use one of these, or {' or '.join(a.swizzle.architectures)}.",
            {"swizzle": nearest},
        )  # fmt: skip


@rule(
    "rank", "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.", source=f"{CUDA_H}; {H200}", reads=("dims",),
    passing=MATRIX, failing={"data_type": "u8", "dims": (16,) * 6, "strides_bytes": (16,) * 5, "box": (16,) * 6},
)  # fmt: skip
def _rank(a: AnyMap) -> Iterable[Violation]:
    least = 1 if a.subject == "tiled" else 3
    if not least <= a.rank <= 5:
        yield violation(
            "rank", "dims", f"{a.rank} dimensions", f"a {a.kind} has {least} to 5",
            "Merge neighbouring dimensions whose strides allow it, or copy slice by slice."
            if a.rank > 5 else f"Add dimensions of extent 1 up to rank {least}.",
        )  # fmt: skip


@rule(
    "interleave-rank", "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    source=f"{CUDA_H}; {H200}", subjects=("tiled",), reads=("dims", "interleave"),
    passing={"data_type": "f16", "dims": (8, 8, 8), "strides_bytes": (128, 1024), "box": (8, 1, 8), "interleave": "16B"},
    failing={"data_type": "f16", "dims": (8, 8), "strides_bytes": (128,), "box": (8, 8), "interleave": "16B"},
)  # fmt: skip
def _interleave_rank(a: AnyMap) -> Iterable[Violation]:
    if a.interleave.slice_bytes and a.rank < 3:
        yield violation(
            "interleave-rank", "interleave", f"interleave = {a.interleave.name} with {a.rank} dimensions",
            "interleave needs 3 to 5: W, (H, (D,)) slices, N", 'Use interleave="none".', {"interleave": "none"},
        )  # fmt: skip


def _alignment(a: AnyMap) -> tuple[int, str]:
    """What addresses and strides must be a multiple of, and why."""
    if a.data_type.name in PADDED_TYPES:
        return 32, f"multiples of 32 bytes with {a.data_type.name}"
    if a.interleave.alignment_bytes > 16:
        return 32, "multiples of 32 bytes with interleave 32B"
    return 16, "multiples of 16 bytes"


@rule(
    "address-alignment", "The address is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    source=f"{CUDA_H}; {H200}", reads=("address", "interleave", "data_type"),
    passing=MATRIX | {"address": 0x1010}, failing=MATRIX | {"address": 0x1008},
)  # fmt: skip
def _address_alignment(a: AnyMap) -> Iterable[Violation]:
    multiple, limit = _alignment(a)
    if a.address % multiple:
        nearest = a.address // multiple * multiple
        yield violation(
            "address-alignment", "address", f"address = {a.address:#x}, {a.address % multiple} bytes past {nearest:#x}",
            f"addresses are {limit}",
            f"Start the tensor at {nearest:#x} and shift the coordinates, or align the allocation.", {"address": nearest},
        )  # fmt: skip


@rule(
    "address-range", "The address is 0 to 2^57 - 1; 0 is accepted.", source=H200, reads=("address",),
    passing=MATRIX | {"address": (1 << 57) - 16}, failing=MATRIX | {"address": 1 << 57},
)  # fmt: skip
def _address_range(a: AnyMap) -> Iterable[Violation]:
    if not 0 <= a.address < ADDRESS_END:
        yield violation(
            "address-range", "address", f"address = {a.address:#x}", "a device address is 0 to 2^57 - 1",
            "Pass the device pointer itself.", {"address": a.address % ADDRESS_END},
        )  # fmt: skip


@rule(
    "dim-range", "Every dim is 1 to 2^32 elements.", source=f"{CUDA_H}; {H200}", reads=("dims",),
    passing=MATRIX | {"dims": (1, 1 << 32)}, failing=MATRIX | {"dims": (64, 0)},
)  # fmt: skip
def _dim_range(a: AnyMap) -> Iterable[Violation]:
    for axis, extent in enumerate(a.dims):
        if not 1 <= extent <= LARGEST_DIM:
            nearest = min(max(extent, 1), LARGEST_DIM)
            changed = tuple(min(max(each, 1), LARGEST_DIM) for each in a.dims)
            yield violation(
                "dim-range", f"dims[{axis}]", f"dims[{axis}] = {extent}", "1 to 2^32 elements",
                f"Use {nearest}; a tensor without elements has no map.", {"dims": changed},
            )  # fmt: skip


@rule(
    "dim-packed", "dims[0] is a multiple of 128 for the padded packed types, of 2 for 16u4_align8b.",
    source=CUDA_H, basis="documented", reads=("dims", "data_type"), architectures=architectures_with("packed_types"),
    passing=PACKED, failing=PACKED | {"dims": (4000, 64)},
)  # fmt: skip
def _dim_packed(a: AnyMap) -> Iterable[Violation]:
    if a.data_type.is_packed:
        multiple = 128 if a.data_type.name in PADDED_TYPES else 2
        if a.dims[0] % multiple:
            wide = rounded_up(a.dims[0], multiple)
            yield violation(
                "dim-packed", "dims[0]", f"dims[0] = {a.dims[0]} values", f"a multiple of {multiple} with {a.data_type.name}",
                f"Pad the rows to {wide} values.", {"dims": (wide, *a.dims[1:])},
            )  # fmt: skip


@rule(
    "stride-alignment", "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    source=f"{CUDA_H}; {H200}", reads=("strides_bytes", "interleave", "data_type"),
    passing=MATRIX | {"strides_bytes": (8208,)}, failing=MATRIX | {"strides_bytes": (8200,)},
)  # fmt: skip
def _stride_alignment(a: AnyMap) -> Iterable[Violation]:
    multiple, limit = _alignment(a)
    for axis, stride in enumerate(a.strides_bytes):
        if stride % multiple:
            yield violation(
                "stride-alignment", f"strides_bytes[{axis}]", f"strides_bytes[{axis}] = {stride} bytes",
                f"strides are {limit}", f"Pad dimension {axis} so that the next one steps {rounded_up(stride, multiple)} bytes.",
                {"strides_bytes": tuple(rounded_up(each, multiple) for each in a.strides_bytes)},
            )  # fmt: skip


@rule(
    "stride-range", "Every stride is 0 to 2^40 - 1 bytes.", source=f"{CUDA_H}; {H200}", reads=("strides_bytes",),
    passing=MATRIX | {"strides_bytes": ((1 << 40) - 16,)}, failing=MATRIX | {"strides_bytes": (1 << 40,)},
)  # fmt: skip
def _stride_range(a: AnyMap) -> Iterable[Violation]:
    for axis, stride in enumerate(a.strides_bytes):
        if not 0 <= stride < STRIDE_END_BYTES:
            largest = STRIDE_END_BYTES - 32
            yield violation(
                "stride-range", f"strides_bytes[{axis}]", f"strides_bytes[{axis}] = {stride} bytes", "0 to 2^40 - 1 bytes",
                "A negative stride needs a flipped copy." if stride < 0 else "Split the tensor.",
                {"strides_bytes": tuple(min(max(each, 0), largest) for each in a.strides_bytes)},
            )  # fmt: skip


@rule(
    "stride-overlap", "Each stride steps over the whole of the dimensions inside it.", severity="warning",
    source=f"{CUDA_H} (documented construction; the driver accepts others)", reads=("strides_bytes", "dims", "data_type", "interleave"),
    passing=MATRIX, failing=MATRIX | {"strides_bytes": (64,)},
)  # fmt: skip
def _stride_overlap(a: AnyMap) -> Iterable[Violation]:
    reach = a.dims[0] * (a.interleave.slice_bytes * 8 if a.interleave.slice_bytes else a.data_type.bits) // 8
    for axis, (stride, extent) in enumerate(zip(a.strides_bytes, a.dims[1:], strict=True)):
        if stride < reach and extent > 1:
            what = (
                "every index reads the same bytes (a broadcast)" if stride == 0 else "neighbouring indices share bytes"
            )
            yield violation(
                "stride-overlap", f"strides_bytes[{axis}]",
                f"strides_bytes[{axis}] = {stride} bytes below the {reach} bytes inside it: {what}",
                "loads work; a store through such a map races with itself",
                "Leave it where overlap is meant (sliding windows, broadcasts).",
            )  # fmt: skip
        reach = max(reach, stride * (extent - 1) + reach)


@rule(
    "box-range", "Every box extent is 1 to 256 elements.", source=f"{CUDA_H}; {H200}", subjects=("tiled",),
    reads=("box",), passing=MATRIX | {"box": (64, 256)}, failing=MATRIX | {"box": (64, 257)},
)  # fmt: skip
def _box_range(a: TensorMap) -> Iterable[Violation]:
    for axis, extent in enumerate(a.box):
        if not 1 <= extent <= 256:
            nearest = min(max(extent, 1), 256)
            yield violation(
                "box-range", f"box[{axis}]", f"box[{axis}] = {extent} elements", "1 to 256 elements",
                f"Use {nearest}" + (" and more copies." if extent > 256 else "."),
                {"box": tuple(min(max(each, 1), 256) for each in a.box)},
            )  # fmt: skip


def _inner(a: Any, elements: int) -> dict[str, Any]:
    """The change that makes a row of the copy `elements` long."""
    return {"box": (elements, *a.box[1:])} if a.subject == "tiled" else {"channels_per_pixel": elements}


def _inner_name(a: Any) -> str:
    return "box[0]" if a.subject == "tiled" else "channels_per_pixel"


@rule(
    "inner-multiple", "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    source=f"{CUDA_H} (there for interleave none only); {H200}", reads=("box", "channels_per_pixel", "data_type", "dims"),
    passing=MATRIX | {"box": (8, 64)}, failing=MATRIX | {"box": (9, 64)},
)  # fmt: skip
def _inner_multiple(a: AnyMap) -> Iterable[Violation]:
    bits = a.inner_elements * a.data_type.bits
    if bits % 128:
        step = 128 // a.data_type.bits if 128 % a.data_type.bits == 0 else 64  # 64 six-bit values are 48 bytes
        up = rounded_up(max(a.inner_elements, 1), step)
        nearest = up if up <= 256 else 256 // step * step
        yield violation(
            "inner-multiple", _inner_name(a),
            f"{_inner_name(a)} = {a.inner_elements} elements x {a.data_type.bits} bits = {bits / 8:g} bytes",
            "a row of the box is a multiple of 16 bytes", f"Use {_inner_name(a)} = {nearest}.", _inner(a, nearest),
        )  # fmt: skip


@rule(
    "inner-packed", "The padded packed types take rows of exactly 128 values.", source=f"{CUDA_H}; {PTX_PACKED}",
    basis="documented", reads=("box", "channels_per_pixel", "data_type", "dims"),
    architectures=architectures_with("packed_types"), passing=PACKED, failing=PACKED | {"box": (64, 8)},
)  # fmt: skip
def _inner_packed(a: AnyMap) -> Iterable[Violation]:
    if a.data_type.name in PADDED_TYPES and a.inner_elements != PADDED_INNER_ELEMENTS:
        yield violation(
            "inner-packed", _inner_name(a), f"{_inner_name(a)} = {a.inner_elements} values",
            f"exactly 128 values with {a.data_type.name}", f"Use {_inner_name(a)} = 128.", _inner(a, PADDED_INNER_ELEMENTS),
        )  # fmt: skip


@rule(
    "swizzle-span", "Without interleave, a row of the box is at most the swizzle's span.", source=f"{CUDA_H}; {H200}",
    reads=("box", "channels_per_pixel", "data_type", "swizzle", "interleave", "dims"),
    passing=MATRIX | {"swizzle": "128B"}, failing=MATRIX | {"box": (128, 64), "swizzle": "128B"},
)  # fmt: skip
def _swizzle_span(a: AnyMap) -> Iterable[Violation]:
    span = a.swizzle.span_bytes
    if span is not None and not a.interleave.slice_bytes and a.inner_bytes > span:
        most = span * 8 // a.data_type.smem_bits
        yield violation(
            "swizzle-span", _inner_name(a),
            f"{_inner_name(a)} = {a.inner_elements} elements x {a.data_type.smem_bits / 8:g} bytes = {a.inner_bytes} bytes",
            f"swizzle {a.swizzle.name} takes a row of at most {span} bytes",
            f"Use {_inner_name(a)} <= {most} and one {'box' if a.subject == 'tiled' else 'copy'} per span.", _inner(a, most),
        )  # fmt: skip


@rule(
    "element-stride-range", "Every element stride is 1 to 8, that of dim 0 too.", source=f"{CUDA_H}; {H200}",
    reads=("element_strides",), passing=MATRIX | {"element_strides": (1, 8)}, failing=MATRIX | {"element_strides": (1, 9)},
)  # fmt: skip
def _element_stride_range(a: AnyMap) -> Iterable[Violation]:
    for axis, stride in enumerate(a.element_strides):
        if not 1 <= stride <= 8:
            yield violation(
                "element-stride-range", f"element_strides[{axis}]", f"element_strides[{axis}] = {stride}", "1 to 8",
                "Fold a larger step into strides_bytes.",
                {"element_strides": tuple(min(max(each, 1), 8) for each in a.element_strides)},
            )  # fmt: skip


@rule(
    "box-bytes", "The box is at most 233,472 bytes: element bytes x the product of floor(box / element stride).",
    source=H200, reads=("box", "channels_per_pixel", "pixels_per_column", "data_type", "element_strides", "dims"),
    passing={"data_type": "u8", "dims": (256, 1024, 8), "strides_bytes": (256, 262144), "box": (256, 114, 8)},
    failing={"data_type": "u8", "dims": (256, 1024, 8), "strides_bytes": (256, 262144), "box": (256, 115, 8)},
)  # fmt: skip
def _box_bytes(a: Any) -> Iterable[Violation]:
    if min(a.element_strides, default=1) < 1 or a.box_bytes <= LARGEST_BOX_BYTES:
        return
    if a.subject == "tiled":
        box = [min(max(each, 1), 256) for each in a.box]
        axis = len(box) - 1
        while a.data_type.bits * _floor_product(box, a.element_strides) // 8 > LARGEST_BOX_BYTES:
            if box[axis] == 1:
                axis -= 1
            box[axis] = max(1, box[axis] // 2)
        how, change = f"Use box = {tuple(box)} and more copies.", {"box": tuple(box)}
    else:
        channels = min(max(a.channels_per_pixel, 1), 256)
        pixels = max(1, min(1024, LARGEST_BOX_BYTES * 8 // (channels * a.data_type.bits)))
        how = f"Use channels_per_pixel = {channels}, pixels_per_column <= {pixels} and more copies."
        change = {"channels_per_pixel": channels, "pixels_per_column": pixels}
    yield violation(
        "box-bytes", "box" if a.subject == "tiled" else "pixels_per_column", f"a box of {a.box_bytes} bytes",
        f"at most {LARGEST_BOX_BYTES} bytes (228 KiB)", how, change,
    )  # fmt: skip


def _floor_product(box: list[int], element_strides: tuple[int, ...]) -> int:
    product = 1
    for extent, stride in zip(box, element_strides, strict=True):
        product *= extent // stride
    return product


@rule(
    "nan-fill", "NaN fill is for floating-point types.", source=f"{CUDA_H}; {H200}", reads=("oob_fill", "data_type"),
    passing=MATRIX | {"oob_fill": "nan"}, failing=MATRIX | {"data_type": "u16", "oob_fill": "nan"},
)  # fmt: skip
def _nan_fill(a: AnyMap) -> Iterable[Violation]:
    if a.oob_fill.name == "nan" and not a.data_type.is_float:
        yield violation(
            "nan-fill", "oob_fill", f"oob_fill = nan with {a.data_type.name}", "only floating-point types have a NaN",
            'Use oob_fill="zero".', {"oob_fill": "zero"},
        )  # fmt: skip


@rule(
    "interleave-swizzle", "Interleave 32B goes with swizzle 32B.", severity="warning",
    source=f"{CUDA_H}; the driver accepts others ({H200})", reads=("interleave", "swizzle"),
    passing={"data_type": "f16", "dims": (8, 8, 8), "strides_bytes": (256, 2048), "box": (8, 1, 8), "interleave": "32B", "swizzle": "32B"},
    failing={"data_type": "f16", "dims": (8, 8, 8), "strides_bytes": (256, 2048), "box": (8, 1, 8), "interleave": "32B"},
)  # fmt: skip
def _interleave_swizzle(a: AnyMap) -> Iterable[Violation]:
    if a.interleave.name == "32B" and a.swizzle.name != "32B":
        yield violation(
            "interleave-swizzle", "swizzle", f"interleave 32B with swizzle {a.swizzle.name}",
            "the documents allow swizzle 32B only; the driver accepts this", 'Use swizzle="32B".', {"swizzle": "32B"},
        )  # fmt: skip


@rule(
    "packed-interleave", "16u6_align16b takes no interleave.", source=CUDA_H, basis="documented",
    reads=("interleave", "data_type"), architectures=architectures_with("packed_types"),
    passing=PACKED, failing=PACKED | {
        "data_type": "16u6_align16b", "dims": (128, 8, 8), "strides_bytes": (96, 768), "box": (128, 1, 8), "interleave": "16B",
    },
)  # fmt: skip
def _packed_interleave(a: AnyMap) -> Iterable[Violation]:
    if a.data_type.name == "16u6_align16b" and a.interleave.slice_bytes:
        yield violation(
            "packed-interleave", "interleave", f"interleave = {a.interleave.name} with 16u6_align16b",
            "16u6_align16b takes no interleave", 'Use interleave="none".', {"interleave": "none"},
        )  # fmt: skip


_PADDED_SWIZZLES = {
    "16u4_align16b": ("none", "128B", "128B_ATOM_32B"),
    "16u6_align16b": ("none", "128B", "128B_ATOM_32B", "128B_ATOM_64B"),
}


@rule(
    "packed-swizzle", "The padded packed types take swizzle none, 128B, 128B_ATOM_32B (16u6 stores also 128B_ATOM_64B).",
    source=f"{CUDA_H} (narrower than PTX)", basis="documented", reads=("swizzle", "data_type"),
    architectures=architectures_with("packed_types"), passing=PACKED, failing=PACKED | {"swizzle": "64B"},
)  # fmt: skip
def _packed_swizzle(a: AnyMap) -> Iterable[Violation]:
    allowed = _PADDED_SWIZZLES.get(a.data_type.name)
    if allowed is not None and a.swizzle.name not in allowed:
        yield violation(
            "packed-swizzle", "swizzle", f"swizzle = {a.swizzle.name} with {a.data_type.name}",
            f"{a.data_type.name} takes {', '.join(allowed)}", 'Use swizzle="128B".', {"swizzle": "128B"},
        )  # fmt: skip


@rule(
    "smem-capacity", "The shared memory of one copy fits the largest a block can have.", severity="warning",
    source="CUDA programming guide, compute capabilities; the driver's own check can miss it", basis="documented",
    reads=("box", "channels_per_pixel", "pixels_per_column", "data_type", "element_strides", "swizzle", "interleave", "dims", "arch", "mode"),
    passing=MATRIX | {"box": (64, 256), "swizzle": "128B"},
    failing={"data_type": "u8", "dims": (16, 256, 256), "strides_bytes": (16, 4096), "box": (16, 256, 256), "element_strides": (1, 5, 1), "swizzle": "128B"},
)  # fmt: skip
def _smem_capacity(a: AnyMap) -> Iterable[Violation]:
    if min(a.element_strides, default=1) < 1 or (a.interleave.slice_bytes and a.rank < 3):
        return
    largest = max(a.smem_bytes, a.transaction_bytes)
    if largest > a.arch.smem_per_block_bytes > 0:
        yield violation(
            "smem-capacity", "box" if a.subject == "tiled" else "pixels_per_column",
            f"a copy of {largest} shared bytes ({a.rows} rows of {a.pitch_bytes})",
            f"a block of {a.arch.name} has at most {a.arch.smem_per_block_bytes} bytes", "Use a smaller box and more copies.",
        )  # fmt: skip


CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of a corner, by rank


def corner_range(rank: int) -> tuple[int, int]:
    """Smallest and largest corner of a map of this rank: 16, 8 or 5 signed bits for rank 3, 4, 5."""
    bits = CORNER_BITS.get(rank, 16)
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


@rule(
    "corner-range", "Corners fit 16, 8 or 5 signed bits for rank 3, 4, 5.", source=f"cuda.h, cuTensorMapEncodeIm2col; {H200}",
    subjects=("im2col",), reads=("lower_corner", "upper_corner", "dims"),
    passing=IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608), "lower_corner": (-128, 127)},
    failing=IMAGES | {"dims": (64, 256, 256, 8), "strides_bytes": (128, 32768, 8388608), "lower_corner": (-129, 0)},
)  # fmt: skip
def _corner_range(a: Im2colMap) -> Iterable[Violation]:
    low, high = corner_range(a.rank)
    for argument in ("lower_corner", "upper_corner"):
        corner = getattr(a, argument)
        for axis, place in enumerate(corner):
            if not low <= place <= high:
                yield violation(
                    "corner-range", f"{argument}[{axis}]", f"{argument}[{axis}] = {place}",
                    f"{low} to {high} for rank {a.rank}", "Use a smaller padding or filter.",
                    {argument: tuple(min(max(each, low), high) for each in corner)},
                )  # fmt: skip


def _signed_32(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


@rule(
    "bounding-box", "The bounding box holds at least one pixel in each spatial dim: dim + upper - lower >= 1.",
    source=f"cuda.h, cuTensorMapEncodeIm2col; computed in signed 32 bits ({H200})", subjects=("im2col",),
    reads=("lower_corner", "upper_corner", "dims", "interleave"),
    passing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-31, -31)},
    failing=IMAGES | {"lower_corner": (0, 0), "upper_corner": (-32, -31)},
)  # fmt: skip
def _bounding_box(a: Im2colMap) -> Iterable[Violation]:
    first = 0 if a.interleave.slice_bytes else 1  # interleaved dims start with W
    for axis, (lower, upper) in enumerate(zip(a.lower_corner, a.upper_corner, strict=True)):
        extent = a.dims[first + axis]
        if _signed_32(extent + upper - lower) < 1:
            yield violation(
                "bounding-box", f"upper_corner[{axis}]",
                f"dims[{first + axis}] + upper - lower = {extent} + {upper} - {lower} = {_signed_32(extent + upper - lower)} pixels",
                "at least 1 pixel in each spatial dim (the driver counts in signed 32 bits)",
                "Raise upper_corner or lower lower_corner: lower = -pad, upper = pad - (filter - 1) * dilation.",
            )  # fmt: skip


@rule(
    "channels-range", "channels_per_pixel is 1 to 256.", source=f"cuda.h, cuTensorMapEncodeIm2col; {H200}",
    subjects=("im2col", "wide"), reads=("channels_per_pixel",),
    passing=IMAGES | {"channels_per_pixel": 256}, failing=IMAGES | {"channels_per_pixel": 264},
)  # fmt: skip
def _channels_range(a: Im2colMap | Im2colWideMap) -> Iterable[Violation]:
    if not 1 <= a.channels_per_pixel <= 256:
        nearest = min(max(a.channels_per_pixel, 1), 256)
        yield violation(
            "channels-range", "channels_per_pixel", f"channels_per_pixel = {a.channels_per_pixel}", "1 to 256",
            f"Use {nearest}.", {"channels_per_pixel": nearest},
        )  # fmt: skip


@rule(
    "pixels-range", "pixels_per_column is 1 to 1024.", source=f"cuda.h, cuTensorMapEncodeIm2col; {H200}",
    subjects=("im2col", "wide"), reads=("pixels_per_column",),
    passing=IMAGES | {"pixels_per_column": 1024, "channels_per_pixel": 8}, failing=IMAGES | {"pixels_per_column": 1025},
)  # fmt: skip
def _pixels_range(a: Im2colMap | Im2colWideMap) -> Iterable[Violation]:
    if not 1 <= a.pixels_per_column <= 1024:
        nearest = min(max(a.pixels_per_column, 1), 1024)
        yield violation(
            "pixels-range", "pixels_per_column", f"pixels_per_column = {a.pixels_per_column}", "1 to 1024",
            f"Use {nearest}" + (" and more copies." if a.pixels_per_column > 1024 else "."), {"pixels_per_column": nearest},
        )  # fmt: skip


@rule(
    "wide-corner", "The width corners fit 16 signed bits and leave at least one pixel.", source="cuda.h, cuTensorMapEncodeIm2colWide",
    basis="documented", subjects=("wide",), reads=("lower_width", "upper_width", "dims"),
    architectures=architectures_with("im2col_wide"), passing=WIDE, failing=WIDE | {"lower_width": -40000},
)  # fmt: skip
def _wide_corner(a: Im2colWideMap) -> Iterable[Violation]:
    low, high = corner_range(3)
    for argument in ("lower_width", "upper_width"):
        place = getattr(a, argument)
        if not low <= place <= high:
            nearest = min(max(place, low), high)
            yield violation(
                "wide-corner",
                argument,
                f"{argument} = {place}",
                f"{low} to {high}",
                "Use a smaller padding.",
                {argument: nearest},
            )
    if a.rank >= 2 and a.dims[1] + a.upper_width - a.lower_width < 1:
        yield violation(
            "wide-corner", "upper_width", f"dims[1] + upper - lower = {a.dims[1] + a.upper_width - a.lower_width} pixels",
            "at least 1 pixel", "Raise upper_width or lower lower_width.",
        )  # fmt: skip


_WIDE_SWIZZLES = ("64B", "96B", "128B", "128B_ATOM_32B")


@rule(
    "wide-swizzle", "An im2col-wide map is swizzled 64B, 128B or 128B_ATOM_32B (96B in mode W), and not interleaved.",
    source='cuda.h, cuTensorMapEncodeIm2colWide; PTX ISA, "Interleave layout"', basis="documented", subjects=("wide",),
    reads=("swizzle", "interleave", "mode"), architectures=architectures_with("im2col_wide"), passing=WIDE, failing=WIDE | {"swizzle": "32B"},
)  # fmt: skip
def _wide_swizzle(a: Im2colWideMap) -> Iterable[Violation]:
    if a.swizzle.name not in _WIDE_SWIZZLES or (a.swizzle.name == "96B" and a.mode != "W"):
        yield violation(
            "wide-swizzle", "swizzle", f"swizzle = {a.swizzle.name} in mode {a.mode}", "64B, 128B or 128B_ATOM_32B; 96B in mode W",
            'Use swizzle="128B".', {"swizzle": "128B"},
        )  # fmt: skip
    if a.interleave.slice_bytes:
        yield violation(
            "wide-swizzle", "interleave", f"interleave = {a.interleave.name}", "im2col-wide takes no interleave",
            'Use interleave="none".', {"interleave": "none"},
        )  # fmt: skip


@rule(
    "wide-mode", "Mode W128 needs an architecture with im2col::w::128.", source="ptxas; PTX ISA, im2col::w::128",
    basis="documented", subjects=("wide",), reads=("mode", "arch"), architectures=architectures_with("im2col_wide"),
    passing=WIDE | {"mode": "W128"}, failing=WIDE | {"mode": "W128", "arch": "sm_120"},
)  # fmt: skip
def _wide_mode(a: Im2colWideMap) -> Iterable[Violation]:
    if a.mode == "W128" and a.arch.has("im2col_wide") and not a.arch.has("im2col_wide_128"):
        yield violation(
            "wide-mode", "mode", f"mode = W128 on {a.arch.name}", f"W128 exists on {', '.join(architectures_with('im2col_wide_128'))}",
            'Use mode="W".', {"mode": "W"},
        )  # fmt: skip


@rule(
    "swizzle-96B", "No driver call makes a 96B map; tensormap.replace does, with interleave none and unpadded types.",
    severity="warning", source='PTX ISA, "tensormap.replace"; cuda.h has no such enumerator', basis="documented",
    reads=("swizzle", "arch"), architectures=architectures_with("swizzle_96B"),
    passing=MATRIX | {"swizzle": "64B", "box": (32, 64), "arch": "sm_103"}, failing=MATRIX | {"box": (48, 64), "swizzle": "96B", "arch": "sm_103"},
)  # fmt: skip
def _swizzle_96(a: AnyMap) -> Iterable[Violation]:
    if a.swizzle.name == "96B" and a.arch.has("swizzle_96B"):
        yield violation(
            "swizzle-96B", "swizzle", "swizzle = 96B", "the driver has no enumerator for it",
            "Encode with swizzle 64B and set swizzle_mode 4 with tensormap.replace on sm_103a.",
        )  # fmt: skip


@rule(
    "box-larger", "A box larger than the tensor is filled beyond its end.", severity="note",
    source="accepted by the driver", subjects=("tiled",), reads=("box", "dims", "interleave"), passing=MATRIX,
    failing=MATRIX | {"dims": (4096, 32)},
)  # fmt: skip
def _box_larger(a: TensorMap) -> Iterable[Violation]:
    for axis, (extent, whole) in enumerate(zip(a.box, a.dims, strict=True)):
        if 1 <= whole < extent <= 256 and not (a.interleave.slice_bytes and axis == a.rank - 2):
            yield violation(
                "box-larger", f"box[{axis}]", f"box[{axis}] = {extent} over dims[{axis}] = {whole}",
                "the rest of the box is fill, and counts in the transaction", f"Use box[{axis}] = {whole} if that is not meant.",
            )  # fmt: skip


@rule(
    "store-overrun", "Rows of the tensor end on a multiple of 16 bytes, if it is ever stored to.", severity="note",
    source=H200, reads=("dims", "data_type", "interleave"), passing=MATRIX,
    failing={"data_type": "bf16", "dims": (100, 64), "strides_bytes": (208,), "box": (64, 64)},
)  # fmt: skip
def _store_overrun(a: AnyMap) -> Iterable[Violation]:
    row_bits = a.dims[0] * a.data_type.bits
    if row_bits % 128 and not a.interleave.slice_bytes and row_bits > 0:
        beyond = (rounded_up(row_bits, 128) - row_bits) // 8
        yield violation(
            "store-overrun", "dims[0]", f"dims[0] = {a.dims[0]} elements end {row_bits // 8 % 16} bytes into a 16-byte piece",
            f"a store or reduction also overwrites the {beyond} bytes behind the last element of each row",
            "Keep padding there, and do not store to it where it holds neighbouring data.",
        )  # fmt: skip


@rule(
    "address-128", "Under a swizzle the global address is a multiple of 128 bytes.", severity="note",
    source="CUDA programming guide, swizzle table (asks for it); 16 bytes work", reads=("address", "swizzle"),
    passing=MATRIX | {"swizzle": "128B", "address": 0x1080}, failing=MATRIX | {"swizzle": "128B", "address": 0x1010},
)  # fmt: skip
def _address_128(a: AnyMap) -> Iterable[Violation]:
    if a.swizzle.bits and a.address % 128 and a.address % 16 == 0:
        yield violation(
            "address-128", "address", f"address = {a.address:#x} under swizzle {a.swizzle.name}",
            "the guide asks for 128 bytes; 16 is enough for the hardware", "Align the allocation to 128 bytes for whole cache lines.",
            {"address": a.address // 128 * 128},
        )  # fmt: skip


@rule(
    "l2-256B", "L2 promotion 128B.", severity="note", source=f"{H200}: 256B never won",
    reads=("l2_promotion",), passing=MATRIX | {"l2_promotion": "128B"}, failing=MATRIX | {"l2_promotion": "256B"},
)  # fmt: skip
def _l2_256(a: AnyMap) -> Iterable[Violation]:
    if a.l2_promotion.name == "256B":
        yield violation(
            "l2-256B", "l2_promotion", "l2_promotion = 256B", "128B moved up to 12 % more bytes a second on an H200",
            'Use l2_promotion="128B".', {"l2_promotion": "128B"},
        )  # fmt: skip


__all__ = ["CUDA_H", "H200", "MAPS", "MATRIX", "corner_range", "rounded_up"]
