"""The tensor in global memory: rank, address, dims and strides."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tilescope.errors import Violation, counted
from tilescope.tensor_map.any_map import AnyMap, row_bytes
from tilescope.tensor_map.checking import Says, checked, ranged, rounded_up
from tilescope.tensor_map.rules.packed import takes_half_rows
from tilescope.tensor_map.rules.samples import CUDA_H, H200, IMAGES, MATRIX, SLICES

ADDRESS_END = 1 << 57
STRIDE_END_BYTES = 1 << 40


@checked(
    "rank",
    "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.",
    lambda a: not (1 if a.subject == "tiled" else 3) <= len(a.dims) <= 5,
    passing=MATRIX,
    failing={"data_type": "u8", "dims": (16,) * 6, "strides_bytes": (16,) * 5, "box": (16,) * 6},
)
def rank_check(a: AnyMap, violation: Says) -> Iterator[Violation]:
    """Whether a map can have that many dimensions."""
    least, kind = (1, "a tiled") if a.subject == "tiled" else (3, "an im2col")
    fix = f"Add dimensions of extent 1 up to rank {least}."
    if a.rank > 5:
        fix = "Merge neighbouring dimensions whose strides allow it, or copy slice by slice."
    limit = f"{kind} map has {least} to 5"
    yield violation("dims", counted(a.rank, "dimension"), limit, fix, None, rank=a.rank, least=least, most=5)


@checked(
    "interleave-rank",
    "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    lambda a: a.interleave.slice_bytes and 0 < a.rank < 3,
    subjects=("tiled",),
    passing=SLICES,
    failing=SLICES | {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)},
)
def _interleave_rank(a: AnyMap, violation: Says) -> Iterator[Violation]:
    found = f"interleave = {a.interleave.name} with {counted(a.rank, 'dimension')}"
    limit, change = "interleave needs 3 to 5: W, (H, (D,)) slices, N", {"interleave": "none"}
    yield violation("interleave", found, limit, 'Use interleave="none".', change, rank=a.rank)


def _alignment(a: AnyMap) -> tuple[int, str]:
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
    lambda a: a.address % 32 and a.address % _alignment(a)[0],
    passing=MATRIX | {"address": 0x1010},
    failing=MATRIX | {"address": 0x1008},
)
def _address_alignment(a: AnyMap, violation: Says) -> Iterator[Violation]:
    multiple, limit = _alignment(a)
    beyond = a.address % multiple
    start = a.address - beyond
    numbers = {"address": a.address, "beyond_bytes": beyond, "nearest": start, "multiple_bytes": multiple}
    found = f"address = {a.address:#x}, {beyond} bytes past {start:#x}"
    fix = f"Start the tensor at {start:#x} and shift the coordinates, or align the allocation."
    yield violation("address", found, f"addresses are {limit}", fix, {"address": start}, **numbers)


@checked(
    "address-range",
    "The address is 0 to 2^57 - 1; 0 is accepted.",
    lambda a: not 0 <= a.address < ADDRESS_END,
    source=H200,
    passing=MATRIX | {"address": (1 << 57) - 16},
    failing=MATRIX | {"address": 1 << 57},
)
def _address_range(a: AnyMap, violation: Says) -> Iterator[Violation]:
    found, limit = f"address = {a.address:#x}", "a device address is 0 to 2^57 - 1"
    change = {"address": a.address % ADDRESS_END}
    fix = f"Pass the device pointer itself; its low 57 bits are {change['address']:#x}."
    yield violation("address", found, limit, fix, change, address=a.address)


ranged(
    "dim-range",
    "Every dim is 1 to 2^32 elements.",
    "dims",
    (1, 1 << 32),
    limit="1 to 2^32 elements",
    below="Use {}; a tensor without elements has no map.",
    above="Use several maps of at most 2^32 elements along this dim.",
    passing=MATRIX | {"dims": (1 << 32, 1), "strides_bytes": (1 << 33,)},
    failing=MATRIX | {"dims": (64, 0)},
)


@checked(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    lambda a: gcd(32, *a.strides_bytes) < 32 and gcd(32, *a.strides_bytes) < _alignment(a)[0],
    passing=MATRIX | {"strides_bytes": (8208,)},
    failing=MATRIX | {"strides_bytes": (8200,)},
)
def _stride_alignment(a: AnyMap, violation: Says) -> Iterator[Violation]:
    multiple, limit = _alignment(a)
    for axis, stride in enumerate(a.strides_bytes):
        if stride % multiple:
            padded = tuple(rounded_up(step, multiple) for step in a.strides_bytes)
            fix = f"Pad dimension {axis} so that the next one steps {padded[axis]} bytes."
            if a.dims[axis + 1] == 1:
                fix = _any_multiple(axis, multiple)
            argument, numbers = f"strides_bytes[{axis}]", {"stride_bytes": stride, "multiple_bytes": multiple}
            found, change = f"{argument} = {stride} bytes", {"strides_bytes": padded}
            yield violation(argument, found, f"strides are {limit}", fix, change, **numbers)


@checked(
    "stride-range",
    "Every stride is 0 to 2^40 - 1 bytes.",
    lambda a: a.strides_bytes and (min(a.strides_bytes) < 0 or max(a.strides_bytes) >= STRIDE_END_BYTES),
    passing=MATRIX | {"strides_bytes": ((1 << 40) - 16,)},
    failing=MATRIX | {"strides_bytes": (1 << 40,)},
)
def _stride_range(a: AnyMap, violation: Says) -> Iterator[Violation]:
    for axis, stride in enumerate(a.strides_bytes):
        if not 0 <= stride < STRIDE_END_BYTES:
            ends = (0, STRIDE_END_BYTES - 32)
            taken = tuple(step if 0 <= step < STRIDE_END_BYTES else ends[step > 0] for step in a.strides_bytes)
            fix = "Use several maps, each with strides below 2^40 bytes."
            if a.dims[axis + 1] == 1:
                fix = _any_multiple(axis, 16)
            elif stride < 0:
                fix = "Use a copy of the tensor with this dimension flipped, and a positive stride."
            argument, change = f"strides_bytes[{axis}]", {"strides_bytes": taken}
            found = f"{argument} = {stride} bytes"
            yield violation(argument, found, "0 to 2^40 - 1 bytes", fix, change, stride_bytes=stride)


def _may_overlap(a: AnyMap) -> bool:
    """Whether some stride does not step over all that lies inside it, as most do."""
    reach = row_bytes(a)
    for stride, extent in zip(a.strides_bytes, a.dims[1:], strict=True):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


@checked(
    "stride-overlap",
    "Each stride steps over the whole of the dimensions with smaller strides: no two indices share bytes.",
    _may_overlap,
    severity="warning",
    source=f"{CUDA_H} (its construction of the strides); the driver accepts others ({H200})",
    passing=IMAGES,
    failing=MATRIX | {"strides_bytes": (64,)},
)
def _stride_overlap(a: AnyMap, violation: Says) -> Iterator[Violation]:
    reach = row_bytes(a)
    for stride, extent, axis in sorted(zip(a.strides_bytes, a.dims[1:], range(a.rank - 1), strict=True)):
        if stride < reach and extent > 1:
            shared = "every index reads the same bytes (a broadcast)" if stride == 0 else "neighbours share bytes"
            argument = f"strides_bytes[{axis}]"
            found = f"{argument} = {stride} bytes, less than the {reach} bytes that one index covers: {shared}"
            limit = "loads work; a store through such a map races with itself"
            fix = f"Use {rounded_up(reach, 16)} bytes, or keep it for sliding windows and broadcasts."
            yield violation(argument, found, limit, fix, None, stride_bytes=stride, reach_bytes=reach)
        reach += max(0, stride * (extent - 1))
