"""stores, reductions: one TMA store a case; the span of global memory that it changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite, bytes_differ
from tilescope.gpu.suites.copies import (
    IMAGE_BYTES,
    OPERATIONS,
    TENSOR_BYTES,
    Tables,
    drawn_columns,
    drawn_coords,
    drawn_map,
    drawn_pixel,
    drawn_place,
    map_of,
    reach_bytes,
)
from tilescope.tensor_map import REDUCTIONS, Im2colMap, TensorMap
from tilescope.tma import store

TENSOR_OFFSET_BYTES = 1024  # of the tensor in the memory of its case
MEMORY_BYTES = TENSOR_BYTES // 2
_PAIRS = [(operation, name) for operation, names in REDUCTIONS.items() for name in names]


def _draw_store(random: random.Random, arch: str) -> Case:
    return _case(random, arch, None, None)


def _draw_reduction(random: random.Random, arch: str) -> Case:
    return _case(random, arch, *random.choice(_PAIRS))


def _case(random: random.Random, arch: str, reduce: str | None, data_type: str | None) -> Case:
    while True:
        tensor_map: TensorMap | Im2colMap
        if random.random() < 0.2:
            tensor_map = drawn_columns(random, arch, data_type)
            coords = drawn_pixel(random, tensor_map, negative=False)
        else:
            tensor_map = drawn_map(random, arch, data_type, dense=True)
            coords = drawn_coords(random, tensor_map, negative=False)
        smem = 128 * random.randint(0, min(8, (IMAGE_BYTES - tensor_map.smem_bytes) // 128))
        case = {
            "map": tensor_map.to_dict(), "coords": list(coords), "smem": smem, "reduce": reduce,
            "image": drawn_place(random), "memory": drawn_place(random),
        }  # fmt: skip
        if reach_bytes(tensor_map) <= MEMORY_BYTES - TENSOR_OFFSET_BYTES and _is_legal(case):
            return case


def _is_legal(case: Case) -> bool:
    """Whether tilescope says that the chip executes it; what it refuses belongs to the suite of faults."""
    try:
        predicted_memory(case)
    except ValueError:
        return False
    return True


def memory_before(case: Case) -> npt.NDArray[np.uint8]:
    """Global memory before the copy."""
    return pool()[case["memory"] :][:MEMORY_BYTES]


def predicted_memory(case: Case) -> npt.NDArray[np.uint8]:
    """Global memory after the copy, by the emulator."""
    memory, start = memory_before(case).copy(), case["smem"]
    image = pool()[case["image"] :][:IMAGE_BYTES]
    store(
        map_of(case), image[start:], memory[TENSOR_OFFSET_BYTES:], case["coords"],
        reduce=case["reduce"], smem_address=start,
    )  # fmt: skip
    return memory


def _predict(case: Case) -> Outcome:
    return Outcome(changed_span(memory_before(case), predicted_memory(case)))


def changed_span(before: npt.NDArray[np.uint8], after: npt.NDArray[np.uint8]) -> bytes:
    """Where memory changed first, and its bytes from there to the last that changed; 0 and none where it did not."""
    changed = np.flatnonzero(before != after)
    if not changed.size:
        return bytes(4)
    first, last = int(changed[0]), int(changed[-1])
    return first.to_bytes(4, "little") + after[first : last + 1].tobytes()


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    before = np.stack([memory_before(case) for case in cases])
    memory = device.upload(before)
    tables = Tables(device)
    for number, case in enumerate(cases):
        address = memory + number * MEMORY_BYTES + TENSOR_OFFSET_BYTES
        copy = case | {"size": OPERATIONS.index(case["reduce"]), "mask": case["image"]}
        tables.add(case["map"], address, [copy])
    stored(device, tables, memory, len(cases))
    after = device.download(memory, before.shape)
    return [changed_span(*each) for each in zip(before, after, strict=True)]


def stored(device: Device, tables: Tables, memory: int, count: int) -> None:
    """Run `count` blocks that store to the card's memory."""
    device.launch(
        "copies:to_global", *tables.uploaded(), device.upload(pool()), memory, np.int32(MEMORY_BYTES),
        blocks=count, threads=256, smem_bytes=IMAGE_BYTES,
    )  # fmt: skip


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    what = f"{case['reduce'] or 'store'} through {map_of(case)!r} at {tuple(case['coords'])}"
    return f"{bytes_differ(_memory(case, found), _memory(case, expected), 'global memory')}: {what}"


def _memory(case: Case, result: bytes) -> bytes:
    """The whole memory of a case from the span that changed."""
    memory: Any = bytearray(memory_before(case).tobytes())
    first = int.from_bytes(result[:4], "little")
    memory[first : first + len(result) - 4] = result[4:]
    return bytes(memory)


_KERNELS = ("copies",)
STORES = Suite("stores", "global memory after tiled and im2col stores", _draw_store, _predict, _run, _differs, _KERNELS)
REDUCTIONS_SUITE = Suite(
    "reductions", "global memory after every reduction and type", _draw_reduction, _predict, _run, _differs, _KERNELS
)
