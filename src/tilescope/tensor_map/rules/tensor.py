"""The tensor in global memory, and the box of a copy: rank, address, dims, strides; rows, traversal, size, fill."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from operator import floordiv, gt, mul
from typing import Any

from tilescope.arithmetic import rounded_up
from tilescope.sentence import counted
from tilescope.tensor_map.any_map import AnyMap, row_bytes
from tilescope.tensor_map.checking import Facts, ManyFacts, checked, nearest, ranged
from tilescope.tensor_map.rules.arch import takes_half_rows
from tilescope.tensor_map.samples import BYTES, CUDA_H, H200, MATRIX, SLICES

ADDRESS_END = 1 << 57
STRIDE_END_BYTES = 1 << 40


def _rank_facts(a: AnyMap) -> Facts:
    kind, least = ("a tiled", 1) if a.subject == "tiled" else ("an im2col", 3)
    facts = {"rank": a.rank, "dimensions": counted(a.rank, "dimension"), "least": least, "kind": kind}
    if a.rank < least:
        return facts | {"fix": f"Add dimensions of extent 1 up to rank {least}."}
    axis = _mergeable(a)
    if axis is None:
        return facts | {"fix": "Use a map of the five inner dimensions, and one copy for each slice of the others."}
    merged = {name: _with_merged(getattr(a, name), axis) for name in ("dims", "box", "element_strides")}
    change = merged | {"strides_bytes": a.strides_bytes[:axis] + a.strides_bytes[axis + 1 :]}
    fix = f"Merge dims {axis} and {axis + 1}, which have no gap between them: dims = {merged['dims']}."
    return facts | {"fix": fix, "change": change}


def _mergeable(a: Any) -> int | None:
    """The outermost dimension of a tiled map that makes one with the next: the box covers it, or one index of the next."""
    for axis in range(a.rank - 2, 0, -1) if a.subject == "tiled" else ():
        has_no_gap = a.strides_bytes[axis] == a.strides_bytes[axis - 1] * a.dims[axis]
        is_one_run = a.box[axis] == a.dims[axis] or a.box[axis + 1] == 1
        if has_no_gap and is_one_run and a.element_strides[axis] == a.element_strides[axis + 1] == 1:
            return axis
    return None


def _with_merged(entries: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*entries[:axis], entries[axis] * entries[axis + 1], *entries[axis + 2 :])


RANK = checked(
    "rank",
    "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.",
    lambda a: not (1 if a.subject == "tiled" else 3) <= len(a.dims) <= 5,
    "{dimensions}",
    "{kind} map has {least} to 5",
    argument="dims",
    values=_rank_facts,
    examples=(
        MATRIX,
        {},
        {
            "dims": (16, 8, 8, 8, 8, 8),
            "strides_bytes": (32, 256, 2048, 16384, 131072),
            "box": (16, 8, 8, 1, 1, 1),
        },
    ),
)


def _with_channel_slices(a: Any) -> Facts:
    """The map with dimensions of extent 1 up to rank 3; their strides are never taken."""
    missing = 3 - a.rank
    reach = a.strides_bytes[-1] * a.dims[-1] if a.strides_bytes else a.dims[0] * a.interleave.slice_bytes
    change = {name: (*getattr(a, name), *(1,) * missing) for name in ("dims", "box", "element_strides")}
    change["strides_bytes"] = (*a.strides_bytes, *(reach,) * missing)
    return {"rank": a.rank, "dims": change["dims"], "change": change}


checked(
    "interleave-rank",
    "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    lambda a: a.interleave.slice_bytes and 0 < a.rank < 3,
    "interleave = {a.interleave.name} with rank {rank}",
    "interleave needs rank 3 to 5: W, (H, (D,)) slices, N",
    'Add dimensions of extent 1, dims = {dims}, or use interleave="none".',
    values=_with_channel_slices,
    subjects=("tiled",),
    examples=(SLICES, {}, {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)}),
)


def _alignment(a: AnyMap) -> tuple[int, str]:
    """What addresses and strides must be a multiple of, and why."""
    if a.is_padded and not takes_half_rows(a):
        return 32, f" with {a.data_type.name}"
    return (32, " with interleave 32B") if a.interleave.slice_bytes == 32 else (16, "")


def _cured_multiple(a: AnyMap) -> int:
    """What a cured address or stride is a multiple of: loads of padded types need 32 where a store takes 16."""
    return 32 if a.is_padded else _alignment(a)[0]


def _address_facts(a: AnyMap) -> Facts:
    multiple, why = _alignment(a)
    start = a.address // _cured_multiple(a) * _cured_multiple(a)
    facts = {"address": a.address, "beyond": a.address - start, "start": start, "multiple": multiple, "why": why}
    return facts | {"change": {"address": start}}


checked(
    "address-alignment",
    "The address is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    lambda a: a.address % 32 and a.address % _alignment(a)[0],
    "address = {address:#x}, {beyond} bytes past {start:#x}",
    "addresses are multiples of {multiple} bytes{why}",
    "Start the tensor at {start:#x} and shift the coordinates, or align the allocation.",
    values=_address_facts,
    examples=(MATRIX, {"address": 0x1010}, {"address": 0x1008}),
)
checked(
    "address-range",
    "The address is 0 to 2^57 - 1; 0 is accepted.",
    lambda a: not 0 <= a.address < ADDRESS_END,
    "address = {address:#x}",
    "a device address is 0 to 2^57 - 1",
    "Pass the device pointer without upper bits: {low:#x}.",
    values=lambda a: {
        "address": a.address,
        "low": a.address % ADDRESS_END,
        "change": {"address": a.address % ADDRESS_END},
    },
    source=H200,
    examples=(MATRIX, {"address": (1 << 57) - 16}, {"address": 1 << 57}),
)
ranged(
    "dim-range",
    "Every dim is 1 to 2^32 elements.",
    "dims",
    1 << 32,
    "1 to 2^32 elements",
    "Use {}; a tensor without elements has no map.",
    "Use several maps of at most 2^32 elements along this dim.",
    examples=(MATRIX, {"dims": (1 << 32, 1), "strides_bytes": (1 << 33,)}, {"dims": (64, 0)}),
)


def _strides_off(a: AnyMap, cured: Callable[[int], int], multiple: int = 16, why: str = "") -> ManyFacts:
    """The strides that a cure changes; no copy uses that of a dimension of extent 1 (flashinfer#2150, flashinfer#2232)."""
    taken = tuple(map(cured, a.strides_bytes))
    for axis, stride in enumerate(a.strides_bytes):
        if stride != taken[axis]:
            fix = f"Pad dimension {axis} so that the next one steps {taken[axis]} bytes."
            if a.dims[axis + 1] == 1:
                fix = f"dims[{axis + 1}] is 1, so no copy uses this stride: any multiple of {multiple} works, such as {multiple}."
            elif stride < 0:
                fix = "Use a copy of the tensor with this dimension flipped, and a positive stride."
            elif stride >= STRIDE_END_BYTES:
                fix = "Use several maps, each with strides below 2^40 bytes."
            change = {"strides_bytes": taken}
            yield {"axis": axis, "stride": stride, "multiple": multiple, "why": why, "fix": fix, "change": change}


def _misaligned(a: AnyMap) -> ManyFacts | bool:
    multiple, why = _alignment(a)
    is_off = gcd(multiple, *a.strides_bytes) < multiple
    return is_off and _strides_off(a, lambda stride: rounded_up(stride, _cured_multiple(a)), multiple, why)


def _within_range(stride: int) -> int:
    """The nearest stride in range; that of a flipped dimension is positive."""
    return min(abs(stride), STRIDE_END_BYTES - 32)


checked(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    lambda a: gcd(32, *a.strides_bytes) < 32 and _misaligned(a),
    "strides_bytes[{axis}] = {stride} bytes",
    "strides are multiples of {multiple} bytes{why}",
    examples=(MATRIX, {"strides_bytes": (8208,)}, {"strides_bytes": (8200,)}),
)
checked(
    "stride-range",
    "Every stride is 0 to 2^40 - 1 bytes.",
    lambda a: (
        a.strides_bytes
        and (min(a.strides_bytes) < 0 or max(a.strides_bytes) >= STRIDE_END_BYTES)
        and _strides_off(a, _within_range)
    ),
    "strides_bytes[{axis}] = {stride} bytes",
    "0 to 2^40 - 1 bytes",
    examples=(MATRIX, {"strides_bytes": ((1 << 40) - 16,)}, {"strides_bytes": (1 << 40,)}),
)


def _overlaps(a: AnyMap) -> ManyFacts:
    reach = row_bytes(a)
    for stride, extent, axis in sorted(zip(a.strides_bytes, a.dims[1:], range(a.rank - 1), strict=True)):
        if stride < reach and extent > 1:
            shared = "neighbours share bytes" if stride else "every index reads the same bytes (a broadcast)"
            yield {
                "axis": axis,
                "stride": stride,
                "reach": reach,
                "next": rounded_up(reach, _cured_multiple(a)),
                "shared": shared,
            }
        reach += max(0, stride * (extent - 1))


checked(
    "stride-overlap",
    "Each stride steps over the whole of the dimensions with smaller strides: no two indices share bytes.",
    lambda a: any(map(gt, (row_bytes(a), *map(mul, a.dims[1:], a.strides_bytes)), a.strides_bytes)) and _overlaps(a),
    "strides_bytes[{axis}] = {stride} bytes, less than the {reach} bytes that one index covers: {shared}",
    "loads work; a store through such a map races with itself",
    "Use {next} bytes, or keep it for sliding windows and broadcasts.",
    severity="warning",
    source=f"{CUDA_H} (its construction of the strides); the driver accepts others ({H200})",
    examples=(MATRIX, {}, {"strides_bytes": (64,)}),
)


LARGEST_BOX_BYTES = 228 * 1024  # what the driver compares box_bytes with
LARGEST_EXTENT = 256
LARGEST_PIXELS = 1024
ROW_BITS = 128  # rows are multiples of 16 bytes

ranged(
    "box-range",
    "Every box extent is 1 to 256 elements.",
    "box",
    LARGEST_EXTENT,
    "1 to 256 elements",
    unit=" elements",
    subjects=("tiled",),
    examples=(MATRIX, {"box": (64, 256)}, {"box": (64, 257)}),
)


def _whole_rows(a: AnyMap) -> Facts:
    elements, bits = a.inner_elements, a.data_type.bits
    step = ROW_BITS // bits if ROW_BITS % bits == 0 else 64  # 64 six-bit values: 48 bytes
    taken = min(rounded_up(max(elements, 1), step), LARGEST_EXTENT // step * step)
    whole, rest = divmod(elements * bits, 8)
    row_bytes = whole + rest / 8 if rest and whole < (1 << 53) else whole  # a float holds no larger number
    facts = {"elements": elements, "bits": bits, "row_bytes": row_bytes, "taken": taken}
    return facts | {"change": a.inner_change(taken)}


checked(
    "inner-multiple",
    "A row of the box is a multiple of 16 bytes, in every interleave mode.",
    lambda a: a.inner_elements * a.data_type.bits % ROW_BITS,
    "{a.inner_argument} = {elements} elements x {bits} bits = {row_bytes} bytes",
    "a row of the box is a multiple of 16 bytes",
    "Use {a.inner_argument} = {taken}.",
    values=_whole_rows,
    source=f"{CUDA_H} (there for interleave none only); {H200}",
    examples=(MATRIX, {"box": (8, 64)}, {"box": (9, 64)}),
)


checked(
    "swizzle-span",
    "Without interleave, a row of the box is at most the swizzle's span.",
    lambda a: a.swizzle.span_bytes and not a.interleave.slice_bytes and a.inner_bytes > a.swizzle.span_bytes,
    "{a.inner_argument} = {elements} elements x {element_bytes:g} bytes = {row_bytes} bytes",
    "swizzle {a.swizzle.name} takes a row of at most {span} bytes",
    "Use {a.inner_argument} <= {most} and one {copy} per span.",
    values=lambda a: {
        "elements": a.inner_elements,
        "element_bytes": a.data_type.smem_bits / 8,
        "row_bytes": a.inner_bytes,
        "span": a.swizzle.span_bytes,
        "most": a.swizzle.span_bytes * 8 // a.data_type.smem_bits,
        "copy": "box" if a.subject == "tiled" else "copy",
        "change": a.inner_change(a.swizzle.span_bytes * 8 // a.data_type.smem_bits),
    },
    examples=(MATRIX, {"swizzle": "128B"}, {"box": (128, 64), "swizzle": "128B"}),
)
ranged(
    "element-stride-range",
    "Every element stride is 1 to 8, that of dim 0 too.",
    "element_strides",
    8,
    "1 to 8",
    "Use 1.",
    "Use 1, and multiply strides_bytes by the step.",
    examples=(MATRIX, {"element_strides": (1, 8)}, {"element_strides": (1, 9)}),
)


def _smaller(a: Any) -> Facts:
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


def _fewer_pixels(a: Any) -> Facts:
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
    found="oob_fill = nan with {a.data_type.name}",
    limit="only floating-point types have a NaN",
    change={"oob_fill": "zero"},
    examples=(MATRIX, {"oob_fill": "nan"}, {"data_type": "u16", "oob_fill": "nan"}),
)
checked(
    "interleave-swizzle",
    "Interleave 32B goes with swizzle 32B.",
    lambda a: a.interleave.name == "32B" and a.swizzle.name != "32B",
    found="interleave 32B with swizzle {a.swizzle.name}",
    limit="the documents allow swizzle 32B only; the driver accepts this",
    change={"swizzle": "32B"},
    severity="warning",
    source=f"{CUDA_H}; the driver accepts others ({H200})",
    examples=(SLICES, {"interleave": "32B", "swizzle": "32B"}, {"interleave": "32B"}),
)
