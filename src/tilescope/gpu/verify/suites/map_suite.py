"""Random tensor maps over small tensors, and coordinates in and around them.

encode: the driver's verdict on random maps near the edges of the rules, and its 128 bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

import numpy as np

from tilescope.arch import Arch
from tilescope.arithmetic import rounded_up
from tilescope.cuda_error import INVALID_VALUE, SUCCESS
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import TensorMapError
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import POOL_BYTES, Case, Piece, Result, Suite
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map import Im2colMap, MapArguments, TensorMap
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.option import Interleave

IMAGE_BYTES = 32768  # of shared memory, as a case sees it
TENSOR_BYTES = 1 << 16  # that a tensor may span
PACKED_ELEMENTS = 128  # of a row of 4- or 6-bit types, and the steps of its coordinates


def draw_map(
    random: random.Random, arch: str, data_type: str | None, *, im2col: bool = False, dense: bool = False
) -> TensorMap | Im2colMap:
    """A sound map of a small tensor; `dense`: without strides of which rows overlap."""
    while True:
        drawn = _columns(random, arch, data_type) if im2col else _draw_tiled(random, arch, data_type, dense=dense)
        try:
            tensor_map = Im2colMap(**drawn) if im2col else TensorMap(**drawn)
        except TensorMapError:
            continue
        if tensor_map.smem_bytes <= IMAGE_BYTES - 1024 and reach_bytes(tensor_map) <= TENSOR_BYTES:
            return tensor_map


def _draw_tiled(random: random.Random, arch: str, data_type: str | None = None, *, dense: bool = False) -> Case:
    row = DataType.named(data_type or random.choice(types_of(arch)))
    interleave = random.choice(("none",) * 6 + ("16B", "32B"))
    rank = random.randint(1, 5) if interleave == "none" else random.randint(3, 5)
    sliced = Interleave.named(interleave).slice_bytes or 0
    swizzle = "32B" if sliced == 32 else random.choice(_swizzles(arch))
    quantum = max(1, 128 // row.smem_bits) if row.bits >= 8 else PACKED_ELEMENTS
    widest = (Swizzle.named(swizzle).span_bytes or 256) * 8 // row.smem_bits
    box = [quantum * random.randint(1, max(1, min(256, widest) // quantum))]
    box += [random.randint(1, 2 ** random.randint(0, 5)) for _ in range(rank - 1)]
    dims = [random.randint(1, 2 * box[0]) if row.bits >= 8 else PACKED_ELEMENTS * random.randint(1, 3)]
    dims += [random.randint(1, 9) for _ in range(rank - 1)]
    if sliced:
        box = [random.randint(1, 24) * (sliced * 8 // row.bits), *(random.randint(1, 5) for _ in range(rank - 1))]
        box[0] = min(box[0], 256 * 8 // row.bits) or 1
        dims = [random.randint(1, 12) for _ in range(rank)]
    align = 32 if sliced == 32 or row.bits < 8 else 16
    strides = _strides(dims, 8 * sliced or row.bits, align)
    if not dense and random.random() < 0.2:
        strides = [align * random.randint(0, 40) for _ in strides]
    steps = [random.choice((1, 1, 1, random.randint(1, 4))) for _ in dims]
    arguments: Case = {
        "dims": dims,
        "strides_bytes": strides,
        "box": box,
        "element_strides": steps,
        "interleave": interleave,
        "swizzle": swizzle,
    }
    return _complete_arguments(random, row, arch, arguments)


def _columns(random: random.Random, arch: str, data_type: str | None = None) -> Case:
    row = DataType.named(data_type or random.choice(types_of(arch)[:13]))
    size = row.bits // 8
    interleave = random.choice(("none", "none", "none", "16B", "32B"))
    sliced = Interleave.named(interleave).slice_bytes or 0
    swizzle = "32B" if sliced == 32 else random.choice(("none", "32B", "64B", "128B"))
    rank = random.randint(3, 5)
    extents = [random.randint(1, 9) for _ in range(rank - 2)]
    quantum = 16 // size
    channels = quantum * random.randint(1, 64 // quantum or 1)
    span_bytes = Swizzle.named(swizzle).span_bytes or 256
    images = random.randint(1, 3)
    dims = [*extents, random.randint(1, 3), images] if sliced else [channels, *extents, images]
    arguments: Case = {
        "dims": dims,
        "strides_bytes": _strides(dims, 8 * sliced or row.bits),
        "lower_corner": [random.randint(-3, 2) for _ in range(rank - 2)],
        "upper_corner": [random.randint(-3, 2) for _ in range(rank - 2)],
        "channels_per_pixel": sliced // size if sliced else min(channels, span_bytes // size),
        "pixels_per_column": random.randint(1, 90),
        "element_strides": [random.choice((1, 1, random.randint(1, 3))) for _ in dims],
        "interleave": interleave,
        "swizzle": swizzle,
    }
    return _complete_arguments(random, row, arch, arguments)


def _strides(dims: list[int], step_bits: int, align: int = 16) -> list[int]:
    """Strides without gaps but for rows that end off `align` bytes."""
    row_bytes = rounded_up(dims[0] * step_bits // 8, align)
    return list(accumulate((row_bytes, *dims[1:-1]), mul))[: len(dims) - 1]


def _complete_arguments(random: random.Random, row: DataType, arch: str, own: Case) -> Case:
    """The arguments of a map, with those that all kinds of maps have."""
    return {
        "data_type": row.name,
        **own,
        "l2_promotion": random.choice(("none", "64B", "128B", "256B")),
        "oob_fill": "nan" if row.is_float and random.random() < 0.3 else "zero",
        "address": 1 << 30,
        "arch": arch,
    }


def reach_bytes(tensor_map: TensorMap | Im2colMap) -> int:
    """Bytes from the first of the tensor to behind its last, one row to spare."""
    rows = sum(extent * stride for extent, stride in zip(tensor_map.dims[1:], tensor_map.strides_bytes, strict=True))
    return rows + tensor_map.dims[0] * max(32, tensor_map.data_type.bits // 8)


def draw_coords(random: random.Random, tensor_map: TensorMap, *, negative: bool = True) -> tuple[int, ...]:
    """Coordinates in and around the tensor that the instruction takes."""
    bits = tensor_map.data_type.bits
    if tensor_map.interleave.slice_bytes:
        quantum = 1
    elif bits < 8:
        quantum = PACKED_ELEMENTS
    else:
        quantum = max(1, 128 // bits)
    lowest = -2 if negative else 0

    def near(extent: int) -> int:
        return random.randint(lowest, extent) if random.random() < 0.3 else random.randrange(extent)

    return (quantum * near(tensor_map.dims[0] // quantum + 1), *map(near, tensor_map.dims[1:]))


def draw_pixel(random: random.Random, tensor_map: Im2colMap, *, negative: bool = True) -> tuple[int, ...]:
    """A base pixel in the bounding box, with channels or a slice and an image around the tensor."""
    sliced = bool(tensor_map.interleave.slice_bytes)
    lowest = -1 if negative else 0
    spatial = tensor_map.dims[:-2] if sliced else tensor_map.dims[1:-1]
    lows = [lower if negative else max(0, lower) for lower in tensor_map.lower_corner]
    ends = [extent - 1 + upper for extent, upper in zip(spatial, tensor_map.upper_corner, strict=True)]
    base = [random.randint(low, max(low, end)) for low, end in zip(lows, ends, strict=True)]
    image = random.randint(lowest, tensor_map.dims[-1])
    if sliced:
        return (*base, random.randint(0, tensor_map.dims[-2]), image)
    quantum = max(1, 16 * 8 // tensor_map.data_type.bits)
    return (quantum * random.randint(lowest, 2), *base, image)


def draw_place(random: random.Random) -> int:
    """Where in the pool a tensor, or the shared memory of a store, begins."""
    return 32 * random.randrange((POOL_BYTES - TENSOR_BYTES) // 32)


_DRIVER_TYPES = [row.name for row in DATA_TYPE.values() if row.driver_code is not None]
_DRIVER_SWIZZLES = [row.name for row in SWIZZLE.values() if row.driver_code is not None]


def types_of(arch: str) -> list[str]:
    """The types that the engine of an architecture copies."""
    packed = Arch.named(arch).has("packed_types")
    return [name for name in _DRIVER_TYPES if packed or DATA_TYPE[name].bits >= 8]


def _swizzles(arch: str) -> list[str]:
    features = {name: SWIZZLE[name].feature for name in _DRIVER_SWIZZLES}
    return [name for name, feature in features.items() if feature and Arch.named(arch).has(feature)]


_ENCODED_ARCH = "sm_90"  # whose 128 bytes tilescope can encode; elsewhere only the verdict is compared
_CORNER_EDGES = (-32769, -32768, -129, -128, -17, -16, 15, 16, 127, 128, 32767, 32768)
# Of every argument, the values at and just beyond the edge of what the driver takes
_EDGES: dict[str, Sequence[int | str]] = {
    "dims": (0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1),
    "strides_bytes": (0, 8, 16, 24, 48, (1 << 40) - 32, (1 << 40) - 16, 1 << 40),
    "box": (0, 1, 7, 8, 16, 255, 256, 257, 128, 64, 32),
    "element_strides": (0, 1, 7, 8, 9),
    "lower_corner": _CORNER_EDGES,
    "upper_corner": _CORNER_EDGES,
    "address": (0, 8, 16, 48, (1 << 57) - 32, (1 << 57) - 16, 1 << 57),
    "channels_per_pixel": (0, 1, 8, 16, 128, 255, 256, 257),
    "pixels_per_column": (0, 1, 911, 912, 913, 1023, 1024, 1025),
    "data_type": _DRIVER_TYPES,
    "interleave": ("none", "16B", "32B"),
    "swizzle": _DRIVER_SWIZZLES,
    "oob_fill": ("zero", "nan"),
}


def _draw_near_edges(random: random.Random, arch: str) -> Case:
    """A map that keeps most rules, its tensor of any size, then up to three of its arguments moved to an edge."""
    kind = random.choice(("tiled", "tiled", "im2col"))
    data_type = random.choice(_DRIVER_TYPES) if random.random() < 0.2 else None  # also those of newer chips
    arguments = _draw_tiled(random, arch, data_type) if kind == "tiled" else _columns(random, arch)
    arguments["address"] = 32 * random.randint(0, (1 << random.randint(20, 52)) - 1)
    if random.random() < 0.7:
        arguments["dims"] = [random.randint(1, 5000) for _ in arguments["dims"]]
        arguments["strides_bytes"] = [32 * random.randint(1, 1 << random.randint(1, 20)) for _ in arguments["dims"][1:]]
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        name = random.choice([name for name in arguments if name in _EDGES])
        value = arguments[name]
        edge = random.choice(_EDGES[name])
        if not isinstance(value, list):
            arguments[name] = edge
        elif value:
            value[random.randrange(len(value))] = edge
    return {"map": kind, "arguments": arguments}


def _predict(case: Case) -> list[Piece]:
    arguments = case["arguments"]
    try:
        tensor_map = MapArguments.of(arguments).tensor_map()
    except TensorMapError:
        return _answer(INVALID_VALUE, b"")
    return _answer(SUCCESS, tensor_map.encode() if arguments["arch"] == _ENCODED_ARCH else b"")


def _answer(result: int, blob: bytes) -> list[Piece]:
    """What the driver answers."""
    verdict = Piece("the driver's result (0: accepted)", np.array([result], "<u4"))
    return [verdict, Piece("word {} of the map", np.frombuffer(blob.ljust(DESCRIPTOR_BYTES, b"\0"), "<u8"))]


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        result, blob = device.encode(case["arguments"])
        is_known = result == 0 and case["arguments"]["arch"] == _ENCODED_ARCH
        yield np.uint32(result), blob if is_known else bytes(DESCRIPTOR_BYTES)


ENCODE = Suite("encode", _draw_near_edges, _predict, _run, together=500)
