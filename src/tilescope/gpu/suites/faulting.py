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
from tilescope.errors import MisalignedAddressError
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Suite
from tilescope.gpu.suites import barriers, copies
from tilescope.gpu.suites.maps import drawn_columns, drawn_coords, drawn_map, drawn_pixel, drawn_place
from tilescope.pipeline.mbarrier import TX_END_BYTES
from tilescope.tensor_map import REDUCTIONS

_DONE = b"done"
_TYPES = [row.name for row in DATA_TYPE.values() if row.driver_code is not None and row.bits >= 8]
_ALIGNMENT_BYTES = {"barrier": 8, "map": 64}


def _draw(random: random.Random, arch: str) -> Case | None:
    """A copy with a coordinate, an address, an operation or an object where it may not be."""
    kind = random.choice((*("load", "store", "reduce") * 2, "im2col", "barrier", "map", "bulk", "arrivals", "bytes"))
    if kind == "bulk":
        place, shift = random.choice(("smem", "global")), random.choice((0, 4, 8, 12))
        copy = copies.draw_bulk(random, arch)
        return copy | {"kind": kind, "size": copy["size"] + 16, place: copy[place] + shift}
    if kind in ("arrivals", "bytes"):
        return {"kind": kind, "steps": _steps(random, kind)}
    smem = 128 * random.randint(0, 4) if random.random() < 0.6 else 16 * random.randint(0, 40)
    case: Case = {"kind": kind, "smem": smem, "source": drawn_place(random)}
    if kind == "im2col":
        columns = drawn_columns(random, arch)
        coords = list(drawn_pixel(random, columns))
        coords[random.randrange(len(coords))] += random.randint(-6, 6)
        return case | {"map": columns.to_dict(), "coords": coords}
    tensor_map = drawn_map(random, arch, random.choice(_TYPES), dense=True)
    stores = kind in ("store", "reduce")
    if stores and not copies.fits_memory(tensor_map):
        return None
    case["map"] = tensor_map.to_dict()
    negative = kind == "load" or random.random() < 0.3
    coords = list(drawn_coords(random, tensor_map, negative=negative))
    if kind in _ALIGNMENT_BYTES:
        shift = random.choice((0, 4, 8)) if kind == "barrier" else random.choice((0, 16, 32, 48, 64))
        return case | {"coords": coords, "smem": smem // 128 * 128, "shift": shift}
    if random.random() < 0.4:
        coords[0] += random.randint(-8, 8)
    case["coords"] = coords
    if stores:
        reduce = random.choice(list(REDUCTIONS)) if kind == "reduce" else None
        case |= {"image": drawn_place(random), "memory": case.pop("source"), "reduce": reduce}
    return case


def _steps(random: random.Random, kind: str) -> list[list[Any]]:
    """Operations on one barrier, the last of which brings what it still takes, or more."""
    count = random.choice((1, 2, 7, random.randint(1, 200)))
    if kind == "arrivals":
        return [["init", count + 1], ["arrive", 1], ["arrive", max(1, count + random.choice((-1, 0, 1, 5)))]]
    most = TX_END_BYTES - 1
    return [["init", count], *(["expect_tx", size] for size in random.choice(((most, 0, 0), (most, most, most))))]


def _predict(case: Case) -> bytes:
    if "shift" in case and case["shift"] % _ALIGNMENT_BYTES[case["kind"]]:
        raise MisalignedAddressError([])
    (barriers if "steps" in case else copies).predicted(case)
    return _DONE


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    for case in cases:
        (barriers if "steps" in case else copies).run(device, [case | {f"{case['kind']}_shift": case.get("shift", 0)}])
    return [_DONE] * len(cases)


FAULTS = Suite(
    "faults", _draw, _predict, _run, lambda _, data: [("byte {}", np.frombuffer(data, np.uint8))], ("copies", "barriers"),
    count=100, together=1, children=6, seconds_at_most=30.0,
)  # fmt: skip
