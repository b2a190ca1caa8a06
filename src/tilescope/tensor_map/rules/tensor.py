"""The tensor in global memory: rank, address, dims and strides."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any

from tilescope.errors import counted
from tilescope.tensor_map.any_map import AnyMap, row_bytes
from tilescope.tensor_map.checking import checked, ranged, rounded_up
from tilescope.tensor_map.rules.packed import takes_half_rows
from tilescope.tensor_map.rules.samples import CUDA_H, H200, MATRIX, SLICES

ADDRESS_END = 1 << 57
STRIDE_END_BYTES = 1 << 40


def _rank_facts(a: AnyMap) -> dict[str, Any]:
    least = 1 if a.subject == "tiled" else 3
    fix = f"Add dimensions of extent 1 up to rank {least}."
    if a.rank > 5:
        fix = "Merge neighbouring dimensions whose strides allow it, or copy slice by slice."
    kind = "a tiled" if a.subject == "tiled" else "an im2col"
    return {"rank": a.rank, "dimensions": counted(a.rank, "dimension"), "least": least, "kind": kind, "fix": fix}


RANK = checked(
    "rank",
    "A tiled map has 1 to 5 dimensions, an im2col map 3 to 5.",
    lambda a: not (1 if a.subject == "tiled" else 3) <= len(a.dims) <= 5,
    "dims",
    "{dimensions}",
    "{kind} map has {least} to 5",
    values=_rank_facts,
    examples=(MATRIX, {}, {"dims": (16,) * 6, "strides_bytes": (16,) * 5, "box": (16,) * 6}),
)
checked(
    "interleave-rank",
    "An interleaved map has at least 3 dimensions: W, channel slices, N.",
    lambda a: a.interleave.slice_bytes and 0 < a.rank < 3,
    "interleave",
    "interleave = {a.interleave.name} with rank {rank}",
    "interleave needs rank 3 to 5: W, (H, (D,)) slices, N",
    values=lambda a: {"rank": a.rank},
    change={"interleave": "none"},
    subjects=("tiled",),
    examples=(SLICES, {}, {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)}),
)


def _alignment(a: AnyMap) -> tuple[int, str]:
    """What addresses and strides must be a multiple of, and why."""
    if a.is_padded and not takes_half_rows(a):
        return 32, f" with {a.data_type.name}"
    if a.interleave.slice_bytes == 32:
        return 32, " with interleave 32B"
    return 16, ""


def _address_facts(a: AnyMap) -> dict[str, Any]:
    multiple, why = _alignment(a)
    start = a.address // multiple * multiple
    facts = {"address": a.address, "beyond": a.address - start, "start": start, "multiple": multiple}
    return facts | {"why": why, "change": {"address": start}}


checked(
    "address-alignment",
    "The address is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    lambda a: a.address % 32 and a.address % _alignment(a)[0],
    "address",
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
    "address",
    "address = {address:#x}",
    "a device address is 0 to 2^57 - 1",
    "Pass the device pointer itself; the low 57 bits are {low:#x}.",
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
    (1, 1 << 32),
    "1 to 2^32 elements",
    "Use {}; a tensor without elements has no map.",
    "Use several maps of at most 2^32 elements along this dim.",
    examples=(MATRIX, {"dims": (1 << 32, 1), "strides_bytes": (1 << 33,)}, {"dims": (64, 0)}),
)


def _stride_facts(a: AnyMap, taken: tuple[int, ...], multiple: int) -> Iterator[dict[str, Any]]:
    """The strides that are not as taken; no copy uses that of a dimension of extent 1 (flashinfer#2150, flashinfer#2232)."""
    for axis, stride in enumerate(a.strides_bytes):
        if stride != taken[axis]:
            fix = f"Pad dimension {axis} so that the next one steps {taken[axis]} bytes."
            if a.dims[axis + 1] == 1:
                fix = f"dims[{axis + 1}] is 1, so no copy uses this stride: any multiple of {multiple} works, such as {multiple}."
            elif stride < 0:
                fix = "Use a copy of the tensor with this dimension flipped, and a positive stride."
            elif stride >= STRIDE_END_BYTES:
                fix = "Use several maps, each with strides below 2^40 bytes."
            yield {"axis": axis, "stride": stride, "fix": fix, "change": {"strides_bytes": taken}}


def _misaligned(a: AnyMap) -> Iterator[dict[str, Any]]:
    multiple, why = _alignment(a)
    for facts in _stride_facts(a, tuple(rounded_up(stride, multiple) for stride in a.strides_bytes), multiple):
        yield facts | {"multiple": multiple, "why": why}


checked(
    "stride-alignment",
    "Every stride is a multiple of 16 bytes; of 32 with interleave 32B and the padded packed types.",
    lambda a: gcd(32, *a.strides_bytes) < 32 and gcd(32, *a.strides_bytes) < _alignment(a)[0],
    "strides_bytes[{axis}]",
    "strides_bytes[{axis}] = {stride} bytes",
    "strides are multiples of {multiple} bytes{why}",
    values=_misaligned,
    examples=(MATRIX, {"strides_bytes": (8208,)}, {"strides_bytes": (8200,)}),
)


def _outside(a: AnyMap) -> Iterator[dict[str, Any]]:
    ends = (0, STRIDE_END_BYTES - 32)
    taken = (step if 0 <= step < STRIDE_END_BYTES else ends[step > 0] for step in a.strides_bytes)
    return _stride_facts(a, tuple(taken), 16)


checked(
    "stride-range",
    "Every stride is 0 to 2^40 - 1 bytes.",
    lambda a: a.strides_bytes and (min(a.strides_bytes) < 0 or max(a.strides_bytes) >= STRIDE_END_BYTES),
    "strides_bytes[{axis}]",
    "strides_bytes[{axis}] = {stride} bytes",
    "0 to 2^40 - 1 bytes",
    values=_outside,
    examples=(MATRIX, {"strides_bytes": ((1 << 40) - 16,)}, {"strides_bytes": (1 << 40,)}),
)


def _may_overlap(a: AnyMap) -> bool:
    """Whether some stride does not step over all that lies inside it, as most do."""
    reach = row_bytes(a)
    for stride, extent in zip(a.strides_bytes, a.dims[1:], strict=True):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def _overlaps(a: AnyMap) -> Iterator[dict[str, Any]]:
    reach = row_bytes(a)
    for stride, extent, axis in sorted(zip(a.strides_bytes, a.dims[1:], range(a.rank - 1), strict=True)):
        if stride < reach and extent > 1:
            shared = "every index reads the same bytes (a broadcast)" if stride == 0 else "neighbours share bytes"
            yield {"axis": axis, "stride": stride, "reach": reach, "next": rounded_up(reach, 16), "shared": shared}
        reach += max(0, stride * (extent - 1))


checked(
    "stride-overlap",
    "Each stride steps over the whole of the dimensions with smaller strides: no two indices share bytes.",
    _may_overlap,
    "strides_bytes[{axis}]",
    "strides_bytes[{axis}] = {stride} bytes, less than the {reach} bytes that one index covers: {shared}",
    "loads work; a store through such a map races with itself",
    "Use {next} bytes, or keep it for sliding windows and broadcasts.",
    values=_overlaps,
    severity="warning",
    source=f"{CUDA_H} (its construction of the strides); the driver accepts others ({H200})",
    examples=(MATRIX, {}, {"strides_bytes": (64,)}),
)
