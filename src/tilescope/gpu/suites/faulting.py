"""faults: copies and barriers at the edge of what the chip executes; which CUDA error they end with.

    715 illegal instruction    a coordinate, or an operation of a type, that the engine does not take
    716 misaligned address     shared memory off 128 bytes, a barrier off 8, a map off 64, a bulk copy off 16
    719 launch failure         more arrivals than an mbarrier waits for, or far more bytes than it counts

A case runs in a process of its own: a fault spends the process. More arrivals than pending are a fault where one
instruction brings them; its block must live on for a while, or it is not reported.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tilescope.data_type import DATA_TYPE
from tilescope.errors import FaultError, MisalignedAddressError
from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.gpu.suites import copies
from tilescope.gpu.suites.barriers import predicted_steps, run_sequences
from tilescope.gpu.suites.bulk import BULK
from tilescope.gpu.suites.storing import MEMORY_BYTES, TENSOR_OFFSET_BYTES, predicted_memory, stored
from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.tensor_map import REDUCTIONS
from tilescope.tma import load

_DONE = b"done"
_TYPES = [row.name for row in DATA_TYPE.values() if row.driver_code is not None and row.bits >= 8]


def _draw(random: random.Random, arch: str) -> Case:
    """A copy with a coordinate, an address, an operation or an object where it may not be."""
    kind = random.choice((*("load", "store", "reduce") * 2, "im2col", "barrier", "map", "bulk", "arrivals", "bytes"))
    if kind == "bulk":
        place, shift = random.choice(("smem", "global")), random.choice((0, 4, 8, 12))
        copy = BULK.draw(random, arch)
        return copy | {"kind": kind, "size": copy["size"] + 16, place: copy[place] + shift}
    if kind in ("arrivals", "bytes"):
        return {"kind": kind, "steps": _steps(random, kind)}
    smem = 128 * random.randint(0, 4) if random.random() < 0.6 else 16 * random.randint(0, 40)
    case: Case = {"kind": kind, "smem": smem, "source": copies.drawn_place(random)}
    if kind == "im2col":
        columns = copies.drawn_columns(random, arch)
        coords = list(copies.drawn_pixel(random, columns))
        coords[random.randrange(len(coords))] += random.randint(-6, 6)
        return case | {"map": columns.to_dict(), "coords": coords}
    tensor_map = copies.drawn_map(random, arch, random.choice(_TYPES), dense=True)
    if kind in ("store", "reduce") and copies.reach_bytes(tensor_map) > MEMORY_BYTES - TENSOR_OFFSET_BYTES:
        return _draw(random, arch)
    case["map"] = tensor_map.to_dict()
    negative = kind == "load" or random.random() < 0.3
    coords = list(copies.drawn_coords(random, tensor_map, negative=negative))
    if kind in ("barrier", "map"):
        shift = random.choice((0, 4, 8)) if kind == "barrier" else random.choice((0, 16, 32, 48, 64))
        return case | {"coords": coords, "smem": smem // 128 * 128, "shift": shift}
    if random.random() < 0.4:
        coords[0] += random.randint(-8, 8)
    case["coords"] = coords
    if kind == "load":
        return case
    reduce = random.choice(list(REDUCTIONS)) if kind == "reduce" else None
    return case | {"image": copies.drawn_place(random), "memory": case.pop("source"), "reduce": reduce}


def _steps(random: random.Random, kind: str) -> list[list[Any]]:
    """Operations on one barrier, the last of which brings what it still takes, or more."""
    count = random.choice((1, 2, 7, random.randint(1, 200)))
    if kind == "arrivals":
        return [["init", count + 1], ["arrive", 1], ["arrive", max(1, count + random.choice((-1, 0, 1, 5)))]]
    most = TX_END_BYTES - 1
    return [["init", count], *[["expect_tx", each] for each in random.choice(((most, 0, 0), (most, most, most)))]]


def _predict(case: Case) -> Outcome:
    if case["kind"] in ("barrier", "map") and case["shift"] % (8 if case["kind"] == "barrier" else 64):
        return Outcome(ended=f"error {MisalignedAddressError.code}")
    try:
        if "steps" in case:
            predicted_steps(case)
        elif case["kind"] == "bulk":
            BULK.predict(case)
        elif "reduce" in case:
            predicted_memory(case)
        else:
            smem = np.zeros(copies.IMAGE_BYTES, np.uint8)
            load(copies.map_of(case), pool()[case["source"] :], case["coords"], smem=smem, smem_address=case["smem"])
    except FaultError as fault:
        return Outcome(ended=f"error {fault.code}")
    return Outcome(_DONE)


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    for case in cases:
        if "steps" in case:
            run_sequences(device, [case["steps"]])
            continue
        if case["kind"] == "bulk":
            BULK.run(device, [case])
            continue
        tables = copies.Tables(device)
        if "reduce" in case:
            memory = device.upload(pool()[case["memory"] :][:MEMORY_BYTES])
            copy = case | {"size": copies.OPERATIONS.index(case["reduce"]), "mask": case["image"]}
            tables.add(case["map"], memory + TENSOR_OFFSET_BYTES, [copy])
            stored(device, tables, memory, 1)
            continue
        pool_address = device.upload(pool())
        shift = case.get("shift", 0)
        copy = case | {"barrier": shift if case["kind"] == "barrier" else 0}
        tables.add(
            case["map"], pool_address + case["source"], [copy], expected=copies.map_of(case).transaction_bytes,
            map_shift=shift if case["kind"] == "map" else 0,
        )  # fmt: skip
        copies.loaded(device, tables, pool_address, 1)
    return [_DONE] * len(cases)


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    return f"{case['kind']}: card {found!r}, ours {expected!r}"


FAULTS = Suite(
    "faults", "which CUDA error misuse ends with (715, 716, 719)", _draw, _predict, _run, _differs, ("copies", "barriers"),
    count=100, together=1, children=6, seconds_at_most=30.0,
)  # fmt: skip
