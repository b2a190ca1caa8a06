"""encode: the driver's verdict on random tensor maps near the edges of the rules, and its 128 bytes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import TensorMapError
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Pieces, Suite
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map import Im2colMap, TensorMap

_KIND: dict[str, type[TensorMap] | type[Im2colMap]] = {"tiled": TensorMap, "im2col": Im2colMap}
_ENCODED_ARCH = "sm_90"  # whose 128 bytes tilescope knows; elsewhere the verdict alone is compared
_MAP_BYTES = 128
_TYPES = [row.name for row in DATA_TYPE.values() if row.driver_code is not None]
_SWIZZLES = [row.name for row in SWIZZLE.values() if row.driver_code is not None]
_DIM_EDGES = (0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1)
_CORNER_EDGES = (-32769, -32768, -129, -128, -17, -16, 15, 16, 127, 128, 32767, 32768)


def _draw(random: random.Random, arch: str) -> Case:
    """A map that keeps most rules, then up to three of its arguments moved to an edge."""
    kind = random.choice(("tiled", "tiled", "im2col"))
    rank = random.randint(3, 5) if kind == "im2col" else random.randint(1, 5)
    data_type = DataType.named(random.choice(_TYPES if random.random() < 0.2 else _TYPES[:13]))
    size = max(1, data_type.bits // 8)
    interleave = random.choice(("none", "none", "none", "16B", "32B")) if rank >= 3 else "none"
    swizzle = "32B" if interleave == "32B" else random.choice(("none", "32B", "64B", "128B"))
    quantum = 16 // size
    span_bytes = (Swizzle.named(swizzle).span_bytes or 256) if interleave == "none" else 256
    arguments: dict[str, Any] = {
        "data_type": data_type.name,
        "dims": [random.randint(1, 5000) for _ in range(rank)],
        "strides_bytes": [32 * random.randint(1, 1 << random.randint(1, 20)) for _ in range(rank - 1)],
        "element_strides": [random.choice((1, 1, 1, random.randint(1, 8))) for _ in range(rank)],
        "interleave": interleave,
        "swizzle": swizzle,
        "l2_promotion": random.choice(("none", "64B", "128B", "256B")),
        "oob_fill": "nan" if data_type.is_float and random.random() < 0.3 else "zero",
        "address": 32 * random.randint(0, (1 << random.randint(20, 52)) - 1),
        "arch": arch,
    }
    inner = quantum * random.randint(1, max(1, min(span_bytes // 16, 256 // quantum)))
    if kind == "tiled":
        arguments["box"] = [inner, *(random.randint(1, 1 << random.randint(0, 5)) for _ in range(rank - 1))]
    else:
        arguments["lower_corner"] = [random.randint(-10, 5) for _ in range(rank - 2)]
        arguments["upper_corner"] = [random.randint(-10, 5) for _ in range(rank - 2)]
        arguments["channels_per_pixel"] = inner
        arguments["pixels_per_column"] = random.randint(1, 300)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        _move(random, arguments)
    return {"map": kind, "arguments": arguments}


def _move(random: random.Random, arguments: dict[str, Any]) -> None:
    """Put one argument at, or just beyond, an edge of what the driver takes."""
    name = random.choice([name for name in arguments if name not in ("arch", "l2_promotion")])
    edges: dict[str, tuple[Any, ...]] = {
        "dims": _DIM_EDGES,
        "strides_bytes": (0, 8, 16, 24, 48, (1 << 40) - 32, (1 << 40) - 16, 1 << 40),
        "box": (0, 1, 7, 8, 16, 255, 256, 257, 128, 64, 32),
        "element_strides": (0, 1, 7, 8, 9),
        "lower_corner": _CORNER_EDGES,
        "upper_corner": _CORNER_EDGES,
        "address": (0, 8, 16, 48, (1 << 57) - 32, (1 << 57) - 16, 1 << 57),
        "channels_per_pixel": (0, 1, 8, 16, 128, 255, 256, 257),
        "pixels_per_column": (0, 1, 911, 912, 913, 1023, 1024, 1025),
        "data_type": tuple(_TYPES),
        "interleave": ("none", "16B", "32B"),
        "swizzle": tuple(_SWIZZLES),
        "oob_fill": ("zero", "nan"),
    }
    chosen = random.choice(edges[name])
    if isinstance(arguments[name], list):
        if arguments[name]:
            arguments[name][random.randrange(len(arguments[name]))] = chosen
    else:
        arguments[name] = chosen


def _predict(case: Case) -> bytes:
    arguments = case["arguments"]
    try:
        tensor_map = _KIND[case["map"]](**arguments)
    except TensorMapError:
        return _answer(1)
    return _answer(0, tensor_map.encode() if arguments["arch"] == _ENCODED_ARCH else b"")


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    results = []
    for case in cases:
        result, blob = device.encode(_KIND[case["map"]], case["arguments"])
        is_known = result == 0 and case["arguments"]["arch"] == _ENCODED_ARCH
        results.append(_answer(result, blob if is_known else b""))
    return results


def _answer(result: int, blob: bytes = b"") -> bytes:
    return result.to_bytes(4, "little") + blob.ljust(_MAP_BYTES, b"\0")


def _pieces(_case: Case, data: bytes) -> Pieces:
    result = np.frombuffer(data[:4], "<u4")
    return [("the driver's result (0: accepted)", result), ("word {} of the map", np.frombuffer(data[4:], "<u8"))]


ENCODE = Suite("encode", _draw, _predict, _run, _pieces, together=500)
