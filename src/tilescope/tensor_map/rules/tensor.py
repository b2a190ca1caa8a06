"""The tensor in global memory: rank, address, dims and strides."""

from __future__ import annotations

from tilescope.errors import counted
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Geometry, rounded_up
from tilescope.tensor_map.rules.packed import takes_half_rows
from tilescope.tensor_map.rules.samples import CUDA_H, H200, IMAGES, MATRIX, SLICES

ADDRESS_END = 1 << 57
STRIDE_END_BYTES = 1 << 40
LARGEST_DIM = 1 << 32


@checked(
    "rank", "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.", source=f"{CUDA_H}; {H200}", reads=("dims",),
    passing=MATRIX, failing={"data_type": "u8", "dims": (16,) * 6, "strides_bytes": (16,) * 5, "box": (16,) * 6},
)  # fmt: skip
def rank_check(a: Geometry) -> Found:
    """The only check that runs on a tensor without dimensions."""
    least = 1 if a.subject == "tiled" else 3
    if least <= a.rank <= 5:
        return ()
    if a.rank > 5:
        fix = "Merge neighbouring dimensions whose strides allow it, or copy slice by slice."
    else:
        fix = f"Add dimensions of extent 1 up to rank {least}."
    return Breach(
        "dims", counted(a.rank, "dimension"),
        f"{'a tiled' if a.subject == 'tiled' else 'an im2col'} map has {least} to 5", fix, values={"rank": a.rank},
    )  # fmt: skip


@checked(
    "interleave-rank", "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    source=f"{CUDA_H}; {H200}", subjects=("tiled",), reads=("dims", "interleave"), passing=SLICES,
    failing=SLICES | {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)},
)  # fmt: skip
def _interleave_rank(a: Geometry) -> Found:
    if not a.interleave.slice_bytes or a.rank >= 3:
        return ()
    return Breach(
        "interleave", f"interleave = {a.interleave.name} with {a.rank} dimensions",
        "interleave needs 3 to 5: W, (H, (D,)) slices, N", 'Use interleave="none".', {"interleave": "none"},
        {"rank": a.rank},
    )  # fmt: skip


def _alignment(a: Geometry) -> tuple[int, str]:
    """What addresses and strides must be a multiple of, and why."""
    if a.is_padded and not takes_half_rows(a):
        return 32, f"multiples of 32 bytes with {a.data_type.name}"
    if a.interleave.slice_bytes == 32:
        return 32, "multiples of 32 bytes with interleave 32B"
    return 16, "multiples of 16 bytes"


def _any_multiple(axis: int, multiple: int) -> str:
    """The fix for the stride of a dimension of extent 1, which no copy uses (flashinfer#2150, flashinfer#2232)."""
    return f"dims[{axis + 1}] is 1, so no copy uses this stride: any multiple of {multiple} works, such as {multiple}."


@checked(
    "address-alignment",
    "The address is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    source=f"{CUDA_H}; {H200}", reads=("address", "interleave", "data_type", "arch"),
    passing=MATRIX | {"address": 0x1010}, failing=MATRIX | {"address": 0x1008},
)  # fmt: skip
def _address_alignment(a: Geometry) -> Found:
    if a.address % 32 == 0:
        return ()
    multiple, limit = _alignment(a)
    beyond = a.address % multiple
    if beyond == 0:
        return ()
    nearest = a.address - beyond
    return Breach(
        "address", f"address = {a.address:#x}, {beyond} bytes past {nearest:#x}", f"addresses are {limit}",
        f"Start the tensor at {nearest:#x} and shift the coordinates, or align the allocation.", {"address": nearest},
        {"address": a.address, "beyond_bytes": beyond, "nearest": nearest, "multiple_bytes": multiple},
    )  # fmt: skip


@checked(
    "address-range", "The address is 0 to 2^57 - 1; 0 is accepted.", source=H200, reads=("address",),
    passing=MATRIX | {"address": (1 << 57) - 16}, failing=MATRIX | {"address": 1 << 57},
)  # fmt: skip
def _address_range(a: Geometry) -> Found:
    if 0 <= a.address < ADDRESS_END:
        return ()
    return Breach(
        "address", f"address = {a.address:#x}", "a device address is 0 to 2^57 - 1", "Pass the device pointer itself.",
        {"address": a.address % ADDRESS_END}, {"address": a.address},
    )  # fmt: skip


@checked(
    "dim-range", "Every dim is 1 to 2^32 elements.", source=f"{CUDA_H}; {H200}", reads=("dims",),
    passing=MATRIX | {"dims": (1 << 32, 1), "strides_bytes": (1 << 33,)}, failing=MATRIX | {"dims": (64, 0)},
)  # fmt: skip
def _dim_range(a: Geometry) -> Found:
    if min(a.dims) >= 1 and max(a.dims) <= LARGEST_DIM:
        return ()
    nearest = tuple(min(max(extent, 1), LARGEST_DIM) for extent in a.dims)
    return [
        Breach(
            f"dims[{axis}]",
            f"dims[{axis}] = {extent}",
            "1 to 2^32 elements",
            f"Use {nearest[axis]}; a tensor without elements has no map."
            if extent < 1
            else "Use several maps of at most 2^32 elements along this dim.",
            {"dims": nearest},
            {"extent": extent},
        )
        for axis, extent in enumerate(a.dims)
        if extent != nearest[axis]
    ]


@checked(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    source=f"{CUDA_H}; {H200}", reads=("strides_bytes", "dims", "interleave", "data_type", "arch"),
    passing=MATRIX | {"strides_bytes": (8208,)}, failing=MATRIX | {"strides_bytes": (8200,)},
)  # fmt: skip
def _stride_alignment(a: Geometry) -> Found:
    multiple, limit = _alignment(a)
    for stride in a.strides_bytes:
        if stride % multiple:
            break
    else:
        return ()
    padded = tuple(rounded_up(stride, multiple) for stride in a.strides_bytes)
    return [
        Breach(
            f"strides_bytes[{axis}]",
            f"strides_bytes[{axis}] = {stride} bytes",
            f"strides are {limit}",
            _any_multiple(axis, multiple)
            if a.dims[axis + 1] == 1
            else f"Pad dimension {axis} so that the next one steps {padded[axis]} bytes.",
            {"strides_bytes": padded},
            {"stride_bytes": stride, "multiple_bytes": multiple},
        )
        for axis, stride in enumerate(a.strides_bytes)
        if stride != padded[axis]
    ]


@checked(
    "stride-range", "Every stride is 0 to 2^40 - 1 bytes.", source=f"{CUDA_H}; {H200}", reads=("strides_bytes", "dims"),
    passing=MATRIX | {"strides_bytes": ((1 << 40) - 16,)}, failing=MATRIX | {"strides_bytes": (1 << 40,)},
)  # fmt: skip
def _stride_range(a: Geometry) -> Found:
    if not a.strides_bytes or (min(a.strides_bytes) >= 0 and max(a.strides_bytes) < STRIDE_END_BYTES):
        return ()
    nearest = tuple(
        stride if 0 <= stride < STRIDE_END_BYTES else 0 if stride < 0 else STRIDE_END_BYTES - 32
        for stride in a.strides_bytes
    )
    return [
        Breach(
            f"strides_bytes[{axis}]",
            f"strides_bytes[{axis}] = {stride} bytes",
            "0 to 2^40 - 1 bytes",
            _any_multiple(axis, 16)
            if a.dims[axis + 1] == 1
            else "Use a copy of the tensor with this dimension flipped, and a positive stride."
            if stride < 0
            else "Use several maps, each with strides below 2^40 bytes.",
            {"strides_bytes": nearest},
            {"stride_bytes": stride},
        )
        for axis, stride in enumerate(a.strides_bytes)
        if stride != nearest[axis]
    ]


def _follow_each_other(strides_bytes: tuple[int, ...], dims: tuple[int, ...], reach_bytes: int) -> bool:
    """Whether every stride steps over all that lies inside it, as most do."""
    for axis, stride in enumerate(strides_bytes, 1):
        if stride < reach_bytes:
            return False
        reach_bytes += stride * (dims[axis] - 1)
    return True


@checked(
    "stride-overlap",
    "Each stride steps over the whole of the dimensions with smaller strides: no two indices share bytes.",
    severity="warning", source=f"{CUDA_H} (its construction of the strides); the driver accepts others ({H200})",
    reads=("strides_bytes", "dims", "data_type", "interleave"), passing=IMAGES,
    failing=MATRIX | {"strides_bytes": (64,)},
)  # fmt: skip
def _stride_overlap(a: Geometry) -> Found:
    slice_bytes = a.interleave.slice_bytes
    reach = a.dims[0] * slice_bytes if slice_bytes else a.dims[0] * a.data_type.bits // 8
    if _follow_each_other(a.strides_bytes, a.dims, reach):
        return ()
    found = []
    for stride, extent, axis in sorted(zip(a.strides_bytes, a.dims[1:], range(a.rank - 1), strict=True)):
        if stride < reach and extent > 1:
            shared = "every index reads the same bytes (a broadcast)" if stride == 0 else "neighbours share bytes"
            found.append(Breach(
                f"strides_bytes[{axis}]",
                f"strides_bytes[{axis}] = {stride} bytes, less than the {reach} bytes that one index covers: {shared}",
                "loads work; a store through such a map races with itself",
                f"Use {rounded_up(reach, 16)} bytes, or keep it for sliding windows and broadcasts.",
                values={"stride_bytes": stride, "reach_bytes": reach},
            ))  # fmt: skip
        reach += max(0, stride * (extent - 1))
    return found
