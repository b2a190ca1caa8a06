"""plans: the copies of random plans, run as planned, and the shared memory of the whole tile after them."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.gpu.suites import copies
from tilescope.gpu.suites.loading import load_differs
from tilescope.planner import Plan, plan
from tilescope.tma import load

_TYPES = ("bf16", "f16", "tf32", "f32", "e4m3", "s8")


def _draw(random: random.Random, arch: str) -> Case:
    """One candidate of a random problem, somewhere on a matrix that need not be a multiple of the tile."""
    while True:
        data_type = random.choice(_TYPES)
        size = DataType.named(data_type).bits // 8
        major = random.choice(("K", "MN")) if size == 2 else "K"
        tile = (random.choice((8, 16, 24, 64, 96, 128)), 32 // size * random.choice((1, 2, 3, 4, 8)))
        consumer = random.choice(("ldmatrix", None)) if size == 2 else None
        candidates = _candidates(tile, data_type, major, consumer, arch, random.random() < 0.3)
        contiguous = 16 // size * random.randint(1, 20)
        shape = (random.randint(1, 200), contiguous) if major == "K" else (contiguous, random.randint(1, 200))
        if not candidates or shape[0] * shape[1] * size > copies.TENSOR_BYTES:
            continue
        chosen = random.choice(candidates)
        try:
            tensor_map = chosen.tensor_map(1 << 30, shape)
        except RuleError:
            continue
        place = [random.randrange(-(-extent // step)) * step for extent, step in zip(shape, tile, strict=True)]
        boxes: list[dict[str, Any]] = [
            {"coords": list(chosen.copy_coords(copy, *place)), "smem": copy.smem_offset_bytes} for copy in chosen.copies
        ]
        if max(copy["smem"] for copy in boxes) + tensor_map.smem_bytes <= copies.IMAGE_BYTES:
            return {"map": tensor_map.to_dict(), "copies": boxes, "source": copies.drawn_place(random)}


@cache
def _candidates(
    tile: tuple[int, int], data_type: str, major: Any, consumer: Any, arch: Any, fold: bool
) -> tuple[Plan, ...]:  # fmt: skip
    """The plans of a problem: planning takes far longer than a copy, so a problem is planned once."""
    options = {} if consumer is None else {"consumer": consumer}
    try:
        return plan(tile, data_type, major=major, arch=arch, fold=fold, **options).candidates
    except RuleError:
        return ()


def _predict(case: Case) -> Outcome:
    smem = np.full(copies.IMAGE_BYTES, copies.UNTOUCHED, np.uint8)
    tensor_map, memory = copies.map_of(case), pool()[case["source"] :]
    for copy in case["copies"]:
        load(tensor_map, memory, copy["coords"], smem=smem[copy["smem"] :], smem_address=copy["smem"])
    return Outcome(copies.result_of_load(copies.WORD_AFTER, smem))


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    pool_address = device.upload(pool())
    tables = copies.Tables(device)
    for case in cases:
        expected = copies.map_of(case).transaction_bytes * len(case["copies"])
        tables.add(case["map"], pool_address + case["source"], case["copies"], expected=expected)
    words, images = copies.loaded(device, tables, pool_address, len(cases))
    return [copies.result_of_load(word, image) for word, image in zip(words, images, strict=True)]


PLANS = Suite("plans", "the whole tile after the copies of a plan", _draw, _predict, _run, load_differs, ("copies",))
