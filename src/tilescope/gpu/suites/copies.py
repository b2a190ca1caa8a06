"""What the suites of copies share: random sound maps, and the tables of integers that kernels/copies.cu takes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.gpu.device import Device, read_map
from tilescope.gpu.samples import POOL_BYTES
from tilescope.gpu.suite import Case
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map import REDUCTIONS, Im2colMap, TensorMap
from tilescope.tensor_map.option import Interleave

IMAGE_BYTES = 32768  # of shared memory, as a case sees it
TENSOR_BYTES = 1 << 16  # that a tensor may span
UNTOUCHED = 0xEE
# An mbarrier for one arrival after its first phase: phase 1, one arrival pending, no bytes outstanding
WORD_AFTER = 0xFFFFF800001FFFFE
MAP_SLOT_BYTES = 192  # of a map in the card's memory: room to put it off 64 bytes
OPERATIONS = (None, *REDUCTIONS)  # as kernels/copies.cu numbers them
_KINDS = {"tensor_map": 0, "im2col_map": 1}  # as kernels/copies.cu numbers them
_BULK, _FOUR_ROWS = 2, 3
GATHERED_ROWS = 4
_COPY_FIELDS = 16
_THREADS = 256
_PACKED_ELEMENTS = 128  # of a row of 4- or 6-bit types, and the steps of its coordinates


def drawn_map(random: random.Random, arch: str, data_type: str | None = None, *, dense: bool = False) -> TensorMap:
    """A sound tiled map over a small tensor; `dense`: without strides of which rows overlap."""
    while True:
        given = _tiled(random, arch, data_type, dense)
        if not any(each.severity == "error" for each in TensorMap.check(**given)):
            tensor_map = TensorMap(**given)
            if tensor_map.smem_bytes <= IMAGE_BYTES - 1024 and reach_bytes(tensor_map) <= TENSOR_BYTES:
                return tensor_map


def _tiled(random: random.Random, arch: str, data_type: str | None, dense: bool) -> dict[str, Any]:
    row = DataType.named(data_type or random.choice(_types(arch)))
    interleave = random.choice(("none",) * 6 + ("16B", "32B"))
    rank = random.randint(1, 5) if interleave == "none" else random.randint(3, 5)
    sliced = Interleave.named(interleave).slice_bytes or 0
    swizzle = "32B" if sliced == 32 else random.choice(_swizzles(arch))
    size_bits = row.bits
    quantum = max(1, 128 // row.smem_bits) if row.bits >= 8 else _PACKED_ELEMENTS
    widest = (Swizzle.named(swizzle).span_bytes or 256) * 8 // row.smem_bits
    box = [quantum * random.randint(1, max(1, min(256, widest) // quantum))]
    box += [random.randint(1, 2 ** random.randint(0, 5)) for _ in range(rank - 1)]
    dims = [random.randint(1, 2 * box[0]) if row.bits >= 8 else _PACKED_ELEMENTS * random.randint(1, 3)]
    dims += [random.randint(1, 9) for _ in range(rank - 1)]
    if sliced:
        box = [random.randint(1, 24) * (sliced * 8 // size_bits), *(random.randint(1, 5) for _ in range(rank - 1))]
        box[0] = min(box[0], 256 * 8 // size_bits) or 1
        dims = [random.randint(1, 12) for _ in range(rank)]
    align = 32 if sliced == 32 or row.bits < 8 else 16
    strides, step = [], -(-(dims[0] * sliced if sliced else dims[0] * size_bits // 8) // align) * align
    for extent in dims[1:]:
        strides.append(step)
        step *= extent
    if not dense and random.random() < 0.2:
        strides = [align * random.randint(0, 40) for _ in strides]
    return {
        "data_type": row.name, "dims": tuple(dims), "strides_bytes": tuple(strides), "box": tuple(box),
        "element_strides": tuple(random.choice((1, 1, 1, random.randint(1, 4))) for _ in dims),
        "interleave": interleave, "swizzle": swizzle, "l2_promotion": random.choice(("none", "64B", "128B", "256B")),
        "oob_fill": "nan" if row.is_float and random.random() < 0.3 else "zero", "address": 1 << 30, "arch": arch,
    }  # fmt: skip


def drawn_columns(random: random.Random, arch: str, data_type: str | None = None) -> Im2colMap:
    """A sound im2col map over small images, whose bounding box is not empty."""
    while True:
        given = _columns(random, arch, data_type)
        if not any(each.severity == "error" for each in Im2colMap.check(**given)):
            tensor_map = Im2colMap(**given)
            if tensor_map.smem_bytes <= IMAGE_BYTES - 1024 and reach_bytes(tensor_map) <= TENSOR_BYTES:
                return tensor_map


def _columns(random: random.Random, arch: str, data_type: str | None) -> dict[str, Any]:
    row = DataType.named(data_type or random.choice(_types(arch)[:13]))
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
    strides, step = [], sliced or -(-channels * size // 16) * 16
    for extent in dims[0 if sliced else 1 :][: rank - 1]:
        strides.append(step * (extent if sliced else 1))
        step *= extent
    return {
        "data_type": row.name, "dims": tuple(dims), "strides_bytes": tuple(strides[: rank - 1]),
        "lower_corner": tuple(random.randint(-3, 2) for _ in range(rank - 2)),
        "upper_corner": tuple(random.randint(-3, 2) for _ in range(rank - 2)),
        "channels_per_pixel": sliced // size if sliced else min(channels, span_bytes // size),
        "pixels_per_column": random.randint(1, 90),
        "element_strides": tuple(random.choice((1, 1, random.randint(1, 3))) for _ in dims),
        "interleave": interleave, "swizzle": swizzle,
        "oob_fill": "nan" if row.is_float and random.random() < 0.3 else "zero", "address": 1 << 30, "arch": arch,
    }  # fmt: skip


def reach_bytes(tensor_map: TensorMap | Im2colMap) -> int:
    """Bytes from the first of the tensor to behind its last, one row to spare."""
    rows = sum(extent * stride for extent, stride in zip(tensor_map.dims[1:], tensor_map.strides_bytes, strict=True))
    return rows + tensor_map.dims[0] * max(32, tensor_map.data_type.bits // 8)


def drawn_coords(random: random.Random, tensor_map: TensorMap, *, negative: bool = True) -> tuple[int, ...]:
    """Coordinates in and around the tensor that the instruction takes."""
    bits = tensor_map.data_type.bits
    quantum = 1 if tensor_map.interleave.slice_bytes else _PACKED_ELEMENTS if bits < 8 else max(1, 128 // bits)
    lowest = -2 if negative else 0

    def near(extent: int) -> int:
        return random.randint(lowest, extent) if random.random() < 0.3 else random.randrange(extent)

    return (quantum * near(tensor_map.dims[0] // quantum + 1), *map(near, tensor_map.dims[1:]))


def drawn_pixel(random: random.Random, tensor_map: Im2colMap, *, negative: bool = True) -> tuple[int, ...]:
    """A base pixel in the bounding box, with channels or a slice and an image around the tensor."""
    sliced = bool(tensor_map.interleave.slice_bytes)
    spatial = tensor_map.dims[:-2] if sliced else tensor_map.dims[1:-1]
    base = []
    for extent, lower, upper in zip(spatial, tensor_map.lower_corner, tensor_map.upper_corner, strict=True):
        low = lower if negative else max(0, lower)
        base.append(random.randint(low, max(low, extent - 1 + upper)))
    image = random.randint(-1 if negative else 0, tensor_map.dims[-1])
    if sliced:
        return (*base, random.randint(0, tensor_map.dims[-2]), image)
    quantum = max(1, 16 * 8 // tensor_map.data_type.bits)
    return (quantum * random.randint(-1 if negative else 0, 2), *base, image)


def drawn_place(random: random.Random) -> int:
    """Where in the pool a tensor, or the shared memory of a store, begins."""
    return 32 * random.randrange((POOL_BYTES - TENSOR_BYTES) // 32)


def _types(arch: str) -> list[str]:
    packed = Arch.named(arch).has("packed_types")
    return [row.name for row in DATA_TYPE.values() if row.driver_code is not None and (packed or row.bits >= 8)]


def _swizzles(arch: str) -> list[str]:
    card = Arch.named(arch)
    return [
        row.name for row in SWIZZLE.values()
        if row.driver_code is not None and row.feature is not None and card.has(row.feature)
    ]  # fmt: skip


class Tables:
    """Cases as rows of integers, with the maps that the driver encodes for them."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._maps: list[bytes] = []
        self._copies: list[list[int]] = []
        self._blocks: list[list[int]] = []

    def add(self, tensor_map: dict[str, Any], address: int, copies: list[dict[str, Any]], *, expected: int = 0,
            map_shift: int = 0) -> None:  # fmt: skip
        """One block: the same map for all of its copies (coords, smem, and what else `kernels/copies.cu` reads)."""
        found = read_map(tensor_map)
        blob = bytes(map_shift) + self._device.encoded(found, address)
        place = MAP_SLOT_BYTES * len(self._maps)
        self._maps.append(blob.ljust(MAP_SLOT_BYTES, b"\0"))
        self._block(expected, len(copies))
        for copy in copies:
            kind = _FOUR_ROWS if copy.get("gathers") else _KINDS[tensor_map["kind"]]
            self._copy(kind, found.rank, place + map_shift, copy)

    def add_bulk(self, copy: dict[str, Any], expected: int = 0) -> None:
        """One block with a one-dimensional copy."""
        self._block(expected, 1)
        self._copy(_BULK, 1, 0, copy)

    def _block(self, expected: int, count: int) -> None:
        self._blocks.append([len(self._copies), count, expected, IMAGE_BYTES])

    def _copy(self, kind: int, rank: int, place: int, copy: dict[str, Any]) -> None:
        coords, offsets = list(copy["coords"]), list(copy.get("offsets", ()))
        row = [kind, rank, *coords, *[0] * (5 - len(coords)), *offsets, *[0] * (3 - len(offsets)), copy["smem"], place]
        row += [copy.get("size", 0), copy.get("mask", 0), copy.get("barrier", 0)]
        self._copies.append(row + [0] * (_COPY_FIELDS - len(row)))

    def uploaded(self) -> tuple[int, int, int]:
        """Addresses of maps, copies and blocks on the card."""
        maps = np.frombuffer(b"".join(self._maps) or bytes(MAP_SLOT_BYTES), np.uint8)
        tables = [np.array(each, np.int32) for each in (self._copies, self._blocks)]
        return self._device.upload(maps), self._device.upload(tables[0]), self._device.upload(tables[1])


def loaded(device: Device, tables: Tables, pool_address: int, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Barrier words and shared memory of `count` blocks that load."""
    images, words = device.allocate(count * IMAGE_BYTES), device.allocate(8 * count)
    device.launch(
        "copies:to_shared", *tables.uploaded(), pool_address, images, np.int32(IMAGE_BYTES), words,
        blocks=count, threads=_THREADS, smem_bytes=IMAGE_BYTES,
    )  # fmt: skip
    return device.download(words, (count,), "<u8"), device.download(images, (count, IMAGE_BYTES))


def result_of_load(word: int, image: npt.NDArray[np.uint8]) -> bytes:
    """The barrier's word, then shared memory up to the last byte that was written."""
    return int(word).to_bytes(8, "little") + image.tobytes().rstrip(bytes([UNTOUCHED]))


def map_of(case: Case) -> TensorMap | Im2colMap:
    """The map of a case, its tensor at the address where the emulator has it."""
    return read_map(case["map"])
