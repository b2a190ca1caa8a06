"""ldmatrix: registers after ldmatrix, shared memory after stmatrix, of random rows."""

from __future__ import annotations

import random

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import UNTOUCHED, Array, Case, Pieces, Suite, memory_lines
from tilescope.mma.ldmatrix import ldmatrix, stmatrix

_SMEM_BYTES = 8192
_ROW_BYTES = 16
_COUNTS = (1, 2, 4)


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


def _registers(case: Case) -> Array:
    return pool()[case["registers"] :][:512].view("<u4").reshape(32, 4)


def _predict(case: Case) -> bytes:
    count, transpose = case["count"], case["transpose"]
    if case["direction"] == "ldmatrix":
        registers = np.zeros((32, 4), "<u4")
        registers[:, :count] = ldmatrix(pool()[:_SMEM_BYTES], case["rows"], count=count, transpose=transpose)
        return registers.tobytes()
    smem = np.full(_SMEM_BYTES, UNTOUCHED, np.uint8)
    stmatrix(_registers(case)[:, :count], smem, case["rows"], transpose=transpose)
    return smem.tobytes()


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    loads = cases[0]["direction"] == "ldmatrix"
    numbers = [_COUNTS.index(case["count"]) + 3 * case["transpose"] for case in cases]
    out_bytes = 512 if loads else _SMEM_BYTES
    out = device.allocate(len(cases) * out_bytes)
    source = pool() if loads else np.stack([_registers(case) for case in cases])
    device.launch(
        f"matrices:{'load' if loads else 'store'}_matrices", device.upload(np.array(numbers, np.int32)),
        device.upload(np.array([case["rows"] for case in cases], np.int32)), device.upload(source), np.int32(_SMEM_BYTES), out,
        blocks=len(cases), threads=32, smem_bytes=_SMEM_BYTES,
    )  # fmt: skip
    return [result.tobytes() for result in device.download(out, (len(cases), out_bytes))]


def _pieces(case: Case, data: bytes) -> Pieces:
    if case["direction"] == "stmatrix":
        return [memory_lines("shared memory", data)]
    return [("lane {}, register {}", np.frombuffer(data, "<u4").reshape(32, 4))]


LDMATRIX = Suite(
    "ldmatrix", _draw, _predict, _run, _pieces, ("matrices",), lambda case: str(case["direction"]), feature="stmatrix"
)
