"""loads, im2col, multicast: one TMA load a case; the bytes it leaves in shared memory, and the barrier's word after it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite, bytes_differ, is_executed
from tilescope.gpu.suites import copies
from tilescope.tma import gather4, load, load_multicast

_CLUSTER_BLOCKS = 4
_NO_COPY = 1  # what a block that receives nothing reports as its word


def _draw_load(random: random.Random, arch: str) -> Case:
    while True:
        tensor_map = copies.drawn_map(random, arch)
        case = _case(random, tensor_map, copies.drawn_coords(random, tensor_map))
        if is_executed(case, _predict_load):
            return case


def _draw_im2col(random: random.Random, arch: str) -> Case:
    tensor_map = copies.drawn_columns(random, arch)
    offsets = [random.randint(0, 4) for _ in range(tensor_map.rank - 2)]
    return _case(random, tensor_map, copies.drawn_pixel(random, tensor_map)) | {"offsets": offsets}


def _draw_multicast(random: random.Random, arch: str) -> Case:
    return _draw_load(random, arch) | {"mask": random.randint(1, (1 << _CLUSTER_BLOCKS) - 1)}


def _draw_gather(random: random.Random, arch: str) -> Case:
    """A column and four rows of a matrix, in any order, some of them outside."""
    while True:
        tensor_map = copies.drawn_map(random, arch)
        if tensor_map.rank != 2:
            continue
        gathering = tensor_map.with_fields(box=(tensor_map.box[0], 1))
        column, _ = copies.drawn_coords(random, gathering)
        rows = [random.randint(-1, gathering.dims[1]) for _ in range(copies.GATHERED_ROWS)]
        case = _case(random, gathering, (column, *rows)) | {"gathers": True}
        if is_executed(case, _predict_gather):
            return case


def _case(random: random.Random, tensor_map: Any, coords: tuple[int, ...]) -> Case:
    room = copies.IMAGE_BYTES - tensor_map.smem_bytes
    smem = 128 * random.randint(0, min(8, room // 128))
    return {"map": tensor_map.to_dict(), "coords": list(coords), "smem": smem, "source": copies.drawn_place(random)}


def _predict_load(case: Case) -> Outcome:
    smem = np.full(copies.IMAGE_BYTES, copies.UNTOUCHED, np.uint8)
    start = case["smem"]
    memory = pool()[case["source"] :]
    load(
        copies.map_of(case),
        memory,
        case["coords"],
        offsets=case.get("offsets", ()),
        smem=smem[start:],
        smem_address=start,
    )
    return Outcome(copies.result_of_load(copies.WORD_AFTER, smem))


def _predict_gather(case: Case) -> Outcome:
    smem = np.full(copies.IMAGE_BYTES, copies.UNTOUCHED, np.uint8)
    start, (column, *rows) = case["smem"], case["coords"]
    gather4(copies.map_of(case), pool()[case["source"] :], column, rows, smem=smem[start:], smem_address=start)
    return Outcome(copies.result_of_load(copies.WORD_AFTER, smem))


def _predict_multicast(case: Case) -> Outcome:
    smems = np.full((_CLUSTER_BLOCKS, copies.IMAGE_BYTES), copies.UNTOUCHED, np.uint8)
    start, mask = case["smem"], case["mask"]
    load_multicast(
        copies.map_of(case), pool()[case["source"] :], case["coords"], [smem[start:] for smem in smems],
        cta_mask=mask, smem_address=start,
    )  # fmt: skip
    words = [copies.WORD_AFTER if mask >> rank & 1 else _NO_COPY for rank in range(_CLUSTER_BLOCKS)]
    return Outcome(_joined(words, smems))


def _joined(words: Any, images: Any) -> bytes:
    """The results of the blocks of a cluster, each with its length before it."""
    results = [copies.result_of_load(word, image) for word, image in zip(words, images, strict=True)]
    return b"".join(len(result).to_bytes(4, "little") + result for result in results)


def _tables(device: Device, cases: list[Case]) -> tuple[copies.Tables, int]:
    pool_address = device.upload(pool())
    tables = copies.Tables(device)
    for case in cases:
        expected = copies.map_of(case).transaction_bytes * (copies.GATHERED_ROWS if case.get("gathers") else 1)
        tables.add(case["map"], pool_address + case["source"], [case], expected=expected)
    return tables, pool_address


def _run_loads(device: Device, cases: list[Case]) -> list[bytes]:
    tables, pool_address = _tables(device, cases)
    words, images = copies.loaded(device, tables, pool_address, len(cases))
    return [copies.result_of_load(word, image) for word, image in zip(words, images, strict=True)]


def _run_multicast(device: Device, cases: list[Case]) -> list[bytes]:
    tables, _ = _tables(device, cases)
    blocks = len(cases) * _CLUSTER_BLOCKS
    images, words = device.allocate(blocks * copies.IMAGE_BYTES), device.allocate(blocks * 8)
    device.launch(
        "copies:to_cluster", *tables.uploaded(), images, np.int32(copies.IMAGE_BYTES), words,
        blocks=blocks, threads=256, smem_bytes=copies.IMAGE_BYTES,
    )  # fmt: skip
    found_words = device.download(words, (len(cases), _CLUSTER_BLOCKS), "<u8")
    found = device.download(images, (len(cases), _CLUSTER_BLOCKS, copies.IMAGE_BYTES))
    return [_joined(*each) for each in zip(found_words, found, strict=True)]


def load_differs(case: Case, found: bytes, expected: bytes) -> str:
    """The first difference of one load in words."""
    words = [int.from_bytes(each[:8], "little") for each in (found, expected)]
    what = f"{copies.map_of(case)!r} at {tuple(case['coords'])}" if "coords" in case else f"{copies.map_of(case)!r}"
    if words[0] != words[1]:
        seen = "the barrier never passed" if words[0] == 0 else f"the barrier's word is {words[0]:#018x}"
        return f"{seen}, ours {words[1]:#018x}: {what}"
    return f"{bytes_differ(found[8:], expected[8:])}: {what}"


def _multicast_differs(case: Case, found: bytes, expected: bytes) -> str:
    for rank in range(_CLUSTER_BLOCKS):
        parts = [each[4 : 4 + int.from_bytes(each[:4], "little")] for each in (found, expected)]
        if parts[0] != parts[1]:
            return f"block {rank}, mask {case['mask']:#06b}: {load_differs(case, *parts)}"
        found, expected = (each[4 + int.from_bytes(each[:4], "little") :] for each in (found, expected))
    return "the results have other lengths"


_KERNELS = ("copies",)
LOADS = Suite(
    "loads", "bytes and barrier after tiled loads", _draw_load, _predict_load, _run_loads, load_differs, _KERNELS
)
IM2COL = Suite(
    "im2col", "bytes and barrier after im2col loads", _draw_im2col, _predict_load, _run_loads, load_differs, _KERNELS
)
GATHER4 = Suite(
    "gather4", "bytes and barrier after loads of four rows", _draw_gather, _predict_gather, _run_loads, load_differs,
    _KERNELS, feature="gather4",
)  # fmt: skip
MULTICAST = Suite(
    "multicast", "bytes and barriers of a cluster of four after one load", _draw_multicast, _predict_multicast,
    _run_multicast, _multicast_differs, _KERNELS, count=200, together=100, feature="multicast",
)  # fmt: skip
