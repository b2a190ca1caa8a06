"""ldmatrix: registers after ldmatrix, shared memory after stmatrix, of random rows."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite, bytes_differ, in_groups
from tilescope.mma.ldmatrix import ldmatrix, stmatrix

_SMEM_BYTES = 8192
_ROW_BYTES = 16
_COUNTS = (1, 2, 4)
_UNTOUCHED = 0xEE


def _draw(random: random.Random, _arch: str) -> Case:
    """32 rows: anywhere for ldmatrix, apart from each other for stmatrix."""
    direction = random.choice(("ldmatrix", "stmatrix"))
    places = range(_SMEM_BYTES // _ROW_BYTES)
    chosen = random.choices(places, k=32) if direction == "ldmatrix" else random.sample(places, 32)
    return {
        "direction": direction,
        "count": random.choice(_COUNTS),
        "transpose": random.random() < 0.5,
        "rows": [place * _ROW_BYTES for place in chosen],
        "registers": 512 * random.randrange(1000),
    }


def _registers(case: Case) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    words: np.ndarray[tuple[int, int], np.dtype[np.uint32]] = (
        pool()[case["registers"] :][:512].view("<u4").reshape(32, 4)
    )
    return words


def _predict(case: Case) -> Outcome:
    count, transpose = case["count"], case["transpose"]
    if case["direction"] == "ldmatrix":
        registers = np.zeros((32, 4), np.uint32)
        registers[:, :count] = ldmatrix(pool()[:_SMEM_BYTES], case["rows"], count=count, transpose=transpose)
        return Outcome(registers.astype("<u4").tobytes())
    smem = np.full(_SMEM_BYTES, _UNTOUCHED, np.uint8)
    stmatrix(_registers(case)[:, :count], smem, case["rows"], transpose=transpose)
    return Outcome(smem.tobytes())


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    return in_groups(cases, lambda case: str(case["direction"]), partial(_batch, device))


def _batch(device: Device, direction: str, cases: list[Case]) -> list[bytes]:
    numbers = [_COUNTS.index(case["count"]) + 3 * case["transpose"] for case in cases]
    ops = device.upload(np.array(numbers, np.int32))
    rows = device.upload(np.array([case["rows"] for case in cases], np.int32))
    size = np.int32(_SMEM_BYTES)
    if direction == "ldmatrix":
        out = device.allocate(len(cases) * 512)
        device.launch(
            "matrices:load_matrices", ops, rows, device.upload(pool()), size, out,
            blocks=len(cases), threads=32, smem_bytes=_SMEM_BYTES,
        )  # fmt: skip
        return [each.tobytes() for each in device.download(out, (len(cases), 512))]
    out = device.allocate(len(cases) * _SMEM_BYTES)
    registers = device.upload(np.stack([_registers(case) for case in cases]))
    device.launch(
        "matrices:store_matrices", ops, rows, registers, out, size,
        blocks=len(cases), threads=32, smem_bytes=_SMEM_BYTES,
    )  # fmt: skip
    return [each.tobytes() for each in device.download(out, (len(cases), _SMEM_BYTES))]


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    what = f"{case['direction']}.x{case['count']}{'.trans' * case['transpose']}"
    if case["direction"] == "stmatrix":
        return f"{what}: {bytes_differ(found, expected)}"
    one, other = (np.frombuffer(each, "<u4").reshape(32, 4) for each in (found, expected))
    lane, register = np.argwhere(one != other)[0]
    return f"{what}: lane {lane}, register {register}: card {one[lane, register]:#x}, ours {other[lane, register]:#x}"


LDMATRIX = Suite(
    "ldmatrix", "registers of ldmatrix, bytes of stmatrix", _draw, _predict, _run, _differs, ("matrices",),
    feature="stmatrix",
)  # fmt: skip
