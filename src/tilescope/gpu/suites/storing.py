"""stores, reductions: one TMA store a case; the span of global memory that it changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite, bytes_differ, is_executed
from tilescope.gpu.suites import copies
from tilescope.tensor_map import REDUCTIONS, Im2colMap, TensorMap
from tilescope.tma import scatter4, store

TENSOR_OFFSET_BYTES = 1024  # of the tensor in the memory of its case
MEMORY_BYTES = copies.TENSOR_BYTES // 2
_PAIRS = [(operation, name) for operation, names in REDUCTIONS.items() for name in names]


def _draw_store(random: random.Random, arch: str) -> Case:
    return _case(random, arch, None, None)


def _draw_reduction(random: random.Random, arch: str) -> Case:
    return _case(random, arch, *random.choice(_PAIRS))


def _draw_scatter(random: random.Random, arch: str) -> Case:
    """A column and four rows of a matrix, apart from each other, some of them past its end."""
    while True:
        tensor_map = copies.drawn_map(random, arch, dense=True)
        if tensor_map.rank != 2 or tensor_map.dims[1] < copies.GATHERED_ROWS:
            continue
        scattering = tensor_map.with_fields(box=(tensor_map.box[0], 1))
        column, _ = copies.drawn_coords(random, scattering, negative=False)
        rows = random.sample(range(scattering.dims[1] + 2), copies.GATHERED_ROWS)
        case = _stored_case(random, scattering, (column, *rows), None) | {"gathers": True}
        if copies.reach_bytes(scattering) <= MEMORY_BYTES - TENSOR_OFFSET_BYTES and is_executed(case, _predict):
            return case


def _case(random: random.Random, arch: str, reduce: str | None, data_type: str | None) -> Case:
    while True:
        tensor_map: TensorMap | Im2colMap
        if random.random() < 0.2:
            tensor_map = copies.drawn_columns(random, arch, data_type)
            coords = copies.drawn_pixel(random, tensor_map, negative=False)
        else:
            tensor_map = copies.drawn_map(random, arch, data_type, dense=True)
            coords = copies.drawn_coords(random, tensor_map, negative=False)
        case = _stored_case(random, tensor_map, coords, reduce)
        if copies.reach_bytes(tensor_map) <= MEMORY_BYTES - TENSOR_OFFSET_BYTES and is_executed(case, _predict):
            return case


def _stored_case(
    random: random.Random, tensor_map: TensorMap | Im2colMap, coords: tuple[int, ...], reduce: str | None
) -> Case:
    room = copies.IMAGE_BYTES - tensor_map.smem_bytes * (copies.GATHERED_ROWS if len(coords) > tensor_map.rank else 1)
    return {
        "map": tensor_map.to_dict(), "coords": list(coords), "smem": 128 * random.randint(0, min(8, room // 128)),
        "reduce": reduce, "image": copies.drawn_place(random), "memory": copies.drawn_place(random),
    }  # fmt: skip


def memory_before(case: Case) -> npt.NDArray[np.uint8]:
    """Global memory before the copy."""
    return pool()[case["memory"] :][:MEMORY_BYTES]


def predicted_memory(case: Case) -> npt.NDArray[np.uint8]:
    """Global memory after the copy, by the emulator."""
    memory, start = memory_before(case).copy(), case["smem"]
    image = pool()[case["image"] :][: copies.IMAGE_BYTES]
    tensor_map, smem, tensor, coords = copies.map_of(case), image[start:], memory[TENSOR_OFFSET_BYTES:], case["coords"]
    if case.get("gathers"):
        assert isinstance(tensor_map, TensorMap)
        scatter4(tensor_map, smem, tensor, coords[0], coords[1:], smem_address=start)
    else:
        store(tensor_map, smem, tensor, coords, reduce=case["reduce"], smem_address=start)
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
    tables = copies.Tables(device)
    for number, case in enumerate(cases):
        address = memory + number * MEMORY_BYTES + TENSOR_OFFSET_BYTES
        copy = case | {"size": copies.OPERATIONS.index(case["reduce"]), "mask": case["image"]}
        tables.add(case["map"], address, [copy])
    stored(device, tables, memory, len(cases))
    after = device.download(memory, before.shape)
    return [changed_span(*each) for each in zip(before, after, strict=True)]


def stored(device: Device, tables: copies.Tables, memory: int, count: int) -> None:
    """Run `count` blocks that store to the card's memory."""
    device.launch(
        "copies:to_global", *tables.uploaded(), device.upload(pool()), memory, np.int32(MEMORY_BYTES),
        blocks=count, threads=256, smem_bytes=copies.IMAGE_BYTES,
    )  # fmt: skip


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    what = f"{case['reduce'] or 'store'} through {copies.map_of(case)!r} at {tuple(case['coords'])}"
    return f"{bytes_differ(restored(case, found), restored(case, expected), 'global memory')}: {what}"


def restored(case: Case, result: bytes) -> bytes:
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
SCATTER4 = Suite(
    "scatter4", "global memory after stores of four rows", _draw_scatter, _predict, _run, _differs, _KERNELS,
    feature="scatter4",
)  # fmt: skip
